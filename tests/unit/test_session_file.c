/* Files of sessions: what is saved comes back into other blocks, and no file that was touched, cut
 * short or made by another is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/session_file.h"
#include "harness/eng_drive.h"
#include "kernels/kernels.h"
#include "unit/engine_fixtures.h"

#define FRESH(name) "." name ".weft-session.new"

enum { BLOCK = 16, N_TOKENS = 64, TENANT = 7 };
/* Where they stand in a file's head (session_head.h). */
enum { AT_BLOCK_BYTES = 200, AT_BLOCK_SIZE = 216, AT_WINDOW = 220, AT_KV_DTYPE = 224 };

struct fixture {
    char dir[64];
    _Atomic bool is_called_off;
    struct weft_eng_session_folder folder;
    weft_eng *eng;
    uint32_t tokens[N_TOKENS];
    struct weft_errmsg why;
};

static const uint32_t written[] = {5, 6, 7, 8}, others[] = {1, 12, 3, 10};

/* Fills the blocks of a prompt. */
static void compute(struct fixture *fix) {
    static struct drive drive;
    struct weft_step_start start = {
        .gen = 1, .tokens = fix->tokens, .n_tokens = N_TOKENS, .n_prompt = N_TOKENS};
    weft_sampling_init(&start.sampling);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        fix->tokens[i] = (i * 37 + 5) % weft_eng_info(fix->eng)->n_vocab;
    start.sampling.max_tokens = 4;
    drive_init(&drive, fix->eng);
    drive_start(&drive, &start);
    drive_grant(&drive, 0, 1, written, N_TOKENS / BLOCK);
    drive_row(&drive, 0, 1, N_TOKENS);
    (void)drive_run(&drive);
}

static void open_model(struct fixture *fix, const char *model) {
    weft_eng_free(fix->eng);
    fix->eng = engine_open_small(model, WEFT_ENG_ACT_F32, WEFT_ENG_KV_AUTO, 1, BLOCK);
    compute(fix);
}

static int set_up(void **state) {
    struct fixture *fix = calloc(1, sizeof *fix);
    assert_non_null(fix);
    (void)snprintf(fix->dir, sizeof fix->dir, "%s", "weft-sessions-XXXXXX");
    assert_non_null(mkdtemp(fix->dir));
    fix->folder = (struct weft_eng_session_folder){fix->dir, 1u << 30, &fix->is_called_off};
    open_model(fix, ENGINE_TIED);
    *state = fix;
    return 0;
}

static const char *path_of(const struct fixture *fix, const char *name) {
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", fix->dir, name);
    return path;
}

static int tear_down(void **state) {
    static const char *const names[] = {"a", "b", FRESH("b"), FRESH("dead"), ".bashrc.new"};
    struct fixture *fix = *state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unlink(path_of(fix, names[i]));
    assert_int_equal(rmdir(fix->dir), 0); /* nothing else is left */
    weft_eng_free(fix->eng);
    free(fix);
    return 0;
}

/* Blocks of n_tokens from the beginning of `blocks`; of windowed layers the last of these. */
static struct weft_eng_session_blocks blocks_of(const struct fixture *fix, const uint32_t *blocks,
                                                uint32_t n_tokens) {
    const struct weft_eng_info *info = weft_eng_info(fix->eng);
    struct weft_eng_session_blocks out;
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        out.n[kind] = weft_eng_session_n_blocks(info, (enum weft_kv_kind)kind, n_tokens);
        out.blocks[kind] = blocks + n_tokens / BLOCK - out.n[kind];
    }
    return out;
}

static weft_err save_as(struct fixture *fix, uint64_t tenant, const char *name,
                        const uint32_t *blocks, uint32_t n_tokens) {
    const struct weft_eng_session session = {.tenant = tenant,
                                             .space_hi = 3,
                                             .space_lo = 4,
                                             .tokens = fix->tokens,
                                             .n_tokens = n_tokens,
                                             .blocks = blocks_of(fix, blocks, n_tokens)};
    uint64_t n_bytes = 0;
    return weft_eng_session_save(fix->eng, &fix->folder, name, &session, &n_bytes, &fix->why);
}

static weft_err save(struct fixture *fix, const char *name, const uint32_t *blocks,
                     uint32_t n_tokens) {
    return save_as(fix, TENANT, name, blocks, n_tokens);
}

/* Opens and reads into these blocks. */
static weft_err restore(struct fixture *fix, const char *name, uint64_t tenant,
                        const uint32_t *blocks) {
    weft_eng_session_file *file = NULL;
    weft_err err = weft_eng_session_open(fix->eng, &fix->folder, name, tenant, &file, &fix->why);
    if (err) return err;
    const struct weft_eng_session *session = weft_eng_session_of(file);
    assert_true(session->space_hi == 3 && session->space_lo == 4);
    assert_memory_equal(session->tokens, fix->tokens, session->n_tokens * sizeof(uint32_t));
    struct weft_eng_session_blocks to = blocks_of(fix, blocks, session->n_tokens);
    err = weft_eng_session_read(fix->eng, file, &to, &fix->why);
    weft_eng_session_close(file);
    return err;
}

static size_t read_all(const struct fixture *fix, const char *name, uint8_t *out, size_t cap) {
    FILE *file = fopen(path_of(fix, name), "re");
    assert_non_null(file);
    size_t n = fread(out, 1, cap, file);
    assert_true(n < cap);
    (void)fclose(file);
    return n;
}

static uint8_t one[1 << 20], two[1 << 20];

static void what_is_saved_comes_back(void **state) {
    static const char *const models[] = {ENGINE_TIED, ENGINE_WINDOWED};
    struct fixture *fix = *state;
    for (size_t i = 0; i < 2; i++) {
        open_model(fix, models[i]);
        assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
        assert_int_equal(restore(fix, "a", TENANT, others), WEFT_OK);
        assert_int_equal(save(fix, "b", others, N_TOKENS), WEFT_OK);
        size_t n = read_all(fix, "a", one, sizeof one);
        assert_int_equal(read_all(fix, "b", two, sizeof two), n);
        assert_memory_equal(one, two, n);
    }
}

static void no_byte_can_be_another(void **state) {
    struct fixture *fix = *state;
    assert_int_equal(save(fix, "a", written, BLOCK), WEFT_OK);
    size_t n = read_all(fix, "a", one, sizeof one);
    int fd = open(path_of(fix, "a"), O_RDWR | O_CLOEXEC);
    size_t step = engine_short_run ? 7 : 1;
    for (size_t i = 0; i < n; i += step) {
        uint8_t byte = one[i] ^ (uint8_t)(1u << i % 8);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)i), 1);
        assert_int_equal(restore(fix, "a", TENANT, others), WEFT_E_PROTO);
        assert_non_null(strstr(fix->why.text, "'a'"));
        assert_int_equal(pwrite(fd, &one[i], 1, (off_t)i), 1);
    }
    assert_int_equal(restore(fix, "a", TENANT, others), WEFT_OK);
    (void)close(fd);
}

static void no_length_can_be_another(void **state) {
    struct fixture *fix = *state;
    assert_int_equal(save(fix, "a", written, BLOCK), WEFT_OK);
    size_t n = read_all(fix, "a", one, sizeof one);
    assert_int_equal(truncate(path_of(fix, "a"), (off_t)n + 1), 0);
    assert_int_equal(restore(fix, "a", TENANT, others), WEFT_E_PROTO);
    for (size_t left = n; left > 0; left -= left > 512 ? 97 : 1) {
        assert_int_equal(truncate(path_of(fix, "a"), (off_t)left - 1), 0);
        assert_int_equal(restore(fix, "a", TENANT, others), WEFT_E_PROTO);
    }
}

static void another_models_file_is_refused_by_name(void **state) {
    struct fixture *fix = *state;
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
    open_model(fix, ENGINE_WINDOWED);
    assert_int_equal(restore(fix, "a", TENANT, others), WEFT_E_PROTO);
    assert_non_null(strstr(fix->why.text, "'a' is a session of the model"));
    weft_eng_free(fix->eng);
    fix->eng = engine_open_small(ENGINE_TIED, WEFT_ENG_ACT_F32, WEFT_ENG_KV_BF16, 1, BLOCK);
    assert_int_equal(restore(fix, "a", TENANT, others), WEFT_E_PROTO);
    assert_non_null(strstr(fix->why.text, "other weights, types or instructions"));
    weft_eng_free(fix->eng);
    fix->eng = engine_open_small(ENGINE_TIED, WEFT_ENG_ACT_F32, WEFT_ENG_KV_AUTO, 1, 2 * BLOCK);
    assert_int_equal(restore(fix, "a", TENANT, others), WEFT_E_PROTO);
    assert_non_null(strstr(fix->why.text, "'a' has KV blocks of 16 tokens"));
}

/* As a bit of its head does that turned: two sides that print the same say nothing. */
static void what_differs_is_what_the_sentence_says(void **state) {
    static const struct {
        size_t at;
        uint32_t value;
        const char *want;
    } facts[] = {
        {AT_KV_DTYPE, WEFT_KV_BF16, "'a' has keys and values that are bf16, this server's are f32"},
        {AT_KV_DTYPE, 260, "'a' has keys and values that are of no type, this server's are f32"},
        {AT_WINDOW, 9, "'a' has a window of 9 tokens, this server of 0"},
        {AT_BLOCK_SIZE, 48, "'a' has KV blocks of 48 tokens, this server of 16"},
        {AT_BLOCK_BYTES + 8 * WEFT_KV_FULL, 77,
         "'a' has KV blocks of 77 bytes in layers without a window, this server of "},
        {AT_BLOCK_BYTES + 8 * WEFT_KV_WINDOWED, 77,
         "'a' has KV blocks of 77 bytes in layers with a window, this server of 0"},
    };
    struct fixture *fix = *state;
    assert_int_equal(save(fix, "a", written, BLOCK), WEFT_OK);
    (void)read_all(fix, "a", one, sizeof one);
    int fd = open(path_of(fix, "a"), O_RDWR | O_CLOEXEC);
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        size_t n = sizeof facts[i].value;
        assert_int_equal(pwrite(fd, &facts[i].value, n, (off_t)facts[i].at), n);
        assert_int_equal(restore(fix, "a", TENANT, others), WEFT_E_PROTO);
        if (!strstr(fix->why.text, facts[i].want)) fail_msg("%s", fix->why.text);
        assert_int_equal(pwrite(fd, one + facts[i].at, n, (off_t)facts[i].at), n);
    }
    (void)close(fd);
}

static void files_are_their_tenants(void **state) {
    struct fixture *fix = *state;
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
    assert_int_equal(restore(fix, "a", TENANT + 1, others), WEFT_E_PROTO);
    assert_non_null(strstr(fix->why.text, "another API key"));
    assert_int_equal(restore(fix, "b", TENANT, others), WEFT_E_NOTFOUND);
    assert_int_equal(save_as(fix, TENANT + 1, "a", written, N_TOKENS), WEFT_E_PROTO);
    assert_non_null(strstr(fix->why.text, "another API key, and stays"));
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
    assert_int_equal(restore(fix, "a", TENANT, others), WEFT_OK);
}

static void names_are_no_paths(void **state) {
    static const char *const bad[] = {"", ".a", "..", "a/b", "/a", "a\n", "a\x7f"};
    struct fixture *fix = *state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(save(fix, bad[i], written, N_TOKENS), WEFT_E_INVAL);
        assert_int_equal(restore(fix, bad[i], TENANT, others), WEFT_E_INVAL);
    }
    assert_int_equal(symlink("/etc/passwd", path_of(fix, "a")), 0);
    assert_int_equal(restore(fix, "a", TENANT, others), WEFT_E_PROTO); /* not followed */
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_E_PROTO);
    assert_int_equal(mkdir(path_of(fix, "b"), 0700), 0);
    assert_int_equal(restore(fix, "b", TENANT, others), WEFT_E_PROTO);
    assert_int_equal(save(fix, "b", written, N_TOKENS), WEFT_E_PROTO);
    assert_int_equal(rmdir(path_of(fix, "b")), 0);
    assert_int_equal(mkfifo(path_of(fix, "b"), 0600), 0);
    assert_int_equal(save(fix, "b", written, N_TOKENS), WEFT_E_PROTO);
}

static void the_folder_has_a_bound(void **state) {
    struct fixture *fix = *state;
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
    fix->folder.bytes_max = read_all(fix, "a", one, sizeof one) + 100;
    assert_int_equal(save(fix, "b", written, N_TOKENS), WEFT_E_FULL);
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK); /* in its place */
    assert_int_equal(access(path_of(fix, "b"), F_OK), -1);
}

struct saver {
    pthread_t thread;
    struct fixture fix; /* its own sentence */
    weft_err err;       /* another than that somebody else saves */
};

static void *save_often(void *arg) {
    struct saver *saver = arg;
    for (uint32_t n_saved = 0; n_saved < 20 && !saver->err;) {
        weft_err err = save(&saver->fix, "a", written, N_TOKENS);
        if (err == WEFT_E_AGAIN)
            (void)usleep(200);
        else if (err)
            saver->err = err;
        else
            n_saved++;
    }
    return NULL;
}

/* As by workers, and servers, that share a folder: each save is done or may be tried again. */
static void several_may_save_to_one_name(void **state) {
    struct fixture *fix = *state;
    struct saver savers[4];
    for (size_t i = 0; i < 4; i++) {
        savers[i] = (struct saver){.fix = *fix};
        savers[i].fix.folder.is_called_off = &fix->is_called_off;
        assert_int_equal(pthread_create(&savers[i].thread, NULL, save_often, &savers[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(savers[i].thread, NULL), 0);
        if (savers[i].err) fail_msg("%s", savers[i].fix.why.text);
    }
    assert_int_equal(restore(fix, "a", TENANT, others), WEFT_OK);
}

static void what_a_dead_writer_left_is_removed(void **state) {
    struct fixture *fix = *state;
    int dead = open(path_of(fix, FRESH("dead")), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    int lives = open(path_of(fix, FRESH("b")), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    (void)close(dead);
    assert_int_equal(flock(lives, LOCK_EX), 0);
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
    assert_int_equal(access(path_of(fix, FRESH("dead")), F_OK), -1);
    assert_int_equal(save(fix, "b", written, N_TOKENS), WEFT_E_AGAIN);
    assert_non_null(strstr(fix->why.text, "being written already"));
    (void)close(lives);
    assert_int_equal(save(fix, "b", written, N_TOKENS), WEFT_OK);
}

static void put_file(const struct fixture *fix, const char *name, const char *text) {
    FILE *file = fopen(path_of(fix, name), "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void expect_file(const struct fixture *fix, const char *name, const char *text) {
    assert_int_equal(read_all(fix, name, one, sizeof one), strlen(text));
    assert_memory_equal(one, text, strlen(text));
}

/* Names of other programs, and even ours, if what they hold is not ours. */
static void what_others_keep_there_stays(void **state) {
    static const char *const theirs[] = {".bashrc.new", FRESH("dead"), "b", FRESH("b")};
    struct fixture *fix = *state;
    const uint64_t bounds[] = {1u << 30, UINT64_MAX};
    for (size_t i = 0; i < 3; i++)
        put_file(fix, theirs[i], "somebody's own");
    for (size_t i = 0; i < 2; i++) {
        fix->folder.bytes_max = bounds[i];
        assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
        assert_int_equal(save(fix, "b", written, N_TOKENS), WEFT_E_PROTO);
        assert_non_null(strstr(fix->why.text, "'b' is no session's file"));
    }
    put_file(fix, theirs[3], "somebody's own");
    assert_int_equal(save(fix, "b", written, N_TOKENS), WEFT_E_IO);
    for (size_t i = 0; i < 4; i++)
        expect_file(fix, theirs[i], "somebody's own");
}

/* A folder without a bound is somebody's own, where an empty file need not be of a dead writer. */
static void a_folder_without_a_bound_is_not_swept(void **state) {
    struct fixture *fix = *state;
    fix->folder.bytes_max = UINT64_MAX;
    put_file(fix, FRESH("dead"), "");
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
    expect_file(fix, FRESH("dead"), "");
}

/* What a worker that is killed leaves begins as a session's file does, from its first byte on. */
static void a_file_half_written_is_told_as_ours(void **state) {
    struct fixture *fix = *state;
    put_file(fix, FRESH("dead"), "WEFTSESS and whatever came of it");
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
    assert_int_equal(access(path_of(fix, FRESH("dead")), F_OK), -1);
    put_file(fix, FRESH("a"), "WEFTSESS and whatever came of it");
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
    assert_int_equal(restore(fix, "a", TENANT, others), WEFT_OK);
}

static void one_that_is_called_off_leaves_nothing(void **state) {
    struct fixture *fix = *state;
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
    fix->is_called_off = true;
    assert_int_equal(save(fix, "b", written, N_TOKENS), WEFT_E_CLOSED);
    assert_int_equal(access(path_of(fix, "b"), F_OK), -1);
    assert_int_equal(restore(fix, "a", TENANT, others), WEFT_E_CLOSED);
}

static void blocks_that_are_not_there_are_refused(void **state) {
    static const uint32_t beyond[] = {5, 6, 7, 1000000};
    struct fixture *fix = *state;
    assert_int_equal(save(fix, "a", beyond, N_TOKENS), WEFT_E_PROTO);
    assert_int_equal(save(fix, "a", written, N_TOKENS), WEFT_OK);
    assert_int_equal(restore(fix, "a", TENANT, beyond), WEFT_E_PROTO);
    assert_int_equal(save(fix, "a", written, N_TOKENS - 1), WEFT_E_PROTO);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_session_file", argc, argv)) return 0;
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(what_is_saved_comes_back),
        CASE(no_byte_can_be_another),
        CASE(no_length_can_be_another),
        CASE(another_models_file_is_refused_by_name),
        CASE(what_differs_is_what_the_sentence_says),
        CASE(files_are_their_tenants),
        CASE(names_are_no_paths),
        CASE(several_may_save_to_one_name),
        CASE(the_folder_has_a_bound),
        CASE(what_a_dead_writer_left_is_removed),
        CASE(what_others_keep_there_stays),
        CASE(a_folder_without_a_bound_is_not_swept),
        CASE(a_file_half_written_is_told_as_ours),
        CASE(one_that_is_called_off_leaves_nothing),
        CASE(blocks_that_are_not_there_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
