/* model_internal — what the files of lib/model share: the mapped file, the half-built model, and
 * the readers of each format. Every reader works on bytes in memory, so a fuzzer can hand it a heap
 * block of the exact size and the sanitizer sees a read one byte too far.
 *
 * The readers append to model->tensors; pointers into that array exist only after
 * wefti_model_index(), when it does not grow any more.
 */
#ifndef WEFT_MODEL_INTERNAL_H
#define WEFT_MODEL_INTERNAL_H

#include <jansson.h>

#include "base/cursor.h"
#include "model/model.h"

#define WEFTI_MODEL_CONFIG_BYTES_MAX (16u << 20)
#define WEFTI_MODEL_INDEX_BYTES_MAX                                                                \
    (64u << 20) /* model.safetensors.index.json: ~100 bytes a tensor */
/* A tensor takes ~110 bytes of a safetensors header, so this is 300,000 of them in one file; parsed
 * JSON is up to twenty times as large as its text, which is why it is not more. */
#define WEFTI_MODEL_SAFETENSORS_HEADER_BYTES_MAX (32u << 20)
#define WEFTI_MODEL_SHARDS_MAX 4096
#define WEFTI_MODEL_TENSOR_NAME_BYTES_MAX 1024

/* ----------------------------------------------------------------------------------- files --- */

struct wefti_model_file {
    char *path; /* owned; for messages */
    const unsigned char *bytes;
    size_t n_bytes;
    void *map; /* NULL: the bytes are somebody else's (tests) */
    size_t map_bytes;
};

/* Opens a regular file of at most `max_bytes` for reading: *fd_out is the caller's, to close. It
 * neither waits (for the writer of a FIFO) nor takes a terminal. */
WEFT_MUST_CHECK weft_err wefti_model_file_open(const char *path, uint64_t max_bytes, int *fd_out,
                                               size_t *n_bytes_out, struct weft_errmsg *why);
/* Reads up to `n_bytes` from where `fd` stands; fewer only at the end of the file. */
WEFT_MUST_CHECK weft_err wefti_model_file_fill(int fd, const char *path, void *bytes,
                                               size_t n_bytes, size_t *n_read_out,
                                               struct weft_errmsg *why);
/* Maps a regular, non-empty file of at most `max_bytes` read-only. */
WEFT_MUST_CHECK weft_err wefti_model_file_map(const char *path, uint64_t max_bytes,
                                              struct wefti_model_file *file_out,
                                              struct weft_errmsg *why);
/* A file that is `bytes`; they outlive it. */
WEFT_MUST_CHECK weft_err wefti_model_file_borrow(const char *label, const void *bytes,
                                                 size_t n_bytes, struct wefti_model_file *file_out,
                                                 struct weft_errmsg *why);
void wefti_model_file_close(struct wefti_model_file *file); /* the file is all zero afterwards */
/* write(2) until all is written at `at`. */
WEFT_MUST_CHECK weft_err wefti_model_file_put(int fd, const char *path, const void *bytes,
                                              size_t n_bytes, uint64_t at, struct weft_errmsg *why);

/* Text from a file, fit for a message: cut, and '?' for whatever is not printable ASCII. */
struct wefti_model_shown {
    char text[100];
};
struct wefti_model_shown wefti_model_show(const char *text, size_t len);

/* Parses text[len] of the file at `path`; `what` names it in messages, `flags` are jansson's
 * (with JSON_REJECT_DUPLICATES where two keys of one name could mean two things to two readers).
 * *json_out is the caller's, to decref. */
WEFT_MUST_CHECK weft_err wefti_model_json_parse(const char *path, const char *what,
                                                const char *text, size_t len, size_t flags,
                                                json_t **json_out, struct weft_errmsg *why);

/* ----------------------------------------------------------------------------------- model --- */

/* An entry of a sorted index of names. */
struct wefti_model_tensor_ref {
    const char *name;
    const struct weft_tensor *tensor;
};

struct weft_model {
    struct weft_model_params params;
    struct weft_model_layer *layers;   /* [params.n_layers] */
    struct weft_model_expert *experts; /* [params.n_layers][params.moe.n_experts], or NULL */
    const struct weft_tensor *embedding, *final_norm, *head;
    float *rope_freqs;         /* [rope_dim / 2] divisors of GGUF's rope_freqs.weight, or NULL */
    struct weft_packed packed; /* arena_bytes 0: not a packed file */
    uint32_t *stored;          /* [n_tensors] of a packed file, else NULL */
    struct weft_parts *parts;  /* of tensors that have such, or NULL */

    struct weft_tensor *tensors; /* names owned */
    size_t n_tensors, cap_tensors;
    struct wefti_model_tensor_ref *by_name; /* sorted */

    struct wefti_model_file *files;
    size_t n_files, cap_files;
};

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

/* Sorts the tensors from index `first` on by their place in data[data_bytes] and checks that they
 * lie within it without overlap, and (dense) without gaps. */
WEFT_MUST_CHECK weft_err wefti_model_check_layout(weft_model *model, const char *path, size_t first,
                                                  const unsigned char *data, size_t data_bytes,
                                                  bool dense, struct weft_errmsg *why);

/* Builds by_name. PROTO: two tensors of the same name. */
WEFT_MUST_CHECK weft_err wefti_model_index(weft_model *model, const char *path,
                                           struct weft_errmsg *why);

/* Ranges and relations of the hyper-parameters (params.c). */
WEFT_MUST_CHECK weft_err wefti_model_params_check(const struct weft_model_params *params,
                                                  const char *path, struct weft_errmsg *why);
/* The cache's row of latent attention, from kv_lora and rope_dim. */
void wefti_model_params_set_latent(struct weft_model_params *params);
/* Copies a display name: cut at a whole UTF-8 character, '?' for control characters. */
void wefti_model_params_set_name(struct weft_model_params *params, const char *name, size_t len);

/* What config readers make of a set of layers. */
static inline void wefti_model_set_bit(uint32_t bits[WEFT_LAYERS_MAX / 32], uint32_t layer) {
    bits[layer / 32] |= 1u << layer % 32;
}

/* YaRN's factor on magnitudes of a context stretched by `factor`, and LongRoPE's. */
double wefti_model_yarn_mscale(double factor, double mscale);
double wefti_model_longrope_magnitude(double factor, uint32_t original_context);
/* A model is good for as much as YaRN makes of its original context. */
void wefti_model_yarn_stretch(struct weft_model_params *params);

/* Replaces quantised weights and what belongs to them by one tensor each (parts.c). */
WEFT_MUST_CHECK weft_err wefti_model_join(weft_model *model, const char *path,
                                          struct weft_errmsg *why);
/* The object under "quantization_config" (config_quant.c). */
WEFT_MUST_CHECK weft_err wefti_model_config_quant(const char *path, const json_t *config,
                                                  struct weft_model_quant *quant_out,
                                                  struct weft_errmsg *why);

/* Replaces fused and stacked tensors by their parts, before the index is made (split.c). */
WEFT_MUST_CHECK weft_err wefti_model_split(weft_model *model, enum weft_model_format format,
                                           const char *path, struct weft_errmsg *why);

/* Whether opening a GGUF model reads the values of the tensor: the engine's form lacks them. */
bool wefti_model_role_is_read(const char *name);

/* Of a folder that holds more than a language model: leaves out the tensors of the other parts and
 * gives those of this one the names they have without (unwrap.c). */
void wefti_model_unwrap(weft_model *model);

/* Finds the tensor of every role and checks its shape (roles.c). */
WEFT_MUST_CHECK weft_err wefti_model_resolve(weft_model *model, enum weft_model_format format,
                                             const char *path, struct weft_errmsg *why);

/* --------------------------------------------------------------------------- architectures --- */

/* What an architecture has that Llama has not. */
enum {
    WEFTI_MODEL_ARCH_WINDOW = 1,   /* a sliding window in every layer */
    WEFTI_MODEL_ARCH_QKV_BIAS = 2, /* of q, k and v */
    WEFTI_MODEL_ARCH_QK_NORM = 4,  /* each head of q and k is normalised */
    WEFTI_MODEL_ARCH_NO_ROPE_LAYERS =
        8,                        /* some layers do not turn q and k; every fourth unless told */
    WEFTI_MODEL_ARCH_SCALES = 16, /* of embeddings, attention, residuals and logits */
    WEFTI_MODEL_ARCH_GEMMA =
        32, /* norms behind halves of a layer, GELU, scaled embeddings, windows */
    WEFTI_MODEL_ARCH_LOCAL_ROPE = 64,    /* Gemma 3: a RoPE of their own where there is a window */
    WEFTI_MODEL_ARCH_FUSED = 128,        /* q, k and v are one tensor, and so are gate and up */
    WEFTI_MODEL_ARCH_QK_NORM_ALL = 256,  /* all heads of q, and of k, are normalised as one row */
    WEFTI_MODEL_ARCH_EXPERTS = 512,      /* a mixture of experts */
    WEFTI_MODEL_ARCH_NORMALISED = 1024,  /* whose weights sum to 1, unless told otherwise */
    WEFTI_MODEL_ARCH_SHARED_GATE = 2048, /* with a shared one that has a gate */
    WEFTI_MODEL_ARCH_LATENT = 8192,      /* latent attention */
    WEFTI_MODEL_ARCH_DEEPSEEK = 4096,    /* groups of experts, shared ones, layers without any */
    WEFTI_MODEL_ARCH_NORMS_AFTER =
        16384,                        /* halves of a layer are normalised behind, not in front */
    WEFTI_MODEL_ARCH_WRAPPED = 32768, /* part of a larger model, whose other parts are left out */
};

struct wefti_model_arch {
    const char *name;               /* general.architecture of GGUF files */
    const char *hf_type, *hf_class; /* model_type and architectures of config.json */
    unsigned traits;
    uint32_t window;            /* unless told otherwise; 0: none */
    bool gguf_rope_interleaved; /* the converter permutes the rows of Q and K */
};

/* NULL: not served. */
const struct wefti_model_arch *wefti_model_arch_of_class(const char *name);
const struct wefti_model_arch *wefti_model_arch_of_type(const char *name);
const struct wefti_model_arch *wefti_model_arch_of_gguf(struct weft_str name);

/* By which of its names an architecture is asked for. */
enum wefti_model_arch_name { WEFTI_MODEL_BY_CLASS, WEFTI_MODEL_BY_TYPE, WEFTI_MODEL_BY_GGUF };

/* UNSUPPORTED, with the list of those that are served, by names of that kind. */
weft_err wefti_model_arch_refuse(const char *path, enum wefti_model_arch_name kind,
                                 struct weft_str name, struct weft_errmsg *why);

/* What every architecture begins with, and its traits. */
void wefti_model_params_init(struct weft_model_params *params, const struct wefti_model_arch *arch);

/* What a folder without the files that are read holds instead, as the end of a sentence; "" where
 * nothing is known (locate.c). */
const char *wefti_model_folder_hint(const char *dir);

/* ----------------------------------------------------------------------------- the formats --- */

/* config.json to hyper-parameters; `tied` is what the file says, not yet what the tensors say. */
WEFT_MUST_CHECK weft_err wefti_model_config_hf(const struct wefti_model_file *file,
                                               struct weft_model_params *params,
                                               struct weft_errmsg *why);

/* One .safetensors file: appends its tensors. */
WEFT_MUST_CHECK weft_err wefti_model_safetensors_read(weft_model *model,
                                                      const struct wefti_model_file *file,
                                                      struct weft_errmsg *why);
/* A folder's model.safetensors, or all shards of its model.safetensors.index.json. */
WEFT_MUST_CHECK weft_err wefti_model_safetensors_folder(weft_model *model, const char *dir,
                                                        struct weft_errmsg *why);

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

/* Files in parts (gguf_split.c). Whether the metadata says that there are other parts: */
bool wefti_model_gguf_is_part(const weft_gguf *gguf);
/* *first_out: the caller's, to free; NULL unless the file at `path`, which begins as GGUF, is by
 * name and metadata a later part of a model: then the path of its first one. */
WEFT_MUST_CHECK weft_err wefti_model_gguf_first_part(const char *path, char **first_out,
                                                     struct weft_errmsg *why);
/* Refuses a part that is not the first, or whose name does not lead to the others. */
WEFT_MUST_CHECK weft_err wefti_model_gguf_check_first(const weft_gguf *gguf,
                                                      struct weft_errmsg *why);
/* Adds the tensors and files of the other parts, where `first`, which was checked and whose tensors
 * are there already, has any. */
WEFT_MUST_CHECK weft_err wefti_model_gguf_add_parts(weft_model *model, const weft_gguf *first,
                                                    struct weft_errmsg *why);

/* A whole GGUF model from a file, which is moved, also on failure. */
WEFT_MUST_CHECK weft_err wefti_model_from_gguf(struct wefti_model_file *file,
                                               weft_model **model_out, struct weft_errmsg *why);

/* The number that GGUF files have for a type, and back (false: unknown, or not supported). */
uint32_t wefti_model_gguf_type_of(enum weft_dtype dtype);
bool wefti_model_gguf_dtype(uint32_t type, enum weft_dtype *dtype_out);
/* The same of packed files, where those of Hugging Face folders have numbers, too. */
bool wefti_model_packed_dtype(uint32_t type, enum weft_dtype *dtype_out);

/* The last part of a path, without `suffix`, as the model's name (model.c). */
void wefti_model_name_from_path(struct weft_model_params *params, const char *path,
                                const char *suffix);

/* ----------------------------------------------------------------------------- packed files --- */

#define WEFTI_MODEL_PACKED_MAGIC "WEFTPACK"
#define WEFTI_MODEL_PACKED_SECTIONS_MAX 64u
#define WEFTI_MODEL_PACKED_META_BYTES_MAX ((uint64_t)1 << 32)

/* What the header says, and where the sections lie, which were walked once. */
struct wefti_model_packed_view {
    struct weft_packed facts;
    enum weft_model_format format;
    uint32_t n_sections;
    const unsigned char *sections;
    size_t sections_bytes;
};

/* Whether the file begins as a packed one. */
bool wefti_model_packed_is(const void *bytes, size_t n);
/* Header, sums and sections. PROTO: damaged; UNSUPPORTED: of another version. */
WEFT_MUST_CHECK weft_err wefti_model_packed_parse(const struct wefti_model_file *file,
                                                  struct wefti_model_packed_view *view_out,
                                                  struct weft_errmsg *why);
/* False: there is no such section. */
bool wefti_model_packed_find(const struct wefti_model_packed_view *view, const char *name,
                             struct weft_str *section_out);
/* Makes of a packed file (which stays mapped) its "gguf" section. */
WEFT_MUST_CHECK weft_err wefti_model_packed_narrow_to_gguf(struct wefti_model_file *file,
                                                           struct weft_errmsg *why);
/* A whole model from a packed file, which is moved, also on failure. */
WEFT_MUST_CHECK weft_err wefti_model_from_packed(struct wefti_model_file *file,
                                                 weft_model **model_out, struct weft_errmsg *why);

#endif
