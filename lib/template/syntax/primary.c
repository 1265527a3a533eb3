/* Primaries and what follows them: literals, names, members, subscripts, calls, filters, tests. */
#include "base/check.h"
#include "base/parse.h"
#include "codec/utf8.h"
#include "syntax/parser.h"

/* --- literals --------------------------------------------------------------------------------- */

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

/* Writes the escape that begins after the backslash at raw[*i] and moves *i to its last byte. What
 * it writes is never longer than the escape. False: no such character. */
static bool unescape_one(struct weft_str raw, size_t *i, char *text, size_t *n) {
    static const char from[] = "ntrabfv\\'\"", to[] = "\n\t\r\a\b\f\v\\'\"";
    char c = raw.data[*i];
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) {
        text[(*n)++] = to[simple - from];
        return true;
    }
    if (c == '\n') return true; /* a line that goes on */
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, at = *i + 1;
    int base = 16;
    uint32_t code = 0;
    if (c >= '0' && c <= '7') {
        digits = 3;
        base = 8;
        at = *i;
    } else if (digits == 0) { /* Python keeps the backslash of an escape it does not know */
        text[(*n)++] = '\\';
        text[(*n)++] = c;
        return c != 'N';
    }
    size_t end = at + digits;
    for (; at < end && at < raw.len && digit_of(raw.data[at]) < base; at++)
        code = code * (uint32_t)base + (uint32_t)digit_of(raw.data[at]);
    if (base == 16 && at != end) return false;
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    struct weft_buf buf;
    weft_buf_init(&buf, 4);
    weft_utf8_put(&buf, code);
    bool ok = !buf.failed;
    if (ok) memcpy(text + *n, buf.data, buf.len);
    *n += buf.len;
    weft_buf_fini(&buf);
    *i = at - 1;
    return ok;
}

/* Resolves the escapes of a literal in place (it only shrinks): the text lies in tmpl->source. */
static weft_err unescape(struct wefti_tmpl_parser *parse, uint32_t line, struct weft_str raw,
                         struct weft_str *out) {
    char *text = parse->tmpl->source + (raw.data - parse->tmpl->source);
    size_t n = 0;
    for (size_t i = 0; i < raw.len; i++) {
        if (raw.data[i] != '\\' || i + 1 == raw.len) {
            text[n++] = raw.data[i];
            continue;
        }
        struct weft_str escape = {raw.data + i, raw.len - i < 6 ? raw.len - i : 2};
        i++;
        if (!unescape_one(raw, &i, text, &n))
            return wefti_tmpl_parse_refuse(parse, line, "the escape", escape);
    }
    *out = (struct weft_str){text, n};
    return WEFT_OK;
}

static weft_err parse_string(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_STRING, parse->now.line);
    weft_err err = unescape(parse, expr.line, parse->now.text, &expr.text);
    if (!err) err = wefti_tmpl_parse_take(parse);
    if (!err) err = wefti_tmpl_parse_add_expr(parse, expr, out);
    while (!err && parse->now.kind == WEFTI_TMPL_LEX_STRING) { /* 'a' 'b' is 'ab' */
        struct wefti_tmpl_expr sum = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_ADD, parse->now.line);
        sum.a = *out;
        expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_STRING, parse->now.line);
        err = unescape(parse, expr.line, parse->now.text, &expr.text);
        if (!err) err = wefti_tmpl_parse_take(parse);
        if (!err) err = wefti_tmpl_parse_add_expr(parse, expr, &sum.b);
        if (!err) err = wefti_tmpl_parse_add_expr(parse, sum, out);
    }
    return err;
}

static weft_err parse_number(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_lexeme now = parse->now;
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_INT, now.line);
    char digits[64];
    size_t n = 0;
    for (size_t i = 0; i < now.text.len && n < sizeof digits - 1; i++)
        if (now.text.data[i] != '_') digits[n++] = now.text.data[i];
    digits[n] = '\0';
    weft_err err = wefti_tmpl_parse_take(parse);
    if (err) return err;
    if (now.text.len >= sizeof digits)
        return wefti_tmpl_parse_refuse(parse, now.line, "the number", now.text);
    if (now.kind == WEFTI_TMPL_LEX_FLOAT) {
        expr.kind = WEFTI_TMPL_EXPR_FLOAT;
        if (weft_parse_double(digits, &expr.real))
            return wefti_tmpl_parse_refuse(parse, now.line, "the number", now.text);
        return wefti_tmpl_parse_add_expr(parse, expr, out);
    }
    int base = 10;
    const char *at = digits;
    if (digits[0] == '0' && digits[1] && !(digits[1] >= '0' && digits[1] <= '9')) {
        base = (digits[1] | 32) == 'x' ? 16 : (digits[1] | 32) == 'o' ? 8 : 2;
        at += 2;
    }
    for (; *at; at++)
        if (digit_of(*at) >= base ||
            __builtin_mul_overflow(expr.number, (int64_t)base, &expr.number) ||
            __builtin_add_overflow(expr.number, (int64_t)digit_of(*at), &expr.number))
            return wefti_tmpl_parse_refuse(parse, now.line, "the number", now.text);
    return wefti_tmpl_parse_add_expr(parse, expr, out);
}

static weft_err parse_name(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_lexeme now = parse->now;
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_NAME, now.line);
    if (wefti_tmpl_is_keyword(now.text)) return wefti_tmpl_parse_unexpected(parse, "an expression");
    expr.text = now.text;
    if (WEFT_STR_IS(now.text, "true") || WEFT_STR_IS(now.text, "True")) {
        expr.kind = WEFTI_TMPL_EXPR_BOOL;
        expr.number = 1;
    } else if (WEFT_STR_IS(now.text, "false") || WEFT_STR_IS(now.text, "False")) {
        expr.kind = WEFTI_TMPL_EXPR_BOOL;
    } else if (WEFT_STR_IS(now.text, "none") || WEFT_STR_IS(now.text, "None")) {
        expr.kind = WEFTI_TMPL_EXPR_NONE;
    }
    if (WEFT_STR_IS(now.text, "caller")) parse->uses |= WEFTI_TMPL_USES_CALLER;
    if (WEFT_STR_IS(now.text, "varargs")) parse->uses |= WEFTI_TMPL_USES_VARARGS;
    if (WEFT_STR_IS(now.text, "kwargs")) parse->uses |= WEFTI_TMPL_USES_KWARGS;
    weft_err err = wefti_tmpl_parse_take(parse);
    return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
}

static weft_err parse_list(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_LIST, parse->now.line);
    uint32_t last = WEFTI_TMPL_NO_IDX;
    weft_err err = wefti_tmpl_parse_take(parse);
    while (!err && !wefti_tmpl_parse_at_op(parse, "]")) {
        uint32_t item;
        err = wefti_tmpl_parse_expr(parse, &item);
        if (!err) err = wefti_tmpl_parse_add_plain(parse, item, &expr.args, &last);
        if (!err && !wefti_tmpl_parse_at_op(parse, "]"))
            err = wefti_tmpl_parse_expect_op(parse, ",");
    }
    if (!err) err = wefti_tmpl_parse_take(parse);
    return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
}

static weft_err parse_dict(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_DICT, parse->now.line);
    uint32_t last = WEFTI_TMPL_NO_IDX;
    weft_err err = wefti_tmpl_parse_take(parse);
    while (!err && !wefti_tmpl_parse_at_op(parse, "}")) {
        uint32_t key, value;
        err = wefti_tmpl_parse_expr(parse, &key);
        if (!err) err = wefti_tmpl_parse_expect_op(parse, ":");
        if (!err) err = wefti_tmpl_parse_expr(parse, &value);
        if (!err) err = wefti_tmpl_parse_add_plain(parse, key, &expr.args, &last);
        if (!err) err = wefti_tmpl_parse_add_plain(parse, value, &expr.args, &last);
        if (!err && !wefti_tmpl_parse_at_op(parse, "}"))
            err = wefti_tmpl_parse_expect_op(parse, ",");
    }
    if (!err) err = wefti_tmpl_parse_take(parse);
    return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
}

static weft_err parse_parens(struct wefti_tmpl_parser *parse, uint32_t *out) {
    weft_err err = wefti_tmpl_parse_take(parse);
    if (err) return err;
    if (wefti_tmpl_parse_at_op(parse, ")"))
        err = wefti_tmpl_parse_add_expr(
            parse, wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_TUPLE, parse->now.line), out);
    else
        err = wefti_tmpl_parse_tuple(parse, WEFTI_TMPL_TUPLE_WITH_IF, out);
    return err ? err : wefti_tmpl_parse_expect_op(parse, ")");
}

weft_err wefti_tmpl_parse_primary(struct wefti_tmpl_parser *parse, uint32_t *out) {
    *out = WEFTI_TMPL_NO_IDX;
    switch (parse->now.kind) {
    case WEFTI_TMPL_LEX_NAME:
        return parse_name(parse, out);
    case WEFTI_TMPL_LEX_STRING:
        return parse_string(parse, out);
    case WEFTI_TMPL_LEX_INT:
    case WEFTI_TMPL_LEX_FLOAT:
        return parse_number(parse, out);
    default:
        break;
    }
    if (wefti_tmpl_parse_at_op(parse, "(")) return parse_parens(parse, out);
    if (wefti_tmpl_parse_at_op(parse, "[")) return parse_list(parse, out);
    if (wefti_tmpl_parse_at_op(parse, "{")) return parse_dict(parse, out);
    return wefti_tmpl_parse_unexpected(parse, "an expression");
}

/* --- what follows a primary ------------------------------------------------------------------- */

weft_err wefti_tmpl_parse_member(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_MEMBER, parse->now.line);
    expr.a = *out;
    weft_err err = wefti_tmpl_parse_take(parse); /* "." */
    if (err) return err;
    if (parse->now.kind == WEFTI_TMPL_LEX_INT) { /* a.0 is a[0] */
        expr.kind = WEFTI_TMPL_EXPR_INDEX;
        err = parse_number(parse, &expr.b);
        return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
    }
    expr.text = parse->now.text;
    err = wefti_tmpl_parse_expect(parse, WEFTI_TMPL_LEX_NAME, "a name");
    return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
}

/* a[b], a[b:c:d], a[b, c]; after the "[". */
static weft_err parse_subscript(struct wefti_tmpl_parser *parse, struct wefti_tmpl_expr *expr) {
    uint32_t parts[3] = {WEFTI_TMPL_NO_IDX, WEFTI_TMPL_NO_IDX, WEFTI_TMPL_NO_IDX},
             last = WEFTI_TMPL_NO_IDX;
    size_t n = 0;
    weft_err err = WEFT_OK;
    while (!err && n < 3) {
        if (!wefti_tmpl_parse_at_op(parse, ":") && !wefti_tmpl_parse_at_op(parse, "]")) {
            err = n ? wefti_tmpl_parse_expr(parse, &parts[n])
                    : wefti_tmpl_parse_tuple(parse, WEFTI_TMPL_TUPLE_WITH_IF, &parts[0]);
        }
        n++;
        if (err || !wefti_tmpl_parse_at_op(parse, ":") || n == 3) break;
        expr->kind = WEFTI_TMPL_EXPR_SLICE;
        err = wefti_tmpl_parse_take(parse);
    }
    if (err) return err;
    if (expr->kind != WEFTI_TMPL_EXPR_SLICE) {
        expr->b = parts[0];
        return parts[0] == WEFTI_TMPL_NO_IDX ? wefti_tmpl_parse_unexpected(parse, "an expression")
                                             : WEFT_OK;
    }
    for (size_t i = 0; i < 3 && !err; i++)
        err = wefti_tmpl_parse_add_plain(parse, parts[i], &expr->args, &last);
    return err;
}

static weft_err parse_index(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_INDEX, parse->now.line);
    expr.a = *out;
    weft_err err = wefti_tmpl_parse_take(parse); /* "[" */
    if (!err) err = parse_subscript(parse, &expr);
    if (!err) err = wefti_tmpl_parse_expect_op(parse, "]");
    return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
}

/* One of a call's arguments. "a = b" needs a look beyond the name: the lexer is copied for it. */
static weft_err parse_arg(struct wefti_tmpl_parser *parse, struct wefti_tmpl_arg *arg) {
    weft_err err = WEFT_OK;
    arg->name = WEFTI_TMPL_NOTHING;
    if (wefti_tmpl_parse_at_op(parse, "*") || wefti_tmpl_parse_at_op(parse, "**")) {
        arg->kind = wefti_tmpl_parse_at_op(parse, "*") ? WEFTI_TMPL_ARG_LIST : WEFTI_TMPL_ARG_DICT;
        err = wefti_tmpl_parse_take(parse);
    } else if (parse->now.kind == WEFTI_TMPL_LEX_NAME) {
        struct wefti_tmpl_lex lex = parse->lex;
        struct wefti_tmpl_lexeme next;
        err = wefti_tmpl_lex_next(&lex, &next, parse->why);
        if (!err && next.kind == WEFTI_TMPL_LEX_OP && WEFT_STR_IS(next.text, "=")) {
            arg->kind = WEFTI_TMPL_ARG_NAMED;
            arg->name = parse->now.text;
            err = wefti_tmpl_parse_take(parse);
            if (!err) err = wefti_tmpl_parse_take(parse);
        }
    }
    return err ? err : wefti_tmpl_parse_expr(parse, &arg->expr);
}

/* At "(". */
static weft_err parse_args(struct wefti_tmpl_parser *parse, uint32_t *first_out) {
    uint32_t last = WEFTI_TMPL_NO_IDX;
    bool named = false;
    weft_err err = wefti_tmpl_parse_take(parse);
    while (!err && !wefti_tmpl_parse_at_op(parse, ")")) {
        struct wefti_tmpl_arg arg = {.kind = WEFTI_TMPL_ARG_PLAIN};
        err = parse_arg(parse, &arg);
        if (!err && named && arg.kind == WEFTI_TMPL_ARG_PLAIN)
            return wefti_tmpl_parse_unexpected(parse, "an argument with a name");
        named |= arg.kind == WEFTI_TMPL_ARG_NAMED || arg.kind == WEFTI_TMPL_ARG_DICT;
        if (!err) err = wefti_tmpl_parse_add_arg(parse, arg, first_out, &last);
        if (!err && !wefti_tmpl_parse_at_op(parse, ")"))
            err = wefti_tmpl_parse_expect_op(parse, ",");
    }
    return err ? err : wefti_tmpl_parse_take(parse);
}

static weft_err parse_call(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_CALL, parse->now.line);
    expr.a = *out;
    weft_err err = parse_args(parse, &expr.args);
    return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
}

weft_err wefti_tmpl_parse_postfix(struct wefti_tmpl_parser *parse, uint32_t *out) {
    weft_err err = WEFT_OK;
    while (!err) {
        if (wefti_tmpl_parse_at_op(parse, "."))
            err = wefti_tmpl_parse_member(parse, out);
        else if (wefti_tmpl_parse_at_op(parse, "["))
            err = parse_index(parse, out);
        else if (wefti_tmpl_parse_at_op(parse, "("))
            err = parse_call(parse, out);
        else
            break;
    }
    return err;
}

/* At the filter's name. */
static weft_err parse_filter(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_lexeme name = parse->now;
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_FILTER, name.line);
    expr.a = *out;
    weft_err err = wefti_tmpl_parse_expect(parse, WEFTI_TMPL_LEX_NAME, "a filter");
    if (err) return err;
    expr.text = name.text;
    if (wefti_tmpl_parse_at_op(parse, "(")) err = parse_args(parse, &expr.args);
    return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
}

weft_err wefti_tmpl_parse_filters(struct wefti_tmpl_parser *parse, uint32_t *out) {
    weft_err err = wefti_tmpl_parse_add_expr(
        parse, wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_WRITTEN, parse->now.line), out);
    if (!err && wefti_tmpl_parse_at_op(parse, "|")) err = wefti_tmpl_parse_take(parse);
    if (!err) err = parse_filter(parse, out);
    while (!err && wefti_tmpl_parse_at_op(parse, "|")) {
        err = wefti_tmpl_parse_take(parse);
        if (!err) err = parse_filter(parse, out);
    }
    return err;
}

static bool at_test_argument(const struct wefti_tmpl_parser *parse) {
    switch (parse->now.kind) {
    case WEFTI_TMPL_LEX_STRING:
    case WEFTI_TMPL_LEX_INT:
    case WEFTI_TMPL_LEX_FLOAT:
        return true;
    case WEFTI_TMPL_LEX_NAME:
        return !wefti_tmpl_is_keyword(parse->now.text) &&
               !wefti_tmpl_parse_at_word(parse, "recursive");
    default:
        return wefti_tmpl_parse_at_op(parse, "[") || wefti_tmpl_parse_at_op(parse, "{");
    }
}

static weft_err parse_test(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_TEST, parse->now.line);
    uint32_t last = WEFTI_TMPL_NO_IDX, arg = WEFTI_TMPL_NO_IDX;
    expr.a = *out;
    weft_err err = wefti_tmpl_parse_take(parse); /* "is" */
    if (!err && wefti_tmpl_parse_at_word(parse, "not")) {
        expr.negated = true;
        err = wefti_tmpl_parse_take(parse);
    }
    struct wefti_tmpl_lexeme name = parse->now;
    if (!err) err = wefti_tmpl_parse_expect(parse, WEFTI_TMPL_LEX_NAME, "a test");
    if (err) return err;
    expr.text = name.text;
    if (wefti_tmpl_parse_at_op(parse, "(")) {
        err = parse_args(parse, &expr.args);
    } else if (at_test_argument(parse)) {
        err = wefti_tmpl_parse_primary(parse, &arg);
        if (!err) err = wefti_tmpl_parse_postfix(parse, &arg);
        if (!err) err = wefti_tmpl_parse_add_plain(parse, arg, &expr.args, &last);
    }
    return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
}

weft_err wefti_tmpl_parse_filters_and_tests(struct wefti_tmpl_parser *parse, uint32_t *out) {
    weft_err err = WEFT_OK;
    while (!err) {
        if (wefti_tmpl_parse_at_op(parse, "|")) {
            err = wefti_tmpl_parse_take(parse);
            if (!err) err = parse_filter(parse, out);
        } else if (wefti_tmpl_parse_at_word(parse, "is")) {
            err = parse_test(parse, out);
        } else if (wefti_tmpl_parse_at_op(parse, "(")) {
            err = parse_call(parse, out);
        } else {
            break;
        }
    }
    return err;
}
