/* Compressed bodies: the text, or the fault, is the same in steps of any size; the first byte says which. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/check.h"
#include "codec/gunzip.h"

#define TEXT_BYTES_MAX 65536

static enum weft_gunzip_status unpack(const uint8_t *bytes, size_t n, size_t step,
                                      struct weft_buf *out) {
    struct weft_buf packed;
    weft_buf_init(&packed, n);
    weft_buf_add(&packed, bytes, n);
    struct weft_gunzip *gunzip = weft_gunzip_new(&packed);
    WEFT_ASSERT(gunzip && weft_gunzip_bytes(gunzip) == n);
    enum weft_gunzip_status status = WEFT_GUNZIP_FULL;
    for (size_t room = 0; status == WEFT_GUNZIP_FULL && room < TEXT_BYTES_MAX;) {
        room = room + step < TEXT_BYTES_MAX ? room + step : TEXT_BYTES_MAX;
        status = weft_gunzip_step(gunzip, room, out);
        WEFT_ASSERT(out->len <= room && (status != WEFT_GUNZIP_FULL || out->len == room));
    }
    weft_gunzip_free(gunzip);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_buf whole, cut;
    if (n == 0) return 0;
    weft_buf_init(&whole, TEXT_BYTES_MAX);
    weft_buf_init(&cut, TEXT_BYTES_MAX);
    enum weft_gunzip_status status = unpack(bytes + 1, n - 1, TEXT_BYTES_MAX, &whole);
    enum weft_gunzip_status in_steps = unpack(bytes + 1, n - 1, 1 + bytes[0], &cut);
    WEFT_ASSERT(status != WEFT_GUNZIP_NO_MEMORY && status == in_steps && whole.len == cut.len);
    WEFT_ASSERT(whole.len == 0 || memcmp(whole.data, cut.data, whole.len) == 0);
    weft_buf_fini(&whole);
    weft_buf_fini(&cut);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    /* {"prompt":"a"}, packed; and {}, stored, in two members with garbage behind them */
    static const uint8_t packed[] = {7,   31, 139, 8,   0,   0,   0,   0,  0,   2,  3,  171,
                                     86,  42, 40,  202, 207, 45,  40,  81, 178, 82, 74, 84,
                                     170, 5,  0,   168, 176, 160, 119, 14, 0,   0,  0};
    static const uint8_t stored[] = {255, 31,  139, 8,   0,   0,   0,   0,   0, 4, 3, 1,   2,   0,
                                     253, 255, 123, 125, 67,  191, 166, 163, 2, 0, 0, 0,   31,  139,
                                     8,   0,   0,   0,   0,   0,   4,   3,   1, 2, 0, 253, 255, 123,
                                     125, 67,  191, 166, 163, 2,   0,   0,   0, 0, 0};
    add(packed, sizeof packed);
    add(stored, sizeof stored);
}
