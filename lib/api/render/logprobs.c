#include "render/logprobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "base/utf8.h"
#include "call/call_internal.h"
#include "call/logprob_store.h"
#include "kinds/kind.h"
#include "render/choice_text.h"
#include "render/render.h"

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
    WEFT_ASSERT(choice->job->call->params.logprobs >= 0);
    uint32_t n = (uint32_t)choice->job->call->params.logprobs;
    return e->n_top < n ? e->n_top : n;
}

/* ----------------------------------------------------------------------------------- tokens --- */

/* A token that is no text by itself (half a character) is written "bytes:\xe2\x80" in the
 * completions API, as OpenAI does, so names stay distinct. So is one with a NUL, which many JSON
 * readers refuse in keys. The chat API has a field for the bytes. */
static void write_token(const weft_api_call *call, uint32_t token, struct weft_writer *w) {
    char text[32];
    size_t len;
    if (call->params.tokens_as_ids) {
        (void)snprintf(text, sizeof text, "token_id:%u", token);
        weft_write_str(w, text);
        return;
    }
    const char *bytes = weft_tok_token_bytes(call->api->tok, token, &len);
    bool is_text = weft_utf8_valid(bytes, len) && !memchr(bytes, 0, len);
    if (call->kind->names_any_token || is_text) {
        weft_write_text(w, bytes, len);
        return;
    }
    weft_write_text_open(w);
    weft_write_text_more(w, "bytes:", 6);
    for (size_t i = 0; i < len; i++) {
        (void)snprintf(text, sizeof text, "\\x%02x", (unsigned char)bytes[i]);
        weft_write_text_more(w, text, 4);
    }
    weft_write_text_close(w);
}

static void write_token_bytes(const weft_api_call *call, uint32_t token, struct weft_writer *w) {
    size_t len;
    const char *bytes = weft_tok_token_bytes(call->api->tok, token, &len);
    weft_write_list(w);
    for (size_t i = 0; i < len; i++)
        weft_write_uint(w, (unsigned char)bytes[i]);
    weft_write_end(w);
}

/* ------------------------------------------------------------------------------ completions --- */

/* The tokens that a map names: several may have the same bytes, as "a" and the byte's own token
 * have, and a key may stand only once. Open addressing, at most half full, since --max-logprobs may
 * be the whole vocabulary. */
struct names {
    const weft_tokenizer *tok;
    uint32_t *slots; /* NULL: every token has a name of its own; else ids plus 1, 0: free */
    uint32_t mask;
};

/* For up to `n` tokens. False: out of memory. */
static bool open_names(struct names *names, const weft_api_call *call, uint32_t n) {
    uint32_t n_slots = 2;
    *names = (struct names){.tok = call->api->tok};
    if (call->params.tokens_as_ids) return true;
    while (n_slots < 2 * n)
        n_slots *= 2;
    names->slots = calloc(n_slots, sizeof *names->slots);
    names->mask = n_slots - 1;
    return names->slots != NULL;
}

static uint32_t hash_of(const char *bytes, size_t len) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
    return hash;
}

/* False: another token had its name before. */
static bool take_name(struct names *names, uint32_t token) {
    if (!names->slots) return true;
    size_t len, other_len;
    const char *bytes = weft_tok_token_bytes(names->tok, token, &len);
    uint32_t at = hash_of(bytes, len) & names->mask;
    for (; names->slots[at]; at = (at + 1) & names->mask) {
        const char *other = weft_tok_token_bytes(names->tok, names->slots[at] - 1, &other_len);
        if (other_len == len && memcmp(other, bytes, len) == 0) return false;
    }
    names->slots[at] = token + 1;
    return true;
}

static void write_value(const struct choice *choice, uint32_t pos, struct weft_writer *w) {
    const uint32_t *words = words_at(choice, pos);
    if (words)
        weft_write_float(w, open_entry(words).value);
    else
        weft_write_null(w);
}

/* The best of those with one name, or the token itself. */
static void write_top(const struct choice *choice, uint32_t pos, struct weft_writer *w) {
    const weft_api_call *call = choice->job->call;
    const uint32_t *words = words_at(choice, pos);
    if (!words) {
        weft_write_null(w);
        return;
    }
    struct entry e = open_entry(words);
    uint32_t token = wefti_api_seq_token(choice, pos), n = n_shown(choice, &e);
    bool has_token = false;
    struct names names;
    if (!open_names(&names, call, n + 1)) {
        w->out->failed = true;
        n = 0;
    }
    (void)take_name(&names, token);
    weft_write_map(w);
    for (uint32_t i = 0; i < n; i++) {
        has_token = has_token || e.ids[i] == token;
        if (e.ids[i] != token && !take_name(&names, e.ids[i])) continue;
        write_token(call, e.ids[i], w);
        weft_write_float(w, top_value(&e, i));
    }
    if (!has_token) { /* the sampled token is always there */
        write_token(call, token, w);
        weft_write_float(w, e.value);
    }
    weft_write_end(w);
    free(names.slots);
}

void wefti_api_lp_token_item(const struct body_piece *at, uint32_t pos) {
    write_token(at->call, wefti_api_seq_token(at->choice, pos), at->w);
}

void wefti_api_lp_value_item(const struct body_piece *at, uint32_t pos) {
    write_value(at->choice, pos, at->w);
}

void wefti_api_lp_top_item(const struct body_piece *at, uint32_t pos) {
    write_top(at->choice, pos, at->w);
}

void wefti_api_lp_offset_item(const struct body_piece *at, uint32_t pos) {
    weft_write_uint(at->w, wefti_api_text_offset(at->choice, pos));
}

void wefti_api_lp_lists(struct choice *choice, uint32_t from, uint32_t to, struct weft_writer *w) {
    weft_write_map(w);
    weft_write_key(w, "tokens");
    weft_write_list(w);
    for (uint32_t pos = from; pos < to; pos++)
        write_token(choice->job->call, wefti_api_seq_token(choice, pos), w);
    weft_write_end(w);
    weft_write_key(w, "token_logprobs");
    weft_write_list(w);
    for (uint32_t pos = from; pos < to; pos++)
        write_value(choice, pos, w);
    weft_write_end(w);
    weft_write_key(w, "top_logprobs");
    weft_write_list(w);
    for (uint32_t pos = from; pos < to; pos++)
        write_top(choice, pos, w);
    weft_write_end(w);
    weft_write_key(w, "text_offset");
    weft_write_list(w);
    for (uint32_t pos = from; pos < to; pos++)
        weft_write_uint(w, wefti_api_text_offset(choice, pos));
    weft_write_end(w);
    weft_write_end(w);
}

/* ------------------------------------------------------------------------------------- chat --- */

static void write_chat_token(const weft_api_call *call, uint32_t token, float value,
                             struct weft_writer *w) {
    weft_write_map(w);
    if (call->kind->logprobs_have_ids) {
        weft_write_key(w, "id");
        weft_write_uint(w, token);
    }
    weft_write_key(w, "token");
    write_token(call, token, w);
    weft_write_key(w, "logprob");
    weft_write_float(w, value);
    weft_write_key(w, "bytes");
    write_token_bytes(call, token, w);
}

static void write_chat_entry(const struct choice *choice, uint32_t pos, struct weft_writer *w) {
    const weft_api_call *call = choice->job->call;
    const uint32_t *words = words_at(choice, pos);
    if (!words) {
        weft_write_null(w);
        return;
    }
    struct entry e = open_entry(words);
    uint32_t n = n_shown(choice, &e);
    write_chat_token(call, wefti_api_seq_token(choice, pos), e.value, w);
    weft_write_key(w, "top_logprobs");
    weft_write_list(w);
    for (uint32_t i = 0; i < n; i++) {
        write_chat_token(call, e.ids[i], top_value(&e, i), w);
        weft_write_end(w);
    }
    weft_write_end(w);
    weft_write_end(w);
}

void wefti_api_lp_chat_item(const struct body_piece *at, uint32_t pos) {
    write_chat_entry(at->choice, pos, at->w);
}

void wefti_api_lp_chat(const struct choice *choice, uint32_t from, uint32_t to,
                       struct weft_writer *w) {
    weft_write_map(w);
    weft_write_key(w, "content");
    weft_write_list(w);
    for (uint32_t pos = from; pos < to; pos++)
        write_chat_entry(choice, pos, w);
    weft_write_end(w);
    weft_write_end(w);
}

/* -------------------------------------------------------------------------- prompt_logprobs --- */

struct prompt_entry {
    uint32_t token, rank;
    float value;
};

static void write_prompt_token(const weft_api_call *call, const struct prompt_entry *entry,
                               struct weft_writer *w) {
    char key[16];
    (void)snprintf(key, sizeof key, "%u", entry->token);
    weft_write_key(w, key);
    weft_write_map(w);
    weft_write_key(w, "logprob");
    weft_write_float(w, entry->value);
    weft_write_key(w, "rank");
    weft_write_uint(w, entry->rank);
    weft_write_key(w, "decoded_token");
    write_token(call, entry->token, w);
    weft_write_end(w);
}

static void prompt_item(const struct body_piece *at, uint32_t pos) {
    const struct job *job = at->choice->job;
    const uint32_t *words = pos ? wefti_api_lp_entry(&job->prompt_lps, pos - 1) : NULL;
    if (!words) {
        weft_write_null(at->w);
        return;
    }
    struct entry e = open_entry(words);
    struct prompt_entry own = {job->prompt->ids[pos], e.rank, e.value};
    uint32_t n = (uint32_t)at->call->params.prompt_logprobs;
    weft_write_map(at->w);
    write_prompt_token(at->call, &own, at->w);
    for (uint32_t i = 0; i < e.n_top && i < n; i++) {
        struct prompt_entry other = {e.ids[i], i + 1, top_value(&e, i)};
        if (other.token != own.token) write_prompt_token(at->call, &other, at->w);
    }
    weft_write_end(at->w);
}

bool wefti_api_lp_prompt_part(const struct body_piece *at) {
    if (at->call->params.prompt_logprobs < 0) return true;
    uint32_t n = (uint32_t)at->choice->job->prompt->n_ids;
    return wefti_api_render_list(at, "prompt_logprobs", n, prompt_item);
}
