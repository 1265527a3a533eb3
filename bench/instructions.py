#!/usr/bin/env python3
"""Instructions per product: bench/instructions.py [--kinds q8_0,q4_k] [--rows 1,16]

One product of 256 features and 1,024 columns per kind of weight and number of rows, by NEON with all of its extensions
(qemu-aarch64, a program of `make aarch64`) and by AVX2 (qemu-x86_64, one of `make everything`), counted by the same plugin
of qemu. Printed are instructions per 1,000 multiply-adds, packing and everything else taken away: the difference between
three products and one. No times: what an instruction takes differs.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZE = 256 * 1024
KINDS = "f32*f32,bf16,i8,q8_0,q4_0,q4_k,q5_k,q6_k,q2_k,iq4_nl,q8_0*f32,q4_k*f32"
SYSROOT = os.path.join(ROOT, "build-aarch64/sysroot")
SIDES = {  # name: command, ISA, CPU
    "neon": (["qemu-aarch64", "-L", SYSROOT], "build-aarch64", "neon", "max"),
    "dotprod": (["qemu-aarch64", "-L", SYSROOT], "build-aarch64", "neon", "neoverse-n1"),
    "avx2": (["qemu-x86_64"], "build", "avx2", "max"),
}


def build_plugin(folder):
    plugin = os.path.join(folder, "count_instructions.so")
    source = os.path.join(ROOT, "bench/count_instructions.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", plugin, source], check=True)
    return plugin


def count(plugin, side, kind, rows, times):
    command, build, isa, cpu = SIDES[side]
    program = [os.path.join(ROOT, build, "bin/bench_gemm"), "--repeat", f"{kind}:{rows}:{times}"]
    env = {**os.environ, "WEFT_ISA": isa, "QEMU_CPU": cpu}
    run = subprocess.run([*command, "-plugin", plugin, *program], env=env, capture_output=True, text=True)
    found = re.search(r"^instructions (\d+)$", run.stderr, re.MULTILINE)
    if run.returncode != 0 or not found:
        sys.exit(f"{side}, {kind}: {run.stderr.strip()}")
    return int(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--rows", default="1,4,16,128")
    args = parser.parse_args()
    rows = [int(r) for r in args.rows.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        plugin = build_plugin(folder)
        print("| kind | " + " | ".join(f"{r} row{'s' * (r > 1)}: {', '.join(SIDES)}" for r in rows) + " |")
        print("|---|" + "---|" * len(rows))
        for kind in args.kinds.split(","):
            cells = []
            for r in rows:
                counts = [(count(plugin, side, kind, r, 3) - count(plugin, side, kind, r, 1)) / 2 for side in SIDES]
                cells.append(" / ".join(f"{1000 * c / r / SIZE:.0f}" for c in counts))
            print(f"| {kind} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
