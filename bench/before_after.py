#!/usr/bin/env python3
"""Two builds of weft in turns: did a change make anything slower?

    bench/before_after.py --before DIR [--after build/bin] --model tl-Q8_0.gguf [--model tl-BF16.gguf]
                          [--rows bench,server,small,start] [--rounds 9] [--json FILE]

DIR is the bin/ folder of a build of the commit before. Every round measures both builds, first one and then the other
in odd rounds and the reverse in even ones; it prints medians of each round's ratio, after / before.

bench   `weft bench` of each --model: prompt 512, decode 1 and 16
server  `weft bench-serve` (the same one for both) against the first --model: 1 and 16 clients, 128 tokens in, 64 out
small   fable-6m, one compute thread, 64 in, 64 out: 1, 8 and 32 clients
start   fable-6m: milliseconds from start to the ready line, PSS of router, scheduler and worker in MiB (differences)
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import types

import footprint
import peer

GOALS = {"bench": 0.98, "server": 0.98, "small 8": 0.90, "small 32": 0.90, "small 1": 0.80}
START_GOALS = {"ready_ms": 10, "pss_mib": 3}


def bench(bin_dir, model, threads):
    """{figure: tokens per second}"""
    done = subprocess.run([os.path.join(bin_dir, "weft"), "bench", model, "--prompt", "512", "--gen", "32", "--batch", "1,16",
                           "--reps", "1", "--threads", str(threads), "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    told = json.loads(done.stdout)
    figures = {f"prompt {p['tokens']}": p["tokens_per_s"] for p in told["prompt"]}
    return {**figures, **{f"decode {d['batch']}": d["tokens_per_s"] for d in told["decode"]}}


def serve(args, bin_dir, model, threads, clients, prompt, vocab, requests):
    """{clients: tokens per second}; the client is the same program for both servers."""
    of = types.SimpleNamespace(bin=bin_dir)
    client = types.SimpleNamespace(bin=args.after)
    with peer.weft_server(of, model, threads, 0) as (url, _):
        peer.load(client, url, min(clients), min(clients), prompt, vocab, 0)  # warm
        return {n: peer.load(client, url, n, requests(n), prompt, vocab, 1)["tokens_per_s"] for n in clients}


def start(bin_dir, model):
    ready_ms, pss = footprint.one_start([os.path.join(bin_dir, "weft"), "serve", model, "--port", "0", "--rpc-port", "0",
                                         "--kv-memory", "16MiB"])
    return {"ready_ms": ready_ms, "pss_mib": sum(v for name, v in pss.items() if name != "weft")}


def measure(args, row, bin_dir):
    if row == "bench":
        return {f"bench {os.path.basename(model)} {name}": value for model in args.model
                for name, value in bench(bin_dir, model, args.threads).items()}
    if row == "server":
        told = serve(args, bin_dir, args.model[0], args.threads, (1, 16), 128, 32000, lambda n: max(4, n))
        return {f"server {n}": value for n, value in told.items()}
    if row == "small":
        told = serve(args, bin_dir, args.small_model, 1, (1, 8, 32), 64, 4000, lambda n: max(100, 20 * n))
        return {f"small {n}": value for n, value in told.items()}
    return {f"start {name}": value for name, value in start(bin_dir, args.small_model).items()}


def goal_of(figure):
    return next((goal for prefix, goal in GOALS.items() if figure == prefix or figure.startswith(prefix + " ")), None)


def summarise(figure, rounds):
    """(line to print, goal met)"""
    before, after = ([r[side][figure] for r in rounds] for side in ("before", "after"))
    if figure.startswith("start "):
        goal = START_GOALS[figure.split(" ", 1)[1]]
        more = statistics.median(after) - statistics.median(before)
        met = more <= goal
        compared = f"{more:+.1f} | at most +{goal}"
    else:
        goal = goal_of(figure)
        ratio = statistics.median(a / b for a, b in zip(after, before))
        met = ratio >= goal
        compared = f"{ratio:.3f} | {goal}"
    return (f"| {figure} | {statistics.median(before):.1f} | {statistics.median(after):.1f} | {compared} | "
            f"{'yes' if met else 'NO'} |", met)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", default=os.path.join(peer.ROOT, "build/bin"))
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--small-model", default=os.path.join(peer.ROOT, "models/fable-6m"))
    parser.add_argument("--rows", default="bench,server,small,start")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    rows = args.rows.split(",")
    if not args.model and {"bench", "server"} & set(rows):
        sys.exit("--model FILE.gguf is needed for the rows bench and server")
    sides = {"before": args.before, "after": args.after}
    print("| | before | after | ratio | goal | met |\n|---|--:|--:|--:|--:|---|", flush=True)
    all_met, raw = True, {}
    for row in rows:
        rounds = []
        for number in range(args.rounds):
            order = list(sides) if number % 2 == 0 else list(reversed(sides))
            rounds.append({side: measure(args, row, sides[side]) for side in order})
            print(f"{row}: round {number + 1} of {args.rounds}", file=sys.stderr)
        raw[row] = rounds
        for figure in rounds[0]["before"]:
            line, met = summarise(figure, rounds)
            all_met &= met
            print(line, flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(raw, f, indent=1)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
