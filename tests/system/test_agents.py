"""Agents: conversations whose every turn must call a tool, sent the results, in the formats of several models.

Calls must validate against their tools' schemas; streams equal whole answers; a conversation under the same seeds is the
same conversation, whoever dies meanwhile. Prompts are those of templates that WEFT_SHARED_DIR/templates has."""

import concurrent.futures
import functools
import json
import os
import random

import jsonschema

import harness
from harness import Server

SHARED = os.environ.get("WEFT_SHARED_DIR", "")
N_CONVERSATIONS = int(os.environ.get("WEFT_TEST_CONVERSATIONS", "8" if harness.SANITIZED else "24"))
TURNS_MAX = 6
TOGETHER = 16
# Short ones, since the toy model reads each letter or two as a token.
TEMPLATES = ["LFM2-8B-A1B", "moonshotai-Kimi-K2", "Qwen-Qwen2.5-7B-Instruct", "Qwen3-Coder", "GLM-4.6", "MiniMax-M2",
             "mistralai-Mistral-Nemo-Instruct-2407", "deepseek-ai-DeepSeek-V3.1", "meta-llama-Llama-3.2-3B-Instruct"]
TEMPLATES_EACH_RUN = len(TEMPLATES) if "WEFT_TEST_CONVERSATIONS" in os.environ else 4

STRING, INTEGER, NUMBER, BOOLEAN = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
SHORT, SMALL = {"type": "string", "maxLength": 12}, {"type": "integer", "minimum": 0, "maximum": 99}
UNIT = {"type": "string", "enum": ["celsius", "fahrenheit"]}
LIST = {"type": "array", "items": SMALL, "maxItems": 3}
POINT = {"type": "object", "properties": {"x": SMALL, "y": SMALL}, "required": ["x", "y"], "additionalProperties": False}


def function(name, properties, required):
    return {"type": "function", "function": {"name": name, "description": f"The tool {name}.", "parameters": {
        "type": "object", "properties": properties, "required": required, "additionalProperties": False}}}


TOOLS = [
    function("get_weather", {"location": SHORT, "unit": UNIT, "days": SMALL}, ["location"]),
    function("set_alarm", {"time": {"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"}, "repeat": BOOLEAN,
                           "weekdays": LIST}, ["time", "repeat"]),
    function("move", {"to": POINT, "speed": {"type": ["integer", "null"], "maximum": 9, "minimum": 1}}, ["to"]),
    function("ping", {}, []),
    function("search", {"query": SHORT, "filters": {"anyOf": [SMALL, {"type": "boolean"}]}}, ["query"]),
]
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}


def template_path(name):
    path = os.path.join(SHARED, "templates", name + ".jinja")
    if not os.path.exists(path):
        raise harness.Skip("the templates of shared/templates are not here")
    return path


def serve(name):
    return Server("--chat-template", template_path(name), "--max-model-len", "4096", "--max-num-seqs", str(TOGETHER),
                  "--restart-grace", "3600000")


def whole(server, body):
    return server.chat(**body)["choices"][0]


def streamed(server, body):
    """The choice that a stream's deltas make."""
    message, finish, calls = {"role": "assistant", "content": None}, None, []
    for event in server.stream("/v1/chat/completions", body):
        for choice in event["choices"]:
            delta, finish = choice["delta"], choice["finish_reason"] or finish
            for key in ("content", "reasoning_content", "reasoning"):
                if delta.get(key):
                    message[key] = (message.get(key) or "") + delta[key]
            for part in delta.get("tool_calls", ()):
                if "id" in part:
                    assert part["index"] == len(calls)
                    calls.append({"id": part["id"], "type": part["type"], "function": {"name": part["function"]["name"],
                                                                                      "arguments": ""}})
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    return {"message": {**message, **({"tool_calls": calls} if calls else {})}, "finish_reason": finish}


def told(choice):
    message = choice["message"]
    return ({key: message.get(key) or None for key in ("content", "reasoning_content", "reasoning", "tool_calls")},
            choice["finish_reason"])


def converse(ask, server, seed):
    """Turns until one is cut off: what the model said in each."""
    dice, turns = random.Random(seed), []
    tools = dice.sample(TOOLS, dice.randint(1, 3))
    messages = [{"role": "user", "content": dice.choice(["Go.", "Is it warm in Oslo?", "Help me, please."])}]
    for turn in range(dice.randint(2, TURNS_MAX)):
        one = dice.choice(tools)["function"]["name"]
        choice = ask(server, {
            "messages": messages, "tools": tools, "seed": 100 * seed + turn, "temperature": 1.2, "max_tokens": 160, "thinking_token_budget": 20,
            "tool_choice": dice.choice(["required", "required", {"type": "function", "function": {"name": one}}]),
            "parallel_tool_calls": dice.random() < 0.5})
        turns.append(told(choice))
        if choice["finish_reason"] != "tool_calls":
            break
        calls = choice["message"]["tool_calls"]
        messages = [*messages, choice["message"], *({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(
            {"result": dice.randint(0, 99)})} for call in calls)]
    return turns


def check(turns):
    """How many calls there are, each of which is right unless its turn was cut off."""
    n = 0
    for said, finish in turns:
        assert finish in ("tool_calls", "length"), (said, finish)
        assert finish == "length" or said["tool_calls"], said
        ids = [call["id"] for call in said["tool_calls"] or ()]
        assert len(set(ids)) == len(ids), said
        for call in (said["tool_calls"] or ())[:None if finish == "tool_calls" else -1]:
            arguments = json.loads(call["function"]["arguments"])
            jsonschema.validate(arguments, SCHEMAS[call["function"]["name"]])
            n += 1
    return n


def all_of(ask, server, seeds):
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(functools.partial(converse, ask, server), seeds))


def test_conversations_of_calls_alike_whole_streamed_and_under_kills():
    n_each = -(-N_CONVERSATIONS // TEMPLATES_EACH_RUN)
    n_calls = n_cut = 0
    for i, name in enumerate(random.Random(harness.rng().random()).sample(TEMPLATES, TEMPLATES_EACH_RUN)):
        seeds = range(i * n_each, (i + 1) * n_each)
        with serve(name) as server:
            expected = all_of(whole, server, seeds)
            of_this = sum(map(check, expected))
            assert of_this > 0, (name, expected)
            n_calls += of_this
            n_cut += sum(turns[-1][1] == "length" for turns in expected)
            for got, turns in zip(all_of(streamed, server, seeds), expected, strict=True):
                assert got == turns, (name, got, turns)
            n_tokens = server.metric("weft_generation_tokens_total") / 2
            with harness.Killer(server, ("worker", "scheduler"), every_tokens=max(300, n_tokens // 20)) as killer:
                for got, turns in zip(all_of(whole, server, seeds), expected, strict=True):
                    assert got == turns, (name, got, turns)
            print(f"    {name}: {of_this} calls in {len(seeds)} conversations, {killer.n} kills", flush=True)
    print(f"    {n_calls} calls, {n_cut} conversations cut off by length", flush=True)


if __name__ == "__main__":
    harness.main()
