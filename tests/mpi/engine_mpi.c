/* An engine that computes a text and a sequence, alone or as one rank of a group that mpirun starts
 * (test_mpi.py), and prints what it got: MODEL alone|group */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"
#include "collective/collective.h"
#include "engine/engine.h"
#include "harness/eng_drive.h"

enum { TEXT = 70, PROMPT = 60, TOKENS = 40 };

static void die_if(weft_err err, const struct weft_errmsg *why) {
    if (!err) return;
    weft_say(WEFT_LOG_ERROR, "%s", why->text);
    exit(EXIT_FAILURE);
}

struct rows {
    uint32_t n_vocab, n;
    uint64_t hash;
};

static void keep_row(void *ctx, uint32_t pos, const float *logits) {
    struct rows *rows = ctx;
    WEFT_ASSERT(pos == rows->n++);
    rows->hash = XXH3_64bits_withSeed(logits, rows->n_vocab * sizeof *logits, rows->hash);
}

static void print_logits(weft_eng *eng, uint32_t rank) {
    uint32_t text[TEXT];
    uint64_t rng = 1;
    struct weft_errmsg why;
    struct rows rows = {.n_vocab = weft_eng_info(eng)->n_vocab};
    for (uint32_t i = 0; i < TEXT; i++)
        text[i] = weft_rand_below(&rng, rows.n_vocab);
    die_if(weft_eng_logits(eng, text, TEXT, keep_row, &rows, &why), &why);
    if (rank == 0) (void)printf("logits of %u rows %016" PRIx64 "\n", rows.n, rows.hash);
}

/* All ranks hear what the first one sampled. */
static void print_tokens(weft_eng *eng, uint32_t rank) {
    uint32_t prompt[PROMPT], tokens[TOKENS];
    uint64_t rng = 2;
    struct weft_sampling sampling;
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = weft_rand_below(&rng, weft_eng_info(eng)->n_vocab);
    weft_sampling_init(&sampling);
    sampling.temperature = 1;
    sampling.seed = 3;
    sampling.max_tokens = TOKENS;
    uint32_t n = drive_complete(&(struct drive){.eng = eng}, prompt, PROMPT, &sampling, tokens);
    (void)printf("tokens of rank %u: %u, %016" PRIx64 "\n", rank, n,
                 (uint64_t)XXH3_64bits(tokens, n * sizeof *tokens));
}

/* The network that this rank is in. */
static void print_network(uint32_t rank) {
    char net[64] = "";
    WEFT_ASSERT(readlink("/proc/self/ns/net", net, sizeof net - 1) > 0);
    (void)printf("rank %u is in %s\n", rank, net);
}

int main(int argc, char **argv) {
    WEFT_ASSERT(argc == 3);
    bool is_alone = strcmp(argv[2], "alone") == 0;
    struct weft_eng_options options;
    struct weft_errmsg why = {""};
    weft_eng *eng;
    weft_log_init("rank", WEFT_LOG_WARN, false);
    weft_eng_options_init(&options);
    options.max_seqs = 1;
    options.max_batched_tokens = 48; /* the text is cut into chunks */
    options.max_model_len = 250;
    options.kv_memory_bytes = 24u << 20;
    options.n_threads = 2; /* so that different threads meet */
    if (!is_alone) {
        die_if(weft_coll_open_mpi(60 * 1000, &options.coll, &options.rank, &why), &why);
        options.n_ranks = weft_coll_n_ranks(options.coll);
        die_if(weft_coll_join(options.coll, options.rank, &why), &why);
        print_network(options.rank);
    }
    die_if(weft_eng_open(argv[1], &options, &eng, &why), &why);
    print_logits(eng, options.rank);
    print_tokens(eng, options.rank);
    weft_eng_free(eng);
    if (!is_alone) weft_coll_leave(options.coll, options.rank);
    weft_coll_close(options.coll);
    return EXIT_SUCCESS;
}
