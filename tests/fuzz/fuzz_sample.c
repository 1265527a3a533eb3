/* What `weft sample` reads: a safetensors file with vectors, and cases. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "inside/cmd_weft/cases/sample_check.h"
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
    /* The header is an object of anybody's, as cases are. */
    if (!err) WEFT_ASSERT(!weft_sample_check(file.header, &why) || why.text[0]);
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

static void add_with(void (*add)(const void *bytes, size_t n), const char *header) {
    static unsigned char file[1024];
    size_t n = strlen(header);
    WEFT_ASSERT(n < 512);
    memset(file, 0, sizeof file);
    file[0] = (unsigned char)(n & 255);
    file[1] = (unsigned char)(n >> 8);
    memcpy(file + 8, header, n);
    add(file, 8 + n + 48);
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    add_with(add, "{\"logits.v\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
                  "\"h\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]},"
                  "\"p\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[40,48]}}   ");
    add_with(add,
             "{\"cases\":[{\"vector\":\"v\",\"steps\":[[\"top_k\",{\"k\":3}],"
             "[\"logit_bias\",{\"bias\":{\"7\":1.5}}],[\"penalties\",{\"prompt\":[1],"
             "\"output\":[],\"repetition\":2}]]}],\"mirostat\":[{\"sampler\":\"mirostat2\","
             "\"tau\":3,\"eta\":0.1,\"mu_start\":6,\"steps\":[{\"vector\":\"v\",\"draw\":0.5}]}],"
             "\"contrastive\":[{\"vector\":\"v\",\"alpha\":0.6}]}");
}
