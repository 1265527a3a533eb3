/* `weft inspect --plan`: will it fit, and how fast?
 *
 * Sizes are those that the engine itself comes to when it opens a model with the same options (weft_eng_foresee).
 * Speeds are bounds: a token of one stream reads what it meets of the weights, the sequence's keys and values, and
 * the states, which it writes, too; a prompt takes its multiply-adds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/parse.h"
#include "bench/bench_machine.h"
#include "commands.h"
#include "json_text.h"
#include "serve/foresee.h"

enum { MEASURE_REPS = 3 };

struct plan {
    const struct weft_config *config;
    struct weft_serve_foreseen serve;
    struct weft_eng_plan eng;
    double dram_bytes, ops; /* per second; 0: not known */
    bool is_measured;
    struct weft_errmsg unmeasured; /* why nothing could be measured */
};

static const char *const act_names[] = {[WEFT_ENG_ACT_AUTO] = "auto",
                                        [WEFT_ENG_ACT_F32] = "f32",
                                        [WEFT_ENG_ACT_BF16] = "bf16",
                                        [WEFT_ENG_ACT_INT8] = "int8"};

/* ------------------------------------------------------------------------------------ speed --- */

static enum weft_kern_peak peak_of(enum weft_eng_act activations) {
    return activations == WEFT_ENG_ACT_BF16   ? WEFT_PEAK_BF16
           : activations == WEFT_ENG_ACT_INT8 ? WEFT_PEAK_INT8
                                              : WEFT_PEAK_F32;
}

/* By as many threads as the workers of a group have. */
static weft_err measure(struct plan *p, struct weft_errmsg *why) {
    const struct weft_kern_table *table = NULL;
    weft_machine *machine = NULL;
    double dram[MEASURE_REPS], ops[MEASURE_REPS];
    enum weft_kern_peak peak = peak_of(p->eng.info.activations);
    weft_err err = weft_kern_select(&table, why);
    if (!err)
        err = weft_machine_new(table, p->eng.info.n_threads * p->serve.n_ranks, &machine, why);
    for (uint32_t i = 0; i < MEASURE_REPS && !err; i++) {
        struct weft_machine_rates rates;
        err = weft_machine_measure(machine, &rates, why);
        dram[i] = rates.dram_bytes;
        ops[i] = rates.ops[peak];
    }
    weft_machine_free(machine);
    if (err) return err;
    p->is_measured = true;
    p->dram_bytes = weft_median(dram, MEASURE_REPS);
    p->ops = weft_median(ops, MEASURE_REPS);
    return WEFT_OK;
}

static void find_rates(struct plan *p) {
    double bandwidth = p->config->plan_bandwidth * 1e9, peak = p->config->plan_peak * 1e9;
    if (bandwidth == 0) {
        weft_err err = measure(p, &p->unmeasured);
        if (err && !p->unmeasured.text[0])
            (void)snprintf(p->unmeasured.text, sizeof p->unmeasured.text, "%s", weft_err_text(err));
    }
    if (bandwidth > 0) p->dram_bytes = bandwidth;
    if (peak > 0) p->ops = peak;
}

/* Of one stream, in all workers that compute it. */
static uint64_t bytes_per_token(const struct plan *p, const struct weft_eng_plan_context *context) {
    return p->serve.n_ranks *
           (p->eng.info.step_weight_bytes + context->read_bytes + 2 * p->eng.info.seq_state_bytes);
}

static double stream_rate(const struct plan *p, const struct weft_eng_plan_context *context) {
    return p->dram_bytes / (double)bytes_per_token(p, context);
}

/* Without attention's, and without the head's, which only a prompt's last token meets. */
static double prompt_ops(const struct plan *p) {
    return 2.0 * (double)p->eng.info.n_layer_weights * p->serve.n_ranks;
}

/* ------------------------------------------------------------------------------------- text --- */

static uint64_t sum_bytes(const struct weft_eng_loading *l) {
    return l->n_copies * l->weight_bytes +
           l->n_sharers * (l->draft_bytes + l->state_bytes + l->kv_bytes + l->scratch_bytes);
}

static void print_size(const char *name, uint32_t n, uint64_t bytes) {
    char size[WEFT_SIZE_TEXT_BYTES];
    if (bytes == 0) return;
    printf("%-15s ", name);
    if (n > 1) printf("%u x ", n);
    printf("%s", weft_size_text(bytes, size));
}

static void print_weights(const struct plan *p) {
    const struct weft_eng_loading *l = &p->eng.loading;
    char size[WEFT_SIZE_TEXT_BYTES];
    const char *before = ": ";
    print_size("weights", l->n_copies, l->weight_bytes);
    for (uint32_t type = 0; type < WEFT_DT_COUNT; type++) {
        if (p->eng.bytes_of_type[type] == 0) continue;
        printf("%s%s %s", before, weft_dtype_name((enum weft_dtype)type),
               weft_size_text(p->eng.bytes_of_type[type], size));
        before = ", ";
    }
    printf("; a token reads %s\n", weft_size_text(p->eng.info.step_weight_bytes, size));
}

static void print_kv(const struct plan *p) {
    const struct weft_eng_info *info = &p->eng.info;
    uint64_t full = p->eng.kv_block_bytes[WEFT_KV_FULL] / info->block_size,
             windowed = p->eng.kv_block_bytes[WEFT_KV_WINDOWED] / info->block_size;
    print_size("KV cache", p->eng.loading.n_sharers, p->eng.loading.kv_bytes);
    printf(": %u blocks of %u tokens", info->n_blocks, info->block_size);
    if (windowed > 0) printf(", and %u of windowed layers", info->n_window_blocks);
    printf(", in %s; a token takes %" PRIu64 " bytes", p->eng.kv_type, full + windowed);
    if (windowed > 0) printf(", %" PRIu64 " of them while the window sees it", windowed);
    printf("\n");
}

/* Encoders read texts whole: they have no next token. */
static bool has_streams(const struct plan *p) {
    return p->dram_bytes > 0 && !p->eng.info.is_encoder;
}

static void print_contexts(const struct plan *p) {
    char kv[WEFT_SIZE_TEXT_BYTES], state[WEFT_SIZE_TEXT_BYTES];
    bool has_states = p->eng.info.seq_state_bytes > 0;
    printf("\n%10s %14s", "context", "KV cache");
    if (has_states) printf(" %14s", "states");
    printf(" %20s   one sequence%s\n", has_streams(p) ? "tokens/s at most" : "read per token",
           p->serve.n_ranks > 1 ? ", in each worker" : "");
    for (uint32_t i = 0; i < p->eng.n_contexts; i++) {
        const struct weft_eng_plan_context *c = &p->eng.contexts[i];
        printf("%10u %14s", c->n_tokens, weft_size_text(c->kv_bytes, kv));
        if (has_states) printf(" %14s", weft_size_text(p->eng.info.seq_state_bytes, state));
        if (has_streams(p))
            printf(" %20.*f", stream_rate(p, c) < 100 ? 1 : 0, stream_rate(p, c));
        else
            printf(" %20s", weft_size_text(bytes_per_token(p, c), kv));
        if (c->n_tokens == p->eng.model_len) printf("   the longest that is asked for");
        printf("\n");
    }
}

static void print_speed(const struct plan *p) {
    double giga = prompt_ops(p) / 1e9;
    if (p->unmeasured.text[0]) printf("speed           not measured: %s\n", p->unmeasured.text);
    if (has_streams(p))
        printf("one stream      %.1f GB/s of memory%s\n", p->dram_bytes / 1e9,
               p->is_measured && p->config->plan_bandwidth == 0 ? ", measured" : "");
    printf("%-15s %.3g GFLOP for a token", p->eng.info.is_encoder ? "texts" : "prompts", giga);
    if (p->ops > 0)
        printf(": at most %.0f tokens/s by %.0f GFLOP/s%s, %s activations", p->ops / 1e9 / giga,
               p->ops / 1e9, p->is_measured && p->config->plan_peak == 0 ? ", measured" : "",
               act_names[p->eng.info.activations]);
    printf(", attention left out\n");
}

static void print_verdict(const struct plan *p) {
    const struct weft_eng_loading *l = &p->eng.loading;
    const struct weft_eng_info *info = &p->eng.info;
    char need[WEFT_ENG_NEED_TEXT_BYTES], room[WEFT_SIZE_TEXT_BYTES];
    if (p->eng.refusal.text[0]) {
        printf("\nIt does not fit: %s.\n", p->eng.refusal.text);
        return;
    }
    printf("\nIt fits: %s", weft_eng_need_text(l, need));
    if (l->limit.bytes > 0)
        printf(" within --memory-limit %s", weft_size_text(l->limit.bytes, room));
    else if (p->eng.room_bytes > 0)
        printf(" of %s that %s", weft_size_text(p->eng.room_bytes, room),
               p->config->plan_memory ? "the machine has"
               : p->eng.is_cgroup     ? "the control group has left"
                                      : "this machine has left");
    if (info->max_model_len < p->eng.model_len)
        printf(", but sequences are cut to %u tokens: %u need a larger cache", info->max_model_len,
               p->eng.model_len);
    else if (p->eng.n_full_seqs < info->max_seqs)
        printf("; the cache holds %" PRIu64 " of %u sequences at full length at a time",
               p->eng.n_full_seqs, info->max_seqs);
    printf(".\n");
}

static void print_text(const struct plan *p) {
    const struct weft_eng_info *info = &p->eng.info;
    const struct weft_eng_loading *l = &p->eng.loading;
    char size[WEFT_SIZE_TEXT_BYTES];
    if (p->eng.is_bare)
        printf("model           opened for its shapes alone: there are no weights\n");
    printf("model           %s, %s\n", info->model_name, info->arch);
    printf("weft serve      %u worker%s", p->serve.n_workers, p->serve.n_workers > 1 ? "s" : "");
    if (p->serve.n_ranks > 1) printf(" in groups of %u", p->serve.n_ranks);
    printf(" with %u thread%s, %u sequences of up to %u tokens", info->n_threads,
           info->n_threads > 1 ? "s" : "", info->max_seqs, info->max_model_len);
    if (info->max_model_len < p->eng.model_len) printf(" (%u are asked for)", p->eng.model_len);
    printf(", %u tokens in a step\n\n", info->max_batched_tokens);
    print_weights(p);
    print_kv(p);
    if (l->state_bytes > 0) {
        print_size("states", l->n_sharers, l->state_bytes);
        printf(": %s a sequence", weft_size_text(info->seq_state_bytes, size));
        if (info->n_checkpoints > 0)
            printf(", and %u checkpoint%s of as much", info->n_checkpoints,
                   info->n_checkpoints == 1 ? "" : "s");
        printf("\n");
    }
    if (l->draft_bytes > 0) {
        print_size("guesses", l->n_sharers, l->draft_bytes);
        printf("\n");
    }
    print_size("scratch", l->n_sharers, l->scratch_bytes);
    printf("\nsum             %s\n", weft_size_text(sum_bytes(l), size));
    print_contexts(p);
    printf("\n");
    print_speed(p);
    print_verdict(p);
}

/* ------------------------------------------------------------------------------------- JSON --- */

static void print_json_text(const char *key, const char *text) {
    printf(", \"%s\": ", key);
    weft_print_json_string(stdout, text, strlen(text));
}

static void print_json_number(const char *key, uint64_t n) {
    printf(", \"%s\": %" PRIu64, key, n);
}

static void print_json_types(const struct plan *p) {
    const char *before = "";
    printf(", \"weights\": {");
    for (uint32_t type = 0; type < WEFT_DT_COUNT; type++) {
        if (p->eng.bytes_of_type[type] == 0) continue;
        printf("%s\"%s\": %" PRIu64, before, weft_dtype_name((enum weft_dtype)type),
               p->eng.bytes_of_type[type]);
        before = ", ";
    }
    printf("}");
}

static void print_json_contexts(const struct plan *p) {
    printf(", \"contexts\": [");
    for (uint32_t i = 0; i < p->eng.n_contexts; i++) {
        const struct weft_eng_plan_context *c = &p->eng.contexts[i];
        printf("%s{\"tokens\": %u, \"kv_bytes\": %" PRIu64 ", \"state_bytes\": %" PRIu64
               ", \"read_bytes_per_token\": %" PRIu64,
               i ? ", " : "", c->n_tokens, c->kv_bytes, p->eng.info.seq_state_bytes,
               bytes_per_token(p, c));
        if (has_streams(p)) printf(", \"tokens_per_s\": %.3f", stream_rate(p, c));
        printf("}");
    }
    printf("]");
}

static void print_json(const struct plan *p) {
    const struct weft_eng_info *info = &p->eng.info;
    const struct weft_eng_loading *l = &p->eng.loading;
    printf("{\"model\": ");
    weft_print_json_string(stdout, info->model_name, strlen(info->model_name));
    print_json_text("architecture", info->arch);
    printf(", \"shapes_alone\": %s", p->eng.is_bare ? "true" : "false");
    print_json_number("workers", p->serve.n_workers);
    print_json_number("ranks", p->serve.n_ranks);
    print_json_number("threads", info->n_threads);
    print_json_number("context", p->eng.n_context);
    print_json_number("max_model_len", info->max_model_len);
    print_json_number("max_num_seqs", info->max_seqs);
    print_json_number("max_num_batched_tokens", info->max_batched_tokens);
    print_json_types(p);
    print_json_number("weight_copies", l->n_copies);
    print_json_number("weight_bytes", l->weight_bytes);
    print_json_number("step_weight_bytes", info->step_weight_bytes);
    print_json_text("kv_dtype", p->eng.kv_type);
    print_json_number("block_size", info->block_size);
    print_json_number("kv_blocks", info->n_blocks);
    print_json_number("kv_window_blocks", info->n_window_blocks);
    print_json_number("kv_bytes", l->kv_bytes);
    print_json_number("kv_block_bytes", p->eng.kv_block_bytes[WEFT_KV_FULL]);
    print_json_number("kv_window_block_bytes", p->eng.kv_block_bytes[WEFT_KV_WINDOWED]);
    print_json_number("window", info->window);
    print_json_number("state_bytes", l->state_bytes);
    print_json_number("state_checkpoints", info->n_checkpoints);
    print_json_number("draft_bytes", l->draft_bytes);
    print_json_number("scratch_bytes", l->scratch_bytes);
    print_json_number("sum_bytes", sum_bytes(l));
    print_json_number("available_bytes", p->eng.room_bytes);
    print_json_number("memory_limit", l->limit.bytes);
    printf(", \"fits\": %s", p->eng.refusal.text[0] ? "false" : "true");
    if (p->eng.refusal.text[0]) print_json_text("reason", p->eng.refusal.text);
    print_json_contexts(p);
    printf(", \"speed\": {\"measured\": %s, \"activations\": \"%s\"",
           p->is_measured ? "true" : "false", act_names[info->activations]);
    if (p->dram_bytes > 0) printf(", \"gb_per_s\": %.3f", p->dram_bytes / 1e9);
    if (p->ops > 0) printf(", \"gflop_per_s\": %.2f", p->ops / 1e9);
    printf(", \"prompt_gflop_per_token\": %.6f", prompt_ops(p) / 1e9);
    if (p->ops > 0) printf(", \"prompt_tokens_per_s\": %.2f", p->ops / prompt_ops(p));
    printf("}}\n");
}

int weft_cmd_plan(const struct weft_config *config) {
    static struct plan plan;
    struct weft_errmsg why = {""};
    plan.config = config;
    weft_err err = weft_serve_foresee(config, &plan.serve, &why);
    plan.serve.options.room_bytes = config->plan_memory;
    if (!err) err = weft_eng_foresee(config->model, &plan.serve.options, &plan.eng, &why);
    if (err) return weft_cmd_fail(err, &why);
    find_rates(&plan);
    (config->json ? print_json : print_text)(&plan);
    return plan.eng.refusal.text[0] ? WEFT_STATUS_FAILED : 0;
}
