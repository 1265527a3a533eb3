/* `weft grammar`: texts judged by a grammar, byte by byte, and in the tokens of a model. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "commands.h"
#include "grammar/grammar.h"
#include "input.h"
#include "tokenizer/tokenizer.h"

#define FILE_BYTES_MAX (256u << 20)

struct judge {
    weft_gram *gram;
    weft_tokenizer *tok; /* NULL: by bytes alone */
    weft_gram_vocab *vocab;
    struct weft_str *tokens;
    bool *is_special;
    bool names_special; /* the grammar may: then a text's are special tokens, else they are spelt */
    uint64_t *mask;
};

struct verdict {
    const char *word; /* one of these */
    size_t at;        /* rejected: how many bytes are taken before what is not */
};

static const char rejected[] = "rejected", incomplete[] = "incomplete", accepted[] = "accepted";

/* The words are checked with the options. */
static enum weft_grammar_thinking thinking_of(const char *word) {
    if (strcmp(word, "open") == 0) return WEFT_THINKING_OPEN;
    return strcmp(word, "maybe") == 0 ? WEFT_THINKING_MAYBE : WEFT_THINKING_NONE;
}

static weft_err compile(const struct weft_config *config, weft_gram **gram_out,
                        struct weft_errmsg *why) {
    const char *path = config->schema ? config->schema
                       : config->gbnf ? config->gbnf
                       : config->lark ? config->lark
                                      : config->tags;
    char *text = NULL;
    size_t len = 0;
    struct weft_grammar wish;
    weft_grammar_init(&wish);
    wish.json_blanks = config->json_whitespace;
    wish.json_digits = config->json_max_digits;
    wish.thinking = thinking_of(config->thinking);
    wish.kind = config->regex    ? WEFT_GRAMMAR_REGEX
                : config->schema ? WEFT_GRAMMAR_SCHEMA
                : config->tags   ? WEFT_GRAMMAR_TAGS
                                 : WEFT_GRAMMAR_RULES;
    weft_err err = WEFT_OK;
    if (!config->regex)
        err = weft_file_read(path, WEFT_FILE_ANY, WEFT_GRAMMAR_BYTES_MAX, &text, &len, why);
    wish.text = config->regex ? config->regex : text;
    wish.n_bytes = (uint32_t)(config->regex ? strlen(config->regex) : len);
    if (!err && config->gbnf)
        err = weft_gram_compile_gbnf(&wish, gram_out, why);
    else if (!err && config->lark)
        err = weft_gram_compile_lark(&wish, gram_out, why);
    else if (!err)
        err = weft_gram_compile(&wish, gram_out, why);
    free(text);
    return err;
}

/* What each token spells. */
static weft_err open_tokens(const char *path, struct judge *j, struct weft_errmsg *why) {
    weft_err err = weft_tok_open(path, &j->tok, why);
    if (err) return err;
    uint32_t n = weft_tok_vocab_size(j->tok);
    struct weft_str *tokens = calloc((size_t)n + 1, sizeof *tokens);
    j->tokens = tokens;
    j->is_special = calloc((size_t)n + 1, sizeof *j->is_special);
    j->mask = calloc(weft_gram_mask_words(n) + 1, sizeof *j->mask);
    if (!tokens || !j->is_special || !j->mask)
        return weft_err_set(why, WEFT_E_NOMEM, "out of memory");
    for (uint32_t id = 0; id < n; id++) {
        j->is_special[id] = weft_tok_is_special(j->tok, id);
        tokens[id].data = weft_tok_token_bytes(j->tok, id, &tokens[id].len);
    }
    weft_gram_vocab *vocab = NULL;
    err = weft_gram_vocab_with_special(tokens, j->is_special, n, &vocab);
    j->vocab = vocab;
    return err ? weft_err_set(why, err, "no vocabulary of %s: %s", path, weft_err_text(err)) : err;
}

static size_t bytes_of(const struct judge *j, const uint32_t *ids, size_t n) {
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += j->tokens[ids[i]].len;
    return sum;
}

/* The tokens of a text as a model writes it, which is behind another one: SentencePiece puts a blank before a
 * text that stands alone. *first_out: those before it are not the text's. */
static weft_err encode(const struct judge *j, struct weft_str text, uint32_t **ids_out,
                       size_t *first_out, size_t *n_out) {
    struct weft_errmsg why;
    struct weft_tok_input input = {text, j->names_special ? WEFT_TOK_PARSE_SPECIAL : 0,
                                   FILE_BYTES_MAX};
    *first_out = 0;
    weft_err err = weft_tok_encode(j->tok, &input, ids_out, n_out, &why);
    if (err || bytes_of(j, *ids_out, *n_out) == text.len) return err;
    struct weft_buf behind;
    weft_buf_init(&behind, FILE_BYTES_MAX);
    weft_buf_add(&behind, "\n", 1);
    weft_buf_add(&behind, text.data, text.len);
    input.text = (struct weft_str){weft_buf_cstr(&behind), behind.len};
    free(*ids_out);
    err = behind.failed ? WEFT_E_NOMEM : weft_tok_encode(j->tok, &input, ids_out, n_out, &why);
    if (behind.failed) *ids_out = NULL;
    weft_buf_fini(&behind);
    size_t n_bytes = err ? 0 : bytes_of(j, *ids_out, *n_out);
    while (!err && n_bytes > text.len)
        n_bytes -= j->tokens[(*ids_out)[(*first_out)++]].len;
    return err;
}

/* INVAL: rejected; *n_taken_out are then the bytes of the tokens before. *has_special_out: bytes alone can't tell. */
static weft_err take_tokens(const struct judge *j, weft_gram_state *state, struct weft_str text,
                            size_t *n_taken_out, bool *has_special_out, struct weft_errmsg *why) {
    uint32_t *ids;
    size_t first, n;
    weft_err err = encode(j, text, &ids, &first, &n);
    *n_taken_out = 0;
    *has_special_out = false;
    if (err) return weft_err_set(why, WEFT_E_STATE, "a text that can't be tokenized");
    for (size_t i = first; i < n; i++)
        *has_special_out = *has_special_out || j->is_special[ids[i]];
    for (size_t i = first; i < n && !err; i++) {
        struct weft_str token = j->tokens[ids[i]];
        err = weft_gram_mask(state, j->vocab, j->mask);
        if (!err && !(j->mask[ids[i] / 64] >> (ids[i] % 64) & 1)) err = WEFT_E_INVAL;
        if (!err)
            err = j->is_special[ids[i]] ? weft_gram_take_special(state, token)
                                        : weft_gram_take(state, token.data, token.len);
        if (!err) *n_taken_out += token.len;
    }
    free(ids);
    return err;
}

/* Likewise by bytes. All at once, and once more byte by byte where that fails. */
static weft_err take_bytes(weft_gram_state *state, struct weft_str text, size_t *n_taken_out) {
    *n_taken_out = 0;
    weft_err err = weft_gram_take(state, text.data, text.len);
    if (err != WEFT_E_INVAL) return err;
    while (*n_taken_out < text.len && !weft_gram_take(state, text.data + *n_taken_out, 1))
        (*n_taken_out)++;
    return err;
}

/* In tokens where *has_special_out is asked for, else in bytes. */
static weft_err judge_text(const struct judge *j, struct weft_str text, bool *has_special_out,
                           struct verdict *verdict_out, struct weft_errmsg *why) {
    weft_gram_state *state;
    *verdict_out = (struct verdict){rejected, 0};
    weft_err err = weft_gram_state_new(j->gram, &state);
    if (!err && has_special_out)
        err = take_tokens(j, state, text, &verdict_out->at, has_special_out, why);
    else if (!err)
        err = take_bytes(state, text, &verdict_out->at);
    if (!err) verdict_out->word = weft_gram_may_end(state) ? accepted : incomplete;
    weft_gram_state_free(state);
    if (err == WEFT_E_INVAL) return WEFT_OK;
    return err ? weft_err_set(why, err, "a text can't be judged: %s", weft_err_text(err)) : err;
}

static weft_err judge_case(const struct judge *j, const json_t *item, struct verdict *verdict_out,
                           struct weft_errmsg *why) {
    struct weft_str text = {json_string_value(item), json_string_length(item)};
    struct verdict in_tokens = {accepted, 0};
    bool has_special = false;
    weft_err err = judge_text(j, text, NULL, verdict_out, why);
    if (!err && j->tok) err = judge_text(j, text, &has_special, &in_tokens, why);
    if (has_special || (verdict_out->word != rejected && in_tokens.word == rejected))
        *verdict_out = in_tokens;
    return err;
}

/* A list of strings. "-" is standard input. */
static weft_err read_cases(const char *path, json_t **root_out, struct weft_errmsg *why) {
    struct weft_buf input;
    char *text = NULL;
    size_t len = 0, i;
    json_error_t where;
    json_t *item;
    bool is_input = strcmp(path, "-") == 0;
    *root_out = NULL;
    weft_buf_init(&input, FILE_BYTES_MAX);
    weft_err err = is_input ? weft_input_read(&input, why)
                            : weft_file_read(path, WEFT_FILE_ANY, FILE_BYTES_MAX, &text, &len, why);
    const char *name = is_input ? "standard input" : path;
    if (!err)
        *root_out = json_loadb(is_input ? weft_buf_cstr(&input) : text, is_input ? input.len : len,
                               JSON_ALLOW_NUL, &where);
    if (!err && !*root_out)
        err = weft_err_set(why, WEFT_E_INVAL, "%s is not JSON: %s at line %d", name, where.text,
                           where.line);
    if (!err && !json_is_array(*root_out))
        err = weft_err_set(why, WEFT_E_INVAL, "%s is not a JSON list of strings", name);
    json_array_foreach(*root_out, i, item) {
        if (!err && !json_is_string(item))
            err = weft_err_set(why, WEFT_E_INVAL, "case [%zu] of %s is not a string", i, name);
    }
    free(text);
    weft_buf_fini(&input);
    return err;
}

static weft_err judge_cases(const struct judge *j, const char *path, bool as_json,
                            struct weft_errmsg *why) {
    size_t i;
    json_t *root, *item;
    weft_err err = read_cases(path, &root, why);
    if (!err && as_json) printf("[");
    json_array_foreach(root, i, item) {
        struct verdict verdict;
        if (!err) err = judge_case(j, item, &verdict, why);
        if (err) break;
        if (as_json)
            printf("%s\"%s\"", i ? ", " : "", verdict.word);
        else if (verdict.word == rejected)
            printf("%s at byte %zu\n", verdict.word, verdict.at + 1);
        else
            printf("%s\n", verdict.word);
    }
    if (!err && as_json) printf("]\n");
    json_decref(root);
    return err;
}

int weft_cmd_grammar(const struct weft_config *config) {
    struct weft_errmsg why = {""};
    struct judge j = {.names_special = config->tags != NULL};
    weft_err err = compile(config, &j.gram, &why);
    if (!err && config->tokenizer) err = open_tokens(config->tokenizer, &j, &why);
    if (!err) err = judge_cases(&j, config->cases, config->json, &why);
    weft_gram_free(j.gram);
    weft_gram_vocab_free(j.vocab);
    free(j.tokens);
    free(j.is_special);
    free(j.mask);
    weft_tok_free(j.tok);
    return err ? weft_cmd_fail(err, &why) : 0;
}
