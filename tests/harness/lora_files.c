#include "harness/lora_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "model/model.h"
#include "unit/model_files.h"

enum { FILE_BYTES_MAX = 256 << 20, STRENGTH_PERCENT = 30 };

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

/* Some models have layers after the last one. */
static bool is_adapted(const weft_model *model, const struct weft_tensor *tensor) {
    static const char *const ends[] = {"_proj.weight", ".w1.weight", ".w2.weight", ".w3.weight",
                                       "kv_a_proj_with_mqa.weight"};
    const char *layer = strstr(tensor->name, ".layers.");
    if (!layer ||
        strtoul(layer + strlen(".layers."), NULL, 10) >= weft_model_params(model)->n_layers)
        return false;
    if (tensor->n_dims != 2 || ends_with(tensor->name, "kv_b_proj.weight")) return false;
    if (strstr(tensor->name, ".indexer.")) return false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (ends_with(tensor->name, ends[i])) return true;
    }
    return false;
}

static float next_value(uint64_t *rng) {
    return (float)((int32_t)weft_rand_below(rng, 2001) - 1000) / 1000.0f;
}

/* A and B of a tensor, both from the heap: the same for a seed, whatever else is made. */
static void make_pair(const struct weft_tensor *tensor, uint32_t rank, uint64_t seed, float **a_out,
                      float **b_out) {
    uint64_t rng = seed;
    size_t n_a = rank * tensor->dims[1], n_b = tensor->dims[0] * rank;
    float *a = malloc(n_a * sizeof *a), *b = malloc(n_b * sizeof *b);
    float *row = malloc(tensor->dims[1] * sizeof *row);
    double sum = 0;
    assert_true(a && b && row);
    for (const char *c = tensor->name; *c; c++)
        rng = rng * 131 + (unsigned char)*c;
    weft_tensor_row_f32(tensor, 0, row);
    for (size_t i = 0; i < tensor->dims[1]; i++)
        sum += (double)row[i] * (double)row[i];
    /* Rows of B A are about this share of those of W; the scale is 2. */
    float size = (float)(sqrt(sum) * STRENGTH_PERCENT / 100 / 2);
    for (size_t i = 0; i < n_a; i++)
        a[i] = next_value(&rng) * 1.7f / sqrtf((float)tensor->dims[1]);
    for (size_t i = 0; i < n_b; i++)
        b[i] = next_value(&rng) * 1.7f / sqrtf((float)rank) * size;
    free(row);
    *a_out = a;
    *b_out = b;
}

struct file {
    struct weft_buf header, data;
};

static void file_add(struct file *file, const char *name, uint64_t rows, uint64_t columns,
                     const float *values) {
    size_t begin = file->data.len, n_bytes = rows * (columns ? columns : 1) * sizeof *values;
    weft_buf_add(&file->data, values, n_bytes);
    weft_buf_printf(&file->header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%llu",
                    file->header.len > 1 ? "," : "", name, (unsigned long long)rows);
    if (columns) weft_buf_printf(&file->header, ",%llu", (unsigned long long)columns);
    weft_buf_printf(&file->header, "],\"data_offsets\":[%zu,%zu]}", begin, begin + n_bytes);
}

static void file_begin(struct file *file) {
    weft_buf_init(&file->header, FILE_BYTES_MAX);
    weft_buf_init(&file->data, FILE_BYTES_MAX);
    weft_buf_add_str(&file->header, "{");
}

static void file_write(struct file *file, const char *dir, const char *name) {
    struct weft_buf whole;
    weft_buf_add_str(&file->header, "}");
    uint64_t n_header = file->header.len;
    weft_buf_init(&whole, FILE_BYTES_MAX);
    weft_buf_add(&whole, &n_header, sizeof n_header);
    weft_buf_add(&whole, file->header.data, file->header.len);
    weft_buf_add(&whole, file->data.data, file->data.len);
    assert_false(whole.failed || file->header.failed || file->data.failed);
    test_dir_write(dir, name, whole.data, whole.len);
    weft_buf_fini(&whole);
    weft_buf_fini(&file->header);
    weft_buf_fini(&file->data);
}

static weft_model *open_model(const char *path) {
    weft_model *model;
    struct weft_errmsg why;
    if (weft_model_open(path, &model, &why)) fail_msg("%s", why.text);
    return model;
}

void lora_write_random(const char *path, const char *dir, uint32_t rank, uint64_t seed) {
    weft_model *model = open_model(path);
    struct file file;
    char text[512];
    file_begin(&file);
    for (size_t i = 0; i < weft_model_n_tensors(model); i++) {
        const struct weft_tensor *tensor = weft_model_tensor(model, i);
        float *a, *b;
        if (!is_adapted(model, tensor)) continue;
        make_pair(tensor, rank, seed, &a, &b);
        int n = (int)(strlen(tensor->name) - strlen(".weight"));
        (void)snprintf(text, sizeof text, "base_model.model.%.*s.lora_A.weight", n, tensor->name);
        file_add(&file, text, rank, tensor->dims[1], a);
        (void)snprintf(text, sizeof text, "base_model.model.%.*s.lora_B.weight", n, tensor->name);
        file_add(&file, text, tensor->dims[0], rank, b);
        free(a);
        free(b);
    }
    weft_model_free(model);
    file_write(&file, dir, "adapter_model.safetensors");
    int n = snprintf(text, sizeof text,
                     "{\"peft_type\":\"LORA\",\"r\":%u,\"lora_alpha\":%u,"
                     "\"target_modules\":\"all-linear\"}",
                     rank, 2 * rank);
    test_dir_write(dir, "adapter_config.json", text, (size_t)n);
}

/* values += 2 * B A */
static void merge(const struct weft_tensor *tensor, uint32_t rank, uint64_t seed, float *values) {
    float *a, *b;
    make_pair(tensor, rank, seed, &a, &b);
    for (uint64_t r = 0; r < tensor->dims[0]; r++) {
        for (uint64_t c = 0; c < tensor->dims[1]; c++) {
            double sum = 0;
            for (uint32_t i = 0; i < rank; i++)
                sum += (double)b[r * rank + i] * (double)a[i * tensor->dims[1] + c];
            float *value = &values[r * tensor->dims[1] + c];
            *value = (float)((double)*value + 2 * sum);
        }
    }
    free(a);
    free(b);
}

void lora_write_merged(const char *path, const char *dir, uint32_t rank, uint64_t seed) {
    weft_model *model = open_model(path);
    struct weft_errmsg why;
    struct file file;
    char *config = NULL;
    size_t n_config = 0;
    file_begin(&file);
    for (size_t i = 0; i < weft_model_n_tensors(model); i++) {
        const struct weft_tensor *tensor = weft_model_tensor(model, i);
        uint64_t rows = tensor->n_dims == 2 ? tensor->dims[0] : 1;
        uint64_t columns = tensor->dims[tensor->n_dims - 1];
        float *values = malloc(rows * columns * sizeof *values);
        assert_non_null(values);
        for (uint64_t r = 0; r < rows; r++)
            weft_tensor_row_f32(tensor, r, values + r * columns);
        if (is_adapted(model, tensor)) merge(tensor, rank, seed, values);
        if (tensor->n_dims == 2)
            file_add(&file, tensor->name, rows, columns, values);
        else
            file_add(&file, tensor->name, columns, 0, values);
        free(values);
    }
    weft_model_free(model);
    file_write(&file, dir, "model.safetensors");
    assert_int_equal(weft_model_read_in(path, "config.json", 1 << 20, &config, &n_config, &why), 0);
    test_dir_write(dir, "config.json", config, n_config);
    free(config);
}
