/* Values as the model's files want them, and scores. All sums are in double. */
#include "pooled/pooled.h"

#include <math.h>
#include <stdlib.h>

#include "api/api.h"
#include "base/check.h"
#include "base/minmax.h"
#include "kinds/kind.h"

static uint32_t n_given(const weft_api_call *call) {
    return weft_pooling_n_values(&call->params.pooled.pooling, &call->limits.shape);
}

static uint32_t n_kept(const weft_api_call *call) {
    uint32_t n = n_given(call), wanted = call->params.pooled.n_values;
    return wanted > 0 ? weft_min_u32(n, wanted) : n;
}

uint64_t wefti_api_values_bytes(const weft_api_call *call) {
    const struct params *p = &call->params;
    if (p->pooled.want == POOLED_NOTHING) return 0;
    return (uint64_t)p->n_prompts * n_kept(call) * sizeof(float) +
           p->pooled.n_scores * sizeof *call->ranked;
}

/* Length 1; of zeroes nothing can be made. */
static void normalise(float *values, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)values[i] * (double)values[i];
    double length = sqrt(sum);
    for (uint32_t i = 0; i < n && length > 0; i++)
        values[i] = (float)((double)values[i] / length);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static void soften(float *values, uint32_t n) {
    double most = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, (double)values[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)values[i] - most);
    for (uint32_t i = 0; i < n; i++)
        values[i] = (float)(exp((double)values[i] - most) / sum);
}

static double activate(enum weft_model_activation activation, double logit) {
    return activation == WEFT_MODEL_SIGMOID ? sigmoid(logit) : logit;
}

/* Numbers of labels, from logits. */
static void activate_labels(enum weft_model_activation activation, float *values, uint32_t n) {
    if (activation == WEFT_MODEL_SOFTMAX) {
        soften(values, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        values[i] = (float)activate(activation, (double)values[i]);
}

weft_err wefti_api_take_values(struct job *job, const struct weft_event *event) {
    const weft_api_call *call = job->call;
    const struct pooled *pooled = &call->params.pooled;
    uint32_t n = n_kept(call);
    WEFT_ASSERT(!job->values);
    if (event->n_values != n_given(call) || n == 0) return WEFT_E_INVAL;
    job->values = malloc(n * sizeof *job->values);
    if (!job->values) return WEFT_E_NOMEM;
    job->n_values = n;
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(event->values[i])) return WEFT_E_PROTO;
        job->values[i] = event->values[i];
    }
    if (pooled->normalises) normalise(job->values, n);
    if (pooled->want == POOLED_LABELS)
        activate_labels(call->limits.purpose.model->activation, job->values, n);
    return WEFT_OK;
}

/* ----------------------------------------------------------------------------------- scores --- */

/* Of vectors of length 1, as f32 has them: rounded, it may leave the range of a cosine. */
static double cosine(const struct job *a, const struct job *b) {
    double sum = 0;
    for (uint32_t i = 0; i < a->n_values; i++)
        sum += (double)a->values[i] * (double)b->values[i];
    return fmax(-1, fmin(1, sum));
}

static double score_of(const weft_api_call *call, uint32_t i) {
    const struct pooled *pooled = &call->params.pooled;
    const struct job *jobs = call->jobs;
    if (pooled->compares)
        return cosine(&jobs[pooled->n_queries == 1 ? 0 : i], &jobs[pooled->n_queries + i]);
    const float *values = jobs[i].values;
    /* Of yes and no alone: softmax of two is a sigmoid of how far they are apart. */
    if (pooled->judges) return sigmoid((double)values[0] - (double)values[1]);
    return activate(call->limits.purpose.model->activation, (double)values[0]);
}

static int by_score(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->idx < y->idx ? -1 : 1;
}

weft_err wefti_api_make_scores(weft_api_call *call) {
    uint32_t n = call->params.pooled.n_scores;
    if (n == 0) return WEFT_OK;
    call->ranked = calloc(n, sizeof *call->ranked);
    if (!call->ranked) return WEFT_E_NOMEM;
    for (uint32_t i = 0; i < n; i++)
        call->ranked[i] = (struct ranked){.idx = i, .score = score_of(call, i)};
    if (call->kind->ranks) qsort(call->ranked, n, sizeof *call->ranked, by_score);
    return WEFT_OK;
}
