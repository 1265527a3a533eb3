"""What the server's own log says of requests."""

import json
import os
import tempfile

import harness
from harness import Server
from rpc import Rpc

FIELDS = {"id", "method", "path", "model", "status", "finish", "tokens_in", "tokens_cached", "tokens_out", "queue_ms",
          "first_token_ms", "total_ms", "client", "key"}


def access_lines(server):
    """Those of the access log, parsed."""
    lines = [json.loads(line) for line in server.lines if line.startswith("{")]
    return [line for line in lines if line["msg"] == "access"]


def line_of(server, request_id):
    """The one line of a request."""
    def found():
        lines = [line for line in access_lines(server) if line["id"] == request_id]
        return lines
    lines = harness.wait_until(f"a line about {request_id}", found)
    assert len(lines) == 1 and FIELDS <= set(lines[0]), lines
    return lines[0]


def test_each_request_has_a_line_in_the_access_log():
    ask = {"prompt": "Once upon a time", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
    with tempfile.TemporaryDirectory() as folder:
        keys = os.path.join(folder, "keys")
        with open(keys, "w", encoding="utf-8") as f:
            f.write("sesame name=team-a weight=2\nnobody\n")
        with Server("--access-log", "json", "--api-key-file", keys) as server:
            def post(name, path, body, key="sesame"):
                return server.post(path, body, {"X-Request-Id": name, "Authorization": f"Bearer {key}"})

            assert post("whole", "/v1/completions", ask).status == 200
            line = line_of(server, "whole")
            assert line["method"] == "POST" and line["path"] == "/v1/completions" and line["status"] == 200, line
            assert line["finish"] == "length" and line["tokens_out"] == 5 and line["tokens_in"] > 2, line
            assert 0 <= line["queue_ms"] <= line["first_token_ms"] <= line["total_ms"], line
            assert line["client"].startswith("127.0.0.1:") and line["key"] == "team-a" and line["model"], line

            assert post("two", "/v1/completions", {**ask, "n": 2}, "nobody").status == 200
            line = line_of(server, "two")
            assert line["tokens_out"] == 10 and line["key"] is None, line
            assert post("wrong", "/v1/completions", {"prompt": []}).status == 400
            line = line_of(server, "wrong")
            assert line["status"] == 400 and line["finish"] is None and line["tokens_in"] is None, line
            assert post("stranger", "/v1/completions?key=secret", ask, "guess").status == 401
            assert line_of(server, "stranger")["path"] == "/v1/completions"
            assert server.get("/nothing", {"X-Request-Id": "none"}).status == 404
            assert line_of(server, "none")["path"] == "/nothing"
            assert not any("sesame" in line or "guess" in line for line in server.lines)

            with Rpc(server) as rpc:
                assert rpc.call(3, "generate", {**ask, "request_id": "by-rpc", "api_key": "sesame"})[0] is None
                line = line_of(server, "by-rpc")
                assert line["method"] == "RPC" and line["path"] == "generate" and line["status"] == 200, line
                assert line["key"] == "team-a" and line["tokens_out"] == 5, line
                assert rpc.call(77777, "nothing")[0]
                assert line_of(server, "77777")["status"] == 404


def test_a_client_that_leaves_is_in_the_access_log_too():
    def leave():
        ask = {"prompt": "Once", "max_tokens": 900, "temperature": 0, "ignore_eos": True, "stream": True}
        with Server("--access-log", "text") as server:
            conn, still = server.connect(), server.about_to_stop()
            conn.request("POST", "/v1/completions", json.dumps(ask), {"X-Request-Id": "gone"})
            assert conn.getresponse().read(10)
            with still:
                conn.close()
                line, = harness.wait_until("its line", lambda: [line for line in server.lines if " id=gone " in line])
            if " finish=length " in line:
                raise harness.Void("the answer was complete")
            assert " finish=abort " in line and " status=200 " in line, line
    harness.attempt(leave)


if __name__ == "__main__":
    harness.main()
