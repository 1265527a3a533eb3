/* Structural tags. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "fuzz/fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    weft_fuzz_grammar(weft_gram_tags, NULL, bytes, n);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const seeds[] = {
        "{\"type\":\"structural_tag\",\"structures\":[{\"begin\":\"<f=a>\",\"schema\":{\"type\":"
        "\"integer\"},\"end\":\"</f>\"}],\"triggers\":[\"<f=\",\"a\"]}",
        "{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"{\"],\"tags\":[{\"begin\":\"{\","
        "\"content\":{\"type\":\"any_text\",\"excludes\":[\"no\"],\"max_chars\":9},\"end\":[\"}\","
        "\"\"]}],\"at_least_one\":true}}",
        "{\"format\":{\"type\":\"sequence\",\"elements\":[{\"type\":\"or\",\"elements\":[{\"type\":"
        "\"regex\",\"pattern\":\"(?i)a+\"},{\"type\":\"grammar\",\"grammar\":\"root ::= [a-z] "
        "root?\"}]},{\"type\":\"repeat\",\"min\":0,\"max\":-1,\"content\":{\"type\":\"const_"
        "string\",\"value\":\"1\"}},{\"type\":\"dispatch\",\"rules\":[[\"x\",{\"type\":\"json_"
        "schema\",\"json_schema\":true}]]}]}}",
        "{\"format\":{\"type\":\"tags_with_separator\",\"separator\":\",\",\"tags\":[{\"begin\":\"["
        "\",\"content\":{\"type\":\"plus\",\"content\":{\"type\":\"tag\",\"begin\":\"a\","
        "\"content\":{\"type\":\"any_text\"},\"end\":\"b\"}},\"end\":\"]\"}]}}",
        "{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[{\"type\":\"token\",\"token\":"
        "\"a\"},"
        "[\"b\",{\"type\":\"token\",\"token\":\"c\"}]],\"tags\":[{\"begin\":[{\"type\":\"token\","
        "\"token\":"
        "\"a\"},\"x\"],\"content\":{\"type\":\"token\",\"token\":\"d\"},\"end\":[\"y\",[\"z\",{"
        "\"type\":"
        "\"token\",\"token\":\"e\"}]]}]}}",
        "{\"format\":{\"type\":\"star\",\"content\":{\"type\":\"optional\",\"content\":{\"type\":"
        "\"grammar\",\"grammar\":\"start: A\\nA: /b/\"}}}}",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        add(seeds[i], strlen(seeds[i]));
}
