/* grammar/expr: regular expressions over bytes, as nodes of a pool that are shared where they are equal.
 *
 * An expression is an index; equal expressions have equal indices, so a set of derivatives is an
 * automaton whose states are found by comparing numbers. Beside union there are intersection and
 * complement, which JSON Schema needs (allOf, not, a key that is none of these) and which cost nothing
 * until a text gets there. Bounded repeats stay counters; they are never unrolled.
 *
 * Failure  What would pass the pool's bound (nodes, or work within one question) sets `failed` and
 *          yields NONE; the owner looks once at the end of a compilation and after each step.
 * Threads  One owner.
 * Source   Brzozowski, "Derivatives of Regular Expressions", JACM 1964; Owens, Reppy, Turon,
 *          "Regular-expression derivatives re-examined", JFP 2009 (similarity, classes of bytes).
 */
#ifndef WEFTI_GRAMMAR_EXPR_H
#define WEFTI_GRAMMAR_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef uint32_t wefti_expr;
#define WEFTI_EXPR_NONE 0u  /* no text */
#define WEFTI_EXPR_EMPTY 1u /* the empty text */
#define WEFTI_EXPR_ALL 2u   /* every text, valid UTF-8 or not */
#define WEFTI_EXPR_MANY UINT32_MAX

struct wefti_byte_set {
    uint64_t bits[4];
};

typedef struct wefti_expr_pool wefti_expr_pool;

/* At most n_nodes_max nodes, some 40 bytes each. NULL: no memory. */
wefti_expr_pool *wefti_expr_pool_new(uint32_t n_nodes_max);
/* From here on the pool may do so much: parts of expressions that are looked at, about 20 million in a second. */
void wefti_expr_pool_allow(wefti_expr_pool *pool, uint64_t work_max);
uint64_t wefti_expr_pool_work(const wefti_expr_pool *pool); /* since then */
void wefti_expr_pool_free(wefti_expr_pool *pool);
bool wefti_expr_pool_failed(const wefti_expr_pool *pool);
size_t wefti_expr_pool_bytes(const wefti_expr_pool *pool);

wefti_expr wefti_expr_set(wefti_expr_pool *pool, const struct wefti_byte_set *set);
wefti_expr wefti_expr_range(wefti_expr_pool *pool, unsigned char first, unsigned char last);
wefti_expr wefti_expr_literal(wefti_expr_pool *pool, const void *bytes, size_t n);
/* The bytes, and then `rest`. */
wefti_expr wefti_expr_literal_before(wefti_expr_pool *pool, const void *bytes, size_t n,
                                     wefti_expr rest);
/* Any of these texts, with what they begin with in common; 100,000 are fine. The list is borrowed. */
wefti_expr wefti_expr_texts(wefti_expr_pool *pool, const struct weft_str *texts, size_t n);
/* Likewise, each (UTF-8) as a JSON string, in all the ways to write it. */
wefti_expr wefti_expr_json_strings(wefti_expr_pool *pool, const struct weft_str *texts, size_t n);
wefti_expr wefti_expr_cat(wefti_expr_pool *pool, wefti_expr a, wefti_expr b);
/* The lists are borrowed and keep their order. */
wefti_expr wefti_expr_alt(wefti_expr_pool *pool, const wefti_expr *list, size_t n);
wefti_expr wefti_expr_and(wefti_expr_pool *pool, const wefti_expr *list, size_t n);
/* As wefti_expr_alt; in a long list what several begin with is there once: a step looks at each part of an ALT. */
wefti_expr wefti_expr_choices(wefti_expr_pool *pool, const wefti_expr *list, size_t n);
wefti_expr wefti_expr_alt2(wefti_expr_pool *pool, wefti_expr a, wefti_expr b);
wefti_expr wefti_expr_and2(wefti_expr_pool *pool, wefti_expr a, wefti_expr b);
wefti_expr wefti_expr_not(wefti_expr_pool *pool, wefti_expr a);
/* Says that all texts of `a` are of `top`, so that the two together are `a`: a pattern for strings, where all
 * strings are meant. One `top` for a pool. */
void wefti_expr_within(wefti_expr_pool *pool, wefti_expr a, wefti_expr top);
/* Says that each text of `a` is so many characters as they are written in a JSON string; and which expression is all
 * strings, and all that may stand behind the quote that begins one. */
void wefti_expr_chars(wefti_expr_pool *pool, wefti_expr a);
void wefti_expr_strings(wefti_expr_pool *pool, wefti_expr strings, wefti_expr tail);
/* Decimal texts (digits, a point, digits) of multiples of m / 10^n_places. 1 <= m <= WEFTI_MULTIPLE_MAX. */
#define WEFTI_MULTIPLE_MAX 1000000u
wefti_expr wefti_expr_multiples(wefti_expr_pool *pool, uint32_t m, uint32_t n_places);
/* max: WEFTI_EXPR_MANY for no bound; min <= max. */
wefti_expr wefti_expr_repeat(wefti_expr_pool *pool, wefti_expr a, uint32_t min, uint32_t max);

/* Alternatives of `a` whose texts begin with the byte, and those whose texts do not. False: some may begin
 * either way. */
struct wefti_expr_parts {
    wefti_expr with, without;
};
bool wefti_expr_part(wefti_expr_pool *pool, wefti_expr a, unsigned char byte,
                     struct wefti_expr_parts *parts_out);

bool wefti_expr_takes_empty(const wefti_expr_pool *pool, wefti_expr a);
/* What may follow `byte` in a text of `a`. */
wefti_expr wefti_expr_step(wefti_expr_pool *pool, wefti_expr a, unsigned char byte);
/* Says that this should be a text of `a`. If it is one, nobody needs to search for others. */
void wefti_expr_has_text(wefti_expr_pool *pool, wefti_expr a, const void *text, size_t n);
/* Whether any text is in `a`. Explores where there are intersections or complements. */
bool wefti_expr_is_live(wefti_expr_pool *pool, wefti_expr a);

/* An expression of which the same texts of up to `n` bytes are texts, and the same are beginnings of one; whoever
 * looks no further may take it for `a`. Counters that are not reached within n bytes are gone from it, so at any
 * place in a long string it is the same one. */
wefti_expr wefti_expr_far(wefti_expr_pool *pool, wefti_expr a, uint32_t n);
/* One from which finitely many texts may have been taken away, which stand at the beginning of `a`: any text
 * that it can go on with for ever begins one of `a`, too. NONE: there is none to be seen. */
wefti_expr wefti_expr_endless(const wefti_expr_pool *pool, wefti_expr a);

/* Bytes that no expression of the pool tells apart are one class. New sets may split classes. */
uint32_t wefti_expr_n_classes(const wefti_expr_pool *pool);
const unsigned char *wefti_expr_class_of(const wefti_expr_pool *pool);        /* [256] */
const unsigned char *wefti_expr_representatives(const wefti_expr_pool *pool); /* [n_classes] */

#endif
