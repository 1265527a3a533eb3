#include "recurrent/states.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/limits.h"
#include "base/minmax.h"
#include "runtime/memory.h"

enum {
    LINE = 64,
    /* Places of this size get huge pages, as steps go through all of them: what of the first and the
     * last page is another place's is little then. */
    HUGE_PLACE_BYTES = 32 << 20,
};

static void check_shape(const struct wefti_state_shape *shape) {
    WEFT_ASSERT(shape->conv_width != 1 && shape->conv_width <= WEFT_CONV_WIDTH_MAX);
    WEFT_ASSERT(shape->conv_width == 0 ||
                (shape->n_channels > 0 && shape->n_channels <= WEFT_HIDDEN_MAX));
    WEFT_ASSERT(shape->n_heads <= WEFT_HEADS_MAX);
    WEFT_ASSERT(shape->n_rows <= WEFT_HEAD_DIM_MAX && shape->n_columns <= WEFT_HEAD_DIM_MAX);
}

static size_t conv_bytes(const struct wefti_state_shape *shape) {
    size_t n_inputs = shape->conv_width > 0 ? shape->conv_width - 1 : 0;
    return weft_round_up(n_inputs * shape->n_channels * sizeof(float), LINE);
}

/* Panels are whole lines. */
static size_t matrix_bytes(const struct wefti_state_shape *shape) {
    return shape->n_heads * weft_kern_state_floats(shape->n_rows, shape->n_columns) * sizeof(float);
}

size_t wefti_states_place_bytes(const struct wefti_state_shape *shapes, uint32_t n_layers) {
    size_t sum = 0;
    for (uint32_t i = 0; i < n_layers; i++) {
        check_shape(&shapes[i]);
        sum += conv_bytes(&shapes[i]) + matrix_bytes(&shapes[i]);
    }
    return sum;
}

static void place_layers(struct wefti_states *states, const struct wefti_state_shape *shapes) {
    size_t at = 0;
    for (uint32_t i = 0; i < states->n_layers; i++) {
        const size_t matrix_at = at + conv_bytes(&shapes[i]);
        states->layers[i] = (struct wefti_state_layer){shapes[i], at, matrix_at};
        at = matrix_at + matrix_bytes(&shapes[i]);
    }
    WEFT_ASSERT(at == states->place_bytes || at == 0);
}

weft_err wefti_states_open(struct wefti_states *states, const struct wefti_state_shape *shapes,
                           uint32_t n_layers, uint32_t n_places, uint64_t home,
                           struct weft_errmsg *why) {
    WEFT_ASSERT(n_layers > 0 && n_layers <= WEFT_LAYERS_MAX && n_places > 0);
    *states = (struct wefti_states){.n_layers = n_layers, .n_places = n_places};
    states->place_bytes = wefti_states_place_bytes(shapes, n_layers);
    if (states->place_bytes == 0) states->place_bytes = LINE; /* a rank may have no head */
    states->map_bytes = n_places * states->place_bytes;
    WEFT_ASSERT(states->map_bytes / n_places == states->place_bytes && states->place_bytes > 0);
    states->layers = calloc(n_layers, sizeof *states->layers);
    states->map = states->layers ? wefti_memory_map_near(states->map_bytes, home) : NULL;
    if (!states->map)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %u recurrent states of %zu bytes",
                            n_places, states->place_bytes);
    if (states->place_bytes >= HUGE_PLACE_BYTES)
        (void)madvise(states->map, states->map_bytes, MADV_HUGEPAGE);
    place_layers(states, shapes);
    return WEFT_OK;
}

void wefti_states_close(struct wefti_states *states) {
    wefti_memory_unmap(states->map, states->map_bytes);
    free(states->layers);
    *states = (struct wefti_states){0};
}

void wefti_states_copy(const struct wefti_states *states, uint32_t from, uint32_t to, uint32_t part,
                       uint32_t n_parts) {
    WEFT_ASSERT(part < n_parts);
    const size_t n_lines = states->place_bytes / LINE;
    const size_t begin = n_lines * part / n_parts * LINE,
                 end = n_lines * (part + 1) / n_parts * LINE;
    if (from == to) return;
    memcpy(wefti_states_place(states, to) + begin, wefti_states_place(states, from) + begin,
           end - begin);
}
