"""Fields and forms of requests that vLLM's users send beyond OpenAI's, on the real server."""

import gzip
import json
import math
import os
import shutil
import socket
import tempfile
import threading
import time

import harness
from harness import Server
from rpc import Rpc

GZIP = {"Content-Encoding": "gzip"}


def packed(body):
    return gzip.compress(json.dumps(body).encode())


def test_bodies_may_be_gzip():
    with Server() as server:
        body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
        plain = server.complete(**body)["choices"]
        for encoding in ("gzip", "x-gzip", "GZIP", "identity"):
            data = json.dumps(body).encode() if encoding == "identity" else packed(body)
            reply = server.post("/v1/completions", data, {"Content-Encoding": encoding})
            assert reply.status == 200 and reply.json["choices"] == plain, (encoding, reply.text)
        long = {"prompt": "a b c d " * 40000}  # prepared in a thread
        assert server.post("/tokenize", packed(long), GZIP).json == server.post("/tokenize", long).json
        for encoding in ("br", "deflate", "zstd", "gzip, gzip"):
            reply = server.post("/v1/completions", packed(body), {"Content-Encoding": encoding})
            assert reply.status == 415 and "gzip" in reply.json["error"]["message"], (encoding, reply.text)
        for broken in (packed(body)[:-1], b"x" + packed(body), json.dumps(body).encode(), packed(body)[:12]):
            reply = server.post("/v1/completions", broken, GZIP)
            assert reply.status == 400 and reply.json["error"]["code"] == "invalid_gzip", reply.text
        assert server.post("/v1/completions", b"", GZIP).status == 400
        assert server.post("/v1/completions", gzip.compress(b""), GZIP).json["error"]["code"] == "invalid_json"


def test_a_small_body_that_becomes_a_huge_one_is_413():
    with Server("--max-body", "64MiB") as server:
        bomb = gzip.compress(b" " * (65 << 20))
        assert len(bomb) < 70000
        assert server.post("/v1/completions", bomb, GZIP).status == 413
        done = threading.Event()

        def bombard():
            while not done.is_set():
                assert server.post("/v1/completions", bomb, GZIP).status in (413, 503)

        threads = [threading.Thread(target=bombard) for _ in range(8)]
        for thread in threads:
            thread.start()
        try:
            waits = []
            for _ in range(20):
                before = time.monotonic()
                assert server.get("/health").status == 200
                waits.append(time.monotonic() - before)
                time.sleep(0.05)
            assert sorted(waits)[10] < 0.5, waits  # the loop is free: a thread does it
        finally:
            done.set()
            for thread in threads:
                thread.join()
        for wait_s in (0, 0.01, 0.03, 0.1) * 3:  # clients that leave while a thread has their body
            with socket.create_connection(("127.0.0.1", server.port)) as sock:
                sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\n"
                             b"Content-Length: %d\r\n\r\n" % len(bomb) + bomb)
                time.sleep(wait_s)
        harness.wait_until("all room to be given back", lambda: server.metric("weft_held_bytes") == 0)
        assert server.complete(prompt="x", max_tokens=4)["choices"]

def test_prompts_are_cut_to_what_is_asked_for():
    with Server() as server:
        text = "Once upon a time there was an old house by the sea, and nobody knew who lived in it."
        ids = server.post("/tokenize", {"prompt": text}).json["tokens"]
        for side, kept in (("left", ids[-7:]), ("right", ids[:7])):
            cut = server.complete(prompt=text, truncate_prompt_tokens=7, truncation_side=side, max_tokens=8, temperature=0)
            assert cut["choices"] == server.complete(prompt=kept, max_tokens=8, temperature=0)["choices"]
            assert cut["usage"]["prompt_tokens"] == 7
        long = {"prompt": text * 200, "max_tokens": 24, "temperature": 0}
        assert server.post("/v1/completions", long).json["error"]["code"] == "context_length_exceeded"
        assert server.complete(**long, truncate_prompt_tokens=-1)["usage"]["prompt_tokens"] == 1000
        chat = server.chat(messages=[{"role": "user", "content": text * 200}], truncate_prompt_tokens=-1, max_tokens=4)
        assert chat["usage"]["prompt_tokens"] == 1020
        reply = server.post("/v1/completions", {"prompt": text, "truncate_prompt_tokens": 1025})
        assert reply.status == 400 and reply.json["error"]["param"] == "truncate_prompt_tokens"


def test_token_ids_are_told_where_vllm_tells_them():
    with Server() as server, Rpc(server) as rpc:
        text = "Once upon a time"
        ids = server.post("/tokenize", {"prompt": text}).json["tokens"]
        body = {"prompt": text, "max_tokens": 12, "temperature": 0, "return_token_ids": True, "n": 2}
        whole = server.complete(**body)
        for choice in whole["choices"]:
            assert choice["prompt_token_ids"] == ids and len(choice["token_ids"]) == 12
            spelt = server.post("/detokenize", {"tokens": choice["token_ids"]}).json["prompt"]
            assert spelt.strip() == choice["text"].strip()
        events = server.stream("/v1/completions", body)
        for choice in whole["choices"]:
            mine = [c for e in events for c in e["choices"] if c["index"] == choice["index"]]
            assert mine[0]["prompt_token_ids"] == ids and not any("prompt_token_ids" in c for c in mine[1:])
            assert sum((c["token_ids"] for c in mine), []) == choice["token_ids"]
            assert "".join(c["text"] for c in mine) == choice["text"]
        echoed = server.complete(**{**body, "n": 1, "echo": True})["choices"][0]
        assert echoed["token_ids"] == whole["choices"][0]["token_ids"] and echoed["text"].startswith(text)
        chat = {"messages": [{"role": "user", "content": "Tell me."}], "max_tokens": 6, "temperature": 0,
                "return_token_ids": True}
        whole = server.chat(**chat)
        prompt = server.post("/tokenize", {"messages": chat["messages"]}).json["tokens"]
        assert whole["prompt_token_ids"] == prompt and len(whole["choices"][0]["token_ids"]) == 6
        events = server.stream("/v1/chat/completions", chat)
        assert events[0]["prompt_token_ids"] == prompt and events[0]["choices"][0]["delta"]["role"] == "assistant"
        assert sum((c.get("token_ids", []) for e in events for c in e["choices"]), []) == whole["choices"][0]["token_ids"]
        assert "token_ids" not in server.complete(prompt=text, max_tokens=2)["choices"][0]
        error, result = rpc.call(1, "generate", {**body, "n": 1})
        assert error is None and result["choices"][0]["prompt_token_ids"] == ids and len(result["choices"][0]["token_ids"]) == 12
        reply = server.post("/completion", {"prompt": text, "return_token_ids": True})
        assert reply.status == 400 and reply.json["error"]["param"] == "return_token_ids"


def test_log_probabilities_of_the_whole_vocabulary():
    every = {"prompt": "The sea", "max_tokens": 2, "logprobs": -1, "return_tokens_as_token_ids": True}
    with Server() as server:
        reply = server.post("/v1/completions", every)
        assert reply.status == 400 and "--max-logprobs" in reply.json["error"]["message"]
    for most in ("-1", "100000"):
        with Server("--max-logprobs", most) as server:
            top = server.complete(**every)["choices"][0]["logprobs"]["top_logprobs"]
            n_vocab = len(top[0])
            assert n_vocab > 1000 and set(top[0]) == {f"token_id:{i}" for i in range(n_vocab)}
            assert all(abs(sum(map(math.exp, t.values())) - 1) < 1e-3 for t in top)
            chat = server.chat(messages=[{"role": "user", "content": "x"}], max_tokens=1, logprobs=True, top_logprobs=-1,
                               prompt_logprobs=-1)
            assert len(chat["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == n_vocab
            assert len(chat["prompt_logprobs"][1]) == n_vocab
            reply = server.post("/v1/completions", {**every, "max_tokens": 1000, "n": 8})
            assert reply.status == 400 and "--max-logprob-bytes" in reply.json["error"]["message"]


def test_images_and_audio_are_refused_in_so_many_words():
    with Server() as server:
        for prompt in ({"prompt": "a", "multi_modal_data": {"image": "x"}}, [{"prompt_embeds": "AAAA"}],
                       {"prompt_string": "a", "multimodal_data": ["AAAA"]}):
            for path in ("/v1/completions", "/completion"):
                error = server.post(path, {"prompt": prompt}).json["error"]
                assert error["param"] == "prompt" and "images, audio" in error["message"], error
        error = server.post("/v1/completions", {"prompt": "a", "prompt_embeds": "AAAA"}).json["error"]
        assert error["param"] == "prompt_embeds" and "embeddings" in error["message"], error


def test_chats_repeat_what_they_go_on_with():
    with Server() as server, Rpc(server) as rpc:
        begun = [{"role": "user", "content": "Who lived there?"}, {"role": "assistant", "content": "An old man"}]
        body = {"messages": begun, "max_tokens": 12, "temperature": 0, "add_generation_prompt": False,
                "continue_final_message": True}
        rest = server.chat(**body)["choices"][0]["message"]["content"]
        whole = server.chat(**body, echo=True, n=2)
        assert [c["message"]["content"] for c in whole["choices"]] == ["An old man" + rest] * 2
        events = server.stream("/v1/chat/completions", {**body, "echo": True})
        deltas = [c["delta"].get("content") or "" for e in events for c in e["choices"]]
        assert deltas[1] == "An old man" and "".join(deltas) == "An old man" + rest
        error, result = rpc.call(1, "chat", {**body, "echo": True})
        assert error is None and result["choices"][0]["message"]["content"] == "An old man" + rest
        asked = {"messages": begun[:1], "max_tokens": 12, "temperature": 0}
        assert server.chat(**asked, echo=True)["choices"] == server.chat(**asked)["choices"]


def with_words(folder, words):
    """The bundled model with other special tokens: {old name: new name}."""
    model = os.path.join(folder, "model")
    shutil.copytree(harness.FABLE, model)
    path = os.path.join(model, "tokenizer.json")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for old, new in words.items():
        text = text.replace(json.dumps(old), json.dumps(new))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return model


def test_a_suffix_is_told_as_the_model_wants_it():
    three = {"<|im_start|>": "<|fim_prefix|>", "<|im_end|>": "<|fim_suffix|>", "<|pad|>": "<|fim_middle|>"}
    two = {"<|im_start|>": "[PREFIX]", "<|im_end|>": "[SUFFIX]"}
    with tempfile.TemporaryDirectory() as folder, Server(model=with_words(folder, three)) as server:
        before = server.post("/tokenize", {"prompt": "The old", "add_special_tokens": False}).json["tokens"]
        after = server.post("/tokenize", {"prompt": " by the sea.", "add_special_tokens": False}).json["tokens"]
        bos, pre, suf, mid = 4091, 4093, 4094, 4095
        body = {"prompt": "The old", "suffix": " by the sea.", "max_tokens": 8, "temperature": 0,
                "return_token_ids": True}
        choice = server.complete(**body)["choices"][0]
        assert choice["prompt_token_ids"] == [bos, pre, *before, suf, *after, mid]
        assert server.complete(**body, add_special_tokens=False)["choices"][0]["prompt_token_ids"] == \
            [pre, *before, suf, *after, mid]
        lists = server.complete(**{**body, "prompt": [before, before]})["choices"]
        assert [c["prompt_token_ids"] for c in lists] == [[pre, *before, suf, *after, mid]] * 2
        infill = {"input_prefix": "The", "prompt": " old", "input_suffix": " by the sea.", "n_predict": 8,
                  "temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0}
        assert server.post("/infill", infill).json["content"] == choice["text"]
        stream = server.post("/infill", {**infill, "stream": True}).text
        events = [json.loads(line[6:]) for line in stream.splitlines() if line]
        assert "".join(e["content"] for e in events) == choice["text"] and events[-1]["stop"]
        empty = server.post("/infill", {"input_prefix": "", "input_suffix": "", "n_predict": 1}).json
        assert empty["tokens_evaluated"] == 4
        written = server.post("/infill", {"input_prefix": "<|fim_suffix|>", "input_suffix": "", "n_predict": 1}).json
        assert written["tokens_evaluated"] > 5  # text, and not that token
        many = {"prompt": ["a"] * 1000, "suffix": "the sea and the hill " * 1000, "max_tokens": 1}
        error = server.post("/v1/completions", many).json["error"]
        assert error["param"] == "suffix" and "1000 prompts" in error["message"], error
    with tempfile.TemporaryDirectory() as folder, Server(model=with_words(folder, two)) as server:
        choice = server.complete(**body)["choices"][0]
        assert choice["prompt_token_ids"] == [bos, suf, *after, pre, *before]


if __name__ == "__main__":
    harness.main()
