/* Packed files: they compute the same bits as their source; everything else of the source is in
 * them; and damaged, forged or unfit ones are refused in a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/rand.h"
#include "harness/eng_drive.h"
#include "model/model.h"
#include "template/template.h"
#include "tokenizer/tokenizer.h"
#include "unit/engine_fixtures.h"

#define ZOO "tests/data/zoo/"
#define FORMATS "tests/data/formats/"

static char folder[64]; /* of the whole run; files in it are named by their test */

static const char *in_folder(const char *name) {
    static char paths[4][128];
    static unsigned next;
    char *out = paths[next++ % 4];
    (void)snprintf(out, sizeof paths[0], "%s/%s", folder, name);
    return out;
}

static weft_err pack(const char *source, enum weft_eng_dtype dtype, const char *out, bool replace,
                     struct weft_errmsg *why) {
    struct weft_eng_options options;
    struct weft_eng_packed packed;
    weft_eng_options_init(&options);
    options.dtype = dtype;
    options.n_threads = 2;
    return weft_eng_pack(source, &options, out, replace, &packed, why);
}

static void must_pack(const char *source, enum weft_eng_dtype dtype, const char *out) {
    struct weft_errmsg why = {""};
    if (pack(source, dtype, out, true, &why)) fail_msg("%s: %s", source, why.text);
}

static weft_err open_small(const char *path, enum weft_eng_dtype dtype, enum weft_eng_act act,
                           weft_eng **eng_out, struct weft_errmsg *why) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.dtype = dtype;
    options.activations = act;
    options.n_threads = 2;
    options.kv_memory_bytes = 4u << 20;
    return weft_eng_open(path, &options, eng_out, why);
}

/* ---------------------------------------------------------------------------- the same bits --- */

enum { N_TOKENS = 21 };

struct logits {
    uint32_t n_vocab;
    uint64_t sum;
    char fingerprint[32];
    uint64_t weight_bytes;
};

static void add_row(void *ctx, uint32_t pos, const float *row) {
    struct logits *logits = ctx;
    logits->sum = XXH3_64bits_withSeed(row, logits->n_vocab * sizeof *row, logits->sum + pos);
}

static void logits_of(const char *path, enum weft_eng_dtype dtype, enum weft_eng_act act,
                      struct logits *out) {
    weft_eng *eng = NULL;
    struct weft_errmsg why = {""};
    uint32_t tokens[N_TOKENS];
    if (open_small(path, dtype, act, &eng, &why)) fail_msg("%s: %s", path, why.text);
    const struct weft_eng_info *info = weft_eng_info(eng);
    memset(out, 0, sizeof *out);
    out->n_vocab = info->n_vocab;
    out->weight_bytes = info->weight_bytes;
    memcpy(out->fingerprint, info->fingerprint, sizeof out->fingerprint);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 5) % info->n_vocab;
    assert_int_equal(weft_eng_logits(eng, tokens, N_TOKENS, add_row, out, NULL), WEFT_OK);
    weft_eng_free(eng);
}

static void check_packed(const char *source, uint32_t n_dtypes) {
    static const enum weft_eng_dtype dtypes[] = {WEFT_ENG_DT_AUTO, WEFT_ENG_DT_Q8, WEFT_ENG_DT_Q4,
                                                 WEFT_ENG_DT_F32};
    static const enum weft_eng_act acts[] = {WEFT_ENG_ACT_AUTO, WEFT_ENG_ACT_F32};
    const char *out = in_folder("same.weft");
    for (size_t d = 0; d < n_dtypes; d++) {
        must_pack(source, dtypes[d], out);
        for (size_t a = 0; a < 2; a++) {
            struct logits want, got, named;
            logits_of(source, dtypes[d], acts[a], &want);
            logits_of(out, WEFT_ENG_DT_AUTO, acts[a], &got);
            logits_of(out, dtypes[d], acts[a], &named);
            assert_memory_equal(&got, &want, sizeof got);
            assert_memory_equal(&named, &want, sizeof named);
        }
    }
}

/* One type of each layout that others do not have. */
static void packed_models_of_few_bits_compute_the_same_bits(void **state) {
    (void)state;
    static const char *const types[] = {"IQ3_XXS", "IQ2_XS", "TQ1_0", "MXFP4", "NVFP4"};
    const char *shared = drive_shared("zoo2/gguf_types");
    if (!shared) skip();
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char path[1024];
        (void)snprintf(path, sizeof path, "%s/%s.gguf", shared, types[i]);
        check_packed(path, 1);
    }
}

/* Packed GGUF files, too, leave to their tensors to say what they have. */
static void packed_models_whose_layers_are_not_alike_compute_the_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {"gemma4", "gguf/gemma4.gguf", "gemma4_moe"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[1024];
        (void)snprintf(path, sizeof path, "zoo2/%s", names[i]);
        const char *found = drive_shared(path);
        if (!found) skip();
        (void)snprintf(path, sizeof path, "%s", found);
        check_packed(path, engine_short_run ? 2 : 4);
    }
}

static void packed_models_compute_the_same_bits(void **state) {
    (void)state;
    static const char *const sources[] = {
        ENGINE_TIED,
        ZOO "llama_mha_linear",
        ZOO "gguf/llama_gqa_llama3rope.gguf", /* with rope_freqs.weight, which no step reads */
        ZOO "gguf/phi3_longrope.gguf",        /* with two tables of that kind */
        ZOO "llama_quant/BF16.gguf",
        ZOO "llama_quant/Q4_0.gguf",
        ZOO "llama_quant/Q4_K.gguf",
        ZOO "llama_quant/Q6_K.gguf",
        ZOO "llama_quant/Q3_K.gguf",
        ZOO "llama_quant/Q5_1.gguf",
        ZOO "llama_quant/IQ4_NL.gguf",
        ZOO "llama_quant/IQ4_XS.gguf",
        FORMATS "fp8",
        FORMATS "gptq",
        FORMATS "gptq_order",
        FORMATS "gptq8_order",
        FORMATS "w4a16",
        FORMATS "w8a8",
        FORMATS "nf4",
        ENGINE_QUANTISED,
        ENGINE_DRAFT,
    };
    size_t n_sources = sizeof sources / sizeof sources[0] - (engine_short_run ? 2 : 0);
    for (size_t s = 0; s < n_sources; s++) {
        check_packed(drive_fixture(sources[s]), engine_short_run ? 2 : 4);
    }
}

static void a_packed_model_has_its_text_with_it(void **state) {
    (void)state;
    static const char *const sources[] = {"models/fable-6m", ENGINE_QUANTISED};
    static const char text[] = "Once upon a time, <|endoftext|> there were 3 brothers.";
    for (size_t i = 0; i < 2; i++) {
        const char *paths[2] = {drive_fixture(sources[i]), in_folder("text.weft")};
        weft_tokenizer *toks[2];
        char *templates[2];
        struct weft_gen_defaults defaults[2];
        uint32_t *ids[2];
        size_t n_ids[2], n_eos[2];
        struct weft_errmsg why = {""};
        must_pack(paths[0], WEFT_ENG_DT_AUTO, paths[1]);
        for (size_t k = 0; k < 2; k++) {
            if (weft_tok_open(paths[k], &toks[k], &why)) fail_msg("%s", why.text);
            if (weft_tmpl_find(paths[k], &templates[k], &why)) fail_msg("%s", why.text);
            if (weft_tok_gen_defaults(paths[k], &defaults[k], &why)) fail_msg("%s", why.text);
            assert_int_equal(weft_tok_encode(toks[k],
                                             &(struct weft_tok_input){{text, sizeof text - 1},
                                                                      WEFT_TOK_ADD_SPECIAL |
                                                                          WEFT_TOK_PARSE_SPECIAL,
                                                                      100},
                                             &ids[k], &n_ids[k], &why),
                             WEFT_OK);
            (void)weft_tok_eos(toks[k], &n_eos[k]);
        }
        assert_int_equal(n_ids[0], n_ids[1]);
        assert_memory_equal(ids[0], ids[1], n_ids[0] * sizeof *ids[0]);
        assert_int_equal(n_eos[0], n_eos[1]);
        assert_memory_equal(&defaults[0], &defaults[1], sizeof defaults[0]);
        assert_true(!templates[0] == !templates[1]);
        if (templates[0]) assert_string_equal(templates[0], templates[1]);
        for (size_t k = 0; k < 2; k++) {
            free(ids[k]);
            free(templates[k]);
            weft_tok_free(toks[k]);
        }
    }
}

static void write_whole(const char *path, const uint8_t *data, size_t n) {
    FILE *file = fopen(path, "wbe");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void link_file(const char *dir, const char *source, const char *name) {
    char from[256], *whole;
    (void)snprintf(from, sizeof from, "%s/%s", source, name);
    whole = realpath(from, NULL);
    assert_non_null(whole);
    (void)snprintf(from, sizeof from, "%s/%s", dir, strcmp(name, "1_Pooling") ? name : "2_Pool");
    assert_int_equal(symlink(whole, from), 0);
    free(whole);
}

/* modules.json names the folder of a pooling. */
static void a_pooling_is_packed_whatever_its_folder_is_called(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "1_Pooling"};
    static const char modules[] =
        "[{\"path\": \"2_Pool\", \"type\": \"sentence_transformers.models.Pooling\"}]";
    struct weft_model_pooling *pooling;
    struct weft_errmsg why = {""};
    char dir[128], path[160];
    (void)snprintf(dir, sizeof dir, "%s", in_folder("pooled"));
    assert_int_equal(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < 4; i++)
        link_file(dir, drive_fixture("tests/data/embed/bert-uncased-mean"), files[i]);
    (void)snprintf(path, sizeof path, "%s/modules.json", dir);
    write_whole(path, (const uint8_t *)modules, sizeof modules - 1);
    must_pack(dir, WEFT_ENG_DT_AUTO, in_folder("text.weft"));
    if (weft_model_pooling_read(in_folder("text.weft"), &pooling, &why)) fail_msg("%s", why.text);
    assert_int_equal(pooling->kind, WEFT_POOLING_MEAN);
    weft_model_pooling_free(pooling);
    assert_int_equal(unlink(path), 0);
    for (size_t i = 0; i < 4; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, i < 3 ? files[i] : "2_Pool");
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

/* -------------------------------------------------------------------------- what is refused --- */

static void expect_refusal(const char *path, weft_err want, const char *words) {
    weft_eng *eng = NULL;
    struct weft_errmsg why = {""};
    weft_err err = open_small(path, WEFT_ENG_DT_AUTO, WEFT_ENG_ACT_AUTO, &eng, &why);
    if (err != want || !strstr(why.text, words))
        fail_msg("wanted \"%s\", got %d: %s", words, err, why.text);
    assert_null(eng);
}

static void options_that_do_not_fit_are_refused(void **state) {
    (void)state;
    const char *out = in_folder("options.weft");
    weft_eng *eng = NULL;
    struct weft_errmsg why = {""};
    must_pack(drive_fixture(ENGINE_DRAFT), WEFT_ENG_DT_Q8, out);
    assert_int_equal(open_small(out, WEFT_ENG_DT_BF16, WEFT_ENG_ACT_AUTO, &eng, &why),
                     WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "packed as q8"));
    assert_int_equal(open_small(out, WEFT_ENG_DT_AUTO, WEFT_ENG_ACT_BF16, &eng, &why),
                     WEFT_E_INVAL);
    assert_int_equal(pack(out, WEFT_ENG_DT_AUTO, in_folder("again.weft"), false, &why),
                     WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "packed already"));
}

struct bytes {
    uint8_t *data;
    size_t n;
};

static struct bytes read_whole(const char *path) {
    struct stat st;
    struct bytes b = {0};
    FILE *file = fopen(path, "rbe");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &st), 0);
    b.n = (size_t)st.st_size;
    b.data = malloc(b.n);
    assert_non_null(b.data);
    assert_int_equal(fread(b.data, 1, b.n, file), b.n);
    (void)fclose(file);
    return b;
}

enum {
    AT_VERSION = 8,
    AT_FILE_BYTES = 16,
    AT_ARENA = 24,
    AT_LAYOUT = 32,
    AT_META_HASH = 88,
    AT_HASH = 96
};

/* As a forger would: makes the sums fit again. */
static void seal(struct bytes *b) {
    uint64_t arena;
    memcpy(&arena, b->data + AT_ARENA, 8);
    if (arena <= b->n) {
        uint64_t meta = XXH3_64bits(b->data + arena, b->n - arena);
        memcpy(b->data + AT_META_HASH, &meta, 8);
    }
    uint64_t hash = XXH3_64bits(b->data, AT_HASH);
    memcpy(b->data + AT_HASH, &hash, 8);
}

static void put(struct bytes *b, size_t at, uint64_t value, size_t n) {
    memcpy(b->data + at, &value, n);
}

static void damaged_files_are_refused(void **state) {
    (void)state;
    const char *good = in_folder("good.weft"), *bad = in_folder("bad.weft");
    must_pack(drive_fixture(ENGINE_TIED), WEFT_ENG_DT_AUTO, good);
    struct bytes b = read_whole(good);
    uint64_t arena;
    memcpy(&arena, b.data + AT_ARENA, 8);
    const size_t lengths[] = {0, 4, 8, 50, 4095, 4096, (size_t)arena, b.n / 2, b.n - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        weft_eng *eng = NULL;
        struct weft_errmsg why = {""};
        write_whole(bad, b.data, lengths[i]);
        assert_int_not_equal(open_small(bad, WEFT_ENG_DT_AUTO, WEFT_ENG_ACT_AUTO, &eng, &why), 0);
        assert_true(why.text[0] != 0);
    }
    uint64_t rng = weft_rand_test_seed();
    for (int i = 0; i < 100; i++) { /* one bit anywhere but in the arena */
        size_t at = weft_rand_below(&rng, (uint32_t)(104 + b.n - arena));
        if (at >= 104) at += arena - 104;
        b.data[at] ^= (uint8_t)(1u << i % 8);
        write_whole(bad, b.data, b.n);
        weft_eng *eng = NULL;
        struct weft_errmsg why = {""};
        assert_int_not_equal(open_small(bad, WEFT_ENG_DT_AUTO, WEFT_ENG_ACT_AUTO, &eng, &why), 0);
        assert_true(why.text[0] != 0);
        b.data[at] ^= (uint8_t)(1u << i % 8);
    }
    free(b.data);
}

static void forged_headers_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t at, n;
        uint64_t value;
        weft_err err;
        const char *words;
    } cases[] = {
        {AT_VERSION, 4, 2, WEFT_E_UNSUPPORTED, "pack the model anew"},
        {12, 4, 9, WEFT_E_PROTO, "says what none says"},
        {AT_FILE_BYTES, 8, 1u << 30, WEFT_E_PROTO, "bytes of 1073741824"},
        {AT_ARENA, 8, 4096, WEFT_E_PROTO, ""},
        {AT_ARENA, 8, 4097, WEFT_E_PROTO, "do not fit its size"},
        {AT_ARENA, 8, UINT64_MAX - 4095, WEFT_E_PROTO, "do not fit its size"},
        {AT_LAYOUT, 8, 1, WEFT_E_PROTO, "another layout"},
        {48, 4, 1000, WEFT_E_PROTO, "says what none says"},
        {48, 4, 60, WEFT_E_PROTO, "a section reaches past its end"},
        {48, 4, 1, WEFT_E_PROTO, "something follows"},
        {52, 4, 1, WEFT_E_PROTO, "says what none says"},
        {56, 1, 0, WEFT_E_PROTO, "says what none says"},
        {56, 1, 0x1b, WEFT_E_PROTO, "says what none says"},
    };
    const char *good = in_folder("good.weft"), *bad = in_folder("bad.weft");
    must_pack(drive_fixture(ENGINE_TIED), WEFT_ENG_DT_AUTO, good);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = read_whole(good);
        put(&b, cases[i].at, cases[i].value, cases[i].n);
        seal(&b);
        write_whole(bad, b.data, b.n);
        expect_refusal(bad, cases[i].err, cases[i].words);
        free(b.data);
    }
}

/* Where the list of tensors begins to speak of `name`. */
static size_t find_tensor(const struct bytes *b, const char *name) {
    size_t len = strlen(name);
    for (size_t at = b->n - len; at > 4096; at--) {
        uint32_t prefix;
        memcpy(&prefix, b->data + at - 4, 4);
        if (prefix == len && memcmp(b->data + at, name, len) == 0) return at + len;
    }
    fail_msg("no tensor %s", name);
    return 0;
}

static void forged_tensors_are_refused(void **state) {
    (void)state;
    static const char name[] = "model.layers.0.mlp.down_proj.weight";
    static const struct {
        size_t at, n;
        uint64_t value;
    } cases[] = {
        {0, 4, 7},           /* an unknown type */
        {4, 4, 99},          /* an unknown form */
        {4, 4, 12},          /* Q4_K: blocks of 256 columns, or another layout */
        {8, 4, 0},           /* dimensions */
        {8, 4, 5},           /**/
        {12, 8, 1ull << 62}, /* a size that overflows */
        {12, 8, 3},          /* another shape */
        {28, 8, 1ull << 40}, /* values after it that are not there */
    };
    const char *good = in_folder("good.weft"), *bad = in_folder("bad.weft");
    must_pack(drive_fixture(ENGINE_TIED), WEFT_ENG_DT_AUTO, good);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = read_whole(good);
        put(&b, find_tensor(&b, name) + cases[i].at, cases[i].value, cases[i].n);
        seal(&b);
        write_whole(bad, b.data, b.n);
        expect_refusal(bad, WEFT_E_PROTO, "bad.weft");
        free(b.data);
    }
}

/* Any bytes in the arena are numbers: the engine computes nonsense and stays alive. */
static void an_arena_of_noise_does_not_crash(void **state) {
    (void)state;
    static const char *const sources[] = {ENGINE_TIED, ENGINE_QUANTISED};
    const char *good = in_folder("good.weft"), *bad = in_folder("bad.weft");
    uint64_t rng = weft_rand_test_seed();
    for (size_t i = 0; i < 2; i++) {
        must_pack(drive_fixture(sources[i]), i ? WEFT_ENG_DT_AUTO : WEFT_ENG_DT_Q4, good);
        struct bytes b = read_whole(good);
        uint64_t arena;
        memcpy(&arena, b.data + AT_ARENA, 8);
        for (size_t at = 4096; at < arena; at++)
            b.data[at] = (uint8_t)weft_rand_below(&rng, 256);
        write_whole(bad, b.data, b.n);
        struct logits got;
        logits_of(bad, WEFT_ENG_DT_AUTO, WEFT_ENG_ACT_AUTO, &got);
        logits_of(bad, WEFT_ENG_DT_AUTO, WEFT_ENG_ACT_F32, &got);
        free(b.data);
    }
}

/* -------------------------------------------------------------------------- what is written --- */

static void a_file_that_is_there_stays_unless_it_is_to_be_replaced(void **state) {
    (void)state;
    const char *out = in_folder("there.weft"), *link = in_folder("link.gguf");
    const char *model = drive_fixture(ENGINE_QUANTISED);
    struct weft_errmsg why = {""};
    write_whole(out, (const uint8_t *)"mine", 4);
    assert_int_equal(pack(model, WEFT_ENG_DT_AUTO, out, false, &why), WEFT_E_EXISTS);
    assert_non_null(strstr(why.text, "--force"));
    struct bytes b = read_whole(out);
    assert_int_equal(b.n, 4);
    free(b.data);
    assert_int_equal(pack(model, WEFT_ENG_DT_AUTO, out, true, &why), WEFT_OK);
    (void)unlink(link);
    assert_int_equal(symlink(model, link), 0);
    assert_int_equal(pack(model, WEFT_ENG_DT_AUTO, link, true, &why), WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "part of the model"));
    assert_int_equal(pack(model, WEFT_ENG_DT_AUTO, folder, true, &why), WEFT_E_INVAL);
    assert_int_equal(pack(model, WEFT_ENG_DT_AUTO, in_folder("none/x.weft"), true, &why),
                     WEFT_E_NOTFOUND);
    char shard[160];
    (void)snprintf(shard, sizeof shard, "%s/model.safetensors", drive_fixture(ENGINE_DRAFT));
    assert_int_equal(pack(drive_fixture(ENGINE_DRAFT), WEFT_ENG_DT_AUTO, shard, true, &why),
                     WEFT_E_INVAL);
    (void)unlink(link);
}

static void a_full_disk_is_one_sentence_and_leaves_nothing(void **state) {
    (void)state;
    const char *out = in_folder("full.weft");
    struct weft_errmsg why = {""};
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 1u << 20;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    weft_err err = pack(drive_fixture(ENGINE_DRAFT), WEFT_ENG_DT_AUTO, out, false, &why);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(err, WEFT_E_IO);
    assert_non_null(strstr(why.text, "full.weft: File too large"));
    assert_int_not_equal(access(out, F_OK), 0);
}

/* Packed files are read by later versions of weft: the contents of an arena may only change
 * together with LAYOUT_VERSION (weights/plan.c), which this test cannot see. If it fails, raise
 * that and update the sums. */
static void the_layout_is_the_one_its_version_stands_for(void **state) {
    (void)state;
    static const struct {
        const char *source;
        enum weft_eng_dtype dtype;
        uint64_t sum;
    } cases[] = {
        {ENGINE_DRAFT, WEFT_ENG_DT_AUTO, 0x21cd835ab21f39e7},
        {ENGINE_DRAFT, WEFT_ENG_DT_F16, 0x8f63958bc1219913},
        {ENGINE_DRAFT, WEFT_ENG_DT_Q8, 0x9ecda444280bbad8},
        {ENGINE_DRAFT, WEFT_ENG_DT_Q4, 0x1f78427c6913983e},
        {ENGINE_QUANTISED, WEFT_ENG_DT_AUTO, 0x637c675beb1dbb04},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *out = in_folder("layout.weft");
        must_pack(drive_fixture(cases[i].source), cases[i].dtype, out);
        struct bytes b = read_whole(out);
        uint64_t arena;
        memcpy(&arena, b.data + AT_ARENA, 8);
        uint64_t sum = XXH3_64bits(b.data + 4096, arena - 4096);
        (void)printf("%s %d: 0x%016llx\n", cases[i].source, (int)cases[i].dtype,
                     (unsigned long long)sum);
        assert_int_equal(sum, cases[i].sum);
        free(b.data);
    }
}

static int clean_up(void) {
    static const char *const names[] = {"same.weft", "text.weft",  "options.weft", "good.weft",
                                        "bad.weft",  "there.weft", "layout.weft"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unlink(in_folder(names[i]));
    return rmdir(folder); /* fails where a test left something behind */
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_packed", argc, argv)) return 77;
    (void)snprintf(folder, sizeof folder, "/tmp/weft-packed-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_models_compute_the_same_bits),
        cmocka_unit_test(packed_models_of_few_bits_compute_the_same_bits),
        cmocka_unit_test(packed_models_whose_layers_are_not_alike_compute_the_same_bits),
        cmocka_unit_test(a_packed_model_has_its_text_with_it),
        cmocka_unit_test(a_pooling_is_packed_whatever_its_folder_is_called),
        cmocka_unit_test(options_that_do_not_fit_are_refused),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(forged_headers_are_refused),
        cmocka_unit_test(forged_tensors_are_refused),
        cmocka_unit_test(an_arena_of_noise_does_not_crash),
        cmocka_unit_test(a_file_that_is_there_stays_unless_it_is_to_be_replaced),
        cmocka_unit_test(a_full_disk_is_one_sentence_and_leaves_nothing),
        cmocka_unit_test(the_layout_is_the_one_its_version_stands_for),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed || clean_up() ? 1 : 0;
}
