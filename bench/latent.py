#!/usr/bin/env python3
"""The cost of latent attention: its share of a decoding step, by the length of the context.

    bench/latent.py [--layers 3] [--contexts 512,4096] [--batch 1,4] [--reps 5] [--bin build/bin] [-- bench options]

Makes a model of DeepSeek-V2-Lite's shape in a temporary folder: random BF16 weights, so many of its layers, each with
a dense feed-forward part about as large as the experts of one token; runs `weft bench --profile` on it and prints a
line per context and batch. Shares are of the time that threads were busy, and the bytes of latents beside all that a
step reads are counted, not timed.
"""

import argparse
import json
import os
import random
import struct
import subprocess
import tempfile

import behind

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HIDDEN, HEADS, NOPE, ROPE, VALUE, LORA, FFN, VOCAB = 2048, 16, 128, 64, 128, 512, 10944, 32000
PATTERN = 1 << 16  # weights before they repeat


def shapes(n_layers):
    yield "model.embed_tokens", [VOCAB, HIDDEN]
    yield "model.norm", [HIDDEN]
    yield "lm_head", [VOCAB, HIDDEN]
    for i in range(n_layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm", [HIDDEN]
        yield layer + "post_attention_layernorm", [HIDDEN]
        yield layer + "self_attn.q_proj", [HEADS * (NOPE + ROPE), HIDDEN]
        yield layer + "self_attn.kv_a_proj_with_mqa", [LORA + ROPE, HIDDEN]
        yield layer + "self_attn.kv_a_layernorm", [LORA]
        yield layer + "self_attn.kv_b_proj", [HEADS * (NOPE + VALUE), LORA]
        yield layer + "self_attn.o_proj", [HIDDEN, HEADS * VALUE]
        yield layer + "mlp.gate_proj", [FFN, HIDDEN]
        yield layer + "mlp.up_proj", [FFN, HIDDEN]
        yield layer + "mlp.down_proj", [HIDDEN, FFN]


def make_model(folder, n_layers):
    config = {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": HIDDEN,
              "num_hidden_layers": n_layers, "num_attention_heads": HEADS, "intermediate_size": FFN,
              "vocab_size": VOCAB, "max_position_embeddings": 163840, "kv_lora_rank": LORA, "q_lora_rank": None,
              "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE, "v_head_dim": VALUE, "rms_norm_eps": 1e-6,
              "first_k_dense_replace": n_layers, "n_routed_experts": 64, "num_experts_per_tok": 6,
              "moe_intermediate_size": 1408, "n_shared_experts": 2, "topk_method": "greedy"}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    rng = random.Random(1)
    bits = [struct.unpack("<I", struct.pack("<f", rng.gauss(0, 0.02)))[0] >> 16 for _ in range(PATTERN)]
    pattern = struct.pack(f"<{PATTERN}H", *bits)
    header, at = {}, 0
    for name, shape in shapes(n_layers):
        n_bytes = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name + ".weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n_bytes]}
        at += n_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for tensor in header.values():
            begin, left = tensor["data_offsets"]
            left -= begin
            source = pattern if len(tensor["shape"]) > 1 else b"\x80\x3f" * PATTERN
            while left > 0:
                left -= f.write(source[:left])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--contexts", default="512,4096")
    parser.add_argument("--batch", default="1,4")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    args = behind.parse_args(parser, "weft bench")
    with tempfile.TemporaryDirectory() as folder:
        make_model(folder, args.layers)
        print("| context | batch | step, ms | attention of it | latents of all bytes read | attention, GFLOP/s |")
        print("|--:|--:|--:|--:|--:|--:|")
        for context in args.contexts.split(","):
            done = subprocess.run([os.path.join(args.bin, "weft"), "bench", folder, "--prompt", "16", "--gen", "32",
                                   "--batch", args.batch, "--context", context, "--reps", str(args.reps), "--profile",
                                   "--json", *args.options], check=True, stdout=subprocess.PIPE)
            for phase in json.loads(done.stdout)["profile"]:
                if phase["phase"] != "decode":
                    continue
                ops = {op["operator"]: op for op in phase["operators"]}
                busy = sum(op["ms"] for name, op in ops.items() if name not in ("wait", "outside", "gap"))
                read = {name: op["gb_per_s"] * op["ms"] for name, op in ops.items() if "gb_per_s" in op}
                attention = ops["attention"]
                print(f"| {context} | {phase.get('batch', phase.get('tokens'))} | {phase['ms_per_step']:.1f} | "
                      f"{attention['ms'] / busy:.1%} | {read['attention'] / sum(read.values()):.1%} | "
                      f"{attention['gflop_per_s']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
