/* Tests: what stands behind "is". */
#include <utf8proc.h>

#include "base/check.h"
#include "builtins/builtin.h"
#include "values/operators.h"
#include "values/text.h"

enum {
    DEFINED,
    UNDEFINED_,
    NONE_,
    TRUE_,
    FALSE_,
    BOOLEAN,
    INTEGER,
    FLOAT_,
    NUMBER,
    STRING_,
    MAPPING,
    SEQUENCE,
    ITERABLE,
    CALLABLE,
    ESCAPED
};

static bool is_sized(struct wefti_tmpl_value of) {
    return of.kind == WEFTI_TMPL_UNDEFINED || of.kind == WEFTI_TMPL_STR ||
           of.kind == WEFTI_TMPL_LIST || of.kind == WEFTI_TMPL_TUPLE || of.kind == WEFTI_TMPL_DICT;
}

static bool holds(struct wefti_tmpl_value of, int what) {
    switch (what) {
    case DEFINED:
        return of.kind != WEFTI_TMPL_UNDEFINED;
    case UNDEFINED_:
        return of.kind == WEFTI_TMPL_UNDEFINED;
    case NONE_:
        return of.kind == WEFTI_TMPL_NONE;
    case TRUE_:
        return of.kind == WEFTI_TMPL_BOOL && of.number;
    case FALSE_:
        return of.kind == WEFTI_TMPL_BOOL && !of.number;
    case BOOLEAN:
        return of.kind == WEFTI_TMPL_BOOL;
    case INTEGER:
        return of.kind == WEFTI_TMPL_INT;
    case FLOAT_:
        return of.kind == WEFTI_TMPL_FLOAT;
    case NUMBER:
        return wefti_tmpl_is_number(of);
    case STRING_:
        return of.kind == WEFTI_TMPL_STR;
    case MAPPING:
        return of.kind == WEFTI_TMPL_DICT;
    case SEQUENCE:
        return is_sized(of);
    case ITERABLE:
        return is_sized(of) || of.kind == WEFTI_TMPL_ITER || of.kind == WEFTI_TMPL_LOOP;
    case CALLABLE: /* Undefined has a method to call, which then fails */
        return of.kind >= WEFTI_TMPL_LOOP || of.kind == WEFTI_TMPL_UNDEFINED;
    default:
        return false;
    }
}

static weft_err test_kind(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                          struct wefti_tmpl_value *out) {
    (void)run;
    *out = wefti_tmpl_of_bool(holds(call->self, call->builtin->number));
    return WEFT_OK;
}

static weft_err test_divides(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                             struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value by = wefti_tmpl_of_int(2), rest;
    int what = call->builtin->number;
    if (what < 0 && !call->bound[0]) return wefti_tmpl_fault(run, "divisibleby takes a number");
    if (what < 0) by = *call->bound[0];
    if (!wefti_tmpl_is_number(call->self))
        return wefti_tmpl_fault(run, "a remainder of what is no number");
    weft_err err = wefti_tmpl_arithmetic(run, WEFTI_TMPL_EXPR_MOD, call->self, by, &rest);
    *out = wefti_tmpl_of_bool(wefti_tmpl_to_real(rest) == (what > 0 ? 1 : 0));
    return err;
}

static weft_err test_compare(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                             struct wefti_tmpl_value *out) {
    const struct wefti_tmpl_value *with = call->bound[0];
    enum wefti_tmpl_cmp op = (enum wefti_tmpl_cmp)call->builtin->number;
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
        wrong |= call->builtin->number == 'u' ? lower : upper;
    }
    *out = wefti_tmpl_of_bool(any && !wrong);
    return WEFT_OK;
}

static weft_err test_named(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    if (call->self.kind != WEFTI_TMPL_STR) {
        *out = wefti_tmpl_of_bool(false);
        return wefti_tmpl_charge(run, 1);
    }
    struct weft_str name = wefti_tmpl_text_of(call->self);
    *out = wefti_tmpl_of_bool(call->builtin->number ? wefti_tmpl_find_test(name) != NULL
                                                    : wefti_tmpl_find_filter(name) != NULL);
    return WEFT_OK;
}

const struct wefti_tmpl_builtin wefti_tmpl_tests[] = {
    {"defined", "", test_kind, DEFINED},
    {"undefined", "", test_kind, UNDEFINED_},
    {"none", "", test_kind, NONE_},
    {"true", "", test_kind, TRUE_},
    {"false", "", test_kind, FALSE_},
    {"boolean", "", test_kind, BOOLEAN},
    {"integer", "", test_kind, INTEGER},
    {"float", "", test_kind, FLOAT_},
    {"number", "", test_kind, NUMBER},
    {"string", "", test_kind, STRING_},
    {"mapping", "", test_kind, MAPPING},
    {"sequence", "", test_kind, SEQUENCE},
    {"iterable", "", test_kind, ITERABLE},
    {"callable", "", test_kind, CALLABLE},
    {"escaped", "", test_kind, ESCAPED},
    {"odd", "", test_divides, 1},
    {"even", "", test_divides, 0},
    {"divisibleby", "num", test_divides, -1},
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
    {"upper", "", test_case, 'u'},
    {"lower", "", test_case, 'l'},
    {"filter", "", test_named, 0},
    {"test", "", test_named, 1},
    {NULL},
};
