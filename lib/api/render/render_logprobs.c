#include "render/render_logprobs.h"

#include <inttypes.h>
#include <string.h>

#include "api/api.h"
#include "base/utf8.h"
#include "call/call.h"
#include "codec/json_out.h"
#include "codec/utf8.h"

/* An entry of a store, taken apart. */
struct entry {
    float value;
    uint32_t rank, n_top;
    const uint32_t *ids;
    const uint32_t *values; /* bits of floats */
};

static struct entry open_entry(const uint32_t *words) {
    struct entry e = {.rank = words[1], .n_top = words[2]};
    memcpy(&e.value, &words[0], sizeof e.value);
    e.ids = words + 3;
    e.values = words + 3 + e.n_top;
    return e;
}

static float top_value(const struct entry *e, uint32_t i) {
    float value;
    memcpy(&value, &e->values[i], sizeof value);
    return value;
}

/* NULL for the first token of a prompt, which nothing predicts. */
static const uint32_t *words_at(const struct choice *choice, uint32_t pos) {
    uint32_t n_echoed = wefti_api_seq_echoed(choice);
    if (pos >= n_echoed) return wefti_api_lp_entry(&choice->lps, pos - n_echoed);
    return pos ? wefti_api_lp_entry(&choice->job->prompt_lps, pos - 1) : NULL;
}

/* As many alternatives as were asked for; an echoed prompt may have more. */
static uint32_t n_shown(const struct choice *choice, const struct entry *e) {
    uint32_t n = (uint32_t)choice->job->call->params.logprobs;
    return e->n_top < n ? e->n_top : n;
}

/* ----------------------------------------------------------------------------------- tokens --- */

/* A token that is no text by itself (half a character) is written "bytes:\xe2\x80" in the old API,
 * as OpenAI does: names stay distinct. So is one with a NUL: names are keys, and many a reader of
 * JSON takes none with a NUL. The chat API has a field for the bytes. */
static void add_token(const weft_api_call *call, uint32_t token, struct weft_buf *out) {
    size_t len;
    if (call->params.tokens_as_ids) {
        weft_buf_printf(out, "\"token_id:%u\"", token);
        return;
    }
    const char *bytes = weft_tok_token_bytes(call->api->tok, token, &len);
    bool is_text = weft_utf8_valid(bytes, len) && !memchr(bytes, 0, len);
    if (call->kind == CALL_CHAT || is_text) {
        weft_json_str(out, bytes, len);
        return;
    }
    weft_buf_add_str(out, "\"bytes:");
    for (size_t i = 0; i < len; i++)
        weft_buf_printf(out, "\\\\x%02x", (unsigned char)bytes[i]);
    weft_buf_add_char(out, '"');
}

static void add_token_bytes(const weft_api_call *call, uint32_t token, struct weft_buf *out) {
    size_t len;
    const char *bytes = weft_tok_token_bytes(call->api->tok, token, &len);
    weft_buf_add_char(out, '[');
    for (size_t i = 0; i < len; i++)
        weft_buf_printf(out, i ? ",%u" : "%u", (unsigned char)bytes[i]);
    weft_buf_add_char(out, ']');
}

/* ------------------------------------------------------------------------------ completions --- */

void wefti_api_lp_token_item(struct choice *choice, uint32_t pos, struct weft_buf *out) {
    add_token(choice->job->call, wefti_api_seq_token(choice, pos), out);
}

void wefti_api_lp_value_item(struct choice *choice, uint32_t pos, struct weft_buf *out) {
    const uint32_t *words = words_at(choice, pos);
    if (words)
        weft_json_float(out, open_entry(words).value);
    else
        weft_buf_add_str(out, "null");
}

void wefti_api_lp_top_item(struct choice *choice, uint32_t pos, struct weft_buf *out) {
    const uint32_t *words = words_at(choice, pos);
    if (!words) {
        weft_buf_add_str(out, "null");
        return;
    }
    const weft_api_call *call = choice->job->call;
    struct entry e = open_entry(words);
    uint32_t token = wefti_api_seq_token(choice, pos), n = n_shown(choice, &e);
    bool has_token = false;
    weft_buf_add_char(out, '{');
    for (uint32_t i = 0; i < n; i++) {
        if (i) weft_buf_add_char(out, ',');
        has_token = has_token || e.ids[i] == token;
        add_token(call, e.ids[i], out);
        weft_buf_add_char(out, ':');
        weft_json_float(out, top_value(&e, i));
    }
    if (!has_token) { /* the sampled token is always there */
        if (n) weft_buf_add_char(out, ',');
        add_token(call, token, out);
        weft_buf_add_char(out, ':');
        weft_json_float(out, e.value);
    }
    weft_buf_add_char(out, '}');
}

static void offset_item(struct choice *choice, uint32_t pos, struct weft_buf *out) {
    weft_buf_printf(out, "%" PRIu64, wefti_api_seq_offset(choice, pos));
}

static void add_list(struct choice *choice, uint32_t from, uint32_t to, const char *open,
                     void (*item)(struct choice *, uint32_t, struct weft_buf *),
                     struct weft_buf *out) {
    weft_buf_add_str(out, open);
    for (uint32_t pos = from; pos < to; pos++) {
        if (pos > from) weft_buf_add_char(out, ',');
        item(choice, pos, out);
    }
    weft_buf_add_char(out, ']');
}

void wefti_api_lp_legacy(struct choice *choice, uint32_t from, uint32_t to, struct weft_buf *out) {
    add_list(choice, from, to, "{\"tokens\":[", wefti_api_lp_token_item, out);
    add_list(choice, from, to, ",\"token_logprobs\":[", wefti_api_lp_value_item, out);
    add_list(choice, from, to, ",\"top_logprobs\":[", wefti_api_lp_top_item, out);
    add_list(choice, from, to, ",\"text_offset\":[", offset_item, out);
    weft_buf_add_char(out, '}');
}

/* ------------------------------------------------------------------------------------- chat --- */

static void add_chat_token(const weft_api_call *call, uint32_t token, float value,
                           struct weft_buf *out) {
    weft_buf_add_str(out, "{\"token\":");
    add_token(call, token, out);
    weft_buf_add_str(out, ",\"logprob\":");
    weft_json_float(out, value);
    weft_buf_add_str(out, ",\"bytes\":");
    add_token_bytes(call, token, out);
}

void wefti_api_lp_chat_item(struct choice *choice, uint32_t pos, struct weft_buf *out) {
    const weft_api_call *call = choice->job->call;
    const uint32_t *words = words_at(choice, pos);
    if (!words) {
        weft_buf_add_str(out, "null");
        return;
    }
    struct entry e = open_entry(words);
    uint32_t n = n_shown(choice, &e);
    add_chat_token(call, wefti_api_seq_token(choice, pos), e.value, out);
    weft_buf_add_str(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < n; i++) {
        if (i) weft_buf_add_char(out, ',');
        add_chat_token(call, e.ids[i], top_value(&e, i), out);
        weft_buf_add_char(out, '}');
    }
    weft_buf_add_str(out, "]}");
}

void wefti_api_lp_chat(struct choice *choice, uint32_t from, uint32_t to, struct weft_buf *out) {
    add_list(choice, from, to, "{\"content\":[", wefti_api_lp_chat_item, out);
    weft_buf_add_char(out, '}');
}

/* -------------------------------------------------------------------------- prompt_logprobs --- */

static void add_prompt_token(const weft_api_call *call, uint32_t token, float value, uint32_t rank,
                             struct weft_buf *out) {
    weft_buf_printf(out, "\"%u\":{\"logprob\":", token);
    weft_json_float(out, value);
    weft_buf_printf(out, ",\"rank\":%u,\"decoded_token\":", rank);
    add_token(call, token, out);
    weft_buf_add_char(out, '}');
}

void wefti_api_lp_prompt_item(struct choice *choice, uint32_t pos, struct weft_buf *out) {
    const weft_api_call *call = choice->job->call;
    const uint32_t *words = pos ? wefti_api_lp_entry(&choice->job->prompt_lps, pos - 1) : NULL;
    if (!words) {
        weft_buf_add_str(out, "null");
        return;
    }
    struct entry e = open_entry(words);
    uint32_t token = choice->job->prompt->ids[pos];
    uint32_t n = (uint32_t)call->params.prompt_logprobs;
    weft_buf_add_char(out, '{');
    add_prompt_token(call, token, e.value, e.rank, out);
    for (uint32_t i = 0; i < e.n_top && i < n; i++) {
        if (e.ids[i] == token) continue;
        weft_buf_add_char(out, ',');
        add_prompt_token(call, e.ids[i], top_value(&e, i), i + 1, out);
    }
    weft_buf_add_char(out, '}');
}
