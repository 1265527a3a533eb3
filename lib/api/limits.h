/* limits — the most that a request may ask for. */
#ifndef WEFT_API_LIMITS_H
#define WEFT_API_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/pooling.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

/* A request is at most this many prompts, each with n choices; a client that wants more sends more
 * requests. Bounds the memory a single small body can claim. */
#define WEFT_API_PROMPTS_MAX 2048
#define WEFT_API_CALL_CHOICES_MAX 4096

/* A time that a request wishes for; what is not 0 stays so. */
#define WEFT_API_SLO_MS_MAX ((double)WEFT_SLO_US_MAX / 1000)

static inline uint64_t weft_api_us_of_ms(double ms) {
    uint64_t us = (uint64_t)(ms * 1000);
    return us == 0 && ms > 0 ? 1 : us;
}

/* The longest name by which a user is told from others: more than any id, a hash or a mail address. */
#define WEFT_API_USER_BYTES_MAX 256

struct weft_api_store;        /* store/store.h */
struct weft_api_adapter_list; /* adapters/adapters.h */

/* What the model is there for. All zero: it generates, and nothing else is known of it. */
struct weft_api_purpose {
    enum weft_model_task task;
    const struct weft_model_pooling *model; /* NULL: see above */
    bool judges;                            /* it can be asked for a yes or no, by these tokens */
    uint32_t yes_id, no_id;
};

/* What the server allows; const during a request. */
struct weft_api_limits {
    const char *model_name; /* that answers show: the first of */
    const char *const *model_names;
    uint32_t n_model_names;
    const struct weft_api_adapter_list *adapters; /* that may be named, too; NULL: none */
    uint32_t n_adapters_awaited;     /* of the command line, not there yet: nor are their names */
    uint32_t n_vocab, max_model_len; /* 0: not known yet */
    uint32_t max_logprobs;
    uint32_t json_blanks, json_digits; /* of weft_grammar */
    bool refuses_unknown_fields, logs_unknown_fields;
    uint32_t max_prompts; /* in a list: each is a request of its own to the scheduler */
    uint64_t max_logprob_bytes;
    struct weft_pooling_shape shape; /* zeroes: not known yet */
    struct weft_api_purpose purpose;
    const uint32_t *eos;
    size_t n_eos;
    struct weft_gen_defaults defaults;
    struct weft_api_recall {          /* of earlier responses */
        struct weft_api_store *store; /* NULL: none is kept */
        uint64_t tenant;              /* whose they are */
        uint64_t now_ms;
    } recall;
};

#endif
