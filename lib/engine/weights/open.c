/* Opening the weights: a packed file is mapped as it is, others are packed into an arena. So is a
 * rank's share of a packed file. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/minmax.h"
#include "weights/arena.h"
#include "weights/plan.h"
#include "weights/weights.h"

/* PROTO: the arena has another layout than its tensors ask for. */
static weft_err check_packed_file(const struct wefti_weights_plan *plan, const char *path,
                                  struct weft_errmsg *why) {
    const struct weft_packed *packed = weft_model_packed(plan->model);
    if (packed->layout_hash == plan->place_hash &&
        packed->arena_bytes == weft_round_up(plan->whole_used, WEFT_PACKED_PAGE))
        return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO,
                        "%s: has another layout than its tensors ask for: it is damaged, or "
                        "another version of weft packed it",
                        path);
}

static void map_packed_file(weft_model *model, struct wefti_weights *weights) {
    weights->model_hash = weft_model_packed(model)->weights_hash;
    weights->inherited = true;
    weights->base = (uint8_t *)(uintptr_t)weft_model_take_mapping(model, &weights->map_bytes);
    (void)madvise(weights->base, weights->bytes, MADV_HUGEPAGE); /* for pages from disk */
}

bool wefti_weights_are_mapped(const weft_model *model, const struct weft_eng_options *options) {
    return weft_model_packed(model) && options->n_ranks == 1;
}

weft_err wefti_weights_lay_out(struct wefti_weights *weights, const weft_model *model,
                               const struct weft_eng_options *options,
                               struct wefti_weights_plan **plan_out, struct weft_errmsg *why) {
    *weights = (struct wefti_weights){0};
    *plan_out = NULL;
    struct wefti_weights_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return weft_err_set(why, WEFT_E_NOMEM, "no memory for the list of tensors");
    weft_err err = wefti_weights_plan_make(plan, model, options, weights, why);
    if (err)
        wefti_weights_plan_free(plan);
    else
        *plan_out = plan;
    return err;
}

void wefti_weights_plan_free(struct wefti_weights_plan *plan) {
    if (!plan) return;
    wefti_weights_plan_fini(plan);
    free(plan);
}

uint64_t wefti_weights_bytes_to_come(const struct wefti_weights *weights,
                                     const struct wefti_weights_plan *plan) {
    struct stat st;
    if (wefti_weights_are_mapped(plan->model, plan->options)) return 0;
    int fd = plan->options->weights_fd;
    if (fd < 0 || fstat(fd, &st) != 0) return weights->bytes;
    uint64_t there =
        (uint64_t)st.st_blocks * 512; /* the unit of st_blocks, whatever the system's */
    return weights->bytes > there ? weights->bytes - there : 0;
}

const uint64_t *wefti_weights_bytes_of_type(const struct wefti_weights_plan *plan) {
    return plan->bytes_of_type;
}

weft_err wefti_weights_load(struct wefti_weights *weights, struct wefti_weights_plan *plan,
                            const char *path, weft_model *model, struct wefti_pool *pool,
                            struct weft_eng_loading *loading, struct weft_errmsg *why) {
    plan->loading = loading;
    if (weft_model_packed(model)) {
        weft_err err = check_packed_file(plan, path, why);
        if (err) return err;
        if (wefti_weights_are_mapped(model, plan->options)) {
            map_packed_file(model, weights);
            return WEFT_OK;
        }
        plan->packed = weft_model_take_mapping(model, &plan->packed_bytes);
    }
    if (plan->options->weights_fd < 0) return wefti_weights_arena_private(plan, pool, weights, why);
    return wefti_weights_arena_shared(plan, path, pool, weights, plan->options->weights_fd, why);
}
