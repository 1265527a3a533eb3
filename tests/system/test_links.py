"""The links that `weft serve --link` makes: each kind serves, leaves nothing behind, and knows its own."""

import glob
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

import harness
from harness import Server

KINDS = ("abstract", "ipc", "tcp", "tls")
STORY = {"prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": True, "temperature": 0}


def arguments(pid):
    with open(f"/proc/{pid}/cmdline", encoding="utf-8") as f:
        return f.read().split("\0")


def addresses(server):
    """The addresses of the scheduler's links, from its command line."""
    given = dict(a[2:].split("=", 1) for a in arguments(server.children()["scheduler"]) if "=" in a)
    return [given["scheduler-url"], *given["worker-url"].split(",")]


def text_of(answer):
    return answer["choices"][0]["text"]


def complete_again(server):
    """STORY, as soon as the killed process has been replaced."""
    return harness.wait_until("an answer", lambda: (r := server.post("/v1/completions", STORY)).status == 200 and r).json


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def test_each_kind_serves_and_leaves_nothing_behind():
    texts = set()
    with tempfile.TemporaryDirectory() as tmp:
        for kind in KINDS:
            with Server("--link", kind, "--workers", "2", "--kv-memory", "16MiB", env={"TMPDIR": tmp}) as server:
                scheme = "tls+tcp" if kind == "tls" else kind
                found = addresses(server)
                assert len(found) == 3 and all(a.startswith(scheme + "://") for a in found), found
                folders = glob.glob(tmp + "/*")
                assert len(folders) == (kind == "ipc"), folders
                assert all(os.stat(f).st_mode & 0o777 == 0o700 for f in folders)
                texts.add(text_of(server.complete(**STORY)))
                server.kill("scheduler", "worker")
                texts.add(text_of(complete_again(server)))
            assert not os.listdir(tmp), os.listdir(tmp)
            ports = [int(a.rsplit(":", 1)[1]) for a in found if "tcp" in a]
            assert not any(listens(p) for p in ports), ports
    assert len(texts) == 1, texts


def test_a_killed_supervisor_leaves_a_folder_at_most():
    with tempfile.TemporaryDirectory() as tmp:
        for kind in KINDS:
            with Server("--link", kind, env={"TMPDIR": tmp}, check_idle=False) as server:
                found = addresses(server)
                pids = list(server.children().values())
                os.kill(server.proc.pid, signal.SIGKILL)
                harness.wait_until("the children to end", lambda: all(harness.proc_stat(p) is None for p in pids))
                server.proc.wait()
                server.proc.returncode = 0  # as asked
            assert len(glob.glob(tmp + "/*")) == (kind == "ipc")
            assert not any(listens(int(a.rsplit(":", 1)[1])) for a in found if "tcp" in a)
            with open("/proc/net/unix", encoding="utf-8", errors="replace") as f:
                names = f.read()
            assert not any(a.split("://")[1] in names for a in found)
            with Server("--link", kind, env={"TMPDIR": tmp}) as server:
                server.complete(**STORY)
            for path in glob.glob(tmp + "/*/*"):
                os.unlink(path)
            for path in glob.glob(tmp + "/*"):
                os.rmdir(path)


def knock(port, until):
    """Strangers of all kinds, as fast as they come; some hold their connections."""
    rng, held = harness.rng(), []
    hello = bytes.fromhex("16030100c8010000c403035a5a")  # how TLS begins
    while not until.is_set():
        try:
            s = socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError:
            continue
        say = rng.choice([b"", b"GET / HTTP/1.1\r\n\r\n", hello, rng.randbytes(100), b"WFLK" + rng.randbytes(60)])
        try:
            s.sendall(say)
        except OSError:
            pass
        held.append(s)
        if len(held) > 50:
            held.pop(rng.randrange(len(held))).close()
    for s in held:
        s.close()


def test_strangers_at_the_ports_disturb_nobody():
    for kind in ("tcp", "tls"):
        with Server("--link", kind) as server:
            expected = text_of(server.complete(**STORY))
            until = threading.Event()
            before, begin = server.children(), time.monotonic()
            ports = [int(a.rsplit(":", 1)[1]) for a in addresses(server)]
            threads = [threading.Thread(target=knock, args=(port, until)) for port in ports]
            for t in threads:
                t.start()
            try:
                for _ in range(10):
                    assert text_of(server.complete(**STORY)) == expected
                # The one that comes anew finds its place among them.
                server.kill("worker")
                assert text_of(complete_again(server)) == expected
            finally:
                until.set()
                for t in threads:
                    t.join()
            after = server.children()
            assert before["router"] == after["router"] and before["scheduler"] == after["scheduler"]
            assert server.metrics()["weft_resubmissions_total"] == 0
            told = [l for l in server.lines if "link: " in l]
            once_a_second = len(ports) * (time.monotonic() - begin + 2)
            assert 1 <= len(told) <= once_a_second, (len(told), once_a_second)


def ends_with(program, *args):
    done = subprocess.run([os.path.join(harness.BIN_DIR, program), *args], capture_output=True, text=True,
                          timeout=harness.LIMIT_S, check=False)
    return done.returncode, done.stderr


def test_what_cannot_be_trusted_is_refused_in_a_sentence():
    router = ("weft-router", harness.FABLE, "--port=0", "--rpc-port=0")
    status, said = ends_with(*router, "--scheduler-url=tcp://192.0.2.1:9")
    assert status == 78 and "--insecure-links" in said, (status, said)
    status, said = ends_with(*router, "--scheduler-url=tls+tcp://127.0.0.1:9")
    assert status == 78 and "--link-ca" in said, (status, said)
    status, said = ends_with("weft-scheduler", "--scheduler-url=tcp://0.0.0.0:9", "--worker-url=abstract://x")
    assert status == 78 and "--insecure-links" in said, (status, said)
    status, said = ends_with("weft", "serve", harness.FABLE, "--link=carrier")
    assert status == 2 and re.search(r"--link is abstract, ipc, tcp or tls, not \"carrier\"", said), (status, said)


def test_who_waits_for_a_peer_says_so():
    with subprocess.Popen([os.path.join(harness.BIN_DIR, "weft-router"), harness.FABLE, "--port=0", "--rpc-port=0",
                           "--scheduler-url=abstract://nobody-is-here"], stderr=subprocess.PIPE, text=True) as router:
        try:
            assert any("waiting for a session with abstract://nobody-is-here" in line for line in router.stderr)
        finally:
            router.kill()


if __name__ == "__main__":
    harness.main()
