/* The defaults of options, their names on the command line, and their bounds. */
#include "runtime/options.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "collective/collective.h"
#include "model/lora.h"

void weft_eng_options_init(struct weft_eng_options *options) {
    memset(options, 0, sizeof *options);
    options->block_size = 16;
    options->max_seqs = 64;
    options->max_batched_tokens = 512;
    options->n_sharers = 1;
    options->n_ranks = 1;
    options->n_copies = 1;
    options->max_loras = 64;
    options->max_lora_rank = WEFT_LORA_RANK_MAX;
    options->weights_fd = -1;
}

weft_err wefti_options_check(const struct weft_eng_options *o, const struct weft_model_params *p,
                             struct weft_errmsg *why) {
    if (o->block_size < 16 || o->block_size % 16 || o->block_size > WEFT_BLOCK_SIZE_MAX)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the block size must be a multiple of 16 up to %d, got %u",
                            WEFT_BLOCK_SIZE_MAX, o->block_size);
    if (o->max_seqs < 1 || o->max_seqs > WEFT_SEQS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "between 1 and %d sequences, got %u", WEFT_SEQS_MAX,
                            o->max_seqs);
    if (o->max_batched_tokens < 1 || o->max_batched_tokens > WEFT_BATCHED_TOKENS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "between 1 and %d batched tokens, got %u",
                            WEFT_BATCHED_TOKENS_MAX, o->max_batched_tokens);
    if (o->n_checkpoints > WEFT_STATE_CHECKPOINTS_MAX &&
        o->n_checkpoints != WEFT_ENG_CHECKPOINTS_AUTO)
        return weft_err_set(why, WEFT_E_INVAL, "at most %u checkpoints of states, got %u",
                            WEFT_STATE_CHECKPOINTS_MAX, o->n_checkpoints);
    if (o->n_sharers < 1 || o->n_sharers > WEFT_WORKERS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "between 1 and %d engines, got %u", WEFT_WORKERS_MAX,
                            o->n_sharers);
    if (o->ngram_max == 1 || o->ngram_max > WEFT_SPEC_NGRAM_MAX)
        return weft_err_set(why, WEFT_E_INVAL,
                            "matches of 2 to %d tokens can be looked for, not %u",
                            WEFT_SPEC_NGRAM_MAX, o->ngram_max);
    if (o->draft_path && o->n_ranks > 1)
        return weft_err_set(why, WEFT_E_INVAL,
                            "a draft model is of no use to ranks that divide a model");
    if (o->mtp && (o->n_ranks > 1 || o->draft_path))
        return weft_err_set(why, WEFT_E_INVAL,
                            "multi-token prediction is not for ranks that divide a model, nor "
                            "beside a draft model");
    if (!weft_coll_may_have(o->n_ranks) || o->rank >= o->n_ranks)
        return weft_err_set(why, WEFT_E_INVAL,
                            "a model is divided among 1, 2, 4 or 8 ranks, not by rank %u of %u",
                            o->rank, o->n_ranks);
    if (o->n_ranks > 1 && (!o->coll || weft_coll_n_ranks(o->coll) != o->n_ranks))
        return weft_err_set(why, WEFT_E_INVAL, "rank %u of %u has no group of that size", o->rank,
                            o->n_ranks);
    if (o->n_copies < 1 || o->n_copies > o->n_sharers)
        return weft_err_set(why, WEFT_E_INVAL, "%u copies of the weights for %u engines",
                            o->n_copies, o->n_sharers);
    if (o->n_threads > WEFT_THREADS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "at most %d threads, got %u", WEFT_THREADS_MAX,
                            o->n_threads);
    if (o->max_loras > WEFT_LORAS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "at most %d adapters, got %u", WEFT_LORAS_MAX,
                            o->max_loras);
    if (o->max_loras > 0 && (o->max_lora_rank < 1 || o->max_lora_rank > WEFT_LORA_RANK_MAX))
        return weft_err_set(why, WEFT_E_INVAL, "ranks of adapters are from 1 to %u, got %u",
                            WEFT_LORA_RANK_MAX, o->max_lora_rank);
    if (o->max_model_len > WEFT_CONTEXT_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "a model length of %u; the most is %u",
                            o->max_model_len, WEFT_CONTEXT_MAX);
    if (o->max_model_len > p->n_context && p->rope_scaling == WEFT_ROPE_DYNAMIC)
        return weft_err_set(
            why, WEFT_E_INVAL,
            "a model length of %u is over the model's context of %u, after which its "
            "RoPE would be stretched (dynamic): that is not supported; YaRN is",
            o->max_model_len, p->n_context);
    if (o->max_model_len > p->n_context)
        weft_warn(
            "a model length of %u is over the model's context of %u: it was not trained on what "
            "comes after that",
            o->max_model_len, p->n_context);
    return WEFT_OK;
}

struct choice {
    const char *text;
    int value;
};

static weft_err parse_choice(const char *text, const struct choice *choices, size_t n, int *out) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, choices[i].text) != 0) continue;
        *out = choices[i].value;
        return WEFT_OK;
    }
    return WEFT_E_INVAL;
}

static const struct choice dtypes[] = {
    {"auto", WEFT_ENG_DT_AUTO}, {"f32", WEFT_ENG_DT_F32}, {"bf16", WEFT_ENG_DT_BF16},
    {"f16", WEFT_ENG_DT_F16},   {"q8", WEFT_ENG_DT_Q8},   {"q4", WEFT_ENG_DT_Q4},
};

weft_err weft_eng_parse_dtype(const char *text, enum weft_eng_dtype *out) {
    int value = WEFT_ENG_DT_AUTO;
    weft_err err = parse_choice(text, dtypes, sizeof dtypes / sizeof dtypes[0], &value);
    *out = (enum weft_eng_dtype)value;
    return err;
}

const char *wefti_options_dtype_name(enum weft_eng_dtype dtype) {
    size_t i = 0;
    while (dtypes[i].value != (int)dtype) {
        i++;
        WEFT_ASSERT(i < sizeof dtypes / sizeof dtypes[0]);
    }
    return dtypes[i].text;
}

weft_err weft_eng_parse_scheme(const char *text, enum weft_eng_scheme *out) {
    static const struct choice choices[] = {
        {"auto", WEFT_ENG_SCHEME_AUTO},
        {"channel", WEFT_ENG_SCHEME_CHANNEL},
        {"group", WEFT_ENG_SCHEME_GROUP},
        {"group-asym", WEFT_ENG_SCHEME_GROUP_ASYM},
    };
    int value = WEFT_ENG_SCHEME_AUTO;
    weft_err err = parse_choice(text, choices, sizeof choices / sizeof choices[0], &value);
    *out = (enum weft_eng_scheme)value;
    return err;
}

weft_err weft_eng_parse_clip(const char *text, enum weft_eng_clip *out) {
    static const struct choice choices[] = {
        {"error", WEFT_ENG_CLIP_ERROR},
        {"minmax", WEFT_ENG_CLIP_MINMAX},
        {"percentile", WEFT_ENG_CLIP_PERCENTILE},
        {"entropy", WEFT_ENG_CLIP_ENTROPY},
    };
    int value = WEFT_ENG_CLIP_ERROR;
    weft_err err = parse_choice(text, choices, sizeof choices / sizeof choices[0], &value);
    *out = (enum weft_eng_clip)value;
    return err;
}

weft_err weft_eng_parse_act(const char *text, enum weft_eng_act *out) {
    static const struct choice choices[] = {
        {"auto", WEFT_ENG_ACT_AUTO},
        {"f32", WEFT_ENG_ACT_F32},
        {"bf16", WEFT_ENG_ACT_BF16},
        {"int8", WEFT_ENG_ACT_INT8},
    };
    int value = WEFT_ENG_ACT_AUTO;
    weft_err err = parse_choice(text, choices, sizeof choices / sizeof choices[0], &value);
    *out = (enum weft_eng_act)value;
    return err;
}

weft_err weft_eng_parse_kv(const char *text, enum weft_eng_kv *out) {
    static const struct choice choices[] = {
        {"auto", WEFT_ENG_KV_AUTO}, {"f32", WEFT_ENG_KV_F32},   {"bf16", WEFT_ENG_KV_BF16},
        {"f16", WEFT_ENG_KV_F16},   {"int8", WEFT_ENG_KV_INT8},
    };
    int value = WEFT_ENG_KV_AUTO;
    weft_err err = parse_choice(text, choices, sizeof choices / sizeof choices[0], &value);
    *out = (enum weft_eng_kv)value;
    return err;
}
