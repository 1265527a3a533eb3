#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"

static const struct {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"serve", "serve MODEL over HTTP and MessagePack-RPC", weft_cmd_serve},
    {"run", "one completion, without a server", weft_cmd_run},
    {"perplexity", "how well MODEL predicts a text FILE", weft_cmd_perplexity},
    {"bench", "tokens per second of prompt and generation", weft_cmd_bench},
    {"pack", "write MODEL as one file that starts at once", weft_cmd_pack},
    {"bench-serve", "load a server at URL with streaming clients", weft_cmd_bench_serve},
    {"inspect", "what is in a model file", weft_cmd_inspect},
    {"tokenize", "text on standard input to token ids", weft_cmd_tokenize},
    {"template", "render a chat template for the cases of a file", weft_cmd_template},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

static void print_usage(FILE *out) {
    (void)fprintf(out, "usage: weft COMMAND MODEL [options]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        (void)fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].about);
    (void)fprintf(out,
                  "\nMODEL is a Hugging Face folder, a .gguf file or a packed file; of bench-serve "
                  "a server's URL.\n\"weft COMMAND --help\" lists the options.\n");
}

/* A full disk may show only with the last of the output, and half an output with status 0 passes
 * for a whole one. */
static int end_output(int status) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    (void)fprintf(stderr, "weft: cannot write the output%s%s\n", errno ? ": " : "",
                  errno ? strerror(errno) : "");
    return status ? status : 1;
}

static int run_command(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_usage(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
        printf("weft %s\n", WEFT_VERSION);
        return 0;
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    }
    (void)fprintf(stderr, "weft: unknown command \"%s\"; \"weft --help\" lists them\n", argv[1]);
    return 2;
}

int main(int argc, char **argv) {
    return end_output(run_command(argc, argv));
}
