/* Scans of states: 4 sums of Mamba-2 and 8 of the delta rule are under way, in 16 registers. */
#include "vec_avx2.h"

enum { MAMBA_PANELS = 1, MAMBA_TOKENS = 2, DELTA_PANELS = 2 };

#include "recurrent_body.h"

void wefti_kern_fill_recurrent_avx2(struct weft_kern_table *table) {
    fill_recurrent(table);
}
