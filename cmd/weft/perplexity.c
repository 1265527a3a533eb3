/* `weft perplexity`: exp of the mean negative log-likelihood of a text; see score.h for the tokens
 * that are predicted. */
#include <stdio.h>

#include "base/log.h"
#include "commands.h"
#include "common/engine_config.h"
#include "quantise.h"
#include "score.h"

int weft_cmd_perplexity(int argc, char **argv) {
    struct weft_errmsg why = {""};
    struct weft_config config;
    struct weft_eng_options options;
    weft_eng *eng = NULL;
    struct weft_score_text text = {0};
    struct weft_score score;
    struct weft_quant quant = {0};
    bool done = false;
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
    if (!err) err = weft_quant_choose(&config, &options, &quant, &why);
    if (!err) err = weft_score_read(config.model, config.prompt, &text, &why);
    if (!err) err = weft_eng_open(config.model, &options, &eng, &why);
    if (!err) err = weft_score_run(eng, &text, text.n, &score, &why);
    if (err) goto cleanup;
    printf("perplexity %.6f nll %.9f tokens %llu\n", weft_score_perplexity(&score),
           score.nll / (double)score.n, (unsigned long long)score.n);
cleanup:
    weft_eng_free(eng);
    weft_quant_fini(&quant);
    weft_score_text_fini(&text);
    return err ? weft_cmd_fail(err, &why) : 0;
}
