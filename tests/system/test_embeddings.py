"""Vectors and scores of texts: /v1/embeddings, /pooling, /score and /rerank, and what they are for which model."""

import base64
import json
import math
import os
import struct

import harness
from harness import Server
from rpc import Rpc

DATA = os.path.join(harness.SOURCE_DIR, "tests", "data", "embed")
EMBEDDER, JUDGE = os.path.join(DATA, "qwen3-last"), os.path.join(DATA, "qwen3-reranker")
EXACT = ("--activations", "f32")


def goldens(folder):
    with open(os.path.join(folder, "goldens.json"), encoding="utf-8") as f:
        return json.load(f)


def reference_vectors(folder, n):
    """text_I.embedding of goldens.safetensors."""
    with open(os.path.join(folder, "goldens.safetensors"), "rb") as f:
        data = f.read()
    (len_header,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + len_header])
    vectors = []
    for i in range(n):
        begin, end = header[f"text_{i}.embedding"]["data_offsets"]
        vectors.append(struct.unpack(f"<{(end - begin) // 4}f", data[8 + len_header + begin:8 + len_header + end]))
    return vectors


def post(server, path, **fields):
    reply = server.post(path, fields)
    assert reply.status == 200, (reply.status, reply.text[:500])
    return reply.json


def embed(server, texts, **fields):
    answer = post(server, "/v1/embeddings", input=texts, **fields)
    assert answer["object"] == "list" and [d["index"] for d in answer["data"]] == list(range(len(answer["data"])))
    assert all(d["object"] == "embedding" for d in answer["data"])
    return [d["embedding"] for d in answer["data"]]


def packed(server, texts, **fields):
    """The bits of the vectors."""
    return [base64.b64decode(v) for v in embed(server, texts, encoding_format="base64", **fields)]


def refused(server, path, status=400, **fields):
    reply = server.post(path, fields)
    assert reply.status == status, (reply.status, reply.text[:500])
    return reply.json["error"]


def worst(got, want):
    assert len(got) == len(want)
    return max(abs(a - b) for a, b in zip(got, want, strict=True))


def rounded(values):
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


# ---------------------------------------------------------------------------------------------- vectors ---
def test_vectors():
    with Server(*EXACT, model=EMBEDDER) as server:
        compare_with_the_reference(server)
        forms_of_vectors(server)
        other_servers_names(server)
        ids_in_place_of_texts(server)
        nobody_minds_company(server)
        what_vectors_cannot_be_asked_for(server)
        over_rpc(server)
        compare_vectors(server)


def compare_with_the_reference(server):
    texts = goldens(EMBEDDER)["texts"]
    want = reference_vectors(EMBEDDER, len(texts))
    plain = [i for i, t in enumerate(texts) if "prompt_name" not in t]
    answer = post(server, "/v1/embeddings", input=[texts[i]["text"] for i in plain])
    for i, d in zip(plain, answer["data"], strict=True):
        assert worst(d["embedding"], want[i]) < 1e-4, i
    n_tokens = sum(len(texts[i]["input_ids"]) for i in plain)
    assert answer["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}, answer["usage"]
    assert answer["model"] == "qwen3-last" and answer["id"].startswith("embd-")
    prompted = [i for i, t in enumerate(texts) if t.get("prompt_name") == "query"]
    assert prompted and any("truncated_to" in texts[i] for i in plain)
    for i in prompted:
        for fields in ({"prompt_name": "query"}, {"input_type": "search_query"}):
            assert worst(embed(server, texts[i]["text"], **fields)[0], want[i]) < 1e-4


def forms_of_vectors(server):
    (whole,) = embed(server, "A loom.")
    assert abs(sum(x * x for x in whole) - 1) < 1e-5 and len(whole) == 64
    assert packed(server, "A loom.") == [struct.pack("<64f", *whole)]
    for n in (1, 7, 63, 64):
        (cut,) = embed(server, "A loom.", dimensions=n)
        length = math.sqrt(sum(x * x for x in whole[:n]))
        assert worst(cut, [x / length for x in whole[:n]]) < 1e-6
    (raw,) = embed(server, "A loom.", normalize=False)
    length = math.sqrt(sum(x * x for x in raw))
    assert length > 1.5 and worst(whole, [x / length for x in raw]) < 1e-6
    answer = post(server, "/pooling", input="A loom.")
    assert answer["data"] == [{"object": "pooling", "index": 0, "data": whole}]
    assert embed(server, "A loom is one.", truncate_prompt_tokens=4, user="somebody") != [whole]


def other_servers_names(server):
    vectors = embed(server, ["a", "b"])
    for path in ("/embedding", "/embeddings"):
        want = [{"index": i, "embedding": [v]} for i, v in enumerate(vectors)]
        assert server.post(path, {"content": ["a", "b"]}).json == server.post(path, {"input": ["a", "b"]}).json == want
    raw = server.post("/embedding", {"content": "a", "embd_normalize": -1}).json
    assert raw[0]["embedding"] == embed(server, "a", normalize=False)
    answer = post(server, "/api/embed", model="qwen3-last:latest", input=["a", "b"])
    assert answer == {"model": "qwen3-last", "embeddings": vectors, "prompt_eval_count": 4}
    assert post(server, "/api/embeddings", prompt="b") == {"embedding": vectors[1]}
    assert refused(server, "/api/embed", input="a", truncate=False).startswith("'truncate'")


def ids_in_place_of_texts(server):
    texts = goldens(EMBEDDER)["texts"][:5]
    want = packed(server, [t["text"] for t in texts])
    assert packed(server, [t["input_ids"] for t in texts]) == want
    assert packed(server, texts[3]["input_ids"]) == want[3:4]
    assert len(packed(server, [list(range(300, 400))])) == 1  # cut to what the model takes


def nobody_minds_company(server):
    texts = [("yarn " * (i % 23) + f"number {i}")[: 7 * i + 1] for i in range(100)]
    alone = [packed(server, text)[0] for text in texts[:20]]
    halves = harness.in_threads([lambda: packed(server, texts), lambda: packed(server, texts[::-1])])
    assert halves[0] == halves[1][::-1]
    assert halves[0][:20] == alone


def what_vectors_cannot_be_asked_for(server):
    for fields, words in (
        ({}, "'input'"),
        ({"input": []}, "must not be empty"),
        ({"input": [1, "a"]}, "'input' must be"),
        ({"input": ["a", 1]}, "must not mix"),
        ({"input": {"text": "a"}}, "'input' must be"),
        ({"input": [600]}, "out of vocabulary"),
        ({"input": [[]]}, "list of token ids must not be empty"),
        ({"input": "a", "dimensions": 65}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "prompt_name": "other"}, "no prompt of that name; one that it has is query"),
        ({"input": "a", "input_type": 3}, "'input_type' must be"),
        ({"input": ["a"] * 2049}, "at most"),
        ({"input": "a", "model": "another"}, "another"),
    ):
        error = refused(server, "/v1/embeddings", 404 if "model" in fields else 400, **fields)
        assert words in error["message"], error
    for path, fields in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": []}),
                         ("/api/generate", {"prompt": "a"})):
        reply = server.post(path, fields)
        assert reply.status == 400 and "embeds texts and generates no text" in reply.text, reply.text
    error = refused(server, "/classify", input="a")
    assert "has no classes" in error["message"], error
    assert server.post("/tokenize", {"prompt": "yes"}).json["tokens"] == [461, 595]


def over_rpc(server):
    with Rpc(server) as rpc:
        (error, answer) = rpc.call(1, "embed", {"input": ["A loom.", ""]})
        assert error is None
        assert [rounded(d["embedding"]) for d in answer["data"]] == [rounded(v) for v in embed(server, ["A loom.", ""])]
        (error, _) = rpc.call(2, "embed", {"input": 3})
        assert error[0] == "invalid_request_error" and "'input' must be" in error[1], error
        (error, _) = rpc.call(3, "generate", {"prompt": "a"})
        assert "generates no text" in error[1], error


def compare_vectors(server):
    """Without a head for pairs a score is the cosine of two vectors."""
    (query, *documents) = texts = ["What is wool?", "Wool is a fibre.", "Paris", ""]
    vectors = embed(server, texts)
    answer = post(server, "/score", text_1=query, text_2=documents)
    for i, d in enumerate(answer["data"]):
        cosine = sum(a * b for a, b in zip(vectors[0], vectors[i + 1], strict=True))
        assert d["index"] == i and abs(d["score"] - cosine) < 1e-6, (d, cosine)
    pairs = post(server, "/v1/score", text_1=documents, text_2=documents)["data"]
    assert all(abs(d["score"] - 1) < 1e-6 for d in pairs) and len(pairs) == 3
    query_vector = embed(server, query, prompt_name="query")[0]
    for result in post(server, "/rerank", query=query, documents=documents)["results"]:
        cosine = sum(a * b for a, b in zip(query_vector, vectors[result["index"] + 1], strict=True))
        assert abs(result["relevance_score"] - cosine) < 1e-6


# ------------------------------------------------------------------------------------------------ pairs ---
def test_judgements():
    with Server(*EXACT, model=JUDGE) as server:
        for query in goldens(JUDGE)["queries"]:
            check_query(server, query)
        forms_of_scores(server)
        what_scores_cannot_be_asked_for(server)
        assert len(server.complete(prompt="a", max_tokens=3, ignore_eos=True)["choices"]) == 1  # it still generates
        error = refused(server, "/v1/embeddings", input="a")
        assert "generates text and has no embeddings" in error["message"] and "--runner pooling" in error["message"]


def check_query(server, query):
    documents = query["documents"]
    answer = post(server, "/v1/rerank", query=query["query"], documents=[d["document"] for d in documents])
    assert [r["index"] for r in answer["results"]] == query["order"]
    for result in answer["results"]:
        assert abs(result["relevance_score"] - documents[result["index"]]["score"]) < 1e-4
        assert set(result) == {"index", "relevance_score"}
    assert answer["usage"]["total_tokens"] == sum(len(d["input_ids"]) for d in documents)


def forms_of_scores(server):
    ask = {"query": "wool?", "documents": ["a", {"text": "b"}, "c", ""]}
    first = post(server, "/rerank", **ask)
    for path in ("/v1/rerank", "/v2/rerank"):
        assert post(server, path, **ask)["results"] == first["results"]
    top = post(server, "/rerank", **ask, top_n=2, return_documents=True)["results"]
    assert [{k: r[k] for k in ("index", "relevance_score")} for r in top] == first["results"][:2]
    assert [r["document"]["text"] for r in top] == [["a", "b", "c", ""][r["index"]] for r in top]
    by_index = {r["index"]: r["relevance_score"] for r in first["results"]}
    for path in ("/score", "/v1/score"):
        answer = post(server, path, text_1="wool?", text_2=["a", "b", "c", ""])
        assert answer["data"] == [{"index": i, "object": "score", "score": by_index[i]} for i in range(4)]
    other = post(server, "/rerank", **ask, instruction="Find what is short.")["results"]
    assert {r["index"]: r["relevance_score"] for r in other} != by_index
    # What is too long loses the end of the document alone.
    long = post(server, "/score", text_1="wool?", text_2=["word " * 600, "word " * 700, "word " * 400000])
    assert long["usage"]["total_tokens"] == 3 * 1024
    assert len({pair["score"] for pair in long["data"]}) == 1


def what_scores_cannot_be_asked_for(server):
    for path, fields, words in (
        ("/rerank", {"documents": ["a"]}, "'query'"),
        ("/rerank", {"query": "a"}, "'documents'"),
        ("/rerank", {"query": "a", "documents": []}, "must not be empty"),
        ("/rerank", {"query": ["a"], "documents": ["a"]}, "'query' must be a string"),
        ("/rerank", {"query": "a", "documents": [3]}, "'documents' must be"),
        ("/rerank", {"query": "a", "documents": [{"title": "a"}]}, "'documents' must be"),
        ("/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, "top_n"),
        ("/rerank", {"query": "a", "documents": ["a"], "max_tokens_per_doc": 5}, "max_tokens_per_doc"),
        ("/rerank", {"query": "word " * 2000, "documents": ["a"]}, "the query alone"),
        ("/rerank", {"query": "b " * 90000, "documents": ["a"]}, "the query alone"),
        ("/rerank", {"query": "a", "documents": ["a"], "instruction": "word " * 2000}, "the query and the instruction alone"),
        ("/score", {"text_1": ["a", "b"], "text_2": ["c"]}, "as many"),
        ("/score", {"text_1": "a"}, "'text_2'"),
    ):
        error = refused(server, path, **fields)
        assert words in error["message"], error


# ---------------------------------------------------------------------------------------------- runners ---
def test_runners():
    with Server("--runner", "pooling", "--max-model-len", "128") as server:  # a model that generates, as a rule
        vectors = embed(server, ["Once upon a time", "there was a king"])
        assert all(abs(sum(x * x for x in v) - 1) < 1e-5 for v in vectors)
        assert "generates no text" in refused(server, "/v1/completions", prompt="a")["message"]
    with Server("--runner", "generate", model=EMBEDDER) as server:
        assert server.complete(prompt="a", max_tokens=2, ignore_eos=True)["usage"]["completion_tokens"] == 2
        assert "has no embeddings" in refused(server, "/v1/embeddings", input="a")["message"]


# ------------------------------------------------------------------------------------------------- loss ---
def test_nothing_is_lost():
    """kill -9 of worker and scheduler while many texts are computed: each is answered once, with the same bits."""
    texts = [" ".join(f"word{(i * 7 + k) % 50}" for k in range(20 + i % 20)) for i in range(60)]
    with Server("--runner", "pooling", "--max-model-len", "512", "--no-prefix-cache") as server:
        want = packed(server, texts)
        for name in ("worker", "scheduler"):
            harness.attempt(lambda name=name: killed_in_between(server, texts, want, name))


def killed_in_between(server, texts, want, name):
    n_before = server.metric("weft_prompt_tokens_total")
    call = harness.Call(lambda: packed(server, texts))
    harness.wait_until("some of them", lambda: call.is_done or server.metric("weft_prompt_tokens_total") > n_before)
    if call.is_done:
        raise harness.Void("all of them came at once")
    old = server.kill(name)[name]
    assert call.result() == want
    harness.wait_until("another", lambda: server.children().get(name) not in (None, old))
    harness.wait_until("the server to be healthy again", lambda: server.get("/health").status == 200)


if __name__ == "__main__":
    harness.main()
