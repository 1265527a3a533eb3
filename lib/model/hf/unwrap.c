/* A model that reads more than text: the names of the language model's tensors contain
 * "language_model.", in one of two places, and the tensors of the other parts lie beside them. */
#include <stdlib.h>
#include <string.h>

#include "hf.h"

static bool begins(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_of_other_part(const char *name) {
    static const char *const parts[] = {"vision_tower.", "multi_modal_projector."};
    if (begins(name, "model.")) name += strlen("model.");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (begins(name, parts[i])) return true;
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
    free(model->by_name); /* of the names before */
    model->by_name = NULL;
    for (size_t i = 0; i < model->n_tensors; i++) {
        char *name = (char *)(uintptr_t)model->tensors[i].name; /* the model's own copy */
        if (is_of_other_part(name)) {
            free(name);
            continue;
        }
        drop_prefix(name);
        model->tensors[n++] = model->tensors[i];
    }
    model->n_tensors = n;
}
