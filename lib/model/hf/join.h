/* model/hf/join — the weight that is being joined from the tensors of a quantised checkpoint, for the
 * files that know a method: join.c, and join_ints.c where codes are whole numbers. */
#ifndef WEFT_MODEL_JOIN_H
#define WEFT_MODEL_JOIN_H

#include "hf.h"
#include "parts.h"

struct wefti_model_joiner {
    weft_model *model;
    const char *path;
    struct weft_errmsg *why;
    unsigned char *fates; /* [model->n_tensors], enum wefti_model_fate */
    size_t n_parts;
    /* The weight that is being joined: */
    const struct weft_tensor *codes;
    int base_len; /* length of its name without the suffix of codes */
    struct weft_parts *parts;
};

/* What becomes of a tensor of the file: it stays, stands for a whole weight, or leaves the list. */
enum wefti_model_fate { WEFTI_MODEL_PLAIN, WEFTI_MODEL_JOINED, WEFTI_MODEL_PIECE };

/* PROTO: the tensor's name, then `fault`. */
WEFT_MUST_CHECK weft_err wefti_model_join_refuse(const struct wefti_model_joiner *j,
                                                 const struct weft_tensor *tensor,
                                                 const char *fault);

/* The tensor whose name has `suffix` in place of the codes' own; *out is NULL if there is none. */
WEFT_MUST_CHECK weft_err wefti_model_join_find(struct wefti_model_joiner *j, const char *suffix,
                                               bool is_needed, const struct weft_tensor **out);

/* A tensor that was found becomes a piece of the weight, or one that nobody reads again. */
void wefti_model_join_take(struct wefti_model_joiner *j, enum wefti_model_piece piece,
                           const struct weft_tensor *tensor);
void wefti_model_join_drop(struct wefti_model_joiner *j, const struct weft_tensor *tensor);

/* PROTO: another shape. */
WEFT_MUST_CHECK weft_err wefti_model_join_check_vector(const struct wefti_model_joiner *j,
                                                       const struct weft_tensor *tensor,
                                                       uint64_t n);
WEFT_MUST_CHECK weft_err wefti_model_join_check_matrix(const struct wefti_model_joiner *j,
                                                       const struct weft_tensor *tensor,
                                                       uint64_t rows, uint64_t cols);

/* One for each scale of the weight: [rows of them, groups], or with fewer dimensions where these have one. */
WEFT_MUST_CHECK weft_err wefti_model_join_check_scales(const struct wefti_model_joiner *j,
                                                       const struct weft_tensor *tensor);
/* They become a piece; PROTO: no floats. */
WEFT_MUST_CHECK weft_err wefti_model_join_take_scales(struct wefti_model_joiner *j,
                                                      const struct weft_tensor *scales);

/* Weights of each method whose codes are whole numbers: `out` gets its type. */
WEFT_MUST_CHECK weft_err wefti_model_join_gptq(struct wefti_model_joiner *j,
                                               struct weft_tensor *out);
WEFT_MUST_CHECK weft_err wefti_model_join_awq(struct wefti_model_joiner *j,
                                              struct weft_tensor *out);
WEFT_MUST_CHECK weft_err wefti_model_join_int8(struct wefti_model_joiner *j,
                                               struct weft_tensor *out);
WEFT_MUST_CHECK weft_err wefti_model_join_packed(struct wefti_model_joiner *j,
                                                 struct weft_tensor *out);

/* The type that has codes, scales and zeros exactly; `needs`: enum wefti_model_needs, of `parts` at least. */
enum weft_dtype wefti_model_join_form(const struct weft_parts *parts, uint32_t needs);

/* Gives the experts of a layer one type for each of their matrices (join_experts.c). NOMEM. */
WEFT_MUST_CHECK weft_err wefti_model_join_experts(const struct wefti_model_joiner *j);

static inline bool wefti_model_join_is_float(enum weft_dtype dtype) {
    return dtype == WEFT_DT_F32 || dtype == WEFT_DT_F16 || dtype == WEFT_DT_BF16;
}

static inline uint64_t wefti_model_join_div_up(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

#endif
