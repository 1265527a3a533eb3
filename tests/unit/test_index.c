/* An indexer's scores on every table: right against sums in double, and the same bits of a position however the call
 * is cut; and the choice of the best ones: that of a sort, ties to the first. */
#include "kernels_test.h"

#include "inside/engine/forward/attention/choose.h"
#include "inside/kernels/convert.h"

static uint64_t seed;

/* Keys of one sequence in a cache whose other slots are NaN, and a row of queries with their weights. */
struct indexed {
    uint32_t len, n_heads, dim;
    float *k, *q, *weights;
    uint32_t *table;
    struct weft_kv_layer kv;
};

static void make(struct indexed *s, const struct weft_kern_table *table, uint32_t len,
                 uint32_t n_heads, uint32_t dim, enum weft_kv_dtype dtype) {
    const uint32_t block = between(&seed, 1, 5) * 16, used = (len + block - 1) / block;
    *s = (struct indexed){.len = len, .n_heads = n_heads, .dim = dim};
    s->kv = (struct weft_kv_layer){
        .dtype = dtype, .block_size = block, .n_kv_heads = 1, .head_dim = dim, .v_dim = dim};
    s->kv.stride_bytes = weft_kv_block_bytes(&s->kv) + between(&seed, 0, 3) * (size_t)16;
    s->kv.k = take(used * s->kv.stride_bytes);
    s->k = take((size_t)len * dim * sizeof *s->k);
    s->q = take((size_t)n_heads * dim * sizeof *s->q);
    s->weights = take(n_heads * sizeof *s->weights);
    s->table = take(used * sizeof *s->table);
    fill(&seed, weft_rand_below(&seed, 4) ? PLAIN : SPARSE, s->k, (size_t)len * dim);
    fill(&seed, PLAIN, s->q, (size_t)n_heads * dim);
    fill(&seed, PLAIN, s->weights, n_heads);
    for (uint32_t i = 0; i < used; i++)
        s->table[i] = used - 1 - i;
    for (uint32_t pos = 0; pos < len; pos++)
        table->kv_write(&s->kv, s->table, pos, s->k + (size_t)pos * dim, NULL);
}

static void drop(struct indexed *s) {
    free(s->kv.k);
    free(s->k);
    free(s->q);
    free(s->weights);
    free(s->table);
}

static struct weft_index_args args_of(const struct indexed *s, bool exact) {
    return (struct weft_index_args){.kv = s->kv,
                                    .block_table = s->table,
                                    .q = s->q,
                                    .weights = s->weights,
                                    .n_heads = s->n_heads,
                                    .exact = exact,
                                    .scale = 1 / sqrtf((float)s->dim)};
}

/* An element of a key as the cache has it; `max`: of its row's magnitudes. */
static double rounded(float x, float max, enum weft_kv_dtype dtype) {
    if (dtype == WEFT_KV_BF16) return (double)bf16_to_f32(f32_to_bf16(x));
    if (dtype == WEFT_KV_F16) return (double)f16_to_f32(f32_to_f16(x));
    if (dtype == WEFT_KV_F32) return (double)x;
    return max > 0 ? (double)rintf(x * (127.0f / max)) * (double)(max / 127.0f) : 0;
}

/* Dots are off by their roundings, and unless exact by those of queries to bf16 or to codes; a head's weight and
 * the sum over heads add a rounding each. */
static void check_score(const struct indexed *s, bool exact, uint32_t pos, float got) {
    const float *k = s->k + (size_t)pos * s->dim;
    double sum = 0, bound = 0x1p-120, scale = 1 / sqrt(s->dim);
    float max = 0;
    for (uint32_t d = 0; d < s->dim; d++)
        max = fmaxf(max, fabsf(k[d]));
    for (uint32_t h = 0; h < s->n_heads; h++) {
        const float *q = s->q + (size_t)h * s->dim;
        double dot = 0, magnitude = 0, keys = 0, q_max = 0, weight = (double)s->weights[h];
        for (uint32_t d = 0; d < s->dim; d++) {
            double key = rounded(k[d], max, s->kv.dtype);
            dot += (double)q[d] * key;
            magnitude += fabs((double)q[d] * key);
            keys += fabs(key);
            q_max = fmax(q_max, fabs((double)q[d]));
        }
        double off = magnitude * (s->dim + 4) * 0x1p-24;
        if (!exact && s->kv.dtype == WEFT_KV_BF16) off += magnitude * 0x1p-9;
        if (!exact && s->kv.dtype == WEFT_KV_INT8) off += 0.51 * q_max / ATTN_CODE_MAX * keys;
        sum += weight * fmax(dot * scale, 0);
        bound += fabs(weight) * scale * (off + magnitude * (s->n_heads + 2) * 0x1p-24);
    }
    if (!(fabs((double)got - sum) <= bound))
        fail_msg("dtype %d, %u heads of %u, position %u: %.9g, not %.9g +- %.3g", s->kv.dtype,
                 s->n_heads, s->dim, pos, (double)got, sum, bound);
    assert_false(got == 0 && signbit(got));
}

static void scores_agree_with_sums_in_double_and_in_any_cut(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    const uint32_t n_tables = all_tables(tables);
    static const uint32_t heads[] = {64, 1, 5, 8, 12, 131, 300}, dims[] = {128, 1, 6, 11, 64, 130};
    (void)state;
    for (uint32_t round = 0; round < 40; round++) {
        struct indexed s;
        const struct weft_kern_table *table = &tables[round % n_tables];
        enum weft_kv_dtype dtype = (enum weft_kv_dtype)weft_rand_below(&seed, WEFT_KV_DTYPE_COUNT);
        bool exact = weft_rand_below(&seed, 2);
        make(&s, table, between(&seed, 1, 300), heads[round % 7], dims[weft_rand_below(&seed, 6)],
             dtype);
        const struct weft_index_args args = args_of(&s, exact);
        float *scores = take(s.len * sizeof *scores);
        table->index_scores(&args, 0, s.len, scores);
        for (uint32_t pos = 0; pos < s.len; pos++)
            check_score(&s, exact, pos, scores[pos]);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t begin = weft_rand_below(&seed, s.len) / 64 * 64;
            uint32_t end = between(&seed, begin, s.len);
            float *some = take((end - begin) * sizeof *some); /* a write past it shows */
            table->index_scores(&args, begin, end, some);
            assert_memory_equal(some, scores + begin, (end - begin) * sizeof *some);
            free(some);
        }
        free(scores);
        drop(&s);
    }
}

/* Sums of products in integers leave only what follows them, which no ISA does otherwise. */
static void scores_of_int8_have_the_bits_of_the_definition(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    const uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < 12; round++) {
        struct indexed s;
        make(&s, &tables[0], between(&seed, 1, 200), between(&seed, 1, 140), between(&seed, 1, 90),
             WEFT_KV_INT8);
        const struct weft_index_args args = args_of(&s, false);
        float *want = take(s.len * sizeof *want), *got = take(s.len * sizeof *got);
        tables[0].index_scores(&args, 0, s.len, want);
        for (uint32_t t = 1; t < n_tables; t++) {
            tables[t].index_scores(&args, 0, s.len, got);
            assert_memory_equal(got, want, s.len * sizeof *want);
        }
        free(want);
        free(got);
        drop(&s);
    }
}

/* A key that is not finite decides on its own score alone. */
static void a_bad_key_reaches_no_other_score(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    const uint32_t n_tables = all_tables(tables);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (uint32_t round = 0; round < 24; round++) {
        struct indexed s;
        const struct weft_kern_table *table = &tables[round % n_tables];
        make(&s, table, 150, 9, 24, (enum weft_kv_dtype)(round / 2 % WEFT_KV_DTYPE_COUNT));
        const struct weft_index_args args = args_of(&s, round % 2);
        float *before = take(s.len * sizeof *before), *after = take(s.len * sizeof *after);
        uint32_t pos = weft_rand_below(&seed, s.len);
        table->index_scores(&args, 0, s.len, before);
        s.k[(size_t)pos * 24 + 3] = bad[round % 3];
        table->kv_write(&s.kv, s.table, pos, s.k + (size_t)pos * 24, NULL);
        table->index_scores(&args, 0, s.len, after);
        before[pos] = after[pos] = 0;
        assert_memory_equal(after, before, s.len * sizeof *before);
        free(before);
        free(after);
        drop(&s);
    }
}

/* ------------------------------------------------------------------------------- the choice --- */

static const float *sorted_by;

static int by_score_then_place(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    float x = sorted_by[i], y = sorted_by[j];
    if (isnan(x) || isnan(y)) {
        if (isnan(x) != isnan(y)) return isnan(x) ? 1 : -1;
    } else if (x != y) {
        return x > y ? -1 : 1;
    }
    return i < j ? -1 : i > j;
}

static void check_choice(const float *scores, uint32_t n, uint32_t k) {
    uint32_t *places = take(n * sizeof *places), n_chosen = 0;
    uint64_t *set = take(weft_attn_set_words(n) * sizeof *set);
    for (uint32_t i = 0; i < n; i++)
        places[i] = i;
    sorted_by = scores;
    qsort(places, n, sizeof *places, by_score_then_place);
    wefti_forward_choose(scores, n, k, set);
    for (uint32_t i = 0; i < n; i++) {
        bool is_chosen = weft_attn_bit(set, places[i]);
        n_chosen += is_chosen;
        if (is_chosen != (i < k)) fail_msg("%u of %u: place %u by rank %u", k, n, places[i], i);
    }
    assert_int_equal(n_chosen, k < n ? k : n);
    if (n % 64) assert_int_equal(set[n / 64] >> n % 64, 0); /* no bit after the last */
    free(places);
    free(set);
}

static void the_best_are_chosen_and_of_equal_ones_the_first(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 400; round++) {
        uint32_t n = between(&seed, 1, round % 10 ? 200 : 5000), kind = round % 6;
        float *scores = take(n * sizeof *scores);
        fill(&seed, kind == 0 ? WIDE : kind == 1 ? TINY : kind == 2 ? SPARSE : PLAIN, scores, n);
        for (uint32_t i = 0; i < n; i++) {
            if (kind == 3) scores[i] = (float)weft_rand_below(&seed, 4) - 1.0f; /* many alike */
            if (kind == 4) scores[i] = 0;
            if (kind == 5 && i % 3 == 0) scores[i] = i % 2 ? NAN : INFINITY;
            if (kind == 5 && i % 7 == 0) scores[i] = -INFINITY;
        }
        check_choice(scores, n, between(&seed, 1, n + 2));
        check_choice(scores, n, 1);
        check_choice(scores, n, n);
        free(scores);
    }
}

/* Neighbours in the order of floats differ in the last digit alone. */
static void the_smallest_differences_decide(void **state) {
    (void)state;
    float scores[300];
    for (uint32_t round = 0; round < 20; round++) {
        float x = some_float(&seed, WIDE);
        for (uint32_t i = 0; i < 300; i++) {
            scores[(i * 7 + round) % 300] = x;
            if (i % 2) x = nextafterf(x, INFINITY);
        }
        for (uint32_t k = 1; k < 300; k += 23)
            check_choice(scores, 300, k);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_agree_with_sums_in_double_and_in_any_cut),
        cmocka_unit_test(scores_of_int8_have_the_bits_of_the_definition),
        cmocka_unit_test(a_bad_key_reaches_no_other_score),
        cmocka_unit_test(the_best_are_chosen_and_of_equal_ones_the_first),
        cmocka_unit_test(the_smallest_differences_decide),
    };
    seed = weft_rand_test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
