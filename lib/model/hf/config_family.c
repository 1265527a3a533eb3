/* What config.json need not say. A key that is missing has the value that the family's class in transformers gives it,
 * and some families have a second name for a key. Both are data here; they are put into the parsed file before
 * anything reads it, so that the readers know one name and, where a family has a value of its own, always find
 * one. null stays: it says that there is nothing, which is not the same as saying nothing. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "config_hf.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])
#define JSON(...) #__VA_ARGS__

/* By "model_type". What follows from other keys, or is the same for everyone, is not here; nor is how DeepSeek and
 * those after it choose experts (config_experts.c). */
/* clang-format off */
static const struct {
    const char *type, *values;
} defaults[] = {
    {"gpt_oss", JSON({"num_hidden_layers": 36, "num_local_experts": 128, "vocab_size": 201088,
        "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64, "num_attention_heads": 64,
        "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "num_experts_per_tok": 4, "rope_theta": 150000, "rope_scaling": {"rope_type": "yarn",
        "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": false,
        "original_max_position_embeddings": 4096}})},
    {"glm4", JSON({"num_hidden_layers": 40, "vocab_size": 151552, "hidden_size": 4096,
        "intermediate_size": 13696, "head_dim": 128, "num_attention_heads": 32,
        "num_key_value_heads": 2, "max_position_embeddings": 131072, "rms_norm_eps": 1.5625e-7,
        "partial_rotary_factor": 0.5, "attention_bias": true})},
    {"glm4_moe", JSON({"num_hidden_layers": 46, "vocab_size": 151552, "hidden_size": 4096,
        "intermediate_size": 10944, "num_attention_heads": 96, "num_key_value_heads": 8,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
        "moe_intermediate_size": 1408, "num_experts_per_tok": 8, "n_routed_experts": 128})},
    {"glm4v_text", JSON({"num_hidden_layers": 40, "vocab_size": 151552, "hidden_size": 4096,
        "intermediate_size": 13696, "num_attention_heads": 32, "num_key_value_heads": 2,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "attention_bias": true})},
    {"glm4v_moe_text", JSON({"num_hidden_layers": 46, "vocab_size": 151424, "hidden_size": 4096,
        "intermediate_size": 10944, "num_attention_heads": 96, "num_key_value_heads": 8,
        "max_position_embeddings": 65536, "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
        "attention_bias": true, "moe_intermediate_size": 1408, "num_experts_per_tok": 8,
        "n_routed_experts": 128})},
    {"llama4_text", JSON({"num_hidden_layers": 48, "vocab_size": 202048, "hidden_size": 5120,
        "intermediate_size": 8192, "intermediate_size_mlp": 16384, "head_dim": 128,
        "num_attention_heads": 40, "num_key_value_heads": 8, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_theta": 500000, "num_experts_per_tok": 1,
        "num_local_experts": 16, "interleave_moe_layer_step": 1})},
    {"qwen3_next", JSON({"num_hidden_layers": 48, "vocab_size": 151936, "hidden_size": 2048,
        "intermediate_size": 5632, "head_dim": 256, "num_attention_heads": 16,
        "num_key_value_heads": 2, "max_position_embeddings": 32768, "partial_rotary_factor": 0.25,
        "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512})},
    {"qwen3_5_text", JSON({"num_hidden_layers": 32, "vocab_size": 248320, "hidden_size": 4096,
        "intermediate_size": 12288, "head_dim": 256, "num_attention_heads": 16,
        "num_key_value_heads": 4, "max_position_embeddings": 32768, "partial_rotary_factor": 0.25})},
    /* All layers have experts: the size of the others is of none. */
    {"qwen3_5_moe_text", JSON({"num_hidden_layers": 40, "vocab_size": 248320, "hidden_size": 2048,
        "intermediate_size": 512, "head_dim": 256, "num_attention_heads": 16,
        "num_key_value_heads": 2, "max_position_embeddings": 32768, "partial_rotary_factor": 0.25,
        "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512})},
    {"ministral3", JSON({"num_hidden_layers": 34, "vocab_size": 131072, "hidden_size": 4096,
        "intermediate_size": 14336, "head_dim": 128, "num_attention_heads": 32,
        "num_key_value_heads": 8, "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
        "rope_scaling": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "beta_fast": 32,
        "beta_slow": 1, "original_max_position_embeddings": 16384, "mscale": 1, "mscale_all_dim": 1,
        "llama_4_scaling_beta": 0.1}})},
    {"granitemoehybrid", JSON({"num_hidden_layers": 32, "vocab_size": 32000, "hidden_size": 4096,
        "intermediate_size": 11008, "num_attention_heads": 32, "num_local_experts": 8,
        "num_experts_per_tok": 2, "shared_intermediate_size": 1024, "mamba_n_heads": 128,
        "mamba_d_state": 256})},
    {"nemotron_h", JSON({"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 21504,
        "head_dim": 128, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 4096, "layer_norm_epsilon": 1e-5, "mamba_num_heads": 128,
        "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 7688,
        "moe_shared_expert_intermediate_size": 7688, "norm_topk_prob": true})},
    {"falcon_h1", JSON({"num_hidden_layers": 32, "vocab_size": 128000, "hidden_size": 4096,
        "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000,
        "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_d_state": 256, "mamba_rms_norm": false,
        "mamba_norm_before_gate": true})},
    {"lfm2", JSON({"num_hidden_layers": 32, "vocab_size": 65536, "hidden_size": 2560,
        "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 128000, "norm_eps": 1e-5, "rope_theta": 1e6,
        "block_auto_adjust_ff_dim": true})},
    {"lfm2_moe", JSON({"num_hidden_layers": 32, "vocab_size": 65536, "hidden_size": 2048,
        "intermediate_size": 7168, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 128000, "norm_eps": 1e-5, "rope_theta": 1e6,
        "moe_intermediate_size": 1792, "num_dense_layers": 2, "num_experts": 32,
        "num_experts_per_tok": 4, "norm_topk_prob": true})},
    {"ernie4_5", JSON({"num_hidden_layers": 18, "vocab_size": 103424, "hidden_size": 1024,
        "intermediate_size": 3072, "head_dim": 128, "num_attention_heads": 16,
        "num_key_value_heads": 2, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "rope_theta": 500000, "tie_word_embeddings": true})},
    {"ernie4_5_moe", JSON({"num_hidden_layers": 28, "vocab_size": 103424, "hidden_size": 2560,
        "intermediate_size": 12288, "num_attention_heads": 20, "num_key_value_heads": 4,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000,
        "tie_word_embeddings": true, "moe_intermediate_size": 1536, "moe_k": 6,
        "moe_num_experts": 64, "moe_num_shared_experts": 2, "moe_layer_start_index": 1})},
    {"minimax_m2", JSON({"num_hidden_layers": 62, "vocab_size": 200064, "hidden_size": 3072,
        "intermediate_size": 1536, "head_dim": 128, "num_attention_heads": 48,
        "num_key_value_heads": 8, "max_position_embeddings": 196608, "rope_theta": 5e6,
        "num_experts_per_tok": 8, "num_local_experts": 256})},
    {"hunyuan_v1_dense", JSON({"num_hidden_layers": 32, "vocab_size": 290943, "hidden_size": 4096,
        "intermediate_size": 11008, "num_attention_heads": 32, "rms_norm_eps": 1e-5})},
    {"hunyuan_v1_moe", JSON({"num_hidden_layers": 32, "vocab_size": 290943, "hidden_size": 4096,
        "intermediate_size": 11008, "num_attention_heads": 32, "rms_norm_eps": 1e-5,
        "num_experts": 1, "moe_topk": 1, "num_shared_expert": 1})},
    {"exaone4", JSON({"num_hidden_layers": 32, "vocab_size": 102400, "hidden_size": 4096,
        "intermediate_size": 16384, "num_attention_heads": 32, "num_key_value_heads": 32,
        "rms_norm_eps": 1e-5})},
    {"cohere2", JSON({"num_hidden_layers": 40, "vocab_size": 256000, "hidden_size": 8192,
        "intermediate_size": 22528, "num_attention_heads": 64, "max_position_embeddings": 8192,
        "logit_scale": 0.0625})},
    {"starcoder2", JSON({"num_hidden_layers": 30, "vocab_size": 49152, "hidden_size": 3072,
        "intermediate_size": 12288, "num_attention_heads": 24, "num_key_value_heads": 2,
        "max_position_embeddings": 4096})},
    {"gpt_neox", JSON({"num_hidden_layers": 44, "vocab_size": 50432, "hidden_size": 6144,
        "intermediate_size": 24576, "num_attention_heads": 64, "rotary_pct": 0.25})},
    {"stablelm", JSON({"num_hidden_layers": 32, "vocab_size": 50304, "hidden_size": 2560,
        "intermediate_size": 6912, "num_attention_heads": 32, "num_key_value_heads": 32,
        "max_position_embeddings": 4096, "partial_rotary_factor": 0.25})},
    {"seed_oss", JSON({"num_hidden_layers": 64, "vocab_size": 155136, "hidden_size": 4096,
        "intermediate_size": 27648, "head_dim": 128, "num_attention_heads": 80,
        "num_key_value_heads": 8, "max_position_embeddings": 524288, "attention_bias": true})},
    {"afmoe", JSON({"num_hidden_layers": 32, "vocab_size": 200192, "hidden_size": 2048,
        "intermediate_size": 6144, "head_dim": 128, "num_attention_heads": 16,
        "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "sliding_window": 1024,
        "mup_enabled": false, "num_dense_layers": 1, "num_experts": 64, "num_experts_per_tok": 6,
        "num_shared_experts": 2, "moe_intermediate_size": 1408})},
    {"dots1", JSON({"num_hidden_layers": 62, "vocab_size": 152064, "hidden_size": 4608,
        "intermediate_size": 10944, "num_attention_heads": 32, "num_key_value_heads": 32,
        "moe_intermediate_size": 1408})},
    {"gemma4_text", JSON({"num_hidden_layers": 30, "vocab_size": 262144, "hidden_size": 2304,
        "intermediate_size": 9216, "head_dim": 256, "num_attention_heads": 8,
        "num_key_value_heads": 4, "max_position_embeddings": 131072, "sliding_window": 512,
        "global_head_dim": 512, "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144, "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
        "rope_theta": 1000000}}})},
};

/* Second names. `wins`: over the first one, if both are there; no `to`: other families' key, which this one does not
 * look at. */
static const struct {
    const char *type, *from, *to;
    bool wins;
} aliases[] = {
    {"gpt_oss", "num_experts", "num_local_experts", false},
    {"minimax_m2", "num_experts", "num_local_experts", false},
    {"glm4_moe", "num_local_experts", "n_routed_experts", false},
    {"glm4_moe", "num_experts", "n_routed_experts", false},
    {"glm4v_moe_text", "num_local_experts", "n_routed_experts", false},
    {"dots1", "num_local_experts", "n_routed_experts", false},
    {"ernie4_5_moe", "num_experts", "moe_num_experts", false},
    {"ernie4_5_moe", "num_experts_per_tok", "moe_k", false},
    {"hunyuan_v1_moe", "n_group", NULL, false}, /* of A13B these are false */
    {"hunyuan_v1_moe", "topk_group", NULL, false},
    {"hunyuan_v1_moe", "routed_scaling_factor", NULL, false},
    {"granitemoehybrid", "layers_block_type", "layer_types", false},
    {"nemotron_h", "layer_types", "layers_block_type", false},
    {"nemotron_h", "attention_head_dim", "head_dim", false},
    {"nemotron_h", "num_local_experts", "n_routed_experts", false},
    {"nemotron_h", "mamba_n_groups", "n_groups", true},
    {"nemotron_h", "mamba_d_conv", "conv_kernel", true},
    {"nemotron_h", "mamba_dt_limit", "time_step_limit", true},
    {"nemotron_h", "mamba_conv_bias", "use_conv_bias", true},
    {"nemotron_h", "rms_norm_eps", NULL, false},
    {"lfm2", "block_ff_dim", "intermediate_size", true},
    {"lfm2", "tie_embedding", "tie_word_embeddings", true},
    {"lfm2", "theta", "rope_theta", true},
    {"lfm2_moe", "tie_embedding", "tie_word_embeddings", true},
};
/* clang-format on */

static weft_err no_memory(const struct config *c) {
    return weft_err_set(c->why, WEFT_E_NOMEM, "%s: out of memory", c->path);
}

static weft_err rename_keys(const struct config *c, const char *type) {
    for (size_t i = 0; i < COUNT(aliases); i++) {
        if (strcmp(aliases[i].type, type) != 0) continue;
        json_t *value = get(c->root, aliases[i].from);
        if (!value) continue;
        const bool moves = aliases[i].to && (aliases[i].wins || !get(c->root, aliases[i].to));
        if (moves && json_object_set(c->root, aliases[i].to, value) != 0) return no_memory(c);
        (void)json_object_del(c->root, aliases[i].from);
    }
    return WEFT_OK;
}

/* How positions turn is said under either of two keys. */
static bool is_said(const struct config *c, const char *key) {
    if (json_object_get(c->root, key)) return true;
    return strcmp(key, "rope_scaling") == 0 && get(c->root, "rope_parameters");
}

static weft_err add_defaults(const struct config *c, const char *values) {
    json_error_t error;
    json_t *object = json_loads(values, JSON_DECODE_INT_AS_REAL, &error), *value;
    const char *key;
    weft_err err = WEFT_OK;
    if (!object) {
        WEFT_ASSERT(json_error_code(&error) == json_error_out_of_memory); /* the text is ours */
        return no_memory(c);
    }
    json_object_foreach(object, key, value) {
        if (!err && !is_said(c, key) && json_object_set(c->root, key, value) != 0)
            err = no_memory(c);
    }
    json_decref(object);
    return err;
}

static bool is_of_experts(const char *key) {
    return strstr(key, "expert") || strncmp(key, "moe_", 4) == 0;
}

void wefti_model_config_left_out(const struct config *c, const struct wefti_model_arch *arch,
                                 bool has_experts, char hint[WEFTI_MODEL_HINT_BYTES]) {
    size_t at = 0;
    hint[0] = '\0';
    if (rename_keys(c, arch->hf_type)) return; /* what another name says is not left out */
    const json_t *rope = get(c->root, "rope_parameters");
    for (size_t i = 0; i < COUNT(defaults); i++) {
        if (strcmp(defaults[i].type, arch->hf_type) != 0) continue;
        json_t *object = json_loads(defaults[i].values, JSON_DECODE_INT_AS_REAL, NULL), *value;
        const char *key;
        json_object_foreach(object, key, value) {
            if (!json_is_number(value) || json_object_get(c->root, key) || at >= 200) continue;
            if (json_object_get(rope, key) || (is_of_experts(key) && !has_experts)) continue;
            at += (size_t)snprintf(hint + at, WEFTI_MODEL_HINT_BYTES - at, "%s \"%s\" (%g)",
                                   at ? "," : "; config.json leaves out", key,
                                   json_number_value(value));
        }
        json_decref(object);
    }
}

/* Nemotron-H: a list of a name per layer says the same as a letter per layer, and how many there are. */
static weft_err write_letters(const struct config *c) {
    static const char key[] = "layers_block_type", count_key[] = "num_hidden_layers",
                      letters_key[] = "hybrid_override_pattern";
    static const struct {
        const char *name;
        char letter;
    } parts[] = {{"mamba", 'M'},     {"linear_attention", 'M'},
                 {"attention", '*'}, {"full_attention", '*'},
                 {"mlp", '-'},       {"moe", 'E'}};
    char letters[WEFT_LAYERS_MAX + 1] = "";
    const json_t *list = get(c->root, key), *item;
    size_t i;
    if (list && (!json_is_array(list) || json_array_size(list) > WEFT_LAYERS_MAX))
        return wrong_type(c, key, "a list of a name per layer");
    json_array_foreach(list, i, item) {
        const char *name = json_string_value(item);
        if (!name) return wrong_type(c, key, "a list of names");
        for (size_t k = 0; k < COUNT(parts); k++) {
            if (strcmp(name, parts[k].name) == 0) letters[i] = parts[k].letter;
        }
        if (!letters[i]) return unsupported(c, key, name);
    }
    if (list && json_object_set_new(c->root, letters_key, json_string(letters)) != 0)
        return no_memory(c);
    const char *all = json_string_value(get(c->root, letters_key));
    if (!all || get(c->root, count_key)) return WEFT_OK;
    if (json_object_set_new(c->root, count_key, json_real((double)strlen(all))) != 0)
        return no_memory(c);
    return WEFT_OK;
}

weft_err wefti_model_config_family(const struct config *c, const struct wefti_model_arch *arch) {
    weft_err err = rename_keys(c, arch->hf_type);
    for (size_t i = 0; i < COUNT(defaults) && !err; i++) {
        if (strcmp(defaults[i].type, arch->hf_type) == 0) err = add_defaults(c, defaults[i].values);
    }
    return !err && arch->traits.letters ? write_letters(c) : err;
}
