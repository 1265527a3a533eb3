#!/usr/bin/env python3
"""Runs the fuzz targets under libFuzzer, each from its seeds and its inputs in tests/fuzz/corpus.

    tests/fuzz/run.py BUILD [--seconds N] [--jobs N] [--keep] [TARGET ...]

--keep puts the inputs that reach something new into the corpus. Ends with 1 and names the input if a target crashed,
hung, leaked or took too much memory; the input is left in BUILD/findings."""

import argparse
import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import tempfile

SOURCE_DIR = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
CORPUS = os.path.join(SOURCE_DIR, "tests/fuzz/corpus")
# Several kinds of files in one target: tokenizer.json, tokenizer.model, a GGUF file's vocabulary and texts.
SHARES = {"fuzz_tokenizer": 3}
# The module whose words a target reads: keys, names and keywords are string literals of its sources.
MODULES = {"fuzz_template": "template", "fuzz_config": "model", "fuzz_gguf": "model", "fuzz_safetensors": "model",
           "fuzz_folder": "model",
           "fuzz_tokenizer": "tokenizer", "fuzz_traffic": "traffic", "fuzz_schema": "grammar/schema",
           "fuzz_lark": "grammar/joint", "fuzz_tags": "grammar/joint",
           "fuzz_message": "message"}
# How long one input may take, by the clock. A grammar may work for half a second, which is forty times as long under the
# sanitizers, and this with others on the machine.
LIMIT_S = 20
LIMITS_S = {f"fuzz_{notation}": 120 for notation in ("schema", "regex", "gbnf", "lark", "tags")}
KEPT_BYTES_MAX = 16384  # of an input


def targets(build, names):
    found = sorted(n for n in os.listdir(os.path.join(build, "bin")) if n.startswith("fuzz_"))
    missing = [n for n in names if n not in found]
    if missing or not found:
        sys.exit(f"no target {', '.join(missing) or 'at all'} in {build}/bin")
    return names or found


def write_dictionary(name, path):
    """The words a target's module compares its input with, which libFuzzer would not guess."""
    words = set()
    for source in glob.glob(os.path.join(SOURCE_DIR, "lib", MODULES[name], "**/*.c"), recursive=True):
        with open(source) as text:
            words.update(re.findall(r'"([A-Za-z_][A-Za-z0-9_.<>|-]{1,40})"', text.read()))
    with open(path, "w") as out:
        out.writelines(f'"{word}"\n' for word in sorted(words))
    return path


def options(name, seconds):
    return [f"-max_total_time={seconds * SHARES.get(name, 1)}", f"-timeout={LIMITS_S.get(name, LIMIT_S)}", "-rss_limit_mb=3072",
            "-print_final_stats=1", "-verbosity=1"]


def keep(exe, name, corpus, env):
    kept = os.path.join(CORPUS, name)
    os.makedirs(kept, exist_ok=True)
    # The fewest inputs that reach the same edges, however often. Goes on after inputs that crash.
    subprocess.run([exe, "-set_cover_merge=1", "-use_counters=0", f"-max_len={KEPT_BYTES_MAX}", kept, corpus],
                   env=env, check=True, capture_output=True)


def run(build, name, seconds, keeps):
    exe = os.path.join(build, "bin", name)
    findings = os.path.join(build, "findings", name)
    os.makedirs(findings, exist_ok=True)
    env = {"WEFT_SHARED_DIR": os.path.join(SOURCE_DIR, "../shared"), **os.environ, "WEFT_SOURCE_DIR": SOURCE_DIR}
    with tempfile.TemporaryDirectory() as corpus, tempfile.NamedTemporaryFile() as words:
        folders = [corpus] + ([os.path.join(CORPUS, name)] if os.path.isdir(os.path.join(CORPUS, name)) else [])
        dictionary = [f"-dict={write_dictionary(name, words.name)}"] if name in MODULES else []
        done = subprocess.run([exe, *options(name, seconds), f"-artifact_prefix={findings}/",
                               *dictionary, *folders],
                              env={**env, "WEFT_FUZZ_SEEDS": corpus}, capture_output=True, text=True, errors="replace")
        if keeps:
            keep(exe, name, corpus, env)
    stats = dict(re.findall(r"stat::(\w+):\s+(\d+)", done.stderr))
    covered = re.findall(r"cov: (\d+)", done.stderr)
    return done, f"{name}: {stats.get('number_of_executed_units', '?')} inputs, {covered[-1] if covered else '?'} edges"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_intermixed_args()
    build, failed = os.path.abspath(args.build), []
    names = sorted(targets(build, args.targets), key=lambda n: -SHARES.get(n, 1))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for done, said in pool.map(lambda n: run(build, n, args.seconds, args.keep), names):
            print(said + ("" if done.returncode == 0 else ": FAILED"), flush=True)
            if done.returncode != 0:
                failed.append(said)
                print(done.stderr[-6000:], flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
