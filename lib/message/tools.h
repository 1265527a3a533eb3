/* message/tools: the tools of a request, as the parser and the constraints look at them. */
#ifndef WEFTI_MESSAGE_TOOLS_H
#define WEFTI_MESSAGE_TOOLS_H

#include "message/message.h"

struct wefti_msg_tool {
    const char *name; /* of `list`, terminated */
    size_t name_len;
    const struct json_t *parameters; /* a JSON Schema, an object; NULL: none was given */
};

struct weft_msg_tools {
    struct json_t *list; /* owned: names and parameters are parts of it */
    uint32_t count;
    struct wefti_msg_tool *tools;
    size_t bytes; /* that the list takes, about */
};

/* NULL: there is none of that name. */
const struct wefti_msg_tool *wefti_msg_tool_named(const weft_msg_tools *tools,
                                                  struct weft_str name);

/* Whether what a tag says of a parameter is a string, whatever it looks like. */
bool wefti_msg_key_is_text(const struct json_t *parameters, struct weft_str key);

#endif
