/* message/build: the formats of structural tags as JSON, put together. A node that is added belongs to what it is added
 * to; NULL stands for memory that ran out, which `failed` remembers. */
#ifndef WEFTI_MESSAGE_BUILD_H
#define WEFTI_MESSAGE_BUILD_H

#include <jansson.h>

#include "message/message.h"

/* In what is spelt: a whole number, counted by the model. */
#define WEFTI_MSG_NUMBER "\1"
/* A line may end there. */
#define WEFTI_MSG_LINE "\2"

struct wefti_msg_build {
    const struct weft_msg_wish *wish;
    uint32_t n_checks; /* schemas that may still be compiled to see whether they can be honoured */
    uint32_t n_looks;  /* at parts of schemas that are left: references make many of a few */
    bool failed;
    bool is_cut_off; /* properties were not looked at for want of looks */
};

json_t *wefti_msg_const(struct wefti_msg_build *b, const char *text, size_t n);
json_t *wefti_msg_regex(struct wefti_msg_build *b, const char *pattern);
json_t *wefti_msg_schema(struct wefti_msg_build *b, json_t *schema);
json_t *wefti_msg_optional(struct wefti_msg_build *b, json_t *content);
json_t *wefti_msg_star(struct wefti_msg_build *b, json_t *content);
/* Any text without the marks of the wish's format. */
json_t *wefti_msg_any_text(struct wefti_msg_build *b);

/* All in turn, and one of them. */
json_t *wefti_msg_seq(struct wefti_msg_build *b);
json_t *wefti_msg_or(struct wefti_msg_build *b);
void wefti_msg_add(struct wefti_msg_build *b, json_t *all, json_t *node);
void wefti_msg_add_text(struct wefti_msg_build *b, json_t *seq, const char *text, size_t n);
/* Text of a format, in which marks are the model's special tokens where it has such. */
void wefti_msg_add_spelt(struct wefti_msg_build *b, json_t *seq, const char *text);
/* The same as a begin, a trigger or a separator. */
json_t *wefti_msg_spelt(struct wefti_msg_build *b, const char *text);

/* Contents, with such a separator between them; at least one of them, or one. */
json_t *wefti_msg_separated(struct wefti_msg_build *b, json_t *content, const char *separator,
                            bool is_single);
/* Free text, in which `open` leads to the content, and nothing else that the parser reads calls from. */
json_t *wefti_msg_triggered(struct wefti_msg_build *b, const char *open, json_t *content,
                            bool is_single);

/* Takes looks. False: there are not so many left, and from here on none, nor checks. */
static inline bool wefti_msg_look_at(struct wefti_msg_build *b, size_t n) {
    bool can = n < b->n_looks;
    b->n_looks = can ? b->n_looks - (uint32_t)n : 0;
    if (!can) b->n_checks = 0;
    return can;
}

/* Adds to an object or a list, which own the value. */
void wefti_msg_set(struct wefti_msg_build *b, json_t *object, const char *key, json_t *value);
void wefti_msg_append(struct wefti_msg_build *b, json_t *list, json_t *value);
/* The text of a value. False: out->max_bytes are too few, or memory ran out: then `failed` is set. */
bool wefti_msg_dump(struct wefti_msg_build *b, const json_t *value, struct weft_buf *out);

#endif
