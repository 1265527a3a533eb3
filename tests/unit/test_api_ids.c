/* The ids of prompts and outputs: which of them are kept, and which are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "unit/api_fixture.h"

/* ---------------------------------------------------------------------------- what is kept --- */

/* A completion's prompt of ids 1 to 1000, of a context of 1024, with `fields`: its ids are then `n`, from
 * `first` on. */
static void expect_kept(const char *fields, uint32_t first, size_t n) {
    struct weft_buf json;
    weft_buf_init(&json, 1 << 16);
    weft_buf_add_str(&json, "{\"prompt\":[1");
    for (uint32_t id = 2; id <= 1000; id++)
        weft_buf_printf(&json, ",%u", id);
    weft_buf_printf(&json, "],%s}", fields);
    weft_api_call *call = begin(weft_buf_cstr(&json));
    weft_buf_fini(&json);
    const struct prompt *prompt = &call->params.prompts[0];
    assert_int_equal(call->error.status, 0);
    assert_int_equal(prompt->n_ids, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(prompt->ids[i], first + i);
    weft_api_call_drop(call);
}

static void a_prompt_is_cut_to_as_many_ids_as_were_asked_for(void **state) {
    (void)state;
    assert_int_equal(api.limits.max_model_len, 1024);
    expect_kept("\"truncate_prompt_tokens\":null", 1, 1000);
    expect_kept("\"truncate_prompt_tokens\":10", 991, 10);
    expect_kept("\"truncate_prompt_tokens\":10,\"truncation_side\":\"left\"", 991, 10);
    expect_kept("\"truncate_prompt_tokens\":10,\"truncation_side\":\"right\"", 1, 10);
    expect_kept("\"truncate_prompt_tokens\":1", 1000, 1);
    expect_kept("\"truncate_prompt_tokens\":1024", 1, 1000);
}

static void or_to_what_the_context_has_beside_the_output(void **state) {
    (void)state;
    expect_kept("\"truncate_prompt_tokens\":-1", 1, 1000); /* and 16 of output */
    expect_kept("\"truncate_prompt_tokens\":-1,\"max_tokens\":24", 1, 1000);
    expect_kept("\"truncate_prompt_tokens\":-1,\"max_tokens\":124", 101, 900);
    expect_kept("\"truncate_prompt_tokens\":-1,\"max_tokens\":1023", 1000, 1);
    weft_api_call *call = begin("{\"prompt\":[1,2],\"truncate_prompt_tokens\":-1,"
                                "\"max_tokens\":1024}");
    assert_int_equal(call->error.status, 400);
    assert_string_equal(call->error.code, "context_length_exceeded");
    weft_api_call_drop(call);
}

static void a_cut_prompt_is_echoed_as_its_ids_read(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once upon a time\",\"echo\":true,"
                                "\"truncate_prompt_tokens\":2,\"max_tokens\":1}");
    struct sent submit = *last_sent();
    assert_int_equal(submit.n_prompt, 2);
    put_accepted(&submit);
    uint32_t ids[32];
    assert_int_equal(encode(" was", ids), 1);
    put_token(&submit, 0, 0, ids[0], WEFT_END_LENGTH);
    json_t *body = body_of(call, 1 << 16);
    assert_string_equal(text_of(choice_of(body, 0), "text"), " a time was");
    json_decref(body);
    weft_api_call_drop(call);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_prompt_is_cut_to_as_many_ids_as_were_asked_for),
        CASE(or_to_what_the_context_has_beside_the_output),
        CASE(a_cut_prompt_is_echoed_as_its_ids_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
