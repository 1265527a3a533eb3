"""Sockets that a service manager has opened: the server accepts there, and nobody is refused while its processes are
replaced, or all of it is."""

import os
import signal
import socket
import subprocess

import harness
from harness import Server

# Before the server is executed in its place: the sockets become descriptors 3 and 4, as sd_listen_fds(3) has them.
BECOME = """
import os, sys
names, fds, command = sys.argv[1], [int(fd) for fd in sys.argv[2].split(",")], sys.argv[3:]
high = [os.dup2(fd, 100 + i) for i, fd in enumerate(fds)]
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i)
os.closerange(3 + len(fds), 200)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=os.environ.pop("N_FDS", str(len(fds))))
if names:
    os.environ["LISTEN_FDNAMES"] = names
os.execvp(command[0], command)
"""


def listening(n=2):
    socks = [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(n)]
    for s in socks:
        s.set_inheritable(True)
    return socks


class Given(Server):
    """A server with sockets of a service manager, which keeps them."""

    def __init__(self, socks, *args, names=""):
        fds = ",".join(str(s.fileno()) for s in socks)
        super().__init__(*args, wrap=("/usr/bin/env", "python3", "-c", BECOME, names, fds))
        self.socks = socks

    def __enter__(self):
        popen = subprocess.Popen
        try:
            subprocess.Popen = lambda *a, **k: popen(*a, **k, pass_fds=[s.fileno() for s in self.socks])
            return super().__enter__()
        finally:
            subprocess.Popen = popen


def port_of(sock):
    return sock.getsockname()[1]


def test_it_serves_at_the_sockets_that_it_is_given():
    socks = listening()
    with Given(socks) as server:
        assert (server.port, server.rpc_port) == (port_of(socks[0]), port_of(socks[1]))
        assert server.complete(prompt="It was late", max_tokens=4)["choices"][0]["text"]
    with Given(list(reversed(socks)), names="rpc:http") as server:
        assert (server.port, server.rpc_port) == (port_of(socks[0]), port_of(socks[1]))


def test_nobody_is_refused_while_router_or_server_are_replaced():
    socks = listening(1)
    with Given(socks, "--no-rpc") as server:
        expected = server.complete(prompt="It was late", max_tokens=8, temperature=0)["choices"][0]["text"]
        for _ in range(3):
            old = server.kill("router", how=signal.SIGKILL)["router"]
            again = server.complete(prompt="It was late", max_tokens=8, temperature=0)["choices"][0]["text"]
            assert again == expected and server.children()["router"] != old
    waiting = harness.Call(lambda: server.complete(prompt="It was late", max_tokens=8, temperature=0))
    harness.wait_until("the client to be connected", lambda: has_waiting(socks[0]))
    with Given(socks, "--no-rpc"):
        assert waiting.result()["choices"][0]["text"] == expected


def has_waiting(sock):
    """Whether somebody has connected whom nobody has accepted yet."""
    with open("/proc/net/tcp", encoding="ascii") as f:
        for line in f:
            words = line.split()
            if words[1].endswith(f":{port_of(sock):04X}") and words[3] == "0A":  # it listens
                return int(words[4].split(":")[1], 16) > 0
    return False


def refusal(fds, *args, names="", rpc=False, env=None):
    command = ["/usr/bin/env", "python3", "-c", BECOME, names, ",".join(map(str, fds)),
               os.path.join(harness.BIN_DIR, "weft"), "serve", harness.FABLE, *([] if rpc else ["--no-rpc"]), *args]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=harness.LIMIT_S, check=False, pass_fds=fds,
                          env={**os.environ, **(env or {})})
    assert done.returncode in (1, 2), done
    return done.stderr.strip().splitlines()[-1]


def test_what_is_no_listening_socket_is_refused_in_a_sentence():
    socks = listening(3)
    fds = [s.fileno() for s in socks]
    idle = socket.socket()
    assert "is no TCP socket that listens" in refusal([idle.fileno()])
    assert "gives 3 sockets" in refusal(fds)
    assert "gives this one its own" in refusal(fds[:1], "--replace")
    assert "which --no-rpc leaves out" in refusal(fds[:2])
    assert "is no TCP socket that listens" in refusal([fds[0], idle.fileno()], rpc=True)
    assert 'is no number: "two"' in refusal(fds[:2], env={"N_FDS": "two"})
    assert "two sockets for HTTP" in refusal(fds[:2], names="http:http", rpc=True)


if __name__ == "__main__":
    harness.main()
