/* Models whose settings and shapes do not fit each other: a number, a word or a line of a folder is changed, and what
 * still opens is computed with. Every end is a model that answers or one sentence; sanitizers watch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "harness/eng_drive.h"
#include "harness/model_sketch.h"
#include "unit/model_files.h"

enum { SKETCHES_MAX = 128, DATA_BYTES_MAX = 1 << 20 };

static struct {
    char *bytes;
    size_t n;
} sketches[SKETCHES_MAX];
static uint32_t n_sketches;

static void add_sketch(const void *bytes, size_t n) {
    assert_true(n_sketches < SKETCHES_MAX);
    sketches[n_sketches].bytes = malloc(n);
    assert_non_null(sketches[n_sketches].bytes);
    memcpy(sketches[n_sketches].bytes, bytes, n);
    sketches[n_sketches++].n = n;
}

static void add_sketches(void) {
    const char *zoo2 = drive_shared("zoo2");
    model_sketch_each(drive_fixture("tests/data/zoo"), add_sketch);
    if (zoo2) model_sketch_each(zoo2, add_sketch);
    assert_true(n_sketches > 0);
}

/* ------------------------------------------------------------------------------------ changes --- */

/* Replaces `len` bytes at `at` by a text. */
static void replace(struct weft_buf *text, size_t at, size_t len, const char *by) {
    struct weft_buf out;
    weft_buf_init(&out, 2 * MODEL_SKETCH_BYTES_MAX);
    weft_buf_add(&out, text->data, at);
    weft_buf_add_str(&out, by);
    weft_buf_add(&out, text->data + at + len, text->len - at - len);
    assert_false(out.failed);
    weft_buf_fini(text);
    *text = out;
}

/* Where a run of `is_part` bytes begins that a random place lies in or before, twice in three times one in the
 * configuration; `len_out` 0: nowhere. */
static size_t find_run(const struct weft_buf *text, int (*is_part)(int), uint64_t *rand,
                       size_t *len_out) {
    size_t within = weft_rand_below(rand, 3) ? strlen(text->data) : text->len;
    size_t at = weft_rand_below(rand, (uint32_t)within);
    while (at < text->len && !is_part((unsigned char)text->data[at]))
        at++;
    while (at > 0 && at < text->len && is_part((unsigned char)text->data[at - 1]))
        at--;
    size_t end = at;
    while (end < text->len && is_part((unsigned char)text->data[end]))
        end++;
    *len_out = end - at;
    return at;
}

static int is_of_word(int c) {
    return isalnum(c) || c == '_' || c == '.';
}

/* The same number everywhere: in names it is one of a layer or an expert, which stays. */
static void replace_all(struct weft_buf *text, const char *old, const char *by) {
    size_t len = strlen(old);
    for (size_t at = 1; at + len < text->len; at++) {
        if (memcmp(text->data + at, old, len) || is_of_word((unsigned char)text->data[at - 1]) ||
            is_of_word((unsigned char)text->data[at + len]))
            continue;
        replace(text, at, len, by);
        at += strlen(by);
    }
}

/* One number, or all that are equal: another size of the same model. */
static void change_number(struct weft_buf *text, bool all, uint64_t *rand) {
    size_t len, at = find_run(text, isdigit, rand, &len);
    char old[32], by[32];
    if (len == 0 || len >= sizeof old) return;
    memcpy(old, text->data + at, len);
    old[len] = '\0';
    uint64_t value = strtoull(old, NULL, 10);
    const uint64_t values[] = {0,         1,         2,          3,          value + 1, value - 1,
                               value * 2, value / 2, value + 16, 0x7fffffff, 0xffffffff};
    (void)snprintf(
        by, sizeof by, "%llu",
        (unsigned long long)values[weft_rand_below(rand, sizeof values / sizeof *values)]);
    if (all)
        replace_all(text, old, by);
    else
        replace(text, at, len, by);
}

/* By another word of the same sketch. */
static void change_word(struct weft_buf *text, uint64_t *rand) {
    size_t len, at = find_run(text, is_of_word, rand, &len), from_len;
    size_t from = find_run(text, is_of_word, rand, &from_len);
    char by[128];
    if (len == 0 || from_len >= sizeof by) return;
    memcpy(by, text->data + from, from_len);
    by[from_len] = '\0';
    replace(text, at, len, by);
}

static int is_of_line(int c) {
    return c != '\n' && c != '\0';
}

/* A tensor or a setting (whose comma may be missing then). */
static void drop_line(struct weft_buf *text, uint64_t *rand) {
    size_t len, at = find_run(text, is_of_line, rand, &len);
    if (len > 0 && at + len < text->len)
        replace(text, at, len + (text->data[at + len] == '\n'), "");
}

static void change(struct weft_buf *text, uint64_t *rand) {
    uint32_t kind = weft_rand_below(rand, 8);
    if (kind < 6)
        change_number(text, kind % 2, rand);
    else if (kind == 6)
        change_word(text, rand);
    else
        drop_line(text, rand);
}

/* ------------------------------------------------------------------------------------- opening --- */

static bool answers(const char *dir, enum weft_eng_act activations) {
    struct weft_eng_options options;
    struct weft_errmsg why = {{0}};
    struct weft_sampling sampling;
    uint32_t prompt[20] = {0}, out[3];
    struct drive drive;
    weft_eng *eng;
    weft_sampling_init(&sampling);
    sampling.max_tokens = 3;
    sampling.temperature = 0;
    weft_eng_options_init(&options);
    options.activations = activations;
    options.kv_memory_bytes = 4u << 20;
    options.limit.bytes = 256u << 20;
    options.max_seqs = 2;
    options.max_batched_tokens = 16; /* a prompt comes in two chunks */
    options.max_model_len = 32;
    options.max_loras = 0;
    options.n_threads = 1;
    weft_err err = weft_eng_open(dir, &options, &eng, &why);
    assert_true(!err || why.text[0]);
    if (err) return false;
    drive_init(&drive, eng);
    if (weft_eng_info(eng)->max_model_len > 24)
        (void)drive_complete(&drive, prompt, 20, &sampling, out);
    weft_eng_free(eng);
    return true;
}

static void changed_models_answer_or_are_refused(void **state) {
    static const enum weft_eng_act activations[] = {WEFT_ENG_ACT_F32, WEFT_ENG_ACT_BF16,
                                                    WEFT_ENG_ACT_AUTO};
    const char *text = getenv("WEFT_STEPS");
    uint64_t rand = weft_rand_test_seed();
    uint32_t n_runs = text ? (uint32_t)strtoul(text, NULL, 10) : 1500, n_answers = 0;
    char *dir = test_dir_new();
    (void)state;
    add_sketches();
    for (uint32_t run = 0; run < n_runs; run++) {
        struct weft_buf sketch;
        uint32_t which = weft_rand_below(&rand, n_sketches);
        uint32_t n_changes = 1 + weft_rand_below(&rand, 2);
        weft_buf_init(&sketch, 2 * MODEL_SKETCH_BYTES_MAX);
        weft_buf_add(&sketch, sketches[which].bytes, sketches[which].n);
        while (n_changes-- > 0)
            change(&sketch, &rand);
        if (model_sketch_write(sketch.data, sketch.len, dir, DATA_BYTES_MAX))
            n_answers += answers(dir, activations[run % 3]);
        weft_buf_fini(&sketch);
    }
    (void)printf("%u of %u changed models answered\n", n_answers, n_runs);
    for (uint32_t i = 0; i < n_sketches; i++)
        free(sketches[i].bytes);
    test_dir_free(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_models_answer_or_are_refused),
    };
    if (drive_isa_missing()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
