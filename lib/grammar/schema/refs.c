/* Most documents are one resource, whose URI matters to nobody: so only objects that are of another one are noted, with
 * its index. Names are hashed, anchors by their resource and the text that the document has already. What all
 * URIs that are made have together is bounded, so that ten thousand names under one long "$id" cost no more than
 * their document. */
#include "schema/refs.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define DEPTH_MAX 12000
#define PLACES_MAX 1000000u
#define NAMES_MAX 8192u /* "$id"s and anchors; a document of a thousand schemas has as many */
#define URI_BYTES_MAX 65536u
#define ALL_URI_BYTES_MAX ((size_t)16 << 20)

#define UNCLEAR UINT32_MAX /* no resource: nobody can say what a reference here is relative to */
#define NOWHERE UINT32_MAX /* what a URI is within */

/* ------------------------------------------------------------------------------------- URIs --- */

static size_t scheme_len(const char *uri) {
    size_t n = strspn(uri, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    return n > 0 && uri[n] == ':' ? n + 1 : 0;
}

/* Without what "." and ".." stand for; `path` shrinks. */
static void drop_dots(char *path) {
    char *to = path;
    for (char *at = path; *at;) {
        if (!strncmp(at, "/./", 3)) {
            at += 2;
        } else if (!strncmp(at, "/../", 4)) {
            at += 3;
            while (to > path && *--to != '/')
                ;
        } else {
            *to++ = *at++;
        }
    }
    *to = '\0';
}

/* RFC 3986, section 5.2. The caller frees; NULL: no memory, or too long. */
static char *resolve(struct wefti_refs *refs, const char *base, const char *ref) {
    struct weft_buf out;
    size_t n_base = strcspn(base, "#"), n_scheme = scheme_len(base);
    weft_buf_init(&out, URI_BYTES_MAX);
    const char *authority = base + n_scheme, *path = authority;
    if (!strncmp(authority, "//", 2)) path = authority + 2 + strcspn(authority + 2, "/?#");
    if (scheme_len(ref)) {
        weft_buf_add_str(&out, ref);
    } else if (*ref == '/') {
        size_t n = (size_t)((ref[1] == '/' ? authority : path) - base);
        weft_buf_add(&out, base, n);
        weft_buf_add_str(&out, ref);
    } else {
        size_t n = n_base;
        while (n > (size_t)(path - base) && base[n - 1] != '/')
            n--;
        weft_buf_add(&out, base, n);
        if (n == (size_t)(path - base) && path > authority) weft_buf_add_char(&out, '/');
        weft_buf_add_str(&out, ref);
    }
    refs->n_uri_bytes += out.len + n_base;
    bool is_over = out.failed || refs->n_uri_bytes > ALL_URI_BYTES_MAX;
    char *text = is_over ? NULL : strdup(weft_buf_cstr(&out));
    weft_buf_fini(&out);
    if (text && strncmp(text, "urn:", 4) != 0) drop_dots(text);
    return text;
}

/* --------------------------------------------------------------------------------------- names --- */

static uint32_t hash_name(uint32_t within, const char *text) {
    uint64_t hash = 0xcbf29ce484222325u ^ within;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u; /* FNV-1a */
    return (uint32_t)(hash ^ hash >> 32);
}

/* Where a name is, or would be. */
static uint32_t *slot_of(const struct wefti_refs *refs, uint32_t within, const char *text) {
    for (uint32_t at = hash_name(within, text);; at++) {
        uint32_t *slot = &refs->slots[at & (refs->n_slots - 1)];
        const struct wefti_ref_name *name = *slot ? &refs->names[*slot - 1] : NULL;
        if (!name || (name->within == within && !strcmp(name->text, text))) return slot;
    }
}

static const struct wefti_ref_name *find_name(const struct wefti_refs *refs, uint32_t within,
                                              const char *text) {
    uint32_t idx = refs->n_slots ? *slot_of(refs, within, text) : 0;
    return idx && !refs->names[idx - 1].is_twice ? &refs->names[idx - 1] : NULL;
}

/* False: no memory, or too many. */
static bool make_room(struct wefti_refs *refs) {
    uint32_t cap = refs->n_slots ? refs->n_slots : 16;
    if (2 * refs->n_names < refs->n_slots) return true;
    struct wefti_ref_name *names =
        refs->n_names < NAMES_MAX ? realloc(refs->names, cap * sizeof *names) : NULL;
    if (!names) return false;
    refs->names = names;
    uint32_t *slots = calloc(2 * (size_t)cap, sizeof *slots);
    if (!slots) return false;
    free(refs->slots);
    refs->slots = slots;
    refs->n_slots = 2 * cap;
    for (uint32_t i = 0; i < refs->n_names; i++)
        *slot_of(refs, names[i].within, names[i].text) = i + 1;
    return true;
}

/* What two have as their name, nobody has. */
static bool add_name(struct wefti_refs *refs, struct wefti_ref_name name) {
    if (!make_room(refs)) return false;
    uint32_t *slot = slot_of(refs, name.within, name.text);
    if (*slot) {
        struct wefti_ref_name *other = &refs->names[*slot - 1];
        other->is_twice = other->is_twice || other->schema != name.schema;
        return true;
    }
    refs->names[refs->n_names++] = name;
    *slot = refs->n_names;
    return true;
}

static bool add_place(struct wefti_refs *refs, const json_t *schema, uint32_t resource) {
    if (resource == 0) return true;
    if (refs->n_places == refs->cap_places) {
        uint32_t cap = refs->cap_places ? 2 * refs->cap_places : 16;
        struct wefti_ref_place *more =
            refs->n_places < PLACES_MAX ? realloc(refs->places, cap * sizeof *more) : NULL;
        if (!more) return false;
        refs->places = more;
        refs->cap_places = cap;
    }
    refs->places[refs->n_places++] = (struct wefti_ref_place){schema, resource};
    return true;
}

/* Takes the URI, which may be NULL after a failure. */
static bool add_resource(struct wefti_refs *refs, const json_t *root, char *uri,
                         enum wefti_draft draft) {
    struct wefti_ref_resource *more = uri && refs->n_resources < NAMES_MAX ? refs->resources : NULL;
    if (more && (refs->n_resources & (refs->n_resources - 1)) == 0)
        more = realloc(more, 2 * (size_t)refs->n_resources * sizeof *more);
    if (!more) {
        free(uri);
        return false;
    }
    refs->resources = more;
    more[refs->n_resources++] = (struct wefti_ref_resource){root, uri, draft};
    return add_name(refs,
                    (struct wefti_ref_name){NOWHERE, uri, root, refs->n_resources - 1, false});
}

/* ---------------------------------------------------------------------------------------- walk --- */

static enum wefti_draft draft_in(const struct wefti_refs *refs, uint32_t resource) {
    return refs->resources[resource == UNCLEAR ? 0 : resource].draft;
}

static void add_dynamic(struct wefti_refs *refs, const char *name) {
    for (uint32_t i = 0; i < refs->n_dynamic; i++)
        refs->has_dynamic = refs->has_dynamic || !strcmp(refs->dynamic[i], name);
    if (refs->n_dynamic == WEFTI_REF_DYNAMIC_MAX)
        refs->has_dynamic = true;
    else
        refs->dynamic[refs->n_dynamic++] = name;
}

enum position { A_SCHEMA, SCHEMAS_BY_NAME, NO_SCHEMA };

static bool is_one_of(const char *key, const char *const *list) {
    while (*list && strcmp(key, *list) != 0)
        list++;
    return *list != NULL;
}

/* What stands behind a keyword. What is not known to be a schema defines no names, though a pointer may lead there. */
static enum position position_behind(const char *keyword) {
    static const char *const by_name[] = {"properties",  "patternProperties", "$defs",
                                          "definitions", "dependencies",      "dependentSchemas",
                                          NULL};
    static const char *const schemas[] = {"additionalProperties",
                                          "unevaluatedProperties",
                                          "propertyNames",
                                          "items",
                                          "prefixItems",
                                          "additionalItems",
                                          "unevaluatedItems",
                                          "contains",
                                          "contentSchema",
                                          "allOf",
                                          "anyOf",
                                          "oneOf",
                                          "not",
                                          "if",
                                          "then",
                                          "else",
                                          NULL};
    if (is_one_of(keyword, by_name)) return SCHEMAS_BY_NAME;
    return is_one_of(keyword, schemas) ? A_SCHEMA : NO_SCHEMA;
}

static enum wefti_draft draft_of(const json_t *schema) {
    static const struct {
        const char *name;
        enum wefti_draft draft;
    } drafts[] = {
        {"json-schema.org/draft-03/schema", WEFTI_DRAFT_3},
        {"json-schema.org/draft-04/schema", WEFTI_DRAFT_4},
        {"json-schema.org/draft-06/schema", WEFTI_DRAFT_6},
        {"json-schema.org/draft-07/schema", WEFTI_DRAFT_7},
        {"json-schema.org/draft/2019-09/schema", WEFTI_DRAFT_2019},
        {"json-schema.org/draft/2020-12/schema", WEFTI_DRAFT_2020},
    };
    const char *uri = json_string_value(json_object_get(schema, "$schema"));
    const char *name = uri ? strstr(uri, "://") : NULL;
    for (size_t i = 0; name && i < sizeof drafts / sizeof *drafts; i++) {
        size_t n = strlen(drafts[i].name);
        bool is_it = !strncmp(name + 3, drafts[i].name, n) && (!name[3 + n] || name[3 + n] == '#');
        if (is_it) return drafts[i].draft;
    }
    return WEFTI_DRAFT_ANY;
}

/* In drafts up to 7 nothing counts beside a "$ref"; without a draft either spelling does. */
static const json_t *id_of(const json_t *schema, enum wefti_draft draft) {
    const json_t *id = json_object_get(schema, "$id"), *old = json_object_get(schema, "id");
    bool is_old = draft == WEFTI_DRAFT_3 || draft == WEFTI_DRAFT_4;
    if (wefti_draft_is_old(draft) && json_object_get(schema, "$ref")) return NULL;
    if (is_old || (draft == WEFTI_DRAFT_ANY && !json_is_string(id))) id = old;
    return json_is_string(id) ? id : NULL;
}

static const char *text_of(const json_t *string) {
    const char *text = json_string_value(string);
    return text && strlen(text) == json_string_length(string) ? text : NULL;
}

/* False: over a bound. "#name" is how drafts 4 to 7 spell an anchor. What can't be told is UNCLEAR: a URI that is no
 * text, is relative to what is unclear, or has a fragment; an "id" that only draft 4 knows, if no draft is named. */
static bool take_id(struct wefti_refs *refs, const json_t *at, const json_t *id,
                    enum wefti_draft draft, uint32_t *resource) {
    const char *text = text_of(id), *fragment = text ? strchr(text, '#') : NULL;
    bool is_anchor = text && *text == '#', is_root = at == refs->root;
    if (text && (!*text || (is_anchor && !text[1]))) return true;
    if (is_anchor && draft < WEFTI_DRAFT_2019 && *resource != UNCLEAR)
        return add_name(refs, (struct wefti_ref_name){*resource, text + 1, at, 0, false});
    bool is_relative = text && *resource == UNCLEAR && !scheme_len(text);
    if (!text || is_anchor || is_relative || (fragment && fragment[1])) {
        *resource = UNCLEAR;
        return true;
    }
    char *uri = resolve(refs, *resource == UNCLEAR ? "" : refs->resources[*resource].uri, text);
    if (!uri) return false;
    uri[strcspn(uri, "#")] = '\0';
    if (is_root) {
        free(refs->resources->uri);
        refs->resources->uri = uri;
        return add_name(refs, (struct wefti_ref_name){NOWHERE, uri, at, 0, false});
    }
    if (!add_resource(refs, at, uri, draft)) return false;
    bool is_clear = draft != WEFTI_DRAFT_ANY || json_is_string(json_object_get(at, "$id"));
    *resource = is_clear ? refs->n_resources - 1 : UNCLEAR;
    return true;
}

/* The names that a schema has, and what it is part of. */
static bool take_names(struct wefti_refs *refs, const json_t *at, uint32_t *resource) {
    enum wefti_draft draft = draft_in(refs, *resource), own = draft_of(at);
    if (own != WEFTI_DRAFT_ANY && id_of(at, own)) draft = own;
    const json_t *id = id_of(at, draft);
    if (id && !take_id(refs, at, id, draft, resource)) return false;
    if (*resource == UNCLEAR || wefti_draft_is_old(draft)) return true;
    const char *anchor = text_of(json_object_get(at, "$anchor"));
    const char *dynamic = text_of(json_object_get(at, "$dynamicAnchor"));
    if (draft == WEFTI_DRAFT_2019) dynamic = NULL;
    if (anchor && !add_name(refs, (struct wefti_ref_name){*resource, anchor, at, 0, false}))
        return false;
    if (!dynamic) return true;
    add_dynamic(refs, dynamic);
    return add_name(refs, (struct wefti_ref_name){*resource, dynamic, at, 0, false});
}

/* False: too deep, or too much. */
static bool walk(struct wefti_refs *refs, const json_t *at, uint32_t resource,
                 enum position position, int depth) {
    const char *key;
    json_t *child;
    size_t i;
    if (depth > DEPTH_MAX) return false;
    if (json_is_object(at)) {
        bool has_id =
            json_is_string(json_object_get(at, "$id")) || json_is_string(json_object_get(at, "id"));
        if (position == NO_SCHEMA && has_id) resource = UNCLEAR;
        if (position == A_SCHEMA && !take_names(refs, at, &resource)) return false;
        if (!add_place(refs, at, resource)) return false;
    }
    json_object_foreach((json_t *)at, key, child) {
        enum position below = position == A_SCHEMA          ? position_behind(key)
                              : position == SCHEMAS_BY_NAME ? A_SCHEMA
                                                            : NO_SCHEMA;
        if (json_is_array(child) && below == SCHEMAS_BY_NAME) below = NO_SCHEMA;
        if ((json_is_object(child) || json_is_array(child)) &&
            !walk(refs, child, resource, below, depth + 1))
            return false;
    }
    json_array_foreach(at, i, child) {
        enum position below = json_is_array(child) ? NO_SCHEMA : position;
        if ((json_is_object(child) || json_is_array(child)) &&
            !walk(refs, child, resource, below, depth + 1))
            return false;
    }
    return true;
}

static int compare(const void *x, const void *y) {
    const struct wefti_ref_place *a = x, *b = y;
    return a->schema < b->schema ? -1 : a->schema > b->schema;
}

weft_err wefti_refs_init(struct wefti_refs *refs, const json_t *root, struct weft_errmsg *why) {
    *refs = (struct wefti_refs){.root = root};
    refs->resources = calloc(1, sizeof *refs->resources);
    char *uri = strdup("");
    if (!refs->resources || !uri) {
        free(uri);
        wefti_refs_fini(refs);
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for a schema");
    }
    *refs->resources = (struct wefti_ref_resource){root, uri, draft_of(root)};
    refs->n_resources = 1;
    if (!walk(refs, root, 0, A_SCHEMA, 0)) {
        wefti_refs_fini(refs);
        return weft_err_set(why, WEFT_E_TOOBIG,
                            "the schema is nested too deeply, or has too many or too long names");
    }
    if (refs->n_places > 1) qsort(refs->places, refs->n_places, sizeof *refs->places, compare);
    return WEFT_OK;
}

void wefti_refs_fini(struct wefti_refs *refs) {
    for (uint32_t i = 0; refs->resources && i < refs->n_resources; i++)
        free(refs->resources[i].uri);
    free(refs->resources);
    free(refs->names);
    free(refs->slots);
    free(refs->places);
    *refs = (struct wefti_refs){0};
}

/* ---------------------------------------------------------------------------------- pointers --- */

/* The next part of a pointer, without its escapes of either kind, into `out`. */
static const char *take_part(const char *at, struct weft_buf *out) {
    weft_buf_clear(out);
    for (; *at && *at != '/'; at++) {
        unsigned value = (unsigned char)*at;
        char hex[3] = {0};
        if (*at == '%' && at[1] && at[2] && strspn(at + 1, "0123456789abcdefABCDEF") >= 2) {
            memcpy(hex, at + 1, 2);
            value = (unsigned)strtoul(hex, NULL, 16);
            at += 2;
        }
        if (value == '~' && (at[1] == '0' || at[1] == '1')) value = *++at == '0' ? '~' : '/';
        weft_buf_add_char(out, (char)value);
    }
    return at;
}

static const json_t *follow(const json_t *at, const char *pointer) {
    struct weft_buf part;
    weft_buf_init(&part, URI_BYTES_MAX);
    while (at && *pointer == '/') {
        pointer = take_part(pointer + 1, &part);
        const char *name = weft_buf_cstr(&part);
        if (json_is_array(at)) {
            size_t n = strspn(name, "0123456789");
            bool is_index = n > 0 && n < 10 && !name[n];
            at = is_index ? json_array_get(at, (size_t)atol(name)) : NULL;
        } else {
            at = json_object_getn(at, name, part.len);
        }
    }
    weft_buf_fini(&part);
    return at;
}

static uint32_t resource_of(const struct wefti_refs *refs, const json_t *schema) {
    const struct wefti_ref_place key = {.schema = schema},
                                 *place = refs->n_places
                                              ? bsearch(&key, refs->places, refs->n_places,
                                                        sizeof key, compare)
                                              : NULL;
    return place ? place->resource : 0;
}

enum wefti_draft wefti_refs_draft(const struct wefti_refs *refs, const json_t *schema) {
    bool is_all = refs->n_resources == 1; /* the root's draft is that of what is unclear, too */
    return draft_in(refs, is_all ? 0 : resource_of(refs, schema));
}

static uint32_t find_resource(struct wefti_refs *refs, uint32_t from, const char *ref) {
    if (from == UNCLEAR && !scheme_len(ref)) return UNCLEAR;
    char *uri = resolve(refs, from == UNCLEAR ? "" : refs->resources[from].uri, ref);
    refs->is_over = refs->is_over || !uri;
    if (!uri) return UNCLEAR;
    uri[strcspn(uri, "#")] = '\0';
    const struct wefti_ref_name *name = find_name(refs, NOWHERE, uri);
    uint32_t resource = name ? name->resource : UNCLEAR;
    free(uri);
    return resource;
}

const json_t *wefti_refs_find(struct wefti_refs *refs, const json_t *schema, const json_t *ref) {
    const char *text = text_of(ref), *fragment = text ? strchr(text, '#') : NULL;
    uint32_t resource = resource_of(refs, schema);
    if (!text) return NULL;
    if (*text && *text != '#') resource = find_resource(refs, resource, text);
    if (resource == UNCLEAR) return NULL;
    const json_t *found = refs->resources[resource].root;
    if (fragment && fragment[1] && fragment[1] != '/') {
        const struct wefti_ref_name *name = find_name(refs, resource, fragment + 1);
        found = name ? name->schema : NULL;
    } else if (fragment) {
        found = follow(found, fragment + 1);
    }
    return json_is_object(found) || json_is_boolean(found) ? found : NULL;
}

static bool find_path(const json_t *at, const json_t *wanted, struct weft_buf *out, int depth) {
    const char *key;
    json_t *child;
    size_t i, len = out->len;
    if (at == wanted) return true;
    if (depth > DEPTH_MAX) return false;
    json_object_foreach((json_t *)at, key, child) {
        weft_buf_printf(out, "/%s", key);
        if (find_path(child, wanted, out, depth + 1)) return true;
        out->len = len;
    }
    json_array_foreach(at, i, child) {
        weft_buf_printf(out, "/%zu", i);
        if (find_path(child, wanted, out, depth + 1)) return true;
        out->len = len;
    }
    return false;
}

void wefti_refs_path(const struct wefti_refs *refs, const json_t *schema, struct weft_buf *out) {
    weft_buf_add_char(out, '#');
    if (!json_is_boolean(schema)) (void)find_path(refs->root, schema, out, 0);
}
