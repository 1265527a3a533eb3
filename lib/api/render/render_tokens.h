/* render_tokens — the answers of /tokenize and /detokenize: made from ids like all the rest, since
 * a list of a million tokens' strings would be far larger than the text it came from. */
#ifndef WEFT_API_RENDER_TOKENS_H
#define WEFT_API_RENDER_TOKENS_H

#include <stddef.h>

#include "base/buf.h"
#include "render/render.h"

/* Until `out` is about `limit` bytes long. */
enum render_status wefti_render_tokenize(struct call *call, struct weft_buf *out, size_t limit);
enum render_status wefti_render_detokenize(struct call *call, struct weft_buf *out, size_t limit);

#endif
