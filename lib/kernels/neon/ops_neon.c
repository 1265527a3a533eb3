#include "ops_body.h"

void wefti_kern_fill_ops_neon(struct weft_kern_table *table) {
    fill_ops(table);
}
