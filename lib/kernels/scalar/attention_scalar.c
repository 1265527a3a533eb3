/* The definition of attention: one row, one head, one tile of 64 tokens at a time, tiles into
 * spans, spans into the result. */
#include "kern_internal.h"

#include "convert.h"
#include "exp_f32.h"

/* Element `at` of a group; int8: its code. */
static float load(const void *group, size_t at, enum weft_kv_dtype dtype) {
    if (dtype == WEFT_KV_F32) return ((const float *)group)[at];
    if (dtype == WEFT_KV_INT8) return (float)((const int8_t *)group)[at];
    uint16_t half = ((const uint16_t *)group)[at];
    return dtype == WEFT_KV_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

/* One head of one row, and the kv head that it reads. */
struct query {
    const struct weft_attn_args *args;
    const struct weft_attn_row *row;
    uint32_t kv_head;
    const float *q; /* [head_dim] */
    bool in_codes;  /* int8 is met by integers */
    float q_scale;  /* of these codes */
    int32_t codes[WEFT_KV_DIM_MAX];
};

/* x = scale * code, as near as codes can be; returns the scale. Where a number is not finite it is
 * NaN, and codes are 0. */
static float to_codes(const float *x, uint32_t n, int32_t *codes) {
    float max = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        float magnitude = fabsf(x[i]);
        if (!(magnitude <= max) && !isnan(max)) max = magnitude; /* NaN, too: it stays */
    }
    bool is_used = max >= Q8_TINY && max < INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        codes[i] = is_used ? (int32_t)rintf(x[i] * ((float)ATTN_CODE_MAX / max)) : 0;
    }
    if (max < Q8_TINY) return 0.0f;
    return is_used ? max / (float)ATTN_CODE_MAX : NAN;
}

/* One token of one kv head: its group of 16, and its place there. */
struct place {
    const void *k, *v; /* a latent's are both K */
    uint32_t token;
};

static struct place find(const struct query *query, uint32_t pos) {
    const struct weft_kv_layer *kv = &query->args->kv;
    uint32_t block = query->row->block_table[pos / kv->block_size], token = pos % kv->block_size;
    size_t at = kv_group_at(kv, block, query->kv_head, token);
    const uint8_t *k = (const uint8_t *)kv->k + at;
    return (struct place){k, kv->v_dim ? k : (const uint8_t *)kv->v + at, token % ATTN_SUB};
}

static float key_at(const struct weft_kv_layer *kv, const struct place *place, uint32_t d) {
    return load(place->k, kv_k_at(weft_kv_unit(kv->dtype), place->token, d), kv->dtype);
}

static float value_at(const struct weft_kv_layer *kv, const struct place *place, uint32_t d) {
    if (kv->v_dim) return key_at(kv, place, d);
    size_t at = kv_v_at(weft_kv_unit(kv->dtype), kv->head_dim, place->token, d);
    return load(place->v, at, kv->dtype);
}

static float score(const struct query *query, uint32_t pos) {
    const struct weft_attn_args *args = query->args;
    const struct weft_kv_layer *kv = &args->kv;
    struct place place = find(query, pos);
    float dot = 0.0f, factor = args->scale;
    if (query->in_codes) {
        int32_t whole = 0;
        for (uint32_t d = 0; d < kv->head_dim; d++) {
            whole += query->codes[d] * (int32_t)key_at(kv, &place, d);
        }
        dot = (float)whole;
        factor = query->q_scale * args->scale;
    } else {
        for (uint32_t d = 0; d < kv->head_dim; d++) {
            dot += query->q[d] * key_at(kv, &place, d);
        }
    }
    if (kv->dtype == WEFT_KV_INT8) dot *= kv_scales(place.k, kv->head_dim)[place.token];
    float value = dot * factor;
    return args->soft_cap > 0 ? args->soft_cap * tanh_f32(value / args->soft_cap) : value;
}

/* What the value of the token at `pos` is multiplied by. */
static float weight_of(const struct query *query, uint32_t pos, float p) {
    const struct weft_kv_layer *kv = &query->args->kv;
    if (kv->dtype != WEFT_KV_INT8) return p;
    struct place place = find(query, pos);
    return p > 0 ? p * kv_scales(place.v, kv->head_dim)[place.token] : 0.0f;
}

/* Positions that are folded together, by their places in sums; those that are seen. */
struct tile {
    uint32_t pos[ATTN_TILE];
    uint64_t seen; /* a bit per place */
};

static bool sees(const struct tile *tile, uint32_t j) {
    return tile->seen >> j & 1;
}

/* out = out * fade + the sum of weights times values. */
static void add_values(const struct query *query, const struct tile *tile, const float *weights,
                       float fade, float *out) {
    const struct weft_kv_layer *kv = &query->args->kv;
    for (uint32_t d = 0; d < weft_kv_value_dim(kv); d++) {
        out[d] *= fade;
    }
    for (uint32_t j = 0; j < ATTN_TILE; j++) {
        if (!sees(tile, j)) continue;
        struct place place = find(query, tile->pos[j]);
        for (uint32_t d = 0; d < weft_kv_value_dim(kv); d++) {
            out[d] += weights[j] * value_at(kv, &place, d);
        }
    }
}

/* The same with weights as codes. */
static void add_values_in_codes(const struct query *query, const struct tile *tile,
                                const float *weights, float fade, float *out) {
    const struct weft_kv_layer *kv = &query->args->kv;
    int32_t codes[ATTN_TILE], sums[WEFT_KV_DIM_MAX] = {0};
    float scale = to_codes(weights, ATTN_TILE, codes);
    for (uint32_t j = 0; j < ATTN_TILE; j++) {
        if (!sees(tile, j)) continue;
        struct place place = find(query, tile->pos[j]);
        for (uint32_t d = 0; d < weft_kv_value_dim(kv); d++) {
            sums[d] += codes[j] * (int32_t)value_at(kv, &place, d);
        }
    }
    for (uint32_t d = 0; d < weft_kv_value_dim(kv); d++) {
        out[d] = fmaf((float)sums[d], scale, out[d] * fade);
    }
}

/* `sum` takes in one tile. */
static void fold_tile(const struct query *query, const struct tile *tile, struct span_sum *sum) {
    float p[ATTN_TILE] = {0}, weights[ATTN_TILE] = {0}, max = sum->max;
    for (uint32_t j = 0; j < ATTN_TILE; j++) {
        if (!sees(tile, j)) continue;
        p[j] = score(query, tile->pos[j]);
        if (p[j] > max) max = p[j];
    }
    float fade = exp_f32(sum->max - max); /* 0 for the first tile: the maximum is -inf */
    for (uint32_t j = 0; j < ATTN_TILE; j++) {
        if (!sees(tile, j)) continue;
        p[j] = exp_f32(p[j] - max);
        weights[j] = weight_of(query, tile->pos[j], p[j]);
    }
    if (query->in_codes)
        add_values_in_codes(query, tile, weights, fade, sum->out);
    else
        add_values(query, tile, weights, fade, sum->out);
    for (uint32_t width = ATTN_TILE / 2; width > 0; width /= 2) {
        for (uint32_t j = 0; j < width; j++) {
            p[j] += p[j + width];
        }
    }
    sum->total = sum->total * fade + p[0];
    sum->max = max;
}

/* The positions begin..end, which are of one tile at absolute positions. */
static struct tile tile_of(uint32_t begin, uint32_t end) {
    struct tile tile = {.seen = 0};
    for (uint32_t pos = begin; pos < end; pos++) {
        tile.pos[pos % ATTN_TILE] = pos;
        tile.seen |= (uint64_t)1 << pos % ATTN_TILE;
    }
    return tile;
}

/* The next groups of which a set has any, from *pos_io on; that is where the groups after them begin. */
static struct tile chosen_tile(const uint64_t *set, uint32_t *pos_io, uint32_t end) {
    struct tile tile = {.seen = 0};
    uint32_t n = 0;
    for (; *pos_io < end && n < ATTN_TILE; *pos_io += ATTN_SUB) {
        bool is_chosen = false;
        for (uint32_t i = 0; i < ATTN_SUB; i++) {
            if (!weft_attn_bit(set, *pos_io + i)) continue;
            tile.pos[n + i] = *pos_io + i;
            tile.seen |= (uint64_t)1 << (n + i);
            is_chosen = true;
        }
        n += is_chosen ? ATTN_SUB : 0;
    }
    return tile;
}

/* A head of a row, and the kv head that it reads. */
struct reader {
    uint32_t row, head, kv_head;
};

/* All heads of a range, one row after another. */
static struct reader first_reader(const struct weft_attn_args *args,
                                  const struct weft_attn_range *range) {
    uint32_t kv_head = range->kv_head_begin;
    return (struct reader){range->row_begin, heads_of(args, kv_head).begin, kv_head};
}

static struct reader next_reader(const struct weft_attn_args *args,
                                 const struct weft_attn_range *range, struct reader at) {
    if (++at.head < heads_of(args, at.kv_head).end) return at;
    if (++at.kv_head < range->kv_head_end) return at; /* whose heads come next */
    struct reader next = first_reader(args, range);
    next.row = at.row + 1;
    return next;
}

static void fold_span(const struct weft_attn_args *args, struct reader reader, uint32_t span,
                      struct span_sum *sum) {
    const struct weft_attn_row *row = &args->rows[reader.row];
    uint32_t head_dim = args->kv.head_dim, high = weft_attn_high(row, args->window);
    struct query query = {.args = args,
                          .row = row,
                          .kv_head = reader.kv_head,
                          .q = args->q + reader.row * args->q_stride +
                               (size_t)reader.head * head_dim,
                          .in_codes = args->kv.dtype == WEFT_KV_INT8 && !args->exact};
    if (query.in_codes) query.q_scale = to_codes(query.q, head_dim, query.codes);
    uint32_t first = span * WEFT_ATTN_SPAN,
             low = weft_attn_first(row->pos, args->window, args->in_chunks);
    uint32_t begin = low > first ? low : first,
             end = weft_min_u32(first + WEFT_ATTN_SPAN, high + 1);
    memset(sum->out, 0, weft_kv_value_dim(&args->kv) * sizeof *sum->out);
    sum->max = -INFINITY;
    sum->total = 0.0f;
    const uint64_t *set = seen_by(args, reader.row);
    for (uint32_t next = begin; begin < end; begin = next) {
        struct tile tile;
        if (set) {
            tile = chosen_tile(set, &next, end);
        } else {
            next = weft_min_u32((begin / ATTN_TILE + 1) * ATTN_TILE, end);
            tile = tile_of(begin, next);
        }
        if (tile.seen) fold_tile(&query, &tile, sum);
    }
}

/* `sum` takes in the next span's. */
static void join(struct span_sum *sum, const struct span_sum *next, uint32_t value_dim) {
    float max = next->max > sum->max ? next->max : sum->max;
    float keep = exp_f32(sum->max - max), add = exp_f32(next->max - max);
    for (uint32_t d = 0; d < value_dim; d++) {
        sum->out[d] = sum->out[d] * keep + next->out[d] * add;
    }
    sum->total = sum->total * keep + next->total * add;
    sum->max = max;
}

/* It takes weight and has no value. Source: Xiao et al. 2023 (arXiv 2309.17453), a learned score per head as
 * gpt-oss has it. */
static void add_sink(struct span_sum *sum, float sink, uint32_t value_dim) {
    float max = sink > sum->max ? sink : sum->max;
    float keep = exp_f32(sum->max - max);
    for (uint32_t d = 0; d < value_dim; d++) {
        sum->out[d] *= keep;
    }
    sum->total = sum->total * keep + exp_f32(sink - max);
    sum->max = max;
}

static void attention_span(const struct weft_attn_args *args, const struct weft_attn_range *range,
                           uint32_t span, const struct weft_attn_parts *parts) {
    check_attn_args(args, range);
    uint32_t value_dim = weft_kv_value_dim(&args->kv);
    for (struct reader at = first_reader(args, range); at.row < range->row_end;
         at = next_reader(args, range, at)) {
        const struct weft_attn_row *row = &args->rows[at.row];
        uint32_t low = weft_attn_first(row->pos, args->window, args->in_chunks);
        if (!sees_span(low, weft_attn_high(row, args->window), span)) continue;
        if (!has_of_span(seen_by(args, at.row), row->pos, span)) continue;
        struct span_sum sum = {.out =
                                   part_at(args, parts, at.row - range->row_begin, span, at.head)};
        fold_span(args, at, span, &sum);
        sum.out[value_dim] = sum.max;
        sum.out[value_dim + 1] = sum.total;
    }
}

/* Spans in ascending order: from `parts`, or (NULL) computed here. */
static void one_head(const struct weft_attn_args *args, const struct weft_attn_parts *parts,
                     uint32_t row_begin, struct reader reader) {
    uint32_t row = reader.row, head = reader.head;
    uint32_t value_dim = weft_kv_value_dim(&args->kv);
    uint32_t high = weft_attn_high(&args->rows[row], args->window);
    float values[WEFT_KV_DIM_MAX];
    struct span_sum sum = {.out = args->out + row * args->out_stride + (size_t)head * value_dim};
    uint32_t first =
        weft_attn_first(args->rows[row].pos, args->window, args->in_chunks) / WEFT_ATTN_SPAN;
    const uint64_t *seen = seen_by(args, row);
    bool is_first = true;
    for (uint32_t span = first; span <= high / WEFT_ATTN_SPAN; span++) {
        struct span_sum next = {.out = values};
        if (!has_of_span(seen, args->rows[row].pos, span)) continue;
        if (parts) {
            next.out = part_at(args, parts, row - row_begin, span, head);
            next.max = next.out[value_dim];
            next.total = next.out[value_dim + 1];
        } else {
            fold_span(args, reader, span, &next);
        }
        if (is_first) {
            memcpy(sum.out, next.out, value_dim * sizeof(float));
            sum.max = next.max;
            sum.total = next.total;
        } else {
            join(&sum, &next, value_dim);
        }
        is_first = false;
    }
    if (args->sinks) add_sink(&sum, args->sinks[head], value_dim);
    float inverse = 1.0f / sum.total;
    for (uint32_t d = 0; d < value_dim; d++) {
        sum.out[d] *= inverse;
    }
}

static void attention_join(const struct weft_attn_args *args, const struct weft_attn_range *range,
                           const struct weft_attn_parts *parts) {
    check_attn_args(args, range);
    for (struct reader at = first_reader(args, range); at.row < range->row_end;
         at = next_reader(args, range, at)) {
        one_head(args, parts, range->row_begin, at);
    }
}

static void attention(const struct weft_attn_args *args, const struct weft_attn_range *range) {
    attention_join(args, range, NULL);
}

static float index_score(const struct query *head, float weight, uint32_t pos) {
    float x = score(head, pos);
    return weight * (x > 0.0f ? x : 0.0f);
}

static void index_scores(const struct weft_index_args *args, uint32_t begin, uint32_t end,
                         float *scores) {
    check_index_args(args, begin, end);
    const uint32_t dim = args->kv.head_dim;
    const struct weft_attn_args attn = {.kv = args->kv, .exact = args->exact, .scale = args->scale};
    const struct weft_attn_row row = {.block_table = args->block_table};
    for (uint32_t pos = begin; pos < end; pos++) {
        scores[pos - begin] = 0.0f;
    }
    for (uint32_t h = 0; h < args->n_heads; h++) {
        struct query head = {.args = &attn,
                             .row = &row,
                             .q = args->q + (size_t)h * dim,
                             .in_codes = args->kv.dtype == WEFT_KV_INT8 && !args->exact};
        if (head.in_codes) head.q_scale = to_codes(head.q, dim, head.codes);
        for (uint32_t pos = begin; pos < end; pos++) {
            scores[pos - begin] += index_score(&head, args->weights[h], pos);
        }
    }
}

void wefti_kern_fill_attention_scalar(struct weft_kern_table *table) {
    table->attention = attention;
    table->attention_span = attention_span;
    table->attention_join = attention_join;
    table->index_scores = index_scores;
    table->attention_peak[WEFT_KV_INT8] = WEFT_PEAK_INT8;
}
