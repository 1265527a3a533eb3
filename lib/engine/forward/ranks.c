#include "forward/ranks.h"

#include <stdatomic.h>

#include "base/check.h"
#include "base/clock.h"
#include "collective/collective.h"
#include "forward/forward.h"

/* The figure by which ranks tell who has which experts, by their profile: the last one, as the others
 * are the workers'. */
enum { PLACEMENT = WEFT_COLL_FIGURES - 1 };

/* Tokens first, then logits, then rows of recurrent layers. */
static size_t tokens_bytes(const struct wefti_forward *f) {
    return weft_round_up(f->max_rows * sizeof *f->shared_tokens, 64);
}

static size_t part_bytes(const struct wefti_forward *f) {
    return f->max_rows * f->part_stride * sizeof(float);
}

static size_t logit_bytes(const struct wefti_forward *f) {
    return WEFTI_FORWARD_HEAD_ROWS * f->logit_stride * sizeof(float);
}

static size_t board_bytes(const struct wefti_forward *f) {
    return tokens_bytes(f) + logit_bytes(f) + f->max_rows * f->gathered_stride * sizeof(float);
}

size_t wefti_forward_rank_bytes(const struct wefti_forward *f) {
    return weft_coll_own_bytes(f->coll, part_bytes(f), board_bytes(f));
}

weft_err wefti_forward_join_ranks(struct wefti_forward *f, struct weft_errmsg *why) {
    weft_err err = weft_coll_reserve(f->coll, part_bytes(f), board_bytes(f), why);
    if (err) return err;
    uint8_t *board = weft_coll_board(f->coll);
    f->shared_tokens = (uint32_t *)(void *)board;
    f->logits = (float *)(void *)(board + tokens_bytes(f));
    f->gathered = (float *)(void *)(board + tokens_bytes(f) + logit_bytes(f));
    weft_coll_tell(f->coll, f->rank, PLACEMENT, f->weights->placement_hash);
    return WEFT_OK;
}

struct meeting {
    struct wefti_forward *forward;
    const struct weft_coll_wrote *wrote;
};

/* At the first meeting: a group of experts that two ranks have, or none, would go unnoticed. */
static void agree(struct wefti_forward *f) {
    for (uint32_t rank = 0; rank < f->n_ranks && !f->failed; rank++) {
        if (weft_coll_told(f->coll, rank, PLACEMENT) == f->weights->placement_hash) continue;
        f->failed = weft_err_set(&f->failure, WEFT_E_STATE,
                                 "the ranks of the group have different profiles of experts");
    }
    f->has_agreed = true;
}

/* By one thread, while the others wait. */
static void meet(void *ctx) {
    const struct meeting *meeting = ctx;
    struct wefti_forward *f = meeting->forward;
    uint64_t begin_ns = weft_now_ns();
    f->failed = weft_coll_meet(f->coll, f->rank, meeting->wrote, &f->failure);
    if (!f->failed && !f->has_agreed) agree(f);
    (void)atomic_fetch_add_explicit(&f->meeting_ns, weft_now_ns() - begin_ns, memory_order_relaxed);
}

uint64_t wefti_forward_meeting_ns(const struct wefti_forward *f) {
    return atomic_load_explicit(&f->meeting_ns, memory_order_relaxed);
}

static bool share(const struct wefti_forward_thread *thread, const struct weft_coll_wrote *wrote) {
    struct wefti_forward *f = thread->forward;
    struct meeting meeting = {f, wrote};
    wefti_forward_mark(thread, WEFT_ENG_OP_WAIT);
    wefti_pool_barrier_with(f->pool, meet, &meeting);
    return !f->failed;
}

bool wefti_forward_share_parts(const struct wefti_forward_thread *thread, uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    const struct weft_coll_wrote wrote = {.part_bytes = n_rows * f->part_stride * sizeof(float)};
    return share(thread, &wrote);
}

bool wefti_forward_share_logits(const struct wefti_forward_thread *thread, uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    struct wefti_weights_range vocab = f->weights->vocab;
    const struct weft_coll_wrote wrote = {
        .board_at = tokens_bytes(f) + vocab.begin * sizeof(float),
        .row_bytes = (vocab.end - vocab.begin) * sizeof(float),
        .row_stride = f->logit_stride * sizeof(float),
        .n_rows = n_rows,
    };
    return share(thread, &wrote);
}

bool wefti_forward_share_tokens(const struct wefti_forward_thread *thread, uint32_t first,
                                uint32_t n) {
    const struct wefti_forward *f = thread->forward;
    const struct weft_coll_wrote wrote = {
        .board_at = first * sizeof *f->shared_tokens,
        .row_bytes = n * sizeof *f->shared_tokens,
        .n_rows = f->rank == 0,
    };
    return share(thread, &wrote);
}

bool wefti_forward_gather(const struct wefti_forward_thread *thread, struct wefti_weights_range own,
                          uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    const struct weft_coll_wrote wrote = {
        .board_at = tokens_bytes(f) + logit_bytes(f) + own.begin * sizeof(float),
        .row_bytes = (own.end - own.begin) * sizeof(float),
        .row_stride = f->gathered_stride * sizeof(float),
        .n_rows = own.end > own.begin ? n_rows : 0,
    };
    return share(thread, &wrote);
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
