/* Blocks of preempted sequences in a file of the worker's.
 *
 * A victim's own blocks are written to slots of the file when writing and reading them takes less
 * time than computing them again, and read back when it starts again. Whose are which slots is
 * known here; the worker has the bytes.
 *
 * When may a slot be given to somebody else? A plan's spills are executed before its restores. So a
 * slot read by plan k may be written by plan k + 1; a plan that has restores when a victim is chosen
 * (a suspect started first) spills nothing. Spills of a plan that did not go out stay for the next
 * one, as releases do: until then nothing is executed that could overwrite the blocks.
 *
 * A row of the victim's may be out still. It belongs to an earlier plan, and what it writes is in
 * the block when the spill is executed. Does it turn out to end the sequence, the slots are free.
 *
 * With a new epoch there is a new file: what sequences had in the old one is told by its epoch. */
#include "scheduler_internal.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/minmax.h"

/* 500 MB in a second, until it is measured: less than any SSD reads. */
#define FIRST_NS_PER_BYTE 2u
/* What a plan may spend on spills, and on restores: all others wait for it. */
#define PLAN_NS 1000000000ull
#define LEARN_PART 8   /* of a new measurement */
#define FORGET_PART 64 /* see forget_slowness */
/* So many workers in a row were lost while their files were written or read: the disk may hang, and
 * the next one would hang on it, too. */
#define LOSSES_MAX 2

static bool has_spilled(const weft_sched *sched, const struct seq *seq) {
    return seq->spilled.n > 0 && seq->spilled.epoch == sched->epoch;
}

static uint64_t first_ns(const weft_sched *sched) {
    return weft_max_u64(sched->options.block_bytes * FIRST_NS_PER_BYTE, 1);
}

static uint32_t plan_blocks(const weft_sched *sched) {
    return (uint32_t)weft_min_u64(PLAN_NS / sched->spill_ns, WEFT_STEP_SPILLS_MAX);
}

/* ----------------------------------------------------------------------------------- slots --- */

static uint32_t take_slot(weft_sched *sched) {
    uint32_t slot = sched->first_spill_free;
    WEFT_ASSERT(sched->n_spill_free > 0 && slot < sched->n_spill_slots);
    sched->first_spill_free = sched->spill_next[slot];
    sched->n_spill_free--;
    return slot;
}

void wefti_sched_spill_drop(weft_sched *sched, struct seq *seq) {
    uint32_t slot = seq->spilled.first_slot, n = has_spilled(sched, seq) ? seq->spilled.n : 0;
    seq->spilled = (struct spilled){0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t next = sched->spill_next[slot];
        sched->spill_next[slot] = sched->first_spill_free;
        sched->first_spill_free = slot;
        sched->n_spill_free++;
        slot = next;
    }
}

/* -------------------------------------------------------------------------------- spilling --- */

static bool can_be_spilled(const weft_sched *sched, const struct seq *victim, uint32_t n_blocks) {
    bool is_new = victim->start_step == sched->step; /* the worker does not know its blocks yet */
    return !is_new && sched->plan.n_restores == 0 && n_blocks <= sched->n_spill_free &&
           !wefti_sched_computes_all(victim->req);
}

/* Both ways count: steps wait for either. UINT64_MAX: more than a plan may spend. */
static uint64_t move_us(const weft_sched *sched, uint32_t n_blocks) {
    if (sched->n_spills + n_blocks > plan_blocks(sched)) return UINT64_MAX;
    return 2ull * n_blocks * sched->spill_ns / 1000;
}

/* An estimate that says no is not measured again, so it goes back towards the first one each time: a
 * disk that was busy once is tried again. */
static void forget_slowness(weft_sched *sched) {
    uint64_t first = first_ns(sched);
    if (sched->spill_ns > first) sched->spill_ns -= (sched->spill_ns - first) / FORGET_PART + 1;
}

uint64_t wefti_sched_give_up_us(const weft_sched *sched, const struct seq *victim,
                                uint32_t n_shared_blocks, uint64_t recompute_us) {
    uint32_t n = wefti_sched_blocks_for(sched, victim->n_planned) - n_shared_blocks;
    if (!can_be_spilled(sched, victim, n)) return recompute_us;
    return weft_min_u64(recompute_us, move_us(sched, n));
}

void wefti_sched_spill(weft_sched *sched, struct seq *victim, uint32_t n_shared_blocks,
                       uint64_t recompute_us) {
    uint32_t n = wefti_sched_blocks_for(sched, victim->n_planned) - n_shared_blocks;
    WEFT_ASSERT(victim->state == SEQ_RUNNING && !has_spilled(sched, victim));
    if (!can_be_spilled(sched, victim, n)) return;
    if (move_us(sched, n) >= recompute_us) {
        forget_slowness(sched);
        return;
    }
    victim->spilled = (struct spilled){.epoch = sched->epoch,
                                       .n = n,
                                       .first_block = n_shared_blocks,
                                       .n_tokens = victim->n_planned};
    uint32_t *link = &victim->spilled.first_slot;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = take_slot(sched);
        *link = slot;
        link = &sched->spill_next[slot];
        sched->spills[sched->n_spills++] = (struct weft_step_spill){
            .block = victim->table.blocks[n_shared_blocks + i], .slot = slot};
    }
    sched->n_spilled_blocks += n;
}

/* ------------------------------------------------------------------------------- restoring --- */

/* Of use only if what was shared is still to be had: else there is a hole before it. */
void wefti_sched_spill_extend(const weft_sched *sched, const struct seq *seq,
                              struct prefix *prefix) {
    if (!has_spilled(sched, seq) || prefix->n_blocks < seq->spilled.first_block) return;
    if (wefti_sched_computes_all(seq->req)) return;
    uint32_t n_known = wefti_sched_seq_known(seq);
    uint32_t n_tokens = weft_min_u32(seq->spilled.n_tokens, n_known - 1);
    if (n_tokens <= prefix->n_cached) return;
    prefix->partial = WEFT_KV_NONE;
    prefix->n_cached = n_tokens;
    prefix->n_restored = wefti_sched_blocks_for(sched, n_tokens) - prefix->n_blocks;
}

bool wefti_sched_spill_fits(const weft_sched *sched, uint32_t n_restored) {
    uint32_t n = sched->plan.n_restores;
    return n_restored == 0 || n == 0 || n + n_restored <= plan_blocks(sched);
}

void wefti_sched_spill_restore(weft_sched *sched, const struct seq *seq,
                               const struct prefix *prefix) {
    uint32_t slot = seq->spilled.first_slot, n = sched->plan.n_restores;
    WEFT_ASSERT(has_spilled(sched, seq) && n + prefix->n_restored <= WEFT_STEP_SPILLS_MAX);
    for (uint32_t i = seq->spilled.first_block; i < prefix->n_blocks; i++)
        slot = sched->spill_next[slot];
    for (uint32_t i = 0; i < prefix->n_restored; i++) {
        sched->restores[n++] = (struct weft_step_spill){
            .block = seq->table.blocks[prefix->n_blocks + i], .slot = slot};
        slot = sched->spill_next[slot];
    }
    sched->plan.n_restores = n;
    sched->n_restored_blocks += prefix->n_restored;
}

/* ------------------------------------------------------------------------------------ rest --- */

void wefti_sched_spill_learn(weft_sched *sched, uint32_t n_moved, uint32_t spill_us) {
    if (n_moved == 0) return;
    uint64_t measured = (uint64_t)spill_us * 1000 / n_moved;
    uint64_t sum = sched->spill_ns * (LEARN_PART - 1) + measured;
    sched->spill_ns = weft_max_u64(sum / LEARN_PART, 1);
    sched->n_spill_losses = 0;
}

void wefti_sched_spill_note_loss(weft_sched *sched) {
    bool moves = false;
    for (uint32_t i = 1; i <= sched->n_out; i++)
        moves |= sched->out[(sched->step - i) % WEFT_SCHED_PLANS_MAX].n_moved > 0;
    sched->has_noted_loss = moves && sched->n_spill_losses < LOSSES_MAX;
    if (!sched->has_noted_loss) return;
    sched->n_spill_losses++;
    if (sched->n_spill_losses == LOSSES_MAX) sched->n_spill_files_lost++;
}

static void set_slots(weft_sched *sched, uint32_t n_slots) {
    if (sched->n_spill_losses == LOSSES_MAX) n_slots = 0;
    sched->n_spill_slots = sched->n_spill_free = n_slots;
    sched->first_spill_free = 0;
    for (uint32_t i = 0; i < n_slots; i++)
        sched->spill_next[i] = i + 1;
}

/* The session ended since the file gave an error, and not since the worker hung on it. */
static void take_back_loss(weft_sched *sched) {
    if (!sched->has_noted_loss) return;
    if (sched->n_spill_losses == LOSSES_MAX) sched->n_spill_files_lost--;
    sched->n_spill_losses--;
    sched->has_noted_loss = false;
}

uint32_t weft_sched_limit_spill(weft_sched *sched, uint32_t n_spill_blocks) {
    WEFT_ASSERT(sched->n_spill_free == sched->n_spill_slots); /* a new epoch's */
    uint32_t n = weft_min_u32(n_spill_blocks, sched->options.n_spill_blocks);
    bool has_file = n > 0;
    if (!has_file && sched->had_spill_file) {
        take_back_loss(sched);
        sched->n_spill_files_lost++;
    }
    sched->had_spill_file = has_file;
    set_slots(sched, n);
    return sched->n_spill_slots;
}

void wefti_sched_spill_reset(weft_sched *sched) {
    sched->n_spills = 0;
    sched->spill_ns = first_ns(sched);
    set_slots(sched, sched->options.n_spill_blocks);
}

weft_err wefti_sched_spill_init(weft_sched *sched) {
    uint32_t n = sched->options.n_spill_blocks;
    if (n > 0) {
        sched->spill_next = calloc(n, sizeof *sched->spill_next);
        sched->spills = calloc(WEFT_STEP_SPILLS_MAX, sizeof *sched->spills);
        sched->restores = calloc(WEFT_STEP_SPILLS_MAX, sizeof *sched->restores);
        if (!sched->spill_next || !sched->spills || !sched->restores) return WEFT_E_NOMEM;
    }
    sched->had_spill_file = n > 0;
    wefti_sched_spill_reset(sched);
    return WEFT_OK;
}

void wefti_sched_spill_fini(weft_sched *sched) {
    free(sched->spill_next);
    free(sched->spills);
    free(sched->restores);
}

/* Every slot is free, or one waiting sequence's. */
void wefti_sched_spill_check(const weft_sched *sched) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < sched->index.n_buckets; i++) {
        const struct request *req = NULL;
        LIST_FOREACH(req, &sched->index.buckets[i], link) {
            for (uint32_t c = 0; c < req->n_choices; c++) {
                const struct seq *seq = &req->seqs[c];
                if (!has_spilled(sched, seq)) continue;
                WEFT_ASSERT(seq->state == SEQ_WAITING);
                n += seq->spilled.n;
            }
        }
    }
    WEFT_ASSERT(n + sched->n_spill_free == sched->n_spill_slots);
    uint32_t slot = sched->first_spill_free;
    for (uint32_t i = 0; i < sched->n_spill_free; i++) {
        WEFT_ASSERT(slot < sched->n_spill_slots);
        slot = sched->spill_next[slot];
    }
}
