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
                          size_t n_chars); /* the byte where that one begins */
bool wefti_tmpl_is_py_space(uint32_t code);
/* U+FFFD for an ill-formed byte. */
uint32_t wefti_tmpl_char_get(const char *at, const char *end, size_t *len_out);

/* Strings, shared by filters and methods. */
weft_err
wefti_tmpl_str_case(struct wefti_tmpl_run *run, struct weft_str text, int how,
                    struct wefti_tmpl_value *out); /* 'u' 'l' 't'itle 'c'apitalize 's'wap */
/* sides: 1 left, 2 right, 3 both; `chars` NULL data: white space. */
weft_err wefti_tmpl_str_strip(struct wefti_tmpl_run *run, struct weft_str *text_io, int sides,
                              struct weft_str chars);
weft_err wefti_tmpl_str_replace(struct wefti_tmpl_run *run, struct weft_str text,
                                struct weft_str from, struct weft_str to, int64_t max,
                                struct wefti_tmpl_value *out);
weft_err wefti_tmpl_str_pad(struct wefti_tmpl_run *run, struct weft_str text, int64_t width,
                            char how, struct weft_str fill,
                            struct wefti_tmpl_value *out); /* 'l' 'r' 'c' 'z' */
/* Cuts at line ends; they are left out. */
weft_err wefti_tmpl_str_lines(struct wefti_tmpl_run *run, struct weft_str text,
                              struct wefti_tmpl_value *out);

#endif
