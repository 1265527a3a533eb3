"""Structured output: what is asked for is what comes, in any company and after any death; the rest is refused by name.

Schemas of other projects (shared/schemas) are read where they are, else said to be missing. WEFT_TEST_OUTPUTS sets how many
outputs are sampled under them."""

import concurrent.futures
import decimal
import functools
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time

import harness
import jsonschema
import npm_packages
from harness import Server

SHARED = os.environ.get("WEFT_SHARED_DIR", "")
N_OUTPUTS = int(os.environ.get("WEFT_TEST_OUTPUTS", "32" if harness.SANITIZED else "160"))
PER_SCHEMA = 4
TOGETHER = 32

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b", None, 1.5]}, "maxItems": 3},
        "at": {"type": "string", "format": "date"},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
TREE = {"type": "object", "properties": {"v": {"type": "boolean"}, "kids": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}},
        "required": ["v"], "additionalProperties": False}
LIST = 'root ::= item ("," item){1,3}\nitem ::= [a-c]+ | "(" root ")"'


def response_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "it", "strict": True, "schema": schema}}


def fits(schema):
    return functools.partial(jsonschema.validate, schema=schema, cls=jsonschema.validators.validator_for(schema))


def is_json(schema):
    return lambda text: fits(schema)(json.loads(text))


def is_match(pattern):
    def check(text):
        assert re.fullmatch(pattern, text), text
    return check


def tags(schema):
    structures = [{"begin": " a<f>", "schema": PERSON, "end": "</f>"}, {"begin": " a<g>", "schema": schema, "end": "</g>"}]
    return {"type": "structural_tag", "structures": structures, "triggers": [" a"]}


def is_tagged(text):
    """Of `tags({"type": "integer"})`: wherever it says " a" one of the two follows."""
    while " a" in text:
        text = text[text.index(" a"):]
        tag = text[2:5]
        value, end = json.JSONDecoder().raw_decode(text, 5)
        fits({"<f>": PERSON, "<g>": {"type": "integer"}}[tag])(value)
        assert text[end:].startswith("</" + tag[1:]), text
        text = text[end + 4:]


LARK = """
start: call ("," call)*
call: NAME "(" [call] ")"
NAME: /[a-c]/ ~ 1..2
%ignore " "
"""


# What is asked for, by every name there is, and who judges what comes.
ASKED = [
    ({"response_format": response_format(PERSON)}, is_json(PERSON)),
    ({"response_format": {"type": "json_object"}}, is_json({"type": "object"})),
    ({"response_format": {"type": "json_object", "schema": TREE}}, is_json(TREE)),
    ({"guided_json": PERSON}, is_json(PERSON)),
    ({"guided_json": json.dumps(TREE)}, is_json(TREE)),
    ({"json_schema": PERSON}, is_json(PERSON)),
    ({"guided_regex": "[0-9]{3}-(ab|cd)+é?"}, is_match("[0-9]{3}-(ab|cd)+é?")),
    ({"structured_outputs": {"regex": "\\w{2,5}!"}}, is_match("\\w{2,5}!")),
    ({"guided_choice": ["yes", "no", "no, \"never\""]}, is_match("yes|no|no, \"never\"")),
    ({"structured_outputs": {"choice": ["left", "right"]}}, is_match("left|right")),
    ({"structured_outputs": {"json": TREE}}, is_json(TREE)),
    ({"guided_grammar": LIST}, is_match("[a-c,()]+")),
    ({"grammar": LIST}, is_match("[a-c,()]+")),
    ({"structured_outputs": {"grammar": LARK}}, is_match("[a-c,() ]+")),
    ({"response_format": tags({"type": "integer"})}, is_tagged),
    ({"structured_outputs": {"structural_tag": {"format": {"type": "tag", "begin": " a<f>", "end": "</f>",
                                                           "content": {"type": "json_schema", "json_schema": PERSON}}}}},
     is_tagged),
]


def bodies(n, rng):
    return [{"prompt": "Once upon a time", "max_tokens": 120, "temperature": 1.5, "seed": rng.getrandbits(40), "logprobs": 1,
             "return_tokens_as_token_ids": True, **ASKED[i % len(ASKED)][0]} for i in range(n)]


def judge(choice, check):
    assert choice["finish_reason"] in ("stop", "length")
    if choice["finish_reason"] == "stop":
        check(choice["text"])
    return choice["finish_reason"] == "stop"


def complete(server, body):
    reply = server.post("/v1/completions", body)
    assert reply.status == 200, (reply.status, reply.text, str(body)[:300])
    return reply.json["choices"][0]


def all_at_once(server, requests):
    return harness.in_threads([functools.partial(complete, server, body) for body in requests])


def test_what_is_asked_for_comes_the_same_in_any_company():
    requests = bodies(3 * len(ASKED), harness.rng())
    free = [{"prompt": "The sea", "max_tokens": 60, "temperature": 1.0, "seed": i, "logprobs": 1} for i in range(6)]
    with Server() as server:
        alone = [server.complete(**body)["choices"][0] for body in requests + free]
        n_stop = sum(judge(choice, ASKED[i % len(ASKED)][1]) for i, choice in enumerate(alone[:len(requests)]))
        assert n_stop >= len(ASKED), n_stop
        assert all_at_once(server, requests + free) == alone
    with Server("--max-num-batched-tokens", "16", "--kv-memory", "600KiB", "--max-model-len", "256") as server:
        assert all_at_once(server, requests + free) == alone  # preempted, and replayed
        assert server.metrics()["weft_num_preemptions_total"] > 0
    with Server("--workers", "2", "--layout", "tp", "--kv-memory", "8MiB") as server:
        assert all_at_once(server, requests) == alone[:len(requests)]  # one samples, the other hears of it


def test_deaths_change_nothing():
    requests = bodies(TOGETHER, harness.rng())
    with Server() as server:
        alone = [server.complete(**body)["choices"][0] for body in requests]
        results = []
        thread = threading.Thread(target=lambda: results.extend(all_at_once(server, requests)))
        thread.start()
        for name in ("worker", "scheduler", "worker"):
            time.sleep(0.1)
            server.kill(name)
        thread.join()
        assert results == alone


# Control characters are in no token but their own.
FORCING = ["([a-z]{1,6}\x01\x02\x03\x04\x05){2,9}", "(\x01{1,3}\x02{40}[a-c]){2}", "\x01\x02{70}\x03", "\x01{200}"]


def test_tokens_that_come_alone_are_not_sampled():
    """Nor are they where somebody wants to know how likely they were; the text is the same."""
    requests = [{"prompt": "Once upon a time", "max_tokens": 100 - 7 * i, "temperature": 1.5, "seed": i, "guided_regex": regex}
                for i, regex in enumerate(3 * FORCING)]
    requests += [{**body, "logprobs": None} for body in bodies(len(ASKED), harness.rng())]
    requests += [{**requests[0], "stop": ["\x03\x04"]}, {**requests[2], "n": 3}, {**requests[3], "stop_token_ids": [5]}]
    forced = "weft_grammar_forced_tokens_total"
    with Server() as server:
        want = [server.complete(**{**body, "logprobs": 0}) for body in requests]
        harness.wait_until("figures", lambda: server.metric("weft_generation_tokens_total") > 0)
        time.sleep(0.5)
        assert server.metric(forced) == 0
        want = [([(c["text"], c["finish_reason"]) for c in reply["choices"]], reply["usage"]) for reply in want]

        def get(body):
            reply = server.complete(**body)
            return [(c["text"], c["finish_reason"]) for c in reply["choices"]], reply["usage"]

        def get_all():
            return harness.in_threads([functools.partial(get, body) for body in requests])
        assert [get(body) for body in requests] == want
        harness.wait_until("forced tokens", lambda: server.metric(forced) > 300)
        assert get_all() == want
        call = harness.Call(get_all)
        for name in ("worker", "scheduler", "worker"):
            time.sleep(0.1)
            server.kill(name)
        assert call.result() == want
        text = "".join(e["choices"][0]["text"] for e in server.stream("/v1/completions", {**requests[0], "stream": True})
                       if e["choices"])
        assert text == want[0][0][0][0]
    with Server("--max-num-batched-tokens", "16", "--max-num-seqs", "12", "--kv-memory", "600KiB", "--max-model-len", "256") as server:
        assert get_all() == want
        assert server.metrics()["weft_num_preemptions_total"] > 0
        assert server.metric(forced) > 0
    with Server("--workers", "2", "--layout", "tp", "--kv-memory", "8MiB") as server:
        assert get_all() == want


def test_late_masks_hold_up_nobody_and_change_nothing():
    """Among ranks nobody is late: the step waits."""
    letters = "".join(f"(?=[^{chr(97 + i)}]*{chr(97 + i)})" for i in range(22))
    heavy = [{"prompt": "Once", "max_tokens": 12, "temperature": 1.0, "seed": i, "guided_regex": letters + "[a-z ]*",
              "logprobs": 2 if i % 2 else None} for i in range(4)]
    free = [{"prompt": "The sea", "max_tokens": 150, "temperature": 1.0, "seed": i, "logprobs": 1} for i in range(4)]
    with Server("--workers", "2", "--layout", "tp", "--kv-memory", "8MiB") as server:
        alone = [complete(server, body) for body in heavy + free]
    with Server() as server:
        assert all_at_once(server, heavy + free) == alone
        call = harness.Call(functools.partial(all_at_once, server, heavy + free))
        for name in ("worker", "scheduler"):
            time.sleep(0.2)
            server.kill(name)
        assert call.result() == alone
        harness.wait_until("late masks", lambda: server.metric("weft_grammar_late_masks_total") > 0)
    with Server("--max-num-batched-tokens", "16", "--kv-memory", "600KiB", "--max-model-len", "256") as server:
        assert all_at_once(server, heavy + free) == alone


def test_chat_streams_and_other_kinds():
    messages = [{"role": "user", "content": "Who?"}]
    with Server() as server:
        reply = server.chat(messages=messages, response_format=response_format(PERSON), max_tokens=150, seed=3, temperature=1.5)
        assert judge({"text": reply["choices"][0]["message"]["content"], **reply["choices"][0]}, is_json(PERSON))
        events = server.stream("/v1/chat/completions", {"messages": messages, "response_format": response_format(PERSON),
                                                        "max_tokens": 150, "seed": 3, "temperature": 1.5, "stream": True})
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"])
        assert text == reply["choices"][0]["message"]["content"]
        for fmt, schema in ((PERSON, PERSON), ("json", {"type": "object"})):
            reply = server.post("/api/generate", {"model": "fable-6m", "prompt": "Who?", "format": fmt, "stream": False,
                                                  "options": {"num_predict": 200, "seed": 1}}).json
            if reply["done_reason"] == "stop":
                is_json(schema)(reply["response"])
        reply = server.post("/completion", {"prompt": "Who?", "grammar": LIST, "n_predict": 60}).json
        assert re.fullmatch("[a-c,()]+", reply["content"]), reply["content"]


def test_the_answer_comes_behind_the_thinking():
    """A toy does not think; but where its template opens the thinking it may write what it likes, where it closes it, or knows
    nothing of it, the grammar holds from the first word, and where it leaves it to the model, one of the two."""
    body = {"messages": [{"role": "user", "content": "<think>"}], "response_format": response_format(PERSON),
            "max_tokens": 200, "seed": 3, "temperature": 1.5}
    for end, is_free in (("<think>\n", True), ("<think>\n\n</think>\n\n", False),
                         ("{% if thinking %}<think>{% endif %}", None), ("", False)):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
            template.write("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}Answer: " + end)
            template.flush()
            with Server("--chat-template", template.name) as server:
                choice = server.chat(**body)["choices"][0]
                text, thoughts = choice["message"]["content"], choice["message"].get("reasoning_content")
                thinks = thoughts is not None if is_free is None else is_free
                assert thinks == (thoughts is not None), (end, text, thoughts)
                assert thinks or judge({"text": text, **choice}, is_json(PERSON)), (end, text)
                if is_free:
                    assert streamed_under_a_kill(server, body) == (thoughts, text or "")


def streamed_under_a_kill(server, body):
    """A stream's thoughts and text; the worker dies when a fifth of it has come, if it has not computed all by then."""
    n_seen = 0

    def kill_once(_):
        nonlocal n_seen
        n_seen += 1
        if n_seen == body["max_tokens"] // 5:
            server.kill("worker")
    events = server.stream("/v1/chat/completions", body, kill_once)
    assert n_seen >= body["max_tokens"] // 5
    return tuple("".join(e["choices"][0]["delta"].get(kind) or "" for e in events if e["choices"])
                 for kind in ("reasoning_content", "content"))


def test_texts_are_judged_behind_thoughts_and_with_the_blanks_asked_for():
    """`weft grammar`, each notation."""
    notations = [("--regex", "[0-9]+", "12", "a"), ("--schema", '{"type": "integer"}', "12", "a"),
                 ("--gbnf", 'root ::= "(" root ")" | "b"', "(b)", "))"), ("--lark", 'start: "a" "b"?', "ab", "b"),
                 ("--tags", json.dumps({"type": "structural_tag", "format": {"type": "const_string", "value": "x"}}), "x", "y")]
    for option, grammar, fits, does_not in notations:
        texts = [fits, does_not, f"a</think>\n\n{fits}", f"<think>a</think>{fits}", "a</think></think>" + fits, "<think>{",
                 f"<think></think>{does_not}"]
        a, i, r = "accepted", "incomplete", "rejected"
        for thinking, expected in (("none", [a, r, r, r, r, r, r]), ("open", [i, i, a, a, r, i, r]),
                                   ("maybe", [a, r, r, a, r, i, r])):
            assert judged(option, grammar, texts, "--thinking", thinking) == expected, (option, thinking)
            in_tokens = judged(option, grammar, texts, "--thinking", thinking, "--tokenizer", harness.FABLE)
            assert in_tokens == expected, (option, thinking)
    # SentencePiece puts a blank before a text that stands alone; a model's output does not.
    spm = os.path.join(harness.SOURCE_DIR, "tests/data/spm/bpe")
    schema = '{"type": "array", "items": {"type": "string"}}'
    assert judged("--schema", schema, ['["a b"]', '["a', "1", ' []'], "--tokenizer", spm) == [a, i, r, r]
    lark = 'start: "x" %json {"type": "array", "items": {"type": "integer"}}'
    texts = ["x[1,2]", "x[1, 2]", "x[ 1]", "x[123]"]
    for more, expected in (((), "aara"), (("--json-whitespace", "0"), "arra"), (("--json-whitespace", "2"), "aaaa"),
                           (("--json-max-digits", "2"), "aarr")):
        assert "".join(word[0] for word in judged("--lark", lark, texts, *more)) == expected, more


def test_a_rejected_text_is_told_its_byte_and_a_case_that_is_none_its_index():
    def run(cases, *more):
        command = [os.path.join(harness.BIN_DIR, "weft"), "grammar", "--regex", "[0-9]+(\\.[0-9]+)?", "--cases", cases, *more]
        return lambda text: subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    done = run("-")('["12", "1.", "", "a", "12.x", "12.5."]')
    assert done.stdout.splitlines() == ["accepted", "incomplete", "incomplete", "rejected at byte 1", "rejected at byte 4",
                                        "rejected at byte 5"], done
    assert run("-", "--json")('["12", "a"]').stdout == '["accepted", "rejected"]\n'
    done = run("-", "--tokenizer", harness.FABLE)('["1x"]')
    assert done.stdout == "rejected at byte 2\n", done
    done = run("-")('["12", 5]')
    assert done.returncode and not done.stdout and "case [1] of standard input is not a string" in done.stderr, done
    done = run("-")('{"a": 5}')
    assert done.returncode and "standard input is not a JSON list" in done.stderr, done


def judged(option, grammar, texts, *more):
    with tempfile.TemporaryDirectory() as folder:
        cases, path = os.path.join(folder, "cases"), os.path.join(folder, "grammar")
        for name, text in ((cases, json.dumps(texts)), (path, grammar)):
            with open(name, "w", encoding="utf-8") as file:
                file.write(text)
        command = [os.path.join(harness.BIN_DIR, "weft"), "grammar", option, grammar if option == "--regex" else path,
                   "--cases", cases, "--json", *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        return json.loads(done.stdout)


def test_a_text_ends_where_its_grammar_does():
    with Server() as server:
        base = {"prompt": "Once", "max_tokens": 40, "guided_choice": ["zebra"]}
        for more in ({}, {"ignore_eos": True}, {"min_tokens": 30}, {"temperature": 2}, {"repetition_penalty": 2.0}):
            choice = server.complete(**base, **more)["choices"][0]
            assert (choice["text"], choice["finish_reason"]) == ("zebra", "stop"), (more, choice)
        bias = {str(i): -100 for i in range(1000)}
        choice = server.complete(**base, logit_bias=bias)["choices"][0]
        assert choice["text"] == "zebra"  # a bias is large, a grammar is not to be outweighed


REFUSED = [
    ({"guided_json": {"type": "array", "uniqueItems": True}}, "guided_json", "uniqueItems"),
    ({"response_format": response_format({"properties": {"a": {"unevaluatedItems": False, "anyOf": [{}]}}})}, "response_format",
     "unevaluatedItems"),
    ({"response_format": response_format({"type": "string", "pattern": "(a)\\1"})}, "response_format", "pattern"),
    ({"response_format": response_format({"minimum": 3, "maximum": 2, "type": "number"})}, "response_format",
     "at #: nothing satisfies it"),
    ({"response_format": {"type": "json_schema"}}, "response_format", "schema"),
    ({"response_format": {"type": "xml"}}, "response_format", "json_schema"),
    ({"response_format": "json"}, "response_format", "object"),
    ({"response_format": tags({"pattern": "(?<=a)b"})}, "response_format",
     "structures[1] (\" a<g>\"): schema, \"pattern\" at #: "),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs", "neither \"format\""),
    ({"structured_outputs": {"grammar": "start: /a+?b/"}}, "structured_outputs", "line 1, column 8"),
    ({"guided_regex": "(?<=a)b"}, "guided_regex", "look-behind"),
    ({"guided_regex": 5}, "guided_regex", "string"),
    ({"guided_choice": []}, "guided_choice", "nothing"),
    ({"guided_choice": ["a", 1]}, "guided_choice", "strings"),
    ({"grammar": "root ::= nobody"}, "grammar", "defined nowhere"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "cannot both"),
    ({"structured_outputs": {"regex": "a", "json": {}}}, "structured_outputs", "cannot both"),
    ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs", "whitespace_pattern"),
]


def test_what_cannot_be_honoured_is_refused_by_name():
    with Server() as server:
        for fields, param, part in REFUSED:
            reply = server.post("/v1/completions", {"prompt": "Once", "max_tokens": 4, **fields})
            error = reply.json["error"]
            assert reply.status == 400 and error["param"] == param and part in error["message"], (fields, reply.text)


def sample_schemas(n):
    path = os.path.join(SHARED, "schemas", "bench.jsonl")
    if not os.path.exists(path):
        raise harness.Skip("the schemas of shared/schemas are not here")
    with open(path, encoding="utf-8") as file:
        cases = [json.loads(line) for line in file]
    return random.Random(1).sample(cases, n)


def is_equal(a, b):
    """As JSON has it: python's True == 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(is_equal(a[k], b[k]) for k in a)
    return a == b


def check_enum(validator, values, instance, schema):
    if not any(is_equal(instance, value) for value in values):
        yield jsonschema.ValidationError(f"{instance!r} is none of {values!r}")


def check_multiple(validator, factor, instance, schema):
    """In decimals: 300.34 is no multiple of 0.01 in doubles."""
    if validator.is_type(instance, "number") and decimal.Decimal(str(instance)) % decimal.Decimal(str(factor)):
        yield jsonschema.ValidationError(f"{instance!r} is no multiple of {factor}")


def check_const(validator, value, instance, schema):
    yield from check_enum(validator, [value], instance, schema)


def complaint(schema, text):
    try:
        cls = jsonschema.validators.extend(jsonschema.validators.validator_for(schema),
                                           {"enum": check_enum, "const": check_const, "multipleOf": check_multiple})
        cls(schema).validate(json.loads(text))
    except (jsonschema.ValidationError, jsonschema.SchemaError, json.JSONDecodeError) as error:
        return str(error)
    except Exception:  # a schema that this validator cannot resolve: no verdict
        return None
    return None


@functools.cache
def sampled():
    """[(case, body, choice)] of N_OUTPUTS requests under schemas of the sample, TOGETHER in a batch."""
    cases = sample_schemas(min(625, 2 * max(1, N_OUTPUTS // PER_SCHEMA)))
    with Server("--max-num-seqs", str(TOGETHER)) as server:
        todo = []
        for case in cases:
            body = {"prompt": "{", "max_tokens": 400, "temperature": 1.5, "response_format": response_format(case["schema"]),
                    "logprobs": 0, "return_tokens_as_token_ids": True}
            if len(todo) < N_OUTPUTS and server.post("/v1/completions", {**body, "max_tokens": 1}).status == 200:
                todo += [(case, {**body, "seed": seed}) for seed in range(PER_SCHEMA)]
        choices = together(server, [body for _, body in todo])
    return [(*asked, choice) for asked, choice in zip(todo, choices, strict=True)]


def together(server, requests):
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(functools.partial(complete, server), requests))


def ended():
    """[(case, text)] of those that ended by themselves."""
    return [(case, choice["text"]) for case, _, choice in sampled() if choice["finish_reason"] == "stop"]


def test_outputs_sampled_under_schemas_of_the_world_validate():
    """By python3-jsonschema; formats are not asserted there."""
    n_sent, n_stop = len(sampled()), len(ended())
    wrong = [(text[:200], error[:300]) for case, text in ended() if (error := complaint(case["schema"], text))]
    print(f"    {n_sent} outputs, {n_stop} ended by themselves, {len(wrong)} wrong", flush=True)
    assert not wrong, wrong[:3]
    assert n_stop >= n_sent // 4


def test_they_validate_by_ajv_too():
    """Which asserts formats."""
    folder = npm_packages.folder("ajv", {"ajv": "8.20.0", "ajv-draft-04": "1.0.0", "ajv-formats": "3.0.1"})
    shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), "npm", "ajv.mjs"), folder)
    texts = {}
    for case, text in ended():
        texts.setdefault(case["id"], (case, []))[1].append(text)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([{"schema": case["schema"], "draft": case["draft"], "texts": of} for case, of in texts.values()], file)
        file.flush()
        done = subprocess.run(["node", "ajv.mjs", file.name], cwd=folder, capture_output=True, text=True,
                              timeout=harness.LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    n, wrong = 0, []
    for (case, of), verdicts in zip(texts.values(), json.loads(done.stdout), strict=True):
        n += len(verdicts or [])
        wrong += [(case["id"], text[:200], why) for text, why in zip(of, verdicts or []) if why]
    print(f"    {n} of {len(ended())} outputs judged, {len(wrong)} wrong", flush=True)
    assert not wrong, wrong[:3]
    assert n >= len(ended()) * 3 // 4


def test_they_are_the_same_alone_and_under_kills():
    """All of them where WEFT_TEST_OUTPUTS says how many, else TOGETHER of them."""
    n = N_OUTPUTS if "WEFT_TEST_OUTPUTS" in os.environ else TOGETHER
    some = random.Random(2).sample(sampled(), min(n, len(sampled())))
    requests, expected = [body for _, body, _ in some], [choice for _, _, choice in some]
    n_tokens = sum(len(choice["logprobs"]["tokens"]) for choice in expected)
    with Server("--max-num-seqs", str(TOGETHER), "--restart-grace", "3600000") as server:
        assert [complete(server, body) for body in requests] == expected
        with harness.Killer(server, ("worker", "scheduler"), every_tokens=max(1500, n_tokens // 100)) as killer:
            assert together(server, requests) == expected
        print(f"    {n_tokens} tokens of {len(requests)} outputs, {killer.n} kills under the same together", flush=True)
        assert killer.n > 1


if __name__ == "__main__":
    harness.main()
