#include "batches/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "base/check.h"
#include "base/log.h"
#include "batches/batches.h"
#include "codec/writer.h"
#include "server.h"

#define ASK_PENDING_BYTES (256u << 10) /* of an upload: written at a time */
#define PIECE_BYTES 65536              /* of a download */
#define LIST_BYTES_MAX (16u << 20)
#define OBJECT_BYTES_MAX (64u << 10)

struct batch_ask {
    struct batch_op op; /* first */
    struct batches *all;
    void (*wake)(void *owner);
    void *owner; /* NULL: it is dropped */
    struct weft_api_ask what;
    uint64_t tenant;
    uint32_t weight;
    enum ask_state state;
    bool in_thread;
    struct weft_api_answer answer;

    /* An upload; while it is in a thread `writing`, `fd` and `n_written` are that one's. */
    struct weft_api_multipart *form;
    struct weft_buf pending, writing;
    struct weft_api_file file;
    uint64_t n_written, n_reserved;
    bool is_whole;
    int fd; /* of a download, too; -1: none */

    /* What it holds. */
    char used[WEFT_API_STORED_ID_BYTES]; /* a file; "": none */
    struct weft_api_batch batch;

    uint64_t n_sent; /* of a download */
};

static struct batch_ask *ask_of(struct batch_op *op) {
    _Static_assert(offsetof(struct batch_ask, op) == 0, "one address for both");
    return (struct batch_ask *)op;
}

/* ------------------------------------------------------------------------------------- answers --- */

static void answered(struct batch_ask *ask) {
    ask->state = ASK_ANSWERED;
    if (ask->owner) ask->wake(ask->owner);
}

static void refuse(struct batch_ask *ask, int status, const char *param, const char *code,
                   const char *text) {
    if (ask->state == ASK_ANSWERED) return;
    weft_api_error_set(&ask->answer.error, status, param, code, "%s", text);
    if (status == 503) ask->answer.error.retry_after_ms = WEFT_API_RETRY_MS;
    answered(ask);
}

static void refuse_missing(struct batch_ask *ask, bool is_file, const char *id) {
    char text[160];
    (void)snprintf(text, sizeof text, "there is no %s '%s'", is_file ? "file" : "batch", id);
    refuse(ask, 404, "id", "not_found", text);
}

/* True: the store is another process's, or nobody's yet. What a request that came earlier still brings is refused,
 * too: the folder is not to be written to any more. */
static bool refuse_closed(struct batch_ask *ask) {
    enum batches_state state = ask->all->state;
    if (state == BATCHES_OPEN) return false;
    refuse(ask, 503, NULL, "not_serving",
           state == BATCHES_LEAVING || state == BATCHES_LEFT
               ? "the server ends, and keeps no files and batches any more"
               : "files and batches are not there yet, try again later");
    return true;
}

/* A disk that says no. */
static void refuse_for_disk(struct batch_ask *ask) {
    bool is_full = ask->op.err == WEFT_E_FULL;
    weft_error("--batch-store: %s", ask->op.why.text);
    refuse(ask, is_full ? 503 : 500, NULL, is_full ? "store_full" : NULL,
           is_full ? "there is no room left on the disk for files and batches"
                   : "the disk with files and batches does not work");
}

static struct weft_buf *begin_json(struct batch_ask *ask) {
    ask->answer.status = 200;
    ask->answer.type = "application/json";
    return &ask->answer.body;
}

static void tell_file(struct batch_ask *ask, const struct weft_api_file *file) {
    weft_api_file_write(file, begin_json(ask));
    answered(ask);
}

static void tell_batch(struct batch_ask *ask, const struct weft_api_batch *batch) {
    weft_api_batch_write(batch, begin_json(ask));
    answered(ask);
}

/* --------------------------------------------------------------------------------------- lists --- */

static void end_list(struct weft_buf *out, const char *first, const char *last, bool has_more) {
    if (first)
        weft_buf_printf(out, "],\"first_id\":\"%s\",\"last_id\":\"%s\",\"has_more\":%s}", first,
                        last, has_more ? "true" : "false");
    else
        weft_buf_add_str(out, "],\"first_id\":null,\"last_id\":null,\"has_more\":false}");
}

static void list_files(struct batch_ask *ask) {
    struct weft_buf *out = begin_json(ask);
    const struct stored_file *stored;
    const char *first = NULL, *last = NULL;
    bool has_begun = !ask->what.after[0], has_more = false;
    uint32_t n = 0;
    weft_buf_add_str(out, "{\"object\":\"list\",\"data\":[");
    TAILQ_FOREACH(stored, &ask->all->store.files, entry) {
        const struct weft_api_file *file = &stored->file;
        if (file->tenant != ask->tenant || stored->is_going) continue;
        if (has_begun && n == ask->what.limit) {
            has_more = true;
            break;
        }
        if (has_begun) {
            if (n++) weft_buf_add_char(out, ',');
            weft_api_file_write(file, out);
            if (!first) first = file->id;
            last = file->id;
        }
        has_begun = has_begun || strcmp(file->id, ask->what.after) == 0;
    }
    end_list(out, first, last, has_more);
    answered(ask);
}

static void list_batches(struct batch_ask *ask) {
    struct weft_buf *out = begin_json(ask);
    const struct stored_batch *stored;
    const char *first = NULL, *last = NULL;
    bool has_begun = !ask->what.after[0], has_more = false;
    uint32_t n = 0;
    weft_buf_add_str(out, "{\"object\":\"list\",\"data\":[");
    TAILQ_FOREACH(stored, &ask->all->store.batches, entry) {
        const struct weft_api_batch *batch = &stored->batch;
        if (batch->tenant != ask->tenant) continue;
        if (has_begun && n == ask->what.limit) {
            has_more = true;
            break;
        }
        if (has_begun) {
            if (n++) weft_buf_add_char(out, ',');
            weft_api_batch_write(batch, out);
            if (!first) first = batch->id;
            last = batch->id;
        }
        has_begun = has_begun || strcmp(batch->id, ask->what.after) == 0;
    }
    end_list(out, first, last, has_more);
    answered(ask);
}

/* ------------------------------------------------------------------------------------- threads --- */

static void ask_free(struct batch_ask *ask) {
    WEFT_ASSERT(!ask->owner && ask->all->upload_bytes >= ask->n_reserved);
    if (ask->fd >= 0) (void)close(ask->fd);
    if (ask->used[0]) wefti_batch_let_go(&ask->all->store, ask->used);
    ask->all->upload_bytes -= ask->n_reserved;
    weft_buf_fini(&ask->pending);
    weft_buf_fini(&ask->writing);
    weft_buf_fini(&ask->answer.body);
    weft_buf_fini(&ask->answer.extra);
    weft_api_batch_fini(&ask->batch);
    free(ask->form);
    free(ask);
}

static void remove_part_in_thread(struct batch_op *op) {
    const struct batch_ask *ask = ask_of(op);
    char path[WEFT_BATCH_PATH_BYTES];
    wefti_batch_path(ask->all->store.folder, BATCH_PATH_PART, ask->file.id, path);
    (void)unlink(path);
}

static void after_all(struct batch_op *op) {
    ask_free(ask_of(op));
}

static void read_in_thread(struct batch_op *op);

static void begin_op(struct batch_ask *ask, void (*run)(struct batch_op *),
                     void (*done)(struct batch_op *)) {
    WEFT_ASSERT(!ask->in_thread);
    ask->in_thread = true;
    ask->op.run = run;
    ask->op.done = done;
    ask->op.only_reads = run == read_in_thread && ask->fd >= 0;
    wefti_batch_io_add(&ask->all->io, &ask->op);
}

/* What an upload has begun goes with it. */
static void leave(struct batch_ask *ask) {
    if (ask->form && ask->fd >= 0)
        begin_op(ask, remove_part_in_thread, after_all);
    else
        ask_free(ask);
}

void wefti_ask_drop(struct batch_ask *ask) {
    if (!ask) return;
    ask->owner = NULL;
    if (!ask->in_thread) leave(ask);
}

/* True: nobody waits for it any more, and it is gone. */
static bool is_left(struct batch_ask *ask) {
    ask->in_thread = false;
    if (ask->owner) return false;
    leave(ask);
    return true;
}

/* ------------------------------------------------------------------------------------- uploads --- */

static weft_err write_part(struct batch_ask *ask, struct weft_errmsg *why) {
    char path[WEFT_BATCH_PATH_BYTES];
    wefti_batch_path(ask->all->store.folder, BATCH_PATH_PART, ask->file.id, path);
    if (ask->fd < 0) ask->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (ask->fd < 0) return wefti_disk_err("cannot make", path, why);
    weft_err err =
        wefti_disk_append(ask->fd, path, ask->n_written, ask->writing.data, ask->writing.len, why);
    if (!err) ask->n_written += ask->writing.len;
    weft_buf_fini(&ask->writing);
    return err;
}

static void write_in_thread(struct batch_op *op) {
    op->err = write_part(ask_of(op), &op->why);
}

static void keep_in_thread(struct batch_op *op) {
    struct batch_ask *ask = ask_of(op);
    char part[WEFT_BATCH_PATH_BYTES], path[WEFT_BATCH_PATH_BYTES];
    const char *folder = ask->all->store.folder;
    wefti_batch_path(folder, BATCH_PATH_PART, ask->file.id, part);
    wefti_batch_path(folder, BATCH_PATH_BYTES, ask->file.id, path);
    op->err = write_part(ask, &op->why);
    if (!op->err && rename(part, path) != 0)
        op->err = wefti_disk_err("cannot rename", part, &op->why);
    if (!op->err) op->err = wefti_batch_keep_file_in_thread(folder, &ask->file, &op->why);
    if (op->err) (void)unlink(path);
}

static void after_keep(struct batch_op *op) {
    struct batch_ask *ask = ask_of(op);
    ask->in_thread = false;
    if (op->err) {
        refuse_for_disk(ask);
    } else if (wefti_batch_add_file(&ask->all->store, &ask->file)) {
        (void)close(ask->fd); /* nothing is left to be removed */
        ask->fd = -1;
        tell_file(ask, &ask->file);
    } else {
        refuse(ask, 500, NULL, NULL, "out of memory");
    }
    if (!ask->owner) leave(ask);
}

static void after_write(struct batch_op *op);

static void pump_upload(struct batch_ask *ask) {
    if (ask->in_thread || ask->state == ASK_ANSWERED || refuse_closed(ask)) return;
    if (!ask->is_whole && ask->pending.len < ASK_PENDING_BYTES) return;
    ask->writing = ask->pending;
    weft_buf_init(&ask->pending, 8 * ASK_PENDING_BYTES);
    if (ask->is_whole)
        begin_op(ask, keep_in_thread, after_keep);
    else
        begin_op(ask, write_in_thread, after_write);
}

static void after_write(struct batch_op *op) {
    struct batch_ask *ask = ask_of(op);
    if (is_left(ask)) return;
    if (op->err) {
        refuse_for_disk(ask);
        return;
    }
    pump_upload(ask);
    ask->wake(ask->owner); /* there may be room again */
}

/* Some of the file's bytes, out of the form. */
static bool take_file(void *to, const char *bytes, size_t n) {
    struct batch_ask *ask = to;
    struct batches *all = ask->all;
    WEFT_ASSERT(ask->form && !ask->is_whole);
    ask->file.bytes += n;
    if (ask->file.bytes > all->server->config.batch_file_bytes) {
        char text[96];
        (void)snprintf(text, sizeof text, "the file is larger than %llu bytes",
                       (unsigned long long)all->server->config.batch_file_bytes);
        refuse(ask, 413, "file", NULL, text);
        return false;
    }
    if (all->store.bytes + all->upload_bytes + n > all->store.bytes_max) {
        refuse(
            ask, 503, NULL, "store_full",
            "the files that are kept leave no room for this one: remove some, or try again later");
        return false;
    }
    all->upload_bytes += n;
    ask->n_reserved += n;
    weft_buf_add(&ask->pending, bytes, n);
    if (ask->pending.failed) refuse(ask, 500, NULL, NULL, "out of memory");
    return !ask->pending.failed;
}

bool wefti_ask_take(void *to, const char *bytes, size_t n) {
    struct batch_ask *ask = to;
    struct weft_errmsg why = {""};
    if (ask->state == ASK_ANSWERED || refuse_closed(ask)) return false;
    weft_err err = weft_api_multipart_more(ask->form, bytes, n, &why);
    if (err && err != WEFT_E_CLOSED) refuse(ask, 400, "file", "invalid_form", why.text);
    pump_upload(ask);
    return ask->state != ASK_ANSWERED;
}

bool wefti_ask_is_full(const struct batch_ask *ask) {
    return ask->in_thread && ask->pending.len >= 2 * ASK_PENDING_BYTES;
}

static bool has_fair_expiry(struct batch_ask *ask) {
    const char *anchor = weft_api_multipart_field(ask->form, "expires_after[anchor]");
    const char *seconds = weft_api_multipart_field(ask->form, "expires_after[seconds]");
    struct weft_api_error error = {0};
    if (weft_api_file_expire(&ask->file, anchor, seconds, &error)) return true;
    refuse(ask, error.status, error.param, NULL, error.message);
    return false;
}

static void end_upload(struct batch_ask *ask) {
    struct weft_errmsg why = {""};
    if (ask->state == ASK_ANSWERED) return;
    const char *purpose = weft_api_multipart_field(ask->form, "purpose");
    if (weft_api_multipart_end(ask->form, &why)) {
        refuse(ask, 400, "file", "invalid_form", why.text);
    } else if (!purpose || strcmp(purpose, "batch") != 0) {
        refuse(ask, 400, "purpose", NULL, "'purpose' must be \"batch\"");
    } else if (ask->all->store.n_files >= WEFT_BATCH_FILES_MAX) {
        refuse(ask, 503, NULL, "store_full", "too many files are kept: remove some");
    } else if (has_fair_expiry(ask)) {
        (void)snprintf(ask->file.purpose, sizeof ask->file.purpose, "batch");
        (void)snprintf(ask->file.name, sizeof ask->file.name, "%s",
                       ask->form->filename[0] ? ask->form->filename : "file.jsonl");
        ask->is_whole = true;
        pump_upload(ask);
    }
}

static void begin_upload(struct batch_ask *ask, const struct weft_api_http *http) {
    struct weft_errmsg why = {""};
    ask->form = calloc(1, sizeof *ask->form);
    if (!ask->form) {
        refuse(ask, 500, NULL, NULL, "out of memory");
        return;
    }
    ask->form->take = take_file;
    ask->form->to = ask;
    weft_api_stored_id("file-", ask->file.id);
    ask->file.tenant = ask->tenant;
    ask->file.created_s = (int64_t)time(NULL);
    ask->file.expires_s = ask->file.created_s + ask->all->store.ttl_s;
    const struct weft_str type = {http->content_type.at, http->content_type.len};
    if (weft_api_multipart_init(ask->form, type, &why))
        refuse(ask, 400, "file", "invalid_form", why.text);
}

/* --------------------------------------------------------------------------------------- files --- */

static void drop_in_thread(struct batch_op *op) {
    struct batch_ask *ask = ask_of(op);
    const char *folder = ask->all->store.folder;
    char path[WEFT_BATCH_PATH_BYTES];
    wefti_batch_path(folder, BATCH_PATH_FILE, ask->what.id, path);
    if (unlink(path) != 0 && errno != ENOENT)
        op->err = wefti_disk_err("cannot remove", path, &op->why);
    if (!op->err) op->err = wefti_disk_sync_folder(path, &op->why);
    wefti_batch_path(folder, BATCH_PATH_BYTES, ask->what.id, path);
    if (!op->err) (void)unlink(path);
}

static void after_drop(struct batch_op *op) {
    struct batch_ask *ask = ask_of(op);
    struct stored_file *stored = wefti_batch_find_any_file(&ask->all->store, ask->used);
    ask->used[0] = '\0';
    WEFT_ASSERT(stored && stored->is_going && stored->n_users == 1);
    stored->is_going = false;
    stored->n_users--;
    if (!op->err) wefti_batch_forget_file(&ask->all->store, stored);
    if (is_left(ask)) return;
    if (op->err) {
        refuse_for_disk(ask);
        return;
    }
    weft_buf_printf(begin_json(ask), "{\"id\":\"%s\",\"object\":\"file\",\"deleted\":true}",
                    ask->what.id);
    answered(ask);
}

static void use(struct batch_ask *ask, struct stored_file *stored) {
    WEFT_ASSERT(!ask->used[0]);
    stored->n_users++;
    memcpy(ask->used, stored->file.id, sizeof ask->used);
}

static void drop_file(struct batch_ask *ask, struct stored_file *stored) {
    if (stored->n_users > 0) {
        refuse(ask, 409, "id", "file_in_use",
               "this file is being read, or a batch that is not over needs it");
        return;
    }
    stored->is_going = true;
    use(ask, stored);
    begin_op(ask, drop_in_thread, after_drop);
}

static void read_in_thread(struct batch_op *op) {
    struct batch_ask *ask = ask_of(op);
    char path[WEFT_BATCH_PATH_BYTES], *bytes = malloc(PIECE_BYTES);
    wefti_batch_path(ask->all->store.folder, BATCH_PATH_BYTES, ask->what.id, path);
    if (ask->fd < 0) ask->fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t n = ask->file.bytes - ask->n_sent;
    if (n > PIECE_BYTES) n = PIECE_BYTES;
    if (!bytes)
        op->err = weft_err_set(&op->why, WEFT_E_NOMEM, "no memory to read a file");
    else if (ask->fd < 0)
        op->err = wefti_disk_err("cannot open", path, &op->why);
    else
        op->err = wefti_disk_read(ask->fd, path, ask->n_sent, bytes, n, &op->why);
    if (!op->err) weft_buf_add(&ask->writing, bytes, n);
    if (ask->writing.failed) op->err = WEFT_E_NOMEM;
    free(bytes);
}

static void after_piece(struct batch_op *op) {
    struct batch_ask *ask = ask_of(op);
    if (is_left(ask)) return;
    if (op->err && ask->n_sent == 0) {
        refuse_for_disk(ask);
        return;
    }
    ask->state = ASK_SENDING;
    ask->wake(ask->owner);
}

enum ask_piece wefti_ask_piece(struct batch_ask *ask, struct weft_buf *out) {
    WEFT_ASSERT(ask->state == ASK_SENDING);
    if (ask->in_thread) return ASK_PIECE_WAIT;
    if (ask->op.err) return ASK_PIECE_FAILED;
    ask->n_sent += ask->writing.len;
    bool has_more = ask->writing.len > 0;
    weft_buf_add(out, ask->writing.data, ask->writing.len);
    weft_buf_fini(&ask->writing);
    if (ask->n_sent == ask->file.bytes) return has_more ? ASK_PIECE_MORE : ASK_PIECE_WHOLE;
    begin_op(ask, read_in_thread, after_piece);
    return has_more ? ASK_PIECE_MORE : ASK_PIECE_WAIT;
}

static void send_file(struct batch_ask *ask, struct stored_file *stored) {
    use(ask, stored);
    ask->file = stored->file;
    begin_op(ask, read_in_thread, after_piece);
}

/* ------------------------------------------------------------------------------------- batches --- */

static void keep_batch_in_thread(struct batch_op *op) {
    struct batch_ask *ask = ask_of(op);
    op->err = wefti_batch_keep_in_thread(ask->all->store.folder, &ask->batch, &op->why);
}

static void after_new(struct batch_op *op) {
    struct batch_ask *ask = ask_of(op);
    struct batches *all = ask->all;
    ask->in_thread = false;
    const struct stored_batch *stored = op->err ? NULL : wefti_batch_add(&all->store, &ask->batch);
    if (stored) {
        ask->batch.metadata = NULL; /* the store's from here on, */
        ask->used[0] = '\0';        /* and it holds the file */
        tell_batch(ask, &stored->batch);
        wefti_batch_runs_start(all);
    } else if (op->err) {
        refuse_for_disk(ask);
    } else {
        refuse(ask, 500, NULL, NULL, "out of memory");
    }
    if (!ask->owner) leave(ask);
}

static void make_batch(struct batch_ask *ask, const struct weft_buf *body) {
    struct batch_store *store = &ask->all->store;
    struct weft_str text = {body->data ? body->data : "", body->len};
    if (!weft_api_batch_parse(text, &ask->batch, (int64_t)time(NULL), &ask->answer.error)) {
        answered(ask);
        return;
    }
    ask->batch.tenant = ask->tenant;
    ask->batch.weight = ask->weight;
    struct stored_file *input = wefti_batch_find_file(store, ask->tenant, ask->batch.input);
    if (!input) {
        refuse_missing(ask, true, ask->batch.input);
    } else if (store->n_batches >= WEFT_BATCHES_MAX) {
        refuse(ask, 503, NULL, "store_full", "too many batches are kept, try again later");
    } else {
        use(ask, input);
        begin_op(ask, keep_batch_in_thread, after_new);
    }
}

static void after_cancel(struct batch_op *op) {
    struct batch_ask *ask = ask_of(op);
    ask->batch.metadata = ask->batch.errors = NULL; /* the store's */
    struct stored_batch *stored = wefti_batch_find(&ask->all->store, ask->tenant, ask->what.id);
    if (stored && stored->run) wefti_batch_run_pump(stored->run);
    if (is_left(ask)) return;
    if (op->err)
        refuse_for_disk(ask);
    else if (stored)
        tell_batch(ask, &stored->batch);
    else
        refuse_missing(ask, false, ask->what.id);
}

static void cancel_batch(struct batch_ask *ask, struct stored_batch *stored) {
    struct weft_api_batch *batch = &stored->batch;
    bool ends = batch->status == WEFT_API_BATCH_FINALIZING || weft_api_batch_is_over(batch);
    if (ends) {
        refuse(ask, 409, "id", "batch_over", "this batch is over, or about to be");
        return;
    }
    if (stored->run && wefti_batch_run_is_closing(stored->run)) {
        tell_batch(
            ask,
            batch); /* it is cancelled already, and over by the time that this could be written */
        return;
    }
    weft_api_batch_enter(batch, WEFT_API_BATCH_CANCELLING, (int64_t)time(NULL));
    ask->batch = *batch;
    begin_op(ask, keep_batch_in_thread, after_cancel);
}

/* ---------------------------------------------------------------------------------- the request --- */

static void go_file(struct batch_ask *ask) {
    struct stored_file *stored = wefti_batch_find_file(&ask->all->store, ask->tenant, ask->what.id);
    if (!stored)
        refuse_missing(ask, true, ask->what.id);
    else if (ask->what.op == WEFT_API_ASK_FILE_GET)
        tell_file(ask, &stored->file);
    else if (ask->what.op == WEFT_API_ASK_FILE_DROP)
        drop_file(ask, stored);
    else
        send_file(ask, stored);
}

static void go_batch(struct batch_ask *ask) {
    struct stored_batch *stored = wefti_batch_find(&ask->all->store, ask->tenant, ask->what.id);
    if (!stored)
        refuse_missing(ask, false, ask->what.id);
    else if (ask->what.op == WEFT_API_ASK_BATCH_GET)
        tell_batch(ask, &stored->batch);
    else
        cancel_batch(ask, stored);
}

void wefti_ask_go(struct batch_ask *ask, const struct weft_buf *body) {
    if (ask->state == ASK_ANSWERED || refuse_closed(ask)) return;
    switch (ask->what.op) {
    case WEFT_API_ASK_NONE:
        break;
    case WEFT_API_ASK_FILE_UPLOAD:
        end_upload(ask);
        break;
    case WEFT_API_ASK_FILE_LIST:
        list_files(ask);
        break;
    case WEFT_API_ASK_BATCH_LIST:
        list_batches(ask);
        break;
    case WEFT_API_ASK_BATCH_NEW:
        make_batch(ask, body);
        break;
    case WEFT_API_ASK_FILE_GET:
    case WEFT_API_ASK_FILE_CONTENT:
    case WEFT_API_ASK_FILE_DROP:
        go_file(ask);
        break;
    case WEFT_API_ASK_BATCH_GET:
    case WEFT_API_ASK_BATCH_CANCEL:
        go_batch(ask);
    }
}

struct batch_ask *wefti_ask_new(struct batches *all, const struct weft_api_http *http,
                                void (*wake)(void *owner), void *owner) {
    struct batch_ask *ask = calloc(1, sizeof *ask);
    if (!ask) return NULL;
    ask->all = all;
    ask->wake = wake;
    ask->owner = owner;
    ask->what = http->ask;
    ask->tenant = http->asks.tenant;
    ask->weight = http->asks.weight;
    ask->fd = -1;
    weft_buf_init(&ask->pending, 8 * ASK_PENDING_BYTES);
    weft_buf_init(&ask->writing, 8 * ASK_PENDING_BYTES);
    weft_buf_init(&ask->answer.body, LIST_BYTES_MAX);
    weft_buf_init(&ask->answer.extra, OBJECT_BYTES_MAX);
    if (!refuse_closed(ask) && wefti_ask_is_upload(ask)) begin_upload(ask, http);
    return ask;
}

bool wefti_ask_is_upload(const struct batch_ask *ask) {
    return ask->what.op == WEFT_API_ASK_FILE_UPLOAD;
}

enum ask_state wefti_ask_state(const struct batch_ask *ask) {
    return ask->state;
}

struct weft_api_answer wefti_ask_answer(struct batch_ask *ask) {
    WEFT_ASSERT(ask->state == ASK_ANSWERED);
    struct weft_api_answer answer = ask->answer;
    weft_buf_init(&ask->answer.body, LIST_BYTES_MAX);
    weft_buf_init(&ask->answer.extra, OBJECT_BYTES_MAX);
    if (!answer.error.status && answer.body.failed)
        weft_api_error_set(&answer.error, 500, NULL, NULL, "out of memory");
    return answer;
}
