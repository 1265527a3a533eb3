/* reader — walks one MessagePack message from outside; private to proto.
 *
 * It reads what the caller expects next and nothing else: there is no object tree, so a header that
 * claims four billion items costs nothing. The first fault sticks: it writes `why`, every later
 * read returns zero, and the caller looks at `err` once at the end. A zero that stands for a fault
 * is never used to index anything.
 */
#ifndef WEFT_PROTO_READER_H
#define WEFT_PROTO_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Our own messages nest 4 deep; the rest is room for fields that later versions append. */
#define WEFTI_PROTO_DEPTH_MAX 16

struct wefti_proto_reader {
    const uint8_t *begin, *at, *end;
    uint32_t depth;      /* open arrays */
    const char *message; /* its type's name, for the sentence */
    weft_err err;
    struct weft_errmsg *why;
};

void wefti_proto_reader_init(struct wefti_proto_reader *rd, const void *bytes, size_t len,
                             struct weft_errmsg *why);

size_t wefti_proto_reader_left(const struct wefti_proto_reader *rd);

/* Records the first fault, as "MESSAGE: FIELD TEXT (byte N)". */
void wefti_proto_reader_fail(struct wefti_proto_reader *rd, weft_err err, const char *field,
                             const char *fmt, ...) WEFT_PRINTF(4, 5);

uint64_t wefti_proto_read_u64(struct wefti_proto_reader *rd, const char *field);
/* WEFT_E_TOOBIG over `max`. */
uint32_t wefti_proto_read_u32(struct wefti_proto_reader *rd, const char *field, uint32_t max);
bool wefti_proto_read_bool(struct wefti_proto_reader *rd, const char *field);
float wefti_proto_read_f32(struct wefti_proto_reader *rd,
                           const char *field); /* every bit pattern */

/* True, and taken, when the next item is nil; otherwise nothing is taken. */
bool wefti_proto_read_nil(struct wefti_proto_reader *rd);

/* A `bin` of whole items of `item_bytes` each, at most `n_max` (else TOOBIG). Borrowed from the
 * input, not aligned. */
const void *wefti_proto_read_bin(struct wefti_proto_reader *rd, const char *field,
                                 size_t item_bytes, uint32_t n_max, uint32_t *n_out);

/* A `str` of well-formed UTF-8 without NUL, at most `len_max` bytes. Borrowed, not terminated. */
const char *wefti_proto_read_str(struct wefti_proto_reader *rd, const char *field, size_t len_max,
                                 size_t *len_out);

/* Opens an array that stands for a struct of `n_known` fields: fewer are a fault, more are skipped
 * by the matching close. Returns the argument for close. */
uint32_t wefti_proto_read_open(struct wefti_proto_reader *rd, const char *field, uint32_t n_known);
void wefti_proto_read_close(struct wefti_proto_reader *rd, const char *field, uint32_t n_more);

/* Opens an array of `*n` structs of `n_known` fields each, at most `n_max`. Since each takes at
 * least 1 + n_known bytes, a count that the remaining bytes cannot hold is refused here, before
 * memory is reserved. Close with wefti_proto_read_close(rd, field, 0). */
uint32_t wefti_proto_read_list(struct wefti_proto_reader *rd, const char *field, uint32_t n_known,
                               uint32_t n_max);

/* Ends the message: bytes after it are a fault. */
void wefti_proto_reader_finish(struct wefti_proto_reader *rd);

#endif
