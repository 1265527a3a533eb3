/* OpenBLAS: it takes weights as they are, here a row for each feature, as models have them. */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "gemm_peers.h"

static struct {
    struct bench_product product;
    float *weights, *c;
    size_t weights_bytes;
    uint32_t next;
} blas;

static bool has(enum bench_type type) {
    return type == BENCH_F32;
}

static void drop(void) {
    bench_drop(blas.weights, blas.weights_bytes);
    free(blas.c);
    blas.weights = blas.c = NULL;
}

static bool prepare(const struct bench_product *product, uint32_t n_threads) {
    size_t count = (size_t)product->n * product->k;
    bool same = blas.weights && blas.product.n == product->n && blas.product.k == product->k;
    if (!same) {
        drop();
        blas.weights_bytes = product->n_copies * count * sizeof(float);
        blas.weights = bench_take(blas.weights_bytes);
        for (uint32_t i = 0; i < product->n_copies; i++)
            memcpy(blas.weights + i * count, product->w, count * sizeof(float));
    }
    free(blas.c);
    blas.c = calloc((size_t)product->m * product->n, sizeof(float));
    WEFT_ASSERT(blas.c != NULL);
    blas.product = *product;
    blas.next = 0;
    openblas_set_num_threads((int)n_threads);
    return true;
}

static double measure(uint32_t n_repeats) {
    const struct bench_product *p = &blas.product;
    uint64_t begin = weft_now_ns();
    for (uint32_t i = 0; i < n_repeats; i++) {
        const float *w = blas.weights + (size_t)p->n * p->k * blas.next;
        blas.next = (blas.next + 1) % p->n_copies;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)p->m, (blasint)p->n,
                    (blasint)p->k, 1, p->a, (blasint)p->k, w, (blasint)p->k, 0, blas.c,
                    (blasint)p->n);
    }
    return (double)(weft_now_ns() - begin) * 1e-9 / n_repeats;
}

static float result(size_t at) {
    return blas.c[at];
}

const struct bench_peer bench_openblas = {"OpenBLAS", false, has, prepare, measure, result, drop};
