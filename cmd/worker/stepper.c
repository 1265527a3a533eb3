#include "stepper.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "base/ring.h"
#include "base/thread.h"
#include "join.h"

/* Every slot but a free one may wait as a plan, one job may copy counts, one may remove an adapter, and
 * nearly as many epochs as there are slots may begin meanwhile. */
#define N_JOBS (2 * WEFTI_STEPPER_SLOTS)

struct job {
    struct wefti_slot *slot; /* NULL: another kind of job */
    uint64_t *counts;        /* where to copy the experts' counts; NULL: */
    bool removes_lora;       /* the adapter `id`; else reset to the epoch `id` */
    uint64_t id;
};

struct wefti_stepper {
    const char *path;
    struct weft_eng_options options;
    const struct wefti_group *group;

    /* Control's. */
    struct wefti_slot slots[WEFTI_STEPPER_SLOTS];
    struct wefti_slot *free_slots[WEFTI_STEPPER_SLOTS];
    uint32_t n_free;
    pthread_t thread;

    /* Between the two. */
    struct weft_ring jobs; /* struct job, control to stepper */
    struct weft_ring done; /* struct wefti_slot *, stepper to control */
    sem_t wake;            /* one post per job, and one to stop */
    int done_fd;
    _Atomic bool stopping;
    _Atomic bool is_counting; /* release by the stepper after its copy, acquire by control */
    _Atomic bool is_removing; /* likewise */
    _Atomic uint64_t
        epoch; /* the latest one control asked for: spares running what nobody awaits */
    /* Release by the stepper after writing what control reads from then on: `eng` and `info`, or
     * `why`. */
    _Atomic int engine_state;
    _Atomic bool is_over;     /* likewise, of over_why */
    _Atomic uint64_t n_steps; /* for control to know, no more */

    /* The stepper's, but for the above. */
    weft_eng *eng;
    struct weft_eng_info info;
    uint32_t n_spill_blocks_max; /* what all ranks have */
    weft_err over_err;
    struct weft_errmsg why, over_why;
    uint64_t step_end_ns;  /* 0: nothing ran yet in this epoch */
    struct weft_buf taken; /* by a rank that does not lead */
};

/* ------------------------------------------------------------------------------- the thread --- */

static void wake_control(wefti_stepper *st) {
    uint64_t one = 1;
    ssize_t n = write(st->done_fd, &one, sizeof one);
    (void)n; /* fails only if the counter is full, and then control is awake anyway */
}

static uint32_t to_us(uint64_t ns) {
    uint64_t us = ns / 1000u;
    return us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static bool has_group(const wefti_stepper *st) {
    return st->group->coll != NULL;
}

/* What a rank hears when another one has ended the group. */
static bool is_of_group(weft_err err) {
    return err == WEFT_E_CLOSED || err == WEFT_E_TIMEOUT;
}

/* Any failure: the others may be in the midst of what this one cannot do. */
static void end_group(wefti_stepper *st, weft_err err, const struct weft_errmsg *why) {
    if (!atomic_load_explicit(&st->is_over, memory_order_relaxed)) {
        st->over_err = is_of_group(err) ? WEFT_E_CLOSED : WEFT_E_STATE;
        st->over_why = *why;
        atomic_store_explicit(&st->is_over, true, memory_order_release);
    }
    weft_coll_abort(st->group->coll); /* control, which sees that, must find the reason */
    wake_control(st);
}

static bool is_over(const wefti_stepper *st) {
    return atomic_load_explicit(&st->is_over, memory_order_relaxed);
}

static weft_err compute(wefti_stepper *st, const struct weft_step_plan *plan,
                        const struct weft_step_result **result_out, struct weft_errmsg *why) {
    weft_err err = weft_eng_step(st->eng, plan, result_out, why);
    if (err && has_group(st)) end_group(st, err, why);
    if (!err) (void)atomic_fetch_add_explicit(&st->n_steps, 1, memory_order_relaxed);
    return err;
}

static weft_err give(wefti_stepper *st, struct wefti_slot *slot) {
    if (!has_group(st)) return WEFT_OK;
    weft_err err = weft_coll_give(st->group->coll, slot->bytes.data, slot->bytes.len, &slot->why);
    if (err) end_group(st, err, &slot->why);
    return err;
}

static void run_plan(wefti_stepper *st, struct wefti_slot *slot) {
    if (slot->epoch != atomic_load_explicit(&st->epoch, memory_order_relaxed)) {
        slot->err = weft_err_set(&slot->why, WEFT_E_STATE, "the plan's epoch is over");
        return;
    }
    const struct weft_step_result *result = NULL;
    uint64_t start_ns = weft_now_ns();
    slot->err = give(st, slot);
    if (!slot->err) slot->err = compute(st, &slot->msg.plan, &result, &slot->why);
    uint64_t end_ns = weft_now_ns();
    if (slot->err) return;
    struct weft_msg msg = {.type = WEFT_MSG_RESULT, .result = *result};
    msg.result.busy_us = to_us(end_ns - start_ns);
    msg.result.idle_us = st->step_end_ns ? to_us(start_ns - st->step_end_ns) : 0;
    st->step_end_ns = end_ns;
    weft_buf_clear(&slot->result);
    weft_proto_encode(&msg, &slot->result);
    if (slot->result.failed) {
        slot->err =
            weft_err_set(&slot->why, WEFT_E_TOOBIG, "the step's result does not fit a message");
    }
}

static void copy_counts(wefti_stepper *st, uint64_t *counts_out) {
    const struct weft_eng_info *info = weft_eng_info(st->eng);
    const uint64_t *counts = weft_eng_expert_tokens(st->eng);
    WEFT_ASSERT(counts);
    memcpy(counts_out, counts, (size_t)info->n_layers * info->n_experts * sizeof *counts);
    atomic_store_explicit(&st->is_counting, false, memory_order_release);
    wake_control(st);
}

/* What control asks of a worker that leads, or is alone. */
static void serve_jobs(wefti_stepper *st) {
    for (;;) {
        while (sem_wait(&st->wake) != 0) {
            WEFT_ASSERT(errno == EINTR);
        }
        if (atomic_load_explicit(&st->stopping, memory_order_acquire)) return;
        struct job job;
        bool popped = weft_ring_pop(&st->jobs, &job);
        WEFT_ASSERT(popped);
        if (job.counts) {
            copy_counts(st, job.counts);
            continue;
        }
        if (job.removes_lora) {
            weft_eng_remove_lora(st->eng, job.id);
            atomic_store_explicit(&st->is_removing, false, memory_order_release);
            wake_control(st);
            continue;
        }
        if (!job.slot) {
            weft_eng_reset(st->eng, job.id);
            st->step_end_ns = 0;
            continue;
        }
        run_plan(st, job.slot);
        bool pushed = weft_ring_push(&st->done, &job.slot);
        WEFT_ASSERT(pushed); /* it has room for every slot */
        wake_control(st);
    }
}

/* Rank 0 begins anew in whichever epoch a scheduler says, which may be a lower one, if its clock went
 * back: an epoch's first plan is step 0. */
static weft_err run_taken(wefti_stepper *st, struct wefti_slot *slot, struct weft_errmsg *why) {
    const struct weft_step_result *result = NULL;
    weft_err err = weft_proto_decode(slot->decoder, st->taken.data, st->taken.len, &slot->msg, why);
    if (!err && slot->msg.type != WEFT_MSG_PLAN)
        err = weft_err_set(why, WEFT_E_PROTO, "rank 0 gave a %s",
                           weft_proto_type_name(slot->msg.type));
    if (err) return err;
    if (slot->msg.plan.step == 0) weft_eng_reset(st->eng, slot->msg.plan.epoch);
    return compute(st, &slot->msg.plan, &result, why);
}

/* Does what rank 0 gives, until the group is over. */
static void follow(wefti_stepper *st) {
    struct weft_errmsg why = {""};
    while (!is_over(st)) {
        weft_err err = weft_coll_take(st->group->coll, st->group->rank, &st->taken, &why);
        if (!err) err = run_taken(st, &st->slots[0], &why);
        if (err) end_group(st, err, &why);
        if (atomic_load_explicit(&st->n_steps, memory_order_relaxed) == 1) wake_control(st);
    }
}

static weft_err open_engine(wefti_stepper *st) {
    weft_err err = weft_eng_open(st->path, &st->options, &st->eng, &st->why);
    if (err) return err;
    st->info = *weft_eng_info(st->eng);
    st->n_spill_blocks_max = weft_eng_n_spill_blocks(st->eng);
    if (!has_group(st)) return WEFT_OK;
    err = wefti_group_agree(st->group, &st->info, &st->n_spill_blocks_max, &st->why);
    if (err) return err;
    weft_eng_lower(st->eng, &st->info);
    st->info = *weft_eng_info(st->eng);
    return WEFT_OK;
}

static void await_stop(wefti_stepper *st) {
    while (!atomic_load_explicit(&st->stopping, memory_order_acquire))
        (void)sem_wait(&st->wake);
}

static void *stepper_main(void *arg) {
    wefti_stepper *st = arg;
    bool has_joined = false;
    weft_err err = WEFT_OK;
    if (has_group(st)) {
        err = weft_coll_join(st->group->coll, st->group->rank, &st->why);
        has_joined = !err;
    }
    if (!err) err = open_engine(st);
    /* Opening meets the others as well: whoever hears of their end is not its cause. */
    if (has_group(st) && is_of_group(err)) end_group(st, err, &st->why);
    atomic_store_explicit(&st->engine_state, err ? WEFTI_ENGINE_FAILED : WEFTI_ENGINE_OPEN,
                          memory_order_release);
    wake_control(st);
    if (!err && !wefti_group_leads(st->group))
        follow(st);
    else if (!err)
        serve_jobs(st);
    if (has_joined) weft_coll_leave(st->group->coll, st->group->rank);
    if (!err) await_stop(st); /* until then control reads the engine */
    weft_eng_free(st->eng);
    return NULL;
}

/* ------------------------------------------------------------------------- start and stop --- */

static void stepper_free(wefti_stepper *st) {
    if (!st) return;
    weft_buf_fini(&st->taken);
    for (uint32_t i = 0; i < WEFTI_STEPPER_SLOTS; i++) {
        weft_buf_fini(&st->slots[i].bytes);
        weft_buf_fini(&st->slots[i].result);
        weft_proto_decoder_free(st->slots[i].decoder);
    }
    if (st->done_fd >= 0) (void)close(st->done_fd);
    (void)sem_destroy(&st->wake);
    weft_ring_fini(&st->done);
    weft_ring_fini(&st->jobs);
    free(st);
}

weft_err wefti_stepper_start(const char *path, const struct weft_eng_options *options,
                             const struct wefti_group *group, wefti_stepper **stepper_out,
                             struct weft_errmsg *why) {
    *stepper_out = NULL;
    weft_err err = WEFT_E_NOMEM;
    wefti_stepper *st = aligned_alloc(64, (sizeof *st + 63) / 64 * 64);
    if (!st) return weft_err_set(why, err, "no memory for the step thread");
    *st = (wefti_stepper){.path = path, .options = *options, .group = group, .done_fd = -1};
    st->options.rank = group->rank;
    st->options.n_ranks = group->n_ranks;
    st->options.coll = group->coll;
    weft_buf_init(&st->taken, WEFT_MESSAGE_BYTES_MAX);
    (void)sem_init(&st->wake, 0, 0);
    for (uint32_t i = 0; i < WEFTI_STEPPER_SLOTS; i++) {
        weft_buf_init(&st->slots[i].bytes, WEFT_MESSAGE_BYTES_MAX);
        weft_buf_init(&st->slots[i].result, WEFT_MESSAGE_BYTES_MAX);
        st->free_slots[st->n_free++] = &st->slots[i];
    }
    for (uint32_t i = 0; i < WEFTI_STEPPER_SLOTS; i++) {
        err = weft_proto_decoder_new(&st->slots[i].decoder);
        if (err) goto cleanup;
    }
    err = weft_ring_init(&st->jobs, N_JOBS, sizeof(struct job));
    if (err) goto cleanup;
    err = weft_ring_init(&st->done, WEFTI_STEPPER_SLOTS, sizeof(struct wefti_slot *));
    if (err) goto cleanup;
    st->done_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (st->done_fd < 0) {
        err = weft_err_errno(why, errno, "cannot make an event descriptor");
        goto cleanup;
    }
    int status = weft_thread_start(&st->thread, stepper_main, st);
    if (status != 0) {
        err = weft_err_errno(why, status, "cannot start the step thread");
        goto cleanup;
    }
    (void)pthread_setname_np(st->thread, WEFTI_STEPPER_THREAD);
    *stepper_out = st;
    st = NULL;
cleanup:
    if (err == WEFT_E_NOMEM) (void)weft_err_set(why, err, "no memory for the step thread");
    stepper_free(st);
    return err;
}

bool wefti_stepper_stop(wefti_stepper *st, uint32_t wait_ms_max) {
    if (!st) return true;
    atomic_store_explicit(&st->stopping, true, memory_order_release);
    if (has_group(st)) weft_coll_abort(st->group->coll); /* it may be waiting there */
    (void)sem_post(&st->wake);
    if (!wefti_join_within(st->thread, wait_ms_max)) return false;
    stepper_free(st);
    return true;
}

/* ------------------------------------------------------------------------- control's side --- */

int wefti_stepper_fd(const wefti_stepper *st) {
    return st->done_fd;
}

void wefti_stepper_clear(wefti_stepper *st) {
    uint64_t count;
    ssize_t n = read(st->done_fd, &count, sizeof count);
    (void)n; /* an empty eventfd is fine */
}

enum wefti_engine_state wefti_stepper_engine(const wefti_stepper *st, struct weft_errmsg *why) {
    int state = atomic_load_explicit(&st->engine_state, memory_order_acquire);
    if (state == WEFTI_ENGINE_FAILED) *why = st->why;
    return (enum wefti_engine_state)state;
}

const struct weft_eng_info *wefti_stepper_info(const wefti_stepper *st) {
    WEFT_ASSERT(atomic_load(&st->engine_state) == WEFTI_ENGINE_OPEN);
    return &st->info;
}

weft_eng *wefti_stepper_eng(const wefti_stepper *st) {
    WEFT_ASSERT(atomic_load(&st->engine_state) == WEFTI_ENGINE_OPEN);
    return st->eng;
}

uint32_t wefti_stepper_regions(const wefti_stepper *st,
                               struct weft_eng_region out[WEFT_ENG_REGIONS]) {
    WEFT_ASSERT(atomic_load(&st->engine_state) == WEFTI_ENGINE_OPEN);
    return weft_eng_regions(st->eng, out);
}

weft_err wefti_stepper_check_group(const wefti_stepper *st, struct weft_errmsg *why) {
    bool is_open =
        atomic_load_explicit(&st->engine_state, memory_order_acquire) == WEFTI_ENGINE_OPEN;
    bool is_idle = wefti_group_leads(st->group) && wefti_stepper_n_under_way(st) == 0;
    weft_err err = WEFT_OK;
    if (has_group(st) && is_open && is_idle)
        err = weft_coll_check(st->group->coll, st->group->rank, why);
    if (!atomic_load_explicit(&st->is_over, memory_order_acquire)) return err ? WEFT_E_CLOSED : err;
    *why = st->over_why;
    return st->over_err;
}

uint64_t wefti_stepper_n_steps(const wefti_stepper *st) {
    return atomic_load_explicit(&st->n_steps, memory_order_relaxed);
}

uint64_t wefti_stepper_progress(const wefti_stepper *st) {
    WEFT_ASSERT(atomic_load(&st->engine_state) == WEFTI_ENGINE_OPEN);
    return weft_eng_progress(st->eng);
}

uint64_t wefti_stepper_meeting_us(const wefti_stepper *st) {
    WEFT_ASSERT(atomic_load(&st->engine_state) == WEFTI_ENGINE_OPEN);
    return weft_eng_meeting_ns(st->eng) / 1000;
}

uint32_t wefti_stepper_n_spill_blocks(const wefti_stepper *st) {
    WEFT_ASSERT(atomic_load(&st->engine_state) == WEFTI_ENGINE_OPEN);
    return weft_min_u32(weft_eng_n_spill_blocks(st->eng), st->n_spill_blocks_max);
}

uint32_t wefti_stepper_n_under_way(const wefti_stepper *st) {
    return WEFTI_STEPPER_SLOTS - st->n_free;
}

struct wefti_slot *wefti_stepper_slot(wefti_stepper *st) {
    WEFT_ASSERT(st->n_free > 0);
    return st->free_slots[st->n_free - 1];
}

weft_err wefti_stepper_submit(wefti_stepper *st, struct wefti_slot *slot) {
    WEFT_ASSERT(st->n_free > 0 && slot == st->free_slots[st->n_free - 1]);
    WEFT_ASSERT(slot->msg.type == WEFT_MSG_PLAN);
    if (st->n_free == 1) return WEFT_E_FULL;
    slot->epoch = slot->msg.plan.epoch;
    struct job job = {.slot = slot};
    if (!weft_ring_push(&st->jobs, &job)) return WEFT_E_FULL;
    st->n_free--;
    (void)sem_post(&st->wake);
    return WEFT_OK;
}

weft_err wefti_stepper_reset(wefti_stepper *st, uint64_t epoch) {
    atomic_store_explicit(&st->epoch, epoch, memory_order_relaxed);
    struct job job = {.id = epoch};
    if (!weft_ring_push(&st->jobs, &job)) return WEFT_E_FULL;
    (void)sem_post(&st->wake);
    return WEFT_OK;
}

bool wefti_stepper_has_experts(const wefti_stepper *st, uint32_t layer) {
    WEFT_ASSERT(atomic_load(&st->engine_state) == WEFTI_ENGINE_OPEN);
    return weft_eng_has_experts(st->eng, layer);
}

weft_err wefti_stepper_count(wefti_stepper *st, uint64_t *counts_out) {
    WEFT_ASSERT(!wefti_stepper_is_counting(st));
    struct job job = {.counts = counts_out};
    /* Stored before the push, which hands the array over. */
    atomic_store_explicit(&st->is_counting, true, memory_order_relaxed);
    if (!weft_ring_push(&st->jobs, &job)) {
        atomic_store_explicit(&st->is_counting, false, memory_order_relaxed);
        return WEFT_E_FULL;
    }
    (void)sem_post(&st->wake);
    return WEFT_OK;
}

bool wefti_stepper_is_counting(const wefti_stepper *st) {
    return atomic_load_explicit(&st->is_counting, memory_order_acquire);
}

struct wefti_slot *wefti_stepper_done(wefti_stepper *st) {
    struct wefti_slot *slot = NULL;
    return weft_ring_pop(&st->done, &slot) ? slot : NULL;
}

void wefti_stepper_give_back(wefti_stepper *st, struct wefti_slot *slot) {
    WEFT_ASSERT(st->n_free < WEFTI_STEPPER_SLOTS);
    st->free_slots[st->n_free++] = slot;
}

/* ------------------------------------------------------------------------------ adapters --- */

weft_err wefti_stepper_add_lora(wefti_stepper *st, uint64_t id, const char *path,
                                struct weft_eng_lora *info_out, struct weft_errmsg *why) {
    WEFT_ASSERT(atomic_load(&st->engine_state) == WEFTI_ENGINE_OPEN);
    return weft_eng_add_lora(st->eng, id, path, info_out, why);
}

weft_err wefti_stepper_remove_lora(wefti_stepper *st, uint64_t id) {
    WEFT_ASSERT(!wefti_stepper_is_removing(st));
    struct job job = {.removes_lora = true, .id = id};
    atomic_store_explicit(&st->is_removing, true, memory_order_relaxed);
    if (!weft_ring_push(&st->jobs, &job)) {
        atomic_store_explicit(&st->is_removing, false, memory_order_relaxed);
        return WEFT_E_FULL;
    }
    (void)sem_post(&st->wake);
    return WEFT_OK;
}

bool wefti_stepper_is_removing(const wefti_stepper *st) {
    return atomic_load_explicit(&st->is_removing, memory_order_acquire);
}

/* ------------------------------------------------------------------------------ grammars --- */

bool wefti_stepper_prepare(wefti_stepper *st, const struct weft_msg_grammar *wish) {
    const struct weft_eng_ticket ticket = {wish->epoch, wish->id, st->done_fd};
    return weft_eng_prepare_grammar(st->eng, &ticket, &wish->grammar);
}

bool wefti_stepper_next_prepared(wefti_stepper *st, struct weft_msg_compiled *msg_out) {
    struct weft_eng_ticket ticket;
    if (!weft_eng_next_prepared(st->eng, &ticket)) return false;
    *msg_out = (struct weft_msg_compiled){.epoch = ticket.epoch, .id = ticket.id};
    return true;
}
