/* What a batch may ask: shared by batch.c and line.c. */
#ifndef WEFT_API_BATCHES_LINES_H
#define WEFT_API_BATCHES_LINES_H

#include "api/call.h"
#include "base/str.h"

#define WEFTI_API_BATCH_ENDPOINTS                                                                  \
    "/v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings and /v1/messages"

/* NULL: none that batches may ask. */
const weft_api_kind *wefti_api_batch_kind(struct weft_str path);

#endif
