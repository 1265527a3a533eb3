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

/* Every column gets this share of the mean over its matrix's columns on top: one that the text left
 * idle still matters a little. */
#define IMPORTANCE_FLOOR 0.01

struct weft_eng_calib {
    uint32_t n_layers, n_hidden, q_dim, n_ffn;
    size_t n_columns;
    double *sums;     /* [n_columns], of squares */
    uint64_t *n_rows; /* [n_layers * WEFTI_CALIB_LAYER_INPUTS + 1] */
};

static size_t layer_columns(const weft_eng_calib *calib) {
    return 2 * (size_t)calib->n_hidden + calib->q_dim + calib->n_ffn;
}

size_t wefti_calib_offset(const weft_eng_calib *calib, uint32_t layer,
                          enum wefti_calib_input input) {
    size_t at = layer * layer_columns(calib);
    switch (input) {
    case WEFTI_CALIB_QKV:
        return at;
    case WEFTI_CALIB_O:
        return at + calib->n_hidden;
    case WEFTI_CALIB_FFN:
        return at + calib->n_hidden + calib->q_dim;
    case WEFTI_CALIB_DOWN:
        return at + 2 * (size_t)calib->n_hidden + calib->q_dim;
    case WEFTI_CALIB_HEAD:
    case WEFTI_CALIB_ROUTER:
        break;
    }
    return calib->n_layers * layer_columns(calib);
}

static uint32_t input_columns(const weft_eng_calib *calib, enum wefti_calib_input input) {
    if (input == WEFTI_CALIB_O) return calib->q_dim;
    return input == WEFTI_CALIB_DOWN ? calib->n_ffn : calib->n_hidden;
}

static size_t input_idx(const weft_eng_calib *calib, uint32_t layer, enum wefti_calib_input input) {
    return (size_t)(input == WEFTI_CALIB_HEAD ? calib->n_layers : layer) *
               WEFTI_CALIB_LAYER_INPUTS +
           (input == WEFTI_CALIB_HEAD ? 0 : (size_t)input);
}

weft_err wefti_calib_new(uint32_t n_layers, uint32_t n_hidden, uint32_t q_dim, uint32_t n_ffn,
                         weft_eng_calib **calib_out, struct weft_errmsg *why) {
    *calib_out = NULL;
    weft_eng_calib *calib = calloc(1, sizeof *calib);
    if (calib) {
        *calib = (weft_eng_calib){n_layers, n_hidden, q_dim, n_ffn, 0, NULL, NULL};
        calib->n_columns = wefti_calib_offset(calib, 0, WEFTI_CALIB_HEAD) + n_hidden;
        calib->sums = calloc(calib->n_columns, sizeof *calib->sums);
        calib->n_rows =
            calloc((size_t)n_layers * WEFTI_CALIB_LAYER_INPUTS + 1, sizeof *calib->n_rows);
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

void wefti_calib_add(weft_eng_calib *calib, uint32_t layer, enum wefti_calib_input input,
                     const struct wefti_calib_rows *rows) {
    WEFT_ASSERT(rows->group > 0);
    double *sums = calib->sums + wefti_calib_offset(calib, layer, input);
    uint32_t n = input_columns(calib, input), group = rows->group;
    for (uint32_t row = 0; row < rows->n_rows; row++) {
        uint32_t in_group = row % group;
        const uint8_t *begin = rows->data + (row - in_group) * rows->row_bytes;
        const float *x = (const float *)(const void *)begin + in_group;
        for (uint32_t i = 0; i < n; i++, x += group) {
            sums[i] += (double)*x * (double)*x;
        }
    }
    calib->n_rows[input_idx(calib, layer, input)] += rows->n_rows;
}

bool wefti_calib_fits(const weft_eng_calib *calib, const struct weft_model_params *p) {
    return calib->n_layers == p->n_layers && calib->n_hidden == p->n_hidden &&
           calib->q_dim == p->n_heads * p->head_dim && calib->n_ffn == p->n_ffn;
}

static void input_importance(const weft_eng_calib *calib, uint32_t layer,
                             enum wefti_calib_input input, float *out) {
    size_t at = wefti_calib_offset(calib, layer, input);
    uint32_t n = input_columns(calib, input);
    uint64_t n_rows = calib->n_rows[input_idx(calib, layer, input)];
    double all = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        all += calib->sums[at + i];
    }
    double plus = IMPORTANCE_FLOOR * all / n;
    for (uint32_t i = 0; i < n; i++) {
        double mean = n_rows ? (calib->sums[at + i] + plus) / (double)n_rows : 0.0;
        out[at + i] =
            mean < (double)WEFTI_CALIB_IMPORTANCE_MAX ? (float)mean : WEFTI_CALIB_IMPORTANCE_MAX;
    }
}

float *wefti_calib_importance(const weft_eng_calib *calib, uint64_t *hash) {
    float *out = malloc(calib->n_columns * sizeof *out);
    if (!out) return NULL;
    for (uint32_t layer = 0; layer < calib->n_layers; layer++) {
        for (uint32_t input = 0; input < WEFTI_CALIB_LAYER_INPUTS; input++) {
            input_importance(calib, layer, (enum wefti_calib_input)input, out);
        }
    }
    input_importance(calib, 0, WEFTI_CALIB_HEAD, out);
    *hash = XXH64(out, calib->n_columns * sizeof *out, *hash);
    return out;
}
