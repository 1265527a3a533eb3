/* json_out — JSON text, written piece by piece. Whatever bytes go in, valid UTF-8 comes out. */
#ifndef WEFT_ROUTER_JSON_OUT_H
#define WEFT_ROUTER_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The text with each maximal run of bytes that is not UTF-8 as U+FFFD. */
void wefti_utf8_clean(struct weft_buf *out, const char *bytes, size_t len);

/* The inside of a JSON string: quotes, backslashes and control characters escaped; each maximal
 * run of bytes that is not UTF-8 becomes U+FFFD. A character must not be split between calls. */
void wefti_json_text(struct weft_buf *out, const char *bytes, size_t len);

/* The same within quotes. */
void wefti_json_str(struct weft_buf *out, const char *bytes, size_t len);

/* Nine significant digits: a float32 comes back bit for bit. Minus infinity, which JSON cannot
 * say, is -9999.0, as vLLM writes it; so is NaN. */
void wefti_json_float(struct weft_buf *out, float value);

void wefti_json_uint(struct weft_buf *out, uint32_t value);

/* Length of the UTF-8 character at `bytes` (1..4), or 0 if the bytes there are none. Then *bad_out
 * is how many of them one U+FFFD stands for. */
size_t wefti_utf8_char(const char *bytes, size_t len, size_t *bad_out);

/* Characters in valid UTF-8. */
size_t wefti_utf8_count(const char *bytes, size_t len);

/* Upper bounds a JSON text must keep before it is parsed: a parser spends some forty bytes on each
 * value, so "[1,1,1,..." is the cheapest way to make it eat memory. Counts without parsing. */
bool wefti_json_within(const char *text, size_t len, size_t values_max, size_t depth_max);

#endif
