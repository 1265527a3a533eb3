#include "property/sim_trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/rand.h"
#include "traffic/trace.h"

static const char *const names[] = {"AzureLLMInferenceTrace_code.csv",
                                    "mooncake_synthetic_trace.jsonl"};
#define N_NAMES (sizeof names / sizeof *names)

static struct recorded {
    struct weft_traffic_trace trace;
    uint32_t n_in_max, n_out_max;
} recorded[N_NAMES];
static uint32_t n_recorded;

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

uint32_t sim_trace_open(void) {
    const char *shared = getenv("WEFT_SHARED_DIR");
    for (size_t i = 0; i < N_NAMES; i++) {
        struct recorded *of = &recorded[n_recorded];
        struct weft_errmsg why;
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/traces/%s", shared ? shared : "../shared", names[i]);
        if (weft_traffic_trace_read(path, 0, &of->trace, &why)) {
            printf("SKIPPED: a recorded trace: %s\n", why.text);
            continue;
        }
        for (uint32_t row = 0; row < of->trace.n_rows; row++) {
            of->n_in_max = larger(of->n_in_max, of->trace.rows[row].n_in);
            of->n_out_max = larger(of->n_out_max, of->trace.rows[row].n_out);
        }
        n_recorded++;
    }
    return n_recorded;
}

void sim_trace_close(void) {
    while (n_recorded)
        weft_traffic_trace_fini(&recorded[--n_recorded].trace);
}

static void begin_at(struct sim_trace *at, uint32_t row, uint64_t n_turns) {
    const struct weft_traffic_row *rows = recorded[at->trace].trace.rows;
    uint64_t before_ns = (uint64_t)((double)n_turns / at->turns_per_ns);
    at->row = row;
    at->begin_ns = rows[row].at_ns - before_ns; /* may wrap; only differences count */
}

void sim_trace_begin(struct sim_trace *at, uint64_t *rand, uint32_t turns_between) {
    WEFT_ASSERT(n_recorded > 0);
    at->trace = weft_rand_below(rand, n_recorded);
    const struct weft_traffic_trace *trace = &recorded[at->trace].trace;
    uint64_t whole_ns = trace->rows[trace->n_rows - 1].at_ns;
    at->turns_per_ns = (double)turns_between * trace->n_rows / (double)(whole_ns + 1);
    begin_at(at, weft_rand_below(rand, trace->n_rows), 0);
}

bool sim_trace_is_due(const struct sim_trace *at, uint64_t n_turns) {
    uint64_t after_ns = recorded[at->trace].trace.rows[at->row].at_ns - at->begin_ns;
    return (double)after_ns * at->turns_per_ns <= (double)n_turns;
}

static uint32_t scaled(uint32_t n, uint32_t n_max, uint32_t to) {
    uint32_t part = (uint32_t)((uint64_t)n * to / larger(n_max, 1));
    return larger(part, 1);
}

void sim_trace_take(struct sim_trace *at, uint64_t n_turns, uint32_t n_vocab,
                    uint32_t *n_prompt_inout, uint32_t *n_output_inout, uint32_t *prompt_out) {
    const struct recorded *of = &recorded[at->trace];
    const struct weft_traffic_row *row = &of->trace.rows[at->row];
    uint32_t n = scaled(row->n_in, of->n_in_max, *n_prompt_inout);
    *n_output_inout = scaled(row->n_out, of->n_out_max, *n_output_inout);
    *n_prompt_inout = n;
    for (uint32_t i = 0; i < n;
         i++) { /* equal hashes are equal tokens; without any all are its own */
        uint64_t before = (uint64_t)i * row->n_in / n;
        uint64_t block = before / WEFT_TRAFFIC_BLOCK_TOKENS;
        uint64_t state = block < row->n_hashes ? of->trace.hashes[row->first_hash + block]
                                               : ((uint64_t)at->row + 1) << 32;
        state += (uint64_t)i << 40;
        prompt_out[i] = (uint32_t)(weft_rand_next(&state) % n_vocab);
    }
    if (at->row + 1 < of->trace.n_rows)
        at->row++;
    else
        begin_at(at, 0, n_turns);
}
