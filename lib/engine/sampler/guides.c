/* Three threads and one lock. Under the lock are lists, counts and pointers; grammars and the states
 * of runs are touched by whoever has them: the compiling thread until a grammar is ready, then a
 * masking thread while the grammar is busy, until nobody uses it.
 *
 * A mask takes microseconds, mostly; of some grammars it takes up to a bound that is ten thousand times as
 * much. So there are two lanes: once anything of a grammar took long, all of it is for the slow one, until
 * it took little many times in a row, and masks of other grammars come as if it were not there. */
#include "sampler/guides.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

#define NO_TOKEN UINT32_MAX
#define COMPILER_NICE 5 /* steps come first */
#define SLOW_NICE 5
#define SLOW_US 10000u /* of a CPU: a step waits so long */
#define QUICK_US (SLOW_US / 10)
#define QUICK_TIMES 32u
#define NEWEST 8u
#define PIECE 32u /* tokens that a run takes, if they take no time, before others have their turn */

enum grammar_state { QUEUED, COMPILING, READY, FAILED };
enum lane { FAST, SLOW, N_LANES };

struct grammar {
    TAILQ_ENTRY(grammar) entry; /* the one used longest ago first */
    enum grammar_state state;
    uint32_t n_runs;
    struct weft_grammar wish;
    char *text;
    weft_gram *gram;  /* READY */
    uint32_t n_quick; /* times in a row */
    enum lane lane;   /* whose thread makes its masks, */
    bool is_busy;     /* and is at it, or ends a run */
    bool has_lacked_memory;
    size_t bytes; /* when last measured */
};

/* That a grammar is wanted before a run has it. */
struct prepared {
    TAILQ_ENTRY(prepared) entry; /* in the order of their coming */
    struct weft_eng_ticket ticket;
    struct grammar *grammar; /* it counts as a run of this one */
};

struct wefti_guide_run {
    TAILQ_ENTRY(wefti_guide_run) entry; /* the one advanced longest ago first */
    struct grammar *grammar;
    bool has_ended, has_failed;
    uint32_t *tokens; /* those that the masking thread has not taken */
    uint32_t n_tokens, cap_tokens;
    uint32_t *stop_tokens;
    uint32_t n_stop_tokens;
    bool is_ready; /* the mask is that after all tokens */
    /* The masking thread's, until is_ready. */
    weft_gram_state *state;
    size_t bytes;       /* of the state, when last measured */
    bool has_begun;     /* it has taken a token */
    uint32_t n_thought; /* tokens within thoughts, up to */
    uint32_t n_thought_max;
    bool may_end, is_empty;
    bool is_free; /* any token may come: there is no mask, */
    bool is_over; /* nor will there be one */
    uint64_t *mask;
    bool may_force;
    uint32_t *unforced;
    uint32_t n_unforced;
    uint32_t forced[1 + WEFT_FORCED_MAX], n_forced; /* taken, and not accepted */
};

/* Special tokens around thoughts, which mean the same as their texts there; NO_TOKEN: these are plain text. */
struct marks {
    uint32_t begin, end;
    /* What an end mark goes on with, by its bytes that are there: the longest token that spells no
     * more than the rest. */
    uint32_t rest[WEFT_MARK_BYTES_MAX], rest_bytes[WEFT_MARK_BYTES_MAX];
};

struct wefti_guides {
    char *path;
    uint32_t n_vocab;
    cpu_set_t cpus;
    bool has_cpus;

    pthread_mutex_t lock;
    pthread_cond_t to_compile, to_mask, ready;
    bool has_compiler, has_maskers[N_LANES], is_ending;
    pthread_t compiler, maskers[N_LANES];
    TAILQ_HEAD(grammars, grammar) grammars;
    TAILQ_HEAD(, wefti_guide_run) runs;
    TAILQ_HEAD(, prepared) prepared;
    uint32_t n_grammars;
    size_t n_bytes; /* of all grammars */
    size_t kept_bytes_max, bytes_max;
    uint64_t n_turns; /* of any thread */
    uint64_t quiet_until_ms;

    /* The compiling thread's, until the first grammar is ready; then nobody changes them. */
    weft_tokenizer *tok;
    weft_gram_vocab *vocab;
    struct marks marks[WEFT_MARKS_COUNT];
};

static void lock(wefti_guides *guides) {
    int failed = pthread_mutex_lock(&guides->lock);
    WEFT_ASSERT(!failed);
}

static void unlock(wefti_guides *guides) {
    int failed = pthread_mutex_unlock(&guides->lock);
    WEFT_ASSERT(!failed);
}

/* ------------------------------------------------------------------------------- grammars --- */

static bool is_same(const struct weft_grammar *a, const struct weft_grammar *b) {
    return a->kind == b->kind && a->thinking == b->thinking && a->marks == b->marks &&
           a->json_blanks == b->json_blanks && a->json_digits == b->json_digits &&
           a->n_bytes == b->n_bytes &&
           (a->n_bytes == 0 || memcmp(a->text, b->text, a->n_bytes) == 0);
}

static void grammar_free(struct grammar *grammar) {
    if (!grammar) return;
    weft_gram_free(grammar->gram);
    free(grammar->text);
    free(grammar);
}

/* Locked. The newest stay as long as there is room: somebody who was told of them may be about to start, and
 * would have to wait for another compilation. One that failed for want of memory is tried anew. */
static void drop_unused(wefti_guides *guides) {
    struct grammar *grammar, *next;
    uint32_t n_left = guides->n_grammars;
    for (grammar = TAILQ_FIRST(&guides->grammars); grammar; grammar = next) {
        next = TAILQ_NEXT(grammar, entry);
        bool is_newest = n_left-- <= NEWEST;
        bool is_over = guides->n_bytes > guides->bytes_max || grammar->has_lacked_memory;
        if (!is_newest)
            is_over = is_over || guides->n_grammars > WEFTI_GUIDES_KEPT_MAX ||
                      guides->n_bytes > guides->kept_bytes_max;
        if (!is_over || grammar->n_runs > 0 || grammar->state < READY) continue;
        TAILQ_REMOVE(&guides->grammars, grammar, entry);
        guides->n_grammars--;
        guides->n_bytes -= grammar->bytes;
        grammar_free(grammar);
    }
}

/* Locked. */
static void measure(wefti_guides *guides, struct grammar *grammar) {
    size_t bytes = weft_gram_bytes(grammar->gram);
    guides->n_bytes += bytes - grammar->bytes;
    grammar->bytes = bytes;
}

/* Locked. */
static void measure_run(wefti_guides *guides, wefti_guide_run *run) {
    size_t bytes = run->state && !run->has_ended ? weft_gram_state_bytes(run->state) : 0;
    guides->n_bytes += bytes - run->bytes;
    run->bytes = bytes;
}

static struct grammar *grammar_new(const struct weft_grammar *wish) {
    struct grammar *grammar = calloc(1, sizeof *grammar);
    char *text = malloc(wish->n_bytes + 1);
    if (!grammar || !text) {
        free(grammar);
        free(text);
        return NULL;
    }
    if (wish->n_bytes > 0) memcpy(text, wish->text, wish->n_bytes);
    *grammar = (struct grammar){.wish = *wish, .text = text};
    grammar->wish.text = text;
    return grammar;
}

/* Locked. The newest are looked at first; those that wait are compiled in the order of their coming. NULL:
 * no memory. */
static struct grammar *take_grammar(wefti_guides *guides, const struct weft_grammar *wish) {
    struct grammar *grammar;
    TAILQ_FOREACH_REVERSE(grammar, &guides->grammars, grammars, entry) {
        if (is_same(&grammar->wish, wish)) break;
    }
    bool is_new = !grammar;
    if (is_new) grammar = grammar_new(wish);
    if (!grammar) return NULL;
    if (is_new) guides->n_grammars++;
    if (!is_new && grammar->state >= READY) TAILQ_REMOVE(&guides->grammars, grammar, entry);
    if (is_new || grammar->state >= READY) TAILQ_INSERT_TAIL(&guides->grammars, grammar, entry);
    grammar->n_runs++;
    return grammar;
}

static void note_mark(wefti_guides *guides, uint32_t id, struct weft_str token) {
    for (int i = 0; i < WEFT_MARKS_COUNT; i++) {
        struct weft_mark_texts texts = weft_grammar_mark_texts((enum weft_grammar_marks)i);
        if (weft_str_is(token, texts.begin.data, texts.begin.len)) guides->marks[i].begin = id;
        if (weft_str_is(token, texts.end.data, texts.end.len)) guides->marks[i].end = id;
    }
}

/* A token that is no special one. */
static void note_rests(wefti_guides *guides, uint32_t id, struct weft_str token) {
    for (int i = 0; i < WEFT_MARKS_COUNT; i++) {
        struct weft_str end = weft_grammar_mark_texts((enum weft_grammar_marks)i).end;
        struct marks *marks = &guides->marks[i];
        for (size_t at = 0; at < end.len && token.len > 0; at++) {
            if (token.len <= marks->rest_bytes[at] || token.len > end.len - at ||
                memcmp(end.data + at, token.data, token.len) != 0)
                continue;
            marks->rest[at] = id;
            marks->rest_bytes[at] = (uint32_t)token.len;
        }
    }
}

static weft_err open_vocab(wefti_guides *guides, struct weft_errmsg *why) {
    if (guides->vocab) return WEFT_OK;
    weft_err err = guides->tok ? WEFT_OK : weft_tok_open(guides->path, &guides->tok, why);
    if (err) return err;
    uint32_t n = weft_tok_vocab_size(guides->tok);
    struct weft_str *tokens = calloc((size_t)guides->n_vocab + 1, sizeof *tokens);
    bool *is_special = calloc((size_t)guides->n_vocab + 1, sizeof *is_special);
    err = tokens && is_special ? WEFT_OK : WEFT_E_NOMEM;
    for (uint32_t id = 0; id < guides->n_vocab && id < n && !err; id++) {
        tokens[id].data = weft_tok_token_bytes(guides->tok, id, &tokens[id].len);
        is_special[id] = weft_tok_is_special(guides->tok, id);
        if (is_special[id])
            note_mark(guides, id, tokens[id]);
        else
            note_rests(guides, id, tokens[id]);
    }
    if (!err)
        err = weft_gram_vocab_with_special(tokens, is_special, guides->n_vocab, &guides->vocab);
    free(tokens);
    free(is_special);
    return err ? weft_err_set(why, err, "no vocabulary for grammars: %s", weft_err_text(err)) : err;
}

/* Locked. Whoever asked for it hears so. */
static void tell_prepared(wefti_guides *guides, const struct grammar *grammar) {
    const struct prepared *it = NULL;
    TAILQ_FOREACH(it, &guides->prepared, entry) {
        if (it->grammar != grammar) continue;
        (void)eventfd_write(it->ticket.wake_fd, 1); /* fails if the counter is full: fine, too */
    }
}

/* What this thread has had of a CPU. */
static uint64_t thread_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Locked. */
static void note_time(struct grammar *grammar, uint64_t took_us) {
    grammar->n_quick = took_us < QUICK_US ? grammar->n_quick + 1 : 0;
    if (took_us >= SLOW_US) grammar->lane = SLOW;
    if (grammar->n_quick >= QUICK_TIMES) grammar->lane = FAST;
}

static void *compiler_main(void *arg) {
    wefti_guides *guides = arg;
    (void)setpriority(PRIO_PROCESS, 0, COMPILER_NICE); /* of this thread alone, on Linux */
    lock(guides);
    while (!guides->is_ending) {
        struct grammar *grammar;
        TAILQ_FOREACH(grammar, &guides->grammars, entry) {
            if (grammar->state == QUEUED) break;
        }
        if (!grammar) {
            (void)pthread_cond_wait(&guides->to_compile, &guides->lock);
            continue;
        }
        grammar->state = COMPILING;
        unlock(guides);
        struct weft_errmsg why = {""};
        weft_err err = open_vocab(guides, &why);
        if (!err) err = weft_gram_compile(&grammar->wish, &grammar->gram, &why);
        if (err) weft_warn("a grammar that the router took does not compile: %s", why.text);
        /* What fails here fails again in a run, which says so. */
        uint64_t begin_us = thread_us();
        if (!err && weft_gram_warm_up(grammar->gram, guides->vocab))
            weft_debug("no mask of a new grammar");
        lock(guides);
        guides->n_turns++;
        note_time(grammar, thread_us() - begin_us);
        grammar->state = err ? FAILED : READY;
        grammar->has_lacked_memory = err == WEFT_E_NOMEM;
        if (!err) measure(guides, grammar);
        tell_prepared(guides, grammar);
        (void)pthread_cond_broadcast(&guides->to_mask);
        drop_unused(guides);
    }
    unlock(guides);
    return NULL;
}

/* ---------------------------------------------------------------------------------- masks --- */

static void run_free(wefti_guide_run *run) {
    if (!run) return;
    weft_gram_state_free(run->state);
    free(run->tokens);
    free(run->stop_tokens);
    free(run->unforced);
    free(run->mask);
    free(run);
}

static bool has_bit(const uint64_t *mask, uint32_t n_words) {
    uint64_t any = 0;
    for (uint32_t i = 0; i < n_words; i++)
        any |= mask[i];
    return any != 0;
}

/* NO_TOKEN: there is none, or there are several. */
static uint32_t only_bit(const uint64_t *mask, uint32_t n_words) {
    uint32_t only = NO_TOKEN;
    for (uint32_t i = 0; i < n_words; i++) {
        if (mask[i] == 0) continue;
        if (only != NO_TOKEN || (mask[i] & (mask[i] - 1)) != 0) return NO_TOKEN;
        only = 64 * i + (uint32_t)__builtin_ctzll(mask[i]);
    }
    return only;
}

/* The special token that may begin or end the thinking here; NO_TOKEN: none. */
static uint32_t mark_here(const wefti_guides *guides, const wefti_guide_run *run) {
    const struct marks *marks = &guides->marks[run->grammar->wish.marks];
    enum weft_gram_phase phase = weft_gram_phase(run->state);
    if (phase == WEFT_GRAM_THINKS) return marks->end;
    return phase == WEFT_GRAM_BEGINS && !run->has_begun ? marks->begin : NO_TOKEN;
}

static weft_err take_token(wefti_guides *guides, wefti_guide_run *run, uint32_t token) {
    struct weft_str text;
    text.data = weft_tok_token_bytes(guides->tok, token, &text.len);
    bool is_special = weft_tok_is_special(guides->tok, token) && token != mark_here(guides, run);
    run->n_thought += weft_gram_phase(run->state) == WEFT_GRAM_THINKS;
    weft_err err = is_special ? weft_gram_take_special(run->state, text)
                              : weft_gram_take(run->state, text.data, text.len);
    run->has_begun = true;
    return err;
}

/* As many as there are, but no more once the turn has lasted. */
static weft_err take_tokens(wefti_guides *guides, wefti_guide_run *run, const uint32_t *tokens,
                            uint32_t n, uint32_t *n_taken_out) {
    uint64_t begin_us = thread_us();
    uint32_t i = 0;
    weft_err err = WEFT_OK;
    if (!run->state) err = weft_gram_state_new(run->grammar->gram, &run->state);
    while (i < n && !err && (i == 0 || thread_us() - begin_us < SLOW_US)) {
        err = take_token(guides, run, tokens[i]);
        i++;
    }
    *n_taken_out = i;
    return err;
}

/* Once there were as many thoughts as there may be: what they end with. A token that is all of the mark is best, as
 * the model knows it, else the mark is spelled, or what is left of it. NO_TOKEN: thoughts go on, or
 * nothing spells it. */
static uint32_t thoughts_end(const wefti_guides *guides, const wefti_guide_run *run) {
    const struct marks *marks = &guides->marks[run->grammar->wish.marks];
    size_t len = weft_grammar_mark_texts(run->grammar->wish.marks).end.len;
    if (weft_gram_phase(run->state) != WEFT_GRAM_THINKS || run->n_thought < run->n_thought_max)
        return NO_TOKEN;
    if (marks->end < guides->n_vocab) return marks->end;
    if (marks->rest_bytes[0] == len) return marks->rest[0];
    return marks->rest[weft_gram_mark_under_way(run->state)];
}

static void allow(wefti_guide_run *run, uint32_t token) {
    run->mask[token / 64] |= (uint64_t)1 << (token % 64);
}

/* What the grammar allows, and where it may end the tokens that say so. */
static weft_err make_own_mask(wefti_guides *guides, wefti_guide_run *run) {
    weft_err err = weft_gram_mask(run->state, guides->vocab, run->mask);
    if (err) return err;
    uint32_t n_tok = weft_tok_vocab_size(guides->tok);
    for (uint32_t i = 0; i < run->n_stop_tokens && run->may_end; i++) {
        uint32_t token = run->stop_tokens[i];
        if (token < guides->n_vocab && (token >= n_tok || weft_tok_is_special(guides->tok, token)))
            allow(run, token);
    }
    uint32_t mark = mark_here(guides, run);
    if (mark < guides->n_vocab) allow(run, mark);
    return WEFT_OK;
}

static weft_err make_mask(wefti_guides *guides, wefti_guide_run *run) {
    size_t n_words = weft_gram_mask_words(guides->n_vocab);
    uint32_t end = thoughts_end(guides, run);
    if (!run->mask) run->mask = calloc(n_words + 1, sizeof *run->mask);
    if (!run->mask) return WEFT_E_NOMEM;
    run->may_end = weft_gram_may_end(run->state);
    run->is_free = end == NO_TOKEN && weft_gram_is_text(run->grammar->gram);
    run->is_over = run->is_free && weft_gram_phase(run->state) == WEFT_GRAM_ANSWERS;
    if (end != NO_TOKEN || run->is_free)
        memset(run->mask, run->is_free ? 0xff : 0, n_words * sizeof *run->mask);
    weft_err err = WEFT_OK;
    if (end != NO_TOKEN)
        allow(run, end);
    else if (!run->is_free)
        err = make_own_mask(guides, run);
    run->is_empty = !has_bit(run->mask, (uint32_t)n_words);
    return err;
}

static bool may_be_forced(const wefti_guide_run *run, uint32_t token) {
    for (uint32_t i = 0; i < run->n_unforced; i++) {
        if (run->unforced[i] == token) return false;
    }
    return token != NO_TOKEN;
}

/* Goes on with tokens that come alone, as long as they take little. Those before an error are fine. */
static weft_err take_forced(wefti_guides *guides, wefti_guide_run *run, uint64_t begin_us) {
    uint32_t n_words = (uint32_t)weft_gram_mask_words(guides->n_vocab), n_taken;
    weft_err err = WEFT_OK;
    while (run->may_force && !run->is_free && run->n_forced <= WEFT_FORCED_MAX && !err &&
           thread_us() - begin_us < QUICK_US) {
        uint32_t token = only_bit(run->mask, n_words);
        if (!may_be_forced(run, token)) break;
        run->forced[run->n_forced++] = token;
        err = take_tokens(guides, run, &token, 1, &n_taken);
        if (!err) err = make_mask(guides, run);
    }
    return err;
}

/* Locked, but not while it waits for whoever reads the log. */
static void tell_of_bound(wefti_guides *guides) {
    const size_t n_bytes = guides->n_bytes;
    const enum weft_log_level level =
        weft_log_rarely(WEFT_LOG_WARN, weft_now_ms(), &guides->quiet_until_ms);
    unlock(guides);
    weft_log(
        level,
        "the grammars in use take %zu KiB, over the %zu KiB that there are for them "
        "(--request-memory, or a part of --memory-limit; 1 GiB at most): the sequence that one of "
        "them grew for ends",
        n_bytes >> 10, guides->bytes_max >> 10);
    lock(guides);
}

/* Locked, but not while it works. A long output is taken piece by piece, with the others in between. */
static void advance(wefti_guides *guides, wefti_guide_run *run) {
    uint32_t tokens[PIECE], n = weft_min_u32(run->n_tokens, PIECE), n_taken = 0;
    if (n > 0) memcpy(tokens, run->tokens, n * sizeof *tokens);
    bool is_last = run->n_tokens == n, is_over = false;
    uint64_t begin_us = thread_us();
    run->grammar->is_busy = true;
    unlock(guides);
    weft_err err = take_tokens(guides, run, tokens, n, &n_taken);
    is_last = is_last && n_taken == n;
    if (!err && is_last) err = make_mask(guides, run);
    if (!err && is_last) err = take_forced(guides, run, begin_us);
    lock(guides);
    run->n_tokens -= n_taken; /* more may have come behind them */
    if (run->n_tokens > 0)
        memmove(run->tokens, run->tokens + n_taken, run->n_tokens * sizeof *run->tokens);
    TAILQ_REMOVE(&guides->runs, run, entry);
    TAILQ_INSERT_TAIL(&guides->runs, run, entry);
    guides->n_turns++;
    note_time(run->grammar, thread_us() - begin_us);
    measure(guides, run->grammar);
    measure_run(guides, run);
    if (guides->n_bytes > guides->bytes_max) {
        drop_unused(guides);
        is_over = guides->n_bytes > guides->bytes_max;
    }
    if (is_over) err = WEFT_E_TOOBIG;
    run->has_failed = run->has_failed || err != WEFT_OK;
    run->is_ready = is_last && run->n_tokens == 0;
    (void)pthread_cond_broadcast(&guides->ready);
    if (is_over) tell_of_bound(guides);
}

/* Locked, but not while it works. */
static void end_run(wefti_guides *guides, wefti_guide_run *run) {
    struct grammar *grammar = run->grammar;
    TAILQ_REMOVE(&guides->runs, run, entry);
    measure_run(guides, run);
    grammar->is_busy = true;
    unlock(guides);
    run_free(run);
    lock(guides);
    grammar->is_busy = false;
    grammar->n_runs--;
    drop_unused(guides);
    (void)pthread_cond_broadcast(&guides->to_mask); /* the other lane may have passed it over */
}

/* Locked. Whether there was anything to do for it. */
static bool look_at(wefti_guides *guides, wefti_guide_run *run, enum lane lane) {
    struct grammar *grammar = run->grammar;
    if (grammar->lane != lane || grammar->is_busy) return false;
    if (run->has_ended) {
        end_run(guides, run);
        return true;
    }
    if (run->is_ready || run->has_failed) return false;
    if (grammar->state == FAILED) {
        run->has_failed = true;
        (void)pthread_cond_broadcast(&guides->ready);
        return true;
    }
    if (grammar->state != READY) return false;
    advance(guides, run);
    grammar->is_busy = false;
    if (grammar->lane != lane) (void)pthread_cond_broadcast(&guides->to_mask);
    return true;
}

static void make_masks(wefti_guides *guides, enum lane lane) {
    lock(guides);
    while (!guides->is_ending) {
        bool did_something = false;
        wefti_guide_run *run;
        TAILQ_FOREACH(run, &guides->runs, entry) {
            did_something = look_at(guides, run, lane);
            if (did_something) break; /* the list may be another one now */
        }
        if (!did_something) (void)pthread_cond_wait(&guides->to_mask, &guides->lock);
    }
    unlock(guides);
}

static void *fast_main(void *arg) {
    make_masks(arg, FAST);
    return NULL;
}

static void *slow_main(void *arg) {
    (void)setpriority(PRIO_PROCESS, 0, SLOW_NICE); /* of this thread alone */
    make_masks(arg, SLOW);
    return NULL;
}

/* -------------------------------------------------------------------------------- the owner --- */

static void clear_marks(struct marks *marks) {
    *marks = (struct marks){.begin = NO_TOKEN, .end = NO_TOKEN};
    for (int i = 0; i < WEFT_MARK_BYTES_MAX; i++)
        marks->rest[i] = NO_TOKEN;
}

weft_err wefti_guides_new(const char *path, uint32_t n_vocab, uint64_t bytes_max,
                          wefti_guides **guides_out) {
    *guides_out = NULL;
    wefti_guides *guides = calloc(1, sizeof *guides);
    char *copy = strdup(path);
    if (!guides || !copy) {
        free(guides);
        free(copy);
        return WEFT_E_NOMEM;
    }
    guides->path = copy;
    guides->n_vocab = n_vocab;
    guides->bytes_max =
        bytes_max ? weft_min_u64(bytes_max, WEFTI_GUIDES_BYTES_MAX) : WEFTI_GUIDES_BYTES_MAX;
    guides->kept_bytes_max = weft_min_u64(guides->bytes_max, WEFTI_GUIDES_KEPT_BYTES);
    for (int i = 0; i < WEFT_MARKS_COUNT; i++)
        clear_marks(&guides->marks[i]);
    guides->has_cpus = sched_getaffinity(0, sizeof guides->cpus, &guides->cpus) == 0;
    TAILQ_INIT(&guides->grammars);
    TAILQ_INIT(&guides->runs);
    TAILQ_INIT(&guides->prepared);
    pthread_condattr_t monotonic;
    int failed =
        pthread_condattr_init(&monotonic) ||
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) ||
        pthread_mutex_init(&guides->lock, NULL) || pthread_cond_init(&guides->to_compile, NULL) ||
        pthread_cond_init(&guides->to_mask, NULL) ||
        pthread_cond_init(&guides->ready, &monotonic) || pthread_condattr_destroy(&monotonic);
    WEFT_ASSERT(!failed); /* here it only fails for bad attributes */
    *guides_out = guides;
    return WEFT_OK;
}

/* Its CPUs are those of the process: the thread that steps is pinned to one of them. */
static bool start_thread(wefti_guides *guides, pthread_t *thread, void *(*run)(void *arg),
                         const char *name) {
    if (pthread_create(thread, NULL, run, guides)) return false;
    (void)pthread_setname_np(*thread, name);
    if (guides->has_cpus) (void)pthread_setaffinity_np(*thread, sizeof guides->cpus, &guides->cpus);
    return true;
}

static void end_thread(wefti_guides *guides, pthread_t thread) {
    lock(guides);
    guides->is_ending = true;
    (void)pthread_cond_broadcast(&guides->to_compile);
    (void)pthread_cond_broadcast(&guides->to_mask);
    unlock(guides);
    (void)pthread_join(thread, NULL);
}

/* Locked. Where there is no thread now there may be one for the next grammar. */
static bool start_threads(wefti_guides *guides) {
    if (!guides->has_compiler)
        guides->has_compiler =
            start_thread(guides, &guides->compiler, compiler_main, "weft-grammar");
    if (!guides->has_maskers[FAST])
        guides->has_maskers[FAST] =
            start_thread(guides, &guides->maskers[FAST], fast_main, "weft-mask");
    if (!guides->has_maskers[SLOW])
        guides->has_maskers[SLOW] =
            start_thread(guides, &guides->maskers[SLOW], slow_main, "weft-mask-slow");
    return guides->has_compiler && guides->has_maskers[FAST] && guides->has_maskers[SLOW];
}

void wefti_guides_free(wefti_guides *guides) {
    if (!guides) return;
    if (guides->has_compiler) end_thread(guides, guides->compiler);
    for (int lane = 0; lane < N_LANES; lane++) {
        if (guides->has_maskers[lane]) end_thread(guides, guides->maskers[lane]);
    }
    wefti_guide_run *run;
    while ((run = TAILQ_FIRST(&guides->runs))) {
        TAILQ_REMOVE(&guides->runs, run, entry);
        run_free(run);
    }
    struct prepared *prepared;
    while ((prepared = TAILQ_FIRST(&guides->prepared))) {
        TAILQ_REMOVE(&guides->prepared, prepared, entry);
        free(prepared);
    }
    struct grammar *grammar;
    while ((grammar = TAILQ_FIRST(&guides->grammars))) {
        TAILQ_REMOVE(&guides->grammars, grammar, entry);
        grammar_free(grammar);
    }
    weft_gram_vocab_free(guides->vocab);
    weft_tok_free(guides->tok);
    (void)pthread_cond_destroy(&guides->ready);
    (void)pthread_cond_destroy(&guides->to_mask);
    (void)pthread_cond_destroy(&guides->to_compile);
    (void)pthread_mutex_destroy(&guides->lock);
    free(guides->path);
    free(guides);
}

bool wefti_guides_prepare(wefti_guides *guides, const struct weft_eng_ticket *ticket,
                          const struct weft_grammar *wish) {
    struct prepared *it = calloc(1, sizeof *it);
    if (!it) return false;
    it->ticket = *ticket;
    lock(guides);
    if (start_threads(guides)) it->grammar = take_grammar(guides, wish);
    bool is_taken = it->grammar != NULL;
    if (is_taken) {
        TAILQ_INSERT_TAIL(&guides->prepared, it, entry);
        if (it->grammar->state >= READY) tell_prepared(guides, it->grammar);
        (void)pthread_cond_signal(&guides->to_compile);
    }
    unlock(guides);
    if (!is_taken) free(it);
    return is_taken;
}

bool wefti_guides_next_prepared(wefti_guides *guides, struct weft_eng_ticket *ticket_out) {
    struct prepared *it;
    lock(guides);
    TAILQ_FOREACH(it, &guides->prepared, entry) {
        if (it->grammar->state >= READY) break;
    }
    if (it) {
        *ticket_out = it->ticket;
        TAILQ_REMOVE(&guides->prepared, it, entry);
        it->grammar->n_runs--;
        drop_unused(guides);
    }
    unlock(guides);
    free(it);
    return it != NULL;
}

/* NULL where there are none; *failed_out: no memory. */
static uint32_t *copy_tokens(const uint32_t *tokens, uint32_t n, bool *failed_out) {
    if (n == 0) return NULL;
    uint32_t *copy = malloc(n * sizeof *copy);
    if (copy)
        memcpy(copy, tokens, n * sizeof *copy);
    else
        *failed_out = true;
    return copy;
}

wefti_guide_run *wefti_guides_start(wefti_guides *guides, const struct wefti_guide_start *start) {
    wefti_guide_run *run = calloc(1, sizeof *run);
    if (!run) return NULL;
    bool failed = false;
    run->tokens = copy_tokens(start->output, start->n_output, &failed);
    run->n_tokens = run->cap_tokens = start->n_output;
    run->stop_tokens = copy_tokens(start->stop_tokens, start->n_stop_tokens, &failed);
    run->n_stop_tokens = start->n_stop_tokens;
    run->unforced = copy_tokens(start->unforced, start->n_unforced, &failed);
    run->n_unforced = start->n_unforced;
    run->may_force = start->may_force;
    run->n_thought_max = start->thinking_token_budget;
    lock(guides);
    if (!failed && start_threads(guides)) run->grammar = take_grammar(guides, start->grammar);
    if (run->grammar) {
        TAILQ_INSERT_TAIL(&guides->runs, run, entry);
        (void)pthread_cond_signal(&guides->to_compile);
        (void)pthread_cond_broadcast(&guides->to_mask);
    }
    unlock(guides);
    if (run->grammar) return run;
    run_free(run);
    return NULL;
}

bool wefti_guides_add(wefti_guides *guides, wefti_guide_run *run, uint32_t token) {
    lock(guides);
    if (run->is_ready && run->is_over) {
        unlock(guides);
        return true;
    }
    if (run->n_tokens == run->cap_tokens) {
        uint32_t cap = run->cap_tokens ? 2 * run->cap_tokens : 4;
        uint32_t *tokens = realloc(run->tokens, cap * sizeof *tokens);
        if (tokens) {
            run->tokens = tokens;
            run->cap_tokens = cap;
        }
    }
    bool has_room = run->n_tokens < run->cap_tokens;
    if (has_room)
        run->tokens[run->n_tokens++] = token;
    else
        run->has_failed = true;
    run->is_ready = false;
    (void)pthread_cond_broadcast(&guides->to_mask);
    unlock(guides);
    return has_room;
}

uint64_t wefti_guides_n_turns(wefti_guides *guides) {
    lock(guides);
    uint64_t n = guides->n_turns;
    unlock(guides);
    return n;
}

void wefti_guides_accept(wefti_guides *guides, wefti_guide_run *run) {
    lock(guides);
    run->n_forced = 0;
    unlock(guides);
}

void wefti_guides_end(wefti_guides *guides, wefti_guide_run *run) {
    if (!run) return;
    lock(guides);
    run->has_ended = true;
    (void)pthread_cond_broadcast(&guides->to_mask);
    unlock(guides);
}

bool wefti_guides_await(wefti_guides *guides, wefti_guide_run *run, uint32_t wait_ms_max,
                        struct wefti_guide *guide_out) {
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(wait_ms_max % 1000) * 1000000;
    until.tv_sec += wait_ms_max / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int failed = 0;
    lock(guides);
    while (!run->is_ready && !run->has_failed && !failed)
        failed = pthread_cond_timedwait(&guides->ready, &guides->lock, &until);
    bool is_known = run->is_ready || run->has_failed;
    *guide_out = (struct wefti_guide){0}; /* what is not known yet is the masking thread's */
    if (is_known)
        *guide_out = (struct wefti_guide){
            .mask = run->has_failed ? NULL : run->mask,
            .may_end = run->may_end,
            .is_empty = run->is_empty,
            .is_free = run->is_free,
            .forced = run->forced,
            .n_forced = run->n_forced,
        };
    unlock(guides);
    return is_known;
}
