/* What conversations have in the cache, kept for their next turn.
 *
 * A request may name a session. When its first choice leaves, however it ended, the blocks that it
 * published stay in use: the session holds them as a sequence would, so that they are not evicted.
 * The next request of the conversation finds them as it would find any prefix, whatever it calls
 * itself. Its end replaces the session.
 *
 * A session holds nodes of the prefix cache and nothing else: where somebody else published the same
 * tokens before, it holds the other's blocks, since these are what is found.
 *
 * Nobody waits for a session. It goes when its time is over, when there are too many of them or of
 * their blocks (the least recently used go first), and before anybody who runs or could start lacks a
 * block. A new worker begins without any, for their blocks are gone. */
#include "scheduler/sessions.h"
#include "scheduler_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"

struct session {
    TAILQ_ENTRY(session) link;
    uint64_t tenant, used_us;
    struct weft_str id;
    struct held held;
    uint32_t *tokens;    /* of the table's blocks */
    uint32_t contents[]; /* the table, windowed ones, tokens; then the id's bytes */
};

static struct session *find(const weft_sched *sched, uint64_t tenant, struct weft_str id) {
    struct session *session = NULL;
    TAILQ_FOREACH(session, &sched->sessions, link) {
        if (session->tenant == tenant && weft_str_is(session->id, id.data, id.len)) return session;
    }
    return NULL;
}

static void drop(weft_sched *sched, struct session *session) {
    TAILQ_REMOVE(&sched->sessions, session, link);
    sched->n_sessions--;
    sched->n_session_blocks -= session->held.table.n;
    wefti_sched_held_drop(sched, &session->held);
    free(session);
}

bool wefti_sched_sessions_give(weft_sched *sched) {
    struct session *oldest = TAILQ_FIRST(&sched->sessions);
    if (!oldest) return false;
    drop(sched, oldest);
    sched->n_sessions_evicted++;
    return true;
}

void wefti_sched_sessions_drop(weft_sched *sched) {
    struct session *session = NULL;
    while ((session = TAILQ_FIRST(&sched->sessions)))
        drop(sched, session);
}

void wefti_sched_sessions_expire(weft_sched *sched, uint64_t now_us) {
    struct session *session = NULL;
    while ((session = TAILQ_FIRST(&sched->sessions)) &&
           session->used_us + sched->options.session_ttl_us <= now_us) {
        drop(sched, session);
        sched->n_sessions_expired++;
    }
}

void wefti_sched_session_touch(weft_sched *sched, uint64_t tenant, struct weft_str id) {
    struct session *session = id.len > 0 ? find(sched, tenant, id) : NULL;
    if (!session) return;
    session->used_us = sched->now_us;
    TAILQ_REMOVE(&sched->sessions, session, link);
    TAILQ_INSERT_TAIL(&sched->sessions, session, link);
}

/* One that holds nothing yet, with room for so many blocks. NULL: no memory. */
static struct session *make(const weft_sched *sched, uint64_t tenant, struct weft_str id,
                            const uint32_t *tokens, uint32_t n_blocks) {
    size_t n_tokens = (size_t)n_blocks * sched->options.block_size;
    size_t n_words = 2 * (size_t)n_blocks + n_tokens;
    struct session *session = calloc(1, sizeof *session + n_words * sizeof(uint32_t) + id.len);
    if (!session) return NULL;
    session->tenant = tenant;
    session->used_us = sched->now_us;
    weft_kv_table_init(&session->held.table, session->contents, n_blocks);
    weft_kv_window_table_init(&session->held.windowed, session->contents + n_blocks, n_blocks, 0);
    session->tokens = session->contents + 2 * (size_t)n_blocks;
    memcpy(session->tokens, tokens, n_tokens * sizeof *tokens);
    char *text = (char *)(session->tokens + n_tokens);
    memcpy(text, id.data, id.len);
    session->id = (struct weft_str){text, id.len};
    return session;
}

/* Takes hold of what the cache has of the tokens, under a name that nobody has now. */
static void keep(weft_sched *sched, struct session *session, const struct weft_kv_space *space) {
    const struct weft_sched_options *o = &sched->options;
    uint32_t n_blocks = session->held.table.cap;
    while (sched->n_sessions >= o->max_sessions ||
           sched->n_session_blocks + n_blocks > o->max_session_blocks)
        (void)wefti_sched_sessions_give(sched);
    wefti_sched_prefix_hold(sched, space, session->tokens, n_blocks * o->block_size,
                            &session->held);
    TAILQ_INSERT_TAIL(&sched->sessions, session, link);
    sched->n_sessions++;
    sched->n_session_blocks += session->held.table.n;
    sched->n_sessions_kept++;
}

uint32_t wefti_sched_session_make(weft_sched *sched, uint64_t tenant, struct weft_str id,
                                  const uint32_t *tokens, uint32_t n_blocks,
                                  const struct weft_kv_space *space) {
    struct session *before = find(sched, tenant, id);
    if (before) drop(sched, before);
    if (n_blocks == 0 || n_blocks > sched->options.max_session_blocks) return 0;
    struct session *session = make(sched, tenant, id, tokens, n_blocks);
    if (!session) return 0; /* the next turn computes it again */
    keep(sched, session, space);
    uint32_t n = session->held.table.n;
    if (n == 0) drop(sched, session);
    return n;
}

void wefti_sched_session_keep(weft_sched *sched, const struct seq *seq, uint32_t n_computed) {
    const struct request *req = seq->req;
    const struct weft_sched_options *o = &sched->options;
    bool is_kept = o->prefix_cache && o->session_ttl_us > 0 && o->max_sessions > 0;
    if (!is_kept || req->session_id.len == 0 || seq->choice > 0 || req->beams) return;
    if (seq->n_dropped > 0) return; /* no next turn begins with what is left */
    uint32_t n_known = weft_min_u32(n_computed, req->n_prompt + seq->n_output);
    uint32_t n_blocks = weft_min_u32(n_known / o->block_size, sched->table_cap);
    struct weft_kv_space space = wefti_sched_space_of(sched, req);
    (void)wefti_sched_session_make(sched, req->tenant, req->session_id,
                                   wefti_sched_tokens_of(sched, seq), n_blocks, &space);
}

const uint32_t *wefti_sched_session_tokens(const weft_sched *sched, uint64_t tenant,
                                           struct weft_str id, uint32_t *n_tokens_out,
                                           struct weft_kv_space *space_out) {
    const struct session *session = find(sched, tenant, id);
    if (!session) return NULL;
    *n_tokens_out = session->held.table.n * sched->options.block_size;
    *space_out = session->held.chain.space;
    return session->tokens;
}

bool weft_sched_session_has(const weft_sched *sched, uint64_t tenant, struct weft_str id) {
    return find(sched, tenant, id) != NULL;
}

uint32_t weft_sched_session_drop(weft_sched *sched, uint64_t tenant, struct weft_str id) {
    struct session *session = find(sched, tenant, id);
    if (!session) return 0;
    uint32_t n_tokens = session->held.table.n * sched->options.block_size;
    drop(sched, session);
    return n_tokens;
}

uint32_t weft_sched_session_list(const weft_sched *sched, uint64_t now_us, uint64_t tenant,
                                 struct weft_session_told *told_out, uint32_t n_max) {
    uint32_t n = 0;
    const struct session *session = NULL;
    TAILQ_FOREACH(session, &sched->sessions, link) {
        if (session->tenant != tenant || n == n_max) continue;
        uint32_t n_blocks = session->held.table.n;
        told_out[n++] = (struct weft_session_told){
            .id = session->id,
            .n_tokens = n_blocks * sched->options.block_size,
            .n_blocks = n_blocks,
            .idle_us = now_us > session->used_us ? now_us - session->used_us : 0,
        };
    }
    return n;
}

uint64_t wefti_sched_sessions_check(const weft_sched *sched, uint64_t *n_windowed) {
    uint32_t n_sessions = 0, n_blocks = 0;
    const struct session *session = NULL, *before = NULL;
    TAILQ_FOREACH(session, &sched->sessions, link) {
        WEFT_ASSERT(session->held.table.n > 0 && session->held.chain.n == session->held.table.n);
        WEFT_ASSERT(!before || before->used_us <= session->used_us);
        weft_kv_prefix_check_chain(sched->cache, &session->held.table, &session->held.chain);
        n_sessions++;
        n_blocks += session->held.table.n;
        *n_windowed += session->held.windowed.n - session->held.windowed.first;
        before = session;
    }
    WEFT_ASSERT(n_sessions == sched->n_sessions && n_blocks == sched->n_session_blocks);
    WEFT_ASSERT(n_sessions <= sched->options.max_sessions);
    WEFT_ASSERT(n_blocks <= sched->options.max_session_blocks);
    return n_blocks;
}
