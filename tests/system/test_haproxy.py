"""Two servers behind HAProxy, with the configuration of deploy/haproxy: nobody is refused and no answer breaks off
while one of them is told to end, or loses its actors."""

import collections
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading

import harness
from harness import Server, Skip

REQUESTS, CLIENTS = 1000, 8
BODY = {"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0, "ignore_eos": True}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def connect(port):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=harness.LIMIT_S)


def status_of(port, path):
    conn = connect(port)
    try:
        conn.request("GET", path)
        return conn.getresponse().status
    finally:
        conn.close()


@contextlib.contextmanager
def balanced(a, b, lines=None):
    """HAProxy's port in front of the two servers; what it says comes into `lines`."""
    program = shutil.which("haproxy") or "/usr/sbin/haproxy"
    if not os.path.exists(program):
        raise Skip("haproxy is not installed")
    port = free_port()
    env = {**os.environ, "WEFT_A": f"{a.host}:{a.port}", "WEFT_B": f"{b.host}:{b.port}", "BIND": f"127.0.0.1:{port}"}
    proc = subprocess.Popen([program, "-db", "-f", os.path.join(harness.SOURCE_DIR, "deploy/haproxy/haproxy.cfg")],
                            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    reading = harness.Call(lambda: (lines if lines is not None else collections.deque(maxlen=1)).extend(proc.stderr))
    try:
        def answers():
            assert proc.poll() is None, "haproxy ended"
            with contextlib.suppress(OSError):
                return status_of(port, "/health") == 200
        harness.wait_until("HAProxy to answer", answers)
        yield port
    finally:
        proc.kill()
        proc.wait()
        reading.result()
        proc.stderr.close()


class Load:
    """Requests of several clients, every other one a stream, each on a connection of its own or kept open: REQUESTS
    of them, and more until finish()."""

    def __init__(self, port, whole):
        self.port, self.whole = port, whole
        self.lock, self.n_begun, self.n_done, self.faults, self.is_over = threading.Lock(), 0, 0, [], False
        self.clients = [harness.Call(lambda keeps=i % 2: self._run(keeps)) for i in range(CLIENTS)]

    def _run(self, keeps):
        conn = None
        while True:
            with self.lock:
                if self.n_begun >= REQUESTS and self.is_over:
                    return
                self.n_begun += 1
                is_stream = self.n_begun % 2
            conn = conn or connect(self.port)
            try:
                self._ask(conn, is_stream)
            except Exception as why:  # noqa: BLE001 - counted
                with self.lock:
                    self.faults.append(repr(why))
                conn.close()
                conn = None
            with self.lock:
                self.n_done += 1
            if conn and not keeps:
                conn.close()
                conn = None

    def _ask(self, conn, is_stream):
        conn.request("POST", "/v1/completions", json.dumps({**BODY, "stream": bool(is_stream)}),
                     {"Content-Type": "application/json"})
        reply = conn.getresponse()
        text = reply.read()
        assert reply.status == 200, (reply.status, text)
        if is_stream:
            events = harness.sse_events(text.split(b"\n"))
            got = "".join(e["choices"][0]["text"] for e in events)
        else:
            got = json.loads(text)["choices"][0]["text"]
        assert got == self.whole, got

    def wait(self, n):
        harness.wait_until(f"{n} requests", lambda: self.n_done >= n)

    def finish(self):
        self.is_over = True
        for client in self.clients:
            client.result()
        assert self.n_done >= REQUESTS and not self.faults, (len(self.faults), self.faults[:5])


def test_a_server_that_is_told_to_end_refuses_nobody():
    with Server("--drain-delay", "3000") as a, Server() as b, balanced(a, b) as port:
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
        for i, name in enumerate(("worker", "scheduler", "worker", "scheduler")):
            load.wait(REQUESTS // 5 * (i + 1))
            harness.wait_until(f"a {name}", lambda role=name: role in a.children())
            a.kill(name)
        load.finish()


if __name__ == "__main__":
    harness.main()
