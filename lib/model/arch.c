/* The architectures that are served, and how they differ from Llama. */
#include "arch.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "file.h"

#define GTE (WEFTI_MODEL_ARCH_ENCODER | WEFTI_MODEL_ARCH_FUSED | WEFTI_MODEL_ARCH_FOLDER)
static const struct wefti_model_arch archs[] = {
    {"llama", "llama", "LlamaForCausalLM", 0, 0, true},
    {"llama", "mistral", "MistralForCausalLM", WEFTI_MODEL_ARCH_WINDOW, 4096, true},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", WEFTI_MODEL_ARCH_QKV_BIAS, 0, false},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", WEFTI_MODEL_ARCH_QK_NORM, 0, false},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", WEFTI_MODEL_ARCH_NO_ROPE, 0, true},
    {"granite", "granite", "GraniteForCausalLM", WEFTI_MODEL_ARCH_SCALES, 0, true},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", WEFTI_MODEL_ARCH_GEMMA, 4096, false},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM",
     WEFTI_MODEL_ARCH_GEMMA | WEFTI_MODEL_ARCH_QK_NORM | WEFTI_MODEL_ARCH_LOCAL_ROPE, 4096, false},
    {"gemma3", "gemma3", "Gemma3ForConditionalGeneration",
     WEFTI_MODEL_ARCH_GEMMA | WEFTI_MODEL_ARCH_QK_NORM | WEFTI_MODEL_ARCH_LOCAL_ROPE |
         WEFTI_MODEL_ARCH_WRAPPED,
     4096, false},
    {"llama", "mixtral", "MixtralForCausalLM",
     WEFTI_MODEL_ARCH_WINDOW | WEFTI_MODEL_ARCH_EXPERTS | WEFTI_MODEL_ARCH_NORMALISED, 0, true},
    {"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM",
     WEFTI_MODEL_ARCH_QKV_BIAS | WEFTI_MODEL_ARCH_EXPERTS | WEFTI_MODEL_ARCH_SHARED_GATE, 0, false},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM",
     WEFTI_MODEL_ARCH_QK_NORM | WEFTI_MODEL_ARCH_EXPERTS, 0, false},
    {"olmoe", "olmoe", "OlmoeForCausalLM", WEFTI_MODEL_ARCH_QK_NORM_ALL | WEFTI_MODEL_ARCH_EXPERTS,
     0, false},
    {"deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM",
     WEFTI_MODEL_ARCH_LATENT | WEFTI_MODEL_ARCH_EXPERTS | WEFTI_MODEL_ARCH_DEEPSEEK, 0, true},
    {"deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM",
     WEFTI_MODEL_ARCH_LATENT | WEFTI_MODEL_ARCH_EXPERTS | WEFTI_MODEL_ARCH_DEEPSEEK, 0, true},
    {"olmo2", "olmo2", "Olmo2ForCausalLM",
     WEFTI_MODEL_ARCH_QK_NORM_ALL | WEFTI_MODEL_ARCH_NORMS_AFTER, 0, false},
    {"phi3", "phi3", "Phi3ForCausalLM", WEFTI_MODEL_ARCH_WINDOW | WEFTI_MODEL_ARCH_FUSED, 0, false},
    {"bert", "bert", "BertModel", WEFTI_MODEL_ARCH_ENCODER, 0, false},
    {"bert", "bert", "BertForSequenceClassification",
     WEFTI_MODEL_ARCH_ENCODER | WEFTI_MODEL_ARCH_HEAD, 0, false},
    {"bert", "xlm-roberta", "XLMRobertaModel", WEFTI_MODEL_ARCH_ENCODER, 0, false},
    {"bert", "xlm-roberta", "XLMRobertaForSequenceClassification",
     WEFTI_MODEL_ARCH_ENCODER | WEFTI_MODEL_ARCH_HEAD, 0, false},
    {"bert", "roberta", "RobertaModel", WEFTI_MODEL_ARCH_ENCODER, 0, false},
    {"bert", "roberta", "RobertaForSequenceClassification",
     WEFTI_MODEL_ARCH_ENCODER | WEFTI_MODEL_ARCH_HEAD, 0, false},
    {"nomic-bert", "nomic_bert", "NomicBertModel",
     WEFTI_MODEL_ARCH_ENCODER | WEFTI_MODEL_ARCH_FUSED, 0, false},
    {"modern-bert", "modernbert", "ModernBertModel",
     WEFTI_MODEL_ARCH_ENCODER | WEFTI_MODEL_ARCH_FUSED, 0, false},
    {"gte", "new", "NewModel", GTE, 0, false},
    {"gte", "new", "NewForMaskedLM", GTE, 0, false},
    {"gte", "new", "NewForSequenceClassification", GTE | WEFTI_MODEL_ARCH_HEAD, 0, false},
    {"gte", "gte", "GteModel", GTE, 0, false}, /* Snowflake's name for it */
};
#undef GTE
#define N_ARCHS (sizeof archs / sizeof archs[0])

const struct wefti_model_arch *wefti_model_arch_of_class(const char *name) {
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strcmp(archs[i].hf_class, name) == 0) return &archs[i];
    }
    return NULL;
}

const struct wefti_model_arch *wefti_model_arch_of_type(const char *name) {
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strcmp(archs[i].hf_type, name) == 0) return &archs[i];
    }
    return NULL;
}

const struct wefti_model_arch *wefti_model_arch_of_gguf(struct weft_str name) {
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (name.len == strlen(archs[i].name) && !memcmp(archs[i].name, name.data, name.len))
            return &archs[i];
    }
    return NULL;
}

static const char *name_of(size_t i, enum wefti_model_arch_name kind) {
    if (kind == WEFTI_MODEL_BY_CLASS) return archs[i].hf_class;
    return kind == WEFTI_MODEL_BY_TYPE ? archs[i].hf_type : archs[i].name;
}

static bool has_name(size_t i, enum wefti_model_arch_name kind) {
    return kind != WEFTI_MODEL_BY_GGUF || !(archs[i].traits & WEFTI_MODEL_ARCH_FOLDER);
}

/* Of the classes of one type the first is listed. */
static bool is_listed_before(size_t i, enum wefti_model_arch_name kind) {
    enum wefti_model_arch_name by = kind == WEFTI_MODEL_BY_GGUF ? kind : WEFTI_MODEL_BY_TYPE;
    for (size_t before = 0; before < i; before++) {
        if (strcmp(name_of(before, by), name_of(i, by)) == 0) return true;
    }
    return false;
}

weft_err wefti_model_arch_refuse(const char *path, enum wefti_model_arch_name kind,
                                 struct weft_str name, struct weft_errmsg *why) {
    static const char *const keys[] = {[WEFTI_MODEL_BY_CLASS] = "\"architectures\":",
                                       [WEFTI_MODEL_BY_TYPE] = "\"model_type\":",
                                       [WEFTI_MODEL_BY_GGUF] = "general.architecture"};
    WEFT_ASSERT((size_t)kind < sizeof keys / sizeof keys[0]);
    const char *key = keys[kind];
    char list[480] = "";
    size_t at = 0;
    for (size_t i = 0; i < N_ARCHS && at < sizeof list; i++) {
        if (is_listed_before(i, kind) || !has_name(i, kind)) continue;
        int n = snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", name_of(i, kind));
        at += n > 0 ? (size_t)n : 0;
    }
    struct wefti_model_shown shown = wefti_model_show(name.data, name.len);
    return weft_err_set(why, WEFT_E_UNSUPPORTED, "%s: %s '%s' is not supported; there are %s", path,
                        key, shown.text, list);
}
