/* `weft perplexity`: exp of the mean negative log-likelihood of a text.
 *
 * The text is tokenised whole, without BOS, and cut in windows of up to 512 tokens that know
 * nothing of each other. Where the tokenizer has a BOS it stands before each window (511 tokens
 * then) and every token of the window is predicted; else the first one is context alone. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cmd/common/engine_config.h"
#include "cmd/weft/commands.h"
#include "text/text.h"

#define WINDOW 512u
#define TEXT_BYTES_MAX (1u << 30)

struct score {
    const uint32_t *window;
    uint32_t n_window, n_vocab;
    double nll;
    uint64_t n;
};

static double log_sum_exp(const float *x, uint32_t n) {
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        max = x[i] > max ? (double)x[i] : max;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

static void on_row(void *ctx, uint32_t pos, const float *logits) {
    struct score *score = ctx;
    if (pos + 1 >= score->n_window) return;
    score->nll += log_sum_exp(logits, score->n_vocab) - (double)logits[score->window[pos + 1]];
    score->n++;
}

static weft_err read_file(const char *path, struct weft_buf *out, struct weft_errmsg *why) {
    FILE *file = fopen(path, "re");
    if (!file) return weft_err_errno(why, errno, "cannot open \"%s\"", path);
    char chunk[65536];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;)
        weft_buf_add(out, chunk, n);
    bool bad = ferror(file);
    int error = errno;
    (void)fclose(file);
    if (bad) return weft_err_errno(why, error, "cannot read \"%s\"", path);
    if (out->failed) return weft_err_set(why, WEFT_E_TOOBIG, "\"%s\" is too large", path);
    return WEFT_OK;
}

static weft_err score_text(weft_eng *eng, const weft_tokenizer *tok, const uint32_t *ids, size_t n,
                           struct score *score, struct weft_errmsg *why) {
    const struct weft_eng_info *info = weft_eng_info(eng);
    uint32_t window[WINDOW], bos = 0;
    uint32_t n_front = weft_text_bos(tok, &bos) ? 1 : 0;
    uint32_t len = info->max_model_len < WINDOW ? info->max_model_len : WINDOW;
    for (size_t at = 0; at < n; at += len - n_front) {
        uint32_t n_text = n - at < len - n_front ? (uint32_t)(n - at) : len - n_front;
        window[0] = bos;
        memcpy(window + n_front, ids + at, n_text * sizeof *ids);
        score->window = window;
        score->n_window = n_front + n_text;
        if (score->n_window < 2) {
            score->window = NULL;
            break;
        }
        weft_err err = weft_eng_logits(eng, window, score->n_window, on_row, score, why);
        score->window = NULL;
        if (err) return err;
    }
    return WEFT_OK;
}

int weft_cmd_perplexity(int argc, char **argv) {
    struct weft_errmsg why = {""};
    struct weft_config config;
    struct weft_eng_options options;
    weft_eng *eng = NULL;
    weft_tokenizer *tok = NULL;
    uint32_t *ids = NULL;
    size_t n_ids = 0;
    struct weft_buf text;
    struct score score = {0};
    bool done = false;
    weft_buf_init(&text, TEXT_BYTES_MAX);
    weft_err err = weft_config_parse(WEFT_PROG_PERPLEXITY, argc, argv, &config, &done, &why);
    if (err || done) goto cleanup;
    weft_log_init("weft", WEFT_LOG_WARN, false);
    if (!config.prompt) {
        err = weft_err_set(&why, WEFT_E_INVAL,
                           "no text FILE given; usage: weft perplexity MODEL FILE");
        goto cleanup;
    }
    config.max_num_seqs = 1;
    err = weft_engine_config(&config, &options, &why);
    if (!err) err = read_file(config.prompt, &text, &why);
    if (!err) err = weft_text_open(config.model, &tok, &why);
    if (!err)
        err = weft_text_encode(tok, text.data, text.len, WEFT_TEXT_PARSE_SPECIAL, TEXT_BYTES_MAX,
                               &ids, &n_ids, &why);
    if (!err) err = weft_eng_open(config.model, &options, &eng, &why);
    if (err) goto cleanup;
    score.n_vocab = weft_eng_info(eng)->n_vocab;
    err = score_text(eng, tok, ids, n_ids, &score, &why);
    if (err) goto cleanup;
    if (score.n == 0) {
        err =
            weft_err_set(&why, WEFT_E_INVAL, "\"%s\" has too few tokens to predict", config.prompt);
        goto cleanup;
    }
    printf("perplexity %.6f nll %.9f tokens %llu\n", exp(score.nll / (double)score.n),
           score.nll / (double)score.n, (unsigned long long)score.n);
cleanup:
    weft_eng_free(eng);
    weft_text_free(tok);
    weft_buf_fini(&text);
    free(ids);
    return err ? weft_cmd_fail(err, &why) : 0;
}
