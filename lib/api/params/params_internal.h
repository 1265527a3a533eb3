/* params_internal — how kinds of calls read their parameters: each function reads a few fields, in
 * the order in which a kind calls them. The first fault is the one reported. */
#ifndef WEFT_API_PARAMS_INTERNAL_H
#define WEFT_API_PARAMS_INTERNAL_H

#include "params/json_read.h"
#include "params/params.h"

/* The values, besides null, with which a field that cannot be honoured asks for nothing. */
enum harmless {
    IF_NULL, /* none */
    IF_FALSE,
    IF_EMPTY, /* "", [] or {} */
    IF_ZERO,
    IF_AT_MOST_ZERO,
    IF_ONE,
    IF_TRUE,
    IF_NONE, /* the string "none" */
};

struct refused_field {
    const char *name; /* NULL ends a list */
    enum harmless harmless;
};

/* Whether a value that is there changes nothing. */
bool wefti_api_params_is_harmless(const json_t *value, enum harmless harmless);
/* Refuses what this kind of call, or no kind, can do: a 400 that names the field. */
void wefti_api_params_refuse(const struct reader *r, const struct refused_field *fields);
void wefti_api_params_refuse_unsupported(const struct reader *r);
/* What only conversations have, for kinds that are none. */
void wefti_api_params_refuse_chat(const struct reader *r);

/* Fields that every kind of call knows and nobody reads. */
void wefti_api_params_note_ignored(const struct reader *r);

/* Absent, null or empty: it asks for nothing. */
bool wefti_api_params_is_absent(const json_t *value);

/* "prompt" or "input" by its name, "messages", "tokens": the text to be continued, rendered or spelt. */
void wefti_api_params_read_prompts(const struct reader *r, const char *name,
                                   const struct weft_api_limits *limits, struct params *params);
void wefti_api_params_read_messages(const struct reader *r, struct params *params);
void wefti_api_params_read_tokens(const struct reader *r, const struct weft_api_limits *limits,
                                  struct params *params);

/* An empty conversation; and messages at its end, named "LIST[0]" where one is faulty. False: an error. */
bool wefti_api_params_open_chat(const struct reader *r, struct params *params);
void wefti_api_params_add_messages(const struct reader *r, const char *list, const json_t *array,
                                   struct params *params);
void wefti_api_params_add_message(const struct reader *r, const char *list, size_t idx,
                                  const json_t *message, struct params *params);
/* The same for items of a response's input, several of which may be one message; NULL: none. */
void wefti_api_params_add_items(const struct reader *r, const char *list, const json_t *array,
                                struct params *params);

/* Of a chat, after its messages: "tools", "tool_choice", "parallel_tool_calls"; what its template is given besides;
 * "continue_final_message", after read_encoding. */
void wefti_api_params_read_tools(const struct reader *r, struct params *params);
void wefti_api_params_read_template(const struct reader *r, struct params *params);
void wefti_api_params_read_continuation(const struct reader *r, struct params *params);

/* The same for kinds with other names: a list in OpenAI's form, which is changed; the choice, NULL where there is
 * none (it is to be set, all the same); an effort, NULL likewise, of the field of this name. */
void wefti_api_params_set_tools(const struct reader *r, json_t *tools, struct params *params);
void wefti_api_params_set_tool_choice(const struct reader *r, const json_t *value,
                                      struct params *params);
void wefti_api_params_set_effort(const struct reader *r, const char *field, json_t *effort,
                                 struct params *params);

/* Whether the model is to think before it answers, by the names that templates know. */
void wefti_api_params_set_thinking(const struct reader *r, bool thinks, struct params *params);

/* All of a response's request. */
void wefti_api_params_read_response(const struct reader *r, const struct weft_api_limits *limits,
                                    struct params *params);

/* "system" and "prompt" as two messages, or one; nothing where the prompt is absent or empty. */
void wefti_api_params_read_question(const struct reader *r, struct params *params);

/* 404 where the field is there and names another model. */
void wefti_api_params_check_model(const struct reader *r, const char *field,
                                  const struct weft_api_limits *limits, bool takes_tags);

/* The field `name`, a string, as the one prompt. False: it is absent, or an error. */
bool wefti_api_params_read_text(const struct reader *r, const char *name, struct params *params);

/* How texts become ids: add_special_tokens (whose default the kind has set), and so on. */
void wefti_api_params_read_encoding(const struct reader *r, struct params *params);

/* "stream", "stream_options". */
void wefti_api_params_read_stream(const struct reader *r, struct params *params);

/* How output is written: include_stop_str_in_output and so on. */
void wefti_api_params_read_output(const struct reader *r, struct params *params);

/* "allowed_token_ids", "bad_words", "thinking_token_budget", after those of read_sampling's list. */
void wefti_api_params_read_tokens_wanted(const struct reader *r,
                                         const struct weft_api_limits *limits,
                                         struct params *params);

/* All of base/sampling.h's list, "seed", "logit_bias" as an object, read_tokens_wanted and
 * read_samplers. */
void wefti_api_params_read_sampling(const struct reader *r, const struct weft_api_limits *limits,
                                    struct params *params);
void wefti_api_params_read_bias(const struct reader *r, const struct weft_api_limits *limits,
                                struct params *params);

/* A key of such an object, "42": digits only, no leading zero. False: it is no token's. */
bool wefti_api_params_token_of_key(const char *key, uint32_t n_vocab, uint32_t *out);

/* For other forms of it: makes room for `n` entries in params->bias, which the caller fills in.
 * False: there are none, or an error. Closing sorts them; those of one token add up. */
bool wefti_api_params_open_bias(const struct reader *r, size_t n, struct params *params);
void wefti_api_params_close_bias(uint32_t n, struct params *params);

/* The field of that name: a string or a list of them. */
void wefti_api_params_read_stops(const struct reader *r, const char *field, struct params *params);
void wefti_api_params_read_stop_tokens(const struct reader *r, const struct weft_api_limits *limits,
                                       struct params *params);

/* llama-server's "repeat_penalty", after those of read_sampling. */
void wefti_api_params_read_penalties(const struct reader *r, struct params *params);

/* "samplers", "sampler_variant" and "dry_sequence_breakers". */
void wefti_api_params_read_samplers(const struct reader *r, struct params *params);
/* Once all of them are read: what does not go together. */
void wefti_api_params_check_samplers(const struct reader *r, const struct weft_api_limits *limits,
                                     struct params *params);

/* How many log-probabilities each token is to have: up to --max-logprobs, or -1 for all of the vocabulary. */
void wefti_api_params_read_n_logprobs(const struct reader *r, const char *name,
                                      const struct weft_api_limits *limits, int64_t *out);

/* Chat's "logprobs" and "top_logprobs" as one number; -1: none. */
int64_t wefti_api_params_read_chat_logprobs(const struct reader *r,
                                            const struct weft_api_limits *limits);

/* "prompt_logprobs"; `n` is what the request wants for its output, -1 for none. */
void wefti_api_params_read_logprobs(const struct reader *r, const struct weft_api_limits *limits,
                                    int64_t n, struct params *params);

/* "n", which is bounded together with the number of prompts. */
void wefti_api_params_read_choices(const struct reader *r, struct params *params);

/* "best_of", after "n", "stream" and log-probabilities. */
void wefti_api_params_read_best_of(const struct reader *r, struct params *params);

/* "use_beam_search" and what belongs to it, "best_of" too, after all that it must not stand beside. False:
 * the request wants samples. */
void wefti_api_params_refuse_beams(const struct reader *r); /* where there are none */
bool wefti_api_params_read_beams(const struct reader *r, struct params *params);

/* Reads the field `name`, after echo and log-probabilities, which decide whether 0 makes sense. */
void wefti_api_params_read_max_tokens(const struct reader *r, const char *name,
                                      struct params *params);

/* llama-server's names for two of these, which go before OpenAI's: "n_predict", where -1 means until
 * the context is full, and "repeat_penalty". */
void wefti_api_params_read_llama_names(const struct reader *r, struct params *params);

/* What the output must be, after the sampling: "response_format", "structured_outputs", "guided_...",
 * "grammar" and "json_schema"; and ollama's "format", or the one of a response's "text". */
void wefti_api_params_read_grammar(const struct reader *r, struct params *params);
void wefti_api_params_read_ollama_format(const struct reader *r, struct params *params);
/* A JSON Schema that the field `field` has; static. */
void wefti_api_params_set_schema(const struct reader *r, const char *field, const json_t *schema,
                                 struct params *params);
void wefti_api_params_read_text_format(const struct reader *r, struct params *params);

/* "truncate_prompt_tokens", "truncation_side", "return_token_ids", "suffix": after all that says
 * how long the output is to be. The second once prompts are ids. */
void wefti_api_params_read_ids(const struct reader *r, const weft_api_kind *kind,
                               const struct weft_api_limits *limits, struct params *params);
/* What is known behind the output, by the field of this name, a string. */
void wefti_api_params_set_suffix(const char *field, const json_t *value, struct params *params);
void wefti_api_params_truncate(struct params *params, const struct weft_api_limits *limits);

/* Anthropic's conversations: "messages", "system", "tools", "tool_choice", "thinking", and the
 * effort of "output_config". What says of the answer how it is to be, after the sampling, and whose
 * it is: the format, the thoughts' budget, "metadata". */
void wefti_api_params_read_blocks(const struct reader *r, struct params *params); /* part of it */
void wefti_api_params_read_anthropic(const struct reader *r, struct params *params);
void wefti_api_params_read_anthropic_answer(const struct reader *r,
                                            const struct weft_api_limits *limits,
                                            struct params *params);

/* What is wanted of texts in place of more text. Of the field `name`: vectors, a number for each label, or (NOTHING)
 * whichever of these the model is there for. Of "text_1" and "text_2", and of "query" and "documents": scores. */
void wefti_api_params_read_input(const struct reader *r, const char *name,
                                 const struct weft_api_limits *limits, enum pooled_want want,
                                 struct params *params);
void wefti_api_params_read_texts(const struct reader *r, const struct weft_api_limits *limits,
                                 struct params *params);
void wefti_api_params_read_documents(const struct reader *r, const struct weft_api_limits *limits,
                                     struct params *params);

/* Those that "model" and "lora" name (params_adapters.c). */
void wefti_api_params_read_adapters(const struct reader *r, const struct weft_api_limits *limits,
                                    struct params *params);

/* "context_shift" and what belongs to it, after "use_beam_search". */
void wefti_api_params_read_shift(const struct reader *r, const weft_api_kind *kind,
                                 struct params *params);
/* How many tokens a prompt and its output may have together. */
uint32_t wefti_api_params_longest(const struct params *params,
                                  const struct weft_api_limits *limits);

/* "priority", "timeout", "user", ...: of every kind that generates. */
void wefti_api_params_read_service(const struct reader *r, struct params *params);
bool wefti_api_is_session_id(struct weft_str id);
/* The session of a slot, "slot-N", and the other way round. Returns the name's length. */
uint32_t wefti_api_slot_session(uint32_t idx, char name_out[WEFT_SESSION_ID_BYTES_MAX]);
uint32_t wefti_api_slot_of(const char *name, uint32_t len);

#endif
