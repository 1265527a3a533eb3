/* Guesses: how many tokens a sequence's row may compute beyond its last known token (base/step.h).
 *
 * A guess that comes true is a token that needs no step of its own; one that does not was a row for
 * nothing. So with a fixed number everybody gets that many, and else those guesses are made whose chance is
 * good enough: a threshold is looked for with which the step yields the most tokens for its time, by the
 * model of cost/ and by what was accepted so far. Acceptance of the j-th guess is taken as the j-th power
 * of that of one, measured for each sequence, and for all together where it has little to tell. Who does
 * not guess tries one again now and then, the less often the longer that is in vain.
 *
 * Guesses take what nobody else needs: tokens of the step beyond one for each place in the running set,
 * and blocks that are free beyond one for each sequence. A row that may guess k tokens has blocks for
 * these, for the token sampled after them, and for one more, which is the next row's: since how many of
 * them come true is known only when that row is out already. So no row needs a block because an earlier
 * one guessed, and nobody is preempted for it. */
#include "scheduler_internal.h"

#include "base/check.h"
#include "base/minmax.h"

#define RATE_FIRST 0.6        /* before anything is known */
#define PRIOR_TRIALS 4.0      /* what is known of all counts as so many of a sequence's own */
#define FORGET_OWN (1 - 0.04) /* with each trial: two dozen of them count */
#define FORGET_ALL (1 - 0.005)
#define GAIN_LEAST 1.02 /* over a step without guesses: less is noise */
#define TRY_FIRST 16u   /* steps without guesses until one is tried again */
#define TRY_LAST 1024u
#define TRIAL_PART 128u /* of the time may go into drafts of trials, which catch up first */
#define TRIAL_US_MAX 20000
#define BETWEEN_STEPS 16 /* that are averaged */
#define BETWEEN_MAX 1.0  /* of a step's time: more is somebody who held it up */

/* ------------------------------------------------------------------------------ acceptance --- */

static void learn(struct guess_rate *rate, uint32_t n_hits, uint32_t n_trials, double forget) {
    for (uint32_t i = 0; i < n_trials; i++) {
        rate->n_hits *= forget;
        rate->n_trials *= forget;
        rate->n_hits += i < n_hits;
        rate->n_trials++;
    }
}

static double rate_of(const struct guess_rate *rate, double prior) {
    return (rate->n_hits + prior * PRIOR_TRIALS) / (rate->n_trials + PRIOR_TRIALS);
}

void wefti_sched_note_guesses(weft_sched *sched, struct seq *seq, const struct weft_step_out *out) {
    if (out->n_proposed == 0) return;
    /* Where the sequence ended, or its grammar went on by itself, the next guess was not judged. */
    bool is_judged = out->finish == WEFT_END_NONE && out->n_more == out->n_accepted &&
                     out->n_accepted < out->n_proposed && !out->is_late;
    uint32_t n_trials = out->n_accepted + is_judged;
    learn(&seq->guess_rate, out->n_accepted, n_trials, FORGET_OWN);
    learn(&sched->guess_rate, out->n_accepted, n_trials, FORGET_ALL);
    if (out->n_accepted > 0) seq->try_after = TRY_FIRST;
    sched->n_drafts++;
    sched->n_draft_tokens += out->n_proposed;
    sched->n_draft_accepted += out->n_accepted;
}

/* A step that was out while the one before it was computed begins when that ends: what its result
 * comes later than it computed is lost to messages and other processes, guesses or not. */
static void learn_between(struct guess_time *time, uint64_t now_us, uint32_t busy_us) {
    uint64_t passed_us = now_us > time->result_us ? now_us - time->result_us : 0;
    double between_us = passed_us > busy_us ? (double)(passed_us - busy_us) : 0;
    if (between_us > BETWEEN_MAX * busy_us) between_us = BETWEEN_MAX * busy_us;
    time->between_us += (between_us - time->between_us) / BETWEEN_STEPS;
}

void wefti_sched_note_time(weft_sched *sched, const struct plan_out *plan,
                           const struct weft_step_result *result) {
    struct guess_time *time = &sched->guess_time;
    if (time->result_us > 0) learn_between(time, sched->now_us, result->busy_us);
    time->result_us = sched->n_out > 0 ? sched->now_us : 0;
    int64_t trials_us = time->trials_us + result->busy_us / TRIAL_PART;
    if (trials_us > TRIAL_US_MAX) trials_us = TRIAL_US_MAX;
    time->trials_us = trials_us - (plan->has_trial ? result->draft_us : 0);
}

/* ------------------------------------------------------------------------------------ room --- */

uint32_t wefti_sched_seq_reach(const weft_sched *sched, const struct seq *seq, uint32_t n_tokens) {
    uint64_t longest =
        (uint64_t)seq->req->n_prompt + seq->req->sampling.max_tokens - seq->n_dropped;
    longest = weft_min_u64(longest, sched->options.max_model_len);
    uint64_t most = weft_min_u64((uint64_t)seq->n_planned + seq->n_spec_out + n_tokens, longest);
    return (uint32_t)weft_max_u64(most, (uint64_t)seq->n_planned + n_tokens);
}

/* It computes the token sampled last, and its next ones are sampled one by one; neither their
 * log-probabilities nor what a sampler remembers after each is asked for. */
static bool may_guess(const weft_sched *sched, const struct seq *seq) {
    const struct weft_sampling *sampling = &seq->req->sampling;
    if (sched->yielding.is_on && seq->req->is_background) return false;
    return seq->chunk == 1 && !seq->is_held && wefti_sched_seq_left(seq) == 1 &&
           seq->n_planned >= wefti_sched_seq_prompt(seq) && sampling->n_logprobs < 0 &&
           !weft_sampling_has_state(sampling) && !weft_sampling_is_contrastive(sampling) &&
           !seq->req->no_guesses;
}

/* Tokens that it may have beside the one that its row samples. */
static uint32_t length_room(const weft_sched *sched, const struct seq *seq) {
    uint64_t n_output = (uint64_t)seq->n_output + seq->n_samples_out;
    uint64_t by_output = seq->req->sampling.max_tokens - n_output - 1;
    uint64_t by_length = (uint64_t)sched->options.max_model_len - wefti_sched_seq_len(seq) - 1;
    return (uint32_t)weft_min_u64(weft_min_u64(by_output, by_length), WEFT_SPEC_TOKENS_MAX);
}

/* Blocks for its row, k guesses and the row after that, as far as others do not need them: for how many
 * guesses they are enough. */
static uint32_t take_blocks(weft_sched *sched, struct seq *seq, uint32_t k) {
    uint32_t wanted = wefti_sched_seq_reach(sched, seq, k + 2);
    uint64_t there = (uint64_t)weft_kv_n_free(sched->pool) + weft_kv_prefix_n_idle(sched->cache);
    uint64_t spare = there > sched->n_running ? there - sched->n_running : 0;
    uint64_t n_blocks = weft_min_u64(wefti_sched_blocks_for(sched, wanted), seq->table.n + spare);
    if (weft_kv_prefix_grow(sched->cache, &seq->table, (uint32_t)n_blocks)) return 0;
    uint32_t n_more = wefti_sched_window_room(sched, seq, wanted - seq->n_planned);
    uint64_t room = weft_min_u64(n_blocks * sched->options.block_size, seq->n_planned + n_more);
    if (room >= wanted) return k;
    uint64_t least = (uint64_t)seq->n_planned + seq->n_spec_out + 2;
    return room > least ? (uint32_t)weft_min_u64(k, room - least) : 0;
}

static uint32_t give(weft_sched *sched, struct seq *seq, uint32_t k, uint32_t spare) {
    k = weft_min_u32(k, weft_min_u32(spare, length_room(sched, seq)));
    seq->n_spec = k > 0 ? take_blocks(sched, seq, k) : 0;
    return seq->n_spec;
}

/* ---------------------------------------------------------------------------------- deciding --- */

/* How many guesses in a row have at least this chance. */
static uint32_t n_likely(double rate, double chance) {
    uint32_t n = 0;
    for (double all = rate; n < WEFT_SPEC_TOKENS_MAX && all >= chance; all *= rate)
        n++;
    return n;
}

/* Tokens that a step yields for its time, if guesses of at least this chance are made. */
static double yield(const weft_sched *sched, const struct weft_sched_work *decode, double chance) {
    struct weft_sched_work work = *decode, draft = {0};
    double n_tokens = decode->n_logits, prior = rate_of(&sched->guess_rate, RATE_FIRST);
    uint32_t n_passes = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        if (!may_guess(sched, seq)) continue;
        double rate = rate_of(&seq->guess_rate, prior), all = rate;
        uint32_t k = weft_min_u32(n_likely(rate, chance), length_room(sched, seq));
        if (k > 0) weft_sched_work_add(&work, seq->n_planned + 1, k, k);
        for (uint32_t j = 0; j < k; j++, all *= rate)
            n_tokens += all;
        n_passes = weft_max_u32(n_passes, k);
        draft.n_tokens += k;
    }
    double us = weft_sched_cost_predict(&sched->cost, &work);
    if (us > 0) us += sched->guess_time.between_us;
    if (n_passes > 0) {
        draft.n_tokens = weft_div_up_u32(draft.n_tokens, n_passes);
        us += (double)n_passes * weft_sched_cost_predict(&sched->draft_cost, &draft);
    }
    return us > 0 ? n_tokens / us : 0;
}

/* The chance that a guess must have; over 1: none is made. */
static double best_chance(const weft_sched *sched, const struct weft_sched_work *decode) {
    static const double chances[] = {0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05};
    double best = 2, most = yield(sched, decode, best) * GAIN_LEAST;
    if (most == 0) return chances[0]; /* nothing is known yet */
    for (size_t i = 0; i < sizeof chances / sizeof chances[0]; i++) {
        double here = yield(sched, decode, chances[i]);
        if (here <= most) continue;
        most = here;
        best = chances[i];
    }
    return best;
}

/* One guess of somebody who made none for a while, of whose text nobody knows what became; one in a plan,
 * as long as trials took little of the time. */
static bool is_trial(weft_sched *sched, struct seq *seq) {
    struct guess_time *time = &sched->guess_time;
    if (++seq->n_unguessed < weft_max_u32(seq->try_after, TRY_FIRST)) return false;
    if (time->has_trial || time->trials_us < 0) return false;
    time->has_trial = true;
    seq->n_unguessed = 0;
    seq->try_after = weft_min_u32(2 * weft_max_u32(seq->try_after, TRY_FIRST / 2), TRY_LAST);
    return true;
}

static uint32_t choose(weft_sched *sched, struct seq *seq, double chance) {
    uint32_t fixed = sched->options.n_spec_tokens;
    if (fixed != WEFT_SCHED_SPEC_AUTO) return fixed;
    double prior = rate_of(&sched->guess_rate, RATE_FIRST);
    uint32_t k = n_likely(rate_of(&seq->guess_rate, prior), chance);
    if (k == 0) return is_trial(sched, seq);
    seq->n_unguessed = 0;
    return k;
}

void wefti_sched_plan_guesses(weft_sched *sched, uint32_t spare) {
    if (sched->options.n_spec_tokens == 0) return;
    struct weft_sched_work decode = {0};
    bool is_auto = sched->options.n_spec_tokens == WEFT_SCHED_SPEC_AUTO, has_prompts = false;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        has_prompts = has_prompts ||
                      (seq->chunk == 0 && !seq->put_off && !wefti_sched_seq_complete(sched, seq));
        if (seq->chunk > 0) weft_sched_work_add(&decode, seq->n_planned, seq->chunk, 1);
    }
    bool has_target =
        sched->options.itl_target_us != 0 && sched->options.itl_target_us != WEFT_SCHED_ITL_AUTO;
    if (has_prompts || has_target) {
        uint32_t timely = wefti_sched_timely_tokens(sched, &decode, 1, 0);
        spare = weft_min_u32(spare, has_prompts ? timely / 2 : timely);
    }
    double chance = is_auto ? best_chance(sched, &decode) : 0;
    for (uint32_t i = 0; i < sched->n_running && spare > 0; i++) {
        struct seq *seq = sched->running[i];
        if (may_guess(sched, seq)) spare -= give(sched, seq, choose(sched, seq, chance), spare);
    }
}
