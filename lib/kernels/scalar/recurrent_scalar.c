/* Scans of states, as they are defined: a token and a panel at a time. */
#include "vec_scalar.h"

enum { MAMBA_PANELS = 1, MAMBA_TOKENS = 1, DELTA_PANELS = 1 };

#include "recurrent_body.h"

void wefti_kern_fill_recurrent_scalar(struct weft_kern_table *table) {
    fill_recurrent(table);
}
