/* model — reads model files and describes what is in them: one description for every format.
 *
 * Model    A weft_model is a Hugging Face folder (config.json, *.safetensors, sharded or not), a
 *          GGUF file, or either of them packed by weft, mapped read-only. It has hyper-parameters,
 *          named roles for its tensors, and (GGUF) the metadata. Tensors are views into the
 *          mapping: never copied, never changed. Those of a packed file have no data of their own.
 * Input    Files are untrusted: every length, offset, count and type is checked before use. Faults
 *          are refused in one sentence that names the file, the tensor and the fault.
 * Threads  After opening, everything is const and may be read from any thread.
 * Source   safetensors and GGUF v2/v3 format specifications; Hugging Face config.json keys. */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/pooling.h"
#include "base/str.h"

/* ------------------------------------------------------------------ where a model lies --- */

/* The numbers are in packed files. */
enum weft_model_format {
    WEFT_MODEL_HF = 0,   /* a Hugging Face folder */
    WEFT_MODEL_GGUF = 1, /* one file, whatever its name; or parts, found by their names */
};

struct weft_model_place {
    enum weft_model_format format;
    char *path;  /* owned: the folder, without slashes at its end; or the file */
    bool packed; /* a packed file of a model in that format */
};

/* What MODEL on a command line names, judged by content and not by name: a folder, the config.json
 * in one, or a file that begins as GGUF or a packed file does. If a model is several GGUF files,
 * any may be named; the place is the first. NOTFOUND, IO, PROTO (none of them, or damaged),
 * UNSUPPORTED (a .safetensors file alone), NOMEM; the place is then empty. */
WEFT_MUST_CHECK weft_err weft_model_locate(const char *path, struct weft_model_place *place_out,
                                           struct weft_errmsg *why);
void weft_model_place_fini(struct weft_model_place *place); /* the place is empty afterwards */

/* Whether a folder is a model's, by its config.json. NOTFOUND: it has none; `why` says what there is
 * instead that might have been meant. */
WEFT_MUST_CHECK weft_err weft_model_check_folder(const char *dir, struct weft_errmsg *why);

/* ------------------------------------------------------------------ small files of a model --- */

/* All of the regular file dir/name, terminated (see weft_file_read). The name may have a folder's
 * before it, but leads nowhere else. If `dir` is a packed file, all
 * of the copy in it. NOTFOUND, IO, PROTO (not a regular file), TOOBIG, NOMEM. */
WEFT_MUST_CHECK weft_err weft_model_read_in(const char *dir, const char *name, size_t bytes_max,
                                            char **text_out, size_t *len_out,
                                            struct weft_errmsg *why);

struct json_t; /* jansson's */

/* The JSON object in the file dir/name, found as weft_model_read_in does; *root_out is the
 * caller's, to decref. As in Python's json, the last of two equal keys counts. All numbers are
 * reals, since transformers writes integers that no machine word holds ("model_max_length":
 * 1000000000000000019884624838656): see weft_json_u64. Errors as above, and PROTO if it is not a
 * JSON object. */
WEFT_MUST_CHECK weft_err weft_model_json(const char *dir, const char *name, size_t bytes_max,
                                         struct json_t **root_out, struct weft_errmsg *why);

/* False, and *out 0, unless `value` (which may be NULL) is a whole number from 0 to 2^53 - 1: a
 * double holds each of these. */
bool weft_json_u64(const struct json_t *value, uint64_t *out);

/* ---------------------------------------------------------------- what a model is made for --- */

enum weft_model_task {
    WEFT_MODEL_GENERATES,
    WEFT_MODEL_EMBEDS,     /* a text becomes a vector */
    WEFT_MODEL_CLASSIFIES, /* a text or a pair of texts becomes a score for each label */
};

/* What becomes of the numbers of a head before they are scores. */
enum weft_model_activation {
    WEFT_MODEL_IDENTITY,
    WEFT_MODEL_SIGMOID,
    WEFT_MODEL_SOFTMAX, /* over all labels */
};

struct weft_model_prompt { /* stands before texts of a kind: "query", "document" */
    char *name, *text;
};

#define WEFT_MODEL_PROMPTS_MAX 64u
#define WEFT_MODEL_LABELS_MAX 4096u

/* As the files of sentence-transformers say, config.json and GGUF's metadata. Where nothing does: the last
 * token of a decoder, the first of an encoder, of length 1; one label by a sigmoid, several by
 * softmax. */
struct weft_model_pooling {
    enum weft_model_task task;
    enum weft_pooling_kind kind; /* of hidden states: LAST, MEAN or CLS */
    bool normalises;             /* vectors have length 1 */
    bool generates;              /* it could, whatever it is made for */
    bool judges; /* of Qwen3's kind: can be asked for a yes or no (Qwen3-Reranker) */
    enum weft_model_activation activation;
    uint32_t n_tokens_max; /* longer texts are cut; 0: at the model's length */
    uint32_t n_prompts, n_labels;
    struct weft_model_prompt *prompts;
    uint32_t default_prompt; /* UINT32_MAX: none */
    char **labels;           /* [n_labels], names */
};

/* Of what weft_model_locate finds; the caller's, to free. UNSUPPORTED names what cannot be done (a
 * pooling, a module, an activation); PROTO: a file contradicts itself; IO, NOMEM. */
WEFT_MUST_CHECK weft_err weft_model_pooling_read(const char *path,
                                                 struct weft_model_pooling **pooling_out,
                                                 struct weft_errmsg *why);
void weft_model_pooling_free(struct weft_model_pooling *pooling); /* accepts NULL */

/* --------------------------------------------------------------------------------- identity --- */

/* Appends what a front reads of a model (tokenizer, template, defaults), told apart by content:
 * "tokenizer.json=0123456789abcdef,...", "metadata=..." of a GGUF file, "packed=..." of a packed
 * one. Weights are not in it: weft_model_hash has those. What a folder lacks is left out. */
WEFT_MUST_CHECK weft_err weft_model_identity(const char *path, struct weft_buf *identity,
                                             struct weft_errmsg *why);

/* Appends one more entry; no '=' or ',' in its name. */
void weft_identity_add(struct weft_buf *identity, const char *name, const void *bytes, size_t n);

/* Whether two identities are the same. If not, `changed` holds the names of entries that differ,
 * are missing or are new, with ", " between them. */
bool weft_identity_is(const char *had, const char *has, struct weft_buf *changed);

/* ---------------------------------------------------------------------------------- tensors --- */

/* The pieces of a quantised weight of a Hugging Face folder: several tensors of the file, in an
 * order of their own (lib/model/parts.h). */
struct weft_parts;

struct weft_tensor {
    const char *name; /* as in the file */
    enum weft_dtype dtype;
    uint32_t n_dims;  /* 1 or 2 for everything the engine uses, up to 4 in files */
    uint64_t dims[4]; /* row-major, outermost first: a weight is [out features, in features] */
    const void *data; /* in the mapping; aligned to 1 byte only: read it with memcpy or loadu.
                         NULL: of a packed file, which has the engine's form instead */
    size_t bytes;
    const struct weft_parts *parts; /* NULL: it is `data`; else only weft_tensor_rows reads it */
    uint64_t parts_row;             /* its first row among those of `parts` */
};

/* Rows row_begin..row_begin + n_rows of a matrix, one after the other, as their type has them
 * (F8_E4M3: in front of every 128 columns an f32 scale; the last may be fewer. I8: one in front of all), into
 * out[n_rows * weft_tensor_row_bytes(tensor)], aligned to 4 bytes. */
size_t weft_tensor_row_bytes(const struct weft_tensor *tensor);
void weft_tensor_rows(const struct weft_tensor *tensor, uint64_t row_begin, uint64_t n_rows,
                      void *out);

/* Row `row` of a 1- or 2-dimensional tensor that is of floats or Q8_0, or has parts,
 * converted to f32 into out[dims[last]]. Vectors of an opened model are of these types. */
void weft_tensor_row_f32(const struct weft_tensor *tensor, uint64_t row, float *out);

/* --------------------------------------------------------------------------- the model --- */

/* The numbers are in a model's hash, which packed files keep. */
enum weft_rope_scaling {
    WEFT_ROPE_NONE = 0,
    WEFT_ROPE_LINEAR = 1,
    WEFT_ROPE_LLAMA3 = 2,
    WEFT_ROPE_YARN = 3,
    WEFT_ROPE_LONGROPE = 4,     /* sequences with a long prompt have other frequencies */
    WEFT_ROPE_DYNAMIC = 5,      /* stretches what is longer than the context, so nothing here */
    WEFT_ROPE_NTK = 6,          /* a larger base, and all pairs slower: GTE */
    WEFT_ROPE_PROPORTIONAL = 7, /* the first pairs of a whole head: see rope_pairs */
};

/* Layers with many feed-forward parts, of which each token takes a few: the router scores them all,
 * and the layer's output is the sum of the best ones' outputs, weighed by their scores. */
struct weft_model_moe {
    uint32_t n_experts; /* 0: none, and the rest means nothing */
    uint32_t n_used;    /* by a token */
    uint32_t n_ffn;     /* inner size of an expert */
    uint32_t n_latent;  /* what experts read and yield is so wide, not the hidden size; 0: it is */
    uint32_t n_ffn_shared; /* of the one that every token takes, too; 0: there is none */
    bool shared_gate;      /* its output is multiplied by the sigmoid of a score of its own */
    bool sigmoid;          /* of each score by itself; else the softmax of all */
    bool score_bias;       /* is added to scores for choosing, not for weighing */
    bool normalise;        /* weights are divided by their sum */
    float scale;           /* weights are multiplied by it */
    /* Experts are chosen from the best groups of consecutive ones: those with the best expert, or
     * (by_two) the largest sum of two. 1 and 1: from all. */
    uint32_t n_groups, n_groups_used;
    bool by_two;
};

/* How config.json says that linear layers are stored. The numbers are in a model's hash. */
enum weft_quant_method {
    WEFT_QUANT_NONE = 0,
    WEFT_QUANT_FP8 = 1,
    WEFT_QUANT_GPTQ = 2,
    WEFT_QUANT_AWQ = 3,
    WEFT_QUANT_BNB = 4, /* bitsandbytes, NF4 */
    /* compressed-tensors: whole numbers of 8 bits, or of 4 or 8 in words of 32, or e4m3. */
    WEFT_QUANT_INT8 = 5,
    WEFT_QUANT_PACKED = 6,
    WEFT_QUANT_SCALED_FP8 = 7,
    WEFT_QUANT_MXFP4 = 8, /* gpt-oss's experts: the names of tensors tell (split.c) */
    WEFT_QUANT_COUNT,
};

/* What a method leaves open whose codes are whole numbers. Words of 32 bits: hash.c. */
struct weft_model_ints {
    uint32_t bits;      /* of a code; 0: 4 */
    uint32_t has_zeros; /* compressed-tensors: no weight is without zeros */
    uint32_t has_order; /* the same: none is without a list of its columns' groups */
};

struct weft_model_quant {
    enum weft_quant_method method;
    uint32_t block_rows, block_cols; /* of weights that share a scale; 0: all */
    bool zeros_less_one; /* GPTQ: the stored zero is one less, modulo the number of codes */
    struct weft_model_ints ints;
};

/* Models that read a text whole, and say something of it in place of going on with it: every token sees
 * all others, or those of a window to each side. Words of 32 bits, of which flags are 0 or 1: hash.c. */
struct weft_model_encoder {
    uint32_t is_on;                       /* 0: it generates, and the rest means nothing */
    uint32_t n_types;                     /* of tokens: of the first and the second text; 0: none */
    uint32_t n_positions, first_position; /* learned ones, and the row of position 0; 0: RoPE */
    uint32_t
        norms_sums; /* halves of a layer are added, then the sum is normalised; else as pre_norms */
    uint32_t norm_bias, bias; /* of norms, and of all matrices of a layer */
    uint32_t gated;     /* the FFN's first matrix is activated and multiplied with a second one */
    uint32_t tanh_gelu; /* with gelu: the form with tanh */
    uint32_t has_head, n_labels; /* the first hidden state goes through a head that classifies */
    uint32_t
        as_decoder; /* tensors, norms and all else are a decoder's: only what tokens see differs */
};

/* What becomes of the first product of a feed-forward part. */
enum weft_model_act {
    WEFT_MODEL_ACT_BY_GELU = 0, /* silu, or with `gelu` its form with tanh */
    WEFT_MODEL_ACT_RELU2 = 3,   /* the square of what is over 0 */
    WEFT_MODEL_ACT_GELU_ERF = 1,
    WEFT_MODEL_ACT_CLAMPED = 2, /* gpt-oss: clamped to act_limit, and up is one more */
};

/* Layers whose state is of fixed size, in place of attention or beside it (lib/engine/recurrent). */
enum weft_model_mixer {
    WEFT_MODEL_ATTENTION_ALONE = 0,
    WEFT_MODEL_CONV = 1,  /* LFM2's short convolution */
    WEFT_MODEL_MAMBA = 2, /* Mamba-2 */
    WEFT_MODEL_DELTA = 3, /* gated DeltaNet */
};

/* All 0: there are none. Words of 32 bits, as in the block: hash.c. */
struct weft_model_recurrent {
    uint32_t kind; /* enum weft_model_mixer */
    uint32_t conv_width;
    uint32_t n_heads, head_dim; /* of what comes out; of values */
    uint32_t n_groups;          /* of heads that share B and C, or a key */
    uint32_t state_dim;         /* elements of B and C, or of a key */
    uint32_t conv_bias;         /* the convolution adds a vector */
    uint32_t norm_groups;       /* Mamba-2: of channels that are normalised together; 0: none are */
    uint32_t takes_turns;       /* heads are of the groups in turn, not a group after the other */
    uint32_t rates_are_plain;   /* the file has -exp(A_log) in place of A_log */
    float dt_min, dt_max;
    uint32_t layers[WEFT_LAYERS_MAX / 32];       /* a bit per layer that has one */
    uint32_t no_attention[WEFT_LAYERS_MAX / 32]; /* a bit per layer without attention */
    uint32_t no_ffn[WEFT_LAYERS_MAX / 32];       /* a bit per layer that has no feed-forward part */
};

/* What chooses the positions that a token attends to (DeepSeek-V3.2's lightning indexer): a short key per token, which
 * queries of heads of its own score. Words of 32 bits, as in the block: hash.c. */
struct weft_model_indexer {
    uint32_t n_heads;  /* 0: there is none, and the rest means nothing */
    uint32_t head_dim; /* of its queries and of the key; the first rope_dim elements turn */
    uint32_t top_k;    /* positions that a token attends to; of fewer all */
    uint32_t pairs;    /* neighbours turn together; 0: halves, whatever rope_interleaved says */
};

/* How layers differ from Llama's form. All of it is 0 there, and words of 32 bits: hash.c. Flags are 0 or 1. */
struct weft_model_block {
    uint32_t layer_norm;   /* norms take the mean off */
    uint32_t norm_bias;    /* and add a vector */
    uint32_t o_bias;       /* of what attention yields */
    uint32_t ffn_bias;     /* of all matrices of the feed-forward part */
    uint32_t ungated;      /* whose first matrix is activated, with none beside it */
    uint32_t act;          /* enum weft_model_act */
    uint32_t parallel;     /* both halves read what the layer reads, and are added to it */
    uint32_t one_norm;     /* after one norm, which is attn_norm */
    uint32_t norms_turned; /* q and k are normalised after they are turned */
    uint32_t head_norms;   /* each head of q and k is normalised, with weights of its own */
    /* q is multiplied by 1 + q_beta * ln(1 + floor((position + q_shift) / q_step)), in layers that do not turn it
     * or in all; q_step 0: it is not. */
    uint32_t q_step, q_shift, q_unturned;
    float q_beta;
    uint32_t plain_qk_norm; /* q and k that are turned are normalised after that, without weights */
    uint32_t in_chunks; /* the window is a chunk: a token sees those of its own chunk before it */
    uint32_t sinks;     /* each head has a score of a position without a value */
    uint32_t attn_gate; /* what heads yield is multiplied by the sigmoid of a product of its own */
    uint32_t expert_bias; /* of experts' matrices and of the router */
    float act_limit;
    uint32_t weighs_inputs; /* routers' weights multiply what experts read, not what they yield */
    uint32_t yarn_smooth;   /* the pairs between which YaRN blends are not whole ones */
    /* Factors of what parts of a layer yield, before `residual_scale`; of gates before they are activated; of parts of a
     * recurrent layer's row: gate, x, B, C, dt. 0: 1. */
    float attention_scale, recurrent_scale, ffn_scale, gate_scale, row_scales[5];
    uint32_t gate_in_q;   /* q_proj has each head's q and the gate of what it yields */
    uint32_t plain_norms; /* `norm_plus_one` is not of recurrent layers' norms */
};

/* What only some layers have, or have in another size. All of it is 0 where layers are alike, and words of 32 bits:
 * hash.c. */
struct weft_model_unlike {
    /* Of layers with a window (those that are not in no_window); 0: as the others. */
    uint32_t local_head_dim, local_kv_heads;
    uint32_t n_ffn_wide;                 /* in place of n_ffn, in layers of the next set */
    uint32_t wide[WEFT_LAYERS_MAX / 32]; /* a bit per layer */
    /* So many last layers have no keys and values of their own: they read those of the last layer before them that has
     * a window as they have, or none. */
    uint32_t n_shared_kv;
    uint32_t
        keys_as_values[WEFT_LAYERS_MAX / 32]; /* a bit per layer: values are what keys are before
                                                      they are normalised and turned */
    uint32_t plain_v_norm; /* each head of values is normalised, without weights */
    uint32_t rope_pairs; /* where RoPE is the model's own: of a head's pairs so many turn; 0: all */
    uint32_t
        layer_input; /* elements of the embedding that a token has for each layer; 0: none has one */
    uint32_t n_vocab_input; /* tokens that have these; others have those of token 0 */
    uint32_t layer_scale;   /* what a layer leaves is multiplied by a number of its own */
    uint32_t
        ffn_beside; /* experts stand beside the feed-forward part, and the two have norms of their own */
};

/* What the engine needs to know; every field is checked against base/limits.h and the others. */
struct weft_model_params {
    char arch[32];  /* "llama" */
    char name[128]; /* general.name, or the folder's or file's name */
    uint32_t n_layers, n_heads, n_kv_heads, head_dim;
    uint32_t n_hidden, n_ffn, n_vocab;
    uint32_t n_context; /* max_position_embeddings, or what YaRN stretches the original to */
    uint32_t window;    /* a token sees itself and the window - 1 before it; 0: all before it */
    float rms_eps;      /* of layer norms, too */
    double rope_theta;
    /* NONE for GGUF files with llama3 scaling, which rope_freqs.weight holds: see
     * weft_model_rope. */
    enum weft_rope_scaling rope_scaling;
    double rope_factor;                                 /* not for NONE and LongRoPE */
    double rope_low_freq_factor, rope_high_freq_factor; /* llama3 */
    uint32_t rope_original_context;                     /* llama3, YaRN, LongRoPE */
    uint32_t rope_dim;     /* so many elements of a head turn, the first ones; even */
    double rope_magnitude; /* cos and sin are multiplied by it */
    double yarn_beta_fast, yarn_beta_slow;
    double yarn_mscale; /* scores of latent attention are multiplied by its square; else 1 */
    /* LongRoPE's divisors of each frequency, rope_dim / 2 of them: for sequences whose prompt is
     * longer than the original context, and for the others. */
    double rope_long_factors[WEFT_HEAD_DIM_MAX / 2], rope_short_factors[WEFT_HEAD_DIM_MAX / 2];
    /* false: element i turns with i + rope_dim/2 (Hugging Face); true: 2i with 2i + 1 (GGUF llama,
     * whose converter permutes the rows of Q and K to match). */
    bool rope_interleaved;
    bool tied; /* the head is the embedding table */

    bool qkv_bias;
    bool qk_norm, qk_norm_all; /* each head of q and k is normalised; or all of them as one row */
    bool pre_norms;            /* what a half of a layer reads is normalised */
    bool post_norms;           /* what it adds is normalised before it is */
    bool norm_plus_one;        /* weights of norms are stored less 1 */
    bool gelu;                 /* in place of silu */
    float attn_soft_cap, logit_soft_cap; /* cap * tanh(x / cap); 0: none */
    double local_rope_theta;             /* for layers with a window, unscaled; 0: as the others */
    /* Embeddings and what each half of a layer adds are multiplied by these, scores of attention by
     * attn_scale (0: 1 / sqrt(head_dim)), logits by logit_scale. */
    float embed_scale, residual_scale, attn_scale, logit_scale;
    /* Latent attention (DeepSeek): 0 in kv_lora means the usual one. A head of q is nope_dim
     * elements and rope_dim that turn; the cache holds one row for all heads, head_dim = kv_lora +
     * rope_dim long and n_kv_heads = 1: what keys and values are made of, and a key that turns. */
    uint32_t kv_lora, q_lora; /* q_lora 0: q comes of the hidden state directly */
    uint32_t nope_dim, v_dim;
    uint32_t
        n_predict; /* layers after the last that guess further tokens (weft_model_open_predictor) */
    bool untied;   /* the head is a tensor of its own in any case */
    bool wrapped;  /* the folder holds a larger model, of which this is the language part */
    uint32_t no_rope[WEFT_LAYERS_MAX / 32];   /* a bit per layer: q and k are not turned there */
    uint32_t no_window[WEFT_LAYERS_MAX / 32]; /* a bit per layer: `window` does not count there */
    struct weft_model_moe moe;
    uint32_t no_experts[WEFT_LAYERS_MAX / 32]; /* a bit per layer: a plain one, of n_ffn */
    struct weft_model_quant quant;
    struct weft_model_encoder encoder;
    struct weft_model_block block;
    struct weft_model_recurrent recurrent;
    struct weft_model_unlike unlike;
    struct weft_model_indexer indexer; /* of all layers; only with latent attention */
};

_Static_assert(WEFT_LAYERS_MAX % 32 == 0, "sets of layers are whole words");

/* Whether a layer is in one of the sets above. */
static inline bool weft_model_bit(const uint32_t bits[WEFT_LAYERS_MAX / 32], uint32_t layer) {
    return bits[layer / 32] >> layer % 32 & 1;
}

static inline bool weft_model_has_recurrent(const struct weft_model_params *params) {
    return params->recurrent.kind != WEFT_MODEL_ATTENTION_ALONE;
}

/* Sizes of a layer. */
static inline bool weft_model_is_local(const struct weft_model_params *params, uint32_t layer) {
    return !weft_model_bit(params->no_window, layer);
}

static inline uint32_t weft_model_head_dim(const struct weft_model_params *params, uint32_t layer) {
    const uint32_t local = params->unlike.local_head_dim;
    return local > 0 && weft_model_is_local(params, layer) ? local : params->head_dim;
}

static inline uint32_t weft_model_kv_heads(const struct weft_model_params *params, uint32_t layer) {
    const uint32_t local = params->unlike.local_kv_heads;
    return local > 0 && weft_model_is_local(params, layer) ? local : params->n_kv_heads;
}

/* How much of a head turns in layers with a window: all of it, if it has a size of its own. */
static inline uint32_t weft_model_local_rope_dim(const struct weft_model_params *params) {
    const uint32_t local = params->unlike.local_head_dim;
    return local > 0 ? local : params->rope_dim;
}

static inline uint32_t weft_model_ffn(const struct weft_model_params *params, uint32_t layer) {
    return weft_model_bit(params->unlike.wide, layer) ? params->unlike.n_ffn_wide : params->n_ffn;
}

/* The layer whose keys and values a layer reads: itself, unless it has none of its own. */
static inline uint32_t weft_model_kv_layer(const struct weft_model_params *params, uint32_t layer) {
    uint32_t at = params->n_layers - params->unlike.n_shared_kv;
    if (layer < at) return layer;
    while (at > 0 && weft_model_is_local(params, at - 1) != weft_model_is_local(params, layer))
        at--;
    return at > 0 ? at - 1 : layer; /* the latter is refused when a model is opened */
}

/* What the convolution of a recurrent layer takes, and what the layer makes, per row. */
static inline uint32_t weft_model_conv_channels(const struct weft_model_params *params) {
    const struct weft_model_recurrent *r = &params->recurrent;
    if (r->kind == WEFT_MODEL_CONV) return params->n_hidden;
    return r->n_heads * r->head_dim + 2 * r->n_groups * r->state_dim;
}

static inline uint32_t weft_model_recurrent_inner(const struct weft_model_params *params) {
    const struct weft_model_recurrent *r = &params->recurrent;
    return r->kind == WEFT_MODEL_CONV ? params->n_hidden : r->n_heads * r->head_dim;
}

/* How wide what experts read and yield is. */
static inline uint32_t weft_model_expert_width(const struct weft_model_params *params) {
    return params->moe.n_latent ? params->moe.n_latent : params->n_hidden;
}

/* The matrices that make a row for a recurrent layer, one after the other in it: of CONV and MAMBA one; of DELTA what
 * its convolution takes, in one or as q, k and v, then gates, and what beta and dt come from. */
enum { WEFT_MODEL_RECURRENT_PARTS = 6 };

struct weft_model_expert {
    /* [moe.n_ffn, hidden or moe.n_latent] x2, and turned */
    const struct weft_tensor *gate, *up, *down;
    const struct weft_tensor *b_gate, *b_up, *b_down; /* their biases, or NULL */
};

struct weft_model_layer {
    const struct weft_tensor *attn_norm; /* [hidden], or NULL */
    /* [heads*head_dim, hidden], [kv_heads*head_dim, hidden] x2, [hidden, heads*head_dim] */
    const struct weft_tensor *wq, *wk, *wv, *wo;
    const struct weft_tensor *bq, *bk, *bv;    /* biases of wq, wk and wv, or NULL */
    const struct weft_tensor *q_norm, *k_norm; /* [head_dim] or all heads', or NULL */
    const struct weft_tensor *post_attn_norm, *post_ffn_norm; /* [hidden], or NULL */
    const struct weft_tensor *ffn_norm;                       /* [hidden], or NULL */
    /* Latent attention: wq is [heads*(nope_dim + rope_dim), hidden or q_lora], wk is [head_dim,
     * hidden], there is no wv, and wo is [hidden, heads*v_dim]. */
    const struct weft_tensor *wq_a, *q_a_norm; /* [q_lora, hidden] and [q_lora], or NULL */
    const struct weft_tensor *latent_norm;     /* [kv_lora] */
    /* From the latent to keys and values, per head: [heads*(nope_dim + v_dim), kv_lora]; or each by
     * itself, [heads*kv_lora, nope_dim] (so turned already) and [heads*v_dim, kv_lora]. */
    const struct weft_tensor *w_kv_b, *w_k_b, *w_v_b;
    /* The indexer, or NULL: [n_heads*head_dim, q_lora], [head_dim, hidden], [head_dim] x2 and [n_heads, hidden]. */
    const struct weft_tensor *index_q, *index_k, *index_norm, *index_norm_bias, *index_weights;
    /* [ffn, hidden] x2, [hidden, ffn]; where there are experts the shared one's, or NULL. */
    const struct weft_tensor *w_gate, *w_up, *w_down;
    const struct weft_model_expert *experts; /* [moe.n_experts], or NULL */
    const struct weft_tensor *router;        /* [moe.n_experts, hidden], or NULL */
    /* From the hidden state to what experts read, and from what they yield: [moe.n_latent, hidden] and turned, or NULL. */
    const struct weft_tensor *latent_in, *latent_out;
    const struct weft_tensor *score_bias;  /* [moe.n_experts], or NULL */
    const struct weft_tensor *shared_gate; /* [hidden], or NULL */
    const struct weft_tensor *b_router;    /* [moe.n_experts], or NULL */
    const struct weft_tensor *attn_gate;   /* [heads*head_dim, hidden], or NULL */
    const struct weft_tensor *sinks;       /* [heads], or NULL */
    /* Where experts stand beside the feed-forward part: the norms of what they read, of what either yields, and of what
     * the router reads; and a factor of each expert's weight, [moe.n_experts]. */
    const struct weft_tensor *experts_norm, *post_plain_norm, *post_experts_norm; /* [hidden] */
    const struct weft_tensor *router_norm, *expert_scale;
    /* What a layer does with its own embeddings, and the number that it is multiplied by: [1]. Each or NULL. */
    const struct weft_tensor *input_gate, *input_proj; /* [layer_input, hidden] and turned */
    const struct weft_tensor *post_input_norm;         /* [hidden] */
    const struct weft_tensor *layer_scale;
    /* Recurrent layers. */
    const struct weft_tensor *rec_in[WEFT_MODEL_RECURRENT_PARTS]; /* [rows, hidden] each, or NULL */
    const struct weft_tensor *rec_out;                            /* [hidden, inner] */
    const struct weft_tensor *taps, *conv_bias;      /* [width, channels]; [channels], or NULL */
    const struct weft_tensor *dt_bias, *rate, *skip; /* [heads], or NULL */
    const struct weft_tensor *rec_norm;              /* [inner] or [head_dim], or NULL */
    /* Each or NULL. Without gates w_gate is the only one of the two. */
    const struct weft_tensor *bo, *b_gate, *b_up, *b_down;
    const struct weft_tensor *attn_norm_bias, *ffn_norm_bias; /* [hidden] */
    /* Encoders alone. */
    const struct weft_tensor *attn_sum_norm, *attn_sum_bias, *ffn_sum_norm, *ffn_sum_bias;
};

/* What an encoder has outside of its layers, each or NULL. */
struct weft_model_encoder_tensors {
    const struct weft_tensor *types, *positions;        /* [n_types, hidden], [positions, hidden] */
    const struct weft_tensor *embed_norm, *embed_bias;  /* [hidden] */
    const struct weft_tensor *dense, *dense_bias;       /* [hidden, hidden], tanh of it; [hidden] */
    const struct weft_tensor *classifier, *labels_bias; /* [n_labels, hidden]; [n_labels] */
};

/* What makes the embeddings that tokens have for each layer; all NULL: there are none. */
struct weft_model_input_tensors {
    const struct weft_tensor *table; /* [n_vocab_input, n_layers * layer_input] */
    const struct weft_tensor
        *proj; /* [n_layers * layer_input, hidden], of the first layer's input */
    const struct weft_tensor *norm; /* [layer_input], of what that yields */
};

/* What a layer that predicts further tokens has before its first half: its input is eh_proj times the
 * token's embedding, normalised by enorm, and the state before it, normalised by hnorm. */
struct weft_model_predictor_tensors {
    const struct weft_tensor *enorm, *hnorm; /* [hidden] */
    const struct weft_tensor *eh_proj;       /* [hidden, 2 * hidden] */
};

typedef struct weft_model weft_model;
struct stat;

/* Opens what weft_model_locate finds. Maps the weights, checks everything and resolves the roles.
 * *model_out is the caller's, to free. NOTFOUND, IO, PROTO (malformed), UNSUPPORTED (an
 * architecture, tensor type or option, by name), NOMEM. */
WEFT_MUST_CHECK weft_err weft_model_open(const char *path, weft_model **model_out,
                                         struct weft_errmsg *why);
/* The same of the first of a model's n_predict layers, by itself: a model of one layer, which has
 * embedding, final norm and head of its own, or else the whole model's. INVAL: there is none;
 * UNSUPPORTED: of a packed file, which has no weights of such layers. */
WEFT_MUST_CHECK weft_err weft_model_open_predictor(const char *path, weft_model **model_out,
                                                   struct weft_errmsg *why);
/* A whole model whose sizes are wanted, and not its weights. A folder without any .safetensors file
 * opens, too: the tensors have no data then, and the shapes and types that config.json asks for.
 * Errors as above; UNSUPPORTED, too, where there are no weights and the model is an encoder. */
WEFT_MUST_CHECK weft_err weft_model_open_shapes(const char *path, weft_model **model_out,
                                                struct weft_errmsg *why);
bool weft_model_is_bare(const weft_model *model); /* whether that was so */
void weft_model_free(weft_model *model);          /* accepts NULL */

const struct weft_model_params *weft_model_params(const weft_model *model);
const struct weft_model_layer *weft_model_layers(const weft_model *model); /* [n_layers] */
const struct weft_tensor *weft_model_embedding(const weft_model *model);   /* [vocab, hidden] */
/* [hidden]; NULL in encoders that normalise sums, which have no head either. */
const struct weft_tensor *weft_model_final_norm(const weft_model *model);
const struct weft_tensor *
weft_model_final_bias(const weft_model *model);                     /* of that norm, or NULL */
const struct weft_tensor *weft_model_head(const weft_model *model); /* [vocab, hidden] */
const struct weft_model_encoder_tensors *weft_model_encoder(const weft_model *model);
const struct weft_model_input_tensors *weft_model_inputs(const weft_model *model);
/* NULL: it is a whole model. */
const struct weft_model_predictor_tensors *weft_model_predictor(const weft_model *model);

/* Whether `st` is that of a file that the tensors lie in. */
bool weft_model_has_file(const weft_model *model, const struct stat *st);

/* The path of file `idx` that the tensors lie in; NULL after the last. */
const char *weft_model_file(const weft_model *model, size_t idx);

/* All tensors in file order, for inspection. */
size_t weft_model_n_tensors(const weft_model *model);
const struct weft_tensor *weft_model_tensor(const weft_model *model, size_t idx);

/* NULL when there is no such tensor. */
const struct weft_tensor *weft_model_find(const weft_model *model, const char *name);

/* How a position turns q and k: pair i by position * inv_freq[i]; cos and sin are multiplied by
 * `magnitude`. */
struct weft_rope {
    double magnitude;
    double inv_freq[WEFT_HEAD_DIM_MAX / 2]; /* rope_dim / 2 of them */
};

/* Scaling applied, and GGUF's rope_freqs.weight where the file has it. `local`: of layers with a
 * window. `is_long`: of sequences with a long prompt, see weft_model_long_prompt. */
void weft_model_rope(const weft_model *model, bool local, bool is_long, struct weft_rope *out);

/* Prompts longer than this are long ones (UINT32_MAX: none is, or it does not matter). Hugging Face
 * goes by the length of the whole sequence and so changes its mind about tokens it has computed
 * already; here the prompt decides, once. Sequences may share only what came of
 * prompts of one kind. */
uint32_t weft_model_long_prompt(const weft_model *model);

/* Nobody needs these bytes of a tensor for now: their pages leave this process (what is read again comes from the
 * page cache), so that a file which is read once does not count as memory in the end. Bytes that
 * are no file's stay. From any thread. */
void weft_model_forget(const weft_model *model, const void *data, size_t n_bytes);

/* A 64-bit hash over hyper-parameters and all tensor bytes (XXH3). Reads the whole file once, and forgets it; a
 * packed file has it noted. */
uint64_t weft_model_hash(const weft_model *model);

/* ----------------------------------------------------------------------------- packed files ---
 *
 * A file that stands alone: the weights as the engine wants them in memory, and everything else the
 * model came with. Little-endian throughout:
 *
 *   page 0            the header (packed.c), then its own XXH3
 *   .. arena_bytes    the engine's arena, whose first page is the header's; from byte 0 on
 *   .. file_bytes     the model without its weights, as sections of a name, a length and bytes:
 *                     "name", "tensors" (name, type, stored form and shape of each), then "gguf" (a
 *                     GGUF file up to its tensor descriptions) or a folder's small files by name
 *
 * Everything is checked at opening, except the arena's bytes: any bytes are numbers. The file must
 * not be changed while it is in use; to replace it, rename another over it. */

#define WEFT_PACKED_VERSION 1u
#define WEFT_PACKED_PAGE 4096u /* of the header; the arena is whole pages */

struct weft_packed {
    uint64_t arena_bytes;
    uint64_t layout_hash;  /* of the arena, computed by the engine */
    uint64_t weights_hash; /* weft_model_hash of the source, and all else that decides */
    char packed_as[32];    /* printable, for messages: "q8" */
};

/* NULL: not a packed file. */
const struct weft_packed *weft_model_packed(const weft_model *model);

/* The stored form of a tensor of a packed file. */
enum weft_dtype weft_model_stored(const weft_model *model, const struct weft_tensor *tensor);

/* The mapping of a packed file, which begins with the arena; the caller's from here on, to munmap.
 * Once per model, of a file alone. */
const void *weft_model_take_mapping(weft_model *model, size_t *bytes_out);

/* What a packed file is made of. */
struct weft_packed_source {
    const weft_model *model;       /* not packed itself */
    const char *path;              /* where it was opened */
    const enum weft_dtype *stored; /* [n_tensors]: what the weights of each are in the arena */
};

/* What follows the arena and then the header, written to `fd` (`out_path`, for messages). */
WEFT_MUST_CHECK weft_err weft_packed_finish(int fd, const char *out_path,
                                            const struct weft_packed_source *source,
                                            const struct weft_packed *packed,
                                            struct weft_errmsg *why);

/* ---------------------------------------------------------------------------- GGUF metadata --- */

typedef struct weft_gguf weft_gguf;

/* The numbers of the file format. */
enum weft_gguf_type {
    WEFT_GGUF_U8 = 0,
    WEFT_GGUF_I8 = 1,
    WEFT_GGUF_U16 = 2,
    WEFT_GGUF_I16 = 3,
    WEFT_GGUF_U32 = 4,
    WEFT_GGUF_I32 = 5,
    WEFT_GGUF_F32 = 6,
    WEFT_GGUF_BOOL = 7,
    WEFT_GGUF_STRING = 8,
    WEFT_GGUF_ARRAY = 9,
    WEFT_GGUF_U64 = 10,
    WEFT_GGUF_I64 = 11,
    WEFT_GGUF_F64 = 12,
    WEFT_GGUF_TYPE_COUNT,
};

/* Header and metadata alone (of vocabulary-only and of packed files, too). *gguf_out is the
 * caller's. */
WEFT_MUST_CHECK weft_err weft_gguf_open(const char *path, weft_gguf **gguf_out,
                                        struct weft_errmsg *why);
void weft_gguf_free(weft_gguf *gguf);

/* Strings (weft_str) are borrowed from the mapping. */

size_t weft_gguf_n_keys(const weft_gguf *gguf);
struct weft_str weft_gguf_key(const weft_gguf *gguf, size_t idx, enum weft_gguf_type *type_out);

/* False if the key is missing or of another kind. Integers of any width convert if they fit. */
bool weft_gguf_u64(const weft_gguf *gguf, const char *key, uint64_t *out);
bool weft_gguf_f64(const weft_gguf *gguf, const char *key, double *out); /* F32 or F64 */
bool weft_gguf_bool(const weft_gguf *gguf, const char *key, bool *out);
bool weft_gguf_str(const weft_gguf *gguf, const char *key, struct weft_str *out);

/* Arrays: element type and count; then elements by index (idx < count, else false). String arrays
 * are indexed at opening, so access is O(1). Arrays of arrays are checked and skipped. */
bool weft_gguf_array(const weft_gguf *gguf, const char *key, enum weft_gguf_type *type_out,
                     size_t *count_out);
bool weft_gguf_array_str(const weft_gguf *gguf, const char *key, size_t idx, struct weft_str *out);
bool weft_gguf_array_i64(const weft_gguf *gguf, const char *key, size_t idx, int64_t *out);
bool weft_gguf_array_f64(const weft_gguf *gguf, const char *key, size_t idx, double *out);

#endif
