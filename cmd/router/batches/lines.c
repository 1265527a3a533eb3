/* What threads do for a batch: its files are read, checked, written and ended. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "batches/run.h"
#include "codec/digest.h"

#define FAULTS_BYTES_MAX (32u << 10)
#define CHECKED_BYTES (1u << 20) /* of lines, at a time: some 20 ms */
#define EXPIRED_BYTES 65536      /* of answers that are written at a time */

static struct batch_run *run_of(struct batch_op *op) {
    _Static_assert(offsetof(struct batch_run, op) == 0, "one address for both");
    return (struct batch_run *)op;
}

/* ------------------------------------------------------------------------------ checking lines --- */

struct checking { /* the input, up to where it was read */
    struct batch_run *run;
    FILE *in;
    struct weft_buf text; /* of a line: what is longer than any may be is not kept */
    uint64_t at;
    uint32_t cap, line; /* of the file */
    struct weft_buf faults;
    bool is_whole;
};

/* `of`: NULL: of none. Those of a job are told at once: nobody asks for them later. */
static void add_fault(struct checking *c, const struct weft_api_batch_fault *fault,
                      const struct line_name *of) {
    struct batch_run *run = c->run;
    if (run->n_faults++ >= WEFT_API_BATCH_FAULTS_MAX) return;
    weft_api_batch_add_fault(&c->faults, fault, of ? of->idx : UINT32_MAX);
    if (run->job && of)
        weft_say(WEFT_LOG_ERROR, "--batch: line %u: %s (%s)", of->line, fault->message,
                 fault->code);
    else if (run->job)
        weft_say(WEFT_LOG_ERROR, "--batch: %s (%s)", fault->message, fault->code);
}

static bool grow(struct checking *c) {
    struct batch_run *run = c->run;
    if (run->n_places < c->cap) return true;
    uint32_t cap = c->cap ? 2 * c->cap : 256;
    struct line_place *places = realloc(run->places, cap * sizeof *places);
    if (places) run->places = places;
    struct line_name *names = realloc(run->names, cap * sizeof *names);
    if (names) run->names = names;
    if (!places || !names) return false;
    c->cap = cap;
    return true;
}

/* A job's lines may ask different ones. */
static const char *endpoint_of(const struct batch_run *run) {
    return run->job ? NULL : run->batch.endpoint;
}

static weft_err check_line(struct checking *c, struct weft_str text, uint64_t at,
                           struct weft_errmsg *why) {
    struct batch_run *run = c->run;
    struct weft_api_batch_line line;
    struct weft_api_batch_fault fault = {"invalid_json_line", NULL, "", false};
    weft_err err = WEFT_OK;
    if (!grow(c)) return weft_err_set(why, WEFT_E_NOMEM, "no memory for the lines of a batch");
    uint32_t idx = run->n_places++;
    run->places[idx] = (struct line_place){.at = at, .n_bytes = (uint32_t)text.len};
    run->names[idx] = (struct line_name){.idx = idx, .line = c->line};
    if (text.len > run->line_bytes_max) {
        (void)snprintf(fault.message, sizeof fault.message, "this line has over %zu bytes",
                       (size_t)run->line_bytes_max);
        add_fault(c, &fault, &run->names[idx]);
        return WEFT_OK;
    }
    if (weft_api_batch_line_read(text, endpoint_of(run), run->json_bytes_max, &line, &fault))
        run->names[idx].name = weft_digest_of("custom_id", line.custom_id.data, line.custom_id.len);
    else if (fault.is_memory)
        err = weft_err_set(why, WEFT_E_NOMEM, "no memory for a line of %zu bytes", text.len);
    else
        add_fault(c, &fault, &run->names[idx]);
    weft_api_batch_line_fini(&line);
    return err;
}

/* Reads a line with its end; returns its bytes, of which more than fit a request are not kept. 0: there is none. */
static size_t next_line(struct checking *c) {
    size_t n = 0, n_most = c->run->line_bytes_max + 2;
    int byte;
    weft_buf_clear(&c->text);
    while ((byte = getc_unlocked(c->in)) != EOF) {
        if (n++ < n_most) weft_buf_add_char(&c->text, (char)byte);
        if (byte == '\n') break;
    }
    return n;
}

static weft_err check_next_line(struct checking *c, size_t n, struct weft_errmsg *why) {
    struct weft_str rest = {c->text.data, c->text.len}, line;
    weft_err err = WEFT_OK;
    if (c->text.failed) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a line of a batch");
    c->line++;
    if (c->run->n_places >= c->run->n_lines_max) {
        struct weft_api_batch_fault fault = {"too_many_requests", NULL, "", false};
        (void)snprintf(fault.message, sizeof fault.message, "a batch has at most %u requests",
                       c->run->n_lines_max);
        add_fault(c, &fault, NULL);
        c->is_whole = true;
        return WEFT_OK;
    }
    if (weft_api_batch_next_line(&rest, &line)) err = check_line(c, line, c->at, why);
    c->at += n;
    return err;
}

/* Some of them; others wait for this thread, too. */
static weft_err check_lines(struct checking *c, struct weft_errmsg *why) {
    uint64_t until = c->at + CHECKED_BYTES;
    weft_err err = WEFT_OK;
    while (!err && !c->is_whole && c->at < until) {
        size_t n = next_line(c);
        if (n > 0)
            err = check_next_line(c, n, why);
        else if (ferror(c->in))
            err = weft_err_set(why, WEFT_E_IO, "cannot read the input file");
        else
            c->is_whole = true;
    }
    return err;
}

/* The second of two is at fault. */
static void check_names(struct checking *c) {
    const struct weft_api_batch_fault fault = {"duplicate_custom_id", "custom_id",
                                               "an earlier line has the same 'custom_id'", false};
    struct line_name *names = c->run->names;
    uint32_t n = c->run->n_places;
    if (n == 0) {
        const struct weft_api_batch_fault empty = {"empty_file", NULL, "the file has no requests",
                                                   false};
        if (c->run->n_faults == 0) add_fault(c, &empty, NULL);
        return;
    }
    qsort(names, n, sizeof *names, wefti_batch_by_name);
    for (uint32_t i = 1; i < n; i++) {
        const struct weft_digest *a = &names[i - 1].name, *b = &names[i].name;
        bool is_named = (a->hi | a->lo) != 0;
        if (is_named && a->hi == b->hi && a->lo == b->lo) add_fault(c, &fault, &names[i]);
    }
}

static weft_err begin_checking(struct batch_run *run, struct weft_errmsg *why) {
    struct checking *c = calloc(1, sizeof *c);
    int fd = c ? fcntl(run->input_fd, F_DUPFD_CLOEXEC, 0) : -1;
    FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!in) {
        if (fd >= 0) (void)close(fd);
        free(c);
        return weft_err_set(why, WEFT_E_NOMEM, "no memory to read a batch");
    }
    rewind(in); /* a job's descriptor is where an earlier router left it */
    c->run = run;
    c->in = in;
    weft_buf_init(&c->text, run->line_bytes_max + 2);
    weft_buf_init(&c->faults, FAULTS_BYTES_MAX);
    run->checking = c;
    return WEFT_OK;
}

static void end_checking(struct batch_run *run) {
    struct checking *c = run->checking;
    if (!c) return;
    (void)fclose(c->in);
    weft_buf_fini(&c->text);
    weft_buf_fini(&c->faults);
    free(c);
    run->checking = NULL;
}

static weft_err list_faults(struct batch_run *run, struct weft_errmsg *why) {
    struct weft_buf list;
    check_names(run->checking);
    if (run->n_faults == 0) return WEFT_OK;
    weft_buf_init(&list, FAULTS_BYTES_MAX + 2);
    weft_buf_printf(&list, "[%s]", weft_buf_cstr(&run->checking->faults));
    run->faults = list.failed ? NULL : strdup(weft_buf_cstr(&list));
    weft_buf_fini(&list);
    return run->faults ? WEFT_OK : weft_err_set(why, WEFT_E_NOMEM, "no memory for a batch");
}

/* --------------------------------------------------------------------------- what is there already --- */

/* Marks the lines that an answer file answers; cuts off a last one that is not whole. */
static weft_err recover(struct batch_run *run, int which, struct weft_errmsg *why) {
    char *text = NULL;
    size_t cap = 0;
    ssize_t n;
    uint64_t at = 0;
    int fd = fcntl(run->fds[which], F_DUPFD_CLOEXEC, 0);
    FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!in) {
        if (fd >= 0) (void)close(fd);
        return weft_err_set(why, WEFT_E_NOMEM, "no memory to read a batch");
    }
    while ((n = getline(&text, &cap, in)) > 0 && text[n - 1] == '\n') {
        uint32_t idx;
        bool is_fair =
            weft_api_batch_answered((struct weft_str){text, (size_t)n}, run->batch.id, &idx) &&
            idx < run->n_places && !run->places[idx].is_taken;
        if (!is_fair) break;
        run->places[idx].is_taken = true;
        run->n_answers[which]++;
        at += (uint64_t)n;
    }
    free(text);
    (void)fclose(in);
    run->n_bytes[which] = at;
    if (ftruncate(run->fds[which], (off_t)at) == 0) return WEFT_OK;
    return wefti_disk_err("cannot cut", run->paths[which], why);
}

static weft_err open_answers(struct batch_run *run, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    if (run->job) return wefti_batch_resume_in_thread(run, why);
    const char *const ids[] = {run->batch.output, run->batch.error};
    for (int i = 0; i < N_ANSWERS && !err; i++) {
        wefti_batch_path(run->folder, BATCH_PATH_BYTES, ids[i], run->paths[i]);
        run->fds[i] = open(run->paths[i], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        err = run->fds[i] < 0 ? wefti_disk_err("cannot open", run->paths[i], why)
                              : recover(run, i, why);
    }
    if (!err) err = wefti_disk_sync_folder(run->paths[0], why);
    return err;
}

void wefti_batch_run_forget(struct batch_run *run) {
    end_checking(run);
    if (run->input_fd >= 0) (void)close(run->input_fd);
    run->input_fd = -1;
    for (int i = 0; i < N_ANSWERS; i++) {
        if (run->fds[i] >= 0) (void)close(run->fds[i]);
        run->fds[i] = -1;
        run->n_answers[i] = 0;
        run->n_bytes[i] = 0;
    }
    free(run->places);
    run->places = NULL;
    run->n_places = run->next = 0;
    free(run->names);
    run->names = NULL;
    free(run->faults);
    run->faults = NULL;
    run->n_faults = 0;
}

/* What the batch is, on the disk. A job is what it is by its files. */
static weft_err keep(const struct batch_run *run, struct weft_errmsg *why) {
    return run->job ? WEFT_OK : wefti_batch_keep_in_thread(run->folder, &run->batch, why);
}

static weft_err open_input(struct batch_run *run, struct weft_errmsg *why) {
    char path[WEFT_BATCH_PATH_BYTES] = "--batch";
    if (run->job) {
        run->input_fd = fcntl(run->job->input_fd, F_DUPFD_CLOEXEC, 0);
    } else {
        wefti_batch_path(run->folder, BATCH_PATH_BYTES, run->batch.input, path);
        run->input_fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (run->input_fd >= 0) return begin_checking(run, why);
    if (errno != ENOENT) return wefti_disk_err("cannot open", path, why);
    run->faults = strdup("[{\"code\":\"file_not_found\",\"line\":null,\"message\":\"the input "
                         "file is gone\",\"param\":\"input_file_id\"}]");
    return run->faults ? WEFT_OK : weft_err_set(why, WEFT_E_NOMEM, "no memory for a batch");
}

/* The lines are checked: what is answered already, and what becomes of the batch. */
static weft_err end_opening(struct batch_run *run, struct weft_errmsg *why) {
    struct weft_api_batch *batch = &run->batch;
    weft_err err = run->checking ? list_faults(run, why) : WEFT_OK;
    end_checking(run);
    if (!err && !run->faults) err = open_answers(run, why);
    free(run->names);
    run->names = NULL;
    if (err) return err;
    batch->n_total = run->n_places;
    batch->errors = run->faults;
    if (run->faults)
        weft_api_batch_enter(batch, WEFT_API_BATCH_FAILED, run->now_s);
    else if (batch->status == WEFT_API_BATCH_VALIDATING)
        weft_api_batch_enter(batch, WEFT_API_BATCH_IN_PROGRESS, run->now_s);
    err = keep(run, why);
    batch->errors = NULL;
    return err;
}

void wefti_batch_open_in_thread(struct batch_op *op) {
    struct batch_run *run = run_of(op);
    if (!run->checking) op->err = open_input(run, &op->why);
    if (!op->err && run->checking) op->err = check_lines(run->checking, &op->why);
    bool has_more = run->checking && !run->checking->is_whole;
    if (!op->err && !has_more) op->err = end_opening(run, &op->why);
    if (op->err) wefti_batch_run_forget(run);
}

/* ------------------------------------------------------------------------------ reading, writing --- */

/* The line's text was checked when the batch was opened; it is not to be trusted to be the same. */
static weft_err read_line(struct batch_run *run, struct batch_item *item, struct weft_errmsg *why) {
    const struct line_place *place = &run->places[item->idx];
    char *text = malloc((size_t)place->n_bytes + 1);
    if (!text)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for a line of %u bytes", place->n_bytes);
    weft_err err =
        wefti_disk_read(run->input_fd, "the input file", place->at, text, place->n_bytes, why);
    if (!err)
        item->is_fair =
            weft_api_batch_line_read((struct weft_str){text, place->n_bytes}, endpoint_of(run),
                                     run->json_bytes_max, &item->line, &item->fault);
    free(text);
    if (!err && !item->is_fair && item->fault.is_memory)
        err = weft_err_set(why, WEFT_E_NOMEM, "no memory for a line of %u bytes", place->n_bytes);
    return err;
}

void wefti_batch_read_in_thread(struct batch_op *op) {
    struct run_read *read = (struct run_read *)op;
    uint64_t n_bytes = 0;
    while (read->n_read < read->n && !op->err && n_bytes <= read->n_bytes_max) {
        struct batch_item *item = read->items[read->n_read++];
        op->err = read_line(read->run, item, &op->why);
        n_bytes += item->line.n_body;
    }
}

/* Both kinds of a job's answers are in one file. */
static uint64_t end_of(const struct batch_run *run, int which) {
    return run->job ? run->n_bytes[ANSWERS_OUTPUT] + run->n_bytes[ANSWERS_ERROR]
                    : run->n_bytes[which];
}

void wefti_batch_write_in_thread(struct batch_op *op) {
    struct run_write *write = (struct run_write *)op;
    struct batch_run *run = write->run;
    for (int i = 0; i < N_ANSWERS && !op->err; i++) {
        struct weft_buf *bytes = &write->bytes[i];
        op->err = wefti_disk_append(run->fds[i], run->paths[i], end_of(run, i), bytes->data,
                                    bytes->len, &op->why);
        if (op->err) return;
        run->n_bytes[i] += bytes->len;
        weft_buf_fini(bytes);
    }
}

/* --------------------------------------------------------------------------------------- ending --- */

static weft_err flush_expired(struct batch_run *run, struct weft_buf *out,
                              struct weft_errmsg *why) {
    if (out->failed) return weft_err_set(why, WEFT_E_NOMEM, "no memory for answers");
    weft_err err = wefti_disk_append(run->fds[ANSWERS_ERROR], run->paths[ANSWERS_ERROR],
                                     run->n_bytes[ANSWERS_ERROR], out->data, out->len, why);
    if (!err) run->n_bytes[ANSWERS_ERROR] += out->len;
    weft_buf_clear(out);
    return err;
}

/* After an error the batch is opened again, and what is there then counts. */
static weft_err write_expired(struct batch_run *run, struct weft_errmsg *why) {
    struct weft_buf out;
    weft_err err = WEFT_OK;
    weft_buf_init(&out, 2 * EXPIRED_BYTES);
    for (uint32_t i = 0; i < run->n_places && !err; i++) {
        if (run->places[i].is_taken) continue;
        struct batch_item item = {.run = run, .idx = i};
        err = read_line(run, &item, why);
        const struct weft_api_batch_answer answer = {
            .batch_id = run->batch.id,
            .idx = i,
            .custom_id = item.line.custom_id,
            .code = "batch_expired",
            .message = "this request could not be computed before the completion window expired"};
        if (!err) weft_api_batch_write_answer(&answer, &out);
        weft_api_batch_line_fini(&item.line);
        run->n_answers[ANSWERS_ERROR]++;
        if (!err && out.len >= EXPIRED_BYTES) err = flush_expired(run, &out, why);
    }
    if (!err) err = flush_expired(run, &out, why);
    weft_buf_fini(&out);
    return err;
}

void wefti_batch_answer_file(const struct batch_run *run, int which, struct weft_api_file *out) {
    const struct weft_api_batch *batch = &run->batch;
    memset(out, 0, sizeof *out);
    (void)snprintf(out->id, sizeof out->id, "%s",
                   which == ANSWERS_OUTPUT ? batch->output : batch->error);
    (void)snprintf(out->name, sizeof out->name, "%s_%s.jsonl", batch->id,
                   which == ANSWERS_OUTPUT ? "output" : "error");
    (void)snprintf(out->purpose, sizeof out->purpose, "batch_output");
    out->tenant = batch->tenant;
    out->bytes = run->n_bytes[which];
    out->created_s = run->now_s;
    out->expires_s = run->now_s + (int64_t)run->ttl_s;
}

/* The files first: once the batch is over nobody asks for what they are any more. */
static weft_err end_answers(struct batch_run *run, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    bool *const has[] = {&run->batch.has_output, &run->batch.has_error};
    for (int i = 0; i < N_ANSWERS && !err; i++) {
        struct weft_api_file file;
        *has[i] = run->n_bytes[i] > 0;
        wefti_batch_answer_file(run, i, &file);
        if (*has[i])
            err = wefti_batch_keep_file_in_thread(run->folder, &file, why);
        else
            (void)unlink(run->paths[i]);
    }
    return err;
}

void wefti_batch_close_in_thread(struct batch_op *op) {
    struct batch_run *run = run_of(op);
    struct weft_api_batch *batch = &run->batch;
    bool is_cancelled = batch->status == WEFT_API_BATCH_CANCELLING;
    if (!is_cancelled) weft_api_batch_enter(batch, WEFT_API_BATCH_FINALIZING, run->now_s);
    /* That it expires is written first: once all lines have an answer nobody could tell. */
    if (run->expires) op->err = keep(run, &op->why);
    if (run->expires && !op->err) op->err = write_expired(run, &op->why);
    if (!op->err && !run->job) op->err = end_answers(run, &op->why);
    if (op->err) return;
    batch->n_completed = run->n_answers[ANSWERS_OUTPUT];
    batch->n_failed = run->n_answers[ANSWERS_ERROR];
    weft_api_batch_enter(batch,
                         is_cancelled   ? WEFT_API_BATCH_CANCELLED
                         : run->expires ? WEFT_API_BATCH_EXPIRED
                                        : WEFT_API_BATCH_COMPLETED,
                         run->now_s);
    op->err = keep(run, &op->why);
}
