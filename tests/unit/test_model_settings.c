/* Missing, contradictory and absurd settings: each family's config.json (../shared/zoo2) with one key gone or changed opens
 * well, and computes, or is refused in a sentence that names the key, or what it is of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "inside/model/hf/hf.h"
#include "inside/model/params.h"
#include "unit/model_files.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* What sentences call keys where checks are the same for all formats. A number that fits no tensor is known by that. */
static const struct {
    const char *key, *meaning;
} meanings[] = {
    {"q_lora_rank", "rank of queries"},
    {"kv_lora_rank", "rank of the latent"},
    {"qk_nope_head_dim", "does not turn"},
    {"qk_rope_head_dim", "that turns"},
    {"v_head_dim", "head's values"},
    {"index_n_heads", "indexer's heads"},
    {"index_head_dim", "indexer's heads"},
    {"index_topk", "the indexer chooses"},
    {"rope_theta", "RoPE base"},
    {"rotary_emb_base", "RoPE base"},
    {"rms_norm_eps", "epsilon"},
    {"layer_norm_eps", "epsilon"},
    {"layer_norm_epsilon", "epsilon"},
    {"norm_epsilon", "epsilon"},
    {"norm_eps", "epsilon"},
    {"num_hidden_layers", "layer"},
    {"num_attention_heads", "heads"},
    {"num_key_value_heads", "KV heads"},
    {"num_global_key_value_heads", "KV heads"},
    {"head_dim", "head dimension"},
    {"head_dim", "elements of a head"},
    {"global_head_dim", "head dimension"},
    {"rotary_pct", "elements of a head"},
    {"rotary_dim", "elements of a head"},
    {"partial_rotary_factor", "elements of a head"},
    {"hidden_size", "hidden size"},
    {"vocab_size", "vocabulary size"},
    {"intermediate_size", "feed-forward size"},
    {"intermediate_size_mlp", "feed-forward size"},
    {"max_position_embeddings", "context length"},
    {"original_max_position_embeddings", "original context length"},
    {"num_experts_per_tok", "experts per token"},
    {"moe_k", "experts per token"},
    {"moe_topk", "experts per token"},
    {"moe_intermediate_size", "inner size of an expert"},
    {"moe_intermediate_size", "shared expert"},
    {"topk_group", "groups"},
    {"n_group", "groups"},
    {"route_scale", "scale of routed experts"},
    {"routed_scaling_factor", "scale of routed experts"},
    {"factor", "scaling factor"},
    {"mscale", "factors on attention"},
    {"mscale_all_dim", "factors on attention"},
    {"attention_factor", "factors on attention"},
    {"llama_4_scaling_beta", "queries grow"},
    {"attn_scale", "queries grow"},
    {"final_logit_softcapping", "soft cap"},
    {"conv_kernel", "convolutions"},
    {"conv_L_cache", "convolutions"},
    {"linear_conv_kernel_dim", "convolutions"},
    {"mamba_d_conv", "convolutions"},
    {"block_ff_dim", "feed-forward size"},
    {"block_ffn_dim_multiplier", "feed-forward size"},
    {"block_multiple_of", "feed-forward size"},
    {"tie_embedding", "tie_word_embeddings"},
    {"quant_method", "quantization_config"},
    {"moe_intermediate_size", "feed-forward size of an expert"},
    {"n_shared_experts", "shared expert"},
    {"num_shared_experts", "shared expert"},
    {"num_shared_expert", "shared expert"},
    {"moe_num_shared_experts", "shared expert"},
    {"shared_intermediate_size", "shared expert"},
    {"shared_expert_intermediate_size", "shared expert"},
    {"moe_shared_expert_intermediate_size", "shared expert"},
    {"n_routed_experts", "number of experts"},
    {"num_local_experts", "number of experts"},
    {"num_experts", "number of experts"},
    {"moe_num_experts", "number of experts"},
    {"hidden_size", "head dimension"},
    {"hidden_size", "elements of a head"},
    {"num_attention_heads", "elements of a head"},
    {"num_attention_heads", "head dimension"},
    {"linear_num_key_heads", "recurrent heads"},
    {"linear_num_value_heads", "recurrent heads"},
    {"linear_value_head_dim", "recurrent heads"},
    {"linear_key_head_dim", "recurrent states"},
    {"mamba_num_heads", "recurrent heads"},
    {"mamba_n_heads", "recurrent heads"},
    {"mamba_head_dim", "recurrent heads"},
    {"mamba_d_head", "recurrent heads"},
    {"mamba_n_groups", "recurrent heads"},
    {"n_groups", "recurrent heads"},
    {"ssm_state_size", "recurrent states"},
    {"mamba_d_state", "recurrent states"},
    {"residual_multiplier", "residual scale"},
    {"logits_scaling", "logit scale"},
    {"logit_scale", "logit scale"},
    {"lm_head_multiplier", "logit scale"},
    {"embedding_multiplier", "embedding scale"},
    {"attention_multiplier", "attention scale"},
    {"rotary_pct", "partial_rotary_factor"},
    {"block_ff_dim", "intermediate_size"},
    {"layer_types", "no layer of its kind"},
    {"layer_types", "no layer has attention"},
    {"hidden_size", "mamba_expand"},
    {"top_k_experts", "num_experts_per_tok"},
    {"top_k_experts", "experts per token"},
    {"moe_k", "num_experts_per_tok"},
    {"vocab_size_per_layer_input", "embedding for each layer"},
    {"hidden_size_per_layer_input", "a layer's embeddings"},
    {"num_kv_shared_layers", "keys and values of earlier ones"},
    {"num_experts", "how many experts"},
    {"n_routed_experts", "how many experts"},
    {"moe_num_experts", "how many experts"},
    {"num_local_experts", "how many experts"},
    {"enable_moe_block", "how many experts"},
};

/* JSON text in place of a value; NULL: the key goes. */
static const char *const values[] = {NULL,  "null", "0",     "-1", "2147483648", "1e300",
                                     "0.3", "true", "\"x\"", "[]", "{}",         "[-1,\"x\"]"};

static bool names(const char *text, const char *key) {
    if (strstr(text, key) || strstr(text, "tensor '")) return true;
    for (size_t i = 0; i < COUNT(meanings); i++) {
        if (strcmp(meanings[i].key, key) == 0 && strstr(text, meanings[i].meaning)) return true;
    }
    return false;
}

struct trial {
    const char *family, *dir; /* with its weights */
    json_t *config;
    uint64_t hash; /* of what it says unchanged */
    unsigned n_opened, n_refused, n_unnamed, n_computed;
    uint64_t computed[256]; /* hashes of what was */
};

static weft_err read_config(const char *text, struct weft_model_params *p,
                            struct weft_errmsg *why) {
    struct wefti_model_file file;
    *p = (struct weft_model_params){0};
    weft_err err = wefti_model_file_borrow("config.json", text, strlen(text), &file, why);
    if (err) return err;
    err = wefti_model_config_hf(&file, p, why);
    wefti_model_file_close(&file);
    return err;
}

static void ignore_row(void *ctx, uint32_t pos, const float *logits) {
    (void)ctx;
    (void)pos;
    (void)logits;
}

/* What opens computes, whatever it computes: no setting gets as far as an assertion. */
static void compute_once(struct trial *trial, uint64_t hash) {
    static const uint32_t tokens[] = {1, 2, 3, 4, 5};
    struct weft_eng_options options;
    struct weft_errmsg why = {{0}};
    weft_eng *eng;
    for (unsigned i = 0; i < trial->n_computed; i++) {
        if (trial->computed[i] == hash) return;
    }
    if (trial->n_computed < COUNT(trial->computed)) trial->computed[trial->n_computed++] = hash;
    weft_eng_options_init(&options);
    options.n_threads = 1;
    options.max_model_len = 64;
    options.max_seqs = 1;
    options.max_batched_tokens = 16;
    options.kv_memory_bytes = 4 << 20;
    if (weft_eng_open(trial->dir, &options, &eng, &why) ||
        weft_eng_logits(eng, tokens, COUNT(tokens), ignore_row, NULL, &why))
        fail_msg("%s: %s", trial->family, why.text);
    weft_eng_free(eng);
}

/* A configuration that says the same as the family's own opens as that does; others are tried on its weights. */
static weft_err open_with(struct trial *trial, const char *text, struct weft_errmsg *why) {
    struct weft_model_params p;
    weft_model *model;
    weft_err err = read_config(text, &p, why);
    if (err || wefti_model_params_hash(&p) == trial->hash) return err;
    test_dir_write(trial->dir, "config.json", text, strlen(text));
    err = weft_model_open(trial->dir, &model, why);
    if (err) return err;
    weft_model_free(model);
    compute_once(trial, wefti_model_params_hash(&p));
    return WEFT_OK;
}

static void try_one(struct trial *trial, const char *const keys[2], const char *value) {
    char *text = json_dumps(trial->config, 0);
    struct weft_errmsg why = {{0}};
    assert_non_null(text);
    weft_err err = open_with(trial, text, &why);
    free(text);
    trial->n_opened += !err;
    trial->n_refused += err != WEFT_OK;
    if (!err || names(why.text, keys[0]) || (keys[1] && names(why.text, keys[1]))) return;
    (void)printf("  %s: %s %s: %s\n", trial->family, keys[0], value ? value : "(gone)", why.text);
    trial->n_unnamed++;
}

/* Each key of an object of the configuration, which stands under `outer` in it; NULL: it is all of it. */
static void try_keys(struct trial *trial, json_t *object, const char *outer) {
    json_t *copy = json_deep_copy(object), *item;
    const char *key;
    assert_non_null(copy);
    json_object_foreach(copy, key, item) {
        for (size_t i = 0; i < COUNT(values); i++) {
            if (values[i])
                assert_int_equal(
                    json_object_set_new(object, key, json_loads(values[i], JSON_DECODE_ANY, NULL)),
                    0);
            else
                assert_int_equal(json_object_del(object, key), 0);
            try_one(trial, (const char *const[]){key, outer}, values[i]);
        }
        assert_int_equal(json_object_set(object, key, item), 0);
        json_t *inner = json_object_get(object, key);
        if (json_is_object(inner)) try_keys(trial, inner, outer ? outer : key);
    }
    json_decref(copy);
}

/* The weights of a family's folder, in another one; how many files there are. */
static unsigned link_weights(const char *from, const char *dir) {
    DIR *folder = opendir(from);
    char path[2048], real[4096], link[2048];
    unsigned n = 0;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strncmp(entry->d_name, "model", strlen("model")) != 0) continue;
        (void)snprintf(path, sizeof path, "%s/%s", from, entry->d_name);
        (void)snprintf(link, sizeof link, "%s/%s", dir, entry->d_name);
        assert_non_null(realpath(path, real));
        assert_int_equal(symlink(real, link), 0);
        n++;
    }
    closedir(folder);
    return n;
}

/* How many settings are refused without a name. */
static unsigned try_family(const char *zoo, const char *family) {
    char from[1024], path[1100];
    struct trial trial = {.family = family};
    struct weft_model_params p;
    struct weft_errmsg why;
    (void)snprintf(from, sizeof from, "%s/%s", zoo, family);
    (void)snprintf(path, sizeof path, "%s/config.json", from);
    trial.config = json_load_file(path, 0, NULL);
    if (!trial.config) return 0; /* no model's folder */
    char *dir = test_dir_new(), *text = json_dumps(trial.config, 0);
    trial.dir = dir;
    assert_non_null(text);
    if (read_config(text, &p, &why)) {
        (void)printf("SKIPPED: %s: %.200s\n", family, why.text);
    } else if (link_weights(from, dir) > 0) {
        trial.hash = wefti_model_params_hash(&p);
        try_keys(&trial, trial.config, NULL);
        (void)printf("%s: %u opened, %u computed, %u refused\n", family, trial.n_opened,
                     trial.n_computed, trial.n_refused);
        assert_true(trial.n_opened > 0 && trial.n_refused > 0);
    }
    free(text);
    test_dir_free(dir);
    json_decref(trial.config);
    return trial.n_unnamed;
}

static void every_setting_of_every_family_is_read_or_refused_by_name(void **state) {
    (void)state;
    char zoo[512];
    unsigned n_unnamed = 0;
    const char *root = getenv("WEFT_SHARED_DIR"), *only = getenv("WEFT_TEST_FAMILY");
    (void)snprintf(zoo, sizeof zoo, "%s/zoo2", root ? root : "../shared");
    DIR *folder = opendir(zoo);
    if (!folder) (void)printf("SKIPPED: no zoo2 in WEFT_SHARED_DIR\n");
    if (!folder) skip();
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] != '.' && (!only || strcmp(only, entry->d_name) == 0))
            n_unnamed += try_family(zoo, entry->d_name);
    }
    closedir(folder);
    assert_int_equal(n_unnamed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_of_every_family_is_read_or_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
