/* Names and expressions evaluated. */
#include "run/eval.h"
#include "base/check.h"
#include "builtins/builtin.h"
#include "syntax/tree.h"
#include "values/operators.h"

/* --- names ------------------------------------------------------------------------------------ */

static weft_err eval_name(struct wefti_tmpl_run *run, struct weft_str name,
                          struct wefti_tmpl_value *out) {
    *out = wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED);
    for (const struct wefti_tmpl_space *at = run->scope; at; at = at->parent) {
        const struct wefti_tmpl_value *found = wefti_tmpl_space_find(at, name);
        weft_err err = wefti_tmpl_charge(run, at->n / 8);
        if (err) return err;
        if (!found) continue;
        *out = *found;
        return WEFT_OK;
    }
    const struct wefti_tmpl_builtin *func = wefti_tmpl_find_function(name);
    if (func) *out = (struct wefti_tmpl_value){.kind = WEFTI_TMPL_FUNC, .builtin = func};
    return WEFT_OK;
}

static weft_err bind_member(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *target,
                            struct wefti_tmpl_value value) {
    struct wefti_tmpl_value space;
    weft_err err = wefti_tmpl_eval(run, target->a, &space);
    if (err) return err;
    if (space.kind != WEFTI_TMPL_NAMESPACE)
        return wefti_tmpl_fault(run, "cannot set a member of %s", wefti_tmpl_kind_name(&space));
    run->escapes++;
    return wefti_tmpl_bind(run, space.space, target->text, value);
}

weft_err wefti_tmpl_bind_target(struct wefti_tmpl_run *run, uint32_t idx,
                                struct wefti_tmpl_value value) {
    WEFT_ASSERT(idx < run->tmpl->n_exprs);
    const weft_tmpl *tmpl = run->tmpl;
    const struct wefti_tmpl_expr *target = &tmpl->exprs[idx];
    if (target->kind == WEFTI_TMPL_EXPR_NAME)
        return wefti_tmpl_bind(run, run->scope, target->text, value);
    if (target->kind == WEFTI_TMPL_EXPR_MEMBER) return bind_member(run, target, value);
    WEFT_ASSERT(target->kind == WEFTI_TMPL_EXPR_TUPLE);
    struct wefti_tmpl_value items;
    uint32_t n = 0;
    weft_err err = wefti_tmpl_iterate(run, value, &items);
    for (uint32_t at = target->args; at != WEFTI_TMPL_NO_IDX; at = tmpl->args[at].next)
        n++;
    if (!err && items.n != n)
        return wefti_tmpl_fault(run, "%u values where %u names wait", items.n, n);
    n = 0;
    for (uint32_t at = target->args; at != WEFTI_TMPL_NO_IDX && !err; at = tmpl->args[at].next)
        err = wefti_tmpl_bind_target(run, tmpl->args[at].expr, items.items[n++]);
    return err;
}

/* --- expressions ------------------------------------------------------------------------------ */

static weft_err not_callable(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *callee) {
    if (callee->kind == WEFTI_TMPL_EXPR_NAME || callee->kind == WEFTI_TMPL_EXPR_MEMBER)
        return wefti_tmpl_fault(run, "there is no %.*s to call",
                                (int)(callee->text.len < 60 ? callee->text.len : 60),
                                callee->text.data);
    return wefti_tmpl_fault(run, "cannot call something undefined");
}

/* `caller`: one more argument of that name, or NULL. */
static weft_err eval_call(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *expr,
                          const struct wefti_tmpl_value *caller, struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value callee;
    struct wefti_tmpl_args args;
    weft_err err = wefti_tmpl_eval(run, expr->a, &callee);
    if (!err) err = wefti_tmpl_eval_args(run, expr->args, &args);
    if (!err && caller)
        err = wefti_tmpl_add_named(run, &args, (struct weft_str){"caller", 6}, *caller);
    if (err) return err;
    run->line = expr->line;
    if (callee.kind == WEFTI_TMPL_UNDEFINED) return not_callable(run, &run->tmpl->exprs[expr->a]);
    return wefti_tmpl_call_value(run, callee, &args, out);
}

weft_err wefti_tmpl_eval_call_with(struct wefti_tmpl_run *run, uint32_t idx,
                                   struct wefti_tmpl_value caller, struct wefti_tmpl_value *out) {
    WEFT_ASSERT(run->tmpl->exprs[idx].kind == WEFTI_TMPL_EXPR_CALL);
    return eval_call(run, &run->tmpl->exprs[idx], &caller, out);
}

static weft_err eval_builtin(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *expr,
                             struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value of;
    struct wefti_tmpl_args args;
    if (!expr->builtin)
        return wefti_tmpl_fault(run, "there is no %s %.*s",
                                expr->kind == WEFTI_TMPL_EXPR_TEST ? "test" : "filter",
                                (int)(expr->text.len < 60 ? expr->text.len : 60), expr->text.data);
    weft_err err = wefti_tmpl_eval(run, expr->a, &of);
    if (!err) err = wefti_tmpl_eval_args(run, expr->args, &args);
    run->line = expr->line;
    if (!err) err = wefti_tmpl_call_builtin(run, expr->builtin, of, &args, out);
    if (!err && expr->negated) *out = wefti_tmpl_of_bool(!wefti_tmpl_truth(*out));
    return err;
}

static weft_err eval_index(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *expr,
                           struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value of, by;
    weft_err err = wefti_tmpl_eval(run, expr->a, &of);
    if (!err) err = wefti_tmpl_eval(run, expr->b, &by);
    run->line = expr->line;
    return err ? err : wefti_tmpl_index(run, of, by, out);
}

static weft_err eval_slice(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *expr,
                           struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value of, bounds[3];
    uint32_t at = expr->args;
    weft_err err = wefti_tmpl_eval(run, expr->a, &of);
    for (size_t i = 0; i < 3 && !err; i++, at = run->tmpl->args[at].next) {
        uint32_t idx = run->tmpl->args[at].expr;
        bounds[i] = wefti_tmpl_of_kind(WEFTI_TMPL_NONE);
        if (idx != WEFTI_TMPL_NO_IDX) err = wefti_tmpl_eval(run, idx, &bounds[i]);
    }
    run->line = expr->line;
    return err ? err : wefti_tmpl_slice(run, of, bounds, out);
}

static weft_err eval_items(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *expr,
                           struct wefti_tmpl_value *out) {
    struct wefti_tmpl_list list = {0};
    weft_err err = WEFT_OK;
    for (uint32_t at = expr->args; at != WEFTI_TMPL_NO_IDX && !err; at = run->tmpl->args[at].next) {
        struct wefti_tmpl_value item;
        err = wefti_tmpl_eval(run, run->tmpl->args[at].expr, &item);
        if (!err) err = wefti_tmpl_list_add(run, &list, item);
    }
    *out = wefti_tmpl_of_list(&list, expr->kind == WEFTI_TMPL_EXPR_LIST ? WEFTI_TMPL_LIST
                                                                        : WEFTI_TMPL_TUPLE);
    return err;
}

static weft_err eval_dict(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *expr,
                          struct wefti_tmpl_value *out) {
    const weft_tmpl *tmpl = run->tmpl;
    struct wefti_tmpl_list list = {0};
    weft_err err = WEFT_OK;
    for (uint32_t at = expr->args; at != WEFTI_TMPL_NO_IDX && !err;) {
        uint32_t value_at = tmpl->args[at].next;
        struct wefti_tmpl_value key, value;
        err = wefti_tmpl_eval(run, tmpl->args[at].expr, &key);
        if (!err) err = wefti_tmpl_eval(run, tmpl->args[value_at].expr, &value);
        if (!err) err = wefti_tmpl_pairs_put(run, &list, key, value);
        at = tmpl->args[value_at].next;
    }
    *out = wefti_tmpl_of_pairs(&list);
    return err;
}

static weft_err compare(struct wefti_tmpl_run *run, enum wefti_tmpl_cmp op,
                        struct wefti_tmpl_value a, struct wefti_tmpl_value b, bool *out) {
    int order = 0;
    weft_err err;
    switch (op) {
    case WEFTI_TMPL_EQ:
    case WEFTI_TMPL_NE:
        err = wefti_tmpl_equal(run, a, b, out);
        *out = *out == (op == WEFTI_TMPL_EQ);
        return err;
    case WEFTI_TMPL_IN:
    case WEFTI_TMPL_NOT_IN:
        err = wefti_tmpl_contains(run, b, a, out);
        *out = *out == (op == WEFTI_TMPL_IN);
        return err;
    default:
        err = wefti_tmpl_compare(run, a, b, &order);
    }
    *out = op == WEFTI_TMPL_LT   ? order < 0
           : op == WEFTI_TMPL_LE ? order <= 0
           : op == WEFTI_TMPL_GT ? order > 0
                                 : order >= 0;
    return err;
}

/* a < b < c: each pair in turn, up to the first that does not hold. */
static weft_err eval_compare(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *expr,
                             struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value left, right;
    bool holds = true;
    weft_err err = wefti_tmpl_eval(run, expr->a, &left);
    for (uint32_t at = expr->args; at != WEFTI_TMPL_NO_IDX && holds && !err;
         at = run->tmpl->args[at].next) {
        err = wefti_tmpl_eval(run, run->tmpl->args[at].expr, &right);
        run->line = expr->line;
        if (!err)
            err = compare(run, (enum wefti_tmpl_cmp)run->tmpl->args[at].kind, left, right, &holds);
        left = right;
    }
    *out = wefti_tmpl_of_bool(holds);
    return err;
}

static weft_err eval_binary(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *expr,
                            struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value a, b;
    weft_err err = wefti_tmpl_eval(run, expr->a, &a);
    if (!err) err = wefti_tmpl_eval(run, expr->b, &b);
    if (err) return err;
    run->line = expr->line;
    if (expr->kind != WEFTI_TMPL_EXPR_CONCAT)
        return wefti_tmpl_arithmetic(run, expr->kind, a, b, out);
    err = wefti_tmpl_to_str(run, a, &a);
    if (!err) err = wefti_tmpl_to_str(run, b, &b);
    return err ? err : wefti_tmpl_arithmetic(run, WEFTI_TMPL_EXPR_ADD, a, b, out);
}

static weft_err eval_unary(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *expr,
                           struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value a;
    weft_err err = wefti_tmpl_eval(run, expr->a, &a);
    if (err) return err;
    run->line = expr->line;
    if (expr->kind == WEFTI_TMPL_EXPR_NOT) {
        *out = wefti_tmpl_of_bool(!wefti_tmpl_truth(a));
        return WEFT_OK;
    }
    if (expr->kind == WEFTI_TMPL_EXPR_MEMBER) return wefti_tmpl_member(run, a, expr->text, out);
    if (!wefti_tmpl_is_number(a))
        return wefti_tmpl_fault(run, "a sign before %s", wefti_tmpl_kind_name(&a));
    if (a.kind == WEFTI_TMPL_FLOAT) {
        *out = wefti_tmpl_of_float(expr->kind == WEFTI_TMPL_EXPR_NEG ? -a.real : a.real);
        return WEFT_OK;
    }
    return wefti_tmpl_arithmetic(
        run, expr->kind == WEFTI_TMPL_EXPR_NEG ? WEFTI_TMPL_EXPR_SUB : WEFTI_TMPL_EXPR_ADD,
        wefti_tmpl_of_int(0), a, out);
}

/* and, or, if-else: evaluates only what is needed. */
static weft_err eval_choice(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *expr,
                            struct wefti_tmpl_value *out) {
    weft_err err = wefti_tmpl_eval(run, expr->a, out);
    if (err) return err;
    bool truth = wefti_tmpl_truth(*out);
    if (expr->kind == WEFTI_TMPL_EXPR_AND)
        return truth ? wefti_tmpl_eval(run, expr->b, out) : WEFT_OK;
    if (expr->kind == WEFTI_TMPL_EXPR_OR)
        return truth ? WEFT_OK : wefti_tmpl_eval(run, expr->b, out);
    if (truth) return wefti_tmpl_eval(run, expr->b, out);
    if (expr->c != WEFTI_TMPL_NO_IDX) return wefti_tmpl_eval(run, expr->c, out);
    *out = wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED);
    return WEFT_OK;
}

static weft_err eval_kind(struct wefti_tmpl_run *run, const struct wefti_tmpl_expr *expr,
                          struct wefti_tmpl_value *out) {
    switch (expr->kind) {
    case WEFTI_TMPL_EXPR_STRING:
        *out = wefti_tmpl_of_str(expr->text.data, expr->text.len);
        return WEFT_OK;
    case WEFTI_TMPL_EXPR_WRITTEN:
        *out = run->written;
        return WEFT_OK;
    case WEFTI_TMPL_EXPR_INT:
        *out = wefti_tmpl_of_int(expr->number);
        return WEFT_OK;
    case WEFTI_TMPL_EXPR_FLOAT:
        *out = wefti_tmpl_of_float(expr->real);
        return WEFT_OK;
    case WEFTI_TMPL_EXPR_BOOL:
        *out = wefti_tmpl_of_bool(expr->number != 0);
        return WEFT_OK;
    case WEFTI_TMPL_EXPR_NONE:
        *out = wefti_tmpl_of_kind(WEFTI_TMPL_NONE);
        return WEFT_OK;
    case WEFTI_TMPL_EXPR_NAME:
        return eval_name(run, expr->text, out);
    case WEFTI_TMPL_EXPR_INDEX:
        return eval_index(run, expr, out);
    case WEFTI_TMPL_EXPR_SLICE:
        return eval_slice(run, expr, out);
    case WEFTI_TMPL_EXPR_CALL:
        return eval_call(run, expr, NULL, out);
    case WEFTI_TMPL_EXPR_FILTER:
    case WEFTI_TMPL_EXPR_TEST:
        return eval_builtin(run, expr, out);
    case WEFTI_TMPL_EXPR_LIST:
    case WEFTI_TMPL_EXPR_TUPLE:
        return eval_items(run, expr, out);
    case WEFTI_TMPL_EXPR_DICT:
        return eval_dict(run, expr, out);
    case WEFTI_TMPL_EXPR_COMPARE:
        return eval_compare(run, expr, out);
    case WEFTI_TMPL_EXPR_AND:
    case WEFTI_TMPL_EXPR_OR:
    case WEFTI_TMPL_EXPR_COND:
        return eval_choice(run, expr, out);
    case WEFTI_TMPL_EXPR_NEG:
    case WEFTI_TMPL_EXPR_POS:
    case WEFTI_TMPL_EXPR_NOT:
    case WEFTI_TMPL_EXPR_MEMBER:
        return eval_unary(run, expr, out);
    default:
        return eval_binary(run, expr, out);
    }
}

weft_err wefti_tmpl_eval(struct wefti_tmpl_run *run, uint32_t idx, struct wefti_tmpl_value *out) {
    WEFT_ASSERT(idx < run->tmpl->n_exprs);
    const struct wefti_tmpl_expr *expr = &run->tmpl->exprs[idx];
    *out = wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED);
    run->line = expr->line;
    weft_err err = wefti_tmpl_deeper(run);
    if (!err) err = eval_kind(run, expr, out);
    WEFT_ASSERT(run->depth > 0);
    run->depth--;
    return err;
}
