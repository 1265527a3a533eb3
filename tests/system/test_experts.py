"""The metric of experts: the rows that each computed, in /metrics, and that it never falls; and their placement by it."""

import json
import os
import re
import subprocess
import tempfile
import time

import harness
from harness import Server

NAME = "weft_expert_tokens_total"
OLMOE = os.path.join(harness.SOURCE_DIR, "tests/data/zoo/olmoe")
DEEPSEEK = os.path.join(harness.SOURCE_DIR, "tests/data/zoo/deepseek_v3")  # its first layer is a plain one
N_LAYERS, N_EXPERTS, N_USED = 2, 8, 2
PROMPT = [5, 17, 300, 42, 7, 99, 256, 11, 3]


def experts(server):
    """{(layer, expert): tokens}"""
    pattern = re.compile(NAME + r'\{layer="(\d+)",expert="(\d+)"\}')
    found = {}
    for name, value in server.metrics().items():
        match = pattern.fullmatch(name)
        if match:
            found[int(match.group(1)), int(match.group(2))] = value
    return found


def by_layer(server):
    sums = [0] * N_LAYERS
    for (layer, _), value in experts(server).items():
        sums[layer] += value
    return sums


def all_series(layers=range(N_LAYERS), n_experts=N_EXPERTS):
    return {(layer, expert) for layer in layers for expert in range(n_experts)}


def generate(server, n, **more):
    return server.complete(prompt=PROMPT, max_tokens=n, ignore_eos=True, temperature=0, **more)


def rows_of(n):
    """The counts of a completion of n tokens: the last one is not computed, and the last layer's experts compute only
    rows that a token is drawn from."""
    return [N_USED * (len(PROMPT) + n - 1), N_USED * n]


def test_experts_count_what_they_computed():
    with Server(model=OLMOE) as server:
        harness.wait_until("the series, before any request", lambda: set(experts(server)) == all_series())
        assert by_layer(server) == [0, 0], experts(server)
        generate(server, 20)
        harness.wait_until("the counts of one completion", lambda: by_layer(server) == rows_of(20))
        harness.in_threads([lambda: generate(server, 30)] * 4)
        wanted = [a + 4 * b for a, b in zip(rows_of(20), rows_of(30), strict=True)]
        harness.wait_until("the counts of four more", lambda: by_layer(server) == wanted)
        counts = experts(server)
        assert max(counts.values()) < sum(rows_of(20)) + 4 * sum(rows_of(30)), counts  # not all in one
        time.sleep(1.5)  # and nothing is told twice
        assert experts(server) == counts


def test_layers_without_experts_have_no_series():
    with Server(model=DEEPSEEK) as server:
        generate(server, 6)
        wanted = 4 * (len(PROMPT) + 5 + 6)  # of the second layer and the last; 4 experts for each token
        harness.wait_until("the counts", lambda: sum(experts(server).values()) == wanted)
        assert set(experts(server)) == all_series([1, 2], 16)


class Watch:
    """Looks at the counters again and again; none may fall, or be gone once it was there."""

    def __init__(self, server):
        self.server, self.last = server, {}

    def look(self):
        now = experts(self.server)
        fallen = {k: (v, now.get(k)) for k, v in self.last.items() if now.get(k, -1) < v}
        assert not fallen, f"counters fell: {fallen}"
        self.last = now
        return sum(now.values())


def check_kills(names, n_rounds, *args):
    """After each kill the counts go on from where they were: all that comes is added, and nothing twice."""
    with Server(*args, model=OLMOE, check_idle=False) as server:
        watch = Watch(server)
        harness.wait_until("the series", lambda: set(experts(server)) == all_series())
        for _ in range(n_rounds):
            before = by_layer(server)
            generate(server, 25)
            wanted = [a + b for a, b in zip(before, rows_of(25), strict=True)]
            harness.wait_until("the counts of a completion", lambda: watch.look() and by_layer(server) == wanted)
            pids = server.kill(*names)
            harness.wait_until("its successor", lambda: watch.look() and all(
                server.children().get(name) not in (None, pid) for name, pid in pids.items()))
            harness.wait_until("the server to be healthy", lambda: watch.look() and server.get("/health").status == 200)
        before = by_layer(server)
        generate(server, 10)
        wanted = [a + b for a, b in zip(before, rows_of(10), strict=True)]
        harness.wait_until("the counts behind the last kill", lambda: watch.look() and by_layer(server) == wanted)


def test_a_killed_worker_s_counts_stay():
    check_kills(["worker"], 3)


def test_a_killed_scheduler_s_counts_stay():
    check_kills(["scheduler"], 3)


def test_counts_stay_when_both_are_killed():
    check_kills(["worker", "scheduler"], 2)


def test_counts_never_fall_when_workers_are_killed_in_mid_stream():
    with Server("--workers", "2", model=OLMOE, check_idle=False) as server:
        watch = Watch(server)
        harness.wait_until("the series", lambda: set(experts(server)) == all_series())
        for i in range(3):
            before = watch.look()
            calls = [harness.Call(lambda: generate(server, 400)) for _ in range(4)]
            harness.wait_until("some counts", lambda before=before: watch.look() > before or all(c.is_done for c in calls))
            os.kill(server.workers()[i % len(server.workers())], 9)
            harness.wait_until("the streams to end", lambda: watch.look() and all(c.is_done for c in calls))
            for call in calls:
                call.result()
            harness.wait_until("both workers to serve", lambda: watch.look() and server.metrics().get(
                'weft_workers{state="serving"}') == 2)


def test_the_counts_of_two_workers_are_summed():
    with Server("--workers", "2", model=OLMOE) as server:
        harness.wait_until("both workers to serve", lambda: server.metrics().get('weft_workers{state="serving"}') == 2)
        harness.in_threads([lambda: generate(server, 60)] * 8)
        harness.wait_until("the counts", lambda: by_layer(server) == [8 * n for n in rows_of(60)])


def test_off_has_no_series_and_neither_has_a_model_without_experts():
    for args, model in ((("--expert-metrics", "off"), OLMOE), ((), harness.FABLE)):
        with Server(*args, model=model) as server:
            server.complete(prompt=PROMPT, max_tokens=4)
            time.sleep(1.5)
            assert NAME not in server.get("/metrics").text


def measure(path, *args, model=OLMOE):
    weft = os.path.join(harness.BIN_DIR, "weft")
    return subprocess.run([weft, "bench", model, "--prompt", "8", "--context", "8", "--gen", "4", "--batch", "1",
                           "--reps", "1", "--expert-profile", path, *args], capture_output=True, text=True,
                          timeout=harness.LIMIT_S, check=False)


def test_a_measured_profile_places_experts_and_changes_no_answer():
    def answer(server):
        return generate(server, 20, logprobs=3)["choices"][0]["logprobs"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "experts.json")
        done = measure(path)
        assert done.returncode == 0, done.stderr
        with open(path, encoding="utf-8") as file:
            profile = json.load(file)
        assert profile["experts"] == N_EXPERTS and len(profile["tokens"]) == N_LAYERS
        assert all(sum(layer) > 0 for layer in profile["tokens"])
        with Server("--workers", "1", "--expert-profile", path, model=OLMOE) as server:
            expected = answer(server)
            assert "--expert-profile changes nothing" in "".join(server.lines)
        with Server("--workers", "2", "--layout", "tp", "--expert-profile", path, model=OLMOE) as server:
            assert answer(server) == expected
            assert f"by their load in {path}" in "".join(server.lines)
            names = [f'weft_worker_experts{{group="0",rank="{rank}"}}' for rank in range(2)]
            harness.wait_until("the ranks' figures", lambda: set(names) <= set(server.metrics()))
            held = [server.metrics()[name] for name in names]
            assert held == [N_EXPERTS / 2] * 2, held


def test_bench_has_no_profile_of_a_model_without_experts():
    with tempfile.TemporaryDirectory() as folder:
        done = measure(os.path.join(folder, "x"), model=harness.FABLE)
        assert done.returncode != 0 and "no experts" in done.stderr and not os.listdir(folder)
        done = measure(os.path.join(folder, "none", "x"))
        assert done.returncode != 0 and "cannot write" in done.stderr and not done.stdout, done  # nothing was measured
        done = measure(os.path.join(folder, "x"), "--expert-text", os.path.join(folder, "none"))
        assert done.returncode != 0 and "none" in done.stderr and not done.stdout, done
        done = measure("", "--expert-text", "x", model=OLMOE)
        assert done.returncode != 0, done.stdout


if __name__ == "__main__":
    harness.main()
