/* model/gguf — GGUF files, in one part or several. */
#ifndef WEFT_MODEL_GGUF_H
#define WEFT_MODEL_GGUF_H

#include "model_internal.h"

_Static_assert(WEFT_GGUF_TYPE_COUNT == WEFT_GGUF_F64 + 1, "a number below it is a type's");
_Static_assert(WEFT_GGUF_ARRAY == 9, "the three that came with version 2 follow it");

struct wefti_model_gguf_kv {
    struct weft_str key;
    enum weft_gguf_type type;
    enum weft_gguf_type elem_type; /* arrays */
    size_t count;                  /* arrays */
    const unsigned char *value;    /* a scalar, a string's length prefix, or the first element */
    const unsigned char **strings; /* arrays of strings: the length prefix of each; owned */
};

/* An entry of the sorted index of keys. */
struct wefti_model_gguf_ref {
    struct weft_str key;
    const struct wefti_model_gguf_kv *kv;
};

struct weft_gguf {
    struct wefti_model_file file;
    uint64_t n_tensors; /* as claimed: wefti_model_gguf_tensors checks it */
    size_t alignment;
    size_t tensors_at; /* where the tensor descriptions begin */
    struct wefti_model_gguf_kv *kvs;
    size_t n_kvs;
    size_t n_strings; /* in all string arrays together */
    struct wefti_model_gguf_ref *by_key;
};

/* Moves *file into the new weft_gguf, also when it fails (the file is then closed). */
WEFT_MUST_CHECK weft_err wefti_model_gguf_parse(struct wefti_model_file *file, weft_gguf **gguf_out,
                                                struct weft_errmsg *why);
/* The value under a key, or NULL. */
const struct wefti_model_gguf_kv *wefti_model_gguf_find(const weft_gguf *gguf, const char *key);
WEFT_MUST_CHECK weft_err wefti_model_config_gguf(const weft_gguf *gguf,
                                                 struct weft_model_params *params,
                                                 struct weft_errmsg *why);
WEFT_MUST_CHECK weft_err wefti_model_gguf_tensors(weft_model *model, const weft_gguf *gguf,
                                                  struct weft_errmsg *why);

/* Files in parts (gguf_split.c). Whether the metadata tells of other parts: */
bool wefti_model_gguf_is_part(const weft_gguf *gguf);
/* *first_out: the path of a model's first part if the GGUF file at `path` is, by name and metadata,
 * a later one; else NULL. The caller's, to free. */
WEFT_MUST_CHECK weft_err wefti_model_gguf_first_part(const char *path, char **first_out,
                                                     struct weft_errmsg *why);
/* Refuses a part that is not the first, or whose name does not lead to the others. */
WEFT_MUST_CHECK weft_err wefti_model_gguf_check_first(const weft_gguf *gguf,
                                                      struct weft_errmsg *why);
/* Adds the tensors and files of the other parts, where `first`, which was checked and whose tensors
 * are there already, has any. */
WEFT_MUST_CHECK weft_err wefti_model_gguf_add_parts(weft_model *model, const weft_gguf *first,
                                                    struct weft_errmsg *why);

/* GGUF files do not say which biases there are, nor whether GLM-4.5 normalises heads and Falcon-H1 what its states
 * yield: the tensors do, by their names as the roles know them. Biases that a family always has must be there. */
void wefti_model_gguf_optional(weft_model *model);

/* Scales of whole matrices join what they scale (gguf_scales.c); stacks were taken apart before. What
 * is left of the tensors has no index. */
WEFT_MUST_CHECK weft_err wefti_model_gguf_scales(weft_model *model, const char *path,
                                                 struct weft_errmsg *why);

/* A whole GGUF model from a file, which is moved, also on failure. */
WEFT_MUST_CHECK weft_err wefti_model_from_gguf(struct wefti_model_file *file,
                                               weft_model **model_out, struct weft_errmsg *why);

#endif
