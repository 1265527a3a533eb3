/* Two passes over the same text. The first runs the model as it is, in f32, and notes the
 * activations that each column of each matrix meets. The second measures the cost of quantising one
 * layer while all others stay as they are: an engine per layer, since packing takes less time than
 * the text does. */
#include "quantise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model/model.h"
#include "score.h"

enum {
    CALIBRATION_TOKENS = 4096,
    MIXED_TOKENS = 2048, /* all runs use the same ones, so a few suffice */
};

/* An engine for such a text and nothing else. */
static struct weft_eng_options for_text(const struct weft_eng_options *options) {
    struct weft_eng_options own = *options;
    own.block_size = 16;
    own.max_seqs = 1;
    own.max_batched_tokens = 512;
    own.kv_memory_bytes = 0;
    own.weights_fd = -1;
    own.calib = NULL;
    own.layer_dtypes = NULL;
    own.n_layer_dtypes = 0;
    return own;
}

static struct weft_eng_options unquantised(const struct weft_eng_options *options) {
    struct weft_eng_options own = for_text(options);
    own.dtype = WEFT_ENG_DT_AUTO;
    own.scheme = WEFT_ENG_SCHEME_AUTO;
    if (own.activations == WEFT_ENG_ACT_INT8) own.activations = WEFT_ENG_ACT_AUTO;
    return own;
}

static weft_err calibrate(const char *model, const struct weft_eng_options *options,
                          const struct weft_score_text *text, weft_eng_calib **calib_out,
                          struct weft_errmsg *why) {
    struct weft_eng_options exact = unquantised(options);
    struct weft_score score;
    weft_eng *eng = NULL;
    exact.activations = WEFT_ENG_ACT_F32;
    weft_err err = weft_eng_open(model, &exact, &eng, why);
    if (!err) err = weft_eng_calibrate(eng, calib_out, why);
    if (!err) err = weft_score_run(eng, NULL, text, CALIBRATION_TOKENS, &score, why);
    weft_eng_free(eng);
    return err;
}

/* ------------------------------------------------------------------------------------ mixed --- */

struct layer_cost {
    uint32_t layer;
    double cost; /* of the perplexity, as a part of it */
};

static weft_err perplexity_of(const char *model, const struct weft_eng_options *options,
                              const struct weft_score_text *text, double *out,
                              uint32_t *n_layers_out, struct weft_errmsg *why) {
    struct weft_score score;
    weft_eng *eng = NULL;
    weft_err err = weft_eng_open(model, options, &eng, why);
    if (!err) err = weft_score_run(eng, NULL, text, MIXED_TOKENS, &score, why);
    if (!err) {
        *out = weft_score_perplexity(&score);
        *n_layers_out = weft_eng_info(eng)->n_layers;
    }
    weft_eng_free(eng);
    return err;
}

static int by_cost(const void *a, const void *b) {
    const struct layer_cost *x = a, *y = b;
    if (x->cost != y->cost) return x->cost > y->cost ? -1 : 1;
    return x->layer < y->layer ? -1 : x->layer > y->layer;
}

/* `costs` from the highest down: how many of them are kept wider. */
static uint32_t n_to_keep(const struct layer_cost *costs, uint32_t n, int32_t asked) {
    if (asked >= 0) return (uint32_t)asked < n ? (uint32_t)asked : n;
    double median = n % 2 ? costs[n / 2].cost : (costs[n / 2 - 1].cost + costs[n / 2].cost) / 2;
    uint32_t most = n < 4 ? 1 : n / 4, kept = 0;
    while (kept < most && costs[kept].cost > 0.0 && costs[kept].cost > 2.0 * median)
        kept++;
    return kept;
}

struct layers {
    enum weft_eng_dtype *dtypes; /* [n] */
    struct layer_cost *costs;    /* [n] */
    uint32_t n;
    double whole; /* the perplexity with no layer quantised */
};

static weft_err measure_layers(const char *model, const struct weft_eng_options *options,
                               const struct weft_score_text *text, const struct layers *layers,
                               struct weft_errmsg *why) {
    enum weft_eng_dtype *dtypes = layers->dtypes;
    const uint32_t n_layers = layers->n;
    struct weft_eng_options one = for_text(options);
    one.dtype = WEFT_ENG_DT_AUTO;
    one.calib = options->calib;
    one.layer_dtypes = dtypes;
    one.n_layer_dtypes = n_layers;
    for (uint32_t i = 0; i < n_layers; i++)
        dtypes[i] = WEFT_ENG_DT_AUTO;
    for (uint32_t i = 0; i < n_layers; i++) {
        double perplexity = 0.0;
        uint32_t same = 0;
        dtypes[i] = options->dtype;
        weft_err err = perplexity_of(model, &one, text, &perplexity, &same, why);
        dtypes[i] = WEFT_ENG_DT_AUTO;
        if (err) return err;
        layers->costs[i] = (struct layer_cost){i, perplexity / layers->whole - 1.0};
        printf("%5u  %12.4f  %+8.3f %%\n", i, perplexity, 100.0 * layers->costs[i].cost);
        (void)fflush(stdout);
    }
    return WEFT_OK;
}

static void keep_wider(const struct weft_config *config, enum weft_eng_dtype dtype,
                       enum weft_eng_dtype *dtypes, struct layer_cost *costs, uint32_t n_layers) {
    qsort(costs, n_layers, sizeof *costs, by_cost);
    uint32_t n = n_to_keep(costs, n_layers, config->mixed_keep);
    for (uint32_t i = 0; i < n_layers; i++)
        dtypes[i] = dtype;
    printf("kept %s: ", dtype == WEFT_ENG_DT_Q4 ? "in 8 bits" : "as in the file");
    for (uint32_t i = 0; i < n; i++) {
        dtypes[costs[i].layer] = dtype == WEFT_ENG_DT_Q4 ? WEFT_ENG_DT_Q8 : WEFT_ENG_DT_AUTO;
        printf("%slayer %u", i ? ", " : "", costs[i].layer);
    }
    printf("%s\n", n ? "" : "no layer");
}

static weft_err mix(const struct weft_config *config, struct weft_eng_options *options,
                    const struct weft_score_text *text, struct weft_quant *quant,
                    struct weft_errmsg *why) {
    struct weft_eng_options plain = unquantised(options);
    double whole = 0.0;
    uint32_t n_layers = 0;
    weft_err err = perplexity_of(config->model, &plain, text, &whole, &n_layers, why);
    if (err) return err;
    quant->layer_dtypes = calloc(n_layers, sizeof *quant->layer_dtypes);
    struct layer_cost *costs = calloc(n_layers, sizeof *costs);
    if (!quant->layer_dtypes || !costs) {
        free(costs);
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for a list of layers");
    }
    printf("layer    perplexity       cost\n none  %12.4f\n", whole);
    struct layers layers = {quant->layer_dtypes, costs, n_layers, whole};
    err = measure_layers(config->model, options, text, &layers, why);
    if (!err) {
        keep_wider(config, options->dtype, quant->layer_dtypes, costs, n_layers);
        options->layer_dtypes = quant->layer_dtypes;
        options->n_layer_dtypes = n_layers;
    }
    free(costs);
    return err;
}

/* ----------------------------------------------------------------------------------- choice --- */

static weft_err check_source(const struct weft_config *config, struct weft_errmsg *why) {
    weft_model *model = NULL;
    weft_err err = weft_model_open(config->model, &model, why);
    if (!err && weft_model_packed(model))
        err = weft_err_set(why, WEFT_E_INVAL, "%s is packed already: calibrate its source",
                           config->model);
    weft_model_free(model);
    return err;
}

weft_err weft_quant_choose(const struct weft_config *config, struct weft_eng_options *options,
                           struct weft_quant *quant_out, struct weft_errmsg *why) {
    struct weft_score_text text = {0};
    *quant_out = (struct weft_quant){0};
    weft_err err = weft_eng_parse_clip(config->calibration, &options->clip);
    if (err)
        return weft_err_set(why, err,
                            "--calibration is error, minmax, percentile or entropy, not \"%s\"",
                            config->calibration);
    if (!config->calibrate) return WEFT_OK;
    err = check_source(config, why);
    if (!err) err = weft_score_read(config->model, config->calibrate, &text, why);
    if (!err && options->clip != WEFT_ENG_CLIP_MINMAX)
        err = calibrate(config->model, options, &text, &quant_out->calib, why);
    options->calib = quant_out->calib;
    if (!err && config->mixed) err = mix(config, options, &text, quant_out, why);
    weft_score_text_fini(&text);
    return err;
}

void weft_quant_fini(struct weft_quant *quant) {
    weft_eng_calib_free(quant->calib);
    free(quant->layer_dtypes);
    *quant = (struct weft_quant){0};
}
