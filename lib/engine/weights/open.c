/* Opening the weights: a packed file is mapped as it is, others are packed into an arena. */
#include <sys/mman.h>

#include "weights/arena.h"
#include "weights/plan.h"
#include "weights/weights.h"

/* PROTO: the arena has another layout than its tensors ask for. */
static weft_err map_packed_file(const struct wefti_weights_plan *plan, const char *path,
                                weft_model *model, struct wefti_weights *weights,
                                struct weft_errmsg *why) {
    const struct weft_packed *packed = weft_model_packed(model);
    if (packed->layout_hash != plan->place_hash || packed->arena_bytes != weights->bytes)
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: has another layout than its tensors ask for: it is damaged, or "
                            "another version of weft packed it",
                            path);
    weights->model_hash = packed->weights_hash;
    weights->inherited = true;
    weights->base = (uint8_t *)(uintptr_t)weft_model_take_mapping(model, &weights->map_bytes);
    (void)madvise(weights->base, weights->bytes, MADV_HUGEPAGE); /* for pages from disk */
    return WEFT_OK;
}

weft_err wefti_weights_open(struct wefti_weights *weights, const char *path, weft_model *model,
                            const struct weft_eng_options *options, struct wefti_pool *pool,
                            struct weft_errmsg *why) {
    *weights = (struct wefti_weights){0};
    struct wefti_weights_plan plan;
    weft_err err = wefti_weights_plan_make(&plan, model, options, weights, why);
    if (err) goto cleanup;
    if (weft_model_packed(model)) {
        err = map_packed_file(&plan, path, model, weights, why);
    } else if (options->weights_fd < 0) {
        err = wefti_weights_arena_private(&plan, pool, weights, why);
    } else {
        err = wefti_weights_arena_shared(&plan, path, pool, weights, options->weights_fd, why);
    }
cleanup:
    wefti_weights_plan_fini(&plan);
    if (err) wefti_weights_close(weights);
    return err;
}
