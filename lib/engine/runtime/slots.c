/* The sequences a worker holds: tokens, block tables, sampling parameters and how far each has come.
 * A slot's memory is address space from the start and becomes resident as tokens arrive. */
#include "runtime/slots.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "runtime/memory.h"

static void lay_out(struct wefti_slots *s, struct wefti_memory_layout *layout) {
    s->slots = wefti_memory_reserve(layout, s->n_slots, sizeof *s->slots);
    s->shadows = wefti_memory_reserve(layout, s->n_slots, sizeof *s->shadows);
    for (uint32_t i = 0; i < s->n_slots; i++) {
        struct wefti_slot slot = {
            .tokens = wefti_memory_reserve(layout, s->max_model_len, sizeof(uint32_t)),
            .stop_tokens = wefti_memory_reserve(layout, WEFT_STOP_TOKENS_MAX, sizeof(uint32_t)),
            .bias =
                wefti_memory_reserve(layout, WEFT_LOGIT_BIAS_MAX, sizeof(struct weft_logit_bias)),
            .allowed_tokens =
                wefti_memory_reserve(layout, WEFT_ALLOWED_TOKENS_MAX, sizeof(uint32_t)),
            .bad_words = wefti_memory_reserve(layout, WEFT_BAD_WORDS_MAX, sizeof(uint32_t)),
            .sum = wefti_memory_reserve(layout, s->shape.n_hidden, sizeof(double)),
            .dry_breakers = wefti_memory_reserve(layout, WEFT_DRY_BREAKERS_MAX, sizeof(uint32_t)),
        };
        for (uint32_t kind = 0; kind < s->n_kinds; kind++)
            slot.table[kind] = wefti_memory_reserve(layout, s->table_cap, sizeof(uint32_t));
        if (layout->base) s->slots[i] = slot;
    }
}

uint32_t wefti_slots_history_cap(uint32_t max_model_len) {
    return weft_max_u32(max_model_len, WEFT_SHIFTED_TOKENS_MAX);
}

/* One more than a full sequence needs: blocks are granted a step ahead. */
uint32_t wefti_slots_table_cap(const struct weft_eng_info *info) {
    return (info->max_model_len + info->block_size - 1) / info->block_size + 1;
}

static struct wefti_slots shape_of(const struct weft_eng_info *info) {
    return (struct wefti_slots){
        .n_slots = info->max_seqs,
        .max_model_len = info->max_model_len,
        .history_cap = wefti_slots_history_cap(info->max_model_len),
        .block_size = info->block_size,
        .n_kinds = info->window > 0 ? 2 : 1,
        .n_blocks = {info->n_blocks, info->n_window_blocks},
        .window = info->window,
        .shape = {.n_hidden = info->n_hidden, .n_labels = info->n_labels},
        .is_encoder = info->is_encoder,
        .is_recurrent = info->is_recurrent,
        .n_checkpoints = info->n_checkpoints,
        .n_vocab = info->n_vocab,
        .max_batched_tokens = info->max_batched_tokens,
        .table_cap = wefti_slots_table_cap(info),
    };
}

uint64_t wefti_slots_bytes(const struct weft_eng_info *info) {
    struct wefti_slots slots = shape_of(info);
    struct wefti_memory_layout layout = {0};
    lay_out(&slots, &layout);
    return layout.used + (uint64_t)slots.n_slots * slots.max_model_len * sizeof *slots.histories;
}

weft_err wefti_slots_init(struct wefti_slots *slots, const struct weft_eng_info *info,
                          struct weft_errmsg *why) {
    *slots = shape_of(info);
    struct wefti_memory_layout layout = {0};
    lay_out(slots, &layout);
    slots->map_bytes = layout.used;
    slots->map = wefti_memory_map_near(slots->map_bytes, info->home);
    slots->history_bytes = (size_t)slots->n_slots * slots->history_cap * sizeof *slots->histories;
    slots->histories = wefti_memory_map_near(slots->history_bytes, info->home);
    if (!slots->map || !slots->histories)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %u sequences of %u tokens",
                            slots->n_slots, slots->max_model_len);
    slots->kept_tokens = calloc((size_t)slots->n_checkpoints + 1, sizeof *slots->kept_tokens);
    if (!slots->kept_tokens)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %u checkpoints",
                            slots->n_checkpoints);
    layout = (struct wefti_memory_layout){.base = slots->map};
    lay_out(slots, &layout);
    for (uint32_t i = 0; i < slots->n_slots; i++)
        slots->slots[i].history = slots->histories + (size_t)i * slots->history_cap;
    return WEFT_OK;
}

void wefti_slots_lower(struct wefti_slots *slots, const struct weft_eng_info *info) {
    slots->max_model_len = info->max_model_len;
    slots->n_blocks[WEFT_KV_FULL] = info->n_blocks;
    slots->n_blocks[WEFT_KV_WINDOWED] = info->n_window_blocks;
    slots->n_checkpoints = info->n_checkpoints;
}

void wefti_slot_drop_held(struct wefti_slot *slot) {
    free(slot->held);
    slot->held = NULL;
}

static void drop_contrast(struct wefti_slot *slot) {
    wefti_contrast_free(slot->contrast);
    slot->contrast = NULL;
}

weft_err wefti_slot_prepare_contrast(struct wefti_slots *slots, const struct weft_step_start *start,
                                     struct weft_errmsg *why) {
    struct wefti_slot *slot = &slots->slots[start->slot];
    wefti_contrast_free(slot->next_contrast); /* of a plan that was refused */
    slot->next_contrast = NULL;
    if (!weft_sampling_is_contrastive(&start->sampling)) return WEFT_OK;
    uint64_t n_wanted = (uint64_t)start->n_prompt + start->sampling.max_tokens;
    uint32_t n_max = (uint32_t)weft_min_u64(n_wanted, slots->max_model_len);
    slot->next_contrast = wefti_contrast_new(n_max, slots->shape.n_hidden);
    if (slot->next_contrast) return WEFT_OK;
    return weft_err_set(why, WEFT_E_NOMEM, "no memory for the hidden states of %u tokens", n_max);
}

void wefti_slots_fini(struct wefti_slots *slots) {
    for (uint32_t i = 0; slots->map && i < slots->n_slots; i++) {
        wefti_slot_drop_held(&slots->slots[i]);
        drop_contrast(&slots->slots[i]);
        wefti_contrast_free(slots->slots[i].next_contrast);
    }
    wefti_memory_unmap(slots->map, slots->map_bytes);
    wefti_memory_unmap(slots->histories, slots->history_bytes);
    free(slots->kept_tokens);
    *slots = (struct wefti_slots){0};
}

void wefti_slots_clear(struct wefti_slots *slots) {
    for (uint32_t i = 0; i < slots->n_slots; i++) {
        slots->slots[i].used = false;
        wefti_slot_drop_held(&slots->slots[i]);
        drop_contrast(&slots->slots[i]);
        slots->slots[i].gen_known = false; /* a new epoch counts generations anew */
    }
    memset(slots->kept_tokens, 0, slots->n_checkpoints * sizeof *slots->kept_tokens);
}

static bool is_stop_token(const struct weft_sampling *sampling, uint32_t token) {
    for (uint32_t i = 0; i < sampling->n_stop_tokens; i++) {
        if (sampling->stop_tokens[i] == token) return true;
    }
    return false;
}

enum weft_end wefti_slot_finish(const struct weft_sampling *sampling, uint32_t n_output,
                                uint32_t last, uint32_t n_known, uint32_t max_model_len) {
    if (n_output == 0) return WEFT_END_NONE; /* the prompt is to be computed in any case */
    if (n_output >= sampling->min_tokens && is_stop_token(sampling, last)) return WEFT_END_STOP;
    if (n_output >= sampling->max_tokens || n_known >= max_model_len) return WEFT_END_LENGTH;
    return WEFT_END_NONE;
}

/* All of a start's tokens, and those that have a place. */
static void take_tokens(struct wefti_slot *slot, const struct weft_step_start *start) {
    uint32_t n_before = start->n_dropped > 0 ? start->n_keep : 0;
    uint32_t n_first = n_before + start->n_dropped; /* of those behind what was dropped */
    slot->n_dropped = start->n_dropped;
    slot->n_known = start->n_tokens - start->n_dropped;
    memcpy(slot->tokens, start->tokens, (size_t)n_before * sizeof *slot->tokens);
    memcpy(slot->tokens + n_before, start->tokens + n_first,
           (size_t)(start->n_tokens - n_first) * sizeof *slot->tokens);
    if (start->n_dropped > 0)
        memcpy(slot->history, start->tokens, (size_t)start->n_tokens * sizeof *slot->history);
}

static enum weft_end finish_of(const struct wefti_slots *slots, const struct wefti_slot *slot) {
    return wefti_slot_finish(&slot->sampling, wefti_slot_n_output(slot),
                             slot->tokens[slot->n_known - 1], slot->n_known, slots->max_model_len);
}

void wefti_slot_start(struct wefti_slots *slots, const struct weft_step_start *start) {
    struct wefti_slot *slot = &slots->slots[start->slot];
    const struct weft_sampling *from = &start->sampling;
    WEFT_ASSERT(!slot->used && start->n_tokens - start->n_dropped <= slots->max_model_len);
    slot->used = slot->gen_known = true;
    slot->gen = start->gen;
    slot->choice = start->choice;
    slot->n_prompt = start->n_prompt;
    slot->n_computed = start->n_cached;
    slot->n_written = start->n_written;
    slot->is_late = slot->is_held = false;
    WEFT_ASSERT(!slot->contrast);
    slot->contrast = slot->next_contrast;
    slot->next_contrast = NULL;
    slot->n_table[WEFT_KV_FULL] = 0;
    slot->n_table[WEFT_KV_WINDOWED] = start->n_window_skipped;
    if (start->n_window_skipped > 0) /* attention finds the tile that it then masks out */
        memset(slot->table[WEFT_KV_WINDOWED], 0, start->n_window_skipped * sizeof(uint32_t));
    slot->n_prompt_logprobs_done = start->n_prompt_logprobs_done;
    take_tokens(slot, start);
    slot->sampling = *from;
    slot->sampling.stop_tokens = slot->stop_tokens;
    slot->sampling.bias = slot->bias;
    slot->sampling.grammar.text = NULL;
    if (from->n_stop_tokens)
        memcpy(slot->stop_tokens, from->stop_tokens, from->n_stop_tokens * sizeof(uint32_t));
    slot->sampling.masked_tokens = slot->stop_tokens + from->n_stop_tokens;
    if (from->n_masked_tokens)
        memcpy(slot->stop_tokens + from->n_stop_tokens, from->masked_tokens,
               from->n_masked_tokens * sizeof(uint32_t));
    if (from->n_bias) memcpy(slot->bias, from->bias, from->n_bias * sizeof *from->bias);
    slot->sampling.allowed_tokens = slot->allowed_tokens;
    if (from->n_allowed_tokens)
        memcpy(slot->allowed_tokens, from->allowed_tokens,
               from->n_allowed_tokens * sizeof(uint32_t));
    slot->sampling.bad_words = slot->bad_words;
    if (from->n_bad_words)
        memcpy(slot->bad_words, from->bad_words, from->n_bad_words * sizeof(uint32_t));
    slot->pooling = start->pooling;
    slot->n_values = weft_pooling_n_values(&start->pooling, &slots->shape);
    if (slot->n_values > 0) memset(slot->sum, 0, slots->shape.n_hidden * sizeof *slot->sum);
    slot->sampling.dry_breakers = slot->dry_breakers;
    if (from->n_dry_breakers)
        memcpy(slot->dry_breakers, from->dry_breakers, from->n_dry_breakers * sizeof(uint32_t));
    slot->sampler_state =
        start->n_tokens > start->n_prompt ? start->sampler_state : weft_sampling_first_state(from);
    slot->finish = finish_of(slots, slot);
}

void wefti_slot_grant(struct wefti_slots *slots, const struct weft_step_grant *grant) {
    struct wefti_slot *slot = &slots->slots[grant->slot];
    WEFT_ASSERT(slot->used && grant->kind < slots->n_kinds);
    uint32_t *n_table = &slot->n_table[grant->kind];
    WEFT_ASSERT(grant->n_blocks <= slots->table_cap - *n_table);
    if (grant->n_blocks == 0) return;
    memcpy(slot->table[grant->kind] + *n_table, grant->blocks, grant->n_blocks * sizeof(uint32_t));
    *n_table += grant->n_blocks;
}

void wefti_slot_release(struct wefti_slots *slots, const struct weft_step_release *release) {
    struct wefti_slot *slot = &slots->slots[release->slot];
    WEFT_ASSERT(slot->used && slot->gen == release->gen);
    slot->used = false;
    wefti_slot_drop_held(slot);
    drop_contrast(slot);
}

bool wefti_slot_may_sample(const struct wefti_slots *slots, const struct wefti_slot *slot) {
    return slot->sampling.max_tokens > 0 && slot->n_known < slots->max_model_len;
}

struct weft_step_seq wefti_slot_seq(const struct wefti_slots *slots,
                                    const struct wefti_slot *slot) {
    return (struct weft_step_seq){
        .sampling = &slot->sampling,
        .n_vocab = slots->n_vocab,
        .n_values = slot->n_values,
        .n_prompt = slot->n_prompt,
        .n_prompt_logprobs_done = slot->n_prompt_logprobs_done,
        .n_known = slot->n_known,
        .n_computed = slot->n_computed - slot->is_held, /* its next row stands for the last token */
    };
}

void wefti_slot_append(struct wefti_slots *slots, struct wefti_slot *slot, uint32_t token) {
    WEFT_ASSERT(slot->finish == WEFT_END_NONE && slot->n_known < slots->max_model_len);
    WEFT_ASSERT(token < slots->n_vocab);
    if (slot->n_dropped > 0) {
        WEFT_ASSERT(slot->n_known + slot->n_dropped < slots->history_cap);
        slot->history[slot->n_known + slot->n_dropped] = token;
    }
    slot->tokens[slot->n_known++] = token;
    slot->finish = finish_of(slots, slot);
}

struct weft_step_span wefti_slot_pooled(const struct wefti_slot *slot, uint32_t n_tokens) {
    struct weft_step_span read = {0, 0}, next = {slot->n_computed, slot->n_computed + n_tokens};
    switch (slot->pooling.kind) {
    case WEFT_POOLING_LAST:
        read = (struct weft_step_span){slot->n_prompt - 1, slot->n_prompt};
        break;
    case WEFT_POOLING_MEAN:
        read = (struct weft_step_span){0, slot->n_prompt};
        break;
    case WEFT_POOLING_CLS:
    case WEFT_POOLING_CLASSIFY:
        read = (struct weft_step_span){0, 1};
        break;
    default:
        return read;
    }
    read.begin = weft_max_u32(read.begin, next.begin);
    read.end = weft_max_u32(read.begin, weft_min_u32(read.end, next.end));
    return read;
}

/* Position by position, so that no chunk changes a bit. */
void wefti_slot_pool(struct wefti_slot *slot, const float *hidden, uint32_t n_hidden) {
    for (uint32_t i = 0; i < n_hidden; i++)
        slot->sum[i] += (double)hidden[i];
}

void wefti_slot_write_values(const struct wefti_slot *slot) {
    /* They are no sums. */
    if (slot->pooling.kind == WEFT_POOLING_TOKENS || slot->pooling.kind == WEFT_POOLING_CLASSIFY)
        return;
    double n = slot->pooling.kind == WEFT_POOLING_MEAN ? slot->n_prompt : 1;
    for (uint32_t i = 0; i < slot->n_values; i++)
        slot->values[i] = (float)(slot->sum[i] / n);
}
