/* Fused and stacked tensors, taken apart under the names that other models give the parts. A weight
 * is [out features, in features] row by row, so a part is a run of rows (of a bias: of elements), and still a
 * view into the file; so is an expert's of a stack of all experts of a layer. Everything after this, packed files
 * included, knows parts alone. */
#include "model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch.h"
#include "base/check.h"
#include "parts.h"

enum rows { ROWS_Q, ROWS_KV, ROWS_FFN, ROWS_SHARED };

struct part {
    const char *names[2]; /* by enum weft_model_format */
    enum rows rows;
};

enum { PARTS_MAX = 3 };

static const struct fused {
    const char *names[2];
    uint32_t n_dims, n_parts;
    struct part parts[PARTS_MAX];
    bool by_head; /* each head's rows of all parts together, as many heads of each */
} all_fused[] = {
    {{"self_attn.qkv_by_head.weight", ""},
     2,
     3,
     {{{"self_attn.q_proj.weight", ""}, ROWS_Q},
      {{"self_attn.k_proj.weight", ""}, ROWS_KV},
      {{"self_attn.v_proj.weight", ""}, ROWS_KV}},
     true},
    {{"self_attn.qkv_by_head.bias", "attn_qkv.bias"},
     1,
     3,
     {{{"self_attn.q_proj.bias", "attn_q.bias"}, ROWS_Q},
      {{"self_attn.k_proj.bias", "attn_k.bias"}, ROWS_KV},
      {{"self_attn.v_proj.bias", "attn_v.bias"}, ROWS_KV}},
     true},
    {{"self_attn.qkv_proj.weight", "attn_qkv.weight"},
     2,
     3,
     {{{"self_attn.q_proj.weight", "attn_q.weight"}, ROWS_Q},
      {{"self_attn.k_proj.weight", "attn_k.weight"}, ROWS_KV},
      {{"self_attn.v_proj.weight", "attn_v.weight"}, ROWS_KV}},
     false},
    {{"attn.Wqkv.weight", ""},
     2,
     3,
     {{{"attn.Wq.weight", ""}, ROWS_Q},
      {{"attn.Wk.weight", ""}, ROWS_KV},
      {{"attn.Wv.weight", ""}, ROWS_KV}},
     false},
    {{"mlp.Wi.weight", ""},
     2,
     2,
     {{{"mlp.Wi_gate.weight", ""}, ROWS_FFN}, {{"mlp.Wi_up.weight", ""}, ROWS_FFN}},
     false},
    {{"mlp.gate_up_proj.weight", "ffn_up.weight"},
     2,
     2,
     {{{"mlp.gate_proj.weight", "ffn_gate.weight"}, ROWS_FFN},
      {{"mlp.up_proj.weight", "ffn_up.weight"}, ROWS_FFN}},
     false},
    {{"mlp.shared_gate_up.weight", ""},
     2,
     2,
     {{{"mlp.shared_experts.gate_proj.weight", ""}, ROWS_SHARED},
      {{"mlp.shared_experts.up_proj.weight", ""}, ROWS_SHARED}},
     false},
    {{"attention.qkv_proj.weight", ""},
     2,
     3,
     {{{"attention.q_proj.weight", ""}, ROWS_Q},
      {{"attention.k_proj.weight", ""}, ROWS_KV},
      {{"attention.v_proj.weight", ""}, ROWS_KV}},
     false},
    {{"attention.qkv_proj.bias", ""},
     1,
     3,
     {{{"attention.q_proj.bias", ""}, ROWS_Q},
      {{"attention.k_proj.bias", ""}, ROWS_KV},
      {{"attention.v_proj.bias", ""}, ROWS_KV}},
     false},
    {{"mlp.up_gate_proj.weight", ""},
     2,
     2,
     {{{"mlp.up_proj.weight", ""}, ROWS_FFN}, {{"mlp.gate_proj.weight", ""}, ROWS_FFN}},
     false},
};

static uint64_t n_rows(const struct weft_model_params *p, enum rows rows) {
    if (rows == ROWS_Q) return (uint64_t)p->n_heads * p->head_dim;
    if (rows == ROWS_SHARED) return p->moe.n_experts > 0 ? p->moe.n_ffn_shared : p->n_ffn;
    return rows == ROWS_KV ? (uint64_t)p->n_kv_heads * p->head_dim : p->n_ffn;
}

/* The kind of fused tensor; NULL: it is none, or its shape is that of a part. */
static const struct fused *find_fused(const struct weft_model_params *p,
                                      const struct weft_tensor *tensor,
                                      enum weft_model_format format, size_t *prefix_len_out) {
    const char *name = wefti_model_after_layer(tensor->name, format, prefix_len_out);
    for (size_t i = 0; name && i < sizeof all_fused / sizeof all_fused[0]; i++) {
        const struct fused *fused = &all_fused[i];
        uint64_t rows = 0;
        if (strcmp(name, fused->names[format]) != 0) continue;
        for (uint32_t part = 0; part < fused->n_parts; part++)
            rows += n_rows(p, fused->parts[part].rows);
        if (fused->by_head &&
            (tensor->parts || p->n_heads != p->n_kv_heads || !weft_dtype_is_float(tensor->dtype)))
            continue;
        if (rows > 0 && tensor->n_dims == fused->n_dims && tensor->dims[0] == rows &&
            tensor->bytes % rows == 0)
            return fused;
    }
    return NULL;
}

struct splitter {
    weft_model *model;
    enum weft_model_format format;
    const char *path;
    struct weft_errmsg *why;
};

static weft_err no_memory(const struct splitter *s) {
    return weft_err_set(s->why, WEFT_E_NOMEM, "%s: out of memory for the tensor list", s->path);
}

/* `part` of a tensor gets `name`: the last one takes the place of the whole, the others are
 * appended to the list. */
static weft_err add_part(const struct splitter *s, size_t idx, bool is_last, const char *name,
                         const struct weft_tensor *part) {
    if (!is_last)
        return wefti_model_add_tensor(s->model, s->path, name, strlen(name), part, s->why);
    struct weft_tensor *whole = &s->model->tensors[idx];
    char *copy = strdup(name);
    if (!copy) return no_memory(s);
    free((char *)(uintptr_t)whole->name);
    *whole = *part;
    whole->name = copy;
    return WEFT_OK;
}

/* Part `i` of a tensor that has them by heads. */
static weft_err view_heads(const struct splitter *s, const struct weft_tensor *whole, uint32_t i,
                           uint32_t n_parts, struct weft_tensor *tensor) {
    uint64_t dim = s->model->params.head_dim, k = whole->n_dims == 2 ? whole->dims[1] : 0;
    const struct wefti_model_view view = {
        .kind = k ? WEFTI_MODEL_VIEW_ROWS : WEFTI_MODEL_VIEW_ELEMENTS,
        .dtype = whole->dtype,
        .first = i * dim,
        .run = dim,
        .step = n_parts * dim,
        .pitch = whole->bytes / whole->dims[0],
    };
    tensor->data = NULL;
    tensor->parts = wefti_model_add_view(s->model, whole, &view, k ? tensor->dims[0] : 1,
                                         k ? k : tensor->dims[0]);
    return tensor->parts ? WEFT_OK : no_memory(s);
}

static weft_err split(const struct splitter *s, size_t idx, const struct fused *fused,
                      size_t prefix_len) {
    struct weft_tensor whole = s->model->tensors[idx];
    WEFT_ASSERT(fused->n_parts >= 2 && fused->n_parts <= PARTS_MAX);
    size_t row_bytes = whole.bytes / whole.dims[0], done = 0;
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; !err && i < fused->n_parts; i++) {
        const struct part *part = &fused->parts[i];
        struct weft_tensor tensor = whole;
        tensor.dims[0] = n_rows(&s->model->params, part->rows);
        tensor.bytes = tensor.dims[0] * row_bytes;
        if (fused->by_head && s->format == WEFT_MODEL_HF)
            err = view_heads(s, &whole, i, fused->n_parts, &tensor);
        else if (whole.parts)
            tensor.parts_row = whole.parts_row + done / row_bytes;
        else
            tensor.data = (const unsigned char *)whole.data + done;
        done += tensor.bytes;
        char name[96];
        (void)snprintf(name, sizeof name, "%.*s%s", (int)prefix_len, whole.name,
                       part->names[s->format]);
        if (!err) err = add_part(s, idx, i + 1 == fused->n_parts, name, &tensor);
    }
    WEFT_ASSERT(err || done == whole.bytes);
    return err;
}

/* Stacks of GGUF files, and what precedes the expert's number in the names of their parts, as older
 * files had them. */
static const struct stack {
    const char *name, *part, *after;
    uint32_t n_dims;
    const char *second; /* whose rows follow on those of `part`; NULL: there are none */
} stacks[] = {
    {"ffn_gate_exps.weight", "ffn_gate", "weight", 3, NULL},
    {"ffn_up_exps.weight", "ffn_up", "weight", 3, NULL},
    {"ffn_gate_up_exps.weight", "ffn_gate", "weight", 3, "ffn_up"},
    {"ffn_down_exps.weight", "ffn_down", "weight", 3, NULL},
    {"ffn_gate_exps.bias", "ffn_gate", "bias", 2, NULL},
    {"ffn_up_exps.bias", "ffn_up", "bias", 2, NULL},
    {"ffn_down_exps.bias", "ffn_down", "bias", 2, NULL},
};

/* NULL: it is none, or not for as many as there are experts. */
static const struct stack *find_stack(const struct weft_model_params *p,
                                      const struct weft_tensor *tensor, size_t *prefix_len_out) {
    const char *name = wefti_model_after_layer(tensor->name, WEFT_MODEL_GGUF, prefix_len_out);
    for (size_t i = 0; name && i < sizeof stacks / sizeof stacks[0]; i++) {
        if (strcmp(name, stacks[i].name) == 0 && tensor->n_dims == stacks[i].n_dims &&
            tensor->dims[0] == p->moe.n_experts && tensor->bytes % p->moe.n_experts == 0 &&
            (!stacks[i].second || (tensor->dims[1] > 0 && tensor->dims[1] % 2 == 0)))
            return &stacks[i];
    }
    return NULL;
}

static weft_err unstack(const struct splitter *s, size_t idx, const struct stack *stack,
                        size_t prefix_len) {
    struct weft_tensor whole = s->model->tensors[idx];
    uint32_t n = s->model->params.moe.n_experts;
    WEFT_ASSERT(n > 0);
    WEFT_ASSERT(whole.dims[0] == n);
    const uint32_t n_parts = stack->second ? 2 : 1;
    size_t bytes = whole.bytes / n / n_parts;
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; !err && i < n * n_parts; i++) {
        const struct weft_tensor part = {
            .dtype = whole.dtype,
            .n_dims = whole.n_dims - 1,
            .dims = {whole.dims[1] / n_parts, whole.dims[2]},
            .data = (const unsigned char *)whole.data + i * bytes,
            .bytes = bytes,
        };
        char name[96];
        (void)snprintf(name, sizeof name, "%.*s%s.%u.%s", (int)prefix_len, whole.name,
                       i % n_parts ? stack->second : stack->part, i / n_parts, stack->after);
        err = add_part(s, idx, i + 1 == n * n_parts, name, &part);
    }
    return err;
}

static weft_err unstack_all(const struct splitter *s) {
    weft_model *model = s->model;
    weft_err err = WEFT_OK;
    for (size_t i = 0, n = model->n_tensors; !err && i < n; i++) {
        size_t prefix_len;
        const struct stack *stack = find_stack(&model->params, &model->tensors[i], &prefix_len);
        if (stack && model->tensors[i].data) err = unstack(s, i, stack, prefix_len);
    }
    return err;
}

/* Stacks of Hugging Face folders, in which gate and up are one. */
static const struct folder_stack {
    const char *name, *parts[2]; /* one part, or two that share rows */
    uint32_t n_dims;
} folder_stacks[] = {
    {"mlp.experts.gate_up_proj", {"gate_proj.weight", "up_proj.weight"}, 3},
    {"mlp.experts.down_proj", {"down_proj.weight", NULL}, 3},
    {"mlp.experts.gate_up_proj_bias", {"gate_proj.bias", "up_proj.bias"}, 2},
    {"mlp.experts.down_proj_bias", {"down_proj.bias", NULL}, 2},
};

static const struct folder_stack *find_folder_stack(const struct weft_model_params *p,
                                                    const struct weft_tensor *tensor,
                                                    size_t *prefix_len_out) {
    const char *name = wefti_model_after_layer(tensor->name, WEFT_MODEL_HF, prefix_len_out);
    for (size_t i = 0; name && i < sizeof folder_stacks / sizeof folder_stacks[0]; i++) {
        const struct folder_stack *stack = &folder_stacks[i];
        if (strcmp(name, stack->name) == 0 && tensor->n_dims == stack->n_dims &&
            tensor->dims[0] == p->moe.n_experts && weft_dtype_is_float(tensor->dtype) &&
            tensor->dims[1] > 1 && tensor->dims[tensor->n_dims - 1] > 1)
            return stack; /* roles check the shapes of the parts */
    }
    return NULL;
}

/* Part `i` of one expert's slice of a stack: a view, or of the bytes as they are. */
static weft_err view_expert(const struct splitter *s, const struct folder_stack *stack,
                            const struct weft_tensor *slice, uint32_t i,
                            struct wefti_model_traits traits, struct weft_tensor *out) {
    const bool is_bias = stack->n_dims == 2, is_turned = !is_bias && traits.turned;
    const uint64_t n_parts = stack->parts[1] ? 2 : 1, elem = weft_dtype_block_bytes(slice->dtype),
                   all = slice->dims[is_turned], n = all / n_parts,
                   k = is_bias ? 0 : slice->dims[!is_turned];
    const bool alternate = n_parts == 2 && traits.alternate;
    *out = (struct weft_tensor){.dtype = slice->dtype, .n_dims = is_bias ? 1 : 2, .dims = {n, k}};
    out->bytes = n * (is_bias ? 1 : k) * elem;
    if (!is_turned && !alternate) {
        out->data = (const unsigned char *)slice->data + i * out->bytes;
        return WEFT_OK;
    }
    const struct wefti_model_view view = {
        .kind = is_bias     ? WEFTI_MODEL_VIEW_ELEMENTS
                : is_turned ? WEFTI_MODEL_VIEW_COLUMNS
                            : WEFTI_MODEL_VIEW_ROWS,
        .dtype = slice->dtype,
        .first = alternate ? i : i * n,
        .run = alternate ? 1 : n,
        .step = alternate ? n_parts : all,
        .pitch = (is_turned ? all : k) * elem,
    };
    out->parts = wefti_model_add_view(s->model, slice, &view, is_bias ? 1 : n, is_bias ? n : k);
    return out->parts ? WEFT_OK : no_memory(s);
}

static weft_err unstack_folder(const struct splitter *s, size_t idx,
                               const struct folder_stack *stack, size_t prefix_len,
                               struct wefti_model_traits traits) {
    const struct weft_tensor whole = s->model->tensors[idx];
    const uint32_t n_experts = s->model->params.moe.n_experts, n_parts = stack->parts[1] ? 2 : 1;
    weft_err err = WEFT_OK;
    for (uint32_t e = 0; !err && e < n_experts; e++) {
        const struct weft_tensor slice = {
            .dtype = whole.dtype,
            .n_dims = whole.n_dims - 1,
            .dims = {whole.dims[1], whole.dims[2]},
            .data = (const unsigned char *)whole.data + e * (whole.bytes / n_experts),
            .bytes = whole.bytes / n_experts,
        };
        for (uint32_t i = 0; !err && i < n_parts; i++) {
            struct weft_tensor part;
            char name[96];
            (void)snprintf(name, sizeof name, "%.*smlp.experts.%u.%s", (int)prefix_len, whole.name,
                           e, stack->parts[i]);
            err = view_expert(s, stack, &slice, i, traits, &part);
            if (!err) err = add_part(s, idx, e + 1 == n_experts && i + 1 == n_parts, name, &part);
        }
    }
    return err;
}

/* gpt-oss's experts: codes [experts, rows, blocks, 16], whose scales are [experts, rows, blocks]. */
static const struct code_stack {
    const char *name, *parts[2]; /* one part, or two whose rows alternate */
} code_stacks[] = {
    {"mlp.experts.gate_up_proj", {"gate_proj.weight", "up_proj.weight"}},
    {"mlp.experts.down_proj", {"down_proj.weight", NULL}},
};

static void drop_name(struct weft_tensor *tensor) {
    free((char *)(uintptr_t)tensor->name);
    tensor->name = NULL;
}

static void drop_nameless(weft_model *model) {
    size_t n = 0;
    for (size_t i = 0; i < model->n_tensors; i++) {
        if (model->tensors[i].name) model->tensors[n++] = model->tensors[i];
    }
    model->n_tensors = n;
}

/* The tensor whose name is that of `idx` with "_scales" in place of "_blocks"; SIZE_MAX: there is none that goes with
 * it. */
static size_t find_scales(const struct splitter *s, size_t idx) {
    const struct weft_tensor *codes = &s->model->tensors[idx];
    const size_t len = strlen(codes->name) - strlen("blocks");
    for (size_t i = 0; i < s->model->n_tensors; i++) {
        const struct weft_tensor *scales = &s->model->tensors[i];
        if (!scales->name || strncmp(scales->name, codes->name, len) != 0 ||
            strcmp(scales->name + len, "scales") != 0)
            continue;
        bool fits = scales->n_dims == 3 && scales->dtype == WEFT_DT_U8 && scales->data &&
                    memcmp(scales->dims, codes->dims, 3 * sizeof *codes->dims) == 0;
        return fits ? i : SIZE_MAX;
    }
    return SIZE_MAX;
}

static weft_err add_codes(const struct splitter *s, size_t idx, const struct code_stack *stack,
                          size_t prefix_len, size_t scales_idx) {
    const struct weft_tensor whole = s->model->tensors[idx],
                             factors = s->model->tensors[scales_idx];
    const uint32_t n_experts = s->model->params.moe.n_experts, n_parts = stack->parts[1] ? 2 : 1;
    const uint64_t n_rows = whole.dims[1], k = whole.dims[2] * 32;
    const struct weft_tensor slice = {.data = whole.data, .bytes = whole.bytes / n_experts};
    weft_err err = WEFT_OK;
    for (uint32_t e = 0; !err && e < n_experts; e++) {
        for (uint32_t i = 0; !err && i < n_parts; i++) {
            const struct wefti_model_view view = {.kind = WEFTI_MODEL_VIEW_MXFP4,
                                                  .dtype = WEFT_DT_MXFP4,
                                                  .first = i,
                                                  .run = 1,
                                                  .step = n_parts};
            struct weft_tensor codes = slice;
            codes.data = (const unsigned char *)whole.data + e * slice.bytes;
            struct weft_tensor part = {
                .dtype = WEFT_DT_MXFP4, .n_dims = 2, .dims = {n_rows / n_parts, k}};
            part.bytes = part.dims[0] * weft_tensor_row_bytes(&part);
            struct weft_parts *parts =
                wefti_model_add_view(s->model, &codes, &view, part.dims[0], k);
            if (!parts) return no_memory(s);
            const size_t bytes = factors.bytes / n_experts;
            parts->pieces[WEFTI_MODEL_PIECE_SCALES] = (struct wefti_model_piece_data){
                (const unsigned char *)factors.data + e * bytes, bytes};
            part.parts = parts;
            char name[96];
            (void)snprintf(name, sizeof name, "%.*smlp.experts.%u.%s", (int)prefix_len, whole.name,
                           e, stack->parts[i]);
            err = add_part(s, idx, e + 1 == n_experts && i + 1 == n_parts, name, &part);
        }
    }
    return err;
}

/* Codes and scales become experts' matrices; the scales are no tensor of their own then. */
static weft_err join_codes(const struct splitter *s) {
    weft_model *model = s->model;
    weft_err err = WEFT_OK;
    for (size_t i = 0, n = model->n_tensors; !err && i < n; i++) {
        const struct weft_tensor *tensor = &model->tensors[i];
        size_t prefix_len;
        if (!tensor->name) continue;
        const char *name = wefti_model_after_layer(tensor->name, WEFT_MODEL_HF, &prefix_len);
        for (size_t k = 0; name && k < sizeof code_stacks / sizeof code_stacks[0]; k++) {
            const size_t len = strlen(code_stacks[k].name);
            if (strncmp(name, code_stacks[k].name, len) != 0 || strcmp(name + len, "_blocks") != 0)
                continue;
            if (tensor->n_dims != 4 || tensor->dims[0] != model->params.moe.n_experts ||
                tensor->dims[3] != 16 || tensor->dtype != WEFT_DT_U8 || !tensor->data ||
                tensor->dims[1] < 2 || tensor->dims[1] % 2 != 0)
                continue; /* refused as a tensor without a part */
            const size_t scales = find_scales(s, i);
            if (scales == SIZE_MAX) break;
            err = add_codes(s, i, &code_stacks[k], prefix_len, scales);
            if (!err) drop_name(&model->tensors[scales]);
            break;
        }
    }
    drop_nameless(model);
    return err;
}

static weft_err unstack_folders(const struct splitter *s, struct wefti_model_traits traits) {
    weft_model *model = s->model;
    weft_err err = WEFT_OK;
    for (size_t i = 0, n = model->n_tensors; !err && i < n; i++) {
        size_t prefix_len;
        const struct folder_stack *stack =
            find_folder_stack(&model->params, &model->tensors[i], &prefix_len);
        if (stack && model->tensors[i].data) err = unstack_folder(s, i, stack, prefix_len, traits);
    }
    return err;
}

/* The heads of latent attention stand in newer GGUF files as a third dimension; here they are rows
 * one after the other. */
static void flatten_heads(weft_model *model) {
    static const char *const names[] = {"attn_k_b.weight", "attn_v_b.weight"};
    for (size_t i = 0; i < model->n_tensors; i++) {
        struct weft_tensor *tensor = &model->tensors[i];
        size_t prefix_len;
        const char *name = wefti_model_after_layer(tensor->name, WEFT_MODEL_GGUF, &prefix_len);
        if (!name || (strcmp(name, names[0]) != 0 && strcmp(name, names[1]) != 0)) continue;
        if (tensor->n_dims != 3 || tensor->dims[0] != model->params.n_heads) continue;
        if (tensor->dims[1] > WEFT_KV_DIM_MAX) continue; /* the product stays small */
        tensor->dims[0] *= tensor->dims[1];
        tensor->dims[1] = tensor->dims[2];
        tensor->dims[2] = 0;
        tensor->n_dims = 2;
    }
}

/* ------------------------------------------------------------------- norms of single heads --- */

/* Files have a vector per head, q_norms.N.weight of a layer, or a row per head; here they are one vector. */
struct head_norms {
    float *rows;      /* [heads][head_dim], NULL: no head was seen */
    uint32_t n_heads; /* that were */
};

/* Whether it is one of them: of a layer, of q or k, of a head that there is, and of its size. */
static bool is_head_norm(const struct weft_model_params *p, const struct weft_tensor *tensor,
                         uint32_t *layer_out, bool *is_k_out, uint32_t *head_out) {
    static const char prefix[] = "model.layers.", middle[] = ".self_attn.";
    char *rest, same[96];
    if (strncmp(tensor->name, prefix, strlen(prefix)) != 0) return false;
    const unsigned long layer = strtoul(tensor->name + strlen(prefix), &rest, 10);
    if (layer >= p->n_layers || strncmp(rest, middle, strlen(middle)) != 0) return false;
    rest += strlen(middle);
    const bool is_k = *rest == 'k';
    const uint32_t n_heads = is_k ? p->n_kv_heads : p->n_heads;
    if ((!is_k && *rest != 'q') || strncmp(rest + 1, "_norms.", strlen("_norms.")) != 0)
        return false;
    const unsigned long head = strtoul(rest + strlen("q_norms."), NULL, 10);
    (void)snprintf(same, sizeof same, "%s%lu%s%c_norms.%lu.weight", prefix, layer, middle, *rest,
                   head);
    *layer_out = (uint32_t)layer;
    *is_k_out = is_k;
    *head_out = (uint32_t)head;
    return strcmp(tensor->name, same) == 0 && head < n_heads && tensor->n_dims == 1 &&
           tensor->dims[0] == p->head_dim && tensor->data && weft_dtype_is_float(tensor->dtype);
}

static weft_err add_head_norms(const struct splitter *s, uint32_t layer, bool is_k,
                               const struct head_norms *norms) {
    const struct weft_model_params *p = &s->model->params;
    const uint32_t n_heads = is_k ? p->n_kv_heads : p->n_heads;
    char name[96];
    if (!norms->rows) return WEFT_OK; /* missing, if the layer is to have them */
    if (norms->n_heads != n_heads)
        return weft_err_set(s->why, WEFT_E_PROTO,
                            "%s: layer %u has norms of %u heads of %c; there are %u heads", s->path,
                            layer, norms->n_heads, is_k ? 'k' : 'q', n_heads);
    const struct weft_tensor all = {.dtype = WEFT_DT_F32,
                                    .n_dims = 1,
                                    .dims = {(uint64_t)n_heads * p->head_dim},
                                    .data = norms->rows,
                                    .bytes = (size_t)n_heads * p->head_dim * sizeof(float)};
    (void)snprintf(name, sizeof name, "model.layers.%u.self_attn.%c_norm.weight", layer,
                   is_k ? 'k' : 'q');
    return wefti_model_add_tensor(s->model, s->path, name, strlen(name), &all, s->why);
}

static weft_err gather_head_norms(const struct splitter *s) {
    weft_model *model = s->model;
    const struct weft_model_params *p = &model->params;
    struct head_norms(*found)[2] = calloc(p->n_layers, sizeof *found);
    weft_err err = WEFT_OK;
    for (size_t i = 0; found && i < model->n_tensors; i++) {
        uint32_t layer, head;
        bool is_k;
        if (!is_head_norm(p, &model->tensors[i], &layer, &is_k, &head)) continue;
        struct head_norms *norms = &found[layer][is_k];
        if (!norms->rows)
            norms->rows = wefti_model_add_floats(
                model, (size_t)(is_k ? p->n_kv_heads : p->n_heads) * p->head_dim);
        if (!norms->rows) {
            free(found);
            found = NULL;
            continue;
        }
        weft_tensor_row_f32(&model->tensors[i], 0, norms->rows + (size_t)head * p->head_dim);
        norms->n_heads++; /* no name is there twice */
        drop_name(&model->tensors[i]);
    }
    drop_nameless(model);
    if (!found) return no_memory(s);
    for (uint32_t layer = 0; !err && layer < p->n_layers; layer++) {
        err = add_head_norms(s, layer, false, &found[layer][0]);
        if (!err) err = add_head_norms(s, layer, true, &found[layer][1]);
    }
    free(found);
    return err;
}

static void flatten_head_norms(weft_model *model) {
    static const char *const names[] = {"attn_q_norm.weight", "attn_k_norm.weight"};
    for (size_t i = 0; i < model->n_tensors; i++) {
        struct weft_tensor *tensor = &model->tensors[i];
        size_t prefix_len;
        const char *name = wefti_model_after_layer(tensor->name, WEFT_MODEL_GGUF, &prefix_len);
        if (!name || (strcmp(name, names[0]) != 0 && strcmp(name, names[1]) != 0)) continue;
        if (tensor->n_dims != 2 || tensor->dims[1] != model->params.head_dim ||
            tensor->dims[0] > WEFT_HEADS_MAX)
            continue;
        tensor->dims[0] *= tensor->dims[1];
        tensor->dims[1] = 0;
        tensor->n_dims = 1;
    }
}

/* ------------------------------------------------------------- rows that stand among others --- */

/* Part of a tensor: of each `step` rows the first `run` after `first`. */
struct rows_part {
    const char *names[2];
    uint64_t first, run, step;
};

/* Views in place of tensor `idx`, a matrix whose rows are whole steps. */
static weft_err view_rows(const struct splitter *s, size_t idx, size_t prefix_len,
                          const struct rows_part *parts, uint32_t n_parts) {
    const struct weft_tensor whole = s->model->tensors[idx];
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; !err && i < n_parts; i++) {
        const struct rows_part *part = &parts[i];
        const size_t row_bytes = whole.bytes / whole.dims[0];
        const struct wefti_model_view view = {.kind = whole.parts ? WEFTI_MODEL_VIEW_JOINED
                                                                  : WEFTI_MODEL_VIEW_ROWS,
                                              .dtype = whole.dtype,
                                              .first = part->first,
                                              .run = part->run,
                                              .step = part->step,
                                              .pitch = row_bytes};
        struct weft_tensor tensor = whole;
        tensor.dims[0] = whole.dims[0] / part->step * part->run;
        tensor.bytes = tensor.dims[0] * row_bytes;
        tensor.data = NULL;
        tensor.parts = wefti_model_add_view(s->model, &whole, &view, tensor.dims[0], whole.dims[1]);
        if (!tensor.parts) return no_memory(s);
        char name[96];
        (void)snprintf(name, sizeof name, "%.*s%s", (int)prefix_len, whole.name,
                       part->names[s->format]);
        err = add_part(s, idx, i + 1 == n_parts, name, &tensor);
    }
    return err;
}

/* A convolution's taps, which files have by channels: [channels, 1, width], or without the 1. */
static weft_err turn_taps(const struct splitter *s, size_t idx) {
    struct weft_tensor *taps = &s->model->tensors[idx];
    if (taps->n_dims == 3 && taps->dims[1] == 1) {
        taps->dims[1] = taps->dims[2];
        taps->n_dims = 2;
    }
    if (taps->n_dims != 2 || !weft_dtype_is_float(taps->dtype) || taps->bytes == 0 || taps->parts ||
        !taps->data)
        return WEFT_OK; /* refused by its shape */
    const uint64_t n_channels = taps->dims[0], width = taps->dims[1];
    const struct wefti_model_view view = {.kind = WEFTI_MODEL_VIEW_COLUMNS,
                                          .dtype = taps->dtype,
                                          .run = width,
                                          .step = width,
                                          .pitch = width * weft_dtype_block_bytes(taps->dtype)};
    taps->parts = wefti_model_add_view(s->model, taps, &view, width, n_channels);
    if (!taps->parts) return no_memory(s);
    taps->dims[0] = width;
    taps->dims[1] = n_channels;
    taps->data = NULL;
    return WEFT_OK;
}

/* llama.cpp has heads' numbers as columns, and norms by groups. */
static void flatten_vector(struct weft_tensor *tensor) {
    if (tensor->n_dims != 2 || tensor->dims[0] > WEFT_HIDDEN_MAX ||
        tensor->dims[1] > WEFT_HIDDEN_MAX)
        return;
    tensor->dims[0] *= tensor->dims[1];
    tensor->dims[1] = 0;
    tensor->n_dims = 1;
}

static bool is_one_of(const char *name, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

/* Whether a tensor is a matrix of whole steps of rows, as it is or as a quantised weight. */
static bool has_steps(const struct weft_tensor *tensor, uint64_t step) {
    const bool is_matrix =
        tensor->n_dims == 2 && step > 0 && tensor->dims[0] > 0 && tensor->dims[0] % step == 0;
    if (!is_matrix || tensor->parts)
        return is_matrix && !tensor->parts->view.kind && tensor->parts_row == 0;
    return tensor->data && weft_dtypes[tensor->dtype].class <= WEFT_DTYPE_BLOCKS;
}

/* Recurrent layers' tensors, and queries that have gates among them. */
static weft_err take_apart(const struct splitter *s, size_t idx) {
    static const char *const taps[] = {"mixer.conv1d.weight", "ssm_conv1d.weight"},
                             *const vectors[] = {"ssm_a", "ssm_d", "ssm_norm.weight"},
                             *const queries[] = {"self_attn.q_proj.weight", "attn_q.weight"};
    const struct weft_model_params *p = &s->model->params;
    const struct weft_model_recurrent *r = &p->recurrent;
    struct weft_tensor *tensor = &s->model->tensors[idx];
    size_t prefix_len;
    const char *name = wefti_model_after_layer(tensor->name, s->format, &prefix_len);
    if (!name) return WEFT_OK;
    if (p->block.gate_in_q && is_one_of(name, queries, 2) &&
        has_steps(tensor, 2 * (uint64_t)p->head_dim)) {
        const uint64_t dim = p->head_dim;
        const struct rows_part parts[] = {
            {{queries[0], queries[1]}, 0, dim, 2 * dim},
            {{"self_attn.gate_proj.weight", "attn_gate.weight"}, dim, dim, 2 * dim}};
        return view_rows(s, idx, prefix_len, parts, 2);
    }
    if (r->kind == WEFT_MODEL_ATTENTION_ALONE) return WEFT_OK;
    if (is_one_of(name, taps, 2)) return turn_taps(s, idx);
    if (s->format == WEFT_MODEL_GGUF && is_one_of(name, vectors, 3)) flatten_vector(tensor);
    if (r->kind != WEFT_MODEL_DELTA || r->n_groups == 0) return WEFT_OK;
    const uint64_t heads = r->n_heads / r->n_groups, key = r->state_dim,
                   values = heads * r->head_dim, step = 2 * key + 2 * values;
    if (strcmp(name, "mixer.qkvz.weight") == 0 && has_steps(tensor, step)) {
        const struct rows_part parts[] = {{{"mixer.q.weight", ""}, 0, key, step},
                                          {{"mixer.k.weight", ""}, key, key, step},
                                          {{"mixer.v.weight", ""}, 2 * key, values, step},
                                          {{"mixer.z.weight", ""}, 2 * key + values, values, step}};
        return view_rows(s, idx, prefix_len, parts, 4);
    }
    static const char *const both[] = {"mixer.ba.weight", "ssm_ba.weight"};
    if (!is_one_of(name, both, 2) || !has_steps(tensor, 2 * heads)) return WEFT_OK;
    const struct rows_part parts[] = {
        {{"mixer.b.weight", "ssm_beta.weight"}, 0, heads, 2 * heads},
        {{"mixer.a.weight", "ssm_alpha.weight"}, heads, heads, 2 * heads}};
    return view_rows(s, idx, prefix_len, parts, 2);
}

static weft_err take_all_apart(const struct splitter *s) {
    const struct weft_model_params *p = &s->model->params;
    weft_err err = WEFT_OK;
    if (!weft_model_has_recurrent(p) && !p->block.gate_in_q) return WEFT_OK;
    for (size_t i = 0, n = s->model->n_tensors; !err && i < n; i++)
        err = take_apart(s, i);
    return err;
}

weft_err wefti_model_split(weft_model *model, enum weft_model_format format, const char *path,
                           struct weft_errmsg *why) {
    const struct splitter s = {model, format, path, why};
    const struct weft_str name = {model->params.arch, strlen(model->params.arch)};
    const struct wefti_model_arch *arch = wefti_model_arch_of_gguf(name);
    weft_err apart = take_all_apart(&s);
    if (apart) return apart;
    if (format == WEFT_MODEL_GGUF && model->params.kv_lora > 0) flatten_heads(model);
    if (arch && arch->traits.may_head_norms && format == WEFT_MODEL_GGUF) flatten_head_norms(model);
    if (model->params.block.head_norms && format == WEFT_MODEL_HF) {
        weft_err err = gather_head_norms(&s);
        if (err) return err;
    }
    if (format == WEFT_MODEL_GGUF && model->params.moe.n_experts > 0) return unstack_all(&s);
    if (arch && model->params.moe.n_experts > 0) {
        weft_err err = join_codes(&s);
        if (!err) err = unstack_folders(&s, arch->traits);
        if (err) return err;
    }
    if (!arch || !arch->traits.fused) return WEFT_OK;
    for (size_t i = 0, n = model->n_tensors; i < n; i++) {
        size_t prefix_len;
        const struct fused *fused =
            find_fused(&model->params, &model->tensors[i], format, &prefix_len);
        if (!fused || !model->tensors[i].data) continue;
        weft_err err = split(&s, i, fused, prefix_len);
        if (err) return err;
    }
    return WEFT_OK;
}
