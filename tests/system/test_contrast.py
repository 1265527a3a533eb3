"""Contrastive search over HTTP: the same in any company, when blocks lack and whatever dies; bounded, and refused where it
cannot be."""

import os
import random
import subprocess

import harness
import test_families as families
from harness import Server

N_TOGETHER = 6 if harness.SANITIZED else 12


def outputs(answer):
    return [(choice["token_ids"], choice["finish_reason"]) for choice in answer["choices"]]


def bodies(n):
    """Searches, and samples between them."""
    rng, found = random.Random(22), []
    for i in range(n):
        body = {"prompt": f"{rng.choice(['Once', 'The sea', 'She said', 'In the house'])} number {i}, and then",
                "max_tokens": rng.randint(12, 48), "ignore_eos": i % 2 == 0, "return_token_ids": True}
        if i % 3 < 2:
            body |= {"penalty_alpha": rng.choice([0.2, 0.6, 0.9]), "top_k": rng.choice([2, 4, 8, 20])}
            if rng.random() < 0.3:
                body |= {"repetition_penalty": 1.2, "min_tokens": 3}
        else:
            body |= {"temperature": 1, "seed": i}
        found.append(body)
    return found


def test_company_preemption_and_deaths_change_nothing():
    harness.check_company(bodies(N_TOGETHER), outputs, kv_memory="450KiB", n_times=3, n_kills_max=5)


def test_it_is_deterministic_and_streams():
    body = {"prompt": "Once upon a time", "max_tokens": 24, "penalty_alpha": 0.6, "top_k": 4, "ignore_eos": True}
    with Server("--speculative-ngram", "3") as server:
        want = server.complete(**body)["choices"][0]["text"]
        for more in ({"seed": 1}, {"temperature": 0}, {"temperature": 2, "top_p": 0.3}):
            assert server.complete(**body, **more)["choices"][0]["text"] == want
        events = server.stream("/v1/completions", body)
        assert "".join(event["choices"][0]["text"] for event in events) == want
        greedy = server.complete(prompt=body["prompt"], max_tokens=24, temperature=0, ignore_eos=True)
        assert greedy["choices"][0]["text"] != want
        chat = server.chat(messages=[{"role": "user", "content": "Hello"}], penalty_alpha=0.4, top_k=3, max_tokens=5)
        assert chat["usage"]["completion_tokens"] <= 5
        server.complete(**body)  # nothing of it is read from the cache
        assert server.metric("weft_prefix_cache_hits_total") == 0


def test_what_cannot_be_is_refused():
    with Server() as server:
        def refused(status=400, **body):
            reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "penalty_alpha": 0.6, "top_k": 4, **body})
            assert reply.status == status, (reply.status, reply.text)
            return reply.json["error"]
        assert refused(top_k=1)["param"] == "top_k"
        assert refused(n=2)["param"] == "n"
        assert refused(logprobs=1)["param"] == "logprobs"
        assert refused(guided_regex="a+")["param"] == "penalty_alpha"


def test_hybrids_refuse_it_by_name():
    families.need()
    model = os.path.join(families.ZOO, "lfm2")
    done = subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "run", model, "-p", "x", "-n", "2", "--penalty-alpha", "0.6",
                           "--top-k", "4"], capture_output=True, text=True, check=False, timeout=harness.LIMIT_S)
    assert done.returncode == 1 and "--penalty-alpha" in done.stderr and "recurrent layers" in done.stderr, done
    with Server(model=model) as server:
        reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "penalty_alpha": 0.6, "top_k": 4})
        assert reply.status == 400 and "penalty_alpha" in reply.text and "recurrent layers" in reply.text, reply.text


if __name__ == "__main__":
    harness.main()
