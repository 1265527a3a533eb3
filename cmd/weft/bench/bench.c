/* `weft bench`: prompt and generation, each rate beside the ceiling that it has on this machine.
 *
 * A virtual machine's memory is twice as fast in one minute as in another. So every repetition
 * measures the machine first and then the model, rates are divided by the ceiling of the same
 * repetition, and medians are taken of the quotients. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/parse.h"
#include "bench_machine.h"
#include "bench_profile.h"
#include "commands.h"
#include "common/engine_config.h"
#include "common/loading.h"
#include "generate.h"
#include "json_text.h"
#include "score.h"

enum { POINTS_MAX = 16 };

struct point { /* one line of the result: a prompt of `n` tokens, or a batch of `n` sequences */
    uint32_t n;
    double tokens[WEFT_BENCH_REPS_MAX];                                /* per second */
    double of_dram[WEFT_BENCH_REPS_MAX], of_peak[WEFT_BENCH_REPS_MAX]; /* shares of the ceilings */
    struct weft_eng_profile profile; /* of all repetitions together */
};

struct bench {
    weft_eng *eng;
    weft_machine *machine;
    weft_trace *trace; /* NULL: none wanted */
    struct weft_config config;
    struct point prompts[POINTS_MAX], batches[POINTS_MAX];
    uint32_t n_prompts, n_batches;
    uint32_t *tokens; /* of the longest prompt */
    enum weft_kern_peak peak;
    double dram_bytes[WEFT_BENCH_REPS_MAX], ops[WEFT_PEAK_COUNT][WEFT_BENCH_REPS_MAX];
};

static const char *const peak_names[WEFT_PEAK_COUNT] = {"f32", "bf16", "int8"};

static weft_err parse_list(const char *flag, const char *text, uint32_t max, struct point *points,
                           uint32_t *n_out, struct weft_errmsg *why) {
    struct weft_str member;
    bool fits = true;
    uint32_t n_points = 0;
    *n_out = 0;
    for (const char *at = text; fits && weft_parse_member(&at, ",", &member);) {
        uint64_t n = 0;
        fits = !weft_parse_member_u64(member, max, &n) && n > 0 && n_points < POINTS_MAX;
        if (fits) points[n_points++].n = (uint32_t)n;
    }
    if (!fits)
        return weft_err_set(why, WEFT_E_INVAL,
                            "%s is a list of up to %d numbers from 1 to %u, not \"%s\"", flag,
                            POINTS_MAX, max, text);
    *n_out = n_points;
    return WEFT_OK;
}

static weft_err parse_lists(struct bench *b, struct weft_errmsg *why) {
    struct weft_config *config = &b->config;
    weft_err err = parse_list("--prompt", config->bench_prompt, WEFT_CONTEXT_MAX, b->prompts,
                              &b->n_prompts, why);
    if (!err)
        err = parse_list("--batch", config->bench_batch, WEFT_SEQS_MAX, b->batches, &b->n_batches,
                         why);
    for (uint32_t i = 0; i < b->n_batches && !err; i++) {
        uint32_t batch = b->batches[i].n;
        if (batch > config->max_num_seqs) config->max_num_seqs = batch;
        if (batch > config->max_num_batched_tokens)
            err = weft_err_set(why, WEFT_E_INVAL,
                               "--batch %u does not fit a step of --max-num-batched-tokens %u",
                               batch, config->max_num_batched_tokens);
    }
    return err;
}

/* Any tokens will do: their values cost nothing. */
static weft_err make_tokens(struct bench *b) {
    uint32_t n = b->config.bench_context, n_vocab = weft_eng_info(b->eng)->n_vocab;
    for (uint32_t i = 0; i < b->n_prompts; i++) {
        if (b->prompts[i].n > n) n = b->prompts[i].n;
    }
    b->tokens = calloc(n, sizeof *b->tokens);
    if (!b->tokens) return WEFT_E_NOMEM;
    for (uint32_t i = 0; i < n; i++)
        b->tokens[i] = (i * 7919u + 13u) % n_vocab;
    return WEFT_OK;
}

/* As many blocks as the largest batch has. */
static weft_err fill_cache(struct bench *b) {
    const struct weft_eng_info *info = weft_eng_info(b->eng);
    uint64_t each = (uint64_t)b->config.bench_context / info->block_size +
                    b->config.bench_gen / info->block_size + 2;
    uint32_t most = 1;
    for (uint32_t i = 0; i < b->n_batches; i++) {
        if (b->batches[i].n > most) most = b->batches[i].n;
    }
    return weft_eng_fill_cache(b->eng, each * most);
}

/* Who has asked for as much already has too small a cache for it: the log says so. */
static weft_err check_length(const struct bench *b, const char *what, uint64_t length,
                             struct weft_errmsg *why) {
    uint32_t most = weft_eng_info(b->eng)->max_model_len;
    char needs[48] = "a larger --kv-memory";
    if (length <= most) return WEFT_OK;
    if (b->config.max_model_len < length)
        (void)snprintf(needs, sizeof needs, "--max-model-len %" PRIu64, length);
    return weft_err_set(why, WEFT_E_TOOBIG,
                        "%s and one token more are over the model's length of %u: this needs %s",
                        what, most, needs);
}

static weft_err check_lengths(const struct bench *b, struct weft_errmsg *why) {
    const struct weft_config *config = &b->config;
    char what[64];
    (void)snprintf(what, sizeof what, "--context %u and --gen %u", config->bench_context,
                   config->bench_gen);
    uint64_t length = (uint64_t)config->bench_context + config->bench_gen + 1;
    weft_err err = check_length(b, what, length, why);
    for (uint32_t i = 0; i < b->n_prompts && !err; i++) {
        (void)snprintf(what, sizeof what, "--prompt %u", b->prompts[i].n);
        err = check_length(b, what, (uint64_t)b->prompts[i].n + 1, why);
    }
    return err;
}

static weft_err open_all(struct bench *b, struct weft_errmsg *why) {
    struct weft_eng_options options;
    struct weft_loading loading = {0};
    const struct weft_kern_table *table = NULL;
    weft_err err = weft_engine_config(&b->config, &options, why);
    if (!err && b->config.bench_trace) err = weft_trace_open(b->config.bench_trace, &b->trace, why);
    options.profile = b->config.bench_profile || b->trace;
    if (!err) weft_loading_begin(&loading, &b->config, &options);
    if (!err) err = weft_eng_open(b->config.model, &options, &b->eng, why);
    if (!err) err = weft_eng_check_predicts(b->eng, why);
    weft_loading_end(&loading);
    if (!err) err = weft_kern_select(&table, why);
    if (err) return err;
    const struct weft_eng_info *info = weft_eng_info(b->eng);
    b->peak = info->activations == WEFT_ENG_ACT_BF16   ? WEFT_PEAK_BF16
              : info->activations == WEFT_ENG_ACT_INT8 ? WEFT_PEAK_INT8
                                                       : WEFT_PEAK_F32;
    err = check_lengths(b, why);
    if (!err) err = make_tokens(b);
    if (!err) err = fill_cache(b);
    if (!err) err = weft_machine_new(table, info->n_threads, &b->machine, why);
    return err;
}

/* -------------------------------------------------------------------------------- measuring --- */

/* Operations of one token, attention left out. */
static double layer_ops(const struct bench *b) {
    return 2.0 * (double)weft_eng_info(b->eng)->n_layer_weights;
}

static double head_ops(const struct bench *b) {
    return 2.0 * (double)weft_eng_info(b->eng)->n_head_weights;
}

/* Only the last token of a prompt needs logits. */
static double prompt_ops_per_token(const struct bench *b, const struct point *point) {
    return layer_ops(b) + head_ops(b) / point->n;
}

static double decode_ops_per_token(const struct bench *b) {
    return layer_ops(b) + head_ops(b);
}

/* A step reads the weights once, for one token of each sequence. */
static double decode_bytes_per_token(const struct bench *b, const struct point *point) {
    return (double)weft_eng_info(b->eng)->step_weight_bytes / point->n;
}

/* And the states of each sequence, which it writes, too: their share of all that a step moves. */
static double state_share(const struct bench *b, const struct point *point) {
    double states = 2.0 * (double)weft_eng_info(b->eng)->seq_state_bytes;
    return states / (states + decode_bytes_per_token(b, point));
}

/* Prompts are computed one after the other: the last sequence's first token ends them. */
struct watch {
    weft_eng *eng;
    uint32_t last_seq;
    bool decodes;
};

static bool on_token(void *ctx, uint32_t seq_idx, const struct weft_step_out *out) {
    struct watch *watch = ctx;
    (void)out;
    if (seq_idx != watch->last_seq || watch->decodes) return true;
    watch->decodes = true;
    weft_eng_profile_reset(watch->eng);
    return true;
}

/* Leaves the profile of the steps that decode, or of the prompt's where none do. */
static weft_err generate(struct bench *b, uint32_t n_prompt, uint32_t n_seqs, uint32_t n_gen,
                         struct weft_generate_times *times_out, struct weft_errmsg *why) {
    struct watch watch = {.eng = b->eng, .last_seq = n_seqs - 1, .decodes = n_gen == 0};
    struct weft_sampling sampling; /* greedy */
    weft_sampling_init(&sampling);
    sampling.max_tokens = n_gen + 1; /* the first comes out of the prompt's step */
    weft_eng_profile_reset(b->eng);
    /* What is there before they decode was filled in: computing it would take most of the time. A state cannot be. */
    bool is_filled = n_gen > 0 && !weft_eng_info(b->eng)->is_recurrent;
    struct weft_generate_request request = {.sampling = &sampling,
                                            .prompt = b->tokens,
                                            .n_prompt = n_prompt,
                                            .n_cached = is_filled ? n_prompt - 1 : 0,
                                            .n_seqs = n_seqs,
                                            .on_token = on_token,
                                            .ctx = &watch};
    return weft_generate(b->eng, &request, times_out, why);
}

static double per_second(uint32_t n, uint64_t us) {
    return n * 1e6 / (double)(us ? us : 1);
}

static void note_profile(struct bench *b, uint32_t rep, struct point *point, const char *what) {
    struct weft_eng_profile profile;
    char name[64];
    weft_eng_profile(b->eng, &profile);
    weft_profile_add(&point->profile, &profile);
    (void)snprintf(name, sizeof name, "%s %u", what, point->n);
    if (b->trace && rep + 1 == b->config.bench_reps) weft_trace_add(b->trace, name, b->eng);
}

static weft_err run_rep(struct bench *b, uint32_t rep, struct weft_errmsg *why) {
    struct weft_machine_rates rates;
    struct weft_generate_times times;
    weft_err err = weft_machine_measure(b->machine, &rates, why);
    if (err) return err;
    double peak = rates.ops[b->peak];
    b->dram_bytes[rep] = rates.dram_bytes;
    for (uint32_t p = 0; p < WEFT_PEAK_COUNT; p++)
        b->ops[p][rep] = rates.ops[p];
    for (uint32_t i = 0; i < b->n_prompts; i++) {
        struct point *point = &b->prompts[i];
        err = generate(b, point->n, 1, 0, &times, why);
        if (err) return err;
        note_profile(b, rep, point, "prompt");
        point->tokens[rep] = per_second(times.n_prompt, times.prompt_us);
        point->of_peak[rep] = point->tokens[rep] * prompt_ops_per_token(b, point) / peak;
    }
    for (uint32_t i = 0; i < b->n_batches; i++) {
        struct point *point = &b->batches[i];
        err = generate(b, b->config.bench_context, point->n, b->config.bench_gen, &times, why);
        if (err) return err;
        note_profile(b, rep, point, "batch");
        point->tokens[rep] = per_second(times.n_gen, times.gen_us);
        point->of_dram[rep] =
            point->tokens[rep] * decode_bytes_per_token(b, point) / rates.dram_bytes;
        point->of_peak[rep] = point->tokens[rep] * decode_ops_per_token(b) / peak;
    }
    return WEFT_OK;
}

/* The first step of a process pays for pages that nobody touched before. */
static weft_err warm_up(struct bench *b, struct weft_errmsg *why) {
    struct weft_generate_times times;
    return generate(b, b->config.bench_context, 1, 1, &times, why);
}

/* ---------------------------------------------------------------------------------- results --- */

/* Medians of one point, as printed. */
struct summary {
    double tokens, giga_bytes, giga_ops, of_dram, of_peak;
};

static struct summary sum_up(struct bench *b, struct point *point, bool decodes) {
    uint32_t n_reps = b->config.bench_reps;
    struct summary s = {.tokens = weft_median(point->tokens, n_reps),
                        .of_dram = weft_median(point->of_dram, n_reps),
                        .of_peak = weft_median(point->of_peak, n_reps)};
    double ops = decodes ? decode_ops_per_token(b) : prompt_ops_per_token(b, point);
    s.giga_ops = s.tokens * ops / 1e9;
    if (decodes) s.giga_bytes = s.tokens * decode_bytes_per_token(b, point) / 1e9;
    return s;
}

static void print_rooflines(struct bench *b, const struct weft_machine_rates *machine) {
    struct weft_roofline_row rows[WEFT_ROOFLINE_ROWS];
    for (uint32_t i = 0; i < b->n_prompts + b->n_batches; i++) {
        bool decodes = i >= b->n_prompts;
        const struct point *point = decodes ? &b->batches[i - b->n_prompts] : &b->prompts[i];
        uint64_t n_steps = point->profile.n_steps;
        double ms = n_steps ? (double)point->profile.step_ns / 1e6 / (double)n_steps : 0;
        weft_roofline(&point->profile, machine, rows);
        if (b->config.json) {
            printf("%s{\"phase\": \"%s\", \"%s\": %u, \"steps\": %" PRIu64
                   ", \"ms_per_step\": %.5f, \"operators\": ",
                   i ? ", " : "", decodes ? "decode" : "prompt", decodes ? "batch" : "tokens",
                   point->n, n_steps, ms);
            weft_roofline_print_json(stdout, rows);
            printf("}");
        } else {
            printf("\n%s %u: %" PRIu64 " steps of %.3f ms\n", decodes ? "batch" : "prompt",
                   point->n, n_steps, ms);
            weft_roofline_print(stdout, rows);
        }
    }
}

static void print_json(struct bench *b, double dram, const double ops[WEFT_PEAK_COUNT]) {
    const struct weft_eng_info *info = weft_eng_info(b->eng);
    printf("{\"model\": ");
    weft_print_json_string(stdout, info->model_name, strlen(info->model_name));
    printf(", \"isa\": \"%s\", \"threads\": %u, \"activations\": \"%s\", \"weight_bytes\": %" PRIu64
           ", \"step_weight_bytes\": %" PRIu64 ", \"layer_weights\": %" PRIu64
           ", \"head_weights\": %" PRIu64 ", \"context\": %u, \"gen\": %u, \"reps\": %u",
           info->isa, info->n_threads, peak_names[b->peak], info->weight_bytes,
           info->step_weight_bytes, info->n_layer_weights, info->n_head_weights,
           b->config.bench_context, b->config.bench_gen, b->config.bench_reps);
    printf(", \"machine\": {\"dram_read_gb_per_s\": %.3f, \"f32_gflop_per_s\": %.2f, "
           "\"bf16_gflop_per_s\": %.2f, \"vnni_gop_per_s\": %.2f}, \"prompt\": [",
           dram, ops[WEFT_PEAK_F32], ops[WEFT_PEAK_BF16], ops[WEFT_PEAK_INT8]);
    for (uint32_t i = 0; i < b->n_prompts; i++) {
        struct summary s = sum_up(b, &b->prompts[i], false);
        printf("%s{\"tokens\": %u, \"tokens_per_s\": %.2f, \"gflop_per_s\": %.3f, "
               "\"of_peak\": %.4f}",
               i ? ", " : "", b->prompts[i].n, s.tokens, s.giga_ops, s.of_peak);
    }
    printf("], \"decode\": [");
    for (uint32_t i = 0; i < b->n_batches; i++) {
        struct summary s = sum_up(b, &b->batches[i], true);
        printf("%s{\"batch\": %u, \"tokens_per_s\": %.2f, \"gb_per_s\": %.4f, "
               "\"gflop_per_s\": %.3f, \"of_dram\": %.4f, \"of_peak\": %.4f",
               i ? ", " : "", b->batches[i].n, s.tokens, s.giga_bytes, s.giga_ops, s.of_dram,
               s.of_peak);
        if (info->is_recurrent) printf(", \"of_states\": %.4f", state_share(b, &b->batches[i]));
        printf("}");
    }
    printf("]");
    if (info->is_recurrent) printf(", \"state_bytes\": %" PRIu64, info->seq_state_bytes);
}

/* Of recurrent layers, in what a step reads and writes beside the cache; --profile has their time (scan). */
static void print_states(const struct bench *b) {
    char size[WEFT_SIZE_TEXT_BYTES];
    const struct weft_eng_info *info = weft_eng_info(b->eng);
    if (!info->is_recurrent) return;
    printf("States: %s a sequence, read and written by each step; of what a step moves",
           weft_size_text(info->seq_state_bytes, size));
    for (uint32_t i = 0; i < b->n_batches; i++)
        printf("%s %.1f%% with %u", i ? "," : "", 100 * state_share(b, &b->batches[i]),
               b->batches[i].n);
    printf("\n");
}

static void print_table(struct bench *b, double dram, const double ops[WEFT_PEAK_COUNT]) {
    const struct weft_eng_info *info = weft_eng_info(b->eng);
    printf("%s, %s, %u thread%s, %.1f MiB of weights, %s activations\n"
           "The machine: DRAM %.1f GB/s, f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s, int8 %.0f Gop/s\n\n"
           "%8s %12s %12s %12s\n",
           info->model_name, info->isa, info->n_threads, info->n_threads == 1 ? "" : "s",
           (double)info->weight_bytes / 1048576.0, peak_names[b->peak], dram, ops[WEFT_PEAK_F32],
           ops[WEFT_PEAK_BF16], ops[WEFT_PEAK_INT8], "prompt", "tokens/s", "GFLOP/s", "of peak");
    for (uint32_t i = 0; i < b->n_prompts; i++) {
        struct summary s = sum_up(b, &b->prompts[i], false);
        printf("%8u %12.1f %12.1f %11.1f%%\n", b->prompts[i].n, s.tokens, s.giga_ops,
               100 * s.of_peak);
    }
    printf("\n%8s %12s %12s %12s %12s %12s   from a context of %u\n", "batch", "tokens/s", "GB/s",
           "of DRAM", "GFLOP/s", "of peak", b->config.bench_context);
    double most = 0;
    for (uint32_t i = 0; i < b->n_batches; i++) {
        struct summary s = sum_up(b, &b->batches[i], true);
        printf("%8u %12.1f %12.2f %11.1f%% %12.1f %11.1f%%\n", b->batches[i].n, s.tokens,
               s.giga_bytes, 100 * s.of_dram, s.giga_ops, 100 * s.of_peak);
        if (s.of_dram > most) most = s.of_dram;
    }
    print_states(b);
    if (most > 1) printf("(More than DRAM gives: part of the weights stays in the CPU's cache.)\n");
}

static void print_results(struct bench *b) {
    uint32_t n_reps = b->config.bench_reps;
    struct weft_machine_rates machine = {.dram_bytes = weft_median(b->dram_bytes, n_reps)};
    double ops[WEFT_PEAK_COUNT];
    for (uint32_t p = 0; p < WEFT_PEAK_COUNT; p++) {
        machine.ops[p] = weft_median(b->ops[p], n_reps);
        ops[p] = machine.ops[p] / 1e9;
    }
    bool json = b->config.json, profile = b->config.bench_profile;
    (json ? print_json : print_table)(b, machine.dram_bytes / 1e9, ops);
    if (json && profile) printf(", \"profile\": [");
    if (profile) print_rooflines(b, &machine);
    if (json) printf(profile ? "]}\n" : "}\n");
}

static weft_err write_experts(const struct bench *b, struct weft_errmsg *why) {
    struct weft_file_fresh fresh;
    weft_err err = weft_file_fresh_open(b->config.bench_experts, &fresh, why);
    if (!err) err = weft_eng_write_expert_profile(b->eng, fresh.out, why);
    if (!err) return weft_file_fresh_keep(&fresh, why);
    weft_file_fresh_drop(&fresh);
    return err;
}

/* Of all that was computed; or of a text, by an engine that has computed nothing else. */
static weft_err profile_experts(struct bench *b, struct weft_errmsg *why) {
    const struct weft_config *config = &b->config;
    struct weft_eng_options options;
    struct weft_score_text text = {0};
    struct weft_score score;
    if (!config->bench_text) return write_experts(b, why);
    weft_eng_free(b->eng);
    b->eng = NULL;
    weft_err err = weft_engine_config(config, &options, why);
    if (!err) err = weft_score_read(config->model, config->bench_text, &text, why);
    if (!err) err = weft_eng_open(config->model, &options, &b->eng, why);
    if (!err) err = weft_score_run(b->eng, NULL, &text, text.n, &score, why);
    if (!err) err = write_experts(b, why);
    weft_score_text_fini(&text);
    return err;
}

/* What is wrong with the options or the file is said before anything is measured. */
static weft_err check_experts(const struct bench *b, struct weft_errmsg *why) {
    if (b->config.bench_text && !b->config.bench_experts)
        return weft_err_set(why, WEFT_E_INVAL, "--expert-text is for --expert-profile");
    if (b->config.bench_experts && weft_eng_info(b->eng)->n_experts == 0)
        return weft_err_set(why, WEFT_E_INVAL, "the model has no experts to be profiled");
    if (!b->config.bench_experts) return WEFT_OK;
    struct weft_score_text text = {0};
    weft_err err = WEFT_OK;
    if (b->config.bench_text)
        err = weft_score_read(b->config.model, b->config.bench_text, &text, why);
    weft_score_text_fini(&text);
    struct weft_file_fresh trial; /* dropped, so that whoever ends a long run leaves nothing */
    if (!err) err = weft_file_fresh_open(b->config.bench_experts, &trial, why);
    if (!err) weft_file_fresh_drop(&trial);
    return err;
}

int weft_cmd_bench(const struct weft_config *config) {
    struct weft_errmsg why = {""};
    static struct bench bench;
    bench.config = *config;
    weft_err err = parse_lists(&bench, &why);
    if (err) return weft_cmd_misuse(err, &why);
    err = open_all(&bench, &why);
    if (!err) err = check_experts(&bench, &why);
    if (!err) err = warm_up(&bench, &why);
    for (uint32_t rep = 0; rep < bench.config.bench_reps && !err; rep++)
        err = run_rep(&bench, rep, &why);
    if (!err) print_results(&bench);
    if (!err && bench.config.bench_experts) err = profile_experts(&bench, &why);
    struct weft_errmsg trace_why = {""};
    weft_err trace_err = weft_trace_close(bench.trace, &trace_why);
    if (!err && trace_err) err = trace_err, why = trace_why;
    weft_eng_free(bench.eng);
    weft_machine_free(bench.machine);
    free(bench.tokens);
    return err ? weft_cmd_fail(err, &why) : 0;
}
