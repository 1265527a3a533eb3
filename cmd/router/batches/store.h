/* store — files and batches on a disk, and what the router knows of them.
 *
 * Folder   lock                 whoever has it locked has the store
 *          files/ID.jsonl       a file's bytes
 *          files/ID.json        what it is; written last, so without it there is no such file
 *          batches/ID.json      a batch
 *          A batch's output and error files grow at files/ID.jsonl while it runs, and get their ID.json at its
 *          end. IDs' names ending in .new or .part are not finished: they go when the store is opened.
 * Crash    Each .json is replaced in whole, each .jsonl only grows; so whatever is killed whenever, what is there is
 *          a state that was.
 * Bounds   Bytes of all files (--batch-store-size), of one (--batch-file-size), their numbers
 *          (WEFT_BATCH_FILES_MAX, WEFT_BATCHES_MAX), and their age (--batch-ttl).
 * Threads  The loop's, but for the functions named in_thread.
 */
#ifndef WEFT_ROUTER_BATCHES_STORE_H
#define WEFT_ROUTER_BATCHES_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "api/batch.h"
#include "batches/io.h"

#define WEFT_BATCH_FILES_MAX 10000u
#define WEFT_BATCHES_MAX 2000u
#define WEFT_BATCH_PATH_BYTES 1200 /* a folder of 1 KiB, and a name in it */

struct stored_file {
    TAILQ_ENTRY(stored_file) entry;
    struct weft_api_file file;
    uint32_t
        n_users; /* batches that read it, and requests, which know it by its id: the store may close first */
    bool is_going; /* its removal is under way */
};

struct batch_run;

struct stored_batch {
    TAILQ_ENTRY(stored_batch) entry;
    struct weft_api_batch batch;
    struct batch_run *run; /* NULL: nothing is done for it now */
};

TAILQ_HEAD(stored_files, stored_file);
TAILQ_HEAD(stored_batches, stored_batch);

struct batch_store {
    char folder[1024];
    int lock_fd; /* -1: it is not ours */
    uint64_t bytes, bytes_max;
    uint32_t n_files, n_batches, ttl_s;
    struct stored_files files; /* both: the newest first */
    struct stored_batches batches;
};

enum batch_path { BATCH_PATH_BYTES, BATCH_PATH_FILE, BATCH_PATH_BATCH, BATCH_PATH_PART };
void wefti_batch_path(const char *folder, enum batch_path what, const char *id,
                      char out[WEFT_BATCH_PATH_BYTES]);

/* Makes the folders where they are missing. INVAL, IO: `why` says what is wrong with them. */
WEFT_MUST_CHECK weft_err wefti_batch_store_init(struct batch_store *store, const char *folder,
                                                struct weft_errmsg *why);
void wefti_batch_store_fini(struct batch_store *store); /* gives the lock back, too */

/* Locks the folder and reads all that is there into `store`, which nobody else uses meanwhile. AGAIN: another
 * process has it. */
WEFT_MUST_CHECK weft_err wefti_batch_store_open_in_thread(struct batch_store *store,
                                                          struct weft_errmsg *why);

/* Another tenant's are not there. NULL: there is none. */
struct stored_file *wefti_batch_find_file(const struct batch_store *store, uint64_t tenant,
                                          const char *id);
/* Whosever it is, on its way out or not. */
struct stored_file *wefti_batch_find_any_file(const struct batch_store *store, const char *id);
/* Ends a use of a file, unless it went with the store. */
void wefti_batch_let_go(const struct batch_store *store, const char *id);
struct stored_batch *wefti_batch_find(const struct batch_store *store, uint64_t tenant,
                                      const char *id);

/* Takes a copy in, as the newest. NULL: no memory. A batch's texts become the store's. */
struct stored_file *wefti_batch_add_file(struct batch_store *store,
                                         const struct weft_api_file *file);
struct stored_batch *wefti_batch_add(struct batch_store *store, const struct weft_api_batch *batch);
void wefti_batch_forget_file(struct batch_store *store, struct stored_file *file);
void wefti_batch_forget(struct batch_store *store, struct stored_batch *batch);

/* Writes what a file or a batch is. */
WEFT_MUST_CHECK weft_err wefti_batch_keep_file_in_thread(const char *folder,
                                                         const struct weft_api_file *file,
                                                         struct weft_errmsg *why);
WEFT_MUST_CHECK weft_err wefti_batch_keep_in_thread(const char *folder,
                                                    const struct weft_api_batch *batch,
                                                    struct weft_errmsg *why);

#endif
