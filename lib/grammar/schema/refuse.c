/* Refusals: which keyword, and where it stands. A sentence that is born where no place is known gets it later. */
#include "schema/schema.h"

#define PATH_BYTES_MAX 200u

weft_err wefti_schema_refuse(struct wefti_schema *s, weft_err err, const json_t *schema,
                             const char *keyword, const char *what) {
    if (s->sets.err) return s->sets.err;
    weft_buf_clear(&s->path);
    wefti_refs_path(&s->refs, schema, &s->path);
    if (s->path.len > PATH_BYTES_MAX) s->path.len = PATH_BYTES_MAX;
    const char *quote = keyword ? "\"" : "", *blank = keyword ? " " : "";
    err = wefti_sets_fail(&s->sets, err, "schema, %s%s%s%sat %s: %s", quote, keyword ? keyword : "",
                          quote, blank, weft_buf_cstr(&s->path), what);
    s->sets.is_placed = true;
    return err;
}

void wefti_schema_add_place(struct wefti_schema *s) {
    struct weft_errmsg *why = s->sets.why, bare;
    if (!s->sets.err || s->sets.is_placed || !s->sets.failed_at || !why) return;
    bare = *why;
    weft_err err = s->sets.err;
    s->sets.err = WEFT_OK;
    (void)wefti_schema_refuse(s, err, s->sets.failed_at, NULL, bare.text);
}

const json_t *wefti_schema_of_set(const struct wefti_sets *sets, const struct wefti_set *set) {
    const json_t *found = NULL;
    for (uint32_t i = 0; i < sets->n_terms; i++) {
        const struct wefti_term_node *node = &sets->terms[i];
        if (node->set != set) continue;
        for (uint32_t k = 0; k < node->n_parts && !found; k++) {
            const struct wefti_term_node *part = &sets->terms[node->parts[k]];
            if (part->kind == WEFTI_TERM_SCHEMA) found = part->what;
        }
        if (node->kind == WEFTI_TERM_SCHEMA) found = node->what;
        if (node->kind == WEFTI_TERM_SCHEMA && !json_object_get(found, "$ref")) break;
    }
    return found;
}
