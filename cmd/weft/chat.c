/* `weft chat`: a conversation in the terminal, with the engine in this process. The KV cache keeps what
 * the last turn computed, so that a turn costs what is new in its prompt. In a pipe each line is a
 * message, and answers are all that is printed on standard output. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/utf8.h"
#include "chat_session.h"
#include "commands.h"
#include "common/engine_config.h"
#include "common/loading.h"
#include "conversation.h"
#include "generate.h"
#include "input.h"
#include "talk.h"

#define ANSWER_BYTES_MAX (64u << 20)
#define ROOM_MAX 1024u /* tokens that a prompt leaves for its answer, or a quarter of the context */

struct chat {
    struct weft_config config;
    weft_tokenizer *tok;
    weft_tmpl *tmpl;
    weft_eng *eng;
    struct weft_sampling sampling;
    uint32_t stops[WEFT_STOP_TOKENS_MAX];
    struct weft_conversation conversation;
    uint32_t *cached; /* [max_model_len] tokens whose keys and values lie in the KV cache */
    uint32_t n_cached;
    uint32_t
        n_restored;     /* tokens that came from a file: of windowed layers the last blocks alone */
    uint32_t n_written; /* no run since the cache was empty has written any later token */
    bool long_cached;   /* the prompt of that run was a long one */
    bool is_interactive; /* a person sits at both ends */
    bool has_failed;     /* a line got no answer */

    /* the answer that is being made */
    struct weft_detok detok;
    struct weft_buf fresh, answer;
    uint32_t n_out;
    uint32_t n_prompt;
    enum weft_end finish;
};

/* ---------------------------------------------------------------------------------- Ctrl-C --- */

static volatile sig_atomic_t n_interrupts;

/* The thread that waits for a line must be the one whose wait is cut short. */
static void on_interrupt(int sig) {
    if (syscall(SYS_gettid) != getpid())
        (void)syscall(SYS_tgkill, getpid(), getpid(), sig);
    else if (n_interrupts < 2)
        n_interrupts++;
}

static void watch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: reads end */
    (void)sigaction(SIGINT, &action, NULL);
}

/* ---------------------------------------------------------------------------------- answers --- */

static bool on_token(void *ctx, uint32_t seq_idx, const struct weft_step_out *out) {
    struct chat *chat = ctx;
    (void)seq_idx;
    uint32_t at = chat->n_prompt + chat->n_out++;
    if (at < weft_eng_info(chat->eng)->max_model_len) chat->cached[at] = out->token;
    chat->finish = out->finish;
    if (out->finish != WEFT_END_STOP) weft_detok_push(&chat->detok, out->token, &chat->fresh);
    weft_talk_show(chat->fresh.data, chat->fresh.len);
    weft_buf_add(&chat->answer, chat->fresh.data, chat->fresh.len);
    weft_buf_clear(&chat->fresh);
    return fflush(stdout) == 0 && !chat->answer.failed;
}

/* Tokens at the front of the prompt that need not be computed again. */
static uint32_t n_reusable(const struct chat *chat, const uint32_t *prompt, uint32_t n_prompt) {
    bool is_long = n_prompt > weft_eng_info(chat->eng)->long_prompt;
    uint32_t n = 0;
    if (is_long != chat->long_cached || weft_sampling_is_contrastive(&chat->sampling)) return 0;
    while (n < chat->n_cached && n + 1 < n_prompt && chat->cached[n] == prompt[n])
        n++;
    if (n < chat->n_restored && weft_eng_info(chat->eng)->window > 0) return 0;
    return weft_generate_reusable(chat->eng, chat->n_written, n);
}

/* Streams the answer to `prompt` into chat->answer. */
static weft_err generate(struct chat *chat, const uint32_t *prompt, uint32_t n_prompt,
                         struct weft_errmsg *why) {
    struct weft_generate_times times;
    uint32_t n_context = weft_eng_info(chat->eng)->max_model_len;
    uint32_t n_cached = n_reusable(chat, prompt, n_prompt);
    uint32_t n_left = n_context - n_prompt, n_asked = chat->config.chat_predict;
    WEFT_ASSERT(n_prompt < n_context);
    chat->sampling.max_tokens = n_asked && n_asked < n_left ? n_asked : n_left;
    weft_debug("a prompt of %u tokens, %u of them in the cache", n_prompt, n_cached);
    chat->n_prompt = n_prompt;
    chat->n_out = 0;
    chat->finish = WEFT_END_NONE;
    weft_buf_clear(&chat->answer);
    weft_detok_init(&chat->detok, chat->tok, true);
    memcpy(chat->cached, prompt, n_prompt * sizeof *prompt);
    chat->n_cached = 0; /* until it is known what was computed */
    if (n_cached == 0) chat->n_written = chat->n_restored = 0;
    weft_err err = weft_generate(chat->eng,
                                 &(struct weft_generate_request){.sampling = &chat->sampling,
                                                                 .prompt = prompt,
                                                                 .n_prompt = n_prompt,
                                                                 .n_cached = n_cached,
                                                                 .n_seqs = 1,
                                                                 .on_token = on_token,
                                                                 .ctx = chat,
                                                                 .stop = &n_interrupts},
                                 &times, why);
    if (n_prompt + chat->n_out > chat->n_written) chat->n_written = n_prompt + chat->n_out;
    if (err) return err;
    /* The last token was sampled, and not computed. */
    chat->n_cached = chat->n_out > 0 ? n_prompt + chat->n_out - 1 : n_cached;
    chat->long_cached = n_prompt > weft_eng_info(chat->eng)->long_prompt;
    if (chat->finish != WEFT_END_NONE) { /* else a character may have been cut: it is left out */
        weft_detok_finish(&chat->detok, &chat->fresh);
        weft_talk_show(chat->fresh.data, chat->fresh.len);
        weft_buf_add(&chat->answer, chat->fresh.data, chat->fresh.len);
        weft_buf_clear(&chat->fresh);
    }
    (void)putchar('\n');
    (void)fflush(stdout);
    return WEFT_OK;
}

static void tell_end(const struct chat *chat) {
    uint32_t n_context = weft_eng_info(chat->eng)->max_model_len;
    if (chat->finish != WEFT_END_LENGTH) return;
    if (chat->n_prompt + chat->n_out >= n_context)
        (void)fprintf(stderr, "weft: the answer ends where the context of %u tokens is full\n",
                      n_context);
    else if (chat->is_interactive)
        (void)fprintf(stderr, "weft: the answer ends after the %u tokens of --n-predict\n",
                      chat->n_out);
}

/* Makes the prompt of the turn that the last message begins, and says what it no longer holds. */
static weft_err make_prompt(struct chat *chat, uint32_t **prompt_out, size_t *n_out,
                            struct weft_errmsg *why) {
    struct weft_conversation *c = &chat->conversation;
    uint32_t n_before = c->n_left_out, n_context = weft_eng_info(chat->eng)->max_model_len;
    uint32_t room = n_context / 4 < ROOM_MAX ? n_context / 4 : ROOM_MAX;
    weft_err err = weft_conversation_prompt(c, chat->tmpl, chat->tok, n_context - (room ? room : 1),
                                            prompt_out, n_out, why);
    if (!err && *n_out == 0) err = weft_err_set(why, WEFT_E_INVAL, "the prompt is empty");
    if (!err && c->n_left_out > n_before)
        (void)fprintf(stderr,
                      "weft: the context of %u tokens is full: the model no longer sees the oldest "
                      "%u messages\n",
                      n_context, c->n_left_out);
    return err;
}

/* One turn. After an error, and without an answer, the conversation is as it was: two messages of a
 * user in a row suit few templates. */
static weft_err answer(struct chat *chat, struct weft_str text, struct weft_errmsg *why) {
    struct weft_conversation *c = &chat->conversation;
    uint32_t *prompt = NULL, n_left_out = c->n_left_out;
    size_t n_prompt = 0;
    weft_err err = weft_conversation_add(c, "user", text, why);
    if (err) return err;
    err = make_prompt(chat, &prompt, &n_prompt, why);
    if (!err) err = generate(chat, prompt, (uint32_t)n_prompt, why);
    free(prompt);
    bool has_answer = !err && chat->answer.len > 0;
    if (has_answer)
        err = weft_conversation_add(c, "assistant",
                                    (struct weft_str){chat->answer.data, chat->answer.len}, why);
    if (err || !has_answer) {
        weft_conversation_drop_last(c);
        c->n_left_out = n_left_out;
    }
    if (!err && !has_answer && n_interrupts < 2)
        (void)fputs("weft: there is no answer, so the conversation goes on without the message\n",
                    stderr);
    if (!err) tell_end(chat);
    return err;
}

/* --------------------------------------------------------------------------------- commands --- */

static const char help[] =
    "  /reset         forget the conversation, but not the system message\n"
    "  /system TEXT   set the system message; without TEXT there is none\n"
    "  /save FILE     write the conversation as JSON, a body for /v1/chat/completions\n"
    "  /help          this text\n"
    "  /quit          end, as Ctrl-D does\n"
    "Ctrl-C stops an answer; at the prompt it ends the chat.\n";

/* Whether `line` is "/name" or "/name REST"; *rest_out is then what follows, without blanks around. */
static bool is_command(struct weft_str line, const char *name, struct weft_str *rest_out) {
    size_t n = strlen(name);
    if (line.len < n || memcmp(line.data, name, n) != 0) return false;
    if (line.len > n && line.data[n] != ' ' && line.data[n] != '\t') return false;
    *rest_out = (struct weft_str){line.data + n, line.len - n};
    while (rest_out->len > 0 && (*rest_out->data == ' ' || *rest_out->data == '\t'))
        rest_out->data++, rest_out->len--;
    return true;
}

/* What a command has done; a pipe carries answers alone. */
static void tell_done(const struct chat *chat, const char *what, struct weft_str name) {
    if (!chat->is_interactive) return;
    (void)fputs(what, stdout);
    weft_talk_show(name.data, name.len);
    (void)putchar('\n');
}

static weft_err save(struct chat *chat, struct weft_str name, struct weft_errmsg *why) {
    if (name.len == 0) return weft_err_set(why, WEFT_E_INVAL, "/save needs the name of a file");
    if (memchr(name.data, '\0', name.len))
        return weft_err_set(why, WEFT_E_INVAL, "the name of a file cannot hold a NUL");
    char *path = strndup(name.data, name.len);
    if (!path) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a name");
    weft_err err = weft_conversation_save(&chat->conversation, path, why);
    free(path);
    if (!err) tell_done(chat, "saved in ", name);
    return err;
}

static weft_err set_system(struct chat *chat, struct weft_str text, struct weft_errmsg *why) {
    weft_err err = weft_conversation_set_system(&chat->conversation, text, why);
    const char *what = text.len > 0 ? "the system message is set" : "there is no system message";
    if (!err) tell_done(chat, what, (struct weft_str){0});
    return err;
}

static void reset(struct chat *chat) {
    weft_conversation_reset(&chat->conversation);
    tell_done(chat,
              chat->conversation.has_system ? "all is forgotten but the system message"
                                            : "all is forgotten",
              (struct weft_str){0});
}

/* CLOSED: the chat is to end. */
static weft_err do_command(struct chat *chat, struct weft_str line, struct weft_errmsg *why) {
    struct weft_str rest;
    if (is_command(line, "/quit", &rest) || is_command(line, "/exit", &rest)) return WEFT_E_CLOSED;
    if (is_command(line, "/save", &rest)) return save(chat, rest, why);
    if (is_command(line, "/system", &rest)) return set_system(chat, rest, why);
    if (is_command(line, "/reset", &rest)) {
        reset(chat);
        return WEFT_OK;
    }
    if (is_command(line, "/help", &rest)) {
        (void)fputs(help, stderr);
        return WEFT_OK;
    }
    int n = (int)strcspn(line.data, " \t");
    return weft_err_set(why, WEFT_E_INVAL, "unknown command %.*s; /help lists them",
                        n < 60 ? n : 60, line.data);
}

/* --------------------------------------------------------------------------------- the loop --- */

static struct weft_str trimmed(struct weft_buf *line) {
    struct weft_str text = {weft_buf_cstr(line), line->len};
    while (text.len > 0 && strchr(" \t\r", text.data[text.len - 1]) && text.data[text.len - 1])
        text.len--;
    return text;
}

/* Waits for a line. CLOSED: there is none, or nobody wants another. */
static weft_err ask_for_line(const struct chat *chat, struct weft_input_lines *lines,
                             struct weft_errmsg *why) {
    if (chat->is_interactive) (void)fputs("> ", stdout);
    (void)fflush(stdout);
    weft_err err = weft_input_next(lines, why);
    if (err == WEFT_E_AGAIN || (err == WEFT_E_CLOSED && chat->is_interactive)) {
        (void)putchar('\n'); /* the shell's prompt gets a line of its own */
        return WEFT_E_CLOSED;
    }
    return err;
}

/* One line: a command or a message. CLOSED: the last one. */
static weft_err take_line(struct chat *chat, struct weft_buf *line, struct weft_errmsg *why) {
    struct weft_str text = trimmed(line);
    if (text.len == 0) return WEFT_OK;
    if (*text.data == '/') return do_command(chat, text, why);
    weft_err err = answer(chat, text, why);
    if (n_interrupts > 1) return WEFT_E_CLOSED;
    n_interrupts = 0;
    return err;
}

/* What a line asks for may fail in any way, and the conversation goes on. */
static void talk(struct chat *chat) {
    struct weft_input_lines lines;
    weft_input_lines_init(&lines, chat->is_interactive ? &n_interrupts : NULL);
    for (bool is_over = false; !is_over && !ferror(stdout);) {
        struct weft_errmsg why = {""};
        weft_err err = ask_for_line(chat, &lines, &why);
        is_over = err && err != WEFT_E_TOOBIG; /* no line can be read any more */
        if (!err) {
            err = take_line(chat, &lines.line, &why);
            is_over = err == WEFT_E_CLOSED;
        }
        if (!err || err == WEFT_E_CLOSED) continue;
        (void)weft_cmd_fail(err, &why);
        if (!chat->is_interactive) chat->has_failed = true;
    }
    weft_input_lines_fini(&lines);
}

/* The model's own values, where nobody asked for others. */
static weft_err take_defaults(struct weft_config *config, struct weft_errmsg *why) {
    struct weft_gen_defaults d;
    weft_err err = weft_tok_gen_defaults(config->model, &d, why);
    if (err) return err;
    if (!config->given.temperature && !isnan(d.temperature)) config->temperature = d.temperature;
    if (!config->given.top_p && !isnan(d.top_p)) config->top_p = d.top_p;
    if (!config->given.min_p && !isnan(d.min_p)) config->min_p = d.min_p;
    if (!config->given.repetition_penalty && !isnan(d.repetition_penalty))
        config->repetition_penalty = d.repetition_penalty;
    if (!config->given.top_k && d.top_k >= 0 && d.top_k <= WEFT_VOCAB_MAX)
        config->top_k = (uint32_t)d.top_k;
    return WEFT_OK;
}

static void restore(struct chat *chat) {
    struct weft_chat_cache cache = {.tokens = chat->cached};
    weft_chat_restore(chat->eng, chat->config.chat_session, &cache);
    chat->n_cached = chat->n_restored = chat->n_written = cache.n_tokens;
    chat->long_cached = cache.is_long;
}

/* What windows have moved on from cannot be kept. */
static weft_err keep(struct chat *chat, struct weft_errmsg *why) {
    bool is_whole =
        weft_generate_reusable(chat->eng, chat->n_written, chat->n_cached) == chat->n_cached;
    const struct weft_chat_cache cache = {chat->cached, is_whole ? chat->n_cached : 0,
                                          chat->long_cached};
    return weft_chat_keep(chat->eng, &chat->conversation, chat->config.chat_session, &cache, why);
}

static weft_err open_chat(struct chat *chat, struct weft_errmsg *why) {
    struct weft_eng_options options;
    struct weft_loading loading = {0};
    struct weft_config *config = &chat->config;
    config->max_num_seqs = 1;
    weft_err err = weft_engine_config(config, &options, why);
    if (!err) err = weft_cmd_check_model(config->model, why);
    if (!err) err = take_defaults(config, why);
    if (!err) err = weft_tok_open(config->model, &chat->tok, why);
    if (!err) err = weft_talk_template(config, chat->tok, &chat->tmpl, why);
    if (!err && config->system)
        err = weft_conversation_set_system(
            &chat->conversation, (struct weft_str){config->system, strlen(config->system)}, why);
    if (!err && config->chat_session)
        err = weft_chat_load(&chat->conversation, config->chat_session, why);
    if (!err) weft_loading_begin(&loading, config, &options);
    if (!err) err = weft_eng_open(config->model, &options, &chat->eng, why);
    if (!err) err = weft_eng_check_predicts(chat->eng, why);
    weft_loading_end(&loading);
    if (err) return err;
    const struct weft_eng_info *info = weft_eng_info(chat->eng);
    err = weft_talk_sampling(config, chat->tok, info, chat->stops, &chat->sampling, why);
    if (err) return err;
    chat->cached = calloc(info->max_model_len, sizeof *chat->cached);
    if (!chat->cached) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a context");
    if (config->chat_session) restore(chat);
    if (chat->is_interactive)
        printf("%s, a context of %u tokens. /help lists commands; Ctrl-C stops an answer.\n",
               info->model_name, info->max_model_len);
    return WEFT_OK;
}

int weft_cmd_chat(const struct weft_config *config) {
    struct weft_errmsg why = {""};
    static struct chat chat;
    chat.config = *config;
    chat.is_interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    weft_buf_init(&chat.fresh, 1u << 20);
    weft_buf_init(&chat.answer, ANSWER_BYTES_MAX);
    weft_err err = config->system && !weft_utf8_valid(config->system, strlen(config->system))
                       ? weft_err_set(&why, WEFT_E_INVAL, "--system is not valid UTF-8")
                       : open_chat(&chat, &why);
    if (!err) {
        if (chat.is_interactive) watch_interrupts();
        talk(&chat);
        if (config->chat_session) err = keep(&chat, &why);
    }
    weft_eng_free(chat.eng);
    weft_tmpl_free(chat.tmpl);
    weft_tok_free(chat.tok);
    weft_conversation_fini(&chat.conversation);
    weft_buf_fini(&chat.fresh);
    weft_buf_fini(&chat.answer);
    free(chat.cached);
    if (err) return weft_cmd_fail(err, &why);
    return chat.has_failed ? WEFT_STATUS_FAILED : 0;
}
