/* grammar/set: sets of JSON values, closed under union, intersection and complement.
 *
 * What is neither array nor object is one expression over JSON texts, so strings, numbers and the like
 * need no rules of their own. Arrays and objects are unions of shapes, each a conjunction of what
 * JSON Schema can say of one: items and members are *terms*, Boolean formulas over schemas, which are
 * looked into when somebody needs them. So a schema may contain itself.
 *
 * Memory   Terms and sets live until wefti_sets_fini.
 * Failure  `err` is set once, with a sentence; what is returned from then on is of no use.
 */
#ifndef WEFTI_GRAMMAR_SET_H
#define WEFTI_GRAMMAR_SET_H

#include <jansson.h>

#include "expr/expr.h"
#include "schema/number.h"

typedef uint32_t wefti_term;
#define WEFTI_TERM_FALSE 0u /* no value */
#define WEFTI_TERM_TRUE 1u  /* any value */
#define WEFTI_MANY UINT32_MAX
#define WEFTI_TYPES_MAX 8u /* there are seven */

enum wefti_term_kind {
    WEFTI_TERM_CONST,  /* FALSE and TRUE */
    WEFTI_TERM_SCHEMA, /* a schema of the document */
    WEFTI_TERM_SET,    /* a set made by hand */
    WEFTI_TERM_AND,
    WEFTI_TERM_OR,
    WEFTI_TERM_NOT,
};

struct wefti_array {
    wefti_term *items; /* the first ones */
    uint32_t n_items;
    wefti_term rest;         /* of all others */
    uint32_t min, max;       /* of how many; max may be MANY */
    const json_t *unique_at; /* the schema that says "uniqueItems"; NULL: none */
    bool has_some; /* among those from `some_from` on `some_min` to `some_max` are of `some` */
    wefti_term some;
    uint32_t some_from, some_min, some_max;
    struct wefti_array *next;
};

struct wefti_member {
    struct weft_str name;
    wefti_expr key; /* the name as JSON writes it, quotes and all */
    wefti_term value;
    bool is_required;
    bool is_declared; /* else only "required" names it, and it comes behind the others */
};

/* Keys that no member is named by, and what their values are. */
struct wefti_keys {
    wefti_expr keys;
    wefti_term value;
};

struct wefti_object {
    struct wefti_member *members; /* in order */
    uint32_t n_members;
    struct wefti_keys *others; /* apart from each other; keys of none are forbidden */
    uint32_t n_others;
    uint32_t min, max;
    const json_t *min_at; /* the schema that says `min`, if one does */
    bool has_some;        /* there is one with a key of some.keys and a value of some.value */
    struct wefti_keys some;
    struct wefti_object *next;
};

/* Numbers that are not plain: with an exponent, or more digits than are compared. */
enum wefti_odd { WEFTI_NO_ODD, WEFTI_SOME_ODD, WEFTI_ALL_ODD };

/* `scalars` are surely of the set, and `doubtful` ones, which are none of them, perhaps: texts of a format that is
 * narrower here than the standard's. They are never written, and are doubtful in the complement, too. */
struct wefti_set {
    wefti_expr scalars, doubtful;
    struct wefti_array *arrays;   /* union of the list */
    struct wefti_object *objects; /* likewise */
    enum wefti_odd odd;           /* of `scalars` */
    bool has_more_odd;            /* perhaps */
    bool has_more_objects;        /* perhaps, as names of a format: it has no complement */
};

struct wefti_term_node {
    enum wefti_term_kind kind;
    const void *what;  /* SCHEMA: const json_t *; SET: const struct wefti_set * */
    wefti_term *parts; /* AND, OR: sorted; NOT: one */
    uint32_t n_parts;
    const struct wefti_set *set; /* once it was asked for */
    bool is_open;                /* it is being worked out */
};

struct wefti_sets;
/* What a schema says, for the sets' owner to read. */
typedef const struct wefti_set *wefti_schema_reader(struct wefti_sets *sets, const json_t *schema,
                                                    void *context);

struct wefti_sets {
    wefti_expr_pool *pool; /* borrowed */
    struct wefti_numbers numbers;
    wefti_schema_reader *read;
    void *context;
    struct wefti_term_node *terms;
    uint32_t n_terms, cap_terms;
    uint32_t *slots; /* open addressing over them: index + 1 */
    uint32_t n_slots;
    void *chunks; /* of memory */
    size_t n_bytes;
    const json_t *types[WEFTI_TYPES_MAX]; /* {"type": "..."}, the first of each */
    uint32_t n_shapes;                    /* made so far: the bound of all work */
    uint32_t depth;
    wefti_expr all_scalars, plain_scalars, all_keys; /* plain: with wefti_numbers_plain */
    wefti_expr any_char;                             /* of a string */
    const struct wefti_set *all;
    const json_t *at; /* the schema that is being read */
    weft_err err;
    struct weft_errmsg *why;
    const json_t *failed_at; /* `at` as it was when `err` was set */
    bool is_placed;          /* the sentence has the place already */
};

void wefti_sets_init(struct wefti_sets *sets, const struct wefti_numbers *numbers,
                     struct weft_errmsg *why);
void wefti_sets_fini(struct wefti_sets *sets);
/* Zeroed; NULL after a failure. */
void *wefti_sets_alloc(struct wefti_sets *sets, size_t n, size_t size);
weft_err wefti_sets_fail(struct wefti_sets *sets, weft_err err, const char *format, ...)
    WEFT_PRINTF(3, 4);
/* False, after a failure: an object of so many members is too large. */
bool wefti_object_may_have(struct wefti_sets *sets, size_t n_members);

wefti_term wefti_term_schema(struct wefti_sets *sets, const json_t *schema);
wefti_term wefti_term_set(struct wefti_sets *sets, const struct wefti_set *set);
wefti_term wefti_term_and(struct wefti_sets *sets, wefti_term a, wefti_term b);
wefti_term wefti_term_or(struct wefti_sets *sets, wefti_term a, wefti_term b);
wefti_term wefti_term_not(struct wefti_sets *sets, wefti_term a);
/* NULL after a failure. */
const struct wefti_set *wefti_term_value(struct wefti_sets *sets, wefti_term term);
/* Surely no value; false where that is not seen at once. */
bool wefti_set_is_empty(struct wefti_sets *sets, const struct wefti_set *set, uint32_t depth);

const struct wefti_set *wefti_set_all(struct wefti_sets *sets);
const struct wefti_set *wefti_set_none(struct wefti_sets *sets);
const struct wefti_set *wefti_set_and(struct wefti_sets *sets, const struct wefti_set *a,
                                      const struct wefti_set *b);
const struct wefti_set *wefti_set_or(struct wefti_sets *sets, const struct wefti_set *a,
                                     const struct wefti_set *b);
const struct wefti_set *wefti_set_not(struct wefti_sets *sets, const struct wefti_set *a);

/* A set of scalars, of one array shape, of one object shape; the shape is the set's from here on. */
const struct wefti_set *wefti_set_scalars(struct wefti_sets *sets, wefti_expr scalars);
const struct wefti_set *wefti_set_array(struct wefti_sets *sets, struct wefti_array *shape);
const struct wefti_set *wefti_set_object(struct wefti_sets *sets, struct wefti_object *shape);
struct wefti_array *wefti_array_any(struct wefti_sets *sets);
struct wefti_object *wefti_object_any(struct wefti_sets *sets);

/* Looks members up by their keys, which are the same exactly for the same names. Begins as {.shape = ...}; members may
 * be added to the shape meanwhile. NULL: there is none. */
struct wefti_finder {
    const struct wefti_object *shape;
    uint32_t *slots; /* open addressing over members: index + 1; none while they are few */
    uint32_t n_slots, n_in;
};
const struct wefti_member *wefti_object_find(struct wefti_sets *sets, struct wefti_finder *finder,
                                             wefti_expr key);

/* A name as JSON writes it, in all ways that we take. */
wefti_expr wefti_key_expr(struct wefti_sets *sets, struct weft_str name);
bool wefti_keys_hold(struct wefti_sets *sets, wefti_expr keys, struct weft_str name);
/* Without those that members are named by. */
wefti_expr wefti_keys_without(struct wefti_sets *sets, wefti_expr keys,
                              const struct wefti_object *shape);

#endif
