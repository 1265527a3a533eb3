"""Several workers in one server, each with all of the model: they share the weights and the requests, answer as one
worker does, and the loss of one harms no other."""

import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import time

import harness
import test_kill as kills
from harness import Server

ROUNDS = 9 if not harness.SANITIZED else 3
AWAY_S = 11  # 10 s after a worker went, others get the requests that wait for it
REPLICAS = ("--workers", "2", "--layout", "replica")


def expected_tokens():
    """The answers of a single worker."""
    with Server() as server:
        return [s.tokens for s in kills.run_streams(server)]


def both_serve(server):
    return server.metrics().get('weft_workers{state="serving"}') == 2


def mappings(pid):
    """[(path, {"Rss": KiB, "Pss": KiB, ...})] of a process."""
    found = []
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as f:
        for line in f:
            words = line.split()
            if not words[0].endswith(":"):
                found.append((words[5] if len(words) > 5 else "", {}))
            elif len(words) == 3 and words[2] == "kB":
                found[-1][1][words[0][:-1]] = int(words[1])
    return found


def check_shared(server, of):
    """Each page of the weights is in both workers, and in memory once."""
    harness.wait_until("both workers to serve", lambda: both_serve(server))
    kills.run_streams(server)
    for pid in server.workers():
        maps = [kib for path, kib in mappings(pid) if of in path]
        rss, pss = sum(m["Rss"] for m in maps), sum(m["Pss"] for m in maps)
        assert rss > 10 << 10, f"only {rss} KiB of weights are mapped"
        assert pss <= 0.52 * rss, f"{pss} of {rss} KiB are its own share"


def test_replicas_share_the_packed_weights():
    with Server(*REPLICAS) as server:
        check_shared(server, "memfd:weft-weights")


def test_replicas_share_a_packed_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fable.weft")
        subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "pack", harness.FABLE, path], check=True, capture_output=True)
        with Server(*REPLICAS, model=path) as server:
            check_shared(server, "fable.weft")


def test_replicas_answer_as_one_worker_does_whichever_of_them_is_killed():
    expected = expected_tokens()
    rng = harness.rng()
    with Server(*REPLICAS) as server:
        for n_done in range(ROUNDS):
            harness.wait_until("both workers to serve", lambda: both_serve(server))
            victims = [[0], [1], [0, 1]][n_done % 3]
            n_tokens = kills.counted(server)[1]
            n_all = len(kills.BODIES) * kills.MAX_TOKENS
            share = rng.random() * 0.3

            def between(victims=victims, n_tokens=n_tokens, share=share, n_all=n_all):
                harness.wait_until("the moment to come",
                                   lambda: kills.counted(server)[1] >= n_tokens + share * n_all)
                pids = server.workers()
                for i in victims:
                    os.kill(pids[i], signal.SIGKILL)
            kills.check_streams(server, kills.run_streams(server, between), expected)
        kills.check_streams(server, kills.run_streams(server, lambda: server.kill("scheduler")), expected)


def wait_before_replaced(what, condition):
    """A worker that stands still for 10 s is replaced; a machine that was slower than that shows nothing."""
    try:
        harness.wait_until(what, condition, 8)
    except AssertionError as why:
        raise harness.Void(str(why)) from why


def test_a_worker_that_stands_still_holds_up_its_own_requests_alone():
    expected = expected_tokens()

    def run():
        with Server(*REPLICAS) as server:
            harness.wait_until("both workers to serve", lambda: both_serve(server))
            stopped = server.workers()[0]
            streams = [kills.Stream(server, i) for i in range(len(kills.BODIES))]
            harness.wait_until("all streams to begin", lambda: all(s.has_begun for s in streams))
            os.kill(stopped, signal.SIGSTOP)
            try:
                wait_before_replaced("half of the streams to end", lambda: sum(s.is_done for s in streams) >= 4)
                wait_before_replaced("the server to notice", lambda: server.get("/health").status == 503)
                if server.workers()[0] != stopped:
                    raise harness.Void("it was replaced before anybody looked")
                n_done = sum(s.is_done for s in streams)
                if n_done > 4:
                    raise harness.Void("it was stopped when streams of its own had ended")
            finally:
                if stopped in server.workers():
                    os.kill(stopped, signal.SIGCONT)
            streams = [s.finished() for s in streams]
            kills.check_streams(server, streams, expected)
            harness.wait_until("the server to be healthy again", lambda: server.get("/health").status == 200)
    harness.attempt(run)


def test_an_idle_worker_that_stands_still_is_passed_over():
    def run():
        with Server(*REPLICAS) as server:
            harness.wait_until("both workers to serve", lambda: both_serve(server))
            stopped = server.workers()[0]
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(1)  # two heartbeats and more: now the scheduler knows
            replies = [server.complete(prompt="It was late", max_tokens=20, temperature=0) for _ in range(3)]
            is_healthy = server.get("/health").status == 200
            if stopped not in server.workers():
                raise harness.Void("it was replaced meanwhile")
            os.kill(stopped, signal.SIGCONT)
            assert is_healthy and len({r["choices"][0]["text"] for r in replies}) == 1
    harness.attempt(run)


class Actors:
    """Router, scheduler and workers by hand, without anybody who starts them again."""

    def __init__(self, *kv_memory, scheduler=()):
        self.scheduler_args = scheduler
        self.name = f"abstract://weft-test-{os.getpid()}-{time.monotonic_ns()}"
        self.urls = [f"{self.name}-{i}" for i in range(len(kv_memory))]
        self.kv_memory, self.procs, self.port = kv_memory, {}, None

    def start(self, actor, *args):
        self.procs[actor] = subprocess.Popen(
            [os.path.join(harness.BIN_DIR, "weft-" + actor.split()[0]), *args], stderr=subprocess.PIPE, text=True)

    def start_scheduler(self):
        self.start("scheduler", "--scheduler-url", self.name, "--worker-url", ",".join(self.urls),
                   *self.scheduler_args)

    def start_worker(self, i):
        self.start(f"worker {i}", harness.FABLE, "--worker-url", self.urls[i], "--kv-memory", self.kv_memory[i],
                   "--workers", str(len(self.urls)), "--threads", "1")

    def kill(self, actor):
        proc = self.procs.pop(actor)
        proc.kill()
        proc.wait()
        proc.stderr.close()

    def __enter__(self):
        self.start_scheduler()
        self.start_worker(0)
        self.start("router", harness.FABLE, "--scheduler-url", self.name, "--port", "0", "--rpc-port", "0")
        for line in self.procs["router"].stderr:
            if "ready on http://" in line:
                self.port = int(line.split("127.0.0.1:")[1].split(",")[0])
                return self
        raise AssertionError("the router ended")

    def __exit__(self, *_):
        for actor in list(self.procs):
            self.kill(actor)

    def post(self, **body):
        """(status, body) of the reply."""
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.LIMIT_S)
        conn.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = conn.getresponse()
        return reply.status, reply.read()

    def complete(self, **body):
        status, reply = self.post(**body)
        assert status == 200, reply
        return json.loads(reply)["choices"][0]["text"]

    def metric(self, name, label=""):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.LIMIT_S)
        conn.request("GET", "/metrics")
        text = conn.getresponse().read().decode()
        return int(re.search(name + r"{.*" + label + r"} (\d+)", text).group(1))

    def n_serving(self):
        return self.metric("weft_workers", 'state="serving"')


def test_requests_go_where_they_fit():
    """Also when a scheduler takes over requests that another accepted before a worker with less room came."""
    body = {"prompt": [5] * 600, "max_tokens": 400, "ignore_eos": True, "temperature": 0}
    with Actors("32MiB", "1500KiB") as actors:
        calls = [harness.Call(lambda: actors.complete(**body)) for _ in range(6)]
        actors.start_worker(1)
        harness.wait_until("both workers to serve", lambda: actors.n_serving() == 2)
        actors.kill("scheduler")
        actors.start_scheduler()
        assert len({call.result() for call in calls}) == 1


def requests_of_a_worker_that_stays_away_go_to_another():
    body = {"prompt": "It was late", "max_tokens": 900, "ignore_eos": True, "temperature": 0}
    with Actors("32MiB", "32MiB") as actors:
        expected = actors.complete(**body)
        actors.start_worker(1)
        harness.wait_until("both workers to serve", lambda: actors.n_serving() == 2)
        calls = [harness.Call(lambda: actors.complete(**body)) for _ in range(8)]
        time.sleep(0.1)
        actors.kill("worker 1")
        assert {call.result() for call in calls} == {expected}
        assert actors.metric("weft_resubmissions_total") == 0, "others had to start over"


def a_full_queue_does_not_spill_over_to_a_worker_that_is_gone():
    """Requests beyond the bounds are refused, and running streams go on."""
    body = {"prompt": "It was late", "max_tokens": 900, "ignore_eos": True, "temperature": 0}

    def run():
        with Actors("32MiB", "32MiB", scheduler=("--max-num-seqs", "1", "--max-queue", "4")) as actors:
            expected = actors.complete(**body)
            actors.start_worker(1)
            harness.wait_until("both workers to serve", lambda: actors.n_serving() == 2)
            actors.kill("worker 1")
            time.sleep(AWAY_S)
            replies = [call.result() for call in [harness.Call(lambda: actors.post(**body)) for _ in range(12)]]
            assert actors.metric("weft_resubmissions_total") == 0, "streams had to start over"
            assert {status for status, _ in replies} <= {200, 429}, replies
            assert {json.loads(reply)["choices"][0]["text"] for status, reply in replies if status == 200} == {expected}
            if all(status == 200 for status, _ in replies):
                raise harness.Void("the queue was never full")
    harness.attempt(run)


def nobody_starts_over_while_the_only_worker_left_is_silent():
    body = {"prompt": "It was late", "max_tokens": 900, "ignore_eos": True, "temperature": 0}

    def run():
        with Actors("32MiB", "32MiB") as actors:
            expected = actors.complete(**body)
            actors.start_worker(1)
            harness.wait_until("both workers to serve", lambda: actors.n_serving() == 2)
            actors.kill("worker 0")
            time.sleep(AWAY_S)
            left = actors.procs["worker 1"]
            os.kill(left.pid, signal.SIGSTOP)
            calls = [harness.Call(lambda: actors.complete(**body))]
            time.sleep(1)  # two heartbeats and more: now the scheduler knows
            calls += [harness.Call(lambda: actors.complete(**body)) for _ in range(3)]
            time.sleep(2)
            n_resubmitted = actors.metric("weft_resubmissions_total")
            os.kill(left.pid, signal.SIGCONT)
            if left.poll() is not None:
                raise harness.Void("it was killed meanwhile")
            assert n_resubmitted == 0, f"{n_resubmitted} requests had to start over"
            assert {call.result() for call in calls} == {expected}
    harness.attempt(run)


def test_a_worker_that_stays_away():
    """Seconds of silence in each case."""
    harness.side_by_side(requests_of_a_worker_that_stays_away_go_to_another,
                         a_full_queue_does_not_spill_over_to_a_worker_that_is_gone,
                         nobody_starts_over_while_the_only_worker_left_is_silent)


def test_a_queue_is_shared_out():
    """Two run and four wait at least, with either worker."""
    with Server(*REPLICAS, "--max-num-seqs", "1", "--max-queue", "4") as server:
        harness.wait_until("both workers to serve", lambda: both_serve(server))
        body = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "temperature": 0}
        calls = [harness.Call(lambda: server.post("/v1/completions", body)) for _ in range(12)]
        statuses = sorted(call.result().status for call in calls)
        assert statuses.count(200) >= 6 and set(statuses) <= {200, 429}, statuses


def test_more_workers_than_cpus_serve_as_well():
    with Server("--workers", "5", "--kv-memory", "8MiB") as server:
        harness.wait_until("all workers to serve", lambda: server.metrics().get('weft_workers{state="serving"}') == 5)
        assert len(server.workers()) == 5
        replies = harness.in_threads([lambda: server.complete(prompt="It was late", max_tokens=20, temperature=0)] * 10)
        assert len({r["choices"][0]["text"] for r in replies}) == 1


if __name__ == "__main__":
    harness.main()
