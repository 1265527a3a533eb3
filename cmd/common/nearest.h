/* nearest — which of the known names somebody may have meant who typed another. */
#ifndef WEFT_CMD_NEAREST_H
#define WEFT_CMD_NEAREST_H

#include "base/str.h"

#define WEFT_NEAREST_BYTES_MAX 64 /* longer names are near nothing */

struct weft_nearest {
    char typed[WEFT_NEAREST_BYTES_MAX], best[WEFT_NEAREST_BYTES_MAX];
    unsigned cost; /* of the best so far; at first one more than is near */
};

/* Copies `typed`. */
void weft_nearest_init(struct weft_nearest *nearest, struct weft_str typed);
/* Keeps a copy of `name` if it is nearer than those before: fewer characters to change, insert, leave
 * out or swap, at most a third of those typed. What begins with all that was typed is near, too.
 * Upper and lower case are one, and so are '_' and '-'. */
void weft_nearest_offer(struct weft_nearest *nearest, const char *name);
/* NULL: none is near. Valid as long as `nearest`. */
const char *weft_nearest_name(const struct weft_nearest *nearest);

/* What a flag of vLLM or llama-server is called here, or why there is none, as text that never begins with '-'. NULL: it
 * is no such flag. */
const char *weft_nearest_foreign(struct weft_str typed);

#endif
