/* Shared by all verbs of `weft`. */
#include "commands.h"

#include <stdio.h>

int weft_cmd_fail(weft_err err, const struct weft_errmsg *why) {
    (void)fprintf(stderr, "weft: %s\n", why->text[0] ? why->text : weft_err_text(err));
    return 1;
}
