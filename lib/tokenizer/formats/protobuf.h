/* protobuf — the wire format, field by field. */
#ifndef WEFT_TOK_PROTOBUF_H
#define WEFT_TOK_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cursor.h"
#include "base/str.h"

enum wefti_tok_pb_wire {
    WEFTI_TOK_PB_VARINT = 0,
    WEFTI_TOK_PB_FIXED64 = 1,
    WEFTI_TOK_PB_BYTES = 2,
    WEFTI_TOK_PB_FIXED32 = 5,
};

struct wefti_tok_pb_field {
    uint64_t number;
    enum wefti_tok_pb_wire wire;
    uint64_t value;        /* VARINT and FIXED */
    struct weft_str bytes; /* BYTES; borrowed */
};

/* The next field of a message; false at its end, and with cur->failed if it is damaged. */
bool wefti_tok_pb_next(struct weft_cursor *cur, struct wefti_tok_pb_field *field);

#endif
