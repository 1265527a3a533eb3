/* Lark's notation by small examples: what its constructs mean, what is ignored between terminals, what is refused
 * and how it is said. */
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
#define GOOD (const char *const[])
#define BAD (const char *const[])

/* Texts that are accepted, and texts that are not, each list ended by NULL. */
static void check(const char *grammar, const char *const *good, const char *const *bad) {
    struct weft_errmsg why = {""};
    weft_gram *gram;
    weft_gram_state *state;
    if (weft_gram_lark(STR(grammar), &gram, &why)) fail_msg("%s: %s", grammar, why.text);
    for (int is_good = 1; is_good >= 0; is_good--) {
        for (const char *const *text = is_good ? good : bad; *text; text++) {
            assert_int_equal(weft_gram_state_new(gram, &state), WEFT_OK);
            bool accepts = !weft_gram_take(state, *text, strlen(*text)) && weft_gram_may_end(state);
            weft_gram_state_free(state);
            if (accepts != (is_good == 1))
                fail_msg("%s %s \"%s\"", grammar, accepts ? "accepts" : "does not accept", *text);
        }
    }
    weft_gram_free(gram);
}

static void refuse(const char *grammar, weft_err code, const char *what) {
    struct weft_errmsg why = {""};
    weft_gram *gram;
    weft_err err = weft_gram_lark(STR(grammar), &gram, &why);
    if (err != code) fail_msg("%s: %s, \"%s\"", grammar, weft_err_text(err), why.text);
    assert_null(gram);
    if (!strstr(why.text, what)) fail_msg("\"%s\" has no \"%s\"", why.text, what);
}

static void rules_and_terminals_are_put_together(void **state) {
    (void)state;
    check("start: expr\n"
          "?expr: expr \"+\" term -> add\n"
          "     | term // the same again\n"
          "!term.2: NUMBER | \"(\" expr \")\" # and in Python's way\n"
          "NUMBER.-1: DIGIT+ [\".\" DIGIT ~ 1..2]\n"
          "DIGIT: \"0\"..\"9\"\n",
          GOOD{"1", "12+3.25", "(1+(2))+3", NULL},
          BAD{"", "1+", "1.", "1.234", "(1", "1 + 2", NULL});
    check("start: a~2 b{1,2} C{2,} \"d\" ~ 0..1\n"
          "a: \"x\" |\n"
          "b: [\"y\" \"z\"]\n"
          "C: \"c\"",
          GOOD{"cc", "xxyzyzccccd", "xcc", NULL}, BAD{"c", "xxxcc", "yzyzyzcc", "ycc", NULL});
    check("start: (\n  \"a\" // one\n  | /b+/\n)+\n\n  | \"c\"\n", GOOD{"abba", "c", NULL},
          BAD{"", "ac", NULL});
}

static void literals_and_expressions_have_flags_and_escapes(void **state) {
    (void)state;
    check("start: \"a\\n\\\"\\\\\\x41\\u00e9\" | \"yes-No\"i | /x\\/[^k]/i | /a.b/s | /a.c/",
          GOOD{"a\n\"\\A\xc3\xa9", "YES-no", "X/l", "a\nb", "a.c", NULL},
          BAD{"yes_no", "x/K", "x/\xe2\x84\xaa", "a\nc", "A.c", NULL});
}

static void what_is_ignored_comes_between_terminals_and_around_all(void **state) {
    (void)state;
    check("start: WORD (\",\" WORD)* END?\n"
          "WORD: /[a-z]/ /[a-z]/*\n"
          "END: \"!\" \"!\"\n"
          "%import common (WS, CPP_COMMENT)\n"
          "%ignore WS\n"
          "%ignore CPP_COMMENT\n",
          GOOD{"ab,c", "  ab ,\n c // no more\n", "a//\n,b !!", NULL},
          BAD{"a b", "a,", "a ! !", "a,/ b", NULL});
    check("start: \"a\" ~ 2 | %json {\"type\": \"integer\"} \"b\"\n%ignore \" \"",
          GOOD{"a a", " 12 b ", "aa", NULL}, BAD{"1 2b", "a", NULL});
}

static void common_terminals_are_those_of_lark(void **state) {
    (void)state;
    check("start: SIGNED_NUMBER | STR | \"<\" CNAME NEWLINE | C_COMMENT\n"
          "%import common.SIGNED_NUMBER\n%import common.ESCAPED_STRING -> STR\n"
          "%import common.CNAME\n%import common.NEWLINE\n%import common.C_COMMENT",
          GOOD{"-1.5e+3", "+.5", "1.", "7", "\"a\\\"b\\\\\"", "<_a9\r\n\n", "/* * / **/", NULL},
          BAD{"1e", ".", "\"a\"b\"", "\"a\nb\"", "<9a\n", "/* */ */", NULL});
}

static void a_schema_is_a_part_of_a_rule(void **state) {
    (void)state;
    check(
        "start: TEXT | call+\n"
        "TEXT: /[^{](.|\\n)*/\n"
        "call: %json {\n  \"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}},\n"
        "  \"required\": [\"a\"], \"additionalProperties\": false\n} \";\"\n",
        GOOD{"none", "{\"a\":1};", "{\"a\": 1};{\"a\":2};", NULL},
        BAD{"{\"a\":1}", "{};", "{\"a\":\"x\"};", NULL});
    refuse("start: \"a\" %json {\"pattern\": \"(?<=a)\"}", WEFT_E_UNSUPPORTED,
           "line 1, column 18: schema, \"pattern\" at #");
    refuse("start: \"a\" | %json {\"enum\": []}", WEFT_E_INVAL,
           "line 1, column 20: schema, at #: nothing satisfies it");
    refuse("start: A\nA: %json {}", WEFT_E_INVAL, "in a rule");
}

static void what_can_not_be_honoured_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *what;
    } list[] = {
        {"start: <|end|>", "tokens (<...>)"},
        {"start: @other", "@name"},
        {"start: A\nA: ~\"a\"", "complement"},
        {"start: A\nA: \"a\" & \"b\"", "(&)"},
        {"start: %regex {\"substring_chars\": \"ab\"}", "%regex"},
        {"start: %lark {\n}", "%lark"},
        {"start: x{a}\nx{y}: y", "templates"},
        {"x{y}: y", "templates"},
        {"start[capture]: \"a\"", "options of rules"},
        {"start::_: \"a\"", "parameters"},
        {"%declare A\nstart: A", "%declare"},
        {"%override start: \"a\"", "%override"},
        {"%extend start: \"a\"", "%extend"},
        {"%import python.NAME\nstart: NAME", "of common alone"},
        {"%llguidance {\"no_forcing\": true}\nstart: \"a\"", "%llguidance"},
        {"start: /a+?b/", "lazy"},
        {"start: /if(?![a-z])/", "look-ahead"},
        {"start: /^a/", "anchors"},
        {"start: /a/x", "flags of an expression"},
        {"start: \"a\"s", "flags of a literal"},
        {"start: \"\xc3\xa9\"i", "beyond ASCII"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        refuse(list[i].grammar, WEFT_E_UNSUPPORTED, list[i].what);
}

static void what_is_not_understood_is_refused_at_its_place(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *what;
    } list[] = {
        {"start: \"a\"\nb: \"b\" other", "line 2, column 8: \"other\" is defined nowhere"},
        {"start: A\nA: b\nb: \"b\"",
         "line 2, column 4: \"b\" is a rule, which no terminal may need"},
        {"start: A\nA: \"a\" B\nB: A?", "may not need itself"},
        {"start: \"a\"\nstart: \"b\"", "line 2, column 1: the rule is there already"},
        {"begin: \"a\"", "no rule named start"},
        {"start: start", "no text fits"},
        {"start: fooBar", "neither a rule"},
        {"start: \"a", "a literal has no end"},
        {"start: /a", "expression has no end"},
        {"start: /a(/", "column 8: regular expression, character 3"},
        {"start: (\"a\"", "a group has no end"},
        {"start: \"a\")", "should end here"},
        {"start: \"z\"..\"a\"", "backwards"},
        {"start: \"ab\"..\"c\"", "one character"},
        {"start: \"a\" ~ 3..2", "wrong way round"},
        {"start: \"a\"+?", "repeat of a repeat"},
        {"start: \"\\q\"", "no such escape"},
        {"%import common.NAME\nstart: NAME", "\"NAME\" is no terminal of common"},
        {"%anything\nstart: \"a\"", "no such statement"},
        {"start \"a\"", "a : should stand here"},
        {"start:\n  \"a\"", "should stand here"},
        {"", "no rule named start"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        refuse(list[i].grammar, WEFT_E_INVAL, list[i].what);
}

/* As text of any length, and nested as deep as it likes. */
static void rules_that_are_read_as_lark_say_so(void **state) {
    (void)state;
    static const char text[] = "root = \"a\"";
    struct weft_grammar wish;
    struct weft_errmsg why = {""};
    weft_gram *gram;
    weft_grammar_init(&wish);
    wish.kind = WEFT_GRAMMAR_RULES;
    wish.text = text;
    wish.n_bytes = sizeof text - 1;
    assert_int_equal(weft_gram_compile(&wish, &gram, &why), WEFT_E_INVAL);
    assert_null(gram);
    assert_non_null(strstr(why.text, "line 1, column "));
    assert_non_null(strstr(why.text, "(read as Lark, as its first rule has no \"::=\")"));
}

static void bombs_are_answered(void **state) {
    (void)state;
    enum { N = 100000 };
    char *text = malloc(32 * N), *at = text;
    struct weft_errmsg why = {""};
    weft_gram *gram;
    assert_non_null(text);
    at += sprintf(at, "start: A0\n");
    for (int i = 0; i < N / 2; i++)
        at += sprintf(at, "A%d: A%d\n", i, i + 1);
    (void)sprintf(at, "A%d: \"a\"", N / 2);
    refuse(text, WEFT_E_TOOBIG, "too deeply");
    at = text + sprintf(text, "start: ");
    memset(at, '(', N);
    at[N] = 0;
    refuse(text, WEFT_E_TOOBIG, "nested more than 500");
    at = text + sprintf(text, "start: A\nA: \"x\"");
    for (int i = 0; i < N; i++)
        at += sprintf(at, "|\"%d\"", i);
    if (weft_gram_lark(STR(text), &gram, &why)) fail_msg("%s", why.text);
    weft_gram_free(gram);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_and_terminals_are_put_together),
        cmocka_unit_test(literals_and_expressions_have_flags_and_escapes),
        cmocka_unit_test(what_is_ignored_comes_between_terminals_and_around_all),
        cmocka_unit_test(common_terminals_are_those_of_lark),
        cmocka_unit_test(a_schema_is_a_part_of_a_rule),
        cmocka_unit_test(what_can_not_be_honoured_is_refused_by_name),
        cmocka_unit_test(what_is_not_understood_is_refused_at_its_place),
        cmocka_unit_test(rules_that_are_read_as_lark_say_so),
        cmocka_unit_test(bombs_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
