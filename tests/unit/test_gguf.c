/* The GGUF reader: every type of metadata, the tensor table, and refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "inside/model/gguf/gguf.h"
#include "unit/model_files.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A block of the exact size, where a sanitizer sees a read past the end. The caller's, to free. */
static char *copy_of(const void *bytes, size_t n) {
    char *copy = malloc(n + (n == 0));
    WEFT_ASSERT(copy);
    if (n > 0) memcpy(copy, bytes, n);
    return copy;
}

static struct wefti_model_file file_of(const void *bytes, size_t n) {
    struct weft_errmsg why;
    struct wefti_model_file file;
    weft_err err = wefti_model_file_borrow("x.gguf", bytes, n, &file, &why);
    WEFT_ASSERT(!err);
    return file;
}

static weft_err parse_bytes(const void *bytes, size_t n, struct weft_errmsg *why) {
    char *copy = copy_of(bytes, n);
    struct wefti_model_file file = file_of(copy, n);
    weft_gguf *gguf;
    why->text[0] = 0;
    weft_err err = wefti_model_gguf_parse(&file, &gguf, why);
    assert_true(err ? gguf == NULL : gguf != NULL);
    weft_gguf_free(gguf);
    free(copy);
    return err;
}

static weft_err load_bytes(const void *bytes, size_t n, struct weft_errmsg *why) {
    char *copy = copy_of(bytes, n);
    struct wefti_model_file file = file_of(copy, n);
    weft_model *model;
    why->text[0] = 0;
    weft_err err = wefti_model_from_gguf(&file, &model, why);
    assert_true(err ? model == NULL : model != NULL);
    if (!err) (void)weft_model_hash(model); /* touches every byte */
    weft_model_free(model);
    free(copy);
    return err;
}

static weft_err finish_and(weft_err (*read)(const void *, size_t, struct weft_errmsg *),
                           struct gguf_builder *b, struct weft_errmsg *why) {
    struct weft_buf bytes;
    gguf_finish(b, &bytes);
    weft_err err = read(bytes.data, bytes.len, why);
    weft_buf_fini(&bytes);
    return err;
}

static void assert_refused(weft_err err, const struct weft_errmsg *why, weft_err want,
                           const char *said) {
    print_message("    %s\n", why->text);
    assert_int_equal(err, want);
    assert_non_null(strstr(why->text, said));
    assert_non_null(strstr(why->text, "x.gguf: "));
}

/* -------------------------------------------------------------------------------- metadata --- */

/* One key of each type, and arrays of them. */
static void put_all_types(struct gguf_builder *b) {
    static const double pi = 3.25;
    static const float half = 0.5f;
    static const struct {
        const char *key;
        uint32_t type;
        uint64_t value;
        size_t n_bytes;
    } integers[] = {
        {"u8", 0, 200, 1},          {"i8", 1, (uint64_t)-100, 1},
        {"u16", 2, 60000, 2},       {"i16", 3, (uint64_t)-3, 2},
        {"u32", 4, 4000000000u, 4}, {"i32", 5, (uint64_t)-4, 4},
        {"true", 7, 1, 1},          {"false", 7, 0, 1},
        {"u64", 10, UINT64_MAX, 8}, {"i64", 11, (uint64_t)INT64_MIN, 8},
        {"i64.plus", 11, 77, 8},
    };
    for (size_t i = 0; i < COUNT(integers); i++) {
        gguf_key(b, integers[i].key, integers[i].type);
        gguf_put(&b->kvs, integers[i].value, integers[i].n_bytes);
    }
    gguf_f32(b, "f32", half);
    gguf_key(b, "f64", WEFT_GGUF_F64);
    weft_buf_add(&b->kvs, &pi, sizeof pi);
    gguf_str(b, "string", "woof");
    gguf_str(b, "string.empty", "");

    gguf_key(b, "array.i16", WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_I16, 4);
    gguf_put(&b->kvs, 3, 8);
    for (int i = 0; i < 3; i++) {
        gguf_put(&b->kvs, (uint64_t)(i - 1), 2);
    }
    gguf_key(b, "array.f32", WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_F32, 4);
    gguf_put(&b->kvs, 1, 8);
    weft_buf_add(&b->kvs, &half, sizeof half);
    gguf_key(b, "array.u64", WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_U64, 4);
    gguf_put(&b->kvs, 1, 8);
    gguf_put(&b->kvs, UINT64_MAX, 8);
    gguf_key(b, "array.bool", WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_BOOL, 4);
    gguf_put(&b->kvs, 2, 8);
    gguf_put(&b->kvs, 0x0100, 2);
    gguf_key(b, "array.string", WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_STRING, 4);
    gguf_put(&b->kvs, 3, 8);
    gguf_put_str(&b->kvs, "one");
    gguf_put_str(&b->kvs, "");
    gguf_put_str(&b->kvs, "three");
    gguf_key(b, "array.empty", WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_STRING, 4);
    gguf_put(&b->kvs, 0, 8);
    gguf_key(b, "array.nested", WEFT_GGUF_ARRAY); /* [["a"], [1, 2]] */
    gguf_put(&b->kvs, WEFT_GGUF_ARRAY, 4);
    gguf_put(&b->kvs, 2, 8);
    gguf_put(&b->kvs, WEFT_GGUF_STRING, 4);
    gguf_put(&b->kvs, 1, 8);
    gguf_put_str(&b->kvs, "a");
    gguf_put(&b->kvs, WEFT_GGUF_U8, 4);
    gguf_put(&b->kvs, 2, 8);
    gguf_put(&b->kvs, 0x0201, 2);
    gguf_str(b, "last", "here");
}

static weft_gguf *open_all_types(uint32_t version, char **copy_out) {
    struct gguf_builder b;
    struct weft_buf bytes;
    struct weft_errmsg why;
    weft_gguf *gguf;
    gguf_init(&b);
    b.version = version;
    put_all_types(&b);
    gguf_finish(&b, &bytes);
    *copy_out = copy_of(bytes.data, bytes.len);
    struct wefti_model_file file = file_of(*copy_out, bytes.len);
    if (wefti_model_gguf_parse(&file, &gguf, &why)) fail_msg("%s", why.text);
    weft_buf_fini(&bytes);
    gguf_fini(&b);
    return gguf;
}

static bool str_is(struct weft_str str, const char *text) {
    return str.len == strlen(text) && memcmp(str.data, text, str.len) == 0;
}

static void scalars_of_every_type_are_read(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        char *copy;
        weft_gguf *gguf = open_all_types(version, &copy);
        uint64_t u;
        double f;
        bool flag;
        struct weft_str str;
        assert_true(weft_gguf_u64(gguf, "u8", &u) && u == 200);
        assert_true(weft_gguf_u64(gguf, "u16", &u) && u == 60000);
        assert_true(weft_gguf_u64(gguf, "u32", &u) && u == 4000000000u);
        assert_true(weft_gguf_u64(gguf, "u64", &u) && u == UINT64_MAX);
        assert_true(weft_gguf_u64(gguf, "i64.plus", &u) && u == 77);
        assert_true(weft_gguf_f64(gguf, "f32", &f) && f == 0.5);
        assert_true(weft_gguf_f64(gguf, "f64", &f) && f == 3.25);
        assert_true(weft_gguf_bool(gguf, "true", &flag) && flag);
        assert_true(weft_gguf_bool(gguf, "false", &flag) && !flag);
        assert_true(weft_gguf_str(gguf, "string", &str) && str_is(str, "woof"));
        assert_true(weft_gguf_str(gguf, "string.empty", &str) && str.len == 0);
        assert_true(weft_gguf_str(gguf, "last", &str) && str_is(str, "here"));
        weft_gguf_free(gguf);
        free(copy);
    }
}

static void a_key_that_is_missing_or_of_another_kind_reads_as_false(void **state) {
    (void)state;
    char *copy;
    weft_gguf *gguf = open_all_types(3, &copy);
    static const char *const not_unsigned[] = {"i8",   "i16",    "i32",       "i64", "f32",
                                               "true", "string", "array.i16", "no"};
    uint64_t u;
    double f;
    bool flag;
    struct weft_str str;
    for (size_t i = 0; i < COUNT(not_unsigned); i++) {
        assert_false(weft_gguf_u64(gguf, not_unsigned[i], &u));
    }
    assert_false(weft_gguf_f64(gguf, "u32", &f));
    assert_false(weft_gguf_bool(gguf, "u8", &flag));
    assert_false(weft_gguf_str(gguf, "array.string", &str));
    assert_false(weft_gguf_str(gguf, "strin", &str)); /* a prefix is another key */
    assert_false(weft_gguf_str(gguf, "string.", &str));
    assert_false(weft_gguf_str(gguf, "", &str));
    weft_gguf_free(gguf);
    free(copy);
}

static void arrays_are_read_by_index_and_no_further(void **state) {
    (void)state;
    char *copy;
    weft_gguf *gguf = open_all_types(3, &copy);
    enum weft_gguf_type type;
    size_t count;
    int64_t i;
    double f;
    struct weft_str str;
    assert_true(weft_gguf_array(gguf, "array.i16", &type, &count));
    assert_true(type == WEFT_GGUF_I16 && count == 3);
    assert_true(weft_gguf_array_i64(gguf, "array.i16", 0, &i) && i == -1);
    assert_true(weft_gguf_array_i64(gguf, "array.i16", 2, &i) && i == 1);
    assert_false(weft_gguf_array_i64(gguf, "array.i16", 3, &i));
    assert_false(weft_gguf_array_i64(gguf, "array.u64", 0, &i)); /* does not fit */
    assert_false(weft_gguf_array_f64(gguf, "array.i16", 0, &f));
    assert_true(weft_gguf_array_f64(gguf, "array.f32", 0, &f) && f == 0.5);
    assert_true(weft_gguf_array_i64(gguf, "array.bool", 1, &i) && i == 1);
    assert_true(weft_gguf_array_str(gguf, "array.string", 0, &str) && str_is(str, "one"));
    assert_true(weft_gguf_array_str(gguf, "array.string", 1, &str) && str.len == 0);
    assert_true(weft_gguf_array_str(gguf, "array.string", 2, &str) && str_is(str, "three"));
    assert_false(weft_gguf_array_str(gguf, "array.string", 3, &str));
    assert_false(weft_gguf_array_str(gguf, "array.string", SIZE_MAX, &str));
    assert_false(weft_gguf_array_str(gguf, "string", 0, &str));
    assert_true(weft_gguf_array(gguf, "array.empty", &type, &count) && count == 0);
    assert_false(weft_gguf_array_str(gguf, "array.empty", 0, &str));
    assert_true(weft_gguf_array(gguf, "array.nested", &type, &count));
    assert_true(type == WEFT_GGUF_ARRAY && count == 2);
    assert_false(weft_gguf_array_str(gguf, "array.nested", 0, &str));
    assert_false(weft_gguf_array_i64(gguf, "array.nested", 1, &i));
    assert_false(weft_gguf_array(gguf, "string", &type, &count));
    weft_gguf_free(gguf);
    free(copy);
}

static void keys_are_listed_in_the_order_of_the_file(void **state) {
    (void)state;
    char *copy;
    weft_gguf *gguf = open_all_types(3, &copy);
    enum weft_gguf_type type;
    size_t n = weft_gguf_n_keys(gguf);
    assert_int_equal(n, 23);
    assert_true(str_is(weft_gguf_key(gguf, 0, &type), "u8") && type == WEFT_GGUF_U8);
    assert_true(str_is(weft_gguf_key(gguf, n - 1, &type), "last") && type == WEFT_GGUF_STRING);
    weft_gguf_free(gguf);
    free(copy);
}

static void headers_of_other_files_are_refused(void **state) {
    (void)state;
    struct weft_errmsg why;
    struct gguf_builder b;
    static const uint32_t versions[] = {0, 1, 4, 3u << 24, UINT32_MAX};
    for (size_t i = 0; i < COUNT(versions); i++) {
        gguf_init(&b);
        b.version = versions[i];
        assert_refused(finish_and(parse_bytes, &b, &why), &why, WEFT_E_UNSUPPORTED,
                       versions[i] == 3u << 24 ? "big-endian" : "version");
        gguf_fini(&b);
    }
    assert_refused(parse_bytes("GGML............", 16, &why), &why, WEFT_E_PROTO, "not a GGUF");
    gguf_init(&b);
    b.n_kvs = UINT64_MAX;
    assert_refused(finish_and(parse_bytes, &b, &why), &why, WEFT_E_PROTO, "metadata keys");
    b.n_kvs = 1;
    assert_refused(finish_and(parse_bytes, &b, &why), &why, WEFT_E_PROTO, "metadata keys");
    gguf_fini(&b);
}

/* A key "k" of `type` followed by `n` bytes. */
static weft_err parse_value(uint32_t type, const void *value, size_t n, struct weft_errmsg *why) {
    struct gguf_builder b;
    gguf_init(&b);
    gguf_key(&b, "k", type);
    weft_buf_add(&b.kvs, value, n);
    weft_err err = finish_and(parse_bytes, &b, why);
    gguf_fini(&b);
    return err;
}

static void values_that_lie_are_refused_with_the_key_named(void **state) {
    (void)state;
    struct weft_errmsg why;
    uint64_t huge[2] = {UINT64_MAX, 0};
    unsigned char array[32] = {0}; /* element type, count, elements */
    assert_refused(parse_value(13, "12345678", 8, &why), &why, WEFT_E_PROTO, "type 13");
    assert_refused(parse_value(WEFT_GGUF_BOOL, "\2", 1, &why), &why, WEFT_E_PROTO, "'k'");
    assert_refused(parse_value(WEFT_GGUF_STRING, huge, 16, &why), &why, WEFT_E_PROTO, "'k'");
    assert_refused(parse_value(WEFT_GGUF_U64, "1234", 4, &why), &why, WEFT_E_PROTO, "'k'");

    for (uint32_t type = 0; type < WEFT_GGUF_TYPE_COUNT; type++) {
        static const uint64_t counts[] = {UINT64_MAX, UINT64_MAX / 8 + 1, (uint64_t)1 << 61, 21};
        for (size_t i = 0; i < COUNT(counts); i++) {
            memcpy(array, &type, 4);
            memcpy(array + 4, &counts[i], 8);
            weft_err err = parse_value(WEFT_GGUF_ARRAY, array, sizeof array, &why);
            assert_int_equal(err, WEFT_E_PROTO);
            assert_non_null(strstr(why.text, "'k'"));
        }
    }
    array[0] = 13;
    assert_refused(parse_value(WEFT_GGUF_ARRAY, array, 32, &why), &why, WEFT_E_PROTO, "type 13");
    array[0] = WEFT_GGUF_BOOL;
    memset(array + 4, 0, 8);
    array[4] = 2;
    array[13] = 9;
    assert_refused(parse_value(WEFT_GGUF_ARRAY, array, 14, &why), &why, WEFT_E_PROTO, "boolean");
}

static void arrays_nested_too_deeply_are_refused(void **state) {
    (void)state;
    for (int depth = 1; depth < 100000; depth = depth < 12 ? depth + 1 : depth * 10) {
        struct gguf_builder b;
        struct weft_errmsg why;
        gguf_init(&b);
        b.kvs.max_bytes = 4 << 20;
        gguf_key(&b, "k", WEFT_GGUF_ARRAY);
        for (int i = 1; i < depth; i++) {
            gguf_put(&b.kvs, WEFT_GGUF_ARRAY, 4);
            gguf_put(&b.kvs, 1, 8);
        }
        gguf_put(&b.kvs, WEFT_GGUF_U8, 4);
        gguf_put(&b.kvs, 0, 8);
        assert_int_equal(finish_and(parse_bytes, &b, &why), depth <= 8 ? WEFT_OK : WEFT_E_PROTO);
        gguf_fini(&b);
    }
}

static void keys_that_are_doubled_or_nameless_are_refused(void **state) {
    (void)state;
    struct weft_errmsg why;
    struct gguf_builder b;
    gguf_init(&b);
    gguf_u32(&b, "a.key", 1);
    gguf_u32(&b, "another", 1);
    gguf_u32(&b, "a.key", 2);
    assert_refused(finish_and(parse_bytes, &b, &why), &why, WEFT_E_PROTO, "'a.key' is there twice");
    gguf_fini(&b);
    gguf_init(&b);
    gguf_u32(&b, "", 1);
    gguf_u32(&b, "b", 1); /* for the count to be plausible */
    assert_refused(finish_and(parse_bytes, &b, &why), &why, WEFT_E_PROTO, "length");
    gguf_fini(&b);
}

static void alignment_must_be_a_power_of_two(void **state) {
    (void)state;
    static const struct {
        uint32_t alignment;
        bool good;
    } cases[] = {{0, false}, {3, false}, {48, false}, {8, true}, {64, true}, {4096, true}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_errmsg why;
        struct gguf_builder b;
        gguf_init(&b);
        gguf_tiny_config(&b);
        gguf_u32(&b, "general.alignment", cases[i].alignment);
        if (cases[i].good) b.alignment = cases[i].alignment;
        gguf_tiny_tensors(&b, 0);
        weft_err err = finish_and(load_bytes, &b, &why);
        if (cases[i].good && err) fail_msg("%s", why.text);
        if (!cases[i].good) assert_refused(err, &why, WEFT_E_PROTO, "general.alignment");
        gguf_fini(&b);
    }
    struct weft_errmsg why;
    struct gguf_builder b;
    gguf_init(&b);
    gguf_str(&b, "general.alignment", "32");
    assert_refused(finish_and(parse_bytes, &b, &why), &why, WEFT_E_PROTO, "general.alignment");
    gguf_fini(&b);
}

/* --------------------------------------------------------------------------------- tensors --- */

static void models_of_every_type_are_read(void **state) {
    (void)state;
    static const uint32_t types[] = {0, 1, 2, 3, 6, 7, 8, 20, 30, 39};
    for (size_t i = 0; i < COUNT(types); i++) {
        struct weft_buf bytes;
        struct weft_errmsg why;
        gguf_build_tiny(&bytes, types[i]);
        if (load_bytes(bytes.data, bytes.len, &why)) fail_msg("%s", why.text);
        weft_buf_fini(&bytes);
    }
}

static void vectors_have_no_matrix_type(void **state) {
    (void)state;
    static const char name[] = "output_norm.weight";
    struct gguf_builder b;
    struct weft_errmsg why;
    gguf_init(&b);
    gguf_tiny_config(&b);
    gguf_tiny_tensors(&b, 0);
    char *at = memmem(b.infos.data, b.infos.len, name, strlen(name));
    assert_non_null(at);
    memset(at + strlen(name) + 4 + 8, 2, 1); /* after n_dims and the only dimension: Q4_0 */
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_UNSUPPORTED,
                   "tensor 'output_norm.weight' is a vector of type q4_0");
    gguf_fini(&b);
}

static void tensors_that_lie_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        uint32_t type, n_dims;
        uint64_t dims[5], offset;
        weft_err err;
        const char *said;
    } cases[] = {
        {41, 2, {256, 4}, 0, WEFT_E_UNSUPPORTED, "tensor 't' has type Q1_0"},
        {16, 2, {256, 4}, 0, WEFT_E_PROTO, "264 bytes at offset 0"},
        {19, 2, {128, 4}, 0, WEFT_E_PROTO, "blocks"},
        {40, 2, {32, 4}, 0, WEFT_E_PROTO, "blocks"},
        {9, 1, {32}, 0, WEFT_E_UNSUPPORTED, "Q8_1"},
        {12, 2, {128, 4}, 0, WEFT_E_PROTO, "blocks"},
        {14, 2, {256, 4}, 0, WEFT_E_PROTO, "840 bytes at offset 0"},
        {4, 1, {32}, 0, WEFT_E_UNSUPPORTED, "unknown (4)"},
        {4000000000u, 1, {32}, 0, WEFT_E_UNSUPPORTED, "4000000000"},
        {0, 0, {0}, 0, WEFT_E_PROTO, "0 dimensions"},
        {0, 5, {1, 1, 1, 1, 1}, 0, WEFT_E_PROTO, "5 dimensions"},
        {0, UINT32_MAX, {1}, 0, WEFT_E_PROTO, "dimensions"},
        {0, 2, {8, 0}, 0, WEFT_E_PROTO, "dimension of 0"},
        {0, 2, {(uint64_t)1 << 32, (uint64_t)1 << 32}, 0, WEFT_E_PROTO, "overflows"},
        {0, 1, {(uint64_t)1 << 62}, 0, WEFT_E_PROTO, "overflows"},
        {8, 2, {33, 32}, 0, WEFT_E_PROTO, "blocks"},
        {0, 1, {32}, 16, WEFT_E_PROTO, "multiple of the alignment"},
        {0, 1, {32}, 32, WEFT_E_PROTO, "the file has 128 bytes of data"},
        {0, 1, {33}, 0, WEFT_E_PROTO, "132 bytes at offset 0"},
        {0, 1, {8}, UINT64_MAX - 31, WEFT_E_PROTO, "bytes of data"},
        {0, 1, {(uint64_t)1 << 61}, (uint64_t)1 << 63, WEFT_E_PROTO, "bytes of data"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct gguf_builder b;
        struct weft_errmsg why;
        gguf_init(&b);
        gguf_tiny_config(&b);
        gguf_tensor_at(&b, "t", cases[i].type, cases[i].n_dims > 5 ? 1 : cases[i].n_dims,
                       cases[i].dims, cases[i].offset);
        if (cases[i].n_dims > 5) memcpy(b.infos.data + 9, &cases[i].n_dims, 4);
        for (int k = 0; k < 128; k++) {
            weft_buf_add_char(&b.data, 1);
        }
        assert_refused(finish_and(load_bytes, &b, &why), &why, cases[i].err, cases[i].said);
        gguf_fini(&b);
    }
}

static void tensors_that_overlap_or_share_a_name_are_refused(void **state) {
    (void)state;
    static const uint64_t dims[] = {16};
    struct weft_errmsg why;
    struct gguf_builder b;
    gguf_init(&b);
    gguf_tiny_config(&b);
    gguf_tensor(&b, "first", 0, 1, dims, 64);
    gguf_tensor_at(&b, "second", 0, 1, dims, 32);
    gguf_tensor(&b, "third", 0, 1, dims, 64);
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_PROTO,
                   "'second' overlaps tensor 'first'");
    gguf_fini(&b);
    gguf_init(&b);
    gguf_tiny_config(&b);
    gguf_tensor(&b, "same", 0, 1, dims, 64);
    gguf_tensor(&b, "same", 0, 1, dims, 64);
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_PROTO, "'same' is there twice");
    gguf_fini(&b);
    gguf_init(&b);
    gguf_tiny_config(&b);
    gguf_tensor(&b, "", 0, 1, dims, 64);
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_PROTO, "unfit name");
    gguf_fini(&b);
    gguf_init(&b);
    gguf_tiny_config(&b);
    gguf_tensor(&b, "a\xff", 0, 1, dims, 64);
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_PROTO, "'a?' has an unfit name");
    gguf_fini(&b);
}

static void a_vocabulary_is_no_model_and_counts_are_bounded(void **state) {
    (void)state;
    struct weft_errmsg why;
    struct gguf_builder b;
    gguf_init(&b);
    gguf_tiny_config(&b);
    assert_int_equal(finish_and(parse_bytes, &b, &why), WEFT_OK);
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_PROTO, "vocabulary only");
    b.n_tensors = UINT64_MAX;
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_PROTO, "claims");
    b.n_tensors = 1;
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_PROTO, "room for 0");
    gguf_fini(&b);
}

static void options_of_the_metadata_are_checked(void **state) {
    (void)state;
    enum { U32, F32, STR, BOOL, ARRAY };
    static const struct {
        const char *key;
        int kind;
        uint32_t number;
        const char *text;
        weft_err err;
        const char *said; /* NULL: accepted */
    } cases[] = {
        {"llama.rope.dimension_count", U32, 16, "", WEFT_OK, NULL},
        {"llama.rope.dimension_count", U32, 8, "", WEFT_OK, NULL},
        {"llama.rope.dimension_count", U32, 0, "", WEFT_E_PROTO, "0 of 16 elements"},
        {"llama.rope.dimension_count", U32, 7, "", WEFT_E_PROTO, "even"},
        {"llama.rope.dimension_count", U32, 18, "", WEFT_E_PROTO, "18 of 16 elements"},
        {"llama.attention.value_length", U32, 16, "", WEFT_OK, NULL},
        {"llama.attention.value_length", U32, 32, "", WEFT_E_UNSUPPORTED, "value_length"},
        {"llama.attention.key_length", U32, 16, "", WEFT_OK, NULL},
        {"llama.attention.key_length", U32, 15, "", WEFT_E_PROTO, "even"},
        {"llama.attention.key_length", U32, 8, "", WEFT_E_PROTO, "has shape"},
        {"llama.expert_count", U32, 0, "", WEFT_OK, NULL},
        {"llama.expert_count", U32, 8, "", WEFT_E_PROTO, "has no llama.expert_used_count"},
        {"llama.attention.sliding_window", U32, 128, "", WEFT_OK, NULL},
        {"llama.attention.sliding_window", U32, 16, "", WEFT_OK, NULL},
        {"llama.attention.sliding_window", ARRAY, 0, "", WEFT_E_UNSUPPORTED, "layer to layer"},
        {"llama.attention.causal", BOOL, 1, "", WEFT_OK, NULL},
        {"llama.attention.causal", BOOL, 0, "", WEFT_E_UNSUPPORTED, "causal"},
        {"llama.attention.causal", U32, 0, "", WEFT_E_PROTO, "causal is not a boolean"},
        {"general.type", STR, 0, "model", WEFT_OK, NULL},
        {"general.type", STR, 0, "adapter", WEFT_E_UNSUPPORTED, "adapter"},
        {"split.count", U32, 1, "", WEFT_OK, NULL},
        {"split.count", U32, 3, "", WEFT_E_PROTO, "lacks split.no"},
        {"llama.rope.scaling.type", STR, 0, "none", WEFT_OK, NULL},
        {"llama.rope.scaling.type", STR, 0, "linear", WEFT_OK, NULL},
        {"llama.rope.scaling.type", STR, 0, "yarn", WEFT_OK, NULL},
        {"llama.rope.scaling.type", STR, 0, "longrope", WEFT_E_PROTO, "rope_factors_long.weight"},
        {"llama.rope.scaling.type", STR, 0, "mrope", WEFT_E_UNSUPPORTED, "mrope"},
        {"llama.rope.scaling.type", U32, 0, "", WEFT_E_PROTO, "not a string"},
        {"llama.rope.scaling.factor", F32, 4, "", WEFT_OK, NULL},
        {"llama.rope.scaling.factor", U32, 4, "", WEFT_E_PROTO, "floating-point"},
        {"llama.rope.scale_linear", F32, 4, "", WEFT_OK, NULL},
        {"llama.rope.freq_base", F32, 0, "", WEFT_E_PROTO, "RoPE base"},
        {"llama.attention.other", ARRAY, 0, "", WEFT_OK, NULL},
        {"llama.rope.dimension_count", ARRAY, 0, "", WEFT_E_UNSUPPORTED, "layer to layer"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct gguf_builder b;
        struct weft_errmsg why;
        gguf_init(&b);
        gguf_tiny_config(&b);
        if (cases[i].kind == U32) gguf_u32(&b, cases[i].key, cases[i].number);
        if (cases[i].kind == F32) gguf_f32(&b, cases[i].key, (float)cases[i].number);
        if (cases[i].kind == STR) gguf_str(&b, cases[i].key, cases[i].text);
        if (cases[i].kind == BOOL) {
            gguf_key(&b, cases[i].key, WEFT_GGUF_BOOL);
            gguf_put(&b.kvs, cases[i].number, 1);
        }
        if (cases[i].kind == ARRAY) {
            gguf_key(&b, cases[i].key, WEFT_GGUF_ARRAY);
            gguf_put(&b.kvs, WEFT_GGUF_U32, 4);
            gguf_put(&b.kvs, 0, 8);
        }
        gguf_tiny_tensors(&b, 0);
        weft_err err = finish_and(load_bytes, &b, &why);
        if (cases[i].said) assert_refused(err, &why, cases[i].err, cases[i].said);
        if (!cases[i].said && err) fail_msg("%s", why.text);
        gguf_fini(&b);
    }
}

static void each_hyper_parameter_is_needed(void **state) {
    (void)state;
    static const char *const keys[] = {"general.architecture",
                                       "llama.block_count",
                                       "llama.context_length",
                                       "llama.embedding_length",
                                       "llama.feed_forward_length",
                                       "llama.attention.head_count",
                                       "llama.attention.layer_norm_rms_epsilon",
                                       "llama.vocab_size"};
    for (size_t i = 0; i < COUNT(keys); i++) {
        struct weft_buf bytes;
        struct weft_errmsg why;
        gguf_build_tiny(&bytes, 0);
        char *at = memmem(bytes.data, bytes.len, keys[i], strlen(keys[i]));
        assert_non_null(at);
        *at = 'X';
        assert_refused(load_bytes(bytes.data, bytes.len, &why), &why, WEFT_E_PROTO, keys[i]);
        weft_buf_fini(&bytes);
    }
    struct gguf_builder b;
    struct weft_errmsg why;
    gguf_init(&b);
    gguf_str(&b, "general.architecture", "rwkv");
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_UNSUPPORTED, "'rwkv'");
    gguf_fini(&b);
}

static void rope_divisors_must_be_positive(void **state) {
    (void)state;
    static const float bad[] = {0.0f, -1.0f, (float)INFINITY, (float)NAN};
    static const uint64_t dims[] = {8};
    for (size_t i = 0; i <= COUNT(bad); i++) {
        struct gguf_builder b;
        struct weft_errmsg why;
        float freqs[8] = {1, 1, 2, 3, 4, 5, 6, 7};
        gguf_init(&b);
        gguf_tiny_config(&b);
        gguf_tensor(&b, "rope_freqs.weight", 0, 1, dims, sizeof freqs);
        if (i < COUNT(bad)) freqs[5] = bad[i];
        memcpy(b.data.data, freqs, sizeof freqs);
        gguf_tiny_tensors(&b, 0);
        weft_err err = finish_and(load_bytes, &b, &why);
        if (i < COUNT(bad)) assert_refused(err, &why, WEFT_E_PROTO, "rope_freqs.weight");
        if (i == COUNT(bad)) assert_int_equal(err, WEFT_OK);
        gguf_fini(&b);
    }
}

static void rope_divisors_may_be_a_matrix_of_one_row(void **state) {
    (void)state;
    const uint64_t dims[] = {8, 1}; /* innermost first */
    struct gguf_builder b;
    struct weft_errmsg why;
    for (uint32_t i = 0; i < 2; i++) {
        float freqs[8] = {1, 1, 2, 3, 4, 5, 6, i ? 7 : -7};
        gguf_init(&b);
        gguf_tiny_config(&b);
        gguf_tensor(&b, "rope_freqs.weight", 0, 2, dims, sizeof freqs);
        memcpy(b.data.data, freqs, sizeof freqs);
        gguf_tiny_tensors(&b, 0);
        weft_err err = finish_and(load_bytes, &b, &why);
        if (i == 0) assert_refused(err, &why, WEFT_E_PROTO, "has -7 at 7");
        if (i == 1) assert_int_equal(err, WEFT_OK);
        gguf_fini(&b);
    }
}

static void what_would_change_the_arithmetic_is_refused(void **state) {
    (void)state;
    struct gguf_builder b;
    struct weft_errmsg why;
    gguf_init(&b);
    gguf_tiny_config(&b);
    gguf_f32(&b, "llama.attention.clamp_kqv", 8);
    gguf_tiny_tensors(&b, 0);
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_UNSUPPORTED, "clamp_kqv 8");
    gguf_fini(&b);
    gguf_init(&b);
    gguf_tiny_config(&b);
    gguf_f32(&b, "llama.attention.temperature_scale", 2);
    gguf_tiny_tensors(&b, 0);
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_UNSUPPORTED,
                   "temperature_scale 2");
    gguf_fini(&b);
    gguf_init(&b);
    gguf_str(&b, "general.architecture", "qwen3_moe"); /* as folders have it */
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_UNSUPPORTED, "qwen3moe");
    gguf_fini(&b);
    gguf_init(&b);
    gguf_tiny_config(&b);
    gguf_u32(&b, "llama.expert_count", 2);
    gguf_u32(&b, "llama.expert_used_count", 1);
    const uint64_t dims[] = {32, 2};
    gguf_tensor(&b, "blk.0.ffn_gate_inp.weight", 0, 2, dims, 256);
    gguf_tiny_tensors(&b, 0);
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_PROTO,
                   "'blk.0.ffn_gate_exps.weight' is missing");
    gguf_fini(&b);
}

/* The metadata of a Gemma 4 of four layers, of which every second has a window; `n_kv` and `ffn` per layer. */
static void gemma4_config(struct gguf_builder *b, const uint32_t n_kv[4], const uint32_t ffn[4],
                          uint32_t n_shared) {
    static const bool has_window[] = {true, false, true, false};
    const struct {
        const char *key;
        const uint32_t *list;
    } lists[] = {{"gemma4.attention.head_count_kv", n_kv}, {"gemma4.feed_forward_length", ffn}};
    gguf_str(b, "general.architecture", "gemma4");
    gguf_u32(b, "gemma4.block_count", 4);
    gguf_u32(b, "gemma4.context_length", 128);
    gguf_u32(b, "gemma4.embedding_length", 32);
    gguf_u32(b, "gemma4.attention.head_count", 2);
    gguf_u32(b, "gemma4.attention.key_length", 16);
    gguf_u32(b, "gemma4.attention.value_length", 16);
    gguf_u32(b, "gemma4.attention.key_length_swa", 8);
    gguf_u32(b, "gemma4.vocab_size", 8);
    gguf_u32(b, "gemma4.attention.sliding_window", 64);
    gguf_u32(b, "gemma4.attention.shared_kv_layers", n_shared);
    gguf_f32(b, "gemma4.attention.layer_norm_rms_epsilon", 1e-6f);
    for (size_t i = 0; i < COUNT(lists); i++) {
        gguf_key(b, lists[i].key, WEFT_GGUF_ARRAY);
        gguf_put(&b->kvs, WEFT_GGUF_U32, 4);
        gguf_put(&b->kvs, 4, 8);
        for (size_t k = 0; k < 4; k++)
            gguf_put(&b->kvs, lists[i].list[k], 4);
    }
    gguf_key(b, "gemma4.attention.sliding_window_pattern", WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_BOOL, 4);
    gguf_put(&b->kvs, 4, 8);
    for (size_t k = 0; k < 4; k++)
        gguf_put(&b->kvs, has_window[k], 1);
}

static void layers_of_more_than_two_sizes_are_refused(void **state) {
    (void)state;
    static const struct {
        uint32_t n_kv[4], ffn[4], n_shared;
        const char *extra;
        uint32_t value;
        weft_err err;
        const char *part;
    } cases[] = {
        {{1, 2, 1, 2},
         {64, 64, 96, 96},
         2,
         NULL,
         0,
         WEFT_E_PROTO,
         "ask for [16, 32]"}, /* a layer with a window */
        {{1, 2, 2, 2},
         {64, 64, 96, 96},
         2,
         NULL,
         0,
         WEFT_E_UNSUPPORTED,
         "head_count_kv is 1 and 2"},
        {{1, 0, 1, 2}, {64, 64, 96, 96}, 2, NULL, 0, WEFT_E_PROTO, "head_count_kv is not"},
        {{1, 2, 1, 2}, {64, 80, 96, 96}, 2, NULL, 0, WEFT_E_UNSUPPORTED, "more than two sizes"},
        {{1, 2, 1, 2}, {64, 64, 96, 0}, 2, NULL, 0, WEFT_E_UNSUPPORTED, "more than two sizes"},
        {{1, 2, 1, 2}, {64, 64, 96, 96}, 4, NULL, 0, WEFT_E_PROTO, "4 of 4 layers share"},
        {{1, 2, 1, 2}, {64, 64, 96, 96}, 3, NULL, 0, WEFT_E_PROTO, "layer 1 shares"},
        {{1, 2, 1, 2},
         {64, 64, 96, 96},
         2,
         "gemma4.attention.value_length_swa",
         4,
         WEFT_E_UNSUPPORTED,
         "8 elements, values 4"},
        {{1, 2, 1, 2},
         {64, 64, 96, 96},
         2,
         "gemma4.rope.dimension_count_swa",
         4,
         WEFT_E_UNSUPPORTED,
         "only equal numbers"},
        {{1, 2, 1, 2},
         {64, 64, 96, 96},
         2,
         "gemma4.embedding_length_per_layer_input",
         1u << 20,
         WEFT_E_PROTO,
         "size of a layer's embeddings"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct gguf_builder b;
        struct weft_errmsg why;
        gguf_init(&b);
        gemma4_config(&b, cases[i].n_kv, cases[i].ffn, cases[i].n_shared);
        if (cases[i].extra) gguf_u32(&b, cases[i].extra, cases[i].value);
        gguf_tiny_tensors(&b, 0);
        assert_refused(finish_and(load_bytes, &b, &why), &why, cases[i].err, cases[i].part);
        gguf_fini(&b);
    }
}

/* OLMo 3's converter writes OLMo 2's name, and a window that some layers have. */
static void olmo_3_is_refused(void **state) {
    (void)state;
    struct gguf_builder b;
    struct weft_errmsg why;
    gguf_init(&b);
    gguf_str(&b, "general.architecture", "olmo2");
    gguf_u32(&b, "olmo2.block_count", 1);
    gguf_u32(&b, "olmo2.context_length", 128);
    gguf_u32(&b, "olmo2.embedding_length", 32);
    gguf_u32(&b, "olmo2.feed_forward_length", 64);
    gguf_u32(&b, "olmo2.attention.head_count", 2);
    gguf_u32(&b, "olmo2.vocab_size", 8);
    gguf_u32(&b, "olmo2.attention.sliding_window", 64);
    gguf_tiny_tensors(&b, 0);
    assert_refused(finish_and(load_bytes, &b, &why), &why, WEFT_E_UNSUPPORTED, "some layers alone");
    gguf_fini(&b);
}

/* -------------------------------------------------------------------- files, and bad bytes --- */

static void vocabulary_files_of_others_open(void **state) {
    (void)state;
    static const char *const names[] = {"gpt-2",     "llama-spm",    "falcon",
                                        "starcoder", "deepseek-llm", "deepseek-coder"};
    const char *shared = getenv("WEFT_SHARED_DIR");
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[4096];
        struct weft_errmsg why;
        weft_gguf *gguf;
        (void)snprintf(path, sizeof path, "%s/vocab/ggml-vocab-%s.gguf", shared ? shared : ".",
                       names[i]);
        weft_err err = weft_gguf_open(path, &gguf, &why);
        if (err == WEFT_E_NOTFOUND) {
            print_message("SKIPPED: %s is not here\n", path);
            skip();
        }
        if (err) fail_msg("%s", why.text);
        enum weft_gguf_type type;
        size_t n_tokens;
        struct weft_str str;
        assert_true(weft_gguf_array(gguf, "tokenizer.ggml.tokens", &type, &n_tokens));
        assert_true(type == WEFT_GGUF_STRING && n_tokens > 30000);
        for (size_t k = 0; k < n_tokens; k++) {
            assert_true(weft_gguf_array_str(gguf, "tokenizer.ggml.tokens", k, &str));
        }
        assert_false(weft_gguf_array_str(gguf, "tokenizer.ggml.tokens", n_tokens, &str));
        weft_gguf_free(gguf);
    }
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    struct weft_buf bytes;
    struct weft_errmsg why;
    gguf_build_tiny(&bytes, 8);
    assert_int_equal(load_bytes(bytes.data, bytes.len, &why), WEFT_OK);
    for (size_t n = 0; n < bytes.len; n++) {
        assert_int_equal(load_bytes(bytes.data, n, &why), WEFT_E_PROTO);
        assert_int_not_equal(why.text[0], 0);
    }
    weft_buf_fini(&bytes);
}

static void flipped_bytes_are_read_or_refused_with_a_sentence(void **state) {
    (void)state;
    uint64_t seed = weft_rand_test_seed();
    struct weft_buf bytes;
    struct weft_errmsg why;
    struct gguf_builder b;
    size_t n_ok = 0;
    gguf_init(&b);
    gguf_tiny_config(&b);
    put_all_types(&b);
    gguf_tiny_tensors(&b, 8);
    gguf_finish(&b, &bytes);
    uint32_t n_head = (uint32_t)(24 + b.kvs.len + b.infos.len);
    for (int run = 0; run < 20000; run++) {
        uint32_t at[3], n_flips = 1 + weft_rand_below(&seed, 3);
        char saved[3];
        for (uint32_t i = 0; i < n_flips; i++) {
            at[i] = weft_rand_below(&seed, n_head);
            saved[i] = bytes.data[at[i]];
            bytes.data[at[i]] = (char)weft_rand_next(&seed);
        }
        weft_err err = load_bytes(bytes.data, bytes.len, &why);
        assert_true(err == WEFT_OK || err == WEFT_E_PROTO || err == WEFT_E_UNSUPPORTED);
        assert_true((err == WEFT_OK) == (why.text[0] == 0));
        n_ok += err == WEFT_OK;
        for (uint32_t i = n_flips; i-- > 0;) {
            bytes.data[at[i]] = saved[i];
        }
    }
    print_message("    %zu of 20000 were still fine\n", n_ok);
    weft_buf_fini(&bytes);
    gguf_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_of_every_type_are_read),
        cmocka_unit_test(a_key_that_is_missing_or_of_another_kind_reads_as_false),
        cmocka_unit_test(arrays_are_read_by_index_and_no_further),
        cmocka_unit_test(keys_are_listed_in_the_order_of_the_file),
        cmocka_unit_test(headers_of_other_files_are_refused),
        cmocka_unit_test(values_that_lie_are_refused_with_the_key_named),
        cmocka_unit_test(arrays_nested_too_deeply_are_refused),
        cmocka_unit_test(keys_that_are_doubled_or_nameless_are_refused),
        cmocka_unit_test(alignment_must_be_a_power_of_two),
        cmocka_unit_test(models_of_every_type_are_read),
        cmocka_unit_test(vectors_have_no_matrix_type),
        cmocka_unit_test(tensors_that_lie_are_refused_by_name),
        cmocka_unit_test(tensors_that_overlap_or_share_a_name_are_refused),
        cmocka_unit_test(a_vocabulary_is_no_model_and_counts_are_bounded),
        cmocka_unit_test(options_of_the_metadata_are_checked),
        cmocka_unit_test(each_hyper_parameter_is_needed),
        cmocka_unit_test(rope_divisors_must_be_positive),
        cmocka_unit_test(rope_divisors_may_be_a_matrix_of_one_row),
        cmocka_unit_test(olmo_3_is_refused),
        cmocka_unit_test(layers_of_more_than_two_sizes_are_refused),
        cmocka_unit_test(what_would_change_the_arithmetic_is_refused),
        cmocka_unit_test(vocabulary_files_of_others_open),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(flipped_bytes_are_read_or_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
