#include "property/faults/wire.h"

#include <nng/nng.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/check.h"
#include "inside/link/conn.h"

#define ROOM ((size_t)256 << 10) /* bytes under way in one direction */
#define NOTICED_US 1000000u      /* a lost piece is noticed so soon, or the stream is cut */
#define HANDSHAKE_US 2999000u    /* lib/link waits so long for one, give or take a millisecond */

/* ------------------------------------------------------------------------------------ state --- */

struct nng_aio {
    SLIST_ENTRY(nng_aio) all;
    struct sim_proc *owner;
    void (*callback)(void *);
    void *arg;
    bool is_freed, is_pending;
    uint64_t n_asked; /* operations, so that a callback knows that it is not an earlier one's */
    nng_iov iov;
    int result;
    size_t count;
    nng_stream *output;
};

struct piece {
    STAILQ_ENTRY(piece) entry;
    uint64_t at_us;
    size_t len, at;
    bool is_end;
    unsigned char bytes[];
};

struct pair {
    SLIST_ENTRY(pair) all;
    struct nng_stream *ends[2]; /* the dialler's, the listener's */
    bool is_excused;            /* a fault hit it: whoever sees that ends it */
    bool may_end[2];            /* what the other end did is reason enough for this one */
    uint64_t since_us;
    bool is_slow;      /* its handshake: something came late, or somebody stood still for a while */
    uint32_t n_said;   /* pieces that the dialler sent; the second one follows the answer */
    bool is_broken;    /* a piece was lost, doubled or overtaken */
    bool has_answered; /* the listener: it is a session */
    bool is_over;
    uint64_t silent_until_us;
};

struct nng_stream {
    struct sim_proc *owner;
    struct pair *pair;
    struct nng_stream *peer;
    bool is_closed, has_seen_end;
    nng_aio *receiving, *sending;
    STAILQ_HEAD(, piece) coming; /* to this end */
    size_t n_coming;
    uint64_t last_at_us;
    bool is_within;          /* the last piece ended within a frame, or so it seems */
    struct piece *overtaken; /* waits for the next one to pass */
};

struct nng_stream_dialer {
    SLIST_ENTRY(nng_stream_dialer) all;
    struct sim_proc *owner;
    char url[64];
    bool is_closed;
};

struct nng_stream_listener {
    SLIST_ENTRY(nng_stream_listener) all;
    struct sim_proc *owner;
    char url[64];
    bool is_listening;
    nng_aio *accepting;
    nng_stream *backlog[64];
    uint32_t n_backlog;
};

static struct {
    struct sim_proc *owner;
    struct wire_odds odds;
    uint64_t n_ended;
    SLIST_HEAD(, nng_aio) aios;
    SLIST_HEAD(, pair) pairs;
    SLIST_HEAD(, nng_stream_dialer) dialers;
    SLIST_HEAD(, nng_stream_listener) listeners;
} wire;

static void *need(void *mem) {
    WEFT_ASSERT(mem);
    return mem;
}

static uint64_t latency_us(void) {
    return sim_between(20, 200);
}

/* --------------------------------------------------------------------------- asynchronous I/O --- */

static void call_back(void *context, uint64_t n_asked) {
    nng_aio *aio = context;
    if (aio->is_freed || aio->n_asked != n_asked || !aio->owner->is_alive) return;
    if (sim_is_stopped(aio->owner)) {
        sim_at(aio->owner->stopped_until_us, call_back, aio, n_asked);
        return;
    }
    wire.owner = aio->owner;
    aio->callback(aio->arg);
    sim_wake(aio->owner, sim_now_us() + sim_dice(20));
}

static void begin(nng_aio *aio) {
    WEFT_ASSERT(!aio->is_pending);
    aio->is_pending = true;
    aio->n_asked++;
    aio->result = 0;
    aio->count = 0;
}

static void finish(nng_aio *aio, int result, size_t count) {
    WEFT_ASSERT(aio->is_pending);
    aio->is_pending = false;
    aio->result = result;
    aio->count = count;
    if (aio->callback) sim_at(sim_now_us(), call_back, aio, aio->n_asked);
}

int nng_aio_alloc(nng_aio **aio_out, void (*callback)(void *), void *arg) {
    nng_aio *aio = need(calloc(1, sizeof *aio));
    aio->owner = wire.owner;
    aio->callback = callback;
    aio->arg = arg;
    SLIST_INSERT_HEAD(&wire.aios, aio, all);
    *aio_out = aio;
    return 0;
}

void nng_aio_free(nng_aio *aio) {
    if (aio) aio->is_freed = true;
}

void nng_aio_stop(nng_aio *aio) {
    if (aio) aio->is_freed = true;
}

int nng_aio_result(nng_aio *aio) {
    return aio->result;
}

size_t nng_aio_count(nng_aio *aio) {
    return aio->count;
}

void nng_aio_cancel(nng_aio *aio) {
    if (aio->is_pending) finish(aio, NNG_ECANCELED, 0);
}

void nng_aio_wait(nng_aio *aio) {
    WEFT_ASSERT(!aio->is_pending);
}

void *nng_aio_get_output(nng_aio *aio, unsigned i) {
    WEFT_ASSERT(i == 0);
    return aio->output;
}

void nng_aio_set_timeout(nng_aio *aio, nng_duration ms) {
    (void)aio;
    (void)ms;
}

int nng_aio_set_iov(nng_aio *aio, unsigned n, const nng_iov *iov) {
    WEFT_ASSERT(n == 1);
    aio->iov = *iov;
    return 0;
}

static void wake_sleeper(void *context, uint64_t n_asked) {
    nng_aio *aio = context;
    if (!aio->is_freed && aio->is_pending && aio->n_asked == n_asked) finish(aio, 0, 0);
}

void nng_sleep_aio(nng_duration ms, nng_aio *aio) {
    begin(aio);
    sim_at(sim_now_us() + (uint64_t)ms * 1000, wake_sleeper, aio, aio->n_asked);
}

const char *nng_strerror(int rv) {
    (void)rv;
    return "a fault of the simulation";
}

/* ---------------------------------------------------------------------------------- streams --- */

/* Delays and pauses that are short enough one by one may add up to more than a dialler waits. */
static bool is_late(const struct pair *pair) {
    return pair->n_said < 2 && pair->is_slow && sim_now_us() - pair->since_us >= HANDSHAKE_US;
}

/* Nobody ends a session unless something happened to it or to one of its ends. */
static void note_end(struct nng_stream *by) {
    struct pair *pair = by->pair;
    if (pair->is_over) return;
    pair->is_over = true;
    wire.n_ended += pair->has_answered;
    if (!pair->has_answered || !by->owner->is_alive) return;
    bool is_allowed = pair->is_excused || pair->may_end[by == pair->ends[1]] || is_late(pair);
    SIM_CHECK(is_allowed, "%s %u ended its session with %s %u, and nothing had happened",
              by->owner->kind, by->owner->idx, by->peer->owner->kind, by->peer->owner->idx);
}

static void drain(void *context, uint64_t tag);

static void put(struct nng_stream *to, struct piece *piece) {
    if (piece->at_us < to->last_at_us) piece->at_us = to->last_at_us;
    to->last_at_us = piece->at_us;
    to->n_coming += piece->len;
    STAILQ_INSERT_TAIL(&to->coming, piece, entry);
    sim_at(piece->at_us, drain, to, 0);
}

static struct piece *new_piece(const void *bytes, size_t len, bool is_end) {
    struct piece *piece = need(malloc(sizeof *piece + len));
    *piece = (struct piece){.at_us = sim_now_us() + latency_us(), .len = len, .is_end = is_end};
    if (len > 0) memcpy(piece->bytes, bytes, len);
    return piece;
}

static void clear(struct nng_stream *end) {
    struct piece *piece;
    while ((piece = STAILQ_FIRST(&end->coming))) {
        STAILQ_REMOVE_HEAD(&end->coming, entry);
        free(piece);
    }
    end->n_coming = 0;
    free(end->overtaken);
    end->overtaken = NULL;
}

static void cut(struct pair *pair) {
    pair->is_excused = true;
    for (uint32_t i = 0; i < 2; i++) {
        if (pair->ends[i]->is_closed) continue;
        clear(pair->ends[i]);
        put(pair->ends[i], new_piece(NULL, 0, true));
    }
}

static void cut_later(void *context, uint64_t tag) {
    struct pair *pair = context;
    (void)tag;
    if (!pair->is_over) cut(pair);
}

/* The pieces after a lost one must not be believed. */
static void harm(struct nng_stream *to, enum sim_fault fault) {
    sim_count(fault);
    sim_say("%s from %s %u to %s %u", sim_fault_text(fault), to->peer->owner->kind,
            to->peer->owner->idx, to->owner->kind, to->owner->idx);
    to->pair->is_excused = to->pair->is_broken = true;
    sim_at(sim_now_us() + NOTICED_US, cut_later, to->pair, 0);
}

/* ------------------------------------------------------------------------ what is lost of it --- */

#define FRAMES_MAX 256u

struct frames {
    uint32_t n;
    size_t at[FRAMES_MAX + 1]; /* where each begins; the last ends at at[n] */
};

/* Whole messages alone are harmed: no number tells what is missing within one. False: there are parts
 * of some. */
static bool cut_frames(const struct nng_stream *to, const unsigned char *bytes, size_t len,
                       struct frames *frames) {
    struct wefti_link_header header;
    size_t at = 0;
    frames->n = 0;
    if (to->is_within) return false;
    while (at + sizeof header <= len && frames->n < FRAMES_MAX) {
        memcpy(&header, bytes + at, sizeof header);
        frames->at[frames->n++] = at;
        at += sizeof header + header.len;
    }
    frames->at[frames->n] = at;
    return at == len;
}

/* Puts what is before the harmed frame, and what is after it. */
static void put_part(struct nng_stream *to, const unsigned char *bytes, size_t from, size_t end) {
    if (from < end) put(to, new_piece(bytes + from, end - from, false));
}

static void put_harmed(struct nng_stream *to, const unsigned char *bytes, struct frames *frames,
                       enum sim_fault fault) {
    uint32_t i = sim_dice(frames->n);
    size_t at = frames->at[i], next = frames->at[i + 1], end = frames->at[frames->n];
    harm(to, fault);
    put_part(to, bytes, 0, fault == SIM_DUPLICATE ? next : at);
    if (fault == SIM_DUPLICATE) put_part(to, bytes, at, next);
    if (fault == SIM_REORDER) to->overtaken = new_piece(bytes + at, next - at, false);
    put_part(to, bytes, next, end);
    if (fault == SIM_REORDER && next < end) {
        put(to, to->overtaken);
        to->overtaken = NULL;
    }
}

static void put_delayed(struct nng_stream *to, const void *bytes, size_t len, bool is_delayed) {
    struct piece *piece = new_piece(bytes, len, false);
    if (is_delayed) {
        sim_count(SIM_DELAY);
        if (to->pair->n_said < 2) to->pair->is_slow = true;
        piece->at_us += sim_between(1000, sim_chance(500) ? 2000000 : 50000);
    }
    put(to, piece);
}

static void send_piece(struct nng_stream *to, const unsigned char *bytes, size_t len) {
    const struct wire_odds *odds = &wire.odds;
    const uint32_t harms[] = {odds->drop, odds->duplicate, odds->reorder};
    static const enum sim_fault faults[] = {SIM_DROP, SIM_DUPLICATE, SIM_REORDER};
    uint32_t dice = sim_dice(10000), i = 0;
    struct piece *overtaken = to->overtaken;
    struct frames frames;
    to->overtaken = NULL;
    bool is_whole = cut_frames(to, bytes, len, &frames);
    to->is_within = !is_whole;
    for (; i < 3 && dice >= harms[i]; i++)
        dice -= harms[i];
    if (i < 3 && is_whole && !overtaken && !to->pair->is_broken)
        put_harmed(to, bytes, &frames, faults[i]);
    else
        put_delayed(to, bytes, len, i == 3 && dice < odds->delay);
    if (!overtaken) return;
    overtaken->at_us = sim_now_us() + latency_us();
    put(to, overtaken);
}

static void send_more(struct nng_stream *from) {
    nng_aio *aio = from->sending;
    struct nng_stream *to = from->peer;
    if (!aio) return;
    if (from->has_seen_end) {
        from->sending = NULL;
        finish(aio, NNG_ECLOSED, 0);
        return;
    }
    size_t room = to->n_coming < ROOM ? ROOM - to->n_coming : 0;
    size_t n = aio->iov.iov_len < room ? aio->iov.iov_len : room;
    if (n == 0) return;
    if (from == from->pair->ends[1])
        from->pair->has_answered = true;
    else
        from->pair->n_said++;
    if (!to->is_closed) send_piece(to, aio->iov.iov_buf, n);
    from->sending = NULL;
    finish(aio, 0, n);
}

static void take_end(struct nng_stream *end) {
    end->has_seen_end = true;
    nng_aio *aio = end->receiving;
    end->receiving = NULL;
    if (aio) finish(aio, NNG_ECONNSHUT, 0);
    send_more(end);
}

/* Hands what has come to the one who receives. */
static void drain(void *context, uint64_t tag) {
    struct nng_stream *end = context;
    struct piece *piece = STAILQ_FIRST(&end->coming);
    (void)tag;
    if (end->is_closed || !piece || piece->at_us > sim_now_us()) return;
    if (sim_now_us() < end->pair->silent_until_us) {
        sim_at(end->pair->silent_until_us, drain, end, 0);
        return;
    }
    nng_aio *aio = end->receiving;
    if (piece->is_end && !end->has_seen_end) take_end(end);
    if (piece->is_end || !aio) return;
    size_t n = 0, room = aio->iov.iov_len;
    while (piece && !piece->is_end && piece->at_us <= sim_now_us() && n < room) {
        size_t more = piece->len - piece->at < room - n ? piece->len - piece->at : room - n;
        memcpy((unsigned char *)aio->iov.iov_buf + n, piece->bytes + piece->at, more);
        piece->at += more;
        n += more;
        end->n_coming -= more;
        if (piece->at < piece->len) break;
        STAILQ_REMOVE_HEAD(&end->coming, entry);
        free(piece);
        piece = STAILQ_FIRST(&end->coming);
    }
    end->receiving = NULL;
    finish(aio, 0, n);
    send_more(end->peer);
}

void nng_stream_recv(nng_stream *end, nng_aio *aio) {
    begin(aio);
    WEFT_ASSERT(!end->is_closed && !end->receiving);
    if (end->has_seen_end) {
        finish(aio, NNG_ECONNSHUT, 0);
        return;
    }
    end->receiving = aio;
    sim_at(sim_now_us(), drain, end, 0);
}

void nng_stream_send(nng_stream *end, nng_aio *aio) {
    begin(aio);
    if (end->is_closed) { /* by the death of its process */
        finish(aio, NNG_ECLOSED, 0);
        return;
    }
    WEFT_ASSERT(!end->sending);
    end->sending = aio;
    send_more(end);
    if (aio->is_pending && !aio->callback) end->sending = NULL; /* it is cancelled at once */
}

void nng_stream_close(nng_stream *end) {
    if (end->is_closed) return;
    note_end(end);
    end->is_closed = true;
    end->receiving = end->sending = NULL;
    clear(end);
    if (end->peer->is_closed) return;
    if (end->peer->overtaken) clear(end->peer); /* what it should have passed never comes */
    put(end->peer, new_piece(NULL, 0, true));
}

void nng_stream_free(nng_stream *end) {
    if (end) nng_stream_close(end); /* its memory goes with the world */
}

int nng_stream_get_addr(nng_stream *end, const char *name, nng_sockaddr *out) {
    (void)end;
    (void)name;
    (void)out;
    return NNG_ENOTSUP;
}

int nng_stream_get_uint64(nng_stream *end, const char *name, uint64_t *out) {
    (void)end;
    (void)name;
    (void)out;
    return NNG_ENOTSUP;
}

/* ----------------------------------------------------------------------- dialling, listening --- */

static struct nng_stream *new_end(struct pair *pair, struct sim_proc *owner) {
    struct nng_stream *end = need(calloc(1, sizeof *end));
    end->pair = pair;
    end->owner = owner;
    STAILQ_INIT(&end->coming);
    return end;
}

static struct pair *new_pair(struct sim_proc *dialler, struct sim_proc *listener) {
    struct pair *pair = need(calloc(1, sizeof *pair));
    pair->since_us = sim_now_us();
    pair->ends[0] = new_end(pair, dialler);
    pair->ends[1] = new_end(pair, listener);
    pair->ends[0]->peer = pair->ends[1];
    pair->ends[1]->peer = pair->ends[0];
    /* Who is stopped now may be late for the handshake. */
    pair->is_excused = sim_is_stopped(dialler) || sim_is_stopped(listener);
    SLIST_INSERT_HEAD(&wire.pairs, pair, all);
    return pair;
}

static void hand_out(nng_stream_listener *listener) {
    nng_aio *aio = listener->accepting;
    if (!aio || listener->n_backlog == 0) return;
    aio->output = listener->backlog[0];
    listener->n_backlog--;
    memmove(listener->backlog, listener->backlog + 1,
            listener->n_backlog * sizeof(struct nng_stream *));
    listener->accepting = NULL;
    finish(aio, 0, 0);
}

static nng_stream_listener *find_listener(const char *url) {
    nng_stream_listener *listener;
    SLIST_FOREACH(listener, &wire.listeners, all) {
        if (listener->is_listening && strcmp(listener->url, url) == 0) return listener;
    }
    return NULL;
}

static const char *url_of(const nng_aio *aio) {
    nng_stream_dialer *dialer = aio->iov.iov_buf;
    return dialer->url;
}

static void reach(void *context, uint64_t n_asked) {
    nng_aio *aio = context;
    if (aio->is_freed || !aio->is_pending || aio->n_asked != n_asked || !aio->owner->is_alive)
        return;
    nng_stream_listener *listener = find_listener(url_of(aio));
    if (!listener || listener->n_backlog == sizeof listener->backlog / sizeof(nng_stream *)) {
        finish(aio, NNG_ECONNREFUSED, 0);
        return;
    }
    struct pair *pair = new_pair(aio->owner, listener->owner);
    listener->backlog[listener->n_backlog++] = pair->ends[1];
    aio->output = pair->ends[0];
    finish(aio, 0, 0);
    hand_out(listener);
}

static void copy_url(char out[64], const char *url) {
    WEFT_ASSERT(strlen(url) < 64);
    memcpy(out, url, strlen(url) + 1);
}

int nng_stream_dialer_alloc(nng_stream_dialer **out, const char *url) {
    nng_stream_dialer *dialer = need(calloc(1, sizeof *dialer));
    dialer->owner = wire.owner;
    copy_url(dialer->url, url);
    SLIST_INSERT_HEAD(&wire.dialers, dialer, all);
    *out = dialer;
    return 0;
}

void nng_stream_dialer_dial(nng_stream_dialer *dialer, nng_aio *aio) {
    begin(aio);
    aio->iov.iov_buf = dialer;
    sim_at(sim_now_us() + 2 * latency_us(), reach, aio, aio->n_asked);
}

void nng_stream_dialer_close(nng_stream_dialer *dialer) {
    (void)dialer;
}

void nng_stream_dialer_free(nng_stream_dialer *dialer) {
    (void)dialer;
}

int nng_stream_dialer_set_bool(nng_stream_dialer *dialer, const char *name, bool value) {
    (void)dialer;
    (void)name;
    (void)value;
    return 0;
}

int nng_stream_dialer_set_ptr(nng_stream_dialer *dialer, const char *name, void *value) {
    (void)dialer;
    (void)name;
    (void)value;
    return NNG_ENOTSUP;
}

int nng_stream_listener_alloc(nng_stream_listener **out, const char *url) {
    nng_stream_listener *listener = need(calloc(1, sizeof *listener));
    listener->owner = wire.owner;
    copy_url(listener->url, url);
    SLIST_INSERT_HEAD(&wire.listeners, listener, all);
    *out = listener;
    return 0;
}

int nng_stream_listener_listen(nng_stream_listener *listener) {
    if (find_listener(listener->url)) return NNG_EADDRINUSE;
    listener->is_listening = true;
    return 0;
}

void nng_stream_listener_accept(nng_stream_listener *listener, nng_aio *aio) {
    begin(aio);
    listener->accepting = aio;
    hand_out(listener);
}

void nng_stream_listener_close(nng_stream_listener *listener) {
    if (!listener) return;
    listener->is_listening = false;
    listener->accepting = NULL;
    while (listener->n_backlog > 0)
        nng_stream_close(listener->backlog[--listener->n_backlog]);
}

void nng_stream_listener_free(nng_stream_listener *listener) {
    nng_stream_listener_close(listener);
}

int nng_stream_listener_set_bool(nng_stream_listener *listener, const char *name, bool value) {
    (void)listener;
    (void)name;
    (void)value;
    return 0;
}

int nng_stream_listener_set_int(nng_stream_listener *listener, const char *name, int value) {
    (void)listener;
    (void)name;
    (void)value;
    return 0;
}

int nng_stream_listener_set_ptr(nng_stream_listener *listener, const char *name, void *value) {
    (void)listener;
    (void)name;
    (void)value;
    return NNG_ENOTSUP;
}

/* ----------------------------------------------------------------------------------- faults --- */

void wire_set_odds(const struct wire_odds *odds) {
    wire.odds = *odds;
}

void wire_enter(struct sim_proc *proc) {
    wire.owner = proc;
}

void wire_slow(struct sim_proc *proc) {
    struct pair *pair;
    SLIST_FOREACH(pair, &wire.pairs, all) {
        bool is_end = pair->ends[0]->owner == proc || pair->ends[1]->owner == proc;
        if (is_end && pair->n_said < 2) pair->is_slow = true;
    }
}

/* Whoever still shakes hands may be late for that, on either side. */
void wire_excuse(struct sim_proc *proc) {
    struct pair *pair;
    SLIST_FOREACH(pair, &wire.pairs, all) {
        for (uint32_t i = 0; i < 2; i++) {
            if (pair->ends[i]->owner != proc) continue;
            pair->may_end[1 - i] = true;
            if (pair->n_said < 2) pair->is_excused = true;
        }
    }
}

void wire_excuse_handshakes(void) {
    struct pair *pair;
    SLIST_FOREACH(pair, &wire.pairs, all) {
        if (pair->n_said < 2) pair->is_excused = true;
    }
}

/* The kernel closes what the process had open. */
void wire_kill(struct sim_proc *proc) {
    struct pair *pair;
    nng_stream_listener *listener;
    WEFT_ASSERT(!proc->is_alive);
    SLIST_FOREACH(pair, &wire.pairs, all) {
        for (uint32_t i = 0; i < 2; i++) {
            if (pair->ends[i]->owner == proc) nng_stream_close(pair->ends[i]);
        }
    }
    SLIST_FOREACH(listener, &wire.listeners, all) {
        if (listener->owner == proc) nng_stream_listener_close(listener);
    }
}

uint64_t wire_n_ended(void) {
    return wire.n_ended;
}

bool wire_joins(const struct sim_proc *a, const struct sim_proc *b) {
    struct pair *pair;
    SLIST_FOREACH(pair, &wire.pairs, all) {
        if (pair->ends[0]->owner == a && pair->ends[1]->owner == b && !pair->is_over &&
            pair->has_answered)
            return sim_now_us() >= pair->silent_until_us;
    }
    return false;
}

static struct pair *pick(void) {
    struct pair *pair, *picked = NULL;
    uint32_t n = 0;
    SLIST_FOREACH(pair, &wire.pairs, all) {
        if (!pair->is_over && pair->has_answered && sim_dice(++n) == 0) picked = pair;
    }
    return picked;
}

bool wire_cut_one(void) {
    struct pair *pair = pick();
    if (!pair) return false;
    sim_say("the stream of %s %u and %s %u is cut", pair->ends[0]->owner->kind,
            pair->ends[0]->owner->idx, pair->ends[1]->owner->kind, pair->ends[1]->owner->idx);
    cut(pair);
    return true;
}

bool wire_silence_one(uint64_t us) {
    struct pair *pair = pick();
    if (!pair) return false;
    sim_say("the stream of %s %u and %s %u is silent for %.3f s", pair->ends[0]->owner->kind,
            pair->ends[0]->owner->idx, pair->ends[1]->owner->kind, pair->ends[1]->owner->idx,
            (double)us / 1e6);
    pair->silent_until_us = sim_now_us() + us;
    if (us > 1000000) pair->is_excused = true;
    return true;
}

/* ------------------------------------------------------------------------------- one world --- */

void wire_begin(void) {
    memset(&wire, 0, sizeof wire);
}

void wire_end(void) {
    while (!SLIST_EMPTY(&wire.aios)) {
        nng_aio *aio = SLIST_FIRST(&wire.aios);
        SLIST_REMOVE_HEAD(&wire.aios, all);
        free(aio);
    }
    while (!SLIST_EMPTY(&wire.pairs)) {
        struct pair *pair = SLIST_FIRST(&wire.pairs);
        SLIST_REMOVE_HEAD(&wire.pairs, all);
        for (uint32_t i = 0; i < 2; i++) {
            clear(pair->ends[i]);
            free(pair->ends[i]);
        }
        free(pair);
    }
    while (!SLIST_EMPTY(&wire.dialers)) {
        nng_stream_dialer *dialer = SLIST_FIRST(&wire.dialers);
        SLIST_REMOVE_HEAD(&wire.dialers, all);
        free(dialer);
    }
    while (!SLIST_EMPTY(&wire.listeners)) {
        nng_stream_listener *listener = SLIST_FIRST(&wire.listeners);
        SLIST_REMOVE_HEAD(&wire.listeners, all);
        free(listener);
    }
}
