/* GGUF files in parts: any of them names the model, and parts that do not belong together are
 * refused. */
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

#include "base/rand.h"
#include "model/model.h"
#include "unit/model_files.h"

/* A part's description of itself, and its tensors. */
struct part {
    uint32_t no, count, n_tensors;
    size_t first, end;
};

enum { ALL = GGUF_TINY_TENSORS };

static const struct part good[3] = {{0, 3, ALL, 0, 5}, {1, 3, ALL, 5, 6}, {2, 3, ALL, 6, ALL}};

static void build_part(const struct part *part, struct weft_buf *out) {
    struct gguf_builder b;
    gguf_init(&b);
    if (part->no == 0) gguf_tiny_config(&b);
    gguf_key(&b, "split.no", WEFT_GGUF_U16);
    gguf_put(&b.kvs, part->no, 2);
    gguf_key(&b, "split.count", WEFT_GGUF_U16);
    gguf_put(&b.kvs, part->count, 2);
    gguf_key(&b, "split.tensors.count", WEFT_GGUF_I32);
    gguf_put(&b.kvs, part->n_tensors, 4);
    gguf_tiny_some(&b, 8, part->first, part->end);
    gguf_finish(&b, out);
    gguf_fini(&b);
}

/* As part `number` of `count`. */
static void write_part(const char *dir, const struct part *part, uint32_t number, uint32_t count) {
    char name[64];
    struct weft_buf bytes;
    (void)snprintf(name, sizeof name, "tiny-%05u-of-%05u.gguf", number, count);
    build_part(part, &bytes);
    test_dir_write(dir, name, bytes.data, bytes.len);
    weft_buf_fini(&bytes);
}

static char *write_good(void) {
    char *dir = test_dir_new();
    for (uint32_t i = 0; i < 3; i++)
        write_part(dir, &good[i], i + 1, 3);
    return dir;
}

static const char *path_of(const char *dir, uint32_t number) {
    static char path[4096];
    (void)snprintf(path, sizeof path, "%s/tiny-%05u-of-00003.gguf", dir, number);
    return path;
}

static uint64_t hash_of(const char *path) {
    weft_model *model;
    struct weft_errmsg why;
    if (weft_model_open(path, &model, &why)) fail_msg("%s", why.text);
    assert_int_equal(weft_model_n_tensors(model), ALL);
    uint64_t hash = weft_model_hash(model);
    weft_model_free(model);
    return hash;
}

static void any_part_opens_the_whole_model(void **state) {
    (void)state;
    char *dir = write_good(), whole[4096], first[4096];
    struct weft_buf bytes;
    gguf_build_tiny(&bytes, 8);
    test_dir_write(dir, "whole.gguf", bytes.data, bytes.len);
    weft_buf_fini(&bytes);
    (void)snprintf(whole, sizeof whole, "%s/whole.gguf", dir);
    (void)snprintf(first, sizeof first, "%s", path_of(dir, 1));
    uint64_t want = hash_of(whole);
    for (uint32_t number = 1; number <= 3; number++) {
        struct weft_model_place place;
        struct weft_errmsg why;
        assert_int_equal(hash_of(path_of(dir, number)), want);
        assert_int_equal(weft_model_locate(path_of(dir, number), &place, &why), WEFT_OK);
        assert_string_equal(place.path, first); /* where the metadata is */
        weft_model_place_fini(&place);
    }
    weft_model *model;
    struct weft_errmsg why;
    assert_int_equal(weft_model_open(path_of(dir, 2), &model, &why), WEFT_OK);
    for (uint32_t i = 0; i < 3; i++) {
        struct stat st;
        assert_non_null(weft_model_file(model, i));
        assert_int_equal(stat(path_of(dir, i + 1), &st), 0);
        assert_true(weft_model_has_file(model, &st));
    }
    assert_null(weft_model_file(model, 3));
    weft_model_free(model);
    test_dir_free(dir);
}

static void the_first_part_may_hold_metadata_alone(void **state) {
    (void)state;
    char *dir = write_good();
    uint64_t want = hash_of(path_of(dir, 1));
    write_part(dir, &(struct part){0, 3, ALL, 0, 0}, 1, 3);
    write_part(dir, &(struct part){1, 3, ALL, 0, 6}, 2, 3);
    assert_int_equal(hash_of(path_of(dir, 3)), want);
    test_dir_free(dir);
}

static void a_name_alone_makes_no_part(void **state) {
    (void)state;
    char *dir = test_dir_new();
    struct weft_buf bytes;
    gguf_build_tiny(&bytes, 8);
    test_dir_write(dir, "tiny-00002-of-00003.gguf", bytes.data, bytes.len);
    weft_buf_fini(&bytes);
    (void)hash_of(path_of(dir, 2));
    test_dir_free(dir);
}

static void expect_refusal(const char *path, weft_err want, const char *said) {
    weft_model *model;
    struct weft_errmsg why = {""};
    weft_err err = weft_model_open(path, &model, &why);
    print_message("    %s\n", why.text);
    assert_int_equal(err, want);
    assert_null(model);
    assert_non_null(strstr(why.text, said));
}

static void parts_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        uint32_t number; /* of the part that is replaced */
        struct part part;
        const char *said;
    } cases[] = {
        {2, {2, 3, ALL, 5, 6}, "00002-of-00003.gguf: is part 3 of 3"},
        {2, {1, 4, ALL, 5, 6}, "00002-of-00003.gguf: is part 2 of 4"},
        {3, {2, 3, ALL + 1, 6, ALL}, "00003-of-00003.gguf: is part 3 of 3 with 13 tensors"},
        {3, {2, 3, ALL, 6, ALL - 1}, "its parts hold 11 tensors together"},
        {3, {2, 3, ALL, 5, ALL - 1}, "is there twice"},
        {1, {0, 4, ALL, 0, 5}, "must end in -00001-of-00004.gguf"},
        {1, {1, 3, ALL, 0, 5}, "must end in -00002-of-00003.gguf"},
        {1, {0, 65535, ALL, 0, 5}, "up to 4096 are allowed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *dir = write_good();
        write_part(dir, &cases[i].part, cases[i].number, 3);
        expect_refusal(path_of(dir, 1), WEFT_E_PROTO, cases[i].said);
        test_dir_free(dir);
    }
}

static void a_missing_part_is_named(void **state) {
    (void)state;
    char *dir = write_good(), copy[4096];
    struct weft_buf bytes;
    assert_int_equal(unlink(path_of(dir, 3)), 0);
    expect_refusal(path_of(dir, 2), WEFT_E_NOTFOUND, "00003-of-00003.gguf: is missing");
    gguf_build_tiny(&bytes, 8); /* with no keys of its own */
    test_dir_write(dir, "tiny-00003-of-00003.gguf", bytes.data, bytes.len);
    expect_refusal(path_of(dir, 1), WEFT_E_PROTO, "lacks split.no");
    weft_buf_fini(&bytes);
    assert_int_equal(unlink(path_of(dir, 1)), 0);
    expect_refusal(path_of(dir, 2), WEFT_E_NOTFOUND, "00001-of-00003.gguf: is missing");
    build_part(&good[0], &bytes);
    test_dir_write(dir, "first.gguf", bytes.data, bytes.len);
    weft_buf_fini(&bytes);
    (void)snprintf(copy, sizeof copy, "%s/first.gguf", dir);
    expect_refusal(copy, WEFT_E_PROTO, "first.gguf: is part 1 of 3, and its name must end in");
    test_dir_free(dir);
}

static void flipped_bytes_of_a_part_are_read_or_refused(void **state) {
    (void)state;
    uint64_t seed = weft_rand_test_seed();
    char *dir = write_good();
    struct weft_buf bytes;
    build_part(&good[1], &bytes);
    for (int run = 0; run < 2000; run++) {
        struct weft_errmsg why = {""};
        weft_model *model;
        uint32_t at = weft_rand_below(&seed, 260);
        char saved = bytes.data[at];
        bytes.data[at] = (char)weft_rand_next(&seed);
        test_dir_write(dir, "tiny-00002-of-00003.gguf", bytes.data, bytes.len);
        weft_err err = weft_model_open(path_of(dir, 1 + weft_rand_below(&seed, 3)), &model, &why);
        assert_true(!err || why.text[0]);
        if (!err) (void)weft_model_hash(model);
        weft_model_free(model);
        bytes.data[at] = saved;
    }
    weft_buf_fini(&bytes);
    test_dir_free(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_part_opens_the_whole_model),
        cmocka_unit_test(the_first_part_may_hold_metadata_alone),
        cmocka_unit_test(a_name_alone_makes_no_part),
        cmocka_unit_test(parts_that_do_not_fit_are_refused),
        cmocka_unit_test(a_missing_part_is_named),
        cmocka_unit_test(flipped_bytes_of_a_part_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
