/* Calls of what a template names, with their arguments; macros and recursive loops run
 * statements. */
#include "base/check.h"
#include "builtins/builtin.h"
#include "run/eval.h"
#include "syntax/tree.h"

/* --- arguments -------------------------------------------------------------------------------- */

static weft_err spread(struct wefti_tmpl_run *run, struct wefti_tmpl_args *args,
                       enum wefti_tmpl_arg_kind kind, struct wefti_tmpl_value value) {
    weft_err err = WEFT_OK;
    if (kind == WEFTI_TMPL_ARG_LIST) {
        struct wefti_tmpl_value items;
        err = wefti_tmpl_iterate(run, value, &items);
        for (uint32_t i = 0; !err && i < items.n; i++)
            err = wefti_tmpl_list_add(run, &args->plain, items.items[i]);
        return err;
    }
    if (value.kind != WEFTI_TMPL_DICT)
        return wefti_tmpl_fault(run, "** before %s", wefti_tmpl_kind_name(&value));
    for (uint32_t i = 0; i < value.n && !err; i++) {
        const struct wefti_tmpl_value *pair = &value.items[2 * (size_t)i];
        if (pair->kind != WEFTI_TMPL_STR)
            return wefti_tmpl_fault(run, "** with a key that is no string");
        err = wefti_tmpl_add_named(run, args, wefti_tmpl_text_of(*pair), pair[1]);
    }
    return err;
}

weft_err wefti_tmpl_eval_args(struct wefti_tmpl_run *run, uint32_t first,
                              struct wefti_tmpl_args *args) {
    weft_err err = WEFT_OK;
    *args = (struct wefti_tmpl_args){0};
    for (uint32_t at = first; at != WEFTI_TMPL_NO_IDX && !err; at = run->tmpl->args[at].next) {
        const struct wefti_tmpl_arg *arg = &run->tmpl->args[at];
        struct wefti_tmpl_value value;
        err = wefti_tmpl_eval(run, arg->expr, &value);
        if (err) break;
        if (arg->kind == WEFTI_TMPL_ARG_PLAIN)
            err = wefti_tmpl_list_add(run, &args->plain, value);
        else if (arg->kind == WEFTI_TMPL_ARG_NAMED)
            err = wefti_tmpl_add_named(run, args, arg->name, value);
        else
            err = spread(run, args, arg->kind, value);
    }
    return err;
}

/* --- macros ----------------------------------------------------------------------------------- */

static const struct wefti_tmpl_value *take_named(const struct wefti_tmpl_args *args,
                                                 struct weft_str name) {
    for (uint32_t i = 0; i < args->named.n; i += 2)
        if (weft_str_is(name, args->named.items[i].text, args->named.items[i].n))
            return &args->named.items[i + 1];
    return NULL;
}

static bool is_param(const weft_tmpl *tmpl, const struct wefti_tmpl_node *node,
                     struct weft_str name) {
    for (uint32_t at = node->params; at != WEFTI_TMPL_NO_IDX; at = tmpl->args[at].next)
        if (weft_str_is(tmpl->args[at].name, name.data, name.len)) return true;
    return false;
}

static weft_err bind_param(struct wefti_tmpl_run *run, const struct wefti_tmpl_arg *param,
                           uint32_t idx, const struct wefti_tmpl_args *args) {
    struct wefti_tmpl_value value = wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED);
    const struct wefti_tmpl_value *named = take_named(args, param->name);
    weft_err err = WEFT_OK;
    if (idx < args->plain.n) {
        if (named)
            return wefti_tmpl_fault(run, "the argument %.*s is given twice",
                                    (int)(param->name.len < 60 ? param->name.len : 60),
                                    param->name.data);
        value = args->plain.items[idx];
    } else if (named) {
        value = *named;
    } else if (param->expr != WEFTI_TMPL_NO_IDX) {
        err = wefti_tmpl_eval(run, param->expr, &value);
    }
    return err ? err : wefti_tmpl_bind(run, run->scope, param->name, value);
}

/* varargs, kwargs and caller: arguments left over by the parameters. */
static weft_err bind_rest(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node,
                          uint32_t n_params, const struct wefti_tmpl_args *args) {
    struct wefti_tmpl_list kwargs = {0};
    struct wefti_tmpl_value varargs = {.kind = WEFTI_TMPL_TUPLE};
    const struct wefti_tmpl_value *caller = take_named(args, (struct weft_str){"caller", 6});
    weft_err err = WEFT_OK;
    if (args->plain.n > n_params) {
        if (!(node->uses & WEFTI_TMPL_USES_VARARGS))
            return wefti_tmpl_fault(run, "%.*s takes %u arguments, not %u", (int)node->text.len,
                                    node->text.data, n_params, args->plain.n);
        varargs.n = args->plain.n - n_params;
        varargs.items = args->plain.items + n_params;
    }
    for (uint32_t i = 0; i < args->named.n && !err; i += 2) {
        struct weft_str name = wefti_tmpl_text_of(args->named.items[i]);
        bool is_caller = WEFT_STR_IS(name, "caller") && (node->uses & WEFTI_TMPL_USES_CALLER);
        if (is_param(run->tmpl, node, name) || is_caller) continue;
        if (!(node->uses & WEFTI_TMPL_USES_KWARGS))
            return wefti_tmpl_fault(run, "%.*s takes no argument %.*s", (int)node->text.len,
                                    node->text.data, (int)(name.len < 60 ? name.len : 60),
                                    name.data);
        err = wefti_tmpl_pairs_put(run, &kwargs, args->named.items[i], args->named.items[i + 1]);
    }
    if (!err && (node->uses & WEFTI_TMPL_USES_VARARGS))
        err = wefti_tmpl_bind(run, run->scope, (struct weft_str){"varargs", 7}, varargs);
    if (!err && (node->uses & WEFTI_TMPL_USES_KWARGS))
        err = wefti_tmpl_bind(run, run->scope, (struct weft_str){"kwargs", 6},
                              wefti_tmpl_of_pairs(&kwargs));
    if (!err && (node->uses & WEFTI_TMPL_USES_CALLER) &&
        !is_param(run->tmpl, node, (struct weft_str){"caller", 6}))
        err = wefti_tmpl_bind(run, run->scope, (struct weft_str){"caller", 6},
                              caller ? *caller : wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED));
    return err;
}

static weft_err enter_macro(struct wefti_tmpl_run *run, const struct wefti_tmpl_macro *macro,
                            const struct wefti_tmpl_args *args) {
    uint32_t n = 0;
    weft_err err = wefti_tmpl_push_scope(run, macro->scope);
    for (uint32_t at = macro->node->params; at != WEFTI_TMPL_NO_IDX && !err;
         at = run->tmpl->args[at].next)
        err = bind_param(run, &run->tmpl->args[at], n++, args);
    return err ? err : bind_rest(run, macro->node, n, args);
}

/* Only the macro's text is kept; values it made are dropped. */
static weft_err call_macro(struct wefti_tmpl_run *run, const struct wefti_tmpl_macro *macro,
                           const struct wefti_tmpl_args *args, struct wefti_tmpl_value *out) {
    struct wefti_tmpl_space *scope = run->scope;
    struct weft_buf *outer = run->out, text;
    struct wefti_tmpl_mark mark = wefti_tmpl_mark(run);
    wefti_tmpl_buf_init(run, &text);
    run->out = &text;
    weft_err err = enter_macro(run, macro, args);
    if (!err) err = wefti_tmpl_run_body(run, macro->node->body);
    run->out = outer;
    run->scope = scope;
    if (err) {
        weft_buf_fini(&text);
        return err;
    }
    wefti_tmpl_drop_since(run, mark);
    return wefti_tmpl_take_buf(run, &text, out);
}

weft_err wefti_tmpl_new_macro(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node,
                              struct wefti_tmpl_value *out) {
    WEFT_ASSERT(node->kind == WEFTI_TMPL_NODE_MACRO || node->kind == WEFTI_TMPL_NODE_CALL);
    void *made;
    weft_err err = wefti_tmpl_alloc(run, sizeof(struct wefti_tmpl_macro), &made);
    if (err) return err;
    struct wefti_tmpl_macro *macro = made;
    *macro = (struct wefti_tmpl_macro){node, run->scope};
    *out = (struct wefti_tmpl_value){.kind = WEFTI_TMPL_MACRO, .macro = macro};
    return WEFT_OK;
}

/* loop(items): the loop's body over other items, a level deeper. */
static weft_err call_loop(struct wefti_tmpl_run *run, const struct wefti_tmpl_loop *loop,
                          const struct wefti_tmpl_args *args, struct wefti_tmpl_value *out) {
    WEFT_ASSERT(loop->node && loop->outside);
    struct wefti_tmpl_space *scope = run->scope;
    struct weft_buf *outer = run->out, text;
    if (!loop->node->recursive || args->plain.n != 1 || args->named.n > 0)
        return wefti_tmpl_fault(run, "only a recursive loop can be called, and with one argument");
    wefti_tmpl_buf_init(run, &text);
    run->out = &text;
    run->scope = loop->outside;
    weft_err err = wefti_tmpl_run_loop(run, loop->node, args->plain.items[0], loop->depth + 1);
    run->out = outer;
    run->scope = scope;
    if (!err) return wefti_tmpl_take_buf(run, &text, out);
    weft_buf_fini(&text);
    return err;
}

weft_err wefti_tmpl_call_value(struct wefti_tmpl_run *run, struct wefti_tmpl_value callee,
                               const struct wefti_tmpl_args *args, struct wefti_tmpl_value *out) {
    weft_err err = wefti_tmpl_deeper(run);
    if (!err) {
        switch ((enum wefti_tmpl_kind)callee.kind) {
        case WEFTI_TMPL_MACRO:
            err = call_macro(run, callee.macro, args, out);
            break;
        case WEFTI_TMPL_LOOP:
            err = call_loop(run, callee.loop, args, out);
            break;
        case WEFTI_TMPL_FUNC:
            err = wefti_tmpl_call_builtin(run, callee.builtin, callee, args, out);
            break;
        case WEFTI_TMPL_METHOD:
            err = wefti_tmpl_call_builtin(run, callee.method->builtin, callee.method->self, args,
                                          out);
            break;
        default:
            err = wefti_tmpl_fault(run, "cannot call %s", wefti_tmpl_kind_name(&callee));
        }
    }
    run->depth--;
    return err;
}
