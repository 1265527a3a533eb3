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

#define WEFTI_NO_ID UINT32_MAX          /* no node, expression or argument */
#define WEFTI_CHAT_BYTES_MAX (1u << 20) /* a template's source; the longest seen has 17 kB */

/* ---------------------------------------------------------------------------------------- lex ---
 */

enum wefti_lex_kind {
    WEFTI_LEX_END,
    WEFTI_LEX_TEXT,      /* between the tags; `text` is what white-space control leaves of it */
    WEFTI_LEX_OPEN_EXPR, /* {{ */
    WEFTI_LEX_CLOSE_EXPR,
    WEFTI_LEX_OPEN_TAG, /* {% */
    WEFTI_LEX_CLOSE_TAG,
    WEFTI_LEX_NAME,
    WEFTI_LEX_STRING, /* without its quotes, escapes unresolved */
    WEFTI_LEX_INT,
    WEFTI_LEX_FLOAT,
    WEFTI_LEX_OP, /* one or two characters */
};

struct wefti_lexeme {
    enum wefti_lex_kind kind;
    struct weft_str text;
    uint32_t line;
};

struct wefti_lex {
    const char *start, *at, *end;
    uint32_t line;
    uint32_t n_open;            /* brackets: "}}" closes dictionaries before it closes a tag */
    enum wefti_lex_kind inside; /* TEXT, OPEN_EXPR or OPEN_TAG */
    bool strip_next;            /* the last tag ended in "-": the text behind it loses its space */
    bool trim_next;             /* the last tag was a block: one newline behind it goes */
    bool after_dot;             /* "a.0.1" is members, not a fraction */
};

void wefti_lex_init(struct wefti_lex *lex, const char *source, size_t len);
weft_err wefti_lex_next(struct wefti_lex *lex, struct wefti_lexeme *out, struct weft_errmsg *why);

/* -------------------------------------------------------------------------------------- parse ---
 */

enum wefti_expr_kind {
    WEFTI_EXPR_STRING,
    WEFTI_EXPR_WRITTEN, /* what the block around a filter wrote */
    WEFTI_EXPR_INT,
    WEFTI_EXPR_FLOAT,
    WEFTI_EXPR_BOOL,
    WEFTI_EXPR_NONE,
    WEFTI_EXPR_NAME,   /* text */
    WEFTI_EXPR_MEMBER, /* a . text */
    WEFTI_EXPR_INDEX,  /* a [ b ] */
    WEFTI_EXPR_SLICE,  /* a [ args ]: start, stop and step, absent ones WEFTI_NO_ID */
    WEFTI_EXPR_CALL,   /* a ( args ) */
    WEFTI_EXPR_FILTER, /* a | builtin ( args ) */
    WEFTI_EXPR_TEST,   /* a is builtin ( args ) */
    WEFTI_EXPR_LIST,   /* args */
    WEFTI_EXPR_TUPLE,  /* args */
    WEFTI_EXPR_DICT,   /* args: keys and values in turn */
    WEFTI_EXPR_ADD,
    WEFTI_EXPR_SUB,
    WEFTI_EXPR_MUL,
    WEFTI_EXPR_DIV,
    WEFTI_EXPR_FLOORDIV,
    WEFTI_EXPR_MOD,
    WEFTI_EXPR_POW,
    WEFTI_EXPR_NEG,
    WEFTI_EXPR_POS,
    WEFTI_EXPR_CONCAT,  /* a ~ b */
    WEFTI_EXPR_COMPARE, /* a, then args with an operator each */
    WEFTI_EXPR_AND,     /* yields the operand that decides, as in Python */
    WEFTI_EXPR_OR,
    WEFTI_EXPR_NOT,
    WEFTI_EXPR_COND, /* b if a else c; without else c is WEFTI_NO_ID */
};

enum wefti_cmp {
    WEFTI_EQ,
    WEFTI_NE,
    WEFTI_LT,
    WEFTI_LE,
    WEFTI_GT,
    WEFTI_GE,
    WEFTI_IN,
    WEFTI_NOT_IN
};

enum wefti_arg_kind { WEFTI_ARG_PLAIN, WEFTI_ARG_NAMED, WEFTI_ARG_LIST, WEFTI_ARG_DICT };

struct wefti_arg {
    uint8_t kind; /* enum wefti_arg_kind; in a comparison enum wefti_cmp */
    uint32_t expr;
    uint32_t next; /* in chat->args, or WEFTI_NO_ID */
    struct weft_str name;
};

struct wefti_builtin;

struct wefti_expr {
    enum wefti_expr_kind kind;
    uint32_t line;
    uint32_t depth;   /* of the tree below: evaluating recurses this far */
    uint32_t a, b, c; /* operands, as indexes into the expressions */
    uint32_t args;    /* the first, or WEFTI_NO_ID */
    bool negated;     /* TEST */
    union {
        int64_t number; /* INT, BOOL */
        double real;
        const struct wefti_builtin *builtin; /* FILTER, TEST */
    };
    struct weft_str text;
};

enum wefti_node_kind {
    WEFTI_NODE_TEXT,
    WEFTI_NODE_PRINT,
    WEFTI_NODE_IF,
    WEFTI_NODE_FOR,       /* target in expr if cond: body else otherwise */
    WEFTI_NODE_SET,       /* target = expr */
    WEFTI_NODE_SET_BLOCK, /* target = what `body` writes; with expr: filters over it */
    WEFTI_NODE_MACRO,
    WEFTI_NODE_CALL,   /* expr, with `body` as its caller */
    WEFTI_NODE_FILTER, /* expr is a filter over what `body` writes */
    WEFTI_NODE_WITH,   /* params are bound for `body` */
    WEFTI_NODE_SCOPE,  /* body, in a scope of its own: {% generation %} */
    WEFTI_NODE_BREAK,
    WEFTI_NODE_CONTINUE,
};

#define WEFTI_USES_CALLER 1u
#define WEFTI_USES_VARARGS 2u
#define WEFTI_USES_KWARGS 4u

struct wefti_node {
    enum wefti_node_kind kind;
    uint32_t line;
    uint32_t next;            /* the one behind it, or WEFTI_NO_ID */
    uint32_t expr;            /* or WEFTI_NO_ID */
    uint32_t cond;            /* FOR ... if */
    uint32_t target;          /* FOR, SET: an expression to bind to */
    uint32_t params;          /* MACRO, CALL, WITH: names with defaults, among the args */
    uint32_t body, otherwise; /* first nodes, or WEFTI_NO_ID */
    uint8_t uses;             /* MACRO, CALL: WEFTI_USES_* */
    bool recursive;           /* FOR */
    struct weft_str text;     /* TEXT; MACRO's name */
};

struct weft_tmpl {
    char *source; /* owned; texts and literals point into it */
    size_t source_len;
    struct wefti_expr *exprs;
    uint32_t n_exprs, exprs_cap;
    struct wefti_node *nodes;
    uint32_t n_nodes, nodes_cap;
    struct wefti_arg *args;
    uint32_t n_args, args_cap;
    uint32_t first;
    struct weft_tmpl_specials specials; /* texts borrowed from the caller */
};

struct wefti_parser {
    weft_tmpl *chat;
    struct wefti_lex lex;
    struct wefti_lexeme now; /* the lexeme not yet taken */
    int depth, loops;
    uint8_t uses; /* of the macro being parsed */
    struct weft_errmsg *why;
};

/* Compiles chat->source. */
weft_err wefti_chat_parse(weft_tmpl *chat, struct weft_errmsg *why);

/* What chat_parse.c and chat_expr.c share. */
weft_err wefti_parse_take(struct wefti_parser *parse);
bool wefti_parse_at_op(const struct wefti_parser *parse, const char *op);
bool wefti_parse_at_word(const struct wefti_parser *parse, const char *word);
weft_err wefti_parse_expect_op(struct wefti_parser *parse, const char *op);
weft_err wefti_parse_expect(struct wefti_parser *parse, enum wefti_lex_kind kind,
                            const char *wanted);
weft_err wefti_parse_unexpected(struct wefti_parser *parse, const char *wanted);
weft_err wefti_parse_refuse(struct wefti_parser *parse, uint32_t line, const char *what,
                            struct weft_str name);
weft_err wefti_parse_deeper(struct wefti_parser *parse); /* undone by parse->depth-- */
/* Nested blocks and parentheses together. */
#define WEFTI_PARSE_DEPTH_MAX 100

#define WEFTI_NOTHING ((struct weft_str){"", 0})

enum wefti_tuple { WEFTI_TUPLE_WITH_IF, WEFTI_TUPLE_NO_IF };
weft_err wefti_parse_expr(struct wefti_parser *parse, uint32_t *out);
/* a, or a tuple a, b, c without parentheses. */
weft_err wefti_parse_tuple(struct wefti_parser *parse, enum wefti_tuple how, uint32_t *out);
/* Names to bind to: a, or a, b, or (a, b), or with `member_ok` ns.a. */
weft_err wefti_parse_target(struct wefti_parser *parse, bool member_ok, uint32_t *out);
/* ( a, b=1 ) of a definition; at "(". */
weft_err wefti_parse_params(struct wefti_parser *parse, uint32_t *first_out);
/* name ( args ) | name ( args ) ..., over what a block wrote; the first bar may be missing. */
weft_err wefti_parse_filters(struct wefti_parser *parse, uint32_t *out);
/* Between chat_expr.c and chat_primary.c. */
bool wefti_is_keyword(struct weft_str name);
struct wefti_expr wefti_new_expr(enum wefti_expr_kind kind, uint32_t line);
weft_err wefti_parse_add_expr(struct wefti_parser *parse, struct wefti_expr expr,
                              uint32_t *idx_out);
weft_err wefti_parse_add_plain(struct wefti_parser *parse, uint32_t expr, uint32_t *first,
                               uint32_t *last);
weft_err wefti_parse_primary(struct wefti_parser *parse, uint32_t *out);
/* These three take *out and what follows it. */
weft_err wefti_parse_postfix(struct wefti_parser *parse, uint32_t *out);
weft_err wefti_parse_member(struct wefti_parser *parse, uint32_t *out);
weft_err wefti_parse_filters_and_tests(struct wefti_parser *parse, uint32_t *out);

weft_err wefti_parse_add_arg(struct wefti_parser *parse, struct wefti_arg arg, uint32_t *first,
                             uint32_t *last);

/* ------------------------------------------------------------------------------------- values ---
 */

enum wefti_kind {
    WEFTI_UNDEFINED,
    WEFTI_NONE,
    WEFTI_BOOL,
    WEFTI_INT,
    WEFTI_FLOAT,
    WEFTI_STR,
    WEFTI_LIST,
    WEFTI_TUPLE,
    WEFTI_ITER, /* what lazy filters yield: always true, without a length */
    WEFTI_DICT,
    WEFTI_NAMESPACE,
    WEFTI_LOOP,
    WEFTI_MACRO,
    WEFTI_FUNC,   /* a builtin */
    WEFTI_METHOD, /* a builtin and the value it is of */
};

struct wefti_value {
    uint8_t kind;
    uint32_t n; /* STR: bytes; sequences: items; DICT: pairs */
    union {
        int64_t number; /* BOOL, INT */
        double real;
        const char *text;
        const struct wefti_value *items; /* DICT: keys and values in turn */
        struct wefti_space *space;
        struct wefti_loop *loop;
        struct wefti_macro *macro;
        const struct wefti_builtin *builtin;
        const struct wefti_method *method;
    };
};
_Static_assert(sizeof(struct wefti_value) == 16, "lists are copied by the item");

struct wefti_binding {
    struct weft_str name;
    struct wefti_value value;
};

/* Names and what they are bound to: a scope, or the members of a namespace. */
struct wefti_space {
    struct wefti_space *parent; /* scopes only */
    struct wefti_binding *bindings;
    uint32_t n, cap;
};

struct wefti_loop {
    uint32_t index, n, depth;
    const struct wefti_value *items;
    const struct wefti_node *node; /* of a recursive loop */
    struct wefti_space *outside;
    struct wefti_value
        changed; /* what changed() was given last, a tuple; UNDEFINED: never called */
};

struct wefti_macro {
    const struct wefti_node *node;
    struct wefti_space *scope; /* where it was defined */
};

struct wefti_method {
    const struct wefti_builtin *builtin;
    struct wefti_value self;
};

/* --------------------------------------------------------------------------------------- runs ---
 */

struct wefti_chunk;

struct wefti_run {
    const weft_tmpl *chat;
    struct weft_buf *out; /* where statements write now */
    size_t out_max;
    struct wefti_chunk *chunks; /* owned; newest first */
    size_t arena_bytes, arena_max;
    struct wefti_space *scope;
    const struct tm *now;
    uint64_t steps_left;
    uint32_t depth;
    uint32_t escapes;
    struct wefti_value written; /* of the filter block being run */
    uint32_t line;              /* of the expression or statement being run, for messages */
    enum { WEFTI_ON, WEFTI_BREAKING, WEFTI_CONTINUING } flow;
    struct weft_errmsg *why;
};

struct wefti_mark {
    struct wefti_chunk *chunk;
    size_t used;
    uint32_t escapes;
};

weft_err wefti_alloc(struct wefti_run *run, size_t bytes, void **out);
struct wefti_mark wefti_mark(const struct wefti_run *run);
/* Drops what was made since the mark, unless something may still point to it. */
void wefti_cut(struct wefti_run *run, struct wefti_mark mark);
void wefti_arena_fini(struct wefti_run *run);
weft_err wefti_charge(struct wefti_run *run, size_t steps);
/* Of what copies, compares or searches bytes, and of what looks at each character. */
static inline size_t wefti_bytes_steps(size_t bytes) {
    return bytes / 64 + 1;
}
static inline size_t wefti_chars_steps(size_t bytes) {
    return bytes / 8 + 1;
}
weft_err wefti_deeper(struct wefti_run *run); /* undone by run->depth-- */

/* INVAL with the line. */
weft_err wefti_fault(struct wefti_run *run, const char *fmt, ...) WEFT_PRINTF(2, 3);
weft_err wefti_too_big(struct wefti_run *run);
const char *wefti_kind_name(const struct wefti_value *value);

static inline struct wefti_value wefti_of_bool(bool truth) {
    return (struct wefti_value){.kind = WEFTI_BOOL, .number = truth};
}
static inline struct wefti_value wefti_of_int(int64_t number) {
    return (struct wefti_value){.kind = WEFTI_INT, .number = number};
}
static inline struct wefti_value wefti_of_float(double real) {
    return (struct wefti_value){.kind = WEFTI_FLOAT, .real = real};
}
static inline struct wefti_value wefti_of_str(const char *text, size_t len) {
    return (struct wefti_value){.kind = WEFTI_STR, .n = (uint32_t)len, .text = text};
}
static inline struct wefti_value wefti_of_kind(enum wefti_kind kind) {
    return (struct wefti_value){.kind = (uint8_t)kind};
}
static inline struct weft_str wefti_text_of(struct wefti_value value) {
    return (struct weft_str){value.text, value.n};
}
static inline bool wefti_is_number(struct wefti_value value) { /* True == 1, as in Python */
    return value.kind == WEFTI_BOOL || value.kind == WEFTI_INT || value.kind == WEFTI_FLOAT;
}
static inline bool wefti_is_int(struct wefti_value value) {
    return value.kind == WEFTI_BOOL || value.kind == WEFTI_INT;
}
static inline bool wefti_is_seq(struct wefti_value value) {
    return value.kind == WEFTI_LIST || value.kind == WEFTI_TUPLE || value.kind == WEFTI_ITER;
}
static inline double wefti_real(struct wefti_value value) {
    return value.kind == WEFTI_FLOAT ? value.real : (double)value.number;
}

/* A list that is being made. */
struct wefti_list {
    struct wefti_value *items; /* in the arena */
    uint32_t n, cap;
};
weft_err wefti_list_add(struct wefti_run *run, struct wefti_list *list, struct wefti_value item);
static inline struct wefti_value wefti_of_list(const struct wefti_list *list,
                                               enum wefti_kind kind) {
    return (struct wefti_value){.kind = (uint8_t)kind, .n = list->n, .items = list->items};
}
/* Adds or replaces. `list` holds keys and values in turn. */
weft_err wefti_pairs_put(struct wefti_run *run, struct wefti_list *list, struct wefti_value key,
                         struct wefti_value value);
static inline struct wefti_value wefti_of_pairs(const struct wefti_list *list) {
    return (struct wefti_value){.kind = WEFTI_DICT, .n = list->n / 2, .items = list->items};
}

bool wefti_truth(struct wefti_value value);
weft_err wefti_equal(struct wefti_run *run, struct wefti_value a, struct wefti_value b, bool *out);
/* < 0, 0, > 0; a fault where Python has no order. */
weft_err wefti_order(struct wefti_run *run, struct wefti_value a, struct wefti_value b, int *out);
weft_err wefti_contains(struct wefti_run *run, struct wefti_value in, struct wefti_value what,
                        bool *out);
/* NULL: not in it. */
weft_err wefti_dict_get(struct wefti_run *run, struct wefti_value dict, struct wefti_value key,
                        const struct wefti_value **out);
const struct wefti_value *wefti_dict_named(struct wefti_value dict, struct weft_str key);
/* The items that iterating yields: a string's characters, a dictionary's keys. */
weft_err wefti_items(struct wefti_run *run, struct wefti_value of, struct wefti_value *list_out);

weft_err wefti_str_copy(struct wefti_run *run, const char *text, size_t len,
                        struct wefti_value *out);
/* What str() makes of it. */
weft_err wefti_to_str(struct wefti_run *run, struct wefti_value value, struct wefti_value *out);
/* Appends str() or (quoted) repr() of it. */
weft_err wefti_write(struct wefti_run *run, struct wefti_value value, bool quoted,
                     struct weft_buf *out);
void wefti_write_real(double real, struct weft_buf *out);
/* Moves what was written into the arena and empties the buffer; TOOBIG or NOMEM where it failed. */
weft_err wefti_take_buf(struct wefti_run *run, struct weft_buf *buf, struct wefti_value *out);
void wefti_buf_init(const struct wefti_run *run, struct weft_buf *buf);

/* Characters: an ill-formed byte counts as one. */
size_t wefti_char_len(const char *at, const char *end);
size_t wefti_str_chars(struct weft_str text);
size_t wefti_char_at(struct weft_str text, size_t n_chars); /* the byte where that one begins */
bool wefti_is_py_space(uint32_t code);
/* U+FFFD for an ill-formed byte. */
uint32_t wefti_char_get(const char *at, const char *end, size_t *len_out);

weft_err wefti_from_json(struct wefti_run *run, const json_t *json, struct wefti_value *out);
struct wefti_json_style {
    bool ascii, sort;
    bool indented;
    struct weft_str indent, item_sep, key_sep;
};
weft_err wefti_to_json(struct wefti_run *run, struct wefti_value value,
                       const struct wefti_json_style *style, struct weft_buf *out);

/* ------------------------------------------------------------------------------------ running ---
 */

weft_err wefti_eval(struct wefti_run *run, uint32_t idx, struct wefti_value *out);
/* A call's expression, with `caller` as one more argument. */
weft_err wefti_eval_call_with(struct wefti_run *run, uint32_t idx, struct wefti_value caller,
                              struct wefti_value *out);
weft_err wefti_run_body(struct wefti_run *run, uint32_t first);
weft_err wefti_run_loop(struct wefti_run *run, const struct wefti_node *node,
                        struct wefti_value over, uint32_t depth);
weft_err wefti_bind(struct wefti_run *run, struct wefti_space *space, struct weft_str name,
                    struct wefti_value value);
weft_err wefti_bind_target(struct wefti_run *run, uint32_t target, struct wefti_value value);
weft_err wefti_push_scope(struct wefti_run *run, struct wefti_space *parent);
const struct wefti_value *wefti_space_find(const struct wefti_space *space, struct weft_str name);
weft_err wefti_new_macro(struct wefti_run *run, const struct wefti_node *node,
                         struct wefti_value *out);

weft_err wefti_member(struct wefti_run *run, struct wefti_value of, struct weft_str name,
                      struct wefti_value *out);
weft_err wefti_index(struct wefti_run *run, struct wefti_value of, struct wefti_value by,
                     struct wefti_value *out);
/* Absent bounds are NONE. */
weft_err wefti_slice(struct wefti_run *run, struct wefti_value of,
                     const struct wefti_value bounds[3], struct wefti_value *out);
weft_err wefti_arith(struct wefti_run *run, enum wefti_expr_kind op, struct wefti_value a,
                     struct wefti_value b, struct wefti_value *out);
/* Python's % of a string. */
weft_err wefti_format(struct wefti_run *run, struct wefti_value format, struct wefti_value by,
                      struct wefti_value *out);

/* --- what is called ------------------------------------------------------------------------------
 */

#define WEFTI_PARAMS_MAX 5

struct wefti_args {
    struct wefti_list plain;
    struct wefti_list named; /* names and values in turn */
};

/* One call of a builtin. */
struct wefti_call {
    const struct wefti_builtin *builtin;
    struct wefti_value self;                           /* what a filter, test or method is of */
    const struct wefti_value *bound[WEFTI_PARAMS_MAX]; /* by parameter; NULL: not given */
    const struct wefti_args *args; /* everything, for those that take anything */
};

typedef weft_err wefti_builtin_fn(struct wefti_run *run, const struct wefti_call *call,
                                  struct wefti_value *out);

struct wefti_builtin {
    const char *name;
    const char *params; /* names between spaces; "*": it looks at call->args itself */
    wefti_builtin_fn *run;
    int number; /* one function may serve several names */
};

/* NULL: there is none of that name. */
const struct wefti_builtin *wefti_find_filter(struct weft_str name);
const struct wefti_builtin *wefti_find_seq_filter(struct weft_str name);
const struct wefti_builtin *wefti_find_test(struct weft_str name);
const struct wefti_builtin *wefti_find_func(struct weft_str name);
const struct wefti_builtin *wefti_find_method(enum wefti_kind kind, struct weft_str name);
const struct wefti_builtin *wefti_find_in(const struct wefti_builtin *table, size_t n,
                                          struct weft_str name);

weft_err wefti_call_builtin(struct wefti_run *run, const struct wefti_builtin *builtin,
                            struct wefti_value self, const struct wefti_args *args,
                            struct wefti_value *out);
weft_err wefti_call_value(struct wefti_run *run, struct wefti_value callee,
                          const struct wefti_args *args, struct wefti_value *out);

/* A call's arguments, which begin at `first`. */
weft_err wefti_eval_args(struct wefti_run *run, uint32_t first, struct wefti_args *args);
weft_err wefti_add_named(struct wefti_run *run, struct wefti_args *args, struct weft_str name,
                         struct wefti_value value);

/* Arguments by type; `otherwise` where none was given. */
weft_err wefti_arg_int(struct wefti_run *run, const struct wefti_call *call, size_t idx,
                       int64_t otherwise, int64_t *out);
weft_err wefti_arg_str(struct wefti_run *run, const struct wefti_call *call, size_t idx,
                       const char *otherwise, struct weft_str *out);
static inline bool wefti_arg_truth(const struct wefti_call *call, size_t idx, bool otherwise) {
    return call->bound[idx] ? wefti_truth(*call->bound[idx]) : otherwise;
}

/* Strings, shared by filters and methods. */
weft_err wefti_str_case(struct wefti_run *run, struct weft_str text, int how,
                        struct wefti_value *out); /* 'u' 'l' 't'itle 'c'apitalize 's'wap */
/* sides: 1 left, 2 right, 3 both; `chars` NULL data: white space. */
weft_err wefti_str_strip(struct wefti_run *run, struct weft_str *text_io, int sides,
                         struct weft_str chars);
weft_err wefti_str_replace(struct wefti_run *run, struct weft_str text, struct weft_str from,
                           struct weft_str to, int64_t max, struct wefti_value *out);
weft_err wefti_str_pad(struct wefti_run *run, struct weft_str text, int64_t width, char how,
                       struct weft_str fill, struct wefti_value *out); /* 'l' 'r' 'c' 'z' */
/* Cuts at line ends; they are left out. */
weft_err wefti_str_lines(struct wefti_run *run, struct weft_str text, struct wefti_value *out);

#endif
