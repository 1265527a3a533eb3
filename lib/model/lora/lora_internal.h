/* lora_internal — shared by the files of this folder. */
#ifndef WEFT_MODEL_LORA_INTERNAL_H
#define WEFT_MODEL_LORA_INTERNAL_H

#include "lora/lora.h"
#include "model_internal.h"

/* ----------------------------------------------------------------- names (lora_names.c) --- */

/* The matrices that a module of a file stands for; fused ones are several, one after the other, or each head's rows of
 * all of them together. */
struct wefti_lora_module {
    uint32_t layer, expert;
    bool all_experts; /* one tensor has all of them (GGUF) */
    bool by_head;
    uint32_t n_roles;
    enum weft_lora_role roles[3];
};

/* A name that is looked up, and where it stands. */
struct wefti_lora_named {
    struct weft_str module;        /* "model.layers.0.self_attn.q_proj", or "blk.0.attn_q.weight" */
    const char *tensor, *path;     /* for messages */
    enum weft_model_format format; /* of the adapter */
};

/* PROTO: the model has no such module or layer; UNSUPPORTED: one that cannot be adapted. */
WEFT_MUST_CHECK weft_err wefti_lora_find_module(const struct weft_model_params *params,
                                                const struct wefti_lora_named *named,
                                                struct wefti_lora_module *module_out,
                                                struct weft_errmsg *why);

/* Rows and columns of a matrix of the model. */
void wefti_lora_shape(const struct weft_model_params *params,
                      const struct wefti_lora_module *module, enum weft_lora_role role,
                      uint32_t *n_out, uint32_t *k_out);

/* No file of an adapter of rank `rank_max` needs to be larger: what all of its matrices take in f32,
 * or numbers_max of them, and names and settings. */
uint64_t wefti_lora_file_bytes_max(const struct weft_lora_base *base);

/* ------------------------------------------------------------ settings (lora_config.c) --- */

typedef struct wefti_lora_config wefti_lora_config;

/* adapter_config.json in `dir`; *config_out is the caller's. */
WEFT_MUST_CHECK weft_err wefti_lora_config_read(const char *dir, wefti_lora_config **config_out,
                                                struct weft_errmsg *why);
/* The same of its text; `path` is for messages. */
WEFT_MUST_CHECK weft_err wefti_lora_config_parse(const char *path, const char *text, size_t len,
                                                 wefti_lora_config **config_out,
                                                 struct weft_errmsg *why);
void wefti_lora_config_free(wefti_lora_config *config); /* accepts NULL */

struct wefti_lora_measure {
    uint32_t rank;
    float scale;
};

/* Those of a module's matrices. PROTO: the settings do not mean the module at all; or a pattern takes
 * too long. TOOBIG: all that were asked for took too long; the count is the settings' own, so one thread
 * at a time may ask. */
WEFT_MUST_CHECK weft_err wefti_lora_config_of(const wefti_lora_config *config,
                                              const struct wefti_lora_named *named, uint32_t layer,
                                              struct wefti_lora_measure *measure_out,
                                              struct weft_errmsg *why);

/* ------------------------------------------------------------------- the adapter (lora.c) --- */

struct weft_lora {
    weft_model *file; /* of tensors alone */
    struct weft_lora_part *parts;
    size_t n_parts, cap_parts;
    struct weft_digest digest;
};

/* The same as weft_lora_open, of bytes in memory; for tests. `config` NULL: a GGUF file, which is
 * moved, also on failure. */
WEFT_MUST_CHECK weft_err wefti_lora_from_file(struct wefti_model_file *file,
                                              const wefti_lora_config *config,
                                              const struct weft_lora_base *base,
                                              weft_lora **lora_out, struct weft_errmsg *why);

#endif
