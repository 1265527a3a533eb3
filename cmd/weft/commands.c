/* Shared by all verbs of `weft`. */
#include "commands.h"

#include "base/log.h"
#include "model/model.h"

weft_err weft_cmd_check_model(const char *path, struct weft_errmsg *why) {
    struct weft_model_place place;
    weft_err err = weft_model_locate(path, &place, why);
    if (!err && place.format == WEFT_MODEL_HF && !place.packed)
        err = weft_model_check_folder(place.path, why);
    weft_model_place_fini(&place);
    return err;
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
