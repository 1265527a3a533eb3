/* traffic/goal — what a request has to keep to count as goodput. */
#ifndef WEFT_TRAFFIC_GOAL_H
#define WEFT_TRAFFIC_GOAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Milliseconds; 0: no such bound. */
struct weft_traffic_goal {
    double ttft_ms; /* to the first token */
    double itl_ms;  /* of 99 % of the times between its tokens */
    double tpot_ms; /* of the mean of them */
    double e2el_ms; /* to its end */
};

/* How a request went that did not fail. */
struct weft_traffic_outcome {
    double ttft_ms, e2el_ms;
    uint64_t n_tokens;
    uint64_t n_gaps, n_gaps_over; /* between its tokens; and of those over goal.itl_ms */
    uint32_t deadline_ms;         /* a bound of its own for the first token; 0: the goal's */
};

/* "ttft:2000,itl:200", with commas or spaces between, as vLLM's benchmark names them. INVAL. */
WEFT_MUST_CHECK weft_err weft_traffic_goal_parse(const char *text, struct weft_traffic_goal *out,
                                                 struct weft_errmsg *why);

bool weft_traffic_is_good(const struct weft_traffic_goal *goal,
                          const struct weft_traffic_outcome *outcome);

#endif
