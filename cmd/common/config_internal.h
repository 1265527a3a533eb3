/* config_internal — the table of settings, and its users: flags and variables (config.c), the
 * --config file (config_file.c), and the checks at the end (config_check.c). */
#ifndef WEFT_CMD_CONFIG_INTERNAL_H
#define WEFT_CMD_CONFIG_INTERNAL_H

#include <stddef.h>

#include "base/str.h"
#include "common/config.h"

/* As in the list, by the types that it gives them. */
enum wefti_config_kind {
    WEFTI_CONFIG_TEXT,
    WEFTI_CONFIG_U32,
    WEFTI_CONFIG_U64,
    WEFTI_CONFIG_SIZE,
    WEFTI_CONFIG_I32,
    WEFTI_CONFIG_FD,
    WEFTI_CONFIG_F32,
    WEFTI_CONFIG_FLAG,
};

/* A row of the list (settings.h). */
struct wefti_config_setting {
    const char *name;
    enum wefti_config_kind kind;
    size_t offset;     /* of its field */
    unsigned programs; /* bits of enum weft_program */
    double min, max;
    const char *value, *arg, *help;
};

struct wefti_config_program {
    enum weft_program bit;
    const char *usage, *about;
    bool takes_model;
};

/* NULL: none of these programs (bits) knows it. */
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

/* Words, relations and what is required; sets n_workers. */
WEFT_MUST_CHECK weft_err wefti_config_check(const struct wefti_config_program *program,
                                            struct weft_config *config, struct weft_errmsg *why);

#endif
