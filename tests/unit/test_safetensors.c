/* The safetensors reader: files that it accepts, files that it refuses, and the words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rand.h"
#include "inside/model/hf/hf.h"
#include "unit/model_files.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Reads bytes as "x.safetensors", from a block of their exact size, where a sanitizer sees a read
 * past the end. */
static weft_err read_bytes(const void *bytes, size_t n, struct weft_errmsg *why) {
    struct wefti_model_file file;
    char *copy = malloc(n + (n == 0));
    weft_model *model = wefti_model_new();
    assert_true(copy && model);
    if (n > 0) memcpy(copy, bytes, n);
    assert_int_equal(wefti_model_file_borrow("x.safetensors", copy, n, &file, why), WEFT_OK);
    why->text[0] = 0;
    weft_err err = wefti_model_safetensors_read(model, &file, why);
    if (!err) {
        assert_int_equal(wefti_model_index(model, "x", why), WEFT_OK);
        (void)weft_model_hash(model); /* touches every byte */
    }
    weft_model_free(model);
    wefti_model_file_close(&file);
    free(copy);
    return err;
}

static void tensors_of_each_type_are_found_in_the_order_of_their_data(void **state) {
    (void)state;
    struct weft_buf bytes;
    struct weft_errmsg why;
    struct wefti_model_file file;
    weft_model *model = wefti_model_new();
    assert_non_null(model);
    st_build(&bytes,
             "{\"late\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[8,16]},"
             "\"__metadata__\":{\"format\":\"pt\"},"
             "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]},"
             "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,9],\"data_offsets\":[4,4]},"
             "\"early\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}   ",
             16);
    assert_int_equal(wefti_model_file_borrow("x", bytes.data, bytes.len, &file, &why), WEFT_OK);
    if (wefti_model_safetensors_read(model, &file, &why)) fail_msg("%s", why.text);
    assert_int_equal(wefti_model_index(model, "x", &why), WEFT_OK);
    static const char *const order[] = {"early", "empty", "scalar", "late"};
    assert_int_equal(weft_model_n_tensors(model), 4);
    for (size_t i = 0; i < COUNT(order); i++) {
        assert_string_equal(weft_model_tensor(model, i)->name, order[i]);
    }
    const struct weft_tensor *late = weft_model_find(model, "late");
    assert_int_equal(late->dtype, WEFT_DT_BF16);
    assert_int_equal(late->n_dims, 2);
    assert_int_equal(late->bytes, 8);
    assert_ptr_equal(late->data, bytes.data + bytes.len - 8);
    assert_int_equal(weft_model_find(model, "scalar")->n_dims, 0);
    weft_model_free(model);
    wefti_model_file_close(&file);
    weft_buf_fini(&bytes);
}

#define F32(shape, begin, end)                                                                     \
    "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void headers_that_do_not_add_up_are_refused_with_the_tensor_named(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        weft_err err;
        const char *said;
    } cases[] = {
        {"", 0, WEFT_E_PROTO, "JSON object"},
        {"[]", 0, WEFT_E_PROTO, "JSON object"},
        {"   {}", 0, WEFT_E_PROTO, "JSON object"},
        {"{", 0, WEFT_E_PROTO, "not valid JSON"},
        {"{}x", 0, WEFT_E_PROTO, "not valid JSON"},
        {"{\"a\\u0000b\":" F32("[1]", "0", "4") "}", 4, WEFT_E_PROTO, "not valid JSON"},
        {"{\"a\":" F32("[1]", "0", "4") ",\"a\":" F32("[1]", "0", "4") "}", 4, WEFT_E_PROTO, "a"},
        {"{}", 1, WEFT_E_PROTO, "last 1 bytes"},
        {"{\"__metadata__\":7}", 0, WEFT_E_PROTO, "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", 0, WEFT_E_PROTO, "__metadata__"},
        {"{\"w.q\":7}", 0, WEFT_E_PROTO, "'w.q'"},
        {"{\"\":" F32("[1]", "0", "4") "}", 4, WEFT_E_PROTO, "unfit name"},
        {"{\"w.q\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, WEFT_E_PROTO, "no dtype"},
        {"{\"w.q\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, WEFT_E_PROTO,
         "no dtype"},
        {"{\"w.q\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         WEFT_E_UNSUPPORTED, "'F8_E4M3'"},
        {"{\"w.q\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
         WEFT_E_UNSUPPORTED, "'w.q'"},
        {"{\"w.q\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, WEFT_E_PROTO, "no shape"},
        {"{\"w.q\":" F32("{}", "0", "4") "}", 4, WEFT_E_PROTO, "no shape"},
        {"{\"w.q\":" F32("[1,1,1,1,1]", "0", "4") "}", 4, WEFT_E_PROTO, "4 dimensions"},
        {"{\"w.q\":" F32("[-1]", "0", "4") "}", 4, WEFT_E_PROTO, "whole number"},
        {"{\"w.q\":" F32("[1.0]", "0", "4") "}", 4, WEFT_E_PROTO, "whole number"},
        {"{\"w.q\":" F32("[9223372036854775808]", "0", "4") "}", 4, WEFT_E_PROTO, "JSON"},
        {"{\"w.q\":" F32("[4294967296,4294967296]", "0", "4") "}", 4, WEFT_E_PROTO, "overflows"},
        {"{\"w.q\":" F32("[4611686018427387905]", "0", "4") "}", 4, WEFT_E_PROTO, "overflows"},
        {"{\"w.q\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, WEFT_E_PROTO, "data_offsets"},
        {"{\"w.q\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, WEFT_E_PROTO,
         "data_offsets"},
        {"{\"w.q\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, WEFT_E_PROTO,
         "data_offsets"},
        {"{\"w.q\":" F32("[1]", "-4", "0") "}", 4, WEFT_E_PROTO, "data_offsets"},
        {"{\"w.q\":" F32("[1]", "4", "0") "}", 4, WEFT_E_PROTO, "'w.q' spans bytes 4 to 0"},
        {"{\"w.q\":" F32("[2]", "0", "8") "}", 4, WEFT_E_PROTO, "data section has 4"},
        {"{\"w.q\":" F32("[2]", "0", "4") "}", 4, WEFT_E_PROTO, "need 8"},
        {"{\"w.q\":" F32("[1]", "9223372036854775803", "9223372036854775807") "}", 4, WEFT_E_PROTO,
         "data section has 4"},
        {"{\"w.q\":" F32("[1]", "4", "8") "}", 8, WEFT_E_PROTO, "4 bytes before tensor 'w.q'"},
        {"{\"w.q\":" F32("[1]", "0", "4") "}", 8, WEFT_E_PROTO, "last 4 bytes"},
        {"{\"w.q\":" F32("[2]", "0", "8") ",\"w.k\":" F32("[2]", "4", "12") "}", 12, WEFT_E_PROTO,
         "'w.k' overlaps tensor 'w.q'"},
        {"{\"w.q\":" F32("[1]", "0", "4") ",\"w.k\":" F32("[1]", "8", "12") "}", 12, WEFT_E_PROTO,
         "4 bytes before tensor 'w.k'"},
        {"{\"w.q\":" F32("[1]", "0", "4") ",\"w.k\":" F32("[1]", "0", "4") "}", 4, WEFT_E_PROTO,
         "overlaps"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_buf bytes;
        struct weft_errmsg why;
        st_build(&bytes, cases[i].header, cases[i].n_data);
        weft_err err = read_bytes(bytes.data, bytes.len, &why);
        print_message("    %s\n", why.text);
        assert_int_equal(err, cases[i].err);
        assert_non_null(strstr(why.text, cases[i].said));
        assert_non_null(strstr(why.text, "x.safetensors: "));
        weft_buf_fini(&bytes);
    }
}

static void header_lengths_are_bounded_by_the_file_and_by_the_limit(void **state) {
    (void)state;
    struct weft_errmsg why;
    unsigned char bytes[16] = {0};
    static const uint64_t claims[] = {9, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
    for (size_t i = 0; i < COUNT(claims); i++) {
        memcpy(bytes, &claims[i], 8);
        assert_int_equal(read_bytes(bytes, sizeof bytes, &why), WEFT_E_PROTO);
        assert_non_null(strstr(why.text, "truncated"));
    }
    for (size_t n = 0; n < 8; n++) {
        assert_int_equal(read_bytes(bytes, n, &why), WEFT_E_PROTO);
    }
    size_t n = 8 + WEFTI_MODEL_SAFETENSORS_HEADER_BYTES_MAX + 1;
    uint64_t claim = n - 8;
    char *large = malloc(n);
    assert_non_null(large);
    memset(large, ' ', n);
    memcpy(large, &claim, 8);
    large[8] = '{';
    assert_int_equal(read_bytes(large, n, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "the limit is"));
    free(large);
}

static void json_nested_too_deeply_is_refused(void **state) {
    (void)state;
    struct weft_errmsg why;
    size_t n = 100000;
    char *header = malloc(n + 1);
    struct weft_buf bytes;
    assert_non_null(header);
    memset(header, '[', n);
    header[n] = 0;
    memcpy(header, "{\"a\":", 5);
    st_build(&bytes, header, 0);
    assert_int_equal(read_bytes(bytes.data, bytes.len, &why), WEFT_E_PROTO);
    weft_buf_fini(&bytes);
    free(header);
}

static void names_from_the_file_cannot_reach_a_terminal_raw(void **state) {
    (void)state;
    struct weft_errmsg why;
    struct weft_buf bytes;
    st_build(&bytes, "{\"\\u001b[31m\xc3\xa4\":{\"dtype\":\"F32\"}}", 0);
    assert_int_equal(read_bytes(bytes.data, bytes.len, &why), WEFT_E_PROTO);
    assert_string_equal(why.text, "x.safetensors: tensor '?[31m\?\?' has no shape");
    weft_buf_fini(&bytes);
}

/* --------------------------------------------------------------------------------- folders --- */

static weft_err open_dir(const char *dir, struct weft_errmsg *why) {
    weft_model *model;
    why->text[0] = 0;
    weft_err err = weft_model_open(dir, &model, why);
    assert_true(err ? model == NULL : model != NULL);
    weft_model_free(model);
    return err;
}

static void a_folder_needs_weights_and_a_configuration(void **state) {
    (void)state;
    char *dir = test_dir_new();
    char path[4096];
    struct weft_errmsg why;
    struct weft_buf bytes;
    st_build_tiny(&bytes);
    assert_int_equal(open_dir(dir, &why), WEFT_E_NOTFOUND);
    assert_non_null(strstr(why.text, "config.json"));
    test_dir_write(dir, "config.json", tiny_config, strlen(tiny_config));
    assert_int_equal(open_dir(dir, &why), WEFT_E_NOTFOUND);
    assert_non_null(strstr(why.text, "model.safetensors.index.json"));
    test_dir_write(dir, "model.safetensors", "", 0);
    assert_int_equal(open_dir(dir, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "empty"));
    test_dir_write(dir, "model.safetensors", bytes.data, bytes.len);
    assert_int_equal(open_dir(dir, &why), WEFT_OK);
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(open_dir(path, &why), WEFT_OK);
    test_dir_write(dir, "model.safetensors", bytes.data, bytes.len - 1);
    assert_int_equal(open_dir(dir, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "mlp.down_proj"));

    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(open_dir(dir, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "regular"));
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(open_dir(dir, &why), WEFT_E_PROTO); /* and does not hang */
    assert_non_null(strstr(why.text, "regular"));
    weft_buf_fini(&bytes);
    test_dir_free(dir);
}

static void tensors_must_fit_the_hyper_parameters(void **state) {
    (void)state;
    static const struct {
        const char *from, *to; /* in the header; equally long */
        weft_err err;
        const char *said;
    } cases[] = {
        {"self_attn.k_proj", "self_attn.X_proj", WEFT_E_PROTO, "k_proj.weight' is missing"},
        {"\"model.norm.weight\"", "\"model.norm.w_ight\"", WEFT_E_PROTO, "model.norm.weight"},
        {"\"lm_head.weight\"", "\"lm_head.bias__\"", WEFT_E_UNSUPPORTED, "lm_head.bias__"},
        {"[16,32],", "[32,16],", WEFT_E_PROTO, "has shape [32, 16]"},
        {"[8,32],", "[4,64],", WEFT_E_PROTO, "ask for [8, 32]"},
    };
    char *dir = test_dir_new();
    test_dir_write(dir, "config.json", tiny_config, strlen(tiny_config));
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_errmsg why;
        struct weft_buf bytes;
        st_build_tiny(&bytes);
        char *at = memmem(bytes.data, bytes.len, cases[i].from, strlen(cases[i].from));
        assert_non_null(at);
        memcpy(at, cases[i].to, strlen(cases[i].to));
        test_dir_write(dir, "model.safetensors", bytes.data, bytes.len);
        weft_err err = open_dir(dir, &why);
        print_message("    %s\n", why.text);
        assert_int_equal(err, cases[i].err);
        assert_non_null(strstr(why.text, cases[i].said));
        weft_buf_fini(&bytes);
    }
    test_dir_free(dir);
}

/* The table of rotary frequencies in older checkpoints is no role and no reason to refuse; in the
 * place of the head it leaves the model without one. */
static void an_absent_head_is_the_embedding(void **state) {
    (void)state;
    static const char *const names[] = {"\"lm_head.weight\"", "\"rotary_emb.inv_freq\""};
    char *dir = test_dir_new();
    test_dir_write(dir, "config.json", tiny_config, strlen(tiny_config));
    for (size_t i = 0; i < COUNT(names); i++) {
        struct weft_errmsg why;
        struct weft_buf bytes, changed;
        weft_model *model;
        uint64_t header_bytes;
        st_build_tiny(&bytes);
        size_t at = (size_t)((char *)memmem(bytes.data, bytes.len, names[0], strlen(names[0])) -
                             bytes.data);
        memcpy(&header_bytes, bytes.data, 8);
        header_bytes += strlen(names[i]) - strlen(names[0]);
        weft_buf_init(&changed, 1 << 20);
        gguf_put(&changed, header_bytes, 8);
        weft_buf_add(&changed, bytes.data + 8, at - 8);
        weft_buf_add_str(&changed, names[i]);
        at += strlen(names[0]);
        weft_buf_add(&changed, bytes.data + at, bytes.len - at);
        test_dir_write(dir, "model.safetensors", changed.data, changed.len);
        if (weft_model_open(dir, &model, &why)) fail_msg("%s", why.text);
        assert_true(weft_model_params(model)->tied == (i == 1));
        assert_true((weft_model_head(model) == weft_model_embedding(model)) == (i == 1));
        weft_model_free(model);
        weft_buf_fini(&bytes);
        weft_buf_fini(&changed);
    }
    test_dir_free(dir);
}

#define INDEX(map) "{\"metadata\":{\"total_size\":8},\"weight_map\":{" map "}}"

static void shards_must_hold_what_the_index_says(void **state) {
    (void)state;
    static const struct {
        const char *index, *said;
    } cases[] = {
        {"[]", "no weight_map"},
        {"{", "not valid JSON"},
        {"{\"weight_map\":7}", "no weight_map"},
        {INDEX("\"a\":7"), "'a'"},
        {INDEX("\"a\":\"../1.safetensors\""), "'a'"},
        {INDEX("\"a\":\"/etc/passwd\""), "'a'"},
        {INDEX("\"a\":\".safetensors\""), "'a'"},
        {INDEX("\"a\":\"1.safetensors\",\"b\":\"3.safetensors\""), "3.safetensors"},
        {INDEX("\"a\":\"1.safetensors\",\"b\":\"1.safetensors\""), "'b' is listed"},
        {INDEX("\"b\":\"1.safetensors\",\"c\":\"2.safetensors\""), "does not list it"},
        {INDEX("\"a\":\"2.safetensors\",\"b\":\"1.safetensors\""), "another file"},
        {INDEX("\"a\":\"1.safetensors\",\"a\":\"2.safetensors\""), "not valid JSON"},
    };
    struct weft_buf first, second;
    char *dir = test_dir_new();
    st_build(&first, "{\"a\":" F32("[1]", "0", "4") "}", 4);
    st_build(&second, "{\"b\":" F32("[1]", "0", "4") "}", 4);
    test_dir_write(dir, "1.safetensors", first.data, first.len);
    test_dir_write(dir, "2.safetensors", second.data, second.len);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_errmsg why = {{0}};
        weft_model *model = wefti_model_new();
        test_dir_write(dir, "model.safetensors.index.json", cases[i].index, strlen(cases[i].index));
        weft_err err = wefti_model_safetensors_folder(model, dir, &why);
        print_message("    %s\n", strrchr(why.text, '/') ? strrchr(why.text, '/') : why.text);
        assert_true(err == WEFT_E_PROTO || err == WEFT_E_NOTFOUND);
        assert_non_null(strstr(why.text, cases[i].said));
        weft_model_free(model);
    }
    struct weft_errmsg why;
    static const char good[] = INDEX("\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"");
    weft_model *model = wefti_model_new();
    test_dir_write(dir, "model.safetensors.index.json", good, strlen(good));
    if (wefti_model_safetensors_folder(model, dir, &why)) fail_msg("%s", why.text);
    assert_int_equal(weft_model_n_tensors(model), 2);
    weft_model_free(model);
    weft_buf_fini(&first);
    weft_buf_fini(&second);
    test_dir_free(dir);
}

/* -------------------------------------------------------------------------------- property --- */

static void every_truncation_is_refused(void **state) {
    (void)state;
    struct weft_buf bytes;
    struct weft_errmsg why;
    st_build(&bytes, "{\"a\":" F32("[2,3]", "0", "24") ",\"b\":" F32("[2]", "24", "32") "}", 32);
    assert_int_equal(read_bytes(bytes.data, bytes.len, &why), WEFT_OK);
    for (size_t n = 0; n < bytes.len; n++) {
        assert_int_equal(read_bytes(bytes.data, n, &why), WEFT_E_PROTO);
        assert_int_not_equal(why.text[0], 0);
    }
    weft_buf_fini(&bytes);
}

static void flipped_bytes_are_read_or_refused_with_a_sentence(void **state) {
    (void)state;
    uint64_t seed = weft_rand_test_seed();
    struct weft_buf bytes;
    struct weft_errmsg why;
    size_t n_ok = 0;
    st_build_tiny(&bytes);
    uint64_t header_bytes;
    memcpy(&header_bytes, bytes.data, 8);
    for (int run = 0; run < 20000; run++) {
        uint32_t n_flips = 1 + weft_rand_below(&seed, 3);
        char saved[3];
        uint32_t at[3];
        for (uint32_t i = 0; i < n_flips; i++) {
            at[i] = weft_rand_below(&seed, (uint32_t)header_bytes + 8);
            saved[i] = bytes.data[at[i]];
            bytes.data[at[i]] = (char)weft_rand_next(&seed);
        }
        weft_err err = read_bytes(bytes.data, bytes.len, &why);
        assert_true(err == WEFT_OK || err == WEFT_E_PROTO || err == WEFT_E_UNSUPPORTED);
        assert_true((err == WEFT_OK) == (why.text[0] == 0));
        n_ok += err == WEFT_OK;
        for (uint32_t i = n_flips; i-- > 0;) {
            bytes.data[at[i]] = saved[i];
        }
    }
    print_message("    %zu of 20000 were still fine (a changed name)\n", n_ok);
    weft_buf_fini(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_each_type_are_found_in_the_order_of_their_data),
        cmocka_unit_test(headers_that_do_not_add_up_are_refused_with_the_tensor_named),
        cmocka_unit_test(header_lengths_are_bounded_by_the_file_and_by_the_limit),
        cmocka_unit_test(json_nested_too_deeply_is_refused),
        cmocka_unit_test(names_from_the_file_cannot_reach_a_terminal_raw),
        cmocka_unit_test(a_folder_needs_weights_and_a_configuration),
        cmocka_unit_test(tensors_must_fit_the_hyper_parameters),
        cmocka_unit_test(an_absent_head_is_the_embedding),
        cmocka_unit_test(shards_must_hold_what_the_index_says),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(flipped_bytes_are_read_or_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
