#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "traffic/trace.h"

#define HEADING "TIMESTAMP,ContextTokens,GeneratedTokens\n"
#define LINE "{\"timestamp\": 0, \"input_length\": 7, \"output_length\": 3}\n"

static struct weft_traffic_trace parse(const char *text, uint32_t n_rows_max) {
    struct weft_traffic_trace trace;
    struct weft_errmsg why = {""};
    assert_int_equal(weft_traffic_trace_parse("t", text, strlen(text), n_rows_max, &trace, &why),
                     WEFT_OK);
    assert_true(trace.n_rows > 0 && trace.rows[0].at_ns == 0);
    return trace;
}

static void refuses(const char *text, weft_err expected, const char *words) {
    struct weft_traffic_trace trace;
    struct weft_errmsg why = {""};
    assert_int_equal(weft_traffic_trace_parse("t", text, strlen(text), 0, &trace, &why), expected);
    if (!strstr(why.text, words)) fail_msg("\"%s\" does not say \"%s\"", why.text, words);
    assert_true(!trace.rows && trace.n_rows == 0 && !trace.hashes);
}

static void moments_of_a_csv_are_counted_from_its_first(void **state) {
    (void)state;
    struct weft_traffic_trace trace = parse(HEADING "2031-05-06 07:08:09.2500000,900,10\n"
                                                    "2031-05-06 07:08:09.3020000,77,8\n"
                                                    "2031-05-07T00:00:00Z,1,0\r\n\n",
                                            0);
    assert_int_equal(trace.n_rows, 3);
    assert_true(trace.rows[1].at_ns == 52000000);
    assert_true(trace.rows[2].at_ns == UINT64_C(60710750000000));
    assert_int_equal(trace.rows[0].n_in, 900);
    assert_int_equal(trace.rows[1].n_out, 8);
    assert_int_equal(trace.rows[2].n_out, 0);
    weft_traffic_trace_fini(&trace);
}

static void days_are_counted_over_leap_years(void **state) {
    (void)state;
    static const struct {
        const char *from, *to;
        uint64_t days;
    } cases[] = {{"2023-12-31", "2024-01-01", 1},
                 {"2024-02-28", "2024-03-01", 2},
                 {"2023-02-28", "2023-03-01", 1},
                 {"2100-02-28", "2100-03-01", 1},
                 {"2000-01-01", "2400-01-01", 146097}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200];
        (void)snprintf(text, sizeof text, HEADING "%s 00:00:00,1,1\n%s 00:00:00,1,1", cases[i].from,
                       cases[i].to);
        struct weft_traffic_trace trace = parse(text, 0);
        assert_true(trace.rows[1].at_ns == cases[i].days * 86400 * 1000000000);
        weft_traffic_trace_fini(&trace);
    }
}

static void columns_of_a_csv_are_found_by_name(void **state) {
    (void)state;
    struct weft_traffic_trace trace = parse("model,GeneratedTokens,ContextTokens,TIMESTAMP\n"
                                            "a,1,2,2031-05-06 00:00:00.250000+00:00\n",
                                            0);
    assert_int_equal(trace.rows[0].n_in, 2);
    assert_int_equal(trace.rows[0].n_out, 1);
    weft_traffic_trace_fini(&trace);
}

static void hash_ids_of_json_lines_are_kept(void **state) {
    (void)state;
    struct weft_traffic_trace trace = parse(
        "{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 6, "
        "\"hash_ids\": [0, 9007199254740993]}\n"
        "{\"hash_ids\": [0], \"output_length\": 1, \"input_length\": 5, \"timestamp\": 2500.5}\n"
        "{\"timestamp\": 3000, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": []}\n"
        "{\"timestamp\": 3000, \"input_length\": 6, \"output_length\": 1}",
        0);
    assert_int_equal(trace.n_rows, 4);
    assert_int_equal(trace.n_hashes, 3);
    assert_true(trace.rows[1].at_ns == 1500500000);
    assert_int_equal(trace.rows[0].n_hashes, 2);
    assert_true(trace.hashes[trace.rows[0].first_hash + 1] == UINT64_C(9007199254740993));
    assert_true(trace.hashes[trace.rows[1].first_hash] == 0);
    assert_int_equal(trace.rows[2].n_hashes + trace.rows[3].n_hashes, 0);
    weft_traffic_trace_fini(&trace);
}

static void rows_are_put_in_order_and_equals_stay_as_they_were(void **state) {
    (void)state;
    struct weft_traffic_trace trace = parse(HEADING "2031-05-06 00:00:02,1,0\n"
                                                    "2031-05-06 00:00:01,2,0\n"
                                                    "2031-05-06 00:00:02,3,0\n"
                                                    "2031-05-06 00:00:01,4,0\n",
                                            0);
    static const uint32_t order[] = {2, 4, 1, 3};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(trace.rows[i].n_in, order[i]);
    assert_true(trace.rows[3].at_ns == 1000000000);
    weft_traffic_trace_fini(&trace);
}

static void no_more_rows_are_read_than_asked_for(void **state) {
    (void)state;
    struct weft_traffic_trace trace = parse(LINE LINE "this is never read", 2);
    assert_int_equal(trace.n_rows, 2);
    weft_traffic_trace_fini(&trace);
    trace = parse(HEADING "2031-05-06 00:00:02,1,0\nnor this", 1);
    assert_int_equal(trace.n_rows, 1);
    weft_traffic_trace_fini(&trace);
}

static void files_that_are_none_end_in_a_sentence(void **state) {
    (void)state;
    refuses("", WEFT_E_PROTO, "t is empty");
    refuses("\n \n", WEFT_E_PROTO, "t is empty");
    refuses("hello\n", WEFT_E_PROTO, "line 1: is neither JSON nor a heading");
    refuses("TIMESTAMP,ContextTokens\n", WEFT_E_PROTO, "neither JSON nor a heading");
    refuses(HEADING, WEFT_E_PROTO, "a heading and no rows");
    refuses("{", WEFT_E_PROTO, "line 1: is not JSON");
    refuses(LINE "[]", WEFT_E_PROTO, "line 2: is not a JSON object");
    refuses(LINE "\n{}", WEFT_E_PROTO, "line 3: timestamp");
    refuses(LINE "{\"timestamp\": \"0\"}", WEFT_E_PROTO, "line 2: timestamp");
}

static void wrong_fields_of_a_csv_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *row, *words;
    } cases[] = {
        {"2031-05-06 00:00:01,2", "line 2: has fewer fields"},
        {"2031-05-06 00:00:01,,2", "ContextTokens and"},
        {"2031-05-06 00:00:01,-1,2", "ContextTokens and"},
        {"2031-05-06 00:00:01,1.5,2", "ContextTokens and"},
        {"2031-05-06 00:00:01,1,16777217", "ContextTokens and"},
        {"2031-05-06,1,2", "TIMESTAMP"},
        {"2023-13-16 00:00:01,1,2", "TIMESTAMP"},
        {"2023-00-16 00:00:01,1,2", "TIMESTAMP"},
        {"2023-11-00 00:00:01,1,2", "TIMESTAMP"},
        {"2031-05-06 24:00:01,1,2", "TIMESTAMP"},
        {"2031-05-06 00:60:01,1,2", "TIMESTAMP"},
        {"2031-05-06 00:00:01x,1,2", "TIMESTAMP"},
        {"0000-01-01 00:00:01,1,2", "TIMESTAMP"},
        {"9999-12-31 00:00:01,1,2", "TIMESTAMP"},
        {"2031-05-06 00:00:01.00000000000000000000000000000000000000000000,1,2", "too long"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[300];
        (void)snprintf(text, sizeof text, HEADING "%s\n", cases[i].row);
        refuses(text, WEFT_E_PROTO, cases[i].words);
    }
}

static void wrong_fields_of_json_lines_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *rest, *words;
    } cases[] = {
        {"\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1", "timestamp"},
        {"\"timestamp\": 1e300, \"input_length\": 1, \"output_length\": 1", "timestamp"},
        {"\"timestamp\": 0, \"output_length\": 1", "input_length and"},
        {"\"timestamp\": 0, \"input_length\": 1", "input_length and"},
        {"\"timestamp\": 0, \"input_length\": -1, \"output_length\": 1", "input_length and"},
        {"\"timestamp\": 0, \"input_length\": 1.5, \"output_length\": 1", "input_length and"},
        {"\"timestamp\": 0, \"input_length\": 99999999, \"output_length\": 1", "input_length and"},
        {"\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": 3",
         "hash_ids"},
        {"\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1.5]",
         "hash_ids"},
        {"\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [[]]",
         "hash_ids"},
        {"\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": "
         "[99999999999999999999]",
         "is not JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[300];
        (void)snprintf(text, sizeof text, LINE "{%s}\n", cases[i].rest);
        refuses(text, WEFT_E_PROTO, cases[i].words);
    }
}

static void a_list_of_too_many_hash_ids_is_refused(void **state) {
    (void)state;
    struct weft_buf text;
    weft_buf_init(&text, 1 << 20);
    weft_buf_add_str(&text, "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, "
                            "\"hash_ids\": [0");
    for (int i = 0; i < 40000; i++)
        weft_buf_add_str(&text, ",1");
    weft_buf_add_str(&text, "]}");
    refuses(weft_buf_cstr(&text), WEFT_E_PROTO, "hash_ids");
    weft_buf_fini(&text);
}

static void a_file_that_is_not_there_says_so(void **state) {
    (void)state;
    struct weft_traffic_trace trace;
    struct weft_errmsg why = {""};
    assert_int_equal(weft_traffic_trace_read("/no/such/trace", 0, &trace, &why), WEFT_E_NOTFOUND);
    assert_non_null(strstr(why.text, "/no/such/trace"));
}

/* The real ones, where they are: the figures of their description. */
static void real_traces_are_read_whole(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t n_rows;
        uint64_t last_s;
    } cases[] = {{"AzureLLMInferenceTrace_code.csv", 8819, 3400},
                 {"mooncake_synthetic_trace.jsonl", 3993, 1000}};
    const char *shared = getenv("WEFT_SHARED_DIR");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[4096];
        struct weft_traffic_trace trace;
        struct weft_errmsg why = {""};
        (void)snprintf(path, sizeof path, "%s/traces/%s", shared ? shared : "..", cases[i].name);
        weft_err err = weft_traffic_trace_read(path, 0, &trace, &why);
        if (err == WEFT_E_NOTFOUND) skip();
        assert_int_equal(err, WEFT_OK);
        assert_int_equal(trace.n_rows, cases[i].n_rows);
        uint64_t s = trace.rows[trace.n_rows - 1].at_ns / 1000000000;
        assert_true(s > cases[i].last_s && s < cases[i].last_s + 100);
        weft_traffic_trace_fini(&trace);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_of_a_csv_are_counted_from_its_first),
        cmocka_unit_test(days_are_counted_over_leap_years),
        cmocka_unit_test(columns_of_a_csv_are_found_by_name),
        cmocka_unit_test(hash_ids_of_json_lines_are_kept),
        cmocka_unit_test(rows_are_put_in_order_and_equals_stay_as_they_were),
        cmocka_unit_test(no_more_rows_are_read_than_asked_for),
        cmocka_unit_test(files_that_are_none_end_in_a_sentence),
        cmocka_unit_test(wrong_fields_of_a_csv_are_refused),
        cmocka_unit_test(wrong_fields_of_json_lines_are_refused),
        cmocka_unit_test(a_list_of_too_many_hash_ids_is_refused),
        cmocka_unit_test(a_file_that_is_not_there_says_so),
        cmocka_unit_test(real_traces_are_read_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
