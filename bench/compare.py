#!/usr/bin/env python3
"""weft beside llama.cpp on the same file, in turns; medians and ratios as a Markdown table.

    bench/compare.py MODEL.gguf [--llama-bin DIR | --peer-dir DIR] [--rounds 5] [--prompt 512] [--gen 64]
                     [--batch 1,4,16] [--context 32] [--threads N] [--json FILE] [-- options of weft bench]

--llama-bin (or LLAMA_BIN) names the folder of a build's llama-bench and llama-batched-bench, --peer-dir one in which
`npm install node-llama-cpp` was run: in batches that is slower, as its scripting costs more than half. Without
either only weft is measured.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys

import behind

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def output_of(command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def weft(model, args):
    return json.loads(output_of([os.path.join(ROOT, "build/bin/weft"), "bench", model, "--prompt", args.prompt,
                                 "--gen", args.gen, "--batch", args.batch, "--context", args.context,
                                 "--threads", args.threads, "--reps", "1", "--json", *args.options]))


def scripted(model, args):
    """llama.cpp as an npm package."""
    shutil.copy(os.path.join(ROOT, "bench/peer/llama_cpp.mjs"), os.path.join(args.peer_dir, "llama_cpp.mjs"))
    text = output_of(["node", "llama_cpp.mjs", model, args.prompt, args.gen, args.batch, args.context, args.threads],
                     args.peer_dir)
    return json.loads(text.strip().splitlines()[-1])


def native(model, args):
    """llama.cpp by its own tools."""
    common = ["-m", model, "-t", args.threads]
    bench = [os.path.join(args.llama_bin, "llama-bench"), *common, "-r", "1", "-o", "json"]
    prompts = json.loads(output_of([*bench, "-p", args.prompt, "-n", "0"]))
    decode = json.loads(output_of([*bench, "-p", "0", "-n", args.gen, "-d", args.context]))
    result = {"prompt": [{"tokens": p["n_prompt"], "tokens_per_s": p["avg_ts"]} for p in prompts],
              "decode": [{"batch": 1, "tokens_per_s": decode[0]["avg_ts"]}]}
    batches = [b for b in args.batch.split(",") if int(b) > 1]
    if batches:
        tokens = max(map(int, batches)) * (int(args.context) + int(args.gen))
        lines = output_of([os.path.join(args.llama_bin, "llama-batched-bench"), *common, "-tb", args.threads,
                           "-c", str(tokens), "-b", "2048", "-ub", "512", "-npp", args.context, "-ntg", args.gen,
                           "-npl", ",".join(batches), "--output-format", "jsonl"]).splitlines()
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        result["decode"] += [{"batch": row["pl"], "tokens_per_s": row["speed_tg"]} for row in rows]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--llama-bin", default=os.environ.get("LLAMA_BIN"))
    parser.add_argument("--peer-dir")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", default="512")
    parser.add_argument("--gen", default="64")
    parser.add_argument("--batch", default="1,4,16")
    parser.add_argument("--context", default="32")
    parser.add_argument("--threads", default=str(len(os.sched_getaffinity(0))))
    parser.add_argument("--json", metavar="FILE", help="write the medians there")
    args = behind.parse_args(parser, "weft bench")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # which ends what was started, too
    model = os.path.abspath(args.model)
    runs = {"weft": weft}
    if args.llama_bin or args.peer_dir:
        runs["llama.cpp"] = native if args.llama_bin else scripted
    rates, shares = {}, {}  # (name, "prompt" or "decode", its size) -> values
    bandwidth = []
    for _ in range(args.rounds):
        for name, measure in runs.items():
            result = measure(model, args)
            bandwidth += [result["machine"]["dram_read_gb_per_s"]] if "machine" in result else []
            for kind, size in (("prompt", "tokens"), ("decode", "batch")):
                for row in result[kind]:
                    rates.setdefault((name, kind, row[size]), []).append(row["tokens_per_s"])
                    if "of_peak" in row:
                        shares.setdefault((kind, row[size]), []).append((row.get("of_dram", 0), row["of_peak"]))
    print(f"Memory reads: {statistics.median(bandwidth):.1f} GB/s ({min(bandwidth):.1f}..{max(bandwidth):.1f})\n")
    print("| tok/s | tokens or batch | weft | llama.cpp | ratio |\n|---|--:|--:|--:|--:|")
    rows = []
    for name, kind, size in [key for key in rates if key[0] == "weft"]:
        mine, peers = rates[name, kind, size], rates.get(("llama.cpp", kind, size))
        of_dram, of_peak = (statistics.median(values) for values in zip(*shares[kind, size]))
        row = {"kind": kind, "size": size, "weft": statistics.median(mine), "of_dram": of_dram, "of_peak": of_peak}
        if peers:
            row["llama_cpp"] = statistics.median(peers)
            row["ratio"] = statistics.median([a / b for a, b in zip(mine, peers)])
        rows.append(row)
        print(f"| {kind} | {size} | {row['weft']:.1f} | "
              + (f"{row['llama_cpp']:.1f} | {row['ratio']:.2f} |" if peers else "- | - |"))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"dram_read_gb_per_s": statistics.median(bandwidth), "rounds": args.rounds, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
