"""The HTTP API as OpenAI's and vLLM's users know it, on the real server."""

import contextlib
import json
import math
import os
import re
import socket
import struct

import harness
from harness import Server
from rpc import Rpc

USER = [{"role": "user", "content": "Tell me about the sea."}]


def test_completions_take_every_form_of_prompt():
    with Server() as server:
        text = "Once upon a time"
        ids = server.post("/tokenize", {"prompt": text}).json["tokens"]
        one = server.complete(prompt=text, max_tokens=8, temperature=0)["choices"]
        assert server.complete(prompt=ids, max_tokens=8, temperature=0)["choices"][0]["text"] == one[0]["text"]
        both = server.complete(prompt=[text, "The end"], max_tokens=8, temperature=0, n=1)["choices"]
        assert [c["index"] for c in both] == [0, 1] and both[0]["text"] == one[0]["text"]
        lists = server.complete(prompt=[ids, ids], max_tokens=8, temperature=0)
        assert [c["text"] for c in lists["choices"]] == [one[0]["text"]] * 2
        assert lists["usage"]["prompt_tokens"] == 2 * len(ids)


def test_the_answer_has_openais_shape():
    with Server() as server:
        reply = server.complete(prompt="Once upon a time", temperature=0)
        assert reply["object"] == "text_completion" and reply["id"].startswith("cmpl-")
        assert reply["usage"]["completion_tokens"] <= 16  # the default of max_tokens
        assert reply["system_fingerprint"].startswith("fp_")
        assert reply["choices"][0]["finish_reason"] in ("length", "stop")
        chat = server.chat(messages=USER, max_tokens=8)
        assert chat["object"] == "chat.completion" and chat["id"].startswith("chatcmpl-")
        assert chat["choices"][0]["message"]["role"] == "assistant"
        model = server.get("/v1/models").json["data"][0]
        assert model["object"] == "model" and model["max_model_len"] == 1024
        assert reply["model"] == model["id"]


def test_streams_equal_whole_answers():
    with Server() as server:
        for body in ({"prompt": "The sea", "max_tokens": 50, "temperature": 0},
                     {"prompt": "The sea", "max_tokens": 50, "seed": 9, "n": 3},
                     {"prompt": ["The sea", "A hill"], "max_tokens": 20, "seed": 9, "stop": ["e", "the"]},
                     {"prompt": "The sea", "max_tokens": 20, "temperature": 0, "logprobs": 3, "echo": True}):
            whole = server.complete(**body)
            events = server.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}})
            assert events[-1]["choices"] == [] and events[-1]["usage"] == whole["usage"]
            for choice in whole["choices"]:
                mine = [c for e in events for c in e["choices"] if c["index"] == choice["index"]]
                assert "".join(c["text"] for c in mine) == choice["text"]
                ends = [c["finish_reason"] for c in mine if c["finish_reason"]]
                assert ends == [choice["finish_reason"]] and mine[-1]["finish_reason"]
                if "logprobs" in body:
                    for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                        assert sum((c["logprobs"][key] for c in mine if c["logprobs"]), []) == choice["logprobs"][key]


def test_chat_streams_role_content_and_end():
    with Server() as server:
        body = {"messages": USER, "max_tokens": 30, "temperature": 0}
        whole = server.chat(**body)
        events = server.stream("/v1/chat/completions", body)
        assert events[0]["object"] == "chat.completion.chunk"
        assert events[0]["choices"][0]["delta"]["role"] == "assistant"
        text = "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])
        assert text == whole["choices"][0]["message"]["content"]
        assert events[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]


def test_stop_strings_are_never_half_emitted():
    with Server() as server:
        free = server.complete(prompt="Once upon a time", max_tokens=60, temperature=0, ignore_eos=True)
        text = free["choices"][0]["text"]
        for begin, length in ((10, 3), (25, 7), (40, 12)):
            stop = text[begin : begin + length]
            cut = text[: text.index(stop)]
            body = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "ignore_eos": True,
                    "stop": [stop, "never seen"]}
            reply = server.complete(**body)
            assert reply["choices"][0]["text"] == cut
            assert reply["choices"][0]["finish_reason"] == "stop"
            assert reply["choices"][0]["stop_reason"] == stop
            assert reply["usage"]["completion_tokens"] < free["usage"]["completion_tokens"]
            seen = ""
            for event in server.stream("/v1/completions", body):
                seen += event["choices"][0]["text"]
                assert cut.startswith(seen), (seen, cut)
            assert seen == cut
            kept = server.complete(**body, include_stop_str_in_output=True)["choices"][0]["text"]
            assert kept == cut + stop


def test_a_stream_is_valid_utf8_at_every_event():
    with Server() as server:
        events = server.stream("/v1/completions", {"prompt": "\u4f60\u597d \U0001f600", "max_tokens": 200, "seed": 3,
                                                   "temperature": 2.0, "ignore_eos": True})
        for event in events:  # json.loads of the harness decoded it: no lone surrogate may be in it
            event["choices"][0]["text"].encode()


def test_min_tokens_stop_token_ids_and_ignore_eos():
    with Server() as server:
        base = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 40, "ignore_eos": True,
                "logprobs": 0, "return_tokens_as_token_ids": True}
        ids = [t for t, _ in harness.tokens_of(server.complete(**base)["choices"][0])]
        assert len(ids) == 40
        stop = ids[12]
        first = ids.index(stop)
        reply = server.complete(**{**base, "stop_token_ids": [stop]})
        assert reply["usage"]["completion_tokens"] == first + 1
        assert reply["choices"][0]["finish_reason"] == "stop" and reply["choices"][0]["stop_reason"] == stop
        reply = server.complete(**{**base, "stop_token_ids": [stop], "min_tokens": first + 5})
        assert reply["usage"]["completion_tokens"] >= first + 5


def as_float32(number):
    """The 32-bit float that a client gets by parsing the number, which must be its exact print: nine digits tell any
    two floats apart, fewer do not."""
    single = struct.unpack("<f", struct.pack("<f", float(number)))[0]
    assert number.text.removesuffix(".0") == f"{single:.9g}", number.text
    return struct.pack("<f", single)


class Number(float):
    """A number of a JSON text that remembers how it was printed."""

    def __new__(cls, text):
        self = float.__new__(cls, text)
        self.text = text
        return self


def bits_of(logprobs):
    """[(bits of the chosen token's log-probability, {token: bits})] of completions' logprobs."""
    return [(as_float32(chosen), {t: as_float32(p) for t, p in top.items()})
            for chosen, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)]


def test_log_probabilities_come_back_bit_for_bit():
    with Server("--max-logprobs", "4096") as server:
        body = {"prompt": "The", "max_tokens": 3, "temperature": 0, "logprobs": 4096, "return_tokens_as_token_ids": True}
        reply = server.post("/v1/completions", body)
        logprobs = json.loads(reply.body, parse_float=Number)["choices"][0]["logprobs"]
        whole = bits_of(logprobs)
        assert len(whole) == 3
        for chosen, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
            assert len(top) == 4096
            assert abs(sum(math.exp(p) for p in top.values()) - 1) < 1e-3
            assert max(top.values()) == chosen
        # Printed, they differ as much as the floats do: hardly two of the 4096 are the same.
        assert all(len(set(top.values())) > 4000 for _, top in whole)
        streamed = []
        for event in server.stream("/v1/completions", body, parse_float=Number):
            streamed += [entry for choice in event["choices"] if choice["logprobs"]
                         for entry in bits_of(choice["logprobs"])]
        assert streamed == whole
        # The other protocol has the same numbers in binary.
        with Rpc(server) as rpc:
            error, result = rpc.call(1, "generate", body)
            assert error is None, error
            values = result["choices"][0]["logprobs"]["token_logprobs"]
            assert [struct.pack("<f", v) for v in values] == [chosen for chosen, _ in whole]
        chat = server.chat(messages=USER, max_tokens=3, temperature=0, logprobs=True, top_logprobs=5)
        for entry in chat["choices"][0]["logprobs"]["content"]:
            assert len(entry["top_logprobs"]) == 5 and entry["top_logprobs"][0]["logprob"] == entry["logprob"]
            assert "".join(chr(b) for b in entry["bytes"]).encode("latin-1").decode("utf-8", "replace") == entry["token"]


def test_echo_with_log_probabilities_of_the_prompt():
    with Server() as server:
        reply = server.complete(prompt="Once upon a time", max_tokens=0, echo=True, logprobs=2)
        choice = reply["choices"][0]
        assert choice["text"].endswith("Once upon a time")
        assert choice["logprobs"]["token_logprobs"][0] is None
        assert all(p <= 0 for p in choice["logprobs"]["token_logprobs"][1:])
        assert len(choice["logprobs"]["tokens"]) == reply["usage"]["prompt_tokens"]
        assert reply["usage"]["completion_tokens"] == 0


def test_seeds_repeat_and_choices_differ():
    with Server() as server:
        body = {"prompt": "Once", "max_tokens": 20, "seed": 42, "temperature": 1.0, "n": 4, "ignore_eos": True}
        first, second = (server.complete(**body) for _ in range(2))
        texts = [c["text"] for c in first["choices"]]
        assert texts == [c["text"] for c in second["choices"]]
        assert len(set(texts)) == 4
        unseeded = {server.complete(prompt="Once", max_tokens=20, temperature=1.0, ignore_eos=True)["choices"][0]["text"]
                    for _ in range(4)}
        assert len(unseeded) == 4
        # top_k 1 is greedy, whatever the seed.
        greedy = server.complete(prompt="Once", max_tokens=20, temperature=0, ignore_eos=True)["choices"][0]["text"]
        assert server.complete(prompt="Once", max_tokens=20, top_k=1, ignore_eos=True)["choices"][0]["text"] == greedy


def test_tokenize_and_detokenize_are_inverse():
    with Server() as server:
        text = "Caf\u00e9 \u4f60\u597d \U0001f600 <|im_end|> x"
        reply = server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json
        assert reply["count"] == len(reply["tokens"]) and reply["max_model_len"] == 1024
        assert server.post("/detokenize", {"tokens": reply["tokens"]}).json["prompt"] == text
        chat = server.post("/tokenize", {"messages": USER}).json
        assert chat["count"] > 5


def test_small_endpoints():
    with Server() as server:
        for path in ("/health", "/health/live", "/ping", "/version", "/metrics", "/", "/v1/models"):
            assert server.get(path).status == 200, path
        assert "version" in server.get("/version").json
        assert server.get("/nowhere").status == 404
        assert server.request("POST", "/health").status in (200, 405)
        reply = server.request("OPTIONS", "/v1/completions", headers={
            "Origin": "http://example.org", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"})
        assert reply.status in (200, 204) and reply.headers["Access-Control-Allow-Origin"] in ("*", "http://example.org")
        assert server.get("/v1/models", {"Origin": "http://example.org"}).headers["Access-Control-Allow-Origin"]


def test_a_browser_must_name_the_type_that_makes_it_ask_first():
    """Others may name any, or none."""
    body = json.dumps({"prompt": "x", "max_tokens": 1}).encode()
    page = {"Origin": "http://example.org"}
    with Server() as server:
        for kind, status in (("text/plain", 415), (None, 415), ("application/json; charset=utf-8", 200),
                             ("application/vnd.a+json", 200)):
            named = {"Content-Type": kind} if kind else {}
            for headers, expected in (({**page, **named}, status), (named, 200)):
                with contextlib.closing(server.connect()) as conn:
                    conn.request("POST", "/v1/completions", body, headers)
                    assert conn.getresponse().status == expected, headers


def test_an_api_key_guards_v1_alone():
    with Server(env={"WEFT_API_KEY": "secret"}) as server:
        assert server.get("/health").status == 200
        assert server.get("/v1/models").status == 401
        assert server.get("/v1/models", {"Authorization": "Bearer wrong"}).status == 401
        assert server.get("/v1/models", {"Authorization": "Bearer secret"}).status == 200
        for pid in server.children().values():
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                assert b"secret" not in f.read()


def test_a_request_has_an_id_that_its_client_may_choose():
    with Server() as server:
        ask = {"prompt": "Once", "max_tokens": 2}
        for given in ("abc-123", "trace/7:x=y+z@q.r_s~", "x" * 128):
            reply = server.post("/v1/completions", ask, {"X-Request-Id": given})
            assert reply.headers["X-Request-Id"] == given and reply.json["id"] == f"cmpl-{given}", reply.headers
        made = set()
        for unfit in (None, "", "x" * 129, "two words", 'quote"', "back\\slash", "\u00e9"):
            headers = {"X-Request-Id": unfit.encode("latin-1")} if unfit is not None else None
            reply = server.post("/v1/completions", ask, headers)
            made.add(reply.headers["X-Request-Id"])
            assert re.fullmatch("[0-9a-f]{16}", reply.headers["X-Request-Id"]), reply.headers
            assert reply.json["id"] == "cmpl-" + reply.headers["X-Request-Id"]
        assert len(made) == 7
        for path, status in (("/v1/completions", 400), ("/nothing", 404)):
            reply = server.post(path, {"prompt": []}, {"X-Request-Id": "mine"})
            assert reply.status == status and reply.headers["X-Request-Id"] == "mine"
            assert reply.json["request_id"] == "mine" and set(reply.json["error"]) == {
                "message", "type", "param", "code"}, reply.text
        assert server.get("/health", {"X-Request-Id": "probe"}).headers["X-Request-Id"] == "probe"


def test_the_first_answer_of_the_readme_is_the_one_it_shows():
    with open(os.path.join(harness.SOURCE_DIR, "README.md"), encoding="utf-8") as f:
        readme = f.read()
    body = json.loads(re.search(r"/v1/completions .*?-d '(\{.*?\})'", readme, re.DOTALL).group(1))
    shown = re.search(r'"text": "(.*?)", "finish_reason": "(\w+)"', readme, re.DOTALL)
    with Server() as server:
        choice = server.complete(**body)["choices"][0]
        assert choice["text"] == re.sub(r"\s*\n\s+", " ", shown.group(1)), choice
        assert choice["finish_reason"] == shown.group(2), choice


def test_expect_100_continue():
    with Server() as server:
        body = json.dumps({"prompt": "x", "max_tokens": 1}).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=harness.LIMIT_S) as sock:
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
                         % len(body))
            assert sock.recv(1000).startswith(b"HTTP/1.1 100")
            sock.sendall(body)
            assert b"200 OK" in sock.recv(1000)


def test_comments_keep_a_silent_stream_open():
    """The first token of a long prompt takes a long time: here, until the worker may go on."""
    body = {"prompt": [300] * 900, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    with Server("--sse-keepalive", "50", "--max-num-batched-tokens", "16") as server:
        whole = server.complete(**body)["choices"][0]["text"]
        conn = server.connect()
        with server.stopped():  # should it be replaced meanwhile, that is just as silent
            conn.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
            reply = conn.getresponse()
            assert reply.status == 200
            before = [reply.readline() for _ in range(8)]
        assert before == [b": keep-alive\n", b"\n"] * 4, before
        lines = [line for line in reply.read().split(b"\n") if line]
        conn.close()
        assert set(l for l in lines if not l.startswith(b"data: ")) <= {b": keep-alive"}, lines
        data = [l[6:] for l in lines if l.startswith(b"data: ")]
        assert data[-1] == b"[DONE]"
        assert "".join(json.loads(d)["choices"][0]["text"] for d in data[:-1]) == whole


def test_defaults_come_from_generation_config():
    """fable's generation_config.json asks for temperature 0.8: an unseeded request is sampled."""
    with Server() as server:
        texts = {server.complete(prompt="Once upon", max_tokens=24, ignore_eos=True)["choices"][0]["text"] for _ in range(4)}
        assert len(texts) > 1


def llama(server, **body):
    reply = server.post("/completion", body)
    assert reply.status == 200, (reply.status, reply.text, body)
    return reply.json


def llama_stream(server, **body):
    """The events of a stream as llama-server has them: the last one says stop, and there is no [DONE]."""
    text = server.post("/completion", {**body, "stream": True}).text
    events = [json.loads(e.removeprefix("data: ")) for e in text.split("\n\n") if e]
    assert [e["stop"] for e in events] == [False] * (len(events) - 1) + [True], text
    return events


def test_llama_servers_completion_says_what_openais_does():
    with Server() as server:
        for mine, openais in (({"temperature": 0, "n_predict": 40}, {"temperature": 0, "max_tokens": 40}),
                              ({"seed": 9, "n_predict": 60, "ignore_eos": True},  # top_p: generation_config.json's
                               {"seed": 9, "max_tokens": 60, "ignore_eos": True, "top_k": 40, "min_p": 0.05}),
                              ({"seed": 9, "n_predict": 30, "repeat_penalty": 1.3, "top_k": 0, "min_p": 0, "top_p": 1},
                               {"seed": 9, "max_tokens": 30, "repetition_penalty": 1.3, "top_p": 1})):
            for prompt in ("Once upon a time", [46, 1259, 572]):
                choice = server.complete(prompt=prompt, logprobs=2, return_tokens_as_token_ids=True, **openais)["choices"][0]
                whole = llama(server, prompt=prompt, n_probs=2, return_tokens=True, **mine)
                assert whole["content"] == choice["text"], (mine, whole)
                assert [f"token_id:{i}" for i in whole["tokens"]] == choice["logprobs"]["tokens"]
                probs = whole["completion_probabilities"]
                assert [p["id"] for p in probs] == whole["tokens"]
                assert [p["logprob"] for p in probs] == choice["logprobs"]["token_logprobs"]
                assert all(len(p["top_logprobs"]) == 2 and bytes(p["bytes"]).decode(errors="replace") == p["token"]
                           for p in probs)
                assert whole["stop_type"] == ("limit" if choice["finish_reason"] == "length" else "eos")
                assert whole["tokens_predicted"] == len(whole["tokens"]) == whole["timings"]["predicted_n"]
                for more in ({}, {"n_probs": 2}):
                    events = llama_stream(server, prompt=prompt, **mine, **more)
                    assert "".join(e["content"] for e in events) == whole["content"]
                    assert sum((e["tokens"] for e in events), []) == whole["tokens"]
                    assert sum((e.get("completion_probabilities", []) for e in events), []) == (probs if more else [])
                    for key in ("stop_type", "tokens_predicted", "tokens_evaluated", "prompt", "truncated", "model"):
                        assert events[-1][key] == whole[key], key


def test_llama_servers_completion_ends_as_it_was_told():
    with Server() as server:
        ask = {"prompt": "Once upon a time", "temperature": 0}
        free = llama(server, **ask, n_predict=60, ignore_eos=True)
        assert free["tokens"] == [] and free["prompt"].endswith("Once upon a time") and not free["truncated"]
        assert free["generation_settings"]["n_predict"] == 60 and free["generation_settings"]["temperature"] == 0
        stop = free["content"][25:32]
        cut = free["content"][: free["content"].index(stop)]
        events = llama_stream(server, **ask, n_predict=60, ignore_eos=True, stop=["never", stop])
        for last in (llama(server, **ask, n_predict=60, ignore_eos=True, stop=["never", stop]), events[-1]):
            assert last["stop_type"] == "word" and last["stopping_word"] == stop
        assert "".join(e["content"] for e in events) == cut
        full = llama(server, **ask, n_predict=-1, ignore_eos=True)
        assert full["truncated"] and full["tokens_evaluated"] + full["tokens_predicted"] == 1024
        assert llama(server, **ask, n_predict=5000, ignore_eos=True)["content"] == full["content"]
        none = llama(server, **ask, n_predict=0)
        assert none["content"] == "" and none["tokens_predicted"] == 0 and none["stop_type"] == "limit"
        first = llama(server, **ask, n_predict=1, return_tokens=True)["tokens"][0]
        for bias in ([[first, False]], {str(first): False}, {str(first): -100}):
            assert first not in llama(server, **ask, n_predict=30, return_tokens=True, logit_bias=bias)["tokens"]
        assert llama(server, **ask, n_predict=3, return_tokens=True, logit_bias=[[7, 100]])["tokens"] == [7] * 3


def test_llama_servers_completion_refuses_by_name():
    with Server() as server:
        for body, param in (({}, "prompt"), ({"prompt": ["a", 1]}, "prompt"), ({"prompt": ["a", "b"]}, "prompt"),
                            ({"prompt": "a", "samplers": ["topk"]}, "samplers"),
                            ({"prompt": "a", "logit_bias": [["x", 1]]}, "logit_bias"),
                            ({"prompt": "a", "n_predict": -2}, "n_predict"),
                            ({"prompt": "a " * 2000}, "prompt")):
            reply = server.post("/completion", body)
            assert reply.status == 400 and reply.json["error"]["param"] == param, (body, reply.text)
        assert server.get("/completion").status == 405 and server.post("/completions", {"prompt": "a"}).status == 404


def test_chat_templates_from_a_file_and_unsupported_ones():
    import os
    import subprocess
    import tempfile
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        template.write("{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}")
        template.flush()
        with Server("--chat-template", template.name) as server:
            mine = server.post("/tokenize", {"messages": USER, "add_generation_prompt": False}).json["tokens"]
            plain = server.post("/tokenize", {"prompt": "[user] " + USER[0]["content"] + "\n",
                                              "add_special_tokens": False}).json["tokens"]
            assert mine == plain
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        template.write("line one\n{% include 'other' %}")
        template.flush()
        done = subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "serve", harness.FABLE, "--port", "0",
                               "--rpc-port", "0", "--chat-template", template.name], capture_output=True, text=True,
                              timeout=harness.LIMIT_S, check=False)
        assert done.returncode == 1 and "include" in done.stderr and "line 2" in done.stderr, done.stderr
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        done = subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "serve", harness.FABLE, "--port", "0",
                               "--rpc-port", "0", "--chat-template", template.name], capture_output=True, text=True,
                              timeout=harness.LIMIT_S, check=False)
        assert done.returncode == 1 and f'"{template.name}" is empty' in done.stderr, done.stderr


def test_quantised_and_exact_models_serve():
    for model, args in ((harness.FABLE_Q8_0, ()),
                        (harness.DRAFT, ("--activations", "f32")), (harness.DRAFT, ("--dtype", "q8"))):
        with Server(*args, model=model) as server:
            assert server.complete(prompt="Once upon a time", max_tokens=8, ignore_eos=True)["usage"]["completion_tokens"] == 8


def test_metrics_count_what_happened():
    with Server() as server:
        before = server.metrics()
        server.complete(prompt="one two three", max_tokens=7, ignore_eos=True)
        server.stream("/v1/completions", {"prompt": "one two three", "max_tokens": 9, "ignore_eos": True})
        harness.wait_until("the counters", lambda: server.metric("weft_generation_tokens_total")
                           - sum(v for k, v in before.items() if k.startswith("weft_generation_tokens_total")) == 16)
        after = server.metrics()
        for name, value in (("weft_time_to_first_token_seconds_count", 2), ("weft_e2e_request_latency_seconds_count", 2),
                            ("weft_inter_token_latency_seconds_count", 14), ('weft_request_success_total{finished_reason="length"}', 2)):
            assert after.get(name, 0) - before.get(name, 0) == value, (name, after.get(name))
        assert all(v >= 0 for v in after.values())


def test_metrics_have_vllms_names():
    with Server() as server:
        server.complete(prompt="x", max_tokens=4)
        text = server.get("/metrics").text
        names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
                     "num_preemptions_total", "time_to_first_token_seconds", "inter_token_latency_seconds",
                     "e2e_request_latency_seconds", "prompt_tokens_total", "generation_tokens_total",
                     "request_success_total", "iteration_tokens", "worker_idle_seconds_total"):
            assert "weft_" + name in names, f"weft_{name} is missing"
    with Server("--metrics-prefix", "vllm:", check_idle=False) as server:
        assert "\nvllm:num_requests_running" in server.get("/metrics").text


if __name__ == "__main__":
    harness.main()
