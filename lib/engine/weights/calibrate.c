/* Calibration: how large the numbers are that each column of each matrix meets, over a text. The
 * square of an error in a weight reaches the output times the square of its column's activation, so
 * the mean of that square says what the weight's error costs.
 *
 * Activations themselves are quantised token by token as they come, and need no calibration. */
#include "weights/calibrate.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/minmax.h"

/* Every column gets this share of the mean over its matrix's columns on top: one that the text left
 * idle still matters a little. */
#define IMPORTANCE_FLOOR 0.01

/* An expert's columns count as if so many rows more had met it, all columns alike: what few rows say is little. */
#define EXPERT_ROWS 8

struct weft_eng_calib {
    struct wefti_calib_sizes sizes;
    size_t n_columns;
    double *sums;     /* [n_columns], of squares */
    uint64_t *n_rows; /* by input_idx, then [n_layers][n_experts] */
};

static size_t layer_columns(const struct wefti_calib_sizes *sizes) {
    return 2 * (size_t)sizes->n_hidden + sizes->o_dim + sizes->n_ffn + sizes->q_rank;
}

size_t wefti_calib_offset(const weft_eng_calib *calib, uint32_t layer,
                          enum wefti_calib_input input) {
    const struct wefti_calib_sizes *sizes = &calib->sizes;
    size_t at = layer * layer_columns(sizes);
    switch (input) {
    case WEFTI_CALIB_QKV:
        return at;
    case WEFTI_CALIB_O:
        return at + sizes->n_hidden;
    case WEFTI_CALIB_FFN:
        return at + sizes->n_hidden + sizes->o_dim;
    case WEFTI_CALIB_DOWN:
        return at + 2 * (size_t)sizes->n_hidden + sizes->o_dim;
    case WEFTI_CALIB_Q_RANK:
        return at + 2 * (size_t)sizes->n_hidden + sizes->o_dim + sizes->n_ffn;
    case WEFTI_CALIB_HEAD:
    case WEFTI_CALIB_EXPERT_DOWN:
    case WEFTI_CALIB_ROUTER:
    case WEFTI_CALIB_LAYER_INPUT:
        break;
    }
    return sizes->n_layers * layer_columns(sizes);
}

size_t wefti_calib_expert_offset(const weft_eng_calib *calib, uint32_t layer, uint32_t expert) {
    const struct wefti_calib_sizes *sizes = &calib->sizes;
    return wefti_calib_offset(calib, 0, WEFTI_CALIB_HEAD) + sizes->n_hidden +
           ((size_t)layer * sizes->n_experts + expert) * sizes->n_ffn_expert;
}

uint32_t wefti_calib_columns(const weft_eng_calib *calib, enum wefti_calib_input input) {
    if (input == WEFTI_CALIB_O) return calib->sizes.o_dim;
    if (input == WEFTI_CALIB_Q_RANK) return calib->sizes.q_rank;
    return input == WEFTI_CALIB_DOWN ? calib->sizes.n_ffn : calib->sizes.n_hidden;
}

static size_t input_idx(const weft_eng_calib *calib, uint32_t layer, enum wefti_calib_input input) {
    return (size_t)(input == WEFTI_CALIB_HEAD ? calib->sizes.n_layers : layer) *
               WEFTI_CALIB_LAYER_INPUTS +
           (input == WEFTI_CALIB_HEAD ? 0 : (size_t)input);
}

static size_t expert_idx(const weft_eng_calib *calib, uint32_t layer, uint32_t expert) {
    return input_idx(calib, 0, WEFTI_CALIB_HEAD) + 1 + (size_t)layer * calib->sizes.n_experts +
           expert;
}

struct wefti_calib_sizes wefti_calib_sizes_of(const weft_model *model) {
    const struct weft_model_params *p = weft_model_params(model);
    struct wefti_calib_sizes sizes = {.n_layers = p->n_layers, .n_hidden = p->n_hidden};
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const struct weft_model_layer *layer = &weft_model_layers(model)[i];
        if (layer->wo) sizes.o_dim = weft_max_u32(sizes.o_dim, (uint32_t)layer->wo->dims[1]);
        if (layer->wq_a) sizes.q_rank = weft_max_u32(sizes.q_rank, (uint32_t)layer->wq_a->dims[0]);
        if (layer->w_down)
            sizes.n_ffn = weft_max_u32(sizes.n_ffn, (uint32_t)layer->w_down->dims[1]);
        if (!layer->experts) continue;
        sizes.n_experts = p->moe.n_experts;
        sizes.n_ffn_expert = p->moe.n_ffn;
    }
    return sizes;
}

weft_err wefti_calib_new(const struct wefti_calib_sizes *sizes, weft_eng_calib **calib_out,
                         struct weft_errmsg *why) {
    *calib_out = NULL;
    weft_eng_calib *calib = calloc(1, sizeof *calib);
    if (calib) {
        calib->sizes = *sizes;
        calib->n_columns = wefti_calib_expert_offset(calib, sizes->n_layers, 0);
        calib->sums = calloc(calib->n_columns, sizeof *calib->sums);
        calib->n_rows = calloc(expert_idx(calib, sizes->n_layers, 0), sizeof *calib->n_rows);
    }
    if (!calib || !calib->sums || !calib->n_rows) {
        weft_eng_calib_free(calib);
        return weft_err_set(why, WEFT_E_NOMEM, "no memory to calibrate in");
    }
    *calib_out = calib;
    return WEFT_OK;
}

void weft_eng_calib_free(weft_eng_calib *calib) {
    if (!calib) return;
    free(calib->sums);
    free(calib->n_rows);
    free(calib);
}

static void add_rows(double *sums, const struct wefti_calib_rows *rows) {
    const uint32_t group = rows->group;
    WEFT_ASSERT(group > 0);
    for (uint32_t row = 0; row < rows->n_rows; row++) {
        uint32_t in_group = row % group;
        const uint8_t *begin = rows->data + (row - in_group) * rows->row_bytes;
        const float *x = (const float *)(const void *)begin + in_group;
        for (uint32_t i = 0; i < rows->k; i++, x += group) {
            sums[i] += (double)*x * (double)*x;
        }
    }
}

void wefti_calib_add(weft_eng_calib *calib, uint32_t layer, enum wefti_calib_input input,
                     const struct wefti_calib_rows *rows) {
    WEFT_ASSERT(rows->k <= wefti_calib_columns(calib, input));
    add_rows(calib->sums + wefti_calib_offset(calib, layer, input), rows);
    calib->n_rows[input_idx(calib, layer, input)] += rows->n_rows;
}

void wefti_calib_add_expert(weft_eng_calib *calib, uint32_t layer, uint32_t expert,
                            const struct wefti_calib_rows *rows) {
    WEFT_ASSERT(rows->k == calib->sizes.n_ffn_expert && expert < calib->sizes.n_experts);
    add_rows(calib->sums + wefti_calib_expert_offset(calib, layer, expert), rows);
    calib->n_rows[expert_idx(calib, layer, expert)] += rows->n_rows;
}

bool wefti_calib_fits(const weft_eng_calib *calib, const weft_model *model) {
    const struct wefti_calib_sizes sizes = wefti_calib_sizes_of(model);
    return memcmp(&calib->sizes, &sizes, sizeof sizes) == 0;
}

/* Of n columns that so many rows met; of none, all columns matter alike. */
static void columns_importance(const double *sums, uint32_t n, uint64_t n_rows, double floor_share,
                               float *out) {
    double all = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        all += sums[i];
    }
    double plus = floor_share * all / n;
    for (uint32_t i = 0; i < n; i++) {
        double mean = n_rows ? (sums[i] + plus) / (double)n_rows : 1.0;
        out[i] =
            mean < (double)WEFTI_CALIB_IMPORTANCE_MAX ? (float)mean : WEFTI_CALIB_IMPORTANCE_MAX;
    }
}

static void expert_importance(const weft_eng_calib *calib, uint32_t layer, uint32_t expert,
                              float *out) {
    const size_t at = wefti_calib_expert_offset(calib, layer, expert);
    const uint64_t n_rows = calib->n_rows[expert_idx(calib, layer, expert)];
    const uint32_t n = calib->sizes.n_ffn_expert;
    const double share = n_rows ? (double)EXPERT_ROWS / (double)n_rows : 0.0;
    columns_importance(calib->sums + at, n, n_rows,
                       share > IMPORTANCE_FLOOR ? share : IMPORTANCE_FLOOR, out + at);
}

float *wefti_calib_importance(const weft_eng_calib *calib, uint64_t *hash) {
    const struct wefti_calib_sizes *sizes = &calib->sizes;
    float *out = malloc(calib->n_columns * sizeof *out);
    if (!out) return NULL;
    for (uint32_t layer = 0; layer <= sizes->n_layers; layer++) {
        for (uint32_t i = 0; i < WEFTI_CALIB_LAYER_INPUTS; i++) {
            enum wefti_calib_input input = (enum wefti_calib_input)i;
            if (layer == sizes->n_layers) input = WEFTI_CALIB_HEAD;
            const size_t at = wefti_calib_offset(calib, layer, input);
            if (wefti_calib_columns(calib, input) > 0)
                columns_importance(calib->sums + at, wefti_calib_columns(calib, input),
                                   calib->n_rows[input_idx(calib, layer, input)], IMPORTANCE_FLOOR,
                                   out + at);
        }
        for (uint32_t e = 0; layer < sizes->n_layers && e < sizes->n_experts; e++)
            expert_importance(calib, layer, e, out);
    }
    *hash = XXH64(out, calib->n_columns * sizeof *out, *hash);
    return out;
}
