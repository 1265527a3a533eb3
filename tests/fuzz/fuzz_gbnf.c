/* Grammars in GBNF. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "fuzz/fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    weft_fuzz_grammar(weft_gram_gbnf, NULL, bytes, n);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const seeds[] = {
        "root ::= \"(\" root \")\" | [a-z]{1,3} ws num\nws ::= [ \\t]*\nnum ::= \"-\"? [0-9]+ # "
        "n\n",
        "root ::= a \"x\" | \"y\"\na ::= root? b+ | \"\\u00e9\"\nb ::= .\n",
        "root ::= root root | \"a\" | e\ne ::= \"\" | root e\n",
        "root ::= (term [+*-])* term\nterm ::= \"(\" root \")\" | [0-9]+ | term \"!\"\n",
        "root ::= \"{\" (pair (\",\" pair){0,3})? \"}\"\npair ::= str \":\" value\n"
        "value ::= root | str | \"null\"\nstr ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]* \"\\\"\"\n",
        "root ::= a{3} b{2,} c{0,4}\na ::= \"x\" | b\nb ::= \"\\x41\" | a \"y\"\nc ::= [^\\n\\]]\n",
        "root ::= (\n  # a comment\n  \"a\" |\n  [\\u4e00-\\u9fff\\U0001f600]\n)+\n",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        add(seeds[i], strlen(seeds[i]));
}
