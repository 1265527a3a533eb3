#!/usr/bin/env python3
"""What does speculative decoding bring? Decode rates with it and without, in turns.

    bench/speculative.py MODEL [--streams 1] [--rounds 5] [--tokens 256] [--prompt TEXT|--prompt-ids N|--prompts FILE]
                         [--bin build/bin]
                         [--allowed N] [--with "--speculative-ngram 3"] [--goal 1.0] [-- options of both servers]

Two servers run side by side, one with the options of --with; each round asks one and then the other, in turns of who comes first.
A rate counts the tokens of all streams between the moment the last one had its first and the moment the first one ended, so
that only decoding is measured. Both must give the same tokens. Prints the medians, their spread, the median of the rounds'
ratios and what was accepted as one line of JSON; fails below --goal."""

import argparse
import http.client
import json
import os
import random
import shlex
import signal
import statistics
import sys
import threading
import time

import behind
from turns import ROOT, start

TEXT = ("Once upon a time there was a little fox who lived in the wood. The little fox had a red coat, and the little "
        "fox had a house under the old oak. One day the little fox")


def stream(port, body, out):
    conn = http.client.HTTPConnection("127.0.0.1", port)
    conn.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
    reply = conn.getresponse()
    if reply.status != 200:
        sys.exit(f"{reply.status}: {reply.read().decode()}")
    for line in reply:
        if line.startswith(b"data: {"):
            ids = json.loads(line[6:])["choices"][0].get("token_ids") or []
            if ids:
                out.append((time.monotonic(), ids))
    conn.close()


def decode(port, bodies):
    """(tokens per second while all streams decode, the tokens of each)"""
    outs = [[] for _ in bodies]
    threads = [threading.Thread(target=stream, args=(port, body, out)) for body, out in zip(bodies, outs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    begin, end = max(out[0][0] for out in outs), min(out[-1][0] for out in outs)
    if end <= begin:
        sys.exit("the streams did not overlap: more --tokens")
    n = sum(len(ids) for out in outs for at, ids in out if begin < at <= end)
    return n / (end - begin), [[t for _, ids in out for t in ids] for out in outs]


def guesses(port):
    conn = http.client.HTTPConnection("127.0.0.1", port)
    conn.request("GET", "/metrics")
    text = conn.getresponse().read().decode()
    conn.close()
    return [sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                if line.startswith(f"weft_spec_decode_num_{name}_tokens_total")) for name in ("draft", "accepted")]


def bodies_of(args, rng):
    for i in range(args.streams):
        prompt = args.prompt or TEXT
        if args.prompt_ids:
            prompt = [rng.randrange(300, 1300) for _ in range(args.prompt_ids)]
        if args.prompts:
            with open(args.prompts, encoding="utf-8") as f:
                prompt = rng.choice(json.load(f)["prompts"])["input_ids"]
        body = {"prompt": prompt, "max_tokens": args.tokens, "ignore_eos": True, "return_token_ids": True}
        if args.allowed:
            body["allowed_token_ids"] = list(range(1000, 1000 + args.allowed))
        yield {**body, "temperature": 0} if i % 2 == 0 else {**body, "temperature": args.temperature,
                                                               "seed": rng.randrange(1 << 30)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0, help="of every second stream; the others are greedy")
    parser.add_argument("--prompt")
    parser.add_argument("--prompt-ids", type=int, default=0, help="random ones, so many, in place of a text")
    parser.add_argument("--allowed", type=int, default=0,
                        help="so many tokens alone may come: then a model with random weights repeats itself, too")
    parser.add_argument("--prompts", help="some of those of this file, such as tests/data/speculative/draft.json")
    parser.add_argument("--with", dest="extra", default="--speculative-ngram 3")
    parser.add_argument("--goal", type=float, default=0)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    args = behind.parse_args(parser, "weft serve")
    servers = [start(args), start(args, *shlex.split(args.extra))]
    rates, rng = ([], []), random.Random(1)
    try:
        for _, port in servers:  # what a step takes is learnt here
            decode(port, list(bodies_of(args, random.Random(0))))
        for i in range(args.rounds):
            bodies, tokens = list(bodies_of(args, rng)), {}
            for which in (0, 1) if i % 2 else (1, 0):
                rate, tokens[which] = decode(servers[which][1], bodies)
                rates[which].append(rate)
            if tokens[0] != tokens[1]:
                sys.exit("the tokens differ")
        n_guesses, n_accepted = guesses(servers[1][1])
    finally:
        for proc, _ in servers:
            proc.send_signal(signal.SIGTERM)
            proc.wait()
    ratio = statistics.median(b / a for a, b in zip(*rates))
    print(json.dumps({"streams": args.streams, "rounds": args.rounds, "with": args.extra,
                      "tok_s": [round(statistics.median(r), 1) for r in rates],
                      "range": [[round(min(r), 1), round(max(r), 1)] for r in rates], "ratio": round(ratio, 3),
                      "guesses": n_guesses, "accepted": n_accepted}))
    if ratio < args.goal:
        sys.exit(f"the goal is {args.goal}")


if __name__ == "__main__":
    main()
