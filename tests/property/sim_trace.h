/* Recorded requests for simulations, from WEFT_SHARED_DIR/traces: when each comes, how long it is, and which
 * of its tokens are another's as well, scaled to sequences of a few dozen tokens. */
#ifndef WEFT_TESTS_PROPERTY_SIM_TRACE_H
#define WEFT_TESTS_PROPERTY_SIM_TRACE_H

#include <stdbool.h>
#include <stdint.h>

/* Reads them. How many there are; says so where one is missing. */
uint32_t sim_trace_open(void);
void sim_trace_close(void);

/* A place in one of them. */
struct sim_trace {
    uint32_t trace, row;
    uint64_t begin_ns;
    double turns_per_ns;
};

/* From a random row of a random trace on; a request comes every turns_between turns, on average. There
 * must be one. */
void sim_trace_begin(struct sim_trace *at, uint64_t *rand, uint32_t turns_between);

/* Whether the next request is due, counted from the beginning. The last one is followed by the first. */
bool sim_trace_is_due(const struct sim_trace *at, uint64_t n_turns);

/* Its lengths (1 to longest, 1 to n_output_max) and its prompt's tokens, below n_vocab; goes on to the one after. */
void sim_trace_take(struct sim_trace *at, uint64_t n_turns, uint32_t n_vocab,
                    uint32_t *n_prompt_inout, uint32_t *n_output_inout, uint32_t *prompt_out);

#endif
