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

#include "base/buf.h"
#include "grammar/grammar.h"

#define STR(text) ((struct weft_str){(text), strlen(text)})

static weft_gram *regex(const char *text) {
    struct weft_errmsg why = {""};
    weft_gram *gram;
    if (weft_gram_regex(STR(text), &gram, &why)) fail_msg("%s: %s", text, why.text);
    return gram;
}

static weft_gram *compile(enum weft_grammar_kind kind, const char *text,
                          enum weft_grammar_thinking thinking) {
    weft_gram *gram;
    struct weft_grammar wish;
    struct weft_errmsg why = {""};
    weft_grammar_init(&wish);
    wish.kind = kind;
    wish.thinking = thinking;
    wish.text = text;
    wish.n_bytes = (uint32_t)strlen(text);
    if (weft_gram_compile(&wish, &gram, &why)) fail_msg("%s: %s", text, why.text);
    return gram;
}

static weft_gram *choice(const char *list) {
    return compile(WEFT_GRAMMAR_CHOICE, list, WEFT_THINKING_NONE);
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

static weft_gram *schema(const char *text) {
    struct weft_errmsg why = {""};
    weft_gram *gram;
    if (weft_gram_schema(STR(text), &gram, &why)) fail_msg("%s: %s", text, why.text);
    return gram;
}

/* Texts that are accepted, and texts that are not, each list ended by NULL. */
static void check_schema(const char *text, const char *const *good, const char *const *bad) {
    weft_gram *gram = schema(text);
    for (; *good; good++) {
        if (judge(gram, *good) != 'a') fail_msg("%s does not accept %s", text, *good);
    }
    for (; *bad; bad++) {
        if (judge(gram, *bad) == 'a') fail_msg("%s accepts %s", text, *bad);
    }
    weft_gram_free(gram);
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
    ASSERT_REFUSED(weft_gram_regex(STR("a(?i)b"), &gram, &why), WEFT_E_UNSUPPORTED, "flags");
    ASSERT_REFUSED(weft_gram_regex(STR("(?m)b"), &gram, &why), WEFT_E_UNSUPPORTED, "flags");
    ASSERT_REFUSED(weft_gram_regex(STR("(?i)\xc3\xa9"), &gram, &why), WEFT_E_UNSUPPORTED,
                   "beyond ASCII");
    ASSERT_REFUSED(weft_gram_regex(STR("a[^[:alpha:]]"), &gram, &why), WEFT_E_UNSUPPORTED,
                   "character 4: a POSIX class is not supported");
    ASSERT_REFUSED(weft_gram_regex(STR("a{2,1}"), &gram, &why), WEFT_E_INVAL, "wrong way round");
    ASSERT_REFUSED(weft_gram_regex(STR("a{9999999}"), &gram, &why), WEFT_E_TOOBIG, "1000000");
    ASSERT_REFUSED(weft_gram_regex(STR("a$b"), &gram, &why), WEFT_E_INVAL,
                   "no text fits the regular expression");
    ASSERT_REFUSED(weft_gram_gbnf(STR("root ::= \"a\"\nb ::= c\n"), &gram, &why), WEFT_E_INVAL,
                   "line 2, column 7: \"c\" is defined nowhere");
    ASSERT_REFUSED(weft_gram_gbnf(STR("root ::= \"a\" root"), &gram, &why), WEFT_E_INVAL,
                   "no text fits");
    static const char *const no_chars[] = {"root ::= \"\\U00110000\"", "root ::= \"\\Uf09f01f6\"",
                                           "root ::= [a-\\UFFFFFFFF]", "root ::= \"\\ud800\""};
    for (size_t i = 0; i < sizeof no_chars / sizeof *no_chars; i++)
        ASSERT_REFUSED(weft_gram_gbnf(STR(no_chars[i]), &gram, &why), WEFT_E_INVAL, "no character");
    ASSERT_REFUSED(weft_gram_gbnf(STR("root ::= \"a\"\nroot ::= \"b\""), &gram, &why), WEFT_E_INVAL,
                   "line 2, column 1: the rule is there already");
    struct weft_grammar none = {WEFT_GRAMMAR_CHOICE, 0, 0, 1, 64, 2, "[]"};
    ASSERT_REFUSED(weft_gram_compile(&none, &gram, &why), WEFT_E_INVAL, "nothing");
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

static void flags_hold_where_they_stand(void **state) {
    (void)state;
    weft_gram *gram = regex("(?i)yes[^k]");
    assert_int_equal(judge(gram, "yEsa"), 'a');
    assert_int_equal(judge(gram, "ye\xc5\xbf."), 'a'); /* a long s is an s in Python */
    assert_int_equal(judge(gram, "yesK"), 'r');
    assert_int_equal(judge(gram, "yes\xe2\x84\xaa"), 'r'); /* and so is the Kelvin sign a k */
    weft_gram_free(gram);
    gram = regex("a(?i:b)c(?s:.)(?s-s:.)?");
    assert_int_equal(judge(gram, "aBc\n"), 'a');
    assert_int_equal(judge(gram, "aBc\n\n"), 'r');
    assert_int_equal(judge(gram, "Abc"), 'r');
    assert_int_equal(judge(gram, "abC"), 'r');
    weft_gram_free(gram);
}

static void what_is_repeated_is_one_character(void **state) {
    (void)state;
    weft_gram *gram = regex("abc*d|xy{2}z|é|aé+|p{q|\\.net?");
    const char *good[] = {"abd", "abccd", "xyyz", "é", "aéé", "p{q", ".ne", ".net"};
    const char *bad[] = {"abcabcd", "xyxyz", "cd", "d", "pq", "xnet", "aa"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(judge(gram, good[i]), 'a');
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(judge(gram, bad[i]), 'a');
    weft_gram_free(gram);
}

static void brackets_and_colons_are_characters_of_a_class(void **state) {
    (void)state;
    weft_gram *gram = regex("[[:a][]:]");
    assert_int_equal(judge(gram, "[:"), 'a');
    assert_int_equal(judge(gram, "a]"), 'a');
    assert_int_equal(judge(gram, "b"), 'r');
    weft_gram_free(gram);
}

static void classes_are_pythons_where_they_are_inverted(void **state) {
    (void)state;
    static const struct {
        const char *regex, *good, *bad;
    } cases[] = {
        {"\\D", "a", "\u0663"},          {"\\S", "a", "\u00a0"},      {"\\S", "\u0663", "\x1c"},
        {"\\W", "-", "\u00e9"},          {"[^\\d]", "a", "\u0663"},   {"[^\\w\\s]", "-", "\u00b2"},
        {"[^\\D]", "5", "\u0663"},       {"(?!\\d).", "a", "\u0663"}, {"(?!\\D).", "5", "\u0663"},
        {"(?!(?!\\d)).", "5", "\u0663"}, {"\\d", "5", "\u0663"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_gram *gram = regex(cases[i].regex);
        if (judge(gram, cases[i].good) != 'a') fail_msg("%s, good", cases[i].regex);
        if (judge(gram, cases[i].bad) == 'a') fail_msg("%s, bad", cases[i].regex);
        weft_gram_free(gram);
    }
    check_schema("{\"pattern\":\"^\\\\D\\\\W$\",\"type\":\"string\"}",
                 (const char *const[]){"\"\u0663\u00e9\"", NULL},
                 (const char *const[]){"\"5-\"", NULL});
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

static void a_token_may_go_past_a_bounded_free_text(void **state) {
    (void)state;
    const struct weft_str tokens[] = {STR("a the"), STR("abc the"), STR("abcdthe"), STR(" ((the"),
                                      STR("abc"),   STR("abcd"),    STR("(the)"),   STR("((")};
    const uint32_t n = sizeof tokens / sizeof *tokens;
    uint64_t mask[1];
    weft_gram_vocab *vocab;
    weft_gram_state *place;
    weft_gram *gram = gbnf("root ::= .{1,3} y\ny ::= \"(\" y \")\" | \"the\"");
    assert_int_equal(weft_gram_vocab_new(tokens, n, &vocab), WEFT_OK);
    assert_int_equal(weft_gram_state_new(gram, &place), WEFT_OK);
    assert_int_equal(weft_gram_mask(place, vocab, mask), WEFT_OK);
    assert_int_equal(*mask, 1 | 1 << 3 | 1 << 4 | 1 << 7);
    weft_gram_state_free(place);
    weft_gram_free(gram);
    weft_gram_vocab_free(vocab);
}

static void a_hundred_thousand_texts_are_one_choice(void **state) {
    (void)state;
    enum { N = 100000 };
    static char list[20 * N];
    size_t len = 0;
    for (int i = 0; i < N; i++)
        len +=
            (size_t)snprintf(list + len, sizeof list - len, "%s\"item-%d\"", i ? "," : "[", i * 7);
    list[len] = ']';
    weft_gram *gram = choice(list);
    assert_int_equal(judge(gram, "item-699993"), 'a');
    assert_int_equal(judge(gram, "item-699994"), 'r');
    assert_int_equal(judge(gram, "item-69"), 'i');
    weft_gram_free(gram);
}

static void many_alternatives_are_as_few(void **state) {
    (void)state;
    static char text[8192];
    size_t len = 0;
    for (int i = 0; i < 100; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "x%dy*|", i);
    (void)snprintf(text + len, sizeof text - len, "x|x12z|[xz]a|");
    weft_gram *gram = regex(text);
    const char *good[] = {"", "x", "x0", "x9y", "x99yyy", "x12z", "xa", "za", NULL};
    const char *bad[] = {"y", "x100", "x1z", "x12yz", "z", "xx", "x9a", NULL};
    for (int i = 0; good[i]; i++)
        assert_int_equal(judge(gram, good[i]), 'a');
    for (int i = 0; bad[i]; i++)
        assert_int_not_equal(judge(gram, bad[i]), 'a');
    weft_gram_free(gram);
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

/* Long lists share what their texts begin with; it must not show. */
static void a_long_list_of_strings_has_all_their_writings(void **state) {
    (void)state;
    static char list[8192];
    size_t len =
        (size_t)snprintf(list, sizeof list, "{\"enum\":[\"\",\"a\",\"a\\n\",3,\"\\u00e9/\"");
    for (int i = 0; i < 70; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, ",\"\\\"\\\\ \\n%d\"", i);
    (void)snprintf(list + len, sizeof list - len, "]}");
    const char *good[] = {
        "\"\"",          "\"a\"",           "\"a\\n\"",           "\"a\\u000a\"",          "3",
        "\"\xc3\xa9/\"", "\"\xc3\xa9\\/\"", "\"\\\"\\\\ \\n69\"", "\"\\\"\\\\ \\u000A6\"", NULL};
    const char *bad[] = {
        "\"\\\"\\\\ \\n70\"", "\"\\\"\\\\ \n6\"", "\"a", "\"a\\\"", "\"b\"", "4", NULL};
    check_schema(list, good, bad);
}

#define GOOD (const char *const[])
#define BAD (const char *const[])

static void members_come_as_declared_with_one_blank_at_most(void **state) {
    (void)state;
    check_schema(
        "{\"type\": \"object\", \"properties\": {\"b\": {\"type\": \"null\"}, \"a\": "
        "{\"type\": \"boolean\"}}, \"required\": [\"a\"], \"additionalProperties\": false}",
        GOOD{"{\"a\":true}", "{\"b\": null, \"a\": false}", NULL},
        BAD{"{}", "{\"a\":true,\"b\":null}", "{\"a\":  true}", "{ \"a\":true}",
            "{\"a\":true,\"a\":true}", "{\"a\":true,\"c\":1}", "{\"b\":null}", NULL});
}

static void numbers_keep_their_bounds(void **state) {
    (void)state;
    check_schema("{\"type\": \"number\", \"minimum\": -2.5, \"exclusiveMaximum\": 10}",
                 GOOD{"-2.5", "-2.50", "0", "9.999", "-0.1", "0.0", NULL},
                 BAD{"-2.51", "10", "10.0", "1e1", "-0", "-3", "01", "100", NULL});
    check_schema("{\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": 8}",
                 GOOD{"14", "21", "700", NULL}, BAD{"7", "0", "15", "14.0", "-14", NULL});
    check_schema("{\"type\": \"number\", \"multipleOf\": 0.25, \"not\": {\"type\": \"integer\"}}",
                 GOOD{"0.25", "1.5", "-7.750", NULL}, BAD{"1", "1.0", "0.3", "0.125", NULL});
}

static void what_may_be_of_a_format_is_not_of_its_complement(void **state) {
    (void)state;
    static const struct {
        const char *format, *maybe, *never;
    } cases[] = {
        {"hostname", "\"xn--nxasmq6b.com\"", "\"a b\""},
        {"email", "\"\\\"a b\\\"@x.com\"", "\"a.b\""},
        {"email", "\"a@[127.0.0.1]\"", "\"a b\""},
        {"date-time", "\"2020-01-01T00:00:00.1234567891Z\"", "\"2020-02-30T00:00:00Z\""},
        {"date-time", "\"1998-12-31T23:59:60Z\"", "\"1998-12-31T23:60:00Z\""},
        {"time", "\"23:59:60Z\"", "\"25:59:60Z\""},
        {"uri", "\"http://[v1.a]/\"", "\"//a\""},
        {"uri-reference", "\"//[v1.a]/\"", "\"a b\""},
        {"duration", "\"P0.5Y\"", "\"1Y\""},
        {"ipv4", "\"010.0.0.1\"", "\"a b\""},
        {"date", "\"2020-01-01\"", "\"2020-02-30\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        (void)snprintf(text, sizeof text, "{\"not\":{\"format\":\"%s\"}}", cases[i].format);
        check_schema(text, GOOD{cases[i].never, NULL}, BAD{cases[i].maybe, "1", NULL});
    }
    check_schema(
        "{\"type\":\"string\",\"oneOf\":[{\"format\":\"hostname\"},{\"pattern\":\"^xn--\"}]}",
        GOOD{"\"a.b\"", "\"xn--a b\"", NULL}, BAD{"\"xn--nxasmq6b.com\"", NULL});
    check_schema(
        "{\"type\":\"string\",\"if\":{\"format\":\"time\"},\"then\":{\"maxLength\":12},\"else\":{"
        "\"minLength\":1}}",
        GOOD{"\"10:00:00Z\"", "\"a\"", NULL}, BAD{"\"\"", "\"23:59:60.00000Z\"", NULL});
    check_schema("{\"not\":{\"not\":{\"format\":\"hostname\"}},\"type\":\"string\"}",
                 GOOD{"\"a.b\"", NULL}, BAD{"\"xn--nxasmq6b.com\"", "\"a b\"", NULL});
    ASSERT_REFUSED(
        weft_gram_schema(STR("{\"not\":{\"propertyNames\":{\"format\":\"email\"}}}"), &gram, &why),
        WEFT_E_UNSUPPORTED, "the complement of \"propertyNames\" with a \"format\"");
}

/* What is compared by its digits here is compared as doubles by most readers. */
static void digits_are_compared_as_doubles_are(void **state) {
    (void)state;
    check_schema(
        "{\"type\":\"number\",\"exclusiveMaximum\":1}",
        GOOD{"0.999999999999999", "-12345678901234.5", "0", "-5", NULL},
        BAD{"0.99999999999999999999", "0.9999999999999999", "1", "-123456789012345.6", NULL});
    check_schema("{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", GOOD{"5.5", NULL},
                 BAD{"5.00000000000000000001", "5", "5.0", NULL});
    check_schema("{\"type\":\"number\",\"not\":{\"const\":0.5}}",
                 GOOD{"0.51", "0.500000000000001", "0.00000000000000000000123456789012345", NULL},
                 BAD{"0.50000000000000000001", "0.5", "0.50", NULL});
    check_schema(
        "{\"enum\":[3.141592653589793,123456789012345678,7]}",
        GOOD{"3.141592653589793", "3.14159265358979300", "123456789012345678", "7.0", NULL},
        BAD{"3.14159265358979", "123456789012345678.0", "123456789012345680", NULL});
    /* A value that no text of the other branch has is in both. */
    check_schema("{\"oneOf\":[{\"const\":3.141592653589793},{\"minimum\":3}]}",
                 GOOD{"3.14", "4", NULL}, BAD{"3.141592653589793", NULL});
    check_schema("{\"oneOf\":[{\"const\":3.141592653589793},{\"const\":2.718281828459045}]}",
                 GOOD{"3.141592653589793", "2.718281828459045", NULL}, BAD{NULL});
    check_schema("{\"type\":\"number\"}", GOOD{"0.99999999999999999999", "1e-7", NULL}, BAD{NULL});
}

static void large_integers_are_exact_or_refused(void **state) {
    (void)state;
    check_schema(
        "{\"default\":99999999999999999999999,\"title\":\"\\\"1\",\"enum\":[9007199254740993,"
        "-9223372036854775808,18446744073709551616,1e22]}",
        GOOD{"9007199254740993", "-9223372036854775808", "18446744073709551616",
             "10000000000000000000000", NULL},
        BAD{"9007199254740992", "9007199254740994", "18446744073709551615",
            "99999999999999999999999", NULL});
    check_schema("{\"maxLength\":99999999999999999999,\"exclusiveMinimum\":-1e23}",
                 GOOD{"\"a\"", "-99999999999999991611391", NULL},
                 BAD{"-99999999999999991611392", NULL});
    static const char *const inexact[] = {
        "{\"enum\":[9007199254740993,99999999999999999999999]}",
        "{\"const\":-9223372036854775809}",
        "{\"const\":10000000000000000000001}",
        "{\"maximum\":18446744073709551615}",
    };
    for (size_t i = 0; i < sizeof inexact / sizeof *inexact; i++)
        ASSERT_REFUSED(weft_gram_schema(STR(inexact[i]), &gram, &why), WEFT_E_UNSUPPORTED,
                       "more digits than we keep exactly");
    static const char lark[] = "start: %json {\"enum\": [18446744073709551616, \"}\"], \"x\": "
                               "[{}]} \"99999999999999999999\"";
    weft_gram *gram;
    struct weft_errmsg why = {""};
    if (weft_gram_lark(STR(lark), &gram, &why)) fail_msg("%s", why.text);
    assert_int_equal(judge(gram, "\"}\"99999999999999999999"), 'a');
    assert_int_equal(judge(gram, "1844674407370955161699999999999999999999"), 'a');
    weft_gram_free(gram);
}

static void a_keyword_comes_once(void **state) {
    (void)state;
    ASSERT_REFUSED(weft_gram_schema(STR("{\"type\":\"integer\",\"type\":\"string\"}"), &gram, &why),
                   WEFT_E_INVAL, "duplicate object key near '\"type\"'");
}

static void strings_are_what_they_mean_not_how_they_are_written(void **state) {
    (void)state;
    check_schema("{\"type\": \"string\", \"pattern\": \"^a\\\\n\", \"maxLength\": 3}",
                 GOOD{"\"a\\n\"", "\"a\\u000ab\"", "\"a\\n\\\"\"", NULL},
                 BAD{"\"a\n\"", "\"an\"", "\"a\\nbc\"", "\"a", NULL});
    check_schema("{\"not\": {\"enum\": [\"a\", 1, null]}}",
                 GOOD{"\"b\"", "2", "true", "[]", "{}", NULL},
                 BAD{"\"a\"", "1", "1.0", "null", "1e0", NULL});
}

static void items_of_few_values_may_all_differ(void **state) {
    (void)state;
    check_schema(
        "{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":1,\"items\":{\"enum\":[\"a\","
        "\"b/\",1,1.0,0,-0.0,[]],\"type\":[\"string\",\"integer\"]},\"maxItems\":3}",
        GOOD{"[\"a\"]", "[\"b/\",\"a\",1]", "[0,1]", "[1,0,\"a\"]", NULL},
        BAD{"[]", "[\"a\",\"a\"]", "[\"b/\",\"b\\/\"]", "[1,1]", "[1,1.0]", "[0,-0]", "[0,1,0]",
            "[0,0.0]", "[\"a\",1,0,\"b/\"]", "[[]]", NULL});
    check_schema(
        "{\"items\":[{\"type\":\"boolean\"},{\"$ref\":\"#/$defs/b\"}],\"uniqueItems\":true,"
        "\"additionalItems\":{\"type\":[\"null\",\"boolean\"]},\"$defs\":{\"b\":{\"oneOf\":[{"
        "\"const\":true},{\"enum\":[false,\"x\"]}]}},\"type\":\"array\"}",
        GOOD{"[]", "[true]", "[true,false]", "[false,\"x\",true,null]", NULL},
        BAD{"[true,true]", "[null]", "[\"x\"]", "[true,\"x\",true]", "[true,false,null,null]",
            "[true,false,\"x\"]", NULL});
    const char *const others[] = {
        "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"anyOf\":[{\"const\":1},{\"type\":"
        "\"string\"}]}}",
        "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1,2,3,4,5,6,7,8,9]}}",
        "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[{},1]}}",
        "{\"type\":\"array\",\"uniqueItems\":true,\"prefixItems\":[{\"const\":1}]}",
        "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"boolean\"},\"contains\":{"
        "\"const\":true}}"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ASSERT_REFUSED(weft_gram_schema(STR(others[i]), &gram, &why), WEFT_E_UNSUPPORTED,
                       "\"uniqueItems\" at #");
}

static void the_start_is_where_nothing_was_taken(void **state) {
    (void)state;
    check_schema("{\"type\":\"string\",\"not\":{\"pattern\":\"(?:^a|)^b\"}}",
                 GOOD{"\"ab\"", "\"cb\"", NULL}, BAD{"\"b\"", "\"bc\"", NULL});
    check_schema("{\"type\":\"string\",\"pattern\":\"^(?!(?:a$|)^b)\"}",
                 GOOD{"\"a\"", "\"ab\"", NULL}, BAD{"\"b\"", "\"ba\"", NULL});
    check_schema("{\"type\":\"string\",\"not\":{\"pattern\":\"(?:a(?=b))?^b\"}}",
                 GOOD{"\"ab\"", NULL}, BAD{"\"b\"", NULL});
    check_schema("{\"type\":\"string\",\"pattern\":\"a*^b|c?(?=^d)\"}",
                 GOOD{"\"b\"", "\"ba\"", "\"d\"", NULL}, BAD{"\"ab\"", "\"cd\"", "\"ad\"", NULL});
}

static void texts_do_not_end_at_a_zero_character(void **state) {
    (void)state;
    check_schema("{\"type\":\"string\",\"pattern\":\"^a\\u0000b$\"}", GOOD{"\"a\\u0000b\"", NULL},
                 BAD{"\"ac\"", "\"a\"", "\"a\\u0000\"", NULL});
    check_schema("{\"type\":\"string\",\"format\":\"date\\u0000\"}", GOOD{"\"x\"", NULL},
                 BAD{NULL});
    ASSERT_REFUSED(weft_gram_schema(STR("{\"type\":\"null\\u0000\"}"), &gram, &why), WEFT_E_INVAL,
                   "there is no type");
}

static void combinations_are_those_of_sets(void **state) {
    (void)state;
    check_schema(
        "{\"oneOf\": [{\"required\": [\"a\"]}, {\"required\": [\"b\"]}], \"type\": \"object\"}",
        GOOD{"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"c\":2}", NULL},
        BAD{"{}", "{\"a\":1,\"b\":1}", "{\"c\":1}", NULL});
    check_schema(
        "{\"if\": {\"properties\": {\"k\": {\"const\": 1}}, \"required\": [\"k\"]}, \"then\": "
        "{\"required\": [\"x\"]}, \"type\": \"object\"}",
        GOOD{"{\"k\":2}", "{\"k\":1,\"x\":0}", "{}", NULL}, BAD{"{\"k\":1}", "{\"k\":1.0}", NULL});
    check_schema("{\"type\": \"array\", \"contains\": {\"const\": 1}, \"maxContains\": 2}",
                 GOOD{"[1]", "[0,1,1]", "[1,[],{}]", NULL},
                 BAD{"[]", "[0]", "[1,1,1]", "[1,1.0,1]", NULL});
}

static void one_of_many_that_do_not_exclude_each_other(void **state) {
    (void)state;
    enum { N = 26, ROOM = 100 };
    char text[N * ROOM + 64] = "{\"type\":\"object\",\"oneOf\":[";
    for (int i = 0; i < N; i++) {
        size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n,
                       "%s{\"properties\":{\"%c\":{\"type\":\"null\"}},\"required\":[\"%c\"]}",
                       i ? "," : "", 'a' + i, 'a' + i);
    }
    (void)strcat(text, "]}");
    check_schema(text,
                 GOOD{"{\"a\":null}", "{\"z\":null}", "{\"b\":null,\"a\":1}",
                      "{\"b\":null,\"a\":[],\"z\":\"\",\"A\":null}", NULL},
                 BAD{"{}", "{\"a\":1}", "{\"A\":null}", "{\"b\":null,\"a\":null}",
                     "{\"b\":null,\"a\":1,\"z\":null}", NULL});
}

static void a_schema_may_contain_itself(void **state) {
    (void)state;
    check_schema("{\"type\": \"object\", \"properties\": {\"next\": {\"$ref\": \"#\"}}, "
                 "\"additionalProperties\": false}",
                 GOOD{"{}", "{\"next\":{\"next\":{}}}", NULL},
                 BAD{"{\"next\":1}", "{\"next\":{}", NULL});
    ASSERT_REFUSED(weft_gram_schema(STR("{\"$ref\": \"#\"}"), &gram, &why), WEFT_E_INVAL,
                   "nothing but itself");
    ASSERT_REFUSED(weft_gram_schema(STR("{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": "
                                        "\"#\"}}, \"required\": [\"a\"]}"),
                                    &gram, &why),
                   WEFT_E_INVAL,
                   "#: nothing satisfies it: it would have to hold itself, without end");
}

static void what_is_not_honoured_is_refused_with_its_place(void **state) {
    (void)state;
    ASSERT_REFUSED(
        weft_gram_schema(STR("{\"properties\": {\"a\": {\"pattern\": \"(?<=a)b\"}}}"), &gram, &why),
        WEFT_E_UNSUPPORTED, "\"pattern\" at #/properties/a: regular expression, character 3");
    ASSERT_REFUSED(
        weft_gram_schema(STR("{\"items\": {\"$ref\": \"http://example.org/x\"}}"), &gram, &why),
        WEFT_E_UNSUPPORTED, "\"$ref\" at #/items: names nothing in this document");
    ASSERT_REFUSED(weft_gram_schema(STR("{\"type\": \"strin\"}"), &gram, &why), WEFT_E_INVAL,
                   "there is no type \"strin\"");
    ASSERT_REFUSED(weft_gram_schema(STR("{\"type\":"), &gram, &why), WEFT_E_INVAL, "is not JSON");
    ASSERT_REFUSED(weft_gram_schema(STR("{\"format\": \"uri-template\"}"), &gram, &why),
                   WEFT_E_UNSUPPORTED, "\"format\" at #: 'uri-template' is not supported");
}

/* Each answered, one way or the other, and soon. */
/* `n` strings behind `head`, with `tail` behind each. */
static void add_many(struct weft_buf *json, const char *head, uint32_t n, const char *tail) {
    weft_buf_add_str(json, head);
    for (uint32_t i = 0; i < n; i++)
        weft_buf_printf(json, "%s\"v%u\"%s", i ? "," : "", i, tail);
}

/* The schema so far; it is empty again. */
static weft_gram *finish(struct weft_buf *json, const char *end) {
    struct weft_errmsg why = {""};
    weft_gram *gram;
    weft_buf_add_str(json, end);
    assert_false(json->failed);
    if (weft_gram_schema((struct weft_str){json->data, json->len}, &gram, &why))
        fail_msg("%s", why.text);
    weft_buf_clear(json);
    return gram;
}

static void many_members_and_values_are_looked_up_not_searched(void **state) {
    (void)state;
    enum { N = 16000 };
    struct weft_buf json;
    weft_buf_init(&json, 16 << 20);
    add_many(&json, "{\"properties\":{", N, ":{\"type\":\"boolean\"}");
    add_many(&json, "},\"additionalProperties\":false,\"allOf\":[{\"properties\":{", N,
             ":{\"const\":true}");
    weft_gram *gram = finish(&json, "}}]}");
    assert_int_equal(judge(gram, "{\"v0\":true,\"v15999\":true}"), 'a');
    assert_int_equal(judge(gram, "{\"v15999\":false"), 'r');
    weft_gram_free(gram);
    add_many(&json, "{\"type\":\"object\",\"properties\":{", N, ":{\"const\":1}");
    add_many(&json, "},\"required\":[", N, "");
    gram = finish(&json, ",\"w\"]}");
    assert_int_equal(judge(gram, "{\"v0\":1,\"v1\":1,"), 'i');
    assert_int_equal(judge(gram, "{\"v0\":1,\"v2\":1,"), 'r');
    weft_gram_free(gram);
    add_many(&json, "{\"enum\":[", 100000, "");
    gram = finish(&json, ",\"a\\\"b\",\"a/\",5,[]]}");
    static const char *const good[] = {"\"v99999\"", "\"v1\"", "\"a\\\"b\"", "\"a\\/\"", "5", "[]"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(judge(gram, good[i]), 'a');
    assert_int_equal(judge(gram, "\"v100000\""), 'r');
    weft_gram_free(gram);
    weft_buf_fini(&json);
}

#define DRAFT_4 "\"$schema\":\"http://json-schema.org/draft-04/schema#\","
#define DRAFT_7 "\"$schema\":\"http://json-schema.org/draft-07/schema#\","
#define DRAFT_2020 "\"$schema\":\"https://json-schema.org/draft/2020-12/schema\","

static void names_are_defined_where_schemas_stand(void **state) {
    (void)state;
    check_schema(
        "{\"type\":\"object\",\"properties\":{\"const\":{\"$id\":\"http://x/y\",\"$defs\":{"
        "\"a\":{\"type\":\"string\"}},\"$ref\":\"#/$defs/a\"}},\"$defs\":{\"a\":{\"type\":"
        "\"integer\"}}}",
        GOOD{"{\"const\":\"1\"}", NULL}, BAD{"{\"const\":1}", NULL});
    check_schema("{" DRAFT_2020 "\"properties\":{\"a\":{\"id\":\"foo\",\"$ref\":\"#/$defs/s\","
                 "\"$defs\":{\"s\":{}}}},\"$defs\":{\"s\":{\"type\":\"string\"}}}",
                 GOOD{"{\"a\":\"1\"}", NULL}, BAD{"{\"a\":1}", NULL});
    check_schema("{\"examples\":[{\"$id\":\"http://x/s\"}],\"$defs\":{\"s\":{\"$id\":"
                 "\"http://x/s\",\"type\":\"string\"}},\"$ref\":\"http://x/s\"}",
                 GOOD{"\"1\"", NULL}, BAD{"1", NULL});
    check_schema("{" DRAFT_4 "\"id\":\"http://x/\",\"properties\":{\"a\":{\"$ref\":\"b\"},\"c\":{"
                 "\"$ref\":\"#d\"}},\"definitions\":{\"b\":{\"id\":\"b\",\"type\":\"null\"},\"d\":"
                 "{\"id\":\"#d\",\"type\":\"boolean\"}}}",
                 GOOD{"{\"a\":null,\"c\":true}", NULL}, BAD{"{\"a\":1}", "{\"c\":1}", NULL});
    static const char *const unclear[] = {
        "{\"$ref\":\"a\",\"$defs\":{\"a\":{\"$id\":\"a\"},\"b\":{\"$id\":\"a\"}}}",
        "{\"$ref\":\"#a\",\"default\":{\"$anchor\":\"a\"}}",
        "{\"$ref\":\"#a\\u0000\",\"$defs\":{\"a\":{\"$anchor\":\"a\"}}}",
        "{\"$defs\":{\"a\":{}},\"items\":{\"id\":\"b\",\"$ref\":\"#/$defs/a\"}}",
        "{" DRAFT_7 "\"$ref\":\"#a\",\"definitions\":{\"a\":{\"$anchor\":\"a\"}}}",
        "{" DRAFT_2020 "\"$ref\":\"#a\",\"$defs\":{\"a\":{\"$id\":\"#a\"}}}",
    };
    for (size_t i = 0; i < sizeof unclear / sizeof *unclear; i++)
        ASSERT_REFUSED(weft_gram_schema(STR(unclear[i]), &gram, &why), WEFT_E_UNSUPPORTED,
                       "names nothing");
}

static void a_draft_has_its_own_keywords(void **state) {
    (void)state;
    static const struct {
        const char *schema, *good, *bad;
    } cases[] = {
        {"{" DRAFT_7 "\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":2}", "[1]",
         "[2]"},
        {"{" DRAFT_7 "\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}]}", "[1]", "1"},
        {"{" DRAFT_7
         "\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]},\"dependencies\":{\"c\":["
         "\"d\"]}}",
         "{\"a\":1}", "{\"c\":1}"},
        {"{" DRAFT_4 "\"type\":\"integer\",\"const\":\"a\",\"if\":5,\"contains\":1}", "1", "\"a\""},
        {"{" DRAFT_4 "\"maximum\":5,\"exclusiveMaximum\":true}", "4", "5"},
        {"{" DRAFT_2020
         "\"type\":\"object\",\"dependencies\":{\"a\":[\"b\"]},\"additionalItems\":5}",
         "{\"a\":1}", "1"},
        {"{\"type\":\"object\",\"dependencies\":{\"a\":[\"b\"]},\"dependentRequired\":{\"c\":["
         "\"d\"]}}",
         "{\"c\":1,\"d\":1}", "{\"a\":1}"},
        {"{" DRAFT_2020 "\"$ref\":\"x\",\"$defs\":{\"x\":{\"$id\":\"x\"," DRAFT_7
         "\"type\":\"array\",\"prefixItems\":[false],\"items\":[{\"const\":1}]}}}",
         "[1]", "[2]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_schema(cases[i].schema, GOOD{cases[i].good, NULL}, BAD{cases[i].bad, NULL});
    static const char *const wrong[] = {
        "{" DRAFT_4 "\"exclusiveMaximum\":5}",
        "{" DRAFT_7 "\"maximum\":5,\"exclusiveMaximum\":true}",
        "{" DRAFT_2020 "\"items\":[{}]}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ASSERT_REFUSED(weft_gram_schema(STR(wrong[i]), &gram, &why), WEFT_E_INVAL, "must be");
    ASSERT_REFUSED(weft_gram_schema(STR("{" DRAFT_4 "\"not\":{\"const\":1}}"), &gram, &why),
                   WEFT_E_INVAL, "nothing satisfies");
}

/* What a schema says costs as much as it is long, whatever it calls its parts. */
static void names_cost_what_they_are_long(void **state) {
    (void)state;
    enum { N = 30000, N_NAMED = 8000 }; /* the latter may be */
    struct weft_buf json;
    weft_buf_init(&json, 16 << 20);
    weft_buf_add_str(&json, "{\"$id\":\"http://x/");
    for (int i = 0; i < 60000; i++)
        weft_buf_add_char(&json, 'a');
    weft_buf_add_str(&json, "\",\"type\":\"integer\",\"x\":[{}");
    for (int i = 0; i < N; i++)
        weft_buf_add_str(&json, ",{}");
    weft_gram *gram = finish(&json, "]}");
    assert_int_equal(judge(gram, "1"), 'a');
    weft_gram_free(gram);
    weft_buf_add_str(&json, "{\"type\":\"null\",\"$defs\":{");
    for (int i = 0; i < N_NAMED; i++)
        weft_buf_printf(&json, "\"%d\":{\"$id\":\"http://x/%d\",\"type\":\"null\"},", i, i);
    weft_buf_add_str(&json, "\"x\":{}},\"anyOf\":[{\"type\":\"null\"}");
    for (int i = 0; i < N_NAMED; i++)
        weft_buf_printf(&json, ",{\"$ref\":\"http://x/%d\"}", i);
    gram = finish(&json, "]}");
    assert_int_equal(judge(gram, "null"), 'a');
    weft_gram_free(gram);
    weft_buf_add_str(&json, "{\"$id\":\"http://x/");
    for (int i = 0; i < 2000; i++)
        weft_buf_add_char(&json, 'a');
    weft_buf_add_str(&json, "/\",\"$defs\":{");
    for (int i = 0; i < N; i++)
        weft_buf_printf(&json, "\"%d\":{\"$id\":\"%d\"},", i, i);
    weft_buf_add_str(&json, "\"x\":{}}}");
    struct weft_errmsg why = {""};
    const struct weft_str text = {weft_buf_cstr(&json), json.len};
    assert_int_equal(weft_gram_schema(text, &gram, &why), WEFT_E_TOOBIG);
    assert_non_null(strstr(why.text, "too many or too long names"));
    weft_buf_fini(&json);
}

static void too_many_members_are_refused(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 16 << 20);
    add_many(&json, "{\"properties\":{", 16385, ":{}");
    weft_buf_add_str(&json, "}}");
    const struct weft_str text = {weft_buf_cstr(&json), json.len};
    ASSERT_REFUSED(weft_gram_schema(text, &gram, &why), WEFT_E_TOOBIG,
                   "schema, at #: \"properties\" has 16385 members, at most 16384");
    weft_buf_clear(&json);
    add_many(&json, "{\"properties\":{", 65535, ":{}");
    weft_buf_add_str(&json, "}}");
    const struct weft_str more = {weft_buf_cstr(&json), json.len};
    ASSERT_REFUSED(weft_gram_schema(more, &gram, &why), WEFT_E_TOOBIG, "over 65536 objects");
    weft_buf_clear(&json);
    add_many(&json, "{\"enum\":[", 70000, ",\"{\\\"{\"");
    weft_gram_free(finish(&json, "]}"));
    weft_buf_fini(&json);
}

static void an_ambiguous_text_meets_a_bound(void **state) {
    (void)state;
    weft_gram *gram = gbnf("root ::= (\"a\" | \"b\") root{0,300}");
    weft_gram_state *at;
    size_t n = 0;
    weft_err err = weft_gram_state_new(gram, &at);
    while (!err && n < 2000)
        err = weft_gram_take(at, n++ % 3 ? "a" : "b", 1);
    assert_int_equal(err, WEFT_E_TOOBIG);
    assert_in_range(n, 100, 1000);
    weft_gram_state_free(at);
    weft_gram_free(gram);
}

static void repeats_of_repeats_are_one(void **state) {
    (void)state;
    char text[512] = "root ::= [a-c]";
    memset(text + strlen(text), '+', 300);
    weft_gram *gram = gbnf(text);
    assert_int_equal(judge(gram, "abcabcabcabcabcabcabcabcabcabcabcabcabc"), 'a');
    assert_int_equal(judge(gram, ""), 'i');
    assert_true(weft_gram_bytes(gram) < 1 << 20);
    weft_gram_free(gram);
    /* Of rules, too: a recursive one, which is no expression. */
    gram = gbnf("root ::= a \"x\" | \"y\"\na ::= ((root?)+)++++++++++++++++");
    assert_int_equal(judge(gram, "x"), 'a');
    assert_int_equal(judge(gram, "yxyyxxyx"), 'a');
    assert_int_equal(judge(gram, "yy"), 'i');
    assert_true(weft_gram_bytes(gram) < 1 << 18);
    weft_gram_free(gram);
    gram = regex("((a{1,3}){2,4}|(b{0,2}){3}|(c{2,3}){2,3}|((d?){2,3})+|(e+){2}x)");
    static const char *const good[] = {"aa",        "aaaaaaaaaaaa", "",    "bbbbbb", "cccc",
                                       "ccccccccc", "ddddd",        "eex", "eeeex"};
    static const char *const bad[] = {"aaaaaaaaaaaaa", "bbbbbbb", "cccccccccc", "ex", "ax"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(judge(gram, good[i]), 'a');
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(judge(gram, bad[i]), 'r');
    assert_int_equal(judge(gram, "a"), 'i');
    assert_int_equal(judge(gram, "ccc"), 'i');
    weft_gram_free(gram);
}

static void bombs_are_answered(void **state) {
    (void)state;
    enum { N = 10000 };
    char *deep = calloc(1, 32 * N + 64), *at = deep;
    struct weft_errmsg why = {""};
    weft_gram *gram;
    assert_non_null(deep);
    for (int i = 0; i < N; i++)
        at += sprintf(at, "{\"items\":");
    at += sprintf(at, "{}");
    memset(at, '}', N);
    weft_err err = weft_gram_schema(STR(deep), &gram, &why);
    assert_true(!err || err == WEFT_E_TOOBIG || err == WEFT_E_INVAL);
    weft_gram_free(gram);
    at = deep;
    at += sprintf(at, "{\"allOf\":[");
    for (int i = 0; i < 20; i++)
        at += sprintf(at, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
                      i ? "," : "", i, i);
    (void)sprintf(at, "]}");
    assert_int_equal(weft_gram_schema(STR(deep), &gram, &why), WEFT_E_TOOBIG);
    assert_string_equal(why.text, "schema, at #: too many combinations");
    assert_int_equal(
        weft_gram_regex(STR("((((a{1,1000}){1,1000}){1,1000})b?){1,1000}"), &gram, &why), WEFT_OK);
    assert_int_equal(judge(gram, "aaab"), 'a');
    weft_gram_free(gram);
    free(deep);
}

/* Of each kind: any text up to the first end of thinking, then a text of the grammar. */
static void answers_come_behind_thoughts(void **state) {
    (void)state;
    static const struct {
        enum weft_grammar_kind kind;
        const char *text, *fits, *does_not;
    } kinds[] = {
        {WEFT_GRAMMAR_SCHEMA, "{\"type\":\"integer\"}", "12", "a"},
        {WEFT_GRAMMAR_JSON_OBJECT, "", "{\"a\": [1]}", "[1]"},
        {WEFT_GRAMMAR_REGEX, "[a-c]+x", "abcx", "abd"},
        {WEFT_GRAMMAR_RULES, "root ::= \"(\" root \")\" | \"b\"", "((b))", "))"},
        {WEFT_GRAMMAR_CHOICE, "[\"yes\", \"no\"]", "yes", "maybe"},
    };
    char text[200];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (int thinking = WEFT_THINKING_NONE; thinking < WEFT_THINKING_COUNT; thinking++) {
            weft_gram *gram = compile(kinds[i].kind, kinds[i].text, thinking);
            const char *begin = thinking == WEFT_THINKING_MAYBE ? "<think>" : "";
            bool is_open = thinking == WEFT_THINKING_OPEN, is_none = thinking == WEFT_THINKING_NONE;
            assert_int_equal(judge(gram, kinds[i].fits), is_open ? 'i' : 'a');
            assert_int_equal(judge(gram, kinds[i].does_not), is_open ? 'i' : 'r');
            (void)snprintf(text, sizeof text, "%s\xfe{\"x</</think", begin);
            assert_int_equal(judge(gram, text), is_none ? 'r' : 'i');
            (void)snprintf(text, sizeof text, "%s 1 <</think>\n\n%s", begin, kinds[i].fits);
            assert_int_equal(judge(gram, text), is_none ? 'r' : 'a');
            (void)snprintf(text, sizeof text, "%s</think>%s", begin, kinds[i].fits);
            assert_int_equal(judge(gram, text), is_none ? 'r' : 'a');
            (void)snprintf(text, sizeof text, "%sa</think>%s", begin, kinds[i].does_not);
            assert_int_equal(judge(gram, text), 'r');
            (void)snprintf(text, sizeof text, "%sa</think></think>%s", begin, kinds[i].fits);
            assert_int_equal(judge(gram, text), 'r'); /* the first one ends it */
            weft_gram_free(gram);
        }
    }
}

static void thoughts_have_marks_of_several_kinds(void **state) {
    (void)state;
    char text[200];
    for (int i = 0; i < WEFT_MARKS_COUNT; i++) {
        struct weft_mark_texts marks = weft_grammar_mark_texts((enum weft_grammar_marks)i);
        struct weft_errmsg why = {""};
        struct weft_grammar wish;
        enum weft_grammar_marks found;
        weft_gram *gram;
        assert_true(weft_grammar_find_marks(marks.begin, marks.end, &found));
        assert_int_equal(found, i);
        weft_grammar_init(&wish);
        wish.kind = WEFT_GRAMMAR_REGEX;
        wish.thinking = WEFT_THINKING_MAYBE;
        wish.marks = found;
        wish.text = "[0-9]";
        wish.n_bytes = 5;
        assert_int_equal(weft_gram_compile(&wish, &gram, &why), WEFT_OK);
        (void)snprintf(text, sizeof text, "%s</thin[/THI</%s%s 7", marks.begin.data, marks.end.data,
                       i ? "" : "\n");
        assert_int_equal(judge(gram, text), 'a');
        (void)snprintf(text, sizeof text, "%s%s", marks.begin.data, i ? "</think>7" : "[/THINK]7");
        assert_int_equal(judge(gram, text), 'i'); /* other marks are thoughts */
        weft_gram_free(gram);
    }
    enum weft_grammar_marks found;
    assert_false(weft_grammar_find_marks(STR("<think>"), STR("[/THINK]"), &found));
    assert_false(weft_grammar_find_marks(STR(""), STR(""), &found));
}

static void where_a_text_stands_is_known(void **state) {
    (void)state;
    static const struct {
        enum weft_grammar_thinking thinking;
        const char *text;
        enum weft_gram_phase phase;
    } cases[] = {
        {WEFT_THINKING_NONE, "", WEFT_GRAM_ANSWERS},
        {WEFT_THINKING_OPEN, "", WEFT_GRAM_THINKS},
        {WEFT_THINKING_OPEN, "<think></think", WEFT_GRAM_THINKS},
        {WEFT_THINKING_OPEN, "<</think>", WEFT_GRAM_ANSWERS},
        {WEFT_THINKING_OPEN, "</</think></", WEFT_GRAM_ANSWERS},
        {WEFT_THINKING_MAYBE, "<think", WEFT_GRAM_BEGINS},
        {WEFT_THINKING_MAYBE, "<think>", WEFT_GRAM_THINKS},
        {WEFT_THINKING_MAYBE, "<th<think>", WEFT_GRAM_ANSWERS},
        {WEFT_THINKING_MAYBE, "a<think>", WEFT_GRAM_ANSWERS},
        {WEFT_THINKING_MAYBE, "\n<think>", WEFT_GRAM_ANSWERS},
        {WEFT_THINKING_MAYBE, "<think>a</think>b", WEFT_GRAM_ANSWERS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_gram *gram = compile(WEFT_GRAMMAR_REGEX, "[^\\0]*", cases[i].thinking);
        weft_gram_state *at;
        assert_int_equal(weft_gram_state_new(gram, &at), WEFT_OK);
        for (const char *c = cases[i].text; *c; c++)
            assert_int_equal(weft_gram_take(at, c, 1), WEFT_OK);
        if (weft_gram_phase(at) != cases[i].phase) fail_msg("%s", cases[i].text);
        weft_gram_state_free(at);
        weft_gram_free(gram);
    }
}

static weft_gram *schema_of(const char *text, uint32_t n_blanks, uint32_t n_digits) {
    weft_gram *gram;
    struct weft_grammar wish;
    struct weft_errmsg why = {""};
    weft_grammar_init(&wish);
    wish.kind = WEFT_GRAMMAR_SCHEMA;
    wish.json_blanks = n_blanks;
    wish.json_digits = n_digits;
    wish.text = text;
    wish.n_bytes = (uint32_t)strlen(text);
    if (weft_gram_compile(&wish, &gram, &why)) fail_msg("%s: %s", text, why.text);
    return gram;
}

static void blanks_are_as_many_as_are_asked_for(void **state) {
    (void)state;
    static const char schema[] = "{\"type\": [\"object\", \"array\"]}";
    static const struct {
        const char *text;
        char by_blanks[3]; /* 0, 1, 3 */
    } cases[] = {
        {"{\"a\":1,\"b\":[1,2]}", {'a', 'a', 'a'}},
        {"{\"a\": 1, \"b\": [1, 2]}", {'r', 'a', 'a'}},
        {"{ \"a\":1}", {'r', 'r', 'a'}},
        {"{\"a\" : 1}", {'r', 'r', 'a'}},
        {"[\n  1,\n\t2\r\n]", {'r', 'r', 'a'}},
        {"[1,   2]", {'r', 'r', 'a'}},
        {"[1,    2]", {'r', 'r', 'r'}},
        {"[ ]", {'r', 'r', 'a'}},
        {" []", {'r', 'r', 'r'}},
    };
    static const uint32_t n_blanks[] = {0, 1, 3};
    for (int k = 0; k < 3; k++) {
        weft_gram *gram = schema_of(schema, n_blanks[k], 64);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            if (judge(gram, cases[i].text) != cases[i].by_blanks[k])
                fail_msg("%s with %u blanks", cases[i].text, n_blanks[k]);
        }
        weft_gram_free(gram);
    }
}

static void digits_are_bounded_as_asked_for(void **state) {
    (void)state;
    weft_gram *number = schema_of("{\"type\": \"number\"}", 1, 3);
    assert_int_equal(judge(number, "-123.456e7"), 'a');
    assert_int_equal(judge(number, "1234"), 'r');
    assert_int_equal(judge(number, "0.1234"), 'r');
    weft_gram_free(number);
    weft_gram *above = schema_of("{\"exclusiveMinimum\": 99.5, \"type\": \"number\"}", 1, 3);
    assert_int_equal(judge(above, "99.6"), 'a');
    assert_int_equal(judge(above, "999"), 'a');
    assert_int_equal(judge(above, "99.5"), 'i');
    assert_int_equal(judge(above, "1000"), 'r');
    weft_gram_free(above);
    weft_gram *one = schema_of("{\"type\": \"integer\"}", 1, 1);
    assert_int_equal(judge(one, "-7"), 'a');
    assert_int_equal(judge(one, "10"), 'r');
    weft_gram_free(one);
    weft_gram *duration = schema_of("{\"type\": \"string\", \"format\": \"duration\"}", 1, 3);
    assert_int_equal(judge(duration, "\"P123Y4M5DT999H\""), 'a');
    assert_int_equal(judge(duration, "\"P1234"), 'r');
    assert_int_equal(judge(duration, "\"PT1000S\""), 'r');
    weft_gram_free(duration);
    weft_gram *many = schema_of("{\"type\": \"integer\", \"multipleOf\": 7}", 1, 1000);
    char text[1002];
    memset(text, '7', sizeof text);
    text[1001] = 0;
    assert_int_equal(judge(many, text), 'r');
    text[1000] = 0;
    assert_int_equal(judge(many, text), 'a');
    weft_gram_free(many);
}

/* Who asks many times is not to wait for what a text of a few bytes grows to. */
static void what_a_schema_grows_to_counts_as_work(void **state) {
    (void)state;
    static const char text[] = "{\"type\":\"array\",\"minItems\":100000}";
    struct weft_grammar wish = {.kind = WEFT_GRAMMAR_SCHEMA,
                                .json_blanks = 1,
                                .json_digits = 64,
                                .text = text,
                                .n_bytes = sizeof text - 1};
    uint64_t left = WEFT_GRAM_COMPILE_WORK_MAX;
    uint32_t n = 0;
    while (n < 100 && left > 1000) {
        (void)weft_gram_can_compile(&wish, &left);
        n++;
    }
    assert_in_range(n, 1, 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_schema_grows_to_counts_as_work),
        cmocka_unit_test(what_is_not_understood_is_refused_at_its_place),
        cmocka_unit_test(look_ahead_and_anchors_are_compiled_away),
        cmocka_unit_test(flags_hold_where_they_stand),
        cmocka_unit_test(what_is_repeated_is_one_character),
        cmocka_unit_test(brackets_and_colons_are_characters_of_a_class),
        cmocka_unit_test(classes_are_pythons_where_they_are_inverted),
        cmocka_unit_test(nothing_begins_that_can_not_end),
        cmocka_unit_test(what_is_refused_leaves_the_state_as_it_was),
        cmocka_unit_test(a_token_may_span_rules_and_end_within_a_character),
        cmocka_unit_test(a_token_may_go_past_a_bounded_free_text),
        cmocka_unit_test(a_hundred_thousand_texts_are_one_choice),
        cmocka_unit_test(a_long_list_of_strings_has_all_their_writings),
        cmocka_unit_test(many_alternatives_are_as_few),
        cmocka_unit_test(bounds_are_counters),
        cmocka_unit_test(members_come_as_declared_with_one_blank_at_most),
        cmocka_unit_test(numbers_keep_their_bounds),
        cmocka_unit_test(what_may_be_of_a_format_is_not_of_its_complement),
        cmocka_unit_test(digits_are_compared_as_doubles_are),
        cmocka_unit_test(large_integers_are_exact_or_refused),
        cmocka_unit_test(a_keyword_comes_once),
        cmocka_unit_test(strings_are_what_they_mean_not_how_they_are_written),
        cmocka_unit_test(items_of_few_values_may_all_differ),
        cmocka_unit_test(the_start_is_where_nothing_was_taken),
        cmocka_unit_test(texts_do_not_end_at_a_zero_character),
        cmocka_unit_test(combinations_are_those_of_sets),
        cmocka_unit_test(one_of_many_that_do_not_exclude_each_other),
        cmocka_unit_test(a_schema_may_contain_itself),
        cmocka_unit_test(what_is_not_honoured_is_refused_with_its_place),
        cmocka_unit_test(many_members_and_values_are_looked_up_not_searched),
        cmocka_unit_test(names_are_defined_where_schemas_stand),
        cmocka_unit_test(a_draft_has_its_own_keywords),
        cmocka_unit_test(names_cost_what_they_are_long),
        cmocka_unit_test(too_many_members_are_refused),
        cmocka_unit_test(an_ambiguous_text_meets_a_bound),
        cmocka_unit_test(repeats_of_repeats_are_one),
        cmocka_unit_test(bombs_are_answered),
        cmocka_unit_test(answers_come_behind_thoughts),
        cmocka_unit_test(thoughts_have_marks_of_several_kinds),
        cmocka_unit_test(where_a_text_stands_is_known),
        cmocka_unit_test(blanks_are_as_many_as_are_asked_for),
        cmocka_unit_test(digits_are_bounded_as_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
