/* Statements run. */
#include "base/check.h"
#include "run/eval.h"
#include "syntax/tree.h"

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

/* Runs the body in a new inner scope. */
static weft_err run_scoped(struct wefti_tmpl_run *run, uint32_t body) {
    struct wefti_tmpl_space *scope = run->scope;
    weft_err err = wefti_tmpl_push_scope(run, scope);
    if (!err) err = wefti_tmpl_run_body(run, body);
    run->scope = scope;
    return err;
}

/* Runs the body and returns what it writes as a string. */
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
    WEFT_ASSERT(loop->index < loop->n);
    struct wefti_tmpl_mark mark = wefti_tmpl_mark(run);
    weft_err err = wefti_tmpl_push_scope(run, loop->outside);
    if (!err)
        err = wefti_tmpl_bind(run, run->scope, (struct weft_str){"loop", 4},
                              (struct wefti_tmpl_value){.kind = WEFTI_TMPL_LOOP, .loop = loop});
    if (!err) err = wefti_tmpl_bind_target(run, node->target, loop->items[loop->index]);
    if (!err) err = wefti_tmpl_run_body(run, node->body);
    run->scope = loop->outside; /* names set in a round end with it */
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
    WEFT_ASSERT(first == WEFTI_TMPL_NO_IDX || first < run->tmpl->n_nodes);
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
