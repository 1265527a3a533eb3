"""Writes tests/data/toolcalls/FORMAT.json: outputs as models of each format write them, and the messages in them.

    python3 tests/golden/make_toolcalls.py tests/data/toolcalls

The files look like those of WEFT_SHARED_DIR/toolcalls, and are for the formats that lie not there. Well-formed outputs are
made from a message by a writer for each format, after the models' chat templates; what is broken is told in the table
with the message that a careful reader makes of it: nothing is lost, complete calls stay calls.
"""
import json
import os
import sys


def tool(name, properties, *required):
    return {"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": properties, "required": list(required), "additionalProperties": False}}}


TEXT, LIST = {"type": "string"}, {"type": "array"}
TOOLS = [
    tool("get_weather", {"location": TEXT, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                         "days": {"type": "integer"}}, "location"),
    tool("search", {"query": TEXT, "tags": LIST, "filters": {"type": "object"}, "limit": {"type": "integer"}}, "query"),
    tool("run_code", {"language": TEXT, "code": TEXT}, "language", "code"),
    tool("set_alarm", {"time": TEXT, "repeat": {"type": "boolean"}, "volume": {"type": "number"}, "label": TEXT,
                       "weekdays": LIST}, "time"),
    tool("ping", {}),
]
OSLO = ("get_weather", {"location": "Oslo"})
PING = ("ping", {})
MANY = [("get_weather", {"location": "Łódź, Poland"}), ("get_weather", {"location": "東京", "days": 3}), PING]
NESTED = ("search", {"query": 'rules & "exceptions"', "tags": ["x", "y z", "ü", "it's"],
                     "filters": {"year": {"from": 1999, "to": None}, "open": True, "list": [[1, 2.5], []]}, "limit": 5})
CODE = ("run_code", {"language": "python", "code": 'print("a\\tb")\nif x < 3 and y > 2:\n    s = \'\\\\n {}[]\'  # é 🙂'})
TYPES = ("set_alarm", {"time": "0730", "repeat": True, "volume": 0.25, "label": "123", "weekdays": [1, 5]})
THOUGHT = 'Two facts are missing.\n\nA call would be {"name": "ping"}.'
SAYS = "Let me look that up for you."
PLAIN = "The sky is blue.\n\n- 2 < 3 && 3 > 2\n- a[0] = {\"k\": 1}\n- é, 日本, 🙂"


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def quoted(calls, name="name", arguments="arguments"):
    return [dumps({name: n, arguments: a}) for n, a in calls]


def functions(calls, write, pad, begin, end):
    out = []
    for name, arguments in calls:
        members = "".join(f"<parameter={k}>{pad}{v if isinstance(v, str) else write(v)}{pad}</parameter>\n"
                          for k, v in arguments.items())
        out.append(f"{begin}\n<function={name}>\n{members}</function>\n{end}")
    return "\n".join(out)


def marked(calls):
    def member(key, value):
        is_text = isinstance(value, str)
        return (f'<｜DSML｜parameter name="{key}" string="{"true" if is_text else "false"}">'
                f'{value if is_text else dumps(value)}</｜DSML｜parameter>\n')
    body = "".join(f'<｜DSML｜invoke name="{n}">\n{"".join(member(*m) for m in a.items())}</｜DSML｜invoke>\n' for n, a in calls)
    return f"<｜DSML｜function_calls>\n{body}</｜DSML｜function_calls>"


def fenced(calls):
    return "<｜tool▁calls▁begin｜>" + "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n{dumps(a)}\n```<｜tool▁call▁end｜>" for n, a in calls
    ) + "<｜tool▁calls▁end｜>"


def actions(calls):
    lines = ",\n".join(f'    {{"tool_call_id": "{i}", "tool_name": "{n}", "parameters": {dumps(a)}}}'
                       for i, (n, a) in enumerate(calls))
    return f"<|START_ACTION|>[\n{lines}\n]<|END_ACTION|>"


# Format: its writer; what stands around thoughts and, after them, an answer; broken outputs, which are content but for PINGs.
FORMATS = {
    "command-r7b": (actions, ("<|START_THINKING|>", "<|END_THINKING|>"), ("<|START_RESPONSE|>", "<|END_RESPONSE|>"), [
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"loc',
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {loc: 1}}\n]<|END_ACTION|>',
        '<|START_ACTION|>[{"tool_call_id": "0", "parameters": {}}]<|END_ACTION|>',
        'START_ACTION is a mark, {"tool_name": "ping", "parameters": {}} an action.', "<|START_ACT"]),
    "deepseek-v3": (fenced, ("<think>\n", "\n</think>\n\n"), ("", ""), [
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"loca",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_wea",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{a}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<|tool_calls_begin|> has plain bars, and ```json\n{}\n``` is a block."]),
    "deepseek-v3.2": (marked, ("<think>", "</think>"), ("", ""), [
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="location" string="true">Os',
        '<｜DSML｜function_calls>\n<｜DSML｜invoke>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        '<function_calls>\n<invoke name="ping">\n</invoke>\n</function_calls>', "<｜DSML｜func"]),
    "granite-4": (lambda calls: "\n".join(f"<tool_call>\n{c}\n</tool_call>" for c in quoted(calls)), ("<think>", "</think>"), ("", ""), [
        '<tool_call>\n{"name": "get_weather", "arguments": {"location": "Os',
        '<tool_call>\n{"name": "get_weather", "arguments": {location: Oslo}}\n</tool_call>',
        '<tool_call>\n{"arguments": {}}\n</tool_call>', 'A call is {"name": "ping", "arguments": {}} in tags.', "a <tool_cal"]),
    "hunyuan": (lambda calls: "<tool_calls>[" + ", ".join(quoted(calls)) + "]</tool_calls>",
                ("<think>\n", "\n</think>\n"), ("<answer>\n", "\n</answer>"), [
        '<tool_calls>[{"name": "get_weather", "arguments": {"location": "Os', '<tool_calls>[{"name": ping}]</tool_calls>',
        "<tool_calls>none</tool_calls>", 'In [{"name": "ping", "arguments": {}}] tags are missing.']),
    "nemotron": (lambda calls: "<TOOLCALL>[" + ", ".join(quoted(calls)) + "]</TOOLCALL>", ("<think>\n", "\n</think>\n\n"), ("", ""), [
        '<TOOLCALL>[{"name": "get_weather", "arguments": {"location": "Os', "<TOOLCALL>[{'name': 'ping'}]</TOOLCALL>",
        "<TOOLCALL> stands before calls.", "<TOOLC"]),
    "phi-4-mini": (lambda calls: "<|tool_call|>[" + ", ".join(quoted(calls)) + "]<|/tool_call|>", ("<think>", "</think>"), ("", ""), [
        '<|tool_call|>[{"name": "get_weather", "arguments": {"location": "Os', "<|tool_call|>[{name: ping}]<|/tool_call|>",
        'functools are Python\'s; [{"name": "ping", "arguments": {}}] is a list.', "functools[1, 2]", "functoo"]),
    "seed-oss": (lambda calls: functions(calls, str, "", "<seed:tool_call>", "</seed:tool_call>"),
                 ("<seed:think>", "</seed:think>\n"), ("", ""), [
        "<seed:tool_call>\n<function=get_weather>\n<parameter=location>Os",
        "<seed:tool_call>\n<function get_weather>\n<location>Oslo</location>\n</function>\n</seed:tool_call>",
        "A call has the form `<function=NAME>`, then parameters.", "<seed:tool"]),
}
# As are known of single formats: output, calls, content.
SPELLINGS = {
    "phi-4-mini": [('functools[{"name": "ping", "arguments": {}}]', [PING], None),
                   ('<|tool_call|>{"name": "get_weather", "arguments": {"location": "Oslo"}}<|/tool_call|>', [OSLO], None),
                   ('<|tool_call|>[{"type": "function", "function": {"name": "get_weather", "arguments": {"location": "Oslo"}}}]'
                    '<|/tool_call|>', [OSLO], None)],
    "hunyuan": [('<tool_calls>\n<tool_call>get_weather\n```json\n{"location": "Oslo"}\n```</tool_call>\n<tool_call>ping\n```json\n{}\n'
                 "```\n</tool_call>\n</tool_calls>", [OSLO, PING], None)],
    "seed-oss": [("<seed:tool_call>\n<function=get_weather>\n<parameter=location>\nOslo\n</parameter>\n</function>\n</seed:tool_call>",
                  [OSLO], None),
                 ("<function=ping>\n</function>\n</seed:tool_call>", [PING], None),
                 ("<seed:tool_call>\n<function=get_weather>\n<parameter=location>Oslo</parameter>\n</function>\n<function=ping>\n"
                  "</function>\n</seed:tool_call>", [OSLO, PING], None)],
    "deepseek-v3": [('<｜tool▁calls｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n{"location": "Oslo"}<｜tool▁call▁end｜>',
                     [OSLO], None),
                    ('<｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{}\n```<｜tool▁call▁end｜>', [PING], None),
                    ('<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>', [PING], None)],
    "deepseek-v3.2": [('<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="location">Oslo'
                       '</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>', [OSLO], None),
                      ('<｜DSML｜tool_calls>\n<｜DSML｜invoke name="ping">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>', [PING], None)],
    "nemotron": [('<TOOLCALL>[{"name": "get_weather", "arguments": "{\\"location\\": \\"Oslo\\"}"}]</TOOLCALL>', [OSLO], None),
                 ("Nothing.<TOOLCALL>[]</TOOLCALL>", [], "Nothing.")],
    "command-r7b": [('<|START_ACTION|>[{"tool_name": "get_weather", "parameters": {"location": "Oslo"}}]<|END_ACTION|>', [OSLO], None)],
    "granite-4": [('<tool_call>{"name": "ping"}</tool_call><tool_call>{"name": "ping", "arguments": null}</tool_call>', [PING, PING], None)],
}


def message(calls=(), content=None, thoughts=None):
    return {"content": content, "reasoning_content": thoughts,
            "tool_calls": [{"name": n, "arguments": a} for n, a in calls]}


def cases_of(name):
    write, (think, thought_end), (answer, answer_end), broken = FORMATS[name]
    reasoning = think + THOUGHT + thought_end
    cases = [("no_call", PLAIN, message(content=PLAIN))]
    for what, calls in (("one_call", [OSLO]), ("parallel_calls", MANY), ("nested_arguments", [NESTED]), ("escapes", [CODE]),
                        ("types_of_values", [TYPES]), ("no_arguments", [PING])):
        cases.append((what, write(calls), message(calls)))
    cases += [
        ("text_before_call", SAYS + "\n" + write([OSLO]), message([OSLO], SAYS)),
        ("text_around_call", "One.\n\n" + write([OSLO]) + "\n\nTwo.", message([OSLO], "One.Two.")),
        ("blanks_around", "\n " + write([OSLO]) + "\n \n", message([OSLO])),
        ("reasoning_and_call", reasoning + write([OSLO]), message([OSLO], None, THOUGHT)),
        ("reasoning_text_and_call", reasoning + SAYS + write([OSLO]), message([OSLO], SAYS, THOUGHT)),
        ("reasoning_and_text", reasoning + answer + PLAIN + answer_end, message((), PLAIN, THOUGHT)),
        ("answer_without_reasoning", answer + PLAIN + answer_end, message((), PLAIN)),
        ("call_only_in_reasoning", think + write([PING]) + thought_end + SAYS, message((), SAYS, write([PING]))),
        ("thinking_never_closed", think + THOUGHT, message((), None, THOUGHT)),
        ("empty_thoughts", think.strip() + thought_end.strip() + SAYS, message((), SAYS)),
        ("two_blocks", write([OSLO]) + "\n" + write([PING]), message([OSLO, PING])),
    ]
    for i, text in enumerate(broken):
        cases.append((f"broken_{i}", text, message((), text)))
        is_apart = name in ("command-r7b", "hunyuan", "nemotron", "phi-4-mini", "granite-4", "seed-oss")
        cases.append((f"good_then_broken_{i}", write([PING]) + "\n" + text, message([PING], text)) if is_apart or "begin" in text
                     else (f"text_then_broken_{i}", "So. " + text, message((), "So. " + text)))
    for i, (text, calls, content) in enumerate(SPELLINGS.get(name, ())):
        cases.append((f"spelling_{i}", text, message(calls, content)))
    out = [{"name": n, "output": o, "expect": e} for n, o, e in cases]
    out.append({"name": "tool_choice_none", "tool_choice": "none", "output": write([OSLO]), "expect": message((), write([OSLO]))})
    out.append({"name": "thinking_opened_by_prompt", "prompt_tail": "assistant\n" + think, "output": THOUGHT + thought_end + SAYS,
                "expect": message((), SAYS, THOUGHT)})
    out.append({"name": "thinking_closed_by_prompt", "prompt_tail": think + thought_end, "output": SAYS, "expect": message((), SAYS)})
    out.append({"name": "thinking_opened_twice", "prompt_tail": think, "output": think + THOUGHT + thought_end + SAYS,
                "expect": message((), SAYS, THOUGHT)})
    return out


def main():
    for name in FORMATS:
        with open(os.path.join(sys.argv[1], name + ".json"), "w", encoding="utf-8") as file:
            lines = ",\n".join(map(dumps, cases_of(name)))
            file.write(f'{{"format": "{name}", "tools": {dumps(TOOLS)}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
