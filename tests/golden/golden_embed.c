/* Embeddings and scores of our own tiny models against the reference, in exact mode.
 *
 * tests/data/embed holds them with their goldens (goldens.json, goldens.safetensors), made as
 * ../shared/reference/embed does; what lies only in ../shared/embed is read from there, and said to be
 * skipped where it is absent. The ids are those of the goldens: golden_embed_ids has the tokenizers. */
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
#include "model/model.h"

#define TOLERANCE 1e-4
#define IDS_MAX 1024

/* A file of ours, or of ../shared/embed; NULL: it is in neither place. */
static const char *find(const char *name) {
    static char paths[4][4096];
    static unsigned next;
    char *path = paths[next++ % 4];
    const char *root = getenv("WEFT_SOURCE_DIR"), *shared = getenv("WEFT_SHARED_DIR");
    (void)snprintf(path, sizeof paths[0], "%s/tests/data/embed/%s", root ? root : ".", name);
    if (access(path, R_OK) == 0) return path;
    (void)snprintf(path, sizeof paths[0], "%s/embed/%s", shared ? shared : "../shared", name);
    if (access(path, R_OK) == 0) return path;
    (void)printf("SKIPPED: no %s\n", path);
    return NULL;
}

struct model {
    weft_eng *eng;
    struct drive *drive;
    struct weft_model_pooling *pooling;
    struct goldens goldens;
    json_t *json;
    const char *name;
    uint32_t next_gen;
    double worst;
};

/* False: it is not there. `folder` has the goldens of the model at `path`. */
static bool begin(struct model *m, const char *folder, const char *path) {
    struct weft_errmsg why;
    struct weft_eng_options options;
    char name[256];
    json_error_t at;
    *m = (struct model){.name = path};
    const char *found = find(path);
    (void)snprintf(name, sizeof name, "%s/goldens.json", folder);
    const char *json = find(name);
    if (!found || !json) return false;
    m->json = json_load_file(json, JSON_ALLOW_NUL, &at);
    assert_non_null(m->json);
    weft_eng_options_init(&options);
    options.activations = WEFT_ENG_ACT_F32;
    options.n_threads = 2;
    options.max_seqs = 4;
    options.kv_memory_bytes = 8u << 20;
    options.max_batched_tokens = IDS_MAX;
    m->eng = drive_open(found, &options);
    assert_int_equal(weft_model_pooling_read(found, &m->pooling, &why), WEFT_OK);
    m->drive = malloc(sizeof *m->drive);
    assert_non_null(m->drive);
    drive_init(m->drive, m->eng);
    return true;
}

static void end(struct model *m) {
    (void)printf("%s: worst %.2e\n", m->name, m->worst);
    assert_true(m->worst <= TOLERANCE);
    json_decref(m->json);
    goldens_close(&m->goldens);
    weft_model_pooling_free(m->pooling);
    free(m->drive);
    weft_eng_free(m->eng);
}

static uint32_t read_ids(const json_t *list, uint32_t ids[IDS_MAX]) {
    size_t n = json_array_size(list);
    assert_in_range(n, 1, IDS_MAX);
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return (uint32_t)n;
}

/* The values of one text alone, valid until the next one. */
static struct weft_step_out pool_ids(struct model *m, const uint32_t *ids, uint32_t n,
                                     const struct weft_pooling *pooling) {
    uint32_t blocks[IDS_MAX / 16], n_blocks = (n + 15) / 16;
    struct weft_step_start start = {
        .gen = ++m->next_gen, .tokens = ids, .n_tokens = n, .n_prompt = n, .pooling = *pooling};
    for (uint32_t i = 0; i < n_blocks; i++)
        blocks[i] = i;
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = 0;
    drive_start(m->drive, &start);
    drive_grant(m->drive, 0, start.gen, blocks, n_blocks);
    drive_row(m->drive, 0, start.gen, n);
    struct weft_step_out out = drive_run(m->drive)->outs[0];
    assert_true(out.ran && out.n_values > 0);
    drive_release(m->drive, 0, start.gen);
    return out;
}

static void note(struct model *m, double got, double want) {
    double off = fabs(got - want);
    if (off > m->worst || isnan(off)) m->worst = off;
}

/* ------------------------------------------------------------------------------- embeddings --- */

static void check_embedding(struct model *m, size_t i, const uint32_t *ids, uint32_t n) {
    const struct weft_pooling pooling = {.kind = m->pooling->kind};
    struct weft_step_out out = pool_ids(m, ids, n, &pooling);
    struct goldens_array want;
    char name[64];
    double sum = 0;
    (void)snprintf(name, sizeof name, "text_%zu.embedding", i);
    assert_true(goldens_find(&m->goldens, name, "F32", &want));
    assert_int_equal(out.n_values, want.n_cols);
    for (uint32_t k = 0; k < out.n_values; k++)
        sum += (double)out.values[k] * (double)out.values[k];
    double length = m->pooling->normalises ? sqrt(sum) : 1;
    for (uint32_t k = 0; k < out.n_values; k++)
        note(m, (double)out.values[k] / length, (double)goldens_f32(&want, 0, k));
}

static void check_embeddings(const char *folder, const char *path) {
    struct model m;
    char name[256];
    if (!begin(&m, folder, path)) return;
    (void)snprintf(name, sizeof name, "%s/goldens.safetensors", folder);
    const char *goldens = find(name);
    assert_true(goldens && goldens_open(&m.goldens, goldens));
    assert_int_equal(m.pooling->task, WEFT_MODEL_EMBEDS);
    const json_t *texts = json_object_get(m.json, "texts");
    assert_true(json_array_size(texts) >= 10);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        uint32_t ids[IDS_MAX];
        uint32_t n = read_ids(json_object_get(json_array_get(texts, i), "input_ids"), ids);
        check_embedding(&m, i, ids, n);
    }
    end(&m);
}

static void embeddings_are_the_references(void **state) {
    (void)state;
    check_embeddings("qwen3-last", "qwen3-last");
    check_embeddings("qwen3-last", "gguf/qwen3-last.gguf");
}

/* --------------------------------------------------------------------------------- reranking --- */

/* Whether no document comes before one that is better by more than an error. */
static void check_order(const json_t *query, const double *scores) {
    const json_t *order = json_object_get(query, "order");
    for (size_t i = 1; i < json_array_size(order); i++) {
        size_t better = (size_t)json_integer_value(json_array_get(order, i - 1));
        size_t worse = (size_t)json_integer_value(json_array_get(order, i));
        assert_true(scores[better] >= scores[worse]);
    }
}

static void check_judged(struct model *m, const json_t *query, const struct weft_pooling *pooling) {
    const json_t *documents = json_object_get(query, "documents");
    double scores[64];
    assert_in_range(json_array_size(documents), 2, 64);
    for (size_t i = 0; i < json_array_size(documents); i++) {
        const json_t *document = json_array_get(documents, i);
        uint32_t ids[IDS_MAX], n = read_ids(json_object_get(document, "input_ids"), ids);
        struct weft_step_out out = pool_ids(m, ids, n, pooling);
        double yes = (double)out.values[0], no = (double)out.values[1];
        note(m, yes, json_real_value(json_object_get(document, "yes_logit")));
        note(m, no, json_real_value(json_object_get(document, "no_logit")));
        scores[i] = 1 / (1 + exp(no - yes));
        note(m, scores[i], json_real_value(json_object_get(document, "score")));
    }
    check_order(query, scores);
}

static void check_judge(const char *folder, const char *path) {
    struct model m;
    if (!begin(&m, folder, path)) return;
    assert_true(m.pooling->judges);
    struct weft_pooling pooling = {.kind = WEFT_POOLING_TOKENS, .n_ids = 2};
    pooling.ids[0] = (uint32_t)json_integer_value(json_object_get(m.json, "yes_id"));
    pooling.ids[1] = (uint32_t)json_integer_value(json_object_get(m.json, "no_id"));
    const json_t *queries = json_object_get(m.json, "queries");
    assert_true(json_array_size(queries) > 0);
    for (size_t i = 0; i < json_array_size(queries); i++)
        check_judged(&m, json_array_get(queries, i), &pooling);
    end(&m);
}

static void judgements_are_the_references(void **state) {
    (void)state;
    check_judge("qwen3-reranker", "qwen3-reranker");
    check_judge("qwen3-reranker", "gguf/qwen3-reranker.gguf");
}

int main(void) {
    if (drive_isa_missing()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_are_the_references),
        cmocka_unit_test(judgements_are_the_references),
    };
    return cmocka_run_group_tests_name("golden_embed", tests, NULL, NULL);
}
