"""Hostile and clumsy clients: nothing crashes, nothing leaks, the others notice nothing."""

import contextlib
import functools
import json
import os
import re
import resource
import shutil
import socket
import struct
import threading
import time

import msgpack  # of python3-msgpack: for messages too long for ours

import harness
from harness import Server, Skip
from rpc import Rpc, packed

POST = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def raw(server, data, half_close=False):
    """Sends bytes; returns those that come until the server closes, or until one whole response is there."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S) as sock:
        reply = b""
        with contextlib.suppress(ConnectionError):  # it may answer and close before all is sent
            sock.sendall(data)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while chunk := sock.recv(65536):
                reply += chunk
                if b"onnection: close" not in reply and complete(reply):
                    break
        return reply


def complete(reply):
    head, end, body = reply.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n") if end else ():
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.split(b":")[1])
    return False


def read_answer(stream):
    """The next response of a connection: (status, headers in small letters, body)."""
    line = stream.readline()
    assert line.startswith(b"HTTP/1.1 "), line
    headers = {}
    while (header := stream.readline().strip()):
        name, _, value = header.partition(b":")
        headers[name.lower().decode()] = value.strip().decode()
    return int(line.split()[1]), headers, stream.read(int(headers["content-length"]))


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
        for data, status in (
            (b"\x00\x01\x02\x03\r\n\r\n", 400),
            (b"GET\r\n\r\n", 400),
            (b"GET / HTTP/9.9\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n", 400),
            (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400),
            (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
            (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
            (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
             400),
            (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", 400),
            (b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
            (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(5000)) + b"\r\n", 431),
            (b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404),
            (b"DELETE /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n", 405),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ):
            got = status_of(raw(server, data))
            assert got == status, (got, data[:80])
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
                status, _, body = read_answer(stream)
                assert status == 200, (status, body)
                assert json.loads(body)["usage"]["completion_tokens"] == 1 + (20 - i) * 3


def test_many_pipelined_requests_leave_others_their_turn():
    """Two thousand that are answered at once, and in the same moment somebody else's: by the server's own count that
    one is not the last. Half-closed as well: all are answered, and in the end the connection is."""
    n = 2000
    with Server() as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S) as many, \
                socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S) as other:
            for sock in (many, other):
                sock.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
                assert read_answer(sock.makefile("rb"))[0] == 200
            with server.stopped("router"):
                many.sendall(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" * n)
                many.shutdown(socket.SHUT_WR)
                other.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            status, _, body = read_answer(other.makefile("rb"))
            assert status == 200
            match = re.search(rb'^weft_http_requests_total{.*handler="/",method="GET",status="2xx"} (\d+)', body, re.M)
            assert not match or int(match.group(1)) < n / 4, match.group(0)
            data = b""
            while chunk := many.recv(1 << 20):
                data += chunk
            assert data.count(b"HTTP/1.1 200 OK\r\n") == n


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
    ("/v1/completions", {"prompt": "a", "stop": ["a"] * 65}, 400, "stop"),
    ("/v1/completions", {"prompt": "a", "stop": 5}, 400, "stop"),
    ("/v1/completions", {"prompt": "a", "logprobs": 21}, 400, "logprobs"),
    ("/v1/completions", {"prompt": "a", "logprobs": -2}, 400, "logprobs"),
    ("/v1/completions", {"prompt": "a", "logit_bias": {"x": 1}}, 400, "logit_bias"),
    ("/v1/completions", {"prompt": "a", "logit_bias": {"5": 1000}}, 400, "logit_bias"),
    ("/v1/completions", {"prompt": "a", "presence_penalty": 3}, 400, "presence_penalty"),
    ("/v1/completions", {"prompt": "a", "repetition_penalty": 0}, 400, "repetition_penalty"),
    ("/v1/completions", {"prompt": "a", "stream": "yes"}, 400, "stream"),
    ("/v1/completions", {"prompt": "a", "stream_options": {"include_usage": True}}, 400, "stream_options"),
    ("/v1/completions", {"prompt": "a", "response_format": {"type": "xml"}}, 400, "response_format"),
    ("/v1/completions", {"prompt": "a", "suffix": "z"}, 400, "suffix"),
    ("/v1/completions", {"prompt": "a", "min_tokens": 20, "max_tokens": 5}, 400, "min_tokens"),
    ("/v1/completions", {"prompt": "a", "stop_token_ids": ["x"]}, 400, "stop_token_ids"),
    ("/v1/chat/completions", {"messages": "hello"}, 400, "messages"),
    ("/v1/chat/completions", {"messages": []}, 400, "messages"),
    ("/v1/chat/completions", {"messages": [{"content": "x"}]}, 400, None),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": [
        {"type": "function", "function": {"name": 5}}]}, 400, "tools"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "top_logprobs": 3}, 400, "top_logprobs"),
    ("/v1/responses", b"[]", 400, None),
    ("/v1/responses", {}, 400, "input"),
    ("/v1/responses", {"input": [[]]}, 400, "input[0]"),
    ("/v1/responses", {"input": [{"type": "function_call_output", "output": "x"}]}, 400, "input[0].call_id"),
    ("/v1/responses", {"input": "x", "tools": [{"type": "function"}]}, 400, "tools"),
    ("/v1/responses", {"input": "x", "previous_response_id": 5}, 400, "previous_response_id"),
    ("/v1/responses", {"input": "x", "text": {"format": {"type": "json_schema", "schema": 5}}}, 400, "text"),
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
        # Fields that OpenAI ignores are ignored.
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "no_such_field": 1, "user": "me"}).status == 200
        # null is the same as absent.
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "stop": None, "seed": None,
                                               "logprobs": None, "temperature": None}).status == 200


BAD_MESSAGES = [{}, {"max_tokens": 5}, {"max_tokens": 5, "messages": 5}, {"max_tokens": 5, "messages": [5]},
                {"max_tokens": 5, "messages": [{"role": "king", "content": "x"}]}, {"messages": [{"role": "user", "content": "x"}]},
                {"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
                {"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
                {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "tools": [{"name": 5}]},
                {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "tool"}},
                {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "system": 5},
                {"max_tokens": "x", "messages": [{"role": "user", "content": "x"}]}]


def test_wrong_messages_are_refused_as_anthropics_clients_know_it():
    with Server() as server, Witness(server):
        for body in BAD_MESSAGES:
            for path in ("/v1/messages", "/v1/messages/count_tokens?beta=true"):
                reply = server.post(path, body)
                if path != "/v1/messages" and reply.status == 200:
                    continue  # what only answers have
                assert reply.status == 400 and reply.json["type"] == "error", (path, body, reply.text)
                assert reply.json["error"]["type"] == "invalid_request_error" and reply.json["error"]["message"], reply.text


def test_a_prompt_longer_than_the_context_is_400_as_openai_words_it():
    with Server("--max-model-len", "64") as server:
        reply = server.post("/v1/completions", {"prompt": [5] * 64, "max_tokens": 1})
        assert reply.status == 400 and "maximum context length is 64 tokens" in reply.json["error"]["message"], reply.text
        assert server.post("/v1/completions", {"prompt": [5] * 63, "max_tokens": 1}).status == 200
        assert server.post("/v1/completions", {"prompt": [5] * 10, "max_tokens": 55}).status == 400
        assert server.post("/v1/completions", {"prompt": "long " * 2000, "max_tokens": 1}).status == 400


def send_all(server, n, data):
    """n connections, with the same bytes sent over each."""
    socks = []
    for _ in range(n):
        socks.append(socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S))
        socks[-1].sendall(data)
    return socks


def count_answers(socks, each):
    """{status: how many} of `each` answers per connection: whole ones, or a refusal that says when to come back."""
    counts = {}
    for sock in socks:
        with sock, sock.makefile("rb") as stream:
            for _ in range(each):
                status, headers, body = read_answer(stream)
                if status == 429:
                    check_refusal(headers["retry-after"], json.loads(body))
                else:
                    assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 2, (status, body)
                counts[status] = counts.get(status, 0) + 1
    return counts


def check_refusal(retry_after, body):
    assert 1 <= int(retry_after) <= 60, retry_after
    error = body["error"]
    assert error["type"] == "rate_limit_error" and error["code"] == "queue_full", error
    assert error["message"] and error["param"] is None, error


def test_ten_thousand_requests_against_a_bounded_queue():
    """Each gets one answer: 200, or 429 if it is one too many. None is lost."""
    n = 10000 if not harness.SANITIZED else 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, n + 500)), hard))
    body = json.dumps({"prompt": "q", "max_tokens": 2, "ignore_eos": True}).encode()
    data = (POST % len(body)).encode() + body
    each = 1  # requests per connection, more where the machine allows too few files
    while n % each or n // each + 500 > hard:
        each += 1
    with Server("--max-queue", "100", "--max-num-seqs", "4", "--max-connections", "20000") as server:
        counts = count_answers(send_all(server, n // each, data * each), each)
        print(f"    {n} requests: {counts}", flush=True)
        assert sum(counts.values()) == n and set(counts) <= {200, 429}, counts
        # While the places are taken and nobody can leave, exactly a hundred of five hundred may wait.
        counts = harness.attempt(lambda: count_while_nobody_leaves(server, 500, data))
        assert counts == {200: 100, 429: 400}, counts
        alive(server)


def count_while_nobody_leaves(server, n, data):
    server.wait_idle()
    still = server.about_to_stop()
    socks = [begin_stream(server, prompt="Stay", max_tokens=900) for _ in range(4)]
    try:
        with still:
            still.settle()
            if server.metric("weft_num_requests_running") < 4:
                raise harness.Void("the places were free again")
            refused = refusals(server)
            socks += send_all(server, n, data)
            still.wait_until("all to be taken in or refused",
                             lambda: refusals(server) - refused + harness.load(server.metrics()) >= n + 4)
        return count_answers(socks[4:], 1)
    finally:
        for sock in socks:
            sock.close()


def refusals(server):
    return server.metrics()['weft_scheduler_requests_total{event="rejected"}']


def test_a_full_queue_says_429():
    """One place, two that may wait, one too many. Those that were taken in are answered."""
    with Server("--max-queue", "2", "--max-num-seqs", "1") as server, Rpc(server) as rpc:
        harness.attempt(lambda: fill_the_queue(server, rpc))
        alive(server)


def fill_the_queue(server, rpc):
    server.wait_idle()
    body = {"prompt": "x", "max_tokens": 5, "ignore_eos": True}
    with contextlib.ExitStack() as open_ones:
        conns = []

        def send():
            conns.append(open_ones.enter_context(contextlib.closing(server.connect())))
            conns[-1].request("POST", "/v1/completions", json.dumps(body))

        with server.stopped() as still:
            send()
            still.wait_until("the first to have the place", lambda: server.metric("weft_num_requests_running") == 1)
            send()
            send()
            still.wait_until("two to wait", lambda: server.metric("weft_num_requests_waiting") == 2)
            for path, more in (("/v1/completions", body), ("/v1/completions", {**body, "stream": True}),
                               ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})):
                reply = server.post(path, more)
                assert reply.status == 429, (reply.status, reply.text)
                check_refusal(reply.headers["Retry-After"], reply.json)
            error, result = rpc.call(1, "generate", body)
            assert error and error[0] == "rate_limit_error" and result is None, (error, result)
        for conn in conns:
            reply = conn.getresponse()
            assert reply.status == 200, reply.status
            assert json.loads(reply.read())["usage"]["completion_tokens"] == 5


def begin_stream(server, **body):
    """A socket on which the first token of a stream has come."""
    body = json.dumps({"ignore_eos": True, "stream": True, **body}).encode()
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S)
    sock.sendall((POST % len(body)).encode() + body)
    reply = b""
    while b"data: " not in reply:
        chunk = sock.recv(65536)
        assert chunk and status_of(reply + chunk) == 200, reply + chunk
        reply += chunk
    return sock


def vanish(sock, how):
    if how == "reset":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half closed":
        sock.shutdown(socket.SHUT_WR)
    else:
        sock.close()


CANCELLED = 'weft_scheduler_requests_total{event="cancelled"}'
USED = 'weft_kv_blocks{state="used"}'


def vanish_in_mid_step(server, still, socks, how):
    """All of them leave while the worker stands still, and the scheduler hears of it. The metrics from before that."""
    with still:
        still.settle()
        before = server.metrics()
        if harness.load(before) < len(socks):
            raise harness.Void("some had ended before they could vanish")
        for sock in socks:
            vanish(sock, how)
        still.wait_until("the scheduler to hear of it", lambda: server.metrics()[CANCELLED] >= before[CANCELLED] + len(socks))
    return before


def test_clients_that_vanish_free_their_blocks_within_two_steps():
    """Two steps were under way; after these nothing of them is computed, and their blocks are free."""
    with Server() as server:
        def run(how):
            server.wait_idle()
            still = server.about_to_stop()
            socks = [begin_stream(server, prompt="Vanish", max_tokens=950) for _ in range(8)]
            before = vanish_in_mid_step(server, still, socks, how)
            assert before[USED] >= 8, before
            server.wait_idle()
            after = server.metrics()
            n_steps = after["weft_scheduler_steps_total"] - before["weft_scheduler_steps_total"]
            assert 0 <= n_steps <= 2, f"{how}: {n_steps} more steps"
            assert after[USED] == 0 and after[CANCELLED] == before[CANCELLED] + 8, after
            for sock in socks:
                sock.close()
        for how in ("closed", "reset", "half closed"):
            harness.attempt(lambda how=how: run(how))


def test_clients_that_vanish_free_their_blocks_though_others_go_on():
    """In the first report after that, while another stream runs on."""
    with Server() as server, Witness(server):
        def run():
            still = server.about_to_stop()
            other = begin_stream(server, prompt="Stay", max_tokens=1000)
            socks = [begin_stream(server, prompt=[300 + i] * 800, max_tokens=220) for i in range(8)]  # none in common
            before = vanish_in_mid_step(server, still, socks, "closed")
            steps = before["weft_scheduler_steps_total"] + 2
            with other:
                m = harness.wait_until("a report of later steps", lambda: (
                    m := server.metrics())["weft_scheduler_steps_total"] > steps and m)
            if m["weft_num_requests_running"] == 0:
                raise harness.Void("the other one had ended")
            if before[USED] < 8 * 50:
                raise harness.Void("some of them had ended")
            # The other one and the witness have 64 blocks of 16 tokens each at most.
            assert m[USED] <= 2 * 64, (before[USED], m[USED])
        harness.attempt(run)


def test_clients_that_stop_reading_stall_nobody():
    with Server("--client-stall-timeout", str(2000 * harness.SLOW)) as server, Witness(server) as witness:
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
        # Only then is anything read: earlier bytes are still there, and after them the end.
        harness.wait_until("the stalled connections to be dropped",
                           lambda: server.metric("weft_clients_stalled_total") == len(stalled))
        for sock in stalled:
            sock.settimeout(harness.LIMIT_S)
            with contextlib.suppress(ConnectionError):
                while sock.recv(1 << 20):
                    pass
            sock.close()
        # Their unfinished requests were cancelled.
        harness.wait_until("their requests to be gone", lambda: harness.load(server.metrics()) <= 1)


def slow_stream(server, **body):
    """A stream that nobody has read from yet, to a client whose system takes little ahead of it."""
    body = json.dumps({"ignore_eos": True, "stream": True, **body}).encode()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(harness.LIMIT_S)
    sock.connect(("127.0.0.1", server.port))
    sock.sendall((POST % len(body)).encode() + body)
    return sock


def test_dribbling_readers_are_dropped_and_slow_ones_are_not():
    """Streams of much more than the kernel's buffers take: some clients read a byte now and then, and one a fair bit
    each second. (Each event carries the model's name: little has to be computed.)"""
    stall_s = 2 * harness.SLOW
    with Server("--client-stall-timeout", str(1000 * stall_s), "--served-model-name", "long" * 1000) as server, \
            Witness(server) as witness:
        fair = slow_stream(server, prompt="Fair", max_tokens=900, n=2)
        dribbling = [slow_stream(server, prompt="Drip", max_tokens=900, n=2, logprobs=20) for _ in range(4)]
        before, dropped, taken = witness.n, lambda: server.metric("weft_clients_stalled_total"), []

        def all_dropped():
            for sock in dribbling:
                with contextlib.suppress(ConnectionError):
                    sock.recv(1)
            taken.append(fair.recv(4096))
            time.sleep(0.1)
            return dropped() >= len(dribbling)

        harness.wait_until("the dribbling to be dropped", all_dropped)
        assert witness.n > before
        end = time.monotonic() + 2 * stall_s
        while time.monotonic() < end:
            taken.append(fair.recv(4096))
            time.sleep(0.1)
        print(f"    the slow one had {sum(map(len, taken))} bytes when the others were gone", flush=True)
        while chunk := fair.recv(1 << 20):
            taken.append(chunk)
            if b"[DONE]" in taken[-2][-20:] + chunk:
                break
        reply = b"".join(taken)
        assert dropped() == len(dribbling)
        assert reply.count(b'"finish_reason":"length"') == 2 and b"data: [DONE]" in reply, reply[-300:]
        for sock in [fair, *dribbling]:
            sock.close()


def errors_of(socks):
    """The end of the streams, as their clients find it when they read after all."""
    errors = []
    for sock in socks:
        end = b""
        with contextlib.suppress(ConnectionError):
            while chunk := sock.recv(1 << 20):
                end = end[-1000:] + chunk
        sock.close()
        found = re.findall(rb'data: ({"error":.*})\n', end[-1000:])
        assert found, end[-1000:]
        errors.append(json.loads(found[0])["error"])
    return errors


def test_a_slow_download_is_no_idle_time():
    """An answer that the kernel's buffers cannot hold leaves as the client reads it. The idle time of its connection
    begins when it has left, and so does that of requests sent meanwhile."""
    idle_s = 2 * harness.SLOW
    head = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n"
    body = b'{"prompt":"x"}'
    long_name = "n" * 100000  # makes /metrics some 200 KB, which is written at once
    with Server("--idle-timeout", str(idle_s * 1000), "--served-model-name", long_name) as server:
        parts = ((b"", head + body), (head[:20], head[20:] + body), (head, body))
        harness.in_threads([functools.partial(harness.attempt, functools.partial(download_slowly, server, idle_s, now, later))
                            for now, later in parts])


def download_slowly(server, idle_s, sent_meanwhile, sent_later):
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)  # the server's buffer grows with it
        sock.settimeout(harness.LIMIT_S)
        sock.connect(("127.0.0.1", server.port))
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += sock.recv(100)
        answer_head, _, answer_body = answer.partition(b"\r\n\r\n")
        left = int(re.search(rb"Content-Length: (\d+)", answer_head).group(1)) - len(answer_body)
        sock.sendall(sent_meanwhile)
        time.sleep(idle_s * 1.5)
        assert in_kernel(sock) < left, "the answer has left, and nothing is shown"
        begin = time.monotonic()
        while left:
            left -= len(sock.recv(left))
        time.sleep(0.4)  # some ticks of the server's clock, and much less than the idle time
        sock.sendall(sent_later)
        answer = sock.recv(1 << 16)
        if time.monotonic() - begin > idle_s * 0.9:
            raise harness.Void("it has been idle for long")
        assert answer.startswith(b"HTTP/1.1 200 "), answer[:200]


def in_kernel(sock):
    """Bytes on their way to this socket that the server's process is rid of."""
    ends = [f"0100007F:{port:04X}" for port in (sock.getsockname()[1], sock.getpeername()[1])]
    n_bytes = 0
    with open("/proc/net/tcp", encoding="ascii") as table:
        for fields in (line.split() for line in table):
            if fields[1:3] == ends:
                n_bytes += int(fields[4].split(":")[1], 16)
            elif fields[1:3] == ends[::-1]:
                n_bytes += int(fields[4].split(":")[0], 16)
    return n_bytes


def test_what_slow_readers_make_the_server_hold_is_bounded():
    """Entries of 32 KiB, for which nobody comes: a request may hold 4 MiB, all of them together 16 MiB."""
    n = 12
    with Server("--max-logprob-bytes", "4MiB", "--max-logprobs", "4096", "--no-rpc") as server, Witness(server) as witness:
        def all_failed(wanted):
            nonlocal most
            most = max(most, resident(server)["router"])
            return server.metric('weft_request_success_total{finished_reason="error"}') == wanted

        server.complete(prompt="Warm", max_tokens=20, logprobs=4096)
        memory = most = resident(server)["router"]
        body = {"prompt": "Hold", "max_tokens": 900, "logprobs": 4096}
        alone = slow_stream(server, **body)
        harness.wait_until("it to be refused more", lambda: all_failed(1))
        error, = errors_of([alone])
        assert "4194304 bytes of --max-logprob-bytes" in error["message"], error
        socks = [slow_stream(server, **body) for _ in range(n)]
        harness.wait_until("all to be refused more", lambda: all_failed(1 + n))
        before = witness.n
        harness.wait_until("small requests to be served meanwhile", lambda: witness.n > before + 2)
        errors = errors_of(socks)
        assert any(error["code"] == "too_many_bytes" for error in errors), errors
        print(f"    the router took {most - memory} KiB at most for {n} streams", flush=True)
        if not harness.SANITIZED:
            assert most - memory < 64 << 10, (memory, most)
        # A client that reads gets all of it, though it is far more than may be held.
        harness.attempt(lambda: read_large_stream(server, prompt="Read", max_tokens=900, logprobs=1000))


def read_large_stream(server, **body):
    with begin_stream(server, **body) as sock:
        reply = bytearray()
        while not reply.endswith(b"\r\n0\r\n\r\n"):
            chunk = sock.recv(1 << 20)
            assert chunk, reply[-1000:]
            reply += chunk
    if b"read faster" in reply[-500:]:
        raise harness.Void("this machine is too busy to read as fast as it computes")
    assert b"data: [DONE]" in reply[-100:], reply[-500:]
    count = reply.count(b'"text_offset":')
    assert body["max_tokens"] - 10 <= count, count  # except the part that came with the first token


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
            with socket.create_connection(("127.0.0.1", server.rpc_port), timeout=harness.LIMIT_S) as sock:
                try:
                    sock.sendall(data)
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(65536):
                        pass
                except ConnectionError:
                    pass
        alive(server)


def test_a_full_rpc_connection_refuses_work_and_still_listens():
    with Server() as server:
        def by_number():
            return [{"request_id": i} for i in range(256)], {}

        def by_bytes():  # an unknown field
            return [{"request_id": i, "ballast": "x" * 65000} for i in range(4)], {"ballast": "x" * 65000}
        for kind in (by_number, by_bytes):
            harness.attempt(lambda kind=kind: fill_the_connection(server, *kind()))


def fill_the_connection(server, requests, more):
    body = {"prompt": "x", "max_tokens": 5, "ignore_eos": True}
    with Rpc(server) as rpc:
        with server.stopped():
            for i, request in enumerate(requests):
                rpc.send(i, "generate", {**body, **request})
            for i, (method, params) in enumerate((("generate", body), ("generate", {**body, "stream": True}), (
                    "chat", {"messages": [{"role": "user", "content": "x"}]}), ("tokenize", {"prompt": "x"}))):
                error = rpc.call(1000 + i, method, {**params, **more})[0]
                assert error and error[0] == "rate_limit_error" and "retry_after_ms: 1000" in error[1], error
            for method in ("models", "health", "stats"):
                error, result = rpc.call(2000, method)
                assert error is None and result, (method, error)
            assert rpc.call(2001, "cancel", {"request_id": 2}) == [None, {"cancelled": True}]
            assert rpc.response(2)[0][0] == "cancelled"
            rpc.send(2002, "generate", {**body, **more})  # has its place
            assert rpc.call(2003, "generate", {**body, **more})[0][0] == "rate_limit_error"
        for i in [*range(2), *range(3, len(requests)), 2002]:
            error, result = rpc.response(i)
            assert error is None and result["usage"]["completion_tokens"] == 5, (i, error)
        assert rpc.call(2004, "generate", {**body, **more})[0] is None


def test_many_short_rpc_requests_at_once_are_all_answered():
    with Server() as server, Rpc(server) as rpc:
        n = 3000
        request = [packed([0, i, "tokenize", [{"prompt": f"one {i}"}]]) for i in range(n)]
        sender = threading.Thread(target=rpc.sock.sendall, args=(b"".join(request),))
        sender.start()
        for i in range(n):
            error, result = rpc.response(i)
            assert error is None and result["count"] > 1, (i, error)
        sender.join()


def test_rpc_streams_with_much_to_say_end():
    """More notifications than one buffer takes, all there at once, and no token to come that would go on with them."""
    long = {"prompt": "a " * 450, "echo": True, "stream": True, "logprobs": 20}
    with Server() as server, Rpc(server) as rpc:
        rpc.send(1, "generate", {**long, "max_tokens": 0})
        error, result = rpc.response(1)
        assert error is None and result["choices"], error
        for msgid in range(2, 6):  # crowded: the last is refused, or all are taken
            rpc.send(msgid, "generate", {**long, "max_tokens": 1, "n": 20, "ballast": "x" * 60000})
        rpc.send(6, "health")
        assert rpc.response(6)[0] is None
        for msgid in range(2, 6):
            error, result = rpc.response(msgid)
            assert error is None or error[0] == "rate_limit_error", error


def test_a_nul_among_the_tokens_is_a_token_like_others():
    with Server() as server:
        ids = server.post("/tokenize", {"prompt": "a\0b"}).json["tokens"]
        body = {"prompt": ids, "echo": True, "max_tokens": 0, "logprobs": 0}
        names = server.complete(**body)["choices"][0]["logprobs"]["tokens"]
        assert "bytes:\\x00" in names, names
        for stream in (False, True):
            with Rpc(server) as rpc:
                error, result = rpc.call(1, "generate", {**body, "stream": stream})
                assert error is None and result["choices"][0]["logprobs"]["tokens"] == names, (error, result)


def test_a_large_rpc_result_takes_little_more_than_its_length():
    """Its log-probabilities, their packed form and the output; not a tree of all its values."""
    prompt = [300 + i % 500 for i in range(1000)]
    n = 16 if not harness.SANITIZED else 8
    request = {"prompt": [prompt] * n, "echo": True, "max_tokens": 0, "logprobs": 20}
    with Server() as server, Rpc(server) as rpc:
        before = peak_kib(server)
        rpc.send(1, "generate", request)
        unpacker, length, message = msgpack.Unpacker(max_buffer_size=0), 0, None
        while message is None:
            piece = rpc.sock.recv(1 << 20)
            assert piece, "the connection was closed"
            length += len(piece)
            unpacker.feed(piece)
            message = next(unpacker, None)
        _, _, error, result = message
        assert error is None, error
        assert len(result["choices"]) == n and len(result["choices"][n - 1]["logprobs"]["tokens"]) == 1000
        grown = (peak_kib(server) - before) << 10
        print(f"    {length >> 20} MiB of result, {grown >> 20} MiB of the router's memory", flush=True)
        if not harness.SANITIZED:  # there freed memory is kept for a while
            assert grown < 6 * length, (length, grown)


def peak_kib(server, name="router"):
    with open(f"/proc/{server.children()[name]}/status", encoding="utf-8") as f:
        return next(int(l.split()[1]) for l in f if l.startswith("VmHWM"))


def test_requests_of_many_fields_are_refused():
    with Server() as server, Rpc(server) as rpc:
        rpc.send(1, "generate", {f"field{i}": i for i in range(1025)})
        assert rpc.response(1) == [["invalid_request_error", "a request has no more than 1024 fields"], None]
        rpc.send(2, "tokenize", {"prompt": "a", **{f"field{i}": i for i in range(1000)}})
        assert rpc.response(2)[0] is None


def test_an_rpc_client_that_never_reads_is_not_read_either():
    with Server() as server, Rpc(server) as rpc:
        before, sent = resident(server)["router"], 0
        rpc.sock.settimeout(2 * harness.SLOW)
        requests = packed([0, 1, "stats", []]) * 1000
        with contextlib.suppress(TimeoutError):
            while sent < 1 << 28:
                sent += rpc.sock.send(requests)
        print(f"    {sent >> 10} KiB were taken", flush=True)
        assert sent < 1 << 28
        if not harness.SANITIZED:  # it keeps freed memory
            assert resident(server)["router"] < before + (16 << 10)
        alive(server)


def test_a_deadline_that_passes_while_a_body_is_tokenized():
    """A thread, or the queue before it, has the request then."""
    size = (8 if not harness.SANITIZED else 1) << 20
    with Server("--request-timeout", "50") as server:
        before = server.children()
        body = json.dumps({"prompt": "a b" * (size // 3)}).encode()
        replies = harness.in_threads([lambda: server.post("/tokenize", body).status] * 6)
        assert set(replies) <= {200, 400, 504} and 504 in replies, replies
        with Rpc(server) as rpc:
            for i in range(4):
                rpc.send(i, "tokenize", {"prompt": "a b" * (size // 3)})
            errors = [rpc.response(i)[0] for i in range(4)]
            assert any(e and e[0] == "timeout_error" for e in errors), errors
            assert rpc.call(9, "health") == [None, {"status": "ok"}]
        assert server.children() == before, "a process died"
        harness.wait_until("it to serve again", lambda: server.post(
            "/v1/completions", {"prompt": "a", "max_tokens": 1}).status == 200)


def test_large_bodies_do_not_delay_others():
    """One of them is tokenized at a time; prompts that want a thread, too, find one."""
    size = 2 << 20
    with Server("--max-model-len", "1024") as server:
        body = json.dumps({"prompt": " " * size}).encode()
        small = json.dumps({"prompt": "a" * 20000}).encode()  # as many want a thread; nothing to compute but the ids
        done = []
        attack = threading.Thread(target=lambda: harness.in_threads(
            [lambda: done.append(server.post("/tokenize", body).status)] * 10))
        attack.start()
        harness.wait_until("the attack to be under way", lambda: len(done) > 0 or not attack.is_alive())
        n_before, overtaken = len(done), []
        for _ in range(5):
            n = len(done)
            assert server.post("/tokenize", small).status == 200
            overtaken.append(len(done) - n)
        attack.join()
        print(f"    {n_before} of 10 large bodies before five small ones, then {overtaken} during each", flush=True)
        # A request that waited for them would see all the rest end first. How many do end meanwhile depends on when
        # this process, busy with their answers, gets to count them.
        assert min(overtaken) <= 1 and overtaken[0] < 10 - n_before, (n_before, overtaken)


def test_many_short_bodies_at_once_go_to_threads():
    """The event loop prepares one by itself, but not all of a hundred that came in the same moment: libuv's threads,
    which are there from their first use on, take the rest."""
    body = json.dumps({"prompt": "a" * 8000}).encode()
    data = (POST.replace("/v1/completions", "/tokenize") % len(body)).encode() + body
    with Server() as server, contextlib.ExitStack() as stack:
        def n_threads():
            return len(os.listdir(f"/proc/{server.children()['router']}/task"))
        assert server.post("/tokenize", body).status == 200
        before = n_threads()
        socks = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S))
                 for _ in range(100)]
        with server.stopped("router"):
            for sock in socks:
                sock.sendall(data)
        answers = [read_answer(sock.makefile("rb")) for sock in socks]
        assert all(a[0] == 200 and a[2] == answers[0][2] for a in answers)
        assert n_threads() > before, before


def test_unfinished_bodies_take_nothing_from_others():
    """Bodies that go on by a byte now and then hold all the room for large requests."""
    def run(over):
        # On a machine so slow that they are dropped before the test has looked: once more, with more time.
        waits_s = iter((3 * harness.SLOW, 10 * harness.SLOW, 30 * harness.SLOW))
        harness.attempt(lambda: hold_unfinished(over, next(waits_s)), 3)
    harness.in_threads([functools.partial(run, over) for over in ("http", "rpc")])


def hold_unfinished(over, idle_s):
    size = 1 << 20
    with Server("--max-body", "1MiB", "--idle-timeout", str(int(idle_s * 1000))) as server, Rpc(server) as victim:
        victim.send(1, "generate", {"prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": True, "n": 8})
        assert victim.receive()[1] == "token"

        def hold():
            port = server.port if over == "http" else server.rpc_port
            sock = socket.create_connection(("127.0.0.1", port), timeout=harness.LIMIT_S)
            if over == "http":
                sock.sendall((POST % size).encode() + b"x" * (size - 100))
            else:
                message = packed([0, 1, "generate", [{"prompt": "x" * (size - 200)}]])
                sock.sendall(message[: size - 200])
            return sock

        large = {"prompt": "x" * 200000}
        begin = time.monotonic()
        held = [hold() for _ in range(8)]  # as many as there is room for: one more would be refused, or take another's
        try:
            # Small ones pass; a large one is refused, alone: the rest of its connection goes on.
            harness.wait_until("all to be held", lambda: time.monotonic() > begin + idle_s or
                               server.metrics()['weft_held_bytes{of="input"}'] >= 8 * (size - 200))
            small = server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
            victim.send(2, "tokenize", large)
            victim.send(3, "health")
            error, healthy = victim.response(2)[0], victim.response(3)
            refused = server.post("/tokenize", large)
            if time.monotonic() > begin + idle_s:
                raise harness.Void("they may have been dropped already")
            assert small.status == 200, small.text
            assert error and error[0] == "service_unavailable_error" and "retry_after_ms" in error[1], error
            assert healthy == [None, {"status": "ok"}], healthy
            assert refused.status == 503, refused.text

            def trickle_and_ask():
                for sock in held:
                    with contextlib.suppress(OSError):
                        sock.send(b"y")
                return server.post("/tokenize", large).status == 200
            harness.wait_until("what they hold to be taken from them", trickle_and_ask,
                               limit_s=harness.LIMIT_S + 3 * idle_s, every_s=0.2)
            assert victim.response(1)[0] is None
        finally:
            for sock in held:
                sock.close()


def test_a_refused_message_is_skipped():
    with Server("--max-body", "64KiB", "--api-key", "sesame") as server, Rpc(server) as rpc:
        large = {"prompt": "x" * 40000, "api_key": "sesame"}
        assert rpc.call(1, "tokenize", large)[0][0] == "authentication_error"  # too much before the key is known
        assert rpc.call(2, "models", {"api_key": "sesame"})[0] is None
        rpc.send(3, "generate", {"prompt": "a", "max_tokens": 500, "ignore_eos": True})
        assert rpc.call(4, "tokenize", large)[0] is None
        error = rpc.call(5, "tokenize", {"prompt": "x" * 3000000, "after": [1, {"a": "b"}]})[0]
        assert error[0] == "invalid_request_error" and "larger" in error[1], error
        assert rpc.call(6, "tokenize", large)[0] is None
        assert rpc.response(3)[0] is None


def test_silent_connections_leave_room():
    """MessagePack-RPC has half of the places; without a key it loses even those."""
    with Server("--max-connections", "16", "--api-key", "sesame", "--idle-timeout", "1500") as server:
        silent = [Rpc(server) for _ in range(16)]
        assert server.get("/health").status == 200
        harness.wait_until("the surplus to be closed", lambda: sum(is_closed(rpc.sock) for rpc in silent) >= 8)
        assert server.get("/health").status == 200
        harness.wait_until("all to be closed", lambda: all(is_closed(rpc.sock) for rpc in silent))
        for rpc in silent:
            rpc.sock.close()

        def admitted():
            rpc = Rpc(server)
            if rpc.call(1, "models", {"api_key": "sesame"}) is not None:
                return rpc
            return rpc.sock.close()

        with harness.wait_until("a place", admitted) as rpc:
            time.sleep(2.5)
            assert rpc.call(2, "health")[0] is None  # admitted: it may be silent


def is_closed(sock):
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_chunk_that_would_be_too_large_is_refused_before_it_comes():
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Server("--max-body", "64KiB") as server:
        for size in (b"10001", b"ffffffff", b"fffffffffffffff"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S) as sock:
                sock.sendall(head + size + b"\r\n")
                assert read_answer(sock.makefile("rb"))[0] == 413, size


def test_bodies_that_nobody_reads_are_refused():
    """They would take from the budget for those who have a key."""
    with Server("--api-key", "sesame") as server:
        for line in (b"GET /health", b"OPTIONS /v1/completions", b"HEAD /", b"GET /v1/models"):
            for body in (b"Content-Length: 1000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nf4240\r\n"):
                with socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S) as sock:
                    sock.sendall(line + b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sesame\r\n" + body)
                    assert sock.recv(100).startswith(b"HTTP/1.1 413"), (line, body)
        reply = raw(server, b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        assert status_of(reply) == 200, reply


def test_one_connection_too_many_learns_why():
    """Even if it sends more than is read: no reset may overtake the answer."""
    with Server("--max-connections", "2", "--no-rpc") as server:
        socks = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]  # accepted in this order
        for _ in range(50):
            reply = raw(server, (POST % 100000).encode() + b"x" * 50000)
            assert status_of(reply) == 503 and complete(reply) and b"too_many_connections" in reply, reply
        for sock in socks:
            sock.close()
        harness.wait_until("a place", lambda: status_of(raw(server, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")) == 200)


def test_those_who_watch_find_a_place_among_too_many_connections():
    """Probes and metrics; a kubelet would else end a busy pod. Even if others crowd the places kept for them."""
    def ask(path):
        return raw(server, b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)

    with Server("--max-connections", "2", "--no-rpc") as server:
        socks = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        for path in (b"/health", b"/health/live", b"/ping", b"/metrics"):
            reply = ask(path)
            assert status_of(reply) == 200 and complete(reply) and b"connection: close" in reply.lower(), reply
        for path in (b"/version", b"/v1/models", b"/"):
            assert status_of(ask(path)) == 503, path
        socks += [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        for _ in range(20):
            harness.wait_until("an answer", lambda: status_of(ask(b"/health/live")) == 200)
        for sock in socks:
            sock.close()


def test_few_open_files_are_few_places_and_no_resets():
    if not shutil.which("prlimit"):
        raise Skip("prlimit is not installed")
    with Server("--no-rpc", wrap=("prlimit", "--nofile=64:64")) as server:
        told = [re.search(r"lowered to (\d+): the system allows 64 open files", line) for line in server.lines]
        n = int(next(m for m in told if m).group(1))
        assert 8 <= n <= 40, n
        socks = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(n)]
        for sock in socks:
            sock.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_answer(sock.makefile("rb"))[0] == 200
        for _ in range(100):
            assert status_of(raw(server, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")) == 503
            assert status_of(raw(server, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")) == 200
        for sock in socks:
            sock.close()


def test_a_million_tokens_is_the_most():
    with Server() as server:
        reply = server.post("/tokenize", {"prompt": "\u0001" * 1100000})
        assert reply.status == 400 and "1048576" in reply.json["error"]["message"], reply.text[:300]
        text = "Once upon a time " * 4000
        reply = server.post("/tokenize", {"prompt": text, "return_token_strs": True, "add_special_tokens": False}).json
        assert reply["count"] == len(reply["tokens"]) == len(reply["token_strs"])
        assert "".join(reply["token_strs"]) == text
        assert server.post("/detokenize", {"tokens": reply["tokens"]}).json["prompt"] == text
        with Rpc(server) as rpc:
            again = rpc.call(1, "tokenize", {"prompt": text, "return_token_strs": True, "add_special_tokens": False})[1]
            assert again == reply


def test_clients_cannot_fill_the_log():
    """One line a second at most, and those left out are counted."""
    def offend(server):
        with Rpc(server) as rpc:
            rpc.sock.sendall(b"\xc0")
            assert rpc.receive() is None

    def lines(server):
        return [l for l in server.lines if "closed a MessagePack-RPC connection" in l]

    def told(server):
        counts = [re.search(r"and (\d+) like events before", l) for l in lines(server)]
        return sum(1 + (int(c.group(1)) if c else 0) for c in counts)

    with Server() as server:
        begin = time.monotonic()
        for _ in range(300):
            offend(server)
        n_offences = 300

        def all_told():
            nonlocal n_offences
            if told(server) < n_offences:
                offend(server)
                n_offences += 1
            return told(server) == n_offences
        harness.wait_until("the log to tell of all", all_told, every_s=0.3)
        assert len(lines(server)) <= time.monotonic() - begin + 2, lines(server)


def test_texts_are_compared_and_quoted_whole():
    with Server() as server, Rpc(server) as rpc:
        name = server.get("/v1/models").json["data"][0]["id"]
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "model": name + "\0zz"}).status == 404
        reply = server.post("/v1/chat/completions", {"messages": [{"role": "user\0", "content": "a"}]})
        assert reply.status == 400 and reply.json["error"]["param"] == "messages[0].role", reply.text
        for method in (b"\xff\xfe", b"x" * 63 + "\u00e9".encode(), b"a\xc3"):  # unpacked() wants UTF-8
            error = rpc.call(1, method)[0]
            assert error[0] == "method_not_found", error
        assert rpc.call(1, b"a\0b")[0][1] == "there is no method 'a\\u0000b'"
        # A proxy's form of the target: its path, not what looks like one after the question mark.
        for target, want in (("http://x/ping", b"ok"), ("http://x?/ping", b"<html"), ("http://x?a=/ping", b"<html"),
                             ("http://x", b"<html")):
            reply = raw(server, f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert status_of(reply) == 200 and want in reply, (target, reply[:300])
        twice = b"GET /ping HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"
        assert status_of(raw(server, twice)) == 400


def test_all_choices_in_a_stream_have_the_same_keys():
    with Server() as server:
        chunks = server.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3})
        keys = {tuple(sorted(choice)) for chunk in chunks for choice in chunk["choices"]}
        assert keys == {("delta", "finish_reason", "index", "logprobs", "stop_reason")}, keys


def defs(n, make):
    return {f"d{i}": make({"$ref": f"#/$defs/d{i + 1}"}) for i in range(n)} | {f"d{n}": {"type": "integer"}}


def nested(n):
    """A schema of n levels, as text: python's own writer would stop sooner."""
    return '{"items":' * (n - 1) + "{}" + "}" * (n - 1)


def form(i, n_bytes):
    """One of many that an answer may have, as long as that."""
    fields = {f"field_{i}_{j}": {"type": ("string", "integer", "boolean")[j % 3], "description": "what for " * (n_bytes // 100)}
              for j in range(10)}
    arguments = {"type": "object", "properties": fields, "required": list(fields)[:3], "additionalProperties": False}
    return {"type": "object", "properties": {"name": {"const": f"tool_{i}"}, "arguments": arguments},
            "required": ["name", "arguments"], "additionalProperties": False}


def bombs():
    """[(what, the request's fields, what must come)]: 200, or a part of a 400's reason, or None, which is either."""
    many = 100000 if not harness.SANITIZED else 3000
    pairs = [{"anyOf": [{"required": [f"k{i}_{j}"], "properties": {f"k{i}_{j}": {"minimum": j}}} for j in range(12)]}
             for i in range(12)]
    windows = [f"a.{{{n}}}b" for n in range(3, 43)]
    start = {"$ref": "#/$defs/d0"}
    schemas = [
        ("references that double, 40 times", {**start, "$defs": defs(40, lambda ref: {"allOf": [ref, ref]})}, None),
        ("arrays that double, 40 times",
         {**start, "$defs": defs(40, lambda ref: {"type": "array", "prefixItems": [ref, ref], "minItems": 2})}, None),
        ("12 x 12 combinations", {"allOf": pairs}, None),
        ("one of 40 that overlap", {"oneOf": [{"required": [f"a{i}"]} for i in range(40)]}, None),
        ("not, in 19 levels", functools.reduce(lambda inner, i: {"not": {"properties": {f"p{i}": inner}}}, range(19), {}), None),
        ("patterns that multiply", {"allOf": [{"type": "string", "pattern": p} for p in windows]}, None),
        ("names that multiply", {"type": "object", "patternProperties": {p: {"minimum": i} for i, p in enumerate(windows)}}, None),
        ("numbers that multiply", {"allOf": [{"type": "integer", "multipleOf": n} for n in (999983, 999979, 999961)]}, None),
        ("bounds without end", {"type": "array", "items": {"type": "string", "minLength": 10 ** 9}, "minItems": 10 ** 9}, None),
        ("a pattern of bounds", {"type": "string", "pattern": "^((((a{1,1000}){1,1000}){1,1000})b?){1,1000}$"}, None),
        (f"{many} values", {"enum": [f"value {i}" for i in range(many)]}, 200),
        (f"{many} values with escapes", {"enum": [f'"value" \n{i}' for i in range(many)]}, None),
        (f"{many} properties", {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(many)}}, None),
        ("61 levels", json.loads(nested(61)), 200),
        ("64 levels and a body's", json.loads(nested(64)), "deeper than 64 levels"),
        ("1,000 levels, as text", nested(1000), None),
        ("10,000 levels, as text", nested(10000), "depth"),
        ("itself", {"$ref": "#"}, "nothing but itself"),
        ("all of itself", {"allOf": [{"$ref": "#"}, {"type": "integer"}]}, "nothing but itself"),
        ("not itself", {"not": {"$ref": "#"}}, "nothing but itself"),
        ("a list of itself, for ever", {"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "nothing satisfies it"),
        ("a long name above 30,000 objects", {"$id": "http://x/" + "a" * 60000, "type": "integer", "x": [{}] * 30000}, 200),
        ("30,000 names and references to them", {"anyOf": [{"$ref": f"http://x/{i}"} for i in range(30000)], "$defs": {
            f"d{i}": {"$id": f"http://x/{i}", "type": "integer"} for i in range(30000)}}, None),
        ("6,000 names below a long one", {"$id": "http://x/" + "a" * 2000 + "/", "anyOf": [{"$ref": f"{i}"} for i in range(6000)],
                                          "$defs": {f"d{i}": {"$id": f"{i}"} for i in range(6000)}}, "too long names"),
        ("100 objects of 1 MB", {"anyOf": [form(i, 10000) for i in range(100)]}, 200),
    ]
    return [(what, {"guided_json": schema}, wanted) for what, schema, wanted in schemas] + [
        ("10,000 levels", ('{"prompt":"a","guided_json":' + nested(10000) + "}").encode(), "deeper than 64 levels"),
        (f"{many} choices", {"guided_choice": [f"choice {i}" for i in range(many)]}, 200),
        ("repeats in repeats", {"guided_regex": "((((a{1,1000}){1,1000}){1,1000})b?){1,1000}"}, 200),
        ("stars in stars", {"guided_regex": "(" * 200 + "a" + ")*" * 200}, 200),
        ("10,000 groups", {"guided_regex": "(" * 10000 + "a" + ")" * 10000}, "250 deep"),
        ("a window of 1,000", {"guided_regex": "(a|b)*a(a|b){1000}"}, None),
        ("26 look-aheads", {"guided_regex": "".join(f"(?=.*{chr(97 + i)})" for i in range(26)) + ".*"}, None),
        ("look-aheads of windows", {"guided_regex": "".join(f"(?!.*{p})" for p in windows) + "[ab]*"}, None),
        (f"{many} ways", {"guided_regex": "|".join(f"x{i}y*" for i in range(many))}, None),
        ("a rule of nothing but itself", {"grammar": "root ::= root"}, "no text fits"),
        ("ambiguous", {"grammar": 'root ::= root root root | root root | "a" | "b"'}, 200),
        ("nothing, in many ways", {"grammar": 'root ::= (a a a a)* "end"\na ::= a a | "x"? | b*\nb ::= a? | ""'}, 200),
        ("10,000 parentheses", {"grammar": "root ::= " + "(" * 10000 + '"a"' + ")" * 10000}, "500 deep"),
        ("repeats of a rule", {"grammar": 'root ::= (a{1,1000}){1,1000}\na ::= "x" root? "y"'}, None),
        (f"{many} rules", {"grammar": "\n".join(
            ["root ::= r0", *(f'r{i} ::= "a" r{i + 1} "b"' for i in range(many)), f'r{many} ::= "c"'])}, None),
    ]


class Streams:
    """Eight clients that read one stream after the other as long as the abuse goes on; their tokens must not change."""

    def __init__(self, server):
        self.server, self.stop, self.calls = server, threading.Event(), []
        self.gaps = []  # seconds between what came of a stream
        bodies = [{"prompt": "The others", "max_tokens": 200, "temperature": 1, "seed": i, "ignore_eos": True, "logprobs": 0,
                   "return_tokens_as_token_ids": True} for i in range(8)]
        self.work = [(body, self.tokens(body)) for body in bodies]

    def tokens(self, body):
        times = []
        events = harness.Stream(self.server, body, lambda *_: times.append(time.monotonic())).events()
        self.gaps += [after - before for before, after in zip(times, times[1:])]
        return [harness.tokens_of(choice) for event in events for choice in event["choices"] if choice["logprobs"]]

    def run(self, body, expected):
        n = 0
        while not self.stop.is_set():
            assert self.tokens(body) == expected
            n += 1
        return n

    def __enter__(self):
        self.calls = [harness.Call(functools.partial(self.run, *each)) for each in self.work]
        return self

    def __exit__(self, kind, *_):
        self.stop.set()
        n = [call.result() for call in self.calls]
        gaps = sorted(self.gaps)
        print(f"    {sum(n)} streams meanwhile, between what comes {gaps[len(gaps) * 99 // 100] * 1e3:.0f} ms at p99, "
              f"{gaps[-1] * 1e3:.0f} at most", flush=True)
        assert kind or all(n)


def test_grammars_that_are_bombs_are_answered_while_others_stream():
    """With what they ask for, or with the reason why not; in bounded memory."""
    with Server() as server:
        before = server.children()
        memory = {name: peak_kib(server, name) for name in ("router", "worker")}
        with Streams(server):
            for what, body, wanted in bombs():
                if isinstance(body, dict):
                    body = {"prompt": "a", "max_tokens": 20, "temperature": 1, "seed": 1, **body}
                begin = time.monotonic()
                reply = server.post("/v1/completions", body)
                error = reply.json.get("error", {"message": "", "code": None})
                print(f"    {what}: {reply.status} after {time.monotonic() - begin:.2f} s {error['message'][:120]}", flush=True)
                assert reply.status in (200, 400) and (reply.status == 200 or wanted != 200), (what, reply.text)
                if reply.status == 400:
                    assert isinstance(wanted, (str, type(None))) and (wanted or "") in error["message"], (what, error)
                    assert error["code"] in ("invalid_grammar", "grammar_too_large", "nested_too_deep"), (what, error)
                else:
                    assert not isinstance(wanted, str), what
        grown = {name: (peak_kib(server, name) - kib) >> 10 for name, kib in memory.items()}
        print(f"    MiB more at most: {grown}", flush=True)
        assert server.children() == before, "a process died"
        if not harness.SANITIZED:
            assert max(grown.values()) < 512, grown
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
