/* Products of every kind on every table: right within the bound of f32 sums, and for each row the
 * same bits beside any others. */
#include "gemm_case.h"

#include "inside/kernels/convert.h"

/* The stored weights, read back by the layout that the header states. */
static double plain_weight_at(const struct gemm_case *c, uint32_t n, uint32_t k) {
    const uint8_t *panel =
        (const uint8_t *)c->packed + n / WEFT_PANEL * weft_kern_panel_bytes(c->kind, c->k);
    uint32_t i = n % WEFT_PANEL;
    const uint16_t *halves = (const void *)panel;
    const uint8_t *block = panel + (size_t)k / 32 * 544;
    uint16_t scale;
    int code;
    switch (c->kind) {
    case WEFT_GEMM_F32_F32:
        return (double)((const float *)(const void *)panel)[(size_t)k * 16 + i];
    case WEFT_GEMM_F16_F32:
        return (double)f16_to_f32(halves[(size_t)k * 16 + i]);
    case WEFT_GEMM_BF16_F32:
    case WEFT_GEMM_BF16:
        return (double)bf16_to_f32(halves[((size_t)k / 2 * 16 + i) * 2 + k % 2]);
    case WEFT_GEMM_I8_F32:
    case WEFT_GEMM_I8:
        code = panel[(size_t)(k / 4) * 64 + i * 4 + k % 4] - 128;
        return (double)((const float *)(const void *)(panel + (size_t)(c->k + 3) / 4 * 64))[i] *
               code;
    default:
        memcpy(&scale, block + 512 + 2 * (size_t)i, sizeof scale);
        code = block[k % 32 / 4 * 64 + i * 4 + k % 4] - 128;
        return (double)f16_to_f32(scale) * code;
    }
}

/* The same of every kind; `parts_out`: the sum of the magnitudes of its parts. */
static double weight_at(const struct gemm_case *c, uint32_t n, uint32_t k, double *parts_out) {
    if (kind_facts[c->kind].rounds) {
        struct gemm_case exact = *c;
        exact.kind = weft_kern_exact_kind(weights_of(c->kind));
        const float weight = (float)weight_at(&exact, n, k, parts_out);
        *parts_out = fabs((double)bf16_to_f32(f32_to_bf16(weight)));
        return (double)bf16_to_f32(f32_to_bf16(weight));
    }
    if (is_quant(weights_of(
            c->kind))) { /* code and min may cancel: what is added up is larger than the sum */
        const struct quant_layout *q = quant_layout_of(weights_of(c->kind));
        const uint8_t *group = (const uint8_t *)c->packed +
                               n / WEFT_PANEL * weft_kern_panel_bytes(c->kind, c->k) +
                               k / q->group * (size_t)q->bytes;
        uint32_t i = n % WEFT_PANEL, sub = k % q->group / q->sub;
        double code = (double)quant_code(q, group, k % q->group, i) - q->zero;
        double product = (double)quant_scale(q, group, sub, i) * code;
        double min = (double)quant_min(q, group, sub, i);
        *parts_out = fabs(product) + fabs(min);
        return product + min;
    }
    if (is_act_order(weights_of(c->kind))) {
        const struct act_order *o = act_order_of(weights_of(c->kind));
        const uint8_t *panel =
            (const uint8_t *)c->packed + n / WEFT_PANEL * weft_kern_panel_bytes(c->kind, c->k);
        const struct order_panel parts = order_panel_of(o, panel, c->k, c->k);
        double weight = (double)order_weight(o, &parts, k, n % WEFT_PANEL);
        *parts_out = fabs(weight);
        return weight;
    }
    if (is_fp8_nf4(weights_of(c->kind))) {
        const uint8_t *panel =
            (const uint8_t *)c->packed + n / WEFT_PANEL * weft_kern_panel_bytes(c->kind, c->k);
        double weight =
            (double)fp8_nf4_weight(fp8_nf4_of(weights_of(c->kind)), panel, k, n % WEFT_PANEL);
        *parts_out = fabs(weight);
        return weight;
    }
    double plain_weight = plain_weight_at(c, n, k);
    *parts_out = fabs(plain_weight);
    return plain_weight;
}

static double act_at(const struct gemm_case *c, uint32_t m, uint32_t k) {
    const uint8_t *row = (const uint8_t *)c->act + m * c->args.act_row_bytes;
    if (weft_kern_act_of(c->kind) == WEFT_ACT_BF16)
        return (double)bf16_to_f32(((const uint16_t *)(const void *)row)[k]);
    if (c->kind == WEFT_GEMM_I8) {
        struct i8_row i8 = i8_row_at(row, c->k);
        return (double)i8.scales[k / I8_GROUP] * i8.codes[k];
    }
    if (!takes_q8(c->kind)) return (double)((const float *)(const void *)row)[k];
    const float *scales = (const void *)(row + c->k);
    return (double)scales[k / 32] * ((const int8_t *)row)[k];
}

/* Sums of products, or of their magnitudes: eight at once, as a chain of additions is most of this test's time. */
static double dot(const double *a, const double *b, uint32_t n, bool magnitudes) {
    enum { LANES = 8 };
    double sums[LANES] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            double product = a[i + lane] * b[i + lane];
            sums[lane] += magnitudes ? fabs(product) : product;
        }
    }
    for (; i < n; i++) {
        sum += magnitudes ? fabs(a[i] * b[i]) : a[i] * b[i];
    }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        sum += sums[lane];
    }
    return sum;
}

/* Compares with a sum in double: k roundings in f32, each of at most the sum of magnitudes, and a
 * few more for tree, scales and residual. vdpbf16ps takes a subnormal input for zero: `lost`. */
static void check_product(const struct weft_kern_table *table, const struct gemm_case *c,
                          const float *got) {
    double *w = malloc((size_t)c->n * c->k * sizeof *w), *a = malloc(c->k * sizeof *a);
    double *parts = malloc((size_t)c->n * c->k * sizeof *parts);
    double *lost = calloc((size_t)c->n * c->k, sizeof *lost);
    const bool loses = weft_kern_act_of(c->kind) == WEFT_ACT_BF16;
    assert_non_null(w);
    assert_non_null(parts);
    assert_non_null(lost);
    assert_non_null(a);
    for (uint32_t n = 0; n < c->n; n++) {
        for (uint32_t k = 0; k < c->k; k++) {
            const size_t at = (size_t)n * c->k + k;
            w[at] = weight_at(c, n, k, &parts[at]);
            if (loses && fabs(w[at]) < 0x1p-126) lost[at] = w[at];
        }
    }
    for (uint32_t m = 0; m < c->m; m++) {
        for (uint32_t k = 0; k < c->k; k++) {
            a[k] = act_at(c, m, k);
        }
        for (uint32_t n = 0; n < c->n; n++) {
            const size_t row = (size_t)n * c->k;
            double sum = dot(a, w + row, c->k, false);
            double magnitude = dot(a, parts + row, c->k, true);
            double flushed = loses ? dot(a, lost + row, c->k, true) : 0;
            size_t at = m * c->ldc + n;
            if (c->args.bias) {
                sum += (double)c->bias[n];
                magnitude += fabs((double)c->bias[n]);
            }
            if (c->args.residual) {
                sum += (double)c->residual[at];
                magnitude += fabs((double)c->residual[at]);
            }
            double bound = (c->k + 8) * 0x1p-24 * magnitude + flushed + c->k * 0x1p-126;
            if (!(fabs((double)got[at] - sum) <= bound)) {
                fail_msg("%s kind %d m %u/%u n %u/%u k %u: %.9g, not %.9g +- %.3g", table->name,
                         c->kind, m, c->m, n, c->n, c->k, (double)got[at], sum, bound);
            }
        }
        for (size_t n = c->n; n < c->ldc; n++) { /* columns beyond N are not ours */
            assert_true(isnan(got[m * c->ldc + n]));
        }
    }
    free(w);
    free(parts);
    free(lost);
    free(a);
}

/* Sanitizers look at places, which a few sizes reach, and take ten times as long. */
#ifdef WEFT_SANITIZED
enum { SUM_ROUNDS = 12, BATCH_ROUNDS = 2 };
#else
enum { SUM_ROUNDS = 45, BATCH_ROUNDS = 8 };
#endif

/* A fourth of the rounds is enough of each kind that rounds, as these differ in how a weight is unpacked alone, and of
 * the slow definitions, whose loops know no tiles. Which ones is drawn, so that they are of all sizes and flavours. */
static bool is_left_out(const struct weft_kern_table *table, uint32_t kind) {
    const bool needs_few = kind_facts[kind].rounds || table->isa == WEFT_ISA_SCALAR;
    return needs_few && weft_rand_below(&seed, 4) != 0;
}

static void every_kind_agrees_with_a_sum_in_double(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < SUM_ROUNDS; round++) {
        uint32_t m = between(&seed, 1, round % 8 == 0 ? 110 : 26);
        uint32_t n = between(&seed, 1, 100), k = between(&seed, 1, round % 4 == 0 ? 900 : 140);
        enum flavour flavour = (enum flavour)(round % FLAVOURS);
        for (uint32_t t = 0; t < n_tables; t++) {
            for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
                if (!has_own(&tables[t], kind)) continue;
                if (is_left_out(&tables[t], kind)) continue;
                struct gemm_case c;
                make_case(&c, &tables[t], (enum weft_gemm_kind)kind, m, n, k, flavour);
                float *got = product(&tables[t], &c);
                check_product(&tables[t], &c, got);
                free(got);
                drop_case(&c);
            }
        }
    }
}

static void every_remainder_of_n_and_k_is_right(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t t = 0; t < n_tables; t++) {
        for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
            if (!has_own(&tables[t], kind)) continue;
            for (uint32_t i = 1; i <= 33; i++) {
                struct gemm_case c;
                make_case(&c, &tables[t], (enum weft_gemm_kind)kind, i % 15 + 1, i, 34 - i, PLAIN);
                float *got = product(&tables[t], &c);
                check_product(&tables[t], &c, got);
                free(got);
                drop_case(&c);
            }
        }
    }
}

/* Rows first..first+count of the panels p0..p1 alone must give the bits of `whole`. */
static void check_part(const struct weft_kern_table *table, const struct gemm_case *c,
                       const float *whole, uint32_t first, uint32_t count, uint32_t p0,
                       uint32_t p1) {
    struct weft_gemm_args args = c->args;
    args.act = (const uint8_t *)args.act + first * args.act_row_bytes;
    if (args.residual) args.residual += first * c->ldc;
    args.m = count;
    args.c = take(count * c->ldc * sizeof(float));
    run_kernel(table, c->kind, &args, p0, p1);
    for (uint32_t m = 0; m < count; m++) {
        for (uint32_t n = 0; n < c->ldc; n++) {
            float got = args.c[m * c->ldc + n];
            bool ours = n >= p0 * WEFT_PANEL && n < p1 * WEFT_PANEL && n < c->n;
            if (ours ? same_bits(got, whole[(first + m) * c->ldc + n]) : isnan(got)) continue;
            fail_msg("%s kind %d: row %u of %u, computed with %u others, panels %u..%u, n %u of "
                     "%u, k %u: "
                     "%.9g is not %.9g",
                     table->name, c->kind, first + m, c->m, count - 1, p0, p1, n, c->n, c->k,
                     (double)got, (double)whole[(first + m) * c->ldc + n]);
        }
    }
    free(args.c);
}

static void a_row_has_the_same_bits_in_any_batch(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < BATCH_ROUNDS; round++) {
        for (uint32_t t = 0; t < n_tables; t++) {
            for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
                if (!has_own(&tables[t], kind)) continue;
                if (is_left_out(&tables[t], kind)) continue;
                uint32_t m = between(&seed, 14, tables[t].isa == WEFT_ISA_SCALAR ? 20 : 130);
                struct gemm_case c;
                make_case(&c, &tables[t], (enum weft_gemm_kind)kind, m, between(&seed, 33, 120),
                          between(&seed, 100, round == 0 ? 1500 : 400), (round % 2) ? WIDE : PLAIN);
                float *whole = product(&tables[t], &c);
                for (uint32_t count = 1; count <= 14; count++) {
                    check_part(&tables[t], &c, whole, weft_rand_below(&seed, m - count + 1), count,
                               0, n_panels(&c));
                }
                for (uint32_t i = 0; i < 6; i++) {
                    uint32_t first = weft_rand_below(&seed, m),
                             p0 = weft_rand_below(&seed, n_panels(&c));
                    check_part(&tables[t], &c, whole, first, between(&seed, 1, m - first), p0,
                               between(&seed, p0, n_panels(&c)));
                }
                free(whole);
                drop_case(&c);
            }
        }
    }
}

static void both_forms_of_activations_give_the_same_bits(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t t = 0; t < n_tables; t++) {
        for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
            if (!has_own(&tables[t], kind)) continue;
            uint32_t step = tables[t].group_rows / 3 + 1; /* all remainders, but not all sizes */
            for (uint32_t m = 1; m <= 2 * tables[t].group_rows + 1; m += step) {
                struct gemm_case c;
                make_case(&c, &tables[t], (enum weft_gemm_kind)kind, m, 40, 300, PLAIN);
                struct weft_gemm_args args = c.args;
                float *rows = args.c = take(c.m * c.ldc * sizeof(float));
                tables[t].gemm[kind](&args, 0, n_panels(&c));
                float *groups = args.c = take(c.m * c.ldc * sizeof(float));
                void *act = interleaved(&tables[t], c.kind, &args);
                args.act = act;
                args.act_group = tables[t].group_rows;
                tables[t].gemm[kind](&args, 0, n_panels(&c));
                for (uint32_t i = 0; i < m; i++) {
                    assert_memory_equal(rows + i * c.ldc, groups + i * c.ldc, c.n * sizeof *rows);
                }
                free(rows);
                free(groups);
                free(act);
                drop_case(&c);
            }
        }
    }
}

/* Longer than a span of K in every form of activations, and more panels than share one. */
static void a_long_k_and_many_panels_agree_with_a_sum_in_double(void **state) {
    static const uint32_t sizes[2][3] = {{30, 150, 4352}, {13, 20, 18432}};
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t t = 1; t < n_tables; t++) { /* scalar is the definition */
        for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
            if (!has_own(&tables[t], kind)) continue;
            const uint32_t *size = sizes[(kind + t) % 2];
            struct gemm_case c;
            make_case(&c, &tables[t], (enum weft_gemm_kind)kind, size[0], size[1], size[2], PLAIN);
            float *got = product(&tables[t], &c);
            check_product(&tables[t], &c, got);
            free(got);
            drop_case(&c);
        }
    }
}

static void the_residual_may_be_the_output(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t t = 0; t < n_tables; t++) {
        for (uint32_t m = 1; m < 30; m += 7) {
            struct gemm_case c;
            make_case(&c, &tables[t], WEFT_GEMM_BF16_F32, m, 50, 600, PLAIN);
            c.args.residual = c.residual;
            float *apart = product(&tables[t], &c);
            struct weft_gemm_args args = c.args;
            args.c = c.residual;
            run_kernel(&tables[t], c.kind, &args, 0, n_panels(&c));
            for (uint32_t i = 0; i < m; i++) {
                assert_memory_equal(apart + i * c.ldc, c.residual + i * c.ldc, c.n * sizeof(float));
            }
            free(apart);
            drop_case(&c);
        }
    }
}

/* The tree of the header, written out for a column of segment sums; NaN marks an empty one. */
static float joined(const float part[8]) {
    float level[8];
    memcpy(level, part, sizeof level);
    for (uint32_t n = 8; n > 1; n /= 2) {
        for (uint32_t i = 0; i < n / 2; i++) {
            float a = level[2 * i], b = level[2 * i + 1];
            level[i] = isnan(a) ? b : isnan(b) ? a : a + b;
        }
    }
    return level[0];
}

/* Columns begin..end of the packed weight: the same bytes as of those columns packed alone, unless
 * they share a table with others. */
static void *cut_columns(const struct gemm_case *c, uint32_t begin, uint32_t end) {
    uint32_t k = end - begin;
    size_t whole = weft_kern_panel_bytes(c->kind, c->k);
    size_t part = weft_kern_part_bytes(c->kind, c->k, k), bytes = n_panels(c) * part;
    uint8_t *packed = take(bytes), *cut = take(bytes);
    for (uint32_t p = 0; p < n_panels(c); p++)
        weft_kern_cut(c->kind, (const uint8_t *)c->packed + p * whole, c->k, begin, end,
                      cut + p * part);
    if (!is_act_order(weights_of(c->kind))) {
        pack_columns(c, begin, k, packed);
        assert_memory_equal(cut, packed, bytes);
    }
    free(packed);
    return cut;
}

/* The product over segments s0..s1 only, as computed by a worker with just their slice of K. */
static float *slice_product(const struct weft_kern_table *table, const struct gemm_case *c,
                            uint32_t s0, uint32_t s1) {
    uint32_t begin = s0 > 0 ? c->segs.seg_end[s0 - 1] : 0, end = c->segs.seg_end[s1 - 1];
    if (begin == end) return NULL;
    struct gemm_case part = *c;
    uint32_t k = part.k = part.args.k = end - begin;
    part.args.k_whole = c->k;
    for (uint32_t s = 0; s < 8; s++) {
        uint32_t at = c->segs.seg_end[s];
        part.segs.seg_end[s] = at < begin ? 0 : at > end ? k : at - begin;
    }
    float *act = take((size_t)c->m * k * 4);
    for (uint32_t m = 0; m < c->m; m++) {
        memcpy(act + (size_t)m * k, c->act_src + (size_t)m * c->k + begin, k * sizeof(float));
    }
    part.args.act_row_bytes = weft_kern_act_row_bytes(c->kind, k);
    void *act_form = take(c->m * part.args.act_row_bytes);
    void *packed = cut_columns(c, begin, end);
    table->act_convert(c->kind, act, k, c->m, k, act_form, part.args.act_row_bytes);
    part.args.act = act_form;
    part.args.packed = packed;
    part.args.segs = &part.segs;
    part.args.bias = part.args.residual = NULL;
    float *sum = product(table, &part);
    free(act);
    free(act_form);
    free(packed);
    return sum;
}

static void any_number_of_workers_sums_to_the_same_bits(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    const uint32_t units[] = {1, 3, 8, 11, 20};
    (void)state;
    for (uint32_t round = 0; round < 5 * WEFT_GEMM_KIND_COUNT; round++) {
        const struct weft_kern_table *table = &tables[weft_rand_below(&seed, n_tables)];
        uint32_t kind = round / 5, u = units[round % 5];
        if (!table->gemm[kind]) continue;
        struct gemm_case c;
        uint32_t unit = unit_of((enum weft_gemm_kind)kind);
        if (unit < 32) unit = 32;
        make_case(&c, table, (enum weft_gemm_kind)kind, between(&seed, 1, 20), 40, u * unit, PLAIN);
        weft_kern_segs_split(&c.segs, u, unit);
        c.args.bias = c.args.residual = NULL;
        float *whole = product(table, &c);
        for (uint32_t workers = 1; workers <= 8; workers *= 2) {
            float *part[8] = {0};
            for (uint32_t w = 0; w < workers; w++) {
                part[w * (8 / workers)] =
                    slice_product(table, &c, w * (8 / workers), (w + 1) * (8 / workers));
            }
            for (size_t i = 0; i < c.m * c.ldc; i++) {
                if (i % c.ldc >= c.n) continue;
                float column[8];
                for (uint32_t s = 0; s < 8; s++) {
                    column[s] = part[s] ? part[s][i] : NAN;
                }
                assert_true(same_bits(joined(column), whole[i]));
            }
            for (uint32_t s = 0; s < 8; s++) {
                free(part[s]);
            }
        }
        free(whole);
        drop_case(&c);
    }
}

static void quantised_products_have_the_same_bits_on_every_isa(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < 10 * WEFT_GEMM_KIND_COUNT; round++) {
        struct gemm_case c;
        enum weft_gemm_kind kind = (enum weft_gemm_kind)(round % WEFT_GEMM_KIND_COUNT);
        if (!has_codes(kind) || is_alike(kind)) continue;
        make_case(&c, &tables[0], kind, between(&seed, 1, 20), between(&seed, 1, 60),
                  between(&seed, 1, 700), (enum flavour)(round % FLAVOURS));
        float *first = product(&tables[0], &c);
        for (uint32_t t = 1; t < n_tables; t++) {
            float *other = product(&tables[t], &c);
            assert_memory_equal(first, other, c.m * c.ldc * sizeof(float));
            free(other);
        }
        free(first);
        drop_case(&c);
    }
}

/* All bytes but the scales of f16. */
static void set_groups(struct gemm_case *c, int byte) {
    const size_t block_bytes = weft_dtype_block_bytes(weights_of(c->kind));
    for (size_t at = 0; at < c->n * c->group_row_bytes; at += block_bytes) {
        memset(c->groups + at, byte, block_bytes);
        set_scales(weights_of(c->kind), c->groups + at, 0x2400, 0x2401);
    }
}

/* Codes at the ends of their ranges: 8-bit sums that a saturating instruction would get wrong. */
static void extreme_codes_do_not_saturate(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < 4 * WEFT_GEMM_KIND_COUNT; round++) {
        struct gemm_case c;
        uint32_t sign = round / WEFT_GEMM_KIND_COUNT;
        enum weft_gemm_kind kind = (enum weft_gemm_kind)(round % WEFT_GEMM_KIND_COUNT);
        if (!has_codes(kind) || is_alike(kind)) continue;
        make_case(&c, &tables[0], kind, 7, 40, 256, PLAIN);
        for (size_t i = 0; i < (size_t)c.n * c.k; i++) {
            c.weights[i] = sign & 1 ? -1.0f : 1.0f;
        }
        for (size_t i = 0; i < (size_t)c.m * c.k; i++) {
            c.act_src[i] = sign & 2 ? -1.0f : 1.0f;
        }
        if (c.groups) set_groups(&c, sign & 1 ? 0x7f : 0xff);
        pack_columns(&c, 0, c.k, c.packed);
        tables[0].act_convert(c.kind, c.act_src, c.k, c.m, c.k, c.act, c.args.act_row_bytes);
        for (uint32_t t = 0; t < n_tables; t++) {
            float *got = product(&tables[t], &c);
            check_product(&tables[t], &c, got);
            free(got);
        }
        drop_case(&c);
    }
}

static void zeros_give_plus_zero_and_a_nan_stays_in_its_row(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (uint32_t t = 0; t < n_tables; t++) {
        for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
            if (!has_own(&tables[t], kind)) continue;
            struct gemm_case c;
            make_case(&c, &tables[t], (enum weft_gemm_kind)kind, 9, 35, 96, PLAIN);
            c.args.bias = c.args.residual = NULL;
            memset(c.act_src, 0, (size_t)c.m * c.k * sizeof(float));
            for (uint32_t m = 0; m < 3; m++) {
                c.act_src[(size_t)(m * 2 + 1) * c.k + 17] = bad[m];
            }
            tables[t].act_convert(c.kind, c.act_src, c.k, c.m, c.k, c.act, c.args.act_row_bytes);
            float *got = product(&tables[t], &c);
            for (uint32_t m = 0; m < c.m; m++) {
                for (uint32_t n = 0; n < c.n; n++) {
                    float value = got[m * c.ldc + n];
                    assert_true(m % 2 == 1 && m < 6 ? !isfinite(value) : same_bits(value, 0.0f));
                }
            }
            free(got);
            drop_case(&c);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_agrees_with_a_sum_in_double),
        cmocka_unit_test(every_remainder_of_n_and_k_is_right),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(both_forms_of_activations_give_the_same_bits),
        cmocka_unit_test(a_long_k_and_many_panels_agree_with_a_sum_in_double),
        cmocka_unit_test(the_residual_may_be_the_output),
        cmocka_unit_test(any_number_of_workers_sums_to_the_same_bits),
        cmocka_unit_test(quantised_products_have_the_same_bits_on_every_isa),
        cmocka_unit_test(extreme_codes_do_not_saturate),
        cmocka_unit_test(zeros_give_plus_zero_and_a_nan_stays_in_its_row),
    };
    seed = weft_rand_test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
