/* Encoding: msgpack-c's packer writes through a callback into the caller's buffer. Vectors of plain
 * numbers go out as one `bin` each, so a decode plan of 64 rows is a handful of small writes. */
#include <msgpack.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "proto/proto.h"
#include "wire.h"

static int add_to_buf(void *data, const char *bytes, size_t len) {
    struct weft_buf *buf = data;
    weft_buf_add(buf, bytes, len);
    return buf->failed ? -1 : 0;
}

/* The packer's functions return what the callback returned; the buffer remembers a failure, so
 * nobody looks until the end. */
static void put_u64(msgpack_packer *pk, uint64_t value) {
    (void)msgpack_pack_uint64(pk, value);
}

static void put_bool(msgpack_packer *pk, bool value) {
    (void)(value ? msgpack_pack_true(pk) : msgpack_pack_false(pk));
}

static void put_f32(msgpack_packer *pk, float value) {
    (void)msgpack_pack_float(pk, value);
}

static void put_nil(msgpack_packer *pk) {
    (void)msgpack_pack_nil(pk);
}

static void put_array(msgpack_packer *pk, size_t n) {
    (void)msgpack_pack_array(pk, n);
}

static void put_bin(msgpack_packer *pk, const void *items, size_t n, size_t item_bytes) {
    WEFT_ASSERT(n <= WEFT_MESSAGE_BYTES_MAX / item_bytes); /* else it fits no message */
    (void)msgpack_pack_bin(pk, n * item_bytes);
    if (n > 0) (void)msgpack_pack_bin_body(pk, items, n * item_bytes);
}

/* Our text may hold bytes of others (a model's path, a quoted value cut inside a character): if it
 * is not UTF-8 it goes out as ASCII with '?', which every reader accepts. */
static void put_text(msgpack_packer *pk, const char *text, size_t len_max) {
    char ascii[WEFTI_PROTO_TEXT_BYTES_MAX];
    WEFT_ASSERT(len_max <= sizeof ascii);
    size_t len = strnlen(text, len_max);
    if (!weft_utf8_valid(text, len)) {
        for (size_t i = 0; i < len; i++)
            ascii[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
        text = ascii;
    }
    (void)msgpack_pack_str(pk, len);
    (void)msgpack_pack_str_body(pk, text, len);
}

/* ---------------------------------------------------------------------------- shared parts --- */

static void put_model(msgpack_packer *pk, const struct weft_model_info *model) {
    put_array(pk, WEFTI_PROTO_F_MODEL);
    put_text(pk, model->model_name, sizeof model->model_name - 1);
    put_text(pk, model->arch, sizeof model->arch - 1);
    put_text(pk, model->isa, sizeof model->isa - 1);
    put_text(pk, model->fingerprint, sizeof model->fingerprint - 1);
    put_u64(pk, model->n_vocab);
    put_u64(pk, model->n_blocks);
    put_u64(pk, model->block_size);
    put_u64(pk, model->max_model_len);
    put_u64(pk, model->max_seqs);
    put_u64(pk, model->max_batched_tokens);
    put_u64(pk, model->n_threads);
    put_u64(pk, model->weight_bytes);
    put_u64(pk, model->kv_bytes);
}

static void put_sampling(msgpack_packer *pk, const struct weft_sampling *sampling) {
    WEFT_ASSERT(sampling->n_logprobs >= -1 && sampling->n_prompt_logprobs >= -1);
    put_array(pk, WEFTI_PROTO_F_SAMPLING);
#define PUT_U64(value) put_u64(pk, value)
#define PUT_U32(value) put_u64(pk, value)
#define PUT_F32(value) put_f32(pk, value)
#define PUT_COUNT(value) put_u64(pk, (uint32_t)((value) + 1))
#define PUT(type, name, ...) PUT_##type(sampling->name);
    WEFT_SAMPLING_LIST(PUT, PUT)
#undef PUT
#undef PUT_COUNT
#undef PUT_F32
#undef PUT_U32
#undef PUT_U64
    put_bin(pk, sampling->stop_tokens, sampling->n_stop_tokens, sizeof *sampling->stop_tokens);
    put_bin(pk, sampling->bias, sampling->n_bias, sizeof *sampling->bias);
    put_bin(pk, sampling->masked_tokens, sampling->n_masked_tokens,
            sizeof *sampling->masked_tokens);
}

/* Writes `n` entries as three vectors: heads, all best ids, those ids' values. None: nil. */
static void put_logprobs(msgpack_packer *pk, const struct weft_logprobs *entries, uint32_t n) {
    if (n == 0) {
        put_nil(pk);
        return;
    }
    size_t n_top = 0;
    put_array(pk, WEFTI_PROTO_F_LOGPROBS);
    WEFT_ASSERT(n <= WEFT_CONTEXT_MAX);
    (void)msgpack_pack_bin(pk, n * sizeof(struct wefti_proto_logprob_head));
    for (uint32_t i = 0; i < n; i++) {
        struct wefti_proto_logprob_head head = {entries[i].logprob, entries[i].rank,
                                                entries[i].n_top};
        (void)msgpack_pack_bin_body(pk, &head, sizeof head);
        n_top += entries[i].n_top;
    }
    WEFT_ASSERT(n_top <= WEFTI_PROTO_LOGPROBS_MAX);
    (void)msgpack_pack_bin(pk, n_top * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) {
        if (entries[i].n_top > 0)
            (void)msgpack_pack_bin_body(pk, entries[i].top_ids,
                                        entries[i].n_top * sizeof(uint32_t));
    }
    (void)msgpack_pack_bin(pk, n_top * sizeof(float));
    for (uint32_t i = 0; i < n; i++) {
        if (entries[i].n_top > 0)
            (void)msgpack_pack_bin_body(pk, entries[i].top_logprobs,
                                        entries[i].n_top * sizeof(float));
    }
}

/* ----------------------------------------------------------------------- router, scheduler --- */

static void put_submit(msgpack_packer *pk, const struct weft_submit *submit) {
    WEFT_ASSERT(submit->n_prompt >= 1);
    WEFT_ASSERT(submit->n_choices >= 1 && submit->n_choices <= WEFT_CHOICES_MAX);
    put_u64(pk, submit->request_id);
    put_u64(pk, submit->attempt);
    put_bool(pk, submit->resume);
    put_bin(pk, submit->prompt, submit->n_prompt, sizeof *submit->prompt);
    put_array(pk, submit->n_choices);
    for (uint32_t i = 0; i < submit->n_choices; i++) {
        const struct weft_submit_choice *choice = &submit->choices[i];
        put_array(pk, WEFTI_PROTO_F_CHOICE);
        put_bin(pk, choice->output, choice->n_output, sizeof *choice->output);
        put_bool(pk, choice->finished);
    }
    put_u64(pk, submit->n_prompt_logprobs_done);
    put_u64(pk, submit->age_us);
    put_u64(pk, submit->deadline_us);
    put_sampling(pk, &submit->sampling);
}

static void put_event(msgpack_packer *pk, const struct weft_event *event) {
    WEFT_ASSERT(event->sampled || !event->has_logprobs);
    put_array(pk, WEFTI_PROTO_F_EVENT);
    put_u64(pk, event->request_id);
    put_u64(pk, event->attempt);
    put_u64(pk, event->choice);
    put_u64(pk, event->sampled ? WEFTI_PROTO_FLAG_SAMPLED : 0);
    put_u64(pk, event->sampled ? event->token : 0);
    put_u64(pk, event->sampled ? event->output_idx : 0);
    put_u64(pk, event->end);
    put_logprobs(pk, &event->logprobs, event->has_logprobs ? 1 : 0);
    put_u64(pk, event->prompt_pos);
    put_logprobs(pk, event->prompt_logprobs, event->n_prompt_logprobs);
    put_u64(pk, event->n_prompt_cached);
    put_u64(pk, event->queued_us);
}

static void put_snapshot(msgpack_packer *pk, const struct weft_msg_snapshot *snap) {
    put_bool(pk, snap->serving);
    put_bool(pk, snap->advancing);
    put_bool(pk, snap->draining);
    if (snap->has_model)
        put_model(pk, &snap->model);
    else
        put_nil(pk);
    put_u64(pk, snap->n_waiting);
    put_u64(pk, snap->n_running);
    put_u64(pk, snap->n_blocks);
    put_u64(pk, snap->n_blocks_free);
    put_u64(pk, snap->max_queue);
#define VALUE(name, ...) snap->name,
    const uint64_t counters[] = {WEFT_COUNTER_LIST(VALUE, VALUE)};
#undef VALUE
    put_bin(pk, counters, WEFT_COUNTERS, sizeof *counters);
    put_bin(pk, snap->iter_tokens, WEFT_ITER_BUCKETS, sizeof *snap->iter_tokens);
    put_u64(pk, snap->sched_resident_bytes);
    put_u64(pk, snap->worker_resident_bytes);
    put_u64(pk, snap->sched_pid);
    put_u64(pk, snap->n_workers);
    put_u64(pk, snap->n_workers_serving);
}

/* ----------------------------------------------------------------------- scheduler, worker --- */

static void put_start(msgpack_packer *pk, const struct weft_step_start *start) {
    WEFT_ASSERT(start->n_prompt >= 1 && start->n_tokens >= start->n_prompt);
    WEFT_ASSERT(start->n_cached < start->n_tokens);
    put_array(pk, WEFTI_PROTO_F_START);
    put_u64(pk, start->slot);
    put_u64(pk, start->gen);
    put_u64(pk, start->choice);
    put_bin(pk, start->tokens, start->n_tokens, sizeof *start->tokens);
    put_u64(pk, start->n_prompt);
    put_u64(pk, start->n_cached);
    put_u64(pk, start->n_prompt_logprobs_done);
    put_sampling(pk, &start->sampling);
}

static void put_grants(msgpack_packer *pk, const struct weft_step_grant *grants, uint32_t n) {
    size_t n_blocks = 0;
    WEFT_ASSERT(n <= WEFTI_PROTO_GRANTS_MAX);
    (void)msgpack_pack_bin(pk, n * sizeof(struct wefti_proto_grant_head));
    for (uint32_t i = 0; i < n; i++) {
        struct wefti_proto_grant_head head = {grants[i].slot, grants[i].gen, grants[i].n_blocks};
        WEFT_ASSERT(head.n_blocks >= 1);
        (void)msgpack_pack_bin_body(pk, &head, sizeof head);
        n_blocks += head.n_blocks;
    }
    WEFT_ASSERT(n_blocks <= WEFT_MESSAGE_BYTES_MAX / sizeof(uint32_t));
    (void)msgpack_pack_bin(pk, n_blocks * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++)
        (void)msgpack_pack_bin_body(pk, grants[i].blocks, grants[i].n_blocks * sizeof(uint32_t));
}

static void put_plan(msgpack_packer *pk, const struct weft_step_plan *plan) {
    put_u64(pk, plan->epoch);
    put_u64(pk, plan->step);
    put_bin(pk, plan->releases, plan->n_releases, sizeof *plan->releases);
    put_array(pk, plan->n_starts);
    for (uint32_t i = 0; i < plan->n_starts; i++)
        put_start(pk, &plan->starts[i]);
    put_bin(pk, plan->copies, plan->n_copies, sizeof *plan->copies);
    put_grants(pk, plan->grants, plan->n_grants);
    put_bin(pk, plan->rows, plan->n_rows, sizeof *plan->rows);
}

static void put_out(msgpack_packer *pk, const struct weft_step_out *out) {
    WEFT_ASSERT(out->ran || !out->sampled);
    WEFT_ASSERT(out->sampled || !out->has_logprobs);
    put_array(pk, WEFTI_PROTO_F_OUT);
    put_u64(pk, out->slot);
    put_u64(pk, out->gen);
    put_u64(pk,
            (out->ran ? WEFTI_PROTO_FLAG_RAN : 0) | (out->sampled ? WEFTI_PROTO_FLAG_SAMPLED : 0));
    put_u64(pk, out->sampled ? out->token : 0);
    put_u64(pk, out->sampled ? out->output_idx : 0);
    put_u64(pk, out->finish);
    put_logprobs(pk, &out->logprobs, out->has_logprobs ? 1 : 0);
    put_u64(pk, out->prompt_pos);
    put_logprobs(pk, out->prompt_logprobs, out->n_prompt_logprobs);
}

static void put_result(msgpack_packer *pk, const struct weft_step_result *result) {
    put_u64(pk, result->epoch);
    put_u64(pk, result->step);
    put_u64(pk, result->busy_us);
    put_u64(pk, result->idle_us);
    put_u64(pk, result->n_tokens);
    put_array(pk, result->n_outs);
    for (uint32_t i = 0; i < result->n_outs; i++)
        put_out(pk, &result->outs[i]);
}

static void put_experts(msgpack_packer *pk, const struct weft_msg_experts *experts) {
    uint64_t n = (uint64_t)experts->n_layers * experts->n_experts;
    WEFT_ASSERT(n >= 1 && n <= WEFT_EXPERT_SERIES_MAX);
    put_u64(pk, experts->n_experts);
    put_bin(pk, experts->layers, experts->n_layers, sizeof *experts->layers);
    put_bin(pk, experts->rows, n, sizeof *experts->rows);
}

/* -------------------------------------------------------------------------------- messages --- */

static void put_worker_hello(msgpack_packer *pk, const struct weft_msg_worker_hello *hello) {
    put_u64(pk, hello->version);
    put_u64(pk, hello->instance);
    put_u64(pk, hello->pid);
    put_model(pk, &hello->model);
}

static void put_rejected(msgpack_packer *pk, const struct weft_rejection *rejected) {
    WEFT_ASSERT(rejected->reason > WEFT_REJECT_NONE && rejected->reason < WEFT_REJECT_COUNT);
    put_u64(pk, rejected->request_id);
    put_u64(pk, rejected->attempt);
    put_u64(pk, rejected->reason);
    put_u64(pk, rejected->retry_after_ms);
    put_text(pk, rejected->text, WEFTI_PROTO_TEXT_BYTES_MAX);
}

/* Opens the message's array and writes its type. */
static void put_head(msgpack_packer *pk, enum weft_proto_type type, uint32_t n_fields) {
    put_array(pk, n_fields);
    put_u64(pk, type);
}

static void put_message(msgpack_packer *pk, const struct weft_msg *msg) {
    switch (msg->type) {
    case WEFT_MSG_ROUTER_HELLO:
        put_head(pk, msg->type, WEFTI_PROTO_F_ROUTER_HELLO);
        put_u64(pk, msg->router_hello.version);
        put_u64(pk, msg->router_hello.instance);
        put_u64(pk, msg->router_hello.pid);
        return;
    case WEFT_MSG_SUBMIT:
        put_head(pk, msg->type, WEFTI_PROTO_F_SUBMIT);
        put_submit(pk, &msg->submit);
        return;
    case WEFT_MSG_CANCEL:
        put_head(pk, msg->type, WEFTI_PROTO_F_CANCEL);
        put_u64(pk, msg->cancel.request_id);
        put_u64(pk, msg->cancel.attempt);
        put_u64(pk, msg->cancel.choice);
        return;
    case WEFT_MSG_SCHED_HELLO:
        put_head(pk, msg->type, WEFTI_PROTO_F_SCHED_HELLO);
        put_u64(pk, msg->sched_hello.version);
        put_u64(pk, msg->sched_hello.instance);
        put_u64(pk, msg->sched_hello.epoch);
        put_u64(pk, msg->sched_hello.pid);
        return;
    case WEFT_MSG_ACCEPTED:
        put_head(pk, msg->type, WEFTI_PROTO_F_ACCEPTED);
        put_u64(pk, msg->accepted.request_id);
        put_u64(pk, msg->accepted.attempt);
        return;
    case WEFT_MSG_REJECTED:
        put_head(pk, msg->type, WEFTI_PROTO_F_REJECTED);
        put_rejected(pk, &msg->rejected);
        return;
    case WEFT_MSG_EVENTS:
        put_head(pk, msg->type, WEFTI_PROTO_F_EVENTS);
        put_array(pk, msg->events.n);
        for (uint32_t i = 0; i < msg->events.n; i++)
            put_event(pk, &msg->events.events[i]);
        return;
    case WEFT_MSG_SNAPSHOT:
        put_head(pk, msg->type, WEFTI_PROTO_F_SNAPSHOT);
        put_snapshot(pk, &msg->snapshot);
        return;
    case WEFT_MSG_WORKER_HELLO:
        put_head(pk, msg->type, WEFTI_PROTO_F_WORKER_HELLO);
        put_worker_hello(pk, &msg->worker_hello);
        return;
    case WEFT_MSG_RESULT:
        put_head(pk, msg->type, WEFTI_PROTO_F_RESULT);
        put_result(pk, &msg->result);
        return;
    case WEFT_MSG_HEARTBEAT:
        put_head(pk, msg->type, WEFTI_PROTO_F_HEARTBEAT);
        put_u64(pk, msg->heartbeat.progress);
        put_bool(pk, msg->heartbeat.busy);
        put_u64(pk, msg->heartbeat.resident_bytes);
        return;
    case WEFT_MSG_PLAN:
        put_head(pk, msg->type, WEFTI_PROTO_F_PLAN);
        put_plan(pk, &msg->plan);
        return;
    case WEFT_MSG_EXPERTS:
        put_head(pk, msg->type, WEFTI_PROTO_F_EXPERTS);
        put_experts(pk, &msg->experts);
        return;
    case WEFT_MSG_TYPE_COUNT:
        break;
    }
}

void weft_proto_encode(const struct weft_msg *msg, struct weft_buf *out) {
    WEFT_ASSERT((unsigned)msg->type < WEFT_MSG_TYPE_COUNT);
    size_t len_before = out->len;
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, add_to_buf);
    put_message(&packer, msg);
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
    };
    return (unsigned)type < WEFT_MSG_TYPE_COUNT ? names[type] : "unknown";
}
