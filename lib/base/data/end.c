#include "base/end.h"

#include <stddef.h>

#include "base/check.h"

static const struct {
    uint8_t teller;
    const char *reason;
} ends[WEFT_END_COUNT] = {
#define X(name, number, teller, reason) [number] = {WEFT_END_BY_##teller, reason},
    WEFT_END_LIST(X)
#undef X
};

bool weft_end_is_told_by(uint64_t number, enum weft_end_teller teller) {
    return number < WEFT_END_COUNT && ends[number].teller <= (uint8_t)teller;
}

const char *weft_end_reason(enum weft_end end) {
    WEFT_ASSERT(end < WEFT_END_COUNT);
    return ends[end].reason;
}
