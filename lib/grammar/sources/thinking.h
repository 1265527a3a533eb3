/* grammar/thinking: what a model thinks before it answers: any text up to the first end mark. */
#ifndef WEFTI_GRAMMAR_THINKING_H
#define WEFTI_GRAMMAR_THINKING_H

#include "base/grammar.h"
#include "grammar/grammar.h"
#include "rules/tree.h"

/* A rule for thinking, a few blanks, and then a text of the rule `root`; root itself, where there is none. */
uint32_t wefti_thinking_before(struct wefti_tree *tree, uint32_t root,
                               const struct weft_grammar *wish);

/* Where a text stands. */
struct wefti_thinking {
    enum weft_gram_phase phase;
    uint32_t n_matched; /* bytes of the mark that would end the phase */
    struct weft_mark_texts marks;
};
void wefti_thinking_init(struct wefti_thinking *at, const struct weft_grammar *wish);
void wefti_thinking_take(struct wefti_thinking *at, unsigned char byte);

#endif
