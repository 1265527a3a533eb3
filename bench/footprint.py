#!/usr/bin/env python3
"""Time to ready and resident memory of `weft serve`, medians of some starts. Prints one line of JSON.

    bench/footprint.py [--runs 7] [--bin build/bin] [MODEL] [-- serve options]
    bench/footprint.py --loading [--runs 1] [--bin build/bin] MODEL [-- serve options]

Time runs from just before the process is made to the arrival of its ready line. Memory is PSS
(/proc/PID/smaps_rollup) of router, scheduler and workers after one request to each worker; the supervisor's is
printed beside it.

--loading: the most memory that all processes have together until the server is ready, beside the page cache (anonymous
pages, and those of memory files, mapped or not), by looking all the time; and over the size of the packed weights.
"""

import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

import behind

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def pss_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Pss:"))


def children_of(parent):
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as f:
                text = f.read()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        if int(rest[1]) == parent:
            found.setdefault(name, []).append(int(entry))
    return found


def wait_for_workers(port, pid):
    """Their process ids, once all of them serve."""
    while True:
        conn = http.client.HTTPConnection("127.0.0.1", port)
        conn.request("GET", "/metrics")
        if re.search(r'weft_workers{.*state="absent"} 0\n', conn.getresponse().read().decode()):
            return children_of(pid)["weft-worker"]
        time.sleep(0.02)


def one_start(command):
    begin = time.monotonic()
    proc = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for line in proc.stderr:
            if line.startswith("weft: ready on "):
                ready_ms = (time.monotonic() - begin) * 1e3
                port = int(line.rsplit(":", 1)[1])
                break
        else:
            sys.exit("the server did not start")
        n_workers = len(wait_for_workers(port, proc.pid))
        conns = [http.client.HTTPConnection("127.0.0.1", port) for _ in range(n_workers)]
        for conn in conns:  # at once, and so one for each worker
            conn.request("POST", "/v1/completions", json.dumps({"prompt": "Once upon a time", "max_tokens": 64}))
        for conn in conns:
            assert conn.getresponse().status == 200
        pss = {name: sum(pss_kib(pid) for pid in pids) / 1024 for name, pids in children_of(proc.pid).items()}
        pss["weft"] = pss_kib(proc.pid) / 1024
    finally:
        proc.send_signal(signal.SIGTERM)
        proc.wait()
    return ready_ms, pss


def loading_kib(pid):
    """What the process and its children have that is no file's: pages of their own, and those of memory files once."""
    own, shared, memfds = 0, 0, 0
    for each in [pid, *(p for pids in children_of(pid).values() for p in pids)]:
        try:
            with open(f"/proc/{each}/smaps_rollup", encoding="ascii") as f:
                sizes = dict(re.findall(r"^Pss_(\w+): +(\d+) kB$", f.read(), re.M))
        except OSError:
            continue  # it has just ended
        own, shared = own + int(sizes.get("Anon", 0)), shared + int(sizes.get("Shmem", 0))
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        try:
            if "memfd:" in os.readlink(path):
                memfds += os.stat(path).st_blocks // 2
        except OSError:
            pass  # it has just been closed
    return own + max(shared, memfds)


def one_loading(command):
    """(most KiB until ready, KiB of packed weights)"""
    with subprocess.Popen(command, stderr=subprocess.PIPE) as proc:
        os.set_blocking(proc.stderr.fileno(), False)
        text, most = "", 0
        try:
            while "weft: ready on" not in text:
                if proc.poll() is not None:
                    sys.exit(f"the server did not start:\n{text}")
                most = max(most, loading_kib(proc.pid))
                text += (proc.stderr.read() or b"").decode()
                time.sleep(0.005)
            packed = sum(os.stat(f"/proc/{proc.pid}/fd/{fd}").st_size // 1024 for fd in os.listdir(f"/proc/{proc.pid}/fd")
                         if "memfd:weft-weights" in os.readlink(f"/proc/{proc.pid}/fd/{fd}"))
        finally:
            proc.send_signal(signal.SIGTERM)
    return most, packed


def print_loading(command, runs):
    rounds = [one_loading(command) for _ in range(runs)]
    peak, packed = max(most for most, _ in rounds), rounds[0][1]
    if not packed:
        sys.exit("nothing is packed: the model is a packed file")
    print(json.dumps({"packed_mib": round(packed / 1024, 1), "peak_mib": round(peak / 1024, 1), "runs": runs,
                      "ratio": round(peak / packed, 3), "goal": 1.05, "met": peak <= 1.05 * packed}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?", default=os.path.join(ROOT, "models/fable-6m"))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--loading", action="store_true", help="the peak while the model is loaded")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    args = behind.parse_args(parser, "weft serve")
    options = args.options or ["--kv-memory", "16MiB"]
    command = [os.path.join(args.bin, "weft"), "serve", args.model, "--port", "0", "--rpc-port", "0", *options]
    if args.loading:
        print_loading(command, args.runs)
        return
    starts = [one_start(command) for _ in range(args.runs)]
    times = sorted(t for t, _ in starts)
    names = sorted(starts[0][1])
    pss = {n: round(statistics.median(p[n] for _, p in starts), 1) for n in names}
    three = round(statistics.median(sum(v for n, v in p.items() if n != "weft") for _, p in starts), 1)
    print(json.dumps({"ready_ms": {"median": round(statistics.median(times)), "min": round(times[0]),
                                   "max": round(times[-1])}, "runs": args.runs, "pss_mib": pss, "three_processes_mib": three,
                      "goal": {"ready_ms": 300, "three_processes_mib": 60},
                      "met": statistics.median(times) <= 300 and three < 60}))


if __name__ == "__main__":
    main()
