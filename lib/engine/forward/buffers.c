/* Shapes and strides of a model, and all buffers of the forward pass.
 *
 * One mapping holds them, sized from the step limits; a pass allocates nothing. */
#include "forward/forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "forward/activations.h"
#include "forward/attention/attention.h"
#include "forward/attention/indexer.h"
#include "forward/attention/latent.h"
#include "forward/experts.h"
#include "forward/lora.h"
#include "forward/pass.h"
#include "forward/ranks.h"
#include "forward/recurrent.h"
#include "runtime/memory.h"

/* One thread's, where there are experts. */
static void lay_out_sorted(const struct wefti_forward *f, struct wefti_memory_layout *layout,
                           struct wefti_forward_scratch *s) {
    size_t n_routes = (size_t)f->max_rows * f->moe.n_used,
           n_own = WEFTI_FORWARD_OWN_ROWS * f->moe.n_used;
    for (int form = 0; form < WEFT_ACT_COUNT; form++) {
        if (f->uses[form])
            s->few[form] = wefti_memory_reserve(layout, WEFTI_FORWARD_OWN_ROWS, f->act_bytes[form]);
    }
    s->chosen = wefti_memory_reserve(layout, n_own, sizeof *s->chosen);
    s->weights = wefti_memory_reserve(layout, n_own, sizeof *s->weights);
    s->sorted.first = wefti_memory_reserve(layout, f->moe.n_experts, sizeof *s->sorted.first);
    s->sorted.n_rows = wefti_memory_reserve(layout, f->moe.n_experts, sizeof *s->sorted.n_rows);
    s->sorted.row = wefti_memory_reserve(layout, wefti_forward_places_max(f, f->max_rows),
                                         sizeof *s->sorted.row);
    s->sorted.place = wefti_memory_reserve(layout, n_routes, sizeof *s->sorted.place);
    if (f->weighs_inputs)
        s->sorted.weight = wefti_memory_reserve(layout, wefti_forward_places_max(f, f->max_rows),
                                                sizeof *s->sorted.weight);
}

/* Those that all threads share. */
static void lay_out_experts(struct wefti_forward *f, struct wefti_memory_layout *layout) {
    size_t rows = f->max_rows, n_routes = rows * f->moe.n_used;
    size_t n_places = wefti_forward_places_max(f, rows);
    f->scores = wefti_memory_reserve(layout, rows * f->score_stride, sizeof *f->scores);
    f->chosen = wefti_memory_reserve(layout, n_routes, sizeof *f->chosen);
    f->route_weights = wefti_memory_reserve(layout, n_routes, sizeof *f->route_weights);
    for (int form = 0; form < WEFT_ACT_COUNT; form++) {
        if (f->uses[form])
            f->sorted[form] = wefti_memory_reserve(layout, n_places, f->act_bytes[form]);
    }
    f->inner = wefti_memory_reserve(layout, n_places * f->inner_stride, sizeof *f->inner);
    f->outer = wefti_memory_reserve(layout, n_places * f->x_stride, sizeof *f->outer);
    if (f->moe.n_latent > 0)
        f->latent = wefti_memory_reserve(layout, rows * f->latent_stride, sizeof *f->latent);
    f->expert_tokens = wefti_memory_reserve(layout, (size_t)f->n_layers * f->moe.n_experts,
                                            sizeof *f->expert_tokens);
}

static void lay_out_indexer(struct wefti_forward *f, struct wefti_memory_layout *layout) {
    size_t rows = f->max_rows;
    f->index_k = wefti_memory_reserve(layout, rows * f->index_k_stride, sizeof *f->index_k);
    f->index_q = wefti_memory_reserve(layout, rows * f->index_q_stride, sizeof *f->index_q);
    f->index_weights =
        wefti_memory_reserve(layout, rows * f->index_weight_stride, sizeof *f->index_weights);
    f->index_scores = wefti_memory_reserve(layout, f->index_room, sizeof *f->index_scores);
    f->seen = wefti_memory_reserve(layout, rows * f->seen_stride, sizeof *f->seen);
}

static void lay_out(struct wefti_forward *f, struct wefti_memory_layout *layout) {
    size_t rows = f->max_rows, grouped = weft_round_up(rows, f->kern->group_rows);
    for (uint32_t kind = 0; kind < f->n_kinds; kind++) {
        f->rope[kind] = wefti_memory_reserve(layout, rows * f->rope_stride, sizeof(float));
        f->tiles[kind] = wefti_memory_reserve(layout, rows, sizeof(struct wefti_forward_attn_tile));
        f->last_tiles[kind] =
            wefti_memory_reserve(layout, rows, sizeof(struct wefti_forward_attn_tile));
        f->last_rows[kind] = wefti_memory_reserve(layout, rows, sizeof(struct weft_attn_row));
    }
    f->x = wefti_memory_reserve(layout, rows * f->x_stride, sizeof *f->x);
    if (f->plain_qk_norm || f->plain_v_norm)
        f->ones = wefti_memory_reserve(layout, f->head_dim, sizeof *f->ones);
    if (f->parallel || f->beside)
        f->read = wefti_memory_reserve(layout, rows * f->x_stride, sizeof *f->read);
    if (f->joined_stride > 0)
        f->joined = wefti_memory_reserve(layout, rows * f->joined_stride, sizeof *f->joined);
    if (f->moe.n_experts > 0) lay_out_experts(f, layout);
    if (f->input_dim > 0)
        f->inputs = wefti_memory_reserve(layout, rows * f->inputs_stride, sizeof *f->inputs);
    if ((!f->coll && (f->adds_apart || f->moe.n_ffn_shared > 0)) || f->input_dim > 0 ||
        f->moe.n_latent > 0)
        f->added = wefti_memory_reserve(layout, rows * f->x_stride, sizeof *f->x);
    struct wefti_memory_layout attention =
        *layout; /* attention and FFN never live at the same time */
    f->q = wefti_memory_reserve(&attention, rows * f->q_stride, sizeof *f->q);
    f->k = wefti_memory_reserve(&attention, rows * f->kv_stride, sizeof *f->k);
    f->v = wefti_memory_reserve(&attention, f->latent_dim ? 0 : rows * f->kv_stride, sizeof *f->v);
    f->attn = wefti_memory_reserve(&attention, rows * f->out_stride, sizeof *f->attn);
    if (f->has_attn_gate)
        f->attn_gate = wefti_memory_reserve(&attention, rows * f->out_stride, sizeof *f->attn_gate);
    f->q_a = wefti_memory_reserve(&attention, rows * f->q_a_stride, sizeof *f->q_a);
    f->heads = wefti_memory_reserve(&attention, rows * f->heads_stride, sizeof *f->heads);
    if (f->indexer.n_heads > 0) lay_out_indexer(f, &attention);
    struct wefti_memory_layout recurrent = *layout; /* and neither does this */
    f->rec_rows = wefti_memory_reserve(&recurrent, rows * f->rec_stride, sizeof *f->rec_rows);
    f->rec_conv = wefti_memory_reserve(&recurrent, rows * f->conv_stride, sizeof *f->rec_conv);
    f->rec_gates = wefti_memory_reserve(&recurrent, rows * f->gate_stride, sizeof *f->rec_gates);
    f->rec_out = wefti_memory_reserve(&recurrent, rows * f->rec_out_stride, sizeof *f->rec_out);
    f->ffn = wefti_memory_reserve(layout, grouped * f->ffn_stride, sizeof *f->ffn);
    if (attention.used > layout->used) layout->used = attention.used;
    if (recurrent.used > layout->used) layout->used = recurrent.used;
    if (!f->coll)
        f->logits = wefti_memory_reserve(layout, WEFTI_FORWARD_HEAD_ROWS * f->logit_stride,
                                         sizeof *f->logits);
    f->parts = wefti_memory_reserve(layout, f->parts_max,
                                    wefti_forward_attn_part_floats(f) * sizeof *f->parts);
    for (int form = 0; form < WEFT_ACT_COUNT; form++) {
        if (f->uses[form])
            f->shared[form] = wefti_memory_reserve(layout, grouped, f->act_bytes[form]);
    }
    f->threads = wefti_memory_reserve(layout, f->n_threads, sizeof *f->threads);
    uint32_t ffn = weft_max_u32(f->n_ffn, f->moe.n_ffn);
    size_t widest = wefti_memory_stride(weft_max_u32(f->n_hidden, weft_max_u32(f->q_dim, ffn)));
    if (f->heads_stride > widest) widest = f->heads_stride;
    if (f->norm_channels > widest) widest = wefti_memory_stride(f->norm_channels);
    if (f->rec_out_stride > widest) widest = f->rec_out_stride;
    if (f->inputs_stride > widest) widest = f->inputs_stride;
    if (f->hidden_stride * f->kern->group_rows > widest)
        widest = f->hidden_stride * f->kern->group_rows;
    for (uint32_t t = 0; t < f->n_threads; t++) {
        struct wefti_forward_scratch s = {0};
        for (int form = 0; form < WEFT_ACT_COUNT; form++) {
            if (f->uses[form])
                s.own[form] =
                    wefti_memory_reserve(layout, WEFTI_FORWARD_OWN_ROWS, f->act_bytes[form]);
        }
        s.wide = wefti_memory_reserve(layout, widest, sizeof *s.wide);
        if (f->score_scale != 1)
            s.beside = wefti_memory_reserve(layout, f->x_stride, sizeof *s.beside);
        s.raw = wefti_memory_reserve(layout, f->n_hidden, sizeof(float));
        s.tile = wefti_memory_reserve(layout, WEFTI_FORWARD_FFN_TILE_FLOATS, sizeof *s.tile);
        s.gate = wefti_memory_reserve(layout, WEFTI_FORWARD_FFN_TILE_FLOATS, sizeof *s.gate);
        if (f->latent_dim) s.heads = wefti_memory_reserve(layout, wefti_forward_latent_bytes(f), 1);
        if (f->moe.n_experts > 0) lay_out_sorted(f, layout, &s);
        if (layout->base) f->threads[t] = s;
    }
}

/* Where all layers are of one kind, that is kind 0. */
static void set_kinds(struct wefti_forward *f, const struct weft_model_params *p) {
    uint32_t n_full = 0;
    memcpy(f->no_window, p->no_window, sizeof f->no_window);
    for (uint32_t i = 0; i < p->n_layers; i++)
        n_full += weft_model_bit(p->no_window, i);
    bool is_mixed = n_full > 0 && n_full < p->n_layers && (p->window || p->local_rope_theta > 0);
    f->n_kinds = is_mixed ? 2 : 1;
    if (is_mixed)
        f->windows[WEFTI_FORWARD_WINDOWED] = p->window;
    else
        f->windows[0] = n_full == p->n_layers ? 0 : p->window;
}

/* Heads of a kind, as any layer of it has them. */
static struct wefti_forward_heads
heads_of_layer(const struct wefti_forward *f, const struct weft_model_params *p, uint32_t layer) {
    struct wefti_forward_heads heads = {
        .head_dim = weft_model_head_dim(p, layer),
        .n_kv_heads =
            weft_max_u32(wefti_weights_kv_heads(f->weights, p, weft_model_is_local(p, layer)), 1),
        .group_heads = p->n_heads / weft_model_kv_heads(p, layer),
        .scale = p->attn_scale,
    };
    heads.rope_dim = weft_model_is_local(p, layer) ? weft_model_local_rope_dim(p) : p->rope_dim;
    if (heads.scale == 0) heads.scale = (float)(1.0 / sqrt((double)heads.head_dim));
    return heads;
}

/* What the rank has of it: rows of q and k may be of all heads. Follows the kinds. */
static void set_heads(struct wefti_forward *f, const struct weft_model_params *p) {
    /* Attention is planned even where the rank of a small model has no head. */
    f->n_heads = weft_max_u32(f->weights->n_heads_max, 1);
    for (uint32_t i = 0; i < f->n_layers; i++) {
        const struct wefti_forward_heads heads = heads_of_layer(f, p, i);
        f->of_kind[wefti_forward_layer_kind(f, i)] = heads;
        f->head_dim = weft_max_u32(f->head_dim, heads.head_dim);
        f->rope_dim = weft_max_u32(f->rope_dim, heads.rope_dim);
    }
    size_t n_k = 0;
    for (uint32_t i = 0; i < f->n_layers; i++) {
        const struct wefti_weights_layer *layer = &f->weights->layers[i];
        const struct wefti_forward_heads *heads = wefti_forward_heads_of(f, i);
        /* The cache takes as many kv heads of any layer of the kind. */
        const size_t cached = (size_t)(layer->k_first + heads->n_kv_heads) * heads->head_dim;
        n_k = cached > n_k ? cached : n_k;
        n_k = layer->k.n > n_k ? layer->k.n : n_k;
        f->q_dim = weft_max_u32(f->q_dim, layer->q.n);
        f->n_ffn = weft_max_u32(f->n_ffn, layer->gate.n);
    }
    if (p->kv_lora > 0) f->q_dim = f->n_heads * p->head_dim;
    f->kv_stride = wefti_memory_stride(n_k);
}

static void set_latent(struct wefti_forward *f, const struct weft_model_params *p) {
    uint32_t head_dim = p->nope_dim + p->rope_dim;
    f->latent_dim = p->kv_lora;
    f->q_lora = p->q_lora;
    f->nope_dim = p->nope_dim;
    f->v_dim = p->v_dim;
    for (uint32_t kind = 0; kind < f->n_kinds; kind++)
        f->of_kind[kind].scale = (float)(p->yarn_mscale * p->yarn_mscale / sqrt((double)head_dim));
    f->q_a_stride = wefti_memory_stride(p->q_lora);
    f->heads_stride = wefti_memory_stride((size_t)f->n_heads * weft_max_u32(head_dim, p->v_dim));
}

static void set_act(struct wefti_forward *f, const struct weft_model_params *p) {
    bool is_encoder = p->encoder.is_on && !p->encoder.as_decoder;
    bool is_exact = is_encoder ? !p->encoder.tanh_gelu : p->block.act == WEFT_MODEL_ACT_GELU_ERF;
    f->act_mul = !p->gelu   ? f->kern->silu_mul
                 : is_exact ? f->kern->gelu_erf_mul
                            : f->kern->gelu_mul;
}

static void set_shape(struct wefti_forward *f, const struct weft_model_params *p) {
    f->n_layers = p->n_layers;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const bool keeps =
            !weft_model_bit(p->recurrent.no_attention, i) && weft_model_kv_layer(p, i) == i;
        if (keeps || weft_model_bit(p->recurrent.layers, i)) f->narrow_layer = i;
    }
    set_kinds(f, p);
    set_heads(f, p);
    f->n_hidden = p->n_hidden;
    f->moe = p->moe;
    f->rms_eps = p->rms_eps;
    if (p->kv_lora > 0) set_latent(f, p);
    f->embed_scale = p->embed_scale;
    f->residual_scale = p->residual_scale;
    f->logit_scale = p->logit_scale;
    memcpy(f->no_rope, p->no_rope, sizeof f->no_rope);
    f->rope_interleaved = p->rope_interleaved;
    set_act(f, p);
    f->layer_norm = (p->encoder.is_on && !p->encoder.as_decoder) || p->block.layer_norm;
    f->parallel = p->block.parallel;
    for (uint32_t i = 0; i < p->n_layers; i++)
        f->beside |=
            weft_model_bit(p->recurrent.layers, i) && !weft_model_bit(p->recurrent.no_attention, i);
    f->has_attn_gate = p->block.attn_gate;
    f->plain_v_norm = p->unlike.plain_v_norm;
    f->input_dim = p->unlike.layer_input;
    f->score_scale = p->unlike.ffn_beside ? (float)(1 / sqrt((double)p->n_hidden)) : 1;
    f->one_norm = p->block.one_norm;
    f->norms_turned = p->block.norms_turned;
    f->q_step = p->block.q_step;
    f->q_shift = p->block.q_shift;
    f->q_unturned = p->block.q_unturned;
    f->plain_qk_norm = p->block.plain_qk_norm;
    f->in_chunks = p->block.in_chunks;
    f->act_limit = p->block.act == WEFT_MODEL_ACT_CLAMPED ? p->block.act_limit : 0;
    f->weighs_inputs = p->block.weighs_inputs;
    f->squares_relu = p->block.act == WEFT_MODEL_ACT_RELU2;
    f->gate_scale = p->block.gate_scale;
    f->attention_scale = p->block.attention_scale;
    f->recurrent_scale = p->block.recurrent_scale;
    f->ffn_scale = p->block.ffn_scale;
    wefti_forward_recurrent_set(f, p);
    f->q_beta = p->block.q_beta;
    f->has_positions = p->encoder.n_positions > 0;
    f->first_position = p->encoder.first_position;
    f->qk_norm_all = p->qk_norm_all;
    f->head_norms = p->block.head_norms;
    f->attn_soft_cap = p->attn_soft_cap;
    f->logit_soft_cap = p->logit_soft_cap;
    f->x_stride = wefti_memory_stride(f->n_hidden);
    f->hidden_stride = f->q_a_stride > f->x_stride ? f->q_a_stride : f->x_stride;
    if (f->weights->eh_proj.n > 0) f->joined_stride = wefti_memory_stride(f->weights->eh_proj.k);
    f->q_stride = wefti_memory_stride(f->q_dim);
    f->out_stride = wefti_memory_stride((size_t)f->n_heads * wefti_forward_value_dim(f));
    f->ffn_stride = wefti_memory_stride(weft_max_u32(f->n_ffn, f->input_dim));
    f->inputs_stride = wefti_memory_stride((size_t)f->n_layers * f->input_dim);
    f->logit_stride = p->encoder.is_on ? 0 : wefti_memory_stride(p->n_vocab);
    f->score_stride = wefti_memory_stride(p->moe.n_experts);
    f->inner_stride = wefti_memory_stride(p->moe.n_ffn);
    f->expert_width = weft_model_expert_width(p);
    f->latent_stride = wefti_memory_stride(f->expert_width);
    f->adds_apart = p->residual_scale != 1 || p->post_norms || p->encoder.norms_sums ||
                    p->unlike.layer_scale || p->block.attention_scale != 0 ||
                    p->block.recurrent_scale != 0 || p->block.ffn_scale != 0;
    f->shared_at = f->x_stride;
    if (f->weights->moves_groups) f->shared_at *= WEFTI_WEIGHTS_EXPERT_GROUPS / f->n_ranks;
    f->part_stride = f->shared_at + (p->moe.n_ffn_shared > 0 ? f->x_stride : 0);
    f->rope_stride = wefti_memory_stride(f->rope_dim);
}

/* Whether layers of a kind turn by the angles of local attention. A model whose layers are all
 * alike may have only layers with a window. */
static bool turns_locally(const weft_model *model, const struct wefti_forward *f, uint32_t kind) {
    bool all_full = weft_model_bit(weft_model_params(model)->no_window, 0);
    return f->n_kinds == 1 ? !all_full : kind == WEFTI_FORWARD_WINDOWED;
}

/* Everything that follows from the model and the options. */
static void set_up(struct wefti_forward *f, const struct wefti_forward_config *config) {
    f->kern = config->kern;
    f->pool = config->pool;
    f->profile = config->profile;
    f->weights = config->weights;
    f->kv = config->kv;
    f->states = config->states;
    f->coll = config->coll;
    f->rank = f->weights->rank;
    f->n_ranks = f->weights->n_ranks;
    f->n_threads = wefti_pool_n_threads(f->pool);
    f->max_rows = config->max_batched_tokens;
    f->is_exact = config->exact;
    set_shape(f, weft_model_params(config->model));
    wefti_forward_index_set(f, weft_model_params(config->model), config->max_model_len);
    wefti_forward_acts_note_forms(f);
}

weft_err wefti_forward_measure(const struct wefti_forward_config *config, bool is_most,
                               size_t *bytes_out, struct weft_errmsg *why) {
    struct wefti_forward *f = calloc(1, sizeof *f);
    *bytes_out = 0;
    if (!f) return weft_err_set(why, WEFT_E_NOMEM, "no memory for the forward pass");
    set_up(f, config);
    struct wefti_memory_layout layout = {0};
    /* Most steps need few parts or none. */
    if (is_most) f->parts_max = wefti_forward_attn_parts_for(f, config->max_model_len);
    lay_out(f, &layout);
    *bytes_out = layout.used + (f->coll ? wefti_forward_rank_bytes(f) : 0);
    if (is_most && config->lora_rank_max > 0)
        *bytes_out += wefti_forward_lora_bytes(f, config->lora_rank_max);
    free(f);
    return WEFT_OK;
}

weft_err wefti_forward_new(const struct wefti_forward_config *config,
                           struct wefti_forward **forward_out, struct weft_errmsg *why) {
    const weft_model *model = config->model;
    *forward_out = NULL;
    struct wefti_forward *f = calloc(1, sizeof *f);
    if (!f) return weft_err_set(why, WEFT_E_NOMEM, "no memory for the forward pass");
    set_up(f, config);
    f->parts_max = wefti_forward_attn_parts_max(f, config->max_model_len);
    struct wefti_memory_layout layout = {0};
    lay_out(f, &layout);
    f->map_bytes = layout.used;
    f->map = wefti_memory_map_near(f->map_bytes, config->home);
    if (!f->map) {
        size_t bytes = f->map_bytes;
        free(f);
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %zu bytes of activations", bytes);
    }
    layout = (struct wefti_memory_layout){.base = f->map};
    lay_out(f, &layout);
    for (uint32_t i = 0; f->ones && i < f->head_dim; i++)
        f->ones[i] = 1;
    weft_err err = WEFT_OK;
    if (config->lora_rank_max > 0 && wefti_forward_lora_new(f, config->lora_rank_max, config->home))
        err = weft_err_set(why, WEFT_E_NOMEM, "no memory for what adapters add");
    if (!err && f->coll) err = wefti_forward_join_ranks(f, why);
    if (err) {
        wefti_forward_free(f);
        return err;
    }
    for (uint32_t kind = 0; kind < f->n_kinds; kind++) {
        for (int is_long = 0; is_long < 2; is_long++)
            weft_model_rope(model, turns_locally(model, f, kind), is_long,
                            &f->ropes[kind][is_long]);
    }
    for (uint32_t i = 0; i < f->n_layers; i++) {
        if (f->weights->layers[i].no_attention) continue;
        f->block_kinds[wefti_forward_layer_kind(f, i)] = wefti_kv_cache_kind(f->kv, i);
    }
    *forward_out = f;
    return WEFT_OK;
}

const void *wefti_forward_memory(const struct wefti_forward *forward, size_t *bytes_out) {
    *bytes_out = forward->map_bytes;
    return forward->map;
}

void wefti_forward_free(struct wefti_forward *forward) {
    if (!forward) return;
    wefti_forward_lora_free(forward);
    wefti_memory_unmap(forward->map, forward->map_bytes);
    free(forward);
}
