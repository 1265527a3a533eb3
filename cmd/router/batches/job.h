/* job — the batch of `weft run --batch`: it comes from a file and not from a client, no store knows it, and when its
 * lines are answered the server ends.
 *
 * Files    Both are descriptors that the supervisor has opened, and keeps for the next router. All answers go to one
 *          file, whatever their status. It may have answers already, of any earlier run: lines of
 *          the same custom_id are not asked again. A last line that is not whole is cut off; a file
 *          of anything else is left as it is.
 * Errors   Nobody could take away what hinders it, such as a full disk, and look how it goes on: the server ends with
 *          a sentence, and the same command goes on.
 * Threads  The loop's. The files are read and written as those of other batches are (lines.c, resume.c).
 */
#ifndef WEFT_ROUTER_BATCHES_JOB_H
#define WEFT_ROUTER_BATCHES_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define WEFT_BATCH_JOB_LINES_MAX 1000000u /* 40 bytes of each are in memory */
#define WEFT_BATCH_JOB_ITEMS_MAX 4096u    /* lines under way */

struct batches;

struct batch_job {
    int input_fd, output_fd; /* -1: there is no job */
    uint64_t n_bytes;        /* of answers that last, as was told */
    uint64_t told_ms;
    bool is_over;    /* every line has its answer, or: */
    bool has_failed; /* there is no use in going on; the server looks here */
    struct weft_errmsg failure;
};

/* The batch, as if a client had made it. NOMEM. */
WEFT_MUST_CHECK weft_err wefti_batch_job_begin(struct batches *all, struct weft_errmsg *why);
/* Tells the supervisor how far it is, from time to time. */
void wefti_batch_job_tick(struct batches *all, uint64_t now_ms);
/* It is over, in whatever way; `n_faults` of its lines are no requests. */
void wefti_batch_job_end(struct batches *all, uint32_t n_faults);
void wefti_batch_job_fail(struct batches *all, const char *why);

#endif
