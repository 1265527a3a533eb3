/* Statements, compiled to a flat array of nodes: recursive descent, one function per statement.
 * Unsupported statements are refused here, by name and line: at start, never at the first
 * request. */
#include <stdlib.h>

#include "base/check.h"
#include "syntax/parser.h"

static weft_err end_of_tag(struct wefti_tmpl_parser *parse) {
    return wefti_tmpl_parse_expect(parse, WEFTI_TMPL_LEX_CLOSE_TAG, "%}");
}

static weft_err add_node(struct wefti_tmpl_parser *parse, struct wefti_tmpl_node node,
                         uint32_t *idx_out) {
    WEFT_ASSERT(parse->tmpl->n_nodes <= parse->tmpl->nodes_cap);
    weft_tmpl *tmpl = parse->tmpl;
    if (tmpl->n_nodes == tmpl->nodes_cap) {
        uint32_t cap = tmpl->nodes_cap ? 2 * tmpl->nodes_cap : 64;
        if (cap > WEFTI_TMPL_ITEMS_MAX) return WEFT_E_TOOBIG;
        struct wefti_tmpl_node *grown = realloc(tmpl->nodes, cap * sizeof *grown);
        if (!grown) return WEFT_E_NOMEM;
        tmpl->nodes = grown;
        tmpl->nodes_cap = cap;
    }
    *idx_out = tmpl->n_nodes++;
    tmpl->nodes[*idx_out] = node;
    return WEFT_OK;
}

static struct wefti_tmpl_node new_node(enum wefti_tmpl_node_kind kind, uint32_t line) {
    return (struct wefti_tmpl_node){.kind = kind,
                                    .line = line,
                                    .next = WEFTI_TMPL_NO_IDX,
                                    .expr = WEFTI_TMPL_NO_IDX,
                                    .cond = WEFTI_TMPL_NO_IDX,
                                    .target = WEFTI_TMPL_NO_IDX,
                                    .params = WEFTI_TMPL_NO_IDX,
                                    .body = WEFTI_TMPL_NO_IDX,
                                    .otherwise = WEFTI_TMPL_NO_IDX};
}

/* --- statements ------------------------------------------------------------------------------- */

/* Parses nodes up to a tag that begins with one of `stops` (a list that NULL ends), which stays as
 * parse->now; without stops, up to the end. */
static weft_err parse_body(struct wefti_tmpl_parser *parse, const char *const *stops,
                           uint32_t *first_out);

/* What follows the opening tag's words: "%}", the body, the tag `end`. */
static weft_err parse_block(struct wefti_tmpl_parser *parse, const char *end, uint32_t *body_out) {
    const char *const stops[] = {end, NULL};
    weft_err err = end_of_tag(parse);
    if (!err) err = parse_body(parse, stops, body_out);
    if (!err) err = wefti_tmpl_parse_take(parse);
    return err ? err : end_of_tag(parse);
}

static weft_err parse_if(struct wefti_tmpl_parser *parse, uint32_t line, uint32_t *out) {
    static const char *const stops[] = {"endif", "elif", "else", NULL};
    static const char *const last_stops[] = {"endif", NULL};
    struct wefti_tmpl_node node = new_node(WEFTI_TMPL_NODE_IF, line);
    weft_err err = wefti_tmpl_parse_tuple(parse, WEFTI_TMPL_TUPLE_NO_IF, &node.expr);
    if (!err) err = end_of_tag(parse);
    if (!err) err = parse_body(parse, stops, &node.body);
    if (err) return err;
    if (wefti_tmpl_parse_at_word(parse, "elif")) {
        uint32_t elif_line = parse->now.line;
        err = wefti_tmpl_parse_take(parse);
        if (!err) err = wefti_tmpl_parse_deeper(parse);
        if (!err) err = parse_if(parse, elif_line, &node.otherwise); /* takes the endif, too */
        parse->depth--;
    } else {
        if (wefti_tmpl_parse_at_word(parse, "else")) {
            err = wefti_tmpl_parse_take(parse);
            if (!err) err = end_of_tag(parse);
            if (!err) err = parse_body(parse, last_stops, &node.otherwise);
        }
        if (!err) err = wefti_tmpl_parse_take(parse); /* endif */
        if (!err) err = end_of_tag(parse);
    }
    return err ? err : add_node(parse, node, out);
}

static weft_err parse_for_head(struct wefti_tmpl_parser *parse, struct wefti_tmpl_node *node) {
    weft_err err = wefti_tmpl_parse_target(parse, false, &node->target);
    if (err) return err;
    if (!wefti_tmpl_parse_at_word(parse, "in")) return wefti_tmpl_parse_unexpected(parse, "in");
    err = wefti_tmpl_parse_take(parse);
    if (!err) err = wefti_tmpl_parse_tuple(parse, WEFTI_TMPL_TUPLE_NO_IF, &node->expr);
    if (!err && wefti_tmpl_parse_at_word(parse, "if")) {
        err = wefti_tmpl_parse_take(parse);
        if (!err) err = wefti_tmpl_parse_expr(parse, &node->cond);
    }
    if (!err && wefti_tmpl_parse_at_word(parse, "recursive")) {
        node->recursive = true;
        err = wefti_tmpl_parse_take(parse);
    }
    return err ? err : end_of_tag(parse);
}

static weft_err parse_for(struct wefti_tmpl_parser *parse, uint32_t line, uint32_t *out) {
    static const char *const stops[] = {"endfor", "else", NULL};
    static const char *const last_stops[] = {"endfor", NULL};
    struct wefti_tmpl_node node = new_node(WEFTI_TMPL_NODE_FOR, line);
    weft_err err = parse_for_head(parse, &node);
    parse->loops++;
    if (!err) err = parse_body(parse, stops, &node.body);
    parse->loops--;
    if (!err && wefti_tmpl_parse_at_word(parse, "else")) {
        err = wefti_tmpl_parse_take(parse);
        if (!err) err = end_of_tag(parse);
        if (!err) err = parse_body(parse, last_stops, &node.otherwise);
    }
    if (!err) err = wefti_tmpl_parse_take(parse); /* endfor */
    if (!err) err = end_of_tag(parse);
    return err ? err : add_node(parse, node, out);
}

static weft_err parse_set(struct wefti_tmpl_parser *parse, uint32_t line, uint32_t *out) {
    struct wefti_tmpl_node node = new_node(WEFTI_TMPL_NODE_SET, line);
    weft_err err = wefti_tmpl_parse_target(parse, true, &node.target);
    if (err) return err;
    if (wefti_tmpl_parse_at_op(parse, "=")) {
        err = wefti_tmpl_parse_take(parse);
        if (!err) err = wefti_tmpl_parse_tuple(parse, WEFTI_TMPL_TUPLE_WITH_IF, &node.expr);
        if (!err) err = end_of_tag(parse);
    } else {
        if (wefti_tmpl_parse_at_op(parse, "|")) err = wefti_tmpl_parse_filters(parse, &node.expr);
        if (!err && parse->now.kind != WEFTI_TMPL_LEX_CLOSE_TAG)
            return wefti_tmpl_parse_unexpected(parse, "= or %}");
        node.kind = WEFTI_TMPL_NODE_SET_BLOCK;
        if (!err) err = parse_block(parse, "endset", &node.body);
    }
    return err ? err : add_node(parse, node, out);
}

/* A macro's or a caller's body is not inside the loops around it. */
static weft_err parse_macro_body(struct wefti_tmpl_parser *parse, const char *end,
                                 struct wefti_tmpl_node *node) {
    int loops = parse->loops;
    uint8_t uses = parse->uses;
    parse->loops = 0;
    parse->uses = 0;
    weft_err err = parse_block(parse, end, &node->body);
    node->uses = parse->uses;
    parse->loops = loops;
    parse->uses = uses;
    return err;
}

static weft_err parse_macro(struct wefti_tmpl_parser *parse, uint32_t line, uint32_t *out) {
    struct wefti_tmpl_node node = new_node(WEFTI_TMPL_NODE_MACRO, line);
    node.text = parse->now.text;
    weft_err err = wefti_tmpl_parse_expect(parse, WEFTI_TMPL_LEX_NAME, "a name");
    if (!err) err = wefti_tmpl_parse_params(parse, &node.params);
    if (!err) err = parse_macro_body(parse, "endmacro", &node);
    return err ? err : add_node(parse, node, out);
}

static weft_err parse_call(struct wefti_tmpl_parser *parse, uint32_t line, uint32_t *out) {
    struct wefti_tmpl_node node = new_node(WEFTI_TMPL_NODE_CALL, line);
    node.text = (struct weft_str){"caller", 6};
    weft_err err = WEFT_OK;
    if (wefti_tmpl_parse_at_op(parse, "(")) err = wefti_tmpl_parse_params(parse, &node.params);
    if (!err) err = wefti_tmpl_parse_expr(parse, &node.expr);
    if (err) return err;
    if (parse->tmpl->exprs[node.expr].kind != WEFTI_TMPL_EXPR_CALL)
        return wefti_tmpl_parse_unexpected(parse, "the call of a macro");
    err = parse_macro_body(parse, "endcall", &node);
    return err ? err : add_node(parse, node, out);
}

static weft_err parse_filter_block(struct wefti_tmpl_parser *parse, uint32_t line, uint32_t *out) {
    struct wefti_tmpl_node node = new_node(WEFTI_TMPL_NODE_FILTER, line);
    /* "filter upper" reads like "| upper": the first filter's name stands without its bar. */
    weft_err err = wefti_tmpl_parse_filters(parse, &node.expr);
    if (!err) err = parse_block(parse, "endfilter", &node.body);
    return err ? err : add_node(parse, node, out);
}

static weft_err parse_with(struct wefti_tmpl_parser *parse, uint32_t line, uint32_t *out) {
    struct wefti_tmpl_node node = new_node(WEFTI_TMPL_NODE_WITH, line);
    uint32_t last = WEFTI_TMPL_NO_IDX;
    weft_err err = WEFT_OK;
    while (!err && parse->now.kind != WEFTI_TMPL_LEX_CLOSE_TAG) {
        struct wefti_tmpl_arg arg = {.kind = WEFTI_TMPL_ARG_NAMED, .name = parse->now.text};
        err = wefti_tmpl_parse_expect(parse, WEFTI_TMPL_LEX_NAME, "a name");
        if (!err) err = wefti_tmpl_parse_expect_op(parse, "=");
        if (!err) err = wefti_tmpl_parse_expr(parse, &arg.expr);
        if (!err) err = wefti_tmpl_parse_add_arg(parse, arg, &node.params, &last);
        if (!err && parse->now.kind != WEFTI_TMPL_LEX_CLOSE_TAG)
            err = wefti_tmpl_parse_expect_op(parse, ",");
    }
    if (!err) err = parse_block(parse, "endwith", &node.body);
    return err ? err : add_node(parse, node, out);
}

static weft_err parse_generation(struct wefti_tmpl_parser *parse, uint32_t line, uint32_t *out) {
    struct wefti_tmpl_node node = new_node(WEFTI_TMPL_NODE_SCOPE, line);
    int loops = parse->loops;
    parse->loops = 0;
    weft_err err = parse_block(parse, "endgeneration", &node.body);
    parse->loops = loops;
    return err ? err : add_node(parse, node, out);
}

static weft_err parse_jump(struct wefti_tmpl_parser *parse, struct wefti_tmpl_lexeme word,
                           uint32_t *out) {
    if (parse->loops == 0)
        return weft_err_set(parse->why, WEFT_E_PROTO,
                            "chat template, line %u: \"%.*s\" outside of a loop", word.line,
                            (int)word.text.len, word.text.data);
    weft_err err = end_of_tag(parse);
    return err ? err
               : add_node(parse,
                          new_node(WEFT_STR_IS(word.text, "break") ? WEFTI_TMPL_NODE_BREAK
                                                                   : WEFTI_TMPL_NODE_CONTINUE,
                                   word.line),
                          out);
}

/* After "{%": parse->now is the statement's keyword. */
static weft_err parse_statement(struct wefti_tmpl_parser *parse, uint32_t *out) {
    static const struct {
        const char *word;
        weft_err (*parse)(struct wefti_tmpl_parser *parse, uint32_t line, uint32_t *out);
    } statements[] = {{"if", parse_if},     {"for", parse_for},
                      {"set", parse_set},   {"macro", parse_macro},
                      {"call", parse_call}, {"filter", parse_filter_block},
                      {"with", parse_with}, {"generation", parse_generation}};
    static const char *const strays[] = {"else",    "elif",     "endif",        "endfor",
                                         "endset",  "endmacro", "endcall",      "endfilter",
                                         "endwith", "endraw",   "endgeneration"};
    struct wefti_tmpl_lexeme word = parse->now;
    weft_err err = wefti_tmpl_parse_expect(parse, WEFTI_TMPL_LEX_NAME, "a statement");
    if (err) return err;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (weft_str_is(word.text, statements[i].word, strlen(statements[i].word)))
            return statements[i].parse(parse, word.line, out);
    if (WEFT_STR_IS(word.text, "break") || WEFT_STR_IS(word.text, "continue"))
        return parse_jump(parse, word, out);
    for (size_t i = 0; i < sizeof strays / sizeof *strays; i++)
        if (weft_str_is(word.text, strays[i], strlen(strays[i])))
            return weft_err_set(parse->why, WEFT_E_PROTO,
                                "chat template, line %u: \"%.*s\" belongs to nothing", word.line,
                                (int)word.text.len, word.text.data);
    return wefti_tmpl_parse_refuse(parse, word.line, "the statement", word.text);
}

static weft_err parse_text(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_node node = new_node(WEFTI_TMPL_NODE_TEXT, parse->now.line);
    node.text = parse->now.text;
    weft_err err = wefti_tmpl_parse_take(parse);
    return err ? err : add_node(parse, node, out);
}

static weft_err parse_print(struct wefti_tmpl_parser *parse, uint32_t *out) {
    struct wefti_tmpl_node node = new_node(WEFTI_TMPL_NODE_PRINT, parse->now.line);
    weft_err err = wefti_tmpl_parse_take(parse); /* "{{" */
    if (!err) err = wefti_tmpl_parse_tuple(parse, WEFTI_TMPL_TUPLE_WITH_IF, &node.expr);
    if (!err) err = wefti_tmpl_parse_expect(parse, WEFTI_TMPL_LEX_CLOSE_EXPR, "}}");
    return err ? err : add_node(parse, node, out);
}

static bool at_stop(const struct wefti_tmpl_parser *parse, const char *const *stops) {
    for (; *stops; stops++)
        if (wefti_tmpl_parse_at_word(parse, *stops)) return true;
    return false;
}

static weft_err parse_body(struct wefti_tmpl_parser *parse, const char *const *stops,
                           uint32_t *first_out) {
    uint32_t last = WEFTI_TMPL_NO_IDX;
    *first_out = WEFTI_TMPL_NO_IDX;
    weft_err err = wefti_tmpl_parse_deeper(parse);
    while (!err) {
        uint32_t node = WEFTI_TMPL_NO_IDX;
        if (parse->now.kind == WEFTI_TMPL_LEX_END) {
            if (*stops) return wefti_tmpl_parse_unexpected(parse, *stops);
            break;
        }
        if (parse->now.kind == WEFTI_TMPL_LEX_TEXT) {
            err = parse_text(parse, &node);
        } else if (parse->now.kind == WEFTI_TMPL_LEX_OPEN_EXPR) {
            err = parse_print(parse, &node);
        } else {
            WEFT_ASSERT(parse->now.kind == WEFTI_TMPL_LEX_OPEN_TAG);
            err = wefti_tmpl_parse_take(parse);
            if (!err && at_stop(parse, stops)) break;
            if (!err) err = parse_statement(parse, &node);
        }
        if (err) break;
        if (last == WEFTI_TMPL_NO_IDX)
            *first_out = node;
        else
            parse->tmpl->nodes[last].next = node;
        last = node;
    }
    parse->depth--;
    return err;
}

weft_err wefti_tmpl_parse(weft_tmpl *tmpl, struct weft_errmsg *why) {
    static const char *const no_stops[] = {NULL};
    struct wefti_tmpl_parser parse = {.tmpl = tmpl, .why = why};
    wefti_tmpl_lex_init(&parse.lex, tmpl->source, tmpl->source_len);
    weft_err err = wefti_tmpl_parse_take(&parse);
    if (!err) err = parse_body(&parse, no_stops, &tmpl->first);
    if (err == WEFT_E_TOOBIG && why && !why->text[0])
        (void)weft_err_set(why, err, "the chat template has over %u parts",
                           WEFTI_TMPL_ITEMS_MAX / 2);
    return err;
}
