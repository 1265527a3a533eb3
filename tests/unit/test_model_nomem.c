/* Refuses the 1st, 2nd, 3rd ... allocation of an opening until one runs clean: each refusal is an
 * error with a sentence, and nothing leaks (the address sanitizer's build sees to that). The linker
 * turns lib/model's calls of the allocator into the __wrap functions here; jansson is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/model_files.h"

#define NEVER UINT32_MAX
static uint32_t n_left = NEVER; /* allocations to go until one is refused */

static bool refuse(void) {
    if (n_left == NEVER) return false;
    if (n_left == 0) return true; /* and all after it: memory that ran out stays so */
    n_left--;
    return false;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *block, size_t n);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *block, size_t n);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);

void *__wrap_malloc(size_t n) {
    return refuse() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size) {
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *block, size_t n) {
    return refuse() ? NULL : __real_realloc(block, n);
}

char *__wrap_strdup(const char *text) {
    return refuse() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t n) {
    return refuse() ? NULL : __real_strndup(text, n);
}

/* Opens `path` with ever more allocations granted; returns how many it takes. */
static uint32_t open_until_it_works(const char *path) {
    for (uint32_t granted = 0;; granted++) {
        struct weft_errmsg why = {{0}};
        weft_model *model;
        n_left = granted;
        weft_err err = weft_model_open(path, &model, &why);
        bool ran_out = n_left == 0;
        n_left = NEVER;
        if (!err) {
            assert_non_null(model);
            weft_model_free(model);
            return granted;
        }
        if (!ran_out) fail_msg("%s", why.text);
        assert_null(model);
        assert_int_not_equal(why.text[0], 0);
        assert_true(granted < 100000);
    }
}

static void opening_a_gguf_file_survives_each_refusal(void **state) {
    (void)state;
    char *dir = test_dir_new();
    char path[4096];
    struct weft_buf bytes;
    struct gguf_builder b;
    gguf_init(&b);
    gguf_tiny_config(&b);
    gguf_key(&b, "tokenizer.ggml.tokens", WEFT_GGUF_ARRAY);
    gguf_put(&b.kvs, WEFT_GGUF_STRING, 4);
    gguf_put(&b.kvs, 1, 8);
    gguf_put_str(&b.kvs, "token");
    gguf_tiny_tensors(&b, 8);
    gguf_finish(&b, &bytes);
    test_dir_write(dir, "m.gguf", bytes.data, bytes.len);
    (void)snprintf(path, sizeof path, "%s/m.gguf", dir);
    print_message("    %u allocations\n", open_until_it_works(path));
    weft_buf_fini(&bytes);
    gguf_fini(&b);
    test_dir_free(dir);
}

static void opening_a_folder_survives_each_refusal(void **state) {
    (void)state;
    print_message("    %u allocations\n",
                  open_until_it_works(test_source_path("tests/data/zoo/llama_mha_linear")));
}

static void joining_quantised_weights_survives_each_refusal(void **state) {
    (void)state;
    print_message("    %u allocations\n",
                  open_until_it_works(test_source_path("tests/data/formats/gptq")));
    print_message("    %u allocations\n",
                  open_until_it_works(test_source_path("tests/data/formats/nf4")));
    print_message("    %u allocations\n",
                  open_until_it_works(test_source_path("tests/data/formats/w4a16")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_a_gguf_file_survives_each_refusal),
        cmocka_unit_test(opening_a_folder_survives_each_refusal),
        cmocka_unit_test(joining_quantised_weights_survives_each_refusal),
    };
    json_set_alloc_funcs(__wrap_malloc, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
