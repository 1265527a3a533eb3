/* The alphabet of byte-level vocabularies: each byte as a printable character. */
#include "vocab/alphabet.h"
#include "codec/utf8.h"

/* GPT-2's alphabet: a printable byte of Latin-1 is itself; the 68 others (controls, space, DEL,
 * 0x80..0xA0, soft hyphen) are U+0100 and up, in order. */
static bool is_printable_byte(uint32_t c) {
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD);
}

uint32_t wefti_tok_char_of_byte(unsigned char byte) {
    if (is_printable_byte(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte <= 0xA0) return 0x121u + (byte - 0x7Fu);
    return 0x143u; /* 0xAD */
}

int wefti_tok_byte_of_char(uint32_t code) {
    if (code < 0x100) return is_printable_byte(code) ? (int)code : -1;
    if (code <= 0x120) return (int)(code - 0x100);
    if (code <= 0x142) return (int)(code - 0x121 + 0x7F);
    return code == 0x143 ? 0xAD : -1;
}

bool wefti_tok_bytes_of_chars(const char *text, size_t len, struct weft_buf *out) {
    size_t before = out->len;
    for (size_t at = 0, n; at < len; at += n) {
        int byte = wefti_tok_byte_of_char(weft_utf8_get(text + at, &n));
        if (byte < 0) {
            out->len = before;
            return false;
        }
        weft_buf_add_char(out, (char)byte);
    }
    return true;
}

void wefti_tok_add_unmarked(struct weft_buf *out, struct weft_str text) {
    static const char mark[] = WEFTI_TOK_MARK;
    for (size_t at = 0; at < text.len;) {
        bool marked = text.len - at >= 3 && memcmp(text.data + at, mark, 3) == 0;
        weft_buf_add_char(out, marked ? ' ' : text.data[at]);
        at += marked ? 3 : 1;
    }
}
