/* regex — the regular expressions of tokenizers, with bounds on their time. */
#ifndef WEFT_TOK_REGEX_H
#define WEFT_TOK_REGEX_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct wefti_tok_regex {
    pcre2_code *code;
    bool jit;
};

/* What one thread needs for matching, with its bounds: on each match, and on the time of all
 * matches in proportion to the text. */
struct wefti_tok_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    uint64_t budget_ns, matching_ns; /* for all matches together; spent so far */
    uint64_t begun_ns;               /* by the thread's clock */
};

/* `pattern` is in Oniguruma's syntax, as far as tokenizers use it, or (`literal`) plain text. */
weft_err wefti_tok_regex_init(struct wefti_tok_regex *regex, const char *pattern, size_t len,
                              bool literal, struct weft_errmsg *why);
void wefti_tok_regex_fini(struct wefti_tok_regex *regex);

weft_err wefti_tok_matcher_init(struct wefti_tok_matcher *matcher, size_t text_bytes);
void wefti_tok_matcher_fini(struct wefti_tok_matcher *matcher);

struct wefti_tok_match {
    bool found;
    size_t start, end; /* only if found */
};

/* The first match at or after `from`. `text` is valid UTF-8. TIMEOUT when a bound is reached. */
weft_err wefti_tok_regex_find(const struct wefti_tok_regex *regex,
                              struct wefti_tok_matcher *matcher, struct weft_str text, size_t from,
                              struct wefti_tok_match *match_out, struct weft_errmsg *why);

#endif
