/* Jinja's lexical level: text, tags, and the white-space control between them.
 *
 * Templates of language models are written for trim_blocks and lstrip_blocks (transformers sets
 * both): a block tag swallows the newline after it and the indentation before it, a "-" inside any
 * tag's brace swallows all white space on that side, a "+" switches either off. */
#include "syntax/lex.h"
#include "base/check.h"
#include "codec/utf8.h"

void wefti_tmpl_lex_init(struct wefti_tmpl_lex *lex, const char *source, size_t len) {
    *lex = (struct wefti_tmpl_lex){.start = source,
                                   .at = source,
                                   .end = source + len,
                                   .line = 1,
                                   .inside = WEFTI_TMPL_LEX_TEXT};
}

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void advance_to(struct wefti_tmpl_lex *lex, const char *to) {
    WEFT_ASSERT(to >= lex->at && to <= lex->end);
    for (; lex->at < to; lex->at++)
        lex->line += *lex->at == '\n';
}

/* "{{", "{%" or "{#" at or after the current place; the end when there is none. */
static const char *find_tag(const struct wefti_tmpl_lex *lex) {
    for (const char *at = lex->at; lex->end - at >= 2; at++) {
        at = memchr(at, '{', (size_t)(lex->end - at) - 1);
        if (!at) break;
        if (at[1] == '{' || at[1] == '%' || at[1] == '#') return at;
    }
    return lex->end;
}

/* The end of the text before the tag at `tag`, after the tag's white-space control. */
static const char *text_end(const struct wefti_tmpl_lex *lex, const char *text, const char *tag) {
    if (lex->end - tag < 2) return tag;
    char sign = lex->end - tag > 2 ? tag[2] : 0;
    const char *end = tag;
    if (sign == '-') {
        while (end > text && is_blank(end[-1]))
            end--;
        return end;
    }
    if (tag[1] == '{' || sign == '+') return tag;
    while (end > text && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    bool at_line_start = end == lex->start || end[-1] == '\n';
    return at_line_start ? end : tag;
}

/* Skips the text that the last tag's right side swallows. */
static void strip_left(struct wefti_tmpl_lex *lex) {
    const char *to = lex->at;
    if (lex->strip_next) {
        while (to < lex->end && is_blank(*to))
            to++;
    } else if (lex->trim_next && to < lex->end && *to == '\n') {
        to++;
    }
    advance_to(lex, to);
    lex->strip_next = lex->trim_next = false;
}

static weft_err skip_comment(struct wefti_tmpl_lex *lex, struct weft_errmsg *why) {
    uint32_t line = lex->line;
    const char *end = memmem(lex->at + 2, (size_t)(lex->end - lex->at) - 2, "#}", 2);
    if (!end) return weft_err_set(why, WEFT_E_PROTO, "chat template, line %u: {# without #}", line);
    lex->strip_next = end > lex->at + 2 && end[-1] == '-';
    lex->trim_next = end[-1] != '+';
    advance_to(lex, end + 2);
    return WEFT_OK;
}

/* Matches a tag such as "raw -%}" after "{%" at `tag`: its end, or NULL for another. *signs_out
 * gets the tag's two signs. */
static const char *match_tag(const struct wefti_tmpl_lex *lex, const char *tag, const char *word,
                             char signs_out[2]) {
    const char *at = tag + 2;
    size_t len = strlen(word);
    signs_out[0] = at < lex->end && (*at == '-' || *at == '+') ? *at++ : 0;
    while (at < lex->end && is_blank(*at))
        at++;
    if ((size_t)(lex->end - at) < len || memcmp(at, word, len) != 0) return NULL;
    at += len;
    while (at < lex->end && is_blank(*at))
        at++;
    signs_out[1] = at < lex->end && (*at == '-' || *at == '+') ? *at++ : 0;
    return lex->end - at >= 2 && at[0] == '%' && at[1] == '}' ? at + 2 : NULL;
}

static void after_block(struct wefti_tmpl_lex *lex, char sign) {
    lex->strip_next = sign == '-';
    lex->trim_next = sign != '+';
}

/* The text between raw and endraw; `body` is where it begins. */
static weft_err take_raw(struct wefti_tmpl_lex *lex, const char *body, char sign,
                         struct wefti_tmpl_lexeme *out, struct weft_errmsg *why) {
    char signs[2];
    uint32_t line = lex->line;
    advance_to(lex, body);
    lex->strip_next = sign == '-'; /* the newline after it stays, unlike after other blocks */
    strip_left(lex);
    out->kind = WEFTI_TMPL_LEX_TEXT;
    out->line = lex->line;
    for (const char *at = lex->at; lex->end - at >= 2; at++) {
        at = memmem(at, (size_t)(lex->end - at), "{%", 2);
        if (!at) break;
        const char *end = match_tag(lex, at, "endraw", signs);
        if (!end) continue;
        out->text = (struct weft_str){lex->at, (size_t)(text_end(lex, lex->at, at) - lex->at)};
        advance_to(lex, end);
        after_block(lex, signs[1]);
        return WEFT_OK;
    }
    return weft_err_set(why, WEFT_E_PROTO, "chat template, line %u: raw without endraw", line);
}

static weft_err next_outside(struct wefti_tmpl_lex *lex, struct wefti_tmpl_lexeme *out,
                             struct weft_errmsg *why) {
    for (;;) {
        strip_left(lex);
        const char *tag = find_tag(lex), *text = lex->at, *end = text_end(lex, text, tag);
        out->line = lex->line;
        advance_to(lex, tag);
        if (end > text) {
            out->kind = WEFTI_TMPL_LEX_TEXT;
            out->text = (struct weft_str){text, (size_t)(end - text)};
            return WEFT_OK;
        }
        out->line = lex->line;
        if (tag == lex->end) {
            out->kind = WEFTI_TMPL_LEX_END;
            return WEFT_OK;
        }
        char signs[2];
        const char *raw = tag[1] == '%' ? match_tag(lex, tag, "raw", signs) : NULL;
        if (raw) return take_raw(lex, raw, signs[1], out, why);
        if (tag[1] != '#') break;
        weft_err err = skip_comment(lex, why);
        if (err) return err;
    }
    lex->n_open = 0;
    lex->after_dot = false;
    out->kind = lex->inside =
        lex->at[1] == '{' ? WEFTI_TMPL_LEX_OPEN_EXPR : WEFTI_TMPL_LEX_OPEN_TAG;
    out->text = (struct weft_str){lex->at, 2};
    lex->at += 2;
    if (lex->at < lex->end && (*lex->at == '-' || *lex->at == '+')) lex->at++;
    return WEFT_OK;
}

/* "}}" or "%}", perhaps with a sign before it. */
static bool take_close(struct wefti_tmpl_lex *lex, struct wefti_tmpl_lexeme *out) {
    if (lex->n_open > 0) return false;
    bool in_expr = lex->inside == WEFTI_TMPL_LEX_OPEN_EXPR;
    const char *at = lex->at;
    char sign = *at == '-' || *at == '+' ? *at++ : 0;
    if (lex->end - at < 2 || at[0] != (in_expr ? '}' : '%') || at[1] != '}') return false;
    lex->at = at + 2;
    lex->strip_next = sign == '-';
    lex->trim_next = !in_expr && sign != '+';
    lex->inside = WEFTI_TMPL_LEX_TEXT;
    out->kind = in_expr ? WEFTI_TMPL_LEX_CLOSE_EXPR : WEFTI_TMPL_LEX_CLOSE_TAG;
    out->text = (struct weft_str){at, 2};
    return true;
}

static weft_err take_string(struct wefti_tmpl_lex *lex, struct wefti_tmpl_lexeme *out,
                            struct weft_errmsg *why) {
    WEFT_ASSERT(*lex->at == '\'' || *lex->at == '"');
    char quote = *lex->at;
    const char *text = lex->at + 1, *at = text;
    while (at < lex->end && *at != quote)
        at += *at == '\\' && lex->end - at > 1 ? 2 : 1;
    if (at >= lex->end)
        return weft_err_set(why, WEFT_E_PROTO, "chat template, line %u: a string without an end",
                            out->line);
    out->kind = WEFTI_TMPL_LEX_STRING;
    out->text = (struct weft_str){text, (size_t)(at - text)};
    advance_to(lex, at + 1);
    return WEFT_OK;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* 1, 1_000, 0x1f, 1.5, 1e9, 1.5e-3. */
static void take_number(struct wefti_tmpl_lex *lex, struct wefti_tmpl_lexeme *out) {
    const char *at = lex->at, *end = lex->end;
    out->kind = WEFTI_TMPL_LEX_INT;
    bool prefixed = end - at > 2 && at[0] == '0' && !is_digit(at[1]) && at[1] != '_' &&
                    is_name(at[1]) && at[1] != 'e' && at[1] != 'E';
    while (at < end && (is_digit(*at) || *at == '_' || (prefixed && is_name(*at))))
        at++;
    if (!prefixed && !lex->after_dot) {
        if (end - at >= 2 && *at == '.' && is_digit(at[1])) {
            out->kind = WEFTI_TMPL_LEX_FLOAT;
            for (at++; at < end && (is_digit(*at) || *at == '_');)
                at++;
        }
        const char *digits = at + 1;
        if (at < end && (*at == 'e' || *at == 'E')) {
            if (digits < end && (*digits == '+' || *digits == '-')) digits++;
            if (digits < end && is_digit(*digits)) {
                out->kind = WEFTI_TMPL_LEX_FLOAT;
                for (at = digits; at < end && is_digit(*at);)
                    at++;
            }
        }
    }
    out->text = (struct weft_str){lex->at, (size_t)(at - lex->at)};
    lex->at = at;
}

static void take_op(struct wefti_tmpl_lex *lex, struct wefti_tmpl_lexeme *out) {
    static const char two[][3] = {"==", "!=", "<=", ">=", "//", "**"};
    out->kind = WEFTI_TMPL_LEX_OP;
    out->text = (struct weft_str){lex->at, weft_utf8_len(*lex->at)};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (lex->end - lex->at >= 2 && memcmp(lex->at, two[i], 2) == 0) out->text.len = 2;
    lex->n_open += strchr("([{", *lex->at) && *lex->at;
    if (lex->n_open > 0 && *lex->at && strchr(")]}", *lex->at)) lex->n_open--;
    lex->at += out->text.len;
}

static void take_name(struct wefti_tmpl_lex *lex, struct wefti_tmpl_lexeme *out) {
    const char *at = lex->at;
    while (at < lex->end && (is_name(*at) || is_digit(*at)))
        at++;
    out->kind = WEFTI_TMPL_LEX_NAME;
    out->text = (struct weft_str){lex->at, (size_t)(at - lex->at)};
    lex->at = at;
}

weft_err wefti_tmpl_lex_next(struct wefti_tmpl_lex *lex, struct wefti_tmpl_lexeme *out,
                             struct weft_errmsg *why) {
    *out = (struct wefti_tmpl_lexeme){.text = {"", 0}};
    if (lex->inside == WEFTI_TMPL_LEX_TEXT) return next_outside(lex, out, why);
    const char *to = lex->at;
    while (to < lex->end && is_blank(*to))
        to++;
    advance_to(lex, to);
    out->line = lex->line;
    if (lex->at == lex->end)
        return weft_err_set(why, WEFT_E_PROTO, "chat template, line %u: a tag without an end",
                            lex->line);
    if (take_close(lex, out)) return WEFT_OK;
    char c = *lex->at;
    if (c == '\'' || c == '"') return take_string(lex, out, why);
    if (is_name(c))
        take_name(lex, out);
    else if (is_digit(c))
        take_number(lex, out);
    else
        take_op(lex, out);
    lex->after_dot = c == '.';
    return WEFT_OK;
}
