/* The candidates of contrastive search, computed in passes of their own after the step's.
 *
 * A candidate stands at the position after its sequence's last token. Its row reads the sequence's blocks,
 * but for the last, of which it has a copy that it writes its own keys and values to: one of the cache's
 * spare blocks. So it sees what the token would see if it had been sampled, and nobody sees it; when it is
 * chosen, it is computed once more, in a step of its sequence like any other token. That costs a second pass
 * over the weights per step, and in turn a sequence between steps is what all others are: it is preempted,
 * restarted and cut into chunks without a word here. */
#include "state.h"

#include <string.h>

#include "base/check.h"

static void add_row(weft_eng *eng, uint32_t slot_idx, uint32_t candidate) {
    struct wefti_eng_contrast *c = &eng->contrast;
    const struct wefti_slots *slots = &eng->slots;
    const struct wefti_slot *slot = &slots->slots[slot_idx];
    const struct wefti_lora_set *set = &eng->sets[slot_idx];
    uint32_t row = c->n++, pos = slot->n_known, last = pos / slots->block_size;
    WEFT_ASSERT(row < c->n_most && pos < slots->max_model_len);
    for (uint32_t kind = 0; kind < slots->n_kinds; kind++) {
        uint32_t *table = c->tables[kind] + (size_t)row * slots->table_cap;
        uint32_t spare = eng->kv.n_blocks[kind] + row;
        memcpy(table, slot->table[kind], last * sizeof *table);
        table[last] = spare;
        eng->rows[kind][row] = (struct weft_attn_row){table, pos, 0};
        if (pos % slots->block_size > 0)
            c->copies[c->n_copies++] =
                (struct weft_step_copy){slot->table[kind][last], spare, kind};
    }
    c->slots[row] = slot_idx;
    c->candidates[row] = candidate;
    c->spans[row] = (struct wefti_forward_span){row, 1};
    eng->tokens[row] = slot->contrast->candidates[candidate].token;
    eng->last_rows[row] = row;
    eng->is_second[row] = false;
    eng->is_long[row] = slot->n_prompt > eng->long_prompt;
    eng->row_sets[row] = set->n > 0 ? set : NULL;
    eng->has_row_sets = eng->has_row_sets || set->n > 0;
}

/* On any compute thread; what it writes is the row's. */
static void on_hidden(void *ctx, uint32_t i, const float *hidden, uint32_t thread_idx) {
    weft_eng *eng = ctx;
    struct wefti_contrast *contrast = eng->slots.slots[eng->contrast.slots[i]].contrast;
    (void)thread_idx;
    contrast->candidates[eng->contrast.candidates[i]].cosine =
        wefti_contrast_cosine(contrast, hidden);
}

/* Computes the rows there are, and leaves none. */
static weft_err run(weft_eng *eng, struct weft_errmsg *why) {
    struct wefti_eng_contrast *c = &eng->contrast;
    struct wefti_forward_batch batch = {
        .n_tokens = c->n,
        .tokens = eng->tokens,
        .rows = {eng->rows[WEFT_KV_FULL], eng->rows[WEFT_KV_WINDOWED]},
        .is_long = eng->is_long,
        .is_second = eng->is_second,
        .n_last_rows = c->n,
        .last_rows = eng->last_rows,
        .adapters = eng->has_row_sets ? eng->row_sets : NULL,
        .n_spans = c->n,
        .spans = c->spans,
        .on_hidden = on_hidden,
        .ctx = eng,
        .n_copies = c->n_copies,
        .copies = c->copies,
    };
    weft_err err = c->n > 0 ? wefti_forward_run(eng->forward, &batch, why) : WEFT_OK;
    c->n = c->n_copies = 0;
    eng->has_row_sets = false;
    return err;
}

weft_err wefti_eng_compare(weft_eng *eng, const struct weft_step_plan *plan,
                           struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    eng->contrast.n = eng->contrast.n_copies = 0;
    eng->has_row_sets = false;
    for (uint32_t i = 0; i < plan->n_rows && !err; i++) {
        const struct wefti_contrast *contrast = eng->slots.slots[plan->rows[i].slot].contrast;
        uint32_t n = contrast ? contrast->n_candidates : 0;
        for (uint32_t k = 0; n > 1 && k < n && !err; k++) { /* of one it is known which */
            add_row(eng, plan->rows[i].slot, k);
            if (eng->contrast.n == eng->contrast.n_most) err = run(eng, why);
        }
    }
    return err ? err : run(eng, why);
}
