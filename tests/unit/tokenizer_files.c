#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "base/utf8.h"
#include "unit/model_files.h"
#include "unit/tokenizer_files.h"

/* GPT-2's printable form of a byte, written from its description, not by lib/tokenizer's code. */
static uint32_t printable(unsigned byte) {
    uint32_t next = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool keep = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (b == byte) return keep ? b : next;
        if (!keep) next++;
    }
    return 0;
}

static void add_json_char(struct weft_buf *out, uint32_t code) {
    weft_buf_printf(out, "\\u%04x", code);
}

static const char *or_else(const char *text, const char *otherwise) {
    return text ? text : otherwise;
}

void text_build_json(struct weft_buf *out, const struct text_parts *parts) {
    weft_buf_printf(
        out,
        "{\"version\":\"1.0\",\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":%s,"
        "\"post_processor\":%s,\"added_tokens\":%s,\"model\":{\"type\":\"BPE\",%s"
        "\"merges\":%s,\"vocab\":{",
        or_else(parts->normalizer, "null"), or_else(parts->pre_tokenizer, "null"),
        or_else(parts->decoder, parts->bytes ? "{\"type\":\"ByteLevel\"}" : "{\"type\":\"Fuse\"}"),
        or_else(parts->post_processor, "null"), or_else(parts->added_tokens, "[]"),
        or_else(parts->options, ""), or_else(parts->merges, "[]"));
    unsigned id = 0;
    for (; parts->bytes && id < 256; id++) {
        weft_buf_add_str(out, id ? ",\"" : "\"");
        add_json_char(out, printable(id));
        weft_buf_printf(out, "\":%u", id);
    }
    for (const char *const *word = parts->words; word && *word; word++, id++)
        weft_buf_printf(out, "%s\"%s\":%u", id ? "," : "", *word, id);
    weft_buf_add_str(out, "}}}");
    assert_false(out->failed);
}

weft_err text_try_open(const char *json, weft_tokenizer **tok_out, struct weft_errmsg *why) {
    char *dir = test_dir_new();
    test_dir_write(dir, "tokenizer.json", json, strlen(json));
    weft_err err = weft_tok_open(dir, tok_out, why);
    test_dir_free(dir);
    return err;
}

weft_err text_try_open_gguf(const void *bytes, size_t n, weft_tokenizer **tok_out,
                            struct weft_errmsg *why) {
    char *dir = test_dir_new(), path[4096];
    test_dir_write(dir, "t.gguf", bytes, n);
    (void)snprintf(path, sizeof path, "%s/t.gguf", dir);
    weft_err err = weft_tok_open(path, tok_out, why);
    test_dir_free(dir);
    return err;
}

weft_tokenizer *text_open(const struct text_parts *parts) {
    struct weft_buf json;
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    weft_buf_init(&json, 1 << 20);
    text_build_json(&json, parts);
    if (text_try_open(weft_buf_cstr(&json), &tok, &why)) fail_msg("%s", why.text);
    weft_buf_fini(&json);
    return tok;
}

uint32_t *text_ids(const weft_tokenizer *tok, const char *text, size_t len, uint32_t flags,
                   size_t *n_out) {
    struct weft_errmsg why = {""};
    uint32_t *ids;
    if (weft_tok_encode(tok, &(struct weft_tok_input){{text, len}, flags, SIZE_MAX / 64}, &ids,
                        n_out, &why))
        fail_msg("%s", why.text);
    return ids;
}

void text_expect_n(const weft_tokenizer *tok, const char *text, size_t len, uint32_t flags,
                   const char *want) {
    size_t n;
    uint32_t *ids = text_ids(tok, text, len, flags, &n);
    struct weft_buf got;
    weft_buf_init(&got, 1 << 20);
    for (size_t i = 0; i < n; i++)
        weft_buf_printf(&got, "%s%u", i ? " " : "", ids[i]);
    assert_string_equal(weft_buf_cstr(&got), want);
    weft_buf_fini(&got);
    free(ids);
}

void text_expect(const weft_tokenizer *tok, const char *text, uint32_t flags, const char *want) {
    text_expect_n(tok, text, strlen(text), flags, want);
}

weft_tokenizer *text_open_path(const char *relative) {
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    if (weft_tok_open(test_source_path(relative), &tok, &why)) fail_msg("%s", why.text);
    return tok;
}

char *text_small_folder(void) {
    static const char *const words[] = {"<s>", "</s>", "<|eot|>", "a", NULL};
    char *dir = test_dir_new();
    struct weft_buf json;
    weft_buf_init(&json, 1 << 16);
    text_build_json(&json, &(struct text_parts){.words = words});
    test_dir_write(dir, "tokenizer.json", json.data, json.len);
    weft_buf_fini(&json);
    return dir;
}

void text_decode(const weft_tokenizer *tok, const uint32_t *ids, size_t n, struct weft_buf *out) {
    struct weft_detok detok;
    weft_detok_init(&detok, tok, false);
    for (size_t i = 0; i < n; i++)
        weft_detok_push(&detok, ids[i], out);
    weft_detok_finish(&detok, out);
}

size_t text_random(uint64_t *rand, char *text, size_t max) {
    static const char *const bits[] = {
        "a",      " ",          "the ",       "\n",     "\r\n", "1",  "\u00e9",   "\u4e00",  "'s",
        "\u0301", "<|im_end|>", "\U0001f600", "\u2581", ".",    "<|", "\xe2\x96", "\xf0\x9f"};
    size_t len = 0;
    uint32_t n = weft_rand_below(rand, 40);
    for (uint32_t i = 0; i < n; i++) {
        char byte = (char)weft_rand_next(rand);
        const char *bit = bits[weft_rand_below(rand, sizeof bits / sizeof *bits)];
        bool raw = weft_rand_below(rand, 3) == 0;
        size_t bit_len = raw ? 1 : strlen(bit);
        if (bit_len > max - len) break;
        memcpy(text + len, raw ? &byte : bit, bit_len);
        len += bit_len;
    }
    return len;
}

/* Whether some continuation makes the `n` bytes at `text` a character. */
static bool could_become_one(const char *text, size_t n) {
    static const char tails[] = {'\x80', '\x90', '\xA0'}; /* one of each range a second byte has */
    for (size_t len = n; len <= 4; len++) {
        for (size_t i = 0; i < sizeof tails; i++) {
            char whole[4] = {0, tails[i], '\x80', '\x80'};
            memcpy(whole, text, n);
            if (weft_utf8_valid(whole, len) && (unsigned char)whole[0] >= 0x80) return true;
        }
    }
    return false;
}

void text_sanitise(const char *text, size_t len, struct weft_buf *out) {
    for (size_t at = 0, n; at < len; at += n) {
        n = 1;
        while (n < 4 && n < len - at && !weft_utf8_valid(text + at, n) &&
               could_become_one(text + at, n + 1))
            n++;
        if (weft_utf8_valid(text + at, n))
            weft_buf_add(out, text + at, n);
        else
            weft_buf_add_str(out, "\uFFFD");
    }
}
