#include "kern_internal.h"

enum { GROUP_ROWS = WEFTI_KERN_GROUP_ROWS_NEON };

#include "ops_body.h"

void wefti_kern_fill_ops_neon(struct weft_kern_table *table) {
    fill_ops(table);
}
