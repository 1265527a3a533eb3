#!/usr/bin/env python3
"""Does continuous batching pay? Aggregate decode rate of N concurrent streams against that of one.

    bench/batching.py MODEL [--streams 16] [--rounds 5] [--tokens 48] [--bin build/bin] [-- serve options]

One server; rounds of 1 stream and of N streams in turns. A round's rate counts the tokens of all streams
between the moment the last stream began and the moment the first one ended, so that only decoding is
measured. Prints the medians, the spread and their ratio as one line of JSON.
"""

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


def stream(port, body, times):
    conn = http.client.HTTPConnection("127.0.0.1", port)
    conn.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
    reply = conn.getresponse()
    assert reply.status == 200, reply.read()
    for line in reply:
        if line.startswith(b"data: {"):
            times.append(time.monotonic())
    conn.close()


def decode_rate(port, n, n_tokens, rng):
    """Tokens per second of n streams together while all of them decode."""
    times = [[] for _ in range(n)]
    threads = []
    for i in range(n):
        body = {"prompt": [rng.randrange(300, 1300) for _ in range(16)], "max_tokens": n_tokens, "temperature": 0,
                "ignore_eos": True, "return_tokens_as_token_ids": True, "logprobs": 0}
        threads.append(threading.Thread(target=stream, args=(port, body, times[i])))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    assert end > begin, "the streams did not overlap: more --tokens"
    return sum(1 for t in times for x in t if begin < x <= end) / (end - begin)


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
    try:
        port = next((int(l.rsplit(":", 1)[1]) for l in proc.stderr if l.startswith("weft: ready on ")), None)
        if not port:
            sys.exit("the server did not start")
        rng = random.Random(1)
        decode_rate(port, 2, args.tokens, rng)  # warm
        one, many = [], []
        for _ in range(args.rounds):
            one.append(decode_rate(port, 1, args.tokens, rng))
            many.append(decode_rate(port, args.streams, args.tokens, rng))
    finally:
        proc.send_signal(signal.SIGTERM)
        proc.wait()
    a, b = statistics.median(one), statistics.median(many)
    print(json.dumps({"streams": args.streams, "rounds": args.rounds, "one_tok_s": round(a, 2),
                      "one_range": [round(min(one), 2), round(max(one), 2)], "many_tok_s": round(b, 2),
                      "many_range": [round(min(many), 2), round(max(many), 2)], "ratio": round(b / a, 3)}))


if __name__ == "__main__":
    main()
