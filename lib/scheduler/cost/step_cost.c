/* The filter behind step_cost.h.
 *
 * The coefficients are the state of a Kalman filter, and each result is a measurement of one sum of
 * them. Plain least squares with forgetting would not do: an hour of decoding alone would make it
 * forget what a prompt token costs. Here the uncertainty grows with every step mostly along the
 * coefficients themselves (the whole machine got slower or faster: a neighbour came, a clock rose),
 * and only a little across (one part changed). So when a decode step suddenly takes twice as long,
 * prompt tokens are expected to take twice as long as well, before any was seen.
 *
 * A result counts as no further from its prediction than three standard deviations. A stall of a
 * second is then a small bump, and it takes RUN_LONG results in a row on one side to be believed to
 * the full: these widen the uncertainty. One below half of its prediction is believed at once, since
 * nothing makes a step faster than it can be: a first step that had to read the model's file
 * misleads for one step.
 *
 * Negative coefficients are set to zero, which the others learn through their covariances. */
#include "scheduler/step_cost.h"

#include <math.h>
#include <stdbool.h>

#include "base/check.h"
#include "base/minmax.h"

#define N WEFT_SCHED_COST_TERMS
#define POSITIONS 1024.0 /* the unit of attention: thousands of positions */

/* Time is linear in tokens up to each of these, and after the last: a bend lies anywhere between one
 * token and a few dozen, where memory ceases to be the bound or all experts are in use. */
static const uint32_t ends[] = {6, 12, 24};
#define N_PARTS 4
_Static_assert(N == 1 + N_PARTS + 2, "as such, tokens, logits, attention");

/* Of each term, how many units make up a usual step: what is not known yet may be as large as that
 * step divided by them. */
static const double usual[N] = {1, 16, 16, 16, 16, 8, 32};
#define LIKENESS 0.9 /* correlation of what tokens cost in the parts, before all were measured */

#define SPEED_DRIFT 2e-4   /* variance, relative to the coefficients: 1.4 % a step */
#define PART_DRIFT 1e-5    /* of each for itself */
#define UNKNOWN_DRIFT 1e-6 /* relative to what is unknown at first: zeroes can come back */
#define RUN_LONG 3
#define RUN_DRIFT 0.04 /* 20 % a step */
#define DEVIATIONS_MAX 3.0
#define NOISE2_FIRST 0.01
#define NOISE2_MIN 1e-4
#define NOISE2_MAX 0.09
#define SLOWLY (1.0 / 32)
#define MARGIN_STEP 0.02
#define MARGIN_MAX 1.5
/* Times the target: what one step of a hundred may exceed. What lies between a step and its reader
 * adds to that, and one gap of a hundred stays below 1.1 times. */
#define OVER_RARELY 1.07
#define TIMER_US 2.0 /* what a measurement cannot tell apart */

#define TOKENS_FIRST 32u       /* of a step before anything is known */
#define TOKENS_MIN 16u         /* of prompts where no stream runs */
#define TOKENS_MIN_BESIDE 2u   /* and beside streams */
#define AUTO_GAP_US 10000u     /* 100 tokens a second: nobody reads faster */
#define AUTO_STEP_US 100000u   /* newcomers look for a place this often */
#define AUTO_PART_OF_DECODE 40 /* percent on top, for one prompt to AUTO_STREAMS streams */
#define AUTO_STREAMS 4
#define DEAR 3      /* times the cost of a later token far into its prompt: less may be noise */
#define AUTO_DEAR 2 /* a step that pays for what is dear about its first prompt tokens takes more */
#define PART_ALWAYS 8 /* an eighth on top, whatever the target */

/* -------------------------------------------------------------------------------- features --- */

static void features(const struct weft_sched_work *work, double x[N]) {
    x[0] = 1;
    uint32_t from = 0;
    for (int i = 0; i < N_PARTS; i++) {
        uint32_t to = i + 1 < N_PARTS ? weft_min_u32(work->n_tokens, ends[i]) : work->n_tokens;
        x[1 + i] = to > from ? to - from : 0;
        from = to;
    }
    x[1 + N_PARTS] = work->n_logits;
    x[2 + N_PARTS] = (double)work->n_seen / POSITIONS;
}

static double dot(const double a[N], const double b[N]) {
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += a[i] * b[i];
    return sum;
}

void weft_sched_work_add(struct weft_sched_work *work, uint32_t first, uint32_t n_tokens,
                         uint32_t n_logits) {
    uint64_t n = n_tokens;
    work->n_tokens += n_tokens;
    work->n_logits += n_logits;
    work->n_seen += n * first + n * (n + 1) / 2;
}

static uint32_t to_us(double us) {
    WEFT_ASSERT(us >= 0);
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

uint32_t weft_sched_cost_predict(const struct weft_sched_cost *cost,
                                 const struct weft_sched_work *work) {
    double x[N];
    features(work, x);
    return to_us(dot(cost->coef, x));
}

/* --------------------------------------------------------------------------------- fitting --- */

static double square(double x) {
    return x * x;
}

/* As uncertain as at the start, and no more, for coefficients that no step has told of lately. */
static double variance_max(const struct weft_sched_cost *cost, int i) {
    return square(cost->scale_us / usual[i]);
}

static void begin(struct weft_sched_cost *cost, double busy_us) {
    cost->scale_us = busy_us;
    cost->noise2 = NOISE2_FIRST;
    cost->margin = cost->margin_rare = 1;
    for (int i = 0; i < N; i++)
        cost->cov[i][i] = variance_max(cost, i);
    for (int i = 1; i <= N_PARTS; i++) {
        for (int k = 1; k <= N_PARTS; k++) {
            if (k != i) cost->cov[i][k] = LIKENESS * variance_max(cost, i);
        }
    }
}

static void drift_speed(struct weft_sched_cost *cost, double variance) {
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < N; k++)
            cost->cov[i][k] += variance * cost->coef[i] * cost->coef[k];
    }
}

/* Before each measurement: what was known is a step older. */
static void drift(struct weft_sched_cost *cost) {
    bool has_changed = cost->run >= RUN_LONG || cost->run <= -RUN_LONG;
    drift_speed(cost, has_changed ? RUN_DRIFT : SPEED_DRIFT);
    for (int i = 0; i < N; i++) {
        cost->cov[i][i] += PART_DRIFT * square(cost->coef[i]);
        cost->cov[i][i] += UNKNOWN_DRIFT * variance_max(cost, i);
    }
    for (int i = 0; i < N; i++) {
        if (cost->cov[i][i] <= variance_max(cost, i)) continue;
        double shrink = sqrt(variance_max(cost, i) / cost->cov[i][i]);
        for (int k = 0; k < N; k++) { /* twice where k is i: variances are squares */
            cost->cov[i][k] *= shrink;
            cost->cov[k][i] *= shrink;
        }
    }
}

/* Coefficients below zero are measured to be zero; what they had goes to those they vary with. */
static void keep_positive(struct weft_sched_cost *cost) {
    for (int i = 0; i < N; i++) {
        if (cost->coef[i] >= 0) continue;
        double over = cost->coef[i] / cost->cov[i][i];
        for (int k = 0; k < N; k++) {
            if (k != i) cost->coef[k] -= cost->cov[k][i] * over;
        }
        cost->coef[i] = 0;
    }
    for (int i = 0; i < N; i++) {
        if (cost->coef[i] < 0) cost->coef[i] = 0;
    }
}

static void update(struct weft_sched_cost *cost, const double x[N], double variance,
                   double surprise) {
    double gain[N];
    for (int i = 0; i < N; i++)
        gain[i] = dot(cost->cov[i], x);
    for (int i = 0; i < N; i++)
        cost->coef[i] += gain[i] / variance * surprise;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k <= i; k++) {
            cost->cov[i][k] -= gain[i] * gain[k] / variance;
            cost->cov[k][i] = cost->cov[i][k];
        }
        /* Rounding must not make it negative. */
        double least = 1e-12 * variance_max(cost, i);
        if (cost->cov[i][i] < least) cost->cov[i][i] = least;
    }
    keep_positive(cost);
}

/* Follows the factor that so many of the steps exceed. */
static void follow(double *margin, double part_above, double factor) {
    *margin += factor > *margin ? (1 - part_above) * MARGIN_STEP : -part_above * MARGIN_STEP;
    if (*margin < 1) *margin = 1;
    if (*margin > MARGIN_MAX) *margin = MARGIN_MAX;
}

static void judge(struct weft_sched_cost *cost, double predicted, double busy_us) {
    double error = predicted > busy_us ? predicted - busy_us : busy_us - predicted;
    error = error < busy_us ? error / busy_us : 1;
    cost->error += (error - cost->error) * SLOWLY;
    double factor = predicted > 0 ? busy_us / predicted : MARGIN_MAX;
    follow(&cost->margin, 0.05, factor);
    follow(&cost->margin_rare, 0.01, factor);
}

static double variance_of(const struct weft_sched_cost *cost, const double x[N]) {
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += x[i] * dot(cost->cov[i], x);
    return sum > 0 ? sum : 0; /* rounding */
}

void weft_sched_cost_learn(struct weft_sched_cost *cost, const struct weft_sched_work *work,
                           uint32_t busy_us) {
    if (work->n_tokens == 0) return;
    double x[N], busy = busy_us ? busy_us : 1;
    features(work, x);
    bool is_first = cost->n_learned++ == 0;
    if (is_first) begin(cost, busy);
    double predicted = dot(cost->coef, x);
    if (!is_first) judge(cost, predicted, busy);
    drift(cost);
    /* No stall makes a step faster: a prediction of more than twice the time was wrong. */
    bool is_wrong = predicted > 2 * busy;
    if (is_wrong) drift_speed(cost, square((predicted - busy) / predicted));
    double about = is_first || is_wrong ? busy : predicted;
    double variance = variance_of(cost, x) + cost->noise2 * square(about) + square(TIMER_US);
    double surprise = busy - predicted, most = DEVIATIONS_MAX * sqrt(variance);
    bool is_high = surprise > most, is_low = surprise < -most;
    cost->run = is_high  ? (cost->run > 0 ? cost->run : 0) + 1
                : is_low ? (cost->run < 0 ? cost->run : 0) - 1
                         : 0;
    if (is_high) surprise = most;
    if (is_low) surprise = -most;
    update(cost, x, variance, surprise);
    if (work->n_tokens > cost->tokens_max) cost->tokens_max = work->n_tokens;
    if (is_first) return;
    if (is_wrong) surprise = 0; /* that was no noise */
    double deviation2 = square(surprise) / square(about > 1 ? about : 1);
    if ((is_high || is_low) && deviation2 > 4 * cost->noise2) deviation2 = 4 * cost->noise2;
    cost->noise2 += (deviation2 - cost->noise2) * SLOWLY;
    if (cost->noise2 < NOISE2_MIN) cost->noise2 = NOISE2_MIN;
    if (cost->noise2 > NOISE2_MAX) cost->noise2 = NOISE2_MAX;
    double usually = busy < 4 * cost->scale_us ? busy : 4 * cost->scale_us;
    cost->scale_us += (usually - cost->scale_us) * SLOWLY;
}

/* ------------------------------------------------------------------------------- deciding --- */

/* What the next tokens cost more than the ones after them, all together: where each of the first ones
 * brings experts of its own. */
static double dear_us(const struct weft_sched_cost *cost, uint32_t n_tokens) {
    double us = 0;
    for (int i = 0; i + 1 < N_PARTS; i++) {
        uint32_t from = i ? weft_max_u32(n_tokens, ends[i - 1]) : n_tokens;
        double later = cost->coef[N_PARTS] + 2 * cost->coef[N - 1]; /* it looks at 2048 */
        if (from < ends[i] && cost->coef[1 + i] > DEAR * later)
            us += (cost->coef[1 + i] - later) * (ends[i] - from);
    }
    return us;
}

uint32_t weft_sched_cost_bound(const struct weft_sched_cost *cost,
                               const struct weft_sched_work *decode, uint32_t n_prompts,
                               uint32_t itl_target_us) {
    if (itl_target_us == 0) return UINT32_MAX;
    bool is_auto = itl_target_us == WEFT_SCHED_ITL_AUTO;
    if (cost->n_learned == 0) return is_auto ? AUTO_STEP_US : itl_target_us;
    double alone = decode->n_tokens ? weft_sched_cost_predict(cost, decode) : 0;
    if (!is_auto) {
        double rare = cost->margin_rare / OVER_RARELY;
        double bound = itl_target_us / (rare > cost->margin ? rare : cost->margin);
        double least = alone + alone / PART_ALWAYS;
        return to_us(bound > least ? bound : least);
    }
    if (decode->n_tokens == 0) return AUTO_STEP_US;
    double most = alone + alone * AUTO_PART_OF_DECODE / 100;
    if (most < AUTO_STEP_US) most = AUTO_STEP_US;
    double rivals = (double)n_prompts * AUTO_STREAMS / decode->n_tokens;
    double part = alone * AUTO_PART_OF_DECODE / 100 * (rivals > 1 ? rivals : 1);
    double dear = AUTO_DEAR * dear_us(cost, decode->n_tokens);
    double bound = alone + (part > dear ? part : dear);
    if (bound > most) bound = most;
    return to_us(bound > AUTO_GAP_US ? bound : AUTO_GAP_US);
}

static bool fits(const struct weft_sched_cost *cost, const struct weft_sched_work *decode,
                 uint32_t first, uint32_t n_tokens, uint32_t bound_us) {
    struct weft_sched_work work = *decode;
    weft_sched_work_add(&work, first, n_tokens, 0);
    return weft_sched_cost_predict(cost, &work) <= bound_us;
}

uint32_t weft_sched_cost_prompt_tokens(const struct weft_sched_cost *cost,
                                       const struct weft_sched_work *decode, uint32_t first,
                                       uint32_t bound_us) {
    if (bound_us == UINT32_MAX) return UINT32_MAX;
    uint32_t least = decode->n_tokens ? TOKENS_MIN_BESIDE : TOKENS_MIN;
    uint64_t n_proven = 2 * (uint64_t)cost->tokens_max;
    if (n_proven < TOKENS_FIRST) n_proven = TOKENS_FIRST;
    uint32_t low = least;
    uint32_t high = n_proven > decode->n_tokens ? (uint32_t)n_proven - decode->n_tokens : least;
    while (low < high) { /* low fits, or is the least; what is above high does not */
        uint32_t middle = high - (high - low) / 2;
        if (fits(cost, decode, first, middle, bound_us))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
