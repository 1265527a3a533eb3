#!/usr/bin/env python3
"""What do LoRA adapters cost? Decode rates of streams over several adapters beside streams of the model alone.

    bench/lora.py MODEL [--streams 16] [--adapters 8] [--rank 16] [--rounds 5] [--tokens 48] [--bin build/bin] [-- serve options]

Writes adapters of random values for all linear layers of MODEL, a folder or GGUF file as shared/reference/synth.py makes
them of a llama. One server, rounds in turns: all streams of the model; stream i of adapter i mod --adapters; all of one adapter. A
round's rate counts tokens between the moment the last stream began and the moment the first one ended. Prints medians, spreads
and medians of the rounds' ratios as one line of JSON."""

import argparse
import json
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading

import behind
from structured import ROOT, stream

SHAPES = {"tinyllama": (22, 2048, 256, 5632), "tiny-test": (4, 256, 128, 768)}  # layers, hidden, kv, feed-forward


LOW, HIGH = bytes(b | 0x80 for b in range(256)), bytes(b & 0x80 | 0x3C for b in range(256))


def some_values(rng, n):
    """bf16, of either sign, from 1/64 to 1/32."""
    data = bytearray(rng.randbytes(2 * n))
    data[0::2], data[1::2] = data[0::2].translate(LOW), data[1::2].translate(HIGH)
    return bytes(data)


def write_adapter(folder, seed, rank, shape):
    n_layers, hidden, kv, ffn = shape
    rng, header, at, values = random.Random(seed), {}, 0, []
    os.mkdir(folder)
    matrices = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
                "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden),
                "mlp.down_proj": (hidden, ffn)}
    for layer in range(n_layers):
        for name, (n, k) in matrices.items():
            for part, dims in (("A", (rank, k)), ("B", (n, rank))):
                data = some_values(rng, dims[0] * dims[1])
                header[f"base_model.model.model.layers.{layer}.{name}.lora_{part}.weight"] = {
                    "dtype": "BF16", "shape": dims, "data_offsets": [at, at + len(data)]}
                values.append(data)
                at += len(data)
    text = json.dumps(header).encode()
    with open(f"{folder}/adapter_model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(values))
    with open(f"{folder}/adapter_config.json", "w", encoding="utf-8") as f:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": [m.split(".")[1] for m in matrices]}, f)


def decode_rate(port, models, n_tokens, rng):
    """Tokens per second and stream while all of them decode."""
    times = [[] for _ in models]
    threads = []
    for model, of in zip(models, times):
        body = {"prompt": [rng.randrange(300, 1300) for _ in range(16)], "max_tokens": n_tokens, "temperature": 1,
                "seed": rng.randrange(1 << 30), "ignore_eos": True, "return_tokens_as_token_ids": True, "logprobs": 0}
        threads.append(threading.Thread(target=stream, args=(port, {**body, **model}, of)))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    assert end > begin, "the streams did not overlap: more --tokens"
    return sum(1 for t in times for x in t if begin < x <= end) / (end - begin) / len(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--shape", choices=SHAPES, default="tinyllama")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    args = behind.parse_args(parser, "weft serve")
    kinds = {"model": [{}] * args.streams,
             "adapters": [{"model": f"a{i % args.adapters}"} for i in range(args.streams)],
             "one_adapter": [{"model": "a0"}] * args.streams}
    rates = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as folder:
        options = list(args.options)
        for i in range(args.adapters):
            write_adapter(f"{folder}/a{i}", i, args.rank, SHAPES[args.shape])
            options += ["--lora", f"a{i}={folder}/a{i}"]
        proc = subprocess.Popen([os.path.join(args.bin, "weft"), "serve", args.model, "--port", "0", "--rpc-port", "0",
                                 *options], stderr=subprocess.PIPE, text=True)
        try:
            port = next((int(l.rsplit(":", 1)[1]) for l in proc.stderr if l.startswith("weft: ready on ")), None)
            if not port:
                sys.exit("the server did not start")
            rng = random.Random(1)
            decode_rate(port, [{}, {"model": "a0"}], args.tokens, rng)  # warm
            for i in range(args.rounds):
                for name in kinds if i % 2 else reversed(kinds):
                    rates[name].append(decode_rate(port, kinds[name], args.tokens, rng))
        finally:
            proc.send_signal(signal.SIGTERM)
            proc.wait()

    def ratio(name):  # of each round to its own neighbour: the machine's speed drifts
        return round(statistics.median(a / b for a, b in zip(rates[name], rates["model"])), 3)

    print(json.dumps({"streams": args.streams, "adapters": args.adapters, "rank": args.rank, "rounds": args.rounds,
                      "tok_s_per_stream": {name: round(statistics.median(v), 2) for name, v in rates.items()},
                      "range": {name: [round(min(v), 2), round(max(v), 2)] for name, v in rates.items()},
                      "adapters_ratio": ratio("adapters"), "one_adapter_ratio": ratio("one_adapter")}))


if __name__ == "__main__":
    main()
