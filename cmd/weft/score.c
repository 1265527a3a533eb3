#include "score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/minmax.h"
#include "tokenizer/tokenizer.h"

#define WINDOW 512u
#define TEXT_BYTES_MAX (1u << 30)

weft_err weft_score_read(const char *model, const char *path, struct weft_score_text *text_out,
                         struct weft_errmsg *why) {
    weft_tokenizer *tok = NULL;
    char *bytes;
    size_t len;
    *text_out = (struct weft_score_text){0};
    weft_err err = weft_file_read(path, WEFT_FILE_ANY, TEXT_BYTES_MAX, &bytes, &len, why);
    if (!err) err = weft_tok_open(model, &tok, why);
    if (!err)
        err = weft_tok_encode(
            tok, &(struct weft_tok_input){{bytes, len}, WEFT_TOK_PARSE_SPECIAL, TEXT_BYTES_MAX},
            &text_out->ids, &text_out->n, why);
    if (!err) text_out->has_bos = weft_tok_bos(tok, &text_out->bos);
    weft_tok_free(tok);
    free(bytes);
    return err;
}

void weft_score_text_fini(struct weft_score_text *text) {
    free(text->ids);
    *text = (struct weft_score_text){0};
}

double weft_score_perplexity(const struct weft_score *score) {
    return exp(score->nll / (double)score->n);
}

struct scoring {
    const uint32_t *window;
    uint32_t n_window, n_vocab;
    float *others; /* [WINDOW][n_vocab], logits of the other engine; NULL: there is none */
    struct weft_score *score;
};

static double log_sum_exp(const float *x, uint32_t n) {
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        max = x[i] > max ? (double)x[i] : max;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

static uint32_t likeliest(const float *x, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Of `x` from `other`: the sum over tokens of p ln(p / q), where p is the other's. */
static double divergence(const float *other, const float *x, double log_sum, uint32_t n) {
    double other_sum = log_sum_exp(other, n), sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        double log_p = (double)other[i] - other_sum, log_q = (double)x[i] - log_sum;
        if (log_p > -INFINITY) sum += exp(log_p) * (log_p - log_q);
    }
    return sum;
}

static void keep_row(void *ctx, uint32_t pos, const float *logits) {
    const struct scoring *s = ctx;
    memcpy(s->others + (size_t)pos * s->n_vocab, logits, s->n_vocab * sizeof *logits);
}

static void on_row(void *ctx, uint32_t pos, const float *logits) {
    struct scoring *s = ctx;
    if (pos + 1 >= s->n_window) return;
    double log_sum = log_sum_exp(logits, s->n_vocab);
    s->score->nll += log_sum - (double)logits[s->window[pos + 1]];
    s->score->n++;
    if (!s->others) return;
    const float *other = s->others + (size_t)pos * s->n_vocab;
    s->score->divergence += divergence(other, logits, log_sum, s->n_vocab);
    s->score->n_same += likeliest(other, s->n_vocab) == likeliest(logits, s->n_vocab);
}

weft_err weft_score_run(weft_eng *eng, weft_eng *beside, const struct weft_score_text *text,
                        size_t n_max, struct weft_score *score_out, struct weft_errmsg *why) {
    const struct weft_eng_info *info = weft_eng_info(eng);
    uint32_t window[WINDOW], n_front = text->has_bos ? 1 : 0;
    uint32_t len = weft_min_u32(info->max_model_len, WINDOW);
    if (beside) len = weft_min_u32(len, weft_eng_info(beside)->max_model_len);
    struct scoring scoring = {window, 0, info->n_vocab, NULL, score_out};
    size_t n = text->n < n_max ? text->n : n_max;
    weft_err err = WEFT_OK;
    *score_out = (struct weft_score){0};
    if (beside) {
        scoring.others = malloc((size_t)WINDOW * info->n_vocab * sizeof *scoring.others);
        if (!scoring.others)
            return weft_err_set(why, WEFT_E_NOMEM, "no memory for the logits of %d tokens", WINDOW);
    }
    for (size_t at = 0; at < n && len > n_front && !err; at += len - n_front) {
        uint32_t n_text = n - at < len - n_front ? (uint32_t)(n - at) : len - n_front;
        window[0] = text->bos;
        memcpy(window + n_front, text->ids + at, n_text * sizeof *window);
        scoring.n_window = n_front + n_text;
        if (scoring.n_window < 2) break;
        if (beside)
            err = weft_eng_logits(beside, window, scoring.n_window, keep_row, &scoring, why);
        if (!err) err = weft_eng_logits(eng, window, scoring.n_window, on_row, &scoring, why);
    }
    free(scoring.others);
    if (!err && score_out->n == 0)
        return weft_err_set(why, WEFT_E_INVAL, "the text has too few tokens to predict");
    return err;
}
