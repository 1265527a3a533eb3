#!/usr/bin/env python3
"""weft beside llama.cpp on the same file, in turns; medians and ratios as a Markdown table.

    bench/compare.py MODEL.gguf --peer-dir DIR [--rounds 5] [--prompt 512] [--gen 64] [--batch 1,4,16] [--threads N]

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
    parser.add_argument("--threads", default=str(len(os.sched_getaffinity(0))))
    args = parser.parse_args()
    model = os.path.abspath(args.model)
    commands = {"weft": ([os.path.join(ROOT, "build/bin/weft"), "bench", model, "--prompt", args.prompt, "--gen", args.gen,
                          "--batch", args.batch, "--threads", args.threads, "--rounds", "1", "--json"], None)}
    if args.peer_dir:
        shutil.copy(os.path.join(ROOT, "bench/peer/llama_cpp.mjs"), os.path.join(args.peer_dir, "llama_cpp.mjs"))
        commands["llama.cpp"] = (["node", "llama_cpp.mjs", model, args.prompt, args.gen, args.batch, args.threads], args.peer_dir)
    rates = {}  # (name, batch, kind) -> values
    bandwidth = []
    for _ in range(args.rounds):
        for name, (command, cwd) in commands.items():
            result = run(command, cwd)
            bandwidth += [result["bandwidth_gb_s"]] if "bandwidth_gb_s" in result else []
            for row in result["results"]:
                for kind in ("prompt_tok_s", "gen_tok_s"):
                    rates.setdefault((name, row["batch"], kind), []).append(row[kind])
    print(f"Memory reads: {statistics.median(bandwidth):.1f} GB/s ({min(bandwidth):.1f}..{max(bandwidth):.1f})\n")
    print("| | batch | weft | llama.cpp | ratio |\n|---|--:|--:|--:|--:|")
    for batch in [int(b) for b in args.batch.split(",")]:
        for kind, label in (("prompt_tok_s", "prompt tok/s"), ("gen_tok_s", "generated tok/s")):
            mine = statistics.median(rates["weft", batch, kind])
            peer = rates.get(("llama.cpp", batch, kind))
            other = statistics.median(peer) if peer else None
            print(f"| {label} | {batch} | {mine:.1f} | " + (f"{other:.1f} | {mine / other:.2f} |" if other else "- | - |"))


if __name__ == "__main__":
    main()
