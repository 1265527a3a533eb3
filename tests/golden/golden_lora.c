/* Adapters of the exact mode against float64: base weights with s B A added, every logit within 1e-3,
 * greedy tokens equal wherever the reference's margin is over 0.01. Adapters that are too large for
 * the repository lie in WEFT_SHARED_DIR. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "golden/goldens.h"
#include "harness/eng_drive.h"

#define LOGIT_TOLERANCE 1e-3f
#define MARGIN 0.01f
#define FABLE "models/fable-6m"

enum { TOKENS_MAX = 256, PATH_BYTES = 1024, FILE_BYTES = PATH_BYTES + 64 };

static weft_eng *open_exact(const char *model) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.activations = WEFT_ENG_ACT_F32;
    options.kv_memory_bytes = 64u << 20;
    options.max_batched_tokens = 20; /* the longer prompts come in chunks */
    return drive_open(drive_fixture(model), &options);
}

static void add(weft_eng *eng, uint64_t id, const char *path) {
    struct weft_errmsg why;
    struct weft_eng_lora info;
    if (weft_eng_add_lora(eng, id, path, &info, &why)) fail_msg("%s", why.text);
    assert_true(info.bytes > 0);
    assert_true((info.digest.hi | info.digest.lo) != 0);
}

struct compare {
    const struct goldens_array *want;
    uint32_t n_vocab, n_rows;
    float worst;
};

static void compare_row(void *ctx, uint32_t pos, const float *logits) {
    struct compare *compare = ctx;
    for (uint32_t i = 0; i < compare->n_vocab; i++) {
        float off = fabsf(logits[i] - goldens_f32(compare->want, pos, i));
        if (isnan(off) || off > compare->worst) compare->worst = off; /* a NaN sticks */
    }
    compare->n_rows++;
}

static uint32_t read_ids(const struct goldens *goldens, const char *prefix, uint32_t *out) {
    struct goldens_array ids;
    char name[64];
    (void)snprintf(name, sizeof name, "%s.input_ids", prefix);
    if (!goldens_find(goldens, name, "I32", &ids)) return 0;
    assert_true(ids.n_cols <= TOKENS_MAX);
    for (size_t i = 0; i < ids.n_cols; i++)
        out[i] = goldens_u32(&ids, i);
    return (uint32_t)ids.n_cols;
}

/* False: there is no such prompt. */
static bool check_logits(weft_eng *eng, const struct goldens *goldens, const char *prefix,
                         const struct weft_step_adapter *list, uint32_t n_list) {
    struct goldens_array want;
    struct weft_errmsg why;
    uint32_t tokens[TOKENS_MAX], n = read_ids(goldens, prefix, tokens);
    char name[64];
    if (n == 0) return false;
    (void)snprintf(name, sizeof name, "%s.logits", prefix);
    assert_true(goldens_find(goldens, name, "F32", &want));
    struct compare compare = {&want, weft_eng_info(eng)->n_vocab, 0, 0.0f};
    if (weft_eng_use_loras(eng, list, n_list, &why)) fail_msg("%s", why.text);
    if (weft_eng_logits(eng, tokens, n, compare_row, &compare, &why)) fail_msg("%s", why.text);
    assert_int_equal(compare.n_rows, want.n_rows);
    (void)printf("  %s, %u tokens: largest difference %.2e\n", prefix, n, (double)compare.worst);
    assert_true(compare.worst < LOGIT_TOLERANCE);
    return true;
}

static void check_greedy(weft_eng *eng, const struct goldens *goldens, const char *prefix,
                         bool is_zoo) {
    struct goldens_array greedy, margin;
    uint32_t tokens[TOKENS_MAX], out[TOKENS_MAX], n = read_ids(goldens, prefix, tokens);
    struct drive *drive = malloc(sizeof *drive);
    struct weft_sampling sampling;
    char name[64];
    assert_non_null(drive);
    (void)snprintf(name, sizeof name, is_zoo ? "%s.greedy_ids" : "%s.greedy", prefix);
    assert_true(goldens_find(goldens, name, "I32", &greedy));
    (void)snprintf(name, sizeof name, is_zoo ? "%s.greedy_margin" : "%s.margin", prefix);
    assert_true(goldens_find(goldens, name, "F32", &margin));
    drive_init(drive, eng);
    drive->epoch = 1;
    drive->n_adapters = 1;
    drive->adapters[0] = (struct weft_step_adapter){1, 1.0f, 0};
    weft_eng_reset(eng, drive->epoch);
    weft_sampling_init(&sampling);
    sampling.max_tokens = (uint32_t)greedy.n_cols;
    uint32_t n_out = drive_complete(drive, tokens, n, &sampling, out);
    assert_int_equal(n_out, greedy.n_cols);
    for (uint32_t i = 0; i < n_out; i++) {
        if (goldens_f32(&margin, 0, i) > MARGIN) assert_int_equal(out[i], goldens_u32(&greedy, i));
        if (out[i] != goldens_u32(&greedy, i)) break; /* from here on it is another text */
    }
    free(drive);
}

static int check_whole(weft_eng *eng, const char *folder) {
    static const char *const prefixes[] = {"prompt_0", "prompt_1", "prompt_2", "prompt_3",
                                           "prompt1",  "prompt7",  "prompt33"};
    const struct weft_step_adapter whole = {1, 1.0f, 0};
    struct goldens goldens;
    char path[FILE_BYTES];
    int n = 0;
    (void)snprintf(path, sizeof path, "%s/goldens.safetensors", folder);
    if (!goldens_open(&goldens, path)) return 0;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        if (!check_logits(eng, &goldens, prefixes[i], &whole, 1)) continue;
        check_greedy(eng, &goldens, prefixes[i], !strchr(prefixes[i], '_'));
        n++;
    }
    goldens_close(&goldens);
    return n;
}

/* `other` NULL: one adapter alone, at half its strength. */
static void check_mixed(weft_eng *eng, const char *folder, const char *prefix, const char *other) {
    const struct weft_step_adapter half[] = {{1, 0.5f, 0}}, both[] = {{1, 1.0f, 0}, {2, 0.7f, 0}};
    struct goldens goldens;
    char path[FILE_BYTES];
    if (other) add(eng, 2, other);
    (void)snprintf(path, sizeof path, "%s/goldens_mixed.safetensors", folder);
    assert_true(goldens_open(&goldens, path));
    assert_true(check_logits(eng, &goldens, prefix, other ? both : half, other ? 2 : 1));
    goldens_close(&goldens);
}

/* The goldens are the folder's, the adapter may be in another file. */
static void check_adapter(const char *model, const char *folder, const char *adapter) {
    weft_eng *eng = open_exact(model);
    struct weft_errmsg why;
    (void)printf("%s (%s)\n", adapter, weft_eng_info(eng)->isa);
    add(eng, 1, adapter);
    (void)check_whole(eng, folder);
    check_mixed(eng, folder, "half", NULL);
    assert_int_equal(weft_eng_use_loras(eng, NULL, 0, &why), WEFT_OK);
    weft_eng_free(eng);
}

static void check_ours(const char *model, const char *name) {
    char folder[PATH_BYTES];
    (void)snprintf(folder, sizeof folder, "%s/%s", drive_fixture("tests/data/lora"), name);
    check_adapter(model, folder, folder);
}

static void all_linear_layers_agree(void **state) {
    (void)state;
    check_ours("tests/data/zoo/qwen3", "qwen3-r6");
    check_ours("tests/data/zoo/mixtral", "mixtral-r8-attn");
}

static void half_of_an_adapter_agrees(void **state) {
    (void)state;
    check_ours(FABLE, "fable-r4-qv");
}

/* Rows of q and k lie in another order in a GGUF file of a Llama, be it the adapter or the model. */
static void gguf_files_agree(void **state) {
    (void)state;
    char folder[PATH_BYTES];
    (void)snprintf(folder, sizeof folder, "%s", drive_fixture("tests/data/lora/fable-r4-qv"));
    check_adapter(FABLE, folder, drive_fixture("tests/data/lora/gguf/fable-r4-qv.gguf"));
}

/* False, and a line says so: it is not there. */
static bool copy_shared(const char *path, char out[PATH_BYTES]) {
    const char *found = drive_shared(path);
    (void)snprintf(out, PATH_BYTES, "%s", found ? found : "");
    return found != NULL;
}

static void those_outside_the_repository_agree(void **state) {
    (void)state;
    static const char *const names[] = {"fable-r4-qv", "fable-r8-all", "fable-r17-ffn",
                                        "fable-verse"};
    static const char *const gguf[] = {"fable-r17-ffn", "fable-verse"};
    char folder[PATH_BYTES], file[PATH_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "lora/%s", names[i]);
        if (!copy_shared(path, folder)) {
            skip();
            return;
        }
        check_adapter(FABLE, folder, folder);
    }
    for (size_t i = 0; i < sizeof gguf / sizeof gguf[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "lora/%s", gguf[i]);
        assert_true(copy_shared(path, folder));
        (void)snprintf(path, sizeof path, "lora/gguf/%s.gguf", gguf[i]);
        assert_true(copy_shared(path, file));
        check_adapter(FABLE, folder, file);
    }
    assert_true(copy_shared("lora/fable-verse", folder));
    weft_eng *eng = open_exact(FABLE);
    add(eng, 1, folder);
    check_mixed(eng, folder, "both", drive_fixture("tests/data/lora/fable-r4-qv"));
    weft_eng_free(eng);
}

int main(void) {
    if (drive_isa_missing()) return 77;
    weft_log_init("golden", WEFT_LOG_ERROR, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_linear_layers_agree),
        cmocka_unit_test(half_of_an_adapter_agrees),
        cmocka_unit_test(gguf_files_agree),
        cmocka_unit_test(those_outside_the_repository_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
