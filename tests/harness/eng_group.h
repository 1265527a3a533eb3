/* Ranks that divide a model, as threads of one process: their engines, driven together. */
#ifndef WEFT_TESTS_ENG_GROUP_H
#define WEFT_TESTS_ENG_GROUP_H

#include <stdint.h>

#include "collective/collective.h"
#include "engine/engine.h"

struct eng_group {
    uint32_t n_ranks;
    weft_coll *coll; /* NULL: one rank, alone */
    weft_eng *engs[WEFT_COLL_RANKS_MAX];
};

/* The memory of a group of ranks, or the test fails. */
weft_coll *group_coll(uint32_t n_ranks);

/* Opens all ranks of the model at `path`, or the test fails. */
void group_open(struct eng_group *group, const char *path, struct weft_eng_options options,
                uint32_t n_ranks);
void group_close(struct eng_group *group);

/* weft_eng_logits of all, which must succeed. */
void group_logits(const struct eng_group *group, const uint32_t *tokens, uint32_t n_tokens,
                  void (*on_row)(void *ctx, uint32_t pos, const float *logits), void *ctx);

struct group_step {
    weft_eng *eng;
    const struct weft_step_plan *plan;
    const struct weft_step_result *result;
    weft_err err;
    struct weft_errmsg why;
};

/* A step of one rank, as a thread's main function; `step` is a struct group_step. */
void *group_step_main(void *step);
/* The same of all. */
void group_step(const struct eng_group *group, const struct weft_step_plan *plan,
                struct group_step steps[WEFT_COLL_RANKS_MAX]);

#endif
