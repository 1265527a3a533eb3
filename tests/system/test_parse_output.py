"""`weft parse-output`: raw outputs of a file, in the message's parts."""

import json
import os
import subprocess
import tempfile

import harness

WEFT = os.path.join(harness.BIN_DIR, "weft")
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "text": {"type": "string"}}}}}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 12345678901234567890}}\n</tool_call>'
OUTPUTS = {
    "tools": TOOLS,
    "cases": [
        {"name": "call", "output": "<think>Hm.</think>\n\nSo.\n" + CALL},
        {"name": "none", "output": CALL, "tool_choice": "none"},
        {"name": "opened", "output": "Hm.\n</think>\nYes.", "prompt_tail": "<think>\n"},
        {"name": "empty", "output": ""},
    ],
}


def parsed(cases, *options):
    text = cases if isinstance(cases, str) else json.dumps(cases)
    return subprocess.run([WEFT, "parse-output", "--cases", "-", *options], input=text, capture_output=True, text=True,
                          timeout=harness.LIMIT_S, check=False)


def test_each_case_of_a_file_comes_back_as_a_message():
    wanted = {
        "call": {"content": "So.", "reasoning_content": "Hm.",
                 "tool_calls": [{"name": "add", "arguments": {"a": 12345678901234567890}}]},
        "none": {"content": CALL, "reasoning_content": None, "tool_calls": []},
        "opened": {"content": "Yes.", "reasoning_content": "Hm.", "tool_calls": []},
        "empty": {"content": None, "reasoning_content": None, "tool_calls": []},
    }
    for chunk in ("0", "1", "5"):
        done = parsed(OUTPUTS, "--format", "hermes", "--json", "--chunk", chunk)
        assert done.returncode == 0 and json.loads(done.stdout) == wanted, done
    with tempfile.TemporaryDirectory() as folder:
        template = os.path.join(folder, "of.jinja")
        with open(template, "w", encoding="utf-8") as file:
            file.write("{{ '<tool_call>' }}{{ messages[0].content }}")
        assert json.loads(parsed(OUTPUTS, "--format", template, "--json").stdout) == wanted
    done = parsed({"cases": []}, "--format", "think", "--json")
    assert done.returncode == 0 and json.loads(done.stdout) == {}, done


def test_ids_are_printed_where_the_output_carries_them():
    output = "<|tool_call_begin|>functions.add:7<|tool_call_argument_begin|>{}<|tool_call_end|>"
    done = parsed({"tools": TOOLS, "cases": [{"name": "x", "output": output}]}, "--format", "kimi-k2", "--json")
    assert json.loads(done.stdout)["x"]["tool_calls"] == [{"name": "add", "arguments": {}, "id": "functions.add:7"}], done


def test_people_get_text():
    done = parsed(OUTPUTS, "--format", "hermes")
    assert done.stdout.startswith("--- call: thoughts\nHm.\n--- call: content\nSo.\n--- call: calls\n{\"name\": \"add\""), done


def test_what_is_wrong_is_said_in_a_sentence():
    good = json.dumps(OUTPUTS)
    for cases, name, status, words in (
            (good, "nope", 1, '"nope" is neither a model nor one of command-r7b, deepseek-v3'),
            (good, harness.SOURCE_DIR + "/README.md", 1, "README.md"),
            ("{", "hermes", 1, "standard input is not JSON"),
            ("[]", "hermes", 1, 'standard input has no list "cases"'),
            ('{"cases": [{"name": "a"}]}', "hermes", 1, 'case [0] of standard input has no string "output"'),
            ('{"cases": [5]}', "hermes", 1, 'case [0] of standard input has no string "name"'),
            ('{"tools": [{}], "cases": []}', "hermes", 1, 'tool 0 has no object "function"'),
            ('{"tools": 5, "cases": []}', "hermes", 1, "the tools are no list")):
        done = parsed(cases, "--format", name)
        assert done.returncode == status and not done.stdout, done
        assert words in done.stderr and done.stderr.startswith("weft: ") and done.stderr.count("\n") == 1, done
    done = subprocess.run([WEFT, "parse-output", "--format", "hermes"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no --cases given" in done.stderr, done


if __name__ == "__main__":
    harness.main()
