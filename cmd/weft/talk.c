#include "talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/parse.h"

#define TEMPLATE_BYTES_MAX (1u << 20)

/* "top_k,temperature". */
static weft_err read_samplers(const char *list, struct weft_sampling *out,
                              struct weft_errmsg *why) {
    uint32_t seen = 0;
    out->samplers = WEFT_SAMPLERS_NONE;
    struct weft_str member;
    for (const char *at = *list ? list : NULL; weft_parse_member(&at, ",", &member);) {
        char name[32] = "";
        if (member.len < sizeof name) memcpy(name, member.data, member.len);
        enum weft_sampler sampler = weft_sampler_of_name(name);
        if (sampler == WEFT_SAMPLER_COUNT || seen >> sampler & 1 ||
            seen >> WEFT_SAMPLER_ADAPTIVE_P & 1)
            return weft_err_set(why, WEFT_E_INVAL,
                                "--samplers: \"%.*s\" is no sampler, there already, or after "
                                "adaptive_p, which draws the token",
                                (int)(member.len < 40 ? member.len : 40), member.data);
        seen |= 1u << sampler;
        out->samplers = weft_samplers_add(out->samplers, sampler);
    }
    return WEFT_OK;
}

/* The usual ones, as a server has them where a request names none: of each the last token that it has
 * behind a letter. */
static weft_err add_dry_breakers(const weft_tokenizer *tok, uint32_t n_vocab,
                                 struct weft_sampling *out, struct weft_errmsg *why) {
    static const char *const usual[] = {"a\n", "a:", "a\"", "a*"};
    static uint32_t breakers[sizeof usual / sizeof usual[0]]; /* a program has one sampling */
    weft_err err = WEFT_OK;
    out->dry_breakers = breakers;
    for (size_t i = 0; i < sizeof usual / sizeof usual[0] && !err; i++) {
        const struct weft_tok_input input = {
            {usual[i], strlen(usual[i])}, WEFT_TOK_PARSE_SPECIAL, 16};
        uint32_t *ids = NULL;
        size_t n = 0;
        err = weft_tok_encode(tok, &input, &ids, &n, why);
        if (!err && n > 0 && ids[n - 1] < n_vocab) breakers[out->n_dry_breakers++] = ids[n - 1];
        free(ids);
    }
    return err;
}

/* A single process lacks it for no other reasons. */
static weft_err check_contrast(const struct weft_eng_info *info,
                               const struct weft_sampling *sampling, struct weft_errmsg *why) {
    if (info->has_contrast) return weft_sampling_check(sampling, 0, why);
    return weft_err_set(why, WEFT_E_UNSUPPORTED,
                        "--penalty-alpha: contrastive search is not available with this model%s",
                        info->is_recurrent ? ", which has recurrent layers"
                                           : ", or --memory-limit is too low for it");
}

weft_err weft_talk_sampling(const struct weft_config *config, const weft_tokenizer *tok,
                            const struct weft_eng_info *info, uint32_t stops[WEFT_STOP_TOKENS_MAX],
                            struct weft_sampling *out, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    weft_sampling_init(out);
    out->seed = config->seed;
#define TAKE(type, name, ...) out->name = (WEFT_SAMPLING_##type)config->name;
#define PASS_OVER(...)
    WEFT_SAMPLING_LIST(TAKE, PASS_OVER)
#undef PASS_OVER
#undef TAKE
    if (strcmp(config->sampler_variant, "llama.cpp") == 0) out->variant = WEFT_VARIANT_LLAMA_CPP;
    if (config->samplers) err = read_samplers(config->samplers, out, why);
    if (!err && out->dry_multiplier > 0.0f) err = add_dry_breakers(tok, info->n_vocab, out, why);
    if (!err && out->mirostat > 0 && out->adaptive_target >= 0.0f)
        err = weft_err_set(why, WEFT_E_INVAL,
                           "--mirostat and --adaptive-target both draw the token: choose one");
    if (!err && weft_sampling_sees_too_little(out, info->max_model_len))
        err = weft_err_set(why, WEFT_E_INVAL,
                           "--repeat-last-n can only be -1 or 0, for penalties look at all tokens, "
                           "unless --sampler-variant is llama.cpp");
    if (!err && weft_sampling_is_contrastive(out)) err = check_contrast(info, out, why);
    out->stop_tokens = stops;
    if (err || config->ignore_eos) return err;
    /* A tokenizer may know ids that the model lacks: they cannot come. */
    size_t n_eos = 0;
    const uint32_t *eos = weft_tok_eos(tok, &n_eos);
    for (size_t i = 0; i < n_eos && out->n_stop_tokens < WEFT_STOP_TOKENS_MAX; i++) {
        if (eos[i] < info->n_vocab) stops[out->n_stop_tokens++] = eos[i];
    }
    return WEFT_OK;
}

weft_err weft_talk_template(const struct weft_config *config, const weft_tokenizer *tok,
                            weft_tmpl **tmpl_out, struct weft_errmsg *why) {
    const char *file = config->chat_template;
    struct weft_errmsg detail = {""};
    char *source = NULL;
    size_t len = 0;
    *tmpl_out = NULL;
    weft_err err =
        file ? weft_file_read(file, WEFT_FILE_ANY, TEMPLATE_BYTES_MAX, &source, &len, &detail)
             : weft_tmpl_find(config->model, &source, &detail);
    if (err) {
        err = weft_err_set(why, err, "%s%s", file ? "--chat-template: " : "", detail.text);
    } else if (!source || !*source) {
        err = weft_err_set(why, WEFT_E_NOTFOUND,
                           "%s has no chat template; --chat-template FILE gives it one",
                           file ? file : config->model);
    } else {
        const struct weft_tmpl_specials specials = {weft_tok_bos_token(tok),
                                                    weft_tok_eos_token(tok)};
        err = weft_tmpl_new(source, strlen(source), &specials, tmpl_out, &detail);
        if (err)
            err = weft_err_set(why, err, "the chat template of %s cannot be used: %s",
                               file ? file : config->model, detail.text);
    }
    free(source);
    return err;
}

weft_err weft_talk_encode(const weft_tmpl *tmpl, const weft_tokenizer *tok,
                          const struct weft_tmpl_message *messages, size_t n, uint32_t **ids_out,
                          size_t *n_out, struct weft_errmsg *why) {
    struct weft_buf text;
    *ids_out = NULL;
    *n_out = 0;
    weft_buf_init(&text, WEFT_TALK_BYTES_MAX);
    weft_err err = weft_tmpl_render(tmpl, messages, n, true, &text, why);
    if (!err)
        err = weft_tok_encode(tok,
                              &(struct weft_tok_input){{weft_buf_cstr(&text), text.len},
                                                       WEFT_TOK_PARSE_SPECIAL,
                                                       WEFT_CONTEXT_MAX},
                              ids_out, n_out, why);
    weft_buf_fini(&text);
    return err;
}

void weft_talk_show(const char *text, size_t len) {
    bool is_terminal = isatty(STDOUT_FILENO) == 1;
    if (!is_terminal && len > 0) (void)fwrite(text, 1, len, stdout);
    for (size_t i = 0; is_terminal && i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool is_c1 = c == 0xc2 && i + 1 < len && (unsigned char)text[i + 1] < 0xa0;
        bool obeys = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || is_c1;
        (void)putchar(obeys ? '?' : c);
        if (is_c1) i++;
    }
}
