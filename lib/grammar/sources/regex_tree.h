/* grammar/regex_tree: the syntax tree of a regular expression. */
#ifndef WEFTI_GRAMMAR_REGEX_TREE_H
#define WEFTI_GRAMMAR_REGEX_TREE_H

#include "expr/chars.h"
#include "sources/regex.h"

enum wefti_regex_node_kind {
    WEFTI_REGEX_CHARS,
    WEFTI_REGEX_LITERAL, /* ASCII of the text, as it is */
    WEFTI_REGEX_CAT,     /* of all children; none: the empty text */
    WEFTI_REGEX_ALT,
    WEFTI_REGEX_REPEAT,
    WEFTI_REGEX_START,
    WEFTI_REGEX_END,
    WEFTI_REGEX_AHEAD,
    WEFTI_REGEX_NOT_AHEAD,
};

#define WEFTI_REGEX_NO_NODE UINT32_MAX
#define WEFTI_REGEX_IS_WORD 4u /* beside the flags of wefti_regex_word */

struct wefti_regex_node {
    enum wefti_regex_node_kind kind;
    bool asserts;         /* itself or anything below: an anchor or a look-ahead */
    uint32_t child, next; /* the first one; its brother */
    uint32_t min,
        max; /* REPEAT; CHARS: index of the set; LITERAL: where it begins, how many bytes */
};

struct wefti_regex_tree {
    struct weft_str text;           /* borrowed */
    struct wefti_regex_node *nodes; /* owned; the root is the last one */
    uint32_t n, cap;
    struct wefti_chars *sets; /* owned */
    uint32_t n_sets, cap_sets;
};

/* `flags`: those of wefti_regex_word; 0: none. */
WEFT_MUST_CHECK weft_err wefti_regex_tree_read(struct wefti_regex_tree *tree, struct weft_str text,
                                               enum wefti_regex_kind kind, unsigned flags,
                                               struct weft_errmsg *why);
void wefti_regex_tree_fini(struct wefti_regex_tree *tree);

#endif
