"""`weft bench-serve` beside our server, and beside servers made up here that split, break off and lie."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import xml.etree.ElementTree

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


def trace_file(name, text):
    """A file of made-up rows that is gone when the test is."""
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return folder, path


def mooncake(rows):
    return "".join(json.dumps({"timestamp": at, "input_length": n_in, "output_length": n_out, "hash_ids": ids}) + "\n"
                   for at, n_in, n_out, ids in rows)


def test_an_open_loop_sends_at_its_rate_and_counts_goodput():
    for args, name in (("--rate", "200"), "poisson"), (("--rate", "200", "--burstiness", "0.5"), "gamma"), \
                      (("--rate", "200", "--arrivals", "fixed"), "fixed"):
        with FakeServer(WHOLE) as fake:
            r = numbers(fake.url, *args, "--requests", "40", "--goodput",
                        "ttft:60000,itl:60000,tpot:60000,e2el:60000")
            assert r["arrivals"] == name and r["rate"] == 200 and r["failed"] == 0, r
            assert r["tokens"] == 120 and r["goodput"]["requests"] == 40 and r["goodput"]["tokens"] == 120, r
            assert name != "fixed" or r["seconds"] >= 38 / 200, r  # nothing is sent much before its moment
            assert len(fake.requests) == 40
    with FakeServer(WHOLE) as fake:  # bounds that nobody keeps
        r = numbers(fake.url, "--rate", "1000", "--requests", "5", "--goodput", "ttft:0.000001")
        assert r["goodput"]["requests"] == 0 and r["failed"] == 0, r


def test_a_request_that_waits_for_a_client_counts_from_its_moment():
    """One client, and all at once: the last answer comes after all the others, and its time says so."""
    with FakeServer(WHOLE) as fake:
        r = numbers(fake.url, "--rate", "1000000", "--requests", "30", "--concurrency", "1", "--arrivals", "fixed")
        assert fake.n_connections == 1 and r["failed"] == 0, r
        assert r["request_ms"]["p99"] >= 0.9 * 1000 * r["seconds"] and r["request_ms"]["p99"] > r["request_ms"]["p50"], r
        assert r["late_ms"]["p99"] > r["late_ms"]["p50"] > 0, r


def test_a_trace_is_replayed_with_its_prefixes():
    folder, path = trace_file("t.jsonl", mooncake([(0, 1024, 64, [1, 2]), (10, 1536, 16, [1, 2, 3]),
                                                   (10, 700, 0, [1, 4]), (20, 512, 5, [9])]))
    with folder, FakeServer(WHOLE) as fake:
        r = numbers(fake.url, "--trace", path, "--scale", "16", "--output-scale", "4", "--min-output", "3",
                    "--concurrency", "1", "--vocab", "50000")
        bodies = [body for _, body in fake.requests]
        assert r["trace"] == path and r["arrivals"] == "trace" and r["requests"] == 4 and r["failed"] == 0, r
        assert [len(b["prompt"]) for b in bodies] == [64, 96, 43, 32], bodies
        assert [b["max_tokens"] for b in bodies] == [16, 4, 3, 3], bodies
        a, b, c, d = (body["prompt"] for body in bodies)
        assert b[:64] == a and c[:32] == a[:32] and c[32:] != a[32:43] and d != a[:32]
    folder, path = trace_file("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                              + "".join(f"2031-05-06 07:08:0{i}.5,{10 + i},{i}\n" for i in range(6)))
    with folder, FakeServer(WHOLE) as fake:
        r = numbers(fake.url, "--trace", path, "--rate", "100", "--requests", "5", "--concurrency", "1")
        assert r["rate"] == 100 and r["requests"] == 5, r
        assert sorted(len(body["prompt"]) for _, body in fake.requests) == [10, 11, 12, 13, 14]


def test_broken_traces_and_flags_end_with_a_sentence():
    for text, words in (("", "is empty"), ("nonsense", "neither JSON nor"), ("{}", "line 1: timestamp"),
                        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2\n", "line 2: has fewer fields")):
        folder, path = trace_file("t", text)
        with folder:
            assert words in failure("http://127.0.0.1:1", "--trace", path)[1], text
    assert "/no/such" in failure("http://127.0.0.1:1", "--trace", "/no/such")[1]
    for args, words in ((("--arrivals", "poisson"), "--rate"), (("--arrivals", "trace"), "--trace"),
                        (("--goodput", "ttft"), "--goodput"), (("--extra", "[]"), "--extra"),
                        (("--extra", '{"stream": false}'), "stream"), (("--header", "nothing"), "NAME:VALUE"),
                        (("--header", "a: b\r\nc"), "NAME:VALUE"), (("--ttft-deadlines", "1,x"), "--ttft-deadlines"),
                        (("--rate", "-1"), "--rate"), (("--arrivals", "weekly"), "--arrivals")):
        assert words in failure("http://127.0.0.1:1", *args, status=2)[1], args
    assert "--svg" in failure("http://127.0.0.1:1", "--svg", "/no/such/folder/x.svg")[1]


def with_ids(*ids, text="x"):
    return "data: " + json.dumps({"choices": [{"index": 0, "text": text, "logprobs": {
        "tokens": [f"token_id:{i}" for i in ids], "top_logprobs": [{f"token_id:{i}": -1} for i in ids]}}]}) + "\n\n"


def test_each_turn_sends_what_was_said():
    answers = [chunked(with_ids(7) + with_ids(8, 9, text="") + usage(3) + DONE), chunked(with_ids(5) + usage(1) + DONE)]
    with FakeServer(*answers, answers[0]) as fake:
        r = numbers(fake.url, "--turns", "3", "--concurrency", "1", "--prompt-tokens", "4", "--turn-tokens", "2")
        first, second, third = (body["prompt"] for _, body in fake.requests)
        assert len(first) == 4 and second[:7] == [*first, 7, 8, 9] and len(second) == 9, (first, second)
        assert third[:10] == [*second, 5] and len(third) == 12, third
        assert [turn["requests"] for turn in r["by_turn"]] == [1, 1, 1] and r["turns"] == 3, r
        assert fake.n_connections == 1
    with FakeServer(WHOLE) as fake:
        r, why = failure(fake.url, "--turns", "2", "--concurrency", "1")
        assert "--chat" in why and r["failed"] == 1 and r["not_sent"] == 1, (r, why)


def said(text):
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}) + "\n\n"


def test_a_chat_sends_messages():
    with FakeServer(chunked(said("") + said('say "') + said("ö\\\n") + usage(2) + DONE)) as fake:
        r = numbers(fake.url, "--chat", "--turns", "2", "--concurrency", "1", "--prompt-tokens", "3")
        (head, first), (_, second) = fake.requests
        assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n") and r["tokens"] == 4, (head, r)
        assert [m["role"] for m in second["messages"]] == ["user", "assistant", "user"]
        assert second["messages"][0] == first["messages"][0] and second["messages"][1]["content"] == 'say "ö\\\n'
        assert len(first["messages"][0]["content"].split()) == 3


def test_headers_fields_and_deadlines_go_with_each_request():
    with FakeServer(WHOLE) as fake:
        r = numbers(fake.url, "--header", "x-a: 1", "--header", "X-B:2", "--api-key", "k", "--extra",
                    '{"user": "u", "max_tokens": 9}', "--ttft-deadlines", "1000,60000", "--requests", "20")
        deadlines = set()
        for head, body in fake.requests:
            assert b"\r\nx-a: 1\r\nX-B:2\r\n" in head and b"\r\nAuthorization: Bearer k\r\n" in head, head
            assert body["user"] == "u" and body["max_tokens"] == 9 and body["stream"], body
            deadlines.add(re.search(rb"\r\nx-llm-d-slo-ttft-ms: (\d+)\r\n", head).group(1))
        assert deadlines == {b"1000", b"60000"} and r["goodput"]["requests"] <= 20, (deadlines, r)


def test_refusals_and_time_outs_are_counted_by_kind():
    def refusal(status, more=""):
        return f"HTTP/1.1 {status} No\r\n{more}Content-Length: 3\r\n\r\nno\n".encode()

    replies = [refusal(429, "retry-AFTER: 2\r\n"), refusal(503, "Retry-After: 9\r\nretry-after-ms: 1500\r\n"),
               refusal(429), WHOLE]
    with FakeServer(*replies) as fake:
        r, _ = failure(fake.url, "--concurrency", "1", "--requests", "5")
        assert r["errors"] == {"429": 2, "503": 1} and r["failed"] == 3 and r["retry_after"] == 2, r
        assert r["retry_after_ms"]["p50"] == 1500 and r["retry_after_ms"]["p99"] == 2000, r
    with FakeServer(b"HTTP/1.1 200 OK\r\n\r\n" + event().encode() + b": " * (16 << 20), piece=1 << 20) as fake, \
            socket.create_server(("127.0.0.1", 0)) as silent:  # connections are made, and nobody reads them
        r, why = failure(f"http://127.0.0.1:{silent.getsockname()[1]}", "--concurrency", "1", "--requests", "1",
                         "--request-timeout", "1")
        assert r["errors"] == {"timeout": 1} and "--request-timeout" in why, (r, why)
        r, _ = failure(fake.url, "--concurrency", "1", "--requests", "1")
        assert r["errors"] == {"stream": 1}, r


def test_cached_tokens_are_summed_where_the_server_tells_them():
    told = "data: " + json.dumps({"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 1,
                                                          "prompt_tokens_details": {"cached_tokens": 48}}}) + "\n\n"
    with FakeServer(chunked(event() + told + DONE)) as fake:
        r = numbers(fake.url, "--concurrency", "1", "--requests", "3")
        assert r["cached_tokens"] == 144 and r["prompt_tokens_total"] == 150, r
        assert "144 of 150" in bench(fake.url, "--concurrency", "1", "--requests", "3").stdout
    with FakeServer(WHOLE) as fake:
        assert numbers(fake.url, "--requests", "1")["cached_tokens"] is None


def test_all_of_it_works_with_our_server():
    rows = [(i * 5, 64 + 128 * (i % 3), 8 + i, [i % 2, 10 + i]) for i in range(10)]
    folder, path = trace_file("t.jsonl", mooncake(rows))
    with folder, Server() as server:
        url, svg = f"http://127.0.0.1:{server.port}", os.path.join(folder.name, "a&b.svg")
        r = numbers(url, "--trace", path, "--scale", "4", "--svg", svg, "--goodput", "ttft:600000")
        assert r["failed"] == 0 and r["requests"] == 10, r
        assert r["prompt_tokens_total"] == sum(max(1, n // 4) for _, n, _, _ in rows), r
        assert r["tokens"] == sum(max(1, n // 4) for _, _, n, _ in rows) and r["goodput"]["requests"] == 10, r
        root = xml.etree.ElementTree.parse(svg).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and len(list(root)) > 20
        r = numbers(url, "--turns", "3", "--concurrency", "2", "--prompt-tokens", "20", "--turn-tokens", "5",
                    "--max-tokens", "8")
        assert [t["prompt_tokens"] for t in r["by_turn"]] == [40, 66, 92] and r["tokens"] == 48, r
        first, *later = (t["cached_tokens"] for t in r["by_turn"])
        assert first == 0 and all(n >= 2 * 16 for n in later), r  # the history's first block at least, of both
        r = numbers(url, "--chat", "--turns", "2", "--concurrency", "1", "--prompt-tokens", "5", "--max-tokens", "8")
        assert r["failed"] == 0 and r["tokens"] == 16, r
        r = numbers(url, "--rate", "100", "--requests", "10", "--max-tokens", "4")
        assert r["failed"] == 0 and r["tokens"] == 40, r
        table = bench(url, "--rate", "100", "--requests", "4", "--max-tokens", "4", "--goodput", "ttft:60000")
        assert "goodput: " in table.stdout and "poisson" in table.stdout and not table.stderr, table


def test_an_open_loop_goes_on_when_idle_connections_are_closed():
    for close_after in (1, 2):
        with FakeServer(WHOLE, close_after=close_after) as fake:
            r = numbers(fake.url, "--rate", "400", "--burstiness", "0.2", "--requests", "60")
            assert r["failed"] == 0 and r["tokens"] == 180 and len(fake.requests) == 60, r


def test_an_interrupt_reports_what_has_come():
    for number in (signal.SIGINT, signal.SIGTERM):
        with FakeServer(WHOLE) as fake, \
                subprocess.Popen([WEFT, "bench-serve", fake.url, "--json", "--rate", "0.01", "--requests", "9"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            harness.wait_until("a request is there", lambda: fake.requests)
            run.send_signal(number)
            out, why = run.communicate(timeout=harness.LIMIT_S)
            r = json.loads(out)
            assert run.returncode == 1 and "interrupted after" in why and r["not_sent"] >= 8, (r, why)
            assert r["failed"] == 0 and r["tokens"] in (0, 3), r


def test_who_sits_at_a_terminal_sees_how_far_it_is():
    master, slave = os.openpty()
    args = ["--rate", "20", "--requests", "8", "--arrivals", "fixed"]
    with FakeServer(WHOLE) as fake, \
            subprocess.Popen([WEFT, "bench-serve", fake.url, *args], stdout=subprocess.DEVNULL, stderr=slave) as run:
        os.close(slave)
        seen = b""
        with contextlib.suppress(OSError):  # the other end is closed when it has ended
            while piece := os.read(master, 4096):
                seen += piece
        assert run.wait(harness.LIMIT_S) == 0 and b"answered" in seen and b"running" in seen, seen
    os.close(master)


if __name__ == "__main__":
    harness.main()
