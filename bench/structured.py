#!/usr/bin/env python3
"""What do grammars cost? Decode rates of constrained streams beside unconstrained ones.

    bench/structured.py MODEL [--streams 16] [--rounds 5] [--tokens 48] [--bin build/bin] [-- serve options]

One server, rounds in turns: all streams free; all with a JSON Schema that they never come to the end of; half of each. A round's
rate counts the tokens of its streams, or of the free half, between the moment the last stream began and the moment the
first one ended, so that only decoding is measured. Prints medians and spreads, and medians of the rounds' ratios, as one line of JSON."""

import argparse
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

import behind

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "kind": {"enum": ["alpha", "beta", "gamma", "delta"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 100000},
        "price": {"type": "number"},
        "date": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z-]{2,12}$"}, "maxItems": 5},
    },
    "required": ["name", "kind", "count", "price", "date", "tags"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": ITEM, "minItems": 10000}


def stream(port, body, times):
    conn = http.client.HTTPConnection("127.0.0.1", port)
    conn.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
    reply = conn.getresponse()
    assert reply.status == 200, reply.read()
    for line in reply:
        if line.startswith(b"data: {"):
            times.append(time.monotonic())
    conn.close()


def decode_rate(port, n, n_constrained, n_tokens, rng):
    """Tokens per second of the free streams together, or of all if none is free, while all of them decode."""
    times = [[] for _ in range(n)]
    threads = []
    for i in range(n):
        body = {"prompt": [rng.randrange(300, 1300) for _ in range(16)], "max_tokens": n_tokens, "temperature": 1,
                "seed": rng.randrange(1 << 30), "ignore_eos": True, "return_tokens_as_token_ids": True, "logprobs": 0}
        if i < n_constrained:
            body["structured_outputs"] = {"json": SCHEMA}
        threads.append(threading.Thread(target=stream, args=(port, body, times[i])))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    assert end > begin, "the streams did not overlap: more --tokens"
    counted = times[n_constrained:] or times
    return sum(1 for t in counted for x in t if begin < x <= end) / (end - begin) / len(counted)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    args = behind.parse_args(parser, "weft serve")
    proc = subprocess.Popen([os.path.join(args.bin, "weft"), "serve", args.model, "--port", "0", "--rpc-port", "0",
                             *args.options], stderr=subprocess.PIPE, text=True)
    rates = {"free": [], "constrained": [], "free_beside": []}
    try:
        port = next((int(l.rsplit(":", 1)[1]) for l in proc.stderr if l.startswith("weft: ready on ")), None)
        if not port:
            sys.exit("the server did not start")
        rng = random.Random(1)
        decode_rate(port, 2, 1, args.tokens, rng)  # warm
        kinds = [("free", 0), ("constrained", args.streams), ("free_beside", args.streams // 2)]
        for i in range(args.rounds):
            for name, n_constrained in kinds if i % 2 else reversed(kinds):
                rates[name].append(decode_rate(port, args.streams, n_constrained, args.tokens, rng))
    finally:
        proc.send_signal(signal.SIGTERM)
        proc.wait()
    def ratio(name):  # of each round to its own neighbour: the machine's speed drifts
        return round(statistics.median(a / b for a, b in zip(rates[name], rates["free"])), 3)

    medians = {name: statistics.median(values) for name, values in rates.items()}
    print(json.dumps({"streams": args.streams, "rounds": args.rounds,
                      "tok_s_per_stream": {name: round(value, 2) for name, value in medians.items()},
                      "range": {name: [round(min(v), 2), round(max(v), 2)] for name, v in rates.items()},
                      "constrained": ratio("constrained"), "free_beside": ratio("free_beside")}))


if __name__ == "__main__":
    main()
