"""Speculative decoding, seen from outside: it is invisible but for time.

64 mixed requests (greedy, seeded, with penalties, stop tokens, biases, several choices, grammars) have the tokens of a server
without it: alone and in company, with the draft model and with look-ups, in a cache so small that sequences are
preempted, and while workers and schedulers are killed. A few of them go to a model that guesses by a layer of its own.
"""

import itertools
import json
import os
import subprocess

import harness
from harness import FABLE, Server

N = 64 if not harness.SANITIZED else 12
N_LONG = 4
DRAFT = os.path.join(harness.SOURCE_DIR, "tests/data/fable-draft-1m")
MTP = os.path.join(harness.SOURCE_DIR, "tests/data/mtp")
BOTH = ("--speculative-model", DRAFT, "--speculative-ngram", "3")
WORDS = "the old king rode out to sea and said nothing while rain fell over a quiet house where Alice kept cats".split()
SCHEMA = {"type": "object", "required": ["name", "n"], "additionalProperties": False, "properties": {
    "name": {"type": "string", "maxLength": 12}, "n": {"type": "integer", "minimum": 0, "maximum": 999}}}


def make_requests(rng, recorded="tests/data/speculative/ngram.json"):
    requests = []
    for i in range(N):
        words = [rng.choice(WORDS) for _ in range(rng.choice([3, 9, 30]))]
        body = {"prompt": " ".join(words * rng.choice([1, 2, 3])), "max_tokens": rng.choice([1, 5, 17, 40, 90]),
                "ignore_eos": rng.random() < 0.7, "return_token_ids": True, "temperature": 0}
        if i % 3:
            body.update(seed=rng.getrandbits(63), temperature=rng.choice([0.3, 0.8, 1.2]))
            body.update(rng.choice([{}, {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.05}]))
        if i % 5 == 0:
            body.update(repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.25)
        if i % 7 == 0:
            body.update(min_tokens=min(4, body["max_tokens"]), stop_token_ids=[13, 11])
        if i % 11 == 0:
            body["logit_bias"] = {"300": 3.5, "17": -100}
        if i % 13 == 0:
            body["n"] = 3
        if i % 9 == 0:
            body.update(structured_outputs={"json": SCHEMA}, max_tokens=60, ignore_eos=False)
        if i % 16 == 0:
            body["stop"] = ["e k", "ing"]
        if i < N_LONG:
            body.update(prompt=rng.choice(WORDS), max_tokens=220, ignore_eos=True)
            body.pop("structured_outputs", None)
        requests.append(body)
    with open(os.path.join(harness.SOURCE_DIR, recorded), encoding="utf-8") as f:
        recorded = json.load(f)["prompts"][0]  # in which guesses come true; of the others none may
    requests.insert(N_LONG, {"prompt": recorded["input_ids"], "max_tokens": 64, "temperature": 0, "ignore_eos": True,
                             "return_token_ids": True})
    return requests


def run(server, body):
    return [(c["index"], c["finish_reason"], c["token_ids"]) for c in server.complete(**body)["choices"]]


def check(requests, wanted, got):
    for body, a, b in zip(requests, wanted, got, strict=True):
        assert a == b, f"{json.dumps(body)}\nwithout {a}\nwith    {b}"


def together(server, requests):
    return harness.in_threads([lambda body=body: run(server, body) for body in requests])


def guesses(server):
    names = ("drafts", "draft_tokens", "accepted_tokens")
    return [server.metric(f"weft_spec_decode_num_{name}_total") for name in names]


def test_tokens_are_those_of_a_server_without():
    requests = make_requests(harness.rng())
    with Server("--max-model-len", "400") as server:
        wanted = together(server, requests)
        assert guesses(server) == [0, 0, 0]
    few = slice(0, N, 4)
    for options in (("--speculative-ngram", "2"), (*BOTH, "--num-speculative-tokens", "5")):
        with Server("--max-model-len", "400", *options) as server:
            check(requests[few], wanted[few], [run(server, body) for body in requests[few]])
            check(requests, wanted, together(server, requests))
            harness.wait_until("guesses to be told of", lambda: guesses(server)[2] > 0)
            n_drafts, n_guessed, n_accepted = guesses(server)
            assert 0 < n_accepted < n_guessed and n_drafts <= n_guessed, (n_drafts, n_guessed, n_accepted)
    with Server("--max-model-len", "400", "--kv-memory", "1600KiB", *BOTH, "--num-speculative-tokens", "4") as server:
        check(requests, wanted, together(server, requests))
        harness.wait_until("preemptions, and guesses", lambda: server.metric("weft_num_preemptions_total") > 0
                           and guesses(server)[2] > 0)


def test_nothing_is_lost_or_changed_by_kills():
    requests = [{**body, "max_tokens": 150, "ignore_eos": True, "n": 1} for body in make_requests(harness.rng())[:16]]
    for body in requests:
        body.pop("structured_outputs", None)
    with Server() as server:
        wanted = together(server, requests)
    n_tokens = sum(len(choice[2]) for choices in wanted for choice in choices)
    with Server(*BOTH, "--num-speculative-tokens", "4") as server:
        with harness.Killer(server, ["worker", "scheduler"], n_tokens // 6) as killer:
            for _ in itertools.takewhile(lambda _: killer.n < 2, range(20)):
                check(requests, wanted, together(server, requests))
        assert killer.n >= 2


def test_a_request_may_want_none():
    body = {"prompt": "the cat and the cat and the cat and", "max_tokens": 40, "return_token_ids": True, "temperature": 0,
            "ignore_eos": True}
    with Server("--speculative-ngram", "3", "--num-speculative-tokens", "4") as server:
        none = run(server, {**body, "speculative": False})
        log = server.complete(**body, logprobs=0)  # nor is there one of who wants log-probabilities
        harness.wait_until("a step for each token", lambda: server.metric("weft_scheduler_steps_total") >= 80)
        assert guesses(server) == [0, 0, 0] and log["choices"][0]["token_ids"] == none[0][2]
        assert run(server, body) == none
        harness.wait_until("guesses to be told of", lambda: guesses(server)[1] > 0)


def test_ranks_that_divide_a_model_guess_alike():
    """Each looks up for itself, and the first one tells what came true."""
    requests = make_requests(harness.rng())[N_LONG:16]
    with Server() as server:
        wanted = together(server, requests)
    with Server("--layout", "tp", "--workers", "2", "--threads", "1", "--speculative-ngram", "2",
                "--num-speculative-tokens", "4") as server:
        check(requests, wanted, together(server, requests))
        harness.wait_until("guesses that came true", lambda: guesses(server)[2] > 0)


def test_a_models_own_layer_changes_no_token_and_loses_none():
    """With prompts that share prefixes and come in chunks, also in a small cache, and under kills."""
    requests = make_requests(harness.rng(), "tests/data/mtp/guesses.json")[:16]
    with Server("--max-model-len", "400", model=MTP) as server:
        wanted = together(server, requests)
    n_tokens = sum(len(choice[2]) for choices in wanted for choice in choices)
    options = ("--max-model-len", "400", "--speculative-mtp", "--num-speculative-tokens", "3")
    with Server(*options, model=MTP) as server:
        check(requests, wanted, [run(server, body) for body in requests])
        check(requests, wanted, together(server, requests))
        harness.wait_until("guesses that came true", lambda: guesses(server)[2] > 0)
        with harness.Killer(server, ["worker", "scheduler"], n_tokens // 6) as killer:
            for _ in itertools.takewhile(lambda _: killer.n < 2, range(20)):
                check(requests, wanted, together(server, requests))
        assert killer.n >= 2
    options = ("--max-model-len", "400", "--speculative-mtp", "--speculative-ngram", "2", "--max-num-batched-tokens", "64",
               "--max-num-seqs", "16", "--kv-memory", "160KiB")  # one of the longest requests fits
    with Server(*options, model=MTP) as server:
        check(requests, wanted, together(server, requests))
        harness.wait_until("preemptions", lambda: server.metric("weft_num_preemptions_total") > 0)


def refused(*options):
    reply = subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "serve", FABLE, "--port", "0", "--no-rpc", *options],
                           capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
    assert reply.returncode == 1, reply
    return reply.stderr


def test_a_model_without_a_layer_that_guesses_ends_the_start():
    said = refused("--speculative-mtp")
    assert "models/fable-6m has no layer that predicts further tokens (multi-token prediction)" in said, said


def test_a_draft_of_another_vocabulary_ends_the_start():
    said = refused("--speculative-model", os.path.join(harness.SOURCE_DIR, "tests/data/zoo/mixtral"))
    assert "has 512 tokens, the model has 4096: they must have the same vocabulary" in said, said


if __name__ == "__main__":
    harness.main()
