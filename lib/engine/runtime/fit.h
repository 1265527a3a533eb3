/* engine/runtime/fit — whether an engine fits into the memory there is, before it takes any.
 *
 * A process over its limit is killed without a word, again and again where somebody restarts it; so
 * the sum is made first. It errs on the side of trying: whatever the kernel could free counts as
 * free, and what is mapped from a file counts as nothing. */
#ifndef WEFT_ENGINE_FIT_H
#define WEFT_ENGINE_FIT_H

#include <stdint.h>

#include "base/cpu.h"
#include "engine/engine.h"

/* `to_come`: of all copies of the weights, what is not in memory yet; 0 means that others of n_sharers may have
 * taken their part already, so only this engine's counts. NOMEM: it does not fit; `why` has the
 * numbers and what would help. */
WEFT_MUST_CHECK weft_err wefti_fit_check(const struct weft_eng_loading *loading, uint64_t to_come,
                                         const struct weft_mem_room *room, struct weft_errmsg *why);

/* The same for a limit that somebody set, against which all counts that there is or will be. */
WEFT_MUST_CHECK weft_err wefti_fit_check_limit(const struct weft_eng_loading *loading,
                                               struct weft_errmsg *why);

/* What of a limit is not the engines'; and what requests may take once: 0 if no term says so. */
uint64_t wefti_fit_beside(const struct weft_eng_limit *limit);
uint64_t wefti_fit_requests(const struct weft_eng_limit *limit);

/* What adapters take where there is a limit: so much may be theirs (0: nobody said), and beside them there
 * is the file of the one that is read; and what may be theirs by default. */
uint64_t wefti_fit_lora_need(uint64_t lora_bytes);
uint64_t wefti_fit_lora_bytes_within(uint64_t limit_bytes);
/* What the vocabulary takes: in the router, and where grammars are followed. */
uint64_t wefti_fit_vocab_bytes(uint32_t n_vocab);

/* What adapters of one engine may take by default: a third of what the limit leaves beside all weights, caches
 * and scratch, shared by n_sharers. It follows from sizes alone, so one that is opened anew has room for
 * what the one before had. A limit that is not known is none. */
uint64_t wefti_fit_lora_bytes(const struct weft_eng_loading *loading);

#endif
