/* json_text — the little JSON that the commands print. */
#ifndef WEFT_CMD_WEFT_JSON_TEXT_H
#define WEFT_CMD_WEFT_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

void weft_print_json_ids(FILE *out, const uint32_t *ids, size_t n); /* [1, 2, 3] */

/* Quotes and escapes; bytes that are not UTF-8 must not be in it. */
void weft_print_json_string(FILE *out, const char *text, size_t len);

#endif
