/* Logits of the exact mode (f32 activations) against a float64 reference on the same weights: every
 * logit within 1e-3, greedy tokens equal wherever the reference's margin is over 0.01. With the
 * argument 2, 4 or 8 so many ranks divide each model.
 *
 * How the goldens were made: models by a PyTorch reference in float64 from the BF16 weights, zoo by
 * a NumPy one, small by the families' one; quantised files from their dequantised values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glob.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "golden/goldens.h"
#include "harness/eng_drive.h"
#include "harness/eng_group.h"

#define LOGIT_TOLERANCE 1e-3f
#define MARGIN 0.01f

enum { TOKENS_MAX = 1024 };

static uint32_t n_ranks = 1;

/* The goldens of a model may hold the last rows of long prompts only. */
struct compare {
    const struct goldens_array *want;
    uint32_t n_tokens, n_vocab, n_rows; /* rows compared so far */
    float worst;
};

static void compare_row(void *ctx, uint32_t pos, const float *logits) {
    struct compare *compare = ctx;
    size_t first = compare->n_tokens - compare->want->n_rows;
    if (pos < first) return;
    for (uint32_t i = 0; i < compare->n_vocab; i++) {
        float off = fabsf(logits[i] - goldens_f32(compare->want, pos - first, i));
        if (isnan(off) || off > compare->worst) compare->worst = off; /* a NaN sticks */
    }
    compare->n_rows++;
}

static void ignore_row(void *ctx, uint32_t pos, const float *logits) {
    (void)ctx;
    (void)pos;
    (void)logits;
}

static uint32_t read_ids(const struct goldens_array *array, uint32_t out[TOKENS_MAX]) {
    assert_true(array->n_cols <= TOKENS_MAX);
    for (size_t i = 0; i < array->n_cols; i++) {
        out[i] = goldens_u32(array, i);
    }
    return (uint32_t)array->n_cols;
}

static void check_logits(const struct eng_group *group, const char *what,
                         const struct goldens_array *ids, const struct goldens_array *want) {
    uint32_t tokens[TOKENS_MAX], n = read_ids(ids, tokens);
    struct compare compare = {want, n, weft_eng_info(group->engs[0])->n_vocab, 0, 0.0f};
    assert_int_equal(want->n_cols, compare.n_vocab);
    group_logits(group, tokens, n, compare_row, &compare);
    assert_int_equal(compare.n_rows, want->n_rows);
    (void)printf("  %s, %u tokens: largest difference %.2e\n", what, n, (double)compare.worst);
    assert_true(compare.worst < LOGIT_TOLERANCE);
}

/* All ranks' step, for drive_run. */
static weft_err step_all(void *ctx, const struct weft_step_plan *plan,
                         const struct weft_step_result **result_out, struct weft_errmsg *why) {
    struct group_step steps[WEFT_COLL_RANKS_MAX];
    const struct eng_group *group = ctx;
    group_step(group, plan, steps);
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        if (!steps[i].err) continue;
        *why = steps[i].why;
        return steps[i].err;
    }
    *result_out = steps[0].result;
    return WEFT_OK;
}

static void check_greedy(struct eng_group *group, const struct goldens_array *ids,
                         const struct goldens_array *greedy, const struct goldens_array *margin) {
    uint32_t tokens[TOKENS_MAX], out[TOKENS_MAX], n = read_ids(ids, tokens);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, group->engs[0]);
    drive->step_fn = step_all;
    drive->step_ctx = group;
    drive->epoch = 1; /* each prompt begins one */
    for (uint32_t i = 0; i < group->n_ranks; i++)
        weft_eng_reset(group->engs[i], drive->epoch);
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    sampling.max_tokens = (uint32_t)greedy->n_cols;
    uint32_t n_out = drive_complete(drive, tokens, n, &sampling, out);
    assert_int_equal(n_out, greedy->n_cols);
    for (uint32_t i = 0; i < n_out; i++) {
        if (goldens_f32(margin, 0, i) > MARGIN) assert_int_equal(out[i], goldens_u32(greedy, i));
        if (out[i] != goldens_u32(greedy, i)) break; /* from here on it is another text */
    }
    free(drive);
}

/* The choices of a prompt's rows, layer by layer. */
struct routes {
    const struct goldens *goldens;
    const char *prefix;
    uint32_t n_used, n_checked, n_rows[64]; /* by layer: rows seen so far */
};

static bool is_among(uint32_t expert, const struct goldens_array *of, size_t row) {
    for (size_t i = 0; i < of->n_cols; i++) {
        if (goldens_u32(of, row * of->n_cols + i) == expert) return true;
    }
    return false;
}

/* As a set, since the reference has the best one first; if the last one chosen won narrowly,
 * it may differ. */
static void compare_routes(void *ctx, uint32_t layer, uint32_t n_rows, const uint32_t *experts,
                           const float *weights) {
    struct routes *routes = ctx;
    struct goldens_array want, margin;
    char name[64];
    (void)weights;
    /* The zoo's names, and those of models. */
    bool is_model = strchr(routes->prefix, '_');
    (void)snprintf(name, sizeof name, is_model ? "%s.layer_%u.topk_experts" : "%s.experts.%u",
                   routes->prefix, layer);
    if (!goldens_find(routes->goldens, name, "I32", &want)) return;
    (void)snprintf(name, sizeof name,
                   is_model ? "%s.layer_%u.router_margin" : "%s.router_margin.%u", routes->prefix,
                   layer);
    assert_true(goldens_find(routes->goldens, name, "F32", &margin));
    assert_int_equal(want.n_cols, routes->n_used);
    uint32_t first = routes->n_rows[layer];
    for (uint32_t i = 0; i < n_rows * routes->n_used; i++) {
        uint32_t row = first + i / routes->n_used;
        if (goldens_f32(&margin, 0, row) < 1e-5f) continue;
        assert_true(is_among(experts[i], &want, row));
        routes->n_checked++;
    }
    routes->n_rows[layer] += n_rows;
}

/* The experts that the rows of a prompt chose, if the file has them. In the last layer only rows
 * with logits get on; here all have some. */
static uint32_t check_routes(const struct eng_group *group, const struct goldens *goldens,
                             const char *prefix) {
    struct goldens_array ids;
    struct routes routes = {goldens, prefix, weft_eng_info(group->engs[0])->n_experts_used, 0, {0}};
    uint32_t tokens[TOKENS_MAX];
    char name[64];
    (void)snprintf(name, sizeof name, "%s.input_ids", prefix);
    assert_true(goldens_find(goldens, name, "I32", &ids));
    uint32_t n = read_ids(&ids, tokens);
    weft_eng_watch_routes(group->engs[0], compare_routes, &routes);
    group_logits(group, tokens, n, ignore_row, NULL);
    weft_eng_watch_routes(group->engs[0], NULL, NULL);
    return routes.n_checked;
}

/* One prompt, if the file has it: names are prefix + one of these. */
static bool check_prompt(struct eng_group *group, const struct goldens *goldens, const char *prefix,
                         const char *greedy_name, const char *margin_name) {
    struct goldens_array ids, logits, greedy, margin;
    char name[64];
    (void)snprintf(name, sizeof name, "%s.input_ids", prefix);
    if (!goldens_find(goldens, name, "I32", &ids)) return false;
    (void)snprintf(name, sizeof name, "%s.logits", prefix);
    assert_true(goldens_find(goldens, name, "F32", &logits));
    (void)snprintf(name, sizeof name, "%s.%s", prefix, greedy_name);
    assert_true(goldens_find(goldens, name, "I32", &greedy));
    (void)snprintf(name, sizeof name, "%s.%s", prefix, margin_name);
    assert_true(goldens_find(goldens, name, "F32", &margin));
    check_logits(group, prefix, &ids, &logits);
    check_greedy(group, &ids, &greedy, &margin);
    return true;
}

static void open_exact(const char *path, struct eng_group *group) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.activations = WEFT_ENG_ACT_F32;
    options.kv_memory_bytes = 64u << 20;
    options.max_batched_tokens = 100; /* long prompts come in chunks */
    group_open(group, path, options, n_ranks);
}

static void check_in(const char *model, const char *folder) {
    struct goldens goldens;
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/goldens.safetensors", folder);
    assert_true(goldens_open(&goldens, path));
    struct eng_group group;
    open_exact(model, &group);
    (void)printf("%s (%s)\n", model, weft_eng_info(group.engs[0])->isa);
    struct goldens_array ids;
    int n = 0;
    for (int i = 0; i < 8; i++) { /* models number their prompts, the zoo names them by length */
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "prompt_%d", i);
        n += check_prompt(&group, &goldens, prefix, "greedy", "margin");
    }
    static const int lengths[] = {1, 7, 33, 150};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "prompt%d", lengths[i]);
        n += check_prompt(&group, &goldens, prefix, "greedy_ids", "greedy_margin");
    }
    if (weft_eng_info(group.engs[0])->n_experts > 0) {
        bool is_zoo = goldens_find(&goldens, "prompt33.input_ids", "I32", &ids);
        uint32_t n_routes = check_routes(&group, &goldens, is_zoo ? "prompt33" : "prompt_4");
        (void)printf("  %u choices of an expert agree\n", n_routes);
        assert_true(n_routes > 0);
    }
    assert_true(n >= 4);
    group_close(&group);
    goldens_close(&goldens);
}

static void check_model(const char *model, const char *folder) {
    check_in(drive_fixture(model), drive_fixture(folder));
}

static void fable_moe_12m_agrees_with_float64(void **state) {
    (void)state;
    const char *folder = drive_shared("models/fable-moe-12m");
    if (!folder) skip();
    check_in(folder, folder);
}

static void fable_6m_agrees_with_float64(void **state) {
    (void)state;
    check_model("models/fable-6m", "models/fable-6m");
}

static void fable_draft_1m_agrees_with_float64(void **state) {
    (void)state;
    check_model("tests/data/fable-draft-1m", "tests/data/fable-draft-1m");
}

static void grouped_queries_with_llama3_rope_agree(void **state) {
    (void)state;
    check_model("tests/data/zoo/llama_gqa_llama3rope", "tests/data/zoo/llama_gqa_llama3rope");
}

static void the_same_model_as_gguf_agrees(void **state) {
    (void)state;
    check_model("tests/data/zoo/gguf/llama_gqa_llama3rope.gguf",
                "tests/data/zoo/llama_gqa_llama3rope");
}

static void full_heads_with_linear_rope_agree(void **state) {
    (void)state;
    check_model("tests/data/zoo/llama_mha_linear", "tests/data/zoo/llama_mha_linear");
}

static void yarn_and_longrope_agree(void **state) {
    (void)state;
    check_model("tests/data/zoo/llama_yarn", "tests/data/zoo/llama_yarn");
    check_model("tests/data/zoo/phi3_longrope", "tests/data/zoo/phi3_longrope");
}

static void heads_that_turn_in_part_agree(void **state) {
    (void)state;
    check_model("tests/data/zoo/phi4_mini", "tests/data/zoo/phi4_mini");
}

static void a_sliding_window_agrees(void **state) {
    (void)state;
    check_model("tests/data/zoo/mistral_swa16", "tests/data/zoo/mistral_swa16");
}

static void other_dense_architectures_agree(void **state) {
    (void)state;
    static const char *const names[] = {"qwen2",  "qwen3",  "smollm3", "granite",
                                        "gemma2", "gemma3", "phi3",    "olmo2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/data/zoo/%s", names[i]);
        check_model(path, path);
    }
}

/* What no model of the zoo has: experts in a space of their own, chosen from groups, and norms of single heads. */
static void small_models_agree(void **state) {
    (void)state;
    check_model("tests/data/small/latent_experts", "tests/data/small/latent_experts");
    check_model("tests/data/small/head_norms", "tests/data/small/head_norms");
}

static void mixtures_of_experts_agree(void **state) {
    (void)state;
    static const char *const names[] = {"mixtral", "olmoe", "qwen2_moe", "qwen3_moe"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/data/zoo/%s", names[i]);
        check_model(path, path);
    }
}

static void latent_attention_agrees(void **state) {
    (void)state;
    check_model("tests/data/zoo/deepseek_v2", "tests/data/zoo/deepseek_v2");
    check_model("tests/data/zoo/deepseek_v3", "tests/data/zoo/deepseek_v3");
    check_model("tests/data/zoo/deepseek_v3_fp8", "tests/data/zoo/deepseek_v3_fp8");
    check_model("tests/data/zoo/gguf/deepseek_v2.gguf", "tests/data/zoo/deepseek_v2");
    check_model("tests/data/zoo/gguf/deepseek_v3.gguf", "tests/data/zoo/deepseek_v3");
}

static void their_gguf_files_agree(void **state) {
    (void)state;
    check_model("tests/data/zoo/gguf/gemma3.gguf", "tests/data/zoo/gemma3");
    check_model("tests/data/zoo/gguf/phi3_longrope.gguf", "tests/data/zoo/phi3_longrope");
    check_model("tests/data/zoo/gguf/olmo2.gguf", "tests/data/zoo/olmo2");
    check_model("tests/data/zoo/gguf/qwen3_moe.gguf", "tests/data/zoo/qwen3_moe");
}

/* Weight formats of Hugging Face folders: tests/golden/make_format_goldens.py. */
static void quantised_folders_agree(void **state) {
    (void)state;
    static const char *const names[] = {"fp8", "gptq",     "gptq_order",  "gptq_v2", "awq",
                                        "nf4", "nf4_wide", "gptq8_order", "w4a16",   "w8a8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/data/formats/%s", names[i]);
        check_model(path, path);
    }
}

/* A prompt of 7, of a file that does not say what comes later: Llama 4's chunk and temperature, which llama.cpp has as
 * constants (the zoo's are smaller), and StarCoder2's window. */
static void check_beginning(const char *model, const char *folder) {
    struct goldens goldens;
    struct goldens_array ids, logits;
    struct eng_group group;
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/goldens.safetensors", folder);
    assert_true(goldens_open(&goldens, path));
    open_exact(model, &group);
    (void)printf("%s (%s), its beginning\n", model, weft_eng_info(group.engs[0])->isa);
    assert_true(goldens_find(&goldens, "prompt7.input_ids", "I32", &ids));
    assert_true(goldens_find(&goldens, "prompt7.logits", "F32", &logits));
    check_logits(&group, "prompt7", &ids, &logits);
    group_close(&group);
    goldens_close(&goldens);
}

static void the_beginning_agrees_as_gguf(void **state) {
    (void)state;
    char folder[1024];
    const char *found = drive_shared("zoo2/llama4");
    if (!found) skip();
    (void)snprintf(folder, sizeof folder, "%s", found);
    check_beginning(drive_shared("zoo2/gguf/llama4.gguf"), folder);
}

/* A family of ../shared/zoo2: its folder, or "gguf/NAME.gguf" beside that folder's goldens. */
static void a_family_agrees(void **state) {
    const char *name = *state, *base = strncmp(name, "gguf/", 5) == 0 ? name + 5 : name;
    char path[128], folder[1024];
    (void)snprintf(path, sizeof path, "zoo2/%.*s", (int)strcspn(base, "."), base);
    const char *found = drive_shared(path);
    if (!found) skip();
    (void)snprintf(folder, sizeof folder, "%s", found);
    (void)snprintf(path, sizeof path, "zoo2/%s", name);
    found = drive_shared(path);
    assert_non_null(found);
    check_in(found, folder);
}
/* Every NAME.gguf of WEFT_GGUF_DIR, made by llama.cpp's converter from the folder NAME of ../shared/zoo2. */
static void files_made_elsewhere_agree(void **state) {
    (void)state;
    const char *dir = getenv("WEFT_GGUF_DIR"), *found = drive_shared("zoo2");
    char path[1024], folder[1024];
    glob_t files = {0};
    if (!dir) (void)printf("SKIPPED: WEFT_GGUF_DIR names no folder of converted files\n");
    if (!dir || !found) skip();
    (void)snprintf(path, sizeof path, "%s/*.gguf", dir);
    assert_int_equal(glob(path, 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        const char *name = strrchr(files.gl_pathv[i], '/') + 1;
        const int len = (int)(strlen(name) - strlen(".gguf"));
        (void)snprintf(folder, sizeof folder, "%s/%.*s", found, len, name);
        if (strcmp(name, "llama4.gguf") == 0 || strcmp(name, "starcoder2.gguf") == 0)
            check_beginning(files.gl_pathv[i], folder);
        else
            check_in(files.gl_pathv[i], folder);
    }
    globfree(&files);
}
#define FAMILY(name)                                                                               \
    { name, a_family_agrees, NULL, NULL, (void *)(uintptr_t)name }

/* Those that are only in WEFT_SHARED_DIR. */
static void shared_quantised_folders_agree(void **state) {
    (void)state;
    static const char *const names[] = {"llama_w8a8", "llama_w4a16", "llama_fp8_static",
                                        "llama_fp8_channel", "llama_gptq8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "zoo2/%s", names[i]);
        const char *folder = drive_shared(path);
        if (!folder) skip();
        check_in(folder, folder);
    }
}

static void check_types(const char *folder, const char *const *types, size_t n) {
    struct goldens goldens;
    char name[1024];
    (void)snprintf(name, sizeof name, "%s/goldens.safetensors", folder);
    assert_true(goldens_open(&goldens, name));
    struct goldens_array ids, logits;
    assert_true(goldens_find(&goldens, "input_ids", "I32", &ids));
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "%s/%s.gguf", folder, types[i]);
        struct eng_group group;
        open_exact(name, &group);
        (void)printf("%s\n", name);
        (void)snprintf(name, sizeof name, "%s.logits", types[i]);
        assert_true(goldens_find(&goldens, name, "F32", &logits));
        check_logits(&group, types[i], &ids, &logits);
        group_close(&group);
    }
    goldens_close(&goldens);
}

static void quantised_files_agree(void **state) {
    (void)state;
    static const char *const types[] = {"F16",  "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0",   "Q5_1",
                                        "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"};
    check_types(drive_fixture("tests/data/zoo/llama_quant"), types, sizeof types / sizeof types[0]);
}

static const char *const shared_types[] = {"IQ4_XS", "IQ3_S",   "IQ3_XXS", "IQ2_S",
                                           "IQ2_XS", "IQ2_XXS", "IQ1_M",   "IQ1_S",
                                           "TQ2_0",  "TQ1_0",   "MXFP4",   "NVFP4"};

static void quantised_files_of_few_bits_agree(void **state) {
    (void)state;
    const char *folder = drive_shared("zoo2/gguf_types");
    if (!folder) skip();
    check_types(folder, shared_types, sizeof shared_types / sizeof shared_types[0]);
}

/* Distances from the reference: ours, and llama.cpp's. */
struct distances {
    const struct goldens_array *want, *theirs;
    double ours_max, ours_sum, theirs_max, theirs_sum;
};

static void add_distances(void *ctx, uint32_t pos, const float *logits) {
    struct distances *d = ctx;
    for (uint32_t i = 0; i < d->want->n_cols; i++) {
        double want = (double)goldens_f32(d->want, pos, i);
        double ours = fabs((double)logits[i] - want);
        double theirs = fabs((double)goldens_f32(d->theirs, pos, i) - want);
        d->ours_sum += ours;
        d->theirs_sum += theirs;
        if (ours > d->ours_max) d->ours_max = ours;
        if (theirs > d->theirs_max) d->theirs_max = theirs;
    }
}

static void measure_distances(const struct goldens *goldens, const char *folder, const char *type,
                              struct distances *d) {
    char name[1024];
    struct goldens_array ids, want, theirs;
    struct weft_eng_options options;
    struct eng_group group;
    weft_eng_options_init(&options);
    options.activations = WEFT_ENG_ACT_INT8;
    options.kv_dtype = WEFT_ENG_KV_F32; /* as theirs was */
    options.kv_memory_bytes = 64u << 20;
    (void)snprintf(name, sizeof name, "%s/%s.gguf", folder, type);
    group_open(&group, name, options, n_ranks);
    assert_true(goldens_find(goldens, "input_ids", "I32", &ids));
    (void)snprintf(name, sizeof name, "%s.logits", type);
    assert_true(goldens_find(goldens, name, "F32", &want));
    (void)snprintf(name, sizeof name, "%s.logits_llama_cpp", type);
    assert_true(goldens_find(goldens, name, "F16", &theirs));
    uint32_t tokens[TOKENS_MAX], n = read_ids(&ids, tokens);
    *d = (struct distances){&want, &theirs, 0, 0, 0, 0};
    group_logits(&group, tokens, n, add_distances, d);
    double cells = (double)want.n_rows * (double)want.n_cols;
    (void)printf("  %s: mean %.4f (llama.cpp %.4f), largest %.3f (%.3f)\n", type,
                 d->ours_sum / cells, d->theirs_sum / cells, d->ours_max, d->theirs_max);
    group_close(&group);
}

/* With the K types llama.cpp's activations have one scale in 256 columns, ours one in 32. With the
 * others its 8 bits are ours but for the scale, which it rounds to f16: there a single prompt's
 * roundings decide who is nearer, by 1 % or 2, and only all types together tell. */
static void eight_bit_activations_are_as_close_as_llama_cpps(void **state) {
    (void)state;
    static const char *const types[] = {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL",
                                        "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"};
    enum { N_SMALL = 6 }; /* by blocks of 32 */
    struct goldens goldens;
    double ours_small = 0, theirs_small = 0;
    assert_true(
        goldens_open(&goldens, drive_fixture("tests/data/zoo/llama_quant/goldens.safetensors")));
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct distances d;
        measure_distances(&goldens, drive_fixture("tests/data/zoo/llama_quant"), types[i], &d);
        bool is_small = i < N_SMALL;
        assert_true(d.ours_sum <= d.theirs_sum * (is_small ? 1.0 : 0.8));
        if (!is_small) continue;
        ours_small += d.ours_sum;
        theirs_small += d.theirs_sum;
    }
    assert_true(ours_small <= theirs_small);
    goldens_close(&goldens);
}

/* MXFP4 and NVFP4 have blocks of 32 there, too; the others of 256. */
static void eight_bits_are_as_close_with_few_bits(void **state) {
    (void)state;
    const char *folder = drive_shared("zoo2/gguf_types");
    if (!folder) skip();
    struct goldens goldens;
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/goldens.safetensors", folder);
    assert_true(goldens_open(&goldens, path));
    for (size_t i = 0; i < sizeof shared_types / sizeof shared_types[0]; i++) {
        struct distances d;
        measure_distances(&goldens, folder, shared_types[i], &d);
        const bool is_fp4 = strstr(shared_types[i], "FP4");
        assert_true(d.ours_sum <= d.theirs_sum * (is_fp4 ? 1.0 : 0.8));
    }
    goldens_close(&goldens);
}

int main(int argc, char **argv) {
    if (drive_isa_missing()) return 77;
    if (argc > 1) n_ranks = (uint32_t)strtoul(argv[1], NULL, 10);
    weft_log_init("golden_logits", WEFT_LOG_WARN, false);
    cmocka_set_test_filter(getenv("WEFT_TEST_FILTER")); /* NULL: all of them */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grouped_queries_with_llama3_rope_agree),
        cmocka_unit_test(the_same_model_as_gguf_agrees),
        cmocka_unit_test(full_heads_with_linear_rope_agree),
        cmocka_unit_test(yarn_and_longrope_agree),
        cmocka_unit_test(heads_that_turn_in_part_agree),
        cmocka_unit_test(a_sliding_window_agrees),
        cmocka_unit_test(other_dense_architectures_agree),
        cmocka_unit_test(mixtures_of_experts_agree),
        cmocka_unit_test(small_models_agree),
        cmocka_unit_test(latent_attention_agrees),
        cmocka_unit_test(their_gguf_files_agree),
        FAMILY("seed_oss"),
        FAMILY("stablelm"),
        FAMILY("starcoder2"),
        FAMILY("gpt_neox"),
        FAMILY("cohere2"),
        FAMILY("glm4"),
        FAMILY("exaone4"),
        FAMILY("ministral3"),
        FAMILY("hunyuan_v1_dense"),
        FAMILY("glm4_moe"),
        FAMILY("deepseek_v32"),
        FAMILY("dots1"),
        FAMILY("ernie4_5_moe"),
        FAMILY("minimax_m2"),
        FAMILY("hunyuan_v1_moe"),
        FAMILY("afmoe"),
        FAMILY("gpt_oss_bf16"),
        FAMILY("gpt_oss"),
        FAMILY("llama4"),
        FAMILY("lfm2"),
        FAMILY("lfm2_moe"),
        FAMILY("granitemoehybrid"),
        FAMILY("falcon_h1"),
        FAMILY("nemotron_h"),
        FAMILY("nemotron_h_moe"),
        FAMILY("qwen3_next"),
        FAMILY("qwen3_5"),
        FAMILY("qwen3_5_moe"),
        FAMILY("gemma4"),
        FAMILY("gemma4_moe"),
        FAMILY("gguf/gemma4.gguf"),
        FAMILY("gguf/nemotron_h_moe.gguf"),
        FAMILY("gguf/qwen3_next.gguf"),
        FAMILY("gguf/qwen3_5.gguf"),
        FAMILY("gguf/gpt_oss.gguf"),
        cmocka_unit_test(the_beginning_agrees_as_gguf),
        cmocka_unit_test(files_made_elsewhere_agree),
        cmocka_unit_test(quantised_folders_agree),
        cmocka_unit_test(shared_quantised_folders_agree),
        cmocka_unit_test(quantised_files_agree),
        cmocka_unit_test(quantised_files_of_few_bits_agree),
        cmocka_unit_test(eight_bit_activations_are_as_close_as_llama_cpps),
        cmocka_unit_test(eight_bits_are_as_close_with_few_bits),
        cmocka_unit_test(fable_draft_1m_agrees_with_float64),
        cmocka_unit_test(fable_6m_agrees_with_float64),
        cmocka_unit_test(fable_moe_12m_agrees_with_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
