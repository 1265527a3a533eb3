#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/error.h"

static void errors_have_openai_s_shape(void **state) {
    (void)state;
    struct weft_api_error error = {0};
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    weft_api_error_set(&error, 400, "n", NULL, "bad \"%d\"", 7);
    weft_api_error_set(&error, 500, NULL, NULL, "a second one does not replace the first");
    weft_api_error_json(&error, NULL, &out);
    assert_string_equal(
        weft_buf_cstr(&out),
        "{\"error\":{\"message\":\"bad \\\"7\\\"\",\"type\":\"invalid_request_error\","
        "\"param\":\"n\",\"code\":null}}");
    weft_buf_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_have_openai_s_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
