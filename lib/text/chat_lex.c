/* Jinja's lexical level: text, tags, and the white-space control between them.
 *
 * Templates of language models are written for trim_blocks and lstrip_blocks (transformers sets
 * both): a block tag swallows the newline behind it and the indentation before it, a "-" inside any
 * tag's brace swallows all white space on that side, a "+" switches either off. */
#include "base/check.h"
#include "text_internal.h"

void wefti_lex_init(struct wefti_lex *lex, const char *source, size_t len) {
    *lex = (struct wefti_lex){
        .start = source, .at = source, .end = source + len, .line = 1, .inside = WEFTI_LEX_TEXT};
}

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void advance_to(struct wefti_lex *lex, const char *to) {
    WEFT_ASSERT(to >= lex->at && to <= lex->end);
    for (; lex->at < to; lex->at++)
        lex->line += *lex->at == '\n';
}

/* "{{", "{%" or "{#" at or after the current place; the end when there is none. */
static const char *find_tag(const struct wefti_lex *lex) {
    for (const char *at = lex->at; lex->end - at >= 2; at++) {
        at = memchr(at, '{', (size_t)(lex->end - at) - 1);
        if (!at) break;
        if (at[1] == '{' || at[1] == '%' || at[1] == '#') return at;
    }
    return lex->end;
}

/* Where the text before the tag at `tag` ends, once the tag's left side had its way. */
static const char *text_end(const struct wefti_lex *lex, const char *text, const char *tag) {
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

/* Skips what the last tag's right side takes of the text. */
static void strip_left(struct wefti_lex *lex) {
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

static weft_err skip_comment(struct wefti_lex *lex, struct weft_errmsg *why) {
    uint32_t line = lex->line;
    const char *end = memmem(lex->at + 2, (size_t)(lex->end - lex->at) - 2, "#}", 2);
    if (!end) return weft_err_set(why, WEFT_E_PROTO, "chat template, line %u: {# without #}", line);
    lex->strip_next = end > lex->at + 2 && end[-1] == '-';
    lex->trim_next = end[-1] != '+';
    advance_to(lex, end + 2);
    return WEFT_OK;
}

static weft_err next_outside(struct wefti_lex *lex, struct wefti_lexeme *out,
                             struct weft_errmsg *why) {
    for (;;) {
        strip_left(lex);
        const char *tag = find_tag(lex), *text = lex->at, *end = text_end(lex, text, tag);
        out->line = lex->line;
        advance_to(lex, tag);
        if (end > text) {
            out->kind = WEFTI_LEX_TEXT;
            out->text = (struct weft_str){text, (size_t)(end - text)};
            return WEFT_OK;
        }
        out->line = lex->line;
        if (tag == lex->end) {
            out->kind = WEFTI_LEX_END;
            return WEFT_OK;
        }
        if (tag[1] != '#') break;
        weft_err err = skip_comment(lex, why);
        if (err) return err;
    }
    out->kind = lex->inside = lex->at[1] == '{' ? WEFTI_LEX_OPEN_EXPR : WEFTI_LEX_OPEN_TAG;
    out->text = (struct weft_str){lex->at, 2};
    lex->at += 2;
    if (lex->at < lex->end && (*lex->at == '-' || *lex->at == '+')) lex->at++;
    return WEFT_OK;
}

/* "}}" or "%}", with a sign before it or not. */
static bool take_close(struct wefti_lex *lex, struct wefti_lexeme *out) {
    bool in_expr = lex->inside == WEFTI_LEX_OPEN_EXPR;
    const char *at = lex->at;
    char sign = *at == '-' || *at == '+' ? *at++ : 0;
    if (lex->end - at < 2 || at[0] != (in_expr ? '}' : '%') || at[1] != '}') return false;
    lex->at = at + 2;
    lex->strip_next = sign == '-';
    lex->trim_next = !in_expr && sign != '+';
    lex->inside = WEFTI_LEX_TEXT;
    out->kind = in_expr ? WEFTI_LEX_CLOSE_EXPR : WEFTI_LEX_CLOSE_TAG;
    out->text = (struct weft_str){at, 2};
    return true;
}

static weft_err take_string(struct wefti_lex *lex, struct wefti_lexeme *out,
                            struct weft_errmsg *why) {
    char quote = *lex->at;
    const char *text = lex->at + 1, *at = text;
    while (at < lex->end && *at != quote)
        at += *at == '\\' && lex->end - at > 1 ? 2 : 1;
    if (at >= lex->end)
        return weft_err_set(why, WEFT_E_PROTO, "chat template, line %u: a string without an end",
                            out->line);
    out->kind = WEFTI_LEX_STRING;
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

static void take_op(struct wefti_lex *lex, struct wefti_lexeme *out) {
    static const char two[][3] = {"==", "!=", "<=", ">=", "//", "**"};
    out->kind = WEFTI_LEX_OP;
    out->text = (struct weft_str){lex->at, 1};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (lex->end - lex->at >= 2 && memcmp(lex->at, two[i], 2) == 0) out->text.len = 2;
    lex->at += out->text.len;
}

weft_err wefti_lex_next(struct wefti_lex *lex, struct wefti_lexeme *out, struct weft_errmsg *why) {
    *out = (struct wefti_lexeme){.text = {"", 0}};
    if (lex->inside == WEFTI_LEX_TEXT) return next_outside(lex, out, why);
    const char *to = lex->at;
    while (to < lex->end && is_blank(*to))
        to++;
    advance_to(lex, to);
    out->line = lex->line;
    if (lex->at == lex->end)
        return weft_err_set(why, WEFT_E_PROTO, "chat template, line %u: a tag without an end",
                            lex->line);
    if (take_close(lex, out)) return WEFT_OK;
    const char *at = lex->at;
    if (*at == '\'' || *at == '"') return take_string(lex, out, why);
    if (is_name(*at)) {
        while (at < lex->end && (is_name(*at) || is_digit(*at)))
            at++;
        out->kind = WEFTI_LEX_NAME;
    } else if (is_digit(*at)) {
        while (at < lex->end && is_digit(*at))
            at++;
        out->kind = WEFTI_LEX_INT;
    } else {
        take_op(lex, out);
        return WEFT_OK;
    }
    out->text = (struct weft_str){lex->at, (size_t)(at - lex->at)};
    lex->at = at;
    return WEFT_OK;
}
