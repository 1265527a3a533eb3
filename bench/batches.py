#!/usr/bin/env python3
"""What a batch costs those who are served meanwhile: gaps between the tokens of streams alone, and beside a batch.

    bench/batches.py [--model models/fable-6m] [--streams 8] [--lines 10000] [--tokens 64] [--seconds 30] [-- options of weft serve]

The streams go on again and again for so many seconds, alone and then beside the batch; after that the batch has the
machine for itself. Printed are percentiles of the gaps in ms, their ratio, and lines a second in both parts.
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

import behind

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN_DIR = os.environ.get("WEFT_BIN_DIR", os.path.join(ROOT, "build", "bin"))


class Server:
    def __init__(self, model, folder, flags):
        self.proc = subprocess.Popen([os.path.join(BIN_DIR, "weft"), "serve", model, "--port", "0", "--no-rpc",
                                      "--batch-store", folder, *flags], stderr=subprocess.PIPE, text=True)
        for line in self.proc.stderr:
            match = re.search(r"^weft: ready on http://\S*:(\d+)$", line.strip())
            if match:
                self.port = int(match.group(1))
                break
        else:
            sys.exit("the server ended early")
        threading.Thread(target=self.proc.stderr.read, daemon=True).start()

    def request(self, method, path, body=None, headers=None):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        conn.request(method, path, body, headers or {"Content-Type": "application/json"})
        data = conn.getresponse().read()
        conn.close()
        return json.loads(data)


def stream(server, i, until, gaps):
    """Gaps between tokens in ms, until then."""
    round_ = 0
    while time.monotonic() < until:
        conn = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
        body = {"prompt": f"Once upon a time {i} {round_}", "max_tokens": 400, "ignore_eos": True, "stream": True}
        conn.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        last = None
        for line in conn.getresponse():
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic()
            if last:
                gaps.append((now - last) * 1000)
            last = now
        conn.close()
        round_ += 1


def measure(server, args):
    gaps = [[] for _ in range(args.streams)]
    until = time.monotonic() + args.seconds
    threads = [threading.Thread(target=stream, args=(server, i, until, gaps[i])) for i in range(args.streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = sorted(gap for one in gaps for gap in one)
    return [every[min(len(every) - 1, int(len(every) * share))] for share in (0.5, 0.9, 0.99)]


def upload(server, args):
    lines = "".join(json.dumps({"custom_id": f"{i}", "method": "POST", "url": "/v1/completions", "body": {
        "prompt": f"It was late {i}", "max_tokens": args.tokens, "ignore_eos": True}}) + "\n" for i in range(args.lines))
    form = ("--edge\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--edge\r\n"
            f"Content-Disposition: form-data; name=\"file\"; filename=\"in\"\r\n\r\n{lines}\r\n--edge--\r\n")
    file = server.request("POST", "/v1/files", form.encode(), {"Content-Type": "multipart/form-data; boundary=edge"})
    return server.request("POST", "/v1/batches", json.dumps({
        "input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default=os.path.join(ROOT, "models", "fable-6m"))
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30)
    args = behind.parse_args(parser, "weft serve")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(args.model, folder, args.options)
        measure(server, argparse.Namespace(**{**vars(args), "seconds": min(5, args.seconds)}))  # warm
        alone = measure(server, args)
        batch, begin = upload(server, args), time.monotonic()
        beside = measure(server, args)

        def n_done():
            return server.request("GET", f"/v1/batches/{batch['id']}")["request_counts"]["completed"]
        n_beside, now = n_done(), time.monotonic()
        time.sleep(min(args.seconds, 10))
        n_alone = n_done() - n_beside
        for name, a, b in zip(("p50", "p90", "p99"), alone, beside):
            print(f"{name}: {a:.2f} ms alone, {b:.2f} ms beside the batch: {b / a:.2f} x")
        print(f"lines: {n_beside / (now - begin):.1f} a second beside the streams, "
              f"{n_alone / min(args.seconds, 10):.1f} without them")
        server.proc.terminate()
        server.proc.wait()


if __name__ == "__main__":
    main()
