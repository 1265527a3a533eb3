/* Too little memory for what runs: four times as many blocks are wanted as there are.
 *
 * Every place is taken all the time, and nobody knows how long answers will become, so that
 * sequences are preempted again and again. None may fail, all must end, and the recompute tax
 * (tokens computed again, of all that are computed) is at most half of what it is where the
 * sequence goes first that was admitted last, and whoever fits is admitted. With and without the prefix cache. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "property/sim_machine.h"

#define PLACES 32u
#define OVERSUBSCRIBED 4u
#define REQUESTS_MAX 2000u

static struct sim_request requests[REQUESTS_MAX];

struct load {
    const char *name;
    uint32_t n_prompt_most, n_output_most; /* uniform up to there */
    double per_second;                     /* 0: all at once */
};

struct tax {
    double tax, seconds;
    uint64_t n_preemptions;
};

static struct tax run(const struct load *load, bool prefix_cache, bool evict_last, uint64_t rand) {
    uint32_t n = sim_is_slow() ? 200 : REQUESTS_MAX;
    uint64_t at_us = 0, n_tokens = 0;
    memset(requests, 0, sizeof requests);
    for (uint32_t i = 0; i < n; i++) {
        if (load->per_second > 0) at_us += sim_gap_us(&rand, load->per_second);
        requests[i] =
            (struct sim_request){.at_us = at_us,
                                 .n_prompt = 1 + weft_rand_below(&rand, load->n_prompt_most),
                                 .n_output = 1 + weft_rand_below(&rand, load->n_output_most)};
        n_tokens += requests[i].n_prompt + requests[i].n_output;
    }
    struct weft_sched_options options = sim_machine_options();
    options.max_seqs = PLACES;
    options.max_queue = REQUESTS_MAX;
    options.max_model_len = load->n_prompt_most + load->n_output_most;
    options.prefix_cache = prefix_cache;
    options.evict_last = evict_last;
    options.n_blocks = (uint32_t)(n_tokens * PLACES / n / options.block_size / OVERSUBSCRIBED);
    uint32_t longest = options.max_model_len / options.block_size + 1;
    WEFT_ASSERT(options.n_blocks >= longest);
    struct sim_machine *machine = sim_machine_new(&options, &sim_tinyllama);
    uint64_t start_us = machine->now_us;
    sim_machine_load(machine, requests, n);
    sim_machine_run(machine);
    struct weft_sched_stats stats;
    weft_sched_stats(machine->sched, &stats);
    for (uint32_t i = 0; i < n; i++) {
        WEFT_ASSERT(requests[i].reject == WEFT_REJECT_NONE && requests[i].n_failed == 0);
        WEFT_ASSERT(requests[i].end_us > 0 && requests[i].n_tokens == requests[i].n_output);
    }
    double computed =
        (double)(stats.n_prompt_tokens + stats.n_output_tokens + stats.n_recomputed_tokens);
    struct tax tax = {.tax = (double)stats.n_recomputed_tokens / computed,
                      .seconds = (double)(machine->now_us - start_us) / 1e6,
                      .n_preemptions = stats.n_preemptions};
    sim_machine_free(machine);
    return tax;
}

static void check(const struct load *load, bool prefix_cache, uint64_t seed) {
    struct tax last = run(load, prefix_cache, true, seed);
    struct tax ours = run(load, prefix_cache, false, seed);
    printf("%s, %s prefix cache: %.2f %% of what is computed is computed again (%" PRIu64
           " preemptions, %.0f s in all); where the last admitted goes first %.2f %% (%" PRIu64
           ", %.0f s): %.2f of that\n",
           load->name, prefix_cache ? "with" : "without", 100 * ours.tax, ours.n_preemptions,
           ours.seconds, 100 * last.tax, last.n_preemptions, last.seconds, ours.tax / last.tax);
    (void)fflush(stdout);
    WEFT_ASSERT(ours.n_preemptions > 0);
    WEFT_ASSERT(ours.tax <= last.tax / 2);
}

int main(void) {
    weft_check_actor("sim_oversubscribed");
    static const struct load loads[] = {
        {.name = "short prompts, long answers", .n_prompt_most = 64, .n_output_most = 384},
        {.name = "prompts as long as answers", .n_prompt_most = 256, .n_output_most = 256},
        {.name = "long prompts, shorter answers", .n_prompt_most = 512, .n_output_most = 192},
    };
    uint64_t seed = sim_seed(1);
    for (uint32_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        check(&loads[i], true, seed);
        check(&loads[i], false, seed);
    }
    return 0;
}
