/* Raw outputs of models against the messages in them: WEFT_SHARED_DIR/toolcalls holds a file for
 * each format, and a README that says how to compare; tests/data/toolcalls has formats that lie not
 * there. Each output is read whole, byte by byte, and cut in two everywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message/message.h"

#define TEXT_BYTES_MAX (1u << 20)
#define MARK_BYTES_MIN 4
#define MARK_BYTES_MAX 40

static char folder[PATH_MAX];

/* What the events said, put together. */
struct heard {
    struct weft_buf content, thoughts, arguments; /* of the last call */
    json_t *calls;
    const weft_msg_format *format;
    bool shows_mark; /* some delta did */
};

/* ---------------------------------------------------------------------------------- hearing --- */

static void end_call(struct heard *heard) {
    size_t n = json_array_size(heard->calls);
    if (n == 0) return;
    json_t *arguments = json_loadb(heard->arguments.data, heard->arguments.len, 0, NULL);
    assert_true(json_is_object(arguments));
    json_t *call = json_array_get(heard->calls, n - 1);
    assert_int_equal(json_object_set_new(call, "arguments", arguments), 0);
    weft_buf_clear(&heard->arguments);
}

static void begin_call(struct heard *heard, const struct weft_msg_event *event) {
    end_call(heard);
    assert_int_equal(event->call, json_array_size(heard->calls));
    json_t *call = json_object();
    json_t *name = json_stringn(event->text.data, event->text.len);
    assert_int_equal(json_object_set_new(call, "name", name), 0);
    if (event->id.len > 0)
        assert_int_equal(
            json_object_set_new(call, "id", json_stringn(event->id.data, event->id.len)), 0);
    assert_int_equal(json_array_append_new(heard->calls, call), 0);
}

static bool has_mark(const weft_msg_format *format, struct weft_str text) {
    for (size_t at = 0; at < text.len; at++) {
        for (size_t n = MARK_BYTES_MIN; n <= text.len - at && n <= MARK_BYTES_MAX; n++) {
            if (weft_msg_is_mark(format, (struct weft_str){text.data + at, n})) return true;
        }
    }
    return false;
}

static void hear(void *context, const struct weft_msg_event *event) {
    struct heard *heard = context;
    assert_true(event->text.len > 0);
    if (event->kind < WEFT_MSG_CALL && has_mark(heard->format, event->text))
        heard->shows_mark = true;
    if (event->kind == WEFT_MSG_THOUGHT)
        weft_buf_add(&heard->thoughts, event->text.data, event->text.len);
    if (event->kind == WEFT_MSG_CONTENT)
        weft_buf_add(&heard->content, event->text.data, event->text.len);
    if (event->kind == WEFT_MSG_CALL) begin_call(heard, event);
    if (event->kind == WEFT_MSG_ARGUMENTS)
        weft_buf_add(&heard->arguments, event->text.data, event->text.len);
}

/* ------------------------------------------------------------------------------- comparing --- */

static struct weft_str strip(struct weft_str text) {
    while (text.len > 0 && strchr(" \n\t\r", text.data[0]))
        text.data++, text.len--;
    while (text.len > 0 && strchr(" \n\t\r", text.data[text.len - 1]))
        text.len--;
    return text;
}

static struct weft_str text_of(const json_t *string) {
    return strip((struct weft_str){json_is_string(string) ? json_string_value(string) : "",
                                   json_string_length(string)});
}

static bool is_same(struct weft_str a, struct weft_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static bool has_in_order(struct weft_str text, const json_t *parts) {
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *at =
            memmem(text.data, text.len, json_string_value(part), json_string_length(part));
        if (!at) return false;
        at += json_string_length(part);
        text = (struct weft_str){at, (size_t)(text.data + text.len - at)};
    }
    return true;
}

static bool are_calls(const json_t *calls, const json_t *expected) {
    if (json_array_size(calls) != json_array_size(expected)) return false;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *want = json_array_get(expected, i);
        const json_t *id = json_object_get(want, "id");
        if (!json_equal(json_object_get(call, "name"), json_object_get(want, "name"))) return false;
        if (!json_equal(json_object_get(call, "arguments"), json_object_get(want, "arguments")))
            return false;
        if (id && !json_equal(json_object_get(call, "id"), id)) return false;
    }
    return true;
}

static bool is_as(const struct heard *heard, const json_t *expected) {
    struct weft_str content = strip((struct weft_str){heard->content.data, heard->content.len});
    struct weft_str thoughts = strip((struct weft_str){heard->thoughts.data, heard->thoughts.len});
    const json_t *parts = json_object_get(expected, "content_has");
    if (!is_same(thoughts, text_of(json_object_get(expected, "reasoning_content")))) return false;
    if (!are_calls(heard->calls, json_object_get(expected, "tool_calls"))) return false;
    return parts ? has_in_order(content, parts)
                 : is_same(content, text_of(json_object_get(expected, "content")));
}

static bool is_fine(const struct heard *heard, const json_t *test) {
    const json_t *also = json_object_get(test, "also");
    bool is_one = is_as(heard, json_object_get(test, "expect"));
    for (size_t i = 0; i < json_array_size(also); i++)
        is_one = is_one || is_as(heard, json_array_get(also, i));
    return is_one;
}

/* --------------------------------------------------------------------------------- reading --- */

static void begin_hearing(struct heard *heard, const weft_msg_format *format) {
    *heard = (struct heard){.format = format, .calls = json_array()};
    weft_buf_init(&heard->content, TEXT_BYTES_MAX);
    weft_buf_init(&heard->thoughts, TEXT_BYTES_MAX);
    weft_buf_init(&heard->arguments, TEXT_BYTES_MAX);
}

static void end_hearing(struct heard *heard) {
    json_decref(heard->calls);
    weft_buf_fini(&heard->content);
    weft_buf_fini(&heard->thoughts);
    weft_buf_fini(&heard->arguments);
}

struct reading {
    const weft_msg_format *format;
    const weft_msg_tools *tools;
    const json_t *test;
    bool is_constrained;
};

/* Pushes the first `first` bytes, then pieces of `step`. */
static void read_output(const struct reading *reading, size_t first, size_t step,
                        struct heard *heard) {
    const json_t *output = json_object_get(reading->test, "output");
    struct weft_str text = {json_string_value(output), json_string_length(output)};
    const json_t *tail = json_object_get(reading->test, "prompt_tail");
    const char *choice = json_string_value(json_object_get(reading->test, "tool_choice"));
    bool has_tools = !choice || strcmp(choice, "none") != 0;
    struct weft_msg_setup setup = {
        .format = reading->format,
        .tools = has_tools ? reading->tools : NULL,
        .is_constrained = reading->is_constrained,
        .prompt_end = {tail ? json_string_value(tail) : "", json_string_length(tail)}};
    weft_msg_parser *parser;
    assert_int_equal(weft_msg_parser_new(&setup, &parser), WEFT_OK);
    for (size_t at = 0, n = first; at < text.len; at += n, n = step) {
        if (n > text.len - at) n = text.len - at;
        struct weft_str piece = {text.data + at, n};
        assert_int_equal(weft_msg_push(parser, piece, hear, heard), WEFT_OK);
    }
    assert_int_equal(weft_msg_finish(parser, hear, heard), WEFT_OK);
    assert_int_equal(weft_msg_calls(parser), json_array_size(heard->calls));
    weft_msg_parser_free(parser);
}

static bool check_cut(const struct reading *reading, const char *file, size_t first, size_t step) {
    struct heard heard;
    begin_hearing(&heard, reading->format);
    read_output(reading, first, step, &heard);
    end_call(&heard);
    bool is_good = is_fine(&heard, reading->test);
    const json_t *expected = json_object_get(reading->test, "expect");
    const char *name = json_string_value(json_object_get(reading->test, "name"));
    bool may_show =
        json_object_get(expected, "content_has") || json_object_get(reading->test, "also") ||
        has_mark(reading->format, text_of(json_object_get(expected, "content"))) ||
        has_mark(reading->format, text_of(json_object_get(expected, "reasoning_content")));
    if (heard.shows_mark && !may_show) {
        print_error("%s, %s: a delta shows a mark\n", file, name);
        is_good = false;
    } else if (!is_good) {
        char *calls = json_dumps(heard.calls, JSON_COMPACT);
        print_error("%s, %s, cut at %zu, then by %zu: content '%s', thoughts '%s', calls %s\n",
                    file, name, first, step, weft_buf_cstr(&heard.content),
                    weft_buf_cstr(&heard.thoughts), calls);
        free(calls);
    }
    end_hearing(&heard);
    return is_good;
}

static bool check_case(struct reading *reading, const char *file) {
    size_t len = json_string_length(json_object_get(reading->test, "output"));
    bool is_good = check_cut(reading, file, len + 1, 1);
    is_good = is_good && check_cut(reading, file, 1, 1);
    for (size_t cut = 1; cut < len && is_good; cut++)
        is_good = check_cut(reading, file, cut, len);
    return is_good;
}

/* Calls that are all there. */
static bool fits_a_grammar(const json_t *test) {
    const json_t *calls = json_object_get(json_object_get(test, "expect"), "tool_calls");
    const char *name = json_string_value(json_object_get(test, "name"));
    return json_array_size(calls) > 0 && !strstr(name, "cut_off") && !strstr(name, "broken");
}

static size_t check_file(const char *name, bool is_constrained, size_t *n_cases) {
    char path[2 * PATH_MAX];
    json_error_t where;
    struct weft_errmsg why;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &where);
    if (!root) fail_msg("%s: %s", path, where.text);
    const char *format = json_string_value(json_object_get(root, "format"));
    weft_msg_tools *tools;
    if (json_object_get(root, "tools")) {
        assert_int_equal(weft_msg_tools_new(json_object_get(root, "tools"), &tools, &why), WEFT_OK);
    } else {
        tools = NULL;
    }
    struct reading reading = {weft_msg_format_named((struct weft_str){format, strlen(format)}),
                              tools, NULL, is_constrained};
    assert_non_null(reading.format);
    const json_t *cases = json_object_get(root, "cases");
    size_t n_wrong = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        reading.test = json_array_get(cases, i);
        if (is_constrained && !fits_a_grammar(reading.test)) continue;
        ++*n_cases;
        n_wrong += check_case(&reading, name) ? 0 : 1;
    }
    weft_msg_tools_free(tools);
    json_decref(root);
    return n_wrong;
}

/* Templates of the models that write a format, where they lie beside the outputs, tell it. */
static size_t check_templates(const char *name) {
    char path[3 * PATH_MAX], *source = malloc(TEXT_BYTES_MAX);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_true(root && source);
    const json_t *templates = json_object_get(root, "templates");
    const char *format = json_string_value(json_object_get(root, "format"));
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(templates); i++) {
        (void)snprintf(path, sizeof path, "%s/../templates/%s.jinja", folder,
                       json_string_value(json_array_get(templates, i)));
        FILE *file = fopen(path, "rb");
        if (!file || strcmp(format, "think") == 0) { /* whose models call in other formats */
            if (file) assert_int_equal(fclose(file), 0);
            continue;
        }
        struct weft_str text = {source, fread(source, 1, TEXT_BYTES_MAX, file)};
        assert_int_equal(fclose(file), 0);
        const char *told = weft_msg_format_name(weft_msg_format_of_template(text));
        if (strcmp(told, format) != 0) fail_msg("%s is of %s, not %s", path, told, format);
        n++;
    }
    json_decref(root);
    free(source);
    return n;
}

static void templates_tell_the_formats_of_their_models(void **state) {
    (void)state;
    size_t n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        size_t len = strlen(entry->d_name);
        if (len > 5 && strcmp(entry->d_name + len - 5, ".json") == 0)
            n += check_templates(entry->d_name);
    }
    assert_int_equal(closedir(dir), 0);
    print_message("%zu templates\n", n);
}

static void check_files(bool is_constrained) {
    size_t n_files = 0, n_cases = 0, n_wrong = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        size_t len = strlen(entry->d_name);
        if (len < 6 || strcmp(entry->d_name + len - 5, ".json") != 0) continue;
        n_wrong += check_file(entry->d_name, is_constrained, &n_cases);
        n_files++;
    }
    assert_int_equal(closedir(dir), 0);
    print_message("%zu formats, %zu outputs, %zu of them wrong\n", n_files, n_cases, n_wrong);
    assert_true(n_files >= 8);
    assert_int_equal(n_wrong, 0);
}

static void outputs_are_read_whole_and_in_pieces(void **state) {
    (void)state;
    check_files(false);
}

/* Deltas put together are what is told of a complete call. */
static void calls_that_fit_a_grammar_are_told_as_they_come(void **state) {
    (void)state;
    check_files(true);
}

int main(int argc, char **argv) {
    const char *shared = getenv("WEFT_SHARED_DIR");
    (void)snprintf(folder, sizeof folder, "%s%s",
                   argc > 1 ? argv[1]
                   : shared ? shared
                            : "",
                   argc > 1 ? "" : "/toolcalls");
    DIR *dir = shared || argc > 1 ? opendir(folder) : NULL;
    if (!dir) {
        (void)printf("SKIPPED: no outputs in %s (WEFT_SHARED_DIR/toolcalls)\n", folder);
        return 77;
    }
    (void)closedir(dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_read_whole_and_in_pieces),
        cmocka_unit_test(calls_that_fit_a_grammar_are_told_as_they_come),
        cmocka_unit_test(templates_tell_the_formats_of_their_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
