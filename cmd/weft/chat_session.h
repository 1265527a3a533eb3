/* chat_session — a chat that goes on at its next start: FILE has what was computed, FILE.json the
 * messages. The latter is the conversation; the former spares computing it again, and is passed over,
 * with a sentence on stderr, where it does not suit. */
#ifndef WEFT_CMD_WEFT_CHAT_SESSION_H
#define WEFT_CMD_WEFT_CHAT_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "conversation.h"
#include "engine/engine.h"

/* What a run of weft_generate finds in the first blocks. */
struct weft_chat_cache {
    uint32_t *tokens; /* [max_model_len] */
    uint32_t n_tokens;
    bool is_long; /* of prompts that are long ones to the engine */
};

/* Adds the messages of FILE.json, if it is there. PROTO: it has no such messages. INVAL: nothing can
 * be written there. */
WEFT_MUST_CHECK weft_err weft_chat_load(struct weft_conversation *c, const char *path,
                                        struct weft_errmsg *why);
/* Reads FILE into the engine's first blocks, if it is there and suits. */
void weft_chat_restore(weft_eng *eng, const char *path, struct weft_chat_cache *cache);

/* Writes both; of the cache whole blocks, none: FILE stays as it is. */
WEFT_MUST_CHECK weft_err weft_chat_keep(const weft_eng *eng, struct weft_conversation *c,
                                        const char *path, const struct weft_chat_cache *cache,
                                        struct weft_errmsg *why);

#endif
