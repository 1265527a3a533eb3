/* Expressions, compiled to a flat array, with Jinja's precedences: "if" binds loosest, then or,
 * and, not, comparisons, + -, ~, * / // %, **, signs, and closest members, subscripts, calls,
 * filters and tests. */
#include <stdlib.h>

#include "base/check.h"
#include "base/parse.h"
#include "chat_internal.h"

#define EXPR_DEPTH_MAX 500 /* a + b + c ... is a tree as deep as it is long */
#define ITEMS_MAX (1u << 20)

#define take wefti_parse_take
#define at_op wefti_parse_at_op
#define at_word wefti_parse_at_word
#define expect_op wefti_parse_expect_op
#define expect wefti_parse_expect
#define unexpected wefti_parse_unexpected
#define refuse wefti_parse_refuse
typedef struct wefti_parser parser;

static const struct weft_str nothing = {"", 0};

static bool is_keyword(struct weft_str name) {
    static const char *const words[] = {"and", "or", "not", "in", "is", "if", "else"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (wefti_str_is(name, words[i], strlen(words[i]))) return true;
    return false;
}

/* --- the arrays --------------------------------------------------------------------------------
 */

static struct wefti_expr new_expr(enum wefti_expr_kind kind, uint32_t line) {
    return (struct wefti_expr){.kind = kind,
                               .line = line,
                               .a = WEFTI_NO_ID,
                               .b = WEFTI_NO_ID,
                               .c = WEFTI_NO_ID,
                               .args = WEFTI_NO_ID,
                               .text = {"", 0}};
}

static uint32_t depth_below(const weft_chat *chat, const struct wefti_expr *expr) {
    const uint32_t operands[] = {expr->a, expr->b, expr->c};
    uint32_t depth = 0;
    for (size_t i = 0; i < 3; i++)
        if (operands[i] != WEFTI_NO_ID && chat->exprs[operands[i]].depth > depth)
            depth = chat->exprs[operands[i]].depth;
    for (uint32_t at = expr->args; at != WEFTI_NO_ID; at = chat->args[at].next) {
        uint32_t idx = chat->args[at].expr;
        if (idx != WEFTI_NO_ID && chat->exprs[idx].depth > depth) depth = chat->exprs[idx].depth;
    }
    return depth;
}

static weft_err add_expr(parser *parse, struct wefti_expr expr, uint32_t *idx_out) {
    weft_chat *chat = parse->chat;
    if (chat->n_exprs == chat->exprs_cap) {
        uint32_t cap = chat->exprs_cap ? 2 * chat->exprs_cap : 64;
        if (cap > ITEMS_MAX) return WEFT_E_TOOBIG;
        struct wefti_expr *grown = realloc(chat->exprs, cap * sizeof *grown);
        if (!grown) return WEFT_E_NOMEM;
        chat->exprs = grown;
        chat->exprs_cap = cap;
    }
    expr.depth = depth_below(chat, &expr) + 1;
    if (expr.depth > EXPR_DEPTH_MAX)
        return refuse(parse, expr.line, "an expression this long", nothing);
    *idx_out = chat->n_exprs++;
    chat->exprs[*idx_out] = expr;
    return WEFT_OK;
}

weft_err wefti_parse_add_arg(parser *parse, struct wefti_arg arg, uint32_t *first, uint32_t *last) {
    weft_chat *chat = parse->chat;
    if (chat->n_args == chat->args_cap) {
        uint32_t cap = chat->args_cap ? 2 * chat->args_cap : 64;
        if (cap > ITEMS_MAX) return WEFT_E_TOOBIG;
        struct wefti_arg *grown = realloc(chat->args, cap * sizeof *grown);
        if (!grown) return WEFT_E_NOMEM;
        chat->args = grown;
        chat->args_cap = cap;
    }
    uint32_t idx = chat->n_args++;
    arg.next = WEFTI_NO_ID;
    chat->args[idx] = arg;
    if (*last == WEFTI_NO_ID)
        *first = idx;
    else
        chat->args[*last].next = idx;
    *last = idx;
    return WEFT_OK;
}

static weft_err add_plain(parser *parse, uint32_t expr, uint32_t *first, uint32_t *last) {
    return wefti_parse_add_arg(
        parse, (struct wefti_arg){.kind = WEFTI_ARG_PLAIN, .expr = expr, .name = nothing}, first,
        last);
}

/* --- literals ----------------------------------------------------------------------------------
 */

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

/* Writes the escape that begins behind the backslash at raw[*i] and moves *i to its last byte. What
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
    wefti_utf8_put(&buf, code);
    bool ok = !buf.failed;
    if (ok) memcpy(text + *n, buf.data, buf.len);
    *n += buf.len;
    weft_buf_fini(&buf);
    *i = at - 1;
    return ok;
}

/* Resolves the escapes of a literal in place (it only shrinks): the text lies in chat->source. */
static weft_err unescape(parser *parse, uint32_t line, struct weft_str raw, struct weft_str *out) {
    char *text = parse->chat->source + (raw.data - parse->chat->source);
    size_t n = 0;
    for (size_t i = 0; i < raw.len; i++) {
        if (raw.data[i] != '\\' || i + 1 == raw.len) {
            text[n++] = raw.data[i];
            continue;
        }
        struct weft_str escape = {raw.data + i, raw.len - i < 6 ? raw.len - i : 2};
        i++;
        if (!unescape_one(raw, &i, text, &n)) return refuse(parse, line, "the escape", escape);
    }
    *out = (struct weft_str){text, n};
    return WEFT_OK;
}

static weft_err parse_string(parser *parse, uint32_t *out) {
    struct wefti_expr expr = new_expr(WEFTI_EXPR_STRING, parse->now.line);
    weft_err err = unescape(parse, expr.line, parse->now.text, &expr.text);
    if (!err) err = take(parse);
    if (!err) err = add_expr(parse, expr, out);
    while (!err && parse->now.kind == WEFTI_LEX_STRING) { /* 'a' 'b' is 'ab' */
        struct wefti_expr sum = new_expr(WEFTI_EXPR_ADD, parse->now.line);
        sum.a = *out;
        expr = new_expr(WEFTI_EXPR_STRING, parse->now.line);
        err = unescape(parse, expr.line, parse->now.text, &expr.text);
        if (!err) err = take(parse);
        if (!err) err = add_expr(parse, expr, &sum.b);
        if (!err) err = add_expr(parse, sum, out);
    }
    return err;
}

static weft_err parse_number(parser *parse, uint32_t *out) {
    struct wefti_lexeme now = parse->now;
    struct wefti_expr expr = new_expr(WEFTI_EXPR_INT, now.line);
    char digits[64];
    size_t n = 0;
    for (size_t i = 0; i < now.text.len && n < sizeof digits - 1; i++)
        if (now.text.data[i] != '_') digits[n++] = now.text.data[i];
    digits[n] = '\0';
    weft_err err = take(parse);
    if (err) return err;
    if (now.text.len >= sizeof digits) return refuse(parse, now.line, "the number", now.text);
    if (now.kind == WEFTI_LEX_FLOAT) {
        expr.kind = WEFTI_EXPR_FLOAT;
        if (weft_parse_double(digits, &expr.real))
            return refuse(parse, now.line, "the number", now.text);
        return add_expr(parse, expr, out);
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
            return refuse(parse, now.line, "the number", now.text);
    return add_expr(parse, expr, out);
}

static weft_err parse_name(parser *parse, uint32_t *out) {
    struct wefti_lexeme now = parse->now;
    struct wefti_expr expr = new_expr(WEFTI_EXPR_NAME, now.line);
    if (is_keyword(now.text)) return unexpected(parse, "an expression");
    expr.text = now.text;
    if (WEFTI_IS(now.text, "true") || WEFTI_IS(now.text, "True")) {
        expr.kind = WEFTI_EXPR_BOOL;
        expr.number = 1;
    } else if (WEFTI_IS(now.text, "false") || WEFTI_IS(now.text, "False")) {
        expr.kind = WEFTI_EXPR_BOOL;
    } else if (WEFTI_IS(now.text, "none") || WEFTI_IS(now.text, "None")) {
        expr.kind = WEFTI_EXPR_NONE;
    }
    if (WEFTI_IS(now.text, "caller")) parse->uses |= WEFTI_USES_CALLER;
    if (WEFTI_IS(now.text, "varargs")) parse->uses |= WEFTI_USES_VARARGS;
    if (WEFTI_IS(now.text, "kwargs")) parse->uses |= WEFTI_USES_KWARGS;
    weft_err err = take(parse);
    return err ? err : add_expr(parse, expr, out);
}

static weft_err parse_list(parser *parse, uint32_t *out) {
    struct wefti_expr expr = new_expr(WEFTI_EXPR_LIST, parse->now.line);
    uint32_t last = WEFTI_NO_ID;
    weft_err err = take(parse);
    while (!err && !at_op(parse, "]")) {
        uint32_t item;
        err = wefti_parse_expr(parse, &item);
        if (!err) err = add_plain(parse, item, &expr.args, &last);
        if (!err && !at_op(parse, "]")) err = expect_op(parse, ",");
    }
    if (!err) err = take(parse);
    return err ? err : add_expr(parse, expr, out);
}

static weft_err parse_dict(parser *parse, uint32_t *out) {
    struct wefti_expr expr = new_expr(WEFTI_EXPR_DICT, parse->now.line);
    uint32_t last = WEFTI_NO_ID;
    weft_err err = take(parse);
    while (!err && !at_op(parse, "}")) {
        uint32_t key, value;
        err = wefti_parse_expr(parse, &key);
        if (!err) err = expect_op(parse, ":");
        if (!err) err = wefti_parse_expr(parse, &value);
        if (!err) err = add_plain(parse, key, &expr.args, &last);
        if (!err) err = add_plain(parse, value, &expr.args, &last);
        if (!err && !at_op(parse, "}")) err = expect_op(parse, ",");
    }
    if (!err) err = take(parse);
    return err ? err : add_expr(parse, expr, out);
}

static weft_err parse_parens(parser *parse, uint32_t *out) {
    weft_err err = take(parse);
    if (err) return err;
    if (at_op(parse, ")"))
        err = add_expr(parse, new_expr(WEFTI_EXPR_TUPLE, parse->now.line), out);
    else
        err = wefti_parse_tuple(parse, WEFTI_TUPLE_WITH_IF, out);
    return err ? err : expect_op(parse, ")");
}

static weft_err parse_primary(parser *parse, uint32_t *out) {
    switch (parse->now.kind) {
    case WEFTI_LEX_NAME:
        return parse_name(parse, out);
    case WEFTI_LEX_STRING:
        return parse_string(parse, out);
    case WEFTI_LEX_INT:
    case WEFTI_LEX_FLOAT:
        return parse_number(parse, out);
    default:
        break;
    }
    if (at_op(parse, "(")) return parse_parens(parse, out);
    if (at_op(parse, "[")) return parse_list(parse, out);
    if (at_op(parse, "{")) return parse_dict(parse, out);
    return unexpected(parse, "an expression");
}

/* --- what follows a primary --------------------------------------------------------------------
 */

static weft_err parse_member(parser *parse, uint32_t *out) {
    struct wefti_expr expr = new_expr(WEFTI_EXPR_MEMBER, parse->now.line);
    expr.a = *out;
    weft_err err = take(parse); /* "." */
    if (err) return err;
    if (parse->now.kind == WEFTI_LEX_INT) { /* a.0 is a[0] */
        expr.kind = WEFTI_EXPR_INDEX;
        err = parse_number(parse, &expr.b);
        return err ? err : add_expr(parse, expr, out);
    }
    expr.text = parse->now.text;
    err = expect(parse, WEFTI_LEX_NAME, "a name");
    return err ? err : add_expr(parse, expr, out);
}

/* a[b], a[b:c:d], a[b, c]; behind the "[". */
static weft_err parse_subscript(parser *parse, struct wefti_expr *expr) {
    uint32_t parts[3] = {WEFTI_NO_ID, WEFTI_NO_ID, WEFTI_NO_ID}, last = WEFTI_NO_ID;
    size_t n = 0;
    weft_err err = WEFT_OK;
    while (!err && n < 3) {
        if (!at_op(parse, ":") && !at_op(parse, "]")) {
            err = n ? wefti_parse_expr(parse, &parts[n])
                    : wefti_parse_tuple(parse, WEFTI_TUPLE_WITH_IF, &parts[0]);
        }
        n++;
        if (err || !at_op(parse, ":") || n == 3) break;
        expr->kind = WEFTI_EXPR_SLICE;
        err = take(parse);
    }
    if (err) return err;
    if (expr->kind != WEFTI_EXPR_SLICE) {
        expr->b = parts[0];
        return parts[0] == WEFTI_NO_ID ? unexpected(parse, "an expression") : WEFT_OK;
    }
    for (size_t i = 0; i < 3 && !err; i++)
        err = add_plain(parse, parts[i], &expr->args, &last);
    return err;
}

static weft_err parse_index(parser *parse, uint32_t *out) {
    struct wefti_expr expr = new_expr(WEFTI_EXPR_INDEX, parse->now.line);
    expr.a = *out;
    weft_err err = take(parse); /* "[" */
    if (!err) err = parse_subscript(parse, &expr);
    if (!err) err = expect_op(parse, "]");
    return err ? err : add_expr(parse, expr, out);
}

/* One of a call's arguments. "a = b" needs a look beyond the name: the lexer is copied for it. */
static weft_err parse_arg(parser *parse, struct wefti_arg *arg) {
    weft_err err = WEFT_OK;
    arg->name = nothing;
    if (at_op(parse, "*") || at_op(parse, "**")) {
        arg->kind = at_op(parse, "*") ? WEFTI_ARG_LIST : WEFTI_ARG_DICT;
        err = take(parse);
    } else if (parse->now.kind == WEFTI_LEX_NAME) {
        struct wefti_lex lex = parse->lex;
        struct wefti_lexeme next;
        err = wefti_lex_next(&lex, &next, parse->why);
        if (!err && next.kind == WEFTI_LEX_OP && WEFTI_IS(next.text, "=")) {
            arg->kind = WEFTI_ARG_NAMED;
            arg->name = parse->now.text;
            err = take(parse);
            if (!err) err = take(parse);
        }
    }
    return err ? err : wefti_parse_expr(parse, &arg->expr);
}

/* At "(". */
static weft_err parse_args(parser *parse, uint32_t *first_out) {
    uint32_t last = WEFTI_NO_ID;
    bool named = false;
    weft_err err = take(parse);
    while (!err && !at_op(parse, ")")) {
        struct wefti_arg arg = {.kind = WEFTI_ARG_PLAIN};
        err = parse_arg(parse, &arg);
        if (!err && named && arg.kind == WEFTI_ARG_PLAIN)
            return unexpected(parse, "an argument with a name");
        named |= arg.kind == WEFTI_ARG_NAMED || arg.kind == WEFTI_ARG_DICT;
        if (!err) err = wefti_parse_add_arg(parse, arg, first_out, &last);
        if (!err && !at_op(parse, ")")) err = expect_op(parse, ",");
    }
    return err ? err : take(parse);
}

static weft_err parse_call(parser *parse, uint32_t *out) {
    struct wefti_expr expr = new_expr(WEFTI_EXPR_CALL, parse->now.line);
    expr.a = *out;
    weft_err err = parse_args(parse, &expr.args);
    return err ? err : add_expr(parse, expr, out);
}

static weft_err parse_postfix(parser *parse, uint32_t *out) {
    weft_err err = WEFT_OK;
    while (!err) {
        if (at_op(parse, "."))
            err = parse_member(parse, out);
        else if (at_op(parse, "["))
            err = parse_index(parse, out);
        else if (at_op(parse, "("))
            err = parse_call(parse, out);
        else
            break;
    }
    return err;
}

/* At the filter's name. */
static weft_err parse_filter(parser *parse, uint32_t *out) {
    struct wefti_lexeme name = parse->now;
    struct wefti_expr expr = new_expr(WEFTI_EXPR_FILTER, name.line);
    expr.a = *out;
    weft_err err = expect(parse, WEFTI_LEX_NAME, "a filter");
    if (err) return err;
    expr.builtin = wefti_find_filter(name.text);
    if (!expr.builtin) expr.builtin = wefti_find_seq_filter(name.text);
    if (!expr.builtin) return refuse(parse, name.line, "the filter", name.text);
    if (at_op(parse, "(")) err = parse_args(parse, &expr.args);
    return err ? err : add_expr(parse, expr, out);
}

weft_err wefti_parse_filters(parser *parse, uint32_t *out) {
    weft_err err = add_expr(parse, new_expr(WEFTI_EXPR_WRITTEN, parse->now.line), out);
    if (!err && at_op(parse, "|")) err = take(parse);
    if (!err) err = parse_filter(parse, out);
    while (!err && at_op(parse, "|")) {
        err = take(parse);
        if (!err) err = parse_filter(parse, out);
    }
    return err;
}

static bool at_test_argument(const parser *parse) {
    switch (parse->now.kind) {
    case WEFTI_LEX_STRING:
    case WEFTI_LEX_INT:
    case WEFTI_LEX_FLOAT:
        return true;
    case WEFTI_LEX_NAME:
        return !is_keyword(parse->now.text) && !at_word(parse, "recursive");
    default:
        return at_op(parse, "[") || at_op(parse, "{");
    }
}

static weft_err parse_test(parser *parse, uint32_t *out) {
    struct wefti_expr expr = new_expr(WEFTI_EXPR_TEST, parse->now.line);
    uint32_t last = WEFTI_NO_ID, arg;
    expr.a = *out;
    weft_err err = take(parse); /* "is" */
    if (!err && at_word(parse, "not")) {
        expr.negated = true;
        err = take(parse);
    }
    struct wefti_lexeme name = parse->now;
    if (!err) err = expect(parse, WEFTI_LEX_NAME, "a test");
    if (err) return err;
    expr.builtin = wefti_find_test(name.text);
    if (!expr.builtin) return refuse(parse, name.line, "the test", name.text);
    if (at_op(parse, "(")) {
        err = parse_args(parse, &expr.args);
    } else if (at_test_argument(parse)) {
        err = parse_primary(parse, &arg);
        if (!err) err = parse_postfix(parse, &arg);
        if (!err) err = add_plain(parse, arg, &expr.args, &last);
    }
    return err ? err : add_expr(parse, expr, out);
}

static weft_err parse_filters_and_tests(parser *parse, uint32_t *out) {
    weft_err err = WEFT_OK;
    while (!err) {
        if (at_op(parse, "|")) {
            err = take(parse);
            if (!err) err = parse_filter(parse, out);
        } else if (at_word(parse, "is")) {
            err = parse_test(parse, out);
        } else if (at_op(parse, "(")) {
            err = parse_call(parse, out);
        } else {
            break;
        }
    }
    return err;
}

/* --- operators ---------------------------------------------------------------------------------
 */

static weft_err parse_unary(parser *parse, bool filters, uint32_t *out) {
    weft_err err = wefti_parse_deeper(parse);
    if (!err && (at_op(parse, "-") || at_op(parse, "+"))) {
        struct wefti_expr expr =
            new_expr(at_op(parse, "-") ? WEFTI_EXPR_NEG : WEFTI_EXPR_POS, parse->now.line);
        err = take(parse);
        if (!err) err = parse_unary(parse, false, &expr.a);
        if (!err) err = add_expr(parse, expr, out);
    } else if (!err) {
        err = parse_primary(parse, out);
    }
    if (!err) err = parse_postfix(parse, out);
    if (!err && filters) err = parse_filters_and_tests(parse, out);
    parse->depth--;
    return err;
}

static weft_err parse_pow(parser *parse, uint32_t *out) {
    weft_err err = parse_unary(parse, true, out);
    while (!err && at_op(parse, "**")) {
        struct wefti_expr expr = new_expr(WEFTI_EXPR_POW, parse->now.line);
        expr.a = *out;
        err = take(parse);
        if (!err) err = parse_unary(parse, true, &expr.b);
        if (!err) err = add_expr(parse, expr, out);
    }
    return err;
}

/* a + b, a ~ b, a % b: left-associative, each level binding tighter than the one before. */
static weft_err parse_operators(parser *parse, size_t level, uint32_t *out) {
    static const struct {
        size_t level;
        const char *op;
        enum wefti_expr_kind kind;
    } ops[] = {{0, "+", WEFTI_EXPR_ADD}, {0, "-", WEFTI_EXPR_SUB}, {1, "~", WEFTI_EXPR_CONCAT},
               {2, "*", WEFTI_EXPR_MUL}, {2, "/", WEFTI_EXPR_DIV}, {2, "//", WEFTI_EXPR_FLOORDIV},
               {2, "%", WEFTI_EXPR_MOD}};
    const size_t n = sizeof ops / sizeof *ops;
    if (level == 3) return parse_pow(parse, out);
    weft_err err = parse_operators(parse, level + 1, out);
    while (!err) {
        size_t i = 0;
        while (i < n && (ops[i].level != level || !at_op(parse, ops[i].op)))
            i++;
        if (i == n) break;
        struct wefti_expr expr = new_expr(ops[i].kind, parse->now.line);
        expr.a = *out;
        err = take(parse);
        if (!err) err = parse_operators(parse, level + 1, &expr.b);
        if (!err) err = add_expr(parse, expr, out);
    }
    return err;
}

/* Takes a comparison's operator; *found_out is false if none stands here. */
static weft_err take_cmp(parser *parse, uint8_t *op_out, bool *found_out) {
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="}; /* as enum wefti_cmp */
    *found_out = true;
    for (uint8_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (at_op(parse, ops[i])) {
            *op_out = i;
            return take(parse);
        }
    if (at_word(parse, "in")) {
        *op_out = WEFTI_IN;
        return take(parse);
    }
    if (at_word(parse, "not")) {
        *op_out = WEFTI_NOT_IN;
        weft_err err = take(parse);
        if (!err && !at_word(parse, "in")) return unexpected(parse, "in");
        return err ? err : take(parse);
    }
    *found_out = false;
    return WEFT_OK;
}

static weft_err parse_compare(parser *parse, uint32_t *out) {
    weft_err err = parse_operators(parse, 0, out);
    struct wefti_expr expr = new_expr(WEFTI_EXPR_COMPARE, parse->now.line);
    uint32_t last = WEFTI_NO_ID;
    while (!err) {
        struct wefti_arg arg = {.name = nothing};
        bool found;
        err = take_cmp(parse, &arg.kind, &found);
        if (err || !found) break;
        err = parse_operators(parse, 0, &arg.expr);
        if (!err) err = wefti_parse_add_arg(parse, arg, &expr.args, &last);
    }
    if (err || expr.args == WEFTI_NO_ID) return err;
    expr.a = *out;
    return add_expr(parse, expr, out);
}

static weft_err parse_not(parser *parse, uint32_t *out) {
    uint32_t n = 0, line = parse->now.line;
    weft_err err = WEFT_OK;
    for (; !err && at_word(parse, "not"); n++)
        err = take(parse);
    if (!err) err = parse_compare(parse, out);
    for (; !err && n > 0; n--) {
        struct wefti_expr expr = new_expr(WEFTI_EXPR_NOT, line);
        expr.a = *out;
        err = add_expr(parse, expr, out);
    }
    return err;
}

/* `word` is "or" or "and". */
static weft_err parse_logic(parser *parse, const char *word, uint32_t *out) {
    bool is_or = word[0] == 'o';
    weft_err err = is_or ? parse_logic(parse, "and", out) : parse_not(parse, out);
    while (!err && at_word(parse, word)) {
        struct wefti_expr expr = new_expr(is_or ? WEFTI_EXPR_OR : WEFTI_EXPR_AND, parse->now.line);
        expr.a = *out;
        err = take(parse);
        if (!err) err = is_or ? parse_logic(parse, "and", &expr.b) : parse_not(parse, &expr.b);
        if (!err) err = add_expr(parse, expr, out);
    }
    return err;
}

/* b if a else c */
static weft_err parse_condition(parser *parse, uint32_t *out) {
    struct wefti_expr expr = new_expr(WEFTI_EXPR_COND, parse->now.line);
    expr.b = *out;
    weft_err err = take(parse); /* "if" */
    if (!err) err = parse_logic(parse, "or", &expr.a);
    if (!err && at_word(parse, "else")) {
        err = take(parse);
        if (!err) err = wefti_parse_expr(parse, &expr.c);
    }
    return err ? err : add_expr(parse, expr, out);
}

weft_err wefti_parse_expr(parser *parse, uint32_t *out) {
    *out = WEFTI_NO_ID;
    weft_err err = wefti_parse_deeper(parse);
    if (!err) err = parse_logic(parse, "or", out);
    while (!err && at_word(parse, "if"))
        err = parse_condition(parse, out);
    parse->depth--;
    return err;
}

static weft_err parse_item(parser *parse, enum wefti_tuple how, uint32_t *out) {
    if (how == WEFTI_TUPLE_WITH_IF) return wefti_parse_expr(parse, out);
    *out = WEFTI_NO_ID;
    weft_err err = wefti_parse_deeper(parse);
    if (!err) err = parse_logic(parse, "or", out);
    parse->depth--;
    return err;
}

static bool at_tuple_end(const parser *parse) {
    return parse->now.kind == WEFTI_LEX_CLOSE_EXPR || parse->now.kind == WEFTI_LEX_CLOSE_TAG ||
           at_op(parse, ")") || at_op(parse, "]") || at_op(parse, "=") ||
           at_word(parse, "recursive") || at_word(parse, "if");
}

weft_err wefti_parse_tuple(parser *parse, enum wefti_tuple how, uint32_t *out) {
    weft_err err = parse_item(parse, how, out);
    if (err || !at_op(parse, ",")) return err;
    struct wefti_expr expr = new_expr(WEFTI_EXPR_TUPLE, parse->now.line);
    uint32_t last = WEFTI_NO_ID;
    err = add_plain(parse, *out, &expr.args, &last);
    while (!err && at_op(parse, ",")) {
        uint32_t item;
        err = take(parse);
        if (err || at_tuple_end(parse)) break;
        err = parse_item(parse, how, &item);
        if (!err) err = add_plain(parse, item, &expr.args, &last);
    }
    return err ? err : add_expr(parse, expr, out);
}

/* --- names to bind -----------------------------------------------------------------------------
 */

static weft_err parse_target_name(parser *parse, bool member_ok, uint32_t *out) {
    struct wefti_expr expr = new_expr(WEFTI_EXPR_NAME, parse->now.line);
    if (at_op(parse, "(")) {
        weft_err err = take(parse);
        if (!err) err = wefti_parse_deeper(parse);
        if (!err) err = wefti_parse_target(parse, false, out);
        parse->depth--;
        return err ? err : expect_op(parse, ")");
    }
    expr.text = parse->now.text;
    if (parse->now.kind != WEFTI_LEX_NAME || is_keyword(expr.text))
        return unexpected(parse, "a name");
    weft_err err = take(parse);
    if (!err) err = add_expr(parse, expr, out);
    if (!err && member_ok && at_op(parse, ".")) {
        err = parse_member(parse, out);
        if (!err && parse->chat->exprs[*out].kind != WEFTI_EXPR_MEMBER)
            return unexpected(parse, "a name");
    }
    return err;
}

weft_err wefti_parse_target(parser *parse, bool member_ok, uint32_t *out) {
    struct wefti_expr expr = new_expr(WEFTI_EXPR_TUPLE, parse->now.line);
    uint32_t last = WEFTI_NO_ID;
    weft_err err = parse_target_name(parse, member_ok, out);
    if (err || !at_op(parse, ",")) return err;
    err = add_plain(parse, *out, &expr.args, &last);
    while (!err && at_op(parse, ",")) {
        uint32_t item;
        err = take(parse);
        if (err || at_word(parse, "in") || at_tuple_end(parse)) break;
        err = parse_target_name(parse, member_ok, &item);
        if (!err) err = add_plain(parse, item, &expr.args, &last);
    }
    return err ? err : add_expr(parse, expr, out);
}

weft_err wefti_parse_params(parser *parse, uint32_t *first_out) {
    uint32_t last = WEFTI_NO_ID;
    weft_err err = expect_op(parse, "(");
    while (!err && !at_op(parse, ")")) {
        struct wefti_arg arg = {
            .kind = WEFTI_ARG_PLAIN, .expr = WEFTI_NO_ID, .name = parse->now.text};
        err = expect(parse, WEFTI_LEX_NAME, "a name");
        if (!err && at_op(parse, "=")) {
            err = take(parse);
            if (!err) err = wefti_parse_expr(parse, &arg.expr);
        }
        if (!err) err = wefti_parse_add_arg(parse, arg, first_out, &last);
        if (!err && !at_op(parse, ")")) err = expect_op(parse, ",");
    }
    return err ? err : take(parse);
}
