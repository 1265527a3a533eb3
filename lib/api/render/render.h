/* render — how far a response has been written, and functions for kinds of calls to write it. */
#ifndef WEFT_API_RENDER_H
#define WEFT_API_RENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/writer.h"
#include "kinds/kind.h"
#include "tokenizer/tokenizer.h"

struct render {
    bool is_open;              /* a body has begun */
    uint32_t choice, part;     /* the current ones; at the end `choice` is their number */
    size_t pos;                /* within the part */
    bool is_reading;           /* a choice's text, for the part; */
    bool is_text_open;         /* some of it is written */
    struct weft_writer writer; /* of it */
    uint32_t n_closed;         /* choices of a stream whose last chunk is written */
    uint64_t n_streamed;       /* output tokens in chunks so far */
    bool is_finished;
    struct weft_detok detok; /* for ids to be spelt */
};

/* An element of a list. */
typedef void (*body_item)(const struct body_piece *at, uint32_t pos);

/* Parts of bodies: `n` items as a list under `key`; an echoed text and the choice's own, within an
 * open text that the latter closes. */
bool wefti_api_render_list(const struct body_piece *at, const char *key, uint32_t n,
                           body_item item);
bool wefti_api_echo_part(const struct body_piece *at);
bool wefti_api_text_part(const struct body_piece *at);

/* The same for what the first prompt's ids spell, special tokens and all. */
void wefti_api_spell_begin(const struct body_piece *at);
bool wefti_api_spell_part(const struct body_piece *at);

/* The end of the piece of an echoed text that begins at `from`: never within a character. */
size_t wefti_api_echo_end(const struct choice *choice, size_t from);

/* Starts over: the body is rendered again. */
void wefti_api_render_rewind(weft_api_call *call);

/* An end_stream (kinds/kind.h) whose last event is the whole answer. */
bool wefti_api_render_end_with_body(weft_api_call *call, struct weft_buf *out, size_t limit);

/* "logprobs" of a chunk, which may be null. */
void wefti_api_render_chunk_logprobs(const struct render_chunk *chunk, struct weft_writer *w);

#endif
