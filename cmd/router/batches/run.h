/* run — a batch that is being computed; what its threads (lines.c) and the loop (run.c) share.
 *
 * Phases   OPENING: a thread reads and checks the input, some of its lines at a time, and what is
 *          answered already. ON: lines are asked and answers written. CLOSING: a thread ends the
 *          files and the batch.
 * Threads  While `op` is out everything but the list's entry and `items` belongs to its thread; while `is_reading`
 *          or `is_writing` what the comments say.
 */
#ifndef WEFT_ROUTER_BATCHES_RUN_H
#define WEFT_ROUTER_BATCHES_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "api/batch.h"
#include "api/call.h"
#include "base/buf.h"
#include "base/request.h"
#include "batches/io.h"
#include "batches/job.h"
#include "batches/store.h"

#define READ_LINES_MAX 16

enum run_phase { RUN_OPENING, RUN_ON, RUN_CLOSING };

struct line_place {
    uint64_t at;
    uint32_t n_bytes;
    uint8_t n_failures; /* for want of memory */
    bool is_taken;      /* it has an answer, or is under way */
};

struct line_name {           /* to find two of one name, or the line that an answer is to */
    struct weft_digest name; /* of its custom_id; zeros: it has none */
    uint32_t idx, line;      /* its place, and its line in the file, from 1 on */
};

struct batch_item { /* a line that is under way */
    TAILQ_ENTRY(batch_item) entry, ready_entry;
    struct batch_run *run;
    uint32_t idx;
    bool is_ready;
    bool waits;      /* it would be ready, but too many answers are not written yet */
    uint64_t n_held; /* for its text, of the budget for bodies, until its call holds its own */
    struct weft_api_batch_line line;
    bool is_fair; /* else: */
    struct weft_api_batch_fault fault;
    weft_api_call *call;
    struct weft_buf body; /* of its answer, as far as it is rendered */
    char id[64];          /* of its request */
};

struct run_read {       /* lines being read */
    struct batch_op op; /* first */
    struct batch_run *run;
    uint32_t n, n_read; /* of `items`; all of them, or as many as found room: */
    uint64_t n_bytes_max;
    struct batch_item *items[READ_LINES_MAX];
};

enum { ANSWERS_OUTPUT, ANSWERS_ERROR, N_ANSWERS };

struct run_write {      /* answers being written */
    struct batch_op op; /* first */
    struct batch_run *run;
    struct weft_buf bytes[N_ANSWERS];
    uint32_t n[N_ANSWERS];
};

struct checking; /* lines.c */

struct batch_run {
    struct batch_op op; /* first: opening and closing */
    TAILQ_ENTRY(batch_run) entry;
    struct batches *all;
    const struct batch_job *job; /* NULL: the batch is the store's */
    struct stored_batch *stored;
    enum run_phase phase;
    struct weft_api_batch batch; /* a copy, whose texts are the store's */
    bool expires;                /* it is closed for that */
    int64_t now_s;               /* when `op` was begun */
    const char *folder;          /* of the store */
    uint32_t ttl_s;              /* of the files that it leaves */
    uint64_t line_bytes_max;
    size_t json_bytes_max; /* of a line, while it is read */
    char *faults;          /* n_faults of lines, owned: the batch has failed */
    int input_fd, fds[N_ANSWERS];
    char paths[N_ANSWERS][WEFT_BATCH_PATH_BYTES];
    uint64_t n_bytes[N_ANSWERS];
    uint32_t n_answers[N_ANSWERS]; /* in the files */
    struct line_place *places;     /* [n_places] */
    uint32_t n_places, next;       /* all below are taken */
    uint32_t n_lines_max, n_faults;
    struct checking *checking; /* owned: the input is not read to its end yet */
    struct line_name *names;   /* [n_places] in order, while it is opened */
    TAILQ_HEAD(, batch_item) items;
    uint32_t n_items;
    struct weft_buf pending[N_ANSWERS];
    uint32_t n_pending[N_ANSWERS];
    struct run_read read;   /* these two: the thread's while they are out */
    struct run_write write; /* after an error its bytes are still to be written */
    bool is_reading, is_writing;
    bool lacks_room;        /* for the answers that it has */
    bool is_lost;           /* it is to be opened again */
    uint64_t n_counted;     /* bytes of its answers that the store counts */
    uint64_t wait_until_ms; /* before that nothing is begun */
};

/* Closes all files, and knows nothing of them: as before it was opened. */
void wefti_batch_run_forget(struct batch_run *run);
/* What an answer file is, once it is whole. */
void wefti_batch_answer_file(const struct batch_run *run, int which, struct weft_api_file *out);

void wefti_batch_open_in_thread(struct batch_op *op); /* again while `checking` is there */
void wefti_batch_close_in_thread(struct batch_op *op);
void wefti_batch_read_in_thread(struct batch_op *op);
void wefti_batch_write_in_thread(struct batch_op *op);

int wefti_batch_by_name(const void *a, const void *b); /* of struct line_name */
/* Opens the answers of a job, and marks the lines that have theirs. PROTO: the file is none of answers. */
WEFT_MUST_CHECK weft_err wefti_batch_resume_in_thread(struct batch_run *run,
                                                      struct weft_errmsg *why);

#endif
