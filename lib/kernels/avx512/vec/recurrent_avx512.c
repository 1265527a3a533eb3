/* Scans of states: 8 sums of Mamba-2 and 4 of the delta rule are under way, which keeps the units for
 * multiply-adds busy for 9 in 10 cycles (Xeon, model 207, gcc 12, states in L1). */
#include "vec_avx512.h"

enum { MAMBA_PANELS = 4, MAMBA_TOKENS = 2, DELTA_PANELS = 2 };

#include "recurrent_body.h"

void wefti_kern_fill_recurrent_avx512(struct weft_kern_table *table) {
    fill_recurrent(table);
}
