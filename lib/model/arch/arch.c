/* Looking for architectures by their names. */
#include "arch.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "file.h"

#define NEAR_LETTERS 3 /* "Qwe", "GLM" */

const struct wefti_model_arch *wefti_model_arch_of_class(const char *name) {
    for (size_t i = 0; i < wefti_model_n_archs; i++) {
        if (strcmp(wefti_model_archs[i].hf_class, name) == 0) return &wefti_model_archs[i];
    }
    return NULL;
}

const struct wefti_model_arch *wefti_model_arch_of_type(const char *name) {
    for (size_t i = 0; i < wefti_model_n_archs; i++) {
        if (strcmp(wefti_model_archs[i].hf_type, name) == 0) return &wefti_model_archs[i];
    }
    return NULL;
}

const struct wefti_model_arch *wefti_model_arch_of_gguf(struct weft_str name) {
    for (size_t i = 0; i < wefti_model_n_archs; i++) {
        if (name.len == strlen(wefti_model_archs[i].name) &&
            !memcmp(wefti_model_archs[i].name, name.data, name.len))
            return &wefti_model_archs[i];
    }
    return NULL;
}

const struct wefti_model_wrapper *wefti_model_wrapper_of(const char *class_name, const char *type) {
    for (size_t i = 0; i < wefti_model_n_wrappers; i++) {
        const struct wefti_model_wrapper *wrapper = &wefti_model_wrappers[i];
        if (class_name ? strcmp(wrapper->hf_class, class_name) == 0
                       : type && strcmp(wrapper->hf_type, type) == 0)
            return wrapper;
    }
    return NULL;
}

static const char *name_of(size_t i, enum wefti_model_arch_name kind) {
    if (kind == WEFTI_MODEL_BY_CLASS) return wefti_model_archs[i].hf_class;
    return kind == WEFTI_MODEL_BY_TYPE ? wefti_model_archs[i].hf_type : wefti_model_archs[i].name;
}

static bool has_name(size_t i, enum wefti_model_arch_name kind) {
    return kind != WEFTI_MODEL_BY_GGUF || !wefti_model_archs[i].traits.folder;
}

/* Of the classes of one type the first is listed. */
static bool is_listed_before(size_t i, enum wefti_model_arch_name kind) {
    enum wefti_model_arch_name by = kind == WEFTI_MODEL_BY_GGUF ? kind : WEFTI_MODEL_BY_TYPE;
    for (size_t before = 0; before < i; before++) {
        if (strcmp(name_of(before, by), name_of(i, by)) == 0) return true;
    }
    return false;
}

/* Qwen3VL is near Qwen3 and Qwen2: their names begin alike. */
static bool is_near(const char *name, const char *refused) {
    size_t n = 0;
    while (n < NEAR_LETTERS && name[n] &&
           tolower((unsigned char)name[n]) == tolower((unsigned char)refused[n]))
        n++;
    return n == NEAR_LETTERS;
}

weft_err wefti_model_arch_refuse(const char *path, enum wefti_model_arch_name kind,
                                 struct weft_str name, struct weft_errmsg *why) {
    static const char *const keys[] = {[WEFTI_MODEL_BY_CLASS] = "\"architectures\":",
                                       [WEFTI_MODEL_BY_TYPE] = "\"model_type\":",
                                       [WEFTI_MODEL_BY_GGUF] = "general.architecture"};
    WEFT_ASSERT((size_t)kind < sizeof keys / sizeof keys[0]);
    struct wefti_model_shown shown = wefti_model_show(name.data, name.len);
    char near[240] = "";
    size_t at = 0;
    for (size_t i = 0; i < wefti_model_n_archs; i++) {
        const char *other = name_of(i, kind);
        if (is_listed_before(i, kind) || !has_name(i, kind) || !is_near(other, shown.text))
            continue;
        if (at + strlen(other) + 3 > sizeof near) break; /* whole names only */
        at += (size_t)snprintf(near + at, sizeof near - at, "%s%s", at ? ", " : "", other);
    }
    return weft_err_set(why, WEFT_E_UNSUPPORTED,
                        "%s: %s '%s' is not supported%s%s; docs/models.md lists all that are", path,
                        keys[kind], shown.text, at ? "; of like names there are " : "", near);
}
