/* One table, three sources. A setting is set by the first source that names it, from the strongest
 * to the weakest: flags, environment, file, default. Each source is a list of (name, text) pairs
 * that go through the same conversion, so an error reads the same wherever the text came from. */
#include "config_internal.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/parse.h"
#include "common/nearest.h"

static weft_err bad_value(const struct wefti_config_setting *s, const char *called,
                          const char *text, struct weft_errmsg *why) {
    if (s->kind == WEFTI_CONFIG_SIZE)
        return weft_err_set(why, WEFT_E_INVAL,
                            "%s: \"%s\" is not a size such as 512MiB, from %.15g to %.15g bytes",
                            called, text, s->min, s->max);
    if (s->kind == WEFTI_CONFIG_AUTO)
        return weft_err_set(why, WEFT_E_INVAL,
                            "%s: \"%s\" is neither auto nor a number from %.15g to %.15g", called,
                            text, s->min, s->max);
    return weft_err_set(why, WEFT_E_INVAL, "%s: \"%s\" is not a number from %.15g to %.15g", called,
                        text, s->min, s->max);
}

/* "auto, on or off" of "auto|on|off". */
static void list_words(const char *choices, char *out, size_t out_bytes) {
    size_t n = 0;
    for (const char *word = choices; *word;) {
        size_t len = strcspn(word, "|");
        const char *next = word[len] ? word + len + 1 : word + len;
        const char *before = word == choices ? "" : *next ? ", " : " or ";
        int k = snprintf(out + n, out_bytes - n, "%s%.*s", before, (int)len, word);
        WEFT_ASSERT(k > 0 && (size_t)k < out_bytes - n); /* the table's words are few and short */
        n += (size_t)k;
        word = next;
    }
}

static bool is_word_of(const struct wefti_config_setting *s, const char *text) {
    for (const char *word = s->arg; *word;) {
        size_t len = strcspn(word, "|");
        if (strlen(text) == len && !memcmp(word, text, len)) return true;
        word += len + (word[len] ? 1 : 0);
    }
    return false;
}

/* What a type is called here, of its name in PyTorch, which vLLM takes; or the same. */
static const char *plain_word(const char *text) {
    static const struct {
        const char *torch, *plain;
    } types[] = {
        {"float32", "f32"}, {"float", "f32"}, {"bfloat16", "bf16"},
        {"float16", "f16"}, {"half", "f16"},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (!strcmp(text, types[i].torch)) return types[i].plain;
    }
    return text;
}

static weft_err set_word(const struct wefti_config_setting *s, const char *called, const char *text,
                         const char **out, struct weft_errmsg *why) {
    char words[128];
    *out = is_word_of(s, text) ? text : plain_word(text);
    if (is_word_of(s, *out)) return WEFT_OK;
    list_words(s->arg, words, sizeof words);
    return weft_err_set(why, WEFT_E_INVAL, "%s is %s, not \"%s\"", called, words, text);
}

/* Behind the lines that are there. */
static weft_err add_line(const char **lines, const char *text, const char *called,
                         struct weft_errmsg *why) {
    char *both = NULL;
    if (*lines) {
        if (asprintf(&both, "%s\n%s", *lines, text) < 0) both = NULL;
        text = both ? wefti_config_keep(both) : NULL;
        free(both);
    }
    if (!text) return weft_err_set(why, WEFT_E_NOMEM, "%s: no memory", called);
    *lines = text;
    return WEFT_OK;
}

weft_err wefti_config_set(struct weft_config *config, const struct wefti_config_setting *s,
                          const char *called, const char *text, struct weft_errmsg *why) {
    char *at = (char *)config + s->offset;
    bool *given = (bool *)(void *)((char *)config + s->given), was_given = *given;
    *given = true;
    uint64_t u = 0;
    double d = 0;
    bool flag = false;
    weft_err err = WEFT_OK;
    switch (s->kind) {
    case WEFTI_CONFIG_WORD:
        return set_word(s, called, text, (const char **)(void *)at, why);
    case WEFTI_CONFIG_TEXT:
        *(const char **)(void *)at = text;
        return WEFT_OK;
    case WEFTI_CONFIG_LIST:
        if (!was_given) *(const char **)(void *)at = NULL;
        return add_line((const char **)(void *)at, text, called, why);
    case WEFTI_CONFIG_TEXTS:
        return add_line((const char **)(void *)at, text, called, why);
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
    case WEFTI_CONFIG_AUTO:
    case WEFTI_CONFIG_U32:
        if (s->kind == WEFTI_CONFIG_AUTO && !strcmp(text, "auto")) {
            *(uint32_t *)(void *)at = WEFT_CONFIG_AUTO;
            return WEFT_OK;
        }
        err = weft_parse_u64(text, (uint64_t)s->max, &u);
        if (err || (double)u < s->min) return bad_value(s, called, text, why);
        *(uint32_t *)(void *)at = (uint32_t)u;
        return WEFT_OK;
    }
    return WEFT_E_INVAL;
}

/* All is 0, false or NULL, and descriptors are -1: 0 would be one. */
static void clear(struct weft_config *config) {
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < wefti_config_n_settings; i++) {
        if (wefti_config_settings[i].kind == WEFTI_CONFIG_FD)
            *(int32_t *)(void *)((char *)config + wefti_config_settings[i].offset) = -1;
    }
}

/* Of what `program` knows, and `but` does not. */
static weft_err set_defaults(enum weft_program program, unsigned but, struct weft_config *config,
                             struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < wefti_config_n_settings && !err; i++) {
        const struct wefti_config_setting *s = &wefti_config_settings[i];
        if (s->programs & program && !(s->programs & but) && s->value)
            err = wefti_config_set(config, s, s->name, s->value, why);
    }
    return err;
}

weft_err weft_config_fill(struct weft_config *config, enum weft_program program,
                          struct weft_errmsg *why) {
    const struct weft_config before = *config;
    weft_err err = set_defaults(program, config->program, config, why);
    config->given = before.given;
    return err;
}

/* Of its name, or else of the one it had once; *name_out is the variable's. NULL: neither is there. */
static const char *find_variable(const struct wefti_config_setting *s,
                                 char name_out[WEFTI_CONFIG_NAME_BYTES]) {
    const char *former = wefti_config_former(s);
    wefti_config_variable(s->name, name_out);
    const char *text = getenv(name_out);
    if (text || !former) return text;
    wefti_config_variable(former, name_out);
    return getenv(name_out);
}

static weft_err set_from_env(enum weft_program program, struct weft_config *config,
                             struct weft_errmsg *why) {
    for (size_t i = 0; i < wefti_config_n_settings; i++) {
        const struct wefti_config_setting *s = &wefti_config_settings[i];
        char name[WEFTI_CONFIG_NAME_BYTES];
        /* Descriptors mean something to one supervisor and its child only. */
        if (!(s->programs & program) || s->kind == WEFTI_CONFIG_FD) continue;
        const char *text = find_variable(s, name);
        if (!text || (wefti_config_is_number(s) && wefti_config_is_service_url(text))) continue;
        weft_err err = wefti_config_set(config, s, name, text, why);
        if (err) return err;
    }
    return WEFT_OK;
}

/* Moves *name_len to the end of the typed name, and gives the full one. */
static const char *full_name(enum weft_program program, const char *typed, size_t *name_len) {
    *name_len = strcspn(typed, "=");
    for (const struct wefti_config_alias *a = wefti_config_aliases; a->typed; a++) {
        if (a->programs & program && strlen(a->typed) == *name_len &&
            !memcmp(a->typed, typed, *name_len))
            return a->full;
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

/* What another server's flag is called here, if this program has that. */
static const char *foreign_flag(const struct args *args, struct weft_str typed) {
    const char *here = weft_nearest_foreign(typed);
    if (!here || here[0] != '-') return here;
    for (size_t i = 0; i < wefti_config_n_settings; i++) {
        const struct wefti_config_setting *s = &wefti_config_settings[i];
        if (s->programs & args->program->bit && !strcmp(here + 2, s->name)) return here;
    }
    return NULL;
}

/* Names that somebody may have meant: "--port", "--rounds". */
static weft_err unknown_flag(const struct args *args, const char *typed, size_t typed_len) {
    struct weft_nearest nearest;
    weft_nearest_init(&nearest, (struct weft_str){typed, typed_len});
    for (size_t i = 0; i < wefti_config_n_settings; i++) {
        const struct wefti_config_setting *s = &wefti_config_settings[i];
        char flag[WEFTI_CONFIG_NAME_BYTES];
        if (!(s->programs & args->program->bit)) continue;
        (void)snprintf(flag, sizeof flag, "--%s", s->name);
        weft_nearest_offer(&nearest, flag);
    }
    for (const struct wefti_config_alias *a = wefti_config_aliases; a->typed; a++) {
        if (a->programs & args->program->bit) weft_nearest_offer(&nearest, a->typed);
    }
    weft_nearest_offer(&nearest, "--config");
    weft_nearest_offer(&nearest, "--help");
    weft_nearest_offer(&nearest, "--version");
    const char *meant = weft_nearest_name(&nearest);
    const char *here = foreign_flag(args, (struct weft_str){typed, typed_len});
    if (here)
        return weft_err_set(args->why, WEFT_E_INVAL, "unknown flag %.*s (%s%s)", (int)typed_len,
                            typed, here[0] == '-' ? "here it is " : "", here);
    return weft_err_set(args->why, WEFT_E_INVAL, "unknown flag %.*s (%s%s%s)", (int)typed_len,
                        typed, meant ? "did you mean " : "try --help", meant ? meant : "",
                        meant ? "?" : "");
}

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
    if (arg[0] != '-' || arg[1] != '-') return unknown_flag(args, typed, typed_len);
    const struct weft_str name = {arg + 2, strcspn(arg + 2, "=")};
    bool is_config = name.len == 6 && !memcmp(name.data, "config", 6);
    const struct wefti_config_setting *s =
        is_config ? NULL : wefti_config_find(args->program->bit, name);
    if (!s && !is_config) return unknown_flag(args, typed, typed_len);
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
    if (!args->config) return WEFT_OK;
    for (uint32_t i = 0; i < WEFTI_CONFIG_WORDS_MAX && args->program->words[i].name; i++) {
        const char **at = (void *)((char *)args->config + args->program->words[i].offset);
        if (*at) continue;
        *at = word;
        return WEFT_OK;
    }
    static const struct weft_str prompt = {"prompt", sizeof "prompt" - 1};
    const bool is_asked = wefti_config_find(args->program->bit, prompt) != NULL;
    return weft_err_set(args->why, WEFT_E_INVAL, "unexpected argument \"%s\"%s", word,
                        is_asked ? " (a prompt goes behind --prompt)" : "");
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

/* A list of this source takes the place of a weaker one's, as other settings do. */
static void begin_source(struct weft_config *config) {
    for (size_t i = 0; i < wefti_config_n_settings; i++) {
        const struct wefti_config_setting *s = &wefti_config_settings[i];
        if (s->kind == WEFTI_CONFIG_LIST) *(bool *)(void *)((char *)config + s->given) = false;
    }
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
    const struct wefti_config_program *program = wefti_config_program(bit);
    struct args args = {program, argc, 1, argv, NULL, getenv("WEFT_CONFIG"), ASK_NOTHING, why};
    clear(config);
    config->program = bit;
    config->argc = argc;
    config->argv = argv;
    *done_out = false;
    weft_err err = take_args(&args);
    if (err) config->log_format = format_asked_for(argc, argv);
    if (err) return err;
    if (args.ask == ASK_HELP) weft_config_help(bit, stdout);
    if (args.ask == ASK_VERSION) printf("weft %s\n", WEFT_VERSION);
    *done_out = args.ask != ASK_NOTHING;
    if (*done_out) return WEFT_OK;
    err = set_defaults(bit, 0, config, why);
    memset(&config->given, 0, sizeof config->given);
    if (!err && args.config_file) err = wefti_config_read_file(bit, args.config_file, config, why);
    begin_source(config);
    if (!err) err = set_from_env(bit, config, why);
    begin_source(config);
    args.config = config;
    if (!err) err = take_args(&args);
    if (!err) err = wefti_config_check(program, config, why);
    const char *format = err ? format_asked_for(argc, argv) : NULL;
    if (format) config->log_format = format; /* else that of the file, if it came so far */
    return err;
}

static bool is_text(const struct wefti_config_setting *s) {
    return s->kind == WEFTI_CONFIG_TEXT || s->kind == WEFTI_CONFIG_TEXTS ||
           s->kind == WEFTI_CONFIG_LIST || s->kind == WEFTI_CONFIG_WORD;
}

static const char *text_of(const struct weft_config *config, const struct wefti_config_setting *s) {
    WEFT_ASSERT(is_text(s));
    return *(const char *const *)(const void *)((const char *)config + s->offset);
}

/* NULL: no memory. */
static char *print_setting(const struct weft_config *config, const struct wefti_config_setting *s) {
    const char *at = (const char *)config + s->offset;
    char *arg = NULL;
    int n = -1;
    switch (s->kind) {
    case WEFTI_CONFIG_WORD:
    case WEFTI_CONFIG_TEXT:
    case WEFTI_CONFIG_TEXTS:
    case WEFTI_CONFIG_LIST:
        n = asprintf(&arg, "--%s=%s", s->name, text_of(config, s));
        break;
    case WEFTI_CONFIG_AUTO:
    case WEFTI_CONFIG_U32:
        if (s->kind == WEFTI_CONFIG_AUTO && *(const uint32_t *)(const void *)at == WEFT_CONFIG_AUTO)
            n = asprintf(&arg, "--%s=auto", s->name);
        else
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
    for (size_t i = 0; i < wefti_config_n_settings; i++) {
        const struct wefti_config_setting *s = &wefti_config_settings[i];
        if (!(s->programs & program)) continue;
        if (!strcmp(s->name, "api-key")) continue;       /* argv is public in /proc */
        if (is_text(s) && !text_of(config, s)) continue; /* unset */
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
