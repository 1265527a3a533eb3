#!/usr/bin/env python3
"""Long contexts: what attention takes of a decoding step and of prompts, beside the machine's ceilings.

    bench/contexts.py MODEL... [--contexts 1984,8000,32000] [--batch 8] [--kv bf16,int8] [--prompts 512,1984,8000]
                      [--reps 5] [--bin build/bin] [-- options of weft bench]

Decoding: for each model, KV type and context a line with the milliseconds of a step beyond those at a context of 32, and
attention's own, its share of DRAM's bandwidth (for K and V) and of its arithmetic's peak; the larger of the two binds.
int8 is met by codes of 15 bits, so it counts two operations where there is one. The cache is filled in, not computed;
contexts beyond the model's own cost the same. Prompts: tokens per second, and attention's share of the peak in them.
Medians of --reps repetitions, each beside ceilings of its own minute. A share over 100 % or a negative time says that
the machine had something else to do.
"""

import argparse
import json
import os
import subprocess

import behind

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GEN = 16


def bench(args, model, *options):
    command = [os.path.join(args.bin, "weft"), "bench", model, "--reps", str(args.reps), "--profile", "--json",
               *options, *args.options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def attention_of(result, phase):
    found = next(p for p in result["profile"] if p["phase"] == phase)
    return found, next(op for op in found["operators"] if op["operator"] == "attention")


def decode(args, model, kv, context):
    length = str(context + GEN + 1)
    return bench(args, model, "--kv-dtype", kv, "--context", str(context), "--max-model-len", length, "--prompt", "16",
                 "--gen", str(GEN), "--batch", str(args.batch))


def print_decoding(args):
    print("| model | KV | context | step, ms | beyond a context of 32 | attention, ms | of DRAM | of the peak | DRAM, GB/s |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for model in args.models:
        for kv in args.kv.split(","):
            short = decode(args, model, kv, 32)["profile"][-1]["ms_per_step"]
            for context in map(int, args.contexts.split(",")):
                result = decode(args, model, kv, context)
                phase, attention = attention_of(result, "decode")
                step = phase["ms_per_step"]
                print(f"| {os.path.basename(model)} | {kv} | {context} | {step:.1f} | {step - short:.1f} | "
                      f"{attention['ms']:.1f} | {attention['of_dram']:.0%} | {attention['of_peak']:.0%} | "
                      f"{result['machine']['dram_read_gb_per_s']:.1f} |", flush=True)


def print_prompts(args):
    print("\n| model | KV | prompt | tokens/s | of the first | attention's time | of the peak |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for model in args.models:
        for kv in args.kv.split(","):
            first = None
            for length in args.prompts.split(","):
                result = bench(args, model, "--kv-dtype", kv, "--prompt", length, "--gen", "1", "--batch", "1",
                               "--max-model-len", str(int(length) + 40))
                phase, attention = attention_of(result, "prompt")
                busy = sum(op["ms"] for op in phase["operators"] if op["operator"] not in ("wait", "outside", "gap"))
                rate = result["prompt"][0]["tokens_per_s"]
                first = first or rate
                print(f"| {os.path.basename(model)} | {kv} | {length} | {rate:.1f} | {rate / first:.2f} | "
                      f"{attention['ms'] / busy:.1%} | {attention['of_peak']:.0%} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--contexts", default="1984,8000,32000", help="none: \"\"")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--kv", default="bf16,int8")
    parser.add_argument("--prompts", default="512,1984,8000", help="none: \"\"")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    args = behind.parse_args(parser, "weft bench")
    if args.contexts:
        print_decoding(args)
    if args.prompts:
        print_prompts(args)


if __name__ == "__main__":
    main()
