"""Cached prefixes of models with recurrent layers (../shared/zoo2): a hit begins with a state that was kept at a block's
border, and changes when an answer comes and nothing else: not where chunks end, not under preemption, not over kill -9,
not where workers divide the model. How many states are kept is bounded."""

import concurrent.futures
import os
import random

import harness
import test_families as families
import test_prefix as prefix
import test_sessions as sessions
import test_tp as tp
import test_zoo as zoo

N_BLOCK = 16
MODELS = ["falcon_h1", "lfm2", "nemotron_h", "qwen3_next"]


def serve(name, *args):
    folder = os.path.join(families.ZOO, name)
    return zoo.serve(folder, folder, *args)


def make_requests(rng, n_vocab):
    """Prompts that begin alike, to this point or that; some come twice, some want several answers."""
    requests = prefix.make_requests(rng, n_vocab, n_shared=140, n_answer=16)
    for body in requests:
        if len(body["prompt"]) > 100:
            body["prompt"] = body["prompt"] + [rng.randrange(3, n_vocab) for _ in range(70)]
    return requests


def turns_of(server, rng, requests):
    """The answers, then those of the conversations' next turns; and how much was found for each."""
    answers = [prefix.answer(server, body) for body in requests]
    turns = prefix.next_turns(rng, server.n_vocab, requests, answers)
    return requests + turns, answers + [prefix.answer(server, body) for body in turns]


def reference(name):
    with serve(name, "--no-prefix-cache") as server:
        requests, answers = turns_of(server, random.Random(2), make_requests(random.Random(1), server.n_vocab))
        assert all(found == 0 for _, found in answers)
        assert server.metric("weft_state_checkpoints_taken_total") == 0
    return requests, answers


def check(name):
    requests, wanted = reference(name)
    for args in (("--max-num-batched-tokens", "37"), (), ("--state-checkpoints", "2")):
        with serve(name, *args) as server:
            got = [prefix.answer(server, body) for body in requests]
            prefix.check_equal(f"{name} {args}", requests, wanted, got)
            together = prefix.at_once(server, requests)
            prefix.check_equal(f"{name} {args}, at once", requests, wanted, together)
            few = "--state-checkpoints" in args
            server.wait_idle()
            harness.wait_until("it is counted", lambda s=server: s.metric("weft_state_checkpoint_hits_total") > 0 and
                               s.metric("weft_state_checkpoints") > 0 and
                               (not few or s.metric("weft_state_checkpoints_evicted_total") > 0))
            taken, evicted, held = (server.metric(f"weft_state_checkpoints{part}") for part in ("_taken_total", "_evicted_total", ""))
        found = [n for _, n in got]
        assert any(found) and all(n % N_BLOCK == 0 for n in found), (name, found)
        assert (evicted > 0) == few, (name, args, taken, evicted)
        assert 0 < held <= (2 if evicted else taken), (name, held)
        print(f"    {name} {' '.join(args)}: {sum(found)} of {sum(len(body['prompt']) for body in requests)} tokens found", flush=True)


def test_hits_change_nothing():
    families.need()
    harness.for_each(MODELS, check)


def test_the_same_prompt_and_a_shared_beginning_are_found():
    """The second time all but the last block; where others begin alike from the third request on."""
    families.need()
    rng = random.Random(3)
    ask = {"max_tokens": 4, "temperature": 0, "ignore_eos": True, "logprobs": 2, "return_tokens_as_token_ids": True}
    with serve("qwen3_next") as server:
        draw = lambda n: [rng.randrange(3, server.n_vocab) for _ in range(n)]  # noqa: E731
        once = draw(200)
        assert [prefix.answer(server, {"prompt": once, **ask})[1] for _ in range(3)] == [0, 192, 192]
        shared = draw(150)
        prompts = [shared + draw(60) for _ in range(4)]
        assert [prefix.answer(server, {"prompt": ids, **ask})[1] for ids in prompts] == [0, 0, 144, 144]
        # Three at once: one computes what they share, and others wait for its state there, unless it is past that.
        shared = draw(120)
        bodies = [{"prompt": shared + draw(80), **ask} for _ in range(3)]
        found = sorted(found for _, found in prefix.at_once(server, bodies))
        assert found in ([0, 0, 112], [0, 112, 112]), found
        # Choices begin with the state before the last token.
        before = server.metric("weft_recomputed_tokens_total")
        server.complete(prompt=draw(100), n=5, seed=1, temperature=1, max_tokens=8, ignore_eos=True)
        harness.wait_until("it is counted", lambda: server.metric("weft_recomputed_tokens_total") == before + 4)
    for args in (("--state-checkpoints", "0"), ("--no-prefix-cache",)):
        with serve("lfm2", *args) as server:
            assert [prefix.answer(server, {"prompt": once, **ask})[1] for _ in range(2)] == [0, 0]
            assert server.metric("weft_state_checkpoints") == 0


def test_preemption_and_deaths_change_nothing():
    """A cache for two or three at a time, so that prefixes and their states come and go; then the worker dies twice."""
    families.need()
    for name in ("nemotron_h", "qwen3_5"):
        folder = os.path.join(families.ZOO, name)
        rng = random.Random(4)
        shared = [rng.randrange(3, 200) for _ in range(90)]
        bodies = [{"prompt": shared[:rng.choice([40, 90])] + [rng.randrange(3, 200) for _ in range(70)], "max_tokens": 150,
                   "temperature": 0, "ignore_eos": True, "return_tokens_as_token_ids": True, "logprobs": 1} for _ in range(7)]
        with serve(name, "--no-prefix-cache") as server:
            wanted = [server.complete(**body)["choices"] for body in bodies]
        blocks = 2 * (320 // N_BLOCK + 2)
        with serve(name, "--kv-memory", f"{blocks * families.block_bytes(folder)}") as server, \
                concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            for turn in range(2):
                n_tokens = server.metric("weft_generation_tokens_total")
                waiting = [pool.submit(server.complete, **body) for body in bodies]
                harness.wait_until("tokens come", lambda n=n_tokens: server.metric("weft_generation_tokens_total") > n + 100)
                server.kill("worker")
                for one, choices in zip(waiting, wanted, strict=True):
                    assert one.result()["choices"] == choices, (name, turn)
            harness.wait_until("it is counted", lambda: server.metric("weft_num_preemptions_total") > 0 and
                               server.metric("weft_state_checkpoint_hits_total") > 0)
            server.wait_idle()


def test_workers_that_divide_a_hybrid_keep_their_parts():
    families.need()
    for name in ("granitemoehybrid", "qwen3_next"):  # one gathers rows before a norm
        requests, wanted = reference(name)
        with serve(name, *tp.layout(2)) as server:
            got = [prefix.answer(server, body) for body in requests]
            prefix.check_equal(f"{name} on two workers", requests, wanted, got)
            assert any(found for _, found in got), name


def test_saved_sessions_carry_their_state():
    """Saved, and restored by the next server: what it finds is the file's, and goes on to the bit."""
    families.need()
    for name in MODELS:
        rng = random.Random(5)
        with serve(name, "--no-prefix-cache") as server:
            first = {"prompt": [rng.randrange(3, server.n_vocab) for _ in range(150)], "max_tokens": 20, "temperature": 0,
                     "ignore_eos": True, "logprobs": 3, "return_tokens_as_token_ids": True}
            requests, wanted = turns_of(server, rng, [first])
        with sessions.folder() as directory:
            options = ("--session-dir", directory)
            with serve(name, *options) as server:
                assert prefix.answer(server, {**first, "session_id": "talk"}) == wanted[0]
                prefix.answer(server, {**first, "prompt": first["prompt"][:40], "session_id": "short"})
                sessions.refused(sessions.file_call(server, "save", "y", "short"), 404, "no state", "from 64 tokens on")
                assert server.request("DELETE", sessions.path_of("short")).status == 200
                saved = sessions.file_call(server, "save", "x").json
                assert saved["n_saved"] == 144, saved
                assert prefix.answer(server, requests[1]) == (wanted[1][0], 144)  # it is there again
                size = os.path.getsize(os.path.join(directory, "x"))
                assert server.request("DELETE", sessions.path_of("talk")).status == 200
            with serve(name, *options) as server:
                assert sessions.file_call(server, "restore", "x").json["n_restored"] == 144
                assert prefix.answer(server, requests[1]) == (wanted[1][0], 144), name
                server.kill("worker")
                harness.wait_until("another worker", lambda s=server: s.metric("weft_worker_losses_total") > 0 and
                                   sessions.file_call(s, "restore", "x").status == 200)
                assert prefix.answer(server, requests[1]) == (wanted[1][0], 144), name
                with open(os.path.join(directory, "x"), "r+b") as file:  # of the state, which is the last of it
                    file.seek(size - 100)
                    byte = file.read(1)
                    file.seek(size - 100)
                    file.write(bytes([byte[0] ^ 1]))
                sessions.refused(sessions.file_call(server, "restore", "x", "other"), 409, "damaged")
                assert server.request("DELETE", sessions.path_of("talk")).status == 200
            with serve(name, *options, "--state-checkpoints", "0") as server:
                sessions.refused(sessions.file_call(server, "save", "y"), 400, "--state-checkpoints is 0")


if __name__ == "__main__":
    harness.main()
