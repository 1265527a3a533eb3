"""Beam search over HTTP: what a plain search over the float64 reference finds, and the same in any company, when blocks
lack and whatever dies."""

import json
import os
import random

import harness
from harness import Server

DATA = os.path.join(harness.SOURCE_DIR, "tests/data")
SANITIZED_NAMES = ["deepseek_v3", "gemma3"]
N_TOGETHER = 8 if harness.SANITIZED else 16


def outputs(answer):
    return [(choice["token_ids"], choice["finish_reason"]) for choice in answer["choices"]]


def search(server, **body):
    return outputs(server.complete(use_beam_search=True, return_token_ids=True, **body))


def test_every_architecture_finds_what_the_reference_does():
    """tests/golden/make_beam_goldens.py made these. A stop token ends an output, and is part of none."""
    with open(os.path.join(DATA, "beams.json"), encoding="utf-8") as f:
        cases = json.load(f)
    names = [name for name in cases if cases[name] and (not harness.SANITIZED or name in SANITIZED_NAMES)]
    assert len(names) >= 2

    def check(name):
        with Server("--activations", "f32", model=os.path.join(DATA, "zoo", name)) as server:
            for kind, case in cases[name].items():
                stops = case["stop_token_ids"]
                found = search(server, prompt=case["prompt"], n=4, max_tokens=10, ignore_eos=True, stop_token_ids=stops,
                               length_penalty=case["length_penalty"])
                want = [(ids[:-1], "stop") if ids[-1] in stops else (ids, "length") for ids in case["outputs"]]
                assert [(ids[:-1] if ids[-1:] == stops else ids, end) for ids, end in found] == want, (name, kind, found, want)
    harness.for_each(names, check)
    print(f"    {len(names)} models, {sum(len(cases[name]) for name in names)} searches")


def bodies(n):
    """Searches of all kinds, and streams between them."""
    rng, found = random.Random(18), []
    for i in range(n):
        body = {"prompt": f"{rng.choice(['Once', 'The sea', 'She said', 'In the house'])} number {i}, and then",
                "max_tokens": rng.randint(4, 40), "return_token_ids": True}
        if i % 3 < 2:
            width = rng.choice([1, 2, 4, 6])
            body |= {"use_beam_search": True, "n": rng.randint(1, width), "best_of": width,
                     "length_penalty": rng.choice([0, 0.5, 1, 2]), "early_stopping": rng.choice([True, False, "never"])}
            if width % 2 == 0 and rng.random() < 0.5:
                body |= {"num_beam_groups": 2, "diversity_penalty": 0.8}
        else:
            body |= {"temperature": 1, "seed": i, "n": 2}
        found.append(body)
    return found


def test_company_preemption_and_deaths_change_nothing():
    harness.check_company(bodies(N_TOGETHER), outputs, kv_memory="500KiB", n_times=4, n_kills_max=12)


def test_a_stream_brings_it_all_at_the_end():
    body = {"prompt": "Once upon a time", "max_tokens": 12, "use_beam_search": True, "n": 2, "best_of": 4,
            "ignore_eos": True}
    with Server() as server:
        whole = server.complete(**body)
        events = server.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}})
        texts = ["", ""]
        for event in events:
            for choice in event["choices"]:
                texts[choice["index"]] += choice["text"]
        assert texts == [choice["text"] for choice in whole["choices"]]
        assert events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 24
        chat = server.chat(messages=[{"role": "user", "content": "Hello"}], use_beam_search=True, n=2, max_tokens=6)
        assert len(chat["choices"]) == 2
        greedy = server.complete(prompt="Once upon a time", max_tokens=12, temperature=0, ignore_eos=True)
        narrow = server.complete(**{**body, "n": 1, "best_of": 1})
        assert narrow["choices"][0]["text"] == greedy["choices"][0]["text"]


def test_what_cannot_be_is_refused():
    with Server("--max-num-seqs", "4") as server:
        def refused(**body):
            reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 2, **body})
            assert reply.status == 400, (reply.status, reply.text)
            return reply.json["error"]
        wide = refused(use_beam_search=True, n=2, best_of=6)
        assert "4 beams" in wide["message"] and wide["param"] == "best_of", wide
        assert refused(use_beam_search=True, guided_regex="a+")["param"] == "use_beam_search"
        reply = server.post("/v1/responses", {"input": "x", "use_beam_search": True})
        assert reply.status == 400, reply.text
        assert len(search(server, prompt="x", n=4, max_tokens=2, ignore_eos=True)) == 4


if __name__ == "__main__":
    harness.main()
