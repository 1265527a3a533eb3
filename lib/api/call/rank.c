/* best_of: more choices are computed than asked for, and those that the model found likeliest are
 * shown. */
#include "call/rank.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"

/* Per token, so that a long choice is no worse for its length. What is no number ranks last. */
static double mean_logprob(const struct choice *choice) {
    if (choice->n_tokens == 0) return 0;
    double mean = choice->logprob_sum / choice->n_tokens;
    return isnan(mean) ? -INFINITY : mean;
}

static int by_rank(const void *a, const void *b) {
    const struct choice *x = a, *y = b;
    double mean_x = mean_logprob(x), mean_y = mean_logprob(y);
    if (mean_x != mean_y) return mean_x > mean_y ? -1 : 1;
    return x->idx < y->idx ? -1 : 1;
}

static void swap(struct choice *a, struct choice *b) {
    struct choice other = *a;
    *a = *b;
    *b = other;
}

/* The shown ones of all jobs come first, as bodies are written; the others stay behind them until
 * the call is freed. Nothing points at a choice by now: jobs are closed, and no stream has any. */
void wefti_api_rank_choices(weft_api_call *call) {
    uint32_t n = call->params.n, n_run = call->params.n_run;
    WEFT_ASSERT(call->n_choices == call->n_jobs * n_run && n <= n_run);
    if (n == n_run) return;
    WEFT_ASSERT(!call->params.stream);
    for (uint32_t i = 0; i < call->n_jobs; i++)
        qsort(call->jobs[i].choices, n_run, sizeof *call->choices, by_rank);
    for (uint32_t i = 0; i < call->n_jobs; i++) {
        struct choice *shown = call->choices + (size_t)i * n;
        for (uint32_t k = 0; k < n; k++) {
            swap(&shown[k], &call->jobs[i].choices[k]);
            shown[k].index = i * n + k;
        }
        call->jobs[i].choices = shown;
        call->jobs[i].n_choices = n;
    }
}
