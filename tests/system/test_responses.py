"""/v1/responses: whole answers and events, tools, what is kept and for whom, and what Codex sends."""

import collections
import concurrent.futures
import json
import os
import random
import tempfile
import time

import jsonschema

import harness
from harness import Server

PARAMETERS = {"type": "object", "properties": {"location": {"type": "string", "maxLength": 10}}, "required": ["location"],
              "additionalProperties": False}
WEATHER = {"type": "function", "name": "get_weather", "description": "What it is like.", "strict": True,
           "parameters": PARAMETERS}
ASK = {"input": "Oslo?", "max_output_tokens": 40, "temperature": 1.0, "seed": 1}


def respond(server, **fields):
    reply = server.post("/v1/responses", {**ASK, **fields})
    assert reply.status == 200, reply.text
    return reply.json


def refused(server, status, headers=None, **fields):
    reply = server.post("/v1/responses", {**ASK, **fields}, headers)
    assert reply.status == status, (reply.status, reply.text)
    return reply.json["error"]


def events_of(reply):
    """Each event of a stream, whose name is its type and whose number is one more than that before it."""
    events = []
    for block in reply.text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        (name, data) = lines
        event = json.loads(data.removeprefix("data: "))
        assert name == "event: " + event["type"] and event["sequence_number"] == len(events), block
        events.append(event)
    return events


def stream(server, **fields):
    reply = server.post("/v1/responses", {**ASK, **fields, "stream": True})
    assert reply.status == 200 and reply.headers["Content-Type"].startswith("text/event-stream"), reply.text
    return events_of(reply)


def built(events):
    """The response that the events tell, put together from their deltas; whatever they tell again must be the same."""
    output, text = [], ""
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0]["response"]["output"] == [] and events[0]["response"]["status"] == "in_progress"
    for event in events[2:-1]:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(output) and event["item"]["status"] == "in_progress"
            output.append(event["item"])
            text = ""
        elif kind == "response.content_part.added":
            output[-1]["content"].append(event["part"])
        elif kind.endswith(".delta"):
            assert event["item_id"] == output[-1]["id"]
            text += event["delta"]
        elif kind == "response.content_part.done":
            assert event["part"]["text"] == text
            output[-1]["content"] = [event["part"]]
        elif kind == "response.output_item.done":
            assert {**output[-1], "status": event["item"]["status"]} == event["item"], (output[-1], event)
            output[-1] = event["item"]
        else:
            assert kind.endswith(".done") and event.get("text", event.get("arguments")) == text, event
            if "arguments" in event:
                output[-1]["arguments"] = text
    last = events[-1]["response"]
    assert events[-1]["type"] == "response." + last["status"] and last["output"] == output, (last["output"], output)
    return last


def without_ids(response):
    """What two answers to one request have in common."""
    text = json.dumps({key: response[key] for key in ("status", "incomplete_details", "output", "tools")})
    for item in response["output"]:
        text = text.replace(item["id"], item["type"])
    usage = response["usage"]
    return text, usage["input_tokens"], usage["output_tokens"], usage["output_tokens_details"]


def test_streams_tell_what_bodies_have():
    with Server() as server:
        for fields in ({}, {"instructions": "Be kind."}, {"tools": [WEATHER], "tool_choice": "required", "max_output_tokens": 120},
                       {"tools": [WEATHER], "tool_choice": "required", "max_output_tokens": 9}, {"max_output_tokens": 1},
                       {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]}):
            body = respond(server, **fields)
            assert without_ids(built(stream(server, **fields))) == without_ids(body), fields
            assert body["object"] == "response" and body["id"].startswith("resp_") and body["store"] is False
            assert body["usage"]["total_tokens"] == body["usage"]["input_tokens"] + body["usage"]["output_tokens"]
            is_cut = body["usage"]["output_tokens"] == body["max_output_tokens"]
            assert body["status"] == ("incomplete" if is_cut else "completed"), body


def test_calls_fit_their_schemas_and_results_go_back():
    with Server() as server:
        for seed in range(6):
            body = respond(server, tools=[{"type": "web_search"}, WEATHER, {"type": "custom", "name": "patch"}], seed=seed,
                           tool_choice="required", max_output_tokens=150)
            calls = [item for item in body["output"] if item["type"] == "function_call"]
            assert calls or body["status"] == "incomplete", body
            for call in calls:
                if call["status"] == "completed":
                    jsonschema.validate(json.loads(call["arguments"]), PARAMETERS)
                assert call["name"] == "get_weather" and call["call_id"].startswith("call_"), call
            if body["status"] != "completed":
                continue
            results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "cold"} for call in calls]
            items = [{"role": "user", "content": "Oslo?"}, *body["output"], *results]
            again = respond(server, input=items, tools=[WEATHER])
            assert again["usage"]["input_tokens"] > body["usage"]["input_tokens"]


def test_a_call_that_a_stop_string_has_cut_is_incomplete():
    with Server() as server:
        fields = {"tools": [WEATHER], "tool_choice": "required", "max_output_tokens": 120, "stop": ['"location"']}
        body = respond(server, **fields)
        assert body["output"][-1]["arguments"] == "{" and body["output"][-1]["status"] == "incomplete", body
        assert body["status"] == "completed", body
        assert without_ids(built(stream(server, **fields))) == without_ids(body)


def test_thoughts_are_items_of_their_own():
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant><think>\n{# </think> #}"
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        template.write(source)
        template.flush()
        with Server("--chat-template", template.name) as server:
            body = respond(server, max_output_tokens=12, reasoning={"effort": "low", "summary": "auto"})
            assert [item["type"] for item in body["output"]] == ["reasoning"], body
            assert body["output"][0]["content"][0]["type"] == "reasoning_text" and body["output"][0]["summary"] == []
            assert body["usage"]["output_tokens_details"]["reasoning_tokens"] == 12
            assert without_ids(built(stream(server, max_output_tokens=12))) == without_ids(body)


def test_formats_and_log_probabilities():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"],
              "additionalProperties": False}
    with Server() as server:
        text = {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}, "verbosity": "low"}
        body = respond(server, text=text)
        jsonschema.validate(json.loads(body["output"][0]["content"][0]["text"]), schema)
        assert body["text"] == text
        body = respond(server, include=["message.output_text.logprobs", "reasoning.encrypted_content"], top_logprobs=2)
        part = body["output"][0]["content"][0]
        told = bytes(byte for entry in part["logprobs"] for byte in entry["bytes"]).decode()
        assert told.startswith(part["text"]) and all(len(entry["top_logprobs"]) == 2 for entry in part["logprobs"]), body
        events = stream(server, include=["message.output_text.logprobs"], top_logprobs=2)
        entries = [entry for event in events if event["type"] == "response.output_text.delta" for entry in event["logprobs"]]
        assert entries == part["logprobs"]
        assert respond(server)["output"][0]["content"][0]["logprobs"] == []


CODEX = {  # what its requests have, with a conversation that holds each kind of item it sends
    "model": "fable-6m", "instructions": "You are a coding agent. Do what is asked.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>read only"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<cwd>/src</cwd>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I list them"}], "content": None,
         "encrypted_content": "bm8="},
        {"type": "function_call", "name": "shell", "arguments": "{\"command\":[\"ls\"]}", "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "a.c"},
        {"type": "local_shell_call", "call_id": "call_2", "status": "completed",
         "action": {"type": "exec", "command": ["ls"], "timeout_ms": None, "working_directory": None, "env": None, "user": None}},
        {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "b.c"}]},
        {"type": "custom_tool_call", "status": "completed", "call_id": "call_3", "name": "apply_patch", "input": "*** x"},
        {"type": "custom_tool_call_output", "call_id": "call_3", "output": "done"},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "c"}},
        {"type": "ghost_snapshot", "ghost_commit": {"id": "0"}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two files."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ],
    "tools": [
        {"type": "function", "name": "shell", "description": "Runs a command.", "strict": False, "parameters": {
            "type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}},
                                             "workdir": {"type": "string"}, "timeout_ms": {"type": "number"}},
            "required": ["command"], "additionalProperties": False}},
        {"type": "local_shell"}, {"type": "web_search", "external_web_access": False},
        {"type": "custom", "name": "apply_patch", "description": "Edits files.",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
        {"type": "namespace", "name": "mcp", "tools": []},
    ],
    "tool_choice": "auto", "parallel_tool_calls": False, "reasoning": {"effort": "medium", "summary": "auto"}, "store": False,
    "stream": True, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0b5f", "text": {"verbosity": "medium"},
    "client_metadata": {"x": "y"},
}


def test_requests_of_codex_are_answered():
    with Server() as server:
        last = built(stream(server, **{**CODEX, "max_output_tokens": 20}))
        assert last["usage"]["output_tokens"] > 0 and last["tools"] == CODEX["tools"] and last["store"] is False
        with_schema = {"format": {"type": "json_schema", "strict": True, "schema": PARAMETERS, "name": "codex_output_schema"}}
        built(stream(server, **{**CODEX, "max_output_tokens": 20, "text": with_schema}))
    shared = os.path.join(os.environ.get("WEFT_SHARED_DIR", ""), "templates")
    for name in ("Qwen-Qwen3-0.6B", "LFM2-8B-A1B", "GLM-4.6"):
        path = os.path.join(shared, name + ".jinja")
        if os.path.exists(path):
            with Server("--chat-template", path) as server:
                reply = server.post("/v1/responses", {**CODEX, "stream": False, "max_output_tokens": 4, "truncation": "auto"})
                assert reply.status == 200, (name, reply.text)


def test_a_conversation_that_is_kept_goes_on():
    with Server("--responses-store", "4MiB", "--responses-ttl", "3") as server:
        first = respond(server, input="Hello", instructions="Be kind.", metadata={"a": "b"})
        path = "/v1/responses/" + first["id"]
        assert first["store"] is True and server.get(path).json == first
        second = respond(server, input="And you?", previous_response_id=first["id"])
        said = {"role": "assistant", "content": first["output"][0]["content"][0]["text"]}
        same = respond(server, input=[{"role": "user", "content": "Hello"}, said, {"role": "user", "content": "And you?"}],
                       store=False)
        assert same["store"] is False and server.get("/v1/responses/" + same["id"]).status == 404
        assert without_ids(second)[:3] == without_ids(same)[:3] and second["previous_response_id"] == first["id"]
        last = built(stream(server, input="So?", previous_response_id=second["id"]))
        assert server.get("/v1/responses/" + last["id"]).json == last
        deleted = server.request("DELETE", path)
        assert deleted.json == {"id": first["id"], "object": "response", "deleted": True}
        assert server.get(path).status == server.request("DELETE", path).status == 404
        assert respond(server, previous_response_id=second["id"])  # which has all of it
        error = refused(server, 404, previous_response_id=first["id"])
        assert error["code"] == "previous_response_not_found" and first["id"] in error["message"], error
        time.sleep(3.2)
        refused(server, 404, previous_response_id=second["id"])


def test_without_a_store_nothing_is_kept():
    with Server() as server:
        body = respond(server, store=True)
        assert body["store"] is False
        reply = server.get("/v1/responses/" + body["id"])
        assert reply.status == 404 and "--responses-store" in reply.json["error"]["message"]
        error = refused(server, 400, previous_response_id=body["id"])
        assert error["param"] == "previous_response_id" and "--responses-store" in error["message"], error


def test_what_is_kept_is_its_keys_alone():
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write("one-key name=one\ntwo-key name=two\nnew-key name=one\n")
        keys.flush()
        with Server("--api-key-file", keys.name, "--responses-store", "4MiB") as server:
            def bearer(name):
                return {"Authorization": f"Bearer {name}-key"}
            mine = server.post("/v1/responses", ASK, bearer("one")).json["id"]
            path, unknown = "/v1/responses/" + mine, "resp_" + "0" * 32
            assert server.get(path, bearer("one")).status == server.get(path, bearer("new")).status == 200
            assert server.get(path + "/input_items", bearer("one")).json["error"]["code"] == "not_found"

            def told(reply, name):
                return reply.status, reply.text.replace(name, "X").replace(reply.json["request_id"], "Y")
            for method in ("GET", "DELETE"):
                ours, nobodys = (server.request(method, "/v1/responses/" + name, headers=bearer("two"))
                                 for name in (mine, unknown))
                assert told(ours, mine) == told(nobodys, unknown) and ours.status == 404
            ours, nobodys = (server.post("/v1/responses", {**ASK, "previous_response_id": name}, bearer("two"))
                             for name in (mine, unknown))
            assert told(ours, mine) == told(nobodys, unknown) and ours.status == 404
            assert server.get(path).status == server.request("DELETE", path).status == 401
            assert server.get(path, bearer("one")).status == 200


def test_the_store_stays_within_its_bytes():
    with Server("--responses-store", "256KiB") as server:
        kept = []
        for i in range(40):
            kept.append(respond(server, input="a " * 200, instructions="x" * 8000, max_output_tokens=2, truncation="auto")["id"])
            assert server.get("/v1/responses/" + kept[-1]).status == 200
        there = [server.get("/v1/responses/" + name).status == 200 for name in kept]
        assert there == sorted(there) and 5 < sum(there) < 33, there  # the newest
        large = respond(server, instructions="x" * 70000, max_output_tokens=1, truncation="auto")
        assert server.get("/v1/responses/" + large["id"]).status == 404  # over a quarter of it


def test_what_cannot_be_honoured_is_refused():
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]
    cases = [({"input": None}, "input"), ({"input": []}, "input"), ({"input": 5}, "input"), ({"input": [5]}, "input[0]"),
             ({"input": image}, "input[0].content"), ({"input": [{"role": "x", "content": "y"}]}, "input[0].role"),
             ({"background": True}, "background"), ({"conversation": "c"}, "conversation"), ({"prompt": {"id": "p"}}, "prompt"),
             ({"tools": {}}, "tools"), ({"tools": [5]}, "tools"), ({"tool_choice": "required"}, "tool_choice"),
             ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
             ({"text": {"format": {"type": "x"}}}, "text"), ({"text": "x"}, "text"), ({"reasoning": "x"}, "reasoning"),
             ({"truncation": "x"}, "truncation"), ({"include": "x"}, "include"), ({"top_logprobs": 99}, "top_logprobs"),
             ({"max_output_tokens": 0}, "max_output_tokens"), ({"metadata": 5}, "metadata"), ({"store": "x"}, "store"),
             ({"instructions": "x" * 20000}, "input"), ({"stream": "yes"}, "stream")]
    with Server() as server:
        for fields, param in cases:
            error = refused(server, 400, **fields)
            assert error["param"] == param and error["message"], (fields, error)
        assert server.get("/v1/responses").status == 405 and server.request("DELETE", "/v1/responses").status == 405
        assert server.get("/v1/responses/").status == 404


def mangled(dice, value):
    """Another value of about the same shape."""
    if isinstance(value, dict) and dice.random() < 0.99:
        return {key: mangled(dice, one) for key, one in value.items() if dice.random() < 0.99}
    if isinstance(value, list) and dice.random() < 0.99:
        return [mangled(dice, one) for one in value if dice.random() < 0.97] * dice.choice([1, 1, 1, 2])
    if dice.random() < 0.99:
        return value
    return dice.choice([None, True, -1, 1e9, "", "x", [], {}, [None], {"type": "x"}, "\0", {"type": []}, [[[]]]])


def test_mangled_requests_are_answered_or_refused():
    with Server("--responses-store", "64KiB", "--responses-ttl", "1") as server:
        known = ["resp_x"]

        def ask(seed):
            dice = random.Random(seed)
            whole = {**CODEX, "max_output_tokens": 3, "temperature": 0.5, "previous_response_id": dice.choice(known),
                     "truncation": "auto"}
            body = {key: mangled(dice, value) for key, value in whole.items()}
            body["stream"] = dice.random() < 0.3
            if dice.random() < 0.7:
                body.pop("previous_response_id", None)
            reply = server.post("/v1/responses", body)
            assert reply.status in (200, 400, 404), (seed, reply.status, reply.text)
            if reply.status == 200 and body["stream"]:
                built(events_of(reply))
            elif reply.status == 200:
                known.append(reply.json["id"])
            return reply.status

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            statuses = list(pool.map(ask, range(400)))
        assert statuses.count(200) > 20 and statuses.count(400) > 20, collections.Counter(statuses)


if __name__ == "__main__":
    harness.main()
