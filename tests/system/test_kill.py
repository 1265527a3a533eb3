"""Nothing is lost: kill -9 of worker, scheduler or both while streams are open."""

import json
import threading

import harness
from harness import Server

ROUNDS = 20 if not harness.SANITIZED else 8
MAX_TOKENS = 700
BODIES = [
    {"prompt": "Once upon a time", "temperature": 0},
    {"prompt": "The captain looked at the sea and", "temperature": 0},
    {"prompt": "It was late", "temperature": 0.9, "seed": 1, "top_p": 0.95},
    {"prompt": "\"Who are you?\" said the", "temperature": 1.1, "seed": 2, "top_k": 50},
    {"prompt": "In the morning the two brothers", "temperature": 1.0, "seed": 3, "min_p": 0.02},
    {"prompt": "My dear sister,", "temperature": 0.8, "seed": 4, "repetition_penalty": 1.15,
     "presence_penalty": 0.4, "frequency_penalty": 0.2, "min_tokens": 400},
    {"prompt": "Long ago " * 60, "temperature": 0.7, "seed": 5},
    {"prompt": "Nobody knew why", "temperature": 1.0},  # no seed: the router draws one
]
UNSEEDED = 7


class Stream:
    """One open stream, read by its own thread."""

    def __init__(self, server, idx):
        self.server, self.idx, self.body = server, idx, {
            "max_tokens": MAX_TOKENS, "logprobs": 0, "return_tokens_as_token_ids": True, "top_p": 1.0,
            **({"ignore_eos": True} if idx != 5 else {}), **BODIES[idx]}
        self.tokens, self.error, self.n_events, self.finish = [], None, 0, None
        self.begun, self.done = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            self.server.stream("/v1/completions", self.body, self.on_event)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error
        finally:
            self.done.set()
            self.begun.set()

    def on_event(self, event):
        for choice in event["choices"]:
            if choice.get("logprobs"):
                self.tokens += harness.tokens_of(choice)
            if choice["finish_reason"]:
                self.finish = choice["finish_reason"]
        self.begun.set()


def run_streams(server, between=None):
    streams = [Stream(server, i) for i in range(len(BODIES))]
    for s in streams:
        s.thread.start()
    for s in streams:
        assert s.begun.wait(harness.LIMIT_S), f"stream {s.idx} does not begin"
    if between:
        between(streams)
    for s in streams:
        s.thread.join()
        if s.error:
            raise AssertionError(f"stream {s.idx} broke: {s.error!r}") from s.error
        assert s.finish in ("stop", "length"), s.finish
    return streams


def check_unseeded(server, stream):
    """Its tokens are new each time; read back as a prompt they must have the very same log-probabilities."""
    assert len(stream.tokens) == MAX_TOKENS, f"{len(stream.tokens)} tokens, not {MAX_TOKENS}"
    prompt = server.post("/tokenize", {"prompt": stream.body["prompt"]}).json["tokens"]
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


def disturb(server, rng, names):
    """kill -9 at a random moment. Notes whether all streams were open then (none had even half of its tokens
    just after), and waits until the processes are really replaced."""
    def between(streams):
        streams[0].done.wait(rng.random() * 0.2 * harness.SLOW)
        old = server.kill(*names)
        between.all_open = all(len(s.tokens) < MAX_TOKENS // 2 and not s.done.is_set() for s in streams)
        def replaced():
            now = server.children()
            return all(now.get(n) and now[n] != old[n] for n in names)
        harness.wait_until(f"{names} to be replaced", replaced)
    between.all_open = False
    return between


def test_streams_survive_kills_of_worker_scheduler_and_both():
    rng = harness.rng()
    plans = [("worker",), ("scheduler",), ("worker", "scheduler")] * 7
    # A small cache as well: preemption and resumption at once.
    with Server("--kv-memory", "14MiB") as server:
        expected = [s.tokens for s in run_streams(server)]
        assert len(expected[0]) == MAX_TOKENS
        n_done, n_late = 0, 0
        while n_done < ROUNDS:
            names = plans[n_done]
            between = disturb(server, rng, names)
            streams = run_streams(server, between)
            # A kill that came late may be healed only now; what is new is rightly refused until then.
            harness.wait_until("the server to be healthy again", lambda: server.get("/health").status == 200)
            check_streams(server, streams, expected)
            if not between.all_open:  # the kill came too late to count; what was checked still holds
                n_late += 1
                assert n_late < ROUNDS, "the kills keep coming when streams have ended"
                continue
            n_done += 1
            print(f"    round {n_done}: {' and '.join(names)} killed", flush=True)


def test_a_killed_router_comes_back_and_its_requests_are_reaped():
    with Server() as server:
        sock = server.connect()
        sock.request("POST", "/v1/completions", json.dumps(
            {"prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True}),
            {"Content-Type": "application/json"})
        sock.getresponse().readline()
        old = server.kill("router")["router"]
        harness.wait_until("the router to be replaced", lambda: server.children().get("router") not in (None, old))

        def healthy():
            try:
                return server.get("/health").status == 200
            except OSError:
                return False
        harness.wait_until("the new router to serve on the old port", healthy)
        server.wait_idle()


def test_waiting_requests_survive_too():
    """Not only what runs: requests in the queue when the scheduler dies are answered as well."""
    with Server("--max-num-seqs", "2") as server:
        bodies = [{"prompt": f"Number {i} was", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
                  for i in range(16)]
        expected = [server.complete(**b)["choices"][0]["text"] for b in bodies]
        results = [None] * len(bodies)

        def run(i):
            results[i] = server.complete(**bodies[i])["choices"][0]["text"]
        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(bodies))]
        for t in threads:
            t.start()
        harness.wait_until("requests to wait", lambda: server.metric("weft_num_requests_waiting") > 3
                           or all(r is not None for r in results))
        server.kill("scheduler")
        for t in threads:
            t.join()
        assert results == expected


if __name__ == "__main__":
    harness.main()
