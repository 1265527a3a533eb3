/* message/loosen: tools' schemas as they come, made such that a grammar honours them.
 *
 * What a schema has that no grammar can honour is taken away, as little as a few tries find: look-ahead and unknown
 * formats first, then groups of keywords, property by property, at last all but the type. A call
 * may then break what was taken away, and nothing else. */
#ifndef WEFTI_MESSAGE_LOOSEN_H
#define WEFTI_MESSAGE_LOOSEN_H

#include "build.h"

/* All types of JSON, as bits; a number may be an integer. */
enum {
    WEFTI_MSG_STRING = 1,
    WEFTI_MSG_NUMBERS = 2, /* "integer", too */
    WEFTI_MSG_BOOLEAN = 4,
    WEFTI_MSG_NULL = 8,
    WEFTI_MSG_ARRAY = 16,
    WEFTI_MSG_OBJECT = 32,
    WEFTI_MSG_ALL = 63,
};

/* The arguments' schema of a tool, or of none (NULL): an object's, which can be honoured. The caller drops it. */
json_t *wefti_msg_honoured(struct wefti_msg_build *b, const json_t *parameters);

/* Whether a schema can be honoured, and something satisfies it. */
bool wefti_msg_can(struct wefti_msg_build *b, const json_t *schema);
/* Whether a value of both can be made. Borrows both. */
bool wefti_msg_can_both(struct wefti_msg_build *b, const json_t *schema, json_t *other);

/* The schema that a local "$ref" leads to, else itself. Borrowed from `root`. */
const json_t *wefti_msg_resolve(const json_t *root, const json_t *schema);
/* The types that a value of it may have, or more. */
unsigned wefti_msg_types(struct wefti_msg_build *b, const json_t *root, const json_t *schema);
/* {"type": [...]} of these. The caller drops it. */
json_t *wefti_msg_typed(struct wefti_msg_build *b, unsigned types);
/* A copy of a schema within `root` that stands alone: definitions that it needs come along. Not
 * `is_whole_out`: it needs what can't come. The caller drops it. */
json_t *wefti_msg_alone(struct wefti_msg_build *b, const json_t *root, const json_t *schema,
                        bool *is_whole_out);

#endif
