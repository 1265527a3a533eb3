/* answers — answers that need no call: models, health, figures (stats.c). Written for either
 * protocol. */
#ifndef WEFT_API_ANSWERS_H
#define WEFT_API_ANSWERS_H

#include <stdint.h>

#include "api/http.h"
#include "codec/writer.h"

struct weft_api_state;

void wefti_api_write_model(const struct weft_api_state *api, const char *name,
                           struct weft_writer *w);
void wefti_api_write_models(const struct weft_api_state *api, const struct weft_api_moment *moment,
                            struct weft_writer *w);
void wefti_api_write_health(const struct weft_api_state *api, const struct weft_api_moment *moment,
                            struct weft_writer *w);
void wefti_api_write_stats(const struct weft_api_state *api, const struct weft_api_moment *moment,
                           struct weft_writer *w);

/* llama-server's /props and /slots. */
void wefti_api_write_props(const struct weft_api_state *api, struct weft_writer *w);
void wefti_api_write_slots(const struct weft_api_state *api, struct weft_writer *w);

/* ollama's /api/tags and /api/ps; what it calls a model's details. */
void wefti_api_write_ollama_tags(const struct weft_api_state *api, struct weft_writer *w);
void wefti_api_write_ollama_ps(const struct weft_api_state *api, struct weft_writer *w);
void wefti_api_write_ollama_details(const struct weft_api_state *api, struct weft_writer *w);

/* What is done and has nothing to tell; or the error says why it was not. */
void wefti_api_reset_prefix_cache(struct weft_api_state *api, struct weft_api_error *error);

void wefti_api_write_lora_adapters(const struct weft_api_state *api, struct weft_writer *w);

#endif
