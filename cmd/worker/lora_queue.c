#include "lora_queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "join.h"

#define QUEUE_MAX (2 * WEFT_LORAS_MAX)
#define LOADER_THREAD "weft-lora"

struct todo {
    uint64_t id;
    struct weft_digest digest;
    char *path; /* owned; NULL: it is to be removed */
};

struct wefti_lora_queue {
    wefti_stepper *stepper;
    int wake_fd;
    pthread_t thread;

    /* Control's. */
    struct todo *todo; /* [QUEUE_MAX] a ring */
    uint32_t first, n;
    struct todo now; /* under way, if is_busy */
    bool is_busy;
    bool now_is_stale; /* an earlier session asked for it, and this one has not */
    uint64_t *loaded;  /* [WEFT_LORAS_MAX] numbers of those that are there */
    bool *is_stale;    /* likewise: this session has not asked for it */
    uint32_t n_loaded;
    bool has_stale, had_plan; /* this session */

    /* Between the two: the loader's while has_work, else control's. */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool has_work, stopping;
    struct weft_eng_lora info;
    weft_err err;
    struct weft_errmsg why;
};

/* ------------------------------------------------------------------------------ the loader --- */

static void *load_all(void *arg) {
    wefti_lora_queue *l = arg;
    uint64_t one = 1;
    (void)pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        if (!l->has_work) {
            (void)pthread_cond_wait(&l->wake, &l->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&l->lock);
        l->err = wefti_stepper_add_lora(l->stepper, l->now.id, l->now.path, &l->info, &l->why);
        (void)pthread_mutex_lock(&l->lock);
        l->has_work = false;
        ssize_t n = write(l->wake_fd, &one, sizeof one);
        (void)n; /* fails only if the counter is full, and then control is awake anyway */
    }
    (void)pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void loras_free(wefti_lora_queue *l) {
    if (!l) return;
    for (uint32_t i = 0; i < l->n; i++)
        free(l->todo[(l->first + i) % QUEUE_MAX].path);
    free(l->now.path);
    (void)pthread_cond_destroy(&l->wake);
    (void)pthread_mutex_destroy(&l->lock);
    free(l->todo);
    free(l->loaded);
    free(l->is_stale);
    free(l);
}

weft_err wefti_lora_queue_start(wefti_stepper *stepper, int wake_fd, wefti_lora_queue **loras_out,
                                struct weft_errmsg *why) {
    weft_err err = WEFT_E_NOMEM;
    *loras_out = NULL;
    wefti_lora_queue *l = calloc(1, sizeof *l);
    if (!l) return weft_err_set(why, err, "no memory for adapters");
    *l = (wefti_lora_queue){.stepper = stepper,
                            .wake_fd = wake_fd,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .wake = PTHREAD_COND_INITIALIZER,
                            .todo = calloc(QUEUE_MAX, sizeof *l->todo),
                            .loaded = calloc(WEFT_LORAS_MAX, sizeof *l->loaded),
                            .is_stale = calloc(WEFT_LORAS_MAX, sizeof *l->is_stale)};
    if (!l->todo || !l->loaded || !l->is_stale) {
        loras_free(l);
        return weft_err_set(why, err, "no memory for adapters");
    }
    int status = pthread_create(&l->thread, NULL, load_all, l);
    if (status != 0) {
        loras_free(l);
        return weft_err_errno(why, status, "cannot start the thread that loads adapters");
    }
    (void)pthread_setname_np(l->thread, LOADER_THREAD);
    *loras_out = l;
    return WEFT_OK;
}

bool wefti_lora_queue_stop(wefti_lora_queue *l, uint32_t wait_ms_max) {
    if (!l) return true;
    (void)pthread_mutex_lock(&l->lock);
    l->stopping = true;
    (void)pthread_cond_signal(&l->wake);
    (void)pthread_mutex_unlock(&l->lock);
    if (!wefti_join_within(l->thread, wait_ms_max)) return false;
    loras_free(l);
    return true;
}

/* -------------------------------------------------------------------------------- the queue --- */

static weft_err push(wefti_lora_queue *l, const struct todo *todo) {
    if (l->n == QUEUE_MAX) return WEFT_E_FULL;
    l->todo[(l->first + l->n++) % QUEUE_MAX] = *todo;
    return WEFT_OK;
}

static uint32_t find(const wefti_lora_queue *l, uint64_t id) {
    uint32_t i = 0;
    while (i < l->n_loaded && l->loaded[i] != id)
        i++;
    return i;
}

/* At once: the first plan may come before its turn does, and must not take it away. */
static void note_asked(wefti_lora_queue *l, uint64_t id) {
    uint32_t i = find(l, id);
    if (i < l->n_loaded) l->is_stale[i] = false;
    if (l->is_busy && l->now.id == id) l->now_is_stale = false;
}

weft_err wefti_lora_queue_add(wefti_lora_queue *l, const struct weft_msg_add_lora *msg) {
    struct todo todo = {.id = msg->id, .digest = msg->digest, .path = strdup(msg->path)};
    if (!todo.path) return WEFT_E_NOMEM;
    weft_err err = push(l, &todo);
    if (err)
        free(todo.path);
    else
        note_asked(l, msg->id);
    return err;
}

weft_err wefti_lora_queue_remove(wefti_lora_queue *l, uint64_t id) {
    const struct todo todo = {.id = id};
    return push(l, &todo);
}

static void remove_unused(wefti_lora_queue *l, uint64_t id) {
    if (wefti_lora_queue_remove(l, id)) weft_warn("an adapter stays in memory unused");
}

static void note_loaded(wefti_lora_queue *l, uint64_t id) {
    uint32_t i = find(l, id);
    if (i == WEFT_LORAS_MAX) return; /* the engine takes no more than that */
    l->loaded[i] = id;
    l->is_stale[i] = l->now_is_stale;
    l->has_stale |= l->now_is_stale;
    if (i == l->n_loaded) l->n_loaded++;
}

static void note_removed(wefti_lora_queue *l, uint64_t id) {
    uint32_t i = find(l, id);
    if (i == l->n_loaded) return;
    l->n_loaded--;
    l->loaded[i] = l->loaded[l->n_loaded];
    l->is_stale[i] = l->is_stale[l->n_loaded];
}

void wefti_lora_queue_new_session(wefti_lora_queue *l) {
    for (uint32_t i = 0; i < l->n; i++)
        free(l->todo[(l->first + i) % QUEUE_MAX].path);
    l->n = 0;
    for (uint32_t i = 0; i < l->n_loaded; i++)
        l->is_stale[i] = true;
    l->has_stale = l->n_loaded > 0;
    l->now_is_stale = l->is_busy;
    l->had_plan = false;
}

static void remove_stale(wefti_lora_queue *l) {
    for (uint32_t i = 0; i < l->n_loaded && l->has_stale; i++) {
        if (!l->is_stale[i]) continue;
        l->is_stale[i] = false;
        remove_unused(l, l->loaded[i]);
    }
    l->has_stale = false;
}

void wefti_lora_queue_first_plan(wefti_lora_queue *l) {
    l->had_plan = true;
    remove_stale(l);
}

/* ----------------------------------------------------------------------------------- work --- */

static bool is_under_way(wefti_lora_queue *l) {
    (void)pthread_mutex_lock(&l->lock);
    bool has_work = l->has_work;
    (void)pthread_mutex_unlock(&l->lock);
    return has_work || wefti_stepper_is_removing(l->stepper);
}

static void begin(wefti_lora_queue *l) {
    l->now = l->todo[l->first];
    l->first = (l->first + 1) % QUEUE_MAX;
    l->n--;
    l->is_busy = true;
    l->now_is_stale = false;
    if (!l->now.path) {
        note_removed(l, l->now.id);
        if (wefti_stepper_remove_lora(l->stepper, l->now.id))
            weft_warn("an adapter stays in memory: too much is to be done");
        return;
    }
    (void)pthread_mutex_lock(&l->lock);
    l->has_work = true;
    (void)pthread_cond_signal(&l->wake);
    (void)pthread_mutex_unlock(&l->lock);
}

static bool is_other(const struct weft_digest *wanted, const struct weft_digest *has) {
    bool is_any = (wanted->hi | wanted->lo) == 0;
    return !is_any && (wanted->hi != has->hi || wanted->lo != has->lo);
}

/* What was loaded is there, or why not. */
static void tell(wefti_lora_queue *l, struct weft_msg_lora *out) {
    *out = (struct weft_msg_lora){.id = l->now.id, .text = ""};
    if (!l->err) note_loaded(l, l->now.id);
    if (!l->err && is_other(&l->now.digest, &l->info.digest)) {
        l->err = weft_err_set(&l->why, WEFT_E_STATE, "%s: has changed since it was loaded first",
                              l->now.path);
        remove_unused(l, l->now.id);
    }
    if (l->had_plan) remove_stale(l);
    if (l->err) {
        out->text = l->why.text;
        return;
    }
    out->is_there = true;
    out->digest = l->info.digest;
    out->bytes = l->info.bytes;
    weft_debug("adapter %s: %llu bytes", l->now.path, (unsigned long long)l->info.bytes);
}

static bool push_first(wefti_lora_queue *l, const struct todo *todo) {
    if (l->n == QUEUE_MAX) return false;
    l->first = (l->first + QUEUE_MAX - 1) % QUEUE_MAX;
    l->todo[l->first] = *todo;
    l->n++;
    return true;
}

/* What an earlier session left behind has the last places: it goes, and then this one is tried again. */
static bool is_put_back(wefti_lora_queue *l) {
    bool is_wanted = l->err == WEFT_E_FULL && !l->now_is_stale;
    if (!is_wanted || !l->has_stale || !push_first(l, &l->now)) return false;
    l->now.path = NULL; /* the queue's again */
    for (uint32_t i = 0; i < l->n_loaded; i++) {
        const struct todo remove = {.id = l->loaded[i]};
        if (l->is_stale[i] && push_first(l, &remove)) l->is_stale[i] = false;
    }
    l->has_stale = false; /* once: what a full queue does not take stays until the next session */
    return true;
}

bool wefti_lora_queue_next(wefti_lora_queue *l, struct weft_msg_lora *answer_out) {
    for (;;) {
        bool was_loading = l->is_busy && l->now.path;
        if (l->is_busy && is_under_way(l)) return false;
        if (was_loading && is_put_back(l)) was_loading = false;
        if (was_loading) tell(l, answer_out);
        if (l->is_busy) {
            free(l->now.path);
            l->now.path = NULL;
            l->is_busy = false;
        }
        if (was_loading) return true;
        if (l->n == 0) return false;
        begin(l);
    }
}
