/* SentencePiece's scores, and how its pieces are written. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "build.h"

static int compare_descending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

/* The best score is rank 0; equal scores have equal ranks, of which the leftmost pair merges. */
weft_err wefti_tok_rank_scores(weft_tokenizer *tok, struct weft_errmsg *why) {
    size_t n = tok->vocab.n_tokens, n_distinct = 0;
    const double *scores = tok->scores;
    WEFT_ASSERT(scores && n > 0);
    for (size_t i = 0; i < n; i++)
        if (scores[i] != scores[i])
            return weft_err_set(why, WEFT_E_PROTO, "the score of token %zu is not a number", i);
    double *sorted = malloc(n * sizeof *sorted);
    tok->score_ranks = calloc(n, sizeof *tok->score_ranks);
    if (!sorted || !tok->score_ranks) {
        free(sorted);
        return WEFT_E_NOMEM;
    }
    memcpy(sorted, scores, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_descending);
    for (size_t i = 0; i < n; i++)
        if (n_distinct == 0 || sorted[i] != sorted[n_distinct - 1])
            sorted[n_distinct++] = sorted[i];
    for (size_t i = 0; i < n; i++) {
        const double *at =
            bsearch(&scores[i], sorted, n_distinct, sizeof *sorted, compare_descending);
        WEFT_ASSERT(at);
        tok->score_ranks[i] = (uint32_t)(at - sorted);
    }
    free(sorted);
    free(tok->scores);
    tok->scores = NULL;
    return WEFT_OK;
}
