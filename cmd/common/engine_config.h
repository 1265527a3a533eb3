/* engine_config — the settings of the command line as the engine's options. */
#ifndef WEFT_CMD_ENGINE_CONFIG_H
#define WEFT_CMD_ENGINE_CONFIG_H

#include "base/err.h"
#include "common/config.h"
#include "engine/engine.h"

/* WEFT_E_INVAL, UNSUPPORTED: the sentence names the flag. */
WEFT_MUST_CHECK weft_err weft_engine_config(const struct weft_config *config,
                                            struct weft_eng_options *options_out,
                                            struct weft_errmsg *why);

#endif
