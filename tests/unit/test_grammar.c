/* Grammars by small examples: what is refused and how it is said, ends and rewinds, masks over a few
 * tokens, many texts. Strings judged by others are in golden_grammars. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

#define STR(text) ((struct weft_str){(text), strlen(text)})

static weft_gram *regex(const char *text) {
    struct weft_errmsg why = {""};
    weft_gram *gram;
    if (weft_gram_regex(STR(text), &gram, &why)) fail_msg("%s: %s", text, why.text);
    return gram;
}

static weft_gram *gbnf(const char *text) {
    struct weft_errmsg why = {""};
    weft_gram *gram;
    if (weft_gram_gbnf(STR(text), &gram, &why)) fail_msg("%s: %s", text, why.text);
    return gram;
}

/* 'a'ccepted, 'i'ncomplete, 'r'ejected. */
static char judge(weft_gram *gram, const char *text) {
    weft_gram_state *state;
    assert_int_equal(weft_gram_state_new(gram, &state), WEFT_OK);
    weft_err err = weft_gram_take(state, text, strlen(text));
    char verdict = err ? 'r' : weft_gram_may_end(state) ? 'a' : 'i';
    weft_gram_state_free(state);
    return verdict;
}

#define ASSERT_REFUSED(call, code, what)                                                           \
    do {                                                                                           \
        struct weft_errmsg why = {""};                                                             \
        weft_gram *gram;                                                                           \
        assert_int_equal(call, code);                                                              \
        assert_null(gram);                                                                         \
        if (!strstr(why.text, what)) fail_msg("\"%s\" has no \"%s\"", why.text, what);             \
    } while (0)

static void what_is_not_understood_is_refused_at_its_place(void **state) {
    (void)state;
    ASSERT_REFUSED(weft_gram_regex(STR("ab(c"), &gram, &why), WEFT_E_INVAL,
                   "character 5: a group has no end");
    ASSERT_REFUSED(weft_gram_regex(STR("é(?<=a)b"), &gram, &why), WEFT_E_UNSUPPORTED,
                   "character 4: look-behind is not supported");
    ASSERT_REFUSED(weft_gram_regex(STR("a{2,1}"), &gram, &why), WEFT_E_INVAL, "wrong way round");
    ASSERT_REFUSED(weft_gram_regex(STR("a{9999999}"), &gram, &why), WEFT_E_TOOBIG, "1000000");
    ASSERT_REFUSED(weft_gram_regex(STR("a$b"), &gram, &why), WEFT_E_INVAL, "no text fits");
    ASSERT_REFUSED(weft_gram_gbnf(STR("root ::= \"a\"\nb ::= c\n"), &gram, &why), WEFT_E_INVAL,
                   "line 2, column 7: the rule is defined nowhere");
    ASSERT_REFUSED(weft_gram_gbnf(STR("root ::= \"a\" root"), &gram, &why), WEFT_E_INVAL,
                   "no text fits");
    ASSERT_REFUSED(weft_gram_gbnf(STR("root ::= \"a\"\nroot ::= \"b\""), &gram, &why), WEFT_E_INVAL,
                   "line 2, column 1: the rule is there already");
    ASSERT_REFUSED(weft_gram_choice(NULL, 0, &gram, &why), WEFT_E_INVAL, "nothing");
}

static void look_ahead_and_anchors_are_compiled_away(void **state) {
    (void)state;
    weft_gram *gram = regex("(?=.*[0-9])(?!.*  )[a-z0-9 ]{3,}$");
    assert_int_equal(judge(gram, "abc"), 'i');
    assert_int_equal(judge(gram, "abc1"), 'a');
    assert_int_equal(judge(gram, "a 1 b"), 'a');
    assert_int_equal(judge(gram, "a1  "), 'r');
    weft_gram_free(gram);
}

static void nothing_begins_that_can_not_end(void **state) {
    (void)state;
    weft_gram *gram = regex("(?!ab)a[b-c]|x(?=y)z?y");
    assert_int_equal(judge(gram, "a"), 'i');
    assert_int_equal(judge(gram, "ab"), 'r');
    assert_int_equal(judge(gram, "ac"), 'a');
    assert_int_equal(judge(gram, "xz"), 'r');
    assert_int_equal(judge(gram, "xy"), 'a');
    weft_gram_free(gram);
    gram = gbnf("root ::= \"a\" loop | \"ab\"\nloop ::= \"b\" loop\n");
    assert_int_equal(judge(gram, "ab"), 'a');
    assert_int_equal(judge(gram, "abb"), 'r');
    weft_gram_free(gram);
}

static void what_is_refused_leaves_the_state_as_it_was(void **state) {
    (void)state;
    weft_gram *gram = gbnf("root ::= \"(\" root \")\" | [0-9]+\n");
    weft_gram_state *place;
    assert_int_equal(weft_gram_state_new(gram, &place), WEFT_OK);
    assert_int_equal(weft_gram_take(place, "((1", 3), WEFT_OK);
    assert_int_equal(weft_gram_take(place, "2)))", 4), WEFT_E_INVAL);
    assert_int_equal(weft_gram_take(place, "2))", 3), WEFT_OK);
    assert_true(weft_gram_may_end(place));
    assert_int_equal(weft_gram_take(place, "", 0), WEFT_OK);
    assert_int_equal(weft_gram_take(place, " ", 1), WEFT_E_INVAL);
    weft_gram_state_free(place);
    weft_gram_free(gram);
}

static void a_token_may_span_rules_and_end_within_a_character(void **state) {
    (void)state;
    const struct weft_str tokens[] = {STR("\""),     STR("a\",\""), STR("\"]"),  STR("\xc3"),
                                      STR("\xa9"),   STR("["),      STR("[\""),  {"", 0},
                                      STR("\xc3\""), STR("\","),    STR("\", "), STR("\"")};
    const uint32_t n = sizeof tokens / sizeof *tokens;
    uint64_t mask[1];
    weft_gram_vocab *vocab;
    weft_gram_state *place;
    weft_gram *gram =
        gbnf("root ::= \"[\" text (\",\" text)* \"]\"\ntext ::= \"\\\"\" [^\"]* \"\\\"\"");
    assert_int_equal(weft_gram_vocab_new(tokens, n, &vocab), WEFT_OK);
    assert_int_equal(weft_gram_state_new(gram, &place), WEFT_OK);
    assert_int_equal(weft_gram_mask(place, vocab, mask), WEFT_OK);
    assert_int_equal(*mask, 1 << 5 | 1 << 6);
    assert_int_equal(weft_gram_take(place, "[\"", 2), WEFT_OK);
    assert_int_equal(weft_gram_mask(place, vocab, mask), WEFT_OK);
    assert_int_equal(*mask, 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 9 | 1 << 11);
    assert_int_equal(weft_gram_take(place, "\xc3", 1), WEFT_OK);
    assert_int_equal(weft_gram_mask(place, vocab, mask), WEFT_OK);
    assert_int_equal(*mask, 1 << 4);
    weft_gram_state_free(place);
    weft_gram_free(gram);
    weft_gram_vocab_free(vocab);
}

static void a_hundred_thousand_texts_are_one_choice(void **state) {
    (void)state;
    enum { N = 100000 };
    struct weft_errmsg why = {""};
    struct weft_str *list = calloc(N, sizeof *list);
    char(*texts)[16] = calloc(N, sizeof *texts);
    assert_true(list && texts);
    for (int i = 0; i < N; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "item-%d", i * 7);
        list[i] = STR(texts[i]);
    }
    weft_gram *gram;
    if (weft_gram_choice(list, N, &gram, &why)) fail_msg("%s", why.text);
    assert_int_equal(judge(gram, "item-699993"), 'a');
    assert_int_equal(judge(gram, "item-699994"), 'r');
    assert_int_equal(judge(gram, "item-69"), 'i');
    weft_gram_free(gram);
    free(texts);
    free(list);
}

static void bounds_are_counters(void **state) {
    (void)state;
    weft_gram *gram = regex("(a|aa){0,100000}b");
    char text[3001];
    memset(text, 'a', 3000);
    text[3000] = 0;
    assert_int_equal(judge(gram, text), 'i');
    text[2999] = 'b';
    assert_int_equal(judge(gram, text), 'a');
    assert_true(weft_gram_bytes(gram) < 64u << 20);
    weft_gram_free(gram);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_understood_is_refused_at_its_place),
        cmocka_unit_test(look_ahead_and_anchors_are_compiled_away),
        cmocka_unit_test(nothing_begins_that_can_not_end),
        cmocka_unit_test(what_is_refused_leaves_the_state_as_it_was),
        cmocka_unit_test(a_token_may_span_rules_and_end_within_a_character),
        cmocka_unit_test(a_hundred_thousand_texts_are_one_choice),
        cmocka_unit_test(bounds_are_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
