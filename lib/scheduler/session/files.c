/* Sessions that are written to files of the worker's, and made of them.
 *
 * One is under way at a time. What it holds it holds for itself, as a session would: that one may be
 * replaced or given up meanwhile. */
#include "scheduler/sessions.h"
#include "scheduler_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum stage {
    ASKED,   /* it waits for those before it */
    OPENING, /* the worker looks into the file */
    HELD,    /* it has its blocks, to which plans that are out may write */
    MOVING,  /* the worker writes or reads them */
    DONE,    /* `answer` is to be told */
};

struct file_op {
    TAILQ_ENTRY(file_op) link;
    enum stage stage;
    uint32_t router;
    struct weft_session_wish wish; /* its texts are below */
    struct weft_session_answer answer;
    struct weft_errmsg why;
    uint64_t id;         /* its number with the worker */
    uint64_t ready_step; /* HELD: plans below it may write to the blocks */
    bool is_forgotten;   /* the cache is to forget what it holds */
    bool is_whole;       /* what it has of a state is all there */
    bool is_orphan;      /* its router is gone: nobody hears the answer */
    struct weft_kv_space space;
    struct held held;
    uint32_t n_found, n_tokens; /* blocks that were there; of RESTORE */
    bool has_state;             /* it has a checkpoint, which is the state after these: */
    uint32_t state;
    uint32_t *storage; /* of both tables, then tokens */
    const uint32_t *tokens;
    struct weft_kv_file message;
    char texts[]; /* session_id, file */
};

/* The last block's, if that is still the cache's. */
static void let_go_of_state(weft_sched *sched, struct file_op *op) {
    uint32_t n = op->n_tokens / sched->options.block_size;
    if (!op->has_state) return;
    if (n > 0 && op->held.chain.n >= n && op->is_whole)
        weft_kv_checkpoints_hang(sched->checkpoints, op->state, op->held.table.blocks[n - 1]);
    else
        weft_kv_checkpoints_drop(sched->checkpoints, op->state);
    op->has_state = false;
}

static void end(weft_sched *sched, struct file_op *op, weft_err err) {
    let_go_of_state(sched, op);
    wefti_sched_held_drop(sched, &op->held);
    free(op->storage);
    op->storage = NULL;
    op->tokens = NULL;
    op->stage = DONE;
    op->answer.id = op->wish.id;
    op->answer.err = err;
    op->answer.text = op->why.text;
}

static void op_free(weft_sched *sched, struct file_op *op) {
    if (!op) return;
    if (op->stage != DONE) end(sched, op, WEFT_E_CLOSED);
    free(op);
}

static void take_off(weft_sched *sched, struct file_op *op) {
    TAILQ_REMOVE(&sched->file_ops, op, link);
    sched->n_file_ops--;
}

static void drop(weft_sched *sched, struct file_op *op) {
    take_off(sched, op);
    op_free(sched, op);
}

/* Nobody waits for an orphan's answer. */
static void finish(weft_sched *sched, struct file_op *op, weft_err err) {
    end(sched, op, err);
    if (op->is_orphan) drop(sched, op);
}

/* ---------------------------------------------------------------------------------- asking --- */

weft_err weft_sched_session_ask(weft_sched *sched, uint64_t now_us, uint32_t router,
                                const struct weft_session_wish *wish, struct weft_errmsg *why) {
    const struct weft_sched_options *o = &sched->options;
    WEFT_ASSERT(wish->op == WEFT_SESSION_SAVE || wish->op == WEFT_SESSION_RESTORE);
    wefti_sched_forecast_advance(sched, now_us);
    if (!o->prefix_cache || o->session_ttl_us == 0)
        return weft_err_set(why, WEFT_E_UNSUPPORTED, "this server keeps no sessions: %s",
                            o->session_ttl_us == 0 ? "--session-ttl is 0"
                            : o->is_recurrent && o->n_checkpoints == 0
                                ? "layers are recurrent, and --state-checkpoints is 0"
                                : "it has --no-prefix-cache");
    if (sched->n_file_ops >= WEFT_SCHED_FILES_MAX)
        return weft_err_set(why, WEFT_E_AGAIN,
                            "%d sessions are being saved or restored, which is the limit",
                            WEFT_SCHED_FILES_MAX);
    size_t n_id = wish->session_id.len, n_file = wish->file.len;
    struct file_op *op = calloc(1, sizeof *op + n_id + n_file);
    if (!op) return weft_err_set(why, WEFT_E_NOMEM, "no memory to save or restore a session");
    op->router = router;
    op->wish = *wish;
    op->wish.session_id.data = op->texts;
    op->wish.file.data = op->texts + n_id;
    memcpy(op->texts, wish->session_id.data, n_id);
    memcpy(op->texts + n_id, wish->file.data, n_file);
    TAILQ_INSERT_TAIL(&sched->file_ops, op, link);
    sched->n_file_ops++;
    return WEFT_OK;
}

bool weft_sched_session_answered(weft_sched *sched, uint32_t *router_out,
                                 struct weft_session_answer *answer_out) {
    op_free(sched, sched->told_op);
    sched->told_op = NULL;
    struct file_op *op = TAILQ_FIRST(&sched->file_ops);
    if (!op || op->stage != DONE) return false;
    take_off(sched, op);
    sched->told_op = op;
    *router_out = op->router;
    *answer_out = op->answer;
    return true;
}

/* --------------------------------------------------------------------------------- holding --- */

/* Room for the blocks of so many tokens, and a copy of these. */
static bool reserve(const weft_sched *sched, struct file_op *op, const uint32_t *tokens,
                    uint32_t n_tokens) {
    uint32_t n_blocks = n_tokens / sched->options.block_size;
    op->storage = calloc(2 * (size_t)n_blocks + n_tokens, sizeof *op->storage);
    if (!op->storage) return false;
    uint32_t *copy = op->storage + 2 * (size_t)n_blocks;
    memcpy(copy, tokens, n_tokens * sizeof *tokens);
    op->tokens = copy;
    op->n_tokens = n_tokens;
    weft_kv_table_init(&op->held.table, op->storage, n_blocks);
    weft_kv_window_table_init(&op->held.windowed, op->storage + n_blocks, n_blocks, 0);
    return true;
}

static void hold_until_written(weft_sched *sched, struct file_op *op) {
    op->stage = HELD;
    op->ready_step = sched->step;
}

/* As many tokens as the last state is of that is left; found_blocks has the table. */
static void lift_state(weft_sched *sched, struct file_op *op) {
    uint32_t n = wefti_sched_states_within(sched, op->held.table.n);
    op->n_tokens = n * sched->options.block_size;
    if (n == 0) return;
    op->state = weft_kv_checkpoints_lift(sched->checkpoints, op->held.table.blocks[n - 1]);
    op->has_state = op->is_whole = true;
}

/* Blocks may be there, but of recurrent layers no state. */
static void say_nothing_left(const weft_sched *sched, struct file_op *op, weft_err err) {
    if (op->held.table.n == 0)
        (void)weft_err_set(&op->why, err, "nothing of it is in the cache any more");
    else
        (void)weft_err_set(&op->why, err,
                           "no state of its recurrent layers is kept: they are from %u tokens on, "
                           "and give way to others",
                           sched->options.checkpoint_tokens);
}

static void begin_save(weft_sched *sched, struct file_op *op) {
    uint32_t n_tokens = 0;
    const uint32_t *tokens = wefti_sched_session_tokens(sched, op->wish.tenant, op->wish.session_id,
                                                        &n_tokens, &op->space);
    weft_err err = WEFT_E_NOTFOUND;
    if (!tokens) {
        (void)weft_err_set(&op->why, err, "there is no such session, or it was given up");
    } else if (!reserve(sched, op, tokens, n_tokens)) {
        err = weft_err_set(&op->why, WEFT_E_NOMEM, "no memory to save the session");
    } else {
        wefti_sched_prefix_hold(sched, &op->space, op->tokens, n_tokens, &op->held);
        op->n_tokens = op->held.table.n * sched->options.block_size;
        if (sched->checkpoints) lift_state(sched, op);
        err = op->n_tokens > 0 ? WEFT_OK : WEFT_E_NOTFOUND;
        if (err) say_nothing_left(sched, op, err);
    }
    if (err)
        end(sched, op, err);
    else
        hold_until_written(sched, op);
}

/* The blocks that are there are held before others are taken, and only the rest is read. */
static weft_err take_blocks(weft_sched *sched, struct file_op *op) {
    const struct weft_sched_options *o = &sched->options;
    uint32_t n_blocks = op->n_tokens / o->block_size;
    struct weft_kv_match match;
    weft_kv_prefix_find(sched->cache, &op->space, op->tokens, op->n_tokens, sched->found_blocks,
                        n_blocks, &match);
    weft_err err = weft_kv_prefix_use(sched->cache, &op->space, sched->found_blocks, match.n_blocks,
                                      &op->held.table, &op->held.chain);
    WEFT_ASSERT(!err); /* fewer holders than slots and sessions */
    op->n_found = match.n_blocks;
    while (!wefti_sched_prefix_can_spare(sched, n_blocks - match.n_blocks) ||
           !wefti_sched_window_can_spare(sched, op->n_tokens)) {
        if (!wefti_sched_sessions_give(sched)) return WEFT_E_AGAIN;
    }
    err = weft_kv_prefix_grow(sched->cache, &op->held.table, n_blocks);
    WEFT_ASSERT(!err); /* they can be spared */
    wefti_sched_window_take(sched, op->n_tokens, &op->held.windowed);
    return WEFT_OK;
}

/* False: all places of checkpoints are others'. */
static bool take_state(weft_sched *sched, struct file_op *op) {
    if (!sched->checkpoints) return true;
    op->state = weft_kv_checkpoints_take(sched->checkpoints);
    op->has_state = op->state != WEFT_KV_NONE;
    return op->has_state;
}

static weft_err take_opened(weft_sched *sched, struct file_op *op,
                            const struct weft_kv_filed *filed) {
    const struct weft_sched_options *o = &sched->options;
    uint32_t n = filed->n_tokens, n_blocks = n / o->block_size;
    if (n == 0 || n % o->block_size != 0 || n > o->max_model_len || n_blocks > sched->table_cap)
        return weft_err_set(&op->why, WEFT_E_TOOBIG,
                            "the file has a session of %u tokens, this server takes %u", n,
                            o->max_model_len);
    if (n_blocks > o->max_session_blocks)
        return weft_err_set(&op->why, WEFT_E_TOOBIG,
                            "the session takes %u blocks, sessions may have %u", n_blocks,
                            o->max_session_blocks);
    op->space = (struct weft_kv_space){filed->space_hi, filed->space_lo};
    if (!reserve(sched, op, filed->tokens, n))
        return weft_err_set(&op->why, WEFT_E_NOMEM, "no memory to restore the session");
    if (take_blocks(sched, op))
        return weft_err_set(&op->why, WEFT_E_AGAIN,
                            "no %u blocks can be spared for the session now", n_blocks);
    if (!take_state(sched, op))
        return weft_err_set(&op->why, WEFT_E_AGAIN,
                            "no checkpoint can be spared for the session's state now");
    hold_until_written(sched, op);
    return WEFT_OK;
}

/* ---------------------------------------------------------------------------------- moving --- */

static bool is_written(const weft_sched *sched, const struct file_op *op) {
    return sched->step - sched->n_out >= op->ready_step;
}

/* Blocks of full layers that were there need not be read. */
static void write_message(const weft_sched *sched, struct file_op *op, enum weft_kv_file_op what) {
    const struct weft_kv_window_table *windowed = &op->held.windowed;
    op->message = (struct weft_kv_file){.epoch = sched->epoch,
                                        .id = op->id,
                                        .op = what,
                                        .name = op->wish.file,
                                        .tenant = op->wish.tenant};
    if (what == WEFT_KV_FILE_OPEN) return;
    op->message.space_hi = op->space.hi;
    op->message.space_lo = op->space.lo;
    op->message.n_tokens = op->n_tokens;
    op->message.tokens = op->tokens;
    op->message.n_blocks[WEFT_KV_FULL] = op->n_tokens / sched->options.block_size - op->n_found;
    op->message.blocks[WEFT_KV_FULL] = op->held.table.blocks + op->n_found;
    op->message.n_blocks[WEFT_KV_WINDOWED] = windowed->n - windowed->first;
    op->message.blocks[WEFT_KV_WINDOWED] = windowed->blocks + windowed->first;
    if (!op->has_state) return;
    op->message.n_blocks[WEFT_KV_WINDOWED] = 1;
    op->message.blocks[WEFT_KV_WINDOWED] = &op->state;
}

static struct file_op *first_open(weft_sched *sched) {
    struct file_op *op = NULL;
    TAILQ_FOREACH(op, &sched->file_ops, link) {
        if (op->stage != DONE) return op;
    }
    return NULL;
}

bool weft_sched_next_file(weft_sched *sched, const struct weft_kv_file **file_out) {
    struct file_op *op = NULL;
    while ((op = first_open(sched)) && op->stage == ASKED && op->wish.op == WEFT_SESSION_SAVE)
        begin_save(sched, op); /* or it has ended, and the next one's turn is */
    bool opens = op && op->stage == ASKED, moves = op && op->stage == HELD && is_written(sched, op);
    if (!opens && !moves) return false;
    if (op->id == 0) op->id = ++sched->n_files;
    bool is_save = op->wish.op == WEFT_SESSION_SAVE;
    write_message(sched, op,
                  opens     ? WEFT_KV_FILE_OPEN
                  : is_save ? WEFT_KV_FILE_SAVE
                            : WEFT_KV_FILE_READ);
    op->stage = opens ? OPENING : MOVING;
    *file_out = &op->message;
    return true;
}

/* What was read is published as if it had been computed; then it is a session like others. */
static weft_err take_read(weft_sched *sched, struct file_op *op) {
    uint32_t bs = sched->options.block_size, n_blocks = op->n_tokens / bs;
    struct held *held = &op->held;
    while (!op->is_forgotten && held->chain.n < n_blocks && !held->chain.is_closed) {
        uint32_t idx = held->chain.n;
        (void)weft_kv_prefix_publish(sched->cache, &held->table, &held->chain,
                                     op->tokens + (size_t)idx * bs);
    }
    op->is_whole = true;
    let_go_of_state(sched, op);
    for (uint32_t i = held->windowed.first; i < held->windowed.n && i < held->chain.n; i++)
        weft_kv_windows_keep(sched->windows, held->table.blocks[i], held->windowed.blocks[i]);
    uint32_t n = wefti_sched_session_make(sched, op->wish.tenant, op->wish.session_id, op->tokens,
                                          n_blocks, &op->space);
    op->answer.n_tokens = n * bs;
    if (n > 0) return WEFT_OK;
    return weft_err_set(&op->why, WEFT_E_AGAIN, "the cache was told to forget it meanwhile");
}

weft_err weft_sched_filed(weft_sched *sched, uint64_t now_us, const struct weft_kv_filed *filed,
                          struct weft_errmsg *why) {
    wefti_sched_forecast_advance(sched, now_us);
    struct file_op *op = first_open(sched);
    bool is_awaited = op && (op->stage == OPENING || op->stage == MOVING) && op->id == filed->id;
    if (!is_awaited) return weft_err_set(why, WEFT_E_PROTO, "nobody asked for that file");
    weft_err err = filed->err;
    if (err) {
        (void)weft_err_set(&op->why, err, "%s", filed->text);
    } else if (op->stage == OPENING) {
        err = take_opened(sched, op, filed);
        if (!err) return WEFT_OK;
    } else if (op->wish.op == WEFT_SESSION_SAVE) {
        op->answer.n_tokens = op->n_tokens;
        op->answer.n_bytes = filed->n_bytes;
    } else {
        op->answer.n_bytes = filed->n_bytes;
        err = take_read(sched, op);
    }
    finish(sched, op, err);
    return WEFT_OK;
}

/* ------------------------------------------------------------------------------------ rest --- */

bool wefti_sched_files_hold(const weft_sched *sched) {
    const struct file_op *op = NULL;
    TAILQ_FOREACH(op, &sched->file_ops, link) {
        if (op->held.table.n > 0) return true;
    }
    return false;
}

void wefti_sched_files_forget(weft_sched *sched) {
    struct file_op *op = NULL;
    TAILQ_FOREACH(op, &sched->file_ops, link) {
        op->is_forgotten = true;
        op->held.chain = (struct weft_kv_chain){.space = op->space, .is_closed = true};
    }
}

/* The next router in its place numbers its questions from the same number on. */
void wefti_sched_files_orphan(weft_sched *sched, uint32_t router) {
    struct file_op *op = NULL, *next = NULL;
    for (op = TAILQ_FIRST(&sched->file_ops); op; op = next) {
        next = TAILQ_NEXT(op, link);
        if (op->router != router) continue;
        op->is_orphan = true; /* the worker ends what it has begun */
        if (op->stage == ASKED || op->stage == DONE) drop(sched, op);
    }
}

void wefti_sched_files_lost(weft_sched *sched) {
    struct file_op *op = NULL, *next = NULL;
    for (op = TAILQ_FIRST(&sched->file_ops); op; op = next) {
        next = TAILQ_NEXT(op, link);
        if (op->stage == DONE) continue;
        (void)weft_err_set(&op->why, WEFT_E_CLOSED, "the worker was lost meanwhile, try again");
        finish(sched, op, WEFT_E_CLOSED);
    }
}

void wefti_sched_files_fini(weft_sched *sched) {
    struct file_op *op = NULL, *next = NULL;
    for (op = TAILQ_FIRST(&sched->file_ops); op; op = next) {
        next = TAILQ_NEXT(op, link);
        drop(sched, op);
    }
    op_free(sched, sched->told_op);
}

uint32_t wefti_sched_files_n_states(const weft_sched *sched) {
    const struct file_op *op = NULL;
    uint32_t n = 0;
    TAILQ_FOREACH(op, &sched->file_ops, link) {
        n += op->has_state;
    }
    return n;
}

uint64_t wefti_sched_files_check(const weft_sched *sched, uint64_t *n_windowed) {
    uint64_t n_blocks = 0;
    uint32_t n_ops = 0;
    const struct file_op *op = NULL;
    TAILQ_FOREACH(op, &sched->file_ops, link) {
        n_ops++;
        WEFT_ASSERT(op->stage == HELD || op->stage == MOVING || op->held.table.n == 0);
        n_blocks += op->held.table.n;
        *n_windowed += op->held.windowed.n - op->held.windowed.first;
        weft_kv_prefix_check_chain(sched->cache, &op->held.table, &op->held.chain);
    }
    WEFT_ASSERT(n_ops == sched->n_file_ops);
    return n_blocks;
}
