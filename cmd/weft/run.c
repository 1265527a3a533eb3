/* `weft run`: one completion on standard output, as it comes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"
#include "codec/utf8.h"
#include "commands.h"
#include "common/engine_config.h"
#include "common/loading.h"
#include "generate.h"
#include "input.h"
#include "json_text.h"
#include "talk.h"

#define TEXT_BYTES_MAX (64u << 20) /* of a prompt: 16 bytes for each of the most tokens */

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
    struct weft_str word;
    uint32_t *ids = calloc(strlen(text) / 2 + 1, sizeof *ids);
    *ids_out = NULL;
    *n_out = 0;
    if (!ids) return WEFT_E_NOMEM;
    for (const char *at = *text ? text : NULL; weft_parse_member(&at, ", ", &word);) {
        uint64_t id = 0;
        if (weft_parse_member_u64(word, n_vocab - 1, &id)) {
            free(ids);
            return weft_err_set(why, WEFT_E_INVAL,
                                "--prompt-ids: \"%.*s\" is not a token id below %u",
                                (int)(word.len < 40 ? word.len : 40), word.data, n_vocab);
        }
        ids[(*n_out)++] = (uint32_t)id;
    }
    *ids_out = ids;
    return WEFT_OK;
}

static bool on_token(void *ctx, uint32_t seq_idx, const struct weft_step_out *out) {
    struct run *run = ctx;
    (void)seq_idx;
    if (run->n_ids < run->max_ids) run->ids[run->n_ids++] = out->token;
    run->finish = out->finish;
    if (out->finish != WEFT_END_STOP) weft_detok_push(&run->detok, out->token, &run->text);
    if (run->json) return !run->text.failed;
    /* A token may be no text yet, and a buffer that never held any is at NULL. */
    if (run->text.len > 0) weft_talk_show(run->text.data, run->text.len);
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

/* The text of the prompt: of -p, or of standard input, without the newline at its end. */
static weft_err read_text(const struct weft_config *config, struct weft_buf *text,
                          struct weft_errmsg *why) {
    bool is_asked = config->prompt && !strcmp(config->prompt, "-");
    if (config->prompt && !is_asked) {
        weft_buf_add_str(text, config->prompt);
        return text->failed ? weft_err_set(why, WEFT_E_NOMEM, "no memory for the prompt") : WEFT_OK;
    }
    weft_err err = is_asked || !isatty(STDIN_FILENO) ? weft_input_read(text, why) : WEFT_OK;
    if (err) return err;
    if (text->len > 0 && text->data[text->len - 1] == '\n') text->len--;
    if (text->len == 0 && !is_asked)
        return weft_err_set(why, WEFT_E_INVAL,
                            "give a prompt: -p TEXT, --prompt-ids 1,2,3, or text on standard "
                            "input");
    return WEFT_OK;
}

static weft_err encode_chat(const struct weft_config *config, const struct run *run,
                            const struct weft_buf *text, uint32_t **ids_out, size_t *n_out,
                            struct weft_errmsg *why) {
    struct weft_tmpl_message messages[2];
    size_t n = 0;
    weft_tmpl *tmpl = NULL;
    struct weft_buf clean; /* a template renders well-formed UTF-8 */
    weft_buf_init(&clean, 3 * TEXT_BYTES_MAX);
    weft_utf8_clean(&clean, text->data, text->len);
    weft_err err = clean.failed ? weft_err_set(why, WEFT_E_NOMEM, "no memory for the prompt")
                                : weft_talk_template(config, run->tok, &tmpl, why);
    if (config->system)
        messages[n++] =
            (struct weft_tmpl_message){"system", config->system, 6, strlen(config->system)};
    messages[n++] = (struct weft_tmpl_message){"user", weft_buf_cstr(&clean), 4, clean.len};
    if (!err) err = weft_talk_encode(tmpl, run->tok, messages, n, ids_out, n_out, why);
    weft_tmpl_free(tmpl);
    weft_buf_fini(&clean);
    return err;
}

static weft_err encode(const struct weft_config *config, const struct run *run,
                       const struct weft_buf *text, uint32_t **ids_out, size_t *n_out,
                       struct weft_errmsg *why) {
    if (config->chat) return encode_chat(config, run, text, ids_out, n_out, why);
    return weft_tok_encode(run->tok,
                           &(struct weft_tok_input){{text->data ? text->data : "", text->len},
                                                    WEFT_TOK_ADD_SPECIAL | WEFT_TOK_PARSE_SPECIAL,
                                                    WEFT_CONTEXT_MAX},
                           ids_out, n_out, why);
}

/* WEFT_SYSTEM and files hold settings for several commands, and a run without --chat passes over them;
 * who types the flag expects something of it. Its value is then a part of some argument. */
static bool is_system_typed(const struct weft_config *config) {
    static const char flag[] = "--system=";
    for (int i = 1; config->system && i < config->argc; i++) {
        const char *arg = config->argv[i];
        if (config->system == arg) return true;
        if (!strncmp(arg, flag, sizeof flag - 1) && config->system == arg + sizeof flag - 1)
            return true;
    }
    return false;
}

/* Prompts and what they are made of are asked for before anything is loaded. */
static weft_err read_prompt(const struct weft_config *config, struct weft_buf *text,
                            struct weft_errmsg *why) {
    if (!config->chat && is_system_typed(config))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--system needs --chat: without it the prompt is a text to go on with");
    if (!config->prompt_ids) return read_text(config, text, why);
    if (config->chat)
        return weft_err_set(why, WEFT_E_INVAL, "--chat is for a text, not for --prompt-ids");
    return WEFT_OK;
}

int weft_cmd_run(const struct weft_config *given) {
    struct weft_errmsg why = {""};
    struct weft_config config = *given;
    struct weft_eng_options options;
    struct weft_loading loading = {0};
    struct weft_sampling sampling;
    struct weft_generate_times times;
    struct run run = {0};
    weft_eng *eng = NULL;
    uint32_t *prompt = NULL;
    size_t n_prompt = 0;
    struct weft_buf text;
    weft_buf_init(&run.text, 64u << 20);
    weft_buf_init(&text, TEXT_BYTES_MAX);
    weft_err err = read_prompt(&config, &text, &why);
    bool is_misuse = err == WEFT_E_INVAL;
    if (err) goto cleanup;
    run.json = config.json;
    config.max_num_seqs = 1;
    err = weft_engine_config(&config, &options, &why);
    if (!err) err = weft_cmd_check_model(config.model, &why);
    if (!err) err = weft_tok_open(config.model, &run.tok, &why);
    if (!err && !config.prompt_ids) err = encode(&config, &run, &text, &prompt, &n_prompt, &why);
    if (!err) weft_loading_begin(&loading, &config, &options);
    if (!err) err = weft_eng_open(config.model, &options, &eng, &why);
    if (!err) err = weft_eng_check_predicts(eng, &why);
    weft_loading_end(&loading);
    if (err) goto cleanup;
    if (config.prompt_ids)
        err = parse_ids(config.prompt_ids, weft_eng_info(eng)->n_vocab, &prompt, &n_prompt, &why);
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
    if (!config.chat) run.detok.at_start = false; /* what continues a text keeps its space */
    err = weft_talk_sampling(&config, run.tok, weft_eng_info(eng), run.stops, &sampling, &why);
    is_misuse = err == WEFT_E_INVAL;
    if (err) goto cleanup;
    sampling.max_tokens = config.n_predict;
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
        if (run.text.len > 0) weft_talk_show(run.text.data, run.text.len);
        printf("\n");
    }
cleanup:
    weft_eng_free(eng);
    weft_tok_free(run.tok);
    weft_buf_fini(&run.text);
    weft_buf_fini(&text);
    free(run.ids);
    free(prompt);
    return !err ? 0 : is_misuse ? weft_cmd_misuse(err, &why) : weft_cmd_fail(err, &why);
}
