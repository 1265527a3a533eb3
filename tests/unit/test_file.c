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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_whole_up_to_its_bound),
        cmocka_unit_test(what_is_no_file_is_told_apart),
        cmocka_unit_test(a_pipe_is_read_to_its_end_where_that_is_asked_for),
    };
    return cmocka_run_group_tests_name("file", tests, make_dir, remove_dir);
}
