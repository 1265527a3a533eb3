/* Terms: formulas that are the same are the same number. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "expr/chars.h"
#include "schema/number.h"
#include "schema/set.h"

#define BYTES_MAX ((size_t)128 << 20)
#define CHUNK_BYTES ((size_t)64 << 10)
#define TERMS_MAX 200000u
#define DEPTH_MAX 500u

struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

void *wefti_sets_alloc(struct wefti_sets *sets, size_t n, size_t size) {
    struct chunk *chunk = sets->chunks;
    size_t bytes = (n * size + 15) & ~(size_t)15;
    if (sets->err) return NULL;
    if (!chunk || chunk->size - chunk->used < bytes) {
        size_t wanted = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        struct chunk *more = NULL;
        if (n < BYTES_MAX / size && sets->n_bytes + wanted <= BYTES_MAX)
            more = calloc(1, sizeof *more + wanted);
        if (!more) {
            (void)wefti_sets_fail(sets, WEFT_E_TOOBIG, "the schema is too large");
            return NULL;
        }
        more->next = chunk;
        more->size = wanted;
        sets->n_bytes += wanted;
        sets->chunks = chunk = more;
    }
    void *at = chunk->bytes + chunk->used;
    chunk->used += bytes;
    return at;
}

weft_err wefti_sets_fail(struct wefti_sets *sets, weft_err err, const char *format, ...) {
    char text[400];
    va_list list;
    if (sets->err) return sets->err;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    sets->err = weft_err_set(sets->why, err, "%s", text);
    sets->failed_at = sets->at;
    sets->is_placed = false;
    return sets->err;
}

void wefti_sets_init(struct wefti_sets *sets, const struct wefti_numbers *numbers,
                     struct weft_errmsg *why) {
    wefti_expr_pool *pool = numbers->pool;
    *sets = (struct wefti_sets){.pool = pool, .numbers = *numbers, .why = why};
    sets->any_char = wefti_chars_any(pool, WEFTI_IN_JSON);
    wefti_expr quote = wefti_expr_literal(pool, "\"", 1);
    wefti_expr chars = wefti_expr_repeat(pool, sets->any_char, 0, WEFTI_EXPR_MANY);
    wefti_expr tail = wefti_expr_cat(pool, chars, quote);
    sets->all_keys = wefti_expr_cat(pool, quote, tail);
    wefti_expr_strings(pool, sets->all_keys, tail);
    wefti_expr words[] = {wefti_expr_literal(pool, "null", 4), wefti_expr_literal(pool, "true", 4),
                          wefti_expr_literal(pool, "false", 5), sets->all_keys};
    wefti_expr some = wefti_expr_alt(pool, words, 4);
    sets->all_scalars = wefti_expr_alt2(pool, some, wefti_numbers_all(&sets->numbers));
    sets->plain_scalars = wefti_expr_alt2(pool, some, wefti_numbers_plain(&sets->numbers));
    for (wefti_term term = WEFTI_TERM_FALSE; term <= WEFTI_TERM_TRUE; term++) {
        struct wefti_term_node *terms = realloc(sets->terms, 64 * sizeof *terms);
        if (!terms) (void)wefti_sets_fail(sets, WEFT_E_NOMEM, "no memory for a schema");
        if (!terms) return;
        sets->terms = terms;
        sets->cap_terms = 64;
        terms[sets->n_terms++] = (struct wefti_term_node){.kind = WEFTI_TERM_CONST};
    }
    sets->terms[WEFTI_TERM_FALSE].set = wefti_set_none(sets);
    sets->terms[WEFTI_TERM_TRUE].set = wefti_set_all(sets);
}

void wefti_sets_fini(struct wefti_sets *sets) {
    for (struct chunk *chunk = sets->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(sets->terms);
    free(sets->slots);
    *sets = (struct wefti_sets){0};
}

/* ------------------------------------------------------------------------------------ making --- */

static bool is_same(const struct wefti_term_node *a, const struct wefti_term_node *b) {
    return a->kind == b->kind && a->what == b->what && a->n_parts == b->n_parts &&
           (a->n_parts == 0 || memcmp(a->parts, b->parts, a->n_parts * sizeof *a->parts) == 0);
}

static uint64_t hash_node(const struct wefti_term_node *node) {
    uint64_t hash = (uint64_t)(uintptr_t)node->what + (uint64_t)node->kind;
    for (uint32_t i = 0; i < node->n_parts; i++)
        hash = (hash ^ node->parts[i]) * 0x9e3779b97f4a7c15u;
    hash *= 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static bool rehash(struct wefti_sets *sets) {
    uint32_t n_slots = sets->n_slots ? 2 * sets->n_slots : 256;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots) return false;
    for (uint32_t i = 0; i < sets->n_terms; i++) {
        uint64_t at = hash_node(&sets->terms[i]);
        while (slots[at & (n_slots - 1)])
            at++;
        slots[at & (n_slots - 1)] = i + 1;
    }
    free(sets->slots);
    sets->slots = slots;
    sets->n_slots = n_slots;
    return true;
}

static wefti_term intern(struct wefti_sets *sets, struct wefti_term_node node) {
    if (sets->err) return WEFTI_TERM_FALSE;
    if (2 * sets->n_terms >= sets->n_slots && !rehash(sets)) {
        (void)wefti_sets_fail(sets, WEFT_E_NOMEM, "no memory for a schema");
        return WEFTI_TERM_FALSE;
    }
    uint64_t at = hash_node(&node);
    for (uint32_t slot; (slot = sets->slots[at & (sets->n_slots - 1)]); at++) {
        if (is_same(&sets->terms[slot - 1], &node)) return slot - 1;
    }
    if (sets->n_terms == sets->cap_terms) {
        uint32_t cap = sets->cap_terms ? 2 * sets->cap_terms : 64;
        struct wefti_term_node *terms =
            cap > TERMS_MAX ? NULL : realloc(sets->terms, cap * sizeof *terms);
        if (!terms) {
            (void)wefti_sets_fail(sets, WEFT_E_TOOBIG, "too many combinations");
            return WEFTI_TERM_FALSE;
        }
        sets->terms = terms;
        sets->cap_terms = cap;
    }
    wefti_term *parts = wefti_sets_alloc(sets, node.n_parts + 1, sizeof *parts);
    if (!parts) return WEFTI_TERM_FALSE;
    if (node.n_parts > 0) memcpy(parts, node.parts, node.n_parts * sizeof *parts);
    node.parts = parts;
    sets->terms[sets->n_terms] = node;
    sets->slots[at & (sets->n_slots - 1)] = sets->n_terms + 1;
    return sets->n_terms++;
}

/* Schemas of nothing but one type are the most frequent: the first of each stands for all of them. */
static const json_t *same_before(struct wefti_sets *sets, const json_t *schema) {
    const json_t *type = json_object_size(schema) == 1 ? json_object_get(schema, "type") : NULL;
    for (uint32_t i = 0; i < WEFTI_TYPES_MAX && json_is_string(type); i++) {
        if (!sets->types[i]) sets->types[i] = schema;
        if (json_equal(json_object_get(sets->types[i], "type"), type)) return sets->types[i];
    }
    return schema;
}

wefti_term wefti_term_schema(struct wefti_sets *sets, const json_t *schema) {
    if (json_is_true(schema)) return WEFTI_TERM_TRUE;
    if (json_is_false(schema)) return WEFTI_TERM_FALSE;
    if (json_is_object(schema) && json_object_size(schema) == 0) return WEFTI_TERM_TRUE;
    schema = same_before(sets, schema);
    return intern(sets, (struct wefti_term_node){.kind = WEFTI_TERM_SCHEMA, .what = schema});
}

wefti_term wefti_term_set(struct wefti_sets *sets, const struct wefti_set *set) {
    wefti_term term = intern(sets, (struct wefti_term_node){.kind = WEFTI_TERM_SET, .what = set});
    if (!sets->err) sets->terms[term].set = set;
    return term;
}

static int compare(const void *x, const void *y) {
    wefti_term a = *(const wefti_term *)x, b = *(const wefti_term *)y;
    return a < b ? -1 : a > b;
}

static uint32_t list_parts(const struct wefti_sets *sets, enum wefti_term_kind kind, wefti_term a,
                           wefti_term *out) {
    const struct wefti_term_node *node = &sets->terms[a];
    uint32_t n = node->kind == kind ? node->n_parts : 1;
    if (out) memcpy(out, node->kind == kind ? node->parts : &a, n * sizeof *out);
    return n;
}

/* Both lists as one, in order, each part once. `none` is the part that changes nothing, `all` the one
 * that decides. */
static wefti_term join(struct wefti_sets *sets, enum wefti_term_kind kind, wefti_term a,
                       wefti_term b) {
    wefti_term none = kind == WEFTI_TERM_AND ? WEFTI_TERM_TRUE : WEFTI_TERM_FALSE;
    wefti_term all = kind == WEFTI_TERM_AND ? WEFTI_TERM_FALSE : WEFTI_TERM_TRUE;
    if (sets->err) return WEFTI_TERM_FALSE;
    if (a == b || b == none) return a;
    if (a == none) return b;
    if (a == all || b == all) return all;
    uint32_t n_a = list_parts(sets, kind, a, NULL), n_b = list_parts(sets, kind, b, NULL), n = 0;
    wefti_term *list = wefti_sets_alloc(sets, n_a + n_b, sizeof *list);
    if (!list) return WEFTI_TERM_FALSE;
    (void)list_parts(sets, kind, a, list);
    (void)list_parts(sets, kind, b, list + n_a);
    qsort(list, n_a + n_b, sizeof *list, compare);
    for (uint32_t i = 0; i < n_a + n_b; i++) {
        if (n == 0 || list[n - 1] != list[i]) list[n++] = list[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct wefti_term_node *node = &sets->terms[list[i]];
        if (node->kind == WEFTI_TERM_NOT && bsearch(node->parts, list, n, sizeof *list, compare))
            return all;
    }
    if (n == 1) return list[0];
    return intern(sets, (struct wefti_term_node){.kind = kind, .parts = list, .n_parts = n});
}

wefti_term wefti_term_and(struct wefti_sets *sets, wefti_term a, wefti_term b) {
    return join(sets, WEFTI_TERM_AND, a, b);
}

wefti_term wefti_term_or(struct wefti_sets *sets, wefti_term a, wefti_term b) {
    return join(sets, WEFTI_TERM_OR, a, b);
}

wefti_term wefti_term_not(struct wefti_sets *sets, wefti_term a) {
    if (sets->err) return WEFTI_TERM_FALSE;
    if (a == WEFTI_TERM_FALSE) return WEFTI_TERM_TRUE;
    if (a == WEFTI_TERM_TRUE) return WEFTI_TERM_FALSE;
    if (sets->terms[a].kind == WEFTI_TERM_NOT) return sets->terms[a].parts[0];
    return intern(sets,
                  (struct wefti_term_node){.kind = WEFTI_TERM_NOT, .parts = &a, .n_parts = 1});
}

/* ------------------------------------------------------------------------------------- value --- */

/* In the order in which the schemas stand in the document, as far as terms are made in that order. */
static const struct wefti_set *work_out(struct wefti_sets *sets, wefti_term term) {
    struct wefti_term_node node = sets->terms[term];
    if (node.kind == WEFTI_TERM_SCHEMA) return sets->read(sets, node.what, sets->context);
    const struct wefti_set *whole = wefti_term_value(sets, node.parts[0]);
    if (node.kind == WEFTI_TERM_NOT) return whole ? wefti_set_not(sets, whole) : NULL;
    for (uint32_t i = 1; i < node.n_parts && whole; i++) {
        const struct wefti_set *more = wefti_term_value(sets, node.parts[i]);
        if (!more) return NULL;
        whole = node.kind == WEFTI_TERM_AND ? wefti_set_and(sets, whole, more)
                                            : wefti_set_or(sets, whole, more);
    }
    return whole;
}

const struct wefti_set *wefti_term_value(struct wefti_sets *sets, wefti_term term) {
    if (sets->err) return NULL;
    if (sets->terms[term].set) return sets->terms[term].set;
    if (sets->terms[term].is_open) {
        (void)wefti_sets_fail(sets, WEFT_E_INVAL, "a schema is defined by nothing but itself");
        return NULL;
    }
    if (++sets->depth > DEPTH_MAX)
        (void)wefti_sets_fail(sets, WEFT_E_TOOBIG, "schemas refer to each other too deeply");
    sets->terms[term].is_open = true;
    const struct wefti_set *set = sets->err ? NULL : work_out(sets, term);
    sets->depth--;
    sets->terms[term].is_open = false; /* a failure may be forgiven, and the term asked for again */
    if (sets->err) return NULL;
    sets->terms[term].set = set;
    return set;
}
