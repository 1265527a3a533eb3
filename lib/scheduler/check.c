/* weft_sched_check: the invariants between any two calls. */
#include "scheduler_internal.h"

#include "base/check.h"

static void check_running_seq(const weft_sched *sched, const struct seq *seq) {
    WEFT_ASSERT(seq->state == SEQ_RUNNING);
    WEFT_ASSERT(seq->slot < sched->options.max_seqs);
    WEFT_ASSERT(sched->slot_gen[seq->slot] == seq->gen && sched->by_slot[seq->slot] == seq);
    WEFT_ASSERT((seq->table.n > 0 || seq->restarts) && seq->table.n <= seq->table.cap);
    WEFT_ASSERT(seq->n_granted <= seq->table.n);
    WEFT_ASSERT(seq->n_planned <= seq->table.n * sched->options.block_size);
    WEFT_ASSERT(wefti_sched_seq_reach(sched, seq, 0) <= seq->table.n * sched->options.block_size);
    /* Something is left, or its token is out. */
    WEFT_ASSERT(seq->n_planned < wefti_sched_seq_len(seq) + seq->is_held + seq->has_next);
}

/* Every block a running sequence holds is held, and nobody else but sessions and the prefix cache holds any. */
static void check_blocks(const weft_sched *sched) {
    uint64_t n_windowed = 0, n_holders = 0;
    uint64_t n_in_tables = wefti_sched_sessions_check(sched, &n_windowed) +
                           wefti_sched_files_check(sched, &n_windowed);
    weft_kv_pool_check(sched->pool);
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct weft_kv_table *table = &sched->running[i]->table;
        n_in_tables += table->n;
        weft_kv_prefix_check_chain(sched->cache, table, &sched->running[i]->chain);
        for (uint32_t b = 0; b < table->n; b++)
            WEFT_ASSERT(weft_kv_holders(sched->pool, table->blocks[b]) > 0);
    }
    for (uint32_t b = 0; b < sched->options.n_blocks; b++)
        n_holders += weft_kv_holders(sched->pool, b);
    WEFT_ASSERT(n_in_tables + weft_kv_prefix_n_nodes(sched->cache) == n_holders);
    weft_kv_prefix_check(sched->cache);
    wefti_sched_window_check(sched, n_windowed);
}

static void check_running(const weft_sched *sched) {
    WEFT_ASSERT(sched->n_running <= sched->running_max);
    WEFT_ASSERT(sched->n_running + sched->n_free_slots == sched->options.max_seqs);
    for (uint32_t i = 0; i < sched->n_running; i++) {
        check_running_seq(sched, sched->running[i]);
        WEFT_ASSERT(i == 0 || wefti_sched_seq_older(sched->running[i - 1], sched->running[i]));
    }
}

static void check_seq_rows(const weft_sched *sched, const struct seq *seq) {
    uint32_t n_rows = 0, n_samples = 0, n_spec = 0;
    for (uint32_t i = 0; i < WEFT_SCHED_PLANS_MAX; i++) {
        if (seq->row[i] == NO_ROW) continue;
        const struct plan_out *plan = &sched->out[i];
        WEFT_ASSERT(seq->row[i] < plan->n_rows && plan->rows[seq->row[i]].seq == seq);
        n_rows++;
        n_samples += plan->rows[seq->row[i]].samples;
        n_spec += plan->rows[seq->row[i]].n_spec;
    }
    WEFT_ASSERT(n_rows == seq->n_rows_out && n_rows <= sched->n_out);
    WEFT_ASSERT(n_samples == seq->n_samples_out);
    WEFT_ASSERT(seq->n_spec_out == (seq->state == SEQ_RUNNING ? n_spec : 0));
}

static void check_request(const weft_sched *sched, const struct request *req) {
    uint32_t n_in_state[SEQ_DONE + 1] = {0};
    for (uint32_t i = 0; i < req->n_choices; i++) {
        WEFT_ASSERT(req->seqs[i].req == req && req->seqs[i].choice == i);
        n_in_state[req->seqs[i].state]++;
        /* Who has a plan for itself, or waits for windowed blocks, may preempt anybody. */
        if (sched->options.window == 0 && sched->n_solitary_steps == 0)
            WEFT_ASSERT(req->seqs[i].n_preempted <= WEFTI_SCHED_PREEMPTED_MAX);
        check_seq_rows(sched, &req->seqs[i]);
    }
    WEFT_ASSERT(n_in_state[SEQ_WAITING] == req->n_waiting);
    WEFT_ASSERT(n_in_state[SEQ_RUNNING] == req->n_running);
    WEFT_ASSERT(req->n_live == req->n_waiting + req->n_running && req->n_live > 0);
    WEFT_ASSERT(!req->parked || req->n_running > 0); /* somebody will wake it */
    bool queued = req->by_turn.pos > 0;
    bool waits_apart = req->parked || req->follows || req->is_aside || req->awaits_grammar;
    WEFT_ASSERT(queued == (req->n_waiting > 0 && !waits_apart));
    WEFT_ASSERT(!req->follows || (req->n_running == 0 && !req->parked));
    WEFT_ASSERT(!req->awaits_grammar || (req->n_running == 0 && !req->follows));
    WEFT_ASSERT(req->by_deadline.pos > 0 || req->deadline_us == UINT64_MAX);
    WEFT_ASSERT(req->by_deadline.pos == 0 || req->by_deadline.key <= req->deadline_us);
}

static void check_requests(const weft_sched *sched) {
    uint32_t n = 0, n_waiting = 0, n_background = 0, n_background_seqs = 0, n_running = 0,
             n_running_seqs = 0, n_waiting_seqs = 0, n_followers = 0;
    uint64_t contrast_bytes = 0;
    for (uint32_t i = 0; i < sched->index.n_buckets; i++) {
        const struct request *req = NULL;
        LIST_FOREACH(req, &sched->index.buckets[i], link) {
            check_request(sched, req);
            n++;
            n_running += req->n_running > 0;
            n_waiting += req->n_running == 0 && !req->is_background;
            n_background += req->is_background;
            n_background_seqs += req->is_background ? req->n_running : 0;
            n_running_seqs += req->n_running;
            n_waiting_seqs += req->n_waiting;
            n_followers += req->follows;
            contrast_bytes += req->contrast_bytes;
        }
    }
    WEFT_ASSERT(n == sched->index.n);
    WEFT_ASSERT(contrast_bytes == sched->contrast_bytes);
    WEFT_ASSERT(n_running == sched->n_requests_running);
    WEFT_ASSERT(n_waiting == sched->n_requests_waiting);
    WEFT_ASSERT(n_background == sched->n_background);
    WEFT_ASSERT(n_background_seqs == sched->n_background_seqs);
    WEFT_ASSERT(n_running_seqs == sched->n_running);
    WEFT_ASSERT(n_waiting_seqs == sched->n_seqs_waiting);
    WEFT_ASSERT(n_followers == sched->n_followers); /* nobody left without leaving the list */
}

void weft_sched_check(const weft_sched *sched) {
    check_running(sched);
    check_blocks(sched);
    wefti_sched_spill_check(sched);
    wefti_sched_states_check(sched, wefti_sched_files_n_states(sched));
    check_requests(sched);
    wefti_sched_queue_check(sched);
    wefti_sched_heap_check(&sched->deadlines);
    uint64_t n_left = sched->n_finished + sched->n_cancelled + sched->n_timed_out +
                      sched->n_given_up + sched->n_moved;
    WEFT_ASSERT(sched->n_accepted == n_left + sched->index.n);
}
