"""Whose turn it is, on the real server: tenants, priorities, deadlines, and what is refused.

The worker stands still until all requests are in, so the order in which they are served depends on them alone. It is
noted as this process reads it; a thread that a busy machine keeps from reading may spoil that once, and then it is
tried again. A server that served in another order would spoil it every time.
"""

import contextlib
import json
import math
import os
import statistics
import tempfile
import time

import harness
from harness import Reply, Server, Stream, Void

HEAVY, LIGHT = {"Authorization": "Bearer heavy-key"}, {"Authorization": "Bearer light-key"}


class Journal:
    """Which stream was served what, in order, and when."""

    def __init__(self, server, rng):
        self.server, self.rng, self.pieces, self.names, self.streams = server, rng, [], {}, []

    def stream(self, name, n_prompt, n_output, headers=None, **more):
        """Prompts are random, so that nothing of them is cached."""
        body = {"prompt": [self.rng.randrange(300, 4000) for _ in range(n_prompt)], "max_tokens": n_output,
                "ignore_eos": True, "temperature": 0, "logprobs": 0, **more}
        stream = Stream(self.server, body, lambda s, piece: self.pieces.append((time.monotonic(), s, piece)), headers)
        self.names[stream] = name
        self.streams.append(stream)
        return stream

    def read(self):
        """[(moment, stream's name, stream)], one for each token, when all streams have ended."""
        for stream in self.streams:
            stream.events()
        told, rest = [], {}
        for at, stream, piece in self.pieces:
            *lines, rest[stream] = (rest.get(stream, b"") + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    n = sum(len(c["logprobs"]["tokens"]) for c in json.loads(line[6:])["choices"] if c["logprobs"])
                    told += [(at, self.names[stream], stream)] * n
        return told

    def first_tokens(self):
        """[(moment, name)], one for each stream."""
        seen, firsts = set(), []
        for at, name, stream in self.read():
            if stream not in seen:
                seen.add(stream)
                firsts.append((at, name))
        return firsts


@contextlib.contextmanager
def two_tenants(*args, weights=(1, 1)):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"heavy-key name=heavy weight={weights[0]}\nlight-key name=light weight={weights[1]}\n")
        with Server("--api-key-file", path, *args) as server:
            yield server


def come_in(server, still, n):
    still.wait_until(f"{n} requests to come in", lambda: harness.load(server.metrics()) == n)


def refused(reply, status, reason):
    """Asserts that it is, and says for how long."""
    if reply.status == 503 and reply.json["error"]["code"] == "not_serving":
        raise Void("the worker stood still for so long that nothing was served any more")
    assert reply.status == status and reply.json["error"]["code"] == reason, (reply.status, reply.text)
    assert reply.headers["x-llm-d-request-dropped-reason"] == reason, dict(reply.headers)
    ms = int(reply.headers["retry-after-ms"])
    assert ms >= 1 and int(reply.headers["Retry-After"]) == math.ceil(ms / 1000), dict(reply.headers)


@contextlib.contextmanager
def taken_place(server, journal, headers=None):
    """The only place has a stream that is in its midst; the worker stands still."""
    server.wait_idle()
    still = server.about_to_stop()
    stream = journal.stream("running", 16, 600, headers)
    harness.wait_until("it to begin", lambda: stream.has_begun)
    with still:
        if stream.is_done:
            raise Void("it was done before the worker stood still")
        yield still


# ------------------------------------------------------------------------------------- tenants ---


def test_a_flood_of_one_key_does_not_make_another_wait():
    """One key has 20 times as many requests waiting, all of them earlier."""
    n_heavy, n_light, n_places = 100, 5, 4
    rng = harness.rng()

    def run(server):
        server.wait_idle()
        journal = Journal(server, rng)
        with server.stopped() as still:
            begin = time.monotonic()
            for _ in range(n_heavy):
                journal.stream("heavy", 16, 16, HEAVY)
            come_in(server, still, n_heavy)
            for _ in range(n_light):
                journal.stream("light", 16, 16, LIGHT)
            come_in(server, still, n_heavy + n_light)
        firsts = journal.first_tokens()
        assert len(firsts) == n_heavy + n_light, len(firsts)
        names = [name for _, name in firsts]
        before = [names[:at].count("heavy") for at, name in enumerate(names) if name == "light"]
        waits = {of: sorted(1e3 * (at - begin) for at, name in firsts if name == of) for of in ("heavy", "light")}
        print(f"    the light ones came after {before} of the heavy {n_heavy}; first tokens after "
              + ", ".join(f"{of} {statistics.median(w):.0f} ms (p99 {w[-1 - len(w) // 100]:.0f})" for of, w in waits.items()),
              flush=True)
        # Those that run already, their own turns, and a group more that is admitted at once.
        if any(n > 2 * n_places + k + 1 for k, n in enumerate(before)):
            raise Void(f"light requests came after {before} heavy ones")
    with two_tenants("--max-num-seqs", str(n_places)) as server:
        harness.attempt(lambda: run(server), 3)


def test_two_keys_with_requests_waiting_share_by_their_weights():
    rng = harness.rng()

    def run(server, weights):
        server.wait_idle()
        journal = Journal(server, rng)
        with server.stopped() as still:
            for _ in range(30):  # the same work, in pieces of other sizes
                journal.stream("heavy", 16, 48, HEAVY)
            come_in(server, still, 30)
            for _ in range(60):
                journal.stream("light", 8, 24, LIGHT)
            come_in(server, still, 90)
        names = [name for _, name, _ in journal.read()]
        assert len(names) == 2 * 30 * 48
        part = names[: len(names) // 2]  # both have more waiting
        share, wanted = part.count("heavy") / len(part), weights[0] / sum(weights)
        print(f"    weights {weights}: {100 * share:.1f} % of {len(part)} tokens, wanted {100 * wanted:.1f} %", flush=True)
        if abs(share - wanted) > 0.1:  # it swings by what runs at a time
            raise Void(f"{100 * share:.1f} % instead of {100 * wanted:.1f} %")
    for weights in (1, 1), (1, 3):
        with two_tenants("--max-num-seqs", "8", weights=weights) as server:
            harness.attempt(lambda server=server, weights=weights: run(server, weights), 3)


def test_a_key_that_fills_the_queue_is_refused_and_another_is_not():
    def ask(server, headers):
        return server.post("/v1/completions", {"prompt": "One more", "max_tokens": 1}, headers)

    def run(server):
        journal = Journal(server, rng)
        with taken_place(server, journal, HEAVY) as still:
            for _ in range(8):
                journal.stream("heavy", 16, 8, HEAVY)
            come_in(server, still, 9)
            refused(ask(server, HEAVY), 429, "queue_full")
            journal.stream("light", 16, 8, LIGHT)
            come_in(server, still, 10)
            refused(ask(server, HEAVY), 429, "tenant_full")
        assert len(journal.first_tokens()) == 10
        assert ask(server, HEAVY).status == 200
    rng = harness.rng()
    with two_tenants("--max-num-seqs", "1", "--max-queue", "8") as server:
        harness.attempt(lambda: run(server))


def test_a_key_that_fills_the_places_of_a_restart_is_refused_and_another_is_not():
    """The scheduler stands still, so requests wait in the router until it goes on."""
    def ask(server, headers, n):
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": ["One more"] * n, "max_tokens": 1}), headers)
        server.get("/health/live")  # when this is answered, the router has read that
        return connection

    def reply_of(connection):
        reply = connection.getresponse()
        return Reply(reply.status, reply.headers, reply.read())

    def run(server):
        with server.stopped("scheduler"):
            harness.wait_until("the router to notice", lambda: server.get("/health").status == 503)
            # It still sends what comes for a moment. When this one's time is over, it no longer does.
            assert server.post("/v1/completions", {"prompt": "a", "timeout": 1}, LIGHT).status == 504
            waiting = [ask(server, HEAVY, 4)]
            refused(reply_of(ask(server, HEAVY, 1)), 429, "queue_full")
            waiting.append(ask(server, LIGHT, 2))
            refused(reply_of(ask(server, LIGHT, 1)), 429, "tenant_full")
            refused(reply_of(ask(server, HEAVY, 1)), 429, "tenant_full")
        assert [reply_of(connection).status for connection in waiting] == [200, 200]
    with two_tenants("--max-queue", "4", "--restart-grace", "60000") as server:
        harness.attempt(lambda: run(server))


# ------------------------------------------------------------------------------------ policies ---


def overtaken(policy, first, second):
    """Of two requests that wait for the only place the second is served first."""
    def run(server):
        journal = Journal(server, rng)
        with taken_place(server, journal) as still:
            journal.stream("first", 16, 8, **first)
            journal.stream("second", 16, 8, **second)
            come_in(server, still, 3)
        names = [name for _, name in journal.first_tokens()]
        if names != ["running", "second", "first"]:
            raise Void(f"they came in the order {names}")
    rng = harness.rng()
    with Server("--scheduling-policy", policy, "--max-num-seqs", "1") as server:
        harness.attempt(lambda: run(server))


def test_a_lower_priority_number_overtakes():
    overtaken("priority", {"priority": 5}, {"priority": -5})


def test_an_earlier_deadline_overtakes():
    overtaken("edf", {"headers": {"x-llm-d-slo-ttft-ms": "600000"}}, {"headers": {"x-llm-d-slo-ttft-ms": "300000"}})


# -------------------------------------------------------------------------------------- bounds ---


def test_more_tokens_than_may_wait_are_refused():
    body = {"prompt": [300 + i for i in range(30)], "max_tokens": 1}

    def run(server):
        journal = Journal(server, rng)
        with taken_place(server, journal) as still:
            journal.stream("waiting", 80, 8)
            come_in(server, still, 2)
            refused(server.post("/v1/completions", body), 503, "overloaded")
            journal.stream("waiting", 20, 8)  # this much there is room for
            come_in(server, still, 3)
        assert len(journal.first_tokens()) == 3
        assert server.post("/v1/completions", body).status == 200
    rng = harness.rng()
    with Server("--max-num-seqs", "1", "--max-queued-tokens", "100") as server:
        harness.attempt(lambda: run(server))


def test_who_waits_longer_than_the_queue_timeout_is_ended():
    def run(server):
        journal = Journal(server, rng)
        with taken_place(server, journal) as still:
            reply = server.post("/v1/completions", {"prompt": "Too late", "max_tokens": 1})
            if reply.status == 503:
                raise Void("the worker stood still for so long that nothing was served any more")
            assert reply.status == 504 and reply.json["error"]["code"] == "request_timeout", (reply.status, reply.text)
            come_in(server, still, 1)
        assert [name for _, name in journal.first_tokens()] == ["running"]
    rng = harness.rng()
    with Server("--max-num-seqs", "1", "--queue-timeout", "300") as server:
        harness.attempt(lambda: run(server))


if __name__ == "__main__":
    harness.main()
