/* Random messages come back equal, and a decoder that has seen anything before decodes them alike.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/rand.h"
#include "unit/proto_messages.h"

#define N_ROUNDS 20000

/* One random byte of the message is another: refused, or decoded to something that encodes. */
static void damage(uint64_t *rand, weft_proto_decoder *decoder, struct weft_buf *buf,
                   struct weft_buf *again) {
    struct weft_msg msg;
    struct weft_errmsg why = {{0}};
    size_t at = weft_rand_below(rand, (uint32_t)buf->len);
    buf->data[at] = (char)weft_rand_next(rand);
    weft_err err = weft_proto_decode(decoder, buf->data, buf->len, &msg, &why);
    WEFT_ASSERT(!err == !why.text[0]);
    if (err) return;
    weft_buf_clear(again);
    weft_proto_encode(&msg, again);
    WEFT_ASSERT(!again->failed);
}

int main(void) {
    uint64_t rand = weft_rand_test_seed();
    weft_proto_decoder *decoder;
    struct weft_buf buf, again;
    WEFT_ASSERT(weft_proto_decoder_new(&decoder) == WEFT_OK);
    weft_buf_init(&buf, WEFT_MESSAGE_BYTES_MAX);
    weft_buf_init(&again, WEFT_MESSAGE_BYTES_MAX);
    uint32_t seen[WEFT_MSG_TYPE_COUNT] = {0};
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        struct weft_msg msg, back;
        struct weft_errmsg why = {{0}};
        proto_random(&rand, &msg);
        weft_buf_clear(&buf);
        weft_proto_encode(&msg, &buf);
        WEFT_ASSERT(!buf.failed);
        weft_err err = weft_proto_decode(decoder, buf.data, buf.len, &back, &why);
        if (err || !proto_equal(&msg, &back)) {
            (void)fprintf(stderr, "round %u, %s: %s\n", i, weft_proto_type_name(msg.type),
                          err ? why.text : "differs");
            return 1;
        }
        /* The message that came back encodes to the same bytes. */
        weft_buf_clear(&again);
        weft_proto_encode(&back, &again);
        WEFT_ASSERT(again.len == buf.len && memcmp(again.data, buf.data, buf.len) == 0);
        seen[msg.type]++;
        damage(&rand, decoder, &buf, &again);
    }
    for (uint32_t type = 0; type < WEFT_MSG_TYPE_COUNT; type++)
        WEFT_ASSERT(seen[type] > 0);
    (void)printf("%u messages came back equal\n", N_ROUNDS);
    weft_proto_decoder_free(decoder);
    weft_buf_fini(&buf);
    weft_buf_fini(&again);
    return 0;
}
