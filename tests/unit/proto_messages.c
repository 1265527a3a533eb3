#include "unit/proto_messages.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"
#include "base/rand.h"

/* ------------------------------------------------------------------------------- comparison --- */

static uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static bool same_bits(float a, float b) {
    return to_bits(a) == to_bits(b);
}

static bool same_items(const void *a, uint32_t n_a, const void *b, uint32_t n_b,
                       size_t item_bytes) {
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * item_bytes) == 0);
}

static bool same_model(const struct weft_model_info *a, const struct weft_model_info *b) {
    return strcmp(a->model_name, b->model_name) == 0 && strcmp(a->arch, b->arch) == 0 &&
           strcmp(a->isa, b->isa) == 0 && strcmp(a->fingerprint, b->fingerprint) == 0 &&
           a->n_vocab == b->n_vocab && a->n_blocks == b->n_blocks &&
           a->block_size == b->block_size && a->max_model_len == b->max_model_len &&
           a->max_seqs == b->max_seqs && a->max_batched_tokens == b->max_batched_tokens &&
           a->n_threads == b->n_threads && a->weight_bytes == b->weight_bytes &&
           a->kv_bytes == b->kv_bytes && a->long_prompt == b->long_prompt &&
           a->window == b->window && a->n_window_blocks == b->n_window_blocks &&
           a->n_spill_blocks == b->n_spill_blocks && a->n_hidden == b->n_hidden &&
           a->n_labels == b->n_labels && a->is_encoder == b->is_encoder &&
           a->has_contrast == b->has_contrast && a->is_recurrent == b->is_recurrent &&
           a->n_checkpoints == b->n_checkpoints;
}

/* Bit for bit. */
static bool same_state(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static bool same_grammar(const struct weft_grammar *a, const struct weft_grammar *b) {
    return a->kind == b->kind && a->thinking == b->thinking && a->marks == b->marks &&
           a->json_blanks == b->json_blanks && a->json_digits == b->json_digits &&
           same_items(a->text, a->n_bytes, b->text, b->n_bytes, 1);
}

static bool same_sampling(const struct weft_sampling *a, const struct weft_sampling *b) {
#define SAME_U64(name) a->name == b->name
#define SAME_U32(name) a->name == b->name
#define SAME_COUNT(name) a->name == b->name
#define SAME_I32(name) a->name == b->name
#define SAME_F32(name) same_bits(a->name, b->name)
#define SAME(type, name, ...) SAME_##type(name) &&
    return WEFT_SAMPLING_LIST(SAME, SAME)
#undef SAME
               same_items(a->stop_tokens, a->n_stop_tokens, b->stop_tokens, b->n_stop_tokens,
                          sizeof *a->stop_tokens) &&
           same_items(a->masked_tokens, a->n_masked_tokens, b->masked_tokens, b->n_masked_tokens,
                      sizeof *a->masked_tokens) &&
           same_items(a->allowed_tokens, a->n_allowed_tokens, b->allowed_tokens,
                      b->n_allowed_tokens, sizeof(uint32_t)) &&
           same_items(a->dry_breakers, a->n_dry_breakers, b->dry_breakers, b->n_dry_breakers,
                      sizeof(uint32_t)) &&
           same_items(a->bad_words, a->n_bad_words, b->bad_words, b->n_bad_words,
                      sizeof(uint32_t)) &&
           same_grammar(&a->grammar, &b->grammar) &&
           same_items(a->bias, a->n_bias, b->bias, b->n_bias, sizeof *a->bias);
}

static bool same_logprobs(const struct weft_logprobs *a, uint32_t n_a,
                          const struct weft_logprobs *b, uint32_t n_b) {
    if (n_a != n_b) return false;
    for (uint32_t i = 0; i < n_a; i++) {
        if (!same_bits(a[i].logprob, b[i].logprob) || a[i].rank != b[i].rank ||
            !same_items(a[i].top_ids, a[i].n_top, b[i].top_ids, b[i].n_top, sizeof(uint32_t)) ||
            !same_items(a[i].top_logprobs, a[i].n_top, b[i].top_logprobs, b[i].n_top,
                        sizeof(float)))
            return false;
    }
    return true;
}

static bool same_pooling(const struct weft_pooling *a, const struct weft_pooling *b) {
    return a->kind == b->kind && a->n_first == b->n_first &&
           same_items(a->ids, a->n_ids, b->ids, b->n_ids, sizeof *a->ids);
}

static bool same_adapters(const struct weft_step_adapter *a, uint32_t n_a,
                          const struct weft_step_adapter *b, uint32_t n_b) {
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * sizeof *a) == 0);
}

static bool same_lora(const struct weft_msg_lora *a, const struct weft_msg_lora *b) {
    return a->id == b->id && a->is_there == b->is_there && a->digest.hi == b->digest.hi &&
           a->digest.lo == b->digest.lo && a->bytes == b->bytes && strcmp(a->text, b->text) == 0;
}

static bool same_submit(const struct weft_submit *a, const struct weft_submit *b) {
    if (a->request_id != b->request_id || a->attempt != b->attempt || a->resume != b->resume ||
        a->n_prompt_logprobs_done != b->n_prompt_logprobs_done || a->age_us != b->age_us ||
        a->deadline_us != b->deadline_us || a->n_choices != b->n_choices ||
        a->priority != b->priority || a->ttft_us != b->ttft_us || a->tpot_us != b->tpot_us ||
        a->tenant != b->tenant || a->flow != b->flow || a->weight != b->weight ||
        !same_adapters(a->adapters, a->n_adapters, b->adapters, b->n_adapters) ||
        a->shifts != b->shifts || a->n_keep != b->n_keep || a->no_guesses != b->no_guesses ||
        a->cache_salt.hi != b->cache_salt.hi || a->cache_salt.lo != b->cache_salt.lo ||
        !same_items(a->prompt, a->n_prompt, b->prompt, b->n_prompt, sizeof *a->prompt) ||
        !same_sampling(&a->sampling, &b->sampling) || !same_pooling(&a->pooling, &b->pooling) ||
        !weft_str_is(a->session_id, b->session_id.data, b->session_id.len))
        return false;
    for (uint32_t i = 0; i < a->n_choices; i++) {
        const struct weft_submit_choice *x = &a->choices[i], *y = &b->choices[i];
        if (x->finished != y->finished || !same_state(x->sampler_state, y->sampler_state) ||
            !same_items(x->output, x->n_output, y->output, y->n_output, sizeof *x->output))
            return false;
    }
    return true;
}

static bool same_event(const struct weft_event *a, const struct weft_event *b) {
    if (a->request_id != b->request_id || a->attempt != b->attempt || a->choice != b->choice ||
        a->sampled != b->sampled || a->end != b->end || a->has_logprobs != b->has_logprobs ||
        a->prompt_pos != b->prompt_pos || a->n_prompt_cached != b->n_prompt_cached ||
        a->queued_us != b->queued_us ||
        !same_items(a->values, a->n_values, b->values, b->n_values, sizeof *a->values) ||
        !same_state(a->sampler_state, b->sampler_state))
        return false;
    if (a->sampled && (a->token != b->token || a->output_idx != b->output_idx)) return false;
    if (a->has_logprobs && !same_logprobs(&a->logprobs, 1, &b->logprobs, 1)) return false;
    return same_logprobs(a->prompt_logprobs, a->n_prompt_logprobs, b->prompt_logprobs,
                         b->n_prompt_logprobs);
}

static bool same_activity(const struct weft_activity *a, const struct weft_activity *b) {
    if (a->n_steps != b->n_steps || a->n_seqs != b->n_seqs || a->router != b->router ||
        a->n_seqs_omitted != b->n_seqs_omitted)
        return false;
    for (uint32_t i = 0; i < a->n_steps; i++) {
        const struct weft_activity_step *x = &a->steps[i], *y = &b->steps[i];
        if (x->step != y->step || x->age_us != y->age_us || x->busy_us != y->busy_us ||
            x->n_prompt_tokens != y->n_prompt_tokens || x->n_decode_tokens != y->n_decode_tokens ||
            x->n_seqs != y->n_seqs || x->group != y->group)
            return false;
    }
    for (uint32_t i = 0; i < a->n_seqs; i++) {
        const struct weft_activity_seq *x = &a->seqs[i], *y = &b->seqs[i];
        if (x->request_id != y->request_id || x->age_us != y->age_us || x->router != y->router ||
            x->choice != y->choice || x->phase != y->phase || x->n_prompt != y->n_prompt ||
            x->n_prompt_done != y->n_prompt_done || x->n_output != y->n_output ||
            x->max_tokens != y->max_tokens || x->n_blocks != y->n_blocks || x->group != y->group)
            return false;
    }
    return true;
}

static bool same_snapshot(const struct weft_msg_snapshot *a, const struct weft_msg_snapshot *b) {
    if (a->has_model != b->has_model || (a->has_model && !same_model(&a->model, &b->model)))
        return false;
    /* From n_waiting on there are plain numbers; both sides were zeroed, hence padding and all. */
    const size_t from = offsetof(struct weft_msg_snapshot, n_waiting);
    const size_t to = offsetof(struct weft_msg_snapshot, activity);
    return a->serving == b->serving && a->advancing == b->advancing && a->draining == b->draining &&
           memcmp((const char *)a + from, (const char *)b + from, to - from) == 0 &&
           same_activity(&a->activity, &b->activity);
}

static bool same_out(const struct weft_step_out *a, const struct weft_step_out *b) {
    if (a->slot != b->slot || a->gen != b->gen || a->ran != b->ran || a->sampled != b->sampled ||
        a->finish != b->finish || a->has_logprobs != b->has_logprobs ||
        a->prompt_pos != b->prompt_pos || a->is_late != b->is_late ||
        a->n_proposed != b->n_proposed || a->n_accepted != b->n_accepted)
        return false;
    if (!same_items(a->values, a->n_values, b->values, b->n_values, sizeof *a->values) ||
        !same_state(a->sampler_state, b->sampler_state))
        return false;
    if (!same_items(a->more, a->n_more, b->more, b->n_more, sizeof *a->more)) return false;
    if (a->sampled && (a->token != b->token || a->output_idx != b->output_idx)) return false;
    if (a->has_logprobs && !same_logprobs(&a->logprobs, 1, &b->logprobs, 1)) return false;
    return same_logprobs(a->prompt_logprobs, a->n_prompt_logprobs, b->prompt_logprobs,
                         b->n_prompt_logprobs);
}

static bool same_result(const struct weft_step_result *a, const struct weft_step_result *b) {
    if (a->epoch != b->epoch || a->step != b->step || a->busy_us != b->busy_us ||
        a->idle_us != b->idle_us || a->spill_us != b->spill_us || a->draft_us != b->draft_us ||
        a->catch_up_us != b->catch_up_us || a->contrast_us != b->contrast_us ||
        a->n_tokens != b->n_tokens || a->n_outs != b->n_outs)
        return false;
    for (uint32_t i = 0; i < a->n_outs; i++) {
        if (!same_out(&a->outs[i], &b->outs[i])) return false;
    }
    return true;
}

static bool same_start(const struct weft_step_start *a, const struct weft_step_start *b) {
    return a->slot == b->slot && a->gen == b->gen && a->choice == b->choice &&
           same_items(a->tokens, a->n_tokens, b->tokens, b->n_tokens, sizeof *a->tokens) &&
           a->n_prompt == b->n_prompt && a->n_cached == b->n_cached &&
           a->n_written == b->n_written && a->n_prompt_logprobs_done == b->n_prompt_logprobs_done &&
           same_adapters(a->adapters, a->n_adapters, b->adapters, b->n_adapters) &&
           a->n_window_skipped == b->n_window_skipped && a->n_keep == b->n_keep &&
           a->n_dropped == b->n_dropped && same_state(a->sampler_state, b->sampler_state) &&
           same_sampling(&a->sampling, &b->sampling) && same_pooling(&a->pooling, &b->pooling);
}

static bool same_plan(const struct weft_step_plan *a, const struct weft_step_plan *b) {
    if (a->epoch != b->epoch || a->step != b->step || a->n_starts != b->n_starts ||
        a->n_grants != b->n_grants ||
        !same_items(a->releases, a->n_releases, b->releases, b->n_releases, sizeof *a->releases) ||
        !same_items(a->copies, a->n_copies, b->copies, b->n_copies, sizeof *a->copies) ||
        !same_items(a->spills, a->n_spills, b->spills, b->n_spills, sizeof *a->spills) ||
        !same_items(a->restores, a->n_restores, b->restores, b->n_restores, sizeof *a->restores) ||
        !same_items(a->states, a->n_states, b->states, b->n_states, sizeof *a->states) ||
        !same_items(a->rows, a->n_rows, b->rows, b->n_rows, sizeof *a->rows))
        return false;
    for (uint32_t i = 0; i < a->n_starts; i++) {
        if (!same_start(&a->starts[i], &b->starts[i])) return false;
    }
    for (uint32_t i = 0; i < a->n_grants; i++) {
        const struct weft_step_grant *x = &a->grants[i], *y = &b->grants[i];
        if (x->slot != y->slot || x->gen != y->gen || x->kind != y->kind ||
            !same_items(x->blocks, x->n_blocks, y->blocks, y->n_blocks, sizeof *x->blocks))
            return false;
    }
    return true;
}

static bool same_experts(const struct weft_msg_experts *a, const struct weft_msg_experts *b) {
    return a->n_experts == b->n_experts &&
           same_items(a->layers, a->n_layers, b->layers, b->n_layers, sizeof *a->layers) &&
           memcmp(a->rows, b->rows, (size_t)a->n_layers * a->n_experts * sizeof *a->rows) == 0;
}

static bool same_session_done(const struct weft_session_answer *a,
                              const struct weft_session_answer *b) {
    if (a->id != b->id || a->err != b->err || strcmp(a->text, b->text) != 0 ||
        a->n_tokens != b->n_tokens || a->n_bytes != b->n_bytes || a->n_told != b->n_told)
        return false;
    for (uint32_t i = 0; i < a->n_told; i++) {
        const struct weft_session_told *x = &a->told[i], *y = &b->told[i];
        if (!weft_str_is(x->id, y->id.data, y->id.len) || x->n_tokens != y->n_tokens ||
            x->n_blocks != y->n_blocks || x->idle_us != y->idle_us)
            return false;
    }
    return true;
}

static bool same_kv_file(const struct weft_kv_file *a, const struct weft_kv_file *b) {
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        if (!same_items(a->blocks[kind], a->n_blocks[kind], b->blocks[kind], b->n_blocks[kind],
                        sizeof *a->blocks[kind]))
            return false;
    }
    return a->epoch == b->epoch && a->id == b->id && a->op == b->op && a->tenant == b->tenant &&
           a->space_hi == b->space_hi && a->space_lo == b->space_lo &&
           weft_str_is(a->name, b->name.data, b->name.len) &&
           same_items(a->tokens, a->n_tokens, b->tokens, b->n_tokens, sizeof *a->tokens);
}

static bool same_kv_filed(const struct weft_kv_filed *a, const struct weft_kv_filed *b) {
    return a->epoch == b->epoch && a->id == b->id && a->err == b->err &&
           strcmp(a->text, b->text) == 0 && a->n_bytes == b->n_bytes &&
           a->space_hi == b->space_hi && a->space_lo == b->space_lo &&
           same_items(a->tokens, a->n_tokens, b->tokens, b->n_tokens, sizeof *a->tokens);
}

bool proto_equal(const struct weft_msg *a, const struct weft_msg *b) {
    if (a->type != b->type) return false;
    switch (a->type) {
    case WEFT_MSG_ROUTER_HELLO:
        return a->router_hello.version == b->router_hello.version &&
               a->router_hello.instance == b->router_hello.instance &&
               a->router_hello.pid == b->router_hello.pid;
    case WEFT_MSG_SUBMIT:
        return same_submit(&a->submit, &b->submit);
    case WEFT_MSG_CANCEL:
        return a->cancel.request_id == b->cancel.request_id &&
               a->cancel.attempt == b->cancel.attempt && a->cancel.choice == b->cancel.choice;
    case WEFT_MSG_SCHED_HELLO:
        return a->sched_hello.version == b->sched_hello.version &&
               a->sched_hello.instance == b->sched_hello.instance &&
               a->sched_hello.epoch == b->sched_hello.epoch &&
               a->sched_hello.pid == b->sched_hello.pid;
    case WEFT_MSG_ACCEPTED:
        return a->accepted.request_id == b->accepted.request_id &&
               a->accepted.attempt == b->accepted.attempt;
    case WEFT_MSG_REJECTED:
        return a->rejected.request_id == b->rejected.request_id &&
               a->rejected.attempt == b->rejected.attempt &&
               a->rejected.reason == b->rejected.reason &&
               a->rejected.retry_after_ms == b->rejected.retry_after_ms &&
               strcmp(a->rejected.text, b->rejected.text) == 0;
    case WEFT_MSG_EVENTS:
        if (a->events.n != b->events.n) return false;
        for (uint32_t i = 0; i < a->events.n; i++) {
            if (!same_event(&a->events.events[i], &b->events.events[i])) return false;
        }
        return true;
    case WEFT_MSG_SNAPSHOT:
        return same_snapshot(&a->snapshot, &b->snapshot);
    case WEFT_MSG_WORKER_HELLO:
        return a->worker_hello.version == b->worker_hello.version &&
               a->worker_hello.instance == b->worker_hello.instance &&
               a->worker_hello.pid == b->worker_hello.pid &&
               same_model(&a->worker_hello.model, &b->worker_hello.model);
    case WEFT_MSG_RESULT:
        return same_result(&a->result, &b->result);
    case WEFT_MSG_HEARTBEAT:
        return a->heartbeat.progress == b->heartbeat.progress &&
               a->heartbeat.busy == b->heartbeat.busy &&
               a->heartbeat.n_ranks == b->heartbeat.n_ranks &&
               memcmp(a->heartbeat.ranks, b->heartbeat.ranks,
                      a->heartbeat.n_ranks * sizeof *a->heartbeat.ranks) == 0 &&
               a->heartbeat.awaited_rank == b->heartbeat.awaited_rank &&
               a->heartbeat.awaited_pid == b->heartbeat.awaited_pid;
    case WEFT_MSG_PLAN:
        return same_plan(&a->plan, &b->plan);
    case WEFT_MSG_EXPERTS:
        return same_experts(&a->experts, &b->experts);
    case WEFT_MSG_RESET_CACHE:
        return true;
    case WEFT_MSG_GRAMMAR:
        return a->grammar.epoch == b->grammar.epoch && a->grammar.id == b->grammar.id &&
               same_grammar(&a->grammar.grammar, &b->grammar.grammar);
    case WEFT_MSG_COMPILED:
        return a->compiled.epoch == b->compiled.epoch && a->compiled.id == b->compiled.id;
    case WEFT_MSG_SESSION:
        return a->session.id == b->session.id && a->session.op == b->session.op &&
               a->session.tenant == b->session.tenant &&
               weft_str_is(a->session.session_id, b->session.session_id.data,
                           b->session.session_id.len) &&
               weft_str_is(a->session.file, b->session.file.data, b->session.file.len);
    case WEFT_MSG_SESSION_DONE:
        return same_session_done(&a->session_done, &b->session_done);
    case WEFT_MSG_KV_FILE:
        return same_kv_file(&a->kv_file, &b->kv_file);
    case WEFT_MSG_KV_FILED:
        return same_kv_filed(&a->kv_filed, &b->kv_filed);
    case WEFT_MSG_ADD_LORA:
        return a->add_lora.id == b->add_lora.id && a->add_lora.digest.hi == b->add_lora.digest.hi &&
               a->add_lora.digest.lo == b->add_lora.digest.lo &&
               strcmp(a->add_lora.path, b->add_lora.path) == 0;
    case WEFT_MSG_REMOVE_LORA:
        return a->remove_lora.id == b->remove_lora.id;
    case WEFT_MSG_LORA:
        return same_lora(&a->lora, &b->lora);
    case WEFT_MSG_TYPE_COUNT:
        break;
    }
    return false;
}

/* --------------------------------------------------------------------------- fixed messages --- */

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static const uint32_t few_tokens[] = {1, 0, 70000, WEFT_VOCAB_MAX - 1};

static void fill_model(struct weft_model_info *model, bool max) {
    if (!max) {
        *model = (struct weft_model_info){.model_name = "models/fable-6m",
                                          .arch = "llama",
                                          .isa = "avx2",
                                          .fingerprint = "fp_0011223344556677",
                                          .n_vocab = 4096,
                                          .n_blocks = 1000,
                                          .block_size = 16,
                                          .max_model_len = 2048,
                                          .max_seqs = 64,
                                          .max_batched_tokens = 512,
                                          .n_threads = 2,
                                          .weight_bytes = 12345678,
                                          .kv_bytes = 16 << 20,
                                          .long_prompt = UINT32_MAX,
                                          .n_hidden = 320};
        return;
    }
    memset(model->arch, 'a', sizeof model->arch - 1);
    memset(model->isa, 'i', sizeof model->isa - 1);
    memset(model->fingerprint, 'f', sizeof model->fingerprint - 1);
    memset(model->model_name, 'm', sizeof model->model_name - 1);
    memcpy(model->model_name, "\xc3\xa9", 2); /* one character of two bytes */
    model->n_vocab = WEFT_VOCAB_MAX;
    model->n_blocks = WEFT_KV_BLOCKS_MAX;
    model->block_size = WEFT_BLOCK_SIZE_MAX;
    model->max_model_len = WEFT_CONTEXT_MAX;
    model->max_seqs = WEFT_SEQS_MAX;
    model->max_batched_tokens = WEFT_BATCHED_TOKENS_MAX;
    model->n_threads = WEFT_THREADS_MAX;
    model->weight_bytes = UINT64_MAX;
    model->kv_bytes = UINT64_MAX;
    model->long_prompt = UINT32_MAX;
    model->window = WEFT_CONTEXT_MAX;
    model->n_window_blocks = WEFT_KV_BLOCKS_MAX;
    model->n_hidden = model->n_labels = WEFT_HIDDEN_MAX;
}

static const struct weft_grammar tags = {
    .kind = WEFT_GRAMMAR_TAGS,
    .thinking = WEFT_THINKING_MAYBE,
    .marks = WEFT_MARKS_COHERE,
    .json_blanks = WEFT_GRAMMAR_BLANKS_MAX,
    .json_digits = WEFT_GRAMMAR_DIGITS_MAX,
    .text = "{}",
    .n_bytes = 2,
};

static void fill_sampling(struct weft_sampling *sampling, bool max) {
    static const struct weft_logit_bias bias[] = {
        {0, -1e6f}, {77, -0.0f}, {WEFT_VOCAB_MAX - 1, 1e6f}};
    static const uint32_t allowed[] = {0, 5, WEFT_VOCAB_MAX - 1};
    static const uint32_t bad_words[] = {1, 7, 2, WEFT_VOCAB_MAX - 1, 0};
    weft_sampling_init(sampling);
    if (!max) return;
    sampling->seed = UINT64_MAX;
    sampling->temperature = 0.7f;
    sampling->top_p = 0.9f;
    sampling->min_p = from_bits(1); /* the smallest denormal */
    sampling->top_k = UINT32_MAX;
    sampling->top_n_sigma = 1.5f;
    sampling->repetition_penalty = 1.1f;
    sampling->presence_penalty = from_bits(0x80000000); /* -0 */
    sampling->frequency_penalty = -2.0f;
    sampling->dynatemp_range = 0.25f;
    sampling->typical_p = 0.0f;
    sampling->dry_multiplier = 0.8f;
    sampling->dry_allowed_length = UINT32_MAX;
    sampling->dry_penalty_last_n = 0;
    sampling->repeat_last_n = WEFT_CONTEXT_MAX;
    sampling->mirostat = 2;
    sampling->adaptive_target = 0.5f;
    sampling->max_tokens = UINT32_MAX;
    sampling->min_tokens = UINT32_MAX;
    sampling->samplers = WEFT_SAMPLERS_NONE;
    sampling->variant = WEFT_VARIANT_LLAMA_CPP;
    sampling->thinking_token_budget = 1000;
    sampling->n_logprobs = 0;
    sampling->n_prompt_logprobs = (int32_t)WEFT_VOCAB_MAX;
    sampling->beam_groups = UINT32_MAX;
    sampling->early_stopping = WEFT_BEAM_STOP_ENOUGH;
    sampling->length_penalty = -2.0f;
    sampling->diversity_penalty = 0.5f;
    sampling->stop_tokens = few_tokens;
    sampling->n_stop_tokens = 4;
    sampling->bias = bias;
    sampling->n_bias = 3;
    sampling->masked_tokens = few_tokens + 1;
    sampling->n_masked_tokens = 2;
    sampling->allowed_tokens = allowed;
    sampling->n_allowed_tokens = 3;
    sampling->bad_words = bad_words;
    sampling->n_bad_words = 5;
    sampling->dry_breakers = few_tokens;
    sampling->n_dry_breakers = 2;
    sampling->grammar = tags;
}

/* The worker may compute any log-probabilities: infinities and NaNs with payloads, too. */
static const struct weft_logprobs *three_logprobs(void) {
    static float values[4];
    static struct weft_logprobs entries[3];
    values[0] = -0.5f;
    values[1] = from_bits(0xff800000); /* -inf */
    values[2] = from_bits(0x7fc12345); /* quiet NaN with a payload */
    values[3] = from_bits(0xffa00001); /* signalling NaN */
    entries[0] = (struct weft_logprobs){-1.25f, 1, 4, few_tokens, values};
    entries[1] = (struct weft_logprobs){from_bits(0x7fa00001), WEFT_VOCAB_MAX, 0, NULL, NULL};
    entries[2] = (struct weft_logprobs){from_bits(0xff800000), 3, 1, few_tokens + 2, values + 2};
    return entries;
}

static const struct weft_step_adapter most_adapters[WEFT_SEQ_ADAPTERS_MAX] = {
    {UINT64_MAX, 1.0f, 0}, {2, -0.5f, 0}, {3, 0.0f, 0}, {4, 1e30f, 0}};

static void fill_submit(struct weft_submit *submit, bool max) {
    static const struct weft_submit_choice fresh[1];
    static const struct weft_submit_choice resumed[3] = {
        {few_tokens, 4, 0.5, false}, {few_tokens, 0, 0, false}, {few_tokens + 1, 2, -2, true}};
    *submit = (struct weft_submit){.request_id = 7,
                                   .attempt = 1,
                                   .prompt = few_tokens,
                                   .n_prompt = 4,
                                   .n_choices = max ? 3 : 1,
                                   .choices = max ? resumed : fresh,
                                   .age_us = 0,
                                   .deadline_us = 60000000,
                                   .weight = 1};
    fill_sampling(&submit->sampling, max);
    if (!max) return;
    submit->request_id = UINT64_MAX;
    submit->attempt = UINT32_MAX;
    submit->n_prompt_logprobs_done = 4;
    submit->resume = true;
    submit->age_us = submit->deadline_us = UINT64_MAX;
    submit->priority = INT32_MIN;
    submit->ttft_us = submit->tpot_us = WEFT_SLO_US_MAX;
    submit->tenant = submit->flow = UINT64_MAX;
    submit->weight = WEFT_WEIGHT_MAX;
    submit->cache_salt = (struct weft_digest){UINT64_MAX, UINT64_MAX - 1};
    submit->no_guesses = true;
    submit->shifts = true;
    submit->n_keep = WEFT_CONTEXT_MAX;
    submit->session_id = (struct weft_str){"a talk \xc3\xa4", 9};
    submit->n_adapters = WEFT_SEQ_ADAPTERS_MAX;
    submit->adapters = most_adapters;
}

static void fill_events(struct weft_msg_events *events, bool max) {
    static struct weft_event list[4];
    static const float values[] = {-0.5f, 0.0f, 3e38f};
    memset(list, 0, sizeof list);
    list[0] = (struct weft_event){.request_id = 7,
                                  .attempt = 1,
                                  .sampled = true,
                                  .token = 70000,
                                  .output_idx = 5,
                                  .queued_us = 1500,
                                  .sampler_state = -0.0};
    list[1] = (struct weft_event){.request_id = 8, .attempt = 2, .end = WEFT_END_DEADLINE};
    list[2] = (struct weft_event){.request_id = UINT64_MAX,
                                  .attempt = UINT32_MAX,
                                  .choice = WEFT_CHOICES_MAX - 1,
                                  .sampled = true,
                                  .token = WEFT_VOCAB_MAX - 1,
                                  .output_idx = WEFT_CONTEXT_MAX,
                                  .end = WEFT_END_LENGTH,
                                  .has_logprobs = true,
                                  .logprobs = three_logprobs()[0],
                                  .prompt_pos = WEFT_CONTEXT_MAX - 3,
                                  .n_prompt_logprobs = 3,
                                  .prompt_logprobs = three_logprobs(),
                                  .n_prompt_cached = WEFT_CONTEXT_MAX,
                                  .queued_us = UINT64_MAX};
    list[3] = (struct weft_event){
        .request_id = 9, .end = WEFT_END_LENGTH, .n_values = 3, .values = values};
    events->n = max ? 4 : 1;
    events->events = list;
}

static void fill_activity(struct weft_activity *activity, bool max) {
    static const struct weft_activity_step steps[] = {
        {.step = 1, .age_us = 70000, .busy_us = 900, .n_prompt_tokens = 16, .n_seqs = 1},
        {UINT64_MAX, UINT64_MAX, UINT32_MAX, WEFT_BATCHED_TOKENS_MAX, WEFT_BATCHED_TOKENS_MAX,
         WEFT_SEQS_MAX, WEFT_WORKERS_MAX - 1}};
    static const struct weft_activity_seq seqs[] = {
        {.request_id = 7, .phase = WEFT_ACTIVITY_PROMPT, .n_prompt = 20, .n_prompt_done = 16},
        {UINT64_MAX, UINT64_MAX, UINT32_MAX, WEFT_CHOICES_MAX - 1, WEFT_ACTIVITY_DECODE,
         WEFT_CONTEXT_MAX, WEFT_CONTEXT_MAX, WEFT_CONTEXT_MAX, UINT32_MAX, WEFT_KV_BLOCKS_MAX,
         WEFT_WORKERS_MAX - 1}};
    *activity = (struct weft_activity){
        .n_steps = max ? 2 : 1, .n_seqs = max ? 2 : 1, .steps = steps, .seqs = seqs};
    if (max) activity->n_seqs_omitted = activity->router = UINT32_MAX;
}

/* Different ones, from `value` on. */
static struct weft_rank_figures figures(uint64_t value) {
    struct weft_rank_figures figures;
#define FIGURE(name) figures.name = value++;
    WEFT_RANK_FIGURES(FIGURE)
#undef FIGURE
    return figures;
}

static void fill_snapshot(struct weft_msg_snapshot *snap, bool max) {
    snap->max_queue = 1024;
    snap->sched_pid = 4242;
    fill_activity(&snap->activity, max);
    if (!max) return;
    snap->serving = snap->advancing = snap->draining = snap->has_model = true;
    fill_model(&snap->model, true);
    snap->n_waiting = 1000000;
    snap->n_running = 4096;
    snap->n_blocks = WEFT_KV_BLOCKS_MAX * WEFT_WORKERS_MAX;
    snap->n_blocks_free = 12345;
    snap->n_blocks_cached = 4321;
    snap->n_window_blocks = WEFT_KV_BLOCKS_MAX * WEFT_WORKERS_MAX;
    snap->n_window_blocks_free = 54321;
    snap->spill_bytes = UINT64_MAX;
    snap->n_sessions = 17;
    snap->n_session_blocks = 2222;
    snap->n_checkpoints_held = 33333;
    snap->max_queue = WEFT_QUEUE_MAX;
    uint64_t n = 1;
#define COUNT(name, ...) snap->name = n++;
    WEFT_COUNTER_LIST(COUNT, COUNT)
#undef COUNT
    snap->n_preemptions = UINT64_MAX;
    for (uint32_t i = 0; i < WEFT_ITER_BUCKETS; i++)
        snap->iter_tokens[i] = (uint64_t)1 << (3 * i);
    snap->sched_resident_bytes = 14;
    snap->worker_resident_bytes = 15;
    snap->sched_pid = 16;
    snap->n_workers = snap->n_workers_serving = WEFT_WORKERS_MAX;
    snap->n_ranks = WEFT_RANKS_TOLD_MAX;
    for (uint32_t i = 0; i < snap->n_ranks; i++)
        snap->ranks[i] = (struct weft_rank_told){i % WEFT_WORKERS_MAX, i / WEFT_WORKERS_MAX,
                                                 figures(UINT64_MAX - i)};
}

static void fill_result(struct weft_step_result *result, bool max) {
    static struct weft_step_out outs[5];
    static const float values = -0.5f;
    static const uint32_t forced[] = {0, WEFT_VOCAB_MAX - 1};
    memset(outs, 0, sizeof outs);
    outs[0] = (struct weft_step_out){
        .slot = 3, .gen = 9, .ran = true, .sampled = true, .token = 70000, .output_idx = 5};
    outs[1] = (struct weft_step_out){.slot = 4, .gen = 1};
    outs[2] = (struct weft_step_out){.slot = WEFT_SEQS_MAX - 1,
                                     .gen = UINT32_MAX,
                                     .ran = true,
                                     .sampled = true,
                                     .token = WEFT_VOCAB_MAX - 1,
                                     .output_idx = WEFT_CONTEXT_MAX,
                                     .finish = WEFT_END_LENGTH,
                                     .has_logprobs = true,
                                     .logprobs = three_logprobs()[2],
                                     .prompt_pos = 1,
                                     .n_prompt_logprobs = 3,
                                     .prompt_logprobs = three_logprobs()};
    outs[3] = (struct weft_step_out){.slot = 5,
                                     .gen = 2,
                                     .ran = true,
                                     .sampled = true,
                                     .token = 300,
                                     .output_idx = 1,
                                     .n_more = 2,
                                     .sampler_state = 9.75,
                                     .more = forced,
                                     .n_proposed = WEFT_SPEC_TOKENS_MAX,
                                     .n_accepted = 1};
    outs[4] = (struct weft_step_out){.slot = 6,
                                     .gen = 1,
                                     .ran = true,
                                     .finish = WEFT_END_LENGTH,
                                     .n_values = 1,
                                     .values = &values};
    if (max) outs[1].ran = outs[1].is_late = true;
    *result = (struct weft_step_result){.epoch = 1,
                                        .step = 1000,
                                        .busy_us = 2500,
                                        .idle_us = 12,
                                        .n_tokens = 1,
                                        .n_outs = max ? 5 : 1,
                                        .outs = outs};
    if (!max) return;
    result->epoch = result->step = UINT64_MAX;
    result->busy_us = result->idle_us = result->spill_us = result->draft_us = UINT32_MAX;
    result->catch_up_us = result->contrast_us = UINT32_MAX;
    result->n_tokens = WEFT_BATCHED_TOKENS_MAX;
}

static void fill_plan(struct weft_step_plan *plan, bool max) {
    static const struct weft_step_release releases[] = {{0, 1}, {WEFT_SEQS_MAX - 1, UINT32_MAX}};
    static const struct weft_step_copy copies[] = {{1, 2, WEFT_KV_FULL},
                                                   {WEFT_KV_BLOCKS_MAX - 1, 0, WEFT_KV_WINDOWED}};
    static const struct weft_step_spill spills[] = {
        {1, 2}, {WEFT_KV_BLOCKS_MAX - 1, WEFT_KV_BLOCKS_MAX - 1}};
    static const uint32_t blocks[] = {5, 6, 7, WEFT_KV_BLOCKS_MAX - 1};
    static const struct weft_step_grant grants[] = {{3, 9, WEFT_KV_FULL, 1, blocks},
                                                    {4, 1, WEFT_KV_WINDOWED, 3, blocks + 1}};
    static const struct weft_step_row rows[] = {
        {3, 9, 1, 0},
        {4, 1, 1, WEFT_SPEC_TOKENS_MAX},
        {WEFT_SEQS_MAX - 1, UINT32_MAX, WEFT_BATCHED_TOKENS_MAX - 2, 0}};
    static struct weft_step_start starts[2];
    memset(starts, 0, sizeof starts);
    starts[0] = (struct weft_step_start){
        .slot = 4, .gen = 1, .tokens = few_tokens, .n_tokens = 4, .n_prompt = 4};
    fill_sampling(&starts[0].sampling, false);
    starts[0].sampling.max_tokens = 0;
    starts[0].pooling = (struct weft_pooling){
        .kind = WEFT_POOLING_TOKENS, .n_ids = 2, .ids = {70000, 0}, .n_first = 3};
    starts[1] = (struct weft_step_start){.slot = WEFT_SEQS_MAX - 1,
                                         .gen = UINT32_MAX,
                                         .choice = WEFT_CHOICES_MAX - 1,
                                         .tokens = few_tokens,
                                         .n_tokens = 4,
                                         .n_prompt = 2,
                                         .n_cached = 1,
                                         .n_written = 2,
                                         .n_keep = 1,
                                         .n_dropped = 2,
                                         .n_window_skipped = WEFT_CONTEXT_MAX,
                                         .sampler_state = -1e300,
                                         .n_adapters = 2,
                                         .adapters = most_adapters,
                                         .n_prompt_logprobs_done = 2};
    fill_sampling(&starts[1].sampling, true);
    static const struct weft_step_state states[] = {
        {WEFT_STATE_FORK, 1, WEFT_SEQS_MAX - 1},
        {WEFT_STATE_LOAD, WEFT_SEQS_MAX - 1, WEFT_STATE_CHECKPOINTS_MAX - 1},
        {WEFT_STATE_KEEP, 0, 2},
    };
    *plan = (struct weft_step_plan){.epoch = 1, .step = 1001, .n_rows = 2, .rows = rows};
    if (!max) return;
    *plan = (struct weft_step_plan){.epoch = UINT64_MAX,
                                    .step = UINT64_MAX,
                                    .n_releases = 2,
                                    .n_starts = 2,
                                    .n_spills = 2,
                                    .n_copies = 2,
                                    .n_restores = 1,
                                    .n_grants = 2,
                                    .n_states = 3,
                                    .n_rows = 3,
                                    .releases = releases,
                                    .starts = starts,
                                    .spills = spills,
                                    .copies = copies,
                                    .restores = spills + 1,
                                    .grants = grants,
                                    .states = states,
                                    .rows = rows};
}

static void fill_experts(struct weft_msg_experts *experts, bool max) {
    static const uint32_t one[] = {0}, three[] = {1, 2, WEFT_LAYERS_MAX - 1};
    static const uint64_t rows[] = {0, 1, 70000, UINT64_MAX, 5, 0};
    *experts = (struct weft_msg_experts){
        .n_layers = max ? 3 : 1, .n_experts = 2, .layers = max ? three : one, .rows = rows};
}

static void fill_worker_hello(struct weft_msg_worker_hello *hello, bool max) {
    hello->version = WEFT_PROTO_VERSION;
    hello->instance = max ? UINT64_MAX : 5;
    hello->pid = max ? UINT32_MAX : 77;
    fill_model(&hello->model, max);
}

static const char *longest_text(void) {
    static char longest[1025];
    memset(longest, 'x', 1024);
    return longest;
}

static void fill_rejected(struct weft_rejection *rejected, bool max) {
    *rejected = (struct weft_rejection){.request_id = 7,
                                        .attempt = 1,
                                        .reason = WEFT_REJECT_QUEUE_FULL,
                                        .retry_after_ms = 1000,
                                        .text = "the queue is full"};
    if (!max) return;
    rejected->request_id = UINT64_MAX;
    rejected->attempt = UINT32_MAX;
    rejected->reason = WEFT_REJECT_TENANT_FULL;
    rejected->retry_after_ms = UINT32_MAX;
    rejected->text = longest_text();
}

static const struct weft_str a_session = {"talk-17", 7}, a_file = {"talk.session", 12};
static const uint32_t session_tokens[] = {7, 0, 1000000, 12}, session_blocks[] = {3, 1, 4096};

static void fill_session(struct weft_session_wish *wish, bool max) {
    *wish = (struct weft_session_wish){.id = 1};
    if (!max) return;
    *wish = (struct weft_session_wish){.id = UINT64_MAX,
                                       .op = WEFT_SESSION_RESTORE,
                                       .tenant = UINT64_MAX - 1,
                                       .session_id = a_session,
                                       .file = a_file};
}

static void fill_session_done(struct weft_session_answer *answer, bool max) {
    static struct weft_session_told told[2];
    told[0] = (struct weft_session_told){a_session, 32, 2, 9000000};
    told[1] = (struct weft_session_told){a_file, 16, 1, 0};
    *answer = (struct weft_session_answer){.id = 1, .text = ""};
    if (!max) return;
    *answer = (struct weft_session_answer){.id = UINT64_MAX,
                                           .err = WEFT_E_STATE,
                                           .text = "a sentence",
                                           .n_tokens = WEFT_CONTEXT_MAX,
                                           .n_bytes = UINT64_MAX,
                                           .n_told = 2,
                                           .told = told};
}

static void fill_kv_file(struct weft_kv_file *file, bool max) {
    *file = (struct weft_kv_file){.epoch = 1, .id = 2, .op = WEFT_KV_FILE_OPEN};
    if (!max) return;
    *file = (struct weft_kv_file){.epoch = UINT64_MAX,
                                  .id = UINT64_MAX - 1,
                                  .op = WEFT_KV_FILE_READ,
                                  .name = a_file,
                                  .tenant = UINT64_MAX - 2,
                                  .space_hi = UINT64_MAX - 3,
                                  .space_lo = UINT64_MAX - 4,
                                  .n_tokens = 4,
                                  .tokens = session_tokens,
                                  .n_blocks = {3, 2},
                                  .blocks = {session_blocks, session_blocks}};
}

static void fill_kv_filed(struct weft_kv_filed *filed, bool max) {
    *filed = (struct weft_kv_filed){.epoch = 1, .id = 2, .text = ""};
    if (!max) return;
    *filed = (struct weft_kv_filed){.epoch = UINT64_MAX,
                                    .id = UINT64_MAX - 1,
                                    .err = WEFT_E_PROTO,
                                    .text = "'talk.session' is damaged",
                                    .n_bytes = UINT64_MAX - 2,
                                    .space_hi = UINT64_MAX - 3,
                                    .space_lo = UINT64_MAX - 4,
                                    .n_tokens = 4,
                                    .tokens = session_tokens};
}

bool proto_sample(uint32_t idx, const char **name_out, struct weft_msg *msg) {
    static char name[64];
    bool max = idx % 2 == 1;
    if (idx >= 2 * WEFT_MSG_TYPE_COUNT) return false;
    memset(msg, 0, sizeof *msg);
    msg->type = (enum weft_proto_type)(idx / 2);
    (void)snprintf(name, sizeof name, "%s%s", weft_proto_type_name(msg->type), max ? "_max" : "");
    *name_out = name;
    switch (msg->type) {
    case WEFT_MSG_ROUTER_HELLO:
        msg->router_hello.version = WEFT_PROTO_VERSION;
        msg->router_hello.instance = max ? UINT64_MAX : 200;
        msg->router_hello.pid = max ? UINT32_MAX : 300;
        break;
    case WEFT_MSG_SUBMIT:
        fill_submit(&msg->submit, max);
        break;
    case WEFT_MSG_CANCEL:
        msg->cancel.request_id = max ? UINT64_MAX : 7;
        msg->cancel.attempt = max ? UINT32_MAX : 1;
        msg->cancel.choice = max ? UINT32_MAX : WEFT_CHOICES_MAX - 1;
        break;
    case WEFT_MSG_SCHED_HELLO:
        msg->sched_hello.version = WEFT_PROTO_VERSION;
        msg->sched_hello.instance = max ? UINT64_MAX : 70000;
        msg->sched_hello.epoch = max ? UINT64_MAX : 1;
        msg->sched_hello.pid = max ? UINT32_MAX : 301;
        break;
    case WEFT_MSG_ACCEPTED:
        msg->accepted.request_id = max ? UINT64_MAX : 7;
        msg->accepted.attempt = max ? UINT32_MAX : 1;
        break;
    case WEFT_MSG_REJECTED:
        fill_rejected(&msg->rejected, max);
        break;
    case WEFT_MSG_EVENTS:
        fill_events(&msg->events, max);
        break;
    case WEFT_MSG_SNAPSHOT:
        fill_snapshot(&msg->snapshot, max);
        break;
    case WEFT_MSG_WORKER_HELLO:
        fill_worker_hello(&msg->worker_hello, max);
        break;
    case WEFT_MSG_RESULT:
        fill_result(&msg->result, max);
        break;
    case WEFT_MSG_HEARTBEAT:
        msg->heartbeat.progress = max ? UINT64_MAX : 0;
        msg->heartbeat.busy = max;
        msg->heartbeat.n_ranks = max ? WEFT_RANKS_MAX : 1;
        for (uint32_t i = 0; i < msg->heartbeat.n_ranks; i++)
            msg->heartbeat.ranks[i] = figures(max ? UINT64_MAX - i : 30 << 20);
        msg->heartbeat.awaited_rank = max ? WEFT_RANKS_MAX - 1 : 0;
        msg->heartbeat.awaited_pid = max ? UINT32_MAX : 0;
        break;
    case WEFT_MSG_PLAN:
        fill_plan(&msg->plan, max);
        break;
    case WEFT_MSG_EXPERTS:
        fill_experts(&msg->experts, max);
        break;
    case WEFT_MSG_RESET_CACHE:
        break;
    case WEFT_MSG_GRAMMAR:
        msg->grammar.epoch = max ? UINT64_MAX : 1;
        msg->grammar.id = max ? UINT64_MAX : 7;
        msg->grammar.grammar = tags;
        break;
    case WEFT_MSG_COMPILED:
        msg->compiled.epoch = max ? UINT64_MAX : 1;
        msg->compiled.id = max ? UINT64_MAX : 7;
        break;
    case WEFT_MSG_SESSION:
        fill_session(&msg->session, max);
        break;
    case WEFT_MSG_SESSION_DONE:
        fill_session_done(&msg->session_done, max);
        break;
    case WEFT_MSG_KV_FILE:
        fill_kv_file(&msg->kv_file, max);
        break;
    case WEFT_MSG_KV_FILED:
        fill_kv_filed(&msg->kv_filed, max);
        break;
    case WEFT_MSG_ADD_LORA:
        msg->add_lora.id = max ? UINT64_MAX : 7;
        if (max) msg->add_lora.digest = (struct weft_digest){UINT64_MAX, UINT64_MAX};
        msg->add_lora.path = max ? longest_text() : "/adapters/verse";
        break;
    case WEFT_MSG_REMOVE_LORA:
        msg->remove_lora.id = max ? UINT64_MAX : 7;
        break;
    case WEFT_MSG_LORA:
        msg->lora = (struct weft_msg_lora){7, true, {1, 2}, 1 << 20, ""};
        if (max)
            msg->lora = (struct weft_msg_lora){
                UINT64_MAX, false, {UINT64_MAX, UINT64_MAX}, UINT64_MAX, longest_text()};
        break;
    case WEFT_MSG_TYPE_COUNT:
        break;
    }
    return true;
}

/* -------------------------------------------------------------------------- random messages --- */

#define RANDOM_BYTES ((size_t)4 << 20)

static struct {
    unsigned char *bytes;
    size_t used;
} heap;

static void *take(size_t n, size_t item_bytes) {
    if (!heap.bytes) heap.bytes = malloc(RANDOM_BYTES);
    size_t bytes = (n * item_bytes + 15) / 16 * 16;
    WEFT_ASSERT(heap.bytes && bytes <= RANDOM_BYTES - heap.used);
    void *out = heap.bytes + heap.used;
    memset(out, 0, bytes);
    heap.used += bytes;
    return out;
}

/* Small more often than large, and the ends of the range more often than chance has it. */
static uint32_t number(uint64_t *rand, uint32_t max) {
    switch (weft_rand_below(rand, 8)) {
    case 0:
        return 0;
    case 1:
        return max;
    case 2:
        return max == UINT32_MAX ? (uint32_t)weft_rand_next(rand) : weft_rand_below(rand, max + 1);
    default: {
        uint32_t bits = (uint32_t)weft_rand_next(rand) >> weft_rand_below(rand, 32);
        return bits <= max ? bits : max;
    }
    }
}

static uint64_t number64(uint64_t *rand) {
    uint64_t bits = weft_rand_next(rand) >> weft_rand_below(rand, 64);
    return weft_rand_below(rand, 8) ? bits : UINT64_MAX;
}

static uint32_t count(uint64_t *rand, uint32_t max) {
    uint32_t n = weft_rand_below(rand, 4) ? weft_rand_below(rand, 6) : weft_rand_below(rand, 300);
    return n < max ? n : max;
}

static const uint32_t *tokens(uint64_t *rand, uint32_t n) {
    uint32_t *out = take(n, sizeof *out);
    for (uint32_t i = 0; i < n; i++)
        out[i] = number(rand, WEFT_VOCAB_MAX - 1);
    return out;
}

static bool coin(uint64_t *rand) {
    return weft_rand_below(rand, 2) == 1;
}

static void random_text(uint64_t *rand, char *out, uint32_t max) {
    uint32_t n = weft_rand_below(rand, max + 1);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (char)(1 + weft_rand_below(rand, 127));
    out[n] = 0;
}

static void random_model(uint64_t *rand, struct weft_model_info *model) {
    random_text(rand, model->model_name, sizeof model->model_name - 1);
    random_text(rand, model->arch, sizeof model->arch - 1);
    random_text(rand, model->isa, sizeof model->isa - 1);
    random_text(rand, model->fingerprint, sizeof model->fingerprint - 1);
    model->n_vocab = 1 + number(rand, WEFT_VOCAB_MAX - 1);
    model->n_blocks = 1 + number(rand, WEFT_KV_BLOCKS_MAX - 1);
    model->block_size = 1 + number(rand, WEFT_BLOCK_SIZE_MAX - 1);
    model->max_model_len = 1 + number(rand, WEFT_CONTEXT_MAX - 1);
    model->max_seqs = 1 + number(rand, WEFT_SEQS_MAX - 1);
    model->max_batched_tokens = 1 + number(rand, WEFT_BATCHED_TOKENS_MAX - 1);
    model->n_threads = 1 + number(rand, WEFT_THREADS_MAX - 1);
    model->weight_bytes = number64(rand);
    model->kv_bytes = number64(rand);
    model->long_prompt = number(rand, UINT32_MAX);
    model->n_hidden = number(rand, WEFT_HIDDEN_MAX);
    model->n_labels = number(rand, WEFT_HIDDEN_MAX);
    if (coin(rand)) {
        model->is_encoder = model->max_model_len <= model->max_batched_tokens;
        model->has_contrast = number(rand, 1);
        model->is_recurrent = !model->is_encoder && !model->has_contrast;
        if (model->is_recurrent) model->n_checkpoints = number(rand, WEFT_STATE_CHECKPOINTS_MAX);
        return;
    }
    model->window = 1 + number(rand, WEFT_CONTEXT_MAX - 1);
    model->n_window_blocks = 1 + number(rand, WEFT_KV_BLOCKS_MAX - 1);
}

static float between(uint64_t *rand, float low, float high) {
    float value = low + (high - low) * (float)weft_rand_unit(rand);
    return value < low ? low : value > high ? high : value;
}

static void random_grammar(uint64_t *rand, struct weft_grammar *grammar) {
    grammar->kind = 1 + weft_rand_below(rand, WEFT_GRAMMAR_COUNT - 1);
    grammar->thinking = weft_rand_below(rand, WEFT_THINKING_COUNT);
    grammar->marks = weft_rand_below(rand, WEFT_MARKS_COUNT);
    grammar->json_blanks = number(rand, WEFT_GRAMMAR_BLANKS_MAX);
    grammar->json_digits = 1 + number(rand, WEFT_GRAMMAR_DIGITS_MAX - 1);
    grammar->n_bytes = count(rand, 300);
    char *text = take(grammar->n_bytes, 1);
    for (uint32_t i = 0; i < grammar->n_bytes; i++)
        text[i] = (char)weft_rand_below(rand, 256);
    grammar->text = text;
}

static double random_state(uint64_t *rand) {
    return coin(rand) ? 0.0 : (weft_rand_unit(rand) - 0.5) * 100.0;
}

static void make_contrastive(uint64_t *rand, struct weft_sampling *sampling) {
    sampling->penalty_alpha = between(rand, 0.01f, 1.0f);
    sampling->top_k = 2 + number(rand, WEFT_CONTRAST_K_MAX - 2);
    sampling->n_logprobs = sampling->n_prompt_logprobs = -1;
    sampling->mirostat = 0;
    sampling->adaptive_target = -1.0f;
    sampling->samplers = WEFT_SAMPLERS_USUAL;
    weft_grammar_init(&sampling->grammar);
}

static void random_sampling(uint64_t *rand, struct weft_sampling *sampling) {
    weft_sampling_init(sampling);
    sampling->seed = number64(rand);
    sampling->temperature = coin(rand) ? 0.0f : between(rand, 0.0f, 10.0f);
    sampling->top_p = coin(rand) ? 1.0f : between(rand, 1e-30f, 1.0f);
    sampling->min_p = between(rand, 0.0f, 1.0f);
    sampling->top_k = number(rand, UINT32_MAX);
    sampling->top_n_sigma = between(rand, -1.0f, 1e6f);
    sampling->repetition_penalty = between(rand, 1e-6f, 1e6f);
    sampling->presence_penalty = between(rand, -1e6f, 1e6f);
    sampling->frequency_penalty = between(rand, -1e6f, 1e6f);
    sampling->dynatemp_range = between(rand, 0.0f, 1e6f);
    sampling->dynatemp_exponent = between(rand, 0.0f, 1e3f);
    sampling->typical_p = between(rand, 0.0f, 1.0f);
    sampling->tfs_z = between(rand, 0.0f, 1.0f);
    sampling->xtc_probability = between(rand, 0.0f, 1.0f);
    sampling->xtc_threshold = between(rand, 0.0f, 1.0f);
    sampling->dry_multiplier = between(rand, 0.0f, 1e6f);
    sampling->dry_base = between(rand, 0.0f, 1e6f);
    sampling->dry_allowed_length = number(rand, UINT32_MAX);
    sampling->dry_penalty_last_n = (int32_t)number(rand, WEFT_CONTEXT_MAX + 1) - 1;
    sampling->repeat_last_n = (int32_t)number(rand, WEFT_CONTEXT_MAX + 1) - 1;
    sampling->mirostat = number(rand, UINT32_MAX);
    sampling->mirostat_tau = between(rand, 0.0f, 100.0f);
    sampling->mirostat_eta = between(rand, 0.0f, 100.0f);
    sampling->adaptive_target = between(rand, -1.0f, 1.0f);
    sampling->adaptive_decay = between(rand, 0.0f, 0.99f);
    sampling->variant = number(rand, WEFT_VARIANT_COUNT - 1);
    for (uint32_t i = weft_rand_below(rand, WEFT_SAMPLER_ADAPTIVE_P); i > 0; i--)
        sampling->samplers = weft_samplers_add(sampling->samplers, (enum weft_sampler)(i - 1));
    sampling->max_tokens = 300 + number(rand, UINT32_MAX - 300); /* no less than any output below */
    sampling->min_tokens = number(rand, UINT32_MAX);
    sampling->thinking_token_budget = number(rand, UINT32_MAX);
    sampling->n_logprobs = (int32_t)number(rand, WEFT_VOCAB_MAX + 1) - 1;
    sampling->n_prompt_logprobs = (int32_t)number(rand, WEFT_VOCAB_MAX + 1) - 1;
    sampling->beam_groups = number(rand, UINT32_MAX);
    sampling->early_stopping = number(rand, WEFT_BEAM_STOP_COUNT - 1);
    sampling->n_stop_tokens = count(rand, WEFT_STOP_TOKENS_MAX);
    sampling->stop_tokens = tokens(rand, sampling->n_stop_tokens);
    sampling->n_masked_tokens = count(rand, WEFT_STOP_TOKENS_MAX - sampling->n_stop_tokens);
    sampling->masked_tokens = tokens(rand, sampling->n_masked_tokens);
    sampling->n_bias = count(rand, WEFT_LOGIT_BIAS_MAX);
    struct weft_logit_bias *bias = take(sampling->n_bias, sizeof *bias);
    for (uint32_t i = 0, token = 0; i < sampling->n_bias; i++) {
        token += 1 + weft_rand_below(rand, 5000);
        bias[i] = (struct weft_logit_bias){token, between(rand, -1e6f, 1e6f)};
    }
    sampling->bias = bias;
    sampling->n_allowed_tokens = count(rand, 300);
    uint32_t *list = take(sampling->n_allowed_tokens, sizeof *list);
    for (uint32_t i = 0, token = 0; i < sampling->n_allowed_tokens; i++)
        list[i] = token += 1 + weft_rand_below(rand, 5000);
    sampling->allowed_tokens = list;
    sampling->n_bad_words = count(rand, 300);
    list = take(sampling->n_bad_words, sizeof *list);
    if (sampling->n_bad_words == 1) sampling->n_bad_words = 0; /* it would have no token */
    for (uint32_t i = 0; i < sampling->n_bad_words;) {
        uint32_t n_left = sampling->n_bad_words - i, n = 2 + weft_rand_below(rand, 5);
        if (n + 2 > n_left) n = n_left;
        list[i++] = n - 1;
        for (uint32_t k = 1; k < n; k++)
            list[i++] = weft_rand_below(rand, WEFT_VOCAB_MAX);
    }
    sampling->bad_words = list;
    sampling->n_dry_breakers = count(rand, WEFT_DRY_BREAKERS_MAX);
    sampling->dry_breakers = tokens(rand, sampling->n_dry_breakers);
    if (coin(rand)) random_grammar(rand, &sampling->grammar);
    if (weft_rand_below(rand, 8) == 0) make_contrastive(rand, sampling);
}

/* It may change the sampling: values come alone. */
static void random_pooling(uint64_t *rand, uint32_t n_prompt, struct weft_sampling *sampling,
                           struct weft_pooling *pooling) {
    if (coin(rand)) return;
    pooling->kind = (enum weft_pooling_kind)(1 + weft_rand_below(rand, WEFT_POOLING_COUNT - 1));
    if (pooling->kind == WEFT_POOLING_TOKENS)
        pooling->n_ids = 1 + weft_rand_below(rand, WEFT_POOLING_IDS_MAX);
    for (uint32_t i = 0; i < pooling->n_ids; i++)
        pooling->ids[i] = number(rand, WEFT_VOCAB_MAX - 1);
    pooling->n_first = weft_rand_below(rand, n_prompt + 1);
    sampling->max_tokens = 0;
    sampling->n_prompt_logprobs = -1;
}

static const float *random_values(uint64_t *rand, bool may_be, uint32_t *n_out) {
    *n_out = may_be && coin(rand) ? count(rand, 2000) : 0;
    float *values = take(*n_out, sizeof *values);
    for (uint32_t i = 0; i < *n_out; i++)
        values[i] = between(rand, -100.0f, 100.0f);
    return values;
}

static const struct weft_logprobs *random_logprobs(uint64_t *rand, uint32_t n) {
    struct weft_logprobs *entries = take(n, sizeof *entries);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_top = weft_rand_below(rand, 6);
        float *values = take(n_top, sizeof *values);
        for (uint32_t k = 0; k < n_top; k++)
            values[k] = from_bits((uint32_t)weft_rand_next(rand));
        entries[i] = (struct weft_logprobs){.logprob = from_bits((uint32_t)weft_rand_next(rand)),
                                            .rank = 1 + number(rand, WEFT_VOCAB_MAX - 1),
                                            .n_top = n_top,
                                            .top_ids = tokens(rand, n_top),
                                            .top_logprobs = values};
    }
    return entries;
}

static const struct weft_step_adapter *random_adapters(uint64_t *rand, uint32_t n) {
    struct weft_step_adapter *adapters = take(n, sizeof *adapters);
    for (uint32_t i = 0; i < n; i++)
        adapters[i] =
            (struct weft_step_adapter){number64(rand), (float)number(rand, 1000) / 100, 0};
    return adapters;
}

static void random_submit(uint64_t *rand, struct weft_submit *submit) {
    submit->request_id = number64(rand);
    submit->attempt = number(rand, UINT32_MAX);
    submit->n_prompt = 1 + count(rand, 5000);
    submit->prompt = tokens(rand, submit->n_prompt);
    submit->resume = coin(rand);
    submit->n_choices = 1 + count(rand, WEFT_CHOICES_MAX - 1);
    struct weft_submit_choice *choices = take(submit->n_choices, sizeof *choices);
    random_sampling(rand, &submit->sampling);
    random_pooling(rand, submit->n_prompt, &submit->sampling, &submit->pooling);
    for (uint32_t i = 0; submit->resume && i < submit->n_choices; i++) {
        choices[i].n_output = submit->pooling.kind == WEFT_POOLING_NONE ? count(rand, 300) : 0;
        choices[i].output = tokens(rand, choices[i].n_output);
        choices[i].finished = coin(rand);
        choices[i].sampler_state = random_state(rand);
    }
    submit->choices = choices;
    submit->n_prompt_logprobs_done = weft_rand_below(rand, submit->n_prompt + 1);
    submit->age_us = number64(rand);
    submit->deadline_us = number64(rand);
    submit->priority = (int32_t)number(rand, INT32_MAX) * (coin(rand) ? 1 : -1);
    submit->ttft_us = number64(rand) % (WEFT_SLO_US_MAX + 1);
    submit->tpot_us = number64(rand) % (WEFT_SLO_US_MAX + 1);
    submit->tenant = number64(rand);
    submit->flow = number64(rand);
    submit->weight = 1 + number(rand, WEFT_WEIGHT_MAX - 1);
    submit->cache_salt = (struct weft_digest){number64(rand), number64(rand)};
    submit->no_guesses = coin(rand);
    submit->shifts = coin(rand);
    submit->n_keep = number(rand, WEFT_CONTEXT_MAX);
    submit->session_id = (struct weft_str){"conversation", number(rand, 12)};
    submit->n_adapters = number(rand, WEFT_SEQ_ADAPTERS_MAX);
    submit->adapters = random_adapters(rand, submit->n_adapters);
}

static void random_event(uint64_t *rand, struct weft_event *event) {
    event->request_id = number64(rand);
    event->attempt = number(rand, UINT32_MAX);
    event->choice = number(rand, WEFT_CHOICES_MAX - 1);
    event->sampled = coin(rand);
    event->token = number(rand, WEFT_VOCAB_MAX - 1);
    event->output_idx = number(rand, WEFT_CONTEXT_MAX);
    event->end = (enum weft_end)weft_rand_below(rand, WEFT_END_ERROR + 1);
    event->has_logprobs = event->sampled && coin(rand);
    if (event->has_logprobs) event->logprobs = *random_logprobs(rand, 1);
    event->n_prompt_logprobs = coin(rand) ? 0 : count(rand, 100);
    event->prompt_pos = number(rand, WEFT_CONTEXT_MAX - event->n_prompt_logprobs);
    event->prompt_logprobs = random_logprobs(rand, event->n_prompt_logprobs);
    event->n_prompt_cached = number(rand, WEFT_CONTEXT_MAX);
    event->queued_us = number64(rand);
    event->values = random_values(rand, !event->sampled && event->end, &event->n_values);
    event->sampler_state = random_state(rand);
}

static void random_out(uint64_t *rand, struct weft_step_out *out) {
    out->slot = number(rand, WEFT_SEQS_MAX - 1);
    out->gen = number(rand, UINT32_MAX);
    out->ran = coin(rand);
    out->sampled = out->ran && coin(rand);
    out->is_late = out->ran && !out->sampled && coin(rand);
    out->n_more = out->sampled && coin(rand) ? count(rand, WEFT_MORE_MAX) : 0;
    out->more = tokens(rand, out->n_more);
    out->n_proposed = out->ran ? number(rand, WEFT_SPEC_TOKENS_MAX) : 0;
    out->n_accepted = number(rand, weft_min_u32(out->n_proposed, out->n_more));
    out->sampler_state = random_state(rand);
    out->token = number(rand, WEFT_VOCAB_MAX - 1);
    out->output_idx = number(rand, WEFT_CONTEXT_MAX);
    out->finish = (enum weft_end)weft_rand_below(rand, WEFT_END_LENGTH + 1);
    out->has_logprobs = out->sampled && coin(rand);
    if (out->has_logprobs) out->logprobs = *random_logprobs(rand, 1);
    out->n_prompt_logprobs = out->ran && coin(rand) ? count(rand, 100) : 0;
    out->prompt_pos = number(rand, WEFT_CONTEXT_MAX - out->n_prompt_logprobs);
    out->prompt_logprobs = random_logprobs(rand, out->n_prompt_logprobs);
    out->values = random_values(rand, out->ran && !out->sampled && out->finish, &out->n_values);
}

static void random_start(uint64_t *rand, struct weft_step_start *start) {
    start->slot = number(rand, WEFT_SEQS_MAX - 1);
    start->gen = number(rand, UINT32_MAX);
    start->choice = number(rand, WEFT_CHOICES_MAX - 1);
    start->n_tokens = 1 + count(rand, 5000);
    start->tokens = tokens(rand, start->n_tokens);
    start->n_prompt = 1 + weft_rand_below(rand, start->n_tokens);
    start->n_dropped = coin(rand) ? weft_rand_below(rand, start->n_tokens) : 0;
    start->n_keep = weft_rand_below(rand, start->n_tokens - start->n_dropped);
    uint32_t n_left = start->n_tokens - start->n_dropped;
    start->n_cached = weft_rand_below(rand, n_left);
    start->n_written = start->n_cached + weft_rand_below(rand, n_left - start->n_cached + 1);
    start->n_prompt_logprobs_done = weft_rand_below(rand, start->n_prompt + 1);
    start->n_window_skipped = number(rand, WEFT_CONTEXT_MAX);
    start->sampler_state = random_state(rand);
    start->n_adapters = number(rand, WEFT_SEQ_ADAPTERS_MAX);
    start->adapters = random_adapters(rand, start->n_adapters);
    random_sampling(rand, &start->sampling);
    random_pooling(rand, start->n_prompt, &start->sampling, &start->pooling);
}

static const struct weft_step_spill *random_spills(uint64_t *rand, uint32_t *n_out) {
    *n_out = count(rand, 300);
    struct weft_step_spill *spills = take(*n_out, sizeof *spills);
    for (uint32_t i = 0; i < *n_out; i++)
        spills[i] = (struct weft_step_spill){number(rand, WEFT_KV_BLOCKS_MAX - 1),
                                             number(rand, WEFT_KV_BLOCKS_MAX - 1)};
    return spills;
}

static void random_plan(uint64_t *rand, struct weft_step_plan *plan) {
    plan->epoch = number64(rand);
    plan->step = number64(rand);
    plan->n_releases = count(rand, WEFT_SEQS_MAX);
    plan->n_starts = count(rand, 50);
    plan->n_copies = count(rand, 300);
    plan->n_grants = count(rand, WEFT_SEQS_MAX);
    plan->n_rows = count(rand, WEFT_SEQS_MAX);
    struct weft_step_release *releases = take(plan->n_releases, sizeof *releases);
    for (uint32_t i = 0; i < plan->n_releases; i++)
        releases[i] =
            (struct weft_step_release){number(rand, WEFT_SEQS_MAX - 1), number(rand, UINT32_MAX)};
    struct weft_step_start *starts = take(plan->n_starts, sizeof *starts);
    for (uint32_t i = 0; i < plan->n_starts; i++)
        random_start(rand, &starts[i]);
    struct weft_step_copy *copies = take(plan->n_copies, sizeof *copies);
    for (uint32_t i = 0; i < plan->n_copies; i++) {
        copies[i].from = number(rand, WEFT_KV_BLOCKS_MAX - 2);
        copies[i].to = copies[i].from + 1;
        copies[i].kind = weft_rand_below(rand, WEFT_KV_KINDS);
    }
    struct weft_step_grant *grants = take(plan->n_grants, sizeof *grants);
    for (uint32_t i = 0; i < plan->n_grants; i++) {
        uint32_t n = 1 + count(rand, 50);
        grants[i] =
            (struct weft_step_grant){number(rand, WEFT_SEQS_MAX - 1), number(rand, UINT32_MAX),
                                     weft_rand_below(rand, WEFT_KV_KINDS), n, tokens(rand, n)};
    }
    struct weft_step_row *rows = take(plan->n_rows, sizeof *rows);
    for (uint32_t i = 0; i < plan->n_rows; i++)
        rows[i] = (struct weft_step_row){number(rand, WEFT_SEQS_MAX - 1), number(rand, UINT32_MAX),
                                         1 + weft_rand_below(rand, 200),
                                         number(rand, WEFT_SPEC_TOKENS_MAX)};
    plan->n_states = count(rand, 2 * WEFT_SEQS_MAX);
    struct weft_step_state *states = take(plan->n_states, sizeof *states);
    for (uint32_t i = 0; i < plan->n_states; i++)
        states[i] = (struct weft_step_state){weft_rand_below(rand, WEFT_STATE_OPS),
                                             number(rand, WEFT_SEQS_MAX - 1),
                                             number(rand, WEFT_SEQS_MAX - 1)};
    plan->states = states;
    plan->releases = releases;
    plan->starts = starts;
    plan->spills = random_spills(rand, &plan->n_spills);
    plan->copies = copies;
    plan->restores = random_spills(rand, &plan->n_restores);
    plan->grants = grants;
    plan->rows = rows;
}

static void random_activity(uint64_t *rand, struct weft_activity *activity) {
    activity->n_steps = count(rand, WEFT_ACTIVITY_STEPS_MAX);
    activity->n_seqs = count(rand, WEFT_ACTIVITY_SEQS_MAX);
    struct weft_activity_step *steps = take(activity->n_steps, sizeof *steps);
    for (uint32_t i = 0; i < activity->n_steps; i++)
        steps[i] = (struct weft_activity_step){number64(rand),
                                               number64(rand),
                                               number(rand, UINT32_MAX),
                                               number(rand, WEFT_BATCHED_TOKENS_MAX),
                                               number(rand, WEFT_BATCHED_TOKENS_MAX),
                                               number(rand, WEFT_SEQS_MAX),
                                               number(rand, WEFT_WORKERS_MAX - 1)};
    struct weft_activity_seq *seqs = take(activity->n_seqs, sizeof *seqs);
    for (uint32_t i = 0; i < activity->n_seqs; i++) {
        seqs[i] = (struct weft_activity_seq){
            .request_id = number64(rand),
            .age_us = number64(rand),
            .router = number(rand, UINT32_MAX),
            .choice = number(rand, WEFT_CHOICES_MAX - 1),
            .phase = (enum weft_activity_phase)weft_rand_below(rand, WEFT_ACTIVITY_PHASE_COUNT),
            .n_prompt = number(rand, WEFT_CONTEXT_MAX),
            .n_output = number(rand, WEFT_CONTEXT_MAX),
            .max_tokens = number(rand, UINT32_MAX),
            .n_blocks = number(rand, WEFT_KV_BLOCKS_MAX),
            .group = number(rand, WEFT_WORKERS_MAX - 1)};
        seqs[i].n_prompt_done = number(rand, seqs[i].n_prompt);
    }
    activity->steps = steps;
    activity->seqs = seqs;
    activity->n_seqs_omitted = number(rand, UINT32_MAX);
    activity->router = number(rand, UINT32_MAX);
}

static void random_snapshot(uint64_t *rand, struct weft_msg_snapshot *snap) {
    snap->serving = coin(rand);
    snap->advancing = coin(rand);
    snap->draining = coin(rand);
    snap->has_model = coin(rand);
    if (snap->has_model) random_model(rand, &snap->model);
    snap->n_waiting = number(rand, UINT32_MAX);
    snap->n_running = number(rand, UINT32_MAX);
    snap->n_blocks = number(rand, WEFT_KV_BLOCKS_MAX);
    snap->n_blocks_free = number(rand, snap->n_blocks);
    snap->n_blocks_cached = number(rand, snap->n_blocks);
    snap->n_window_blocks = number(rand, WEFT_KV_BLOCKS_MAX);
    snap->n_window_blocks_free = number(rand, snap->n_window_blocks);
    snap->spill_bytes = number64(rand);
    snap->n_sessions = number(rand, UINT32_MAX);
    snap->n_session_blocks = number(rand, UINT32_MAX);
    snap->n_checkpoints_held = number(rand, UINT32_MAX);
    snap->max_queue = number(rand, WEFT_QUEUE_MAX);
#define RANDOM(name, ...) snap->name = number64(rand);
    WEFT_COUNTER_LIST(RANDOM, RANDOM)
#undef RANDOM
    snap->sched_resident_bytes = number64(rand);
    snap->worker_resident_bytes = number64(rand);
    for (uint32_t i = 0; i < WEFT_ITER_BUCKETS; i++)
        snap->iter_tokens[i] = number64(rand);
    snap->sched_pid = number(rand, UINT32_MAX);
    snap->n_workers = number(rand, WEFT_WORKERS_MAX);
    snap->n_workers_serving = number(rand, snap->n_workers);
    snap->n_ranks = snap->n_workers ? number(rand, WEFT_RANKS_TOLD_MAX) : 0;
    for (uint32_t i = 0; i < snap->n_ranks; i++)
        snap->ranks[i] =
            (struct weft_rank_told){number(rand, snap->n_workers - 1),
                                    number(rand, WEFT_RANKS_MAX - 1), figures(number64(rand))};
    random_activity(rand, &snap->activity);
}

static void random_experts(uint64_t *rand, struct weft_msg_experts *experts) {
    experts->n_layers = 1 + weft_rand_below(rand, 64);
    experts->n_experts = 1 + weft_rand_below(rand, 256);
    uint32_t *layers = take(experts->n_layers, sizeof *layers);
    for (uint32_t i = 0; i < experts->n_layers; i++)
        layers[i] = (i > 0 ? layers[i - 1] : 0) + 1 + weft_rand_below(rand, 8);
    uint64_t *rows = take((size_t)experts->n_layers * experts->n_experts, sizeof *rows);
    for (uint32_t i = 0; i < experts->n_layers * experts->n_experts; i++)
        rows[i] = number64(rand);
    experts->layers = layers;
    experts->rows = rows;
}

static void random_small(uint64_t *rand, struct weft_msg *msg) {
    if (msg->type == WEFT_MSG_ROUTER_HELLO) {
        msg->router_hello.version = WEFT_PROTO_VERSION;
        msg->router_hello.instance = number64(rand);
        msg->router_hello.pid = number(rand, UINT32_MAX);
    } else if (msg->type == WEFT_MSG_CANCEL) {
        msg->cancel.request_id = number64(rand);
        msg->cancel.attempt = number(rand, UINT32_MAX);
        msg->cancel.choice = coin(rand) ? UINT32_MAX : number(rand, WEFT_CHOICES_MAX - 1);
    } else if (msg->type == WEFT_MSG_SCHED_HELLO) {
        msg->sched_hello.version = WEFT_PROTO_VERSION;
        msg->sched_hello.instance = number64(rand);
        msg->sched_hello.epoch = number64(rand);
        msg->sched_hello.pid = number(rand, UINT32_MAX);
    } else if (msg->type == WEFT_MSG_ACCEPTED) {
        msg->accepted.request_id = number64(rand);
        msg->accepted.attempt = number(rand, UINT32_MAX);
    } else if (msg->type == WEFT_MSG_COMPILED) {
        msg->compiled.epoch = number64(rand);
        msg->compiled.id = number64(rand);
    } else if (msg->type == WEFT_MSG_SESSION) {
        fill_session(&msg->session, coin(rand));
        msg->session.id = number64(rand);
    } else if (msg->type == WEFT_MSG_SESSION_DONE) {
        fill_session_done(&msg->session_done, coin(rand));
        msg->session_done.n_bytes = number64(rand);
    } else if (msg->type == WEFT_MSG_KV_FILE) {
        fill_kv_file(&msg->kv_file, coin(rand));
        msg->kv_file.op = (enum weft_kv_file_op)weft_rand_below(rand, WEFT_KV_FILE_OP_COUNT);
    } else if (msg->type == WEFT_MSG_KV_FILED) {
        fill_kv_filed(&msg->kv_filed, coin(rand));
        msg->kv_filed.id = number64(rand);
    } else if (msg->type == WEFT_MSG_REMOVE_LORA) {
        msg->remove_lora.id = number64(rand);
    } else if (msg->type != WEFT_MSG_RESET_CACHE) {
        WEFT_ASSERT(msg->type == WEFT_MSG_HEARTBEAT);
        msg->heartbeat.progress = number64(rand);
        msg->heartbeat.busy = coin(rand);
        msg->heartbeat.n_ranks = number(rand, WEFT_RANKS_MAX);
        for (uint32_t i = 0; i < msg->heartbeat.n_ranks; i++)
            msg->heartbeat.ranks[i] = figures(number64(rand));
        msg->heartbeat.awaited_rank = number(rand, WEFT_RANKS_MAX - 1);
        msg->heartbeat.awaited_pid = number(rand, UINT32_MAX);
    }
}

void proto_random(uint64_t *rand, struct weft_msg *msg) {
    heap.used = 0;
    memset(msg, 0, sizeof *msg);
    msg->type = (enum weft_proto_type)weft_rand_below(rand, WEFT_MSG_TYPE_COUNT);
    switch (msg->type) {
    case WEFT_MSG_SUBMIT:
        random_submit(rand, &msg->submit);
        break;
    case WEFT_MSG_ADD_LORA: {
        char *path = take(1025, 1);
        path[0] = '/';
        random_text(rand, path + 1, 1023);
        msg->add_lora.id = number64(rand);
        msg->add_lora.digest = (struct weft_digest){number64(rand), number64(rand)};
        msg->add_lora.path = path;
        break;
    }
    case WEFT_MSG_LORA: {
        char *text = take(1025, 1);
        random_text(rand, text, 1024);
        msg->lora = (struct weft_msg_lora){
            number64(rand), coin(rand), {number64(rand), number64(rand)}, number64(rand), text};
        break;
    }
    case WEFT_MSG_REJECTED: {
        char *text = take(1025, 1);
        random_text(rand, text, 1024);
        msg->rejected.request_id = number64(rand);
        msg->rejected.attempt = number(rand, UINT32_MAX);
        msg->rejected.reason = (enum weft_reject)(1 + weft_rand_below(rand, WEFT_REJECT_COUNT - 1));
        msg->rejected.retry_after_ms = number(rand, UINT32_MAX);
        msg->rejected.text = text;
        break;
    }
    case WEFT_MSG_EVENTS: {
        msg->events.n = count(rand, 100);
        struct weft_event *events = take(msg->events.n, sizeof *events);
        for (uint32_t i = 0; i < msg->events.n; i++)
            random_event(rand, &events[i]);
        msg->events.events = events;
        break;
    }
    case WEFT_MSG_SNAPSHOT:
        random_snapshot(rand, &msg->snapshot);
        break;
    case WEFT_MSG_WORKER_HELLO:
        msg->worker_hello.version = WEFT_PROTO_VERSION;
        msg->worker_hello.instance = number64(rand);
        msg->worker_hello.pid = number(rand, UINT32_MAX);
        random_model(rand, &msg->worker_hello.model);
        break;
    case WEFT_MSG_RESULT: {
        msg->result.epoch = number64(rand);
        msg->result.step = number64(rand);
        msg->result.busy_us = number(rand, UINT32_MAX);
        msg->result.idle_us = number(rand, UINT32_MAX);
        msg->result.spill_us = number(rand, UINT32_MAX);
        msg->result.draft_us = number(rand, UINT32_MAX);
        msg->result.catch_up_us = number(rand, UINT32_MAX);
        msg->result.contrast_us = number(rand, UINT32_MAX);
        msg->result.n_tokens = number(rand, WEFT_BATCHED_TOKENS_MAX);
        msg->result.n_outs = count(rand, 100);
        struct weft_step_out *outs = take(msg->result.n_outs, sizeof *outs);
        for (uint32_t i = 0; i < msg->result.n_outs; i++)
            random_out(rand, &outs[i]);
        msg->result.outs = outs;
        break;
    }
    case WEFT_MSG_PLAN:
        random_plan(rand, &msg->plan);
        break;
    case WEFT_MSG_EXPERTS:
        random_experts(rand, &msg->experts);
        break;
    case WEFT_MSG_GRAMMAR:
        msg->grammar.epoch = number64(rand);
        msg->grammar.id = number64(rand);
        random_grammar(rand, &msg->grammar.grammar);
        break;
    default:
        random_small(rand, msg);
    }
}
