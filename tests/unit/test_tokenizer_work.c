/* The work of a tokenizer for a text, in look-ups, not seconds. The linker turns the calls of
 * lib/tokenizer's own look-ups into the __wrap functions here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"
#include "unit/tokenizer_files.h"

static uint64_t n_calls;

uint32_t __real_wefti_tok_trie_step(const void *trie, uint32_t node, uint8_t byte);
uint32_t __real_wefti_tok_vocab_find(const void *vocab, const char *piece, size_t len);
const void *__real_wefti_tok_merges_find(const void *merges, uint32_t left, uint32_t right);
uint32_t __wrap_wefti_tok_trie_step(const void *trie, uint32_t node, uint8_t byte);
uint32_t __wrap_wefti_tok_vocab_find(const void *vocab, const char *piece, size_t len);
const void *__wrap_wefti_tok_merges_find(const void *merges, uint32_t left, uint32_t right);

uint32_t __wrap_wefti_tok_trie_step(const void *trie, uint32_t node, uint8_t byte) {
    n_calls++;
    return __real_wefti_tok_trie_step(trie, node, byte);
}

uint32_t __wrap_wefti_tok_vocab_find(const void *vocab, const char *piece, size_t len) {
    n_calls++;
    return __real_wefti_tok_vocab_find(vocab, piece, len);
}

const void *__wrap_wefti_tok_merges_find(const void *merges, uint32_t left, uint32_t right) {
    n_calls++;
    return __real_wefti_tok_merges_find(merges, left, right);
}

static const char *const paths[] = {"models/fable-6m",
                                    "tests/data/zoo/llama_gqa_llama3rope",
                                    "tests/data/spm/bpe",
                                    "tests/data/spm/bpe_across",
                                    "tests/data/spm/unigram",
                                    "tests/data/spm/unigram_bytes",
                                    "tests/data/spm/unigram.gguf"};

static uint64_t count(const weft_tokenizer *tok, const char *text, size_t len) {
    size_t n;
    n_calls = 0;
    free(text_ids(tok, text, len, 0, &n));
    return n_calls;
}

static void twice_the_letters_are_twice_the_look_ups(void **state) {
    (void)state;
    enum { LEN = 1000000, PER_BYTE = 32 };
    char *text = malloc(LEN);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        weft_tokenizer *tok = text_open_path(paths[i]);
        for (const char *letter = "ae \n.1"; *letter; letter++) {
            memset(text, *letter, LEN);
            uint64_t half = count(tok, text, LEN / 2), whole = count(tok, text, LEN);
            assert_true(whole <= 2 * half + 1000);
            assert_true(whole <= (uint64_t)PER_BYTE * LEN);
        }
        weft_tok_free(tok);
    }
    free(text);
}

/* The second time a long text has its words at hand. */
static void words_that_come_again_are_not_merged_again(void **state) {
    (void)state;
    enum { LEN = 200000 };
    static const char line[] =
        "Once upon a time, there was a little girl who lived in the forest. ";
    char *text = malloc(LEN);
    assert_non_null(text);
    for (size_t i = 0; i < LEN; i++)
        text[i] = line[i % (sizeof line - 1)];
    for (size_t i = 1; i < 4; i++) { /* the first looks whole words up anyway */
        weft_tokenizer *tok = text_open_path(paths[i]);
        uint64_t once = count(tok, text, sizeof line - 1), all = count(tok, text, LEN);
        assert_true(once > 0);
        print_message("    %s: %llu look-ups, then %llu\n", paths[i], (unsigned long long)once,
                      (unsigned long long)all);
        assert_true(all <= 4 * once + 1000);
        weft_tok_free(tok);
    }
    free(text);
}

/* The time of the processor bounds what no single match does: here each looks to the text's end. */
static void matches_that_take_quadratic_time_together_end_in_an_error(void **state) {
    (void)state;
    enum { LEN = 200000 };
    static const char json[] =
        "{\"decoder\":{\"type\":\"Fuse\"},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{"
        "\"Regex\":\"a(?=.*z)|[^z]\"},"
        "\"behavior\":\"Isolated\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},"
        "\"merges\":[]}}";
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    uint32_t *ids;
    size_t n;
    char *text = malloc(LEN);
    assert_non_null(text);
    memset(text, 'a', LEN);
    if (text_try_open(json, &tok, &why)) fail_msg("%s", why.text);
    assert_int_equal(
        weft_tok_encode(tok, &(struct weft_tok_input){{text, LEN}, 0, LEN}, &ids, &n, &why),
        WEFT_E_TIMEOUT);
    assert_non_null(strstr(why.text, "too long on this text"));
    assert_int_equal(
        weft_tok_encode(tok, &(struct weft_tok_input){{text, 100}, 0, LEN}, &ids, &n, &why),
        WEFT_OK);
    assert_int_equal(n, 100);
    free(ids);
    free(text);
    weft_tok_free(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twice_the_letters_are_twice_the_look_ups),
        cmocka_unit_test(words_that_come_again_are_not_merged_again),
        cmocka_unit_test(matches_that_take_quadratic_time_together_end_in_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
