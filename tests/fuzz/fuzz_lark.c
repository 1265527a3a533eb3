/* Grammars in Lark's notation. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "fuzz/fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    weft_fuzz_grammar(weft_gram_lark, NULL, bytes, n);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const seeds[] = {
        "start: (WORD \",\"? | pair)+ -> it\n?pair.2: \"(\" start \")\" ~ 1..2 // no\nWORD: "
        "/[a-z]+/i | \"a\"..\"c\"{2,} [\"\\n\\x41\"i]\n%import common (WS, INT)\n%ignore WS\n",
        "start: A | %json {\"type\":\"object\",\"properties\":{\"a\":{\"minimum\":1}}} \";\"\nA: "
        "INT B?\nB: /\\.[^\\/]*/s\n%import common.INT\n%ignore \" \"\n",
        "!start: expr\n?expr: expr \"+\" term | term # left\nterm: \"(\" expr \")\" | "
        "NUMBER\n%import common.NUMBER\n",
        "start: a{2,3} b~2\na: \"x\" |\n| B*\nb: [\"y\"] A.0\nA: B+\nB: \"\\u00e9\"\n",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        add(seeds[i], strlen(seeds[i]));
}
