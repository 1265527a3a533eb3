#include "schema/refs.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define DEPTH_MAX 12000
#define PLACES_MAX 1000000u
#define DYNAMIC_MAX 100u /* more are taken for twins */
#define URI_BYTES_MAX 65536u

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
static char *resolve(const char *base, const char *ref) {
    struct weft_buf out;
    size_t n_base = strcspn(base, "#"), n_scheme = scheme_len(base);
    weft_buf_init(&out, URI_BYTES_MAX);
    const char *authority = base + n_scheme, *path = authority;
    if (!strncmp(authority, "//", 2)) path = authority + 2 + strcspn(authority + 2, "/?#");
    if (scheme_len(ref)) {
        weft_buf_add_str(&out, ref);
    } else if (*ref == '#' || !*ref) {
        weft_buf_add(&out, base, n_base);
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
    char *text = out.failed ? NULL : strdup(weft_buf_cstr(&out));
    weft_buf_fini(&out);
    if (text && strncmp(text, "urn:", 4) != 0) drop_dots(text);
    return text;
}

/* ------------------------------------------------------------------------------------ places --- */

static bool add_place(struct wefti_ref_place **list, size_t *n, size_t *cap, const json_t *schema,
                      char *uri) {
    if (*n == *cap) {
        size_t wider = *cap ? 2 * *cap : 16;
        struct wefti_ref_place *more =
            wider > PLACES_MAX ? NULL : realloc(*list, wider * sizeof *more);
        if (!more) {
            free(uri);
            return false;
        }
        *list = more;
        *cap = wider;
    }
    (*list)[(*n)++] = (struct wefti_ref_place){schema, uri};
    return uri != NULL;
}

static bool add_name(struct wefti_refs *refs, const json_t *schema, const char *base,
                     const char *name, bool is_anchor) {
    struct weft_buf text;
    weft_buf_init(&text, URI_BYTES_MAX);
    weft_buf_printf(&text, "%s%s", is_anchor ? "#" : "", name);
    char *uri = text.failed ? NULL : resolve(base, weft_buf_cstr(&text));
    weft_buf_fini(&text);
    size_t len = uri ? strlen(uri) : 0;
    if (!is_anchor && len > 0 && uri[len - 1] == '#') uri[len - 1] = '\0';
    return add_place(&refs->names, &refs->n_names, &refs->cap_names, schema, uri);
}

/* An "$id" that is an anchor alone, as draft 7 had them, names without being a base. */
static weft_err walk(struct wefti_refs *refs, const json_t *at, const char *base, int depth) {
    const char *key;
    json_t *child;
    size_t i;
    weft_err err = WEFT_OK;
    if (depth > DEPTH_MAX) return WEFT_E_TOOBIG;
    if (json_is_object(at)) {
        const char *id = json_string_value(json_object_get(at, "$id"));
        if (!id) id = json_string_value(json_object_get(at, "id"));
        if (json_object_get(at, "$ref") && refs->is_old) id = NULL;
        const char *anchor = json_string_value(json_object_get(at, "$anchor"));
        const char *dynamic = json_string_value(json_object_get(at, "$dynamicAnchor"));
        bool done = !id || add_name(refs, at, base, id, false);
        if (done && id && *id != '#') base = refs->names[refs->n_names - 1].uri;
        done = done && (!anchor || add_name(refs, at, base, anchor, true));
        done = done && (!dynamic || add_name(refs, at, base, dynamic, true));
        done = done && add_place(&refs->bases, &refs->n_bases, &refs->cap_bases, at, strdup(base));
        if (!done) return WEFT_E_TOOBIG;
    }
    json_object_foreach((json_t *)at, key, child) {
        bool is_data = !strcmp(key, "enum") || !strcmp(key, "const");
        if (!err && !is_data && (json_is_object(child) || json_is_array(child)))
            err = walk(refs, child, base, depth + 1);
    }
    json_array_foreach(at, i, child) {
        if (!err && (json_is_object(child) || json_is_array(child)))
            err = walk(refs, child, base, depth + 1);
    }
    return err;
}

static int compare(const void *x, const void *y) {
    const struct wefti_ref_place *a = x, *b = y;
    return a->schema < b->schema ? -1 : a->schema > b->schema;
}

/* Where no two have one name, "$dynamicRef" is "$ref". */
static bool has_twins(const struct wefti_refs *refs) {
    size_t n_names = 0;
    for (size_t i = 0; i < refs->n_bases; i++) {
        const char *name =
            json_string_value(json_object_get(refs->bases[i].schema, "$dynamicAnchor"));
        if (name && ++n_names > DYNAMIC_MAX) return true;
        for (size_t k = 0; k < i && name; k++) {
            const char *other =
                json_string_value(json_object_get(refs->bases[k].schema, "$dynamicAnchor"));
            if (other && !strcmp(name, other)) return true;
        }
    }
    return false;
}

weft_err wefti_refs_init(struct wefti_refs *refs, const json_t *root) {
    const char *dialect = json_string_value(json_object_get(root, "$schema"));
    *refs = (struct wefti_refs){.root = root};
    refs->is_old = dialect && strstr(dialect, "/draft-0");
    weft_err err = walk(refs, root, "", 0);
    if (err) {
        wefti_refs_fini(refs);
        return err;
    }
    if (refs->n_bases > 1) qsort(refs->bases, refs->n_bases, sizeof *refs->bases, compare);
    refs->has_dynamic = has_twins(refs);
    return WEFT_OK;
}

void wefti_refs_fini(struct wefti_refs *refs) {
    for (size_t i = 0; i < refs->n_bases; i++)
        free(refs->bases[i].uri);
    for (size_t i = 0; i < refs->n_names; i++)
        free(refs->names[i].uri);
    free(refs->bases);
    free(refs->names);
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

static const json_t *find_name(const struct wefti_refs *refs, const char *uri) {
    for (size_t i = 0; i < refs->n_names; i++) {
        if (!strcmp(refs->names[i].uri, uri)) return refs->names[i].schema;
    }
    return NULL;
}

const json_t *wefti_refs_find(const struct wefti_refs *refs, const json_t *schema,
                              const char *ref) {
    const struct wefti_ref_place key = {.schema = schema},
                                 *base =
                                     bsearch(&key, refs->bases, refs->n_bases, sizeof key, compare);
    char *uri = resolve(base ? base->uri : "", ref), *fragment = uri ? strchr(uri, '#') : NULL;
    const json_t *found = NULL;
    if (!uri) return NULL;
    if (fragment && fragment[1] && fragment[1] != '/') {
        found = find_name(refs, uri);
    } else {
        if (fragment) *fragment = '\0';
        const json_t *resource = find_name(refs, uri);
        if (!resource && !*uri) resource = refs->root;
        found = resource && fragment ? follow(resource, fragment + 1) : resource;
    }
    free(uri);
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
