/* Speculative decoding against recorded acceptance: tests/data/speculative, of fable-6m in float64, and
 * tests/data/mtp.
 *
 * The tables tell for each number k of guesses how many steps a text takes, and how many guesses are made
 * and come true. The exact mode makes the same. The prompts run at once: half of them for
 * each k, or all with "all" on the command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/minmax.h"
#include "harness/eng_drive.h"

static bool all_prompts;

enum { PROMPTS_MAX = 20, TOKENS_MAX = 136, K_MAX = 8, SEQ_BLOCKS = 24 };

struct text {
    uint32_t prompt[200], n_prompt, expected[TOKENS_MAX];
    uint32_t out[2 * TOKENS_MAX], n_out;
    uint32_t n_computed, n_steps, n_proposed, n_accepted;
    const json_t *by_k;
    bool is_odd;
};

static bool takes_part(const struct text *text, uint32_t k) {
    return all_prompts || text->is_odd == (k % 2 == 1);
}

struct table {
    json_t *root;
    struct text texts[PROMPTS_MAX];
    uint32_t n_texts, n_tokens, k_max;
};

static uint32_t number(const json_t *of, const char *name) {
    const json_t *value = json_object_get(of, name);
    assert_true(json_is_integer(value));
    return (uint32_t)json_integer_value(value);
}

static uint32_t read_ids(const json_t *list, uint32_t *out, uint32_t max) {
    size_t n = json_array_size(list);
    assert_true(n > 0 && n <= max);
    for (size_t i = 0; i < n; i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return (uint32_t)n;
}

/* `part`: what of a prompt has its by_k; NULL: the prompt itself. */
static void read_table(struct table *table, const char *path, const char *part) {
    table->root = json_load_file(drive_fixture(path), 0, NULL);
    const json_t *prompts = json_object_get(table->root, "prompts");
    table->n_texts = (uint32_t)json_array_size(prompts);
    table->n_tokens = number(table->root, "new_tokens");
    table->k_max = number(table->root, "max_k");
    assert_true(table->n_texts <= PROMPTS_MAX && table->n_tokens + K_MAX <= TOKENS_MAX);
    assert_true(table->n_texts > 0 && table->k_max > 0 && table->k_max <= K_MAX);
    for (uint32_t i = 0; i < table->n_texts; i++) {
        const json_t *prompt = json_array_get(prompts, i);
        struct text *text = &table->texts[i];
        text->n_prompt = read_ids(json_object_get(prompt, "input_ids"), text->prompt, 200);
        (void)read_ids(json_object_get(prompt, "greedy"), text->expected, TOKENS_MAX);
        text->is_odd = i % 2;
        text->by_k = json_object_get(part ? json_object_get(prompt, part) : prompt, "by_k");
        assert_non_null(text->by_k);
    }
}

static void begin_text(struct drive *drive, struct text *text, uint32_t slot, uint32_t gen) {
    uint32_t blocks[SEQ_BLOCKS];
    struct weft_step_start start = {.slot = slot,
                                    .gen = gen,
                                    .tokens = text->prompt,
                                    .n_tokens = text->n_prompt,
                                    .n_prompt = text->n_prompt};
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = 2 * TOKENS_MAX;
    for (uint32_t i = 0; i < SEQ_BLOCKS; i++)
        blocks[i] = slot * SEQ_BLOCKS + i;
    drive_start(drive, &start);
    drive_grant(drive, slot, gen, blocks, SEQ_BLOCKS);
    text->n_out = text->n_computed = text->n_steps = text->n_proposed = text->n_accepted = 0;
}

static void take_out(struct text *text, const struct weft_step_out *out) {
    if (!out->sampled) return;
    text->n_steps++;
    text->n_proposed += out->n_proposed;
    text->n_accepted += out->n_accepted;
    text->n_computed += out->n_accepted;
    text->out[text->n_out++] = out->token;
    for (uint32_t i = 0; i < out->n_more; i++)
        text->out[text->n_out++] = out->more[i];
}

/* Each prompt is one row, and the first step guesses as well: so no more prompts at once than a draft
 * takes in. */
static void run_all(struct drive *drive, struct table *table, uint32_t gen, uint32_t k) {
    for (uint32_t i = 0; i < table->n_texts; i++)
        begin_text(drive, &table->texts[i], i, gen);
    for (;;) {
        uint32_t rows[PROMPTS_MAX], n_rows = 0, n_for_prompts = 200;
        uint32_t room = weft_eng_info(drive->eng)->max_batched_tokens;
        for (uint32_t i = 0; i < table->n_texts; i++) {
            struct text *text = &table->texts[i];
            uint32_t left = text->n_prompt + text->n_out - text->n_computed;
            bool is_prompt = text->n_computed == 0;
            if (text->n_out >= table->n_tokens || left + k > room || !takes_part(text, k)) continue;
            if (is_prompt && left > n_for_prompts) continue;
            n_for_prompts -= is_prompt ? left : 0;
            drive_guessing_row(drive, i, gen, left, k);
            text->n_computed += left;
            room -= left + k;
            rows[n_rows++] = i;
        }
        if (n_rows == 0) break;
        const struct weft_step_result *result = drive_run(drive);
        for (uint32_t i = 0; i < n_rows; i++)
            take_out(&table->texts[rows[i]], &result->outs[i]);
    }
    for (uint32_t i = 0; i < table->n_texts; i++)
        drive_release(drive, i, gen);
    (void)drive_run(drive);
}

static void check_text(const struct text *text, uint32_t n_tokens, uint32_t k) {
    char name[4];
    (void)snprintf(name, sizeof name, "%u", k);
    const json_t *want = json_object_get(text->by_k, name);
    assert_non_null(want);
    assert_memory_equal(text->out, text->expected, n_tokens * sizeof(uint32_t));
    assert_int_equal(text->n_steps, number(want, "target_steps"));
    assert_int_equal(text->n_proposed, number(want, "proposed"));
    assert_int_equal(text->n_accepted, number(want, "accepted"));
    assert_int_equal(text->n_out, number(want, "emitted"));
}

static void check_table(const char *model, const char *path, const char *part,
                        const struct weft_eng_options *with) {
    struct table *table = calloc(1, sizeof *table);
    struct drive *drive = calloc(1, sizeof *drive);
    assert_true(table && drive);
    read_table(table, path, part);
    struct weft_eng_options options = *with;
    options.activations = WEFT_ENG_ACT_F32;
    options.max_seqs = PROMPTS_MAX;
    options.max_model_len = SEQ_BLOCKS * 16;
    options.max_batched_tokens = 512;
    options.kv_memory_bytes = 256u << 20;
    weft_eng *eng = drive_open(drive_fixture(model), &options);
    drive_init(drive, eng);
    for (uint32_t k = 1; k <= table->k_max; k++) {
        uint32_t n_accepted = 0, n_proposed = 0;
        run_all(drive, table, k, k);
        for (uint32_t i = 0; i < table->n_texts; i++) {
            if (!takes_part(&table->texts[i], k)) continue;
            check_text(&table->texts[i], table->n_tokens, k);
            n_accepted += table->texts[i].n_accepted;
            n_proposed += table->texts[i].n_proposed;
        }
        (void)printf("k = %u: %u of %u came true\n", k, n_accepted, n_proposed);
    }
    weft_eng_free(eng);
    json_decref(table->root);
    free(drive);
    free(table);
}

static void looked_up_guesses_come_true_as_recorded(void **state) {
    (void)state;
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.ngram_max = 3;
    check_table("models/fable-6m", "tests/data/speculative/ngram.json", "first", &options);
}

static void drafted_guesses_come_true_as_recorded(void **state) {
    (void)state;
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.draft_path = drive_fixture("tests/data/fable-draft-1m");
    check_table("models/fable-6m", "tests/data/speculative/draft.json", NULL, &options);
}

/* The step that computes a prompt has no guesses: the model's states come of it. */
static void predicted_guesses_come_true_as_recorded(void **state) {
    (void)state;
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.mtp = true;
    check_table("tests/data/mtp", "tests/data/mtp/guesses.json", NULL, &options);
}

int main(int argc, char **argv) {
    all_prompts = argc > 1 && !strcmp(argv[1], "all");
    if (drive_isa_missing()) return 0;
    weft_log_init("golden_guess", WEFT_LOG_WARN, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looked_up_guesses_come_true_as_recorded),
        cmocka_unit_test(drafted_guesses_come_true_as_recorded),
        cmocka_unit_test(predicted_guesses_come_true_as_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
