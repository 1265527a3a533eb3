/* model_sketch — a Hugging Face folder as one short text that can be changed anywhere: its config.json, a zero byte, and
 * a line "name dtype dim dim ..." for each tensor. The weights are a pattern. A folder written from a changed text is
 * whole as files go: offsets and lengths fit, so what does not fit is the model. */
#ifndef WEFT_TESTS_MODEL_SKETCH_H
#define WEFT_TESTS_MODEL_SKETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define MODEL_SKETCH_BYTES_MAX (1u << 18)

/* The sketch of every folder in `zoo` that has config.json and model.safetensors. `zoo` need not be there. */
void model_sketch_each(const char *zoo, void (*add)(const void *bytes, size_t n));

/* Writes config.json and model.safetensors into `dir`. False, with nothing of use written: it is no sketch, or its
 * weights have over data_bytes_max bytes. */
bool model_sketch_write(const void *bytes, size_t n, const char *dir, size_t data_bytes_max);

#endif
