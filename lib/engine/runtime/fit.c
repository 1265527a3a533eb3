#include "runtime/fit.h"

#include <stdio.h>

#include "base/minmax.h"
#include "base/parse.h"

#define LORA_BYTES_MIN (64u << 20) /* small adapters find room beside the largest cache */

static uint64_t for_each(const struct weft_eng_loading *loading) {
    return loading->draft_bytes + loading->kv_bytes + loading->scratch_bytes;
}

const char *weft_eng_need_text(const struct weft_eng_loading *loading,
                               char out[WEFT_ENG_NEED_TEXT_BYTES]) {
    char all[WEFT_SIZE_TEXT_BYTES], weights[WEFT_SIZE_TEXT_BYTES], kv[WEFT_SIZE_TEXT_BYTES],
        scratch[WEFT_SIZE_TEXT_BYTES], times[24] = "", copies[24] = "", draft[48] = "",
                                       draft_size[WEFT_SIZE_TEXT_BYTES];
    uint64_t sum = loading->n_sharers * for_each(loading);
    if (!loading->is_page_cache) sum += loading->n_copies * loading->weight_bytes;
    if (loading->n_copies > 1) (void)snprintf(copies, sizeof copies, "%u x ", loading->n_copies);
    if (loading->n_sharers > 1) (void)snprintf(times, sizeof times, "%u x ", loading->n_sharers);
    if (loading->draft_bytes > 0)
        (void)snprintf(draft, sizeof draft, "draft %s%s, ", times,
                       weft_size_text(loading->draft_bytes, draft_size));
    (void)snprintf(out, WEFT_ENG_NEED_TEXT_BYTES,
                   "%s (weights %s%s%s, %sKV cache %s%s, scratch %s%s)", weft_size_text(sum, all),
                   copies, weft_size_text(loading->weight_bytes, weights),
                   loading->is_page_cache ? " in the page cache, which do not count" : "", draft,
                   times, weft_size_text(loading->kv_bytes, kv), times,
                   weft_size_text(loading->scratch_bytes, scratch));
    return out;
}

weft_err wefti_fit_check(const struct weft_eng_loading *loading, uint64_t to_come,
                         const struct weft_mem_room *room, struct weft_errmsg *why) {
    uint32_t n = to_come > 0 ? loading->n_sharers : 1;
    if (room->limit_bytes == 0 || to_come + n * for_each(loading) <= room->most_bytes)
        return WEFT_OK;
    char need[WEFT_ENG_NEED_TEXT_BYTES], limit[WEFT_SIZE_TEXT_BYTES], left[WEFT_SIZE_TEXT_BYTES];
    return weft_err_set(
        why, WEFT_E_NOMEM,
        "%s needs %s, the limit is %s (%s), of which %s can be had: fewer bits (--dtype q8 or q4), "
        "a smaller cache (--kv-memory) or shorter sequences (--max-model-len) need less",
        loading->model_name, weft_eng_need_text(loading, need),
        weft_size_text(room->limit_bytes, limit),
        room->is_cgroup ? "of the control group" : "what the machine has",
        weft_size_text(room->most_bytes, left));
}

/* The other two thirds are for the file of one that is read, in f32 mostly, whose values are packed as
 * bf16. */
uint64_t wefti_fit_lora_bytes(const struct weft_eng_loading *loading) {
    if (loading->limit_bytes == 0) return UINT64_MAX;
    uint64_t taken =
        loading->n_copies * loading->weight_bytes + loading->n_sharers * for_each(loading);
    uint64_t left = loading->limit_bytes > taken ? loading->limit_bytes - taken : 0;
    return weft_max_u64(left / 3 / loading->n_sharers, LORA_BYTES_MIN);
}
