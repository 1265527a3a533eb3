#!/usr/bin/env python3
"""weft's server beside llama-server on the same files, in turns, under the same streaming clients.

    LLAMA_BIN=DIR bench/peer.py --model tl-Q8_0.gguf [--rows server,crowd,small,busy,mixed,trace,turns,deadlines] [--rounds N]
                                [--threads 2] [--requests 3] [--json FILE] [--trace FILE.csv]

LLAMA_BIN (or --llama-bin) names the folder of a build's llama-server. Without it the rows trace and turns have npm's
node-llama-cpp behind a server of ours (bench/peer/llama_server.mjs, named `npm` in what is printed) beside weft, and the
others weft alone. Every round measures the machine and then both servers, first one and then the other; it prints
medians of the rounds, and ratios as medians of each round's ratio. `weft bench-serve` is the client of both.

server  --model, --threads compute threads, 128 random tokens in, 64 out: 16 clients, and 1
crowd   the same with 64 clients, all of which may be computed at once
small   --small-model (fable-6m in Q8_0), one compute thread, 64 in, 64 out: 1, 8 and 32 clients; and the CPU time of
        weft's router and scheduler for each token that is streamed
busy    --model again, 1 and 6 clients, with and without four processes at nice 10 that never sleep
mixed   --model again, 8 streams: their gaps alone (before and after, since gaps grow with the text), and while prompts of
        1900 tokens come in, one after another for half a minute; with the default of --itl-target-ms, with 60, and with
        100, which is what --step-target had
trace   --model, AzureLLMInferenceTrace_code.csv with inputs / 16 and outputs / 2, at least 8, as a Poisson process (the
        trace's own first minute is two bursts): the rate is raised until goodput (first token within 2 s, 99 % of the
        gaps under 200 ms) falls; then both at a load that both carry
turns   --model, 16 conversations of 6 turns: tokens per second
deadlines  weft alone, the same trace at 1.5 x what a closed loop of 32 clients reaches, half of the requests with 1 s to
        their first token, half with 10 s: goodput with --scheduling-policy edf and with fcfs

The rounds are 5, but 1 of trace, 3 of turns and 2 of deadlines: each of these rows takes under ten minutes.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START_LIMIT_S, LOAD_LIMIT_S = 300, 3600
N_BUSY, BUSY_NICE = 4, 10
BUSY_WEIGHT = 110 / 1024  # of a process at nice 10 beside one at nice 0, to Linux's scheduler


def stop(proc):
    proc.send_signal(signal.SIGTERM)
    try:
        proc.wait(30)
    except subprocess.TimeoutExpired:
        proc.kill()
        proc.wait()


@contextlib.contextmanager
def weft_server(args, model, threads, _n_slots, *options):
    """Its URL, and the process ids of all but the worker."""
    proc = subprocess.Popen([os.path.join(args.bin, "weft"), "serve", model, "--port", "0", "--rpc-port", "0", "--threads",
                             str(threads), "--log-level", "warn", *options], stderr=subprocess.PIPE, text=True)
    try:
        url = next((line.split()[-1] for line in proc.stderr if line.startswith("weft: ready on ")), None)
        if not url:
            raise SystemExit("weft serve did not start")
        yield url, [pid for name, pid in children_of(proc.pid).items() if name != "weft-worker"]
    finally:
        stop(proc)


@contextlib.contextmanager
def llama_server(args, model, threads, n_slots, *options):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [os.path.join(args.llama_bin, "llama-server"), "-m", model, "--host", "127.0.0.1", "--port", str(port), "-t",
               str(threads), "-tb", str(threads), "--parallel", str(n_slots), "-c", "8192", "-b", "2048", "-ub", "512",
               *options]
    proc = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + START_LIMIT_S
        while not is_healthy(url):
            if proc.poll() is not None or time.monotonic() > end:
                raise SystemExit("llama-server did not start")
            time.sleep(0.1)
        yield url, []
    finally:
        stop(proc)


@contextlib.contextmanager
def npm_server(_args, model, threads, n_slots, *_options, script="llama_server.mjs"):
    """llama.cpp as an npm package has it, behind one of bench/peer's scripts."""
    sys.path.insert(0, os.path.join(ROOT, "tests/system"))
    import npm_packages  # noqa: PLC0415 - only who has no llama-server needs it
    folder = npm_packages.folder("llama", {"node-llama-cpp": "3.22.1"}, 20)
    shutil.copy(os.path.join(ROOT, "bench/peer", script), folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    proc = subprocess.Popen(["node", script, os.path.abspath(model), str(port), str(n_slots), "1024",
                             str(threads)], cwd=folder, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + START_LIMIT_S
        while not is_healthy(url):
            if proc.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"bench/peer/{script} did not start")
            time.sleep(0.1)
        yield url, []
    finally:
        stop(proc)


def is_healthy(url):
    try:
        with urllib.request.urlopen(url + "/health", timeout=5) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


def children_of(parent):
    """{name: process id}"""
    found = {}
    with contextlib.suppress(OSError), open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as f:
        for pid in f.read().split():
            with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
                found[comm.read().strip()] = int(pid)
    return found


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):  # all of them live as long as their process
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
    return total / 1e9


@contextlib.contextmanager
def busy_neighbours():
    procs = [subprocess.Popen(["nice", "-n", str(BUSY_NICE), sys.executable, "-c", "while True: pass"])
             for _ in range(N_BUSY)]
    try:
        yield
    finally:
        for proc in procs:
            proc.kill()
            proc.wait()


def load(args, url, clients, requests, prompt, vocab, seed):
    done = subprocess.run([os.path.join(args.bin, "weft"), "bench-serve", url, "--concurrency", str(clients), "--requests",
                           str(requests), "--prompt-tokens", str(prompt), "--max-tokens", str(args.max_tokens), "--vocab", str(vocab),
                           "--seed", str(seed), "--json"], capture_output=True, text=True, timeout=LOAD_LIMIT_S, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)


def measure_machine(args, model, threads):
    """The machine's ceilings in this minute, and the model's size."""
    done = subprocess.run([os.path.join(args.bin, "weft"), "bench", model, "--prompt", "1", "--gen", "1", "--context", "1",
                           "--batch", "1", "--reps", "1", "--threads", str(threads), "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)


class Row:
    """One row of the table: which model, which clients, under which circumstances."""

    keys = ("clients", "busy")  # what tells the results of one server apart

    def __init__(self, name, model, threads, clients, prompt, vocab, requests, n_slots, busy=(False,)):
        self.name, self.model, self.threads, self.clients, self.prompt = name, model, threads, clients, prompt
        self.vocab, self.requests, self.n_slots, self.busy = vocab, requests, n_slots, busy

    def measure(self, args, server, machine, seed):
        """{(clients, busy): result} of one server."""
        results = {}
        with server(args, self.model, self.threads, self.n_slots) as (url, pids):
            load(args, url, min(self.clients), min(self.clients), self.prompt, self.vocab, 0)  # warm
            for busy in self.busy:
                with busy_neighbours() if busy else contextlib.nullcontext():
                    for clients in self.clients:
                        before = cpu_seconds(pids)
                        result = load(args, url, clients, self.requests(clients), self.prompt, self.vocab, seed)
                        used = cpu_seconds(pids) - before
                        result["front_us_per_token"] = used * 1e6 / result["tokens"] if pids else None
                        ops = 2e-9 * (machine["layer_weights"] + machine["head_weights"])
                        peak = machine["machine"]["vnni_gop_per_s"]
                        result["of_vnni_peak"] = result["all_decoding"]["tokens_per_s"] * ops / peak
                        results[clients, busy] = result
        return results

    def summarise(self, rounds):
        return summarise(self, rounds)

    @staticmethod
    def print_head():
        print_head()

    @staticmethod
    def print_lines(lines):
        print_lines(lines)


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def shown(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def field(result, path):
    for key in path.split("."):
        result = result[key]
    return result


FIELDS = ["tokens_per_s", "first_token_ms.p50", "first_token_ms.p95", "between_tokens_ms.p50", "between_tokens_ms.p95",
          "all_decoding.tokens_per_s", "of_vnni_peak", "front_us_per_token"]


def summarise(row, rounds):
    """One line for each server, number of clients and circumstance; rounds: [{server: {key: result}}]."""
    lines = []
    for busy in row.busy:
        for clients in row.clients:
            for name in rounds[0]:
                of = [r[name][clients, busy] for r in rounds]
                line = {"row": row.name, "server": name, "clients": clients, "busy_neighbours": N_BUSY if busy else 0,
                        **{path: median([field(r, path) for r in of]) for path in FIELDS}}
                if name == "weft" and "llama-server" in rounds[0]:
                    peers = [r["llama-server"][clients, busy] for r in rounds]
                    line["ratio"] = median([a["tokens_per_s"] / b["tokens_per_s"] for a, b in zip(of, peers)])
                    line["first_token_ratio"] = median([a["first_token_ms"]["p50"] / b["first_token_ms"]["p50"]
                                                        for a, b in zip(of, peers)])
                if busy:
                    alone = [r[name][clients, False]["tokens_per_s"] for r in rounds]
                    line["lost"] = median([1 - a["tokens_per_s"] / b for a, b in zip(of, alone)])
                lines.append(line)
    return lines


class Stream:
    """A completion that a thread of its own reads, and when its tokens came."""

    def __init__(self, url, prompt, max_tokens):
        self.times, self.is_over, self.begin = [], threading.Event(), time.monotonic()
        self.connection = http.client.HTTPConnection(url.split("//")[1], timeout=LOAD_LIMIT_S)
        self.body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
                                "stream": True, "logprobs": 0, "return_tokens_as_token_ids": True})
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            self.connection.request("POST", "/v1/completions", self.body, {"Content-Type": "application/json"})
            reply = self.connection.getresponse()
            for line in reply if reply.status == 200 else ():
                if line.startswith(b"data: {"):
                    self.times.append(time.monotonic())
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            pass  # it was closed from here
        self.is_over.set()

    def close(self):
        with contextlib.suppress(OSError, AttributeError):
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(30)

    def gaps(self, begin, end):
        times = [t for t in self.times if begin <= t <= end]
        return [1e3 * (b - a) for a, b in zip(times, times[1:])]


class Mixed:
    """Streams, and long prompts beside them."""

    keys = ("target",)
    N_STREAMS, N_PROMPT, N_OF_STREAM, ALONE_S, BESIDE_S = 8, 1900, 2000, 10, 30
    # What follows is the server's command line; the first key of each server is its default.
    OPTIONS = {"weft": {"default": (), "60": ("--itl-target-ms", "60"), "100": ("--itl-target-ms", "100")},
               "llama-server": {"default": ("-c", str((N_STREAMS + 1) * 2048))}}

    def __init__(self, args):
        self.name, self.model, self.threads = "mixed", args.model, args.threads
        self.vocab = args.vocab

    def prompt(self, rng, n):
        return [rng.randrange(300, self.vocab) for _ in range(n)]  # below are control tokens and bytes

    def first_token_ms(self, url, rng):
        stream = Stream(url, self.prompt(rng, self.N_PROMPT), 1)
        if not stream.is_over.wait(LOAD_LIMIT_S) or not stream.times:
            raise SystemExit("mixed: a prompt brought no token")
        return 1e3 * (stream.times[0] - stream.begin)

    def measure_one(self, url, rng):
        alone_ms = [self.first_token_ms(url, rng) for _ in range(2)][-1]  # the first one warms
        streams = [Stream(url, self.prompt(rng, 16), self.N_OF_STREAM) for _ in range(self.N_STREAMS)]
        try:
            while not all(len(s.times) > 8 for s in streams):
                if any(s.is_over.is_set() for s in streams):
                    raise SystemExit("mixed: a stream did not begin")
                time.sleep(0.05)
            begin = time.monotonic()
            time.sleep(self.ALONE_S)
            middle = time.monotonic()
            first = []
            while time.monotonic() - middle < self.BESIDE_S:
                first.append(self.first_token_ms(url, rng))
            end = time.monotonic()
            time.sleep(self.ALONE_S)
            if any(s.is_over.is_set() for s in streams):
                raise SystemExit("mixed: a stream ended before the prompts did")
        finally:
            for s in streams:
                s.close()
        alone = sorted(gap for s in streams for gap in s.gaps(begin, middle) + s.gaps(end, end + self.ALONE_S))
        beside = sorted(gap for s in streams for gap in s.gaps(middle, end))
        return {"gap_alone_ms": percentiles(alone), "gap_with_prompts_ms": percentiles(beside),
                "p99_ratio": percentiles(beside)["p99"] / percentiles(alone)["p99"],
                "first_token_ms": statistics.median(first), "first_token_alone_ms": alone_ms}

    def measure(self, args, server, _machine, seed):
        name = "weft" if server is weft_server else "llama-server"
        results = {}
        for target, options in self.OPTIONS[name].items():
            with server(args, self.model, self.threads, self.N_STREAMS + 1, *options) as (url, _):
                results[target,] = self.measure_one(url, random.Random(seed))
        return results

    def summarise(self, rounds):
        paths = ["gap_alone_ms.p50", "gap_alone_ms.p99", "gap_with_prompts_ms.p50", "gap_with_prompts_ms.p99", "p99_ratio",
                 "first_token_ms", "first_token_alone_ms"]
        return [{"row": self.name, "server": name, "target": key[0],
                 **{path: median([field(r[name][key], path) for r in rounds]) for path in paths}}
                for name in rounds[0] for key in rounds[0][name]]

    @staticmethod
    def print_head():
        print("| row | server | target, ms | gap alone, ms | p99 | gap with prompts | p99 | p99, ratio | first token, ms "
              "| without streams |")
        print("|---|---|---|--:|--:|--:|--:|--:|--:|--:|", flush=True)

    @staticmethod
    def print_lines(lines):
        for line in lines:
            cells = [line["row"], line["server"], line["target"]]
            cells += [shown(line[f"gap_{when}_ms.{p}"]) for when in ("alone", "with_prompts") for p in ("p50", "p99")]
            cells += [shown(line["p99_ratio"], 2), shown(line["first_token_ms"], 0), shown(line["first_token_alone_ms"], 0)]
            print("| " + " | ".join(cells) + " |", flush=True)


def bench_serve(args, url, seed, *options):
    """Its JSON; requests may fail, the command may not."""
    done = subprocess.run([os.path.join(args.bin, "weft"), "bench-serve", url, "--vocab", str(args.vocab), "--seed",
                           str(seed), "--json", *map(str, options)], capture_output=True, text=True, timeout=LOAD_LIMIT_S,
                          check=False)
    if not done.stdout:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)


def told(is_met):
    return "met" if is_met else "not met"


class Judged:
    """A row whose servers are measured one after the other, as `measure` of the row says, and judged by a goal."""

    keys = ("what",)

    def __init__(self, name, args):
        self.name, self.args, self.model, self.threads = name, args, args.model, args.threads

    @staticmethod
    def trace(args):
        return ("--trace", args.trace, "--scale", 16, "--output-scale", 2, "--min-output", 8)

    @staticmethod
    def print_head():
        pass


class Trace(Judged):
    rounds = 1
    SLO = "ttft:2000,itl:200"
    RATES = [0.25 * 1.5**i for i in range(12)]
    PROBE_S, N_EQUAL, N_SLOTS = 30, 40, 32

    def probe(self, args, url, seed, rate, n_requests, *options):
        r = bench_serve(args, url, seed, *self.trace(args), "--arrivals", "poisson", "--rate", rate, "--requests",
                        n_requests, "--goodput", self.SLO, *options)
        r["good"] = r["goodput"]["requests_per_s"]
        return r

    def measure(self, args, server, _machine, seed):
        """Rates are raised until less than half of what is sent is good."""
        results, name = {}, {weft_server: "weft"}.get(server, "peer")
        with server(args, self.model, self.threads, self.N_SLOTS) as (url, _):
            load(args, url, 1, 1, 64, args.vocab, 0)  # warm
            for rate in self.RATES:
                r = results[f"{rate:.2f}",] = self.probe(args, url, seed, rate, max(8, round(rate * self.PROBE_S)),
                                                       "--request-timeout", 20000)
                print(f"trace: {name} at {rate:.2f} requests/s: {r['good']:.2f} good, first token p99 "
                      f"{r['first_token_ms']['p99']:.0f} ms, {r['failed']} failed", file=sys.stderr)
                if r["goodput"]["requests"] < 0.5 * r["requests"]:
                    break
        return results

    def equal(self, args, servers, rate):
        """{server: p99 of the first token} at one rate"""
        p99 = {}
        for name, server in servers.items():
            with server(args, self.model, self.threads, self.N_SLOTS) as (url, _):
                load(args, url, 1, 1, 64, args.vocab, 0)
                p99[name] = self.probe(args, url, 99, rate, self.N_EQUAL)["first_token_ms"]["p99"]
        return p99

    def summarise(self, rounds):
        lines = []
        for name in rounds[0]:
            for key in sorted({k for r in rounds for k in r[name]}, key=lambda k: float(k[0])):
                of = [r[name][key] for r in rounds if key in r[name]]
                lines.append({"row": self.name, "server": name, "rate": float(key[0]), "good": median([r["good"] for r in of]),
                              "first_token_p99_ms": median([r["first_token_ms"]["p99"] for r in of]),
                              "part_good": median([r["goodput"]["requests"] / r["requests"] for r in of]),
                              "failed": median([r["failed"] for r in of])})
        return lines

    def print_lines(self, lines):
        print("| row | server | requests/s sent | good | first token, p99, ms | failed |\n|---|---|--:|--:|--:|--:|")
        for line in lines:
            print(f"| trace | {line['server']} | {line['rate']:.2f} | {line['good']:.2f} | {line['first_token_p99_ms']:.0f} | "
                  f"{line['failed']:.0f} |")
        best = {name: max(l["good"] for l in lines if l["server"] == name) for name in {l["server"] for l in lines}}
        peer = next((name for name in best if name != "weft"), None)
        print(f"\ngoodput of weft at its best rate: {best['weft']:.2f} requests/s")
        if not peer:
            return
        ratio = best["weft"] / best[peer] if best[peer] else float("inf")
        print(f"goodput of {peer} at its best rate: {best[peer]:.2f} requests/s; ratio {ratio:.2f}, goal 3: {told(ratio >= 3)}")
        # What both carry: most of what is sent is good with each.
        carried = [rate for rate in sorted({l["rate"] for l in lines})
                   if all(any(l["rate"] == rate and l["server"] == n and l["part_good"] >= 0.9 for l in lines) for n in best)]
        rate = 0.75 * max(carried) if carried else 0.5 * self.RATES[0]
        p99 = self.equal(self.args, servers_of(self.args, True), rate)
        part = p99["weft"] / p99[peer] if p99[peer] else float("inf")
        print(f"at {rate:.2f} requests/s, first token p99 (of {self.N_EQUAL}: the slowest): weft {p99['weft']:.0f} ms, {peer} {p99[peer]:.0f} ms; "
              f"part {part:.2f}, goal 0.5: {told(part <= 0.5)}", flush=True)
        lines.append({"row": self.name, "equal_rate": rate, "first_token_p99_ms": p99, "goodput_ratio": ratio})


class Turns(Judged):
    rounds = 3

    def measure(self, args, server, _machine, seed):
        # llama-server does not name tokens in this form: there the conversations are of words, with both.
        chat = ("--chat",) if args.llama_bin else ()
        with server(args, self.model, self.threads, 16) as (url, _):
            return {("turns",): bench_serve(args, url, seed, "--turns", 6, "--concurrency", 16, "--requests", 96,
                                            "--prompt-tokens", 128, "--turn-tokens", 32, "--max-tokens", 32, *chat)}

    def summarise(self, rounds):
        lines = []
        for name in rounds[0]:
            of = [r[name]["turns",] for r in rounds]
            lines.append({"row": self.name, "server": name, "tokens_per_s": median([r["tokens_per_s"] for r in of]),
                          "first_token_ms": median([r["first_token_ms"]["p50"] for r in of]),
                          "cached": median([r["cached_tokens"] and r["cached_tokens"] / r["prompt_tokens_total"] for r in of]),
                          "failed": sum(r["failed"] for r in of)})
        peer = next((name for name in rounds[0] if name != "weft"), None)
        if peer:
            lines[0]["ratio"] = median([r["weft"]["turns",]["tokens_per_s"] / r[peer]["turns",]["tokens_per_s"] for r in rounds])
        return lines

    def print_lines(self, lines):
        print("| row | server | tokens/s | first token, ms | of the prompts cached | failed |\n|---|---|--:|--:|--:|--:|")
        for line in lines:
            print(f"| turns | {line['server']} | {line['tokens_per_s']:.1f} | {line['first_token_ms']:.0f} | "
                  f"{shown(line['cached'], 2)} | {line['failed']} |")
        if "ratio" in lines[0]:
            print(f"\n16 conversations, tokens/s: ratio {lines[0]['ratio']:.2f}, goal 3: {told(lines[0]['ratio'] >= 3)}", flush=True)


class Deadlines(Judged):
    rounds, LOAD_S, keys = 2, 60, ("policy",)

    def measure(self, args, server, _machine, seed):
        with server(args, self.model, self.threads, 0) as (url, _):
            closed = bench_serve(args, url, seed, *self.trace(args), "--arrivals", "closed", "--concurrency", 32,
                                 "--requests", 96)
        rate, results = 1.5 * closed["requests_per_s"], {}
        for policy in ("fcfs", "edf") if seed % 2 else ("edf", "fcfs"):
            with server(args, self.model, self.threads, 0, "--scheduling-policy", policy) as (url, _):
                load(args, url, 8, 16, 128, args.vocab, 0)  # so that it knows how fast it is
                results[policy,] = bench_serve(args, url, seed, *self.trace(args), "--rate", rate, "--requests",
                                               max(16, round(rate * self.LOAD_S)), "--ttft-deadlines", "1000,10000")
        return results

    def summarise(self, rounds):
        def good(r, policy):
            return r["weft"][policy,]["goodput"]["requests_per_s"]
        lines = [{"row": self.name, "policy": policy, "rate": median([r["weft"][policy,]["rate"] for r in rounds]),
                  "good": median([good(r, policy) for r in rounds]),
                  "failed": median([r["weft"][policy,]["failed"] for r in rounds]),
                  "requests": median([r["weft"][policy,]["requests"] for r in rounds])} for policy in ("fcfs", "edf")]
        lines[1]["ratio"] = median([good(r, "edf") / max(1e-9, good(r, "fcfs")) for r in rounds])
        return lines

    def print_lines(self, lines):
        print("| row | policy | requests/s sent | good | refused or failed | of |\n|---|---|--:|--:|--:|--:|")
        for line in lines:
            print(f"| deadlines | {line['policy']} | {line['rate']:.2f} | {line['good']:.2f} | {line['failed']:.0f} | "
                  f"{line['requests']:.0f} |")
        print(f"\ngoodput, edf to fcfs: ratio {lines[1]['ratio']:.2f}, goal 1.3: {told(lines[1]['ratio'] >= 1.3)}", flush=True)


def servers_of(args, needs_peer):
    """Who is measured. The npm package stands in only where a row would otherwise show nothing."""
    if args.llama_bin:
        return {"weft": weft_server, "llama-server": llama_server}
    return {"weft": weft_server, "npm": npm_server} if needs_peer else {"weft": weft_server}


def percentiles(ordered):
    return {f"p{p}": ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (50, 99)}


def print_head():
    print("| row | clients | server | tokens/s | ratio | first token, ms | of 95 % | between tokens, ms | of 95 % "
          "| tokens/s, all decoding | of int8 peak | router + scheduler, us/token | lost |")
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)


def print_lines(lines):
    for line in lines:
        row = line["row"] + (f" + {line['busy_neighbours']}" if line["busy_neighbours"] else "")
        cells = [row, str(line["clients"]), line["server"], shown(line["tokens_per_s"]), shown(line.get("ratio"), 2)]
        cells += [shown(line[path], 2 if path.startswith("between") else 0) for path in FIELDS[1:5]]
        cells += [shown(line[FIELDS[5]]), f"{100 * line['of_vnni_peak']:.1f} %", shown(line["front_us_per_token"]),
                  f"{100 * line['lost']:.0f} %" if "lost" in line else "-"]
        print("| " + " | ".join(cells) + " |", flush=True)
    if any("lost" in line for line in lines):
        cores = len(os.sched_getaffinity(0))
        fair = 1 - 1 / (1 + N_BUSY / cores * BUSY_WEIGHT)
        print(f"\nThe fair share of {N_BUSY} neighbours at nice {BUSY_NICE} on {cores} cores is {100 * fair:.0f} %.")


def write_json(args, lines, raw):
    if not args.json:
        return
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump({"threads": args.threads, "rounds": args.rounds, "medians": lines, "all": raw}, f, indent=1)


def make_rows(args):
    def each(clients):
        return clients * args.requests

    rows = {"server": Row("server", args.model, args.threads, (1, 16), 128, args.vocab, each, 16),
            "crowd": Row("crowd", args.model, args.threads, (64,), 128, args.vocab, each, 64),
            "small": Row("small", args.small_model, 1, (1, 8, 32), 64, 4000, lambda n: max(100, 20 * n), 32),
            "busy": Row("busy", args.model, args.threads, (1, 6), 128, args.vocab, lambda n: n, 16, (False, True)),
            "mixed": Mixed(args), "trace": Trace("trace", args), "turns": Turns("turns", args),
            "deadlines": Deadlines("deadlines", args)}
    names = args.rows.split(",")
    unknown = [name for name in names if name not in rows]
    if unknown:
        raise SystemExit(f"no such row: {unknown[0]}; there are {', '.join(rows)}")
    if not args.model and names != ["small"]:
        raise SystemExit("--model FILE.gguf is needed for all rows but small")
    return [rows[name] for name in names]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a GGUF file in Q8_0, of TinyLlama-1.1B's shape")
    parser.add_argument("--small-model", default=os.path.join(ROOT, "build/made/fable-6m-q8_0.gguf"))
    parser.add_argument("--llama-bin", default=os.environ.get("LLAMA_BIN"))
    parser.add_argument("--rows", default="server,small,busy")
    parser.add_argument("--rounds", type=int, help="instead of each row's own number")
    parser.add_argument("--trace", default=os.path.join(ROOT, "../shared/traces/AzureLLMInferenceTrace_code.csv"))
    parser.add_argument("--requests", type=int, default=3, help="for each client of the row server")
    parser.add_argument("--max-tokens", type=int, default=64,
                        help="of each answer in the rows server, crowd, small and busy; where prompts are slow, 256 lets all decode")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--vocab", type=int, default=32000, help="of --model")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    parser.add_argument("--json", metavar="FILE", help="write medians and every round there")
    args = parser.parse_args()
    if not args.llama_bin:
        print("LLAMA_BIN, the folder of a llama-server, is not set: rows are of weft alone, or beside npm's node-llama-cpp.\n",
              file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that the servers are stopped
    lines, raw = [], []
    print_head_before = None
    for row in make_rows(args):
        if row.print_head is not print_head_before:  # another table
            row.print_head()
        print_head_before = row.print_head
        rounds, n_rounds = [], args.rounds or getattr(row, "rounds", 5)
        servers = servers_of(args, isinstance(row, (Trace, Turns)))
        if isinstance(row, Deadlines):
            servers = {"weft": weft_server}
        for number in range(n_rounds):
            machine = measure_machine(args, row.model, row.threads)
            order = list(servers) if number % 2 == 0 else list(reversed(servers))
            of = {name: row.measure(args, servers[name], machine, number + 1) for name in order}
            rounds.append({name: of[name] for name in servers})
            raw.append({"row": row.name, "round": number, "machine": machine["machine"],
                        "results": [{"server": name, **dict(zip(row.keys, key)), **result}
                                    for name in servers for key, result in of[name].items()]})
            print(f"{row.name}: round {number + 1} of {n_rounds}", file=sys.stderr)
        of_row = row.summarise(rounds)
        lines += of_row
        row.print_lines(of_row)
        write_json(args, lines, raw)


if __name__ == "__main__":
    main()
