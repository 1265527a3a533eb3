#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <zlib.h>

#include "codec/gunzip.h"

/* Appends a member that holds `n` bytes of `text`. */
static void pack(const char *text, size_t n, struct weft_buf *out) {
    static unsigned char bytes[1 << 16];
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)text,
                  .avail_in = (unsigned)n,
                  .next_out = bytes,
                  .avail_out = sizeof bytes};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    weft_buf_add(out, bytes, sizeof bytes - z.avail_out);
    (void)deflateEnd(&z);
}

/* A copy of the first `n` bytes is unpacked, in steps of `room`; the text goes into `out`. */
static enum weft_gunzip_status unpack(const struct weft_buf *packed, size_t n, size_t room,
                                      struct weft_buf *out) {
    struct weft_buf copy;
    weft_buf_init(&copy, 1 << 20);
    weft_buf_add(&copy, packed->data, n);
    struct weft_gunzip *gunzip = weft_gunzip_new(&copy);
    assert_non_null(gunzip);
    assert_int_equal(copy.len, 0);
    assert_int_equal(weft_gunzip_bytes(gunzip), n);
    enum weft_gunzip_status status = WEFT_GUNZIP_FULL;
    weft_buf_clear(out);
    for (size_t limit = room; status == WEFT_GUNZIP_FULL; limit += room) {
        status = weft_gunzip_step(gunzip, limit, out);
        assert_true(out->len <= limit);
        if (status == WEFT_GUNZIP_FULL) assert_int_equal(out->len, limit);
    }
    weft_gunzip_free(gunzip);
    return status;
}

static void a_text_comes_back_whatever_the_steps(void **state) {
    (void)state;
    char text[5000];
    struct weft_buf packed, out;
    weft_buf_init(&packed, 1 << 16);
    weft_buf_init(&out, 1 << 16);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * i % 251);
    pack(text, sizeof text, &packed);
    for (size_t room = 1; room <= sizeof text + 1; room = room * 3 + 1) {
        assert_int_equal(unpack(&packed, packed.len, room, &out), WEFT_GUNZIP_DONE);
        assert_int_equal(out.len, sizeof text);
        assert_memory_equal(out.data, text, sizeof text);
    }
    weft_buf_fini(&packed);
    weft_buf_fini(&out);
}

static void members_follow_one_another_and_garbage_is_passed_over(void **state) {
    (void)state;
    struct weft_buf packed, out;
    weft_buf_init(&packed, 1 << 16);
    weft_buf_init(&out, 1 << 16);
    pack("one ", 4, &packed);
    pack("", 0, &packed);
    pack("two", 3, &packed);
    assert_int_equal(unpack(&packed, packed.len, 100, &out), WEFT_GUNZIP_DONE);
    assert_string_equal(weft_buf_cstr(&out), "one two");
    weft_buf_add(&packed, "\0\0\0{}", 5);
    assert_int_equal(unpack(&packed, packed.len, 100, &out), WEFT_GUNZIP_DONE);
    assert_string_equal(weft_buf_cstr(&out), "one two");
    weft_buf_fini(&packed);
    weft_buf_fini(&out);
}

static void what_is_cut_off_or_damaged_is_broken(void **state) {
    (void)state;
    static const char text[] = "{\"prompt\": \"It was a dark and stormy night.\"}";
    struct weft_buf packed, out;
    weft_buf_init(&packed, 1 << 16);
    weft_buf_init(&out, 1 << 16);
    pack(text, sizeof text - 1, &packed);
    for (size_t n = 0; n < packed.len; n++)
        assert_int_equal(unpack(&packed, n, 100, &out), WEFT_GUNZIP_BROKEN);
    for (size_t bit = 80; bit < 8 * packed.len; bit++) { /* behind the head */
        packed.data[bit / 8] ^= (char)(1 << bit % 8);
        bool is_same = unpack(&packed, packed.len, 100, &out) == WEFT_GUNZIP_DONE;
        packed.data[bit / 8] ^= (char)(1 << bit % 8);
        /* Bits that fill up the last byte mean nothing. */
        if (is_same) assert_string_equal(weft_buf_cstr(&out), text);
    }
    weft_buf_clear(&packed);
    weft_buf_add_str(&packed, text);
    assert_int_equal(unpack(&packed, packed.len, 100, &out), WEFT_GUNZIP_BROKEN);
    weft_buf_fini(&packed);
    weft_buf_fini(&out);
}

static void a_step_makes_no_more_than_it_has_room_for(void **state) {
    (void)state;
    static const char zeros[1 << 20];
    struct weft_buf packed, out;
    weft_buf_init(&packed, 1 << 16);
    weft_buf_init(&out, 4096);
    pack(zeros, sizeof zeros, &packed);
    assert_true(packed.len < 2000);
    struct weft_gunzip *gunzip = weft_gunzip_new(&packed);
    assert_int_equal(weft_gunzip_step(gunzip, 4096, &out), WEFT_GUNZIP_FULL);
    assert_int_equal(out.len, 4096);
    weft_gunzip_free(gunzip); /* half-way */
    weft_buf_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_comes_back_whatever_the_steps),
        cmocka_unit_test(members_follow_one_another_and_garbage_is_passed_over),
        cmocka_unit_test(what_is_cut_off_or_damaged_is_broken),
        cmocka_unit_test(a_step_makes_no_more_than_it_has_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
