/* base/json_escape — the characters that a JSON string may not hold as they are.
 *
 * This is the one list of escapes, for log lines (which take no memory, so they can use no buffer),
 * codec's writer, the template's tojson and the commands. The forms are those of Python's json
 * module, which prompts depend on. */
#ifndef WEFT_BASE_JSON_ESCAPE_H
#define WEFT_BASE_JSON_ESCAPE_H

#include <stddef.h>

#define WEFT_JSON_ESCAPE_BYTES_MAX 6 /* \u001f */

/* Writes what stands for the byte `c` in a JSON string and returns its length, or 0: `c` stands for
 * itself (or is part of a longer character). */
size_t weft_json_escape(char c, char out[WEFT_JSON_ESCAPE_BYTES_MAX]);

#endif
