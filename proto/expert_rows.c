#include "proto/expert_rows.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static size_t n_rows(const struct weft_expert_rows *rows) {
    return (size_t)rows->n_layers * rows->n_experts;
}

void weft_expert_rows_fini(struct weft_expert_rows *rows) {
    free(rows->layers);
    free(rows->sums);
    free(rows->seen);
    *rows = (struct weft_expert_rows){0};
}

static weft_err shape(struct weft_expert_rows *rows, const struct weft_msg_experts *as) {
    size_t n = (size_t)as->n_layers * as->n_experts;
    WEFT_ASSERT(n >= 1 && n <= WEFT_EXPERT_SERIES_MAX); /* ensured by decoding */
    weft_expert_rows_fini(rows);
    rows->layers = malloc(as->n_layers * sizeof *rows->layers);
    rows->sums = calloc(n, sizeof *rows->sums);
    rows->seen = calloc(n, sizeof *rows->seen);
    if (!rows->layers || !rows->sums || !rows->seen) {
        weft_expert_rows_fini(rows);
        return WEFT_E_NOMEM;
    }
    memcpy(rows->layers, as->layers, as->n_layers * sizeof *rows->layers);
    rows->n_layers = as->n_layers;
    rows->n_experts = as->n_experts;
    return WEFT_OK;
}

static bool has_shape(const struct weft_expert_rows *rows, const struct weft_msg_experts *of) {
    return rows->n_layers == of->n_layers && rows->n_experts == of->n_experts &&
           memcmp(rows->layers, of->layers, of->n_layers * sizeof *of->layers) == 0;
}

/* A faulty peer may report more than there can be: a counter still must not fall. */
static void grow(uint64_t *sum, uint64_t by) {
    *sum = by <= UINT64_MAX - *sum ? *sum + by : UINT64_MAX;
}

weft_err weft_expert_rows_add(struct weft_expert_rows *rows, const struct weft_msg_experts *told,
                              struct weft_errmsg *why) {
    weft_err err = rows->n_layers == 0 ? shape(rows, told) : WEFT_OK;
    if (err) return weft_err_set(why, err, "no memory for the counts of experts");
    if (!has_shape(rows, told))
        return weft_err_set(why, WEFT_E_PROTO,
                            "counts of %u experts in each of %u layers, which were %u in each of "
                            "%u others",
                            told->n_experts, told->n_layers, rows->n_experts, rows->n_layers);
    for (size_t i = 0; i < n_rows(rows); i++)
        grow(&rows->sums[i], told->rows[i]);
    return WEFT_OK;
}

weft_err weft_expert_rows_carry(struct weft_expert_rows *rows,
                                const struct weft_msg_experts *told) {
    weft_err err = rows->n_layers == 0 || !has_shape(rows, told) ? shape(rows, told) : WEFT_OK;
    if (err) return err;
    for (size_t i = 0; i < n_rows(rows); i++) {
        uint64_t now = told->rows[i], before = rows->seen[i];
        grow(&rows->sums[i], now >= before ? now - before : now);
        rows->seen[i] = now;
    }
    return WEFT_OK;
}

void weft_expert_rows_new_source(struct weft_expert_rows *rows) {
    if (rows->n_layers > 0) memset(rows->seen, 0, n_rows(rows) * sizeof *rows->seen);
}
