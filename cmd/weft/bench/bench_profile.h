/* bench_profile — `weft bench --profile` and `--trace`, made from the engine's notes: a roofline
 * table (Williams, Waterman and Patterson 2009), and a trace for chrome://tracing or Perfetto. */
#ifndef WEFT_CMD_WEFT_BENCH_PROFILE_H
#define WEFT_CMD_WEFT_BENCH_PROFILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "bench_machine.h"
#include "engine/engine.h"

/* Adds the figures of `one` to those of `sum`, which is zeroed or of the same engine. */
void weft_profile_add(struct weft_eng_profile *sum, const struct weft_eng_profile *one);

/* One line of the table. Times are those of one step. */
struct weft_roofline_row {
    const char *name;
    double calls;       /* per step */
    double share;       /* of the time of steps */
    double ms;          /* on the wall: the time of all threads, divided by their number */
    bool counted;       /* the rest of this is known */
    double bytes_per_s; /* bytes it has to read, over its time */
    double ops_per_s;
    double of_dram, of_peak; /* of the machine's rates; the peak is that of its activations */
    bool computes;           /* at the machine's rates its operations take longer than its bytes */
};

/* The engine's operators, the part of the steps that belongs to none of them ("outside": the plan's
 * check, threads that wake up, sampled tokens that join their sequences), and the time between
 * steps ("gap", whose share comes on top of the others'). */
enum { WEFT_ROOFLINE_ROWS = WEFT_ENG_OP_COUNT + 2 };

/* All zeroes if there was no step. */
void weft_roofline(const struct weft_eng_profile *profile, const struct weft_machine_rates *machine,
                   struct weft_roofline_row rows[WEFT_ROOFLINE_ROWS]);

void weft_roofline_print(FILE *out, const struct weft_roofline_row rows[WEFT_ROOFLINE_ROWS]);
/* A list of objects. */
void weft_roofline_print_json(FILE *out, const struct weft_roofline_row rows[WEFT_ROOFLINE_ROWS]);

/* A trace in the making; a process of it is one thing that was measured. */
typedef struct weft_trace weft_trace;

/* Creates the file, or empties an existing one. On errors `why` holds the system's message. */
WEFT_MUST_CHECK weft_err weft_trace_open(const char *path, weft_trace **trace_out,
                                         struct weft_errmsg *why);
/* All spans that `eng` keeps, as process `name` (which needs no escapes): a line per thread, and
 * one of the steps. At most some 65,000 of them, the newest. */
void weft_trace_add(weft_trace *trace, const char *name, const weft_eng *eng);
/* Ends the file; the trace is gone in any case. Accepts NULL. */
WEFT_MUST_CHECK weft_err weft_trace_close(weft_trace *trace, struct weft_errmsg *why);

#endif
