/* `weft run`: one completion on standard output, as it comes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/parse.h"
#include "commands.h"
#include "common/engine_config.h"
#include "generate.h"
#include "json_text.h"
#include "tokenizer/tokenizer.h"

struct run {
    weft_tokenizer *tok;
    struct weft_detok detok;
    struct weft_buf text;
    uint32_t *ids;
    uint32_t n_ids, max_ids;
    uint32_t stops[WEFT_STOP_TOKENS_MAX];
    enum weft_end finish;
    bool json;
};

static weft_err parse_ids(const char *text, uint32_t n_vocab, uint32_t **ids_out, size_t *n_out,
                          struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    char *copy = strdup(text), *rest = NULL;
    uint32_t *ids = calloc(strlen(text) / 2 + 1, sizeof *ids);
    *ids_out = NULL;
    *n_out = 0;
    if (!copy || !ids) {
        err = WEFT_E_NOMEM;
        goto cleanup;
    }
    for (char *word = strtok_r(copy, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
        uint64_t id = 0;
        if (weft_parse_u64(word, n_vocab - 1, &id)) {
            err = weft_err_set(why, WEFT_E_INVAL, "--prompt-ids: \"%s\" is not a token id below %u",
                               word, n_vocab);
            goto cleanup;
        }
        ids[(*n_out)++] = (uint32_t)id;
    }
    *ids_out = ids;
    ids = NULL;
cleanup:
    free(copy);
    free(ids);
    return err;
}

static bool on_token(void *ctx, uint32_t seq_idx, const struct weft_step_out *out) {
    struct run *run = ctx;
    (void)seq_idx;
    if (run->n_ids < run->max_ids) run->ids[run->n_ids++] = out->token;
    run->finish = out->finish;
    if (out->finish != WEFT_END_STOP) weft_detok_push(&run->detok, out->token, &run->text);
    if (run->json) return !run->text.failed;
    /* A token may be no text yet, and a buffer that never held any is at NULL. */
    if (run->text.len > 0) (void)fwrite(run->text.data, 1, run->text.len, stdout);
    weft_buf_clear(&run->text);
    return fflush(stdout) == 0; /* the reader went away: so do we */
}

static void print_json(const struct run *run, const uint32_t *prompt, size_t n_prompt) {
    printf("{\"prompt_ids\": ");
    weft_print_json_ids(stdout, prompt, n_prompt);
    printf(", \"ids\": ");
    weft_print_json_ids(stdout, run->ids, run->n_ids);
    printf(", \"text\": ");
    weft_print_json_string(stdout, run->text.data, run->text.len);
    printf(", \"finish_reason\": \"%s\"}\n", run->finish == WEFT_END_STOP ? "stop" : "length");
}

static weft_err take_prompt(const struct weft_config *config, const struct run *run,
                            uint32_t n_vocab, uint32_t **ids_out, size_t *n_out,
                            struct weft_errmsg *why) {
    if (config->prompt_ids) return parse_ids(config->prompt_ids, n_vocab, ids_out, n_out, why);
    if (!config->prompt)
        return weft_err_set(why, WEFT_E_INVAL, "give a prompt: -p TEXT or --prompt-ids 1,2,3");
    return weft_tok_encode(run->tok,
                           &(struct weft_tok_input){{config->prompt, strlen(config->prompt)},
                                                    WEFT_TOK_ADD_SPECIAL | WEFT_TOK_PARSE_SPECIAL,
                                                    WEFT_CONTEXT_MAX},
                           ids_out, n_out, why);
}

static void set_sampling(const struct weft_config *config, struct run *run, uint32_t n_vocab,
                         struct weft_sampling *sampling) {
    weft_sampling_init(sampling);
    sampling->seed = config->seed;
#define TAKE(type, name, ...) sampling->name = (WEFT_SAMPLING_##type)config->name;
#define PASS_OVER(...)
    WEFT_SAMPLING_LIST(TAKE, PASS_OVER)
#undef PASS_OVER
#undef TAKE
    sampling->max_tokens = config->n_predict;
    if (config->ignore_eos) return;
    /* A tokenizer may know ids that the model lacks: they cannot come. */
    size_t n_eos = 0;
    const uint32_t *eos = weft_tok_eos(run->tok, &n_eos);
    for (size_t i = 0; i < n_eos && sampling->n_stop_tokens < WEFT_STOP_TOKENS_MAX; i++) {
        if (eos[i] < n_vocab) run->stops[sampling->n_stop_tokens++] = eos[i];
    }
    sampling->stop_tokens = run->stops;
}

int weft_cmd_run(const struct weft_config *given) {
    struct weft_errmsg why = {""};
    struct weft_config config = *given;
    struct weft_eng_options options;
    struct weft_sampling sampling;
    struct weft_generate_times times;
    struct run run = {0};
    weft_eng *eng = NULL;
    uint32_t *prompt = NULL;
    size_t n_prompt = 0;
    bool is_misuse = false;
    weft_buf_init(&run.text, 64u << 20);
    run.json = config.json;
    config.max_num_seqs = 1;
    weft_err err = weft_engine_config(&config, &options, &why);
    if (!err) err = weft_tok_open(config.model, &run.tok, &why);
    if (!err) err = weft_eng_open(config.model, &options, &eng, &why);
    if (err) goto cleanup;
    err = take_prompt(&config, &run, weft_eng_info(eng)->n_vocab, &prompt, &n_prompt, &why);
    if (!err && n_prompt == 0) err = weft_err_set(&why, WEFT_E_INVAL, "the prompt is empty");
    is_misuse = err == WEFT_E_INVAL;
    if (err) goto cleanup;
    run.max_ids = config.n_predict;
    run.ids = calloc(run.max_ids, sizeof *run.ids);
    if (!run.ids) {
        err = WEFT_E_NOMEM;
        goto cleanup;
    }
    weft_detok_init(&run.detok, run.tok, true);
    run.detok.at_start = false; /* what follows a prompt keeps its leading space */
    set_sampling(&config, &run, weft_eng_info(eng)->n_vocab, &sampling);
    struct weft_generate_request request = {.sampling = &sampling,
                                            .prompt = prompt,
                                            .n_prompt = (uint32_t)n_prompt,
                                            .n_seqs = 1,
                                            .on_token = on_token,
                                            .ctx = &run};
    err = weft_generate(eng, &request, &times, &why);
    if (err) goto cleanup;
    weft_detok_finish(&run.detok, &run.text);
    if (n_prompt + run.n_ids == weft_eng_info(eng)->max_model_len && run.n_ids < run.max_ids)
        weft_warn("ended at the model's length of %u tokens", weft_eng_info(eng)->max_model_len);
    if (run.json) {
        print_json(&run, prompt, n_prompt);
    } else {
        if (run.text.len > 0) (void)fwrite(run.text.data, 1, run.text.len, stdout);
        printf("\n");
    }
cleanup:
    weft_eng_free(eng);
    weft_tok_free(run.tok);
    weft_buf_fini(&run.text);
    free(run.ids);
    free(prompt);
    return !err ? 0 : is_misuse ? weft_cmd_misuse(err, &why) : weft_cmd_fail(err, &why);
}
