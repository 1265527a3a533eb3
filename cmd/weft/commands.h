/* commands — the verbs of `weft`. Each gets argv with argv[0] as the verb and returns the exit
 * status. */
#ifndef WEFT_CMD_WEFT_COMMANDS_H
#define WEFT_CMD_WEFT_COMMANDS_H

#include "base/err.h"

int weft_cmd_serve(int argc, char **argv);
int weft_cmd_run(int argc, char **argv);
int weft_cmd_perplexity(int argc, char **argv);
int weft_cmd_bench(int argc, char **argv);
int weft_cmd_pack(int argc, char **argv);
int weft_cmd_bench_serve(int argc, char **argv);
int weft_cmd_inspect(int argc, char **argv);
int weft_cmd_tokenize(int argc, char **argv);
int weft_cmd_template(int argc, char **argv);

/* Prints "weft: SENTENCE" on standard error and returns 1. */
int weft_cmd_fail(weft_err err, const struct weft_errmsg *why);

#endif
