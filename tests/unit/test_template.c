#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "template/template.h"
#include "unit/model_files.h"

static const struct weft_tmpl_specials fable = {{"<|begin_of_text|>", 17}, {"<|end_of_text|>", 15}};

static weft_tmpl *compile(const char *source) {
    struct weft_errmsg why = {""};
    weft_tmpl *chat;
    if (weft_tmpl_new(source, strlen(source), &fable, &chat, &why))
        fail_msg("%s: %s", source, why.text);
    return chat;
}

static struct weft_tmpl_message message(const char *role, const char *content) {
    return (struct weft_tmpl_message){role, content, strlen(role), strlen(content)};
}

/* --- against Jinja itself --------------------------------------------------------------------- */

static void check_case(const json_t *one) {
    const json_t *list = json_object_get(one, "messages"), *text = json_object_get(one, "text");
    const char *source = json_string_value(json_object_get(one, "template"));
    struct weft_tmpl_message messages[8];
    size_t n = json_array_size(list);
    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++)
        messages[i] =
            message(json_string_value(json_object_get(json_array_get(list, i), "role")),
                    json_string_value(json_object_get(json_array_get(list, i), "content")));
    weft_tmpl *chat = compile(source);
    struct weft_errmsg why = {""};
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    weft_err err = weft_tmpl_render(chat, messages, n, json_is_true(json_object_get(one, "prompt")),
                                    &out, &why);
    if (text) {
        if (err) fail_msg("%s: %s", source, why.text);
        assert_string_equal(weft_buf_cstr(&out), json_string_value(text));
    } else {
        assert_int_equal(err, WEFT_E_INVAL);
        const char *raised = json_string_value(json_object_get(one, "error"));
        if (strstr(source, "raise_exception")) assert_string_equal(why.text, raised);
    }
    weft_buf_fini(&out);
    weft_tmpl_free(chat);
}

static void templates_render_as_jinja_renders_them(void **state) {
    (void)state;
    json_error_t at;
    json_t *root = json_load_file(test_source_path("tests/golden/chat_goldens.json"), 0, &at);
    assert_non_null(root);
    const json_t *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) > 100);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(json_array_get(cases, i));
    json_decref(root);
}

static bool render_feature(const json_t *root, const json_t *one, struct weft_buf *out,
                           struct weft_errmsg *why) {
    struct tm now = {0};
    assert_non_null(
        strptime(json_string_value(json_object_get(root, "now")), "%Y-%m-%dT%H:%M:%S", &now));
    assert_true(timegm(&now) > 0);
    const char *source = json_string_value(json_object_get(one, "template"));
    weft_tmpl *chat;
    weft_err err = weft_tmpl_new(source, strlen(source), &fable, &chat, why);
    if (!err)
        err = weft_tmpl_render_json(chat, json_object_get(root, "variables"), &now, out, NULL, why);
    weft_tmpl_free(chat);
    return !err;
}

static void what_templates_can_do_comes_out_as_jinja_has_it(void **state) {
    (void)state;
    json_error_t at;
    json_t *root = json_load_file(test_source_path("tests/golden/chat_goldens.json"), 0, &at);
    assert_non_null(root);
    const json_t *features = json_object_get(root, "features");
    assert_true(json_array_size(features) > 100);
    for (size_t i = 0; i < json_array_size(features); i++) {
        const json_t *one = json_array_get(features, i), *text = json_object_get(one, "text");
        const char *source = json_string_value(json_object_get(one, "template"));
        const char *raised = json_string_value(json_object_get(one, "error"));
        struct weft_errmsg why = {""};
        struct weft_buf out;
        weft_buf_init(&out, 1 << 20);
        bool ok = render_feature(root, one, &out, &why);
        if (ok != (text != NULL)) fail_msg("%s: %s", source, ok ? "no error" : why.text);
        if (ok) {
            assert_string_equal(weft_buf_cstr(&out), json_string_value(text));
        } else {
            assert_true(why.text[0]);
            if (strstr(source, "raise_exception")) assert_string_equal(why.text, raised);
        }
        weft_buf_fini(&out);
    }
    json_decref(root);
}

static void the_template_is_found_where_models_keep_it(void **state) {
    (void)state;
    static const char *const paths[] = {"models/fable-6m", TEST_FABLE_Q8_0};
    for (size_t i = 0; i < 2; i++) {
        char *source;
        assert_int_equal(weft_tmpl_find(test_source_path(paths[i]), &source, NULL), WEFT_OK);
        assert_non_null(source);
        weft_tmpl *chat = compile(source);
        struct weft_tmpl_message one = message("user", "Hello");
        struct weft_buf out;
        weft_buf_init(&out, 1 << 16);
        assert_int_equal(weft_tmpl_render(chat, &one, 1, true, &out, NULL), WEFT_OK);
        assert_string_equal(weft_buf_cstr(&out), "<|begin_of_text|><|im_start|>user\nHello"
                                                 "<|im_end|>\n<|im_start|>assistant\n");
        weft_buf_fini(&out);
        weft_tmpl_free(chat);
        free(source);
    }
}

static void write_file(const char *dir, const char *name, const char *text) {
    test_dir_write(dir, name, text, strlen(text));
}

static void a_list_of_templates_has_a_default_and_a_file_goes_first(void **state) {
    (void)state;
    char *dir = test_dir_new(), *source;
    assert_int_equal(weft_tmpl_find(dir, &source, NULL), WEFT_OK);
    assert_null(source);
    write_file(dir, "chat_template.json", "{\"chat_template\":\"j\"}");
    assert_int_equal(weft_tmpl_find(dir, &source, NULL), WEFT_OK);
    assert_string_equal(source, "j");
    free(source);
    write_file(dir, "tokenizer_config.json",
               "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"t\"},"
               "{\"name\":\"default\",\"template\":\"d\"}]}");
    assert_int_equal(weft_tmpl_find(dir, &source, NULL), WEFT_OK);
    assert_string_equal(source, "d");
    free(source);
    write_file(dir, "chat_template.jinja", "file");
    assert_int_equal(weft_tmpl_find(dir, &source, NULL), WEFT_OK);
    assert_string_equal(source, "file");
    free(source);
    test_dir_free(dir);
}

/* --- what is refused -------------------------------------------------------------------------- */

static void unsupported_constructs_are_named_with_their_line(void **state) {
    (void)state;
    static const struct {
        const char *source, *named;
        weft_err err;
    } cases[] = {
        {"a\nb\n{% include 'x' %}", "line 3: the statement include", WEFT_E_UNSUPPORTED},
        {"{% import 'x' as y %}", "the statement import", WEFT_E_UNSUPPORTED},
        {"{% extends 'x' %}", "the statement extends", WEFT_E_UNSUPPORTED},
        {"{% block b %}{% endblock %}", "the statement block", WEFT_E_UNSUPPORTED},
        {"{{ '\\ud83d' }}", "the escape", WEFT_E_UNSUPPORTED},
        {"{{ '\\N{DASH}' }}", "the escape", WEFT_E_UNSUPPORTED},
        {"{{ 9223372036854775808 }}", "the number", WEFT_E_UNSUPPORTED},
        {"{% raw %}x", "raw without endraw", WEFT_E_PROTO},
        {"{% break %}", "outside of a loop", WEFT_E_PROTO},
        {"{% for x in y %}{% macro f() %}{% break %}", "outside of a loop", WEFT_E_PROTO},
        {"{% call 5 %}{% endcall %}", "the call of a macro", WEFT_E_PROTO},
        {"{% set %}", "a name", WEFT_E_PROTO},
        {"{% set x + 1 %}", "= or %}", WEFT_E_PROTO},
        {"{% macro f(a %}", ",", WEFT_E_PROTO},
        {"{{ f(a=1, 2) }}", "an argument with a name", WEFT_E_PROTO},
        {"{{ {1 2} }}", ":", WEFT_E_PROTO},
        {"{{ a[ }}", "an expression", WEFT_E_PROTO},
        {"{% if x %}", "endif", WEFT_E_PROTO},
        {"{% for m in messages %}", "endfor", WEFT_E_PROTO},
        {"{% endif %}", "belongs to nothing", WEFT_E_PROTO},
        {"{{ 'a }}", "a string without an end", WEFT_E_PROTO},
        {"{{ a", "line 1", WEFT_E_PROTO},
        {"{# a", "{#", WEFT_E_PROTO},
        {"{{ }}", "an expression", WEFT_E_PROTO},
        {"{{ a b }}", "}}", WEFT_E_PROTO},
        {"{{ a not b }}", "in", WEFT_E_PROTO},
        {"{{ (a }}", ")", WEFT_E_PROTO},
        {"{% if a %}{% elif %}{% endif %}", "an expression", WEFT_E_PROTO},
        {"{{ \xff }}", "UTF-8", WEFT_E_PROTO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weft_errmsg why = {""};
        weft_tmpl *chat;
        weft_err err = weft_tmpl_new(cases[i].source, strlen(cases[i].source), &fable, &chat, &why);
        assert_null(chat);
        if (err != cases[i].err || !strstr(why.text, cases[i].named))
            fail_msg("%s: %d: %s", cases[i].source, (int)err, why.text);
    }
}

/* Templates are written for engines with more filters than ours; filters that no conversation
 * reaches must not keep a model from being served. */
static void what_there_is_not_is_named_with_its_line_once_it_is_reached(void **state) {
    (void)state;
    static const struct {
        const char *source, *named; /* NULL: nothing reaches it */
    } cases[] = {
        {"\n{{ tools | pprint }}", "line 2: there is no filter pprint"},
        {"{{ 'x' is strange }}", "line 1: there is no test strange"},
        {"{{ 'x' is not strange(1) }}", "there is no test strange"},
        {"a\n{% set x | strange %}b{% endset %}", "line 2: there is no filter strange"},
        {"{% filter upper | strange %}b{% endfilter %}", "there is no filter strange"},
        {"{% if tools %}{{ tools | from_json }}{% endif %}", NULL},
        {"{% macro f(x) %}{{ x | from_json }}{{ x is strange }}{% endmacro %}", NULL},
        {"{% for x in [] %}{{ x | from_json }}{% endfor %}", NULL},
        {"{{ 1 if true else 2 | strange }}{{ false and 1 is strange }}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tmpl *tmpl = compile(cases[i].source);
        struct weft_errmsg why = {""};
        struct weft_buf out;
        weft_buf_init(&out, 100);
        weft_err err = weft_tmpl_render(tmpl, NULL, 0, true, &out, &why);
        if (err != (cases[i].named ? WEFT_E_INVAL : WEFT_OK) ||
            !strstr(why.text, cases[i].named ? cases[i].named : ""))
            fail_msg("%s: %d: %s", cases[i].source, (int)err, why.text);
        weft_buf_fini(&out);
        weft_tmpl_free(tmpl);
    }
}

/* A source of `n` copies of `part` between `head` and `tail`. */
static weft_err compile_repeated(const char *head, const char *part, size_t n, const char *tail,
                                 weft_tmpl **chat_out) {
    struct weft_buf source;
    weft_buf_init(&source, 1 << 21);
    weft_buf_add_str(&source, head);
    for (size_t i = 0; i < n; i++)
        weft_buf_add_str(&source, part);
    weft_buf_add_str(&source, tail);
    weft_err err = weft_tmpl_new(weft_buf_cstr(&source), source.len, &fable, chat_out, NULL);
    weft_buf_fini(&source);
    return err;
}

static void deep_templates_are_refused_not_recursed_into(void **state) {
    (void)state;
    static const struct {
        const char *head, *part, *tail;
    } cases[] = {
        {"{{ ", "(", ""},
        {"{{ ", "not ", "a }}"},
        {"{{ a", "+ a", " }}"},
        {"{{ a", ".a", " }}"},
        {"{{ a", "[0]", " }}"},
        {"{{ a", "[a", ""},
        {"{{ a", " if a else a", " }}"},
        {"", "{% if a %}", ""},
        {"{% if a %}", "{% elif a %}", "{% endif %}"},
        {"", "{% for m in messages %}", ""},
        {"{{ a", " | trim", " }}"},
        {"{{ ", "-", "a }}"},
        {"{{ ", "[", ""},
        {"{{ ", "{1:", ""},
        {"{{ a", "(a", ""},
        {"{{ a", "()", " }}"},
        {"{{ a", "**a", " }}"},
        {"{{ 'a'", " 'a'", " }}"},
        {"{% for ", "(", ""},
        {"", "{% macro a() %}", ""},
        {"", "{% set a %}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tmpl *chat;
        weft_err err = compile_repeated(cases[i].head, cases[i].part, 20000, cases[i].tail, &chat);
        assert_int_equal(err, WEFT_E_UNSUPPORTED);
        assert_null(chat);
    }
    weft_tmpl *chat;
    assert_int_equal(compile_repeated("", "{{ '' }}", 20000, "", &chat), WEFT_OK);
    weft_tmpl_free(chat);
    assert_int_equal(compile_repeated("", "0123456789abcdef", 1 << 16, "x", &chat), WEFT_E_TOOBIG);
}

/* --- bounds of rendering ---------------------------------------------------------------------- */

static char bounded_why[sizeof(((struct weft_errmsg *)0)->text)]; /* of the last one */

static weft_err render_bounded(const char *source, size_t n_messages, size_t max_bytes) {
    weft_tmpl *chat = compile(source);
    struct weft_tmpl_message *messages = calloc(n_messages + 1, sizeof *messages);
    assert_non_null(messages);
    for (size_t i = 0; i < n_messages; i++)
        messages[i] = message("user", "0123456789");
    struct weft_errmsg why = {""};
    struct weft_buf out;
    weft_buf_init(&out, max_bytes);
    weft_err err = weft_tmpl_render(chat, messages, n_messages, true, &out, &why);
    assert_true(!err || why.text[0]);
    memcpy(bounded_why, why.text, sizeof why.text);
    weft_buf_fini(&out);
    free(messages);
    weft_tmpl_free(chat);
    return err;
}

static void what_grows_over_the_buffer_is_an_error(void **state) {
    (void)state;
    static const char each[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    assert_int_equal(render_bounded(each, 10, 100), WEFT_OK);
    assert_int_equal(render_bounded(each, 11, 100), WEFT_E_TOOBIG);
    static const char doubling[] =
        "{% set a = '0123456789' %}{% set a = a + a %}{% set a = a + a %}{% set a = a + a %}"
        "{% set a = a + a %}{% set a = a + a %}{% set a = a + a %}{{ a }}";
    assert_int_equal(render_bounded(doubling, 0, 639), WEFT_E_TOOBIG);
    assert_int_equal(render_bounded(doubling, 0, 10000), WEFT_OK);
    /* Nested loops over many messages: the number of statements is bounded. */
    static const char cubic[] = "{% for a in messages %}{% for b in messages %}"
                                "{% for c in messages %}{% endfor %}{% endfor %}{% endfor %}";
    assert_int_equal(render_bounded(cubic, 3, 100), WEFT_OK);
    assert_int_equal(render_bounded(cubic, 300, 100), WEFT_E_TOOBIG);
}

static void hostile_templates_end_in_an_error(void **state) {
    (void)state;
    static const struct {
        const char *source;
        weft_err err;
    } cases[] = {
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", WEFT_E_TOOBIG},
        {"{% macro f(x) %}{{ f(f(x)) }}{{ f(x) }}{% endmacro %}{{ f(1) }}", WEFT_E_TOOBIG},
        {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", WEFT_E_TOOBIG},
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
         WEFT_E_TOOBIG},
        {"{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}"
         "{% endfor %}{{ ns.x }}",
         WEFT_E_TOOBIG},
        {"{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}"
         "{% endfor %}{{ ns.x | tojson }}{{ ns.x == [ns.x] }}",
         WEFT_E_TOOBIG},
        {"{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
         "{% endfor %}{{ ns.x == [ns.x[0], ns.x[1]] }}{{ ns.x | string }}",
         WEFT_E_TOOBIG},
        {"{% set ns = namespace(x='aa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
         "{% endfor %}",
         WEFT_E_TOOBIG},
        {"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", WEFT_E_TOOBIG},
        {"{{ 'x' * 99999999999 }}", WEFT_E_TOOBIG},
        {"{{ [1] * 4000000000 }}", WEFT_E_TOOBIG},
        {"{{ 'x'.ljust(9999999999) }}", WEFT_E_TOOBIG},
        {"{{ 'x' | indent(9999999999) }}", WEFT_E_TOOBIG},
        {"{{ ('a' * 9999).replace('', 'b' * 9999) }}", WEFT_E_TOOBIG},
        {"{{ '%99999d' % 1 }}", WEFT_E_TOOBIG},
        {"{{ [1, 2] | slice(999999999) | list }}", WEFT_E_TOOBIG},
        {"{{ 9223372036854775807 + 1 }}", WEFT_E_INVAL},
        {"{{ (-9223372036854775807 - 1) // -1 }}", WEFT_E_INVAL},
        {"{{ 9 ** 99 }}", WEFT_E_INVAL},
        {"{{ 9 is divisibleby(0) }}", WEFT_E_INVAL},
        {"{{ 9 is divisibleby('x') }}", WEFT_E_INVAL},
        {"{{ '%99999999d' % 1 }}", WEFT_E_INVAL},
        {"{{ '%*d' % (1, 2) }}{{ '%n' % 1 }}", WEFT_E_INVAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_err err = render_bounded(cases[i].source, 0, 5000);
        if (err != cases[i].err) fail_msg("%s: %d", cases[i].source, (int)err);
    }
}

/* Each step is a bounded amount of every kind of work: no loop over long values is cheap. */
static void work_over_long_values_takes_as_many_steps(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "l == m",
        "l < m",
        "l | map('string') | list == m",
        "a == b",
        "a in [b]",
        "a.startswith(b)",
        "a.endswith((b, b))",
        "a.removeprefix(b)",
        "a.strip(c)",
        "a | trim(c)",
        "a.lstrip(c)",
        "a | upper",
        "a.title()",
        "a is lower",
        "a.isalpha()",
        "a | wordcount",
        "s.split()",
        "s.rsplit()",
        "s | trim",
        "s | int",
        "s | float",
        "a.splitlines()",
        "a.find('z', 1)",
        "a.center(3001)",
        "a | truncate(3000)",
        "d.strip(c * 99)",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char source[512];
        (void)snprintf(source, sizeof source,
                       "{%% set d = '\u00e9' %%}{%% set a = 'x' * 2900 ~ 'y' %%}{%% set b = 'x' * "
                       "2900 ~ 'z' %%}"
                       "{%% set c = 'x' ~ 'abcdefgh' * 100 %%}{%% set s = ' ' * 2900 %%}"
                       "{%% set l = range(2900) | list %%}{%% set m = range(2900) | list %%}"
                       "{%% for i in range(99999) %%}{%% set x = %s %%}{%% endfor %%}",
                       bodies[i]);
        weft_err err = render_bounded(source, 0, 64u << 20);
        if (err != WEFT_E_TOOBIG || !strstr(bounded_why, "too many steps"))
            fail_msg("%s: %d, %s", bodies[i], (int)err, bounded_why);
    }
}

/* Long conversations fit: a round's values are dropped with it. */
static void long_conversations_are_rendered_in_bounded_memory(void **state) {
    (void)state;
    static const char source[] =
        "{% set ns = namespace(n=0) %}{% macro show(m) %}{{ '<' + m.role + '>' }}{% endmacro %}"
        "{% for m in messages[::-1] %}{% set c = m.content * 100 %}{{ show(m) + c[:1] }}"
        "{% if loop.index % 100 == 0 %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{{ ns.n }}";
    assert_int_equal(render_bounded(source, 20000, 1 << 20), WEFT_OK);
}

static void texts_of_messages_are_written_as_they_are(void **state) {
    (void)state;
    weft_tmpl *chat = compile("{% for m in messages %}{{ m.content }}{% endfor %}");
    static const char content[] = "{{ bos_token }}\0\xff{% raise %}";
    struct weft_tmpl_message one = {"user", content, 4, sizeof content - 1};
    struct weft_buf out;
    weft_buf_init(&out, 100);
    assert_int_equal(weft_tmpl_render(chat, &one, 1, false, &out, NULL), WEFT_OK);
    assert_int_equal(out.len, sizeof content - 1);
    assert_memory_equal(out.data, content, sizeof content - 1);
    weft_buf_fini(&out);
    weft_tmpl_free(chat);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_render_as_jinja_renders_them),
        cmocka_unit_test(what_templates_can_do_comes_out_as_jinja_has_it),
        cmocka_unit_test(the_template_is_found_where_models_keep_it),
        cmocka_unit_test(a_list_of_templates_has_a_default_and_a_file_goes_first),
        cmocka_unit_test(unsupported_constructs_are_named_with_their_line),
        cmocka_unit_test(what_there_is_not_is_named_with_its_line_once_it_is_reached),
        cmocka_unit_test(deep_templates_are_refused_not_recursed_into),
        cmocka_unit_test(what_grows_over_the_buffer_is_an_error),
        cmocka_unit_test(hostile_templates_end_in_an_error),
        cmocka_unit_test(work_over_long_values_takes_as_many_steps),
        cmocka_unit_test(long_conversations_are_rendered_in_bounded_memory),
        cmocka_unit_test(texts_of_messages_are_written_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
