/* One rendering, two formats: the same calls as JSON and as MessagePack. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "codec/msgpack_json.h"
#include "codec/writer.h"

static void write_everything(struct weft_writer *w) {
    weft_write_map(w);
    weft_write_key(w, "empty");
    weft_write_list(w);
    weft_write_end(w);
    weft_write_key(w, "numbers");
    weft_write_list(w);
    weft_write_uint(w, 0);
    weft_write_uint(w, 1ull << 40);
    weft_write_int(w, -7);
    weft_write_int(w, 7);
    weft_write_float(w, 0.1f);
    weft_write_float(w, 2.0f);
    weft_write_float(w, -INFINITY);
    weft_write_double(w, 0.25);
    weft_write_double(w, 3.0);
    weft_write_end(w);
    weft_write_key(w, "flags");
    weft_write_list(w);
    weft_write_bool(w, true);
    weft_write_bool(w, false);
    weft_write_null(w);
    weft_write_end(w);
    weft_write_text(w, "a \"key\"", 7);
    weft_write_text(w, "x\xff\ny", 4);
    weft_write_key(w, "pieces");
    weft_write_text_open(w);
    weft_write_text_more(w, "on", 2);
    weft_write_text_more(w, "", 0);
    weft_write_text_more(w, "ce", 2);
    weft_write_text_close(w);
    weft_write_key(w, "nested");
    weft_write_map(w);
    weft_write_text_open(w);
    weft_write_text_more(w, "k", 1);
    weft_write_text_close(w);
    weft_write_map(w);
    weft_write_end(w);
    weft_write_end(w);
    weft_write_end(w);
}

static void json_is_written_without_white_space(void **state) {
    (void)state;
    struct weft_writer w;
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    weft_writer_init(&w, WEFT_WRITE_JSON, &out);
    write_everything(&w);
    assert_string_equal(
        weft_buf_cstr(&out),
        "{\"empty\":[],\"numbers\":[0,1099511627776,-7,7,0.100000001,2.0,-9999.0,0.25,3.0],"
        "\"flags\":[true,false,null],\"a \\\"key\\\"\":\"x\xef\xbf\xbd\\ny\",\"pieces\":\"once\","
        "\"nested\":{\"k\":{}}}");
    assert_int_equal(w.depth, 0);
    weft_buf_fini(&out);
}

static void both_formats_say_the_same(void **state) {
    (void)state;
    struct weft_writer w;
    struct weft_buf text, packed;
    struct weft_errmsg why;
    weft_buf_init(&text, 1 << 16);
    weft_buf_init(&packed, 1 << 16);
    weft_writer_init(&w, WEFT_WRITE_JSON, &text);
    write_everything(&w);
    weft_writer_init(&w, WEFT_WRITE_MSGPACK, &packed);
    write_everything(&w);
    json_t *want = json_loadb(text.data, text.len, 0, NULL);
    json_t *got = weft_msgpack_to_json(packed.data, packed.len, &why);
    assert_non_null(want);
    assert_non_null(got);
    /* A float32 is given in full, in JSON with the nine digits that name it. */
    json_t *list = json_object_get(got, "numbers");
    assert_true((float)json_real_value(json_array_get(list, 4)) == 0.1f);
    assert_int_equal(json_array_set_new(list, 4, json_real(0.100000001)), 0);
    assert_true(json_equal(want, got));
    json_decref(want);
    json_decref(got);
    weft_buf_fini(&text);
    weft_buf_fini(&packed);
}

static void json_goes_on_in_another_buffer(void **state) {
    (void)state;
    struct weft_writer w;
    struct weft_buf first, second;
    weft_buf_init(&first, 100);
    weft_buf_init(&second, 100);
    weft_writer_init(&w, WEFT_WRITE_JSON, &first);
    weft_write_list(&w);
    weft_write_text_open(&w);
    weft_write_text_more(&w, "a", 1);
    w.out = &second;
    weft_write_text_more(&w, "b", 1);
    weft_write_text_close(&w);
    weft_write_uint(&w, 1);
    weft_write_end(&w);
    assert_string_equal(weft_buf_cstr(&first), "[\"a");
    assert_string_equal(weft_buf_cstr(&second), "b\",1]");
    weft_buf_fini(&first);
    weft_buf_fini(&second);
}

/* Values with few items and bytes have a header of one byte, those with many one of five. */
static void headers_are_as_short_as_they_can_be(void **state) {
    (void)state;
    static const struct {
        uint32_t n_items;
        size_t item_bytes, want_bytes;
    } cases[] = {{0, 0, 1}, {15, 1, 16}, {16, 1, 21}, {15, 100, 1 + 15 * 105 + 4}, {1, 31, 33}};
    char text[200];
    memset(text, 'x', sizeof text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weft_writer w;
        struct weft_buf out;
        struct weft_errmsg why;
        weft_buf_init(&out, 1 << 16);
        weft_writer_init(&w, WEFT_WRITE_MSGPACK, &out);
        weft_write_list(&w);
        for (uint32_t k = 0; k < cases[i].n_items; k++) {
            if (cases[i].item_bytes == 1)
                weft_write_uint(&w, 1);
            else
                weft_write_text(&w, text, cases[i].item_bytes);
        }
        weft_write_end(&w);
        assert_int_equal(out.len, cases[i].want_bytes);
        json_t *json = weft_msgpack_to_json(out.data, out.len, &why);
        assert_int_equal(json_array_size(json), cases[i].n_items);
        json_decref(json);
        weft_buf_fini(&out);
    }
}

static void a_full_buffer_is_remembered(void **state) {
    (void)state;
    for (size_t max = 0; max < 120; max++) {
        struct weft_writer w;
        struct weft_buf out;
        weft_buf_init(&out, max);
        weft_writer_init(&w, WEFT_WRITE_MSGPACK, &out);
        write_everything(&w);
        assert_true(out.failed);
        weft_buf_fini(&out);
    }
}

static void json_that_is_there_is_written_as_it_is(void **state) {
    (void)state;
    struct weft_writer w;
    struct weft_buf out;
    weft_buf_init(&out, 1024);
    weft_writer_init(&w, WEFT_WRITE_JSON, &out);
    weft_write_map(&w);
    for (uint32_t i = 0; i < 2; i++) {
        weft_write_key(&w, i ? "b" : "a");
        weft_write_json_open(&w);
        weft_write_json_more(&w, "{\"x\" : ", 7);
        weft_write_json_more(&w, "[1]}", 4);
        weft_write_json_close(&w);
    }
    weft_write_end(&w);
    assert_string_equal(weft_buf_cstr(&out), "{\"a\":{\"x\" : [1]},\"b\":{\"x\" : [1]}}");
    weft_buf_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_written_without_white_space),
        cmocka_unit_test(both_formats_say_the_same),
        cmocka_unit_test(json_goes_on_in_another_buffer),
        cmocka_unit_test(headers_are_as_short_as_they_can_be),
        cmocka_unit_test(json_that_is_there_is_written_as_it_is),
        cmocka_unit_test(a_full_buffer_is_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
