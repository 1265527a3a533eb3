"""Anthropic's Messages API as its clients use it, by hand: the request of an agent, streams, errors, a kill.

The shape of Claude Code's request is written from what it sends; its texts are ours."""

import concurrent.futures
import json

import harness
from harness import Server

MESSAGES = "/v1/messages?beta=true"
HI = [{"role": "user", "content": "Tell me a story."}]
HEADERS = {"anthropic-version": "2023-06-01", "anthropic-beta": "interleaved-thinking-2025-05-14,context-management-2025-06-27"}


def tool(name, properties, required):
    return {"name": name, "description": f"The tool {name}.", "input_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": properties,
        "required": required, "additionalProperties": False}}


TOOLS = [
    tool("Bash", {"command": {"type": "string", "maxLength": 12}, "timeout": {"type": "number", "maximum": 600000},
                  "run_in_background": {"type": "boolean"}}, ["command"]),
    tool("Read", {"file_path": {"type": "string", "maxLength": 12}, "limit": {"type": "integer", "exclusiveMinimum": 0,
                                                                             "maximum": 9999}}, ["file_path"]),
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
]


def agents(**more):
    """The request of an agent in its second turn."""
    return {
        "model": "fable-6m", "max_tokens": 32000, "stream": True,
        "metadata": {"user_id": json.dumps({"device_id": "5" * 64, "account_uuid": "", "session_id": "e" * 36})},
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.0; cch=12345;"},
                   {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
                   {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "tools": TOOLS, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder>Monday.</system-reminder>"},
                                         {"type": "text", "text": "What is here?", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "I look.", "signature": "c2ln"}, {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_01", "name": "Bash", "input": {"command": "ls", "timeout": 5}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_01", "content": "a.txt", "is_error": False},
                {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}]}],
        **more}


def ask(server, body, path=MESSAGES):
    reply = server.post(path, body, HEADERS)
    assert reply.status == 200, (reply.status, reply.text)
    return reply.json


def events(server, body):
    """[(name, data)] of a stream."""
    reply = server.post(MESSAGES, {**body, "stream": True}, HEADERS)
    assert reply.status == 200 and reply.headers["Content-Type"].startswith("text/event-stream"), reply.text
    found = []
    for event in reply.text.removesuffix("\n\n").split("\n\n"):
        name, data = event.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        assert found[-1][0] == found[-1][1]["type"], event
    return found


def streamed(server, body):
    """The message that a stream's events make."""
    message, texts = None, {}
    for name, data in events(server, body):
        if name == "message_start":
            message = data["message"]
        elif name == "content_block_start":
            assert data["index"] == len(message["content"])
            message["content"].append(data["content_block"])
            texts[data["index"]] = ""
        elif name == "content_block_delta":
            kind = data["delta"].pop("type")
            (text,) = data["delta"].values()
            if kind == "input_json_delta":
                texts[data["index"]] += text
            else:
                key = kind.removesuffix("_delta")
                message["content"][data["index"]][key] += text
        elif name == "content_block_stop":
            block = message["content"][data["index"]]
            if block["type"] == "tool_use" and texts[data["index"]]:
                try:
                    block["input"] = json.loads(texts[data["index"]])
                except ValueError:
                    block["input"] = {}  # cut off
        elif name == "message_delta":
            message.update(data["delta"], usage=data["usage"])
        else:
            assert name in ("ping", "message_stop"), name
    assert name == "message_stop"
    return message


def told(message):
    return {key: message[key] for key in ("content", "stop_reason", "stop_sequence")}


def total(usage):
    return usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]


def test_an_agents_request_is_answered():
    with Server("--strict-fields") as server:
        n = ask(server, {key: value for key, value in agents().items() if key not in ("max_tokens", "stream", "metadata")},
                "/v1/messages/count_tokens?beta=true")["input_tokens"]
        whole = ask(server, agents(stream=False, temperature=0))
        assert total(whole["usage"]) == n
        assert whole["stop_reason"] in ("end_turn", "model_context_window_exceeded"), whole
        assert whole["usage"]["output_tokens"] <= 1024 - n
        assert told(streamed(server, agents(temperature=0))) == told(whole)
        more = ask(server, agents(stream=False, max_tokens=1))
        assert more["usage"]["cache_read_input_tokens"] > 0, more  # the header before the system's text is left out
        assert total(more["usage"]) == n and more["stop_reason"] == "max_tokens"


def test_calls_alike_whole_and_streamed():
    with Server() as server:
        def one(seed):
            body = {"model": "fable-6m", "max_tokens": 90, "messages": HI, "tools": TOOLS, "seed": seed, "temperature": 1.2,
                    "tool_choice": {"type": "any", "disable_parallel_tool_use": seed % 2 == 0}}
            whole, stream = ask(server, body), streamed(server, body)
            assert told(whole) == told(stream), (whole, stream)
            calls = [block for block in whole["content"] if block["type"] == "tool_use"]
            if whole["stop_reason"] == "tool_use":
                assert calls and (seed % 2 or len(calls) == 1)
                assert all(("command" if call["name"] == "Bash" else "file_path") in call["input"] for call in calls)
            else:
                assert whole["stop_reason"] == "max_tokens"
            return whole["stop_reason"], whole["content"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(one, range(24)))
        reasons = [reason for reason, _ in answers]
        assert "tool_use" in reasons, reasons


def test_a_cut_off_call_leaves_valid_json():
    with Server() as server:
        body = {"model": "fable-6m", "messages": HI, "tools": TOOLS[:1], "seed": 1, "temperature": 1.2,
                "tool_choice": {"type": "tool", "name": "Bash"}}
        n_empty = 0
        for n in range(1, 40, 3):
            message = ask(server, {**body, "max_tokens": n})
            for block in message["content"]:
                if block["type"] == "tool_use" and message["stop_reason"] == "max_tokens":
                    n_empty += block["input"] == {}
            assert told(streamed(server, {**body, "max_tokens": n})) == told(message), n
        assert n_empty > 0


def test_the_answer_goes_on_with_its_beginning():
    with Server() as server:
        body = {"model": "fable-6m", "messages": HI, "temperature": 0}
        whole = ask(server, {**body, "max_tokens": 20})["content"][0]["text"]
        begun = whole[:len(whole) // 2].rstrip()
        more = ask(server, {**body, "max_tokens": 20, "messages": [*HI, {"role": "assistant", "content": begun}]})
        assert (begun + more["content"][0]["text"])[:len(whole)] == whole, (begun, more, whole)


def test_errors_have_anthropics_shape():
    with Server("--api-key", "secret") as server:
        key = {"x-api-key": "secret"}
        body = {"model": "fable-6m", "max_tokens": 4, "messages": HI}
        cases = [
            ({}, key, 400, "invalid_request_error"),
            ({**body, "model": "other"}, key, 404, "not_found_error"),
            (body, {}, 401, "authentication_error"),
            (body, {"x-api-key": "wrong"}, 401, "authentication_error"),
            (body, {"Authorization": "Bearer wrong", **key}, 401, "authentication_error"),
            ({**body, "messages": [{"role": "user", "content": "x " * 40000}]}, key, 400, "invalid_request_error"),
            (b"{", key, 400, "invalid_request_error"),
        ]
        for path in MESSAGES, "/v1/messages/count_tokens":
            for sent, headers, status, kind in cases:
                reply = server.post(path, sent, headers)
                if path != MESSAGES and status == 400 and sent not in ({}, b"{"):
                    assert reply.status == 200 and reply.json["input_tokens"] > 1024
                    continue
                assert reply.status == status, (path, sent, reply.text[:500])
                assert reply.json["type"] == "error" and reply.json["error"]["type"] == kind, reply.text
                assert reply.json["error"]["message"] and reply.json["request_id"] == reply.headers["request-id"]
        for headers in key, {"Authorization": "Bearer secret"}:
            assert server.post(MESSAGES, body, headers).json["type"] == "message"
        assert server.get("/v1/messages", key).json["error"]["type"] == "invalid_request_error"
        assert server.post("/v1/messages/batches", {}, key).json["error"]["type"] == "not_found_error"


def mutated(rng, value, depth=0):
    """The value with one of its parts replaced by something else."""
    junk = [None, True, -1, 1e300, "", "\0", "x" * 3000, [], {}, [[]], {"type": "text"}, {"type": "image"}, {"role": "user"}]
    if depth and rng.random() < 0.3 or not isinstance(value, (dict, list)) or not value:
        return rng.choice(junk)
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    copy = value.copy()
    copy[key] = mutated(rng, value[key], depth + 1)
    return copy


def test_faulty_conversations_are_refused_and_hurt_nobody():
    rng = harness.rng()
    with Server() as server:
        n_refused = 0
        for _ in range(600):
            reply = server.post(MESSAGES, mutated(rng, agents(stream=rng.random() < 0.2, max_tokens=2)), HEADERS)
            n_refused += reply.status == 400
            assert reply.status in (200, 400, 404), reply.text
            if reply.status != 200:
                assert reply.json["error"]["message"] and reply.json["type"] == "error", reply.text
        assert n_refused > 60, n_refused
        called = [{"type": "tool_use", "id": str(i), "name": "Bash", "input": {}} for i in range(20000)]
        results = [{"type": "tool_result", "tool_use_id": str(i), "content": [{"type": "text", "text": "x"}]}
                   for i in range(20000)]
        for messages in ([{"role": "user", "content": [{"type": "text", "text": "a"}] * 100000}],
                         [{"role": ["user", "system"][i % 2], "content": "a"} for i in range(100000)],
                         [{"role": ["user", "assistant"][i % 2], "content": "a"} for i in range(100000)],
                         [*HI, {"role": "assistant", "content": called}, {"role": "user", "content": results}]):
            reply = server.post(MESSAGES, {"max_tokens": 2, "messages": messages}, HEADERS)
            assert reply.status == 400 and "context length" in reply.json["error"]["message"], reply.text[:500]
        ask(server, agents(stream=False, max_tokens=2))


def test_a_stream_goes_on_after_the_worker_was_killed():
    with Server("--restart-grace", "3600000") as server:
        body = {"model": "fable-6m", "max_tokens": 800, "messages": HI, "seed": 4, "temperature": 1, "ignore_eos": True}
        expected = ask(server, body)

        def run():
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                later = pool.submit(streamed, server, body)
                harness.wait_until("the stream to run", lambda: server.metric("weft_num_requests_running") > 0
                                   or later.done())
                server.kill("worker")
                was_over = later.done()
                assert told(later.result()) == told(expected)
            harness.wait_until("the worker to be back", lambda: server.metric("weft_serving") == 1)
            if was_over:
                raise harness.Void("the stream was over already")
        harness.attempt(run)


if __name__ == "__main__":
    harness.main()
