"""How, and for whom, requests are to be served: fields, headers, refusals, best_of, and the cache that is reset."""

import contextlib
import json
import tempfile

import harness
from harness import Call, Server, Void
from rpc import Rpc

MESSAGES = [{"role": "user", "content": "Hi"}]
ENDPOINTS = (("/v1/completions", {"prompt": "a", "max_tokens": 1}),
             ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1}),
             ("/completion", {"prompt": "a", "n_predict": 1}),
             ("/api/generate", {"prompt": "a", "stream": False, "options": {"num_predict": 1}}),
             ("/api/chat", {"messages": MESSAGES, "stream": False, "options": {"num_predict": 1}}))
HEADERS = {"x-llm-d-slo-ttft-ms": "200", "X-LLM-D-SLO-TPOT-MS": "50.5", "x-llm-d-inference-fairness-id": "someone"}
FIELDS = {"priority": -3, "timeout": 60, "slo_ttft_ms": 1000, "slo_tpot_ms": 0, "user": "me", "fairness_id": "us",
          "cache_salt": "pepper"}
WRONG_FIELDS = {"priority": 1 << 31, "timeout": 0, "slo_ttft_ms": -1, "slo_tpot_ms": "50", "user": 7,
                "fairness_id": ["us"], "cache_salt": ""}
WRONG_HEADERS = {"x-llm-d-slo-ttft-ms": "soon", "x-llm-d-slo-tpot-ms": "-1", "x-llm-d-inference-fairness-id": "u" * 257}


def message_of(reply):
    error = reply.json["error"]
    return error if isinstance(error, str) else error["message"]


def test_every_endpoint_takes_them_and_refuses_what_makes_no_sense():
    settings = ("--scheduling-policy", "edf", "--max-queued-tokens", "100000", "--no-prefix-cache",
                "--queue-timeout", "60000", "--run-timeout", "60000")
    with Server(*settings) as server, Rpc(server) as rpc:
        for path, body in ENDPOINTS:
            reply = server.post(path, {**body, **FIELDS}, HEADERS)
            assert reply.status == 200, (path, reply.text)
            for name, value in WRONG_FIELDS.items():
                reply = server.post(path, {**body, name: value})
                assert reply.status == 400 and f"'{name}' must" in message_of(reply), (path, reply.text)
            for name, value in WRONG_HEADERS.items():
                reply = server.post(path, body, {name: value})
                assert reply.status == 400 and f"'{name}' must" in message_of(reply), (path, reply.text)
        for method, (_, body) in zip(("generate", "chat"), ENDPOINTS):
            assert rpc.call(1, method, {**body, **FIELDS})[0] is None
            for name, value in WRONG_FIELDS.items():
                error = rpc.call(2, method, {**body, name: value})[0]
                assert error[0] == "invalid_request_error" and f"'{name}' must" in error[1], error


def test_a_request_ends_when_its_own_time_is_over():
    with Server() as server, Rpc(server) as rpc:
        def run():
            with server.stopped():
                reply = server.post("/v1/completions", {"prompt": "a", "timeout": 0.2})
                assert reply.status == 504 and reply.json["error"]["code"] == "request_timeout", reply.text
                error = rpc.call(1, "generate", {"prompt": "a", "timeout": 0.2})[0]
                assert error[0] == "timeout_error", error
        harness.attempt(run)


def test_refusals_say_when_to_come_again_and_why():
    with Server("--max-queue", "1", "--max-num-seqs", "1") as server, Rpc(server) as rpc:
        harness.attempt(lambda: fill_the_queue(server, rpc))


def fill_the_queue(server, rpc):
    server.wait_idle()
    body = {"prompt": "x", "max_tokens": 5, "ignore_eos": True}
    with contextlib.ExitStack() as open_ones:
        conns = []
        with server.stopped() as still:
            for name in ("running", "waiting"):
                conns.append(open_ones.enter_context(contextlib.closing(server.connect())))
                conns[-1].request("POST", "/v1/completions", json.dumps(body))
                still.wait_until(name, lambda name=name: server.metric(f"weft_num_requests_{name}") == 1)
            reply = server.post("/v1/completions", body)
            assert reply.status == 429, reply.text
            counted = 'weft_requests_dropped_total{reason="queue_full"}'
            dropped = server.metrics()[counted]
            ms = int(reply.headers["retry-after-ms"])
            assert int(reply.headers["Retry-After"]) == (ms + 999) // 1000 > 0, reply.headers
            assert reply.headers["x-llm-d-request-dropped-reason"] == reply.json["error"]["code"] == "queue_full"
            error = rpc.call(1, "generate", body)[0]
            assert dropped >= 1 and server.metrics()[counted] == dropped + 1
            assert error[0] == "rate_limit_error" and "(reason: queue_full, retry_after_ms: " in error[1], error
        for conn in conns:
            assert conn.getresponse().status == 200


def mean_logprob(choice):
    values = choice["logprobs"]["token_logprobs"]
    return sum(values) / len(values)


def test_best_of_shows_the_likeliest_choices_and_counts_all():
    with Server() as server, Rpc(server) as rpc:
        for prompts in (["Once upon a time"], ["Once upon a time", "The sea"]):
            body = {"prompt": prompts, "max_tokens": 24, "seed": 5, "temperature": 1, "stop": ["."]}
            every = server.complete(**body, n=6, logprobs=0)
            want = []
            for i in range(len(prompts)):
                want += sorted(every["choices"][6 * i:6 * i + 6], key=mean_logprob, reverse=True)[:2]
            best = server.complete(**body, n=2, best_of=6)
            assert [c["text"] for c in best["choices"]] == [c["text"] for c in want], (best, want)
            assert [c["index"] for c in best["choices"]] == list(range(2 * len(prompts)))
            assert all(c["logprobs"] is None for c in best["choices"])
            assert best["usage"]["completion_tokens"] == every["usage"]["completion_tokens"]
            shown = server.complete(**body, n=2, best_of=6, logprobs=1)
            assert [c["text"] for c in shown["choices"]] == [c["text"] for c in want]
            assert [mean_logprob(c) for c in shown["choices"]] == [mean_logprob(c) for c in want]
            error, result = rpc.call(1, "generate", {**body, "n": 2, "best_of": 6})
            assert error is None and result["choices"] == best["choices"], (error, result)
        assert len(server.complete(prompt="a", max_tokens=1, n=2, best_of=0)["choices"]) == 2
        assert server.post("/v1/completions", {"prompt": "a", "n": 0}).json["error"]["param"] == "n"
        for wrong in ({"n": 2, "best_of": 1}, {"best_of": 129}, {"best_of": 2, "stream": True}):
            reply = server.post("/v1/completions", {"prompt": "a", **wrong})
            assert reply.status == 400 and reply.json["error"]["param"] == "best_of", reply.text


def test_best_of_survives_the_loss_of_worker_and_scheduler():
    with Server() as server:
        body = {"prompt": "Once upon a time", "n": 2, "best_of": 4, "max_tokens": 400, "seed": 7, "ignore_eos": True}
        want = server.complete(**body)
        harness.attempt(lambda: lose_both(server, body, want))


def lose_both(server, body, want):
    server.wait_idle()
    n_before = server.metric("weft_generation_tokens_total")
    call = Call(lambda: server.complete(**body))
    harness.wait_until("its first tokens", lambda: server.metric("weft_generation_tokens_total") > n_before + 20)
    server.kill("worker", "scheduler")
    if call.is_done:
        raise Void("it had ended before anything was lost")
    answer = call.result()
    assert answer["choices"] == want["choices"] and answer["usage"]["completion_tokens"] == 1600, (answer, want)


def test_the_prefix_cache_is_reset_by_an_admin():
    with Server(env={"WEFT_API_KEY": "k"}) as server, Rpc(server) as rpc:
        assert server.post("/reset_prefix_cache", b"").status == 401
        reply = server.post("/reset_prefix_cache", b"", {"Authorization": "Bearer k"})
        assert reply.status == 200 and reply.body == b"", (reply.status, reply.text)
        assert rpc.call(1, "reset_prefix_cache")[0][0] == "authentication_error"
        assert rpc.call(2, "reset_prefix_cache", {"api_key": "k"}) == [None, {}]
        assert server.get("/reset_prefix_cache").status == 405
        reply = server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, {"Authorization": "Bearer k"})
        assert reply.status == 200, reply.text
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write("boss name=operator admin\nguest weight=2\n")
        keys.flush()
        with Server("--api-key-file", keys.name) as server, Rpc(server) as of_guest, Rpc(server) as of_boss:
            reply = server.post("/reset_prefix_cache", b"", {"Authorization": "Bearer guest"})
            assert reply.status == 403 and reply.json["error"]["code"] == "admins_only", reply.text
            assert reply.json["error"]["type"] == "permission_error", reply.text
            assert server.post("/reset_prefix_cache", b"", {"Authorization": "Bearer boss"}).status == 200
            for key in "guest", "boss":  # the key that admitted the connection counts
                assert of_guest.call(1, "reset_prefix_cache", {"api_key": key})[0][0] == "permission_error"
            assert of_boss.call(1, "reset_prefix_cache", {"api_key": "boss"}) == [None, {}]
            assert of_guest.call(2, "generate", {"prompt": "a", "max_tokens": 1})[0] is None
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write("guest weight=2\n")
        keys.flush()
        with Server("--api-key-file", keys.name) as server:  # without an admin each key may
            assert server.post("/reset_prefix_cache", b"", {"Authorization": "Bearer guest"}).status == 200


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_what_is_cached_is_told_everywhere_and_kept_apart_by_salts():
    prompt = list(range(100, 164))
    with Server() as server, Rpc(server) as rpc:
        def ask(**more):
            return cached(server.complete(prompt=prompt, max_tokens=1, **more))
        assert ask() == 0 and ask() > 0
        assert ask(cache_salt="a") == 0 and ask(cache_salt="a") > 0 and ask(cache_salt="b") == 0
        n = ask()
        events = server.stream("/v1/completions", {"prompt": prompt, "max_tokens": 1,
                                                   "stream_options": {"include_usage": True}})
        assert cached(events[-1]) == n, events[-1]
        llama = server.post("/completion", {"prompt": prompt, "n_predict": 1}).json
        assert llama["tokens_cached"] == llama["timings"]["cache_n"] == n, llama
        assert llama["timings"]["prompt_n"] == len(prompt) - n, llama
        assert cached(rpc.call(1, "generate", {"prompt": prompt, "max_tokens": 1})[1]) == n
        body = {"messages": [{"role": "user", "content": "Tell me about the sea. " * 8}], "max_tokens": 1}
        n_chat = (cached(server.chat(**body)), cached(server.chat(**body)))
        assert n_chat[0] < n_chat[1], n_chat
        events = server.stream("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
        assert cached(events[-1]) == n_chat[1] == cached(rpc.call(2, "chat", body)[1]), n_chat
        assert server.post("/reset_prefix_cache", b"").status == 200
        assert ask() == 0 and ask() == n
        m = server.metrics()
        assert 0 < m["weft_prefix_cache_hits_total"] < m["weft_prefix_cache_queries_total"] == m["weft_prompt_tokens_total"], m
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write("old name=one\nnew name=one\nother name=two\n")
        keys.flush()
        with Server("--api-key-file", keys.name, "--prefix-cache-per-key") as server:
            def ask_as(key):
                return cached(server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1},
                                          {"Authorization": f"Bearer {key}"}).json)
            assert ask_as("old") == 0 and ask_as("new") == n and ask_as("other") == 0 and ask_as("other") == n
    with Server("--no-prefix-cache") as server:
        for _ in range(2):
            assert cached(server.complete(prompt=prompt, max_tokens=1)) == 0


if __name__ == "__main__":
    harness.main()
