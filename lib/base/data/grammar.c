#include "base/grammar.h"

#include <string.h>

#include "base/check.h"

void weft_grammar_init(struct weft_grammar *grammar) {
    memset(grammar, 0, sizeof *grammar);
    grammar->json_blanks = WEFT_GRAMMAR_BLANKS_USUAL;
    grammar->json_digits = WEFT_GRAMMAR_DIGITS_USUAL;
}

struct weft_mark_texts weft_grammar_mark_texts(enum weft_grammar_marks marks) {
    static const struct weft_mark_texts texts[WEFT_MARKS_COUNT] = {
#define TEXTS(name, begin, end) {{begin, sizeof begin - 1}, {end, sizeof end - 1}},
        WEFT_MARKS_LIST(TEXTS)
#undef TEXTS
    };
    WEFT_ASSERT(marks < WEFT_MARKS_COUNT);
    return texts[marks];
}

#define FITS(name, begin, end)                                                                     \
    _Static_assert(sizeof begin - 1 <= WEFT_MARK_BYTES_MAX &&                                      \
                       sizeof end - 1 <= WEFT_MARK_BYTES_MAX,                                      \
                   "marks are short");
WEFT_MARKS_LIST(FITS)
#undef FITS

bool weft_grammar_find_marks(struct weft_str begin, struct weft_str end,
                             enum weft_grammar_marks *marks_out) {
    *marks_out = (enum weft_grammar_marks)0;
    for (int i = 0; i < WEFT_MARKS_COUNT; i++) {
        struct weft_mark_texts texts = weft_grammar_mark_texts((enum weft_grammar_marks)i);
        if (!weft_str_is(begin, texts.begin.data, texts.begin.len) ||
            !weft_str_is(end, texts.end.data, texts.end.len))
            continue;
        *marks_out = (enum weft_grammar_marks)i;
        return true;
    }
    return false;
}

weft_err weft_grammar_check(const struct weft_grammar *grammar, struct weft_errmsg *why) {
    if (grammar->kind >= WEFT_GRAMMAR_COUNT || grammar->thinking >= WEFT_THINKING_COUNT ||
        grammar->marks >= WEFT_MARKS_COUNT)
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
