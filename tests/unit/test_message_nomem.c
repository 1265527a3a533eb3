/* Refuses the 1st, 2nd, 3rd ... allocation while outputs are read until one runs clean: each refusal is NOMEM, and
 * nothing leaks (the address sanitizer's build sees to that). The linker turns the calls of the
 * allocator into the __wrap functions here; jansson is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "message/message.h"

#define NEVER UINT32_MAX
static uint32_t n_left = NEVER; /* allocations to go until one is refused */
static bool has_refused;

static bool refuse(void) {
    if (n_left == NEVER) return false;
    has_refused = n_left == 0; /* and all after it: memory that ran out stays so */
    if (n_left > 0) n_left--;
    return has_refused;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *block, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *block, size_t n);

void *__wrap_malloc(size_t n) {
    return refuse() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size) {
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *block, size_t n) {
    return refuse() ? NULL : __real_realloc(block, n);
}

static void ignore(void *context, const struct weft_msg_event *event) {
    size_t *n_told = context;
    *n_told += event->text.len;
}

static weft_err read_output(const struct weft_msg_setup *setup, const char *output) {
    weft_msg_parser *parser;
    size_t n_told = 0;
    weft_err err = weft_msg_parser_new(setup, &parser);
    for (const char *at = output; *at && !err; at++)
        err = weft_msg_push(parser, (struct weft_str){at, 1}, ignore, &n_told);
    if (!err) err = weft_msg_finish(parser, ignore, &n_told);
    if (!err) assert_true(n_told > 0);
    weft_msg_parser_free(parser);
    return err;
}

static const struct {
    const char *format, *output;
} outputs[] = {
    {"hermes", "a<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>"},
    {"command-r7b", "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
                    "\"parameters\": {\"a\": 1}}]<|END_ACTION|>"},
    {"mistral-args", "[TOOL_CALLS]f[CALL_ID]012345678[ARGS]{\"a\": 1}"},
    {"llama4-pythonic", "[f(a='b', c=[1]), f()]"},
    {"qwen3-coder", "<tool_call><function=f><parameter=s>b</parameter><parameter=c>[1, True]"
                    "</parameter></function></tool_call>"},
    {"gpt-oss", "<|channel|>commentary to=functions.f<|message|>{\"a\": 1}<|call|>"},
};

static void outputs_survive_each_refusal(void **state) {
    (void)state;
    json_t *list = json_loads("[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {"
                              "\"s\": {\"type\": \"string\"}}}}}]",
                              0, NULL);
    weft_msg_tools *tools;
    assert_int_equal(weft_msg_tools_new(list, &tools, NULL), WEFT_OK);
    for (size_t i = 0; i < 2 * (sizeof outputs / sizeof *outputs); i++) {
        struct weft_str name = {outputs[i / 2].format, strlen(outputs[i / 2].format)};
        struct weft_msg_setup setup = {
            .format = weft_msg_format_named(name), .tools = tools, .is_constrained = i % 2};
        weft_err err = WEFT_E_NOMEM;
        for (uint32_t granted = 0; err; granted++) {
            assert_true(granted < 1000);
            n_left = granted;
            has_refused = false;
            err = read_output(&setup, outputs[i / 2].output);
            n_left = NEVER;
            if (err != (has_refused ? WEFT_E_NOMEM : WEFT_OK))
                fail_msg("%s, %u allocations: %s", outputs[i / 2].format, granted,
                         weft_err_text(err));
        }
    }
    weft_msg_tools_free(tools);
    json_decref(list);
}

static void lists_of_tools_survive_each_refusal(void **state) {
    (void)state;
    json_t *list = json_loads("[{\"function\": {\"name\": \"f\"}}]", 0, NULL);
    weft_err err = WEFT_E_NOMEM;
    for (uint32_t granted = 0; err; granted++) {
        weft_msg_tools *tools;
        assert_true(granted < 1000);
        n_left = granted;
        has_refused = false;
        err = weft_msg_tools_new(list, &tools, NULL);
        n_left = NEVER;
        assert_int_equal(err, has_refused ? WEFT_E_NOMEM : WEFT_OK);
        assert_int_equal(tools == NULL, err != WEFT_OK);
        weft_msg_tools_free(tools);
    }
    json_decref(list);
}

int main(void) {
    json_set_alloc_funcs(__wrap_malloc, free);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_survive_each_refusal),
        cmocka_unit_test(lists_of_tools_survive_each_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
