/* grammar/lark: the notation of Python's Lark, as engines for structured output take it, start rule `start`.
 *
 * Syntax   Rules (lower case) and terminals (upper case) with "|", groups, [optional], "?", "*", "+", "~ 2",
 *          "~ 2..5", {2,5}; "literals" with the flag i, /expressions/ with i, s and u, "a".."z"; %ignore;
 *          %import of common's terminals; %json with a schema, in rules; comments behind "//" and "#".
 *          Names of alternatives (-> name), priorities, and "?", "!" before a rule's name shape trees, or
 *          choose between derivations: the texts are the same.
 * Meaning  Every text of which there is a derivation, as with Lark's lexer "dynamic_complete": a terminal is not
 *          made as long as it can be. What is ignored may come before each terminal and behind the last.
 * Refused  Templates, %declare, %override, %extend, %regex, %lark, other imports, options in [], tokens in <>,
 *          other grammars (@name), "&" and complement ("~" in front), rules with parameters; in expressions
 *          anchors, look-around, lazy quantifiers and other flags.
 */
#ifndef WEFTI_GRAMMAR_LARK_H
#define WEFTI_GRAMMAR_LARK_H

#include "base/str.h"
#include "rules/tree.h"

/* Rules of `tree`, which may have others. INVAL: says line and column; UNSUPPORTED, by name; TOOBIG. */
WEFT_MUST_CHECK weft_err wefti_lark_read(struct wefti_tree *tree, struct weft_str text,
                                         uint32_t *root_out, struct weft_errmsg *why);

/* GBNF where the first rule has "::=", else Lark. */
WEFT_MUST_CHECK weft_err wefti_rules_read(struct wefti_tree *tree, struct weft_str text,
                                          uint32_t *root_out, struct weft_errmsg *why);

#endif
