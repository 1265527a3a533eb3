/* engine/runtime/options — the options of an engine, checked and named. */
#ifndef WEFT_ENGINE_OPTIONS_H
#define WEFT_ENGINE_OPTIONS_H

#include "engine/engine.h"
#include "model/model.h"

/* INVAL: a size is out of range, or the model's context is shorter than asked for. */
WEFT_MUST_CHECK weft_err wefti_options_check(const struct weft_eng_options *options,
                                             const struct weft_model_params *params,
                                             struct weft_errmsg *why);

/* As --dtype has it: "q8". */
const char *wefti_options_dtype_name(enum weft_eng_dtype dtype);

#endif
