/* model/arch — the architectures that are served. */
#ifndef WEFT_MODEL_ARCH_H
#define WEFT_MODEL_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"

/* What an architecture has that Llama has not. */
struct wefti_model_traits {
    bool window : 1;         /* a sliding window in every layer */
    bool qkv_bias : 1;       /* biases of q, k and v */
    bool qk_norm : 1;        /* each head of q and k is normalised */
    bool no_rope : 1;        /* layers that do not turn q and k; each fourth by default */
    bool scales : 1;         /* of embeddings, attention, residuals and logits */
    bool gemma : 1;          /* norms after halves of a layer, GELU, windows and more */
    bool local_rope : 1;     /* Gemma 3: layers with a window have their own RoPE */
    bool fused : 1;          /* q, k and v are one tensor, and so are gate and up */
    bool qk_norm_all : 1;    /* all heads of q, and of k, are normalised as one row */
    bool experts : 1;        /* a mixture of experts */
    bool normalised : 1;     /* their weights sum to 1 by default */
    bool shared_gate : 1;    /* a shared expert has a gate */
    bool deepseek : 1;       /* groups of experts, shared ones, layers without any */
    bool latent : 1;         /* latent attention */
    bool indexer : 1;        /* which sees what an indexer chooses */
    bool index_pairs : 1;    /* whose keys and queries turn by neighbours, by default */
    bool norms_after : 1;    /* halves of a layer are normalised after, not before */
    bool wrapped : 1;        /* part of a larger model, whose rest is left out */
    bool encoder : 1;        /* tokens see what comes after them */
    bool head : 1;           /* an encoder with a head that classifies */
    bool folder : 1;         /* no GGUF file has it */
    bool layer_norm : 1;     /* norms take the mean off */
    bool norm_bias : 1;      /* and add something */
    bool o_bias : 1;         /* a bias of what attention yields */
    bool ffn_bias : 1;       /* biases of the feed-forward part */
    bool ungated : 1;        /* whose first matrix is activated alone */
    bool parallel : 1;       /* both halves of a layer read what the layer reads */
    bool one_norm : 1;       /* by one norm */
    bool norms_turned : 1;   /* q and k are normalised after they are turned */
    bool pairs : 1;          /* neighbours are turned together, in every format */
    bool pattern : 1;        /* a window in some layers, which "layer_types" lists */
    bool turns_windowed : 1; /* layers without the window do not turn q and k */
    bool turns_alone : 1;    /* if no layer has a window, all turn */
    bool tied : 1;           /* embedding and head are one table by default */
    bool norms_too : 1;      /* halves of a layer are normalised after, too */
    bool bias_key : 1;       /* "attention_bias" is of q, k and v alone */
    bool scales_q : 1;       /* q grows with the position */
    bool sigmoid : 1;        /* the router's scores by default */
    bool score_bias : 1;     /* a bias of scores decides who is chosen */
    bool may_qk_norm : 1;    /* if "use_qk_norm" says so */
    bool may_head_norms : 1; /* if "qk_layernorm" says so */
    bool predicts : 1;       /* layers after the last that guess further tokens */
    bool gelu : 1;           /* by default, in the form with tanh */
    bool gelu_erf : 1;       /* in the exact form */
    bool attn_gate : 1;      /* what heads yield is gated */
    bool sinks : 1;          /* attention's */
    bool expert_bias : 1;    /* of experts and of the router */
    /* Folders have experts' matrices stacked and turned: [expert, in features, out features]. */
    bool turned : 1;
    bool alternate : 1;    /* in stacks rows of gate and up alternate */
    bool clamped : 1;      /* gpt-oss's activation */
    bool every_second : 1; /* layer sees everything, by default */
    bool yarn_smooth : 1;  /* in GGUF files, which do not say so */
    bool mup : 1;          /* embeddings grow with the hidden size */
    bool llama4 : 1;       /* chunks, temperature, norms without weights */
    bool conv : 1;         /* layers that are short convolutions */
    bool mamba : 1;
    bool delta : 1;
    bool beside : 1;  /* Mamba-2 beside attention, in every layer */
    bool letters : 1; /* one part per layer, by a pattern of letters */
    bool relu2 : 1;
    bool gate_in_q : 1;      /* q_proj has gates among the queries */
    bool plus_one : 1;       /* norms are stored less 1 */
    bool granite_shared : 1; /* "shared_intermediate_size" */
    bool multipliers : 1;    /* Falcon-H1's */
    bool tiled_heads : 1;    /* in GGUF files value heads of a key head do not stand together */
    bool
        heads_by_kind : 1; /* heads are of another size, and of another number, in layers without a window */
    bool unscaled : 1;     /* scores of attention are as they are */
    bool plain_v_norm : 1; /* values are normalised, without weights */
    bool shares_kv : 1;    /* last layers read the keys and values of earlier ones */
    bool layer_input : 1;  /* tokens have an embedding for each layer */
    bool layer_scale : 1;  /* layers are multiplied by a number each */
    bool ffn_beside : 1;   /* experts stand beside the feed-forward part */
};

/* The name that tensors have in files of an architecture, and the one that everything behind it knows. "*." at
 * the beginning: after a layer's number. No `to`: they play no part. The first rule that fits counts, of
 * those for beginnings and of those for layers. */
struct wefti_model_rename {
    const char *from, *to;
};

struct wefti_model_arch {
    const char *name;               /* general.architecture of GGUF files, if there are such */
    const char *hf_type, *hf_class; /* model_type and architectures of config.json */
    struct wefti_model_traits traits;
    uint32_t window;            /* the default; 0: none */
    bool gguf_rope_interleaved; /* the converter permutes the rows of Q and K */
    /* By enum weft_model_format; ended by an empty rule, or NULL: none. Rows of one name share them. */
    const struct wefti_model_rename *renames[2];
};

/* All of them (arch/arch_rows.c). */
extern const struct wefti_model_arch wefti_model_archs[];
extern const size_t wefti_model_n_archs;

/* Models that read more than text: their language model is that of the architecture which "text_config" names, or of
 * `text_type` where it names none. */
struct wefti_model_wrapper {
    const char *hf_type, *hf_class, *text_type;
};
extern const struct wefti_model_wrapper wefti_model_wrappers[];
extern const size_t wefti_model_n_wrappers;

/* By class, or by type where `class` is NULL. NULL: it is none. */
const struct wefti_model_wrapper *wefti_model_wrapper_of(const char *class_name, const char *type);

/* NULL: not served. */
const struct wefti_model_arch *wefti_model_arch_of_class(const char *name);
const struct wefti_model_arch *wefti_model_arch_of_type(const char *name);
const struct wefti_model_arch *wefti_model_arch_of_gguf(struct weft_str name);

/* The name that an architecture is looked up by. */
enum wefti_model_arch_name { WEFTI_MODEL_BY_CLASS, WEFTI_MODEL_BY_TYPE, WEFTI_MODEL_BY_GGUF };

/* UNSUPPORTED, with those that are served whose names of that kind begin alike. */
weft_err wefti_model_arch_refuse(const char *path, enum wefti_model_arch_name kind,
                                 struct weft_str name, struct weft_errmsg *why);

#endif
