#!/usr/bin/env python3
"""weft beside llama.cpp on the same file, in turns; medians and ratios as a Markdown table.

    bench/compare.py MODEL.gguf --peer-dir DIR [--rounds 5] [--prompt 512] [--gen 64] [--batch 1,4,16] [--context 32]
                     [--threads N]

DIR is a folder in which `npm install node-llama-cpp` was run; without it only weft is measured.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--peer-dir")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", default="512")
    parser.add_argument("--gen", default="64")
    parser.add_argument("--batch", default="1,4,16")
    parser.add_argument("--context", default="32")
    parser.add_argument("--threads", default=str(len(os.sched_getaffinity(0))))
    args = parser.parse_args()
    model = os.path.abspath(args.model)
    commands = {"weft": ([os.path.join(ROOT, "build/bin/weft"), "bench", model, "--prompt", args.prompt, "--gen", args.gen,
                          "--batch", args.batch, "--context", args.context, "--threads", args.threads, "--reps", "1", "--json"], None)}
    if args.peer_dir:
        shutil.copy(os.path.join(ROOT, "bench/peer/llama_cpp.mjs"), os.path.join(args.peer_dir, "llama_cpp.mjs"))
        commands["llama.cpp"] = (["node", "llama_cpp.mjs", model, args.prompt, args.gen, args.batch, args.context, args.threads],
                                 args.peer_dir)
    rates = {}  # (name, "prompt" or "decode", its size) -> values
    bandwidth = []
    for _ in range(args.rounds):
        for name, (command, cwd) in commands.items():
            result = run(command, cwd)
            bandwidth += [result["machine"]["dram_read_gb_per_s"]] if "machine" in result else []
            for kind, size in (("prompt", "tokens"), ("decode", "batch")):
                for row in result[kind]:
                    rates.setdefault((name, kind, row[size]), []).append(row["tokens_per_s"])
    print(f"Memory reads: {statistics.median(bandwidth):.1f} GB/s ({min(bandwidth):.1f}..{max(bandwidth):.1f})\n")
    print("| tok/s | tokens or batch | weft | llama.cpp | ratio |\n|---|--:|--:|--:|--:|")
    for name, kind, size in [key for key in rates if key[0] == "weft"]:
        mine = statistics.median(rates[name, kind, size])
        peer = rates.get(("llama.cpp", kind, size))
        other = statistics.median(peer) if peer else None
        print(f"| {kind} | {size} | {mine:.1f} | " + (f"{other:.1f} | {mine / other:.2f} |" if other else "- | - |"))


if __name__ == "__main__":
    main()
