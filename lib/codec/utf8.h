/* codec/utf8 — characters as numbers, and texts made valid.
 *
 * Only base/utf8.h decides which bytes are a character. Ill-formed bytes become U+FFFD, one for
 * each maximal subpart (Unicode 15, section 3.9). */
#ifndef WEFT_CODEC_UTF8_H
#define WEFT_CODEC_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/utf8.h"

#define WEFT_UTF8_REPLACEMENT "\xEF\xBF\xBD"
#define WEFT_UTF8_REPLACEMENT_CODE 0xFFFDu
#define WEFT_UTF8_CODE_MAX 0x10FFFFu

/* Bytes of the character that starts with `lead`, in valid UTF-8. */
static inline size_t weft_utf8_len(char lead) {
    unsigned char c = (unsigned char)lead;
    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

/* The character at `text`, which must be valid UTF-8. */
uint32_t weft_utf8_get(const char *text, size_t *len_out);

/* Appends a character, at most WEFT_UTF8_CODE_MAX. */
void weft_utf8_put(struct weft_buf *out, uint32_t code);

/* Characters in valid UTF-8. */
size_t weft_utf8_count(const char *bytes, size_t len);

/* Appends `len` arbitrary bytes as valid UTF-8. */
void weft_utf8_clean(struct weft_buf *out, const char *bytes, size_t len);

/* The same for bytes that come piece by piece: the beginning of a character stays in `pending`
 * (*n_pending of 0..3 bytes) until its end comes. Bytes left there at the end are one U+FFFD. */
void weft_utf8_feed(char pending[4], uint8_t *n_pending, const char *bytes, size_t len,
                    struct weft_buf *out);

#endif
