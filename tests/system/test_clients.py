"""What clients send that were written for other servers: their names, fields and numbers."""

import harness
from harness import Server
from rpc import Rpc


def error_of(server, body, path="/v1/completions"):
    reply = server.post(path, body)
    return reply.status, reply.json["error"]


def test_a_model_has_several_names():
    with Server("--served-model-name", "fable, gpt-4o ,org/name") as server:
        models = server.get("/v1/models").json["data"]
        assert [m["id"] for m in models] == ["fable", "gpt-4o", "org/name"]
        assert server.get("/v1/models/").json["data"] == models
        for name in ("fable", "gpt-4o", "org/name", "org%2Fname"):
            assert server.get("/v1/models/" + name).json["id"] == name.replace("%2F", "/")
        for model in ("fable", "org/name"):
            assert server.complete(model=model, prompt="a", max_tokens=1)["model"] == "fable"
        says = "does not exist; this server has 'fable', 'gpt-4o', 'org/name'."
        status, error = error_of(server, {"prompt": "a", "model": "x"})
        assert status == 404 and error["code"] == "model_not_found" and error["message"] == "The model 'x' " + says
        reply = server.get("/v1/models/x%00y%2")
        assert reply.status == 404 and reply.json["error"]["message"] == "The model 'x\\u0000y%2' " + says, reply.text
        with Rpc(server) as rpc:
            assert [m["id"] for m in rpc.call(1, b"models")[1]["data"]] == ["fable", "gpt-4o", "org/name"]


def test_unknown_fields_can_be_refused():
    with Server("--strict-fields") as server:
        status, error = error_of(server, {"prompt": "a", "temprature": 0})
        assert status == 400 and error["code"] == "unknown_field" and error["param"] == "temprature", error
        options = {"include_usage": True, "usage": True}
        status, error = error_of(server, {"prompt": "a", "stream": True, "stream_options": options})
        assert status == 400 and error["param"] == "stream_options.usage", error
        assert server.complete(prompt="a", max_tokens=1, temperature=0, user="me", metadata={"a": 1}, tools=[])
        with Rpc(server) as rpc:
            assert rpc.call(1, b"generate", {"prompt": "a", "max_tokens": 1, "request_id": "r"})[0] is None


def test_unknown_fields_are_told_to_those_who_debug():
    with Server("--log-level", "debug") as server:
        assert server.complete(prompt="a", max_tokens=1, temprature=0, **{"a\n": 1})
        line = "fields that are not known here: 'temprature', 'a\\n'"
        harness.wait_until("the line", lambda: line in "".join(server.lines))


def test_numbers_of_any_size():
    with Server() as server:
        for number in ("123456789012345678901234567890", "-9223372036854775809", "9" * 500):
            reply = server.post("/v1/completions", b'{"prompt":"a","max_tokens":1,"ignored":[%s]}' % number.encode())
            assert reply.status == 200, reply.text
            status, error = error_of(server, b'{"prompt":"a","seed":%s}' % number.encode())
            assert status == 400 and error["param"] == "seed" and "must be between" in error["message"], error
        assert server.complete(prompt="a", max_tokens=1, seed=2**63 - 1)


def test_a_body_of_nothing():
    with Server() as server:
        for body in (b"", b" \r\n"):
            status, error = error_of(server, body)
            assert status == 400 and error["code"] == "invalid_json", error
            assert error["message"] == "the body is empty: send a JSON object"


if __name__ == "__main__":
    harness.main()
