/* weft-worker — computes the steps a scheduler plans.
 *
 * The main thread is control: it keeps the session with the scheduler, feeds plans to the stepper
 * (stepper.h), sends results back and reports progress four times a second. It never computes, so
 * its heartbeats are true while a step runs or hangs.
 *
 * A session begins with our hello; the scheduler answers with the epoch it opened, and from then on
 * only plans of that epoch run and only their results are sent. Plans and results of an older
 * session are dropped by their epoch.
 *
 * Where workers divide a model (group.h), only rank 0 has a link; the others' control waits for the
 * group's end.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/numa.h"
#include "base/rand.h"
#include "common/actor.h"
#include "common/config.h"
#include "common/engine_config.h"
#include "common/link_config.h"
#include "common/loading.h"
#include "common/signals.h"
#include "common/status.h"
#include "experts.h"
#include "filer.h"
#include "group.h"
#include "link/link.h"
#include "lora_queue.h"
#include "remote.h"
#include "stepper.h"

#define HEARTBEAT_MS 250u
#define TICK_MS 100u
/* A clean exit waits this long for the step under way; then the process exits anyway. */
#define STOP_WAIT_MS 2000u
/* And a new session with the scheduler for a file that is read into blocks of the one before: for one
 * of them, which takes a moment if the disk is well. */
#define FILE_WAIT_MS 1000u

struct worker {
    struct weft_config config;
    uint64_t instance;
    struct wefti_group group;
    wefti_stepper *stepper;
    wefti_lora_queue *loras; /* NULL until the engine is open */
    wefti_filer *filer;  /* once the engine is open; NULL: of a group, which saves no sessions */
    weft_link *link;     /* used once the engine is open; NULL: another rank has one */
    struct weft_buf out; /* messages made by control */
    int signal_fd;
    bool is_draining;
    struct weft_loading loading;
    bool has_engine, told_ready, told_worked;
    bool has_epoch; /* the scheduler said hello in this session */
    uint64_t epoch;
    uint64_t heartbeat_at_ms;
    uint64_t start_quiet_ms, end_quiet_ms; /* for the log: sessions may fail without end */
    struct wefti_experts experts;
    struct wefti_remote remote;
};

static void copy_text(char *to, size_t to_bytes, const char *from) {
    (void)snprintf(to, to_bytes, "%s", from);
}

static void model_info(const struct weft_eng_info *info, struct weft_model_info *out) {
    *out = (struct weft_model_info){
        .n_vocab = info->n_vocab,
        .n_blocks = info->n_blocks,
        .n_window_blocks = info->n_window_blocks,
        .window = info->window,
        .block_size = info->block_size,
        .max_model_len = info->max_model_len,
        .max_seqs = info->max_seqs,
        .max_batched_tokens = info->max_batched_tokens,
        .n_threads = info->n_threads,
        .weight_bytes = info->weight_bytes,
        .kv_bytes = info->kv_bytes,
        .long_prompt = info->long_prompt,
        .n_hidden = info->n_hidden,
        .n_labels = info->n_labels,
        .is_encoder = info->is_encoder,
        .has_contrast = info->has_contrast,
        .is_recurrent = info->is_recurrent,
        .n_checkpoints = info->n_checkpoints,
    };
    copy_text(out->model_name, sizeof out->model_name, info->model_name);
    copy_text(out->arch, sizeof out->arch, info->arch);
    copy_text(out->isa, sizeof out->isa, info->isa);
    copy_text(out->fingerprint, sizeof out->fingerprint, info->fingerprint);
}

/* A failed send can usually be ignored: the link ends the session with a DOWN. */
static bool send_message(struct worker *w, const struct weft_msg *msg) {
    weft_buf_clear(&w->out);
    weft_proto_encode(msg, &w->out);
    weft_err err =
        w->out.failed ? WEFT_E_NOMEM : weft_link_send(w->link, 0, w->out.data, w->out.len);
    if (err) {
        weft_debug("%s not sent: %s", weft_proto_type_name(msg->type), weft_err_text(err));
    }
    return !err;
}

static void say_hello(struct worker *w) {
    struct weft_msg msg = {.type = WEFT_MSG_WORKER_HELLO};
    msg.worker_hello = (struct weft_msg_worker_hello){
        .version = WEFT_PROTO_VERSION,
        .instance = w->instance,
        .pid = (uint32_t)getpid(),
    };
    model_info(wefti_stepper_info(w->stepper), &msg.worker_hello.model);
    msg.worker_hello.model.n_spill_blocks = wefti_stepper_n_spill_blocks(w->stepper);
    (void)send_message(w, &msg);
}

static void tell_figures(struct worker *w, struct weft_rank_figures *all) {
    const struct weft_eng_info *info = wefti_stepper_info(w->stepper);
    const struct weft_rank_figures own = {
        .weight_bytes = info->weight_bytes,
        .n_experts = info->n_own_experts,
        .resident_bytes = weft_mem_resident_bytes(),
        .remote_pages = w->remote.n_remote,
        .meeting_us = wefti_stepper_meeting_us(w->stepper),
    };
    wefti_group_tell(&w->group, &own, all);
}

static void send_heartbeat(struct worker *w) {
    struct weft_msg msg = {.type = WEFT_MSG_HEARTBEAT};
    msg.heartbeat = (struct weft_msg_heartbeat){
        .progress = wefti_group_progress(&w->group, wefti_stepper_progress(w->stepper)),
        .busy = wefti_stepper_n_under_way(w->stepper) > 0,
        .n_ranks = w->group.n_ranks,
    };
    tell_figures(w, msg.heartbeat.ranks);
    wefti_group_awaited(&w->group, &msg.heartbeat.awaited_rank, &msg.heartbeat.awaited_pid);
    (void)send_message(w, &msg);
}

/* Asks the stepper for counts when it is time, and sends the new ones among those it copied. */
static void tell_experts(struct worker *w, uint64_t now_ms) {
    struct weft_msg msg = {.type = WEFT_MSG_EXPERTS};
    if (w->experts.asked && !wefti_stepper_is_counting(w->stepper)) {
        bool is_news = wefti_experts_news(&w->experts, &msg.experts);
        if (is_news && w->has_epoch && send_message(w, &msg)) wefti_experts_sent(&w->experts);
    }
    if (w->has_epoch && wefti_experts_ask(&w->experts, wefti_stepper_n_steps(w->stepper), now_ms) &&
        wefti_stepper_count(w->stepper, w->experts.counts))
        wefti_experts_unask(&w->experts); /* sent with the next */
}

static void tell_ready(struct worker *w) {
    char kv_bytes[24];
    if (w->told_ready) return;
    (void)snprintf(kv_bytes, sizeof kv_bytes, "%llu",
                   (unsigned long long)wefti_stepper_info(w->stepper)->kv_bytes);
    weft_status_write(w->config.status_fd, "ready", kv_bytes);
    w->told_ready = true;
}

/* ---------------------------------------------------------------------- from the scheduler --- */

static weft_err take_hello(struct worker *w, const struct weft_msg_sched_hello *hello,
                           struct weft_errmsg *why) {
    if (hello->version != WEFT_PROTO_VERSION) {
        /* Starting over would not help: it would say the same again. One of the two will be
         * replaced. */
        weft_error(
            "the scheduler speaks protocol version %u, this worker %u: no work until they agree",
            hello->version, WEFT_PROTO_VERSION);
        return WEFT_OK;
    }
    if (w->filer && !wefti_filer_call_off(w->filer, FILE_WAIT_MS))
        return weft_err_set(why, WEFT_E_TIMEOUT, "a session's file hangs while it is read");
    weft_err err = wefti_stepper_reset(w->stepper, hello->epoch);
    if (err) return weft_err_set(why, err, "too many epochs began while one step ran");
    w->epoch = hello->epoch;
    w->has_epoch = true;
    wefti_experts_new_session(&w->experts);
    wefti_lora_queue_new_session(w->loras);
    weft_info("linked with scheduler (pid %u), epoch %llu", hello->pid,
              (unsigned long long)hello->epoch);
    tell_ready(w);
    return WEFT_OK;
}

static weft_err take_plan(struct worker *w, struct wefti_slot *slot, struct weft_errmsg *why) {
    const struct weft_step_plan *plan = &slot->msg.plan;
    if (!w->has_epoch || plan->epoch != w->epoch) {
        return weft_err_set(why, WEFT_E_PROTO, "a plan of epoch %llu where %llu was announced",
                            (unsigned long long)plan->epoch,
                            (unsigned long long)(w->has_epoch ? w->epoch : 0));
    }
    wefti_lora_queue_first_plan(w->loras);
    weft_err err = wefti_stepper_submit(w->stepper, slot);
    if (err) return weft_err_set(why, err, "more plans out than a scheduler may have");
    return WEFT_OK;
}

/* One that it cannot even begin to compile: the sequence will hear so. */
static void take_grammar(struct worker *w, const struct weft_msg_grammar *wish) {
    if (wefti_stepper_prepare(w->stepper, wish)) return;
    struct weft_msg msg = {.type = WEFT_MSG_COMPILED};
    msg.compiled = (struct weft_msg_compiled){.epoch = wish->epoch, .id = wish->id};
    (void)send_message(w, &msg);
}

static void answer_file(struct worker *w, const struct weft_kv_filed *filed) {
    struct weft_msg msg = {.type = WEFT_MSG_KV_FILED, .kv_filed = *filed};
    if (w->has_epoch && filed->epoch == w->epoch) (void)send_message(w, &msg);
}

static void take_file(struct worker *w, const struct weft_kv_file *wish) {
    struct weft_errmsg why = {""};
    weft_err err = WEFT_E_UNSUPPORTED;
    if (w->filer)
        err = wefti_filer_ask(w->filer, wish, &why);
    else
        (void)weft_err_set(&why, err, "workers that divide a model save no sessions");
    if (!err) return;
    const struct weft_kv_filed filed = {
        .epoch = wish->epoch, .id = wish->id, .err = err, .text = why.text};
    answer_file(w, &filed);
}

static weft_err take_message(struct worker *w, const struct weft_link_event *event,
                             struct weft_errmsg *why) {
    struct wefti_slot *slot = wefti_stepper_slot(w->stepper);
    weft_buf_clear(&slot->bytes);
    weft_buf_add(&slot->bytes, event->bytes, event->len);
    if (slot->bytes.failed) {
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for a message of %zu bytes", event->len);
    }
    weft_err err =
        weft_proto_decode(slot->decoder, slot->bytes.data, slot->bytes.len, &slot->msg, why);
    if (err) return err;
    if (slot->msg.type == WEFT_MSG_SCHED_HELLO) return take_hello(w, &slot->msg.sched_hello, why);
    if (slot->msg.type == WEFT_MSG_PLAN) return take_plan(w, slot, why);
    if (slot->msg.type == WEFT_MSG_GRAMMAR) {
        take_grammar(w, &slot->msg.grammar);
        return WEFT_OK;
    }
    if (slot->msg.type == WEFT_MSG_KV_FILE) {
        if (w->has_epoch && slot->msg.kv_file.epoch == w->epoch) take_file(w, &slot->msg.kv_file);
        return WEFT_OK;
    }
    if (slot->msg.type == WEFT_MSG_ADD_LORA) {
        err = wefti_lora_queue_add(w->loras, &slot->msg.add_lora);
        return err ? weft_err_set(why, err, "too many adapters at a time") : WEFT_OK;
    }
    if (slot->msg.type == WEFT_MSG_REMOVE_LORA) {
        err = wefti_lora_queue_remove(w->loras, slot->msg.remove_lora.id);
        return err ? weft_err_set(why, err, "too many adapters at a time") : WEFT_OK;
    }
    return weft_err_set(why, WEFT_E_PROTO, "a worker takes no %s",
                        weft_proto_type_name(slot->msg.type));
}

static void end_session(struct worker *w, const char *because) {
    weft_log(weft_log_rarely(WEFT_LOG_ERROR, weft_now_ms(), &w->start_quiet_ms),
             "starting over with the scheduler: %s", because);
    w->has_epoch = false;
    weft_link_reset(w->link, 0);
}

static enum weft_log_level down_level(struct worker *w) {
    if (w->is_draining || weft_signals_pending(w->signal_fd)) return WEFT_LOG_DEBUG;
    return weft_log_rarely(WEFT_LOG_WARN, weft_now_ms(), &w->end_quiet_ms);
}

static void drain_link(struct worker *w) {
    struct weft_link_event event;
    while (weft_link_next(w->link, weft_now_ms(), &event)) {
        struct weft_errmsg why = {""};
        switch (event.kind) {
        case WEFT_LINK_UP:
            w->has_epoch = false;
            say_hello(w);
            break;
        case WEFT_LINK_DOWN:
            weft_log(down_level(w), "the session with the scheduler ended");
            w->has_epoch = false;
            break;
        case WEFT_LINK_MESSAGE:
            if (take_message(w, &event, &why)) end_session(w, why.text);
            break;
        }
    }
}

/* ------------------------------------------------------------------------ from the stepper --- */

/* A worker that has computed something is not broken, however soon it dies. */
static void tell_worked(struct worker *w) {
    if (w->told_worked || wefti_stepper_n_steps(w->stepper) == 0) return;
    weft_status_write(w->config.status_fd, "worked", NULL);
    w->told_worked = true;
}

static void drain_stepper(struct worker *w) {
    struct wefti_slot *slot = NULL;
    while ((slot = wefti_stepper_done(w->stepper))) {
        bool is_current = w->has_epoch && slot->epoch == w->epoch;
        if (is_current && slot->err) {
            end_session(w, slot->why.text);
        } else if (is_current) {
            weft_err err = weft_link_send(w->link, 0, slot->result.data, slot->result.len);
            if (err) weft_debug("result not sent: %s", weft_err_text(err));
        }
        wefti_stepper_give_back(w->stepper, slot);
    }
    struct weft_msg msg = {.type = WEFT_MSG_COMPILED};
    while (wefti_stepper_next_prepared(w->stepper, &msg.compiled)) {
        if (w->has_epoch && msg.compiled.epoch == w->epoch) (void)send_message(w, &msg);
    }
}

static void drain_filer(struct worker *w) {
    struct weft_kv_filed filed;
    if (w->filer && wefti_filer_next(w->filer, &filed)) answer_file(w, &filed);
}

static weft_err init_filer(struct worker *w, struct weft_errmsg *why) {
    const char *dir = w->config.session_dir;
    if (!w->link || w->group.n_ranks > 1) return WEFT_OK;
    if (dir && w->config.status_fd < 0) { /* else `weft serve` has looked, once */
        struct weft_errmsg detail = {""};
        weft_err err = weft_eng_session_check_folder(dir, &detail);
        if (err) return weft_err_set(why, err, "--session-dir: %s", detail.text);
    }
    return wefti_filer_start(wefti_stepper_eng(w->stepper), dir, w->config.session_dir_bytes,
                             &w->filer, why);
}

/* What a session before this one asked for is no news. */
static void drain_loras(struct worker *w) {
    struct weft_msg msg = {.type = WEFT_MSG_LORA};
    while (wefti_lora_queue_next(w->loras, &msg.lora)) {
        if (w->has_epoch) (void)send_message(w, &msg);
    }
}

static weft_err init_experts(struct worker *w, const struct weft_eng_info *info,
                             struct weft_errmsg *why) {
    bool has_experts[WEFT_LAYERS_MAX];
    for (uint32_t i = 0; i < info->n_layers; i++)
        has_experts[i] = wefti_stepper_has_experts(w->stepper, i);
    return wefti_experts_init(&w->experts, w->config.expert_metrics, info->n_layers,
                              info->n_experts, has_experts, why);
}

static void init_remote(struct worker *w, const struct weft_eng_info *info) {
    struct weft_eng_region regions[WEFT_ENG_REGIONS];
    uint32_t n = wefti_stepper_regions(w->stepper, regions);
    wefti_remote_init(&w->remote, info->home, regions, n, weft_numa_locate);
}

/* Sets has_engine once it is so. */
static weft_err check_engine(struct worker *w, struct weft_errmsg *why) {
    enum wefti_engine_state state = wefti_stepper_engine(w->stepper, why);
    if (state == WEFTI_ENGINE_OPENING || w->has_engine) return WEFT_OK;
    weft_loading_end(&w->loading);
    if (state == WEFTI_ENGINE_FAILED) return WEFT_E_INVAL;
    const struct weft_eng_info *info = wefti_stepper_info(w->stepper);
    weft_loading_log(&w->loading, info);
    w->has_engine = true;
    if (!w->link) tell_ready(w);
    init_remote(w, info);
    weft_err err = wefti_lora_queue_start(w->stepper, wefti_stepper_fd(w->stepper), &w->loras, why);
    if (!err) err = init_filer(w, why);
    return err ? err : init_experts(w, info, why);
}

/* ----------------------------------------------------------------------------------- start --- */

/* While the engine opens: a wrong address or certificate is told at once, and the library of the
 * transport starts meanwhile. Nothing is sent before the link's first use. */
static weft_err open_link(struct worker *w, struct weft_errmsg *why) {
    if (!wefti_group_leads(&w->group)) return WEFT_OK;
    struct weft_link_options options = weft_link_config(&w->config);
    return weft_link_dial(WEFT_LINK_ONE_PEER, w->config.worker_url, &options, &w->link, why);
}

static bool asked_to_exit(struct worker *w) {
    enum weft_signal signal;
    int value = 0;
    while ((signal = weft_signals_next(w->signal_fd, &value)) != WEFT_SIGNAL_NONE) {
        if (signal == WEFT_SIGNAL_EXIT) return true;
        if (signal == WEFT_SIGNAL_RELOAD) (void)weft_actor_reload(&w->config, value);
        /* This process serves what comes; but that the scheduler goes is no surprise then. */
        if (signal == WEFT_SIGNAL_DRAIN) w->is_draining = true;
    }
    return false;
}

static int poll_ms(const struct worker *w, uint64_t now_ms) {
    uint64_t since = now_ms - w->heartbeat_at_ms;
    uint64_t left = since < HEARTBEAT_MS ? HEARTBEAT_MS - since : 0;
    return (int)wefti_remote_wait_ms(&w->remote, w->has_epoch && left < TICK_MS ? left : TICK_MS);
}

static void serve_link(struct worker *w, bool has_news, uint64_t now_ms) {
    drain_stepper(w);
    drain_filer(w);
    if (has_news) drain_link(w);
    drain_loras(w); /* after messages, which may ask for some */
    weft_link_tick(w->link, now_ms);
    if (w->has_epoch && now_ms - w->heartbeat_at_ms >= HEARTBEAT_MS) {
        w->heartbeat_at_ms = now_ms;
        send_heartbeat(w);
    }
    tell_experts(w, now_ms);
}

/* A rank that does not lead has nobody else to tell. */
static void beat_for_group(struct worker *w, uint64_t now_ms) {
    struct weft_rank_figures all[WEFT_RANKS_MAX];
    if (now_ms - w->heartbeat_at_ms < HEARTBEAT_MS) return;
    w->heartbeat_at_ms = now_ms;
    tell_figures(w, all);
    (void)wefti_group_progress(&w->group, wefti_stepper_progress(w->stepper));
}

/* Serves until asked to exit (OK), until the group is over (CLOSED), or until it is clear that no
 * plan can ever be computed. */
static weft_err serve(struct worker *w, struct weft_errmsg *why) {
    for (;;) {
        struct pollfd fds[] = {
            {.fd = w->signal_fd, .events = POLLIN},
            {.fd = wefti_stepper_fd(w->stepper), .events = POLLIN},
            {.fd = w->has_engine && w->link ? weft_link_fd(w->link) : -1, .events = POLLIN},
            {.fd = w->filer ? wefti_filer_fd(w->filer) : -1, .events = POLLIN},
        };
        int n = poll(fds, sizeof fds / sizeof fds[0], poll_ms(w, weft_now_ms()));
        if (n < 0 && errno != EINTR) return weft_err_errno(why, errno, "poll failed");
        if (fds[0].revents && asked_to_exit(w)) return WEFT_OK;

        if (fds[1].revents) wefti_stepper_clear(w->stepper);
        weft_err err = wefti_stepper_check_group(w->stepper, why);
        if (!err) err = check_engine(w, why);
        if (err) return err;
        if (!w->has_engine) continue;
        uint64_t now_ms = weft_now_ms();
        if (w->link)
            serve_link(w, fds[2].revents != 0, now_ms);
        else
            beat_for_group(w, now_ms);
        tell_worked(w);
        wefti_remote_tick(&w->remote, wefti_stepper_n_steps(w->stepper), now_ms);
    }
}

/* Whoever started the ranks hears of the one that failed from that one. */
static int end_with_group(struct worker *w, const struct weft_errmsg *why) {
    weft_log(down_level(w), "this rank ends, since %s", why->text);
    return WEFT_EXIT_GROUP;
}

/* Ranks' lines say which one it is. Whatever said something until now had no part in a group. */
static weft_err open_group(struct worker *w, struct weft_errmsg *why) {
    static char name[24];
    weft_err err = wefti_group_open(&w->group, &w->config, why);
    if (err || w->group.n_ranks == 1) return err;
    (void)snprintf(name, sizeof name, "worker rank %u", w->group.rank);
    weft_actor_log(name, &w->config);
    return WEFT_OK;
}

/* The memory near the CPUs that this worker was given. */
static uint64_t home_of_this_process(void) {
    static struct weft_numa numa;
    uint32_t cpus[WEFT_CPUS_MAX];
    uint32_t n = weft_cpu_allowed(cpus);
    weft_numa_read("", &numa);
    return weft_numa_home(&numa, cpus, n);
}

int main(int argc, char **argv) {
    struct worker w = {.instance = weft_rand_seed(), .signal_fd = -1};
    struct weft_errmsg why = {""};
    struct weft_eng_options options;
    int status = EXIT_SUCCESS;
    bool done = false;
    weft_err err = weft_config_parse(WEFT_PROG_WORKER, argc, argv, &w.config, &done, &why);
    if (err) return weft_actor_bad_config("worker", &w.config, why.text);
    if (done) return EXIT_SUCCESS;
    weft_actor_init("worker", &w.config);
    if (!w.config.worker_url) return weft_actor_fail(&w.config, "--worker-url is missing");
    if (strchr(w.config.worker_url, ','))
        return weft_actor_fail(&w.config, "--worker-url is one address, a worker's own");
    weft_buf_init(&w.out, WEFT_MESSAGE_BYTES_MAX);

    err = weft_signals_init(w.config.status_fd >= 0, &w.signal_fd, &why);
    if (!err) err = weft_engine_config(&w.config, &options, &why);
    if (!err) err = open_group(&w, &why);
    if (!err) options.home = home_of_this_process();
    if (!err) weft_loading_begin(&w.loading, &w.config, &options);
    if (!err) err = wefti_stepper_start(w.config.model, &options, &w.group, &w.stepper, &why);
    if (!err) err = open_link(&w, &why);
    if (!err) err = serve(&w, &why);
    if (err == WEFT_E_CLOSED)
        status = end_with_group(&w, &why);
    else if (err)
        status = weft_actor_fail(&w.config, why.text);

    weft_link_free(w.link);
    bool is_unused = wefti_lora_queue_stop(w.loras, STOP_WAIT_MS) &&
                     wefti_filer_stop(w.filer, STOP_WAIT_MS); /* the engine by both */
    if (!is_unused || !wefti_stepper_stop(w.stepper, STOP_WAIT_MS)) {
        weft_warn("leaving before the engine has finished what it does");
        _exit(status);
    }
    wefti_group_close(&w.group);
    wefti_experts_fini(&w.experts); /* the stepper, which copies into it, has ended */
    weft_buf_fini(&w.out);
    if (w.signal_fd >= 0) (void)close(w.signal_fd);
    if (status == EXIT_SUCCESS) weft_actor_stopped(&w.config);
    return status;
}
