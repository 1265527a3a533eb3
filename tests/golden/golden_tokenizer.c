/* Every line of the recorded tokenizer vectors, id by id.
 *
 * tests/data/models_tokenizer_goldens.json and tests/data/zoo/tokenizer_goldens.json hold the ids
 * of some texts under our own models' tokenizers, made by independent implementations
 * (../shared/reference/make_tokenizer_goldens.py and ../shared/reference/zoo/tokenizer_goldens.py).
 * tests/data/spm holds small SentencePiece models and SentencePiece's own ids of some texts
 * (make_spm_goldens.py). ../shared/vocab holds llama.cpp's vectors for published vocabularies; they
 * are not part of the repository, and where they are absent that part is skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "tokenizer/tokenizer.h"

static const char *source_path(const char *name) {
    static char path[4096];
    const char *root = getenv("WEFT_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/%s", root ? root : ".", name);
    return path;
}

static const char *shared_path(const char *name) {
    static char path[4096];
    const char *root = getenv("WEFT_SHARED_DIR");
    (void)snprintf(path, sizeof path, "%s/%s", root ? root : "../shared", name);
    return path;
}

static weft_tokenizer *open_tokenizer(const char *path) {
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    weft_err err = weft_tok_open(path, &tok, &why);
    if (err) fail_msg("%s", why.text);
    return tok;
}

/* Prints the first difference and returns how many cases differ (0 or 1). */
static int compare(const weft_tokenizer *tok, const char *text, size_t len, uint32_t flags,
                   const json_t *want) {
    struct weft_errmsg why = {""};
    uint32_t *ids;
    size_t n;
    weft_err err = weft_tok_encode(tok, &(struct weft_tok_input){{text, len}, flags, 1u << 20},
                                   &ids, &n, &why);
    if (err) fail_msg("%s", why.text);
    int differs = n != json_array_size(want);
    for (size_t i = 0; i < n && !differs; i++)
        differs = ids[i] != (uint64_t)json_integer_value(json_array_get(want, i));
    if (differs) {
        (void)printf("differs: \"%.*s\"\n  got ", (int)(len < 200 ? len : 200), text);
        for (size_t i = 0; i < n; i++)
            (void)printf(" %u", ids[i]);
        (void)printf("\n  want");
        for (size_t i = 0; i < json_array_size(want); i++)
            (void)printf(" %lld", (long long)json_integer_value(json_array_get(want, i)));
        (void)printf("\n");
    }
    free(ids);
    return differs;
}

/* The ids of a case decode to its text, when nothing in it is special. */
static void check_round_trip(const weft_tokenizer *tok, const char *text, size_t len,
                             const json_t *ids) {
    struct weft_buf out;
    struct weft_detok detok;
    weft_buf_init(&out, 1u << 20);
    weft_detok_init(&detok, tok, false);
    for (size_t i = 0; i < json_array_size(ids); i++)
        weft_detok_push(&detok, (uint32_t)json_integer_value(json_array_get(ids, i)), &out);
    weft_detok_finish(&detok, &out);
    assert_int_equal(out.len, len);
    assert_memory_equal(weft_buf_cstr(&out), text, len);
    weft_buf_fini(&out);
}

/* `plain_key` may be missing from a case: then it equals `special_key`. */
static void check_goldens(const char *goldens, const char *model, const char *special_key,
                          const char *plain_key) {
    json_error_t at;
    json_t *root = json_load_file(source_path(goldens), JSON_ALLOW_NUL, &at);
    if (!root) fail_msg("%s: %s", goldens, at.text);
    weft_tokenizer *tok = open_tokenizer(source_path(model));
    const json_t *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) >= 40);
    int n_different = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *text = json_object_get(one, "text");
        const json_t *special = json_object_get(one, special_key);
        const json_t *plain = json_object_get(one, plain_key);
        const char *bytes = json_string_value(text);
        size_t len = json_string_length(text);
        if (!plain) plain = special;
        n_different += compare(tok, bytes, len, WEFT_TOK_PARSE_SPECIAL, special);
        n_different += compare(tok, bytes, len, 0, plain);
        check_round_trip(tok, bytes, len, special);
        check_round_trip(tok, bytes, len, plain);
    }
    assert_int_equal(n_different, 0);
    weft_tok_free(tok);
    json_decref(root);
}

static void ids_of_our_models_equal_the_recorded_ones(void **state) {
    (void)state;
    static const char file[] = "tests/data/models_tokenizer_goldens.json";
    check_goldens(file, "models/fable-6m", "ids", "ids_no_special");
    check_goldens(file, "tests/data/fable-draft-1m", "ids", "ids_no_special");
}

static void ids_of_the_zoo_equal_the_recorded_ones(void **state) {
    (void)state;
    static const char file[] = "tests/data/zoo/tokenizer_goldens.json";
    check_goldens(file, "tests/data/zoo/llama_gqa_llama3rope", "ids_special", "ids_plain");
    check_goldens(file, "tests/data/zoo/llama_mha_linear", "ids_special", "ids_plain");
    check_goldens(file, "tests/data/zoo/llama_quant", "ids_special", "ids_plain");
}

static void ids_of_gguf_files_equal_those_of_their_folders(void **state) {
    (void)state;
    check_goldens("tests/data/models_tokenizer_goldens.json", TEST_FABLE_Q8_0, "ids",
                  "ids_no_special");
    static const char file[] = "tests/data/zoo/tokenizer_goldens.json";
    check_goldens(file, "tests/data/zoo/gguf/llama_gqa_llama3rope.gguf", "ids_special",
                  "ids_plain");
    check_goldens(file, "tests/data/zoo/llama_quant/Q8_0.gguf", "ids_special", "ids_plain");
}

/* A user-defined symbol in a GGUF file cuts the text before it is normalised, as in llama.cpp:
 * SentencePiece's ids differ. */
static bool has_symbol(const char *text) {
    return strstr(text, "<tool>") || strstr(text, "ABC");
}

static void check_sentence_piece(const json_t *texts, const json_t *ids, const char *model,
                                 bool symbols_cut) {
    weft_tokenizer *tok = open_tokenizer(source_path(model));
    int n_different = 0, n_cases = 0;
    assert_int_equal(json_array_size(ids), json_array_size(texts));
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        if (symbols_cut && has_symbol(json_string_value(text))) continue;
        n_cases++;
        n_different += compare(tok, json_string_value(text), json_string_length(text), 0,
                               json_array_get(ids, i));
    }
    (void)printf("%s: %d texts, %d different\n", model, n_cases, n_different);
    assert_true(n_cases >= 40);
    assert_int_equal(n_different, 0);
    weft_tok_free(tok);
}

static void ids_of_sentence_piece_models_equal_its_own(void **state) {
    (void)state;
    json_error_t at;
    json_t *root = json_load_file(source_path("tests/data/spm/goldens.json"), JSON_ALLOW_NUL, &at);
    if (!root) fail_msg("%s", at.text);
    const json_t *texts = json_object_get(root, "texts");
    json_t *models = json_object_get(root, "ids"), *ids;
    const char *name;
    assert_true(json_object_size(models) >= 7);
    json_object_foreach(models, name, ids) {
        char path[256];
        (void)snprintf(path, sizeof path, "tests/data/spm/%s", name);
        check_sentence_piece(texts, ids, path, false);
    }
    check_sentence_piece(texts, json_object_get(models, "unigram"), "tests/data/spm/unigram.gguf",
                         true);
    json_decref(root);
}

/* --- llama.cpp's vectors ---------------------------------------------------------------------- */

static char *read_all(const char *path, size_t *len_out) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long len = ftell(file);
    assert_true(len >= 0);
    rewind(file);
    char *text = malloc((size_t)len + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)len, file), (size_t)len);
    text[len] = 0;
    (void)fclose(file);
    *len_out = (size_t)len;
    return text;
}

static json_t *parse_ids(const char **line) {
    json_t *ids = json_array();
    while (**line && **line != '\n') {
        char *end;
        long id = strtol(*line, &end, 10);
        if (end == *line) {
            (*line)++;
            continue;
        }
        assert_int_equal(json_array_append_new(ids, json_integer(id)), 0);
        *line = end;
    }
    if (**line) (*line)++;
    return ids;
}

static void check_vectors(const char *name) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[256];
    size_t in_len, out_len;
    (void)snprintf(path, sizeof path, "vocab/ggml-vocab-%s.gguf.inp", name);
    char *in = read_all(shared_path(path), &in_len);
    (void)snprintf(path, sizeof path, "vocab/ggml-vocab-%s.gguf.out", name);
    char *out = read_all(shared_path(path), &out_len);
    (void)snprintf(path, sizeof path, "vocab/ggml-vocab-%s.gguf", name);
    weft_tokenizer *tok = open_tokenizer(shared_path(path));
    const char *line = out;
    int n_cases = 0, n_different = 0;
    for (const char *text = in; text; n_cases++) {
        const char *end = strstr(text, separator);
        if (!end && n_cases == 46) end = in + in_len; /* after the last separator */
        if (!end) break;
        json_t *ids = parse_ids(&line);
        n_different += compare(tok, text, (size_t)(end - text), 0, ids);
        json_decref(ids);
        text = end < in + in_len ? end + sizeof separator - 1 : NULL;
    }
    (void)printf("%s: %d texts, %d different\n", name, n_cases, n_different);
    assert_true(n_cases >= 46);
    assert_int_equal(n_different, 0);
    weft_tok_free(tok);
    free(in);
    free(out);
}

static void ids_of_published_vocabularies_equal_the_recorded_ones(void **state) {
    (void)state;
    if (access(shared_path("vocab/ggml-vocab-gpt-2.gguf"), R_OK) != 0) {
        (void)printf("SKIPPED: no published vocabularies at %s\n", shared_path("vocab"));
        skip();
    }
    static const char *const names[] = {"gpt-2",          "llama-spm", "deepseek-llm",
                                        "deepseek-coder", "falcon",    "starcoder"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_vectors(names[i]);
    if (access(shared_path("vocab/ggml-vocab-bert-bge.gguf"), R_OK) == 0)
        check_vectors("bert-bge");
    else
        (void)printf("SKIPPED: no %s\n", shared_path("vocab/ggml-vocab-bert-bge.gguf"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_our_models_equal_the_recorded_ones),
        cmocka_unit_test(ids_of_the_zoo_equal_the_recorded_ones),
        cmocka_unit_test(ids_of_gguf_files_equal_those_of_their_folders),
        cmocka_unit_test(ids_of_sentence_piece_models_equal_its_own),
        cmocka_unit_test(ids_of_published_vocabularies_equal_the_recorded_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
