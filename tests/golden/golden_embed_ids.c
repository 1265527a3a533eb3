/* Token ids of the embedding models and rerankers: WordPiece, Unigram with a character map, byte-level BPE; single
 * texts and pairs, cut to the length that each model takes; from folders and GGUF files.
 *
 * tests/data/embed holds some of ../shared/embed (tokenizers and goldens made by ../shared/reference/embed); what is
 * only there is read from there, and said to be skipped where it is absent. */
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

#include "tokenizer/tokenizer.h"

#define SPECIAL (WEFT_TOK_ADD_SPECIAL | WEFT_TOK_PARSE_SPECIAL)

/* A file of ours, or of ../shared/embed; NULL: it is in neither place. */
static const char *find(const char *name) {
    static char path[4096];
    const char *root = getenv("WEFT_SOURCE_DIR"), *shared = getenv("WEFT_SHARED_DIR");
    (void)snprintf(path, sizeof path, "%s/tests/data/embed/%s", root ? root : ".", name);
    if (access(path, R_OK) == 0) return path;
    (void)snprintf(path, sizeof path, "%s/embed/%s", shared ? shared : "../shared", name);
    if (access(path, R_OK) == 0) return path;
    (void)printf("SKIPPED: no %s\n", path);
    return NULL;
}

static json_t *load(const char *name) {
    const char *path = find(name);
    json_error_t at;
    json_t *root = path ? json_load_file(path, JSON_ALLOW_NUL, &at) : NULL;
    if (path && !root) fail_msg("%s: %s", path, at.text);
    return root;
}

static weft_tokenizer *open_tokenizer(const char *name) {
    struct weft_errmsg why = {""};
    weft_tokenizer *tok = NULL;
    const char *path = find(name);
    if (!path) return NULL;
    weft_err err = weft_tok_open(path, &tok, &why);
    if (err) fail_msg("%s", why.text);
    return tok;
}

/* Prints the first difference; 1 if there is one. */
static int compare(const char *text, const uint32_t *ids, size_t n, const json_t *want) {
    int differs = n != json_array_size(want);
    for (size_t i = 0; i < n && !differs; i++)
        differs = ids[i] != (uint64_t)json_integer_value(json_array_get(want, i));
    if (!differs) return 0;
    (void)printf("differs: \"%.200s\"\n  got ", text);
    for (size_t i = 0; i < n; i++)
        (void)printf(" %u", ids[i]);
    (void)printf("\n  want");
    for (size_t i = 0; i < json_array_size(want); i++)
        (void)printf(" %lld", (long long)json_integer_value(json_array_get(want, i)));
    (void)printf("\n");
    return 1;
}

static int check_text(const weft_tokenizer *tok, struct weft_str text, const json_t *want) {
    struct weft_errmsg why = {""};
    uint32_t *ids;
    size_t n;
    weft_err err =
        weft_tok_encode(tok, &(struct weft_tok_input){text, SPECIAL, 1u << 20}, &ids, &n, &why);
    if (err) fail_msg("%s", why.text);
    int differs = compare(text.data, ids, n, want);
    free(ids);
    return differs;
}

static int check_cut(const weft_tokenizer *tok, const struct weft_tok_cut *input,
                     const json_t *want, size_t n_first) {
    struct weft_errmsg why = {""};
    uint32_t *ids;
    size_t n, n_first_got;
    weft_err err = weft_tok_encode_cut(tok, input, &ids, &n, &n_first_got, &why);
    if (err) fail_msg("%s", why.text);
    int differs = compare(input->first.data, ids, n, want);
    if (n_first_got != n_first)
        fail_msg("%s: %zu tokens of type 0, want %zu", input->first.data, n_first_got, n_first);
    free(ids);
    return differs;
}

static struct weft_str str_of(const json_t *value) {
    return (struct weft_str){json_string_value(value), json_string_length(value)};
}

/* GGUF has no `lstrip`: texts with a mask token are left out. */
static bool is_of_the_folder_only(const char *model, const char *text) {
    return strstr(model, ".gguf") && (strstr(text, "<mask>") || strstr(text, "[MASK]"));
}

static void check_awkward(const char *goldens, const char *model) {
    json_t *root = load("tokenizer_goldens.json");
    weft_tokenizer *tok = root ? open_tokenizer(model) : NULL;
    const json_t *texts = json_object_get(root, "texts");
    const json_t *all = json_object_get(json_object_get(root, "models"), goldens);
    int n_different = 0;
    for (size_t i = 0; tok && i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        if (!is_of_the_folder_only(model, json_string_value(text)))
            n_different += check_text(tok, str_of(text), json_array_get(all, i));
    }
    if (tok) assert_true(json_array_size(texts) >= 40);
    assert_int_equal(n_different, 0);
    weft_tok_free(tok);
    json_decref(root);
}

static void ids_of_awkward_texts_equal_the_recorded_ones(void **state) {
    (void)state;
    static const char *const folders[] = {"bert-uncased-mean", "bert-cased-cls", "xlmr-cls",
                                          "modernbert-mean", "qwen3-last"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        check_awkward(folders[i], folders[i]);
    check_awkward("bert-uncased-mean", "gguf/bert-uncased-mean.gguf");
    check_awkward("modernbert-mean", "gguf/modernbert-mean.gguf");
}

#define LENGTH_MAX                                                                                 \
    64 /* max_seq_length of the embedding models, model_max_length of the rerankers */

static void check_texts(const weft_tokenizer *tok, const json_t *texts) {
    int n_different = 0;
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *one = json_array_get(texts, i), *want = json_object_get(one, "input_ids");
        const char *prompt = json_string_value(json_object_get(one, "prompt"));
        char text[4096];
        int len = snprintf(text, sizeof text, "%s%s", prompt ? prompt : "",
                           json_string_value(json_object_get(one, "text")));
        assert_true(len >= 0 && (size_t)len < sizeof text);
        struct weft_tok_cut input = {
            .first = {text, (size_t)len}, .flags = SPECIAL, .ids_max = LENGTH_MAX};
        n_different += check_cut(tok, &input, want, json_array_size(want));
    }
    assert_true(json_array_size(texts) >= 10);
    assert_int_equal(n_different, 0);
}

static size_t count_first(const json_t *types) {
    size_t n = 0;
    while (n < json_array_size(types) && json_integer_value(json_array_get(types, n)) == 0)
        n++;
    return n;
}

static int check_documents(const weft_tokenizer *tok, const json_t *query, size_t *n_cut) {
    const json_t *documents = json_object_get(query, "documents");
    int n_different = 0;
    for (size_t i = 0; i < json_array_size(documents); i++) {
        const json_t *one = json_array_get(documents, i), *want = json_object_get(one, "input_ids");
        struct weft_tok_cut input = {.first = str_of(json_object_get(query, "query")),
                                     .second = str_of(json_object_get(one, "document")),
                                     .is_pair = true,
                                     .flags = SPECIAL,
                                     .ids_max = LENGTH_MAX};
        n_different +=
            check_cut(tok, &input, want, count_first(json_object_get(one, "token_type_ids")));
        *n_cut += json_object_get(one, "truncated_to") != NULL;
    }
    return n_different;
}

static void check_goldens(const char *folder, const char *model) {
    char name[128];
    (void)snprintf(name, sizeof name, "%s/goldens.json", folder);
    json_t *root = load(name);
    weft_tokenizer *tok = root ? open_tokenizer(model) : NULL;
    const json_t *queries = json_object_get(root, "queries");
    int n_different = 0;
    size_t n_cut = 0;
    if (tok && json_object_get(root, "texts")) check_texts(tok, json_object_get(root, "texts"));
    for (size_t i = 0; tok && i < json_array_size(queries); i++)
        n_different += check_documents(tok, json_array_get(queries, i), &n_cut);
    if (tok && queries) assert_true(n_cut > 0);
    assert_int_equal(n_different, 0);
    weft_tok_free(tok);
    json_decref(root);
}

static void texts_and_pairs_are_cut_as_recorded(void **state) {
    (void)state;
    static const char *const folders[] = {
        "bert-uncased-mean",   "bert-cased-cls",  "xlmr-cls",    "nomic-mean", "modernbert-mean",
        "bert-rerank-sigmoid", "bert-rerank-raw", "xlmr-rerank", "gte-cls",    "gte-rerank"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        check_goldens(folders[i], folders[i]);
}

static void gguf_files_give_the_same_ids(void **state) {
    (void)state;
    static const char *const names[] = {"bert-uncased-mean", "nomic-mean", "modernbert-mean",
                                        "xlmr-rerank"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "gguf/%s.gguf", names[i]);
        check_goldens(names[i], path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_awkward_texts_equal_the_recorded_ones),
        cmocka_unit_test(texts_and_pairs_are_cut_as_recorded),
        cmocka_unit_test(gguf_files_give_the_same_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
