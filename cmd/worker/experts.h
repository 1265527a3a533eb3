/* experts — what the worker tells of its experts' work: when, and what is news.
 *
 * The engine's counts are the stepper's, which copies them between two steps when asked to
 * (wefti_stepper_count). Control asks at most once a second, and only when steps have run since,
 * or a session is new. What a message told is not told again; what was not sent is told with the
 * next.
 */
#ifndef WEFT_WORKER_EXPERTS_H
#define WEFT_WORKER_EXPERTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "proto/proto.h"

#define WEFTI_EXPERTS_TELL_MS 1000u

struct wefti_experts {
    uint32_t n_layers, n_experts; /* 0: nothing is told */
    uint32_t *layers;             /* [n_layers], those that have experts */
    uint64_t *counts;             /* [all layers][n_experts]; the stepper's while asked */
    uint64_t *told, *news;        /* [n_layers][n_experts] */
    bool asked;
    bool is_due; /* nothing was told in this session */
    uint64_t n_steps_asked, asked_at_ms;
};

/* `mode` is --expert-metrics; `n_layers` those of the model, of which `has_experts` says which
 * have n_experts of them. Writes a word to the log where there would be more series than `mode`
 * allows; then, as without experts, nothing is told. NOMEM. */
WEFT_MUST_CHECK weft_err wefti_experts_init(struct wefti_experts *experts, const char *mode,
                                            uint32_t n_layers, uint32_t n_experts,
                                            const bool has_experts[WEFT_LAYERS_MAX],
                                            struct weft_errmsg *why);
void wefti_experts_fini(struct wefti_experts *experts); /* accepts zeroes */

void wefti_experts_new_session(struct wefti_experts *experts);

/* Whether the stepper shall copy its counts into `counts` now; then they are asked for. So many
 * as `n_steps` have run in all. */
bool wefti_experts_ask(struct wefti_experts *experts, uint64_t n_steps, uint64_t now_ms);

void wefti_experts_unask(struct wefti_experts *experts); /* the stepper could not take it */

/* The counts are there. False: they are no news. */
bool wefti_experts_news(struct wefti_experts *experts, struct weft_msg_experts *msg_out);
void wefti_experts_sent(struct wefti_experts *experts); /* the message just made */

#endif
