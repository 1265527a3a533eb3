"""Two servers behind nginx, with the configuration of deploy/nginx: streams arrive as they are made, refusals as they
are, and nobody is refused while a server is told to end, or loses its actors."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))

import harness  # noqa: E402
from harness import Server, Skip, Void  # noqa: E402
from test_haproxy import BODY, REQUESTS, Load, connect, free_port, status_of  # noqa: E402

CONF = os.path.join(harness.SOURCE_DIR, "deploy/nginx/weft.conf")
MAIN = """daemon off;
pid {at}/pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    {temporary}
    include {at}/weft.conf;
}}
"""
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def program():
    unpacked = os.path.join(harness.SOURCE_DIR, "build/tools/nginx")  # by `make deps-deploy`
    for found in (shutil.which("nginx"), "/usr/sbin/nginx", unpacked):
        if found and os.path.exists(found):
            return found
    raise Skip("there is no nginx (make deps-deploy)")


@contextlib.contextmanager
def balanced(a, b):
    """nginx's port in front of the two servers."""
    nginx, port = program(), free_port()
    with open(CONF, encoding="utf-8") as f:
        conf = f.read()
    for was, now in (("10.0.0.1:8080", f"127.0.0.1:{a.port}"), ("10.0.0.2:8080", f"127.0.0.1:{b.port}"),
                     ("listen 80;", f"listen 127.0.0.1:{port};")):
        assert conf.count(was) == 1, was
        conf = conf.replace(was, now)
    with tempfile.TemporaryDirectory() as at:
        os.chmod(at, 0o755)  # nginx's worker processes have another user, where its master is root
        with open(os.path.join(at, "weft.conf"), "w", encoding="utf-8") as f:
            f.write(conf)
        with open(os.path.join(at, "nginx.conf"), "w", encoding="utf-8") as f:
            f.write(MAIN.format(at=at, temporary=" ".join(f"{t}_temp_path {at}/{t};" for t in TEMPORARY)))
        proc = subprocess.Popen([nginx, "-e", "stderr", "-p", at, "-c", os.path.join(at, "nginx.conf")])
        try:
            def answers():
                assert proc.poll() is None, "nginx ended"
                with contextlib.suppress(OSError):
                    return status_of(port, "/health") == 200
            harness.wait_until("nginx to answer", answers)
            yield port
        finally:
            proc.terminate()
            proc.wait()


def test_a_server_that_is_told_to_end_refuses_nobody():
    with Server("--drain-delay", "1000") as a, Server() as b, balanced(a, b) as port:
        load = Load(port, a.complete(**BODY)["choices"][0]["text"])
        load.wait(REQUESTS // 5)
        a.proc.send_signal(signal.SIGTERM)
        assert a.proc.wait(harness.LIMIT_S) == 0
        a.check_idle = False
        load.wait(load.n_done + 100)
        load.finish()


def test_a_worker_and_a_scheduler_that_die_refuse_nobody():
    with Server() as a, Server() as b, balanced(a, b) as port:
        load = Load(port, a.complete(**BODY)["choices"][0]["text"])
        for i, name in enumerate(("worker", "scheduler")):
            load.wait(REQUESTS // 3 * (i + 1))
            harness.wait_until(f"a {name}", lambda role=name: role in a.children())
            a.kill(name)
        load.finish()


def test_what_a_server_says_arrives_at_once():
    """A worker that stands still makes no tokens, and the stream's comments, far too few to fill a buffer, come."""
    with Server("--sse-keepalive", "50") as server, balanced(server, server) as port:
        def comment():
            with server.stopped() as still, contextlib.closing(connect(port)) as conn:
                conn.request("POST", "/v1/completions", json.dumps({**BODY, "stream": True}))
                line = conn.getresponse().readline()
                if still.is_gone():
                    raise Void("the worker was replaced first")
                assert line == b": keep-alive\n", line
        harness.attempt(comment)


def test_refusals_arrive_as_they_are():
    with Server("--max-queue", "1", "--max-num-seqs", "1") as server, balanced(server, server) as port:
        def fill():
            with contextlib.ExitStack() as stack:
                with server.stopped() as still:
                    for n in (1, 2):
                        conn = stack.enter_context(contextlib.closing(connect(port)))
                        conn.request("POST", "/v1/completions", json.dumps(BODY))
                        still.wait_until(f"{n} requests", lambda n=n: harness.load(server.metrics()) == n)
                    conn = stack.enter_context(contextlib.closing(connect(port)))
                    conn.request("POST", "/v1/completions", json.dumps(BODY), {"X-Request-Id": "mine"})
                    reply = conn.getresponse()
                    assert reply.status == 429, reply.status
                    assert json.loads(reply.read())["error"]["code"] == "queue_full"
                    assert int(reply.headers["Retry-After"]) > 0, reply.headers
                    assert reply.headers["X-Request-Id"] == "mine", reply.headers
        harness.attempt(fill)
        assert status_of(port, "/metrics") == 404


if __name__ == "__main__":
    harness.main()
