#!/usr/bin/env python3
"""How long a killed worker is missed: `kill -9` in the middle of a stream, medians of some kills. One line of JSON.

    bench/restart.py [--kills 5] [--bin build/bin] [MODEL] [-- serve options]

From the kill to: the worker linked with the scheduler again (its log says so), and the next token of the stream, for
which prompt and output so far are computed again. The stream must equal an undisturbed one.
"""

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

import behind
from footprint import ROOT, children_of

PROMPT = [1, 100, 200, 300, 400, 500, 600, 700]


class Server:
    """`weft serve`, and when its worker last said that it was linked."""

    def __init__(self, command):
        self.linked, self.log, self.port = threading.Event(), [], None
        self.proc = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        ready = threading.Event()
        threading.Thread(target=self.read_log, args=(ready,), daemon=True).start()
        if not ready.wait(300) or self.port is None:
            sys.exit("the server did not start:\n" + "".join(self.log))

    def read_log(self, ready):
        for line in self.proc.stderr:
            self.log.append(line)
            if "linked with scheduler" in line and "worker" in line:
                self.linked_at = time.monotonic()
                self.linked.set()
            if line.startswith("weft: ready on "):
                self.port = int(line.rsplit(":", 1)[1])
                ready.set()
        ready.set()

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        self.proc.wait()


def stream(server, n_tokens, on_token):
    """The ids of one greedy stream; on_token(i) after each."""
    conn = http.client.HTTPConnection("127.0.0.1", server.port)
    body = {"prompt": PROMPT, "max_tokens": n_tokens, "ignore_eos": True, "temperature": 0, "stream": True,
            "return_tokens_as_token_ids": True, "logprobs": 0}
    conn.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = conn.getresponse()
    assert response.status == 200, response.read()
    ids = []
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        choice = json.loads(line[6:])["choices"][0]
        if choice.get("logprobs"):
            ids += choice["logprobs"]["tokens"]
            on_token(len(ids))
    conn.close()
    return ids


def one_kill(server, n_tokens):
    killed_at, arrived = [], []

    def on_token(n):
        arrived.append(time.monotonic())
        if n == n_tokens // 2:
            server.linked.clear()
            killed_at.append(time.monotonic())
            os.kill(children_of(server.proc.pid)["weft-worker"][0], signal.SIGKILL)

    ids = stream(server, n_tokens, on_token)
    assert server.linked.wait(30)
    token_at = next((t for t in arrived if t > server.linked_at), None)
    if token_at is None:
        sys.exit("the stream had ended before the worker was back: more --tokens")
    return (server.linked_at - killed_at[0]) * 1e3, (token_at - killed_at[0]) * 1e3, ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?", default=os.path.join(ROOT, "models/fable-6m"))
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    args = behind.parse_args(parser, "weft serve")
    server = Server([os.path.join(args.bin, "weft"), "serve", args.model, "--port", "0", "--rpc-port", "0", *args.options])
    try:
        want = stream(server, args.tokens, lambda n: None)
        kills = [one_kill(server, args.tokens) for _ in range(args.kills)]
    finally:
        server.stop()
    assert all(ids == want for _, _, ids in kills), "a stream came out otherwise"
    linked, token = ([k[i] for k in kills] for i in (0, 1))

    def shown(values):
        return {"median": round(statistics.median(values), 1), "min": round(min(values), 1), "max": round(max(values), 1)}

    print(json.dumps({"worker_back_ms": shown(linked), "next_token_ms": shown(token), "kills": args.kills,
                      "goal": {"worker_back_ms": 100}, "met": statistics.median(linked) <= 100}))


if __name__ == "__main__":
    main()
