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
    WITH_O,
    PLAIN_K,
    PLAIN_V,
    PLAIN_Q,
    Q_AND_GATE,
    OWN_GATE,
    Q_LORA,
    LATENT,
    FUSED_QKV,
    BY_HEAD,
    FUSED_FFN,
    NOT_FUSED,
    PLAIN_FFN,
    PLAIN_UP,
    SHARED,
    SHARED_UP,
    EXPERTS,
    EXPERTS_UP,
    UNGATED_EXPERTS,
    RECURRENT
};

/* Names after the layer's number, as the roles (roles.c) know them; a '#' stands for an expert's. The first that the model
 * has counts. */
static const struct row {
    const char *names[2]; /* by enum weft_model_format; NULL: no file of it has that */
    enum when when;
    uint32_t n_roles;
    enum weft_lora_role roles[3];
} rows[] = {
    {{"self_attn.q_proj", "attn_q.weight"}, PLAIN_Q, 1, {WEFT_LORA_Q}},
    {{"self_attn.q_proj", "attn_q.weight"}, Q_AND_GATE, 2, {WEFT_LORA_Q, WEFT_LORA_ATTN_GATE}},
    {{"self_attn.k_proj", "attn_k.weight"}, PLAIN_K, 1, {WEFT_LORA_K}},
    {{"self_attn.v_proj", "attn_v.weight"}, PLAIN_V, 1, {WEFT_LORA_V}},
    {{"self_attn.o_proj", "attn_output.weight"}, WITH_O, 1, {WEFT_LORA_O}},
    {{"self_attn.gate_proj", "attn_gate.weight"}, OWN_GATE, 1, {WEFT_LORA_ATTN_GATE}},
    {{"self_attn.q_a_proj", "attn_q_a.weight"}, Q_LORA, 1, {WEFT_LORA_Q_A}},
    {{"self_attn.q_b_proj", "attn_q_b.weight"}, Q_LORA, 1, {WEFT_LORA_Q}},
    {{"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa.weight"}, LATENT, 1, {WEFT_LORA_K}},
    {{"self_attn.qkv_proj", "attn_qkv.weight"},
     FUSED_QKV,
     3,
     {WEFT_LORA_Q, WEFT_LORA_K, WEFT_LORA_V}},
    {{"self_attn.qkv_by_head", NULL}, BY_HEAD, 3, {WEFT_LORA_Q, WEFT_LORA_K, WEFT_LORA_V}},
    {{"mlp.gate_proj", "ffn_gate.weight"}, PLAIN_FFN, 1, {WEFT_LORA_GATE}},
    {{"mlp.up_proj", NULL}, PLAIN_UP, 1, {WEFT_LORA_UP}},
    {{NULL, "ffn_up.weight"}, NOT_FUSED, 1, {WEFT_LORA_UP}},
    {{"mlp.gate_up_proj", "ffn_up.weight"}, FUSED_FFN, 2, {WEFT_LORA_GATE, WEFT_LORA_UP}},
    {{"mlp.down_proj", "ffn_down.weight"}, PLAIN_FFN, 1, {WEFT_LORA_DOWN}},
    {{"mlp.shared_expert.gate_proj", "ffn_gate_shexp.weight"}, SHARED, 1, {WEFT_LORA_GATE}},
    {{"mlp.shared_expert.up_proj", "ffn_up_shexp.weight"}, SHARED_UP, 1, {WEFT_LORA_UP}},
    {{"mlp.shared_expert.down_proj", "ffn_down_shexp.weight"}, SHARED, 1, {WEFT_LORA_DOWN}},
    {{"mlp.shared_experts.gate_proj", NULL}, SHARED, 1, {WEFT_LORA_GATE}},
    {{"mlp.shared_experts.up_proj", NULL}, SHARED_UP, 1, {WEFT_LORA_UP}},
    {{"mlp.shared_experts.down_proj", NULL}, SHARED, 1, {WEFT_LORA_DOWN}},
    {{"mlp.shared_gate_up", NULL}, SHARED_UP, 2, {WEFT_LORA_GATE, WEFT_LORA_UP}},
    {{"mlp.experts.#.gate_proj", "ffn_gate_exps.weight"}, EXPERTS, 1, {WEFT_LORA_GATE}},
    {{"mlp.experts.#.up_proj", "ffn_up_exps.weight"}, EXPERTS_UP, 1, {WEFT_LORA_UP}},
    {{"mlp.experts.#.up_proj", NULL}, UNGATED_EXPERTS, 1, {WEFT_LORA_GATE}},
    {{"mlp.experts.#.down_proj", "ffn_down_exps.weight"}, EXPERTS, 1, {WEFT_LORA_DOWN}},
    {{"block_sparse_moe.experts.#.w1", NULL}, EXPERTS, 1, {WEFT_LORA_GATE}},
    {{"block_sparse_moe.experts.#.w3", NULL}, EXPERTS_UP, 1, {WEFT_LORA_UP}},
    {{"block_sparse_moe.experts.#.w2", NULL}, EXPERTS, 1, {WEFT_LORA_DOWN}},
    {{"mixer.out_proj", "ssm_out.weight"}, RECURRENT, 1, {WEFT_LORA_REC_OUT}},
};
#define N_ROWS (sizeof rows / sizeof rows[0])

/* Linear layers that exist, but are no product of their own here, or none that adapters are added to. */
static const char *const others[] = {
    "self_attn.kv_b_proj",
    "attn_kv_b.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
    "mlp.gate",
    "ffn_gate_inp.weight",
    "block_sparse_moe.gate",
    "mlp.shared_expert_gate",
    "ffn_gate_inp_shexp.weight",
    "mlp.experts.gate_up_proj", /* stacks in folders */
    "mlp.experts.down_proj",
    "ffn_gate_up_exps.weight",
    "mlp.latent_in", /* and experts that read it */
    "mlp.latent_out",
    "ffn_latent_down.weight",
    "ffn_latent_up.weight",
    "mixer.in_proj",
    "mixer.qkvz",
    "mixer.ba",
    "mixer.qkv",
    "mixer.z",
    "mixer.b",
    "mixer.a",
    "mixer.conv1d",
    "ssm_in.weight",
    "ssm_beta.weight",
    "ssm_alpha.weight",
    "ssm_ba.weight",
    "attn_qkv.weight", /* of gated DeltaNet */
    "attn_gate.weight",
    "self_attn.indexer.wq_b",
    "self_attn.indexer.wk",
    "self_attn.indexer.weights_proj",
    "per_layer_input_gate",
    "per_layer_projection",
    "inp_gate.weight",
    "proj.weight",
};

/* What wrapped folders of either release have in place of "model."; adapters for them are named likewise. */
static const char *const wrappers[] = {"language_model.model.", "model.language_model."};
static const char *const prefixes[] = {"model.layers.", "blk."}; /* by enum weft_model_format */

static bool is_there(const struct weft_model_params *p, uint32_t layer, enum when when) {
    const struct wefti_model_arch *arch =
        wefti_model_arch_of_gguf((struct weft_str){p->arch, strlen(p->arch)});
    const struct weft_model_recurrent *rec = &p->recurrent;
    const bool has_attention = !weft_model_bit(rec->no_attention, layer),
               has_k = has_attention && layer < p->n_layers - p->unlike.n_shared_kv,
               has_ffn = !weft_model_bit(rec->no_ffn, layer);
    const bool has_experts =
        has_ffn && p->moe.n_experts > 0 && !weft_model_bit(p->no_experts, layer);
    const bool has_plain = has_ffn && (!has_experts || p->unlike.ffn_beside);
    /* Granite's part beside experts has the same names where there are none. */
    const bool has_shared = has_experts ? p->moe.n_ffn_shared > 0 && !p->unlike.ffn_beside
                                        : has_plain && arch && arch->traits.granite_shared;
    /* Not those that read something of their own: a latent, or rows of another norm or weight. */
    const bool may_adapt = has_experts && !p->unlike.ffn_beside && p->moe.n_latent == 0 &&
                           !(arch && arch->traits.llama4);
    const bool is_fused = arch && arch->traits.fused;
    /* Granite 4's files have gate and up apart. */
    const bool fused_ffn = is_fused && !p->block.ungated && !arch->traits.granite_shared;
    switch (when) {
    case WITH_O:
        break;
    case PLAIN_Q:
        return has_attention && p->q_lora == 0 && !p->block.gate_in_q;
    case Q_AND_GATE:
        return has_attention && p->block.gate_in_q;
    case OWN_GATE:
        return has_attention && p->block.attn_gate && !p->block.gate_in_q;
    case PLAIN_K:
        return has_k && p->kv_lora == 0;
    case PLAIN_V:
        return has_k && p->kv_lora == 0 && !weft_model_bit(p->unlike.keys_as_values, layer);
    case Q_LORA:
        return p->q_lora > 0;
    case LATENT:
        return p->kv_lora > 0;
    case FUSED_QKV:
        return has_attention && is_fused;
    case BY_HEAD:
        return has_attention && is_fused && p->n_heads == p->n_kv_heads;
    case FUSED_FFN:
        return has_plain && fused_ffn;
    case NOT_FUSED:
        return has_plain && !fused_ffn && !p->block.ungated;
    case PLAIN_FFN:
        return has_plain;
    case PLAIN_UP:
        return has_plain && !p->block.ungated;
    case SHARED:
        return has_shared;
    case SHARED_UP:
        return has_shared && !p->block.ungated;
    case EXPERTS:
        return may_adapt;
    case EXPERTS_UP:
        return may_adapt && !p->block.ungated;
    case UNGATED_EXPERTS:
        return may_adapt && p->block.ungated;
    case RECURRENT:
        return rec->kind && weft_model_bit(rec->layers, layer);
    }
    return has_attention;
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

/* `name` as the roles know it, `shown` as the file has it. */
static weft_err refuse_other(const struct wefti_lora_named *named, struct weft_str name,
                             struct weft_str shown_name, struct weft_errmsg *why) {
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (name.len == strlen(others[i]) && memcmp(name.data, others[i], name.len) == 0)
            return refuse(named, "adapters of this module are not supported", WEFT_E_UNSUPPORTED,
                          why);
    }
    struct weft_errmsg fault;
    struct wefti_model_shown shown = wefti_model_show(shown_name.data, shown_name.len);
    (void)snprintf(fault.text, sizeof fault.text, "the model has no module '%s'", shown.text);
    return refuse(named, fault.text, WEFT_E_PROTO, why);
}

/* Takes "model.layers.7." off a name. */
static weft_err take_layer(const struct weft_model_params *params,
                           const struct wefti_lora_named *named, struct weft_str *name,
                           uint32_t *layer_out, struct weft_errmsg *why) {
    const char *prefix = prefixes[named->format];
    struct weft_errmsg fault;
    if (!take_text(name, prefix, strlen(prefix)) || name->len == 0 || name->data[0] < '0' ||
        name->data[0] > '9')
        return refuse_other(named, named->module, named->module, why);
    if (take_number(name, params->n_layers, layer_out) && take_text(name, ".", 1)) return WEFT_OK;
    (void)snprintf(fault.text, sizeof fault.text, "the model has no such layer; it has %u",
                   params->n_layers);
    return refuse(named, fault.text, WEFT_E_PROTO, why);
}

/* The name that the roles know, without what modules of folders lack: "weight". The caller's, to free; NULL: nothing that
 * is served has the module. */
static weft_err rename_module(const struct weft_model_params *p,
                              const struct wefti_lora_named *named, char **name_out,
                              struct weft_errmsg *why) {
    const struct wefti_model_arch *arch =
        wefti_model_arch_of_gguf((struct weft_str){p->arch, strlen(p->arch)});
    const bool is_gguf = named->format == WEFT_MODEL_GGUF;
    struct weft_str module = named->module;
    char *name = NULL;
    bool is_wrapped = false;
    *name_out = NULL;
    for (size_t i = 0; i < 2 && !is_gguf && !is_wrapped; i++)
        is_wrapped = take_text(&module, wrappers[i], strlen(wrappers[i]));
    if (asprintf(&name, "%s%.*s%s", is_wrapped ? "model." : "", (int)module.len, module.data,
                 is_gguf ? "" : ".") < 0)
        return weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", named->path);
    weft_err err = wefti_model_rename_one(arch, named->format, name, name_out);
    free(name);
    if (err) return weft_err_set(why, err, "%s: out of memory", named->path);
    const size_t len = *name_out ? strlen(*name_out) : 0;
    if (!is_gguf && len > 0 && (*name_out)[len - 1] == '.') (*name_out)[len - 1] = 0;
    return WEFT_OK;
}

/* What the file calls a module after the layer's number; all of it where it has none. */
static struct weft_str after_number(struct weft_str module) {
    for (size_t i = 0; i + 1 < module.len; i++) {
        if (module.data[i] != '.' || module.data[i + 1] < '0' || module.data[i + 1] > '9') continue;
        for (i++; i < module.len && module.data[i] >= '0' && module.data[i] <= '9'; i++)
            continue;
        if (i < module.len) return (struct weft_str){module.data + i + 1, module.len - i - 1};
    }
    return module;
}

static weft_err find_row(const struct weft_model_params *p, const struct wefti_lora_named *named,
                         struct weft_str name, struct wefti_lora_module *module_out,
                         struct weft_errmsg *why) {
    weft_err err = take_layer(p, named, &name, &module_out->layer, why);
    if (err) return err;
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *pattern = rows[i].names[named->format];
        if (!pattern || !is_named(pattern, name, p->moe.n_experts, &module_out->expert)) continue;
        if (!is_there(p, module_out->layer, rows[i].when)) continue;
        module_out->n_roles = rows[i].n_roles;
        module_out->by_head = rows[i].when == Q_AND_GATE || rows[i].when == BY_HEAD;
        module_out->all_experts = named->format == WEFT_MODEL_GGUF && rows[i].when >= EXPERTS &&
                                  rows[i].when <= UNGATED_EXPERTS;
        memcpy(module_out->roles, rows[i].roles, sizeof rows[i].roles);
        return WEFT_OK;
    }
    return refuse_other(named, name, after_number(named->module), why);
}

weft_err wefti_lora_find_module(const struct weft_model_params *p,
                                const struct wefti_lora_named *named,
                                struct wefti_lora_module *module_out, struct weft_errmsg *why) {
    char *name = NULL;
    *module_out = (struct wefti_lora_module){.expert = WEFT_LORA_NO_EXPERT};
    weft_err err = rename_module(p, named, &name, why);
    if (err) return err;
    err = name ? find_row(p, named, (struct weft_str){name, strlen(name)}, module_out, why)
               : refuse_other(named, named->module, named->module, why);
    free(name);
    return err;
}

void wefti_lora_shape(const struct weft_model_params *p, const struct wefti_lora_module *module,
                      enum weft_lora_role role, uint32_t *n_out, uint32_t *k_out) {
    const bool is_routed = module->expert != WEFT_LORA_NO_EXPERT || module->all_experts,
               is_shared = p->moe.n_experts > 0 && !weft_model_bit(p->no_experts, module->layer);
    const uint32_t n_plain = weft_model_ffn(p, module->layer), n_ffn = is_routed ? p->moe.n_ffn
                                                                       : is_shared
                                                                           ? p->moe.n_ffn_shared
                                                                           : n_plain;
    const uint32_t dim = weft_model_head_dim(p, module->layer);
    const uint32_t head = p->kv_lora ? p->nope_dim + p->rope_dim : dim;
    const uint32_t out = p->n_heads * (p->kv_lora ? p->v_dim : dim);
    const uint32_t kv = p->kv_lora ? p->head_dim : weft_model_kv_heads(p, module->layer) * dim;
    const uint32_t shapes[WEFT_LORA_ROLE_COUNT][2] = {
        [WEFT_LORA_Q] = {p->n_heads * head, p->q_lora ? p->q_lora : p->n_hidden},
        [WEFT_LORA_K] = {kv, p->n_hidden},
        [WEFT_LORA_V] = {kv, p->n_hidden},
        [WEFT_LORA_O] = {p->n_hidden, out},
        [WEFT_LORA_GATE] = {n_ffn, p->n_hidden},
        [WEFT_LORA_UP] = {n_ffn, p->n_hidden},
        [WEFT_LORA_DOWN] = {p->n_hidden, n_ffn},
        [WEFT_LORA_Q_A] = {p->q_lora, p->n_hidden},
        [WEFT_LORA_ATTN_GATE] = {out, p->n_hidden},
        [WEFT_LORA_REC_OUT] = {p->n_hidden, weft_model_recurrent_inner(p)},
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
