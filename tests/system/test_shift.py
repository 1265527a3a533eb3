"""context_shift, seen from outside: a generation that goes on beyond the model's length.

It says what a client gets that drops the same tokens itself and asks anew, whatever the architecture; and the same alone
and in company, with guesses, where sequences are preempted, and while workers and schedulers are killed.
"""

import itertools
import json
import os

import harness
from harness import Server

LEN = 96
N_MIXED = 16 if not harness.SANITIZED else 8
WORDS = "the old king rode out to sea and said nothing while rain fell over a quiet house where Alice kept cats".split()
GREEDY = {"temperature": 0, "ignore_eos": True, "return_token_ids": True}


def run(server, body):
    return [(c["index"], c["finish_reason"], c["token_ids"], c["logprobs"] and c["logprobs"]["token_logprobs"])
            for c in server.complete(**body)["choices"]]


def by_hand(server, prompt, n, n_keep, length=LEN):
    """Tokens and log-probabilities of a client that drops tokens itself."""
    tokens, out, logprobs = list(prompt), [], []
    while len(out) < n:
        more = min(length - len(tokens), n - len(out))
        choice = server.complete(prompt=tokens, max_tokens=more, logprobs=0, **GREEDY)["choices"][0]
        out += choice["token_ids"]
        logprobs += choice["logprobs"]["token_logprobs"]
        tokens += choice["token_ids"]
        if len(tokens) == length:
            del tokens[n_keep:n_keep + (length - n_keep) // 2]
    return out, logprobs


def shifts(server):
    return server.metric("weft_context_shifts_total")


def test_it_says_what_a_client_gets_that_drops_tokens_itself():
    with Server("--max-model-len", str(LEN)) as server:
        prompt = server.post("/tokenize", {"prompt": " ".join(WORDS)}).json["tokens"]
        for n_keep, n in ((0, 200), (7, 130), (60, 90), (-1, 100)):
            # BOS stands before the prompt, is kept, and does not count.
            n_kept = len(prompt) if n_keep < 0 else n_keep + 1
            reply = server.complete(prompt=prompt, max_tokens=n, context_shift=True, n_keep=n_keep, logprobs=0, **GREEDY)
            choice, before = reply["choices"][0], shifts(server)
            assert choice["finish_reason"] == "length"
            assert reply["usage"]["completion_tokens"] == n and reply["usage"]["prompt_tokens"] == len(prompt)
            assert (choice["token_ids"], choice["logprobs"]["token_logprobs"]) == by_hand(server, prompt, n, n_kept)
            harness.wait_until("shifts to be told of", lambda before=before: shifts(server) > 0 or before > 0)
        ended = server.complete(prompt=prompt, **GREEDY, max_tokens=LEN - len(prompt))
        assert ended["choices"][0]["finish_reason"] == "length"
        assert server.post("/v1/completions", {"prompt": prompt, "max_tokens": LEN}).status == 400  # off by default


def test_any_architecture_can():
    """Latent attention, windows of several kinds, YaRN, experts."""
    def check(name):
        with Server("--max-model-len", "48", model=os.path.join(harness.SOURCE_DIR, "tests/data/zoo", name)) as server:
            prompt = [5 + 3 * i % 200 for i in range(20)]
            choice = server.complete(prompt=prompt, max_tokens=90, context_shift=True, n_keep=5, logprobs=0, **GREEDY)["choices"][0]
            assert (choice["token_ids"], choice["logprobs"]["token_logprobs"]) == by_hand(server, prompt, 90, 5, 48), name

    harness.for_each(["deepseek_v3", "gemma3", "mistral_swa16", "llama_yarn"], check)


def make_requests(rng):
    requests = []
    for i in range(N_MIXED):
        body = {"prompt": " ".join(rng.choice(WORDS) for _ in range(rng.choice([3, 9, 30]))), "max_tokens": rng.choice([90, 150, 230]),
                "context_shift": True, "n_keep": rng.choice([0, 4, 20, -1]), **GREEDY}
        if i % 3:
            body.update(seed=rng.getrandbits(63), temperature=rng.choice([0.3, 0.8, 1.2]))
        if i % 4 == 0:
            body.update(repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.25)
        if i % 5 == 0:
            body.update(n=2)
        if i % 6 == 0:
            body.update(mirostat_mode=2, dry_multiplier=0.8)
        if i % 7 == 0:
            body.update(structured_outputs={"regex": "([a-z]{1,8} ){300}"})
        if i % 8 == 0:
            body.update(logprobs=1)
        if i % 6 == 5:
            body.pop("context_shift")  # one that is as long as the model at most
            body.update(max_tokens=20)
        requests.append(body)
    return requests


def check(requests, wanted, got):
    for body, a, b in zip(requests, wanted, got, strict=True):
        assert a == b, f"{json.dumps(body)}\nalone {a}\nnow   {b}"


def together(server, requests):
    return harness.in_threads([lambda body=body: run(server, body) for body in requests])


def test_tokens_are_the_same_alone_and_in_company():
    requests = make_requests(harness.rng())
    with Server("--max-model-len", str(LEN)) as server:
        wanted = [run(server, body) for body in requests]
        assert all(len(c[2]) == body["max_tokens"] or "structured_outputs" in body
                   for body, choices in zip(requests, wanted, strict=True) for c in choices)
        check(requests, wanted, together(server, requests))
    with Server("--max-model-len", str(LEN), "--kv-memory", "1MiB", "--speculative-ngram", "2", "--num-speculative-tokens", "4") as server:
        check(requests, wanted, together(server, requests))
        harness.wait_until("preemptions", lambda: server.metric("weft_num_preemptions_total") > 0)
    few = slice(0, N_MIXED, 3)
    for options in (["--no-prefix-cache"], ["--layout", "tp", "--workers", "2", "--threads", "1"]):
        with Server("--max-model-len", str(LEN), *options) as server:
            check(requests[few], wanted[few], together(server, requests[few]))


def test_nothing_is_lost_or_changed_by_kills():
    requests = make_requests(harness.rng())[:12]
    with Server("--max-model-len", str(LEN)) as server:
        wanted = together(server, requests)
        n_tokens = sum(len(choice[2]) for choices in wanted for choice in choices)
        with harness.Killer(server, ["worker", "scheduler"], n_tokens // 6) as killer:
            for _ in itertools.takewhile(lambda _: killer.n < 4, range(20)):
                check(requests, wanted, together(server, requests))
        assert killer.n >= 2


def test_a_stop_string_may_begin_before_and_end_after():
    with Server("--max-model-len", str(LEN)) as server:
        body = {"prompt": " ".join(WORDS), "context_shift": True, "max_tokens": 150, "seed": 3, "temperature": 1.0, "ignore_eos": True}
        whole = server.complete(**body, return_token_ids=True)
        n_prompt, ids = whole["usage"]["prompt_tokens"], whole["choices"][0]["token_ids"]
        text = whole["choices"][0]["text"]
        until = len(server.post("/detokenize", {"tokens": ids[:LEN - n_prompt]}).json["prompt"])
        stop = text[until - 6:until + 6]
        assert len(stop) == 12 and text.index(stop) == until - 6
        cut = server.complete(**body, stop=[stop])["choices"][0]
        assert cut["finish_reason"] == "stop" and cut["text"] == text[:until - 6]


def test_llama_servers_endpoint_tells_of_it():
    with Server("--max-model-len", str(LEN)) as server:
        body = {"prompt": "Once upon a time", "n_predict": 200, "context_shift": True, "n_keep": 4, "ignore_eos": True}
        reply = server.post("/completion", body).json
        assert reply["truncated"] is True and reply["tokens_predicted"] == 200 and reply["stop_type"] == "limit"
        assert reply["generation_settings"]["n_keep"] == 4
        assert server.post("/completion", {**body, "n_predict": 20}).json["truncated"] is False


def test_what_cannot_go_on_is_refused_by_name():
    with Server("--max-model-len", str(LEN)) as server:
        for fields, name, words in (
                ({"use_beam_search": True}, "context_shift", "is not available with 'use_beam_search'"),
                ({"n_discard": 9}, "n_discard", "is not supported"),
                ({"n_keep": -2}, "n_keep", "n_keep"),
                ({"context_shift": "yes"}, "context_shift", "context_shift"),
                ({"max_tokens": 1 << 20}, "prompt", "at most 1048576 tokens together"),
                ({"prompt": [300] * LEN}, "prompt", "maximum context length is 96 tokens")):
            reply = server.post("/v1/completions", {"prompt": "a", "max_tokens": 5, "context_shift": True, **fields})
            error = reply.json["error"]
            assert (reply.status, error["param"]) == (400, name) and words in error["message"], error


if __name__ == "__main__":
    harness.main()
