#include "base/step.h"

#include "base/check.h"
#include "base/minmax.h"

/* Bytes of one entry, which lists at most the vocabulary; 0: none is wanted. */
static uint64_t entry_bytes(int32_t n_asked, uint32_t n_vocab) {
    if (n_asked < 0) return 0;
    uint64_t n_top = weft_min_u32((uint32_t)n_asked, n_vocab);
    return WEFT_LOGPROB_HEAD_BYTES + WEFT_LOGPROB_TOP_BYTES * n_top;
}

/* The row ends with a new token, or the values, if it reaches the last known one. */
static uint64_t sample_bytes(const struct weft_step_seq *seq, uint32_t n_tokens) {
    if (n_tokens == 0 || n_tokens != seq->n_known - seq->n_computed) return 0;
    if (seq->sampling->max_tokens == 0) return sizeof(float) * (uint64_t)seq->n_values;
    return entry_bytes(seq->sampling->n_logprobs, seq->n_vocab);
}

struct weft_step_span weft_step_prompt_span(const struct weft_step_seq *seq, uint32_t n_tokens) {
    struct weft_step_span span = {0, 0};
    WEFT_ASSERT(seq->n_computed <= seq->n_known && n_tokens <= seq->n_known - seq->n_computed);
    if (seq->sampling->n_prompt_logprobs < 0) return span;
    span.begin = weft_max_u32(weft_max_u32(seq->n_prompt_logprobs_done, 1), seq->n_computed + 1);
    span.end =
        weft_max_u32(span.begin, weft_min_u32(seq->n_prompt, seq->n_computed + n_tokens + 1));
    return span;
}

uint64_t weft_step_logprob_bytes(const struct weft_step_seq *seq, uint32_t n_tokens) {
    struct weft_step_span span = weft_step_prompt_span(seq, n_tokens);
    return (span.end - span.begin) * entry_bytes(seq->sampling->n_prompt_logprobs, seq->n_vocab) +
           sample_bytes(seq, n_tokens);
}

uint32_t weft_step_tokens_within(const struct weft_step_seq *seq, uint32_t n_tokens,
                                 uint64_t room_bytes) {
    struct weft_step_span span = weft_step_prompt_span(seq, n_tokens);
    uint64_t each = entry_bytes(seq->sampling->n_prompt_logprobs, seq->n_vocab);
    uint32_t n_entries = span.end - span.begin;
    if (n_entries > 0 && n_entries > room_bytes / each) {
        /* Tokens before the span are free; then one entry each. */
        return span.begin - 1 - seq->n_computed + (uint32_t)(room_bytes / each);
    }
    bool sample_fits = sample_bytes(seq, n_tokens) <= room_bytes - n_entries * each;
    return sample_fits ? n_tokens : n_tokens - 1;
}
