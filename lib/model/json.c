#include "model/model_internal.h"

#include <string.h>

weft_err wefti_json_parse(const char *path, const char *what, const char *text, size_t len,
                          json_t **json_out, struct weft_errmsg *why) {
    json_error_t error;
    /* Two keys of one name mean different things to different readers. */
    *json_out = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (*json_out) return WEFT_OK;
    if (json_error_code(&error) == json_error_out_of_memory) {
        return weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory for %s", path, what);
    }
    struct wefti_shown shown = wefti_show(error.text, strlen(error.text));
    return weft_err_set(why, WEFT_E_PROTO, "%s: %s is not valid JSON: %s (at byte %d)", path, what,
                        shown.text, error.position);
}
