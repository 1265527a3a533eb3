/* What makes two models the same: hyper-parameters, and names, shapes and bytes of all tensors.
 * Each piece is the seed of the next. */
#include "model_internal.h"

#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* for the size of its state */
#include <xxhash.h>

#include "base/check.h"
#include "params.h"
#include "parts.h"

#define PIECE_BYTES ((size_t)4 << 20) /* in memory at a time */

/* Fields of struct weft_model_params. `encoder`, `block`, `recurrent`, `unlike`, `indexer` and `quant.ints` count where
 * anything in them is set, so that models from before are known by their hashes still; what stays out is `name`: a copy in
 * another folder is the same model. A field that is missing here would let models pass for each other that differ in
 * nothing else; test_model changes each byte of the struct and wants another hash. */
/* clang-format off */
#define HASHED_FIELDS(X)                                                                           \
    X(arch) X(n_layers) X(n_heads) X(n_kv_heads) X(head_dim) X(n_hidden) X(n_ffn) X(n_vocab)       \
    X(n_context) X(window) X(rms_eps) X(tied) X(untied) X(wrapped) X(n_predict)                    \
    X(rope_theta) X(rope_scaling) X(rope_factor) X(rope_low_freq_factor) X(rope_high_freq_factor)  \
    X(rope_original_context) X(rope_dim) X(rope_magnitude) X(rope_interleaved)                     \
    X(rope_long_factors) X(rope_short_factors) X(local_rope_theta)                                 \
    X(yarn_beta_fast) X(yarn_beta_slow) X(yarn_mscale)                                             \
    X(qkv_bias) X(qk_norm) X(qk_norm_all) X(pre_norms) X(post_norms) X(norm_plus_one) X(gelu)      \
    X(attn_soft_cap) X(logit_soft_cap)                                                             \
    X(embed_scale) X(residual_scale) X(attn_scale) X(logit_scale)                                  \
    X(kv_lora) X(q_lora) X(nope_dim) X(v_dim)                                                      \
    X(no_rope) X(no_window) X(no_experts)                                                          \
    X(moe.n_experts) X(moe.n_used) X(moe.n_ffn) X(moe.n_latent) X(moe.n_ffn_shared)                \
    X(moe.shared_gate)                                                                             \
    X(moe.sigmoid) X(moe.score_bias) X(moe.normalise) X(moe.scale)                                 \
    X(moe.n_groups) X(moe.n_groups_used) X(moe.by_two)                                             \
    X(quant.method) X(quant.block_rows) X(quant.block_cols) X(quant.zeros_less_one)
/* clang-format on */

_Static_assert(WEFT_ROPE_PROPORTIONAL == 7,
               "the hash of a model has the number, and packed files it");
_Static_assert(WEFT_QUANT_MXFP4 == 8, "the hash of a model has the number, and packed files it");
_Static_assert(sizeof(enum weft_rope_scaling) == 4, "so many of its bytes are in the hash");

/* Whether any byte is not 0. */
static bool is_set(const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (((const unsigned char *)bytes)[i] != 0) return true;
    }
    return false;
}

uint64_t wefti_model_params_hash(const struct weft_model_params *params) {
    uint64_t hash = 0;
#define HASH_FIELD(field) hash = XXH3_64bits_withSeed(&params->field, sizeof params->field, hash);
    HASHED_FIELDS(HASH_FIELD)
    if (is_set(&params->encoder, sizeof params->encoder)) HASH_FIELD(encoder)
    if (is_set(&params->block, sizeof params->block)) HASH_FIELD(block)
    if (is_set(&params->recurrent, sizeof params->recurrent)) HASH_FIELD(recurrent)
    if (is_set(&params->unlike, sizeof params->unlike)) HASH_FIELD(unlike)
    if (is_set(&params->indexer, sizeof params->indexer)) HASH_FIELD(indexer)
    if (is_set(&params->quant.ints, sizeof params->quant.ints)) HASH_FIELD(quant.ints)
    return hash;
}

/* In pieces, of which none stays. */
static uint64_t data_hash(const weft_model *model, const struct weft_tensor *tensor,
                          uint64_t seed) {
    const uint8_t *at = tensor->data;
    XXH3_state_t state;
    (void)XXH3_64bits_reset_withSeed(&state, seed);
    for (size_t left = tensor->bytes; left > 0;) {
        size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
        (void)XXH3_64bits_update(&state, at, n);
        weft_model_forget(model, at, n);
        at += n;
        left -= n;
    }
    return XXH3_64bits_digest(&state);
}

/* Tensors go by name, so that a sharded copy is the same. */
uint64_t weft_model_hash(const weft_model *model) {
    if (model->packed.arena_bytes) return model->packed.weights_hash;
    uint64_t hash = wefti_model_params_hash(&model->params);
    for (size_t i = 0; i < model->n_tensors; i++) {
        const struct weft_tensor *tensor = model->by_name[i].tensor;
        WEFT_ASSERT(tensor->parts || tensor->data || tensor->bytes == 0);
        const uint64_t shape[] = {weft_dtypes[tensor->dtype].layout_number,
                                  tensor->n_dims,
                                  tensor->dims[0],
                                  tensor->dims[1],
                                  tensor->dims[2],
                                  tensor->dims[3]};
        hash = XXH3_64bits_withSeed(tensor->name, strlen(tensor->name), hash);
        hash = XXH3_64bits_withSeed(shape, sizeof shape, hash);
        hash =
            tensor->parts ? wefti_model_parts_hash(tensor, hash) : data_hash(model, tensor, hash);
    }
    return hash;
}
