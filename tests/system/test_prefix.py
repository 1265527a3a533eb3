"""The prefix cache changes when an answer comes and nothing else: tokens and log-probabilities are those of a server
without it, to the bit, whether prompts are found in it or not, in company, as forks, under preemption, with windows and
latent attention, and over kill -9 of worker and scheduler."""

import functools
import json
import os

import harness
from harness import Call, Server, Stream, Void

ZOO = os.path.join(harness.SOURCE_DIR, "tests/data/zoo")
N_STREAM = 400 if not harness.SANITIZED else 150


def make_requests(rng, n_vocab, n_shared=70, n_answer=24):
    """Prompts as lists of tokens that begin alike, to this point or that, and are there more than once."""
    shared = [rng.randrange(3, n_vocab) for _ in range(n_shared)]
    requests = []
    for i in range(14):
        tail = [rng.randrange(3, n_vocab) for _ in range(rng.choice([1, 5, 16, 40]))]
        body = {"prompt": shared[:rng.choice([20, 33, n_shared, n_shared])] + tail, "max_tokens": n_answer,
                "ignore_eos": True, "logprobs": 5, "return_tokens_as_token_ids": True, "temperature": 0}
        if i % 3:
            body.update(temperature=1.0, seed=rng.getrandbits(40))
        if i % 5 == 1:
            body["n"] = 3
        if i == 7:
            body["echo"] = True  # with log-probabilities of the prompt: it must compute them all
        if i % 4 == 3:
            body["prompt"] = requests[i - 2]["prompt"]
        requests.append(body)
    return requests


def answer(server, body):
    """What must be equal, and how many of its prompt's tokens were found."""
    reply = server.complete(**body)
    choices = [(c["index"], c["finish_reason"], harness.tokens_of(c), c["logprobs"]["top_logprobs"])
               for c in reply["choices"]]
    return choices, reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def next_turns(rng, n_vocab, requests, answers):
    """The conversations go on: prompt, answer, and something more."""
    turns = []
    for body, (choices, _) in list(zip(requests, answers, strict=True))[:6]:
        said = [token for token, _ in choices[0][2]][-body["max_tokens"]:]
        more = [rng.randrange(3, n_vocab) for _ in range(9)]
        turns.append({**body, "prompt": body["prompt"] + said + more})
    return turns


def check_equal(what, requests, wanted, got):
    for body, (want, _), (have, _) in zip(requests, wanted, got, strict=True):
        assert have == want, f"{what}: this answer differs: {body}\nwithout the cache {want}\nwith it {have}"


def at_once(server, requests):
    """All of them are there before the first step."""
    return harness.attempt(lambda: all_stopped(server, requests))


def all_stopped(server, requests):
    with server.stopped() as still:
        calls = [Call(functools.partial(answer, server, body)) for body in requests]
        still.wait_until("all to be taken in", lambda: harness.load(server.metrics()) == len(requests))
    return [call.result() for call in calls]


def without_cache(rng, n_vocab, requests, **kind):
    """Two turns of each conversation, and their answers one by one."""
    with Server("--no-prefix-cache", **kind) as server:
        answers = [answer(server, body) for body in requests]
        requests = requests + next_turns(rng, n_vocab, requests, answers)
        answers += [answer(server, body) for body in requests[len(answers):]]
        assert all(n_cached == 0 for _, n_cached in answers)
        assert server.metric("weft_prefix_cache_queries_total") == 0
        return requests, answers


def check_found(requests, answers):
    """All of it was there: but for the last token, and the last block, which an answer may not have filled."""
    for body, (_, n_cached) in zip(requests, answers, strict=True):
        n = len(body["prompt"])
        assert n_cached == 0 if body.get("echo") else n - 17 <= n_cached < n, (n, n_cached, body)


def check_nothing_is_held(server):
    server.wait_idle()
    stats = server.get("/stats").json
    assert stats["kv_blocks_used"] == 0 and stats["kv_blocks_cached"] > 0, stats


def test_answers_are_the_same_with_and_without_the_cache():
    rng = harness.rng()
    requests, wanted = without_cache(rng, 1000, make_requests(rng, 1000))
    with Server() as server:
        check_equal("cold", requests, wanted, [answer(server, body) for body in requests])
        warm = [answer(server, body) for body in requests]
        check_equal("warm", requests, wanted, warm)
        check_found(requests, warm)
        check_equal("warm, at once", requests, wanted, at_once(server, requests))
        check_nothing_is_held(server)
        apart = answer(server, {**requests[0], "cache_salt": "other"})
        assert apart == (wanted[0][0], 0), apart
    with Server() as server:
        check_equal("cold, at once", requests, wanted, at_once(server, requests))
        assert server.metric("weft_prefix_cache_hits_total") > 0  # of each other
        check_nothing_is_held(server)


def test_chats_tell_what_was_found_and_answer_the_same():
    body = {"messages": [{"role": "user", "content": "Tell me about the old house by the sea. " * 4}], "max_tokens": 20,
            "temperature": 0, "logprobs": True, "top_logprobs": 5, "ignore_eos": True}
    turns, wanted = [], []

    def say(server, turn):
        reply = server.chat(**turn)
        return reply["choices"], reply["usage"]
    with Server("--no-prefix-cache") as server:
        for _ in range(3):
            turns.append(body)
            wanted.append(say(server, body))
            body = {**body, "messages": [*body["messages"], wanted[-1][0][0]["message"],
                                         {"role": "user", "content": "And then?"}]}
    with Server() as server:
        for i in range(2):
            n_before = 0
            for turn, (choices, usage) in zip(turns, wanted, strict=True):
                got, found = say(server, turn)
                assert got == choices, (turn, got, choices)
                n_cached = found["prompt_tokens_details"]["cached_tokens"]
                assert found["prompt_tokens"] == usage["prompt_tokens"]
                # Each turn finds what the one before it read, but for its last block.
                assert n_before - 16 <= n_cached < found["prompt_tokens"], (turn, found)
                assert n_cached >= found["prompt_tokens"] - 17 or i == 0, (turn, found)
                events = server.stream("/v1/chat/completions", {**turn, "stream_options": {"include_usage": True}})
                again = events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]
                assert found["prompt_tokens"] - 17 <= again < found["prompt_tokens"], events[-1]
                n_before = found["prompt_tokens"]


def preempted(requests):
    with Server("--max-model-len", "400", "--max-num-batched-tokens", "16", "--kv-memory", "1400KiB") as server:
        answers = at_once(server, requests)
        again = at_once(server, requests)
        check_nothing_is_held(server)
        m = server.metrics()
        return answers, again, m["weft_num_preemptions_total"], m["weft_prefix_cache_evicted_blocks_total"]


def test_answers_are_the_same_under_preemption():
    rng = harness.rng()
    requests = make_requests(rng, 1000)
    for body in requests[:4]:  # these alone need more than there is
        body.update(max_tokens=250, logprobs=1)
    with Server("--no-prefix-cache", "--max-model-len", "400") as server:
        wanted = [answer(server, body) for body in requests]
    cold, warm, n_preemptions, n_evicted = preempted(requests)
    print(f"    {n_preemptions:.0f} preemptions, {n_evicted:.0f} blocks evicted", flush=True)
    assert n_preemptions > 0 and n_evicted > 0, "the memory was meant to be too small"
    check_equal("cold", requests, wanted, cold)
    check_equal("warm", requests, wanted, warm)


def said_by(stream):
    tokens, tops = [], []
    for event in stream.events():
        for choice in event["choices"]:
            if choice.get("logprobs"):
                tokens += harness.tokens_of(choice)
                tops += choice["logprobs"]["top_logprobs"]
    return tokens, tops


def streams_over_a_kill(server, bodies, name):
    harness.wait_until("the server to be healthy", lambda: server.get("/health").status == 200)
    n_before = server.metric("weft_generation_tokens_total")
    streams = [Stream(server, body) for body in bodies]
    wanted = n_before + len(bodies) * N_STREAM // 8
    harness.wait_until("their tokens", lambda: server.metric("weft_generation_tokens_total") > wanted)
    server.kill(name)
    if all(stream.is_done for stream in streams):
        raise Void("all had ended before anything was killed")
    return [said_by(stream) for stream in streams]


def test_streams_are_the_same_when_worker_and_scheduler_are_killed():
    rng = harness.rng()
    requests = make_requests(rng, 1000, n_answer=N_STREAM)
    bodies = [body for body in requests if "n" not in body and "echo" not in body][:6]
    with Server("--no-prefix-cache") as server:
        wanted = [said_by(Stream(server, body)) for body in bodies]
    with Server() as server:
        for name in ("worker", "scheduler", "worker"):
            got = harness.attempt(functools.partial(streams_over_a_kill, server, bodies, name))
            for body, want, have in zip(bodies, wanted, got, strict=True):
                assert have == want, f"{name} killed: {body}\nwithout {want}\nwith {have}"
        assert server.metric("weft_prefix_cache_resets_total") >= 3
        assert server.metric("weft_prefix_cache_hits_total") > 0


def test_windows_latent_attention_and_long_prompts_change_nothing():
    rng = harness.rng()
    for name in ("mistral_swa16", "deepseek_v2", "phi3_longrope"):
        folder = os.path.join(ZOO, name)
        if not os.path.exists(os.path.join(folder, "model.safetensors")):
            raise harness.Skip(f"there is no {folder}")
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            n_vocab = json.load(f)["vocab_size"]
        requests, wanted = without_cache(rng, n_vocab, make_requests(rng, n_vocab, n_answer=12), model=folder)
        with Server(model=folder) as server:
            check_equal(name, requests, wanted, [answer(server, body) for body in requests])
            warm = [answer(server, body) for body in requests]
            check_equal(f"{name}, warm", requests, wanted, warm)
            assert sum(n_cached for _, n_cached in warm) > 0, name
            check_equal(f"{name}, at once", requests, wanted, at_once(server, requests))
            check_nothing_is_held(server)


if __name__ == "__main__":
    harness.main()
