/* traffic/workload — what a load test sends, and when: a function of its options and seed.
 *
 * Model    A workload is a list of jobs, each a conversation of one or more turns; each turn is a
 *          request. A job begins at its moment (an open loop) or when a client is free (a closed
 *          one), its next turn when the one before has been answered.
 * Prompts  Token ids below n_vocab, as "1,2,3", or for chats messages of words from a short list.
 *          The tokens of a trace's hash id are a function of that id alone, so prompts share
 *          exactly the prefixes that they shared when they were recorded.
 * Scaling  Position p of a prompt divided by `scale` is position p * scale of the recorded one: so
 *          blocks of 512 tokens shrink with it, to within a token where `scale` does not divide.
 * Memory   The moments; prompts are made when they are asked for. */
#ifndef WEFT_TRAFFIC_WORKLOAD_H
#define WEFT_TRAFFIC_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "traffic/trace.h"

#define WEFT_TRAFFIC_DEADLINES_MAX 16

enum weft_traffic_loop {
    WEFT_TRAFFIC_CLOSED,   /* a job begins when a client is free */
    WEFT_TRAFFIC_DRAWN,    /* at moments drawn by rate and burstiness (arrivals.h) */
    WEFT_TRAFFIC_RECORDED, /* at those of the trace, faster or slower where there is a rate */
};

struct weft_traffic_options {
    enum weft_traffic_loop loop;
    double rate, burstiness; /* jobs per second; see arrivals.h */
    uint32_t n_requests;     /* at least 1; with a trace 0: all of it */
    uint32_t n_turns;        /* of a job; 1 with a trace */
    uint32_t prompt_tokens;  /* of the first turn; later ones add turn_tokens to what was said */
    uint32_t turn_tokens, max_tokens;
    uint32_t n_vocab;
    uint64_t seed;
    bool is_chat;
    const struct weft_traffic_trace *trace; /* borrowed; NULL: none */
    uint32_t scale, output_scale;           /* of the trace; at least 1 */
    uint32_t output_min;
    uint32_t deadlines_ms[WEFT_TRAFFIC_DEADLINES_MAX]; /* one is drawn for each request */
    uint32_t n_deadlines;
};

struct weft_traffic_workload {
    struct weft_traffic_options options;
    uint32_t n_requests, n_jobs;
    uint64_t *at_ns; /* of each job, owned; NULL: a closed loop */
};

/* What a request asks for. */
struct weft_traffic_request {
    uint32_t n_prompt;    /* tokens it adds to the job's history */
    uint32_t n_output;    /* tokens of its answer */
    uint32_t deadline_ms; /* of its first token; 0: none */
};

/* INVAL: options that contradict each other. NOMEM. */
WEFT_MUST_CHECK weft_err weft_traffic_workload_init(struct weft_traffic_workload *workload,
                                                    const struct weft_traffic_options *options,
                                                    struct weft_errmsg *why);
void weft_traffic_workload_fini(struct weft_traffic_workload *workload);

/* Turns of a job: the last one may have fewer. */
uint32_t weft_traffic_turns(const struct weft_traffic_workload *workload, uint32_t job);

struct weft_traffic_request weft_traffic_request(const struct weft_traffic_workload *workload,
                                                 uint32_t job, uint32_t turn);

/* Appends what a turn adds to the conversation: to the members of a JSON list of token ids, or of
 * messages. A failure is the buffer's. */
void weft_traffic_add_prompt(const struct weft_traffic_workload *workload, uint32_t job,
                             uint32_t turn, struct weft_buf *list);

#endif
