/* tokenizer_files — small tokenizers and random texts for tests. */
#ifndef WEFT_TESTS_TOKENIZER_FILES_H
#define WEFT_TESTS_TOKENIZER_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "tokenizer/tokenizer.h"

/* A pre-tokenizer that turns bytes into their printable form and splits nothing. */
#define TEXT_BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"

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
    bool bytes; /* ids 0..255 are the bytes, in their printable form; the words follow */
};

void text_build_json(struct weft_buf *out, const struct text_parts *parts);

/* Opens a tokenizer.json given as text. The first fails the test on an error. */
weft_tokenizer *text_open(const struct text_parts *parts);
weft_err text_try_open(const char *json, weft_tokenizer **tok_out, struct weft_errmsg *why);

/* The same for a GGUF file in memory. */
weft_err text_try_open_gguf(const void *bytes, size_t n, weft_tokenizer **tok_out,
                            struct weft_errmsg *why);

/* Opens one of the source tree's tokenizers, or fails the test. */
weft_tokenizer *text_open_path(const char *relative);

/* A folder with the tokenizer <s> </s> <|eot|> a (ids 0 to 3) in it, for test_dir_free. */
char *text_small_folder(void);

/* Fails the test unless `text` becomes the ids written in `want` ("1 2 3"). */
void text_expect(const weft_tokenizer *tok, const char *text, uint32_t flags, const char *want);
void text_expect_n(const weft_tokenizer *tok, const char *text, size_t len, uint32_t flags,
                   const char *want);

/* Ids of `text`; the caller frees them. Fails the test on an error. */
uint32_t *text_ids(const weft_tokenizer *tok, const char *text, size_t len, uint32_t flags,
                   size_t *n_out);

/* Adds the text of the ids, special tokens too. */
void text_decode(const weft_tokenizer *tok, const uint32_t *ids, size_t n, struct weft_buf *out);

/* Up to `max` bytes of words, marks, special tokens and ill-formed bytes; returns their number. */
size_t text_random(uint64_t *rand, char *text, size_t max);

/* Adds the text as UTF-8: each maximal ill-formed subpart becomes one U+FFFD. */
void text_sanitise(const char *text, size_t len, struct weft_buf *out);

#endif
