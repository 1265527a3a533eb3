/* The subset of Jinja that chat templates of ChatML's kind need, compiled to two flat arrays: nodes
 * (what is written or run) and expressions. Recursive descent with Jinja's precedences; a construct
 * outside the subset is refused by name and line, at start, never at the first request. */
#include <stdlib.h>

#include "base/check.h"
#include "text_internal.h"

#define DEPTH_MAX 100      /* of nested blocks and parentheses together */
#define EXPR_DEPTH_MAX 500 /* a + b + c ... is a tree as deep as it is long */
#define ITEMS_MAX (1u << 20)

struct parser {
    weft_chat *chat;
    struct wefti_lex lex;
    struct wefti_lexeme now; /* the lexeme not yet taken */
    int depth, loops;
    struct weft_errmsg *why;
};

/* --- errors ------------------------------------------------------------------------------------
 */

static weft_err refuse(struct parser *parse, uint32_t line, const char *what,
                       struct weft_str name) {
    return weft_err_set(parse->why, WEFT_E_UNSUPPORTED,
                        "chat template, line %u: %s%s%.*s is not supported", line, what,
                        name.len ? " " : "", (int)(name.len < 60 ? name.len : 60), name.data);
}

static weft_err unexpected(struct parser *parse, const char *wanted) {
    const struct wefti_lexeme *now = &parse->now;
    if (now->kind == WEFTI_LEX_END)
        return weft_err_set(parse->why, WEFT_E_PROTO,
                            "chat template, line %u: it ends where %s should be", now->line,
                            wanted);
    return weft_err_set(parse->why, WEFT_E_PROTO,
                        "chat template, line %u: \"%.*s\" where %s should be", now->line,
                        (int)(now->text.len < 60 ? now->text.len : 60), now->text.data, wanted);
}

/* --- lexemes -----------------------------------------------------------------------------------
 */

static weft_err take(struct parser *parse) {
    return wefti_lex_next(&parse->lex, &parse->now, parse->why);
}

static bool at_op(const struct parser *parse, const char *op) {
    return parse->now.kind == WEFTI_LEX_OP && wefti_str_is(parse->now.text, op, strlen(op));
}

static bool at_word(const struct parser *parse, const char *word) {
    return parse->now.kind == WEFTI_LEX_NAME && wefti_str_is(parse->now.text, word, strlen(word));
}

static weft_err expect_op(struct parser *parse, const char *op) {
    return at_op(parse, op) ? take(parse) : unexpected(parse, op);
}

static weft_err expect(struct parser *parse, enum wefti_lex_kind kind, const char *wanted) {
    return parse->now.kind == kind ? take(parse) : unexpected(parse, wanted);
}

static bool is_keyword(struct weft_str name) {
    static const char *const words[] = {"and",  "or",  "not",  "in",    "is",     "if",
                                        "else", "for", "elif", "endif", "endfor", "set"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (wefti_str_is(name, words[i], strlen(words[i]))) return true;
    return false;
}

/* --- the two arrays ----------------------------------------------------------------------------
 */

static weft_err add_expr(struct parser *parse, struct wefti_expr expr, uint32_t *idx_out) {
    weft_chat *chat = parse->chat;
    if (chat->n_exprs == chat->exprs_cap) {
        uint32_t cap = chat->exprs_cap ? 2 * chat->exprs_cap : 64;
        if (cap > ITEMS_MAX) return WEFT_E_TOOBIG;
        struct wefti_expr *grown = realloc(chat->exprs, cap * sizeof *grown);
        if (!grown) return WEFT_E_NOMEM;
        chat->exprs = grown;
        chat->exprs_cap = cap;
    }
    /* A leaf's operands are 0: that is a leaf as well, so its depth comes out 1 too large at most.
     */
    const uint32_t operands[] = {expr.a, expr.b, expr.c};
    for (size_t i = 0; i < 3; i++)
        if (operands[i] < chat->n_exprs && chat->exprs[operands[i]].depth > expr.depth)
            expr.depth = chat->exprs[operands[i]].depth;
    if (++expr.depth > EXPR_DEPTH_MAX)
        return refuse(parse, expr.line, "an expression this long", (struct weft_str){"", 0});
    *idx_out = chat->n_exprs++;
    chat->exprs[*idx_out] = expr;
    return WEFT_OK;
}

static weft_err add_node(struct parser *parse, enum wefti_node_kind kind, uint32_t line,
                         uint32_t *idx_out) {
    weft_chat *chat = parse->chat;
    if (chat->n_nodes == chat->nodes_cap) {
        uint32_t cap = chat->nodes_cap ? 2 * chat->nodes_cap : 64;
        if (cap > ITEMS_MAX) return WEFT_E_TOOBIG;
        struct wefti_node *grown = realloc(chat->nodes, cap * sizeof *grown);
        if (!grown) return WEFT_E_NOMEM;
        chat->nodes = grown;
        chat->nodes_cap = cap;
    }
    *idx_out = chat->n_nodes++;
    chat->nodes[*idx_out] = (struct wefti_node){.kind = kind,
                                                .line = line,
                                                .next = WEFTI_NO_ID,
                                                .expr = WEFTI_NO_ID,
                                                .body = WEFTI_NO_ID,
                                                .otherwise = WEFTI_NO_ID};
    return WEFT_OK;
}

/* --- expressions -------------------------------------------------------------------------------
 */

static weft_err parse_expr(struct parser *parse, uint32_t *out);

/* Resolves the escapes of a literal in place (it only shrinks): the text lies in chat->source. */
static struct weft_str unescape(const weft_chat *chat, struct weft_str raw) {
    char *text = chat->source + (raw.data - chat->source);
    size_t n = 0;
    for (size_t i = 0; i < raw.len; i++) {
        char c = raw.data[i];
        if (c == '\\' && i + 1 < raw.len) {
            c = raw.data[++i];
            switch (c) {
            case 'n':
                c = '\n';
                break;
            case 't':
                c = '\t';
                break;
            case 'r':
                c = '\r';
                break;
            case '\\':
            case '\'':
            case '"':
                break;
            default: /* Python keeps the backslash of an escape it does not know */
                text[n++] = '\\';
            }
        }
        text[n++] = c;
    }
    return (struct weft_str){text, n};
}

static weft_err check_escapes(struct parser *parse, struct weft_str raw) {
    for (size_t i = 0; i + 1 < raw.len; i++) {
        if (raw.data[i] != '\\') continue;
        i++;
        if (raw.data[i] && strchr("uUxN01234567abfv", raw.data[i]))
            return refuse(parse, parse->now.line, "the escape",
                          (struct weft_str){raw.data + i - 1, 2});
    }
    return WEFT_OK;
}

static weft_err parse_string(struct parser *parse, uint32_t *out) {
    struct wefti_lexeme now = parse->now;
    weft_err err = check_escapes(parse, now.text);
    if (!err) err = take(parse);
    if (err) return err;
    if (parse->now.kind == WEFTI_LEX_STRING)
        return refuse(parse, now.line, "joining neighbouring strings", (struct weft_str){"", 0});
    return add_expr(parse,
                    (struct wefti_expr){.kind = WEFTI_EXPR_STRING,
                                        .line = now.line,
                                        .text = unescape(parse->chat, now.text)},
                    out);
}

static weft_err parse_int(struct parser *parse, uint32_t *out) {
    struct wefti_lexeme now = parse->now;
    if (now.text.len > 9) return refuse(parse, now.line, "a number of ten digits", now.text);
    int64_t number = 0;
    for (size_t i = 0; i < now.text.len; i++)
        number = number * 10 + (now.text.data[i] - '0');
    weft_err err = take(parse);
    if (err) return err;
    return add_expr(parse,
                    (struct wefti_expr){.kind = WEFTI_EXPR_INT, .line = now.line, .number = number},
                    out);
}

static weft_err parse_raise(struct parser *parse, uint32_t line, uint32_t *out) {
    uint32_t message;
    weft_err err = take(parse); /* "(" */
    if (!err) err = parse_expr(parse, &message);
    if (!err) err = expect_op(parse, ")");
    if (err) return err;
    return add_expr(parse,
                    (struct wefti_expr){.kind = WEFTI_EXPR_RAISE, .line = line, .a = message}, out);
}

static weft_err parse_name(struct parser *parse, uint32_t *out) {
    struct wefti_lexeme now = parse->now;
    struct wefti_expr expr = {.kind = WEFTI_EXPR_NAME, .line = now.line, .text = now.text};
    if (is_keyword(now.text)) return unexpected(parse, "an expression");
    weft_err err = take(parse);
    if (err) return err;
    if (at_op(parse, "(")) {
        if (WEFTI_IS(now.text, "raise_exception")) return parse_raise(parse, now.line, out);
        return refuse(parse, now.line, "calling", now.text);
    }
    bool truth = WEFTI_IS(now.text, "true") || WEFTI_IS(now.text, "True");
    if (truth || WEFTI_IS(now.text, "false") || WEFTI_IS(now.text, "False")) {
        expr.kind = WEFTI_EXPR_BOOL;
        expr.number = truth;
    } else if (WEFTI_IS(now.text, "none") || WEFTI_IS(now.text, "None")) {
        expr.kind = WEFTI_EXPR_NONE;
    }
    return add_expr(parse, expr, out);
}

static weft_err parse_primary(struct parser *parse, uint32_t *out) {
    switch (parse->now.kind) {
    case WEFTI_LEX_STRING:
        return parse_string(parse, out);
    case WEFTI_LEX_INT:
        return parse_int(parse, out);
    case WEFTI_LEX_NAME:
        return parse_name(parse, out);
    default:
        break;
    }
    if (at_op(parse, "[") || at_op(parse, "{"))
        return refuse(parse, parse->now.line, "a list or dictionary", (struct weft_str){"", 0});
    if (at_op(parse, "-")) return refuse(parse, parse->now.line, "the operator", parse->now.text);
    if (!at_op(parse, "(")) return unexpected(parse, "an expression");
    weft_err err = take(parse);
    if (!err) err = parse_expr(parse, out);
    if (!err && at_op(parse, ","))
        err = refuse(parse, parse->now.line, "a tuple", (struct weft_str){"", 0});
    return err ? err : expect_op(parse, ")");
}

static bool is_loop_member(struct weft_str name) {
    return WEFTI_IS(name, "first") || WEFTI_IS(name, "last") || WEFTI_IS(name, "index") ||
           WEFTI_IS(name, "index0") || WEFTI_IS(name, "length");
}

static weft_err parse_member(struct parser *parse, uint32_t *node) {
    weft_err err = take(parse); /* "." */
    if (err) return err;
    struct wefti_lexeme name = parse->now;
    err = expect(parse, WEFTI_LEX_NAME, "a member's name");
    if (err) return err;
    const struct wefti_expr *of = &parse->chat->exprs[*node];
    if (at_op(parse, "(")) return refuse(parse, name.line, "the method", name.text);
    if (of->kind == WEFTI_EXPR_NAME && WEFTI_IS(of->text, "loop") && !is_loop_member(name.text))
        return refuse(parse, name.line, "loop member", name.text);
    return add_expr(
        parse,
        (struct wefti_expr){
            .kind = WEFTI_EXPR_MEMBER, .line = name.line, .a = *node, .text = name.text},
        node);
}

static weft_err parse_index(struct parser *parse, uint32_t *node) {
    uint32_t line = parse->now.line, index = WEFTI_NO_ID;
    weft_err err = take(parse); /* "[" */
    if (err) return err;
    bool negative = at_op(parse, "-");
    if (negative) err = take(parse);
    if (!err && negative && parse->now.kind != WEFTI_LEX_INT) return unexpected(parse, "a number");
    if (!err && at_op(parse, ":")) return refuse(parse, line, "a slice", (struct weft_str){"", 0});
    if (!err) err = parse_expr(parse, &index);
    if (err) return err;
    if (at_op(parse, ":")) return refuse(parse, line, "a slice", (struct weft_str){"", 0});
    if (negative) {
        struct wefti_expr *number = &parse->chat->exprs[index];
        if (number->kind != WEFTI_EXPR_INT)
            return refuse(parse, line, "the operator", (struct weft_str){"-", 1});
        number->number = -number->number;
    }
    err = expect_op(parse, "]");
    if (err) return err;
    return add_expr(
        parse, (struct wefti_expr){.kind = WEFTI_EXPR_INDEX, .line = line, .a = *node, .b = index},
        node);
}

static weft_err parse_filter(struct parser *parse, uint32_t *node) {
    weft_err err = take(parse); /* "|" */
    if (err) return err;
    struct wefti_lexeme name = parse->now;
    err = expect(parse, WEFTI_LEX_NAME, "a filter's name");
    if (err) return err;
    struct wefti_expr expr = {.line = name.line, .a = *node};
    if (WEFTI_IS(name.text, "trim"))
        expr.kind = WEFTI_EXPR_TRIM;
    else if (WEFTI_IS(name.text, "length") || WEFTI_IS(name.text, "count"))
        expr.kind = WEFTI_EXPR_LENGTH;
    else
        return refuse(parse, name.line, "the filter", name.text);
    if (at_op(parse, "(")) return refuse(parse, name.line, "arguments of the filter", name.text);
    return add_expr(parse, expr, node);
}

/* is [not] defined, undefined, none, string. */
static weft_err parse_test(struct parser *parse, uint32_t *node) {
    weft_err err = take(parse); /* "is" */
    if (err) return err;
    bool negate = at_word(parse, "not");
    if (negate) err = take(parse);
    if (err) return err;
    struct wefti_lexeme name = parse->now;
    err = expect(parse, WEFTI_LEX_NAME, "a test's name");
    if (err) return err;
    struct wefti_expr expr = {.line = name.line, .a = *node};
    if (WEFTI_IS(name.text, "defined")) {
        expr.kind = WEFTI_EXPR_IS_DEFINED;
    } else if (WEFTI_IS(name.text, "undefined")) {
        expr.kind = WEFTI_EXPR_IS_DEFINED;
        negate = !negate;
    } else if (WEFTI_IS(name.text, "none")) {
        expr.kind = WEFTI_EXPR_IS_NONE;
    } else if (WEFTI_IS(name.text, "string")) {
        expr.kind = WEFTI_EXPR_IS_STRING;
    } else {
        return refuse(parse, name.line, "the test", name.text);
    }
    err = add_expr(parse, expr, node);
    if (err || !negate) return err;
    return add_expr(
        parse, (struct wefti_expr){.kind = WEFTI_EXPR_NOT, .line = name.line, .a = *node}, node);
}

static weft_err parse_postfix(struct parser *parse, uint32_t *out) {
    weft_err err = parse_primary(parse, out);
    while (!err) {
        if (at_op(parse, "."))
            err = parse_member(parse, out);
        else if (at_op(parse, "["))
            err = parse_index(parse, out);
        else
            break;
    }
    while (!err) {
        if (at_op(parse, "|"))
            err = parse_filter(parse, out);
        else if (at_word(parse, "is"))
            err = parse_test(parse, out);
        else
            break;
    }
    return err;
}

/* a + b, a ~ b, a % b: left-associative, each level binding tighter than the one before. */
static weft_err parse_operators(struct parser *parse, size_t level, uint32_t *out) {
    static const struct {
        const char *op;
        enum wefti_expr_kind kind;
    } levels[] = {{"+", WEFTI_EXPR_ADD}, {"~", WEFTI_EXPR_CONCAT}, {"%", WEFTI_EXPR_MOD}};
    if (level == sizeof levels / sizeof *levels) return parse_postfix(parse, out);
    weft_err err = parse_operators(parse, level + 1, out);
    while (!err && at_op(parse, levels[level].op)) {
        struct wefti_expr expr = {.kind = levels[level].kind, .line = parse->now.line, .a = *out};
        err = take(parse);
        if (!err) err = parse_operators(parse, level + 1, &expr.b);
        if (!err) err = add_expr(parse, expr, out);
    }
    return err;
}

static weft_err parse_compare(struct parser *parse, uint32_t *out) {
    weft_err err = parse_operators(parse, 0, out);
    if (err || !(at_op(parse, "==") || at_op(parse, "!="))) return err;
    struct wefti_expr expr = {.kind = at_op(parse, "==") ? WEFTI_EXPR_EQ : WEFTI_EXPR_NE,
                              .line = parse->now.line,
                              .a = *out};
    err = take(parse);
    if (!err) err = parse_operators(parse, 0, &expr.b);
    if (!err && (at_op(parse, "==") || at_op(parse, "!=")))
        return refuse(parse, expr.line, "a chain of comparisons", (struct weft_str){"", 0});
    return err ? err : add_expr(parse, expr, out);
}

static weft_err parse_not(struct parser *parse, uint32_t *out) {
    uint32_t n = 0, line = parse->now.line;
    weft_err err = WEFT_OK;
    for (; !err && at_word(parse, "not"); n++)
        err = take(parse);
    if (!err) err = parse_compare(parse, out);
    for (; !err && n > 0; n--)
        err = add_expr(parse, (struct wefti_expr){.kind = WEFTI_EXPR_NOT, .line = line, .a = *out},
                       out);
    return err;
}

static weft_err parse_and(struct parser *parse, uint32_t *out) {
    weft_err err = parse_not(parse, out);
    while (!err && at_word(parse, "and")) {
        struct wefti_expr expr = {.kind = WEFTI_EXPR_AND, .line = parse->now.line, .a = *out};
        err = take(parse);
        if (!err) err = parse_not(parse, &expr.b);
        if (!err) err = add_expr(parse, expr, out);
    }
    return err;
}

static weft_err parse_or(struct parser *parse, uint32_t *out) {
    weft_err err = parse_and(parse, out);
    while (!err && at_word(parse, "or")) {
        struct wefti_expr expr = {.kind = WEFTI_EXPR_OR, .line = parse->now.line, .a = *out};
        err = take(parse);
        if (!err) err = parse_and(parse, &expr.b);
        if (!err) err = add_expr(parse, expr, out);
    }
    return err;
}

/* b if a else c */
static weft_err parse_condition(struct parser *parse, uint32_t *out) {
    struct wefti_expr expr = {
        .kind = WEFTI_EXPR_COND, .line = parse->now.line, .b = *out, .c = WEFTI_NO_ID};
    weft_err err = take(parse); /* "if" */
    if (!err) err = parse_or(parse, &expr.a);
    if (!err && at_word(parse, "else")) {
        err = take(parse);
        if (!err) err = parse_expr(parse, &expr.c);
    }
    return err ? err : add_expr(parse, expr, out);
}

static weft_err refuse_operator(struct parser *parse) {
    static const char *const ops[] = {"-", "*", "/", "//", "**", "<", ">", "<=", ">="};
    bool known = at_word(parse, "in") || at_word(parse, "not");
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        known |= at_op(parse, ops[i]);
    return known ? refuse(parse, parse->now.line, "the operator", parse->now.text) : WEFT_OK;
}

static weft_err parse_expr(struct parser *parse, uint32_t *out) {
    *out = WEFTI_NO_ID;
    if (++parse->depth > DEPTH_MAX)
        return refuse(parse, parse->now.line, "nesting this deep", (struct weft_str){"", 0});
    weft_err err = parse_or(parse, out);
    if (!err) err = refuse_operator(parse);
    if (!err && at_word(parse, "if")) err = parse_condition(parse, out);
    parse->depth--;
    return err;
}

/* --- statements --------------------------------------------------------------------------------
 */

/* Parses nodes up to a tag that begins with one of `stops` (a list that NULL ends), which stays as
 * parse->now; without stops, up to the end. */
static weft_err parse_body(struct parser *parse, const char *const *stops, uint32_t *first_out);

static weft_err parse_if(struct parser *parse, uint32_t line, uint32_t *out) {
    static const char *const stops[] = {"endif", "elif", "else", NULL};
    static const char *const last_stops[] = {"endif", NULL};
    uint32_t expr, body, otherwise = WEFTI_NO_ID, node;
    weft_err err = parse_expr(parse, &expr);
    if (!err) err = expect(parse, WEFTI_LEX_CLOSE_TAG, "%}");
    if (!err) err = parse_body(parse, stops, &body);
    if (err) return err;
    if (at_word(parse, "elif")) {
        uint32_t elif_line = parse->now.line;
        err = take(parse);
        if (!err && ++parse->depth > DEPTH_MAX)
            err = refuse(parse, elif_line, "nesting this deep", (struct weft_str){"", 0});
        if (!err) err = parse_if(parse, elif_line, &otherwise); /* takes the endif, too */
        parse->depth--;
    } else {
        if (at_word(parse, "else")) {
            err = take(parse);
            if (!err) err = expect(parse, WEFTI_LEX_CLOSE_TAG, "%}");
            if (!err) err = parse_body(parse, last_stops, &otherwise);
        }
        if (!err) err = take(parse); /* endif */
        if (!err) err = expect(parse, WEFTI_LEX_CLOSE_TAG, "%}");
    }
    if (!err) err = add_node(parse, WEFTI_NODE_IF, line, &node);
    if (err) return err;
    parse->chat->nodes[node].expr = expr;
    parse->chat->nodes[node].body = body;
    parse->chat->nodes[node].otherwise = otherwise;
    *out = node;
    return WEFT_OK;
}

static weft_err parse_for(struct parser *parse, uint32_t line, uint32_t *out) {
    static const char *const stops[] = {"endfor", NULL};
    struct wefti_lexeme name = parse->now;
    uint32_t body, node;
    weft_err err = expect(parse, WEFTI_LEX_NAME, "a name");
    if (err) return err;
    if (at_op(parse, ",")) return refuse(parse, line, "a for over pairs", (struct weft_str){"", 0});
    if (!at_word(parse, "in")) return unexpected(parse, "in");
    err = take(parse);
    if (err) return err;
    if (!at_word(parse, "messages"))
        return refuse(parse, line, "a loop over anything but messages:", parse->now.text);
    err = take(parse);
    if (err) return err;
    if (parse->now.kind != WEFTI_LEX_CLOSE_TAG)
        return refuse(parse, line, "a loop over anything but messages; here is", parse->now.text);
    err = take(parse);
    parse->loops++;
    if (!err) err = parse_body(parse, stops, &body);
    parse->loops--;
    if (!err) err = take(parse); /* endfor */
    if (!err) err = expect(parse, WEFTI_LEX_CLOSE_TAG, "%}");
    if (!err) err = add_node(parse, WEFTI_NODE_FOR, line, &node);
    if (err) return err;
    parse->chat->nodes[node].text = name.text;
    parse->chat->nodes[node].body = body;
    *out = node;
    return WEFT_OK;
}

static weft_err parse_set(struct parser *parse, uint32_t line, uint32_t *out) {
    struct wefti_lexeme name = parse->now;
    uint32_t expr, node;
    weft_err err = expect(parse, WEFTI_LEX_NAME, "a name");
    if (err) return err;
    if (parse->now.kind == WEFTI_LEX_CLOSE_TAG || at_op(parse, ".") || at_op(parse, ","))
        return refuse(parse, line, "a set other than of one name to one value:", name.text);
    if (WEFTI_IS(name.text, "messages"))
        return refuse(parse, line, "setting", name.text); /* loops run over it */
    err = expect_op(parse, "=");
    if (!err) err = parse_expr(parse, &expr);
    if (!err) err = expect(parse, WEFTI_LEX_CLOSE_TAG, "%}");
    if (!err) err = add_node(parse, WEFTI_NODE_SET, line, &node);
    if (err) return err;
    parse->chat->nodes[node].text = name.text;
    parse->chat->nodes[node].expr = expr;
    *out = node;
    return WEFT_OK;
}

static weft_err parse_print(struct parser *parse, uint32_t *out) {
    uint32_t line = parse->now.line, expr, node;
    weft_err err = take(parse); /* "{{" */
    if (!err) err = parse_expr(parse, &expr);
    if (!err) err = expect(parse, WEFTI_LEX_CLOSE_EXPR, "}}");
    if (!err) err = add_node(parse, WEFTI_NODE_PRINT, line, &node);
    if (err) return err;
    parse->chat->nodes[node].expr = expr;
    *out = node;
    return WEFT_OK;
}

/* Behind "{%": the statement's own word is parse->now. */
static weft_err parse_statement(struct parser *parse, uint32_t *out) {
    struct wefti_lexeme word = parse->now;
    weft_err err = expect(parse, WEFTI_LEX_NAME, "a statement");
    if (err) return err;
    if (WEFTI_IS(word.text, "if")) return parse_if(parse, word.line, out);
    if (WEFTI_IS(word.text, "for")) return parse_for(parse, word.line, out);
    if (WEFTI_IS(word.text, "set")) return parse_set(parse, word.line, out);
    if (WEFTI_IS(word.text, "else") && parse->loops > 0)
        return refuse(parse, word.line, "else of a loop", (struct weft_str){"", 0});
    if (WEFTI_IS(word.text, "else") || WEFTI_IS(word.text, "elif") ||
        WEFTI_IS(word.text, "endif") || WEFTI_IS(word.text, "endfor"))
        return weft_err_set(parse->why, WEFT_E_PROTO,
                            "chat template, line %u: \"%.*s\" belongs to nothing", word.line,
                            (int)word.text.len, word.text.data);
    return refuse(parse, word.line, "the statement", word.text);
}

static weft_err parse_text(struct parser *parse, uint32_t *out) {
    struct wefti_lexeme text = parse->now;
    weft_err err = take(parse);
    if (!err) err = add_node(parse, WEFTI_NODE_TEXT, text.line, out);
    if (!err) parse->chat->nodes[*out].text = text.text;
    return err;
}

static bool at_stop(const struct parser *parse, const char *const *stops) {
    for (; *stops; stops++)
        if (at_word(parse, *stops)) return true;
    return false;
}

static weft_err parse_body(struct parser *parse, const char *const *stops, uint32_t *first_out) {
    uint32_t last = WEFTI_NO_ID;
    weft_err err = WEFT_OK;
    *first_out = WEFTI_NO_ID;
    if (++parse->depth > DEPTH_MAX)
        return refuse(parse, parse->now.line, "nesting this deep", (struct weft_str){"", 0});
    while (!err) {
        uint32_t node = WEFTI_NO_ID;
        if (parse->now.kind == WEFTI_LEX_END) {
            if (*stops) return unexpected(parse, *stops);
            break;
        }
        if (parse->now.kind == WEFTI_LEX_TEXT) {
            err = parse_text(parse, &node);
        } else if (parse->now.kind == WEFTI_LEX_OPEN_EXPR) {
            err = parse_print(parse, &node);
        } else {
            WEFT_ASSERT(parse->now.kind == WEFTI_LEX_OPEN_TAG);
            err = take(parse);
            if (!err && at_stop(parse, stops)) break;
            if (!err) err = parse_statement(parse, &node);
        }
        if (err) break;
        if (last == WEFTI_NO_ID)
            *first_out = node;
        else
            parse->chat->nodes[last].next = node;
        last = node;
    }
    parse->depth--;
    return err;
}

weft_err wefti_chat_parse(weft_chat *chat, struct weft_errmsg *why) {
    static const char *const no_stops[] = {NULL};
    struct parser parse = {.chat = chat, .why = why};
    wefti_lex_init(&parse.lex, chat->source, chat->source_len);
    weft_err err = take(&parse);
    if (!err) err = parse_body(&parse, no_stops, &chat->first);
    return err;
}
