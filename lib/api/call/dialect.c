#include "api/dialect.h"

#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"

#define PROBE_BYTES_MAX (1u << 20)
#define PROBE_KEY "weft_probe_key"

/* ----------------------------------------------------------------------------- the template --- */

/* Under strict templates ids have nine letters. */
static const char *const probe_ids[] = {"call0a1b2", "call3c4d5"};

/* A conversation with so many calls in one message, whose one argument shows how it is written, as an object or as
 * the text of one. */
static json_t *make_probe(size_t n_calls, bool as_text) {
    json_t *calls = json_array(), *results = json_array();
    for (size_t i = 0; i < n_calls; i++) {
        json_t *arguments = as_text ? json_string("{\"" PROBE_KEY "\": \"v\"}")
                                    : json_pack("{s:s}", PROBE_KEY, "v");
        (void)json_array_append_new(calls, json_pack("{s:s,s:s,s:{s:s,s:o}}", "id", probe_ids[i],
                                                     "type", "function", "function", "name", "f",
                                                     "arguments", arguments));
        (void)json_array_append_new(results,
                                    json_pack("{s:s,s:s,s:s,s:s}", "role", "tool", "tool_call_id",
                                              probe_ids[i], "name", "f", "content", "1"));
    }
    json_t *messages = json_pack("[{s:s,s:s},{s:s,s:s,s:o}]", "role", "user", "content", "Hi",
                                 "role", "assistant", "content", "", "tool_calls", calls);
    (void)json_array_extend(messages, results);
    json_decref(results);
    return json_pack("{s:o,s:[{s:s,s:{s:s,s:s,s:{s:s,s:{}}}}],s:b}", "messages", messages, "tools",
                     "type", "function", "function", "name", "f", "description", "F", "parameters",
                     "type", "object", "properties", "add_generation_prompt", 1);
}

enum shown { SHOWN_NOT, SHOWN_AS_JSON, SHOWN_AS_PYTHON, NOT_RENDERED };

/* As Python would print a dictionary, an argument is of no use to a model. */
static enum shown shown_by(const weft_tmpl *tmpl, size_t n_calls, bool as_text) {
    struct weft_buf out;
    struct weft_errmsg why;
    json_t *vars = make_probe(n_calls, as_text);
    weft_buf_init(&out, PROBE_BYTES_MAX);
    weft_err err = weft_tmpl_render_json(tmpl, vars, NULL, &out, NULL, &why);
    const char *text = err ? "" : weft_buf_cstr(&out);
    bool is_python = strstr(text, "{'" PROBE_KEY "'") != NULL;
    bool is_shown = strstr(text, PROBE_KEY) != NULL;
    json_decref(vars);
    weft_buf_fini(&out);
    return err ? NOT_RENDERED : is_python ? SHOWN_AS_PYTHON : is_shown ? SHOWN_AS_JSON : SHOWN_NOT;
}

static void learn_calls(const weft_tmpl *tmpl, struct weft_api_dialect *out) {
    out->wants_text =
        shown_by(tmpl, 1, false) != SHOWN_AS_JSON && shown_by(tmpl, 1, true) == SHOWN_AS_JSON;
    out->takes_one_call = shown_by(tmpl, 1, out->wants_text) == SHOWN_AS_JSON &&
                          shown_by(tmpl, 2, out->wants_text) == NOT_RENDERED;
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
    learn_calls(tmpl, out);
    out->knows_developer = weft_tmpl_mentions(tmpl, "developer");
    note_marks(tok, out);
    return WEFT_OK;
}
