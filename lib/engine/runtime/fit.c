#include "runtime/fit.h"

#include <stdio.h>
#include <string.h>

#include "base/minmax.h"
#include "base/parse.h"

#define LORA_BYTES_MIN (64u << 20) /* small adapters find room beside the largest cache */
/* Adapters have one part. The other two are for the file of one that is read, in f32 mostly, whose values are
 * packed as bf16. */
#define LORA_FILE_PARTS 3
/* Bytes of a token's text and of the tables that find it: measured at 4096 to 128256 tokens, rounded up. */
#define VOCAB_TOKEN_BYTES 1024u
#define STEPS_MAX                                                                                  \
    1000 /* towards a limit that does; where parts of it are most of it, they are small */

/* --------------------------------------------------------------------------------- the sum --- */

uint64_t weft_eng_limit_term_bytes(const struct weft_eng_limit_term *term, uint64_t limit_bytes) {
    if (term->part == 0) return term->least_bytes;
    return weft_max_u64(weft_min_u64(limit_bytes / term->part, term->most_bytes),
                        term->least_bytes);
}

uint64_t wefti_fit_beside(const struct weft_eng_limit *limit) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < limit->n_terms; i++)
        sum += limit->terms[i].n * weft_eng_limit_term_bytes(&limit->terms[i], limit->bytes);
    return sum;
}

uint64_t wefti_fit_requests(const struct weft_eng_limit *limit) {
    for (uint32_t i = 0; i < limit->n_terms; i++) {
        if (!strcmp(limit->terms[i].name, WEFT_ENG_LIMIT_REQUESTS))
            return weft_eng_limit_term_bytes(&limit->terms[i], limit->bytes);
    }
    return 0;
}

static uint64_t for_each(const struct weft_eng_loading *loading) {
    return loading->draft_bytes + loading->state_bytes + loading->kv_bytes + loading->scratch_bytes;
}

static bool is_limited(const struct weft_eng_loading *loading) {
    return loading->limit.bytes > 0;
}

/* All of it, there or to come. */
static uint64_t sum_of(const struct weft_eng_loading *loading) {
    uint64_t sum = loading->n_sharers * for_each(loading);
    if (!loading->is_page_cache || is_limited(loading))
        sum += loading->n_copies * loading->weight_bytes;
    if (!is_limited(loading)) return sum;
    return sum + loading->n_sharers * (loading->lora_bytes + loading->vocab_bytes) +
           wefti_fit_beside(&loading->limit);
}

/* The same engines under another limit. The cache stays as it is: given, or the least that there may be. */
static struct weft_eng_loading under(const struct weft_eng_loading *loading, uint64_t limit_bytes) {
    const struct weft_eng_follows *follows = &loading->follows;
    struct weft_eng_loading at = *loading;
    at.limit.bytes = limit_bytes;
    at.scratch_bytes =
        follows->scratch_bytes + weft_min_u64(follows->answer_bytes, wefti_fit_requests(&at.limit));
    if (limit_bytes >= follows->contrast_from_bytes) at.scratch_bytes += follows->contrast_bytes;
    if (follows->has_loras)
        at.lora_bytes = wefti_fit_lora_need(wefti_fit_lora_bytes_within(limit_bytes));
    return at;
}

/* The least limit that would do, as people write one; and what there is under it. Some terms are parts of the
 * limit, so a higher one needs more: each step asks for what the last one lacked. */
static uint64_t least_limit(const struct weft_eng_loading *loading, struct weft_eng_loading *at) {
    uint64_t limit_bytes = loading->limit.bytes;
    *at = *loading;
    for (uint32_t step = 0; step < STEPS_MAX && sum_of(at) > limit_bytes; step++) {
        limit_bytes = weft_size_up(sum_of(at));
        *at = under(loading, limit_bytes);
    }
    return limit_bytes;
}

/* ------------------------------------------------------------------------------- sentences --- */

/* A text that grows as long as there is room. */
struct text {
    char *at;
    size_t len, cap;
};

static void add_term(struct text *text, const char *name, uint32_t n, uint64_t bytes) {
    char size[WEFT_SIZE_TEXT_BYTES], times[24] = "";
    if (bytes == 0 || text->len >= text->cap) return;
    if (n > 1) (void)snprintf(times, sizeof times, "%u x ", n);
    int len = snprintf(text->at + text->len, text->cap - text->len, "%s%s %s%s",
                       text->at[text->len - 1] == '(' ? "" : ", ", name, times,
                       weft_size_text(bytes, size));
    text->len += len > 0 ? (size_t)len : 0;
}

/* `sum_bytes`: what all terms are together, or what they are rounded up to. */
static const char *need_text(const struct weft_eng_loading *loading, uint64_t sum_bytes,
                             char out[WEFT_ENG_NEED_TEXT_BYTES]) {
    char all[WEFT_SIZE_TEXT_BYTES];
    uint32_t n = loading->n_sharers;
    struct text text = {out, 0, WEFT_ENG_NEED_TEXT_BYTES};
    text.len = (size_t)snprintf(out, text.cap, "%s (", weft_size_text(sum_bytes, all));
    add_term(&text, "weights", loading->n_copies, loading->weight_bytes);
    if (loading->is_page_cache && !is_limited(loading))
        text.len += (size_t)snprintf(out + text.len, text.cap - text.len,
                                     " in the page cache, which do not count");
    add_term(&text, "draft", n, loading->draft_bytes);
    add_term(&text, "states", n, loading->state_bytes);
    add_term(&text, "KV cache", n, loading->kv_bytes);
    add_term(&text, "scratch", n, loading->scratch_bytes);
    if (is_limited(loading)) {
        add_term(&text, "adapters", n, loading->lora_bytes);
        add_term(&text, "vocabulary", n, loading->vocab_bytes);
    }
    for (uint32_t i = 0; is_limited(loading) && i < loading->limit.n_terms; i++) {
        const struct weft_eng_limit_term *term = &loading->limit.terms[i];
        add_term(&text, term->name, term->n, weft_eng_limit_term_bytes(term, loading->limit.bytes));
    }
    if (text.len < text.cap) (void)snprintf(out + text.len, text.cap - text.len, ")");
    return out;
}

const char *weft_eng_need_text(const struct weft_eng_loading *loading,
                               char out[WEFT_ENG_NEED_TEXT_BYTES]) {
    return need_text(loading, sum_of(loading), out);
}

static const char *what_helps_states(const struct weft_eng_loading *loading) {
    return loading->has_many_checkpoints ? "fewer kept states (--state-checkpoints)"
                                         : "fewer sequences at once (--max-num-seqs)";
}

weft_err wefti_fit_check(const struct weft_eng_loading *loading, uint64_t to_come,
                         const struct weft_mem_room *room, struct weft_errmsg *why) {
    uint32_t n = to_come > 0 ? loading->n_sharers : 1;
    if (room->limit_bytes == 0 || to_come + n * for_each(loading) <= room->most_bytes)
        return WEFT_OK;
    char need[WEFT_ENG_NEED_TEXT_BYTES], limit[WEFT_SIZE_TEXT_BYTES], left[WEFT_SIZE_TEXT_BYTES];
    const char *fewer = loading->fewer_bits;
    const bool are_states = loading->state_bytes > loading->kv_bytes;
    const char *helps =
        are_states ? what_helps_states(loading)
                   : "a smaller cache (--kv-memory) or shorter sequences (--max-model-len)";
    const char *between = !fewer ? "" : are_states ? " or " : ", ";
    return weft_err_set(
        why, WEFT_E_NOMEM,
        "%s needs %s, the limit is %s (%s), of which %s can be had: %s%s%s need less",
        loading->model_name, weft_eng_need_text(loading, need),
        weft_size_text(room->limit_bytes, limit),
        room->is_cgroup ? "of the control group" : "what the machine has",
        weft_size_text(room->most_bytes, left), fewer ? fewer : "", between, helps);
}

static const char *what_helps_cache(const struct weft_eng_loading *loading) {
    if (loading->is_kv_given) return "a smaller cache (--kv-memory)";
    return loading->is_kv_least ? "shorter sequences (--max-model-len)"
                                : "shorter sequences (--max-model-len) or --kv-dtype int8";
}

/* By the largest term that some setting makes less. */
static void find_what_helps(const struct weft_eng_loading *loading, char *out, size_t out_bytes) {
    const struct {
        uint64_t bytes;
        const char *text;
    } terms[] = {
        {loading->n_copies * loading->weight_bytes,
         loading->fewer_bits ? loading->fewer_bits : "a model file of fewer bits"},
        {loading->n_sharers * loading->state_bytes, what_helps_states(loading)},
        {loading->n_sharers * loading->kv_bytes, what_helps_cache(loading)},
        {loading->n_sharers * loading->scratch_bytes,
         "less scratch (--threads, --max-model-len, --max-num-batched-tokens, --max-num-seqs)"},
        {loading->n_sharers * loading->lora_bytes,
         "fewer adapters (--max-lora-memory, --max-loras)"},
    };
    size_t most = 0;
    for (size_t i = 1; i < sizeof terms / sizeof *terms; i++) {
        if (terms[i].bytes > terms[most].bytes) most = i;
    }
    uint64_t most_bytes = terms[most].bytes;
    (void)snprintf(out, out_bytes, "%s", terms[most].text);
    for (uint32_t i = 0; i < loading->limit.n_terms; i++) {
        const struct weft_eng_limit_term *term = &loading->limit.terms[i];
        uint64_t bytes = term->n * weft_eng_limit_term_bytes(term, loading->limit.bytes);
        if (!term->flag[0] || bytes <= most_bytes) continue;
        most_bytes = bytes;
        (void)snprintf(out, out_bytes, "less for %s (%s)", term->name, term->flag);
    }
}

weft_err wefti_fit_check_limit(const struct weft_eng_loading *loading, struct weft_errmsg *why) {
    char need[WEFT_ENG_NEED_TEXT_BYTES], limit[WEFT_SIZE_TEXT_BYTES], helps[112];
    if (!is_limited(loading) || sum_of(loading) <= loading->limit.bytes) return WEFT_OK;
    struct weft_eng_loading at;
    uint64_t least_bytes = least_limit(loading, &at);
    find_what_helps(&at, helps, sizeof helps);
    return weft_err_set(why, WEFT_E_NOMEM, "%s needs %s, --memory-limit is %s: %s would help most",
                        loading->model_name, need_text(&at, least_bytes, need),
                        weft_size_text(loading->limit.bytes, limit), helps);
}

/* ------------------------------------------------------------------- adapters and vocabulary --- */

uint64_t wefti_fit_lora_need(uint64_t lora_bytes) {
    return LORA_FILE_PARTS * lora_bytes;
}

uint64_t wefti_fit_lora_bytes_within(uint64_t limit_bytes) {
    return weft_min_u64(limit_bytes / 96, LORA_BYTES_MIN);
}

uint64_t wefti_fit_vocab_bytes(uint32_t n_vocab) {
    return (uint64_t)n_vocab * VOCAB_TOKEN_BYTES;
}

uint64_t wefti_fit_lora_bytes(const struct weft_eng_loading *loading) {
    if (loading->limit_bytes == 0) return UINT64_MAX;
    uint64_t taken =
        loading->n_copies * loading->weight_bytes + loading->n_sharers * for_each(loading);
    uint64_t left = loading->limit_bytes > taken ? loading->limit_bytes - taken : 0;
    return weft_max_u64(left / LORA_FILE_PARTS / loading->n_sharers, LORA_BYTES_MIN);
}
