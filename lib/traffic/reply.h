/* traffic/reply — the stream of an answer: which pieces are tokens, and what it says of itself.
 *
 * Server-sent events of /v1/completions or /v1/chat/completions, in pieces of any size. Of each line
 * only the few bytes are looked at that tell a token from all else: a load test shares its CPUs
 * with the server it measures. Streams come from outside: nothing in them is believed, and a line
 * is bounded. */
#ifndef WEFT_TRAFFIC_REPLY_H
#define WEFT_TRAFFIC_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define WEFT_TRAFFIC_LINE_BYTES_MAX (1u << 20) /* of an event; one longer is a fault */
#define WEFT_TRAFFIC_ANSWER_BYTES_MAX (64u << 20)

/* What is kept of the answer, for a next turn. */
enum weft_traffic_keep {
    WEFT_TRAFFIC_KEEP_NOTHING,
    WEFT_TRAFFIC_KEEP_IDS,  /* ",46,1259": token ids, as vLLM, llama-server and weft name them */
    WEFT_TRAFFIC_KEEP_TEXT, /* the inside of a JSON string, with the server's own escapes */
};

struct weft_traffic_reply {
    bool is_chat;
    enum weft_traffic_keep keep;
    void (*on_token)(void *context); /* an event with text */
    void *context;

    struct weft_buf line; /* the beginning of one */
    struct weft_buf answer;
    uint64_t n_completion, n_prompt, n_cached; /* what `usage` says; 0 where it is silent */
    bool has_cached;
    bool is_done; /* [DONE] has come */
    bool is_faulty;
    char fault[256]; /* why, if it is */
};

void weft_traffic_reply_init(struct weft_traffic_reply *reply, bool is_chat,
                             enum weft_traffic_keep keep, void (*on_token)(void *context),
                             void *context);
void weft_traffic_reply_fini(struct weft_traffic_reply *reply);
/* For the next answer; memory stays. */
void weft_traffic_reply_clear(struct weft_traffic_reply *reply);

/* Takes the next bytes of the body. After a fault it takes no more. */
void weft_traffic_reply_feed(struct weft_traffic_reply *reply, const char *bytes, size_t n);

#endif
