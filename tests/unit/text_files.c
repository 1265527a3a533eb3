#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/model_files.h"
#include "unit/text_files.h"

/* GPT-2's printable form of a byte, written as in lib/text's description, not by its code. */
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
    weft_err err = weft_text_open(dir, tok_out, why);
    test_dir_free(dir);
    return err;
}

weft_err text_try_open_gguf(const void *bytes, size_t n, weft_tokenizer **tok_out,
                            struct weft_errmsg *why) {
    char *dir = test_dir_new(), path[4096];
    test_dir_write(dir, "t.gguf", bytes, n);
    (void)snprintf(path, sizeof path, "%s/t.gguf", dir);
    weft_err err = weft_text_open(path, tok_out, why);
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
    if (weft_text_encode(tok, text, len, flags, SIZE_MAX / 64, &ids, n_out, &why))
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
