/* Pairs the tensors of an adapter, A and B of each module, and checks them against the model. A
 * tensor that has no place is refused: leaving it out would give an adapter that runs and is
 * wrong. */
#include "lora_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "arch.h"
#include "base/check.h"
#include "gguf/gguf.h"
#include "hf/hf.h"

#define PEFT_FILE "adapter_model.safetensors"
#define PEFT_PREFIX "base_model.model."

/* How the two tensors of a module are named in a format. */
static const struct naming {
    const char *prefix, *a, *b;
} namings[] = {[WEFT_MODEL_HF] = {PEFT_PREFIX, ".lora_A.weight", ".lora_B.weight"},
               [WEFT_MODEL_GGUF] = {"", ".lora_a", ".lora_b"}};

struct reader {
    weft_lora *lora;
    const char *path;
    const struct weft_lora_base *base;
    enum weft_model_format format;   /* of the adapter */
    const wefti_lora_config *config; /* NULL: of GGUF files */
    double alpha;                    /* of a GGUF file; 0: the scale is 1 */
    bool is_permuted;                /* rows of q and k lie in another order than the model's */
    struct weft_errmsg *why;
};

static weft_err refuse(const struct reader *r, const char *tensor, const char *fault,
                       weft_err err) {
    struct wefti_model_shown shown = wefti_model_show(tensor, strlen(tensor));
    return weft_err_set(r->why, err, "%s: tensor '%s' %s", r->path, shown.text, fault);
}

/* ----------------------------------------------------------------------------------- parts --- */

static weft_err grow(struct reader *r) {
    weft_lora *lora = r->lora;
    size_t cap = lora->cap_parts ? 2 * lora->cap_parts : 64; /* there are no more than tensors */
    if (lora->n_parts < lora->cap_parts) return WEFT_OK;
    struct weft_lora_part *parts = realloc(lora->parts, cap * sizeof *parts);
    if (!parts) return weft_err_set(r->why, WEFT_E_NOMEM, "%s: out of memory", r->path);
    lora->parts = parts;
    lora->cap_parts = cap;
    return WEFT_OK;
}

/* A matrix of a tensor that may hold one per expert. */
static struct weft_tensor view_of(const struct weft_tensor *tensor, uint32_t idx) {
    struct weft_tensor view = *tensor;
    if (tensor->n_dims != 3) return view;
    view.n_dims = 2;
    view.dims[0] = tensor->dims[1];
    view.dims[1] = tensor->dims[2];
    view.bytes = tensor->bytes / tensor->dims[0];
    view.data = (const unsigned char *)tensor->data + idx * view.bytes;
    return view;
}

/* Rows of q and k are in the order of RoPE's pairs there, and of its halves here, or the reverse. */
static void note_order(const struct reader *r, struct weft_lora_part *part) {
    bool turns = part->role == WEFT_LORA_Q || part->role == WEFT_LORA_K;
    if (!r->is_permuted || !turns) return;
    part->head_dim = r->base->params->head_dim;
    part->from_pairs = r->format == WEFT_MODEL_GGUF;
}

/* NULL: it is none that is served. */
static const struct wefti_model_arch *arch_of(const struct weft_lora_base *base) {
    const char *name = base->params->arch;
    return wefti_model_arch_of_gguf((struct weft_str){name, strlen(name)});
}

static weft_err add_part(struct reader *r, const struct wefti_lora_module *module,
                         const struct weft_lora_part *part) {
    weft_err err = grow(r);
    if (err) return err;
    struct weft_lora_part *added = &r->lora->parts[r->lora->n_parts++];
    *added = *part;
    added->layer = module->layer;
    note_order(r, added);
    /* A reads what heads made: in GGUF files of some families in another order. */
    const struct wefti_model_arch *arch = arch_of(r->base);
    if (part->role == WEFT_LORA_REC_OUT && r->format != r->base->format && arch &&
        arch->traits.tiled_heads)
        return refuse(r, part->a.name,
                      "is of a layer whose heads stand in another order in the model's file",
                      WEFT_E_UNSUPPORTED);
    return WEFT_OK;
}

/* All matrices of a module; A is the same for each, their rows of B follow one another. */
static weft_err add_matrices(struct reader *r, const struct wefti_lora_module *module,
                             const struct weft_tensor *a, const struct weft_tensor *b,
                             float scale) {
    uint32_t n_experts = module->all_experts ? r->base->params->moe.n_experts : 1;
    const uint32_t head_dim = weft_model_head_dim(r->base->params, module->layer);
    for (uint32_t e = 0; e < n_experts; e++) {
        struct weft_lora_part part = {.expert = module->all_experts ? e : module->expert,
                                      .scale = scale,
                                      .a = view_of(a, e),
                                      .b = view_of(b, e)};
        if (module->by_head) part.run = head_dim;
        part.step = part.run * module->n_roles;
        part.rank = (uint32_t)part.a.dims[0];
        for (uint32_t i = 0; i < module->n_roles; i++) {
            part.role = module->roles[i];
            wefti_lora_shape(r->base->params, module, part.role, &part.n, &part.k);
            weft_err err = add_part(r, module, &part);
            if (err) return err;
            part.b_row += module->by_head ? head_dim : part.n;
        }
    }
    return WEFT_OK;
}

static weft_err check_shape(const struct reader *r, const struct weft_tensor *tensor,
                            const struct wefti_lora_module *module, uint64_t rows,
                            uint64_t columns) {
    bool is_stack = module->all_experts;
    struct weft_errmsg fault;
    const uint64_t *dims = tensor->dims + is_stack;
    if (tensor->n_dims == 2u + is_stack && dims[0] == rows && dims[1] == columns &&
        (!is_stack || tensor->dims[0] == r->base->params->moe.n_experts))
        return WEFT_OK;
    (void)snprintf(fault.text, sizeof fault.text,
                   "does not have the shape [%llu, %llu] that the model and the rank ask for",
                   (unsigned long long)rows, (unsigned long long)columns);
    return refuse(r, tensor->name, fault.text, WEFT_E_PROTO);
}

static weft_err check_shapes(const struct reader *r, const struct wefti_lora_module *module,
                             const struct weft_tensor *a, const struct weft_tensor *b,
                             uint32_t rank) {
    uint32_t n_sum = 0, n = 0, k = 0;
    for (uint32_t i = 0; i < module->n_roles; i++, n_sum += n)
        wefti_lora_shape(r->base->params, module, module->roles[i], &n, &k);
    weft_err err = check_shape(r, a, module, rank, k);
    return err ? err : check_shape(r, b, module, n_sum, rank);
}

/* Of a GGUF file the tensor says the rank. */
static weft_err measure(const struct reader *r, const struct wefti_lora_named *named,
                        const struct weft_tensor *a, uint32_t layer,
                        struct wefti_lora_measure *out) {
    if (r->config) return wefti_lora_config_of(r->config, named, layer, out, r->why);
    uint64_t rank = a->n_dims >= 2 ? a->dims[a->n_dims - 2] : 0;
    if (rank < 1 || rank > WEFT_LORA_RANK_MAX)
        return refuse(r, a->name, "has no rank from 1 to 256", WEFT_E_PROTO);
    out->rank = (uint32_t)rank;
    out->scale = r->alpha > 0 ? (float)(r->alpha / (double)rank) : 1;
    return WEFT_OK;
}

static weft_err check_measure(const struct reader *r, const struct weft_tensor *a,
                              const struct wefti_lora_measure *measure) {
    struct weft_errmsg fault;
    if (!isfinite(measure->scale))
        return refuse(r, a->name, "has a scale that is no number", WEFT_E_PROTO);
    if (measure->rank <= r->base->rank_max) return WEFT_OK;
    (void)snprintf(fault.text, sizeof fault.text, "has rank %u; the server takes at most %u",
                   measure->rank, r->base->rank_max);
    return refuse(r, a->name, fault.text, WEFT_E_TOOBIG);
}

static weft_err add_pair(struct reader *r, const struct weft_tensor *a, const struct weft_tensor *b,
                         struct weft_str name) {
    const struct wefti_lora_named named = {name, a->name, r->path, r->format};
    struct wefti_lora_module module;
    struct wefti_lora_measure of = {0};
    weft_err err = wefti_lora_find_module(r->base->params, &named, &module, r->why);
    if (!err) err = measure(r, &named, a, module.layer, &of);
    if (!err) err = check_measure(r, a, &of);
    if (err) return err;
    if (!weft_dtype_is_float(a->dtype) || !weft_dtype_is_float(b->dtype))
        return refuse(r, weft_dtype_is_float(a->dtype) ? b->name : a->name,
                      "is not of F32, F16 or BF16", WEFT_E_UNSUPPORTED);
    err = check_shapes(r, &module, a, b, of.rank);
    return err ? err : add_matrices(r, &module, a, b, of.scale);
}

/* --------------------------------------------------------------------------------- pairing --- */

static bool ends_with(const char *text, size_t len, const char *suffix) {
    size_t n = strlen(suffix);
    return len > n && memcmp(text + len - n, suffix, n) == 0;
}

/* The tensor of the same module under the other suffix. */
static weft_err find_twin(const struct reader *r, const char *name, size_t module_len,
                          const char *suffix, const struct weft_tensor **out) {
    char twin[WEFTI_MODEL_TENSOR_NAME_BYTES_MAX + 32];
    (void)snprintf(twin, sizeof twin, "%.*s%s", (int)module_len, name, suffix);
    *out = weft_model_find(r->lora->file, twin);
    return *out ? WEFT_OK : refuse(r, twin, "is missing", WEFT_E_PROTO);
}

static weft_err take_tensor(struct reader *r, const struct weft_tensor *tensor) {
    const struct naming *naming = &namings[r->format];
    const char *name = tensor->name;
    size_t len = strlen(name), n_prefix = strlen(naming->prefix), n_a = strlen(naming->a);
    const struct weft_tensor *twin;
    if (ends_with(name, len, ".lora_magnitude_vector"))
        return refuse(r, name, "is of DoRA, which is not supported", WEFT_E_UNSUPPORTED);
    if (strncmp(name, naming->prefix, n_prefix) != 0)
        return refuse(r, name, "does not begin with '" PEFT_PREFIX "'", WEFT_E_PROTO);
    if (ends_with(name, len, naming->b))
        return find_twin(r, name, len - strlen(naming->b), naming->a, &twin);
    if (!ends_with(name, len, naming->a))
        return refuse(r, name, "has no part in a LoRA adapter", WEFT_E_UNSUPPORTED);
    weft_err err = find_twin(r, name, len - n_a, naming->b, &twin);
    if (err) return err;
    return add_pair(r, tensor, twin, (struct weft_str){name + n_prefix, len - n_prefix - n_a});
}

static int by_place(const void *left, const void *right) {
    const struct weft_lora_part *a = left, *b = right;
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    if (a->expert != b->expert) return a->expert < b->expert ? -1 : 1;
    return a->role < b->role ? -1 : a->role > b->role;
}

static weft_err sort_parts(struct reader *r) {
    weft_lora *lora = r->lora;
    if (lora->n_parts == 0)
        return weft_err_set(r->why, WEFT_E_PROTO, "%s: the adapter changes nothing", r->path);
    qsort(lora->parts, lora->n_parts, sizeof *lora->parts, by_place);
    for (size_t i = 1; i < lora->n_parts; i++) {
        if (by_place(&lora->parts[i - 1], &lora->parts[i]) == 0)
            return refuse(r, lora->parts[i].a.name, "is of a matrix that has another one",
                          WEFT_E_PROTO);
    }
    return WEFT_OK;
}

/* ---------------------------------------------------------------------------------- values --- */

/* The most that a part may make of inputs of 1: with activations of up to 1e6, squares of what comes
 * out of it still fit into an f32, as in norms and attention. Adapters that were trained stay far
 * below, with some 1e9 at the very worst. */
#define GAIN_MAX 1e12

/* Adds rows to the digest. The largest magnitude among their values; infinite if one is no number. */
static double add_rows(XXH3_state_t *state, const struct weft_lora_part *part, uint32_t n_rows,
                       uint32_t n_columns,
                       void (*read)(const struct weft_lora_part *, uint32_t, float *), float *row) {
    float most = 0;
    bool are_numbers = true;
    for (uint32_t i = 0; i < n_rows; i++) {
        read(part, i, row);
        (void)XXH3_128bits_update(state, row, n_columns * sizeof *row);
        for (uint32_t c = 0; c < n_columns; c++) {
            most = fabsf(row[c]) > most ? fabsf(row[c]) : most;
            are_numbers = are_numbers && isfinite(row[c]);
        }
    }
    return are_numbers ? (double)most : INFINITY;
}

static weft_err check_values(const struct reader *r, const struct weft_lora_part *part,
                             double a_most, double b_most) {
    if (!isfinite(a_most) || !isfinite(b_most))
        return refuse(r, isfinite(a_most) ? part->b.name : part->a.name,
                      "has values that are no finite numbers", WEFT_E_PROTO);
    double inner = a_most * part->k, outer = b_most * part->rank * fabs((double)part->scale);
    if (inner <= GAIN_MAX && outer <= GAIN_MAX && inner * outer <= GAIN_MAX) return WEFT_OK;
    return refuse(r, inner > outer ? part->a.name : part->b.name,
                  "has values so large that nothing can be computed with them", WEFT_E_PROTO);
}

/* Reads all values once. */
static weft_err set_digest(struct reader *r) {
    weft_lora *lora = r->lora;
    XXH3_state_t *state = XXH3_createState();
    float *row = malloc(sizeof *row * WEFT_HIDDEN_MAX);
    weft_err err = WEFT_E_NOMEM;
    if (!state || !row) {
        err = weft_err_set(r->why, err, "%s: out of memory", r->path);
        goto cleanup;
    }
    (void)XXH3_128bits_reset(state);
    err = WEFT_OK;
    for (size_t i = 0; i < lora->n_parts && !err; i++) {
        const struct weft_lora_part *part = &lora->parts[i];
        const uint32_t place[] = {part->layer, part->expert, part->role,
                                  part->rank,  part->n,      part->k};
        WEFT_ASSERT(part->k <= WEFT_HIDDEN_MAX && part->rank <= WEFT_LORA_RANK_MAX);
        (void)XXH3_128bits_update(state, place, sizeof place);
        (void)XXH3_128bits_update(state, &part->scale, sizeof part->scale);
        double a_most = add_rows(state, part, part->rank, part->k, weft_lora_a_row, row);
        double b_most = add_rows(state, part, part->n, part->rank, weft_lora_b_row, row);
        err = check_values(r, part, a_most, b_most);
    }
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    lora->digest = (struct weft_digest){.hi = hash.high64, .lo = hash.low64 | 1};
cleanup:
    (void)XXH3_freeState(state);
    free(row);
    return err;
}

/* ---------------------------------------------------------------------------------- opening --- */

static weft_err take_all(struct reader *r) {
    weft_lora *lora = r->lora;
    weft_err err = wefti_model_index(lora->file, r->path, r->why);
    for (size_t i = 0; i < lora->file->n_tensors && !err; i++)
        err = take_tensor(r, &lora->file->tensors[i]);
    if (!err) err = sort_parts(r);
    return err ? err : set_digest(r);
}

/* Whether a converter of GGUF files permutes the rows of q and k of this model. */
static bool is_permuted_in_gguf(const struct weft_lora_base *base) {
    const struct wefti_model_arch *arch = arch_of(base);
    return arch && arch->gguf_rope_interleaved && !arch->traits.latent;
}

/* Falcon-H1's converter multiplies weights, and adapters likewise. */
static bool has_factors_in_gguf(const struct weft_lora_base *base) {
    const struct wefti_model_arch *arch = arch_of(base);
    return arch && arch->traits.multipliers;
}

/* A family may have several names in GGUF files, of which models in folders have one. */
static bool is_of_family(const struct weft_lora_base *base, struct weft_str name) {
    const struct wefti_model_arch *own = arch_of(base), *arch = wefti_model_arch_of_gguf(name);
    return own && arch && strcmp(own->hf_class, arch->hf_class) == 0;
}

static weft_err check_gguf(struct reader *r, const weft_gguf *gguf) {
    const struct {
        const char *key, *value;
    } wanted[] = {{"general.type", "adapter"},
                  {"adapter.type", "lora"},
                  {"general.architecture", r->base->params->arch}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        struct weft_str text = {"", 0};
        bool is_there = weft_gguf_str(gguf, wanted[i].key, &text);
        if (is_there && text.len == strlen(wanted[i].value) &&
            memcmp(text.data, wanted[i].value, text.len) == 0)
            continue;
        const bool is_name = strcmp(wanted[i].key, "general.architecture") == 0;
        if (is_there && is_name && is_of_family(r->base, text)) continue;
        if (!is_there)
            return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                                "%s: it has no %s, which must be '%s' in the file of an adapter",
                                r->path, wanted[i].key, wanted[i].value);
        struct wefti_model_shown shown = wefti_model_show(text.data, text.len);
        return weft_err_set(r->why, WEFT_E_UNSUPPORTED, "%s: %s is '%s' and not '%s'", r->path,
                            wanted[i].key, shown.text, wanted[i].value);
    }
    if (weft_gguf_array(gguf, "adapter.alora.invocation_tokens", &(enum weft_gguf_type){0},
                        &(size_t){0}))
        return weft_err_set(r->why, WEFT_E_UNSUPPORTED, "%s: activated LoRA is not supported",
                            r->path);
    if (!weft_gguf_f64(gguf, "adapter.lora.alpha", &r->alpha) || !isfinite(r->alpha) ||
        r->alpha < 0)
        return weft_err_set(r->why, WEFT_E_PROTO, "%s: adapter.lora.alpha is no positive number",
                            r->path);
    return WEFT_OK;
}

static weft_err read_gguf(struct reader *r, struct wefti_model_file *file) {
    weft_gguf *gguf = NULL;
    weft_err err = wefti_model_gguf_parse(file, &gguf, r->why);
    if (err) return err;
    r->path = gguf->file.path;
    err = check_gguf(r, gguf);
    if (!err) err = wefti_model_gguf_tensors(r->lora->file, gguf, r->why);
    if (!err) err = take_all(r);
    /* The views go on pointing into the bytes, which the adapter keeps. */
    if (!err) err = wefti_model_add_file(r->lora->file, &gguf->file);
    weft_gguf_free(gguf);
    return err;
}

static weft_err read_peft(struct reader *r, struct wefti_model_file *file) {
    weft_err err = wefti_model_add_file(r->lora->file, file);
    if (err) return weft_err_set(r->why, err, "out of memory");
    file = &r->lora->file->files[0];
    r->path = file->path;
    err = wefti_model_safetensors_read(r->lora->file, file, r->why);
    return err ? err : take_all(r);
}

weft_err wefti_lora_from_file(struct wefti_model_file *file, const wefti_lora_config *config,
                              const struct weft_lora_base *base, weft_lora **lora_out,
                              struct weft_errmsg *why) {
    *lora_out = NULL;
    struct reader r = {.lora = calloc(1, sizeof *r.lora),
                       .base = base,
                       .format = config ? WEFT_MODEL_HF : WEFT_MODEL_GGUF,
                       .config = config,
                       .why = why};
    weft_err err = WEFT_E_NOMEM;
    WEFT_ASSERT(base->rank_max >= 1 && base->rank_max <= WEFT_LORA_RANK_MAX);
    r.is_permuted = r.format != base->format && is_permuted_in_gguf(base);
    if (r.format != base->format && has_factors_in_gguf(base)) {
        err = weft_err_set(why, WEFT_E_UNSUPPORTED,
                           "%s: weights of %s have factors in GGUF files that folders have apart: "
                           "adapters are supported in the model's own format only",
                           file->path, base->params->arch);
        wefti_model_file_close(file);
        goto cleanup;
    }
    if (r.lora) r.lora->file = wefti_model_new();
    if (!r.lora || !r.lora->file) {
        err = weft_err_set(why, err, "%s: out of memory", file->path);
        wefti_model_file_close(file);
        goto cleanup;
    }
    err = config ? read_peft(&r, file) : read_gguf(&r, file);
    if (err) goto cleanup;
    *lora_out = r.lora;
    r.lora = NULL;
cleanup:
    weft_lora_free(r.lora);
    return err;
}

/* Into memory: clients have adapters loaded while the server runs, and whoever writes such a file must
 * not be able to end it. */
static weft_err open_tensors(const char *path, const struct weft_lora_base *base,
                             struct wefti_model_file *file_out, struct weft_errmsg *why) {
    const struct weft_lora_base any = {base->params, base->format, base->rank_max, 0};
    uint64_t bytes_max = wefti_lora_file_bytes_max(base);
    weft_err err = wefti_model_file_open(path, WEFTI_MODEL_FILE_COPIED, bytes_max, file_out, why);
    if (err != WEFT_E_TOOBIG) return err;
    if (bytes_max < wefti_lora_file_bytes_max(&any))
        return weft_err_set(why, WEFT_E_FULL,
                            "%s: the file has over %" PRIu64
                            " bytes, which is more than --max-lora-memory leaves room for",
                            path, bytes_max);
    return weft_err_set(why, err,
                        "%s: the file has over %" PRIu64
                        " bytes, which is more than an adapter of rank %u of this model needs",
                        path, bytes_max, base->rank_max);
}

static weft_err open_peft(const char *dir, const struct weft_lora_base *base, weft_lora **lora_out,
                          struct weft_errmsg *why) {
    wefti_lora_config *config = NULL;
    struct wefti_model_file file;
    char *path = NULL;
    weft_err err = wefti_lora_config_read(dir, &config, why);
    if (err) return err;
    if (asprintf(&path, "%s/" PEFT_FILE, dir) < 0) {
        path = NULL; /* asprintf leaves it undefined */
        err = weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", dir);
        goto cleanup;
    }
    err = open_tensors(path, base, &file, why);
    if (!err) err = wefti_lora_from_file(&file, config, base, lora_out, why);
cleanup:
    free(path);
    wefti_lora_config_free(config);
    return err;
}

weft_err weft_lora_open(const char *path, const struct weft_lora_base *base, weft_lora **lora_out,
                        struct weft_errmsg *why) {
    struct wefti_model_file file;
    struct stat st;
    *lora_out = NULL;
    if (base->params->encoder.is_on)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: the model is an encoder, whose adapters are not supported", path);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return open_peft(path, base, lora_out, why);
    weft_err err = open_tensors(path, base, &file, why);
    if (err) return err;
    if (file.n_bytes < 4 || memcmp(file.bytes, "GGUF", 4) != 0) {
        err = weft_err_set(why, WEFT_E_PROTO,
                           "%s: is neither the folder of a PEFT adapter nor a GGUF file", path);
        wefti_model_file_close(&file);
        return err;
    }
    return wefti_lora_from_file(&file, NULL, base, lora_out, why);
}

void weft_lora_free(weft_lora *lora) {
    if (!lora) return;
    weft_model_free(lora->file);
    free(lora->parts);
    free(lora);
}

/* ----------------------------------------------------------------------------------- asking --- */

const struct weft_lora_part *weft_lora_parts(const weft_lora *lora, size_t *n_out) {
    *n_out = lora->n_parts;
    return lora->parts;
}

struct weft_digest weft_lora_digest(const weft_lora *lora) {
    return lora->digest;
}

void weft_lora_a_row(const struct weft_lora_part *part, uint32_t row, float *out) {
    WEFT_ASSERT(row < part->rank);
    weft_tensor_row_f32(&part->a, row, out);
}

void weft_lora_b_row(const struct weft_lora_part *part, uint32_t row, float *out) {
    WEFT_ASSERT(row < part->n);
    if (part->head_dim > 0) {
        uint32_t half = part->head_dim / 2, in_head = row % part->head_dim;
        uint32_t pairs = in_head % half * 2 + in_head / half;
        uint32_t halves = in_head % 2 * half + in_head / 2;
        row += (part->from_pairs ? pairs : halves) - in_head;
    }
    if (part->run > 0) row = row / part->run * part->step + row % part->run;
    weft_tensor_row_f32(&part->b, (uint64_t)part->b_row + row, out);
}
