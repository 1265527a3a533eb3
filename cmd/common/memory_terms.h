/* memory_terms — what of --memory-limit is not the engines', from the supervisor, which sizes it, to the
 * workers, which add their own to it: members of a list, each NAME:FLAG:N:PART:LEAST:MOST as in struct
 * weft_eng_limit_term. */
#ifndef WEFT_CMD_MEMORY_TERMS_H
#define WEFT_CMD_MEMORY_TERMS_H

#include "base/err.h"
#include "engine/engine.h"

#define WEFT_MEMORY_TERMS_BYTES 512

/* Of limit->terms. Returns `out`. */
const char *weft_memory_terms_print(const struct weft_eng_limit *limit,
                                    char out[WEFT_MEMORY_TERMS_BYTES]);

/* The other way round. INVAL: it is no such list; `why` names the flag. */
WEFT_MUST_CHECK weft_err weft_memory_terms_parse(const char *text, struct weft_eng_limit *limit,
                                                 struct weft_errmsg *why);

#endif
