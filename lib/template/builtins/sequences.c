/* Filters of sequences. Filters that are lazy in Jinja yield an iterator here too: it has no length
 * and is always true, and "| list" makes a list of it. */
#include "base/check.h"
#include "builtins/builtin.h"
#include "builtins/member.h"
#include "values/operators.h"
#include "values/text.h"

static weft_err self_items(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    weft_err err = wefti_tmpl_iterate(run, call->self, out);
    return err ? err : wefti_tmpl_charge(run, out->n / 8 + 1);
}

/* --- attributes and keys ---------------------------------------------------------------------- */

/* attribute='a.b.0': a member of a member; `otherwise`, if any, where there is none. */
static weft_err attribute_of(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                             const struct wefti_tmpl_value *path,
                             const struct wefti_tmpl_value *otherwise,
                             struct wefti_tmpl_value *out) {
    *out = of;
    if (!path || path->kind == WEFTI_TMPL_NONE) return WEFT_OK;
    if (path->kind != WEFTI_TMPL_STR) return wefti_tmpl_index(run, of, *path, out);
    const char *at = path->text, *end = at + path->n;
    weft_err err = WEFT_OK;
    while (!err) {
        const char *dot = at < end ? memchr(at, '.', (size_t)(end - at)) : NULL;
        size_t len = (size_t)((dot ? dot : end) - at);
        struct wefti_tmpl_value part = wefti_tmpl_of_str(at, len);
        int64_t number = 0;
        bool digits = len > 0 && len < 10;
        for (size_t i = 0; i < len; i++) {
            digits &= at[i] >= '0' && at[i] <= '9';
            number = number * 10 + (digits ? at[i] - '0' : 0);
        }
        if (digits) part = wefti_tmpl_of_int(number);
        err = wefti_tmpl_index(run, *out, part, out);
        if (!err && out->kind == WEFTI_TMPL_UNDEFINED && otherwise) *out = *otherwise;
        if (!dot) break;
        at = dot + 1;
    }
    return err;
}

/* The key for sorting and comparing: without letter case, unless asked otherwise. */
static weft_err key_of(struct wefti_tmpl_run *run, struct wefti_tmpl_value item,
                       const struct wefti_tmpl_value *path, bool case_sensitive,
                       struct wefti_tmpl_value *out) {
    weft_err err = attribute_of(run, item, path, NULL, out);
    if (err || case_sensitive || out->kind != WEFTI_TMPL_STR) return err;
    return wefti_tmpl_str_case(run, wefti_tmpl_text_of(*out), WEFTI_TMPL_CASE_LOWER, out);
}

/* Keys and items in turn. */
static weft_err with_keys(struct wefti_tmpl_run *run, struct wefti_tmpl_value items,
                          const struct wefti_tmpl_value *path, bool case_sensitive,
                          struct wefti_tmpl_list *out) {
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < items.n && !err; i++) {
        struct wefti_tmpl_value key;
        err = key_of(run, items.items[i], path, case_sensitive, &key);
        if (!err) err = wefti_tmpl_list_add(run, out, key);
        if (!err) err = wefti_tmpl_list_add(run, out, items.items[i]);
    }
    return err;
}

/* Sorting: pairs of keys and items, merged from one array into the other. */
struct sorting {
    const struct wefti_tmpl_value *from;
    struct wefti_tmpl_value *to;
    int sign; /* -1: the greatest first */
};

/* Merges two sorted runs of pairs; on equal keys the first run goes first. */
static weft_err merge(struct wefti_tmpl_run *run, const struct sorting *sort, uint32_t low,
                      uint32_t mid, uint32_t high) {
    const struct wefti_tmpl_value *from = sort->from;
    uint32_t a = low, b = mid;
    weft_err err = WEFT_OK;
    WEFT_ASSERT(low <= mid);
    WEFT_ASSERT(mid <= high);
    for (uint32_t i = low; i < high && !err; i++) {
        int order = a < mid ? -1 : 1;
        if (a < mid && b < high)
            err = wefti_tmpl_compare(run, from[2 * (size_t)a], from[2 * (size_t)b], &order);
        bool first = b == high || (a < mid && order * sort->sign <= 0);
        memcpy(&sort->to[2 * (size_t)i], &from[2 * (size_t)(first ? a++ : b++)], 2 * sizeof *from);
    }
    return err ? err : wefti_tmpl_charge(run, high - low);
}

/* Stable, by merging ever longer runs; the sorted pairs end up in `pairs`. */
static weft_err sort_pairs(struct wefti_tmpl_run *run, struct wefti_tmpl_list *pairs,
                           bool reverse) {
    WEFT_ASSERT(pairs->n % 2 == 0);
    uint32_t n = pairs->n / 2;
    void *made;
    weft_err err = wefti_tmpl_alloc(run, pairs->n * sizeof *pairs->items, &made);
    if (err) return err;
    struct wefti_tmpl_value *from = pairs->items, *to = made;
    for (uint32_t width = 1; width < n && !err; width *= 2) {
        for (uint32_t low = 0; low < n && !err; low += 2 * width) {
            uint32_t mid = low + width < n ? low + width : n;
            uint32_t high = mid + width < n ? mid + width : n;
            struct sorting sort = {from, to, reverse ? -1 : 1};
            err = merge(run, &sort, low, mid, high);
        }
        struct wefti_tmpl_value *old = from;
        from = to;
        to = old;
    }
    pairs->items = from;
    return err;
}

static struct wefti_tmpl_value second_halves(struct wefti_tmpl_list *pairs,
                                             enum wefti_tmpl_kind kind) {
    WEFT_ASSERT(pairs->n % 2 == 0);
    for (uint32_t i = 0; i < pairs->n / 2; i++)
        pairs->items[i] = pairs->items[2 * (size_t)i + 1];
    pairs->n /= 2;
    return wefti_tmpl_of_list(pairs, kind);
}

/* --- order ------------------------------------------------------------------------------------ */

static weft_err filter_sort(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value items;
    struct wefti_tmpl_list pairs = {0};
    weft_err err = self_items(run, call, &items);
    if (!err)
        err = with_keys(run, items, call->bound[2], wefti_tmpl_arg_truth(call, 1, false), &pairs);
    if (!err) err = sort_pairs(run, &pairs, wefti_tmpl_arg_truth(call, 0, false));
    if (!err) *out = second_halves(&pairs, WEFTI_TMPL_LIST);
    return err;
}

static weft_err filter_dictsort(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                                struct wefti_tmpl_value *out) {
    struct wefti_tmpl_list pairs = {0};
    struct weft_str by;
    weft_err err = wefti_tmpl_arg_str(run, call, 1, "key", &by);
    if (!err && call->self.kind != WEFTI_TMPL_DICT)
        err = wefti_tmpl_fault(run, "dictsort of %s", wefti_tmpl_kind_name(&call->self));
    if (!err && !WEFT_STR_IS(by, "key") && !WEFT_STR_IS(by, "value"))
        err = wefti_tmpl_fault(run, "dictsort by what is neither key nor value");
    if (err) return err;
    struct wefti_tmpl_value place = wefti_tmpl_of_int(WEFT_STR_IS(by, "value"));
    for (uint32_t i = 0; i < call->self.n && !err; i++) {
        struct wefti_tmpl_value pair = {
            .kind = WEFTI_TMPL_TUPLE, .n = 2, .items = &call->self.items[2 * (size_t)i]};
        struct wefti_tmpl_value key;
        err = key_of(run, pair, &place, wefti_tmpl_arg_truth(call, 0, false), &key);
        if (!err) err = wefti_tmpl_list_add(run, &pairs, key);
        if (!err) err = wefti_tmpl_list_add(run, &pairs, pair);
    }
    if (!err) err = sort_pairs(run, &pairs, wefti_tmpl_arg_truth(call, 2, false));
    if (!err) *out = second_halves(&pairs, WEFTI_TMPL_LIST);
    return err;
}

enum { LEAST = -1, GREATEST = 1 };

static weft_err filter_extreme(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                               struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value items;
    struct wefti_tmpl_list pairs = {0};
    weft_err err = self_items(run, call, &items);
    if (!err)
        err = with_keys(run, items, call->bound[1], wefti_tmpl_arg_truth(call, 0, false), &pairs);
    uint32_t best = 0;
    for (uint32_t i = 2; i < pairs.n && !err; i += 2) {
        int order;
        err = wefti_tmpl_compare(run, pairs.items[i], pairs.items[best], &order);
        if (order * call->builtin->variant > 0) best = i;
    }
    if (!err && pairs.n > 0) *out = pairs.items[best + 1];
    return err;
}

static weft_err filter_reverse(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                               struct wefti_tmpl_value *out) {
    const struct wefti_tmpl_value bounds[3] = {{.kind = WEFTI_TMPL_NONE},
                                               {.kind = WEFTI_TMPL_NONE},
                                               {.kind = WEFTI_TMPL_INT, .number = -1}};
    struct wefti_tmpl_value items = call->self;
    weft_err err = WEFT_OK;
    if (items.kind != WEFTI_TMPL_STR) err = self_items(run, call, &items);
    if (!err) err = wefti_tmpl_slice(run, items, bounds, out);
    if (!err && items.kind != WEFTI_TMPL_STR) out->kind = WEFTI_TMPL_ITER;
    return err;
}

/* --- choice ----------------------------------------------------------------------------------- */

enum { FIRST, LAST };

static weft_err filter_end(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value items;
    weft_err err = self_items(run, call, &items);
    if (!err && items.n > 0) *out = items.items[call->builtin->variant == LAST ? items.n - 1 : 0];
    return err;
}

/* Arguments from `from` on, for the filter or test to call. */
static struct wefti_tmpl_args rest_of(const struct wefti_tmpl_args *args, uint32_t from) {
    struct wefti_tmpl_args rest = *args;
    if (from > rest.plain.n) from = rest.plain.n;
    if (from > 0) rest.plain.items += from;
    rest.plain.n -= from;
    return rest;
}

static weft_err find_named(struct wefti_tmpl_run *run, const struct wefti_tmpl_args *args,
                           uint32_t place, bool test, const struct wefti_tmpl_builtin **out) {
    struct wefti_tmpl_value name;
    *out = NULL;
    if (place >= args->plain.n) return WEFT_OK;
    name = args->plain.items[place];
    if (name.kind == WEFTI_TMPL_STR) {
        *out = test ? wefti_tmpl_find_test(wefti_tmpl_text_of(name))
                    : wefti_tmpl_find_filter(wefti_tmpl_text_of(name));
    }
    if (*out) return WEFT_OK;
    return wefti_tmpl_fault(run, "there is no %s %.*s", test ? "test" : "filter",
                            name.kind == WEFTI_TMPL_STR && name.n < 60 ? (int)name.n : 0,
                            name.kind == WEFTI_TMPL_STR ? name.text : "");
}

/* select, reject and map of a false value yield nothing, whatever their arguments are. */
static bool yields_nothing(const struct wefti_tmpl_call *call, struct wefti_tmpl_value *out) {
    if (wefti_tmpl_truth(call->self)) return false;
    *out = (struct wefti_tmpl_value){.kind = WEFTI_TMPL_ITER};
    return true;
}

enum { SELECTS = 0, REJECTS = 1, BY_ATTRIBUTE = 2 };

static weft_err filter_select(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                              struct wefti_tmpl_value *out) {
    bool by_attribute = call->builtin->variant & BY_ATTRIBUTE;
    bool rejects = call->builtin->variant & REJECTS;
    struct wefti_tmpl_args args = rest_of(call->args, by_attribute + 1u);
    const struct wefti_tmpl_builtin *test;
    struct wefti_tmpl_list kept = {0};
    struct wefti_tmpl_value items;
    if (yields_nothing(call, out)) return wefti_tmpl_charge(run, 1);
    if (by_attribute && call->args->plain.n == 0)
        return wefti_tmpl_fault(run, "%s takes an attribute", call->builtin->name);
    const struct wefti_tmpl_value *path = by_attribute ? &call->args->plain.items[0] : NULL;
    weft_err err = find_named(run, call->args, by_attribute, true, &test);
    if (!err) err = self_items(run, call, &items);
    for (uint32_t i = 0; !err && i < items.n; i++) {
        struct wefti_tmpl_value value, truth;
        err = attribute_of(run, items.items[i], path, NULL, &value);
        truth = value;
        if (!err && test) err = wefti_tmpl_call_builtin(run, test, value, &args, &truth);
        if (!err) err = wefti_tmpl_charge(run, 1);
        if (!err && wefti_tmpl_truth(truth) != rejects)
            err = wefti_tmpl_list_add(run, &kept, items.items[i]);
    }
    *out = wefti_tmpl_of_list(&kept, WEFTI_TMPL_ITER);
    return err;
}

static const struct wefti_tmpl_value *named_arg(const struct wefti_tmpl_args *args,
                                                const char *name) {
    for (uint32_t i = 0; i < args->named.n; i += 2)
        if (weft_str_is(wefti_tmpl_text_of(args->named.items[i]), name, strlen(name)))
            return &args->named.items[i + 1];
    return NULL;
}

static weft_err filter_map(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    const struct wefti_tmpl_value *path = named_arg(call->args, "attribute");
    const struct wefti_tmpl_value *otherwise = named_arg(call->args, "default");
    struct wefti_tmpl_args args = rest_of(call->args, 1);
    const struct wefti_tmpl_builtin *filter = NULL;
    struct wefti_tmpl_list list = {0};
    struct wefti_tmpl_value items;
    weft_err err = WEFT_OK;
    if (yields_nothing(call, out)) return wefti_tmpl_charge(run, 1);
    if (!path) err = find_named(run, call->args, 0, false, &filter);
    if (!err && !path && !filter)
        err = wefti_tmpl_fault(run, "map takes a filter's name or an attribute");
    if (!err) err = self_items(run, call, &items);
    for (uint32_t i = 0; !err && i < items.n; i++) {
        struct wefti_tmpl_value value;
        err = filter ? wefti_tmpl_call_builtin(run, filter, items.items[i], &args, &value)
                     : attribute_of(run, items.items[i], path, otherwise, &value);
        if (!err) err = wefti_tmpl_list_add(run, &list, value);
    }
    *out = wefti_tmpl_of_list(&list, WEFTI_TMPL_ITER);
    return err;
}

static weft_err filter_unique(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                              struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value items;
    struct wefti_tmpl_list seen = {0}, kept = {0};
    weft_err err = self_items(run, call, &items);
    for (uint32_t i = 0; !err && i < items.n; i++) {
        struct wefti_tmpl_value key;
        bool known = false;
        err =
            key_of(run, items.items[i], call->bound[1], wefti_tmpl_arg_truth(call, 0, false), &key);
        if (!err)
            err = wefti_tmpl_contains(run, wefti_tmpl_of_list(&seen, WEFTI_TMPL_LIST), key, &known);
        if (err || known) continue;
        err = wefti_tmpl_list_add(run, &seen, key);
        if (!err) err = wefti_tmpl_list_add(run, &kept, items.items[i]);
    }
    *out = wefti_tmpl_of_list(&kept, WEFTI_TMPL_ITER);
    return err;
}

/* --- folding and cutting ---------------------------------------------------------------------- */

static weft_err filter_join(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value items, between = wefti_tmpl_of_str("", 0);
    weft_err err = self_items(run, call, &items);
    if (!err && call->bound[0]) err = wefti_tmpl_to_str(run, *call->bound[0], &between);
    if (err) return err;
    struct weft_buf buf;
    wefti_tmpl_buf_init(run, &buf);
    for (uint32_t i = 0; i < items.n && !err && !buf.failed; i++) {
        struct wefti_tmpl_value item;
        if (i > 0) weft_buf_add(&buf, between.text, between.n);
        err = attribute_of(run, items.items[i], call->bound[1], NULL, &item);
        if (!err) err = wefti_tmpl_write(run, item, false, &buf);
    }
    if (!err) return wefti_tmpl_take_buf(run, &buf, out);
    weft_buf_fini(&buf);
    return err;
}

static weft_err filter_sum(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value items, sum = wefti_tmpl_of_int(0);
    weft_err err = self_items(run, call, &items);
    if (call->bound[1]) sum = *call->bound[1];
    for (uint32_t i = 0; !err && i < items.n; i++) {
        struct wefti_tmpl_value item;
        err = attribute_of(run, items.items[i], call->bound[0], NULL, &item);
        if (!err) err = wefti_tmpl_arithmetic(run, WEFTI_TMPL_EXPR_ADD, sum, item, &sum);
    }
    *out = sum;
    return err;
}

static weft_err filter_list(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            struct wefti_tmpl_value *out) {
    return self_items(run, call, out);
}

static weft_err filter_items(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                             struct wefti_tmpl_value *out) {
    struct wefti_tmpl_list list = {0};
    weft_err err = WEFT_OK;
    if (call->self.kind != WEFTI_TMPL_DICT && call->self.kind != WEFTI_TMPL_UNDEFINED)
        return wefti_tmpl_fault(run, "items of %s", wefti_tmpl_kind_name(&call->self));
    for (uint32_t i = 0; i < call->self.n && call->self.kind == WEFTI_TMPL_DICT && !err; i++)
        err = wefti_tmpl_list_add(
            run, &list,
            (struct wefti_tmpl_value){
                .kind = WEFTI_TMPL_TUPLE, .n = 2, .items = &call->self.items[2 * (size_t)i]});
    *out = wefti_tmpl_of_list(&list, WEFTI_TMPL_ITER);
    return err;
}

static weft_err filter_groupby(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                               struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value items;
    struct wefti_tmpl_list pairs = {0}, groups = {0};
    weft_err err = self_items(run, call, &items);
    if (!err && !call->bound[0]) err = wefti_tmpl_fault(run, "groupby takes an attribute");
    for (uint32_t i = 0; !err && i < items.n; i++) {
        struct wefti_tmpl_value key;
        err = attribute_of(run, items.items[i], call->bound[0], call->bound[1], &key);
        if (!err && !wefti_tmpl_arg_truth(call, 2, false) && key.kind == WEFTI_TMPL_STR)
            err = wefti_tmpl_str_case(run, wefti_tmpl_text_of(key), WEFTI_TMPL_CASE_LOWER, &key);
        if (!err) err = wefti_tmpl_list_add(run, &pairs, key);
        if (!err) err = wefti_tmpl_list_add(run, &pairs, items.items[i]);
    }
    if (!err) err = sort_pairs(run, &pairs, false);
    for (uint32_t i = 0; !err && i < pairs.n;) {
        struct wefti_tmpl_list group = {0}, both = {0};
        struct wefti_tmpl_value name;
        bool same = true;
        uint32_t from = i;
        for (; !err && same && i < pairs.n; i += 2) {
            err = wefti_tmpl_equal(run, pairs.items[from], pairs.items[i], &same);
            if (!same) break;
            if (!err) err = wefti_tmpl_list_add(run, &group, pairs.items[i + 1]);
        }
        if (!err)
            err = attribute_of(run, pairs.items[from + 1], call->bound[0], call->bound[1], &name);
        if (!err) err = wefti_tmpl_list_add(run, &both, name);
        if (!err)
            err = wefti_tmpl_list_add(run, &both, wefti_tmpl_of_list(&group, WEFTI_TMPL_LIST));
        if (!err)
            err = wefti_tmpl_list_add(run, &groups, wefti_tmpl_of_list(&both, WEFTI_TMPL_TUPLE));
    }
    *out = wefti_tmpl_of_list(&groups, WEFTI_TMPL_LIST);
    return err;
}

static weft_err fill_up(struct wefti_tmpl_run *run, struct wefti_tmpl_list *list, uint32_t n,
                        const struct wefti_tmpl_value *fill) {
    weft_err err = WEFT_OK;
    while (!err && fill && fill->kind != WEFTI_TMPL_NONE && list->n < n)
        err = wefti_tmpl_list_add(run, list, *fill);
    return err;
}

enum { LISTS_OF_SO_MANY, SO_MANY_LISTS };

static weft_err filter_portions(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                                struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value items;
    struct wefti_tmpl_list all = {0};
    int64_t count;
    weft_err err = self_items(run, call, &items);
    if (!err) err = wefti_tmpl_arg_int(run, call, 0, 0, &count);
    if (!err && (count < 1 || count > UINT32_MAX))
        err = wefti_tmpl_fault(run, "%s into none", call->builtin->name);
    if (err) return err;
    bool slices = call->builtin->variant == SO_MANY_LISTS;
    uint32_t n = (uint32_t)count, at = 0;
    for (uint32_t i = 0; !err && (slices ? i < n : at < items.n); i++) {
        uint32_t take = slices ? items.n / n + (i < items.n % n) : n;
        uint32_t full = slices ? items.n / n + (items.n % n > 0) : n;
        struct wefti_tmpl_list part = {0};
        if (take > items.n - at) take = items.n - at;
        for (uint32_t k = 0; !err && k < take; k++)
            err = wefti_tmpl_list_add(run, &part, items.items[at++]);
        bool short_slice = slices && items.n % n > 0 && i >= items.n % n;
        if (!err && (short_slice || !slices)) err = fill_up(run, &part, full, call->bound[1]);
        if (!err) err = wefti_tmpl_list_add(run, &all, wefti_tmpl_of_list(&part, WEFTI_TMPL_LIST));
    }
    *out = wefti_tmpl_of_list(&all, WEFTI_TMPL_ITER);
    return err;
}

const struct wefti_tmpl_builtin wefti_tmpl_sequence_filters[] = {
    {"list", "", filter_list, 0},
    {"items", "", filter_items, 0},
    {"first", "", filter_end, FIRST},
    {"last", "", filter_end, LAST},
    {"join", "d attribute", filter_join, 0},
    {"map", "*", filter_map, 0},
    {"select", "*", filter_select, SELECTS},
    {"reject", "*", filter_select, REJECTS},
    {"selectattr", "*", filter_select, SELECTS | BY_ATTRIBUTE},
    {"rejectattr", "*", filter_select, REJECTS | BY_ATTRIBUTE},
    {"sort", "reverse case_sensitive attribute", filter_sort, 0},
    {"dictsort", "case_sensitive by reverse", filter_dictsort, 0},
    {"min", "case_sensitive attribute", filter_extreme, LEAST},
    {"max", "case_sensitive attribute", filter_extreme, GREATEST},
    {"reverse", "", filter_reverse, 0},
    {"unique", "case_sensitive attribute", filter_unique, 0},
    {"sum", "attribute start", filter_sum, 0},
    {"groupby", "attribute default case_sensitive", filter_groupby, 0},
    {"batch", "linecount fill_with", filter_portions, LISTS_OF_SO_MANY},
    {"slice", "slices fill_with", filter_portions, SO_MANY_LISTS},
    {.name = NULL},
};
