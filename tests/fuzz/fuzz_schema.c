/* JSON Schemas, as grammars. A text that may end is JSON. */
#include "fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

#include "base/check.h"
#include "fuzz/fuzz_grammar.h"

static void judge(const char *text, size_t n) {
    json_error_t error;
    json_t *value = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    /* Digits without end are JSON; that it cannot hold them is jansson's own matter. */
    WEFT_ASSERT(value || json_error_code(&error) == json_error_numeric_overflow);
    json_decref(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    weft_fuzz_grammar(weft_gram_schema, judge, bytes, n);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const seeds[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"integer\",\"null\"],\"minimum\":-"
        "2.5},"
        "\"b\":{\"$ref\":\"#\"}},\"required\":[\"a\"],\"additionalProperties\":{\"pattern\":\"^a+"
        "\"}}",
        "{\"oneOf\":[{\"type\":\"array\",\"items\":{\"enum\":[1,\"x\",[null]]},\"minItems\":1},{"
        "\"not\":{\"const\":{\"a\":1}}}],\"$defs\":{\"x\":{\"format\":\"date\"}}}",
        "{\"if\":{\"properties\":{\"k\":{\"multipleOf\":0.5}}},\"then\":{\"maxProperties\":2},"
        "\"contains\":{\"type\":\"string\",\"maxLength\":3},\"dependentRequired\":{\"a\":[\"b\"]}}",
        "{\"allOf\":[{\"anyOf\":[{\"required\":[\"a\"]},{\"maxProperties\":3}]},{\"anyOf\":[{"
        "\"patternProperties\":{\"^x\":{\"type\":\"number\"}}},{\"propertyNames\":{\"maxLength\":4}"
        "}]}]}",
        "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"definitions\":{\"n\":{\"type\":"
        "\"array\",\"items\":[{\"$ref\":\"#/definitions/n\"}],\"additionalItems\":false}},\"$ref\":"
        "\"#/definitions/n\"}",
        "{\"$id\":\"http://a.b/c\",\"$defs\":{\"t\":{\"$anchor\":\"t\",\"properties\":{\"k\":{"
        "\"$dynamicRef\":\"#m\"}},\"$dynamicAnchor\":\"m\"}},\"$ref\":\"#t\","
        "\"unevaluatedProperties\":"
        "false}",
        "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"boolean\"}],\"items\":{\"type\":"
        "\"integer\","
        "\"exclusiveMinimum\":3,\"exclusiveMaximum\":1e3,\"multipleOf\":7},\"minItems\":2,"
        "\"maxItems\":9,"
        "\"minContains\":2,\"maxContains\":3,\"contains\":{\"const\":14}}",
        "{\"type\":\"string\",\"format\":\"date-time\",\"minLength\":3,\"not\":{\"pattern\":\"Z$\"}"
        "}",
        "{\"format\":\"uri\",\"pattern\":\"^h.*\\\\.x{2,3}$\",\"maxLength\":40,\"type\":"
        "\"string\"}",
        "{\"dependencies\":{\"a\":[\"b\"],\"c\":{\"minProperties\":2}},\"properties\":{\"a\":true,"
        "\"b\":false,\"c\":{\"uniqueItems\":true,\"maxItems\":1}},\"dependentSchemas\":{\"d\":{"
        "\"required\":[\"e\"]}}}",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        add(seeds[i], strlen(seeds[i]));
}
