#!/usr/bin/env python3
"""models/fable-6m as llama.cpp would convert it: one GGUF file with matrices in Q8_0.

    make_fable_q8_0.py MODEL_DIR OUT.gguf

The build makes it, so that the weights are in the repository once.
"""

import array
import hashlib
import json
import os
import struct
import sys

from gguf_values import ARRAY, BOOL, FLOAT, I32, STRING, U32, text, value_of

ALIGNMENT, BLOCK = 32, 32
F32, Q8_0 = 0, 8
SHA256 = "2f64c9fbc9fe0be90ceb8701dcf901f776e7a0e2cf80ad878350567569bf05c1"
LAYER = {"attn_k": "self_attn.k_proj", "attn_norm": "input_layernorm", "attn_output": "self_attn.o_proj",
         "attn_q": "self_attn.q_proj", "attn_v": "self_attn.v_proj", "ffn_down": "mlp.down_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.up_proj"}


def aligned(data):
    return data + bytes(-len(data) % ALIGNMENT)


def keys_of(model):
    """Metadata of the configuration and the tokenizer, in the order of llama.cpp's converter."""
    config, tokenizer, more = (json.load(open(os.path.join(model, f"{name}.json"), encoding="utf-8"))
                               for name in ("config", "tokenizer", "tokenizer_config"))
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted({**tokenizer["model"]["vocab"], **special}.items(), key=lambda item: item[1])
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    numbers = [("context_length", "max_position_embeddings"), ("embedding_length", "hidden_size"),
               ("block_count", "num_hidden_layers"), ("feed_forward_length", "intermediate_size"),
               ("attention.head_count", "num_attention_heads"),
               ("attention.layer_norm_rms_epsilon", "rms_norm_eps"), ("rope.freq_base", "rope_theta"),
               ("vocab_size", "vocab_size"), ("attention.head_count_kv", "num_key_value_heads"),
               ("rope.dimension_count", "head_dim"), ("attention.key_length", "head_dim"),
               ("attention.value_length", "head_dim")]
    return [("general.architecture", STRING, "llama"), ("general.name", STRING, os.path.basename(model)),
            *((f"llama.{key}", FLOAT if isinstance(config[name], float) else U32, config[name])
              for key, name in numbers),
            ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "llama-bpe"),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, [token for token, _ in tokens])),
            ("tokenizer.ggml.token_type", ARRAY, (I32, [3 if token in special else 1 for token, _ in tokens])),
            ("tokenizer.ggml.merges", ARRAY, (STRING, merges)),
            ("tokenizer.ggml.bos_token_id", U32, config["bos_token_id"]),
            ("tokenizer.ggml.eos_token_id", U32, config["eos_token_id"][0]),
            ("tokenizer.ggml.eot_token_id", U32, config["eos_token_id"][1]),
            ("tokenizer.ggml.padding_token_id", U32, config["pad_token_id"]),
            ("tokenizer.ggml.add_bos_token", BOOL, True),
            ("tokenizer.chat_template", STRING, more["chat_template"]),
            ("general.quantization_version", U32, 2), ("general.file_type", U32, 7)], config


def tensors_of(path):
    """Name: shape and values, from bf16."""
    data = open(path, "rb").read()
    n_header, = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8:8 + n_header]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + n_header + offset for offset in entry["data_offsets"])
        wide = bytearray(2 * (end - begin))
        wide[2::4], wide[3::4] = data[begin:end:2], data[begin + 1:end:2]
        tensors[name] = entry["shape"], array.array("f", bytes(wide))
    return tensors


def interleaved(shape, values, n_heads):
    """Rows of queries and keys as GGUF has them: halves of a head that rotate together stand side by side."""
    n_rows, n_cols = shape
    half = n_rows // n_heads // 2
    rows = array.array("f")
    for head in range(n_heads):
        for row in range(half):
            for at in (2 * half * head + row, 2 * half * head + half + row):
                rows += values[at * n_cols:(at + 1) * n_cols]
    return rows


def quantised(values):
    """Blocks of 32: the f16 of the greatest magnitude's 127th part, int8 values rounded half away from zero.
    Every f32 times an f32 is exact in Python's floats, and array rounds it as C does."""
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        block = values[at:at + BLOCK]
        scale, = array.array("f", [max(max(block), -min(block)) / 127])
        inverse, = array.array("f", [1 / scale if scale else 0])
        products = array.array("f", [x * inverse for x in block])
        out += struct.pack("<e", scale)
        out += array.array("b", [int(x + 0.5) if x >= 0 else -int(0.5 - x) for x in products]).tobytes()
    return bytes(out)


def main():
    model, out = os.path.normpath(sys.argv[1]), sys.argv[2]
    keys, config = keys_of(model)
    tensors = tensors_of(os.path.join(model, "model.safetensors"))
    names = {"output.weight": "lm_head.weight", "output_norm.weight": "model.norm.weight",
             "token_embd.weight": "model.embed_tokens.weight",
             **{f"blk.{i}.{to}.weight": f"model.layers.{i}.{name}.weight"
                for i in range(config["num_hidden_layers"]) for to, name in LAYER.items()}}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    header = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(names), len(keys)))
    for name, kind, value in keys:
        header += text(name) + struct.pack("<I", kind) + value_of(kind, value)
    body = bytearray()
    for to, name in names.items():
        shape, values = tensors[name]
        n_heads = heads.get(to.split(".")[-2])
        if n_heads:
            values = interleaved(shape, values, n_heads)
        kind = Q8_0 if len(shape) == 2 else F32
        header += text(to) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(body))
        body += aligned(quantised(values) if kind == Q8_0 else values.tobytes())
    data = aligned(bytes(header)) + body
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise SystemExit(f"{out} is not what the goldens were made from: has {model} changed?")
    with open(out, "wb") as file:
        file.write(data)


if __name__ == "__main__":
    main()
