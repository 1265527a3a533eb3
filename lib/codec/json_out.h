/* codec/json_out — JSON text, written piece by piece. The output is valid UTF-8 for any input. */
#ifndef WEFT_CODEC_JSON_OUT_H
#define WEFT_CODEC_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Appends the inside of a JSON string: quotes, backslashes and control characters escaped; each
 * maximal run of bytes that is not UTF-8 becomes U+FFFD. A character must not be split between
 * calls. */
void weft_json_text(struct weft_buf *out, const char *bytes, size_t len);

/* The same within quotes. */
void weft_json_str(struct weft_buf *out, const char *bytes, size_t len);

/* Nine significant digits: a float32 comes back bit for bit. Minus infinity and NaN, which JSON
 * lacks, are written -9999.0, as in vLLM. */
void weft_json_float(struct weft_buf *out, float value);

void weft_json_uint(struct weft_buf *out, uint64_t value);

/* True if a JSON text keeps these bounds; checked before parsing, since a parser spends some forty
 * bytes on each value and "[1,1,1,..." would make it eat memory. Counts without parsing. */
bool weft_json_within(const char *text, size_t len, size_t values_max, size_t depth_max);

/* Rewrites, in place, each whole number of a JSON text that has no room in 64 bits, as
 * 12345678901234567e3: the number nearest to it that has a point for jansson, which takes no larger
 * integer. Its first 17 digits stay, so it is the same double; over 1e308 it is about that. */
void weft_json_widen(char *text, size_t len);

#endif
