/* Messages between actors. A message that decodes must encode again, and come back
 * equal from that. */
#include "fuzz/fuzz.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/rand.h"
#include "unit/proto_messages.h"

/* Kept from input to input, as in an actor: an old message must not show through in a new one. */
static weft_proto_decoder *first, *second;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_msg msg, again;
    struct weft_errmsg why = {{0}};
    struct weft_buf buf;
    if (!first) WEFT_ASSERT(!weft_proto_decoder_new(&first) && !weft_proto_decoder_new(&second));
    weft_err err = weft_proto_decode(first, bytes, n, &msg, &why);
    WEFT_ASSERT(!err == !why.text[0]);
    if (err) return 0;
    weft_buf_init(&buf, WEFT_MESSAGE_BYTES_MAX);
    weft_proto_encode(&msg, &buf);
    WEFT_ASSERT(!buf.failed);
    WEFT_ASSERT(weft_proto_decode(second, buf.data, buf.len, &again, &why) == WEFT_OK);
    WEFT_ASSERT(proto_equal(&msg, &again));
    weft_buf_fini(&buf);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    struct weft_msg msg;
    struct weft_buf buf;
    const char *name;
    uint64_t rand = 1;
    weft_buf_init(&buf, WEFT_MESSAGE_BYTES_MAX);
    for (uint32_t i = 0; i < 2 * WEFT_MSG_TYPE_COUNT + 100; i++) {
        if (!proto_sample(i, &name, &msg)) proto_random(&rand, &msg);
        weft_buf_clear(&buf);
        weft_proto_encode(&msg, &buf);
        add(buf.data, buf.len);
    }
    weft_buf_fini(&buf);
}
