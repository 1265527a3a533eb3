/* message — a choice's text told apart: what the model thinks, its answer, and its calls (message/message.h).
 *
 * A choice is read by its view, as render/choice_text.h says: in a stream once, with pieces of all kinds in each
 * chunk; in a body once for each kind, so that nothing has to be kept.
 */
#ifndef WEFT_API_RENDER_MESSAGE_H
#define WEFT_API_RENDER_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "codec/writer.h"
#include "kinds/kind.h"
#include "message/message.h"

struct choice;
struct choice_view;

/* A piece of a chunk: some more of one thing. Neighbours of one kind (and call) are one piece. */
struct message_piece {
    enum weft_msg_kind kind;
    uint32_t call;
    size_t at, len;       /* within the text */
    size_t id_at, id_len; /* CALL: the output's own id; len 0: it has none */
};

/* What a chunk's tokens told. */
struct message_pieces {
    struct weft_buf text;
    struct message_piece *list;
    uint32_t n, cap;
    bool failed; /* no memory */
};

void wefti_api_pieces_init(struct message_pieces *pieces);
void wefti_api_pieces_fini(struct message_pieces *pieces);

const char *wefti_api_piece_text(const struct message_pieces *pieces,
                                 const struct message_piece *piece);

/* NOMEM. The chat has a format. */
WEFT_MUST_CHECK weft_err wefti_api_parser_new(const struct params *params,
                                              weft_msg_parser **parser_out);

/* At the start of a view, after wefti_api_text_begin's own. Without memory nothing is told: view->is_stopped. */
void wefti_api_message_begin(struct choice *choice);
/* Reads the token at `pos`, or what was held at the end. */
void wefti_api_message_push(struct choice *choice, uint32_t pos, struct message_pieces *out);
void wefti_api_message_flush(struct choice *choice, struct message_pieces *out);

/* An id for a call of this choice, the same whenever it is rendered: `piece` is of the kind CALL. */
#define WEFTI_API_CALL_ID_BYTES 64
struct weft_str wefti_api_call_id(const struct choice *choice, const struct message_pieces *pieces,
                                  const struct message_piece *piece, const char *prefix,
                                  char storage[WEFTI_API_CALL_ID_BYTES]);

/* Members of a chunk's delta, where it has any: the text of one kind under `key`; "tool_calls" as
 * OpenAI has them. True: something was written. */
bool wefti_api_write_kind(const struct message_pieces *pieces, enum weft_msg_kind kind,
                          const char *key, struct weft_writer *w);
bool wefti_api_write_calls(const struct choice *choice, const struct message_pieces *pieces,
                           struct weft_writer *w);

/* For a part of a body that tells the choice in a way of its own: reads on, until there is enough for the moment. True:
 * to the end. */
bool wefti_api_message_read(const struct body_piece *at, struct message_pieces *pieces);

/* Parts of bodies. A text of one kind as the value of `key`: null where there is none of it but something else, or
 * (is_optional) no member at all. */
bool wefti_api_kind_part(const struct body_piece *at, enum weft_msg_kind kind, const char *key,
                         bool is_optional);
/* Opens it; the part that follows goes on with it. */
void wefti_api_open_text(const struct body_piece *at, const char *key);
/* Each call by `open` (everything to the value of its arguments, which is an open text) and `close`. */
struct call_writer {
    void (*open)(const struct choice *choice, uint32_t call, struct weft_str id,
                 struct weft_str name, struct weft_writer *w);
    void (*close)(struct weft_writer *w);
    const char *id_prefix;
};
bool wefti_api_calls_part(const struct body_piece *at, const struct call_writer *writer);

#endif
