#include "sources/thinking.h"

#include <string.h>

/* Behind what is thought. */
#define BLANKS_MAX 8

static bool is_blank(unsigned char byte) {
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static wefti_expr blanks(wefti_expr_pool *pool) {
    struct wefti_byte_set set = {{0}};
    for (unsigned byte = 0; byte < 64; byte++)
        set.bits[0] |= (uint64_t)is_blank((unsigned char)byte) << byte;
    return wefti_expr_repeat(pool, wefti_expr_set(pool, &set), 0, BLANKS_MAX);
}

/* Texts that end with their first end mark. Special tokens are no part of them. */
static wefti_expr thoughts(wefti_expr_pool *pool, struct weft_str end) {
    wefti_expr any = wefti_expr_repeat(pool, wefti_expr_range(pool, 0, WEFT_GRAM_SPECIAL - 1), 0,
                                       WEFTI_EXPR_MANY);
    wefti_expr ended = wefti_expr_cat(pool, any, wefti_expr_literal(pool, end.data, end.len));
    wefti_expr more = wefti_expr_cat(pool, wefti_expr_range(pool, 0, 255), WEFTI_EXPR_ALL);
    return wefti_expr_and2(pool, ended, wefti_expr_not(pool, wefti_expr_cat(pool, ended, more)));
}

uint32_t wefti_thinking_before(struct wefti_tree *tree, uint32_t root,
                               const struct weft_grammar *wish) {
    wefti_expr_pool *pool = tree->pool;
    struct weft_mark_texts marks = weft_grammar_mark_texts(wish->marks);
    if (wish->thinking == WEFT_THINKING_NONE) return root;
    wefti_expr all = wefti_expr_cat(pool, thoughts(pool, marks.end), blanks(pool));
    if (wish->thinking == WEFT_THINKING_MAYBE) {
        wefti_expr begin = wefti_expr_literal(pool, marks.begin.data, marks.begin.len);
        all = wefti_expr_alt2(pool, wefti_expr_cat(pool, begin, all), WEFTI_EXPR_EMPTY);
    }
    uint32_t rule = wefti_tree_new_rule(tree);
    uint32_t cat = wefti_tree_parent(tree, WEFTI_TREE_CAT);
    wefti_tree_add(tree, cat, wefti_tree_expr(tree, all));
    wefti_tree_add(tree, cat, wefti_tree_rule(tree, root));
    if (!tree->failed) tree->bodies[rule] = cat;
    return rule;
}

void wefti_thinking_init(struct wefti_thinking *at, const struct weft_grammar *wish) {
    static const enum weft_gram_phase first[WEFT_THINKING_COUNT] = {
        [WEFT_THINKING_NONE] = WEFT_GRAM_ANSWERS,
        [WEFT_THINKING_OPEN] = WEFT_GRAM_THINKS,
        [WEFT_THINKING_MAYBE] = WEFT_GRAM_BEGINS,
    };
    *at = (struct wefti_thinking){.phase = first[wish->thinking],
                                  .marks = weft_grammar_mark_texts(wish->marks)};
}

/* Within either mark its first byte stands once: whatever does not go on with it may begin it anew. */
void wefti_thinking_take(struct wefti_thinking *at, unsigned char byte) {
    struct weft_str mark = at->phase == WEFT_GRAM_BEGINS ? at->marks.begin : at->marks.end;
    if (at->phase == WEFT_GRAM_ANSWERS) return;
    if ((unsigned char)mark.data[at->n_matched] == byte) {
        if (++at->n_matched < mark.len) return;
        at->phase = at->phase == WEFT_GRAM_BEGINS ? WEFT_GRAM_THINKS : WEFT_GRAM_ANSWERS;
        at->n_matched = 0;
    } else if (at->phase == WEFT_GRAM_BEGINS) {
        at->phase = WEFT_GRAM_ANSWERS;
        at->n_matched = 0;
    } else {
        at->n_matched = (unsigned char)mark.data[0] == byte;
    }
}
