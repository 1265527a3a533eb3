/* wire — how many fields each struct has on the wire; private to proto.
 *
 * The encoder writes these numbers and the decoder asks for at least as many, so the two cannot
 * drift apart; proto/schema.md lists the fields in order. A number may grow within a version (new
 * fields go to the end, older decoders skip them); anything else needs a new WEFT_PROTO_VERSION.
 */
#ifndef WEFT_PROTO_WIRE_H
#define WEFT_PROTO_WIRE_H

#include "proto/proto.h"

/* Fields of a message, its type included. */
#define WEFTI_PROTO_F_ROUTER_HELLO 4
#define WEFTI_PROTO_F_SUBMIT 26
#define WEFTI_PROTO_F_CANCEL 4
#define WEFTI_PROTO_F_SCHED_HELLO 5
#define WEFTI_PROTO_F_ACCEPTED 3
#define WEFTI_PROTO_F_REJECTED 6
#define WEFTI_PROTO_F_EVENTS 2
#define WEFTI_PROTO_F_SNAPSHOT 25 /* that every snapshot has; then those of its activity */
#define WEFTI_PROTO_F_WORKER_HELLO 5
#define WEFTI_PROTO_F_RESULT 11
#define WEFTI_PROTO_F_HEARTBEAT 4 /* likewise; then who is awaited */
#define WEFTI_PROTO_F_PLAN 12
#define WEFTI_PROTO_F_EXPERTS 4
#define WEFTI_PROTO_F_RESET_CACHE 1
#define WEFTI_PROTO_F_GRAMMAR_AHEAD 4
#define WEFTI_PROTO_F_COMPILED 3
#define WEFTI_PROTO_F_SESSION 6
#define WEFTI_PROTO_F_SESSION_DONE 7
#define WEFTI_PROTO_F_KV_FILE 11
#define WEFTI_PROTO_F_KV_FILED 9
#define WEFTI_PROTO_F_ADD_LORA 5
#define WEFTI_PROTO_F_REMOVE_LORA 2
#define WEFTI_PROTO_F_LORA 7

/* Fields of nested structs. */
#define WEFTI_PROTO_F_MODEL 23
#define WEFTI_PROTO_ONE_MORE(...) +1
#define WEFTI_PROTO_F_SAMPLING (7 WEFT_SAMPLING_LIST(WEFTI_PROTO_ONE_MORE, WEFTI_PROTO_ONE_MORE))
#define WEFTI_PROTO_F_GRAMMAR 6
#define WEFTI_PROTO_F_CHOICE 3
#define WEFTI_PROTO_F_LOGPROBS 3
#define WEFTI_PROTO_F_SESSION_TOLD 4
#define WEFTI_PROTO_F_EVENT 14
#define WEFTI_PROTO_F_OUT 14
#define WEFTI_PROTO_F_START 17
#define WEFTI_PROTO_START_BYTES_MIN (WEFTI_PROTO_F_START + WEFTI_PROTO_F_SAMPLING)
#define WEFTI_PROTO_F_AWAITED 2
#define WEFTI_PROTO_F_ACTIVITY 4
#define WEFTI_PROTO_F_ACTIVITY_STEP 7
#define WEFTI_PROTO_F_ACTIVITY_SEQ 11

/* Flag bits of an event and of a step's out. */
#define WEFTI_PROTO_FLAG_SAMPLED 1u
#define WEFTI_PROTO_FLAG_RAN 2u
#define WEFTI_PROTO_FLAG_LATE 4u

/* Records sent as they are in memory: no padding, little-endian. */
_Static_assert(sizeof(struct weft_step_release) == 8, "slot, gen");
_Static_assert(sizeof(struct weft_step_copy) == 12, "from, to, kind");
_Static_assert(sizeof(struct weft_step_row) == 16, "slot, gen, n_tokens, n_spec");
_Static_assert(sizeof(struct weft_logit_bias) == 8, "token, bias");
_Static_assert(sizeof(struct weft_step_adapter) == 16, "id, scale, zero");

struct wefti_proto_grant_head {
    uint32_t slot, gen, kind, n_blocks;
};
_Static_assert(sizeof(struct wefti_proto_grant_head) == 16, "no padding");

struct wefti_proto_logprob_head {
    float logprob;
    uint32_t rank, n_top;
};
_Static_assert(sizeof(struct wefti_proto_logprob_head) == WEFT_LOGPROB_HEAD_BYTES, "no padding");

/* Bounds that limits.h does not name. */
#define WEFTI_PROTO_PATH_BYTES_MAX 4096u
#define WEFTI_PROTO_TEXT_BYTES_MAX 1024u  /* a rejection's sentence; weft_errmsg holds 512 */
#define WEFTI_PROTO_COUNTERS_MAX 256u     /* of a snapshot, of any later release */
#define WEFTI_PROTO_EVENTS_MAX (1u << 21) /* per message: a whole queue that expires, and a step */
#define WEFTI_PROTO_LOGPROBS_MAX                                                                   \
    (WEFT_STEP_LOGPROB_BYTES_MAX / WEFT_LOGPROB_TOP_BYTES) /* per list */
/* A sequence gets at most one per plan and kind. */
#define WEFTI_PROTO_GRANTS_MAX (WEFT_KV_KINDS * WEFT_SEQS_MAX)

_Static_assert(WEFT_COUNTERS <= WEFTI_PROTO_COUNTERS_MAX, "they fit");

/* The largest messages fit by construction. An out or an event has at most fourteen numbers of nine
 * bytes, two lists of log-probabilities: an array and three `bin` headers of five bytes each, and the
 * header of values, besides entries and values themselves, which are counted as
 * WEFT_STEP_LOGPROB_BYTES_MAX. Each forced token
 * of an out, of five bytes at most, becomes an event. */
#define WEFTI_PROTO_ROW_BYTES_MAX (1u + 14u * 9u + 2u * (1u + 3u * 5u) + 5u)
_Static_assert(WEFTI_PROTO_F_OUT <= 14 && WEFTI_PROTO_F_EVENT <= 14, "as counted");
_Static_assert(WEFT_STEP_LOGPROB_BYTES_MAX +
                       WEFT_SEQS_MAX * (1 + WEFT_MORE_MAX) * WEFTI_PROTO_ROW_BYTES_MAX + 1024 <=
                   WEFT_MESSAGE_BYTES_MAX,
               "a step's result, and what it becomes for one router, are one message each");

/* A start without its tokens, blocks (of each kind at most as many as tokens), grammar, allowed tokens and bad words:
 * numbers, stop tokens, biases and tokens of a pooling. */
#define WEFTI_PROTO_START_BYTES_MAX                                                                \
    (65u * 9u + WEFT_SEQ_ADAPTERS_MAX * 16u +                                                      \
     (WEFT_STOP_TOKENS_MAX + WEFT_DRY_BREAKERS_MAX + WEFT_POOLING_IDS_MAX) * 4u +                  \
     WEFT_LOGIT_BIAS_MAX * 8u)
/* A release and a row; for each kind a copy, a grant and one more block. */
#define WEFTI_PROTO_PLAN_SLOT_BYTES_MAX (8u + 12u + WEFT_KV_KINDS * (12u + 16u + 4u))
_Static_assert((1ull + WEFT_KV_KINDS) * 4u * WEFT_STEP_START_TOKENS_MAX +
                       WEFT_STEP_GRAMMAR_BYTES_MAX +
                       WEFT_SEQS_MAX *
                           (WEFTI_PROTO_START_BYTES_MAX + WEFTI_PROTO_PLAN_SLOT_BYTES_MAX) +
                       1024 <=
                   WEFT_MESSAGE_BYTES_MAX,
               "a plan is one message");

#endif
