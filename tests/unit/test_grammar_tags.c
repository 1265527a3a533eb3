/* Structural tags by small examples: where free text ends, what follows a trigger, each format, and how
 * refusals name the tag. */
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
#define OLD(structures, triggers)                                                                  \
    "{\"type\":\"structural_tag\",\"structures\":[" structures "],\"triggers\":[" triggers "]}"
#define FORMAT(format) "{\"type\":\"structural_tag\",\"format\":" format "}"

static weft_gram *compile(const char *tags) {
    const struct weft_grammar wish = {.kind = WEFT_GRAMMAR_TAGS,
                                      .json_blanks = WEFT_GRAMMAR_BLANKS_USUAL,
                                      .json_digits = WEFT_GRAMMAR_DIGITS_USUAL,
                                      .n_bytes = (uint32_t)strlen(tags),
                                      .text = tags};
    struct weft_errmsg why = {""};
    weft_gram *gram;
    if (weft_gram_compile(&wish, &gram, &why)) fail_msg("%.200s: %s", tags, why.text);
    return gram;
}

static bool accepts(weft_gram *gram, const char *text) {
    weft_gram_state *state;
    assert_int_equal(weft_gram_state_new(gram, &state), WEFT_OK);
    bool is_good = !weft_gram_take(state, text, strlen(text)) && weft_gram_may_end(state);
    weft_gram_state_free(state);
    return is_good;
}

/* Texts that are accepted, and texts that are not, each list ended by NULL. */
static void check(const char *tags, const char *const *good, const char *const *bad) {
    weft_gram *gram = compile(tags);
    for (; *good; good++) {
        if (!accepts(gram, *good)) fail_msg("%s does not accept %s", tags, *good);
    }
    for (; *bad; bad++) {
        if (accepts(gram, *bad)) fail_msg("%s accepts %s", tags, *bad);
    }
    weft_gram_free(gram);
}

static void refuse(const char *tags, weft_err code, const char *what) {
    struct weft_errmsg why = {""};
    weft_gram *gram;
    weft_err err = weft_gram_tags(STR(tags), &gram, &why);
    if (err != code) fail_msg("%s: %s, \"%s\"", tags, weft_err_text(err), why.text);
    assert_null(gram);
    if (!strstr(why.text, what)) fail_msg("\"%s\" has no \"%s\"", why.text, what);
}

#define INT_A                                                                                      \
    "{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],\"type\":\"object\","     \
    "\"additionalProperties\":false}"

static void a_trigger_in_free_text_must_lead_to_a_structure(void **state) {
    (void)state;
    check(OLD("{\"begin\":\"<function=f>\",\"schema\":" INT_A ",\"end\":\"</function>\"},"
              "{\"begin\":\"<function=g>\",\"schema\":{\"type\":\"null\"},\"end\":\"\"}",
              "\"<function=\",\"<function=\""),
          GOOD{"", "any <func text<",
               "h\xc3\xa9 <<function=f>{\"a\": 1}</function> and <function=g>null more",
               "<function=f>{\"a\":1}</function><function=g>null", "</function>", NULL},
          BAD{"<function=", "x<function=h>", "<function=f>{\"a\":\"x\"}</function>",
              "<function=f>{\"a\":1}", "<function=f>{\"a\":1} </function>",
              "<function=g>null<function=", "\xff", "a\xc3", NULL});
    check(OLD("{\"begin\":\"aab\",\"schema\":true,\"end\":\"\"}", "\"aa\""),
          GOOD{"aab1", "a", "baab[]a", NULL}, BAD{"aaab1", "aa", "aab", "aac", NULL});
}

static void begins_are_of_one_trigger_and_triggers_apart(void **state) {
    (void)state;
    check(OLD("{\"begin\":\"<a>\",\"schema\":{\"const\":1},\"end\":\".\"},"
              "{\"begin\":\"[b]\",\"schema\":{\"const\":2},\"end\":\".\"}",
              "\"<a\",\"[\",\"{\""),
          GOOD{"x<a>1.[b]2.y", "<", NULL}, BAD{"<a>2.", "[b]1.", "[", "{", "a{b", NULL});
    refuse(OLD("{\"begin\":\"<a>\",\"schema\":true,\"end\":\"\"},{\"begin\":\"<b>\",\"schema\":"
               "true,\"end\":\"\"}",
               "\"<a\""),
           WEFT_E_INVAL, "structures[1] (\"<b>\"): \"begin\" does not start with a trigger");
    refuse(OLD("{\"begin\":\"<a>\",\"schema\":true,\"end\":\"\"}", "\"<a\",\"<\""),
           WEFT_E_UNSUPPORTED, "lies within another");
    refuse(OLD("{\"begin\":\"<a>\",\"schema\":true,\"end\":\"\"}", "\"\""), WEFT_E_INVAL,
           "empty trigger");
    refuse(OLD("{\"begin\":\"<a>\",\"schema\":true,\"end\":\"\"}", ""), WEFT_E_INVAL,
           "\"triggers\" is not a list");
    refuse(OLD("", "\"<\""), WEFT_E_INVAL, "\"structures\" is not a list");
}

static void refusals_name_the_tag_the_keyword_and_its_path(void **state) {
    (void)state;
    refuse(OLD("{\"begin\":\"<f>\",\"schema\":true,\"end\":\"\"},"
               "{\"begin\":\"<g>\",\"schema\":{\"properties\":{\"a\":{\"pattern\":\"(?<=a)\"}}},"
               "\"end\":\"\"}",
               "\"<\""),
           WEFT_E_UNSUPPORTED,
           "structural tag, structures[1] (\"<g>\"): schema, \"pattern\" at #/properties/a: ");
    refuse(OLD("{\"begin\":\"<f>\",\"schema\":{\"enum\":[]},\"end\":\"\"}", "\"<\""), WEFT_E_INVAL,
           "structures[0] (\"<f>\"): schema, at #: nothing satisfies it");
    refuse(OLD("{\"begin\":\"<f>\",\"end\":\"\"}", "\"<\""), WEFT_E_INVAL,
           "(\"<f>\"): there is no schema");
    refuse(FORMAT("{\"type\":\"sequence\",\"elements\":[{\"type\":\"any_text\"},{\"type\":\"tag\","
                  "\"begin\":\"<t>\","
                  "\"content\":{\"type\":\"regex\",\"pattern\":\"(\"},\"end\":\"\"}]}"),
           WEFT_E_INVAL, "format.elements[1] (\"<t>\").content: regular expression, character 2");
    refuse("[1]", WEFT_E_INVAL, "JSON object");
    refuse("{\"type\":\"structural_tag\"}", WEFT_E_INVAL, "neither \"format\"");
    refuse("{\"type\":\"tag\",\"format\":{}}", WEFT_E_INVAL, "is not \"structural_tag\"");
    refuse("{\"format\":{\"type\":\"any_text\"},\"triggers\":[\"a\"]}", WEFT_E_UNSUPPORTED,
           "\"triggers\" is not supported");
}

static void formats_are_put_together(void **state) {
    (void)state;
    check(FORMAT("{\"type\":\"sequence\",\"elements\":["
                 "{\"type\":\"const_string\",\"value\":\"a: \"},"
                 "{\"type\":\"or\",\"elements\":[{\"type\":\"json_schema\",\"json_schema\":{"
                 "\"type\":\"integer\"},\"style\":\"json\"},"
                 "{\"type\":\"regex\",\"pattern\":\"[x-z]{2}\"}]},"
                 "{\"type\":\"optional\",\"content\":{\"type\":\"const_string\",\"value\":\"?\"}},"
                 "{\"type\":\"repeat\",\"min\":1,\"max\":2,\"content\":{\"type\":\"grammar\","
                 "\"grammar\":\"root ::= \\\"(\\\" root \\\")\\\" | \\\".\\\"\"}},"
                 "{\"type\":\"star\",\"content\":{\"type\":\"grammar\",\"grammar\":\"start: A\\nA: "
                 "\\\"!\\\"\"}}]}"),
          GOOD{"a: 12.", "a: xy?((.)).!!", NULL},
          BAD{"a: 12", "a: xyz.", "a: 1?...", "a: 1(.", NULL});
    check(FORMAT("{\"type\":\"repeat\",\"min\":1,\"max\":-1,\"content\":{\"type\":\"const_string\","
                 "\"value\":\"ab\"}}"),
          GOOD{"ab", "ababab", NULL}, BAD{"", "aba", NULL});
    check(FORMAT("{\"type\":\"json_schema\",\"json_schema\":" INT_A ",\"max_whitespace_cnt\":0}"),
          GOOD{"{\"a\":1}", NULL}, BAD{"{\"a\": 1}", NULL});
    check(FORMAT("{\"type\":\"plus\",\"content\":{\"type\":\"any_text\",\"excludes\":[\"no\"],"
                 "\"max_chars\":3}}"),
          GOOD{"", "abc", "n\xc3\xb6 way", NULL}, BAD{"\xc3", NULL});
    check(FORMAT("{\"type\":\"any_text\",\"excludes\":[\"no\",\"\xe2\x82\xac\"],\"max_chars\":3}"),
          GOOD{"", "\xc3\xb6\xc3\xb6\xc3\xb6", "n", NULL},
          BAD{"abcd", "ano", "\xe2\x82\xac", NULL});
}

static void free_text_in_a_tag_has_none_of_its_ends(void **state) {
    (void)state;
    check(FORMAT("{\"type\":\"tag\",\"begin\":\"<t>\",\"content\":{\"type\":\"any_text\"},\"end\":["
                 "\"</t>\",\"<end>\"]}"),
          GOOD{"<t></t>", "<t>a<b</t>", "<t><t><end>", NULL},
          BAD{"<t>", "<t>a</t></t>", "<t><end></t>", "x<t></t>", NULL});
    check(FORMAT("{\"type\":\"tag\",\"begin\":\"(\",\"content\":{\"type\":\"triggered_tags\","
                 "\"triggers\":[\"<\"],\"tags\":["
                 "{\"begin\":\"<a>\",\"content\":{\"type\":\"any_text\"},\"end\":\">\"}]},\"end\":"
                 "\")\"}"),
          GOOD{"()", "(x<a>)>y)", NULL}, BAD{"(<)", "(x)y)", "(<a>>>", NULL});
}

#define TWO                                                                                        \
    "[{\"begin\":\"A1\",\"content\":{\"type\":\"const_string\",\"value\":\"L1\"},\"end\":\"A\"},"  \
    "{\"type\":\"tag\",\"begin\":\"A2\",\"content\":{\"type\":\"const_string\",\"value\":\"L2\"}," \
    "\"end\":\"A\"}]"
#define TRIGGERED(flags)                                                                           \
    FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"A\"],\"tags\":" TWO flags "}")
#define SEPARATED(flags)                                                                           \
    FORMAT("{\"type\":\"tags_with_separator\",\"separator\":\"AA\",\"tags\":" TWO flags "}")

/* Of an end that may overlap itself the first one is the end. */
static void ends_that_overlap_themselves_end_once(void **state) {
    (void)state;
    check(FORMAT("{\"type\":\"tag\",\"begin\":\"<\",\"content\":{\"type\":\"any_text\"},"
                 "\"end\":\"aba\"}"),
          GOOD{"<xaba", "<aba", "<aaba", "<bbaba", NULL},
          BAD{"<xababa", "<xab", "<xabaaba", "<abaaba", NULL});
    refuse(
        FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<a>\"],\"excludes\":[\">\"],\"tags\":"
               "[{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"regex\","
               "\"pattern\":\"1\"},\"end\":\"</a>\"}]}"),
        WEFT_E_INVAL, "excludes");
}

static void flags_say_how_many_tags_there_are(void **state) {
    (void)state;
    check(TRIGGERED(""), GOOD{"textA1L1AtextA2L2AText", "A1L1AA2L2A", "text", "", NULL},
          BAD{"AA", "A1L2A", "A1L1A2L2A", "A1L1", NULL});
    check(TRIGGERED(",\"at_least_one\":true"), GOOD{"A1L1Atext", "A1L1AtextA2L2A", NULL},
          BAD{"textA1L1A", "text", "", "AA", NULL});
    check(TRIGGERED(",\"stop_after_first\":true"), GOOD{"textA1L1A", "A2L2A", "text", "", NULL},
          BAD{"A1L1Atext", "A1L1AA2L2A", "AA", NULL});
    check(TRIGGERED(",\"at_least_one\":true,\"stop_after_first\":true,\"excludes\":[]"),
          GOOD{"A1L1A", "A2L2A", NULL}, BAD{"textA1L1A", "A1L1Atext", "", "text", NULL});
    check(TRIGGERED(",\"excludes\":[\"bad\"]"), GOOD{"ba", "baA1L1Ad", NULL},
          BAD{"a bad", "badA1L1A", "A1L1Abad", NULL});
    check(SEPARATED(""), GOOD{"", "A1L1A", "A1L1AAAA2L2A", NULL},
          BAD{"A1L1AA2L2A", "A1L1AAA", "x", NULL});
    check(SEPARATED(",\"at_least_one\":true"), GOOD{"A1L1A", "A2L2AAAA2L2A", NULL}, BAD{"", NULL});
    check(SEPARATED(",\"stop_after_first\":true"), GOOD{"", "A1L1A", NULL},
          BAD{"A1L1AAAA2L2A", NULL});
}

static void a_dispatch_leads_from_patterns_to_formats(void **state) {
    (void)state;
#define RULES                                                                                      \
    "\"rules\":[[\"<i>\",{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"integer\"}}],[\"<"  \
    "n>\",{\"type\":\"const_string\",\"value\":\"no\"}]]"
    check(FORMAT("{\"type\":\"dispatch\"," RULES "}"), GOOD{"a<i>12b<n>no", "", NULL},
          BAD{"<i>", "<n>12", NULL});
    check(FORMAT("{\"type\":\"dispatch\",\"loop\":false,\"excludes\":[\"x\"]," RULES "}"),
          GOOD{"a<i>12", "a", NULL}, BAD{"a<i>12b", "x", "x<i>1", NULL});
}

static void what_can_not_be_honoured_is_refused_by_name(void **state) {
    (void)state;
    static const char *const types[] = {"exclude_token", "any_tokens", "token_triggered_tags",
                                        "token_dispatch", "qwen_xml_parameter"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char text[128];
        (void)snprintf(text, sizeof text, FORMAT("{\"type\":\"%s\"}"), types[i]);
        refuse(text, WEFT_E_UNSUPPORTED, types[i]);
    }
    refuse(FORMAT("{\"type\":\"json_schema\",\"json_schema\":{},\"style\":\"qwen_xml\"}"),
           WEFT_E_UNSUPPORTED, "\"style\"");
    refuse(FORMAT("{\"type\":\"json_schema\",\"json_schema\":{},\"any_order\":true}"),
           WEFT_E_UNSUPPORTED, "\"any_order\"");
    refuse(FORMAT("{\"type\":\"any_text\",\"max_tokens\":3}"), WEFT_E_UNSUPPORTED,
           "\"max_tokens\"");
    refuse(FORMAT("{\"type\":\"tag\",\"begin\":{\"type\":\"token\",\"token\":1},\"content\":{"
                  "\"type\":\"any_text\"},\"end\":\"\"}"),
           WEFT_E_UNSUPPORTED, "\"begin\" names a token by its number");
    refuse(FORMAT("{\"type\":\"any_text\",\"exclude\":[]}"), WEFT_E_UNSUPPORTED,
           "\"exclude\" is not supported");
    refuse(FORMAT("{\"type\":\"nothing\"}"), WEFT_E_INVAL,
           "format: \"type\" names no format: there is no \"nothing\"");
    refuse(FORMAT("{}"), WEFT_E_INVAL, "format: \"type\" must be the name of a format");
    refuse(FORMAT("{\"type\":\"or\",\"elements\":[]}"), WEFT_E_INVAL, "\"elements\"");
}

/* Ten kilobytes of schema for each of a hundred. */
static void a_hundred_large_tools_compile(void **state) {
    (void)state;
    enum { TOOLS = 100, MEMBERS = 120 };
    char *text = malloc(TOOLS * MEMBERS * 160 + 1000), *at = text;
    assert_non_null(text);
    at +=
        sprintf(at, "{\"type\":\"structural_tag\",\"triggers\":[\"<function=\"],\"structures\":[");
    for (int i = 0; i < TOOLS; i++) {
        at += sprintf(at,
                      "%s{\"begin\":\"<function=tool_%d>\",\"end\":\"</"
                      "function>\",\"schema\":{\"type\":\"object\","
                      "\"properties\":{",
                      i ? "," : "", i);
        for (int k = 0; k < MEMBERS; k++)
            at += sprintf(at,
                          "%s\"member_%d_%d\":{\"type\":\"%s\",\"description\":\"what the member "
                          "is for: a sentence or two of it\"}",
                          k ? "," : "", i, k,
                          k % 3   ? "string"
                          : k % 2 ? "integer"
                                  : "boolean");
        at += sprintf(at, "},\"required\":[\"member_%d_0\"],\"additionalProperties\":false}}", i);
    }
    (void)sprintf(at, "]}");
    assert_true(strlen(text) > 900000);
    weft_gram *gram = compile(text);
    assert_true(accepts(gram, "I see. "
                              "<function=tool_7>{\"member_7_0\":true,\"member_7_1\":\"x\",\"member_"
                              "7_3\":12}</function>"));
    assert_true(accepts(gram, "<function=tool_99>{\"member_99_0\": false}</function> "
                              "<function=tool_0>{\"member_0_0\":true}</function>"));
    assert_false(accepts(gram, "<function=tool_7>{\"member_8_0\":true}</function>"));
    assert_false(accepts(gram, "<function=tool_100>{}</function>"));
    weft_gram_free(gram);
    free(text);
}

static void a_hundred_triggers_compile(void **state) {
    (void)state;
    enum { TOOLS = 100 };
    char *text = malloc(TOOLS * 200), *at = text;
    assert_non_null(text);
    at += sprintf(at, "{\"triggers\":[");
    for (int i = 0; i < TOOLS; i++)
        at += sprintf(at, "%s\"<function=tool_%d>\"", i ? "," : "", i);
    at += sprintf(at, "],\"structures\":[");
    for (int i = 0; i < TOOLS; i++)
        at += sprintf(
            at, "%s{\"begin\":\"<function=tool_%d>\",\"end\":\";\",\"schema\":{\"const\":%d}}",
            i ? "," : "", i, i);
    (void)sprintf(at, "]}");
    weft_gram *gram = compile(text);
    assert_true(accepts(gram, "<function=tool_7 <function=tool_99>99; <function=tool_0>0;"));
    assert_false(accepts(gram, "<function=tool_7>8;"));
    weft_gram_free(gram);
    free(text);
}

/* A token that would run over a trigger into something else is masked; one that runs into a tag is not. */
static void masks_know_of_triggers_within_tokens(void **state) {
    (void)state;
    const struct weft_str tokens[] = {STR("a"),       STR("<f"),   STR("a<fx"), STR("<f>1"),
                                      STR("<f>12;<"), STR("<f>x"), STR("<"),    STR("\xc3"),
                                      STR("\x80"),    STR("f")};
    uint64_t mask[1];
    weft_gram_vocab *vocab;
    weft_gram_state *place;
    weft_gram *gram = compile(
        OLD("{\"begin\":\"<f>\",\"schema\":{\"type\":\"integer\"},\"end\":\";\"}", "\"<f\""));
    assert_int_equal(weft_gram_vocab_new(tokens, sizeof tokens / sizeof *tokens, &vocab), WEFT_OK);
    assert_int_equal(weft_gram_state_new(gram, &place), WEFT_OK);
    assert_int_equal(weft_gram_mask(place, vocab, mask), WEFT_OK);
    assert_int_equal(*mask, 1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 9);
    assert_int_equal(weft_gram_take(place, "<", 1), WEFT_OK);
    assert_true(weft_gram_may_end(place));
    assert_int_equal(weft_gram_take(place, "f", 1), WEFT_OK);
    assert_false(weft_gram_may_end(place));
    assert_int_equal(weft_gram_mask(place, vocab, mask), WEFT_OK);
    assert_int_equal(*mask, 0);
    weft_gram_state_free(place);
    weft_gram_free(gram);
    weft_gram_vocab_free(vocab);
}

#define TOKEN(text) "{\"type\":\"token\",\"token\":\"" text "\"}"
#define SPELT(text) "\xff" text "\xff"

static void a_special_token_is_no_text(void **state) {
    (void)state;
    check(FORMAT(TOKEN("<|a|>")), GOOD{SPELT("<|a|>"), NULL},
          BAD{"<|a|>", "", SPELT("<|b|>"), "\xff<|a|>", NULL});
    check(FORMAT("{\"type\":\"any_text\"}"), GOOD{"<|a|>", NULL}, BAD{SPELT("<|a|>"), NULL});
    check(FORMAT("{\"type\":\"tag\",\"begin\":[\"f\"," TOKEN(
              "<|a|>") ",\":\"],\"content\":{"
                       "\"type\":\"any_text\"},\"end\":[" TOKEN("<|b|>") ",[\".\"," TOKEN(
                           "<|c|>") "]]}"),
          GOOD{"f" SPELT("<|a|>") ":x<|b|>" SPELT("<|b|>"), "f" SPELT("<|a|>") ":x." SPELT("<|c|>"),
               "f" SPELT("<|a|>") ":..." SPELT("<|c|>"), NULL},
          BAD{"f<|a|>:x" SPELT("<|b|>"), "f" SPELT("<|a|>") ":x" SPELT("<|c|>"),
              "f" SPELT("<|a|>") ":x", NULL});
}

static void special_tokens_are_triggers(void **state) {
    (void)state;
    check(
        FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[" TOKEN("<|a|>") ",\"a\",[\"b\"," TOKEN(
            "<|c|>") "]],\"tags\":[{\"begin\":[" TOKEN("<|a|>") ",\"1\"],\"content\":{\"type\":"
                                                                "\"any_text\"},\"end\":" TOKEN(
                                                                    "<|b|>") "},{\"begin\":\"a2\","
                                                                             "\"content\":{"
                                                                             "\"type\":\"regex\","
                                                                             "\"pattern\":\"x\"},"
                                                                             "\"end\":\"\"},{"
                                                                             "\"begin\":["
                                                                             "\"b\"," TOKEN(
                                                                                 "<|c|>") "],"
                                                                                          "\"conten"
                                                                                          "t\":{"
                                                                                          "\"type\""
                                                                                          ":\"regex"
                                                                                          "\","
                                                                                          "\"patter"
                                                                                          "n\":"
                                                                                          "\"y\"},"
                                                                                          "\"end\":"
                                                                                          "\"\"}]"
                                                                                          "}"),
        GOOD{"", "b", "<|" SPELT("<|a|>") "1ab" SPELT("<|b|>") "bca2x", "bb" SPELT("<|c|>") "y",
             "b" SPELT("<|c|>") "yb", NULL},
        BAD{SPELT("<|a|>"), "<|a|>", "a1", SPELT("<|a|>") "1", SPELT("<|c|>") "y", NULL});
    refuse(FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[" TOKEN("a") ",[\"b\"," TOKEN(
               "a") "]],"
                    "\"tags\":[{\"begin\":" TOKEN("a") ",\"content\":{\"type\":\"any_text\"},"
                                                       "\"end\":\"\"}]}"),
           WEFT_E_UNSUPPORTED, "within another");
}

static void a_token_that_is_none_is_refused(void **state) {
    (void)state;
    refuse(FORMAT("{\"type\":\"token\"}"), WEFT_E_INVAL, "\"token\" names no token");
    refuse(FORMAT("{\"type\":\"token\",\"token\":7}"), WEFT_E_UNSUPPORTED, "by its number");
    refuse(FORMAT("{\"type\":\"tag\",\"begin\":[[]],\"content\":{\"type\":\"any_text\"},"
                  "\"end\":\"\"}"),
           WEFT_E_INVAL, "\"begin\" is not a string");
    refuse(FORMAT("{\"type\":\"tag\",\"begin\":{\"type\":\"regex\"},\"content\":{\"type\":"
                  "\"any_text\"},\"end\":\"\"}"),
           WEFT_E_INVAL, "\"begin\" is no text, and no token");
    refuse(FORMAT("{\"type\":\"tag\",\"begin\":" TOKEN("<|a|>") ",\"content\":{},\"end\":\"\"}"),
           WEFT_E_INVAL, "format (\"<|a|>\").content: \"type\"");
}

static bool is_a(void *context, struct weft_str token) {
    ++*(int *)context;
    return token.len == 5 && memcmp(token.data, "<|a|>", 5) == 0;
}

static void tokens_that_the_model_has_not_are_refused(void **state) {
    (void)state;
    static const char *const tags[] = {
        FORMAT(TOKEN("<|a|>")),
        FORMAT("{\"type\":\"tag\",\"begin\":[\"x\"," TOKEN("<|b|>") "],\"content\":{\"type\":"
                                                                    "\"any_text\"},\"end\":\"\"}")};
    int n_asked = 0;
    const struct weft_gram_specials specials = {is_a, &n_asked};
    for (int i = 0; i < 2; i++) {
        struct weft_grammar wish;
        struct weft_errmsg why = {""};
        weft_gram *gram;
        weft_grammar_init(&wish);
        wish.kind = WEFT_GRAMMAR_TAGS;
        wish.text = tags[i];
        wish.n_bytes = (uint32_t)strlen(tags[i]);
        assert_int_equal(weft_gram_compile_for(&specials, &wish, &gram, &why),
                         i ? WEFT_E_INVAL : WEFT_OK);
        assert_int_equal(n_asked, i + 1);
        if (i) assert_non_null(strstr(why.text, "\"begin\" names a token that is no special one"));
        weft_gram_free(gram);
    }
}

/* Special tokens come where they are named, and bytes that look like their edges never. */
static void masks_have_special_tokens_where_they_are_named(void **state) {
    (void)state;
    const struct weft_str tokens[] = {STR("<|a|>"), STR("<|a|>"), STR("x"), STR("\xff"),
                                      STR("<|b|>")};
    const bool is_special[] = {false, true, false, false, true};
    uint64_t mask[1];
    weft_gram_vocab *vocab;
    weft_gram_state *place;
    weft_gram *gram = compile(FORMAT(
        "{\"type\":\"sequence\",\"elements\":[{\"type\":\"optional\",\"content\":"
        "{\"type\":\"const_string\",\"value\":\"x\"}}," TOKEN("<|a|>") "," TOKEN("<|b|>") "]}"));
    assert_int_equal(weft_gram_vocab_with_special(tokens, is_special, 5, &vocab), WEFT_OK);
    assert_int_equal(weft_gram_state_new(gram, &place), WEFT_OK);
    assert_int_equal(weft_gram_mask(place, vocab, mask), WEFT_OK);
    assert_int_equal(*mask, 1 << 1 | 1 << 2);
    assert_int_equal(weft_gram_take(place, "<|a|>", 5), WEFT_E_INVAL);
    assert_int_equal(weft_gram_take_special(place, tokens[4]), WEFT_E_INVAL);
    assert_int_equal(weft_gram_take_special(place, tokens[1]), WEFT_OK);
    assert_int_equal(weft_gram_mask(place, vocab, mask), WEFT_OK);
    assert_int_equal(*mask, 1 << 4);
    weft_gram_state_free(place);
    weft_gram_free(gram);
    weft_gram_vocab_free(vocab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trigger_in_free_text_must_lead_to_a_structure),
        cmocka_unit_test(begins_are_of_one_trigger_and_triggers_apart),
        cmocka_unit_test(refusals_name_the_tag_the_keyword_and_its_path),
        cmocka_unit_test(formats_are_put_together),
        cmocka_unit_test(free_text_in_a_tag_has_none_of_its_ends),
        cmocka_unit_test(flags_say_how_many_tags_there_are),
        cmocka_unit_test(a_dispatch_leads_from_patterns_to_formats),
        cmocka_unit_test(what_can_not_be_honoured_is_refused_by_name),
        cmocka_unit_test(a_hundred_large_tools_compile),
        cmocka_unit_test(a_hundred_triggers_compile),
        cmocka_unit_test(masks_know_of_triggers_within_tokens),
        cmocka_unit_test(a_special_token_is_no_text),
        cmocka_unit_test(special_tokens_are_triggers),
        cmocka_unit_test(a_token_that_is_none_is_refused),
        cmocka_unit_test(tokens_that_the_model_has_not_are_refused),
        cmocka_unit_test(masks_have_special_tokens_where_they_are_named),
        cmocka_unit_test(ends_that_overlap_themselves_end_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
