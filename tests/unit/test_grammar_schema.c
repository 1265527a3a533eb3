/* JSON Schemas that are refused, and how it is said: the keyword, its place, what is wanted there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "grammar/grammar.h"

static weft_err compile(struct weft_str text, weft_gram **gram_out, struct weft_errmsg *why) {
    why->text[0] = 0;
    return weft_gram_schema(text, gram_out, why);
}

static void refuse(const char *schema, weft_err code, const char *what) {
    struct weft_errmsg why;
    weft_gram *gram;
    weft_err err = compile((struct weft_str){schema, strlen(schema)}, &gram, &why);
    if (err != code || gram) fail_msg("%s: %s, \"%s\"", schema, weft_err_text(err), why.text);
    if (!strstr(why.text, what)) fail_msg("%s: \"%s\" has no \"%s\"", schema, why.text, what);
}

static bool accepts(const char *schema, const char *text) {
    struct weft_errmsg why;
    weft_gram *gram;
    weft_gram_state *state;
    if (compile((struct weft_str){schema, strlen(schema)}, &gram, &why))
        fail_msg("%s: %s", schema, why.text);
    assert_int_equal(weft_gram_state_new(gram, &state), WEFT_OK);
    bool is_taken = !weft_gram_take(state, text, strlen(text)) && weft_gram_may_end(state);
    weft_gram_state_free(state);
    weft_gram_free(gram);
    return is_taken;
}

/* Of each keyword, its value being wrong, within a member of the document. */
static void a_value_of_a_wrong_type_is_refused_where_it_stands(void **state) {
    (void)state;
    static const char a_schema[] = "must be a schema (an object, true or false)";
    static const char schemas[] = "must be a list of schemas, at least one";
    static const char named[] = "must be an object of schemas";
    static const char names[] = "must be a list of names";
    static const char count[] = "must be a whole number from 0 on";
    static const char type[] = "must be the name of a type, or a list of them";
    static const struct {
        const char *keyword, *value, *what;
    } cases[] = {
        {"type", "5", type},
        {"type", "[]", type},
        {"type", "[\"null\", 5]", type},
        {"type", "{\"type\": \"string\"}", type},
        {"enum", "\"a\"", "must be a list"},
        {"enum", "{}", "must be a list"},
        {"allOf", "{}", schemas},
        {"anyOf", "[]", schemas},
        {"oneOf", "5", schemas},
        {"oneOf", "[{}, 5]", "[1] must be a schema (an object, true or false)"},
        {"allOf", "[\"a\"]", "[0] must be a schema"},
        {"not", "5", a_schema},
        {"if", "5", a_schema},
        {"then", "5", a_schema},
        {"else", "[]", a_schema},
        {"$ref", "5", "must be a string"},
        {"$dynamicRef", "{}", "must be a string"},
        {"$id", "5", "must be a string"},
        {"$anchor", "5", "must be a string"},
        {"$dynamicAnchor", "5", "must be a string"},
        {"$schema", "5", "must be a string"},
        {"$defs", "5", named},
        {"$defs", "{\"a\": 5}", "\"a\" must be a schema"},
        {"definitions", "[]", named},
        {"minimum", "\"5\"", "must be a number"},
        {"maximum", "true", "must be a number"},
        {"exclusiveMinimum", "\"5\"", "must be a number"},
        {"exclusiveMaximum", "null", "must be a number"},
        {"multipleOf", "0", "must be a number above 0"},
        {"multipleOf", "-1", "must be a number above 0"},
        {"multipleOf", "\"2\"", "must be a number above 0"},
        {"minLength", "-1", count},
        {"maxLength", "1.5", count},
        {"minItems", "\"1\"", count},
        {"maxItems", "null", count},
        {"minContains", "-1", count},
        {"maxContains", "true", count},
        {"minProperties", "[]", count},
        {"maxProperties", "-0.5", count},
        {"pattern", "5", "must be a string"},
        {"format", "5", "must be a string"},
        {"items", "5", a_schema},
        {"items", "[{}, null]", "[1] must be a schema"},
        {"prefixItems", "{}", "must be a list of schemas"},
        {"prefixItems", "\"x\"", "must be a list of schemas"},
        {"additionalItems", "5", a_schema},
        {"unevaluatedItems", "\"no\"", a_schema},
        {"contains", "[]", a_schema},
        {"uniqueItems", "\"yes\"", "must be true or false"},
        {"uniqueItems", "1", "must be true or false"},
        {"properties", "[]", named},
        {"properties", "{\"b\": \"string\"}", "\"b\" must be a schema"},
        {"patternProperties", "5", named},
        {"patternProperties", "{\"^x\": 5}", "\"^x\" must be a schema"},
        {"additionalProperties", "\"no\"", a_schema},
        {"unevaluatedProperties", "5", a_schema},
        {"propertyNames", "\"^a\"", a_schema},
        {"required", "\"a\"", names},
        {"required", "[\"a\", 5]", names},
        {"required", "true", "in the object's schema and not in the member's"},
        {"dependentRequired", "5", "must be an object of lists of names"},
        {"dependentRequired", "{\"a\": \"b\"}", "\"a\" must be a list of names"},
        {"dependentSchemas", "5", named},
        {"dependentSchemas", "{\"a\": [\"b\"]}", "\"a\" must be a schema"},
        {"dependencies", "[]", "must be an object of schemas or lists of names"},
        {"dependencies", "{\"a\": \"b\"}", "\"a\" must be a schema or a list of names"},
    };
    char schema[200], what[200];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)snprintf(schema, sizeof schema, "{\"properties\": {\"p\": {\"%s\": %s}}}",
                       cases[i].keyword, cases[i].value);
        (void)snprintf(what, sizeof what, "schema, \"%s\" at #/properties/p: ", cases[i].keyword);
        refuse(schema, WEFT_E_INVAL, what);
        refuse(schema, WEFT_E_INVAL, cases[i].what);
    }
    refuse("5", WEFT_E_INVAL, "schema, at #: must be a schema (an object, true or false)");
    refuse("{\"$schema\": \"http://json-schema.org/draft-07/schema#\", \"$ref\": 5}", WEFT_E_INVAL,
           "\"$ref\" at #: must be a string");
}

static void what_older_drafts_and_generators_write_is_taken(void **state) {
    (void)state;
    assert_true(accepts("{\"type\": \"array\", \"prefixItems\": [], \"items\": false}", "[]"));
    assert_true(accepts("{\"type\": \"array\", \"items\": [], \"maxItems\": 2.0}", "[1,2]"));
    assert_false(
        accepts("{\"type\": \"number\", \"minimum\": 5, \"exclusiveMinimum\": true}", "5"));
    assert_true(
        accepts("{\"type\": \"number\", \"minimum\": 5, \"exclusiveMinimum\": false}", "5"));
    assert_true(accepts("{\"type\": \"any\", \"required\": [], \"enum\": [1]}", "1"));
}

static void a_type_that_is_none_is_named(void **state) {
    (void)state;
    refuse("{\"items\": {\"type\": [\"null\", \"str\"]}}", WEFT_E_INVAL,
           "\"type\" at #/items: there is no type \"str\", but null, boolean, object, array, "
           "number, string and integer");
}

static void a_pattern_goes_on_behind_a_nul(void **state) {
    (void)state;
    assert_true(accepts("{\"type\": \"string\", \"pattern\": \"^a\\u0000b\"}", "\"a\\u0000b\""));
    assert_false(accepts("{\"type\": \"string\", \"pattern\": \"^a\\u0000b\"}", "\"a\\u0000c\""));
}

static void what_nothing_satisfies_is_found_where_it_stands(void **state) {
    (void)state;
    static const struct {
        const char *schema, *what;
    } cases[] = {
        {"false", "schema, at #: nothing satisfies it"},
        {"{\"type\": \"object\", \"required\": [\"p\"], \"properties\": {\"p\": {\"type\": "
         "\"object\", "
         "\"required\": [\"b\", \"a\"], \"properties\": {\"a\": {\"type\": \"integer\", "
         "\"minimum\": 5, "
         "\"maximum\": 3}, \"b\": {\"const\": 1}}}}}",
         "schema, at #/properties/p/properties/a: nothing satisfies it"},
        {"{\"type\": \"array\", \"minItems\": 2, \"prefixItems\": [{}, {\"enum\": []}]}",
         "at #/prefixItems/1: nothing satisfies it"},
        {"{\"type\": \"array\", \"minItems\": 1, \"items\": {\"type\": \"string\", \"minLength\": "
         "3, "
         "\"maxLength\": 2}}",
         "at #/items: nothing"},
        {"{\"type\": \"array\", \"contains\": {\"not\": {}}}", "at #/contains: nothing"},
        {"{\"allOf\": [{}, {\"$ref\": \"#/$defs/x\"}], \"$defs\": {\"x\": {\"const\": 5, \"enum\": "
         "[4]}}}",
         "at #/$defs/x: nothing"},
        {"{\"type\": \"object\", \"required\": [\"a\"], \"properties\": {\"a\": {\"type\": "
         "\"integer\", \"minimum\": 5}}, \"allOf\": [{\"properties\": {\"a\": {\"maximum\": 3, "
         "\"type\": "
         "\"integer\"}}}]}",
         "at #/properties/a: nothing satisfies it together with the one at "
         "#/allOf/0/properties/a"},
        {"{\"properties\": {\"p\": {\"type\": \"object\", \"properties\": {\"a\": {}}, "
         "\"required\": "
         "[\"a\", \"b\"], \"additionalProperties\": false}}, \"required\": [\"p\"], \"type\": "
         "\"object\"}",
         "at #/properties/p: nothing satisfies it: it requires \"b\", and forbids it"},
        {"{\"type\": \"object\", \"minProperties\": 2, \"properties\": {\"a\": {}, \"b\": false}, "
         "\"additionalProperties\": false}",
         "at #: nothing"},
        {"{\"anyOf\": [{\"enum\": []}, {\"type\": \"number\", \"minimum\": 2, \"maximum\": 1}]}",
         "at #: nothing"},
        {"{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}, \"minItems\": 1}",
         "at #: nothing satisfies it: it would have to hold itself, without end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse(cases[i].schema, WEFT_E_INVAL, cases[i].what);
}

static void what_need_not_be_there_may_be_impossible(void **state) {
    (void)state;
    static const char schema[] = "{\"type\": \"object\", \"properties\": {\"a\": {\"enum\": []}, "
                                 "\"next\": {\"anyOf\": [{\"$ref\": "
                                 "\"#\"}, {\"type\": \"null\"}]}}, \"required\": [\"next\"]}";
    assert_true(accepts(schema, "{\"next\":{\"next\":null}}"));
    assert_false(accepts(schema, "{\"a\":1,\"next\":null}"));
}

static void what_is_beyond_us_is_refused_with_keyword_and_place(void **state) {
    (void)state;
    static const struct {
        const char *schema;
        weft_err code;
        const char *what;
    } cases[] = {
        {"{\"properties\": {\"a\": {\"type\": \"array\", \"uniqueItems\": true}}}",
         WEFT_E_UNSUPPORTED, "schema, \"uniqueItems\" at #/properties/a: is not supported"},
        {"{\"items\": {\"$ref\": \"#/$defs/m\"}, \"$defs\": {\"m\": {\"minProperties\": 2}}}",
         WEFT_E_UNSUPPORTED, "\"minProperties\" at #/$defs/m: is not supported where"},
        {"{\"items\": {\"allOf\": [{\"minProperties\": 2}, {\"minProperties\": 3}]}}",
         WEFT_E_UNSUPPORTED, "\"minProperties\" at #/items/allOf/1: is"},
        {"{\"properties\": {\"a\": {\"contains\": {\"const\": 1}, \"maxItems\": 100}}}",
         WEFT_E_UNSUPPORTED, "schema, at #/properties/a: \"contains\""},
        {"{\"not\": {\"uniqueItems\": true}}", WEFT_E_UNSUPPORTED,
         "schema, at #: the complement of \"uniqueItems\""},
        {"{\"items\": {\"const\": 1e300}}", WEFT_E_UNSUPPORTED,
         "schema, at #/items: a number has more digits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse(cases[i].schema, cases[i].code, cases[i].what);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_of_a_wrong_type_is_refused_where_it_stands),
        cmocka_unit_test(what_older_drafts_and_generators_write_is_taken),
        cmocka_unit_test(a_type_that_is_none_is_named),
        cmocka_unit_test(a_pattern_goes_on_behind_a_nul),
        cmocka_unit_test(what_nothing_satisfies_is_found_where_it_stands),
        cmocka_unit_test(what_need_not_be_there_may_be_impossible),
        cmocka_unit_test(what_is_beyond_us_is_refused_with_keyword_and_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
