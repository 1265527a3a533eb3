"""Windowed layers give their blocks back, seen from outside: answers are those of a cache that keeps everything.

Small models with windows of 16 tokens (Gemma's form, where one layer of seven has none, and Mistral's, where all have
one) answer long requests that begin alike: one at a time, without a prefix cache; then all at once, with one, in memory
for little more than one sequence of full length, while the worker is killed. All tokens and log-probabilities must be
equal.
"""

import os

import harness
from harness import Server

ZOO = os.path.join(harness.SOURCE_DIR, "tests/data/zoo")
N = 12


def make_requests(rng):
    beginnings = [[rng.randrange(10, 500) for _ in range(400)] for _ in range(3)]
    requests = []
    for i in range(N):
        ids = beginnings[i % 3][:rng.choice((60, 250, 400))] + [rng.randrange(10, 500) for _ in range(rng.randrange(90))]
        body = {"prompt": ids, "max_tokens": rng.choice((20, 100)), "ignore_eos": True, "logprobs": 3,
                "return_tokens_as_token_ids": True, "temperature": 0 if i % 2 else 1.0, "seed": i + 1}
        if i % 4 == 0:
            body["n"] = 2
        requests.append(body)
    return requests


def run(server, body):
    reply = server.complete(**body)
    return [(c["index"], c["finish_reason"], harness.tokens_of(c), c["logprobs"]["top_logprobs"])
            for c in reply["choices"]]


def blocks_of(server):
    counts = {}
    for key, value in server.metrics().items():
        if key.startswith("weft_kv_window_blocks{"):
            counts["used" if 'state="used"' in key else "free"] = value
    return counts


def check_model(name, kv_memory):
    requests = make_requests(harness.rng())
    model = os.path.join(ZOO, name)
    with Server("--no-prefix-cache", model=model) as server:
        alone = [run(server, body) for body in requests]
    with Server("--max-num-seqs", "8", "--max-num-batched-tokens", "16", "--max-model-len", "1024",
                "--kv-memory", kv_memory, model=model) as server:
        counts = blocks_of(server)
        assert counts["used"] == 0 and counts["free"] * 16 < 8 * 100, counts  # of far fewer tokens than the prompts have
        with server.stopped() as still:  # all of them are there before the first step
            calls = [harness.Call(lambda body=body: run(server, body)) for body in requests]
            still.wait_until("all to be taken in", lambda: harness.load(server.metrics()) == N)
        harness.wait_until("some to be answered", lambda: any(call.is_done for call in calls))
        server.kill("worker")
        together = [call.result() for call in calls]
        again = [run(server, body) for body in requests[:3]]  # out of the prefix cache, as far as it goes
        server.wait_idle()
        preemptions = server.metric("weft_num_preemptions_total")
        assert blocks_of(server)["used"] == 0
        hits = server.metric("weft_prefix_cache_reused_tokens_total")
        print(f"    {preemptions:.0f} preemptions, {hits:.0f} tokens found in the prefix cache", flush=True)
        assert hits > 0
    for i, body in enumerate(requests):
        assert together[i] == alone[i], f"request {i} differs:\n{body}\nalone    {alone[i]}\ntogether {together[i]}"
    assert again == alone[:3]


def test_most_layers_have_a_window():
    check_model("gemma3", "400KiB")


def test_all_layers_have_a_window():
    check_model("mistral_swa16", "180KiB")


if __name__ == "__main__":
    harness.main()
