/* messages — what Anthropic's answers, whole and in events, are made of: a list of blocks, in the order in which the
 * model wrote them. */
#ifndef WEFT_API_KINDS_MESSAGES_H
#define WEFT_API_KINDS_MESSAGES_H

#include "call/call_internal.h"
#include "kinds/kind.h"
#include "render/message.h"

/* Server-sent events with names, kept alive by "ping". */
extern const struct weft_api_framing wefti_api_messages_framing;
void wefti_api_messages_open_stream(struct choice *choice, struct weft_writer *w);
void wefti_api_messages_chunk(const struct render_chunk *chunk, struct weft_writer *w);
bool wefti_api_messages_end_stream(weft_api_call *call, struct weft_buf *out, size_t limit);
void wefti_api_messages_fail_stream(const weft_api_call *call, struct weft_buf *out);

/* A message's members before its content, within an open map; a block's, likewise, all but its text or input. */
void wefti_api_messages_head(const weft_api_call *call, struct weft_writer *w);
void wefti_api_messages_block(const struct choice *choice, const struct message_pieces *pieces,
                              const struct message_piece *piece, struct weft_writer *w);

/* "stop_reason" and "stop_sequence" (NULL: it goes on); "usage", while `n_output` tokens have come. */
void wefti_api_messages_stop(const struct choice *choice, struct weft_writer *w);
void wefti_api_messages_usage(const weft_api_call *call, uint64_t n_output, struct weft_writer *w);

/* Follows the view's blocks: whether the piece begins a new one, after which it is the open one. */
bool wefti_api_messages_begins(struct choice *choice, const struct message_piece *piece);
/* The open one ends, if there is one: after the last piece, and before one that begins another. */
void wefti_api_messages_close(struct choice *choice);
/* What the piece adds to it: its arguments are checked. */
void wefti_api_messages_note(struct choice *choice, const struct message_pieces *pieces,
                             const struct message_piece *piece);

#endif
