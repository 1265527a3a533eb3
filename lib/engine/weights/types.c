/* How the weights of a model are stored, and which kernels read them: by the file, by --dtype,
 * --quant-scheme and --activations, and by what a packed file has decided already. */
#include "weights/types.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "runtime/options.h"

/* How a weight is stored: the kinds that read it, with f32 activations, with those of its own, and with bf16. */
struct storage {
    enum weft_gemm_kind exact, fast, bf16;
};

static struct storage storage_of(enum weft_dtype stored) {
    return (struct storage){weft_kern_exact_kind(stored), weft_kern_fast_kind(stored),
                            weft_kern_bf16_kind(stored)};
}

/* Its columns are not whole groups, so it gets int8 and one scale per output feature. */
static void note_ungrouped(struct wefti_weights_types *types, const struct weft_tensor *tensor) {
    if (types->n_ungrouped++ == 0) types->first_ungrouped = tensor;
}

/* 8 bits of a float weight. */
static enum weft_dtype as_8_bits(struct wefti_weights_types *types,
                                 const struct weft_tensor *tensor) {
    if (types->options->scheme != WEFT_ENG_SCHEME_GROUP) return WEFT_DT_I8;
    if (tensor->dims[1] % weft_kern_group(WEFT_GEMM_Q8_0) == 0) return WEFT_DT_Q8_0;
    note_ungrouped(types, tensor);
    return WEFT_DT_I8;
}

/* 4 bits of one, but 8 of the head: every token depends on it. */
static enum weft_dtype as_4_bits(struct wefti_weights_types *types,
                                 const struct weft_tensor *tensor) {
    if (tensor == weft_model_head(types->model)) return as_8_bits(types, tensor);
    if (tensor->dims[1] % weft_kern_group(WEFT_GEMM_Q4_1) == 0)
        return types->options->scheme == WEFT_ENG_SCHEME_GROUP ? WEFT_DT_Q4_0 : WEFT_DT_Q4_1;
    note_ungrouped(types, tensor);
    return WEFT_DT_I8;
}

/* The type in the file, or that of `dtype`. Quantised weights are not quantised again. */
static enum weft_dtype form_under_dtype(struct wefti_weights_types *types,
                                        const struct weft_tensor *tensor,
                                        enum weft_eng_dtype dtype) {
    bool quantised = !weft_dtype_is_float(tensor->dtype);
    switch (dtype) {
    case WEFT_ENG_DT_F32:
        return WEFT_DT_F32;
    case WEFT_ENG_DT_F16:
        return WEFT_DT_F16;
    case WEFT_ENG_DT_BF16:
        return WEFT_DT_BF16;
    case WEFT_ENG_DT_Q8:
    case WEFT_ENG_DT_Q4:
        types->n_kept += quantised;
        if (quantised) return tensor->dtype;
        return dtype == WEFT_ENG_DT_Q8 ? as_8_bits(types, tensor) : as_4_bits(types, tensor);
    case WEFT_ENG_DT_AUTO:
        break;
    }
    return tensor->dtype;
}

/* A packed file has decided. Another --dtype than it was packed with is refused where it would have
 * come to another form; see wefti_weights_types_check. */
static enum weft_dtype stored_form(struct wefti_weights_types *types,
                                   const struct weft_tensor *tensor, enum wefti_calib_input input,
                                   uint32_t layer) {
    bool by_layer = types->options->layer_dtypes && input != WEFTI_CALIB_HEAD;
    if (!weft_model_packed(types->model))
        return form_under_dtype(
            types, tensor, by_layer ? types->options->layer_dtypes[layer] : types->options->dtype);
    enum weft_dtype form = weft_model_stored(types->model, tensor);
    types->dtype_misfits |= types->options->dtype != WEFT_ENG_DT_AUTO &&
                            form_under_dtype(types, tensor, types->options->dtype) != form;
    return form;
}

static bool dtype_takes(enum weft_eng_dtype dtype, enum weft_eng_scheme scheme) {
    switch (scheme) {
    case WEFT_ENG_SCHEME_AUTO:
        return true;
    case WEFT_ENG_SCHEME_CHANNEL:
        return dtype == WEFT_ENG_DT_Q8;
    case WEFT_ENG_SCHEME_GROUP:
        return dtype == WEFT_ENG_DT_Q8 || dtype == WEFT_ENG_DT_Q4;
    case WEFT_ENG_SCHEME_GROUP_ASYM:
        return dtype == WEFT_ENG_DT_Q4;
    }
    return false;
}

weft_err wefti_weights_types_check_scheme(const struct weft_eng_options *options,
                                          struct weft_errmsg *why) {
    static const char *const schemes[] = {"auto", "channel", "group", "group-asym"};
    static const char *const takers[] = {"", "q8", "q8 and q4", "q4"};
    bool taken = dtype_takes(options->dtype, options->scheme);
    for (uint32_t i = 0; i < options->n_layer_dtypes; i++)
        taken |= dtype_takes(options->layer_dtypes[i], options->scheme);
    if (taken) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "the quantisation scheme %s is for weights of dtype %s",
                        schemes[options->scheme], takers[options->scheme]);
}

/* The kernel of a stored weight. int8 activations are for quantised weights, bf16 for weights of that type and,
 * where the CPU is fast with them, for blocks; where they are asked for, other weights run with f32, which is
 * more exact. */
static enum weft_gemm_kind gemm_kind_for(struct wefti_weights_types *types,
                                         struct storage storage) {
    enum weft_eng_act act = types->options->activations;
    enum weft_kern_act own = weft_kern_act_of(storage.fast);
    bool is_int8 = own != WEFT_ACT_F32 && own != WEFT_ACT_BF16;
    bool met = act == WEFT_ENG_ACT_AUTO || act == WEFT_ENG_ACT_F32 ||
               (act == WEFT_ENG_ACT_BF16 && own == WEFT_ACT_BF16) ||
               (act == WEFT_ENG_ACT_INT8 && is_int8);
    if (act == WEFT_ENG_ACT_BF16 && types->bf16_of_blocks &&
        weft_kern_act_of(storage.bf16) == WEFT_ACT_BF16) {
        types->asked_kind_met = true;
        return storage.bf16;
    }
    types->asked_kind_met |= met;
    return met && act != WEFT_ENG_ACT_F32 ? storage.fast : storage.exact;
}

/* How turned matrices of heads are stored, where their tensor is stored as `stored`. Blocks of the
 * file lie along the columns of the turned matrix, so such weights become f32, the values they
 * stand for; --dtype quantises after the turn. */
static enum weft_dtype turned_form(enum weft_dtype stored, const struct weft_tensor *tensor,
                                   uint32_t k) {
    bool quantised = !weft_dtype_is_float(tensor->dtype);
    if (quantised && stored == tensor->dtype) return WEFT_DT_F32;
    if (weft_dtype_is_float(stored)) return stored;
    return k % weft_kern_group(storage_of(stored).exact) == 0 ? stored : WEFT_DT_I8;
}

struct wefti_weights_type wefti_weights_matrix_type(struct wefti_weights_types *types,
                                                    const struct weft_tensor *tensor,
                                                    enum wefti_calib_input input, uint32_t layer) {
    struct wefti_weights_type type = {.stored = tensor->dtype};
    if (input == WEFTI_CALIB_ROUTER) {
        type.kind = storage_of(type.stored).exact;
        return type;
    }
    type.stored = stored_form(types, tensor, input, layer);
    type.kind = gemm_kind_for(types, storage_of(type.stored));
    return type;
}

struct wefti_weights_type wefti_weights_turned_type(struct wefti_weights_types *types,
                                                    const struct weft_tensor *tensor, uint32_t k,
                                                    uint32_t layer) {
    struct wefti_weights_type type;
    type.stored = turned_form(stored_form(types, tensor, WEFTI_CALIB_QKV, layer), tensor, k);
    type.kind = gemm_kind_for(types, storage_of(type.stored));
    return type;
}

/* Most of the file's bytes are of floats, which can be quantised. */
static bool is_float_mostly(const weft_model *model) {
    uint64_t floats = 0, all = 0;
    for (size_t i = 0; i < weft_model_n_tensors(model); i++) {
        const struct weft_tensor *tensor = weft_model_tensor(model, i);
        all += tensor->bytes;
        if (weft_dtype_is_float(tensor->dtype)) floats += tensor->bytes;
    }
    return floats > all / 2;
}

const char *wefti_weights_fewer_bits(const weft_model *model,
                                     const struct weft_eng_options *options) {
    if (weft_model_packed(model)) return NULL;
    bool is_float = is_float_mostly(model);
    switch (options->dtype) {
    case WEFT_ENG_DT_Q4:
        return NULL;
    case WEFT_ENG_DT_Q8:
        return is_float ? "fewer bits (--dtype q4)" : NULL;
    case WEFT_ENG_DT_F32:
    case WEFT_ENG_DT_F16:
    case WEFT_ENG_DT_BF16:
        return is_float ? "fewer bits (--dtype q8 or q4)" : "the file's own types (--dtype auto)";
    case WEFT_ENG_DT_AUTO:
        break;
    }
    return is_float ? "fewer bits (--dtype q8 or q4)" : NULL;
}

weft_err wefti_weights_types_check(const struct wefti_weights_types *types,
                                   struct weft_errmsg *why) {
    const struct weft_packed *packed = weft_model_packed(types->model);
    const char *dtype = wefti_options_dtype_name(types->options->dtype);
    bool scheme_asked = types->options->scheme != WEFT_ENG_SCHEME_AUTO;
    if (types->dtype_misfits && scheme_asked)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the model is packed by another quantisation scheme: leave "
                            "--quant-scheme out, or pack the model anew");
    if (types->dtype_misfits && strcmp(packed->packed_as, dtype) != 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the model is packed as %s, which --dtype %s cannot change: leave it "
                            "out, or pack the model anew",
                            packed->packed_as, dtype);
    if (types->n_ungrouped > 0 && !packed)
        weft_warn("%u weights get 8 bits and one scale per output feature: their columns are not a "
                  "multiple of 32 (%s has %" PRIu64 ")",
                  types->n_ungrouped, types->first_ungrouped->name,
                  types->first_ungrouped->dims[1]);
    if (types->n_kept > 0 && !packed)
        weft_warn("%u weights are quantised already: they stay as the file has them",
                  types->n_kept);
    if (types->asked_kind_met) return WEFT_OK;
    bool bf16 = types->options->activations == WEFT_ENG_ACT_BF16;
    const char *needed = !bf16                   ? "quantised weights"
                         : types->bf16_of_blocks ? "weights of bf16 or in blocks with scales"
                                                 : "bf16 weights";
    const char *more = bf16 && !types->bf16_of_blocks
                           ? " (blocks with scales will do where AMX with BF16 computes)"
                           : "";
    return weft_err_set(why, WEFT_E_INVAL, "%s activations need %s, the model has none%s",
                        bf16 ? "bf16" : "int8", needed, more);
}
