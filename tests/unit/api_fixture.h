/* api_fixture — calls over a link made of paper: the test is the scheduler, and the clock.
 *
 * What calls send lies in `paper`. The put_... functions are the scheduler's messages; after each
 * the loop has one turn.
 */
#ifndef WEFT_TESTS_API_FIXTURE_H
#define WEFT_TESTS_API_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "api/api.h"
#include "inside/api/call/call_internal.h"
#include "inside/api/kinds/kind.h"

#define CALL_COMPLETION (&wefti_api_kind_completion)
#define CALL_CHAT (&wefti_api_kind_chat)
#define CALL_LLAMA (&wefti_api_kind_llama)
#define CALL_TOKENIZE (&wefti_api_kind_tokenize)
#define CALL_DETOKENIZE (&wefti_api_kind_detokenize)

#define SENT_MAX 1024

struct sent {
    enum weft_proto_type type;
    uint32_t scheduler; /* that it went to */
    uint64_t id;
    uint32_t attempt, choice, n_prompt, n_choices, n_output[4], output[4][32], n_lps_done;
    bool finished[4], resume;
    uint64_t seed, deadline_us;
    int32_t priority;
    uint64_t ttft_us, tpot_us, tenant, flow;
    uint32_t weight;
    struct weft_digest cache_salt;
    struct weft_pooling pooling;
};

#define PAPERS_MAX 3 /* schedulers */

struct paper {
    bool is_up[PAPERS_MAX];
    struct sent sent[SENT_MAX];
    uint32_t n_sent, n_resets;
    weft_proto_decoder *decoder;
};

extern struct paper paper;
extern struct weft_api_state api; /* with models/fable-6m's tokenizer and no template */
extern uint64_t now_us;
extern uint32_t n_wakes;

/* In snapshots. A case that changes them puts them back. */
extern uint32_t max_queue;
extern const char *fingerprint;
extern uint32_t n_running; /* requests, of all routers */
extern uint32_t from; /* the scheduler whose link, snapshots and messages are put; 0 at first */
extern struct weft_api_asker asker; /* of calls to come. A case that changes it puts it back. */

/* A scheduler that serves; at the end nothing may be held or open. */
int set_up(void **state);
int set_up_several(uint32_t n); /* the same with `n` of them, up to PAPERS_MAX */
int tear_down(void **state);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

const struct sent *last_sent(void);

/* The loop's work once per turn. */
void deliver(void);

void put_link(bool is_up);
void put_msg(const struct weft_msg *msg);
void put_snapshot(bool serving);
void put_accepted(const struct sent *sent);
void put_event(const struct weft_event *event);
void put_token(const struct sent *sent, uint32_t choice, uint32_t idx, uint32_t token,
               enum weft_end end);

/* A token whose log-probability, minus its index, says which it is; two alternatives. */
void put_lp_token(const struct sent *sent, uint32_t choice, uint32_t idx, enum weft_end end);
#define LP_BYTES (4 * (3 + 2 * 2)) /* of an entry with two alternatives */

/* The same for the `n` (up to 8) tokens of a prompt from `pos` on. */
void put_prompt_lps(const struct sent *sent, uint32_t choice, uint32_t pos, uint32_t n);

/* Ids of a text that does not begin a prompt. */
uint32_t encode(const char *text, uint32_t ids[32]);

/* Moves the body into a call; `request_id` as in weft_api_call_request. NULL: out of memory. */
weft_api_call *new_call(struct weft_buf *body, const weft_api_kind *kind, const char *request_id);

/* A call that is to be prepared. */
weft_api_call *in_hand(const char *json, const weft_api_kind *kind);

/* Calls that are started. `begin`: a completion; `begin_chat`: one message, two alternatives for
 * each token, and `fields`, each with a comma before it. */
weft_api_call *begin_kind(const weft_api_kind *kind, const char *json);
weft_api_call *begin(const char *json);
weft_api_call *begin_chat(const char *fields);

/* The texts of a stream's chunks, one after another; *done_out at "[DONE]". The caller frees it. */
char *stream_text(weft_api_call *call, bool *done_out);

/* Adds the JSON of a stream's next event; false: there is none yet. */
bool next_chunk(weft_api_call *call, struct weft_buf *out);

/* The answer of a finished call from its beginning, rendered in pieces of about `budget` bytes. The
 * caller drops it. */
json_t *body_of(weft_api_call *call, size_t budget);
const json_t *choice_of(const json_t *body, size_t i);
const char *text_of(const json_t *object, const char *key);

#endif
