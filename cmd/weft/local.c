#include "local.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct local {
    weft_eng *eng;
    uint32_t n_seqs, n_blocks_each;
    uint64_t epoch, step;
    uint32_t *blocks; /* 0, 1, 2, ...: sequence i has a run of n_blocks_each */
    uint32_t *n_left; /* prompt tokens not computed yet, per sequence */
    bool *finished;
    struct weft_step_start *starts;
    struct weft_step_grant *grants;
    struct weft_step_row *rows;
};

static void local_fini(struct local *l) {
    free(l->blocks);
    free(l->n_left);
    free(l->finished);
    free(l->starts);
    free(l->grants);
    free(l->rows);
}

static weft_err local_init(struct local *l, weft_eng *eng, const struct weft_sampling *sampling,
                           uint32_t n_prompt, uint32_t n_seqs, struct weft_errmsg *why) {
    static uint64_t last_epoch;
    const struct weft_eng_info *info = weft_eng_info(eng);
    memset(l, 0, sizeof *l);
    l->eng = eng;
    l->n_seqs = n_seqs;
    l->epoch = ++last_epoch;
    uint64_t len = (uint64_t)n_prompt + sampling->max_tokens;
    if (len > info->max_model_len) len = info->max_model_len;
    l->n_blocks_each = (uint32_t)((len + info->block_size - 1) / info->block_size);
    uint64_t n_blocks = (uint64_t)l->n_blocks_each * n_seqs;
    if (n_prompt >= info->max_model_len)
        return weft_err_set(why, WEFT_E_TOOBIG,
                            "the prompt has %u tokens; the model's length is %u", n_prompt,
                            info->max_model_len);
    if (n_seqs > info->max_seqs || n_blocks > info->n_blocks)
        return weft_err_set(why, WEFT_E_TOOBIG,
                            "%u sequences of %llu tokens need %llu KV blocks, there are %u; try a "
                            "larger --kv-memory",
                            n_seqs, (unsigned long long)len, (unsigned long long)n_blocks,
                            info->n_blocks);
    l->blocks = calloc(n_blocks, sizeof *l->blocks);
    l->n_left = calloc(n_seqs, sizeof *l->n_left);
    l->finished = calloc(n_seqs, sizeof *l->finished);
    l->starts = calloc(n_seqs, sizeof *l->starts);
    l->grants = calloc(n_seqs, sizeof *l->grants);
    l->rows = calloc(n_seqs, sizeof *l->rows);
    if (!l->blocks || !l->n_left || !l->finished || !l->starts || !l->grants || !l->rows)
        return WEFT_E_NOMEM;
    for (uint32_t i = 0; i < n_blocks; i++)
        l->blocks[i] = i;
    return WEFT_OK;
}

/* As much of the prompts as the step has room for; once there is nothing left of any, every
 * sequence decodes. So all begin to decode together, and a step is one or the other. */
static uint32_t fill_rows(struct local *l, uint32_t *n_prompt_out) {
    uint32_t room = weft_eng_info(l->eng)->max_batched_tokens, n_rows = 0;
    uint32_t n_prompt = 0;
    for (uint32_t i = 0; i < l->n_seqs && room; i++) {
        uint32_t n = l->n_left[i] < room ? l->n_left[i] : room;
        if (n == 0) continue;
        l->n_left[i] -= n;
        n_prompt += n;
        room -= n;
        l->rows[n_rows++] = (struct weft_step_row){.slot = i, .gen = 1, .n_tokens = n};
    }
    *n_prompt_out = n_prompt;
    for (uint32_t i = 0; i < l->n_seqs && room && n_prompt == 0; i++) {
        if (l->finished[i]) continue;
        room--;
        l->rows[n_rows++] = (struct weft_step_row){.slot = i, .gen = 1, .n_tokens = 1};
    }
    return n_rows;
}

weft_err
weft_local_generate(weft_eng *eng, const struct weft_sampling *sampling, const uint32_t *prompt,
                    uint32_t n_prompt, uint32_t n_seqs,
                    bool (*on_token)(void *ctx, uint32_t seq_idx, const struct weft_step_out *out),
                    void *ctx, struct weft_local_times *times_out, struct weft_errmsg *why) {
    struct local l;
    memset(times_out, 0, sizeof *times_out);
    WEFT_ASSERT(n_seqs >= 1 && n_prompt >= 1);
    weft_err err = local_init(&l, eng, sampling, n_prompt, n_seqs, why);
    if (err) goto cleanup;
    WEFT_ASSERT(l.starts && l.grants && l.n_left && l.finished);
    for (uint32_t i = 0; i < n_seqs; i++) {
        l.starts[i] = (struct weft_step_start){.slot = i,
                                               .gen = 1,
                                               .choice = i,
                                               .tokens = prompt,
                                               .n_tokens = n_prompt,
                                               .n_prompt = n_prompt,
                                               .sampling = *sampling};
        l.grants[i] = (struct weft_step_grant){.slot = i,
                                               .gen = 1,
                                               .n_blocks = l.n_blocks_each,
                                               .blocks = l.blocks + (size_t)i * l.n_blocks_each};
        l.n_left[i] = n_prompt;
    }
    struct weft_step_plan plan = {.epoch = l.epoch,
                                  .n_starts = n_seqs,
                                  .starts = l.starts,
                                  .n_grants = n_seqs,
                                  .grants = l.grants,
                                  .rows = l.rows};
    weft_eng_reset(eng, l.epoch);
    bool go_on = true;
    for (uint32_t n_open = n_seqs; n_open && go_on; plan.step++) {
        const struct weft_step_result *result = NULL;
        uint32_t n_prompt_tokens = 0;
        plan.n_rows = fill_rows(&l, &n_prompt_tokens);
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
            if (out->sampled && on_token) go_on = on_token(ctx, out->slot, out);
            if (out->finish != WEFT_FINISH_NONE && !l.finished[out->slot]) {
                l.finished[out->slot] = true;
                n_open--;
            }
        }
    }
cleanup:
    local_fini(&l);
    return err;
}
