/* The endpoints as a table; the list is in kind.h. */
#include <stddef.h>

#include "kinds/kind.h"

const struct weft_api_kind *const wefti_api_kinds[] = {
#define X(name) &wefti_api_kind_##name,
    WEFT_API_KIND_LIST(X)
#undef X
        NULL,
};
