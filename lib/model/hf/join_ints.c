/* Weights whose codes are whole numbers, less a zero and times a scale: which tensors belong to one
 * by each method (join.c says how they lie), and the type that it gets. */
#include "join.h"

#include <string.h>

#include "base/check.h"

/* Scales and zeros of GPTQ and AWQ. */
static weft_err take_groups(struct wefti_model_joiner *j) {
    struct weft_parts *parts = j->parts;
    const uint64_t per = 32 / parts->bits;
    const struct weft_tensor *scales, *zeros;
    weft_err err = wefti_model_join_find(j, ".scales", true, &scales);
    if (!err) err = wefti_model_join_find(j, ".qzeros", true, &zeros);
    if (err) return err;
    if (parts->n % per != 0)
        return wefti_model_join_refuse(j, j->codes,
                                       per == 8 ? "has features that are not a multiple of 8"
                                                : "has features that are not a multiple of 4");
    parts->group = parts->quant.block_cols ? parts->quant.block_cols : parts->k;
    WEFT_ASSERT(parts->group > 0); /* codes without bytes were refused */
    parts->n_groups = wefti_model_join_div_up(parts->k, parts->group);
    err = wefti_model_join_check_matrix(j, scales, parts->n_groups, parts->n);
    if (!err) err = wefti_model_join_check_matrix(j, zeros, parts->n_groups, parts->n / per);
    if (!err) err = wefti_model_join_take_scales(j, scales);
    if (err) return err;
    if (zeros->dtype != WEFT_DT_I32)
        return wefti_model_join_refuse(j, zeros, "holds zeros and is not of type i32");
    wefti_model_join_take(j, WEFTI_MODEL_PIECE_ZEROS, zeros);
    return WEFT_OK;
}

static bool scales_are_halves(const struct weft_parts *parts) {
    const struct wefti_model_piece_data *scales = &parts->pieces[WEFTI_MODEL_PIECE_SCALES];
    const size_t bytes = weft_dtype_block_bytes(parts->scale_dtype);
    uint16_t half;
    if (parts->scale_dtype == WEFT_DT_F16) return true;
    for (size_t i = 0; i < scales->bytes / bytes; i++) {
        if (!wefti_model_f16_of_f32(wefti_model_parts_scale(parts, i), &half)) return false;
    }
    return true;
}

/* Whether every zero is the middle of the codes, as far as whole words and bytes of them tell. */
static bool zeros_are_middles(const struct weft_parts *parts) {
    const struct wefti_model_piece_data *zeros = &parts->pieces[WEFTI_MODEL_PIECE_ZEROS];
    unsigned char middle = parts->bits == 8 ? 0x80u : 0x88u;
    if (parts->quant.zeros_less_one) middle = parts->bits == 8 ? 0x7fu : 0x77u;
    if (parts->quant.method == WEFT_QUANT_INT8) middle = 0;
    for (size_t i = 0; zeros->at && i < zeros->bytes; i++) {
        if (zeros->at[i] != middle) return false;
    }
    return true;
}

/* The groups of columns, kept only where they say more than what follows from the size of a group. */
static weft_err take_order(struct wefti_model_joiner *j, const char *suffix, bool is_needed) {
    struct weft_parts *parts = j->parts;
    const struct weft_tensor *order;
    bool ascends = true;
    weft_err err = wefti_model_join_find(j, suffix, is_needed, &order);
    if (err || !order) return err;
    err = wefti_model_join_check_vector(j, order, parts->k);
    if (err) return err;
    if (order->dtype != WEFT_DT_I32)
        return wefti_model_join_refuse(j, order, "holds groups and is not of type i32");
    for (uint64_t k = 0; k < parts->k; k++) {
        int32_t group;
        memcpy(&group, (const unsigned char *)order->data + k * sizeof group, sizeof group);
        if (group < 0 || (uint64_t)group >= parts->n_groups)
            return wefti_model_join_refuse(j, order, "names a group that there is not");
        ascends = ascends && (uint64_t)group == k / parts->group;
    }
    wefti_model_join_take(j, WEFTI_MODEL_PIECE_GROUPS, order);
    if (ascends) parts->pieces[WEFTI_MODEL_PIECE_GROUPS] = (struct wefti_model_piece_data){0};
    return WEFT_OK;
}

static uint32_t needs_of(const struct weft_parts *parts) {
    uint32_t needs = 0;
    if (!zeros_are_middles(parts)) needs |= WEFTI_MODEL_NEEDS_ZEROS;
    if (parts->pieces[WEFTI_MODEL_PIECE_GROUPS].at) needs |= WEFTI_MODEL_NEEDS_ORDER;
    if (!scales_are_halves(parts)) needs |= WEFTI_MODEL_NEEDS_SCALES;
    return needs;
}

/* One scale to a row: the form of --dtype q8. Else there are blocks of 32 columns with f16 scales; or these
 * share a table of groups, in any order, which 8 bits with zeros need in order, too. What fits none is f32. */
enum weft_dtype wefti_model_join_form(const struct weft_parts *parts, uint32_t needs) {
    const bool is_symmetric = !(needs & WEFTI_MODEL_NEEDS_ZEROS);
    if (parts->bits == 8 && parts->n_groups == 1 && is_symmetric) return WEFT_DT_I8;
    if (parts->k % 32 != 0 || needs & WEFTI_MODEL_NEEDS_SCALES) return WEFT_DT_F32;
    if (!(needs & WEFTI_MODEL_NEEDS_ORDER) && (parts->n_groups == 1 || parts->group % 32 == 0)) {
        if (parts->bits == 4) return is_symmetric ? WEFT_DT_Q4_0 : WEFT_DT_Q4_Z;
        if (is_symmetric) return WEFT_DT_Q8_0;
    }
    if (parts->n_groups > parts->k / 32 || parts->n_groups > UINT16_MAX) return WEFT_DT_F32;
    return parts->bits == 4 ? WEFT_DT_Q4_G : WEFT_DT_Q8_G;
}

static void choose_form(struct weft_parts *parts, struct weft_tensor *out) {
    parts->needs = needs_of(parts);
    out->dtype = wefti_model_join_form(parts, parts->needs);
}

weft_err wefti_model_join_gptq(struct wefti_model_joiner *j, struct weft_tensor *out) {
    struct weft_parts *parts = j->parts;
    if (j->codes->n_dims != 2)
        return wefti_model_join_refuse(j, j->codes, "is quantised and no matrix");
    parts->bits = parts->quant.ints.bits ? parts->quant.ints.bits : 4;
    parts->n = j->codes->dims[1];
    /* The words are in the file, so eight columns for each are still a small number. */
    parts->k = j->codes->dims[0] * (32 / parts->bits);
    weft_err err = take_groups(j);
    if (!err) err = take_order(j, ".g_idx", false);
    if (!err) choose_form(parts, out);
    return err;
}

weft_err wefti_model_join_awq(struct wefti_model_joiner *j, struct weft_tensor *out) {
    struct weft_parts *parts = j->parts;
    if (j->codes->n_dims != 2)
        return wefti_model_join_refuse(j, j->codes, "is quantised and no matrix");
    parts->bits = 4;
    parts->n = j->codes->dims[1] * 8;
    parts->k = j->codes->dims[0];
    weft_err err = take_groups(j);
    if (!err) choose_form(parts, out);
    return err;
}

/* ------------------------------------------------------------------- compressed-tensors --- */

/* x.weight_scale, whose shape tells how many rows and columns share one: as many as the configuration says.
 * Only whole groups. */
static weft_err take_own_scales(struct wefti_model_joiner *j) {
    struct weft_parts *parts = j->parts;
    const struct weft_tensor *scales;
    parts->scale_rows = parts->quant.block_rows ? parts->quant.block_rows : parts->n;
    parts->group = parts->quant.block_cols ? parts->quant.block_cols : parts->k;
    WEFT_ASSERT(parts->scale_rows > 0 && parts->group > 0); /* codes without bytes were refused */
    if (parts->k % parts->group != 0)
        return wefti_model_join_refuse(j, j->codes,
                                       "has columns that are not a multiple of \"group_size\"");
    parts->n_groups = parts->k / parts->group;
    weft_err err = wefti_model_join_find(j, ".weight_scale", true, &scales);
    if (!err) err = wefti_model_join_check_scales(j, scales);
    return err ? err : wefti_model_join_take_scales(j, scales);
}

static bool is_all_zero(const struct weft_tensor *tensor) {
    const unsigned char *bytes = tensor->data;
    for (size_t i = 0; i < tensor->bytes; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

/* x.weight_zero_point. Some tools write one of noughts beside symmetric weights. */
static weft_err take_own_zeros(struct wefti_model_joiner *j, enum weft_dtype dtype) {
    struct weft_parts *parts = j->parts;
    const struct weft_model_ints *ints = &parts->quant.ints;
    const struct weft_tensor *zeros;
    weft_err err = wefti_model_join_find(j, ".weight_zero_point", ints->has_zeros, &zeros);
    if (err || !zeros) return err;
    if (!ints->has_zeros && zeros->dtype == WEFT_DT_I8 && is_all_zero(zeros)) {
        wefti_model_join_drop(j, zeros);
        return WEFT_OK;
    }
    if (!ints->has_zeros)
        return wefti_model_join_refuse(j, zeros, "holds zeros, but \"symmetric\" is not false");
    if (zeros->dtype != dtype)
        return wefti_model_join_refuse(j, zeros, "holds zeros of another type than the codes");
    const uint64_t per = 32 / parts->bits;
    if (dtype == WEFT_DT_I8)
        err = wefti_model_join_check_scales(j, zeros); /* one for each */
    else
        err = wefti_model_join_check_matrix(j, zeros, wefti_model_join_div_up(parts->n, per),
                                            parts->n_groups);
    if (err) return err;
    wefti_model_join_take(j, WEFTI_MODEL_PIECE_ZEROS, zeros);
    return WEFT_OK;
}

static weft_err take_own_order(struct wefti_model_joiner *j) {
    return take_order(j, ".weight_g_idx", j->parts->quant.ints.has_order);
}

weft_err wefti_model_join_int8(struct wefti_model_joiner *j, struct weft_tensor *out) {
    struct weft_parts *parts = j->parts;
    if (j->codes->n_dims != 2)
        return wefti_model_join_refuse(j, j->codes, "is quantised and no matrix");
    parts->bits = 8; /* each has a byte, even if it has fewer */
    parts->n = j->codes->dims[0];
    parts->k = j->codes->dims[1];
    weft_err err = take_own_scales(j);
    if (!err) err = take_own_zeros(j, WEFT_DT_I8);
    if (!err) err = take_own_order(j);
    if (!err) choose_form(parts, out);
    return err;
}

/* x.weight_shape: rows and columns, of which the last word of a row may have fewer than it holds. */
static weft_err take_shape(struct wefti_model_joiner *j) {
    struct weft_parts *parts = j->parts;
    const struct weft_tensor *shape;
    int64_t sizes[2];
    weft_err err = wefti_model_join_find(j, ".weight_shape", true, &shape);
    if (!err) err = wefti_model_join_check_vector(j, shape, 2);
    if (err) return err;
    if (shape->dtype == WEFT_DT_I64) {
        memcpy(sizes, shape->data, sizeof sizes);
    } else if (shape->dtype == WEFT_DT_I32) {
        int32_t narrow[2];
        memcpy(narrow, shape->data, sizeof narrow);
        sizes[0] = narrow[0];
        sizes[1] = narrow[1];
    } else {
        return wefti_model_join_refuse(j, shape, "is not of type i64");
    }
    const uint64_t per = 32 / parts->bits;
    if (sizes[0] <= 0 || sizes[1] <= 0 || (uint64_t)sizes[0] != j->codes->dims[0] ||
        wefti_model_join_div_up((uint64_t)sizes[1], per) != j->codes->dims[1])
        return wefti_model_join_refuse(j, shape, "says another shape than its words are for");
    parts->n = (uint64_t)sizes[0];
    parts->k = (uint64_t)sizes[1];
    wefti_model_join_drop(j, shape);
    return WEFT_OK;
}

weft_err wefti_model_join_packed(struct wefti_model_joiner *j, struct weft_tensor *out) {
    struct weft_parts *parts = j->parts;
    if (j->codes->n_dims != 2)
        return wefti_model_join_refuse(j, j->codes, "is quantised and no matrix");
    parts->bits = parts->quant.ints.bits;
    WEFT_ASSERT(parts->bits == 4 || parts->bits == 8);
    weft_err err = take_shape(j);
    if (!err) err = take_own_scales(j);
    if (!err) err = take_own_zeros(j, WEFT_DT_I32);
    if (!err) err = take_own_order(j);
    if (!err) choose_form(parts, out);
    return err;
}
