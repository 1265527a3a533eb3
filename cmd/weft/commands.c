/* Shared by all verbs of `weft`. */
#include "commands.h"

#include <stdlib.h>

#include "base/log.h"
#include "kernels/kernels.h"
#include "model/model.h"

weft_err weft_cmd_check_model(const char *path, struct weft_errmsg *why) {
    struct weft_model_place place;
    weft_err err = weft_model_locate(path, &place, why);
    if (!err && place.format == WEFT_MODEL_HF && !place.packed)
        err = weft_model_check_folder(place.path, why);
    weft_model_place_fini(&place);
    return err;
}

/* Without the variable nothing is tried out: a supervisor leaves that to its workers. */
weft_err weft_cmd_check_isa(struct weft_errmsg *why) {
    const struct weft_kern_table *table;
    const char *isa = getenv("WEFT_ISA");
    return isa && *isa ? weft_kern_select(&table, why) : WEFT_OK;
}

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
