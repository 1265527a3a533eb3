/* engine/runtime/spill — a file that blocks of the KV cache are written to and read back from.
 *
 * It has no name, so that nothing is left of it however the process ends, and its space is taken at
 * opening where the file system can do that. After an error it is closed: what was in it is lost. */
#ifndef WEFT_ENGINE_SPILL_H
#define WEFT_ENGINE_SPILL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "base/step.h"
#include "runtime/kv_cache.h"

struct wefti_spill {
    int fd;                   /* -1: none */
    _Atomic uint32_t n_slots; /* may be read by any thread; 0: there is no file, or no more */
    uint64_t slot_bytes;
};

/* As large as options->spill_bytes allow; none if these are 0, or if there are windowed layers. IO,
 * INVAL: not even one block fits. */
WEFT_MUST_CHECK weft_err wefti_spill_open(struct wefti_spill *spill,
                                          const struct weft_eng_options *options,
                                          const struct wefti_kv_cache *cache,
                                          struct weft_errmsg *why);
void wefti_spill_close(struct wefti_spill *spill);             /* accepts zeroed ones */
uint32_t wefti_spill_n_slots(const struct wefti_spill *spill); /* any thread */

/* One block. IO: the file is closed. */
WEFT_MUST_CHECK weft_err wefti_spill_write(struct wefti_spill *spill,
                                           const struct wefti_kv_cache *cache,
                                           const struct weft_step_spill *which,
                                           struct weft_errmsg *why);
WEFT_MUST_CHECK weft_err wefti_spill_read(struct wefti_spill *spill,
                                          const struct wefti_kv_cache *cache,
                                          const struct weft_step_spill *which,
                                          struct weft_errmsg *why);

#endif
