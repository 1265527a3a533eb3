/* /v1/sessions: which conversations' blocks are kept (GET), /v1/sessions/ID: forgets one (DELETE), and
 * below that /save and /restore, from and to a file of the server's (POST). The scheduler knows all
 * of it, so these calls wait for its answer, as those that generate do (call/session_call.h). */
#include <string.h>

#include "call/session_call.h"
#include "kinds/kind.h"
#include "params/params_internal.h"

static void parse_nothing(const struct reader *r, const struct weft_api_limits *limits,
                          struct params *params) {
    (void)r;
    (void)limits;
    (void)params;
}

/* A name in the server's folder, and no path. */
static bool is_file_name(const char *name, size_t len) {
    if (len == 0 || len > WEFT_SESSION_FILE_BYTES_MAX || name[0] == '.') return false;
    for (size_t i = 0; i < len; i++) {
        if (name[i] == '/' || (unsigned char)name[i] < 0x20 || name[i] == 0x7f) return false;
    }
    return true;
}

static void parse_file(const struct reader *r, const struct weft_api_limits *limits,
                       struct params *params) {
    (void)limits;
    const json_t *value = wefti_api_json_get(r, "filename");
    const char *name = json_string_value(value);
    size_t len = json_string_length(value);
    if (value && !json_is_string(value)) {
        wefti_api_json_wrong_type(r, "filename", "a string", value);
    } else if (!name || !is_file_name(name, len)) {
        weft_api_error_set(r->error, 400, "filename", NULL,
                           "'filename' must be a name of 1 to %d bytes without '/' or control "
                           "characters, and with no '.' at first",
                           WEFT_SESSION_FILE_BYTES_MAX);
    } else {
        memcpy(params->session_file, name, len);
        params->n_session_file = (uint32_t)len;
    }
}

static void open_list(weft_api_call *call, struct weft_writer *w) {
    (void)call;
    weft_write_map(w);
    weft_write_key(w, "object");
    weft_write_str(w, "list");
    weft_write_key(w, "data");
    weft_write_list(w);
}

static void write_told(const struct weft_session_told *told, struct weft_writer *w) {
    weft_write_map(w);
    weft_write_key(w, "id");
    weft_write_text(w, told->id.data, told->id.len);
    weft_write_key(w, "object");
    weft_write_str(w, "session");
    weft_write_key(w, "n_tokens");
    weft_write_uint(w, told->n_tokens);
    weft_write_key(w, "n_blocks");
    weft_write_uint(w, told->n_blocks);
    weft_write_key(w, "idle_ms");
    weft_write_uint(w, told->idle_us / 1000);
    weft_write_end(w);
}

static bool list_part(const struct body_piece *at) {
    const struct wefti_session_state *state = at->call->kind_state;
    while (at->call->render.pos < state->answer.n_told) {
        write_told(&state->answer.told[at->call->render.pos++], at->w);
        if (at->w->out->len >= at->limit) return at->call->render.pos == state->answer.n_told;
    }
    return true;
}

static bool close_list(const struct body_piece *at) {
    weft_write_end(at->w);
    weft_write_end(at->w);
    return true;
}

/* llama-server's names for what it tells of a slot. */
static void open_done(weft_api_call *call, struct weft_writer *w) {
    const struct wefti_session_state *state = call->kind_state;
    const struct params *p = &call->params;
    enum weft_session_op op = call->kind->session_op;
    weft_write_map(w);
    weft_write_key(w, "id");
    weft_write_text(w, p->service.session_id, p->service.n_session_id);
    weft_write_key(w, "object");
    weft_write_str(w, "session");
    if (op == WEFT_SESSION_DROP) {
        weft_write_key(w, "deleted");
        weft_write_bool(w, true);
        return;
    }
    weft_write_key(w, "filename");
    weft_write_text(w, p->session_file, p->n_session_file);
    weft_write_key(w, op == WEFT_SESSION_SAVE ? "n_saved" : "n_restored");
    weft_write_uint(w, state->answer.n_tokens);
    weft_write_key(w, op == WEFT_SESSION_SAVE ? "n_written" : "n_read");
    weft_write_uint(w, state->answer.n_bytes);
}

static bool close_part(const struct body_piece *at) {
    weft_write_end(at->w);
    return true;
}

static const body_part no_parts[] = {NULL};
static const body_part list_parts[] = {list_part, close_list, NULL};
static const body_part done_parts[] = {close_part, NULL};

#define SESSIONS_KIND(name, its_path, its_op, its_parse, opens, parts)                             \
    const struct weft_api_kind wefti_api_kind_##name = {                                           \
        .path = its_path,                                                                          \
        .id_prefix = "session",                                                                    \
        .prompt_field = "session_id",                                                              \
        .asks_session = true,                                                                      \
        .session_op = its_op,                                                                      \
        .parse = its_parse,                                                                        \
        .open_body = opens,                                                                        \
        .choice_parts = no_parts,                                                                  \
        .end_parts = parts,                                                                        \
        .free_state = wefti_api_session_free_state,                                                \
    }

SESSIONS_KIND(session_list, "/v1/sessions", WEFT_SESSION_LIST, parse_nothing, open_list,
              list_parts);
SESSIONS_KIND(session_drop, "/v1/sessions/ID", WEFT_SESSION_DROP, parse_nothing, open_done,
              done_parts);
SESSIONS_KIND(session_save, "/v1/sessions/ID/save", WEFT_SESSION_SAVE, parse_file, open_done,
              done_parts);
SESSIONS_KIND(session_restore, "/v1/sessions/ID/restore", WEFT_SESSION_RESTORE, parse_file,
              open_done, done_parts);

/* ----------------------------------------------------------------------------------- slots --- */

/* POST /slots/N?action=save, restore, erase: llama-server's names for sessions. A slot is the session that
 * requests with "id_slot": N leave (params_service.c); no sequence has a place of its own here, so a number
 * is but a name. */

static void open_slot(const weft_api_call *call, struct weft_writer *w) {
    const struct service *service = &call->params.service;
    weft_write_map(w);
    weft_write_key(w, "id_slot");
    weft_write_uint(w, wefti_api_slot_of(service->session_id, service->n_session_id));
}

static void open_erased(weft_api_call *call, struct weft_writer *w) {
    const struct wefti_session_state *state = call->kind_state;
    open_slot(call, w);
    weft_write_key(w, "n_erased");
    weft_write_uint(w, state->answer.n_tokens);
}

static void open_filed(weft_api_call *call, struct weft_writer *w) {
    const struct wefti_session_state *state = call->kind_state;
    const struct params *p = &call->params;
    bool is_save = call->kind->session_op == WEFT_SESSION_SAVE;
    open_slot(call, w);
    weft_write_key(w, "filename");
    weft_write_text(w, p->session_file, p->n_session_file);
    weft_write_key(w, is_save ? "n_saved" : "n_restored");
    weft_write_uint(w, state->answer.n_tokens);
    weft_write_key(w, is_save ? "n_written" : "n_read");
    weft_write_uint(w, state->answer.n_bytes);
    weft_write_key(w, "timings");
    weft_write_map(w);
    weft_write_key(w, is_save ? "save_ms" : "restore_ms");
    weft_write_double(w, (double)state->took_us * 1e-3);
    weft_write_end(w);
}

#define SLOTS_KIND(name, its_op, its_parse, opens, is_lenient)                                     \
    const struct weft_api_kind wefti_api_kind_##name = {                                           \
        .path = "/slots/ID",                                                                       \
        .id_prefix = "slot",                                                                       \
        .prompt_field = "id_slot",                                                                 \
        .asks_session = true,                                                                      \
        .session_op = its_op,                                                                      \
        .takes_no_session = is_lenient,                                                            \
        .parse = its_parse,                                                                        \
        .open_body = opens,                                                                        \
        .choice_parts = no_parts,                                                                  \
        .end_parts = done_parts,                                                                   \
        .free_state = wefti_api_session_free_state,                                                \
    }

SLOTS_KIND(slot_save, WEFT_SESSION_SAVE, parse_file, open_filed, false);
SLOTS_KIND(slot_restore, WEFT_SESSION_RESTORE, parse_file, open_filed, false);
SLOTS_KIND(slot_erase, WEFT_SESSION_DROP, parse_nothing, open_erased, true);
