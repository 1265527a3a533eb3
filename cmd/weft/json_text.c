#include "json_text.h"

void weft_print_json_ids(FILE *out, const uint32_t *ids, size_t n) {
    (void)fputc('[', out);
    for (size_t i = 0; i < n; i++)
        (void)fprintf(out, "%s%u", i ? ", " : "", ids[i]);
    (void)fputc(']', out);
}

void weft_print_json_string(FILE *out, const char *text, size_t len) {
    (void)fputc('"', out);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            (void)fprintf(out, "\\%c", c);
        else if (c == '\n')
            (void)fputs("\\n", out);
        else if (c < 0x20)
            (void)fprintf(out, "\\u%04x", c);
        else
            (void)fputc(c, out);
    }
    (void)fputc('"', out);
}
