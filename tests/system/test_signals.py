#!/usr/bin/python3
"""Signals, and the words at the end: what stops a server, what does not, and what it says of it."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time

import harness
from harness import Server
from rpc import Rpc

SUPERVISORS = range(signal.SIGRTMIN, signal.SIGRTMIN + 5)  # what children take from their parent alone
WARNING = re.compile(r"\b(WARN|ERROR)\b")


def ended(server):
    """Waits for the end; all that the server said."""
    assert server.proc.wait(harness.LIMIT_S) == 0
    server.reader.join(harness.LIMIT_S)
    return server.lines


def said(server, text):
    return any(text in line for line in server.lines)


def test_a_stop_says_what_it_does_and_that_it_is_done_and_warns_of_nothing():
    for args in ((), ("--workers", "2"), ("--link", "tcp", "--workers", "2")):
        with Server(*args, check_idle=False) as server:
            harness.wait_until("the server to be healthy", lambda: server.get("/health").status == 200)
            os.killpg(server.proc.pid, signal.SIGINT)  # as a terminal's Ctrl-C
            lines = ended(server)
            stopping = [line for line in lines if line.startswith("weft: stopping")]
            assert len(stopping) == 1 and "a second" in stopping[0] and "30 s" in stopping[0], lines
            assert lines[-1] == "weft: stopped\n", lines
            assert not [line for line in lines if WARNING.search(line)], lines


def test_a_second_one_ends_at_once():
    with Server("--drain-timeout", "3600000", check_idle=False) as server:
        stream = harness.Stream(server, {"prompt": "Once", "max_tokens": 4000, "ignore_eos": True})
        harness.wait_until("the stream to begin", lambda: stream.has_begun)
        server.kill("worker", how=signal.SIGSTOP)  # so that the stream cannot end by itself
        server.proc.send_signal(signal.SIGTERM)
        harness.wait_until("it to be told", lambda: said(server, "weft: stopping"))
        server.proc.send_signal(signal.SIGTERM)
        lines = ended(server)
        assert lines[-1] == "weft: stopped\n", lines
        stream.reading.thread.join(harness.LIMIT_S)


def test_signals_of_strangers_harm_nothing():
    with Server("--workers", "2", "--kv-memory", "16MiB") as server:
        pids = [server.proc.pid, *server.workers(), server.children()["router"], server.children()["scheduler"]]
        before = sorted(harness.actors_of(server.proc.pid))
        for signo in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, *SUPERVISORS):
            for pid in pids[1:]:
                os.kill(pid, signo)
        for signo in (signal.SIGUSR1, signal.SIGUSR2):
            os.kill(pids[0], signo)
        for _ in range(3):
            assert server.complete(prompt="x", max_tokens=2)["choices"]
        assert sorted(harness.actors_of(server.proc.pid)) == before
        assert server.metrics()["weft_worker_losses_total"] == 0
        assert not said(server, "SIGHUP") and not said(server, "draining"), server.lines


def test_a_child_that_starts_does_not_die_of_a_signal():
    """Between exec and the moment when it watches its signals."""
    with Server() as server:
        for i in range(5):
            old = server.kill("worker")["worker"]
            new = harness.wait_until("the next worker", lambda: next(
                (pid for name, pid in harness.actors_of(server.proc.pid) if name == "worker" and pid != old), None))
            for signo in (signal.SIGUSR2, signal.SIGUSR1, signal.SIGHUP, *SUPERVISORS):
                os.kill(new, signo)
            # A report from before the loss says that all is well, too.
            harness.wait_until("the loss to be reported", lambda n=i: server.metric("weft_worker_losses_total") > n)
            harness.wait_until("the server to be healthy", lambda: server.get("/health").status == 200)
            assert server.children()["worker"] == new, server.lines[-5:]


def test_sighup_reads_the_log_level_again_for_all_processes():
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
        def write(text):
            config.seek(0)
            config.truncate()
            config.write(text)
            config.flush()

        write("log-level = info\n")
        with Server("--config", config.name) as server:
            assert not said(server, "DEBUG")
            write("log-level = debug\nport = 1\n")
            for pid in server.children().values():  # they are hung up on as well, with the whole group
                os.kill(pid, signal.SIGSTOP)
            os.killpg(server.proc.pid, signal.SIGHUP)
            harness.wait_until("the word", lambda: said(
                server, "--log-level, which is debug, and the router's --api-key-file; other settings need a restart"))
            for pid in server.children().values():
                os.kill(pid, signal.SIGCONT)
            for actor in ("router", "scheduler", "worker"):
                harness.wait_until(actor, lambda actor=actor: said(server, f"DEBUG {actor}: the log level is debug"))
            server.kill("worker")
            harness.wait_until("the supervisor's word", lambda: said(server, "DEBUG weft: started weft-worker"))
            harness.wait_until("the server to be healthy", lambda: server.get("/health").status == 200)
            write("log-level = loud\n")
            server.proc.send_signal(signal.SIGHUP)
            harness.wait_until("the refusal", lambda: said(server, "nothing is read again"))
            write("log-level = error\n")
            server.proc.send_signal(signal.SIGHUP)
            harness.wait_until("the word", lambda: said(server, "--log-level, which is error"))
            n = len(server.lines)
            server.kill("scheduler")  # of which router and supervisor would warn
            harness.wait_until("the server to be healthy", lambda: server.get("/health").status == 200)
            assert server.complete(prompt="x", max_tokens=2)["choices"]
            assert server.lines[n:] == [], server.lines[n:]


class ByHand:
    """The three actors in one process group, as from one script."""

    def __init__(self, *args):
        name = f"abstract://weft-signals-{os.getpid()}-{time.monotonic_ns()}"
        meet = ("--scheduler-url", name)
        worker = ("--worker-url", name + "-w")
        self.procs, self.lines, group = {}, {}, 0
        for actor, own in (("scheduler", (*meet, *worker)), ("worker", (harness.FABLE, *worker, "--kv-memory", "16MiB")),
                           ("router", (harness.FABLE, *meet, "--port", "0", "--no-rpc"))):
            proc = subprocess.Popen([os.path.join(harness.BIN_DIR, f"weft-{actor}"), *own, *args],
                                    stderr=subprocess.PIPE, text=True, process_group=group)
            group = group or proc.pid
            self.procs[actor], self.lines[actor] = proc, []
            harness.Call(lambda proc=proc, lines=self.lines[actor]: lines.extend(proc.stderr))
        self.group = group

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for proc in self.procs.values():
            proc.kill()
            proc.wait()

    def wait_for(self, actor, text):
        harness.wait_until(f"{actor} to say {text}", lambda: any(text in line for line in self.lines[actor]))


def test_actors_by_hand_stop_without_a_warning_and_read_again():
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
        with ByHand("--config", config.name) as actors:
            actors.wait_for("router", "ready on http://")
            for proc in actors.procs.values():  # nobody's supervisor
                proc.send_signal(signal.SIGUSR1)
                proc.send_signal(signal.SIGUSR2)
            config.write("log-level = debug\n")
            config.flush()
            os.killpg(actors.group, signal.SIGHUP)
            for actor in actors.procs:
                actors.wait_for(actor, f"weft-{actor}: SIGHUP: read again: --log-level, which is debug")
            os.killpg(actors.group, signal.SIGINT)
            for actor, proc in actors.procs.items():
                assert proc.wait(harness.LIMIT_S) == 0, (actor, actors.lines)
                actors.wait_for(actor, f"weft-{actor}: stopped")
                assert not [line for line in actors.lines[actor] if WARNING.search(line)], actors.lines


def test_json_is_json_to_the_last_line():
    def parsed(text):
        lines = [json.loads(line) for line in text.splitlines()]
        assert lines and all(set(line) == {"ts", "level", "actor", "msg"} for line in lines), text
        return lines

    weft = [os.path.join(harness.BIN_DIR, "weft"), "serve"]
    with subprocess.Popen([*weft, harness.FABLE, "--port=0", "--no-rpc", "--log-format=json"],
                          stderr=subprocess.PIPE, text=True) as proc:
        text = ""
        for line in proc.stderr:
            text += line
            if '"actor":"weft","msg":"ready on http://127.0.0.1:' in line:
                proc.send_signal(signal.SIGTERM)
        assert proc.wait(harness.LIMIT_S) == 0
    lines = parsed(text)
    assert [line["msg"] for line in lines if line["actor"] == "weft"][-1] == "stopped", text
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
        config.write("log-format = json\nport = x\n")
        config.flush()
        done = subprocess.run([*weft, harness.FABLE, "--config", config.name], capture_output=True, text=True,
                              timeout=harness.LIMIT_S, check=False)
        assert parsed(done.stderr)[-1]["level"] == "ERROR", done.stderr
    for args, words, status in (((harness.FABLE, "--port=x"), "--port", 2), (("no/such/model",), "no/such/model", 1),
                                ((harness.FABLE, "--port=1", "--host=192.0.2.1"), "192.0.2.1", 1)):
        done = subprocess.run([*weft, *args, "--log-format", "json"], capture_output=True, text=True,
                              timeout=harness.LIMIT_S, check=False)
        assert done.returncode == status, done
        last = parsed(done.stderr)[-1]
        assert last["level"] == "ERROR" and words in last["msg"], done.stderr
    for actor in ("router", "scheduler", "worker"):
        done = subprocess.run([os.path.join(harness.BIN_DIR, f"weft-{actor}"), "--no-such-flag", "--log-format=json"],
                              capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
        last = parsed(done.stderr)[-1]
        assert last["actor"] == actor and "--no-such-flag" in last["msg"], done.stderr


def test_api_keys_are_read_again():
    """A good file replaces the keys, a bad one does not; connections that an old key admitted must show one again."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")

        def write(text):
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)

        def status(server, key):
            return server.get("/v1/models", {"Authorization": f"Bearer {key}"}).status

        write("old name=first\n")
        with Server("--api-key-file", path) as server, Rpc(server) as rpc:
            assert status(server, "old") == 200 and status(server, "new") == 401
            assert rpc.call(1, "models", {"api_key": "old"})[0] is None
            write("new name=second\n")
            server.proc.send_signal(signal.SIGHUP)
            harness.wait_until("the new key", lambda: status(server, "new") == 200)
            assert status(server, "old") == 401
            assert rpc.call(2, "models")[0][0] == "authentication_error"
            assert rpc.call(3, "models", {"api_key": "new"})[0] is None
            write("")
            server.proc.send_signal(signal.SIGHUP)
            harness.wait_until("a word about it", lambda: any("keys stay as they were" in line for line in server.lines))
            assert status(server, "new") == 200


if __name__ == "__main__":
    harness.main()
