#!/usr/bin/env python3
"""The tables and plots of docs/performance.md, in one go on a quiet machine: docs/data/*.tsv, and the plots from them.

    LLAMA_BIN=DIR bench/all.py MODEL.gguf... [--rounds 5] [--only rates,products,server] [--out docs/data]

rates     each model beside llama.cpp: prompt and decode (bench/compare.py); float models once more with --dtype q8
products  bench_gemm: kinds of weights beside the machine's ceilings, products beside oneDNN and OpenBLAS
server    bench/peer.py, with the model that has Q8_0 in its name

The tools' output goes through; a part that is measured replaces its files. `make plots` draws again.
"""

import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKYLAKE = {"OPENBLAS_CORETYPE": "SKYLAKEX"}  # for an OpenBLAS that does not know the CPU


def run(command, env=None):
    print(f"\n$ {' '.join(command)}", flush=True)
    if subprocess.run(command, env={**os.environ, **(env or {})}, check=False).returncode != 0:
        sys.exit(f"{command[0]} failed")


def json_of(command, where):
    """A tool's output with --json FILE."""
    path = os.path.join(where, "out.json")
    run([command[0], "--json", path, *command[1:]])
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def write_tsv(folder, name, columns, rows):
    with open(os.path.join(folder, name + ".tsv"), "w", encoding="utf-8") as f:
        f.write("\t".join(columns) + "\n")
        for row in rows:
            cells = [row.get(column) for column in columns]
            f.write("\t".join("-" if c is None else f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells) + "\n")


def label(path):
    return os.path.splitext(os.path.basename(path))[0].rpartition("-")[2]


def rates(args, where):
    rows = []
    for model in args.models:
        common = [os.path.join(ROOT, "bench/compare.py"), "--rounds", str(args.rounds), "--prompt", "512", "--gen", "24",
                  "--batch", "1,8,16,32"]
        result = json_of([*common, model], where)
        rows += [{"model": label(model), **row} for row in result["rows"]]
        if label(model).lower() in ("bf16", "f16", "f32"):
            result = json_of([*common, "--llama-bin", "", model, "--", "--dtype", "q8"], where)
            rows += [{"model": label(model) + "-as-q8", **row} for row in result["rows"]]
    write_tsv(args.out, "rates", ["model", "kind", "size", "weft", "llama_cpp", "ratio", "of_dram", "of_peak"], rows)


def products(args, where):
    tool = os.path.join(ROOT, "build/bin/bench_gemm")
    path = os.path.join(where, "gemm.json")
    found = []
    for env, only in (({}, []), (SKYLAKE, ["--only", "products"])):
        command = [tool, "--rounds", str(args.rounds), *only, "--json"]
        print(f"\n$ {' '.join(command)}", flush=True)
        with open(path, "w", encoding="utf-8") as f:
            if subprocess.run(command, env={**os.environ, **env}, stdout=f, check=False).returncode != 0:
                sys.exit("bench_gemm failed")
        with open(path, encoding="utf-8") as f:
            found.append(json.load(f))
    rows = found[0]["products"]
    for row, other in zip(rows, found[1]["products"]):
        row["OpenBLAS_skylakex"] = other.get("OpenBLAS")
    columns = ["type", "k", "n", "m", "ours", "of_dram", "of_peak", "oneDNN", "oneDNN_ratio", "OpenBLAS", "OpenBLAS_ratio",
               "OpenBLAS_skylakex"]
    write_tsv(args.out, "products", columns, rows)
    kinds = {}
    for row in found[0]["kinds"]:
        kind = kinds.setdefault(row["kind"], {"kind": row["kind"]})
        kind[f"m{row['m']}"] = row.get("gb_per_s", row.get("gop_per_s"))
        kind[f"m{row['m']}_share"] = row.get("of_dram", row.get("of_peak"))
    write_tsv(args.out, "kinds", ["kind", *[k for k in next(iter(kinds.values())) if k != "kind"]], kinds.values())


def server(args, where):
    model = next((m for m in args.models if "q8_0" in m.lower()), None)
    if not model:
        sys.exit("the part server needs a model with Q8_0 in its name")
    result = json_of([os.path.join(ROOT, "bench/peer.py"), "--model", model, "--rounds", str(args.rounds)], where)
    columns = list(dict.fromkeys(key for line in result["medians"] for key in line))
    write_tsv(args.out, "server", columns, result["medians"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL.gguf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="rates,products,server")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs/data"))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # which ends what was started, too
    parts = {"rates": rates, "products": products, "server": server}
    for name in args.only.split(","):
        if name not in parts:
            sys.exit(f"there is no part {name}; there are {', '.join(parts)}")
    if {"rates", "server"} & set(args.only.split(",")) and not any("q8_0" in m.lower() for m in args.models):
        sys.exit("name the models to measure, among them one with Q8_0 in its name (or --only products)")
    os.makedirs(args.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as where:
        for name in args.only.split(","):
            parts[name](args, where)
    for plot in sorted(glob.glob(os.path.join(ROOT, "bench/plots/*.gp"))):
        subprocess.run(["gnuplot", "-e", f"data='{args.out}'", plot], cwd=ROOT, check=False)


if __name__ == "__main__":
    main()
