#include "base/dtype.h"

#define FACTS(id, name, class, elems, bytes, file, layout, products)                               \
    [WEFT_DT_##id] = {#id, name, WEFT_DTYPE_##class, elems, bytes, file, layout},
const struct weft_dtype_facts weft_dtypes[WEFT_DT_COUNT] = {WEFT_DTYPES(FACTS)};

#define OWN_NUMBERS(id, name, class, elems, bytes, file, layout, products)                         \
    _Static_assert((WEFT_DTYPE_##class <= WEFT_DTYPE_BLOCKS) == (file < WEFT_DTYPE_GGUF_NUMBERS),  \
                   #id ": GGUF's types have GGUF's numbers, the others have none of them");
WEFT_DTYPES(OWN_NUMBERS)

/* Two types with one number would be two cases of one value, which no compiler accepts. */
bool weft_dtype_of_number(uint32_t number, enum weft_dtype *dtype_out) {
    *dtype_out = WEFT_DT_F32;
    switch (number) {
#define BY_FILE_NUMBER(id, name, class, elems, bytes, file, layout, products)                      \
    case file:                                                                                     \
        *dtype_out = WEFT_DT_##id;                                                                 \
        return true;
        WEFT_DTYPES(BY_FILE_NUMBER)
    default:
        return false;
    }
}

/* The same check for the numbers in hashes, which need no way back. */
#define LAYOUT_BIT(id, name, class, elems, bytes, file, layout, products) +(1ull << layout % 64)
#define LAYOUT_OR(id, name, class, elems, bytes, file, layout, products) | (1ull << layout % 64)
_Static_assert((0 WEFT_DTYPES(LAYOUT_BIT)) == (0 WEFT_DTYPES(LAYOUT_OR)),
               "two types have one number in the hash of a layout");
