/* quantise — --calibrate and --mixed, which examine a model before its weights are packed. */
#ifndef WEFT_CMD_WEFT_QUANTISE_H
#define WEFT_CMD_WEFT_QUANTISE_H

#include "base/err.h"
#include "common/config.h"
#include "engine/engine.h"

struct weft_quant {
    weft_eng_calib *calib;
    enum weft_eng_dtype *layer_dtypes; /* [options.n_layer_dtypes] */
};

/* Runs the text of --calibrate through the model and, with --mixed, through one with each layer
 * quantised alone, of which it prints a table. `options`, those the model is to be packed with,
 * then point into *quant_out, which must outlive the opening. Nothing asked for: nothing done.
 * INVAL: flags that do not go together. */
WEFT_MUST_CHECK weft_err weft_quant_choose(const struct weft_config *config,
                                           struct weft_eng_options *options,
                                           struct weft_quant *quant_out, struct weft_errmsg *why);
void weft_quant_fini(struct weft_quant *quant); /* accepts zeroed ones */

#endif
