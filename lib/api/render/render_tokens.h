/* render_tokens — the answers of /tokenize and /detokenize: made from ids like all the rest, since
 * a list of a million tokens' strings would be far larger than the text it came from. */
#ifndef WEFT_API_RENDER_TOKENS_H
#define WEFT_API_RENDER_TOKENS_H

#include <stddef.h>

#include "base/buf.h"
#include "render/render.h"

/* Until `out` is about `limit` bytes long. */
enum weft_api_render wefti_api_render_tokenize(weft_api_call *call, struct weft_buf *out,
                                               size_t limit);
enum weft_api_render wefti_api_render_detokenize(weft_api_call *call, struct weft_buf *out,
                                                 size_t limit);

#endif
