/* The vectors that `weft sample` reads: a safetensors file beside its cases. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "inside/cmd_weft/cases/sample_file.h"

static char folder[] = "/tmp/weft-fuzz-XXXXXX";
static char cases[64], vectors[64];

static void remove_files(void) {
    (void)unlink(cases);
    (void)unlink(vectors);
    (void)rmdir(folder);
}

static void write_file(const char *path, const void *bytes, size_t n) {
    FILE *out = fopen(path, "wb");
    WEFT_ASSERT(out && fwrite(bytes, 1, n, out) == n);
    WEFT_ASSERT(fclose(out) == 0);
}

static void make_files(void) {
    WEFT_ASSERT(mkdtemp(folder));
    (void)snprintf(cases, sizeof cases, "%s/a.json", folder);
    (void)snprintf(vectors, sizeof vectors, "%s/a.safetensors", folder);
    (void)atexit(remove_files);
    write_file(cases, "{}", 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_errmsg why = {{0}};
    struct weft_sample_file file;
    struct weft_sample_array array;
    if (!cases[0]) make_files();
    write_file(vectors, bytes, n);
    weft_err err = weft_sample_file_open(cases, &file, &why);
    WEFT_ASSERT(!err || why.text[0]);
    const char *key;
    json_t *entry;
    json_object_foreach(err ? NULL : file.header, key, entry) {
        float sum = 0.0f; /* all of it can be read */
        if (weft_sample_file_find(&file, key, &array, &why)) continue;
        for (size_t i = 0; i < array.n_rows * array.n_cols; i++)
            sum += array.values[i];
        if (sum == 0.5f) why.text[0] = '\0'; /* so that it is */
    }
    weft_sample_file_close(&file);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char header[] =
        "{\"logits.v\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
        "\"h\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]},"
        "\"p\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[40,48]}}   ";
    unsigned char file[8 + sizeof header - 1 + 48] = {sizeof header - 1};
    memcpy(file + 8, header, sizeof header - 1);
    add(file, sizeof file);
}
