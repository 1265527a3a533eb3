#include "report.h"

#include <stdio.h>
#include <string.h>

#include "json_text.h"

/* Rates of one run, from its counts. */
struct rates {
    double tokens, requests;
    double good_tokens, good_requests;
    double decoding;         /* tokens per second while all clients were decoding */
    double cpu_us_per_token; /* of this process */
};

static struct rates rates_of(const struct weft_clients_result *r) {
    struct rates rates = {0};
    const struct weft_traffic_tally *t = &r->tally;
    if (r->seconds > 0) {
        rates.tokens = (double)t->n_tokens / r->seconds;
        rates.requests = t->n_done / r->seconds;
        rates.good_tokens = (double)t->n_good_tokens / r->seconds;
        rates.good_requests = t->n_good / r->seconds;
    }
    /* An event may carry more than a token, or less (part of a character): the average counts. */
    if (r->decoding_seconds > 0 && r->n_events > 0)
        rates.decoding = (double)r->n_decoding_events / r->decoding_seconds * (double)t->n_tokens /
                         (double)r->n_events;
    if (t->n_tokens > 0) rates.cpu_us_per_token = r->cpu_seconds * 1e6 / (double)t->n_tokens;
    return rates;
}

/* Of a conversation that broke off, or of a load that was given up. */
static uint32_t n_not_sent(const struct weft_report_facts *facts,
                           const struct weft_clients_result *r) {
    return facts->clients->workload->n_requests - r->tally.n_done - r->tally.n_failed;
}

/* ------------------------------------------------------------------------------------ JSON --- */

static void print_json_times(const char *name, struct weft_traffic_times *times) {
    printf(", \"%s\": {\"p50\": %.3f, \"p95\": %.3f, \"p99\": %.3f}", name,
           weft_traffic_percentile(times, 0.50), weft_traffic_percentile(times, 0.95),
           weft_traffic_percentile(times, 0.99));
}

static void print_json_text(const char *name, const char *text) {
    printf(", \"%s\": ", name);
    if (text)
        weft_print_json_string(stdout, text, strlen(text));
    else
        printf("null");
}

static void print_json_load(const struct weft_report_facts *facts) {
    const struct weft_traffic_options *o = &facts->clients->workload->options;
    print_json_text("arrivals", facts->arrivals);
    printf(", \"rate\": %g, \"burstiness\": %g, \"turns\": %u", o->rate, o->burstiness, o->n_turns);
    print_json_text("trace", facts->trace);
}

static void print_json_errors(const struct weft_traffic_tally *t) {
    const char *comma = "";
    printf(", \"errors\": {");
    for (uint32_t i = 0; i < t->n_statuses; i++, comma = ", ")
        printf("%s\"%u\": %u", comma, t->statuses[i].status, t->statuses[i].n);
    for (int kind = 0; kind < WEFT_TRAFFIC_N_FAILURES; kind++) {
        const char *name = weft_traffic_failure_name((enum weft_traffic_failure)kind);
        if (!name || t->n_failures[kind] == 0) continue;
        printf("%s\"%s\": %u", comma, name, t->n_failures[kind]);
        comma = ", ";
    }
    printf("}");
}

static void print_json_cache(const struct weft_traffic_tally *t) {
    printf(", \"prompt_tokens_total\": %llu", (unsigned long long)t->n_prompt);
    if (t->has_cached)
        printf(", \"cached_tokens\": %llu", (unsigned long long)t->n_cached);
    else
        printf(", \"cached_tokens\": null");
}

static void print_json_goodput(const struct weft_traffic_tally *t, const struct rates *rates) {
    printf(", \"goodput\": {\"requests\": %u, \"requests_per_s\": %.3f, \"tokens\": %llu, "
           "\"tokens_per_s\": %.2f}",
           t->n_good, rates->good_requests, (unsigned long long)t->n_good_tokens,
           rates->good_tokens);
}

static void print_json_turns(struct weft_traffic_tally *t) {
    printf(", \"by_turn\": [");
    for (uint32_t i = 0; i < t->n_turns; i++) {
        struct weft_traffic_turn *turn = &t->turns[i];
        printf("%s{\"turn\": %u, \"requests\": %zu, \"prompt_tokens\": %llu, \"cached_tokens\": "
               "%llu",
               i ? ", " : "", i + 1, turn->first.n, (unsigned long long)turn->n_prompt,
               (unsigned long long)turn->n_cached);
        print_json_times("first_token_ms", &turn->first);
        printf("}");
    }
    printf("]");
}

void weft_report_json(const struct weft_report_facts *facts, struct weft_clients_result *r) {
    const struct weft_traffic_workload *w = facts->clients->workload;
    struct weft_traffic_tally *t = &r->tally;
    struct rates rates = rates_of(r);
    printf("{\"concurrency\": %u, \"requests\": %u, \"failed\": %u, \"prompt_tokens\": %u, "
           "\"max_tokens\": %u, \"seconds\": %.4f, \"tokens\": %llu, \"tokens_per_s\": %.2f, "
           "\"requests_per_s\": %.3f",
           facts->clients->n_clients, w->n_requests, t->n_failed, w->options.prompt_tokens,
           w->options.max_tokens, r->seconds, (unsigned long long)t->n_tokens, rates.tokens,
           rates.requests);
    print_json_times("first_token_ms", &t->first);
    print_json_times("between_tokens_ms", &t->between);
    print_json_times("request_ms", &t->whole);
    printf(", \"all_decoding\": {\"seconds\": %.4f, \"tokens_per_s\": %.2f}, "
           "\"client_us_per_token\": %.2f",
           r->decoding_seconds, rates.decoding, rates.cpu_us_per_token);
    if (t->n_failed > 0) print_json_text("first_failure", t->why.text);
    print_json_load(facts);
    print_json_times("late_ms", &t->late);
    printf(", \"not_sent\": %u", n_not_sent(facts, r));
    print_json_errors(t);
    printf(", \"retry_after\": %zu", t->retry_after.n);
    print_json_times("retry_after_ms", &t->retry_after);
    print_json_cache(t);
    if (facts->has_goal) print_json_goodput(t, &rates);
    if (t->n_turns > 1) print_json_turns(t);
    printf("}\n");
}

/* ----------------------------------------------------------------------------------- table --- */

static void print_times(const char *name, struct weft_traffic_times *times) {
    printf("%-16s %10.2f %10.2f %10.2f\n", name, weft_traffic_percentile(times, 0.50),
           weft_traffic_percentile(times, 0.95), weft_traffic_percentile(times, 0.99));
}

static void print_load(const struct weft_report_facts *facts, const struct weft_clients_result *r) {
    const struct weft_traffic_workload *w = facts->clients->workload;
    if (w->at_ns)
        printf("%u requests, %s", w->n_requests, facts->arrivals);
    else
        printf("%u clients, %u requests", facts->clients->n_clients, w->n_requests);
    if (w->options.rate > 0) printf(", %g per second", w->options.rate);
    if (facts->trace)
        printf(" of %s", facts->trace);
    else
        printf(" of %u tokens in and %u out", w->options.prompt_tokens, w->options.max_tokens);
    if (w->options.n_turns > 1) printf(", %u turns each", w->options.n_turns);
    printf(", %u failed\n", r->tally.n_failed);
}

static void print_errors(const struct weft_traffic_tally *t) {
    if (t->n_failed == 0) return;
    printf("failed:");
    for (uint32_t i = 0; i < t->n_statuses; i++)
        printf(" %u with status %u", t->statuses[i].n, t->statuses[i].status);
    for (int kind = 0; kind < WEFT_TRAFFIC_N_FAILURES; kind++) {
        const char *name = weft_traffic_failure_name((enum weft_traffic_failure)kind);
        if (name && t->n_failures[kind] > 0) printf(" %u %s", t->n_failures[kind], name);
    }
    printf("; %zu were told when to come back\n", t->retry_after.n);
}

static void print_cache(const struct weft_traffic_tally *t) {
    if (!t->has_cached || t->n_prompt == 0) return;
    printf("cached: %llu of %llu prompt tokens (%.1f %%)\n", (unsigned long long)t->n_cached,
           (unsigned long long)t->n_prompt, 100 * (double)t->n_cached / (double)t->n_prompt);
}

static void print_turns(struct weft_traffic_tally *t) {
    for (uint32_t i = 0; i < t->n_turns && t->n_turns > 1; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "  of turn %u", i + 1);
        print_times(name, &t->turns[i].first);
    }
}

void weft_report_table(const struct weft_report_facts *facts, struct weft_clients_result *r) {
    struct weft_traffic_tally *t = &r->tally;
    struct rates rates = rates_of(r);
    print_load(facts, r);
    print_errors(t);
    printf("%.2f s: %.1f tokens/s, %.2f requests/s; %.1f tokens/s while all were decoding "
           "(%.2f s)\n",
           r->seconds, rates.tokens, rates.requests, rates.decoding, r->decoding_seconds);
    if (facts->has_goal)
        printf("goodput: %.2f requests/s, %.1f tokens/s (%u requests)\n", rates.good_requests,
               rates.good_tokens, t->n_good);
    print_cache(t);
    printf("\n%-16s %10s %10s %10s\n", "ms", "median", "95 %", "99 %");
    print_times("first token", &t->first);
    print_turns(t);
    print_times("between tokens", &t->between);
    print_times("whole request", &t->whole);
    if (facts->clients->workload->at_ns) print_times("sent late by", &t->late);
}

/* -------------------------------------------------------------------------------- progress --- */

void weft_report_progress(const struct weft_clients_progress *p) {
    const struct weft_traffic_tally *t = p->tally;
    (void)fprintf(stderr, "\r\x1b[K%.0f s: %u answered, %u failed, %u running, %.0f events/s",
                  p->seconds, t->n_done, t->n_failed, p->n_running,
                  p->seconds > 0 ? (double)p->n_events / p->seconds : 0);
    (void)fflush(stderr);
}

void weft_report_progress_end(void) {
    (void)fprintf(stderr, "\r\x1b[K");
}
