/* codec/msgpack_json — MessagePack as JSON values. */
#ifndef WEFT_CODEC_MSGPACK_JSON_H
#define WEFT_CODEC_MSGPACK_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

/* A value that weft_msgpack_scan has measured, as JSON; maps need text keys, each once, and all text
 * must be UTF-8. NULL: `why` says what has no JSON form. */
json_t *weft_msgpack_to_json(const char *bytes, size_t len, struct weft_errmsg *why);

#endif
