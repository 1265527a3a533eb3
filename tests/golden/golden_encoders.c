/* Encoders in the exact mode (f32 activations) against a float64 reference on the same weights: vectors of all
 * poolings and logits of heads within 1e-4, rerank order equal; and, in other modes too, a text's values are the
 * same bits alone and in company.
 *
 * tests/data/embed holds some of ../shared/embed (made by ../shared/reference/embed) and what make_gte.py makes; what
 * is only there is read from there, and said to be skipped where it is absent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "golden/goldens.h"
#include "harness/eng_drive.h"

#define TOLERANCE 1e-4

enum { HIDDEN_MAX = 64, TOKENS_MAX = 64, TEXTS_MAX = 32, TEXT_BLOCKS = 4 };

/* A file of ours, or of ../shared/embed; NULL: it is in neither place. */
static const char *find(const char *name) {
    char path[512];
    (void)snprintf(path, sizeof path, "tests/data/embed/%s", name);
    const char *ours = drive_fixture(path);
    if (access(ours, R_OK) == 0) return ours;
    (void)snprintf(path, sizeof path, "embed/%s", name);
    return drive_shared(path);
}

/* One or two texts as ids. */
struct text {
    uint32_t n, n_first;
    uint32_t ids[TOKENS_MAX];
};

struct fixture {
    weft_eng *eng;
    struct drive drive;
    uint32_t next_gen;
};

static void begin_at(struct fixture *fix, const char *path, enum weft_eng_act act,
                     enum weft_eng_dtype dtype) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.activations = act;
    options.dtype = dtype;
    options.n_threads = 3;
    options.max_seqs = TEXTS_MAX;
    options.kv_memory_bytes = 8 << 20;
    options.max_model_len = 100;
    fix->eng = drive_open(path, &options);
    fix->next_gen = 0;
    drive_init(&fix->drive, fix->eng);
    const struct weft_eng_info *info = weft_eng_info(fix->eng);
    assert_true(info->is_encoder && info->max_batched_tokens >= info->max_model_len);
    assert_int_equal(info->window, 0);
}

static bool begin(struct fixture *fix, const char *model, enum weft_eng_act act) {
    const char *path = find(model);
    if (path) begin_at(fix, path, act, WEFT_ENG_DT_AUTO);
    return path != NULL;
}

static void end(struct fixture *fix) {
    weft_eng_free(fix->eng);
}

static void start_text(struct fixture *fix, uint32_t slot, const struct text *text,
                       enum weft_pooling_kind kind) {
    uint32_t blocks[TEXT_BLOCKS], gen = ++fix->next_gen;
    struct weft_step_start start = {.slot = slot,
                                    .gen = gen,
                                    .tokens = text->ids,
                                    .n_tokens = text->n,
                                    .n_prompt = text->n,
                                    .pooling = {.kind = kind, .n_first = text->n_first}};
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = 0;
    for (uint32_t i = 0; i < TEXT_BLOCKS; i++) /* in no order */
        blocks[i] = (slot * TEXT_BLOCKS + i * 3 % TEXT_BLOCKS) % (TEXTS_MAX * TEXT_BLOCKS);
    drive_start(&fix->drive, &start);
    drive_grant(&fix->drive, slot, gen, blocks, TEXT_BLOCKS);
    drive_row(&fix->drive, slot, gen, text->n);
}

/* All in one step; the values of each. */
static void pool_all(struct fixture *fix, const struct text *texts, uint32_t n,
                     enum weft_pooling_kind kind, float (*out)[HIDDEN_MAX]) {
    uint32_t first_gen = fix->next_gen + 1;
    for (uint32_t i = 0; i < n; i++)
        start_text(fix, i, &texts[i], kind);
    const struct weft_step_result *result = drive_run(&fix->drive);
    for (uint32_t i = 0; i < n; i++) {
        const struct weft_step_out *one = &result->outs[i];
        assert_int_equal(one->finish, WEFT_END_LENGTH);
        assert_in_range(one->n_values, 1, HIDDEN_MAX);
        memcpy(out[i], one->values, one->n_values * sizeof *one->values);
    }
    for (uint32_t i = 0; i < n; i++)
        drive_release(&fix->drive, i, first_gen + i);
    (void)drive_run(&fix->drive);
}

/* ------------------------------------------------------------------------------- vectors --- */

static bool open_goldens(struct goldens *goldens, const char *folder) {
    char name[128];
    (void)snprintf(name, sizeof name, "%s/goldens.safetensors", folder);
    const char *path = find(name);
    return path && goldens_open(goldens, path);
}

static uint32_t read_texts(const struct goldens *goldens, struct text texts[TEXTS_MAX]) {
    uint32_t n = 0;
    for (; n < TEXTS_MAX; n++) {
        struct goldens_array ids;
        char name[64];
        (void)snprintf(name, sizeof name, "text_%u.input_ids", n);
        if (!goldens_find(goldens, name, "I32", &ids)) break;
        assert_in_range(ids.n_cols, 1, TOKENS_MAX);
        texts[n] = (struct text){.n = (uint32_t)ids.n_cols};
        for (uint32_t i = 0; i < texts[n].n; i++)
            texts[n].ids[i] = goldens_u32(&ids, i);
    }
    assert_in_range(n, 10, TEXTS_MAX - 1);
    return n;
}

/* The largest difference of an element, after `scale`. */
static double largest_error(const struct goldens_array *want, size_t row, const float *got,
                            double scale) {
    double worst = 0;
    for (size_t i = 0; i < want->n_cols; i++) {
        double off = fabs((double)got[i] * scale - (double)goldens_f32(want, row, i));
        if (!(off <= worst)) worst = off; /* a NaN sticks */
    }
    return worst;
}

static double length_of(const float *values, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

static double check_pooling(struct fixture *fix, const struct goldens *goldens,
                            const struct text *texts, uint32_t n_texts,
                            enum weft_pooling_kind kind) {
    static const char *const units[] = {[WEFT_POOLING_LAST] = "unit_lasttoken",
                                        [WEFT_POOLING_MEAN] = "unit_mean",
                                        [WEFT_POOLING_CLS] = "unit_cls"};
    static float got[TEXTS_MAX][HIDDEN_MAX];
    double worst = 0;
    pool_all(fix, texts, n_texts, kind, got);
    for (uint32_t i = 0; i < n_texts; i++) {
        struct goldens_array unit, hidden;
        char name[64];
        (void)snprintf(name, sizeof name, "text_%u.%s", i, units[kind]);
        assert_true(goldens_find(goldens, name, "F32", &unit));
        double error = largest_error(&unit, 0, got[i], 1 / length_of(got[i], unit.n_cols));
        (void)snprintf(name, sizeof name, "text_%u.hidden", i);
        assert_true(goldens_find(goldens, name, "F32", &hidden));
        size_t row = kind == WEFT_POOLING_LAST ? hidden.n_rows - 1 : 0;
        if (kind != WEFT_POOLING_MEAN) error = fmax(error, largest_error(&hidden, row, got[i], 1));
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

static void check_poolings(struct fixture *fix, const struct goldens *goldens, const char *model) {
    static struct text texts[TEXTS_MAX];
    uint32_t n = read_texts(goldens, texts);
    double mean = check_pooling(fix, goldens, texts, n, WEFT_POOLING_MEAN);
    double cls = check_pooling(fix, goldens, texts, n, WEFT_POOLING_CLS);
    double last = check_pooling(fix, goldens, texts, n, WEFT_POOLING_LAST);
    (void)printf("%-28s %u texts; largest error: mean %.1e, cls %.1e, last %.1e\n", model, n, mean,
                 cls, last);
    assert_true(mean <= TOLERANCE && cls <= TOLERANCE && last <= TOLERANCE);
}

static void check_vectors(const char *folder, const char *model) {
    struct fixture fix;
    struct goldens goldens;
    if (!open_goldens(&goldens, folder)) return;
    if (begin(&fix, model, WEFT_ENG_ACT_F32)) {
        check_poolings(&fix, &goldens, model);
        end(&fix);
    }
    goldens_close(&goldens);
}

static void vectors_equal_the_reference(void **state) {
    (void)state;
    static const char *const folders[] = {"bert-uncased-mean", "bert-cased-cls",  "xlmr-cls",
                                          "nomic-mean",        "modernbert-mean", "gte-cls"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        check_vectors(folders[i], folders[i]);
    static const char *const files[] = {"bert-uncased-mean", "nomic-mean", "modernbert-mean"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "gguf/%s.gguf", files[i]);
        check_vectors(files[i], path);
    }
}

/* A copy of the zoo's Qwen2 whose tokens see each other. `dir` is a template for mkdtemp. */
static void make_qwen2_both(char *dir) {
    char path[64];
    json_error_t at;
    json_t *config = json_load_file(drive_fixture("tests/data/zoo/qwen2/config.json"), 0, &at);
    assert_non_null(config);
    assert_int_equal(json_object_set_new(config, "is_causal", json_false()), 0);
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(symlink(drive_fixture("tests/data/zoo/qwen2/model.safetensors"), path), 0);
    json_decref(config);
}

static void remove_qwen2_both(const char *dir) {
    char path[64];
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* As GTE's Qwen2: a decoder in all but what tokens see. */
static void a_decoder_that_sees_both_ways_equals_the_reference(void **state) {
    (void)state;
    char dir[] = "/tmp/weft-test-XXXXXX";
    struct fixture fix;
    struct goldens goldens;
    make_qwen2_both(dir);
    begin_at(&fix, dir, WEFT_ENG_ACT_F32, WEFT_ENG_DT_AUTO);
    assert_true(open_goldens(&goldens, "qwen2-both"));
    check_poolings(&fix, &goldens, "qwen2-both");
    goldens_close(&goldens);
    end(&fix);
    remove_qwen2_both(dir);
}

/* ------------------------------------------------------------------------------- rerankers --- */

static struct text pair_of(const json_t *document) {
    const json_t *ids = json_object_get(document, "input_ids");
    const json_t *types = json_object_get(document, "token_type_ids");
    struct text text = {.n = (uint32_t)json_array_size(ids)};
    assert_in_range(text.n, 1, TOKENS_MAX);
    for (uint32_t i = 0; i < text.n; i++) {
        text.ids[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
        if (json_integer_value(json_array_get(types, i)) == 0) text.n_first++;
    }
    return text;
}

static double check_query(struct fixture *fix, const json_t *query) {
    static struct text texts[TEXTS_MAX];
    static float logits[TEXTS_MAX][HIDDEN_MAX];
    const json_t *documents = json_object_get(query, "documents");
    const json_t *order = json_object_get(query, "order");
    uint32_t n = (uint32_t)json_array_size(documents);
    double worst = 0;
    assert_in_range(n, 2, TEXTS_MAX - 1);
    for (uint32_t i = 0; i < n; i++)
        texts[i] = pair_of(json_array_get(documents, i));
    pool_all(fix, texts, n, WEFT_POOLING_CLASSIFY, logits);
    for (uint32_t i = 0; i < n; i++) {
        const json_t *want = json_object_get(json_array_get(documents, i), "logit");
        double off = fabs((double)logits[i][0] - json_real_value(want));
        if (!(off <= worst)) worst = off;
    }
    for (uint32_t i = 1; i < n; i++) {
        size_t better = (size_t)json_integer_value(json_array_get(order, i - 1));
        size_t worse = (size_t)json_integer_value(json_array_get(order, i));
        assert_true(logits[better][0] >= logits[worse][0]);
    }
    return worst;
}

static void check_scores(const char *folder, const char *model) {
    struct fixture fix;
    json_error_t at;
    char name[128];
    double worst = 0;
    (void)snprintf(name, sizeof name, "%s/goldens.json", folder);
    const char *path = find(name);
    if (!path) return;
    json_t *root = json_load_file(path, 0, &at);
    if (!root) fail_msg("%s: %s", path, at.text);
    const json_t *queries = json_object_get(root, "queries");
    assert_true(json_array_size(queries) > 0);
    if (begin(&fix, model, WEFT_ENG_ACT_F32)) {
        assert_int_equal(weft_eng_info(fix.eng)->n_labels, 1);
        for (size_t i = 0; i < json_array_size(queries); i++)
            worst = fmax(worst, check_query(&fix, json_array_get(queries, i)));
        (void)printf("%-28s %zu queries; largest error of a logit %.1e\n", model,
                     json_array_size(queries), worst);
        assert_true(worst <= TOLERANCE);
        end(&fix);
    }
    json_decref(root);
}

static void scores_and_their_order_equal_the_reference(void **state) {
    (void)state;
    check_scores("bert-rerank-sigmoid", "bert-rerank-sigmoid");
    check_scores("bert-rerank-raw", "bert-rerank-raw");
    check_scores("xlmr-rerank", "xlmr-rerank");
    check_scores("xlmr-rerank", "gguf/xlmr-rerank.gguf");
    check_scores("gte-rerank", "gte-rerank");
}

/* ------------------------------------------------------------------------------- invariance --- */

static void check_company(const char *model, enum weft_eng_act act) {
    static struct text texts[TEXTS_MAX];
    static float together[TEXTS_MAX][HIDDEN_MAX], alone[1][HIDDEN_MAX];
    struct fixture fix;
    struct goldens goldens;
    assert_true(open_goldens(&goldens, model) && begin(&fix, model, act));
    uint32_t n = read_texts(&goldens, texts), n_hidden = weft_eng_info(fix.eng)->n_hidden;
    pool_all(&fix, texts, n, WEFT_POOLING_MEAN, together);
    for (uint32_t i = 0; i < n; i++) {
        pool_all(&fix, &texts[i], 1, WEFT_POOLING_MEAN, alone);
        assert_memory_equal(alone[0], together[i], n_hidden * sizeof(float));
    }
    goldens_close(&goldens);
    end(&fix);
}

static void a_text_has_the_same_bits_alone_and_in_company(void **state) {
    (void)state;
    static const char *const folders[] = {"bert-uncased-mean", "xlmr-cls", "nomic-mean",
                                          "modernbert-mean", "gte-cls"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        check_company(folders[i], WEFT_ENG_ACT_F32);
        check_company(folders[i], WEFT_ENG_ACT_AUTO);
    }
}

/* Long enough for threads to share its spans of positions. */
enum { LONG_TEXT = 600, LONG_BLOCKS = 38 };

static void pool_long(uint32_t n_threads, bool in_company, float out[HIDDEN_MAX]) {
    static uint32_t ids[LONG_TEXT];
    static struct drive drive;
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.n_threads = n_threads;
    options.max_seqs = 2;
    options.kv_memory_bytes = 16 << 20;
    options.max_batched_tokens = 2048;
    weft_eng *eng = drive_open(find("modernbert-mean"), &options);
    drive_init(&drive, eng);
    for (uint32_t i = 0; i < LONG_TEXT; i++)
        ids[i] = i * 37 % 590;
    for (uint32_t slot = 0; slot < (in_company ? 2 : 1); slot++) {
        uint32_t blocks[LONG_BLOCKS], n = slot == 0 ? LONG_TEXT : 300;
        struct weft_step_start start = {.slot = slot,
                                        .gen = 1,
                                        .tokens = ids,
                                        .n_tokens = n,
                                        .n_prompt = n,
                                        .pooling.kind = WEFT_POOLING_MEAN};
        weft_sampling_init(&start.sampling);
        start.sampling.max_tokens = 0;
        for (uint32_t i = 0; i < LONG_BLOCKS; i++)
            blocks[i] = slot * LONG_BLOCKS + i;
        drive_start(&drive, &start);
        drive_grant(&drive, slot, 1, blocks, LONG_BLOCKS);
        drive_row(&drive, slot, 1, n);
    }
    const struct weft_step_out *one = &drive_run(&drive)->outs[0];
    assert_int_equal(one->n_values, HIDDEN_MAX);
    memcpy(out, one->values, HIDDEN_MAX * sizeof *out);
    weft_eng_free(eng);
}

static void a_long_text_has_the_same_bits_with_any_number_of_threads(void **state) {
    (void)state;
    float one[HIDDEN_MAX], other[HIDDEN_MAX];
    pool_long(1, false, one);
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads += 2) {
        pool_long(n_threads, true, other);
        assert_memory_equal(one, other, sizeof one);
        pool_long(n_threads, false, other);
        assert_memory_equal(one, other, sizeof one);
    }
}

/* Plans come from another process: nothing of these is done. */
static void plans_that_do_not_fit_an_encoder_are_refused(void **state) {
    (void)state;
    static const struct {
        enum weft_pooling_kind kind;
        uint32_t n_cached, n_tokens;
        const char *said;
    } cases[] = {
        {WEFT_POOLING_NONE, 0, 9, "no next token"},
        {WEFT_POOLING_TOKENS, 0, 9, "no next token"},
        {WEFT_POOLING_LAST, 4, 5, "4 tokens cached"},
        {WEFT_POOLING_CLASSIFY, 0, 9, "values that the model lacks"},
        {WEFT_POOLING_MEAN, 0, 5, "reads texts whole"},
        {WEFT_POOLING_MEAN, 0, 9, NULL},
    };
    static const uint32_t ids[9] = {5, 45, 46, 47, 48, 49, 50, 51, 6};
    struct fixture fix;
    assert_true(begin(&fix, "bert-uncased-mean", WEFT_ENG_ACT_F32));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t block = 7;
        const struct weft_step_result *result;
        struct weft_errmsg why = {""};
        struct weft_step_start start = {.slot = 0,
                                        .gen = 1,
                                        .tokens = ids,
                                        .n_tokens = 9,
                                        .n_prompt = 9,
                                        .n_cached = cases[i].n_cached,
                                        .n_written = cases[i].n_cached,
                                        .pooling.kind = cases[i].kind};
        weft_sampling_init(&start.sampling);
        start.sampling.max_tokens = cases[i].kind == WEFT_POOLING_NONE;
        start.pooling.n_ids = cases[i].kind == WEFT_POOLING_TOKENS;
        drive_clear(&fix.drive);
        drive_start(&fix.drive, &start);
        drive_grant(&fix.drive, 0, 1, &block, 1);
        drive_row(&fix.drive, 0, 1, cases[i].n_tokens);
        const struct weft_step_plan plan = drive_plan(&fix.drive);
        weft_err err = weft_eng_step(fix.eng, &plan, &result, &why);
        assert_int_equal(err, cases[i].said ? WEFT_E_PROTO : WEFT_OK);
        if (cases[i].said && !strstr(why.text, cases[i].said)) fail_msg("%s", why.text);
    }
    struct weft_errmsg why = {""};
    assert_int_equal(weft_eng_logits(fix.eng, ids, 9, NULL, NULL, &why), WEFT_E_UNSUPPORTED);
    assert_non_null(strstr(why.text, "predicts no tokens"));
    end(&fix);
}

/* ------------------------------------------------------------------------------- forms --- */

/* The texts of a folder's goldens through the model at `path`. */
static uint32_t pool_golden(const char *folder, const char *path, enum weft_eng_act act,
                            enum weft_eng_dtype dtype, float (*out)[HIDDEN_MAX]) {
    static struct text texts[TEXTS_MAX];
    struct fixture fix;
    struct goldens goldens;
    begin_at(&fix, path, act, dtype); /* before the path's memory is another's */
    assert_true(open_goldens(&goldens, folder));
    uint32_t n = read_texts(&goldens, texts);
    pool_all(&fix, texts, n, WEFT_POOLING_MEAN, out);
    goldens_close(&goldens);
    end(&fix);
    return n;
}

static void a_packed_encoder_has_the_bits_of_its_source(void **state) {
    (void)state;
    static const char *const folders[] = {"bert-uncased-mean", "xlmr-cls", "nomic-mean",
                                          "modernbert-mean", "gte-cls"};
    static float source[TEXTS_MAX][HIDDEN_MAX], packed[TEXTS_MAX][HIDDEN_MAX];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char dir[] = "/tmp/weft-test-XXXXXX", path[64];
        struct weft_eng_options options;
        struct weft_eng_packed how;
        struct weft_errmsg why = {""};
        assert_non_null(mkdtemp(dir));
        (void)snprintf(path, sizeof path, "%s/m.weft", dir);
        weft_eng_options_init(&options);
        if (weft_eng_pack(find(folders[i]), &options, path, false, &how, &why))
            fail_msg("%s", why.text);
        uint32_t n =
            pool_golden(folders[i], find(folders[i]), WEFT_ENG_ACT_AUTO, WEFT_ENG_DT_AUTO, source);
        (void)pool_golden(folders[i], path, WEFT_ENG_ACT_AUTO, WEFT_ENG_DT_AUTO, packed);
        assert_memory_equal(source, packed, n * sizeof source[0]);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(dir), 0);
    }
}

static double cosine(const float *a, const float *b) {
    double dot = 0;
    for (size_t i = 0; i < HIDDEN_MAX; i++)
        dot += (double)a[i] * (double)b[i];
    return dot / (length_of(a, HIDDEN_MAX) * length_of(b, HIDDEN_MAX));
}

/* Random weights tell worse than trained ones what a quantised form is worth: it is near the exact one. */
static void quantised_forms_are_near_the_exact_one(void **state) {
    (void)state;
    static float exact[TEXTS_MAX][HIDDEN_MAX], other[TEXTS_MAX][HIDDEN_MAX];
    uint32_t n =
        pool_golden("nomic-mean", find("nomic-mean"), WEFT_ENG_ACT_F32, WEFT_ENG_DT_AUTO, exact);
    static const struct {
        enum weft_eng_dtype dtype;
        double least;
    } forms[] = {{WEFT_ENG_DT_AUTO, 0.9995}, {WEFT_ENG_DT_Q8, 0.997}, {WEFT_ENG_DT_Q4, 0.85}};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        double worst = 1;
        (void)pool_golden("nomic-mean", find("nomic-mean"), WEFT_ENG_ACT_AUTO, forms[f].dtype,
                          other);
        for (uint32_t i = 0; i < n; i++)
            worst = fmin(worst, cosine(exact[i], other[i]));
        (void)printf("dtype %d: least cosine %.6f\n", (int)forms[f].dtype, worst);
        assert_true(worst >= forms[f].least);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_equal_the_reference),
        cmocka_unit_test(a_decoder_that_sees_both_ways_equals_the_reference),
        cmocka_unit_test(scores_and_their_order_equal_the_reference),
        cmocka_unit_test(a_text_has_the_same_bits_alone_and_in_company),
        cmocka_unit_test(a_long_text_has_the_same_bits_with_any_number_of_threads),
        cmocka_unit_test(plans_that_do_not_fit_an_encoder_are_refused),
        cmocka_unit_test(a_packed_encoder_has_the_bits_of_its_source),
        cmocka_unit_test(quantised_forms_are_near_the_exact_one),
    };
    if (drive_isa_missing()) return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
