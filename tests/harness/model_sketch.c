#include "harness/model_sketch.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "unit/model_files.h"

enum { LINE_BYTES = 512, DIMS_MAX = 4 };

/* -------------------------------------------------------------------------------- from folders --- */

static void add_tensors(const char *path, struct weft_buf *out) {
    struct weft_errmsg why;
    uint64_t header_bytes;
    char *text;
    size_t n, i;
    const char *name;
    json_t *info, *dim;
    WEFT_ASSERT(weft_file_read(path, WEFT_FILE_REGULAR, 64u << 20, &text, &n, &why) == WEFT_OK);
    WEFT_ASSERT(n > sizeof header_bytes);
    memcpy(&header_bytes, text, sizeof header_bytes);
    json_t *header = json_loadb(text + 8, header_bytes, 0, NULL);
    WEFT_ASSERT(header);
    json_object_foreach(header, name, info) {
        if (!strcmp(name, "__metadata__")) continue;
        weft_buf_printf(out, "%s %s", name, json_string_value(json_object_get(info, "dtype")));
        json_array_foreach(json_object_get(info, "shape"), i, dim)
            weft_buf_printf(out, " %" JSON_INTEGER_FORMAT, json_integer_value(dim));
        weft_buf_add_char(out, '\n');
    }
    json_decref(header);
    free(text);
}

void model_sketch_each(const char *zoo, void (*add)(const void *bytes, size_t n)) {
    struct dirent **entries;
    int n_entries = scandir(zoo, &entries, NULL, alphasort);
    for (int i = 0; i < n_entries; i++) {
        struct weft_errmsg why;
        struct weft_buf out;
        char path[4096], *text;
        size_t n;
        (void)snprintf(path, sizeof path, "%s/%s/config.json", zoo, entries[i]->d_name);
        bool found = !weft_file_read(path, WEFT_FILE_REGULAR, 1 << 16, &text, &n, &why);
        (void)snprintf(path, sizeof path, "%s/%s/model.safetensors", zoo, entries[i]->d_name);
        free(entries[i]);
        if (!found) continue;
        weft_buf_init(&out, MODEL_SKETCH_BYTES_MAX);
        weft_buf_add(&out, text, n + 1); /* with the zero at its end */
        free(text);
        FILE *file = fopen(path, "re"); /* some folders have several */
        if (file) {
            (void)fclose(file);
            add_tensors(path, &out);
            WEFT_ASSERT(!out.failed);
            add(out.data, out.len);
        }
        weft_buf_fini(&out);
    }
    if (n_entries >= 0) free(entries);
}

/* ---------------------------------------------------------------------------------- to a folder --- */

static uint64_t dtype_bytes(const char *dtype) {
    static const struct {
        const char *name;
        uint64_t bytes;
    } types[] = {{"BF16", 2},    {"F16", 2},     {"F32", 4}, {"F64", 8}, {"I8", 1},  {"U8", 1},
                 {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"I32", 4}, {"U32", 4}, {"I64", 8}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (!strcmp(types[i].name, dtype)) return types[i].bytes;
    return 0;
}

/* One line: its tensor in the header, and the end of its bytes in *end. */
static bool add_line(char *line, struct weft_buf *header, uint64_t data_bytes_max, uint64_t *end) {
    char *at = NULL;
    const char *name = strtok_r(line, " ", &at), *dtype = strtok_r(NULL, " ", &at), *dim;
    if (!name || !dtype || strpbrk(name, "\"\\") || strpbrk(dtype, "\"\\")) return false;
    uint64_t bytes = dtype_bytes(dtype);
    if (!bytes) return false;
    weft_buf_printf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", header->len > 1 ? "," : "",
                    name, dtype);
    for (int i = 0; (dim = strtok_r(NULL, " ", &at)); i++) {
        uint64_t value = strtoull(dim, NULL, 10);
        if (i == DIMS_MAX || value > data_bytes_max) return false;
        bytes *= value;
        if (bytes > data_bytes_max) return false;
        weft_buf_printf(header, "%s%" PRIu64, i ? "," : "", value);
    }
    weft_buf_printf(header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *end, *end + bytes);
    *end += bytes;
    return *end <= data_bytes_max && !header->failed;
}

bool model_sketch_write(const void *bytes, size_t n, const char *dir, size_t data_bytes_max) {
    const char *text = bytes, *middle = n > 0 ? memchr(text, 0, n) : NULL;
    if (!middle) return false;
    struct weft_buf header, out;
    uint64_t end = 0;
    bool is_good = true;
    weft_buf_init(&header, 4 * MODEL_SKETCH_BYTES_MAX);
    weft_buf_add_char(&header, '{');
    for (const char *at = middle + 1, *stop = text + n; at < stop && is_good;) {
        const char *newline = memchr(at, '\n', (size_t)(stop - at));
        size_t len = (size_t)((newline ? newline : stop) - at);
        char line[LINE_BYTES];
        is_good = len > 0 && len < sizeof line;
        if (!is_good) break;
        memcpy(line, at, len);
        line[len] = '\0';
        for (size_t i = 0; i < len; i++)
            is_good &= line[i] >= ' ' && line[i] < 0x7f;
        is_good = is_good && add_line(line, &header, data_bytes_max, &end);
        at += len + 1;
    }
    weft_buf_add_char(&header, '}');
    if (is_good && !header.failed) {
        st_build(&out, weft_buf_cstr(&header), end);
        test_dir_write(dir, "config.json", text, (size_t)(middle - text));
        test_dir_write(dir, "model.safetensors", out.data, out.len);
        weft_buf_fini(&out);
    }
    is_good &= !header.failed;
    weft_buf_fini(&header);
    return is_good;
}
