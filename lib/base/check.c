#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

static const char *actor = "weft";

void weft_check_actor(const char *name) {
    actor = name;
}

_Noreturn void weft_check_failed(const char *expr, const char *file, int line) {
    (void)fprintf(stderr, "%s: assertion failed: %s (%s:%d)\n", actor, expr, file, line);
    abort();
}
