#include "experts.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

static bool is_wanted(const char *mode, uint64_t n_series) {
    bool is_on = strcmp(mode, "on") == 0;
    if (n_series == 0 || strcmp(mode, "off") == 0) return false;
    if (n_series <= (is_on ? WEFT_EXPERT_SERIES_MAX : WEFT_EXPERT_SERIES_AUTO)) return true;
    if (is_on)
        weft_warn("no metric of experts: it would have %llu series, at most %u are possible",
                  (unsigned long long)n_series, WEFT_EXPERT_SERIES_MAX);
    else
        weft_info("no metric of experts: %llu series are more than %u; --expert-metrics on has it",
                  (unsigned long long)n_series, WEFT_EXPERT_SERIES_AUTO);
    return false;
}

weft_err wefti_experts_init(struct wefti_experts *x, const char *mode, uint32_t n_layers,
                            uint32_t n_experts, const bool has_experts[WEFT_LAYERS_MAX],
                            struct weft_errmsg *why) {
    *x = (struct wefti_experts){0};
    WEFT_ASSERT(n_layers <= WEFT_LAYERS_MAX && n_experts <= WEFT_EXPERTS_MAX);
    uint32_t n_with = 0;
    for (uint32_t i = 0; i < n_layers; i++)
        n_with += has_experts[i];
    size_t n_series = (size_t)n_with * n_experts;
    if (!is_wanted(mode, n_series)) return WEFT_OK;
    x->layers = malloc(n_with * sizeof *x->layers);
    x->counts = calloc((size_t)n_layers * n_experts, sizeof *x->counts);
    x->told = calloc(n_series, sizeof *x->told);
    x->news = calloc(n_series, sizeof *x->news);
    if (!x->layers || !x->counts || !x->told || !x->news) {
        wefti_experts_fini(x);
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for the metric of %zu experts", n_series);
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        if (has_experts[i]) x->layers[x->n_layers++] = i;
    }
    x->n_experts = n_experts;
    return WEFT_OK;
}

void wefti_experts_fini(struct wefti_experts *x) {
    free(x->layers);
    free(x->counts);
    free(x->told);
    free(x->news);
    *x = (struct wefti_experts){0};
}

void wefti_experts_new_session(struct wefti_experts *x) {
    x->is_due = true;
}

bool wefti_experts_ask(struct wefti_experts *x, uint64_t n_steps, uint64_t now_ms) {
    if (x->n_experts == 0 || x->asked) return false;
    bool is_time = now_ms - x->asked_at_ms >= WEFTI_EXPERTS_TELL_MS;
    if (!x->is_due && (!is_time || n_steps == x->n_steps_asked)) return false;
    x->asked = true;
    x->n_steps_asked = n_steps;
    x->asked_at_ms = now_ms;
    return true;
}

void wefti_experts_unask(struct wefti_experts *x) {
    x->asked = false;
    x->n_steps_asked = UINT64_MAX; /* ask again in a second, whatever ran */
}

bool wefti_experts_news(struct wefti_experts *x, struct weft_msg_experts *msg_out) {
    WEFT_ASSERT(x->asked);
    x->asked = false;
    bool is_news = x->is_due;
    for (uint32_t i = 0; i < x->n_layers; i++) {
        const uint64_t *counts = x->counts + (size_t)x->layers[i] * x->n_experts;
        size_t first = (size_t)i * x->n_experts;
        for (uint32_t e = 0; e < x->n_experts; e++) {
            WEFT_ASSERT(counts[e] >= x->told[first + e]);
            x->news[first + e] = counts[e] - x->told[first + e];
            is_news = is_news || x->news[first + e] > 0;
        }
    }
    *msg_out = (struct weft_msg_experts){
        .n_layers = x->n_layers, .n_experts = x->n_experts, .layers = x->layers, .rows = x->news};
    return is_news;
}

void wefti_experts_sent(struct wefti_experts *x) {
    x->is_due = false;
    for (size_t i = 0; i < (size_t)x->n_layers * x->n_experts; i++)
        x->told[i] += x->news[i];
}
