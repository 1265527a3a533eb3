/* Only properties can be said one by one. Where a schema says more, a list of properties is sought whose every object
 * satisfies it: that none does both satisfy the list and break the schema is asked of the grammar. */
#include "params.h"

#include <stdlib.h>
#include <string.h>

#include "tools.h"

/* Which of the properties are written. */
enum extent {
    AS_DECLARED, /* those that are required, and any of the others */
    EACH,
    REQUIRED_ONLY,
    N_EXTENTS,
};

struct param {
    const char *key;
    const json_t *schema;
    json_t *all; /* the list of those that it is made of; NULL: it is one of the document's */
    bool is_required;
};

struct params {
    struct param *list; /* owned */
    size_t n, max;
    const json_t *root;
    json_t *made;   /* owned: schemas that are not in root */
    json_t *places; /* owned: of each key its place in the list */
};

/* --------------------------------------------------------------------------------------- lists --- */

static struct param *find(const struct params *p, const char *key) {
    const json_t *place = json_object_get(p->places, key);
    return place ? &p->list[json_integer_value(place)] : NULL;
}

static void add(struct wefti_msg_build *b, struct params *p, const char *key,
                const json_t *schema) {
    if (!p->list || p->n == p->max) {
        size_t max = p->max ? 2 * p->max : 16;
        struct param *list = realloc(p->list, max * sizeof *list);
        if (!list) {
            b->failed = true;
            return;
        }
        p->list = list;
        p->max = max;
    }
    wefti_msg_set(b, p->places, key, json_integer((json_int_t)p->n));
    p->list[p->n++] = (struct param){.key = key, .schema = schema};
}

/* A name that several schemas describe satisfies all of them. */
static void add_both(struct wefti_msg_build *b, struct params *p, struct param *param,
                     const json_t *schema) {
    if (!param->all) {
        json_t *all = json_object();
        param->all = json_array();
        wefti_msg_append(b, param->all, json_incref((json_t *)param->schema));
        wefti_msg_set(b, all, "allOf", param->all);
        wefti_msg_append(b, p->made, all);
        param->schema = all;
    }
    if (!b->failed) wefti_msg_append(b, param->all, json_incref((json_t *)schema));
}

static void add_properties(struct wefti_msg_build *b, struct params *p, const json_t *schema) {
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(schema, "properties"), key, value) {
        struct param *param = find(p, key);
        if (param)
            add_both(b, p, param, value);
        else
            add(b, p, key, value);
    }
}

static void add_required(struct wefti_msg_build *b, struct params *p, const json_t *schema) {
    const json_t *rest = json_object_get(schema, "additionalProperties");
    json_t *value;
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i, value) {
        if (!json_is_string(value)) continue;
        const char *key = json_string_value(value);
        if (!find(p, key)) add(b, p, key, json_is_object(rest) ? rest : json_true());
        struct param *param = find(p, key);
        if (param) param->is_required = true;
    }
}

static size_t size_of(const json_t *schema) {
    return 1 + json_object_size(json_object_get(schema, "properties")) +
           json_array_size(json_object_get(schema, "required"));
}

/* What it and all branches of an "allOf" declare; of "anyOf" and "oneOf" what the branch does. */
static void collect(struct wefti_msg_build *b, struct params *p, const json_t *schema,
                    size_t branch, unsigned depth,
                    void (*take)(struct wefti_msg_build *, struct params *, const json_t *)) {
    static const char *const choices[] = {"anyOf", "oneOf"};
    size_t i;
    json_t *one;
    if (depth > 8) return;
    schema = wefti_msg_resolve(p->root, schema);
    b->is_cut_off = b->is_cut_off || !wefti_msg_look_at(b, size_of(schema));
    if (b->is_cut_off || b->failed) return;
    take(b, p, schema);
    json_array_foreach(json_object_get(schema, "allOf"), i, one) {
        collect(b, p, one, branch, depth + 1, take);
    }
    for (size_t k = 0; k < 2; k++) {
        one = json_array_get(json_object_get(schema, choices[k]), branch);
        if (one) collect(b, p, one, branch, depth + 1, take);
    }
}

static void collect_all(struct wefti_msg_build *b, struct params *p, size_t branch) {
    p->n = 0;
    if (json_object_clear(p->places)) b->failed = true;
    collect(b, p, p->root, branch, 0, add_properties);
    collect(b, p, p->root, branch, 0, add_required);
}

static bool is_annotation(const char *key) {
    static const char *const keys[] = {
        "title",    "description", "$schema",    "$id",      "$comment", "default",
        "examples", "example",     "deprecated", "readOnly", "strict",   "$defs",
        "type",     "definitions", "properties", "required", "nullable", "additionalProperties"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

/* Its properties say all there is to say. */
static bool is_plain(const json_t *schema) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value) {
        if (!is_annotation(key) && strncmp(key, "x-", 2) != 0) return false;
    }
    return true;
}

/* --------------------------------------------------------------------------------------- extents --- */

/* The schema of all objects that a list and its extent make. */
static json_t *schema_of(struct wefti_msg_build *b, const struct params *p, enum extent extent) {
    json_t *schema = json_object(), *map = json_object(), *required = json_array();
    for (size_t i = 0; i < p->n; i++) {
        const struct param *one = &p->list[i];
        if (extent == REQUIRED_ONLY && !one->is_required) continue;
        wefti_msg_set(b, map, one->key, json_incref((json_t *)one->schema));
        if (one->is_required || extent == EACH)
            wefti_msg_append(b, required, json_string(one->key));
    }
    wefti_msg_set(b, schema, "type", json_string("object"));
    wefti_msg_set(b, schema, "properties", map);
    wefti_msg_set(b, schema, "required", required);
    wefti_msg_set(b, schema, "additionalProperties", json_false());
    return schema;
}

/* Whether such objects are there, and none breaks the schema. */
static bool is_within(struct wefti_msg_build *b, const struct params *p, enum extent extent) {
    json_t *list = schema_of(b, p, extent), *broken = json_object(), *both = json_array();
    json_t *rest = json_copy((json_t *)p->root);
    (void)json_object_del(rest, "$defs");
    (void)json_object_del(rest, "definitions");
    (void)json_object_del(rest, "properties"); /* the list has them all, and no other */
    (void)json_object_del(rest, "additionalProperties");
    bool is_some = wefti_msg_can_both(b, p->root, list);
    wefti_msg_append(b, both, json_incref(list));
    json_t *not = json_object();
    wefti_msg_set(b, not, "not", rest);
    wefti_msg_append(b, both, not );
    wefti_msg_set(b, broken, "allOf", both);
    static const char *const maps[] = {"$defs", "definitions"};
    for (size_t i = 0; i < 2; i++) {
        json_t *map = json_object_get(p->root, maps[i]);
        if (map) wefti_msg_set(b, broken, maps[i], json_incref(map));
    }
    bool is_broken = is_some && wefti_msg_can(b, broken);
    json_decref(list);
    json_decref(broken);
    return is_some && !is_broken;
}

/* Chooses a list and what is written of it. */
static enum extent choose(struct wefti_msg_build *b, struct params *p) {
    const size_t n_branches = 8;
    collect_all(b, p, 0);
    if (is_plain(p->root)) return AS_DECLARED;
    for (size_t branch = 0; branch < n_branches && !b->is_cut_off; branch++) {
        collect_all(b, p, branch);
        for (enum extent extent = AS_DECLARED; extent < N_EXTENTS; extent++)
            if (is_within(b, p, extent)) return extent;
    }
    collect_all(b, p, 0);
    return EACH;
}

/* ------------------------------------------------------------------------------------- writing --- */

struct item {
    json_t *node; /* a sequence: the key and its value */
    bool is_required;
};

struct writer {
    struct wefti_msg_build *b;
    const json_t *parameters, *root; /* as they came, and loosened */
    const struct wefti_msg_writing *writing;
};

/* What the parser takes a value for, by the schema that it has. */
static struct wefti_msg_reading reading_of(const struct writer *w, const struct param *param) {
    const json_t *property =
        json_object_get(json_object_get(w->parameters, "properties"), param->key);
    struct weft_str key = {param->key, strlen(param->key)};
    if (wefti_msg_key_is_text(w->parameters, key))
        return (struct wefti_msg_reading){WEFTI_MSG_STRING, w->writing->end,
                                          w->writing->loses_lines};
    const json_t *type = json_object_get(property, "type");
    return (struct wefti_msg_reading){type ? wefti_msg_types(w->b, w->parameters, property) : 0,
                                      w->writing->end, w->writing->loses_lines};
}

/* A key and its value. */
static json_t *write_one(const struct writer *w, const struct param *param, json_t *value,
                         const char *after_key) {
    const struct wefti_msg_writing *writing = w->writing;
    json_t *seq = wefti_msg_seq(w->b);
    if (!writing->is_python) wefti_msg_add_spelt(w->b, seq, writing->before_key);
    wefti_msg_add_text(w->b, seq, param->key, strlen(param->key));
    wefti_msg_add_spelt(w->b, seq, after_key);
    wefti_msg_add(w->b, seq, value);
    if (!writing->is_python) wefti_msg_add_spelt(w->b, seq, writing->close);
    return seq;
}

/* NULL: no value can be said. */
static json_t *write_schema(const struct writer *w, const struct param *param,
                            const json_t *schema) {
    const unsigned others = WEFTI_MSG_ALL & ~(unsigned)WEFTI_MSG_STRING;
    const struct wefti_msg_reading reading = reading_of(w, param);
    const struct wefti_msg_writing *writing = w->writing;
    json_t *value, *text = NULL;
    if (writing->is_python) {
        value = wefti_msg_python_value(w->b, w->root, schema);
        return value ? write_one(w, param, value, "=") : NULL;
    }
    if (!writing->after_string_key) {
        value = wefti_msg_text_value(w->b, w->root, schema, &reading);
        return value ? write_one(w, param, value, writing->after_key) : NULL;
    }
    /* Where a string is marked as such its text and other values are two ways. */
    text = wefti_msg_string_value(w->b, w->root, schema, &reading);
    value = wefti_msg_json_value(w->b, w->root, schema, others);
    if (text) text = write_one(w, param, text, writing->after_string_key);
    if (value) value = write_one(w, param, value, writing->after_key);
    return wefti_msg_either(w->b, text, value);
}

/* NULL: it can't be said, and may be left out. Where it must be there, or no more can be checked, its type is all that
 * counts. */
static json_t *write_param(const struct writer *w, const struct param *param) {
    json_t *node = write_schema(w, param, param->schema);
    if (node || !(param->is_required || w->b->n_checks == 0)) return node;
    unsigned types = wefti_msg_types(w->b, w->root, param->schema);
    json_t *loose = wefti_msg_typed(w->b, types & WEFTI_MSG_STRING ? WEFTI_MSG_STRING : types);
    node = write_schema(w, param, loose);
    json_decref(loose);
    return node;
}

/* Whether the parser would read a key as it is written. */
static bool is_sayable(const char *key, const struct wefti_msg_writing *writing) {
    size_t n = strlen(key);
    static const char names[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    if (n == 0 || n > 256) return false;
    if (writing->is_python) return strspn(key, names) == n;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)key[i] < ' ' || strchr("<>", key[i])) return false;
    return !strchr(" \"'", key[0]) && !strchr(" \"'", key[n - 1]) && !strstr(key, " string=");
}

/* Each of them, where it may be left out or not. */
static void add_items(struct wefti_msg_build *b, json_t *seq, const struct item *items, size_t n,
                      const char *before) {
    for (size_t i = 0; i < n; i++) {
        json_t *node = json_incref(items[i].node);
        if (*before) {
            json_t *with = wefti_msg_seq(b);
            wefti_msg_add_text(b, with, before, strlen(before));
            wefti_msg_add(b, with, node);
            node = with;
        }
        wefti_msg_add(b, seq, items[i].is_required ? node : wefti_msg_optional(b, node));
    }
}

/* At least one of items that may all be left out, with commas between. It is one of the first half and perhaps some of
 * the second, or one of the second: each is written as often as halves are halved, not once for
 * each that may be first. */
static json_t *some_items(struct wefti_msg_build *b, const struct item *items, size_t n) {
    if (n == 1) return json_incref(items[0].node);
    size_t half = n / 2;
    json_t *any = wefti_msg_or(b), *seq = wefti_msg_seq(b);
    wefti_msg_add(b, seq, some_items(b, items, half));
    add_items(b, seq, items + half, n - half, ", ");
    wefti_msg_add(b, any, seq);
    wefti_msg_add(b, any, some_items(b, items + half, n - half));
    return any;
}

static json_t *python_items(struct wefti_msg_build *b, const struct item *items, size_t n) {
    size_t first = 0;
    json_t *seq = wefti_msg_seq(b);
    while (first < n && !items[first].is_required)
        first++;
    if (first == n && n > 0) {
        wefti_msg_add(b, seq, wefti_msg_optional(b, some_items(b, items, n)));
        return seq;
    }
    for (size_t i = 0; i < first; i++) {
        json_t *with = wefti_msg_seq(b);
        wefti_msg_add(b, with, json_incref(items[i].node));
        wefti_msg_add_text(b, with, ", ", 2);
        wefti_msg_add(b, seq, wefti_msg_optional(b, with));
    }
    if (first < n) {
        wefti_msg_add(b, seq, json_incref(items[first].node));
        add_items(b, seq, items + first + 1, n - first - 1, ", ");
    }
    if (n == 0) wefti_msg_add(b, seq, wefti_msg_const(b, "", 0));
    return seq;
}

static json_t *write_all(struct wefti_msg_build *b, const struct item *items, size_t n,
                         const struct wefti_msg_writing *writing) {
    if (writing->is_python) return python_items(b, items, n);
    json_t *seq = wefti_msg_seq(b);
    add_items(b, seq, items, n, "");
    if (n == 0) wefti_msg_add(b, seq, wefti_msg_const(b, "", 0));
    return seq;
}

json_t *wefti_msg_params(struct wefti_msg_build *b, const json_t *parameters, const json_t *schema,
                         const struct wefti_msg_writing *writing) {
    const struct writer w = {b, parameters, schema, writing};
    struct params p = {.root = schema, .made = json_array(), .places = json_object()};
    enum extent extent = choose(b, &p);
    struct item *items = calloc(p.n + 1, sizeof *items);
    size_t n = 0;
    if (!items) b->failed = true;
    for (size_t i = 0; i < p.n && items && !b->failed; i++) {
        struct param *one = &p.list[i];
        if (extent == EACH) one->is_required = true;
        bool is_left_out = extent == REQUIRED_ONLY || !is_sayable(one->key, writing);
        if (is_left_out && !one->is_required) continue;
        json_t *node = write_param(&w, one);
        if (node) items[n++] = (struct item){node, one->is_required};
    }
    json_t *all = b->failed ? NULL : write_all(b, items, n, writing);
    for (size_t i = 0; i < n; i++)
        json_decref(items[i].node);
    free(items);
    free(p.list);
    json_decref(p.made);
    json_decref(p.places);
    return all;
}
