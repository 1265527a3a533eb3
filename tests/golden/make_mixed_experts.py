#!/usr/bin/env python3
"""A small GGUF model whose experts have gates of Q8_0 and the rest of Q4_1 and Q8_0, of random bits.

usage: python3 make_mixed_experts.py OUT.gguf      (tests/data/formats/mixed_experts.gguf was made so)

Both types meet 8-bit activations, of which those of Q4_1 are longer rows; nothing else in the model
is as wide, so that nothing else makes room for them.
"""
import random
import struct
import sys

HIDDEN, HEADS, HEAD_DIM, EXPERTS, USED, FFN, VOCAB = 256, 2, 32, 4, 2, 32, 64
F32, Q4_1, Q8_0 = 0, 3, 8
rng = random.Random(4)


def half(x):
    return struct.pack("<e", x)


def blocks(dtype, n, scale):
    if dtype == F32:
        return b"".join(struct.pack("<f", 1 + scale * rng.gauss(0, 1)) for _ in range(n))
    if dtype == Q8_0:
        return b"".join(half(scale / 127) + rng.randbytes(32) for _ in range(n // 32))
    return b"".join(half(scale / 8) + half(-scale) + rng.randbytes(16) for _ in range(n // 32))


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def value(x):
    if isinstance(x, str):
        return struct.pack("<I", 8) + string(x)
    return struct.pack("<If", 6, x) if isinstance(x, float) else struct.pack("<II", 4, x)


KEYS = {
    "general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 512,
    "llama.embedding_length": HIDDEN, "llama.feed_forward_length": FFN, "llama.vocab_size": VOCAB,
    "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": 1,
    "llama.attention.key_length": HEAD_DIM, "llama.attention.value_length": HEAD_DIM,
    "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
    "llama.expert_count": EXPERTS, "llama.expert_used_count": USED,
}
TENSORS = [  # name, type, dimensions as in the file (columns first)
    ("token_embd.weight", Q8_0, (HIDDEN, VOCAB)), ("output_norm.weight", F32, (HIDDEN,)),
    ("blk.0.attn_norm.weight", F32, (HIDDEN,)), ("blk.0.ffn_norm.weight", F32, (HIDDEN,)),
    ("blk.0.attn_q.weight", Q8_0, (HIDDEN, HEADS * HEAD_DIM)), ("blk.0.attn_k.weight", Q8_0, (HIDDEN, HEAD_DIM)),
    ("blk.0.attn_v.weight", Q8_0, (HIDDEN, HEAD_DIM)), ("blk.0.attn_output.weight", Q8_0, (HEADS * HEAD_DIM, HIDDEN)),
    ("blk.0.ffn_gate_inp.weight", F32, (HIDDEN, EXPERTS)), ("blk.0.ffn_gate_exps.weight", Q8_0, (HIDDEN, FFN, EXPERTS)),
    ("blk.0.ffn_up_exps.weight", Q4_1, (HIDDEN, FFN, EXPERTS)), ("blk.0.ffn_down_exps.weight", Q8_0, (FFN, HIDDEN, EXPERTS)),
]


def main(out):
    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(TENSORS), len(KEYS)), b""
    for key, x in KEYS.items():
        head += string(key) + value(x)
    for name, dtype, dims in TENSORS:
        n = 1
        for d in dims:
            n *= d
        head += string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        head += struct.pack("<IQ", dtype, len(data))
        data += blocks(dtype, n, 0.3)
        data += b"\0" * (-len(data) % 32)
    with open(out, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + data)


main(sys.argv[1])
