/* engine/session_file — a conversation's KV blocks as a file, written by one engine and read back by
 * another of the same model.
 *
 * File     One piece, little-endian: a head (session_head.h) that names model, fingerprint, types and
 *          sizes and whose the file is, the tokens, a digest of every block, and the blocks: those of
 *          full layers in order, then those of windowed ones that the next position sees, or the
 *          state of recurrent layers after the last token. A digest
 *          covers all that is before the blocks. docs/sessions.md.
 * Writing  Goes to a name of its own beside the file's, which is locked; it gets its name when it is
 *          whole and on the disk. What a process left there that died is removed by the next one: files
 *          of such a name that are empty or begin as a session's does. No other file is touched, and
 *          none is replaced but a session's of the same owner.
 * Threads  Any, one at a time, beside steps: nobody may write the blocks that are saved, or use those
 *          that are read into, meanwhile.
 * Errors   CLOSED (called off), NOTFOUND, IO (names file and reason), PROTO (not such a file, damaged, cut short, or
 *          another's: model, fingerprint, sizes, owner), FULL (the folder's bound, or the disk), AGAIN
 *          (somebody else writes it now), NOMEM. Each with a
 *          sentence for whoever asked, that names the file. */
#ifndef WEFT_ENGINE_SESSION_FILE_H
#define WEFT_ENGINE_SESSION_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/step.h"
#include "engine/engine.h"

/* In the order of their tokens; as many of each kind as weft_eng_session_n_blocks says. Where layers carry a state, the
 * second kind is one checkpoint: the state after the last token. */
struct weft_eng_session_blocks {
    const uint32_t *blocks[WEFT_KV_KINDS];
    uint32_t n[WEFT_KV_KINDS];
};

struct weft_eng_session {
    uint64_t tenant;             /* whose it is */
    uint64_t space_hi, space_lo; /* what besides tokens its blocks depend on; zeroes: nothing */
    const uint32_t *tokens;      /* [n_tokens], of whole blocks */
    uint32_t n_tokens;
    struct weft_eng_session_blocks blocks; /* where they are, if it is to be saved */
};

/* How many blocks of a kind belong to so many tokens: all, or those of the last window. */
uint32_t weft_eng_session_n_blocks(const struct weft_eng_info *info, enum weft_kv_kind kind,
                                   uint32_t n_tokens);

/* Whether a name is one for a file: 1 to 128 bytes, no '/' or control character, no '.' at first. */
bool weft_eng_session_name_fits(const char *name, size_t len);

struct weft_eng_session_folder {
    const char *dir;
    uint64_t bytes_max; /* of all files in it; UINT64_MAX: nobody goes through them */
    /* Once it is true, a save leaves no file, and a read ends after the block at hand: CLOSED. The
     * blocks may be written by others from then on. Set by another thread before that. */
    const _Atomic bool *is_called_off;
};

/* Whether files can be kept there at all, to be told when a server starts. NOTFOUND, IO. */
WEFT_MUST_CHECK weft_err weft_eng_session_check_folder(const char *dir, struct weft_errmsg *why);

/* Writes a file of this name into the folder, in place of what is there. */
WEFT_MUST_CHECK weft_err weft_eng_session_save(const weft_eng *eng,
                                               const struct weft_eng_session_folder *folder,
                                               const char *name,
                                               const struct weft_eng_session *session,
                                               uint64_t *n_bytes_out, struct weft_errmsg *why);

typedef struct weft_eng_session_file weft_eng_session_file;

/* Opens one and checks all but the blocks. It must be `tenant`'s. */
WEFT_MUST_CHECK weft_err weft_eng_session_open(const weft_eng *eng,
                                               const struct weft_eng_session_folder *folder,
                                               const char *name, uint64_t tenant,
                                               weft_eng_session_file **file_out,
                                               struct weft_errmsg *why);
void weft_eng_session_close(weft_eng_session_file *file); /* accepts NULL */

uint64_t weft_eng_session_bytes(const weft_eng_session_file *file); /* all of it */
/* What it is about; the file's. */
const struct weft_eng_session *weft_eng_session_of(const weft_eng_session_file *file);
/* Reads its blocks into these: of full layers the last n, of windowed ones all. PROTO: a block is
 * damaged; what is in the blocks then is of no use. */
WEFT_MUST_CHECK weft_err weft_eng_session_read(weft_eng *eng, weft_eng_session_file *file,
                                               const struct weft_eng_session_blocks *blocks,
                                               struct weft_errmsg *why);

#endif
