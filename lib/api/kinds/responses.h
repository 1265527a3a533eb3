/* responses — what the body of a response and its stream share.
 *
 * Items come in the order in which the model writes them: what it thinks, what it says, what it
 * calls; in a body as in a stream. The stream's events tell each item up to three times more when
 * it ends, and the last one tells all of them: each from the tokens again, by a reader of its own
 * (render/items.h).
 */
#ifndef WEFT_API_KINDS_RESPONSES_H
#define WEFT_API_KINDS_RESPONSES_H

#include "kinds/kind.h"
#include "render/items.h"

enum response_stage {
    RESPONSE_CREATED,
    RESPONSE_IN_PROGRESS,
    RESPONSE_READING,
    RESPONSE_CLOSING_TEXT,
    RESPONSE_CLOSING_PART,
    RESPONSE_CLOSING_ITEM,
    RESPONSE_FAILING,
    RESPONSE_ENDING,
    RESPONSE_OVER,
};

enum response_reader { READS_STREAM, TELLS_TEXT, TELLS_PART, TELLS_ITEM, TELLS_BODY, N_READERS };

struct response_state {
    struct item_reader readers[N_READERS];

    enum response_stage stage; /* of the stream, */
    struct item item;          /* and what lies open in it */
    uint32_t n_items, n_events;
    uint32_t n_told; /* tokens */

    struct item body_item; /* the same of the body */
    uint32_t n_body_items, n_body_told;

    bool is_kept; /* it has been tried */
};

/* The call's; NULL: no memory. */
struct response_state *wefti_api_response_state(weft_api_call *call);

/* An id of an item: "msg_...". */
#define RESPONSE_ITEM_ID_BYTES 32
const char *wefti_api_response_item_id(const weft_api_call *call, const struct item *item,
                                       char storage[RESPONSE_ITEM_ID_BYTES]);

/* The response's object up to its items. `status`: NULL for that of a complete one. */
void wefti_api_response_open(const weft_api_call *call, const char *status, struct weft_writer *w);
/* Its usage and numbers; then what the request said, and its end: a part. */
void wefti_api_response_facts(const weft_api_call *call, bool has_usage, struct weft_writer *w);
bool wefti_api_response_fields_part(const struct body_piece *at);

/* An item up to its text, which is open then; `piece` is the reader's, of a call. */
void wefti_api_response_open_item(const struct body_piece *at, const struct item *item,
                                  const struct item_reader *reader,
                                  const struct message_piece *piece);
/* What stands after the text. False: to be gone on with. */
bool wefti_api_response_close_item(const struct body_piece *at, struct item *item);

/* The tokens that a piece of an answer is told by, from the `n_told` on which were told. */
void wefti_api_response_note_tokens(struct item *item, uint32_t pos, uint32_t *n_told);

/* Renders a stream: `stream` of the kind. */
enum weft_api_render wefti_api_response_stream(weft_api_call *call, struct weft_buf *out,
                                               size_t limit);

#endif
