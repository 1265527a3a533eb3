/* model/arch — the architectures that are served. */
#ifndef WEFT_MODEL_ARCH_H
#define WEFT_MODEL_ARCH_H

#include <stdint.h>

#include "model/model.h"

/* What an architecture has that Llama has not. */
typedef uint64_t wefti_model_traits;
#define WEFTI_MODEL_ARCH_WINDOW (UINT64_C(1) << 0)   /* a sliding window in every layer */
#define WEFTI_MODEL_ARCH_QKV_BIAS (UINT64_C(1) << 1) /* biases of q, k and v */
#define WEFTI_MODEL_ARCH_QK_NORM (UINT64_C(1) << 2)  /* each head of q and k is normalised */
/* Layers that do not turn q and k; each fourth by default. */
#define WEFTI_MODEL_ARCH_NO_ROPE (UINT64_C(1) << 3)
/* Of embeddings, attention, residuals and logits. */
#define WEFTI_MODEL_ARCH_SCALES (UINT64_C(1) << 4)
/* Norms after halves of a layer, GELU, windows and more. */
#define WEFTI_MODEL_ARCH_GEMMA (UINT64_C(1) << 5)
/* Gemma 3: layers with a window have their own RoPE. */
#define WEFTI_MODEL_ARCH_LOCAL_ROPE (UINT64_C(1) << 6)
/* Q, k and v are one tensor, and so are gate and up. */
#define WEFTI_MODEL_ARCH_FUSED (UINT64_C(1) << 7)
/* All heads of q, and of k, are normalised as one row. */
#define WEFTI_MODEL_ARCH_QK_NORM_ALL (UINT64_C(1) << 8)
#define WEFTI_MODEL_ARCH_EXPERTS (UINT64_C(1) << 9)      /* a mixture of experts */
#define WEFTI_MODEL_ARCH_NORMALISED (UINT64_C(1) << 10)  /* their weights sum to 1 by default */
#define WEFTI_MODEL_ARCH_SHARED_GATE (UINT64_C(1) << 11) /* a shared expert has a gate */
/* Groups of experts, shared ones, layers without any. */
#define WEFTI_MODEL_ARCH_DEEPSEEK (UINT64_C(1) << 12)
#define WEFTI_MODEL_ARCH_LATENT (UINT64_C(1) << 13) /* latent attention */
/* Halves of a layer are normalised after, not before. */
#define WEFTI_MODEL_ARCH_NORMS_AFTER (UINT64_C(1) << 14)
/* Part of a larger model, whose rest is left out. */
#define WEFTI_MODEL_ARCH_WRAPPED (UINT64_C(1) << 15)
#define WEFTI_MODEL_ARCH_ENCODER (UINT64_C(1) << 16)    /* tokens see what comes after them */
#define WEFTI_MODEL_ARCH_HEAD (UINT64_C(1) << 17)       /* an encoder with a head that classifies */
#define WEFTI_MODEL_ARCH_FOLDER (UINT64_C(1) << 18)     /* no GGUF file has it */
#define WEFTI_MODEL_ARCH_LAYER_NORM (UINT64_C(1) << 19) /* norms take the mean off */
#define WEFTI_MODEL_ARCH_NORM_BIAS (UINT64_C(1) << 20)  /* and add something */
#define WEFTI_MODEL_ARCH_O_BIAS (UINT64_C(1) << 21)     /* a bias of what attention yields */
#define WEFTI_MODEL_ARCH_FFN_BIAS (UINT64_C(1) << 22)   /* biases of the feed-forward part */
#define WEFTI_MODEL_ARCH_UNGATED (UINT64_C(1) << 23)    /* whose first matrix is activated alone */
/* Both halves of a layer read what the layer reads. */
#define WEFTI_MODEL_ARCH_PARALLEL (UINT64_C(1) << 24)
#define WEFTI_MODEL_ARCH_ONE_NORM (UINT64_C(1) << 25) /* by one norm */
/* Q and k are normalised after they are turned. */
#define WEFTI_MODEL_ARCH_NORMS_TURNED (UINT64_C(1) << 26)
/* Neighbours are turned together, in every format. */
#define WEFTI_MODEL_ARCH_PAIRS (UINT64_C(1) << 27)
/* A window in some layers, which "layer_types" lists. */
#define WEFTI_MODEL_ARCH_PATTERN (UINT64_C(1) << 28)
/* Layers without the window do not turn q and k. */
#define WEFTI_MODEL_ARCH_TURNS_WINDOWED (UINT64_C(1) << 29)
#define WEFTI_MODEL_ARCH_TIED (UINT64_C(1) << 30) /* embedding and head are one table by default */
/* Halves of a layer are normalised after, too. */
#define WEFTI_MODEL_ARCH_NORMS_TOO (UINT64_C(1) << 33)
#define WEFTI_MODEL_ARCH_BIAS_KEY (UINT64_C(1) << 31) /* "attention_bias" is of q, k and v alone */
#define WEFTI_MODEL_ARCH_SCALES_Q (UINT64_C(1) << 32) /* q grows with the position */
#define WEFTI_MODEL_ARCH_SIGMOID (UINT64_C(1) << 34)  /* the router's scores by default */
/* A bias of scores decides who is chosen. */
#define WEFTI_MODEL_ARCH_SCORE_BIAS (UINT64_C(1) << 35)
#define WEFTI_MODEL_ARCH_MAY_QK_NORM (UINT64_C(1) << 36) /* if "use_qk_norm" says so */
/* Layers after the last that guess further tokens. */
#define WEFTI_MODEL_ARCH_PREDICTS (UINT64_C(1) << 37)
#define WEFTI_MODEL_ARCH_GELU (UINT64_C(1) << 38)        /* by default, in the form with tanh */
#define WEFTI_MODEL_ARCH_GELU_ERF (UINT64_C(1) << 39)    /* in the exact form */
#define WEFTI_MODEL_ARCH_ATTN_GATE (UINT64_C(1) << 40)   /* what heads yield is gated */
#define WEFTI_MODEL_ARCH_SINKS (UINT64_C(1) << 41)       /* attention's */
#define WEFTI_MODEL_ARCH_EXPERT_BIAS (UINT64_C(1) << 42) /* of experts and of the router */
/* Folders have experts' matrices stacked and turned: [expert, in features, out features]. */
#define WEFTI_MODEL_ARCH_TURNED (UINT64_C(1) << 43)
/* In stacks rows of gate and up alternate. */
#define WEFTI_MODEL_ARCH_ALTERNATE (UINT64_C(1) << 44)
#define WEFTI_MODEL_ARCH_CLAMPED (UINT64_C(1) << 45)      /* gpt-oss's activation */
#define WEFTI_MODEL_ARCH_EVERY_SECOND (UINT64_C(1) << 46) /* layer sees everything, by default */
#define WEFTI_MODEL_ARCH_YARN_SMOOTH (UINT64_C(1) << 47)  /* in GGUF files, which do not say so */
#define WEFTI_MODEL_ARCH_MUP (UINT64_C(1) << 48)          /* embeddings grow with the hidden size */
#define WEFTI_MODEL_ARCH_LLAMA4 (UINT64_C(1) << 49) /* chunks, temperature, norms without weights */
#define WEFTI_MODEL_ARCH_CONV (UINT64_C(1) << 50)   /* layers that are short convolutions */
#define WEFTI_MODEL_ARCH_MAMBA (UINT64_C(1) << 51)
#define WEFTI_MODEL_ARCH_DELTA (UINT64_C(1) << 52)
#define WEFTI_MODEL_ARCH_BESIDE (UINT64_C(1) << 53) /* Mamba-2 beside attention, in every layer */
#define WEFTI_MODEL_ARCH_LETTERS                                                                   \
    (UINT64_C(1) << 54) /* one part per layer, by a pattern of letters */
#define WEFTI_MODEL_ARCH_RELU2 (UINT64_C(1) << 55)
#define WEFTI_MODEL_ARCH_GATE_IN_Q (UINT64_C(1) << 56)      /* q_proj has gates among the queries */
#define WEFTI_MODEL_ARCH_PLUS_ONE (UINT64_C(1) << 57)       /* norms are stored less 1 */
#define WEFTI_MODEL_ARCH_GRANITE_SHARED (UINT64_C(1) << 58) /* "shared_intermediate_size" */
#define WEFTI_MODEL_ARCH_MULTIPLIERS (UINT64_C(1) << 59)    /* Falcon-H1's */
/* In GGUF files value heads of a key head do not stand together. */
#define WEFTI_MODEL_ARCH_TILED_HEADS (UINT64_C(1) << 60)

/* The name that tensors have in files of an architecture, and the one that everything behind it knows. "*." at
 * the beginning: after a layer's number. No `to`: they play no part. The first rule that fits counts, of
 * those for beginnings and of those for layers. */
struct wefti_model_rename {
    const char *from, *to;
};

struct wefti_model_arch {
    const char *name;               /* general.architecture of GGUF files, if there are such */
    const char *hf_type, *hf_class; /* model_type and architectures of config.json */
    wefti_model_traits traits;
    uint32_t window;            /* the default; 0: none */
    bool gguf_rope_interleaved; /* the converter permutes the rows of Q and K */
    /* By enum weft_model_format; ended by an empty rule, or NULL: none. Rows of one name share them. */
    const struct wefti_model_rename *renames[2];
};

/* All of them (arch/arch_rows.c). */
extern const struct wefti_model_arch wefti_model_archs[];
extern const size_t wefti_model_n_archs;

/* NULL: not served. */
const struct wefti_model_arch *wefti_model_arch_of_class(const char *name);
const struct wefti_model_arch *wefti_model_arch_of_type(const char *name);
const struct wefti_model_arch *wefti_model_arch_of_gguf(struct weft_str name);

/* The name that an architecture is looked up by. */
enum wefti_model_arch_name { WEFTI_MODEL_BY_CLASS, WEFTI_MODEL_BY_TYPE, WEFTI_MODEL_BY_GGUF };

/* UNSUPPORTED, with a list of those that are served, by names of that kind. */
weft_err wefti_model_arch_refuse(const char *path, enum wefti_model_arch_name kind,
                                 struct weft_str name, struct weft_errmsg *why);

#endif
