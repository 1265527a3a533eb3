/* What a request's head says of how, and for whom, it is to be served: as gateways in front of the
 * server put it there. It goes before the same in the body, which the client wrote. */
#include <stdio.h>
#include <string.h>

#include "api/limits.h"
#include "base/parse.h"
#include "http/head.h"

#define NUMBER_BYTES_MAX 32

static void read_wish(struct weft_api_http *h, const char *name, const struct weft_api_span *span,
                      uint64_t *us_out) {
    char text[NUMBER_BYTES_MAX + 1];
    double ms = -1;
    if (!span->at) return;
    if (span->len <= NUMBER_BYTES_MAX) {
        (void)snprintf(text, sizeof text, "%.*s", (int)span->len, span->at);
        if (weft_parse_double(text, &ms)) ms = -1;
    }
    if (ms >= 0 && ms <= WEFT_API_SLO_MS_MAX)
        *us_out = weft_api_us_of_ms(ms);
    else
        weft_api_error_set(&h->refusal, 400, name, NULL,
                           "'%s' must be a number of milliseconds between 0 and %.9g", name,
                           WEFT_API_SLO_MS_MAX);
}

static void read_flow(struct weft_api_http *h, const char *name, const struct weft_api_span *id) {
    if (id->len > WEFT_API_USER_BYTES_MAX)
        weft_api_error_set(&h->refusal, 400, name, NULL, "'%s' must have at most %d bytes, got %zu",
                           name, WEFT_API_USER_BYTES_MAX, id->len);
    else if (id->len > 0)
        h->asks.flow = weft_api_flow(id->at, id->len);
}

void wefti_api_http_read_wishes(struct weft_api_http *h) {
    read_wish(h, "x-llm-d-slo-ttft-ms", &h->ttft, &h->asks.ttft_us);
    read_wish(h, "x-llm-d-slo-tpot-ms", &h->tpot, &h->asks.tpot_us);
    read_flow(h, "x-llm-d-inference-fairness-id", &h->fairness_id);
}
