/* model/file — files mapped or read, and text out of them made fit for messages. Every reader works
 * on bytes in memory, so a fuzzer can pass a heap block of the exact size and the sanitizer sees a
 * read one byte too far. */
#ifndef WEFT_MODEL_FILE_H
#define WEFT_MODEL_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"

struct wefti_model_file {
    char *path; /* owned; for messages */
    const unsigned char *bytes;
    size_t n_bytes;
    void *map; /* of the file, or memory; NULL: the bytes are somebody else's (tests) */
    size_t map_bytes;
    bool is_mapped; /* `map` is the file, not a copy */
};

enum wefti_model_file_way {
    WEFTI_MODEL_FILE_MAPPED, /* costs no memory; whoever cuts the file kills who reads it (SIGBUS) */
    WEFTI_MODEL_FILE_COPIED, /* whoever changes the file harms nobody */
};

/* A regular, non-empty file of at most `max_bytes`. PROTO: it is empty, or was cut meanwhile. */
WEFT_MUST_CHECK weft_err wefti_model_file_open(const char *path, enum wefti_model_file_way way,
                                               uint64_t max_bytes,
                                               struct wefti_model_file *file_out,
                                               struct weft_errmsg *why);
/* The same, mapped: of a file that stays as it is while the process lives, as a model's do. */
WEFT_MUST_CHECK weft_err wefti_model_file_map(const char *path, uint64_t max_bytes,
                                              struct wefti_model_file *file_out,
                                              struct weft_errmsg *why);
/* Lets go of the pages of a mapped file that have a byte of data..data + n_bytes, if it is this file's. */
void wefti_model_file_forget(const struct wefti_model_file *file, const void *data, size_t n_bytes);
/* A file that is `bytes`; they outlive it. */
WEFT_MUST_CHECK weft_err wefti_model_file_borrow(const char *label, const void *bytes,
                                                 size_t n_bytes, struct wefti_model_file *file_out,
                                                 struct weft_errmsg *why);
void wefti_model_file_close(struct wefti_model_file *file); /* the file is all zero afterwards */
/* write(2) until all is written at `at`. */
WEFT_MUST_CHECK weft_err wefti_model_file_put(int fd, const char *path, const void *bytes,
                                              size_t n_bytes, uint64_t at, struct weft_errmsg *why);

/* Text from a file, fit for a message: cut, with '?' for all that is not printable ASCII. */
struct wefti_model_shown {
    char text[100];
};
struct wefti_model_shown wefti_model_show(const char *text, size_t len);

#endif
