/* The names of tensors: families call the same part by names of their own, and the roles (roles.c) know one. What a
 * family's rules (arch/arch_rows.c) do not mention keeps its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch.h"
#include "base/check.h"
#include "model_internal.h"

const char *wefti_model_after_layer(const char *name, enum weft_model_format format,
                                    size_t *prefix_len_out) {
    static const char *const prefixes[2][4] = {
        {"model.layers.", "layers.", "encoder.layers.", "encoder.layer."}, {"blk."}};
    size_t len = 0;
    for (size_t i = 0; i < 4 && prefixes[format][i] && len == 0; i++) {
        if (strncmp(name, prefixes[format][i], strlen(prefixes[format][i])) == 0)
            len = strlen(prefixes[format][i]);
    }
    if (len == 0) return NULL;
    size_t digits = strspn(name + len, "0123456789");
    if (digits == 0 || digits > 9 || name[len + digits] != '.') return NULL;
    *prefix_len_out = len + digits + 1;
    return name + *prefix_len_out;
}

static bool is_of_layers(const struct wefti_model_rename *rule) {
    return rule->from[0] == '*';
}

/* The rule of either kind that a name, or its rest after a layer's number, begins by; NULL: none does. */
static const struct wefti_model_rename *find_rule(const struct wefti_model_rename *rules,
                                                  const char *name, bool of_layers) {
    for (; rules->from; rules++) {
        const char *from = rules->from + (of_layers ? strlen("*.") : 0);
        if (is_of_layers(rules) == of_layers && strncmp(name, from, strlen(from)) == 0)
            return rules;
    }
    return NULL;
}

/* In place of name[at..at + n] the text `to`. The tensor owns its name. */
static weft_err replace(struct weft_tensor *tensor, size_t at, size_t n, const char *to) {
    char *had = (char *)(uintptr_t)tensor->name, *name;
    WEFT_ASSERT(at + n <= strlen(had));
    if (asprintf(&name, "%.*s%s%s", (int)at, had, to, had + at + n) < 0) return WEFT_E_NOMEM;
    free(had);
    tensor->name = name;
    return WEFT_OK;
}

static weft_err rename_one(struct weft_tensor *tensor, const struct wefti_model_rename *rules,
                           enum weft_model_format format, bool *is_dropped_out) {
    const struct wefti_model_rename *rule = find_rule(rules, tensor->name, false);
    weft_err err = WEFT_OK;
    size_t prefix_len;
    *is_dropped_out = rule && !rule->to;
    if (rule && rule->to) err = replace(tensor, 0, strlen(rule->from), rule->to);
    if (err || *is_dropped_out) return err;
    const char *rest = wefti_model_after_layer(tensor->name, format, &prefix_len);
    rule = rest ? find_rule(rules, rest, true) : NULL;
    if (!rule) return WEFT_OK;
    *is_dropped_out = !rule->to;
    if (!rule->to) return WEFT_OK;
    return replace(tensor, prefix_len, strlen(rule->from) - strlen("*."), rule->to);
}

weft_err wefti_model_rename_one(const struct wefti_model_arch *arch, enum weft_model_format format,
                                const char *name, char **name_out) {
    struct weft_tensor tensor = {.name = strdup(name)};
    bool is_dropped = false;
    weft_err err = tensor.name ? WEFT_OK : WEFT_E_NOMEM;
    *name_out = NULL;
    if (!err && arch && arch->renames[format])
        err = rename_one(&tensor, arch->renames[format], format, &is_dropped);
    if (err || is_dropped)
        free((char *)(uintptr_t)tensor.name);
    else
        *name_out = (char *)(uintptr_t)tensor.name;
    return err;
}

weft_err wefti_model_rename(weft_model *model, enum weft_model_format format, const char *path,
                            struct weft_errmsg *why) {
    const struct wefti_model_arch *arch =
        wefti_model_arch_of_gguf((struct weft_str){model->params.arch, strlen(model->params.arch)});
    if (!arch || !arch->renames[format]) return WEFT_OK;
    free(model->by_name); /* of the names before */
    model->by_name = NULL;
    size_t n = 0, n_before = model->n_tensors;
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < n_before; i++) {
        bool is_dropped = false;
        if (!err) err = rename_one(&model->tensors[i], arch->renames[format], format, &is_dropped);
        if (is_dropped)
            free((char *)(uintptr_t)model->tensors[i].name);
        else
            model->tensors[n++] = model->tensors[i];
    }
    model->n_tensors = n;
    return err ? weft_err_set(why, err, "%s: out of memory for the tensor list", path) : WEFT_OK;
}
