/* Weights whose codes are whole numbers, less a zero and times a scale: which tensors belong to one
 * by each method (join.c says how they lie), and the type that it gets. */
#include "join.h"

#include <string.h>

#include "base/check.h"

/* Scales and zeros of every group. */
static weft_err take_groups(struct wefti_model_joiner *j) {
    struct weft_parts *parts = j->parts;
    const struct weft_tensor *scales, *zeros;
    weft_err err = wefti_model_join_find(j, ".scales", true, &scales);
    if (!err) err = wefti_model_join_find(j, ".qzeros", true, &zeros);
    if (err) return err;
    if (parts->n % 8 != 0)
        return wefti_model_join_refuse(j, j->codes, "has features that are not a multiple of 8");
    parts->group = parts->quant.block_cols ? parts->quant.block_cols : parts->k;
    WEFT_ASSERT(parts->group > 0); /* codes without bytes were refused */
    parts->n_groups = wefti_model_join_div_up(parts->k, parts->group);
    err = wefti_model_join_check_matrix(j, scales, parts->n_groups, parts->n);
    if (!err) err = wefti_model_join_check_matrix(j, zeros, parts->n_groups, parts->n / 8);
    if (err) return err;
    if (!wefti_model_join_is_float(scales->dtype))
        return wefti_model_join_refuse(j, scales, "holds scales and no floats");
    if (zeros->dtype != WEFT_DT_I32)
        return wefti_model_join_refuse(j, zeros, "holds zeros and is not of type i32");
    parts->scale_dtype = scales->dtype;
    wefti_model_join_take(j, WEFTI_MODEL_PIECE_SCALES, scales);
    wefti_model_join_take(j, WEFTI_MODEL_PIECE_ZEROS, zeros);
    return WEFT_OK;
}

/* Weights without whole blocks of 32 columns or without f16 scales are read as f32. Blocks have one
 * scale each, or share a table of as many. */
static enum weft_dtype form_of(const struct weft_parts *parts) {
    if (parts->k % 32 != 0 || parts->scale_dtype != WEFT_DT_F16) return WEFT_DT_F32;
    if (!parts->pieces[WEFTI_MODEL_PIECE_GROUPS].at &&
        (parts->n_groups == 1 || parts->group % 32 == 0))
        return WEFT_DT_Q4_Z;
    return parts->n_groups <= parts->k / 32 && parts->n_groups <= UINT16_MAX ? WEFT_DT_Q4_G
                                                                             : WEFT_DT_F32;
}

/* x.g_idx, which is kept only where it says more than what follows from the size of a group. */
static weft_err take_order(struct wefti_model_joiner *j) {
    struct weft_parts *parts = j->parts;
    const struct weft_tensor *order;
    bool ascends = true;
    weft_err err = wefti_model_join_find(j, ".g_idx", false, &order);
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

weft_err wefti_model_join_gptq(struct wefti_model_joiner *j, struct weft_tensor *out) {
    struct weft_parts *parts = j->parts;
    if (j->codes->n_dims != 2)
        return wefti_model_join_refuse(j, j->codes, "is quantised and no matrix");
    parts->n = j->codes->dims[1];
    /* The words are in the file, so eight columns for each are still a small number. */
    parts->k = j->codes->dims[0] * 8;
    weft_err err = take_groups(j);
    if (!err) err = take_order(j);
    out->dtype = form_of(parts);
    return err;
}

weft_err wefti_model_join_awq(struct wefti_model_joiner *j, struct weft_tensor *out) {
    struct weft_parts *parts = j->parts;
    if (j->codes->n_dims != 2)
        return wefti_model_join_refuse(j, j->codes, "is quantised and no matrix");
    parts->n = j->codes->dims[1] * 8;
    parts->k = j->codes->dims[0];
    weft_err err = take_groups(j);
    out->dtype = form_of(parts);
    return err;
}
