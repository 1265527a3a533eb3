/* `weft inspect`: what is in a model file, without loading it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "model/model.h"

static void print_experts(const struct weft_model_params *p) {
    const struct weft_model_moe *moe = &p->moe;
    uint32_t n_plain = 0;
    for (uint32_t i = 0; i < p->n_layers; i++)
        n_plain += weft_model_bit(p->no_experts, i);
    printf("experts         %u of %u per token, of %u", moe->n_used, moe->n_experts, moe->n_ffn);
    if (moe->n_groups > moe->n_groups_used)
        printf(", in %u of %u groups", moe->n_groups_used, moe->n_groups);
    if (moe->n_ffn_shared > 0) printf("; a shared one of %u", moe->n_ffn_shared);
    if (n_plain > 0) printf("; none in %u layer%s", n_plain, n_plain == 1 ? "" : "s");
    printf("\n");
}

/* What a token takes, and how much of that it gives back when windows have moved on. */
static void print_kv(const struct weft_model_params *p) {
    uint64_t all = 0, windowed = 0;
    bool lets_go = p->window > 0 && p->window < p->n_context && !p->encoder.is_on;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        if (weft_model_bit(p->recurrent.no_attention, i) || weft_model_kv_layer(p, i) != i)
            continue;
        uint64_t bytes = (uint64_t)weft_model_kv_heads(p, i) * weft_model_head_dim(p, i) * 2 *
                         (p->kv_lora > 0 ? 1 : 2);
        bytes += (uint64_t)p->indexer.head_dim * 2;
        all += bytes;
        if (lets_go && !weft_model_bit(p->no_window, i)) windowed += bytes;
    }
    printf("kv per token    %" PRIu64 " bytes in bf16", all);
    if (windowed > 0)
        printf(", %" PRIu64 " of them only for the last %u tokens", windowed, p->window);
    printf("\n");
}

static void print_window(const struct weft_model_params *p) {
    uint32_t n_windowed = p->n_layers;
    for (uint32_t i = 0; i < p->n_layers; i++)
        n_windowed -= weft_model_bit(p->no_window, i);
    if (p->encoder.is_on)
        printf(", of which a token sees %u to each side", p->window - 1);
    else if (p->block.in_chunks)
        printf(", of which a token sees its chunk of %u", p->window);
    else
        printf(", of which a token sees the last %u", p->window);
    if (n_windowed < p->n_layers) printf(" in %u layers", n_windowed);
}

/* What encoders have in place of a next token. */
static void print_encoder(const struct weft_model_params *p) {
    const struct weft_model_encoder *e = &p->encoder;
    if (e->as_decoder) {
        printf("encoder         tokens see both sides; all else as in a decoder\n");
        return;
    }
    printf("encoder         tokens see both sides; norms %s%s",
           e->norms_sums ? "after sums" : "before halves of layers",
           e->norm_bias ? "" : ", no biases");
    if (p->gelu) printf("; GELU %s", e->tanh_gelu ? "by tanh" : "exact");
    if (e->gated) printf(p->gelu ? ", gated" : "; SiLU, gated");
    if (e->n_types > 0) printf("; %u token type%s", e->n_types, e->n_types == 1 ? "" : "s");
    printf("\n");
    if (e->has_head)
        printf("head            %u label%s\n", e->n_labels, e->n_labels == 1 ? "" : "s");
}

static void print_rope(const struct weft_model_params *p) {
    static const char *const scalings[] = {"none",     "linear",  "llama3", "yarn",
                                           "longrope", "dynamic", "ntk",    "proportional"};
    _Static_assert(sizeof scalings / sizeof scalings[0] == WEFT_ROPE_PROPORTIONAL + 1, "all names");
    if (p->encoder.n_positions > 0) {
        printf("positions       %u learned\n", p->encoder.n_positions);
        return;
    }
    printf("rope            theta %g, scaling %s", p->rope_theta, scalings[p->rope_scaling]);
    if (p->rope_scaling == WEFT_ROPE_LONGROPE)
        printf(" for prompts over %u", p->rope_original_context);
    else if (p->rope_scaling != WEFT_ROPE_NONE)
        printf(" by %g", p->rope_factor);
    if (p->rope_dim < p->head_dim) printf(", of %u elements of a head", p->rope_dim);
    if (p->unlike.rope_pairs > 0)
        printf(", of %u of a head's %u pairs", p->unlike.rope_pairs, p->rope_dim / 2);
    if (p->local_rope_theta > 0) printf("; with a window theta %g", p->local_rope_theta);
    printf("\n");
}

static void print_heads(const struct weft_model_params *p) {
    const struct weft_model_unlike *u = &p->unlike;
    printf("heads           %u, of %u; %u for keys and values", p->n_heads, p->head_dim,
           p->n_kv_heads);
    if (u->local_head_dim > 0)
        printf("; with a window of %u, and %u", u->local_head_dim, u->local_kv_heads);
    if (u->n_shared_kv > 0) printf("; the last %u layers read those of others", u->n_shared_kv);
    printf("\n");
}

/* What recurs, and what of it each sequence has: in heads, rows of as many elements as a head has. */
static void print_recurrent(const struct weft_model_params *p) {
    static const char *const kinds[] = {[WEFT_MODEL_MAMBA] = "Mamba-2",
                                        [WEFT_MODEL_DELTA] = "gated DeltaNet",
                                        [WEFT_MODEL_CONV] = "short convolutions"};
    const struct weft_model_recurrent *r = &p->recurrent;
    uint32_t n = 0, n_attention = 0;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        n += weft_model_bit(r->layers, i);
        n_attention += !weft_model_bit(r->no_attention, i);
    }
    printf("recurrent       %u layer%s, %s", n, n == 1 ? "" : "s", kinds[r->kind]);
    if (r->kind == WEFT_MODEL_CONV)
        printf(" of %u", r->conv_width);
    else
        printf(": %u heads of %u, by states of %u", r->n_heads, r->head_dim, r->state_dim);
    printf("; %u layer%s attention\n", n_attention, n_attention == 1 ? " has" : "s have");
}

static void print_params(const weft_model *model) {
    static const char *const quants[WEFT_QUANT_COUNT] = {"",
                                                         "fp8",
                                                         "gptq",
                                                         "awq",
                                                         "bitsandbytes",
                                                         "compressed-tensors, int8",
                                                         "compressed-tensors, packed integers",
                                                         "compressed-tensors, fp8",
                                                         "mxfp4"};
    const struct weft_model_params *p = weft_model_params(model);
    uint64_t n_elems = 0, n_bytes = 0;
    for (size_t i = 0; i < weft_model_n_tensors(model); i++) {
        const struct weft_tensor *t = weft_model_tensor(model, i);
        uint64_t n = 1;
        for (uint32_t d = 0; d < t->n_dims; d++)
            n *= t->dims[d];
        n_elems += n;
        n_bytes += t->bytes;
    }
    printf("name            %s\n", p->name);
    printf("architecture    %s\n", p->arch);
    const struct weft_packed *packed = weft_model_packed(model);
    if (packed)
        printf("packed as       %s, %.1f MiB; what follows is of its source\n", packed->packed_as,
               (double)packed->arena_bytes / 1048576.0);
    printf("parameters      %" PRIu64 " in %zu tensors, %.1f MiB\n", n_elems,
           weft_model_n_tensors(model), (double)n_bytes / 1048576.0);
    if (p->quant.method != WEFT_QUANT_NONE) printf("quantised by    %s\n", quants[p->quant.method]);
    printf("layers          %u\n", p->n_layers);
    if (p->kv_lora > 0)
        printf("heads           %u, of %u and %u that turn; values of %u; a latent of %u for all\n",
               p->n_heads, p->nope_dim, p->rope_dim, p->v_dim, p->kv_lora);
    else
        print_heads(p);
    if (weft_model_has_recurrent(p)) print_recurrent(p);
    if (p->indexer.n_heads > 0)
        printf("indexer         %u heads of %u; a token attends to %u positions\n",
               p->indexer.n_heads, p->indexer.head_dim, p->indexer.top_k);
    printf("hidden, ffn     %u, %u", p->n_hidden, p->n_ffn);
    if (p->unlike.n_ffn_wide > 0) printf(" or %u", p->unlike.n_ffn_wide);
    printf("\n");
    if (p->unlike.layer_input > 0)
        printf("each layer      an embedding of %u for %u tokens\n", p->unlike.layer_input,
               p->unlike.n_vocab_input);
    if (p->moe.n_experts > 0) print_experts(p);
    printf("vocabulary      %u%s\n", p->n_vocab, p->tied ? ", head tied to the embedding" : "");
    printf("context         %u", p->n_context);
    if (p->window > 0) print_window(p);
    printf("\n");
    print_rope(p);
    if (p->encoder.is_on) print_encoder(p);
    print_kv(p);
}

static void print_tensors(const weft_model *model) {
    printf("\n");
    for (size_t i = 0; i < weft_model_n_tensors(model); i++) {
        const struct weft_tensor *t = weft_model_tensor(model, i);
        char shape[96] = "";
        size_t n = 0;
        for (uint32_t d = 0; d < t->n_dims; d++)
            n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRIu64, d ? " x " : "",
                                  t->dims[d]);
        printf("%-7s %-20s %s\n", weft_dtype_name(t->dtype), shape, t->name);
    }
}

static void print_value(const weft_gguf *gguf, const char *key, enum weft_gguf_type type) {
    uint64_t u = 0;
    double d = 0;
    bool b = false;
    struct weft_str s = {NULL, 0};
    size_t count = 0;
    enum weft_gguf_type elem = WEFT_GGUF_U8;
    if (type == WEFT_GGUF_STRING && weft_gguf_str(gguf, key, &s)) {
        printf("\"");
        for (size_t i = 0; i < s.len && i < 60; i++) {
            unsigned char c = (unsigned char)s.data[i];
            (void)putchar(c >= 0x20 && c != 0x7f ? c : ' '); /* no terminal control from a file */
        }
        printf("%s\"", s.len > 60 ? "..." : "");
    } else if (type == WEFT_GGUF_ARRAY && weft_gguf_array(gguf, key, &elem, &count)) {
        printf("[%zu]", count);
    } else if (type == WEFT_GGUF_BOOL && weft_gguf_bool(gguf, key, &b)) {
        printf("%s", b ? "true" : "false");
    } else if (weft_gguf_u64(gguf, key, &u)) {
        printf("%" PRIu64, u);
    } else if (weft_gguf_f64(gguf, key, &d)) {
        printf("%.9g", d);
    } else {
        printf("(negative)");
    }
}

static void print_metadata(const weft_gguf *gguf) {
    printf("\n");
    for (size_t i = 0; i < weft_gguf_n_keys(gguf); i++) {
        enum weft_gguf_type type = WEFT_GGUF_U8;
        struct weft_str key = weft_gguf_key(gguf, i, &type);
        char name[256];
        (void)snprintf(name, sizeof name, "%.*s", (int)(key.len < 255 ? key.len : 255), key.data);
        printf("%-44s ", name);
        print_value(gguf, name, type);
        printf("\n");
    }
}

int weft_cmd_inspect(const struct weft_config *config) {
    struct weft_errmsg why = {""}, gguf_why = {""};
    const char *path = config->model;
    weft_model *model = NULL;
    weft_gguf *gguf = NULL;
    struct weft_model_place place;
    weft_err err = weft_model_locate(path, &place, &why);
    if (err) return weft_cmd_fail(err, &why);
    weft_err gguf_err = WEFT_E_NOTFOUND;
    if (place.format == WEFT_MODEL_GGUF) gguf_err = weft_gguf_open(place.path, &gguf, &gguf_why);
    weft_model_place_fini(&place);
    err = weft_model_open(path, &model, &why);
    if (!err) print_params(model);
    if (!gguf_err) print_metadata(gguf);
    if (!err && config->tensors) print_tensors(model);
    weft_model_free(model);
    weft_gguf_free(gguf);
    /* A vocabulary-only file has metadata and no model: shown all the same, with the reason. */
    if (err && gguf_err) return weft_cmd_fail(err, &why);
    if (err) printf("\nnot a model weft can run: %s\n", why.text);
    return 0;
}
