/* config — every setting of every actor: flags over WEFT_* variables over the --config file.
 *
 * One list names each setting once: its field, type, flag, bounds, default, which programs know it
 * and a line of help (settings.h). `weft serve` reads them all and passes each child the ones it
 * knows; an actor started by hand takes the same flags.
 */
#ifndef WEFT_CMD_CONFIG_H
#define WEFT_CMD_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "common/settings.h"

/* Bits. */
enum weft_program {
    WEFT_PROG_SERVE = 1,
    WEFT_PROG_ROUTER = 2,
    WEFT_PROG_SCHEDULER = 4,
    WEFT_PROG_WORKER = 8,
    WEFT_PROG_RUN = 16,        /* weft run */
    WEFT_PROG_PERPLEXITY = 32, /* weft perplexity */
    WEFT_PROG_BENCH = 64,      /* weft bench */
    WEFT_PROG_PACK = 128,      /* weft pack */
    WEFT_PROG_BENCH_SERVE = 256,
    WEFT_PROG_INSPECT = 512,
    WEFT_PROG_TOKENIZE = 1024,
    WEFT_PROG_TEMPLATE = 2048,
    WEFT_PROG_CHAT = 4096, /* weft chat */
    WEFT_PROG_GRAMMAR = 8192,
    WEFT_PROG_PARSE_OUTPUT = 16384,
    WEFT_PROG_SAMPLE = 32768,
    WEFT_PROG_RUN_BATCH = 65536, /* weft run --batch */
    WEFT_PROG_PLAN = 131072,     /* weft inspect --plan */
};

struct weft_config {
#define FIELD(field, kind, ...) WEFT_SETTING_##kind field;
#define KNOB(kind, field, ...) WEFT_SETTING_##kind field;
#define HEAD(title)
    WEFT_SETTINGS(FIELD, KNOB, HEAD)
#undef KNOB
#undef FIELD

    /* Which of them somebody gave, by flag, variable or file; the others have their defaults. */
    struct {
#define FIELD(field, ...) bool field;
#define KNOB(kind, field, ...) bool field;
        WEFT_SETTINGS(FIELD, KNOB, HEAD)
#undef HEAD
#undef KNOB
#undef FIELD
    } given;

    /* What is no setting: */
    const char *model; /* the positional MODEL, or URL of weft bench-serve; NULL when the program
                           takes none */
    const char *out;   /* weft pack: the positional OUT */
    enum weft_program program; /* from whose command line it was read: */
    int argc;
    char **argv;
};

/* Parses argv[1..] for `program` (one bit): defaults, then the --config file, then WEFT_*
 * variables, then flags. Strings are borrowed from argv and the environment, or kept for the
 * process's life. *done_out: --help or --version was printed; exit 0. WEFT_E_INVAL: `why` names the
 * flag, and config_out->log_format is what the command line or the environment asks for. */
WEFT_MUST_CHECK weft_err weft_config_parse(enum weft_program program, int argc, char **argv,
                                           struct weft_config *config_out, bool *done_out,
                                           struct weft_errmsg *why);

/* Gives the settings that `program` knows, and the one that `config` was read for does not, their defaults: so the
 * latter can start what the former starts. NOMEM. */
WEFT_MUST_CHECK weft_err weft_config_fill(struct weft_config *config, enum weft_program program,
                                          struct weft_errmsg *why);

/* The name of a command's program; false: there is no such command, and *nearest_out (NULL: none is
 * near) is one that may have been meant. */
bool weft_config_command(const char *name, enum weft_program *program_out,
                         const char **nearest_out);

/* Whether the program computes, by the kernels that WEFT_ISA picks. */
bool weft_config_computes(enum weft_program program);

/* What --help prints, as wide as the terminal; and the same as a man page, for man(7). */
void weft_config_help(enum weft_program program, FILE *out);
void weft_config_man(enum weft_program program, FILE *out);
/* The same for `weft` as a whole: what to try first, and all commands. */
void weft_config_help_all(FILE *out);
void weft_config_man_all(FILE *out);

/* Logs a warning for each WEFT_* variable that nobody reads, with the name that may have been meant.
 * What tests, builds and Kubernetes set passes without one. */
void weft_config_check_environment(void);

/* Flags that give `program` the same settings (secrets left out: they travel by the environment):
 * appends "--flag=value" strings and returns their number; each is malloc'd, argv_out holds at
 * least `max`. 0: no memory, and nothing is appended; every program knows some flag. */
uint32_t weft_config_argv(const struct weft_config *config, enum weft_program program,
                          char **argv_out, uint32_t max);

#endif
