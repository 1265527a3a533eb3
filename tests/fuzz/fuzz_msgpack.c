/* MessagePack from clients: measured in two pieces, then decoded. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/check.h"
#include "codec/msgpack.h"
#include "codec/msgpack_json.h"
#include "codec/msgpack_reader.h"

#define BYTES_MAX 4096

/* The reader of known fields, which here knows none, passes over an array as far as measuring does. */
static void read_array(const char *text, size_t len) {
    struct weft_errmsg why = {""};
    struct weft_msgpack_reader rd;
    weft_msgpack_reader_init(&rd, text, len, &why);
    uint32_t n = weft_msgpack_read_open(&rd, "array", 0);
    weft_msgpack_read_close(&rd, "items", n);
    weft_msgpack_reader_finish(&rd);
    WEFT_ASSERT(rd.err == WEFT_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_mp_scan whole = {0}, cut = {0};
    struct weft_errmsg why = {""};
    const char *text = (const char *)bytes;
    size_t at = n / 3;
    enum weft_mp_status status = weft_msgpack_scan(&whole, text, n, BYTES_MAX, &why);
    enum weft_mp_status in_two = weft_msgpack_scan(&cut, text, at, BYTES_MAX, &why);
    if (in_two == WEFT_MP_MORE) in_two = weft_msgpack_scan(&cut, text, n, BYTES_MAX, &why);
    WEFT_ASSERT(status == in_two && (status != WEFT_MP_OK || whole.at == cut.at));
    struct weft_mp_scan skipped = {0};
    size_t used;
    enum weft_mp_status skip = weft_msgpack_skip(&skipped, text, n, &used);
    if (status == WEFT_MP_OK) WEFT_ASSERT(skip == WEFT_MP_OK && used == whole.at);
    WEFT_ASSERT(used <= n);
    if (status != WEFT_MP_OK) return 0;
    struct weft_mp_item item;
    at = 0;
    WEFT_ASSERT(weft_msgpack_item(text, whole.at, &at, &item) == WEFT_MP_OK);
    if (item.type == WEFT_MP_ARRAY) read_array(text, whole.at);
    (void)weft_msgpack_find(text, whole.at, "request_id", &item);
    json_t *json = weft_msgpack_to_json(text, whole.at, &why);
    WEFT_ASSERT(json || why.text[0]);
    json_decref(json);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char request[] = "\x94\x00\x01\xa8generate\x91\x83\xa6prompt\xa2hi"
                                  "\xaarequest_id\xa1x\xa4stop\x92\xc4\x01z\xc0";
    static const char numbers[] = "\xdc\x00\x08\xcc\x80\xcd\x01\x00\xce\x00\x01\x00\x00"
                                  "\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xd0\x80\xd1\x80\x00"
                                  "\xca\x3f\x00\x00\x00\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00";
    static const char nested[] = "\x91\x81\xa1z\x91\x81\xa1z\x91\x91\x91\xc3";
    add(request, sizeof request - 1);
    add(numbers, sizeof numbers - 1);
    add(nested, sizeof nested - 1);
}
