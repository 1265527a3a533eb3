/* message/python: one Python literal, read byte by byte and written as JSON.
 *
 * Strings of one line in either quotes, numbers as JSON has them, True, False, None (and JSON's spellings), lists,
 * tuples and dicts with string keys. No more than WEFTI_MSG_DEPTH_MAX deep. */
#ifndef WEFTI_MESSAGE_PYTHON_H
#define WEFTI_MESSAGE_PYTHON_H

#include "base/buf.h"
#include "read/json.h"

enum wefti_msg_python_verdict {
    WEFTI_MSG_PY_MORE,   /* the byte is a part of it */
    WEFTI_MSG_PY_END,    /* its last byte */
    WEFTI_MSG_PY_BEFORE, /* it ended before this byte */
    WEFTI_MSG_PY_BAD,
};

struct wefti_msg_python {
    uint8_t state;
    char quote;
    uint8_t digits_left;
    bool is_key, is_empty; /* of the text at hand; of the container at hand */
    uint32_t code, high;   /* of an escape; half of a surrogate pair that waits for the other */
    uint32_t depth, n_word;
    char word[8];
    struct wefti_msg_json number;
    struct wefti_msg_utf8 utf8;
    char kinds[WEFTI_MSG_DEPTH_MAX + 1]; /* '[', '(' or '{' */
};

/* Zeroed at the start. Blanks before the literal are MORE. JSON is appended to `out`. */
enum wefti_msg_python_verdict wefti_msg_python_feed(struct wefti_msg_python *py, char c,
                                                    struct weft_buf *out);

#endif
