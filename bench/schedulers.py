#!/usr/bin/env python3
"""What of a prefix cache is lost where two schedulers share its memory, and how evenly they are loaded: Mooncake's trace
through one router, once with two schedulers of half the memory each, and once with one that has all of it.

    bench/schedulers.py --trace mooncake_synthetic_trace.jsonl [--bin build/bin] [--requests 2000] [--rate 60]
                        [--kv-memory 48MiB] [--scale 32]

The model is a small one of tests/data/zoo, whose config is told that it has 8192 positions: its answers mean nothing, and
its cache and schedulers behave like any. Goals: 90 % of the hit rate of the one cache, and neither scheduler with more
than 1.3 times the mean of the requests that both had open.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

MODEL = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests/data/zoo/smollm3")
POSITIONS = 8192


def long_model(folder):
    path = os.path.join(folder, "long")
    shutil.copytree(MODEL, path)
    config = os.path.join(path, "config.json")
    with open(config, encoding="utf-8") as f:
        text = json.load(f)
    text["max_position_embeddings"] = POSITIONS
    with open(config, "w", encoding="utf-8") as f:
        json.dump(text, f)
    return path


def get(url, path):
    with urllib.request.urlopen(url + path, timeout=60) as reply:
        return reply.read().decode()


def metrics(url):
    found = {}
    for line in get(url, "/metrics").splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def summed(found, name):
    return sum(v for k, v in found.items() if k.split("{")[0] == name)


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)(MiB|GiB)", text).groups()
    return int(number) << (20 if unit == "MiB" else 30)


@contextlib.contextmanager
def cluster(args, model, n):
    """The URL of a router before n schedulers, which share --kv-memory."""
    name = f"abstract://weft-bench-{os.getpid()}-{time.monotonic_ns()}"
    urls = [f"{name}-{i}" for i in range(n)]
    procs = []

    def start(program, *options, **how):
        command = [os.path.join(args.bin, program), *options, "--log-level", "info"]
        procs.append(subprocess.Popen(command, stderr=how.get("stderr", subprocess.DEVNULL), text=True))
        return procs[-1]
    try:
        for url in urls:
            start("weft-scheduler", "--scheduler-url", url, "--worker-url", url + "-w", "--max-queue", "100000")
            start("weft-worker", model, "--worker-url", url + "-w", "--threads", "1", "--max-model-len", str(POSITIONS),
                  "--kv-memory", str(bytes_of(args.kv_memory) // n))
        router = start("weft-router", model, *[o for url in urls for o in ("--scheduler-url", url)], "--port", "0", "--no-rpc",
                       "--max-queue", "100000", stderr=subprocess.PIPE)
        url = next((m[1] for line in router.stderr if (m := re.search(r"ready on (http://\S+)", line))), None)
        if not url:
            sys.exit("the router did not start")
        threading.Thread(target=router.stderr.read, daemon=True).start()
        while summed(metrics(url), "weft_workers") < n:
            time.sleep(0.1)
        yield url
    finally:
        for proc in procs:
            proc.kill()
            proc.wait()


def watch(url, samples, is_over):
    """How many requests each scheduler has open, some times a second."""
    while not is_over.wait(0.1):
        samples.append([s["open_requests"] for s in json.loads(get(url, "/stats")).get("schedulers", [])])


def replay(args, url):
    samples, is_over = [], threading.Event()
    thread = threading.Thread(target=watch, args=(url, samples, is_over))
    thread.start()
    done = subprocess.run([os.path.join(args.bin, "weft"), "bench-serve", url, "--trace", args.trace, "--scale",
                           str(args.scale), "--requests", str(args.requests), "--rate", str(args.rate), "--vocab", "500",
                           "--extra", '{"ignore_eos": true}', "--json"], capture_output=True, text=True, check=False)
    is_over.set()
    thread.join()
    if done.returncode != 0:
        sys.exit(done.stderr)
    found = metrics(url)
    rate = summed(found, "weft_prefix_cache_hits_total") / summed(found, "weft_prefix_cache_queries_total")
    return rate, samples, json.loads(done.stdout)


def imbalance(samples):
    """The most of either over the mean, of sums over time: who had more to do."""
    sums = [sum(s) for s in zip(*(s for s in samples if len(s) == 2))]
    return max(sums) / statistics.mean(sums) if sums and sum(sums) else 1.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--trace", required=True)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=60)
    parser.add_argument("--scale", type=int, default=32)
    parser.add_argument("--kv-memory", default="48MiB")
    args = parser.parse_args()
    if not os.path.exists(args.trace):
        print(f"SKIPPED: there is no {args.trace}")
        return
    with tempfile.TemporaryDirectory() as folder:
        model = long_model(folder)
        rates = {}
        for n in (1, 2):
            with cluster(args, model, n) as url:
                rates[n], samples, told = replay(args, url)
            print(f"{n} scheduler{'s' * (n > 1)}: {100 * rates[n]:.1f} % of prompt tokens were cached, "
                  f"{told['failed']} of {told['requests']} requests failed", flush=True)
    part, uneven = rates[2] / rates[1], imbalance(samples)
    print(f"two of one: {100 * part:.1f} %, goal 90: {'met' if part >= 0.9 else 'NOT MET'}")
    print(f"imbalance: {uneven:.2f}, goal 1.3: {'met' if uneven < 1.3 else 'NOT MET'}")


if __name__ == "__main__":
    main()
