/* A step goes through the groups one by one. All continuations of a group's beams compete for its
 * places; a stop token among the 2 * width likeliest of its beam makes it finish instead. */
#include "beam/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"

#define FIRST_NODES 256u

static uint32_t n_groups_of(const struct weft_sampling *sampling) {
    return weft_max_u32(sampling->beam_groups, 1);
}

static uint32_t n_stopping(const struct weft_sampling *sampling) {
    return 2 * (sampling->beam_width / n_groups_of(sampling));
}

/* Of a beam's likeliest, as many as its group has places go on at most, beside the stop tokens and
 * those that earlier groups made less likely. */
uint32_t wefti_beam_n_wanted(const struct weft_sampling *sampling, uint32_t n_vocab) {
    uint32_t size = sampling->beam_width / n_groups_of(sampling);
    uint32_t n_masked = sampling->n_stop_tokens + sampling->n_masked_tokens;
    uint32_t n = size + n_masked + sampling->beam_width - size;
    return weft_min_u32(weft_max_u32(n, n_stopping(sampling)), n_vocab);
}

/* ------------------------------------------------------------------------------------ life --- */

wefti_beam_search *wefti_beam_new(const struct wefti_beam_options *options) {
    wefti_beam_search *search = calloc(1, sizeof *search);
    if (!search) return NULL;
    WEFT_ASSERT(options->max_tokens > 0 && options->n_prompt > 0);
    search->options = *options;
    search->n_groups = n_groups_of(options->sampling);
    search->group_size = options->sampling->beam_width / search->n_groups;
    for (uint32_t g = 0; g < search->n_groups; g++) {
        search->groups[g].live[0] = (struct wefti_beam){.node = WEFTI_BEAM_ROOT};
        search->groups[g].n_live = 1;
    }
    return search;
}

void wefti_beam_free(wefti_beam_search *search) {
    if (!search) return;
    free(search->nodes);
    free(search);
}

weft_err wefti_beam_reserve(wefti_beam_search *search) {
    /* Each place is taken once, and a beam of each finishes at most once for each of its likeliest: more
     * often than there are stop tokens, where a worker errs and lists one twice. */
    uint32_t n_more =
        search->group_size * search->n_groups * (1 + n_stopping(search->options.sampling));
    if (search->n_nodes + n_more <= search->nodes_cap) return WEFT_OK;
    uint32_t cap = weft_max_u32(2 * search->nodes_cap, FIRST_NODES);
    cap = weft_max_u32(cap, search->n_nodes + n_more);
    struct wefti_beam_node *nodes = realloc(search->nodes, cap * sizeof *nodes);
    if (!nodes) return WEFT_E_NOMEM;
    search->nodes = nodes;
    search->nodes_cap = cap;
    return WEFT_OK;
}

/* ---------------------------------------------------------------------------------- beams ---- */

/* All groups begin with the same beam. */
uint32_t wefti_beam_n_live(const wefti_beam_search *search) {
    uint32_t n = 0;
    for (uint32_t g = 0; g < search->n_groups; g++)
        n += search->groups[g].n_live;
    return search->n_tokens == 0 ? 1 : n;
}

const struct wefti_beam *wefti_beam_live(const wefti_beam_search *search, uint32_t idx) {
    for (uint32_t g = 0; g < search->n_groups; g++) {
        if (idx < search->groups[g].n_live) return &search->groups[g].live[idx];
        idx -= search->groups[g].n_live;
    }
    WEFT_ASSERT(false); /* fewer are live */
    return NULL;
}

void wefti_beam_tokens(const wefti_beam_search *search, const struct wefti_beam *beam,
                       uint32_t *tokens_out) {
    uint32_t node = beam->node;
    for (uint32_t i = beam->n_tokens; i-- > 0; node = search->nodes[node].parent)
        tokens_out[i] = search->nodes[node].token;
    WEFT_ASSERT(node == WEFTI_BEAM_ROOT);
}

static double score_of(const wefti_beam_search *search, double sum, uint32_t n_tokens) {
    double length = (double)search->options.n_prompt + n_tokens;
    return sum / pow(length, (double)search->options.sampling->length_penalty);
}

/* Into a list of the best `max`, after all that are as good. */
static void insert(struct wefti_beam *list, uint32_t *n, uint32_t max,
                   const struct wefti_beam *beam) {
    uint32_t at = *n;
    while (at > 0 && beam->score > list[at - 1].score)
        at--;
    if (at == max) return;
    if (*n < max) (*n)++;
    memmove(&list[at + 1], &list[at], (*n - 1 - at) * sizeof *list);
    list[at] = *beam;
}

static uint32_t add_node(wefti_beam_search *search, uint32_t parent, uint32_t token) {
    WEFT_ASSERT(search->n_nodes < search->nodes_cap);
    search->nodes[search->n_nodes] = (struct wefti_beam_node){parent, token};
    return search->n_nodes++;
}

/* ------------------------------------------------------------------------------------ step --- */

static bool is_stop(const struct weft_sampling *sampling, uint32_t token) {
    for (uint32_t i = 0; i < sampling->n_stop_tokens; i++) {
        if (sampling->stop_tokens[i] == token) return true;
    }
    return false;
}

static bool is_masked(const struct weft_sampling *sampling, uint32_t token) {
    for (uint32_t i = 0; i < sampling->n_masked_tokens; i++) {
        if (sampling->masked_tokens[i] == token) return true;
    }
    return is_stop(sampling, token);
}

/* A continuation that competes; `node` is its token as yet. */
struct places {
    struct wefti_beam beams[WEFT_BEAMS_MAX];
    uint32_t n;
};

/* How often earlier groups chose this token in this step. */
static uint32_t n_chosen(const wefti_beam_search *search, uint32_t group_idx, uint32_t token) {
    uint32_t n = 0;
    for (uint32_t g = 0; g < group_idx; g++) {
        const struct wefti_beam_group *group = &search->groups[g];
        for (uint32_t i = 0; i < group->n_live; i++)
            n += search->nodes[group->live[i].node].token == token;
    }
    return n;
}

static void finish(wefti_beam_search *search, struct wefti_beam_group *group,
                   const struct wefti_beam *beam, uint32_t parent_node, uint32_t token) {
    struct wefti_beam done = *beam;
    done.node = add_node(search, parent_node, token);
    done.is_stopped = true;
    done.score = score_of(search, done.sum, done.n_tokens - 1);
    insert(group->done, &group->n_done, search->group_size, &done);
}

/* The continuations of one beam. While a group has places, a sum ranks as its score would: all have
 * the same length. */
static void offer(wefti_beam_search *search, uint32_t group_idx, uint32_t parent,
                  const struct wefti_beam *from, const struct wefti_beam_next *next,
                  struct places *places) {
    const struct weft_sampling *sampling = search->options.sampling;
    struct wefti_beam_group *group = &search->groups[group_idx];
    bool may_stop = from->n_tokens >= sampling->min_tokens;
    for (uint32_t i = 0; i < next->n; i++) {
        uint32_t token = next->tokens[i];
        if (!may_stop && is_masked(sampling, token)) continue;
        double taken = (double)sampling->diversity_penalty * n_chosen(search, group_idx, token);
        struct wefti_beam beam = {
            .node = token,
            .n_tokens = from->n_tokens + 1,
            .sum = from->sum + (double)next->logprobs[i] - taken,
            .parent = parent,
        };
        beam.score = beam.sum;
        if (!is_stop(sampling, token))
            insert(places->beams, &places->n, search->group_size, &beam);
        else if (i < n_stopping(sampling))
            finish(search, group, &beam, from->node, token);
    }
}

/* No live beam can become better than the worst that finished: never, as far as their sums now say, or
 * as soon as there are enough. */
static bool is_settled(const wefti_beam_search *search, const struct wefti_beam_group *group) {
    const struct weft_sampling *sampling = search->options.sampling;
    if (group->n_done < search->group_size) return false;
    if (sampling->early_stopping == WEFT_BEAM_STOP_ENOUGH || group->n_live == 0) return true;
    bool longer_is_better =
        sampling->early_stopping == WEFT_BEAM_STOP_NEVER && sampling->length_penalty > 0.0f;
    uint32_t n_tokens = longer_is_better ? search->options.max_tokens : search->n_tokens;
    double best = score_of(search, group->live[0].sum, n_tokens);
    return group->done[group->n_done - 1].score >= best;
}

static void take_places(wefti_beam_search *search, struct wefti_beam_group *group,
                        const struct places *places, const struct wefti_beam *before) {
    group->n_live = places->n;
    for (uint32_t i = 0; i < places->n; i++) {
        struct wefti_beam *beam = &group->live[i];
        *beam = places->beams[i];
        beam->node = add_node(search, before[beam->parent].node, beam->node);
        beam->score = score_of(search, beam->sum, beam->n_tokens);
    }
}

static void advance_group(wefti_beam_search *search, uint32_t group_idx, uint32_t first,
                          const struct wefti_beam_next *next) {
    struct wefti_beam_group *group = &search->groups[group_idx];
    struct wefti_beam before[WEFT_BEAMS_MAX];
    struct places places = {.n = 0};
    uint32_t n_before = group->n_live;
    memcpy(before, group->live, n_before * sizeof *before);
    for (uint32_t i = 0; i < n_before; i++)
        offer(search, group_idx, i, &before[i], &next[first + i], &places);
    take_places(search, group, &places, before);
    for (uint32_t i = 0; i < group->n_live; i++)
        group->live[i].parent += first;
}

void wefti_beam_advance(wefti_beam_search *search, const struct wefti_beam_next *next) {
    bool is_first = search->n_tokens == 0;
    uint32_t first = 0, n_live = 0;
    WEFT_ASSERT(!search->is_over);
    for (uint32_t g = 0; g < search->n_groups; g++) {
        uint32_t n_before = search->groups[g].n_live;
        advance_group(search, g, first, next);
        first += is_first ? 0 : n_before;
    }
    search->n_tokens++;
    for (uint32_t g = 0; g < search->n_groups; g++) {
        struct wefti_beam_group *group = &search->groups[g];
        if (is_settled(search, group)) group->n_live = 0;
        n_live += group->n_live;
    }
    search->is_over = n_live == 0 || search->n_tokens == search->options.max_tokens;
}

/* ------------------------------------------------------------------------------------ best --- */

static void rank(const struct wefti_beam **list, uint32_t *n, uint32_t max,
                 const struct wefti_beam *beam) {
    uint32_t at = *n;
    while (at > 0 && beam->score > list[at - 1]->score)
        at--;
    if (at == max) return;
    if (*n < max) (*n)++;
    memmove(&list[at + 1], &list[at], (*n - 1 - at) * sizeof(const struct wefti_beam *));
    list[at] = beam;
}

uint32_t wefti_beam_best(const wefti_beam_search *search, uint32_t n,
                         const struct wefti_beam **best_out) {
    uint32_t n_best = 0;
    WEFT_ASSERT(search->is_over && n <= WEFT_BEAMS_MAX);
    for (uint32_t g = 0; g < search->n_groups; g++) {
        const struct wefti_beam_group *group = &search->groups[g];
        for (uint32_t i = 0; i < group->n_done; i++)
            rank(best_out, &n_best, n, &group->done[i]);
        for (uint32_t i = 0; i < group->n_live; i++)
            rank(best_out, &n_best, n, &group->live[i]);
    }
    return n_best;
}
