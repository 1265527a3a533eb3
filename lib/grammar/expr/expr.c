#include "expr/expr.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"
#include "expr/pool.h"

#define LIST_ROOM 24u /* most lists are shorter, and take nothing from the heap */
#define SORT_LONG 32u /* below it an insertion is faster than the library's sort, which allocates */

struct list {
    wefti_expr *at; /* `room`, or of malloc */
    size_t n, cap;
    wefti_expr room[LIST_ROOM];
};

/* ------------------------------------------------------------------------------------- pool --- */

static void *grow(wefti_expr_pool *pool, void *mem, uint32_t *cap, uint32_t need, size_t size) {
    if (need <= *cap) return mem;
    uint32_t wider = weft_max_u32(*cap, 16);
    while (wider < need)
        wider *= 2; /* callers keep `need` below n_nodes_max, or a small multiple of it */
    void *more = realloc(mem, wider * size);
    if (!more) {
        pool->failed = true;
        return NULL;
    }
    *cap = wider;
    return more;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static uint64_t hash_node(const wefti_expr_pool *pool, const struct node *node) {
    uint64_t hash = mix(node->kind, node->min);
    hash = mix(hash, node->max);
    if (node->kind != ALT && node->kind != AND) return mix(mix(hash, node->a), node->b);
    const wefti_expr *children = pool->children + node->a;
    uint32_t i = 0;
    for (; i + 2 <= node->b; i += 2)
        hash = mix(hash, (uint64_t)children[i] << 32 | children[i + 1]);
    return i < node->b ? mix(hash, children[i]) : hash;
}

static bool is_same(const wefti_expr_pool *pool, const struct node *x, const struct node *y) {
    if (x->kind != y->kind || x->b != y->b || x->min != y->min || x->max != y->max) return false;
    if (x->kind != ALT && x->kind != AND) return x->a == y->a;
    return memcmp(pool->children + x->a, pool->children + y->a, x->b * sizeof(wefti_expr)) == 0;
}

/* A slot has some bits of its node's hash above the index, so that hardly ever another node is looked at. */
static uint32_t tag_of(const wefti_expr_pool *pool, uint64_t hash) {
    return (uint32_t)(hash >> 32) & ~pool->slot_mask;
}

static bool rehash(wefti_expr_pool *pool) {
    uint32_t n_slots = pool->n_slots ? pool->n_slots * 2 : 256;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots) return false;
    for (uint32_t i = 0; i < pool->n; i++) {
        uint64_t hash = hash_node(pool, &pool->nodes[i]), at = hash;
        while (slots[at & (n_slots - 1)])
            at++;
        slots[at & (n_slots - 1)] = tag_of(pool, hash) | (i + 1);
    }
    free(pool->slots);
    pool->slots = slots;
    pool->n_slots = n_slots;
    return true;
}

/* The node like this one, new where there is none. Children of an ALT or AND are the last ones of
 * `children`, and are dropped again where it is not new. */
static wefti_expr intern(wefti_expr_pool *pool, struct node node) {
    bool has_children = node.kind == ALT || node.kind == AND;
    if (pool->failed) return WEFTI_EXPR_NONE;
    if (2 * pool->n >= pool->n_slots && !rehash(pool)) pool->failed = true;
    if (!pool->failed && pool->n == pool->n_max) pool->failed = true;
    if (pool->failed) return WEFTI_EXPR_NONE;
    uint64_t hash = hash_node(pool, &node), at = hash;
    uint32_t tag = tag_of(pool, hash);
    for (;; at++) {
        uint32_t slot = pool->slots[at & (pool->n_slots - 1)], idx = slot & pool->slot_mask;
        if (!slot) break;
        if ((slot ^ idx) != tag || !is_same(pool, &pool->nodes[idx - 1], &node)) continue;
        if (has_children) pool->n_children = node.a;
        return idx - 1;
    }
    struct node *nodes = grow(pool, pool->nodes, &pool->cap, pool->n + 1, sizeof *nodes);
    if (!nodes) return WEFTI_EXPR_NONE;
    pool->nodes = nodes;
    pool->nodes[pool->n] = node;
    pool->slots[at & (pool->n_slots - 1)] = tag | (pool->n + 1);
    return pool->n++;
}

wefti_expr_pool *wefti_expr_pool_new(uint32_t n_nodes_max) {
    wefti_expr_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->n_max = n_nodes_max;
    while (pool->slot_mask < n_nodes_max)
        pool->slot_mask = 2 * pool->slot_mask + 1;
    pool->work_max = UINT64_MAX;
    pool->n_classes = 1;
    struct node node = {.kind = NONE, .live = DEAD, .is_finite = true};
    wefti_expr none = intern(pool, node);
    node = (struct node){.kind = EMPTY, .live = ALIVE, .is_finite = true};
    node.takes_empty = node.has_text = node.is_chars = true;
    wefti_expr empty = intern(pool, node);
    node = (struct node){.kind = ALL, .live = ALIVE, .is_endless = true};
    node.takes_empty = node.has_text = true;
    wefti_expr all = intern(pool, node);
    if (pool->failed) {
        wefti_expr_pool_free(pool);
        return NULL;
    }
    WEFT_ASSERT(none == WEFTI_EXPR_NONE && empty == WEFTI_EXPR_EMPTY && all == WEFTI_EXPR_ALL);
    return pool;
}

void wefti_expr_pool_allow(wefti_expr_pool *pool, uint64_t work_max) {
    pool->work = 0;
    pool->work_max = work_max;
}

uint64_t wefti_expr_pool_work(const wefti_expr_pool *pool) {
    return pool->work;
}

static void work(wefti_expr_pool *pool, uint64_t n) {
    pool->work += n;
    if (pool->work > pool->work_max) pool->failed = true;
}

void wefti_expr_pool_free(wefti_expr_pool *pool) {
    if (!pool) return;
    free(pool->nodes);
    free(pool->slots);
    free(pool->children);
    free(pool->sets);
    free(pool);
}

bool wefti_expr_pool_failed(const wefti_expr_pool *pool) {
    return pool->failed;
}

size_t wefti_expr_pool_bytes(const wefti_expr_pool *pool) {
    return sizeof *pool + pool->cap * sizeof *pool->nodes + pool->n_slots * sizeof *pool->slots +
           pool->cap_children * sizeof *pool->children + pool->cap_sets * sizeof *pool->sets;
}

/* ---------------------------------------------------------------------------- sets of bytes --- */

static bool has_byte(const struct wefti_byte_set *set, unsigned char byte) {
    return set->bits[byte / 64] >> (byte % 64) & 1;
}

static bool is_empty_set(const struct wefti_byte_set *set) {
    return !(set->bits[0] | set->bits[1] | set->bits[2] | set->bits[3]);
}

/* Splits the classes that the set has parts of. */
static void refine(wefti_expr_pool *pool, const struct wefti_byte_set *set) {
    int new_of[256][2];
    memset(new_of, -1, sizeof new_of);
    pool->n_classes = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        int *is_in = &new_of[pool->class_of[byte]][has_byte(set, (unsigned char)byte)];
        if (*is_in < 0) {
            *is_in = (int)pool->n_classes;
            pool->representatives[pool->n_classes++] = (unsigned char)byte;
        }
        pool->class_of[byte] = (unsigned char)*is_in;
    }
}

uint32_t wefti_expr_n_classes(const wefti_expr_pool *pool) {
    return pool->n_classes;
}

const unsigned char *wefti_expr_class_of(const wefti_expr_pool *pool) {
    return pool->class_of;
}

const unsigned char *wefti_expr_representatives(const wefti_expr_pool *pool) {
    return pool->representatives;
}

static const struct wefti_byte_set *set_of(const wefti_expr_pool *pool, wefti_expr a) {
    WEFT_ASSERT(pool->nodes[a].kind == SET);
    return &pool->sets[pool->nodes[a].a];
}

/* A set that is there already has its node: whoever looks for it finds its index there. */
static wefti_expr intern_set(wefti_expr_pool *pool, const struct wefti_byte_set *set, bool splits) {
    if (is_empty_set(set)) return WEFTI_EXPR_NONE;
    uint32_t idx = pool->n_sets;
    while (idx > 0 && memcmp(&pool->sets[idx - 1], set, sizeof *set) != 0)
        idx--;
    if (idx == 0) {
        if (pool->n_sets == pool->n_max) pool->failed = true;
        if (pool->failed) return WEFTI_EXPR_NONE;
        struct wefti_byte_set *sets =
            grow(pool, pool->sets, &pool->cap_sets, pool->n_sets + 1, sizeof *sets);
        if (!sets) return WEFTI_EXPR_NONE;
        pool->sets = sets;
        pool->sets[pool->n_sets++] = *set;
        idx = pool->n_sets;
        if (splits) refine(pool, set);
    }
    struct node node = {.kind = SET, .live = ALIVE, .has_text = true, .is_finite = true};
    node.a = idx - 1;
    return intern(pool, node);
}

wefti_expr wefti_expr_set(wefti_expr_pool *pool, const struct wefti_byte_set *set) {
    return intern_set(pool, set, true);
}

wefti_expr wefti_expr_range(wefti_expr_pool *pool, unsigned char first, unsigned char last) {
    struct wefti_byte_set set = {{0}};
    if (first == last && pool->of_byte[first] != WEFTI_EXPR_NONE) return pool->of_byte[first];
    for (unsigned byte = first; byte <= last; byte++)
        set.bits[byte / 64] |= (uint64_t)1 << (byte % 64);
    wefti_expr whole = wefti_expr_set(pool, &set);
    if (first == last) pool->of_byte[first] = whole;
    return whole;
}

/* ------------------------------------------------------------------------- one after another --- */

static wefti_expr cat_one(wefti_expr_pool *pool, wefti_expr a, wefti_expr b) {
    if (a == WEFTI_EXPR_NONE || b == WEFTI_EXPR_NONE) return WEFTI_EXPR_NONE;
    if (a == WEFTI_EXPR_EMPTY) return b;
    if (b == WEFTI_EXPR_EMPTY) return a;
    if (a == WEFTI_EXPR_ALL && b == WEFTI_EXPR_ALL) return a;
    const struct node *x = &pool->nodes[a], *y = &pool->nodes[b];
    bool has_text = x->has_text && y->has_text;
    return intern(pool, (struct node){.kind = CAT,
                                      .takes_empty = x->takes_empty && y->takes_empty,
                                      .has_text = has_text,
                                      .is_finite = x->is_finite && y->is_finite,
                                      .is_endless = has_text && (x->is_endless || y->is_endless),
                                      .is_chars = x->is_chars && y->is_chars,
                                      .is_tail = x->is_chars && y->is_tail,
                                      .a = a,
                                      .b = b});
}

/* Chains lean to the right, so that equal tails are shared. */
wefti_expr wefti_expr_cat(wefti_expr_pool *pool, wefti_expr a, wefti_expr b) {
    if (pool->nodes[a].kind != CAT) return cat_one(pool, a, b);
    size_t n = 0;
    for (wefti_expr at = a; pool->nodes[at].kind == CAT; at = pool->nodes[at].b)
        n++;
    wefti_expr small[64], *parts = n + 1 <= 64 ? small : malloc((n + 1) * sizeof *parts);
    if (!parts) {
        pool->failed = true;
        return WEFTI_EXPR_NONE;
    }
    wefti_expr at = a;
    for (size_t i = 0; i < n; i++, at = pool->nodes[at].b)
        parts[i] = pool->nodes[at].a;
    parts[n] = at;
    for (size_t i = n + 1; i-- > 0;)
        b = cat_one(pool, parts[i], b);
    if (parts != small) free(parts);
    return b;
}

wefti_expr wefti_expr_literal_before(wefti_expr_pool *pool, const void *bytes, size_t n,
                                     wefti_expr rest) {
    const unsigned char *text = bytes;
    for (size_t i = n; i-- > 0;)
        rest = cat_one(pool, wefti_expr_range(pool, text[i], text[i]), rest);
    return rest;
}

wefti_expr wefti_expr_literal(wefti_expr_pool *pool, const void *bytes, size_t n) {
    return wefti_expr_literal_before(pool, bytes, n, WEFTI_EXPR_EMPTY);
}

wefti_expr wefti_expr_repeat(wefti_expr_pool *pool, wefti_expr a, uint32_t min, uint32_t max) {
    WEFT_ASSERT(min <= max);
    struct node x = pool->nodes[a];
    if (max == 0 || a == WEFTI_EXPR_EMPTY) return WEFTI_EXPR_EMPTY;
    if (a == WEFTI_EXPR_NONE) return min ? a : WEFTI_EXPR_EMPTY;
    if (a == WEFTI_EXPR_ALL) return a;
    if (x.takes_empty) min = 0;
    if (min == 1 && max == 1) return a;
    if (x.takes_empty && max == 1) return a;
    /* (a{1,3}){2,4} is a{2,12}: no count between is missing. */
    if (x.kind == REPEAT && x.min <= 1) {
        uint64_t most = (uint64_t)x.max * max;
        bool is_endless = x.max == WEFTI_EXPR_MANY || max == WEFTI_EXPR_MANY;
        if (is_endless || most < WEFTI_EXPR_MANY) {
            a = x.a;
            min *= x.min;
            max = is_endless ? WEFTI_EXPR_MANY : (uint32_t)most;
        }
    }
    x = pool->nodes[a];
    return intern(
        pool, (struct node){.kind = REPEAT,
                            .takes_empty = min == 0,
                            .has_text = min == 0 || x.has_text,
                            .is_finite = x.is_finite && max < WEFTI_EXPR_MANY,
                            .is_endless = x.is_endless || (x.has_text && max == WEFTI_EXPR_MANY),
                            .is_chars = x.is_chars,
                            .a = a,
                            .min = min,
                            .max = max});
}

/* The remainder is that of all digits so far; what is left of the places is taken for zeros. */
static wefti_expr multiples(wefti_expr_pool *pool, struct node node) {
    uint64_t rest = node.b;
    for (uint32_t i = node.max == WEFTI_EXPR_MANY ? node.min : node.max; i > 0; i--)
        rest = rest * 10 % node.a;
    node.kind = MULTIPLE;
    node.live = UNKNOWN;
    node.takes_empty = rest == 0;
    node.has_text = node.max == WEFTI_EXPR_MANY;
    return intern(pool, node);
}

wefti_expr wefti_expr_multiples(wefti_expr_pool *pool, uint32_t m, uint32_t n_places) {
    WEFT_ASSERT(m > 0 && m <= WEFTI_MULTIPLE_MAX);
    for (unsigned c = '0'; c <= '9'; c++)
        (void)wefti_expr_range(pool, (unsigned char)c, (unsigned char)c);
    (void)wefti_expr_range(pool, '.', '.');
    return multiples(pool, (struct node){.a = m, .min = n_places, .max = WEFTI_EXPR_MANY});
}

static wefti_expr step_multiple(wefti_expr_pool *pool, struct node node, unsigned char byte) {
    if (byte == '.' && node.max == WEFTI_EXPR_MANY) {
        node.max = node.min;
        return multiples(pool, node);
    }
    if (byte < '0' || byte > '9') return WEFTI_EXPR_NONE;
    if (node.max == 0) return byte == '0' ? multiples(pool, node) : WEFTI_EXPR_NONE;
    node.b = (uint32_t)(((uint64_t)node.b * 10 + byte - '0') % node.a);
    if (node.max != WEFTI_EXPR_MANY) node.max--;
    return multiples(pool, node);
}

/* ------------------------------------------------------------------------ unions and the like --- */

static void list_init(struct list *list) {
    list->at = list->room;
    list->n = 0;
    list->cap = LIST_ROOM;
}

static void list_fini(struct list *list) {
    if (list->at != list->room) free(list->at);
}

static bool list_widen(struct list *list) {
    bool is_room = list->at == list->room;
    wefti_expr *at = realloc(is_room ? NULL : list->at, 2 * list->cap * sizeof *at);
    if (!at) return false;
    if (is_room) memcpy(at, list->room, list->n * sizeof *at);
    list->at = at;
    list->cap *= 2;
    return true;
}

static void list_add(wefti_expr_pool *pool, struct list *list, wefti_expr a) {
    if (list->n == list->cap && !list_widen(list))
        pool->failed = true;
    else
        list->at[list->n++] = a;
}

static int compare(const void *x, const void *y) {
    wefti_expr a = *(const wefti_expr *)x, b = *(const wefti_expr *)y;
    return a < b ? -1 : a > b;
}

static void sort(wefti_expr *list, size_t n) {
    size_t n_sorted = n > 0;
    while (n_sorted < n && list[n_sorted - 1] <= list[n_sorted])
        n_sorted++;
    if (n > SORT_LONG && n_sorted < n) {
        qsort(list, n, sizeof *list, compare);
        return;
    }
    for (size_t i = n_sorted; i < n; i++) {
        wefti_expr one = list[i];
        size_t at = i;
        for (; at > 0 && list[at - 1] > one; at--)
            list[at] = list[at - 1];
        list[at] = one;
    }
}

static void sort_unique(struct list *list) {
    size_t n = 0;
    sort(list->at, list->n);
    for (size_t i = 0; i < list->n; i++) {
        if (n == 0 || list->at[n - 1] != list->at[i]) list->at[n++] = list->at[i];
    }
    list->n = n;
}

static void flatten(wefti_expr_pool *pool, enum kind kind, const wefti_expr *from, size_t n,
                    struct list *out) {
    for (size_t i = 0; i < n; i++) {
        const struct node *node = &pool->nodes[from[i]];
        if (node->kind != kind) {
            list_add(pool, out, from[i]);
            continue;
        }
        for (uint32_t k = 0; k < node->b; k++)
            list_add(pool, out, pool->children[node->a + k]);
    }
}

/* All sets become one: their union, or what they share. */
static void join_sets(wefti_expr_pool *pool, enum kind kind, struct list *list) {
    struct wefti_byte_set sum = {{0}};
    size_t n = 0, n_sets = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (pool->nodes[list->at[i]].kind != SET) {
            list->at[n++] = list->at[i];
            continue;
        }
        const struct wefti_byte_set *set = set_of(pool, list->at[i]);
        for (int w = 0; w < 4; w++)
            sum.bits[w] = n_sets == 0   ? set->bits[w]
                          : kind == ALT ? sum.bits[w] | set->bits[w]
                                        : sum.bits[w] & set->bits[w];
        n_sets++;
    }
    list->n = n;
    if (n_sets > 0) list_add(pool, list, intern_set(pool, &sum, false));
}

/* REPEAT(a) tail: where counted repeats differ in their counts alone, they are one with both ranges.
 * Without it (a|aa){0,1000} would have a thousand counters under way at once. */
struct counted {
    wefti_expr a, tail, whole;
    uint32_t min, max;
};

static bool as_counted(const wefti_expr_pool *pool, wefti_expr whole, struct counted *out) {
    const struct node *node = &pool->nodes[whole];
    wefti_expr head = node->kind == CAT ? node->a : whole;
    if (pool->nodes[head].kind != REPEAT) return false;
    const struct node *repeat = &pool->nodes[head];
    *out = (struct counted){repeat->a, node->kind == CAT ? node->b : WEFTI_EXPR_EMPTY, whole,
                            repeat->min, repeat->max};
    return true;
}

static int compare_counted(const void *x, const void *y) {
    const struct counted *p = x, *q = y;
    if (p->a != q->a) return p->a < q->a ? -1 : 1;
    if (p->tail != q->tail) return p->tail < q->tail ? -1 : 1;
    if (p->min != q->min) return p->min < q->min ? -1 : 1;
    return p->max < q->max ? -1 : p->max > q->max;
}

static bool can_join(const struct counted *p, const struct counted *q) {
    if (p->a != q->a || p->tail != q->tail) return false;
    return p->max == WEFTI_EXPR_MANY || q->min <= p->max + 1;
}

static void join_repeats(wefti_expr_pool *pool, struct list *list) {
    struct counted one, *counted = NULL;
    size_t n = 0, n_counted = 0;
    for (size_t i = 0; i < list->n; i++)
        n_counted += as_counted(pool, list->at[i], &one);
    if (n_counted < 2) return;
    counted = malloc(n_counted * sizeof *counted);
    if (!counted) {
        pool->failed = true;
        return;
    }
    n_counted = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (as_counted(pool, list->at[i], &one))
            counted[n_counted++] = one;
        else
            list->at[n++] = list->at[i];
    }
    list->n = n;
    qsort(counted, n_counted, sizeof *counted, compare_counted);
    for (size_t i = 0, k; i < n_counted; i = k) {
        struct counted sum = counted[i];
        for (k = i + 1; k < n_counted && can_join(&sum, &counted[k]); k++)
            sum.max = weft_max_u32(sum.max, counted[k].max);
        if (k > i + 1)
            sum.whole =
                wefti_expr_cat(pool, wefti_expr_repeat(pool, sum.a, sum.min, sum.max), sum.tail);
        list_add(pool, list, sum.whole);
    }
    free(counted);
}

static struct node any_of(const wefti_expr_pool *pool, const struct list *list) {
    struct node all = {.kind = ALT, .is_finite = true, .is_within = true};
    all.is_chars = all.is_tail = true;
    for (size_t i = 0; i < list->n; i++) {
        const struct node *one = &pool->nodes[list->at[i]];
        all.takes_empty = all.takes_empty || one->takes_empty;
        all.has_text = all.has_text || one->has_text;
        all.is_finite = all.is_finite && one->is_finite;
        all.is_endless = all.is_endless || one->is_endless;
        all.is_within = all.is_within && one->is_within;
        all.is_chars = all.is_chars && one->is_chars;
        all.is_tail = all.is_tail && one->is_tail;
    }
    return all;
}

/* Endless ones without so many of them are endless: a key that is none of fifty names is there. */
static struct node all_of(const wefti_expr_pool *pool, const struct list *list) {
    struct node all = {.kind = AND, .takes_empty = true};
    size_t n_endless = 0, n_holes = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct node *one = &pool->nodes[list->at[i]];
        bool is_hole = one->kind == NOT && pool->nodes[one->a].is_finite;
        all.takes_empty = all.takes_empty && one->takes_empty;
        all.is_finite = all.is_finite || one->is_finite;
        all.is_within = all.is_within || one->is_within;
        all.is_chars = all.is_chars || one->is_chars;
        all.is_tail = all.is_tail || one->is_tail;
        n_holes += is_hole;
        n_endless += !is_hole && one->is_endless;
    }
    all.is_endless = n_endless <= 1 && n_endless + n_holes == list->n;
    all.has_text = all.is_endless;
    return all;
}

static wefti_expr intern_list(wefti_expr_pool *pool, enum kind kind, const struct list *list) {
    if (pool->failed) return WEFTI_EXPR_NONE;
    if (list->n > pool->n_max || pool->n_children > 16 * (uint64_t)pool->n_max) {
        pool->failed = true;
        return WEFTI_EXPR_NONE;
    }
    wefti_expr *children = grow(pool, pool->children, &pool->cap_children,
                                pool->n_children + (uint32_t)list->n, sizeof *children);
    if (!children) return WEFTI_EXPR_NONE;
    pool->children = children;
    if (list->n > 0) memcpy(children + pool->n_children, list->at, list->n * sizeof *children);
    struct node node = kind == ALT ? any_of(pool, list) : all_of(pool, list);
    node.a = pool->n_children;
    node.b = (uint32_t)list->n;
    pool->n_children += (uint32_t)list->n;
    return intern(pool, node);
}

static bool has(const struct list *list, wefti_expr a) {
    return list->n > 0 && bsearch(&a, list->at, list->n, sizeof a, compare);
}

static void remove_one(struct list *list, wefti_expr a) {
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (list->at[i] != a) list->at[n++] = list->at[i];
    }
    list->n = n;
}

static wefti_expr finish_alt(wefti_expr_pool *pool, struct list *list) {
    join_sets(pool, ALT, list);
    join_repeats(pool, list);
    sort_unique(list);
    remove_one(list, WEFTI_EXPR_NONE);
    if (has(list, WEFTI_EXPR_ALL)) return WEFTI_EXPR_ALL;
    if (list->n == 0) return WEFTI_EXPR_NONE;
    return list->n == 1 ? list->at[0] : intern_list(pool, ALT, list);
}

/* What is within `top` needs no `top` beside it. */
static void remove_top(const wefti_expr_pool *pool, struct list *list) {
    bool is_needed = true;
    for (size_t i = 0; i < list->n; i++)
        is_needed = is_needed && (list->at[i] == pool->top || !pool->nodes[list->at[i]].is_within);
    if (!is_needed) remove_one(list, pool->top);
}

/* Those that are complements are one: of a union. */
static void join_holes(wefti_expr_pool *pool, struct list *list) {
    struct list holes;
    size_t n = 0, n_holes = 0;
    for (size_t i = 0; i < list->n; i++)
        n_holes += pool->nodes[list->at[i]].kind == NOT;
    if (n_holes < 2) return;
    list_init(&holes);
    for (size_t i = 0; i < list->n; i++) {
        const struct node *node = &pool->nodes[list->at[i]];
        if (node->kind == NOT)
            list_add(pool, &holes, node->a);
        else
            list->at[n++] = list->at[i];
    }
    list->n = n;
    wefti_expr whole = wefti_expr_alt(pool, holes.at, holes.n);
    list_fini(&holes);
    list_add(pool, list, wefti_expr_not(pool, whole));
    sort_unique(list);
}

/* `a` without what stands beside it: (A and B) taken away from A is B taken away. */
static wefti_expr relative(wefti_expr_pool *pool, const struct list *list, wefti_expr a) {
    struct node node = pool->nodes[a];
    struct list rest;
    if (has(list, a)) return WEFTI_EXPR_ALL;
    if (node.kind != AND) return a;
    list_init(&rest);
    for (uint32_t i = 0; i < node.b; i++) {
        wefti_expr one = pool->children[node.a + i];
        if (!has(list, one)) list_add(pool, &rest, one);
    }
    if (rest.n < node.b) a = wefti_expr_and(pool, rest.at, rest.n);
    list_fini(&rest);
    return a;
}

/* What is taken away is looked at beside what it is taken away from. */
static wefti_expr relative_hole(wefti_expr_pool *pool, const struct list *list, wefti_expr hole) {
    wefti_expr from = pool->nodes[hole].a;
    struct node node = pool->nodes[from];
    if (node.kind != ALT) return wefti_expr_not(pool, relative(pool, list, from));
    struct list parts;
    bool is_changed = false;
    list_init(&parts);
    for (uint32_t i = 0; i < node.b && !pool->failed; i++) {
        wefti_expr one = pool->children[node.a + i], part = relative(pool, list, one);
        list_add(pool, &parts, part);
        is_changed = is_changed || part != one;
    }
    if (is_changed) hole = wefti_expr_not(pool, wefti_expr_alt(pool, parts.at, parts.n));
    list_fini(&parts);
    return hole;
}

static wefti_expr finish_and(wefti_expr_pool *pool, struct list *list) {
    join_sets(pool, AND, list);
    sort_unique(list);
    remove_one(list, WEFTI_EXPR_ALL);
    join_holes(pool, list);
    if (pool->top != WEFTI_EXPR_NONE && has(list, pool->top)) remove_top(pool, list);
    if (list->n == 0) return WEFTI_EXPR_ALL;
    if (has(list, WEFTI_EXPR_NONE)) return WEFTI_EXPR_NONE;
    bool all_take_empty = true;
    for (size_t i = 0; i < list->n; i++) {
        all_take_empty = all_take_empty && pool->nodes[list->at[i]].takes_empty;
        if (pool->nodes[list->at[i]].kind != NOT) continue;
        wefti_expr hole = relative_hole(pool, list, list->at[i]);
        if (hole == list->at[i] || pool->failed) continue;
        list->at[i] = hole; /* shorter than it was, so this ends */
        return wefti_expr_and(pool, list->at, list->n);
    }
    if (has(list, WEFTI_EXPR_EMPTY)) return all_take_empty ? WEFTI_EXPR_EMPTY : WEFTI_EXPR_NONE;
    return list->n == 1 ? list->at[0] : intern_list(pool, AND, list);
}

static wefti_expr join(wefti_expr_pool *pool, enum kind kind, const wefti_expr *from, size_t n) {
    struct list list;
    list_init(&list);
    flatten(pool, kind, from, n, &list);
    work(pool, list.n);
    wefti_expr whole = WEFTI_EXPR_NONE;
    if (!pool->failed) whole = kind == ALT ? finish_alt(pool, &list) : finish_and(pool, &list);
    list_fini(&list);
    return pool->failed ? WEFTI_EXPR_NONE : whole;
}

wefti_expr wefti_expr_alt(wefti_expr_pool *pool, const wefti_expr *list, size_t n) {
    return join(pool, ALT, list, n);
}

wefti_expr wefti_expr_and(wefti_expr_pool *pool, const wefti_expr *list, size_t n) {
    return join(pool, AND, list, n);
}

wefti_expr wefti_expr_alt2(wefti_expr_pool *pool, wefti_expr a, wefti_expr b) {
    if (a == b || b == WEFTI_EXPR_NONE) return a;
    if (a == WEFTI_EXPR_NONE) return b;
    return join(pool, ALT, (wefti_expr[]){a, b}, 2);
}

wefti_expr wefti_expr_and2(wefti_expr_pool *pool, wefti_expr a, wefti_expr b) {
    if (a == b) return a;
    return join(pool, AND, (wefti_expr[]){a, b}, 2);
}

wefti_expr wefti_expr_not(wefti_expr_pool *pool, wefti_expr a) {
    const struct node *node = &pool->nodes[a];
    if (a == WEFTI_EXPR_NONE) return WEFTI_EXPR_ALL;
    if (a == WEFTI_EXPR_ALL) return WEFTI_EXPR_NONE;
    if (node->kind == NOT) return node->a;
    return intern(pool, (struct node){.kind = NOT,
                                      .takes_empty = !node->takes_empty,
                                      .has_text = node->is_finite,
                                      .is_endless = node->is_finite,
                                      .a = a});
}

void wefti_expr_within(wefti_expr_pool *pool, wefti_expr a, wefti_expr top) {
    WEFT_ASSERT(pool->top == WEFTI_EXPR_NONE || pool->top == top || pool->failed);
    pool->top = top;
    if (a > WEFTI_EXPR_ALL) pool->nodes[a].is_within = true;
}

void wefti_expr_chars(wefti_expr_pool *pool, wefti_expr a) {
    if (a > WEFTI_EXPR_ALL) pool->nodes[a].is_chars = true;
}

void wefti_expr_strings(wefti_expr_pool *pool, wefti_expr strings, wefti_expr tail) {
    wefti_expr quote = wefti_expr_range(pool, '"', '"');
    wefti_expr_within(pool, strings, strings);
    pool->tail = tail;
    if (pool->failed) return;
    pool->nodes[quote].is_tail = true;
    pool->nodes[tail].is_tail = true;
}

/* ------------------------------------------------------------------------------ derivatives --- */

bool wefti_expr_takes_empty(const wefti_expr_pool *pool, wefti_expr a) {
    return pool->nodes[a].takes_empty;
}

/* Along a chain, for as long as its parts may be empty. */
static wefti_expr step_cat(wefti_expr_pool *pool, wefti_expr a, unsigned char byte) {
    struct list list;
    wefti_expr first = WEFTI_EXPR_NONE;
    list_init(&list);
    for (bool more = true; more && !pool->failed;) {
        struct node node = pool->nodes[a];
        bool is_cat = node.kind == CAT;
        wefti_expr head = is_cat ? node.a : a;
        wefti_expr next = wefti_expr_step(pool, head, byte);
        if (is_cat) next = wefti_expr_cat(pool, next, node.b);
        if (first == WEFTI_EXPR_NONE)
            first = next;
        else if (next != WEFTI_EXPR_NONE)
            list_add(pool, &list, next);
        more = is_cat && pool->nodes[head].takes_empty;
        a = node.b;
    }
    if (list.n > 0) {
        list_add(pool, &list, first);
        first = wefti_expr_alt(pool, list.at, list.n);
    }
    list_fini(&list);
    return first;
}

static wefti_expr step_list(wefti_expr_pool *pool, struct node node, unsigned char byte) {
    struct list list;
    list_init(&list);
    for (uint32_t i = 0; i < node.b && !pool->failed; i++) {
        wefti_expr next = wefti_expr_step(pool, pool->children[node.a + i], byte);
        if (node.kind == AND && next == WEFTI_EXPR_NONE) {
            list_fini(&list);
            return next;
        }
        if (next != WEFTI_EXPR_NONE) list_add(pool, &list, next);
    }
    wefti_expr whole = WEFTI_EXPR_NONE;
    if (node.kind == AND)
        whole = wefti_expr_and(pool, list.at, list.n);
    else if (list.n == 1)
        whole = list.at[0];
    else if (list.n > 1)
        whole = wefti_expr_alt(pool, list.at, list.n);
    list_fini(&list);
    return whole;
}

static wefti_expr step_repeat(wefti_expr_pool *pool, struct node node, unsigned char byte) {
    wefti_expr next = wefti_expr_step(pool, node.a, byte);
    if (next == WEFTI_EXPR_NONE) return next;
    uint32_t min = node.min ? node.min - 1 : 0;
    uint32_t max = node.max == WEFTI_EXPR_MANY ? node.max : node.max - 1;
    return wefti_expr_cat(pool, next, wefti_expr_repeat(pool, node.a, min, max));
}

static __attribute__((noinline)) wefti_expr step_anew(wefti_expr_pool *pool, wefti_expr a,
                                                      unsigned char byte) {
    struct node node = pool->nodes[a];
    wefti_expr to = WEFTI_EXPR_NONE;
    work(pool, node.kind == ALT || node.kind == AND ? node.b : 1);
    if (node.kind == CAT)
        to = step_cat(pool, a, byte);
    else if (node.kind == REPEAT)
        to = step_repeat(pool, node, byte);
    else if (node.kind == MULTIPLE)
        to = step_multiple(pool, node, byte);
    else if (node.kind == NOT)
        to = wefti_expr_not(pool, wefti_expr_step(pool, node.a, byte));
    else
        to = step_list(pool, node, byte);
    return pool->failed ? WEFTI_EXPR_NONE : to;
}

/* Apart from the above: most calls end here, and its lists would have a frame of 300 bytes made for them. */
wefti_expr wefti_expr_step(wefti_expr_pool *pool, wefti_expr a, unsigned char byte) {
    const struct node *node = &pool->nodes[a];
    if (node->kind == NONE || node->kind == EMPTY || pool->failed) return WEFTI_EXPR_NONE;
    if (node->kind == ALL) return a;
    if (node->kind == SET)
        return has_byte(&pool->sets[node->a], byte) ? WEFTI_EXPR_EMPTY : WEFTI_EXPR_NONE;
    struct memo *memo = &pool->memo[mix(a, byte) >> 13 & (WEFTI_EXPR_MEMO - 1)];
    if (memo->is_used && memo->from == a && memo->byte == byte) return memo->to;
    wefti_expr to = step_anew(pool, a, byte);
    if (!pool->failed) *memo = (struct memo){a, to, byte, true};
    return to;
}
