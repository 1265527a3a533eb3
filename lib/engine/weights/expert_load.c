#include "weights/expert_load.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/limits.h"
#include "collective/collective.h"

#define VERSION 1
/* Of all layers, at some 20 bytes for an expert, and as much again for whitespace. */
#define FILE_BYTES_MAX ((size_t)WEFT_LAYERS_MAX * WEFT_EXPERTS_MAX * 40)
/* The sum of a layer's stays in 64 bits. */
#define TOKENS_MAX (INT64_C(1) << 52)
_Static_assert(TOKENS_MAX <= INT64_MAX / WEFT_EXPERTS_MAX, "a layer's tokens can be added up");

/* ----------------------------------------------------------------------------------- reading --- */

static weft_err check_number(const char *path, const json_t *root, const char *key, uint64_t want,
                             struct weft_errmsg *why) {
    const json_t *value = json_object_get(root, key);
    if (json_is_integer(value) && json_integer_value(value) == (json_int_t)want) return WEFT_OK;
    if (!json_is_integer(value))
        return weft_err_set(why, WEFT_E_INVAL, "%s: is no profile of experts: \"%s\" is no number",
                            path, key);
    return weft_err_set(why, WEFT_E_INVAL,
                        "%s: is of another model: its \"%s\" is %" JSON_INTEGER_FORMAT
                        ", not %" PRIu64,
                        path, key, json_integer_value(value), want);
}

/* A layer without experts may have an empty list. */
static weft_err read_layer(const char *path, const json_t *list, uint32_t layer, uint32_t n,
                           uint64_t *out, struct weft_errmsg *why) {
    if (!json_is_array(list) || (json_array_size(list) != n && json_array_size(list) != 0))
        return weft_err_set(why, WEFT_E_INVAL, "%s: layer %u has no list of %u numbers", path,
                            layer, n);
    for (uint32_t e = 0; e < json_array_size(list); e++) {
        const json_t *value = json_array_get(list, e);
        json_int_t tokens = json_is_integer(value) ? json_integer_value(value) : -1;
        if (tokens < 0 || tokens > TOKENS_MAX)
            return weft_err_set(why, WEFT_E_INVAL,
                                "%s: the tokens of expert %u in layer %u are no number from 0 to "
                                "%" PRId64,
                                path, e, layer, TOKENS_MAX);
        out[e] = (uint64_t)tokens;
    }
    return WEFT_OK;
}

static weft_err read_profile(const char *path, const json_t *root,
                             const struct weft_model_params *p, uint64_t *tokens,
                             struct weft_errmsg *why) {
    const char *arch = json_string_value(json_object_get(root, "architecture"));
    const json_t *layers = json_object_get(root, "tokens");
    weft_err err = check_number(path, root, "weft_expert_profile", VERSION, why);
    if (err) return err;
    if (!arch || strcmp(arch, p->arch) != 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "%s: is of another model: its architecture is not %s", path, p->arch);
    err = check_number(path, root, "layers", p->n_layers, why);
    if (!err) err = check_number(path, root, "experts", p->moe.n_experts, why);
    if (!err) err = check_number(path, root, "hidden", p->n_hidden, why);
    if (err) return err;
    if (!json_is_array(layers) || json_array_size(layers) != p->n_layers)
        return weft_err_set(why, WEFT_E_INVAL, "%s: \"tokens\" is no list of %u layers", path,
                            p->n_layers);
    for (uint32_t i = 0; i < p->n_layers && !err; i++)
        err = read_layer(path, json_array_get(layers, i), i, p->moe.n_experts,
                         tokens + (size_t)i * p->moe.n_experts, why);
    return err;
}

weft_err wefti_expert_load_read(const char *path, const struct weft_model_params *p,
                                uint64_t **tokens_out, struct weft_errmsg *why) {
    char *text = NULL;
    size_t len = 0;
    json_error_t error;
    json_t *root = NULL;
    uint64_t *tokens = NULL;
    *tokens_out = NULL;
    if (p->moe.n_experts == 0)
        return weft_err_set(why, WEFT_E_INVAL, "%s: the model has no experts to place", path);
    weft_err err = weft_file_read(path, WEFT_FILE_REGULAR, FILE_BYTES_MAX, &text, &len, why);
    if (err) return err;
    root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        err = weft_err_set(why, WEFT_E_INVAL, "%s: is no JSON from line %d, column %d on", path,
                           error.line, error.column);
        goto cleanup;
    }
    if (!json_is_object(root)) {
        err = weft_err_set(why, WEFT_E_INVAL, "%s: is no JSON object, so no profile of experts",
                           path);
        goto cleanup;
    }
    tokens = calloc((size_t)p->n_layers * p->moe.n_experts, sizeof *tokens);
    if (!tokens) {
        err = weft_err_set(why, WEFT_E_NOMEM, "no memory for the profile of experts");
        goto cleanup;
    }
    err = read_profile(path, root, p, tokens, why);
    if (err) goto cleanup;
    *tokens_out = tokens;
    tokens = NULL;
cleanup:
    free(tokens);
    json_decref(root);
    free(text);
    return err;
}

/* ----------------------------------------------------------------------------------- writing --- */

static json_t *profile_of(const struct wefti_expert_load *load) {
    json_t *layers = json_array();
    for (uint32_t i = 0; i < load->n_layers; i++) {
        json_t *layer = json_array();
        for (uint32_t e = 0; e < load->n_experts; e++)
            (void)json_array_append_new(
                layer, json_integer((json_int_t)load->tokens[(size_t)i * load->n_experts + e]));
        (void)json_array_append_new(layers, layer);
    }
    return json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:o}", "weft_expert_profile", VERSION, "model",
                     load->model, "architecture", load->arch, "layers", (json_int_t)load->n_layers,
                     "experts", (json_int_t)load->n_experts, "hidden", (json_int_t)load->n_hidden,
                     "tokens", layers);
}

weft_err wefti_expert_load_write(FILE *out, const struct wefti_expert_load *load,
                                 struct weft_errmsg *why) {
    json_t *root = profile_of(load);
    char *text = root ? json_dumps(root, JSON_PRESERVE_ORDER) : NULL;
    weft_err err = WEFT_OK;
    json_decref(root);
    if (!text) return weft_err_set(why, WEFT_E_NOMEM, "no memory for the profile of experts");
    if (fprintf(out, "%s\n", text) < 0)
        err = weft_err_errno(why, errno, "cannot write the profile of experts");
    free(text);
    return err;
}

/* ----------------------------------------------------------------------------------- placing --- */

enum { GROUPS = WEFTI_WEIGHTS_EXPERT_GROUPS };

/* The group with the most tokens that is not taken yet, the first of equal ones. */
static uint32_t next_group(const uint64_t loads[GROUPS], uint32_t taken) {
    uint32_t best = GROUPS;
    for (uint32_t g = 0; g < GROUPS; g++) {
        if (taken >> g & 1u) continue;
        if (best == GROUPS || loads[g] > loads[best]) best = g;
    }
    return best;
}

void wefti_expert_load_place(const uint64_t *tokens, uint32_t n_experts, uint32_t n_ranks,
                             uint8_t rank_out[GROUPS]) {
    uint64_t loads[GROUPS] = {0}, rank_loads[WEFT_COLL_RANKS_MAX] = {0}, all = 0;
    uint32_t n_groups[WEFT_COLL_RANKS_MAX] = {0}, taken = 0;
    for (uint32_t g = 0, e = 0; g < GROUPS && tokens; g++) {
        for (; e < wefti_weights_expert_group_end(n_experts, g); e++)
            loads[g] += tokens[e];
        all += loads[g];
    }
    for (uint32_t i = 0; i < GROUPS; i++) {
        uint32_t g = all > 0 ? next_group(loads, taken) : i;
        uint32_t rank = all > 0 ? n_ranks : i * n_ranks / GROUPS;
        WEFT_ASSERT(g < GROUPS);
        for (uint32_t r = 0; r < n_ranks && all > 0; r++) {
            if (n_groups[r] == GROUPS / n_ranks) continue;
            if (rank == n_ranks || rank_loads[r] < rank_loads[rank]) rank = r;
        }
        WEFT_ASSERT(rank < n_ranks);
        rank_out[g] = (uint8_t)rank;
        rank_loads[rank] += loads[g];
        n_groups[rank]++;
        taken |= 1u << g;
    }
}
