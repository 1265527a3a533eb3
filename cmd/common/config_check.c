/* What one setting says of another, and words of which a setting has few. */
#include "config_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

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
    struct weft_str origin;
    for (const char *at = *text ? text : NULL; weft_parse_member(&at, ",", &origin);) {
        const char *end = origin.data + origin.len;
        const char *host = memmem(origin.data, origin.len, "://", 3);
        if (memchr(origin.data, ' ', origin.len)) return false;
        if (!WEFT_STR_IS(origin, "null") && (!host || host == origin.data || host + 3 >= end))
            return false;
    }
    return true;
}

static bool ends_with(const char *text, size_t len, const char *end) {
    size_t n = strlen(end);
    return len > n && !memcmp(text + len - n, end, n);
}

/* Leaves out "-00001-of-00003" at the end. */
static size_t without_part(const char *text, size_t len) {
    static const char pattern[] = "-ddddd-of-ddddd";
    size_t n = strlen(pattern);
    if (len <= n) return len;
    for (size_t i = 0; i < n; i++) {
        char c = text[len - n + i];
        if (pattern[i] == 'd' ? !isdigit((unsigned char)c) : c != pattern[i]) return len;
    }
    return len - n;
}

/* What clients call a model that nobody gave a name: its folder, or its file without .gguf and the
 * like. Where a path ends in "." or "..", the folder that it is. The path itself if there is nothing
 * better. */
static const char *name_of(const char *path) {
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    size_t begin = len;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    size_t n = len - begin;
    if (n == 0 || (n <= 2 && !memcmp(path + begin, "..", n))) {
        char *real = realpath(path, NULL);
        const char *slash = real ? strrchr(real, '/') : NULL;
        const char *name = slash && slash[1] ? wefti_config_keep(slash + 1) : NULL;
        free(real);
        return name ? name : path;
    }
    if (ends_with(path + begin, n, ".gguf"))
        n = without_part(path + begin, n - strlen(".gguf"));
    else if (ends_with(path + begin, n, ".weft"))
        n -= strlen(".weft");
    char *copy = strndup(path + begin, n);
    const char *name = copy ? wefti_config_keep(copy) : NULL;
    free(copy);
    return name ? name : path;
}

/* A comma would part it into several. */
static const char *one_name(const char *name) {
    if (!strchr(name, ',')) return name;
    char *copy = strdup(name);
    for (char *p = copy; p && *p; p++) {
        if (*p == ',') *p = '_';
    }
    const char *kept = copy ? wefti_config_keep(copy) : NULL;
    free(copy);
    return kept ? kept : name;
}

static bool divides_a_model(uint32_t n) {
    return n == 1 || n == 2 || n == 4 || n == 8;
}

/* As --workers says it, or --cpus, which has a list for each; 0: the machine's nodes decide. */
static uint32_t workers_asked_for(const struct weft_config *c) {
    if (c->n_workers != WEFT_CONFIG_AUTO) return c->n_workers;
    uint32_t n = c->cpus ? 1 : 0;
    for (const char *at = c->cpus; at && *at; at++)
        n += *at == '/';
    return n;
}

/* What does not depend on the machine. */
static weft_err check_groups(const struct weft_config *c, struct weft_errmsg *why) {
    bool divides = c->layout && !strcmp(c->layout, "tp");
    uint32_t n_workers = c->layout ? workers_asked_for(c) : 0;
    if (c->n_ranks && !divides_a_model(c->n_ranks))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--tp divides a model among 2, 4 or 8 workers, not %u", c->n_ranks);
    if (divides && n_workers && !c->n_ranks && !divides_a_model(n_workers))
        return weft_err_set(why, WEFT_E_INVAL, WEFT_CONFIG_LAYOUT_WHY, n_workers);
    if (n_workers && c->n_ranks && n_workers % c->n_ranks && c->n_workers == WEFT_CONFIG_AUTO)
        return weft_err_set(
            why, WEFT_E_INVAL,
            "--cpus has %u list%s, one for each worker: no groups of %u, as --tp asks", n_workers,
            n_workers > 1 ? "s" : "", c->n_ranks);
    if (n_workers && c->n_ranks && n_workers % c->n_ranks)
        return weft_err_set(why, WEFT_E_INVAL, WEFT_CONFIG_GROUPS_WHY, n_workers,
                            n_workers > 1 ? "s are" : " is", c->n_ranks);
    if ((c->speculative_model || c->speculative_mtp) && (divides || c->n_ranks > 1))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--speculative-%s is for workers that have a model each, not for "
                            "--layout tp; --speculative-ngram is for both",
                            c->speculative_model ? "model" : "mtp");
    if (c->layout && !strcmp(c->layout, "replica") && c->n_ranks > 1)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--tp %u divides a model, which --layout replica does not", c->n_ranks);
    if (c->lora && (divides || c->n_ranks > 1))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--lora: adapters are not supported where workers divide a model "
                            "(--layout tp, --tp)");
    return WEFT_OK;
}

static weft_err check_quantising(const struct weft_config *c, struct weft_errmsg *why) {
    if (c->mixed_keep >= 0 && !c->mixed)
        return weft_err_set(why, WEFT_E_INVAL, "--mixed-keep is for --mixed");
    if (c->mixed && !c->calibrate)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--mixed needs a text to measure on: --calibrate FILE");
    if (c->calibrate && strcmp(c->dtype, "q8") != 0 && strcmp(c->dtype, "q4") != 0)
        return weft_err_set(why, WEFT_E_INVAL, "--calibrate is for --dtype q8 or q4, not %s",
                            c->dtype);
    return WEFT_OK;
}

weft_err wefti_config_check(const struct wefti_config_program *program, struct weft_config *c,
                            struct weft_errmsg *why) {
    for (uint32_t i = 0; i < WEFTI_CONFIG_WORDS_MAX && program->words[i].name; i++) {
        const char *const *word = (const void *)((const char *)c + program->words[i].offset);
        if (!*word || !**word)
            return weft_err_set(why, WEFT_E_INVAL, "no %s given; usage: %s", program->words[i].name,
                                program->usage);
    }
    if (program->bit == WEFT_PROG_GRAMMAR &&
        !!c->schema + !!c->regex + !!c->gbnf + !!c->lark + !!c->tags != 1)
        return weft_err_set(
            why, WEFT_E_INVAL,
            "one of --schema, --regex, --gbnf, --lark and --tags is needed; usage: %s",
            program->usage);
    if (program->bit == WEFT_PROG_PARSE_OUTPUT && !c->message_format)
        return weft_err_set(why, WEFT_E_INVAL, "no --format given; usage: %s", program->usage);
    if ((program->bit &
         (WEFT_PROG_TEMPLATE | WEFT_PROG_GRAMMAR | WEFT_PROG_PARSE_OUTPUT | WEFT_PROG_SAMPLE)) &&
        !c->cases)
        return weft_err_set(why, WEFT_E_INVAL, "no --cases given; usage: %s", program->usage);
    if (program->bit == WEFT_PROG_RUN_BATCH && !c->batch_file)
        return weft_err_set(why, WEFT_E_INVAL, "no --batch given; usage: %s", program->usage);
    if ((c->batch_fd >= 0) != (c->answers_fd >= 0))
        return weft_err_set(why, WEFT_E_INVAL, "--batch-fd and --answers-fd need each other");
    if (c->speculative_model && c->speculative_mtp)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--speculative-model and --speculative-mtp do the same by different "
                            "means: one of them is enough");
    if (c->speculative_ngram == 1)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--speculative-ngram looks for 2 to %d tokens, not 1; 0 is off",
                            WEFT_SPEC_NGRAM_MAX);
    if (c->block_size % 16)
        return weft_err_set(why, WEFT_E_INVAL, "--block-size must be a multiple of 16, got %u",
                            c->block_size);
    if (c->metrics_prefix && !is_metric_prefix(c->metrics_prefix))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--metrics-prefix is up to 64 letters, digits, \"_\" and \":\", not "
                            "\"%s\"",
                            c->metrics_prefix);
    if (c->port && c->port == c->rpc_port && !c->no_rpc)
        return weft_err_set(why, WEFT_E_INVAL, "--port and --rpc-port are both %u", c->port);
    if (c->replace && !c->port)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--replace needs the --port of the server that runs, not 0");
    if (c->allowed_origins && !is_origin_list(c->allowed_origins))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--allowed-origins is \"*\" or origins such as https://example.org, "
                            "separated by commas, not \"%s\"",
                            c->allowed_origins);
    weft_err err = check_groups(c, why);
    if (!err && program->bit & (WEFT_PROG_PACK | WEFT_PROG_PERPLEXITY))
        err = check_quantising(c, why);
    if (err) return err;
    if (program->bit & (WEFT_PROG_SERVE | WEFT_PROG_RUN_BATCH | WEFT_PROG_ROUTER) &&
        !c->served_model_name)
        c->served_model_name = one_name(name_of(c->model));
    return WEFT_OK;
}
