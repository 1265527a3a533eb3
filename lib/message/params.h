/* message/params: a tool's parameters one by one, for formats that write them so. */
#ifndef WEFTI_MESSAGE_PARAMS_H
#define WEFTI_MESSAGE_PARAMS_H

#include "loosen.h"

/* How a format writes them. */
struct wefti_msg_writing {
    const char *before_key, *after_key; /* around a parameter's name */
    const char *after_string_key;       /* where the value is a string; NULL: the same */
    const char *end;                    /* what no text of a value has in it */
    const char *close;                  /* what follows a value */
    bool loses_lines;                   /* a newline at either end of a value isn't part of it */
    bool is_python; /* KEY=LITERAL, with ", " between them; nothing else is read */
};

/* All texts of arguments that satisfy the schema, an object's that can be honoured: its properties in their order,
 * those that may be left out left out or not. `parameters` is the tool's schema as the parser has it, or NULL. */
json_t *wefti_msg_params(struct wefti_msg_build *b, const json_t *parameters, const json_t *schema,
                         const struct wefti_msg_writing *writing);

/* How the parser reads the text of a value. */
struct wefti_msg_reading {
    unsigned types; /* as which of these it reads a text that can be one, strings last; 0: as any */
    const char *end;  /* no text has it */
    bool loses_lines; /* as above */
};

/* One value of a schema within root. NULL: none can be said such that it is read back as what it is, which is no
 * failure. Strings are as they are. */
json_t *wefti_msg_text_value(struct wefti_msg_build *b, const json_t *root, const json_t *schema,
                             const struct wefti_msg_reading *reading);
/* Strings alone, where they are marked as such. */
json_t *wefti_msg_string_value(struct wefti_msg_build *b, const json_t *root, const json_t *schema,
                               const struct wefti_msg_reading *reading);
/* JSON of some types. */
json_t *wefti_msg_json_value(struct wefti_msg_build *b, const json_t *root, const json_t *schema,
                             unsigned types);
/* JSON, but for the words of Python. */
json_t *wefti_msg_python_value(struct wefti_msg_build *b, const json_t *root, const json_t *schema);
/* One of the two, which may be NULL. */
json_t *wefti_msg_either(struct wefti_msg_build *b, json_t *one, json_t *other);

#endif
