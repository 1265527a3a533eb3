/* codec/msgpack_reader — walks one MessagePack message from outside whose fields are known.
 *
 * It reads what the caller expects next and nothing else: there is no object tree, so a header that
 * claims four billion items costs nothing. The first fault sticks: it writes `why`, every later
 * read returns zero, and the caller looks at `err` once at the end. A zero that stands for a fault
 * is never used to index anything.
 */
#ifndef WEFT_CODEC_MSGPACK_READER_H
#define WEFT_CODEC_MSGPACK_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct weft_msgpack_reader {
    const uint8_t *begin, *at, *end;
    uint32_t depth;      /* open arrays */
    const char *message; /* its type's name, for the sentence */
    weft_err err;
    struct weft_errmsg *why;
};

void weft_msgpack_reader_init(struct weft_msgpack_reader *rd, const void *bytes, size_t len,
                              struct weft_errmsg *why);

size_t weft_msgpack_reader_left(const struct weft_msgpack_reader *rd);

/* Records the first fault, as "MESSAGE: FIELD TEXT (byte N)". */
void weft_msgpack_reader_fail(struct weft_msgpack_reader *rd, weft_err err, const char *field,
                              const char *fmt, ...) WEFT_PRINTF(4, 5);

uint64_t weft_msgpack_read_u64(struct weft_msgpack_reader *rd, const char *field);
/* WEFT_E_TOOBIG over `max`. */
uint32_t weft_msgpack_read_u32(struct weft_msgpack_reader *rd, const char *field, uint32_t max);
/* Of either sign; TOOBIG outside of 32 bits. */
int32_t weft_msgpack_read_i32(struct weft_msgpack_reader *rd, const char *field);
bool weft_msgpack_read_bool(struct weft_msgpack_reader *rd, const char *field);
/* Every bit pattern. */
float weft_msgpack_read_f32(struct weft_msgpack_reader *rd, const char *field);

/* True, and taken, when the next item is nil; otherwise nothing is taken. */
bool weft_msgpack_read_nil(struct weft_msgpack_reader *rd);

/* A `bin` of whole items of `item_bytes` each, at most `n_max` (else TOOBIG). Borrowed from the
 * input, not aligned. */
const void *weft_msgpack_read_bin(struct weft_msgpack_reader *rd, const char *field,
                                  size_t item_bytes, uint32_t n_max, uint32_t *n_out);

/* A `str` of well-formed UTF-8 without NUL, at most `len_max` bytes. Borrowed, not terminated. */
const char *weft_msgpack_read_str(struct weft_msgpack_reader *rd, const char *field, size_t len_max,
                                  size_t *len_out);

/* Opens an array that stands for a struct of `n_known` fields: fewer are a fault, more are skipped
 * by the matching close. Returns the argument for close. */
uint32_t weft_msgpack_read_open(struct weft_msgpack_reader *rd, const char *field,
                                uint32_t n_known);
void weft_msgpack_read_close(struct weft_msgpack_reader *rd, const char *field, uint32_t n_more);

/* Opens an array of structs of `n_known` fields each, at most `n_max`; returns how many. Since each
 * takes at least 1 + n_known bytes, a count that the remaining bytes cannot hold is refused here,
 * before memory is reserved. Close with weft_msgpack_read_close(rd, field, 0). */
uint32_t weft_msgpack_read_list(struct weft_msgpack_reader *rd, const char *field, uint32_t n_known,
                                uint32_t n_max);

/* Ends the message: bytes after it are a fault. */
void weft_msgpack_reader_finish(struct weft_msgpack_reader *rd);

#endif
