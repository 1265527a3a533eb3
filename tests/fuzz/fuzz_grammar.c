/* Grammars: the first byte says in which notation; what compiles is fed a few texts and asked for masks. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "grammar/grammar.h"

static const char *const texts[] = {"{\"a\":[1,2.50,\"x\\n\"],\"b\":null}", "[[],{\"a\":-1e3}]",
                                    "aab12", "\"\xc3\xa9\xf0\x9f\x98\x80\"", "((a+1)*2)\n"};

static weft_gram_vocab *vocab_of_bytes(void) {
    static weft_gram_vocab *vocab;
    static char bytes[256];
    struct weft_str tokens[260];
    if (vocab) return vocab;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct weft_str){bytes + i, 1};
    }
    tokens[256] = (struct weft_str){"\",\"", 3};
    tokens[257] = (struct weft_str){"aab", 3};
    tokens[258] = (struct weft_str){"\":", 2};
    tokens[259] = (struct weft_str){"", 0};
    WEFT_ASSERT(weft_gram_vocab_new(tokens, 260, &vocab) == WEFT_OK);
    return vocab;
}

#define INPUT_MAX 1024u
#define MASKS_MAX 8u /* of a text */

/* A byte is taken exactly if the mask before it allows it. */
static void feed(weft_gram *gram, const char *text) {
    uint64_t mask[5];
    weft_gram_state *state;
    if (weft_gram_state_new(gram, &state)) return;
    for (const char *at = text; *at; at++) {
        unsigned char byte = (unsigned char)*at;
        bool has_mask = at - text < (ptrdiff_t)MASKS_MAX;
        if (has_mask && weft_gram_mask(state, vocab_of_bytes(), mask)) break;
        weft_err err = weft_gram_take(state, at, 1);
        WEFT_ASSERT(err == WEFT_OK || err == WEFT_E_INVAL || err == WEFT_E_TOOBIG);
        if (err == WEFT_E_TOOBIG) break;
        WEFT_ASSERT(!has_mask || (mask[byte / 64] >> (byte % 64) & 1) == (err == WEFT_OK));
        if (err) break;
    }
    (void)weft_gram_may_end(state);
    weft_gram_state_free(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_errmsg why = {""};
    weft_gram *gram = NULL;
    weft_err err;
    weft_log_init("fuzz", WEFT_LOG_ERROR, false);
    if (n == 0 || n > INPUT_MAX) return 0;
    struct weft_str text = {(const char *)bytes + 1, n - 1};
    if (bytes[0] == 'r')
        err = weft_gram_regex(text, &gram, &why);
    else if (bytes[0] == 'g')
        err = weft_gram_gbnf(text, &gram, &why);
    else
        err = weft_gram_schema(text, &gram, &why);
    WEFT_ASSERT((err == WEFT_OK) == (gram != NULL));
    WEFT_ASSERT(!err || why.text[0]);
    for (size_t i = 0; gram && i < sizeof texts / sizeof *texts; i++)
        feed(gram, texts[i]);
    weft_gram_free(gram);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const seeds[] = {
        "r(?:a|bc){2,5}[^x-z\\d]*(?=.*b)\\u00e9?",
        "r^(?!ab)\"([^\"\\\\]|\\\\[\"nrt])*\"$",
        "groot ::= \"(\" root \")\" | [a-z]{1,3} ws num\nws ::= [ \\t]*\nnum ::= \"-\"? [0-9]+ # "
        "n\n",
        "groot ::= a \"x\" | \"y\"\na ::= root? b+ | \"\\u00e9\"\nb ::= .\n",
        "s{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"integer\",\"null\"],\"minimum\":-"
        "2.5},\"b\":"
        "{\"$ref\":\"#\"}},\"required\":[\"a\"],\"additionalProperties\":{\"pattern\":\"^a+\"}}",
        "s{\"oneOf\":[{\"type\":\"array\",\"items\":{\"enum\":[1,\"x\",[null]]},\"minItems\":1},{"
        "\"not\":{\"const\":"
        "{\"a\":1}}}],\"$defs\":{\"x\":{\"format\":\"date\"}}}",
        "s{\"if\":{\"properties\":{\"k\":{\"multipleOf\":0.5}}},\"then\":{\"maxProperties\":2},"
        "\"contains\":{\"type\":"
        "\"string\",\"maxLength\":3},\"dependentRequired\":{\"a\":[\"b\"]}}",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        add(seeds[i], strlen(seeds[i]));
}
