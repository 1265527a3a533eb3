/* What one setting says of another, and words of which a setting has few. */
#include "config_internal.h"

#include <ctype.h>
#include <string.h>

#include "base/limits.h"
#include "base/parse.h"

static bool is_one_of(const char *text, const char *const *names) {
    while (*names && strcmp(*names, text) != 0)
        names++;
    return *names != NULL;
}

/* What Prometheus takes for a name's beginning. */
static bool is_metric_prefix(const char *text) {
    for (const char *p = text; *p; p++) {
        bool is_letter = isalpha((unsigned char)*p) || *p == '_' || *p == ':';
        if (!is_letter && (p == text || !isdigit((unsigned char)*p))) return false;
    }
    return strlen(text) <= 64;
}

/* "*", or origins as browsers send them: scheme://host[:port], or "null". Empty: none. */
static bool is_origin_list(const char *text) {
    if (!strcmp(text, "*")) return true;
    while (*text) {
        text += strspn(text, " ");
        size_t n = strcspn(text, ", ");
        const char *host = strstr(text, "://");
        bool is_null = n == 4 && !memcmp(text, "null", 4);
        if (!is_null && (!host || host == text || host + 3 >= text + n)) return false;
        text += n;
        text += strspn(text, " ");
        if (*text && *text++ != ',') return false;
    }
    return true;
}

static weft_err take_workers(struct weft_config *c, struct weft_errmsg *why) {
    if (!c->workers || !strcmp(c->workers, "auto")) return WEFT_OK;
    uint64_t n = 0;
    if (weft_parse_u64(c->workers, WEFT_WORKERS_MAX, &n) || n == 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--workers: \"%s\" is neither auto nor a number from 1 to %d",
                            c->workers, WEFT_WORKERS_MAX);
    c->n_workers = (uint32_t)n;
    return WEFT_OK;
}

weft_err wefti_config_check(const struct wefti_config_program *program, struct weft_config *c,
                            struct weft_errmsg *why) {
    static const char *const formats[] = {"text", "json", NULL};
    static const char *const access_formats[] = {"off", "text", "json", NULL};
    static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
    static const char *const layouts[] = {"replica", NULL};
    static const char *const whens[] = {"auto", "on", "off", NULL};
    static const char *const links[] = {"abstract", "ipc", "tcp", "tls", NULL};
    if (program->takes_model && (!c->model || !*c->model))
        return weft_err_set(why, WEFT_E_INVAL, "no %s given; usage: %s",
                            program->bit == WEFT_PROG_BENCH_SERVE ? "URL" : "MODEL",
                            program->usage);
    if (!is_one_of(c->log_format, formats))
        return weft_err_set(why, WEFT_E_INVAL, "--log-format is text or json, not \"%s\"",
                            c->log_format);
    if (c->access_log && !is_one_of(c->access_log, access_formats))
        return weft_err_set(why, WEFT_E_INVAL, "--access-log is off, text or json, not \"%s\"",
                            c->access_log);
    if (!is_one_of(c->log_level, levels))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--log-level is debug, info, warn or error, not \"%s\"", c->log_level);
    if (c->block_size % 16)
        return weft_err_set(why, WEFT_E_INVAL, "--block-size must be a multiple of 16, got %u",
                            c->block_size);
    if (c->metrics_prefix && !is_metric_prefix(c->metrics_prefix))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--metrics-prefix is up to 64 letters, digits, \"_\" and \":\", not "
                            "\"%s\"",
                            c->metrics_prefix);
    if (c->expert_metrics && !is_one_of(c->expert_metrics, whens))
        return weft_err_set(why, WEFT_E_INVAL, "--expert-metrics is auto, on or off, not \"%s\"",
                            c->expert_metrics);
    if (c->port && c->port == c->rpc_port && !c->no_rpc)
        return weft_err_set(why, WEFT_E_INVAL, "--port and --rpc-port are both %u", c->port);
    if (c->allowed_origins && !is_origin_list(c->allowed_origins))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--allowed-origins is \"*\" or origins such as https://example.org, "
                            "separated by commas, not \"%s\"",
                            c->allowed_origins);
    if (c->layout && !strcmp(c->layout, "tp"))
        return weft_err_set(why, WEFT_E_UNSUPPORTED, "--layout tp is not supported yet");
    if (c->layout && !is_one_of(c->layout, layouts))
        return weft_err_set(why, WEFT_E_INVAL, "--layout is replica, not \"%s\"", c->layout);
    if (c->link && !is_one_of(c->link, links))
        return weft_err_set(why, WEFT_E_INVAL, "--link is abstract, ipc, tcp or tls, not \"%s\"",
                            c->link);
    return take_workers(c, why);
}
