"""/stats: what a look at the server shows, once and as a stream of events."""

import contextlib
import json
import signal
import time

import harness
from harness import Server
from rpc import Rpc

LONG = {"prompt": "Once upon a time", "max_tokens": 900, "temperature": 0, "ignore_eos": True}
N_STREAMS = 8


class Events:
    """The events of /stats."""

    def __init__(self, server, path="/stats?stream=true", headers=None):
        self.conn = server.connect()
        self.conn.request("GET", path, headers=headers or {})
        self.reply = self.conn.getresponse()
        self.status = self.reply.status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.reply.close()
        self.conn.close()

    def next(self):
        """None: the stream has ended, and was whole."""
        while line := self.reply.readline():
            if line.startswith(b"data: "):
                assert self.reply.readline() == b"\n"
                return json.loads(line[6:])
            assert line == b"\n" or line.startswith(b":"), line
        assert not self.reply.read()
        return None

    def until(self, what, is_it):
        """The first event that is_it; it may end the test, too."""
        end = time.monotonic() + harness.LIMIT_S
        while (event := self.next()) is None or not is_it(event):
            assert event and time.monotonic() < end, f"waited in vain for: {what}; at last: {event}"
        return event


def test_an_idle_server():
    with Server() as server:
        server.complete(prompt="Once", max_tokens=4)
        reply = server.get("/stats")
        assert reply.status == 200 and reply.headers["Content-Type"] == "application/json", reply.headers
        stats = reply.json
        assert stats["serving"] and stats["advancing"] and not stats["draining"], stats
        assert stats["kv_blocks"] == stats["kv_blocks_used"] + stats["kv_blocks_free"] > 0, stats
        assert stats["generation_tokens"] == 4 and stats["kv_blocks_cached"] == 0 and stats["experts"] is None, stats
        assert stats["time_to_first_token_seconds"]["count"] == 1, stats
        assert stats["inter_token_latency_seconds"]["count"] == 3, stats
        assert 0 <= stats["inter_token_latency_seconds"]["p50"] <= stats["inter_token_latency_seconds"]["p99"], stats
        assert stats["workers"] == {"known": 1, "serving": 1}, stats
        assert stats["max_num_seqs"] > 0 and stats["max_model_len"] == 1024, stats
        with Rpc(server) as rpc:
            error, result = rpc.call(1, "stats")
            assert error is None and result.keys() == stats.keys(), (error, result)


def test_a_live_batch_shows_who_is_in_it():
    harness.attempt(live_batch)


def live_batch():
    with Server() as server, Events(server, headers={"Accept": "text/event-stream"}, path="/stats") as events:
        assert events.reply.headers["Content-Type"].startswith("text/event-stream"), events.reply.headers
        server.check_idle = False
        still = server.about_to_stop()
        streams = [harness.Stream(server, LONG) for _ in range(N_STREAMS)]
        harness.wait_until("tokens of all", lambda: all(s.is_done or sum(map(len, s.chunks)) > 4000 for s in streams),
                           every_s=0.001)
        with still:
            still.settle()
            if any(s.is_done for s in streams):
                raise harness.Void("a stream had ended")

            def shows(event):
                if still.is_gone() or any(s.is_done for s in streams):
                    raise harness.Void("it was over before it was shown")
                return not event["advancing"] and event["num_requests_running"] == N_STREAMS
            stats = events.until("the batch", shows)
            assert [s["phase"] for s in stats["sequences"]] == ["decode"] * N_STREAMS, stats
            ids = {json.loads(b"".join(s.chunks).split(b"data: ")[1])["id"] for s in streams}
            assert {s["request_id"] for s in stats["sequences"]} == ids and len(ids) == N_STREAMS, (stats, ids)
            for s in stats["sequences"]:
                assert s["prompt_tokens_done"] == s["prompt_tokens"] > 0 and s["max_tokens"] == 900, s
                assert 0 < s["output_tokens"] < 900 and s["kv_blocks"] > 0 and s["age_seconds"] > 0, s
            assert stats["kv_blocks_used"] == sum(s["kv_blocks"] for s in stats["sequences"]), stats
            step = stats["last_steps"][-1]
            assert step["decode_tokens"] == step["sequences"] == N_STREAMS and not step["prompt_tokens"], step
            assert 3 < len(stats["last_steps"]) <= 64 and step["seconds"] > 0, stats
            assert stats["sequences_omitted"] == 0 and stats["reason"] == "the worker makes no progress", stats
            for s in streams:
                s.sock.shutdown(2)


def test_a_long_prompt_is_seen_chunk_by_chunk():
    with Server("--max-num-batched-tokens", "128", "--itl-target-ms", "0") as server:
        n = server.complete(prompt="a b" * 250, max_tokens=1)["usage"]["prompt_tokens"]

        def chunks():
            return [s["prompt_tokens"] for s in server.get("/stats").json["last_steps"] if s["prompt_tokens"]]
        harness.wait_until(f"chunks of {n} tokens together", lambda: sum(chunks()) == n)
        assert len(chunks()) > 2 and max(chunks()) <= 128, chunks()
        steps = [s["step"] for s in server.get("/stats").json["last_steps"]]
        assert steps == list(range(1, len(steps) + 1)), steps


def test_the_stream_outlives_the_worker_and_the_scheduler():
    with Server() as server, Events(server) as events:
        assert events.next()["serving"]
        server.kill("worker")
        events.until("the loss", lambda e: not e["serving"])
        events.until("the return", lambda e: e["serving"] and e["workers"]["serving"] == 1)
        server.kill("scheduler")
        away = events.until("the loss", lambda e: not e["serving"])
        assert away["reason"] and away["sequences"] == [], away
        events.until("the return", lambda e: e["serving"] and e["reason"] is None)
        server.check_idle = False


def test_a_stream_goes_on_while_the_scheduler_is_away():
    harness.attempt(away)


def away():
    with Server() as server, Events(server) as events:
        with server.stopped("scheduler") as still:
            first = events.until("the loss", lambda e: not e["serving"])
            if still.is_gone():
                raise harness.Void("the scheduler was replaced")
            assert first["reason"] == "the scheduler does not answer" and not first["advancing"], first
            assert not events.next()["serving"]  # again, a second later
        events.until("the return", lambda e: e["serving"])


def test_the_key_is_needed():
    one, two = {"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}
    with Server(env={"WEFT_API_KEY": "one"}) as server, Rpc(server) as rpc:
        for target in ("/stats", "/stats?stream=true"):
            assert server.get(target).status == 401
            assert server.get(target, {**two, "Accept": "text/event-stream"}).status == 401
        assert rpc.call(1, "stats")[0][0] == "authentication_error"
        assert rpc.call(2, "stats", {"api_key": "one"})[0] is None
        assert server.get("/stats", one).json["serving"]
        with Events(server, headers=one) as events:
            assert events.next()["serving"]


def test_streams_are_bounded():
    with Server() as server, contextlib.ExitStack() as stack:
        streams = [stack.enter_context(Events(server)) for _ in range(64)]
        for events in streams:
            assert events.next()["serving"]
        reply = server.get("/stats?stream=1")
        assert reply.status == 503 and reply.headers["Retry-After"], (reply.status, reply.headers)
        assert reply.json["error"]["code"] == "too_many_streams", reply.text
        assert server.get("/stats").status == 200
        for events in streams:
            assert events.next()  # all go on
        streams[0].__exit__()

        def has_place():
            with Events(server) as events:
                return events.status == 200 and events.next()
        harness.wait_until("a place", has_place)


def test_streams_end_when_the_server_does():
    with Server() as server, Events(server) as events:
        assert events.next()["serving"]
        server.proc.send_signal(signal.SIGTERM)
        last = None
        while event := events.next():
            last = event
        assert last["draining"] and last["reason"] == "the server is shutting down", last
        assert server.proc.wait(harness.LIMIT_S) == 0
        server.check_idle = False


def test_only_who_asks_for_events_gets_them():
    with Server() as server:
        for accept in ("*/*", "application/json", "text/event-streams, text/html;q=0.9"):
            assert server.get("/stats?streams=true&stream=", {"Accept": accept}).json["serving"]
        reply = server.request("HEAD", "/stats?stream=true")
        assert reply.status == 200 and reply.headers["Content-Type"] == "application/json", reply.headers
        for path, accept in (("/stats?a=b&stream=true", "*/*"), ("/stats?", "text/html, TEXT/event-stream;q=0.5")):
            with Events(server, path, {"Accept": accept}) as events:
                assert events.next()["serving"]
        assert server.post("/stats", {}).status == 405


if __name__ == "__main__":
    harness.main()
