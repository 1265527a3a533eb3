/* Whether an engine fits into the memory there is, and the words for it when it does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "inside/engine/runtime/fit.h"

#define MIB ((uint64_t)1 << 20)

static struct weft_eng_loading model(uint32_t n_sharers) {
    return (struct weft_eng_loading){.model_name = "tale",
                                     .weight_bytes = 2000 * MIB,
                                     .n_copies = 1,
                                     .n_sharers = n_sharers,
                                     .kv_bytes = 300 * MIB,
                                     .scratch_bytes = 100 * MIB,
                                     .fewer_bits = "fewer bits (--dtype q8 or q4)"};
}

static weft_err check(const struct weft_eng_loading *loading, uint64_t to_come, uint64_t most) {
    struct weft_mem_room room = {most, 4096 * MIB, true};
    struct weft_errmsg why = {""};
    weft_err err = wefti_fit_check(loading, to_come, &room, &why);
    assert_true((err == WEFT_OK) == (why.text[0] == '\0'));
    return err;
}

static void weights_cache_and_scratch_are_added_up(void **state) {
    (void)state;
    struct weft_eng_loading loading = model(1);
    assert_int_equal(check(&loading, loading.weight_bytes, 2400 * MIB), WEFT_OK);
    assert_int_equal(check(&loading, loading.weight_bytes, 2400 * MIB - 1), WEFT_E_NOMEM);
}

static void so_are_the_states_of_recurrent_layers(void **state) {
    (void)state;
    char text[WEFT_ENG_NEED_TEXT_BYTES];
    struct weft_errmsg why = {""};
    struct weft_eng_loading loading = model(2);
    loading.state_bytes = 50 * MIB;
    assert_int_equal(check(&loading, loading.weight_bytes, 2900 * MIB), WEFT_OK);
    assert_int_equal(check(&loading, loading.weight_bytes, 2900 * MIB - 1), WEFT_E_NOMEM);
    assert_string_equal(weft_eng_need_text(&loading, text),
                        "2.8 GiB (weights 2.0 GiB, states 2 x 50 MiB, KV cache 2 x 300 MiB, "
                        "scratch 2 x 100 MiB)");
    loading.state_bytes = 2000 * MIB;
    loading.limit.bytes = MIB;
    assert_int_equal(wefti_fit_check_limit(&loading, &why), WEFT_E_NOMEM);
    assert_non_null(strstr(why.text, "--max-num-seqs"));
}

static void weights_that_are_there_already_are_not_needed_again(void **state) {
    (void)state;
    struct weft_eng_loading loading = model(1);
    assert_int_equal(check(&loading, 0, 400 * MIB), WEFT_OK);
    assert_int_equal(check(&loading, 0, 400 * MIB - 1), WEFT_E_NOMEM);
    assert_int_equal(check(&loading, 500 * MIB, 900 * MIB), WEFT_OK);
    assert_int_equal(check(&loading, 500 * MIB, 900 * MIB - 1), WEFT_E_NOMEM);
}

/* Later on the others' caches may be in memory, and counted as such. */
static void who_packs_counts_the_caches_of_all_and_later_ones_their_own(void **state) {
    (void)state;
    struct weft_eng_loading loading = model(3);
    assert_int_equal(check(&loading, loading.weight_bytes, 3200 * MIB), WEFT_OK);
    assert_int_equal(check(&loading, loading.weight_bytes, 3200 * MIB - 1), WEFT_E_NOMEM);
    assert_int_equal(check(&loading, 0, 400 * MIB), WEFT_OK);
}

static void adapters_may_have_a_third_of_what_the_limit_leaves(void **state) {
    (void)state;
    struct weft_eng_loading loading = model(1);
    assert_true(wefti_fit_lora_bytes(&loading) == UINT64_MAX);
    loading.limit_bytes = 4000 * MIB;
    assert_true(wefti_fit_lora_bytes(&loading) == 1600 * MIB / 3);
    loading.n_sharers = 4; /* one copy of the weights, four caches */
    assert_true(wefti_fit_lora_bytes(&loading) == 64 * MIB);
    loading.limit_bytes = 6000 * MIB;
    assert_true(wefti_fit_lora_bytes(&loading) == 200 * MIB);
    loading.limit_bytes = 1000 * MIB;
    assert_true(wefti_fit_lora_bytes(&loading) == 64 * MIB);
}

static void what_is_not_known_refuses_nothing(void **state) {
    (void)state;
    struct weft_eng_loading loading = model(1);
    struct weft_mem_room room = {0, 0, false};
    assert_int_equal(wefti_fit_check(&loading, loading.weight_bytes, &room, NULL), WEFT_OK);
}

static void the_sentence_has_the_numbers_and_what_would_help(void **state) {
    (void)state;
    struct weft_eng_loading loading = model(2);
    struct weft_mem_room room = {1100 * MIB, 1200 * MIB, true};
    struct weft_errmsg why = {""};
    assert_int_equal(wefti_fit_check(&loading, loading.weight_bytes, &room, &why), WEFT_E_NOMEM);
    assert_non_null(strstr(why.text, "tale needs 2.7 GiB (weights 2.0 GiB, KV cache 2 x 300 MiB, "
                                     "scratch 2 x 100 MiB), the limit is 1.2 GiB (of the control "
                                     "group), of which 1.1 GiB can be had"));
    assert_non_null(strstr(why.text, "--dtype"));
    assert_non_null(strstr(why.text, "--kv-memory"));
    assert_non_null(strstr(why.text, "--max-model-len"));
    assert_true(strlen(why.text) + 1 < sizeof why.text);
    loading.fewer_bits = NULL; /* quantised already */
    assert_int_equal(wefti_fit_check(&loading, loading.weight_bytes, &room, &why), WEFT_E_NOMEM);
    assert_null(strstr(why.text, "--dtype"));
    assert_non_null(strstr(why.text, " can be had: a smaller cache (--kv-memory) or "));
    loading.state_bytes = 301 * MIB; /* more than the cache */
    assert_int_equal(wefti_fit_check(&loading, loading.weight_bytes, &room, &why), WEFT_E_NOMEM);
    assert_non_null(strstr(why.text, " had: fewer sequences at once (--max-num-seqs) need less"));
    loading.has_many_checkpoints = true;
    assert_int_equal(wefti_fit_check(&loading, loading.weight_bytes, &room, &why), WEFT_E_NOMEM);
    assert_non_null(strstr(why.text, " had: fewer kept states (--state-checkpoints) need less"));
}

static void copies_that_are_made_at_once_are_told(void **state) {
    (void)state;
    char text[WEFT_ENG_NEED_TEXT_BYTES];
    struct weft_eng_loading loading = model(2);
    loading.n_copies = 2;
    assert_string_equal(weft_eng_need_text(&loading, text),
                        "4.7 GiB (weights 2 x 2.0 GiB, KV cache 2 x 300 MiB, scratch 2 x 100 MiB)");
}

static void a_packed_file_is_not_counted_and_said_to_be_in_the_page_cache(void **state) {
    (void)state;
    char text[WEFT_ENG_NEED_TEXT_BYTES];
    struct weft_eng_loading loading = model(1);
    loading.is_page_cache = true;
    assert_string_equal(weft_eng_need_text(&loading, text),
                        "400 MiB (weights 2.0 GiB in the page cache, which do not count, KV cache "
                        "300 MiB, scratch 100 MiB)");
}

/* Nothing follows from the limit. */
static struct weft_eng_loading limited(uint64_t limit_bytes) {
    struct weft_eng_loading loading = model(2);
    loading.lora_bytes = 50 * MIB;
    loading.vocab_bytes = 10 * MIB;
    loading.follows.scratch_bytes = loading.scratch_bytes;
    loading.limit = (struct weft_eng_limit){
        .bytes = limit_bytes,
        .n_terms = 2,
        .terms = {
            {.name = "processes", .n = 1, .least_bytes = 100 * MIB},
            {.name = "requests", .flag = "--request-memory", .n = 5, .least_bytes = 4 * MIB}}};
    return loading;
}

static void a_limit_is_for_everything_that_is_or_will_be(void **state) {
    (void)state;
    const uint64_t sum = (2000 + 2 * (300 + 100 + 50 + 10) + 100 + 5 * 4) * MIB;
    struct weft_eng_loading loading = limited(sum);
    struct weft_errmsg why = {""};
    assert_int_equal(wefti_fit_check_limit(&loading, &why), WEFT_OK);
    loading.is_page_cache = true; /* a packed file's pages are to stay */
    assert_int_equal(wefti_fit_check_limit(&loading, &why), WEFT_OK);
    loading.limit.bytes = sum - 1;
    assert_int_equal(wefti_fit_check_limit(&loading, &why), WEFT_E_NOMEM);
    loading.limit.bytes = 0;
    assert_int_equal(wefti_fit_check_limit(&loading, &why), WEFT_OK);
}

static void a_limit_that_is_too_low_is_told_with_every_term_and_what_helps(void **state) {
    (void)state;
    struct weft_eng_loading loading = limited(1024 * MIB);
    struct weft_errmsg why = {""};
    loading.draft_bytes = 30 * MIB;
    assert_int_equal(wefti_fit_check_limit(&loading, &why), WEFT_E_NOMEM);
    assert_string_equal(
        why.text,
        "tale needs 3.1 GiB (weights 2.0 GiB, draft 2 x 30 MiB, KV cache 2 x 300 MiB, scratch 2 x "
        "100 MiB, adapters 2 x 50 MiB, vocabulary 2 x 10 MiB, processes 100 MiB, requests 5 x 4.0 "
        "MiB), --memory-limit is 1.0 GiB: fewer bits (--dtype q8 or q4) would help most");
}

static const char *advice(const struct weft_eng_loading *loading) {
    static struct weft_errmsg why;
    assert_int_equal(wefti_fit_check_limit(loading, &why), WEFT_E_NOMEM);
    const char *colon = strrchr(why.text, ':');
    assert_non_null(colon);
    return colon + 2;
}

static void advice_is_of_what_can_be_had(void **state) {
    (void)state;
    struct weft_eng_loading loading = limited(1024 * MIB);
    loading.fewer_bits = NULL;
    assert_string_equal(advice(&loading), "a model file of fewer bits would help most");
    loading.kv_bytes = 1500 * MIB;
    assert_string_equal(advice(&loading), "shorter sequences (--max-model-len) or --kv-dtype int8 "
                                          "would help most");
    loading.is_kv_least = true;
    assert_string_equal(advice(&loading), "shorter sequences (--max-model-len) would help most");
    loading.is_kv_given = true;
    assert_string_equal(advice(&loading), "a smaller cache (--kv-memory) would help most");
    loading.state_bytes = 1550 * MIB;
    assert_string_equal(advice(&loading),
                        "fewer sequences at once (--max-num-seqs) would help most");
    loading.has_many_checkpoints = true;
    assert_string_equal(advice(&loading),
                        "fewer kept states (--state-checkpoints) would help most");
    loading.scratch_bytes = loading.follows.scratch_bytes = 1600 * MIB;
    assert_non_null(strstr(advice(&loading), "--max-num-batched-tokens"));
    loading.lora_bytes = 1700 * MIB;
    assert_non_null(strstr(advice(&loading), "--max-lora-memory"));
    loading.limit.terms[0].least_bytes = 4000 * MIB; /* which nothing makes less */
    assert_non_null(strstr(advice(&loading), "--max-lora-memory"));
    loading.limit.terms[1].least_bytes = 800 * MIB;
    assert_string_equal(advice(&loading), "less for requests (--request-memory) would help most");
}

/* What is a part of the limit grows with it; what is asked for does not, and is enough. */
static void the_least_limit_is_the_same_whatever_was_given(void **state) {
    (void)state;
    for (uint64_t limit_mib = 64; limit_mib < 2500; limit_mib += 97) {
        struct weft_eng_loading loading = limited(limit_mib * MIB);
        struct weft_errmsg why = {""};
        loading.limit.terms[1].part = 64;
        loading.limit.terms[1].most_bytes = 600 * MIB;
        loading.scratch_bytes = 104 * MIB;
        loading.follows = (struct weft_eng_follows){.scratch_bytes = 100 * MIB,
                                                    .answer_bytes = 60 * MIB,
                                                    .contrast_bytes = 40 * MIB,
                                                    .contrast_from_bytes = 2600 * MIB,
                                                    .has_loras = true};
        assert_int_equal(wefti_fit_check_limit(&loading, &why), WEFT_E_NOMEM);
        assert_non_null(strstr(why.text, "tale needs 3.6 GiB (weights 2.0 GiB, KV cache 2 x 300 "
                                         "MiB, scratch 2 x 198 MiB, adapters 2 x 115 MiB, "));
        assert_non_null(strstr(why.text, "requests 5 x 58 MiB), --memory-limit is "));
    }
}

static void the_longest_sum_has_room(void **state) {
    (void)state;
    struct weft_eng_loading loading = limited(1);
    char text[WEFT_ENG_NEED_TEXT_BYTES];
    loading.n_sharers = loading.n_copies = 32;
    loading.draft_bytes = loading.state_bytes = loading.kv_bytes = loading.scratch_bytes =
        999 * MIB;
    for (uint32_t i = 0; i < WEFT_ENG_LIMIT_TERMS_MAX; i++) {
        struct weft_eng_limit_term *term = &loading.limit.terms[i];
        *term = (struct weft_eng_limit_term){.n = 68, .least_bytes = 1023 * MIB};
        memset(term->name, 'x', sizeof term->name - 1);
    }
    loading.limit.n_terms = WEFT_ENG_LIMIT_TERMS_MAX;
    (void)weft_eng_need_text(&loading, text);
    assert_int_equal(text[strlen(text) - 1], ')');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_is_for_everything_that_is_or_will_be),
        cmocka_unit_test(a_limit_that_is_too_low_is_told_with_every_term_and_what_helps),
        cmocka_unit_test(advice_is_of_what_can_be_had),
        cmocka_unit_test(the_least_limit_is_the_same_whatever_was_given),
        cmocka_unit_test(the_longest_sum_has_room),
        cmocka_unit_test(weights_cache_and_scratch_are_added_up),
        cmocka_unit_test(so_are_the_states_of_recurrent_layers),
        cmocka_unit_test(weights_that_are_there_already_are_not_needed_again),
        cmocka_unit_test(who_packs_counts_the_caches_of_all_and_later_ones_their_own),
        cmocka_unit_test(adapters_may_have_a_third_of_what_the_limit_leaves),
        cmocka_unit_test(what_is_not_known_refuses_nothing),
        cmocka_unit_test(the_sentence_has_the_numbers_and_what_would_help),
        cmocka_unit_test(copies_that_are_made_at_once_are_told),
        cmocka_unit_test(a_packed_file_is_not_counted_and_said_to_be_in_the_page_cache),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
