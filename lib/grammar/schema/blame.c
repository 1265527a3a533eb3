/* Why nothing satisfies a schema: which of the schemas that it needs is to blame.
 *
 * A set has a value if one of its shapes has, and a shape if what it needs have: required members, the first
 * items. So a search that looks at those alone answers soon for nearly every schema. What it meets while it is
 * being looked into has no value yet; so rounds go on while they find a term that has one, as a schema may
 * need itself. What is not seen here is met by the rules, whose message has no place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/schema.h"

#define DEPTH_MAX 400u
#define PLACE_SHOWN 150

enum life { UNKNOWN, OPEN, DEAD, ALIVE };

struct blame {
    struct wefti_schema *s;
    unsigned char *lives; /* by term */
    uint32_t n_terms, depth;
    bool has_more; /* this round found something alive */
};

static bool is_alive(struct blame *b, wefti_term term);

static wefti_term item_of(const struct wefti_array *a, uint32_t idx) {
    return idx < a->n_items ? a->items[idx] : a->rest;
}

/* What is dead among what the shape needs; TRUE: nothing is. */
static wefti_term dead_item(struct blame *b, const struct wefti_array *a) {
    for (uint32_t i = 0; i < a->min && i <= a->n_items; i++) {
        if (!is_alive(b, item_of(a, i))) return item_of(a, i);
    }
    return a->has_some && a->some_min > 0 && !is_alive(b, a->some) ? a->some : WEFTI_TERM_TRUE;
}

static wefti_term dead_member(struct blame *b, const struct wefti_object *o) {
    for (uint32_t i = 0; i < o->n_members; i++) {
        if (o->members[i].is_required && !is_alive(b, o->members[i].value))
            return o->members[i].value;
    }
    return WEFTI_TERM_TRUE;
}

/* Whether as many members as there must be may be there. */
static bool may_have_enough(struct blame *b, const struct wefti_object *o) {
    uint32_t n_required = 0, n = 0;
    for (uint32_t i = 0; i < o->n_members; i++)
        n_required += o->members[i].is_required;
    if (n_required > o->max) return false;
    if (n_required >= o->min || o->n_others > 0) return true;
    for (uint32_t i = 0; i < o->n_members && n < o->min; i++)
        n += is_alive(b, o->members[i].value);
    return n >= o->min;
}

static bool is_alive_set(struct blame *b, const struct wefti_set *set) {
    if (wefti_expr_is_live(b->s->sets.pool, set->scalars)) return true;
    for (const struct wefti_array *a = set->arrays; a; a = a->next) {
        if (dead_item(b, a) == WEFTI_TERM_TRUE) return true;
    }
    for (const struct wefti_object *o = set->objects; o; o = o->next) {
        if (dead_member(b, o) == WEFTI_TERM_TRUE && may_have_enough(b, o)) return true;
    }
    return false;
}

/* What nobody has looked into is taken for alive, as is what is too deep. */
static bool is_alive(struct blame *b, wefti_term term) {
    const struct wefti_set *set = term < b->n_terms ? b->s->sets.terms[term].set : NULL;
    if (term == WEFTI_TERM_FALSE) return false;
    if (!set || b->lives[term] == ALIVE || b->depth >= DEPTH_MAX) return true;
    if (b->lives[term] != UNKNOWN) return false;
    b->lives[term] = OPEN;
    b->depth++;
    bool is_live = is_alive_set(b, set);
    b->depth--;
    b->lives[term] = is_live ? ALIVE : DEAD;
    b->has_more = b->has_more || is_live;
    return is_live;
}

static bool is_alive_at_last(struct blame *b, wefti_term root) {
    do {
        for (uint32_t i = 0; i < b->n_terms; i++)
            b->lives[i] = b->lives[i] == ALIVE ? ALIVE : UNKNOWN;
        b->has_more = false;
        if (is_alive(b, root)) return true;
    } while (b->has_more);
    return false;
}

/* --------------------------------------------------------------------------------------- places --- */

static const json_t *schema_of(const struct blame *b, wefti_term term) {
    const struct wefti_term_node *node = &b->s->sets.terms[term];
    return node->kind == WEFTI_TERM_SCHEMA ? node->what : NULL;
}

/* A schema that is dead by itself, among the parts of a term, or where a schema leads to. FALSE: none. */
static wefti_term dead_part(struct blame *b, wefti_term term) {
    const struct wefti_term_node node = b->s->sets.terms[term];
    const json_t *schema = schema_of(b, term), *list = json_object_get(schema, "allOf");
    const json_t *ref = json_object_get(schema, "$ref");
    const json_t *target = ref ? wefti_refs_find(&b->s->refs, schema, ref) : NULL;
    for (uint32_t i = 0; node.kind == WEFTI_TERM_AND && i < node.n_parts; i++) {
        if (!is_alive(b, node.parts[i])) return node.parts[i];
    }
    for (size_t i = 0; i <= json_array_size(list); i++) {
        const json_t *one = i < json_array_size(list) ? json_array_get(list, i) : target;
        wefti_term part = one ? wefti_term_schema(&b->s->sets, one) : WEFTI_TERM_TRUE;
        if (part != WEFTI_TERM_FALSE && part != term && !is_alive(b, part)) return part;
    }
    return WEFTI_TERM_FALSE;
}

/* What a set of one shape needs and can't have. TRUE: nothing of the kind. */
static wefti_term dead_within(struct blame *b, const struct wefti_set *set) {
    const struct wefti_array *a = set->arrays;
    const struct wefti_object *o = set->objects;
    if (a && !o && !a->next) return dead_item(b, a);
    return o && !a && !o->next ? dead_member(b, o) : WEFTI_TERM_TRUE;
}

/* A required name that the same schema forbids: the usual slip. */
static const char *forbidden_name(const json_t *schema) {
    const json_t *properties = json_object_get(schema, "properties"), *one;
    bool is_closed = json_is_false(json_object_get(schema, "additionalProperties")) &&
                     !json_object_get(schema, "patternProperties");
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i, one) {
        const char *name = json_string_value(one);
        const json_t *value = json_object_get(properties, name);
        if (name && (value ? json_is_false(value) : is_closed)) return name;
    }
    return NULL;
}

static void say(struct blame *b, const json_t *schema, const json_t *other, bool is_endless) {
    char what[400];
    const char *name = forbidden_name(schema);
    if (other) {
        struct weft_buf path;
        weft_buf_init(&path, (size_t)1 << 20);
        wefti_refs_path(&b->s->refs, other, &path);
        (void)snprintf(what, sizeof what, "nothing satisfies it together with the one at %.*s",
                       PLACE_SHOWN, weft_buf_cstr(&path));
        weft_buf_fini(&path);
    } else if (name) {
        (void)snprintf(what, sizeof what,
                       "nothing satisfies it: it requires \"%.60s\", and forbids it", name);
    } else {
        (void)snprintf(what, sizeof what, "nothing satisfies it%s",
                       is_endless ? ": it would have to hold itself, without end" : "");
    }
    (void)wefti_schema_refuse(b->s, WEFT_E_INVAL, schema, NULL, what);
}

/* Goes to the innermost schema that is dead by itself, or with another one at the same place. */
static void find(struct blame *b, wefti_term root) {
    const json_t *place = NULL, *other = NULL;
    bool *seen = calloc(b->n_terms, sizeof *seen), is_endless = false;
    wefti_term term = root;
    while (seen && term > WEFTI_TERM_TRUE && term < b->n_terms) {
        const struct wefti_term_node node = b->s->sets.terms[term];
        if (node.kind == WEFTI_TERM_SCHEMA) {
            place = node.what;
            other = NULL;
        }
        is_endless = seen[term];
        if (is_endless) break;
        seen[term] = true;
        wefti_term next = dead_part(b, term);
        if (next == WEFTI_TERM_FALSE) {
            next = node.set ? dead_within(b, node.set) : WEFTI_TERM_TRUE;
            if (node.kind == WEFTI_TERM_AND && schema_of(b, node.parts[0])) {
                place = schema_of(b, node.parts[0]);
                other = schema_of(b, node.parts[1]);
            }
        }
        term = next;
    }
    free(seen);
    if (place) say(b, place, other, is_endless);
}

weft_err wefti_schema_need_values(struct wefti_schema *s, wefti_term root) {
    struct blame b = {.s = s, .n_terms = s->sets.n_terms};
    b.lives = calloc(b.n_terms, sizeof *b.lives);
    if (!b.lives) return wefti_sets_fail(&s->sets, WEFT_E_NOMEM, "no memory for a schema");
    bool is_live = is_alive_at_last(&b, root);
    if (!is_live && !wefti_expr_pool_failed(s->sets.pool)) {
        if (root == WEFTI_TERM_FALSE)
            (void)wefti_schema_refuse(s, WEFT_E_INVAL, s->refs.root, NULL, "nothing satisfies it");
        else
            find(&b, root);
    }
    free(b.lives);
    return s->sets.err;
}
