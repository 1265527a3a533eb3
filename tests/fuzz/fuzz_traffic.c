/* What load tests read: recorded traces, and the streams of servers. A stream in pieces must come to
 * the same as in one; an input is both, and is cut at places that its own bytes choose. */
#include <string.h>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "traffic/reply.h"
#include "traffic/workload.h"

static void check_trace(const uint8_t *bytes, size_t n) {
    struct weft_errmsg why = {{0}};
    struct weft_traffic_trace trace;
    weft_err err =
        weft_traffic_trace_parse("fuzz", (const char *)bytes, n, n % 2 ? 3 : 0, &trace, &why);
    WEFT_ASSERT(!err || (why.text[0] && !trace.rows && !trace.hashes));
    if (err) return;
    WEFT_ASSERT(trace.n_rows > 0 && trace.rows[0].at_ns == 0);
    WEFT_ASSERT(n % 2 == 0 || trace.n_rows <= 3);
    for (uint32_t i = 0; i < trace.n_rows; i++) {
        const struct weft_traffic_row *row = &trace.rows[i];
        WEFT_ASSERT(i == 0 || trace.rows[i - 1].at_ns <= row->at_ns);
        WEFT_ASSERT(row->n_in <= WEFT_TRAFFIC_TOKENS_MAX && row->n_out <= WEFT_TRAFFIC_TOKENS_MAX);
        WEFT_ASSERT(row->first_hash + row->n_hashes <= trace.n_hashes);
    }
    struct weft_traffic_options options = {.loop = WEFT_TRAFFIC_RECORDED,
                                           .rate = (double)(n % 3),
                                           .n_turns = 1,
                                           .n_vocab = 100,
                                           .trace = &trace,
                                           .scale = 100000,
                                           .output_scale = 7};
    struct weft_traffic_workload workload;
    struct weft_buf prompt;
    weft_buf_init(&prompt, 1 << 16);
    err = weft_traffic_workload_init(&workload, &options, &why);
    WEFT_ASSERT(!err || why.text[0]);
    if (!err) weft_traffic_add_prompt(&workload, workload.n_jobs - 1, 0, &prompt);
    WEFT_ASSERT(err || (prompt.len > 0 && !prompt.failed));
    weft_buf_fini(&prompt);
    weft_traffic_workload_fini(&workload);
    weft_traffic_trace_fini(&trace);
}

static void count(void *context) {
    ++*(size_t *)context;
}

/* The size of the next piece is a byte of the input. */
static void feed_pieces(struct weft_traffic_reply *reply, const uint8_t *bytes, size_t n) {
    for (size_t at = 0; at < n;) {
        size_t piece = 1 + bytes[at] % 16;
        if (piece > n - at) piece = n - at;
        weft_traffic_reply_feed(reply, (const char *)bytes + at, piece);
        at += piece;
    }
}

static void check_reply(const uint8_t *bytes, size_t n, bool is_chat, enum weft_traffic_keep keep) {
    struct weft_traffic_reply whole, pieces;
    size_t n_whole = 0, n_pieces = 0;
    weft_traffic_reply_init(&whole, is_chat, keep, count, &n_whole);
    weft_traffic_reply_init(&pieces, is_chat, keep, count, &n_pieces);
    weft_traffic_reply_feed(&whole, (const char *)bytes, n);
    feed_pieces(&pieces, bytes, n);
    WEFT_ASSERT(n_whole == n_pieces && whole.is_done == pieces.is_done);
    WEFT_ASSERT(whole.is_faulty == pieces.is_faulty && whole.is_faulty == (whole.fault[0] != 0));
    WEFT_ASSERT(whole.n_completion == pieces.n_completion && whole.n_cached == pieces.n_cached);
    WEFT_ASSERT(whole.answer.len == pieces.answer.len &&
                (whole.answer.len == 0 ||
                 !memcmp(whole.answer.data, pieces.answer.data, whole.answer.len)));
    WEFT_ASSERT(keep != WEFT_TRAFFIC_KEEP_NOTHING || whole.answer.len == 0);
    weft_traffic_reply_fini(&whole);
    weft_traffic_reply_fini(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    check_trace(bytes, n);
    check_reply(bytes, n, false, WEFT_TRAFFIC_KEEP_NOTHING);
    check_reply(bytes, n, false, WEFT_TRAFFIC_KEEP_IDS);
    check_reply(bytes, n, true, WEFT_TRAFFIC_KEEP_TEXT);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const texts[] = {
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2031-05-06 07:08:09.2500000,900,10\n"
        "2031-05-06 07:08:09.3020000,77,8\n2024-02-29T00:00:00+00:00,1,0\n",
        "{\"timestamp\": 5, \"input_length\": 1100, \"output_length\": 6, \"hash_ids\": [7, 8]}\n"
        "{\"timestamp\": 2.5, \"input_length\": 600, \"output_length\": 0, \"hash_ids\": [7]}\n"
        "{\"timestamp\": 2.5, \"input_length\": 600, \"output_length\": 0}\n",
        ": hello\n\ndata: {\"choices\":[{\"index\":0,\"text\":\" a\",\"logprobs\":{\"tokens\":"
        "[\"token_id:46\"],\"top_logprobs\":[{\"token_id:46\":-1}]}}],\"usage\":null}\n\n"
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":1,"
        "\"prompt_tokens_details\":{\"cached_tokens\":2}}}\r\n\r\ndata: [DONE]\n\n",
        "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[46, 1259]}]}\n\n"
        "data: {\"choices\":[{\"text\":\"b\",\"logprobs\":{\"content\":[{\"id\":46}]}}]}\n\n"
        "data: {\"error\":{\"message\":\"lost\"}}\n\n",
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
        "data: {\"choices\":[{\"delta\":{\"content\":\"say \\\"a\\\\\"}}]}\n\ndata: [DONE]\n\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        add(texts[i], strlen(texts[i]));
}
