#include "match/mask.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define KEPT_BYTES_MAX ((size_t)32 << 20)
#define VISITS_KEPT 256u       /* a shorter walk is not worth keeping */
#define VISITS_MAX (64u << 20) /* of one mask: a bound for what no grammar needs */
#define SLOTS 4096u
#define PLAIN_STATES_MAX 32u
#define PLAIN_NEW_MAX 400u /* a counter's next 32 steps; beyond that a walk costs no more */

/* Where an expression may end within a token: the rest of it is below `node`. */
struct rest {
    const struct wefti_vocab_trie *trie;
    uint32_t node, ending;
};

struct kept {
    wefti_lex lex;
    bool is_long;   /* of long tokens, else of the others */
    uint64_t *mask; /* NULL: free */
    struct rest *rests;
    uint32_t n_rests;
};

struct walk {
    const struct wefti_vocab_trie *trie;
    uint32_t node, column;
    wefti_lex lex;
};

struct list {
    void *at;
    uint32_t n, cap;
};

/* A column that is made for the mask: what it follows from. */
struct made {
    uint32_t from, ending, column;
};

struct wefti_masks {
    struct kept kept[SLOTS];
    size_t n_bytes;
    uint64_t vocab_id; /* of all that is kept */
    wefti_lex *path;   /* by depth */
    const wefti_lex **rows;
    uint32_t n_path;
    struct list walks, rests, made;
    uint32_t n_visits;
    bool failed;
};

wefti_masks *wefti_masks_new(void) {
    return calloc(1, sizeof(wefti_masks));
}

static void drop_kept(wefti_masks *masks) {
    for (uint32_t i = 0; i < SLOTS; i++) {
        free(masks->kept[i].mask);
        free(masks->kept[i].rests);
        masks->kept[i] = (struct kept){0};
    }
    masks->n_bytes = 0;
}

void wefti_masks_free(wefti_masks *masks) {
    if (!masks) return;
    drop_kept(masks);
    free(masks->path);
    free(masks->rows);
    free(masks->walks.at);
    free(masks->rests.at);
    free(masks->made.at);
    free(masks);
}

size_t wefti_masks_bytes(const wefti_masks *masks) {
    return sizeof *masks + masks->n_bytes;
}

static void put(wefti_masks *masks, struct list *list, const void *entry, size_t size) {
    if (list->n == list->cap) {
        uint32_t cap = list->cap ? 2 * list->cap : 64;
        void *at = cap > VISITS_MAX ? NULL : realloc(list->at, cap * size);
        if (!at) {
            masks->failed = true;
            return;
        }
        list->at = at;
        list->cap = cap;
    }
    memcpy((char *)list->at + list->n++ * size, entry, size);
}

static void allow(const weft_gram_vocab *vocab, const struct wefti_vocab_node *node,
                  uint64_t *mask) {
    uint32_t token = node->token;
    if (token == WEFTI_VOCAB_NONE) return;
    mask[token / 64] |= (uint64_t)1 << (token % 64);
    if (!node->has_same) return;
    while ((token = vocab->same[token]) != WEFTI_VOCAB_NONE)
        mask[token / 64] |= (uint64_t)1 << (token % 64);
}

/* All below the walk's node that its state takes; what is left where an expression may end goes to `rests`. A
 * row of steps stays where it is, so most of a walk is two loads for a byte. */
static void walk_below(wefti_masks *masks, wefti_lexer *lexer, const weft_gram_vocab *vocab,
                       const struct walk *walk, uint64_t *mask) {
    const struct wefti_vocab_node *nodes = walk->trie->nodes;
    const unsigned char *class_of = wefti_lexer_classes(lexer);
    const wefti_lex **rows = masks->rows;
    uint32_t end = nodes[walk->node].end, depth = nodes[walk->node].depth;
    masks->path[depth] = walk->lex;
    rows[depth] = wefti_lexer_row(lexer, walk->lex);
    for (uint32_t i = walk->node + 1; i < end;) {
        const struct wefti_vocab_node *node = &nodes[i];
        depth = node->depth;
        const wefti_lex *row = rows[depth - 1];
        wefti_lex lex = row ? row[class_of[node->byte]] : WEFTI_LEX_DEAD;
        if (lex == WEFTI_LEX_NOT_YET)
            lex = wefti_lexer_step(lexer, masks->path[depth - 1], node->byte);
        masks->n_visits++;
        if (lex == WEFTI_LEX_DEAD) {
            i = node->end;
            continue;
        }
        allow(vocab, node, mask);
        if (node->end == ++i) continue;
        masks->path[depth] = lex;
        rows[depth] = wefti_lexer_row(lexer, lex);
        uint32_t ending = wefti_lexer_ending(lexer, lex);
        if (ending)
            put(masks, &masks->rests, &(struct rest){walk->trie, i - 1, ending},
                sizeof(struct rest));
    }
}

static void keep(wefti_masks *masks, struct kept *kept, struct kept one, const uint64_t *mask,
                 size_t n_words) {
    size_t n_bytes = n_words * sizeof *mask + masks->rests.n * sizeof(struct rest);
    if (masks->n_bytes + n_bytes > KEPT_BYTES_MAX) drop_kept(masks);
    if (kept->mask) masks->n_bytes -= n_words * sizeof *mask + kept->n_rests * sizeof(struct rest);
    free(kept->mask);
    free(kept->rests);
    *kept = (struct kept){0};
    one.n_rests = masks->rests.n;
    one.mask = malloc((n_words + 1) * sizeof *mask);
    one.rests = malloc((one.n_rests + 1) * sizeof(struct rest));
    if (!one.mask || !one.rests) {
        free(one.mask);
        free(one.rests);
        return;
    }
    memcpy(one.mask, mask, n_words * sizeof *mask);
    if (one.n_rests > 0) memcpy(one.rests, masks->rests.at, one.n_rests * sizeof(struct rest));
    *kept = one;
    masks->n_bytes += n_bytes;
}

/* The column behind `ending` of `from`, made once. */
static uint32_t next_column(wefti_masks *masks, struct wefti_place *place, uint32_t from,
                            uint32_t ending) {
    const struct made *made = masks->made.at;
    for (uint32_t i = masks->made.n; i-- > 0;) {
        if (made[i].from == from && made[i].ending == ending) return made[i].column;
    }
    struct made one = {from, ending, wefti_place_column(place, from, ending)};
    put(masks, &masks->made, &one, sizeof one);
    return one.column;
}

static void add_rests(wefti_masks *masks, struct wefti_place *place, const struct walk *of,
                      const struct rest *rests, uint32_t n) {
    for (uint32_t i = 0; i < n && !masks->failed && !place->failed; i++) {
        uint32_t next = next_column(masks, place, of->column, rests[i].ending);
        if (place->failed) return;
        wefti_lex lex = wefti_place_column_at(place, next)->start;
        const struct walk walk = {rests[i].trie, rests[i].node, next, lex};
        if (lex != WEFTI_LEX_DEAD) put(masks, &masks->walks, &walk, sizeof walk);
        /* Free text may end behind each of its bytes, and often nothing may follow. */
        while (lex == WEFTI_LEX_DEAD && i + 1 < n && rests[i + 1].ending == rests[i].ending)
            i++;
    }
}

/* ------------------------------------------------------------------------------ plain tokens --- */

/* A state of the lexer, and of UTF-8. */
struct plain {
    wefti_lex lex;
    uint32_t utf8;
};

struct plains {
    struct plain list[PLAIN_STATES_MAX];
    uint32_t n;
};

/* False: there are too many. */
static bool add_plain(struct plains *to, struct plain one) {
    for (uint32_t i = to->n; i-- > 0;) {
        if (to->list[i].lex == one.lex && to->list[i].utf8 == one.utf8) return true;
    }
    if (to->n == PLAIN_STATES_MAX) return false;
    to->list[to->n++] = one;
    return true;
}

enum fit { NONE_FITS, SOME_FIT, ALL_FIT };

/* What bytes of a character do next: characters that are done go to `to`, others to `under_way`. Of bytes of one
 * class one is tried. *may_end: an expression may end there. */
static enum fit step_plain(wefti_lexer *lexer, struct plain from, struct plains *under_way,
                           struct plains *to, bool *may_end) {
    const unsigned char *class_of = wefti_lexer_classes(lexer);
    bool fits = false, is_over = false;
    for (uint32_t r = 0; r < WEFTI_VOCAB_PLAIN_N; r++) {
        const struct wefti_vocab_plain *range = &wefti_vocab_plain[r];
        uint64_t seen[4] = {0};
        if (range->from != from.utf8) continue;
        for (unsigned byte = range->first; byte <= range->last; byte++) {
            unsigned char class = class_of[byte];
            if (seen[class / 64] >> (class % 64) & 1) continue;
            seen[class / 64] |= (uint64_t)1 << (class % 64);
            wefti_lex lex = wefti_lexer_step(lexer, from.lex, (unsigned char)byte);
            bool is_dead = lex == WEFTI_LEX_DEAD;
            *may_end = *may_end || wefti_lexer_ending(lexer, lex);
            if (!is_dead)
                is_dead = !add_plain(range->to ? under_way : to, (struct plain){lex, range->to});
            fits = fits || !is_dead;
            is_over = is_over || is_dead;
            if (fits && is_over) return SOME_FIT;
        }
    }
    return fits ? ALL_FIT : NONE_FITS;
}

/* The states behind any one plain character. */
static enum fit step_char(wefti_lexer *lexer, const struct plains *now, struct plains *next,
                          bool *may_end) {
    struct plains under_way = {.n = 0};
    enum fit all = NONE_FITS;
    next->n = 0;
    for (uint32_t i = 0; i < now->n; i++) {
        enum fit fit = step_plain(lexer, now->list[i], &under_way, next, may_end);
        if (fit == SOME_FIT || (i > 0 && fit != all)) return SOME_FIT;
        all = fit;
    }
    for (uint32_t i = 0; i < under_way.n; i++) {
        if (step_plain(lexer, under_way.list[i], &under_way, next, may_end) != ALL_FIT)
            return SOME_FIT;
    }
    return all;
}

#define FOR_EVER UINT32_MAX

/* So many plain characters fit, whichever they are, and none behind them. 0: it is not so simple, as where longer
 * tokens may go on with what comes behind the expression. In a string the states are soon the same again, or the
 * next ones of a counter. */
static uint32_t count_plain(wefti_lexer *lexer, wefti_lex lex) {
    struct plains now = {{{lex, 0}}, 1}, next;
    uint32_t n_states_max = wefti_lexer_n_states(lexer) + PLAIN_NEW_MAX;
    bool may_end = false;
    for (uint32_t n = 0; n <= WEFTI_VOCAB_SHORT_MAX; n++) {
        enum fit fit = step_char(lexer, &now, &next, &may_end);
        if (fit == NONE_FITS) return may_end ? 0 : n;
        if (fit == SOME_FIT || wefti_lexer_n_states(lexer) > n_states_max) return 0;
        if (next.n == now.n && memcmp(now.list, next.list, now.n * sizeof *now.list) == 0)
            return FOR_EVER;
        memcpy(now.list, next.list, next.n * sizeof *next.list);
        now.n = next.n;
    }
    return WEFTI_VOCAB_SHORT_MAX;
}

/* The plain tokens that fit, where a walk is not needed to know. A key that is none of fifty names is one of
 * endlessly many: any plain text leads on to one of them. */
static const uint64_t *plain_mask(wefti_lexer *lexer, const weft_gram_vocab *vocab, wefti_lex lex) {
    wefti_lex endless = wefti_lexer_endless(lexer, lex);
    uint32_t n = endless == WEFTI_LEX_DEAD ? 0 : count_plain(lexer, endless);
    if (n != FOR_EVER) n = count_plain(lexer, lex);
    if (n > WEFTI_VOCAB_SHORT_MAX) n = WEFTI_VOCAB_SHORT_MAX;
    return n ? vocab->plain + n * weft_gram_mask_words(vocab->n_tokens) : NULL;
}

/* ---------------------------------------------------------------------------- from the root --- */

/* Tokens of one kind, short or long, from the root; what it comes to is kept. */
static void walk_root(wefti_masks *masks, struct wefti_place *place, const weft_gram_vocab *vocab,
                      struct walk walk, uint64_t *mask) {
    size_t n_words = weft_gram_mask_words(vocab->n_tokens);
    bool is_long = walk.trie == &vocab->extra;
    struct kept *kept = &masks->kept[(2 * walk.lex + is_long) % SLOTS];
    if (kept->mask && kept->lex == walk.lex && kept->is_long == is_long) {
        for (size_t i = 0; i < n_words; i++)
            mask[i] |= kept->mask[i];
        add_rests(masks, place, &walk, kept->rests, kept->n_rests);
        return;
    }
    uint64_t *own = calloc(n_words + 1, sizeof *own);
    if (!own) {
        masks->failed = true;
        return;
    }
    const uint64_t *plain = is_long ? NULL : plain_mask(place->lexer, vocab, walk.lex);
    if (plain) {
        memcpy(own, plain, n_words * sizeof *own);
        walk.trie = &vocab->others;
    }
    uint32_t n_before = masks->n_visits;
    masks->rests.n = 0;
    walk_below(masks, place->lexer, vocab, &walk, own);
    for (size_t i = 0; i < n_words; i++)
        mask[i] |= own[i];
    if (masks->n_visits - n_before >= VISITS_KEPT && !wefti_lexer_failed(place->lexer))
        keep(masks, kept, (struct kept){.lex = walk.lex, .is_long = is_long}, own, n_words);
    free(own);
    add_rests(masks, place, &walk, masks->rests.at, masks->rests.n);
}

/* Places in a long string are one and the same for all tokens that do not reach its end, or for the short ones. */
static void walk_all(wefti_masks *masks, struct wefti_place *place, const weft_gram_vocab *vocab,
                     struct walk walk, uint64_t *mask) {
    walk.lex = wefti_lexer_far(place->lexer, walk.lex, vocab->n_depth);
    walk.trie = &vocab->extra;
    if (walk.trie->n_nodes > 1) walk_root(masks, place, vocab, walk, mask);
    walk.lex = wefti_lexer_far(place->lexer, walk.lex, WEFTI_VOCAB_SHORT_MAX);
    walk.trie = &vocab->all;
    walk_root(masks, place, vocab, walk, mask);
}

static bool make_path(wefti_masks *masks, const weft_gram_vocab *vocab) {
    if (masks->vocab_id != vocab->id) drop_kept(masks);
    masks->vocab_id = vocab->id;
    if (masks->n_path > vocab->n_depth) return true;
    wefti_lex *path = realloc(masks->path, (vocab->n_depth + 1) * sizeof *path);
    if (!path) return false;
    masks->path = path;
    const wefti_lex **rows = realloc(masks->rows, (vocab->n_depth + 1) * sizeof *rows);
    if (!rows) return false;
    masks->rows = rows;
    masks->n_path = vocab->n_depth + 1;
    return true;
}

weft_err wefti_masks_make(wefti_masks *masks, struct wefti_place *place,
                          const weft_gram_vocab *vocab, uint64_t *mask) {
    uint32_t n_threads, n_columns = wefti_place_n_columns(place);
    memset(mask, 0, weft_gram_mask_words(vocab->n_tokens) * sizeof *mask);
    if (!make_path(masks, vocab)) return WEFT_E_NOMEM;
    masks->walks.n = masks->made.n = masks->n_visits = 0;
    const struct wefti_thread *threads = wefti_place_threads(place, &n_threads);
    for (uint32_t i = 0; i < n_threads; i++)
        put(masks, &masks->walks, &(struct walk){&vocab->all, 0, threads[i].column, threads[i].lex},
            sizeof(struct walk));
    while (masks->walks.n > 0 && !masks->failed && !place->failed) {
        struct walk walk = ((const struct walk *)masks->walks.at)[--masks->walks.n];
        if (masks->n_visits > VISITS_MAX) masks->failed = true;
        if (walk.node == 0) {
            walk_all(masks, place, vocab, walk, mask);
            continue;
        }
        masks->rests.n = 0;
        walk_below(masks, place->lexer, vocab, &walk, mask);
        add_rests(masks, place, &walk, masks->rests.at, masks->rests.n);
    }
    wefti_place_cut(place, n_columns);
    bool failed = masks->failed || place->failed || wefti_lexer_failed(place->lexer);
    return failed ? WEFT_E_TOOBIG : WEFT_OK;
}
