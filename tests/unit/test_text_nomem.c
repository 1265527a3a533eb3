/* Refuses the 1st, 2nd, 3rd ... allocation of each call until one runs clean: each refusal is an
 * error with a sentence, and nothing leaks (the address sanitizer's build sees to that). The linker
 * turns our own calls of the allocator into the __wrap functions here; jansson is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "template/template.h"
#include "tokenizer/tokenizer.h"
#include "unit/model_files.h"
#include "unit/tokenizer_files.h"

#define NEVER UINT32_MAX
static uint32_t n_left = NEVER; /* allocations to go until one is refused */
static size_t largest;          /* block asked for */

static bool refuse(size_t n) {
    if (n > largest) largest = n;
    if (n_left == NEVER) return false;
    if (n_left == 0) return true; /* and all after it: memory that ran out stays so */
    n_left--;
    return false;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *block, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *block, size_t n);

void *__wrap_malloc(size_t n) {
    return refuse(n) ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size) {
    return refuse(n * size) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *block, size_t n) {
    return refuse(n) ? NULL : __real_realloc(block, n);
}

typedef weft_err (*call_fn)(const void *arg, struct weft_errmsg *why);

/* Grants ever more allocations until the call succeeds; the call frees what it gets. */
static void repeat_until_it_works(call_fn call, const void *arg) {
    for (uint32_t granted = 0;; granted++) {
        struct weft_errmsg why = {""};
        n_left = granted;
        weft_err err = call(arg, &why);
        bool ran_out = n_left == 0;
        n_left = NEVER;
        if (!err) {
            print_message("    %u allocations\n", granted);
            return;
        }
        if (!ran_out) fail_msg("%s", why.text);
        assert_int_not_equal(why.text[0], 0);
        assert_true(granted < 100000);
    }
}

static weft_err open_path(const void *path, struct weft_errmsg *why) {
    weft_tokenizer *tok;
    weft_err err = weft_tok_open(path, &tok, why);
    assert_true((err == WEFT_OK) == (tok != NULL));
    weft_tok_free(tok);
    return err;
}

static void opening_survives_each_refusal(void **state) {
    (void)state;
    repeat_until_it_works(open_path, test_source_path("tests/data/zoo/llama_quant"));
    repeat_until_it_works(open_path, test_source_path("tests/data/zoo/llama_quant/Q8_0.gguf"));
    repeat_until_it_works(open_path, test_source_path("tests/data/spm/unigram"));
    repeat_until_it_works(open_path, test_source_path("tests/data/spm/bpe"));
    repeat_until_it_works(open_path, test_source_path("tests/data/spm/unigram.gguf"));
    static const char *const words[] = {"a", "b", "ab", NULL};
    static const struct text_parts parts = {
        .words = words,
        .merges = "[\"a b\"]",
        .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
                      "\"Prepend\",\"prepend\":\"_\"},{\"type\":\"Replace\",\"pattern\":"
                      "{\"String\":\" \"},\"content\":\"_\"}]}",
        .added_tokens = "[{\"id\":3,\"content\":\"e\u0301\",\"normalized\":true}]",
        .decoder = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"}"};
    struct weft_buf json;
    weft_buf_init(&json, 1 << 16);
    text_build_json(&json, &parts);
    char *dir = test_dir_new();
    test_dir_write(dir, "tokenizer.json", json.data, json.len);
    repeat_until_it_works(open_path, dir);
    test_dir_free(dir);
    weft_buf_fini(&json);
}

static weft_err encode(const void *tok, struct weft_errmsg *why) {
    static const char text[] = "e\u0301\u0323 <|im_end|>aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                               "aaaaaaaaaaaaaaaaaaaaa \xff 12345 the thread and the thread again";
    uint32_t *ids;
    size_t n;
    weft_err err = weft_tok_encode(
        tok,
        &(struct weft_tok_input){
            {text, sizeof text - 1}, WEFT_TOK_ADD_SPECIAL | WEFT_TOK_PARSE_SPECIAL, 1000},
        &ids, &n, why);
    assert_true(!err || (!ids && n == 0));
    free(ids);
    return err;
}

static void encoding_survives_each_refusal(void **state) {
    (void)state;
    weft_tokenizer *tok;
    assert_int_equal(weft_tok_open(test_source_path("models/fable-6m"), &tok, NULL), WEFT_OK);
    repeat_until_it_works(encode, tok);
    weft_tok_free(tok);
    assert_int_equal(weft_tok_open(test_source_path("tests/data/spm/unigram"), &tok, NULL),
                     WEFT_OK);
    repeat_until_it_works(encode, tok);
    weft_tok_free(tok);
    static const char *const words[] = {"a", "aa", NULL};
    tok = text_open(&(struct text_parts){
        .words = words,
        .merges = "[\"a a\"]",
        .normalizer = "{\"type\":\"NFKC\"}",
        .pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"}"});
    repeat_until_it_works(encode, tok);
    weft_tok_free(tok);
}

/* 8 MB of one letter against a limit of 100 ids. With any step before merging, no block is larger
 * than the text in a buffer that doubles; the symbols would take 28 bytes for each letter. */
static void a_text_that_cannot_fit_takes_no_more_memory_than_itself(void **state) {
    (void)state;
    enum { LEN = 8 << 20, LIMIT = 100 };
    static const char *const words[] = {"aa", NULL};
    static const struct text_parts parts[] = {
        {.bytes = true, .words = words, .normalizer = "{\"type\":\"NFC\"}"},
        {.bytes = true, .words = words, .normalizer = "{\"type\":\"Strip\"}"},
        {.bytes = true,
         .words = words,
         .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"aa\"},"
                       "\"content\":\"a\"}"},
        {.words = words, .options = "\"unk_token\":\"aa\",\"fuse_unk\":false,"},
    };
    char *text = malloc(LEN);
    assert_non_null(text);
    memset(text, 'a', LEN);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct text_parts one = parts[i];
        if (one.bytes)
            one.pre_tokenizer =
                "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}";
        weft_tokenizer *tok = text_open(&one);
        struct weft_errmsg why = {""};
        uint32_t *ids;
        size_t n;
        largest = 0;
        assert_int_equal(
            weft_tok_encode(tok, &(struct weft_tok_input){{text, LEN}, 0, LIMIT}, &ids, &n, &why),
            WEFT_E_TOOBIG);
        assert_string_equal(why.text, "the text has more than 100 tokens");
        print_message("    largest block: %zu\n", largest);
        assert_true(largest <= (size_t)2 * LEN);
        weft_tok_free(tok);
    }
    /* A text that becomes nothing, or one token, fits all the same. */
    static const char *const fused[] = {"", "\"unk_token\":\"aa\",\"fuse_unk\":true,"};
    for (size_t i = 0; i < 2; i++) {
        weft_tokenizer *tok = text_open(&(struct text_parts){.words = words, .options = fused[i]});
        uint32_t *ids;
        size_t n;
        largest = 0;
        assert_int_equal(
            weft_tok_encode(tok, &(struct weft_tok_input){{text, LEN}, 0, LIMIT}, &ids, &n, NULL),
            WEFT_OK);
        assert_int_equal(n, i);
        assert_true(largest <= (size_t)2 * LEN);
        free(ids);
        weft_tok_free(tok);
    }
    free(text);
}

static weft_err chat(const void *unused, struct weft_errmsg *why) {
    (void)unused;
    static const char source[] = "{% macro f(z) %}{{ z }}{% endmacro %}"
                                 "{% set x %}{{ f('a') | trim }}{% endset %}{% set x = x ~ 1 %}"
                                 "{% for m in messages %}{% set y = x + 'b' %}"
                                 "{{ y + m.content }}{% endfor %}";
    static const struct weft_tmpl_message messages[] = {{"user", "Hi", 4, 2}, {"user", "Ho", 4, 2}};
    weft_tmpl *compiled;
    weft_err err = weft_tmpl_new(source, sizeof source - 1, NULL, &compiled, why);
    if (err) return err;
    struct weft_buf out;
    weft_buf_init(&out, 1000);
    err = weft_tmpl_render(compiled, messages, 2, true, &out, why);
    if (!err) assert_string_equal(weft_buf_cstr(&out), "a1bHia1bHo");
    weft_buf_fini(&out);
    weft_tmpl_free(compiled);
    return err;
}

static weft_err stop(const void *unused, struct weft_errmsg *why) {
    (void)unused;
    static const char *const strings[] = {"abc", "d"};
    static const size_t lens[] = {3, 1};
    struct weft_stop_set *set;
    struct weft_stop *matcher = NULL;
    weft_err err = weft_stop_set_new(strings, lens, 2, &set);
    assert_true((err == WEFT_OK) == (set != NULL));
    if (!err) {
        err = weft_stop_new(set, false, &matcher);
        assert_true((err == WEFT_OK) == (matcher != NULL));
    }
    if (!err) { /* with no memory left it holds back and matches all the same */
        struct weft_buf none;
        size_t which = SIZE_MAX;
        weft_buf_init(&none, 0);
        assert_false(weft_stop_push(matcher, "ab", 2, &none, &which));
        assert_true(weft_stop_push(matcher, "c", 1, &none, &which));
        assert_int_equal(which, 0);
        assert_false(none.failed);
    }
    weft_stop_free(matcher);
    weft_stop_set_free(set);
    return err ? weft_err_set(why, err, "refused") : WEFT_OK;
}

static weft_err find(const void *path, struct weft_errmsg *why) {
    char *source;
    weft_err err = weft_tmpl_find(path, &source, why);
    assert_true(!err == (source != NULL));
    free(source);
    return err;
}

static void the_rest_survives_each_refusal(void **state) {
    (void)state;
    weft_tokenizer *tok;
    assert_int_equal(weft_tok_open(test_source_path("models/fable-6m"), &tok, NULL), WEFT_OK);
    repeat_until_it_works(chat, NULL);
    weft_tok_free(tok);
    repeat_until_it_works(stop, NULL);
    repeat_until_it_works(find, test_source_path("models/fable-6m"));
    repeat_until_it_works(find, test_source_path(TEST_FABLE_Q8_0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_survives_each_refusal),
        cmocka_unit_test(encoding_survives_each_refusal),
        cmocka_unit_test(a_text_that_cannot_fit_takes_no_more_memory_than_itself),
        cmocka_unit_test(the_rest_survives_each_refusal),
    };
    json_set_alloc_funcs(__wrap_malloc, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
