#include "json_text.h"

#include "base/json_escape.h"

void weft_print_json_ids(FILE *out, const uint32_t *ids, size_t n) {
    (void)fputc('[', out);
    for (size_t i = 0; i < n; i++)
        (void)fprintf(out, "%s%u", i ? ", " : "", ids[i]);
    (void)fputc(']', out);
}

void weft_print_json_string(FILE *out, const char *text, size_t len) {
    (void)fputc('"', out);
    for (size_t i = 0; i < len; i++) {
        char escaped[WEFT_JSON_ESCAPE_BYTES_MAX];
        size_t n = weft_json_escape(text[i], escaped);
        (void)fwrite(n ? escaped : text + i, 1, n ? n : 1, out);
    }
    (void)fputc('"', out);
}
