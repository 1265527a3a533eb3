#include "call/session_call.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "kinds/kind.h"

void wefti_api_session_free_state(weft_api_call *call) {
    free(call->kind_state);
    call->kind_state = NULL;
}

/* NULL: no memory. */
static struct wefti_session_state *copy(const struct weft_session_answer *answer) {
    size_t n_names = 0;
    for (uint32_t i = 0; i < answer->n_told; i++)
        n_names += answer->told[i].id.len;
    struct wefti_session_state *state =
        malloc(sizeof *state + answer->n_told * sizeof state->told[0] + n_names);
    if (!state) return NULL;
    state->answer = *answer;
    state->answer.text = "";
    state->answer.told = state->told;
    char *names = (char *)&state->told[answer->n_told];
    for (uint32_t i = 0; i < answer->n_told; i++) {
        state->told[i] = answer->told[i];
        state->told[i].id.data = names;
        memcpy(names, answer->told[i].id.data, answer->told[i].id.len);
        names += answer->told[i].id.len;
    }
    return state;
}

static void fail(weft_api_call *call, weft_err err, const char *text) {
    static const struct {
        weft_err err;
        int status;
        const char *code;
    } ends[] = {
        {WEFT_E_INVAL, 400, NULL},
        {WEFT_E_UNSUPPORTED, 400, "sessions_off"},
        {WEFT_E_TOOBIG, 400, "session_too_long"},
        {WEFT_E_NOTFOUND, 404, "session_not_found"},
        {WEFT_E_PROTO, 409, "session_file_unusable"},
        {WEFT_E_AGAIN, 503, "session_not_now"},
        {WEFT_E_CLOSED, 503, "not_serving"},
        {WEFT_E_STATE, 503, "not_serving"},
        {WEFT_E_FULL, 507, "session_folder_full"},
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (ends[i].err != err) continue;
        uint32_t retry_ms = ends[i].status == 503 ? WEFT_API_RETRY_MS : 0;
        wefti_api_call_fail(call, ends[i].status, retry_ms, ends[i].code, text);
        return;
    }
    wefti_api_call_fail(call, 500, 0, "session_file", text);
}

static void answered(struct weft_api_session_ask *ask, const struct weft_session_answer *answer,
                     uint64_t now_us) {
    weft_api_call *call =
        (weft_api_call *)(void *)((char *)ask - offsetof(struct weft_api_call, session_ask));
    WEFT_ASSERT(call->state == WEFT_API_CALL_WAITING && !call->kind_state);
    bool is_gone = answer->err == WEFT_E_NOTFOUND && call->kind->takes_no_session;
    if (answer->err && !is_gone) {
        fail(call, answer->err, answer->text);
        return;
    }
    struct wefti_session_state *state = copy(answer);
    if (!state) {
        wefti_api_call_fail(call, 500, 0, NULL, "out of memory");
        return;
    }
    state->took_us = now_us > call->arrived_us ? now_us - call->arrived_us : 0;
    call->kind_state = state;
    call->state = WEFT_API_CALL_DONE;
    call->wake(call);
}

void wefti_api_session_ask(weft_api_call *call) {
    const struct params *p = &call->params;
    const struct weft_session_wish wish = {
        .op = call->kind->session_op,
        .tenant = call->asker.tenant,
        .session_id = {p->service.session_id, p->service.n_session_id},
        .file = {p->session_file, p->n_session_file},
    };
    struct weft_errmsg why = {""};
    call->state = WEFT_API_CALL_WAITING;
    call->session_ask.answered = answered;
    weft_err err = weft_api_upstream_ask(call->api, &call->session_ask, &wish, &why);
    if (err) fail(call, err, why.text);
}
