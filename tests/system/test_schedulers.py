"""One router, two schedulers with a worker each: prompts that begin alike meet, a killed scheduler's streams go on at
the other, and one that serves is enough. And two routers at one scheduler."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import harness
from harness import FABLE

ADAPTER = os.path.join(harness.SOURCE_DIR, "tests/data/lora/fable-r4-qv")
STORY = {"max_tokens": 300, "ignore_eos": True, "temperature": 0.8, "return_tokens_as_token_ids": True, "logprobs": 0}
N_STREAMS = 8


class Cluster:
    """Actors by hand: `schedulers` of them with a worker each, and `routers` that know all."""

    def __init__(self, schedulers=2, routers=1):
        name = f"abstract://weft-cluster-{os.getpid()}-{time.monotonic_ns()}"
        self.urls = [f"{name}-{i}" for i in range(schedulers)]
        self.n_routers, self.procs, self.lines, self.ports = routers, {}, {}, []

    def start(self, actor, *args):
        proc = subprocess.Popen([os.path.join(harness.BIN_DIR, "weft-" + actor.split()[0]), *args],
                                stderr=subprocess.PIPE, text=True)
        self.procs[actor], self.lines[actor] = proc, []
        harness.Call(lambda proc=proc, lines=self.lines[actor]: lines.extend(proc.stderr))

    def start_scheduler(self, i):
        self.start(f"scheduler {i}", "--scheduler-url", self.urls[i], "--worker-url", self.urls[i] + "-w")

    def start_worker(self, i):
        self.start(f"worker {i}", FABLE, "--worker-url", self.urls[i] + "-w", "--kv-memory", "16MiB", "--threads", "1")

    def start_router(self, i):
        args = [a for url in self.urls for a in ("--scheduler-url", url)]
        # Requests wait for whoever is started anew, however long that takes on a busy machine.
        self.start(f"router {i}", FABLE, *args, "--port", "0", "--no-rpc", "--restart-grace", "3600000")

    def port(self, i):
        found = re.search(r"ready on http://127\.0\.0\.1:(\d+)", "".join(self.lines[f"router {i}"]))
        return found and int(found.group(1))

    def __enter__(self):
        for i in range(len(self.urls)):
            self.start_scheduler(i)
            self.start_worker(i)
        for i in range(self.n_routers):
            self.start_router(i)
        self.ports = [harness.wait_until("a router to be ready", lambda i=i: self.port(i))
                      for i in range(self.n_routers)]
        self.wait_for(*range(len(self.urls)))
        return self

    def __exit__(self, kind, *_):
        for proc in self.procs.values():
            proc.kill()
            proc.wait()
        if kind:
            for actor, lines in self.lines.items():
                print(f"    --- {actor} ---\n" + "".join(lines[-20:]), flush=True)

    def kill(self, actor):
        proc = self.procs.pop(actor)
        proc.kill()
        proc.wait()

    def request(self, method, path, body=None, router=0):
        conn = http.client.HTTPConnection("127.0.0.1", self.ports[router], timeout=harness.LIMIT_S)
        try:
            conn.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            reply = conn.getresponse()
            return harness.Reply(reply.status, reply.headers, reply.read())
        finally:
            conn.close()

    def schedulers(self, router=0):
        """/stats' list of them; with one it has none."""
        return self.request("GET", "/stats", router=router).json.get("schedulers")

    def wait_for(self, *serving):
        """Until those of these numbers serve, and no others."""
        if len(self.urls) == 1:
            harness.wait_until("all routers to hear that the scheduler serves", lambda: all(
                self.request("GET", "/health", router=i).status == 200 for i in range(self.n_routers)))
            return
        want = [i in serving for i in range(len(self.urls))]
        harness.wait_until(f"schedulers {serving} to serve",
                           lambda: [s["serving"] for s in self.schedulers()] == want)

    def metric(self, name, router=0):
        text = self.request("GET", "/metrics", router=router).text
        return sum(float(v) for v in re.findall(rf"^{name}{{.*}} (\S+)$", text, re.M))

    def tokens(self, body, on_token=None):
        """The token ids of a stream, as they came."""
        conn = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=harness.LIMIT_S)
        ids = []
        try:
            conn.request("POST", "/v1/completions", json.dumps({**body, "stream": True}),
                         {"Content-Type": "application/json"})
            reply = conn.getresponse()
            assert reply.status == 200, reply.read()

            def take(event):
                ids.extend(int(t.removeprefix("token_id:")) for t in event["choices"][0]["logprobs"]["tokens"])
                if on_token:
                    on_token(len(ids))
            harness.sse_events(reply, take)
        finally:
            conn.close()
        return ids


def placed(cluster):
    return [s["placed_requests"] for s in cluster.schedulers()]


def test_a_killed_scheduler_s_streams_go_on_at_the_other():
    bodies = [{**STORY, "prompt": f"{i} Once upon a time", "seed": i} for i in range(N_STREAMS)]
    with Cluster() as cluster:
        expected = harness.in_threads([lambda b=b: cluster.tokens(b) for b in bodies])
        assert all(len(ids) == STORY["max_tokens"] for ids in expected)

        def run(victim):
            begun = [threading.Event() for _ in bodies]

            def note(i, n):
                if n >= 20:
                    begun[i].set()
            calls = [harness.Call(lambda i=i, b=b: cluster.tokens(b, lambda n: note(i, n)))
                     for i, b in enumerate(bodies)]
            for event in begun:
                assert event.wait(harness.LIMIT_S)
            n_there = cluster.schedulers()[victim]["open_requests"]
            n_before = cluster.metric("weft_moved_requests_total")
            cluster.kill(f"scheduler {victim}")
            assert [call.result() for call in calls] == expected
            n_moved = cluster.metric("weft_moved_requests_total") - n_before
            assert cluster.request("GET", "/health").status == 200
            cluster.start_scheduler(victim)
            cluster.wait_for(0, 1)
            if not n_there or not n_moved:
                raise harness.Void(f"{n_there} streams were there, {n_moved} moved")
        for victim in (0, 1):
            harness.attempt(lambda victim=victim: run(victim))


def test_requests_for_an_adapter_go_where_it_is():
    """One host's worker loses it; requests go on at the other, and the adapter is theirs until nobody has it."""
    with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
        path = shutil.copytree(ADAPTER, f"{folder}/a")
        reply = cluster.request("POST", "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": path})
        assert reply.status == 200, reply.text

        def run_all():
            return harness.in_threads([lambda i=i: cluster.tokens(
                {**STORY, "model": "a", "prompt": f"{i} Once upon a time", "seed": i, "max_tokens": 60})
                for i in range(N_STREAMS)])
        expected = run_all()
        cluster.kill("scheduler 0")
        assert run_all() == expected
        cluster.start_scheduler(0)
        cluster.wait_for(0, 1)
        assert run_all() == expected
        os.remove(f"{path}/adapter_model.safetensors")
        cluster.kill("worker 0")
        cluster.start_worker(0)
        harness.wait_until("its loss", lambda: "is not at the scheduler" in "".join(cluster.lines["router 0"]))
        n_before = placed(cluster)[0]
        assert run_all() == expected
        assert placed(cluster)[0] == n_before
        cluster.kill("worker 1")
        cluster.start_worker(1)
        harness.wait_until("the end of it", lambda: len(cluster.request("GET", "/v1/models").json["data"]) == 1)


def test_a_scheduler_that_stands_still_loses_its_streams():
    """What it computed and tells of later, nobody wants any more."""
    bodies = [{**STORY, "prompt": f"{i} It was late", "seed": i} for i in range(N_STREAMS)]

    def run():
        with Cluster() as cluster:
            expected = harness.in_threads([lambda b=b: cluster.tokens(b) for b in bodies])
            begun = [threading.Event() for _ in bodies]

            def note(i, n):
                if n >= 10:
                    begun[i].set()
            calls = [harness.Call(lambda i=i, b=b: cluster.tokens(b, lambda n: note(i, n)))
                     for i, b in enumerate(bodies)]
            for event in begun:
                assert event.wait(harness.LIMIT_S)
            stopped = cluster.procs["scheduler 0"]
            os.kill(stopped.pid, signal.SIGSTOP)
            try:
                assert [call.result() for call in calls] == expected
            finally:
                os.kill(stopped.pid, signal.SIGCONT)
            cluster.wait_for(0, 1)
            if not cluster.metric("weft_moved_requests_total"):
                raise harness.Void("no stream was there")
            assert cluster.tokens(bodies[0]) == expected[0]
    harness.attempt(run)


def test_prompts_that_begin_alike_meet():
    with Cluster() as cluster:
        used = set()
        for topic in range(6):
            before = placed(cluster)
            for question in range(3):
                prompt = [10 + topic] * 200 + [100 + question] * 20
                cluster.request("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 2})
            there = [after - n for after, n in zip(placed(cluster), before, strict=True)]
            assert sorted(there) == [0, 3], (topic, there)
            used.add(there.index(3))
        assert cluster.metric("weft_prefix_cache_hits_total") >= 6 * 2 * 192


def test_one_that_serves_is_enough_and_figures_are_sums():
    with Cluster() as cluster:
        n_blocks = cluster.metric("weft_kv_blocks")
        assert n_blocks > 0
        cluster.kill("scheduler 0")
        cluster.wait_for(1)
        assert cluster.request("GET", "/health").status == 200
        for i in range(4):
            reply = cluster.request("POST", "/v1/completions", {"prompt": f"{i} Once", "max_tokens": 3})
            assert reply.status == 200, reply.text
        assert cluster.metric("weft_kv_blocks") == n_blocks / 2
        assert len(cluster.request("GET", "/v1/models").json["data"]) == 1
        cluster.kill("scheduler 1")
        harness.wait_until("/health to say so", lambda: cluster.request("GET", "/health").status == 503)
        waiting = harness.Call(lambda: cluster.request("POST", "/v1/completions", {"prompt": "It", "max_tokens": 3}))
        cluster.start_scheduler(0)
        assert waiting.result().status == 200, waiting.result().text
        cluster.wait_for(0)


def test_two_routers_share_one_scheduler():
    with Cluster(schedulers=1, routers=2) as cluster:
        body = {"prompt": "Once upon a time", "max_tokens": 50, "temperature": 0}
        texts = harness.in_threads([lambda r=r: cluster.request("POST", "/v1/completions", body, r % 2).json["choices"]
                                    [0]["text"] for r in range(8)])
        assert len(set(texts)) == 1, texts
        assert cluster.schedulers() is None
        cluster.kill("router 1")
        assert cluster.request("POST", "/v1/completions", body).json["choices"][0]["text"] == texts[0]


def test_addresses_that_make_no_sense_are_refused():
    for args, word in ((("--scheduler-url=abstract://a", "--scheduler-url=abstract://a"), "twice"),
                       ((f"--scheduler-url={','.join(f'abstract://{i}' for i in range(17))}",), "more than 16"),
                       (("--scheduler-url= , ",), "an empty URL"), (("--scheduler-url=abstract://a,",), "an empty URL"),
                       (("--scheduler-url=",), "needed")):
        done = subprocess.run([os.path.join(harness.BIN_DIR, "weft-router"), FABLE, "--port=0", "--no-rpc", *args],
                              capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
        assert done.returncode == 78 and word in done.stderr, (args, done.returncode, done.stderr)


if __name__ == "__main__":
    harness.main()
