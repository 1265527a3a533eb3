/* Characters, and the operations on strings that filters and methods share. */
#include <utf8proc.h>

#include "base/check.h"
#include "values/run.h"
#include "values/text.h"

/* --- characters ------------------------------------------------------------------------------- */

size_t wefti_tmpl_char_len(const char *at, const char *end) {
    WEFT_ASSERT(at < end);
    size_t len = weft_utf8_next(at, (size_t)(end - at));
    return len ? len : 1;
}

uint32_t wefti_tmpl_char_get(const char *at, const char *end, size_t *len_out) {
    *len_out = 1;
    if (!weft_utf8_next(at, (size_t)(end - at))) return WEFT_UTF8_REPLACEMENT_CODE;
    return weft_utf8_get(at, len_out);
}

size_t wefti_tmpl_str_chars(struct weft_str text) {
    size_t n = 0;
    for (const char *at = text.data, *end = at + text.len; at < end; n++)
        at += wefti_tmpl_char_len(at, end);
    return n;
}

size_t wefti_tmpl_char_at(struct weft_str text, size_t n_chars) {
    const char *at = text.data, *end = at + text.len;
    for (; n_chars > 0 && at < end; n_chars--)
        at += wefti_tmpl_char_len(at, end);
    return (size_t)(at - text.data);
}

bool wefti_tmpl_is_py_space(uint32_t code) {
    return weft_unicode_is_space(code) || (code >= 0x1C && code <= 0x1F);
}

/* --- strings ---------------------------------------------------------------------------------- */

/* Characters whose other case is several characters keep theirs, but for the sharp s. */
enum letter { LETTER_UPPER, LETTER_LOWER, LETTER_TITLE };

static void add_letter(uint32_t code, enum letter how, struct weft_buf *out) {
    static const uint32_t sharp_s = 0xDF;
    utf8proc_int32_t c = (utf8proc_int32_t)code;
    if (code == sharp_s && how != LETTER_LOWER)
        weft_buf_add_str(out, how == LETTER_UPPER ? "SS" : "Ss");
    else
        weft_utf8_put(out, (uint32_t)(how == LETTER_UPPER   ? utf8proc_toupper(c)
                                      : how == LETTER_TITLE ? utf8proc_totitle(c)
                                                            : utf8proc_tolower(c)));
}

static bool is_cased(uint32_t code) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

static bool is_lower(uint32_t code) {
    return utf8proc_tolower((utf8proc_int32_t)code) == (utf8proc_int32_t)code;
}

/* True where Jinja's title filter begins a word. */
static bool begins_word(uint32_t before) {
    return wefti_tmpl_is_py_space(before) ||
           (before < 0x80 && before && strchr("-({[<", (int)before));
}

static enum letter case_of(enum wefti_tmpl_case how, uint32_t code, uint32_t before, bool first) {
    switch (how) {
    case WEFTI_TMPL_CASE_UPPER:
        return LETTER_UPPER;
    case WEFTI_TMPL_CASE_LOWER:
        return LETTER_LOWER;
    case WEFTI_TMPL_CASE_SWAP:
        return is_lower(code) ? LETTER_UPPER : LETTER_LOWER;
    case WEFTI_TMPL_CASE_CAPITALIZE:
        return first ? LETTER_TITLE : LETTER_LOWER;
    case WEFTI_TMPL_CASE_TITLE:
        return is_cased(before) ? LETTER_LOWER : LETTER_TITLE;
    case WEFTI_TMPL_CASE_TITLE_WORDS:
        return begins_word(before) ? LETTER_UPPER : LETTER_LOWER;
    }
    return LETTER_LOWER;
}

weft_err wefti_tmpl_str_case(struct wefti_tmpl_run *run, struct weft_str text,
                             enum wefti_tmpl_case how, struct wefti_tmpl_value *out) {
    const char *end = text.data + text.len;
    struct weft_buf buf;
    uint32_t before = ' ';
    weft_err err = wefti_tmpl_charge(run, wefti_tmpl_chars_steps(text.len));
    if (err) return err;
    wefti_tmpl_buf_init(run, &buf);
    for (const char *at = text.data; at < end;) {
        size_t len;
        uint32_t code = wefti_tmpl_char_get(at, end, &len);
        if (len == 1 && code == WEFT_UTF8_REPLACEMENT_CODE)
            weft_buf_add(&buf, at, 1); /* an ill-formed byte stays as it is */
        else
            add_letter(code, case_of(how, code, before, at == text.data), &buf);
        before = code;
        at += len;
    }
    return wefti_tmpl_take_buf(run, &buf, out);
}

static bool is_among(const char *at, size_t len, struct weft_str chars) {
    if (!chars.data) {
        size_t n;
        return wefti_tmpl_is_py_space(wefti_tmpl_char_get(at, at + len, &n));
    }
    return chars.len >= len && memmem(chars.data, chars.len, at, len) != NULL;
}

weft_err wefti_tmpl_str_strip(struct wefti_tmpl_run *run, struct weft_str *text_io,
                              enum wefti_tmpl_sides sides, struct weft_str chars) {
    WEFT_ASSERT(sides >= WEFTI_TMPL_SIDE_LEFT);
    WEFT_ASSERT(sides <= WEFTI_TMPL_SIDES_BOTH);
    struct weft_str text = *text_io;
    const size_t steps = wefti_tmpl_bytes_steps(chars.len); /* of each look */
    weft_err err = WEFT_OK;
    while ((sides & WEFTI_TMPL_SIDE_LEFT) && text.len > 0) {
        size_t len = wefti_tmpl_char_len(text.data, text.data + text.len);
        err = wefti_tmpl_charge(run, steps);
        if (err || !is_among(text.data, len, chars)) break;
        text.data += len;
        text.len -= len;
    }
    while ((sides & WEFTI_TMPL_SIDE_RIGHT) && text.len > 0 && !err) {
        const char *end = text.data + text.len, *last = end - 1;
        while (last > text.data && end - last < 4 && ((unsigned char)*last & 0xC0) == 0x80)
            last--;
        if (wefti_tmpl_char_len(last, end) != (size_t)(end - last)) last = end - 1; /* ill-formed */
        err = wefti_tmpl_charge(run, steps);
        if (err || !is_among(last, (size_t)(end - last), chars)) break;
        text.len = (size_t)(last - text.data);
    }
    *text_io = text;
    return err;
}

/* Replaces the empty string: inserts `to` between all characters. */
static void replace_nothing(struct weft_str text, struct weft_str to, int64_t max,
                            struct weft_buf *out) {
    const char *at = text.data, *end = at + text.len;
    for (; at < end && max != 0 && !out->failed; max--) {
        size_t len = wefti_tmpl_char_len(at, end);
        weft_buf_add(out, to.data, to.len);
        weft_buf_add(out, at, len);
        at += len;
    }
    if (at == end && max != 0) weft_buf_add(out, to.data, to.len);
    weft_buf_add(out, at, (size_t)(end - at));
}

weft_err wefti_tmpl_str_replace(struct wefti_tmpl_run *run, struct weft_str text,
                                struct weft_str from, struct weft_str to, int64_t max,
                                struct wefti_tmpl_value *out) {
    struct weft_buf buf;
    const char *at = text.data, *end = at + text.len;
    wefti_tmpl_buf_init(run, &buf);
    if (from.len == 0) {
        replace_nothing(text, to, max, &buf);
        return wefti_tmpl_take_buf(run, &buf, out);
    }
    for (; max != 0 && at < end && !buf.failed; max--) {
        const char *found = memmem(at, (size_t)(end - at), from.data, from.len);
        if (!found) break;
        weft_buf_add(&buf, at, (size_t)(found - at));
        weft_buf_add(&buf, to.data, to.len);
        at = found + from.len;
    }
    weft_buf_add(&buf, at, (size_t)(end - at));
    weft_err err = wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(text.len));
    if (!err) return wefti_tmpl_take_buf(run, &buf, out);
    weft_buf_fini(&buf);
    return err;
}

weft_err wefti_tmpl_str_pad(struct wefti_tmpl_run *run, struct weft_str text, int64_t width,
                            enum wefti_tmpl_align align, struct weft_str fill,
                            struct wefti_tmpl_value *out) {
    WEFT_ASSERT(fill.len > 0 && wefti_tmpl_char_len(fill.data, fill.data + fill.len) == fill.len);
    int64_t n = (int64_t)wefti_tmpl_str_chars(text), pad = width - n, left = 0;
    struct weft_buf buf;
    if (pad <= 0) {
        *out = wefti_tmpl_of_str(text.data, text.len);
        return wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(text.len));
    }
    if (pad > (int64_t)(run->arena_max < UINT32_MAX ? run->arena_max : UINT32_MAX))
        return wefti_tmpl_too_big(run);
    wefti_tmpl_buf_init(run, &buf);
    if (align == WEFTI_TMPL_ALIGN_RIGHT || align == WEFTI_TMPL_ALIGN_NUMBER) left = pad;
    if (align == WEFTI_TMPL_ALIGN_CENTER) left = pad / 2 + (pad & width & 1); /* as Python rounds */
    if (align == WEFTI_TMPL_ALIGN_NUMBER && text.len > 0 &&
        (text.data[0] == '-' || text.data[0] == '+')) {
        weft_buf_add_char(&buf, text.data[0]);
        text.data++;
        text.len--;
    }
    weft_err err = wefti_tmpl_charge(run, wefti_tmpl_chars_steps(text.len) + (size_t)pad / 8);
    for (int64_t i = 0; i < left && !err && !buf.failed; i++)
        weft_buf_add(&buf, fill.data, fill.len);
    weft_buf_add(&buf, text.data, text.len);
    for (int64_t i = left; i < pad && !err && !buf.failed; i++)
        weft_buf_add(&buf, fill.data, fill.len);
    if (!err) return wefti_tmpl_take_buf(run, &buf, out);
    weft_buf_fini(&buf);
    return err;
}

/* Length of the line end at `at`; 0: none. */
static size_t line_end(const char *at, const char *end) {
    size_t len;
    uint32_t code = wefti_tmpl_char_get(at, end, &len);
    if (code == '\r' && end - at > 1 && at[1] == '\n') return 2;
    bool ends = (code >= '\n' && code <= '\r') || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
                code == 0x2028 || code == 0x2029;
    return ends ? len : 0;
}

weft_err wefti_tmpl_str_lines(struct wefti_tmpl_run *run, struct weft_str text,
                              struct wefti_tmpl_value *out) {
    const char *at = text.data, *from = at, *end = at + text.len;
    struct wefti_tmpl_list list = {0};
    weft_err err = wefti_tmpl_charge(run, wefti_tmpl_chars_steps(text.len));
    while (at < end && !err) {
        size_t len = line_end(at, end);
        if (!len) {
            at += wefti_tmpl_char_len(at, end);
            continue;
        }
        err = wefti_tmpl_list_add(run, &list, wefti_tmpl_of_str(from, (size_t)(at - from)));
        from = at += len;
    }
    if (!err && from < end)
        err = wefti_tmpl_list_add(run, &list, wefti_tmpl_of_str(from, (size_t)(end - from)));
    *out = wefti_tmpl_of_list(&list, WEFTI_TMPL_LIST);
    return err;
}
