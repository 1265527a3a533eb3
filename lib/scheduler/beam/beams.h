/* scheduler/beam/beams — what a request that searches has beside its sequences. */
#ifndef WEFT_SCHEDULER_BEAM_BEAMS_H
#define WEFT_SCHEDULER_BEAM_BEAMS_H

#include "beam/search.h"
#include "scheduler_internal.h"

struct beams {
    wefti_beam_search *search;
    struct weft_sampling sampling; /* as it was asked for: the worker is asked for something else */
    uint32_t n_told;               /* choices that the router hears of */
    uint32_t n_wanted;             /* continuations of a beam */
    uint32_t choice[WEFT_BEAMS_MAX];  /* of the live beams */
    uint32_t n_next[WEFT_BEAMS_MAX];  /* by choice: what continues it, */
    uint32_t *tokens;                 /* [n_choices][n_wanted] */
    float *logprobs;                  /* the same */
    uint32_t n_known[WEFT_BEAMS_MAX]; /* tokens that the router has of what it is told, */
    bool is_known[WEFT_BEAMS_MAX];    /* and whether it knows the end */
};

#endif
