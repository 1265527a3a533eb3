"""The death of anything: processes of a server under load are killed or stand still for a while, in random order, where
/dev/shm is full all the time. Streams whose router lives end with their very tokens; nothing is left behind.

WEFT_TEST_DEATHS is the number of faults (6), WEFT_TEST_STILL_S how long who is stopped stands still (1); `make nightly`
has 50, and 5 s, as does: WEFT_TEST_DEATHS=50 WEFT_TEST_STILL_S=5 tests/system/test_deaths.py
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time

import harness
import test_kill as kills
from harness import Server
from test_links import addresses

N_FAULTS = int(os.environ.get("WEFT_TEST_DEATHS", "6"))
STILL_S = float(os.environ.get("WEFT_TEST_STILL_S", "1"))
N_STREAMS = 16
SEEDED = [i for i in range(len(kills.BODIES)) if i != kills.UNSEEDED]
# A server whose /dev/shm has no room at all: 64 KiB, which are taken.
FULL_SHM = ("unshare", "-m", "sh", "-c",
            'mount -t tmpfs -o size=64k none /dev/shm && dd if=/dev/zero of=/dev/shm/full bs=4k 2>/dev/null; exec "$@"', "sh")


def may_mount():
    done = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/dev/shm"], capture_output=True, check=False)
    if done.returncode != 0:
        print("    /dev/shm is as it is: this user may not mount another", flush=True)
    return done.returncode == 0


def is_whole(stream, expected):
    """Whether a stream has all of its tokens. One that was cut off has the first ones, and the connection says so."""
    with contextlib.suppress(OSError):
        stream.reading.result()
    head, _, body = b"".join(stream.chunks).partition(b"\r\n\r\n")
    if head.split()[1:2] not in ([b"200"], []):
        return False
    tokens, finish = [], None
    for line in body.split(b"\n"):
        with contextlib.suppress(ValueError):  # no event, or cut off in its midst
            event = json.loads(line.removeprefix(b"data: "))
            for choice in event.get("choices", []):
                if choice.get("logprobs"):
                    tokens += harness.tokens_of(choice)
                finish = choice.get("finish_reason") or finish
    assert tokens == expected[:len(tokens)], f"stream {stream.idx} has other tokens"
    return finish in ("stop", "length") and len(tokens) == len(expected)


class Deaths:
    """A server that is started again when its supervisor was killed, and what is to be true of it."""

    def __init__(self, rng, *args):
        self.rng, self.args = rng, args
        self.wrap = FULL_SHM if may_mount() else ()
        self.mark = f"weft-deaths-{os.getpid()}-{time.monotonic_ns()}"
        self.tmp = tempfile.TemporaryDirectory()
        self.server = None
        self.expected = None
        self.names = set()  # of unix sockets

    def start(self):
        # Whoever starts anew is waited for, however long that takes on a busy machine.
        self.server = Server(*self.args, "--restart-grace", "3600000", wrap=self.wrap,
                             env={"DEATHS_MARK": self.mark, "TMPDIR": self.tmp.name}).__enter__()
        names = {"@" + a.removeprefix("abstract://") for a in addresses(self.server)}
        names.add(f"@weft-{os.geteuid()}-127.0.0.1-{self.server.port}")
        assert names <= sockets() or os.environ.get("WEFT_LINK"), names - sockets()
        self.names |= names  # those of its predecessors are gone

    def processes(self):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if self.mark.encode() in f.read():
                        found.append(int(pid))
        return found

    def victims(self):
        children, workers = self.server.children(), self.server.workers()
        return {"router": children.get("router"), "scheduler": children.get("scheduler"),
                **{f"worker {i}": pid for i, pid in enumerate(workers)}, "supervisor": self.server.proc.pid}

    def is_healthy(self):
        with contextlib.suppress(OSError):
            return self.server.get("/health").status == 200 and len(self.server.workers()) == 2
        return False

    def strike(self, name, how):
        """True: streams may have lost their router."""
        pid = self.victims().get(name)
        if not pid:  # it is just being replaced
            return False
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            return False
        if how == signal.SIGSTOP:
            time.sleep(STILL_S)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if name == "supervisor" and how == signal.SIGKILL:
            self.server.proc.wait()
            harness.wait_until("its children to go with it", lambda: not self.processes())
        return how == signal.SIGKILL and name in ("router", "supervisor")

    def round(self, name, how):
        n_tokens, n_all = kills.counted(self.server)[1], N_STREAMS * kills.MAX_TOKENS
        moment = n_tokens + self.rng.random() * 0.4 * n_all
        streams = [kills.Stream(self.server, SEEDED[i % len(SEEDED)]) for i in range(N_STREAMS)]
        harness.wait_until("all streams to begin", lambda: all(s.has_begun for s in streams))
        harness.wait_until("the moment to come",
                           lambda: kills.counted(self.server)[1] >= moment or all(s.is_done for s in streams))
        may_be_cut = self.strike(name, how)
        whole = [is_whole(s, self.expected[s.idx]) for s in streams]
        assert may_be_cut or all(whole), f"{name}, {how.name}: {whole.count(False)} of {N_STREAMS} streams were not finished"
        if self.server.proc.poll() is not None:
            self.start()
        harness.wait_until("the server to be healthy again", self.is_healthy)
        self.check_shm()
        return whole.count(False)

    def check_shm(self):
        """What is in the server's own /dev/shm: what the test has put there."""
        if self.wrap:
            left = set(os.listdir(f"/proc/{self.server.proc.pid}/root/dev/shm")) - {"full"}
            assert not left, f"in /dev/shm: {left}"

    def end(self):
        self.check_shm()
        assert self.server.post("/reset_prefix_cache", {}).status == 200
        harness.wait_until("all blocks to be free",
                           lambda: self.server.metrics().get('weft_kv_blocks{state="used"}') == 0)
        self.server.__exit__(None, None, None)
        harness.wait_until("all processes to be gone", lambda: not self.processes())
        left = [os.path.join(at, f) for at, _, files in os.walk(self.tmp.name) for f in files]
        assert not left, f"left behind: {left}"
        self.tmp.cleanup()


def sockets():
    """Names of all unix sockets."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as f:
        return {line.split()[7] for line in f if len(line.split()) > 7}


def run(*args):
    rng = harness.rng()
    shm_before = set(os.listdir("/dev/shm"))
    deaths = Deaths(rng, *args)
    deaths.start()
    try:
        deaths.expected = {s.idx: s.tokens for s in kills.run_streams(deaths.server)}
        faults = [(name, how) for name in deaths.victims() for how in (signal.SIGKILL, signal.SIGSTOP)]
        n_cut, order = 0, []
        while len(order) < N_FAULTS:
            order += rng.sample(faults, len(faults))
        for name, how in order[:N_FAULTS]:
            n_cut += deaths.round(name, how)
        deaths.end()
    except BaseException:
        deaths.server.__exit__(AssertionError, None, None)
        raise
    print(f"    {N_FAULTS} faults under {N_STREAMS} streams each; {n_cut} streams were cut off with their router", flush=True)
    harness.wait_until("all sockets to be gone", lambda: not sockets() & deaths.names)
    harness.wait_until("nothing new to be in /dev/shm", lambda: set(os.listdir("/dev/shm")) <= shm_before)


def test_replicas_survive_the_death_of_anything():
    run("--workers", "2")


def test_a_divided_model_survives_the_death_of_anything():
    run("--workers", "2", "--layout", "tp")


if __name__ == "__main__":
    harness.main()
