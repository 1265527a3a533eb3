/* text — characters and strings; an ill-formed byte counts as one character. */
#ifndef WEFT_TMPL_TEXT_H
#define WEFT_TMPL_TEXT_H

#include "codec/unicode.h"
#include "codec/utf8.h"
#include "values/value.h"

/* Characters: an ill-formed byte counts as one. */
size_t wefti_tmpl_char_len(const char *at, const char *end);
size_t wefti_tmpl_str_chars(struct weft_str text);
size_t wefti_tmpl_char_at(struct weft_str text,
                          size_t n_chars); /* the byte where that character begins */
bool wefti_tmpl_is_py_space(uint32_t code);
/* U+FFFD for an ill-formed byte. */
uint32_t wefti_tmpl_char_get(const char *at, const char *end, size_t *len_out);

/* Strings, shared by filters and methods. */
enum wefti_tmpl_case {
    WEFTI_TMPL_CASE_UPPER,
    WEFTI_TMPL_CASE_LOWER,
    WEFTI_TMPL_CASE_SWAP,
    WEFTI_TMPL_CASE_CAPITALIZE,
    WEFTI_TMPL_CASE_TITLE,       /* Python's: a word begins where no letter precedes */
    WEFTI_TMPL_CASE_TITLE_WORDS, /* Jinja's filter: where a space or an opening bracket does */
};
weft_err wefti_tmpl_str_case(struct wefti_tmpl_run *run, struct weft_str text,
                             enum wefti_tmpl_case how, struct wefti_tmpl_value *out);

enum wefti_tmpl_sides {
    WEFTI_TMPL_SIDE_LEFT = 1,
    WEFTI_TMPL_SIDE_RIGHT = 2,
    WEFTI_TMPL_SIDES_BOTH = WEFTI_TMPL_SIDE_LEFT | WEFTI_TMPL_SIDE_RIGHT,
};
/* `chars` with NULL data: white space. */
weft_err wefti_tmpl_str_strip(struct wefti_tmpl_run *run, struct weft_str *text_io,
                              enum wefti_tmpl_sides sides, struct weft_str chars);
weft_err wefti_tmpl_str_replace(struct wefti_tmpl_run *run, struct weft_str text,
                                struct weft_str from, struct weft_str to, int64_t max,
                                struct wefti_tmpl_value *out);

enum wefti_tmpl_align {
    WEFTI_TMPL_ALIGN_LEFT,
    WEFTI_TMPL_ALIGN_RIGHT,
    WEFTI_TMPL_ALIGN_CENTER,
    WEFTI_TMPL_ALIGN_NUMBER, /* right, but a sign stays in front of the fill */
};
/* `fill`: one character. */
weft_err wefti_tmpl_str_pad(struct wefti_tmpl_run *run, struct weft_str text, int64_t width,
                            enum wefti_tmpl_align align, struct weft_str fill,
                            struct wefti_tmpl_value *out);
/* Cuts at line ends; they are left out. */
weft_err wefti_tmpl_str_lines(struct wefti_tmpl_run *run, struct weft_str text,
                              struct wefti_tmpl_value *out);

#endif
