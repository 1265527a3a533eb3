/* data/dtype — the types that weights have in files, in memory and in products: one row each, with
 * all there is to say of a type except what is done with its bits. lib/kernels makes the kinds of
 * products from this list and adds how a type lies in a panel (quant.h); lib/model takes the
 * numbers in files from it.
 *
 * The order of the rows means nothing and is in no file: numbers in files are columns. */
#ifndef WEFT_BASE_DTYPE_H
#define WEFT_BASE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/* What a type is for:
 *   FLOAT   plain numbers, of vectors and matrices
 *   BLOCKS  quantised blocks along a row, as in GGML
 *   FOLDER  what quantised weights of Hugging Face folders become (struct weft_parts); --dtype
 *           makes I8 of others, too
 *   PIECE   what weights of folders are put together from; no tensor of an opened model has it */
enum weft_dtype_class {
    WEFT_DTYPE_FLOAT,
    WEFT_DTYPE_BLOCKS,
    WEFT_DTYPE_FOLDER,
    WEFT_DTYPE_PIECE,
};

/* X(ID, name, class, elements of a block, bytes of a block, number in files,
 *   number in the hash of a packed file's layout, products)
 *
 * Numbers in files below 256 are GGUF's, for FLOAT and BLOCKS; the others are weft's own, for
 * packed files, and those of pieces are in no file. They never change, nor do the numbers in the
 * hash, where a new type takes the next one (33): else packed files could not be read.
 *
 * Products: EXACT, with f32 activations (WEFT_GEMM_ID_F32); BOTH, also with faster ones (WEFT_GEMM_ID); ALL,
 * the latter of 8 bits, and with bf16, to which weights are rounded (WEFT_GEMM_ID_BF16). */
/* clang-format off */
#define WEFT_DTYPES(X)                                                                             \
    X(F32,     "f32",     FLOAT,    1,   4,    0,  0, EXACT)                                       \
    X(F16,     "f16",     FLOAT,    1,   2,    1,  1, EXACT)                                       \
    X(BF16,    "bf16",    FLOAT,    1,   2,   30,  2, BOTH)                                        \
    X(Q8_0,    "q8_0",    BLOCKS,  32,  34,    8,  3, ALL)   /* f16 scale, 32 int8 */              \
    X(I8,      "i8",      FOLDER,   1,   1,  256,  9, BOTH)  /* an f32 scale per output feature */ \
    X(F8_E4M3, "f8_e4m3", FOLDER,   1,   1,  257, 15, EXACT) /* an f32 scale per 128 columns */    \
    X(NF4,     "nf4",     FOLDER,  64,  36,  259, 17, EXACT) /* f32 scale, 32 bytes of codes */    \
    X(Q4_G,    "q4_g",    FOLDER,  32,  83,  260, 18, EXACT) /* groups in any order */             \
    X(Q8_G,    "q8_g",    FOLDER,  32,  99,  261, 31, EXACT) /* the same of 8 bits */              \
    X(Q4_0,    "q4_0",    BLOCKS,  32,  18,    2,  4, ALL)                                         \
    X(Q4_1,    "q4_1",    BLOCKS,  32,  20,    3,  5, ALL)                                         \
    X(Q4_Z,    "q4_z",    FOLDER,  32,  19,  258, 16, ALL)   /* f16 scale, zero, 16 of codes */    \
    X(Q4_K,    "q4_k",    BLOCKS, 256, 144,   12,  6, ALL)                                         \
    X(Q5_K,    "q5_k",    BLOCKS, 256, 176,   13,  7, ALL)                                         \
    X(Q6_K,    "q6_k",    BLOCKS, 256, 210,   14,  8, ALL)                                         \
    X(Q2_K,    "q2_k",    BLOCKS, 256,  84,   10, 10, ALL)                                         \
    X(Q3_K,    "q3_k",    BLOCKS, 256, 110,   11, 11, ALL)                                         \
    X(Q5_1,    "q5_1",    BLOCKS,  32,  24,    7, 12, ALL)                                         \
    X(Q5_0,    "q5_0",    BLOCKS,  32,  22,    6, 13, ALL)                                         \
    X(IQ4_NL,  "iq4_nl",  BLOCKS,  32,  18,   20, 14, ALL)                                         \
    X(IQ4_XS,  "iq4_xs",  BLOCKS, 256, 136,   23, 19, ALL)                                         \
    X(IQ3_S,   "iq3_s",   BLOCKS, 256, 110,   21, 20, ALL)                                         \
    X(IQ3_XXS, "iq3_xxs", BLOCKS, 256,  98,   18, 21, ALL)                                         \
    X(IQ2_S,   "iq2_s",   BLOCKS, 256,  82,   22, 22, ALL)                                         \
    X(IQ2_XS,  "iq2_xs",  BLOCKS, 256,  74,   17, 23, ALL)                                         \
    X(IQ2_XXS, "iq2_xxs", BLOCKS, 256,  66,   16, 24, ALL)                                         \
    X(IQ1_M,   "iq1_m",   BLOCKS, 256,  56,   29, 25, ALL)                                         \
    X(IQ1_S,   "iq1_s",   BLOCKS, 256,  50,   19, 26, ALL)                                         \
    X(TQ2_0,   "tq2_0",   BLOCKS, 256,  66,   35, 27, ALL)                                         \
    X(TQ1_0,   "tq1_0",   BLOCKS, 256,  54,   34, 28, ALL)                                         \
    X(MXFP4,   "mxfp4",   BLOCKS,  32,  17,   39, 29, ALL)   /* e8m0 scale, 16 of e2m1 codes */    \
    X(NVFP4,   "nvfp4",   BLOCKS,  64,  36,   40, 30, ALL)   /* 4 e4m3 scales, 32 of codes */      \
    X(NVFP4_S, "nvfp4_s", FOLDER,  64,  40,  262, 32, ALL)   /* an f32 scale before NVFP4's block */\
    X(I32,     "i32",     PIECE,    1,   4, 1024, 62, NONE)                                        \
    X(U8,      "u8",      PIECE,    1,   1, 1025, 63, NONE)                                        \
    X(I64,     "i64",     PIECE,    1,   8, 1026, 61, NONE)
/* clang-format on */

#define WEFT_DTYPE_ENUM(id, ...) WEFT_DT_##id,
enum weft_dtype { WEFT_DTYPES(WEFT_DTYPE_ENUM) WEFT_DT_COUNT };
#undef WEFT_DTYPE_ENUM

/* Numbers in files below this are GGUF's. */
#define WEFT_DTYPE_GGUF_NUMBERS 256u

struct weft_dtype_facts {
    const char *id;   /* "Q4_K": its name in the specifications of GGUF and safetensors */
    const char *name; /* "q4_k" */
    enum weft_dtype_class class;
    uint32_t block_elems, block_bytes;
    uint32_t file_number, layout_number;
};
extern const struct weft_dtype_facts weft_dtypes[WEFT_DT_COUNT];

/* The type with a number in files. False (and F32) if there is none. */
bool weft_dtype_of_number(uint32_t number, enum weft_dtype *dtype_out);

static inline const char *weft_dtype_name(enum weft_dtype dtype) {
    return weft_dtypes[dtype].name;
}

/* Elements and bytes of one block (1 and the element size for plain types). */
static inline uint32_t weft_dtype_block_elems(enum weft_dtype dtype) {
    return weft_dtypes[dtype].block_elems;
}

static inline uint32_t weft_dtype_block_bytes(enum weft_dtype dtype) {
    return weft_dtypes[dtype].block_bytes;
}

static inline bool weft_dtype_is_float(enum weft_dtype dtype) {
    return weft_dtypes[dtype].class == WEFT_DTYPE_FLOAT;
}

#endif
