#!/usr/bin/python3
"""--memory-limit: what does not fit is refused with the sum, and what fits never takes more, all processes together.

WEFT_TEST_HOLDS=5 (nightly) holds more configurations, under a heavier load.
"""

import contextlib
import gzip
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time

import harness
from harness import Skip
from rpc import Rpc

WEFT = os.path.join(harness.BIN_DIR, "weft")
KIB = {"B": 1 / 1024, "KiB": 1, "MiB": 1 << 10, "GiB": 1 << 20, "TiB": 1 << 30}
N_HOLDS = int(os.environ.get("WEFT_TEST_HOLDS", "2"))


def size_kib(text):
    """Of "1.2 GiB", or "2 x 1.2 GiB"."""
    *times, number, unit = text.split()
    return (int(times[0]) if times else 1) * float(number) * KIB[unit]


# -------------------------------------------------------------------------------------------------- refused

REFUSED = (  # limit, other settings, a term that must be in the sum, the flag that is named as most help
    ("100MiB", (), "processes 52 MiB", "--max-num-batched-tokens"),
    ("60MiB", ("--request-memory=64KiB", "--max-connections=100", "--max-queue=10", "--max-num-batched-tokens=8192"),
     "scratch", "--max-num-batched-tokens"),
    ("130MiB", ("--max-num-seqs=1024",), "scratch", "--max-num-seqs"),
    ("1GiB", ("--kv-memory=1GiB",), "KV cache 1.0 GiB", "--kv-memory"),
    ("60MiB", ("--max-model-len=16000", "--kv-dtype=int8", "--max-num-batched-tokens=16", "--max-num-seqs=1"), "KV cache",
     "--max-model-len"),
    ("200MiB", ("--workers=4",), "vocabulary 4 x 4.0 MiB, processes 100 MiB", "--max-num-batched-tokens"),
    ("1GiB", ("--max-lora-memory=1GiB",), "adapters 3.0 GiB", "--max-lora-memory"),
    ("512MiB", ("--responses-store=400MiB",), "responses 400 MiB", "--responses-store"),
    ("512MiB", ("--request-memory=64MiB",), "requests 7 x 64 MiB", "--request-memory"),
    ("1GiB", ("--max-queue=1000000",), "queue 3.8 GiB", "--max-queue"),
    ("150MiB", ("--max-connections=4000",), "connections 47 MiB", "--max-connections"),
    ("115MiB", (f"--speculative-model={harness.DRAFT}",), "draft", "--max-num-batched-tokens"),
)


def check_sentence(line, limit, term):
    match = re.match(r"weft: \S+ needs (\S+ \w+) \((.*)\), --memory-limit is (\S+ \w+): .* would help most$", line)
    assert match, line
    terms = [re.sub(r"^\D+", "", t) for t in match[2].split(", ")]
    total, summed = size_kib(match[1]), sum(size_kib(t) for t in terms)
    assert abs(total - summed) <= 0.1 * total, (total, summed, line)  # each is rounded to two digits, the sum up
    assert size_kib(match[3]) == size_kib(re.sub(r"(\d+)(\w+)", r"\1 \2", limit)) < total, line
    assert term in match[2], (term, line)
    return match[1].replace(" ", "")


def refused(limit, *args, command=("serve", "--port=0", "--rpc-port=0", "--threads=1")):
    """The last line of a program that needs more."""
    done = subprocess.run([WEFT, command[0], harness.FABLE, *command[1:], f"--memory-limit={limit}", *args],
                          capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and not any("starting it again" in line for line in lines), done.stderr
    return lines[-1]


def test_sums_that_are_too_much_are_refused_term_by_term():
    if harness.SANITIZED:
        raise Skip("a sanitizer's own memory is in no sum")

    def check(row):
        limit, args, term, helps = row
        line = refused(limit, *args)
        check_sentence(line, limit, term)
        assert helps in line.rpartition(":")[2], (helps, line)
    harness.for_each(REFUSED, check)


def test_what_is_needed_does_not_depend_on_what_is_given_and_is_enough():
    if harness.SANITIZED:
        raise Skip("a sanitizer's own memory is in no sum")
    run = ("run", "-p", "x", "-n", "2")
    needed = {check_sentence(refused(limit, command=run), limit, "program 16 MiB") for limit in ("20MiB", "40MiB")}
    assert len(needed) == 1, needed
    done = subprocess.run([WEFT, run[0], harness.FABLE, *run[1:], f"--memory-limit={needed.pop()}"], check=False,
                          capture_output=True, text=True, timeout=harness.LIMIT_S)
    assert done.returncode == 0, done
    needed = {check_sentence(refused(limit), limit, "processes 52 MiB") for limit in ("70MiB", "95MiB")}
    assert len(needed) == 1, needed
    with harness.Server("--threads=1", f"--memory-limit={needed.pop()}") as server:
        assert server.complete(prompt="x", max_tokens=2)["choices"]
        lowered = [line for line in server.lines if "within --memory-limit: --request-memory " in line]
        assert len(lowered) == 1, server.lines


def test_a_single_program_is_bounded_as_well():
    done = subprocess.run([WEFT, "run", harness.FABLE, "-p", "x", "-n", "2"], capture_output=True, text=True, check=False,
                          timeout=harness.LIMIT_S, env={**os.environ, "WEFT_MEMORY_LIMIT": "60MiB"})
    assert done.returncode == 1, done
    check_sentence(done.stderr.splitlines()[-1], "60MiB", "program 16 MiB")
    done = subprocess.run([WEFT, "run", harness.FABLE, "-p", "x", "-n", "2", "--memory-limit=400MiB"], capture_output=True,
                          text=True, check=False, timeout=harness.LIMIT_S)
    assert done.returncode == 0, done


def test_bounds_that_contradict_each_other_are_refused():
    done = subprocess.run([WEFT, "serve", harness.FABLE, "--port=0", "--memory-limit=400MiB", "--request-memory=1MiB",
                           "--max-body=1MiB"], capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
    assert done.returncode != 0 and "--max-body is more than a quarter of --request-memory" in done.stderr, done
    for limit in ((), ("--memory-limit=300MiB",)):
        for size in ("1", "4096", "65535"):
            done = subprocess.run([WEFT, "serve", harness.FABLE, "--port=0", f"--request-memory={size}", *limit],
                                  capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
            assert done.returncode != 0 and "--request-memory: must be at least 64KiB" in done.stderr, done


def test_a_body_that_could_never_be_taken_is_too_large():
    with harness.Server("--request-memory=1MiB") as server:
        reply = server.post("/tokenize", {"prompt": "a " * 140000})
        assert reply.status == 413 and "262144" in reply.text, (reply.status, reply.text)
        assert server.post("/tokenize", {"prompt": "a " * 130000}).status == 200


def test_a_result_of_rpc_is_held_until_it_is_read():
    """One of more than the kernel takes for a client that does not read; and one that could never be held is too large."""
    def held():
        return server.metric('weft_held_bytes{of="output"}')

    def ask(n):
        return {"content": "a " * n, "with_pieces": True}
    with harness.Server("--request-memory=16MiB") as server, Rpc(server) as rpc, Rpc(server) as lazy:
        lazy.send(1, "tokenize", ask(400000))
        harness.wait_until("the result to be packed", lambda: server.metric("weft_rpc_requests_total") == 1)
        for _ in range(10):
            assert held() > 13 * 400000, held()  # at least: a map, two names, a small id and a byte of text
        while held() > 0:  # so there is more to come
            assert lazy.sock.recv(1 << 20), "the connection was closed"
        error, result = rpc.call(2, "tokenize", ask(800000))
        assert result is None and error[0] == "invalid_request_error" and "all output together may take" in error[1], error


def test_pipelined_requests_wait_in_the_kernel():
    """Each connection has one that runs or waits, and 60 KB of others behind it."""
    if harness.SANITIZED:
        raise Skip("a sanitizer's own memory is in no sum")
    body = json.dumps({"prompt": "a", "max_tokens": 900, "ignore_eos": True})
    request = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    with harness.Server("--request-memory=8MiB", "--max-num-seqs=2", check_idle=False) as server, \
            contextlib.ExitStack() as stack:
        router = server.children()["router"]
        before, n = sum(pages_kib(router)), 400
        for _ in range(n):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S))
            sock.sendall(request * (60000 // len(request)))
        harness.wait_until("all to be asked", lambda: n == sum(
            server.metric(f"weft_num_requests_{what}") for what in ("running", "waiting")))
        each = (sum(pages_kib(router)) - before) / n
        print(f"    {each:.1f} KiB for each connection", flush=True)
        assert each < 24, each


# ----------------------------------------------------------------------------------------------------- held

def pages_kib(pid):
    """(what it has for itself or of files, what it has of shared memory), shared pages divided by their users."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        sizes = dict(re.findall(r"^(Pss\w*): +(\d+) kB$", f.read(), re.M))
    shared = int(sizes.get("Pss_Shmem", 0))
    return int(sizes["Pss"]) - shared, shared


def memfds_kib(pid):
    """All pages of the memory files that a process holds, mapped or not."""
    total = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        try:
            if "memfd:" in os.readlink(path):
                total += os.stat(path).st_blocks // 2
        except OSError:
            pass  # it has just been closed
    return total


class Watch:
    """The most that a server's processes had together, by looking all the time."""

    def __init__(self, server):
        self.pid, self.peak_kib, self.parts, self.stop = server.proc.pid, 0, {}, threading.Event()
        self.call = harness.Call(self._look)

    def _look(self):
        while not self.stop.is_set():
            own, shared, parts = 0, 0, {}
            for name, pid in [("supervisor", self.pid), *harness.actors_of(self.pid)]:
                try:
                    pages = pages_kib(pid)
                except (OSError, KeyError):
                    continue  # it has just ended
                own, shared = own + pages[0], shared + pages[1]
                parts[name] = parts.get(name, 0) + sum(pages)
            total = own + max(shared, memfds_kib(self.pid))
            if total > self.peak_kib:
                self.peak_kib, self.parts = total, parts
            time.sleep(0.005)

    def end(self):
        self.stop.set()
        self.call.result()
        return self.peak_kib


SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "n": {"type": "integer"}},
          "required": ["name", "n"]}


# Values of JSON, which take many times their bytes: in the body, and in a text of it that is JSON again.
VALUES = b'{"prompt": "a", "max_tokens": 1, "extra": [' + b"{}," * 50000 + b"{}]}"
VALUES_IN_A_TEXT = {"max_tokens": 1, "messages": [
    {"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {
        "name": "f", "arguments": '{"a": [' + "{}," * 50000 + "{}]}"}}]}, {"role": "tool", "content": "b", "tool_call_id": "a"}]}
GZIP = {"Content-Type": "application/json", "Content-Encoding": "gzip"}


def bodies(rng, n):
    """Requests of every kind that takes memory: long prompts, log-probabilities, grammars, choices, large bodies, and such
    as grow when they are unpacked or read."""
    for i in range(n):
        ids = [rng.randrange(4, 4000) for _ in range(rng.randrange(200, 960))]
        kind = i % 9
        if kind == 0:
            yield "/v1/completions", {"prompt": ids, "max_tokens": 60, "logprobs": 20, "ignore_eos": True}
        elif kind == 1:
            yield "/v1/completions", {"prompt": ids[:600], "max_tokens": 100, "n": 4, "seed": i, "ignore_eos": True}
        elif kind == 2:
            yield "/v1/completions", {"prompt": ids, "max_tokens": 1, "echo": True, "logprobs": 10}
        elif kind == 3:
            yield "/v1/chat/completions", {"messages": [{"role": "user", "content": "A tale of " + "ink " * (i % 100)}],
                                           "max_tokens": 60, "response_format": {"type": "json_schema", "json_schema": {
                                               "name": "n", "schema": SCHEMA}}}
        elif kind == 4:
            yield "/tokenize", {"prompt": "The old house stood. " * 4000}
        elif kind == 6:
            yield "/v1/completions", VALUES
        elif kind == 7:
            yield "/v1/completions", gzip.compress(VALUES)
        elif kind == 8:
            yield "/v1/chat/completions", VALUES_IN_A_TEXT
        else:
            yield "/v1/completions", {"prompt": ids, "max_tokens": 40, "stream": True, "repetition_penalty": 1.1}


def load_with(server, rng, n, n_clients):
    """Sends them all; what is refused for want of room is fine, and counted."""
    todo, statuses, lock = list(bodies(rng, n)), [], threading.Lock()

    def client():
        while True:
            with lock:
                if not todo:
                    return
                path, body = todo.pop()
            reply = server.post(path, body, GZIP if isinstance(body, bytes) and body is not VALUES else None)
            statuses.append(reply.status)
            assert reply.status in (200, 413, 429, 503), (reply.status, reply.text)
            if body is VALUES:
                assert reply.status in (413, 503), reply.text
    harness.in_threads([client] * n_clients)
    return statuses


def pack(folder):
    packed = os.path.join(folder, "packed.weft")
    subprocess.run([WEFT, "pack", harness.FABLE, packed, "--dtype=q8"], capture_output=True, timeout=harness.LIMIT_S, check=True)
    return packed


HELD = (  # limit, settings; of the first ones the cache fills all that is left
    ("210MiB", ()),
    ("320MiB", ("--kv-dtype=f32", "--activations=f32", "--max-num-seqs=16", "--max-num-batched-tokens=256")),
    ("600MiB", ("--workers=2", "--max-num-seqs=32")),
    ("420MiB", (f"--speculative-model={harness.DRAFT}", "--max-num-seqs=48", "--max-num-batched-tokens=1024")),
    ("300MiB", ("packed", "--kv-memory=64MiB", "--request-memory=2MiB")),
)


def hold(row, rng, n_requests):
    limit, args = row
    with tempfile.TemporaryDirectory() as folder:
        model = pack(folder) if "packed" in args else harness.FABLE
        args = [arg for arg in args if arg != "packed"]
        with harness.Server(f"--memory-limit={limit}", "--threads=2", *args, model=model, check_idle=False) as server:
            watch = Watch(server)
            statuses = load_with(server, rng, n_requests, 24)
            server.kill("worker")  # its successor maps the weights that are there
            statuses += load_with(server, rng, n_requests // 4, 8)
            peak = watch.end()
    limit_kib = size_kib(re.sub(r"(\d+)(\w+)", r"\1 \2", limit))
    n_served = statuses.count(200)
    print(f"    {limit} {' '.join(args)}: peak {peak / 1024:.0f} MiB, {peak / limit_kib:.0%}; {n_served} of {len(statuses)} "
          f"served; {json.dumps({name: round(kib / 1024) for name, kib in watch.parts.items()})}", flush=True)
    assert peak <= limit_kib, (limit, args, peak / 1024, watch.parts)
    assert n_served > len(statuses) / 2, (limit, args, statuses)


def test_what_fits_stays_within_its_limit_under_load():
    if harness.SANITIZED:
        raise Skip("a sanitizer takes memory of its own")
    rng = harness.rng()
    for row in HELD[:N_HOLDS]:
        hold(row, rng, 48 if N_HOLDS == 2 else 600)


if __name__ == "__main__":
    harness.main()
