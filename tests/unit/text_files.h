/* text_files — builds small tokenizers for tests. */
#ifndef WEFT_TESTS_TEXT_FILES_H
#define WEFT_TESTS_TEXT_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "text/text.h"

/* The parts of a tokenizer.json, as JSON; NULL: the default in brackets. */
struct text_parts {
    const char *normalizer;     /* [null] */
    const char *pre_tokenizer;  /* [null] */
    const char *decoder;        /* [Fuse, or ByteLevel with `bytes`] */
    const char *post_processor; /* [null] */
    const char *added_tokens;   /* [[]] */
    const char *options;        /* further members of the model, each with a comma behind it */
    const char *merges;         /* [[]] */
    const char *const *words;   /* the vocabulary, NULL-terminated; ids in order */
    bool bytes; /* ids 0..255 are the bytes, in their printable form; the words come behind */
};

void text_build_json(struct weft_buf *out, const struct text_parts *parts);

/* Opens a tokenizer.json given as text. The first fails the test on an error. */
weft_tokenizer *text_open(const struct text_parts *parts);
weft_err text_try_open(const char *json, weft_tokenizer **tok_out, struct weft_errmsg *why);

/* The same for a GGUF file in memory. */
weft_err text_try_open_gguf(const void *bytes, size_t n, weft_tokenizer **tok_out,
                            struct weft_errmsg *why);

/* Fails the test unless `text` becomes the ids written in `want` ("1 2 3"). */
void text_expect(const weft_tokenizer *tok, const char *text, uint32_t flags, const char *want);
void text_expect_n(const weft_tokenizer *tok, const char *text, size_t len, uint32_t flags,
                   const char *want);

/* Ids of `text`; the caller frees them. Fails the test on an error. */
uint32_t *text_ids(const weft_tokenizer *tok, const char *text, size_t len, uint32_t flags,
                   size_t *n_out);

#endif
