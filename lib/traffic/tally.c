#include "tally.h"

#include <stdlib.h>

#include "base/check.h"

weft_err weft_traffic_tally_init(struct weft_traffic_tally *tally, uint32_t n_turns,
                                 const struct weft_traffic_goal *goal) {
    WEFT_ASSERT(n_turns > 0 && goal);
    *tally = (struct weft_traffic_tally){.goal = goal};
    tally->turns = calloc(n_turns, sizeof *tally->turns);
    if (!tally->turns) return WEFT_E_NOMEM;
    tally->n_turns = n_turns;
    return WEFT_OK;
}

void weft_traffic_tally_fini(struct weft_traffic_tally *tally) {
    struct weft_traffic_times *all[] = {&tally->first, &tally->between, &tally->whole,
                                        &tally->late,  &tally->failed,  &tally->retry_after};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        weft_traffic_times_fini(all[i]);
    for (uint32_t i = 0; i < tally->n_turns; i++)
        weft_traffic_times_fini(&tally->turns[i].first);
    free(tally->turns);
    *tally = (struct weft_traffic_tally){0};
}

static void keep(struct weft_traffic_tally *tally, struct weft_traffic_times *times, double at_s,
                 double ms) {
    if (!weft_traffic_times_add(times, at_s, ms)) tally->no_memory = true;
}

void weft_traffic_tally_first(struct weft_traffic_tally *tally, double at_s, double ms) {
    keep(tally, &tally->first, at_s, ms);
}

void weft_traffic_tally_gap(struct weft_traffic_tally *tally, double at_s, double ms) {
    keep(tally, &tally->between, at_s, ms);
}

void weft_traffic_tally_late(struct weft_traffic_tally *tally, double at_s, double ms) {
    keep(tally, &tally->late, at_s, ms);
}

void weft_traffic_tally_done(struct weft_traffic_tally *tally,
                             const struct weft_traffic_done *done) {
    WEFT_ASSERT(done->turn < tally->n_turns);
    struct weft_traffic_turn *turn = &tally->turns[done->turn];
    keep(tally, &tally->whole, done->begin_s, done->outcome.e2el_ms);
    keep(tally, &turn->first, done->begin_s, done->outcome.ttft_ms);
    turn->n_prompt += done->n_prompt;
    turn->n_cached += done->n_cached;
    tally->n_done++;
    tally->n_tokens += done->outcome.n_tokens;
    tally->n_prompt += done->n_prompt;
    tally->n_cached += done->n_cached;
    tally->has_cached = tally->has_cached || done->has_cached;
    if (!weft_traffic_is_good(tally->goal, &done->outcome)) return;
    tally->n_good++;
    tally->n_good_tokens += done->outcome.n_tokens;
}

static void count_status(struct weft_traffic_tally *tally, uint32_t status) {
    uint32_t i = 0;
    while (i < tally->n_statuses && tally->statuses[i].status != status)
        i++;
    if (i == WEFT_TRAFFIC_STATUSES_MAX) { /* a server that draws them */
        tally->statuses[--i].status = 0;
    } else if (i == tally->n_statuses) {
        tally->statuses[tally->n_statuses++].status = status;
    }
    tally->statuses[i].n++;
}

void weft_traffic_tally_failed(struct weft_traffic_tally *tally,
                               const struct weft_traffic_failed *failed) {
    WEFT_ASSERT(failed->kind < WEFT_TRAFFIC_N_FAILURES);
    if (tally->n_failed++ == 0) (void)weft_err_set(&tally->why, WEFT_E_IO, "%s", failed->why);
    tally->n_failures[failed->kind]++;
    if (failed->kind == WEFT_TRAFFIC_STATUS) count_status(tally, failed->status);
    keep(tally, &tally->failed, failed->begin_s, failed->ms);
    if (failed->retry_after_ms >= 0)
        keep(tally, &tally->retry_after, failed->begin_s, failed->retry_after_ms);
}

const char *weft_traffic_failure_name(enum weft_traffic_failure kind) {
    static const char *const names[] = {NULL, "connect", "reset", "timeout", "stream"};
    _Static_assert(sizeof names / sizeof names[0] == WEFT_TRAFFIC_N_FAILURES, "one for each");
    return names[kind];
}
