/* Scans of states: a row of two panels is 4 registers, and 8 sums are under way. */
#include "vec_avx2.h"

enum { MAMBA_PANELS = 2, MAMBA_TOKENS = 2, DELTA_PANELS = 2 };

#include "recurrent_body.h"

void wefti_kern_fill_recurrent_avx2(struct weft_kern_table *table) {
    fill_recurrent(table);
}
