/* Scans of states: 8 sums of Mamba-2 and 4 of the delta rule are under way, with the states they are
 * of, in 32 registers. */
#include "vec_avx512.h"

enum { MAMBA_PANELS = 2, MAMBA_TOKENS = 4, DELTA_PANELS = 2 };

#include "recurrent_body.h"

void wefti_kern_fill_recurrent_avx512(struct weft_kern_table *table) {
    fill_recurrent(table);
}
