/* Shared by all verbs of `weft`. */
#include "commands.h"

#include "base/log.h"

static void say(weft_err err, const struct weft_errmsg *why) {
    weft_say(WEFT_LOG_ERROR, "%s", why->text[0] ? why->text : weft_err_text(err));
}

int weft_cmd_misuse(weft_err err, const struct weft_errmsg *why) {
    say(err, why);
    return WEFT_STATUS_USAGE;
}

int weft_cmd_fail(weft_err err, const struct weft_errmsg *why) {
    say(err, why);
    return WEFT_STATUS_FAILED;
}
