/* The architectures that are served: how they differ from Llama (arch.h), and what their files call tensors. A new
 * family is a row here; what no family had before becomes a trait that any row may have. */
#include "arch.h"

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
static const rename stablelm_hf[] = {{"*.self_attn.q_layernorm.norms.", "self_attn.q_norms."},
                                     {"*.self_attn.k_layernorm.norms.", "self_attn.k_norms."},
                                     {0}};
static const rename glm4_hf[] = {{"*.post_self_attn_layernorm.", "post_attention_layernorm."},
                                 {"*.post_attention_layernorm.", "pre_feedforward_layernorm."},
                                 {"*.post_mlp_layernorm.", "post_feedforward_layernorm."},
                                 {0}};
static const rename hunyuan_hf[] = {{"*.self_attn.query_layernorm.", "self_attn.q_norm."},
                                    {"*.self_attn.key_layernorm.", "self_attn.k_norm."},
                                    {0}};

static const rename ernie_hf[] = {
    {"model.mtp_", NULL}, /* layers that guess further tokens */
    {"*.mlp.moe_statics.e_score_correction_bias", "mlp.gate.e_score_correction_bias"},
    {0}};
static const rename minimax_hf[] = {
    {"*.block_sparse_moe.e_score_correction_bias", "mlp.gate.e_score_correction_bias"}, {0}};
static const rename hunyuan_moe_hf[] = {{"*.self_attn.query_layernorm.", "self_attn.q_norm."},
                                        {"*.self_attn.key_layernorm.", "self_attn.k_norm."},
                                        {"*.mlp.gate.wg.", "mlp.gate."},
                                        {"*.mlp.shared_mlp.", "mlp.shared_experts."},
                                        {0}};

static const rename afmoe_hf[] = {{"*.post_attention_layernorm.", "post_attention_layernorm."},
                                  {"*.pre_mlp_layernorm.", "pre_feedforward_layernorm."},
                                  {"*.post_mlp_layernorm.", "post_feedforward_layernorm."},
                                  {"*.mlp.router.gate.", "mlp.gate."},
                                  {"*.mlp.expert_bias", "mlp.gate.e_score_correction_bias"},
                                  {0}};
static const rename router_hf[] = {{"*.mlp.router.", "mlp.gate."}, {0}};
static const rename oss_gguf[] = {{"*.post_attention_norm.", "ffn_norm."}, {0}};
static const rename llama4_hf[] = {{"*.feed_forward.router.", "mlp.gate."},
                                   {"*.feed_forward.shared_expert.", "mlp.shared_experts."},
                                   {"*.feed_forward.", "mlp."},
                                   {0}};

static const rename lfm2_hf[] = {{"model.embedding_norm.", "model.norm."},
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
static const rename lfm2_gguf[] = {{"token_embd_norm.", "output_norm."},
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
    {"mtp.", NULL}, /* layers that guess further tokens */
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
    {"*.mixer.fc1_latent_proj.", "mlp.latent_in."},
    {"*.mixer.fc2_latent_proj.", "mlp.latent_out."},
    {"*.mixer.experts.", "mlp.experts."},
    {"*.mixer.shared_experts.up_proj.", "mlp.shared_experts.gate_proj."},
    {"*.mixer.shared_experts.", "mlp.shared_experts."},
    {0}};
static const rename nemotron_gguf[] = {{"*.ffn_up.", "ffn_gate."},
                                       {"*.ffn_up_exps.", "ffn_gate_exps."},
                                       {"*.ffn_up_shexp.", "ffn_gate_shexp."},
                                       {0}};
static const rename falcon_hf[] = {{"model.final_layernorm.", "model.norm."},
                                   {"*.mamba.", "mixer."},
                                   {"*.feed_forward.", "mlp."},
                                   {"*.pre_ff_layernorm.", "post_attention_layernorm."},
                                   {0}};
static const rename falcon_gguf[] = {{"*.ffn_norm.", "ffn_norm."},
                                     {"*.ffn_norm", "ffn_norm.weight"}, /* as converters say */
                                     {0}};
static const rename gemma4_hf[] = {
    {"*.experts.", "mlp.experts."}, {"*.router.proj.", "mlp.gate."}, {0}};
/* The scale of `down` is each expert's. */
static const rename gemma4_gguf[] = {{"*.ffn_gate_inp.scale", "ffn_gate_inp_norm.weight"},
                                     {"*.ffn_down_exps.scale", "exps_scale.weight"},
                                     {0}};
static const rename delta_hf[] = {{"mtp.", NULL}, /* layers that guess further tokens */
                                  {"*.linear_attn.in_proj_qkvz.", "mixer.qkvz."},
                                  {"*.linear_attn.in_proj_ba.", "mixer.ba."},
                                  {"*.linear_attn.in_proj_qkv.", "mixer.qkv."},
                                  {"*.linear_attn.in_proj_z.", "mixer.z."},
                                  {"*.linear_attn.in_proj_b.", "mixer.b."},
                                  {"*.linear_attn.in_proj_a.", "mixer.a."},
                                  {"*.linear_attn.", "mixer."},
                                  {0}};

/* clang-format off */
const struct wefti_model_arch wefti_model_archs[] = {
    {"llama", "llama", "LlamaForCausalLM", .traits = {0}, .gguf_rope_interleaved = true},
    {"llama", "mistral", "MistralForCausalLM", .traits = {.window = 1}, .window = 4096,
     .gguf_rope_interleaved = true},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", .traits = {.qkv_bias = 1}},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", .traits = {.qk_norm = 1}},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", .traits = {.no_rope = 1},
     .gguf_rope_interleaved = true},
    {"granite", "granite", "GraniteForCausalLM", .traits = {.scales = 1},
     .gguf_rope_interleaved = true},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", .traits = {.gemma = 1}, .window = 4096},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", .traits = {.gemma = 1, .qk_norm = 1,
     .local_rope = 1}, .window = 4096},
    {"gemma3", "gemma3", "Gemma3ForConditionalGeneration", .traits = {.gemma = 1, .qk_norm = 1,
     .local_rope = 1, .wrapped = 1}, .window = 4096},
    {"llama", "mixtral", "MixtralForCausalLM", .traits = {.window = 1, .experts = 1,
     .normalised = 1}, .gguf_rope_interleaved = true},
    {"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", .traits = {.qkv_bias = 1, .experts = 1,
     .shared_gate = 1}},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", .traits = {.qk_norm = 1, .experts = 1}},
    {"olmoe", "olmoe", "OlmoeForCausalLM", .traits = {.qk_norm_all = 1, .experts = 1}},
    {"deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM", .traits = {.latent = 1, .experts = 1,
     .deepseek = 1}, .gguf_rope_interleaved = true},
    {"deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM", .traits = {.latent = 1, .experts = 1,
     .deepseek = 1}, .gguf_rope_interleaved = true},
    {"deepseek32", "deepseek_v32", "DeepseekV32ForCausalLM", .traits = {.latent = 1, .indexer = 1,
     .experts = 1, .deepseek = 1, .predicts = 1}, .gguf_rope_interleaved = true},
    {"glm-dsa", "glm_moe_dsa", "GlmMoeDsaForCausalLM", .traits = {.latent = 1, .indexer = 1,
     .index_pairs = 1, .experts = 1, .deepseek = 1, .predicts = 1}, .gguf_rope_interleaved = true},
    {"olmo2", "olmo2", "Olmo2ForCausalLM", .traits = {.qk_norm_all = 1, .norms_after = 1}},
    {"phi3", "phi3", "Phi3ForCausalLM", .traits = {.window = 1, .fused = 1}},
    {"bert", "bert", "BertModel", .traits = {.encoder = 1}},
    {"bert", "bert", "BertForSequenceClassification", .traits = {.encoder = 1, .head = 1}},
    {"bert", "xlm-roberta", "XLMRobertaModel", .traits = {.encoder = 1}},
    {"bert", "xlm-roberta", "XLMRobertaForSequenceClassification", .traits = {.encoder = 1,
     .head = 1}},
    {"bert", "roberta", "RobertaModel", .traits = {.encoder = 1}},
    {"bert", "roberta", "RobertaForSequenceClassification", .traits = {.encoder = 1, .head = 1}},
    {"nomic-bert", "nomic_bert", "NomicBertModel", .traits = {.encoder = 1, .fused = 1}},
    {"modern-bert", "modernbert", "ModernBertModel", .traits = {.encoder = 1, .fused = 1}},
    {"gte", "new", "NewModel", .traits = {.encoder = 1, .fused = 1, .folder = 1}},
    {"gte", "new", "NewForMaskedLM", .traits = {.encoder = 1, .fused = 1, .folder = 1}},
    {"gte", "new", "NewForSequenceClassification", .traits = {.encoder = 1, .fused = 1, .folder = 1,
     .head = 1}},
    {"gte", "gte", "GteModel", .traits = {.encoder = 1, .fused = 1, .folder = 1}},
    {"seed_oss", "seed_oss", "SeedOssForCausalLM", .traits = {.bias_key = 1},
     .renames = {NULL, seed_gguf}},
    {"stablelm", "stablelm", "StableLmForCausalLM", .traits = {.layer_norm = 1, .norm_bias = 1,
     .may_head_norms = 1}, .renames = {stablelm_hf, NULL}},
    {"starcoder2", "starcoder2", "Starcoder2ForCausalLM", .traits = {.window = 1, .layer_norm = 1,
     .norm_bias = 1, .qkv_bias = 1, .o_bias = 1, .ffn_bias = 1, .ungated = 1, .gelu = 1, .tied = 1},
     .renames = {starcoder_hf, ungated_gguf}},
    {"gptneox", "gpt_neox", "GPTNeoXForCausalLM", .traits = {.layer_norm = 1, .norm_bias = 1,
     .qkv_bias = 1, .o_bias = 1, .ffn_bias = 1, .ungated = 1, .gelu_erf = 1, .parallel = 1,
     .fused = 1}, .renames = {neox_hf, ungated_gguf}},
    {"cohere2", "cohere2", "Cohere2ForCausalLM", .traits = {.pattern = 1, .turns_windowed = 1,
     .layer_norm = 1, .parallel = 1, .one_norm = 1, .pairs = 1, .tied = 1}, .window = 4096},
    {"glm4", "glm4", "Glm4ForCausalLM", .traits = {.bias_key = 1, .fused = 1, .norms_too = 1,
     .pairs = 1}, .renames = {glm4_hf, NULL}},
    {"glm4", "glm4v_text", "Glm4vTextModel", .traits = {.bias_key = 1, .fused = 1, .norms_too = 1,
     .pairs = 1}, .renames = {glm4_hf, NULL}},
    {"exaone4", "exaone4", "Exaone4ForCausalLM", .traits = {.qk_norm = 1, .norms_after = 1,
     .pattern = 1, .turns_windowed = 1, .turns_alone = 1}, .window = 4096},
    {"mistral3", "ministral3", "Ministral3ForCausalLM", .traits = {.window = 1, .scales_q = 1},
     .gguf_rope_interleaved = true},
    {"hunyuan-dense", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", .traits = {.qk_norm = 1,
     .norms_turned = 1}, .renames = {hunyuan_hf, NULL}},
    {"glm4moe", "glm4_moe", "Glm4MoeForCausalLM", .traits = {.bias_key = 1, .may_qk_norm = 1,
     .experts = 1, .deepseek = 1, .predicts = 1}, .renames = {NULL, seed_gguf}},
    {"glm4moe", "glm4v_moe_text", "Glm4vMoeTextModel", .traits = {.bias_key = 1, .may_qk_norm = 1,
     .experts = 1, .deepseek = 1}, .renames = {NULL, seed_gguf}},
    {"dots1", "dots1", "Dots1ForCausalLM", .traits = {.qk_norm = 1, .experts = 1, .deepseek = 1}},
    {"ernie4_5", "ernie4_5", "Ernie4_5ForCausalLM", .traits = {.pairs = 1}},
    {"ernie4_5-moe", "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", .traits = {.pairs = 1, .experts = 1,
     .normalised = 1, .score_bias = 1}, .renames = {ernie_hf, NULL}},
    {"minimax-m2", "minimax_m2", "MiniMaxM2ForCausalLM", .traits = {.qk_norm_all = 1, .experts = 1,
     .normalised = 1, .sigmoid = 1, .score_bias = 1}, .renames = {minimax_hf, NULL}},
    {"hunyuan-moe", "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", .traits = {.qk_norm = 1,
     .norms_turned = 1, .experts = 1, .normalised = 1}, .renames = {hunyuan_moe_hf, NULL}},
    {"afmoe", "afmoe", "AfmoeForCausalLM", .traits = {.qk_norm = 1, .norms_too = 1, .pattern = 1,
     .turns_windowed = 1, .attn_gate = 1, .experts = 1, .sigmoid = 1, .score_bias = 1,
     .normalised = 1, .mup = 1}, .renames = {afmoe_hf, NULL}},
    {"gpt-oss", "gpt_oss", "GptOssForCausalLM", .traits = {.qkv_bias = 1, .o_bias = 1, .sinks = 1,
     .pattern = 1, .every_second = 1, .experts = 1, .normalised = 1, .expert_bias = 1, .clamped = 1,
     .turned = 1, .alternate = 1, .yarn_smooth = 1}, .window = 128,
     .renames = {router_hf, oss_gguf}},
    {"llama4", "llama4_text", "Llama4ForCausalLM", .traits = {.llama4 = 1, .no_rope = 1, .pairs = 1,
     .experts = 1, .sigmoid = 1, .turned = 1}, .renames = {llama4_hf, NULL}},
    {"lfm2", "lfm2", "Lfm2ForCausalLM", .traits = {.conv = 1, .qk_norm = 1, .tied = 1},
     .renames = {lfm2_hf, lfm2_gguf}},
    {"lfm2moe", "lfm2_moe", "Lfm2MoeForCausalLM", .traits = {.conv = 1, .qk_norm = 1, .tied = 1,
     .experts = 1, .sigmoid = 1, .score_bias = 1}, .renames = {lfm2_hf, lfm2_gguf}},
    {"granitehybrid", "granitemoehybrid", "GraniteMoeHybridForCausalLM", .traits = {.mamba = 1,
     .scales = 1, .experts = 1, .normalised = 1, .granite_shared = 1, .fused = 1},
     .gguf_rope_interleaved = true, .renames = {granite_hf, NULL}},
    {"granitemoe", "granitemoe", "GraniteMoeForCausalLM", .traits = {.scales = 1, .experts = 1,
     .normalised = 1, .granite_shared = 1, .fused = 1}, .gguf_rope_interleaved = true,
     .renames = {granite_hf, NULL}},
    {"granitemoe", "granitemoeshared", "GraniteMoeSharedForCausalLM", .traits = {.scales = 1,
     .experts = 1, .normalised = 1, .granite_shared = 1, .fused = 1}, .gguf_rope_interleaved = true,
     .renames = {granite_hf, NULL}},
    {"nemotron_h", "nemotron_h", "NemotronHForCausalLM", .traits = {.mamba = 1, .letters = 1,
     .ungated = 1, .relu2 = 1, .experts = 1, .sigmoid = 1, .score_bias = 1},
     .gguf_rope_interleaved = true, .renames = {nemotron_hf, nemotron_gguf}},
    {"nemotron_h_moe", "nemotron_h", "NemotronHForCausalLM", .traits = {.mamba = 1, .letters = 1,
     .ungated = 1, .relu2 = 1, .experts = 1, .sigmoid = 1, .score_bias = 1},
     .gguf_rope_interleaved = true, .renames = {nemotron_hf, nemotron_gguf}},
    {"falcon-h1", "falcon_h1", "FalconH1ForCausalLM", .traits = {.mamba = 1, .beside = 1,
     .multipliers = 1}, .renames = {falcon_hf, falcon_gguf}},
    {"qwen3next", "qwen3_next", "Qwen3NextForCausalLM", .traits = {.delta = 1, .gate_in_q = 1,
     .attn_gate = 1, .qk_norm = 1, .plus_one = 1, .experts = 1, .shared_gate = 1, .normalised = 1},
     .renames = {delta_hf, seed_gguf}},
    {"qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM", .traits = {.delta = 1, .gate_in_q = 1,
     .attn_gate = 1, .qk_norm = 1, .plus_one = 1, .tiled_heads = 1},
     .renames = {delta_hf, seed_gguf}},
    {"qwen35moe", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", .traits = {.delta = 1,
     .gate_in_q = 1, .attn_gate = 1, .qk_norm = 1, .plus_one = 1, .experts = 1, .shared_gate = 1,
     .normalised = 1, .tiled_heads = 1}, .renames = {delta_hf, seed_gguf}},
    {"gemma4", "gemma4_text", "Gemma4ForCausalLM", .traits = {.qk_norm = 1, .local_rope = 1,
     .norms_too = 1, .pattern = 1, .gelu = 1, .tied = 1, .mup = 1, .experts = 1, .normalised = 1,
     .heads_by_kind = 1, .unscaled = 1, .plain_v_norm = 1, .shares_kv = 1, .layer_input = 1,
     .layer_scale = 1, .ffn_beside = 1}, .window = 512, .renames = {gemma4_hf, gemma4_gguf}},
};

const struct wefti_model_wrapper wefti_model_wrappers[] = {
    {"llama4", "Llama4ForConditionalGeneration", "llama4_text"},
    {"mistral3", "Mistral3ForConditionalGeneration", "mistral"},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text"},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text"},
    {"glm4v", "Glm4vForConditionalGeneration", "glm4v_text"},
    {"glm4v_moe", "Glm4vMoeForConditionalGeneration", "glm4v_moe_text"},
    {"lfm2_vl", "Lfm2VlForConditionalGeneration", "lfm2"},
    {"cohere2_vision", "Cohere2VisionForConditionalGeneration", "cohere2"},
    {"gemma4", "Gemma4ForConditionalGeneration", "gemma4_text"},
    {"aya_vision", "AyaVisionForConditionalGeneration", "cohere2"},
};
/* clang-format on */
const size_t wefti_model_n_wrappers = sizeof wefti_model_wrappers / sizeof wefti_model_wrappers[0];
const size_t wefti_model_n_archs = sizeof wefti_model_archs / sizeof wefti_model_archs[0];
