/* traffic/body — the JSON of a request: streaming, greedy, past the end of the text.
 *
 * What is the same in all of them is made once, with the fields that somebody adds or replaces. */
#ifndef WEFT_TRAFFIC_BODY_H
#define WEFT_TRAFFIC_BODY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct weft_traffic_body {
    bool is_chat, has_max_tokens; /* `fixed` has them */
    struct weft_buf fixed;        /* ",..." without the last brace */
};

/* `extra` is a JSON object of fields (NULL: none), which go before ours. `wants_ids`: the answer has
 * to name its token ids. INVAL: `extra` is none, or changes what the workload is about; NOMEM. To
 * fini after an error, too. */
WEFT_MUST_CHECK weft_err weft_traffic_body_init(struct weft_traffic_body *body, bool is_chat,
                                                bool wants_ids, const char *extra,
                                                struct weft_errmsg *why);
void weft_traffic_body_fini(struct weft_traffic_body *body);

/* Appends a request: `history` holds the members of its list of token ids or messages. */
void weft_traffic_add_body(const struct weft_traffic_body *body, const struct weft_buf *history,
                           uint32_t max_tokens, struct weft_buf *out);

/* To `history`, the answer of a reply that kept it. */
void weft_traffic_add_answer(const struct weft_traffic_body *body, const struct weft_buf *answer,
                             struct weft_buf *history);

#endif
