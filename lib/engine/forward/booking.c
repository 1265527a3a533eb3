/* What a pass has to read and to compute follows from the matrices and the rows, so it is booked
 * once a pass, not by the threads that do it. */
#include "forward/booking.h"

static void add_calls(struct wefti_profile *profile, enum weft_eng_op op, uint64_t n_calls) {
    wefti_profile_counts_of(profile, op)->n_calls += n_calls;
}

/* One call of `op` over the products `matrices`. */
static void book_products(struct wefti_profile *profile, enum weft_eng_op op, uint32_t n_rows,
                          const struct wefti_weights_matrix *const *matrices, uint32_t n_matrices) {
    struct wefti_profile_counts *counts = wefti_profile_counts_of(profile, op);
    uint64_t n_most = 0;
    for (uint32_t i = 0; i < n_matrices; i++) {
        const struct wefti_weights_matrix *m = matrices[i];
        uint64_t n_weights = (uint64_t)m->n * m->k;
        counts->bytes += (uint64_t)m->n_panels * m->panel_bytes;
        counts->ops += 2 * n_weights * n_rows;
        if (n_weights <= n_most) continue; /* true of matrices that are not there, too */
        n_most = n_weights;
        counts->peak = weft_kern_peak_of(weft_kern_act_of(m->kind));
    }
}

/* The products of all heads. */
static void book_heads(struct wefti_profile *profile, enum weft_eng_op op, uint32_t n_rows,
                       const struct wefti_weights_heads *heads, uint32_t n_heads) {
    struct wefti_profile_counts *counts = wefti_profile_counts_of(profile, op);
    counts->bytes += n_heads * heads->head_bytes;
    counts->ops += 2 * (uint64_t)heads->first.n * heads->first.k * n_heads * n_rows;
}

/* A layer that goes through so many rows, and after K and V through `n_rows`. */
static void book_layer(struct wefti_profile *profile, const struct wefti_weights_layer *layer,
                       const struct wefti_forward_costs *costs, uint32_t n_all, uint32_t n_rows) {
    static const struct wefti_weights_matrix none = {.n = 0};
    bool is_latent = layer->latent_norm > 0, scores = costs->index_ops > 0;
    const struct wefti_weights_matrix *rec = layer->rec_in;
    const struct wefti_weights_matrix *qkv[] = {&layer->q,
                                                &layer->k,
                                                is_latent ? &layer->q_a : &layer->v,
                                                &layer->attn_gate,
                                                &layer->index_k,
                                                scores ? &layer->index_q : &none,
                                                scores ? &layer->index_weights : &none,
                                                &rec[0],
                                                &rec[1],
                                                &rec[2],
                                                &rec[3],
                                                &rec[4],
                                                &rec[5]};
    _Static_assert(WEFT_MODEL_RECURRENT_PARTS == 6, "all of a recurrent layer's row");
    const struct wefti_weights_matrix *rec_out[] = {&layer->rec_out};
    const struct wefti_weights_matrix *gate_up[] = {&layer->gate, &layer->up, &layer->input_gate};
    const struct wefti_weights_matrix *o[] = {&layer->o},
                                      *down[] = {&layer->down, &layer->input_proj};
    const struct wefti_weights_matrix *router[] = {&layer->router, &layer->latent_in},
                                      *combine[] = {&layer->latent_out};
    for (uint32_t op = WEFT_ENG_OP_ATTN_NORM; op <= WEFT_ENG_OP_DOWN; op++) {
        if (op == WEFT_ENG_OP_SCAN && !layer->rec.is_there) continue;
        if (op == WEFT_ENG_OP_INDEX && layer->index_k.n == 0) continue;
        add_calls(profile, (enum weft_eng_op)op, op <= WEFT_ENG_OP_ROPE_KV || n_rows > 0);
    }
    book_products(profile, WEFT_ENG_OP_QKV, n_all, qkv, sizeof qkv / sizeof qkv[0]);
    book_products(profile, WEFT_ENG_OP_O, n_all, rec_out, 1);
    if (is_latent) book_heads(profile, WEFT_ENG_OP_QKV, n_all, &layer->up_k, costs->n_heads);
    if (n_rows == 0) return;
    if (is_latent) book_heads(profile, WEFT_ENG_OP_O, n_rows, &layer->up_v, costs->n_heads);
    book_products(profile, WEFT_ENG_OP_O, n_rows, o, 1);
    book_products(profile, WEFT_ENG_OP_GATE_UP, n_rows, gate_up, 3);
    book_products(profile, WEFT_ENG_OP_DOWN, n_rows, down, 2);
    if (!layer->experts) return;
    book_products(profile, WEFT_ENG_OP_ROUTE, n_rows, router, 2);
    book_products(profile, WEFT_ENG_OP_COMBINE, n_rows, combine, 1);
    add_calls(profile, WEFT_ENG_OP_ROUTE, 1);
    add_calls(profile, WEFT_ENG_OP_COMBINE, 1);
}

void wefti_forward_book_expert(struct wefti_profile *profile,
                               const struct wefti_weights_expert *expert, uint32_t n_rows) {
    const struct wefti_weights_matrix *gate_up[] = {&expert->gate, &expert->up},
                                      *down[] = {&expert->down};
    book_products(profile, WEFT_ENG_OP_GATE_UP, n_rows, gate_up, 2);
    book_products(profile, WEFT_ENG_OP_DOWN, n_rows, down, 1);
}

/* q·k and p·v for every position and head; K and V of a position for every head that has them. What
 * int8 meets has two parts. */
void wefti_forward_cost_attention(struct wefti_forward_costs *costs, const struct weft_kv_layer *kv,
                                  uint64_t n_seen, uint64_t n_read) {
    uint32_t parts = costs->attention_peak == WEFT_PEAK_INT8 ? 2 : 1;
    costs->attention_ops +=
        2 * parts * n_seen * costs->n_heads * (kv->head_dim + weft_kv_value_dim(kv));
    costs->attention_bytes +=
        weft_kv_n_planes(kv) * n_read * weft_kv_block_bytes(kv) / kv->block_size;
}

void wefti_forward_cost_index(struct wefti_forward_costs *costs, const struct weft_kv_layer *keys,
                              uint32_t n_heads, uint64_t n_scored) {
    uint32_t parts = costs->attention_peak == WEFT_PEAK_INT8 ? 2 : 1;
    costs->index_ops += 2 * parts * n_scored * n_heads * keys->head_dim;
    costs->index_bytes += n_scored * weft_kv_block_bytes(keys) / keys->block_size;
}

static void book_attention(struct wefti_profile *profile, const struct wefti_forward_costs *costs) {
    struct wefti_profile_counts *counts = wefti_profile_counts_of(profile, WEFT_ENG_OP_ATTENTION);
    counts->ops += costs->attention_ops;
    counts->bytes += costs->attention_bytes;
    counts->peak = costs->attention_peak;
    counts = wefti_profile_counts_of(profile, WEFT_ENG_OP_INDEX);
    counts->ops += costs->index_ops;
    counts->bytes += costs->index_bytes;
    counts->peak = costs->attention_peak;
}

void wefti_forward_book_pass(struct wefti_profile *profile, const struct wefti_weights *weights,
                             const struct wefti_forward_costs *costs) {
    add_calls(profile, WEFT_ENG_OP_EMBED, 1);
    const struct wefti_weights_matrix *inputs[] = {&weights->input_model};
    if (costs->n_rows > 0) book_products(profile, WEFT_ENG_OP_EMBED, costs->n_rows, inputs, 1);
    for (uint32_t i = 0; i < weights->n_layers && costs->n_rows > 0; i++) {
        const uint32_t n_all = i > costs->narrow_layer ? costs->n_last_rows : costs->n_rows,
                       n_rows = i >= costs->narrow_layer ? costs->n_last_rows : costs->n_rows;
        if (n_all > 0) book_layer(profile, &weights->layers[i], costs, n_all, n_rows);
    }
    if (costs->n_rows > 0) book_attention(profile, costs);
    wefti_profile_counts_of(profile, WEFT_ENG_OP_SCAN)->bytes += costs->state_bytes;
    const struct wefti_weights_matrix *head[] = {&weights->head};
    for (uint32_t i = 0; i < costs->n_head_calls; i++) {
        book_products(profile, WEFT_ENG_OP_HEAD, 0, head, 1);
    }
    wefti_profile_counts_of(profile, WEFT_ENG_OP_HEAD)->ops +=
        2 * (uint64_t)head[0]->n * head[0]->k * costs->n_logit_rows;
    add_calls(profile, WEFT_ENG_OP_HEAD_NORM, costs->n_head_calls);
    add_calls(profile, WEFT_ENG_OP_HEAD, costs->n_head_calls);
    add_calls(profile, WEFT_ENG_OP_SAMPLE, costs->n_logit_rows);
}
