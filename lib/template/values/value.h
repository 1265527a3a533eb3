/* value — what templates compute with. A value is 16 bytes. Lists and dictionaries never change
 * once made, so each is a pointer and a count, and a slice shares its list's items. Only namespaces
 * change. */
#ifndef WEFT_TMPL_VALUE_H
#define WEFT_TMPL_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

struct wefti_tmpl_builtin;
struct wefti_tmpl_node;
struct wefti_tmpl_run;

enum wefti_tmpl_kind {
    WEFTI_TMPL_UNDEFINED,
    WEFTI_TMPL_NONE,
    WEFTI_TMPL_BOOL,
    WEFTI_TMPL_INT,
    WEFTI_TMPL_FLOAT,
    WEFTI_TMPL_STR,
    WEFTI_TMPL_LIST,
    WEFTI_TMPL_TUPLE,
    WEFTI_TMPL_ITER, /* result of a lazy filter: always true, without a length */
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

/* Names and their values: a scope, or the members of a namespace. */
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
    struct wefti_tmpl_value changed; /* changed()'s last arguments, a tuple; UNDEFINED: none yet */
};

struct wefti_tmpl_macro {
    const struct wefti_tmpl_node *node;
    struct wefti_tmpl_space *scope; /* where it was defined */
};

struct wefti_tmpl_method {
    const struct wefti_tmpl_builtin *builtin;
    struct wefti_tmpl_value self;
};

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
/* True == 1, as in Python. */
static inline bool wefti_tmpl_is_number(struct wefti_tmpl_value value) {
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

const char *wefti_tmpl_kind_name(const struct wefti_tmpl_value *value);
bool wefti_tmpl_truth(struct wefti_tmpl_value value);
weft_err wefti_tmpl_equal(struct wefti_tmpl_run *run, struct wefti_tmpl_value a,
                          struct wefti_tmpl_value b, bool *out);
/* < 0, 0, > 0; a fault where Python has no order. */
weft_err wefti_tmpl_compare(struct wefti_tmpl_run *run, struct wefti_tmpl_value a,
                            struct wefti_tmpl_value b, int *out);
weft_err wefti_tmpl_contains(struct wefti_tmpl_run *run, struct wefti_tmpl_value in,
                             struct wefti_tmpl_value what, bool *out);
/* NULL: no such key. */
weft_err wefti_tmpl_dict_get(struct wefti_tmpl_run *run, struct wefti_tmpl_value dict,
                             struct wefti_tmpl_value key, const struct wefti_tmpl_value **out);
const struct wefti_tmpl_value *wefti_tmpl_dict_named(struct wefti_tmpl_value dict,
                                                     struct weft_str key);
/* The items that iterating yields: a string's characters, a dictionary's keys. */
weft_err wefti_tmpl_iterate(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                            struct wefti_tmpl_value *list_out);

weft_err wefti_tmpl_str_copy(struct wefti_tmpl_run *run, const char *text, size_t len,
                             struct wefti_tmpl_value *out);
/* The value as str() gives it. */
weft_err wefti_tmpl_to_str(struct wefti_tmpl_run *run, struct wefti_tmpl_value value,
                           struct wefti_tmpl_value *out);
/* Appends the value's str() or (quoted) repr(). */
weft_err wefti_tmpl_write(struct wefti_tmpl_run *run, struct wefti_tmpl_value value, bool quoted,
                          struct weft_buf *out);
void wefti_tmpl_write_real(double real, struct weft_buf *out);
/* Moves what was written into the arena and empties the buffer; TOOBIG or NOMEM where it failed. */
weft_err wefti_tmpl_take_buf(struct wefti_tmpl_run *run, struct weft_buf *buf,
                             struct wefti_tmpl_value *out);
void wefti_tmpl_buf_init(const struct wefti_tmpl_run *run, struct weft_buf *buf);

#endif
