/* weft-router: takes requests over HTTP and MessagePack-RPC, turns text into tokens and back, and
 * knows nothing of blocks and batches. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parse.h"
#include "common/actor.h"
#include "common/link_config.h"
#include "common/signals.h"
#include "common/status.h"
#include "model/model.h"
#include "replace.h"
#include "server.h"

#define TEMPLATE_BYTES_MAX (1u << 20)

static weft_err read_file(const char *flag, const char *path, size_t bytes_max, char **text_out,
                          struct weft_errmsg *why) {
    struct weft_errmsg detail = {""};
    size_t len;
    weft_err err = weft_file_read(path, WEFT_FILE_ANY, bytes_max, text_out, &len, &detail);
    if (err) (void)weft_err_set(why, err, "--%s: %s", flag, detail.text);
    return err;
}

static weft_err load_template(struct server *server, struct weft_errmsg *why) {
    const struct weft_config *config = &server->config;
    struct weft_api_state *api = &server->api;
    struct weft_errmsg detail = {""};
    char *source = NULL;
    weft_err err = config->chat_template ? read_file("chat-template", config->chat_template,
                                                     TEMPLATE_BYTES_MAX, &source, why)
                                         : weft_tmpl_find(config->model, &source, why);
    if (!err && config->chat_template && !*source)
        err = weft_err_set(why, WEFT_E_INVAL, "--chat-template: \"%s\" is empty",
                           config->chat_template);
    if (!err && !source)
        weft_info("the model has no chat template: /v1/chat/completions will answer 400");
    if (err) {
        free(source);
        return err;
    }
    err = weft_api_set_template(api, source, config->tool_call_parser, &detail);
    if (!err && source)
        weft_debug("calls of tools and thoughts are in the format %s",
                   weft_msg_format_name(api->dialect.format));
    if (err == WEFT_E_NOTFOUND)
        (void)weft_err_set(why, err, "--tool-call-parser: %s", detail.text);
    else if (err && config->chat_template)
        (void)weft_err_set(why, err, "--chat-template: \"%s\": %s", config->chat_template,
                           detail.text);
    else if (err)
        (void)weft_err_set(
            why, err,
            "the model's chat template cannot be used (--chat-template FILE puts another "
            "in its place): %s",
            detail.text);
    return err;
}

/* Files that say in vain how to embed do not keep a model from generating. */
static weft_err load_purpose(struct server *server, struct weft_errmsg *why) {
    const struct weft_config *config = &server->config;
    struct weft_model_pooling *pooling = NULL;
    weft_err err = weft_model_pooling_read(config->model, &pooling, why);
    if (err && strcmp(config->runner, "generate") == 0) return WEFT_OK;
    if (err) return err;
    return weft_api_set_purpose(&server->api, pooling, config->runner, why);
}

static weft_err load_model(struct server *server, struct weft_errmsg *why) {
    const struct weft_config *config = &server->config;
    struct weft_api_state *api = &server->api;
    struct weft_api_limits *limits = &api->limits;
    weft_err err = weft_tok_open(config->model, &api->tok, why);
    if (err) return err;
    err = weft_api_name_model(api, config->served_model_name, why);
    if (err) return err;
    bool is_successor = config->model_identity != NULL;
    err = weft_api_adapters_begin(api, config->lora, is_successor, why);
    if (err) return err;
    limits->max_logprobs =
        config->max_logprobs < 0 ? WEFT_VOCAB_MAX : (uint32_t)config->max_logprobs;
    limits->json_blanks = config->json_whitespace;
    limits->json_digits = config->json_max_digits;
    limits->refuses_unknown_fields = config->strict_fields;
    limits->logs_unknown_fields = !strcmp(config->log_level, "debug");
    limits->eos = weft_tok_eos(api->tok, &limits->n_eos);
    err = weft_tok_gen_defaults(config->model, &limits->defaults, why);
    if (!err) err = load_template(server, why);
    if (!err) err = load_purpose(server, why);
    if (!err && limits->n_eos == 0 && limits->purpose.task == WEFT_MODEL_GENERATES)
        weft_warn("the model names no end-of-sequence token");
    return err;
}

/* --------------------------------------------------------------------------------- identity --- */

/* Appends the identity of the files that decide how this router understands texts. */
static weft_err read_identity(const struct weft_config *config, struct weft_buf *identity,
                              struct weft_errmsg *why) {
    struct weft_errmsg detail = {""};
    char *text = NULL;
    size_t len = 0;
    weft_buf_init(identity, WEFT_IDENTITY_BYTES_MAX);
    weft_err err = weft_model_identity(config->model, identity, why);
    if (!err && config->chat_template) {
        weft_err unread = weft_file_read(config->chat_template, WEFT_FILE_REGULAR,
                                         TEMPLATE_BYTES_MAX, &text, &len, &detail);
        if (!unread) weft_identity_add(identity, "--chat-template", text, len);
        if (unread == WEFT_E_NOMEM || unread == WEFT_E_IO)
            err = weft_err_set(why, unread, "--chat-template: %s", detail.text);
        /* Else it is no regular file, which can be read only once, or load_template reports it. */
    }
    free(text);
    if (!err && identity->failed)
        err = weft_err_set(why, WEFT_E_NOMEM, "no memory for the model's identity");
    return err;
}

/* STATE: the files differ from those read before, and *changed_out is set. */
static weft_err check_identity(const struct weft_config *config, const char *had,
                               struct weft_buf *has, bool *changed_out, struct weft_errmsg *why) {
    struct weft_buf names;
    weft_buf_init(&names, WEFT_IDENTITY_BYTES_MAX);
    weft_err err = read_identity(config, has, why);
    *changed_out = !err && had && !weft_identity_is(had, weft_buf_cstr(has), &names);
    if (*changed_out)
        err = weft_err_set(why, WEFT_E_STATE,
                           "the files of %s have changed since the server started (%s): start it "
                           "again to serve what is there now",
                           config->model, weft_buf_cstr(&names));
    weft_buf_fini(&names);
    return err;
}

/* Loads the model if it has the identity that an earlier router of this server loaded, if any. The
 * identity is read before and after, so it is that of the files read in between. */
static weft_err load_same_model(struct server *server, struct weft_buf *identity, bool *changed_out,
                                struct weft_errmsg *why) {
    const struct weft_config *config = &server->config;
    struct weft_buf before;
    weft_err err = check_identity(config, config->model_identity, &before, changed_out, why);
    if (!err) err = load_model(server, why);
    if (!err) err = check_identity(config, weft_buf_cstr(&before), identity, changed_out, why);
    weft_buf_fini(&before);
    return err;
}

/* A body that holds more than a quarter of the memory for requests might wait for ever: half of that is for
 * bodies, and half of this for lines of batches. */
static void bound_bodies(struct weft_config *config) {
    char had[WEFT_SIZE_TEXT_BYTES], has[WEFT_SIZE_TEXT_BYTES];
    uint64_t most = config->request_memory / 4;
    if (most == 0 || config->max_body_bytes <= most) return;
    weft_warn("--max-body %s lowered to %s: a quarter of --request-memory",
              weft_size_text(config->max_body_bytes, had), weft_size_text(most, has));
    config->max_body_bytes = most;
}

int main(int argc, char **argv) {
    static struct server server; /* large, and zero */
    struct weft_errmsg why = {""};
    struct weft_config *config = &server.config;
    struct weft_api_state *api = &server.api;
    struct weft_buf identity = {0};
    int signal_fd = -1;
    bool done = false, has_changed = false;
    weft_err err = weft_config_parse(WEFT_PROG_ROUTER, argc, argv, config, &done, &why);
    if (err) return weft_actor_bad_config("router", config, why.text);
    if (done) return EXIT_SUCCESS;
    weft_actor_init("router", config);
    bound_bodies(config);
    char n_threads[16];
    (void)snprintf(n_threads, sizeof n_threads, "%d", WEFT_WORK_THREADS);
    (void)setenv("UV_THREADPOOL_SIZE", n_threads, 1);
    const struct weft_api_settings settings = {
        .model = config->model_root ? config->model_root : config->model,
        .metrics_prefix = config->metrics_prefix,
        .allowed_origins = config->allowed_origins,
        .max_body_bytes = config->max_body_bytes,
        .max_logprob_bytes = config->max_logprob_bytes,
        .request_bytes = config->request_memory,
        .responses_bytes = config->responses_bytes,
        .responses_ttl_s = config->responses_ttl_s,
        .keeps_batches = config->batch_store != NULL,
        .batch_file_bytes = config->batch_file_bytes,
        .request_timeout_ms = config->request_timeout_ms,
        .restart_grace_ms = config->restart_grace_ms,
        .max_queue = config->max_queue,
        .prefix_cache = !config->no_prefix_cache,
        .prefix_cache_per_key = config->prefix_cache_per_key,
        .started_s = (int64_t)time(NULL),
    };
    weft_api_init(api, &settings); /* before there are threads */
    err = weft_signals_init(config->status_fd >= 0, &signal_fd, &why);
    if (!err) err = wefti_load_keys(&server, WEFT_FILE_ANY, &why);
    if (!err) err = load_same_model(&server, &identity, &has_changed, &why);
    server.schedulers.options = weft_link_config(config);
    if (!err)
        err = wefti_scheduler_links_open(&server.schedulers, api, config->scheduler_url, &why);
    if (!err) err = wefti_server_init(&server, signal_fd, &why);
    if (!err && config->batch_fd < 0) err = wefti_replace_or_listen(&server, &why);
    if (err) { /* the system frees what `server` holds */
        weft_buf_fini(&identity);
        int status = weft_actor_fail(config, why.text);
        return has_changed ? WEFT_EXIT_FINAL : status;
    }
    server.identity = weft_buf_cstr(&identity);
    wefti_server_run(&server);
    wefti_server_fini(&server);
    wefti_scheduler_links_close(&server.schedulers);
    weft_api_fini(api);
    weft_buf_fini(&identity);
    (void)close(signal_fd);
    if (server.has_failed) {
        int status = weft_actor_fail(config, server.failure.text);
        return server.batches.job.has_failed ? WEFT_EXIT_FINAL : status;
    }
    weft_actor_stopped(config);
    return EXIT_SUCCESS;
}
