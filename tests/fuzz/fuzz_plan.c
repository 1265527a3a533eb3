/* config.json alone, as `weft inspect --plan` takes it: shapes without weights, and what an engine of them would need. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "engine/engine.h"
#include "inside/model/hf/hf.h"
#include "unit/model_files.h"

enum { MATRICES_MAX = 4096 }; /* more take too long to name */

static char *dir;

static void remove_dir(void) {
    test_dir_free(dir);
}

/* Whether there would be few enough of them. */
static bool is_small(const uint8_t *bytes, size_t n) {
    struct weft_errmsg why;
    struct weft_model_params p = {0};
    struct wefti_model_file file;
    WEFT_ASSERT(wefti_model_file_borrow("fuzz.json", bytes, n, &file, &why) == WEFT_OK);
    weft_err err = wefti_model_config_hf(&file, &p, &why);
    wefti_model_file_close(&file);
    return !err && (uint64_t)p.n_layers * (p.moe.n_experts + 1) < MATRICES_MAX;
}

static void check(const struct weft_eng_plan *plan) {
    uint64_t sum = 0;
    for (uint32_t type = 0; type < WEFT_DT_COUNT; type++)
        sum += plan->bytes_of_type[type];
    WEFT_ASSERT(sum <= plan->info.weight_bytes && plan->info.step_weight_bytes <= sum);
    WEFT_ASSERT(plan->n_contexts > 0 && plan->info.n_blocks > 0);
    for (uint32_t i = 1; i < plan->n_contexts; i++) {
        const struct weft_eng_plan_context *at = &plan->contexts[i];
        WEFT_ASSERT(at->n_tokens > at[-1].n_tokens && at->kv_bytes >= at[-1].kv_bytes);
    }
}

static void try_plan(const void *text, size_t n) {
    static struct weft_eng_plan plan;
    struct weft_errmsg why = {{0}};
    struct weft_eng_options options;
    if (!is_small(text, n)) return;
    test_dir_write(dir, "config.json", text, n);
    weft_eng_options_init(&options);
    options.n_threads = 1;
    options.max_seqs = 2;
    options.max_batched_tokens = 16;
    options.room_bytes = UINT64_C(1) << 40;
    weft_err err = weft_eng_foresee(dir, &options, &plan, &why);
    WEFT_ASSERT(!err || why.text[0]);
    if (!err) check(&plan);
}

/* The configuration with a number from `at` to `end` replaced. */
static void try_change(const char *text, size_t n, size_t at, size_t end, const char *value) {
    struct weft_buf changed;
    weft_buf_init(&changed, n + 16);
    weft_buf_add(&changed, text, at);
    weft_buf_printf(&changed, "%s", value);
    weft_buf_add(&changed, text + end, n - end);
    try_plan(changed.data, changed.len);
    weft_buf_fini(&changed);
}

/* As it is, and with each of its numbers replaced by some that it hardly means. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const char *const values[] = {"0", "7", "65536", "4294967295"};
    const char *text = (const char *)bytes;
    if (!dir) {
        dir = test_dir_new();
        WEFT_ASSERT(atexit(remove_dir) == 0);
    }
    if (!is_small(bytes, n)) return 0;
    try_plan(bytes, n);
    for (size_t at = 0, end; at < n; at = end) {
        end = at;
        while (end < n && strchr("0123456789.e+-", text[end]) && text[end])
            end++;
        bool is_number = end > at && at > 0 && text[at - 1] && strchr(" :[,", text[at - 1]);
        for (size_t i = 0; is_number && i < sizeof values / sizeof values[0]; i++)
            try_change(text, n, at, end, values[i]);
        if (end == at) end++;
    }
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    const char *shared = getenv("WEFT_SHARED_DIR");
    char folder[4096];
    test_each_config(test_source_path("tests/data/zoo"), add);
    test_each_config(test_source_path("tests/data/formats"), add);
    (void)snprintf(folder, sizeof folder, "%s/zoo2", shared ? shared : "../shared");
    test_each_config(folder, add);
}
