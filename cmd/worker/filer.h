/* filer — the thread that writes sessions to files and reads them back, beside steps.
 *
 * Model    Control hands it one wish of the scheduler's at a time and fetches the answer. Between the
 *          two the wish's blocks are nobody else's, so it needs no lock for the KV cache.
 * Epochs   When one begins, blocks are given out anew: wefti_filer_call_off comes first. What is
 *          written then gets no name, and what is read ends with the block at hand.
 * Threads  Control calls all functions. One atomic word says whose the wish and its answer are, a
 *          semaphore wakes the thread, an eventfd wakes control.
 */
#ifndef WEFT_WORKER_FILER_H
#define WEFT_WORKER_FILER_H

#include <stdbool.h>

#include "base/err.h"
#include "base/session.h"
#include "engine/session_file.h"

typedef struct wefti_filer wefti_filer;

/* The engine, and dir, which may be NULL (every wish is answered with a sentence), outlive it. */
WEFT_MUST_CHECK weft_err wefti_filer_start(weft_eng *eng, const char *dir, uint64_t dir_bytes_max,
                                           wefti_filer **filer_out, struct weft_errmsg *why);
/* False: it hangs on its file, and the process should just exit. Accepts NULL. */
bool wefti_filer_stop(wefti_filer *filer, uint32_t wait_ms_max);

int wefti_filer_fd(const wefti_filer *filer); /* readable (POLLIN) when it has an answer */

/* Copies the wish. AGAIN: it is busy; NOMEM. */
WEFT_MUST_CHECK weft_err wefti_filer_ask(wefti_filer *filer, const struct weft_kv_file *wish,
                                         struct weft_errmsg *why);
/* The answer, valid until the next wish. False: none now. */
bool wefti_filer_next(wefti_filer *filer, struct weft_kv_filed *filed_out);

/* Before blocks are given out anew. False: it hangs on a read, and could write to them any time. */
bool wefti_filer_call_off(wefti_filer *filer, uint32_t wait_ms_max);

#endif
