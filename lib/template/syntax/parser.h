/* parser — a template compiled: statement.c, expr.c and primary.c, with parser.c below them. */
#ifndef WEFT_TMPL_PARSER_H
#define WEFT_TMPL_PARSER_H

#include "syntax/lex.h"
#include "syntax/tree.h"

#define WEFTI_TMPL_PARSE_DEPTH_MAX 100 /* nested blocks and parentheses together */
#define WEFTI_TMPL_NOTHING ((struct weft_str){"", 0})

struct wefti_tmpl_parser {
    weft_tmpl *tmpl;
    struct wefti_tmpl_lex lex;
    struct wefti_tmpl_lexeme now; /* the lexeme not yet taken */
    int depth, loops;
    uint8_t uses; /* of the macro being parsed */
    struct weft_errmsg *why;
};

/* Compiles tmpl->source. */
weft_err wefti_tmpl_parse(weft_tmpl *tmpl, struct weft_errmsg *why);

/* Lexemes. */
weft_err wefti_tmpl_parse_take(struct wefti_tmpl_parser *parse);
bool wefti_tmpl_parse_at_op(const struct wefti_tmpl_parser *parse, const char *op);
bool wefti_tmpl_parse_at_word(const struct wefti_tmpl_parser *parse, const char *word);
weft_err wefti_tmpl_parse_expect_op(struct wefti_tmpl_parser *parse, const char *op);
weft_err wefti_tmpl_parse_expect(struct wefti_tmpl_parser *parse, enum wefti_tmpl_lex_kind kind,
                                 const char *wanted);
weft_err wefti_tmpl_parse_unexpected(struct wefti_tmpl_parser *parse, const char *wanted);
weft_err wefti_tmpl_parse_refuse(struct wefti_tmpl_parser *parse, uint32_t line, const char *what,
                                 struct weft_str name);
weft_err wefti_tmpl_parse_deeper(struct wefti_tmpl_parser *parse); /* undone by parse->depth-- */

/* Expressions: each adds to tmpl->exprs and returns the index. */
enum wefti_tmpl_tuple { WEFTI_TMPL_TUPLE_WITH_IF, WEFTI_TMPL_TUPLE_NO_IF };
weft_err wefti_tmpl_parse_expr(struct wefti_tmpl_parser *parse, uint32_t *out);
/* a, or a tuple a, b, c without parentheses. */
weft_err wefti_tmpl_parse_tuple(struct wefti_tmpl_parser *parse, enum wefti_tmpl_tuple how,
                                uint32_t *out);
/* Names to bind to: a, or a, b, or (a, b), or with `member_ok` ns.a. */
weft_err wefti_tmpl_parse_target(struct wefti_tmpl_parser *parse, bool member_ok, uint32_t *out);
/* ( a, b=1 ) of a definition; at "(". */
weft_err wefti_tmpl_parse_params(struct wefti_tmpl_parser *parse, uint32_t *first_out);
/* name ( args ) | name ( args ) ..., applied to what a block wrote; the first bar may be
 * missing. */
weft_err wefti_tmpl_parse_filters(struct wefti_tmpl_parser *parse, uint32_t *out);
weft_err wefti_tmpl_parse_primary(struct wefti_tmpl_parser *parse, uint32_t *out);
/* Each of these takes *out and what follows it. */
weft_err wefti_tmpl_parse_postfix(struct wefti_tmpl_parser *parse, uint32_t *out);
weft_err wefti_tmpl_parse_member(struct wefti_tmpl_parser *parse, uint32_t *out);
weft_err wefti_tmpl_parse_filters_and_tests(struct wefti_tmpl_parser *parse, uint32_t *out);

/* The flat arrays. An argument is appended to the list from *first (WEFTI_TMPL_NO_IDX: empty) to
 * *last. */
bool wefti_tmpl_is_keyword(struct weft_str name);
struct wefti_tmpl_expr wefti_tmpl_new_expr(enum wefti_tmpl_expr_kind kind, uint32_t line);
weft_err wefti_tmpl_parse_add_expr(struct wefti_tmpl_parser *parse, struct wefti_tmpl_expr expr,
                                   uint32_t *idx_out);
weft_err wefti_tmpl_parse_add_plain(struct wefti_tmpl_parser *parse, uint32_t expr, uint32_t *first,
                                    uint32_t *last);
weft_err wefti_tmpl_parse_add_arg(struct wefti_tmpl_parser *parse, struct wefti_tmpl_arg arg,
                                  uint32_t *first, uint32_t *last);

#endif
