#!/usr/bin/env python3
"""Vectors of texts by weft beside llama-server's --embeddings, in turns, on the same GGUF file.

    LLAMA_BIN=DIR bench/embeddings.py [--model FILE.gguf] [--type f16|bf16|f32|q8_0] [--texts 512] [--clients 8] [--each 16]
                                      [--threads 2] [--rounds 3] [--npm] [--json FILE]

Without --model the file is made first: BERT-base's shape (12 layers, hidden 768, a vocabulary of 30522) with random
weights. The texts have 16 to 256 tokens, the same for all; --clients clients post them, --each in a request. A
round times all texts by one server after the other: weft as it is, weft with --dtype q8, llama-server (without LLAMA_BIN
or --llama-bin there is none; with --npm llama.cpp as npm's node-llama-cpp ships it, text by text, in its place). Printed are medians of the rounds, medians of the rounds' ratios, and the least cosine of
a text's vectors by weft as it is and by each of the others.
"""

import argparse
import concurrent.futures
import functools
import json
import os
import statistics
import struct
import sys
import tempfile
import time
import urllib.request

import numpy
from peer import llama_server, npm_server, weft_server

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
N_VOCAB, N_LAYERS, N_HIDDEN, N_FFN, N_HEADS, N_POSITIONS = 30522, 12, 768, 3072, 12, 512
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}  # as the format numbers them
BLOCK_BYTES = {"f32": 128, "f16": 64, "q8_0": 34, "bf16": 64}  # of 32 numbers
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7, "bf16": 32}


def word(i):
    """The ordinary token `i`: four letters, none of which is a token by itself."""
    return "".join(LETTERS[i // 26**k % 26] for k in range(4))


def text_of(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, value):
    """A key and its value: text, truth, whole number, fraction, or a list of texts or of numbers."""
    if isinstance(value, bool):
        return text_of(key) + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return text_of(key) + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return text_of(key) + struct.pack("<If", 6, value)
    if isinstance(value, str):
        return text_of(key) + struct.pack("<I", 8) + text_of(value)
    is_text = isinstance(value[0], str)
    items = [text_of(item) if is_text else struct.pack("<i", item) for item in value]
    return text_of(key) + struct.pack("<IIQ", 9, 8 if is_text else 5, len(value)) + b"".join(items)


def metadata(kind):
    tokens = SPECIALS + ["\u2581" + word(i) for i in range(N_VOCAB - len(SPECIALS))]
    return [("general.architecture", "bert"), ("general.type", "model"), ("general.name", "bert-base-random"),
            ("bert.block_count", N_LAYERS), ("bert.context_length", N_POSITIONS), ("bert.embedding_length", N_HIDDEN),
            ("bert.feed_forward_length", N_FFN), ("bert.attention.head_count", N_HEADS),
            ("bert.attention.layer_norm_epsilon", 1e-12), ("bert.attention.causal", False), ("bert.pooling_type", 1),
            ("general.file_type", FILE_TYPES[kind]), ("general.quantization_version", 2),
            ("tokenizer.ggml.token_type_count", 2), ("tokenizer.ggml.model", "bert"), ("tokenizer.ggml.pre", "default"),
            ("tokenizer.ggml.tokens", tokens), ("tokenizer.ggml.token_type", [3] * 5 + [1] * (N_VOCAB - 5)),
            ("tokenizer.ggml.bos_token_id", 2), ("tokenizer.ggml.eos_token_id", 3),
            ("tokenizer.ggml.unknown_token_id", 1), ("tokenizer.ggml.seperator_token_id", 3),
            ("tokenizer.ggml.padding_token_id", 0), ("tokenizer.ggml.cls_token_id", 2),
            ("tokenizer.ggml.mask_token_id", 4)]


def shapes():
    """Names and shapes, rows first."""
    yield from (("token_embd.weight", (N_VOCAB, N_HIDDEN)), ("position_embd.weight", (N_POSITIONS, N_HIDDEN)),
                ("token_types.weight", (2, N_HIDDEN)), ("token_embd_norm.weight", (N_HIDDEN,)),
                ("token_embd_norm.bias", (N_HIDDEN,)))
    matrices = [("attn_q", N_HIDDEN, N_HIDDEN), ("attn_k", N_HIDDEN, N_HIDDEN), ("attn_v", N_HIDDEN, N_HIDDEN),
                ("attn_output", N_HIDDEN, N_HIDDEN), ("ffn_up", N_FFN, N_HIDDEN), ("ffn_down", N_HIDDEN, N_FFN)]
    for layer in range(N_LAYERS):
        for name, rows, cols in matrices:
            yield f"blk.{layer}.{name}.weight", (rows, cols)
            yield f"blk.{layer}.{name}.bias", (rows,)
        for name in ("attn_output_norm", "layer_output_norm"):
            yield f"blk.{layer}.{name}.weight", (N_HIDDEN,)
            yield f"blk.{layer}.{name}.bias", (N_HIDDEN,)


def values(rng, name, shape, kind):
    """Its bytes: norms begin as they are trained from, the rest is random and small."""
    is_norm = "norm.weight" in name
    numbers = rng.standard_normal(shape, dtype=numpy.float32) * numpy.float32(0.04) + numpy.float32(is_norm)
    if kind == "f16":
        return numbers.astype(numpy.float16).tobytes()
    if kind == "q8_0":  # blocks of 32: a scale and codes
        blocks = numbers.reshape(-1, 32)
        scale = numpy.abs(blocks).max(axis=1, keepdims=True) / 127
        codes = numpy.rint(blocks / scale).astype(numpy.int8)
        return numpy.hstack([scale.astype(numpy.float16).view(numpy.int8), codes]).tobytes()
    if kind == "bf16":
        return (numbers.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()
    return numbers.tobytes()


def make_model(path, kind):
    rng = numpy.random.default_rng(1)
    entries, tensors, at = metadata(kind), [], 0
    for name, shape in shapes():
        own = kind if len(shape) == 2 and name.startswith(("blk", "token_embd")) else "f32"
        tensors.append((name, shape, own, at))
        n_bytes = int(numpy.prod(shape)) // 32 * BLOCK_BYTES[own]
        at += (n_bytes + 31) // 32 * 32
    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(entries)) + b"".join(entry(*e) for e in entries)
    for name, shape, own, offset in tensors:
        dims = shape[::-1]
        head += text_of(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, TYPES[own], offset)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for name, shape, own, _ in tensors:
            data = values(rng, name, shape, own)
            f.write(data + bytes(-len(data) % 32))


def make_texts(n):
    """Two of the tokens are [CLS] and [SEP]."""
    rng = numpy.random.default_rng(2)
    lengths = rng.integers(16, 257, n)
    texts = [" ".join(word(int(i)) for i in rng.integers(0, N_VOCAB - len(SPECIALS), length - 2)) for length in lengths]
    return texts, int(lengths.sum())


def embed(url, texts):
    body = json.dumps({"input": texts}).encode()
    request = urllib.request.Request(url + "/v1/embeddings", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as reply:
        data = json.load(reply)["data"]
    return [item["embedding"] for item in sorted(data, key=lambda item: item["index"])]


def run(args, url, texts):
    """Seconds, and all vectors."""
    parts = [texts[i:i + args.each] for i in range(0, len(texts), args.each)]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.clients) as pool:
        vectors = [vector for part in pool.map(lambda part: embed(url, part), parts) for vector in part]
    return time.monotonic() - begin, numpy.array(vectors)


def least_cosine(a, b):
    a, b = (x / numpy.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    return float((a * b).sum(axis=1).min())


def measure(args, model):
    texts, n_tokens = make_texts(args.texts)
    servers = {"weft": (weft_server, ()), "weft q8": (weft_server, ("--dtype", "q8"))}
    peer = "npm" if args.npm else "llama-server" if args.llama_bin else None
    if args.npm:
        servers[peer] = (functools.partial(npm_server, script="llama_embeddings.mjs"), ())
    elif args.llama_bin:
        servers[peer] = (llama_server, ("--embeddings", "--pooling", "mean", "-ub", "2048"))
    seconds, vectors = {name: [] for name in servers}, {}
    for _ in range(args.rounds):
        for name, (server, options) in servers.items():
            with server(args, model, args.threads, args.clients, *options) as (url, _):
                embed(url, texts[:4])  # warm
                took, vectors[name] = run(args, url, texts)
            seconds[name].append(took)
            print(f"  {name:<13} {took:7.2f} s, {n_tokens / took:7.0f} tokens/s", flush=True)
    result = {"texts": len(texts), "tokens": n_tokens, "seconds": seconds}
    for name, took in seconds.items():
        cosine = least_cosine(vectors["weft"], vectors[name])
        print(f"{name:<13} {n_tokens / statistics.median(took):7.0f} tokens/s, median of {len(took)}; least cosine {cosine:.5f}")
        result[name] = {"cosine": cosine}
        if peer:
            result[name]["ratio"] = statistics.median(b / a for a, b in zip(took, seconds[peer]))
            print(f"{'':<13} {result[name]['ratio']:.2f} x {peer}'s rate")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--type", choices=TYPES, default="f16")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--each", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--npm", action="store_true", help="beside npm's node-llama-cpp, which is fetched")
    parser.add_argument("--json")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    parser.add_argument("--llama-bin", default=os.environ.get("LLAMA_BIN"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or os.path.join(folder, "bert-base-random.gguf")
        if not args.model:
            make_model(model, args.type)
        result = measure(args, model)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
