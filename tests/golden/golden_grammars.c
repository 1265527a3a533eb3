/* Grammars and regular expressions with strings that programs have judged: WEFT_SHARED_DIR/grammars. They
 * are no part of the repository: without them the test is skipped.
 *
 * Each string is fed by bytes, and once more in tokens of fable-6m, each of which the mask before it must
 * allow. At every place of a string the mask is also compared with what each token, tried by itself, says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

#define SKIPPED 77
#define TOKENS_MAX (1u << 20)
#ifdef WEFT_SANITIZED
#define TRIED_MAX 4 /* longer texts, in tokens, are not tried token by token */
#else
#define TRIED_MAX 10
#endif

static char folder[PATH_MAX];
static weft_tokenizer *tok;
static weft_gram_vocab *vocab;
static struct weft_str *tokens;
static uint32_t n_tokens;

enum verdict { ACCEPTED, INCOMPLETE, REJECTED };
static const char *const verdicts[] = {"accepted", "incomplete", "rejected"};

static void open_vocab(void) {
    char path[PATH_MAX];
    struct weft_errmsg why;
    (void)snprintf(path, sizeof path, "%s/models/fable-6m", getenv("WEFT_SOURCE_DIR"));
    assert_int_equal(weft_tok_open(path, &tok, &why), WEFT_OK);
    n_tokens = weft_tok_vocab_size(tok);
    tokens = calloc(n_tokens, sizeof *tokens);
    assert_non_null(tokens);
    for (uint32_t id = 0; id < n_tokens; id++) {
        if (!weft_tok_is_special(tok, id))
            tokens[id].data = weft_tok_token_bytes(tok, id, &tokens[id].len);
    }
    assert_int_equal(weft_gram_vocab_new(tokens, n_tokens, &vocab), WEFT_OK);
}

static weft_gram_state *begin(weft_gram *gram) {
    weft_gram_state *state;
    assert_int_equal(weft_gram_state_new(gram, &state), WEFT_OK);
    return state;
}

static enum verdict judge(weft_gram *gram, const char *text, size_t len) {
    weft_gram_state *state = begin(gram);
    weft_err err = weft_gram_take(state, text, len);
    assert_true(!err || err == WEFT_E_INVAL);
    enum verdict verdict = err ? REJECTED : weft_gram_may_end(state) ? ACCEPTED : INCOMPLETE;
    weft_gram_state_free(state);
    return verdict;
}

static bool has_bit(const uint64_t *mask, uint32_t id) {
    return mask[id / 64] >> (id % 64) & 1;
}

/* A token that is tried on a copy of the place: the text once more from its beginning. */
static bool fits(weft_gram *gram, const char *text, size_t len, uint32_t id) {
    weft_gram_state *state = begin(gram);
    bool is_fit = tokens[id].len > 0 && !weft_gram_take(state, text, len) &&
                  !weft_gram_take(state, tokens[id].data, tokens[id].len);
    weft_gram_state_free(state);
    return is_fit;
}

static void check_mask(const char *name, weft_gram *gram, const char *text, size_t len,
                       const uint64_t *mask) {
    for (uint32_t id = 0; id < n_tokens; id++) {
        if (has_bit(mask, id) != fits(gram, text, len, id))
            fail_msg("%s: behind \"%.*s\" the mask is wrong for token %u \"%.*s\"", name, (int)len,
                     text, id, (int)tokens[id].len, tokens[id].data);
    }
}

static enum verdict judge_tokens(const char *name, weft_gram *gram, const char *text, size_t len) {
    struct weft_errmsg why;
    uint32_t *ids;
    size_t n, at = 0;
    const struct weft_tok_input input = {{text, len}, 0, TOKENS_MAX};
    assert_int_equal(weft_tok_encode(tok, &input, &ids, &n, &why), WEFT_OK);
    uint64_t *mask = calloc(weft_gram_mask_words(n_tokens), sizeof *mask);
    weft_gram_state *state = begin(gram);
    enum verdict verdict = ACCEPTED;
    for (size_t i = 0; i < n && verdict != REJECTED; i++) {
        assert_int_equal(weft_gram_mask(state, vocab, mask), WEFT_OK);
        if (n < TRIED_MAX) check_mask(name, gram, text, at, mask);
        if (!has_bit(mask, ids[i])) verdict = REJECTED;
        bool is_taken = !weft_gram_take(state, tokens[ids[i]].data, tokens[ids[i]].len);
        assert_int_equal(is_taken, verdict != REJECTED);
        at += tokens[ids[i]].len;
    }
    if (verdict != REJECTED && !weft_gram_may_end(state)) verdict = INCOMPLETE;
    weft_gram_state_free(state);
    free(mask);
    free(ids);
    return verdict;
}

static size_t from_hex(const char *hex, char *out) {
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (char)byte;
    }
    return n;
}

static size_t check_texts(const char *name, weft_gram *gram, const json_t *list, bool is_hex,
                          enum verdict expected) {
    size_t i, n_wrong = 0;
    json_t *item;
    json_array_foreach(list, i, item) {
        char bytes[256];
        const char *text = json_string_value(item);
        size_t len = json_string_length(item);
        if (is_hex) {
            len = from_hex(text, bytes);
            text = bytes;
        }
        enum verdict verdict = judge(gram, text, len);
        enum verdict in_tokens = is_hex ? verdict : judge_tokens(name, gram, text, len);
        if (verdict == expected && in_tokens == expected) continue;
        print_error("%s: \"%.60s\" is %s, in tokens %s, not %s\n", name, json_string_value(item),
                    verdicts[verdict], verdicts[in_tokens], verdicts[expected]);
        n_wrong++;
    }
    return n_wrong;
}

static size_t check_case(const json_t *one, const char *key) {
    const char *name = json_string_value(json_object_get(one, "id"));
    const char *expect = json_string_value(json_object_get(one, "expect"));
    const json_t *source = json_object_get(one, key);
    struct weft_str text = {json_string_value(source), json_string_length(source)};
    struct weft_errmsg why;
    weft_gram *gram;
    weft_err err = strcmp(key, "regex") == 0 ? weft_gram_regex(text, &gram, &why)
                                             : weft_gram_gbnf(text, &gram, &why);
    if (err) print_message("%s: %s\n", name, why.text);
    if (err && strcmp(expect, "ok") != 0) return 0;
    if (err || strcmp(expect, "refuse") == 0) {
        print_error("%s: %s\n", name, err ? "does not compile" : "compiles");
        weft_gram_free(gram);
        return 1;
    }
    size_t n_wrong = check_texts(name, gram, json_object_get(one, "accepted"), false, ACCEPTED) +
                     check_texts(name, gram, json_object_get(one, "prefixes"), false, INCOMPLETE) +
                     check_texts(name, gram, json_object_get(one, "prefix_hex"), true, INCOMPLETE) +
                     check_texts(name, gram, json_object_get(one, "rejected"), false, REJECTED) +
                     check_texts(name, gram, json_object_get(one, "rejected_hex"), true, REJECTED);
    weft_gram_free(gram);
    return n_wrong;
}

static void check_file(const char *file_name, const char *key) {
    char path[2 * PATH_MAX];
    size_t n_cases = 0, n_wrong = 0;
    (void)snprintf(path, sizeof path, "%s/%s", folder, file_name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    json_t *one;
    while ((one = json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL))) {
        n_wrong += check_case(one, key);
        n_cases++;
        json_decref(one);
    }
    assert_int_equal(fclose(file), 0);
    print_message("%s: %zu cases, %zu wrong\n", file_name, n_cases, n_wrong);
    assert_true(n_cases > 10);
    assert_int_equal(n_wrong, 0);
}

static void regular_expressions_are_as_judged(void **state) {
    (void)state;
    check_file("regex.jsonl", "regex");
}

static void grammars_are_as_judged(void **state) {
    (void)state;
    check_file("gbnf.jsonl", "grammar");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(regular_expressions_are_as_judged),
                                       cmocka_unit_test(grammars_are_as_judged)};
    const char *shared = getenv("WEFT_SHARED_DIR");
    (void)snprintf(folder, sizeof folder, "%s/grammars", shared ? shared : "");
    if (access(folder, R_OK) != 0) {
        printf("skipped: there is no %s\n", folder);
        return SKIPPED;
    }
    open_vocab();
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_gram_vocab_free(vocab);
    free(tokens);
    weft_tok_free(tok);
    return n_failed;
}
