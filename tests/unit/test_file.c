#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char dir[] = "/tmp/weft_test_file_XXXXXX", path[64];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    (void)snprintf(path, sizeof path, "%s/f", dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static void write_file(size_t n) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    for (size_t i = 0; i < n; i++)
        assert_int_not_equal(fputc('a' + (int)(i % 23), file), EOF);
    assert_int_equal(fclose(file), 0);
}

static void expect_read(enum weft_file_kind kind, size_t n, size_t bytes_max) {
    char *text;
    size_t len;
    assert_int_equal(weft_file_read(path, kind, bytes_max, &text, &len, NULL), WEFT_OK);
    assert_int_equal(len, n);
    assert_int_equal(strlen(text), n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(text[i], 'a' + (char)(i % 23));
    free(text);
}

static void a_file_is_read_whole_up_to_its_bound(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 4096, 65535, 65536, 65537, 131073, 300000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int kind = WEFT_FILE_REGULAR; kind <= WEFT_FILE_ANY; kind++) {
            char *text;
            size_t len, n = sizes[i];
            struct weft_errmsg why = {""};
            write_file(n);
            expect_read((enum weft_file_kind)kind, n, n);
            expect_read((enum weft_file_kind)kind, n, n + 1);
            expect_read((enum weft_file_kind)kind, n, 1 << 24);
            if (n == 0) continue;
            assert_int_equal(
                weft_file_read(path, (enum weft_file_kind)kind, n - 1, &text, &len, &why),
                WEFT_E_TOOBIG);
            assert_null(text);
            assert_int_equal(len, 0);
            assert_non_null(strstr(why.text, path));
        }
}

static void what_is_no_file_is_told_apart(void **state) {
    (void)state;
    char *text;
    size_t len;
    struct weft_errmsg why = {""};
    assert_int_equal(weft_file_read("/nowhere/x", WEFT_FILE_REGULAR, 9, &text, &len, &why),
                     WEFT_E_NOTFOUND);
    assert_int_equal(weft_file_read("/nowhere/x", WEFT_FILE_ANY, 9, &text, &len, &why),
                     WEFT_E_NOTFOUND);
    assert_int_equal(weft_file_read(dir, WEFT_FILE_REGULAR, 9, &text, &len, &why), WEFT_E_PROTO);
    assert_int_equal(weft_file_read(dir, WEFT_FILE_ANY, 9, &text, &len, &why), WEFT_E_IO);
    assert_int_equal(weft_file_read("/dev/zero", WEFT_FILE_REGULAR, 9, &text, &len, &why),
                     WEFT_E_PROTO);
    assert_int_equal(weft_file_read("/dev/zero", WEFT_FILE_ANY, 100000, &text, &len, &why),
                     WEFT_E_TOOBIG);
    assert_int_equal(weft_file_read("/dev/null", WEFT_FILE_ANY, 9, &text, &len, &why), WEFT_OK);
    assert_int_equal(len, 0);
    free(text);
}

/* A key may come through a pipe: weft serve --api-key-file <(pass show weft). */
static void a_pipe_is_read_to_its_end_where_that_is_asked_for(void **state) {
    (void)state;
    char *text, name[32];
    size_t len;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "key", 3), 3);
    (void)close(ends[1]);
    (void)snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    assert_int_equal(weft_file_read(name, WEFT_FILE_REGULAR, 9, &text, &len, NULL), WEFT_E_PROTO);
    assert_int_equal(weft_file_read(name, WEFT_FILE_ANY, 9, &text, &len, NULL), WEFT_OK);
    assert_string_equal(text, "key");
    free(text);
    (void)close(ends[0]);
    (void)unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes it: refused, not waited for */
    assert_int_equal(weft_file_read(path, WEFT_FILE_REGULAR, 9, &text, &len, NULL), WEFT_E_PROTO);
}

static void expect_text(const char *want) {
    char *text;
    size_t len;
    assert_int_equal(weft_file_read(path, WEFT_FILE_REGULAR, 9, &text, &len, NULL), WEFT_OK);
    assert_string_equal(text, want);
    free(text);
}

static void a_fresh_file_takes_the_place_of_another_when_it_is_whole(void **state) {
    (void)state;
    struct weft_file_fresh fresh = {0};
    struct weft_errmsg why;
    weft_file_fresh_drop(&fresh); /* nothing */
    (void)unlink(path);
    write_file(2);
    assert_int_equal(weft_file_fresh_open(path, &fresh, &why), WEFT_OK);
    assert_true(fputs("new", fresh.out) >= 0);
    expect_text("ab");
    weft_file_fresh_drop(&fresh);
    expect_text("ab");
    assert_int_equal(weft_file_fresh_open(path, &fresh, &why), WEFT_OK);
    assert_true(fputs("new", fresh.out) >= 0);
    assert_int_equal(weft_file_fresh_keep(&fresh, &why), WEFT_OK);
    expect_text("new"); /* remove_dir finds nothing else */
    struct stat st;
    mode_t mask = umask(0);
    (void)umask(mask);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666 & ~mask);
}

static void what_takes_no_fresh_file_is_told(void **state) {
    (void)state;
    struct weft_file_fresh fresh;
    struct weft_errmsg why;
    assert_int_not_equal(weft_file_fresh_open("/nowhere/x", &fresh, &why), WEFT_OK);
    assert_non_null(strstr(why.text, "cannot write /nowhere/x"));
    assert_int_not_equal(weft_file_fresh_open(dir, &fresh, &why), WEFT_OK);
    assert_int_equal(weft_file_fresh_open("/dev/full", &fresh, &why), WEFT_OK);
    assert_true(fputs("new", fresh.out) >= 0);
    assert_int_not_equal(weft_file_fresh_keep(&fresh, &why), WEFT_OK);
    assert_non_null(strstr(why.text, "cannot write /dev/full"));
    assert_int_equal(access("/dev/full", F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_whole_up_to_its_bound),
        cmocka_unit_test(what_is_no_file_is_told_apart),
        cmocka_unit_test(a_pipe_is_read_to_its_end_where_that_is_asked_for),
        cmocka_unit_test(a_fresh_file_takes_the_place_of_another_when_it_is_whole),
        cmocka_unit_test(what_takes_no_fresh_file_is_told),
    };
    return cmocka_run_group_tests_name("file", tests, make_dir, remove_dir);
}
