#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

static const char *actor = "weft";

void weft_check_actor(const char *name) {
    actor = name;
}

_Noreturn void weft_check_failed(const char *expr, const char *file, int line) {
    if (weft_log_is_json())
        weft_error("assertion failed: %s (%s:%d)", expr, file, line);
    else
        (void)fprintf(stderr, "%s: assertion failed: %s (%s:%d)\n", actor, expr, file, line);
    abort();
}
