/* `weft`: the command line as far as all verbs share it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "common/actor.h"

static const struct {
    enum weft_program program;
    int (*run)(const struct weft_config *config);
} commands[] = {
    {WEFT_PROG_SERVE, weft_cmd_serve},
    {WEFT_PROG_RUN, weft_cmd_run},
    {WEFT_PROG_RUN_BATCH, weft_cmd_run_batch},
    {WEFT_PROG_CHAT, weft_cmd_chat},
    {WEFT_PROG_PERPLEXITY, weft_cmd_perplexity},
    {WEFT_PROG_BENCH, weft_cmd_bench},
    {WEFT_PROG_PACK, weft_cmd_pack},
    {WEFT_PROG_BENCH_SERVE, weft_cmd_bench_serve},
    {WEFT_PROG_INSPECT, weft_cmd_inspect},
    {WEFT_PROG_PLAN, weft_cmd_plan},
    {WEFT_PROG_TOKENIZE, weft_cmd_tokenize},
    {WEFT_PROG_TEMPLATE, weft_cmd_template},
    {WEFT_PROG_GRAMMAR, weft_cmd_grammar},
    {WEFT_PROG_PARSE_OUTPUT, weft_cmd_parse_output},
    {WEFT_PROG_SAMPLE, weft_cmd_sample},
};

/* A full disk may show only with the last of the output, and half an output with status 0 passes
 * for a whole one. */
static int end_output(int status) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    (void)fprintf(stderr, "weft: cannot write the output%s%s\n", errno ? ": " : "",
                  errno ? strerror(errno) : "");
    return status ? status : WEFT_STATUS_FAILED;
}

static bool has_flag(const char *flag, int argc, char **argv) {
    size_t len = strlen(flag);
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], flag, len) == 0 && (argv[i][len] == '\0' || argv[i][len] == '='))
            return true;
    }
    return false;
}

/* `weft run --batch` and `weft inspect --plan` have the settings of a server: they are the commands run-batch and
 * plan. */
static enum weft_program by_flag(enum weft_program program, int argc, char **argv) {
    if (program == WEFT_PROG_RUN && has_flag("--batch", argc, argv)) return WEFT_PROG_RUN_BATCH;
    if (program == WEFT_PROG_INSPECT && has_flag("--plan", argc, argv)) return WEFT_PROG_PLAN;
    return program;
}

static bool find_command(const char *name, enum weft_program *program_out) {
    const char *nearest;
    if (weft_config_command(name, program_out, &nearest)) return true;
    if (nearest)
        (void)fprintf(stderr, "weft: unknown command \"%s\"; did you mean %s?\n", name, nearest);
    else
        (void)fprintf(stderr, "weft: unknown command \"%s\"; \"weft --help\" lists them\n", name);
    return false;
}

/* weft help [--man] [COMMAND] */
static int run_help(int argc, char **argv) {
    enum weft_program program;
    bool man = argc > 0 && !strcmp(argv[0], "--man");
    const char *name = man ? argv[1] : argv[0]; /* NULL behind the last */
    if (argc > (man ? 2 : 1)) {
        (void)fprintf(stderr, "weft: usage: weft help [--man] [COMMAND]\n");
        return WEFT_STATUS_USAGE;
    }
    if (!name) {
        (man ? weft_config_man_all : weft_config_help_all)(stdout);
        return 0;
    }
    if (!find_command(name, &program)) return WEFT_STATUS_USAGE;
    (man ? weft_config_man : weft_config_help)(program, stdout);
    return 0;
}

static int run_command(int argc, char **argv) {
    struct weft_errmsg why = {""};
    static struct weft_config config;
    enum weft_program program;
    bool done = false;
    if (argc < 2) {
        weft_config_help_all(stderr);
        return WEFT_STATUS_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return run_help(argc - 2, argv + 2);
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
        printf("weft %s\n", WEFT_VERSION);
        return 0;
    }
    if (!find_command(argv[1], &program)) return WEFT_STATUS_USAGE;
    program = by_flag(program, argc - 2, argv + 2);
    weft_err err = weft_config_parse(program, argc - 1, argv + 1, &config, &done, &why);
    if (done) return 0;
    weft_actor_log("weft", &config);
    if (!err && weft_config_computes(program)) err = weft_cmd_check_isa(&why);
    if (err) return weft_cmd_misuse(err, &why);
    weft_config_check_environment(); /* here, and not in each child */
    size_t i = 0;
    while (commands[i].program != program)
        i++;
    return commands[i].run(&config);
}

int main(int argc, char **argv) {
    (void)signal(SIGXFSZ, SIG_IGN); /* a write beyond `ulimit -f` fails, and is told as such */
    return end_output(run_command(argc, argv));
}
