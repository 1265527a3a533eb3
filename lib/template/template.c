/* The public functions: compile a template, and render it with a caller's variables. */
#include "template.h"

#include <jansson.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/log.h"
#include "base/utf8.h"
#include "builtins/builtin.h"
#include "run/eval.h"
#include "syntax/parser.h"
#include "values/json.h"

/* The longest template seen takes some thousand steps, and some hundred for each message; one that
 * looks ahead over all messages at each takes their square. */
#define STEPS_BASE 4000000u
#define STEPS_PER_MESSAGE 10000u
#define STEPS_MAX 200000000u
/* For values that pile up in namespaces, beyond the input and twice the output. */
#define ARENA_BYTES_SPARE (4u << 20)

/* --- rendering -------------------------------------------------------------------------------- */

static struct wefti_tmpl_value of_literal(const char *text) {
    return wefti_tmpl_of_str(text, strlen(text));
}

static weft_err bind_name(struct wefti_tmpl_run *run, const char *name,
                          struct wefti_tmpl_value value) {
    return wefti_tmpl_bind(run, run->scope, (struct weft_str){name, strlen(name)}, value);
}

/* Binds variables that the caller did not give: transformers always passes these. */
static weft_err bind_defaults(struct wefti_tmpl_run *run) {
    struct weft_str bos = run->tmpl->specials.bos_token, eos = run->tmpl->specials.eos_token;
    const struct {
        const char *name;
        bool given;
        struct wefti_tmpl_value value;
    } all[] = {{"tools", true, wefti_tmpl_of_kind(WEFTI_TMPL_NONE)},
               {"documents", true, wefti_tmpl_of_kind(WEFTI_TMPL_NONE)},
               {"bos_token", bos.data, wefti_tmpl_of_str(bos.data, bos.len)},
               {"eos_token", eos.data, wefti_tmpl_of_str(eos.data, eos.len)}};
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && !err; i++) {
        struct weft_str name = {all[i].name, strlen(all[i].name)};
        if (!all[i].given || wefti_tmpl_space_find(run->scope, name)) continue;
        err = wefti_tmpl_bind(run, run->scope, name, all[i].value);
    }
    return err;
}

static weft_err of_message(struct wefti_tmpl_run *run, const struct weft_tmpl_message *message,
                           struct wefti_tmpl_value *out) {
    struct wefti_tmpl_list pairs = {0};
    if (message->role_len > UINT32_MAX || message->content_len > UINT32_MAX)
        return wefti_tmpl_too_big(run);
    weft_err err = wefti_tmpl_list_add(run, &pairs, of_literal("role"));
    if (!err)
        err = wefti_tmpl_list_add(run, &pairs, wefti_tmpl_of_str(message->role, message->role_len));
    if (!err) err = wefti_tmpl_list_add(run, &pairs, of_literal("content"));
    if (!err)
        err = wefti_tmpl_list_add(run, &pairs,
                                  wefti_tmpl_of_str(message->content, message->content_len));
    *out = wefti_tmpl_of_pairs(&pairs);
    return err;
}

static weft_err bind_messages(struct wefti_tmpl_run *run, const struct weft_tmpl_message *messages,
                              size_t n, bool add_generation_prompt) {
    struct wefti_tmpl_list list = {0};
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < n && !err; i++) {
        struct wefti_tmpl_value message = wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED);
        err = of_message(run, &messages[i], &message);
        if (!err) err = wefti_tmpl_list_add(run, &list, message);
    }
    if (!err) err = bind_name(run, "messages", wefti_tmpl_of_list(&list, WEFTI_TMPL_LIST));
    if (!err)
        err = bind_name(run, "add_generation_prompt", wefti_tmpl_of_bool(add_generation_prompt));
    return err;
}

static weft_err bind_json(struct wefti_tmpl_run *run, const json_t *vars) {
    struct wefti_tmpl_value all;
    weft_err err = wefti_tmpl_from_json(run, vars, &all);
    for (uint32_t i = 0; i < all.n && !err; i++)
        err = wefti_tmpl_bind(run, run->scope, wefti_tmpl_text_of(all.items[2 * (size_t)i]),
                              all.items[2 * (size_t)i + 1]);
    return err;
}

/* Converting the input costs no steps: its reader has bounded it. */
static weft_err run_init(struct wefti_tmpl_run *run, const weft_tmpl *tmpl, struct weft_buf *out,
                         struct weft_errmsg *why) {
    *run = (struct wefti_tmpl_run){.tmpl = tmpl,
                                   .out = out,
                                   .out_max = out->max_bytes,
                                   .arena_max = SIZE_MAX / 2,
                                   .steps_left = UINT64_MAX,
                                   .why = why};
    return wefti_tmpl_push_scope(run, NULL);
}

static weft_err run_template(struct wefti_tmpl_run *run, size_t n_messages, const struct tm *now) {
    time_t seconds = time(NULL);
    struct tm local;
    if (!now) now = localtime_r(&seconds, &local);
    run->now = now;
    weft_err err = bind_defaults(run);
    if (err) return err;
    size_t steps =
        n_messages < STEPS_MAX / STEPS_PER_MESSAGE ? n_messages * STEPS_PER_MESSAGE : STEPS_MAX;
    run->steps_left = STEPS_BASE + steps;
    run->arena_max = run->arena_bytes +
                     2 * (run->out_max < SIZE_MAX / 8 ? run->out_max : SIZE_MAX / 8) +
                     ARENA_BYTES_SPARE;
    return wefti_tmpl_run_body(run, run->tmpl->first);
}

static weft_err run_fini(struct wefti_tmpl_run *run, size_t before, weft_err err) {
    WEFT_ASSERT(run->out->len >= before);
    if (err) run->out->len = before;
    if (err == WEFT_E_NOMEM) (void)weft_err_set(run->why, err, "no memory to render a chat prompt");
    wefti_tmpl_arena_fini(run);
    return err;
}

weft_err weft_tmpl_render(const weft_tmpl *tmpl, const struct weft_tmpl_message *messages, size_t n,
                          bool add_generation_prompt, struct weft_buf *out,
                          struct weft_errmsg *why) {
    WEFT_ASSERT(tmpl);
    WEFT_ASSERT(out);
    WEFT_ASSERT(messages || n == 0);
    struct wefti_tmpl_run run;
    size_t before = out->len;
    weft_err err = run_init(&run, tmpl, out, why);
    if (!err) err = bind_messages(&run, messages, n, add_generation_prompt);
    if (!err) err = run_template(&run, n, NULL);
    return run_fini(&run, before, err);
}

weft_err weft_tmpl_render_json(const weft_tmpl *tmpl, const struct json_t *vars,
                               const struct tm *now, struct weft_buf *out, uint32_t *line_out,
                               struct weft_errmsg *why) {
    WEFT_ASSERT(tmpl);
    WEFT_ASSERT(out);
    struct wefti_tmpl_run run;
    size_t before = out->len;
    if (line_out) *line_out = 0;
    if (!json_is_object(vars))
        return weft_err_set(why, WEFT_E_INVAL, "a template's variables are not a JSON object");
    weft_err err = run_init(&run, tmpl, out, why);
    if (!err) err = bind_json(&run, vars);
    if (!err) err = run_template(&run, json_array_size(json_object_get(vars, "messages")), now);
    if (line_out) *line_out = run.line;
    return run_fini(&run, before, err);
}

/* --- compiling -------------------------------------------------------------------------------- */

/* Copies the source with line ends as "\n"; Jinja drops one at the very end. */
static weft_err copy_source(weft_tmpl *tmpl, const char *source, size_t len) {
    tmpl->source = malloc(len + 1);
    if (!tmpl->source) return WEFT_E_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (source[i] != '\r')
            tmpl->source[n++] = source[i];
        else if (i + 1 == len || source[i + 1] != '\n')
            tmpl->source[n++] = '\n';
    }
    if (n > 0 && tmpl->source[n - 1] == '\n') n--;
    tmpl->source_len = n;
    return WEFT_OK;
}

/* A missing builtin is a fault only when reached, but is logged at once. */
static void resolve_builtins(weft_tmpl *tmpl) {
    const struct wefti_tmpl_expr *missing = NULL;
    for (uint32_t i = 0; i < tmpl->n_exprs; i++) {
        struct wefti_tmpl_expr *expr = &tmpl->exprs[i];
        if (expr->kind == WEFTI_TMPL_EXPR_FILTER)
            expr->builtin = wefti_tmpl_find_filter(expr->text);
        else if (expr->kind == WEFTI_TMPL_EXPR_TEST)
            expr->builtin = wefti_tmpl_find_test(expr->text);
        else
            continue;
        if (!expr->builtin && !missing) missing = expr;
    }
    if (missing)
        weft_warn("chat template, line %u: there is no %s %.*s; a conversation that needs it is "
                  "refused",
                  missing->line, missing->kind == WEFTI_TMPL_EXPR_TEST ? "test" : "filter",
                  (int)(missing->text.len < 60 ? missing->text.len : 60), missing->text.data);
}

weft_err weft_tmpl_new(const char *source, size_t len, const struct weft_tmpl_specials *specials,
                       weft_tmpl **tmpl_out, struct weft_errmsg *why) {
    WEFT_ASSERT(source || len == 0);
    *tmpl_out = NULL;
    if (len > WEFTI_TMPL_SOURCE_BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "a chat template of %zu bytes; the limit is %u",
                            len, WEFTI_TMPL_SOURCE_BYTES_MAX);
    if (!weft_utf8_valid(source, len))
        return weft_err_set(why, WEFT_E_PROTO, "the chat template is not valid UTF-8");
    weft_err err = WEFT_E_NOMEM;
    weft_tmpl *tmpl = calloc(1, sizeof *tmpl);
    if (!tmpl) goto cleanup;
    tmpl->first = WEFTI_TMPL_NO_IDX;
    if (specials) tmpl->specials = *specials;
    err = copy_source(tmpl, source, len);
    if (!err) err = wefti_tmpl_parse(tmpl, why);
    if (err) goto cleanup;
    resolve_builtins(tmpl);
    *tmpl_out = tmpl;
    tmpl = NULL;
cleanup:
    if (err == WEFT_E_NOMEM) (void)weft_err_set(why, err, "no memory for a chat template");
    weft_tmpl_free(tmpl);
    return err;
}

bool weft_tmpl_mentions(const weft_tmpl *tmpl, const char *text) {
    return memmem(tmpl->source, tmpl->source_len, text, strlen(text)) != NULL;
}

void weft_tmpl_free(weft_tmpl *tmpl) {
    if (!tmpl) return;
    free(tmpl->source);
    free(tmpl->exprs);
    free(tmpl->nodes);
    free(tmpl->args);
    free(tmpl);
}
