"""Batch invariance, seen from outside: the answer to a request does not depend on its company.

64 requests of mixed lengths, greedy and sampled, with and without penalties, run one at a time; then all
at once in random order, with small and large steps, in a cache so small that sequences are preempted.
All tokens must be equal, all log-probabilities equal to the bit.
"""

import contextlib

import harness
from harness import Server

N = 64 if not harness.SANITIZED else 16
N_LONG = 4  # these alone need twice as much as the small cache holds, and begin with a block each
WORDS = ("the old king rode out to sea and said nothing while rain fell over a quiet house where Alice "
         "kept seven black cats, two lamps and one very long letter from her brother").split()


def make_requests(rng):
    requests = []
    for i in range(N):
        body = {
            "prompt": " ".join(rng.choice(WORDS) for _ in range(rng.choice([1, 3, 9, 30, 75, 140]))),
            "max_tokens": rng.choice([1, 5, 17, 33, 64, 120]),
            "ignore_eos": rng.random() < 0.7,
            "logprobs": rng.choice([0, 1, 5]),
            "return_tokens_as_token_ids": True,
            "temperature": 0 if i % 3 == 0 else rng.choice([0.7, 1.0, 1.3]),
            "top_p": 1.0,
        }
        if i % 3:
            body["seed"] = rng.getrandbits(63)
            body.update(rng.choice([{}, {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.05},
                                    {"top_k": 20, "top_p": 0.8, "min_p": 0.01}]))
        if i % 5 == 0:
            body.update({"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.25})
        if i % 7 == 0:
            body["min_tokens"] = min(4, body["max_tokens"])
        if i % 11 == 0:
            body["logit_bias"] = {"300": 3.5, "17": -100}
        if i % 13 == 0:
            body["n"] = 3
        if i % 17 == 0:
            body["echo"] = True
        if i < N_LONG:
            body.update(prompt=rng.choice(WORDS), max_tokens=200, ignore_eos=True)
        requests.append(body)
    return requests


def run(server, body):
    reply = server.complete(**body)
    return [(c["index"], c["finish_reason"], harness.tokens_of(c), c["logprobs"]["top_logprobs"])
            for c in reply["choices"]]


def check_equal(requests, alone, together, order):
    for place, i in enumerate(order):
        assert together[place] == alone[i], (
            f"request {i} differs:\n{requests[i]}\nalone    {alone[i]}\ntogether {together[place]}")


def test_tokens_and_log_probabilities_do_not_depend_on_company():
    rng = harness.rng()
    requests = make_requests(rng)
    with Server("--max-model-len", "400") as server:
        alone = [run(server, body) for body in requests]
        again = [run(server, body) for body in requests[:4]]
        assert again == alone[:4]
    for batched_tokens, threads in (("16", "1"), ("512", "2")):
        with Server("--max-model-len", "400", "--max-num-batched-tokens", batched_tokens,
                    "--kv-memory", "1400KiB", "--threads", threads) as server:
            order = rng.sample(range(N_LONG), N_LONG) + rng.sample(range(N_LONG, N), N - N_LONG)
            calls = []
            with server.stopped() as still:  # all of them are there before the first step: they do meet
                for some in (order[:N_LONG], order[N_LONG:]):  # the long ones run together: preemption is sure
                    calls += [harness.Call(lambda i=i: run(server, requests[i])) for i in some]
                    with contextlib.suppress(harness.Void):  # should it be replaced meanwhile, they meet as well
                        still.wait_until("all to be taken in",
                                         lambda: harness.load(server.metrics()) == len(calls))
            check_equal(requests, alone, [call.result() for call in calls], order)
            server.wait_idle()  # the report that counts the last preemption has come
            preemptions = server.metric("weft_num_preemptions_total")
            print(f"    {batched_tokens} tokens per step: {preemptions:.0f} preemptions", flush=True)
            assert preemptions > 0, "the cache was meant to be too small"


def test_prompt_log_probabilities_equal_generated_ones():
    """A token's arithmetic does not depend on its phase: generated or read from the prompt."""
    with Server() as server:
        first = server.complete(prompt="The garden was", max_tokens=40, temperature=0, ignore_eos=True,
                                logprobs=0, return_tokens_as_token_ids=True, echo=True)
        tokens = harness.tokens_of(first["choices"][0])
        ids = [t for t, _ in tokens]
        second = server.complete(prompt=ids, max_tokens=0, echo=True, logprobs=0, temperature=0,
                                 return_tokens_as_token_ids=True)
        assert harness.tokens_of(second["choices"][0]) == tokens


if __name__ == "__main__":
    harness.main()
