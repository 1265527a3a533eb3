/* Packed files: each input as it is, and once more with its sums made to fit, since no mutation
 * would ever get past them. Then the model, its small files and its metadata. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/file.h"
#include "inside/model/packed/packed.h"
#include "unit/model_files.h"

static void read_packed(const void *bytes, size_t n) {
    static const char *const names[] = {"gguf", "config.json", "tokenizer.json", "name", ""};
    struct weft_errmsg why = {{0}};
    struct wefti_model_file file;
    struct wefti_model_packed_view view;
    struct weft_str section;
    weft_model *model;
    WEFT_ASSERT(wefti_model_file_borrow("fuzz.weft", bytes, n, &file, &why) == WEFT_OK);
    weft_err err = wefti_model_packed_parse(&file, &view, &why);
    WEFT_ASSERT(!err == !why.text[0]);
    for (size_t i = 0; !err && i < sizeof names / sizeof names[0]; i++) {
        volatile char sum = 0;
        if (!wefti_model_packed_find(&view, names[i], &section)) continue;
        for (size_t k = 0; k < section.len; k++)
            sum = (char)(sum ^ section.data[k]);
    }
    err = wefti_model_from_packed(&file, &model, &why);
    WEFT_ASSERT(!err || why.text[0]);
    if (err) return;
    struct weft_rope rope;
    weft_model_rope(model, true, true, &rope);
    for (size_t i = 0; i < weft_model_n_tensors(model); i++)
        WEFT_ASSERT(weft_dtypes[weft_model_stored(model, weft_model_tensor(model, i))].class <=
                    WEFT_DTYPE_FOLDER);
    WEFT_ASSERT(weft_model_hash(model) == weft_model_packed(model)->weights_hash);
    weft_model_free(model);
}

static void put_u64(uint8_t *at, uint64_t value) {
    for (int i = 0; i < 8; i++, value >>= 8)
        at[i] = (uint8_t)value;
}

/* Sizes and sums that fit; the rest stays as the mutation left it. */
static void make_fit(uint8_t *bytes, size_t n) {
    if (n < WEFT_PACKED_PAGE) return;
    put_u64(bytes + 16, n);
    put_u64(bytes + 24, WEFT_PACKED_PAGE); /* the seeds have an arena of the header's page alone */
    put_u64(bytes + 88, XXH3_64bits(bytes + WEFT_PACKED_PAGE, n - WEFT_PACKED_PAGE));
    put_u64(bytes + WEFTI_MODEL_PACKED_HASH_AT, XXH3_64bits(bytes, WEFTI_MODEL_PACKED_HASH_AT));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    read_packed(bytes, n);
    uint8_t *copy = malloc(n + 1);
    WEFT_ASSERT(copy);
    memcpy(copy, bytes, n);
    make_fit(copy, n);
    read_packed(copy, n);
    free(copy);
    return 0;
}

/* The tiny model of `dir` (or the file in it), packed without any weights. */
static void add_packed(const char *path, const char *out, void (*add)(const void *, size_t)) {
    struct weft_errmsg why = {{0}};
    weft_model *model;
    struct weft_packed packed = {.arena_bytes = WEFT_PACKED_PAGE, .packed_as = "q8"};
    if (weft_model_open(path, &model, &why)) (void)fprintf(stderr, "%s\n", why.text);
    WEFT_ASSERT(model);
    enum weft_dtype *stored = calloc(weft_model_n_tensors(model), sizeof *stored);
    WEFT_ASSERT(stored);
    stored[0] = WEFT_DT_I8;
    FILE *file = fopen(out, "w+be");
    WEFT_ASSERT(file);
    const struct weft_packed_source source = {model, path, stored};
    WEFT_ASSERT(weft_packed_finish(fileno(file), out, &source, &packed, &why) == WEFT_OK);
    WEFT_ASSERT(fclose(file) == 0);
    char *text;
    size_t len;
    WEFT_ASSERT(weft_file_read(out, WEFT_FILE_REGULAR, 1u << 20, &text, &len, &why) == WEFT_OK);
    add(text, len);
    free(text);
    free(stored);
    weft_model_free(model);
    WEFT_ASSERT(unlink(out) == 0);
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const uint64_t half_head[] = {8};
    char *dir = test_dir_new(), path[256], out[256];
    struct weft_buf bytes;
    struct gguf_builder b;
    (void)snprintf(out, sizeof out, "%s/out", dir);
    st_build_tiny(&bytes);
    test_dir_write(dir, "model.safetensors", bytes.data, bytes.len);
    weft_buf_fini(&bytes);
    test_dir_write(dir, "config.json", tiny_config, strlen(tiny_config));
    add_packed(dir, out, add);
    gguf_init(&b);
    gguf_tiny_config(&b);
    gguf_tensor(&b, "rope_freqs.weight", 0, 1, half_head, 32);
    gguf_tiny_tensors(&b, 0);
    /* Values of 1 in place of the builder's pattern, which is no frequency. */
    for (size_t at = 0; at + 4 <= 32 && at + 4 <= b.data.len; at += 4)
        memcpy(b.data.data + at, &(float){1.0f}, 4);
    gguf_finish(&b, &bytes);
    test_dir_write(dir, "tiny.gguf", bytes.data, bytes.len);
    weft_buf_fini(&bytes);
    gguf_fini(&b);
    (void)snprintf(path, sizeof path, "%s/tiny.gguf", dir);
    add_packed(path, out, add);
    test_dir_free(dir);
}
