#!/usr/bin/env python3
"""Ten thousand connections to one router, most of them idle or slow: what each takes, and that nothing is lost.

    bench/connections.py [--connections 10000] [--hold 40] [--bin build/bin] [MODEL] [-- serve options]

    half            idle: a request was answered, and another follows at the end; both must be answered
    an eighth       silent: they never send anything
    an eighth       stuck: half of a head, then nothing; these two must be ended by --idle-timeout, with 408 or a close
    an eighth       slow to ask: head and body come in pieces over half of --hold; the answer must be whole
    an eighth       slow to read: a stream of which 64 bytes are read at a time, over --hold; it must be whole

Meanwhile `weft bench-serve` is a normal client, with 4 requests at a time; none may fail. Printed: the router's resident
memory before, with all connections there, and after, and so the memory of each (the kernel's buffers are not in it).
The server gets --idle-timeout of 1.5 x --hold. Files may have to be open twice as often as --connections on the machine:
this program and the router raise their limits as far as the system lets them.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import behind
from footprint import ROOT, children_of

SPARE_FILES = 200  # of this program and of the router beside its connections
AT_A_TIME = 200    # that connect
N_PIECES = 10
STREAM_TOKENS = 24


def raise_limit(n):
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < n + SPARE_FILES:
        sys.exit(f"{n} connections need {n + SPARE_FILES} open files, and the system's hard limit is {most}: "
                 f"raise it (ulimit -Hn), or take --connections {most - SPARE_FILES}")
    if least < n + SPARE_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n + SPARE_FILES, most))


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def post(**body):
    text = json.dumps({"prompt": [300, 301, 302], "max_tokens": 4, "ignore_eos": True, **body}).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(text) + text)


class Crowd:
    """All connections but those of bench-serve. Each is a task; what became of it is a word."""

    KINDS = [("idle", 8), ("silent", 10), ("stuck", 12), ("slow to ask", 14), ("slow to read", 16)]  # up to n of 16

    def __init__(self, port, hold_s, idle_s):
        self.port, self.hold_s, self.idle_s = port, hold_s, idle_s
        self.gate, self.go = asyncio.Semaphore(AT_A_TIME), asyncio.Event()
        self.n_there, self.fates = 0, {}

    async def connect(self):
        async with self.gate:
            sock = socket.socket()
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what is not read waits at the server
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
            self.n_there += 1
            return await asyncio.open_connection(sock=sock, limit=256)

    @staticmethod
    async def answer(reader):
        """(status, body) with a Content-Length."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head, re.I)
        return int(head.split()[1]), await reader.readexactly(int(length.group(1))) if length else b""

    async def idle(self, reader, writer):
        ask = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
        writer.write(ask)
        first, _ = await self.answer(reader)
        await asyncio.sleep(self.hold_s)  # from its own answer on: --idle-timeout counts from there, too
        writer.write(ask)
        second, _ = await self.answer(reader)
        return "answered twice" if first == second == 200 else f"lost: {first}, {second}"

    async def ended_by_the_server(self, reader):
        data = await asyncio.wait_for(reader.read(64), 3 * self.idle_s)
        return "ended with 408" if data.startswith(b"HTTP/1.1 408") else "lost: answered" if data else "closed"

    async def silent(self, reader, _writer):
        return await self.ended_by_the_server(reader)

    async def stuck(self, reader, writer):
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHo")
        return await self.ended_by_the_server(reader)

    async def slow_to_ask(self, reader, writer):
        text = post()
        await self.go.wait()
        for i in range(N_PIECES):
            writer.write(text[len(text) * i // N_PIECES : len(text) * (i + 1) // N_PIECES])
            await asyncio.sleep(self.hold_s / 2 / N_PIECES)
        status, body = await self.answer(reader)
        is_whole = status == 200 and json.loads(body)["usage"]["completion_tokens"] == 4
        return "answered" if is_whole else f"lost: {status}"

    async def slow_to_read(self, reader, writer):
        await self.go.wait()
        writer.write(post(stream=True, max_tokens=STREAM_TOKENS).replace(b"\r\nHost", b"\r\nConnection: close\r\nHost"))
        data = b""
        pause_s = self.hold_s / (STREAM_TOKENS * 250 / 64)  # an event has some 250 bytes
        while piece := await reader.read(64):
            data += piece
            await asyncio.sleep(pause_s)
        return "answered" if b"[DONE]" in data and b" 200 " in data[:20] else f"lost: {data[:40]!r}"

    async def one(self, i):
        name = next(name for name, end in self.KINDS if i % 16 < end)
        writer = None
        try:
            reader, writer = await self.connect()
            fate = await getattr(self, name.replace(" ", "_"))(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError) as why:
            fate = f"lost: {type(why).__name__}"
        finally:
            if writer:
                writer.close()
        self.fates[name, fate] = self.fates.get((name, fate), 0) + 1


class Normal(threading.Thread):
    """bench-serve again and again until `over` is set."""

    def __init__(self, args, port):
        super().__init__()
        self.args, self.port, self.over = args, port, threading.Event()
        self.n_asked = self.n_failed = 0
        self.first_token_ms, self.why = [], None

    def run(self):
        while not self.over.is_set():
            done = subprocess.run([os.path.join(self.args.bin, "weft"), "bench-serve", f"http://127.0.0.1:{self.port}",
                                   "--concurrency", "4", "--requests", "100", "--prompt-tokens", "16", "--max-tokens", "16",
                                   "--json"], capture_output=True, text=True, check=False)
            if not done.stdout:
                self.n_failed, self.why = self.n_failed + 1, done.stderr
                return
            result = json.loads(done.stdout)
            self.n_asked, self.n_failed = self.n_asked + result["requests"], self.n_failed + result["failed"]
            self.why = self.why or result["first_failure"] if result["failed"] else self.why
            self.first_token_ms.append(result["first_token_ms"]["p99"])


async def crowd_of(args, port, router, idle_s):
    """(resident KiB before, with all there, the most, after; their fates)"""
    before = most = resident_kib(router)
    crowd = Crowd(port, args.hold, idle_s)
    begin = time.monotonic()
    tasks = [asyncio.create_task(crowd.one(i)) for i in range(args.connections)]
    while crowd.n_there < args.connections and not all(t.done() for t in tasks):
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    there = resident_kib(router)
    print(f"{crowd.n_there} connections after {time.monotonic() - begin:.1f} s", file=sys.stderr)
    crowd.go.set()
    while not all(t.done() for t in tasks):
        most = max(most, resident_kib(router))
        await asyncio.sleep(0.5)
    return before, there, max(most, there), resident_kib(router), crowd.fates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=os.path.join(ROOT, "models/fable-6m"))
    parser.add_argument("--connections", type=int, default=10000)
    parser.add_argument("--hold", type=float, default=40, help="seconds")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    args = behind.parse_args(parser, "weft serve")
    raise_limit(args.connections)
    idle_s = 1.5 * args.hold
    proc = subprocess.Popen([os.path.join(args.bin, "weft"), "serve", args.model, "--port", "0", "--no-rpc", "--log-level",
                             "error", "--idle-timeout", str(round(1000 * idle_s)), "--max-queue",
                             str(args.connections), *args.options], stderr=subprocess.PIPE, text=True)
    try:
        ready = next((m for line in proc.stderr if (m := re.search(r"^weft: ready on http://\S*:(\d+)$", line.strip()))), None)
        if not ready:
            sys.exit("the server did not start")
        port, router = int(ready.group(1)), children_of(proc.pid)["weft-router"][0]
        normal = Normal(args, port)
        normal.start()
        try:
            before, there, most, after, fates = asyncio.run(crowd_of(args, port, router, idle_s))
        finally:
            normal.over.set()
            normal.join()
    finally:
        proc.send_signal(signal.SIGTERM)
        proc.wait()
    print("| connections | what became of them | how many |\n|---|---|--:|")
    for (kind, fate), n in sorted(fates.items()):
        print(f"| {kind} | {fate} | {n} |")
    print(f"| normal | answered | {normal.n_asked - normal.n_failed} |\n| normal | failed | {normal.n_failed} |")
    if normal.why:
        print(f"\nThe first failure: {normal.why}")
    if normal.first_token_ms:
        print(f"\nfirst token of normal requests, p99 of each hundred: {min(normal.first_token_ms):.0f} to "
              f"{max(normal.first_token_ms):.0f} ms")
    n = args.connections
    print(f"router: {before / 1024:.1f} MiB before, {there / 1024:.1f} with {n} connections, {most / 1024:.1f} at most, "
          f"{after / 1024:.1f} after them")
    print(f"memory per connection: {(there - before) / n:.2f} KiB when they have come, {(most - before) / n:.2f} KiB at most")
    n_lost = normal.n_failed + sum(m for (_, fate), m in fates.items() if fate.startswith("lost"))
    print(f"lost: {n_lost}; goal 0: {'met' if not n_lost else 'not met'}")
    sys.exit(0 if not n_lost else 1)


if __name__ == "__main__":
    main()
