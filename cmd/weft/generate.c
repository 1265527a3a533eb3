#include "generate.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"

struct run {
    weft_eng *eng;
    uint32_t n_seqs, n_blocks_each;
    uint32_t ring; /* windowed blocks of a sequence, used in turn as its window moves on; 0: none */
    uint64_t epoch, step;
    uint32_t *blocks;        /* 0, 1, 2, ...: sequence i has a run of n_blocks_each */
    uint32_t *window_blocks; /* likewise, but every `ring` entries they come round */
    uint32_t *n_left;        /* prompt tokens not computed yet, per sequence */
    bool *finished;
    struct weft_step_start *starts;
    struct weft_step_grant *grants;
    struct weft_step_row *rows;
};

static void run_fini(struct run *run) {
    free(run->blocks);
    free(run->window_blocks);
    free(run->n_left);
    free(run->finished);
    free(run->starts);
    free(run->grants);
    free(run->rows);
}

/* Whether the blocks that a step's rows and their windows need are never more than the ring has. */
static bool fits_ring(const struct run *run, const struct weft_eng_info *info) {
    if (info->window == 0 || run->ring >= run->n_blocks_each) return true;
    uint64_t n_seen = (uint64_t)info->window + info->max_batched_tokens;
    return run->ring > (n_seen + info->block_size - 1) / info->block_size;
}

/* The blocks of sequence i. A run of one sequence finds those of the run before it. */
static void fill_window_blocks(struct run *run, uint32_t i) {
    uint32_t *blocks = run->window_blocks + (size_t)i * run->n_blocks_each;
    for (uint32_t b = 0; b < run->n_blocks_each; b++)
        blocks[b] = i * run->ring + b % run->ring;
}

uint32_t weft_generate_reusable(const weft_eng *eng, uint32_t n_written, uint32_t n) {
    const struct weft_eng_info *info = weft_eng_info(eng);
    if (info->is_recurrent) return 0;
    if (n == 0 || info->window == 0) return n;
    uint32_t low = n >= info->window ? n - info->window + 1 : 0;
    uint32_t first = low / info->block_size, last = (n_written - 1) / info->block_size;
    return last - first < info->n_window_blocks ? n : 0;
}

static weft_err run_init(struct run *run, weft_eng *eng,
                         const struct weft_generate_request *request, struct weft_errmsg *why) {
    const uint32_t n_prompt = request->n_prompt, n_seqs = request->n_seqs;
    static uint64_t last_epoch;
    const struct weft_eng_info *info = weft_eng_info(eng);
    memset(run, 0, sizeof *run);
    run->eng = eng;
    run->n_seqs = n_seqs;
    run->epoch = ++last_epoch;
    uint64_t len = (uint64_t)n_prompt + request->sampling->max_tokens;
    if (len > info->max_model_len) len = info->max_model_len;
    run->n_blocks_each = (uint32_t)((len + info->block_size - 1) / info->block_size);
    uint64_t n_blocks = (uint64_t)run->n_blocks_each * n_seqs;
    if (n_prompt >= info->max_model_len)
        return weft_err_set(why, WEFT_E_TOOBIG,
                            "the prompt has %u tokens; the model's length is %u "
                            "(--max-model-len)",
                            n_prompt, info->max_model_len);
    run->ring = weft_min_u32(info->n_window_blocks / n_seqs, run->n_blocks_each);
    if (n_seqs > info->max_seqs || n_blocks > info->n_blocks || !fits_ring(run, info))
        return weft_err_set(why, WEFT_E_TOOBIG,
                            "%u sequences of %llu tokens need %llu KV blocks, there are %u; try a "
                            "larger --kv-memory",
                            n_seqs, (unsigned long long)len, (unsigned long long)n_blocks,
                            info->n_blocks);
    run->blocks = calloc(n_blocks, sizeof *run->blocks);
    run->window_blocks = calloc(run->ring > 0 ? n_blocks : 1, sizeof *run->window_blocks);
    run->n_left = calloc(n_seqs, sizeof *run->n_left);
    run->finished = calloc(n_seqs, sizeof *run->finished);
    run->starts = calloc(n_seqs, sizeof *run->starts);
    run->grants = calloc(WEFT_KV_KINDS * (size_t)n_seqs, sizeof *run->grants);
    run->rows = calloc(n_seqs, sizeof *run->rows);
    if (!run->blocks || !run->window_blocks || !run->n_left || !run->finished || !run->starts ||
        !run->grants || !run->rows)
        return WEFT_E_NOMEM;
    for (uint32_t i = 0; i < n_blocks; i++)
        run->blocks[i] = i;
    for (uint32_t i = 0; i < n_seqs && run->ring > 0; i++)
        fill_window_blocks(run, i);
    return WEFT_OK;
}

/* Takes as much of the prompts as the step has room for; after all prompts every sequence decodes.
 * So all begin to decode together, and a step is one or the other. */
static uint32_t fill_rows(struct run *run, uint32_t *n_prompt_out) {
    uint32_t room = weft_eng_info(run->eng)->max_batched_tokens, n_rows = 0;
    uint32_t n_prompt = 0;
    for (uint32_t i = 0; i < run->n_seqs && room; i++) {
        uint32_t n = run->n_left[i] < room ? run->n_left[i] : room;
        if (n == 0) continue;
        run->n_left[i] -= n;
        n_prompt += n;
        room -= n;
        run->rows[n_rows++] = (struct weft_step_row){.slot = i, .gen = 1, .n_tokens = n};
    }
    *n_prompt_out = n_prompt;
    for (uint32_t i = 0; i < run->n_seqs && room && n_prompt == 0; i++) {
        if (run->finished[i]) continue;
        room--;
        run->rows[n_rows++] = (struct weft_step_row){.slot = i, .gen = 1, .n_tokens = 1};
    }
    return n_rows;
}

weft_err weft_generate(weft_eng *eng, const struct weft_generate_request *request,
                       struct weft_generate_times *times_out, struct weft_errmsg *why) {
    const uint32_t n_seqs = request->n_seqs, n_prompt = request->n_prompt;
    struct run run;
    memset(times_out, 0, sizeof *times_out);
    WEFT_ASSERT(n_seqs >= 1 && n_prompt >= 1);
    WEFT_ASSERT(request->n_cached < n_prompt);
    weft_err err = run_init(&run, eng, request, why);
    if (err) goto cleanup;
    WEFT_ASSERT(run.starts && run.grants && run.n_left && run.finished);
    for (uint32_t i = 0; i < n_seqs; i++) {
        run.starts[i] = (struct weft_step_start){.slot = i,
                                                 .gen = 1,
                                                 .choice = i,
                                                 .tokens = request->prompt,
                                                 .n_tokens = n_prompt,
                                                 .n_prompt = n_prompt,
                                                 .n_cached = request->n_cached,
                                                 .n_written = request->n_cached,
                                                 .sampling = *request->sampling};
        run.grants[i] =
            (struct weft_step_grant){.slot = i,
                                     .gen = 1,
                                     .n_blocks = run.n_blocks_each,
                                     .blocks = run.blocks + (size_t)i * run.n_blocks_each};
        run.grants[n_seqs + i] = run.grants[i];
        run.grants[n_seqs + i].kind = WEFT_KV_WINDOWED;
        run.grants[n_seqs + i].blocks = run.window_blocks + (size_t)i * run.n_blocks_each;
        run.n_left[i] = n_prompt - request->n_cached;
    }
    struct weft_step_plan plan = {.epoch = run.epoch,
                                  .n_starts = n_seqs,
                                  .starts = run.starts,
                                  .n_grants = run.ring > 0 ? 2 * n_seqs : n_seqs,
                                  .grants = run.grants,
                                  .rows = run.rows};
    weft_eng_reset(eng, run.epoch);
    bool go_on = true;
    for (uint32_t n_open = n_seqs; n_open && go_on; plan.step++) {
        const struct weft_step_result *result = NULL;
        uint32_t n_prompt_tokens = 0;
        if (request->stop && *request->stop) break;
        plan.n_rows = fill_rows(&run, &n_prompt_tokens);
        err = weft_eng_step(eng, &plan, &result, why);
        if (err) goto cleanup;
        plan.n_starts = plan.n_grants = 0;
        if (n_prompt_tokens) {
            times_out->prompt_us += result->busy_us;
            times_out->n_prompt += result->n_tokens;
        } else {
            times_out->gen_us += result->busy_us;
            times_out->n_gen += result->n_tokens;
        }
        for (uint32_t i = 0; i < result->n_outs && go_on; i++) {
            const struct weft_step_out *out = &result->outs[i];
            if (out->sampled && request->on_token)
                go_on = request->on_token(request->ctx, out->slot, out);
            if (out->finish != WEFT_END_NONE && !run.finished[out->slot]) {
                run.finished[out->slot] = true;
                n_open--;
            }
        }
    }
cleanup:
    run_fini(&run);
    return err;
}
