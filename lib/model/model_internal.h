/* model_internal — a model while it is put together. The readers of each format (hf/, gguf/,
 * packed/) append to its tensors; pointers into that array exist only after wefti_model_index(),
 * when it has stopped growing. */
#ifndef WEFT_MODEL_INTERNAL_H
#define WEFT_MODEL_INTERNAL_H

#include "file.h"
#include "model/model.h"

#define WEFTI_MODEL_SHARDS_MAX 4096
#define WEFTI_MODEL_TENSOR_NAME_BYTES_MAX 1024

/* An entry of a sorted index of names. */
struct wefti_model_tensor_ref {
    const char *name;
    const struct weft_tensor *tensor;
};

struct weft_model {
    struct weft_model_params params;
    struct weft_model_layer *layers;   /* [params.n_layers] */
    struct weft_model_expert *experts; /* [params.n_layers][params.moe.n_experts], or NULL */
    const struct weft_tensor *embedding, *final_norm, *final_bias, *head;
    struct weft_model_encoder_tensors encoder;
    struct weft_model_input_tensors inputs;
    bool is_bare;         /* nobody has seen its weights (hf/shapes.c) */
    bool has_delta_apart; /* rows of keys, queries and values come of matrices of their own */
    uint32_t first_layer; /* the number that the file knows layer 0 by: above 0 for a predictor */
    struct weft_model_predictor_tensors predictor;
    float *rope_freqs;         /* [rope_dim / 2] divisors of GGUF's rope_freqs.weight, or NULL */
    struct weft_packed packed; /* arena_bytes 0: not a packed file */
    enum weft_dtype *stored;   /* [n_tensors] of a packed file, else NULL */
    struct weft_parts *parts;  /* of tensors in parts, or NULL */
    struct weft_parts *views;  /* a list of those that are views */

    struct weft_tensor *tensors; /* names owned */
    size_t n_tensors, cap_tensors;
    struct wefti_model_tensor_ref *by_name; /* sorted */

    struct wefti_model_file *files;
    size_t n_files, cap_files;
};

/* Whether tensors are named and joined as encoders' are. */
static inline bool wefti_model_has_encoder_roles(const struct weft_model_params *p) {
    return p->encoder.is_on && !p->encoder.as_decoder;
}

/* An empty model; NULL when out of memory. */
weft_model *wefti_model_new(void);

/* Moves *file into the model, also when it fails (the file is then closed). */
WEFT_MUST_CHECK weft_err wefti_model_add_file(weft_model *model, struct wefti_model_file *file);

/* Appends a tensor whose name is copied from name[len]; dims, n_dims, dtype, bytes and data are
 * `tensor`'s. PROTO: an unfit name, or too many tensors. */
WEFT_MUST_CHECK weft_err wefti_model_add_tensor(weft_model *model, const char *path,
                                                const char *name, size_t len,
                                                const struct weft_tensor *tensor,
                                                struct weft_errmsg *why);

/* Bytes that dims and dtype ask for. False: overflow, or a row that is not whole blocks. */
bool wefti_model_tensor_bytes(const struct weft_tensor *tensor, size_t *bytes_out);

/* Whether weft_tensor_row_f32 knows the type, also of a tensor that is not in parts. */
bool wefti_model_has_rows_f32(enum weft_dtype dtype);

/* Where tensors lie in a file. */
struct wefti_model_region {
    const unsigned char *data;
    size_t bytes;
    bool is_dense; /* no gaps between them */
};

/* Sorts the tensors from index `first` on by their place in a region and checks that they lie
 * within it without overlap, and without gaps where it is dense. */
WEFT_MUST_CHECK weft_err wefti_model_check_layout(weft_model *model, const char *path, size_t first,
                                                  const struct wefti_model_region *region,
                                                  struct weft_errmsg *why);

/* Builds by_name. PROTO: two tensors of the same name. */
WEFT_MUST_CHECK weft_err wefti_model_index(weft_model *model, const char *path,
                                           struct weft_errmsg *why);

/* The rest of a name after a layer's number ("model.layers.7."), which is `*prefix_len_out` long; NULL: it begins
 * otherwise. */
const char *wefti_model_after_layer(const char *name, enum weft_model_format format,
                                    size_t *prefix_len_out);

/* The name that the roles know a tensor of an architecture's files by; the caller's, to free. NULL: it plays no part.
 * NOMEM. */
struct wefti_model_arch;
WEFT_MUST_CHECK weft_err wefti_model_rename_one(const struct wefti_model_arch *arch,
                                                enum weft_model_format format, const char *name,
                                                char **name_out);
/* Gives tensors the names that all architectures share, and drops those that play no part, by the
 * architecture's rules (arch/names.c). NOMEM. */
WEFT_MUST_CHECK weft_err wefti_model_rename(weft_model *model, enum weft_model_format format,
                                            const char *path, struct weft_errmsg *why);

/* Replaces fused and stacked tensors by their parts, before the index is made (split.c). */
WEFT_MUST_CHECK weft_err wefti_model_split(weft_model *model, enum weft_model_format format,
                                           const char *path, struct weft_errmsg *why);

/* Whether opening a GGUF model reads the values of the tensor, which the engine's form lacks. */
bool wefti_model_role_is_read(const char *name);

/* Makes an opened model the layer after its last one, which predicts further tokens (predictor.c). */
WEFT_MUST_CHECK weft_err wefti_model_become_predictor(weft_model *model,
                                                      enum weft_model_format format,
                                                      const char *path, struct weft_errmsg *why);

/* The file of the pooling that modules.json of a folder or packed file names: "1_Pooling/config.json"; or
 * "", if it names none (pooling.c). IO, NOMEM; PROTO: no JSON, or no plain name. */
#define WEFTI_MODEL_POOLING_NAME_BYTES 80u
WEFT_MUST_CHECK weft_err wefti_model_pooling_file(const char *path,
                                                  char name_out[WEFTI_MODEL_POOLING_NAME_BYTES],
                                                  struct weft_errmsg *why);

/* The types of weights that nobody has seen. */
struct wefti_model_types {
    enum weft_dtype plain;
    struct weft_model_quant quant; /* of a layer's matrices, but routers and taps */
};

/* Gives a model without tensors one for each role, of its shape and without data (roles.c). PROTO: one would be too
 * large. NOMEM. */
WEFT_MUST_CHECK weft_err wefti_model_imagine(weft_model *model, const char *path,
                                             const struct wefti_model_types *types,
                                             struct weft_errmsg *why);

/* Finds the tensor of every role and checks its shape (roles.c). */
WEFT_MUST_CHECK weft_err wefti_model_resolve(weft_model *model, enum weft_model_format format,
                                             const char *path, struct weft_errmsg *why);

#endif
