/* What stands before the blocks of a session's file. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "inside/engine/runtime/session_head.h"

static const struct wefti_session_want want = {
    .model_name = "model",
    .fingerprint = "fp_1",
    .tenant = 1,
    .block_bytes = {64, 32},
    .block_size = 16,
    .window = 24,
    .kv_dtype = 1,
    .n_vocab = 100,
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct wefti_session_head head;
    struct weft_errmsg why = {{0}};
    if (n < sizeof head) return 0;
    memcpy(&head, bytes, sizeof head);
    uint64_t n_front = wefti_session_front_bytes(&head);
    /* As if the file were as long as it says, and as long as it is. */
    weft_err short_err = wefti_session_check_head(&head, n, "fuzz", &want, &why);
    weft_err err =
        wefti_session_check_head(&head, wefti_session_file_bytes(&head), "fuzz", &want, &why);
    WEFT_ASSERT(!short_err || why.text[0]);
    if (err || n_front > n) return 0;
    /* From a block of its own size, where a read past the end is seen. */
    uint8_t *front = malloc(n_front);
    WEFT_ASSERT(front);
    memcpy(front, bytes, n_front);
    err = wefti_session_check_front(front, "fuzz", &want, &why);
    WEFT_ASSERT(!err || why.text[0]);
    head.digest = wefti_session_front_digest(front, n_front); /* what follows is looked at, too */
    memcpy(front, &head, sizeof head);
    err = wefti_session_check_front(front, "fuzz", &want, &why);
    for (uint32_t i = 0; !err && i < head.n_tokens; i++) {
        uint32_t token;
        memcpy(&token, front + sizeof head + i * sizeof token, sizeof token);
        WEFT_ASSERT(token < want.n_vocab);
    }
    free(front);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    for (uint32_t n_tokens = 16; n_tokens <= 64; n_tokens += 16) {
        struct wefti_session_head head;
        wefti_session_head_init(&head, &want, n_tokens);
        uint64_t n_front = wefti_session_front_bytes(&head);
        uint8_t *front = calloc(1, n_front);
        WEFT_ASSERT(front);
        memcpy(front, &head, sizeof head);
        head.digest = wefti_session_front_digest(front, n_front);
        memcpy(front, &head, sizeof head);
        add(front, n_front);
        free(front);
    }
}
