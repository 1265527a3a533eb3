/* llama — llama-server's defaults, which its other endpoints show. */
#ifndef WEFT_API_KINDS_LLAMA_H
#define WEFT_API_KINDS_LLAMA_H

#include "base/sampling.h"
#include "codec/writer.h"
#include "tokenizer/tokenizer.h"

/* Where generation_config.json is silent. */
struct weft_gen_defaults wefti_api_llama_defaults(struct weft_gen_defaults d);

/* The numbers of a sampling and its samplers, as members of an object, under llama-server's names. */
void wefti_api_llama_write_sampling(const struct weft_sampling *sampling, struct weft_writer *w);

#endif
