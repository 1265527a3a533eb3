#include "restart/restart.h"

#include <string.h>

#include "base/check.h"

void weft_restart_init(struct weft_restart *restart, uint32_t n_children, uint32_t first_replica,
                       uint32_t n_in_group) {
    WEFT_ASSERT(n_children > 0 && n_children <= WEFT_RESTART_CHILDREN_MAX);
    WEFT_ASSERT(first_replica <= n_children && n_in_group > 0);
    WEFT_ASSERT((n_children - first_replica) % n_in_group == 0);
    memset(restart, 0, sizeof *restart);
    restart->n_children = n_children;
    restart->first_replica = first_replica;
    restart->n_in_group = n_in_group;
}

static struct weft_restart_child *child_of(struct weft_restart *restart, uint32_t child_idx) {
    WEFT_ASSERT(child_idx < restart->n_children);
    return &restart->children[child_idx];
}

void weft_restart_started(struct weft_restart *restart, uint32_t child_idx) {
    struct weft_restart_child *child = child_of(restart, child_idx);
    WEFT_ASSERT(!child->runs);
    child->runs = true;
    child->is_ready = child->has_worked = false;
    child->start_at_ms = 0;
}

void weft_restart_ready(struct weft_restart *restart, uint32_t child_idx, uint64_t now_ms) {
    struct weft_restart_child *child = child_of(restart, child_idx);
    WEFT_ASSERT(child->runs);
    if (child->is_ready) return;
    child->is_ready = child->was_ready = true;
    child->ready_at_ms = now_ms;
    child->n_failed = child->n_killed = 0;
}

void weft_restart_worked(struct weft_restart *restart, uint32_t child_idx) {
    struct weft_restart_child *child = child_of(restart, child_idx);
    child->has_worked = true;
    child->n_short = 0;
}

void weft_restart_explained(struct weft_restart *restart) {
    for (uint32_t i = restart->first_replica; i < restart->n_children; i++)
        restart->children[i].n_short = 0;
}

bool weft_restart_has_begun(const struct weft_restart *restart) {
    for (uint32_t i = 0; i < restart->n_children; i++) {
        if (!restart->children[i].was_ready) return false;
    }
    return true;
}

static bool is_hopeless(const struct weft_restart_child *child) {
    return child->n_failed >= WEFT_RESTART_FAILED_MAX || child->n_short >= WEFT_RESTART_SHORT_MAX;
}

static uint32_t group_of(const struct weft_restart *restart, uint32_t child_idx) {
    return (child_idx - restart->first_replica) / restart->n_in_group;
}

/* Whether all of a group serve or may yet serve. */
static bool has_hope(const struct weft_restart *restart, uint32_t group) {
    const struct weft_restart_child *child =
        &restart->children[restart->first_replica + group * restart->n_in_group];
    for (uint32_t i = 0; i < restart->n_in_group; i++) {
        if (!child[i].is_ready && is_hopeless(&child[i])) return false;
    }
    return true;
}

/* Whether another replica serves or may yet serve: one that died just now does not make a hopeless
 * one the last. */
static bool is_spared(const struct weft_restart *restart, uint32_t child_idx) {
    if (child_idx < restart->first_replica || !weft_restart_has_begun(restart)) return false;
    uint32_t n = group_of(restart, restart->n_children);
    for (uint32_t i = 0; i < n; i++) {
        if (i != group_of(restart, child_idx) && has_hope(restart, i)) return true;
    }
    return false;
}

/* `n` is the number of earlier waits. */
static uint64_t back_off_ms(uint64_t min_ms, uint64_t max_ms, uint32_t n) {
    uint64_t wait_ms = min_ms << (n < 16 ? n : 16);
    return wait_ms < max_ms ? wait_ms : max_ms;
}

static uint64_t wait_of(const struct weft_restart_child *child, bool has_failed) {
    if (has_failed)
        return back_off_ms(WEFT_RESTART_FAILED_MS_MIN, WEFT_RESTART_MS_MAX, child->n_failed - 1);
    if (child->n_short <= WEFT_RESTART_SHORT_FREE) return 0;
    if (is_hopeless(child)) return WEFT_RESTART_MS_MAX;
    return back_off_ms(WEFT_RESTART_SHORT_WAIT_MS_MIN, WEFT_RESTART_SHORT_WAIT_MS_MAX,
                       child->n_short - WEFT_RESTART_SHORT_FREE - 1);
}

struct weft_restart_decision weft_restart_ended(struct weft_restart *restart, uint32_t child_idx,
                                                enum weft_restart_end end, uint64_t now_ms) {
    struct weft_restart_child *child = child_of(restart, child_idx);
    bool has_begun = weft_restart_has_begun(restart), has_failed = !child->is_ready;
    struct weft_restart_decision decision = {.action = WEFT_RESTART_GIVE_UP};
    WEFT_ASSERT(child->runs == (end != WEFT_RESTART_NOT_STARTED));
    child->n_killed = has_failed && end == WEFT_RESTART_KILLED ? child->n_killed + 1 : 0;
    if (has_failed)
        child->n_failed++;
    else if (child->has_worked || now_ms >= child->ready_at_ms + WEFT_RESTART_SHORT_MS)
        child->n_short = 0;
    else
        child->n_short++;
    child->runs = child->is_ready = false;

    bool has_died = end == WEFT_RESTART_DIED || end == WEFT_RESTART_KILLED;
    if (end == WEFT_RESTART_WRONG || (!has_died && !has_begun)) return decision;
    if (!has_begun && child->n_killed >= WEFT_RESTART_KILLED_MAX) {
        decision.reason = WEFT_RESTART_KILLED_OFF;
        decision.n_in_row = child->n_killed;
        return decision;
    }
    if (is_hopeless(child) && !is_spared(restart, child_idx)) {
        bool never_ready = child->n_failed >= WEFT_RESTART_FAILED_MAX;
        decision.reason = never_ready ? WEFT_RESTART_NEVER_READY : WEFT_RESTART_SHORT_LIVED;
        decision.n_in_row = never_ready ? child->n_failed : child->n_short;
        return decision;
    }
    decision.action = WEFT_RESTART_START;
    decision.start_at_ms = child->start_at_ms = now_ms + wait_of(child, has_failed);
    return decision;
}

void weft_restart_let_go(struct weft_restart *restart, uint32_t child_idx) {
    struct weft_restart_child *child = child_of(restart, child_idx);
    WEFT_ASSERT(child->runs);
    child->runs = child->is_ready = false;
    child->start_at_ms = 0;
}
