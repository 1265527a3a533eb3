#!/usr/bin/env python3
"""What dividing a model among workers gains and costs: groups of 1, 2, 4, 8 workers with a core each, against one worker
with one core, and against one worker with as many threads.

    bench/scaling.py [--bin build/bin] --model MODEL [--workers 1,2] [--rounds 5] [--json FILE]

All servers run at the same time and are measured in turns; whoever is not measured sleeps. A round measures of each:

prompt    512 random tokens, tokens per second until the first one of the answer
decode N  N streams of 64 tokens each, tokens per second from their first to their last
meeting   time in meetings of the ranks, waits included, as a share of steps' time; mean over ranks, and the least of
          them, which is what meetings cost where nobody waits for anybody

and what 1, 2, ... threads read from memory (`weft bench`). Medians over rounds are printed: of the ratio to one worker on
one core, and of the ratio to one worker with as many threads. Goals, for 2 workers: prompt 1.9 x one core, decode 0.95 x
what two threads read over what one does, 0.97 x two threads, meetings 3 % of a step.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse

import peer

PROMPT, GEN, STREAMS = 512, 64, (1, 8)


def post(url, body):
    host = urllib.parse.urlparse(url)
    conn = http.client.HTTPConnection(host.hostname, host.port, timeout=600)
    conn.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = conn.getresponse()
    if reply.status != 200:
        sys.exit(reply.read().decode())
    return reply


def stream(url, rng_seed, n_prompt, n_gen):
    """When each token came."""
    rng = random.Random(rng_seed)
    body = {"prompt": [rng.randrange(5, 900) for _ in range(n_prompt)], "max_tokens": n_gen, "temperature": 0,
            "ignore_eos": True, "stream": True, "return_tokens_as_token_ids": True, "logprobs": 0}
    begin, times = time.monotonic(), []
    for line in post(url, body):
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:])["choices"]
            n = len(((choices and choices[0].get("logprobs")) or {}).get("tokens") or [])
            times += [time.monotonic() - begin] * n
    return times


def metrics(url):
    host = urllib.parse.urlparse(url)
    conn = http.client.HTTPConnection(host.hostname, host.port, timeout=60)
    conn.request("GET", "/metrics")
    found = {}
    for line in conn.getresponse().read().decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def told(url):
    """(seconds that steps took, [seconds in meetings] of each rank)"""
    time.sleep(0.6)  # heartbeats and snapshots come four times a second
    found = metrics(url)
    busy = sum(v for k, v in found.items() if k.startswith("weft_worker_busy_seconds_total"))
    meetings = [v for k, v in sorted(found.items()) if k.startswith("weft_worker_meeting_seconds_total")]
    return busy, meetings


def decode(url, seed, n_streams):
    results = [None] * n_streams

    def run(i):
        results[i] = stream(url, seed * 100 + i, 16, GEN)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(n_streams)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    first, last = max(r[0] for r in results), min(r[-1] for r in results)
    return sum(sum(first < t <= last for t in r) for r in results) / (last - first)


def measure(url, seed):
    figures = {"prompt": (PROMPT / stream(url, seed, PROMPT, 1)[0])}
    for n in STREAMS:
        busy, meetings = told(url)
        figures[f"decode {n}"] = decode(url, seed, n)
        busy_then, meetings_then = told(url)
        shares = [(b - a) / (busy_then - busy) for a, b in zip(meetings, meetings_then)]
        if shares:
            figures[f"meeting {n}"] = statistics.mean(shares)
            figures[f"least meeting {n}"] = min(shares)
    return figures


def read_rate(args, n_threads):
    """GB/s that so many threads read."""
    done = subprocess.run([os.path.join(args.bin, "weft"), "bench", args.small, "--threads", str(n_threads), "--prompt", "16",
                           "--gen", "1", "--batch", "1", "--reps", "1", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["machine"]["dram_read_gb_per_s"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--model", required=True)
    parser.add_argument("--small", default="models/fable-6m")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()
    numbers = [int(n) for n in args.workers.split(",")]
    rows = {}
    with contextlib.ExitStack() as stack:
        def start(n_workers, n_threads):
            cpus = "/".join(str(i) for i in range(n_workers)) if n_workers > 1 else f"0-{n_threads - 1}"
            options = ["--workers", str(n_workers), "--cpus", cpus, "--kv-memory", "256MiB", "--no-prefix-cache"]
            if n_workers > 1:
                options += ["--layout", "tp"]
            return stack.enter_context(peer.weft_server(args, args.model, n_threads, 0, *options))[0]
        servers = {("threads", n): start(1, n) for n in numbers}
        servers.update({("workers", n): start(n, 1) for n in numbers if n > 1})
        for url in servers.values():
            stream(url, 0, PROMPT, 4)  # warm
        for seed in range(1, args.rounds + 1):
            order = list(servers.items())
            for key, url in order if seed % 2 else reversed(order):
                for name, value in measure(url, seed).items():
                    rows.setdefault((*key, name), []).append(value)
            for n in numbers:
                rows.setdefault(("read", n, "GB/s"), []).append(read_rate(args, n))
    report = judge(rows, numbers)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(report, f, indent=1)


def ratio(rows, above, below):
    return statistics.median(a / b for a, b in zip(rows[above], rows[below]))


def judge(rows, numbers):
    report = {}

    def say(what, value, goal=None, is_most=False):
        is_met = goal is None or (value <= goal if is_most else value >= goal)
        report[what] = value
        print(f"{what:58} {value:8.3f}" + (f"   goal {goal:.3f}: {'met' if is_met else 'NOT MET'}" if goal else ""))
    for (kind, n, name), values in sorted(rows.items()):
        say(f"{kind} {n}: {name}", statistics.median(values))
    for n in numbers:
        if n == 1:
            continue
        reads = ratio(rows, ("read", n, "GB/s"), ("read", 1, "GB/s"))
        say(f"{n} threads read, of what one does", reads)
        for name in ["prompt"] + [f"decode {k}" for k in STREAMS]:
            goal = None
            if n == 2:
                goal = 1.9 if name == "prompt" else 0.95 * reads if name == "decode 1" else None
            say(f"{n} workers of one core: {name}", ratio(rows, ("workers", n, name), ("threads", 1, name)), goal)
            say(f"{n} workers of one worker with {n} threads: {name}",
                ratio(rows, ("workers", n, name), ("threads", n, name)), 0.97 if n == 2 else None)
        for k in STREAMS:
            say(f"{n} workers: share of a step in meetings, decode {k}",
                statistics.median(rows[("workers", n, f"meeting {k}")]), 0.03 if n == 2 else None, True)
    return report


if __name__ == "__main__":
    main()
