/* The identity of a model: the files that a front reads, told apart by content. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/model.h"
#include "unit/model_files.h"

/* The caller's, to free. */
static char *identity_of(const char *path) {
    struct weft_buf buf;
    struct weft_errmsg why = {""};
    weft_buf_init(&buf, 4096);
    assert_int_equal(weft_model_identity(path, &buf, &why), WEFT_OK);
    char *copy = strdup(weft_buf_cstr(&buf));
    weft_buf_fini(&buf);
    assert_non_null(copy);
    return copy;
}

static void expect_changes(const char *had, const char *has, const char *names) {
    struct weft_buf changed;
    weft_buf_init(&changed, 4096);
    assert_int_equal(weft_identity_is(had, has, &changed), *names == '\0');
    assert_string_equal(weft_buf_cstr(&changed), names);
    weft_buf_fini(&changed);
}

/* The model at `path` now, against the one before. */
static void expect_changes_at(const char *path, const char *had, const char *names) {
    char *has = identity_of(path);
    expect_changes(had, has, names);
    free(has);
}

static void what_is_another_or_gone_or_new_is_named(void **state) {
    (void)state;
    expect_changes("", "", "");
    expect_changes("a=1,b=2", "a=1,b=2", "");
    expect_changes("a=1,b=2", "b=2,a=1", "");
    expect_changes("a=1,b=2", "a=1,b=3", "b");
    expect_changes("a=1,b=2", "a=1", "b");
    expect_changes("a=1", "a=1,b=2", "b");
    expect_changes("a=1,b=2,c=3", "a=2,c=3,d=4", "a, b, d");
    expect_changes("aa=1", "a=1", "aa, a"); /* one name that begins as another */
    expect_changes("a=1", "aa=1", "a, aa");
    expect_changes("a=12", "a=1", "a");
    expect_changes("a=1", "a=12", "a");
}

static void entries_are_told_apart_by_their_bytes(void **state) {
    (void)state;
    struct weft_buf one, other;
    weft_buf_init(&one, 4096);
    weft_buf_init(&other, 4096);
    weft_identity_add(&one, "a", "xy", 2);
    weft_identity_add(&one, "b", "", 0);
    weft_identity_add(&other, "a", "xyz", 3);
    weft_identity_add(&other, "b", "", 0);
    expect_changes(weft_buf_cstr(&one), weft_buf_cstr(&one), "");
    expect_changes(weft_buf_cstr(&one), weft_buf_cstr(&other), "a");
    weft_buf_fini(&one);
    weft_buf_fini(&other);
}

static void a_folder_is_its_small_files(void **state) {
    (void)state;
    char *dir = test_dir_new();
    test_dir_write(dir, "config.json", "{}", 2);
    test_dir_write(dir, "tokenizer.json", "{\"a\": 1}", 8);
    char *had = identity_of(dir);
    assert_non_null(strstr(had, "tokenizer.json="));
    expect_changes_at(dir, had, "");
    test_dir_write(dir, "model.safetensors", "weights", 7); /* they are others' to check */
    expect_changes_at(dir, had, "");
    test_dir_write(dir, "tokenizer.json", "{\"a\": 2}", 8);
    test_dir_write(dir, "chat_template.jinja", "", 0);
    expect_changes_at(dir, had, "tokenizer.json, chat_template.jinja");
    free(had);
    test_dir_free(dir);
}

/* modules.json names it. */
static void a_poolings_file_counts_wherever_it_is(void **state) {
    (void)state;
    static const char modules[] =
        "[{\"path\": \"2_Pool\", \"type\": \"sentence_transformers.models.Pooling\"}]";
    char *dir = test_dir_new(), path[512];
    (void)snprintf(path, sizeof path, "%s/2_Pool", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    test_dir_write(dir, "modules.json", modules, sizeof modules - 1);
    test_dir_write(dir, "2_Pool/config.json", "{}", 2);
    char *had = identity_of(dir);
    test_dir_write(dir, "2_Pool/config.json", "[]", 2);
    expect_changes_at(dir, had, "2_Pool/config.json");
    test_dir_write(dir, "modules.json", "{", 1); /* whoever reads it says so */
    expect_changes_at(dir, had, "modules.json, 2_Pool/config.json");
    (void)snprintf(path, sizeof path, "%s/2_Pool/config.json", dir);
    assert_int_equal(unlink(path), 0);
    free(had);
    test_dir_free(dir);
}

static void a_gguf_file_is_its_metadata(void **state) {
    (void)state;
    char *dir = test_dir_new(), path[512];
    struct weft_buf bytes;
    (void)snprintf(path, sizeof path, "%s/model.gguf", dir);
    gguf_build_tiny(&bytes, 8);
    test_dir_write(dir, "model.gguf", bytes.data, bytes.len);
    char *had = identity_of(path);
    bytes.data[bytes.len - 1] ^= 1; /* a weight */
    test_dir_write(dir, "model.gguf", bytes.data, bytes.len);
    expect_changes_at(path, had, "");
    char *key = memmem(bytes.data, bytes.len, "llama", 5);
    assert_non_null(key);
    key[0] = 'L';
    test_dir_write(dir, "model.gguf", bytes.data, bytes.len);
    expect_changes_at(path, had, "metadata");
    weft_buf_fini(&bytes);
    free(had);
    test_dir_free(dir);
}

static void what_is_no_model_has_none(void **state) {
    (void)state;
    struct weft_buf buf;
    struct weft_errmsg why = {""};
    weft_buf_init(&buf, 4096);
    assert_int_equal(weft_model_identity("/nowhere/model", &buf, &why), WEFT_E_NOTFOUND);
    assert_non_null(strstr(why.text, "/nowhere/model"));
    weft_buf_fini(&buf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_another_or_gone_or_new_is_named),
        cmocka_unit_test(entries_are_told_apart_by_their_bytes),
        cmocka_unit_test(a_folder_is_its_small_files),
        cmocka_unit_test(a_poolings_file_counts_wherever_it_is),
        cmocka_unit_test(a_gguf_file_is_its_metadata),
        cmocka_unit_test(what_is_no_model_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
