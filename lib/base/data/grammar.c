#include "base/grammar.h"

#include <string.h>

void weft_grammar_init(struct weft_grammar *grammar) {
    memset(grammar, 0, sizeof *grammar);
    grammar->json_blanks = WEFT_GRAMMAR_BLANKS_USUAL;
    grammar->json_digits = WEFT_GRAMMAR_DIGITS_USUAL;
}

weft_err weft_grammar_check(const struct weft_grammar *grammar, struct weft_errmsg *why) {
    if (grammar->kind >= WEFT_GRAMMAR_COUNT || grammar->thinking >= WEFT_THINKING_COUNT)
        return weft_err_set(why, WEFT_E_INVAL, "a grammar of an unknown kind");
    if (grammar->n_bytes > WEFT_GRAMMAR_BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "the grammar has %u bytes, at most %u are allowed",
                            grammar->n_bytes, WEFT_GRAMMAR_BYTES_MAX);
    if (grammar->json_blanks > WEFT_GRAMMAR_BLANKS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "up to %u blanks in JSON, at most %d are allowed",
                            grammar->json_blanks, WEFT_GRAMMAR_BLANKS_MAX);
    if (grammar->json_digits < 1 || grammar->json_digits > WEFT_GRAMMAR_DIGITS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "numbers of up to %u digits, 1 to %d are allowed",
                            grammar->json_digits, WEFT_GRAMMAR_DIGITS_MAX);
    return WEFT_OK;
}
