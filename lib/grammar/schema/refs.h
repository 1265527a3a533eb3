/* grammar/refs: where the references of a JSON Schema lead, within its document. Nothing is ever fetched. */
#ifndef WEFTI_GRAMMAR_REFS_H
#define WEFTI_GRAMMAR_REFS_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

/* A schema with the URI that its references are relative to, or a URI that names one. */
struct wefti_ref_place {
    const json_t *schema;
    char *uri; /* owned */
};

struct wefti_refs {
    const json_t *root;
    bool is_old; /* draft 7 or earlier: "$ref" is all there is */
    struct wefti_ref_place *bases, *names;
    size_t n_bases, cap_bases, n_names, cap_names;
    bool has_dynamic; /* a "$dynamicAnchor" of the same name as another one */
};

/* NOMEM, TOOBIG. */
WEFT_MUST_CHECK weft_err wefti_refs_init(struct wefti_refs *refs, const json_t *root);
void wefti_refs_fini(struct wefti_refs *refs);
/* What `ref` of `schema` names; NULL: nothing of this document. */
const json_t *wefti_refs_find(const struct wefti_refs *refs, const json_t *schema, const char *ref);
/* Where a schema stands, as a JSON pointer with "#" before it. */
void wefti_refs_path(const struct wefti_refs *refs, const json_t *schema, struct weft_buf *out);

#endif
