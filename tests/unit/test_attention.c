/* Attention on every table: right against a softmax in double, and for each row the same bits with
 * any block size and chunk, with its spans summed by one call or by many, and with any other
 * contents of the cache. */
#include <stdio.h>

#include "kernels_test.h"

#include "inside/kernels/convert.h"
#ifdef __x86_64__
#include "attention_amx_model.h"
#endif

enum { DIM_MAX = 640 };

/* Sanitizers look at places, which a few sizes reach, and take ten times as long. */
#ifdef WEFT_SANITIZED
#define ROUNDS(n) (((n) + 2) / 3)
#else
#define ROUNDS(n) (n)
#endif

static uint64_t seed;

/* All of the CPU's; and the last one has tiles by a model, if it can. */
static uint32_t attention_tables(struct weft_kern_table tables[TABLES_MAX]) {
    uint32_t n = all_tables(tables);
#ifdef __x86_64__
    struct wefti_kern_features features = wefti_kern_features_detect();
    if (features.vnni) {
        assert_true(n < TABLES_MAX);
        wefti_kern_table_build(&tables[n], WEFT_ISA_AVX512, features);
        tables[n].name = "tiles by a model";
        fill_attention_amx_model(&tables[n++]);
    }
#endif
    return n;
}

/* A sequence: its keys and values as f32, and queries for each of its positions. */
struct sequence {
    uint32_t len, n_heads, n_kv_heads, head_dim;
    uint32_t v_dim;   /* latent: values are the first so many elements of keys; else 0 */
    float *k, *v, *q; /* [len][heads][head_dim] */
    uint32_t window;
    bool both;      /* rows see what comes after them, too */
    bool exact;     /* bf16 and int8 are met as f32 */
    float soft_cap; /* 0: none */
    bool in_chunks; /* its window is a chunk */
    float *sinks;   /* [n_heads], or NULL */
    uint64_t *
        seen; /* what each position sees, those from seen_from on, seen_stride words apart; or NULL */
    size_t seen_stride;
    uint32_t seen_from;
};

static void make_sequence(struct sequence *s, uint32_t len, uint32_t n_kv_heads, uint32_t group,
                          uint32_t head_dim, enum flavour flavour) {
    *s = (struct sequence){
        .len = len, .n_heads = n_kv_heads * group, .n_kv_heads = n_kv_heads, .head_dim = head_dim};
    s->exact = weft_rand_below(&seed, 2);
    if (weft_rand_below(&seed, 3) == 0) s->soft_cap = 0.25f * (float)between(&seed, 1, 200);
    size_t kv_n = (size_t)len * n_kv_heads * head_dim;
    s->k = take(kv_n * sizeof(float));
    s->v = take(kv_n * sizeof(float));
    s->q = take(kv_n * group * sizeof(float));
    fill(&seed, flavour == WIDE ? PLAIN : flavour, s->k, kv_n);
    fill(&seed, flavour, s->v, kv_n);
    fill(&seed, PLAIN, s->q, kv_n * group);
    s->in_chunks = weft_rand_below(&seed, 3) == 0;
    if (weft_rand_below(&seed, 3) > 0) return;
    s->sinks = take(s->n_heads * sizeof(float));
    fill(&seed, PLAIN, s->sinks, s->n_heads);
}

/* One of a latent cache, of one kv head. */
static void make_latent_sequence(struct sequence *s, uint32_t len, uint32_t n_heads, uint32_t v_dim,
                                 uint32_t rope_dim, enum flavour flavour) {
    make_sequence(s, len, 1, n_heads, v_dim + rope_dim, flavour);
    s->v_dim = v_dim;
}

/* Each position sees some of those up to it: few or many, some tiles or spans not at all. */
static void make_sets(struct sequence *s) {
    s->window = 0;
    s->seen_stride = weft_attn_set_words(s->len) + weft_rand_below(&seed, 3);
    s->seen_from = weft_rand_below(&seed, 2) ? weft_rand_below(&seed, s->len) : 0;
    s->seen = take(s->len * s->seen_stride * sizeof *s->seen);
    memset(s->seen, 0, s->len * s->seen_stride * sizeof *s->seen);
    for (uint32_t pos = 0; pos < s->len; pos++) {
        uint64_t *set = s->seen + pos * s->seen_stride;
        uint32_t n = weft_rand_below(&seed, 2) ? between(&seed, 1, 3) : between(&seed, 1, pos + 1);
        uint32_t from = weft_rand_below(&seed, pos + 1);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t j = between(&seed, i % 2 ? from : 0, pos);
            set[j / WEFT_ATTN_SET_WORD] |= (uint64_t)1 << j % WEFT_ATTN_SET_WORD;
        }
    }
}

static bool sees(const struct sequence *s, uint32_t pos, uint32_t j) {
    return !s->seen || pos < s->seen_from || weft_attn_bit(s->seen + pos * s->seen_stride, j);
}

static uint32_t value_dim(const struct sequence *s) {
    return s->v_dim ? s->v_dim : s->head_dim;
}

static void drop_sequence(struct sequence *s) {
    free(s->k);
    free(s->v);
    free(s->q);
    free(s->sinks);
    free(s->seen);
}

/* A cache in which one sequence has blocks in random order among others, some space apart; every
 * unwritten slot is NaN. */
struct cache {
    struct weft_kv_layer kv;
    uint32_t *table;
};

static void make_cache(struct cache *c, const struct weft_kern_table *table,
                       const struct sequence *s, uint32_t block_size, enum weft_kv_dtype dtype) {
    uint32_t used = (s->len + block_size - 1) / block_size, n_blocks = used + 3;
    c->kv = (struct weft_kv_layer){.dtype = dtype,
                                   .block_size = block_size,
                                   .n_kv_heads = s->n_kv_heads,
                                   .head_dim = s->head_dim,
                                   .v_dim = s->v_dim};
    size_t block_bytes = weft_kv_block_bytes(&c->kv);
    c->kv.stride_bytes = block_bytes + between(&seed, 0, 5) * (size_t)16;
    size_t plane_bytes = (n_blocks - 1) * c->kv.stride_bytes + block_bytes; /* and no more */
    c->kv.k = take(plane_bytes);
    if (!s->v_dim) c->kv.v = take(plane_bytes);
    uint32_t ids[1024];
    assert_true(n_blocks <= 1024);
    for (uint32_t i = 0; i < n_blocks; i++) {
        uint32_t j = weft_rand_below(&seed, i + 1);
        ids[i] = ids[j];
        ids[j] = i;
    }
    c->table = malloc(used * sizeof *c->table); /* no longer than needed: a read past it shows */
    assert_non_null(c->table);
    memcpy(c->table, ids, used * sizeof *c->table);
    size_t token = (size_t)s->n_kv_heads * s->head_dim;
    for (uint32_t pos = 0; pos < s->len; pos++) {
        const float *v = s->v_dim ? NULL : s->v + pos * token;
        table->kv_write(&c->kv, c->table, pos, s->k + pos * token, v);
    }
}

static void drop_cache(struct cache *c) {
    free(c->kv.k);
    free(c->kv.v);
    free(c->table);
}

/* Rows begin..end of a call span by span, the last one first, into memory of just the size. */
static void attend_in_spans(const struct weft_kern_table *table, const struct weft_attn_args *args,
                            struct weft_attn_range range) {
    uint32_t begin = range.row_begin, end = range.row_end;
    if (begin == end) return;
    struct weft_attn_parts parts;
    parts.span_begin =
        weft_attn_first(args->rows[begin].pos, args->window, args->in_chunks) / WEFT_ATTN_SPAN;
    parts.n_spans =
        weft_attn_high(&args->rows[end - 1], args->window) / WEFT_ATTN_SPAN + 1 - parts.span_begin;
    parts.sums = take((size_t)(end - begin) * parts.n_spans * args->n_heads *
                      weft_attn_part_floats(weft_kv_value_dim(&args->kv)) * sizeof(float));
    for (uint32_t i = parts.n_spans; i-- > 0;) {
        uint32_t cut = between(&seed, begin, end);
        struct weft_attn_parts rest = parts;
        rest.sums += (size_t)(cut - begin) * parts.n_spans * args->n_heads *
                     weft_attn_part_floats(weft_kv_value_dim(&args->kv));
        struct weft_attn_range low = range, high = range;
        low.row_end = high.row_begin = cut;
        table->attention_span(args, &high, parts.span_begin + i, &rest);
        table->attention_span(args, &low, parts.span_begin + i, &parts);
    }
    table->attention_join(args, &range, &parts);
    free(parts.sums);
}

static void attend_rows(const struct weft_kern_table *table, const struct weft_attn_args *args,
                        struct weft_attn_range range) {
    struct weft_attn_range low = range;
    low.row_end = range.row_begin = weft_rand_below(&seed, range.row_end + 1);
    table->attention(args, &low);
    if (weft_rand_below(&seed, 2)) {
        table->attention(args, &range);
    } else {
        attend_in_spans(table, args, range);
    }
}

/* Heads of a latent in two groups. */
static void attend_in_groups(const struct weft_kern_table *table, const struct weft_attn_args *args,
                             uint32_t n_rows) {
    struct weft_attn_args group = *args;
    group.n_heads = between(&seed, 1, args->n_heads);
    attend_rows(table, &group, (struct weft_attn_range){0, n_rows, 0, 1});
    group.q += (size_t)group.n_heads * args->kv.head_dim;
    group.out += (size_t)group.n_heads * args->kv.v_dim;
    if (group.sinks) group.sinks += group.n_heads;
    group.n_heads = args->n_heads - group.n_heads;
    if (group.n_heads > 0) attend_rows(table, &group, (struct weft_attn_range){0, n_rows, 0, 1});
}

/* Rows of positions first..first+n of the sequence, in chunks of `chunk` rows, to
 * out[len][heads] */
static void attend(const struct weft_kern_table *table, const struct sequence *s,
                   const struct cache *c, uint32_t first, uint32_t n, uint32_t chunk, float *out) {
    size_t token = (size_t)s->n_heads * s->head_dim, out_token = (size_t)s->n_heads * value_dim(s);
    for (uint32_t done = 0; done < n; done += chunk) {
        uint32_t rows = weft_min_u32(chunk, n - done);
        struct weft_attn_row *row = malloc(rows * sizeof *row);
        assert_non_null(row);
        for (uint32_t i = 0; i < rows; i++) {
            uint32_t pos = first + done + i;
            row[i] = (struct weft_attn_row){c->table, pos, s->both ? s->len - 1 - pos : 0};
        }
        struct weft_attn_args args = {.kv = c->kv,
                                      .q = s->q + (first + done) * token,
                                      .out = out + (first + done) * out_token,
                                      .q_stride = token,
                                      .out_stride = out_token,
                                      .rows = row,
                                      .n_heads = s->n_heads,
                                      .window = s->window,
                                      .exact = s->exact,
                                      .scale = 1.0f / sqrtf((float)s->head_dim),
                                      .soft_cap = s->soft_cap,
                                      .in_chunks = s->in_chunks && !s->both,
                                      .sinks = s->sinks,
                                      .seen = s->seen,
                                      .seen_stride = s->seen_stride,
                                      .seen_from = s->seen_from};
        if (s->seen) args.seen += (first + done) * s->seen_stride;
        if (s->v_dim) attend_in_groups(table, &args, rows);
        for (uint32_t h = 0, end; h < s->n_kv_heads && !s->v_dim; h = end) {
            end = between(&seed, h + 1, s->n_kv_heads);
            attend_rows(table, &args, (struct weft_attn_range){0, rows, h, end});
        }
        free(row);
    }
}

static float *attend_all(const struct weft_kern_table *table, const struct sequence *s,
                         const struct cache *c, uint32_t chunk) {
    float *out = take((size_t)s->len * s->n_heads * value_dim(s) * sizeof(float));
    attend(table, s, c, 0, s->len, chunk, out);
    return out;
}

/* One token's head as the cache stores it; returns the scale of its codes. */
static double round_row(const float *x, uint32_t n, enum weft_kv_dtype dtype, double *out) {
    float max = 0;
    for (uint32_t d = 0; d < n; d++) {
        max = fmaxf(max, fabsf(x[d]));
    }
    bool is_zero = max < Q8_TINY; /* in int8 */
    float scale = is_zero ? 0.0f : max / 127.0f, inverse = is_zero ? 0.0f : 127.0f / max;
    for (uint32_t d = 0; d < n; d++) {
        out[d] = (double)(dtype == WEFT_KV_F32    ? x[d]
                          : dtype == WEFT_KV_BF16 ? bf16_to_f32(f32_to_bf16(x[d]))
                                                  : f16_to_f32(f32_to_f16(x[d])));
        if (dtype == WEFT_KV_INT8) out[d] = (double)rintf(x[d] * inverse) * (double)scale;
    }
    return (double)scale;
}

/* Where the tile ends that begins at `j`: one of 64 positions, or, of a row with a set, of four groups of 16 that it
 * sees any of, in one span. */
static uint32_t end_of_tile(const struct sequence *s, uint32_t pos, uint32_t j, uint32_t high) {
    uint32_t n_groups = 0, end = j;
    if (!s->seen || pos < s->seen_from) return weft_min_u32(j / 64 * 64 + 64, high + 1);
    while (end <= high && n_groups < 4 && (end == j || end % WEFT_ATTN_SPAN != 0)) {
        bool is_seen = false;
        for (uint32_t i = end; i < end + 16 && i <= high; i++)
            is_seen |= sees(s, pos, i);
        n_groups += is_seen;
        end += 16;
    }
    return weft_min_u32(end, high + 1);
}

/* How far the sum of values may be off where weights become codes, whose scale the largest weight of
 * each tile sets: half a step of them for every code of a value. p: what weights are before scales.
 */
static void add_code_steps(const struct sequence *s, uint32_t kv_head, uint32_t pos, uint32_t low,
                           uint32_t high, const double *p, double *slack) {
    const float *v = s->v_dim ? s->k : s->v;
    double row[DIM_MAX];
    for (uint32_t j = low, next = low; j <= high; j = next) {
        double most = 0, codes[DIM_MAX] = {0};
        for (next = end_of_tile(s, pos, j, high); j < next; j++) {
            if (!sees(s, pos, j)) continue;
            const float *x = v + ((size_t)j * s->n_kv_heads + kv_head) * s->head_dim;
            double scale = round_row(x, s->head_dim, WEFT_KV_INT8, row);
            most = fmax(most, p[j] * scale);
            for (uint32_t d = 0; d < value_dim(s) && scale > 0; d++)
                codes[d] += fabs(row[d]) / scale;
        }
        for (uint32_t d = 0; d < value_dim(s); d++)
            slack[d] += 0.51 * most / ATTN_CODE_MAX * codes[d] + 64 * 127 * 0x1p-100;
    }
}

/* One query in double. The bound follows the errors: a score is off by (head_dim + 2) 2^-24 of its
 * magnitudes, its exponential relatively by that, the rounding of the subtraction and 2 ulp; sums
 * over `pos` tokens and the fades of their tiles add a rounding each. All of it is relative to |v|.
 * Unless exact, queries and weights are rounded, too: to bf16, or to codes. */
static void check_query(const struct sequence *s, enum weft_kv_dtype dtype, uint32_t pos,
                        uint32_t head, const float *got) {
    uint32_t hd = s->head_dim, kv_head = head / (s->n_heads / s->n_kv_heads);
    uint32_t low = s->window > 0 && s->window <= pos ? pos + 1 - s->window : 0;
    if (s->in_chunks && !s->both && s->window > 0) low = pos / s->window * s->window;
    uint32_t high = s->both ? s->len - 1 : pos;
    if (s->both && s->window > 0) high = weft_min_u32(high, pos + s->window - 1);
    double scale = 1.0 / sqrt(hd), max = -INFINITY, error = 0, total = 0, span = 0;
    double *p = malloc((high + 1) * sizeof *p), row[DIM_MAX], sum[DIM_MAX] = {0},
           mass[DIM_MAX] = {0}, slack[DIM_MAX] = {0}, q_max = 0;
    const float *v = s->v_dim ? s->k : s->v;
    const bool in_codes = !s->exact && dtype == WEFT_KV_INT8;
    const double rounding = !s->exact && dtype == WEFT_KV_BF16 ? 0x1p-9 : 0;
    for (uint32_t d = 0; d < hd; d++)
        q_max = fmax(q_max, fabs((double)s->q[((size_t)pos * s->n_heads + head) * hd + d]));
    assert_non_null(p);
    assert_true(hd <= DIM_MAX);
    for (uint32_t j = low; j <= high; j++) {
        double dot = 0, magnitude = 0, keys = 0;
        p[j] = -INFINITY;
        if (!sees(s, pos, j)) continue;
        (void)round_row(s->k + ((size_t)j * s->n_kv_heads + kv_head) * hd, hd, dtype, row);
        for (uint32_t d = 0; d < hd; d++) {
            double q = (double)s->q[((size_t)pos * s->n_heads + head) * hd + d];
            dot += q * row[d];
            magnitude += fabs(q * row[d]);
            keys += fabs(row[d]);
        }
        p[j] = dot * scale;
        if (s->soft_cap > 0) p[j] = (double)s->soft_cap * tanh(p[j] / (double)s->soft_cap);
        max = fmax(max, p[j]);
        span = fmax(span, fabs(p[j]));
        double off = magnitude * ((hd + 4) * 0x1p-24 + rounding);
        if (in_codes) off += 0.51 * q_max / ATTN_CODE_MAX * keys;
        error = fmax(error, off * scale + (double)s->soft_cap * 0x1p-21);
    }
    if (s->sinks) max = fmax(max, (double)s->sinks[head]);
    for (uint32_t j = low; j <= high; j++) {
        p[j] = exp(p[j] - max);
        total += p[j];
    }
    if (s->sinks) total += exp((double)s->sinks[head] - max);
    double relative = expm1(2 * error) + (4 * span + 2 * (high + 1) + 0.125 * high + 24) * 0x1p-24;
    relative += rounding * (1 + relative);
    if (in_codes) add_code_steps(s, kv_head, pos, low, high, p, slack);
    for (uint32_t j = low; j <= high; j++) {
        (void)round_row(v + ((size_t)j * s->n_kv_heads + kv_head) * hd, hd, dtype, row);
        for (uint32_t d = 0; d < value_dim(s); d++) {
            sum[d] += p[j] * row[d] / total;
            mass[d] += p[j] * fabs(row[d]) / total;
        }
    }
    for (uint32_t d = 0; d < value_dim(s); d++) {
        double bound = relative * mass[d] + slack[d] / total * (1 + relative) + 0x1p-120;
        if (!(fabs((double)got[d] - sum[d]) <= bound)) {
            fail_msg("dtype %d head_dim %u pos %u head %u d %u: %.9g, not %.9g +- %.3g", dtype, hd,
                     pos, head, d, (double)got[d], sum[d], bound);
        }
    }
    free(p);
}

/* Most windows are shorter than the sequence; 1 is a token that sees itself alone. */
static uint32_t some_window(uint32_t len) {
    uint32_t kind = weft_rand_below(&seed, 4);
    return kind == 0 ? 1 + weft_rand_below(&seed, 3) : between(&seed, 1, len + len / 4);
}

static void check_some_queries(const struct weft_kern_table *table, const struct sequence *s,
                               enum weft_kv_dtype dtype, uint32_t n) {
    struct cache c;
    make_cache(&c, table, s, between(&seed, 1, 6) * 16, dtype);
    float *out = attend_all(table, s, &c, between(&seed, 1, s->len));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pos = i == 0 ? s->len - 1 : weft_rand_below(&seed, s->len);
        uint32_t head = weft_rand_below(&seed, s->n_heads);
        check_query(s, dtype, pos, head, out + ((size_t)pos * s->n_heads + head) * value_dim(s));
    }
    free(out);
    drop_cache(&c);
}

static void attention_agrees_with_a_softmax_in_double(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    const uint32_t head_dims[] = {2, 6, 8, 16, 24, 34, 40, 64, 80, 96, 128, 256};
    const uint32_t groups[] = {1, 2, 3, 4, 5, 8, 71};
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(36); round++) {
        uint32_t hd = head_dims[round % 12],
                 group = groups[weft_rand_below(&seed, round < 3 ? 7 : 6)];
        struct sequence s;
        make_sequence(&s, between(&seed, 1, 200), between(&seed, 1, 2), group, hd,
                      (enum flavour)(round % 2 ? WIDE : PLAIN));
        for (uint32_t t = 0; t < n_tables; t++) {
            enum weft_kv_dtype dtype = (enum weft_kv_dtype)(round % WEFT_KV_DTYPE_COUNT);
            s.window = t % 2 ? some_window(s.len) : 0;
            check_some_queries(&tables[t], &s, dtype, 12);
        }
        drop_sequence(&s);
    }
}

static void long_sequences_agree_with_a_softmax_in_double(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(8); round++) {
        struct sequence s;
        make_sequence(&s, between(&seed, WEFT_ATTN_SPAN, 4 * WEFT_ATTN_SPAN), 1,
                      between(&seed, 1, 3), between(&seed, 1, 20) * 2, PLAIN);
        s.window = round % 2 ? some_window(s.len) : 0;
        for (uint32_t t = 0; t < n_tables; t++) {
            check_some_queries(&tables[t], &s, (enum weft_kv_dtype)(round % WEFT_KV_DTYPE_COUNT),
                               12);
        }
        drop_sequence(&s);
    }
}

static void attention_over_latents_agrees_with_a_softmax_in_double(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    const uint32_t v_dims[] = {512, 32, 40, 56, 7, 16, 64, 131}, heads[] = {4, 1, 3, 16, 128, 131};
    const uint32_t rope_dims[] = {64, 16, 8, 2, 1};
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(32); round++) {
        struct sequence s;
        bool is_long = round % 8 == 7;
        uint32_t v_dim = v_dims[round % 8], n_heads = heads[weft_rand_below(&seed, 6)];
        make_latent_sequence(&s, is_long ? between(&seed, 600, 1300) : between(&seed, 1, 150),
                             is_long || v_dim == 512 ? 5 : n_heads, v_dim,
                             rope_dims[weft_rand_below(&seed, 5)],
                             (enum flavour)(round % 3 == 0 ? WIDE : PLAIN));
        for (uint32_t t = 0; t < n_tables; t++) {
            s.window = round % 4 == 1 ? some_window(s.len) : 0;
            check_some_queries(&tables[t], &s, (enum weft_kv_dtype)weft_rand_below(&seed, 4), 12);
        }
        drop_sequence(&s);
    }
}

static void a_row_has_the_same_bits_in_any_chunk_block_size_and_split(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(24); round++) {
        const struct weft_kern_table *table = &tables[round % n_tables];
        enum weft_kv_dtype dtype = (enum weft_kv_dtype)weft_rand_below(&seed, WEFT_KV_DTYPE_COUNT);
        struct sequence s;
        bool is_long = round % 4 == 3;
        uint32_t len = is_long ? between(&seed, 500, 1600) : between(&seed, 60, 230);
        uint32_t dim = between(&seed, 1, is_long ? 17 : 140);
        if (round % 3 == 2)
            make_latent_sequence(&s, len, between(&seed, 1, 20), (dim + 1) / 2,
                                 between(&seed, 1, 8), WIDE);
        else
            make_sequence(&s, len, between(&seed, 1, 4), between(&seed, 1, 7), dim, WIDE);
        s.window = weft_rand_below(&seed, 2) ? some_window(s.len) : 0;
        struct cache c;
        make_cache(&c, table, &s, 16, dtype);
        float *alone = attend_all(table, &s, &c, 1);
        size_t bytes = (size_t)s.len * s.n_heads * value_dim(&s) * sizeof(float);
        for (uint32_t i = 0; i < 6; i++) {
            drop_cache(&c);
            make_cache(&c, table, &s, between(&seed, 1, 16) * 16, dtype);
            float *chunked = attend_all(table, &s, &c, i == 0 ? s.len : between(&seed, 2, s.len));
            assert_memory_equal(alone, chunked, bytes);
            free(chunked);
        }
        free(alone);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

/* More of them than take turns at once. */
static void a_row_has_the_same_bits_whatever_kv_heads_are_computed_with_it(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(12); round++) {
        const struct weft_kern_table *table = &tables[round % n_tables];
        enum weft_kv_dtype dtype = (enum weft_kv_dtype)weft_rand_below(&seed, WEFT_KV_DTYPE_COUNT);
        struct sequence s;
        struct cache c;
        make_sequence(&s, between(&seed, 1, 70), between(&seed, 10, 40), between(&seed, 1, 9),
                      between(&seed, 1, 20), WIDE);
        make_cache(&c, table, &s, 16, dtype);
        float *alone = attend_all(table, &s, &c, 1);
        float *chunked = attend_all(table, &s, &c, between(&seed, 1, s.len));
        assert_memory_equal(alone, chunked,
                            (size_t)s.len * s.n_heads * value_dim(&s) * sizeof(float));
        free(alone);
        free(chunked);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

static void rows_see_the_positions_of_their_sets_alone(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    const uint32_t heads[] = {4, 1, 3, 16, 128, 131};
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(20); round++) {
        struct sequence s;
        uint32_t len = between(&seed, 1, round % 4 == 3 ? 1300 : 200);
        if (round % 3)
            make_latent_sequence(&s, len, len > 200 ? 5 : heads[weft_rand_below(&seed, 6)],
                                 between(&seed, 1, 70), between(&seed, 1, 16), PLAIN);
        else
            make_sequence(&s, len, 2, between(&seed, 1, 4), between(&seed, 1, 40) * 2, PLAIN);
        make_sets(&s);
        for (uint32_t t = 0; t < n_tables; t++)
            check_some_queries(&tables[t], &s, (enum weft_kv_dtype)weft_rand_below(&seed, 4), 8);
        drop_sequence(&s);
    }
}

static void a_row_with_a_set_has_the_same_bits_in_any_chunk_block_size_and_split(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(24); round++) {
        const struct weft_kern_table *table = &tables[round % n_tables];
        enum weft_kv_dtype dtype = (enum weft_kv_dtype)weft_rand_below(&seed, WEFT_KV_DTYPE_COUNT);
        struct sequence s;
        make_latent_sequence(&s, between(&seed, 60, round % 4 == 3 ? 1600 : 230),
                             between(&seed, 1, 20), between(&seed, 1, 40), between(&seed, 1, 8),
                             WIDE);
        make_sets(&s);
        struct cache c;
        make_cache(&c, table, &s, 16, dtype);
        float *alone = attend_all(table, &s, &c, 1);
        size_t bytes = (size_t)s.len * s.n_heads * value_dim(&s) * sizeof(float);
        for (uint32_t i = 0; i < 4; i++) {
            drop_cache(&c);
            make_cache(&c, table, &s, between(&seed, 1, 16) * 16, dtype);
            float *chunked = attend_all(table, &s, &c, i == 0 ? s.len : between(&seed, 2, s.len));
            assert_memory_equal(alone, chunked, bytes);
            free(chunked);
        }
        free(alone);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

/* A set of everything is none: so tokens that are not there weigh nothing at all. */
static void a_set_of_all_positions_has_the_bits_of_none(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(16); round++) {
        const struct weft_kern_table *table = &tables[round % n_tables];
        struct sequence s;
        struct cache c;
        make_latent_sequence(&s, between(&seed, 1, 700), 3, 24, 8, PLAIN);
        make_cache(&c, table, &s, 48,
                   (enum weft_kv_dtype)weft_rand_below(&seed, WEFT_KV_DTYPE_COUNT));
        float *plain = attend_all(table, &s, &c, s.len);
        make_sets(&s);
        for (uint32_t pos = 0; pos < s.len; pos++) {
            for (uint32_t j = 0; j <= pos; j++)
                s.seen[pos * s.seen_stride + j / 64] |= (uint64_t)1 << j % 64;
        }
        float *got = attend_all(table, &s, &c, between(&seed, 1, s.len));
        assert_memory_equal(plain, got, (size_t)s.len * s.n_heads * 24 * sizeof(float));
        free(plain);
        free(got);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

/* What a span gives to each row and head, of a sequence of one span. */
static float *span_sums(const struct weft_kern_table *table, const struct sequence *s,
                        const struct cache *c) {
    size_t token = (size_t)s->n_heads * s->head_dim, out_token = (size_t)s->n_heads * value_dim(s);
    size_t n = s->len * s->n_heads * weft_attn_part_floats(value_dim(s));
    struct weft_attn_parts parts = {.sums = take(n * sizeof(float)), .n_spans = 1};
    float *out = take(s->len * out_token * sizeof *out);
    struct weft_attn_row *rows = take(s->len * sizeof *rows);
    for (uint32_t i = 0; i < s->len; i++)
        rows[i] = (struct weft_attn_row){c->table, i, 0};
    struct weft_attn_args args = {.kv = c->kv,
                                  .q = s->q,
                                  .out = out,
                                  .q_stride = token,
                                  .out_stride = out_token,
                                  .rows = rows,
                                  .n_heads = s->n_heads,
                                  .window = s->window,
                                  .scale = 1.0f / sqrtf((float)s->head_dim)};
    const struct weft_attn_range all = {0, s->len, 0, s->n_kv_heads};
    table->attention_span(&args, &all, 0, &parts);
    free(out);
    free(rows);
    return parts.sums;
}

/* Exponentials differ from the definition's by an ulp, but not that of 0: so either a row sees one
 * token, whose score is the maximum, or all scores are 0. */
static void int8_met_by_integers_has_the_bits_of_the_definition(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(24); round++) {
        struct sequence s;
        uint32_t len = between(&seed, 1, 150), group = between(&seed, 1, 9);
        uint32_t dim = between(&seed, 1, 80);
        if (round % 3 == 2)
            make_latent_sequence(&s, len, group, dim, between(&seed, 1, 8), PLAIN);
        else
            make_sequence(&s, len, 2, group, dim, round % 4 == 3 ? WIDE : PLAIN);
        s.exact = false;
        free(s.sinks);
        s.sinks = NULL;
        if (round % 2) s.window = 1;
        size_t n_queries = (size_t)len * s.n_heads;
        for (size_t i = 0; i < n_queries * s.head_dim && !s.window; i++)
            s.q[i] = 0;
        struct cache c;
        make_cache(&c, &tables[0], &s, 16, WEFT_KV_INT8);
        float *whole = attend_all(&tables[0], &s, &c, len), *sums = span_sums(&tables[0], &s, &c);
        for (uint32_t t = 1; t < n_tables; t++) {
            float *got = attend_all(&tables[t], &s, &c, between(&seed, 1, len));
            float *got_sums = span_sums(&tables[t], &s, &c);
            assert_memory_equal(got, whole, n_queries * value_dim(&s) * sizeof *got);
            assert_memory_equal(got_sums, sums,
                                n_queries * weft_attn_part_floats(value_dim(&s)) * sizeof *sums);
            free(got);
            free(got_sums);
        }
        free(whole);
        free(sums);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

/* Beyond them, all that have fused multiply-adds agree: sums in integers leave nothing to their order. */
static void int8_met_by_integers_has_the_same_bits_with_any_dot_product(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(8) && n_tables > 2; round++) {
        struct sequence s;
        uint32_t len = between(&seed, 1, 150), group = between(&seed, 1, 9);
        bool is_large = weft_rand_below(&seed, 2); /* as heads are */
        if (round % 2)
            make_latent_sequence(&s, len, group, is_large ? 512 : between(&seed, 1, 80),
                                 is_large ? 64 : 8, WIDE);
        else
            make_sequence(&s, len, 2, group, between(&seed, 1, is_large ? 256 : 80), WIDE);
        s.exact = false;
        if (weft_rand_below(&seed, 2)) s.window = between(&seed, 1, len);
        if (round % 4 == 0) make_sets(&s);
        struct cache c;
        make_cache(&c, &tables[0], &s, 32, WEFT_KV_INT8);
        float *first = attend_all(&tables[1], &s, &c, len);
        for (uint32_t t = 2; t < n_tables; t++) {
            float *got = attend_all(&tables[t], &s, &c, between(&seed, 1, len));
            assert_memory_equal(got, first, (size_t)len * s.n_heads * value_dim(&s) * sizeof *got);
            free(got);
        }
        free(first);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

/* Where the CPU has tiles of bf16. */
static void tiles_have_the_bits_of_their_model(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    const struct weft_kern_table *own = weft_kern_table_for(WEFT_ISA_AMX),
                                 *model = &tables[n_tables - 1];
    (void)state;
    if (!own || own->attention_peak[WEFT_KV_BF16] != WEFT_PEAK_BF16) {
        puts("this CPU has no tiles of bf16");
        return;
    }
    for (uint32_t round = 0; round < ROUNDS(20); round++) {
        struct sequence s;
        uint32_t len = between(&seed, 1, 150), group = between(&seed, 1, 20);
        if (round % 2)
            make_latent_sequence(&s, len, group, between(&seed, 1, 80), 8, WIDE);
        else
            make_sequence(&s, len, 2, group, between(&seed, 1, 80), WIDE);
        s.exact = false;
        struct cache c;
        make_cache(&c, own, &s, 32, WEFT_KV_BF16);
        float *want = attend_all(model, &s, &c, len);
        float *got = attend_all(own, &s, &c, between(&seed, 1, len));
        assert_memory_equal(got, want, (size_t)len * s.n_heads * value_dim(&s) * sizeof *got);
        free(got);
        free(want);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

/* A worker may have some of the heads, from the middle of a group to the middle of another. */
static void some_of_the_heads_have_the_bits_that_they_have_among_all(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(40); round++) {
        const struct weft_kern_table *table = &tables[round % n_tables];
        uint32_t group = between(&seed, 1, 6), len = round % 8 == 7 ? 700 : 40;
        struct sequence s;
        struct cache c;
        make_sequence(&s, len, between(&seed, 2, 12), group, 32, PLAIN);
        make_cache(&c, table, &s, 16,
                   (enum weft_kv_dtype)weft_rand_below(&seed, WEFT_KV_DTYPE_COUNT));
        float *all = attend_all(table, &s, &c, s.len);
        size_t token = (size_t)s.n_heads * s.head_dim;
        float *some = take(s.len * token * sizeof *some);
        uint32_t skipped = weft_rand_below(&seed, group);
        uint32_t n = between(&seed, 1, s.n_heads - skipped);
        struct weft_attn_row *rows = take(s.len * sizeof *rows);
        for (uint32_t i = 0; i < s.len; i++)
            rows[i] = (struct weft_attn_row){c.table, i, 0};
        struct weft_attn_args args = {.kv = c.kv,
                                      .q = s.q + (size_t)skipped * s.head_dim,
                                      .out = some,
                                      .q_stride = token,
                                      .out_stride = token,
                                      .rows = rows,
                                      .n_heads = n,
                                      .group_heads = group,
                                      .skipped_heads = skipped,
                                      .exact = s.exact,
                                      .scale = 1.0f / sqrtf((float)s.head_dim),
                                      .soft_cap = s.soft_cap,
                                      .in_chunks = s.in_chunks,
                                      .sinks = s.sinks ? s.sinks + skipped : NULL};
        const uint32_t n_kv_heads = (skipped + n + group - 1) / group;
        for (uint32_t h = 0, end; h < n_kv_heads; h = end) {
            end = between(&seed, h + 1, n_kv_heads);
            attend_rows(table, &args, (struct weft_attn_range){0, s.len, h, end});
        }
        for (uint32_t i = 0; i < s.len; i++)
            assert_memory_equal(some + i * token, all + i * token + (size_t)skipped * s.head_dim,
                                n * s.head_dim * sizeof *all);
        free(all);
        free(some);
        free(rows);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

/* Encoders: with and without a window, in any chunk and any company, also over several spans. */
static void rows_that_see_both_sides_are_right_and_the_same_in_any_chunk(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(40); round++) {
        const struct weft_kern_table *table = &tables[round % n_tables];
        enum weft_kv_dtype dtype = (enum weft_kv_dtype)(round / 2 % WEFT_KV_DTYPE_COUNT);
        struct sequence s;
        uint32_t len = between(&seed, 1, round % 5 == 0 ? 1200 : 150);
        make_sequence(&s, len, between(&seed, 1, 2), between(&seed, 1, 3), 16, PLAIN);
        s.both = true;
        if (round % 3) s.window = some_window(len);
        check_some_queries(table, &s, dtype, 8);
        struct cache c;
        make_cache(&c, table, &s, 32, dtype);
        float *whole = attend_all(table, &s, &c, len);
        float *parts = attend_all(table, &s, &c, between(&seed, 1, len));
        assert_memory_equal(whole, parts, (size_t)len * s.n_heads * 16 * sizeof(float));
        free(whole);
        free(parts);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

/* Rows of several sequences in one call, as a batch of decodes and prompt chunks brings them. */
static void rows_of_different_sequences_do_not_mix(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    enum { SEQUENCES = 3, ROWS_MAX = 64 };
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(12); round++) {
        const struct weft_kern_table *table = &tables[round % n_tables];
        uint32_t len = between(&seed, 30, 100), hd = between(&seed, 1, 80);
        struct sequence all;
        make_sequence(&all, len, 1, 3, hd, PLAIN);
        struct cache c;
        make_cache(&c, table, &all, 32, WEFT_KV_BF16);
        float *alone = attend_all(table, &all, &c, 1);
        /* The same sequence under other tables: equal content at other addresses of the table. */
        uint32_t blocks = (len + 31) / 32, n = 0, *copies[SEQUENCES];
        struct weft_attn_row rows[ROWS_MAX];
        size_t token = (size_t)all.n_heads * hd;
        float *q = take(ROWS_MAX * token * sizeof(float)),
              *out = take(ROWS_MAX * token * sizeof(float));
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            copies[i] = malloc(blocks * sizeof **copies);
            assert_non_null(copies[i]);
            memcpy(copies[i], c.table, blocks * sizeof **copies);
            uint32_t first = weft_rand_below(&seed, len), count = between(&seed, 1, 20);
            for (uint32_t j = 0; j < count && first + j < len; j++, n++) {
                rows[n] = (struct weft_attn_row){copies[i], first + j, 0};
                memcpy(q + n * token, all.q + (first + j) * token, token * sizeof(float));
            }
        }
        struct weft_attn_args args = {.kv = c.kv,
                                      .q = q,
                                      .out = out,
                                      .q_stride = token,
                                      .out_stride = token,
                                      .rows = rows,
                                      .n_heads = all.n_heads,
                                      .exact = all.exact,
                                      .scale = 1.0f / sqrtf((float)hd),
                                      .soft_cap = all.soft_cap,
                                      .in_chunks = all.in_chunks,
                                      .sinks = all.sinks};
        table->attention(&args, &(struct weft_attn_range){0, n, 0, 1});
        for (uint32_t i = 0; i < n; i++) {
            assert_memory_equal(out + i * token, alone + rows[i].pos * token,
                                token * sizeof(float));
        }
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            free(copies[i]);
        }
        free(q);
        free(out);
        free(alone);
        drop_cache(&c);
        drop_sequence(&all);
    }
}

static void a_later_token_never_reaches_an_earlier_row(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(24); round++) {
        const struct weft_kern_table *table = &tables[round % n_tables];
        struct sequence s;
        make_sequence(&s, 150, 1, between(&seed, 1, 6), 24, PLAIN);
        if (round % 2) s.v_dim = between(&seed, 4, 23);
        struct cache c;
        make_cache(&c, table, &s, 48, (enum weft_kv_dtype)(round / 2 % WEFT_KV_DTYPE_COUNT));
        float *before = attend_all(table, &s, &c, s.len), *after;
        uint32_t pos = weft_rand_below(&seed, s.len);
        s.k[(size_t)pos * 24 + 3] = bad[round % 3];
        s.v[(size_t)pos * 24 + 5] = bad[(round + 1) % 3];
        table->kv_write(&c.kv, c.table, pos, s.k + (size_t)pos * 24, s.v + (size_t)pos * 24);
        after = attend_all(table, &s, &c, s.len);
        assert_memory_equal(before, after, (size_t)pos * s.n_heads * value_dim(&s) * sizeof(float));
        free(before);
        free(after);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

static void a_token_before_the_window_never_reaches_a_row(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < ROUNDS(24); round++) {
        const struct weft_kern_table *table = &tables[round % n_tables];
        struct sequence s;
        make_sequence(&s, 300, 1, between(&seed, 1, 6), 24, PLAIN);
        s.window = between(&seed, 1, 200);
        struct cache c;
        make_cache(&c, table, &s, 48,
                   (enum weft_kv_dtype)weft_rand_below(&seed, WEFT_KV_DTYPE_COUNT));
        float *before = attend_all(table, &s, &c, s.len);
        uint32_t pos = weft_rand_below(&seed, s.len - s.window), first = pos + s.window;
        s.k[(size_t)pos * 24 + 3] = NAN;
        s.v[(size_t)pos * 24 + 5] = INFINITY;
        table->kv_write(&c.kv, c.table, pos, s.k + (size_t)pos * 24, s.v + (size_t)pos * 24);
        float *after = attend_all(table, &s, &c, between(&seed, 1, s.len));
        size_t row = (size_t)s.n_heads * 24;
        assert_memory_equal(before, after, pos * row * sizeof(float));
        assert_memory_equal(before + first * row, after + first * row,
                            (s.len - first) * row * sizeof(float));
        free(before);
        free(after);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

/* With a window, rows may be so far apart that a span between them is seen by none. */
static void rows_far_apart_skip_what_lies_between_their_windows(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = attention_tables(tables);
    (void)state;
    for (uint32_t t = 0; t < n_tables; t++) {
        struct sequence s;
        make_sequence(&s, 3 * WEFT_ATTN_SPAN, 1, 2, 24, PLAIN);
        s.window = 16;
        struct cache c;
        make_cache(&c, &tables[t], &s, 48, WEFT_KV_BF16);
        size_t token = (size_t)s.n_heads * s.head_dim;
        float *all = attend_all(&tables[t], &s, &c, s.len), *far = take(s.len * token * 4);
        const struct weft_attn_row rows[] = {{c.table, 8, 0}, {c.table, s.len - 5, 0}};
        struct weft_attn_args args = {.kv = c.kv,
                                      .q = s.q + 8 * token,
                                      .out = far,
                                      .q_stride = (s.len - 13) * token,
                                      .out_stride = token,
                                      .rows = rows,
                                      .n_heads = s.n_heads,
                                      .window = s.window,
                                      .exact = s.exact,
                                      .scale = 1.0f / sqrtf((float)s.head_dim),
                                      .soft_cap = s.soft_cap,
                                      .in_chunks = s.in_chunks,
                                      .sinks = s.sinks};
        tables[t].attention(&args, &(struct weft_attn_range){0, 2, 0, 1});
        assert_memory_equal(far, all + 8 * token, token * sizeof *far);
        assert_memory_equal(far + token, all + (s.len - 5) * token, token * sizeof *far);
        free(all);
        free(far);
        drop_cache(&c);
        drop_sequence(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_agrees_with_a_softmax_in_double),
        cmocka_unit_test(long_sequences_agree_with_a_softmax_in_double),
        cmocka_unit_test(attention_over_latents_agrees_with_a_softmax_in_double),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_chunk_block_size_and_split),
        cmocka_unit_test(a_row_has_the_same_bits_whatever_kv_heads_are_computed_with_it),
        cmocka_unit_test(rows_see_the_positions_of_their_sets_alone),
        cmocka_unit_test(a_row_with_a_set_has_the_same_bits_in_any_chunk_block_size_and_split),
        cmocka_unit_test(a_set_of_all_positions_has_the_bits_of_none),
        cmocka_unit_test(int8_met_by_integers_has_the_bits_of_the_definition),
        cmocka_unit_test(int8_met_by_integers_has_the_same_bits_with_any_dot_product),
        cmocka_unit_test(tiles_have_the_bits_of_their_model),
        cmocka_unit_test(some_of_the_heads_have_the_bits_that_they_have_among_all),
        cmocka_unit_test(a_token_before_the_window_never_reaches_a_row),
        cmocka_unit_test(rows_far_apart_skip_what_lies_between_their_windows),
        cmocka_unit_test(rows_that_see_both_sides_are_right_and_the_same_in_any_chunk),
        cmocka_unit_test(rows_of_different_sequences_do_not_mix),
        cmocka_unit_test(a_later_token_never_reaches_an_earlier_row),
    };
    seed = weft_rand_test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
