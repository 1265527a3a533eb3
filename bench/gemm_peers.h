/* gemm_peers — libraries beside our kernels, where the build found them.
 *
 * A library is used as its documentation says: weights in the form it likes best, prepared
 * beforehand, and its own threads. bench_products() measures the whole table. */
#ifndef WEFT_BENCH_GEMM_PEERS_H
#define WEFT_BENCH_GEMM_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inside/cmd_weft/bench/bench_machine.h"
#include "kernels/kernels.h"

enum bench_type { BENCH_F32, BENCH_BF16, BENCH_INT8, BENCH_TYPE_COUNT };

/* C[m][n] = A[m][k] W[n][k]^T, with n_copies copies of W. A is in 0..1, W in -0.5..0.5; as 8-bit
 * numbers they are multiplied by BENCH_A_SCALE and BENCH_W_SCALE. */
struct bench_product {
    enum bench_type type;
    uint32_t m, n, k, n_copies;
    const float *a, *w;
};
#define BENCH_A_SCALE 255.0f
#define BENCH_W_SCALE 254.0f

struct bench_peer {
    const char *name;
    bool sets_goal; /* goals for several rows are multiples of its rate */
    bool (*has)(enum bench_type type);
    /* Selects the product that measure() then runs; false: the library refuses. */
    bool (*prepare)(const struct bench_product *product, uint32_t n_threads);
    double (*measure)(uint32_t n_repeats); /* seconds per repeat; takes the copies in turn */
    float (*result)(size_t at);            /* an element of C, scaled back */
    void (*drop)(void);                    /* frees what prepare() took; harmless twice */
};
extern const struct bench_peer bench_onednn, bench_openblas;

/* Zeroed memory for weights, in huge pages where there are some, as an engine's is. */
void *bench_take(size_t bytes);
void bench_drop(void *memory, size_t bytes);

/* Converts args->m rows of args->k floats to the form in which a kind's kernel takes so many of
 * them, and notes it in `args`. args->act is the caller's to free(). */
void bench_make_rows(const struct weft_kern_table *table, enum weft_gemm_kind kind,
                     const float *rows, struct weft_gemm_args *args);

/* Measures and prints the table, or one JSON array. The crew is there; n_rounds is 1..99. */
WEFT_MUST_CHECK weft_err bench_products(const struct weft_kern_table *table, weft_machine *machine,
                                        uint32_t n_threads, uint32_t n_rounds, bool json,
                                        struct weft_errmsg *why);

#endif
