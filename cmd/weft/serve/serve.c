/* `weft serve`, and `weft run --batch`, which is the same without clients: one supervisor and its children.
 *
 * The supervisor owns: a memfd with the packed weights for each NUMA node that has a worker (so a
 * restarted worker maps instead of packing, and so does every worker but the node's first), or the
 * packed file it was given instead (so a restarted worker maps the same one, even if another has
 * taken its name since), who may use which CPUs, the addresses of the links, the port once it is
 * known, what the first router read of the model, and each child's status pipe. It has no nng, and
 * no socket that anybody talks to. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "activation.h"
#include "base/cpu.h"
#include "base/log.h"
#include "collective/collective.h"
#include "commands.h"
#include "common/actor.h"
#include "common/engine_config.h"
#include "common/signals.h"
#include "engine/session_file.h"
#include "foresee.h"
#include "model/model.h"
#include "placement.h"
#include "supervisor.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

static bool find_bin_dir(char *dir, size_t dir_bytes) {
    ssize_t n = readlink("/proc/self/exe", dir, dir_bytes - 1);
    if (n <= 0) return false;
    dir[n] = '\0';
    char *slash = strrchr(dir, '/');
    if (!slash) return false;
    *slash = '\0';
    return true;
}

static struct child new_child(enum weft_program program, const char *name) {
    struct child child = {.program = program, .name = name, .status_fd = -1, .weights_fd = -1};
    (void)snprintf(child.title, sizeof child.title, "the %s", name + strlen("weft-"));
    return child;
}

/* The first worker on a node packs for all of that node; but a rank packs its own share. */
static weft_err give_weights(struct supervisor *sup, const uint32_t *nodes, uint32_t worker_idx,
                             struct weft_errmsg *why) {
    struct child *child = &sup->children[FIRST_WORKER + worker_idx];
    for (uint32_t i = 0; i < worker_idx && sup->n_ranks == 1; i++) {
        if (nodes[i] != nodes[worker_idx]) continue;
        child->weights_fd = sup->children[FIRST_WORKER + i].weights_fd;
        child->packer = sup->children[FIRST_WORKER + i].packer;
        return WEFT_OK;
    }
    child->packer = FIRST_WORKER + worker_idx;
    child->weights_fd = memfd_create("weft-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (child->weights_fd < 0) return weft_err_errno(why, errno, "cannot make a memory file");
    return WEFT_OK;
}

/* Who runs where, and what is to be said of it. */
static weft_err choose_places(const struct supervisor *sup, struct weft_placement_choice *choice,
                              struct weft_errmsg *why) {
    static struct weft_placement placement;
    const struct weft_config *config = &sup->config;
    const struct weft_placement_wish wish = {
        .n_workers = config->n_workers == WEFT_CONFIG_AUTO ? 0 : config->n_workers,
        .n_in_group = config->n_ranks,
        .n_threads = config->threads,
        .n_quota = weft_cpu_quota(),
        .cpus = config->cpus};
    weft_placement_read(&placement);
    weft_err err = weft_placement_choose(&placement, &wish, choice, why);
    if (err) return err;
    if (choice->is_crowded)
        weft_warn("%u threads in %u worker%s have %u CPU%s: those that share one take turns",
                  choice->n_threads, choice->n_workers, choice->n_workers > 1 ? "s" : "",
                  choice->n_cpus, choice->n_cpus > 1 ? "s" : "");
    if (sup->packed_fd >= 0 && choice->n_nodes > 1)
        weft_info("%u NUMA nodes share the packed file: each of its pages lies on one of them",
                  choice->n_nodes);
    return WEFT_OK;
}

/* How many workers divide a model; 1: none do. */
static weft_err set_up_groups(struct supervisor *sup, struct weft_errmsg *why) {
    uint32_t n = sup->config.n_ranks;
    if (n == 0) n = strcmp(sup->config.layout, "tp") == 0 ? sup->n_workers : 1;
    if (!weft_coll_may_have(n)) return weft_err_set(why, WEFT_E_INVAL, WEFT_CONFIG_LAYOUT_WHY, n);
    if (sup->n_workers % n != 0)
        return weft_err_set(why, WEFT_E_INVAL, WEFT_CONFIG_GROUPS_WHY, sup->n_workers,
                            sup->n_workers > 1 ? "s are" : " is", n);
    if (sup->n_workers == 1 && !strcmp(sup->config.layout, "tp"))
        weft_info("--layout tp with one worker divides nothing: --workers says how many there are");
    if (sup->config.expert_profile && n > 1)
        weft_info("experts go to the workers of a group by their load in %s",
                  sup->config.expert_profile);
    else if (sup->config.expert_profile)
        weft_warn("--expert-profile changes nothing: each worker has all experts (--tp divides)");
    sup->n_ranks = n;
    return WEFT_OK;
}

static void name_worker(const struct supervisor *sup, struct child *child, uint32_t worker_idx) {
    uint32_t group = worker_idx / sup->n_ranks, rank = worker_idx % sup->n_ranks;
    if (sup->n_ranks > 1 && sup->n_workers > sup->n_ranks)
        (void)snprintf(child->title, sizeof child->title, "rank %u of group %u", rank, group);
    else if (sup->n_ranks > 1)
        (void)snprintf(child->title, sizeof child->title, "rank %u", rank);
    else if (sup->n_workers > 1)
        (void)snprintf(child->title, sizeof child->title, "worker %u", worker_idx);
}

static weft_err set_up_workers(struct supervisor *sup, const struct weft_placement_choice *choice,
                               struct weft_errmsg *why) {
    uint32_t nodes[WEFT_WORKERS_MAX];
    sup->config.n_workers = sup->n_workers = choice->n_workers;
    sup->n_children = FIRST_WORKER + sup->n_workers;
    weft_err err = set_up_groups(sup, why);
    if (err) return err;
    err =
        weft_addresses_init(&sup->addresses, sup->config.link, sup->n_workers / sup->n_ranks, why);
    if (err) return err;
    sup->config.scheduler_url = sup->addresses.scheduler;
    for (uint32_t i = 0; i < sup->n_workers; i++) {
        struct child *child = &sup->children[FIRST_WORKER + i];
        *child = new_child(WEFT_PROG_WORKER, "weft-worker");
        name_worker(sup, child, i);
        child->url = sup->addresses.workers[i / sup->n_ranks];
        nodes[i] = choice->workers[i].node;
        child->is_placed = choice->workers[i].is_bound;
        child->cpus = choice->workers[i].cpus;
        err = sup->packed_fd < 0 ? give_weights(sup, nodes, i, why) : WEFT_OK;
        if (err) return err;
    }
    return WEFT_OK;
}

static weft_err set_up(struct supervisor *sup, const struct weft_placement_choice *choice,
                       struct weft_errmsg *why) {
    wefti_ranks_init(sup);
    sup->children[SCHEDULER] = new_child(WEFT_PROG_SCHEDULER, "weft-scheduler");
    sup->children[ROUTER] = new_child(WEFT_PROG_ROUTER, "weft-router");
    if (!find_bin_dir(sup->bin_dir, sizeof sup->bin_dir))
        return weft_err_errno(why, errno, "cannot find the folder of this program");
    weft_err err = set_up_workers(sup, choice, why);
    if (!err) err = wefti_memory_share_out(sup, why);
    if (err) return err;
    /* A log reader that goes away must not take the service with it; and if our parent set SIGCHLD
     * to be ignored, we could not wait for children. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)signal(SIGUSR1, SIG_IGN); /* they mean nothing here, and would end it */
    (void)signal(SIGUSR2, SIG_IGN);
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGTERM);
    /* Signals ignored from the start (nohup, a script's background job) stay ignored: blocked, they
     * would be queued for the signalfd all the same. */
    if (!weft_signal_is_ignored(SIGINT)) (void)sigaddset(&set, SIGINT);
    /* A terminal that is closed ends a batch, and reloads a server. */
    if (!weft_signal_is_ignored(SIGHUP) && !sup->offline.is_on) (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    sup->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (sup->signal_fd < 0) return weft_err_errno(why, errno, "cannot watch signals");
    return WEFT_OK;
}

/* Opened once for all workers there will be: a file renamed over it meanwhile is another model. */
static weft_err hold_packed(struct supervisor *sup, struct weft_errmsg *why) {
    sup->packed_fd = open(sup->config.model, O_RDONLY | O_CLOEXEC);
    if (sup->packed_fd < 0) return weft_err_errno(why, errno, "cannot open %s", sup->config.model);
    (void)snprintf(sup->model_path, sizeof sup->model_path, "/proc/self/fd/%d", sup->packed_fd);
    return WEFT_OK;
}

/* A path that is no model is reported here, once, and not by whichever child finds it first. */
static weft_err check_model(struct supervisor *sup, struct weft_errmsg *why) {
    struct weft_model_place place;
    json_t *config = NULL;
    weft_err err = weft_model_locate(sup->config.model, &place, why);
    if (err) return err;
    sup->packed_fd = -1;
    if (place.packed)
        err = hold_packed(sup, why);
    else if (place.format == WEFT_MODEL_HF)
        err = weft_model_check_folder(place.path, why);
    if (!err && !place.packed && place.format == WEFT_MODEL_HF)
        err = weft_model_json(place.path, "config.json", CONFIG_BYTES_MAX, &config, why);
    json_decref(config);
    weft_model_place_fini(&place);
    return err;
}

/* Likewise; later, when it may have gone for a while, only the calls fail that need it. */
static weft_err check_session_dir(const char *dir, struct weft_errmsg *why) {
    struct weft_errmsg detail = {""};
    weft_err err = dir ? weft_eng_session_check_folder(dir, &detail) : WEFT_OK;
    return err ? weft_err_set(why, err, "--session-dir: %s", detail.text) : WEFT_OK;
}

/* Runs the actors until the supervisor's loop ends. WEFT_STATUS_USAGE, WEFT_STATUS_FAILED: it never began. */
static int supervise(struct supervisor *sup) {
    static struct weft_placement_choice choice;
    struct weft_errmsg why = {""};
    weft_err err = check_model(sup, &why);
    if (!err) err = check_session_dir(sup->config.session_dir, &why);
    if (err) return weft_cmd_fail(err, &why);
    err = choose_places(sup, &choice, &why);
    if (err) return weft_cmd_misuse(err, &why);
    err = set_up(sup, &choice, &why);
    if (err) {
        weft_addresses_fini(&sup->addresses);
        return weft_cmd_fail(err, &why);
    }
    weft_restart_init(&sup->restart, sup->n_children, FIRST_WORKER, sup->n_ranks);
    wefti_supervise(sup); /* it starts them */
    weft_addresses_fini(&sup->addresses);
    if (sup->fatal[0]) weft_say(WEFT_LOG_ERROR, "%s", sup->fatal);
    return sup->exit_status;
}

int weft_cmd_serve(const struct weft_config *config) {
    static struct supervisor sup;
    struct weft_errmsg why = {""};
    sup.config = *config;
    weft_actor_init("weft", &sup.config);
    weft_notify_init(&sup.notify);
    weft_err err = weft_activation_take(&sup.config, &why);
    if (err) return weft_cmd_fail(err, &why);
    int status = supervise(&sup);
    if (sup.phase == PHASE_STOP && !sup.fatal[0]) weft_say(WEFT_LOG_INFO, "stopped");
    weft_notify_fini(&sup.notify);
    return status;
}

/* Weights that are packed each for itself: a node's, or a rank's. */
static uint32_t count_copies(const struct supervisor *sup,
                             const struct weft_placement_choice *choice) {
    if (sup->packed_fd >= 0 && sup->n_ranks == 1) return 1;
    return sup->n_ranks > 1 ? sup->n_workers : choice->n_nodes;
}

static weft_err foresee_group(uint32_t n_ranks, struct weft_eng_options *options,
                              struct weft_errmsg *why) {
    int fd = -1;
    options->n_ranks = n_ranks;
    if (n_ranks == 1) return WEFT_OK;
    weft_err err = weft_coll_create(n_ranks, &fd, why);
    if (!err) err = weft_coll_open(fd, 0, &options->coll, why);
    if (fd >= 0) (void)close(fd);
    return err;
}

weft_err weft_serve_foresee(const struct weft_config *config, struct weft_serve_foreseen *out,
                            struct weft_errmsg *why) {
    static struct supervisor sup;
    static struct weft_placement_choice choice;
    sup.config = *config;
    weft_err err = weft_config_fill(&sup.config, WEFT_PROG_SERVE, why);
    if (!err) err = check_model(&sup, why);
    if (!err) err = choose_places(&sup, &choice, why);
    if (err) return err;
    sup.config.n_workers = sup.n_workers = choice.n_workers;
    err = set_up_groups(&sup, why);
    if (!err) err = wefti_memory_share_out(&sup, why);
    if (!err) err = weft_engine_config(&sup.config, &out->options, why);
    if (err) return err;
    if (!sup.config.memory_limit) out->options.limit.n_terms = 0;
    out->n_workers = sup.n_workers;
    out->n_ranks = sup.n_ranks;
    out->options.n_copies = count_copies(&sup, &choice);
    if (sup.packed_fd >= 0) (void)close(sup.packed_fd);
    return foresee_group(sup.n_ranks, &out->options, why);
}

/* What became of the batch; returns the exit status. */
static int conclude(const struct supervisor *sup) {
    const struct weft_offline *o = &sup->offline;
    if (weft_offline_is_over(o)) {
        weft_say(WEFT_LOG_INFO, "done: %u lines have their answers, %u of them errors", o->n_total,
                 o->n_failed);
        return 0;
    }
    if (o->is_known)
        weft_say(WEFT_LOG_ERROR, "stopped: %u of %u lines have their answers%s", o->n_done,
                 o->n_total, o->is_shown ? "" : "; the same command goes on with the others");
    else
        weft_say(WEFT_LOG_ERROR, "stopped before anything was computed");
    return WEFT_STATUS_FAILED;
}

int weft_cmd_run_batch(const struct weft_config *config) {
    static struct supervisor sup;
    struct weft_errmsg why = {""};
    sup.config = *config;
    weft_actor_init("weft", &sup.config);
    weft_err err = weft_config_fill(&sup.config, WEFT_PROG_SERVE, &why);
    sup.config.log_level = config->tool_log_level;
    if (!err) err = weft_offline_open(&sup.offline, &sup.config, &why);
    if (err) return weft_cmd_fail(err, &why);
    int status = supervise(&sup);
    bool has_run = sup.phase == PHASE_STOP && !sup.fatal[0];
    return has_run ? conclude(&sup) : status;
}
