#include "batches/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"

#define OBJECT_BYTES_MAX (64u << 10)

void wefti_batch_path(const char *folder, enum batch_path what, const char *id,
                      char out[WEFT_BATCH_PATH_BYTES]) {
    static const char *const forms[] = {
        [BATCH_PATH_BYTES] = "%s/files/%s.jsonl",
        [BATCH_PATH_FILE] = "%s/files/%s.json",
        [BATCH_PATH_BATCH] = "%s/batches/%s.json",
        [BATCH_PATH_PART] = "%s/files/%s.part",
    };
    WEFT_ASSERT((size_t)what < sizeof forms / sizeof forms[0]);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* one of four above */
    int n = snprintf(out, WEFT_BATCH_PATH_BYTES, forms[what], folder, id);
#pragma GCC diagnostic pop
    WEFT_ASSERT(n > 0 && n < WEFT_BATCH_PATH_BYTES);
}

/* ------------------------------------------------------------------------------------- folders --- */

static weft_err make_folder(const char *path, struct weft_errmsg *why) {
    struct stat st;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return weft_err_errno(why, errno, "--batch-store: cannot make \"%s\"", path);
    if (stat(path, &st) != 0)
        return weft_err_errno(why, errno, "--batch-store: cannot use \"%s\"", path);
    if (S_ISDIR(st.st_mode) && access(path, R_OK | W_OK | X_OK) == 0) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "--batch-store: \"%s\" is no folder that can be written",
                        path);
}

weft_err wefti_batch_store_init(struct batch_store *store, const char *folder,
                                struct weft_errmsg *why) {
    char path[WEFT_BATCH_PATH_BYTES];
    store->lock_fd = -1;
    TAILQ_INIT(&store->files);
    TAILQ_INIT(&store->batches);
    if (strlen(folder) >= sizeof store->folder)
        return weft_err_set(why, WEFT_E_INVAL, "--batch-store: the path is longer than %zu bytes",
                            sizeof store->folder - 1);
    (void)snprintf(store->folder, sizeof store->folder, "%s", folder);
    weft_err err = make_folder(folder, why);
    (void)snprintf(path, sizeof path, "%s/files", folder);
    if (!err) err = make_folder(path, why);
    (void)snprintf(path, sizeof path, "%s/batches", folder);
    return err ? err : make_folder(path, why);
}

void wefti_batch_store_fini(struct batch_store *store) {
    for (struct stored_file *file = TAILQ_FIRST(&store->files), *next; file; file = next) {
        next = TAILQ_NEXT(file, entry);
        wefti_batch_forget_file(store, file);
    }
    for (struct stored_batch *batch = TAILQ_FIRST(&store->batches), *next; batch; batch = next) {
        next = TAILQ_NEXT(batch, entry);
        wefti_batch_forget(store, batch);
    }
    if (store->lock_fd >= 0) (void)close(store->lock_fd);
    store->lock_fd = -1;
}

/* ------------------------------------------------------------------------------------- opening --- */

static weft_err lock(struct batch_store *store, struct weft_errmsg *why) {
    char path[WEFT_BATCH_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/lock", store->folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return wefti_disk_err("cannot open", path, why);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        weft_err err =
            errno == EWOULDBLOCK ? WEFT_E_AGAIN : wefti_disk_err("cannot lock", path, why);
        (void)close(fd);
        return err;
    }
    store->lock_fd = fd;
    return WEFT_OK;
}

static bool ends_with(const char *name, const char *end) {
    size_t len = strlen(name), n = strlen(end);
    return len > n && strcmp(name + len - n, end) == 0;
}

/* Whatever else lies there is somebody's, and none of it is removed. */
static bool is_ours(const char *name) {
    return strncmp(name, "file-", 5) == 0 || strncmp(name, "batch_", 6) == 0;
}

static bool is_unfinished(const char *name) {
    return is_ours(name) && (ends_with(name, ".new") || ends_with(name, ".part"));
}

/* Reads the object at `path`; NULL: it cannot be, and the log says why. */
static char *read_object(const char *path, size_t *len_out) {
    struct weft_errmsg why = {""};
    char *text = NULL;
    if (weft_file_read(path, WEFT_FILE_REGULAR, OBJECT_BYTES_MAX, &text, len_out, &why))
        weft_warn("--batch-store: %s", why.text);
    return text;
}

static void load_file(struct batch_store *store, const char *path) {
    struct weft_errmsg why = {""};
    struct weft_api_file file;
    size_t len;
    char *text = read_object(path, &len);
    if (!text) return;
    if (weft_api_file_restore((struct weft_str){text, len}, &file, &why))
        weft_warn("--batch-store: \"%s\" is passed over: %s", path, why.text);
    else
        (void)wefti_batch_add_file(store, &file);
    free(text);
}

static void load_batch(struct batch_store *store, const char *path) {
    struct weft_errmsg why = {""};
    struct weft_api_batch batch;
    size_t len;
    char *text = read_object(path, &len);
    if (!text) return;
    if (weft_api_batch_restore((struct weft_str){text, len}, &batch, &why))
        weft_warn("--batch-store: \"%s\" is passed over: %s", path, why.text);
    else if (!wefti_batch_add(store, &batch))
        weft_api_batch_fini(&batch);
    free(text);
}

static weft_err load_folder(struct batch_store *store, const char *name, struct weft_errmsg *why) {
    char folder[WEFT_BATCH_PATH_BYTES], path[2 * WEFT_BATCH_PATH_BYTES];
    bool is_files = strcmp(name, "files") == 0;
    (void)snprintf(folder, sizeof folder, "%s/%s", store->folder, name);
    DIR *dir = opendir(folder);
    if (!dir) return wefti_disk_err("cannot read", folder, why);
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (is_unfinished(entry->d_name)) {
            (void)unlink(path);
        } else if (ends_with(entry->d_name, ".json")) {
            if (is_files && store->n_files < WEFT_BATCH_FILES_MAX) load_file(store, path);
            if (!is_files && store->n_batches < WEFT_BATCHES_MAX) load_batch(store, path);
        }
    }
    (void)closedir(dir);
    return WEFT_OK;
}

static int newer_file_first(const void *a, const void *b) {
    const struct stored_file *const *x = a, *const *y = b;
    int64_t s = (*y)->file.created_s - (*x)->file.created_s;
    return s > 0 ? 1 : s < 0 ? -1 : strcmp((*x)->file.id, (*y)->file.id);
}

static int newer_batch_first(const void *a, const void *b) {
    const struct stored_batch *const *x = a, *const *y = b;
    int64_t s = (*y)->batch.created_s - (*x)->batch.created_s;
    return s > 0 ? 1 : s < 0 ? -1 : strcmp((*x)->batch.id, (*y)->batch.id);
}

/* A folder's order is nobody's. */
static weft_err sort(struct batch_store *store, struct weft_errmsg *why) {
    uint32_t most = store->n_files > store->n_batches ? store->n_files : store->n_batches, n = 0;
    void **all = calloc((size_t)most + 1, sizeof *all);
    if (!all) return weft_err_set(why, WEFT_E_NOMEM, "no memory for the store of batches");
    struct stored_file *file;
    while ((file = TAILQ_FIRST(&store->files))) {
        TAILQ_REMOVE(&store->files, file, entry);
        all[n++] = file;
    }
    qsort(all, n, sizeof *all, newer_file_first);
    for (uint32_t i = 0; i < n; i++)
        TAILQ_INSERT_TAIL(&store->files, (struct stored_file *)all[i], entry);
    n = 0;
    struct stored_batch *batch;
    while ((batch = TAILQ_FIRST(&store->batches))) {
        TAILQ_REMOVE(&store->batches, batch, entry);
        all[n++] = batch;
    }
    qsort(all, n, sizeof *all, newer_batch_first);
    for (uint32_t i = 0; i < n; i++)
        TAILQ_INSERT_TAIL(&store->batches, (struct stored_batch *)all[i], entry);
    free(all);
    return WEFT_OK;
}

static bool is_of_unfinished(const struct batch_store *store, const char *id) {
    const struct stored_batch *stored;
    TAILQ_FOREACH(stored, &store->batches, entry) {
        const struct weft_api_batch *batch = &stored->batch;
        if (weft_api_batch_is_over(batch)) continue;
        if (strcmp(batch->output, id) == 0 || strcmp(batch->error, id) == 0) return true;
    }
    return false;
}

/* What a batch has answered is a file once the batch is over: whatever ended between the two, the file is made again.
 * Until then nobody may see it, or remove its bytes. */
static void forget_unfinished_answers(struct batch_store *store) {
    const struct stored_batch *stored;
    TAILQ_FOREACH(stored, &store->batches, entry) {
        const char *const ids[] = {stored->batch.output, stored->batch.error};
        if (weft_api_batch_is_over(&stored->batch)) continue;
        for (int i = 0; i < 2; i++) {
            char path[WEFT_BATCH_PATH_BYTES];
            struct stored_file *file = wefti_batch_find_any_file(store, ids[i]);
            if (!file) continue;
            wefti_batch_path(store->folder, BATCH_PATH_FILE, ids[i], path);
            (void)unlink(path); /* it is written again where it stays */
            wefti_batch_forget_file(store, file);
        }
    }
}

/* Bytes without a file: of an upload or a removal that was cut short. */
static void remove_orphans(const struct batch_store *store) {
    char folder[WEFT_BATCH_PATH_BYTES], path[2 * WEFT_BATCH_PATH_BYTES];
    (void)snprintf(folder, sizeof folder, "%s/files", store->folder);
    DIR *dir = opendir(folder);
    if (!dir) return;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        char id[WEFT_API_STORED_ID_BYTES], what[WEFT_BATCH_PATH_BYTES];
        size_t len = strlen(entry->d_name);
        if (!is_ours(entry->d_name) || !ends_with(entry->d_name, ".jsonl") || len - 6 >= sizeof id)
            continue;
        (void)snprintf(id, sizeof id, "%.*s", (int)(len - 6), entry->d_name);
        wefti_batch_path(store->folder, BATCH_PATH_FILE, id, what);
        if (access(what, F_OK) == 0 || is_of_unfinished(store, id)) continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)unlink(path);
    }
    (void)closedir(dir);
}

weft_err wefti_batch_store_open_in_thread(struct batch_store *store, struct weft_errmsg *why) {
    weft_err err = lock(store, why);
    if (err) return err;
    err = load_folder(store, "files", why);
    if (!err) err = load_folder(store, "batches", why);
    if (!err) err = sort(store, why);
    if (!err) forget_unfinished_answers(store);
    if (!err) remove_orphans(store);
    if (err) wefti_batch_store_fini(store);
    return err;
}

/* --------------------------------------------------------------------------------------- index --- */

struct stored_file *wefti_batch_find_file(const struct batch_store *store, uint64_t tenant,
                                          const char *id) {
    struct stored_file *stored;
    TAILQ_FOREACH(stored, &store->files, entry) {
        const struct weft_api_file *file = &stored->file;
        if (file->tenant == tenant && !stored->is_going && strcmp(file->id, id) == 0) return stored;
    }
    return NULL;
}

struct stored_file *wefti_batch_find_any_file(const struct batch_store *store, const char *id) {
    struct stored_file *stored;
    TAILQ_FOREACH(stored, &store->files, entry) {
        if (strcmp(stored->file.id, id) == 0) return stored;
    }
    return NULL;
}

void wefti_batch_let_go(const struct batch_store *store, const char *id) {
    struct stored_file *stored = wefti_batch_find_any_file(store, id);
    if (stored && stored->n_users > 0) stored->n_users--;
}

struct stored_batch *wefti_batch_find(const struct batch_store *store, uint64_t tenant,
                                      const char *id) {
    struct stored_batch *stored;
    TAILQ_FOREACH(stored, &store->batches, entry) {
        if (stored->batch.tenant == tenant && strcmp(stored->batch.id, id) == 0) return stored;
    }
    return NULL;
}

struct stored_file *wefti_batch_add_file(struct batch_store *store,
                                         const struct weft_api_file *file) {
    struct stored_file *stored = calloc(1, sizeof *stored);
    if (!stored) return NULL;
    stored->file = *file;
    TAILQ_INSERT_HEAD(&store->files, stored, entry);
    store->n_files++;
    store->bytes += file->bytes;
    return stored;
}

struct stored_batch *wefti_batch_add(struct batch_store *store,
                                     const struct weft_api_batch *batch) {
    struct stored_batch *stored = calloc(1, sizeof *stored);
    if (!stored) return NULL;
    stored->batch = *batch;
    TAILQ_INSERT_HEAD(&store->batches, stored, entry);
    store->n_batches++;
    return stored;
}

void wefti_batch_forget_file(struct batch_store *store, struct stored_file *stored) {
    WEFT_ASSERT(store->n_files > 0 && store->bytes >= stored->file.bytes);
    TAILQ_REMOVE(&store->files, stored, entry);
    store->n_files--;
    store->bytes -= stored->file.bytes;
    free(stored);
}

void wefti_batch_forget(struct batch_store *store, struct stored_batch *stored) {
    WEFT_ASSERT(store->n_batches > 0 && !stored->run);
    TAILQ_REMOVE(&store->batches, stored, entry);
    store->n_batches--;
    weft_api_batch_fini(&stored->batch);
    free(stored);
}

/* ------------------------------------------------------------------------------------- keeping --- */

static weft_err keep(const char *path, struct weft_buf *text, struct weft_errmsg *why) {
    weft_err err = text->failed ? weft_err_set(why, WEFT_E_NOMEM, "no memory for \"%s\"", path)
                                : wefti_disk_replace(path, text->data, text->len, why);
    weft_buf_fini(text);
    return err;
}

weft_err wefti_batch_keep_file_in_thread(const char *folder, const struct weft_api_file *file,
                                         struct weft_errmsg *why) {
    char path[WEFT_BATCH_PATH_BYTES];
    struct weft_buf text;
    weft_buf_init(&text, OBJECT_BYTES_MAX);
    weft_api_file_store(file, &text);
    wefti_batch_path(folder, BATCH_PATH_FILE, file->id, path);
    return keep(path, &text, why);
}

weft_err wefti_batch_keep_in_thread(const char *folder, const struct weft_api_batch *batch,
                                    struct weft_errmsg *why) {
    char path[WEFT_BATCH_PATH_BYTES];
    struct weft_buf text;
    weft_buf_init(&text, OBJECT_BYTES_MAX);
    weft_api_batch_store(batch, &text);
    wefti_batch_path(folder, BATCH_PATH_BATCH, batch->id, path);
    return keep(path, &text, why);
}
