/* engine/runtime/session_head — what stands before the blocks in a session's file, without the file.
 *
 * Bytes come from outside: nothing is taken for granted, and no size is believed that the file's own
 * does not bear out. */
#ifndef WEFT_ENGINE_SESSION_HEAD_H
#define WEFT_ENGINE_SESSION_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/step.h"

#define WEFTI_SESSION_VERSION 2
#define WEFTI_SESSION_MAGIC_BYTES 8

/* What kv_dtype is in a file: the numbers of enum weft_kv_dtype. */
enum {
    WEFTI_SESSION_KV_F32,
    WEFTI_SESSION_KV_BF16,
    WEFTI_SESSION_KV_F16,
    WEFTI_SESSION_KV_INT8,
    WEFTI_SESSION_KV_COUNT,
};

struct wefti_session_digest {
    uint64_t lo, hi; /* XXH3, 128 bits */
};

/* As it stands in the file: no padding. All before block_bytes has its place in later versions, too. */
struct wefti_session_head {
    char magic[WEFTI_SESSION_MAGIC_BYTES];
    uint32_t version, head_bytes; /* of this struct */
    char model_name[128], fingerprint[32];
    uint64_t tenant, space_hi, space_lo;
    uint64_t block_bytes[WEFT_KV_KINDS];
    uint32_t block_size, window, kv_dtype, n_tokens;
    uint32_t n_blocks[WEFT_KV_KINDS];
    struct wefti_session_digest digest; /* of it, with zeroes here, of tokens and of digests */
};
_Static_assert(sizeof(struct wefti_session_head) == 256, "no padding");

/* What the head of a file must say that can be used here; tokens are below n_vocab. */
struct wefti_session_want {
    const char *model_name, *fingerprint;
    uint64_t tenant;
    uint64_t block_bytes[WEFT_KV_KINDS];
    uint32_t block_size, window, kv_dtype, n_vocab;
    bool has_state; /* then there is no window */
};

/* Blocks of each kind, of so many tokens of whole blocks. Where layers carry a state, the second kind has one piece: the
 * state after the last token. */
uint32_t wefti_session_n_blocks(enum weft_kv_kind kind, const struct wefti_session_want *facts,
                                uint32_t n_tokens);

/* Whether a file that begins so calls itself a session's. */
bool wefti_session_has_magic(const char begin[WEFTI_SESSION_MAGIC_BYTES]);

/* Fills in all but the digest. */
void wefti_session_head_init(struct wefti_session_head *head,
                             const struct wefti_session_want *facts, uint32_t n_tokens);

/* Bytes of all that is before the blocks, and of the whole file. */
uint64_t wefti_session_front_bytes(const struct wefti_session_head *head);
uint64_t wefti_session_file_bytes(const struct wefti_session_head *head);

/* `front`: all that is before the blocks, its digest any. */
struct wefti_session_digest wefti_session_front_digest(const void *front, uint64_t n_bytes);
struct wefti_session_digest wefti_session_block_digest(const void *block, uint64_t n_bytes);

/* Whether a file of file_bytes that begins so can be one, before more is read. PROTO. `name` is for
 * the sentence. */
WEFT_MUST_CHECK weft_err wefti_session_check_head(const struct wefti_session_head *head,
                                                  uint64_t file_bytes, const char *name,
                                                  const struct wefti_session_want *want,
                                                  struct weft_errmsg *why);
/* The same of all that is before the blocks, front_bytes of the head. */
WEFT_MUST_CHECK weft_err wefti_session_check_front(const void *front, const char *name,
                                                   const struct wefti_session_want *want,
                                                   struct weft_errmsg *why);

#endif
