/* The architectures that are served: how they differ from Llama (arch.h), and what their files call tensors. A new
 * family is a row here; what no family had before becomes a trait that any row may have. */
#include "arch.h"

/* Traits by their short names. */
/* clang-format off */
enum { NONE = 0 };
#define WINDOW WEFTI_MODEL_ARCH_WINDOW
#define QKV_BIAS WEFTI_MODEL_ARCH_QKV_BIAS
#define QK_NORM WEFTI_MODEL_ARCH_QK_NORM
#define NO_ROPE WEFTI_MODEL_ARCH_NO_ROPE
#define SCALES WEFTI_MODEL_ARCH_SCALES
#define GEMMA WEFTI_MODEL_ARCH_GEMMA
#define LOCAL_ROPE WEFTI_MODEL_ARCH_LOCAL_ROPE
#define FUSED WEFTI_MODEL_ARCH_FUSED
#define QK_NORM_ALL WEFTI_MODEL_ARCH_QK_NORM_ALL
#define EXPERTS WEFTI_MODEL_ARCH_EXPERTS
#define NORMALISED WEFTI_MODEL_ARCH_NORMALISED
#define SHARED_GATE WEFTI_MODEL_ARCH_SHARED_GATE
#define DEEPSEEK WEFTI_MODEL_ARCH_DEEPSEEK
#define LATENT WEFTI_MODEL_ARCH_LATENT
#define NORMS_AFTER WEFTI_MODEL_ARCH_NORMS_AFTER
#define WRAPPED WEFTI_MODEL_ARCH_WRAPPED
#define ENCODER WEFTI_MODEL_ARCH_ENCODER
#define HEAD WEFTI_MODEL_ARCH_HEAD
#define FOLDER WEFTI_MODEL_ARCH_FOLDER
#define LAYER_NORM WEFTI_MODEL_ARCH_LAYER_NORM
#define NORM_BIAS WEFTI_MODEL_ARCH_NORM_BIAS
#define O_BIAS WEFTI_MODEL_ARCH_O_BIAS
#define FFN_BIAS WEFTI_MODEL_ARCH_FFN_BIAS
#define UNGATED WEFTI_MODEL_ARCH_UNGATED
#define PARALLEL WEFTI_MODEL_ARCH_PARALLEL
#define ONE_NORM WEFTI_MODEL_ARCH_ONE_NORM
#define NORMS_TURNED WEFTI_MODEL_ARCH_NORMS_TURNED
#define PAIRS WEFTI_MODEL_ARCH_PAIRS
#define PATTERN WEFTI_MODEL_ARCH_PATTERN
#define TURNS_WINDOWED WEFTI_MODEL_ARCH_TURNS_WINDOWED
#define TIED WEFTI_MODEL_ARCH_TIED
#define NORMS_TOO WEFTI_MODEL_ARCH_NORMS_TOO
#define BIAS_KEY WEFTI_MODEL_ARCH_BIAS_KEY
#define SCALES_Q WEFTI_MODEL_ARCH_SCALES_Q
#define SIGMOID WEFTI_MODEL_ARCH_SIGMOID
#define SCORE_BIAS WEFTI_MODEL_ARCH_SCORE_BIAS
#define MAY_QK_NORM WEFTI_MODEL_ARCH_MAY_QK_NORM
#define PREDICTS WEFTI_MODEL_ARCH_PREDICTS
#define GELU WEFTI_MODEL_ARCH_GELU
#define GELU_ERF WEFTI_MODEL_ARCH_GELU_ERF
#define ATTN_GATE WEFTI_MODEL_ARCH_ATTN_GATE
#define SINKS WEFTI_MODEL_ARCH_SINKS
#define EXPERT_BIAS WEFTI_MODEL_ARCH_EXPERT_BIAS
#define TURNED WEFTI_MODEL_ARCH_TURNED
#define ALTERNATE WEFTI_MODEL_ARCH_ALTERNATE
#define CLAMPED WEFTI_MODEL_ARCH_CLAMPED
#define EVERY_SECOND WEFTI_MODEL_ARCH_EVERY_SECOND
#define YARN_SMOOTH WEFTI_MODEL_ARCH_YARN_SMOOTH
#define MUP WEFTI_MODEL_ARCH_MUP
#define LLAMA4 WEFTI_MODEL_ARCH_LLAMA4
#define CONV WEFTI_MODEL_ARCH_CONV
#define MAMBA WEFTI_MODEL_ARCH_MAMBA
#define DELTA WEFTI_MODEL_ARCH_DELTA
#define BESIDE WEFTI_MODEL_ARCH_BESIDE
#define LETTERS WEFTI_MODEL_ARCH_LETTERS
#define RELU2 WEFTI_MODEL_ARCH_RELU2
#define GATE_IN_Q WEFTI_MODEL_ARCH_GATE_IN_Q
#define PLUS_ONE WEFTI_MODEL_ARCH_PLUS_ONE
#define GRANITE_SHARED WEFTI_MODEL_ARCH_GRANITE_SHARED
#define MULTIPLIERS WEFTI_MODEL_ARCH_MULTIPLIERS
#define TILED_HEADS WEFTI_MODEL_ARCH_TILED_HEADS
#define ALL_BIASES (QKV_BIAS | O_BIAS | FFN_BIAS)

typedef struct wefti_model_rename rename;

static const rename seed_gguf[] = {{"*.post_attention_norm.", "ffn_norm."}, {0}};
static const rename ungated_gguf[] = {{"*.ffn_up.", "ffn_gate."}, {0}};
static const rename starcoder_hf[] = {
    {"*.mlp.c_fc.", "mlp.gate_proj."}, {"*.mlp.c_proj.", "mlp.down_proj."}, {0}};
static const rename neox_hf[] = {
    {"embed_out.", "lm_head."},
    {"gpt_neox.embed_in.", "model.embed_tokens."},
    {"gpt_neox.final_layer_norm.", "model.norm."},
    {"gpt_neox.layers.", "model.layers."},
    {"*.attention.query_key_value.", "self_attn.qkv_by_head."},
    {"*.attention.dense.", "self_attn.o_proj."},
    {"*.attention.bias", NULL}, /* masks, which older checkpoints store */
    {"*.attention.masked_bias", NULL},
    {"*.attention.rotary_emb.", NULL},
    {"*.mlp.dense_h_to_4h.", "mlp.gate_proj."},
    {"*.mlp.dense_4h_to_h.", "mlp.down_proj."},
    {0}};
static const rename glm4_hf[] = {
    {"*.post_self_attn_layernorm.", "post_attention_layernorm."},
    {"*.post_attention_layernorm.", "pre_feedforward_layernorm."},
    {"*.post_mlp_layernorm.", "post_feedforward_layernorm."},
    {0}};
static const rename hunyuan_hf[] = {
    {"*.self_attn.query_layernorm.", "self_attn.q_norm."},
    {"*.self_attn.key_layernorm.", "self_attn.k_norm."},
    {0}};

static const rename ernie_hf[] = {
    {"*.mlp.moe_statics.e_score_correction_bias", "mlp.gate.e_score_correction_bias"}, {0}};
static const rename minimax_hf[] = {
    {"*.block_sparse_moe.e_score_correction_bias", "mlp.gate.e_score_correction_bias"}, {0}};
static const rename hunyuan_moe_hf[] = {
    {"*.self_attn.query_layernorm.", "self_attn.q_norm."},
    {"*.self_attn.key_layernorm.", "self_attn.k_norm."},
    {"*.mlp.gate.wg.", "mlp.gate."},
    {"*.mlp.shared_mlp.", "mlp.shared_experts."},
    {0}};

static const rename afmoe_hf[] = {
    {"*.post_attention_layernorm.", "post_attention_layernorm."},
    {"*.pre_mlp_layernorm.", "pre_feedforward_layernorm."},
    {"*.post_mlp_layernorm.", "post_feedforward_layernorm."},
    {"*.mlp.router.gate.", "mlp.gate."},
    {"*.mlp.expert_bias", "mlp.gate.e_score_correction_bias"},
    {0}};
static const rename router_hf[] = {{"*.mlp.router.", "mlp.gate."}, {0}};
static const rename oss_gguf[] = {{"*.post_attention_norm.", "ffn_norm."}, {0}};
static const rename llama4_hf[] = {
    {"*.feed_forward.router.", "mlp.gate."},
    {"*.feed_forward.shared_expert.", "mlp.shared_experts."},
    {"*.feed_forward.", "mlp."},
    {0}};

static const rename lfm2_hf[] = {
    {"model.embedding_norm.", "model.norm."},
    {"*.conv.in_proj.", "mixer.in_proj."},
    {"*.conv.conv.", "mixer.conv1d."},
    {"*.conv.out_proj.", "mixer.out_proj."},
    {"*.self_attn.out_proj.", "self_attn.o_proj."},
    {"*.self_attn.q_layernorm.", "self_attn.q_norm."},
    {"*.self_attn.k_layernorm.", "self_attn.k_norm."},
    {"*.operator_norm.", "input_layernorm."},
    {"*.ffn_norm.", "post_attention_layernorm."},
    {"*.feed_forward.w1.", "mlp.gate_proj."},
    {"*.feed_forward.w3.", "mlp.up_proj."},
    {"*.feed_forward.w2.", "mlp.down_proj."},
    {"*.feed_forward.gate.", "mlp.gate."},
    {"*.feed_forward.expert_bias", "mlp.gate.e_score_correction_bias"},
    {"*.feed_forward.experts.", "block_sparse_moe.experts."},
    {0}};
static const rename lfm2_gguf[] = {
    {"token_embd_norm.", "output_norm."},
    {"*.shortconv.in_proj.", "ssm_in."},
    {"*.shortconv.conv.", "ssm_conv1d."},
    {"*.shortconv.out_proj.", "ssm_out."},
    {0}};
static const rename granite_hf[] = {
    {"*.mamba.", "mixer."},
    {"*.block_sparse_moe.router.layer.", "mlp.gate."},
    {"*.block_sparse_moe.input_linear.weight", "mlp.experts.gate_up_proj"},
    {"*.block_sparse_moe.output_linear.weight", "mlp.experts.down_proj"},
    {"*.shared_mlp.input_linear.", "mlp.shared_gate_up."},
    {"*.shared_mlp.output_linear.", "mlp.shared_experts.down_proj."},
    {0}};
static const rename nemotron_hf[] = {
    {"backbone.embeddings.", "model.embed_tokens."},
    {"backbone.norm_f.", "model.norm."},
    {"backbone.layers.", "model.layers."},
    {"*.norm.", "input_layernorm."},
    {"*.mixer.q_proj.", "self_attn.q_proj."},
    {"*.mixer.k_proj.", "self_attn.k_proj."},
    {"*.mixer.v_proj.", "self_attn.v_proj."},
    {"*.mixer.o_proj.", "self_attn.o_proj."},
    {"*.mixer.up_proj.", "mlp.gate_proj."},
    {"*.mixer.down_proj.", "mlp.down_proj."},
    {"*.mixer.gate.", "mlp.gate."},
    {"*.mixer.experts.", "mlp.experts."},
    {"*.mixer.shared_experts.up_proj.", "mlp.shared_experts.gate_proj."},
    {"*.mixer.shared_experts.", "mlp.shared_experts."},
    {0}};
static const rename nemotron_gguf[] = {
    {"*.ffn_up.", "ffn_gate."}, {"*.ffn_up_exps.", "ffn_gate_exps."}, {"*.ffn_up_shexp.", "ffn_gate_shexp."}, {0}};
static const rename falcon_hf[] = {
    {"model.final_layernorm.", "model.norm."},
    {"*.mamba.", "mixer."},
    {"*.feed_forward.", "mlp."},
    {"*.pre_ff_layernorm.", "post_attention_layernorm."},
    {0}};
static const rename delta_hf[] = {
    {"mtp.", NULL}, /* layers that guess further tokens */
    {"*.linear_attn.in_proj_qkvz.", "mixer.qkvz."},
    {"*.linear_attn.in_proj_ba.", "mixer.ba."},
    {"*.linear_attn.in_proj_qkv.", "mixer.qkv."},
    {"*.linear_attn.in_proj_z.", "mixer.z."},
    {"*.linear_attn.in_proj_b.", "mixer.b."},
    {"*.linear_attn.in_proj_a.", "mixer.a."},
    {"*.linear_attn.", "mixer."},
    {0}};

const struct wefti_model_arch wefti_model_archs[] = {
    {"llama", "llama", "LlamaForCausalLM", NONE, 0, true, {NULL, NULL}},
    {"llama", "mistral", "MistralForCausalLM", WINDOW, 4096, true, {NULL, NULL}},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", QKV_BIAS, 0, false, {NULL, NULL}},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", QK_NORM, 0, false, {NULL, NULL}},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", NO_ROPE, 0, true, {NULL, NULL}},
    {"granite", "granite", "GraniteForCausalLM", SCALES, 0, true, {NULL, NULL}},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", GEMMA, 4096, false, {NULL, NULL}},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", GEMMA | QK_NORM | LOCAL_ROPE, 4096, false, {NULL, NULL}},
    {"gemma3", "gemma3", "Gemma3ForConditionalGeneration", GEMMA | QK_NORM | LOCAL_ROPE | WRAPPED, 4096, false, {NULL, NULL}},
    {"llama", "mixtral", "MixtralForCausalLM", WINDOW | EXPERTS | NORMALISED, 0, true, {NULL, NULL}},
    {"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", QKV_BIAS | EXPERTS | SHARED_GATE, 0, false, {NULL, NULL}},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", QK_NORM | EXPERTS, 0, false, {NULL, NULL}},
    {"olmoe", "olmoe", "OlmoeForCausalLM", QK_NORM_ALL | EXPERTS, 0, false, {NULL, NULL}},
    {"deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM", LATENT | EXPERTS | DEEPSEEK, 0, true, {NULL, NULL}},
    {"deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM", LATENT | EXPERTS | DEEPSEEK, 0, true, {NULL, NULL}},
    {"olmo2", "olmo2", "Olmo2ForCausalLM", QK_NORM_ALL | NORMS_AFTER, 0, false, {NULL, NULL}},
    {"phi3", "phi3", "Phi3ForCausalLM", WINDOW | FUSED, 0, false, {NULL, NULL}},
    {"bert", "bert", "BertModel", ENCODER, 0, false, {NULL, NULL}},
    {"bert", "bert", "BertForSequenceClassification", ENCODER | HEAD, 0, false, {NULL, NULL}},
    {"bert", "xlm-roberta", "XLMRobertaModel", ENCODER, 0, false, {NULL, NULL}},
    {"bert", "xlm-roberta", "XLMRobertaForSequenceClassification", ENCODER | HEAD, 0, false, {NULL, NULL}},
    {"bert", "roberta", "RobertaModel", ENCODER, 0, false, {NULL, NULL}},
    {"bert", "roberta", "RobertaForSequenceClassification", ENCODER | HEAD, 0, false, {NULL, NULL}},
    {"nomic-bert", "nomic_bert", "NomicBertModel", ENCODER | FUSED, 0, false, {NULL, NULL}},
    {"modern-bert", "modernbert", "ModernBertModel", ENCODER | FUSED, 0, false, {NULL, NULL}},
    {"gte", "new", "NewModel", ENCODER | FUSED | FOLDER, 0, false, {NULL, NULL}},
    {"gte", "new", "NewForMaskedLM", ENCODER | FUSED | FOLDER, 0, false, {NULL, NULL}},
    {"gte", "new", "NewForSequenceClassification", ENCODER | FUSED | FOLDER | HEAD, 0, false, {NULL, NULL}},
    {"gte", "gte", "GteModel", ENCODER | FUSED | FOLDER, 0, false, {NULL, NULL}},
    {"seed_oss", "seed_oss", "SeedOssForCausalLM", BIAS_KEY, 0, false, {NULL, seed_gguf}},
    {"stablelm", "stablelm", "StableLmForCausalLM", LAYER_NORM | NORM_BIAS, 0, false, {NULL, NULL}},
    {"starcoder2", "starcoder2", "Starcoder2ForCausalLM", WINDOW | LAYER_NORM | NORM_BIAS | ALL_BIASES | UNGATED | GELU | TIED, 0,
     false, {starcoder_hf, ungated_gguf}},
    {"gptneox", "gpt_neox", "GPTNeoXForCausalLM", LAYER_NORM | NORM_BIAS | ALL_BIASES | UNGATED | GELU_ERF | PARALLEL | FUSED, 0, false,
     {neox_hf, ungated_gguf}},
    {"cohere2", "cohere2", "Cohere2ForCausalLM", PATTERN | TURNS_WINDOWED | LAYER_NORM | PARALLEL | ONE_NORM | PAIRS | TIED, 4096,
     false, {NULL, NULL}},
    {"glm4", "glm4", "Glm4ForCausalLM", BIAS_KEY | FUSED | NORMS_TOO | PAIRS, 0, false, {glm4_hf, NULL}},
    {"exaone4", "exaone4", "Exaone4ForCausalLM", QK_NORM | NORMS_AFTER | PATTERN | TURNS_WINDOWED, 4096, false, {NULL, NULL}},
    {"mistral3", "ministral3", "Ministral3ForCausalLM", WINDOW | SCALES_Q, 0, true, {NULL, NULL}},
    {"hunyuan-dense", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", QK_NORM | NORMS_TURNED, 0, false, {hunyuan_hf, NULL}},
    {"glm4moe", "glm4_moe", "Glm4MoeForCausalLM", BIAS_KEY | MAY_QK_NORM | EXPERTS | DEEPSEEK | PREDICTS, 0, false,
     {NULL, seed_gguf}},
    {"dots1", "dots1", "Dots1ForCausalLM", QK_NORM | EXPERTS | DEEPSEEK, 0, false, {NULL, NULL}},
    {"ernie4_5-moe", "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", PAIRS | EXPERTS | NORMALISED | SCORE_BIAS, 0, false,
     {ernie_hf, NULL}},
    {"minimax-m2", "minimax_m2", "MiniMaxM2ForCausalLM", QK_NORM_ALL | EXPERTS | NORMALISED | SIGMOID | SCORE_BIAS, 0, false,
     {minimax_hf, NULL}},
    {"hunyuan-moe", "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", QK_NORM | NORMS_TURNED | EXPERTS | NORMALISED, 0, false,
     {hunyuan_moe_hf, NULL}},
    {"afmoe", "afmoe", "AfmoeForCausalLM",
     QK_NORM | NORMS_TOO | PATTERN | TURNS_WINDOWED | ATTN_GATE | EXPERTS | SIGMOID | SCORE_BIAS | NORMALISED | MUP, 0, false,
     {afmoe_hf, NULL}},
    {"gpt-oss", "gpt_oss", "GptOssForCausalLM",
     QKV_BIAS | O_BIAS | SINKS | PATTERN | EVERY_SECOND | EXPERTS | NORMALISED | EXPERT_BIAS | CLAMPED | TURNED | ALTERNATE |
         YARN_SMOOTH,
     128, false, {router_hf, oss_gguf}},
    {"llama4", "llama4_text", "Llama4ForCausalLM", LLAMA4 | NO_ROPE | PAIRS | EXPERTS | SIGMOID | TURNED, 0, false,
     {llama4_hf, NULL}},
    {"lfm2", "lfm2", "Lfm2ForCausalLM", CONV | QK_NORM | TIED, 0, false, {lfm2_hf, lfm2_gguf}},
    {"lfm2moe", "lfm2_moe", "Lfm2MoeForCausalLM", CONV | QK_NORM | TIED | EXPERTS | SIGMOID | SCORE_BIAS, 0, false,
     {lfm2_hf, lfm2_gguf}},
    {"granitehybrid", "granitemoehybrid", "GraniteMoeHybridForCausalLM",
     MAMBA | SCALES | EXPERTS | NORMALISED | GRANITE_SHARED | FUSED, 0, true, {granite_hf, NULL}},
    {"nemotron_h", "nemotron_h", "NemotronHForCausalLM",
     MAMBA | LETTERS | UNGATED | RELU2 | EXPERTS | SIGMOID | SCORE_BIAS, 0, false, {nemotron_hf, nemotron_gguf}},
    {"nemotron_h_moe", "nemotron_h", "NemotronHForCausalLM",
     MAMBA | LETTERS | UNGATED | RELU2 | EXPERTS | SIGMOID | SCORE_BIAS, 0, false, {nemotron_hf, nemotron_gguf}},
    {"falcon-h1", "falcon_h1", "FalconH1ForCausalLM", MAMBA | BESIDE | MULTIPLIERS, 0, false, {falcon_hf, NULL}},
    {"qwen3next", "qwen3_next", "Qwen3NextForCausalLM",
     DELTA | GATE_IN_Q | ATTN_GATE | QK_NORM | PLUS_ONE | EXPERTS | SHARED_GATE | NORMALISED, 0, false, {delta_hf, seed_gguf}},
    {"qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM", DELTA | GATE_IN_Q | ATTN_GATE | QK_NORM | PLUS_ONE | TILED_HEADS, 0, false,
     {delta_hf, seed_gguf}},
    {"qwen35moe", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM",
     DELTA | GATE_IN_Q | ATTN_GATE | QK_NORM | PLUS_ONE | EXPERTS | SHARED_GATE | NORMALISED | TILED_HEADS, 0, false, {delta_hf, seed_gguf}},
};
/* clang-format on */
const size_t wefti_model_n_archs = sizeof wefti_model_archs / sizeof wefti_model_archs[0];
