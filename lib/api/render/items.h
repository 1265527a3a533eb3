/* items — a choice's output as a list of items: each run of thoughts, each run of its answer, and each call.
 *
 * A reader goes through the choice once, from the first token on, with a view of its own (render/choice_text.h). A
 * stream that tells an item again at its end has a reader for each time it does, all of which only go forward: nothing
 * is kept, and no token is read more often than there are readers.
 */
#ifndef WEFT_API_RENDER_ITEMS_H
#define WEFT_API_RENDER_ITEMS_H

#include <stdbool.h>
#include <stdint.h>

#include "call/call_internal.h"
#include "render/message.h"

struct item_reader {
    struct choice choice; /* a copy, with its own view */
    struct message_pieces pieces;
    uint32_t next; /* of them */
    bool is_begun, is_over;
};

/* What lies open, and how far it has been told. */
struct item {
    bool is_open;
    bool is_closing;         /* its text is complete, and what stands after it comes, */
    bool is_told;            /* none of which is written */
    bool is_cut;             /* by the end of the output */
    enum weft_msg_kind kind; /* THOUGHT, CONTENT or CALL */
    uint32_t call;
    uint32_t index;          /* among the items */
    uint32_t lp_from, lp_to; /* the tokens that told it */
};

/* Starts over. */
void wefti_api_items_rewind(struct item_reader *reader);
void wefti_api_items_fini(struct item_reader *reader);

/* The piece at which the reader stands, which is never empty but for a call's; NULL: none yet, or (is_over) at the end.
 * It is valid until the reader goes on. */
const struct message_piece *wefti_api_items_peek(struct item_reader *reader,
                                                 const struct choice *choice);
void wefti_api_items_skip(struct item_reader *reader);
/* Tokens read so far. */
uint32_t wefti_api_items_pos(const struct item_reader *reader);
struct weft_str wefti_api_items_text(const struct item_reader *reader,
                                     const struct message_piece *piece);

/* Whether the end of the output, or a stop string in a call, has cut the last item, behind which the reader stands. */
bool wefti_api_item_is_cut(const struct item *item, const struct item_reader *reader);

/* Whether the piece goes on with the item. */
bool wefti_api_item_has(const struct item *item, const struct message_piece *piece);
/* The item of this index, which begins with the piece. */
struct item wefti_api_item_of(uint32_t index, const struct message_piece *piece);

#endif
