/* score — how well an engine predicts a text.
 *
 * The text is tokenised whole, without BOS, and cut in windows of up to 512 tokens that know
 * nothing of each other. Where the tokenizer has a BOS it stands before each window (511 tokens
 * then) and every token of the window is predicted; else the first one is context alone. */
#ifndef WEFT_CMD_WEFT_SCORE_H
#define WEFT_CMD_WEFT_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

struct weft_score_text {
    uint32_t *ids; /* owned */
    size_t n;
    bool has_bos;
    uint32_t bos;
};

/* Reads a file and tokenises it as the model at `model` does. */
WEFT_MUST_CHECK weft_err weft_score_read(const char *model, const char *path,
                                         struct weft_score_text *text_out, struct weft_errmsg *why);
void weft_score_text_fini(struct weft_score_text *text); /* accepts zeroed ones */

struct weft_score {
    double nll; /* of all predicted tokens */
    uint64_t n; /* of them */
    /* Beside another engine: the sum of Kullback-Leibler divergences from its distributions, and how
     * often both have the same likeliest token. */
    double divergence;
    uint64_t n_same;
};
double weft_score_perplexity(const struct weft_score *score);

/* Runs the first `n_max` tokens of the text. `beside`: NULL, or an engine with the same vocabulary to
 * compare with. INVAL: too few tokens to predict one. NOMEM. */
WEFT_MUST_CHECK weft_err weft_score_run(weft_eng *eng, weft_eng *beside,
                                        const struct weft_score_text *text, size_t n_max,
                                        struct weft_score *score_out, struct weft_errmsg *why);

#endif
