/* digest — SHA-256 of a text, cut to 128 bits: who chooses the texts finds no two of one digest.
 *
 * `what` keeps uses apart: for each of them a text has another digest. It is short, and static.
 * Never all zeroes, which would mean that there is nothing. Threads: any. */
#ifndef WEFT_CODEC_DIGEST_H
#define WEFT_CODEC_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/request.h"

struct weft_digest weft_digest_of(const char *what, const char *text, size_t len);

/* Half of it, where two with one digest would harm nobody but who made them. Never 0. */
uint64_t weft_digest_u64(const char *what, const char *text, size_t len);

#endif
