#include "codec/base64.h"

#include <stdint.h>

size_t weft_base64(const void *bytes, size_t n, char *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *from = bytes;
    char *at = out;
    for (size_t i = 0; i < n; i += 3) {
        size_t n_left = n - i;
        uint32_t bits = (uint32_t)from[i] << 16;
        if (n_left > 1) bits |= (uint32_t)from[i + 1] << 8;
        if (n_left > 2) bits |= from[i + 2];
        *at++ = digits[bits >> 18];
        *at++ = digits[bits >> 12 & 63];
        *at++ = n_left > 1 ? digits[bits >> 6 & 63] : '=';
        *at++ = n_left > 2 ? digits[bits & 63] : '=';
    }
    return (size_t)(at - out);
}
