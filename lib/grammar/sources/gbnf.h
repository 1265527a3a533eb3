/* grammar/gbnf: llama.cpp's notation for grammars (its grammars/README.md), start rule `root`.
 *
 * Beyond it: left recursion is fine, and a line may begin with "|". References to tokens (<[id]>) are
 * refused.
 */
#ifndef WEFTI_GRAMMAR_GBNF_H
#define WEFTI_GRAMMAR_GBNF_H

#include "base/str.h"
#include "rules/tree.h"

/* `tree` is initialised and empty. INVAL: says line and column. TOOBIG: too long, or too deep. */
WEFT_MUST_CHECK weft_err wefti_gbnf_read(struct wefti_tree *tree, struct weft_str text,
                                         uint32_t *root_out, struct weft_errmsg *why);

#endif
