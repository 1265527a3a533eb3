/* Messages: there and back, golden bytes, and everything a decoder must refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/minmax.h"
#include "golden/proto_vectors.h"
#include "inside/proto/wire.h"
#include "proto/proto.h"
#include "unit/proto_messages.h"

/* The n-th allocation from now and all after it fail; 0: none. The linker sends our modules' calls
 * here. */
static uint64_t fail_at, n_allocations;

void *__real_malloc(size_t n_bytes);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_malloc(size_t n_bytes) {
    n_allocations++;
    return fail_at && n_allocations >= fail_at ? NULL : __real_malloc(n_bytes);
}

struct fixture {
    weft_proto_decoder *decoder;
    struct weft_buf buf;
    struct weft_msg msg;
    struct weft_errmsg why;
};

static int set_up(void **state) {
    struct fixture *fix = calloc(1, sizeof *fix);
    assert_non_null(fix);
    assert_int_equal(weft_proto_decoder_new(&fix->decoder), WEFT_OK);
    weft_buf_init(&fix->buf, WEFT_MESSAGE_BYTES_MAX);
    *state = fix;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *fix = *state;
    weft_proto_decoder_free(fix->decoder);
    weft_buf_fini(&fix->buf);
    free(fix);
    return 0;
}

static weft_err decode(struct fixture *fix, const void *bytes, size_t len) {
    fix->why.text[0] = 0;
    weft_err err = weft_proto_decode(fix->decoder, bytes, len, &fix->msg, &fix->why);
    assert_true(!err == !fix->why.text[0]); /* a fault has its sentence */
    return err;
}

static void encode(struct fixture *fix, const struct weft_msg *msg) {
    weft_buf_clear(&fix->buf);
    weft_proto_encode(msg, &fix->buf);
    assert_false(fix->buf.failed);
}

/* Encodes and decodes; the error and its sentence. */
static void assert_refused(struct fixture *fix, const struct weft_msg *msg, weft_err err,
                           const char *part) {
    encode(fix, msg);
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), err);
    if (!strstr(fix->why.text, part)) fail_msg("\"%s\" lacks \"%s\"", fix->why.text, part);
}

static void assert_bytes_refused(struct fixture *fix, const void *bytes, size_t len, weft_err err,
                                 const char *part) {
    assert_int_equal(decode(fix, bytes, len), err);
    if (!strstr(fix->why.text, part)) fail_msg("\"%s\" lacks \"%s\"", fix->why.text, part);
}

static struct weft_msg sample(enum weft_proto_type type, bool max) {
    struct weft_msg msg;
    const char *name;
    assert_true(proto_sample(2 * (uint32_t)type + max, &name, &msg));
    return msg;
}

/* ------------------------------------------------------------------------------ there and back */

static void every_message_comes_back_equal(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg;
    const char *name;
    for (uint32_t i = 0; proto_sample(i, &name, &msg); i++) {
        encode(fix, &msg);
        if (decode(fix, fix->buf.data, fix->buf.len) || !proto_equal(&msg, &fix->msg))
            fail_msg("%s: %s", name, fix->why.text);
    }
}

static void an_unaligned_message_is_fine(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_PLAN, true);
    encode(fix, &msg);
    char *bytes = malloc(fix->buf.len + 8);
    assert_non_null(bytes);
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(bytes + shift, fix->buf.data, fix->buf.len);
        assert_int_equal(decode(fix, bytes + shift, fix->buf.len), WEFT_OK);
        assert_true(proto_equal(&msg, &fix->msg));
    }
    free(bytes);
}

static void a_large_message_comes_back_and_its_memory_is_let_go(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_SUBMIT, false);
    uint32_t n = 1u << 20;
    uint32_t *tokens = malloc(n * sizeof *tokens);
    assert_non_null(tokens);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i;
    msg.submit.prompt = tokens;
    msg.submit.n_prompt = n;
    for (int round = 0; round < 3; round++) {
        encode(fix, &msg);
        assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_OK);
        assert_true(proto_equal(&msg, &fix->msg));
    }
    free(tokens);
}

/* One entry with the whole of the largest vocabulary, then small ones in as many rows as possible:
 * all that a step can yield. */
static void the_largest_result_and_events_fit_a_message(void **state) {
    struct fixture *fix = *state;
    struct weft_step_out *outs = calloc(WEFT_SEQS_MAX, sizeof *outs);
    struct weft_event *events = calloc(WEFT_SEQS_MAX, sizeof *events);
    uint32_t *ids = calloc(WEFT_VOCAB_MAX, sizeof *ids);
    float *values = calloc(WEFT_VOCAB_MAX, sizeof *values);
    assert_true(outs && events && ids && values);
    uint32_t n_left = WEFT_STEP_LOGPROB_BYTES_MAX;
    for (uint32_t i = 0; i < WEFT_SEQS_MAX; i++) {
        uint32_t n_rows_left = WEFT_SEQS_MAX - i;
        uint32_t n_top = (n_left / n_rows_left - WEFT_LOGPROB_HEAD_BYTES) / WEFT_LOGPROB_TOP_BYTES;
        if (i == 0) n_top = WEFT_VOCAB_MAX;
        n_left -= WEFT_LOGPROB_HEAD_BYTES + WEFT_LOGPROB_TOP_BYTES * n_top;
        struct weft_logprobs entry = {-1.0f, WEFT_VOCAB_MAX, n_top, ids, values};
        outs[i] = (struct weft_step_out){.slot = WEFT_SEQS_MAX - 1,
                                         .gen = UINT32_MAX,
                                         .ran = true,
                                         .sampled = true,
                                         .token = WEFT_VOCAB_MAX - 1,
                                         .output_idx = WEFT_CONTEXT_MAX,
                                         .has_logprobs = true,
                                         .logprobs = entry,
                                         .prompt_pos = WEFT_CONTEXT_MAX};
        events[i] = (struct weft_event){.request_id = UINT64_MAX,
                                        .attempt = UINT32_MAX,
                                        .choice = WEFT_CHOICES_MAX - 1,
                                        .sampled = true,
                                        .token = WEFT_VOCAB_MAX - 1,
                                        .output_idx = WEFT_CONTEXT_MAX,
                                        .has_logprobs = true,
                                        .logprobs = entry,
                                        .prompt_pos = WEFT_CONTEXT_MAX,
                                        .n_prompt_cached = WEFT_CONTEXT_MAX,
                                        .queued_us = UINT64_MAX};
    }
    struct weft_msg msg = {.type = WEFT_MSG_RESULT};
    msg.result = (struct weft_step_result){
        .epoch = UINT64_MAX, .step = UINT64_MAX, .n_outs = WEFT_SEQS_MAX, .outs = outs};
    encode(fix, &msg);
    size_t bytes_max =
        WEFT_STEP_LOGPROB_BYTES_MAX + (size_t)WEFT_SEQS_MAX * WEFTI_PROTO_ROW_BYTES_MAX + 1024;
    assert_true(n_left < 16 * WEFT_SEQS_MAX && fix->buf.len <= bytes_max);
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_OK);
    msg = (struct weft_msg){.type = WEFT_MSG_EVENTS};
    msg.events = (struct weft_msg_events){.n = WEFT_SEQS_MAX, .events = events};
    encode(fix, &msg);
    assert_true(fix->buf.len <= bytes_max);
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_OK);
    free(outs);
    free(events);
    free(ids);
    free(values);
}

static int hex_digit(char c) {
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static const char *golden_hex(const char *name) {
    for (size_t i = 0; i < sizeof proto_vectors / sizeof proto_vectors[0]; i++) {
        if (strcmp(proto_vectors[i].name, name) == 0) return proto_vectors[i].hex;
    }
    return NULL;
}

/* The format cannot drift unnoticed. A new field, or another version, changes these on purpose:
 * WEFT_PROTO_PRINT=1 test_proto prints the table anew. */
static void the_bytes_are_the_golden_ones(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg;
    const char *name;
    bool print = getenv("WEFT_PROTO_PRINT") != NULL;
    for (uint32_t i = 0; proto_sample(i, &name, &msg); i++) {
        encode(fix, &msg);
        if (print) {
            (void)printf("    {\"%s\", \"", name);
            for (size_t k = 0; k < fix->buf.len; k++)
                (void)printf("%02x", (unsigned char)fix->buf.data[k]);
            (void)printf("\"},\n");
            continue;
        }
        const char *hex = golden_hex(name);
        assert_non_null(hex);
        if (!hex || strlen(hex) != 2 * fix->buf.len) {
            fail_msg("%s has another length", name);
            return;
        }
        for (size_t k = 0; k < fix->buf.len; k++) {
            int byte = hex_digit(hex[2 * k]) << 4 | hex_digit(hex[2 * k + 1]);
            if (byte != (unsigned char)fix->buf.data[k])
                fail_msg("%s differs at byte %zu", name, k);
        }
    }
}

static void later_fields_are_skipped(void **state) {
    struct fixture *fix = *state;
    /* nil, a map of arrays, ext, floats, a string: [..., nil, {1: [2, {}]}, ext, 1.5, "x"] */
    static const char later[] =
        "\xc0\x81\x01\x92\x02\x80\xc7\x02\x05zz\xcb\x3f\xf8\0\0\0\0\0\0\xa1x";
    struct weft_msg msg;
    const char *name;
    for (uint32_t i = 0; proto_sample(i, &name, &msg); i++) {
        encode(fix, &msg);
        unsigned char *head = (unsigned char *)fix->buf.data;
        if (*head == 0xdc) {
            head[2] = (unsigned char)(head[2] + 5);
        } else if ((*head & 0x0f) + 5 <= 15) {
            *head = (unsigned char)(*head + 5);
        } else {
            continue;
        }
        weft_buf_add(&fix->buf, later, sizeof later - 1);
        if (decode(fix, fix->buf.data, fix->buf.len) || !proto_equal(&msg, &fix->msg))
            fail_msg("%s: %s", name, fix->why.text);
    }
}

static void what_is_not_text_goes_out_as_question_marks(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_REJECTED, false);
    msg.rejected.text = "cut in a char\xc3";
    encode(fix, &msg);
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_OK);
    assert_string_equal(fix->msg.rejected.text, "cut in a char?");
}

static void a_buffer_that_is_too_small_gets_nothing(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_PLAN, true);
    encode(fix, &msg);
    size_t len = fix->buf.len;
    for (size_t max = 0; max < len; max++) {
        struct weft_buf small;
        weft_buf_init(&small, max + 1);
        weft_buf_add(&small, "x", 1);
        weft_proto_encode(&msg, &small);
        assert_true(small.failed);
        assert_int_equal(small.len, 1);
        weft_buf_fini(&small);
    }
}

static void names_of_types_are_known(void **state) {
    (void)state;
    assert_string_equal(weft_proto_type_name(WEFT_MSG_PLAN), "plan");
    assert_string_equal(weft_proto_type_name(WEFT_MSG_TYPE_COUNT), "unknown");
}

/* ------------------------------------------------------------------------------------ refusals */

static void every_truncation_is_refused(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg;
    const char *name;
    for (uint32_t i = 0; proto_sample(i, &name, &msg); i++) {
        encode(fix, &msg);
        for (size_t len = 0; len < fix->buf.len; len++) {
            char *exact = malloc(len ? len : 1); /* so that a sanitizer sees one byte too far */
            assert_non_null(exact);
            memcpy(exact, fix->buf.data, len);
            if (decode(fix, exact, len) != WEFT_E_PROTO) fail_msg("%s cut at %zu", name, len);
            free(exact);
        }
        weft_buf_add_char(&fix->buf, 0);
        assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_E_PROTO);
    }
}

static void another_version_is_refused_by_name(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_ROUTER_HELLO, false);
    msg.router_hello.version = 6;
    assert_refused(fix, &msg, WEFT_E_PROTO, "version 6 is not this side's");
    msg = sample(WEFT_MSG_SCHED_HELLO, false);
    msg.sched_hello.version = UINT32_MAX;
    assert_refused(fix, &msg, WEFT_E_PROTO, "version 4294967295");
    msg = sample(WEFT_MSG_WORKER_HELLO, false);
    msg.worker_hello.version = 0;
    assert_refused(fix, &msg, WEFT_E_PROTO, "version 0");
    /* A shorter hello of another version: the version is the reason. */
    assert_bytes_refused(fix, "\x92\x08\x04", 3, WEFT_E_PROTO, "version 4");
}

static void more_workers_serving_than_there_are_is_refused(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_SNAPSHOT, false);
    msg.snapshot.n_workers = 2;
    msg.snapshot.n_workers_serving = 3;
    assert_refused(fix, &msg, WEFT_E_PROTO, "n_workers_serving");
}

static void ranks_are_of_groups_that_are_there(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_SNAPSHOT, false);
    msg.snapshot.n_workers = 2;
    msg.snapshot.n_ranks = 1;
    msg.snapshot.ranks[0] = (struct weft_rank_told){.group = 2};
    assert_refused(fix, &msg, WEFT_E_PROTO, "ranks name one of a group that is not there");
    msg.snapshot.ranks[0] = (struct weft_rank_told){.group = 1, .rank = WEFT_RANKS_MAX};
    assert_refused(fix, &msg, WEFT_E_PROTO, "ranks name one of a group that is not there");
}

/* Releases before this one end it with n_workers_serving. */
static void a_snapshot_without_activity_is_understood(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_SNAPSHOT, true);
    msg.snapshot.activity = (struct weft_activity){0};
    encode(fix, &msg);
    unsigned char *head = (unsigned char *)fix->buf.data;
    assert_int_equal(head[0], 0xdc);
    for (uint8_t n_left = 1; n_left <= WEFTI_PROTO_F_ACTIVITY; n_left++) {
        head[2] = (unsigned char)(WEFTI_PROTO_F_SNAPSHOT + WEFTI_PROTO_F_ACTIVITY - n_left);
        assert_int_equal(decode(fix, fix->buf.data, fix->buf.len - n_left), WEFT_OK);
        assert_true(proto_equal(&msg, &fix->msg));
    }
}

static void activity_that_makes_no_sense_is_refused(void **state) {
    struct fixture *fix = *state;
    struct weft_activity_seq seq = {.n_prompt = 3, .n_prompt_done = 4};
    struct weft_msg msg = sample(WEFT_MSG_SNAPSHOT, false);
    msg.snapshot.activity.seqs = &seq;
    assert_refused(fix, &msg, WEFT_E_PROTO, "n_prompt_done is 4 of 3");
    seq.n_prompt_done = 3;
    seq.phase = WEFT_ACTIVITY_PHASE_COUNT;
    assert_refused(fix, &msg, WEFT_E_PROTO, "phase has no value 3");
    seq.phase = WEFT_ACTIVITY_DECODE;
    seq.group = WEFT_WORKERS_MAX;
    assert_refused(fix, &msg, WEFT_E_TOOBIG, "group");
}

static uint64_t *last_counter(struct weft_msg_snapshot *snap) {
    uint64_t *last = NULL;
#define ADDRESS(name, ...) last = &snap->name;
    WEFT_COUNTER_LIST(ADDRESS, ADDRESS)
#undef ADDRESS
    return last;
}

/* A release to come may count more, and one before less. */
static void counters_of_another_release_are_read_as_far_as_both_know_them(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_SNAPSHOT, false);
    msg.snapshot.n_preemptions = 7;
    *last_counter(&msg.snapshot) = 9;
    encode(fix, &msg);
    const size_t n = 8 * WEFT_COUNTERS, n_head = n < 256 ? 2 : 3;
    const uint8_t brief[] = {0xc4, (uint8_t)n, 7},
                  wide[] = {0xc5, (uint8_t)(n >> 8), (uint8_t)n, 7};
    const uint8_t *data = (const uint8_t *)fix->buf.data;
    const uint8_t *at = memmem(data, fix->buf.len, n < 256 ? brief : wide, n_head + 1);
    assert_non_null(at);
    const uint8_t *behind = at + n_head + n;
    size_t n_before = (size_t)(at - data), n_behind = fix->buf.len - (size_t)(behind - data);
    for (int step = -8; step <= 8; step += 16) {
        uint8_t bytes[1024] = {0}, *to = bytes + n_before;
        size_t n_now = (size_t)((ptrdiff_t)n + step);
        memcpy(bytes, data, n_before);
        *to++ = 0xc5;
        *to++ = (uint8_t)(n_now >> 8);
        *to++ = (uint8_t)n_now;
        memcpy(to, at + n_head, weft_min_size(n, n_now));
        memcpy(to + n_now, behind, n_behind);
        assert_int_equal(decode(fix, bytes, (size_t)(to + n_now - bytes) + n_behind), WEFT_OK);
        assert_int_equal(fix->msg.snapshot.n_preemptions, 7);
        assert_int_equal(*last_counter(&fix->msg.snapshot), step < 0 ? 0 : 9);
        assert_int_equal(fix->msg.snapshot.sched_pid, msg.snapshot.sched_pid);
    }
}

static void what_is_no_message_is_refused(void **state) {
    struct fixture *fix = *state;
    assert_bytes_refused(fix, NULL, 0, WEFT_E_PROTO, "message");
    assert_bytes_refused(fix, "\xc0", 1, WEFT_E_PROTO, "should be an array");
    assert_bytes_refused(fix, "\x90", 1, WEFT_E_PROTO, "needs 1");
    assert_bytes_refused(fix, "\x91\x17", 2, WEFT_E_PROTO, "no value 23");
    assert_bytes_refused(fix, "\x91\xff", 2, WEFT_E_PROTO, "an unsigned integer");
    assert_bytes_refused(fix, "\x91\x04", 2, WEFT_E_PROTO, "are 1, should be 3");
    assert_bytes_refused(fix, "\x93\x04\x01\xc3", 4, WEFT_E_PROTO, "accepted: attempt");
    assert_bytes_refused(fix, "\x93\x04\x01\x02\x03", 5, WEFT_E_PROTO, "1 more bytes");
    assert_bytes_refused(fix, "\x94\x04\x01\x02\xc1", 5, WEFT_E_PROTO, "MessagePack");
    assert_bytes_refused(fix, "\x93\x04\x01\xcf\0\0\0\1\0\0\0\0", 12, WEFT_E_TOOBIG, "4294967296");
}

/* Numbers may be longer than they need to be; MessagePack allows it. */
static void long_forms_of_numbers_are_fine(void **state) {
    struct fixture *fix = *state;
    static const char bytes[] = "\xdd\0\0\0\3\xcf\0\0\0\0\0\0\0\4\xce\0\0\0\7\xcd\0\1";
    assert_int_equal(decode(fix, bytes, sizeof bytes - 1), WEFT_OK);
    assert_int_equal(fix->msg.type, WEFT_MSG_ACCEPTED);
    assert_int_equal(fix->msg.accepted.request_id, 7);
    assert_int_equal(fix->msg.accepted.attempt, 1);
}

static void nesting_is_bounded(void **state) {
    struct fixture *fix = *state;
    unsigned char bytes[4 + 64] = {0x94, 4, 1, 2};
    for (size_t depth = 1; depth < 60; depth++) {
        memset(bytes + 4, 0x91, depth);
        bytes[4 + depth] = 0xc0;
        weft_err err = decode(fix, bytes, 4 + depth + 1);
        assert_int_equal(err, depth + 1 <= 16 ? WEFT_OK : WEFT_E_PROTO);
    }
}

static void claims_without_bytes_cost_nothing(void **state) {
    struct fixture *fix = *state;
    static const struct {
        const char *bytes;
        size_t len;
    } claims[] = {
        {"\xdd\xff\xff\xff\xff\x06", 6},              /* fields */
        {"\x92\x06\xdd\xff\xff\xff\xff", 7},          /* events */
        {"\x92\x06\xdc\x00\x10\x9c", 6},              /* 16 events in a byte */
        {"\x99\x0b\1\1\xc6\xff\xff\xff\xf8", 9},      /* releases */
        {"\x99\x0b\1\1\xc4\0\xdd\0\0\x10\0\xc0", 12}, /* starts */
        {"\x97\x09\1\1\1\1\1\xdd\0\0\x10\0", 12},     /* outs */
        {"\x94\x04\1\2\xdf\xff\xff\xff\xff", 9},      /* later: a map */
        {"\x94\x04\1\2\xc9\xff\xff\xff\xff\1", 10},   /* later: ext */
        {"\xdc\0\x18\1\1\1\xc2\xc6\x0f\xff\xff\xfc\0\0\0\0\0\0\0\0\0", 21}, /* prompt */
        {"\x94\x0c\2\xc4\4\0\0\0\0\xc6\0\7\xff\xf8", 14},                   /* rows of experts */
    };
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        n_allocations = 0;
        assert_true(decode(fix, claims[i].bytes, claims[i].len));
        assert_in_range(n_allocations, 0, 1); /* the first chunk, nothing by the claim */
    }
}

static void a_submit_that_contradicts_itself_is_refused(void **state) {
    struct fixture *fix = *state;
    static const uint32_t tokens[] = {1, 2, WEFT_VOCAB_MAX};
    static const struct weft_submit_choice with_output = {.output = tokens, .n_output = 2},
                                           finished = {.output = tokens, .finished = true};
    struct weft_msg msg = sample(WEFT_MSG_SUBMIT, false);
    msg.submit.prompt = tokens;
    msg.submit.n_prompt = 3;
    assert_refused(fix, &msg, WEFT_E_TOOBIG, "prompt holds 2097152");
    msg = sample(WEFT_MSG_SUBMIT, false);
    msg.submit.n_prompt_logprobs_done = msg.submit.n_prompt + 1;
    assert_refused(fix, &msg, WEFT_E_PROTO, "n_prompt_logprobs_done");
    msg = sample(WEFT_MSG_SUBMIT, false);
    msg.submit.choices = &with_output;
    assert_refused(fix, &msg, WEFT_E_PROTO, "fresh request");
    msg.submit.choices = &finished;
    assert_refused(fix, &msg, WEFT_E_PROTO, "fresh request");
    msg.submit.choices = &with_output;
    msg.submit.resume = true;
    msg.submit.sampling.max_tokens = 1;
    assert_refused(fix, &msg, WEFT_E_PROTO, "max_tokens is 1");
    msg = sample(WEFT_MSG_SUBMIT, false);
    msg.submit.sampling.temperature = -1.0f;
    assert_refused(fix, &msg, WEFT_E_PROTO, "temperature");
    msg = sample(WEFT_MSG_SUBMIT, false);
    static const struct weft_step_adapter odd[] = {{1, NAN, 0}, {1, 1.0f, 1}};
    msg.submit.n_adapters = 1;
    for (int i = 0; i < 2; i++) {
        msg.submit.adapters = &odd[i];
        assert_refused(fix, &msg, WEFT_E_PROTO, "adapters has no strength");
    }
    msg = sample(WEFT_MSG_SUBMIT, true);
    static const uint32_t many[WEFT_STOP_TOKENS_MAX];
    msg.submit.sampling.stop_tokens = msg.submit.sampling.masked_tokens = many;
    msg.submit.sampling.n_stop_tokens = WEFT_STOP_TOKENS_MAX - 1;
    msg.submit.sampling.n_masked_tokens = 2; /* each is few enough by itself */
    assert_refused(fix, &msg, WEFT_E_PROTO, "129 stop tokens");
    msg.submit.sampling.n_stop_tokens = msg.submit.sampling.n_masked_tokens = 0;
    msg.submit.sampling.n_bias = 2;
    static const struct weft_logit_bias twice[] = {{5, 1.0f}, {5, 1.0f}};
    msg.submit.sampling.bias = twice;
    assert_refused(fix, &msg, WEFT_E_PROTO, "twice");
    /* From weight on: 5 bytes at most, then the salt of 9 and 9, no pooling, a bool, the session's name, and
     * adapters of 2 and 64; a bool, and a number of 5. */
    msg = sample(WEFT_MSG_SUBMIT, true);
    encode(fix, &msg);
    uint8_t *weight = (uint8_t *)fix->buf.data + fix->buf.len - 6 - 66 - 10 - 1 - 4 - 18 - 5;
    assert_int_equal(weight[0], 0xce);
    weight[4]++; /* WEFT_WEIGHT_MAX + 1 */
    assert_bytes_refused(fix, fix->buf.data, fix->buf.len, WEFT_E_TOOBIG, "weight is 1000001");
    memset(weight + 1, 0, 4);
    assert_bytes_refused(fix, fix->buf.data, fix->buf.len, WEFT_E_PROTO, "weight is 0");
    msg = sample(WEFT_MSG_SUBMIT, false);
    msg.submit.ttft_us = WEFT_SLO_US_MAX + 1;
    assert_refused(fix, &msg, WEFT_E_TOOBIG, "ttft_us is 86400000001");
    msg.submit.ttft_us = 0;
    msg.submit.tpot_us = UINT64_MAX;
    assert_refused(fix, &msg, WEFT_E_TOOBIG, "tpot_us is");
    /* No prompt, no choices: our own encoder would not write them. */
    static const char no_prompt[] =
        "\xdc\0\x1a\1\1\1\xc2\xc4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    assert_bytes_refused(fix, no_prompt, sizeof no_prompt - 1, WEFT_E_PROTO, "prompt is empty");
    static const char no_choice[] =
        "\xdc\0\x1a\1\1\1\xc2\xc4\4\1\0\0\0\x90\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    assert_bytes_refused(fix, no_choice, sizeof no_choice - 1, WEFT_E_PROTO, "choices is empty");
    static const char ragged[] =
        "\xdc\0\x1a\1\1\1\xc2\xc4\5\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    assert_bytes_refused(fix, ragged, sizeof ragged - 1, WEFT_E_PROTO, "no multiple of 4");
}

static void a_plan_that_contradicts_itself_is_refused(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_PLAN, false);
    struct weft_step_row rows[2] = {{0, 1, WEFT_BATCHED_TOKENS_MAX, 0}, {1, 1, 1, 0}};
    msg.plan.rows = rows;
    assert_refused(fix, &msg, WEFT_E_PROTO, "rows entry 1 has 1 tokens");
    rows[0].n_tokens = 0;
    assert_refused(fix, &msg, WEFT_E_PROTO, "rows entry 0 has 0 tokens");
    rows[0] = (struct weft_step_row){0, 1, 1, WEFT_SPEC_TOKENS_MAX + 1};
    assert_refused(fix, &msg, WEFT_E_PROTO, "rows entry 0 wants 17 guesses");
    rows[0] = (struct weft_step_row){WEFT_SEQS_MAX, 1, 1, 0};
    assert_refused(fix, &msg, WEFT_E_TOOBIG, "slot 4096");

    msg = sample(WEFT_MSG_PLAN, false);
    struct weft_step_release release = {WEFT_SEQS_MAX, 1};
    msg.plan.releases = &release;
    msg.plan.n_releases = 1;
    assert_refused(fix, &msg, WEFT_E_TOOBIG, "releases");

    msg = sample(WEFT_MSG_PLAN, false);
    struct weft_step_copy copy = {5, 5, WEFT_KV_FULL};
    msg.plan.copies = &copy;
    msg.plan.n_copies = 1;
    assert_refused(fix, &msg, WEFT_E_PROTO, "copies block 5 to 5");
    copy.to = WEFT_KV_BLOCKS_MAX;
    assert_refused(fix, &msg, WEFT_E_PROTO, "copies block 5 to");
    copy = (struct weft_step_copy){5, 6, WEFT_KV_KINDS};
    assert_refused(fix, &msg, WEFT_E_PROTO, "blocks of kind 2");

    msg = sample(WEFT_MSG_PLAN, false);
    struct weft_step_spill spill = {5, WEFT_KV_BLOCKS_MAX};
    msg.plan.spills = msg.plan.restores = &spill;
    msg.plan.n_spills = 1;
    assert_refused(fix, &msg, WEFT_E_PROTO, "spills entry 0: block 5");
    msg.plan.n_spills = 0;
    msg.plan.n_restores = 1;
    assert_refused(fix, &msg, WEFT_E_PROTO, "restores entry 0: block 5");

    static const struct weft_step_state wrong_states[] = {
        {WEFT_STATE_OPS, 0, 0},
        {WEFT_STATE_FORK, 0, WEFT_SEQS_MAX},
        {WEFT_STATE_KEEP, 0, WEFT_STATE_CHECKPOINTS_MAX},
    };
    msg = sample(WEFT_MSG_PLAN, false);
    msg.plan.n_states = 1;
    for (size_t i = 0; i < sizeof wrong_states / sizeof wrong_states[0]; i++) {
        msg.plan.states = &wrong_states[i];
        assert_refused(fix, &msg, WEFT_E_PROTO, "states");
    }
    static const struct weft_step_state wrong_slot = {WEFT_STATE_LOAD, WEFT_SEQS_MAX, 0};
    msg.plan.states = &wrong_slot;
    assert_refused(fix, &msg, WEFT_E_TOOBIG, "states");

    msg = sample(WEFT_MSG_PLAN, false);
    uint32_t blocks[] = {1, WEFT_KV_BLOCKS_MAX};
    struct weft_step_grant grant = {0, 1, WEFT_KV_FULL, 2, blocks};
    msg.plan.grants = &grant;
    msg.plan.n_grants = 1;
    assert_refused(fix, &msg, WEFT_E_TOOBIG, "blocks holds");
    grant.n_blocks = 1;
    encode(fix, &msg);
    char *head = memmem(fix->buf.data, fix->buf.len, "\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0", 16);
    assert_non_null(head);
    head[12] = 2; /* wants more than there are */
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_E_PROTO);
    head[12] = 0;
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_E_PROTO);
    head[12] = 1;
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_OK);
    head[8] = WEFT_KV_KINDS;
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_E_PROTO);

    msg = sample(WEFT_MSG_PLAN, true);
    encode(fix, &msg);
    /* The first start: slot 4, gen 1, choice 0, bin 16, ..., n_prompt 4, n_cached 0, told 0. */
    char *start = memmem(fix->buf.data, fix->buf.len, "\xdc\0\x11\x04\x01\x00\xc4\x10", 8);
    assert_non_null(start);
    static const char wrong[][3] = {{0, 0, 0}, {5, 0, 0}, {4, 4, 0}, {4, 0, 5}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memcpy(start + 8 + 16, wrong[i], 3);
        assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_E_PROTO);
    }
}

/* What a start drops is in its tokens, and the last one stays. */
static void starts_that_drop_too_much_are_refused(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_PLAN, true);
    const struct weft_step_start *start = &msg.plan.starts[1];
    size_t n_bytes = start->n_adapters * sizeof *start->adapters;
    encode(fix, &msg);
    uint8_t *tail = memmem(fix->buf.data, fix->buf.len, start->adapters, n_bytes);
    assert_non_null(tail);
    tail += n_bytes;
    /* n_keep, n_dropped, n_written: of four tokens, one cached. */
    assert_true(tail[0] == 1 && tail[1] == 2 && tail[2] == 2);
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_OK);
    static const struct {
        uint8_t n;
        weft_err err;
    } written[] = {{0, WEFT_E_PROTO}, {1, WEFT_OK}, {3, WEFT_E_PROTO}, {2, WEFT_OK}};
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        tail[2] = written[i].n;
        assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), written[i].err);
    }
    tail[1] = 3;
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_E_PROTO);
    tail[0] = 0;
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_E_PROTO); /* all are cached */
    tail[1] = 100;
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_E_PROTO);
}

static void results_and_events_that_contradict_themselves_are_refused(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_RESULT, true);
    struct weft_step_out out = msg.result.outs[2];
    static const uint32_t ids[] = {1, 2};
    static const float values[] = {0, 0};
    struct weft_logprobs entry = {-1.0f, 0, 2, ids, values};
    msg.result.outs = &out;
    msg.result.n_outs = 1;
    out.logprobs = entry;
    assert_refused(fix, &msg, WEFT_E_PROTO, "rank 0");
    out.logprobs.rank = WEFT_VOCAB_MAX + 1;
    assert_refused(fix, &msg, WEFT_E_PROTO, "rank 2097153");
    out.logprobs.rank = 1;
    out.prompt_pos = WEFT_CONTEXT_MAX - 1;
    assert_refused(fix, &msg, WEFT_E_TOOBIG, "prompt_logprobs");
    out.prompt_pos = 0;
    out.finish = WEFT_END_DEADLINE;
    assert_refused(fix, &msg, WEFT_E_PROTO, "finish has no value 3");
    out.finish = WEFT_END_NONE;
    out.has_logprobs = out.sampled = out.ran = false;
    assert_refused(fix, &msg, WEFT_E_PROTO, "did not run");

    out = (struct weft_step_out){.ran = true, .sampled = true, .sampler_state = 1.0};
    encode(fix, &msg);
    uint8_t *bits = memmem(fix->buf.data, fix->buf.len, "\xcf\x3f\xf0\0\0", 5);
    assert_non_null(bits);
    bits[1] = 0x7f; /* infinity */
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_E_PROTO);
    bits[2] = 0xf8; /* a NaN */
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_E_PROTO);

    /* [9, epoch, step, busy, idle, n_tokens, [[slot, gen, flags, token, idx, finish, logprobs, pos, prompt, more,
     * values, state, proposed, accepted]], spill, draft, catch_up] */
    char result[] =
        "\x9b\x09\0\0\0\0\0\x91\x9e\0\0\2\0\0\0\xc0\0\xc0\xc4\4\1\0\0\0\xc4\0\0\0\0\0\0\0\0";
    assert_bytes_refused(fix, result, sizeof result - 1, WEFT_E_PROTO, "but forced tokens");
    result[11] = 3;
    assert_int_equal(decode(fix, result, sizeof result - 1), WEFT_OK);
    result[28] = 1;
    assert_bytes_refused(fix, result, sizeof result - 1, WEFT_E_PROTO, "1 of 0 guesses accepted");
    result[27] = 2;
    assert_int_equal(decode(fix, result, sizeof result - 1), WEFT_OK);
    result[28] = 2;
    assert_bytes_refused(fix, result, sizeof result - 1, WEFT_E_PROTO,
                         "2 of 2 guesses accepted, 1");
    result[27] = result[28] = 0;
    result[11] = 7;
    assert_bytes_refused(fix, result, sizeof result - 1, WEFT_E_PROTO, "is late and sampled");
    result[11] = 4;
    assert_bytes_refused(fix, result, sizeof result - 1, WEFT_E_PROTO, "did not run");
    result[11] = 3;
    result[22] = 0x20; /* beyond any vocabulary */
    assert_bytes_refused(fix, result, sizeof result - 1, WEFT_E_TOOBIG, "more");

    /* [6, [[id, attempt, choice, flags, token, idx, end, logprobs, pos, prompt, cached, queued,
     * values, state]]] */
    char event[] = "\x92\x06\x91\x9e\1\1\0\0\0\0\0\xc0\0\xc0\0\0\xc4\0\0";
    assert_int_equal(decode(fix, event, sizeof event - 1), WEFT_OK);
    event[7] = 2;
    assert_bytes_refused(fix, event, sizeof event - 1, WEFT_E_PROTO, "unknown bits");
    event[7] = 0;
    event[10] = WEFT_END_STOP_TOKEN; /* a router's own */
    assert_bytes_refused(fix, event, sizeof event - 1, WEFT_E_PROTO, "end has no value");
    event[10] = WEFT_END_COUNT;
    assert_bytes_refused(fix, event, sizeof event - 1, WEFT_E_PROTO, "end has no value");
    event[10] = 0;
    event[6] = (char)0xff;
    assert_bytes_refused(fix, event, sizeof event - 1, WEFT_E_PROTO, "choice");
    static const char unasked[] =
        "\x92\x06\x91\x9e\1\1\0\0\0\0\0"
        "\x93\xc4\x0c\0\0\0\0\1\0\0\0\0\0\0\0\xc4\0\xc4\0\0\xc0\0\0\xc4\0\0";
    assert_bytes_refused(fix, unasked, sizeof unasked - 1, WEFT_E_PROTO, "without a token");
    static const char spare[] =
        "\x92\x06\x91\x9e\1\1\0\1\0\0\0"
        "\x93\xc4\x0c\0\0\0\0\1\0\0\0\0\0\0\0\xc4\4\1\0\0\0\xc4\4\0\0\0\0\0\xc0\0\0\xc4\0\0";
    assert_bytes_refused(fix, spare, sizeof spare - 1, WEFT_E_PROTO, "has 1 ids");
}

static void values_come_with_an_end_and_without_a_token(void **state) {
    struct fixture *fix = *state;
    char event[] = "\x92\x06\x91\x9e\1\1\0\0\0\0\0\xc0\0\xc0\0\0\xc4\4\0\0\0\0\0";
    assert_bytes_refused(fix, event, sizeof event - 1, WEFT_E_PROTO, "or no end");
    event[10] = WEFT_END_LENGTH;
    assert_int_equal(decode(fix, event, sizeof event - 1), WEFT_OK);
    assert_int_equal(fix->msg.events.events[0].n_values, 1);
    event[7] = 1;
    assert_bytes_refused(fix, event, sizeof event - 1, WEFT_E_PROTO, "with a token");
    char result[] =
        "\x9b\x09\0\0\0\0\0\x91\x9e\0\0\2\0\0\2\xc0\0\xc0\xc4\0\xc4\4\0\0\0\0\0\0\0\0\0\0\0";
    assert_int_equal(decode(fix, result, sizeof result - 1), WEFT_OK);
    assert_int_equal(fix->msg.result.outs[0].n_values, 1);
    result[14] = 0;
    assert_bytes_refused(fix, result, sizeof result - 1, WEFT_E_PROTO, "or no end");
    result[14] = 2;
    result[11] = 0;
    assert_bytes_refused(fix, result, sizeof result - 1, WEFT_E_PROTO, "or no end");
}

static void a_pooling_leaves_no_room_for_tokens(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_SUBMIT, false);
    msg.submit.pooling.kind = WEFT_POOLING_LAST;
    assert_refused(fix, &msg, WEFT_E_PROTO, "no tokens and no log-probabilities");
    msg.submit.sampling.max_tokens = 0;
    msg.submit.pooling.n_first = msg.submit.n_prompt + 1;
    assert_refused(fix, &msg, WEFT_E_PROTO, "the first text has");
    msg.submit.pooling = (struct weft_pooling){.kind = WEFT_POOLING_TOKENS};
    assert_refused(fix, &msg, WEFT_E_PROTO, "logits of 0 tokens");
}

static void hellos_and_snapshots_are_checked(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_WORKER_HELLO, false);
    msg.worker_hello.model.n_vocab = 0;
    assert_refused(fix, &msg, WEFT_E_PROTO, "n_vocab is 0");
    msg = sample(WEFT_MSG_WORKER_HELLO, false);
    msg.worker_hello.model.max_seqs = WEFT_SEQS_MAX + 1;
    assert_refused(fix, &msg, WEFT_E_TOOBIG, "max_seqs is 4097");
    msg = sample(WEFT_MSG_SNAPSHOT, true);
    msg.snapshot.n_blocks_free = msg.snapshot.n_blocks;
    msg.snapshot.n_blocks--;
    assert_refused(fix, &msg, WEFT_E_PROTO, "n_blocks_free");
    msg = sample(WEFT_MSG_SNAPSHOT, true);
    msg.snapshot.n_blocks = 20000;
    msg.snapshot.n_window_blocks = 5;
    msg.snapshot.n_window_blocks_free = 6;
    assert_refused(fix, &msg, WEFT_E_PROTO, "n_window_blocks_free");
    msg.snapshot.n_window_blocks_free = 5;
    msg.snapshot.n_blocks_cached = 20001;
    assert_refused(fix, &msg, WEFT_E_PROTO, "n_blocks_cached");
    msg = sample(WEFT_MSG_CANCEL, false);
    msg.cancel.choice = WEFT_CHOICES_MAX;
    assert_refused(fix, &msg, WEFT_E_PROTO, "choice is 128");
    static const char nul[] = "\x96\x05\1\1\1\0\xa1\0";
    assert_bytes_refused(fix, nul, sizeof nul - 1, WEFT_E_PROTO, "UTF-8");
    static const char bad[] = "\x96\x05\1\1\1\0\xa2\xc3(";
    assert_bytes_refused(fix, bad, sizeof bad - 1, WEFT_E_PROTO, "UTF-8");
    static const char none[] = "\x96\x05\1\1\0\0\xa0";
    assert_bytes_refused(fix, none, sizeof none - 1, WEFT_E_PROTO, "reason is none");
    static const char longer[] = "\x96\x05\1\1\1\0\xda\x04\x01";
    assert_bytes_refused(fix, longer, sizeof longer - 1, WEFT_E_TOOBIG, "text has 1025 bytes");
}

static void counts_of_experts_are_checked(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_EXPERTS, true);
    static const uint32_t falling[] = {1, 2, 2}, too_high[] = {1, 2, WEFT_LAYERS_MAX};
    msg.experts.layers = falling;
    assert_refused(fix, &msg, WEFT_E_PROTO, "layers has 2 after 2");
    msg.experts.layers = too_high;
    assert_refused(fix, &msg, WEFT_E_TOOBIG, "layers holds 1024");
    /* [12, n_experts, layers, rows] */
    char experts[] = "\x94\x0c\1\xc4\4\5\0\0\0\xc4\x08\7\0\0\0\0\0\0\0";
    assert_int_equal(decode(fix, experts, sizeof experts - 1), WEFT_OK);
    assert_int_equal(fix->msg.experts.layers[0], 5);
    assert_int_equal(fix->msg.experts.rows[0], 7);
    experts[2] = 2;
    assert_bytes_refused(fix, experts, sizeof experts - 1, WEFT_E_PROTO, "has 1 numbers, of 1");
    experts[2] = 0;
    assert_bytes_refused(fix, experts, sizeof experts - 1, WEFT_E_PROTO, "n_experts is 0");
    static const char none[] = "\x94\x0c\1\xc4\0\xc4\0";
    assert_bytes_refused(fix, none, sizeof none - 1, WEFT_E_PROTO, "of 0 layers");
    static const char many[] = "\x94\x0c\xcd\4\1\xc4\0\xc4\0";
    assert_bytes_refused(fix, many, sizeof many - 1, WEFT_E_TOOBIG, "n_experts is 1025");
    static const char long_rows[] = "\x94\x0c\1\xc4\4\5\0\0\0\xc6\0\x08\0\x08";
    assert_bytes_refused(fix, long_rows, sizeof long_rows - 1, WEFT_E_TOOBIG, "65537 items");
}

/* All the series there may be are half a MiB: one message, without a cut. */
static void the_largest_counts_of_experts_come_back_equal(void **state) {
    struct fixture *fix = *state;
    uint32_t layers[64];
    uint64_t *rows = calloc(WEFT_EXPERT_SERIES_MAX, sizeof *rows);
    assert_non_null(rows);
    for (uint32_t i = 0; i < 64; i++)
        layers[i] = i + 3;
    for (uint32_t i = 0; i < WEFT_EXPERT_SERIES_MAX; i++)
        rows[i] = UINT64_MAX - i;
    struct weft_msg msg = {.type = WEFT_MSG_EXPERTS};
    msg.experts = (struct weft_msg_experts){64, WEFT_EXPERTS_MAX, layers, rows};
    encode(fix, &msg);
    assert_in_range(fix->buf.len, 0, 8 * WEFT_EXPERT_SERIES_MAX + 300);
    assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_OK);
    assert_true(proto_equal(&msg, &fix->msg));
    free(rows);
}

static void running_out_of_memory_is_an_error_and_passes(void **state) {
    struct fixture *fix = *state;
    uint32_t tokens[8192] = {0};
    struct weft_msg msg = sample(WEFT_MSG_SUBMIT, false);
    msg.submit.prompt = tokens;
    msg.submit.n_prompt = 8192; /* more than the first chunk */
    encode(fix, &msg);
    uint64_t n_failed = 0;
    weft_err err = WEFT_E_NOMEM;
    while (err) {
        n_allocations = 0;
        fail_at = n_failed + 1;
        err = decode(fix, fix->buf.data, fix->buf.len);
        fail_at = 0;
        if (err) {
            assert_int_equal(err, WEFT_E_NOMEM);
            assert_null(fix->msg.submit.prompt); /* nothing half done */
            n_failed++;
            weft_proto_decoder_free(fix->decoder); /* cold again */
            assert_int_equal(weft_proto_decoder_new(&fix->decoder), WEFT_OK);
        }
    }
    assert_in_range(n_failed, 1, 20);
    assert_true(proto_equal(&msg, &fix->msg));
}

/* In steady state decoding takes nothing from the heap. */
static void a_warm_decoder_allocates_nothing(void **state) {
    struct fixture *fix = *state;
    struct weft_msg msg = sample(WEFT_MSG_PLAN, true);
    encode(fix, &msg);
    for (int i = 0; i < 3; i++)
        assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_OK);
    n_allocations = 0;
    for (int i = 0; i < 100; i++)
        assert_int_equal(decode(fix, fix->buf.data, fix->buf.len), WEFT_OK);
    assert_int_equal(n_allocations, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_message_comes_back_equal),
        TEST(an_unaligned_message_is_fine),
        TEST(a_large_message_comes_back_and_its_memory_is_let_go),
        TEST(the_largest_result_and_events_fit_a_message),
        TEST(the_bytes_are_the_golden_ones),
        TEST(later_fields_are_skipped),
        TEST(what_is_not_text_goes_out_as_question_marks),
        TEST(a_buffer_that_is_too_small_gets_nothing),
        TEST(names_of_types_are_known),
        TEST(every_truncation_is_refused),
        TEST(another_version_is_refused_by_name),
        TEST(more_workers_serving_than_there_are_is_refused),
        TEST(ranks_are_of_groups_that_are_there),
        TEST(a_snapshot_without_activity_is_understood),
        TEST(activity_that_makes_no_sense_is_refused),
        TEST(what_is_no_message_is_refused),
        TEST(long_forms_of_numbers_are_fine),
        TEST(nesting_is_bounded),
        TEST(claims_without_bytes_cost_nothing),
        TEST(a_submit_that_contradicts_itself_is_refused),
        TEST(a_plan_that_contradicts_itself_is_refused),
        TEST(starts_that_drop_too_much_are_refused),
        TEST(results_and_events_that_contradict_themselves_are_refused),
        TEST(values_come_with_an_end_and_without_a_token),
        TEST(a_pooling_leaves_no_room_for_tokens),
        TEST(hellos_and_snapshots_are_checked),
        TEST(counters_of_another_release_are_read_as_far_as_both_know_them),
        TEST(counts_of_experts_are_checked),
        TEST(the_largest_counts_of_experts_come_back_equal),
        TEST(running_out_of_memory_is_an_error_and_passes),
        TEST(a_warm_decoder_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
