/* Profiles of experts: who gets which groups, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/eng_drive.h"
#include "harness/eng_group.h"
#include "inside/engine/weights/expert_load.h"
#include "unit/engine_fixtures.h"

#define MODEL "tests/data/zoo/mixtral"
enum { GROUPS = WEFTI_WEIGHTS_EXPERT_GROUPS, TEXT = 20 };

/* ----------------------------------------------------------------------------------- placing --- */

static void without_a_load_groups_go_to_ranks_in_order(void **state) {
    (void)state;
    static const uint64_t none[16];
    uint8_t rank[GROUPS];
    for (uint32_t n_ranks = 1; n_ranks <= GROUPS; n_ranks *= 2) {
        for (int i = 0; i < 2; i++) {
            wefti_expert_load_place(i ? none : NULL, 16, n_ranks, rank);
            for (uint32_t g = 0; g < GROUPS; g++)
                assert_int_equal(rank[g], g * n_ranks / GROUPS);
        }
    }
}

static void popular_groups_are_kept_apart(void **state) {
    (void)state;
    /* Two experts per group: loads 100, 90, 80, 70, 4, 3, 2, 1. */
    static const uint64_t tokens[16] = {60, 40, 90, 0, 1, 79, 35, 35, 4, 0, 0, 3, 1, 1, 1, 0};
    uint8_t rank[GROUPS];
    for (uint32_t n_ranks = 2; n_ranks <= GROUPS; n_ranks *= 2) {
        uint32_t n[GROUPS] = {0};
        wefti_expert_load_place(tokens, 16, n_ranks, rank);
        for (uint32_t g = 0; g < GROUPS; g++)
            n[rank[g]]++;
        for (uint32_t r = 0; r < n_ranks; r++)
            assert_int_equal(n[r], GROUPS / n_ranks); /* none has more than the others */
        if (n_ranks >= 4) assert_true(rank[0] != rank[1] && rank[2] != rank[3]);
    }
    wefti_expert_load_place(tokens, 16, 2, rank);
    static const uint8_t want[GROUPS] = {0, 1, 1, 0, 0, 1, 1, 0}; /* 175 and 175 */
    assert_memory_equal(rank, want, sizeof want);
}

/* -------------------------------------------------------------------------------------- files --- */

static void make_path(char path[64]) {
    (void)snprintf(path, 64, "/tmp/weft-expert-load-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
}

static void small_options(struct weft_eng_options *options) {
    weft_eng_options_init(options);
    options->max_seqs = 1;
    options->max_batched_tokens = 32;
    options->max_model_len = 64;
    options->kv_memory_bytes = 4u << 20;
    options->n_threads = 1;
}

static void assert_refused(const char *model, const char *text, const char *want) {
    struct weft_eng_options options;
    struct weft_errmsg why = {""};
    weft_eng *eng;
    char path[64];
    make_path(path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
    small_options(&options);
    options.expert_profile = path;
    assert_int_equal(weft_eng_open(drive_fixture(model), &options, &eng, &why), WEFT_E_INVAL);
    assert_null(eng);
    assert_int_equal(strncmp(why.text, path, strlen(path)), 0);
    if (!strstr(why.text, want)) fail_msg("%s", why.text);
    (void)unlink(path);
}

#define HEAD "{\"weft_expert_profile\": 1, \"architecture\": \"llama\", \"layers\": 2, "
#define PROFILE(layer) HEAD "\"experts\": 8, \"hidden\": 64, \"tokens\": [[], " layer "]}"

static void bad_profiles_are_refused_in_a_sentence(void **state) {
    (void)state;
    assert_refused(MODEL, "", "is no JSON from line 1, column 0 on");
    assert_refused(MODEL, "{\"a\":\n1", "is no JSON from line 2, column 1 on");
    assert_refused(MODEL, "[1]", "is no JSON object");
    assert_refused(MODEL, "{}", "is no profile of experts");
    assert_refused(MODEL, "{\"weft_expert_profile\": 2}", "not 1");
    assert_refused(MODEL, "{\"weft_expert_profile\": 1, \"architecture\": \"olmoe\"}",
                   "its architecture is not llama");
    assert_refused(MODEL, HEAD "\"experts\": 5}", "its \"experts\" is 5, not 8");
    assert_refused(MODEL, HEAD "\"experts\": 8, \"hidden\": 65}", "its \"hidden\" is 65, not 64");
    assert_refused(MODEL, HEAD "\"experts\": 8, \"hidden\": 64, \"tokens\": []}", "no list of 2");
    assert_refused(MODEL, PROFILE("7"), "layer 1 has no list of 8 numbers");
    assert_refused(MODEL, PROFILE("[1, 2, 3]"), "layer 1 has no list of 8 numbers");
    assert_refused(MODEL, PROFILE("[1, 2, 3, -4, 5, 6, 7, 8]"),
                   "expert 3 in layer 1 are no number from 0");
    assert_refused(MODEL, PROFILE("[1, 2.5, 3, 4, 5, 6, 7, 8]"),
                   "expert 1 in layer 1 are no number from 0");
    assert_refused(MODEL, PROFILE("[9007199254740992, 2, 3, 4, 5, 6, 7, 8]"),
                   "expert 0 in layer 1");
    assert_refused(MODEL, PROFILE("[99999999999999999999, 2, 3, 4]"), "is no JSON from line 1");
    assert_refused(ENGINE_DRAFT, PROFILE("[1, 2, 3, 4]"), "has no experts");
}

static void ignore_row(void *ctx, uint32_t pos, const float *logits) {
    (void)ctx;
    (void)pos;
    (void)logits;
}

static void what_an_engine_writes_it_reads(void **state) {
    (void)state;
    struct weft_eng_options options;
    struct weft_errmsg why;
    uint32_t text[TEXT];
    char path[64];
    make_path(path);
    small_options(&options);
    for (uint32_t i = 0; i < TEXT; i++)
        text[i] = i;
    weft_eng *eng = drive_open(drive_fixture(MODEL), &options);
    const struct weft_eng_info *info = weft_eng_info(eng);
    assert_int_equal(weft_eng_logits(eng, text, TEXT, ignore_row, NULL, &why), WEFT_OK);
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    assert_int_equal(weft_eng_write_expert_profile(eng, out, &why), WEFT_OK);
    assert_int_equal(fclose(out), 0);
    const struct weft_model_params p = {
        .n_layers = info->n_layers, .n_hidden = 64, .moe.n_experts = info->n_experts};
    struct weft_model_params own = p;
    (void)snprintf(own.arch, sizeof own.arch, "%s", info->arch);
    uint64_t *tokens = NULL;
    if (wefti_expert_load_read(path, &own, &tokens, &why)) fail_msg("%s", why.text);
    assert_memory_equal(tokens, weft_eng_expert_tokens(eng),
                        (size_t)info->n_layers * info->n_experts * sizeof *tokens);
    free(tokens);
    (void)unlink(path);
    weft_eng_free(eng);
    eng = drive_open(drive_fixture(ENGINE_DRAFT), &options);
    assert_int_equal(weft_eng_write_expert_profile(eng, stdout, &why), WEFT_E_INVAL);
    weft_eng_free(eng);
}

/* ------------------------------------------------------------------------------------- groups --- */

static void ranks_of_different_profiles_are_told_so(void **state) {
    (void)state;
    struct weft_eng_options options;
    struct eng_group group = {.n_ranks = 2, .coll = group_coll(2)};
    static struct drive drive;
    struct group_step steps[WEFT_COLL_RANKS_MAX];
    static const uint32_t prompt[3] = {1, 2, 3}, block = 0;
    char path[64];
    small_options(&options);
    options.n_ranks = 2;
    options.coll = group.coll;
    options.expert_profile = path;
    for (options.rank = 0; options.rank < 2; options.rank++) {
        make_path(path);
        FILE *file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(options.rank ? PROFILE("[9, 9, 9, 9, 0, 0, 0, 0]")
                                       : PROFILE("[9, 0, 9, 0, 9, 0, 9, 0]"),
                          file) >= 0);
        assert_int_equal(fclose(file), 0);
        group.engs[options.rank] = drive_open(drive_fixture(MODEL), &options);
        (void)unlink(path);
    }
    drive_init(&drive, group.engs[0]);
    struct weft_step_start start = {
        .slot = 0, .gen = 1, .tokens = prompt, .n_tokens = 3, .n_prompt = 3};
    weft_sampling_init(&start.sampling);
    drive_start(&drive, &start);
    drive_grant(&drive, 0, 1, &block, 1);
    drive_row(&drive, 0, 1, 3);
    struct weft_step_plan plan = drive_plan(&drive);
    group_step(&group, &plan, steps);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(steps[i].err, WEFT_E_STATE);
        assert_non_null(strstr(steps[i].why.text, "different profiles of experts"));
    }
    group_close(&group);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_expert_load", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_load_groups_go_to_ranks_in_order),
        cmocka_unit_test(popular_groups_are_kept_apart),
        cmocka_unit_test(bad_profiles_are_refused_in_a_sentence),
        cmocka_unit_test(what_an_engine_writes_it_reads),
        cmocka_unit_test(ranks_of_different_profiles_are_told_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
