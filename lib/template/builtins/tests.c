/* Tests: the names after "is". */
#include <utf8proc.h>

#include "base/check.h"
#include "builtins/builtin.h"
#include "values/operators.h"
#include "values/text.h"

enum {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_TRUE,
    IS_FALSE,
    IS_BOOLEAN,
    IS_INTEGER,
    IS_FLOAT,
    IS_NUMBER,
    IS_STRING,
    IS_MAPPING,
    IS_SEQUENCE,
    IS_ITERABLE,
    IS_CALLABLE,
    IS_ESCAPED
};

static bool is_sized(struct wefti_tmpl_value of) {
    return of.kind == WEFTI_TMPL_UNDEFINED || of.kind == WEFTI_TMPL_STR ||
           of.kind == WEFTI_TMPL_LIST || of.kind == WEFTI_TMPL_TUPLE || of.kind == WEFTI_TMPL_DICT;
}

static bool holds(struct wefti_tmpl_value of, int what) {
    switch (what) {
    case IS_DEFINED:
        return of.kind != WEFTI_TMPL_UNDEFINED;
    case IS_UNDEFINED:
        return of.kind == WEFTI_TMPL_UNDEFINED;
    case IS_NONE:
        return of.kind == WEFTI_TMPL_NONE;
    case IS_TRUE:
        return of.kind == WEFTI_TMPL_BOOL && of.number;
    case IS_FALSE:
        return of.kind == WEFTI_TMPL_BOOL && !of.number;
    case IS_BOOLEAN:
        return of.kind == WEFTI_TMPL_BOOL;
    case IS_INTEGER:
        return of.kind == WEFTI_TMPL_INT;
    case IS_FLOAT:
        return of.kind == WEFTI_TMPL_FLOAT;
    case IS_NUMBER:
        return wefti_tmpl_is_number(of);
    case IS_STRING:
        return of.kind == WEFTI_TMPL_STR;
    case IS_MAPPING:
        return of.kind == WEFTI_TMPL_DICT;
    case IS_SEQUENCE:
        return is_sized(of);
    case IS_ITERABLE:
        return is_sized(of) || of.kind == WEFTI_TMPL_ITER || of.kind == WEFTI_TMPL_LOOP;
    case IS_CALLABLE: /* Undefined has a method to call, which then fails */
        return of.kind >= WEFTI_TMPL_LOOP || of.kind == WEFTI_TMPL_UNDEFINED;
    default:
        return false;
    }
}

static weft_err test_kind(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                          struct wefti_tmpl_value *out) {
    (void)run;
    *out = wefti_tmpl_of_bool(holds(call->self, call->builtin->variant));
    return WEFT_OK;
}

enum { IS_EVEN, IS_ODD, IS_DIVISIBLE };

static weft_err test_divides(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                             struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value by = wefti_tmpl_of_int(2), rest;
    int what = call->builtin->variant;
    if (what == IS_DIVISIBLE && !call->bound[0])
        return wefti_tmpl_fault(run, "divisibleby takes a number");
    if (what == IS_DIVISIBLE) by = *call->bound[0];
    if (!wefti_tmpl_is_number(call->self))
        return wefti_tmpl_fault(run, "a remainder of what is no number");
    weft_err err = wefti_tmpl_arithmetic(run, WEFTI_TMPL_EXPR_MOD, call->self, by, &rest);
    if (err) return err;
    *out = wefti_tmpl_of_bool(wefti_tmpl_to_real(rest) == (what == IS_ODD ? 1 : 0));
    return WEFT_OK;
}

static weft_err test_compare(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                             struct wefti_tmpl_value *out) {
    const struct wefti_tmpl_value *with = call->bound[0];
    enum wefti_tmpl_cmp op = (enum wefti_tmpl_cmp)call->builtin->variant;
    int order = 0;
    bool truth = false;
    weft_err err;
    if (!with) return wefti_tmpl_fault(run, "the test %s takes an argument", call->builtin->name);
    if (op == WEFTI_TMPL_IN) {
        err = wefti_tmpl_contains(run, *with, call->self, &truth);
    } else if (op == WEFTI_TMPL_EQ || op == WEFTI_TMPL_NE) {
        err = wefti_tmpl_equal(run, call->self, *with, &truth);
        truth = truth == (op == WEFTI_TMPL_EQ);
    } else {
        err = wefti_tmpl_compare(run, call->self, *with, &order);
        truth = op == WEFTI_TMPL_LT   ? order < 0
                : op == WEFTI_TMPL_LE ? order <= 0
                : op == WEFTI_TMPL_GT ? order > 0
                                      : order >= 0;
    }
    *out = wefti_tmpl_of_bool(truth);
    return err;
}

static weft_err test_sameas(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            struct wefti_tmpl_value *out) {
    const struct wefti_tmpl_value *with = call->bound[0];
    bool same = false;
    if (!with) return wefti_tmpl_fault(run, "the test sameas takes an argument");
    weft_err err = WEFT_OK;
    if (with->kind == call->self.kind) err = wefti_tmpl_equal(run, call->self, *with, &same);
    *out = wefti_tmpl_of_bool(same);
    return err;
}

enum { IS_UPPER, IS_LOWER };

/* Some letter has a case, and none has the other one. */
static weft_err test_case(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                          struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value text;
    weft_err err = wefti_tmpl_to_str(run, call->self, &text);
    if (!err) err = wefti_tmpl_charge(run, wefti_tmpl_chars_steps(text.n));
    if (err) return err;
    bool any = false, wrong = false;
    const char *end = text.text + text.n;
    size_t len;
    for (const char *at = text.text; at < end; at += len) {
        utf8proc_int32_t code = (utf8proc_int32_t)wefti_tmpl_char_get(at, end, &len);
        bool upper = utf8proc_category(code) == UTF8PROC_CATEGORY_LU;
        bool lower = utf8proc_category(code) == UTF8PROC_CATEGORY_LL;
        any |= upper || lower;
        wrong |= call->builtin->variant == IS_UPPER ? lower : upper;
    }
    *out = wefti_tmpl_of_bool(any && !wrong);
    return WEFT_OK;
}

enum { NAMES_FILTER, NAMES_TEST };

static weft_err test_named(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    if (call->self.kind != WEFTI_TMPL_STR) {
        *out = wefti_tmpl_of_bool(false);
        return wefti_tmpl_charge(run, 1);
    }
    struct weft_str name = wefti_tmpl_text_of(call->self);
    *out = wefti_tmpl_of_bool(call->builtin->variant == NAMES_TEST
                                  ? wefti_tmpl_find_test(name) != NULL
                                  : wefti_tmpl_find_filter(name) != NULL);
    return WEFT_OK;
}

const struct wefti_tmpl_builtin wefti_tmpl_tests[] = {
    {"defined", "", test_kind, IS_DEFINED},
    {"undefined", "", test_kind, IS_UNDEFINED},
    {"none", "", test_kind, IS_NONE},
    {"true", "", test_kind, IS_TRUE},
    {"false", "", test_kind, IS_FALSE},
    {"boolean", "", test_kind, IS_BOOLEAN},
    {"integer", "", test_kind, IS_INTEGER},
    {"float", "", test_kind, IS_FLOAT},
    {"number", "", test_kind, IS_NUMBER},
    {"string", "", test_kind, IS_STRING},
    {"mapping", "", test_kind, IS_MAPPING},
    {"sequence", "", test_kind, IS_SEQUENCE},
    {"iterable", "", test_kind, IS_ITERABLE},
    {"callable", "", test_kind, IS_CALLABLE},
    {"escaped", "", test_kind, IS_ESCAPED},
    {"odd", "", test_divides, IS_ODD},
    {"even", "", test_divides, IS_EVEN},
    {"divisibleby", "num", test_divides, IS_DIVISIBLE},
    {"eq", "other", test_compare, WEFTI_TMPL_EQ},
    {"equalto", "other", test_compare, WEFTI_TMPL_EQ},
    {"==", "other", test_compare, WEFTI_TMPL_EQ},
    {"ne", "other", test_compare, WEFTI_TMPL_NE},
    {"!=", "other", test_compare, WEFTI_TMPL_NE},
    {"lt", "other", test_compare, WEFTI_TMPL_LT},
    {"lessthan", "other", test_compare, WEFTI_TMPL_LT},
    {"<", "other", test_compare, WEFTI_TMPL_LT},
    {"le", "other", test_compare, WEFTI_TMPL_LE},
    {"<=", "other", test_compare, WEFTI_TMPL_LE},
    {"gt", "other", test_compare, WEFTI_TMPL_GT},
    {"greaterthan", "other", test_compare, WEFTI_TMPL_GT},
    {">", "other", test_compare, WEFTI_TMPL_GT},
    {"ge", "other", test_compare, WEFTI_TMPL_GE},
    {">=", "other", test_compare, WEFTI_TMPL_GE},
    {"in", "seq", test_compare, WEFTI_TMPL_IN},
    {"sameas", "other", test_sameas, 0},
    {"upper", "", test_case, IS_UPPER},
    {"lower", "", test_case, IS_LOWER},
    {"filter", "", test_named, NAMES_FILTER},
    {"test", "", test_named, NAMES_TEST},
    {.name = NULL},
};
