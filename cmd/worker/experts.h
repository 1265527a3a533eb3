/* experts — the worker's reports of its experts' work: when, and which counts are new.
 *
 * The stepper owns the engine's counts and copies them between two steps when asked to
 * (wefti_stepper_count). Control asks at most once a second, and only if steps have run since or a
 * session is new. Each count is sent once; counts not sent go with the next message.
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
    uint32_t n_layers, n_experts; /* 0: nothing is reported */
    uint32_t *layers;             /* [n_layers], those that have experts */
    uint64_t *counts;             /* [all layers][n_experts]; the stepper's while it copies */
    uint64_t *told, *news;        /* [n_layers][n_experts] */
    bool asked;
    bool is_due; /* nothing was reported in this session */
    uint64_t n_steps_asked, asked_at_ms;
};

/* `mode` is --expert-metrics; `n_layers` is the model's, and `has_experts` says which layers have
 * n_experts. With more series than `mode` allows it logs so and, as without experts, reports
 * nothing. NOMEM. */
WEFT_MUST_CHECK weft_err wefti_experts_init(struct wefti_experts *experts, const char *mode,
                                            uint32_t n_layers, uint32_t n_experts,
                                            const bool has_experts[WEFT_LAYERS_MAX],
                                            struct weft_errmsg *why);
void wefti_experts_fini(struct wefti_experts *experts); /* accepts zeroes */

void wefti_experts_new_session(struct wefti_experts *experts);

/* True if the stepper should copy its counts into `counts` now; they count as asked for then.
 * `n_steps` have run in all. */
bool wefti_experts_ask(struct wefti_experts *experts, uint64_t n_steps, uint64_t now_ms);

void wefti_experts_unask(struct wefti_experts *experts); /* the stepper could not take it */

/* Makes the message once the counts are there. False: nothing is new. */
bool wefti_experts_news(struct wefti_experts *experts, struct weft_msg_experts *msg_out);
void wefti_experts_sent(struct wefti_experts *experts); /* the message just made */

#endif
