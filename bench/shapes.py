#!/usr/bin/env python3
"""GGUF files of real models' widths with few layers and random weights, for `weft bench` and `bench/compare.py`.

    bench/shapes.py NAME OUT.gguf [--type Q8_0] [--periods N] [--experts N] [--vocab N]

tinyllama   TinyLlama-1.1B, all of its 22 layers; what docs/performance.md calls tl-TYPE.gguf              (1.2 GB in Q8_0)
llama-7b    Llama 7B: 2 layers, where each query head has keys and values of its own; l7b-2.gguf there (0.7 GB in Q8_0)
gpt-oss     gpt-oss-20b: 4 layers, experts in MXFP4, all else in Q8_0                                   (3.1 GB)
qwen3-next  Qwen3-Next-80B-A3B in Q8_0: one period, three layers of gated DeltaNet and one of attention, with 256 of the
            512 experts: a token takes 10 of them as ever                                               (4.2 GB)
nemotron-h  Nemotron-H-8B in Q8_0: one period, five layers of Mamba-2, one of attention, five feed-forward (2.7 GB)

The first two have matrices of --type: Q8_0, Q4_0, Q4_K or BF16. Both programs read the same file: names, shapes and
metadata are those of llama.cpp's converter. Matrices are random blocks over and over, from a place that differs from row
to row; they are written as they are made, so this takes no memory.
"""

import argparse
import array
import math
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests/harness"))

from gguf_values import ARRAY, BOOL, FLOAT, I32, STRING, U32, text, value_of  # noqa: E402

ALIGNMENT = 32
F32, Q4_0, Q8_0, Q4_K, BF16, MXFP4 = 0, 2, 8, 12, 30, 39
BLOCKS = {F32: (1, 4), Q4_0: (32, 18), Q8_0: (32, 34), Q4_K: (256, 144), BF16: (32, 64), MXFP4: (32, 17)}  # elements, bytes
N_BLOCKS = 65537  # prime: no rows begin alike
FILE_TYPES = {Q4_0: 2, Q8_0: 7, Q4_K: 14, BF16: 32, MXFP4: 38}
DENSE_TYPES = {"Q4_0": Q4_0, "Q8_0": Q8_0, "Q4_K": Q4_K, "BF16": BF16}


# ------------------------------------------------------------------------------------------------------ the shapes

class Shape:
    def __init__(self, arch, file_type, vocab):
        self.arch, self.vocab, self.tensors, self.type = arch, vocab, [], file_type
        self.keys = [("general.architecture", STRING, arch), ("general.type", STRING, "model"),
                     ("general.file_type", U32, FILE_TYPES[file_type]), ("general.quantization_version", U32, 2)]

    def key(self, name, kind, value):
        self.keys.append((f"{self.arch}.{name}", kind, value))

    def numbers(self, **values):
        for name, value in values.items():
            self.key(name.replace("__", "."), FLOAT if isinstance(value, float) else U32, value)

    def matrix(self, name, columns, *rows, kind=None):
        if kind is None:
            kind = Q8_0 if self.type == MXFP4 else self.type
        self.tensors.append((name + ".weight", kind, (columns, *rows), None))

    def vector(self, name, *dims, around=0.0, spread=0.02):
        self.tensors.append((name, F32, dims, (around, spread)))

    def norm(self, name, *dims):
        self.vector(name + ".weight", *dims, around=1.0)

    def ends(self, hidden):
        self.matrix("token_embd", hidden, self.vocab)
        self.norm("output_norm", hidden)
        self.matrix("output", hidden, self.vocab)

    def attention(self, at, hidden, q, kv, out):
        self.matrix(at + "attn_q", hidden, q)
        self.matrix(at + "attn_k", hidden, kv)
        self.matrix(at + "attn_v", hidden, kv)
        self.matrix(at + "attn_output", out, hidden)

    def experts(self, at, hidden, ffn, n, kind=None):
        self.vector(at + "ffn_gate_inp.weight", hidden, n, spread=1 / math.sqrt(hidden))
        self.matrix(at + "ffn_gate_exps", hidden, ffn, n, kind=kind)
        self.matrix(at + "ffn_up_exps", hidden, ffn, n, kind=kind)
        self.matrix(at + "ffn_down_exps", ffn, hidden, n, kind=kind)


def llama(args, n_layers, hidden, heads, kv_heads, ffn):
    head = hidden // heads
    s = Shape("llama", DENSE_TYPES[args.type], args.vocab or 32000)
    s.numbers(block_count=n_layers, context_length=2048, embedding_length=hidden, feed_forward_length=ffn,
              attention__head_count=heads, attention__head_count_kv=kv_heads, attention__layer_norm_rms_epsilon=1e-5,
              rope__freq_base=10000.0, rope__dimension_count=head)
    s.ends(hidden)
    for i in range(n_layers):
        at = f"blk.{i}."
        s.norm(at + "attn_norm", hidden)
        s.attention(at, hidden, hidden, kv_heads * head, hidden)
        s.norm(at + "ffn_norm", hidden)
        s.matrix(at + "ffn_gate", hidden, ffn)
        s.matrix(at + "ffn_up", hidden, ffn)
        s.matrix(at + "ffn_down", ffn, hidden)
    return s


def tinyllama(args):
    return llama(args, 22 * args.periods, 2048, 32, 4, 5632)


def llama_7b(args):
    return llama(args, 2 * args.periods, 4096, 32, 32, 11008)


def gpt_oss(args):
    hidden, heads, kv_heads, head, ffn = 2880, 64, 8, 64, 2880
    n_layers, n = 4 * args.periods, args.experts or 32
    s = Shape("gpt-oss", MXFP4, args.vocab or 201088)
    s.numbers(block_count=n_layers, context_length=131072, embedding_length=hidden, feed_forward_length=ffn,
              attention__head_count=heads, attention__head_count_kv=kv_heads, attention__key_length=head,
              attention__value_length=head, attention__sliding_window=128, attention__layer_norm_rms_epsilon=1e-5,
              rope__freq_base=150000.0, rope__scaling__factor=32.0, rope__scaling__original_context_length=4096,
              expert_count=n, expert_used_count=4, expert_feed_forward_length=ffn)
    s.key("rope.scaling.type", STRING, "yarn")
    s.ends(hidden)
    for i in range(n_layers):
        at = f"blk.{i}."
        s.norm(at + "attn_norm", hidden)
        s.attention(at, hidden, heads * head, kv_heads * head, heads * head)
        s.vector(at + "attn_q.bias", heads * head)
        s.vector(at + "attn_k.bias", kv_heads * head)
        s.vector(at + "attn_v.bias", kv_heads * head)
        s.vector(at + "attn_output.bias", hidden)
        s.vector(at + "attn_sinks.weight", heads)
        s.norm(at + "post_attention_norm", hidden)
        s.experts(at, hidden, ffn, n, kind=MXFP4)
        s.vector(at + "ffn_gate_inp.bias", n)
        s.vector(at + "ffn_gate_exps.bias", ffn, n)
        s.vector(at + "ffn_up_exps.bias", ffn, n)
        s.vector(at + "ffn_down_exps.bias", hidden, n)
    return s


def qwen3_next(args):
    hidden, heads, kv_heads, head, ffn = 2048, 16, 2, 256, 512
    keys, values, dim = 16, 32, 128
    n_layers, n = 4 * args.periods, args.experts or 256
    inner, channels = values * dim, (2 * keys + values) * dim
    s = Shape("qwen3next", Q8_0, args.vocab or 151936)
    s.numbers(block_count=n_layers, context_length=262144, embedding_length=hidden, feed_forward_length=5120,
              attention__head_count=heads, attention__head_count_kv=kv_heads, attention__key_length=head,
              attention__value_length=head, attention__layer_norm_rms_epsilon=1e-6, rope__freq_base=1e7,
              rope__dimension_count=head // 4, expert_count=n, expert_used_count=10, expert_feed_forward_length=ffn,
              expert_shared_feed_forward_length=ffn, ssm__conv_kernel=4, ssm__state_size=dim, ssm__group_count=keys,
              ssm__time_step_rank=values, ssm__inner_size=inner, full_attention_interval=4)
    s.ends(hidden)
    for i in range(n_layers):
        at = f"blk.{i}."
        s.norm(at + "attn_norm", hidden)
        if (i + 1) % 4 == 0:
            s.attention(at, hidden, 2 * heads * head, kv_heads * head, heads * head)
            s.norm(at + "attn_q_norm", head)
            s.norm(at + "attn_k_norm", head)
        else:
            s.vector(at + "ssm_a", values, around=-1.0, spread=0.3)
            s.vector(at + "ssm_conv1d.weight", 4, channels, spread=0.3)
            s.vector(at + "ssm_dt.bias", values)
            s.matrix(at + "ssm_ba", hidden, 2 * values)
            s.matrix(at + "attn_qkv", hidden, channels)
            s.matrix(at + "attn_gate", hidden, inner)
            s.norm(at + "ssm_norm", dim)
            s.matrix(at + "ssm_out", inner, hidden)
        s.norm(at + "post_attention_norm", hidden)
        s.experts(at, hidden, ffn, n)
        s.matrix(at + "ffn_gate_shexp", hidden, ffn)
        s.matrix(at + "ffn_up_shexp", hidden, ffn)
        s.matrix(at + "ffn_down_shexp", ffn, hidden)
        s.vector(at + "ffn_gate_inp_shexp.weight", hidden)
    return s


def nemotron_h(args):
    hidden, heads, kv_heads, head, ffn = 4096, 32, 8, 128, 21504
    ssm_heads, groups, state = 128, 8, 128
    pattern = "M-M-M-M-M*-" * args.periods
    inner = ssm_heads * 64
    channels = inner + 2 * groups * state
    s = Shape("nemotron_h", Q8_0, args.vocab or 131072)
    s.numbers(block_count=len(pattern), context_length=8192, embedding_length=hidden, attention__head_count=heads,
              attention__key_length=head, attention__value_length=head, attention__layer_norm_rms_epsilon=1e-5,
              attention__layer_norm_epsilon=1e-5, rope__freq_base=10000.0, rope__dimension_count=head, ssm__conv_kernel=4,
              ssm__state_size=state, ssm__group_count=groups, ssm__inner_size=inner, ssm__time_step_rank=ssm_heads,
              vocab_size=s.vocab)
    s.key("rope.scaling.finetuned", BOOL, False)
    s.key("feed_forward_length", ARRAY, (I32, [ffn if letter == "-" else 0 for letter in pattern]))
    s.key("attention.head_count_kv", ARRAY, (I32, [kv_heads if letter == "*" else 0 for letter in pattern]))
    s.ends(hidden)
    for i, letter in enumerate(pattern):
        at = f"blk.{i}."
        s.norm(at + "attn_norm", hidden)
        if letter == "*":
            s.attention(at, hidden, heads * head, kv_heads * head, heads * head)
        elif letter == "-":
            s.matrix(at + "ffn_up", hidden, ffn)
            s.matrix(at + "ffn_down", ffn, hidden)
        else:
            s.vector(at + "ssm_a", 1, ssm_heads, around=-1.0, spread=0.15)  # below 0: no state grows
            s.vector(at + "ssm_d", 1, ssm_heads, around=1.0)
            s.vector(at + "ssm_dt.bias", ssm_heads)
            s.vector(at + "ssm_conv1d.weight", 4, channels, spread=0.3)
            s.vector(at + "ssm_conv1d.bias", channels)
            s.matrix(at + "ssm_in", hidden, inner + channels + ssm_heads)
            s.norm(at + "ssm_norm", inner // groups, groups)
            s.matrix(at + "ssm_out", inner, hidden)
    return s


SHAPES = {"tinyllama": tinyllama, "llama-7b": llama_7b, "gpt-oss": gpt_oss, "qwen3-next": qwen3_next, "nemotron-h": nemotron_h}


# -------------------------------------------------------------------------------------------------------- the file

def tokenizer_keys(vocab):
    """Bytes, one merge, words that no merge leads to, so that each token of an answer has a text, and two control tokens:
    enough for both programs to open it."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    others = [b for b in range(256) if b not in plain]
    letters = [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]
    tokens = [*letters, "\u0120t", *(f"\u0120w{i}" for i in range(257, vocab - 2)), "<|end|>", "<|begin|>"]
    return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, [1] * (vocab - 2) + [3, 3])),
            ("tokenizer.ggml.merges", ARRAY, (STRING, ["\u0120 t"])),
            ("tokenizer.ggml.bos_token_id", U32, vocab - 1), ("tokenizer.ggml.eos_token_id", U32, vocab - 2),
            ("tokenizer.ggml.add_bos_token", BOOL, False)]


def random_blocks(kind, rng):
    """Weights of about 0.02."""
    n_bytes = BLOCKS[kind][1]
    blocks = bytearray(rng.randbytes(N_BLOCKS * n_bytes))
    for i in range(N_BLOCKS):
        if kind == MXFP4:
            blocks[i * n_bytes] = 119 + i % 3  # exponents of e8m0
        elif kind == Q8_0:
            struct.pack_into("<e", blocks, i * n_bytes, (2 + i % 3) * 1e-4)
        elif kind == Q4_0:
            struct.pack_into("<e", blocks, i * n_bytes, (2 + i % 3) * 2e-3)
        elif kind == Q4_K:  # scales of scales and of minima
            struct.pack_into("<ee", blocks, i * n_bytes, (2 + i % 3) * 1e-4, (2 + i % 3) * 7e-4)
        else:
            for at in range(i * n_bytes, (i + 1) * n_bytes, 2):
                struct.pack_into("<H", blocks, at, 0x3c00 | rng.getrandbits(8) | rng.getrandbits(1) << 15)
    return blocks


def write_matrix(out, blocks, n, at):
    """`n` bytes of the endless repetition of `blocks`, from `at` on."""
    view = memoryview(blocks)
    while n > 0:
        out.write(view[at:at + n])
        n -= len(blocks) - at
        at = 0


def write_vector(out, rng, n, around, spread):
    values = array.array("f")
    for _ in range(n):
        values.append(rng.gauss(around, spread))
    values.tofile(out)


def size_of(kind, dims):
    elems, n_bytes = BLOCKS[kind]
    if dims[0] % elems:
        raise SystemExit(f"rows of {dims[0]} are no whole blocks")
    return math.prod(dims) // elems * n_bytes


def aligned(n):
    return (n + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def write(shape, path, rng):
    keys = [*shape.keys, *tokenizer_keys(shape.vocab)]
    header = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(shape.tensors), len(keys)))
    for name, kind, value in keys:
        header += text(name) + struct.pack("<I", kind) + value_of(kind, value)
    offset = 0
    for name, kind, dims, _ in shape.tensors:
        header += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        offset = aligned(offset + size_of(kind, dims))
    blocks = {kind: random_blocks(kind, rng) for kind in {kind for _, kind, _, _ in shape.tensors} - {F32}}
    with open(path, "wb") as out:
        out.write(header + bytes(aligned(len(header)) - len(header)))
        for _, kind, dims, spread in shape.tensors:
            n = size_of(kind, dims)
            if kind == F32:
                write_vector(out, rng, math.prod(dims), *spread)
            else:
                write_matrix(out, blocks[kind], n, rng.randrange(N_BLOCKS) * BLOCKS[kind][1])
            out.write(bytes(aligned(n) - n))
    return aligned(len(header)) + offset


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument("out")
    parser.add_argument("--type", choices=DENSE_TYPES, default="Q8_0", help="of the first two's matrices")
    parser.add_argument("--periods", type=int, default=1, help="of the layers' pattern, or fours, twos or all of the layers")
    parser.add_argument("--experts", type=int, default=0, help="0: as above")
    parser.add_argument("--vocab", type=int, default=0, help="0: the model's own")
    args = parser.parse_args()
    if args.periods < 1 or (args.vocab and args.vocab < 30000):
        raise SystemExit("at least one period and 30000 tokens, which are made-up prompts'")
    if args.type != "Q8_0" and args.name not in ("tinyllama", "llama-7b"):
        raise SystemExit(f"{args.name} has types of its own")
    n = write(SHAPES[args.name](args), args.out, random.Random(1))
    print(f"{args.out}: {n / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
