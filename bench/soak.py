#!/usr/bin/env python3
"""An hour under clients that come, read and walk away: does any process grow?

    bench/soak.py [--minutes 60] [--clients 32] [--seed 1] [--bin build/bin] [--csv FILE] [MODEL] [-- serve options]

Each client sends one request after another: prompts, lengths, sampling, streams or whole answers by the seed, some with
a prefix that others have, too. A third of them leaves in the middle: before the answer, or after some of it. The
resident memory of supervisor, router, scheduler and worker is sampled every second. The goal: over the last half
medians of a minute (of a sixth of that half, if it is shorter) of their sum lie within 1 % of each other, no process was
replaced, and no request failed. Printed for each process: the least and the most, and the slope of a straight line.
"""

import argparse
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

import behind
from footprint import ROOT

GOAL = 0.01
TIMEOUT_S = 120
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") / 1024
VOCAB = range(300, 4000)


def processes(parent):
    """{name: process id} of a supervisor and its children."""
    found = {"weft": parent}
    with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as f:
        for pid in f.read().split():
            with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
                name = comm.read().strip()
            found[name if name not in found else f"{name} {pid}"] = int(pid)
    return found


def resident_kib(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * PAGE_KIB


class Client(threading.Thread):
    """One request after another until `over` is set."""

    def __init__(self, port, over, seed):
        super().__init__(daemon=True)
        self.port, self.over, self.rng = port, over, random.Random(seed)
        self.n_whole = self.n_left = 0
        self.failures = []

    def body(self):
        rng = self.rng
        prompt = rng.choices(VOCAB, k=rng.randrange(1, 200))
        if rng.random() < 0.3:  # what others begin with, too
            prompt = [1000 + i for i in range(64)] + prompt
        body = {"prompt": prompt, "max_tokens": rng.randrange(1, 128), "ignore_eos": True, "stream": rng.random() < 0.7,
                "temperature": rng.choice((0, 0.8)), "seed": rng.randrange(1 << 30)}
        if rng.random() < 0.1:
            body["n"] = rng.randrange(2, 5)
        if rng.random() < 0.1:
            body["logprobs"] = 3
        return body

    def run(self):
        while not self.over.is_set():
            try:
                self.one()
            except OSError as why:
                self.failures.append(repr(why))

    def one(self):
        body = self.body()
        text = json.dumps(body).encode()
        leaves = self.rng.random() < 1 / 3
        patience_s, patience_bytes = self.rng.random() * 0.2, self.rng.randrange(0, 1 << 14)
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as sock:
            sock.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n" % len(text) + text)
            if leaves and not body["stream"]:
                time.sleep(patience_s)
                self.n_left += 1
                return
            head, end, n_bytes = b"", b"", 0
            while piece := sock.recv(1 << 16):
                head, end, n_bytes = (head + piece)[:64], (end + piece)[-64:], n_bytes + len(piece)
                if leaves and n_bytes > patience_bytes:
                    self.n_left += 1
                    return
        if not re.match(rb"HTTP/1\.\d 200 ", head) or (body["stream"] and b"[DONE]" not in end):
            self.failures.append(f"{head!r} ... {end!r}")
        self.n_whole += 1


def slope(points):
    """Of the least-squares line through (seconds, KiB), in KiB per hour."""
    mean_x, mean_y = (statistics.fmean(p[i] for p in points) for i in (0, 1))
    square = sum((x - mean_x) ** 2 for x, _ in points)
    return 3600 * sum((x - mean_x) * (y - mean_y) for x, y in points) / square if square else 0.0


def start(args):
    command = [os.path.join(args.bin, "weft"), "serve", args.model, "--port", "0", "--no-rpc", "--log-level", "warn",
               *args.options]
    proc = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in proc.stderr:
        match = re.search(r"^weft: ready on http://\S*:(\d+)$", line.strip())
        if match:
            threading.Thread(target=lambda: [sys.stderr.write(rest) for rest in proc.stderr], daemon=True).start()
            return proc, int(match.group(1))
    sys.exit("the server did not start")


def sample(args, server, of_clients):
    """[(seconds, {name: KiB})]; ends early when a process is gone."""
    names, samples, begin, told = processes(server.pid), [], time.monotonic(), 0
    while (now := time.monotonic() - begin) < 60 * args.minutes:
        if processes(server.pid) != names:
            return samples, "a process was replaced"
        samples.append((now, {name: resident_kib(pid) for name, pid in names.items()}))
        if now - told >= 60:
            told = now
            print(f"{now / 60:.0f} of {args.minutes:g} minutes, {sum(samples[-1][1].values()) / 1024:.1f} MiB, "
                  f"{sum(c.n_whole for c in of_clients)} answers, {sum(c.n_left for c in of_clients)} left", file=sys.stderr)
        time.sleep(max(0.0, 1 - (time.monotonic() - begin - now)))
    return samples, None


def report(args, samples, clients, why):
    half = [s for s in samples if s[0] >= samples[-1][0] / 2]
    bucket_s = min(60.0, max(1.0, (half[-1][0] - half[0][0]) / 6))
    buckets = {}
    for at, by_name in half:
        buckets.setdefault(int((at - half[0][0]) / bucket_s), []).append(sum(by_name.values()))
    medians = [statistics.median(values) for values in buckets.values()]
    spread = max(medians) / min(medians) - 1
    print("| process | first, MiB | last half, least | most | slope, KiB per hour | of its size, % per hour |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in [*samples[0][1], "all"]:
        def size(by_name, name=name):
            return sum(by_name.values()) if name == "all" else by_name[name]
        points = [(at, size(by_name)) for at, by_name in half]
        values = [kib for _, kib in points]
        print(f"| {name} | {size(samples[0][1]) / 1024:.2f} | {min(values) / 1024:.2f} | {max(values) / 1024:.2f} | "
              f"{slope(points):+.0f} | {100 * slope(points) / statistics.fmean(values):+.2f} |")
    failures = [f for c in clients for f in c.failures]
    print(f"\n{sum(c.n_whole for c in clients)} answers read to the end, {sum(c.n_left for c in clients)} clients left early, "
          f"{len(failures)} failures" + (f", the first: {failures[0]}" if failures else "") + ".")
    if why:
        print(f"{why[0].upper()}{why[1:]}.")
    is_met = spread <= GOAL and not failures and not why
    print(f"Resident memory of all processes over the last half of {samples[-1][0] / 60:.1f} minutes: within "
          f"{100 * spread:.2f} %; goal {100 * GOAL:g} %: {'met' if is_met else 'not met'}.")
    return is_met


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=os.path.join(ROOT, "models/fable-6m"))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    parser.add_argument("--csv", metavar="FILE", help="write every sample there")
    args = behind.parse_args(parser, "weft serve")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that the server is stopped
    server, port = start(args)
    over = threading.Event()
    clients = [Client(port, over, args.seed * 1000 + i) for i in range(args.clients)]
    try:
        for client in clients:
            client.start()
        samples, why = sample(args, server, clients)
        over.set()
        for client in clients:
            client.join(TIMEOUT_S)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    if len(samples) < 4:
        sys.exit(why or "too short: there are no four samples")
    if args.csv:
        with open(args.csv, "w", encoding="utf-8") as f:
            f.write("seconds," + ",".join(samples[0][1]) + "\n")
            f.writelines(f"{at:.1f}," + ",".join(f"{kib:.0f}" for kib in by_name.values()) + "\n" for at, by_name in samples)
    sys.exit(0 if report(args, samples, clients, why) else 1)


if __name__ == "__main__":
    main()
