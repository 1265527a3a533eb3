/* The definition of attention: one row, one head, one tile of 64 tokens at a time. */
#include "kernels/kern_internal.h"

#include "kernels/convert.h"
#include "kernels/exp_lane.h"

static float load(const void *group, size_t at, enum weft_kv_dtype dtype) {
    if (dtype == WEFT_KV_F32) return ((const float *)group)[at];
    if (dtype == WEFT_KV_INT8) return (float)((const int8_t *)group)[at];
    uint16_t half = ((const uint16_t *)group)[at];
    return dtype == WEFT_KV_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

/* One token of one kv head: its group of 16, and its place there. */
struct place {
    const void *k, *v; /* [d][16] and [16][d] */
    uint32_t token;
};

static struct place find(const struct weft_attn_args *args, const struct weft_attn_row *row,
                         uint32_t kv_head, uint32_t pos) {
    const struct weft_kv_layer *kv = &args->kv;
    uint32_t block = row->block_table[pos / kv->block_size], token = pos % kv->block_size;
    size_t at = kv_group_at(kv, block, kv_head, token);
    return (struct place){(const uint8_t *)kv->k + at, (const uint8_t *)kv->v + at,
                          token % ATTN_SUB};
}

static float score(const struct weft_attn_args *args, const struct weft_attn_row *row,
                   uint32_t kv_head, uint32_t pos, const float *q) {
    const struct weft_kv_layer *kv = &args->kv;
    struct place place = find(args, row, kv_head, pos);
    float dot = 0.0f;
    for (uint32_t d = 0; d < kv->head_dim; d++) {
        dot += q[d] * load(place.k, (size_t)d * ATTN_SUB + place.token, kv->dtype);
    }
    if (kv->dtype == WEFT_KV_INT8) dot *= kv_scales(place.k, kv->head_dim)[place.token];
    return dot * args->scale;
}

/* out += weight * v of the token at `pos` */
static void add_value(const struct weft_attn_args *args, const struct weft_attn_row *row,
                      uint32_t kv_head, uint32_t pos, float weight, float *out) {
    const struct weft_kv_layer *kv = &args->kv;
    struct place place = find(args, row, kv_head, pos);
    if (kv->dtype == WEFT_KV_INT8) weight *= kv_scales(place.v, kv->head_dim)[place.token];
    for (uint32_t d = 0; d < kv->head_dim; d++) {
        out[d] += weight * load(place.v, (size_t)place.token * kv->head_dim + d, kv->dtype);
    }
}

static void one_head(const struct weft_attn_args *args, const struct weft_attn_row *row,
                     uint32_t kv_head, const float *q, float *out) {
    const struct weft_kv_layer *kv = &args->kv;
    float max = -INFINITY, total = 0.0f;
    for (uint32_t d = 0; d < kv->head_dim; d++) {
        out[d] = 0.0f;
    }
    for (uint64_t t0 = 0; t0 <= row->pos; t0 += ATTN_TILE) {
        uint32_t first = (uint32_t)t0, count = min_u32(ATTN_TILE, row->pos - first + 1);
        float p[ATTN_TILE], tile_max = max;
        for (uint32_t j = 0; j < count; j++) {
            p[j] = score(args, row, kv_head, first + j, q);
            if (p[j] > tile_max) tile_max = p[j];
        }
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            p[j] = j < count ? exp_lane(p[j] - tile_max) : 0.0f;
        }
        float fade = exp_lane(max - tile_max); /* 0 for the first tile: max is -inf */
        for (uint32_t d = 0; d < kv->head_dim; d++) {
            out[d] *= fade;
        }
        for (uint32_t j = 0; j < count; j++) {
            add_value(args, row, kv_head, first + j, p[j], out);
        }
        for (uint32_t width = ATTN_TILE / 2; width > 0; width /= 2) {
            for (uint32_t j = 0; j < width; j++) {
                p[j] += p[j + width];
            }
        }
        total = total * fade + p[0];
        max = tile_max;
    }
    float inverse = 1.0f / total;
    for (uint32_t d = 0; d < kv->head_dim; d++) {
        out[d] *= inverse;
    }
}

static void attention(const struct weft_attn_args *args, uint32_t kv_head, uint32_t row_begin,
                      uint32_t row_end) {
    check_attn_args(args, kv_head, row_begin, row_end);
    uint32_t group = args->n_heads / args->kv.n_kv_heads;
    for (uint32_t r = row_begin; r < row_end; r++) {
        for (uint32_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
            size_t at = (size_t)h * args->kv.head_dim;
            one_head(args, &args->rows[r], kv_head, args->q + r * args->q_stride + at,
                     args->out + r * args->out_stride + at);
        }
    }
}

void wefti_kern_fill_attention_scalar(struct weft_kern_table *table) {
    table->attention = attention;
}
