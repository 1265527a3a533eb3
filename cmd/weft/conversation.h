/* conversation — the messages of a chat, and the prompt that they make within a context of so many
 * tokens: if they are too many, the oldest turns are left out, the system message never. */
#ifndef WEFT_CMD_WEFT_CONVERSATION_H
#define WEFT_CMD_WEFT_CONVERSATION_H

#include <stdbool.h>
#include <stdint.h>

#include "talk.h"

#define WEFT_CONVERSATION_MESSAGES_MAX 65536u

struct weft_conversation {
    struct weft_tmpl_message *messages; /* [n], each with a text of its own */
    uint32_t n, cap;
    bool has_system;     /* then it is the first */
    uint32_t n_left_out; /* of the others: no prompt holds them any more */
    char *saved_as;      /* NULL: not yet */
};

void weft_conversation_fini(struct weft_conversation *c); /* accepts a zeroed one */

/* Appends a copy. FULL, NOMEM. */
WEFT_MUST_CHECK weft_err weft_conversation_add(struct weft_conversation *c, const char *role,
                                               struct weft_str text, struct weft_errmsg *why);
void weft_conversation_drop_last(struct weft_conversation *c);
/* Sets or replaces the system message; an empty text takes it away. */
WEFT_MUST_CHECK weft_err weft_conversation_set_system(struct weft_conversation *c,
                                                      struct weft_str text,
                                                      struct weft_errmsg *why);
/* Forgets all messages but the system message. */
void weft_conversation_reset(struct weft_conversation *c);

/* The prompt for the next turn, of at most `ids_max` tokens; the caller frees it. More turns than
 * before may be left out for it. TOOBIG: the last message alone is too long. */
WEFT_MUST_CHECK weft_err weft_conversation_prompt(struct weft_conversation *c,
                                                  const weft_tmpl *tmpl, const weft_tokenizer *tok,
                                                  size_t ids_max, uint32_t **ids_out, size_t *n_out,
                                                  struct weft_errmsg *why);

/* Writes {"messages": [...]}, a body for /v1/chat/completions. EXISTS: there is a file that this
 * conversation did not write. Whatever fails, there is what was there before. */
WEFT_MUST_CHECK weft_err weft_conversation_save(struct weft_conversation *c, const char *path,
                                                struct weft_errmsg *why);

#endif
