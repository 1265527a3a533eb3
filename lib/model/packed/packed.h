/* model/packed — weft's own files: header, sections, and what reading and writing share. */
#ifndef WEFT_MODEL_PACKED_H
#define WEFT_MODEL_PACKED_H

#include "model_internal.h"

#define WEFTI_MODEL_PACKED_MAGIC "WEFTPACK"
#define WEFTI_MODEL_PACKED_HASH_AT 96u /* the header's own sum, of all before it */
#define WEFTI_MODEL_PACKED_SECTIONS_MAX 64u
#define WEFTI_MODEL_PACKED_META_BYTES_MAX ((uint64_t)1 << 32)

/* What a packed file says of its source, and where its header's sum stands, are facts of the format:
 * another number is another WEFT_PACKED_VERSION. */
_Static_assert(WEFT_MODEL_HF == 0, "as in files that are there");
_Static_assert(WEFT_MODEL_GGUF == 1, "as in files that are there");
_Static_assert(sizeof WEFTI_MODEL_PACKED_MAGIC - 1 == 8, "what the version follows");
_Static_assert(8 + 2 * sizeof(uint32_t) + 4 * sizeof(uint64_t) + 2 * sizeof(uint32_t) +
                       sizeof((struct weft_packed){0}.packed_as) + sizeof(uint64_t) ==
                   WEFTI_MODEL_PACKED_HASH_AT,
               "the sum follows what it is of");
_Static_assert(WEFTI_MODEL_PACKED_HASH_AT + sizeof(uint64_t) <= WEFT_PACKED_PAGE,
               "the header is one page");

/* What the header says, and where the sections lie, which were walked once. */
struct wefti_model_packed_view {
    struct weft_packed facts;
    enum weft_model_format format;
    uint32_t n_sections;
    const unsigned char *sections;
    size_t sections_bytes;
};

/* Whether the file begins as a packed one. */
bool wefti_model_packed_is(const void *bytes, size_t n);
/* Header, sums and sections. PROTO: damaged; UNSUPPORTED: of another version. */
WEFT_MUST_CHECK weft_err wefti_model_packed_parse(const struct wefti_model_file *file,
                                                  struct wefti_model_packed_view *view_out,
                                                  struct weft_errmsg *why);
/* False: there is no such section. */
bool wefti_model_packed_find(const struct wefti_model_packed_view *view, const char *name,
                             struct weft_str *section_out);
/* Reduces a packed file (which stays mapped) to its "gguf" section. */
WEFT_MUST_CHECK weft_err wefti_model_packed_narrow_to_gguf(struct wefti_model_file *file,
                                                           struct weft_errmsg *why);
/* A whole model from a packed file, which is moved, also on failure. */
WEFT_MUST_CHECK weft_err wefti_model_from_packed(struct wefti_model_file *file,
                                                 weft_model **model_out, struct weft_errmsg *why);

#endif
