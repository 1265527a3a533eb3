/* A worker's side of the scheduler.
 *
 * A session with a worker is an epoch: when it ends, for whatever reason, the next epoch begins at
 * once, all running sequences wait again with every token they had, and the next worker to say
 * hello starts from nothing in that epoch. So a worker's death costs recomputation and nothing
 * else.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actor_internal.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/parse.h"
#include "base/rand.h"
#include "common/actor.h"
#include "common/link_config.h"
#include "common/signals.h"
#include "common/status.h"
#include "scheduler/step_cost.h"

#define WORKER_NAME "weft-worker"

/* ---------------------------------------------------------------------------------- hello --- */

static enum weft_sched_policy policy(const struct weft_config *config) {
    if (!strcmp(config->scheduling_policy, "priority")) return WEFT_SCHED_PRIORITY;
    return !strcmp(config->scheduling_policy, "edf") ? WEFT_SCHED_EDF : WEFT_SCHED_FCFS;
}

/* A worker that computes texts whole has room for the longest in a step, and keeps nothing of them. */
static void set_whole(const struct wefti_actor *a, const struct weft_model_info *model,
                      struct weft_sched_options *options) {
    options->max_batched_tokens = model->max_batched_tokens;
    options->whole_tokens =
        weft_min_u32(a->config.max_num_batched_tokens, model->max_batched_tokens);
    options->prefix_cache = false;
    options->n_spill_blocks = 0;
}

#define CHECKPOINT_TOKENS 64 /* computing so many takes about a step, and a checkpoint costs one */

/* States do not go back: what is kept of one are its checkpoints. */
static void set_recurrent(const struct weft_model_info *model, struct weft_sched_options *options) {
    options->is_recurrent = true;
    options->n_checkpoints = model->n_checkpoints;
    options->checkpoint_tokens = CHECKPOINT_TOKENS;
    options->prefix_cache = options->prefix_cache && model->n_checkpoints > 0;
    options->n_spill_blocks = 0;
    options->n_spec_tokens = 0;
    options->has_contrast = false;
}

static void tell_recurrent(const struct wefti_actor *a, const struct weft_model_info *model) {
    if (!model->is_recurrent || a->has_model) return;
    weft_info("layers of %s are recurrent: %u checkpoint%s of their states, no spilling, guesses, "
              "contrastive search and context shift",
              model->model_name, model->n_checkpoints, model->n_checkpoints == 1 ? "" : "s");
}

/* Guesses of each sequence in a step. */
static uint32_t n_spec_tokens(const struct weft_config *config) {
    if (config->speculative_ngram == 0 && !config->speculative_model && !config->speculative_mtp)
        return 0;
    return config->num_speculative_tokens == WEFT_CONFIG_AUTO ? WEFT_SCHED_SPEC_AUTO
                                                              : config->num_speculative_tokens;
}

/* A step's log-probabilities are in memory a few times on their way to the router: together these are to be
 * less than what requests may take. One token's fit in any case. */
static uint32_t step_logprob_bytes(uint64_t request_bytes, uint32_t n_vocab) {
    uint64_t least = WEFT_LOGPROB_HEAD_BYTES + WEFT_LOGPROB_TOP_BYTES * (uint64_t)n_vocab;
    if (request_bytes == 0) return WEFT_STEP_LOGPROB_BYTES_MAX;
    uint64_t bytes = weft_max_u64(request_bytes / 8, least);
    return (uint32_t)weft_min_u64(bytes, WEFT_STEP_LOGPROB_BYTES_MAX);
}

/* The first worker says what can be planned. Each group has its part of the one queue that clients
 * see. */
static weft_err make_sched(struct wefti_actor *a, struct wefti_group *g,
                           const struct weft_model_info *model, struct weft_errmsg *why) {
    g->limits = (struct weft_sched_options){
        .n_blocks = model->n_blocks,
        .block_size = model->block_size,
        .window = model->window,
        .n_window_blocks = model->n_window_blocks,
        .n_spill_blocks = model->n_spill_blocks,
        .block_bytes = model->kv_bytes / model->n_blocks,
        .max_seqs = weft_min_u32(a->config.max_num_seqs, model->max_seqs),
        .max_batched_tokens =
            weft_min_u32(a->config.max_num_batched_tokens, model->max_batched_tokens),
        .max_model_len = model->max_model_len,
        .n_vocab = model->n_vocab,
        .shape = {.n_hidden = model->n_hidden, .n_labels = model->n_labels},
        .has_contrast = model->has_contrast,
        .contrast_bytes = a->config.request_memory,
        .step_logprob_bytes = step_logprob_bytes(a->config.request_memory, model->n_vocab),
        .max_queue = (a->config.max_queue + a->n_groups - 1) / a->n_groups,
        .itl_target_us = a->config.itl_target_ms == WEFT_CONFIG_AUTO
                             ? WEFT_SCHED_ITL_AUTO
                             : a->config.itl_target_ms * 1000u,
        .policy = policy(&a->config),
        .max_queued_tokens = (a->config.max_queued_tokens + a->n_groups - 1) / a->n_groups,
        .prefix_cache = !a->config.no_prefix_cache,
        .n_spec_tokens = n_spec_tokens(&a->config),
        .cache_seed = weft_rand_seed(),
        .long_prompt = model->long_prompt,
        .queue_timeout_us = a->config.queue_timeout_ms * 1000ull,
        .run_timeout_us = a->config.run_timeout_ms * 1000ull,
        .session_ttl_us = a->config.session_ttl_s * 1000000ull,
        .max_sessions = a->config.max_sessions,
        .max_session_blocks = model->n_blocks / 2,
    };
    if (model->is_encoder) set_whole(a, model, &g->limits);
    if (model->is_recurrent) set_recurrent(model, &g->limits);
    weft_sched *sched = NULL;
    weft_err err = weft_sched_new(&g->limits, &sched, why);
    if (err) return err;
    g->replica->sched = sched;
    weft_sched_new_epoch(sched, weft_now_us(), g->epoch);
    if (a->draining) weft_sched_drain(sched);
    tell_recurrent(a, model);
    if (!a->has_model) {
        a->model = *model;
        a->has_model_at_ms = weft_now_ms();
    }
    a->has_model = true;
    /* A request that routers let in must fit every group. */
    a->model.max_model_len = weft_min_u32(a->model.max_model_len, model->max_model_len);
    return WEFT_OK;
}

/* Another model: running requests could not continue with the same tokens. */
static bool is_other_model(const struct weft_model_info *had, const struct weft_model_info *has) {
    return strcmp(had->fingerprint, has->fingerprint) != 0 || had->n_vocab != has->n_vocab ||
           had->block_size != has->block_size || had->window != has->window ||
           had->is_recurrent != has->is_recurrent;
}

/* The same model with less room than planned: less memory was free at its start. */
static bool is_smaller(const struct weft_sched_options *limits, const struct weft_model_info *has) {
    return has->n_blocks < limits->n_blocks || has->n_window_blocks < limits->n_window_blocks ||
           has->max_model_len < limits->max_model_len || has->max_seqs < limits->max_seqs ||
           has->max_batched_tokens < limits->max_batched_tokens ||
           has->n_checkpoints < limits->n_checkpoints;
}

/* STATE: this worker cannot be used, and exit_status is set. */
static weft_err fit_model(struct wefti_actor *a, struct wefti_group *g,
                          const struct weft_model_info *model, struct weft_errmsg *why) {
    if (a->has_model && is_other_model(&a->model, model)) {
        weft_err err = weft_err_set(
            why, WEFT_E_STATE, "the new worker serves %s (%s), the one before %s (%s)",
            model->model_name, model->fingerprint, a->model.model_name, a->model.fingerprint);
        a->exit_status = weft_actor_fail(&a->config, why->text);
        return err;
    }
    if (!g->replica->sched) {
        weft_err err = make_sched(a, g, model, why);
        if (err) a->exit_status = weft_actor_fail(&a->config, why->text);
        return err;
    }
    if (is_smaller(&g->limits, model)) {
        /* A restart is the simplest way to plan with less: routers submit everything again. */
        a->exit_status = EXIT_FAILURE;
        return weft_err_set(
            why, WEFT_E_STATE,
            "the new worker has %u blocks and a length of %u, planned was with %u and "
            "%u: the scheduler starts anew",
            model->n_blocks, model->max_model_len, g->limits.n_blocks, g->limits.max_model_len);
    }
    return WEFT_OK;
}

static void limit_spill(struct wefti_group *g, const struct weft_msg_worker_hello *hello) {
    uint32_t n_has = hello->model.n_spill_blocks;
    uint32_t n = weft_sched_limit_spill(g->replica->sched, n_has);
    if (n > 0 || g->limits.n_spill_blocks == 0) return;
    weft_warn("nothing is spilled to a file any more: %s",
              n_has > 0 ? "workers were lost, one after the other, while they wrote or read files"
                        : "the worker has given up its file");
}

static weft_err take_hello(struct wefti_actor *a, struct wefti_group *g,
                           const struct weft_msg_worker_hello *hello, struct weft_errmsg *why) {
    struct wefti_worker *w = &g->worker;
    if (g->replica->is_serving)
        return weft_err_set(why, WEFT_E_PROTO, "a second hello in one session");
    if (hello->version != WEFT_PROTO_VERSION) {
        w->is_refused = true; /* it would say the same again; one of the two will be replaced */
        weft_error("a worker speaks protocol version %u, this scheduler %u: it gets no work",
                   hello->version, WEFT_PROTO_VERSION);
        return WEFT_OK;
    }
    weft_err err = fit_model(a, g, &hello->model, why);
    if (err) return err;
    limit_spill(g, hello);
    w->pid = hello->pid;
    weft_sched_group_came(g->replica, weft_now_ms());
    struct weft_msg msg = {.type = WEFT_MSG_SCHED_HELLO};
    msg.sched_hello = (struct weft_msg_sched_hello){
        .version = WEFT_PROTO_VERSION,
        .instance = a->instance,
        .epoch = g->epoch,
        .pid = (uint32_t)getpid(),
    };
    (void)wefti_group_send(a, g, &msg);
    weft_sched_adapters_came(&a->adapters, (uint32_t)(g - a->groups));
    weft_info("worker (pid %u) serves %s: %u blocks of %u tokens, %u sequences, %u tokens per step",
              hello->pid, hello->model.model_name, g->limits.n_blocks, g->limits.block_size,
              g->limits.max_seqs, g->limits.max_batched_tokens);
    return WEFT_OK;
}

/* Sends the events of given-up requests, the only ones when an epoch begins. */
static void tell_given_up(struct wefti_actor *a, struct wefti_group *g) {
    size_t n = 0;
    (void)weft_sched_events(g->replica->sched, &n);
    if (n == 0) return;
    weft_error("%zu sequences are given up: %d workers in a row were lost over a request of theirs",
               n, WEFT_SEQ_LOSSES_MAX);
    weft_status_write(a->config.status_fd, "explained", NULL);
    wefti_routers_tell(a, g);
}

static void end_session(struct wefti_actor *a, struct wefti_group *g) {
    if (g->replica->is_serving) {
        a->n_worker_losses++;
        bool is_end = weft_signals_pending(a->signal_fd);
        weft_log(is_end ? WEFT_LOG_DEBUG : WEFT_LOG_WARN, "lost the worker (pid %u)",
                 g->worker.pid);
    }
    weft_sched_group_went(g->replica, weft_now_ms());
    weft_sched_adapters_went(&a->adapters, (uint32_t)(g - a->groups));
    g->worker = (struct wefti_worker){0};
    g->epoch = ++a->epoch;
    g->had_work = false; /* the next worker starts anew */
    if (!g->replica->sched) return;
    weft_sched_new_epoch(g->replica->sched, weft_now_us(), g->epoch);
    tell_given_up(a, g);
}

/* --------------------------------------------------------------------------------- results --- */

static void count_result(struct wefti_actor *a, struct wefti_group *g,
                         const struct weft_step_result *result) {
    static const uint32_t bounds[WEFT_ITER_BUCKETS - 1] = {
        1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
    uint32_t bucket = 0;
    while (bucket < WEFT_ITER_BUCKETS - 1 && result->n_tokens > bounds[bucket])
        bucket++;
    a->iter_tokens[bucket]++;
    a->iter_tokens_count++;
    a->iter_tokens_sum += result->n_tokens;
    a->worker_busy_us += result->busy_us;
    struct weft_activity_step step;
    weft_sched_last_step(g->replica->sched, &step);
    step.group = (uint32_t)(g - a->groups);
    weft_activity_ring_add(&a->last_steps, weft_now_us(), &step);
    /* The metric does not count time without any request. */
    if (g->had_work) a->worker_idle_us += result->idle_us;
    g->had_work = !weft_sched_idle(g->replica->sched);
}

static weft_err take_result(struct wefti_actor *a, struct wefti_group *g,
                            const struct weft_step_result *result, struct weft_errmsg *why) {
    if (result->epoch != g->epoch) return WEFT_OK; /* it was on its way when its epoch ended */
    weft_err err = weft_sched_result(g->replica->sched, weft_now_us(), result, why);
    if (err) return err;
    weft_sched_group_progress(g->replica, weft_now_ms());
    /* The worker comes first: it has one plan left, and after a short step it would wait. */
    wefti_group_plan(a, g);
    wefti_routers_tell(a, g); /* before the next message, since events point into the result */
    count_result(a, g, result);
    return WEFT_OK;
}

static void take_heartbeat(struct wefti_group *g, const struct weft_msg_heartbeat *beat) {
    weft_sched_group_heartbeat(g->replica, weft_now_ms(), beat->progress, beat->busy);
    g->worker.n_ranks = beat->n_ranks;
    memcpy(g->worker.ranks, beat->ranks, sizeof g->worker.ranks);
    g->worker.awaited_rank = beat->awaited_rank;
    g->worker.awaited_pid = beat->awaited_pid;
}

static weft_err take_experts(struct wefti_actor *a, const struct weft_msg_experts *told,
                             struct weft_errmsg *why) {
    weft_err err = weft_expert_rows_add(&a->experts, told, why);
    if (err == WEFT_E_NOMEM) { /* no reason to drop the worker */
        weft_warn("%s", why->text);
        return WEFT_OK;
    }
    a->has_experts_news = true;
    return err;
}

static weft_err take_message(struct wefti_actor *a, struct wefti_group *g,
                             const struct weft_link_event *event, struct weft_errmsg *why) {
    struct weft_msg msg;
    weft_err err = weft_proto_decode(g->decoder, event->bytes, event->len, &msg, why);
    if (err) return err;
    if (msg.type == WEFT_MSG_WORKER_HELLO) return take_hello(a, g, &msg.worker_hello, why);
    if (!g->replica->is_serving) {
        return weft_err_set(why, WEFT_E_PROTO, "a %s before the hello",
                            weft_proto_type_name(msg.type));
    }
    if (msg.type == WEFT_MSG_RESULT) return take_result(a, g, &msg.result, why);
    if (msg.type == WEFT_MSG_HEARTBEAT) {
        take_heartbeat(g, &msg.heartbeat);
        return WEFT_OK;
    }
    if (msg.type == WEFT_MSG_EXPERTS) return take_experts(a, &msg.experts, why);
    if (msg.type == WEFT_MSG_COMPILED) {
        if (msg.compiled.epoch == g->epoch) /* else it was on its way when its epoch ended */
            weft_sched_compiled(g->replica->sched, weft_now_us(), msg.compiled.id);
        return WEFT_OK;
    }
    if (msg.type == WEFT_MSG_KV_FILED) {
        if (msg.kv_filed.epoch != g->epoch) return WEFT_OK; /* likewise */
        return weft_sched_filed(g->replica->sched, weft_now_us(), &msg.kv_filed, why);
    }
    if (msg.type == WEFT_MSG_LORA) {
        wefti_adapters_answer(a, g, &msg.lora);
        return WEFT_OK;
    }
    return weft_err_set(why, WEFT_E_PROTO, "a worker sends no %s", weft_proto_type_name(msg.type));
}

static void reset_worker(struct wefti_actor *a, struct wefti_group *g, const char *because) {
    enum weft_log_level level = WEFT_LOG_ERROR;
    if (a->exit_status < 0) level = weft_log_rarely(level, weft_now_ms(), &g->quiet_until_ms);
    weft_log(level, "starting over with the worker: %s", because);
    weft_link_reset(g->link, 0);
}

void wefti_group_drain(struct wefti_actor *a, struct wefti_group *g) {
    struct weft_link_event event;
    while (a->exit_status < 0 && weft_link_next(g->link, weft_now_ms(), &event)) {
        struct weft_errmsg why = {""};
        switch (event.kind) {
        case WEFT_LINK_UP:
            g->worker = (struct wefti_worker){.is_linked = true, .linked_at_ms = weft_now_ms()};
            break;
        case WEFT_LINK_DOWN:
            end_session(a, g);
            break;
        case WEFT_LINK_MESSAGE:
            if (!g->worker.is_refused && take_message(a, g, &event, &why))
                reset_worker(a, g, why.text);
            break;
        }
    }
}

/* Of requests whose turn came with that plan. */
static void announce_grammars(struct wefti_actor *a, struct wefti_group *g) {
    struct weft_msg msg = {.type = WEFT_MSG_GRAMMAR};
    const struct weft_grammar *grammar = NULL;
    msg.grammar.epoch = g->epoch;
    while (weft_sched_next_grammar(g->replica->sched, weft_now_us(), &msg.grammar.id, &grammar)) {
        msg.grammar.grammar = *grammar;
        if (!wefti_group_send(a, g, &msg)) break;
    }
}

void wefti_group_plan(struct wefti_actor *a, struct wefti_group *g) {
    if (!g->replica->is_serving) return;
    if (!weft_sched_adapters_may_plan(&a->adapters, (uint32_t)(g - a->groups))) return;
    const struct weft_step_plan *plan = NULL;
    while (weft_sched_plan(g->replica->sched, weft_now_us(), &plan)) {
        struct weft_msg msg = {.type = WEFT_MSG_PLAN, .plan = *plan};
        if (!wefti_group_send(a, g, &msg)) break;
    }
    announce_grammars(a, g);
}

/* ------------------------------------------------------------------------------ is it alive --- */

/* The fields of /proc/PID/stat that follow the pid: name and parent. */
static bool read_stat(uint32_t pid, char name_out[64], int *parent_out) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    char line[512] = "";
    bool ok = fgets(line, sizeof line, file) != NULL;
    (void)fclose(file);
    char *open = strchr(line, '('), *close = strrchr(line, ')');
    if (!ok || !open || !close || close <= open || close - open > 63) return false;
    memcpy(name_out, open + 1, (size_t)(close - open - 1));
    name_out[close - open - 1] = '\0';
    if (close[1] != ' ' || !close[2] || close[3] != ' ') return false; /* ") S 123 ..." */
    *parent_out = (int)strtol(close + 4, NULL, 10);
    return *parent_out > 0;
}

/* A pid from a message is only a claim, and one of another host names another process. It is killed
 * only if it is our sibling, of our user, with a worker's name; the pidfd is opened first, so the
 * checked process is the one killed. */
static bool kill_worker(const struct wefti_group *g, uint32_t pid) {
    if (!weft_link_is_local(g->link)) return false;
    if (pid < 2 || pid > INT32_MAX) return false;
    int fd = pidfd_open((pid_t)pid, 0);
    if (fd < 0) return false;
    char path[64], name[64];
    int parent = 0;
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%u", pid);
    bool is_ours = stat(path, &st) == 0 && st.st_uid == geteuid() &&
                   read_stat(pid, name, &parent) && parent == (int)getppid() &&
                   strcmp(name, WORKER_NAME) == 0;
    bool killed = is_ours && pidfd_send_signal(fd, SIGKILL, NULL, 0) == 0;
    (void)close(fd);
    return killed;
}

/* Who is to blame: a rank that its first one, which is alive to say so, waits for; else that one. */
static uint32_t pid_to_blame(const struct wefti_group *g, uint64_t now_ms, char who[48]) {
    const struct wefti_worker *w = &g->worker;
    bool is_alive = now_ms - g->replica->heartbeat_at_ms <= WEFT_SCHED_ADVANCING_MS;
    if (!is_alive || w->awaited_rank == 0 || w->awaited_pid == 0) {
        (void)snprintf(who, 48, "the worker (pid %u)", w->pid);
        return w->pid;
    }
    (void)snprintf(who, 48, "rank %u (pid %u)", w->awaited_rank, w->awaited_pid);
    return w->awaited_pid;
}

static void check_worker(struct wefti_group *g, uint64_t now_ms) {
    struct wefti_worker *w = &g->worker;
    if (!w->is_linked || w->is_refused) return;
    if (!g->replica->is_serving) {
        if (now_ms - w->linked_at_ms <= WEFT_SCHED_STUCK_MS) return;
        weft_error("a worker is linked and says no hello: starting over with it");
        w->linked_at_ms = now_ms;
        weft_link_reset(g->link, 0);
        return;
    }
    const char *symptom = weft_sched_group_symptom(g->replica, now_ms);
    if (!symptom) return;
    char who[48];
    uint32_t pid = pid_to_blame(g, now_ms, who);
    weft_sched_group_excuse(g->replica, now_ms); /* one attempt per period */
    if (kill_worker(g, pid)) {
        weft_error("%s %s for %u s: killed", who, symptom, WEFT_SCHED_STUCK_MS / 1000u);
        return;
    }
    weft_error("%s %s for %u s and is not ours to kill: starting over with the worker", who,
               symptom, WEFT_SCHED_STUCK_MS / 1000u);
    weft_link_reset(g->link, 0);
}

void wefti_group_tick(struct wefti_group *g, uint64_t now_ms, bool paused) {
    weft_link_tick(g->link, now_ms);
    if (paused) {
        g->worker.linked_at_ms = now_ms;
        weft_sched_group_excuse(g->replica, now_ms);
    } else {
        check_worker(g, now_ms);
    }
}

/* ----------------------------------------------------------------------------------- groups --- */

static weft_err group_init(struct wefti_actor *a, const char *url, size_t url_len,
                           struct weft_errmsg *why) {
    struct wefti_group *g = &a->groups[a->n_groups];
    g->replica = &a->replicas.groups[a->n_groups];
    a->replicas.n = ++a->n_groups;
    g->epoch = ++a->epoch;
    g->url = strndup(url, url_len);
    if (!g->url || weft_proto_decoder_new(&g->decoder))
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for a worker's messages");
    struct weft_link_options options = weft_link_config(&a->config);
    return weft_link_listen(WEFT_LINK_ONE_PEER, g->url, &options, &g->link, why);
}

weft_err wefti_groups_init(struct wefti_actor *a, const char *urls, struct weft_errmsg *why) {
    struct weft_str url;
    weft_err err = WEFT_OK;
    for (const char *at = urls; !err && weft_parse_member(&at, ",", &url);) {
        if (url.len == 0) return weft_err_set(why, WEFT_E_INVAL, "--worker-url has an empty URL");
        if (a->n_groups == WEFT_WORKERS_MAX)
            return weft_err_set(why, WEFT_E_INVAL, "--worker-url names more than %d workers",
                                WEFT_WORKERS_MAX);
        err = group_init(a, url.data, url.len, why);
    }
    return err;
}

void wefti_groups_move(struct wefti_actor *a, uint64_t now_us) {
    uint32_t n = weft_sched_groups_move(&a->replicas, now_us);
    if (n > 0)
        weft_warn("a worker has been away for %u s: %u of its requests go to others",
                  WEFT_SCHED_AWAY_MS / 1000u, n);
}

void wefti_groups_fini(struct wefti_actor *a) {
    for (uint32_t i = 0; i < a->n_groups; i++) {
        struct wefti_group *g = &a->groups[i];
        weft_link_free(g->link);
        weft_sched_free(g->replica->sched);
        weft_proto_decoder_free(g->decoder);
        free(g->url);
    }
}
