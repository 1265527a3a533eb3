/* commands — the verbs of `weft`. Each gets its settings, with all that is required among them, and
 * returns the exit status: 0, WEFT_STATUS_FAILED, or WEFT_STATUS_USAGE. */
#ifndef WEFT_CMD_WEFT_COMMANDS_H
#define WEFT_CMD_WEFT_COMMANDS_H

#include "base/err.h"
#include "common/config.h"

#define WEFT_STATUS_FAILED 1
#define WEFT_STATUS_USAGE 2 /* what was asked for makes no sense, on any machine */

int weft_cmd_serve(const struct weft_config *config);
int weft_cmd_run(const struct weft_config *config);
int weft_cmd_run_batch(const struct weft_config *config);
int weft_cmd_chat(const struct weft_config *config);
int weft_cmd_perplexity(const struct weft_config *config);
int weft_cmd_bench(const struct weft_config *config);
int weft_cmd_pack(const struct weft_config *config);
int weft_cmd_bench_serve(const struct weft_config *config);
int weft_cmd_inspect(const struct weft_config *config);
int weft_cmd_plan(const struct weft_config *config);
int weft_cmd_tokenize(const struct weft_config *config);
int weft_cmd_template(const struct weft_config *config);
int weft_cmd_grammar(const struct weft_config *config);
int weft_cmd_parse_output(const struct weft_config *config);
int weft_cmd_sample(const struct weft_config *config);

/* Whether `path` names a model, before a part of it is missed: a folder must have a config.json. */
WEFT_MUST_CHECK weft_err weft_cmd_check_model(const char *path, struct weft_errmsg *why);

/* Whether this CPU has what WEFT_ISA asks for, if it asks for anything. UNSUPPORTED: it has not. */
WEFT_MUST_CHECK weft_err weft_cmd_check_isa(struct weft_errmsg *why);

/* Prints "weft: SENTENCE" on standard error and returns WEFT_STATUS_USAGE. */
int weft_cmd_misuse(weft_err err, const struct weft_errmsg *why);
/* The same, and returns WEFT_STATUS_FAILED. */
int weft_cmd_fail(weft_err err, const struct weft_errmsg *why);

#endif
