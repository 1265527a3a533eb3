/* Experts of one layer must be of one type, so that what one of them needs, all get: a form with
 * zeros or another order, or f32 because of one scale that no f16 has. */
#include "join.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* One matrix of one expert. Its name without the expert's number tells which others go with it. */
struct member {
    struct weft_tensor *tensor;
    struct weft_parts *parts;
    size_t head_len;  /* of the name up to the number */
    const char *tail; /* behind it */
};

static bool find_number(const char *name, struct member *out) {
    static const char mark[] = ".experts.";
    const char *at = strstr(name, mark);
    if (!at) return false;
    out->head_len = (size_t)(at - name) + strlen(mark);
    size_t n_digits = strspn(name + out->head_len, "0123456789");
    out->tail = name + out->head_len + n_digits;
    return n_digits > 0 && *out->tail == '.';
}

static int by_rest(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    if (x->head_len != y->head_len) return x->head_len < y->head_len ? -1 : 1;
    int order = memcmp(x->tensor->name, y->tensor->name, x->head_len);
    return order ? order : strcmp(x->tail, y->tail);
}

/* Members begin..end, of all experts of a layer. */
static void make_alike(struct member *members, size_t begin, size_t end) {
    uint32_t needs = 0;
    for (size_t i = begin; i < end; i++)
        needs |= members[i].parts->needs;
    for (size_t i = begin; i < end; i++) {
        struct weft_tensor *tensor = members[i].tensor;
        if (members[i].parts->needs == needs) continue;
        tensor->dtype = wefti_model_join_form(members[i].parts, needs);
        tensor->bytes = tensor->dims[0] * weft_tensor_row_bytes(tensor);
    }
}

weft_err wefti_model_join_experts(const struct wefti_model_joiner *j) {
    weft_model *model = j->model;
    size_t n = 0;
    if (j->n_parts == 0) return WEFT_OK;
    struct member *members = calloc(j->n_parts, sizeof *members);
    if (!members) return weft_err_set(j->why, WEFT_E_NOMEM, "%s: out of memory", j->path);
    for (size_t i = 0; i < model->n_tensors; i++) {
        struct weft_tensor *tensor = &model->tensors[i];
        struct member member = {.tensor = tensor};
        if (!tensor->parts || !find_number(tensor->name, &member)) continue;
        member.parts = &model->parts[tensor->parts - model->parts];
        if (member.parts->bits == 0) continue;
        WEFT_ASSERT(n < j->n_parts);
        members[n++] = member;
    }
    qsort(members, n, sizeof *members, by_rest);
    for (size_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && by_rest(&members[begin], &members[end]) == 0;)
            end++;
        make_alike(members, begin, end);
    }
    free(members);
    return WEFT_OK;
}
