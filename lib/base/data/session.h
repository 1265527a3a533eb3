/* base/session — the plain data of sessions: what is asked of a scheduler about them, and what that
 * asks of a worker's files.
 *
 * Model    A router asks under a number of its own and gets one answer. To save a session, or to
 *          restore one, the scheduler asks its worker, which has the blocks: SAVE, or OPEN, which
 *          tells what a file is about, and then READ into blocks that were taken for it. Each is
 *          answered once, and the next one asked after that.
 * Memory   Everything behind a pointer is borrowed from whoever made the struct.
 */
#ifndef WEFT_BASE_SESSION_H
#define WEFT_BASE_SESSION_H

#include <stdint.h>

#include "base/err.h"
#include "base/step.h"
#include "base/str.h"

/* The numbers of both enums travel (proto/schema.md): they never change. */
enum weft_session_op {
    WEFT_SESSION_LIST = 0, /* the tenant's */
    WEFT_SESSION_DROP = 1,
    WEFT_SESSION_SAVE = 2,
    WEFT_SESSION_RESTORE = 3,
    WEFT_SESSION_OP_COUNT,
};

struct weft_session_wish {
    uint64_t id; /* for the answer */
    enum weft_session_op op;
    uint64_t tenant;
    struct weft_str session_id, file; /* empty where the op has none */
};

struct weft_session_told {
    struct weft_str id;
    uint32_t n_tokens, n_blocks;
    uint64_t idle_us; /* since it was used last */
};

struct weft_session_answer {
    uint64_t id;
    weft_err err;
    const char *text;  /* the sentence that goes with it; never NULL */
    uint32_t n_tokens; /* saved, restored, dropped */
    uint64_t n_bytes;  /* of the file */
    uint32_t n_told;   /* of LIST, at most WEFT_SESSIONS_MAX */
    const struct weft_session_told *told;
};

enum weft_kv_file_op {
    WEFT_KV_FILE_SAVE = 0,
    WEFT_KV_FILE_OPEN = 1,
    WEFT_KV_FILE_READ = 2, /* the one that was opened under the same number */
    WEFT_KV_FILE_OP_COUNT,
};

struct weft_kv_file {
    uint64_t epoch, id;
    enum weft_kv_file_op op;
    struct weft_str name;
    uint64_t tenant;
    uint64_t space_hi, space_lo;           /* of SAVE, as is */
    uint32_t n_tokens;                     /* likewise */
    const uint32_t *tokens;                /* the tokens */
    uint32_t n_blocks[WEFT_KV_KINDS];      /* of full layers the last ones of the tokens', */
    const uint32_t *blocks[WEFT_KV_KINDS]; /* of windowed ones those that the next sees */
};

struct weft_kv_filed {
    uint64_t epoch, id;
    weft_err err;
    const char *text;            /* the sentence that goes with it; never NULL */
    uint64_t n_bytes;            /* of SAVE and READ: the file's */
    uint64_t space_hi, space_lo; /* of OPEN, as is */
    uint32_t n_tokens;           /* what follows */
    const uint32_t *tokens;
};

#endif
