/* chat_internal — the template engine: Jinja as chat templates use it, and nothing that reaches
 * outside of it (no files, no imports, no attributes of the host language).
 *
 *   chat_lex.c     text, tags and the white-space control between them
 *   chat_parse.c   statements, compiled to a flat array of nodes
 *   chat_expr.c    operators, compiled to a flat array of expressions; chat_primary.c what they
 * join chat_value.c   values: memory, truth, equality, order, text chat_json.c    values from JSON
 * and to JSON chat_eval.c    expressions evaluated; chat_call.c calls, of macros too chat_op.c
 * arithmetic, comparison, subscripts and slices chat_method.c  methods of strings, lists and
 * dictionaries; chat_string.c what they share chat_filter.c  filters of one value; chat_seq.c
 * filters of sequences; chat_test.c tests chat_func.c    namespace, range, dict, raise_exception,
 * strftime_now chat_run.c     statements run; the public face
 *
 * A value is 16 bytes. Lists and dictionaries never change once they are made, so a value of them
 * is a pointer and a count, and a slice shares its list's items. Only namespaces change.
 *
 * Everything a rendering makes lies in one arena. What a statement leaves behind is dropped when
 * nothing can still point to it: `escapes` counts stores into places that outlive the statement.
 * Bounded: bytes of the arena and of the output, steps (each node, expression and item counts, and
 * long strings by their length), and the depth of recursion. */
#ifndef WEFT_CHAT_INTERNAL_H
#define WEFT_CHAT_INTERNAL_H

#include <jansson.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/limits.h"
#include "codec/unicode.h"
#include "codec/utf8.h"
#include "template/template.h"

#define WEFTI_TMPL_NO_IDX UINT32_MAX           /* no node, expression or argument */
#define WEFTI_TMPL_SOURCE_BYTES_MAX (1u << 20) /* a template's source; the longest seen has 17 kB */

/* ---------------------------------------------------------------------------------------- lex ---
 */

enum wefti_tmpl_lex_kind {
    WEFTI_TMPL_LEX_END,
    WEFTI_TMPL_LEX_TEXT, /* between the tags; `text` is what white-space control leaves of it */
    WEFTI_TMPL_LEX_OPEN_EXPR, /* {{ */
    WEFTI_TMPL_LEX_CLOSE_EXPR,
    WEFTI_TMPL_LEX_OPEN_TAG, /* {% */
    WEFTI_TMPL_LEX_CLOSE_TAG,
    WEFTI_TMPL_LEX_NAME,
    WEFTI_TMPL_LEX_STRING, /* without its quotes, escapes unresolved */
    WEFTI_TMPL_LEX_INT,
    WEFTI_TMPL_LEX_FLOAT,
    WEFTI_TMPL_LEX_OP, /* one or two characters */
};

struct wefti_tmpl_lexeme {
    enum wefti_tmpl_lex_kind kind;
    struct weft_str text;
    uint32_t line;
};

struct wefti_tmpl_lex {
    const char *start, *at, *end;
    uint32_t line;
    uint32_t n_open;                 /* brackets: "}}" closes dictionaries before it closes a tag */
    enum wefti_tmpl_lex_kind inside; /* TEXT, OPEN_EXPR or OPEN_TAG */
    bool strip_next; /* the last tag ended in "-": the text behind it loses its space */
    bool trim_next;  /* the last tag was a block: one newline behind it goes */
    bool after_dot;  /* "a.0.1" is members, not a fraction */
};

void wefti_tmpl_lex_init(struct wefti_tmpl_lex *lex, const char *source, size_t len);
weft_err wefti_tmpl_lex_next(struct wefti_tmpl_lex *lex, struct wefti_tmpl_lexeme *out,
                             struct weft_errmsg *why);

/* -------------------------------------------------------------------------------------- parse ---
 */

enum wefti_tmpl_expr_kind {
    WEFTI_TMPL_EXPR_STRING,
    WEFTI_TMPL_EXPR_WRITTEN, /* what the block around a filter wrote */
    WEFTI_TMPL_EXPR_INT,
    WEFTI_TMPL_EXPR_FLOAT,
    WEFTI_TMPL_EXPR_BOOL,
    WEFTI_TMPL_EXPR_NONE,
    WEFTI_TMPL_EXPR_NAME,   /* text */
    WEFTI_TMPL_EXPR_MEMBER, /* a . text */
    WEFTI_TMPL_EXPR_INDEX,  /* a [ b ] */
    WEFTI_TMPL_EXPR_SLICE,  /* a [ args ]: start, stop and step, absent ones WEFTI_TMPL_NO_IDX */
    WEFTI_TMPL_EXPR_CALL,   /* a ( args ) */
    WEFTI_TMPL_EXPR_FILTER, /* a | builtin ( args ) */
    WEFTI_TMPL_EXPR_TEST,   /* a is builtin ( args ) */
    WEFTI_TMPL_EXPR_LIST,   /* args */
    WEFTI_TMPL_EXPR_TUPLE,  /* args */
    WEFTI_TMPL_EXPR_DICT,   /* args: keys and values in turn */
    WEFTI_TMPL_EXPR_ADD,
    WEFTI_TMPL_EXPR_SUB,
    WEFTI_TMPL_EXPR_MUL,
    WEFTI_TMPL_EXPR_DIV,
    WEFTI_TMPL_EXPR_FLOORDIV,
    WEFTI_TMPL_EXPR_MOD,
    WEFTI_TMPL_EXPR_POW,
    WEFTI_TMPL_EXPR_NEG,
    WEFTI_TMPL_EXPR_POS,
    WEFTI_TMPL_EXPR_CONCAT,  /* a ~ b */
    WEFTI_TMPL_EXPR_COMPARE, /* a, then args with an operator each */
    WEFTI_TMPL_EXPR_AND,     /* yields the operand that decides, as in Python */
    WEFTI_TMPL_EXPR_OR,
    WEFTI_TMPL_EXPR_NOT,
    WEFTI_TMPL_EXPR_COND, /* b if a else c; without else c is WEFTI_TMPL_NO_IDX */
};

enum wefti_tmpl_cmp {
    WEFTI_TMPL_EQ,
    WEFTI_TMPL_NE,
    WEFTI_TMPL_LT,
    WEFTI_TMPL_LE,
    WEFTI_TMPL_GT,
    WEFTI_TMPL_GE,
    WEFTI_TMPL_IN,
    WEFTI_TMPL_NOT_IN
};

enum wefti_tmpl_arg_kind {
    WEFTI_TMPL_ARG_PLAIN,
    WEFTI_TMPL_ARG_NAMED,
    WEFTI_TMPL_ARG_LIST,
    WEFTI_TMPL_ARG_DICT
};

struct wefti_tmpl_arg {
    uint8_t kind; /* enum wefti_tmpl_arg_kind; in a comparison enum wefti_tmpl_cmp */
    uint32_t expr;
    uint32_t next; /* in tmpl->args, or WEFTI_TMPL_NO_IDX */
    struct weft_str name;
};

struct wefti_tmpl_builtin;

struct wefti_tmpl_expr {
    enum wefti_tmpl_expr_kind kind;
    uint32_t line;
    uint32_t depth;   /* of the tree below: evaluating recurses this far */
    uint32_t a, b, c; /* operands, as indexes into the expressions */
    uint32_t args;    /* the first, or WEFTI_TMPL_NO_IDX */
    bool negated;     /* TEST */
    union {
        int64_t number; /* INT, BOOL */
        double real;
        const struct wefti_tmpl_builtin *builtin; /* FILTER, TEST: that of the name in `text`;
                                                    NULL: there is none, a fault if reached */
    };
    struct weft_str text;
};

enum wefti_tmpl_node_kind {
    WEFTI_TMPL_NODE_TEXT,
    WEFTI_TMPL_NODE_PRINT,
    WEFTI_TMPL_NODE_IF,
    WEFTI_TMPL_NODE_FOR,       /* target in expr if cond: body else otherwise */
    WEFTI_TMPL_NODE_SET,       /* target = expr */
    WEFTI_TMPL_NODE_SET_BLOCK, /* target = what `body` writes; with expr: filters over it */
    WEFTI_TMPL_NODE_MACRO,
    WEFTI_TMPL_NODE_CALL,   /* expr, with `body` as its caller */
    WEFTI_TMPL_NODE_FILTER, /* expr is a filter over what `body` writes */
    WEFTI_TMPL_NODE_WITH,   /* params are bound for `body` */
    WEFTI_TMPL_NODE_SCOPE,  /* body, in a scope of its own: {% generation %} */
    WEFTI_TMPL_NODE_BREAK,
    WEFTI_TMPL_NODE_CONTINUE,
};

#define WEFTI_TMPL_USES_CALLER 1u
#define WEFTI_TMPL_USES_VARARGS 2u
#define WEFTI_TMPL_USES_KWARGS 4u

struct wefti_tmpl_node {
    enum wefti_tmpl_node_kind kind;
    uint32_t line;
    uint32_t next;            /* the one behind it, or WEFTI_TMPL_NO_IDX */
    uint32_t expr;            /* or WEFTI_TMPL_NO_IDX */
    uint32_t cond;            /* FOR ... if */
    uint32_t target;          /* FOR, SET: an expression to bind to */
    uint32_t params;          /* MACRO, CALL, WITH: names with defaults, among the args */
    uint32_t body, otherwise; /* first nodes, or WEFTI_TMPL_NO_IDX */
    uint8_t uses;             /* MACRO, CALL: WEFTI_TMPL_USES_* */
    bool recursive;           /* FOR */
    struct weft_str text;     /* TEXT; MACRO's name */
};

struct weft_tmpl {
    char *source; /* owned; texts and literals point into it */
    size_t source_len;
    struct wefti_tmpl_expr *exprs;
    uint32_t n_exprs, exprs_cap;
    struct wefti_tmpl_node *nodes;
    uint32_t n_nodes, nodes_cap;
    struct wefti_tmpl_arg *args;
    uint32_t n_args, args_cap;
    uint32_t first;
    struct weft_tmpl_specials specials; /* texts borrowed from the caller */
};

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

/* What chat_parse.c and chat_expr.c share. */
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
/* Nested blocks and parentheses together. */
#define WEFTI_TMPL_PARSE_DEPTH_MAX 100

#define WEFTI_TMPL_NOTHING ((struct weft_str){"", 0})

enum wefti_tmpl_tuple { WEFTI_TMPL_TUPLE_WITH_IF, WEFTI_TMPL_TUPLE_NO_IF };
weft_err wefti_tmpl_parse_expr(struct wefti_tmpl_parser *parse, uint32_t *out);
/* a, or a tuple a, b, c without parentheses. */
weft_err wefti_tmpl_parse_tuple(struct wefti_tmpl_parser *parse, enum wefti_tmpl_tuple how,
                                uint32_t *out);
/* Names to bind to: a, or a, b, or (a, b), or with `member_ok` ns.a. */
weft_err wefti_tmpl_parse_target(struct wefti_tmpl_parser *parse, bool member_ok, uint32_t *out);
/* ( a, b=1 ) of a definition; at "(". */
weft_err wefti_tmpl_parse_params(struct wefti_tmpl_parser *parse, uint32_t *first_out);
/* name ( args ) | name ( args ) ..., over what a block wrote; the first bar may be missing. */
weft_err wefti_tmpl_parse_filters(struct wefti_tmpl_parser *parse, uint32_t *out);
/* Between chat_expr.c and chat_primary.c. */
bool wefti_tmpl_is_keyword(struct weft_str name);
struct wefti_tmpl_expr wefti_tmpl_new_expr(enum wefti_tmpl_expr_kind kind, uint32_t line);
weft_err wefti_tmpl_parse_add_expr(struct wefti_tmpl_parser *parse, struct wefti_tmpl_expr expr,
                                   uint32_t *idx_out);
weft_err wefti_tmpl_parse_add_plain(struct wefti_tmpl_parser *parse, uint32_t expr, uint32_t *first,
                                    uint32_t *last);
weft_err wefti_tmpl_parse_primary(struct wefti_tmpl_parser *parse, uint32_t *out);
/* These three take *out and what follows it. */
weft_err wefti_tmpl_parse_postfix(struct wefti_tmpl_parser *parse, uint32_t *out);
weft_err wefti_tmpl_parse_member(struct wefti_tmpl_parser *parse, uint32_t *out);
weft_err wefti_tmpl_parse_filters_and_tests(struct wefti_tmpl_parser *parse, uint32_t *out);

weft_err wefti_tmpl_parse_add_arg(struct wefti_tmpl_parser *parse, struct wefti_tmpl_arg arg,
                                  uint32_t *first, uint32_t *last);

/* ------------------------------------------------------------------------------------- values ---
 */

enum wefti_tmpl_kind {
    WEFTI_TMPL_UNDEFINED,
    WEFTI_TMPL_NONE,
    WEFTI_TMPL_BOOL,
    WEFTI_TMPL_INT,
    WEFTI_TMPL_FLOAT,
    WEFTI_TMPL_STR,
    WEFTI_TMPL_LIST,
    WEFTI_TMPL_TUPLE,
    WEFTI_TMPL_ITER, /* what lazy filters yield: always true, without a length */
    WEFTI_TMPL_DICT,
    WEFTI_TMPL_NAMESPACE,
    WEFTI_TMPL_LOOP,
    WEFTI_TMPL_MACRO,
    WEFTI_TMPL_FUNC,   /* a builtin */
    WEFTI_TMPL_METHOD, /* a builtin and the value it is of */
};

struct wefti_tmpl_value {
    uint8_t kind;
    uint32_t n; /* STR: bytes; sequences: items; DICT: pairs */
    union {
        int64_t number; /* BOOL, INT */
        double real;
        const char *text;
        const struct wefti_tmpl_value *items; /* DICT: keys and values in turn */
        struct wefti_tmpl_space *space;
        struct wefti_tmpl_loop *loop;
        struct wefti_tmpl_macro *macro;
        const struct wefti_tmpl_builtin *builtin;
        const struct wefti_tmpl_method *method;
    };
};
_Static_assert(sizeof(struct wefti_tmpl_value) == 16, "lists are copied by the item");

struct wefti_tmpl_binding {
    struct weft_str name;
    struct wefti_tmpl_value value;
};

/* Names and what they are bound to: a scope, or the members of a namespace. */
struct wefti_tmpl_space {
    struct wefti_tmpl_space *parent; /* scopes only */
    struct wefti_tmpl_binding *bindings;
    uint32_t n, cap;
};

struct wefti_tmpl_loop {
    uint32_t index, n, depth;
    const struct wefti_tmpl_value *items;
    const struct wefti_tmpl_node *node; /* of a recursive loop */
    struct wefti_tmpl_space *outside;
    struct wefti_tmpl_value
        changed; /* what changed() was given last, a tuple; UNDEFINED: never called */
};

struct wefti_tmpl_macro {
    const struct wefti_tmpl_node *node;
    struct wefti_tmpl_space *scope; /* where it was defined */
};

struct wefti_tmpl_method {
    const struct wefti_tmpl_builtin *builtin;
    struct wefti_tmpl_value self;
};

/* --------------------------------------------------------------------------------------- runs ---
 */

struct wefti_tmpl_chunk;

struct wefti_tmpl_run {
    const weft_tmpl *tmpl;
    struct weft_buf *out; /* where statements write now */
    size_t out_max;
    struct wefti_tmpl_chunk *chunks; /* owned; newest first */
    size_t arena_bytes, arena_max;
    struct wefti_tmpl_space *scope;
    const struct tm *now;
    uint64_t steps_left;
    uint32_t depth;
    uint32_t escapes;
    struct wefti_tmpl_value written; /* of the filter block being run */
    uint32_t line;                   /* of the expression or statement being run, for messages */
    enum { WEFTI_TMPL_GOING_ON, WEFTI_TMPL_BREAKING, WEFTI_TMPL_CONTINUING } flow;
    struct weft_errmsg *why;
};

struct wefti_tmpl_mark {
    struct wefti_tmpl_chunk *chunk;
    size_t used;
    uint32_t escapes;
};

weft_err wefti_tmpl_alloc(struct wefti_tmpl_run *run, size_t bytes, void **out);
struct wefti_tmpl_mark wefti_tmpl_mark(const struct wefti_tmpl_run *run);
/* Drops what was made since the mark, unless something may still point to it. */
void wefti_tmpl_drop_since(struct wefti_tmpl_run *run, struct wefti_tmpl_mark mark);
void wefti_tmpl_arena_fini(struct wefti_tmpl_run *run);
weft_err wefti_tmpl_charge(struct wefti_tmpl_run *run, size_t steps);
/* Of what copies, compares or searches bytes, and of what looks at each character. */
static inline size_t wefti_tmpl_bytes_steps(size_t bytes) {
    return bytes / 64 + 1;
}
static inline size_t wefti_tmpl_chars_steps(size_t bytes) {
    return bytes / 8 + 1;
}
weft_err wefti_tmpl_deeper(struct wefti_tmpl_run *run); /* undone by run->depth-- */

/* INVAL with the line. */
weft_err wefti_tmpl_fault(struct wefti_tmpl_run *run, const char *fmt, ...) WEFT_PRINTF(2, 3);
weft_err wefti_tmpl_too_big(struct wefti_tmpl_run *run);
const char *wefti_tmpl_kind_name(const struct wefti_tmpl_value *value);

static inline struct wefti_tmpl_value wefti_tmpl_of_bool(bool truth) {
    return (struct wefti_tmpl_value){.kind = WEFTI_TMPL_BOOL, .number = truth};
}
static inline struct wefti_tmpl_value wefti_tmpl_of_int(int64_t number) {
    return (struct wefti_tmpl_value){.kind = WEFTI_TMPL_INT, .number = number};
}
static inline struct wefti_tmpl_value wefti_tmpl_of_float(double real) {
    return (struct wefti_tmpl_value){.kind = WEFTI_TMPL_FLOAT, .real = real};
}
static inline struct wefti_tmpl_value wefti_tmpl_of_str(const char *text, size_t len) {
    return (struct wefti_tmpl_value){.kind = WEFTI_TMPL_STR, .n = (uint32_t)len, .text = text};
}
static inline struct wefti_tmpl_value wefti_tmpl_of_kind(enum wefti_tmpl_kind kind) {
    return (struct wefti_tmpl_value){.kind = (uint8_t)kind};
}
static inline struct weft_str wefti_tmpl_text_of(struct wefti_tmpl_value value) {
    return (struct weft_str){value.text, value.n};
}
static inline bool
wefti_tmpl_is_number(struct wefti_tmpl_value value) { /* True == 1, as in Python */
    return value.kind == WEFTI_TMPL_BOOL || value.kind == WEFTI_TMPL_INT ||
           value.kind == WEFTI_TMPL_FLOAT;
}
static inline bool wefti_tmpl_is_int(struct wefti_tmpl_value value) {
    return value.kind == WEFTI_TMPL_BOOL || value.kind == WEFTI_TMPL_INT;
}
static inline bool wefti_tmpl_is_seq(struct wefti_tmpl_value value) {
    return value.kind == WEFTI_TMPL_LIST || value.kind == WEFTI_TMPL_TUPLE ||
           value.kind == WEFTI_TMPL_ITER;
}
static inline double wefti_tmpl_to_real(struct wefti_tmpl_value value) {
    return value.kind == WEFTI_TMPL_FLOAT ? value.real : (double)value.number;
}

/* A list that is being made. */
struct wefti_tmpl_list {
    struct wefti_tmpl_value *items; /* in the arena */
    uint32_t n, cap;
};
weft_err wefti_tmpl_list_add(struct wefti_tmpl_run *run, struct wefti_tmpl_list *list,
                             struct wefti_tmpl_value item);
static inline struct wefti_tmpl_value wefti_tmpl_of_list(const struct wefti_tmpl_list *list,
                                                         enum wefti_tmpl_kind kind) {
    return (struct wefti_tmpl_value){.kind = (uint8_t)kind, .n = list->n, .items = list->items};
}
/* Adds or replaces. `list` holds keys and values in turn. */
weft_err wefti_tmpl_pairs_put(struct wefti_tmpl_run *run, struct wefti_tmpl_list *list,
                              struct wefti_tmpl_value key, struct wefti_tmpl_value value);
static inline struct wefti_tmpl_value wefti_tmpl_of_pairs(const struct wefti_tmpl_list *list) {
    return (struct wefti_tmpl_value){
        .kind = WEFTI_TMPL_DICT, .n = list->n / 2, .items = list->items};
}

bool wefti_tmpl_truth(struct wefti_tmpl_value value);
weft_err wefti_tmpl_equal(struct wefti_tmpl_run *run, struct wefti_tmpl_value a,
                          struct wefti_tmpl_value b, bool *out);
/* < 0, 0, > 0; a fault where Python has no order. */
weft_err wefti_tmpl_compare(struct wefti_tmpl_run *run, struct wefti_tmpl_value a,
                            struct wefti_tmpl_value b, int *out);
weft_err wefti_tmpl_contains(struct wefti_tmpl_run *run, struct wefti_tmpl_value in,
                             struct wefti_tmpl_value what, bool *out);
/* NULL: not in it. */
weft_err wefti_tmpl_dict_get(struct wefti_tmpl_run *run, struct wefti_tmpl_value dict,
                             struct wefti_tmpl_value key, const struct wefti_tmpl_value **out);
const struct wefti_tmpl_value *wefti_tmpl_dict_named(struct wefti_tmpl_value dict,
                                                     struct weft_str key);
/* The items that iterating yields: a string's characters, a dictionary's keys. */
weft_err wefti_tmpl_iterate(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                            struct wefti_tmpl_value *list_out);

weft_err wefti_tmpl_str_copy(struct wefti_tmpl_run *run, const char *text, size_t len,
                             struct wefti_tmpl_value *out);
/* What str() makes of it. */
weft_err wefti_tmpl_to_str(struct wefti_tmpl_run *run, struct wefti_tmpl_value value,
                           struct wefti_tmpl_value *out);
/* Appends str() or (quoted) repr() of it. */
weft_err wefti_tmpl_write(struct wefti_tmpl_run *run, struct wefti_tmpl_value value, bool quoted,
                          struct weft_buf *out);
void wefti_tmpl_write_real(double real, struct weft_buf *out);
/* Moves what was written into the arena and empties the buffer; TOOBIG or NOMEM where it failed. */
weft_err wefti_tmpl_take_buf(struct wefti_tmpl_run *run, struct weft_buf *buf,
                             struct wefti_tmpl_value *out);
void wefti_tmpl_buf_init(const struct wefti_tmpl_run *run, struct weft_buf *buf);

/* Characters: an ill-formed byte counts as one. */
size_t wefti_tmpl_char_len(const char *at, const char *end);
size_t wefti_tmpl_str_chars(struct weft_str text);
size_t wefti_tmpl_char_at(struct weft_str text,
                          size_t n_chars); /* the byte where that one begins */
bool wefti_tmpl_is_py_space(uint32_t code);
/* U+FFFD for an ill-formed byte. */
uint32_t wefti_tmpl_char_get(const char *at, const char *end, size_t *len_out);

weft_err wefti_tmpl_from_json(struct wefti_tmpl_run *run, const json_t *json,
                              struct wefti_tmpl_value *out);
struct wefti_tmpl_json_style {
    bool ascii, sort;
    bool indented;
    struct weft_str indent, item_sep, key_sep;
};
weft_err wefti_tmpl_to_json(struct wefti_tmpl_run *run, struct wefti_tmpl_value value,
                            const struct wefti_tmpl_json_style *style, struct weft_buf *out);

/* ------------------------------------------------------------------------------------ running ---
 */

weft_err wefti_tmpl_eval(struct wefti_tmpl_run *run, uint32_t idx, struct wefti_tmpl_value *out);
/* A call's expression, with `caller` as one more argument. */
weft_err wefti_tmpl_eval_call_with(struct wefti_tmpl_run *run, uint32_t idx,
                                   struct wefti_tmpl_value caller, struct wefti_tmpl_value *out);
weft_err wefti_tmpl_run_body(struct wefti_tmpl_run *run, uint32_t first);
weft_err wefti_tmpl_run_loop(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node,
                             struct wefti_tmpl_value over, uint32_t depth);
weft_err wefti_tmpl_bind(struct wefti_tmpl_run *run, struct wefti_tmpl_space *space,
                         struct weft_str name, struct wefti_tmpl_value value);
weft_err wefti_tmpl_bind_target(struct wefti_tmpl_run *run, uint32_t target,
                                struct wefti_tmpl_value value);
weft_err wefti_tmpl_push_scope(struct wefti_tmpl_run *run, struct wefti_tmpl_space *parent);
const struct wefti_tmpl_value *wefti_tmpl_space_find(const struct wefti_tmpl_space *space,
                                                     struct weft_str name);
weft_err wefti_tmpl_new_macro(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node,
                              struct wefti_tmpl_value *out);

weft_err wefti_tmpl_member(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                           struct weft_str name, struct wefti_tmpl_value *out);
weft_err wefti_tmpl_index(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                          struct wefti_tmpl_value by, struct wefti_tmpl_value *out);
/* Absent bounds are NONE. */
weft_err wefti_tmpl_slice(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                          const struct wefti_tmpl_value bounds[3], struct wefti_tmpl_value *out);
weft_err wefti_tmpl_arithmetic(struct wefti_tmpl_run *run, enum wefti_tmpl_expr_kind op,
                               struct wefti_tmpl_value a, struct wefti_tmpl_value b,
                               struct wefti_tmpl_value *out);
/* Python's % of a string. */
weft_err wefti_tmpl_format(struct wefti_tmpl_run *run, struct wefti_tmpl_value format,
                           struct wefti_tmpl_value by, struct wefti_tmpl_value *out);

/* --- what is called ------------------------------------------------------------------------------
 */

#define WEFTI_TMPL_PARAMS_MAX 5

struct wefti_tmpl_args {
    struct wefti_tmpl_list plain;
    struct wefti_tmpl_list named; /* names and values in turn */
};

/* One call of a builtin. */
struct wefti_tmpl_call {
    const struct wefti_tmpl_builtin *builtin;
    struct wefti_tmpl_value self; /* what a filter, test or method is of */
    const struct wefti_tmpl_value *bound[WEFTI_TMPL_PARAMS_MAX]; /* by parameter; NULL: not given */
    const struct wefti_tmpl_args *args; /* everything, for those that take anything */
};

typedef weft_err wefti_tmpl_builtin_fn(struct wefti_tmpl_run *run,
                                       const struct wefti_tmpl_call *call,
                                       struct wefti_tmpl_value *out);

struct wefti_tmpl_builtin {
    const char *name;
    const char *params; /* names between spaces; "*": it looks at call->args itself */
    wefti_tmpl_builtin_fn *run;
    int number; /* one function may serve several names */
};

/* NULL: there is none of that name. */
const struct wefti_tmpl_builtin *wefti_tmpl_find_filter(struct weft_str name);
const struct wefti_tmpl_builtin *wefti_tmpl_find_seq_filter(struct weft_str name);
const struct wefti_tmpl_builtin *wefti_tmpl_find_test(struct weft_str name);
const struct wefti_tmpl_builtin *wefti_tmpl_find_function(struct weft_str name);
const struct wefti_tmpl_builtin *wefti_tmpl_find_method(enum wefti_tmpl_kind kind,
                                                        struct weft_str name);
const struct wefti_tmpl_builtin *wefti_tmpl_find_builtin(const struct wefti_tmpl_builtin *table,
                                                         size_t n, struct weft_str name);

weft_err wefti_tmpl_call_builtin(struct wefti_tmpl_run *run,
                                 const struct wefti_tmpl_builtin *builtin,
                                 struct wefti_tmpl_value self, const struct wefti_tmpl_args *args,
                                 struct wefti_tmpl_value *out);
weft_err wefti_tmpl_call_value(struct wefti_tmpl_run *run, struct wefti_tmpl_value callee,
                               const struct wefti_tmpl_args *args, struct wefti_tmpl_value *out);

/* A call's arguments, which begin at `first`. */
weft_err wefti_tmpl_eval_args(struct wefti_tmpl_run *run, uint32_t first,
                              struct wefti_tmpl_args *args);
weft_err wefti_tmpl_add_named(struct wefti_tmpl_run *run, struct wefti_tmpl_args *args,
                              struct weft_str name, struct wefti_tmpl_value value);

/* Arguments by type; `otherwise` where none was given. */
weft_err wefti_tmpl_arg_int(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            size_t idx, int64_t otherwise, int64_t *out);
weft_err wefti_tmpl_arg_str(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            size_t idx, const char *otherwise, struct weft_str *out);
static inline bool wefti_tmpl_arg_truth(const struct wefti_tmpl_call *call, size_t idx,
                                        bool otherwise) {
    return call->bound[idx] ? wefti_tmpl_truth(*call->bound[idx]) : otherwise;
}

/* Strings, shared by filters and methods. */
weft_err
wefti_tmpl_str_case(struct wefti_tmpl_run *run, struct weft_str text, int how,
                    struct wefti_tmpl_value *out); /* 'u' 'l' 't'itle 'c'apitalize 's'wap */
/* sides: 1 left, 2 right, 3 both; `chars` NULL data: white space. */
weft_err wefti_tmpl_str_strip(struct wefti_tmpl_run *run, struct weft_str *text_io, int sides,
                              struct weft_str chars);
weft_err wefti_tmpl_str_replace(struct wefti_tmpl_run *run, struct weft_str text,
                                struct weft_str from, struct weft_str to, int64_t max,
                                struct wefti_tmpl_value *out);
weft_err wefti_tmpl_str_pad(struct wefti_tmpl_run *run, struct weft_str text, int64_t width,
                            char how, struct weft_str fill,
                            struct wefti_tmpl_value *out); /* 'l' 'r' 'c' 'z' */
/* Cuts at line ends; they are left out. */
weft_err wefti_tmpl_str_lines(struct wefti_tmpl_run *run, struct weft_str text,
                              struct wefti_tmpl_value *out);

#endif
