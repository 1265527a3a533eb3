#include "workload.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/minmax.h"
#include "base/rand.h"
#include "traffic/arrivals.h"

/* What a number is drawn for: equal indices of different things must not meet. */
enum purpose { OF_GAPS, OF_PROMPT, OF_HASH, OF_DEADLINE };

static uint64_t seed_of(const struct weft_traffic_workload *w, enum purpose purpose, uint64_t idx) {
    uint64_t seed = w->options.seed, key = weft_rand_next(&seed) + (uint64_t)purpose;
    key = weft_rand_next(&key) ^ idx;
    return weft_rand_next(&key);
}

/* ----------------------------------------------------------------------------------- moments --- */

static weft_err check(const struct weft_traffic_options *o, struct weft_errmsg *why) {
    WEFT_ASSERT(o->n_turns > 0 && o->n_vocab > 0 && (o->trace || o->n_requests > 0));
    if (o->loop == WEFT_TRAFFIC_DRAWN && !(o->rate > 0))
        return weft_err_set(why, WEFT_E_INVAL, "--arrivals poisson, gamma and fixed need --rate");
    if (o->loop == WEFT_TRAFFIC_RECORDED && !o->trace)
        return weft_err_set(why, WEFT_E_INVAL, "--arrivals trace needs --trace");
    if (o->trace && o->n_turns > 1)
        return weft_err_set(why, WEFT_E_INVAL, "--trace has no conversations: leave out --turns");
    return WEFT_OK;
}

static uint64_t recorded_span(const struct weft_traffic_workload *w) {
    return w->options.trace->rows[w->n_jobs - 1].at_ns;
}

/* The moments of the trace, stretched so that they come at the rate. */
static void take_recorded(struct weft_traffic_workload *w) {
    const struct weft_traffic_row *rows = w->options.trace->rows;
    double stretch = 1;
    if (w->options.rate > 0)
        stretch = (w->n_jobs - 1) / w->options.rate * 1e9 / (double)recorded_span(w);
    for (uint32_t i = 0; i < w->n_jobs; i++) {
        double at_ns = (double)rows[i].at_ns * stretch;
        w->at_ns[i] = stretch == 1 ? rows[i].at_ns : (uint64_t)(at_ns < 1e19 ? at_ns : 1e19);
    }
}

weft_err weft_traffic_workload_init(struct weft_traffic_workload *w,
                                    const struct weft_traffic_options *options,
                                    struct weft_errmsg *why) {
    *w = (struct weft_traffic_workload){.options = *options};
    weft_err err = check(options, why);
    if (err) return err;
    w->n_requests = options->n_requests;
    if (options->trace && (w->n_requests == 0 || w->n_requests > options->trace->n_rows))
        w->n_requests = options->trace->n_rows;
    w->n_jobs = weft_div_up_u32(w->n_requests, options->n_turns);
    if (options->loop == WEFT_TRAFFIC_CLOSED) return WEFT_OK;
    if (options->loop == WEFT_TRAFFIC_RECORDED && options->rate > 0 && w->n_jobs > 1 &&
        recorded_span(w) == 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the trace's first %u requests come all at once: they have no speed "
                            "that --rate could change",
                            w->n_jobs);
    w->at_ns = malloc(w->n_jobs * sizeof *w->at_ns);
    if (!w->at_ns) return weft_err_set(why, WEFT_E_NOMEM, "no memory for %u arrivals", w->n_jobs);
    if (options->loop == WEFT_TRAFFIC_RECORDED)
        take_recorded(w);
    else
        weft_traffic_arrivals(options->rate, options->burstiness, seed_of(w, OF_GAPS, 0), w->n_jobs,
                              w->at_ns);
    return WEFT_OK;
}

void weft_traffic_workload_fini(struct weft_traffic_workload *w) {
    free(w->at_ns);
    w->at_ns = NULL;
}

/* ---------------------------------------------------------------------------------- requests --- */

uint32_t weft_traffic_turns(const struct weft_traffic_workload *w, uint32_t job) {
    WEFT_ASSERT(job < w->n_jobs);
    return weft_min_u32(w->options.n_turns, w->n_requests - job * w->options.n_turns);
}

struct weft_traffic_request weft_traffic_request(const struct weft_traffic_workload *w,
                                                 uint32_t job, uint32_t turn) {
    const struct weft_traffic_options *o = &w->options;
    WEFT_ASSERT(turn < weft_traffic_turns(w, job));
    struct weft_traffic_request request = {turn ? o->turn_tokens : o->prompt_tokens, o->max_tokens,
                                           0};
    if (o->trace) {
        const struct weft_traffic_row *row = &o->trace->rows[job];
        request.n_prompt = weft_max_u32(row->n_in / o->scale, 1);
        request.n_output =
            weft_max_u32(row->n_out / o->output_scale, weft_max_u32(o->output_min, 1));
    }
    if (o->n_deadlines > 0) {
        uint64_t seed = seed_of(w, OF_DEADLINE, (uint64_t)job * o->n_turns + turn);
        request.deadline_ms = o->deadlines_ms[weft_rand_below(&seed, o->n_deadlines)];
    }
    return request;
}

/* A list of token ids that is written, or the text of a message. */
struct writer {
    struct weft_buf *list;
    uint32_t n_vocab;
    bool is_chat, is_first;
};

/* Short, so that most tokenizers have one token for each of them. */
static const char *const words[] = {
    "the",   "and",  "that", "with",  "this", "from", "they", "have",  "were", "been", "their",
    "which", "when", "what", "will",  "more", "some", "time", "very",  "into", "just", "only",
    "over",  "also", "back", "after", "work", "year", "most", "make",  "good", "life", "where",
    "down",  "long", "here", "both",  "hand", "high", "part", "place", "case", "week", "house",
    "world", "area", "name", "home",  "side", "kind", "head", "line",  "end",  "game", "law",
    "car",   "city", "team", "war",   "idea", "body", "door", "face",  "book"};

static void put(struct writer *out, uint64_t *seed) {
    const uint32_t n_words = sizeof words / sizeof words[0];
    if (out->is_chat)
        weft_buf_printf(out->list, "%s%s", out->is_first ? "" : " ",
                        words[weft_rand_below(seed, n_words)]);
    else
        weft_buf_printf(out->list, "%s%u", out->is_first ? "" : ",",
                        weft_rand_below(seed, out->n_vocab));
    out->is_first = false;
}

/* The block of the recorded prompt that position `at` of the scaled one lies in. */
static uint32_t block_of(const struct weft_traffic_workload *w, uint32_t at) {
    return (uint32_t)((uint64_t)at * w->options.scale / WEFT_TRAFFIC_BLOCK_TOKENS);
}

static void put_prompt(const struct weft_traffic_workload *w, uint32_t job, uint32_t turn,
                       struct writer *out) {
    const struct weft_traffic_trace *trace = w->options.trace;
    const struct weft_traffic_row *row = trace ? &trace->rows[job] : NULL;
    uint32_t n = weft_traffic_request(w, job, turn).n_prompt, n_hashes = row ? row->n_hashes : 0;
    uint64_t own = seed_of(w, OF_PROMPT, (uint64_t)job * w->options.n_turns + turn);
    uint64_t of_block = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = block_of(w, i);
        if (block >= n_hashes) {
            put(out, &own);
            continue;
        }
        if (i == 0 || block != block_of(w, i - 1))
            of_block = seed_of(w, OF_HASH, trace->hashes[row->first_hash + block]);
        put(out, &of_block);
    }
}

void weft_traffic_add_prompt(const struct weft_traffic_workload *w, uint32_t job, uint32_t turn,
                             struct weft_buf *list) {
    struct writer out = {list, w->options.n_vocab, w->options.is_chat, true};
    if (list->len > 0) weft_buf_add_char(list, ',');
    if (out.is_chat) weft_buf_add_str(list, "{\"role\":\"user\",\"content\":\"");
    put_prompt(w, job, turn, &out);
    if (out.is_chat) weft_buf_add_str(list, "\"}");
}
