#!/usr/bin/python3
"""`weft serve --replace`: a new server takes the place of a running one, and nobody notices."""

import array
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

import harness
from harness import Server
from rpc import Rpc

N_CLIENTS, N_REPLACEMENTS = 8, 5
LONG = {"prompt": "A long while", "max_tokens": 900, "temperature": 0, "ignore_eos": True}
LOOK, TAKE, TAKEN, HERE, OFFER, DONE, BUSY, OTHER = range(1, 9)


def said(server, text):
    return any(text in line for line in server.lines)


def successor(old, *args, **more):
    """A server that is to replace `old`."""
    return Server("--port", str(old.port), "--rpc-port", str(old.rpc_port), "--replace", *args, **more)


def ended(server):
    """Waits until a replaced server has ended by itself, as it must: with 0."""
    status = server.proc.wait(harness.LIMIT_S)
    server.reader.join(harness.LIMIT_S)
    assert status == 0 and said(server, "weft: replaced: another server has the ports"), (status, server.lines[-9:])
    assert server.lines[-1] == "weft: stopped\n", server.lines[-9:]


def fails(old, *args, model=harness.FABLE):
    """What a server says that cannot replace `old`, and ends."""
    command = [os.path.join(harness.BIN_DIR, "weft"), "serve", model, "--port", str(old.port), "--rpc-port",
               str(old.rpc_port), "--replace", *args]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=harness.LIMIT_S)
    assert done.returncode not in (0, -signal.SIGKILL), done.stderr
    return done.stderr


class Client:
    """Streams in a loop, on one connection as long as the server keeps it or on a new one for each request, and
    compares each with what it would be without replacements. Errors end it, and are kept."""

    def __init__(self, server, body, expected, keeps):
        self.port, self.keeps, self.expected = server.port, keeps, expected
        self.text = json.dumps({**body, "stream": True})
        self.n, self.n_connections, self.longest_ms, self.over = 0, 0, 0.0, False
        self.running = harness.Call(self._run)

    def _run(self):
        conn = None
        while not self.over:
            if conn is None or conn.sock is None or not self.keeps:
                if conn:
                    conn.close()
                conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.LIMIT_S)
                self.n_connections += 1
            headers = {"Content-Type": "application/json"}
            conn.request("POST", "/v1/completions", self.text, headers if self.keeps else
                         {**headers, "Connection": "close"})
            reply = conn.getresponse()
            assert reply.status == 200, (reply.status, reply.read())
            times = []
            events = harness.sse_events(reply, lambda _: times.append(time.monotonic()))
            assert whole(events) == self.expected, (self.n, whole(events), self.expected)
            self.longest_ms = max([self.longest_ms, *((b - a) * 1000 for a, b in zip(times, times[1:]))])
            self.n += 1
        conn.close()


def whole(events):
    """All tokens of a stream, and how it ended."""
    choices = [e["choices"][0] for e in events if e["choices"]]
    ids = [t for c in choices if c["logprobs"] for t in c["logprobs"]["tokens"]]
    return ids, [c["finish_reason"] for c in choices if c["finish_reason"]]


def test_five_replacements_under_load_and_nobody_notices():
    bodies = [{"prompt": f"Client {i} says", "max_tokens": 60 + 12 * i, "seed": i, "temperature": 1, "logprobs": 0,
               "return_tokens_as_token_ids": True, "ignore_eos": True} for i in range(N_CLIENTS)]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(check_idle=False))
        expected = [whole(server.stream("/v1/completions", body)) for body in bodies]
        assert all(len(ids) == body["max_tokens"] for (ids, _), body in zip(expected, bodies, strict=True))
        clients = [Client(server, body, want, keeps=i % 2 == 0)
                   for i, (body, want) in enumerate(zip(bodies, expected, strict=True))]
        over = False

        def connect_all_the_time():
            n = 0
            while not over:
                assert server.get("/v1/models").status == 200  # on a connection of its own
                n += 1
                time.sleep(0.01)  # the clients share this process's CPU with it
            return n
        probe = harness.Call(connect_all_the_time)
        try:
            for i in range(N_REPLACEMENTS):
                old, before = server, [client.n for client in clients]
                server = stack.enter_context(successor(old, check_idle=i == N_REPLACEMENTS - 1))
                ended(old)
                harness.wait_until("each client to have a stream of the new one", lambda before=before: all(
                    client.running.is_done or client.n > n for client, n in zip(clients, before, strict=True)))
        finally:
            over = True
            for client in clients:
                client.over = True
        for client in clients:
            client.running.result()
        kept, fresh = clients[::2], clients[1::2]
        print(f"    {sum(c.n for c in clients)} streams of {N_CLIENTS} clients and {probe.result()} connections of one "
              f"more over {N_REPLACEMENTS} replacements; the longest gap between two tokens of a stream: "
              f"{max(c.longest_ms for c in clients):.0f} ms", flush=True)
        assert all(c.n_connections <= N_REPLACEMENTS + 1 for c in kept), [c.n_connections for c in kept]
        assert all(c.n_connections == c.n for c in fresh)


def test_what_cannot_serve_leaves_the_old_one_alone():
    with Server() as old, tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as taken:
        before, children = old.complete(prompt="Once", max_tokens=8, temperature=0), old.children()
        torn = os.path.join(folder, "torn")
        shutil.copytree(harness.FABLE, torn)
        os.truncate(os.path.join(torn, "model.safetensors"), 100000)
        mute = os.path.join(folder, "mute")
        shutil.copytree(harness.FABLE, mute, ignore=shutil.ignore_patterns("tokenizer*"))
        assert "no such" in fails(old, model=os.path.join(folder, "none")).lower()
        fails(old, model=torn)
        fails(old, model=mute)
        assert "--kv-memory" in fails(old, "--kv-memory", "soon")
        assert "the limit is" in fails(old, "--kv-memory", "900TiB")  # which a worker finds out
        text = fails(old, "--rpc-port", str(taken.getsockname()[1]))  # found out as the last thing before the handover
        assert "MessagePack-RPC: address already in use" in text, text
        assert "not 0" in fails(old, "--port", "0")
        after = old.complete(prompt="Once", max_tokens=8, temperature=0)
        assert after["choices"] == before["choices"] and old.children() == children
        assert not said(old, "replaced") and not said(old, "another server")


def test_killed_while_it_loads_it_leaves_the_old_one_alone():
    with Server(check_idle=False) as old:
        new = successor(old)
        command = [os.path.join(harness.BIN_DIR, "weft"), "serve", harness.FABLE, *new.args]
        with subprocess.Popen(command, stderr=subprocess.PIPE, process_group=0) as proc:
            for line in proc.stderr:
                if b"--replace: loading" in line:
                    break
            os.killpg(proc.pid, signal.SIGKILL)
        assert old.complete(prompt="Once", max_tokens=8)["choices"] and old.get("/health").status == 200
        with new:
            ended(old)


def test_a_long_stream_ends_with_the_old_one_and_signals_do_not_cut_it():
    harness.attempt(long_stream)


def long_stream():
    with Server(check_idle=False) as old, Rpc(old) as idle_rpc, Rpc(old) as busy_rpc, contextlib.ExitStack() as stack:
        idle = old.connect()
        idle.request("GET", "/v1/models")
        idle.getresponse().read()
        still = old.about_to_stop()
        stream = harness.Stream(old, LONG)
        harness.wait_until("the stream to begin", lambda: stream.has_begun, every_s=0.001)
        with still:
            busy_rpc.send(1, "generate", {"prompt": "x", "max_tokens": 4})
            still.wait_until("two requests", lambda: harness.load(old.metrics()) == 2 or stream.is_done)
            if stream.is_done:
                raise harness.Void("the stream had ended")
            new = stack.enter_context(successor(old))
            harness.wait_until("the old one to know", lambda: said(old, "weft: replaced"))
            old.proc.send_signal(signal.SIGTERM)  # as a script might, to be sure
            harness.wait_until("its word", lambda: said(old, "stopping already"))
            assert idle_rpc.receive() is None  # it is to come again
            idle.request("GET", "/v1/models")  # and so is this one, when it has its answer
            reply = idle.getresponse()
            assert reply.status == 200 and reply.headers["Connection"] == "close", reply.headers
            assert reply.read() and not stream.is_done
        events = stream.events()
        assert events[-1]["choices"][0]["finish_reason"] == "length", events[-1]
        answer = busy_rpc.receive()
        assert answer[1] == 1 and answer[2] is None and answer[3], answer
        assert busy_rpc.receive() is None
        ended(old)
        with Rpc(new) as rpc:
            rpc.send(2, "generate", {"prompt": "x", "max_tokens": 4})
            assert rpc.receive()[3]
        pid = new.kill("router")["router"]  # it has the sockets, but whoever comes next makes new ones
        harness.wait_until("another", lambda: new.children().get("router") not in (None, pid))
        harness.wait_until("it to serve", lambda: not new.is_refused() and new.get("/health").status == 200)
        assert asked(new, LOOK)[1] == new.proc.pid


def test_where_none_runs_it_starts_as_without():
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        ports = a.getsockname()[1], b.getsockname()[1]
        place = Server("--port", str(ports[0]))  # which has other people on it
        place.port, place.rpc_port = ports
        assert "HTTP: address already in use" in fails(place)
    with Server("--port", str(ports[0]), "--rpc-port", str(ports[1]), "--replace") as server:
        assert said(server, "--replace: no server of this user is at @weft-"), server.lines
        assert server.complete(prompt="Once", max_tokens=4)["choices"]


def test_other_ports_of_the_old_one_go_with_it():
    """A new --rpc-port, and then none."""
    with Server(check_idle=False) as old, socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
        s.close()
        with successor(old, "--rpc-port", str(port), check_idle=False) as new:
            ended(old)
            assert new.rpc_port == port
            with Rpc(new) as rpc:
                rpc.send(1, "generate", {"prompt": "x", "max_tokens": 2})
                assert rpc.receive()[3]
            old.port, old.rpc_port = old.rpc_port, None
            assert old.is_refused()
            with successor(new, "--no-rpc") as last:
                ended(new)
                assert last.complete(prompt="x", max_tokens=2)["choices"]


# ---------------------------------------------------------------------------------- the socket itself


class Guest:
    """Somebody at the control socket of a server."""

    def __init__(self, server):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(f"\0weft-{os.geteuid()}-127.0.0.1-{server.port}")  # waits while many others do
        self.sock.settimeout(harness.LIMIT_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, kind, instance=0, magic=b"weftsock", version=1):
        self.sock.send(struct.pack("=8sIIQII", magic, version, kind, instance, 0, 0))

    def receive(self):
        """(kind, instance, descriptors); None at the end."""
        data, control, _, _ = self.sock.recvmsg(64, socket.CMSG_SPACE(12))
        if not data:
            return None
        fds = array.array("i")
        for _, _, some in control:
            fds.frombytes(some[: len(some) - len(some) % fds.itemsize])
        _, version, kind, instance, _, _ = struct.unpack("=8sIIQII", data)
        assert version == 1
        return kind, instance, list(fds)


class Old:
    """A server that runs, played by the test: it listens at its ports, and its control socket says what it is told."""

    def __init__(self):
        self.socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.port, self.rpc_port = (s.getsockname()[1] for s in self.socks)
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.door.bind(f"\0weft-{os.geteuid()}-127.0.0.1-{self.port}")
        self.door.listen()
        self.door.settimeout(harness.LIMIT_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for s in (*self.socks, self.door):
            s.close()

    def hear(self, want):
        """The connection of whoever says `want`."""
        conn, _ = self.door.accept()
        conn.settimeout(harness.LIMIT_S)
        assert struct.unpack("=8sIIQII", conn.recv(64))[2] == want
        return conn

    def tell(self, conn, kind, fds=()):
        message = struct.pack("=8sIIQII", b"weftsock", 1, kind, 7, (1 << len(fds)) - 1, 0)
        conn.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])

    def offer(self, conn):
        self.tell(conn, OFFER, [s.fileno() for s in (*self.socks, self.door)])


def start_beside(old):
    """A server that is to replace one that is played; not waited for."""
    return subprocess.Popen([os.path.join(harness.BIN_DIR, "weft"), "serve", harness.FABLE, *successor(old).args],
                            stderr=subprocess.PIPE, text=True, process_group=0)


def test_one_that_ends_while_it_hands_over_leaves_its_ports():
    for has_offered in (False, True):
        with Old() as old:
            new = start_beside(old)
            with old.hear(LOOK) as conn:
                old.tell(conn, HERE)
            with old.hear(TAKE) as conn:
                if has_offered:
                    old.offer(conn)
                    assert struct.unpack("=8sIIQII", conn.recv(64))[2] == TAKEN
                old.close()
            lines = []
            for line in new.stderr:
                lines.append(line)
                if line.startswith("weft: ready on"):
                    break
            assert new.poll() is None, lines
            conn = http.client.HTTPConnection("127.0.0.1", old.port, timeout=harness.LIMIT_S)
            conn.request("GET", "/health")
            assert conn.getresponse().status == 200
            conn.close()
            new.terminate()
            assert new.wait(harness.LIMIT_S) == 0, new.stderr.read()
            new.stderr.close()


def test_one_that_is_to_end_while_it_takes_over_leaves_the_old_one_alone():
    with Old() as old:
        new = start_beside(old)
        with old.hear(LOOK) as conn:
            old.tell(conn, HERE)
        with old.hear(TAKE) as conn:
            new.terminate()
            for line in new.stderr:
                if "router: draining" in line:
                    break
            old.offer(conn)
            assert not conn.recv(64)  # not TAKEN
        assert new.wait(harness.LIMIT_S) == 0, new.stderr.read()
        new.stderr.close()


def asked(server, kind, instance=0):
    with Guest(server) as guest:
        guest.send(kind, instance)
        return guest.receive()


def test_nonsense_at_the_control_socket_harms_nobody():
    with Server(check_idle=False) as old:
        kind, instance, fds = asked(old, LOOK)
        assert (kind, instance, fds) == (HERE, old.proc.pid, [])
        rng = harness.rng()
        silent = [Guest(old) for _ in range(20)]
        for _ in range(12):
            with Guest(old) as guest:
                with contextlib.suppress(ConnectionError):
                    guest.sock.send(rng.randbytes(rng.choice((0, 1, 31, 32, 33, 4096))))
                    assert guest.receive() is None
        for kind in (0, TAKEN, DONE, OFFER, 1 << 31):
            assert asked(old, kind, instance) is None
        assert asked(old, TAKE, instance + 1)[0] == OTHER
        with Guest(old) as guest:  # takes the sockets in hand, and goes
            guest.send(TAKE, instance)
            kind, _, fds = guest.receive()
            assert kind == OFFER and len(fds) == 3
            assert asked(old, TAKE, instance)[0] == BUSY
            for fd in fds:
                os.close(fd)
        assert not said(old, "replaced") and old.complete(prompt="x", max_tokens=2)["choices"]
        with successor(old):  # which is not kept out by those who say nothing
            ended(old)
        for guest in silent:
            guest.sock.close()


def test_of_two_at_once_one_wins_and_the_other_is_told():
    harness.attempt(two_at_once)


def two_at_once():
    with Server(check_idle=False) as old:
        loser = subprocess.Popen([os.path.join(harness.BIN_DIR, "weft"), "serve", harness.FABLE,
                                  *successor(old).args], stderr=subprocess.PIPE, text=True, process_group=0)
        try:
            router = harness.wait_until("a router", lambda: harness.children_of(loser.pid).get("router"), every_s=0.001)
            os.kill(loser.pid, signal.SIGSTOP)  # the supervisor, without whose word the router takes nothing
            for line in loser.stderr:
                if "--replace: loading" in line:
                    break
            os.kill(router, signal.SIGSTOP)
            os.kill(loser.pid, signal.SIGCONT)
            if asked(old, LOOK)[1] != old.proc.pid:
                raise harness.Void("it was too quick")
            winner = successor(old)
            with winner:
                ended(old)
                os.kill(router, signal.SIGCONT)
                rest = loser.stderr.read()
                assert loser.wait(harness.LIMIT_S) == 1 and "another server took the place" in rest, rest
        except AssertionError as why:
            if "is just taking the place" in str(why):
                raise harness.Void("it had begun to take") from why
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(loser.pid, signal.SIGKILL)
            loser.wait()


def test_a_stranger_is_refused():
    if os.geteuid() != 0:
        raise harness.Skip("only root can be somebody else")
    with Server() as server:
        _, instance, _ = asked(server, LOOK)

        def ask_as_nobody(guest_at):
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(BaseException):
                    os.setuid(65534)
                    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                        sock.connect(guest_at)
                        with contextlib.suppress(OSError):
                            sock.send(struct.pack("=8sIIQII", b"weftsock", 1, TAKE, instance, 0, 0))
                        with contextlib.suppress(ConnectionError):
                            if sock.recv(64):
                                os._exit(1)
                        os._exit(0)
                os._exit(2)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert ask_as_nobody(f"\0weft-0-127.0.0.1-{server.port}") == 0
        harness.wait_until("a word about it", lambda: said(server, "user 65534 asked for the listening sockets"))
        assert server.complete(prompt="x", max_tokens=2)["choices"]


if __name__ == "__main__":
    harness.main()
