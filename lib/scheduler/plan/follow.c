/* Requests that wait for another's prompt.
 *
 * Two that come together with the same beginning would both compute it. So the second waits until
 * the first, its leader, has computed what they share, and finds it in the prefix cache then. It
 * never waits longer than computing that itself would have taken: by the time the plans had as many
 * prompt tokens as it lacked when it began to wait, it starts with what is there. (A leader that has
 * the machine for itself is done exactly then, or earlier.)
 *
 * Whoever waits like that stands in no queue, and those after it are not held up. */
#include "scheduler_internal.h"

#include <string.h>

#include "base/check.h"

/* How many whole blocks of tokens two prompts share. It looks at one block after `from` first, since
 * most share nothing there. */
static uint32_t shared_tokens(const weft_sched *sched, const struct request *a,
                              const struct request *b, uint32_t from) {
    uint32_t n = sched->options.block_size;
    uint32_t len = a->n_prompt - 1 < b->n_prompt ? a->n_prompt - 1 : b->n_prompt;
    uint32_t at = from / n * n;
    if (at + n > len || memcmp(a->prompt + at, b->prompt + at, n * sizeof *a->prompt) != 0)
        return 0;
    if (memcmp(a->prompt, b->prompt, at * sizeof *a->prompt) != 0) return 0;
    while (at + n <= len && memcmp(a->prompt + at, b->prompt + at, n * sizeof *a->prompt) == 0)
        at += n;
    return at;
}

static bool computes_prompt(const struct seq *seq) {
    return seq->n_planned < seq->req->n_prompt && seq->n_dropped == 0 && !seq->chain.is_closed;
}

/* The running sequence that will have most of the request's prompt; NULL: none will have more than
 * is cached. */
static const struct seq *find_leader(const weft_sched *sched, const struct request *req,
                                     uint32_t n_cached, uint32_t *n_shared_out) {
    const struct seq *leader = NULL;
    *n_shared_out = n_cached;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        if (seq->req->is_background && !req->is_background) break; /* who waits for nobody */
        if (!computes_prompt(seq) || !wefti_sched_same_space(sched, req, seq->req)) continue;
        uint32_t n_shared = shared_tokens(sched, req, seq->req, n_cached);
        if (n_shared <= *n_shared_out || n_shared <= seq->n_planned) continue;
        *n_shared_out = n_shared;
        leader = seq;
    }
    return leader;
}

bool wefti_sched_follow(weft_sched *sched, const struct seq *seq, uint32_t n_cached) {
    struct request *req = seq->req;
    struct following *f = &req->following;
    if (!sched->options.prefix_cache || wefti_sched_computes_all(req)) return false;
    if (req->n_running > 0 || sched->n_followers == sched->options.max_seqs) return false;
    if (f->until_tokens > 0 && sched->n_planned_tokens >= f->until_tokens) return false;
    uint32_t n_shared;
    const struct seq *leader = find_leader(sched, req, n_cached, &n_shared);
    if (!leader) return false;
    n_shared = wefti_sched_states_awaited(sched, sched->by_slot[leader->slot], n_shared);
    if (n_shared <= n_cached) return false;
    f->slot = leader->slot;
    f->gen = leader->gen;
    f->n_shared = n_shared;
    if (f->until_tokens == 0) f->until_tokens = sched->n_planned_tokens + (n_shared - n_cached);
    LIST_INSERT_HEAD(&sched->followers, req, following.link);
    sched->n_followers++;
    wefti_sched_queue_remove(sched, req);
    req->follows = true;
    return true;
}

void wefti_sched_unfollow(weft_sched *sched, struct request *req) {
    if (!req->follows) return;
    LIST_REMOVE(req, following.link);
    sched->n_followers--;
    req->follows = false;
}

static bool is_over(const weft_sched *sched, const struct following *f) {
    const struct seq *leader = sched->by_slot[f->slot];
    if (!leader || leader->gen != f->gen || leader->chain.is_closed) return true;
    return leader->n_planned >= f->n_shared || sched->n_planned_tokens >= f->until_tokens;
}

void wefti_sched_wake_followers(weft_sched *sched) {
    for (struct request *req = LIST_FIRST(&sched->followers), *next; req; req = next) {
        next = LIST_NEXT(req, following.link);
        if (!is_over(sched, &req->following)) continue;
        wefti_sched_unfollow(sched, req);
        wefti_sched_request_unpark(sched, req); /* back into the queue */
    }
}
