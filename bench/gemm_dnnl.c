/* oneDNN: it names the layout that it wants weights in, which may differ with the number of rows.
 * Types: f32 -> f32, bf16 -> bf16, u8 x s8 -> s32 without scales or zero points: less than an
 * engine needs. Threads are OpenMP's, of this process's main thread: they are pinned here, one to a
 * CPU, and after a product they spin for some milliseconds. */
#include <dnnl.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "gemm_peers.h"

enum { N_ARGS = 3 };

static struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t matmul;
    dnnl_memory_t a, c;
    dnnl_memory_t *weights; /* one per copy, all within `bytes` */
    dnnl_memory_desc_t layout;
    void *a_bytes, *c_bytes, *w_bytes;
    size_t w_size, w_total;
    struct bench_product product;
    uint32_t next, cpus[WEFT_CPUS_MAX], n_cpus;
} dnnl;

static const struct {
    dnnl_data_type_t a, w, c;
} types[BENCH_TYPE_COUNT] = {{dnnl_f32, dnnl_f32, dnnl_f32},
                             {dnnl_bf16, dnnl_bf16, dnnl_bf16},
                             {dnnl_u8, dnnl_s8, dnnl_s32}};

static bool has(enum bench_type type) {
    (void)type;
    return true;
}

static void must(dnnl_status_t status) {
    WEFT_ASSERT(status == dnnl_success);
}

static void drop_weights(void) {
    for (uint32_t i = 0; dnnl.weights && i < dnnl.product.n_copies; i++)
        must(dnnl_memory_destroy(dnnl.weights[i]));
    free(dnnl.weights);
    dnnl.weights = NULL;
    bench_drop(dnnl.w_bytes, dnnl.w_total);
    dnnl.w_bytes = NULL;
}

static void drop_rest(void) {
    if (dnnl.matmul) must(dnnl_primitive_destroy(dnnl.matmul));
    if (dnnl.a) must(dnnl_memory_destroy(dnnl.a));
    if (dnnl.c) must(dnnl_memory_destroy(dnnl.c));
    free(dnnl.a_bytes);
    free(dnnl.c_bytes);
    dnnl.matmul = NULL;
    dnnl.a = dnnl.c = NULL;
    dnnl.a_bytes = dnnl.c_bytes = NULL;
}

static void drop(void) {
    drop_weights();
    drop_rest();
}

static void start(uint32_t n_threads) {
    if (!dnnl.engine) {
        must(dnnl_engine_create(&dnnl.engine, dnnl_cpu, 0));
        must(dnnl_stream_create(&dnnl.stream, dnnl.engine, dnnl_stream_default_flags));
        dnnl.n_cpus = weft_cpu_allowed(dnnl.cpus);
    }
    omp_set_num_threads((int)n_threads);
#pragma omp parallel
    (void)weft_cpu_pin(dnnl.cpus[(uint32_t)omp_get_thread_num() % dnnl.n_cpus]);
}

/* Numbers of f32, times `scale`, in another type and layout. */
static void convert(dnnl_memory_t to, const dnnl_memory_desc_t *to_layout, const float *from,
                    const dnnl_memory_desc_t *from_layout, float scale) {
    dnnl_memory_t source;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t reorder;
    must(dnnl_memory_create(&source, from_layout, dnnl.engine, (void *)(uintptr_t)from));
    must(dnnl_primitive_attr_create(&attr));
    must(dnnl_primitive_attr_set_output_scales(attr, 1, 0, &scale));
    must(dnnl_reorder_primitive_desc_create(&desc, from_layout, dnnl.engine, to_layout, dnnl.engine,
                                            attr));
    must(dnnl_primitive_create(&reorder, desc));
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, to}};
    must(dnnl_primitive_execute(reorder, dnnl.stream, 2, args));
    must(dnnl_stream_wait(dnnl.stream));
    must(dnnl_primitive_destroy(reorder));
    must(dnnl_primitive_desc_destroy(desc));
    must(dnnl_primitive_attr_destroy(attr));
    must(dnnl_memory_destroy(source));
}

static dnnl_memory_desc_t plain(uint32_t rows, uint32_t columns, dnnl_data_type_t type,
                                dnnl_format_tag_t tag) {
    dnnl_memory_desc_t layout;
    dnnl_dims_t dims = {rows, columns};
    must(dnnl_memory_desc_init_by_tag(&layout, 2, dims, type, tag));
    return layout;
}

static dnnl_memory_t make_memory(const dnnl_memory_desc_t *layout, void **bytes_out) {
    dnnl_memory_t memory;
    size_t size = (dnnl_memory_desc_get_size(layout) + 63) / 64 * 64;
    *bytes_out = aligned_alloc(64, size);
    WEFT_ASSERT(*bytes_out != NULL);
    memset(*bytes_out, 0, size);
    must(dnnl_memory_create(&memory, layout, dnnl.engine, *bytes_out));
    return memory;
}

static void make_weights(const struct bench_product *p, float scale) {
    dnnl_memory_desc_t source = plain(p->k, p->n, dnnl_f32, dnnl_ba);
    dnnl.w_size = (dnnl_memory_desc_get_size(&dnnl.layout) + 4095) / 4096 * 4096;
    dnnl.w_total = p->n_copies * dnnl.w_size;
    dnnl.w_bytes = bench_take(dnnl.w_total);
    dnnl.weights = calloc(p->n_copies, sizeof(dnnl_memory_t));
    WEFT_ASSERT(dnnl.weights != NULL);
    for (uint32_t i = 0; i < p->n_copies; i++) {
        uint8_t *bytes = (uint8_t *)dnnl.w_bytes + i * dnnl.w_size;
        must(dnnl_memory_create(&dnnl.weights[i], &dnnl.layout, dnnl.engine, bytes));
        if (i == 0)
            convert(dnnl.weights[0], &dnnl.layout, p->w, &source, scale);
        else
            memcpy(bytes, dnnl.w_bytes, dnnl.w_size);
    }
}

static bool prepare(const struct bench_product *p, uint32_t n_threads) {
    dnnl_primitive_desc_t desc;
    dnnl_matmul_desc_t matmul;
    start(n_threads);
    drop_rest();
    dnnl_memory_desc_t a = plain(p->m, p->k, types[p->type].a, dnnl_ab);
    dnnl_memory_desc_t a_f32 = plain(p->m, p->k, dnnl_f32, dnnl_ab);
    dnnl_memory_desc_t w = plain(p->k, p->n, types[p->type].w, dnnl_format_tag_any);
    dnnl_memory_desc_t c = plain(p->m, p->n, types[p->type].c, dnnl_ab);
    must(dnnl_matmul_desc_init(&matmul, &a, &w, NULL, &c));
    if (dnnl_primitive_desc_create(&desc, &matmul, NULL, dnnl.engine, NULL) != dnnl_success)
        return false;
    const dnnl_memory_desc_t *wanted = dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
    bool is_int8 = p->type == BENCH_INT8;
    if (!dnnl.weights || !dnnl_memory_desc_equal(wanted, &dnnl.layout)) {
        drop_weights();
        dnnl.layout = *wanted;
        make_weights(p, is_int8 ? BENCH_W_SCALE : 1);
    }
    dnnl.a = make_memory(&a, &dnnl.a_bytes);
    dnnl.c = make_memory(&c, &dnnl.c_bytes);
    convert(dnnl.a, &a, p->a, &a_f32, is_int8 ? BENCH_A_SCALE : 1);
    must(dnnl_primitive_create(&dnnl.matmul, desc));
    must(dnnl_primitive_desc_destroy(desc));
    dnnl.product = *p;
    dnnl.next = 0;
    return true;
}

static double measure(uint32_t n_repeats) {
    uint64_t begin = weft_now_ns();
    for (uint32_t i = 0; i < n_repeats; i++) {
        dnnl_exec_arg_t args[N_ARGS] = {{DNNL_ARG_SRC, dnnl.a},
                                        {DNNL_ARG_WEIGHTS, dnnl.weights[dnnl.next]},
                                        {DNNL_ARG_DST, dnnl.c}};
        dnnl.next = (dnnl.next + 1) % dnnl.product.n_copies;
        must(dnnl_primitive_execute(dnnl.matmul, dnnl.stream, N_ARGS, args));
        must(dnnl_stream_wait(dnnl.stream));
    }
    return (double)(weft_now_ns() - begin) * 1e-9 / n_repeats;
}

static float result(size_t at) {
    switch (dnnl.product.type) {
    case BENCH_F32:
        return ((const float *)dnnl.c_bytes)[at];
    case BENCH_BF16: {
        uint32_t bits = (uint32_t)((const uint16_t *)dnnl.c_bytes)[at] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    default:
        return (float)((const int32_t *)dnnl.c_bytes)[at] / (BENCH_A_SCALE * BENCH_W_SCALE);
    }
}

const struct bench_peer bench_onednn = {"oneDNN", true, has, prepare, measure, result, drop};
