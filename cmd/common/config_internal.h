/* config_internal — the table of settings (config_table.c), and its users: flags and variables
 * (config.c), the --config file (config_file.c), the checks at the end (config_check.c), help and man
 * pages (config_help.c), and what else is in the environment (config_env.c). */
#ifndef WEFT_CMD_CONFIG_INTERNAL_H
#define WEFT_CMD_CONFIG_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "common/config.h"

/* As in the list, by the types that it gives them. */
enum wefti_config_kind {
    WEFTI_CONFIG_TEXT,
    WEFTI_CONFIG_TEXTS,
    WEFTI_CONFIG_LIST,
    WEFTI_CONFIG_WORD,
    WEFTI_CONFIG_U32,
    WEFTI_CONFIG_AUTO,
    WEFTI_CONFIG_U64,
    WEFTI_CONFIG_SIZE,
    WEFTI_CONFIG_I32,
    WEFTI_CONFIG_FD,
    WEFTI_CONFIG_F32,
    WEFTI_CONFIG_FLAG,
};

/* A row of the list (settings.h). A HEAD has a head and nothing else. */
struct wefti_config_setting {
    const char *head;
    const char *name;
    enum wefti_config_kind kind;
    size_t offset, given; /* of its field, and of the field that tells that somebody gave it */
    unsigned programs;    /* bits of enum weft_program */
    double min, max;
    const char *value, *arg, *help;
};
extern const struct wefti_config_setting wefti_config_settings[];
extern const size_t wefti_config_n_settings;

#define WEFTI_CONFIG_WORDS_MAX 2
#define WEFTI_CONFIG_EXAMPLES_MAX 3

struct wefti_config_program {
    enum weft_program bit;
    const char *name; /* of the command; NULL: an actor */
    const char *usage, *about;
    const char *examples[WEFTI_CONFIG_EXAMPLES_MAX];
    struct { /* what stands on the command line without a flag, all of it required */
        const char *name;
        size_t offset; /* of its field, a text */
    } words[WEFTI_CONFIG_WORDS_MAX];
    const char *details; /* NULL: `about` is all there is to say */
};

const struct wefti_config_program *wefti_config_program(enum weft_program bit);
/* In the order of `weft --help`; NULL behind the last. */
const struct wefti_config_program *wefti_config_command(size_t idx);

/* Short and second names people type, up to one of which `typed` is NULL. Those of a setting that
 * was once called so are names in files and of variables, too. */
struct wefti_config_alias {
    unsigned programs; /* bits of enum weft_program */
    const char *typed, *full;
    bool is_former;
};
extern const struct wefti_config_alias wefti_config_aliases[];

#define WEFTI_CONFIG_NAME_BYTES 64
/* "WEFT_MAX_NUM_SEQS" of max-num-seqs. */
void wefti_config_variable(const char *name, char name_out[WEFTI_CONFIG_NAME_BYTES]);
/* The name that the setting had once; NULL: none. */
const char *wefti_config_former(const struct wefti_config_setting *setting);
/* No text: what Kubernetes puts into a variable of its name cannot be meant for it. */
bool wefti_config_is_number(const struct wefti_config_setting *setting);
/* "tcp://10.0.0.1:8080", as Kubernetes writes it to WEFT_PORT beside a Service called weft. */
bool wefti_config_is_service_url(const char *text);

/* A copy of `text` for the life of the process; NULL: no memory. */
const char *wefti_config_keep(const char *text);

/* By its name, or the one it had once. NULL: none of these programs (bits) knows it. */
const struct wefti_config_setting *wefti_config_find(unsigned programs, struct weft_str name);

/* Converts `text`, which is kept where it is a text. `called` is how messages name the setting: as
 * its source spells it, with the place. */
WEFT_MUST_CHECK weft_err wefti_config_set(struct weft_config *config,
                                          const struct wefti_config_setting *setting,
                                          const char *called, const char *text,
                                          struct weft_errmsg *why);

/* Sets what the file at `path` says. Settings of other programs are passed over. */
WEFT_MUST_CHECK weft_err wefti_config_read_file(enum weft_program program, const char *path,
                                                struct weft_config *config,
                                                struct weft_errmsg *why);

/* Words, relations and what is required; sets served_model_name where nobody did. */
WEFT_MUST_CHECK weft_err wefti_config_check(const struct wefti_config_program *program,
                                            struct weft_config *config, struct weft_errmsg *why);

#endif
