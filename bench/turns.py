#!/usr/bin/env python3
"""What the prefix cache spares a conversation: the time to the first token of each turn, with it and without.

    bench/turns.py [--turns 8] [--said 100] [--answer 64] [--rounds 5] [--bin build/bin] [--json FILE] [MODEL]
                   [-- serve options]

Two servers run side by side, one with --no-prefix-cache; each turn is asked of one and then of the other, in turns of
who comes first. A turn's prompt is the whole conversation so far and `--said` new tokens, its answer has `--answer`. No
round begins like another, and both servers must answer the same. Medians over the rounds; the last line is the goal: the
last turn's first token comes 5 x sooner.
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time

import behind
from footprint import ROOT

GOAL = 5.0
TOKENS = range(100, 4000)  # of any model's vocabulary; none of them special


def start(args, *options):
    """(process, port) of a server that is ready."""
    command = [os.path.join(args.bin, "weft"), "serve", args.model, "--port", "0", "--no-rpc", *args.options, *options]
    proc = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    log = []
    for line in proc.stderr:  # what comes later is little, and fits the pipe
        log.append(line)
        match = re.search(r"^weft: ready on http://\S*:(\d+)$", line.strip())
        if match:
            return proc, int(match.group(1))
    sys.exit("the server did not start:\n" + "".join(log))


def ask(port, prompt, n_answer):
    """(seconds to the first token, the answer's tokens, how many of the prompt's were cached)"""
    body = {"prompt": prompt, "max_tokens": n_answer, "ignore_eos": True, "temperature": 0, "logprobs": 0,
            "return_tokens_as_token_ids": True, "stream": True, "stream_options": {"include_usage": True}}
    text = json.dumps(body)
    conn = http.client.HTTPConnection("127.0.0.1", port)
    begin, first, tokens, n_cached = time.monotonic(), None, [], 0
    conn.request("POST", "/v1/completions", text, {"Content-Type": "application/json"})
    reply = conn.getresponse()
    if reply.status != 200:
        sys.exit(f"{reply.status}: {reply.read().decode()}")
    for line in reply:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event.get("usage"):
            n_cached = event["usage"]["prompt_tokens_details"]["cached_tokens"]
        for choice in event["choices"]:
            if choice.get("logprobs"):
                first = first or time.monotonic()
                tokens += [int(t.removeprefix("token_id:")) for t in choice["logprobs"]["tokens"]]
    conn.close()
    return first - begin, tokens, n_cached


def converse(args, rng, ports, found):
    """One round; its times go to found[server][turn]."""
    prompt = []
    for turn in range(args.turns):
        prompt += [rng.choice(TOKENS) for _ in range(args.said)]
        answers = {}
        for name in sorted(ports, reverse=turn % 2 == 1):
            seconds, answers[name], n_cached = ask(ports[name], prompt, args.answer)
            found[name][turn].append(seconds)
            assert n_cached == 0 or name == "on", "a server without the cache found something in it"
        assert answers["on"] == answers["off"], f"turn {turn + 1} was answered differently"
        prompt += answers["on"]
    return len(prompt)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=os.path.join(ROOT, "models/fable-6m"))
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--said", type=int, default=100)
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    parser.add_argument("--json")
    args = behind.parse_args(parser, "weft serve")
    rng, servers = random.Random(1), {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended early"))  # and with it the servers
    found = {name: [[] for _ in range(args.turns)] for name in ("on", "off")}
    try:
        servers = {"on": start(args)}
        servers["off"] = start(args, "--no-prefix-cache")
        for i in range(args.rounds):
            n = converse(args, rng, {name: port for name, (_, port) in servers.items()}, found)
            print(f"round {i + 1}: {n} tokens in the end", file=sys.stderr, flush=True)
    finally:
        for proc, _ in servers.values():
            proc.send_signal(signal.SIGTERM)
            proc.wait()
    medians = {name: [statistics.median(times) for times in turns] for name, turns in found.items()}
    for turn in range(args.turns):
        on, off = medians["on"][turn], medians["off"][turn]
        print(f"turn {turn + 1}: first token after {on * 1000:8.1f} ms, without the cache {off * 1000:8.1f} ms: "
              f"{off / on:5.2f} x")
    ratio = medians["off"][-1] / medians["on"][-1]
    print(f"the last turn's first token comes {ratio:.2f} x sooner; the goal is {GOAL:.0f} x: "
          f"{'reached' if ratio >= GOAL else 'missed'}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"model": os.path.basename(args.model), "rounds": args.rounds, "ttft_s": medians, "ratio": ratio}, f)


if __name__ == "__main__":
    main()
