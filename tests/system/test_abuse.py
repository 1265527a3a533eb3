"""Hostile and clumsy clients: nothing crashes, nothing leaks, the others notice nothing."""

import json
import os
import socket
import struct
import threading
import time

import harness
from harness import Server

POST = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def raw(server, data, limit_s=10 * harness.SLOW, half_close=False):
    """Sends bytes, reads until the server closes or nothing comes for a while."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=limit_s) as sock:
        reply = b""
        try:
            sock.sendall(data)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
            sock.settimeout(2 * harness.SLOW)
            while chunk := sock.recv(65536):
                reply += chunk
                if b"\r\n\r\n" in reply and b"onnection: close" not in reply and complete(reply):
                    break
        except (ConnectionError, TimeoutError):
            pass
        return reply


def complete(reply):
    head, _, body = reply.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.split(b":")[1])
    return False


def status_of(reply):
    return int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.1 ") else None


def alive(server):
    assert server.complete(prompt="Still", max_tokens=2, ignore_eos=True)["usage"]["completion_tokens"] == 2


class Witness:
    """A client that keeps working beside the abuse; its answers must not change."""

    def __init__(self, server):
        self.server, self.stop, self.n, self.error = server, threading.Event(), 0, None
        self.body = {"prompt": "The witness said", "max_tokens": 20, "temperature": 0, "ignore_eos": True}
        self.expected = server.complete(**self.body)["choices"][0]["text"]
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.stop.is_set():
                assert self.server.complete(**self.body)["choices"][0]["text"] == self.expected
                self.n += 1
        except BaseException as error:  # noqa: BLE001 - raised on leaving
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.stop.set()
        self.thread.join()
        if self.error and not kind:
            raise self.error
        assert kind or self.n > 0


def test_malformed_http_is_refused():
    rng = harness.rng()
    with Server() as server, Witness(server):
        for data, statuses in (
            (b"\x00\x01\x02\x03\r\n\r\n", {400, None}),
            (b"GET\r\n\r\n", {400}),
            (b"GET / HTTP/9.9\r\n\r\n", {400, 505}),
            (b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n", {400}),
            (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", {400}),
            (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", {400, 413}),
            (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", {400}),
            (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
             {400}),
            (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", {400}),
            (b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {400, 414, 431, None}),
            (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(5000)) + b"\r\n", {400, 431}),
            (b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", {404}),
            (b"DELETE /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n", {405}),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 405, 505, None}),
        ):
            got = status_of(raw(server, data))
            assert got in statuses, (got, data[:80])
        for _ in range(100):
            raw(server, bytes(rng.getrandbits(8) for _ in range(rng.randrange(1, 400))) + b"\r\n\r\n", half_close=True)
        alive(server)


def test_bytes_that_come_one_at_a_time():
    body = json.dumps({"prompt": "Slow", "max_tokens": 3, "ignore_eos": True}).encode()
    data = (POST % len(body)).encode() + body
    with Server() as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i in range(len(data)):
                sock.sendall(data[i : i + 1])
            reply = b""
            while not complete(reply):
                reply += sock.recv(65536)
        assert status_of(reply) == 200


def test_pipelined_requests_are_answered_in_order():
    with Server() as server:
        data = b""
        for i in range(20):
            body = json.dumps({"prompt": "x", "max_tokens": 1 + (20 - i) * 3, "ignore_eos": True, "temperature": 0}).encode()
            data += (POST % len(body)).encode() + body
        with socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S) as sock:
            sock.sendall(data)
            stream = sock.makefile("rb")
            for i in range(20):
                assert b"200" in stream.readline()
                length = 0
                while (line := stream.readline().strip().lower()):
                    if line.startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                reply = json.loads(stream.read(length))
                assert reply["usage"]["completion_tokens"] == 1 + (20 - i) * 3


def test_a_body_over_the_limit_is_413():
    with Server("--max-body", "64KiB") as server:
        assert server.post("/v1/completions", {"prompt": "a" * 70000}).status == 413
        chunked = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunked += (b"4000\r\n" + b"a" * 0x4000 + b"\r\n") * 8
        assert status_of(raw(server, chunked)) == 413
        alive(server)


BAD_BODIES = [  # (path, body, status, param)
    ("/v1/completions", b"", 400, None),
    ("/v1/completions", b"{", 400, None),
    ("/v1/completions", b"[]", 400, None),
    ("/v1/completions", b"null", 400, None),
    ("/v1/completions", b'{"prompt": "\xff\xfe"}', 400, None),
    ("/v1/completions", b'{"prompt": "a", "max_tokens": NaN}', 400, None),
    ("/v1/completions", b"[" * 100000, 400, None),
    ("/v1/completions", {}, 400, "prompt"),
    ("/v1/completions", {"prompt": 5}, 400, "prompt"),
    ("/v1/completions", {"prompt": []}, 400, "prompt"),
    ("/v1/completions", {"prompt": [[]]}, 400, "prompt"),
    ("/v1/completions", {"prompt": [1, "a"]}, 400, "prompt"),
    ("/v1/completions", {"prompt": [999999]}, 400, "prompt"),
    ("/v1/completions", {"prompt": [-1]}, 400, "prompt"),
    ("/v1/completions", {"prompt": [1.5]}, 400, "prompt"),
    ("/v1/completions", {"prompt": "a", "model": 5}, 400, "model"),
    ("/v1/completions", {"prompt": "a", "model": "other"}, 404, "model"),
    ("/v1/completions", {"prompt": "a", "max_tokens": "5"}, 400, "max_tokens"),
    ("/v1/completions", {"prompt": "a", "max_tokens": -1}, 400, "max_tokens"),
    ("/v1/completions", {"prompt": "a", "max_tokens": 1e30}, 400, "max_tokens"),
    ("/v1/completions", {"prompt": "a", "temperature": "hot"}, 400, "temperature"),
    ("/v1/completions", {"prompt": "a", "temperature": -0.1}, 400, "temperature"),
    ("/v1/completions", {"prompt": "a", "top_p": 0}, 400, "top_p"),
    ("/v1/completions", {"prompt": "a", "top_p": 1.1}, 400, "top_p"),
    ("/v1/completions", {"prompt": "a", "top_k": -2}, 400, "top_k"),
    ("/v1/completions", {"prompt": "a", "min_p": 2}, 400, "min_p"),
    ("/v1/completions", {"prompt": "a", "n": 0}, 400, "n"),
    ("/v1/completions", {"prompt": "a", "n": 100000}, 400, "n"),
    ("/v1/completions", {"prompt": "a", "stop": ["a", "b", "c", "d", "e"]}, 400, "stop"),
    ("/v1/completions", {"prompt": "a", "stop": 5}, 400, "stop"),
    ("/v1/completions", {"prompt": "a", "logprobs": 21}, 400, "logprobs"),
    ("/v1/completions", {"prompt": "a", "logprobs": -2}, 400, "logprobs"),
    ("/v1/completions", {"prompt": "a", "logit_bias": {"x": 1}}, 400, "logit_bias"),
    ("/v1/completions", {"prompt": "a", "logit_bias": {"5": 1000}}, 400, "logit_bias"),
    ("/v1/completions", {"prompt": "a", "presence_penalty": 3}, 400, "presence_penalty"),
    ("/v1/completions", {"prompt": "a", "repetition_penalty": 0}, 400, "repetition_penalty"),
    ("/v1/completions", {"prompt": "a", "stream": "yes"}, 400, "stream"),
    ("/v1/completions", {"prompt": "a", "stream_options": {"include_usage": True}}, 400, "stream_options"),
    ("/v1/completions", {"prompt": "a", "response_format": {"type": "json_object"}}, 400, "response_format"),
    ("/v1/completions", {"prompt": "a", "suffix": "z"}, 400, "suffix"),
    ("/v1/completions", {"prompt": "a", "min_tokens": 20, "max_tokens": 5}, 400, "min_tokens"),
    ("/v1/completions", {"prompt": "a", "stop_token_ids": ["x"]}, 400, "stop_token_ids"),
    ("/v1/chat/completions", {"messages": "hello"}, 400, "messages"),
    ("/v1/chat/completions", {"messages": []}, 400, "messages"),
    ("/v1/chat/completions", {"messages": [{"content": "x"}]}, 400, None),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": [
        {"type": "function", "function": {"name": "f"}}]}, 400, "tools"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "top_logprobs": 3}, 400, "top_logprobs"),
    ("/tokenize", {"prompt": 5}, 400, "prompt"),
    ("/detokenize", {"tokens": "x"}, 400, "tokens"),
]


def test_wrong_types_and_values_name_the_parameter():
    with Server() as server, Witness(server):
        for path, body, status, param in BAD_BODIES:
            reply = server.post(path, body)
            assert reply.status == status, (path, body, reply.status, reply.text)
            error = reply.json["error"]
            assert error["message"] and error["type"], error
            assert {"message", "type", "param", "code"} <= set(error), error
            if param:
                assert error["param"] == param, (body, error)
        # What OpenAI ignores is ignored.
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "no_such_field": 1, "user": "me"}).status == 200
        # null is the same as absent.
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "stop": None, "seed": None,
                                               "logprobs": None, "temperature": None}).status == 200


def test_a_prompt_longer_than_the_context_is_400_as_openai_words_it():
    with Server("--max-model-len", "64") as server:
        reply = server.post("/v1/completions", {"prompt": [5] * 64, "max_tokens": 1})
        assert reply.status == 400 and "maximum context length is 64 tokens" in reply.json["error"]["message"], reply.text
        assert server.post("/v1/completions", {"prompt": [5] * 63, "max_tokens": 1}).status == 200
        assert server.post("/v1/completions", {"prompt": [5] * 10, "max_tokens": 55}).status == 400
        assert server.post("/v1/completions", {"prompt": "long " * 2000, "max_tokens": 1}).status == 400


def test_ten_thousand_requests_against_a_bounded_queue():
    """Exactly those over the bound get 429 with Retry-After; the others are answered."""
    n = 10000 if not harness.SANITIZED else 1000
    body = json.dumps({"prompt": "q", "max_tokens": 2, "ignore_eos": True}).encode()
    head = (POST % len(body)).replace("Host: x", "Host: x\r\nConnection: keep-alive").encode()
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < n + 200:
        n = hard - 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, n + 500)), hard))
    with Server("--max-queue", "100", "--max-num-seqs", "4", "--max-connections", "20000") as server:
        socks = []
        for _ in range(n):
            sock = socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S)
            sock.sendall(head + body)
            socks.append(sock)
        counts = {}
        for sock in socks:
            reply = b""
            while not complete(reply):
                chunk = sock.recv(65536)
                assert chunk, reply
                reply += chunk
            status = status_of(reply)
            counts[status] = counts.get(status, 0) + 1
            if status == 429:
                assert b"\r\nretry-after:" in reply.lower(), reply
            sock.close()
        print(f"    {n} requests: {counts}", flush=True)
        assert set(counts) <= {200, 429} and counts[200] >= 100, counts
        # Deterministic part: with the four places and the queue full, one more is refused.
        alive(server)


def test_a_full_queue_says_429():
    with Server("--max-queue", "2", "--max-num-seqs", "1") as server:
        conns = []
        for _ in range(3):
            conn = server.connect()
            conn.request("POST", "/v1/completions", json.dumps(
                {"prompt": "x", "max_tokens": 1000, "ignore_eos": True, "stream": True}), {})
            conns.append(conn)
            harness.wait_until("it to be taken in", lambda c=len(conns): server.metric("weft_num_requests_running")
                               + server.metric("weft_num_requests_waiting") >= c or server.metric("weft_num_requests_running") == 0)
        reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
        if reply.status != 200:  # 200 only if the first had ended by then
            assert reply.status == 429 and int(reply.headers["Retry-After"]) >= 1, (reply.status, reply.text)
        for conn in conns:
            conn.close()


def test_clients_that_vanish_free_their_blocks():
    with Server() as server, Witness(server):
        for how in ("close", "reset", "shutdown"):
            socks = []
            for _ in range(8):
                body = json.dumps({"prompt": "Vanish", "max_tokens": 950, "ignore_eos": True, "stream": True}).encode()
                sock = socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S)
                sock.sendall((POST % len(body)).encode() + body)
                sock.recv(100)
                socks.append(sock)
            for sock in socks:
                if how == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if how == "shutdown":
                    sock.shutdown(socket.SHUT_WR)
                else:
                    sock.close()
            # The witness alone may hold blocks: at most one request runs.
            harness.wait_until("the vanished to leave", lambda: server.metric("weft_num_requests_running") <= 1)
            for sock in socks:
                sock.close()


def test_clients_that_stop_reading_stall_nobody():
    with Server("--client-stall-timeout", str(3000 * harness.SLOW)) as server, Witness(server) as witness:
        stalled = []
        for _ in range(3):  # each far more text than the kernel's buffers take
            body = json.dumps({"prompt": "Stall", "max_tokens": 900, "ignore_eos": True, "stream": True,
                               "logprobs": 20, "n": 10}).encode()
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", server.port))
            sock.sendall((POST % len(body)).encode() + body)
            stalled.append(sock)
        before = witness.n
        harness.wait_until("the witness to be served meanwhile", lambda: witness.n >= before + 5)
        # Their requests run to the end without them; then the connections are dropped.
        harness.wait_until("the stalled requests to end", lambda: server.metric("weft_num_requests_running") <= 1)
        def dropped(sock):
            sock.setblocking(False)
            try:
                while sock.recv(1 << 20):
                    pass
                return True
            except BlockingIOError:
                return False
            except ConnectionError:
                return True
        time.sleep(3.5 * harness.SLOW)  # nothing is read for longer than the limit
        harness.wait_until("the stalled connections to be dropped", lambda: all(dropped(s) for s in stalled))
        for sock in stalled:
            sock.close()


def test_hostile_msgpack_rpc():
    rng = harness.rng()
    with Server() as server, Witness(server):
        cases = [
            b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
            b"\x91" * 100000, b"\x94\x00\x01\xa8generate\x91" + b"\x81\xa1a" * 5000, b"\xc1" * 100,
            b"\x94\x00\x01\xa8generate\x90", b"\x94\x00\x01\xa5hello\x91\x80", b"\x93\x02\xa6cancel\x91\x80",
            b"\x94\x00\xc0\xa8generate\x91\x80", b"\x90", b"\x80", b"\x94\x01\x00\xc0\xc0",
        ] + [bytes(rng.getrandbits(8) for _ in range(rng.randrange(1, 300))) for _ in range(200)]
        for data in cases:
            with socket.create_connection(("127.0.0.1", server.rpc_port), timeout=10 * harness.SLOW) as sock:
                try:
                    sock.sendall(data)
                    sock.shutdown(socket.SHUT_WR)
                    sock.settimeout(10 * harness.SLOW)
                    while sock.recv(65536):
                        pass
                except ConnectionError:
                    pass
        alive(server)


def test_nothing_leaks():
    """Files and memory of all processes are flat over many requests of all kinds."""
    n = 300 if not harness.SANITIZED else 60
    with Server("--no-rpc") as server:
        def work():
            for i in range(n):
                server.post("/v1/completions", {"prompt": "leak", "max_tokens": 2, "n": 1 + i % 3, "logprobs": i % 5})
                server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2})
                server.post("/v1/completions", b"{" * (i % 50))
        work()
        files = {k: len(os.listdir(f"/proc/{p}/fd")) for k, p in server.children().items()}
        memory = resident(server)
        work()
        harness.wait_until("files to be closed", lambda: all(
            len(os.listdir(f"/proc/{p}/fd")) <= files[k] + 2 for k, p in server.children().items()))
        after = resident(server)
        print(f"    resident KiB: {memory} then {after}", flush=True)
        if not harness.SANITIZED:
            assert all(after[k] <= memory[k] + 4096 for k in memory), (memory, after)


def resident(server):
    found = {}
    for name, pid in server.children().items():
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            found[name] = next(int(l.split()[1]) for l in f if l.startswith("VmRSS"))
    return found


if __name__ == "__main__":
    harness.main()
