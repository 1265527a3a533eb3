"""Encoders over HTTP and MessagePack-RPC: what the float64 reference yields, from folders and GGUF files; pairs, cuts and
scores as each model's own files ask for; the same bits in any company and through every death."""

import json
import math
import os
import time

import harness
from harness import Server

EMBED = os.path.join(harness.SOURCE_DIR, "tests/data/embed")
SHARED = os.path.join(os.environ.get("WEFT_SHARED_DIR", os.path.join(harness.SOURCE_DIR, "../shared")), "embed")
EXACT = ("--activations", "f32")
TOLERANCE = 1e-4


def find(name):
    """A model of ours, or of ../shared; None, and a line that says so, where it is absent."""
    for folder in (EMBED, SHARED):
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    print(f"    SKIPPED: no {name}")
    return None


def goldens(name):
    path = find(f"{name}/goldens.json")
    if not path:
        return None
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def arrays(name):
    """The F32 arrays of goldens.safetensors by name."""
    import struct

    with open(find(f"{name}/goldens.safetensors"), "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        data = f.read()
    found = {}
    for key, value in header.items():
        if key != "__metadata__" and value["dtype"] == "F32":
            begin, end = value["data_offsets"]
            found[key] = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return found


def embed(server, texts, **more):
    reply = server.post("/v1/embeddings", {"input": texts, **more})
    assert reply.status == 200, reply.text
    return [item["embedding"] for item in reply.json["data"]], reply.json["usage"]


def largest_error(got, want):
    assert len(got) == len(want)
    return max(abs(a - b) for a, b in zip(got, want))


def check_vectors(name, model):
    path, wanted = find(model), goldens(name)
    if not path or not wanted:
        return
    want, worst = arrays(name), 0
    with Server(*EXACT, model=path) as server:
        items = [(i, item) for i, item in enumerate(wanted["texts"])
                 if model == name or "truncated_to" not in item]  # GGUF files have no max_seq_length
        texts = [(item.get("prompt") or "") + item["text"] for _, item in items]
        got, usage = embed(server, texts)
        for vector, (i, _) in zip(got, items):
            worst = max(worst, largest_error(vector, want[f"text_{i}.embedding"]))
        assert worst <= TOLERANCE, (model, worst)
        n_tokens = sum(len(item["input_ids"]) for _, item in items)
        assert usage["prompt_tokens"] == n_tokens, (usage, n_tokens)
    print(f"    {model}: {len(texts)} texts, largest error {worst:.1e}")


def test_vectors_are_those_of_the_reference():
    """Pooled, normalised and cut as the models' own files say."""
    names = ["bert-uncased-mean", "bert-cased-cls", "xlmr-cls", "nomic-mean", "modernbert-mean", "gte-cls"]
    names = names[:1] if harness.SANITIZED else names
    harness.for_each(names, lambda name: check_vectors(name, name))


def check_scores(name, model):
    path, wanted = find(model), goldens(name)
    if not path or not wanted:
        return
    worst = 0
    with Server(*EXACT, model=path) as server:
        for query in wanted["queries"]:
            documents = [item["document"] for item in query["documents"]]
            reply = server.post("/v1/rerank", {"query": query["query"], "documents": documents})
            assert reply.status == 200, reply.text
            results = reply.json["results"]
            assert [item["index"] for item in results] == query["order"], (model, results)
            for item in results:
                want = query["documents"][item["index"]]
                if model == name or "truncated_to" not in want:
                    worst = max(worst, abs(item["relevance_score"] - want["score"]))
    assert worst <= TOLERANCE, (model, worst)
    print(f"    {model}: largest error of a score {worst:.1e}")


def test_rerank_scores_and_order_are_those_of_the_reference():
    check_scores("bert-rerank-sigmoid", "bert-rerank-sigmoid")
    check_scores("bert-rerank-raw", "bert-rerank-raw")
    check_scores("xlmr-rerank", "xlmr-rerank")
    check_scores("gte-rerank", "gte-rerank")


def test_gguf_files_are_served_alike():
    check_vectors("nomic-mean", "gguf/nomic-mean.gguf")
    check_scores("xlmr-rerank", "gguf/xlmr-rerank.gguf")


def test_company_and_deaths_change_no_bit():
    name = "modernbert-mean"
    texts = [item["text"] for item in goldens(name)["texts"]] * (2 if harness.SANITIZED else 12)
    with Server(model=find(name)) as server:
        alone = [embed(server, [text])[0][0] for text in texts[:15]]
        alone *= len(texts) // len(alone)
        assert embed(server, texts)[0] == alone
        calls = [harness.Call(lambda: embed(server, texts)[0]) for _ in range(4)]
        n_kills = 0
        while not all(call.is_done for call in calls):
            for actor in ("worker", "scheduler"):
                if actor in server.children() and n_kills < 6:
                    server.kill(actor)
                    n_kills += 1
            time.sleep(0.1 * harness.SLOW)
        assert all(call.result() == alone for call in calls)
    print(f"    {len(texts)} texts, {n_kills} deaths")


def test_a_long_text_is_cut_and_a_generation_refused():
    with Server(model=find("bert-uncased-mean")) as server:
        long, usage = embed(server, ["the loom " * 5000])
        assert usage["prompt_tokens"] == 64, usage  # max_seq_length, special tokens counted
        assert math.isclose(sum(v * v for v in long[0]), 1, abs_tol=1e-5)
        reply = server.post("/v1/completions", {"prompt": "Once", "max_tokens": 2})
        assert reply.status == 400 and "error" in reply.json, reply.text
        assert server.metric("weft_prefix_cache_hits_total") == 0


if __name__ == "__main__":
    harness.main()
