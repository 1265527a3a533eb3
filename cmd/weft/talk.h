/* talk — what `weft run` and `weft chat` share: how a prompt is made, and how tokens are sampled. */
#ifndef WEFT_CMD_WEFT_TALK_H
#define WEFT_CMD_WEFT_TALK_H

#include <stdint.h>

#include "base/sampling.h"
#include "common/config.h"
#include "engine/engine.h"
#include "template/template.h"
#include "tokenizer/tokenizer.h"

/* Text that a chat template may make. */
#define WEFT_TALK_BYTES_MAX (256u << 20)

/* The sampler's settings, with the tokenizer's ends of a text as stop tokens unless --ignore-eos. The
 * stop tokens stay in `stops`. INVAL: samplers that are none or do not go together, or a
 * count of tokens that penalties cannot keep to. */
WEFT_MUST_CHECK weft_err weft_talk_sampling(const struct weft_config *config,
                                            const weft_tokenizer *tok,
                                            const struct weft_eng_info *info,
                                            uint32_t stops[WEFT_STOP_TOKENS_MAX],
                                            struct weft_sampling *out, struct weft_errmsg *why);

/* The template of --chat-template, or of the model; *tmpl_out is the caller's. NOTFOUND: there is
 * none. The tokenizer outlives it. */
WEFT_MUST_CHECK weft_err weft_talk_template(const struct weft_config *config,
                                            const weft_tokenizer *tok, weft_tmpl **tmpl_out,
                                            struct weft_errmsg *why);

/* The token ids of a conversation in whose next turn the model speaks; the caller frees them. */
WEFT_MUST_CHECK weft_err weft_talk_encode(const weft_tmpl *tmpl, const weft_tokenizer *tok,
                                          const struct weft_tmpl_message *messages, size_t n,
                                          uint32_t **ids_out, size_t *n_out,
                                          struct weft_errmsg *why);

/* Writes a model's text to standard output. A terminal obeys control characters, and models have read
 * such texts: there they are question marks. */
void weft_talk_show(const char *text, size_t len);

#endif
