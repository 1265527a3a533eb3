/* model/arch — the architectures that are served. */
#ifndef WEFT_MODEL_ARCH_H
#define WEFT_MODEL_ARCH_H

#include "model/model.h"

/* What an architecture has that Llama has not. */
enum {
    WEFTI_MODEL_ARCH_WINDOW = 1 << 0,   /* a sliding window in every layer */
    WEFTI_MODEL_ARCH_QKV_BIAS = 1 << 1, /* biases of q, k and v */
    WEFTI_MODEL_ARCH_QK_NORM = 1 << 2,  /* each head of q and k is normalised */
    WEFTI_MODEL_ARCH_NO_ROPE = 1 << 3, /* layers that do not turn q and k; each fourth by default */
    WEFTI_MODEL_ARCH_SCALES = 1 << 4,  /* of embeddings, attention, residuals and logits */
    WEFTI_MODEL_ARCH_GEMMA = 1 << 5,   /* norms after halves of a layer, GELU, windows ... */
    WEFTI_MODEL_ARCH_LOCAL_ROPE = 1 << 6,  /* Gemma 3: layers with a window have their own RoPE */
    WEFTI_MODEL_ARCH_FUSED = 1 << 7,       /* q, k and v are one tensor, and so are gate and up */
    WEFTI_MODEL_ARCH_QK_NORM_ALL = 1 << 8, /* all heads of q, and of k, are normalised as one row */
    WEFTI_MODEL_ARCH_EXPERTS = 1 << 9,     /* a mixture of experts */
    WEFTI_MODEL_ARCH_NORMALISED = 1 << 10, /* their weights sum to 1 by default */
    WEFTI_MODEL_ARCH_SHARED_GATE = 1 << 11, /* a shared expert has a gate */
    WEFTI_MODEL_ARCH_DEEPSEEK = 1 << 12,    /* groups of experts, shared ones, layers without any */
    WEFTI_MODEL_ARCH_LATENT = 1 << 13,      /* latent attention */
    WEFTI_MODEL_ARCH_NORMS_AFTER = 1 << 14, /* halves of a layer are normalised after, not before */
    WEFTI_MODEL_ARCH_WRAPPED = 1 << 15,     /* part of a larger model, whose rest is left out */
    WEFTI_MODEL_ARCH_ENCODER = 1 << 16,     /* tokens see what comes after them */
    WEFTI_MODEL_ARCH_HEAD = 1 << 17,        /* an encoder with a head that classifies */
    WEFTI_MODEL_ARCH_FOLDER = 1 << 18,      /* no GGUF file has it */
};

struct wefti_model_arch {
    const char *name;               /* general.architecture of GGUF files, if there are such */
    const char *hf_type, *hf_class; /* model_type and architectures of config.json */
    unsigned traits;
    uint32_t window;            /* the default; 0: none */
    bool gguf_rope_interleaved; /* the converter permutes the rows of Q and K */
};

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
