#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traffic/reply.h"

static void count(void *context) {
    ++*(unsigned *)context;
}

struct read {
    struct weft_traffic_reply reply;
    unsigned n_tokens;
};

static void feed(struct read *r, bool is_chat, enum weft_traffic_keep keep, const char *text,
                 size_t piece) {
    r->n_tokens = 0;
    weft_traffic_reply_init(&r->reply, is_chat, keep, count, &r->n_tokens);
    for (size_t at = 0, len = strlen(text); at < len; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        char *copy = malloc(n); /* a sanitizer sees who reads past its end */
        assert_non_null(copy);
        memcpy(copy, text + at, n);
        weft_traffic_reply_feed(&r->reply, copy, n);
        free(copy);
    }
}

#define USAGE                                                                                      \
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"total_tokens\":43,"                   \
    "\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":32}}}\n\n"

static void pieces_of_any_size_make_the_same_tokens(void **state) {
    (void)state;
    static const char text[] = ": hello\n\n"
                               "data: {\"choices\":[{\"text\":\"a\"}],\"usage\":null}\r\n\r\n"
                               "data:{\"choices\":[{\"text\": \"\\\"text\\\":\"}]}\n\n"
                               "data: {\"choices\":[{\"text\":\"\"}]}\n\n" USAGE "data: [DONE]\n\n";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        struct read r;
        feed(&r, false, WEFT_TRAFFIC_KEEP_NOTHING, text, piece);
        assert_int_equal(r.n_tokens, 2);
        assert_true(r.reply.is_done && !r.reply.is_faulty && r.reply.has_cached);
        assert_int_equal(r.reply.n_completion, 3);
        assert_int_equal(r.reply.n_prompt, 40);
        assert_int_equal(r.reply.n_cached, 32);
        assert_int_equal(r.reply.answer.len, 0);
        weft_traffic_reply_fini(&r.reply);
    }
}

static void messages_have_content_instead_of_text(void **state) {
    (void)state;
    struct read r;
    feed(&r, true, WEFT_TRAFFIC_KEEP_TEXT,
         "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
         "data: {\"choices\":[{\"delta\":{\"content\":\"say \\\"a\\\\\"}}]}\n\n"
         "data: {\"choices\":[{\"delta\":{\"content\": \"\\n\"}}]}\n\n"
         "data: {\"choices\":[{\"delta\":{\"content\":\"no end\\\"\n\n"
         "data: {\"choices\":[{\"delta\":{}}]}\n\ndata: [DONE]\n\n",
         5);
    assert_int_equal(r.n_tokens, 3);
    assert_string_equal(weft_buf_cstr(&r.reply.answer), "say \\\"a\\\\\\n");
    weft_traffic_reply_fini(&r.reply);
}

static void token_ids_are_found_in_the_forms_that_servers_have(void **state) {
    (void)state;
    static const char *const events[] = {
        "\"text\":\"ab\",\"token_ids\":[46, 12],\"logprobs\":null",
        "\"text\":\"ab\",\"logprobs\":{\"tokens\":[\"token_id:46\",\"token_id:12\"],"
        "\"token_logprobs\":[-1,-2],\"top_logprobs\":[{\"token_id:46\":-1},{\"token_id:12\":-2}]}",
        "\"text\":\"\",\"logprobs\":{\"text_offset\":[0,1],\"tokens\": [\"token_id:46\", "
        "\"token_id:12\"]}",
    };
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        char text[400];
        struct read r;
        int len =
            snprintf(text, sizeof text, "data: {\"choices\":[{\"index\":0,%s}]}\n\n", events[i]);
        assert_in_range(len, 1, sizeof text - 1);
        feed(&r, false, WEFT_TRAFFIC_KEEP_IDS, text, 1000);
        assert_string_equal(weft_buf_cstr(&r.reply.answer), ",46,12");
        weft_traffic_reply_fini(&r.reply);
    }
    struct read r;
    feed(
        &r, false, WEFT_TRAFFIC_KEEP_IDS,
        "data: {\"choices\":[{\"text\":\"a\",\"logprobs\":{\"content\":[{\"id\":46,\"token\":\"a\","
        "\"top_logprobs\":[{\"id\":46}]}]}}],\"id\":\"chat-7\"}\n\n",
        3);
    assert_string_equal(weft_buf_cstr(&r.reply.answer), ",46");
    weft_traffic_reply_fini(&r.reply);
}

static void streams_that_name_no_ids_keep_none(void **state) {
    (void)state;
    static const char *const events[] = {
        "data: {\"text\":\"a\",\"logprobs\":null}\n",
        "data: {\"text\":\"a\",\"logprobs\":{\"tokens\":[\" the\"]}}\n",
        "data: {\"text\":\"a\",\"token_ids\":[\n",
        "data: {\"text\":\"a\",\"token_ids\":[]}\n",
        "data: {\"text\":\"a\",\"token_ids\":[-,\"x\"]}\n",
        "data: {\"text\":\"a\",\"logprobs\":{\"tokens\":[\"token_id:\"]}}\n",
        "data: {\"text\":\"a\",\"logprobs\":{\"content\":[{\"id\":\"x\"}]}}\n",
    };
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        struct read r;
        feed(&r, false, WEFT_TRAFFIC_KEEP_IDS, events[i], 1000);
        assert_int_equal(r.reply.answer.len, 0);
        assert_int_equal(r.n_tokens, 1);
        weft_traffic_reply_fini(&r.reply);
    }
}

static void an_error_in_the_stream_is_a_fault(void **state) {
    (void)state;
    struct read r;
    feed(&r, false, WEFT_TRAFFIC_KEEP_NOTHING,
         "data: {\"text\":\"a\"}\n\ndata: {\"error\": {\"message\": \"lost\"}}\n\n"
         "data: {\"text\":\"a\"}\n\n",
         1000);
    assert_true(r.reply.is_faulty && strstr(r.reply.fault, "lost"));
    assert_int_equal(r.n_tokens, 1);
    weft_traffic_reply_clear(&r.reply);
    assert_true(!r.reply.is_faulty && r.reply.fault[0] == '\0');
    weft_traffic_reply_fini(&r.reply);
}

static void a_line_that_does_not_end_is_a_fault(void **state) {
    (void)state;
    struct read r;
    static char bytes[65536];
    memset(bytes, 'x', sizeof bytes);
    feed(&r, false, WEFT_TRAFFIC_KEEP_NOTHING, "data: ", 10);
    for (int i = 0; i < 40; i++)
        weft_traffic_reply_feed(&r.reply, bytes, sizeof bytes);
    assert_true(r.reply.is_faulty && strstr(r.reply.fault, "too long"));
    weft_traffic_reply_fini(&r.reply);
}

static void numbers_that_no_server_means_do_not_overflow(void **state) {
    (void)state;
    struct read r;
    feed(&r, false, WEFT_TRAFFIC_KEEP_NOTHING,
         "data: {\"usage\":{\"completion_tokens\":99999999999999999999999999,"
         "\"prompt_tokens\":-3,\"cached_tokens\":null}}\n",
         7);
    assert_true(r.reply.n_completion >= UINT32_MAX && r.reply.n_prompt == 0);
    assert_false(r.reply.has_cached);
    weft_traffic_reply_fini(&r.reply);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_any_size_make_the_same_tokens),
        cmocka_unit_test(messages_have_content_instead_of_text),
        cmocka_unit_test(token_ids_are_found_in_the_forms_that_servers_have),
        cmocka_unit_test(streams_that_name_no_ids_keep_none),
        cmocka_unit_test(an_error_in_the_stream_is_a_fault),
        cmocka_unit_test(a_line_that_does_not_end_is_a_fault),
        cmocka_unit_test(numbers_that_no_server_means_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
