"""--kv-spill: what preempted sequences had goes to a file and comes back, answers stay the same, and no file is left."""

import functools
import os
import resource
import tempfile

import harness
from harness import Call, Server

ARGS = ("--max-model-len", "400", "--max-num-batched-tokens", "16", "--no-prefix-cache")
SPILL = ("--kv-memory", "1400KiB", "--kv-spill", "16MiB", "--kv-spill-dir")
# So that computing again is dear, and a file is cheap: one thread, activations of 32 bits, a cache of 8.
DEAR = ("--threads", "1", "--activations", "f32", "--kv-dtype", "int8", "--kv-memory", "760KiB", *SPILL[2:])
ROUNDS = 3  # what steps cost must be known first


def draw_bodies(rng):
    return [{"prompt": [rng.randrange(3, 1000) for _ in range(60)], "max_tokens": 250, "ignore_eos": True,
             "logprobs": 0, "return_tokens_as_token_ids": True,
             "temperature": 1.0, "seed": rng.getrandbits(40)} for _ in range(4)]


def complete_all(server, bodies, wanted):
    """At once: more than there is memory for."""
    calls = [Call(functools.partial(server.complete, **body)) for body in bodies]
    for call, choices in zip(calls, wanted, strict=True):
        assert call.result()["choices"] == choices


def say(m):
    print("   ", {k: v for k, v in m.items() if "spill" in k or "restored" in k or "preempt" in k}, flush=True)


def test_answers_are_the_same_with_a_spill_file_and_nothing_is_left():
    bodies = draw_bodies(harness.rng())
    with Server(*ARGS) as server:
        wanted = [server.complete(**body)["choices"] for body in bodies]
    with tempfile.TemporaryDirectory() as folder:
        with Server(*ARGS, *SPILL, folder) as server:
            for _ in range(ROUNDS):
                complete_all(server, bodies, wanted)
            server.wait_idle()  # reports come four times a second
            m = harness.wait_until("a report of an empty file", lambda: (
                m := server.metrics())["weft_kv_spill_bytes"] == 0 and m)
            assert os.listdir(folder) == []
            say(m)
            assert m["weft_num_preemptions_total"] > 0
            server.kill("worker")
            assert os.listdir(folder) == []
            harness.wait_until("a new worker", lambda: server.get("/health").status == 200)
            assert server.complete(**bodies[0])["choices"] == wanted[0]
        assert os.listdir(folder) == []
    if m["weft_kv_restored_blocks_total"] == 0:  # the cost model decides, by what steps take on this machine
        raise harness.Skip("computing again was cheaper than a file, so answers were compared without spilled blocks")


def test_a_file_that_cannot_be_written_is_given_up_and_answers_are_the_same():
    bodies = draw_bodies(harness.rng())
    with tempfile.TemporaryDirectory() as folder, Server(*ARGS, *DEAR, folder) as server:
        wanted = [server.complete(**body)["choices"] for body in bodies]  # one by one: nobody is preempted
        worker = server.children()["worker"]
        assert server.metric("weft_num_preemptions_total") == 0
        hard = resource.prlimit(worker, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (0, hard))
        for _ in range(ROUNDS):
            complete_all(server, bodies, wanted)
        server.wait_idle()
        log = "".join(server.lines)
        if "spill" not in log:
            raise harness.Skip("computing again was cheaper than a file, so nothing was written")
        assert "cannot write to the spill file" in log and "this worker has none from now on" in log, log
        assert log.count("starting over with the scheduler") == 1, log
        assert "nothing is spilled to a file any more: the worker has given up its file" in log, log
        before = server.metrics()
        say(before)
        assert before["weft_kv_spill_files_lost_total"] == 1 and before["weft_kv_spill_bytes"] == 0
        assert before["weft_kv_restored_blocks_total"] == 0

        complete_all(server, bodies, wanted)
        server.wait_idle()
        after = server.metrics()
        assert after["weft_num_preemptions_total"] > before["weft_num_preemptions_total"]
        assert after["weft_kv_spilled_blocks_total"] == before["weft_kv_spilled_blocks_total"]
        assert server.children()["worker"] == worker  # none was lost for that


if __name__ == "__main__":
    harness.main()
