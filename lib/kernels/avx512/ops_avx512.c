#include "ops_body.h"

void wefti_kern_fill_ops_avx512(struct weft_kern_table *table) {
    fill_ops(table);
}
