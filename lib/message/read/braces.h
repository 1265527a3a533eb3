/* message/braces: one value as Gemma 4 writes it, read byte by byte and written as JSON.
 *
 * {key:<|"|>text<|"|>,other:[1,true,null]}: keys without quotes, texts between marks of their own and without escapes.
 * Keys and texts may also be JSON's. No more than WEFTI_MSG_DEPTH_MAX deep. */
#ifndef WEFTI_MESSAGE_BRACES_H
#define WEFTI_MESSAGE_BRACES_H

#include "base/buf.h"
#include "read/json.h"

enum wefti_msg_braces_verdict {
    WEFTI_MSG_BRACES_MORE, /* the byte is a part of it */
    WEFTI_MSG_BRACES_END,  /* its last byte */
    WEFTI_MSG_BRACES_BAD,
};

struct wefti_msg_braces {
    uint8_t state;
    bool is_key;    /* of the text at hand */
    uint8_t n_mark; /* bytes of the mark that were read */
    uint32_t depth, n_word;
    char word[8];
    struct wefti_msg_json json; /* of a number, or of a text in JSON's quotes */
    struct wefti_msg_utf8 utf8;
    char kinds[WEFTI_MSG_DEPTH_MAX + 1]; /* '[' or '{' */
};

/* Zeroed at the start, which is an object's. JSON is appended to `out`. */
enum wefti_msg_braces_verdict wefti_msg_braces_feed(struct wefti_msg_braces *b, char c,
                                                    struct weft_buf *out);

#endif
