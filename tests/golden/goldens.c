#include "golden/goldens.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside/kernels/convert.h"

static bool read_file(const char *path, uint8_t **bytes_out, size_t *len_out) {
    FILE *f = fopen(path, "rbe");
    if (!f) return false;
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long len = ftell(f);
    assert_true(len > 8);
    rewind(f);
    *len_out = (size_t)len;
    *bytes_out = malloc(*len_out);
    assert_non_null(*bytes_out);
    assert_int_equal(fread(*bytes_out, 1, *len_out, f), *len_out);
    (void)fclose(f);
    return true;
}

bool goldens_open(struct goldens *goldens, const char *path) {
    *goldens = (struct goldens){0};
    if (!read_file(path, &goldens->bytes, &goldens->len)) return false;
    uint64_t header_len;
    memcpy(&header_len, goldens->bytes, sizeof header_len);
    assert_true(header_len <= goldens->len - 8);
    json_error_t error;
    goldens->header = json_loadb((const char *)goldens->bytes + 8, header_len, 0, &error);
    if (!goldens->header) fail_msg("%s: %s", path, error.text);
    goldens->data = goldens->bytes + 8 + header_len;
    return true;
}

void goldens_close(struct goldens *goldens) {
    json_decref(goldens->header);
    free(goldens->bytes);
    *goldens = (struct goldens){0};
}

bool goldens_find(const struct goldens *goldens, const char *name, const char *dtype,
                  struct goldens_array *out) {
    const json_t *entry = json_object_get(goldens->header, name);
    if (!entry) return false;
    assert_string_equal(json_string_value(json_object_get(entry, "dtype")), dtype);
    const json_t *shape = json_object_get(entry, "shape");
    size_t n_dims = json_array_size(shape);
    assert_true(n_dims == 1 || n_dims == 2);
    out->n_cols = (size_t)json_integer_value(json_array_get(shape, n_dims - 1));
    out->n_rows = n_dims == 2 ? (size_t)json_integer_value(json_array_get(shape, 0)) : 1;
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    out->elem_bytes = strcmp(dtype, "F16") == 0 ? 2 : 4;
    assert_int_equal(end - begin, out->n_rows * out->n_cols * out->elem_bytes);
    assert_true(end <= goldens->len - (size_t)(goldens->data - goldens->bytes));
    out->data = goldens->data + begin;
    return true;
}

float goldens_f32(const struct goldens_array *array, size_t row, size_t col) {
    float value;
    assert_true(row < array->n_rows && col < array->n_cols);
    const uint8_t *at = array->data + (row * array->n_cols + col) * array->elem_bytes;
    if (array->elem_bytes == 2) {
        uint16_t half;
        memcpy(&half, at, sizeof half);
        return f16_to_f32(half);
    }
    memcpy(&value, at, sizeof value);
    return value;
}

uint32_t goldens_u32(const struct goldens_array *array, size_t idx) {
    uint32_t value;
    assert_true(idx < array->n_rows * array->n_cols);
    memcpy(&value, array->data + idx * 4, sizeof value);
    return value;
}
