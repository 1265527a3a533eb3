#include "kern_internal.h"

enum { GROUP_ROWS = 1 };

#include "ops_body.h"

void wefti_kern_fill_ops_scalar(struct weft_kern_table *table) {
    fill_ops(table);
}
