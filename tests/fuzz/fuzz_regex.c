/* Regular expressions, as grammars. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "fuzz/fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    weft_fuzz_grammar(weft_gram_regex, NULL, bytes, n);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const seeds[] = {
        "(?:a|bc){2,5}[^x-z\\d]*(?=.*b)\\u00e9?",
        "^(?!ab)\"([^\"\\\\]|\\\\[\"nrt])*\"$",
        "(?P<n>[\\w.+-]+)@([a-z]+\\.){1,4}(com|org)?",
        "((a{0,30}){0,30}){0,30}|(x*)*y+?|()",
        "(?!a*b)(?=.{3,}$)[ab]*",
        "\\x41\\101\\t[\\s\\S]\\D\\W[]a-][^]]",
        "(?i)yes|(?s:.)[^k](?-i:no)",
        "(a|b)*a(a|b){12}",
        "\xc3\xa9+[\xce\xb1-\xcf\x89\xe4\xb8\x80-\xe9\xbf\xbf]|\\U0001f600.",
        "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(T.{,8})?",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        add(seeds[i], strlen(seeds[i]));
}
