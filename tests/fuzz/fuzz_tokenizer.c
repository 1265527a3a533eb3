/* Texts of any bytes under our own tokenizer, and tokenizer files of any bytes: an input that
 * begins with '{' is a tokenizer.json, one that begins with "GGUF" a GGUF file, one that begins
 * with a newline (protobuf's tag of the first piece) a tokenizer.model, everything else a text. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/utf8.h"
#include "inside/tokenizer/pieces/bpe.h"
#include "model/model.h"
#include "unit/model_files.h"
#include "unit/tokenizer_files.h"

#define IDS_MAX 100000u
#define TEXT_MAX                                                                                   \
    1024u /* of a text: files are longer, and the longer an input the fewer are tried */

static void check_text(const weft_tokenizer *tok, const char *text, size_t len, uint32_t flags,
                       bool comes_back) {
    struct weft_errmsg why = {""};
    struct weft_detok detok;
    struct weft_buf out;
    uint32_t *ids;
    size_t n;
    weft_err err =
        weft_tok_encode(tok, &(struct weft_tok_input){{text, len}, flags, IDS_MAX}, &ids, &n, &why);
    WEFT_ASSERT(err == WEFT_OK || err == WEFT_E_TOOBIG || err == WEFT_E_TIMEOUT);
    WEFT_ASSERT(n <= IDS_MAX && (!err || (n == 0 && !ids)));
    weft_buf_init(&out, (size_t)1 << 26);
    weft_detok_init(&detok, tok, false);
    for (size_t i = 0; i < n; i++) {
        WEFT_ASSERT(ids[i] < weft_tok_vocab_size(tok));
        weft_detok_push(&detok, ids[i], &out);
    }
    weft_detok_finish(&detok, &out);
    WEFT_ASSERT(weft_utf8_valid(weft_buf_cstr(&out), out.len));
    if (comes_back && !err && weft_utf8_valid(text, len))
        WEFT_ASSERT(out.len == len && (len == 0 || memcmp(out.data, text, len) == 0));
    weft_buf_fini(&out);
    free(ids);
}

/* Two texts as one sequence, cut short. */
static void check_cut(const weft_tokenizer *tok, struct weft_str text) {
    struct weft_errmsg why = {""};
    struct weft_tok_cut input = {.first = text,
                                 .second = {text.data, text.len / 2},
                                 .is_pair = true,
                                 .flags = WEFT_TOK_ADD_SPECIAL,
                                 .ids_max = 9};
    uint32_t *ids;
    size_t n, n_first;
    weft_err err = weft_tok_encode_cut(tok, &input, &ids, &n, &n_first, &why);
    WEFT_ASSERT(n <= 9 && n_first <= n && (err == WEFT_OK) == (ids != NULL));
    WEFT_ASSERT(!err || why.text[0]);
    free(ids);
}

/* Opened once: the inputs are texts, not files. */
static const weft_tokenizer *fable(void) {
    static weft_tokenizer *tok;
    if (!tok)
        WEFT_ASSERT(weft_tok_open(test_source_path("models/fable-6m"), &tok, NULL) == WEFT_OK);
    return tok;
}

/* Long enough for words to be remembered. */
static void check_repeated(const uint8_t *bytes, size_t n) {
    struct weft_buf text;
    weft_buf_init(&text, 1 << 16);
    while (text.len <= WEFTI_TOK_WORDS_TEXT_MIN)
        weft_buf_add(&text, bytes, n);
    check_text(fable(), text.data, text.len, WEFT_TOK_PARSE_SPECIAL, true);
    weft_buf_fini(&text);
}

static void check_file(const uint8_t *bytes, size_t n, const char *name) {
    static const char text[] =
        "Hello  w\u00f6rld 12345 <s> a\u0301\n\n\xff aaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\u4e00'll x";
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    char *dir = test_dir_new(), path[4096];
    test_dir_write(dir, name, bytes, n);
    (void)snprintf(path, sizeof path, "%s%s", dir, strcmp(name, "t.gguf") == 0 ? "/t.gguf" : "");
    weft_err err = weft_tok_open(path, &tok, &why);
    test_dir_free(dir);
    WEFT_ASSERT((err == WEFT_OK) == (tok != NULL));
    WEFT_ASSERT(!err || why.text[0]);
    if (tok) {
        check_text(tok, text, sizeof text - 1, WEFT_TOK_PARSE_SPECIAL, false);
        check_cut(tok, (struct weft_str){text, sizeof text - 1});
    }
    weft_tok_free(tok);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    if (n >= 4 && memcmp(bytes, "GGUF", 4) == 0) {
        check_file(bytes, n, "t.gguf");
    } else if (n > 0 && (bytes[0] == '{' || bytes[0] == '\n')) {
        check_file(bytes, n, bytes[0] == '{' ? "tokenizer.json" : "tokenizer.model");
    } else {
        if (n > TEXT_MAX) n = TEXT_MAX;
        check_text(fable(), (const char *)bytes, n, 0, true);
        check_text(fable(), (const char *)bytes, n, WEFT_TOK_PARSE_SPECIAL, true);
        if (n > 1 && bytes[0] == '\f') check_repeated(bytes + 1, n - 1);
    }
    return 0;
}

static void put_strings(struct gguf_builder *b, const char *key, const char *const *strings,
                        size_t n) {
    gguf_key(b, key, WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_STRING, 4);
    gguf_put(&b->kvs, n, 8);
    for (size_t i = 0; i < n; i++)
        gguf_put_str(&b->kvs, strings[i]);
}

static void add_gguf(void (*add)(const void *bytes, size_t n), const char *model, const char *pre) {
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "<0xFF>", "\u2581", "a",
                                         "aa",    "H",   "e",    "He",     "\u0120", "<t>"};
    static const char *const merges[] = {"a a", "H e"};
    static const uint8_t types[] = {2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 4};
    struct gguf_builder b;
    struct weft_buf file;
    gguf_init(&b);
    gguf_str(&b, "tokenizer.ggml.model", model);
    gguf_str(&b, "tokenizer.ggml.pre", pre);
    put_strings(&b, "tokenizer.ggml.tokens", tokens, sizeof types);
    put_strings(&b, "tokenizer.ggml.merges", merges, 2);
    gguf_key(&b, "tokenizer.ggml.token_type", WEFT_GGUF_ARRAY);
    gguf_put(&b.kvs, WEFT_GGUF_U8, 4);
    gguf_put(&b.kvs, sizeof types, 8);
    for (size_t i = 0; i < sizeof types; i++)
        gguf_put(&b.kvs, types[i], 1);
    gguf_key(&b, "tokenizer.ggml.scores", WEFT_GGUF_ARRAY);
    gguf_put(&b.kvs, WEFT_GGUF_F32, 4);
    gguf_put(&b.kvs, sizeof types, 8);
    for (size_t i = 0; i < sizeof types; i++)
        gguf_put(&b.kvs, 0x40000000u + i % 4, 4);
    gguf_u32(&b, "tokenizer.ggml.eos_token_id", 2);
    gguf_u32(&b, "tokenizer.ggml.unknown_token_id", 0);
    gguf_finish(&b, &file);
    add(file.data, file.len);
    weft_buf_fini(&file);
    gguf_fini(&b);
}

/* Files of the source tree: SentencePiece models and one as a GGUF vocabulary. */
static void add_models(void (*add)(const void *bytes, size_t n)) {
    static const char *const names[] = {
        "bpe/tokenizer.model",  "bpe_unknown/tokenizer.model",   "unigram/tokenizer.model",
        "char/tokenizer.model", "unigram_bytes/tokenizer.model", "unigram.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128], *bytes;
        size_t n;
        (void)snprintf(path, sizeof path, "tests/data/spm/%s", names[i]);
        weft_err err =
            weft_file_read(test_source_path(path), WEFT_FILE_REGULAR, 1 << 20, &bytes, &n, NULL);
        WEFT_ASSERT(!err);
        add(bytes, n);
        free(bytes);
    }
}

static const char unigram_json[] =
    "{\"decoder\":{\"type\":\"Metaspace\"},\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},"
    "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":"
    "\"CAAAAAAEAAAAAAAAYQA=\"},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":"
    "[[\"<unk>\",0],[\"a\",-1.5],[\"aa\",-2],[\"H\",-3],[\"He\",-3.25],[\"l\",-4],[\"x\",-9]]}}";

static const char wordpiece_json[] =
    "{\"decoder\":{\"type\":\"WordPiece\"},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
    "\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":true},\"model\":{\"type\":"
    "\"WordPiece\",\"unk_token\":\"[UNK]\",\"max_input_chars_per_word\":30,\"vocab\":{"
    "\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"h\":3,\"##e\":4,\"##ll\":5,\"##llo\":6,\"##o\":7,"
    "\"a\":8,\"##a\":9,\"1\":10,\"<\":11}},\"post_processor\":{\"type\":\"TemplateProcessing\","
    "\"single\":[{\"SpecialToken\":{\"id\":\"c\"}},{\"Sequence\":{\"id\":\"A\"}}],\"pair\":[{"
    "\"SpecialToken\":{\"id\":\"c\"}},{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":"
    "\"c\",\"type_id\":1}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{"
    "\"c\":{\"ids\":[1,2]}}}}";

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const texts[] = {
        "Once upon a time, there was a little girl who lived in the forest.",
        "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n",
        ("caf\u00e9 na\u00efve \u4f60\u597d \U0001f468\u200d\U0001f469 \u0661\u0662 \t\t \r\n\r\n  "
         "x"),
        "\xff\xc3(\xe2\x82 \xf0\x9f\x98 \xed\xa0\x80", "\fOnce upon a time. "};
    static const char *const words[] = {"a",    "b", "ab", "\u2581", "\u2581a", "<unk>", "aa",
                                        "aaaa", "H", "e",  "l",      "o",       NULL};
    static const struct text_parts parts[] = {
        {.words = words,
         .merges = "[\"a b\",[\"\u2581\",\"a\"],\"a a\",\"aa aa\"]",
         .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},"
                       "{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},{\"type\":\"Replace\","
                       "\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]}",
         .options = "\"unk_token\":\"<unk>\",\"fuse_unk\":true,",
         .added_tokens = "[{\"id\":12,\"content\":\"<s>\",\"special\":true,\"lstrip\":true},"
                         "{\"id\":13,\"content\":\"\u00f6\",\"single_word\":true}]",
         .decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
                    "{\"String\":\"\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
                    "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
                    "\"stop\":0}]}"},
        {.words = words,
         .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},"
                       "{\"type\":\"Lowercase\"},{\"type\":\"Strip\",\"strip_left\":true}]}",
         .pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                          "\"pattern\":{\"Regex\":\"(?i:'s|'ll)|[^\\\\r\\\\n\\\\p{L}]?\\\\p{L}+|"
                          "\\\\p{N}{1,3}|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"MergedWithNext\","
                          "\"invert\":true},{\"type\":\"Metaspace\",\"replacement\":\"\u2581\","
                          "\"prepend_scheme\":\"first\"},{\"type\":\"Digits\","
                          "\"individual_digits\":true}]}",
         .post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
                           "{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":"
                           "{\"<s>\":{\"ids\":[1]}}}"},
        {.words = words,
         .bytes = true,
         .pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
                          "{\"type\":\"Digits\",\"individual_digits\":true}]}"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        add(texts[i], strlen(texts[i]));
    add_models(add);
    add(unigram_json, sizeof unigram_json - 1);
    add(wordpiece_json, sizeof wordpiece_json - 1);
    add_gguf(add, "llama", "default");
    add_gguf(add, "t5", "default");
    add_gguf(add, "bert", "default");
    add_gguf(add, "gpt2", "deepseek-llm");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct weft_buf json;
        weft_buf_init(&json, 1 << 16);
        text_build_json(&json, &parts[i]);
        add(json.data, json.len);
        weft_buf_fini(&json);
    }
}
