/* Expressions, compiled to a flat array, with Jinja's precedences: "if" binds loosest, then or,
 * and, not, comparisons, + -, ~, * / // %, **, signs, and closest members, subscripts, calls,
 * filters and tests. */
#include <stdlib.h>

#include "base/check.h"
#include "syntax/parser.h"

/* --- operators -------------------------------------------------------------------------------- */

static weft_err parse_unary(struct wefti_tmpl_parser *parse, bool filters, uint32_t *out) {
    weft_err err = wefti_tmpl_parse_deeper(parse);
    if (!err && (wefti_tmpl_parse_at_op(parse, "-") || wefti_tmpl_parse_at_op(parse, "+"))) {
        struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(
            wefti_tmpl_parse_at_op(parse, "-") ? WEFTI_TMPL_EXPR_NEG : WEFTI_TMPL_EXPR_POS,
            parse->now.line);
        err = wefti_tmpl_parse_take(parse);
        if (!err) err = parse_unary(parse, false, &expr.a);
        if (!err) err = wefti_tmpl_parse_add_expr(parse, expr, out);
    } else if (!err) {
        err = wefti_tmpl_parse_primary(parse, out);
    }
    if (!err) err = wefti_tmpl_parse_postfix(parse, out);
    if (!err && filters) err = wefti_tmpl_parse_filters_and_tests(parse, out);
    parse->depth--;
    return err;
}

static weft_err parse_pow(struct wefti_tmpl_parser *parse, uint32_t *out) {
    weft_err err = parse_unary(parse, true, out);
    while (!err && wefti_tmpl_parse_at_op(parse, "**")) {
        struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_POW, parse->now.line);
        expr.a = *out;
        err = wefti_tmpl_parse_take(parse);
        if (!err) err = parse_unary(parse, true, &expr.b);
        if (!err) err = wefti_tmpl_parse_add_expr(parse, expr, out);
    }
    return err;
}

/* a + b, a ~ b, a % b: left-associative, each level binding tighter than the one before. */
static weft_err parse_operators(struct wefti_tmpl_parser *parse, size_t level, uint32_t *out) {
    static const struct {
        size_t level;
        const char *op;
        enum wefti_tmpl_expr_kind kind;
    } ops[] = {{0, "+", WEFTI_TMPL_EXPR_ADD},    {0, "-", WEFTI_TMPL_EXPR_SUB},
               {1, "~", WEFTI_TMPL_EXPR_CONCAT}, {2, "*", WEFTI_TMPL_EXPR_MUL},
               {2, "/", WEFTI_TMPL_EXPR_DIV},    {2, "//", WEFTI_TMPL_EXPR_FLOORDIV},
               {2, "%", WEFTI_TMPL_EXPR_MOD}};
    const size_t n = sizeof ops / sizeof *ops;
    if (level == 3) return parse_pow(parse, out);
    weft_err err = parse_operators(parse, level + 1, out);
    while (!err) {
        size_t i = 0;
        while (i < n && (ops[i].level != level || !wefti_tmpl_parse_at_op(parse, ops[i].op)))
            i++;
        if (i == n) break;
        struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(ops[i].kind, parse->now.line);
        expr.a = *out;
        err = wefti_tmpl_parse_take(parse);
        if (!err) err = parse_operators(parse, level + 1, &expr.b);
        if (!err) err = wefti_tmpl_parse_add_expr(parse, expr, out);
    }
    return err;
}

/* Takes a comparison's operator; *found_out is false if none stands here. */
static weft_err take_cmp(struct wefti_tmpl_parser *parse, uint8_t *op_out, bool *found_out) {
    static const char *const ops[] = {"==", "!=", "<",
                                      "<=", ">",  ">="}; /* as enum wefti_tmpl_cmp */
    *found_out = true;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (wefti_tmpl_parse_at_op(parse, ops[i])) {
            *op_out = (uint8_t)i;
            return wefti_tmpl_parse_take(parse);
        }
    if (wefti_tmpl_parse_at_word(parse, "in")) {
        *op_out = WEFTI_TMPL_IN;
        return wefti_tmpl_parse_take(parse);
    }
    if (wefti_tmpl_parse_at_word(parse, "not")) {
        *op_out = WEFTI_TMPL_NOT_IN;
        weft_err err = wefti_tmpl_parse_take(parse);
        if (!err && !wefti_tmpl_parse_at_word(parse, "in"))
            return wefti_tmpl_parse_unexpected(parse, "in");
        return err ? err : wefti_tmpl_parse_take(parse);
    }
    *found_out = false;
    return WEFT_OK;
}

static weft_err parse_compare(struct wefti_tmpl_parser *parse, uint32_t *out) {
    weft_err err = parse_operators(parse, 0, out);
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_COMPARE, parse->now.line);
    uint32_t last = WEFTI_TMPL_NO_IDX;
    while (!err) {
        struct wefti_tmpl_arg arg = {.name = WEFTI_TMPL_NOTHING};
        bool found;
        err = take_cmp(parse, &arg.kind, &found);
        if (err || !found) break;
        err = parse_operators(parse, 0, &arg.expr);
        if (!err) err = wefti_tmpl_parse_add_arg(parse, arg, &expr.args, &last);
    }
    if (err || expr.args == WEFTI_TMPL_NO_IDX) return err;
    expr.a = *out;
    return wefti_tmpl_parse_add_expr(parse, expr, out);
}

static weft_err parse_not(struct wefti_tmpl_parser *parse, uint32_t *out) {
    uint32_t n = 0, line = parse->now.line;
    weft_err err = WEFT_OK;
    for (; !err && wefti_tmpl_parse_at_word(parse, "not"); n++)
        err = wefti_tmpl_parse_take(parse);
    if (!err) err = parse_compare(parse, out);
    for (; !err && n > 0; n--) {
        struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_NOT, line);
        expr.a = *out;
        err = wefti_tmpl_parse_add_expr(parse, expr, out);
    }
    return err;
}

/* `word` is "or" or "and". */
static weft_err parse_logic(struct wefti_tmpl_parser *parse, const char *word, uint32_t *out) {
    bool is_or = word[0] == 'o';
    weft_err err = is_or ? parse_logic(parse, "and", out) : parse_not(parse, out);
    while (!err && wefti_tmpl_parse_at_word(parse, word)) {
        struct wefti_tmpl_expr expr =
            wefti_tmpl_new_expr(is_or ? WEFTI_TMPL_EXPR_OR : WEFTI_TMPL_EXPR_AND, parse->now.line);
        expr.a = *out;
        err = wefti_tmpl_parse_take(parse);
        if (!err) err = is_or ? parse_logic(parse, "and", &expr.b) : parse_not(parse, &expr.b);
        if (!err) err = wefti_tmpl_parse_add_expr(parse, expr, out);
    }
    return err;
}

/* b if a else c */
static weft_err parse_condition(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_COND, parse->now.line);
    expr.b = *out;
    weft_err err = wefti_tmpl_parse_take(parse); /* "if" */
    if (!err) err = parse_logic(parse, "or", &expr.a);
    if (!err && wefti_tmpl_parse_at_word(parse, "else")) {
        err = wefti_tmpl_parse_take(parse);
        if (!err) err = wefti_tmpl_parse_expr(parse, &expr.c);
    }
    return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
}

weft_err wefti_tmpl_parse_expr(struct wefti_tmpl_parser *parse, uint32_t *out) {
    *out = WEFTI_TMPL_NO_IDX;
    weft_err err = wefti_tmpl_parse_deeper(parse);
    if (!err) err = parse_logic(parse, "or", out);
    while (!err && wefti_tmpl_parse_at_word(parse, "if"))
        err = parse_condition(parse, out);
    parse->depth--;
    return err;
}

static weft_err parse_item(struct wefti_tmpl_parser *parse, enum wefti_tmpl_tuple how,
                           uint32_t *out) {
    if (how == WEFTI_TMPL_TUPLE_WITH_IF) return wefti_tmpl_parse_expr(parse, out);
    *out = WEFTI_TMPL_NO_IDX;
    weft_err err = wefti_tmpl_parse_deeper(parse);
    if (!err) err = parse_logic(parse, "or", out);
    parse->depth--;
    return err;
}

static bool at_tuple_end(const struct wefti_tmpl_parser *parse) {
    return parse->now.kind == WEFTI_TMPL_LEX_CLOSE_EXPR ||
           parse->now.kind == WEFTI_TMPL_LEX_CLOSE_TAG || wefti_tmpl_parse_at_op(parse, ")") ||
           wefti_tmpl_parse_at_op(parse, "]") || wefti_tmpl_parse_at_op(parse, "=") ||
           wefti_tmpl_parse_at_word(parse, "recursive") || wefti_tmpl_parse_at_word(parse, "if");
}

weft_err wefti_tmpl_parse_tuple(struct wefti_tmpl_parser *parse, enum wefti_tmpl_tuple how,
                                uint32_t *out) {
    weft_err err = parse_item(parse, how, out);
    if (err || !wefti_tmpl_parse_at_op(parse, ",")) return err;
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_TUPLE, parse->now.line);
    uint32_t last = WEFTI_TMPL_NO_IDX;
    err = wefti_tmpl_parse_add_plain(parse, *out, &expr.args, &last);
    while (!err && wefti_tmpl_parse_at_op(parse, ",")) {
        uint32_t item = WEFTI_TMPL_NO_IDX;
        err = wefti_tmpl_parse_take(parse);
        if (err || at_tuple_end(parse)) break;
        err = parse_item(parse, how, &item);
        if (!err) err = wefti_tmpl_parse_add_plain(parse, item, &expr.args, &last);
    }
    return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
}

/* --- names to bind ---------------------------------------------------------------------------- */

static weft_err parse_target_name(struct wefti_tmpl_parser *parse, bool member_ok, uint32_t *out) {
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_NAME, parse->now.line);
    if (wefti_tmpl_parse_at_op(parse, "(")) {
        weft_err err = wefti_tmpl_parse_take(parse);
        if (!err) err = wefti_tmpl_parse_deeper(parse);
        if (!err) err = wefti_tmpl_parse_target(parse, false, out);
        parse->depth--;
        return err ? err : wefti_tmpl_parse_expect_op(parse, ")");
    }
    expr.text = parse->now.text;
    if (parse->now.kind != WEFTI_TMPL_LEX_NAME || wefti_tmpl_is_keyword(expr.text))
        return wefti_tmpl_parse_unexpected(parse, "a name");
    weft_err err = wefti_tmpl_parse_take(parse);
    if (!err) err = wefti_tmpl_parse_add_expr(parse, expr, out);
    if (!err && member_ok && wefti_tmpl_parse_at_op(parse, ".")) {
        err = wefti_tmpl_parse_member(parse, out);
        if (!err && parse->tmpl->exprs[*out].kind != WEFTI_TMPL_EXPR_MEMBER)
            return wefti_tmpl_parse_unexpected(parse, "a name");
    }
    return err;
}

weft_err wefti_tmpl_parse_target(struct wefti_tmpl_parser *parse, bool member_ok, uint32_t *out) {
    struct wefti_tmpl_expr expr = wefti_tmpl_new_expr(WEFTI_TMPL_EXPR_TUPLE, parse->now.line);
    uint32_t last = WEFTI_TMPL_NO_IDX;
    weft_err err = parse_target_name(parse, member_ok, out);
    if (err || !wefti_tmpl_parse_at_op(parse, ",")) return err;
    err = wefti_tmpl_parse_add_plain(parse, *out, &expr.args, &last);
    while (!err && wefti_tmpl_parse_at_op(parse, ",")) {
        uint32_t item = WEFTI_TMPL_NO_IDX;
        err = wefti_tmpl_parse_take(parse);
        if (err || wefti_tmpl_parse_at_word(parse, "in") || at_tuple_end(parse)) break;
        err = parse_target_name(parse, member_ok, &item);
        if (!err) err = wefti_tmpl_parse_add_plain(parse, item, &expr.args, &last);
    }
    return err ? err : wefti_tmpl_parse_add_expr(parse, expr, out);
}

weft_err wefti_tmpl_parse_params(struct wefti_tmpl_parser *parse, uint32_t *first_out) {
    uint32_t last = WEFTI_TMPL_NO_IDX;
    weft_err err = wefti_tmpl_parse_expect_op(parse, "(");
    while (!err && !wefti_tmpl_parse_at_op(parse, ")")) {
        struct wefti_tmpl_arg arg = {
            .kind = WEFTI_TMPL_ARG_PLAIN, .expr = WEFTI_TMPL_NO_IDX, .name = parse->now.text};
        err = wefti_tmpl_parse_expect(parse, WEFTI_TMPL_LEX_NAME, "a name");
        if (!err && wefti_tmpl_parse_at_op(parse, "=")) {
            err = wefti_tmpl_parse_take(parse);
            if (!err) err = wefti_tmpl_parse_expr(parse, &arg.expr);
        }
        if (!err) err = wefti_tmpl_parse_add_arg(parse, arg, first_out, &last);
        if (!err && !wefti_tmpl_parse_at_op(parse, ")"))
            err = wefti_tmpl_parse_expect_op(parse, ",");
    }
    return err ? err : wefti_tmpl_parse_take(parse);
}
