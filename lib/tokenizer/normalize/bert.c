/* The steps of BERT's normaliser that no other has: control characters out, Chinese characters into words of their
 * own, accents off. The rest of it, NFD and lower case, are steps of normalize.c. */
#include <utf8proc.h>

#include "codec/unicode.h"
#include "codec/utf8.h"
#include "normalize/normalize.h"

static utf8proc_category_t category(uint32_t code) {
    return utf8proc_category((utf8proc_int32_t)code);
}

static bool is_left_out(uint32_t code) {
    if (code == 0 || code == 0xFFFD) return true;
    if (code == '\t' || code == '\n' || code == '\r') return false;
    utf8proc_category_t kind = category(code);
    return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
           kind == UTF8PROC_CATEGORY_CO;
}

void wefti_tok_bert_clean(const struct weft_buf *in, struct weft_buf *out) {
    for (size_t at = 0, len; at < in->len; at += len) {
        uint32_t code = weft_utf8_get(in->data + at, &len);
        if (is_left_out(code)) continue;
        if (weft_unicode_is_space(code))
            weft_buf_add_char(out, ' ');
        else
            weft_buf_add(out, in->data + at, len);
    }
}

/* The blocks that BERT's authors named; Japanese and Korean letters are not among them. */
static bool is_chinese(uint32_t code) {
    static const struct {
        uint32_t first, last;
    } blocks[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                  {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    if (code < blocks[1].first) return false;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (code >= blocks[i].first && code <= blocks[i].last) return true;
    return false;
}

void wefti_tok_bert_isolate_chinese(const struct weft_buf *in, struct weft_buf *out) {
    for (size_t at = 0, len; at < in->len; at += len) {
        bool alone = is_chinese(weft_utf8_get(in->data + at, &len));
        if (alone) weft_buf_add_char(out, ' ');
        weft_buf_add(out, in->data + at, len);
        if (alone) weft_buf_add_char(out, ' ');
    }
}

void wefti_tok_bert_drop_marks(const struct weft_buf *in, struct weft_buf *out) {
    for (size_t at = 0, len; at < in->len; at += len) {
        uint32_t code = weft_utf8_get(in->data + at, &len);
        if (code < 0x300 || category(code) != UTF8PROC_CATEGORY_MN)
            weft_buf_add(out, in->data + at, len);
    }
}
