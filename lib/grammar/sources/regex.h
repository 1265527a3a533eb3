/* grammar/regex: the text of a regular expression as an expression over bytes.
 *
 * Syntax   What Python's `re` and ECMA-262 share: literals, escapes, classes, groups (named ones, too),
 *          alternation, greedy and lazy quantifiers (the language is the same), anchors, look-ahead.
 *         \d \w \s are ECMA's in a search, in a match ASCII's where such characters fit and Python's where they
 *         do not (\D, [^\d], (?!\d)). In a match also Python's (?i) at the
 *          start, (?i:...), (?s:...); letters of any case are ASCII's and those that Python takes for them.
 * Refused  Look-behind, backreferences, \b, POSIX classes, other inline flags, possessive
 *          quantifiers and atomic groups, \p; look-ahead and anchors within a repeat.
 */
#ifndef WEFTI_GRAMMAR_REGEX_H
#define WEFTI_GRAMMAR_REGEX_H

#include "base/str.h"
#include "expr/chars.h"

enum wefti_regex_kind {
    WEFTI_REGEX_MATCH,  /* all of the text, as vLLM's "regex"; Python's syntax */
    WEFTI_REGEX_SEARCH, /* anywhere in it, as JSON Schema's "pattern"; ECMA's syntax */
};

/* `writing`: how the texts are written that are matched. INVAL: no such syntax, or no plain text
 * matches; UNSUPPORTED: see above; TOOBIG: too long, too deep, or the pool is full. */
WEFT_MUST_CHECK weft_err wefti_regex_expr(wefti_expr_pool *pool, struct weft_str text,
                                          enum wefti_regex_kind kind, enum wefti_writing writing,
                                          wefti_expr *expr_out, struct weft_errmsg *why);

/* Flags of Python's `re` for all of the expression. */
#define WEFTI_REGEX_ANY_CASE 1u
#define WEFTI_REGEX_DOT_ALL 2u

/* One word of a larger text, in Python's syntax. What looks beyond the word is refused: anchors and
 * look-ahead; lazy quantifiers, too, which mean that a word ends where it first may. */
WEFT_MUST_CHECK weft_err wefti_regex_word(wefti_expr_pool *pool, struct weft_str text,
                                          unsigned flags, wefti_expr *expr_out,
                                          struct weft_errmsg *why);

#endif
