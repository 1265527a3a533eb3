/* message/json: a JSON value checked byte by byte, with where its parts begin and end.
 *
 * Strict: what it takes is valid JSON, valid UTF-8 and has no half of a surrogate pair, so that
 * bytes may be passed on as they are, before the value ends. Depth is bounded by
 * WEFTI_MSG_DEPTH_MAX. */
#ifndef WEFTI_MESSAGE_JSON_H
#define WEFTI_MESSAGE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#define WEFTI_MSG_DEPTH_MAX 64

/* What a byte means; more than one may hold. */
enum wefti_msg_mark {
    WEFTI_MSG_BAD = 1,    /* no JSON; alone */
    WEFTI_MSG_BEGIN = 2,  /* a value or key begins with it, in a container of the depth before it */
    WEFTI_MSG_BEFORE = 4, /* a number ended before it, in a container of the depth before it */
    WEFTI_MSG_END = 8,    /* a value or key ends with it, in a container of the depth after it */
};

struct wefti_msg_utf8 {
    uint8_t left, low, high; /* bytes that must come, and the bounds of the next */
};

struct wefti_msg_json {
    uint8_t state;
    bool is_key;  /* of the text at hand, or that just ended */
    bool is_over; /* the outermost value has ended */
    struct wefti_msg_utf8 utf8;
    const char *rest; /* of true, false, null */
    uint32_t depth, code;
    bool has_high; /* half of a surrogate pair, the other must follow */
    bool objects[WEFTI_MSG_DEPTH_MAX + 1];
};

/* Zeroed at the start. The marks of `c`. */
unsigned wefti_msg_json_feed(struct wefti_msg_json *json, char c);
/* false: the byte is no part of a UTF-8 text. ASCII between characters only. */
bool wefti_msg_utf8_feed(struct wefti_msg_utf8 *utf8, char c);

#endif
