#include "common/engine_config.h"

#include <stdlib.h>

#include "common/memory_terms.h"

#define PROGRAM_BYTES (16ull << 20) /* of a program that serves nobody: its heap */

static weft_err bad_value(const char *flag, const char *choices, const char *text, weft_err err,
                          struct weft_errmsg *why) {
    return weft_err_set(why, err, "--%s is %s, not \"%s\"", flag, choices, text);
}

weft_err weft_engine_config(const struct weft_config *config, struct weft_eng_options *options,
                            struct weft_errmsg *why) {
    weft_eng_options_init(options);
    weft_err err = weft_eng_parse_dtype(config->dtype, &options->dtype);
    if (err) return bad_value("dtype", "auto, f32, bf16, f16, q8 or q4", config->dtype, err, why);
    err = weft_eng_parse_scheme(config->quant_scheme, &options->scheme);
    if (err)
        return bad_value("quant-scheme", "auto, channel, group or group-asym", config->quant_scheme,
                         err, why);
    err = weft_eng_parse_act(config->activations, &options->activations);
    if (err)
        return bad_value("activations", "auto, f32, bf16 or int8", config->activations, err, why);
    err = weft_eng_parse_kv(config->kv_dtype, &options->kv_dtype);
    if (err)
        return bad_value("kv-dtype", "auto, f32, bf16, f16 or int8", config->kv_dtype, err, why);
    options->block_size = config->block_size;
    options->kv_memory_bytes = config->kv_memory;
    options->spill_bytes = config->kv_spill;
    options->spill_dir = config->kv_spill_dir ? config->kv_spill_dir : getenv("TMPDIR");
    if (!options->spill_dir || !*options->spill_dir) options->spill_dir = "/var/tmp";
    options->max_seqs = config->max_num_seqs;
    options->max_batched_tokens = config->max_num_batched_tokens;
    options->n_checkpoints = config->state_checkpoints == WEFT_CONFIG_AUTO
                                 ? WEFT_ENG_CHECKPOINTS_AUTO
                                 : config->state_checkpoints;
    if (config->no_prefix_cache) options->n_checkpoints = 0;
    options->max_model_len = config->max_model_len;
    options->n_threads = config->threads;
    options->ngram_max = config->speculative_ngram;
    options->draft_path = config->speculative_model;
    options->mtp = config->speculative_mtp;
    options->request_bytes = config->request_memory;
    options->max_loras = config->max_loras;
    options->max_lora_rank = config->max_lora_rank;
    options->lora_memory_bytes = config->max_lora_memory;
    if (config->n_workers && config->n_workers != WEFT_CONFIG_AUTO)
        options->n_sharers = config->n_workers;
    if (config->weights_copies) options->n_copies = config->weights_copies;
    options->weights_fd = config->weights_fd;
    options->expert_profile = config->expert_profile;
    options->limit.bytes = config->memory_limit;
    if (config->memory_terms)
        return weft_memory_terms_parse(config->memory_terms, &options->limit, why);
    options->limit.n_terms = 1;
    options->limit.terms[0] =
        (struct weft_eng_limit_term){.name = "program", .n = 1, .least_bytes = PROGRAM_BYTES};
    return WEFT_OK;
}
