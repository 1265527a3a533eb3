/* Folders whose tensors have other names than a plain language model's.
 *
 * A model that reads more than text: the names of the language model's tensors contain
 * "language_model.", in one of two places, and all that lies beside them, but for the head, is of other parts.
 * A model without its head: the names lack what usually tells its tensors from the head. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf.h"

static bool begins(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Where "language_model." stands in a name; NULL: it does not. */
static const char *find_part(const char *name) {
    static const char part[] = "language_model.";
    if (begins(name, "model.")) name += strlen("model.");
    return begins(name, part) ? name : NULL;
}

/* Folders whose language model has plain names: the other parts by theirs. */
static bool is_of_other_part(const char *name) {
    static const char *const parts[] = {"vision_tower.",    "vision_model.",         "visual.",
                                        "audio_tower.",     "embed_vision.",         "embed_audio.",
                                        "vision_embedder.", "multi_modal_projector."};
    if (begins(name, "model.")) name += strlen("model.");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (begins(name, parts[i])) return true;
    }
    return false;
}

static bool has_part(const weft_model *model) {
    for (size_t i = 0; i < model->n_tensors; i++) {
        if (find_part(model->tensors[i].name)) return true;
    }
    return false;
}

/* In place: "language_model.model.norm.weight" or "model.language_model.norm.weight". */
static void drop_prefix(char *name) {
    static const char part[] = "language_model.";
    size_t at = begins(name, "model.") ? strlen("model.") : 0;
    if (!begins(name + at, part)) return;
    const char *rest = name + at + strlen(part);
    memmove(name + at, rest, strlen(rest) + 1);
}

void wefti_model_unwrap(weft_model *model) {
    size_t n = 0;
    const bool has_names = has_part(model);
    free(model->by_name); /* of the names before */
    model->by_name = NULL;
    for (size_t i = 0; i < model->n_tensors; i++) {
        char *name = (char *)(uintptr_t)model->tensors[i].name; /* the model's own copy */
        const bool is_other =
            has_names ? !find_part(name) && !begins(name, "lm_head.") : is_of_other_part(name);
        if (is_other) {
            free(name);
            continue;
        }
        drop_prefix(name);
        model->tensors[n++] = model->tensors[i];
    }
    model->n_tensors = n;
}

static bool lacks_prefix(const weft_model *model) {
    for (size_t i = 0; i < model->n_tensors; i++) {
        if (strcmp(model->tensors[i].name, "embed_tokens.weight") == 0) return true;
    }
    return false;
}

weft_err wefti_model_add_prefix(weft_model *model, const char *dir, struct weft_errmsg *why) {
    if (!lacks_prefix(model)) return WEFT_OK;
    free(model->by_name); /* of the names before */
    model->by_name = NULL;
    for (size_t i = 0; i < model->n_tensors; i++) {
        char *had = (char *)(uintptr_t)model->tensors[i].name; /* its own copy */
        if (begins(had, "model.") || begins(had, "lm_head.")) continue;
        size_t n_bytes = strlen("model.") + strlen(had) + 1;
        char *name = malloc(n_bytes);
        if (!name) return weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", dir);
        (void)snprintf(name, n_bytes, "model.%s", had);
        free(had);
        model->tensors[i].name = name;
    }
    return WEFT_OK;
}
