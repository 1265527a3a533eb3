/* Whether a prompt's end opened thoughts. */
#include "format.h"

/* Where `mark` stands last in `text`; SIZE_MAX: nowhere. */
static size_t find_last(struct weft_str text, const char *mark) {
    size_t len = strlen(mark);
    for (size_t at = text.len; at >= len; at--) {
        if (memcmp(text.data + at - len, mark, len) == 0) return at - len;
    }
    return SIZE_MAX;
}

static bool is_blank_from(struct weft_str text, size_t at) {
    for (; at < text.len; at++) {
        if (!strchr(" \n\t\r", text.data[at]) || text.data[at] == '\0') return false;
    }
    return true;
}

/* A mark decides only where nothing but blanks follows it: what a user writes is not the prompt's doing. */
enum weft_msg_thinking weft_msg_thinking_after(const weft_msg_format *format,
                                               struct weft_str prompt_end) {
    if (!format->think_begin) return WEFT_MSG_THINKS_NOT;
    size_t begin = find_last(prompt_end, format->think_begin);
    if (begin != SIZE_MAX && is_blank_from(prompt_end, begin + strlen(format->think_begin)))
        return WEFT_MSG_THINKS_OPEN;
    size_t end = find_last(prompt_end, format->think_end);
    if (end != SIZE_MAX && is_blank_from(prompt_end, end + strlen(format->think_end)))
        return WEFT_MSG_THINKS_NOT;
    return WEFT_MSG_THINKS_MAYBE;
}
