/* engine/sampler/guides — which tokens may come next in the sequences whose output has a grammar.
 *
 * Model    A run is a sequence that follows a grammar, from its start to its release. As soon as a
 *          token is sampled the mask of the next one is made, by a thread of its own, while the
 *          forward pass runs; whoever samples waits for what is left of that. Grammars are compiled
 *          by another thread, before the sequence starts or while its prompt is computed, and kept,
 *          by what they say, for later sequences.
 * Forced   Where a mask has but one token, that one needs no sampling: the thread takes it and goes on, up
 *          to a bound, so several tokens may be there at once.
 * Thoughts Once as many tokens came within thoughts as there may be, the mask has but one token, which ends them
 *          or spells some more of the end mark. Where any text may come there is no mask but these.
 * Replay   A run that starts with output, after a restart or a preemption, takes it first: a mask
 *          follows from grammar and output alone.
 * Bounds   Grammars that nobody uses go, the one unused longest first, when there are more than
 *          WEFTI_GUIDES_KEPT_MAX or WEFTI_GUIDES_KEPT_BYTES; where those in use grow beyond
 *          WEFTI_GUIDES_BYTES_MAX the run that grew ends. Both are less where the owner says so.
 *          What a mask and a compilation may cost is the grammar's to bound.
 * Threads  The owner, who steps, calls all but await, which compute threads call during a step, and
 *          prepare and next_prepared, which another thread may call. The three threads begin with
 *          the first grammar; they are not pinned.
 */
#ifndef WEFT_ENGINE_GUIDES_H
#define WEFT_ENGINE_GUIDES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/grammar.h"
#include "engine/engine.h"

#define WEFTI_GUIDES_KEPT_MAX 256
#define WEFTI_GUIDES_KEPT_BYTES ((size_t)256 << 20)
#define WEFTI_GUIDES_BYTES_MAX ((size_t)1 << 30)

typedef struct wefti_guides wefti_guides;
typedef struct wefti_guide_run wefti_guide_run;

/* `path` is the model's, for its tokens; copied. bytes_max: of all grammars; 0: the bounds above.
 * Threads may run on the CPUs of the caller. */
WEFT_MUST_CHECK weft_err wefti_guides_new(const char *path, uint32_t n_vocab, uint64_t bytes_max,
                                          wefti_guides **guides_out);
void wefti_guides_free(wefti_guides *guides); /* after its runs; accepts NULL */

/* Compiles a grammar ahead of the runs to come, and writes to `wake_fd`, an eventfd, once next_prepared
 * says so. False: no memory, or no threads. */
bool wefti_guides_prepare(wefti_guides *guides, const struct weft_eng_ticket *ticket,
                          const struct weft_grammar *grammar);
/* The next one that is compiled, or cannot be; each is told once. False: none. */
bool wefti_guides_next_prepared(wefti_guides *guides, struct weft_eng_ticket *ticket_out);

struct wefti_guide_start {
    const struct weft_grammar *grammar; /* copied */
    const uint32_t *output;             /* so far; copied */
    uint32_t n_output;
    const uint32_t *stop_tokens; /* those without text may come where the grammar may end; copied */
    uint32_t n_stop_tokens;
    bool may_force;           /* else each token is sampled, */
    const uint32_t *unforced; /* as these are, where one of them alone may come; copied */
    uint32_t n_unforced;
    uint32_t
        thinking_token_budget; /* after so many within thoughts they end; UINT32_MAX: no bound */
};

/* NULL: no memory, or no threads. */
wefti_guide_run *wefti_guides_start(wefti_guides *guides, const struct wefti_guide_start *start);
/* One more token of output. False: no memory; the run is of no use any more. */
bool wefti_guides_add(wefti_guides *guides, wefti_guide_run *run, uint32_t token);
/* The forced tokens that await told of are output now. */
void wefti_guides_accept(wefti_guides *guides, wefti_guide_run *run);
void wefti_guides_end(wefti_guides *guides, wefti_guide_run *run); /* accepts NULL */

struct wefti_guide {
    const uint64_t *mask; /* of the run, until its next token; NULL: a bound was met */
    bool may_end;
    bool is_empty; /* no token may come */
    bool is_free;  /* any may: the mask says nothing */
    /* The tokens that come before the mask's place; of the run, until a token is added to it after they were
     * accepted. */
    const uint32_t *forced;
    uint32_t n_forced; /* at most 1 + WEFT_FORCED_MAX */
};
/* Waits for the mask after the tokens added so far. False: it is not there yet. */
bool wefti_guides_await(wefti_guides *guides, wefti_guide_run *run, uint32_t wait_ms_max,
                        struct wefti_guide *guide_out);

/* How often anything was done for anybody: while this grows a mask that is late is on its way. */
uint64_t wefti_guides_n_turns(wefti_guides *guides);

static inline bool wefti_guide_allows(const struct wefti_guide *guide, uint32_t token) {
    return (guide->mask[token / 64] >> (token % 64) & 1) != 0;
}

#endif
