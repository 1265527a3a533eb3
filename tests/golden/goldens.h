/* Reads reference outputs: safetensors files that numpy wrote (our own fixtures, so a damaged one
 * just fails the test). */
#ifndef WEFT_TESTS_GOLDENS_H
#define WEFT_TESTS_GOLDENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct goldens {
    uint8_t *bytes;
    size_t len;
    const uint8_t *data; /* after the header */
    void *header;        /* json_t */
};

struct goldens_array {
    size_t n_rows, n_cols; /* a vector is one row */
    size_t elem_bytes;
    const uint8_t *data;
};

/* False: no such file. Any other fault fails the running test. */
bool goldens_open(struct goldens *goldens, const char *path);
void goldens_close(struct goldens *goldens);

/* False: no such array. `dtype`: "F32", "I32" or "F16". */
bool goldens_find(const struct goldens *goldens, const char *name, const char *dtype,
                  struct goldens_array *out);

/* Of F32 and F16. */
float goldens_f32(const struct goldens_array *array, size_t row, size_t col);
uint32_t goldens_u32(const struct goldens_array *array, size_t idx);

#endif
