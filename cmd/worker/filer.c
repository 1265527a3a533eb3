#include "filer.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/limits.h"
#include "join.h"

/* Whose wish and answer are: control's, unless it is BUSY. */
enum turn { IDLE, BUSY, ANSWERED };

struct wefti_filer {
    weft_eng *eng;
    struct weft_eng_session_folder folder;
    pthread_t thread;
    sem_t wake; /* a post per wish, and one to stop */
    int done_fd;
    _Atomic bool stopping, is_called_off;
    _Atomic int turn; /* release by whoever hands over, acquire by whoever takes */

    struct weft_kv_file wish;
    char name[WEFT_SESSION_FILE_BYTES_MAX + 1];
    uint32_t *storage; /* of its tokens and blocks */
    struct weft_kv_filed filed;
    struct weft_errmsg why;

    /* The thread's. */
    weft_eng_session_file *file; /* opened last; its tokens are in the answer */
    uint64_t file_id;
};

/* ------------------------------------------------------------------------------- the thread --- */

static struct weft_eng_session_blocks blocks_of(const struct weft_kv_file *wish) {
    struct weft_eng_session_blocks blocks;
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        blocks.blocks[kind] = wish->blocks[kind];
        blocks.n[kind] = wish->n_blocks[kind];
    }
    return blocks;
}

static weft_err save(wefti_filer *f) {
    const struct weft_kv_file *wish = &f->wish;
    const struct weft_eng_session session = {
        .tenant = wish->tenant,
        .space_hi = wish->space_hi,
        .space_lo = wish->space_lo,
        .tokens = wish->tokens,
        .n_tokens = wish->n_tokens,
        .blocks = blocks_of(wish),
    };
    return weft_eng_session_save(f->eng, &f->folder, f->name, &session, &f->filed.n_bytes, &f->why);
}

static void close_file(wefti_filer *f) {
    weft_eng_session_close(f->file);
    f->file = NULL;
}

static weft_err open_file(wefti_filer *f) {
    close_file(f);
    weft_err err =
        weft_eng_session_open(f->eng, &f->folder, f->name, f->wish.tenant, &f->file, &f->why);
    if (err) return err;
    const struct weft_eng_session *session = weft_eng_session_of(f->file);
    f->file_id = f->wish.id;
    f->filed.space_hi = session->space_hi;
    f->filed.space_lo = session->space_lo;
    f->filed.tokens = session->tokens;
    f->filed.n_tokens = session->n_tokens;
    return WEFT_OK;
}

static weft_err read_file(wefti_filer *f) {
    const struct weft_eng_session_blocks blocks = blocks_of(&f->wish);
    if (!f->file || f->file_id != f->wish.id)
        return weft_err_set(&f->why, WEFT_E_STATE, "'%s' was not opened", f->name);
    weft_err err = weft_eng_session_read(f->eng, f->file, &blocks, &f->why);
    if (!err) f->filed.n_bytes = weft_eng_session_bytes(f->file);
    close_file(f);
    return err;
}

static weft_err carry_out(wefti_filer *f) {
    if (!f->folder.dir)
        return weft_err_set(&f->why, WEFT_E_UNSUPPORTED,
                            "this server has no folder for sessions: it was started without "
                            "--session-dir");
    if (f->wish.op == WEFT_KV_FILE_OPEN) return open_file(f);
    return f->wish.op == WEFT_KV_FILE_SAVE ? save(f) : read_file(f);
}

static void *filer_main(void *arg) {
    wefti_filer *f = arg;
    for (;;) {
        while (sem_wait(&f->wake) != 0) {
            WEFT_ASSERT(errno == EINTR);
        }
        if (atomic_load(&f->stopping)) return NULL;
        WEFT_ASSERT(atomic_load_explicit(&f->turn, memory_order_acquire) == BUSY);
        f->why.text[0] = '\0';
        f->filed = (struct weft_kv_filed){.epoch = f->wish.epoch, .id = f->wish.id};
        f->filed.err = carry_out(f);
        f->filed.text = f->why.text;
        atomic_store_explicit(&f->turn, ANSWERED, memory_order_release);
        uint64_t one = 1;
        ssize_t n = write(f->done_fd, &one, sizeof one);
        (void)n; /* fails only if the counter is full, and then control is awake anyway */
    }
}

/* ------------------------------------------------------------------------- control's side --- */

static void filer_free(wefti_filer *f) {
    weft_eng_session_close(f->file);
    if (f->done_fd >= 0) (void)close(f->done_fd);
    (void)sem_destroy(&f->wake);
    free(f->storage);
    free(f);
}

weft_err wefti_filer_start(weft_eng *eng, const char *dir, uint64_t dir_bytes_max,
                           wefti_filer **filer_out, struct weft_errmsg *why) {
    *filer_out = NULL;
    wefti_filer *f = calloc(1, sizeof *f);
    if (!f) return weft_err_set(why, WEFT_E_NOMEM, "no memory for the thread of files");
    f->eng = eng;
    f->folder = (struct weft_eng_session_folder){dir, dir_bytes_max, &f->is_called_off};
    (void)sem_init(&f->wake, 0, 0);
    f->done_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int status = f->done_fd < 0 ? errno : pthread_create(&f->thread, NULL, filer_main, f);
    if (status != 0) {
        filer_free(f);
        return weft_err_errno(why, status, "cannot start the thread of files");
    }
    (void)pthread_setname_np(f->thread, "weft-file");
    *filer_out = f;
    return WEFT_OK;
}

bool wefti_filer_stop(wefti_filer *f, uint32_t wait_ms_max) {
    if (!f) return true;
    atomic_store(&f->is_called_off, true);
    atomic_store(&f->stopping, true);
    (void)sem_post(&f->wake);
    if (!wefti_join_within(f->thread, wait_ms_max)) return false;
    filer_free(f);
    return true;
}

int wefti_filer_fd(const wefti_filer *f) {
    return f->done_fd;
}

static bool is_busy(const wefti_filer *f) {
    return atomic_load_explicit(&f->turn, memory_order_acquire) == BUSY;
}

weft_err wefti_filer_ask(wefti_filer *f, const struct weft_kv_file *wish, struct weft_errmsg *why) {
    if (is_busy(f))
        return weft_err_set(why, WEFT_E_AGAIN, "the worker still has to do with another file");
    size_t n_words = wish->n_tokens;
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++)
        n_words += wish->n_blocks[kind];
    uint32_t *storage = malloc((n_words + 1) * sizeof *storage);
    if (!storage) return weft_err_set(why, WEFT_E_NOMEM, "no memory to save or restore a session");
    free(f->storage);
    f->storage = storage;
    f->wish = *wish;
    (void)snprintf(f->name, sizeof f->name, "%.*s", (int)wish->name.len, wish->name.data);
    f->wish.tokens = storage;
    if (wish->n_tokens) memcpy(storage, wish->tokens, wish->n_tokens * sizeof *storage);
    storage += wish->n_tokens;
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        uint32_t n = wish->n_blocks[kind];
        if (n) memcpy(storage, wish->blocks[kind], n * sizeof *storage);
        f->wish.blocks[kind] = storage;
        storage += n;
    }
    atomic_store(&f->is_called_off, false);
    atomic_store_explicit(&f->turn, BUSY, memory_order_release);
    (void)sem_post(&f->wake);
    return WEFT_OK;
}

bool wefti_filer_next(wefti_filer *f, struct weft_kv_filed *filed_out) {
    uint64_t count;
    ssize_t n = read(f->done_fd, &count, sizeof count);
    (void)n; /* an empty eventfd is fine */
    if (atomic_load_explicit(&f->turn, memory_order_acquire) != ANSWERED) return false;
    *filed_out = f->filed;
    atomic_store_explicit(&f->turn, IDLE, memory_order_relaxed);
    return true;
}

bool wefti_filer_call_off(wefti_filer *f, uint32_t wait_ms_max) {
    const struct timespec ms = {.tv_nsec = 1000000};
    atomic_store(&f->is_called_off, true);
    if (!is_busy(f) || f->wish.op != WEFT_KV_FILE_READ) return true;
    for (uint32_t i = 0; i < wait_ms_max && is_busy(f); i++)
        (void)nanosleep(&ms, NULL);
    return !is_busy(f);
}
