"""The unit of deploy/systemd as systemd reads it, and the server as a service manager sees it: when it says that it is
ready, well and about to stop."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))

import harness  # noqa: E402
from harness import Server, Skip  # noqa: E402

UNIT = os.path.join(harness.SOURCE_DIR, "deploy/systemd/weft.service")
EXPOSURE_MAX = 2.0  # of 10, as systemd-analyze counts


@contextlib.contextmanager
def unit_of_this_build():
    """The unit with the programs of this build, which systemd looks for."""
    with open(UNIT, encoding="utf-8") as f:
        text = f.read()
    assert "ExecStart=/usr/local/bin/weft " in text
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "weft.service")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace("ExecStart=/usr/local/bin", f"ExecStart={harness.BIN_DIR}"))
        shutil.copy(UNIT.replace(".service", ".socket"), folder)
        yield path


def analyze(*args):
    if not shutil.which("systemd-analyze"):
        raise Skip("there is no systemd-analyze here")
    with unit_of_this_build() as path:
        done = subprocess.run(["systemd-analyze", *args, path], capture_output=True, text=True, check=False,
                              timeout=harness.LIMIT_S, env={**os.environ, "SYSTEMD_PAGER": ""})
    return done.returncode, done.stdout + done.stderr


def test_systemd_accepts_the_unit():
    status, words = analyze("verify", "--man=no")
    about_it = [line for line in words.splitlines() if "weft" in line]
    assert status == 0 and not about_it, words


def test_systemd_accepts_the_socket_unit():
    if not shutil.which("systemd-analyze"):
        raise Skip("there is no systemd-analyze here")
    with unit_of_this_build() as path:
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", path.replace(".service", ".socket")],
                              capture_output=True, text=True, check=False, timeout=harness.LIMIT_S)
    about_it = [line for line in (done.stdout + done.stderr).splitlines() if "weft" in line]
    assert done.returncode == 0 and not about_it, done


def test_little_is_exposed():
    status, words = analyze("security", "--offline=true", "--no-pager")
    assert status == 0, words
    exposure = re.search(r"Overall exposure level for weft.service: ([0-9.]+) (\w+)", words)
    assert exposure, words
    print(f"    exposure {exposure[1]} of 10, {exposure[2]}", flush=True)
    assert float(exposure[1]) <= EXPOSURE_MAX, words


def test_the_drain_fits_into_the_time_to_stop():
    """With the settings' defaults: TimeoutStopSec is longer than a drain, which systemd would cut short."""
    with open(UNIT, encoding="utf-8") as f:
        seconds = int(re.search(r"^TimeoutStopSec=(\d+)$", f.read(), re.MULTILINE)[1])
    said = subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "help", "serve"], capture_output=True, text=True,
                          check=True).stdout
    ms = [int(re.search(rf"--{name} .*?default\s+(\d+)", said, re.DOTALL)[1])
          for name in ("drain-delay", "drain-timeout")]
    assert seconds * 1000 >= sum(ms) + 5000, (seconds, ms)


class Manager:
    """Hears what a service says, as systemd does."""

    def __init__(self):
        self.name = f"weft-test-{os.getpid()}"
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.sock.bind("\0" + self.name)
        self.heard = []

    def env(self, watchdog_ms):
        return {"NOTIFY_SOCKET": "@" + self.name, "WATCHDOG_USEC": str(watchdog_ms * 1000)}

    def listen(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.heard += self.sock.recv(4096).decode().split("\n")
        return self.heard

    def n(self, word):
        return self.listen().count(word)

    def wait(self, word, n=1):
        harness.wait_until(f"{n} times {word}, heard {self.heard[-5:]}", lambda: self.n(word) >= n)


def environment_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as f:
        return f.read().split(b"\0")


def test_a_service_manager_hears_when_it_is_ready_well_and_leaving():
    manager = Manager()
    with Server(env=manager.env(400)) as server:
        manager.wait("READY=1")
        said = manager.n("WATCHDOG=1")
        manager.wait("WATCHDOG=1", said + 5)
        assert manager.n("READY=1") == 1 and manager.n("STOPPING=1") == 0
        for pid in server.children().values():
            ours = [v for v in environment_of(pid) if v.startswith((b"NOTIFY_", b"WATCHDOG_"))]
            assert not ours, "a child could speak for the server"
        server.kill("worker")
        server.complete(prompt="Once", max_tokens=4)
        server.proc.send_signal(signal.SIGTERM)
        assert server.proc.wait(harness.LIMIT_S) == 0
        server.check_idle = False
    assert manager.n("STOPPING=1") >= 1 and manager.n("READY=1") == 1, manager.heard


def test_a_router_that_stands_still_is_killed_and_replaced():
    manager = Manager()
    with Server(env=manager.env(400)) as server:
        manager.wait("WATCHDOG=1", 2)
        old = server.kill("router", how=signal.SIGSTOP)["router"]
        harness.wait_until("another router", lambda: server.children().get("router") not in (None, old))
        harness.wait_until("its port to be open", lambda: not server.is_refused())
        harness.wait_until("it to serve", lambda: server.get("/health").status == 200)
        server.complete(prompt="Once", max_tokens=4)
        said = manager.n("WATCHDOG=1")
        manager.wait("WATCHDOG=1", said + 2)
        assert any("the router has stood still for 10 s" in line for line in server.lines), server.lines


if __name__ == "__main__":
    harness.main()
