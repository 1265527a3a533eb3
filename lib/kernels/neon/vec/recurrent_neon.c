/* Scans of states: 8 sums of either are under way, in 32 registers. */
#include "vec_neon.h"

enum { MAMBA_PANELS = 1, MAMBA_TOKENS = 2, DELTA_PANELS = 1 };

#include "recurrent_body.h"

void wefti_kern_fill_recurrent_neon(struct weft_kern_table *table) {
    fill_recurrent(table);
}
