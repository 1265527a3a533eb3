/* `weft perplexity`: exp of the mean negative log-likelihood of a text; see score.h for the tokens
 * that are predicted. */
#include <stdio.h>

#include "commands.h"
#include "common/engine_config.h"
#include "common/loading.h"
#include "quantise.h"
#include "score.h"

int weft_cmd_perplexity(const struct weft_config *given) {
    struct weft_errmsg why = {""};
    struct weft_config config = *given;
    struct weft_eng_options options;
    struct weft_loading loading = {0};
    weft_eng *eng = NULL;
    struct weft_score_text text = {0};
    struct weft_score score;
    struct weft_quant quant = {0};
    config.max_num_seqs = 1;
    weft_err err = weft_engine_config(&config, &options, &why);
    if (!err) err = weft_cmd_check_model(config.model, &why);
    if (!err) err = weft_quant_choose(&config, &options, &quant, &why);
    if (!err) err = weft_score_read(config.model, config.prompt, &text, &why);
    if (!err) weft_loading_begin(&loading, &config, &options);
    if (!err) err = weft_eng_open(config.model, &options, &eng, &why);
    weft_loading_end(&loading);
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
