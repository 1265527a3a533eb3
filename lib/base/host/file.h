/* base/file — files opened and read whole, within a bound. */
#ifndef WEFT_BASE_FILE_H
#define WEFT_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

/* Opens a regular file of at most `bytes_max` for reading: *fd_out is the caller's, to close. It
 * neither waits (for the writer of a FIFO) nor takes a terminal. NOTFOUND, IO, PROTO (not a regular
 * file), TOOBIG. */
WEFT_MUST_CHECK weft_err weft_file_open(const char *path, uint64_t bytes_max, int *fd_out,
                                        size_t *n_bytes_out, struct weft_errmsg *why);

/* Reads up to `n_bytes` from where `fd` stands; fewer only at the end of the file. */
WEFT_MUST_CHECK weft_err weft_file_fill(int fd, const char *path, void *bytes, size_t n_bytes,
                                        size_t *n_read_out, struct weft_errmsg *why);

/* PROTO, with what to do: `bytes` begin a Git LFS pointer, which stands where a large file of a
 * repository was not fetched. */
#define WEFT_FILE_LFS_BYTES 42 /* enough of it to tell */
WEFT_MUST_CHECK weft_err weft_file_check_lfs(const char *path, const void *bytes, size_t n_bytes,
                                             struct weft_errmsg *why);

enum weft_file_kind {
    WEFT_FILE_REGULAR, /* as for weft_file_open: files of models, which strangers make */
    WEFT_FILE_ANY,     /* pipes and devices, too, however long it takes: a person names them */
};

/* All of a file of at most `bytes_max`, terminated; *text_out is malloc'd. Errors as above (a
 * pointer's of REGULAR ones only) and NOMEM. */
WEFT_MUST_CHECK weft_err weft_file_read(const char *path, enum weft_file_kind kind,
                                        size_t bytes_max, char **text_out, size_t *len_out,
                                        struct weft_errmsg *why);

/* As mkostemp(3), but with the rights that a new file has, and not for its owner alone. */
int weft_file_open_temp(char *path);

/* A file that takes another's place once it is whole; until then, what was there stays. */
struct weft_file_fresh {
    FILE *out;        /* to be written */
    char *path;       /* the name it gets */
    char *fresh_path; /* the one it has; NULL: `path` is a pipe or a device, and written itself */
};

/* Begins one. NOTFOUND, IO (the folder takes no file, too), NOMEM. */
WEFT_MUST_CHECK weft_err weft_file_fresh_open(const char *path, struct weft_file_fresh *fresh,
                                              struct weft_errmsg *why);
/* Gives it its name; the end of `fresh` in any case. IO: it is not whole, and the old one stays. */
WEFT_MUST_CHECK weft_err weft_file_fresh_keep(struct weft_file_fresh *fresh,
                                              struct weft_errmsg *why);
/* Removes it; nothing to do after its end, or before its beginning if it is all zeros. */
void weft_file_fresh_drop(struct weft_file_fresh *fresh);

#endif
