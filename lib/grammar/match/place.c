#include "match/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define ENTRIES_MAX (8u << 20) /* of a stack: 64 MiB of items */
#define WORK_MAX 20000000u     /* some 0.1 s */
/* Of all of a text: another worker that takes over has to take it again, and others wait meanwhile. */
#define WORK_TOTAL_MAX 500000000ull

static bool push(struct wefti_place *place, struct wefti_stack *stack, const void *entry,
                 size_t size) {
    if (stack->n == stack->cap) {
        uint32_t cap = stack->cap ? 2 * stack->cap : 64;
        void *at = cap > ENTRIES_MAX ? NULL : realloc(stack->at, cap * size);
        if (!at) {
            place->failed = true;
            return false;
        }
        stack->at = at;
        stack->cap = cap;
    }
    memcpy((char *)stack->at + stack->n++ * size, entry, size);
    return true;
}

static struct wefti_item *items(const struct wefti_place *place) {
    return place->items.at;
}

static struct wefti_frame *top_frame(const struct wefti_place *place) {
    return (struct wefti_frame *)place->frames.at + place->frames.n - 1;
}

/* ------------------------------------------------------------------------------- a new column --- */

static uint64_t hash_item(uint64_t key) {
    key *= 0x9e3779b97f4a7c15u;
    return key ^ (key >> 31);
}

static bool put_seen(struct wefti_place *place, uint64_t key) {
    uint64_t at = hash_item(key);
    for (;; at++) {
        uint32_t slot = (uint32_t)(at & (place->cap_seen - 1));
        if (place->seen_in[slot] != place->generation) {
            place->seen[slot] = key;
            place->seen_in[slot] = place->generation;
            return true;
        }
        if (place->seen[slot] == key) return false;
    }
}

static void grow_seen(struct wefti_place *place, uint32_t first_item) {
    uint32_t cap = place->cap_seen ? 2 * place->cap_seen : 128;
    uint64_t *seen = malloc(cap * sizeof *seen);
    uint32_t *seen_in = calloc(cap, sizeof *seen_in);
    if (!seen || !seen_in) {
        free(seen);
        free(seen_in);
        place->failed = true;
        return;
    }
    free(place->seen);
    free(place->seen_in);
    place->seen = seen;
    place->seen_in = seen_in;
    place->cap_seen = cap;
    place->generation = 1;
    for (uint32_t i = first_item; i < place->items.n; i++)
        (void)put_seen(place, (uint64_t)items(place)[i].state << 32 | items(place)[i].origin);
}

void wefti_place_allow(struct wefti_place *place) {
    uint64_t n_left = WORK_TOTAL_MAX - place->n_worked;
    place->work_left = n_left < WORK_MAX ? (uint32_t)n_left : WORK_MAX;
}

size_t wefti_place_bytes(const struct wefti_place *place) {
    return place->items.cap * sizeof(struct wefti_item) +
           place->columns.cap * sizeof(struct wefti_column) +
           place->threads.cap * sizeof(struct wefti_thread) +
           place->frames.cap * sizeof(struct wefti_frame) +
           place->cap_seen * (sizeof *place->seen + sizeof *place->seen_in);
}

static void spend(struct wefti_place *place, uint32_t n_items) {
    if (n_items > place->work_left) {
        place->failed = true;
        return;
    }
    place->work_left -= n_items;
    place->n_worked += n_items;
}

static void add_item(struct wefti_place *place, uint32_t first_item, uint32_t state,
                     uint32_t origin) {
    if (state == WEFTI_NET_NONE) return;
    spend(place, 1);
    if (place->failed) return;
    if (2 * place->n_seen >= place->cap_seen) grow_seen(place, first_item);
    if (place->failed || !put_seen(place, (uint64_t)state << 32 | origin)) return;
    place->n_seen++;
    (void)push(place, &place->items, &(struct wefti_item){state, origin},
               sizeof(struct wefti_item));
}

/* A rule that began at `origin` has ended: who waited for it there goes on. */
static void complete(struct wefti_place *place, uint32_t first_item, uint32_t rule,
                     uint32_t origin) {
    struct wefti_column began = *wefti_place_column_at(place, origin);
    spend(place, began.end_item - began.first_item);
    for (uint32_t i = began.first_item; i < began.end_item && !place->failed; i++) {
        struct wefti_item item = items(place)[i];
        const struct wefti_net_state *s = &place->net->states[item.state];
        if (s->kind == WEFTI_NET_RULE && s->what == rule)
            add_item(place, first_item, s->next, item.origin);
    }
}

/* What follows from one item of the column `here`, which is not on the stack yet. A rule that takes the
 * empty text is passed over at once, so one that ends where it began has nothing to do. */
static bool expand(struct wefti_place *place, uint32_t first_item, struct wefti_item item,
                   uint32_t here) {
    const struct wefti_net_state *s = &place->net->states[item.state];
    switch (s->kind) {
    case WEFTI_NET_SPLIT:
        add_item(place, first_item, s->what, item.origin);
        add_item(place, first_item, s->next, item.origin);
        return false;
    case WEFTI_NET_EXPR:
        (void)push(place, &place->waiting, &s->what, sizeof s->what);
        return false;
    case WEFTI_NET_RULE:
        add_item(place, first_item, place->net->rules[s->what].start, here);
        if (place->net->rules[s->what].takes_empty)
            add_item(place, first_item, s->next, item.origin);
        return false;
    case WEFTI_NET_END:
        if (item.origin != here) complete(place, first_item, s->what, item.origin);
        return s->what == 0 && item.origin == 0;
    }
    return false;
}

static void begin_column(struct wefti_place *place) {
    place->n_seen = 0;
    place->waiting.n = 0;
    if (++place->generation > 0) return;
    memset(place->seen_in, 0, place->cap_seen * sizeof *place->seen_in);
    place->generation = 1;
}

/* All that follows from the items since `first_item`, as a column. */
static uint32_t finish_column(struct wefti_place *place, uint32_t first_item) {
    uint32_t here = place->columns.n;
    bool may_end = false;
    for (uint32_t i = first_item; i < place->items.n && !place->failed; i++)
        may_end = expand(place, first_item, items(place)[i], here) || may_end;
    struct wefti_column column = {first_item, place->items.n, WEFTI_LEX_DEAD, may_end};
    if (!place->failed && place->waiting.n > 0)
        column.start = wefti_lexer_start(place->lexer, place->waiting.at, place->waiting.n);
    (void)push(place, &place->columns, &column, sizeof column);
    return here;
}

/* Expressions that began at `column` have ended. */
static void add_ended(struct wefti_place *place, uint32_t first_item, uint32_t column,
                      uint32_t ending) {
    size_t n;
    const wefti_expr *list = wefti_lexer_endings(place->lexer, ending, &n);
    struct wefti_column from = *wefti_place_column_at(place, column);
    spend(place, from.end_item - from.first_item);
    for (uint32_t i = from.first_item; i < from.end_item && n > 0 && !place->failed; i++) {
        struct wefti_item item = items(place)[i];
        const struct wefti_net_state *s = &place->net->states[item.state];
        if (s->kind != WEFTI_NET_EXPR) continue;
        size_t low = 0, high = n;
        while (low + 1 < high) {
            size_t mid = (low + high) / 2;
            *(list[mid] <= s->what ? &low : &high) = mid;
        }
        if (list[low] == s->what) add_item(place, first_item, s->next, item.origin);
    }
}

uint32_t wefti_place_column(struct wefti_place *place, uint32_t column, uint32_t ending) {
    uint32_t first_item = place->items.n;
    begin_column(place);
    add_ended(place, first_item, column, ending);
    return finish_column(place, first_item);
}

/* ---------------------------------------------------------------------------------- the text --- */

weft_err wefti_place_init(struct wefti_place *place, const struct wefti_net *net,
                          wefti_lexer *lexer) {
    *place = (struct wefti_place){.net = net, .lexer = lexer};
    wefti_place_allow(place);
    begin_column(place);
    add_item(place, 0, net->rules[0].start, 0);
    uint32_t column = finish_column(place, 0);
    struct wefti_thread thread = {column, WEFTI_LEX_DEAD};
    if (!place->failed) thread.lex = wefti_place_column_at(place, 0)->start;
    if (thread.lex != WEFTI_LEX_DEAD) (void)push(place, &place->threads, &thread, sizeof thread);
    struct wefti_frame frame = {place->threads.n, 1, true};
    (void)push(place, &place->frames, &frame, sizeof frame);
    if (!place->failed) return WEFT_OK;
    wefti_place_fini(place);
    return WEFT_E_NOMEM;
}

void wefti_place_fini(struct wefti_place *place) {
    free(place->items.at);
    free(place->columns.at);
    free(place->threads.at);
    free(place->frames.at);
    free(place->waiting.at);
    free(place->seen);
    free(place->seen_in);
    *place = (struct wefti_place){0};
}

uint32_t wefti_place_n_bytes(const struct wefti_place *place) {
    return place->frames.n - 1;
}

const struct wefti_thread *wefti_place_threads(const struct wefti_place *place, uint32_t *n_out) {
    uint32_t first = place->frames.n > 1 ? top_frame(place)[-1].end_thread : 0;
    *n_out = top_frame(place)->end_thread - first;
    return *n_out ? (const struct wefti_thread *)place->threads.at + first : NULL;
}

bool wefti_place_take(struct wefti_place *place, unsigned char byte) {
    uint32_t first = place->frames.n > 1 ? top_frame(place)[-1].end_thread : 0;
    uint32_t end = top_frame(place)->end_thread, first_item = place->items.n;
    uint32_t n_columns = place->columns.n;
    begin_column(place);
    for (uint32_t i = first; i < end && !place->failed; i++) {
        struct wefti_thread thread = ((const struct wefti_thread *)place->threads.at)[i];
        thread.lex = wefti_lexer_step(place->lexer, thread.lex, byte);
        if (thread.lex == WEFTI_LEX_DEAD) continue;
        (void)push(place, &place->threads, &thread, sizeof thread);
        uint32_t ending = wefti_lexer_ending(place->lexer, thread.lex);
        if (ending) add_ended(place, first_item, thread.column, ending);
    }
    bool has_column = place->items.n > first_item;
    if (has_column && !place->failed) {
        struct wefti_thread thread = {finish_column(place, first_item), WEFTI_LEX_DEAD};
        thread.lex = wefti_place_column_at(place, thread.column)->start;
        if (thread.lex != WEFTI_LEX_DEAD)
            (void)push(place, &place->threads, &thread, sizeof thread);
    }
    bool is_alive = place->threads.n > end ||
                    (has_column && wefti_place_column_at(place, place->columns.n - 1)->may_end);
    struct wefti_frame frame = {place->threads.n, place->columns.n, has_column};
    if (is_alive && !place->failed && !wefti_lexer_failed(place->lexer) &&
        push(place, &place->frames, &frame, sizeof frame))
        return true;
    place->threads.n = end;
    place->columns.n = n_columns;
    place->items.n = first_item;
    return false;
}

bool wefti_place_may_end(const struct wefti_place *place) {
    return top_frame(place)->has_column &&
           wefti_place_column_at(place, top_frame(place)->n_columns - 1)->may_end;
}

const struct wefti_column *wefti_place_column_at(const struct wefti_place *place, uint32_t column) {
    WEFT_ASSERT(column < place->columns.n);
    return (const struct wefti_column *)place->columns.at + column;
}

uint32_t wefti_place_n_columns(const struct wefti_place *place) {
    return place->columns.n;
}

void wefti_place_cut(struct wefti_place *place, uint32_t n_columns) {
    WEFT_ASSERT(n_columns > 0 && n_columns <= place->columns.n);
    place->columns.n = n_columns;
    place->items.n = wefti_place_column_at(place, n_columns - 1)->end_item;
}

void wefti_place_rewind(struct wefti_place *place, uint32_t n_bytes) {
    WEFT_ASSERT(n_bytes < place->frames.n);
    place->frames.n = n_bytes + 1;
    place->threads.n = top_frame(place)->end_thread;
    wefti_place_cut(place, top_frame(place)->n_columns);
}
