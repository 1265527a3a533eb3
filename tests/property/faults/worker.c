/* A worker's process. It computes a plan when its time is over, not before: what a new epoch or a
 * crash comes in between was never computed. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/limits.h"
#include "link/link.h"
#include "property/faults/cluster.h"
#include "property/faults/wire.h"
#include "property/sim_worker.h"
#include "proto/proto.h"

#define HEARTBEAT_US 250000u
#define TICK_US 100000u

struct worker {
    struct sim_proc proc;
    uint32_t scheduler, group;
    char url[64];
    weft_link *link;
    weft_proto_decoder *decoder;
    struct weft_buf out;
    struct sim_worker *engine;
    bool has_epoch, is_running, has_progress;
    uint64_t instance, epoch, running_epoch, run_until_us, heartbeat_at_us, progress;
    uint64_t slow_us;
    bool slow_has_progress;
};

static void send(struct worker *w, const struct weft_msg *msg) {
    weft_buf_clear(&w->out);
    weft_proto_encode(msg, &w->out);
    WEFT_ASSERT(!w->out.failed);
    if (weft_link_send(w->link, 0, w->out.data, w->out.len)) return; /* DOWN follows */
}

static void say_hello(struct worker *w) {
    struct weft_msg msg = {.type = WEFT_MSG_WORKER_HELLO};
    struct weft_model_info *model = &msg.worker_hello.model;
    const struct weft_sched_options *has = &shape.worker;
    msg.worker_hello.version = WEFT_PROTO_VERSION;
    msg.worker_hello.pid = 1;
    *model = (struct weft_model_info){.model_name = "m",
                                      .arch = "sim",
                                      .fingerprint = "fp",
                                      .n_vocab = N_VOCAB,
                                      .n_blocks = has->n_blocks,
                                      .block_size = has->block_size,
                                      .max_model_len = has->max_model_len,
                                      .max_seqs = has->max_seqs,
                                      .max_batched_tokens = has->max_batched_tokens,
                                      .n_threads = 1,
                                      .weight_bytes = 1,
                                      .kv_bytes = (uint64_t)has->n_blocks * 1024};
    send(w, &msg);
}

static struct sim_worker *new_engine(void) {
    struct sim_worker *engine = sim_worker_new(&shape.worker);
    sim_worker_costs(engine, shape.step_us, shape.token_us);
    return engine;
}

static void take_hello(struct worker *w, const struct weft_msg_sched_hello *hello) {
    SIM_CHECK(hello->epoch > w->epoch, "worker %u: epoch %llu comes after %llu", w->proc.idx,
              (unsigned long long)hello->epoch, (unsigned long long)w->epoch);
    w->epoch = hello->epoch;
    w->has_epoch = true;
    w->heartbeat_at_us = 0;
    if (hello->instance != w->instance) { /* another scheduler counts generations anew */
        sim_worker_free(w->engine);
        w->engine = new_engine();
    }
    w->instance = hello->instance;
    sim_worker_reset(w->engine, hello->epoch);
}

static void take_plan(struct worker *w, const struct weft_step_plan *plan) {
    SIM_CHECK(w->has_epoch && plan->epoch == w->epoch,
              "worker %u got a plan of epoch %llu, it was told %llu", w->proc.idx,
              (unsigned long long)plan->epoch, (unsigned long long)(w->has_epoch ? w->epoch : 0));
    sim_worker_send(w->engine, plan);
}

static void take(struct worker *w, const struct weft_link_event *event) {
    struct weft_msg msg;
    struct weft_errmsg why;
    weft_err err = weft_proto_decode(w->decoder, event->bytes, event->len, &msg, &why);
    SIM_CHECK(!err, "worker %u: %s", w->proc.idx, why.text);
    if (msg.type == WEFT_MSG_SCHED_HELLO)
        take_hello(w, &msg.sched_hello);
    else if (msg.type == WEFT_MSG_PLAN)
        take_plan(w, &msg.plan);
    else
        sim_fail("a worker takes no %s", weft_proto_type_name(msg.type));
}

static void drain(struct worker *w) {
    struct weft_link_event event;
    while (weft_link_next(w->link, sim_now_us() / 1000, &event)) {
        if (event.kind == WEFT_LINK_MESSAGE) {
            take(w, &event);
            continue;
        }
        w->has_epoch = false;
        if (event.kind == WEFT_LINK_UP) say_hello(w);
    }
}

/* ------------------------------------------------------------------------------------ steps --- */

static uint64_t step_us(struct worker *w) {
    uint64_t us = shape.step_us + sim_dice(shape.step_us);
    w->has_progress = true;
    if (w->slow_us == 0) return us;
    us = w->slow_us;
    w->has_progress = w->slow_has_progress;
    w->slow_us = 0;
    return us;
}

static void begin_step(struct worker *w) {
    if (w->is_running || !w->has_epoch || sim_worker_n_queued(w->engine) == 0) return;
    w->is_running = true;
    w->running_epoch = w->epoch;
    w->run_until_us = sim_now_us() + step_us(w);
    sim_wake(&w->proc, w->run_until_us);
}

/* A step of an epoch that is over yields nothing. */
static void end_step(struct worker *w) {
    if (!w->is_running || sim_now_us() < w->run_until_us) return;
    w->is_running = false;
    w->progress++;
    if (!w->has_epoch || w->running_epoch != w->epoch) return;
    struct weft_msg msg = {.type = WEFT_MSG_RESULT, .result = *sim_worker_run(w->engine)};
    send(w, &msg);
}

static void beat(struct worker *w) {
    if (!w->has_epoch || sim_now_us() < w->heartbeat_at_us + HEARTBEAT_US) return;
    w->heartbeat_at_us = sim_now_us();
    if (w->is_running && w->has_progress) w->progress++;
    if (w->is_running && !w->has_progress) wire_excuse(&w->proc);
    struct weft_msg msg = {.type = WEFT_MSG_HEARTBEAT};
    msg.heartbeat =
        (struct weft_msg_heartbeat){.progress = w->progress,
                                    .busy = w->is_running || sim_worker_n_queued(w->engine) > 0,
                                    .n_ranks = 1};
    send(w, &msg);
}

static void turn(struct sim_proc *proc) {
    struct worker *w = (struct worker *)proc;
    wire_enter(proc);
    end_step(w);
    drain(w);
    weft_link_tick(w->link, sim_now_us() / 1000);
    begin_step(w);
    beat(w);
    uint64_t next_us = sim_now_us() + TICK_US;
    if (w->is_running && w->run_until_us < next_us) next_us = w->run_until_us;
    sim_wake(proc, next_us);
}

/* ------------------------------------------------------------------------------- its process --- */

struct worker *worker_new(uint32_t scheduler, uint32_t group) {
    struct worker *w = calloc(1, sizeof *w);
    WEFT_ASSERT(w);
    w->proc = (struct sim_proc){.kind = "worker",
                                .idx = scheduler * GROUPS_MAX + group,
                                .turn_at_us = UINT64_MAX,
                                .turn = turn};
    worker_url(w->url, scheduler, group);
    return w;
}

void worker_start(struct worker *w) {
    struct weft_errmsg why;
    const struct weft_link_options options = {.insecure = true};
    if (w->proc.is_alive) return;
    sim_say("worker %u starts", w->proc.idx);
    w->proc.is_alive = true;
    w->proc.stopped_until_us = 0;
    w->proc.turn_at_us = UINT64_MAX;
    wire_enter(&w->proc);
    weft_err err = weft_link_dial(WEFT_LINK_ONE_PEER, w->url, &options, &w->link, &why);
    SIM_CHECK(!err, "%s", why.text);
    err = weft_proto_decoder_new(&w->decoder);
    WEFT_ASSERT(!err);
    weft_buf_init(&w->out, WEFT_MESSAGE_BYTES_MAX);
    w->engine = new_engine();
    w->instance = 0;
    w->has_epoch = w->is_running = false;
    w->slow_us = 0;
    w->epoch = 0;
    sim_wake(&w->proc, sim_now_us());
}

void worker_kill(struct worker *w) {
    if (!w->proc.is_alive) return;
    w->proc.is_alive = false;
    wire_kill(&w->proc);
    weft_link_free(w->link);
    weft_proto_decoder_free(w->decoder);
    weft_buf_fini(&w->out);
    sim_worker_free(w->engine);
    w->engine = NULL;
}

void worker_free(struct worker *w) {
    worker_kill(w);
    free(w);
}

struct sim_proc *worker_proc(struct worker *w) {
    return &w->proc;
}

void worker_slow(struct worker *w, uint64_t us, bool has_progress) {
    w->slow_us = us;
    w->slow_has_progress = has_progress;
}
