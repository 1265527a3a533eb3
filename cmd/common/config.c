/* One table, three sources. A setting is set by the first source that names it, from the strongest
 * to the weakest: flags, environment, file, default. Each source is a list of (name, text) pairs
 * that go through the same conversion, so an error reads the same wherever the text came from. */
#include "config_internal.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/parse.h"

/* The list's programs, and groups of them. */
enum {
    SERVE = WEFT_PROG_SERVE,
    ROUTER = WEFT_PROG_ROUTER,
    SCHEDULER = WEFT_PROG_SCHEDULER,
    WORKER = WEFT_PROG_WORKER,
    RUN = WEFT_PROG_RUN,
    BENCH = WEFT_PROG_BENCH,
    PACK = WEFT_PROG_PACK,
    BENCH_SERVE = WEFT_PROG_BENCH_SERVE,
    FRONT = SERVE | ROUTER,
    LOCAL = RUN | WEFT_PROG_PERPLEXITY | BENCH,
    ENGINE = SERVE | WORKER | LOCAL,
    ACTORS = ROUTER | SCHEDULER | WORKER,
    EVERY = SERVE | ACTORS | LOCAL | PACK | BENCH_SERVE,
    SECRET = SERVE | ROUTER | BENCH_SERVE,
    QUANTISERS = WEFT_PROG_PERPLEXITY | PACK,
};

#define ARG_F32 "X"
#define ARG_U32 "N"
#define SETTING(field, kind, name, programs, least, most, value, arg, help)                        \
    {name,                                                                                         \
     WEFTI_CONFIG_##kind,                                                                          \
     offsetof(struct weft_config, field),                                                          \
     programs,                                                                                     \
     least,                                                                                        \
     most,                                                                                         \
     value,                                                                                        \
     arg,                                                                                          \
     help},
#define KNOB(kind, field, flag, value, least, most, api_least, api_most, help)                     \
    {flag,                                                                                         \
     WEFTI_CONFIG_##kind,                                                                          \
     offsetof(struct weft_config, field),                                                          \
     RUN,                                                                                          \
     least,                                                                                        \
     most,                                                                                         \
     #value,                                                                                       \
     ARG_##kind,                                                                                   \
     help},
static const struct wefti_config_setting settings[] = {WEFT_SETTINGS(SETTING, KNOB)};
#define N_SETTINGS (sizeof settings / sizeof settings[0])

static const struct wefti_config_program programs[] = {
    {WEFT_PROG_SERVE, "weft serve MODEL [options]",
     "Serves a model over HTTP (OpenAI's API) and MessagePack-RPC.", true},
    {WEFT_PROG_ROUTER, "weft-router MODEL --scheduler-url URL [options]",
     "Takes requests; weft serve starts it.", true},
    {WEFT_PROG_SCHEDULER, "weft-scheduler --scheduler-url URL --worker-url URL [options]",
     "Plans steps; weft serve starts it.", false},
    {WEFT_PROG_WORKER, "weft-worker MODEL --worker-url URL [options]",
     "Computes steps; weft serve starts it.", true},
    {WEFT_PROG_RUN, "weft run MODEL -p TEXT | --prompt-ids 1,2,3 [options]",
     "One completion, without a server.", true},
    {WEFT_PROG_PERPLEXITY, "weft perplexity MODEL FILE [options]",
     "How well a model predicts a text.", true},
    {WEFT_PROG_BENCH, "weft bench MODEL [--prompt LIST] [--gen N] [--batch LIST] [options]",
     "Speed of prompt and generation, beside what the machine can do.", true},
    {WEFT_PROG_PACK, "weft pack MODEL OUT [--dtype TYPE] [options]",
     "Writes a model as the engine wants it in memory: one file that starts at once.", true},
    {WEFT_PROG_BENCH_SERVE, "weft bench-serve URL [--concurrency N] [--requests N] [options]",
     "Loads a server of OpenAI's API with streaming clients: rates and waiting times.", true},
};

static void print_help(const struct wefti_config_program *program) {
    printf("usage: %s\n\n%s\n\n", program->usage, program->about);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct wefti_config_setting *s = &settings[i];
        if (!(s->programs & program->bit)) continue;
        char left[64];
        (void)snprintf(left, sizeof left, "--%s%s%s", s->name, s->arg ? " " : "",
                       s->arg ? s->arg : "");
        printf("  %-30s %s%s%s%s\n", left, s->help, s->value ? " (" : "", s->value ? s->value : "",
               s->value ? ")" : "");
    }
    printf("  %-30s %s\n", "--config FILE", "settings, one \"name = value\" per line");
    printf(
        "\nEach setting can also stand in the environment: --max-num-seqs as WEFT_MAX_NUM_SEQS.\n");
}

static weft_err bad_value(const struct wefti_config_setting *s, const char *called,
                          const char *text, struct weft_errmsg *why) {
    if (s->kind == WEFTI_CONFIG_SIZE)
        return weft_err_set(why, WEFT_E_INVAL, "%s: \"%s\" is not a size such as 512MiB, in range",
                            called, text);
    return weft_err_set(why, WEFT_E_INVAL, "%s: \"%s\" is not a number from %.15g to %.15g", called,
                        text, s->min, s->max);
}

weft_err wefti_config_set(struct weft_config *config, const struct wefti_config_setting *s,
                          const char *called, const char *text, struct weft_errmsg *why) {
    char *at = (char *)config + s->offset;
    uint64_t u = 0;
    double d = 0;
    bool flag = false;
    weft_err err = WEFT_OK;
    switch (s->kind) {
    case WEFTI_CONFIG_TEXT:
        *(const char **)(void *)at = text;
        return WEFT_OK;
    case WEFTI_CONFIG_FLAG:
        if (weft_parse_bool(text, &flag))
            return weft_err_set(why, WEFT_E_INVAL, "%s: \"%s\" is neither true nor false", called,
                                text);
        *(bool *)at = flag;
        return WEFT_OK;
    case WEFTI_CONFIG_F32:
        err = weft_parse_double(text, &d);
        if (err || d < s->min || d > s->max) return bad_value(s, called, text, why);
        *(double *)(void *)at = d;
        return WEFT_OK;
    case WEFTI_CONFIG_I32:
    case WEFTI_CONFIG_FD:
        err = weft_parse_double(text, &d);
        if (err || d < s->min || d > s->max || d != (double)(int32_t)d)
            return bad_value(s, called, text, why);
        *(int32_t *)(void *)at = (int32_t)d;
        return WEFT_OK;
    case WEFTI_CONFIG_SIZE:
        err = weft_parse_size(text, &u);
        if (err || (double)u < s->min || (double)u > s->max) return bad_value(s, called, text, why);
        *(uint64_t *)(void *)at = u;
        return WEFT_OK;
    case WEFTI_CONFIG_U64:
        err = weft_parse_u64(text, UINT64_MAX, &u);
        if (err)
            return weft_err_set(why, WEFT_E_INVAL, "%s: \"%s\" is not a whole number", called,
                                text);
        *(uint64_t *)(void *)at = u;
        return WEFT_OK;
    case WEFTI_CONFIG_U32:
        err = weft_parse_u64(text, (uint64_t)s->max, &u);
        if (err || (double)u < s->min) return bad_value(s, called, text, why);
        *(uint32_t *)(void *)at = (uint32_t)u;
        return WEFT_OK;
    }
    return WEFT_E_INVAL;
}

const struct wefti_config_setting *wefti_config_find(unsigned wanted, struct weft_str name) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct wefti_config_setting *s = &settings[i];
        if ((s->programs & wanted) && strlen(s->name) == name.len &&
            !memcmp(s->name, name.data, name.len))
            return s;
    }
    return NULL;
}

/* All is 0, false or NULL, and descriptors are -1: 0 would be one. */
static void clear(struct weft_config *config) {
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (settings[i].kind == WEFTI_CONFIG_FD)
            *(int32_t *)(void *)((char *)config + settings[i].offset) = -1;
    }
}

static weft_err set_defaults(enum weft_program program, struct weft_config *config,
                             struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < N_SETTINGS && !err; i++) {
        const struct wefti_config_setting *s = &settings[i];
        if (s->programs & program && s->value)
            err = wefti_config_set(config, s, s->name, s->value, why);
    }
    return err;
}

static weft_err set_from_env(enum weft_program program, struct weft_config *config,
                             struct weft_errmsg *why) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct wefti_config_setting *s = &settings[i];
        /* Descriptors mean something to one supervisor and its child only. */
        if (!(s->programs & program) || s->kind == WEFTI_CONFIG_FD) continue;
        char name[64] = "WEFT_";
        size_t n = strlen(name);
        for (const char *p = s->name; *p && n < sizeof name - 1; p++)
            name[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
        name[n] = '\0';
        const char *text = getenv(name);
        if (!text) continue;
        /* Kubernetes puts WEFT_PORT=tcp://... into every pod beside a service named weft. */
        if (strncmp(text, "tcp://", 6) == 0 && s->kind != WEFTI_CONFIG_TEXT) continue;
        weft_err err = wefti_config_set(config, s, name, text, why);
        if (err) return err;
    }
    return WEFT_OK;
}

/* Short and second names people type. Moves *name_len to the end of the typed one. */
static const char *full_name(enum weft_program program, const char *typed, size_t *name_len) {
    static const struct {
        enum weft_program program;
        const char *typed, *full;
    } names[] = {
        {WEFT_PROG_RUN, "-p", "--prompt"},
        {WEFT_PROG_RUN, "-n", "--n-predict"},
        {WEFT_PROG_BENCH, "--prompt", "--bench-prompt"},
        {WEFT_PROG_BENCH, "--rounds", "--reps"},
    };
    *name_len = strcspn(typed, "=");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].program == program && strlen(names[i].typed) == *name_len &&
            !memcmp(names[i].typed, typed, *name_len))
            return names[i].full;
    }
    return typed;
}

enum ask { ASK_NOTHING, ASK_HELP, ASK_VERSION };

/* A command line that is read. */
struct args {
    const struct wefti_config_program *program;
    int argc, next; /* argv[next] is read next */
    char **argv;
    struct weft_config *config; /* NULL: only --config, --help and --version are looked for */
    const char *config_file;    /* NULL: none */
    enum ask ask;
    struct weft_errmsg *why;
};

/* One flag, with its value. */
static weft_err take_flag(struct args *args) {
    const char *typed = args->argv[args->next++];
    size_t typed_len;
    const char *arg = full_name(args->program->bit, typed, &typed_len);
    const char *value = typed[typed_len] == '=' ? typed + typed_len + 1 : NULL;
    if (!strcmp(arg, "--help") || !strcmp(arg, "-h") || !strcmp(arg, "--version")) {
        args->ask = !strcmp(arg, "--version") ? ASK_VERSION : ASK_HELP;
        return WEFT_OK;
    }
    if (arg[0] != '-' || arg[1] != '-')
        return weft_err_set(args->why, WEFT_E_INVAL, "unknown flag %s (try --help)", typed);
    const struct weft_str name = {arg + 2, strcspn(arg + 2, "=")};
    bool is_config = name.len == 6 && !memcmp(name.data, "config", 6);
    const struct wefti_config_setting *s =
        is_config ? NULL : wefti_config_find(args->program->bit, name);
    if (!s && !is_config)
        return weft_err_set(args->why, WEFT_E_INVAL, "unknown flag --%.*s (try --help)",
                            (int)name.len, name.data);
    if (s && s->kind == WEFTI_CONFIG_FLAG) {
        value = value ? value : "true";
    } else if (!value) {
        if (args->next >= args->argc)
            return weft_err_set(args->why, WEFT_E_INVAL, "--%.*s needs a value", (int)name.len,
                                name.data);
        value = args->argv[args->next++];
    }
    if (is_config) {
        args->config_file = value;
        return WEFT_OK;
    }
    if (!args->config) return WEFT_OK;
    char called[64];
    (void)snprintf(called, sizeof called, "--%s", s->name);
    return wefti_config_set(args->config, s, called, value, args->why);
}

/* What is no flag: MODEL and what may follow it. */
static weft_err take_word(struct args *args) {
    const char *word = args->argv[args->next++];
    const struct wefti_config_program *program = args->program;
    struct weft_config *config = args->config;
    if (!config) return WEFT_OK;
    if (program->takes_model && !config->model)
        config->model = word;
    else if (program->bit == WEFT_PROG_PERPLEXITY && !config->prompt)
        config->prompt = word;
    else if (program->bit == WEFT_PROG_PACK && !config->out)
        config->out = word;
    else
        return weft_err_set(args->why, WEFT_E_INVAL, "unexpected argument \"%s\"", word);
    return WEFT_OK;
}

/* All arguments. Called twice: first for --config, --help and --version alone. */
static weft_err take_args(struct args *args) {
    weft_err err = WEFT_OK;
    for (args->next = 1; !err && args->next < args->argc;) {
        const char *arg = args->argv[args->next];
        err = arg[0] == '-' && arg[1] ? take_flag(args) : take_word(args);
    }
    return err;
}

/* How to say that something else is wrong. */
static const char *format_asked_for(int argc, char **argv) {
    static const char flag[] = "--log-format";
    const char *format = getenv("WEFT_LOG_FORMAT");
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], flag, sizeof flag - 1) != 0) continue;
        if (argv[i][sizeof flag - 1] == '=') format = argv[i] + sizeof flag;
        if (argv[i][sizeof flag - 1] == '\0' && i + 1 < argc) format = argv[i + 1];
    }
    return format;
}

weft_err weft_config_parse(enum weft_program bit, int argc, char **argv, struct weft_config *config,
                           bool *done_out, struct weft_errmsg *why) {
    const struct wefti_config_program *program = programs;
    while (program->bit != bit)
        program++;
    struct args args = {program, argc, 1, argv, NULL, getenv("WEFT_CONFIG"), ASK_NOTHING, why};
    clear(config);
    config->program = bit;
    config->argc = argc;
    config->argv = argv;
    *done_out = false;
    weft_err err = take_args(&args);
    if (err) config->log_format = format_asked_for(argc, argv);
    if (err) return err;
    if (args.ask == ASK_HELP) print_help(program);
    if (args.ask == ASK_VERSION) printf("weft %s\n", WEFT_VERSION);
    *done_out = args.ask != ASK_NOTHING;
    if (*done_out) return WEFT_OK;
    err = set_defaults(bit, config, why);
    if (!err && args.config_file) err = wefti_config_read_file(bit, args.config_file, config, why);
    if (!err) err = set_from_env(bit, config, why);
    args.config = config;
    if (!err) err = take_args(&args);
    if (!err) err = wefti_config_check(program, config, why);
    if (err) config->log_format = format_asked_for(argc, argv);
    return err;
}

static const char *text_of(const struct weft_config *config, const struct wefti_config_setting *s) {
    WEFT_ASSERT(s->kind == WEFTI_CONFIG_TEXT);
    return *(const char *const *)(const void *)((const char *)config + s->offset);
}

/* NULL: no memory. */
static char *print_setting(const struct weft_config *config, const struct wefti_config_setting *s) {
    const char *at = (const char *)config + s->offset;
    char *arg = NULL;
    int n = -1;
    switch (s->kind) {
    case WEFTI_CONFIG_TEXT:
        n = asprintf(&arg, "--%s=%s", s->name, text_of(config, s));
        break;
    case WEFTI_CONFIG_U32:
        n = asprintf(&arg, "--%s=%u", s->name, *(const uint32_t *)(const void *)at);
        break;
    case WEFTI_CONFIG_I32:
    case WEFTI_CONFIG_FD:
        n = asprintf(&arg, "--%s=%d", s->name, *(const int32_t *)(const void *)at);
        break;
    case WEFTI_CONFIG_U64:
    case WEFTI_CONFIG_SIZE:
        n = asprintf(&arg, "--%s=%llu", s->name,
                     (unsigned long long)*(const uint64_t *)(const void *)at);
        break;
    case WEFTI_CONFIG_F32:
        n = asprintf(&arg, "--%s=%.17g", s->name, *(const double *)(const void *)at);
        break;
    case WEFTI_CONFIG_FLAG:
        n = asprintf(&arg, "--%s=%s", s->name, *(const bool *)at ? "true" : "false");
        break;
    }
    return n < 0 ? NULL : arg;
}

uint32_t weft_config_argv(const struct weft_config *config, enum weft_program program,
                          char **argv_out, uint32_t max) {
    uint32_t n = 0;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct wefti_config_setting *s = &settings[i];
        if (!(s->programs & program)) continue;
        if (!strcmp(s->name, "api-key")) continue; /* argv is public in /proc */
        if (s->kind == WEFTI_CONFIG_TEXT && !text_of(config, s)) continue; /* unset */
        WEFT_ASSERT(n < max);
        argv_out[n] = print_setting(config, s);
        if (!argv_out[n]) goto no_memory;
        n++;
    }
    return n;
no_memory: /* a child with settings missing would run, and differently */
    while (n > 0)
        free(argv_out[--n]);
    return 0;
}
