/* params — a request's JSON, checked field by field, as plain data.
 *
 * Rule     null means absent. A field that cannot be honoured is a 400 that names it; unknown
 *          fields are ignored, as in OpenAI and vLLM, unless --strict-fields says otherwise. Wrong
 *          types are errors, never converted.
 * Memory   Strings are borrowed from the JSON value, which `struct params` keeps until
 *          wefti_api_params_drop_json; everything else is owned and freed by wefti_api_params_fini.
 * Threads  Pure; safe in any thread.
 */
#ifndef WEFT_API_PARAMS_H
#define WEFT_API_PARAMS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/call.h"
#include "api/error.h"
#include "api/limits.h"
#include "base/request.h"
#include "base/sampling.h"
#include "base/step.h"
#include "message/message.h"
#include "tokenizer/tokenizer.h"

struct prompt {
    const char *text; /* NULL: given as ids */
    size_t text_len;
    uint32_t *ids; /* owned */
    size_t n_ids;
    char *echo; /* owned copy of the text when it is to be echoed, else NULL; text_len long */
    /* Of a pair of texts the other one, else NULL; and how many of the ids are of the first one's type. */
    const char *second;
    size_t second_len;
    uint32_t n_first;
    const struct weft_model_prompt *before; /* stands before the text; NULL: nothing does */
    char *document;                         /* owned: what the answer repeats of it, or NULL */
    size_t n_document;
};

/* How, and for whom, a request is to be served. 0: nothing is wished for, nobody named. */
struct service {
    int32_t priority;
    uint64_t timeout_us, ttft_us, tpot_us;
    uint64_t flow;
    struct weft_digest cache_salt;
    bool no_guesses;                            /* nothing is guessed ahead */
    char session_id[WEFT_SESSION_ID_BYTES_MAX]; /* not terminated */
    uint32_t n_session_id;
};

enum tool_choice { TOOLS_NONE, TOOLS_AUTO, TOOLS_REQUIRED };

/* What is wanted of the texts in place of more text. */
enum pooled_want {
    POOLED_NOTHING,
    POOLED_VECTORS,
    POOLED_LABELS, /* of each text, a number for each label */
    POOLED_SCORES, /* of each pair, one number; or of each pair of vectors their cosine */
};

struct pooled {
    enum pooled_want want;
    struct weft_pooling pooling; /* of each prompt, but for its n_first */
    bool normalises, is_base64;
    bool compares;     /* scores are cosines: the prompts are the queries, then the documents */
    bool judges;       /* pairs are put to the model as a question */
    uint32_t n_values; /* of a vector, that are kept; 0: all */
    uint32_t n_queries, n_scores, n_shown;
    const char *instruction; /* of such a question, of the JSON; NULL: the usual one */
    size_t instruction_len;
};

#define PROMPT_END_BYTES 256

/* A conversation, and how what the model answers is to be read. */
struct chat {
    json_t *vars; /* of the template: "messages", "tools", ...; NULL: none, or dropped */
    uint32_t n_argument_values; /* of earlier calls, whose arguments came as texts */
    weft_msg_tools *tools;
    weft_msg_tools *callable_tools; /* NULL: all of them */
    enum tool_choice choice;
    bool is_single;      /* at most one call */
    bool hides_thoughts; /* what the model thinks is not told */
    bool continues;      /* the answer goes on with the last message */
    /* Once the prompt is known: */
    const weft_msg_format *format; /* NULL: what the model writes is its answer, as it is */
    bool is_constrained;           /* calls fit a grammar */
    char prompt_end[PROMPT_END_BYTES];
    uint32_t n_prompt_end;
};

#define API_DRY_BREAKER_BYTES_MAX 256
#define API_BAD_WORDS_MAX 1024
#define API_BAD_WORD_BYTES_MAX 4096
/* Templates look their names up one by one, whenever they use one. */
#define API_TEMPLATE_KWARGS_MAX 256

struct params {
    json_t *json; /* NULL once dropped */

    struct prompt *prompts;
    uint32_t n_prompts;
    char session_file[WEFT_SESSION_FILE_BYTES_MAX]; /* not terminated */
    uint32_t n_session_file;
    struct chat chat; /* which the template makes the one prompt */
    bool add_generation_prompt, add_special, return_token_strs, return_tokens;
    bool template_is_optional; /* without one a single message is the prompt */
    bool special_is_text;      /* what looks like a special token in a text is none */
    bool with_pieces;          /* ids together with their texts */

    int32_t
        truncate_to;    /* of each prompt so many ids are kept; -1: what fits the context; 0: all */
    bool truncates_end; /* the first of them, else the last */
    bool return_ids;    /* the answer has them, and those of the output */
    const char *suffix; /* what comes behind the output; NULL: nobody says */
    size_t suffix_len;
    const char *suffix_field; /* that said so */

    bool stream, include_usage, continuous_usage;
    bool echo, include_stop, skip_special, tokens_as_ids;
    bool ignore_eos, has_seed, has_max_tokens;
    bool is_open_ended;        /* without max_tokens it continues while the context lasts, */
    uint32_t usual_max_tokens; /* or until so many tokens; 0: no such number */
    bool shifts;               /* it goes on beyond the model's length, */
    int32_t n_keep;            /* without dropping so many tokens in front; -1: the prompt */
    /* Set before wefti_api_params_fit: log-probabilities are kept only until they are sent. */
    bool drops_sent_logprobs;
    uint64_t logprob_bytes;  /* the most that those sure to be kept take */
    uint32_t n;              /* choices of each prompt that are shown, */
    uint32_t n_run;          /* and that are computed: best_of */
    int32_t logprobs;        /* as asked for; -1: none */
    int32_t prompt_logprobs; /* as asked for by that name; -1: none */

    struct service service;
    struct pooled pooled;

    const char *adapter_name; /* that "model" named; the limits'. NULL: none */
    uint32_t n_adapters;
    struct weft_step_adapter adapters[WEFT_SEQ_ADAPTERS_MAX];
    char *lora_name, *lora_path; /* of requests that load or unload one; owned */

    /* Of responses, as JSON: what the answer says of the request, as members of an object; and the items of the
     * conversation, a list, where the store is to keep them. Both owned, NULL: none. */
    char *answer_fields, *kept_items;
    size_t n_answer_fields, n_kept_items;

    char **stops; /* and each of them */
    size_t *stop_lens;
    uint32_t n_stops, cap_stops;

    /* The request's stop_token_ids come first, then end-of-sequence ids, as stops or masked: so the
     * position tells which kind ended a choice. */
    uint32_t stop_tokens[WEFT_STOP_TOKENS_MAX];
    uint32_t n_own_stop_tokens;
    struct weft_logit_bias *bias;
    uint32_t *allowed_tokens;
    const json_t *bad_words_wanted;           /* strings of the JSON; NULL: none */
    uint32_t *bad_words;                      /* their tokens, the sampling's */
    const json_t *breakers_wanted;            /* strings of the JSON; NULL: the usual ones */
    uint32_t breakers[WEFT_DRY_BREAKERS_MAX]; /* their tokens, the sampling's */
    char *grammar_text;                       /* the sampling's; NULL: none */
    const char *grammar_field;                /* that brought it, */
    const char *grammar_param;                /* and that it is part of */
    bool is_compact;                          /* its JSON has no blanks */
    struct weft_sampling sampling;            /* points into this struct; max_tokens is final after
                                      wefti_api_params_fit */
};

/* Reads `json` (taken over, even on error). False: `error` is set. Needs wefti_api_params_fini
 * either way. */
bool wefti_api_params_parse(json_t *json, const weft_api_kind *kind,
                            const struct weft_api_limits *limits, struct params *params,
                            struct weft_api_error *error);

/* The second half, once the prompts are ids: fits max_tokens into the context left by the longest
 * prompt, and checks what depends on lengths. */
bool wefti_api_params_fit(struct params *params, const weft_api_kind *kind,
                          const struct weft_api_limits *limits, struct weft_api_error *error);

/* After it: what log-probabilities take if none is sent before the end. */
uint64_t wefti_api_params_logprob_bytes_most(const struct params *params);

/* What a request that says nothing of sampling gets: generation_config.json's numbers where there
 * are any, else the API's own. */
void wefti_api_params_usual_sampling(const struct weft_gen_defaults *defaults,
                                     struct weft_sampling *out);

/* How many tokens in front a prompt's choices never drop. */
uint32_t wefti_api_params_n_keep(const struct params *params, const struct prompt *prompt,
                                 const weft_tokenizer *tok);

void wefti_api_params_drop_json(struct params *params);
void wefti_api_params_fini(struct params *params);

#endif
