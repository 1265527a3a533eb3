/* Opening an engine: the options it takes and refuses, and the weights, which are packed once and
 * inherited through a sealed memfd, whoever is killed on the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "harness/eng_drive.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "unit/engine_fixtures.h"

/* ---------------------------------------------------------------------------------- options --- */

static weft_err try_open(const struct weft_eng_options *options) {
    weft_eng *eng = NULL;
    struct weft_errmsg why = {{0}};
    weft_err err = weft_eng_open(drive_fixture(ENGINE_TIED), options, &eng, &why);
    assert_true(err == WEFT_OK || (!eng && why.text[0] != '\0'));
    weft_eng_free(eng);
    return err;
}

static void options_out_of_range_are_refused(void **state) {
    (void)state;
    struct weft_eng_options good, bad;
    weft_eng_options_init(&good);
    good.kv_memory_bytes = 1u << 20;
    assert_int_equal(try_open(&good), WEFT_OK);
    bad = good, bad.block_size = 24;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.max_seqs = 0;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.max_batched_tokens = WEFT_BATCHED_TOKENS_MAX + 1;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.n_threads = 1000;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.max_model_len = WEFT_CONTEXT_MAX + 1;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.kv_memory_bytes = 100;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.activations = WEFT_ENG_ACT_INT8; /* a bf16 model */
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
}

static void little_kv_memory_lowers_the_length(void **state) {
    (void)state;
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.kv_memory_bytes = 64u << 10;
    weft_eng *eng = drive_open(drive_fixture(ENGINE_TIED), &options);
    const struct weft_eng_info *info = weft_eng_info(eng);
    assert_true(info->max_model_len < 1024);
    assert_int_equal(info->max_model_len, info->n_blocks * info->block_size);
    assert_true(info->kv_bytes <= options.kv_memory_bytes);
    weft_eng_free(eng);
}

static void the_cache_takes_the_bytes_of_its_type(void **state) {
    const struct {
        enum weft_eng_kv kv;
        uint32_t code_bytes, scale_bytes;
    } types[] = {{WEFT_ENG_KV_F32, 4, 0},
                 {WEFT_ENG_KV_BF16, 2, 0},
                 {WEFT_ENG_KV_F16, 2, 0},
                 {WEFT_ENG_KV_INT8, 1, 4}};
    char fingerprints[4][32];
    (void)state;
    weft_model *model;
    assert_int_equal(weft_model_open(drive_fixture(ENGINE_TIED), &model, NULL), WEFT_OK);
    const struct weft_model_params p = *weft_model_params(model);
    weft_model_free(model);
    for (uint32_t i = 0; i < 4; i++) {
        struct weft_eng_options options;
        weft_eng_options_init(&options);
        options.kv_dtype = types[i].kv;
        options.kv_memory_bytes = 1u << 20;
        weft_eng *eng = drive_open(drive_fixture(ENGINE_TIED), &options);
        const struct weft_eng_info *info = weft_eng_info(eng);
        uint64_t head = p.head_dim * types[i].code_bytes + types[i].scale_bytes;
        uint64_t block = 2 * head * p.n_kv_heads * p.n_layers * info->block_size;
        assert_int_equal(info->n_blocks, options.kv_memory_bytes / block);
        assert_int_equal(info->kv_bytes, info->n_blocks * block);
        memcpy(fingerprints[i], info->fingerprint, sizeof fingerprints[i]);
        for (uint32_t j = 0; j < i; j++) {
            assert_string_not_equal(fingerprints[i], fingerprints[j]);
        }
        weft_eng_free(eng);
    }
}

/* Blocks met by bf16 are other arithmetic than blocks met by int8: sessions must not go from one to the other. */
static void activations_are_in_the_fingerprint(void **state) {
    const enum weft_eng_act kinds[] = {WEFT_ENG_ACT_AUTO, WEFT_ENG_ACT_F32, WEFT_ENG_ACT_BF16};
    const struct weft_kern_table *kern;
    struct weft_errmsg why;
    char fingerprints[3][32];
    (void)state;
    assert_int_equal(weft_kern_select(&kern, &why), WEFT_OK);
    const uint32_t n = kern->bf16_of_blocks ? 3 : 2;
    if (n < 3) puts("this CPU has no bf16 activations for blocks: auto and f32 only");
    for (uint32_t i = 0; i < n; i++) {
        struct weft_eng_options options;
        weft_eng_options_init(&options);
        options.dtype = WEFT_ENG_DT_Q4;
        options.activations = kinds[i];
        options.kv_dtype = WEFT_ENG_KV_BF16;
        weft_eng *eng = drive_open(drive_fixture(ENGINE_TIED), &options);
        memcpy(fingerprints[i], weft_eng_info(eng)->fingerprint, sizeof fingerprints[i]);
        for (uint32_t j = 0; j < i; j++) {
            assert_string_not_equal(fingerprints[i], fingerprints[j]);
        }
        weft_eng_free(eng);
    }
}

static void names_of_options_are_parsed(void **state) {
    (void)state;
    enum weft_eng_dtype dtype;
    enum weft_eng_act act;
    enum weft_eng_kv kv;
    assert_int_equal(weft_eng_parse_dtype("q8", &dtype), WEFT_OK);
    assert_int_equal(dtype, WEFT_ENG_DT_Q8);
    assert_int_equal(weft_eng_parse_dtype("q4", &dtype), WEFT_OK);
    assert_int_equal(dtype, WEFT_ENG_DT_Q4);
    enum weft_eng_scheme scheme;
    assert_int_equal(weft_eng_parse_scheme("group-asym", &scheme), WEFT_OK);
    assert_int_equal(scheme, WEFT_ENG_SCHEME_GROUP_ASYM);
    assert_int_equal(weft_eng_parse_scheme("row", &scheme), WEFT_E_INVAL);
    assert_int_equal(weft_eng_parse_dtype("f8", &dtype), WEFT_E_INVAL);
    assert_int_equal(weft_eng_parse_act("int8", &act), WEFT_OK);
    assert_int_equal(act, WEFT_ENG_ACT_INT8);
    assert_int_equal(weft_eng_parse_act("", &act), WEFT_E_INVAL);
    assert_int_equal(weft_eng_parse_kv("f16", &kv), WEFT_OK);
    assert_int_equal(kv, WEFT_ENG_KV_F16);
    assert_int_equal(weft_eng_parse_kv("int8", &kv), WEFT_OK);
    assert_int_equal(kv, WEFT_ENG_KV_INT8);
    assert_int_equal(weft_eng_parse_kv("int4", &kv), WEFT_E_INVAL);
}

/* ----------------------------------------------------------------------------------- memory --- */

struct heard {
    struct weft_eng_loading first, last;
    uint32_t n;
};

static void hear(void *ctx, const struct weft_eng_loading *loading) {
    struct heard *heard = ctx;
    if (heard->n++ == 0) heard->first = *loading;
    assert_true(loading->done_bytes >= heard->last.done_bytes);
    heard->last = *loading;
}

static void opening_tells_what_it_will_take_and_how_far_it_is(void **state) {
    (void)state;
    struct heard heard = {.n = 0};
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.n_threads = 1;
    options.on_loading = hear;
    options.loading_ctx = &heard;
    weft_eng *eng = drive_open(drive_fixture(ENGINE_TIED), &options);
    const struct weft_eng_info *info = weft_eng_info(eng);
    assert_int_equal(heard.first.done_bytes, 0);
    assert_int_equal(heard.first.weight_bytes, info->weight_bytes);
    assert_int_equal(heard.first.kv_bytes, info->kv_bytes);
    assert_true(heard.first.scratch_bytes > 0);
    assert_true(heard.n > 1);
    assert_int_equal(heard.last.done_bytes, info->weight_bytes);
    weft_eng_free(eng);
}

static void too_little_memory_is_refused_before_anything_is_read(void **state) {
    (void)state;
    struct heard heard = {.n = 0};
    struct weft_eng_options options;
    struct weft_errmsg why = {""};
    weft_eng *eng = NULL;
    weft_eng_options_init(&options);
    options.kv_memory_bytes = 100;
    assert_int_equal(weft_eng_open(drive_fixture(ENGINE_TIED), &options, &eng, &why), WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "100 bytes for the KV cache (--kv-memory) hold no block"));
    options.kv_memory_bytes = (uint64_t)1 << 46; /* 64 TiB: address space, but not memory */
    options.max_seqs = 256;
    options.on_loading = hear;
    options.loading_ctx = &heard;
    assert_int_equal(weft_eng_open(drive_fixture(ENGINE_TIED), &options, &eng, &why), WEFT_E_NOMEM);
    assert_null(eng);
    assert_non_null(strstr(why.text, "needs"));
    assert_int_equal(heard.n, 0);
}

/* ---------------------------------------------------------------------------------- weights --- */

struct logits_copy {
    uint32_t n_vocab;
    float rows[4][4096];
};

static void copy_row(void *ctx, uint32_t pos, const float *logits) {
    struct logits_copy *copy = ctx;
    memcpy(copy->rows[pos], logits, copy->n_vocab * sizeof(float));
}

static void logits_of(weft_eng *eng, struct logits_copy *copy) {
    const uint32_t tokens[4] = {5, 6, 7, 8};
    memset(copy, 0, sizeof *copy);
    copy->n_vocab = weft_eng_info(eng)->n_vocab;
    assert_true(copy->n_vocab <= 4096);
    assert_int_equal(weft_eng_logits(eng, tokens, 4, copy_row, copy, NULL), WEFT_OK);
}

static weft_err open_with_fd(const char *path, enum weft_eng_dtype dtype, int fd,
                             weft_eng **eng_out) {
    struct weft_eng_options options;
    struct weft_errmsg why = {{0}};
    weft_eng_options_init(&options);
    options.n_threads = 2;
    options.dtype = dtype;
    options.kv_memory_bytes = 4u << 20;
    options.weights_fd = fd;
    weft_err err = weft_eng_open(path, &options, eng_out, &why);
    if (err) (void)printf("%s\n", why.text);
    return err;
}

/* Opens with `fd`, tells whether the weights were inherited, compares the logits. */
static void check_open(const char *path, int fd, bool inherited, const struct logits_copy *want) {
    weft_eng *eng = NULL;
    struct logits_copy *got = malloc(sizeof *got);
    assert_non_null(got);
    assert_int_equal(open_with_fd(path, WEFT_ENG_DT_AUTO, fd, &eng), WEFT_OK);
    assert_int_equal(weft_eng_info(eng)->weights_inherited, inherited);
    logits_of(eng, got);
    assert_memory_equal(got, want, sizeof *got);
    weft_eng_free(eng);
    free(got);
}

static int new_memfd(void) {
    int fd = memfd_create("test-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    return fd;
}

static void assert_sealed(int fd) {
    int wanted = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    assert_int_equal(fcntl(fd, F_GET_SEALS) & wanted, wanted);
}

static void inherited_weights_equal_packed_ones(void **state) {
    (void)state;
    const char *model = drive_fixture(ENGINE_TIED);
    struct logits_copy *want = malloc(sizeof *want);
    assert_non_null(want);
    weft_eng *eng = NULL;
    assert_int_equal(open_with_fd(model, WEFT_ENG_DT_AUTO, -1, &eng), WEFT_OK);
    logits_of(eng, want);
    weft_eng_free(eng);

    int fd = new_memfd();
    check_open(model, fd, false, want);
    assert_sealed(fd);
    check_open(model, fd, true, want);
    assert_int_equal(open_with_fd(model, WEFT_ENG_DT_F32, fd, &eng), WEFT_E_STATE);
    assert_null(eng);
    assert_int_equal(open_with_fd(drive_fixture(ENGINE_DRAFT), WEFT_ENG_DT_AUTO, fd, &eng),
                     WEFT_E_STATE);
    assert_null(eng);
    (void)close(fd);
    free(want);
}

/* Only the header, gaps, and a table of embeddings that is no head are left out. */
static void a_step_reads_all_weights_but_an_untied_embedding(void **state) {
    (void)state;
    const char *const paths[] = {ENGINE_DRAFT, ENGINE_QUANTISED, ENGINE_TIED};
    uint32_t n_tied = 0;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        weft_model *model = NULL;
        weft_eng *eng = NULL;
        struct weft_errmsg why = {""};
        assert_int_equal(weft_model_open(drive_fixture(paths[i]), &model, &why), WEFT_OK);
        assert_int_equal(open_with_fd(drive_fixture(paths[i]), WEFT_ENG_DT_AUTO, -1, &eng),
                         WEFT_OK);
        const struct weft_model_params *params = weft_model_params(model);
        const struct weft_eng_info *info = weft_eng_info(eng);
        uint64_t left_out = params->tied ? 0 : weft_model_embedding(model)->bytes;
        uint64_t gaps_max = 64u * (9u * params->n_layers + 3) + 2 * 4096;
        assert_in_range(info->weight_bytes - info->step_weight_bytes, left_out,
                        left_out + gaps_max);
        n_tied += params->tied;
        weft_eng_free(eng);
        weft_model_free(model);
    }
    assert_in_range(n_tied, 1, 2);
}

static void weights_are_counted_with_the_activations_they_meet(void **state) {
    (void)state;
    static const struct {
        const char *path;
        enum weft_eng_dtype dtype;
        enum weft_eng_act activations;
    } cases[] = {
        {ENGINE_DRAFT, WEFT_ENG_DT_F32, WEFT_ENG_ACT_F32},
        {ENGINE_DRAFT, WEFT_ENG_DT_F16, WEFT_ENG_ACT_F32},
        {ENGINE_DRAFT, WEFT_ENG_DT_BF16, WEFT_ENG_ACT_BF16},
        {ENGINE_QUANTISED, WEFT_ENG_DT_AUTO, WEFT_ENG_ACT_INT8},
        {ENGINE_TIED, WEFT_ENG_DT_BF16, WEFT_ENG_ACT_BF16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_model *model = NULL;
        weft_eng *eng = NULL;
        struct weft_errmsg why = {""};
        assert_int_equal(weft_model_open(drive_fixture(cases[i].path), &model, &why), WEFT_OK);
        assert_int_equal(open_with_fd(drive_fixture(cases[i].path), cases[i].dtype, -1, &eng),
                         WEFT_OK);
        const struct weft_model_params *p = weft_model_params(model);
        const struct weft_eng_info *info = weft_eng_info(eng);
        uint64_t attention = 2ull * (p->n_heads + p->n_kv_heads) * p->head_dim * p->n_hidden;
        uint64_t ffn = 3ull * p->n_hidden * p->n_ffn;
        assert_int_equal(info->n_layer_weights, p->n_layers * (attention + ffn));
        assert_int_equal(info->n_head_weights, (uint64_t)p->n_vocab * p->n_hidden);
        assert_int_equal(info->activations, cases[i].activations);
        weft_eng_free(eng);
        weft_model_free(model);
    }
}

/* ------------------------------------------------------------------ packers that are killed --- */

struct opened { /* a child's report of the engine it opened */
    bool inherited;
    uint64_t logits_hash;
};

static void hash_row(void *ctx, uint32_t pos, const float *logits) {
    uint64_t *hash = ctx;
    (void)pos;
    for (uint32_t i = 0; i < 512; i++) { /* ENGINE_TIED's vocabulary */
        *hash = (*hash ^ engine_float_bits(logits[i])) * 0x9e3779b97f4a7c15u;
        *hash ^= *hash >> 29;
    }
}

/* Opens, computes, tells and ends: in a child, without any of the test's machinery. */
static void open_and_tell(const char *model, int fd, int tell_fd) {
    const uint32_t tokens[] = {5, 6, 7, 8};
    struct weft_eng_options options;
    struct opened opened = {0};
    weft_eng *eng;
    weft_eng_options_init(&options);
    options.n_threads = 2;
    options.kv_memory_bytes = 4u << 20;
    options.weights_fd = fd;
    if (weft_eng_open(model, &options, &eng, NULL)) _exit(1);
    opened.inherited = weft_eng_info(eng)->weights_inherited;
    if (weft_eng_logits(eng, tokens, 4, hash_row, &opened.logits_hash, NULL)) _exit(2);
    _exit(write(tell_fd, &opened, sizeof opened) == sizeof opened ? 0 : 3);
}

static pid_t fork_opener(const char *model, int fd, int tell_fd) {
    (void)fflush(stdout); /* else it would be the child's to write as well */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) open_and_tell(model, fd, tell_fd);
    return pid;
}

/* Two at once with one memfd, after a first one was killed `kill_us` into its opening. */
static void open_after_a_kill(const char *model, uint32_t kill_us, struct opened told[2]) {
    int fd = new_memfd(), pipe_fds[2], status[2];
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t killed = fork_opener(model, fd, pipe_fds[1]);
    (void)usleep(kill_us);
    assert_int_equal(kill(killed, SIGKILL), 0);
    assert_int_equal(waitpid(killed, status, 0), killed);
    if (WIFEXITED(status[0])) /* it was done already, and reported it */
        assert_int_equal(read(pipe_fds[0], told, sizeof *told), sizeof *told);
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        pids[i] = fork_opener(model, fd, pipe_fds[1]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(waitpid(pids[i], &status[i], 0), pids[i]);
        assert_int_equal(status[i], 0);
        assert_int_equal(read(pipe_fds[0], &told[i], sizeof told[i]), sizeof told[i]);
    }
    assert_sealed(fd);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    (void)close(fd);
}

/* Wherever the packer dies, the next ones pack anew or find all of it; of two that come at once one
 * packs at most. Kills at random moments from nothing done to all done. */
static void killed_packers_leave_nothing_half_done(void **state) {
    (void)state;
    const char *model = drive_fixture(ENGINE_TIED);
    uint64_t rng = weft_rand_test_seed(), want = 0, begin_us = weft_now_us();
    uint32_t n_rounds = 0, n_packed = 0, n_found = 0;
    struct opened told[2];
    open_after_a_kill(model, 0, told); /* how long does an opening take? */
    uint32_t open_us = (uint32_t)(weft_now_us() - begin_us) / 2;
    uint64_t run_us = engine_short_run ? 700000 : 2500000;
    while (weft_now_us() - begin_us < run_us || n_rounds < 4) {
        open_after_a_kill(model, weft_rand_below(&rng, open_us + 1), told);
        if (n_rounds++ == 0) want = told[0].logits_hash;
        assert_true(want != 0 && told[0].logits_hash == want && told[1].logits_hash == want);
        assert_true(told[0].inherited || told[1].inherited);
        bool found = told[0].inherited && told[1].inherited;
        n_found += found;
        n_packed += !found;
    }
    (void)printf("%u killed: %u packed anew, %u found all of it\n", n_rounds, n_packed, n_found);
}

static void copy_file(const char *from, const char *to, long flip_at) {
    FILE *in = fopen(from, "rbe"), *out = fopen(to, "wbe");
    assert_non_null(in);
    assert_non_null(out);
    for (long at = 0;; at++) {
        int c = fgetc(in);
        if (c == EOF) break;
        (void)fputc(at == flip_at ? c ^ 1 : c, out);
    }
    (void)fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void weights_follow_the_contents_of_the_file(void **state) {
    (void)state;
    char folder[] = "/tmp/weft-test-XXXXXX", to[128];
    assert_non_null(mkdtemp(folder));
    char from[1100];
    (void)snprintf(from, sizeof from, "%s/config.json", drive_fixture(ENGINE_TIED));
    (void)snprintf(to, sizeof to, "%s/config.json", folder);
    copy_file(from, to, -1);
    (void)snprintf(from, sizeof from, "%s/model.safetensors", drive_fixture(ENGINE_TIED));
    (void)snprintf(to, sizeof to, "%s/model.safetensors", folder);
    copy_file(from, to, -1);
    int fd = new_memfd();
    weft_eng *eng = NULL;
    assert_int_equal(open_with_fd(folder, WEFT_ENG_DT_AUTO, fd, &eng), WEFT_OK);
    weft_eng_free(eng);
    copy_file(from, to, -1); /* the same contents with a new date */
    assert_int_equal(open_with_fd(folder, WEFT_ENG_DT_AUTO, fd, &eng), WEFT_OK);
    assert_true(weft_eng_info(eng)->weights_inherited);
    weft_eng_free(eng);
    copy_file(from, to, 200000); /* one bit of one weight */
    assert_int_equal(open_with_fd(folder, WEFT_ENG_DT_AUTO, fd, &eng), WEFT_E_STATE);
    (void)close(fd);
    (void)unlink(to);
    (void)snprintf(to, sizeof to, "%s/config.json", folder);
    (void)unlink(to);
    assert_int_equal(rmdir(folder), 0);
}

static void every_dtype_runs_and_stays_near_the_file(void **state) {
    (void)state;
    static const struct {
        enum weft_eng_dtype dtype;
        enum weft_eng_scheme scheme;
        float off_max;
    } cases[] = {{WEFT_ENG_DT_F32, WEFT_ENG_SCHEME_AUTO, 1e-3f},
                 {WEFT_ENG_DT_F16, WEFT_ENG_SCHEME_AUTO, 0.05f},
                 {WEFT_ENG_DT_Q8, WEFT_ENG_SCHEME_AUTO, 2.0f},
                 {WEFT_ENG_DT_Q8, WEFT_ENG_SCHEME_GROUP, 2.0f},
                 {WEFT_ENG_DT_Q4, WEFT_ENG_SCHEME_AUTO, 4.0f},
                 {WEFT_ENG_DT_Q4, WEFT_ENG_SCHEME_GROUP, 4.0f}};
    struct weft_eng_options options;
    struct logits_copy *want = malloc(2 * sizeof *want), *got = want + 1;
    assert_non_null(want);
    weft_eng_options_init(&options);
    options.activations = WEFT_ENG_ACT_F32;
    options.kv_memory_bytes = 4u << 20;
    weft_eng *eng = drive_open(drive_fixture(ENGINE_DRAFT), &options);
    logits_of(eng, want);
    weft_eng_free(eng);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options.dtype = cases[i].dtype;
        options.scheme = cases[i].scheme;
        eng = drive_open(drive_fixture(ENGINE_DRAFT), &options);
        logits_of(eng, got);
        weft_eng_free(eng);
        for (uint32_t t = 0; t < got->n_vocab; t++) {
            assert_true(fabsf(got->rows[3][t] - want->rows[3][t]) < cases[i].off_max);
        }
    }
    free(want);
}

static void schemes_that_a_dtype_does_not_have_are_refused(void **state) {
    (void)state;
    static const struct {
        enum weft_eng_dtype dtype;
        enum weft_eng_scheme scheme;
    } cases[] = {{WEFT_ENG_DT_Q8, WEFT_ENG_SCHEME_GROUP_ASYM},
                 {WEFT_ENG_DT_Q4, WEFT_ENG_SCHEME_CHANNEL},
                 {WEFT_ENG_DT_AUTO, WEFT_ENG_SCHEME_GROUP},
                 {WEFT_ENG_DT_BF16, WEFT_ENG_SCHEME_CHANNEL}};
    struct weft_eng_options options;
    struct weft_errmsg why = {{0}};
    weft_eng_options_init(&options);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_eng *eng = NULL;
        options.dtype = cases[i].dtype;
        options.scheme = cases[i].scheme;
        assert_int_equal(weft_eng_open(drive_fixture(ENGINE_DRAFT), &options, &eng, &why),
                         WEFT_E_INVAL);
        assert_null(eng);
        assert_non_null(strstr(why.text, "scheme"));
    }
}

/* Same model, other bits: a seed and a fingerprint that promise the same answer must not lie. */
static void each_scheme_has_its_own_fingerprint(void **state) {
    (void)state;
    struct weft_eng_options options;
    char first[32];
    weft_eng_options_init(&options);
    options.kv_memory_bytes = 4u << 20;
    options.dtype = WEFT_ENG_DT_Q4;
    weft_eng *eng = drive_open(drive_fixture(ENGINE_DRAFT), &options);
    (void)snprintf(first, sizeof first, "%s", weft_eng_info(eng)->fingerprint);
    weft_eng_free(eng);
    options.scheme = WEFT_ENG_SCHEME_GROUP;
    eng = drive_open(drive_fixture(ENGINE_DRAFT), &options);
    assert_string_not_equal(first, weft_eng_info(eng)->fingerprint);
    weft_eng_free(eng);
}

/* ----------------------------------------------------------------------------------- kinds --- */

static void open_windowed(const char *model, uint64_t kv_bytes, uint32_t len,
                          struct weft_eng_info *info) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.n_threads = 1;
    options.max_seqs = 8;
    options.max_batched_tokens = 32;
    options.max_model_len = len;
    options.kv_memory_bytes = kv_bytes;
    weft_eng *eng = drive_open(drive_fixture(model), &options);
    *info = *weft_eng_info(eng);
    assert_true(kv_bytes == 0 || info->kv_bytes <= kv_bytes);
    weft_eng_free(eng);
    /* A worker that is replaced gets what it had, and makes the same of it. */
    options.kv_memory_bytes = info->kv_bytes;
    eng = drive_open(drive_fixture(model), &options);
    assert_int_equal(weft_eng_info(eng)->n_blocks, info->n_blocks);
    assert_int_equal(weft_eng_info(eng)->n_window_blocks, info->n_window_blocks);
    assert_int_equal(weft_eng_info(eng)->max_model_len, info->max_model_len);
    weft_eng_free(eng);
}

/* gemma3: window 16, 6 of 7 layers are windowed. A sequence holds 3 blocks for what a step of 32
 * tokens sees, and one. */
static void windowed_layers_have_as_many_blocks_as_their_windows_need(void **state) {
    (void)state;
    struct weft_eng_info info;
    open_windowed("tests/data/zoo/gemma3", 0, 1024, &info);
    assert_int_equal(info.window, 16);
    assert_int_equal(info.max_model_len, 1024);
    assert_int_equal(info.n_blocks, 8 * 64);
    assert_int_equal(info.n_window_blocks, 8 * 4);
    uint64_t all = info.kv_bytes, unit = all / (8 * 64 + 6 * 8 * 4); /* a block of one layer */
    assert_int_equal(all, unit * (8 * 64 + 6 * 8 * 4));

    open_windowed("tests/data/zoo/gemma3", 3 * all, 1024, &info); /* room for cached prefixes */
    assert_int_equal(info.n_blocks, 3 * 8 * 64);
    assert_int_equal(info.n_window_blocks, 3 * 8 * 4);
    open_windowed("tests/data/zoo/gemma3", all / 2, 1024, &info);
    assert_int_equal(info.max_model_len, 1024);
    assert_true(info.n_blocks >= 64 && info.n_window_blocks >= 4);
    assert_true(info.n_blocks > info.n_window_blocks);
    assert_true(info.kv_bytes + 8 * unit > all / 2); /* hardly anything is left over */
    open_windowed("tests/data/zoo/gemma3", unit * (64 + 6 * 4), 1024, &info); /* just one */
    assert_int_equal(info.max_model_len, 1024);
    assert_int_equal(info.n_blocks, 64);
    assert_int_equal(info.n_window_blocks, 4);
    open_windowed("tests/data/zoo/gemma3", unit * (50 + 6 * 4), 1024, &info); /* a shorter one */
    assert_int_equal(info.max_model_len, 50 * 16);
    assert_int_equal(info.n_window_blocks, 4);
    for (uint64_t n_units = 89; n_units < 8 * 64 + 6 * 8 * 4; n_units += 13) {
        open_windowed("tests/data/zoo/gemma3", unit * n_units, 1024, &info);
        assert_true(info.n_blocks >= 64 && info.n_window_blocks >= 4);
    }
    open_windowed("tests/data/zoo/gemma3", unit * 7, 1024, &info);
    assert_int_equal(info.max_model_len, 16);
    assert_int_equal(info.n_window_blocks, 1);

    open_windowed("tests/data/zoo/gemma3", 0, 16, &info); /* no sequence outgrows the window */
    assert_int_equal(info.window, 0);
    assert_int_equal(info.n_window_blocks, 0);
}

static void where_all_layers_are_windowed_other_blocks_take_nothing(void **state) {
    (void)state;
    struct weft_eng_info info;
    open_windowed(ENGINE_WINDOWED, 0, 1024, &info);
    assert_int_equal(info.n_window_blocks, 8 * 4);
    assert_int_equal(info.kv_bytes % info.n_window_blocks, 0);
    uint64_t unit = info.kv_bytes / info.n_window_blocks;
    assert_true(info.n_blocks >= 8 * 64);
    open_windowed(ENGINE_WINDOWED, 5 * unit, 1024, &info);
    assert_int_equal(info.max_model_len, 1024);
    assert_int_equal(info.n_window_blocks, 5);
    assert_true(info.n_blocks >= 5 * 64); /* five sequences hold a window each, at most */
    open_windowed(ENGINE_WINDOWED, 3 * unit, 1024, &info);
    assert_int_equal(info.max_model_len, 3 * 16);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_open", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_in_the_fingerprint),
        cmocka_unit_test(names_of_options_are_parsed),
        cmocka_unit_test(opening_tells_what_it_will_take_and_how_far_it_is),
        cmocka_unit_test(too_little_memory_is_refused_before_anything_is_read),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(little_kv_memory_lowers_the_length),
        cmocka_unit_test(the_cache_takes_the_bytes_of_its_type),
        cmocka_unit_test(inherited_weights_equal_packed_ones),
        cmocka_unit_test(a_step_reads_all_weights_but_an_untied_embedding),
        cmocka_unit_test(weights_are_counted_with_the_activations_they_meet),
        cmocka_unit_test(killed_packers_leave_nothing_half_done),
        cmocka_unit_test(weights_follow_the_contents_of_the_file),
        cmocka_unit_test(every_dtype_runs_and_stays_near_the_file),
        cmocka_unit_test(schemes_that_a_dtype_does_not_have_are_refused),
        cmocka_unit_test(each_scheme_has_its_own_fingerprint),
        cmocka_unit_test(windowed_layers_have_as_many_blocks_as_their_windows_need),
        cmocka_unit_test(where_all_layers_are_windowed_other_blocks_take_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
