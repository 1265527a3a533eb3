/* How, and for whom, a request is to be served: the scheduler decides by these, and no token
 * changes with them. */
#include <stdio.h>
#include <string.h>

#include "codec/digest.h"
#include "params/params_internal.h"

#define SALT_BYTES_MAX 1024
#define TIMEOUT_S_MIN 0.001
#define TIMEOUT_S_MAX 86400.0 /* a day */

/* A wished time in milliseconds; 0 asks for nothing. */
static void read_wish(const struct reader *r, const char *name, uint64_t *us_out) {
    double ms = 0;
    if (wefti_api_json_get_double(r, name, 0, WEFT_API_SLO_MS_MAX, &ms))
        *us_out = weft_api_us_of_ms(ms);
}

/* A user is told from others by the text, which nobody keeps. Empty: nobody is named. */
static void read_flow(const struct reader *r, const char *name, uint64_t *flow_out) {
    const json_t *value = wefti_api_json_get(r, name);
    size_t len = json_string_length(value);
    if (value && !json_is_string(value))
        wefti_api_json_wrong_type(r, name, "a string", value);
    else if (len > WEFT_API_USER_BYTES_MAX)
        weft_api_error_set(r->error, 400, name, NULL, "'%s' must have at most %d bytes, got %zu",
                           name, WEFT_API_USER_BYTES_MAX, len);
    else if (len > 0)
        *flow_out = weft_api_flow(json_string_value(value), len);
}

static void read_salt(const struct reader *r, struct service *service) {
    const json_t *value = wefti_api_json_get(r, "cache_salt");
    if (!value) return;
    size_t len = json_string_length(value);
    if (!json_is_string(value))
        wefti_api_json_wrong_type(r, "cache_salt", "a string", value);
    else if (len == 0 || len > SALT_BYTES_MAX)
        weft_api_error_set(r->error, 400, "cache_salt", NULL,
                           "'cache_salt' must have 1 to %d bytes, got %zu", SALT_BYTES_MAX, len);
    else
        service->cache_salt = weft_digest_of("cache_salt", json_string_value(value), len);
}

/* Names of sessions stand in paths and in logs. */
bool wefti_api_is_session_id(struct weft_str id) {
    if (id.len == 0 || id.len > WEFT_SESSION_ID_BYTES_MAX) return false;
    for (size_t i = 0; i < id.len; i++) {
        if ((unsigned char)id.data[i] < 0x20 || id.data[i] == 0x7f) return false;
    }
    return true;
}

#define SLOT "slot-"

uint32_t wefti_api_slot_session(uint32_t idx, char name_out[WEFT_SESSION_ID_BYTES_MAX]) {
    return (uint32_t)snprintf(name_out, WEFT_SESSION_ID_BYTES_MAX, SLOT "%u", idx);
}

uint32_t wefti_api_slot_of(const char *name, uint32_t len) {
    uint32_t idx = 0;
    for (uint32_t i = sizeof SLOT - 1; i < len; i++)
        idx = idx * 10 + (uint32_t)(name[i] - '0');
    return idx;
}

/* llama-server's: a number stands for a conversation; -1: for none. */
static void read_slot(const struct reader *r, struct service *service) {
    int64_t idx = -1;
    if (!wefti_api_json_get_int(r, "id_slot", -1, INT32_MAX, &idx) || idx < 0) return;
    service->n_session_id = wefti_api_slot_session((uint32_t)idx, service->session_id);
}

static void read_session(const struct reader *r, struct service *service) {
    const json_t *value = wefti_api_json_get(r, "session_id");
    struct weft_str id = {json_string_value(value), json_string_length(value)};
    if (!value) return;
    if (!json_is_string(value)) {
        wefti_api_json_wrong_type(r, "session_id", "a string", value);
    } else if (!wefti_api_is_session_id(id)) {
        weft_api_error_set(r->error, 400, "session_id", NULL,
                           "'session_id' must have 1 to %d bytes and no control characters",
                           WEFT_SESSION_ID_BYTES_MAX);
    } else {
        memcpy(service->session_id, id.data, id.len);
        service->n_session_id = (uint32_t)id.len;
    }
}

void wefti_api_params_read_service(const struct reader *r, struct params *params) {
    struct service *service = &params->service;
    int64_t priority = 0;
    double timeout_s = 0;
    bool speculative = true;
    wefti_api_json_get_int(r, "priority", INT32_MIN, INT32_MAX, &priority);
    service->priority = (int32_t)priority;
    if (wefti_api_json_get_double(r, "timeout", TIMEOUT_S_MIN, TIMEOUT_S_MAX, &timeout_s))
        service->timeout_us = weft_api_us_of_ms(timeout_s * 1000);
    read_wish(r, "slo_ttft_ms", &service->ttft_us);
    read_wish(r, "slo_tpot_ms", &service->tpot_us);
    read_flow(r, "user", &service->flow);
    read_flow(r, "fairness_id", &service->flow); /* goes before it */
    read_salt(r, service);
    (void)wefti_api_json_get_bool(r, "speculative", &speculative);
    service->no_guesses = !speculative;
    read_slot(r, service);
    read_session(r, service); /* goes before it */
}
