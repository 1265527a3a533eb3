/* bench_ops — a decode step's work beside its products, on one thread.
 *
 *   bench_ops [--rounds N] [--vocab N] [--step-us N] [--item TEXT]       WEFT_ISA picks the table
 *
 * Sampling from a vocabulary of 128256 in the ways requests ask for, then norms, rope, conversions
 * and the rest, in TinyLlama-1.1B's shape: 22 layers, 2048 wide, FFN 5632, 32 and 4 heads of 64.
 * Times are of one sequence's step (all layers), the best and the median of the rounds, and the
 * best's share of a step of --step-us (20000: such a model's weights at 50 GB/s in 8 bits). --item:
 * those alone whose names have TEXT in them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/rand.h"
#include "inside/cmd_weft/bench/bench_machine.h"
#include "inside/engine/sampler/chain.h"
#include "inside/engine/sampler/sampler.h"

enum {
    ROUNDS_MAX = 999,
    VOCAB_MAX = 1 << 20,
    LAYERS = 22,
    HIDDEN = 2048,
    FFN = 5632,
    HEADS = 32,
    KV_HEADS = 4,
    HEAD_DIM = 64,
    KNOWN = 512, /* tokens that penalties look at */
    BLOCK = 16,
    N_ROWS = 8,     /* different rows in turn: in the L2 cache, as in a step */
    N_BLOCKS = 256, /* of the KV cache */
};

struct bench {
    const struct weft_kern_table *kern;
    uint32_t n_vocab, n_rounds;
    double step_us;
    const char *item; /* NULL: all */
    uint64_t rng;
    /* sampling */
    float *raw, *logits;
    uint32_t known[KNOWN];
    struct weft_sampling sampling;
    struct wefti_sampler_scratch scratch;
    /* the rest */
    float *x, *y, *norm, *cos_sin; /* [N_ROWS][FFN], one row, one row, HEAD_DIM */
    double inv_freq[HEAD_DIM / 2];
    uint8_t *act; /* [N_ROWS][2 * FFN] */
    struct weft_kv_layer kv, kv_int8;
    uint32_t table[N_BLOCKS];
};

struct item {
    const char *name;
    void (*run)(struct bench *b, uint32_t round);
};

static float gaussian(uint64_t *rng) {
    float sum = -6.0f;
    for (int i = 0; i < 12; i++) {
        sum += (float)weft_rand_below(rng, 1u << 24) / (float)(1u << 24);
    }
    return sum;
}

static void *take(size_t count, size_t elem_bytes) {
    void *memory = aligned_alloc(64, (count * elem_bytes + 63) / 64 * 64);
    if (!memory) abort();
    memset(memory, 0, (count * elem_bytes + 63) / 64 * 64);
    return memory;
}

static float *row_of(struct bench *b, uint32_t round, uint32_t layer) {
    return b->x + (size_t)((round + layer) % N_ROWS) * FFN;
}

/* --------------------------------------------------------------------------------- sampling --- */

static void sample(struct bench *b, uint32_t round) {
    struct wefti_sampler_input s = {.sampling = &b->sampling,
                                    .tokens = b->known,
                                    .n_prompt = KNOWN / 2,
                                    .n_known = KNOWN - round % 2};
    (void)wefti_sampler_choose(b->kern, &s, b->logits, b->n_vocab, &b->scratch);
}

static void sample_greedy(struct bench *b, uint32_t round) {
    b->sampling.temperature = 0;
    sample(b, round);
}

static void sample_temperature(struct bench *b, uint32_t round) {
    b->sampling.temperature = 0.8f;
    sample(b, round);
}

static void sample_top_k(struct bench *b, uint32_t round) {
    b->sampling.top_k = 50;
    sample_temperature(b, round);
}

static void sample_top_p(struct bench *b, uint32_t round) {
    b->sampling.top_p = 0.9f;
    sample_temperature(b, round);
}

/* A model that is sure: few tokens have most of the mass. */
static void sample_top_p_sure(struct bench *b, uint32_t round) {
    for (uint32_t i = 0; i < 40; i++) {
        b->logits[b->known[i]] += 12.0f;
    }
    sample_top_p(b, round);
}

static void sample_min_p(struct bench *b, uint32_t round) {
    b->sampling.min_p = 0.05f;
    sample_temperature(b, round);
}

static void sample_all(struct bench *b, uint32_t round) {
    b->sampling.repetition_penalty = 1.1f;
    b->sampling.frequency_penalty = 0.2f;
    b->sampling.presence_penalty = 0.1f;
    b->sampling.top_p = 0.9f;
    sample_top_k(b, round);
}

static void order_llama_cpp(struct bench *b) {
    static const enum weft_sampler order[] = {WEFT_SAMPLER_TOP_K, WEFT_SAMPLER_TYPICAL,
                                              WEFT_SAMPLER_TOP_P, WEFT_SAMPLER_MIN_P,
                                              WEFT_SAMPLER_TEMPERATURE};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        b->sampling.samplers = weft_samplers_add(b->sampling.samplers, order[i]);
    b->sampling.variant = WEFT_VARIANT_LLAMA_CPP;
    b->sampling.min_p = 0.05f;
    b->sampling.top_p = 0.95f;
}

/* What llama-server does unless told otherwise, and the same without a first cut to few. */
static void sample_llama_cpp(struct bench *b, uint32_t round) {
    order_llama_cpp(b);
    b->sampling.top_k = 40;
    sample_temperature(b, round);
}

static void sample_llama_cpp_all(struct bench *b, uint32_t round) {
    order_llama_cpp(b);
    sample_temperature(b, round);
}

static void sample_typical(struct bench *b, uint32_t round) {
    b->sampling.typical_p = 0.9f;
    sample_temperature(b, round);
}

static void sample_mirostat(struct bench *b, uint32_t round) {
    b->sampling.mirostat = 2;
    sample_temperature(b, round);
}

static void sample_dry(struct bench *b, uint32_t round) {
    b->sampling.dry_multiplier = 0.8f;
    sample_all(b, round);
}

static void log_probabilities(struct bench *b, uint32_t round) {
    struct weft_logprobs out;
    uint32_t ids[20];
    float values[20];
    struct wefti_sampler_top top = {20, ids, values};
    wefti_sampler_logprobs(b->kern, b->logits, b->n_vocab, round % b->n_vocab, &top, &out);
}

/* ------------------------------------------------------------------------------- the layers --- */

static void norms(struct bench *b, uint32_t round) {
    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        b->kern->rms_norm(row_of(b, round, i), b->norm, 1e-5f, HIDDEN, b->y);
    }
}

static void convert(struct bench *b, uint32_t round, enum weft_gemm_kind kind) {
    for (uint32_t i = 0; i < 3 * LAYERS; i++) { /* the inputs of qkv, o, and gate and up */
        b->kern->act_convert(kind, row_of(b, round, i), FFN, 1, HIDDEN, b->act,
                             sizeof(float) * FFN);
    }
    for (uint32_t i = 0; i < LAYERS; i++) {
        b->kern->act_convert(kind, row_of(b, round, i), FFN, 1, FFN, b->act, sizeof(float) * FFN);
    }
}

static void convert_bf16(struct bench *b, uint32_t round) {
    convert(b, round, WEFT_GEMM_BF16);
}

static void convert_q8(struct bench *b, uint32_t round) {
    convert(b, round, WEFT_GEMM_Q8_0);
}

static void convert_q8_sums(struct bench *b, uint32_t round) {
    convert(b, round, WEFT_GEMM_Q4_1);
}

static void convert_i8(struct bench *b, uint32_t round) {
    convert(b, round, WEFT_GEMM_I8);
}

static void angles(struct bench *b, uint32_t round) {
    for (uint32_t i = 0; i < HEAD_DIM / 2; i++) {
        double angle = (double)(round + 1000) * b->inv_freq[i];
        b->cos_sin[(size_t)i * 2] = (float)cos(angle);
        b->cos_sin[(size_t)i * 2 + 1] = (float)sin(angle);
    }
}

static void ropes(struct bench *b, uint32_t round) {
    for (uint32_t i = 0; i < LAYERS; i++) {
        b->kern->rope(row_of(b, round, i), HEADS, HEAD_DIM, b->cos_sin, false);
        b->kern->rope(row_of(b, round, i) + HEADS * HEAD_DIM, KV_HEADS, HEAD_DIM, b->cos_sin,
                      false);
    }
}

static void kv_writes(struct bench *b, uint32_t round) {
    for (uint32_t i = 0; i < LAYERS; i++) {
        const float *x = row_of(b, round, i);
        b->kern->kv_write(&b->kv, b->table, (round + i) % (N_BLOCKS * BLOCK), x, x + HIDDEN);
    }
}

static void silus(struct bench *b, uint32_t round) {
    for (uint32_t i = 0; i < LAYERS; i++) {
        b->kern->silu_mul(row_of(b, round, i), row_of(b, round, i + 1), FFN, b->y);
    }
}

static void attend(struct bench *b, const struct weft_kv_layer *kv, uint32_t round,
                   uint32_t n_positions) {
    struct weft_attn_row row = {b->table, n_positions - 1, 0};
    for (uint32_t i = 0; i < LAYERS; i++) {
        struct weft_attn_args args = {
            .kv = *kv,
            .q = row_of(b, round, i),
            .out = b->y,
            .q_stride = HEADS * HEAD_DIM,
            .out_stride = HEADS * HEAD_DIM,
            .rows = &row,
            .n_heads = HEADS,
            .scale = 0.125f,
        };
        b->kern->attention(&args, &(struct weft_attn_range){0, 1, 0, KV_HEADS});
    }
}

static void attend_32(struct bench *b, uint32_t round) {
    attend(b, &b->kv, round, 32);
}

static void attend_1024(struct bench *b, uint32_t round) {
    attend(b, &b->kv, round, 1024);
}

static void attend_int8(struct bench *b, uint32_t round) {
    attend(b, &b->kv_int8, round, 1024);
}

static const struct item items[] = {
    {"sample, greedy", sample_greedy},
    {"sample, temperature", sample_temperature},
    {"sample, top_k 50", sample_top_k},
    {"sample, top_p 0.9", sample_top_p},
    {"sample, top_p 0.9, sure", sample_top_p_sure},
    {"sample, min_p 0.05", sample_min_p},
    {"sample, k, p, penalties", sample_all},
    {"sample, the same and DRY", sample_dry},
    {"sample, llama.cpp's order", sample_llama_cpp},
    {"sample, that without top_k", sample_llama_cpp_all},
    {"sample, typical", sample_typical},
    {"sample, Mirostat 2", sample_mirostat},
    {"log-probabilities, top 20", log_probabilities},
    {"rms_norm", norms},
    {"to bf16", convert_bf16},
    {"to int8 (Q8_0)", convert_q8},
    {"to int8 with sums (4-bit)", convert_q8_sums},
    {"to int8 (per channel)", convert_i8},
    {"angles of rope", angles},
    {"rope", ropes},
    {"kv_write", kv_writes},
    {"silu_mul", silus},
    {"attention, 32 positions", attend_32},
    {"attention, 1024 positions", attend_1024},
    {"attention, 1024, int8", attend_int8},
};

/* ------------------------------------------------------------------------------------- main --- */

static void measure(struct bench *b, const struct item *item) {
    double us[ROUNDS_MAX], best = INFINITY;
    for (uint32_t round = 0; round < b->n_rounds; round++) {
        weft_sampling_init(&b->sampling);
        b->sampling.seed = round;
        memcpy(b->logits, b->raw, b->n_vocab * sizeof *b->logits);
        uint64_t begin_ns = weft_now_ns();
        item->run(b, round);
        us[round] = (double)(weft_now_ns() - begin_ns) / 1e3;
        if (us[round] < best) best = us[round];
    }
    printf("%-26s %10.1f %10.1f %9.2f%%\n", item->name, best, weft_median(us, b->n_rounds),
           100 * best / b->step_us);
}

static struct weft_kv_layer make_cache(struct bench *b, enum weft_kv_dtype dtype) {
    struct weft_kv_layer kv = {
        .dtype = dtype, .block_size = BLOCK, .n_kv_heads = KV_HEADS, .head_dim = HEAD_DIM};
    kv.stride_bytes = weft_kv_block_bytes(&kv);
    kv.k = take(N_BLOCKS, kv.stride_bytes);
    kv.v = take(N_BLOCKS, kv.stride_bytes);
    for (uint32_t pos = 0; pos < N_BLOCKS * BLOCK; pos++) {
        const float *x = row_of(b, pos, 0);
        b->kern->kv_write(&kv, b->table, pos, x, x + HIDDEN);
    }
    return kv;
}

static void make_data(struct bench *b) {
    float *raw = take(b->n_vocab, sizeof(float));
    b->logits = take(b->n_vocab, sizeof(float));
    b->scratch = (struct wefti_sampler_scratch){
        .work = take(b->n_vocab, sizeof(float)),
        .counts = take(b->n_vocab, sizeof(uint32_t)),
        .hist_n = take(WEFTI_SAMPLER_BUCKETS, sizeof(uint32_t)),
        .hist_mass = take(WEFTI_SAMPLER_BUCKETS, sizeof(double)),
        .ids = take(b->n_vocab, sizeof(uint32_t)),
        .maxima = take(wefti_sampler_n_chunks(b->n_vocab), sizeof(float)),
        .best = take(wefti_sampler_n_chunks(b->n_vocab), sizeof(float)),
        .sums = take(wefti_sampler_n_chunks(b->n_vocab), sizeof(double)),
    };
    static struct wefti_chain_scratch chain;
    chain = (struct wefti_chain_scratch){
        .x = take(b->n_vocab, sizeof(double)),
        .p = take(b->n_vocab, sizeof(double)),
        .off = take(b->n_vocab, sizeof(double)),
        .ids = take(b->n_vocab, sizeof(uint32_t)),
        .keys = take(b->n_vocab, sizeof(uint64_t)),
        .keys_spare = take(b->n_vocab, sizeof(uint64_t)),
        .rank = take(b->n_vocab, sizeof(uint32_t)),
        .rank_spare = take(b->n_vocab, sizeof(uint32_t)),
        .runs = take(KNOWN, sizeof(uint32_t)),
        .n_runs = KNOWN,
    };
    b->scratch.chain = &chain;
    for (uint32_t i = 0; i < b->n_vocab; i++)
        raw[i] = 2.5f * gaussian(&b->rng);
    b->raw = raw;
    for (uint32_t i = 0; i < KNOWN; i++)
        b->known[i] = weft_rand_below(&b->rng, b->n_vocab);
    b->x = take((size_t)N_ROWS * FFN, sizeof(float));
    b->y = take(FFN, sizeof(float));
    b->norm = take(HIDDEN, sizeof(float));
    b->cos_sin = take(HEAD_DIM, sizeof(float));
    b->act = take(FFN, sizeof(float));
    for (size_t i = 0; i < (size_t)N_ROWS * FFN; i++)
        b->x[i] = gaussian(&b->rng);
    for (uint32_t i = 0; i < HIDDEN; i++)
        b->norm[i] = 1.0f;
    for (uint32_t i = 0; i < HEAD_DIM / 2; i++)
        b->inv_freq[i] = pow(10000.0, -2.0 * i / HEAD_DIM);
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        b->table[i] = i;
    b->kv = make_cache(b, WEFT_KV_BF16);
    b->kv_int8 = make_cache(b, WEFT_KV_INT8);
}

static bool parse_options(int argc, char **argv, struct bench *b) {
    for (int i = 1; i < argc; i += 2) {
        uint64_t value = 0, max = !strcmp(argv[i], "--rounds") ? ROUNDS_MAX : VOCAB_MAX;
        if (i + 1 < argc && !strcmp(argv[i], "--item")) {
            b->item = argv[i + 1];
            continue;
        }
        if (i + 1 == argc || weft_parse_u64(argv[i + 1], max, &value) || value == 0) return false;
        if (!strcmp(argv[i], "--rounds"))
            b->n_rounds = (uint32_t)value;
        else if (!strcmp(argv[i], "--vocab") && value >= 100)
            b->n_vocab = (uint32_t)value;
        else if (!strcmp(argv[i], "--step-us"))
            b->step_us = (double)value;
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv) {
    static struct bench b = {.n_vocab = 128256, .n_rounds = 101, .step_us = 20000, .rng = 1};
    struct weft_errmsg why = {""};
    if (!parse_options(argc, argv, &b)) {
        (void)fprintf(stderr, "usage: bench_ops [--rounds N] [--vocab N] [--step-us N] "
                              "[--item TEXT]\n");
        return 2;
    }
    if (weft_kern_select(&b.kern, &why) || !b.kern) {
        (void)fprintf(stderr, "bench_ops: %s\n", why.text);
        return 1;
    }
    make_data(&b);
    printf("%s, a vocabulary of %u, steps of %.0f us\n%-26s %10s %10s %10s\n", b.kern->name,
           b.n_vocab, b.step_us, "", "best us", "median us", "of step");
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++)
        if (!b.item || strstr(items[i].name, b.item)) measure(&b, &items[i]);
    return 0;
}
