/* Who may guess, and by what. */
#include "guess/guess.h"

#include "base/check.h"
#include "base/minmax.h"

/* The sampled token needs a place as well, and is computed by a later row. */
uint32_t wefti_guess_room(const struct wefti_slots *slots, const struct weft_step_row *row) {
    const struct wefti_slot *slot = &slots->slots[row->slot];
    bool reaches = slot->n_computed + row->n_tokens == slot->n_known && !slot->is_held;
    if (row->n_spec == 0 || slot->finish != WEFT_END_NONE || !reaches) return 0;
    if (!wefti_slot_may_sample(slots, slot) || slot->sampling.n_logprobs >= 0 || slot->contrast)
        return 0;
    uint32_t n_output = wefti_slot_n_output(slot);
    WEFT_ASSERT(n_output < slot->sampling.max_tokens && slot->n_known < slots->max_model_len);
    uint32_t n = weft_min_u32(row->n_spec, slot->sampling.max_tokens - n_output - 1);
    n = weft_min_u32(n, slots->max_model_len - slot->n_known - 1);
    for (uint32_t kind = 0; kind < slots->n_kinds; kind++) {
        uint64_t room = (uint64_t)slot->n_table[kind] * slots->block_size;
        WEFT_ASSERT(room >= slot->n_known); /* plan_check.c looked */
        n = (uint32_t)weft_min_u64(n, room - slot->n_known);
    }
    return n;
}

weft_err wefti_guess_all(struct wefti_slots *slots, const struct wefti_guess_sources *sources,
                         const struct weft_step_plan *plan, uint32_t *catch_up_us_out,
                         struct weft_errmsg *why) {
    uint32_t n_lines = 0;
    *catch_up_us_out = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        uint32_t idx = plan->rows[i].slot, n = wefti_guess_room(slots, &plan->rows[i]);
        struct wefti_slot *slot = &slots->slots[idx];
        slot->n_guesses = 0;
        if (n == 0) continue;
        slot->n_guesses = wefti_ngram_guess(sources->ngram, idx, slot->tokens, slot->n_known, n,
                                            slot->tokens + slot->n_known);
        if (slot->n_guesses == 0 && (sources->draft || sources->mtp))
            sources->lines[n_lines++] = (struct wefti_guess_line){.slot = idx, .n_most = n};
    }
    if (n_lines == 0) return WEFT_OK;
    if (sources->mtp) return wefti_mtp_guess(sources->mtp, slots, sources->lines, n_lines, why);
    return wefti_draft_guess(sources->draft, slots, sources->lines, n_lines, catch_up_us_out, why);
}
