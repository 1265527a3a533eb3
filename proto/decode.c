/* Decoding: one function per struct, each a straight list of reads in the order of proto/schema.md.
 * The reader remembers the first fault, so nothing here branches on errors except where a value is
 * about to size or index something. A list's count is checked against the bytes left before its
 * storage is taken: a message of n bytes costs at most STORAGE_FACTOR * n bytes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "codec/msgpack_reader.h"
#include "proto/proto.h"
#include "storage.h"
#include "wire.h"

#define STORAGE_FACTOR 24
_Static_assert(sizeof(struct weft_step_start) <= STORAGE_FACTOR * (WEFTI_PROTO_START_BYTES_MIN + 1),
               "bounded");
_Static_assert(sizeof(struct weft_step_out) <= STORAGE_FACTOR * (WEFTI_PROTO_F_OUT + 1), "bounded");
_Static_assert(sizeof(struct weft_event) <= STORAGE_FACTOR * (WEFTI_PROTO_F_EVENT + 1), "bounded");
_Static_assert(sizeof(struct weft_submit_choice) <= STORAGE_FACTOR * (WEFTI_PROTO_F_CHOICE + 1),
               "bounded");
_Static_assert(sizeof(struct weft_activity_step) <=
                   STORAGE_FACTOR * (WEFTI_PROTO_F_ACTIVITY_STEP + 1),
               "bounded");
_Static_assert(sizeof(struct weft_activity_seq) <=
                   STORAGE_FACTOR * (WEFTI_PROTO_F_ACTIVITY_SEQ + 1),
               "bounded");
_Static_assert(sizeof(struct weft_step_grant) <=
                   STORAGE_FACTOR * sizeof(struct wefti_proto_grant_head),
               "bounded");
_Static_assert(sizeof(struct weft_logprobs) <=
                   STORAGE_FACTOR * sizeof(struct wefti_proto_logprob_head),
               "bounded");

struct weft_proto_decoder {
    struct wefti_proto_storage storage;
    struct weft_msgpack_reader rd;
};

weft_err weft_proto_decoder_new(weft_proto_decoder **decoder_out) {
    *decoder_out = calloc(1, sizeof **decoder_out);
    return *decoder_out ? WEFT_OK : WEFT_E_NOMEM;
}

void weft_proto_decoder_free(weft_proto_decoder *decoder) {
    if (!decoder) return;
    wefti_proto_storage_fini(&decoder->storage);
    free(decoder);
}

/* Storage for `n` items; NULL, with the fault recorded, after any fault. */
static void *take(weft_proto_decoder *dec, const char *field, size_t n, size_t item_bytes) {
    if (dec->rd.err) return NULL;
    void *items = wefti_proto_storage_take(&dec->storage, n, item_bytes);
    if (!items)
        weft_msgpack_reader_fail(&dec->rd, WEFT_E_NOMEM, field, "needs memory that is not there");
    return items;
}

/* Reads a `bin` into aligned storage. */
static const void *read_vector(weft_proto_decoder *dec, const char *field, size_t item_bytes,
                               uint32_t n_max, uint32_t *n_out) {
    const void *bytes = weft_msgpack_read_bin(&dec->rd, field, item_bytes, n_max, n_out);
    void *items = take(dec, field, *n_out, item_bytes);
    if (!items) {
        *n_out = 0;
        return NULL;
    }
    if (*n_out > 0) memcpy(items, bytes, *n_out * item_bytes);
    return items;
}

/* Reads ids, all below `limit`. The loop has no early exit so that it runs at memory speed. */
static const uint32_t *read_ids(weft_proto_decoder *dec, const char *field, uint32_t limit,
                                uint32_t n_max, uint32_t *n_out) {
    const uint32_t *ids = read_vector(dec, field, sizeof *ids, n_max, n_out);
    uint32_t largest = 0;
    for (uint32_t i = 0; i < *n_out; i++)
        largest = ids[i] > largest ? ids[i] : largest;
    if (largest >= limit)
        weft_msgpack_reader_fail(&dec->rd, WEFT_E_TOOBIG, field, "holds %u, the limit is %u",
                                 largest, limit);
    return ids;
}

static const uint32_t *read_tokens(weft_proto_decoder *dec, const char *field, uint32_t n_max,
                                   uint32_t *n_out) {
    return read_ids(dec, field, WEFT_VOCAB_MAX, n_max, n_out);
}

/* A number from 1 to `max`. */
static uint32_t read_count(struct weft_msgpack_reader *rd, const char *field, uint32_t max) {
    uint32_t n = weft_msgpack_read_u32(rd, field, max);
    if (n == 0) weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "is 0");
    return n;
}

static uint32_t read_slot(struct weft_msgpack_reader *rd) {
    return weft_msgpack_read_u32(rd, "slot", WEFT_SEQS_MAX - 1);
}

static void check_slot(struct weft_msgpack_reader *rd, const char *field, uint32_t slot) {
    if (slot >= WEFT_SEQS_MAX)
        weft_msgpack_reader_fail(rd, WEFT_E_TOOBIG, field, "names slot %u of at most %u", slot,
                                 WEFT_SEQS_MAX);
}

/* An enum's value: below `count`. */
static uint32_t read_enum(struct weft_msgpack_reader *rd, const char *field, uint32_t count) {
    uint64_t value = weft_msgpack_read_u64(rd, field);
    if (value < count) return (uint32_t)value;
    weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "has no value %llu",
                             (unsigned long long)value);
    return 0;
}

static enum weft_end read_end(struct weft_msgpack_reader *rd, const char *field,
                              enum weft_end_teller teller) {
    uint64_t value = weft_msgpack_read_u64(rd, field);
    if (weft_end_is_told_by(value, teller)) return (enum weft_end)value;
    weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "has no value %llu",
                             (unsigned long long)value);
    return WEFT_END_NONE;
}

static void check_version(struct weft_msgpack_reader *rd) {
    uint32_t version = weft_msgpack_read_u32(rd, "version", UINT32_MAX);
    if (!rd->err && version != WEFT_PROTO_VERSION)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "version",
                                 "%u is not this side's %d: run the same release on both sides",
                                 version, WEFT_PROTO_VERSION);
}

/* ---------------------------------------------------------------------------- shared parts --- */

static struct weft_str read_str(struct weft_msgpack_reader *rd, const char *field, size_t len_max) {
    struct weft_str str = {NULL, 0};
    str.data = weft_msgpack_read_str(rd, field, len_max, &str.len);
    return str;
}

static void read_name(struct weft_msgpack_reader *rd, const char *field, char *out,
                      size_t out_bytes) {
    size_t len;
    const char *text = weft_msgpack_read_str(rd, field, out_bytes - 1, &len);
    if (text) memcpy(out, text, len);
    out[len] = 0;
}

static void read_model(struct weft_msgpack_reader *rd, struct weft_model_info *model) {
    uint32_t n_more = weft_msgpack_read_open(rd, "model", WEFTI_PROTO_F_MODEL);
    read_name(rd, "model_name", model->model_name, sizeof model->model_name);
    read_name(rd, "arch", model->arch, sizeof model->arch);
    read_name(rd, "isa", model->isa, sizeof model->isa);
    read_name(rd, "fingerprint", model->fingerprint, sizeof model->fingerprint);
    model->n_vocab = read_count(rd, "n_vocab", WEFT_VOCAB_MAX);
    model->n_blocks = read_count(rd, "n_blocks", WEFT_KV_BLOCKS_MAX);
    model->block_size = read_count(rd, "block_size", WEFT_BLOCK_SIZE_MAX);
    model->max_model_len = read_count(rd, "max_model_len", WEFT_CONTEXT_MAX);
    model->max_seqs = read_count(rd, "max_seqs", WEFT_SEQS_MAX);
    model->max_batched_tokens = read_count(rd, "max_batched_tokens", WEFT_BATCHED_TOKENS_MAX);
    model->n_threads = read_count(rd, "n_threads", WEFT_THREADS_MAX);
    model->weight_bytes = weft_msgpack_read_u64(rd, "weight_bytes");
    model->kv_bytes = weft_msgpack_read_u64(rd, "kv_bytes");
    model->long_prompt = weft_msgpack_read_u32(rd, "long_prompt", UINT32_MAX);
    model->window = weft_msgpack_read_u32(rd, "window", WEFT_CONTEXT_MAX);
    model->n_window_blocks = weft_msgpack_read_u32(rd, "n_window_blocks", WEFT_KV_BLOCKS_MAX);
    if ((model->window > 0) != (model->n_window_blocks > 0))
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "n_window_blocks", "is %u for a window of %u",
                                 model->n_window_blocks, model->window);
    model->n_spill_blocks = weft_msgpack_read_u32(rd, "n_spill_blocks", WEFT_KV_BLOCKS_MAX);
    if (model->window > 0 && model->n_spill_blocks > 0)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "n_spill_blocks", "is %u for a window of %u",
                                 model->n_spill_blocks, model->window);
    model->n_hidden = weft_msgpack_read_u32(rd, "n_hidden", WEFT_HIDDEN_MAX);
    model->n_labels = weft_msgpack_read_u32(rd, "n_labels", WEFT_HIDDEN_MAX);
    model->is_encoder = weft_msgpack_read_bool(rd, "is_encoder");
    if (model->is_encoder &&
        (model->max_model_len > model->max_batched_tokens || model->window > 0))
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "is_encoder",
                                 "is true for texts of %u tokens, steps of %u and a window of %u",
                                 model->max_model_len, model->max_batched_tokens, model->window);
    model->has_contrast = weft_msgpack_read_bool(rd, "has_contrast");
    model->is_recurrent = weft_msgpack_read_bool(rd, "is_recurrent");
    if (model->is_recurrent &&
        (model->is_encoder || model->has_contrast || model->n_spill_blocks > 0))
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "is_recurrent",
                                 "is true for an encoder, contrastive search or %u spilled blocks",
                                 model->n_spill_blocks);
    model->n_checkpoints = weft_msgpack_read_u32(rd, "n_checkpoints", WEFT_STATE_CHECKPOINTS_MAX);
    if (!model->is_recurrent && model->n_checkpoints > 0)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "n_checkpoints", "is %u without states",
                                 model->n_checkpoints);
    weft_msgpack_read_close(rd, "model", n_more);
}

static void read_grammar(weft_proto_decoder *dec, struct weft_grammar *out) {
    struct weft_msgpack_reader *rd = &dec->rd;
    weft_grammar_init(out);
    if (weft_msgpack_read_nil(rd)) return;
    uint32_t n_more = weft_msgpack_read_open(rd, "grammar", WEFTI_PROTO_F_GRAMMAR);
    out->kind = (enum weft_grammar_kind)read_enum(rd, "kind", WEFT_GRAMMAR_COUNT);
    if (out->kind == WEFT_GRAMMAR_NONE)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "kind", "of a grammar is none");
    out->thinking = (enum weft_grammar_thinking)read_enum(rd, "thinking", WEFT_THINKING_COUNT);
    out->marks = (enum weft_grammar_marks)read_enum(rd, "marks", WEFT_MARKS_COUNT);
    out->json_blanks = weft_msgpack_read_u32(rd, "json_blanks", WEFT_GRAMMAR_BLANKS_MAX);
    out->json_digits = read_count(rd, "json_digits", WEFT_GRAMMAR_DIGITS_MAX);
    out->text = weft_msgpack_read_bin(rd, "text", 1, WEFT_GRAMMAR_BYTES_MAX, &out->n_bytes);
    weft_msgpack_read_close(rd, "grammar", n_more);
}

static void read_sampling(weft_proto_decoder *dec, struct weft_sampling *out) {
    struct weft_msgpack_reader *rd = &dec->rd;
    uint32_t n_more = weft_msgpack_read_open(rd, "sampling", WEFTI_PROTO_F_SAMPLING);
#define READ_U64(field) weft_msgpack_read_u64(rd, field)
#define READ_U32(field) weft_msgpack_read_u32(rd, field, UINT32_MAX)
#define READ_I32(field) (int32_t) weft_msgpack_read_u32(rd, field, WEFT_CONTEXT_MAX + 1) - 1
#define READ_F32(field) weft_msgpack_read_f32(rd, field)
#define READ_COUNT(field) (int32_t) weft_msgpack_read_u32(rd, field, WEFT_VOCAB_MAX + 1) - 1
#define READ(type, name, ...) out->name = READ_##type(#name);
    WEFT_SAMPLING_LIST(READ, READ)
#undef READ
#undef READ_COUNT
#undef READ_F32
#undef READ_I32
#undef READ_U32
#undef READ_U64
    out->stop_tokens = read_tokens(dec, "stop_tokens", WEFT_STOP_TOKENS_MAX, &out->n_stop_tokens);
    out->bias = read_vector(dec, "bias", sizeof *out->bias, WEFT_LOGIT_BIAS_MAX, &out->n_bias);
    out->masked_tokens =
        read_tokens(dec, "masked_tokens", WEFT_STOP_TOKENS_MAX, &out->n_masked_tokens);
    out->allowed_tokens =
        read_tokens(dec, "allowed_tokens", WEFT_ALLOWED_TOKENS_MAX, &out->n_allowed_tokens);
    out->bad_words = read_tokens(dec, "bad_words", WEFT_BAD_WORDS_MAX, &out->n_bad_words);
    out->dry_breakers =
        read_tokens(dec, "dry_breakers", WEFT_DRY_BREAKERS_MAX, &out->n_dry_breakers);
    read_grammar(dec, &out->grammar);
    weft_msgpack_read_close(rd, "sampling", n_more);
    if (rd->err) return;
    struct weft_errmsg why;
    if (weft_sampling_check(out, WEFT_VOCAB_MAX, &why) != WEFT_OK)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "sampling", "%s", why.text);
}

static void read_pooling(weft_proto_decoder *dec, const struct weft_sampling *sampling,
                         uint32_t n_prompt, struct weft_pooling *out) {
    struct weft_msgpack_reader *rd = &dec->rd;
    out->kind = (enum weft_pooling_kind)read_enum(rd, "pooling", WEFT_POOLING_COUNT);
    const void *ids =
        weft_msgpack_read_bin(rd, "ids", sizeof *out->ids, WEFT_POOLING_IDS_MAX, &out->n_ids);
    if (out->n_ids > 0) memcpy(out->ids, ids, out->n_ids * sizeof *out->ids);
    out->n_first = weft_msgpack_read_u32(rd, "n_first", WEFT_CONTEXT_MAX);
    struct weft_errmsg why;
    if (!rd->err && weft_pooling_check(out, sampling, n_prompt, WEFT_VOCAB_MAX, &why) != WEFT_OK)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "pooling", "%s", why.text);
}

/* They come with an end, and no token. */
static const float *read_values(weft_proto_decoder *dec, bool may_be, uint32_t *n_out) {
    const float *values = read_vector(dec, "values", sizeof *values, WEFT_HIDDEN_MAX, n_out);
    if (*n_out > 0 && !may_be)
        weft_msgpack_reader_fail(&dec->rd, WEFT_E_PROTO, "values", "come with a token, or no end");
    return values;
}

/* Of Mirostat or adaptive-p: any number that is one. */
static double read_state(struct weft_msgpack_reader *rd) {
    double state;
    uint64_t bits = weft_msgpack_read_u64(rd, "sampler_state");
    memcpy(&state, &bits, sizeof state);
    if (isfinite(state)) return state;
    weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "sampler_state", "is no number");
    return 0.0;
}

/* Up to `n_max` entries, see put_logprobs; nil: none. */
static const struct weft_logprobs *read_logprobs(weft_proto_decoder *dec, const char *field,
                                                 uint32_t n_max, uint32_t *n_out) {
    struct weft_msgpack_reader *rd = &dec->rd;
    *n_out = 0;
    if (weft_msgpack_read_nil(rd)) return NULL;
    uint32_t n, n_ids, n_values, n_more = weft_msgpack_read_open(rd, field, WEFTI_PROTO_F_LOGPROBS);
    const uint8_t *heads =
        weft_msgpack_read_bin(rd, field, sizeof(struct wefti_proto_logprob_head), n_max, &n);
    const uint32_t *ids = read_tokens(dec, field, WEFTI_PROTO_LOGPROBS_MAX, &n_ids);
    const float *values =
        read_vector(dec, field, sizeof *values, WEFTI_PROTO_LOGPROBS_MAX, &n_values);
    weft_msgpack_read_close(rd, field, n_more);
    if (n_ids != n_values || n == 0)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "has %u entries, %u ids and %u values", n,
                                 n_ids, n_values);
    struct weft_logprobs *entries = take(dec, field, n, sizeof *entries);
    if (!entries) return NULL;

    uint32_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct wefti_proto_logprob_head head;
        memcpy(&head, heads + i * sizeof head, sizeof head);
        if (head.n_top > n_ids - used || head.rank == 0 || head.rank > WEFT_VOCAB_MAX) {
            weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field,
                                     "entry %u: %u best of %u left, rank %u", i, head.n_top,
                                     n_ids - used, head.rank);
            return NULL;
        }
        entries[i] = (struct weft_logprobs){.logprob = head.logprob,
                                            .rank = head.rank,
                                            .n_top = head.n_top,
                                            .top_ids = ids + used,
                                            .top_logprobs = values + used};
        used += head.n_top;
    }
    if (used != n_ids)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "has %u ids, its entries use %u", n_ids,
                                 used);
    *n_out = n;
    return entries;
}

/* Reads the sampled token's own; it has some exactly if *has_out. */
static void read_own_logprobs(weft_proto_decoder *dec, bool sampled, bool *has_out,
                              struct weft_logprobs *out) {
    uint32_t n;
    const struct weft_logprobs *entries = read_logprobs(dec, "logprobs", 1, &n);
    *has_out = n == 1;
    if (n == 1) *out = entries[0];
    if (n == 1 && !sampled)
        weft_msgpack_reader_fail(&dec->rd, WEFT_E_PROTO, "logprobs", "come without a token");
}

static const struct weft_logprobs *read_prompt_logprobs(weft_proto_decoder *dec, uint32_t *pos_out,
                                                        uint32_t *n_out) {
    *pos_out = weft_msgpack_read_u32(&dec->rd, "prompt_pos", WEFT_CONTEXT_MAX);
    return read_logprobs(dec, "prompt_logprobs", WEFT_CONTEXT_MAX - *pos_out, n_out);
}

static uint32_t read_flags(struct weft_msgpack_reader *rd, uint32_t known) {
    uint32_t flags = weft_msgpack_read_u32(rd, "flags", UINT32_MAX);
    if (flags & ~known)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "flags", "has unknown bits: 0x%x",
                                 flags & ~known);
    return flags;
}

/* ----------------------------------------------------------------------- router, scheduler --- */

static void read_adapters(weft_proto_decoder *dec, const struct weft_step_adapter **out,
                          uint32_t *n_out) {
    *out = read_vector(dec, "adapters", sizeof **out, WEFT_SEQ_ADAPTERS_MAX, n_out);
    for (uint32_t i = 0; i < *n_out; i++) {
        if (!isfinite((*out)[i].scale) || (*out)[i].zero != 0)
            weft_msgpack_reader_fail(&dec->rd, WEFT_E_PROTO, "adapters", "has no strength");
    }
}

static void read_digest(struct weft_msgpack_reader *rd, const char *field,
                        struct weft_digest *digest) {
    digest->hi = weft_msgpack_read_u64(rd, field);
    digest->lo = weft_msgpack_read_u64(rd, field);
}

static void read_choices(weft_proto_decoder *dec, struct weft_submit *submit) {
    struct weft_msgpack_reader *rd = &dec->rd;
    submit->n_choices =
        weft_msgpack_read_list(rd, "choices", WEFTI_PROTO_F_CHOICE, WEFT_CHOICES_MAX);
    if (submit->n_choices == 0) weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "choices", "is empty");
    struct weft_submit_choice *choices = take(dec, "choices", submit->n_choices, sizeof *choices);
    for (uint32_t i = 0; i < submit->n_choices && !rd->err; i++) {
        uint32_t n_more = weft_msgpack_read_open(rd, "choice", WEFTI_PROTO_F_CHOICE);
        choices[i].output = read_tokens(dec, "output", WEFT_CONTEXT_MAX, &choices[i].n_output);
        choices[i].finished = weft_msgpack_read_bool(rd, "finished");
        choices[i].sampler_state = read_state(rd);
        weft_msgpack_read_close(rd, "choice", n_more);
    }
    weft_msgpack_read_close(rd, "choices", 0);
    submit->choices = choices;
}

static void check_submit(struct weft_msgpack_reader *rd, const struct weft_submit *submit) {
    if (rd->err) return;
    if (submit->n_prompt_logprobs_done > submit->n_prompt)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "n_prompt_logprobs_done",
                                 "is %u, the prompt has %u", submit->n_prompt_logprobs_done,
                                 submit->n_prompt);
    for (uint32_t i = 0; i < submit->n_choices; i++) {
        const struct weft_submit_choice *choice = &submit->choices[i];
        if (!submit->resume && (choice->n_output > 0 || choice->finished))
            weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "output", "of choice %u in a fresh request",
                                     i);
        if (choice->n_output > submit->sampling.max_tokens)
            weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "output", "has %u tokens, max_tokens is %u",
                                     choice->n_output, submit->sampling.max_tokens);
        if (choice->n_output > WEFT_CONTEXT_MAX - submit->n_prompt)
            weft_msgpack_reader_fail(rd, WEFT_E_TOOBIG, "output", "and prompt have over %u tokens",
                                     WEFT_CONTEXT_MAX);
    }
}

/* A time that a client wishes for. */
static uint64_t read_wish(struct weft_msgpack_reader *rd, const char *field) {
    uint64_t us = weft_msgpack_read_u64(rd, field);
    if (us <= WEFT_SLO_US_MAX) return us;
    weft_msgpack_reader_fail(rd, WEFT_E_TOOBIG, field, "is %llu, at most %llu is allowed",
                             (unsigned long long)us, WEFT_SLO_US_MAX);
    return 0;
}

static void read_submit(weft_proto_decoder *dec, struct weft_submit *submit) {
    struct weft_msgpack_reader *rd = &dec->rd;
    submit->request_id = weft_msgpack_read_u64(rd, "request_id");
    submit->attempt = weft_msgpack_read_u32(rd, "attempt", UINT32_MAX);
    submit->resume = weft_msgpack_read_bool(rd, "resume");
    submit->prompt = read_tokens(dec, "prompt", WEFT_CONTEXT_MAX, &submit->n_prompt);
    if (submit->n_prompt == 0) weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "prompt", "is empty");
    read_choices(dec, submit);
    submit->n_prompt_logprobs_done =
        weft_msgpack_read_u32(rd, "n_prompt_logprobs_done", WEFT_CONTEXT_MAX);
    submit->age_us = weft_msgpack_read_u64(rd, "age_us");
    submit->deadline_us = weft_msgpack_read_u64(rd, "deadline_us");
    read_sampling(dec, &submit->sampling);
    submit->priority = weft_msgpack_read_i32(rd, "priority");
    submit->ttft_us = read_wish(rd, "ttft_us");
    submit->tpot_us = read_wish(rd, "tpot_us");
    submit->tenant = weft_msgpack_read_u64(rd, "tenant");
    submit->flow = weft_msgpack_read_u64(rd, "flow");
    submit->weight = read_count(rd, "weight", WEFT_WEIGHT_MAX);
    read_digest(rd, "cache_salt", &submit->cache_salt);
    read_pooling(dec, &submit->sampling, submit->n_prompt, &submit->pooling);
    submit->no_guesses = weft_msgpack_read_bool(rd, "no_guesses");
    submit->session_id = read_str(rd, "session_id", WEFT_SESSION_ID_BYTES_MAX);
    read_adapters(dec, &submit->adapters, &submit->n_adapters);
    submit->shifts = weft_msgpack_read_bool(rd, "shifts");
    submit->n_keep = weft_msgpack_read_u32(rd, "n_keep", WEFT_CONTEXT_MAX);
    check_submit(rd, submit);
}

static void read_cancel(struct weft_msgpack_reader *rd, struct weft_msg_cancel *cancel) {
    cancel->request_id = weft_msgpack_read_u64(rd, "request_id");
    cancel->attempt = weft_msgpack_read_u32(rd, "attempt", UINT32_MAX);
    cancel->choice = weft_msgpack_read_u32(rd, "choice", UINT32_MAX);
    if (cancel->choice >= WEFT_CHOICES_MAX && cancel->choice != UINT32_MAX)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "choice", "is %u, at most %d are allowed",
                                 cancel->choice, WEFT_CHOICES_MAX);
}

/* For people: terminated. */
static const char *read_sentence(weft_proto_decoder *dec) {
    size_t len;
    const char *text = weft_msgpack_read_str(&dec->rd, "text", WEFTI_PROTO_TEXT_BYTES_MAX, &len);
    char *copy = take(dec, "text", len + 1, 1); /* zeroed */
    if (copy && len > 0) memcpy(copy, text, len);
    return copy;
}

static void read_rejected(weft_proto_decoder *dec, struct weft_rejection *rejected) {
    struct weft_msgpack_reader *rd = &dec->rd;
    rejected->request_id = weft_msgpack_read_u64(rd, "request_id");
    rejected->attempt = weft_msgpack_read_u32(rd, "attempt", UINT32_MAX);
    rejected->reason = (enum weft_reject)read_enum(rd, "reason", WEFT_REJECT_COUNT);
    if (rejected->reason == WEFT_REJECT_NONE)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "reason", "is none");
    rejected->retry_after_ms = weft_msgpack_read_u32(rd, "retry_after_ms", UINT32_MAX);
    rejected->text = read_sentence(dec);
}

static void read_event(weft_proto_decoder *dec, struct weft_event *event) {
    struct weft_msgpack_reader *rd = &dec->rd;
    uint32_t n_more = weft_msgpack_read_open(rd, "event", WEFTI_PROTO_F_EVENT);
    event->request_id = weft_msgpack_read_u64(rd, "request_id");
    event->attempt = weft_msgpack_read_u32(rd, "attempt", UINT32_MAX);
    event->choice = weft_msgpack_read_u32(rd, "choice", WEFT_CHOICES_MAX - 1);
    event->sampled = read_flags(rd, WEFTI_PROTO_FLAG_SAMPLED) != 0;
    event->token = weft_msgpack_read_u32(rd, "token", WEFT_VOCAB_MAX - 1);
    event->output_idx = weft_msgpack_read_u32(rd, "output_idx", WEFT_CONTEXT_MAX);
    event->end = read_end(rd, "end", WEFT_END_BY_SCHEDULER);
    read_own_logprobs(dec, event->sampled, &event->has_logprobs, &event->logprobs);
    event->prompt_logprobs =
        read_prompt_logprobs(dec, &event->prompt_pos, &event->n_prompt_logprobs);
    event->n_prompt_cached = weft_msgpack_read_u32(rd, "n_prompt_cached", WEFT_CONTEXT_MAX);
    event->queued_us = weft_msgpack_read_u64(rd, "queued_us");
    event->values = read_values(dec, !event->sampled && event->end, &event->n_values);
    event->sampler_state = read_state(rd);
    weft_msgpack_read_close(rd, "event", n_more);
}

static void read_events(weft_proto_decoder *dec, struct weft_msg_events *out) {
    struct weft_msgpack_reader *rd = &dec->rd;
    out->n = weft_msgpack_read_list(rd, "events", WEFTI_PROTO_F_EVENT, WEFTI_PROTO_EVENTS_MAX);
    struct weft_event *events = take(dec, "events", out->n, sizeof *events);
    for (uint32_t i = 0; i < out->n && !rd->err; i++)
        read_event(dec, &events[i]);
    weft_msgpack_read_close(rd, "events", 0);
    out->events = events;
}

static void read_counters(struct weft_msgpack_reader *rd, struct weft_msg_snapshot *snap) {
#define ADDRESS(name, ...) &snap->name,
    uint64_t *const counters[] = {WEFT_COUNTER_LIST(ADDRESS, ADDRESS)};
#undef ADDRESS
    uint32_t n;
    const uint8_t *values =
        weft_msgpack_read_bin(rd, "counters", sizeof *counters[0], WEFTI_PROTO_COUNTERS_MAX, &n);
    for (uint32_t i = 0; i < n && i < WEFT_COUNTERS; i++)
        memcpy(counters[i], values + i * sizeof *counters[0], sizeof *counters[0]);
    const void *buckets =
        weft_msgpack_read_bin(rd, "iter_tokens", sizeof *snap->iter_tokens, WEFT_ITER_BUCKETS, &n);
    if (n != WEFT_ITER_BUCKETS)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "iter_tokens", "has %u buckets, not %d", n,
                                 WEFT_ITER_BUCKETS);
    else
        memcpy(snap->iter_tokens, buckets, sizeof snap->iter_tokens);
}

static void read_ranks(struct weft_msgpack_reader *rd, struct weft_msg_snapshot *snap) {
    const void *ranks = weft_msgpack_read_bin(rd, "ranks", sizeof *snap->ranks, WEFT_RANKS_TOLD_MAX,
                                              &snap->n_ranks);
    if (snap->n_ranks > 0) memcpy(snap->ranks, ranks, snap->n_ranks * sizeof *snap->ranks);
    for (uint32_t i = 0; i < snap->n_ranks; i++) {
        const struct weft_rank_told *told = &snap->ranks[i];
        if (told->group >= snap->n_workers || told->rank >= WEFT_RANKS_MAX)
            weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "ranks",
                                     "name one of a group that is not there");
    }
}

static void read_heartbeat(struct weft_msgpack_reader *rd, struct weft_msg_heartbeat *beat) {
    beat->progress = weft_msgpack_read_u64(rd, "progress");
    beat->busy = weft_msgpack_read_bool(rd, "busy");
    const void *ranks =
        weft_msgpack_read_bin(rd, "ranks", sizeof *beat->ranks, WEFT_RANKS_MAX, &beat->n_ranks);
    if (beat->n_ranks > 0) memcpy(beat->ranks, ranks, beat->n_ranks * sizeof *beat->ranks);
}

static void read_activity_step(struct weft_msgpack_reader *rd, struct weft_activity_step *step) {
    uint32_t n_more = weft_msgpack_read_open(rd, "step", WEFTI_PROTO_F_ACTIVITY_STEP);
    step->step = weft_msgpack_read_u64(rd, "step");
    step->age_us = weft_msgpack_read_u64(rd, "age_us");
    step->busy_us = weft_msgpack_read_u32(rd, "busy_us", UINT32_MAX);
    step->n_prompt_tokens = weft_msgpack_read_u32(rd, "n_prompt_tokens", WEFT_BATCHED_TOKENS_MAX);
    step->n_decode_tokens = weft_msgpack_read_u32(rd, "n_decode_tokens", WEFT_BATCHED_TOKENS_MAX);
    step->n_seqs = weft_msgpack_read_u32(rd, "n_seqs", WEFT_SEQS_MAX);
    step->group = weft_msgpack_read_u32(rd, "group", WEFT_WORKERS_MAX - 1);
    weft_msgpack_read_close(rd, "step", n_more);
}

static void read_activity_seq(struct weft_msgpack_reader *rd, struct weft_activity_seq *seq) {
    uint32_t n_more = weft_msgpack_read_open(rd, "sequence", WEFTI_PROTO_F_ACTIVITY_SEQ);
    seq->request_id = weft_msgpack_read_u64(rd, "request_id");
    seq->age_us = weft_msgpack_read_u64(rd, "age_us");
    seq->router = weft_msgpack_read_u32(rd, "router", UINT32_MAX);
    seq->choice = weft_msgpack_read_u32(rd, "choice", WEFT_CHOICES_MAX - 1);
    seq->phase = (enum weft_activity_phase)read_enum(rd, "phase", WEFT_ACTIVITY_PHASE_COUNT);
    seq->n_prompt = weft_msgpack_read_u32(rd, "n_prompt", WEFT_CONTEXT_MAX);
    seq->n_prompt_done = weft_msgpack_read_u32(rd, "n_prompt_done", WEFT_CONTEXT_MAX);
    seq->n_output = weft_msgpack_read_u32(rd, "n_output", WEFT_CONTEXT_MAX);
    seq->max_tokens = weft_msgpack_read_u32(rd, "max_tokens", UINT32_MAX);
    seq->n_blocks = weft_msgpack_read_u32(rd, "n_blocks", WEFT_KV_BLOCKS_MAX);
    seq->group = weft_msgpack_read_u32(rd, "group", WEFT_WORKERS_MAX - 1);
    weft_msgpack_read_close(rd, "sequence", n_more);
    if (seq->n_prompt_done > seq->n_prompt)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "n_prompt_done", "is %u of %u",
                                 seq->n_prompt_done, seq->n_prompt);
}

static void read_activity(weft_proto_decoder *dec, struct weft_activity *activity) {
    struct weft_msgpack_reader *rd = &dec->rd;
    activity->n_steps =
        weft_msgpack_read_list(rd, "steps", WEFTI_PROTO_F_ACTIVITY_STEP, WEFT_ACTIVITY_STEPS_MAX);
    struct weft_activity_step *steps = take(dec, "steps", activity->n_steps, sizeof *steps);
    for (uint32_t i = 0; i < activity->n_steps && !rd->err; i++)
        read_activity_step(rd, &steps[i]);
    weft_msgpack_read_close(rd, "steps", 0);
    activity->n_seqs =
        weft_msgpack_read_list(rd, "sequences", WEFTI_PROTO_F_ACTIVITY_SEQ, WEFT_ACTIVITY_SEQS_MAX);
    struct weft_activity_seq *seqs = take(dec, "sequences", activity->n_seqs, sizeof *seqs);
    for (uint32_t i = 0; i < activity->n_seqs && !rd->err; i++)
        read_activity_seq(rd, &seqs[i]);
    weft_msgpack_read_close(rd, "sequences", 0);
    activity->n_seqs_omitted = weft_msgpack_read_u32(rd, "n_seqs_omitted", UINT32_MAX);
    activity->router = weft_msgpack_read_u32(rd, "router", UINT32_MAX);
    activity->steps = steps;
    activity->seqs = seqs;
}

static void read_snapshot(struct weft_msgpack_reader *rd, struct weft_msg_snapshot *snap) {
    snap->serving = weft_msgpack_read_bool(rd, "serving");
    snap->advancing = weft_msgpack_read_bool(rd, "advancing");
    snap->draining = weft_msgpack_read_bool(rd, "draining");
    snap->has_model = !weft_msgpack_read_nil(rd);
    if (snap->has_model) read_model(rd, &snap->model);
    snap->n_waiting = weft_msgpack_read_u32(rd, "n_waiting", UINT32_MAX);
    snap->n_running = weft_msgpack_read_u32(rd, "n_running", UINT32_MAX);
    snap->n_blocks = weft_msgpack_read_u32(rd, "n_blocks", WEFT_KV_BLOCKS_MAX * WEFT_WORKERS_MAX);
    snap->n_blocks_free =
        weft_msgpack_read_u32(rd, "n_blocks_free", WEFT_KV_BLOCKS_MAX * WEFT_WORKERS_MAX);
    snap->n_blocks_cached =
        weft_msgpack_read_u32(rd, "n_blocks_cached", WEFT_KV_BLOCKS_MAX * WEFT_WORKERS_MAX);
    snap->n_window_blocks =
        weft_msgpack_read_u32(rd, "n_window_blocks", WEFT_KV_BLOCKS_MAX * WEFT_WORKERS_MAX);
    snap->n_window_blocks_free =
        weft_msgpack_read_u32(rd, "n_window_blocks_free", WEFT_KV_BLOCKS_MAX * WEFT_WORKERS_MAX);
    snap->max_queue = weft_msgpack_read_u32(rd, "max_queue", WEFT_QUEUE_MAX);
    read_counters(rd, snap);
    snap->sched_resident_bytes = weft_msgpack_read_u64(rd, "sched_resident_bytes");
    snap->worker_resident_bytes = weft_msgpack_read_u64(rd, "worker_resident_bytes");
    snap->sched_pid = weft_msgpack_read_u32(rd, "sched_pid", UINT32_MAX);
    snap->n_workers = weft_msgpack_read_u32(rd, "n_workers", WEFT_WORKERS_MAX);
    snap->n_workers_serving = weft_msgpack_read_u32(rd, "n_workers_serving", WEFT_WORKERS_MAX);
    snap->spill_bytes = weft_msgpack_read_u64(rd, "spill_bytes");
    read_ranks(rd, snap);
    snap->n_sessions = weft_msgpack_read_u32(rd, "n_sessions", UINT32_MAX);
    snap->n_session_blocks = weft_msgpack_read_u32(rd, "n_session_blocks", UINT32_MAX);
    snap->n_checkpoints_held = weft_msgpack_read_u32(rd, "n_checkpoints_held", UINT32_MAX);
    if (snap->n_blocks_free > snap->n_blocks)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "n_blocks_free", "is %u of %u",
                                 snap->n_blocks_free, snap->n_blocks);
    if (snap->n_window_blocks_free > snap->n_window_blocks)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "n_window_blocks_free", "is %u of %u",
                                 snap->n_window_blocks_free, snap->n_window_blocks);
    if (snap->n_blocks_cached > snap->n_blocks)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "n_blocks_cached", "is %u of %u",
                                 snap->n_blocks_cached, snap->n_blocks);
    if (snap->n_workers_serving > snap->n_workers)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "n_workers_serving", "is %u of %u",
                                 snap->n_workers_serving, snap->n_workers);
}

/* ----------------------------------------------------------------------- scheduler, worker --- */

static void read_start(weft_proto_decoder *dec, struct weft_step_start *start) {
    struct weft_msgpack_reader *rd = &dec->rd;
    uint32_t n_more = weft_msgpack_read_open(rd, "start", WEFTI_PROTO_F_START);
    start->slot = read_slot(rd);
    start->gen = weft_msgpack_read_u32(rd, "gen", UINT32_MAX);
    start->choice = weft_msgpack_read_u32(rd, "choice", WEFT_CHOICES_MAX - 1);
    start->tokens = read_tokens(dec, "tokens", WEFT_CONTEXT_MAX, &start->n_tokens);
    start->n_prompt = read_count(rd, "n_prompt", WEFT_CONTEXT_MAX);
    start->n_cached = weft_msgpack_read_u32(rd, "n_cached", WEFT_CONTEXT_MAX);
    start->n_prompt_logprobs_done =
        weft_msgpack_read_u32(rd, "n_prompt_logprobs_done", WEFT_CONTEXT_MAX);
    read_sampling(dec, &start->sampling);
    start->n_window_skipped = weft_msgpack_read_u32(rd, "n_window_skipped", WEFT_CONTEXT_MAX);
    read_pooling(dec, &start->sampling, start->n_prompt, &start->pooling);
    start->sampler_state = read_state(rd);
    read_adapters(dec, &start->adapters, &start->n_adapters);
    start->n_keep = weft_msgpack_read_u32(rd, "n_keep", WEFT_CONTEXT_MAX);
    start->n_dropped = weft_msgpack_read_u32(rd, "n_dropped", WEFT_CONTEXT_MAX);
    start->n_written = weft_msgpack_read_u32(rd, "n_written", WEFT_CONTEXT_MAX);
    weft_msgpack_read_close(rd, "start", n_more);
    uint32_t n_gone = weft_min_u32(start->n_dropped, start->n_tokens);
    if (start->n_tokens - n_gone <= start->n_keep)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "start",
                                 "drops %u of %u tokens from the %u-th on, the last one too",
                                 start->n_dropped, start->n_tokens, start->n_keep);
    if (start->n_tokens < start->n_prompt || start->n_cached >= start->n_tokens - n_gone ||
        start->n_prompt_logprobs_done > start->n_prompt)
        weft_msgpack_reader_fail(
            rd, WEFT_E_PROTO, "start", "has %u tokens, a prompt of %u, %u cached and %u told",
            start->n_tokens, start->n_prompt, start->n_cached, start->n_prompt_logprobs_done);
    if (start->n_written < start->n_cached || start->n_written > start->n_tokens - n_gone)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "start",
                                 "has %u of %u tokens written, %u cached", start->n_written,
                                 start->n_tokens - n_gone, start->n_cached);
}

static void read_starts(weft_proto_decoder *dec, struct weft_step_plan *plan) {
    struct weft_msgpack_reader *rd = &dec->rd;
    plan->n_starts =
        weft_msgpack_read_list(rd, "starts", WEFTI_PROTO_START_BYTES_MIN, WEFT_SEQS_MAX);
    struct weft_step_start *starts = take(dec, "starts", plan->n_starts, sizeof *starts);
    for (uint32_t i = 0; i < plan->n_starts && !rd->err; i++)
        read_start(dec, &starts[i]);
    weft_msgpack_read_close(rd, "starts", 0);
    plan->starts = starts;
}

static void check_kind(struct weft_msgpack_reader *rd, const char *field, uint32_t kind) {
    if (kind >= WEFT_KV_KINDS)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "blocks of kind %u", kind);
}

static void read_grants(weft_proto_decoder *dec, struct weft_step_plan *plan) {
    struct weft_msgpack_reader *rd = &dec->rd;
    uint32_t n, n_blocks, used = 0;
    const uint8_t *heads = weft_msgpack_read_bin(
        rd, "grants", sizeof(struct wefti_proto_grant_head), WEFTI_PROTO_GRANTS_MAX, &n);
    const uint32_t *blocks =
        read_ids(dec, "blocks", WEFT_KV_BLOCKS_MAX, WEFT_KV_BLOCKS_MAX, &n_blocks);
    struct weft_step_grant *grants = take(dec, "grants", n, sizeof *grants);
    for (uint32_t i = 0; i < n && !rd->err; i++) {
        struct wefti_proto_grant_head head;
        memcpy(&head, heads + i * sizeof head, sizeof head);
        check_slot(rd, "grants", head.slot);
        if (head.n_blocks == 0 || head.n_blocks > n_blocks - used) {
            weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "grants",
                                     "entry %u wants %u blocks of %u left", i, head.n_blocks,
                                     n_blocks - used);
            return;
        }
        check_kind(rd, "grants", head.kind);
        grants[i] =
            (struct weft_step_grant){head.slot, head.gen, head.kind, head.n_blocks, blocks + used};
        used += head.n_blocks;
    }
    if (used != n_blocks)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "blocks", "has %u, the grants use %u", n_blocks,
                                 used);
    plan->grants = grants;
    plan->n_grants = n;
}

static void check_copies(struct weft_msgpack_reader *rd, const struct weft_step_plan *plan) {
    for (uint32_t i = 0; i < plan->n_copies; i++) {
        const struct weft_step_copy *copy = &plan->copies[i];
        check_kind(rd, "copies", copy->kind);
        if (copy->from >= WEFT_KV_BLOCKS_MAX || copy->to >= WEFT_KV_BLOCKS_MAX ||
            copy->from == copy->to)
            weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "copies", "entry %u copies block %u to %u",
                                     i, copy->from, copy->to);
    }
}

static void check_rows(struct weft_msgpack_reader *rd, const struct weft_step_plan *plan) {
    uint32_t n_tokens = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct weft_step_row *row = &plan->rows[i];
        check_slot(rd, "rows", row->slot);
        if (row->n_tokens == 0 || row->n_tokens > WEFT_BATCHED_TOKENS_MAX - n_tokens) {
            weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "rows",
                                     "entry %u has %u tokens after %u before it", i, row->n_tokens,
                                     n_tokens);
            return;
        }
        if (row->n_spec > WEFT_SPEC_TOKENS_MAX)
            weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "rows", "entry %u wants %u guesses", i,
                                     row->n_spec);
        n_tokens += row->n_tokens;
    }
}

static const struct weft_step_spill *read_spills(weft_proto_decoder *dec, const char *field,
                                                 uint32_t *n_out) {
    const struct weft_step_spill *spills =
        read_vector(dec, field, sizeof *spills, WEFT_STEP_SPILLS_MAX, n_out);
    for (uint32_t i = 0; i < *n_out; i++) {
        if (spills[i].block >= WEFT_KV_BLOCKS_MAX || spills[i].slot >= WEFT_KV_BLOCKS_MAX)
            weft_msgpack_reader_fail(&dec->rd, WEFT_E_PROTO, field, "entry %u: block %u, slot %u",
                                     i, spills[i].block, spills[i].slot);
    }
    return spills;
}

static void read_states(weft_proto_decoder *dec, struct weft_step_plan *plan) {
    const struct weft_step_state *states =
        read_vector(dec, "states", sizeof *states, 2 * WEFT_SEQS_MAX, &plan->n_states);
    for (uint32_t i = 0; i < plan->n_states; i++) {
        uint32_t n_others =
            states[i].op == WEFT_STATE_FORK ? WEFT_SEQS_MAX : WEFT_STATE_CHECKPOINTS_MAX;
        check_slot(&dec->rd, "states", states[i].slot);
        if (states[i].op >= WEFT_STATE_OPS || states[i].other >= n_others)
            weft_msgpack_reader_fail(&dec->rd, WEFT_E_PROTO, "states", "entry %u: kind %u, of %u",
                                     i, states[i].op, states[i].other);
    }
    plan->states = states;
}

static void read_plan(weft_proto_decoder *dec, struct weft_step_plan *plan) {
    struct weft_msgpack_reader *rd = &dec->rd;
    plan->epoch = weft_msgpack_read_u64(rd, "epoch");
    plan->step = weft_msgpack_read_u64(rd, "step");
    plan->releases =
        read_vector(dec, "releases", sizeof *plan->releases, WEFT_SEQS_MAX, &plan->n_releases);
    for (uint32_t i = 0; i < plan->n_releases; i++)
        check_slot(rd, "releases", plan->releases[i].slot);
    read_starts(dec, plan);
    plan->copies =
        read_vector(dec, "copies", sizeof *plan->copies, WEFT_KV_BLOCKS_MAX, &plan->n_copies);
    check_copies(rd, plan);
    read_grants(dec, plan);
    plan->rows = read_vector(dec, "rows", sizeof *plan->rows, WEFT_SEQS_MAX, &plan->n_rows);
    check_rows(rd, plan);
    plan->spills = read_spills(dec, "spills", &plan->n_spills);
    plan->restores = read_spills(dec, "restores", &plan->n_restores);
    read_states(dec, plan);
}

static void read_out(weft_proto_decoder *dec, struct weft_step_out *out) {
    struct weft_msgpack_reader *rd = &dec->rd;
    uint32_t n_more = weft_msgpack_read_open(rd, "out", WEFTI_PROTO_F_OUT);
    out->slot = read_slot(rd);
    out->gen = weft_msgpack_read_u32(rd, "gen", UINT32_MAX);
    uint32_t flags =
        read_flags(rd, WEFTI_PROTO_FLAG_RAN | WEFTI_PROTO_FLAG_SAMPLED | WEFTI_PROTO_FLAG_LATE);
    out->ran = (flags & WEFTI_PROTO_FLAG_RAN) != 0;
    out->is_late = (flags & WEFTI_PROTO_FLAG_LATE) != 0;
    out->sampled = (flags & WEFTI_PROTO_FLAG_SAMPLED) != 0;
    out->token = weft_msgpack_read_u32(rd, "token", WEFT_VOCAB_MAX - 1);
    out->output_idx = weft_msgpack_read_u32(rd, "output_idx", WEFT_CONTEXT_MAX);
    out->finish = read_end(rd, "finish", WEFT_END_BY_WORKER);
    read_own_logprobs(dec, out->sampled, &out->has_logprobs, &out->logprobs);
    out->prompt_logprobs = read_prompt_logprobs(dec, &out->prompt_pos, &out->n_prompt_logprobs);
    out->more = read_tokens(dec, "more", WEFT_MORE_MAX, &out->n_more);
    out->values = read_values(dec, out->ran && !out->sampled && out->finish, &out->n_values);
    out->sampler_state = read_state(rd);
    out->n_proposed = weft_msgpack_read_u32(rd, "n_proposed", WEFT_SPEC_TOKENS_MAX);
    out->n_accepted = weft_msgpack_read_u32(rd, "n_accepted", WEFT_SPEC_TOKENS_MAX);
    weft_msgpack_read_close(rd, "out", n_more);
    if (!out->ran && (out->sampled || out->is_late || out->n_prompt_logprobs > 0))
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "out", "of a row that did not run has results");
    if (out->sampled ? out->is_late : out->n_more > 0)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "out",
                                 "is late and sampled, or has but forced tokens");
    if (out->n_accepted > out->n_proposed || out->n_accepted > out->n_more ||
        (!out->ran && out->n_proposed > 0))
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "out",
                                 "has %u of %u guesses accepted, %u tokens", out->n_accepted,
                                 out->n_proposed, out->n_more);
}

static void read_result(weft_proto_decoder *dec, struct weft_step_result *result) {
    struct weft_msgpack_reader *rd = &dec->rd;
    result->epoch = weft_msgpack_read_u64(rd, "epoch");
    result->step = weft_msgpack_read_u64(rd, "step");
    result->busy_us = weft_msgpack_read_u32(rd, "busy_us", UINT32_MAX);
    result->idle_us = weft_msgpack_read_u32(rd, "idle_us", UINT32_MAX);
    result->n_tokens = weft_msgpack_read_u32(rd, "n_tokens", WEFT_BATCHED_TOKENS_MAX);
    result->n_outs = weft_msgpack_read_list(rd, "outs", WEFTI_PROTO_F_OUT, WEFT_SEQS_MAX);
    struct weft_step_out *outs = take(dec, "outs", result->n_outs, sizeof *outs);
    for (uint32_t i = 0; i < result->n_outs && !rd->err; i++)
        read_out(dec, &outs[i]);
    weft_msgpack_read_close(rd, "outs", 0);
    result->outs = outs;
    result->spill_us = weft_msgpack_read_u32(rd, "spill_us", UINT32_MAX);
    result->draft_us = weft_msgpack_read_u32(rd, "draft_us", UINT32_MAX);
    result->catch_up_us = weft_msgpack_read_u32(rd, "catch_up_us", UINT32_MAX);
    result->contrast_us = weft_msgpack_read_u32(rd, "contrast_us", UINT32_MAX);
}

static void read_experts(weft_proto_decoder *dec, struct weft_msg_experts *experts) {
    struct weft_msgpack_reader *rd = &dec->rd;
    uint32_t n_rows;
    experts->n_experts = read_count(rd, "n_experts", WEFT_EXPERTS_MAX);
    experts->layers = read_ids(dec, "layers", WEFT_LAYERS_MAX, WEFT_LAYERS_MAX, &experts->n_layers);
    experts->rows =
        read_vector(dec, "rows", sizeof *experts->rows, WEFT_EXPERT_SERIES_MAX, &n_rows);
    if (n_rows == 0 || n_rows != experts->n_layers * experts->n_experts)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "rows",
                                 "has %u numbers, of %u layers with %u experts", n_rows,
                                 experts->n_layers, experts->n_experts);
    for (uint32_t i = 1; i < experts->n_layers && !rd->err; i++) {
        if (experts->layers[i] <= experts->layers[i - 1])
            weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "layers", "has %u after %u",
                                     experts->layers[i], experts->layers[i - 1]);
    }
}

static void read_grammar_ahead(weft_proto_decoder *dec, struct weft_msg_grammar *msg) {
    struct weft_msgpack_reader *rd = &dec->rd;
    msg->epoch = weft_msgpack_read_u64(rd, "epoch");
    msg->id = weft_msgpack_read_u64(rd, "id");
    read_grammar(dec, &msg->grammar);
    if (msg->grammar.kind == WEFT_GRAMMAR_NONE)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "grammar", "is none");
}

/* -------------------------------------------------------------------------------- sessions --- */

static weft_err read_code(struct weft_msgpack_reader *rd) {
    return (weft_err)read_enum(rd, "err", WEFT_E_STATE + 1);
}

static void read_session(struct weft_msgpack_reader *rd, struct weft_session_wish *wish) {
    wish->id = weft_msgpack_read_u64(rd, "id");
    wish->op = (enum weft_session_op)read_enum(rd, "op", WEFT_SESSION_OP_COUNT);
    wish->tenant = weft_msgpack_read_u64(rd, "tenant");
    wish->session_id = read_str(rd, "session_id", WEFT_SESSION_ID_BYTES_MAX);
    wish->file = read_str(rd, "file", WEFT_SESSION_FILE_BYTES_MAX);
    bool has_file = wish->op == WEFT_SESSION_SAVE || wish->op == WEFT_SESSION_RESTORE;
    if ((wish->op == WEFT_SESSION_LIST) != (wish->session_id.len == 0) ||
        has_file != (wish->file.len > 0))
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "session_id", "and file do not go with op %d",
                                 (int)wish->op);
}

static void read_session_done(weft_proto_decoder *dec, struct weft_session_answer *answer) {
    struct weft_msgpack_reader *rd = &dec->rd;
    answer->id = weft_msgpack_read_u64(rd, "id");
    answer->err = read_code(rd);
    answer->text = read_sentence(dec);
    answer->n_tokens = weft_msgpack_read_u32(rd, "n_tokens", WEFT_CONTEXT_MAX);
    answer->n_bytes = weft_msgpack_read_u64(rd, "n_bytes");
    answer->n_told =
        weft_msgpack_read_list(rd, "sessions", WEFTI_PROTO_F_SESSION_TOLD, WEFT_SESSIONS_MAX);
    struct weft_session_told *told = take(dec, "sessions", answer->n_told, sizeof *told);
    for (uint32_t i = 0; i < answer->n_told && !rd->err; i++) {
        uint32_t n_more = weft_msgpack_read_open(rd, "session", WEFTI_PROTO_F_SESSION_TOLD);
        told[i].id = read_str(rd, "id", WEFT_SESSION_ID_BYTES_MAX);
        told[i].n_tokens = weft_msgpack_read_u32(rd, "n_tokens", WEFT_CONTEXT_MAX);
        told[i].n_blocks = weft_msgpack_read_u32(rd, "n_blocks", WEFT_KV_BLOCKS_MAX);
        told[i].idle_us = weft_msgpack_read_u64(rd, "idle_us");
        weft_msgpack_read_close(rd, "session", n_more);
    }
    weft_msgpack_read_close(rd, "sessions", 0);
    answer->told = told;
}

static void read_kv_file(weft_proto_decoder *dec, struct weft_kv_file *file) {
    struct weft_msgpack_reader *rd = &dec->rd;
    file->epoch = weft_msgpack_read_u64(rd, "epoch");
    file->id = weft_msgpack_read_u64(rd, "id");
    file->op = (enum weft_kv_file_op)read_enum(rd, "op", WEFT_KV_FILE_OP_COUNT);
    file->name = read_str(rd, "name", WEFT_SESSION_FILE_BYTES_MAX);
    file->tenant = weft_msgpack_read_u64(rd, "tenant");
    file->space_hi = weft_msgpack_read_u64(rd, "space_hi");
    file->space_lo = weft_msgpack_read_u64(rd, "space_lo");
    file->tokens = read_tokens(dec, "tokens", WEFT_CONTEXT_MAX, &file->n_tokens);
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++)
        file->blocks[kind] =
            read_ids(dec, "blocks", WEFT_KV_BLOCKS_MAX, WEFT_CONTEXT_MAX, &file->n_blocks[kind]);
}

static void read_kv_filed(weft_proto_decoder *dec, struct weft_kv_filed *filed) {
    struct weft_msgpack_reader *rd = &dec->rd;
    filed->epoch = weft_msgpack_read_u64(rd, "epoch");
    filed->id = weft_msgpack_read_u64(rd, "id");
    filed->err = read_code(rd);
    filed->text = read_sentence(dec);
    filed->n_bytes = weft_msgpack_read_u64(rd, "n_bytes");
    filed->space_hi = weft_msgpack_read_u64(rd, "space_hi");
    filed->space_lo = weft_msgpack_read_u64(rd, "space_lo");
    filed->tokens = read_tokens(dec, "tokens", WEFT_CONTEXT_MAX, &filed->n_tokens);
}

static void read_add_lora(weft_proto_decoder *dec, struct weft_msg_add_lora *msg) {
    struct weft_msgpack_reader *rd = &dec->rd;
    uint32_t n = 0;
    msg->id = weft_msgpack_read_u64(rd, "id");
    read_digest(rd, "digest", &msg->digest);
    const char *path = weft_msgpack_read_bin(rd, "path", 1, WEFTI_PROTO_PATH_BYTES_MAX, &n);
    char *copy = take(dec, "path", n + 1u, 1); /* zeroed, hence terminated */
    if (copy && n > 0) memcpy(copy, path, n);
    if (copy && (n == 0 || memchr(copy, 0, n)))
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "path", "is empty, or holds a zero");
    msg->path = copy;
}

static void read_lora(weft_proto_decoder *dec, struct weft_msg_lora *msg) {
    struct weft_msgpack_reader *rd = &dec->rd;
    msg->id = weft_msgpack_read_u64(rd, "id");
    msg->is_there = weft_msgpack_read_bool(rd, "is_there");
    read_digest(rd, "digest", &msg->digest);
    msg->bytes = weft_msgpack_read_u64(rd, "bytes");
    msg->text = read_sentence(dec);
}

/* -------------------------------------------------------------------------------- messages --- */

static uint32_t known_fields(uint32_t type) {
    static const uint8_t n_fields[WEFT_MSG_TYPE_COUNT] = {
        [WEFT_MSG_ROUTER_HELLO] = WEFTI_PROTO_F_ROUTER_HELLO,
        [WEFT_MSG_SUBMIT] = WEFTI_PROTO_F_SUBMIT,
        [WEFT_MSG_CANCEL] = WEFTI_PROTO_F_CANCEL,
        [WEFT_MSG_SCHED_HELLO] = WEFTI_PROTO_F_SCHED_HELLO,
        [WEFT_MSG_ACCEPTED] = WEFTI_PROTO_F_ACCEPTED,
        [WEFT_MSG_REJECTED] = WEFTI_PROTO_F_REJECTED,
        [WEFT_MSG_EVENTS] = WEFTI_PROTO_F_EVENTS,
        [WEFT_MSG_SNAPSHOT] = WEFTI_PROTO_F_SNAPSHOT,
        [WEFT_MSG_WORKER_HELLO] = WEFTI_PROTO_F_WORKER_HELLO,
        [WEFT_MSG_RESULT] = WEFTI_PROTO_F_RESULT,
        [WEFT_MSG_HEARTBEAT] = WEFTI_PROTO_F_HEARTBEAT,
        [WEFT_MSG_PLAN] = WEFTI_PROTO_F_PLAN,
        [WEFT_MSG_EXPERTS] = WEFTI_PROTO_F_EXPERTS,
        [WEFT_MSG_RESET_CACHE] = WEFTI_PROTO_F_RESET_CACHE,
        [WEFT_MSG_GRAMMAR] = WEFTI_PROTO_F_GRAMMAR_AHEAD,
        [WEFT_MSG_COMPILED] = WEFTI_PROTO_F_COMPILED,
        [WEFT_MSG_SESSION] = WEFTI_PROTO_F_SESSION,
        [WEFT_MSG_SESSION_DONE] = WEFTI_PROTO_F_SESSION_DONE,
        [WEFT_MSG_KV_FILE] = WEFTI_PROTO_F_KV_FILE,
        [WEFT_MSG_KV_FILED] = WEFTI_PROTO_F_KV_FILED,
        [WEFT_MSG_ADD_LORA] = WEFTI_PROTO_F_ADD_LORA,
        [WEFT_MSG_REMOVE_LORA] = WEFTI_PROTO_F_REMOVE_LORA,
        [WEFT_MSG_LORA] = WEFTI_PROTO_F_LORA,
    };
    WEFT_ASSERT(type < WEFT_MSG_TYPE_COUNT);
    return n_fields[type];
}

static bool is_hello(uint32_t type) {
    return type == WEFT_MSG_ROUTER_HELLO || type == WEFT_MSG_SCHED_HELLO ||
           type == WEFT_MSG_WORKER_HELLO;
}

static void read_worker_hello(struct weft_msgpack_reader *rd, struct weft_msg_worker_hello *hello) {
    hello->version = WEFT_PROTO_VERSION;
    hello->instance = weft_msgpack_read_u64(rd, "instance");
    hello->pid = weft_msgpack_read_u32(rd, "pid", UINT32_MAX);
    read_model(rd, &hello->model);
}

/* Reads the fields that every message of its type has, and those later ones that are known. Returns
 * how many of the latter it read. */
static uint32_t read_body(weft_proto_decoder *dec, struct weft_msg *msg, uint32_t n_later) {
    struct weft_msgpack_reader *rd = &dec->rd;
    switch (msg->type) {
    case WEFT_MSG_ROUTER_HELLO:
        msg->router_hello.version = WEFT_PROTO_VERSION;
        msg->router_hello.instance = weft_msgpack_read_u64(rd, "instance");
        msg->router_hello.pid = weft_msgpack_read_u32(rd, "pid", UINT32_MAX);
        break;
    case WEFT_MSG_SUBMIT:
        read_submit(dec, &msg->submit);
        break;
    case WEFT_MSG_CANCEL:
        read_cancel(rd, &msg->cancel);
        break;
    case WEFT_MSG_SCHED_HELLO:
        msg->sched_hello.version = WEFT_PROTO_VERSION;
        msg->sched_hello.instance = weft_msgpack_read_u64(rd, "instance");
        msg->sched_hello.epoch = weft_msgpack_read_u64(rd, "epoch");
        msg->sched_hello.pid = weft_msgpack_read_u32(rd, "pid", UINT32_MAX);
        break;
    case WEFT_MSG_ACCEPTED:
        msg->accepted.request_id = weft_msgpack_read_u64(rd, "request_id");
        msg->accepted.attempt = weft_msgpack_read_u32(rd, "attempt", UINT32_MAX);
        break;
    case WEFT_MSG_REJECTED:
        read_rejected(dec, &msg->rejected);
        break;
    case WEFT_MSG_EVENTS:
        read_events(dec, &msg->events);
        break;
    case WEFT_MSG_SNAPSHOT:
        read_snapshot(rd, &msg->snapshot);
        if (n_later < WEFTI_PROTO_F_ACTIVITY) break; /* of an earlier release */
        read_activity(dec, &msg->snapshot.activity);
        return WEFTI_PROTO_F_ACTIVITY;
    case WEFT_MSG_WORKER_HELLO:
        read_worker_hello(rd, &msg->worker_hello);
        break;
    case WEFT_MSG_RESULT:
        read_result(dec, &msg->result);
        break;
    case WEFT_MSG_HEARTBEAT:
        read_heartbeat(rd, &msg->heartbeat);
        if (n_later < WEFTI_PROTO_F_AWAITED) break; /* of an earlier release */
        msg->heartbeat.awaited_rank = weft_msgpack_read_u32(rd, "awaited_rank", WEFT_RANKS_MAX - 1);
        msg->heartbeat.awaited_pid = weft_msgpack_read_u32(rd, "awaited_pid", UINT32_MAX);
        return WEFTI_PROTO_F_AWAITED;
    case WEFT_MSG_PLAN:
        read_plan(dec, &msg->plan);
        break;
    case WEFT_MSG_EXPERTS:
        read_experts(dec, &msg->experts);
        break;
    case WEFT_MSG_RESET_CACHE: /* says all by its type */
        break;
    case WEFT_MSG_GRAMMAR:
        read_grammar_ahead(dec, &msg->grammar);
        break;
    case WEFT_MSG_COMPILED:
        msg->compiled.epoch = weft_msgpack_read_u64(rd, "epoch");
        msg->compiled.id = weft_msgpack_read_u64(rd, "id");
        break;
    case WEFT_MSG_SESSION:
        read_session(rd, &msg->session);
        break;
    case WEFT_MSG_SESSION_DONE:
        read_session_done(dec, &msg->session_done);
        break;
    case WEFT_MSG_KV_FILE:
        read_kv_file(dec, &msg->kv_file);
        break;
    case WEFT_MSG_KV_FILED:
        read_kv_filed(dec, &msg->kv_filed);
        break;
    case WEFT_MSG_ADD_LORA:
        read_add_lora(dec, &msg->add_lora);
        break;
    case WEFT_MSG_REMOVE_LORA:
        msg->remove_lora.id = weft_msgpack_read_u64(rd, "id");
        break;
    case WEFT_MSG_LORA:
        read_lora(dec, &msg->lora);
        break;
    case WEFT_MSG_TYPE_COUNT: /* read_enum refused it */
        break;
    }
    return 0;
}

weft_err weft_proto_decode(weft_proto_decoder *dec, const void *bytes, size_t len,
                           struct weft_msg *msg_out, struct weft_errmsg *why) {
    memset(msg_out, 0, sizeof *msg_out);
    if (len > WEFT_MESSAGE_BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "message of %zu bytes, at most %u are allowed", len,
                            WEFT_MESSAGE_BYTES_MAX);
    struct weft_msgpack_reader *rd = &dec->rd;
    wefti_proto_storage_reset(&dec->storage);
    weft_msgpack_reader_init(rd, bytes, len, why);

    uint32_t n_more = weft_msgpack_read_open(rd, "fields", 1);
    uint32_t type = read_enum(rd, "type", WEFT_MSG_TYPE_COUNT);
    if (rd->err) return rd->err;
    msg_out->type = (enum weft_proto_type)type;
    rd->message = weft_proto_type_name(msg_out->type);
    /* Checked before the number of fields: a hello of another version is refused for its
     * version. */
    if (is_hello(type) && n_more > 0) check_version(rd);
    if (n_more + 1 < known_fields(type))
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "fields", "are %u, should be %u", n_more + 1,
                                 known_fields(type));
    uint32_t n_later = n_more + 1 - known_fields(type);
    if (!rd->err) n_later -= read_body(dec, msg_out, n_later);
    if (!rd->err) {
        weft_msgpack_read_close(rd, "later fields", n_later);
        weft_msgpack_reader_finish(rd);
    }
    if (rd->err) memset(msg_out, 0, sizeof *msg_out);
    return rd->err;
}
