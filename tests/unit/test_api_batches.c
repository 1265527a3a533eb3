/* Batches as objects, on a disk and on the wire, and their lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/batch.h"
#include "inside/api/kinds/kind.h"

#define STR(text) ((struct weft_str){(text), strlen(text)})
#define GOOD                                                                                       \
    "{\"input_file_id\":\"file-1\",\"endpoint\":\"/v1/completions\",\"completion_window\":"        \
    "\"24h\",\"metadata\":{\"a\":\"b\"}}"

static void parse(const char *body, struct weft_api_batch *batch) {
    struct weft_api_error error = {0};
    assert_true(weft_api_batch_parse(STR(body), batch, 1000, &error));
    assert_int_equal(error.status, 0);
}

static void a_request_for_a_batch_is_read(void **state) {
    (void)state;
    struct weft_api_batch batch;
    parse(GOOD, &batch);
    assert_string_equal(batch.input, "file-1");
    assert_string_equal(batch.metadata, "{\"a\":\"b\"}");
    assert_int_equal(batch.expires_s, 1000 + 86400);
    assert_int_equal(batch.status, WEFT_API_BATCH_VALIDATING);
    assert_true(weft_api_is_stored_id(STR(batch.id)) && weft_api_is_stored_id(STR(batch.output)));
    assert_string_not_equal(batch.output, batch.error);
    weft_api_batch_fini(&batch);
}

static void a_bad_one_names_its_field(void **state) {
    (void)state;
    static const struct {
        const char *body, *param;
    } bad[] = {
        {"", ""},
        {"[]", ""},
        {"{\"input_file_id\":\"../a\"}", "input_file_id"},
        {"{\"input_file_id\":7}", "input_file_id"},
        {"{\"input_file_id\":\"file-1\",\"endpoint\":\"/tokenize\"}", "endpoint"},
        {"{\"input_file_id\":\"file-1\",\"endpoint\":\"/v1/completions\"}", "completion_window"},
        {"{\"input_file_id\":\"file-1\",\"endpoint\":\"/v1/"
         "completions\",\"completion_window\":\"0h\"}",
         "completion_window"},
        {"{\"input_file_id\":\"file-1\",\"endpoint\":\"/v1/completions\",\"completion_window\":"
         "\"99999999999999999999s\"}",
         "completion_window"},
        {"{\"input_file_id\":\"file-1\",\"endpoint\":\"/v1/completions\",\"completion_window\":"
         "\"1d\",\"metadata\":{\"a\":{}}}",
         "metadata"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct weft_api_batch batch;
        struct weft_api_error error = {0};
        assert_false(weft_api_batch_parse(STR(bad[i].body), &batch, 0, &error));
        assert_int_equal(error.status, 400);
        assert_string_equal(error.param, bad[i].param);
    }
}

static void what_is_stored_comes_back(void **state) {
    (void)state;
    struct weft_api_batch batch, again;
    struct weft_buf text, told, told_again;
    parse(GOOD, &batch);
    batch.tenant = 0xfedcba9876543210u;
    batch.weight = 3;
    batch.n_total = 5;
    batch.n_completed = 2;
    batch.has_output = true;
    batch.errors = strdup("[{\"code\":\"x\"}]");
    weft_api_batch_enter(&batch, WEFT_API_BATCH_IN_PROGRESS, 1001);
    weft_api_batch_enter(&batch, WEFT_API_BATCH_CANCELLING, 1002);
    weft_buf_init(&text, 1 << 16);
    weft_buf_init(&told, 1 << 16);
    weft_buf_init(&told_again, 1 << 16);
    weft_api_batch_store(&batch, &text);
    assert_int_equal(weft_api_batch_restore(STR(weft_buf_cstr(&text)), &again, NULL), WEFT_OK);
    weft_api_batch_write(&batch, &told);
    weft_api_batch_write(&again, &told_again);
    assert_string_equal(weft_buf_cstr(&told), weft_buf_cstr(&told_again));
    assert_null(strstr(weft_buf_cstr(&told), "tenant"));
    assert_true(again.tenant == batch.tenant && again.weight == 3);
    assert_string_equal(again.error, batch.error);
    weft_api_batch_fini(&again);
    for (size_t n = 0; n < text.len; n++) /* what breaks off is refused, and leaks nothing */
        assert_int_equal(weft_api_batch_restore((struct weft_str){text.data, n}, &again, NULL),
                         WEFT_E_PROTO);
    assert_int_equal(weft_api_batch_restore(STR(weft_buf_cstr(&text)), &again, NULL), WEFT_OK);
    weft_api_batch_fini(&batch);
    weft_api_batch_fini(&again);
    weft_buf_fini(&text);
    weft_buf_fini(&told);
    weft_buf_fini(&told_again);
}

static void a_stored_file_comes_back(void **state) {
    (void)state;
    struct weft_api_file file = {.id = "file-a",
                                 .tenant = 7,
                                 .bytes = 1ull << 40,
                                 .created_s = 3,
                                 .purpose = "batch",
                                 .name = "\"\xc3\xa9\".jsonl"},
                         again;
    struct weft_buf text;
    weft_buf_init(&text, 1 << 16);
    weft_api_file_store(&file, &text);
    assert_int_equal(weft_api_file_restore(STR(weft_buf_cstr(&text)), &again, NULL), WEFT_OK);
    assert_memory_equal(&file, &again, sizeof file);
    assert_int_equal(weft_api_file_restore(STR("{\"id\":\"file-a\"}"), &again, NULL), WEFT_E_PROTO);
    weft_buf_fini(&text);
}

static void an_upload_may_shorten_its_life(void **state) {
    (void)state;
    static const struct {
        const char *anchor, *seconds;
        int64_t expires_s; /* 0: refused */
    } cases[] = {{NULL, NULL, 90100},
                 {"created_at", "3600", 3700},
                 {"created_at", "2592000", 90100}, /* no longer than the store keeps it */
                 {"created_at", "3599", 0},
                 {"created_at", "2592001", 0},
                 {"created_at", "99999999999999999999999", 0},
                 {"created_at", "1h", 0},
                 {"created_at", "-1", 0},
                 {"created_at", NULL, 0},
                 {"now", "3600", 0},
                 {NULL, "3600", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weft_api_file file = {.created_s = 100, .expires_s = 90100};
        struct weft_api_error error = {0};
        bool is_fair = weft_api_file_expire(&file, cases[i].anchor, cases[i].seconds, &error);
        assert_int_equal(is_fair, cases[i].expires_s > 0);
        if (is_fair)
            assert_int_equal(file.expires_s, cases[i].expires_s);
        else
            assert_non_null(strstr(error.message, "'expires_after["));
    }
}

static void what_is_over_stays_so(void **state) {
    (void)state;
    struct weft_api_batch batch = {.status = WEFT_API_BATCH_VALIDATING};
    weft_api_batch_enter(&batch, WEFT_API_BATCH_COMPLETED, 5);
    weft_api_batch_enter(&batch, WEFT_API_BATCH_CANCELLING, 6);
    assert_int_equal(batch.status, WEFT_API_BATCH_COMPLETED);
    assert_int_equal(batch.at_s[WEFT_API_BATCH_CANCELLING], 0);
    assert_true(weft_api_batch_is_over(&batch));
}

static void a_line_is_read(void **state) {
    (void)state;
    struct weft_api_batch_line line;
    struct weft_api_batch_fault fault;
    static const char text[] =
        "{\"custom_id\":\"a\\u00e9\",\"method\":\"POST\",\"url\":\"/v1/completions\","
        "\"body\":{\"prompt\":\"x\",\"temperature\":0.1,\"seed\":9007199254740993}}";
    assert_true(weft_api_batch_line_read(STR(text), "/v1/completions", SIZE_MAX, &line, &fault));
    assert_true(WEFT_STR_IS(line.custom_id, "a\xc3\xa9"));
    assert_string_equal(line.kind->path, "/v1/completions");
    json_t *body = json_loadb(line.body, line.n_body, 0, NULL);
    assert_true(json_real_value(json_object_get(body, "temperature")) == 0.1);
    assert_true(json_integer_value(json_object_get(body, "seed")) == 9007199254740993);
    json_decref(body);
    weft_api_batch_line_fini(&line);
    assert_true(weft_api_batch_line_read(STR(text), NULL, SIZE_MAX, &line, &fault));
    weft_api_batch_line_fini(&line);
}

static int n_values;

static void *count_malloc(size_t n) {
    n_values++;
    return malloc(n);
}

static void count_free(void *at) {
    n_values -= at != NULL;
    free(at);
}

/* Many lines are held at once, and the tree of one takes many times what its text does. */
static void a_line_that_was_read_holds_two_texts_and_no_tree(void **state) {
    (void)state;
    struct weft_api_batch_line line;
    struct weft_api_batch_fault fault;
    static const char text[] =
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\","
        "\"zz\":[0,0,0,0],\"body\":{\"prompt\":[1,2,3]}}";
    json_malloc_t old_malloc;
    json_free_t old_free;
    json_get_alloc_funcs(&old_malloc, &old_free);
    json_set_alloc_funcs(count_malloc, count_free);
    assert_true(weft_api_batch_line_read(STR(text), NULL, SIZE_MAX, &line, &fault));
    assert_int_equal(n_values, 1); /* the body */
    assert_string_equal(line.body, "{\"prompt\":[1,2,3]}");
    assert_true(WEFT_STR_IS(line.custom_id, "a"));
    json_set_alloc_funcs(old_malloc, old_free);
    weft_api_batch_line_fini(&line);
}

static int n_left; /* values before memory runs out */

static void *scarce_malloc(size_t n) {
    return n_left-- > 0 ? malloc(n) : NULL;
}

/* It would end a batch, or a line, that is fair. Where a string has no room jansson itself says that it is none. */
static void without_memory_no_line_is_at_fault(void **state) {
    (void)state;
    struct weft_api_batch_line line;
    struct weft_api_batch_fault fault;
    static const char text[] =
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\","
        "\"body\":{\"prompt\":[1,2,3]}}";
    json_malloc_t old_malloc;
    json_free_t old_free;
    bool is_fair = false;
    int n_memory = 0;
    json_get_alloc_funcs(&old_malloc, &old_free);
    for (int n = 0; n < 100 && !is_fair; n++) {
        n_left = n;
        json_set_alloc_funcs(scarce_malloc, free);
        is_fair = weft_api_batch_line_read(STR(text), NULL, SIZE_MAX, &line, &fault);
        json_set_alloc_funcs(old_malloc, old_free);
        n_memory += !is_fair && fault.is_memory;
        assert_true(is_fair || fault.is_memory || strcmp(fault.code, "invalid_json_line") == 0);
        weft_api_batch_line_fini(&line);
    }
    assert_true(is_fair && n_memory > 10);
}

#define NESTED "[[[[[[[[[[[[[[[[[[[["

static void a_bad_line_has_a_code(void **state) {
    (void)state;
    static const struct {
        const char *text, *code, *words;
    } bad[] = {
        {"", "invalid_json_line", "at byte 0"},
        {"[1]", "invalid_json_line", "no JSON object"},
        {"{\"custom_id\":\"a\"} x", "invalid_json_line",
         "end of file expected near 'x', at byte 19"},
        {"\xef\xbb\xbf{}", "invalid_json_line", "at byte 3"},
        {NESTED NESTED NESTED NESTED NESTED, "invalid_json_line", "nests deeper than 66 levels"},
        {"{\"method\":\"POST\"}", "missing_required_parameter", "custom_id"},
        {"{\"custom_id\":\"a\",\"method\":\"GET\"}", "invalid_method", "POST"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/health\"}", "invalid_url", "url"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{}}",
         "mismatched_endpoint", "endpoint"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\"}",
         "missing_required_parameter", "body"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/"
         "completions\",\"body\":{\"stream\":"
         "true}}",
         "invalid_request", "stream"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct weft_api_batch_line line;
        struct weft_api_batch_fault fault;
        assert_false(
            weft_api_batch_line_read(STR(bad[i].text), "/v1/completions", SIZE_MAX, &line, &fault));
        assert_string_equal(fault.code, bad[i].code);
        if (!strstr(fault.message, bad[i].words)) fail_msg("%s", fault.message);
        assert_false(fault.is_memory);
        weft_api_batch_line_fini(&line);
    }
}

static void lines_are_told_apart(void **state) {
    (void)state;
    struct weft_str rest = STR("one\r\n\n \t\r\ntwo"), line;
    assert_true(weft_api_batch_next_line(&rest, &line) && WEFT_STR_IS(line, "one\r"));
    assert_true(weft_api_batch_next_line(&rest, &line) && WEFT_STR_IS(line, "two"));
    assert_false(weft_api_batch_next_line(&rest, &line));
}

static void an_answer_tells_which_line_it_is_to(void **state) {
    (void)state;
    static const char id[] = "batch_0123456789abcdef";
    struct weft_buf out;
    uint32_t idx = 0;
    weft_buf_init(&out, 1 << 16);
    const struct weft_api_batch_answer answer = {.batch_id = id,
                                                 .idx = 0xbeef,
                                                 .custom_id = STR("\"\n"),
                                                 .status = 200,
                                                 .request_id = "r",
                                                 .body = STR("{\"a\":1}\n")};
    weft_api_batch_write_answer(&answer, &out);
    assert_string_equal(
        weft_buf_cstr(&out),
        "{\"id\":\"batch_req_0123456789abcdef0000beef\",\"custom_id\":\"\\\"\\n\","
        "\"response\":{\"status_code\":200,\"request_id\":\"r\",\"body\":{\"a\":1}},"
        "\"error\":null}\n");
    struct weft_str line = {out.data, out.len};
    assert_true(weft_api_batch_answered(line, id, &idx));
    assert_int_equal(idx, 0xbeef);
    assert_false(weft_api_batch_answered(line, "batch_0123456789abcdee", &idx));
    for (size_t n = 0; n < 42; n++)
        assert_false(weft_api_batch_answered((struct weft_str){out.data, n}, id, &idx));
    weft_buf_clear(&out);
    const struct weft_api_batch_answer late = {
        .batch_id = id, .custom_id = STR("c"), .code = "batch_expired", .message = "too \"late\""};
    weft_api_batch_write_answer(&late, &out);
    assert_string_equal(
        weft_buf_cstr(&out),
        "{\"id\":\"batch_req_0123456789abcdef00000000\",\"custom_id\":\"c\",\"response\":"
        "null,\"error\":{\"code\":\"batch_expired\",\"message\":\"too \\\"late\\\"\"}}\n");
    weft_buf_fini(&out);
}

/* Writes an answer, reads it back, and reads no beginning of it. */
static void assert_comes_back(const struct weft_api_batch_answer *answer) {
    struct weft_buf out;
    struct weft_api_batch_answered answered;
    weft_buf_init(&out, 1 << 20);
    weft_api_batch_write_answer(answer, &out);
    assert_true(weft_api_batch_answer_read((struct weft_str){out.data, out.len}, &answered));
    assert_int_equal(answered.n_custom_id, answer->custom_id.len);
    assert_memory_equal(answered.custom_id, answer->custom_id.data, answered.n_custom_id);
    assert_int_equal(answered.status, answer->status);
    for (size_t n = 0; n < out.len - 2; n++) { /* but for a body that ends there, as it seems */
        const struct weft_str part = {out.data, n};
        if (n == 0 || out.data[n - 1] != '}')
            assert_false(weft_api_batch_answer_read(part, &answered));
        assert_true(weft_api_batch_begins_answer(part));
    }
    weft_buf_fini(&out);
}

static void an_answer_of_any_batch_tells_its_line_and_status(void **state) {
    (void)state;
    char long_id[WEFT_API_CUSTOM_ID_BYTES_MAX];
    struct weft_api_batch_answer answer = {.batch_id = "batch_0123456789abcdef",
                                           .idx = 7,
                                           .custom_id = {"a\0\"\xc3\xa9", 5},
                                           .status = 429,
                                           .request_id = "r",
                                           .body = STR("{\"a\":1}")};
    assert_comes_back(&answer);
    memset(long_id, 1, sizeof long_id); /* "\u0001" of each */
    answer.custom_id = (struct weft_str){long_id, sizeof long_id};
    assert_comes_back(&answer);
    answer = (struct weft_api_batch_answer){
        .batch_id = "batch_1", .custom_id = STR(""), .code = "batch_expired", .message = "late"};
    assert_comes_back(&answer);
}

static void what_is_no_answer_is_not_read_as_one(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "\n",
        "}",
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}",
        "{\"id\":\"batch_req_\",\"custom_id\":\"a\",\"response\":{\"status_code\":200,}",
        "{\"id\":\"batch_req_x\",\"custom_id\":\"a\",\"response\":{\"status_code\":200,}",
        "{\"id\":\"batch_req_0\",\"custom_id\":7,\"response\":{\"status_code\":200,}",
        "{\"id\":\"batch_req_0\",\"custom_id\":\"a,\"response\":{\"status_code\":200,}",
        "{\"id\":\"batch_req_0\",\"custom_id\":\"a\",\"response\":{\"status_code\":20,}",
        "{\"id\":\"batch_req_0\",\"custom_id\":\"a\",\"response\":{\"status_code\":2000,}",
        "{\"id\":\"batch_req_0\",\"custom_id\":\"a\",\"response\":null}",
    };
    struct weft_api_batch_answered answered;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(weft_api_batch_answer_read(STR(bad[i]), &answered));
    assert_false(weft_api_batch_begins_answer(STR("{\"custom_id\"")));
    assert_true(weft_api_batch_begins_answer(STR("{\"id\":\"ba")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_for_a_batch_is_read),
        cmocka_unit_test(a_bad_one_names_its_field),
        cmocka_unit_test(what_is_stored_comes_back),
        cmocka_unit_test(a_stored_file_comes_back),
        cmocka_unit_test(an_upload_may_shorten_its_life),
        cmocka_unit_test(what_is_over_stays_so),
        cmocka_unit_test(a_line_is_read),
        cmocka_unit_test(a_line_that_was_read_holds_two_texts_and_no_tree),
        cmocka_unit_test(without_memory_no_line_is_at_fault),
        cmocka_unit_test(a_bad_line_has_a_code),
        cmocka_unit_test(lines_are_told_apart),
        cmocka_unit_test(an_answer_tells_which_line_it_is_to),
        cmocka_unit_test(an_answer_of_any_batch_tells_its_line_and_status),
        cmocka_unit_test(what_is_no_answer_is_not_read_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
