#include "common/nearest.h"

#include <ctype.h>
#include <string.h>

#include "base/check.h"

#define PREFIX_MIN 5 /* "--max": a beginning shorter than this could be anything */

static char plain(char c) {
    return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

/* Changes, insertions, omissions and swaps of neighbours that make one text of the other, no
 * character touched twice (Damerau 1964, Levenshtein 1966). */
static unsigned distance(const char *a, size_t n, const char *b, size_t m) {
    unsigned rows[3][WEFT_NEAREST_BYTES_MAX];
    unsigned *before = rows[0], *last = rows[1], *row = rows[2];
    WEFT_ASSERT(n < WEFT_NEAREST_BYTES_MAX && m < WEFT_NEAREST_BYTES_MAX);
    for (size_t j = 0; j <= m; j++)
        last[j] = before[j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            bool same = plain(a[i - 1]) == plain(b[j - 1]);
            row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + !same);
            if (i > 1 && j > 1 && plain(a[i - 1]) == plain(b[j - 2]) &&
                plain(a[i - 2]) == plain(b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
        unsigned *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[m];
}

static bool begins_with(const char *name, const char *typed, size_t n) {
    size_t i = 0;
    while (i < n && plain(name[i]) == plain(typed[i]))
        i++;
    return i == n;
}

void weft_nearest_init(struct weft_nearest *nearest, struct weft_str typed) {
    *nearest = (struct weft_nearest){.cost = 0};
    if (typed.len >= sizeof nearest->typed || typed.len == 0) return;
    memcpy(nearest->typed, typed.data, typed.len);
    size_t n_letters = 0;
    for (size_t i = 0; i < typed.len; i++)
        n_letters += isalnum((unsigned char)typed.data[i]) != 0;
    nearest->cost = (unsigned)(n_letters + 1) / 3 + 1;
}

void weft_nearest_offer(struct weft_nearest *nearest, const char *name) {
    size_t n = strlen(nearest->typed), m = strlen(name);
    if (nearest->cost == 0 || m >= sizeof nearest->best) return;
    unsigned cost = distance(nearest->typed, n, name, m);
    if (n >= PREFIX_MIN && n <= m && begins_with(name, nearest->typed, n)) cost = least(cost, 1);
    if (cost >= nearest->cost) return;
    nearest->cost = cost;
    memcpy(nearest->best, name, m + 1);
}

const char *weft_nearest_name(const struct weft_nearest *nearest) {
    return nearest->best[0] ? nearest->best : NULL;
}

/* ------------------------------------------------------------------------- other servers --- */

static const char on_cpus[] = "computing is on CPUs alone";
static const char always[] = "that is always so";
static const char no_flag[] = "the model's path stands without a flag";

static const struct {
    const char *typed, *here;
} flags[] = {
    {"-m", no_flag},
    {"--model", no_flag},
    {"-c", "--max-model-len"},
    {"--ctx-size", "--max-model-len"},
    {"-t", "--threads"},
    {"-np", "--max-num-seqs"},
    {"--parallel", "--max-num-seqs"},
    {"-b", "--max-num-batched-tokens"},
    {"--batch-size", "--max-num-batched-tokens"},
    {"-a", "--served-model-name"},
    {"--alias", "--served-model-name"},
    {"-ctk", "--kv-dtype"},
    {"-ctv", "--kv-dtype"},
    {"--cache-type-k", "--kv-dtype"},
    {"--cache-type-v", "--kv-dtype"},
    {"--kv-cache-dtype", "--kv-dtype"},
    {"--kv-cache-memory-bytes", "--kv-memory"},
    {"--gpu-memory-utilization", "--memory-limit"},
    {"--swap-space", "--kv-spill"},
    {"--quantization", "--dtype"},
    {"--tensor-parallel-size", "--layout"},
    {"-tp", "--layout"},
    {"--data-parallel-size", "--workers"},
    {"-dp", "--workers"},
    {"--lora-modules", "--lora"},
    {"-md", "--speculative-model"},
    {"--model-draft", "--speculative-model"},
    {"-ngl", on_cpus},
    {"--gpu-layers", on_cpus},
    {"--n-gpu-layers", on_cpus},
    {"--device", on_cpus},
    {"-fa", always},
    {"--flash-attn", always},
    {"--jinja", always},
    {"-cb", always},
    {"--cont-batching", always},
    {"--embeddings", "models that embed are served as they are"},
    {"--enforce-eager", "there is nothing to compile"},
    {"--trust-remote-code", "no code of a model is ever run"},
    {"-hf", "nothing is downloaded: name a folder or file"},
    {"--hf-repo", "nothing is downloaded: name a folder or file"},
};

const char *weft_nearest_foreign(struct weft_str typed) {
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (weft_str_is(typed, flags[i].typed, strlen(flags[i].typed))) return flags[i].here;
    }
    return NULL;
}
