"""How a server ends: what clients and load balancers are told, and when."""

import json
import signal

import harness
from harness import Server
from rpc import Rpc

LONG = {"prompt": "Before the end", "max_tokens": 900, "temperature": 0, "ignore_eos": True}


def test_what_is_under_way_at_the_drain_timeout_is_told_so():
    """Streams get an error as their last event, whole answers a 503, MessagePack-RPC an error."""
    harness.attempt(drain_timeout)


def drain_timeout():
    with Server("--drain-timeout", "200") as server, Rpc(server) as rpc:
        server.check_idle = False
        still = server.about_to_stop()
        stream = harness.Stream(server, LONG)
        harness.wait_until("the stream to begin", lambda: stream.has_begun, every_s=0.001)
        with still:
            whole = harness.Call(lambda: server.post("/v1/completions", LONG))
            rpc.send(7, "generate", LONG)
            still.wait_until("three requests", lambda: harness.load(server.metrics()) == 3 or stream.is_done)
            if stream.is_done:
                raise harness.Void("the stream had ended")
            server.proc.send_signal(signal.SIGTERM)
            stream.reading.result()
            text = b"".join(stream.chunks).decode()
            last = [line for line in text.splitlines() if line.startswith("data: {")][-1]
            assert json.loads(last[6:])["error"]["code"] == "shutting_down", last
            reply = whole.result()
            assert reply.status == 503 and reply.json["error"]["code"] == "shutting_down", reply.text
            assert reply.headers["Retry-After"] and reply.headers["Connection"] == "close", reply.headers
            answer = rpc.receive()
            assert answer[1] == 7 and answer[2][0] == "service_unavailable_error", answer


def test_with_a_drain_delay_load_balancers_hear_of_it_first():
    with Server("--drain-delay", "3600000") as server:
        server.proc.send_signal(signal.SIGTERM)
        reply = harness.wait_until("/health to say so", lambda: (r := server.get("/health")).status == 503 and r)
        assert reply.json["reason"] == "the server is shutting down" and reply.headers["Retry-After"], reply.text
        assert server.get("/health/live").status == 200
        reply = server.post("/v1/completions", {"prompt": "Once", "max_tokens": 4})  # on a connection of its own
        assert reply.status == 200 and reply.headers["Connection"] == "close", (reply.status, reply.headers)
        server.proc.send_signal(signal.SIGTERM)  # the second one: at once
        assert server.proc.wait(harness.LIMIT_S) == 0
        server.check_idle = False
    with Server("--drain-delay", "500") as server:
        server.proc.send_signal(signal.SIGTERM)
        harness.wait_until("new connections to be refused", lambda: server.is_refused())
        assert server.proc.wait(harness.LIMIT_S) == 0
        server.check_idle = False


if __name__ == "__main__":
    harness.main()
