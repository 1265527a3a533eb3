"""Tools and reasoning in chats: what may be called, what templates are given, what comes back and how."""

import glob
import json
import os
import subprocess
import tempfile

import harness
import rpc
from harness import Server

SHARED = os.environ.get("WEFT_SHARED_DIR", "")
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": None, "parameters": {
    "type": "object", "properties": {"location": {"type": "string", "maxLength": 10, "description": None},
                                     "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["location"], "additionalProperties": False}}}
PING = {"type": "function", "function": {"name": "ping"}}  # as some MCP servers have them
LOOK_AHEAD = {"type": "function", "function": {"name": "odd", "parameters": {
    "properties": {"a": {"type": "string", "pattern": "^(?!x)y(?=z)"}, "b": {"enum": None, "items": None}}, "$schema": "x"}}}
ASK = {"messages": [{"role": "user", "content": "Oslo?"}], "max_tokens": 120, "temperature": 1.0, "seed": 1}


def choice_of(server, **fields):
    return server.chat(**{**ASK, **fields})["choices"][0]


def calls_of(choice):
    return [(call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in choice["message"].get("tool_calls", ())]


def test_calls_are_of_those_that_may_be_called():
    with Server() as server:
        one = choice_of(server, tools=[WEATHER, PING], tool_choice={"type": "function", "function": {"name": "ping"}})
        assert calls_of(one) == [("ping", {})] and one["finish_reason"] == "tool_calls", one
        assert one["message"]["content"] is None and one["message"]["tool_calls"][0]["id"].startswith("call_")
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
            {"type": "function", "function": {"name": "ping"}}]}}
        for i in range(4):
            got = calls_of(choice_of(server, tools=[WEATHER, PING, LOOK_AHEAD], tool_choice="required", seed=i,
                                     parallel_tool_calls=False))
            assert len(got) <= 1, got
            got = calls_of(choice_of(server, tools=[WEATHER, PING], tool_choice=allowed, seed=i))
            assert got and set(name for name, _ in got) == {"ping"}, got
        free = choice_of(server, tools=[WEATHER], tool_choice="none")
        assert "tool_calls" not in free["message"] and free["message"]["content"], free
        auto = choice_of(server, tools=[WEATHER])
        assert auto["message"]["content"] and auto["finish_reason"] in ("stop", "length")


def test_another_format_may_be_said():
    with Server("--tool-call-parser", "mistral-args") as server:
        call, = choice_of(server, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False)["message"]["tool_calls"]
        assert len(call["id"]) == 9, call
    program = os.path.join(harness.BIN_DIR, "weft")
    for name in ("nobody", ""):
        ended = subprocess.run([program, "serve", harness.FABLE, "--port", "0", "--rpc-port", "0", "--tool-call-parser", name],
                               capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
        assert ended.returncode == 1 and "--tool-call-parser" in ended.stderr, ended


def test_a_stop_string_within_a_call_leaves_none_to_be_made():
    with Server() as server:
        for stop, reason in (("}", "stop"), (":", "stop"), ("</tool_call>", "tool_calls")):
            body = {**ASK, "tools": [WEATHER], "tool_choice": "required", "seed": 3, "max_tokens": 100, "stop": stop}
            choice = server.chat(**body)["choices"][0]
            last = [c for e in server.stream("/v1/chat/completions", body) for c in e["choices"]][-1]
            assert choice["finish_reason"] == last["finish_reason"] == reason, (stop, choice, last)
            assert choice["stop_reason"] == stop


def test_what_is_wrong_with_tools_is_said():
    named = {"type": "function", "function": {"name": "nobody"}}
    cases = [({"tools": {}}, "tools"), ({"tools": [5]}, "tools"), ({"tools": [{"type": "custom"}]}, "tools[0].type"),
             ({"tools": [{"type": "function", "function": {}}]}, "tools"),
             ({"tools": [{"type": "function", "function": {"name": "a", "parameters": "x"}}]}, "tools"),
             ({"tool_choice": "required"}, "tool_choice"), ({"tools": [PING], "tool_choice": "now"}, "tool_choice"),
             ({"tools": [PING], "tool_choice": named}, "tool_choice"), ({"tools": [PING], "tool_choice": 5}, "tool_choice"),
             ({"tools": [PING], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
             ({"tools": [PING], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}}, "tool_choice"),
             ({"reasoning_effort": "hard"}, "reasoning_effort"), ({"reasoning_effort": 5}, "reasoning_effort"),
             ({"chat_template_kwargs": []}, "chat_template_kwargs"),
             ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
             ({"chat_template_kwargs": {f"k{i}": i for i in range(257)}}, "chat_template_kwargs"), ({"documents": {}}, "documents"),
             ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message")]
    messages = [({"role": "tool", "content": 5}, "messages[0].content"), ({"role": "bard", "content": ""}, "messages[0].role"),
                ({"role": "assistant", "tool_calls": {}}, "messages[0].tool_calls"),
                ({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}, "messages[0].tool_calls"),
                ({"role": "assistant", "reasoning": 5}, "messages[0].reasoning"),
                ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "messages[0].content"),
                ({"role": "user", "content": [{"type": "input_audio"}]}, "messages[0].content")]
    with Server() as server:
        for fields, param in cases + [({"messages": [message]}, param) for message, param in messages]:
            reply = server.post("/v1/chat/completions", {**ASK, **fields})
            assert reply.status == 400 and reply.json["error"]["param"] == param, (fields, reply.text)
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [PING] * 1024}}
        assert server.post("/v1/chat/completions", {**ASK, "tools": [PING], "tool_choice": allowed}).status == 200
        allowed["allowed_tools"]["tools"].append(PING)
        reply = server.post("/v1/chat/completions", {**ASK, "tools": [PING], "tool_choice": allowed})
        assert reply.status == 400 and reply.json["error"]["param"] == "tool_choice", reply.text
        reply = server.post("/v1/completions", {"prompt": "a", "tools": [PING]})
        assert reply.status == 400 and reply.json["error"]["param"] == "tools", reply.text


HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is it warm in Łódź?"},
    {"role": "assistant", "content": None, "reasoning": "I should look.", "tool_calls": [
        {"id": "call_of_many_letters", "type": "function",
         "function": {"name": "get_weather", "arguments": "{\"location\": \"Łódź\", \"days\": 1}"}}]},
    {"role": "tool", "tool_call_id": "call_of_many_letters", "content": [{"type": "text", "text": "{\"t\": 21.5}"}]},
    {"role": "assistant", "content": "It is.", "reasoning_content": "21.5 is warm."},
    {"role": "user", "content": "Thanks. And in Oslo?"},
]


def cases_of_templates():
    with open(os.path.join(SHARED, "templates", "cases.json"), encoding="utf-8") as file:
        for case in json.load(file)["cases"].values():
            yield {key: case[key] for key in ("messages", "tools", "add_generation_prompt") if case.get(key)}


def test_every_template_takes_tools_results_and_reasoning_or_names_its_line():
    paths = sorted(glob.glob(os.path.join(SHARED, "templates", "*.jinja")))
    if not paths:
        raise harness.Skip("the templates of shared/templates are not here")

    def ask(path):
        said = 0
        with Server("--chat-template", path, "--max-model-len", "8192") as server:
            for body in [*cases_of_templates(), {"messages": HISTORY, "tools": [WEATHER]}, {"messages": HISTORY[1:4], "tools": [WEATHER]}]:
                reply = server.post("/v1/chat/completions", {**body, "max_tokens": 1})
                said += reply.status == 200
                assert reply.status == 200 or (reply.status == 400 and "line " in reply.json["error"]["message"]), (path, reply.text)
        return os.path.basename(path), said
    told = []
    harness.for_each(paths, lambda path: told.append(ask(path)))
    print("    " + ", ".join(f"{name[:-6]} {said} of 8" for name, said in sorted(told)), flush=True)


class Thinker(Server):
    """Its template opens the thoughts, unless it is told not to."""

    def __init__(self, *args):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        self.file.write("{% for m in messages %}{{ m.role }}: {{ m.reasoning_content }}|{{ m.content }}\n{% endfor %}"
                        "{{ documents }}{{ reasoning_effort }}{% if add_generation_prompt %}A: <think>\n"
                        "{% if enable_thinking is false %}</think>\n{% endif %}{% endif %}")
        self.file.flush()
        super().__init__("--chat-template", self.file.name, *args)


def test_thoughts_are_told_apart_in_streams_and_whole():
    with Thinker() as server:
        body = {**ASK, "max_tokens": 40, "stop": ["zzz"], "ignore_eos": True}
        whole = server.chat(**body)
        message = whole["choices"][0]["message"]
        assert message["reasoning"] == message["reasoning_content"] and message["content"] is None, message
        assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 40, whole
        events = server.stream("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
        deltas = [e["choices"][0]["delta"] for e in events if e["choices"]]
        assert "".join(d.get("reasoning_content", "") for d in deltas) == message["reasoning"], deltas
        assert not any(d.get("content") for d in deltas)
        assert events[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 40
        hidden = server.chat(**body, include_reasoning=False)["choices"][0]["message"]
        assert "reasoning" not in hidden and not hidden["content"], hidden
        for off in ({"enable_thinking": False}, {"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}):
            message = server.chat(**body, **off)["choices"][0]["message"]
            assert "reasoning" not in message and message["content"], (off, message)
        assert server.chat(**body, documents=[{"text": "a"}])["usage"]["prompt_tokens"] > whole["usage"]["prompt_tokens"]
        assert server.chat(**body, reasoning_effort="high")["usage"]["prompt_tokens"] > whole["usage"]["prompt_tokens"]


PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0,
                                                                                                "maximum": 99}},
          "required": ["name", "age"], "additionalProperties": False}


def test_an_answer_that_must_fit_stands_where_its_format_has_answers():
    """Beside tools the output is calls or that answer."""
    folder = os.path.join(SHARED, "templates")
    if not os.path.isdir(folder):
        raise harness.Skip("the templates of shared/templates are not here")
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}

    def ask(name):
        with Server("--chat-template", os.path.join(folder, name + ".jinja"), "--max-model-len", "8192") as server:
            kinds = set()
            for i in range(6):
                body = {"response_format": wanted, "seed": i, "thinking_token_budget": 20, "max_tokens": 300}
                choice = choice_of(server, **body)
                assert choice["finish_reason"] == "length" or set(json.loads(choice["message"]["content"])) == {"name", "age"}, (name, choice)
                choice = choice_of(server, **body, tools=[WEATHER, PING])
                kinds.add(choice["finish_reason"])
                if choice["finish_reason"] == "tool_calls":
                    assert calls_of(choice)
                elif choice["finish_reason"] == "stop":
                    assert set(json.loads(choice["message"]["content"])) == {"name", "age"}, (name, choice)
            print(f"    {name}: {sorted(kinds)}", flush=True)
    for name in ("openai-gpt-oss-120b", "Mistral-Small-3.2-24B-Instruct-2506", "Qwen-Qwen3-0.6B", "MiniMax-M2"):
        ask(name)


def test_an_answer_goes_on_with_the_last_message():
    with Server() as server:
        messages = [*ASK["messages"], {"role": "assistant", "content": "It is "}]
        chat = {"messages": messages, "temperature": 0, "max_tokens": 12}
        tokens = server.post("/tokenize", {"messages": messages, "continue_final_message": True}).json["tokens"]
        text = server.complete(prompt=tokens, temperature=0, max_tokens=12)["choices"][0]["text"]
        assert server.chat(**chat, continue_final_message=True)["choices"][0]["message"]["content"] == text
        assert server.post("/detokenize", {"tokens": tokens}).json["prompt"].endswith("It is ")


def test_rpc_says_the_same():
    body = {**ASK, "tools": [WEATHER, PING], "tool_choice": "required"}
    with Server() as server:
        expected = choice_of(server, tools=[WEATHER, PING], tool_choice="required")
        with rpc.Rpc(server) as client:
            assert client.call(1, "chat", body)[1]["choices"][0]["message"] == expected["message"]


if __name__ == "__main__":
    harness.main()
