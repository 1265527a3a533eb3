#include "api/dialect.h"

#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"

#define PROBE_BYTES_MAX (1u << 20)
#define PROBE_KEY "weft_probe_key"

/* ----------------------------------------------------------------------------- the template --- */

/* A conversation with a call whose one argument shows how it is written. Under strict templates ids have nine letters. */
static json_t *probe(bool as_text) {
    json_t *arguments =
        as_text ? json_string("{\"" PROBE_KEY "\": \"v\"}") : json_pack("{s:s}", PROBE_KEY, "v");
    json_t *messages =
        json_pack("[{s:s,s:s},{s:s,s:s,s:[{s:s,s:s,s:{s:s,s:o}}]},{s:s,s:s,s:s,s:s}]", "role",
                  "user", "content", "Hi", "role", "assistant", "content", "", "tool_calls", "id",
                  "call0a1b2", "type", "function", "function", "name", "f", "arguments", arguments,
                  "role", "tool", "tool_call_id", "call0a1b2", "name", "f", "content", "1");
    json_t *tools =
        json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{}}}}]", "type", "function", "function", "name", "f",
                  "description", "F", "parameters", "type", "object", "properties");
    return json_pack("{s:o*,s:o*,s:b}", "messages", messages, "tools", tools,
                     "add_generation_prompt", 1);
}

/* As Python would print a dictionary, the argument is of no use to a model. */
static bool shows_json(const weft_tmpl *tmpl, bool as_text, bool *is_python_out) {
    struct weft_buf out;
    struct weft_errmsg why;
    json_t *vars = probe(as_text);
    weft_buf_init(&out, PROBE_BYTES_MAX);
    weft_err err = weft_tmpl_render_json(tmpl, vars, NULL, &out, NULL, &why);
    const char *text = err ? "" : weft_buf_cstr(&out);
    *is_python_out = strstr(text, "{'" PROBE_KEY "'") != NULL;
    bool shows = strstr(text, PROBE_KEY) && !*is_python_out;
    json_decref(vars);
    weft_buf_fini(&out);
    return shows;
}

static bool wants_text(const weft_tmpl *tmpl) {
    bool is_python = false;
    if (shows_json(tmpl, false, &is_python)) return false;
    return shows_json(tmpl, true, &is_python);
}

/* ------------------------------------------------------------------------------------- marks --- */

static void note_marks(const weft_tokenizer *tok, struct weft_api_dialect *dialect) {
    uint32_t n = weft_tok_vocab_size(tok);
    for (uint32_t id = 0; id < n && dialect->n_marks < WEFT_API_MARKS_MAX; id++) {
        if (!weft_tok_is_special(tok, id)) continue;
        struct weft_str text;
        text.data = weft_tok_token_bytes(tok, id, &text.len);
        if (weft_msg_is_mark(dialect->format, text)) dialect->marks[dialect->n_marks++] = text;
    }
}

bool weft_api_has_mark(const struct weft_api_dialect *dialect, struct weft_str text) {
    for (uint32_t i = 0; i < dialect->n_marks; i++) {
        struct weft_str mark = dialect->marks[i];
        if (mark.len == text.len && memcmp(mark.data, text.data, text.len) == 0) return true;
    }
    return false;
}

weft_err weft_api_learn_dialect(const weft_tmpl *tmpl, const char *source,
                                const weft_tokenizer *tok, const char *parser,
                                struct weft_api_dialect *out, struct weft_errmsg *why) {
    bool is_named = strcmp(parser, "auto") != 0;
    WEFT_ASSERT(tok);
    memset(out, 0, sizeof *out);
    if (is_named) {
        out->format = weft_msg_format_named((struct weft_str){parser, strlen(parser)});
        if (!out->format)
            return weft_err_set(why, WEFT_E_NOTFOUND,
                                "\"%s\" is no format of tool calls; there are: auto, %s", parser,
                                weft_msg_format_names());
    }
    if (!tmpl) {
        out->format = NULL; /* no conversations */
        return WEFT_OK;
    }
    if (!is_named)
        out->format = weft_msg_format_of_template((struct weft_str){source, strlen(source)});
    struct weft_msg_marks marks = weft_msg_thought_marks(out->format);
    if (marks.begin.len > 0) /* both are texts of C */
        out->thinks =
            weft_tmpl_mentions(tmpl, marks.begin.data) || weft_tmpl_mentions(tmpl, marks.end.data);
    out->wants_text = wants_text(tmpl);
    out->knows_developer = weft_tmpl_mentions(tmpl, "developer");
    note_marks(tok, out);
    return WEFT_OK;
}
