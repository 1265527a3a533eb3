/* Statements run, and the public face of the template engine. */
#include <stdlib.h>

#include "base/check.h"
#include "base/utf8.h"
#include "chat_internal.h"

/* The longest template seen takes some thousand steps, and some hundred for each message; one that
 * looks ahead over all messages at each takes their square. */
#define STEPS_BASE 4000000u
#define STEPS_PER_MESSAGE 10000u
#define STEPS_MAX 200000000u
/* Beyond the input and twice the output: values that pile up in namespaces. */
#define ARENA_BYTES_SPARE (4u << 20)

/* --- statements ----------------------------------------------------------------------------------
 */

static weft_err run_print(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node) {
    struct wefti_tmpl_mark mark = wefti_tmpl_mark(run);
    struct wefti_tmpl_value value;
    weft_err err = wefti_tmpl_eval(run, node->expr, &value);
    if (!err) err = wefti_tmpl_write(run, value, false, run->out);
    wefti_tmpl_drop_since(run, mark);
    return err;
}

static weft_err run_if(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node) {
    struct wefti_tmpl_mark mark = wefti_tmpl_mark(run);
    struct wefti_tmpl_value value;
    weft_err err = wefti_tmpl_eval(run, node->expr, &value);
    if (err) return err;
    bool truth = wefti_tmpl_truth(value);
    wefti_tmpl_drop_since(run, mark);
    return wefti_tmpl_run_body(run, truth ? node->body : node->otherwise);
}

/* The body in a scope of its own, inside the present one. */
static weft_err run_scoped(struct wefti_tmpl_run *run, uint32_t body) {
    struct wefti_tmpl_space *scope = run->scope;
    weft_err err = wefti_tmpl_push_scope(run, scope);
    if (!err) err = wefti_tmpl_run_body(run, body);
    run->scope = scope;
    return err;
}

/* What the body writes, as a string. */
static weft_err capture(struct wefti_tmpl_run *run, uint32_t body, struct wefti_tmpl_value *out) {
    struct weft_buf *outer = run->out, text;
    struct wefti_tmpl_mark mark = wefti_tmpl_mark(run);
    wefti_tmpl_buf_init(run, &text);
    run->out = &text;
    weft_err err = run_scoped(run, body);
    run->out = outer;
    if (err) {
        weft_buf_fini(&text);
        return err;
    }
    wefti_tmpl_drop_since(run, mark);
    return wefti_tmpl_take_buf(run, &text, out);
}

/* The items for which the loop's own "if" holds. */
static weft_err keep_items(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node,
                           struct wefti_tmpl_value *items) {
    struct wefti_tmpl_space *scope = run->scope;
    struct wefti_tmpl_list kept = {0};
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < items->n && !err; i++) {
        struct wefti_tmpl_value truth;
        err = wefti_tmpl_push_scope(run, scope);
        if (!err) err = wefti_tmpl_bind_target(run, node->target, items->items[i]);
        if (!err) err = wefti_tmpl_eval(run, node->cond, &truth);
        if (!err && wefti_tmpl_truth(truth)) err = wefti_tmpl_list_add(run, &kept, items->items[i]);
    }
    run->scope = scope;
    *items = wefti_tmpl_of_list(&kept, WEFTI_TMPL_LIST);
    return err;
}

static weft_err run_round(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node,
                          struct wefti_tmpl_loop *loop) {
    struct wefti_tmpl_mark mark = wefti_tmpl_mark(run);
    weft_err err = wefti_tmpl_push_scope(run, loop->outside);
    if (!err)
        err = wefti_tmpl_bind(run, run->scope, (struct weft_str){"loop", 4},
                              (struct wefti_tmpl_value){.kind = WEFTI_TMPL_LOOP, .loop = loop});
    if (!err) err = wefti_tmpl_bind_target(run, node->target, loop->items[loop->index]);
    if (!err) err = wefti_tmpl_run_body(run, node->body);
    run->scope = loop->outside; /* what the round has set ends with it */
    wefti_tmpl_drop_since(run, mark);
    return err;
}

weft_err wefti_tmpl_run_loop(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node,
                             struct wefti_tmpl_value over, uint32_t depth) {
    struct wefti_tmpl_value items;
    void *made;
    weft_err err = wefti_tmpl_iterate(run, over, &items);
    if (!err && node->cond != WEFTI_TMPL_NO_IDX) err = keep_items(run, node, &items);
    if (err) return err;
    if (items.n == 0)
        return node->otherwise == WEFTI_TMPL_NO_IDX ? WEFT_OK : run_scoped(run, node->otherwise);
    err = wefti_tmpl_alloc(run, sizeof(struct wefti_tmpl_loop), &made);
    if (err) return err;
    struct wefti_tmpl_loop *loop = made;
    *loop = (struct wefti_tmpl_loop){
        .n = items.n, .depth = depth, .items = items.items, .node = node, .outside = run->scope};
    for (; loop->index < loop->n && !err && run->flow != WEFTI_TMPL_BREAKING; loop->index++) {
        run->flow = WEFTI_TMPL_GOING_ON;
        err = run_round(run, node, loop);
    }
    run->flow = WEFTI_TMPL_GOING_ON;
    return err;
}

static weft_err run_for(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node) {
    struct wefti_tmpl_mark mark = wefti_tmpl_mark(run);
    struct wefti_tmpl_value over;
    weft_err err = wefti_tmpl_eval(run, node->expr, &over);
    if (!err) err = wefti_tmpl_run_loop(run, node, over, 0);
    wefti_tmpl_drop_since(run, mark);
    return err;
}

static weft_err run_set(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node) {
    struct wefti_tmpl_value value;
    weft_err err;
    if (node->kind == WEFTI_TMPL_NODE_SET) {
        err = wefti_tmpl_eval(run, node->expr, &value);
    } else {
        err = capture(run, node->body, &value);
        if (err || run->flow != WEFTI_TMPL_GOING_ON) return err;
        run->written = value;
        if (node->expr != WEFTI_TMPL_NO_IDX) err = wefti_tmpl_eval(run, node->expr, &value);
    }
    return err ? err : wefti_tmpl_bind_target(run, node->target, value);
}

static weft_err run_filter(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node) {
    struct wefti_tmpl_value value;
    weft_err err = capture(run, node->body, &value);
    if (err || run->flow != WEFTI_TMPL_GOING_ON) return err;
    run->written = value;
    err = wefti_tmpl_eval(run, node->expr, &value);
    return err ? err : wefti_tmpl_write(run, value, false, run->out);
}

static weft_err run_with(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node) {
    struct wefti_tmpl_space *outside = run->scope, *inside = NULL;
    weft_err err = wefti_tmpl_push_scope(run, outside);
    inside = run->scope;
    for (uint32_t at = node->params; at != WEFTI_TMPL_NO_IDX && !err;
         at = run->tmpl->args[at].next) {
        const struct wefti_tmpl_arg *arg = &run->tmpl->args[at];
        struct wefti_tmpl_value value;
        run->scope = outside; /* the values do not see each other */
        err = wefti_tmpl_eval(run, arg->expr, &value);
        if (!err) err = wefti_tmpl_bind(run, inside, arg->name, value);
    }
    run->scope = inside;
    if (!err) err = wefti_tmpl_run_body(run, node->body);
    run->scope = outside;
    return err;
}

/* The call gets the body as one more argument, named caller. */
static weft_err run_call(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node) {
    struct wefti_tmpl_value caller, value;
    weft_err err = wefti_tmpl_new_macro(run, node, &caller);
    if (!err) err = wefti_tmpl_eval_call_with(run, node->expr, caller, &value);
    return err ? err : wefti_tmpl_write(run, value, false, run->out);
}

static weft_err run_macro(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node) {
    struct wefti_tmpl_value macro;
    weft_err err = wefti_tmpl_new_macro(run, node, &macro);
    return err ? err : wefti_tmpl_bind(run, run->scope, node->text, macro);
}

static weft_err run_node(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node) {
    switch (node->kind) {
    case WEFTI_TMPL_NODE_TEXT:
        weft_buf_add(run->out, node->text.data, node->text.len);
        return wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(node->text.len));
    case WEFTI_TMPL_NODE_PRINT:
        return run_print(run, node);
    case WEFTI_TMPL_NODE_IF:
        return run_if(run, node);
    case WEFTI_TMPL_NODE_FOR:
        return run_for(run, node);
    case WEFTI_TMPL_NODE_SET:
    case WEFTI_TMPL_NODE_SET_BLOCK:
        return run_set(run, node);
    case WEFTI_TMPL_NODE_MACRO:
        return run_macro(run, node);
    case WEFTI_TMPL_NODE_CALL:
        return run_call(run, node);
    case WEFTI_TMPL_NODE_FILTER:
        return run_filter(run, node);
    case WEFTI_TMPL_NODE_WITH:
        return run_with(run, node);
    case WEFTI_TMPL_NODE_SCOPE:
        return run_scoped(run, node->body);
    case WEFTI_TMPL_NODE_BREAK:
        run->flow = WEFTI_TMPL_BREAKING;
        return WEFT_OK;
    case WEFTI_TMPL_NODE_CONTINUE:
        run->flow = WEFTI_TMPL_CONTINUING;
        return WEFT_OK;
    }
    return WEFT_E_STATE;
}

weft_err wefti_tmpl_run_body(struct wefti_tmpl_run *run, uint32_t first) {
    weft_err err = wefti_tmpl_deeper(run);
    for (uint32_t at = first; at != WEFTI_TMPL_NO_IDX && !err && run->flow == WEFTI_TMPL_GOING_ON;
         at = run->tmpl->nodes[at].next) {
        run->line = run->tmpl->nodes[at].line;
        err = wefti_tmpl_charge(run, 1);
        if (!err) err = run_node(run, &run->tmpl->nodes[at]);
        if (!err && run->out->failed) err = wefti_tmpl_too_big(run);
    }
    run->depth--;
    return err;
}

/* --- rendering -----------------------------------------------------------------------------------
 */

static struct wefti_tmpl_value of_literal(const char *text) {
    return wefti_tmpl_of_str(text, strlen(text));
}

static weft_err bind_name(struct wefti_tmpl_run *run, const char *name,
                          struct wefti_tmpl_value value) {
    return wefti_tmpl_bind(run, run->scope, (struct weft_str){name, strlen(name)}, value);
}

/* What a template may ask for and a caller did not name: transformers always passes these. */
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

/* The input is there already and bounded by its reader: taking it in costs no steps. */
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
    if (err) run->out->len = before;
    if (err == WEFT_E_NOMEM) (void)weft_err_set(run->why, err, "no memory to render a chat prompt");
    wefti_tmpl_arena_fini(run);
    return err;
}

weft_err weft_tmpl_render(const weft_tmpl *tmpl, const struct weft_tmpl_message *messages, size_t n,
                          bool add_generation_prompt, struct weft_buf *out,
                          struct weft_errmsg *why) {
    struct wefti_tmpl_run run;
    size_t before = out->len;
    weft_err err = run_init(&run, tmpl, out, why);
    if (!err) err = bind_messages(&run, messages, n, add_generation_prompt);
    if (!err) err = run_template(&run, n, NULL);
    return run_fini(&run, before, err);
}

weft_err weft_tmpl_render_json(const weft_tmpl *tmpl, const struct json_t *vars,
                               const struct tm *now, struct weft_buf *out,
                               struct weft_errmsg *why) {
    struct wefti_tmpl_run run;
    size_t before = out->len;
    if (!json_is_object(vars))
        return weft_err_set(why, WEFT_E_INVAL, "a template's variables are not a JSON object");
    weft_err err = run_init(&run, tmpl, out, why);
    if (!err) err = bind_json(&run, vars);
    if (!err) err = run_template(&run, json_array_size(json_object_get(vars, "messages")), now);
    return run_fini(&run, before, err);
}

/* --- compiling -----------------------------------------------------------------------------------
 */

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

weft_err weft_tmpl_new(const char *source, size_t len, const struct weft_tmpl_specials *specials,
                       weft_tmpl **tmpl_out, struct weft_errmsg *why) {
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
    *tmpl_out = tmpl;
    tmpl = NULL;
cleanup:
    if (err == WEFT_E_NOMEM) (void)weft_err_set(why, err, "no memory for a chat template");
    weft_tmpl_free(tmpl);
    return err;
}

void weft_tmpl_free(weft_tmpl *tmpl) {
    if (!tmpl) return;
    free(tmpl->source);
    free(tmpl->exprs);
    free(tmpl->nodes);
    free(tmpl->args);
    free(tmpl);
}
