/* The chat templates of 24 models against Jinja2's results: WEFT_SHARED_DIR/templates holds the
 * templates, cases.json and for each NAME.jinja a NAME.expected.json. They are other projects' data
 * and no part of the repository: without them the test is skipped. */
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
#include <time.h>

#include "template/template.h"

#define RAISED "TemplateError: "

static char folder[PATH_MAX];
static json_t *cases;
static struct tm now;

static json_t *load(const char *name) {
    char path[2 * PATH_MAX];
    json_error_t at;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *root = json_load_file(path, 0, &at);
    if (!root) fail_msg("%s: %s", path, at.text);
    return root;
}

static char *read_source(const char *name, size_t *len_out) {
    char path[2 * PATH_MAX], *text = malloc(1 << 20);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_true(file && text);
    *len_out = fread(text, 1, 1 << 20, file);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* An error's wording is ours, except what the template itself raises. */
static bool is_as_expected(const json_t *expected, weft_err err, const struct weft_buf *out,
                           const struct weft_errmsg *why) {
    const json_t *text = json_object_get(expected, "text");
    if (text)
        return !err && out->len == json_string_length(text) &&
               (out->len == 0 || memcmp(out->data, json_string_value(text), out->len) == 0);
    const char *error = json_string_value(json_object_get(expected, "error"));
    assert_non_null(error);
    if (strncmp(error, RAISED, sizeof RAISED - 1) != 0) return err != WEFT_OK;
    return err == WEFT_E_INVAL && strcmp(why->text, error + sizeof RAISED - 1) == 0;
}

static size_t check_template(const char *name) {
    char expected_name[PATH_MAX];
    size_t len, n_wrong = 0;
    (void)snprintf(expected_name, sizeof expected_name, "%.*s.expected.json",
                   (int)(strlen(name) - 6), name);
    json_t *expected = load(expected_name);
    char *source = read_source(name, &len);
    struct weft_errmsg why = {""};
    weft_tmpl *chat;
    if (weft_tmpl_new(source, len, NULL, &chat, &why)) fail_msg("%s: %s", name, why.text);
    assert_int_equal(json_object_size(expected), json_object_size(cases));
    for (void *at = json_object_iter(cases); at; at = json_object_iter_next(cases, at)) {
        const char *key = json_object_iter_key(at);
        struct weft_buf out;
        weft_buf_init(&out, 1 << 20);
        why.text[0] = '\0';
        weft_err err =
            weft_tmpl_render_json(chat, json_object_iter_value(at), &now, &out, NULL, &why);
        if (!is_as_expected(json_object_get(expected, key), err, &out, &why)) {
            print_error("%s, %s: %s\n", name, key, err ? why.text : weft_buf_cstr(&out));
            n_wrong++;
        }
        weft_buf_fini(&out);
    }
    weft_tmpl_free(chat);
    free(source);
    json_decref(expected);
    return n_wrong;
}

static void the_templates_of_models_render_as_jinja_renders_them(void **state) {
    (void)state;
    json_t *root = load("cases.json");
    cases = json_object_get(root, "cases");
    assert_true(json_object_size(cases) >= 6);
    assert_non_null(
        strptime(json_string_value(json_object_get(root, "now")), "%Y-%m-%dT%H:%M:%S", &now));
    assert_true(timegm(&now) > 0);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    size_t n = 0, n_wrong = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        size_t len = strlen(entry->d_name);
        if (len < 7 || strcmp(entry->d_name + len - 6, ".jinja") != 0) continue;
        n_wrong += check_template(entry->d_name);
        n++;
    }
    assert_int_equal(closedir(dir), 0);
    print_message("%zu templates, %zu renderings, %zu of them wrong\n", n,
                  n * json_object_size(cases), n_wrong);
    assert_true(n >= 24);
    assert_int_equal(n_wrong, 0);
    json_decref(root);
}

int main(void) {
    const char *shared = getenv("WEFT_SHARED_DIR");
    (void)snprintf(folder, sizeof folder, "%s/templates", shared ? shared : "");
    DIR *dir = shared ? opendir(folder) : NULL;
    if (!dir) {
        (void)printf("SKIPPED: no templates in %s (WEFT_SHARED_DIR/templates)\n", folder);
        return 77;
    }
    (void)closedir(dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_templates_of_models_render_as_jinja_renders_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
