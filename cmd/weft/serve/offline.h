/* offline — the batch of `weft run --batch`: its two files, and how far it is. The router reads and writes
 * (cmd/router/batches/job.h); here is what outlives it.
 *
 * Input    A regular file, or a copy without a name of what comes from a pipe or standard input: a
 *          router reads it again, and so does the next one.
 * Output   The file that --output names, which this run has for itself (a lock). Without --output a file without a
 *          name, of which the answers that last are shown on standard output as they come: a router that dies, and with
 *          it what it did not write, makes none of them come twice.
 */
#ifndef WEFT_SERVE_OFFLINE_H
#define WEFT_SERVE_OFFLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "common/config.h"

struct weft_offline {
    bool is_on;      /* there is such a batch; else all is 0 */
    bool is_shown;   /* on standard output */
    bool is_known;   /* the router has read it, and says: */
    uint32_t n_done; /* lines with an answer, */
    uint32_t n_failed, n_total;
    uint64_t n_bytes; /* of answers that last */
    uint64_t n_shown; /* and of those that standard output has */
    uint64_t said_ms; /* when, and how far it was */
    uint32_t said_percent;
};

/* Opens both, into batch_fd and answers_fd of the settings. AGAIN: another run has the output; IO, NOTFOUND, NOMEM. */
WEFT_MUST_CHECK weft_err weft_offline_open(struct weft_offline *offline, struct weft_config *config,
                                           struct weft_errmsg *why);

/* Takes in what the router says: "DONE FAILED TOTAL BYTES". */
void weft_offline_take(struct weft_offline *offline, const char *text, uint64_t now_ms);

/* Shows answers, as many as standard output takes without waiting. IO: it takes none any more. */
WEFT_MUST_CHECK weft_err weft_offline_show(struct weft_offline *offline, int answers_fd,
                                           struct weft_errmsg *why);

/* Every line has its answer, which is where it belongs. */
bool weft_offline_is_over(const struct weft_offline *offline);
/* Answers wait for standard output. */
bool weft_offline_lags(const struct weft_offline *offline);

#endif
