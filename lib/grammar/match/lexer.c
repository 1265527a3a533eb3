#include "match/lexer.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct pair {
    wefti_expr whole, rest;
};

/* A list in `words`. */
struct slice {
    uint32_t at, n;
};

struct state {
    struct slice pairs; /* two words each */
    uint32_t ending;
    uint32_t *row; /* by class of bytes; NULL: no step yet */
    struct {
        uint32_t n; /* 0: not yet */
        wefti_lex to;
    } far[2]; /* those asked for last */
};

/* Lists of words that are the same are the same number. */
struct table {
    struct slice *slices;
    uint32_t n, cap;
    uint32_t *slots;
    uint32_t n_slots;
    uint32_t *words;
    uint32_t n_words, cap_words;
};

struct wefti_lexer {
    wefti_expr_pool *pool;
    struct table states_of, endings_of;
    struct state *states; /* as states_of.slices */
    uint32_t n_states, cap_states, n_max;
    uint32_t n_classes;
    size_t n_rows;
    struct pair *pairs; /* of the state that is made */
    size_t cap_pairs;
    uint32_t *scratch;
    bool failed;
};

static void *widen(wefti_lexer *lexer, void *mem, uint32_t need, uint32_t *cap, size_t size) {
    uint32_t wider = *cap ? *cap : 64;
    while (wider < need)
        wider *= 2;
    if (wider == *cap) return mem;
    void *more = need < UINT32_MAX / 4 ? realloc(mem, wider * size) : NULL;
    if (more)
        *cap = wider;
    else
        lexer->failed = true;
    return more;
}

static uint64_t hash_words(const uint32_t *words, uint32_t n) {
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static bool rehash(struct table *table) {
    uint32_t n_slots = table->n_slots ? 2 * table->n_slots : 64;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots) return false;
    for (uint32_t i = 0; i < table->n; i++) {
        uint64_t at = hash_words(table->words + table->slices[i].at, table->slices[i].n);
        while (slots[at & (n_slots - 1)])
            at++;
        slots[at & (n_slots - 1)] = i + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    return true;
}

/* The list's number. */
static uint32_t intern(wefti_lexer *lexer, struct table *table, const uint32_t *words, uint32_t n) {
    if (2 * table->n >= table->n_slots && !rehash(table)) lexer->failed = true;
    if (lexer->failed) return 0;
    uint64_t at = hash_words(words, n);
    for (;; at++) {
        uint32_t slot = table->slots[at & (table->n_slots - 1)];
        if (!slot) break;
        const struct slice *slice = &table->slices[slot - 1];
        if (slice->n == n &&
            (n == 0 || !memcmp(table->words + slice->at, words, n * sizeof *words)))
            return slot - 1;
    }
    struct slice *slices = widen(lexer, table->slices, table->n + 1, &table->cap, sizeof *slices);
    if (slices) table->slices = slices;
    uint32_t *all = widen(lexer, table->words, table->n_words + n, &table->cap_words, sizeof *all);
    if (all) table->words = all;
    if (!slices || !all) return 0;
    if (n > 0) memcpy(all + table->n_words, words, n * sizeof *words);
    table->slices[table->n] = (struct slice){table->n_words, n};
    table->n_words += n;
    table->slots[at & (table->n_slots - 1)] = table->n + 1;
    return table->n++;
}

static void table_fini(struct table *table) {
    free(table->slices);
    free(table->slots);
    free(table->words);
}

static int compare(const void *x, const void *y) {
    const struct pair *a = x, *b = y;
    if (a->whole != b->whole) return a->whole < b->whole ? -1 : 1;
    return a->rest < b->rest ? -1 : a->rest > b->rest;
}

/* The state of the first `n` of `pairs`. */
static wefti_lex make_state(wefti_lexer *lexer, size_t n) {
    struct pair *pairs = lexer->pairs;
    uint32_t n_ending = 0;
    if (n > 1) qsort(pairs, n, sizeof *pairs, compare);
    uint32_t before = lexer->states_of.n;
    uint32_t idx = intern(lexer, &lexer->states_of, (const uint32_t *)pairs, 2 * (uint32_t)n);
    if (lexer->failed || idx < before) return lexer->failed ? WEFTI_LEX_DEAD : idx;
    struct state *states = widen(lexer, lexer->states, idx + 1, &lexer->cap_states, sizeof *states);
    if (states) lexer->states = states;
    if (idx >= lexer->n_max) lexer->failed = true;
    if (lexer->failed) return WEFTI_LEX_DEAD;
    for (size_t i = 0; i < n; i++) {
        if (wefti_expr_takes_empty(lexer->pool, pairs[i].rest) &&
            (n_ending == 0 || lexer->scratch[n_ending - 1] != pairs[i].whole))
            lexer->scratch[n_ending++] = pairs[i].whole;
    }
    lexer->states[idx] =
        (struct state){.ending = intern(lexer, &lexer->endings_of, lexer->scratch, n_ending)};
    lexer->states[idx].pairs = lexer->states_of.slices[idx];
    lexer->n_states = idx + 1;
    return idx;
}

static bool make_room(wefti_lexer *lexer, size_t n) {
    if (n <= lexer->cap_pairs) return true;
    struct pair *pairs = realloc(lexer->pairs, 2 * n * sizeof *pairs);
    if (pairs) lexer->pairs = pairs;
    uint32_t *scratch = realloc(lexer->scratch, 2 * n * sizeof *scratch);
    if (scratch) lexer->scratch = scratch;
    if (!pairs || !scratch)
        lexer->failed = true;
    else
        lexer->cap_pairs = 2 * n;
    return !lexer->failed;
}

wefti_lexer *wefti_lexer_new(wefti_expr_pool *pool, uint32_t n_states_max) {
    wefti_lexer *lexer = calloc(1, sizeof *lexer);
    if (!lexer) return NULL;
    lexer->pool = pool;
    lexer->n_max = n_states_max;
    lexer->n_classes = wefti_expr_n_classes(pool);
    if (make_room(lexer, 64)) {
        (void)intern(lexer, &lexer->endings_of, lexer->scratch, 0);
        wefti_lex dead = make_state(lexer, 0);
        WEFT_ASSERT(dead == WEFTI_LEX_DEAD);
    }
    if (lexer->failed) {
        wefti_lexer_free(lexer);
        return NULL;
    }
    return lexer;
}

void wefti_lexer_free(wefti_lexer *lexer) {
    if (!lexer) return;
    for (uint32_t i = 0; i < lexer->n_states; i++)
        free(lexer->states[i].row);
    free(lexer->states);
    free(lexer->pairs);
    free(lexer->scratch);
    table_fini(&lexer->states_of);
    table_fini(&lexer->endings_of);
    free(lexer);
}

bool wefti_lexer_failed(const wefti_lexer *lexer) {
    return lexer->failed || wefti_expr_pool_failed(lexer->pool);
}

uint32_t wefti_lexer_n_states(const wefti_lexer *lexer) {
    return lexer->n_states;
}

size_t wefti_lexer_bytes(const wefti_lexer *lexer) {
    const struct table *a = &lexer->states_of, *b = &lexer->endings_of;
    size_t n_words = a->cap_words + b->cap_words + a->n_slots + b->n_slots;
    return n_words * sizeof(uint32_t) + (a->cap + b->cap) * sizeof(struct slice) +
           lexer->cap_states * sizeof *lexer->states +
           lexer->n_rows * lexer->n_classes * sizeof(uint32_t);
}

wefti_lex wefti_lexer_start(wefti_lexer *lexer, wefti_expr *exprs, size_t n) {
    if (lexer->failed || !make_room(lexer, n)) return WEFTI_LEX_DEAD;
    size_t n_pairs = 0;
    for (size_t i = 0; i < n; i++)
        lexer->pairs[i] = (struct pair){exprs[i], exprs[i]};
    if (n > 1) qsort(lexer->pairs, n, sizeof *lexer->pairs, compare);
    for (size_t i = 0; i < n; i++) {
        if (n_pairs == 0 || lexer->pairs[n_pairs - 1].whole != lexer->pairs[i].whole)
            lexer->pairs[n_pairs++] = lexer->pairs[i];
    }
    return make_state(lexer, n_pairs);
}

static wefti_lex make_step(wefti_lexer *lexer, wefti_lex from, unsigned char byte) {
    struct slice pairs = lexer->states[from].pairs;
    size_t n = 0;
    if (!make_room(lexer, pairs.n)) return WEFTI_LEX_DEAD;
    for (uint32_t i = 0; i < pairs.n; i += 2) {
        const uint32_t *pair = lexer->states_of.words + pairs.at + i;
        wefti_expr rest = wefti_expr_step(lexer->pool, pair[1], byte);
        if (wefti_expr_is_live(lexer->pool, rest)) lexer->pairs[n++] = (struct pair){pair[0], rest};
    }
    return make_state(lexer, n);
}

static wefti_lex make_far(wefti_lexer *lexer, wefti_lex state, uint32_t n) {
    struct slice pairs = lexer->states[state].pairs;
    bool is_changed = false;
    if (lexer->failed || !make_room(lexer, pairs.n)) return state;
    for (uint32_t i = 0; i < pairs.n; i += 2) {
        const uint32_t *pair = lexer->states_of.words + pairs.at + i;
        wefti_expr rest = wefti_expr_far(lexer->pool, pair[1], n);
        lexer->pairs[i / 2] = (struct pair){pair[0], rest};
        is_changed = is_changed || rest != pair[1];
    }
    return is_changed ? make_state(lexer, pairs.n / 2) : state;
}

wefti_lex wefti_lexer_far(wefti_lexer *lexer, wefti_lex state, uint32_t n) {
    for (int i = 0; i < 2; i++) {
        if (lexer->states[state].far[i].n == n) return lexer->states[state].far[i].to;
    }
    wefti_lex to = make_far(lexer, state, n);
    struct state *from = &lexer->states[state];
    from->far[1] = from->far[0];
    from->far[0].n = n;
    from->far[0].to = to;
    return to;
}

wefti_lex wefti_lexer_endless(wefti_lexer *lexer, wefti_lex state) {
    struct slice pairs = lexer->states[state].pairs;
    wefti_expr found = WEFTI_EXPR_NONE;
    for (uint32_t i = 0; i < pairs.n && found == WEFTI_EXPR_NONE; i += 2)
        found = wefti_expr_endless(lexer->pool, lexer->states_of.words[pairs.at + i + 1]);
    return found == WEFTI_EXPR_NONE ? WEFTI_LEX_DEAD : wefti_lexer_start(lexer, &found, 1);
}

static uint32_t *row_of(wefti_lexer *lexer, wefti_lex state) {
    WEFT_ASSERT(state < lexer->n_states);
    uint32_t *row = lexer->states[state].row;
    if (row || state == WEFTI_LEX_DEAD) return row;
    row = malloc(lexer->n_classes * sizeof *row);
    if (!row) {
        lexer->failed = true;
        return NULL;
    }
    memset(row, 0xff, lexer->n_classes * sizeof *row);
    lexer->states[state].row = row;
    lexer->n_rows++;
    return row;
}

const wefti_lex *wefti_lexer_row(wefti_lexer *lexer, wefti_lex state) {
    return row_of(lexer, state);
}

const unsigned char *wefti_lexer_classes(const wefti_lexer *lexer) {
    return wefti_expr_class_of(lexer->pool);
}

wefti_lex wefti_lexer_step(wefti_lexer *lexer, wefti_lex state, unsigned char byte) {
    uint32_t class = wefti_expr_class_of(lexer->pool)[byte];
    uint32_t *row = row_of(lexer, state);
    if (!row) return WEFTI_LEX_DEAD;
    if (row[class] == WEFTI_LEX_NOT_YET) row[class] = make_step(lexer, state, byte);
    return row[class];
}

uint32_t wefti_lexer_ending(const wefti_lexer *lexer, wefti_lex state) {
    return lexer->states[state].ending;
}

const wefti_expr *wefti_lexer_endings(const wefti_lexer *lexer, uint32_t ending, size_t *n_out) {
    const struct slice *slice = &lexer->endings_of.slices[ending];
    *n_out = slice->n;
    return lexer->endings_of.words + slice->at;
}
