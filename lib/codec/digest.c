#include "codec/digest.h"

#include <mbedtls/md.h>
#include <stdio.h>

#include "base/check.h"

#define HASH_BYTES 32
#define WHAT_BYTES_MAX 32

/* Neither takes memory: it cannot fail. */
static void sha256(const void *bytes, size_t len, unsigned char hash_out[HASH_BYTES]) {
    const mbedtls_md_info_t *info = mbedtls_md_info_from_type(MBEDTLS_MD_SHA256);
    WEFT_ASSERT(info && mbedtls_md_get_size(info) == HASH_BYTES);
    int failed = mbedtls_md(info, bytes, len, hash_out);
    WEFT_ASSERT(failed == 0);
}

static uint64_t take_u64(const unsigned char *bytes) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | bytes[i];
    return value;
}

/* The hash of a use's name and of the text's own hash: both have their length. */
struct weft_digest weft_digest_of(const char *what, const char *text, size_t len) {
    unsigned char both[WHAT_BYTES_MAX + HASH_BYTES] = {0}, hash[HASH_BYTES];
    int n_what = snprintf((char *)both, WHAT_BYTES_MAX, "%s", what);
    WEFT_ASSERT(n_what > 0 && n_what < WHAT_BYTES_MAX);
    sha256(text, len, both + WHAT_BYTES_MAX);
    sha256(both, sizeof both, hash);
    struct weft_digest digest = {take_u64(hash), take_u64(hash + 8)};
    if ((digest.hi | digest.lo) == 0) digest.lo = 1;
    return digest;
}

uint64_t weft_digest_u64(const char *what, const char *text, size_t len) {
    uint64_t half = weft_digest_of(what, text, len).hi;
    return half ? half : 1;
}
