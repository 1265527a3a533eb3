/* codec/base64 — bytes as text (RFC 4648, section 4): with padding, without line breaks. */
#ifndef WEFT_CODEC_BASE64_H
#define WEFT_CODEC_BASE64_H

#include <stddef.h>

/* Writes the text of `n` bytes, four characters for every three begun, and returns its length; nothing
 * ends it. A longer run may come in pieces, all but the last of whole multiples of three. */
size_t weft_base64(const void *bytes, size_t n, char *out);

#endif
