/* serve/foresee — what `weft serve` would give its workers, for who wants to know before it starts. */
#ifndef WEFT_SERVE_FORESEE_H
#define WEFT_SERVE_FORESEE_H

#include "base/err.h"
#include "common/config.h"
#include "engine/engine.h"

struct weft_serve_foreseen {
    uint32_t n_workers, n_ranks;     /* of a group; 1: each has all of the model */
    struct weft_eng_options options; /* of the first worker; its strings are of static storage */
};

/* `config` is that of a program whose settings are among those of `weft serve`. Bounds that follow from
 * --memory-limit are told as serve does. Errors of `weft serve` before it starts anything. A group in `options`
 * is for sizes alone, and stays for the process's life. */
WEFT_MUST_CHECK weft_err weft_serve_foresee(const struct weft_config *config,
                                            struct weft_serve_foreseen *out,
                                            struct weft_errmsg *why);

#endif
