/* grammar/tags: structural tags: free text with parts in it that must fit a schema, as vLLM and SGLang take them.
 *
 * Forms    {"structures": [{"begin", "schema", "end"}, ...], "triggers": [...]}, and XGrammar's {"format": {...}}:
 *          const_string, json_schema, regex, grammar, token, any_text, sequence, or, optional, plus, star, repeat,
 *          tag, triggered_tags, tags_with_separator, dispatch.
 * Meaning  Free text ends where a trigger ends for the first time; one of the tags that begin with this trigger must
 *          follow. Within a tag free text has none of its ends. No trigger lies within another one.
 * Refused  By name: tokens by number, formats of many tokens, budgets, other styles than "json",
 *          properties in any order, fields that are not known.
 */
#ifndef WEFTI_GRAMMAR_TAGS_H
#define WEFTI_GRAMMAR_TAGS_H

#include "base/str.h"
#include "rules/tree.h"

/* Rules of `tree`. Messages say which tag by its place and how it begins, then what is wrong with its schema. */
WEFT_MUST_CHECK weft_err wefti_tags_read(struct wefti_tree *tree, struct weft_str text,
                                         uint32_t *root_out, struct weft_errmsg *why);

#endif
