/* Layers that predict further tokens, by tests/data/mtp (tests/golden/make_mtp_goldens.py): in the exact mode
 * their logits are the reference's, for all rows of a prompt at once, and row by row; and so are the guesses
 * that go on from the layer's own states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "golden/goldens.h"
#include "harness/eng_drive.h"
#include "inside/engine/forward/forward.h"
#include "inside/engine/runtime/kv_cache.h"
#include "inside/engine/runtime/pool.h"
#include "inside/engine/weights/weights.h"

enum { ROWS_MAX = 64, HIDDEN_MAX = 64, VOCAB_MAX = 512, BLOCKS = 4, BLOCK_SIZE = 16 };
#define TOLERANCE 1e-3
#define GOLDENS "tests/data/mtp/goldens.safetensors"

struct predictor {
    const struct weft_kern_table *kern;
    struct wefti_pool *pool;
    struct wefti_weights weights;
    struct wefti_kv_cache kv;
    struct wefti_forward *forward;
    uint32_t n_hidden, n_vocab;
    float logits[ROWS_MAX][VOCAB_MAX], own[ROWS_MAX][HIDDEN_MAX]; /* of the last pass */
};

static void open_predictor(struct predictor *p, const char *path) {
    struct weft_eng_options options;
    struct weft_eng_loading nobody = {0};
    struct weft_errmsg why;
    weft_model *model;
    struct wefti_weights_plan *plan;
    const struct weft_eng_info info = {.n_blocks = BLOCKS, .block_size = BLOCK_SIZE};
    weft_eng_options_init(&options);
    options.activations = WEFT_ENG_ACT_F32;
    assert_int_equal(weft_kern_select(&p->kern, &why), WEFT_OK);
    if (weft_model_open_predictor(path, &model, &why)) fail_msg("%s", why.text);
    assert_int_equal(wefti_pool_new(2, &p->pool, &why), WEFT_OK);
    if (wefti_weights_lay_out(&p->weights, model, &options, &plan, &why)) fail_msg("%s", why.text);
    if (wefti_weights_load(&p->weights, plan, path, model, p->pool, &nobody, &why))
        fail_msg("%s", why.text);
    wefti_weights_plan_free(plan);
    const struct weft_model_params *params = weft_model_params(model);
    p->n_hidden = params->n_hidden;
    p->n_vocab = params->n_vocab;
    assert_true(p->n_hidden <= HIDDEN_MAX && p->n_vocab <= VOCAB_MAX);
    assert_int_equal(wefti_kv_cache_open_beside(&p->kv, params, &options, &info, &why), WEFT_OK);
    const struct wefti_forward_config config = {.kern = p->kern,
                                                .pool = p->pool,
                                                .weights = &p->weights,
                                                .kv = &p->kv,
                                                .model = model,
                                                .max_batched_tokens = ROWS_MAX,
                                                .max_model_len = BLOCKS * BLOCK_SIZE};
    assert_int_equal(wefti_forward_new(&config, &p->forward, &why), WEFT_OK);
    weft_model_free(model);
}

static void close_predictor(struct predictor *p) {
    wefti_forward_free(p->forward);
    wefti_kv_cache_close(&p->kv);
    wefti_weights_close(&p->weights);
    wefti_pool_free(p->pool);
}

static void on_logits(void *ctx, uint32_t i, float *logits, uint32_t thread_idx) {
    struct predictor *p = ctx;
    (void)thread_idx;
    memcpy(p->logits[i], logits, p->n_vocab * sizeof *logits);
}

static void on_hidden(void *ctx, uint32_t i, const float *hidden, uint32_t thread_idx) {
    struct predictor *p = ctx;
    (void)thread_idx;
    memcpy(p->own[i], hidden, p->n_hidden * sizeof *hidden);
}

/* Rows first..first + n of a sequence, each of which wants logits. */
static void run(struct predictor *p, const uint32_t *tokens, const float *const *states,
                uint32_t first, uint32_t n) {
    static const uint32_t table[BLOCKS] = {2, 0, 3, 1};
    struct weft_attn_row rows[ROWS_MAX];
    struct wefti_forward_span spans[ROWS_MAX];
    uint32_t all[ROWS_MAX];
    bool is_long[ROWS_MAX] = {false};
    struct weft_errmsg why;
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = (struct weft_attn_row){table, first + i, 0};
        spans[i] = (struct wefti_forward_span){i, 1};
        all[i] = i;
    }
    const struct wefti_forward_batch batch = {.n_tokens = n,
                                              .tokens = tokens,
                                              .states = states,
                                              .rows = {rows, rows},
                                              .is_long = is_long,
                                              .n_last_rows = n,
                                              .last_rows = all,
                                              .n_logit_rows = n,
                                              .logit_rows = all,
                                              .on_logits = on_logits,
                                              .n_spans = n,
                                              .spans = spans,
                                              .on_hidden = on_hidden,
                                              .ctx = p};
    if (wefti_forward_run(p->forward, &batch, &why)) fail_msg("%s", why.text);
}

static void assert_near(const float *logits, const struct goldens_array *want, size_t row) {
    for (size_t i = 0; i < want->n_cols; i++) {
        double off = fabs((double)(logits[i] - goldens_f32(want, row, i)));
        if (!(off <= TOLERANCE)) fail_msg("row %zu, token %zu: %g off", row, i, off);
    }
}

struct golden {
    struct goldens_array tokens, states, logits, guesses, guess_logits;
};

static void find(const struct goldens *goldens, const char *model, struct golden *out) {
    const struct {
        const char *name, *dtype;
        struct goldens_array *out;
    } arrays[] = {{"tokens", "I32", &out->tokens},
                  {"states", "F32", &out->states},
                  {"logits", "F32", &out->logits},
                  {"guesses", "I32", &out->guesses},
                  {"guess_logits", "F32", &out->guess_logits}};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s.%s", model, arrays[i].name);
        assert_true(goldens_find(goldens, name, arrays[i].dtype, arrays[i].out));
    }
}

/* The rows that the golden has states for. Returns how many. */
static uint32_t read_rows(const struct golden *golden, uint32_t tokens[ROWS_MAX],
                          float states[ROWS_MAX][HIDDEN_MAX], const float *at[ROWS_MAX]) {
    uint32_t n = (uint32_t)golden->states.n_rows;
    assert_true(n + golden->guesses.n_cols <= ROWS_MAX && golden->states.n_cols <= HIDDEN_MAX);
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = goldens_u32(&golden->tokens, i);
        for (uint32_t k = 0; k < golden->states.n_cols; k++)
            states[i][k] = goldens_f32(&golden->states, i, k);
        at[i] = states[i];
    }
    return n;
}

/* The last row's own state is what the next one reads, and writes. */
static void check_guesses(struct predictor *p, const struct golden *golden, uint32_t n) {
    for (uint32_t i = 0; i < golden->guesses.n_cols; i++) {
        uint32_t guess = p->kern->argmax(p->logits[0], p->n_vocab);
        const float *state = p->own[0];
        assert_near(p->logits[0], &golden->guess_logits, i);
        assert_int_equal(guess, goldens_u32(&golden->guesses, i));
        run(p, &guess, &state, n + i, 1);
    }
}

static void check(const char *path, const char *goldens_path, const char *name) {
    struct predictor *p = calloc(1, sizeof *p);
    struct goldens goldens;
    struct golden golden;
    static float states[ROWS_MAX][HIDDEN_MAX];
    uint32_t tokens[ROWS_MAX];
    const float *at[ROWS_MAX];
    assert_non_null(p);
    open_predictor(p, path);
    assert_true(goldens_open(&goldens, drive_fixture(goldens_path)));
    find(&goldens, name, &golden);
    assert_true(golden.states.n_cols == p->n_hidden && golden.logits.n_cols == p->n_vocab);
    uint32_t n = read_rows(&golden, tokens, states, at);
    run(p, tokens, at, 0, n);
    for (uint32_t i = 0; i < n; i++)
        assert_near(p->logits[i], &golden.logits, i);
    for (uint32_t i = 0; i < n; i++) {
        run(p, tokens + i, at + i, i, 1);
        assert_near(p->logits[0], &golden.logits, i);
    }
    check_guesses(p, &golden, n);
    goldens_close(&goldens);
    close_predictor(p);
    free(p);
}

static void a_layer_with_tables_of_its_own_agrees(void **state) {
    (void)state;
    check(drive_fixture("tests/data/zoo/deepseek_v3"), GOLDENS, "zoo");
}

static void a_layer_that_shares_embedding_and_head_agrees(void **state) {
    (void)state;
    check(drive_fixture("tests/data/mtp"), GOLDENS, "mtp");
}

static void glm_4_5_agrees(void **state) {
    (void)state;
    const char *folder = drive_shared("zoo2/glm4_moe");
    if (!folder) skip();
    check(folder, "tests/data/mtp/glm4_moe.safetensors", "glm4_moe");
}

/* As llama.cpp's converter writes it, from the same folder. */
static void glm_4_5_agrees_in_a_gguf_file(void **state) {
    (void)state;
    const char *dir = getenv("WEFT_GGUF_DIR");
    char path[1024];
    if (!dir) (void)printf("SKIPPED: WEFT_GGUF_DIR names no folder of converted files\n");
    if (!dir) skip();
    (void)snprintf(path, sizeof path, "%s/glm4_moe.gguf", dir);
    check(path, "tests/data/mtp/glm4_moe.safetensors", "glm4_moe");
}

int main(void) {
    if (drive_isa_missing()) return 0;
    weft_log_init("golden_predictor", WEFT_LOG_WARN, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_with_tables_of_its_own_agrees),
        cmocka_unit_test(a_layer_that_shares_embedding_and_head_agrees),
        cmocka_unit_test(glm_4_5_agrees),
        cmocka_unit_test(glm_4_5_agrees_in_a_gguf_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
