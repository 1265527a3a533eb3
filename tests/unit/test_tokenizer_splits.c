/* How the names in tokenizer.ggml.pre cut texts: tests/data/splits.json, made by tests/golden/make_splits.py.
 *
 * Pieces do not show in ids, so each text gets a vocabulary in which they do: first come merges of the bytes at each
 * border, which happen if a cut is missing, then those that build each piece from its first byte on, which do not all
 * happen if there is a cut too many. A plain merger of its own tells what the pieces become. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/utf8.h"
#include "unit/model_files.h"
#include "unit/tokenizer_files.h"

enum { WORDS_MAX = 4096, N_BYTES = 256 };

struct word {
    const char *bytes; /* part of a piece */
    size_t len;
};

static struct vocab {
    char bytes[N_BYTES];
    struct word words[WORDS_MAX];
    size_t n;
    struct {
        size_t left, right, whole;
    } merges[WORDS_MAX];
    size_t n_merges;
    char pairs[WORDS_MAX][2];
} vocab;

static size_t find_word(const char *bytes, size_t len) {
    size_t i = 0;
    while (i < vocab.n &&
           (vocab.words[i].len != len || memcmp(vocab.words[i].bytes, bytes, len) != 0))
        i++;
    return i;
}

static void add_merge(const char *bytes, size_t len, size_t left_len) {
    size_t left = find_word(bytes, left_len), right = find_word(bytes + left_len, len - left_len);
    size_t whole = find_word(bytes, len);
    assert_true(left < vocab.n && right < vocab.n && vocab.n_merges < WORDS_MAX);
    for (size_t i = 0; i < vocab.n_merges; i++)
        if (vocab.merges[i].left == left && vocab.merges[i].right == right) return;
    if (whole == vocab.n) {
        assert_true(vocab.n < WORDS_MAX);
        vocab.words[vocab.n++] = (struct word){bytes, len};
    }
    vocab.merges[vocab.n_merges].left = left;
    vocab.merges[vocab.n_merges].right = right;
    vocab.merges[vocab.n_merges++].whole = whole;
}

static struct word piece_at(const json_t *pieces, size_t i) {
    const json_t *piece = json_array_get(pieces, i);
    return (struct word){json_string_value(piece), json_string_length(piece)};
}

static void build_vocab(const json_t *pieces) {
    vocab.n = vocab.n_merges = 0;
    for (size_t i = 0; i < N_BYTES; i++) {
        vocab.bytes[i] = (char)i;
        vocab.words[vocab.n++] = (struct word){&vocab.bytes[i], 1};
    }
    for (size_t i = 0; i + 1 < json_array_size(pieces); i++) {
        struct word before = piece_at(pieces, i), after = piece_at(pieces, i + 1);
        vocab.pairs[i][0] = before.bytes[before.len - 1];
        vocab.pairs[i][1] = after.bytes[0];
        add_merge(vocab.pairs[i], 2, 1);
    }
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        struct word piece = piece_at(pieces, i);
        for (size_t len = 2; len <= piece.len; len++)
            add_merge(piece.bytes, len, len - 1);
    }
}

/* The merge of least rank, the leftmost of equals, until there is none. */
static size_t merge_piece(struct word piece, uint32_t *ids) {
    size_t n = piece.len;
    for (size_t i = 0; i < n; i++)
        ids[i] = (unsigned char)piece.bytes[i];
    for (;;) {
        size_t best = vocab.n_merges, at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            for (size_t k = 0; k < best; k++) {
                if (vocab.merges[k].left != ids[i] || vocab.merges[k].right != ids[i + 1]) continue;
                best = k;
                at = i;
            }
        }
        if (best == vocab.n_merges) return n;
        ids[at] = (uint32_t)vocab.merges[best].whole;
        memmove(&ids[at + 1], &ids[at + 2], (n - at - 2) * sizeof *ids);
        n--;
    }
}

/* Bytes as their printable characters, in GPT-2's way. */
static void put_printable(struct weft_buf *out, struct word word) {
    for (size_t i = 0; i < word.len; i++) {
        uint32_t byte = (unsigned char)word.bytes[i], n_before = 0;
        for (uint32_t b = 0; b <= byte; b++)
            n_before += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
        bool is_plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        weft_utf8_put(out, is_plain ? byte : 255 + n_before);
    }
}

static weft_tokenizer *open_vocab(const char *pre) {
    struct gguf_builder b;
    struct weft_buf text, bytes;
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    weft_buf_init(&text, 1 << 16);
    weft_buf_init(&bytes, 1 << 22);
    gguf_init(&b);
    gguf_str(&b, "tokenizer.ggml.model", "gpt2");
    gguf_str(&b, "tokenizer.ggml.pre", pre);
    gguf_u32(&b, "tokenizer.ggml.bos_token_id", 0);
    gguf_key(&b, "tokenizer.ggml.tokens", 9);
    gguf_put(&b.kvs, 8, 4);
    gguf_put(&b.kvs, vocab.n, 8);
    for (size_t i = 0; i < vocab.n; i++) {
        weft_buf_clear(&text);
        put_printable(&text, vocab.words[i]);
        gguf_put_str(&b.kvs, weft_buf_cstr(&text));
    }
    gguf_key(&b, "tokenizer.ggml.merges", 9);
    gguf_put(&b.kvs, 8, 4);
    gguf_put(&b.kvs, vocab.n_merges, 8);
    for (size_t i = 0; i < vocab.n_merges; i++) {
        weft_buf_clear(&text);
        put_printable(&text, vocab.words[vocab.merges[i].left]);
        weft_buf_add_char(&text, ' ');
        put_printable(&text, vocab.words[vocab.merges[i].right]);
        gguf_put_str(&b.kvs, weft_buf_cstr(&text));
    }
    gguf_finish(&b, &bytes);
    if (text_try_open_gguf(bytes.data, bytes.len, &tok, &why)) fail_msg("%s: %s", pre, why.text);
    gguf_fini(&b);
    weft_buf_fini(&bytes);
    weft_buf_fini(&text);
    return tok;
}

/* How many texts differ: 0 or 1. */
static int check_text(const char *pre, const json_t *text, const json_t *pieces, bool ignore_merges,
                      bool add_bos) {
    static uint32_t want[WORDS_MAX];
    size_t n = 0, n_got;
    build_vocab(pieces);
    if (add_bos) want[n++] = 0;
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        struct word piece = piece_at(pieces, i);
        assert_true(n + piece.len <= WORDS_MAX);
        if (ignore_merges)
            want[n++] = (uint32_t)find_word(piece.bytes, piece.len);
        else
            n += merge_piece(piece, want + n);
    }
    weft_tokenizer *tok = open_vocab(pre);
    uint32_t *got = text_ids(tok, json_string_value(text), json_string_length(text),
                             WEFT_TOK_ADD_SPECIAL, &n_got);
    int differs = n_got != n || memcmp(got, want, n * sizeof *got) != 0;
    if (differs) (void)printf("%s: \"%s\"\n  got", pre, json_string_value(text));
    for (size_t i = 0; i < n_got && differs; i++)
        (void)printf("|%.*s", (int)vocab.words[got[i]].len, vocab.words[got[i]].bytes);
    if (differs) (void)printf("|\n  want");
    for (size_t i = 0; i < n && differs; i++)
        (void)printf("|%.*s", (int)vocab.words[want[i]].len, vocab.words[want[i]].bytes);
    if (differs) (void)printf("|\n");
    free(got);
    weft_tok_free(tok);
    return differs;
}

static void each_name_cuts_as_its_models_do(void **state) {
    (void)state;
    char path[4096];
    const char *source = getenv("WEFT_SOURCE_DIR");
    json_error_t at;
    (void)snprintf(path, sizeof path, "%s/tests/data/splits.json", source ? source : ".");
    json_t *root = json_load_file(path, 0, &at);
    if (!root) fail_msg("%s: %s", path, at.text);
    const json_t *texts = json_object_get(root, "texts"), *cases = json_object_get(root, "cases");
    int n_names = 0, n_different = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *names = json_object_get(one, "names");
        bool ignore_merges = json_is_true(json_object_get(one, "ignore_merges"));
        bool add_bos = json_is_true(json_object_get(one, "add_bos"));
        for (size_t k = 0; k < json_array_size(names); k++, n_names++) {
            const char *pre = json_string_value(json_array_get(names, k));
            /* The first name of a row cuts all texts, the others one each: they share what they stand for. */
            const size_t n_texts = json_array_size(texts), only = k % n_texts;
            for (size_t t = k > 0 ? only : 0; t < (k > 0 ? only + 1 : n_texts); t++)
                n_different += check_text(pre, json_array_get(texts, t),
                                          json_array_get(json_object_get(one, "pieces"), t),
                                          ignore_merges, add_bos);
        }
    }
    (void)printf("%d names, %zu texts, %d different\n", n_names, json_array_size(texts),
                 n_different);
    assert_true(n_names >= 60);
    assert_int_equal(n_different, 0);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_cuts_as_its_models_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
