#!/usr/bin/env python3
"""What models that people run need: the table of docs/models.md, as `weft inspect --plan` computes it.

    bench/models.py [--bin DIR] [NAME ...]

Each row is a public config.json, as far as sizes follow from it: the model is opened for its shapes alone, so nothing is
downloaded. Weights are those of the published types and of --dtype q4; a token's reads, of experts those that it takes;
KV cache in bf16 of one sequence, in whole blocks. NAMEs (parts of them) choose rows.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONTEXTS = (4096, 32768, 131072)
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def sizes(arch, kind, hidden, layers, heads, kv_heads, head_dim, ffn, vocab, context, **more):
    return {"architectures": [arch], "model_type": kind, "hidden_size": hidden, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim, "intermediate_size": ffn,
            "vocab_size": vocab, "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
            "tie_word_embeddings": False, "dtype": "bfloat16", **more}


def yarn(factor, original, **more):
    return {"rope_type": "yarn", "type": "yarn", "factor": factor, "original_max_position_embeddings": original, **more}


def llama3(factor, low=1.0, high=4.0):
    return {"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
            "original_max_position_embeddings": 8192}


def every(n, n_layers, kind, other):
    """The names of layers, of which each n-th is of the other kind."""
    return [other if (i + 1) % n == 0 else kind for i in range(n_layers)]


def deepseek(arch, kind, hidden, layers, heads, ffn, vocab, q_lora, experts, used, shared, moe_ffn, dense, **more):
    return sizes(arch, kind, hidden, layers, heads, heads, None, ffn, vocab, 163840, q_lora_rank=q_lora, kv_lora_rank=512,
                 qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=experts, num_experts_per_tok=used,
                 n_shared_experts=shared, moe_intermediate_size=moe_ffn, first_k_dense_replace=dense, moe_layer_freq=1,
                 **more)


V3 = {"n_group": 8, "topk_group": 4, "norm_topk_prob": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
      "routed_scaling_factor": 2.5, "quantization_config": FP8, "rope_scaling": yarn(40, 4096, mscale=1.0, mscale_all_dim=1.0)}


def gemma4(hidden, layers, heads, kv_heads, ffn, every_nth, **more):
    config = sizes("Gemma4ForCausalLM", "gemma4_text", hidden, layers, heads, kv_heads, 256, ffn, 262144, 131072,
                   global_head_dim=512, hidden_size_per_layer_input=0, layer_types=every(every_nth, layers,
                   "sliding_attention", "full_attention"), **{"sliding_window": 512})
    del config["rope_theta"], config["tie_word_embeddings"]
    return config | more


def gpt_oss(layers, experts):
    return sizes("GptOssForCausalLM", "gpt_oss", 2880, layers, 64, 8, 64, 2880, 201088, 131072, attention_bias=True,
                 num_local_experts=experts, num_experts_per_tok=4, sliding_window=128, swiglu_limit=7.0,
                 rope_scaling=yarn(32, 4096, truncate=False), quantization_config={"quant_method": "mxfp4"},
                 layer_types=every(2, layers, "sliding_attention", "full_attention"))


def qwen_next(arch, kind, hidden, layers, heads, kv_heads, ffn, vocab, key_heads, value_heads, **more):
    return sizes(arch, kind, hidden, layers, heads, kv_heads, 256, ffn, vocab, 262144, full_attention_interval=4,
                 partial_rotary_factor=0.25, linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_value_head_dim=128,
                 linear_num_key_heads=key_heads, linear_num_value_heads=value_heads, **more)


def granite4(hidden, heads, kv_heads, experts, used, ffn, shared, ssm_heads):
    return sizes("GraniteMoeHybridForCausalLM", "granitemoehybrid", hidden, 40, heads, kv_heads, None, ffn, 100352, 131072,
                 num_local_experts=experts, num_experts_per_tok=used, shared_intermediate_size=shared, mamba_n_heads=ssm_heads,
                 mamba_d_head=64, mamba_n_groups=1, mamba_d_state=128, mamba_d_conv=4, mamba_expand=2, mamba_conv_bias=True,
                 position_embedding_type="nope", embedding_multiplier=12, attention_multiplier=0.0078125,
                 residual_multiplier=0.22, logits_scaling=8, tie_word_embeddings=True,
                 layer_types=["attention" if i in (5, 15, 25, 35) else "mamba" for i in range(40)])


def nemotron(hidden, pattern, kv_heads, ffn, context, ssm_heads, **more):
    return sizes("NemotronHForCausalLM", "nemotron_h", hidden, len(pattern), 32, kv_heads, 128, ffn, 131072, context,
                 hybrid_override_pattern=pattern, mamba_num_heads=ssm_heads, mamba_head_dim=64, n_groups=8, ssm_state_size=128,
                 conv_kernel=4, mlp_hidden_act="relu2", layer_norm_epsilon=1e-5, **more)


def llama4(experts, step, context, **more):
    return sizes("Llama4ForCausalLM", "llama4_text", 5120, 48, 40, 8, 128, 8192, 202048, context, intermediate_size_mlp=16384,
                 attention_chunk_size=8192, num_local_experts=experts, num_experts_per_tok=1, interleave_moe_layer_step=step,
                 use_qk_norm=step == 1, no_rope_layers=[int((i + 1) % 4 != 0) for i in range(48)],
                 attn_temperature_tuning=True, floor_scale=8192, attn_scale=0.1, **more)


MODELS = (
    ("Llama", "Llama 3.1 8B", sizes("LlamaForCausalLM", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 131072,
                                    rope_scaling=llama3(8.0))),
    ("Llama", "Llama 3.3 70B", sizes("LlamaForCausalLM", "llama", 8192, 80, 64, 8, 128, 28672, 128256, 131072,
                                     rope_scaling=llama3(8.0))),
    ("Mistral", "Mistral 7B v0.1", sizes("MistralForCausalLM", "mistral", 4096, 32, 32, 8, 128, 14336, 32000, 32768,
                                         sliding_window=4096)),
    ("Mistral", "Mistral Small 24B", sizes("MistralForCausalLM", "mistral", 5120, 40, 32, 8, 128, 32768, 131072, 32768,
                                           sliding_window=None)),
    ("Qwen2", "Qwen2.5 7B", sizes("Qwen2ForCausalLM", "qwen2", 3584, 28, 28, 4, None, 18944, 152064, 32768)),
    ("Qwen3", "Qwen3 8B", sizes("Qwen3ForCausalLM", "qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 40960)),
    ("Qwen3", "Qwen3 32B", sizes("Qwen3ForCausalLM", "qwen3", 5120, 64, 64, 8, 128, 25600, 151936, 40960)),
    ("SmolLM3", "SmolLM3 3B", sizes("SmolLM3ForCausalLM", "smollm3", 2048, 36, 16, 4, None, 11008, 128256, 65536,
                                    tie_word_embeddings=True)),
    ("Granite 3", "Granite 3.3 8B", sizes("GraniteForCausalLM", "granite", 4096, 40, 32, 8, None, 12800, 49159, 131072,
                                          embedding_multiplier=12, attention_multiplier=0.0078125, residual_multiplier=0.22,
                                          logits_scaling=16, tie_word_embeddings=True)),
    ("OLMo 2", "OLMo 2 7B", sizes("Olmo2ForCausalLM", "olmo2", 4096, 32, 32, 32, None, 11008, 100352, 4096)),
    ("Phi-3, Phi-4", "Phi-4 14B", sizes("Phi3ForCausalLM", "phi3", 5120, 40, 40, 10, None, 17920, 100352, 16384)),
    ("Gemma 2", "Gemma 2 9B", sizes("Gemma2ForCausalLM", "gemma2", 3584, 42, 16, 8, 256, 14336, 256000, 8192,
                                    sliding_window=4096, tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh")),
    ("Gemma 3", "Gemma 3 12B", sizes("Gemma3ForCausalLM", "gemma3_text", 3840, 48, 16, 8, 256, 15360, 262208, 131072,
                                     sliding_window=1024, tie_word_embeddings=True)),
    ("Gemma 3", "Gemma 3 27B", sizes("Gemma3ForCausalLM", "gemma3_text", 5376, 62, 32, 16, 128, 21504, 262208, 131072,
                                     sliding_window=1024, tie_word_embeddings=True, query_pre_attn_scalar=168)),
    *(("Gemma 4", name, gemma4(*numbers, **more)) for name, numbers, more in (
        ("Gemma 4 E2B", (1536, 35, 8, 1, 6144, 5), {"hidden_size_per_layer_input": 256, "num_kv_shared_layers": 20,
                                                    "use_double_wide_mlp": True}),
        ("Gemma 4 E4B", (2560, 42, 8, 2, 10240, 6), {"hidden_size_per_layer_input": 256, "num_kv_shared_layers": 18}),
        ("Gemma 4 26B-A4B", (2816, 30, 16, 8, 2112, 6), {"sliding_window": 1024, "num_global_key_value_heads": 2,
            "attention_k_eq_v": True, "max_position_embeddings": 262144, "enable_moe_block": True, "num_experts": 128,
            "top_k_experts": 8, "moe_intermediate_size": 704}),
        ("Gemma 4 31B", (5376, 60, 32, 16, 21504, 6), {"sliding_window": 1024, "num_global_key_value_heads": 4,
            "attention_k_eq_v": True, "max_position_embeddings": 262144}))),
    ("Mixtral", "Mixtral 8x7B", sizes("MixtralForCausalLM", "mixtral", 4096, 32, 32, 8, None, 14336, 32000, 32768,
                                      num_local_experts=8, num_experts_per_tok=2)),
    ("Qwen2-MoE", "Qwen1.5-MoE-A2.7B", sizes("Qwen2MoeForCausalLM", "qwen2_moe", 2048, 24, 16, 16, None, 5632, 151936, 8192,
                                             num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408,
                                             shared_expert_intermediate_size=5632, decoder_sparse_step=1)),
    ("Qwen3-MoE", "Qwen3 30B-A3B", sizes("Qwen3MoeForCausalLM", "qwen3_moe", 2048, 48, 32, 4, 128, 6144, 151936, 40960,
                                         num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768,
                                         norm_topk_prob=True, decoder_sparse_step=1)),
    ("Qwen3-MoE", "Qwen3 235B-A22B", sizes("Qwen3MoeForCausalLM", "qwen3_moe", 4096, 94, 64, 4, 128, 12288, 151936, 40960,
                                           num_experts=128, num_experts_per_tok=8, moe_intermediate_size=1536,
                                           norm_topk_prob=True, decoder_sparse_step=1)),
    ("OLMoE", "OLMoE 1B-7B", sizes("OlmoeForCausalLM", "olmoe", 2048, 16, 16, 16, None, 1024, 50304, 4096, num_experts=64,
                                   num_experts_per_tok=8)),
    ("DeepSeek-V2", "DeepSeek-V2-Lite", deepseek("DeepseekV2ForCausalLM", "deepseek_v2", 2048, 27, 16, 10944, 102400, None, 64,
                                                 6, 2, 1408, 1, rope_scaling=yarn(40, 4096, mscale=0.707, mscale_all_dim=0.707),
                                                 topk_method="greedy", scoring_func="softmax")),
    ("DeepSeek-V3", "DeepSeek-V3, R1", deepseek("DeepseekV3ForCausalLM", "deepseek_v3", 7168, 61, 128, 18432, 129280, 1536,
                                                256, 8, 1, 2048, 3, num_nextn_predict_layers=1, **V3)),
    ("DeepSeek-V3.2", "DeepSeek-V3.2", deepseek("DeepseekV32ForCausalLM", "deepseek_v32", 7168, 61, 128, 18432, 129280, 1536,
                                                256, 8, 1, 2048, 3, num_nextn_predict_layers=1, index_n_heads=64,
                                                index_head_dim=128, index_topk=2048, **V3)),
    ("GLM-5", "GLM-5", deepseek("GlmMoeDsaForCausalLM", "glm_moe_dsa", 6144, 78, 64, 12288, 154880, 2048, 256, 8, 1, 2048, 3,
                                num_nextn_predict_layers=1, index_n_heads=32, index_head_dim=128, index_topk=2048,
                                n_group=1, topk_group=1) |
     {"qk_nope_head_dim": 192, "v_head_dim": 256, "max_position_embeddings": 202752}),
    ("gpt-oss", "gpt-oss-20b", gpt_oss(24, 32)),
    ("gpt-oss", "gpt-oss-120b", gpt_oss(36, 128)),
    ("GLM-4", "GLM-4-9B-0414", sizes("Glm4ForCausalLM", "glm4", 4096, 40, 32, 2, 128, 13696, 151552, 32768,
                                     partial_rotary_factor=0.5, attention_bias=True)),
    ("GLM-4.5, 4.6", "GLM-4.5-Air", sizes("Glm4MoeForCausalLM", "glm4_moe", 4096, 46, 96, 8, 128, 10944, 151552, 131072,
                                          attention_bias=True, partial_rotary_factor=0.5, n_routed_experts=128,
                                          num_experts_per_tok=8, n_shared_experts=1, moe_intermediate_size=1408,
                                          first_k_dense_replace=1, norm_topk_prob=True, n_group=1, topk_group=1,
                                          num_nextn_predict_layers=1)),
    ("Llama 4", "Llama 4 Scout", llama4(16, 1, 10485760, rope_scaling=llama3(16.0, high=1.0))),
    ("Llama 4", "Llama 4 Maverick", llama4(128, 2, 1048576)),
    ("Qwen3-Next", "Qwen3-Next 80B-A3B", qwen_next("Qwen3NextForCausalLM", "qwen3_next", 2048, 48, 16, 2, 5120, 151936, 16, 32,
                                                   num_experts=512, num_experts_per_tok=10, moe_intermediate_size=512,
                                                   shared_expert_intermediate_size=512, norm_topk_prob=True,
                                                   decoder_sparse_step=1)),
    ("Qwen3.5", "Qwen3.5 27B", qwen_next("Qwen3_5ForCausalLM", "qwen3_5_text", 5120, 64, 24, 4, 17408, 248320, 16, 48)),
    ("Qwen3.5-MoE", "Qwen3.5 35B-A3B", qwen_next("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", 2048, 40, 16, 2, 512, 248320, 16,
                                                 32, num_experts=256, num_experts_per_tok=8, moe_intermediate_size=512,
                                                 shared_expert_intermediate_size=512)),
    ("Ministral 3", "Ministral 3 8B", sizes("Ministral3ForCausalLM", "ministral3", 4096, 34, 32, 8, 128, 14336, 131072, 262144,
                                            rope_parameters=yarn(16, 16384, rope_theta=1e6, mscale=1.0, mscale_all_dim=1.0,
                                                                 llama_4_scaling_beta=0.1))),
    ("Granite 4", "Granite 4.0 H Tiny", granite4(1536, 12, 4, 64, 6, 512, 1024, 48)),
    ("Granite 4", "Granite 4.0 H Small", granite4(4096, 32, 8, 72, 10, 768, 1536, 128)),
    ("Nemotron-H", "Nemotron-H 8B", nemotron(4096, "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", 8, 21504, 8192,
                                             128)),
    ("Nemotron 3", "Nemotron 3 Nano 30B-A3B",
     nemotron(2688, "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", 2, 1856, 262144, 64, n_routed_experts=128,
              num_experts_per_tok=6, n_shared_experts=1, moe_intermediate_size=1856, moe_shared_expert_intermediate_size=3712,
              norm_topk_prob=True, routed_scaling_factor=2.5, n_group=1, topk_group=1)),
    ("Falcon-H1", "Falcon-H1 7B", sizes("FalconH1ForCausalLM", "falcon_h1", 3072, 44, 12, 2, 128, 12288, 130048, 262144,
                                        mamba_d_ssm=3072, mamba_n_heads=24, mamba_d_head=128, mamba_n_groups=1,
                                        mamba_d_state=256, mamba_d_conv=4, mamba_expand=2, mamba_conv_bias=True,
                                        mamba_rms_norm=False)),
    ("LFM2", "LFM2 1.2B", sizes("Lfm2ForCausalLM", "lfm2", 2048, 16, 32, 8, None, 8192, 65536, 128000, conv_L_cache=3,
                                norm_eps=1e-5, block_auto_adjust_ff_dim=False, tie_word_embeddings=True,
                                layer_types=["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)])),
    ("LFM2-MoE", "LFM2 8B-A1B", sizes("Lfm2MoeForCausalLM", "lfm2_moe", 2048, 24, 32, 8, None, 7168, 65536, 128000,
                                      conv_L_cache=3, norm_eps=1e-5, num_experts=32, num_experts_per_tok=4,
                                      moe_intermediate_size=1792, num_dense_layers=2, use_expert_bias=True,
                                      norm_topk_prob=True, tie_word_embeddings=True,
                                      layer_types=["full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv"
                                                   for i in range(24)])),
    ("ERNIE 4.5", "ERNIE 4.5 21B-A3B", sizes("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", 2560, 28, 20, 4, 128, 12288, 103424,
                                             131072, moe_num_experts=64, moe_k=6, moe_num_shared_experts=2,
                                             moe_intermediate_size=1536, moe_layer_start_index=1, moe_layer_end_index=27,
                                             moe_layer_interval=1, tie_word_embeddings=True)),
    ("MiniMax-M2", "MiniMax-M2", sizes("MiniMaxM2ForCausalLM", "minimax_m2", 3072, 62, 48, 8, 128, 1536, 200064, 196608,
                                       rotary_dim=64, num_local_experts=256, num_experts_per_tok=8, use_qk_norm=True,
                                       qk_norm_type="per_layer", use_routing_bias=True, scoring_func="sigmoid",
                                       quantization_config=FP8)),
    ("Hunyuan", "Hunyuan-A13B", sizes("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", 4096, 32, 32, 8, 128, 3072, 128167, 32768,
                                      num_experts=64, moe_topk=[8] * 32, moe_intermediate_size=[3072] * 32,
                                      num_shared_expert=[1] * 32, use_mixed_mlp_moe=True, use_qk_norm=True,
                                      tie_word_embeddings=True)),
    ("EXAONE 4", "EXAONE 4.0 32B", sizes("Exaone4ForCausalLM", "exaone4", 5120, 64, 40, 8, 128, 27392, 102400, 131072,
                                         sliding_window=4096, sliding_window_pattern="LLLG", rope_scaling=llama3(16.0),
                                         layer_types=every(4, 64, "sliding_attention", "full_attention"))),
    ("Command", "Command R7B", sizes("Cohere2ForCausalLM", "cohere2", 4096, 32, 32, 8, 128, 14336, 256000, 132096,
                                     sliding_window=4096, sliding_window_pattern=4, logit_scale=0.25, layer_norm_eps=1e-5,
                                     tie_word_embeddings=True,
                                     layer_types=every(4, 32, "sliding_attention", "full_attention"))),
    ("StarCoder2", "StarCoder2 7B", sizes("Starcoder2ForCausalLM", "starcoder2", 4608, 32, 36, 4, None, 18432, 49152, 16384,
                                          sliding_window=4096, norm_epsilon=1e-5, use_bias=True, tie_word_embeddings=True,
                                          hidden_act="gelu_pytorch_tanh")),
    ("GPT-NeoX", "GPT-NeoX 20B", sizes("GPTNeoXForCausalLM", "gpt_neox", 6144, 44, 64, 64, None, 24576, 50432, 2048,
                                       rotary_pct=0.25, layer_norm_eps=1e-5, hidden_act="gelu", rotary_emb_base=10000,
                                       use_parallel_residual=True, dtype="float16")),
    ("StableLM 2", "StableLM 2 1.6B", sizes("StableLmForCausalLM", "stablelm", 2048, 24, 32, 32, None, 5632, 100352, 4096,
                                            partial_rotary_factor=0.25, use_qkv_bias=True, layer_norm_eps=1e-5)),
    ("Seed-OSS", "Seed-OSS 36B", sizes("SeedOssForCausalLM", "seed_oss", 5120, 64, 80, 8, 128, 27648, 155136, 524288,
                                       attention_bias=True)),
    ("Trinity", "Trinity Mini 26B", sizes("AfmoeForCausalLM", "afmoe", 2048, 32, 32, 4, 128, 6144, 200192, 131072,
                                          num_dense_layers=2, num_experts=128, num_experts_per_tok=8, num_shared_experts=1,
                                          moe_intermediate_size=1024, score_func="sigmoid", route_norm=True,
                                          route_scale=2.826, global_attn_every_n_layers=4, sliding_window=2048,
                                          mup_enabled=True,
                                          layer_types=every(4, 32, "sliding_attention", "full_attention"))),
    ("dots.llm1", "dots.llm1", sizes("Dots1ForCausalLM", "dots1", 4096, 62, 32, 32, 128, 10944, 152064, 32768,
                                     n_routed_experts=128, num_experts_per_tok=6, n_shared_experts=2,
                                     moe_intermediate_size=1408, first_k_dense_replace=1, norm_topk_prob=True,
                                     scoring_func="sigmoid", topk_method="noaux_tc", routed_scaling_factor=2.5, n_group=1,
                                     topk_group=1)),
)


def plan(args, config, *options):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump({key: value for key, value in config.items() if value is not None}, f)
        done = subprocess.run([os.path.join(args.bin, "weft"), "inspect", "--plan", folder, "--json", "--bandwidth", "1",
                               "--memory", "900000GiB", "--max-num-seqs", "1", "--workers", "1", *options],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{config['architectures'][0]}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def gib(n_bytes):
    return f"{n_bytes / 2**30:.3g}" if n_bytes < 100 * 2**30 else f"{n_bytes / 2**30:.0f}"


def row(args, family, name, config):
    full, quantised = plan(args, config), plan(args, config, "--dtype", "q4")
    n_elems = {context["tokens"]: context for context in full["contexts"]}
    kv = [gib(n_elems[n]["kv_bytes"]) if n in n_elems else "" for n in CONTEXTS]
    state = full["contexts"][0]["state_bytes"]
    types = [key for key, n in full["weights"].items() if n > full["weight_bytes"] / 4]
    return [family, name, f"{gib(full['weight_bytes'])} ({', '.join(types)})", gib(quantised["weight_bytes"]),
            gib(quantised["step_weight_bytes"]), *kv, f"{state / 2**20:.3g}" if state else "", str(full["context"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    args = parser.parse_args()
    print("| family | model | weights, GiB | in q4 | read per token, q4 | KV cache of 4k, GiB | 32k | 128k | states, MiB | "
          "longest |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for family, name, config in MODELS:
        if args.names and not any(part.lower() in name.lower() for part in args.names):
            continue
        print("| " + " | ".join(row(args, family, name, config)) + " |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
