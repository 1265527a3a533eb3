#!/usr/bin/env python3
"""What a saved session spares a server that starts: the time to the first token of a conversation's next turn.

    bench/sessions.py [--said 1800] [--rounds 5] [--bin build/bin] [--json FILE] [MODEL] [-- serve options]

A first server answers a prompt of --said tokens and saves the session. Then two servers run side by side. In each round both
forget all that is cached; one restores the file, which is timed by itself, and both answer the next turn, in turns of who comes
first. Both must answer the same. Medians over the rounds; the last line is the goal: 5 x sooner, the restoring included.
"""

import argparse
import http.client
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time

import behind
from footprint import ROOT
from turns import TOKENS, ask, start

GOAL = 5.0
ADDED = 32  # tokens of the next turn


def post(port, path, body):
    conn = http.client.HTTPConnection("127.0.0.1", port)
    conn.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    reply = conn.getresponse()
    text = reply.read().decode()
    if reply.status != 200:
        sys.exit(f"{path}: {reply.status}: {text}")
    return json.loads(text) if text else {}


def save(args, directory, prompt):
    """What the first server answers, and what it wrote."""
    proc, port = start(args, "--session-dir", directory)
    body = {"prompt": prompt, "max_tokens": 16, "ignore_eos": True, "temperature": 0, "session_id": "talk",
            "return_token_ids": True}
    answer = post(port, "/v1/completions", body)["choices"][0]["token_ids"]
    saved = post(port, "/v1/sessions/talk/save", {"filename": "talk"})
    proc.send_signal(signal.SIGTERM)
    proc.wait()
    return answer, saved


def restore(port):
    begin = time.monotonic()
    post(port, "/v1/sessions/talk/restore", {"filename": "talk"})
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=os.path.join(ROOT, "models/fable-6m"))
    parser.add_argument("--said", type=int, default=1800)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    parser.add_argument("--json")
    args = behind.parse_args(parser, "weft serve")
    rng = random.Random(18)
    said = [rng.choice(TOKENS) for _ in range(args.said)]
    with tempfile.TemporaryDirectory(prefix="weft-sessions-") as directory:
        answer, saved = save(args, directory, said)
        prompt = said + answer + [rng.choice(TOKENS) for _ in range(ADDED)]
        servers = {"restored": start(args, "--session-dir", directory), "anew": start(args)}
        times, restores, answers = {name: [] for name in servers}, [], set()
        for i in range(args.rounds):
            for name in sorted(servers, reverse=i % 2 == 0):
                port = servers[name][1]
                post(port, "/reset_prefix_cache", {})
                if name == "restored":
                    restores.append(restore(port))
                first_s, tokens, n_cached = ask(port, prompt, 16)
                assert (n_cached >= saved["n_saved"]) == (name == "restored"), n_cached
                times[name].append(first_s)
                answers.add(tuple(tokens))
        for proc, _ in servers.values():
            proc.send_signal(signal.SIGTERM)
            proc.wait()
    assert len(answers) == 1, "the answers differ"
    median = {name: statistics.median(values) for name, values in times.items()}
    restore_s = statistics.median(restores)
    ratio = median["anew"] / (median["restored"] + restore_s)
    report = {"said": args.said, "n_saved": saved["n_saved"], "bytes": saved["n_written"], "anew_s": median["anew"],
              "restored_s": median["restored"], "restore_s": restore_s, "ratio": ratio,
              "ratio_without_restore": median["anew"] / median["restored"], "rounds": args.rounds}
    print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in report.items()}))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(report, f)
    print(f"first token {ratio:.1f} x sooner with the session restored, restoring included; goal {GOAL}")
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
