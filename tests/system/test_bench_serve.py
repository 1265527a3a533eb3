"""`weft bench-serve` beside our server, and beside servers made up here that split, break off and lie."""

import contextlib
import json
import os
import re
import socket
import subprocess
import threading

import harness
from harness import Server

WEFT = os.path.join(harness.BIN_DIR, "weft")


def bench(url, *args):
    return subprocess.run([WEFT, "bench-serve", url, *args], capture_output=True, text=True, timeout=harness.LIMIT_S,
                          check=False)


def numbers(url, *args):
    done = bench(url, "--json", *args)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def failure(url, *args, status=1):
    """(its JSON, its sentence) of a load that fails."""
    done = bench(url, "--json", *args)
    assert done.returncode == status and "Sanitizer" not in done.stderr, (done.returncode, done.stderr)
    return json.loads(done.stdout) if done.stdout else None, done.stderr


class FakeServer:
    """Answers each request on a connection with the next bytes of `replies` (the last one again and again), in pieces
    of `piece` bytes; closes the connection after every n-th if `close_after` is n."""

    def __init__(self, *replies, piece=1 << 20, close_after=0):
        self.replies, self.piece, self.close_after = list(replies), piece, close_after
        self.requests, self.n_connections = [], 0
        self.lock = threading.Lock()

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                conn, _ = self.listener.accept()
                self.n_connections += 1
                threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        n_answered = 0
        with conn, contextlib.suppress(OSError):
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            file = conn.makefile("rb")
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = file.readline()
                    if not line:
                        return
                    head += line
                length = int(re.search(rb"Content-Length: (\d+)", head).group(1))
                with self.lock:
                    self.requests.append((head, json.loads(file.read(length))))
                    reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                for at in range(0, len(reply), self.piece):
                    conn.sendall(reply[at : at + self.piece])
                n_answered += 1
                if not reply or n_answered == self.close_after:
                    return


def event(text="x", **more):
    return "data: " + json.dumps({"choices": [{"index": 0, "text": text}], **more}) + "\n\n"


def usage(n):
    return "data: " + json.dumps({"choices": [], "usage": {"completion_tokens": n}}) + "\n\n"


def chunked(text, head="Content-Type: text/event-stream\r\n"):
    body = text.encode()
    return (f"HTTP/1.1 200 OK\r\n{head}Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode() + body
            + b"\r\n0\r\n\r\n")


DONE = "data: [DONE]\n\n"
WHOLE = chunked(": hello\n\n" + event() * 3 + event("") + usage(3) + DONE)


def test_every_token_of_our_server_is_counted():
    with Server() as server:
        r = numbers(f"http://127.0.0.1:{server.port}", "--concurrency", "4", "--requests", "10", "--prompt-tokens", "20",
                    "--max-tokens", "16")
        assert r["failed"] == 0 and r["requests"] == 10 and r["tokens"] == 160, r
        assert r["tokens_per_s"] > 0 and 0 < r["first_token_ms"]["p50"] <= r["request_ms"]["p99"], r
        assert server.metric("weft_generation_tokens_total") == 160
        assert server.metric("weft_prompt_tokens_total") == 200
        for base in "/", "/v1", "/v1/":
            table = bench(f"http://127.0.0.1:{server.port}{base}", "--requests", "1", "--concurrency", "1")
            assert table.returncode == 0 and "tokens/s" in table.stdout and not table.stderr, table
        _, why = failure(f"http://127.0.0.1:{server.port}", "--vocab", "2000000", "--prompt-tokens", "900")
        assert "status 400" in why, why


def test_pieces_of_any_size_make_the_same_stream():
    for piece in (1, 7, 100, 1 << 20):
        with FakeServer(WHOLE, piece=piece) as fake:
            r = numbers(fake.url, "--concurrency", "2", "--requests", "4", "--prompt-tokens", "5", "--max-tokens", "3")
            assert r["tokens"] == 12 and r["failed"] == 0, (piece, r)
            assert fake.n_connections == 2, "connections are kept"
            for head, body in fake.requests:
                assert head.startswith(b"POST /v1/completions HTTP/1.1\r\n"), head
                assert len(body["prompt"]) == 5 and max(body["prompt"]) < 1000, body
                assert body["stream"] and body["ignore_eos"] and body["max_tokens"] == 3, body


def test_without_usage_events_are_counted():
    with FakeServer(chunked(event() * 5 + event("") + DONE)) as fake:
        assert numbers(fake.url, "--concurrency", "1", "--requests", "2")["tokens"] == 10


def test_a_server_may_close_its_connections():
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    with FakeServer(head + (event() * 3 + DONE).encode(), close_after=1) as fake:
        r = numbers(fake.url, "--concurrency", "1", "--requests", "4")
        assert r["tokens"] == 12 and fake.n_connections == 4, r
    with FakeServer(WHOLE, close_after=2) as fake:  # without having said so
        r = numbers(fake.url, "--concurrency", "1", "--requests", "6")
        assert r["tokens"] == 18 and fake.n_connections == 3, r


def test_the_prompts_come_from_the_seed():
    prompts = []
    for seed in ("1", "1", "2"):
        with FakeServer(WHOLE) as fake:
            numbers(fake.url, "--concurrency", "1", "--requests", "2", "--seed", seed)
            prompts.append([body["prompt"] for _, body in fake.requests])
    assert prompts[0] == prompts[1] != prompts[2] and prompts[0][0] != prompts[0][1]


def test_what_goes_wrong_is_counted_and_told_in_a_sentence():
    refusal = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 8\r\n\r\nnot now\n"
    for reply, words in ((refusal, "status 503"), (chunked(event() * 2), "without [DONE]"),
                         (WHOLE[:-40], "the connection broke"), (b"nonsense\r\n\r\n", "not HTTP"), (b"", "connection broke"),
                         (chunked('data: {"error": {"message": "lost"}}\n\n'), "lost"),
                         (chunked("data: " + "x" * (2 << 20)), "too long")):
        with FakeServer(reply, close_after=1) as fake:
            r, why = failure(fake.url, "--concurrency", "2", "--requests", "4")
            assert r["failed"] == 4 and words in why and words in r["first_failure"], (reply[:60], r, why)
    with FakeServer(refusal, WHOLE, WHOLE) as fake:
        r, why = failure(fake.url, "--concurrency", "1", "--requests", "3")
        assert r["failed"] == 1 and r["tokens"] == 6 and "1 of 3" in why, (r, why)


def test_wrong_urls_and_flags_end_with_a_sentence():
    for url in ("ftp://host", "http://", "http://h:", "http://h:1234567890", "http://" + "h" * 300, "host:80"):
        assert "http://HOST" in failure(url, status=2)[1], url
    assert "no URL" in bench("").stderr and "--concurrency" in bench("http://h", "--concurrency", "0").stderr
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    assert "cannot connect" in failure(f"http://127.0.0.1:{port}", "--requests", "1")[1]


if __name__ == "__main__":
    harness.main()
