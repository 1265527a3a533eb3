#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

const char *weft_err_text(weft_err err) {
    switch (err) {
#define WEFT_ERR_CASE(name, text)                                                                  \
    case WEFT_##name:                                                                              \
        return text;
        WEFT_ERR_LIST(WEFT_ERR_CASE)
#undef WEFT_ERR_CASE
    }
    return "unknown error";
}

weft_err weft_err_set(struct weft_errmsg *why, weft_err err, const char *fmt, ...) {
    if (!why) return err;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(why->text, sizeof why->text, fmt, args);
    va_end(args);
    weft_utf8_printable(why->text); /* names from untrusted files end up on terminals */
    return err;
}

weft_err weft_err_errno(struct weft_errmsg *why, int errno_value, const char *fmt, ...) {
    weft_err err = errno_value == ENOMEM                             ? WEFT_E_NOMEM
                   : errno_value == ENOENT || errno_value == ENOTDIR ? WEFT_E_NOTFOUND
                                                                     : WEFT_E_IO;
    if (!why) return err;
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(why->text, sizeof why->text, fmt, args);
    va_end(args);
    if (len < 0) len = 0;
    size_t at = (size_t)len < sizeof why->text ? (size_t)len : sizeof why->text - 1;
    char buf[128];
    (void)snprintf(why->text + at, sizeof why->text - at, ": %s",
                   strerror_r(errno_value, buf, sizeof buf));
    weft_utf8_printable(why->text); /* names from untrusted files end up on terminals */
    return err;
}
