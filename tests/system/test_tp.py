"""A model divided among workers (--layout tp): the answers of one worker bit for bit, each with its share of the
weights; and any of them may die."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time

import harness
import test_kill as kills
from harness import Server
from test_replicas import mappings

ROUNDS = 6 if not harness.SANITIZED else 2
ZOO = os.path.join(harness.SOURCE_DIR, "tests/data/zoo")
PROMPT = list(range(3, 60))


def answers(server):
    """What says the most about logits: greedy tokens and their log-probabilities, of prompt and output."""
    body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "logprobs": 5, "echo": True, "ignore_eos": True,
            "return_tokens_as_token_ids": True}
    choice = server.complete(**body)["choices"][0]["logprobs"]
    return choice["tokens"], choice["token_logprobs"], choice["top_logprobs"]


def layout(n_workers):
    return ("--workers", str(n_workers), "--layout", "tp", "--kv-memory", "8MiB")


def check_equal(model, numbers, *args):
    with Server("--workers", "1", *args, model=model) as server:
        expected = answers(server)
    assert len(expected[0]) == len(PROMPT) + 12
    for n in numbers:
        with Server(*layout(n), *args, model=model) as server:
            assert len(server.workers()) == n
            assert answers(server) == expected, f"{n} workers give other log-probabilities than one"


def test_any_number_of_workers_gives_the_bits_of_one():
    check_equal(harness.FABLE, (2, 4, 8))


def test_experts_and_latent_attention_are_divided_as_well():
    for name in ("mixtral", "deepseek_v3_fp8"):
        check_equal(os.path.join(ZOO, name), (2, 4))


def test_a_packed_file_is_divided_as_well():
    with tempfile.TemporaryDirectory() as folder:
        packed = os.path.join(folder, "model.weft")
        subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "pack", harness.FABLE, packed, "--dtype", "q8"], check=True,
                       capture_output=True, timeout=harness.LIMIT_S)
        check_equal(packed, (2,))


def test_each_worker_has_its_share_of_the_weights():
    def held(server):
        kills.run_streams(server)
        return [sum(kib["Pss"] for path, kib in mappings(pid) if "memfd:weft-weights" in path)
                for pid in server.workers()]
    with Server("--workers", "1") as server:
        whole = held(server)[0]
    with Server(*layout(2)) as server:
        shares = held(server)
    print(f"    weights in memory: {whole} KiB of one worker, {shares} of two")
    assert all(0.45 * whole < share < 0.58 * whole for share in shares), (whole, shares)


def test_metrics_tell_what_each_worker_holds():
    def figures(server, name):
        found = server.metrics()
        return [found.get(f'weft_worker_{name}{{group="0",rank="{rank}"}}') for rank in range(2)]
    with Server(*layout(2), model=os.path.join(ZOO, "mixtral")) as server:
        server.complete(prompt=PROMPT, max_tokens=4)
        harness.wait_until("both to have told", lambda: all(figures(server, "meeting_seconds_total")))
        experts, weights = figures(server, "experts"), figures(server, "weight_bytes")
    with Server("--workers", "1", model=os.path.join(ZOO, "mixtral")) as server:
        harness.wait_until("it to have told", lambda: figures(server, "experts")[0])
        assert figures(server, "experts") == [sum(experts), None] and experts[0] == experts[1]
        assert max(weights) < 0.7 * figures(server, "weight_bytes")[0]


def test_streams_survive_the_death_of_any_rank():
    rng = harness.rng()
    with Server(*layout(2)) as server:
        expected = [s.tokens for s in kills.run_streams(server)]
        for n_done in range(ROUNDS):
            victims = [(0,), (1,), (0, 1)][n_done % 3]
            n_tokens, share = kills.counted(server)[1], rng.random() * 0.3

            def between(victims=victims, n_tokens=n_tokens, share=share):
                n_all = len(kills.BODIES) * kills.MAX_TOKENS
                harness.wait_until("the moment to come", lambda: kills.counted(server)[1] >= n_tokens + share * n_all)
                old = server.workers()
                for i in victims:
                    with contextlib.suppress(ProcessLookupError):  # it went with the first one
                        os.kill(old[i], signal.SIGKILL)
                harness.wait_until("the group to be replaced",
                                   lambda: len(set(server.workers()) - set(old)) == 2 and not set(server.workers()) & set(old))
            kills.check_streams(server, kills.run_streams(server, between), expected)
        kills.check_streams(server, kills.run_streams(server, lambda: server.kill("scheduler")), expected)


def test_a_rank_that_stands_still_for_a_while_is_waited_for():
    with Server(*layout(2)) as server:
        expected = [s.tokens for s in kills.run_streams(server)]
        pids = server.workers()

        def run():
            n_ended, still_s = kills.counted(server)[0], []

            def between():
                begin = time.monotonic()
                os.kill(pids[1], signal.SIGSTOP)
                time.sleep(2)
                still_s.append(time.monotonic() - begin)
                if kills.counted(server)[0] != n_ended:
                    still_s.clear()
                os.kill(pids[1], signal.SIGCONT)
            kills.check_streams(server, kills.run_streams(server, between), expected)
            if not still_s:
                raise harness.Void("streams had ended before it was stopped")
            if still_s[0] > 5:
                raise harness.Void("it stood still for too long")
            assert server.workers() == pids
        harness.attempt(run)


def test_one_that_stands_still_for_good_is_replaced_with_its_group():
    with Server(*layout(2)) as server:
        expected = [s.tokens for s in kills.run_streams(server)]

        def run():
            pids, n_ended = server.workers(), kills.counted(server)[0]

            def between():
                os.kill(pids[1], signal.SIGSTOP)
                between.all_open = kills.counted(server)[0] == n_ended
                if not between.all_open:
                    os.kill(pids[1], signal.SIGCONT)
            kills.check_streams(server, kills.run_streams(server, between), expected)
            if not between.all_open:
                raise harness.Void("streams had ended before it was stopped")
            assert not set(server.workers()) & set(pids)
            log = "".join(server.lines)
            assert f"rank 1 (pid {pids[1]}) made no progress for 10 s: killed" in log, "another one was blamed"
        harness.attempt(run)


def test_several_groups_have_a_model_each_and_lose_one_rank_alone():
    with Server("--workers", "4", "--tp", "2", "--kv-memory", "8MiB") as server:
        harness.wait_until("both groups to serve", lambda: server.metrics().get('weft_workers{state="serving"}') == 2)
        expected = [s.tokens for s in kills.run_streams(server)]
        pids = server.workers()

        def between():
            os.kill(pids[3], signal.SIGKILL)
            harness.wait_until("the group to be replaced", lambda: len(set(server.workers()) - set(pids)) == 2)
        kills.check_streams(server, kills.run_streams(server, between), expected)
        assert server.workers()[:2] == pids[:2], "the other group was not concerned"
        log = "".join(server.lines)
        assert f"rank 1 of group 1 (pid {pids[3]}) was killed by signal 9" in log, log
        assert all(f" worker rank {i}: loaded " in log for i in (0, 1)), log


def refusal(*args, model=harness.FABLE):
    done = subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "serve", model, "--port", "0", "--no-rpc", *args],
                          stderr=subprocess.PIPE, text=True, timeout=harness.LIMIT_S, check=False)
    assert done.returncode == 2, done
    return done.stderr.strip().splitlines()[0]


def test_what_cannot_be_divided_is_refused_in_a_sentence():
    assert "among 2, 4 or 8 workers, not 3" in refusal("--workers", "3", "--layout", "tp")
    assert "--tp divides a model among 2, 4 or 8 workers, not 3" in refusal("--tp", "3")
    assert "3 workers are no groups of 2" in refusal("--workers", "3", "--tp", "2")
    assert "which --layout replica does not" in refusal("--layout", "replica", "--tp", "2")


def test_one_worker_with_a_layout_is_told_that_nothing_is_divided():
    with Server("--workers", "1", "--layout", "tp") as server:
        assert "--layout tp with one worker divides nothing" in "".join(server.lines)


if __name__ == "__main__":
    harness.main()
