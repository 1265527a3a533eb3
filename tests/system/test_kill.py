"""Nothing is lost: kill -9 of worker, scheduler or both while streams are open, or a scheduler that stands still."""

import contextlib
import http.client
import json
import os
import signal
import threading

import harness
from harness import Server

ROUNDS = 20 if not harness.SANITIZED else 8
MAX_TOKENS = 500 if not harness.SANITIZED else 300  # either takes seconds
BODIES = [
    {"prompt": "Once upon a time", "temperature": 0},
    {"prompt": "The captain looked at the sea and", "temperature": 0},
    {"prompt": "It was late", "temperature": 0.9, "seed": 1, "top_p": 0.95},
    {"prompt": "\"Who are you?\" said the", "temperature": 1.1, "seed": 2, "top_k": 50},
    {"prompt": "In the morning the two brothers", "temperature": 1.0, "seed": 3, "min_p": 0.02},
    {"prompt": "My dear sister,", "temperature": 0.8, "seed": 4, "repetition_penalty": 1.15,
     "presence_penalty": 0.4, "frequency_penalty": 0.2, "min_tokens": MAX_TOKENS // 2},
    {"prompt": "Long ago " * 60, "temperature": 0.7, "seed": 5},
    {"prompt": "Nobody knew why", "temperature": 1.0},  # no seed: the router draws one
]
UNSEEDED = 7


class Stream(harness.Stream):
    """One open stream."""

    def __init__(self, server, idx):
        self.idx = idx
        super().__init__(server, {
            "max_tokens": MAX_TOKENS, "logprobs": 0, "return_tokens_as_token_ids": True, "top_p": 1.0,
            **({"ignore_eos": True} if idx != 5 else {}), **BODIES[idx]})
        self.tokens, self.finish = [], None

    def finished(self):
        """Waits until it has ended, and takes in its events."""
        for event in self.events():
            for choice in event["choices"]:
                if choice.get("logprobs"):
                    self.tokens += harness.tokens_of(choice)
                self.finish = choice["finish_reason"] or self.finish
        assert self.finish in ("stop", "length"), self.finish
        return self


def run_streams(server, between=None):
    streams = [Stream(server, i) for i in range(len(BODIES))]
    harness.wait_until("all streams to begin", lambda: all(s.has_begun for s in streams))
    if between:
        between()
    finished = [s.finished() for s in streams]
    if between:  # what it did may have come so late that only now all is there again; a new request could be refused
        harness.wait_until("the server to be healthy again", lambda: server.get("/health").status == 200)
    return finished


def check_unseeded(server, stream):
    """Its tokens are new each time; read back as a prompt they must have the very same log-probabilities."""
    assert len(stream.tokens) == MAX_TOKENS, f"{len(stream.tokens)} tokens, not {MAX_TOKENS}"
    prompt = server.post("/tokenize", {"prompt": BODIES[stream.idx]["prompt"]}).json["tokens"]
    reply = server.complete(prompt=prompt + [t for t, _ in stream.tokens], max_tokens=0, echo=True,
                            logprobs=0, return_tokens_as_token_ids=True, temperature=0)
    assert harness.tokens_of(reply["choices"][0])[len(prompt):] == stream.tokens


def check_streams(server, streams, expected):
    for s in streams:
        if s.idx == UNSEEDED:
            check_unseeded(server, s)
        else:
            assert s.tokens == expected[s.idx], (
                f"stream {s.idx}: {len(s.tokens)} tokens against {len(expected[s.idx])}, first difference at "
                f"{next((i for i, (a, b) in enumerate(zip(s.tokens, expected[s.idx])) if a != b), None)}")


def disturb(server, share, names, how=signal.SIGKILL):
    """Sends a signal when that share of all tokens has been generated. Notes whether all streams were open then, by
    the router's count just after (clients lag), with much to come; and waits until the processes are really
    replaced."""
    n_ended, n_tokens = counted(server)
    n_all = len(BODIES) * MAX_TOKENS

    def between():
        harness.wait_until("the moment to come", lambda: counted(server)[1] >= n_tokens + share * n_all)
        old = server.kill(*names, how=how)
        n_ended_now, n_tokens_now = counted(server)
        between.all_open = n_ended_now == n_ended and n_tokens_now < n_tokens + n_all * 3 // 4

        def replaced():
            now = server.children()
            return all(now.get(n) and now[n] != old[n] for n in names)
        harness.wait_until(f"{names} to be replaced", replaced)
    between.all_open = False
    return between


def counted(server):
    """(choices that have ended, tokens generated)"""
    m = server.metrics()
    return sum(v for k, v in m.items() if k.startswith("weft_request_success_total")), m["weft_generation_tokens_total"]


def test_streams_survive_kills_of_worker_scheduler_and_both():
    rng = harness.rng()
    plans = [("worker",), ("scheduler",), ("worker", "scheduler")] * 7
    # A small cache as well: preemption and resumption at once.
    with Server("--kv-memory", "10MiB") as server:
        expected = [s.tokens for s in run_streams(server)]
        assert len(expected[0]) == MAX_TOKENS
        n_done, n_late = 0, 0
        while n_done < ROUNDS:
            names = plans[n_done]
            between = disturb(server, rng.random() * 0.3 * 0.8 ** n_late, names)
            streams = run_streams(server, between)
            check_streams(server, streams, expected)
            if not between.all_open:  # the kill came too late to count; the checks still hold
                n_late += 1
                assert n_late < ROUNDS, "the kills keep coming when streams have ended"
                continue
            n_done += 1
            print(f"    round {n_done}: {' and '.join(names)} killed", flush=True)


def a_scheduler_that_stands_still_is_killed_and_replaced():
    with Server() as server:
        expected = [s.tokens for s in run_streams(server)]

        def run():
            between = disturb(server, 0.1, ("scheduler",), how=signal.SIGSTOP)
            streams = run_streams(server, between)
            check_streams(server, streams, expected)
            if not between.all_open:
                raise harness.Void("it was stopped when streams had ended")
        harness.attempt(run)
        assert any("the scheduler has stood still for 10 s" in line for line in server.lines), server.lines


def test_a_killed_router_comes_back_and_its_requests_are_reaped():
    cancelled, steps = 'weft_scheduler_requests_total{event="cancelled"}', "weft_scheduler_steps_total"

    def run():
        server.wait_idle()
        still = server.about_to_stop()
        sock = server.connect()
        sock.request("POST", "/v1/completions", json.dumps(
            {"prompt": "x", "max_tokens": 1000, "ignore_eos": True, "stream": True}),
            {"Content-Type": "application/json"})
        reply = sock.getresponse()
        assert reply.readline().startswith(b"data: ")
        with still:  # it cannot come to its end by itself
            still.settle()
            before = server.metrics()
            if before["weft_num_requests_running"] == 0:
                raise harness.Void("it had ended")
            old = server.kill("router")["router"]
            still.wait_until("the router to be replaced", lambda: server.children().get("router") not in (None, old))

            def reaped():
                with contextlib.suppress(OSError):  # until the new one listens on the old port
                    return server.metrics().get(cancelled) == before[cancelled] + 1
            still.wait_until("the scheduler to give the request up", reaped)
        harness.wait_until("the server to be healthy again", lambda: server.get("/health").status == 200)
        server.wait_idle()
        assert server.metric(steps) <= before[steps] + 2  # those that were under way
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert b"[DONE]" not in reply.read(), "its connection lives on"
    with Server() as server:
        harness.attempt(run)


def test_waiting_requests_survive_too():
    """Requests in the queue when the scheduler dies are answered as well as running ones."""
    with Server("--max-num-seqs", "2") as server:
        bodies = [{"prompt": f"Number {i} was", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
                  for i in range(16)]
        expected = [server.complete(**b)["choices"][0]["text"] for b in bodies]
        def run():
            server.wait_idle()
            with server.stopped() as still:  # nobody has been answered when the scheduler dies
                calls = [harness.Call(lambda b=b: server.complete(**b)["choices"][0]["text"]) for b in bodies]
                still.wait_until("all to be in, most to wait", lambda: (m := server.metrics()) and
                                 m["weft_num_requests_waiting"] >= 14 and harness.load(m) == 16)
                assert not any(call.is_done for call in calls)
                server.kill("scheduler")
            assert [call.result() for call in calls] == expected
        harness.attempt(run)


def a_stuck_worker_is_killed_and_replaced():
    with Server() as server:
        pid = server.children()["worker"]
        events = []
        thread = threading.Thread(target=lambda: events.extend(server.stream(
            "/v1/completions", {"prompt": "x", "max_tokens": 30, "temperature": 0, "ignore_eos": True})))
        os.kill(pid, signal.SIGSTOP)
        thread.start()
        harness.wait_until("the worker to be replaced", lambda: server.children().get("worker") not in (None, pid))
        thread.join()
        expected = server.complete(prompt="x", max_tokens=30, temperature=0, ignore_eos=True)["choices"][0]["text"]
        assert "".join(e["choices"][0]["text"] for e in events if e["choices"]) == expected


def test_who_stands_still_is_killed_and_replaced():
    """Ten seconds of silence each. Under a sanitizer the worker's is as in release, and slow."""
    cases = [a_scheduler_that_stands_still_is_killed_and_replaced, a_stuck_worker_is_killed_and_replaced]
    harness.side_by_side(*cases[:1 if harness.SANITIZED else 2])


if __name__ == "__main__":
    harness.main()
