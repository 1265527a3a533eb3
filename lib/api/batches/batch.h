/* batch — batches of requests and the files that hold them, as OpenAI has them: their objects, and a batch's
 * lines. No clock, no disk: the router keeps both.
 *
 * Model    A batch asks one endpoint for what the lines of an input file say, each {"custom_id", "method", "url",
 *          "body"}, and has an answer for each in one of two files: {"id", "custom_id", "response": {"status_code",
 *          "request_id", "body"}, "error"}; those with a status of 200 in the output file, all others in the error
 *          file. A line's answer begins with an id that tells its place in the input, so what is there after a
 *          crash tells which lines have had their answers.
 * Private  A batch and a file belong to a tenant; for others they are not there.
 * Memory   Structs are the caller's; a batch owns its two texts (weft_api_batch_fini).
 * Checked in tests/unit/test_api_batches.c.
 */
#ifndef WEFT_API_BATCH_H
#define WEFT_API_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/call.h"
#include "api/error.h"
#include "api/multipart.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#define WEFT_API_STORED_ID_BYTES 40
#define WEFT_API_BATCH_LINES_MAX 50000u /* OpenAI's bound, too */
#define WEFT_API_CUSTOM_ID_BYTES_MAX 512
#define WEFT_API_BATCH_FAULTS_MAX 20 /* of its lines that are told */
#define WEFT_API_BATCH_WINDOW_S_MAX (30u * 86400)
#define WEFT_API_FILE_SECONDS_MIN 3600u /* of "expires_after": OpenAI's bounds */
#define WEFT_API_FILE_SECONDS_MAX (30u * 86400)
#define WEFT_API_METADATA_MAX 16 /* pairs, and their bytes: */
#define WEFT_API_METADATA_KEY_BYTES_MAX 64
#define WEFT_API_METADATA_VALUE_BYTES_MAX 512

struct weft_api_file {
    char id[WEFT_API_STORED_ID_BYTES];
    uint64_t tenant, bytes;
    int64_t created_s, expires_s; /* 0: never */
    char purpose[24];             /* "batch", "batch_output" */
    char name[WEFT_API_FILENAME_BYTES_MAX + 1];
};

/* Names as they are told. Those after CANCELLING are final. */
#define WEFT_API_BATCH_STATUS_LIST(X)                                                              \
    X(VALIDATING, "validating")                                                                    \
    X(IN_PROGRESS, "in_progress")                                                                  \
    X(FINALIZING, "finalizing")                                                                    \
    X(CANCELLING, "cancelling")                                                                    \
    X(COMPLETED, "completed")                                                                      \
    X(FAILED, "failed")                                                                            \
    X(EXPIRED, "expired")                                                                          \
    X(CANCELLED, "cancelled")

enum weft_api_batch_status {
#define X(name, text) WEFT_API_BATCH_##name,
    WEFT_API_BATCH_STATUS_LIST(X)
#undef X
        WEFT_API_BATCH_STATUSES,
};

struct weft_api_batch {
    char id[WEFT_API_STORED_ID_BYTES];
    uint64_t tenant;
    uint32_t weight; /* the tenant's */
    char endpoint[64], window[16];
    char input[WEFT_API_STORED_ID_BYTES];
    char output[WEFT_API_STORED_ID_BYTES],
        error[WEFT_API_STORED_ID_BYTES]; /* drawn when it is made, */
    bool has_output, has_error;          /* and told once it is over */
    enum weft_api_batch_status status;
    int64_t created_s, expires_s;          /* the end of its window */
    int64_t at_s[WEFT_API_BATCH_STATUSES]; /* since when it had a status; 0: it never did */
    uint32_t n_total, n_completed, n_failed;
    char *metadata, *errors; /* JSON, owned: an object, and the list of faults. NULL: none */
};

/* ------------------------------------------------------------------------------------- objects --- */

void weft_api_file_write(const struct weft_api_file *file, struct weft_buf *out);
void weft_api_batch_write(const struct weft_api_batch *batch, struct weft_buf *out);
void weft_api_batch_fini(struct weft_api_batch *batch);

bool weft_api_batch_is_over(const struct weft_api_batch *batch);
/* Begins a status, unless the batch is over. */
void weft_api_batch_enter(struct weft_api_batch *batch, enum weft_api_batch_status status,
                          int64_t now_s);

/* The same as kept on a disk: one JSON object, with what is not told. Reading checks everything. PROTO. */
void weft_api_file_store(const struct weft_api_file *file, struct weft_buf *out);
void weft_api_batch_store(const struct weft_api_batch *batch, struct weft_buf *out);
WEFT_MUST_CHECK weft_err weft_api_file_restore(struct weft_str text, struct weft_api_file *file_out,
                                               struct weft_errmsg *why);
WEFT_MUST_CHECK weft_err weft_api_batch_restore(struct weft_str text,
                                                struct weft_api_batch *batch_out,
                                                struct weft_errmsg *why);

/* A fresh id: "batch_" or "file-" and digits. */
void weft_api_stored_id(const char *prefix, char out[WEFT_API_STORED_ID_BYTES]);
/* An upload's fields "expires_after[anchor]" and "expires_after[seconds]"; NULL: not sent. The file goes at its
 * end by then, at most. False: the error says why. */
bool weft_api_file_expire(struct weft_api_file *file, const char *anchor, const char *seconds,
                          struct weft_api_error *error);

/* Whether a text looks like one: it then holds neither '/' nor '.'. */
bool weft_api_is_stored_id(struct weft_str text);

/* Reads the body of POST /v1/batches; ids, tenant and times are the caller's. False: the error says why. */
bool weft_api_batch_parse(struct weft_str body, struct weft_api_batch *batch_out, int64_t now_s,
                          struct weft_api_error *error);

/* --------------------------------------------------------------------------------------- lines --- */

struct weft_api_batch_line {
    struct weft_str custom_id; /* its bytes: */
    char *name;                /* owned */
    struct weft_str url;       /* the kind's path */
    const weft_api_kind *kind;
    char *body; /* owned: JSON again, no tree of it, which takes many times the memory */
    size_t n_body;
};

/* A fault of a line, with OpenAI's code. */
struct weft_api_batch_fault {
    const char *code; /* static */
    const char *param;
    char message[200];
    bool is_memory; /* which ran out: nobody knows whether there is a fault */
};

/* `endpoint`: the only one that it may ask; NULL: any that batches may. `json_bytes_max`: see
 * weft_api_reading_bytes. False: `fault` says why; `line` needs
 * weft_api_batch_line_fini either way. Threads: any. */
bool weft_api_batch_line_read(struct weft_str text, const char *endpoint, size_t json_bytes_max,
                              struct weft_api_batch_line *line, struct weft_api_batch_fault *fault);
void weft_api_batch_line_fini(struct weft_api_batch_line *line);

/* Lines of a batch's file one by one: from `at` on, without its end; empty ones are passed over. False: no more. */
bool weft_api_batch_next_line(struct weft_str *rest, struct weft_str *line_out);

/* Adds to a list of faults, JSON without its brackets. `idx`: of the line, from 0; UINT32_MAX: of none. */
void weft_api_batch_add_fault(struct weft_buf *list, const struct weft_api_batch_fault *fault,
                              uint32_t idx);

/* Appends a line's answer. `request_id`: NULL: none was asked. `body` is JSON. */
struct weft_api_batch_answer {
    const char *batch_id; /* of which its id is made with `idx` */
    uint32_t idx;
    struct weft_str custom_id;
    int status; /* 0: no response, but this: */
    const char *code, *message;
    const char *request_id;
    struct weft_str body;
};
void weft_api_batch_write_answer(const struct weft_api_batch_answer *answer, struct weft_buf *out);

/* The place of the line that an answer is to. False: it is none of this batch. */
bool weft_api_batch_answered(struct weft_str answer, const char *batch_id, uint32_t *idx_out);

/* What an answer, of whatever batch, says of the line that it is to. */
struct weft_api_batch_answered {
    char custom_id[WEFT_API_CUSTOM_ID_BYTES_MAX];
    size_t n_custom_id;
    int status; /* 0: no response */
};

/* Reads a whole line, with or without its newline, as weft_api_batch_write_answer makes it; whose file it is, nobody
 * knows. False: it is none. */
bool weft_api_batch_answer_read(struct weft_str line, struct weft_api_batch_answered *answered_out);
/* Whether `text` begins as answers do, or is too short to tell: a last line that was cut short. */
bool weft_api_batch_begins_answer(struct weft_str text);

#endif
