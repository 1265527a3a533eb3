/* Each format is a node of the tree. Free text is an expression that complements make: no trigger and no end
 * occurs in it, so where one has occurred nothing but its tag fits. Contents of tags are rules of their own: a
 * schema is written once, though its tag may come first and again. */
#include "joint/tags.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "expr/chars.h"
#include "grammar.h"
#include "joint/lark.h"
#include "joint/spelt.h"
#include "schema/schema.h"
#include "sources/regex.h"

#define TEXT_BYTES_MAX ((size_t)16 << 20)
#define DEPTH_MAX 100u
#define TRIGGERS_MAX 256u /* each is looked for in all others */
#define STOPS_MAX                                                                                  \
    4096u /* triggers, excluded texts and ends, where triggers have special tokens: likewise */
#define COUNT_MAX 1000000
#define PATH_SHOWN 200u
#define BEGIN_SHOWN 60u
#define FIELDS_MAX 6

struct tags {
    struct wefti_tree *tree;
    struct weft_buf path;     /* where we are, for messages */
    struct wefti_spelt spelt; /* texts with special tokens */
    const struct texts *ends; /* of the nearest tag around; NULL: there is none */
    wefti_expr any_char, any_text;
    uint32_t depth;
    struct weft_errmsg *why;
    weft_err err;
};

struct tag {
    struct weft_str begin;
    wefti_expr ends;
    uint32_t content; /* a rule */
};

struct texts {
    struct weft_str *list; /* owned; pieces of the document */
    size_t n;
};

/* What may follow a trigger. */
struct way {
    struct weft_str trigger;
    uint32_t node;
};

static uint32_t read_format(struct tags *t, const json_t *format);

/* ------------------------------------------------------------------------------- places, errors --- */

/* Adds to the path; what it returns takes it away again. */
static size_t enter(struct tags *t, const char *key, size_t idx) {
    size_t len = t->path.len;
    if (idx == SIZE_MAX)
        weft_buf_printf(&t->path, "%s%s", len ? "." : "", key);
    else
        weft_buf_printf(&t->path, "%s%s[%zu]", len ? "." : "", key, idx);
    return len;
}

/* How a tag begins is what its author knows it by. */
static void enter_tag(struct tags *t, struct weft_str begin) {
    weft_buf_add_str(&t->path, " (\"");
    for (size_t i = 0; i < begin.len && i < BEGIN_SHOWN; i++) {
        if ((unsigned char)begin.data[i] != WEFT_GRAM_SPECIAL)
            weft_buf_add_char(&t->path, begin.data[i]);
    }
    weft_buf_add_str(&t->path, "\")");
}

static void leave(struct tags *t, size_t len) {
    t->path.len = len;
}

/* The last part of it is what tells places apart. */
static const char *shown_path(struct tags *t) {
    size_t from = t->path.len > PATH_SHOWN ? t->path.len - PATH_SHOWN : 0;
    return t->path.len ? weft_buf_cstr(&t->path) + from : "the request";
}

static void fail(struct tags *t, weft_err err, const char *what) {
    if (!t->err) t->err = weft_err_set(t->why, err, "structural tag, %s: %s", shown_path(t), what);
}

/* Names come from the request: only the beginning of a long one is shown. */
static void fail_field(struct tags *t, weft_err err, const char *key, const char *what) {
    if (!t->err)
        t->err =
            weft_err_set(t->why, err, "structural tag, %s: \"%.60s\" %s", shown_path(t), key, what);
}

/* --------------------------------------------------------------------------------------- fields --- */

/* `names`: beside "type". A field that is not known might be a condition. */
static void check_fields(struct tags *t, const json_t *object, const char *const *names) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        bool is_known = !strcmp(key, "type");
        for (size_t i = 0; i < FIELDS_MAX && names[i] && !is_known; i++)
            is_known = !strcmp(key, names[i]);
        if (!is_known) fail_field(t, WEFT_E_UNSUPPORTED, key, "is not supported");
    }
}

static const json_t *get(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static struct weft_str text_of(const json_t *string) {
    return (struct weft_str){json_string_value(string), json_string_length(string)};
}

static struct weft_str get_text(struct tags *t, const json_t *object, const char *key) {
    const json_t *value = get(object, key);
    if (json_is_string(value)) return text_of(value);
    fail_field(t, WEFT_E_INVAL, key, "is not a string");
    return (struct weft_str){"", 0};
}

/* A text in which special tokens may be. */
static struct weft_str spell(struct tags *t, const json_t *value, const char *key) {
    const char *fault;
    struct weft_str text;
    weft_err err = wefti_spelt_read(&t->spelt, value, &text, &fault);
    if (err) fail_field(t, err, key, fault);
    return text;
}

static bool get_bool(struct tags *t, const json_t *object, const char *key, bool otherwise) {
    const json_t *value = get(object, key);
    if (value && !json_is_boolean(value))
        fail_field(t, WEFT_E_INVAL, key, "is neither true nor false");
    return value ? json_is_true(value) : otherwise;
}

static uint32_t get_count(struct tags *t, const json_t *object, const char *key) {
    const json_t *value = get(object, key);
    json_int_t count = json_integer_value(value);
    if (!json_is_integer(value) || count < 0)
        fail_field(t, WEFT_E_INVAL, key, "is not a whole number from 0 on");
    else if (count > COUNT_MAX)
        fail_field(t, WEFT_E_TOOBIG, key, "is over 1000000");
    return t->err ? 0 : (uint32_t)count;
}

/* A list that is not empty. */
static const json_t *get_list(struct tags *t, const json_t *object, const char *key) {
    const json_t *value = get(object, key);
    if (!json_is_array(value) || json_array_size(value) == 0)
        fail_field(t, WEFT_E_INVAL, key, "is not a list that has something in it");
    return value;
}

/* --------------------------------------------------------------------------------------- nodes --- */

static uint32_t expr_node(struct tags *t, wefti_expr expr) {
    return wefti_tree_expr(t->tree, expr);
}

static uint32_t literal(struct tags *t, struct weft_str text) {
    return expr_node(t, wefti_expr_literal(t->tree->pool, text.data, text.len));
}

static uint32_t cat(struct tags *t, uint32_t a, uint32_t b, uint32_t c) {
    uint32_t all = wefti_tree_parent(t->tree, WEFTI_TREE_CAT);
    wefti_tree_add(t->tree, all, a);
    wefti_tree_add(t->tree, all, b);
    wefti_tree_add(t->tree, all, c);
    return all;
}

static uint32_t repeat(struct tags *t, uint32_t node, uint32_t min, uint32_t max) {
    return t->err || t->tree->failed ? WEFTI_TREE_NONE : wefti_tree_repeat(t->tree, node, min, max);
}

static uint32_t rule_of(struct tags *t, uint32_t body) {
    uint32_t rule = wefti_tree_new_rule(t->tree);
    if (!t->tree->failed) t->tree->bodies[rule] = body;
    return rule;
}

static uint32_t rule_node(struct tags *t, uint32_t rule) {
    return t->err || t->tree->failed ? WEFTI_TREE_NONE : wefti_tree_rule(t->tree, rule);
}

/* ------------------------------------------------------------------------------------- free text --- */

static bool add_text(struct tags *t, struct texts *texts, struct weft_str text) {
    struct weft_str *list = realloc(texts->list, (texts->n + 1) * sizeof *list);
    if (!list) {
        fail(t, WEFT_E_NOMEM, "no memory");
        return false;
    }
    texts->list = list;
    texts->list[texts->n++] = text;
    return true;
}

static void add_excludes(struct tags *t, const json_t *format, struct texts *texts) {
    const json_t *list = get(format, "excludes");
    size_t i;
    json_t *one;
    if (list && !json_is_array(list)) fail_field(t, WEFT_E_INVAL, "excludes", "is not a list");
    json_array_foreach(list, i, one) {
        if (json_string_length(one) == 0)
            fail_field(t, WEFT_E_INVAL, "excludes", "has something that is no text");
        if (t->err || !add_text(t, texts, text_of(one))) return;
    }
}

/* Free text within a tag ends where one of the tag's ends may begin. */
static void add_ends(struct tags *t, struct texts *texts) {
    for (size_t i = 0; t->ends && i < t->ends->n && !t->err; i++) {
        struct weft_str one = t->ends->list[i];
        if (one.len > 0 && !add_text(t, texts, one)) return;
    }
}

static wefti_expr one_of(struct tags *t, const struct texts *texts) {
    return texts->n ? wefti_expr_texts(t->tree->pool, texts->list, texts->n) : WEFTI_EXPR_NONE;
}

/* Those that free text could have in it: there are no special tokens. Takes the others to the end. */
static wefti_expr stops_of(struct tags *t, struct texts *texts) {
    struct texts plain = {texts->list, 0};
    for (size_t i = 0; i < texts->n; i++) {
        struct weft_str one = texts->list[i];
        if (wefti_spelt_has_special(one)) continue;
        texts->list[i] = texts->list[plain.n];
        texts->list[plain.n++] = one;
    }
    return one_of(t, &plain);
}

/* Text in which none of `stops` occurs. */
static wefti_expr free_of(struct tags *t, wefti_expr stops) {
    wefti_expr_pool *pool = t->tree->pool;
    wefti_expr with =
        wefti_expr_cat(pool, WEFTI_EXPR_ALL, wefti_expr_cat(pool, stops, WEFTI_EXPR_ALL));
    return wefti_expr_and2(pool, t->any_text, wefti_expr_not(pool, with));
}

/* What a text behind which `end` follows may not end with: "aba" would begin twice in "ab" and "aba". */
static wefti_expr leads(struct tags *t, struct weft_str end) {
    wefti_expr_pool *pool = t->tree->pool;
    wefti_expr all = WEFTI_EXPR_NONE;
    for (size_t n = 1; n < end.len && !wefti_spelt_has_special(end); n++) {
        if (memcmp(end.data, end.data + n, end.len - n) == 0)
            all = wefti_expr_alt2(pool, all, wefti_expr_literal(pool, end.data, n));
    }
    return all;
}

/* The last free text of a tag: one of its ends follows, and is the first that occurs. */
static wefti_expr free_to_the_end(struct tags *t, wefti_expr stops) {
    wefti_expr_pool *pool = t->tree->pool;
    wefti_expr all = WEFTI_EXPR_NONE;
    struct texts ends = {0};
    add_ends(t, &ends);
    for (size_t i = 0; i < ends.n; i++)
        all = wefti_expr_alt2(pool, all, leads(t, ends.list[i]));
    free(ends.list);
    all = wefti_expr_cat(pool, WEFTI_EXPR_ALL, all);
    return wefti_expr_and2(pool, free_of(t, stops), wefti_expr_not(pool, all));
}

/* What text before the special tokens of a trigger may not end with: the beginning of a stop that would end before the
 * trigger does. ALL: some stop always does. */
static wefti_expr early(struct tags *t, struct weft_str trigger, const struct texts *all) {
    wefti_expr_pool *pool = t->tree->pool;
    wefti_expr begins = WEFTI_EXPR_NONE;
    size_t head = wefti_spelt_head(trigger), tail = trigger.len - head;
    for (size_t i = 0; i < all->n; i++) {
        struct weft_str stop = all->list[i];
        size_t before = wefti_spelt_head(stop), behind = stop.len - before;
        if (wefti_spelt_has((struct weft_str){trigger.data, trigger.len - 1}, stop))
            return WEFTI_EXPR_ALL;
        if (behind > 0 && behind < tail &&
            memcmp(stop.data + before, trigger.data + head, behind) == 0)
            begins = wefti_expr_alt2(pool, begins, wefti_expr_literal(pool, stop.data, before));
    }
    return wefti_expr_cat(pool, WEFTI_EXPR_ALL, begins);
}

/* The same where there are special tokens in it, which free text has not. */
static wefti_expr up_to_special(struct tags *t, struct weft_str trigger, wefti_expr stops,
                                const struct texts *all) {
    wefti_expr_pool *pool = t->tree->pool;
    size_t head = wefti_spelt_head(trigger);
    if (all->n > STOPS_MAX) {
        fail(t, WEFT_E_TOOBIG, "more than 4096 triggers, excluded texts and ends");
        return WEFTI_EXPR_NONE;
    }
    wefti_expr end = wefti_expr_literal(pool, trigger.data, head);
    wefti_expr parts[] = {free_of(t, stops), wefti_expr_cat(pool, WEFTI_EXPR_ALL, end),
                          wefti_expr_not(pool, early(t, trigger, all))};
    wefti_expr text = wefti_expr_and(pool, parts, sizeof parts / sizeof *parts);
    return wefti_expr_cat(pool, text,
                          wefti_expr_literal(pool, trigger.data + head, trigger.len - head));
}

/* Text that ends with `trigger`, and none of `all` ends before; of these `stops` are those that are texts. */
static wefti_expr up_to(struct tags *t, struct weft_str trigger, wefti_expr stops,
                        const struct texts *all) {
    if (wefti_spelt_has_special(trigger)) return up_to_special(t, trigger, stops, all);
    wefti_expr_pool *pool = t->tree->pool;
    wefti_expr text = wefti_expr_literal(pool, trigger.data, trigger.len);
    wefti_expr more = wefti_expr_cat(pool, wefti_expr_range(pool, 0, 255), WEFTI_EXPR_ALL);
    wefti_expr before = wefti_expr_cat(pool, WEFTI_EXPR_ALL, wefti_expr_cat(pool, stops, more));
    wefti_expr parts[] = {t->any_text, wefti_expr_cat(pool, WEFTI_EXPR_ALL, text),
                          wefti_expr_not(pool, before)};
    wefti_expr whole = wefti_expr_and(pool, parts, sizeof parts / sizeof *parts);
    wefti_expr_has_text(pool, whole, trigger.data, trigger.len);
    return whole;
}

static bool is_same(struct weft_str a, struct weft_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Drops triggers that are there twice. Of two that lie within each other it could not be said which of them has
 * occurred. */
static void check_triggers(struct tags *t, const char *key, struct texts *triggers) {
    size_t n = 0;
    if (triggers->n > TRIGGERS_MAX) fail_field(t, WEFT_E_TOOBIG, key, "has more than 256 triggers");
    for (size_t i = 0; i < triggers->n && !t->err; i++) {
        struct weft_str one = triggers->list[i];
        size_t k = 0;
        if (one.len == 0) {
            fail_field(t, WEFT_E_INVAL, key, "has an empty trigger");
            break;
        }
        while (k < n && !is_same(triggers->list[k], one))
            k++;
        if (k == n) triggers->list[n++] = one;
    }
    triggers->n = n;
    for (size_t i = 0; i < n && !t->err; i++) {
        for (size_t k = 0; k < n && !t->err; k++) {
            struct weft_str a = triggers->list[i], b = triggers->list[k];
            if (i != k && wefti_spelt_has(b, a))
                fail_field(t, WEFT_E_UNSUPPORTED, key,
                           "has a trigger that lies within another one");
        }
    }
}

static void get_triggers(struct tags *t, const json_t *format, struct texts *triggers) {
    const json_t *list = get_list(t, format, "triggers");
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) {
        struct weft_str text = spell(t, one, "triggers");
        if (t->err || !add_text(t, triggers, text)) return;
    }
    check_triggers(t, "triggers", triggers);
}

/* Free text, in which a trigger leads to one of its ways; again and again, or once. */
static uint32_t dispatch(struct tags *t, const json_t *format, const struct texts *triggers,
                         const struct way *ways, size_t n_ways, bool is_once) {
    struct wefti_tree *tree = t->tree;
    struct texts all = {0};
    for (size_t i = 0; i < triggers->n && !t->err; i++)
        (void)add_text(t, &all, triggers->list[i]);
    add_excludes(t, format, &all);
    for (size_t i = triggers->n; i < all.n && !t->err; i++) {
        for (size_t k = 0; k < triggers->n; k++) {
            if (wefti_spelt_ends_with(triggers->list[k], all.list[i]))
                fail_field(t, WEFT_E_INVAL, "excludes", "has what a trigger ends with");
        }
    }
    add_ends(t, &all);
    wefti_expr stops = stops_of(t, &all);
    uint32_t any = wefti_tree_parent(tree, WEFTI_TREE_ALT);
    for (size_t i = 0; i < triggers->n && !t->err; i++) {
        uint32_t group = wefti_tree_parent(tree, WEFTI_TREE_ALT), n = 0;
        for (size_t k = 0; k < n_ways; k++) {
            if (!is_same(ways[k].trigger, triggers->list[i])) continue;
            wefti_tree_add(tree, group, ways[k].node);
            n++;
        }
        if (n == 0) continue; /* it may not occur */
        uint32_t text = expr_node(t, up_to(t, triggers->list[i], stops, &all));
        wefti_tree_add(tree, any, cat(t, text, group, WEFTI_TREE_NONE));
    }
    free(all.list);
    uint32_t rest = expr_node(t, free_to_the_end(t, stops));
    if (!is_once) return cat(t, repeat(t, any, 0, WEFTI_EXPR_MANY), rest, WEFTI_TREE_NONE);
    wefti_tree_add(tree, any, rest);
    return any;
}

/* ------------------------------------------------------------------------------ formats of text --- */

static uint32_t schema_node(struct tags *t, const json_t *schema) {
    struct weft_errmsg why = {""};
    uint32_t rule = WEFTI_TREE_NONE;
    json_t *parsed = NULL;
    weft_err err = WEFT_OK;
    if (t->err) return WEFTI_TREE_NONE;
    if (json_is_string(schema)) {
        err = wefti_schema_load(text_of(schema), NULL, &parsed, &why);
        schema = parsed;
    } else if (!json_is_object(schema) && !json_is_boolean(schema)) {
        err = weft_err_set(&why, WEFT_E_INVAL, "there is no schema");
    }
    if (!err) err = wefti_schema_rules(t->tree, schema, &rule, &why);
    json_decref(parsed);
    if (err) {
        fail(t, err, why.text);
        return WEFTI_TREE_NONE;
    }
    (void)weft_err_set(&why, WEFT_OK, "structural tag, %s", shown_path(t));
    wefti_tree_need(t->tree, rule, why.text);
    return rule_node(t, rule);
}

static uint32_t read_schema(struct tags *t, const json_t *format) {
    const json_t *style = get(format, "style"), *blanks = get(format, "max_whitespace_cnt");
    if (style && strcmp(json_is_string(style) ? json_string_value(style) : "", "json") != 0)
        fail_field(t, WEFT_E_UNSUPPORTED, "style", "is supported as \"json\" alone");
    if (get_bool(t, format, "any_order", false))
        fail_field(t, WEFT_E_UNSUPPORTED, "any_order",
                   "is not supported: members come as declared");
    uint32_t usual = t->tree->json_blanks;
    if (blanks) {
        uint32_t max = get_count(t, format, "max_whitespace_cnt");
        t->tree->json_blanks = max < usual ? max : usual;
    }
    uint32_t node = schema_node(t, get(format, "json_schema"));
    t->tree->json_blanks = usual;
    return node;
}

/* One special token. */
static uint32_t read_token(struct tags *t, const json_t *format) {
    return literal(t, spell(t, format, "token"));
}

static uint32_t read_const(struct tags *t, const json_t *format) {
    return literal(t, get_text(t, format, "value"));
}

static uint32_t read_regex(struct tags *t, const json_t *format) {
    struct weft_errmsg why = {""};
    wefti_expr expr = WEFTI_EXPR_NONE;
    struct weft_str text = get_text(t, format, "pattern");
    if (t->err) return WEFTI_TREE_NONE;
    weft_err err =
        wefti_regex_expr(t->tree->pool, text, WEFTI_REGEX_MATCH, WEFTI_PLAIN, &expr, &why);
    if (err) fail(t, err, why.text);
    return expr_node(t, expr);
}

static uint32_t read_grammar(struct tags *t, const json_t *format) {
    struct weft_errmsg why = {""};
    struct weft_str text = get_text(t, format, "grammar");
    uint32_t rule = WEFTI_TREE_NONE;
    if (t->err) return WEFTI_TREE_NONE;
    t->tree->has_words = false;
    weft_err err = wefti_rules_read(t->tree, text, &rule, &why);
    t->tree->has_words = true;
    if (err) fail(t, err, why.text);
    return rule_node(t, rule);
}

static uint32_t read_any_text(struct tags *t, const json_t *format) {
    struct texts stops = {0};
    if (get(format, "max_tokens"))
        fail_field(t, WEFT_E_UNSUPPORTED, "max_tokens", "is not supported: a text has characters");
    add_excludes(t, format, &stops);
    add_ends(t, &stops);
    wefti_expr text = free_to_the_end(t, stops_of(t, &stops));
    if (get(format, "max_chars")) {
        uint32_t max = get_count(t, format, "max_chars");
        wefti_expr_pool *pool = t->tree->pool;
        text = wefti_expr_and2(pool, text, wefti_expr_repeat(pool, t->any_char, 0, max));
    }
    free(stops.list);
    return expr_node(t, text);
}

/* --------------------------------------------------------------------------- formats of formats --- */

static uint32_t read_elements(struct tags *t, const json_t *format, enum wefti_tree_kind kind) {
    const json_t *list = get_list(t, format, "elements");
    uint32_t all = wefti_tree_parent(t->tree, kind);
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) {
        size_t len = enter(t, "elements", i);
        uint32_t node = t->err ? WEFTI_TREE_NONE : read_format(t, one);
        leave(t, len);
        if (!t->err) wefti_tree_add(t->tree, all, node);
    }
    return all;
}

static uint32_t read_sequence(struct tags *t, const json_t *format) {
    return read_elements(t, format, WEFTI_TREE_CAT);
}

static uint32_t read_or(struct tags *t, const json_t *format) {
    return read_elements(t, format, WEFTI_TREE_ALT);
}

static uint32_t read_content(struct tags *t, const json_t *format) {
    size_t len = enter(t, "content", SIZE_MAX);
    uint32_t node = read_format(t, get(format, "content"));
    leave(t, len);
    return node;
}

static uint32_t read_optional(struct tags *t, const json_t *format) {
    return repeat(t, read_content(t, format), 0, 1);
}

static uint32_t read_plus(struct tags *t, const json_t *format) {
    return repeat(t, read_content(t, format), 1, WEFTI_EXPR_MANY);
}

static uint32_t read_star(struct tags *t, const json_t *format) {
    return repeat(t, read_content(t, format), 0, WEFTI_EXPR_MANY);
}

static uint32_t read_repeat(struct tags *t, const json_t *format) {
    bool is_open = json_integer_value(get(format, "max")) == -1;
    uint32_t min = get_count(t, format, "min");
    uint32_t max = is_open ? WEFTI_EXPR_MANY : get_count(t, format, "max");
    if (min > max) fail_field(t, WEFT_E_INVAL, "max", "is less than \"min\"");
    return repeat(t, read_content(t, format), min, max);
}

/* ---------------------------------------------------------------------------------------- tags --- */

/* One, or a list. */
static void read_ends(struct tags *t, const json_t *tag, struct texts *ends) {
    const json_t *end = get(tag, "end");
    size_t i;
    json_t *one;
    if (!json_is_array(end)) (void)add_text(t, ends, spell(t, end, "end"));
    json_array_foreach(end, i, one) {
        struct weft_str text = spell(t, one, "end");
        if (t->err || !add_text(t, ends, text)) return;
    }
    if (ends->n == 0) fail_field(t, WEFT_E_INVAL, "end", "is an empty list");
}

/* What stands between begin and end, where free text has none of the ends. */
static void read_inside(struct tags *t, const json_t *item, bool is_old, struct tag *tag) {
    const struct texts *outer = t->ends;
    struct texts ends = {0};
    read_ends(t, item, &ends);
    if (!t->err) {
        t->ends = &ends;
        tag->ends = one_of(t, &ends);
        tag->content =
            rule_of(t, is_old ? schema_node(t, get(item, "schema")) : read_content(t, item));
        t->ends = outer;
    }
    free(ends.list);
}

/* A format "tag", whose type may be left out in a list of them, or vLLM's {"begin", "schema", "end"}. */
static struct tag read_parts(struct tags *t, const json_t *item, bool is_old) {
    static const char *const fields[FIELDS_MAX] = {"begin", "content", "end"};
    static const char *const old_fields[FIELDS_MAX] = {"begin", "schema", "end"};
    const json_t *type = get(item, "type");
    if (!json_is_object(item)) fail(t, WEFT_E_INVAL, "is no object");
    if (type && strcmp(json_is_string(type) ? json_string_value(type) : "", "tag") != 0)
        fail_field(t, WEFT_E_INVAL, "type", "is not \"tag\"");
    struct tag tag = {.begin = spell(t, get(item, "begin"), "begin"), .content = WEFTI_TREE_NONE};
    enter_tag(t, tag.begin);
    if (!t->err) check_fields(t, item, is_old ? old_fields : fields);
    if (!t->err) read_inside(t, item, is_old, &tag);
    return tag;
}

/* Without the first bytes of its beginning. */
static uint32_t tag_node(struct tags *t, const struct tag *tag, size_t n_known) {
    struct weft_str rest = {tag->begin.data + n_known, tag->begin.len - n_known};
    if (t->err) return WEFTI_TREE_NONE;
    return cat(t, literal(t, rest), rule_node(t, tag->content), expr_node(t, tag->ends));
}

static uint32_t read_tag(struct tags *t, const json_t *format) {
    size_t len = t->path.len;
    struct tag tag = read_parts(t, format, false);
    leave(t, len);
    return tag_node(t, &tag, 0);
}

/* All of a list. The caller frees. */
static struct tag *read_tags(struct tags *t, const json_t *format, const char *key, size_t *n_out) {
    const json_t *list = get_list(t, format, key);
    size_t i, n = json_array_size(list);
    json_t *one;
    struct tag *tags = calloc(n + 1, sizeof *tags);
    *n_out = n;
    if (!tags) fail(t, WEFT_E_NOMEM, "no memory");
    json_array_foreach(list, i, one) {
        size_t len = enter(t, key, i);
        if (tags && !t->err) tags[i] = read_parts(t, one, !strcmp(key, "structures"));
        leave(t, len);
    }
    return tags;
}

/* Any one of them. */
static uint32_t any_tag(struct tags *t, const struct tag *tags, size_t n) {
    uint32_t any = wefti_tree_parent(t->tree, WEFTI_TREE_ALT);
    for (size_t i = 0; i < n && !t->err; i++)
        wefti_tree_add(t->tree, any, tag_node(t, &tags[i], 0));
    return any;
}

static void find_trigger(struct tags *t, const struct texts *triggers, const struct tag *tag,
                         struct way *way) {
    for (size_t i = 0; i < triggers->n && !t->err; i++) {
        struct weft_str one = triggers->list[i];
        if (one.len > tag->begin.len || memcmp(one.data, tag->begin.data, one.len) != 0) continue;
        *way = (struct way){one, tag_node(t, tag, one.len)};
        return;
    }
    enter_tag(t, tag->begin);
    fail_field(t, WEFT_E_INVAL, "begin", "does not start with a trigger");
}

/* `key`: under which the tags stand. */
static uint32_t triggered(struct tags *t, const json_t *format, const char *key) {
    bool must = get_bool(t, format, "at_least_one", false);
    bool is_once = get_bool(t, format, "stop_after_first", false);
    struct texts triggers = {0};
    size_t n = 0;
    uint32_t node = WEFTI_TREE_NONE;
    get_triggers(t, format, &triggers);
    struct tag *tags = read_tags(t, format, key, &n);
    struct way *ways = calloc(n + 1, sizeof *ways);
    if (!ways) fail(t, WEFT_E_NOMEM, "no memory");
    for (size_t i = 0; tags && ways && i < n && !t->err; i++) {
        size_t len = enter(t, key, i);
        find_trigger(t, &triggers, &tags[i], &ways[i]);
        leave(t, len);
    }
    if (!t->err && !(must && is_once)) node = dispatch(t, format, &triggers, ways, n, is_once);
    if (!t->err && must) {
        uint32_t first = any_tag(t, tags, n);
        node = is_once ? first : cat(t, first, node, WEFTI_TREE_NONE);
    }
    free(triggers.list);
    free(tags);
    free(ways);
    return node;
}

static uint32_t read_triggered(struct tags *t, const json_t *format) {
    return triggered(t, format, "tags");
}

static uint32_t read_separated(struct tags *t, const json_t *format) {
    bool must = get_bool(t, format, "at_least_one", false);
    bool is_once = get_bool(t, format, "stop_after_first", false);
    struct weft_str separator = spell(t, get(format, "separator"), "separator");
    size_t n;
    struct tag *tags = read_tags(t, format, "tags", &n);
    uint32_t one = t->err ? 0 : rule_of(t, any_tag(t, tags, n));
    free(tags);
    if (t->err) return WEFTI_TREE_NONE;
    uint32_t node = rule_node(t, one);
    if (!is_once) {
        uint32_t more = cat(t, literal(t, separator), rule_node(t, one), WEFTI_TREE_NONE);
        node = cat(t, node, repeat(t, more, 0, WEFTI_EXPR_MANY), WEFTI_TREE_NONE);
    }
    return must ? node : repeat(t, node, 0, 1);
}

static uint32_t read_dispatch(struct tags *t, const json_t *format) {
    const json_t *list = get_list(t, format, "rules");
    bool is_once = !get_bool(t, format, "loop", true);
    struct texts triggers = {0};
    size_t i, n = json_array_size(list);
    json_t *one;
    struct way *ways = calloc(n + 1, sizeof *ways);
    if (!ways) {
        fail(t, WEFT_E_NOMEM, "no memory");
        return WEFTI_TREE_NONE;
    }
    json_array_foreach(list, i, one) {
        size_t len = enter(t, "rules", i);
        if (json_array_size(one) != 2) fail(t, WEFT_E_INVAL, "is no text and a format");
        struct weft_str pattern = spell(t, json_array_get(one, 0), "pattern");
        if (!t->err && add_text(t, &triggers, pattern))
            ways[i] = (struct way){pattern, read_format(t, json_array_get(one, 1))};
        leave(t, len);
    }
    check_triggers(t, "rules", &triggers);
    uint32_t node = t->err ? WEFTI_TREE_NONE : dispatch(t, format, &triggers, ways, n, is_once);
    free(triggers.list);
    free(ways);
    return node;
}

/* ---------------------------------------------------------------------------------- all of them --- */

static const struct {
    const char *name;
    uint32_t (*read)(struct tags *t, const json_t *format); /* NULL: refused */
    const char *fields[FIELDS_MAX];
} formats[] = {
    {"const_string", read_const, {"value"}},
    {"json_schema", read_schema, {"json_schema", "style", "any_order", "max_whitespace_cnt"}},
    {"regex", read_regex, {"pattern"}},
    {"grammar", read_grammar, {"grammar"}},
    {"any_text", read_any_text, {"excludes", "max_tokens", "max_chars"}},
    {"sequence", read_sequence, {"elements"}},
    {"or", read_or, {"elements"}},
    {"optional", read_optional, {"content"}},
    {"plus", read_plus, {"content"}},
    {"star", read_star, {"content"}},
    {"repeat", read_repeat, {"content", "min", "max"}},
    {"tag", read_tag, {"begin", "content", "end"}},
    {"triggered_tags",
     read_triggered,
     {"triggers", "tags", "at_least_one", "stop_after_first", "excludes"}},
    {"tags_with_separator",
     read_separated,
     {"tags", "separator", "at_least_one", "stop_after_first"}},
    {"dispatch", read_dispatch, {"rules", "loop", "excludes"}},
    {"token", read_token, {"token"}},
    {"exclude_token", NULL, {NULL}},
    {"any_tokens", NULL, {NULL}},
    {"token_triggered_tags", NULL, {NULL}},
    {"token_dispatch", NULL, {NULL}},
    {"qwen_xml_parameter", NULL, {NULL}},
};

static void fail_type(struct tags *t, const json_t *type) {
    char what[160];
    if (!json_is_string(type))
        (void)snprintf(what, sizeof what, "must be the name of a format");
    else
        (void)snprintf(what, sizeof what, "names no format: there is no \"%.60s\"",
                       json_string_value(type));
    fail_field(t, WEFT_E_INVAL, "type", what);
}

static uint32_t read_format(struct tags *t, const json_t *format) {
    const json_t *type = get(format, "type");
    uint32_t node = WEFTI_TREE_NONE;
    size_t i = 0, n = sizeof formats / sizeof *formats;
    if (++t->depth > DEPTH_MAX) fail(t, WEFT_E_TOOBIG, "formats are nested more than 100 deep");
    if (!json_is_object(format)) fail(t, WEFT_E_INVAL, "there is no format");
    while (i < n && json_is_string(type) && strcmp(json_string_value(type), formats[i].name) != 0)
        i++;
    if (i == n || !json_is_string(type)) {
        fail_type(t, type);
    } else if (!formats[i].read) {
        fail_field(t, WEFT_E_UNSUPPORTED, formats[i].name, "is not supported");
    } else {
        check_fields(t, format, formats[i].fields);
        if (!t->err) node = formats[i].read(t, format);
    }
    if (wefti_expr_pool_failed(t->tree->pool) || t->tree->failed)
        fail(t, WEFT_E_TOOBIG, "the grammar is too large");
    t->depth--;
    return t->err ? WEFTI_TREE_NONE : node;
}

static uint32_t read_document(struct tags *t, const json_t *root) {
    static const char *const fields[FIELDS_MAX] = {"format"};
    static const char *const old_fields[FIELDS_MAX] = {"structures", "triggers"};
    const json_t *type = get(root, "type"), *format = get(root, "format");
    if (type && strcmp(json_is_string(type) ? json_string_value(type) : "", "structural_tag") != 0)
        fail_field(t, WEFT_E_INVAL, "type", "is not \"structural_tag\"");
    if (!format && !get(root, "structures"))
        fail(t, WEFT_E_INVAL, "there is neither \"format\" nor \"structures\"");
    if (t->err) return WEFTI_TREE_NONE;
    check_fields(t, root, format ? fields : old_fields);
    if (t->err) return WEFTI_TREE_NONE;
    if (!format) return triggered(t, root, "structures");
    (void)enter(t, "format", SIZE_MAX);
    return read_format(t, format);
}

weft_err wefti_tags_read(struct wefti_tree *tree, struct weft_str text, uint32_t *root_out,
                         struct weft_errmsg *why) {
    struct tags t = {.tree = tree, .spelt = {.specials = tree->specials}, .why = why};
    struct weft_errmsg ignored;
    json_t *root;
    *root_out = WEFTI_TREE_NONE;
    if (text.len > TEXT_BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "structural tags of %zu bytes are over %zu",
                            text.len, TEXT_BYTES_MAX);
    weft_err err = wefti_schema_load(text, NULL, &root, &ignored);
    if (err || !json_is_object(root)) {
        json_decref(root);
        return weft_err_set(why, WEFT_E_INVAL, "structural tags are a JSON object%s%s",
                            err ? ": " : "", err ? ignored.text : "");
    }
    tree->has_words = true;
    weft_buf_init(&t.path, (size_t)1 << 20);
    t.any_char = wefti_chars_any(tree->pool, WEFTI_PLAIN);
    t.any_text = wefti_expr_repeat(tree->pool, t.any_char, 0, WEFTI_EXPR_MANY);
    uint32_t body = read_document(&t, root);
    if (!t.err && (tree->failed || wefti_expr_pool_failed(tree->pool)))
        fail(&t, WEFT_E_TOOBIG, "the grammar is too large");
    if (!t.err) *root_out = rule_of(&t, body);
    if (!t.err && tree->failed) fail(&t, WEFT_E_TOOBIG, "the grammar is too large");
    weft_buf_fini(&t.path);
    wefti_spelt_fini(&t.spelt);
    json_decref(root);
    return t.err;
}
