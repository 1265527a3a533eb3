/* lora — reads LoRA adapters: PEFT folders and GGUF files to one description.
 *
 * Model    An adapter adds scale * B (A x) to the output of some matrices of a model. It is a list of
 *          parts, one per matrix it changes: A [rank, k] and B [n, rank] of that matrix [n, k]. Every
 *          part is checked against the model's shapes when the adapter is opened.
 * Input    Files are untrusted, as a model's are (model.h): what does not fit is refused in one
 *          sentence that names the file and the tensor or setting.
 * Order    A GGUF converter may permute the rows of q and k. Rows of B come in the order of the rows
 *          of the model that was opened, whichever of the two is a GGUF file.
 * Threads  After opening, everything is const and may be read from any thread.
 * Source   Hu et al. 2021 (LoRA); Kalajdzievski 2023 (rank-stabilised scale); PEFT's
 *          adapter_config.json; llama.cpp's convert_lora_to_gguf.py. */
#ifndef WEFT_MODEL_LORA_H
#define WEFT_MODEL_LORA_H

#include <stddef.h>
#include <stdint.h>

#include "base/request.h"
#include "model/model.h"

#define WEFT_LORA_RANK_MAX 256u

/* The matrices that an adapter may change, by their place in struct weft_model_layer. */
enum weft_lora_role {
    WEFT_LORA_Q, /* wq */
    WEFT_LORA_K, /* wk */
    WEFT_LORA_V, /* wv */
    WEFT_LORA_O,
    WEFT_LORA_GATE, /* of a plain layer, of the shared expert, or of an expert */
    WEFT_LORA_UP,
    WEFT_LORA_DOWN,
    WEFT_LORA_Q_A, /* wq_a */
    WEFT_LORA_ATTN_GATE,
    WEFT_LORA_REC_OUT, /* the last matrix of a recurrent layer */
    WEFT_LORA_ROLE_COUNT,
};

#define WEFT_LORA_NO_EXPERT UINT32_MAX

struct weft_lora_part {
    uint32_t layer;
    uint32_t expert; /* WEFT_LORA_NO_EXPERT: not of a routed one */
    enum weft_lora_role role;
    uint32_t rank, n, k;
    float scale; /* alpha / rank, or what else the adapter asks for */
    /* Views into the file; rows are read by the functions below. */
    struct weft_tensor a, b;
    uint32_t b_row;     /* where its rows of b begin: a tensor may be of several matrices */
    uint32_t run, step; /* of each `step` rows of b from there on the first `run`; 0: all */
    uint32_t head_dim;  /* of rows that lie in another order in the file; 0: in the same */
    bool from_pairs;    /* pairs (2i, 2i + 1) there are halves (i, i + head_dim / 2) here; else the
                          other way round */
};

/* What an adapter is for. */
struct weft_lora_base {
    const struct weft_model_params *params;
    enum weft_model_format format;
    uint32_t rank_max;    /* 1..WEFT_LORA_RANK_MAX */
    uint64_t numbers_max; /* in all of its matrices; 0: as many as the model and the rank ask for */
};

typedef struct weft_lora weft_lora;

/* Opens the PEFT folder or GGUF file at `path` as an adapter of `base`, which is borrowed for the
 * call; the files are read into memory, and may change or go afterwards. *lora_out is the caller's,
 * to free. NOTFOUND, IO, PROTO (malformed, or it does not fit the model), UNSUPPORTED (a method
 * that is not plain LoRA, a matrix that cannot be adapted, an encoder, or a GGUF file for another
 * architecture), TOOBIG (a rank, or expressions that take too long), FULL (more than numbers_max,
 * by the size of its file), NOMEM. */
WEFT_MUST_CHECK weft_err weft_lora_open(const char *path, const struct weft_lora_base *base,
                                        weft_lora **lora_out, struct weft_errmsg *why);
void weft_lora_free(weft_lora *lora); /* accepts NULL */

/* By layer, expert (none last) and role; no two of the same matrix. The adapter's. */
const struct weft_lora_part *weft_lora_parts(const weft_lora *lora, size_t *n_out);

/* Of the values and where they belong: equal ones compute the same. Never zero. */
struct weft_digest weft_lora_digest(const weft_lora *lora);

/* Row `row` of A, out[k], and of B, out[rank], as f32. */
void weft_lora_a_row(const struct weft_lora_part *part, uint32_t row, float *out);
void weft_lora_b_row(const struct weft_lora_part *part, uint32_t row, float *out);

#endif
