/* engine/recurrent/states — what recurrent layers carry from token to token: of fixed size, however
 * long the sequence.
 *
 * Model    Places 0..n_places-1, each for one sequence, or for one that was kept as it was at some
 *          token. A place is one piece of memory, place_bytes long, with every recurrent layer's
 *          part in order: the last inputs of its convolution, then a matrix per head, both in the
 *          layouts of kernels.h. Who has which place is decided elsewhere.
 * Bytes    A place may be written to a file as it is, and be read into a place of another process
 *          that has the same shapes and the same bits of arithmetic. Any bytes will do: they are
 *          numbers, or NaN, whose sequence yields NaN. What lies between parts is zero.
 * Start    Nothing is cleared here: the kernels are told of a sequence's first token, and take
 *          zeros for what is there (is_first).
 * Threads  One owner opens and closes. Threads may work on different places, or on different parts
 *          of one.
 * Memory   Address space for all places from the start, resident as they are first used. */
#ifndef WEFT_ENGINE_STATES_H
#define WEFT_ENGINE_STATES_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "kernels/kernels.h"

/* What one layer carries, on this rank; zeroes: nothing. */
struct wefti_state_shape {
    uint32_t conv_width, n_channels;     /* width 0: no convolution, else 2..WEFT_CONV_WIDTH_MAX */
    uint32_t n_heads, n_rows, n_columns; /* of matrices; n_heads 0: there are none */
};

struct wefti_state_layer {
    struct wefti_state_shape shape;
    size_t conv_at, matrix_at; /* in a place, in bytes */
};

struct wefti_states {
    struct wefti_state_layer *layers; /* [n_layers] */
    uint32_t n_layers, n_places;
    size_t place_bytes; /* a multiple of 64 */
    uint8_t *map;
    size_t map_bytes;
};

/* What a place takes; 0: no layer carries anything. */
size_t wefti_states_place_bytes(const struct wefti_state_shape *shapes, uint32_t n_layers);

/* n_layers, n_places >= 1; places have a line where no layer carries anything; `home` as for wefti_memory_map_near.
 * NOMEM. To be closed in any case. */
WEFT_MUST_CHECK weft_err wefti_states_open(struct wefti_states *states,
                                           const struct wefti_state_shape *shapes,
                                           uint32_t n_layers, uint32_t n_places, uint64_t home,
                                           struct weft_errmsg *why);
void wefti_states_close(struct wefti_states *states); /* accepts zeroed ones */

static inline uint8_t *wefti_states_place(const struct wefti_states *states, uint32_t place) {
    WEFT_ASSERT(place < states->n_places);
    return states->map + place * states->place_bytes;
}

/* The last inputs of a layer's convolution. */
static inline float *wefti_states_conv(const struct wefti_states *states, uint32_t place,
                                       uint32_t layer) {
    const struct wefti_state_layer *own = &states->layers[layer];
    WEFT_ASSERT(layer < states->n_layers && own->shape.conv_width > 0);
    return (float *)(void *)(wefti_states_place(states, place) + own->conv_at);
}

/* The matrix of one of its heads. */
static inline float *wefti_states_matrix(const struct wefti_states *states, uint32_t place,
                                         uint32_t layer, uint32_t head) {
    const struct wefti_state_layer *own = &states->layers[layer];
    WEFT_ASSERT(layer < states->n_layers && head < own->shape.n_heads);
    float *first = (float *)(void *)(wefti_states_place(states, place) + own->matrix_at);
    return first + head * weft_kern_state_floats(own->shape.n_rows, own->shape.n_columns);
}

/* Part `part` of n_parts of place `from` replaces that of `to`; all of them may go on at once. */
void wefti_states_copy(const struct wefti_states *states, uint32_t from, uint32_t to, uint32_t part,
                       uint32_t n_parts);

#endif
