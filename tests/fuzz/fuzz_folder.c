/* A whole folder: config.json against the names and shapes of the tensors beside it, which an architecture renames, joins,
 * cuts into views and resolves to roles. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "harness/model_sketch.h"
#include "inside/model/parts.h"
#include "unit/model_files.h"

enum { DATA_BYTES_MAX = 1 << 20 };

static char *dir;

static void remove_dir(void) {
    test_dir_free(dir);
}

static void touch_rows(const weft_model *model) {
    for (size_t i = 0; i < weft_model_n_tensors(model); i++) {
        const struct weft_tensor *tensor = weft_model_tensor(model, i);
        if (!tensor->parts || tensor->n_dims != 2) continue;
        unsigned char *row = malloc(weft_tensor_row_bytes(tensor));
        WEFT_ASSERT(row);
        for (uint64_t r = 0; r < tensor->dims[0]; r++)
            weft_tensor_rows(tensor, r, 1, row);
        free(row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_errmsg why = {{0}};
    weft_model *model;
    if (!dir) {
        dir = test_dir_new();
        WEFT_ASSERT(atexit(remove_dir) == 0);
    }
    if (!model_sketch_write(bytes, n, dir, DATA_BYTES_MAX)) return 0;
    weft_err err = weft_model_open(dir, &model, &why);
    WEFT_ASSERT(!err || why.text[0]);
    if (err) return 0;
    (void)weft_model_hash(model);
    touch_rows(model);
    weft_model_free(model);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    const char *shared = getenv("WEFT_SHARED_DIR");
    char path[4096];
    model_sketch_each(test_source_path("tests/data/zoo"), add);
    model_sketch_each(test_source_path("tests/data/embed"), add);
    (void)snprintf(path, sizeof path, "%s/zoo2", shared ? shared : "../shared");
    model_sketch_each(path, add);
}
