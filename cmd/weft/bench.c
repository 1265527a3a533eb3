/* `weft bench`: tokens per second of prompt and generation, and how that compares with the memory
 * bandwidth of the machine, measured in the same run, in turns. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/parse.h"
#include "cmd/common/engine_config.h"
#include "cmd/weft/commands.h"
#include "cmd/weft/json_text.h"
#include "cmd/weft/local.h"

#define BATCHES_MAX 16
#define ROUNDS_MAX 100
#define PROBE_BYTES (64u << 20) /* per thread: well beyond its share of the last-level cache */

/* ------------------------------------------------------------------------ memory bandwidth --- */

struct probe {
    pthread_t thread;
    uint64_t *words;
    uint64_t sum;
    uint32_t cpu;
    bool pin;
};

static void *probe_run(void *arg) {
    struct probe *probe = arg;
    if (probe->pin) (void)weft_cpu_pin(probe->cpu);
    uint64_t sums[8] = {0};
    for (size_t i = 0; i + 8 <= PROBE_BYTES / 8; i += 8) {
        for (size_t j = 0; j < 8; j++)
            sums[j] += probe->words[i + j];
    }
    for (size_t j = 0; j < 8; j++)
        probe->sum += sums[j];
    return NULL;
}

/* Reads memory with every thread at once; bytes per second. */
static double probe_bandwidth(struct probe *probes, uint32_t n) {
    uint64_t begin = weft_now_ns();
    uint32_t n_started = 0;
    while (n_started < n &&
           pthread_create(&probes[n_started].thread, NULL, probe_run, &probes[n_started]) == 0)
        n_started++;
    for (uint32_t i = 0; i < n_started; i++)
        (void)pthread_join(probes[i].thread, NULL);
    uint64_t ns = weft_now_ns() - begin;
    return (double)n_started * PROBE_BYTES / (double)ns * 1e9;
}

/* -------------------------------------------------------------------------------- results --- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct bench {
    weft_eng *eng;
    struct weft_config config;
    uint32_t batches[BATCHES_MAX], n_batches;
    struct probe *probes;
    uint32_t n_probes;
    double prompt_rate[BATCHES_MAX][ROUNDS_MAX], gen_rate[BATCHES_MAX][ROUNDS_MAX];
    double bandwidth[ROUNDS_MAX];
};

static weft_err parse_batches(const char *text, struct bench *bench, struct weft_errmsg *why) {
    char copy[256], *rest = NULL;
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        uint64_t n = 0;
        if (weft_parse_u64(word, WEFT_SEQS_MAX, &n) || n == 0 || bench->n_batches == BATCHES_MAX)
            return weft_err_set(why, WEFT_E_INVAL,
                                "--batch is a list of up to %d numbers from 1 to %d, not \"%s\"",
                                BATCHES_MAX, WEFT_SEQS_MAX, text);
        bench->batches[bench->n_batches++] = (uint32_t)n;
    }
    if (bench->n_batches == 0) return weft_err_set(why, WEFT_E_INVAL, "--batch is empty");
    return WEFT_OK;
}

static weft_err run_round(struct bench *b, size_t round, const uint32_t *prompt, uint32_t n_prompt,
                          struct weft_errmsg *why) {
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    sampling.max_tokens = b->config.bench_gen + 1; /* the first comes out of the prompt's step */
    b->bandwidth[round] = probe_bandwidth(b->probes, b->n_probes);
    for (uint32_t i = 0; i < b->n_batches; i++) {
        struct weft_local_times t;
        weft_err err = weft_local_generate(b->eng, &sampling, prompt, n_prompt, b->batches[i], NULL,
                                           NULL, &t, why);
        if (err) return err;
        b->prompt_rate[i][round] = t.prompt_us ? t.n_prompt * 1e6 / (double)t.prompt_us : 0;
        b->gen_rate[i][round] = t.gen_us ? t.n_gen * 1e6 / (double)t.gen_us : 0;
    }
    return WEFT_OK;
}

static void print_results(struct bench *b) {
    const struct weft_eng_info *info = weft_eng_info(b->eng);
    double ceiling = median(b->bandwidth, b->config.bench_rounds), most = 0;
    bool json = b->config.json;
    if (json) {
        printf("{\"model\": ");
        weft_print_json_string(stdout, info->model_name, strlen(info->model_name));
        printf(", \"isa\": \"%s\", \"threads\": %u, \"weight_bytes\": %" PRIu64
               ", \"step_weight_bytes\": %" PRIu64 ", \"bandwidth_gb_s\": %.3f, \"results\": [",
               info->isa, info->n_threads, info->weight_bytes, info->step_weight_bytes,
               ceiling / 1e9);
    } else {
        printf("%s, %s, %u threads, %.1f MiB of weights, memory reads %.1f GB/s\n"
               "%6s %16s %16s %12s %10s\n",
               info->model_name, info->isa, info->n_threads, (double)info->weight_bytes / 1048576.0,
               ceiling / 1e9, "batch", "prompt tok/s", "gen tok/s", "gen GB/s", "of memory");
    }
    for (uint32_t i = 0; i < b->n_batches; i++) {
        double prompt = median(b->prompt_rate[i], b->config.bench_rounds);
        double gen = median(b->gen_rate[i], b->config.bench_rounds);
        double bytes = gen / b->batches[i] * (double)info->step_weight_bytes;
        if (bytes > most) most = bytes;
        if (json)
            printf("%s{\"batch\": %u, \"prompt_tok_s\": %.2f, \"gen_tok_s\": %.2f, \"gen_gb_s\": "
                   "%.3f, \"of_bandwidth\": %.4f}",
                   i ? ", " : "", b->batches[i], prompt, gen, bytes / 1e9, bytes / ceiling);
        else
            printf("%6u %16.1f %16.1f %12.2f %9.0f%%\n", b->batches[i], prompt, gen, bytes / 1e9,
                   100 * bytes / ceiling);
    }
    if (json)
        printf("]}\n");
    else if (most > ceiling)
        printf("(More than memory gives: part of the weights stays in the CPU's cache.)\n");
}

static weft_err make_probes(struct bench *b, struct weft_errmsg *why) {
    static uint32_t cpus[WEFT_CPUS_MAX];
    uint32_t n_cpus = weft_cpu_allowed(cpus);
    b->n_probes = weft_eng_info(b->eng)->n_threads;
    b->probes = calloc(b->n_probes, sizeof *b->probes);
    if (!b->probes) return WEFT_E_NOMEM;
    for (uint32_t i = 0; i < b->n_probes; i++) {
        b->probes[i].cpu = cpus[i % n_cpus];
        b->probes[i].pin = b->n_probes <= n_cpus;
        b->probes[i].words = malloc(PROBE_BYTES);
        if (!b->probes[i].words)
            return weft_err_set(why, WEFT_E_NOMEM, "no memory for the bandwidth measurement");
        memset(b->probes[i].words, 1, PROBE_BYTES);
    }
    return WEFT_OK;
}

static void free_probes(struct bench *b) {
    for (uint32_t i = 0; b->probes && i < b->n_probes; i++)
        free(b->probes[i].words);
    free(b->probes);
}

int weft_cmd_bench(int argc, char **argv) {
    struct weft_errmsg why = {""};
    struct weft_eng_options options;
    static struct bench bench;
    struct weft_config *config = &bench.config;
    uint32_t *prompt = NULL;
    bool done = false;
    weft_err err = weft_config_parse(WEFT_PROG_BENCH, argc, argv, config, &done, &why);
    if (err || done) goto cleanup;
    weft_log_init("weft", WEFT_LOG_WARN, false);
    err = parse_batches(config->bench_batch, &bench, &why);
    if (err) goto cleanup;
    for (uint32_t i = 0; i < bench.n_batches; i++) {
        if (bench.batches[i] > config->max_num_seqs) config->max_num_seqs = bench.batches[i];
        if (bench.batches[i] <= config->max_num_batched_tokens) continue;
        err = weft_err_set(&why, WEFT_E_INVAL,
                           "--batch %u does not fit a step of --max-num-batched-tokens %u",
                           bench.batches[i], config->max_num_batched_tokens);
        goto cleanup;
    }
    err = weft_engine_config(config, &options, &why);
    if (!err) err = weft_eng_open(config->model, &options, &bench.eng, &why);
    if (!err) err = make_probes(&bench, &why);
    if (err) goto cleanup;
    uint32_t n_prompt = config->bench_prompt ? config->bench_prompt : 1;
    uint32_t n_vocab = weft_eng_info(bench.eng)->n_vocab;
    prompt = calloc(n_prompt, sizeof *prompt);
    if (!prompt) {
        err = WEFT_E_NOMEM;
        goto cleanup;
    }
    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = (i * 7919u + 13u) % n_vocab;
    for (size_t round = 0; round < config->bench_rounds && !err; round++)
        err = run_round(&bench, round, prompt, n_prompt, &why);
    if (!err) print_results(&bench);
cleanup:
    weft_eng_free(bench.eng);
    free_probes(&bench);
    free(prompt);
    return err ? weft_cmd_fail(err, &why) : 0;
}
