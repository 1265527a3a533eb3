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
                                     .scratch_bytes = 100 * MIB};
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

static struct weft_eng_loading limited(uint64_t limit_bytes) {
    struct weft_eng_loading loading = model(2);
    loading.lora_bytes = 50 * MIB;
    loading.vocab_bytes = 10 * MIB;
    loading.limit =
        (struct weft_eng_limit){limit_bytes, 120 * MIB, "router 100 MiB, others 20 MiB"};
    return loading;
}

static void a_limit_is_for_everything_that_is_or_will_be(void **state) {
    (void)state;
    const uint64_t sum = (2000 + 2 * (300 + 100 + 50 + 10) + 120) * MIB;
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
        "tale needs 3.0 GiB (weights 2.0 GiB, draft 2 x 30 MiB, KV cache 2 x 300 MiB, scratch 2 x "
        "100 MiB, adapters 2 x 50 MiB, vocabulary 2 x 10 MiB, router 100 MiB, others 20 MiB), "
        "--memory-limit is 1.0 GiB: fewer bits (--dtype q8 or q4) would help most");
    loading.kv_bytes = 1500 * MIB;
    assert_int_equal(wefti_fit_check_limit(&loading, &why), WEFT_E_NOMEM);
    assert_non_null(strstr(why.text, "--max-model-len"));
    loading.scratch_bytes = 1600 * MIB;
    assert_int_equal(wefti_fit_check_limit(&loading, &why), WEFT_E_NOMEM);
    assert_non_null(strstr(why.text, "--max-num-batched-tokens"));
    loading.lora_bytes = 1700 * MIB;
    assert_int_equal(wefti_fit_check_limit(&loading, &why), WEFT_E_NOMEM);
    assert_non_null(strstr(why.text, "--max-lora-memory"));
    loading.limit.beside_bytes = 4000 * MIB;
    assert_int_equal(wefti_fit_check_limit(&loading, &why), WEFT_E_NOMEM);
    assert_non_null(strstr(why.text, "--request-memory"));
}

static void the_longest_sum_has_room(void **state) {
    (void)state;
    struct weft_eng_loading loading = limited(1);
    char text[WEFT_ENG_NEED_TEXT_BYTES];
    loading.n_sharers = loading.n_copies = 32;
    loading.draft_bytes = loading.kv_bytes = loading.scratch_bytes = 999 * MIB;
    loading.limit.beside =
        "workers 32 x 16 MiB, router 1023 MiB, scheduler 1023 MiB, supervisor 4.0 MiB, requests 68 "
        "x 1023 MiB";
    (void)weft_eng_need_text(&loading, text);
    assert_int_equal(text[strlen(text) - 1], ')');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_is_for_everything_that_is_or_will_be),
        cmocka_unit_test(a_limit_that_is_too_low_is_told_with_every_term_and_what_helps),
        cmocka_unit_test(the_longest_sum_has_room),
        cmocka_unit_test(weights_cache_and_scratch_are_added_up),
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
