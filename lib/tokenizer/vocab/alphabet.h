/* alphabet — how byte-level vocabularies write bytes, and SentencePiece spaces. */
#ifndef WEFT_TOK_ALPHABET_H
#define WEFT_TOK_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

#define WEFTI_TOK_MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */

/* The byte that a character of a byte-level vocabulary stands for; -1: not in that alphabet. */
int wefti_tok_byte_of_char(uint32_t code);
uint32_t wefti_tok_char_of_byte(unsigned char byte);

/* Appends the bytes that a byte-level entry stands for. False, and nothing appended: one of its
 * characters is not in that alphabet. */
bool wefti_tok_bytes_of_chars(const char *text, size_t len, struct weft_buf *out);

/* Appends a SentencePiece entry as what it decodes to: U+2581 becomes a space. */
void wefti_tok_add_unmarked(struct weft_buf *out, struct weft_str text);

#endif
