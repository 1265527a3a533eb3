/* A reader of protobuf's wire format: field after field, nothing kept, nothing past the end. */
#include "formats/protobuf.h"
#include "base/check.h"

static uint64_t varint(struct weft_cursor *cur) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = weft_cursor_u8(cur);
        value |= (uint64_t)(byte & 0x7F) << shift; /* the tenth byte gives one bit */
        if (!(byte & 0x80)) return value;
    }
    cur->failed = true;
    return 0;
}

bool wefti_tok_pb_next(struct weft_cursor *cur, struct wefti_tok_pb_field *field) {
    *field = (struct wefti_tok_pb_field){0};
    if (cur->failed || weft_cursor_left(cur) == 0) return false;
    uint64_t key = varint(cur);
    field->number = key >> 3;
    field->wire = (enum wefti_tok_pb_wire)(key & 7);
    switch (field->wire) {
    case WEFTI_TOK_PB_VARINT:
        field->value = varint(cur);
        break;
    case WEFTI_TOK_PB_FIXED64:
        field->value = weft_cursor_u64(cur);
        break;
    case WEFTI_TOK_PB_BYTES: {
        uint64_t n = varint(cur);
        if (n > weft_cursor_left(cur)) cur->failed = true;
        field->bytes.data = (const char *)weft_cursor_take(cur, cur->failed ? 0 : (size_t)n);
        field->bytes.len = cur->failed ? 0 : (size_t)n;
        break;
    }
    case WEFTI_TOK_PB_FIXED32:
        field->value = weft_cursor_u32(cur);
        break;
    default: /* groups: deprecated, never written */
        cur->failed = true;
    }
    if (field->number == 0) cur->failed = true;
    return !cur->failed;
}
