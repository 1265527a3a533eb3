/* loading — what people and the supervisor are told while an engine opens.
 *
 * A quick load is one line at its end. One that takes longer is a bar on a terminal, rewritten in
 * place, and elsewhere a line from time to time. */
#ifndef WEFT_CMD_LOADING_H
#define WEFT_CMD_LOADING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config.h"
#include "engine/engine.h"

struct weft_loading {
    int status_fd;
    /* weft_now_ms, or the clock of a test, which sets begin_ms by it. */
    uint64_t (*now_ms)(void);
    uint64_t begin_ms, told_ms; /* told_ms 0: nothing was told yet */
    bool on_terminal, has_begun;
};

/* From now on `options` tell `loading`, which is to live as long as the engine opens. */
void weft_loading_begin(struct weft_loading *loading, const struct weft_config *config,
                        struct weft_eng_options *options);
/* It is open, or will not be: takes the bar away. */
void weft_loading_end(const struct weft_loading *loading);
/* The line of a load that has ended well. */
void weft_loading_log(const struct weft_loading *loading, const struct weft_eng_info *info);

#endif
