/* Encoding: one function per struct, each a straight list of writes in the order of proto/schema.md.
 * The buffer remembers a failure, so that only the end looks for it. Vectors of plain numbers go out
 * as one `bin` each, so a decode plan of 64 rows is a handful of small writes. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"
#include "base/utf8.h"
#include "codec/msgpack.h"
#include "proto/proto.h"
#include "wire.h"

static void put_bin(struct weft_buf *buf, const void *items, size_t n, size_t item_bytes) {
    WEFT_ASSERT(n <= WEFT_MESSAGE_BYTES_MAX / item_bytes); /* else it fits no message */
    weft_msgpack_add_bin(buf, items, n * item_bytes);
}

/* Our text may hold bytes of others (a model's path, a quoted value cut inside a character): if it
 * is not UTF-8 it goes out as ASCII with '?', which every reader accepts. */
static void put_text(struct weft_buf *buf, const char *text, size_t len_max) {
    char ascii[WEFTI_PROTO_TEXT_BYTES_MAX];
    WEFT_ASSERT(len_max <= sizeof ascii);
    size_t len = strnlen(text, len_max);
    if (!weft_utf8_valid(text, len)) {
        for (size_t i = 0; i < len; i++)
            ascii[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
        text = ascii;
    }
    weft_msgpack_add_text(buf, text, len);
}

/* One that is known to be UTF-8: what it is compared with must be the same. */
static void put_str(struct weft_buf *buf, struct weft_str str, size_t len_max) {
    WEFT_ASSERT(str.len <= len_max);
    weft_msgpack_add_text(buf, str.len > 0 ? str.data : "", str.len);
}

/* ---------------------------------------------------------------------------- shared parts --- */

static void put_model(struct weft_buf *buf, const struct weft_model_info *model) {
    weft_msgpack_add_array(buf, WEFTI_PROTO_F_MODEL);
    put_text(buf, model->model_name, sizeof model->model_name - 1);
    put_text(buf, model->arch, sizeof model->arch - 1);
    put_text(buf, model->isa, sizeof model->isa - 1);
    put_text(buf, model->fingerprint, sizeof model->fingerprint - 1);
    weft_msgpack_add_uint(buf, model->n_vocab);
    weft_msgpack_add_uint(buf, model->n_blocks);
    weft_msgpack_add_uint(buf, model->block_size);
    weft_msgpack_add_uint(buf, model->max_model_len);
    weft_msgpack_add_uint(buf, model->max_seqs);
    weft_msgpack_add_uint(buf, model->max_batched_tokens);
    weft_msgpack_add_uint(buf, model->n_threads);
    weft_msgpack_add_uint(buf, model->weight_bytes);
    weft_msgpack_add_uint(buf, model->kv_bytes);
    weft_msgpack_add_uint(buf, model->long_prompt);
    weft_msgpack_add_uint(buf, model->window);
    weft_msgpack_add_uint(buf, model->n_window_blocks);
    weft_msgpack_add_uint(buf, model->n_spill_blocks);
    weft_msgpack_add_uint(buf, model->n_hidden);
    weft_msgpack_add_uint(buf, model->n_labels);
    weft_msgpack_add_bool(buf, model->is_encoder);
    weft_msgpack_add_bool(buf, model->has_contrast);
    weft_msgpack_add_bool(buf, model->is_recurrent);
    weft_msgpack_add_uint(buf, model->n_checkpoints);
}

static void put_grammar(struct weft_buf *buf, const struct weft_grammar *grammar) {
    if (grammar->kind == WEFT_GRAMMAR_NONE) {
        weft_msgpack_add_nil(buf);
        return;
    }
    weft_msgpack_add_array(buf, WEFTI_PROTO_F_GRAMMAR);
    weft_msgpack_add_uint(buf, grammar->kind);
    weft_msgpack_add_uint(buf, grammar->thinking);
    weft_msgpack_add_uint(buf, grammar->marks);
    weft_msgpack_add_uint(buf, grammar->json_blanks);
    weft_msgpack_add_uint(buf, grammar->json_digits);
    put_bin(buf, grammar->text, grammar->n_bytes, 1);
}

static void put_sampling(struct weft_buf *buf, const struct weft_sampling *sampling) {
    WEFT_ASSERT(sampling->n_logprobs >= -1 && sampling->n_prompt_logprobs >= -1);
    WEFT_ASSERT(sampling->repeat_last_n >= -1 && sampling->dry_penalty_last_n >= -1);
    weft_msgpack_add_array(buf, WEFTI_PROTO_F_SAMPLING);
#define PUT_U64(value) weft_msgpack_add_uint(buf, value)
#define PUT_U32(value) weft_msgpack_add_uint(buf, value)
#define PUT_I32(value) weft_msgpack_add_uint(buf, (uint32_t)((value) + 1))
#define PUT_F32(value) weft_msgpack_add_float(buf, value)
#define PUT_COUNT(value) weft_msgpack_add_uint(buf, (uint32_t)((value) + 1))
#define PUT(type, name, ...) PUT_##type(sampling->name);
    WEFT_SAMPLING_LIST(PUT, PUT)
#undef PUT
#undef PUT_COUNT
#undef PUT_F32
#undef PUT_I32
#undef PUT_U32
#undef PUT_U64
    put_bin(buf, sampling->stop_tokens, sampling->n_stop_tokens, sizeof *sampling->stop_tokens);
    put_bin(buf, sampling->bias, sampling->n_bias, sizeof *sampling->bias);
    put_bin(buf, sampling->masked_tokens, sampling->n_masked_tokens,
            sizeof *sampling->masked_tokens);
    put_bin(buf, sampling->allowed_tokens, sampling->n_allowed_tokens, sizeof(uint32_t));
    put_bin(buf, sampling->bad_words, sampling->n_bad_words, sizeof(uint32_t));
    put_bin(buf, sampling->dry_breakers, sampling->n_dry_breakers, sizeof(uint32_t));
    put_grammar(buf, &sampling->grammar);
}

/* Three fields of the struct that has it. */
static void put_pooling(struct weft_buf *buf, const struct weft_pooling *pooling) {
    WEFT_ASSERT((unsigned)pooling->kind < WEFT_POOLING_COUNT);
    WEFT_ASSERT(pooling->n_ids <= WEFT_POOLING_IDS_MAX);
    weft_msgpack_add_uint(buf, pooling->kind);
    put_bin(buf, pooling->ids, pooling->n_ids, sizeof *pooling->ids);
    weft_msgpack_add_uint(buf, pooling->n_first);
}

/* Its bits as a number: 0, which most samplings have, is one byte. */
static void put_state(struct weft_buf *buf, double state) {
    uint64_t bits;
    WEFT_ASSERT(isfinite(state));
    memcpy(&bits, &state, sizeof bits);
    weft_msgpack_add_uint(buf, bits);
}

static void put_adapters(struct weft_buf *buf, const struct weft_step_adapter *adapters,
                         uint32_t n) {
    WEFT_ASSERT(n <= WEFT_SEQ_ADAPTERS_MAX);
    put_bin(buf, adapters, n, sizeof *adapters);
}

static void put_digest(struct weft_buf *buf, const struct weft_digest *digest) {
    weft_msgpack_add_uint(buf, digest->hi);
    weft_msgpack_add_uint(buf, digest->lo);
}

/* Writes `n` entries as three vectors: heads, all best ids, those ids' values. None: nil. */
static void put_logprobs(struct weft_buf *buf, const struct weft_logprobs *entries, uint32_t n) {
    if (n == 0) {
        weft_msgpack_add_nil(buf);
        return;
    }
    size_t n_top = 0;
    weft_msgpack_add_array(buf, WEFTI_PROTO_F_LOGPROBS);
    WEFT_ASSERT(n <= WEFT_CONTEXT_MAX);
    weft_msgpack_add_bin_head(buf, n * sizeof(struct wefti_proto_logprob_head));
    for (uint32_t i = 0; i < n; i++) {
        struct wefti_proto_logprob_head head = {entries[i].logprob, entries[i].rank,
                                                entries[i].n_top};
        weft_buf_add(buf, &head, sizeof head);
        n_top += entries[i].n_top;
    }
    WEFT_ASSERT(n_top <= WEFTI_PROTO_LOGPROBS_MAX);
    weft_msgpack_add_bin_head(buf, n_top * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) {
        if (entries[i].n_top > 0)
            weft_buf_add(buf, entries[i].top_ids, entries[i].n_top * sizeof(uint32_t));
    }
    weft_msgpack_add_bin_head(buf, n_top * sizeof(float));
    for (uint32_t i = 0; i < n; i++) {
        if (entries[i].n_top > 0)
            weft_buf_add(buf, entries[i].top_logprobs, entries[i].n_top * sizeof(float));
    }
}

/* ----------------------------------------------------------------------- router, scheduler --- */

static void put_submit(struct weft_buf *buf, const struct weft_submit *submit) {
    WEFT_ASSERT(submit->n_prompt >= 1);
    WEFT_ASSERT(submit->n_choices >= 1 && submit->n_choices <= WEFT_CHOICES_MAX);
    weft_msgpack_add_uint(buf, submit->request_id);
    weft_msgpack_add_uint(buf, submit->attempt);
    weft_msgpack_add_bool(buf, submit->resume);
    put_bin(buf, submit->prompt, submit->n_prompt, sizeof *submit->prompt);
    weft_msgpack_add_array(buf, submit->n_choices);
    for (uint32_t i = 0; i < submit->n_choices; i++) {
        const struct weft_submit_choice *choice = &submit->choices[i];
        weft_msgpack_add_array(buf, WEFTI_PROTO_F_CHOICE);
        put_bin(buf, choice->output, choice->n_output, sizeof *choice->output);
        weft_msgpack_add_bool(buf, choice->finished);
        put_state(buf, choice->sampler_state);
    }
    weft_msgpack_add_uint(buf, submit->n_prompt_logprobs_done);
    weft_msgpack_add_uint(buf, submit->age_us);
    weft_msgpack_add_uint(buf, submit->deadline_us);
    put_sampling(buf, &submit->sampling);
    WEFT_ASSERT(submit->weight >= 1 && submit->weight <= WEFT_WEIGHT_MAX);
    weft_msgpack_add_int(buf, submit->priority);
    weft_msgpack_add_uint(buf, submit->ttft_us);
    weft_msgpack_add_uint(buf, submit->tpot_us);
    weft_msgpack_add_uint(buf, submit->tenant);
    weft_msgpack_add_uint(buf, submit->flow);
    weft_msgpack_add_uint(buf, submit->weight);
    put_digest(buf, &submit->cache_salt);
    put_pooling(buf, &submit->pooling);
    weft_msgpack_add_bool(buf, submit->no_guesses);
    put_str(buf, submit->session_id, WEFT_SESSION_ID_BYTES_MAX);
    put_adapters(buf, submit->adapters, submit->n_adapters);
    weft_msgpack_add_bool(buf, submit->shifts);
    weft_msgpack_add_uint(buf, submit->n_keep);
}

static void put_event(struct weft_buf *buf, const struct weft_event *event) {
    WEFT_ASSERT(event->sampled || !event->has_logprobs);
    WEFT_ASSERT(event->n_values == 0 || (!event->sampled && event->end != WEFT_END_NONE));
    weft_msgpack_add_array(buf, WEFTI_PROTO_F_EVENT);
    weft_msgpack_add_uint(buf, event->request_id);
    weft_msgpack_add_uint(buf, event->attempt);
    weft_msgpack_add_uint(buf, event->choice);
    weft_msgpack_add_uint(buf, event->sampled ? WEFTI_PROTO_FLAG_SAMPLED : 0);
    weft_msgpack_add_uint(buf, event->sampled ? event->token : 0);
    weft_msgpack_add_uint(buf, event->sampled ? event->output_idx : 0);
    weft_msgpack_add_uint(buf, event->end);
    put_logprobs(buf, &event->logprobs, event->has_logprobs ? 1 : 0);
    weft_msgpack_add_uint(buf, event->prompt_pos);
    put_logprobs(buf, event->prompt_logprobs, event->n_prompt_logprobs);
    weft_msgpack_add_uint(buf, event->n_prompt_cached);
    weft_msgpack_add_uint(buf, event->queued_us);
    put_bin(buf, event->values, event->n_values, sizeof *event->values);
    put_state(buf, event->sampler_state);
}

static void put_activity(struct weft_buf *buf, const struct weft_activity *activity) {
    WEFT_ASSERT(activity->n_steps <= WEFT_ACTIVITY_STEPS_MAX);
    WEFT_ASSERT(activity->n_seqs <= WEFT_ACTIVITY_SEQS_MAX);
    weft_msgpack_add_array(buf, activity->n_steps);
    for (uint32_t i = 0; i < activity->n_steps; i++) {
        const struct weft_activity_step *step = &activity->steps[i];
        weft_msgpack_add_array(buf, WEFTI_PROTO_F_ACTIVITY_STEP);
        weft_msgpack_add_uint(buf, step->step);
        weft_msgpack_add_uint(buf, step->age_us);
        weft_msgpack_add_uint(buf, step->busy_us);
        weft_msgpack_add_uint(buf, step->n_prompt_tokens);
        weft_msgpack_add_uint(buf, step->n_decode_tokens);
        weft_msgpack_add_uint(buf, step->n_seqs);
        weft_msgpack_add_uint(buf, step->group);
    }
    weft_msgpack_add_array(buf, activity->n_seqs);
    for (uint32_t i = 0; i < activity->n_seqs; i++) {
        const struct weft_activity_seq *seq = &activity->seqs[i];
        weft_msgpack_add_array(buf, WEFTI_PROTO_F_ACTIVITY_SEQ);
        weft_msgpack_add_uint(buf, seq->request_id);
        weft_msgpack_add_uint(buf, seq->age_us);
        weft_msgpack_add_uint(buf, seq->router);
        weft_msgpack_add_uint(buf, seq->choice);
        weft_msgpack_add_uint(buf, seq->phase);
        weft_msgpack_add_uint(buf, seq->n_prompt);
        weft_msgpack_add_uint(buf, seq->n_prompt_done);
        weft_msgpack_add_uint(buf, seq->n_output);
        weft_msgpack_add_uint(buf, seq->max_tokens);
        weft_msgpack_add_uint(buf, seq->n_blocks);
        weft_msgpack_add_uint(buf, seq->group);
    }
    weft_msgpack_add_uint(buf, activity->n_seqs_omitted);
    weft_msgpack_add_uint(buf, activity->router);
}

static void put_snapshot(struct weft_buf *buf, const struct weft_msg_snapshot *snap) {
    weft_msgpack_add_bool(buf, snap->serving);
    weft_msgpack_add_bool(buf, snap->advancing);
    weft_msgpack_add_bool(buf, snap->draining);
    if (snap->has_model)
        put_model(buf, &snap->model);
    else
        weft_msgpack_add_nil(buf);
    weft_msgpack_add_uint(buf, snap->n_waiting);
    weft_msgpack_add_uint(buf, snap->n_running);
    weft_msgpack_add_uint(buf, snap->n_blocks);
    weft_msgpack_add_uint(buf, snap->n_blocks_free);
    weft_msgpack_add_uint(buf, snap->n_blocks_cached);
    weft_msgpack_add_uint(buf, snap->n_window_blocks);
    weft_msgpack_add_uint(buf, snap->n_window_blocks_free);
    weft_msgpack_add_uint(buf, snap->max_queue);
#define VALUE(name, ...) snap->name,
    const uint64_t counters[] = {WEFT_COUNTER_LIST(VALUE, VALUE)};
#undef VALUE
    put_bin(buf, counters, WEFT_COUNTERS, sizeof *counters);
    put_bin(buf, snap->iter_tokens, WEFT_ITER_BUCKETS, sizeof *snap->iter_tokens);
    weft_msgpack_add_uint(buf, snap->sched_resident_bytes);
    weft_msgpack_add_uint(buf, snap->worker_resident_bytes);
    weft_msgpack_add_uint(buf, snap->sched_pid);
    weft_msgpack_add_uint(buf, snap->n_workers);
    weft_msgpack_add_uint(buf, snap->n_workers_serving);
    weft_msgpack_add_uint(buf, snap->spill_bytes);
    WEFT_ASSERT(snap->n_ranks <= WEFT_RANKS_TOLD_MAX);
    put_bin(buf, snap->ranks, snap->n_ranks, sizeof *snap->ranks);
    weft_msgpack_add_uint(buf, snap->n_sessions);
    weft_msgpack_add_uint(buf, snap->n_session_blocks);
    weft_msgpack_add_uint(buf, snap->n_checkpoints_held);
    put_activity(buf, &snap->activity);
}

/* ----------------------------------------------------------------------- scheduler, worker --- */

static void put_start(struct weft_buf *buf, const struct weft_step_start *start) {
    WEFT_ASSERT(start->n_prompt >= 1 && start->n_tokens >= start->n_prompt);
    WEFT_ASSERT(start->n_dropped < start->n_tokens &&
                start->n_keep < start->n_tokens - start->n_dropped);
    WEFT_ASSERT(start->n_cached < start->n_tokens - start->n_dropped);
    WEFT_ASSERT(start->n_cached <= start->n_written &&
                start->n_written <= start->n_tokens - start->n_dropped);
    weft_msgpack_add_array(buf, WEFTI_PROTO_F_START);
    weft_msgpack_add_uint(buf, start->slot);
    weft_msgpack_add_uint(buf, start->gen);
    weft_msgpack_add_uint(buf, start->choice);
    put_bin(buf, start->tokens, start->n_tokens, sizeof *start->tokens);
    weft_msgpack_add_uint(buf, start->n_prompt);
    weft_msgpack_add_uint(buf, start->n_cached);
    weft_msgpack_add_uint(buf, start->n_prompt_logprobs_done);
    put_sampling(buf, &start->sampling);
    weft_msgpack_add_uint(buf, start->n_window_skipped);
    put_pooling(buf, &start->pooling);
    put_state(buf, start->sampler_state);
    put_adapters(buf, start->adapters, start->n_adapters);
    weft_msgpack_add_uint(buf, start->n_keep);
    weft_msgpack_add_uint(buf, start->n_dropped);
    weft_msgpack_add_uint(buf, start->n_written);
}

static void put_grants(struct weft_buf *buf, const struct weft_step_grant *grants, uint32_t n) {
    size_t n_blocks = 0;
    WEFT_ASSERT(n <= WEFTI_PROTO_GRANTS_MAX);
    weft_msgpack_add_bin_head(buf, n * sizeof(struct wefti_proto_grant_head));
    for (uint32_t i = 0; i < n; i++) {
        struct wefti_proto_grant_head head = {grants[i].slot, grants[i].gen, grants[i].kind,
                                              grants[i].n_blocks};
        WEFT_ASSERT(head.n_blocks >= 1 && head.kind < WEFT_KV_KINDS);
        weft_buf_add(buf, &head, sizeof head);
        n_blocks += head.n_blocks;
    }
    WEFT_ASSERT(n_blocks <= WEFT_MESSAGE_BYTES_MAX / sizeof(uint32_t));
    weft_msgpack_add_bin_head(buf, n_blocks * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++)
        weft_buf_add(buf, grants[i].blocks, grants[i].n_blocks * sizeof(uint32_t));
}

static void put_plan(struct weft_buf *buf, const struct weft_step_plan *plan) {
    weft_msgpack_add_uint(buf, plan->epoch);
    weft_msgpack_add_uint(buf, plan->step);
    put_bin(buf, plan->releases, plan->n_releases, sizeof *plan->releases);
    weft_msgpack_add_array(buf, plan->n_starts);
    for (uint32_t i = 0; i < plan->n_starts; i++)
        put_start(buf, &plan->starts[i]);
    put_bin(buf, plan->copies, plan->n_copies, sizeof *plan->copies);
    put_grants(buf, plan->grants, plan->n_grants);
    put_bin(buf, plan->rows, plan->n_rows, sizeof *plan->rows);
    put_bin(buf, plan->spills, plan->n_spills, sizeof *plan->spills);
    put_bin(buf, plan->restores, plan->n_restores, sizeof *plan->restores);
    put_bin(buf, plan->states, plan->n_states, sizeof *plan->states);
}

static void put_out(struct weft_buf *buf, const struct weft_step_out *out) {
    WEFT_ASSERT(out->ran || !out->sampled);
    WEFT_ASSERT(out->n_values == 0 || (!out->sampled && out->finish != WEFT_END_NONE));
    WEFT_ASSERT(out->sampled || (!out->has_logprobs && out->n_more == 0));
    WEFT_ASSERT((out->ran && !out->sampled) || !out->is_late);
    WEFT_ASSERT(out->n_accepted <= weft_min_u32(out->n_proposed, out->n_more));
    weft_msgpack_add_array(buf, WEFTI_PROTO_F_OUT);
    weft_msgpack_add_uint(buf, out->slot);
    weft_msgpack_add_uint(buf, out->gen);
    weft_msgpack_add_uint(buf, (out->ran ? WEFTI_PROTO_FLAG_RAN : 0) |
                                   (out->sampled ? WEFTI_PROTO_FLAG_SAMPLED : 0) |
                                   (out->is_late ? WEFTI_PROTO_FLAG_LATE : 0));
    weft_msgpack_add_uint(buf, out->sampled ? out->token : 0);
    weft_msgpack_add_uint(buf, out->sampled ? out->output_idx : 0);
    weft_msgpack_add_uint(buf, out->finish);
    put_logprobs(buf, &out->logprobs, out->has_logprobs ? 1 : 0);
    weft_msgpack_add_uint(buf, out->prompt_pos);
    put_logprobs(buf, out->prompt_logprobs, out->n_prompt_logprobs);
    put_bin(buf, out->more, out->n_more, sizeof *out->more);
    put_bin(buf, out->values, out->n_values, sizeof *out->values);
    put_state(buf, out->sampler_state);
    weft_msgpack_add_uint(buf, out->n_proposed);
    weft_msgpack_add_uint(buf, out->n_accepted);
}

static void put_result(struct weft_buf *buf, const struct weft_step_result *result) {
    weft_msgpack_add_uint(buf, result->epoch);
    weft_msgpack_add_uint(buf, result->step);
    weft_msgpack_add_uint(buf, result->busy_us);
    weft_msgpack_add_uint(buf, result->idle_us);
    weft_msgpack_add_uint(buf, result->n_tokens);
    weft_msgpack_add_array(buf, result->n_outs);
    for (uint32_t i = 0; i < result->n_outs; i++)
        put_out(buf, &result->outs[i]);
    weft_msgpack_add_uint(buf, result->spill_us);
    weft_msgpack_add_uint(buf, result->draft_us);
    weft_msgpack_add_uint(buf, result->catch_up_us);
    weft_msgpack_add_uint(buf, result->contrast_us);
}

static void put_experts(struct weft_buf *buf, const struct weft_msg_experts *experts) {
    uint64_t n = (uint64_t)experts->n_layers * experts->n_experts;
    WEFT_ASSERT(n >= 1 && n <= WEFT_EXPERT_SERIES_MAX);
    weft_msgpack_add_uint(buf, experts->n_experts);
    put_bin(buf, experts->layers, experts->n_layers, sizeof *experts->layers);
    put_bin(buf, experts->rows, n, sizeof *experts->rows);
}

/* -------------------------------------------------------------------------------- sessions --- */

static void put_session(struct weft_buf *buf, const struct weft_session_wish *wish) {
    WEFT_ASSERT((unsigned)wish->op < WEFT_SESSION_OP_COUNT);
    weft_msgpack_add_uint(buf, wish->id);
    weft_msgpack_add_uint(buf, wish->op);
    weft_msgpack_add_uint(buf, wish->tenant);
    put_str(buf, wish->session_id, WEFT_SESSION_ID_BYTES_MAX);
    put_str(buf, wish->file, WEFT_SESSION_FILE_BYTES_MAX);
}

static void put_session_done(struct weft_buf *buf, const struct weft_session_answer *answer) {
    WEFT_ASSERT(answer->n_told <= WEFT_SESSIONS_MAX);
    weft_msgpack_add_uint(buf, answer->id);
    weft_msgpack_add_uint(buf, answer->err);
    put_text(buf, answer->text, WEFTI_PROTO_TEXT_BYTES_MAX);
    weft_msgpack_add_uint(buf, answer->n_tokens);
    weft_msgpack_add_uint(buf, answer->n_bytes);
    weft_msgpack_add_array(buf, answer->n_told);
    for (uint32_t i = 0; i < answer->n_told; i++) {
        const struct weft_session_told *told = &answer->told[i];
        weft_msgpack_add_array(buf, WEFTI_PROTO_F_SESSION_TOLD);
        put_str(buf, told->id, WEFT_SESSION_ID_BYTES_MAX);
        weft_msgpack_add_uint(buf, told->n_tokens);
        weft_msgpack_add_uint(buf, told->n_blocks);
        weft_msgpack_add_uint(buf, told->idle_us);
    }
}

static void put_kv_file(struct weft_buf *buf, const struct weft_kv_file *file) {
    WEFT_ASSERT((unsigned)file->op < WEFT_KV_FILE_OP_COUNT);
    weft_msgpack_add_uint(buf, file->epoch);
    weft_msgpack_add_uint(buf, file->id);
    weft_msgpack_add_uint(buf, file->op);
    put_str(buf, file->name, WEFT_SESSION_FILE_BYTES_MAX);
    weft_msgpack_add_uint(buf, file->tenant);
    weft_msgpack_add_uint(buf, file->space_hi);
    weft_msgpack_add_uint(buf, file->space_lo);
    put_bin(buf, file->tokens, file->n_tokens, sizeof *file->tokens);
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++)
        put_bin(buf, file->blocks[kind], file->n_blocks[kind], sizeof *file->blocks[kind]);
}

static void put_kv_filed(struct weft_buf *buf, const struct weft_kv_filed *filed) {
    weft_msgpack_add_uint(buf, filed->epoch);
    weft_msgpack_add_uint(buf, filed->id);
    weft_msgpack_add_uint(buf, filed->err);
    put_text(buf, filed->text, WEFTI_PROTO_TEXT_BYTES_MAX);
    weft_msgpack_add_uint(buf, filed->n_bytes);
    weft_msgpack_add_uint(buf, filed->space_hi);
    weft_msgpack_add_uint(buf, filed->space_lo);
    put_bin(buf, filed->tokens, filed->n_tokens, sizeof *filed->tokens);
}

/* -------------------------------------------------------------------------------- messages --- */

static void put_worker_hello(struct weft_buf *buf, const struct weft_msg_worker_hello *hello) {
    weft_msgpack_add_uint(buf, hello->version);
    weft_msgpack_add_uint(buf, hello->instance);
    weft_msgpack_add_uint(buf, hello->pid);
    put_model(buf, &hello->model);
}

static void put_lora(struct weft_buf *buf, const struct weft_msg_lora *lora) {
    weft_msgpack_add_uint(buf, lora->id);
    weft_msgpack_add_bool(buf, lora->is_there);
    put_digest(buf, &lora->digest);
    weft_msgpack_add_uint(buf, lora->bytes);
    put_text(buf, lora->text, WEFTI_PROTO_TEXT_BYTES_MAX);
}

static void put_rejected(struct weft_buf *buf, const struct weft_rejection *rejected) {
    WEFT_ASSERT(rejected->reason > WEFT_REJECT_NONE && rejected->reason < WEFT_REJECT_COUNT);
    weft_msgpack_add_uint(buf, rejected->request_id);
    weft_msgpack_add_uint(buf, rejected->attempt);
    weft_msgpack_add_uint(buf, rejected->reason);
    weft_msgpack_add_uint(buf, rejected->retry_after_ms);
    put_text(buf, rejected->text, WEFTI_PROTO_TEXT_BYTES_MAX);
}

/* Opens the message's array and writes its type. */
static void put_head(struct weft_buf *buf, enum weft_proto_type type, uint32_t n_fields) {
    weft_msgpack_add_array(buf, n_fields);
    weft_msgpack_add_uint(buf, type);
}

static void put_message(struct weft_buf *buf, const struct weft_msg *msg) {
    switch (msg->type) {
    case WEFT_MSG_ROUTER_HELLO:
        put_head(buf, msg->type, WEFTI_PROTO_F_ROUTER_HELLO);
        weft_msgpack_add_uint(buf, msg->router_hello.version);
        weft_msgpack_add_uint(buf, msg->router_hello.instance);
        weft_msgpack_add_uint(buf, msg->router_hello.pid);
        return;
    case WEFT_MSG_SUBMIT:
        put_head(buf, msg->type, WEFTI_PROTO_F_SUBMIT);
        put_submit(buf, &msg->submit);
        return;
    case WEFT_MSG_CANCEL:
        put_head(buf, msg->type, WEFTI_PROTO_F_CANCEL);
        weft_msgpack_add_uint(buf, msg->cancel.request_id);
        weft_msgpack_add_uint(buf, msg->cancel.attempt);
        weft_msgpack_add_uint(buf, msg->cancel.choice);
        return;
    case WEFT_MSG_SCHED_HELLO:
        put_head(buf, msg->type, WEFTI_PROTO_F_SCHED_HELLO);
        weft_msgpack_add_uint(buf, msg->sched_hello.version);
        weft_msgpack_add_uint(buf, msg->sched_hello.instance);
        weft_msgpack_add_uint(buf, msg->sched_hello.epoch);
        weft_msgpack_add_uint(buf, msg->sched_hello.pid);
        return;
    case WEFT_MSG_ACCEPTED:
        put_head(buf, msg->type, WEFTI_PROTO_F_ACCEPTED);
        weft_msgpack_add_uint(buf, msg->accepted.request_id);
        weft_msgpack_add_uint(buf, msg->accepted.attempt);
        return;
    case WEFT_MSG_REJECTED:
        put_head(buf, msg->type, WEFTI_PROTO_F_REJECTED);
        put_rejected(buf, &msg->rejected);
        return;
    case WEFT_MSG_EVENTS:
        put_head(buf, msg->type, WEFTI_PROTO_F_EVENTS);
        weft_msgpack_add_array(buf, msg->events.n);
        for (uint32_t i = 0; i < msg->events.n; i++)
            put_event(buf, &msg->events.events[i]);
        return;
    case WEFT_MSG_SNAPSHOT:
        put_head(buf, msg->type, WEFTI_PROTO_F_SNAPSHOT + WEFTI_PROTO_F_ACTIVITY);
        put_snapshot(buf, &msg->snapshot);
        return;
    case WEFT_MSG_WORKER_HELLO:
        put_head(buf, msg->type, WEFTI_PROTO_F_WORKER_HELLO);
        put_worker_hello(buf, &msg->worker_hello);
        return;
    case WEFT_MSG_RESULT:
        put_head(buf, msg->type, WEFTI_PROTO_F_RESULT);
        put_result(buf, &msg->result);
        return;
    case WEFT_MSG_HEARTBEAT:
        put_head(buf, msg->type, WEFTI_PROTO_F_HEARTBEAT + WEFTI_PROTO_F_AWAITED);
        weft_msgpack_add_uint(buf, msg->heartbeat.progress);
        weft_msgpack_add_bool(buf, msg->heartbeat.busy);
        WEFT_ASSERT(msg->heartbeat.n_ranks <= WEFT_RANKS_MAX);
        put_bin(buf, msg->heartbeat.ranks, msg->heartbeat.n_ranks, sizeof *msg->heartbeat.ranks);
        weft_msgpack_add_uint(buf, msg->heartbeat.awaited_rank);
        weft_msgpack_add_uint(buf, msg->heartbeat.awaited_pid);
        return;
    case WEFT_MSG_PLAN:
        put_head(buf, msg->type, WEFTI_PROTO_F_PLAN);
        put_plan(buf, &msg->plan);
        return;
    case WEFT_MSG_EXPERTS:
        put_head(buf, msg->type, WEFTI_PROTO_F_EXPERTS);
        put_experts(buf, &msg->experts);
        return;
    case WEFT_MSG_RESET_CACHE:
        put_head(buf, msg->type, WEFTI_PROTO_F_RESET_CACHE);
        return;
    case WEFT_MSG_GRAMMAR:
        put_head(buf, msg->type, WEFTI_PROTO_F_GRAMMAR_AHEAD);
        weft_msgpack_add_uint(buf, msg->grammar.epoch);
        weft_msgpack_add_uint(buf, msg->grammar.id);
        put_grammar(buf, &msg->grammar.grammar);
        return;
    case WEFT_MSG_COMPILED:
        put_head(buf, msg->type, WEFTI_PROTO_F_COMPILED);
        weft_msgpack_add_uint(buf, msg->compiled.epoch);
        weft_msgpack_add_uint(buf, msg->compiled.id);
        return;
    case WEFT_MSG_SESSION:
        put_head(buf, msg->type, WEFTI_PROTO_F_SESSION);
        put_session(buf, &msg->session);
        return;
    case WEFT_MSG_SESSION_DONE:
        put_head(buf, msg->type, WEFTI_PROTO_F_SESSION_DONE);
        put_session_done(buf, &msg->session_done);
        return;
    case WEFT_MSG_KV_FILE:
        put_head(buf, msg->type, WEFTI_PROTO_F_KV_FILE);
        put_kv_file(buf, &msg->kv_file);
        return;
    case WEFT_MSG_KV_FILED:
        put_head(buf, msg->type, WEFTI_PROTO_F_KV_FILED);
        put_kv_filed(buf, &msg->kv_filed);
        return;
    case WEFT_MSG_ADD_LORA:
        put_head(buf, msg->type, WEFTI_PROTO_F_ADD_LORA);
        weft_msgpack_add_uint(buf, msg->add_lora.id);
        put_digest(buf, &msg->add_lora.digest);
        put_bin(buf, msg->add_lora.path, strlen(msg->add_lora.path), 1);
        return;
    case WEFT_MSG_REMOVE_LORA:
        put_head(buf, msg->type, WEFTI_PROTO_F_REMOVE_LORA);
        weft_msgpack_add_uint(buf, msg->remove_lora.id);
        return;
    case WEFT_MSG_LORA:
        put_head(buf, msg->type, WEFTI_PROTO_F_LORA);
        put_lora(buf, &msg->lora);
        return;
    case WEFT_MSG_TYPE_COUNT:
        break;
    }
}

void weft_proto_encode(const struct weft_msg *msg, struct weft_buf *out) {
    WEFT_ASSERT((unsigned)msg->type < WEFT_MSG_TYPE_COUNT);
    size_t len_before = out->len;
    put_message(out, msg);
    if (out->failed) out->len = len_before; /* a piece of a message is worse than none */
}

const char *weft_proto_type_name(enum weft_proto_type type) {
    static const char *const names[WEFT_MSG_TYPE_COUNT] = {
        [WEFT_MSG_ROUTER_HELLO] = "router_hello",
        [WEFT_MSG_SUBMIT] = "submit",
        [WEFT_MSG_CANCEL] = "cancel",
        [WEFT_MSG_SCHED_HELLO] = "sched_hello",
        [WEFT_MSG_ACCEPTED] = "accepted",
        [WEFT_MSG_REJECTED] = "rejected",
        [WEFT_MSG_EVENTS] = "events",
        [WEFT_MSG_SNAPSHOT] = "snapshot",
        [WEFT_MSG_WORKER_HELLO] = "worker_hello",
        [WEFT_MSG_RESULT] = "result",
        [WEFT_MSG_HEARTBEAT] = "heartbeat",
        [WEFT_MSG_PLAN] = "plan",
        [WEFT_MSG_EXPERTS] = "experts",
        [WEFT_MSG_RESET_CACHE] = "reset_cache",
        [WEFT_MSG_GRAMMAR] = "grammar",
        [WEFT_MSG_COMPILED] = "compiled",
        [WEFT_MSG_SESSION] = "session",
        [WEFT_MSG_SESSION_DONE] = "session_done",
        [WEFT_MSG_KV_FILE] = "kv_file",
        [WEFT_MSG_KV_FILED] = "kv_filed",
        [WEFT_MSG_ADD_LORA] = "add_lora",
        [WEFT_MSG_REMOVE_LORA] = "remove_lora",
        [WEFT_MSG_LORA] = "lora",
    };
    return (unsigned)type < WEFT_MSG_TYPE_COUNT ? names[type] : "unknown";
}
