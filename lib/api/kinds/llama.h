/* llama — llama-server's defaults, which its other endpoints show. */
#ifndef WEFT_API_KINDS_LLAMA_H
#define WEFT_API_KINDS_LLAMA_H

#include "tokenizer/tokenizer.h"

/* Where generation_config.json is silent. */
struct weft_gen_defaults wefti_api_llama_defaults(struct weft_gen_defaults d);

#endif
