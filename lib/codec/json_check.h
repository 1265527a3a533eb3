/* codec/json_check — whether bytes that come in pieces are one JSON object, and whole.
 *
 * Accepts  What RFC 8259 calls an object, blanks around it included; texts by their syntax only, not by their UTF-8;
 *          nothing nested deeper than WEFT_JSON_CHECK_DEPTH_MAX.
 * Memory   The struct, whose start is all zeros. Nothing is kept of the bytes.
 * Checked in tests/unit/test_json_check.c.
 */
#ifndef WEFT_CODEC_JSON_CHECK_H
#define WEFT_CODEC_JSON_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_JSON_CHECK_DEPTH_MAX 256

struct weft_json_check {
    uint8_t state;
    uint8_t n_hex;
    const char *rest; /* of a literal */
    bool is_key;      /* the text being read is */
    uint16_t depth;
    uint8_t is_map[WEFT_JSON_CHECK_DEPTH_MAX / 8]; /* a bit for each level, else a list */
};

void weft_json_check_more(struct weft_json_check *check, const char *bytes, size_t len);
bool weft_json_check_is_whole(const struct weft_json_check *check);

#endif
