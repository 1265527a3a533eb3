/* What the parsers of statements and expressions share: lexemes taken one by one, faults with their
 * line, and the flat arrays that a template is compiled to. */
#include "syntax/parser.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define EXPR_DEPTH_MAX 500 /* a + b + c ... is a tree as deep as it is long */

weft_err wefti_tmpl_parse_refuse(struct wefti_tmpl_parser *parse, uint32_t line, const char *what,
                                 struct weft_str name) {
    return weft_err_set(parse->why, WEFT_E_UNSUPPORTED,
                        "chat template, line %u: %s%s%.*s is not supported", line, what,
                        name.len ? " " : "", (int)(name.len < 60 ? name.len : 60), name.data);
}

weft_err wefti_tmpl_parse_unexpected(struct wefti_tmpl_parser *parse, const char *wanted) {
    const struct wefti_tmpl_lexeme *now = &parse->now;
    if (now->kind == WEFTI_TMPL_LEX_END)
        return weft_err_set(parse->why, WEFT_E_PROTO,
                            "chat template, line %u: it ends where %s should be", now->line,
                            wanted);
    return weft_err_set(parse->why, WEFT_E_PROTO,
                        "chat template, line %u: \"%.*s\" where %s should be", now->line,
                        (int)(now->text.len < 60 ? now->text.len : 60), now->text.data, wanted);
}

weft_err wefti_tmpl_parse_deeper(struct wefti_tmpl_parser *parse) {
    if (++parse->depth <= WEFTI_TMPL_PARSE_DEPTH_MAX) return WEFT_OK;
    return wefti_tmpl_parse_refuse(parse, parse->now.line, "nesting this deep",
                                   (struct weft_str){"", 0});
}

weft_err wefti_tmpl_parse_take(struct wefti_tmpl_parser *parse) {
    return wefti_tmpl_lex_next(&parse->lex, &parse->now, parse->why);
}

bool wefti_tmpl_parse_at_op(const struct wefti_tmpl_parser *parse, const char *op) {
    return parse->now.kind == WEFTI_TMPL_LEX_OP && weft_str_is(parse->now.text, op, strlen(op));
}

bool wefti_tmpl_parse_at_word(const struct wefti_tmpl_parser *parse, const char *word) {
    return parse->now.kind == WEFTI_TMPL_LEX_NAME &&
           weft_str_is(parse->now.text, word, strlen(word));
}

weft_err wefti_tmpl_parse_expect_op(struct wefti_tmpl_parser *parse, const char *op) {
    return wefti_tmpl_parse_at_op(parse, op) ? wefti_tmpl_parse_take(parse)
                                             : wefti_tmpl_parse_unexpected(parse, op);
}

weft_err wefti_tmpl_parse_expect(struct wefti_tmpl_parser *parse, enum wefti_tmpl_lex_kind kind,
                                 const char *wanted) {
    return parse->now.kind == kind ? wefti_tmpl_parse_take(parse)
                                   : wefti_tmpl_parse_unexpected(parse, wanted);
}

bool wefti_tmpl_is_keyword(struct weft_str name) {
    static const char *const words[] = {"and", "or", "not", "in", "is", "if", "else"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (weft_str_is(name, words[i], strlen(words[i]))) return true;
    return false;
}

/* --- the arrays ------------------------------------------------------------------------------- */

struct wefti_tmpl_expr wefti_tmpl_new_expr(enum wefti_tmpl_expr_kind kind, uint32_t line) {
    return (struct wefti_tmpl_expr){.kind = kind,
                                    .line = line,
                                    .a = WEFTI_TMPL_NO_IDX,
                                    .b = WEFTI_TMPL_NO_IDX,
                                    .c = WEFTI_TMPL_NO_IDX,
                                    .args = WEFTI_TMPL_NO_IDX,
                                    .text = {"", 0}};
}

static uint32_t depth_below(const weft_tmpl *tmpl, const struct wefti_tmpl_expr *expr) {
    const uint32_t operands[] = {expr->a, expr->b, expr->c};
    uint32_t depth = 0;
    for (size_t i = 0; i < 3; i++)
        if (operands[i] != WEFTI_TMPL_NO_IDX && tmpl->exprs[operands[i]].depth > depth)
            depth = tmpl->exprs[operands[i]].depth;
    for (uint32_t at = expr->args; at != WEFTI_TMPL_NO_IDX; at = tmpl->args[at].next) {
        uint32_t idx = tmpl->args[at].expr;
        if (idx != WEFTI_TMPL_NO_IDX && tmpl->exprs[idx].depth > depth)
            depth = tmpl->exprs[idx].depth;
    }
    return depth;
}

weft_err wefti_tmpl_parse_add_expr(struct wefti_tmpl_parser *parse, struct wefti_tmpl_expr expr,
                                   uint32_t *idx_out) {
    WEFT_ASSERT(parse->tmpl->n_exprs <= parse->tmpl->exprs_cap);
    weft_tmpl *tmpl = parse->tmpl;
    *idx_out = WEFTI_TMPL_NO_IDX;
    if (tmpl->n_exprs == tmpl->exprs_cap) {
        uint32_t cap = tmpl->exprs_cap ? 2 * tmpl->exprs_cap : 64;
        if (cap > WEFTI_TMPL_ITEMS_MAX) return WEFT_E_TOOBIG;
        struct wefti_tmpl_expr *grown = realloc(tmpl->exprs, cap * sizeof *grown);
        if (!grown) return WEFT_E_NOMEM;
        tmpl->exprs = grown;
        tmpl->exprs_cap = cap;
    }
    expr.depth = depth_below(tmpl, &expr) + 1;
    if (expr.depth > EXPR_DEPTH_MAX)
        return wefti_tmpl_parse_refuse(parse, expr.line, "an expression this long",
                                       WEFTI_TMPL_NOTHING);
    *idx_out = tmpl->n_exprs++;
    tmpl->exprs[*idx_out] = expr;
    return WEFT_OK;
}

weft_err wefti_tmpl_parse_add_arg(struct wefti_tmpl_parser *parse, struct wefti_tmpl_arg arg,
                                  uint32_t *first, uint32_t *last) {
    WEFT_ASSERT((*first == WEFTI_TMPL_NO_IDX) == (*last == WEFTI_TMPL_NO_IDX));
    weft_tmpl *tmpl = parse->tmpl;
    if (tmpl->n_args == tmpl->args_cap) {
        uint32_t cap = tmpl->args_cap ? 2 * tmpl->args_cap : 64;
        if (cap > WEFTI_TMPL_ITEMS_MAX) return WEFT_E_TOOBIG;
        struct wefti_tmpl_arg *grown = realloc(tmpl->args, cap * sizeof *grown);
        if (!grown) return WEFT_E_NOMEM;
        tmpl->args = grown;
        tmpl->args_cap = cap;
    }
    uint32_t idx = tmpl->n_args++;
    arg.next = WEFTI_TMPL_NO_IDX;
    tmpl->args[idx] = arg;
    if (*last == WEFTI_TMPL_NO_IDX)
        *first = idx;
    else
        tmpl->args[*last].next = idx;
    *last = idx;
    return WEFT_OK;
}

weft_err wefti_tmpl_parse_add_plain(struct wefti_tmpl_parser *parse, uint32_t expr, uint32_t *first,
                                    uint32_t *last) {
    return wefti_tmpl_parse_add_arg(parse,
                                    (struct wefti_tmpl_arg){.kind = WEFTI_TMPL_ARG_PLAIN,
                                                            .expr = expr,
                                                            .name = WEFTI_TMPL_NOTHING},
                                    first, last);
}
