"""MessagePack-RPC as Debian's pynvim.msgpack_rpc speaks it, a client nobody here wrote."""

import os
import threading

import harness
from harness import Server, Skip


def attach(port):
    try:
        from pynvim.msgpack_rpc import tcp_session
    except ImportError as error:
        raise Skip("python3-pynvim is not installed") from error
    rpc = tcp_session("127.0.0.1", port)
    rpc.error_wrapper = lambda error: RuntimeError(error)  # what its owner, pynvim's Nvim, sets as well
    return rpc


def text_of(value):
    return value.decode() if isinstance(value, bytes) else value


def test_a_msgpack_rpc_client_nobody_here_wrote():
    with Server() as server:
        rpc = attach(server.rpc_port)
        assert rpc.request("health")
        assert len(rpc.request("models")) >= 1
        ids = rpc.request("tokenize", {"prompt": "Once upon a time"})["tokens"]
        assert ids == server.post("/tokenize", {"prompt": "Once upon a time"}).json["tokens"]
        assert text_of(rpc.request("detokenize", {"tokens": ids})["prompt"]).endswith("Once upon a time")
        over_http = server.complete(prompt="Once upon a time", max_tokens=24, temperature=0)
        reply = rpc.request("generate", {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0})
        assert text_of(reply["choices"][0]["text"]) == over_http["choices"][0]["text"]
        assert reply["usage"]["completion_tokens"] == over_http["usage"]["completion_tokens"]
        chat = rpc.request("chat", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5,
                                    "temperature": 0})
        assert text_of(chat["choices"][0]["message"]["role"]) == "assistant"
        try:
            rpc.request("generate", {"prompt": "x", "temperature": "hot"})
        except RuntimeError as error:
            assert "temperature" in str(error), error
        else:
            raise AssertionError("a wrong type was taken")


def test_msgpack_rpc_streams_tokens_before_the_response():
    with Server() as server:
        rpc = attach(server.rpc_port)
        pieces, result = [], {}

        def on_notification(name, args):
            pieces.append((text_of(name), args[0]))

        def on_setup():
            try:
                result["reply"] = rpc.request("generate", {
                    "prompt": "The king", "max_tokens": 30, "temperature": 0, "ignore_eos": True,
                    "stream": True, "request_id": "mine"})
            finally:
                rpc.stop()
        watchdog = threading.Timer(harness.LIMIT_S, lambda: os._exit(1))
        watchdog.start()
        rpc.run(lambda name, args: None, on_notification, on_setup)
        watchdog.cancel()
        whole = server.complete(prompt="The king", max_tokens=30, temperature=0, ignore_eos=True)
        assert all(name == "token" for name, _ in pieces)
        assert all(text_of(p["request_id"]) == "mine" for _, p in pieces)
        assert "".join(text_of(p["text"]) for _, p in pieces) == whole["choices"][0]["text"]
        assert sum(len(p["token_ids"]) for _, p in pieces) == 30


if __name__ == "__main__":
    harness.main()
