#include "base/json_escape.h"

#include <string.h>

#include "base/check.h"

size_t weft_json_escape(char c, char out[WEFT_JSON_ESCAPE_BYTES_MAX]) {
    static const char named[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf", hex[] = "0123456789abcdef";
    _Static_assert(sizeof named == sizeof names, "each has a name");
    unsigned char byte = (unsigned char)c;
    if (byte >= 0x20 && c != '"' && c != '\\') return 0;
    const char *found = byte ? strchr(named, c) : NULL;
    if (found) {
        out[0] = '\\';
        out[1] = names[found - named];
        return 2;
    }
    WEFT_ASSERT(byte < 0x20);
    memcpy(out, "\\u00", 4); /* NOLINT(bugprone-not-null-terminated-result): has a length */
    out[4] = hex[byte >> 4];
    out[5] = hex[byte & 15];
    return 6;
}
