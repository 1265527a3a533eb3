/* Which matrices of a model the names in an adapter mean. PEFT names modules of the Python model,
 * GGUF files tensors of the converted one. */
#include "lora_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch.h"
#include "base/check.h"
#include "base/minmax.h"

enum when {
    ALWAYS,
    PLAIN_K,
    PLAIN_V,
    PLAIN_Q,
    Q_LORA,
    LATENT,
    FUSED,
    NOT_FUSED,
    PLAIN_FFN,
    SHARED,
    EXPERTS
};

/* Names after the layer's number; a '#' stands for an expert's. */
static const struct row {
    const char *names[2]; /* by enum weft_model_format; NULL: no file of it has that */
    enum when when;
    uint32_t n_roles;
    enum weft_lora_role roles[3];
} rows[] = {
    {{"self_attn.q_proj", "attn_q.weight"}, PLAIN_Q, 1, {WEFT_LORA_Q}},
    {{"self_attn.k_proj", "attn_k.weight"}, PLAIN_K, 1, {WEFT_LORA_K}},
    {{"self_attn.v_proj", "attn_v.weight"}, PLAIN_V, 1, {WEFT_LORA_V}},
    {{"self_attn.o_proj", "attn_output.weight"}, ALWAYS, 1, {WEFT_LORA_O}},
    {{"self_attn.q_a_proj", "attn_q_a.weight"}, Q_LORA, 1, {WEFT_LORA_Q_A}},
    {{"self_attn.q_b_proj", "attn_q_b.weight"}, Q_LORA, 1, {WEFT_LORA_Q}},
    {{"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa.weight"}, LATENT, 1, {WEFT_LORA_K}},
    {{"self_attn.qkv_proj", "attn_qkv.weight"}, FUSED, 3, {WEFT_LORA_Q, WEFT_LORA_K, WEFT_LORA_V}},
    {{"mlp.gate_proj", "ffn_gate.weight"}, PLAIN_FFN, 1, {WEFT_LORA_GATE}},
    {{"mlp.up_proj", NULL}, PLAIN_FFN, 1, {WEFT_LORA_UP}},
    {{NULL, "ffn_up.weight"}, NOT_FUSED, 1, {WEFT_LORA_UP}},
    {{"mlp.gate_up_proj", "ffn_up.weight"}, FUSED, 2, {WEFT_LORA_GATE, WEFT_LORA_UP}},
    {{"mlp.down_proj", "ffn_down.weight"}, PLAIN_FFN, 1, {WEFT_LORA_DOWN}},
    {{"mlp.shared_expert.gate_proj", "ffn_gate_shexp.weight"}, SHARED, 1, {WEFT_LORA_GATE}},
    {{"mlp.shared_expert.up_proj", "ffn_up_shexp.weight"}, SHARED, 1, {WEFT_LORA_UP}},
    {{"mlp.shared_expert.down_proj", "ffn_down_shexp.weight"}, SHARED, 1, {WEFT_LORA_DOWN}},
    {{"mlp.shared_experts.gate_proj", NULL}, SHARED, 1, {WEFT_LORA_GATE}},
    {{"mlp.shared_experts.up_proj", NULL}, SHARED, 1, {WEFT_LORA_UP}},
    {{"mlp.shared_experts.down_proj", NULL}, SHARED, 1, {WEFT_LORA_DOWN}},
    {{"mlp.experts.#.gate_proj", "ffn_gate_exps.weight"}, EXPERTS, 1, {WEFT_LORA_GATE}},
    {{"mlp.experts.#.up_proj", "ffn_up_exps.weight"}, EXPERTS, 1, {WEFT_LORA_UP}},
    {{"mlp.experts.#.down_proj", "ffn_down_exps.weight"}, EXPERTS, 1, {WEFT_LORA_DOWN}},
    {{"block_sparse_moe.experts.#.w1", NULL}, EXPERTS, 1, {WEFT_LORA_GATE}},
    {{"block_sparse_moe.experts.#.w3", NULL}, EXPERTS, 1, {WEFT_LORA_UP}},
    {{"block_sparse_moe.experts.#.w2", NULL}, EXPERTS, 1, {WEFT_LORA_DOWN}},
};
#define N_ROWS (sizeof rows / sizeof rows[0])

/* Linear layers that exist, but are no product of their own here. */
static const char *const others[] = {
    "self_attn.kv_b_proj",
    "attn_kv_b.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
    "mlp.gate",
    "ffn_gate_inp.weight",
    "block_sparse_moe.gate",
    "mlp.shared_expert_gate",
};

/* Where layers begin in a name: of plain folders, of wrapped ones by either release, of GGUF files. */
static const char *const prefixes[] = {"model.layers.", "language_model.model.layers.",
                                       "model.language_model.layers.", "blk."};
#define N_HF_PREFIXES 3u

static bool is_there(const struct weft_model_params *p, uint32_t layer, enum when when) {
    const struct wefti_model_arch *arch =
        wefti_model_arch_of_gguf((struct weft_str){p->arch, strlen(p->arch)});
    bool has_experts = p->moe.n_experts > 0 && !weft_model_bit(p->no_experts, layer);
    bool is_fused = arch && arch->traits.fused;
    switch (when) {
    case ALWAYS:
        break;
    case PLAIN_Q:
        return p->q_lora == 0;
    case PLAIN_K:
        return p->kv_lora == 0 && weft_model_kv_layer(p, layer) == layer;
    case PLAIN_V:
        return p->kv_lora == 0 && weft_model_kv_layer(p, layer) == layer &&
               !weft_model_bit(p->unlike.keys_as_values, layer);
    case Q_LORA:
        return p->q_lora > 0;
    case LATENT:
        return p->kv_lora > 0;
    case FUSED:
        return is_fused;
    case NOT_FUSED:
        return !is_fused && (!has_experts || p->unlike.ffn_beside);
    case PLAIN_FFN:
        return !has_experts || p->unlike.ffn_beside;
    case SHARED:
        return has_experts && p->moe.n_ffn_shared > 0 && !p->unlike.ffn_beside;
    case EXPERTS:
        return has_experts;
    }
    return true;
}

/* Takes a number below `limit` off the front of a name; digits without a zero in front. */
static bool take_number(struct weft_str *name, uint32_t limit, uint32_t *out) {
    uint32_t value = 0;
    size_t n = 0;
    for (; n < name->len && n < 6 && name->data[n] >= '0' && name->data[n] <= '9'; n++)
        value = value * 10 + (uint32_t)(name->data[n] - '0');
    bool ok = n > 0 && value < limit && (n == 1 || name->data[0] != '0');
    name->data += n;
    name->len -= n;
    *out = value;
    return ok;
}

static bool take_text(struct weft_str *name, const char *text, size_t len) {
    if (name->len < len || memcmp(name->data, text, len) != 0) return false;
    name->data += len;
    name->len -= len;
    return true;
}

static bool is_named(const char *pattern, struct weft_str name, uint32_t n_experts,
                     uint32_t *expert_out) {
    size_t before = strcspn(pattern, "#");
    *expert_out = WEFT_LORA_NO_EXPERT;
    if (!take_text(&name, pattern, before)) return false;
    if (pattern[before] == '#') {
        if (!take_number(&name, n_experts, expert_out)) return false;
        pattern += before + 1;
        if (!take_text(&name, pattern, strlen(pattern))) return false;
    }
    return name.len == 0;
}

static weft_err refuse(const struct wefti_lora_named *named, const char *fault, weft_err err,
                       struct weft_errmsg *why) {
    struct wefti_model_shown shown = wefti_model_show(named->tensor, strlen(named->tensor));
    return weft_err_set(why, err, "%s: tensor '%s': %s", named->path, shown.text, fault);
}

static weft_err refuse_other(const struct wefti_lora_named *named, struct weft_str rest,
                             struct weft_errmsg *why) {
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (rest.len == strlen(others[i]) && memcmp(rest.data, others[i], rest.len) == 0)
            return refuse(named, "adapters of this module are not supported", WEFT_E_UNSUPPORTED,
                          why);
    }
    struct weft_errmsg fault;
    struct wefti_model_shown shown = wefti_model_show(rest.data, rest.len);
    (void)snprintf(fault.text, sizeof fault.text, "the model has no module '%s'", shown.text);
    return refuse(named, fault.text, WEFT_E_PROTO, why);
}

/* Takes "model.layers.7." off a name. */
static weft_err take_layer(const struct weft_model_params *params,
                           const struct wefti_lora_named *named, struct weft_str *name,
                           uint32_t *layer_out, struct weft_errmsg *why) {
    bool is_gguf = named->format == WEFT_MODEL_GGUF;
    size_t first = is_gguf ? N_HF_PREFIXES : 0, end = N_HF_PREFIXES + is_gguf;
    struct weft_errmsg fault;
    bool has_prefix = false;
    for (size_t i = first; i < end && !has_prefix; i++)
        has_prefix = take_text(name, prefixes[i], strlen(prefixes[i]));
    if (!has_prefix || name->len == 0 || name->data[0] < '0' || name->data[0] > '9')
        return refuse_other(named, named->module, why);
    if (take_number(name, params->n_layers, layer_out) && take_text(name, ".", 1)) return WEFT_OK;
    (void)snprintf(fault.text, sizeof fault.text, "the model has no such layer; it has %u",
                   params->n_layers);
    return refuse(named, fault.text, WEFT_E_PROTO, why);
}

weft_err wefti_lora_find_module(const struct weft_model_params *p,
                                const struct wefti_lora_named *named,
                                struct wefti_lora_module *module_out, struct weft_errmsg *why) {
    struct weft_str name = named->module;
    *module_out = (struct wefti_lora_module){.expert = WEFT_LORA_NO_EXPERT};
    weft_err err = take_layer(p, named, &name, &module_out->layer, why);
    if (err) return err;
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *pattern = rows[i].names[named->format];
        if (!pattern || !is_named(pattern, name, p->moe.n_experts, &module_out->expert)) continue;
        if (!is_there(p, module_out->layer, rows[i].when)) continue;
        module_out->n_roles = rows[i].n_roles;
        module_out->all_experts = named->format == WEFT_MODEL_GGUF && rows[i].when == EXPERTS;
        memcpy(module_out->roles, rows[i].roles, sizeof rows[i].roles);
        return WEFT_OK;
    }
    return refuse_other(named, name, why);
}

void wefti_lora_shape(const struct weft_model_params *p, const struct wefti_lora_module *module,
                      enum weft_lora_role role, uint32_t *n_out, uint32_t *k_out) {
    bool is_routed = module->expert != WEFT_LORA_NO_EXPERT || module->all_experts;
    bool is_shared = p->moe.n_experts > 0 && !weft_model_bit(p->no_experts, module->layer);
    uint32_t n_ffn = is_routed   ? p->moe.n_ffn
                     : is_shared ? p->moe.n_ffn_shared
                                 : weft_model_ffn(p, module->layer);
    uint32_t head_dim = weft_model_head_dim(p, module->layer);
    uint32_t head = p->kv_lora ? p->nope_dim + p->rope_dim : head_dim;
    uint32_t out = p->n_heads * (p->kv_lora ? p->v_dim : head_dim);
    uint32_t kv = p->kv_lora ? p->head_dim : weft_model_kv_heads(p, module->layer) * head_dim;
    const uint32_t shapes[WEFT_LORA_ROLE_COUNT][2] = {
        [WEFT_LORA_Q] = {p->n_heads * head, p->q_lora ? p->q_lora : p->n_hidden},
        [WEFT_LORA_K] = {kv, p->n_hidden},
        [WEFT_LORA_V] = {kv, p->n_hidden},
        [WEFT_LORA_O] = {p->n_hidden, out},
        [WEFT_LORA_GATE] = {n_ffn, p->n_hidden},
        [WEFT_LORA_UP] = {n_ffn, p->n_hidden},
        [WEFT_LORA_DOWN] = {p->n_hidden, n_ffn},
        [WEFT_LORA_Q_A] = {p->q_lora, p->n_hidden},
    };
    WEFT_ASSERT(role < WEFT_LORA_ROLE_COUNT);
    *n_out = shapes[role][0];
    *k_out = shapes[role][1];
}

static uint64_t sum_of_sides(const struct weft_model_params *params,
                             const struct wefti_lora_module *module, enum weft_lora_role role) {
    uint32_t n, k;
    wefti_lora_shape(params, module, role, &n, &k);
    return (uint64_t)n + k;
}

uint64_t wefti_lora_file_bytes_max(const struct weft_lora_base *base) {
    const struct weft_model_params *params = base->params;
    const uint64_t metadata_bytes = 32u << 20; /* as for the header of a model's file */
    uint64_t n = 0; /* at most layers * (roles + 3 experts) * 2^33: far from an overflow */
    WEFT_ASSERT(base->rank_max <= WEFT_LORA_RANK_MAX);
    for (uint32_t layer = 0; layer < params->n_layers; layer++) {
        struct wefti_lora_module module = {.layer = layer, .expert = WEFT_LORA_NO_EXPERT};
        for (unsigned role = 0; role < WEFT_LORA_ROLE_COUNT; role++)
            n += sum_of_sides(params, &module, (enum weft_lora_role)role);
        module.all_experts = true;
        for (unsigned role = WEFT_LORA_GATE; role <= WEFT_LORA_DOWN; role++)
            n += params->moe.n_experts * sum_of_sides(params, &module, (enum weft_lora_role)role);
    }
    n *= base->rank_max;
    if (base->numbers_max > 0) n = weft_min_u64(n, base->numbers_max);
    return metadata_bytes + n * sizeof(float);
}
