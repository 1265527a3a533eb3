/* From a request's bytes to token ids. Runs in the loop's thread for small bodies and in libuv's
 * pool for large ones, so it touches only the call and constant data; weft_api_call_make_room does not, and
 * is the loop's. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "call/call_internal.h"
#include "call/honoured.h"
#include "call/prepare.h"
#include "codec/gunzip.h"
#include "codec/json_budget.h"
#include "codec/json_out.h"
#include "codec/msgpack_json.h"
#include "grammar/grammar.h"
#include "kinds/kind.h"
#include "pooled/pooled.h"
#include "store/store.h"

#define JSON_VALUES_MAX (2u << 20) /* some 80 MB of parsed tree */
#define JSON_DEPTH_MAX 64

/* ------------------------------------------------------------------------ compressed bodies --- */

/* The buffer takes a byte more, which tells a body that is too large from one that just fits. */
static size_t unpacked_max(const weft_api_call *call) {
    return call->body.max_bytes - 1;
}

static void refuse_unpacked(weft_api_call *call) {
    weft_api_error_set(&call->error, 413, NULL, NULL,
                       "the body is larger than %zu bytes once it is decompressed",
                       unpacked_max(call));
}

/* False: there is more of it than room, or an error. */
static bool unpack_body(weft_api_call *call) {
    call->wants_room = call->body_room == 0;
    if (call->wants_room) return false;
    enum weft_gunzip_status status = weft_gunzip_step(call->unpack, call->body_room, &call->body);
    call->wants_room = status == WEFT_GUNZIP_FULL;
    if (call->wants_room) return false;
    weft_gunzip_free(call->unpack);
    call->unpack = NULL;
    if (status == WEFT_GUNZIP_BROKEN)
        weft_api_error_set(&call->error, 400, NULL, "invalid_gzip",
                           "the body is not gzip, as its Content-Encoding says, or it is damaged "
                           "or cut off");
    else if (status == WEFT_GUNZIP_NO_MEMORY)
        weft_api_error_set(&call->error, 500, NULL, NULL, "out of memory");
    else if (call->body.len > unpacked_max(call))
        refuse_unpacked(call);
    return call->error.status == 0;
}

bool weft_api_call_make_room(weft_api_call *call) {
    size_t max = unpacked_max(call), room = call->body_room;
    WEFT_ASSERT(call->state == WEFT_API_CALL_PREPARING);
    if (!call->wants_room || call->is_abandoned) return false;
    call->wants_room = false;
    if (room > max) {
        refuse_unpacked(call);
        return false;
    }
    size_t wanted = room <= max / 2 ? 2 * room : max + 1;
    if (room == 0) wanted = WEFT_API_FIRST_ROOM_BYTES;
    uint64_t cost = weft_api_cost(call->api, wanted) - weft_api_cost(call->api, room);
    if (!weft_api_hold(call->api, cost)) {
        weft_api_error_no_room(&call->error);
        return false;
    }
    call->held_bytes += cost;
    call->body_room = wanted;
    return true;
}

size_t weft_api_call_body_bytes(const weft_api_call *call) {
    /* A short one may go on with a long conversation. */
    struct weft_api_store *store = call->kind->recalls ? call->limits.recall.store : NULL;
    size_t n_recalled = store ? wefti_api_store_figures(store).largest : 0;
    if (!call->unpack) return call->body.len + n_recalled;
    return n_recalled + weft_gunzip_bytes(call->unpack) + call->body_room;
}

/* ----------------------------------------------------------------------------- from its JSON --- */

static bool is_blank(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (!strchr(" \t\r\n", text[i]) || text[i] == '\0') return false;
    }
    return true;
}

static json_t *parse_body(weft_api_call *call) {
    struct weft_buf *body = &call->body;
    if (call->is_msgpack) {
        struct weft_errmsg reason;
        json_t *map = weft_msgpack_to_json(body->data, body->len, &reason);
        if (!map) weft_api_error_set(&call->error, 400, NULL, "invalid_params", "%s", reason.text);
        return map;
    }
    if (!weft_json_within(body->data, body->len, JSON_VALUES_MAX, JSON_DEPTH_MAX)) {
        if (weft_json_within(body->data, body->len, SIZE_MAX, JSON_DEPTH_MAX))
            weft_api_error_set(&call->error, 400, NULL, "too_many_values",
                               "the body holds more than %u values", JSON_VALUES_MAX);
        else
            weft_api_error_set(&call->error, 400, NULL, "nested_too_deep",
                               "the body, with the schemas in it, nests deeper than %d levels",
                               JSON_DEPTH_MAX);
        return NULL;
    }
    if (call->kind->asks_session && is_blank(body->data, body->len)) return json_object();
    if (is_blank(body->data, body->len)) {
        weft_api_error_set(&call->error, 400, NULL, "invalid_json",
                           "the body is empty: send a JSON object");
        return NULL;
    }
    weft_json_widen(body->data, body->len);
    json_error_t why;
    /* NUL is an ordinary character in a prompt; duplicate keys are ambiguous, so refused. */
    json_t *json = json_loadb(body->data, body->len,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    if (!json)
        weft_api_error_set(&call->error, 400, NULL, "invalid_json",
                           "the body is not valid JSON: %s (line %d, column %d)", why.text,
                           why.line, why.column);
    return json;
}

static void encode_prompts(weft_api_call *call) {
    struct params *p = &call->params;
    uint32_t flags = (p->special_is_text ? 0 : WEFT_TOK_PARSE_SPECIAL) |
                     (p->add_special ? WEFT_TOK_ADD_SPECIAL : 0);
    for (uint32_t i = 0; i < p->n_prompts && !call->error.status; i++) {
        if (p->prompts[i].text)
            wefti_api_encode(call, &p->prompts[i],
                             (struct weft_str){p->prompts[i].text, p->prompts[i].text_len}, flags);
    }
}

/* An echoed prompt is the text as given, not the text of its ids. */
static void keep_echoed_texts(weft_api_call *call) {
    struct params *p = &call->params;
    for (uint32_t i = 0; i < p->n_prompts && p->echo; i++) {
        struct prompt *prompt = &p->prompts[i];
        if (!prompt->text) continue;
        prompt->echo = malloc(prompt->text_len ? prompt->text_len : 1);
        if (!prompt->echo) {
            weft_api_error_set(&call->error, 500, NULL, NULL, "out of memory");
            return;
        }
        memcpy(prompt->echo, prompt->text, prompt->text_len);
    }
}

static bool bounds_thoughts(const weft_api_call *call) {
    const struct weft_sampling *sampling = &call->params.sampling;
    return sampling->thinking_token_budget < UINT32_MAX &&
           sampling->grammar.thinking != WEFT_THINKING_NONE;
}

bool weft_api_call_has_grammar(const weft_api_call *call) {
    if (call->error.status) return false;
    return call->params.sampling.grammar.kind != WEFT_GRAMMAR_NONE || bounds_thoughts(call) ||
           wefti_api_wants_calls_constrained(call);
}

/* Whatever else went wrong for that reason. */
static void refuse_reading(weft_api_call *call) {
    call->error.status = 0;
    weft_api_error_set(&call->error, 413, NULL, "too_many_values",
                       "the JSON of the body takes more than the %zu bytes that --request-memory "
                       "leaves for reading one of its length: it holds too many values",
                       weft_api_reading_bytes(call->api, call->n_read));
}

static void begin_reading(const weft_api_call *call) {
    weft_json_budget_begin(weft_api_reading_bytes(call->api, call->n_read));
}

static void end_reading(weft_api_call *call) {
    if (!weft_json_budget_end()) refuse_reading(call);
}

/* Whether it is one of the model's: one of the format, or one that its text becomes. */
static bool has_special(void *context, struct weft_str text) {
    const weft_api_call *call = context;
    const weft_tokenizer *tok = call->api->tok;
    const struct weft_tok_input input = {text, WEFT_TOK_PARSE_SPECIAL, 2};
    struct weft_errmsg why;
    struct weft_str own = {NULL, 0};
    uint32_t *ids = NULL;
    size_t n = 0;
    if (weft_api_has_mark(&call->api->dialect, text)) return true;
    weft_err err = weft_tok_encode(tok, &input, &ids, &n, &why);
    bool is_special = !err && n == 1 && weft_tok_is_special(tok, ids[0]);
    if (is_special) own.data = weft_tok_token_bytes(tok, ids[0], &own.len);
    free(ids);
    return is_special && weft_str_is(own, text.data, text.len);
}

static void check(weft_api_call *call) {
    struct params *p = &call->params;
    struct weft_errmsg why = {""};
    weft_gram *gram;
    if (wefti_api_wants_answer_placed(call)) wefti_api_place_answer(call);
    if (!call->error.status && wefti_api_wants_calls_constrained(call))
        wefti_api_constrain_calls(call);
    if (call->error.status) return;
    /* Where nothing else is asked for, any text may follow; that needs no look. */
    if (p->sampling.grammar.kind == WEFT_GRAMMAR_NONE && bounds_thoughts(call))
        p->sampling.grammar.kind = WEFT_GRAMMAR_TEXT;
    if (p->sampling.grammar.kind == WEFT_GRAMMAR_NONE ||
        p->sampling.grammar.kind == WEFT_GRAMMAR_TEXT)
        return;
    if (wefti_api_is_honoured(&p->sampling.grammar)) return;
    const struct weft_gram_specials specials = {has_special, call};
    weft_err err = weft_gram_compile_for(&specials, &p->sampling.grammar, &gram, &why);
    weft_gram_free(gram);
    if (!err) wefti_api_note_honoured(&p->sampling.grammar);
    if (err == WEFT_E_NOMEM)
        weft_api_error_set(&call->error, 500, NULL, NULL, "out of memory");
    else if (err)
        weft_api_error_set(&call->error, 400, p->grammar_param,
                           err == WEFT_E_TOOBIG ? "grammar_too_large" : "invalid_grammar",
                           "'%s' cannot be honoured: %s", p->grammar_field,
                           why.text[0] ? why.text : weft_err_text(err));
}

void weft_api_call_check(weft_api_call *call) {
    WEFT_ASSERT(weft_api_call_has_grammar(call));
    begin_reading(call);
    check(call);
    end_reading(call);
}

static void read_request(weft_api_call *call) {
    json_t *json = parse_body(call);
    weft_buf_fini(&call->body);
    struct params *p = &call->params;
    if (json && wefti_api_params_parse(json, call->kind, &call->limits, p, &call->error)) {
        if (p->chat.vars)
            wefti_api_encode_chat(call);
        else if (call->kind->pools)
            wefti_api_encode_pooled(call);
        else
            encode_prompts(call);
        if (p->suffix) wefti_api_add_suffix(call);
        if (p->bad_words_wanted && !call->error.status) wefti_api_encode_bad_words(call);
        if (p->sampling.dry_multiplier > 0.0f && !call->error.status)
            wefti_api_encode_dry_breakers(call);
        keep_echoed_texts(call);
    }
    wefti_api_params_drop_json(p);
}

void weft_api_call_prepare(weft_api_call *call) {
    struct params *p = &call->params;
    WEFT_ASSERT(call->state == WEFT_API_CALL_PREPARING);
    if (call->unpack && !unpack_body(call)) return;
    call->n_read = weft_api_call_body_bytes(call);
    begin_reading(call);
    read_request(call);
    end_reading(call);
    if (call->error.status) return;
    if (call->path_session.len > 0) {
        WEFT_ASSERT(call->path_session.len <= sizeof p->service.session_id);
        memcpy(p->service.session_id, call->path_session.data, call->path_session.len);
        p->service.n_session_id = (uint32_t)call->path_session.len;
    }
    p->drops_sent_logprobs = p->stream && !call->is_rpc; /* else a whole result follows */
    if (!call->kind->generates || p->n_prompts == 0) return;
    if (p->sampling.beam_width > 0 && weft_api_call_has_grammar(call))
        weft_api_error_set(
            &call->error, 400, "use_beam_search", NULL,
            "'use_beam_search' is not available where something constrains the output");
    if (weft_sampling_is_contrastive(&p->sampling) && weft_api_call_has_grammar(call))
        weft_api_error_set(
            &call->error, 400, "penalty_alpha", NULL,
            "'penalty_alpha' is not available where something constrains the output");
    if (call->limits.max_model_len == 0)
        weft_api_error_set(&call->error, 503, NULL, "not_serving", "the server is starting");
    else
        (void)wefti_api_params_fit(p, call->kind, &call->limits, &call->error);
}
