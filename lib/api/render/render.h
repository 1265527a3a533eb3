/* render — token ids to the text and JSON a client reads, a piece at a time.
 *
 * Each function appends to `out` until it has about `budget` bytes more, so that a response of any
 * size passes through a small buffer. The same pieces come out however they are cut.
 */
#ifndef WEFT_API_RENDER_H
#define WEFT_API_RENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "tokenizer/tokenizer.h"

typedef struct weft_api_call weft_api_call;
struct choice;

/* How far one choice has been rendered. Positions count tokens: those of the prompt, when it is
 * echoed, then the output. */
struct choice_view {
    struct weft_detok detok;
    struct weft_stop *stop;         /* NULL: none, or done */
    struct weft_detok offset_detok; /* for text_offset, which wants the place of each token */
    uint64_t n_chars;
    size_t n_echoed; /* bytes of an echoed text that went ahead of its tokens */
    uint32_t pos;
    bool is_begun, has_role, is_stopped, is_closed;
};

/* How far a response has been rendered. */
struct render {
    uint32_t part, choice; /* of a body */
    size_t pos;            /* within the part */
    uint32_t n_closed;     /* choices of a stream that had their last chunk */
    uint64_t n_streamed;   /* output tokens in chunks so far */
    bool is_finished;
    struct weft_detok detok; /* of CALL_DETOKENIZE */
};

enum weft_api_render {
    WEFT_API_RENDER_WAIT, /* all there is has been rendered; more will come */
    WEFT_API_RENDER_MORE, /* the budget is used up */
    WEFT_API_RENDER_DONE,
};

/* The body of a finished call, as one JSON object. */
enum weft_api_render weft_api_render_body(weft_api_call *call, struct weft_buf *out, size_t budget);

/* A stream's server-sent events so far, to "data: [DONE]". */
enum weft_api_render weft_api_render_stream(weft_api_call *call, struct weft_buf *out,
                                            size_t budget);

/* The next chunk of a stream, as one JSON object; false: there is none now. */
bool weft_api_render_chunk(weft_api_call *call, struct weft_buf *out);

/* Back to the start, to render a streamed call once more as a whole. */
void weft_api_render_rewind(weft_api_call *call);

/* The text of one output token to a matcher: the renderer's, or the one that runs ahead of it.
 * Both must see the same. `is_early`: of the first min_tokens. As weft_stop_push. */
bool wefti_api_stop_feed(struct weft_stop *stop, bool is_early, const struct weft_buf *piece,
                         struct weft_buf *out, size_t *which_out);

void wefti_api_view_fini(struct choice_view *view);

#endif
