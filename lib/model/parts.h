/* parts, private to the model module — quantised weights of Hugging Face folders as the file has
 * them: codes, scales and the rest, each a tensor of its own. Everything is checked when they are
 * joined, so reading rows checks nothing. */
#ifndef WEFT_MODEL_PARTS_H
#define WEFT_MODEL_PARTS_H

#include "model_internal.h"

enum wefti_model_piece {
    WEFTI_MODEL_PIECE_CODES,
    WEFTI_MODEL_PIECE_SCALES,
    WEFTI_MODEL_PIECE_ZEROS,
    WEFTI_MODEL_PIECE_GROUPS,        /* of each column, where they do not follow from its number */
    WEFTI_MODEL_PIECE_NESTED_SCALES, /* NF4: for scales that are codes, and what codes stand for */
    WEFTI_MODEL_PIECE_NESTED_VALUES,
    WEFTI_MODEL_PIECE_COUNT,
};

/* What the form of whole numbers must be able to say. */
enum wefti_model_needs {
    WEFTI_MODEL_NEEDS_ZEROS = 1,  /* not all are the middle of the codes */
    WEFTI_MODEL_NEEDS_ORDER = 2,  /* groups of columns do not follow from these */
    WEFTI_MODEL_NEEDS_SCALES = 4, /* some that no f16 has */
};

struct wefti_model_piece_data {
    const unsigned char *at; /* NULL: there is none */
    size_t bytes;
};

/* Tensors of floats whose rows or elements are some of those of another tensor: of each `step` the first `run` after
 * `first`. */
enum wefti_model_view_kind {
    WEFTI_MODEL_VIEW_NONE,    /* pieces of a quantised weight */
    WEFTI_MODEL_VIEW_ROWS,    /* rows of a matrix, each as it is */
    WEFTI_MODEL_VIEW_COLUMNS, /* columns of one, which is stored turned: [in features, out features] */
    WEFTI_MODEL_VIEW_ELEMENTS, /* elements of a vector, which is then a row */
    WEFTI_MODEL_VIEW_JOINED,   /* rows of a quantised weight, which is in pieces itself */
    WEFTI_MODEL_VIEW_MXFP4, /* rows of gpt-oss's experts: codes in pairs, scales in the piece of their name */
};

struct wefti_model_view {
    enum wefti_model_view_kind kind;
    enum weft_dtype dtype; /* F32, F16 or BF16; of rows any */
    uint64_t first, run, step;
    uint64_t pitch; /* bytes from row to row in the other tensor */
};

struct weft_parts {
    struct wefti_model_view view; /* reads the codes' piece, which is all there is */
    const struct weft_parts *of;  /* the weight that a view of the kind JOINED reads */
    struct weft_parts *next_view; /* of the same model */
    struct weft_model_quant quant;
    uint64_t n, k;                /* rows and columns of the weight */
    uint64_t scale_rows;          /* rows that share scales; not of GPTQ, AWQ and NF4 */
    uint64_t group, n_groups;     /* columns that share one, and how many of these there are */
    uint32_t bits;                /* of a code that is a whole number: 4 or 8; 0: it is none */
    uint32_t needs;               /* of whole numbers: enum wefti_model_needs */
    uint64_t block, nested_block; /* NF4: weights to a scale, and scales to one of theirs */
    float nested_offset;
    enum weft_dtype scale_dtype; /* F32, F16 or BF16; of NF4 F32 or U8 */
    struct wefti_model_piece_data pieces[WEFTI_MODEL_PIECE_COUNT];
};

/* A view of the bytes of `whole`, or of the weight whose pieces it has; n x k, or a vector of k with n = 1. The model keeps and frees it. NULL: out of
 * memory. The caller has checked that all of it lies in `whole`. */
struct weft_parts *wefti_model_add_view(weft_model *model, const struct weft_tensor *whole,
                                        const struct wefti_model_view *view, uint64_t n,
                                        uint64_t k);
void wefti_model_free_views(weft_model *model);
/* Room for what no tensor of the file has as it is needed; the model's. NULL: out of memory. */
float *wefti_model_add_floats(weft_model *model, size_t n);

/* What the codes of NF4 stand for. */
extern const float wefti_model_nf4_values[16];

/* The scale of number `idx`, in the file's order. */
float wefti_model_parts_scale(const struct weft_parts *parts, uint64_t idx);
/* Row `row` as f32. */
void wefti_model_parts_row_f32(const struct weft_parts *parts, uint64_t row, float *out);
/* Over all of its pieces. */
uint64_t wefti_model_parts_hash(const struct weft_tensor *tensor, uint64_t seed);

float wefti_model_f32_from_bits(uint32_t bits);
float wefti_model_f32_from_f16(uint16_t half);
/* False: no f16 has exactly this value. */
bool wefti_model_f16_of_f32(float value, uint16_t *half_out);

#endif
