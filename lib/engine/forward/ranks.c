#include "forward/ranks.h"

#include <stdatomic.h>

#include "base/check.h"
#include "base/clock.h"
#include "collective/collective.h"
#include "forward/forward.h"

/* Tokens first, then logits. */
static size_t tokens_bytes(const struct wefti_forward *f) {
    return weft_round_up(f->max_rows * sizeof *f->shared_tokens, 64);
}

static size_t part_bytes(const struct wefti_forward *f) {
    return f->max_rows * f->part_stride * sizeof(float);
}

static size_t logit_bytes(const struct wefti_forward *f) {
    return WEFTI_FORWARD_HEAD_ROWS * f->logit_stride * sizeof(float);
}

size_t wefti_forward_rank_bytes(const struct wefti_forward *f) {
    return 2 * part_bytes(f) + logit_bytes(f) / f->n_ranks;
}

weft_err wefti_forward_join_ranks(struct wefti_forward *f, struct weft_errmsg *why) {
    size_t board_bytes = tokens_bytes(f) + logit_bytes(f);
    weft_err err = weft_coll_reserve(f->coll, part_bytes(f), board_bytes, why);
    if (err) return err;
    uint8_t *board = weft_coll_board(f->coll);
    f->shared_tokens = (uint32_t *)(void *)board;
    f->logits = (float *)(void *)(board + tokens_bytes(f));
    return WEFT_OK;
}

/* By one thread, while the others wait. */
static void meet(void *ctx) {
    struct wefti_forward *f = ctx;
    uint64_t begin_ns = weft_now_ns();
    f->failed = weft_coll_meet(f->coll, f->rank, &f->failure);
    (void)atomic_fetch_add_explicit(&f->meeting_ns, weft_now_ns() - begin_ns, memory_order_relaxed);
}

uint64_t wefti_forward_meeting_ns(const struct wefti_forward *f) {
    return atomic_load_explicit(&f->meeting_ns, memory_order_relaxed);
}

bool wefti_forward_meet(const struct wefti_forward_thread *thread) {
    struct wefti_forward *f = thread->forward;
    wefti_forward_mark(thread, WEFT_ENG_OP_WAIT);
    wefti_pool_barrier_with(f->pool, meet, f);
    return !f->failed;
}

float *wefti_forward_own_part(const struct wefti_forward *f) {
    return weft_coll_part(f->coll, f->rank);
}

const float *wefti_forward_part_of(const struct wefti_forward *f, uint32_t rank, uint32_t row) {
    WEFT_ASSERT(row < f->max_rows);
    const float *part = weft_coll_part_of(f->coll, f->rank, rank);
    return part + row * f->part_stride;
}

void wefti_forward_sum_parts(const struct wefti_forward *f, const struct wefti_forward_sum *sum,
                             float *out) {
    WEFT_ASSERT(sum->row < f->max_rows && sum->at + sum->n <= f->part_stride);
    const struct weft_coll_span span = {sum->row * f->part_stride + sum->at, sum->n, sum->present};
    weft_coll_sum(f->coll, f->rank, &span, out);
}
