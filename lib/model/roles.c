/* Finds the tensor for each role. One table has the names of both formats and the shape each must
 * have; a tensor without a role is refused, because ignoring it (a bias, an expert, a scale of some
 * quantisation) would give a model that runs and is wrong. */
#include "model_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "hf/hf.h"
#include "params.h"
#include "roles.h"

enum size {
    SIZE_HIDDEN,
    SIZE_Q,
    SIZE_KV,
    SIZE_FFN,
    SIZE_VOCAB,
    SIZE_HEAD,
    SIZE_HALF_ROPE,
    SIZE_OUT,
    SIZE_Q_LORA,
    SIZE_KV_LORA,
    SIZE_NOPE,
    SIZE_KV_HEADS, /* both halves of all heads, and each by itself */
    SIZE_K_HEADS,
    SIZE_V_HEADS,
    SIZE_EXPERTS,
    SIZE_EXPERT_FFN,
    SIZE_EXPERT, /* what experts read and yield */
    SIZE_SHARED_FFN,
    SIZE_HEADS,
    SIZE_REC_IN, /* rows of a recurrent layer; with those of DELTA apart */
    SIZE_REC_CONV,
    SIZE_REC_KEYS,
    SIZE_REC_INNER,
    SIZE_REC_HEADS,
    SIZE_REC_HEAD,
    SIZE_REC_WIDTH,
    SIZE_INPUT, /* a layer's embeddings, all layers', and of how many tokens */
    SIZE_INPUTS,
    SIZE_INPUT_VOCAB,
    SIZE_ONE,
    SIZE_INDEX_HEADS, /* all of the indexer's, their number, and one */
    SIZE_INDEX_N,
    SIZE_INDEX_HEAD,
    SIZE_COUNT
};

struct role {
    const char *names[2]; /* by enum weft_model_format */
    uint32_t n_dims;
    enum size dims[2];
    const char *other; /* another name that folders have for it, or NULL */
};

static const struct role embedding_role = {
    {"model.embed_tokens.weight", "token_embd.weight"}, 2, {SIZE_VOCAB, SIZE_HIDDEN}, NULL};
static const struct role final_norm_role = {
    {"model.norm.weight", "output_norm.weight"}, 1, {SIZE_HIDDEN}, NULL};
static const struct role final_bias_role = {
    {"model.norm.bias", "output_norm.bias"}, 1, {SIZE_HIDDEN}, NULL};
static const struct role head_role = {
    {"lm_head.weight", "output.weight"}, 2, {SIZE_VOCAB, SIZE_HIDDEN}, NULL};
enum rope_table { ROPE_FREQS, ROPE_LONG, ROPE_SHORT, ROPE_TABLES };
static const struct role rope_roles[ROPE_TABLES] = {
    {{"", "rope_freqs.weight"}, 1, {SIZE_HALF_ROPE}, NULL},
    {{"", "rope_factors_long.weight"}, 1, {SIZE_HALF_ROPE}, NULL},
    {{"", "rope_factors_short.weight"}, 1, {SIZE_HALF_ROPE}, NULL},
};

enum { INPUT_TABLE, INPUT_PROJ, INPUT_NORM, INPUT_ROLES };
static const struct role input_roles[INPUT_ROLES] = {
    {{"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
     2,
     {SIZE_INPUT_VOCAB, SIZE_INPUTS},
     NULL},
    {{"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
     2,
     {SIZE_INPUTS, SIZE_HIDDEN},
     NULL},
    {{"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
     1,
     {SIZE_INPUT},
     NULL},
};

static const char *const layer_prefix[2] = {"model.layers.", "blk."};

enum when {
    ALWAYS,
    WITH_Q_BIAS,
    WITH_K_BIAS,
    WITH_V_BIAS,
    WITH_Q_NORM,
    WITH_K_NORM,
    WITH_QK_NORM_ALL,
    WITH_PRE_NORMS,
    WITH_POST_NORMS,
    WITH_FFN_NORM,
    WITH_NORM_BIAS,
    WITH_FFN_NORM_BIAS,
    WITH_O_BIAS,
    WITH_FFN_BIAS,
    WITH_UP_BIAS,
    WITH_PLAIN_Q,
    WITH_PLAIN_K,
    WITH_PLAIN_V,
    WITH_Q_LORA,
    WITH_KV_LORA,
    WITH_KV_B,
    WITH_K_AND_V_B,
    WITH_BOTH_NORMS,
    WITH_PLAIN_FFN,
    WITH_PLAIN_UP,
    WITH_EXPERTS,
    WITH_SCORE_BIAS,
    WITH_LATENT_EXPERTS,
    WITH_SHARED_EXPERT,
    WITH_SHARED_UP,
    WITH_SHARED_GATE,
    WITH_ROUTER_BIAS,
    WITH_ATTN_GATE,
    WITH_SINKS,
    WITH_ATTENTION,
    WITH_RECURRENT,
    WITH_ONE_IN, /* a recurrent layer's row comes of one matrix */
    WITH_DELTA,
    WITH_DELTA_QKV,
    WITH_DELTA_APART,
    WITH_CONV_BIAS,
    WITH_HEADS,
    WITH_MAMBA,
    WITH_MAMBA_NORM,
    WITH_INDEXER,
    WITH_FFN_ALONE, /* the layer's norm is the feed-forward part's */
    WITH_FFN_BESIDE,
    WITH_LAYER_INPUT,
    WITH_LAYER_SCALE,
};

#define AT(field) offsetof(struct weft_model_layer, field)
static const struct {
    struct role role; /* names follow the prefix and the layer's number */
    size_t at;        /* its pointer in struct weft_model_layer */
    enum when when;
} layer_roles[] = {
    {{{"input_layernorm.weight", "attn_norm.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(attn_norm),
     WITH_PRE_NORMS},
    {{{"self_attn.q_proj.weight", "attn_q.weight"}, 2, {SIZE_Q, SIZE_HIDDEN}, NULL},
     AT(wq),
     WITH_PLAIN_Q},
    {{{"self_attn.k_proj.weight", "attn_k.weight"}, 2, {SIZE_KV, SIZE_HIDDEN}, NULL},
     AT(wk),
     WITH_PLAIN_K},
    {{{"self_attn.v_proj.weight", "attn_v.weight"}, 2, {SIZE_KV, SIZE_HIDDEN}, NULL},
     AT(wv),
     WITH_PLAIN_V},
    {{{"self_attn.q_a_proj.weight", "attn_q_a.weight"}, 2, {SIZE_Q_LORA, SIZE_HIDDEN}, NULL},
     AT(wq_a),
     WITH_Q_LORA},
    {{{"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"}, 1, {SIZE_Q_LORA}, NULL},
     AT(q_a_norm),
     WITH_Q_LORA},
    {{{"self_attn.q_b_proj.weight", "attn_q_b.weight"}, 2, {SIZE_Q, SIZE_Q_LORA}, NULL},
     AT(wq),
     WITH_Q_LORA},
    {{{"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"},
      2,
      {SIZE_HEAD, SIZE_HIDDEN},
      NULL},
     AT(wk),
     WITH_KV_LORA},
    {{{"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"}, 1, {SIZE_KV_LORA}, NULL},
     AT(latent_norm),
     WITH_KV_LORA},
    {{{"self_attn.kv_b_proj.weight", "attn_kv_b.weight"}, 2, {SIZE_KV_HEADS, SIZE_KV_LORA}, NULL},
     AT(w_kv_b),
     WITH_KV_B},
    {{{"", "attn_k_b.weight"}, 2, {SIZE_K_HEADS, SIZE_NOPE}, NULL}, AT(w_k_b), WITH_K_AND_V_B},
    {{{"", "attn_v_b.weight"}, 2, {SIZE_V_HEADS, SIZE_KV_LORA}, NULL}, AT(w_v_b), WITH_K_AND_V_B},
    {{{"self_attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"},
      2,
      {SIZE_INDEX_HEADS, SIZE_Q_LORA},
      NULL},
     AT(index_q),
     WITH_INDEXER},
    {{{"self_attn.indexer.wk.weight", "indexer.attn_k.weight"},
      2,
      {SIZE_INDEX_HEAD, SIZE_HIDDEN},
      NULL},
     AT(index_k),
     WITH_INDEXER},
    {{{"self_attn.indexer.k_norm.weight", "indexer.k_norm.weight"}, 1, {SIZE_INDEX_HEAD}, NULL},
     AT(index_norm),
     WITH_INDEXER},
    {{{"self_attn.indexer.k_norm.bias", "indexer.k_norm.bias"}, 1, {SIZE_INDEX_HEAD}, NULL},
     AT(index_norm_bias),
     WITH_INDEXER},
    {{{"self_attn.indexer.weights_proj.weight", "indexer.proj.weight"},
      2,
      {SIZE_INDEX_N, SIZE_HIDDEN},
      NULL},
     AT(index_weights),
     WITH_INDEXER},
    {{{"self_attn.q_proj.bias", "attn_q.bias"}, 1, {SIZE_Q}, NULL}, AT(bq), WITH_Q_BIAS},
    {{{"self_attn.k_proj.bias", "attn_k.bias"}, 1, {SIZE_KV}, NULL}, AT(bk), WITH_K_BIAS},
    {{{"self_attn.v_proj.bias", "attn_v.bias"}, 1, {SIZE_KV}, NULL}, AT(bv), WITH_V_BIAS},
    {{{"self_attn.q_norm.weight", "attn_q_norm.weight"}, 1, {SIZE_HEAD}, NULL},
     AT(q_norm),
     WITH_Q_NORM},
    {{{"self_attn.k_norm.weight", "attn_k_norm.weight"}, 1, {SIZE_HEAD}, NULL},
     AT(k_norm),
     WITH_K_NORM},
    {{{"self_attn.q_norm.weight", "attn_q_norm.weight"}, 1, {SIZE_Q}, NULL},
     AT(q_norm),
     WITH_QK_NORM_ALL},
    {{{"self_attn.k_norm.weight", "attn_k_norm.weight"}, 1, {SIZE_KV}, NULL},
     AT(k_norm),
     WITH_QK_NORM_ALL},
    {{{"self_attn.o_proj.weight", "attn_output.weight"}, 2, {SIZE_HIDDEN, SIZE_OUT}, NULL},
     AT(wo),
     WITH_ATTENTION},
    {{{"mixer.in_proj.weight", "ssm_in.weight"}, 2, {SIZE_REC_IN, SIZE_HIDDEN}, NULL},
     AT(rec_in[0]),
     WITH_ONE_IN},
    {{{"mixer.qkv.weight", "attn_qkv.weight"}, 2, {SIZE_REC_CONV, SIZE_HIDDEN}, NULL},
     AT(rec_in[0]),
     WITH_DELTA_QKV},
    {{{"mixer.q.weight", ""}, 2, {SIZE_REC_KEYS, SIZE_HIDDEN}, NULL},
     AT(rec_in[0]),
     WITH_DELTA_APART},
    {{{"mixer.k.weight", ""}, 2, {SIZE_REC_KEYS, SIZE_HIDDEN}, NULL},
     AT(rec_in[1]),
     WITH_DELTA_APART},
    {{{"mixer.v.weight", ""}, 2, {SIZE_REC_INNER, SIZE_HIDDEN}, NULL},
     AT(rec_in[2]),
     WITH_DELTA_APART},
    {{{"mixer.z.weight", "attn_gate.weight"}, 2, {SIZE_REC_INNER, SIZE_HIDDEN}, NULL},
     AT(rec_in[3]),
     WITH_DELTA},
    {{{"mixer.b.weight", "ssm_beta.weight"}, 2, {SIZE_REC_HEADS, SIZE_HIDDEN}, NULL},
     AT(rec_in[4]),
     WITH_DELTA},
    {{{"mixer.a.weight", "ssm_alpha.weight"}, 2, {SIZE_REC_HEADS, SIZE_HIDDEN}, NULL},
     AT(rec_in[5]),
     WITH_DELTA},
    {{{"mixer.out_proj.weight", "ssm_out.weight"}, 2, {SIZE_HIDDEN, SIZE_REC_INNER}, NULL},
     AT(rec_out),
     WITH_RECURRENT},
    {{{"mixer.conv1d.weight", "ssm_conv1d.weight"}, 2, {SIZE_REC_WIDTH, SIZE_REC_CONV}, NULL},
     AT(taps),
     WITH_RECURRENT},
    {{{"mixer.conv1d.bias", "ssm_conv1d.bias"}, 1, {SIZE_REC_CONV}, NULL},
     AT(conv_bias),
     WITH_CONV_BIAS},
    {{{"mixer.dt_bias", "ssm_dt.bias"}, 1, {SIZE_REC_HEADS}, NULL}, AT(dt_bias), WITH_HEADS},
    {{{"mixer.A_log", "ssm_a"}, 1, {SIZE_REC_HEADS}, NULL}, AT(rate), WITH_HEADS},
    {{{"mixer.D", "ssm_d"}, 1, {SIZE_REC_HEADS}, NULL}, AT(skip), WITH_MAMBA},
    {{{"mixer.norm.weight", "ssm_norm.weight"}, 1, {SIZE_REC_INNER}, NULL},
     AT(rec_norm),
     WITH_MAMBA_NORM},
    {{{"mixer.norm.weight", "ssm_norm.weight"}, 1, {SIZE_REC_HEAD}, NULL},
     AT(rec_norm),
     WITH_DELTA},
    {{{"input_layernorm.weight", "attn_norm.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(ffn_norm),
     WITH_FFN_ALONE},
    {{{"post_attention_layernorm.weight", "ffn_norm.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(ffn_norm),
     WITH_FFN_NORM},
    {{{"input_layernorm.bias", "attn_norm.bias"}, 1, {SIZE_HIDDEN}, NULL},
     AT(attn_norm_bias),
     WITH_NORM_BIAS},
    {{{"post_attention_layernorm.bias", "ffn_norm.bias"}, 1, {SIZE_HIDDEN}, NULL},
     AT(ffn_norm_bias),
     WITH_FFN_NORM_BIAS},
    {{{"self_attn.o_proj.bias", "attn_output.bias"}, 1, {SIZE_HIDDEN}, NULL}, AT(bo), WITH_O_BIAS},
    {{{"mlp.gate_proj.bias", "ffn_gate.bias"}, 1, {SIZE_FFN}, NULL}, AT(b_gate), WITH_FFN_BIAS},
    {{{"mlp.up_proj.bias", "ffn_up.bias"}, 1, {SIZE_FFN}, NULL}, AT(b_up), WITH_UP_BIAS},
    {{{"mlp.down_proj.bias", "ffn_down.bias"}, 1, {SIZE_HIDDEN}, NULL}, AT(b_down), WITH_FFN_BIAS},
    {{{"post_attention_layernorm.weight", "post_attention_norm.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(post_attn_norm),
     WITH_POST_NORMS},
    {{{"pre_feedforward_layernorm.weight", "ffn_norm.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(ffn_norm),
     WITH_BOTH_NORMS},
    {{{"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(post_ffn_norm),
     WITH_POST_NORMS},
    {{{"mlp.gate_proj.weight", "ffn_gate.weight"},
      2,
      {SIZE_FFN, SIZE_HIDDEN},
      "mlp.shared_experts.gate_proj.weight"},
     AT(w_gate),
     WITH_PLAIN_FFN},
    {{{"mlp.up_proj.weight", "ffn_up.weight"},
      2,
      {SIZE_FFN, SIZE_HIDDEN},
      "mlp.shared_experts.up_proj.weight"},
     AT(w_up),
     WITH_PLAIN_UP},
    {{{"mlp.down_proj.weight", "ffn_down.weight"},
      2,
      {SIZE_HIDDEN, SIZE_FFN},
      "mlp.shared_experts.down_proj.weight"},
     AT(w_down),
     WITH_PLAIN_FFN},
    {{{"mlp.gate.weight", "ffn_gate_inp.weight"},
      2,
      {SIZE_EXPERTS, SIZE_HIDDEN},
      "block_sparse_moe.gate.weight"},
     AT(router),
     WITH_EXPERTS},
    {{{"mlp.latent_in.weight", "ffn_latent_down.weight"}, 2, {SIZE_EXPERT, SIZE_HIDDEN}, NULL},
     AT(latent_in),
     WITH_LATENT_EXPERTS},
    {{{"mlp.latent_out.weight", "ffn_latent_up.weight"}, 2, {SIZE_HIDDEN, SIZE_EXPERT}, NULL},
     AT(latent_out),
     WITH_LATENT_EXPERTS},
    {{{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"}, 1, {SIZE_EXPERTS}, NULL},
     AT(score_bias),
     WITH_SCORE_BIAS},
    {{{"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
      2,
      {SIZE_SHARED_FFN, SIZE_HIDDEN},
      "mlp.shared_expert.gate_proj.weight"},
     AT(w_gate),
     WITH_SHARED_EXPERT},
    {{{"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
      2,
      {SIZE_SHARED_FFN, SIZE_HIDDEN},
      "mlp.shared_expert.up_proj.weight"},
     AT(w_up),
     WITH_SHARED_UP},
    {{{"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
      2,
      {SIZE_HIDDEN, SIZE_SHARED_FFN},
      "mlp.shared_expert.down_proj.weight"},
     AT(w_down),
     WITH_SHARED_EXPERT},
    {{{"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(shared_gate),
     WITH_SHARED_GATE},
    {{{"mlp.gate.bias", "ffn_gate_inp.bias"}, 1, {SIZE_EXPERTS}, NULL},
     AT(b_router),
     WITH_ROUTER_BIAS},
    {{{"self_attn.gate_proj.weight", "attn_gate.weight"}, 2, {SIZE_OUT, SIZE_HIDDEN}, NULL},
     AT(attn_gate),
     WITH_ATTN_GATE},
    {{{"self_attn.sinks", "attn_sinks.weight"}, 1, {SIZE_HEADS}, NULL}, AT(sinks), WITH_SINKS},
    {{{"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(experts_norm),
     WITH_FFN_BESIDE},
    {{{"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(post_plain_norm),
     WITH_FFN_BESIDE},
    {{{"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(post_experts_norm),
     WITH_FFN_BESIDE},
    {{{"router.scale", "ffn_gate_inp_norm.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(router_norm),
     WITH_FFN_BESIDE},
    {{{"router.per_expert_scale", "exps_scale.weight"}, 1, {SIZE_EXPERTS}, NULL},
     AT(expert_scale),
     WITH_FFN_BESIDE},
    {{{"per_layer_input_gate.weight", "inp_gate.weight"}, 2, {SIZE_INPUT, SIZE_HIDDEN}, NULL},
     AT(input_gate),
     WITH_LAYER_INPUT},
    {{{"per_layer_projection.weight", "proj.weight"}, 2, {SIZE_HIDDEN, SIZE_INPUT}, NULL},
     AT(input_proj),
     WITH_LAYER_INPUT},
    {{{"post_per_layer_input_norm.weight", "post_norm.weight"}, 1, {SIZE_HIDDEN}, NULL},
     AT(post_input_norm),
     WITH_LAYER_INPUT},
    {{{"layer_scalar", "layer_output_scale.weight"}, 1, {SIZE_ONE}, NULL},
     AT(layer_scale),
     WITH_LAYER_SCALE},
};
#define N_LAYER_ROLES (sizeof layer_roles / sizeof layer_roles[0])
#undef AT

/* The roles of every expert: its number stands between the two halves of a name. */
#define AT(field) offsetof(struct weft_model_expert, field)
static const struct {
    struct {
        const char *before, *after;
    } names[2], other; /* as in a role */
    uint32_t n_dims;
    enum size dims[2];
    size_t at; /* in struct weft_model_expert */
} expert_roles[] = {
    {{{"mlp.experts.", "gate_proj.weight"}, {"ffn_gate.", "weight"}},
     {"block_sparse_moe.experts.", "w1.weight"},
     2,
     {SIZE_EXPERT_FFN, SIZE_EXPERT},
     AT(gate)},
    {{{"mlp.experts.", "up_proj.weight"}, {"ffn_up.", "weight"}},
     {"block_sparse_moe.experts.", "w3.weight"},
     2,
     {SIZE_EXPERT_FFN, SIZE_EXPERT},
     AT(up)},
    {{{"mlp.experts.", "down_proj.weight"}, {"ffn_down.", "weight"}},
     {"block_sparse_moe.experts.", "w2.weight"},
     2,
     {SIZE_EXPERT, SIZE_EXPERT_FFN},
     AT(down)},
    {{{"mlp.experts.", "gate_proj.bias"}, {"ffn_gate.", "bias"}},
     {"", ""},
     1,
     {SIZE_EXPERT_FFN},
     AT(b_gate)},
    {{{"mlp.experts.", "up_proj.bias"}, {"ffn_up.", "bias"}},
     {"", ""},
     1,
     {SIZE_EXPERT_FFN},
     AT(b_up)},
    {{{"mlp.experts.", "down_proj.bias"}, {"ffn_down.", "bias"}},
     {"", ""},
     1,
     {SIZE_EXPERT},
     AT(b_down)},
};
#define N_EXPERT_ROLES (sizeof expert_roles / sizeof expert_roles[0])
#undef AT

static void print_shape(char *out, size_t out_bytes, uint32_t n_dims, const uint64_t *dims) {
    size_t at = 0;
    WEFT_ASSERT(n_dims <= 4);
    out[0] = 0;
    for (uint32_t i = 0; i < n_dims && at < out_bytes; i++) {
        int n = snprintf(out + at, out_bytes - at, "%s%" PRIu64, i ? ", " : "", dims[i]);
        at += n > 0 ? (size_t)n : 0;
    }
}

static weft_err check_shape(const struct wefti_model_resolver *r, uint32_t n_dims,
                            const uint64_t *dims, const struct weft_tensor *tensor) {
    WEFT_ASSERT(n_dims == 1 || n_dims == 2);
    bool is_row = n_dims == 1 && tensor->n_dims == 2 && tensor->dims[0] == 1; /* as a vector */
    if ((is_row || tensor->n_dims == n_dims) &&
        memcmp(tensor->dims + is_row, dims, n_dims * sizeof *dims) == 0) {
        return WEFT_OK;
    }
    char has[96], wants[96];
    struct wefti_model_shown shown = wefti_model_show(tensor->name, strlen(tensor->name));
    print_shape(has, sizeof has, tensor->n_dims, tensor->dims);
    print_shape(wants, sizeof wants, n_dims, dims);
    return weft_err_set(r->why, WEFT_E_PROTO,
                        "%s: tensor '%s' has shape [%s], but the hyper-parameters ask for [%s]",
                        r->path, shown.text, has, wants);
}

/* Whether checkpoints that are quantised have a tensor quantised: of gpt-oss's, experts alone. */
static bool is_quantised(const struct wefti_model_resolver *r, const char *name, uint32_t n_dims) {
    static const char *const plain[] = {"mlp.gate.weight", "mixer.conv1d.weight"};
    size_t prefix_len = 0;
    const char *rest = wefti_model_after_layer(name, r->format, &prefix_len);
    if (!rest || n_dims != 2) return false;
    if (r->types->quant.method == WEFT_QUANT_MXFP4) return strncmp(rest, "mlp.experts.", 12) == 0;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (strcmp(rest, plain[i]) == 0) return false;
    }
    return r->types->quant.method != WEFT_QUANT_NONE;
}

static weft_err imagine(struct wefti_model_resolver *r, const char *name, uint32_t n_dims,
                        const uint64_t *dims, const struct weft_tensor **out) {
    static const struct weft_tensor stand_in = {.name = ""}; /* until all of them are there */
    struct weft_tensor tensor = {.dtype = r->types->plain, .n_dims = n_dims};
    memcpy(tensor.dims, dims, n_dims * sizeof *dims);
    if (is_quantised(r, name, n_dims))
        tensor.dtype = wefti_model_usual_type(&r->types->quant, dims[1]);
    *out = &stand_in;
    if (!wefti_model_tensor_bytes(&tensor, &tensor.bytes))
        return weft_err_set(r->why, WEFT_E_PROTO, "%s: tensor '%s' would be too large", r->path,
                            name);
    return wefti_model_add_tensor(r->imagined, r->path, name, strlen(name), &tensor, r->why);
}

weft_err wefti_model_take(struct wefti_model_resolver *r, const char *name, uint32_t n_dims,
                          const uint64_t *dims, const struct weft_tensor **out) {
    if (r->imagined) return imagine(r, name, n_dims, dims, out);
    *out = weft_model_find(r->model, name);
    if (!*out) return WEFT_OK;
    size_t idx = (size_t)(*out - r->model->tensors);
    WEFT_ASSERT(idx < r->model->n_tensors);
    r->used[idx] = true;
    if (!(*out)->parts && (*out)->data && weft_dtypes[(*out)->dtype].class > WEFT_DTYPE_BLOCKS) {
        struct wefti_model_shown shown = wefti_model_show(name, strlen(name));
        return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                            "%s: tensor '%s' has type '%s' and belongs to no quantised weight",
                            r->path, shown.text, weft_dtype_name((*out)->dtype));
    }
    if (n_dims == 1 && !wefti_model_has_rows_f32((*out)->dtype)) {
        struct wefti_model_shown shown = wefti_model_show(name, strlen(name));
        return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                            "%s: tensor '%s' is a vector of type %s, which is for matrices only",
                            r->path, shown.text, weft_dtype_name((*out)->dtype));
    }
    return check_shape(r, n_dims, dims, *out);
}

static weft_err take(struct wefti_model_resolver *r, const struct role *role, const char *name,
                     const struct weft_tensor **out) {
    const uint64_t dims[2] = {r->sizes[role->dims[0]], r->sizes[role->dims[1]]};
    return wefti_model_take(r, name, role->n_dims, dims, out);
}

/* Takes it by either of two names; `other` may be NULL. */
static weft_err take_either(struct wefti_model_resolver *r, const struct role *role,
                            const char *name, const char *other, const struct weft_tensor **out) {
    weft_err err = take(r, role, name, out);
    if (!err && !*out && other) err = take(r, role, other, out);
    if (!err && !*out)
        err = weft_err_set(r->why, WEFT_E_PROTO, "%s: tensor '%s' is missing", r->path, name);
    return err;
}

/* Whether two tensors make keys and values of the latent; this holds for the whole file. */
static bool has_k_and_v_b(const weft_model *model) {
    return weft_model_find(model, "blk.0.attn_k_b.weight") != NULL;
}

/* Whether rows of keys, queries and values come of matrices of their own; this holds for the whole file. */
static bool is_delta_apart(const weft_model *model) {
    for (size_t i = 0; i < model->n_tensors; i++) {
        if (strstr(model->tensors[i].name, ".mixer.q.weight")) return true;
    }
    return false;
}

static bool is_there(const weft_model *model, uint32_t layer, enum when when) {
    const struct weft_model_params *p = &model->params;
    const struct weft_model_recurrent *rec = &p->recurrent;
    bool has_ffn = !weft_model_bit(rec->no_ffn, layer),
         has_attention = !weft_model_bit(rec->no_attention, layer),
         is_recurrent = rec->kind && weft_model_bit(rec->layers, layer);
    bool has_experts = has_ffn && p->moe.n_experts > 0 && !weft_model_bit(p->no_experts, layer);
    bool is_apart = is_recurrent && model->has_delta_apart;
    const bool has_k = has_attention && weft_model_kv_layer(p, layer) == layer,
               has_v = has_k && !weft_model_bit(p->unlike.keys_as_values, layer);
    switch (when) {
    case ALWAYS:
        break;
    case WITH_Q_BIAS:
        return has_attention && p->qkv_bias;
    case WITH_K_BIAS:
        return has_k && p->qkv_bias;
    case WITH_V_BIAS:
        return has_v && p->qkv_bias;
    case WITH_Q_NORM:
        return has_attention && p->qk_norm;
    case WITH_K_NORM:
        return has_k && p->qk_norm;
    case WITH_QK_NORM_ALL:
        return has_attention && (p->qk_norm_all || p->block.head_norms);
    case WITH_PRE_NORMS:
        return p->pre_norms && (has_attention || is_recurrent);
    case WITH_POST_NORMS:
        return p->post_norms;
    case WITH_FFN_NORM:
        return has_ffn && (has_attention || is_recurrent) && !p->post_norms && !p->block.one_norm;
    case WITH_NORM_BIAS:
        return p->block.norm_bias;
    case WITH_FFN_NORM_BIAS:
        return p->block.norm_bias && !p->post_norms && !p->block.one_norm;
    case WITH_O_BIAS:
        return has_attention && p->block.o_bias;
    case WITH_FFN_BIAS:
        return has_ffn && p->block.ffn_bias && !has_experts;
    case WITH_UP_BIAS:
        return has_ffn && p->block.ffn_bias && !has_experts && !p->block.ungated;
    case WITH_PLAIN_Q:
        return has_attention && p->q_lora == 0;
    case WITH_PLAIN_K:
        return has_k && p->kv_lora == 0;
    case WITH_PLAIN_V:
        return has_v && p->kv_lora == 0;
    case WITH_Q_LORA:
        return p->q_lora > 0;
    case WITH_KV_LORA:
        return p->kv_lora > 0;
    case WITH_KV_B:
        return p->kv_lora > 0 && !has_k_and_v_b(model);
    case WITH_K_AND_V_B:
        return p->kv_lora > 0 && has_k_and_v_b(model);
    case WITH_BOTH_NORMS:
        return p->pre_norms && p->post_norms;
    case WITH_PLAIN_FFN:
        return has_ffn && (!has_experts || p->unlike.ffn_beside);
    case WITH_PLAIN_UP:
        return has_ffn && (!has_experts || p->unlike.ffn_beside) && !p->block.ungated;
    case WITH_EXPERTS:
        return has_experts;
    case WITH_LATENT_EXPERTS:
        return has_experts && p->moe.n_latent > 0;
    case WITH_SCORE_BIAS:
        return has_experts && p->moe.score_bias;
    case WITH_SHARED_EXPERT:
        return has_experts && p->moe.n_ffn_shared > 0 && !p->unlike.ffn_beside;
    case WITH_SHARED_UP:
        return has_experts && p->moe.n_ffn_shared > 0 && !p->unlike.ffn_beside && !p->block.ungated;
    case WITH_SHARED_GATE:
        return has_experts && p->moe.shared_gate;
    case WITH_ROUTER_BIAS:
        return has_experts && p->block.expert_bias;
    case WITH_ATTN_GATE:
        return has_attention && p->block.attn_gate;
    case WITH_SINKS:
        return has_attention && p->block.sinks;
    case WITH_ATTENTION:
        return has_attention;
    case WITH_RECURRENT:
        return is_recurrent;
    case WITH_ONE_IN:
        return is_recurrent && rec->kind != WEFT_MODEL_DELTA;
    case WITH_DELTA:
        return is_recurrent && rec->kind == WEFT_MODEL_DELTA;
    case WITH_DELTA_QKV:
        return is_recurrent && rec->kind == WEFT_MODEL_DELTA && !is_apart;
    case WITH_DELTA_APART:
        return is_apart;
    case WITH_CONV_BIAS:
        return is_recurrent && rec->conv_bias;
    case WITH_HEADS:
        return is_recurrent && rec->kind != WEFT_MODEL_CONV;
    case WITH_MAMBA:
        return is_recurrent && rec->kind == WEFT_MODEL_MAMBA;
    case WITH_MAMBA_NORM:
        return is_recurrent && rec->kind == WEFT_MODEL_MAMBA && rec->norm_groups > 0;
    case WITH_INDEXER:
        return p->indexer.n_heads > 0;
    case WITH_FFN_ALONE:
        return has_ffn && !has_attention && !is_recurrent;
    case WITH_FFN_BESIDE:
        return has_experts && p->unlike.ffn_beside;
    case WITH_LAYER_INPUT:
        return p->unlike.layer_input > 0;
    case WITH_LAYER_SCALE:
        return p->unlike.layer_scale;
    }
    return true;
}

/* The number that the file knows a layer by. */
static uint32_t number_of(const weft_model *model, uint32_t layer) {
    return model->first_layer + layer;
}

/* GGUF files have all experts of a layer in one tensor, which messages name if it is missing. */
static weft_err missing_expert(const struct wefti_model_resolver *r, uint32_t layer, size_t role,
                               const char *name) {
    const char *before = expert_roles[role].names[WEFT_MODEL_GGUF].before;
    if (r->format == WEFT_MODEL_GGUF)
        return weft_err_set(r->why, WEFT_E_PROTO, "%s: tensor '%s%u.%.*s_exps.weight' is missing",
                            r->path, layer_prefix[r->format], number_of(r->model, layer),
                            (int)strlen(before) - 1, before);
    return weft_err_set(r->why, WEFT_E_PROTO, "%s: tensor '%s' is missing", r->path, name);
}

/* The experts of a layer that has some. */
static weft_err resolve_experts(struct wefti_model_resolver *r, uint32_t layer) {
    weft_model *model = r->model;
    uint32_t n = model->params.moe.n_experts, number = number_of(model, layer);
    struct weft_model_expert *experts = model->experts + (size_t)layer * n;
    model->layers[layer].experts = experts;
    for (uint32_t e = 0; e < n; e++) {
        for (size_t i = 0; i < N_EXPERT_ROLES; i++) {
            char name[96], other[96];
            const struct weft_tensor *tensor;
            if (expert_roles[i].n_dims == 1 && !model->params.block.expert_bias) continue;
            if (expert_roles[i].at == offsetof(struct weft_model_expert, up) &&
                model->params.block.ungated)
                continue; /* it is the gate */
            const struct role role = {.n_dims = expert_roles[i].n_dims,
                                      .dims = {expert_roles[i].dims[0], expert_roles[i].dims[1]}};
            (void)snprintf(name, sizeof name, "%s%u.%s%u.%s", layer_prefix[r->format], number,
                           expert_roles[i].names[r->format].before, e,
                           expert_roles[i].names[r->format].after);
            (void)snprintf(other, sizeof other, "%s%u.%s%u.%s", layer_prefix[r->format], number,
                           expert_roles[i].other.before, e, expert_roles[i].other.after);
            weft_err err = take(r, &role, name, &tensor);
            if (!err && !tensor) err = take(r, &role, other, &tensor);
            if (!err && !tensor && i == 0 && model->params.block.ungated) {
                (void)snprintf(other, sizeof other, "%s%u.mlp.experts.%u.up_proj.weight",
                               layer_prefix[r->format], number, e);
                err = take(r, &role, other, &tensor);
            }
            if (!err && !tensor) err = missing_expert(r, layer, i, name);
            if (err) return err;
            char *fields = (char *)&experts[e];
            *(const struct weft_tensor **)(void *)(fields + expert_roles[i].at) = tensor;
        }
    }
    return WEFT_OK;
}

/* Those of one layer. */
static void fill_layer_sizes(const struct weft_model_params *p, uint32_t layer,
                             uint64_t sizes[SIZE_COUNT]) {
    const uint64_t n_heads = p->n_heads, dim = weft_model_head_dim(p, layer);
    sizes[SIZE_HEAD] = dim;
    sizes[SIZE_FFN] = weft_model_ffn(p, layer);
    sizes[SIZE_KV] = weft_model_kv_heads(p, layer) * dim;
    if (p->kv_lora > 0) return;
    sizes[SIZE_Q] = sizes[SIZE_OUT] = n_heads * dim;
}

static weft_err resolve_layer(struct wefti_model_resolver *r, uint32_t layer) {
    weft_model *model = r->model;
    fill_layer_sizes(&model->params, layer, r->sizes);
    uint32_t number = number_of(model, layer);
    for (size_t i = 0; i < N_LAYER_ROLES; i++) {
        const struct role *role = &layer_roles[i].role;
        const struct weft_tensor *tensor;
        char name[96], other[96];
        if (!is_there(model, layer, layer_roles[i].when)) continue;
        (void)snprintf(name, sizeof name, "%s%u.%s", layer_prefix[r->format], number,
                       role->names[r->format]);
        (void)snprintf(other, sizeof other, "%s%u.%s", layer_prefix[r->format], number,
                       role->other ? role->other : "");
        weft_err err = take_either(r, role, name, role->other ? other : NULL, &tensor);
        if (err) return err;
        char *fields = (char *)&model->layers[layer];
        *(const struct weft_tensor **)(void *)(fields + layer_roles[i].at) = tensor;
    }
    return is_there(model, layer, WITH_EXPERTS) ? resolve_experts(r, layer) : WEFT_OK;
}

static weft_err resolve_layers(struct wefti_model_resolver *r) {
    weft_model *model = r->model;
    model->layers = calloc(model->params.n_layers, sizeof *model->layers);
    if (!model->layers) return weft_err_set(r->why, WEFT_E_NOMEM, "%s: out of memory", r->path);
    uint32_t n_experts = model->params.moe.n_experts;
    if (n_experts > 0) {
        model->experts = calloc((size_t)model->params.n_layers * n_experts, sizeof *model->experts);
        if (!model->experts)
            return weft_err_set(r->why, WEFT_E_NOMEM, "%s: out of memory", r->path);
    }
    weft_err err = WEFT_OK;
    for (uint32_t layer = 0; !err && layer < model->params.n_layers; layer++)
        err = resolve_layer(r, layer);
    return err;
}

static weft_err resolve_head(struct wefti_model_resolver *r) {
    weft_model *model = r->model;
    weft_err err = WEFT_OK;
    if (!r->imagined || !model->params.tied) /* nobody imagines what is not needed */
        err = take(r, &head_role, head_role.names[r->format], &model->head);
    if (err) return err;
    if (!model->head && model->params.untied)
        return weft_err_set(r->why, WEFT_E_PROTO, "%s: tensor '%s' is missing", r->path,
                            head_role.names[r->format]);
    /* As in transformers, the embedding counts if the configuration ties them. */
    if (!model->head || model->params.tied) {
        model->params.tied = true;
        model->head = model->embedding;
    }
    WEFT_ASSERT(model->head);
    return WEFT_OK;
}

bool wefti_model_role_is_read(const char *name) {
    for (size_t i = 0; i < ROPE_TABLES; i++) {
        if (strcmp(name, rope_roles[i].names[WEFT_MODEL_GGUF]) == 0) return true;
    }
    return false;
}

/* One positive number per pair; *out is NULL where the file has none, else malloc'd. */
static weft_err take_rope_table(struct wefti_model_resolver *r, enum rope_table table,
                                float **out) {
    const struct weft_tensor *tensor;
    const struct role *role = &rope_roles[table];
    *out = NULL;
    weft_err err = take(r, role, role->names[r->format], &tensor);
    if (err || !tensor) return err;
    if (!tensor->data)
        return weft_err_set(r->why, WEFT_E_PROTO, "%s: was packed without the values of '%s'",
                            r->path, tensor->name);
    uint64_t n = tensor->dims[tensor->n_dims - 1]; /* perhaps of a matrix of one row */
    WEFT_ASSERT(n == r->sizes[SIZE_HALF_ROPE]);
    *out = malloc(n * sizeof **out);
    if (!*out) return weft_err_set(r->why, WEFT_E_NOMEM, "%s: out of memory", r->path);
    weft_tensor_row_f32(tensor, 0, *out);
    for (uint64_t i = 0; i < n; i++) {
        if (isfinite((*out)[i]) && (*out)[i] > 0) continue;
        return weft_err_set(r->why, WEFT_E_PROTO,
                            "%s: tensor '%s' has %g at %" PRIu64 "; it must be positive", r->path,
                            tensor->name, (double)(*out)[i], i);
    }
    return WEFT_OK;
}

/* LongRoPE's factors; a file has both or none. */
static weft_err resolve_longrope(struct wefti_model_resolver *r) {
    struct weft_model_params *p = &r->model->params;
    float *longer = NULL, *shorter = NULL;
    weft_err err = take_rope_table(r, ROPE_LONG, &longer);
    if (!err) err = take_rope_table(r, ROPE_SHORT, &shorter);
    bool is_wanted = p->rope_scaling == WEFT_ROPE_LONGROPE;
    if (!err && (!longer != !shorter || (is_wanted && !longer)))
        err = weft_err_set(r->why, WEFT_E_PROTO, "%s: tensor '%s' is missing", r->path,
                           rope_roles[longer ? ROPE_SHORT : ROPE_LONG].names[r->format]);
    if (!err && longer && !is_wanted && p->rope_scaling != WEFT_ROPE_NONE)
        err = weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                           "%s: has tables of LongRoPE and another scaling of RoPE", r->path);
    if (!err && longer && shorter) {
        p->rope_scaling = WEFT_ROPE_LONGROPE;
        if (p->rope_original_context == 0) p->rope_original_context = p->n_context;
        WEFT_ASSERT(p->rope_dim <= WEFT_HEAD_DIM_MAX); /* checked when it was read */
        for (uint32_t i = 0; i < p->rope_dim / 2; i++) {
            p->rope_long_factors[i] = (double)longer[i];
            p->rope_short_factors[i] = (double)shorter[i];
        }
        err = wefti_model_params_check(p, r->path, r->why);
    }
    free(longer);
    free(shorter);
    return err;
}

/* The parts of RoPE that GGUF files keep in tensors: Llama 3's scaling and LongRoPE's. */
static weft_err resolve_rope(struct wefti_model_resolver *r) {
    if (r->format != WEFT_MODEL_GGUF) return WEFT_OK;
    weft_err err = take_rope_table(r, ROPE_FREQS, &r->model->rope_freqs);
    return err ? err : resolve_longrope(r);
}

/* Older checkpoints store the table of rotary frequencies, which follows from the configuration. */
static bool is_derived(const char *name) {
    static const char suffix[] = "rotary_emb.inv_freq";
    size_t len = strlen(name);
    return len >= sizeof suffix - 1 && strcmp(name + len - (sizeof suffix - 1), suffix) == 0;
}

/* Some GPTQ checkpoints have a bias for every layer, of zeros where the model has none. */
static bool is_idle_bias(const struct wefti_model_resolver *r, const struct weft_tensor *tensor) {
    static const char suffix[] = ".bias";
    size_t len = strlen(tensor->name);
    if (r->model->params.quant.method != WEFT_QUANT_GPTQ || len < sizeof suffix ||
        strcmp(tensor->name + len - (sizeof suffix - 1), suffix) != 0)
        return false;
    const unsigned char *bytes = tensor->data;
    for (size_t i = 0; bytes && i < tensor->bytes; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

/* Qwen3's rerankers in GGUF files hold the rows of their head for yes and no once more. */
static bool repeats_head(const struct wefti_model_resolver *r, const struct weft_tensor *tensor) {
    const struct weft_model_params *p = &r->model->params;
    return strcmp(p->arch, "qwen3") == 0 && strcmp(tensor->name, "cls.output.weight") == 0 &&
           tensor->n_dims == 2 && tensor->dims[0] == 2 && tensor->dims[1] == p->n_hidden;
}

/* Whether a name is that of a layer after the last one, which predicts further tokens. */
static bool is_predicting(const struct wefti_model_resolver *r, const char *name) {
    const struct weft_model_params *p = &r->model->params;
    size_t len = strlen(layer_prefix[r->format]);
    if (p->n_predict == 0 || strncmp(name, layer_prefix[r->format], len) != 0) return false;
    size_t n_digits = strspn(name + len, "0123456789");
    unsigned long layer = n_digits > 0 && n_digits < 6 ? strtoul(name + len, NULL, 10) : 0;
    return layer >= p->n_layers && layer < (unsigned long)p->n_layers + p->n_predict;
}

/* Keys and values of layers that read others': some checkpoints have them nevertheless. */
static bool is_idle_kv(const struct wefti_model_resolver *r, const char *name) {
    static const char *const idle[2][3] = {
        {"self_attn.k_proj.", "self_attn.v_proj.", "self_attn.k_norm."},
        {"attn_k.", "attn_v.", "attn_k_norm."}};
    const struct weft_model_params *p = &r->model->params;
    size_t prefix_len;
    const char *rest = wefti_model_after_layer(name, r->format, &prefix_len);
    if (p->unlike.n_shared_kv == 0 || !rest) return false;
    const size_t n_digits = prefix_len - strlen(layer_prefix[r->format]) - 1;
    if (strncmp(name, layer_prefix[r->format], strlen(layer_prefix[r->format])) != 0 ||
        n_digits > 6)
        return false;
    const unsigned long layer = strtoul(name + strlen(layer_prefix[r->format]), NULL, 10);
    if (layer >= p->n_layers || layer < p->n_layers - p->unlike.n_shared_kv) return false;
    for (size_t i = 0; i < 3; i++) {
        if (strncmp(rest, idle[r->format][i], strlen(idle[r->format][i])) == 0) return true;
    }
    return false;
}

static weft_err check_all_used(const struct wefti_model_resolver *r) {
    for (size_t i = 0; i < r->model->n_tensors; i++) {
        const char *name = r->model->tensors[i].name;
        if (r->used[i] || is_derived(name) || is_idle_bias(r, &r->model->tensors[i])) continue;
        if (is_predicting(r, name) || repeats_head(r, &r->model->tensors[i]) || is_idle_kv(r, name))
            continue;
        struct wefti_model_shown shown = wefti_model_show(name, strlen(name));
        return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                            "%s: tensor '%s' has no part in a %s model of %u layers", r->path,
                            shown.text, r->model->params.arch, r->model->params.n_layers);
    }
    return WEFT_OK;
}

/* Its rows are gathered as the file has them; rows in parts may call themselves f32. */
static weft_err check_table(const struct wefti_model_resolver *r, const struct weft_tensor *table) {
    if (!table->parts && weft_dtypes[table->dtype].class <= WEFT_DTYPE_BLOCKS) return WEFT_OK;
    return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                        "%s: the embedding table is quantised, which is not supported", r->path);
}

/* What makes the embeddings that tokens have for each layer. */
static weft_err resolve_inputs(struct wefti_model_resolver *r) {
    struct weft_model_input_tensors *to = &r->model->inputs;
    const struct weft_tensor **const out[INPUT_ROLES] = {&to->table, &to->proj, &to->norm};
    weft_err err = WEFT_OK;
    if (r->model->params.unlike.layer_input == 0) return WEFT_OK;
    for (int i = 0; !err && i < INPUT_ROLES; i++)
        err = take_either(r, &input_roles[i], input_roles[i].names[r->format], NULL, out[i]);
    return err ? err : check_table(r, to->table);
}

/* All but the embedding. */
static weft_err resolve_decoder(struct wefti_model_resolver *r) {
    weft_err err = take_either(r, &final_norm_role, final_norm_role.names[r->format], NULL,
                               &r->model->final_norm);
    if (!err && r->model->params.block.norm_bias)
        err = take_either(r, &final_bias_role, final_bias_role.names[r->format], NULL,
                          &r->model->final_bias);
    if (!err) err = resolve_inputs(r);
    if (!err) err = resolve_layers(r);
    if (!err) err = resolve_head(r);
    return err ? err : resolve_rope(r);
}

static void fill_sizes(const struct weft_model_params *p, uint64_t sizes[SIZE_COUNT]) {
    uint64_t n_heads = p->n_heads;
    sizes[SIZE_HIDDEN] = p->n_hidden;
    sizes[SIZE_Q] = n_heads * (p->kv_lora ? p->nope_dim + p->rope_dim : p->head_dim);
    sizes[SIZE_OUT] = n_heads * (p->kv_lora ? p->v_dim : p->head_dim);
    sizes[SIZE_Q_LORA] = p->q_lora;
    sizes[SIZE_KV_LORA] = p->kv_lora;
    sizes[SIZE_NOPE] = p->nope_dim;
    sizes[SIZE_KV_HEADS] = n_heads * (p->nope_dim + p->v_dim);
    sizes[SIZE_K_HEADS] = n_heads * p->kv_lora;
    sizes[SIZE_V_HEADS] = n_heads * p->v_dim;
    sizes[SIZE_KV] = (uint64_t)p->n_kv_heads * p->head_dim;
    sizes[SIZE_FFN] = p->n_ffn;
    sizes[SIZE_VOCAB] = p->n_vocab;
    sizes[SIZE_HEAD] = p->head_dim;
    sizes[SIZE_HALF_ROPE] = p->rope_dim / 2;
    sizes[SIZE_EXPERTS] = p->moe.n_experts;
    sizes[SIZE_EXPERT_FFN] = p->moe.n_ffn;
    sizes[SIZE_EXPERT] = weft_model_expert_width(p);
    sizes[SIZE_SHARED_FFN] = p->moe.n_ffn_shared;
    sizes[SIZE_HEADS] = n_heads;
    const struct weft_model_recurrent *rec = &p->recurrent;
    uint64_t inner = weft_model_recurrent_inner(p), channels = weft_model_conv_channels(p);
    sizes[SIZE_REC_IN] = rec->kind == WEFT_MODEL_CONV ? 3 * inner : inner + channels + rec->n_heads;
    sizes[SIZE_REC_CONV] = channels;
    sizes[SIZE_REC_KEYS] = (uint64_t)rec->n_groups * rec->state_dim;
    sizes[SIZE_REC_INNER] = inner;
    sizes[SIZE_REC_HEADS] = rec->n_heads;
    sizes[SIZE_REC_HEAD] = rec->head_dim;
    sizes[SIZE_REC_WIDTH] = rec->conv_width;
    sizes[SIZE_INPUT] = p->unlike.layer_input;
    sizes[SIZE_INPUTS] = (uint64_t)p->n_layers * p->unlike.layer_input;
    sizes[SIZE_INPUT_VOCAB] = p->unlike.n_vocab_input;
    sizes[SIZE_ONE] = 1;
    sizes[SIZE_INDEX_HEADS] = (uint64_t)p->indexer.n_heads * p->indexer.head_dim;
    sizes[SIZE_INDEX_N] = p->indexer.n_heads;
    sizes[SIZE_INDEX_HEAD] = p->indexer.head_dim;
}

weft_err wefti_model_resolve(weft_model *model, enum weft_model_format format, const char *path,
                             struct weft_errmsg *why) {
    const struct weft_model_params *p = &model->params;
    WEFT_ASSERT(model->by_name); /* the index comes first */
    WEFT_ASSERT(p->n_layers >= 1 && p->n_layers <= WEFT_LAYERS_MAX);
    model->has_delta_apart = p->recurrent.kind == WEFT_MODEL_DELTA && is_delta_apart(model);
    uint64_t sizes[SIZE_COUNT];
    fill_sizes(p, sizes);
    struct wefti_model_resolver r = {
        .model = model,
        .format = format,
        .path = path,
        .sizes = sizes,
        .used = calloc(model->n_tensors + 1, sizeof *r.used),
        .why = why,
    };
    weft_err err = WEFT_E_NOMEM;
    if (!r.used) {
        err = weft_err_set(why, err, "%s: out of memory", path);
        goto cleanup;
    }
    if (wefti_model_has_encoder_roles(p))
        err = wefti_model_resolve_encoder(&r);
    else if (model->predictor.eh_proj)
        err = wefti_model_resolve_predictor(&r);
    else
        err =
            take_either(&r, &embedding_role, embedding_role.names[format], NULL, &model->embedding);
    if (!err) err = check_table(&r, model->embedding);
    if (err) goto cleanup;
    if (model->predictor.eh_proj) {
        err = resolve_layers(&r); /* the rest was used when the whole model was opened */
        goto cleanup;
    }
    if (!wefti_model_has_encoder_roles(p)) err = resolve_decoder(&r);
    if (err) goto cleanup;
    err = check_all_used(&r);
cleanup:
    free(r.used);
    return err;
}

weft_err wefti_model_imagine(weft_model *model, const char *path,
                             const struct wefti_model_types *types, struct weft_errmsg *why) {
    WEFT_ASSERT(model->n_tensors == 0 && !wefti_model_has_encoder_roles(&model->params));
    uint64_t sizes[SIZE_COUNT];
    fill_sizes(&model->params, sizes);
    struct wefti_model_resolver r = {.model = model,
                                     .format = WEFT_MODEL_HF,
                                     .path = path,
                                     .sizes = sizes,
                                     .imagined = wefti_model_new(),
                                     .types = types,
                                     .why = why};
    if (!r.imagined) return weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", path);
    weft_err err = wefti_model_index(model, path, why); /* of nothing */
    if (!err)
        err = take_either(&r, &embedding_role, embedding_role.names[r.format], NULL,
                          &model->embedding);
    if (!err) err = resolve_decoder(&r);
    free(model->layers);
    free(model->experts);
    model->layers = NULL;
    model->experts = NULL;
    model->embedding = model->final_norm = model->final_bias = model->head = NULL;
    model->tensors = r.imagined->tensors;
    model->n_tensors = r.imagined->n_tensors;
    model->cap_tensors = r.imagined->cap_tensors;
    r.imagined->tensors = NULL;
    r.imagined->n_tensors = 0;
    weft_model_free(r.imagined);
    return err;
}
