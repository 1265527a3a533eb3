/* grammar/refs: where the references of a JSON Schema lead, within its document. Nothing is ever fetched.
 *
 * Names are defined where schemas stand, by keywords that their draft has; what two schemas have as their name
 * leads nowhere, as does a reference of which nobody can say what it is relative to. */
#ifndef WEFTI_GRAMMAR_REFS_H
#define WEFTI_GRAMMAR_REFS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* As "$schema" names it. ANY: it does not, or names another dialect. */
enum wefti_draft {
    WEFTI_DRAFT_ANY,
    WEFTI_DRAFT_3,
    WEFTI_DRAFT_4,
    WEFTI_DRAFT_6,
    WEFTI_DRAFT_7,
    WEFTI_DRAFT_2019,
    WEFTI_DRAFT_2020,
};
/* "$ref" is all there is, where it stands. */
static inline bool wefti_draft_is_old(enum wefti_draft draft) {
    return draft != WEFTI_DRAFT_ANY && draft < WEFTI_DRAFT_2019;
}

/* The document, or a part of it with an "$id" of its own. */
struct wefti_ref_resource {
    const json_t *root;
    char *uri; /* owned; without a fragment */
    enum wefti_draft draft;
};

struct wefti_ref_name {
    uint32_t within;  /* an anchor's resource; for a URI there is none */
    const char *text; /* of the document, or of the resource */
    const json_t *schema;
    uint32_t resource; /* that a URI names */
    bool is_twice;
};

struct wefti_ref_place {
    const json_t *schema;
    uint32_t resource;
};

#define WEFTI_REF_DYNAMIC_MAX 100u /* more are taken for twins */

struct wefti_refs {
    const json_t *root;
    struct wefti_ref_resource *resources; /* the first one is the document's */
    struct wefti_ref_name *names;
    uint32_t *slots;                /* open addressing over them: index + 1 */
    struct wefti_ref_place *places; /* by address: objects that are of another resource */
    uint32_t n_resources, n_names, n_slots, n_places, cap_places;
    size_t n_uri_bytes; /* made so far */
    bool is_over;       /* too many of them, so that a reference led nowhere */
    const char *dynamic[WEFTI_REF_DYNAMIC_MAX];
    uint32_t n_dynamic;
    bool has_dynamic; /* a "$dynamicAnchor" of the same name as another one */
};

/* NOMEM, TOOBIG. The document is borrowed until fini. */
WEFT_MUST_CHECK weft_err wefti_refs_init(struct wefti_refs *refs, const json_t *root,
                                         struct weft_errmsg *why);
void wefti_refs_fini(struct wefti_refs *refs);
/* What `ref`, a string of `schema`, names; NULL: nothing of this document, or a bound was met. */
const json_t *wefti_refs_find(struct wefti_refs *refs, const json_t *schema, const json_t *ref);
enum wefti_draft wefti_refs_draft(const struct wefti_refs *refs, const json_t *schema);
/* Where a schema stands, as a JSON pointer with "#" before it. */
void wefti_refs_path(const struct wefti_refs *refs, const json_t *schema, struct weft_buf *out);

#endif
