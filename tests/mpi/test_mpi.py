"""Groups whose ranks are on different hosts: the same bits as one engine, and an end with a sentence when one is lost."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile

import hosts
import harness
from harness import FABLE, Skip, Void
from test_schedulers import STORY, Cluster

MODELS = ["models/fable-6m", "tests/data/zoo/llama_gqa_llama3rope", "tests/data/zoo/qwen2_moe",
          "tests/data/zoo/deepseek_v3"]
MOE = os.path.join(os.environ.get("WEFT_SHARED_DIR", os.path.join(harness.SOURCE_DIR, "../shared")),
                   "models/fable-moe-12m/fable-moe-12m-q8_0.gguf")


def program(name):
    return os.path.join(harness.BIN_DIR, name)


@contextlib.contextmanager
def network():
    """Two hosts, or none, and a line that says so: then both ranks are on this one."""
    try:
        with hosts.two_hosts() as both:
            yield both
    except Skip as why:
        print(f"    two ranks on one host instead: {why}")
        yield None


def assert_nothing_left(both):
    harness.wait_until("all processes of the job to end", lambda: not any(h.pids() for h in both or ()))


def run(both, n_ranks, *command):
    with hosts.job(both, n_ranks, *command) as job:
        status, said = job.end()
    assert_nothing_left(both)
    return status, said


def test_what_one_rank_writes_all_others_read():
    for n_ranks in (1, 2, 4):
        status, said = run(None, n_ranks, program("coll_mpi"), "data")
        assert status == 0, said
        assert len(re.findall(r"was idle", said)) == n_ranks, said


def test_a_model_divided_between_two_hosts_has_the_bits_of_one_engine():
    cases = [(os.path.join(harness.SOURCE_DIR, m), 2) for m in MODELS] + [(MOE, 2)] * os.path.exists(MOE)
    cases.append((cases[0][0], 4))
    with network() as both:
        for model, n_ranks in cases:
            alone = subprocess.run([program("engine_mpi"), model, "alone"], capture_output=True, text=True, check=True)
            status, said = run(both, n_ranks, program("engine_mpi"), model, "group")
            assert status == 0, said
            logits, tokens = alone.stdout.splitlines()
            assert logits in said, f"{alone.stdout}\n{said}"
            assert all(tokens.replace("rank 0", f"rank {i}") in said for i in range(n_ranks)), f"{tokens}\n{said}"
            networks = re.findall(r"rank . is in (.*)", said)
            assert len(networks) == n_ranks and (not both or set(networks) == {h.net for h in both}), said


def test_the_loss_of_a_rank_ends_the_job():
    with network() as both:
        with hosts.job(both, 2, program("coll_mpi"), "meets") as job:
            job.await_line("rank 0 is process ")
            os.kill(int(job.await_line("rank 1 is process ")), signal.SIGKILL)
            status, said = job.end()
        assert status != 0 and re.search(r"rank 1 .*exited on signal 9", said), said
        assert_nothing_left(both)


def test_the_loss_of_a_host_ends_the_job():
    with network() as both:
        if not both:
            raise Skip("there is one host")
        with hosts.job(both, 2, program("coll_mpi"), "meets") as job:
            job.await_line("rank 0 is process ")
            job.await_line("rank 1 is process ")
            for pid in both[1].pids():
                os.kill(pid, signal.SIGKILL)
            status, said = job.end()
        assert status != 0 and "daemon" in said, said  # mpirun's own there
        assert_nothing_left(both)


def test_whoever_notices_that_the_group_is_over_says_why_and_ends_the_job():
    sentences = {
        "late": "rank 1 of the group has not come within 300 ms: this ends the job",
        "leaves": "rank 1 has left the group: this ends the job",
        "differs": "the ranks of the group differ in model or options: one wants 1344 and 4096 bytes",
        "aborts": "rank 1 of the group ends, and the job with it",
    }
    with network() as both:
        for how, sentence in sentences.items():
            status, said = run(both, 2, program("coll_mpi"), how)
            assert status != 0 and sentence in said, f"{how}: {status}\n{said}"


class Group(Cluster):
    """Router and scheduler here, and a worker that is two ranks."""

    def __init__(self, both, tmp):
        super().__init__(schedulers=1)
        self.urls, self.both, self.tmp, self.job = [f"ipc://{tmp}/s"], both, tmp, None

    def start_worker(self, i):
        self.job = hosts.Job(self.both, 2, program("weft-worker"), FABLE, "--mpi", "--worker-url", self.urls[i] + "-w",
                             "--kv-memory", "16MiB", "--threads", "1", tmp=self.tmp)
        self.procs[f"worker {i}"] = self.job.proc

    def a_rank(self):
        """The one on the second host, or one of mpirun's children here."""
        if not self.both:
            return harness.actors_of(self.job.proc.pid)[-1][1]
        return next(pid for pid in self.both[1].pids() if harness.proc_stat(pid)[1] == "weft-worker")


@contextlib.contextmanager
def serving():
    with network() as both, tempfile.TemporaryDirectory() as tmp:
        with Group(both, tmp) as group:
            yield group
        assert_nothing_left(both)


def test_a_group_across_hosts_serves_what_one_worker_does():
    want = subprocess.run([program("weft"), "run", FABLE, "--prompt", "The old house stood", "--n-predict", "40"],
                          capture_output=True, text=True, check=True).stdout
    with serving() as group:
        reply = group.request("POST", "/v1/completions", {"prompt": "The old house stood", "max_tokens": 40,
                                                          "temperature": 0})
        assert reply.status == 200 and reply.json["choices"][0]["text"].strip() == want.strip(), reply.text


def lose_a_rank(group, body, want):
    """While it streams; whoever started the ranks starts them anew."""
    lost = []

    def on_token(_):
        if not lost:
            lost.append(group.a_rank())
            os.kill(lost[0], signal.SIGKILL)
            status, said = group.job.end()
            assert status != 0 and re.search(r"rank \d .*exited on signal 9", said), said
            group.start_worker(0)

    before = group.metric("weft_recomputed_tokens_total")
    assert group.tokens(body, on_token) == want
    if group.metric("weft_recomputed_tokens_total") == before:
        raise Void("all tokens were there before the rank was lost")


def test_a_stream_goes_on_with_a_new_job():
    with serving() as group:
        body = {**STORY, "prompt": "The old house stood", "seed": 7}
        want = group.tokens(body)
        harness.attempt(lambda: lose_a_rank(group, body, want))


def test_so_many_ranks_are_no_group():
    status, said = run(None, 3, program("coll_mpi"), "data")
    assert status != 0 and "a group has 1, 2, 4 or 8 ranks, and mpirun has started 3" in said, said


if __name__ == "__main__":
    hosts.begin()
    harness.main()
