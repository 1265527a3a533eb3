/* grammar/schema: JSON Schema (draft 4 to 2020-12) as rules over JSON texts.
 *
 * Never weaker than asked: a keyword that can't be honoured is refused by name, with its place. Members
 * come in the order in which the schema has them. Blanks and digits are as the tree has them (base/grammar.h).
 */
#ifndef WEFTI_GRAMMAR_SCHEMA_H
#define WEFTI_GRAMMAR_SCHEMA_H

#include "base/str.h"
#include "rules/tree.h"
#include "schema/refs.h"
#include "schema/set.h"

struct wefti_schema {
    struct wefti_sets sets;
    struct wefti_refs refs;
    wefti_expr words, strings, numbers; /* null, true and false; all strings; all numbers */
    struct weft_buf path;               /* texts that are used at once: for messages, of formats */
};

/* A schema as rules of `tree`, which may have others. INVAL: no JSON, no schema, or nothing fits; UNSUPPORTED:
 * names keyword and place; TOOBIG. */
WEFT_MUST_CHECK weft_err wefti_schema_read(struct wefti_tree *tree, struct weft_str text,
                                           uint32_t *root_out, struct weft_errmsg *why);
/* The same of JSON that is read already; it is borrowed. */
WEFT_MUST_CHECK weft_err wefti_schema_rules(struct wefti_tree *tree, const json_t *root,
                                            uint32_t *root_out, struct weft_errmsg *why);
/* The JSON at the beginning of `text`, and how many bytes it has; with n_out NULL it is all of the text. The
 * caller drops it; NULL after an error: INVAL, TOOBIG. */
WEFT_MUST_CHECK weft_err wefti_schema_load(struct weft_str text, size_t *n_out, json_t **root_out,
                                           struct weft_errmsg *why);

/* For the files of this room. What a schema allows, its keywords in the order of the document. */
const struct wefti_set *wefti_schema_value(struct wefti_sets *sets, const json_t *schema,
                                           void *context);
/* Just this value. */
const struct wefti_set *wefti_schema_const(struct wefti_schema *s, const json_t *value);
const struct wefti_set *wefti_schema_object(struct wefti_schema *s, const json_t *schema);
const struct wefti_set *wefti_schema_array(struct wefti_schema *s, const json_t *schema);
/* All values that items of the array may be, no two of them the same: at most WEFTI_UNIQUE_VALUES_MAX scalars. False:
 * there are others, or it is not seen that there are none. */
#define WEFTI_UNIQUE_VALUES_MAX 8u
bool wefti_unique_values(struct wefti_schema *s, const struct wefti_array *a,
                         const struct wefti_set **values, uint32_t *n_out);
/* Whether each keyword that we honour has a value of its type; else a failure that says where and what is wanted. */
bool wefti_schema_check(struct wefti_schema *s, const json_t *schema);
/* Refuses `keyword` of `schema` (NULL: the schema itself), saying where. */
weft_err wefti_schema_refuse(struct wefti_schema *s, weft_err err, const json_t *schema,
                             const char *keyword, const char *what);
/* Adds the place to a failure whose sentence has none, as far as it is known. */
void wefti_schema_add_place(struct wefti_schema *s);
/* The value of a keyword; NULL: it is not there, or the schema's draft does not have it. */
json_t *wefti_schema_get(const struct wefti_schema *s, const json_t *schema, const char *keyword);
/* A count such as minItems, or `otherwise` where it is not there. */
uint32_t wefti_schema_count(const struct wefti_schema *s, const json_t *schema, const char *keyword,
                            uint32_t otherwise);
/* INVAL where nothing satisfies the term, with the place of the innermost schema that is to blame. Its sets are
 * worked out. */
weft_err wefti_schema_need_values(struct wefti_schema *s, wefti_term root);
/* A schema that has just these values, or a part of one; NULL: there is none. */
const json_t *wefti_schema_of_set(const struct wefti_sets *sets, const struct wefti_set *set);
/* All that `sets` says of a term, as rules. */
weft_err wefti_schema_emit(struct wefti_schema *s, struct wefti_tree *tree, wefti_term root,
                           uint32_t *rule_out);

#endif
