#include "stepper.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/ring.h"

/* Every slot but a free one may wait as a plan, one job may copy counts, and as many epochs as
 * there are slots may begin meanwhile. */
#define N_JOBS (2 * WEFTI_STEPPER_SLOTS)

struct job {
    struct wefti_slot *slot; /* NULL: another kind of job */
    uint64_t *counts;        /* where to copy the experts' counts; NULL: reset to `epoch` */
    uint64_t epoch;
};

struct wefti_stepper {
    const char *path;
    struct weft_eng_options options;

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
    _Atomic uint64_t
        epoch; /* the latest one control asked for: spares running what nobody awaits */
    /* Release by the stepper after writing `eng` or `why`, acquire by control before reading. */
    _Atomic int engine_state;

    /* The stepper's; control reads eng and why once engine_state says so. */
    weft_eng *eng;
    struct weft_errmsg why;
    uint64_t step_end_ns; /* 0: nothing ran yet in this epoch */
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

static void run_plan(wefti_stepper *st, struct wefti_slot *slot) {
    if (slot->epoch != atomic_load_explicit(&st->epoch, memory_order_relaxed)) {
        slot->err = weft_err_set(&slot->why, WEFT_E_STATE, "the plan's epoch is over");
        return;
    }
    const struct weft_step_result *result = NULL;
    uint64_t start_ns = weft_now_ns();
    slot->err = weft_eng_step(st->eng, &slot->msg.plan, &result, &slot->why);
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

static void *stepper_main(void *arg) {
    wefti_stepper *st = arg;
    weft_err err = weft_eng_open(st->path, &st->options, &st->eng, &st->why);
    atomic_store_explicit(&st->engine_state, err ? WEFTI_ENGINE_FAILED : WEFTI_ENGINE_OPEN,
                          memory_order_release);
    wake_control(st);
    if (err) return NULL;
    for (;;) {
        while (sem_wait(&st->wake) != 0) {
            WEFT_ASSERT(errno == EINTR);
        }
        if (atomic_load_explicit(&st->stopping, memory_order_acquire)) break;
        struct job job;
        bool popped = weft_ring_pop(&st->jobs, &job);
        WEFT_ASSERT(popped);
        if (job.counts) {
            copy_counts(st, job.counts);
            continue;
        }
        if (!job.slot) {
            weft_eng_reset(st->eng, job.epoch);
            st->step_end_ns = 0;
            continue;
        }
        run_plan(st, job.slot);
        bool pushed = weft_ring_push(&st->done, &job.slot);
        WEFT_ASSERT(pushed); /* it has room for every slot */
        wake_control(st);
    }
    weft_eng_free(st->eng);
    return NULL;
}

/* ------------------------------------------------------------------------- start and stop --- */

static void stepper_free(wefti_stepper *st) {
    if (!st) return;
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
                             wefti_stepper **stepper_out, struct weft_errmsg *why) {
    *stepper_out = NULL;
    weft_err err = WEFT_E_NOMEM;
    wefti_stepper *st = aligned_alloc(64, (sizeof *st + 63) / 64 * 64);
    if (!st) return weft_err_set(why, err, "no memory for the step thread");
    *st = (wefti_stepper){.path = path, .options = *options, .done_fd = -1};
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
    int status = pthread_create(&st->thread, NULL, stepper_main, st);
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
    (void)sem_post(&st->wake);
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)wait_ms_max * 1000000u;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    if (pthread_timedjoin_np(st->thread, NULL, &until) != 0) return false;
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
    return weft_eng_info(st->eng);
}

uint32_t wefti_stepper_regions(const wefti_stepper *st,
                               struct weft_eng_region out[WEFT_ENG_REGIONS]) {
    WEFT_ASSERT(atomic_load(&st->engine_state) == WEFTI_ENGINE_OPEN);
    return weft_eng_regions(st->eng, out);
}

uint64_t wefti_stepper_progress(const wefti_stepper *st) {
    WEFT_ASSERT(atomic_load(&st->engine_state) == WEFTI_ENGINE_OPEN);
    return weft_eng_progress(st->eng);
}

uint32_t wefti_stepper_n_spill_blocks(const wefti_stepper *st) {
    WEFT_ASSERT(atomic_load(&st->engine_state) == WEFTI_ENGINE_OPEN);
    return weft_eng_n_spill_blocks(st->eng);
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
    struct job job = {.epoch = epoch};
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
