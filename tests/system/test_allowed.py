"""Which tokens may come: allowed_token_ids, bad_words, special ones, and how many of them thoughts may have; alone, in
company, and when workers die."""

import functools
import re
import tempfile

import harness
from harness import Server

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}Answer: "
MARKS = "<think>", "</think>"


def ids_of(server, path, body):
    reply = server.post(path, {"return_token_ids": True, **body})
    assert reply.status == 200, (reply.status, reply.text)
    return [choice["token_ids"] for choice in reply.json["choices"]]


def text_of(server, ids):
    return server.post("/detokenize", {"tokens": ids}).json["prompt"]


def tokens_of(server, text):
    return server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"]


def the_same_under_kills(server, path, requests):
    """What the requests get one by one, and that they get it all together while workers die."""
    alone = [ids_of(server, path, body) for body in requests]
    with harness.Killer(server, ["worker"], sum(len(ids) for choices in alone for ids in choices) // 3):
        assert harness.in_threads([functools.partial(ids_of, server, path, body) for body in requests]) == alone
    return alone


def test_none_but_allowed_tokens_come():
    with Server() as server:
        allowed = sorted({*tokens_of(server, " a the sea"), *tokens_of(server, "Once upon.")})
        body = {"prompt": "Once upon a time", "max_tokens": 60, "allowed_token_ids": allowed, "ignore_eos": True}
        requests = [{**body, "temperature": temperature, "seed": seed} for seed in range(4) for temperature in (0, 1, 3)]
        for choices in the_same_under_kills(server, "/v1/completions", requests):
            assert len(choices[0]) == 60 and set(choices[0]) <= set(allowed)
        one = ids_of(server, "/v1/completions", {**body, "allowed_token_ids": allowed[:1], "guided_regex": ".*"})
        assert set(one[0]) <= set(allowed[:1])
        reply = server.post("/v1/completions", {**body, "allowed_token_ids": allowed[:1],
                                                "response_format": {"type": "json_object"}})
        assert reply.status == 400 and "'allowed_token_ids'" in reply.json["error"]["message"], reply.text
        assert reply.json["error"]["code"] == "grammar_failed"
        reply = server.complete(prompt="a", max_tokens=5, allowed_token_ids=tokens_of(server, "b"), logprobs=2)
        assert reply["choices"][0]["text"] == "bbbbb"
        assert max(reply["choices"][0]["logprobs"]["token_logprobs"]) < 0  # of all there are, not of the one


def test_bad_words_never_come():
    with Server() as server:
        body = {"prompt": "Once upon a time", "max_tokens": 40, "ignore_eos": True}
        free = server.complete(**body)["choices"][0]["text"]
        words = [word for word in (piece.strip(".,\"!?") for piece in free.split()) if word][:6]
        for temperature in (0, 1):
            requests = [{**body, "temperature": temperature, "seed": seed, "bad_words": words[:n]}
                        for seed in range(3) for n in (1, 3, 6)]
            outputs = the_same_under_kills(server, "/v1/completions", requests)
            for request, choices in zip(requests, outputs):
                for word in request["bad_words"]:
                    for spelt in (tokens_of(server, word), tokens_of(server, " " + word)):
                        pieces = [choices[0][i:i + len(spelt)] for i in range(len(choices[0]))]
                        assert spelt not in pieces, (word, text_of(server, choices[0]))


def thinking_server(*more, opened=MARKS[0] + "\n"):
    template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
    template.write(TEMPLATE + opened)
    template.flush()
    server = Server("--chat-template", template.name, *more)
    server.template = template  # it lasts as long
    return server


def test_thoughts_end_when_there_were_enough():
    """The tokens before are those of an endless thought, then comes the mark, and then what fits."""
    body = {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 80, "ignore_eos": True, "seed": 7}
    budgets = (0, 1, 5, 20)
    kinds = [{"temperature": temperature, **asked}
             for temperature in (0, 1) for asked in ({}, {"guided_regex": "[a-c]{3,5}"}, {"logprobs": True})]
    requests = [{**body, **kind, "thinking_token_budget": budget} for kind in kinds for budget in budgets]
    with thinking_server() as server:
        free = {kind["temperature"]: ids_of(server, "/v1/chat/completions", {**body, **kind})[0]
                for kind in (kinds[0], kinds[3])}
        outputs = the_same_under_kills(server, "/v1/chat/completions", requests)
        for request, (ids,) in zip(requests, outputs):
            n = request["thinking_token_budget"]
            assert ids[:n] == free[request["temperature"]][:n] or "guided_regex" in request
            rest = text_of(server, ids[n:])
            assert MARKS[1] in rest and MARKS[1].endswith(rest[:rest.index(MARKS[1][-1]) + 1]), (n, rest)
            answer = rest[rest.index(">") + 1:]
            assert "guided_regex" not in request or set(answer.strip()) <= set("abc"), answer
        unbounded = ids_of(server, "/v1/chat/completions", {**body, **kinds[0], "thinking_token_budget": 1000})[0]
        assert unbounded == free[0]
    with thinking_server("--workers", "2", "--layout", "tp", "--kv-memory", "8MiB") as server:
        assert [ids_of(server, "/v1/chat/completions", body) for body in requests] == outputs


def test_where_nobody_thinks_a_budget_is_none():
    body = {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 20, "seed": 7}
    with thinking_server(opened="") as server:
        free = ids_of(server, "/v1/chat/completions", body)
        assert ids_of(server, "/v1/chat/completions", {**body, "thinking_token_budget": 0}) == free
        prompt = {"prompt": "<think>", "max_tokens": 20, "temperature": 0}
        assert ids_of(server, "/v1/completions", {**prompt, "thinking_token_budget": 0}) == \
            ids_of(server, "/v1/completions", prompt)


def test_special_tokens_come_where_they_are_named():
    mark = {"type": "token", "token": "<|im_start|>"}
    tags = {"type": "triggered_tags", "triggers": [mark], "at_least_one": True,
            "tags": [{"begin": [mark, "f:"], "content": {"type": "regex", "pattern": "[a-c]{2,4}"}, "end": [";", mark]}]}
    body = {"prompt": "Once upon a time", "max_tokens": 40, "skip_special_tokens": False, "temperature": 1.5}

    def wish(format):
        return {"response_format": {"type": "structural_tag", "format": format}}
    requests = [{**body, **wish(tags), "seed": seed} for seed in range(12)]
    with Server() as server:
        outputs = the_same_under_kills(server, "/v1/completions", requests)
        for (ids,) in outputs:
            assert re.match(r"<\|im_start\|>f:[a-c]{2,4}(;|<\|im_start\|>)", text_of(server, ids)), text_of(server, ids)
        for token in ("<|nothing|>", "Once", ""):
            reply = server.post("/v1/completions", {**body, **wish({"type": "token", "token": token})})
            assert reply.status == 400 and "token" in reply.text, reply.text


if __name__ == "__main__":
    harness.main()
