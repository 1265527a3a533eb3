/* A form is read the same however its bytes are cut, and what is no form is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "api/multipart.h"
#include "base/buf.h"

#define TYPE "multipart/form-data; boundary=edge"
#define HEAD(name, more)                                                                           \
    "--edge\r\nContent-Disposition: form-data; name=\"" name "\"" more "\r\n\r\n"

static struct weft_buf file;

static bool take(void *to, const char *bytes, size_t n) {
    assert_ptr_equal(to, &file);
    assert_true(n > 0);
    weft_buf_add(&file, bytes, n);
    return true;
}

static struct weft_api_multipart *begin(const char *type, weft_err expected) {
    static struct weft_api_multipart form;
    struct weft_errmsg why = {""};
    memset(&form, 0, sizeof form);
    form.take = take;
    form.to = &file;
    weft_buf_fini(&file);
    weft_buf_init(&file, 1 << 20);
    assert_int_equal(weft_api_multipart_init(&form, (struct weft_str){type, strlen(type)}, &why),
                     expected);
    assert_int_equal(why.text[0] != '\0', expected != WEFT_OK);
    return &form;
}

/* In pieces of n bytes. */
static weft_err feed(struct weft_api_multipart *form, const char *bytes, size_t len, size_t n) {
    struct weft_errmsg why = {""};
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < len && !err; i += n)
        err = weft_api_multipart_more(form, bytes + i, n < len - i ? n : len - i, &why);
    if (!err) err = weft_api_multipart_end(form, &why);
    assert_int_equal(why.text[0] != '\0', err != WEFT_OK);
    return err;
}

static void a_form_is_read_however_it_is_cut(void **state) {
    (void)state;
    static const char bytes[] = "a preamble\r\n" HEAD("purpose", "") "batch\r\n" HEAD(
        "file", "; filename=\"a.jsonl\"") "one\r\n--edg\r\n\r--edge\r\r\n-\r\ntwo\r\n--edge--"
                                          "\r\nand more --edge";
    static const char content[] = "one\r\n--edg\r\n\r--edge\r\r\n-\r\ntwo";
    for (size_t n = 1; n < sizeof bytes; n++) {
        struct weft_api_multipart *form = begin(TYPE, WEFT_OK);
        assert_int_equal(feed(form, bytes, sizeof bytes - 1, n), WEFT_OK);
        assert_string_equal(weft_api_multipart_field(form, "purpose"), "batch");
        assert_null(weft_api_multipart_field(form, "file"));
        assert_string_equal(form->filename, "a.jsonl");
        assert_int_equal(file.len, sizeof content - 1);
        assert_memory_equal(file.data, content, file.len);
    }
}

static void the_boundary_is_found_in_its_header(void **state) {
    (void)state;
    (void)begin("Multipart/Form-Data; charset=x; Boundary=\"a b\"", WEFT_OK);
    (void)begin("multipart/form-data;boundary=a;x=y", WEFT_OK);
    static const char *const bad[] = {
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"a",
        "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=a\x80",
        "multipart/form-data; boundary=\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        (void)begin(bad[i], WEFT_E_INVAL);
}

static void what_is_no_form_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        weft_err err;
    } bad[] = {
        {"", WEFT_E_PROTO},
        {"--edge--", WEFT_E_PROTO}, /* no file */
        {HEAD("file", "") "x", WEFT_E_PROTO},
        {HEAD("file", "") "x\r\n--edge", WEFT_E_PROTO},
        {HEAD("file", "") "x\r\n--edge-x", WEFT_E_PROTO},
        {"--edge\r\nContent-Type: x\r\n\r\n", WEFT_E_PROTO},
        {"--edge\r\n\r\nx", WEFT_E_PROTO},
        {HEAD("file", "") "x\r\n" HEAD("file", "") "y\r\n--edge--", WEFT_E_PROTO},
        {HEAD("file", "; filename=\"\xff\"") "x\r\n--edge--", WEFT_E_PROTO},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        for (size_t n = 1; n < 4; n++) {
            struct weft_api_multipart *form = begin(TYPE, WEFT_OK);
            assert_int_equal(feed(form, bad[i].bytes, strlen(bad[i].bytes), n), bad[i].err);
        }
    }
}

static void heads_fields_and_their_number_are_bounded(void **state) {
    (void)state;
    struct weft_buf bytes;
    weft_buf_init(&bytes, 1 << 20);
    weft_buf_add_str(&bytes, "--edge\r\nX: ");
    for (int i = 0; i < WEFT_API_PART_HEAD_BYTES_MAX; i++)
        weft_buf_add_char(&bytes, 'x');
    assert_int_equal(feed(begin(TYPE, WEFT_OK), bytes.data, bytes.len, 100), WEFT_E_TOOBIG);
    weft_buf_clear(&bytes);
    weft_buf_add_str(&bytes, HEAD("purpose", ""));
    for (int i = 0; i <= WEFT_API_FIELD_BYTES_MAX; i++)
        weft_buf_add_char(&bytes, 'x');
    assert_int_equal(feed(begin(TYPE, WEFT_OK), bytes.data, bytes.len, 100), WEFT_E_TOOBIG);
    weft_buf_clear(&bytes);
    for (int i = 0; i <= WEFT_API_FIELDS_MAX; i++)
        weft_buf_add_str(&bytes, HEAD("a", "") "b\r\n");
    assert_int_equal(feed(begin(TYPE, WEFT_OK), bytes.data, bytes.len, 7), WEFT_E_TOOBIG);
    weft_buf_fini(&bytes);
    static const char nul[] = HEAD("a", "") "b\0c\r\n--edge--";
    assert_int_equal(feed(begin(TYPE, WEFT_OK), nul, sizeof nul - 1, 7), WEFT_E_PROTO);
}

static bool refuse(void *to, const char *bytes, size_t n) {
    (void)to;
    (void)bytes;
    (void)n;
    return false;
}

static void whoever_takes_the_file_may_stop_it(void **state) {
    (void)state;
    struct weft_api_multipart *form = begin(TYPE, WEFT_OK);
    static const char bytes[] = HEAD("file", "") "x\r\n--edge--";
    form->take = refuse;
    assert_int_equal(weft_api_multipart_more(form, bytes, sizeof bytes - 1, NULL), WEFT_E_CLOSED);
    weft_buf_fini(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_form_is_read_however_it_is_cut),
        cmocka_unit_test(the_boundary_is_found_in_its_header),
        cmocka_unit_test(what_is_no_form_is_refused),
        cmocka_unit_test(heads_fields_and_their_number_are_bounded),
        cmocka_unit_test(whoever_takes_the_file_may_stop_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
