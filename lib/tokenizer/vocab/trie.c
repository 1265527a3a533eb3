/* All pieces of a vocabulary by prefix.
 *
 * Nodes are in breadth-first order, so the children of one are adjacent, sorted by byte: a step is
 * a search among a few neighbouring bytes, and building needs only the sorted pieces. The root,
 * which every look-up passes, has a table. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "vocab/trie.h"

/* Bound of all pieces together; the largest vocabulary in use (250k pieces) has 3 MB. */
#define PIECE_BYTES_MAX (64u << 20)

struct entry {
    const char *text;
    uint32_t len, id;
};

/* The entries [low, high) that begin with a node's path. */
struct range {
    uint32_t low, high;
};

struct builder {
    struct wefti_tok_trie *trie;
    struct entry *entries;
    struct range *ranges; /* by node */
    uint32_t cap;
};

void wefti_tok_trie_fini(struct wefti_tok_trie *trie) {
    free(trie->nodes);
    free(trie->labels);
    *trie = (struct wefti_tok_trie){0};
}

static int compare_entries(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    if (order != 0) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static weft_err grow(struct builder *build) {
    struct wefti_tok_trie *trie = build->trie;
    if (trie->n < build->cap) return WEFT_OK;
    uint32_t cap = build->cap ? 2 * build->cap : 1024; /* at most twice PIECE_BYTES_MAX + 1 */
    struct wefti_tok_trie_node *nodes = realloc(trie->nodes, cap * sizeof *nodes);
    if (nodes) trie->nodes = nodes;
    uint8_t *labels = realloc(trie->labels, cap);
    if (labels) trie->labels = labels;
    struct range *ranges = realloc(build->ranges, cap * sizeof *ranges);
    if (ranges) build->ranges = ranges;
    if (!nodes || !labels || !ranges) return WEFT_E_NOMEM;
    build->cap = cap;
    return WEFT_OK;
}

static weft_err add_node(struct builder *build, uint8_t label, uint32_t low, uint32_t high) {
    weft_err err = grow(build);
    if (err) return err;
    struct wefti_tok_trie *trie = build->trie;
    trie->nodes[trie->n] = (struct wefti_tok_trie_node){.id = WEFTI_TOK_NO_ID};
    trie->labels[trie->n] = label;
    build->ranges[trie->n++] = (struct range){low, high};
    return WEFT_OK;
}

/* Gives `node`, which is `depth` bytes below the root, its id and its children. */
static weft_err expand(struct builder *build, uint32_t node, uint32_t depth) {
    struct wefti_tok_trie *trie = build->trie;
    const struct entry *entries = build->entries;
    uint32_t low = build->ranges[node].low, high = build->ranges[node].high;
    for (; low < high && entries[low].len == depth; low++)
        trie->nodes[node].id = entries[low].id; /* of equal pieces the highest id */
    trie->nodes[node].first = trie->n;
    weft_err err = WEFT_OK;
    while (low < high && !err) {
        uint8_t label = (uint8_t)entries[low].text[depth];
        uint32_t end = low + 1;
        while (end < high && (uint8_t)entries[end].text[depth] == label)
            end++;
        err = add_node(build, label, low, end);
        low = end;
    }
    trie->nodes[node].n = trie->n - trie->nodes[node].first;
    return err;
}

static weft_err build_nodes(struct builder *build, uint32_t n_entries) {
    struct wefti_tok_trie *trie = build->trie;
    weft_err err = add_node(build, 0, 0, n_entries);
    uint32_t depth = 0;
    for (uint32_t node = 0, level_end = 1; !err && node < trie->n; node++) {
        if (node == level_end) {
            level_end = trie->n;
            depth++;
        }
        err = expand(build, node, depth);
    }
    if (err) return err;
    memset(trie->root, 0, sizeof trie->root);
    for (uint32_t i = 0; i < trie->nodes[0].n; i++)
        trie->root[trie->labels[trie->nodes[0].first + i]] = trie->nodes[0].first + i;
    trie->depth = depth;
    return WEFT_OK;
}

weft_err wefti_tok_trie_build(struct wefti_tok_trie *trie, const struct wefti_tok_vocab *vocab,
                              struct weft_errmsg *why) {
    WEFT_ASSERT(!trie->nodes);
    struct builder build = {.trie = trie};
    uint32_t n = 0;
    size_t n_bytes = 0;
    weft_err err = WEFT_E_NOMEM;
    build.entries = calloc(vocab->n_tokens + 1u, sizeof *build.entries);
    if (!build.entries) goto cleanup;
    for (uint32_t id = 0; id < vocab->n_tokens; id++) {
        const struct wefti_tok_entry *token = &vocab->tokens[id];
        bool usable = (token->flags & WEFTI_TOK_PIECE) && !(token->flags & WEFTI_TOK_SPECIAL);
        if (!usable || token->piece_len == 0) continue;
        build.entries[n++] =
            (struct entry){vocab->arena.data + token->piece_at, token->piece_len, id};
        n_bytes += token->piece_len;
    }
    if (n_bytes > PIECE_BYTES_MAX) {
        err =
            weft_err_set(why, WEFT_E_TOOBIG, "the pieces have %zu bytes together; the limit is %u",
                         n_bytes, PIECE_BYTES_MAX);
        goto cleanup;
    }
    if (n > 1) qsort(build.entries, n, sizeof *build.entries, compare_entries);
    err = build_nodes(&build, n);
cleanup:
    free(build.entries);
    free(build.ranges);
    return err;
}

uint32_t wefti_tok_trie_step(const struct wefti_tok_trie *trie, uint32_t node, uint8_t byte) {
    WEFT_ASSERT(node < trie->n);
    if (node == 0) return trie->root[byte];
    const struct wefti_tok_trie_node *at = &trie->nodes[node];
    uint32_t low = at->first, high = at->first + at->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (trie->labels[middle] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low < at->first + at->n && trie->labels[low] == byte ? low : 0;
}
