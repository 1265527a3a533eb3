/* Regular expressions of pre-tokenizers, on PCRE2.
 *
 * tokenizer.json files are written for Oniguruma. Almost all of the syntax they use means the same
 * in both engines; the rest is rewritten here (\s, \w, \h, \u) or refused, so text is never
 * silently cut differently.
 *
 * Bounds: the match limit ends exponential backtracking, the just-in-time code runs on the 32 KiB
 * of stack it takes by default and falls back to the interpreter, whose heap has a limit of its
 * own, and all matches in a text together have a limit of time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/check.h"
#include "normalize/regex.h"

#define PATTERN_BYTES_MAX 65536 /* the longest seen has 1200 */
#define MATCH_LIMIT 20000000u   /* backtracking steps of one match: about a second */
#define HEAP_LIMIT_KIB 262144u
/* The time limit for all matches in a text: a second, and over twenty times what the slowest
 * pattern in use takes. Without it, matches that each stay below their limit could take quadratic
 * time together. */
#define TEXT_NS_BASE 1000000000u
#define TEXT_NS_PER_BYTE 4000u

/* Bodies of character classes. PCRE2's own \s also takes U+180E, which left White_Space in Unicode
 * 6.3; its \w lacks marks and connectors. */
#define SPACES                                                                                     \
    "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
    "\\x{3000}"
#define NON_SPACES                                                                                 \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{"     \
    "1fff}"                                                                                        \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"                 \
    "\\x{3001}-\\x{10ffff}"
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"

struct rewrite {
    const char *at, *end;
    bool in_class;
    struct weft_buf *out;
};

static weft_err refuse(struct weft_errmsg *why, const char *what) {
    return weft_err_set(why, WEFT_E_UNSUPPORTED,
                        "the tokenizer's regular expression has %s, which is not supported", what);
}

static void add_set(struct rewrite *re, const char *body, const char *negation) {
    if (!re->in_class)
        weft_buf_printf(re->out, "[%s%s]", negation, body);
    else
        weft_buf_add_str(re->out, body);
}

/* The {L} of \p{L}: not an interval. A script's name stands for its own characters, which PCRE2 only takes it for when
 * told so. */
static void copy_braces(struct rewrite *re) {
    static const char *const scripts[] = {"Han",    "Hiragana", "Katakana", "Hangul",
                                          "Thai",   "Latin",    "Cyrillic", "Greek",
                                          "Arabic", "Hebrew",   "Bopomofo", "Devanagari"};
    const char *end = re->at;
    if (end == re->end || *end != '{') return;
    while (end < re->end && *end != '}')
        end++;
    if (end < re->end) end++;
    size_t len = (size_t)(end - re->at), from = len > 1 && re->at[1] == '^' ? 2 : 1;
    weft_buf_add(re->out, re->at, from < len ? from : len);
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts && len > from; i++)
        if (weft_str_is((struct weft_str){re->at + from, len - from - 1}, scripts[i],
                        strlen(scripts[i])))
            weft_buf_add_str(re->out, "sc:");
    if (from < len) weft_buf_add(re->out, re->at + from, len - from);
    re->at = end;
}

static weft_err rewrite_escape(struct rewrite *re, struct weft_errmsg *why) {
    if (re->end - re->at < 2) return refuse(why, "a lone backslash at its end");
    char c = re->at[1];
    switch (c) {
    case 's':
        add_set(re, SPACES, "");
        break;
    case 'S':
        add_set(re, NON_SPACES, "");
        break;
    case 'w':
        add_set(re, WORD, "");
        break;
    case 'W':
        if (re->in_class) return refuse(why, "\\W inside a class");
        add_set(re, WORD, "^");
        break;
    case 'h':
        add_set(re, "0-9a-fA-F", "");
        break;
    case 'u':
        if (re->end - re->at < 6) return refuse(why, "a short \\u");
        weft_buf_printf(re->out, "\\x{%.4s}", re->at + 2);
        re->at += 6;
        return WEFT_OK;
    case 'b':
        if (re->in_class) return refuse(why, "\\b inside a class");
        weft_buf_add_str(re->out,
                         "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))");
        break;
    case 'B':
    case 'H':
    case 'g':
    case 'K':
    case 'R':
    case 'X':
    case 'y':
    case 'Y':
    case 'Q':
    case 'E':
    case 'C':
    case 'M': {
        char what[] = "\\?";
        what[1] = c;
        return refuse(why, what);
    }
    default:
        weft_buf_add(re->out, re->at, 2);
    }
    re->at += 2;
    if (strchr("pPx", c)) copy_braces(re);
    return WEFT_OK;
}

/* Oniguruma reads {1,3}+ as a repeated interval, PCRE2 as a possessive one. */
static bool is_possessive_interval(const struct rewrite *re) {
    return *re->at == '}' && re->end - re->at > 1 && re->at[1] == '+';
}

static weft_err rewrite_char(struct rewrite *re, struct weft_errmsg *why) {
    bool pair = re->end - re->at > 1;
    switch (*re->at) {
    case '[':
        if (re->in_class && !(pair && re->at[1] == ':'))
            return refuse(why, "a class inside a class");
        if (re->in_class) return refuse(why, "a POSIX class");
        re->in_class = true;
        weft_buf_add_char(re->out, *re->at++);
        if (re->at < re->end && *re->at == '^') weft_buf_add_char(re->out, *re->at++);
        if (re->at < re->end && *re->at == ']') return refuse(why, "an empty class");
        return WEFT_OK;
    case ']':
        re->in_class = false;
        break;
    case '&':
        if (re->in_class && pair && re->at[1] == '&') return refuse(why, "a class intersection");
        break;
    case '(':
        if (!re->in_class && pair && re->at[1] == '*') return refuse(why, "a (*VERB)");
        break;
    case '}':
        if (!re->in_class && is_possessive_interval(re))
            return refuse(why, "an interval followed by +");
        break;
    default:
        break;
    }
    weft_buf_add_char(re->out, *re->at++);
    return WEFT_OK;
}

static weft_err to_pcre2(const char *pattern, size_t len, struct weft_buf *out,
                         struct weft_errmsg *why) {
    /* DeepSeek's files have this pattern. It takes quadratic time if tried at every space of a long
     * run; no match begins inside a run except where the last one ended. */
    static const char trailing[] = "\\s+$";
    if (len == sizeof trailing - 1 && memcmp(pattern, trailing, len) == 0)
        weft_buf_add_str(out, "(?:\\G|(?<![" SPACES "]))");
    struct rewrite re = {pattern, pattern + len, false, out};
    weft_err err = WEFT_OK;
    while (re.at < re.end && !err)
        err = *re.at == '\\' ? rewrite_escape(&re, why) : rewrite_char(&re, why);
    if (!err && out->failed) err = WEFT_E_NOMEM;
    return err;
}

weft_err wefti_tok_regex_init(struct wefti_tok_regex *regex, const char *pattern, size_t len,
                              bool literal, struct weft_errmsg *why) {
    weft_err err;
    struct weft_buf text;
    pcre2_compile_context *context = NULL;
    *regex = (struct wefti_tok_regex){0};
    weft_buf_init(&text, (size_t)PATTERN_BYTES_MAX * 64);
    if (len > PATTERN_BYTES_MAX) {
        err = weft_err_set(why, WEFT_E_TOOBIG, "a regular expression of %zu bytes; the limit is %d",
                           len, PATTERN_BYTES_MAX);
        goto cleanup;
    }
    if (literal) weft_buf_add(&text, pattern, len);
    err = literal ? WEFT_OK : to_pcre2(pattern, len, &text, why);
    if (err) goto cleanup;
    err = WEFT_E_NOMEM;
    context = pcre2_compile_context_create(NULL);
    if (!context) goto cleanup;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    /* In Oniguruma ^ and $ match at lines. */
    uint32_t options =
        PCRE2_UTF |
        (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
    int code;
    PCRE2_SIZE at;
    regex->code =
        pcre2_compile((PCRE2_SPTR)weft_buf_cstr(&text), text.len, options, &code, &at, context);
    if (!regex->code) {
        PCRE2_UCHAR what[128] = "";
        (void)pcre2_get_error_message(code, what, sizeof what);
        if (code == PCRE2_ERROR_HEAP_FAILED) goto cleanup;
        err = weft_err_set(why, WEFT_E_UNSUPPORTED,
                           "the tokenizer's regular expression \"%.200s\" does not compile: %s",
                           weft_buf_cstr(&text), (const char *)what);
        goto cleanup;
    }
    regex->jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    err = WEFT_OK;
cleanup:
    if (context) pcre2_compile_context_free(context);
    weft_buf_fini(&text);
    return err;
}

void wefti_tok_regex_fini(struct wefti_tok_regex *regex) {
    if (regex->code) pcre2_code_free(regex->code);
    *regex = (struct wefti_tok_regex){0};
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The coarse clock, which is cheap, measures the time in matching. If that exceeds the budget, the
 * thread's CPU clock says whether the time was computed or waited. */
static bool is_out_of_time(struct wefti_tok_matcher *matcher, uint64_t match_begun_ns) {
    matcher->matching_ns += clock_ns(CLOCK_MONOTONIC_COARSE) - match_begun_ns;
    return matcher->matching_ns > matcher->budget_ns &&
           clock_ns(CLOCK_THREAD_CPUTIME_ID) - matcher->begun_ns > matcher->budget_ns;
}

weft_err wefti_tok_matcher_init(struct wefti_tok_matcher *matcher, size_t text_bytes) {
    matcher->begun_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    matcher->budget_ns = TEXT_NS_BASE + (uint64_t)text_bytes * TEXT_NS_PER_BYTE;
    matcher->matching_ns = 0;
    matcher->data = pcre2_match_data_create(1, NULL); /* the whole match only */
    matcher->context = pcre2_match_context_create(NULL);
    if (!matcher->data || !matcher->context) return WEFT_E_NOMEM; /* fini frees what is there */
    pcre2_set_match_limit(matcher->context, MATCH_LIMIT);
    pcre2_set_heap_limit(matcher->context, HEAP_LIMIT_KIB);
    return WEFT_OK;
}

void wefti_tok_matcher_fini(struct wefti_tok_matcher *matcher) {
    if (matcher->data) pcre2_match_data_free(matcher->data);
    if (matcher->context) pcre2_match_context_free(matcher->context);
    *matcher = (struct wefti_tok_matcher){0};
}

weft_err wefti_tok_regex_find(const struct wefti_tok_regex *regex,
                              struct wefti_tok_matcher *matcher, struct weft_str text, size_t from,
                              struct wefti_tok_match *match_out, struct weft_errmsg *why) {
    WEFT_ASSERT(regex->code);
    WEFT_ASSERT(from <= text.len);
    *match_out = (struct wefti_tok_match){0};
    uint64_t begun_ns = clock_ns(CLOCK_MONOTONIC_COARSE);
    int n = PCRE2_ERROR_JIT_STACKLIMIT;
    PCRE2_SPTR subject = (PCRE2_SPTR)text.data;
    if (regex->jit)
        n = pcre2_jit_match(regex->code, subject, text.len, from, PCRE2_NO_UTF_CHECK, matcher->data,
                            matcher->context);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(regex->code, subject, text.len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        matcher->data, matcher->context);
    if (is_out_of_time(matcher, begun_ns))
        return weft_err_set(why, WEFT_E_TIMEOUT,
                            "the tokenizer's regular expressions take too long on this text");
    if (n == PCRE2_ERROR_NOMATCH) return WEFT_OK;
    if (n < 0) {
        PCRE2_UCHAR what[128] = "";
        (void)pcre2_get_error_message(n, what, sizeof what);
        return weft_err_set(why, n == PCRE2_ERROR_NOMEMORY ? WEFT_E_NOMEM : WEFT_E_TIMEOUT,
                            "the tokenizer's regular expression gave up on this text: %s",
                            (const char *)what);
    }
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(matcher->data);
    if (offsets[0] > offsets[1]) /* only \K in a lookahead can do that */
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "the tokenizer's regular expression matches backwards");
    WEFT_ASSERT(offsets[1] <= text.len);
    *match_out = (struct wefti_tok_match){true, offsets[0], offsets[1]};
    return WEFT_OK;
}
