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
    WEFTI_MODEL_PIECE_GROUPS, /* GPTQ: of each column, where they do not follow from its number */
    WEFTI_MODEL_PIECE_NESTED_SCALES, /* NF4: for scales that are codes, and what codes stand for */
    WEFTI_MODEL_PIECE_NESTED_VALUES,
    WEFTI_MODEL_PIECE_COUNT,
};

struct wefti_model_piece_data {
    const unsigned char *at; /* NULL: there is none */
    size_t bytes;
};

struct weft_parts {
    struct weft_model_quant quant;
    uint64_t n, k;                /* rows and columns of the weight */
    uint64_t scale_cols;          /* FP8: blocks of columns */
    uint64_t group, n_groups;     /* GPTQ and AWQ: columns in a group, and how many there are */
    uint64_t block, nested_block; /* NF4: weights to a scale, and scales to one of theirs */
    float nested_offset;
    enum weft_dtype scale_dtype; /* F32, F16 or BF16; of NF4 F32 or U8 */
    struct wefti_model_piece_data pieces[WEFTI_MODEL_PIECE_COUNT];
};

/* What the codes of NF4 stand for. */
extern const float wefti_model_nf4_values[16];

/* Row `row` as f32. */
void wefti_model_parts_row_f32(const struct weft_parts *parts, uint64_t row, float *out);
/* Over all of its pieces. */
uint64_t wefti_model_parts_hash(const struct weft_tensor *tensor, uint64_t seed);

float wefti_model_f32_from_bits(uint32_t bits);
float wefti_model_f32_from_f16(uint16_t half);

#endif
