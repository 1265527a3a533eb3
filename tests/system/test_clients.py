"""What clients send that were written for other servers: their names, fields and numbers."""

import json
import socket

import harness
from harness import Server
from rpc import Rpc

HEADERS = ("x-llm-d-slo-ttft-ms", "x-llm-d-slo-tpot-ms", "x-llm-d-inference-fairness-id")


def error_of(server, body, path="/v1/completions"):
    reply = server.post(path, body)
    return reply.status, reply.json["error"]


def test_a_model_has_several_names():
    with Server("--served-model-name", "fable, gpt-4o ,org/name") as server:
        models = server.get("/v1/models").json["data"]
        assert [m["id"] for m in models] == ["fable", "gpt-4o", "org/name"]
        assert server.get("/v1/models/").json["data"] == models
        for name in ("fable", "gpt-4o", "org/name", "org%2Fname"):
            assert server.get("/v1/models/" + name).json["id"] == name.replace("%2F", "/")
        for model in ("fable", "org/name"):
            assert server.complete(model=model, prompt="a", max_tokens=1)["model"] == "fable"
        says = "does not exist; this server has 'fable', 'gpt-4o', 'org/name'."
        status, error = error_of(server, {"prompt": "a", "model": "x"})
        assert status == 404 and error["code"] == "model_not_found" and error["message"] == "The model 'x' " + says
        reply = server.get("/v1/models/x%00y%2")
        assert reply.status == 404 and reply.json["error"]["message"] == "The model 'x\\u0000y%2' " + says, reply.text
        with Rpc(server) as rpc:
            assert [m["id"] for m in rpc.call(1, b"models")[1]["data"]] == ["fable", "gpt-4o", "org/name"]


def test_unknown_fields_can_be_refused():
    with Server("--strict-fields") as server:
        status, error = error_of(server, {"prompt": "a", "temprature": 0})
        assert status == 400 and error["code"] == "unknown_field" and error["param"] == "temprature", error
        options = {"include_usage": True, "usage": True}
        status, error = error_of(server, {"prompt": "a", "stream": True, "stream_options": options})
        assert status == 400 and error["param"] == "stream_options.usage", error
        assert server.complete(prompt="a", max_tokens=1, temperature=0, user="me", metadata={"a": 1}, tools=[])
        with Rpc(server) as rpc:
            assert rpc.call(1, b"generate", {"prompt": "a", "max_tokens": 1, "request_id": "r"})[0] is None
            for name in HEADERS:  # a header's name is no field's
                status, error = error_of(server, {"prompt": "a", name: 1})
                assert status == 400 and error["code"] == "unknown_field" and error["param"] == name, error
                error = rpc.call(1, b"generate", {"prompt": "a", name: 1})[0]
                assert error[0] == "invalid_request_error" and f"'{name}'" in error[1], error


def test_unknown_fields_are_told_to_those_who_debug():
    with Server("--log-level", "debug") as server:
        assert server.complete(prompt="a", max_tokens=1, temprature=0, **{"a\n": 1})
        line = "fields that are not known here: 'temprature', 'a\\n'"
        harness.wait_until("the line", lambda: line in "".join(server.lines))


def test_numbers_of_any_size():
    with Server() as server:
        for number in ("123456789012345678901234567890", "-9223372036854775809", "9" * 500):
            reply = server.post("/v1/completions", b'{"prompt":"a","max_tokens":1,"ignored":[%s]}' % number.encode())
            assert reply.status == 200, reply.text
            status, error = error_of(server, b'{"prompt":"a","seed":%s}' % number.encode())
            assert status == 400 and error["param"] == "seed" and "must be between" in error["message"], error
        assert server.complete(prompt="a", max_tokens=1, seed=2**63 - 1)


def test_a_body_of_nothing():
    with Server() as server:
        for body in (b"", b" \r\n"):
            status, error = error_of(server, body)
            assert status == 400 and error["code"] == "invalid_json", error
            assert error["message"] == "the body is empty: send a JSON object"


def test_heads_that_nobody_can_answer_say_why():
    with Server() as server:
        for head, status, says in (
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "this server speaks HTTP/1.1, not HTTP/2"),
            (b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", 400, "exactly one Host"),
            (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\nConnection: close\r\n\r\n", 400, "exactly one Host"),
        ):
            with socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S) as sock:
                sock.sendall(head)
                reply = b"".join(iter(lambda: sock.recv(65536), b""))
            error = json.loads(reply[reply.index(b"\r\n\r\n"):])["error"]
            assert int(reply.split()[1]) == status and says in error["message"], reply
            assert error["code"] == (None if status == 505 else "malformed_http"), error


def test_llama_servers_tokenize():
    with Server() as server:
        text = "Once upon a time \u4f60<|begin_of_text|>"
        vllm = server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"]
        assert server.post("/tokenize", {"content": text}).json["tokens"] == vllm
        with_bos = server.post("/tokenize", {"content": text, "add_special": True}).json["tokens"]
        assert with_bos[1:] == vllm and len(with_bos) == len(vllm) + 1
        pieces = server.post("/tokenize", {"content": text, "with_pieces": True}).json["tokens"]
        assert [p["id"] for p in pieces] == vllm
        spelt = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
        assert spelt.decode() == text and any(isinstance(p["piece"], list) for p in pieces)
        plain = server.post("/tokenize", {"content": text, "parse_special": False}).json["tokens"]
        assert len(plain) > len(vllm)
        for tokens in (vllm, plain):
            assert server.post("/detokenize", {"tokens": tokens}).json == {"prompt": text, "content": text}


def test_llama_servers_names_in_openais_endpoints():
    with Server() as server:
        ask = {"prompt": "Once upon a time", "temperature": 0}
        mine = server.complete(**ask, n_predict=9, repeat_penalty=1.3)
        openais = server.complete(**ask, max_tokens=9, repetition_penalty=1.3)
        assert mine["choices"] == openais["choices"] and mine["usage"] == openais["usage"]
        chat = server.chat(messages=[{"role": "user", "content": "Hi"}], n_predict=5, ignore_eos=True)
        assert chat["usage"]["completion_tokens"] == 5


def test_llama_servers_props_and_slots():
    with Server("--max-num-seqs", "3", "--served-model-name", "fable", env={"WEFT_API_KEY": "k"}) as server:
        key = {"Authorization": "Bearer k"}
        assert server.get("/props").status == 401 and server.get("/slots").status == 401
        props = server.get("/props", key).json
        assert props["total_slots"] == 3 and props["model_alias"] == "fable" and props["model_path"] == server.model
        assert "{%" in props["chat_template"] and props["bos_token"] == "<|begin_of_text|>"
        settings = props["default_generation_settings"]
        assert settings["n_ctx"] == 1024
        used = server.post("/completion", {"prompt": "a", "n_predict": 1}, key).json["generation_settings"]
        for name in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n"):
            assert settings["params"][name] == used[name], name
        slots = server.get("/slots", key).json
        assert [s["id"] for s in slots] == [0, 1, 2] and not any(s["is_processing"] for s in slots)
        body = {"prompt": "For ever", "n_predict": -1, "ignore_eos": True, "stream": True}
        conn = server.connect()
        with server.stopped():  # with what it was given a moment before
            conn.request("POST", "/completion", json.dumps(body), {**key, "Content-Type": "application/json"})
            busy = harness.wait_until("a slot to be busy", lambda: [s for s in server.get("/slots", key).json
                                                                    if s["is_processing"] and "id_task" in s])
            n = len(server.post("/tokenize", {"content": "For ever", "add_special": True}, key).json["tokens"])
            assert [(s["id"], s["n_prompt_tokens"], s["next_token"][0]["n_decoded"]) for s in busy] == [(0, n, 0)]
            assert busy[0]["next_token"][0]["n_remain"] == 1024 - n
        conn.close()



def lines_of(server, path, body, headers=None):
    """The objects of a stream of lines."""
    conn = server.connect()
    try:
        conn.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
        reply = conn.getresponse()
        assert reply.status == 200 and reply.headers["Content-Type"] == "application/x-ndjson", reply.status
        return [json.loads(line) for line in reply]
    finally:
        conn.close()


def test_ollamas_endpoints_say_what_openais_do():
    with Server("--served-model-name", "fable") as server:
        options = {"temperature": 0, "num_predict": 20}
        same = {"temperature": 0, "max_tokens": 20}
        text = "Once upon a time"
        whole = server.complete(prompt=text, **same)
        ask = {"model": "fable:latest", "prompt": text, "raw": True, "options": options}
        reply = server.post("/api/generate", {**ask, "stream": False}).json
        assert reply["response"] == whole["choices"][0]["text"] and reply["done"] is True
        assert reply["done_reason"] == whole["choices"][0]["finish_reason"] and reply["model"] == "fable"
        assert (reply["prompt_eval_count"], reply["eval_count"]) == (whole["usage"]["prompt_tokens"],
                                                                     whole["usage"]["completion_tokens"])
        assert reply["total_duration"] >= reply["eval_duration"] > 0
        *pieces, end = lines_of(server, "/api/generate", ask)  # a stream where nothing is said
        assert "".join(p["response"] for p in pieces) == reply["response"] and not any(p["done"] for p in pieces)
        assert end["done"] and end["response"] == "" and end["eval_count"] == reply["eval_count"]

        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}]
        said = server.chat(messages=messages, **same)["choices"][0]["message"]
        reply = server.post("/api/chat", {"messages": messages, "options": options, "stream": False}).json
        assert reply["message"] == said
        *pieces, end = lines_of(server, "/api/chat", {"messages": messages, "options": options})
        assert "".join(p["message"]["content"] for p in pieces) == said["content"] and end["done"]
        # Without `raw` the prompt is a message, and `system` another.
        reply = server.post("/api/generate", {"prompt": "Hello!", "system": "Be brief.", "options": options,
                                              "stream": False}).json
        assert reply["response"] == said["content"]


def test_ollamas_clients_learn_what_is_there():
    with Server("--served-model-name", "fable,other", env={"WEFT_API_KEY": "k"}) as server:
        key = {"Authorization": "Bearer k"}
        reply = server.get("/api/tags")
        assert reply.status == 401 and "API key" in reply.json["error"]
        assert [m["name"] for m in server.get("/api/tags", key).json["models"]] == ["fable", "other"]
        assert server.get("/api/ps", key).json["models"][0]["size"] > 0
        assert server.get("/api/version").json == server.get("/version").json
        shown = server.post("/api/show", {"model": "other:latest"}, key).json
        assert "{%" in shown["template"] and shown["model_info"]["llama.context_length"] == 1024
        assert shown["capabilities"] == ["completion"]
        for path, body, status, says in (
            ("/api/show", {"model": "x"}, 404, "this server has 'fable', 'other'"),
            ("/api/chat", {"messages": [{"role": "user", "content": "a"}], "format": "xml"}, 400, "'format'"),
            ("/api/generate", {"prompt": 1}, 400, "'prompt'"),
            ("/api/pull", {"model": "x"}, 404, "there is nothing at"),
            ("/api/embed", {"input": "x"}, 400, "embeddings"),
        ):
            reply = server.post(path, body, key)
            assert reply.status == status and says in reply.json["error"], reply.text
        assert server.get("/api/chat", key).json["error"] == "/api/chat takes POST, OPTIONS"


if __name__ == "__main__":
    harness.main()
