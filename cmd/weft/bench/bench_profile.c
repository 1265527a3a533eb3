#include "bench_profile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"

enum { TRACE_SPANS = 1 << 16 }; /* per process of a trace, some 8 MB of text */

void weft_profile_add(struct weft_eng_profile *sum, const struct weft_eng_profile *one) {
    WEFT_ASSERT(sum->n_steps == 0 || sum->n_threads == one->n_threads);
    sum->n_threads = one->n_threads;
    sum->n_steps += one->n_steps;
    sum->step_ns += one->step_ns;
    sum->gap_ns += one->gap_ns;
    for (uint32_t op = 0; op < WEFT_ENG_OP_COUNT; op++) {
        sum->ops[op].n_calls += one->ops[op].n_calls;
        sum->ops[op].busy_ns += one->ops[op].busy_ns;
        sum->ops[op].bytes += one->ops[op].bytes;
        sum->ops[op].ops += one->ops[op].ops;
        sum->ops[op].activations = one->ops[op].activations;
    }
}

/* --------------------------------------------------------------------------------- roofline --- */

static double peak_of(const struct weft_machine_rates *machine, enum weft_eng_act activations) {
    switch (activations) {
    case WEFT_ENG_ACT_BF16:
        return machine->ops[WEFT_PEAK_BF16];
    case WEFT_ENG_ACT_INT8:
        return machine->ops[WEFT_PEAK_INT8];
    case WEFT_ENG_ACT_AUTO:
    case WEFT_ENG_ACT_F32:
        break;
    }
    return machine->ops[WEFT_PEAK_F32];
}

static double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

static void set_times(struct weft_roofline_row *row, const struct weft_eng_profile *profile,
                      double wall_ns) {
    row->ms = ratio(wall_ns / 1e6, (double)profile->n_steps);
    row->share = ratio(wall_ns, (double)profile->step_ns);
}

static void set_rates(struct weft_roofline_row *row, const struct weft_eng_op_totals *op,
                      const struct weft_machine_rates *machine, double wall_ns) {
    double peak = peak_of(machine, op->activations);
    row->counted = op->bytes > 0 && wall_ns > 0;
    if (!row->counted) return;
    row->bytes_per_s = (double)op->bytes * 1e9 / wall_ns;
    row->ops_per_s = (double)op->ops * 1e9 / wall_ns;
    row->of_dram = ratio(row->bytes_per_s, machine->dram_bytes);
    row->of_peak = ratio(row->ops_per_s, peak);
    row->computes = row->of_peak > row->of_dram;
}

void weft_roofline(const struct weft_eng_profile *profile, const struct weft_machine_rates *machine,
                   struct weft_roofline_row rows[WEFT_ROOFLINE_ROWS]) {
    double all_ns = 0;
    for (uint32_t i = 0; i < WEFT_ROOFLINE_ROWS; i++) {
        rows[i] = (struct weft_roofline_row){0};
    }
    for (uint32_t i = 0; i < WEFT_ENG_OP_COUNT; i++) {
        const struct weft_eng_op_totals *op = &profile->ops[i];
        double wall_ns = ratio((double)op->busy_ns, profile->n_threads);
        rows[i].name = weft_eng_op_name((enum weft_eng_op)i);
        rows[i].calls = ratio((double)op->n_calls, (double)profile->n_steps);
        set_times(&rows[i], profile, wall_ns);
        set_rates(&rows[i], op, machine, wall_ns);
        all_ns += wall_ns;
    }
    struct weft_roofline_row *outside = &rows[WEFT_ENG_OP_COUNT], *gap = outside + 1;
    outside->name = "outside";
    set_times(outside, profile, (double)profile->step_ns - all_ns);
    gap->name = "gap";
    set_times(gap, profile, (double)profile->gap_ns);
}

void weft_roofline_print(FILE *out, const struct weft_roofline_row rows[WEFT_ROOFLINE_ROWS]) {
    (void)fprintf(out, "  %-13s %7s %8s %10s %9s %8s %9s %8s   %s\n", "operator", "calls", "time",
                  "ms/step", "GB/s", "of DRAM", "GFLOP/s", "of peak", "bound by");
    for (uint32_t i = 0; i < WEFT_ROOFLINE_ROWS; i++) {
        const struct weft_roofline_row *row = &rows[i];
        (void)fprintf(out, "  %-13s ", row->name);
        if (row->calls > 0)
            (void)fprintf(out, "%7.0f", row->calls);
        else
            (void)fprintf(out, "%7s", "-");
        (void)fprintf(out, " %7.2f%% %10.4f", 100 * row->share, row->ms);
        if (row->counted)
            (void)fprintf(out, " %9.2f %7.1f%% %9.1f %7.1f%%   %s", row->bytes_per_s / 1e9,
                          100 * row->of_dram, row->ops_per_s / 1e9, 100 * row->of_peak,
                          row->computes ? "compute" : "memory");
        (void)fputc('\n', out);
    }
}

void weft_roofline_print_json(FILE *out, const struct weft_roofline_row rows[WEFT_ROOFLINE_ROWS]) {
    (void)fputc('[', out);
    for (uint32_t i = 0; i < WEFT_ROOFLINE_ROWS; i++) {
        const struct weft_roofline_row *row = &rows[i];
        (void)fprintf(out,
                      "%s{\"operator\": \"%s\", \"calls\": %.2f, \"share\": %.5f, \"ms\": %.5f",
                      i ? ", " : "", row->name, row->calls, row->share, row->ms);
        if (row->counted)
            (void)fprintf(out,
                          ", \"gb_per_s\": %.4f, \"of_dram\": %.4f, \"gflop_per_s\": %.3f, "
                          "\"of_peak\": %.4f, \"bound\": \"%s\"",
                          row->bytes_per_s / 1e9, row->of_dram, row->ops_per_s / 1e9, row->of_peak,
                          row->computes ? "compute" : "memory");
        (void)fputc('}', out);
    }
    (void)fputc(']', out);
}

/* ------------------------------------------------------------------------------------ trace --- */

struct weft_trace {
    FILE *file;
    const char *path; /* the caller's */
    uint32_t n_processes;
    uint64_t n_events;
    int failure;        /* errno of the first write that failed */
    uint64_t origin_ns; /* time 0: the oldest span of the first process */
    struct weft_eng_span spans[WEFT_ENG_SPANS_MAX];
};

weft_err weft_trace_open(const char *path, weft_trace **trace_out, struct weft_errmsg *why) {
    *trace_out = NULL;
    weft_trace *trace = calloc(1, sizeof *trace);
    if (!trace) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a trace");
    trace->path = path;
    trace->file = fopen(path, "we");
    if (!trace->file) {
        weft_err err = weft_err_errno(why, errno, "cannot write the trace %s", path);
        free(trace);
        return err;
    }
    (void)fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", trace->file);
    *trace_out = trace;
    return WEFT_OK;
}

static void begin_event(weft_trace *trace) {
    (void)fputs(trace->n_events++ ? ",\n" : "\n", trace->file);
}

static void add_thread(weft_trace *trace, uint32_t thread_idx, uint32_t n_spans, bool steps) {
    begin_event(trace);
    (void)fprintf(trace->file,
                  "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %u, \"tid\": %u, \"args\": "
                  "{\"name\": \"%s\"}}",
                  trace->n_processes, thread_idx, steps ? "steps" : "compute");
    for (uint32_t i = 0; i < n_spans; i++) {
        const struct weft_eng_span *span = &trace->spans[i];
        begin_event(trace);
        (void)fprintf(
            trace->file,
            "{\"ph\": \"X\", \"name\": \"%s\", \"pid\": %u, \"tid\": %u, \"ts\": %.3f, \"dur\": "
            "%.3f",
            weft_eng_op_name(span->op), trace->n_processes, thread_idx,
            (double)(int64_t)(span->begin_ns - trace->origin_ns) / 1e3,
            (double)(span->end_ns - span->begin_ns) / 1e3);
        if (steps)
            (void)fprintf(trace->file, ", \"args\": {\"tokens\": %u}", span->detail);
        else if (span->detail != UINT32_MAX)
            (void)fprintf(trace->file, ", \"args\": {\"layer\": %u}", span->detail);
        (void)fputc('}', trace->file);
    }
}

void weft_trace_add(weft_trace *trace, const char *name, const weft_eng *eng) {
    uint32_t n_threads = weft_eng_info(eng)->n_threads;
    uint32_t n_max = TRACE_SPANS / (n_threads + 1);
    if (n_max > WEFT_ENG_SPANS_MAX) n_max = WEFT_ENG_SPANS_MAX;
    trace->n_processes++;
    begin_event(trace);
    (void)fprintf(trace->file,
                  "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %u, \"tid\": 0, \"args\": "
                  "{\"name\": \"%s\"}}",
                  trace->n_processes, name);
    for (uint32_t t = 0; t <= n_threads; t++) {
        uint32_t n = weft_eng_profile_spans(eng, t, trace->spans, n_max);
        if (!trace->origin_ns && n > 0) trace->origin_ns = trace->spans[0].begin_ns;
        add_thread(trace, t, n, t == n_threads);
    }
    if (ferror(trace->file) && !trace->failure) trace->failure = errno;
}

weft_err weft_trace_close(weft_trace *trace, struct weft_errmsg *why) {
    if (!trace) return WEFT_OK;
    (void)fputs("\n]}\n", trace->file);
    int failure = trace->failure;
    if (fclose(trace->file) && !failure) failure = errno;
    weft_err err = WEFT_OK;
    if (failure) err = weft_err_errno(why, failure, "cannot write the trace %s", trace->path);
    free(trace);
    return err;
}
