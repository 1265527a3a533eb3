"""What the system tests share: a real server on free ports, HTTP and SSE, its processes, its metrics.

A test file defines functions test_*; harness.main() runs them in order, prints each name, and ends with
status 0, 1, or 77 when everything was skipped. Nothing here sleeps for a fixed time in the hope that
something has happened: wait_until() asks, with a generous limit.
"""

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

SOURCE_DIR = os.environ.get("WEFT_SOURCE_DIR", os.path.abspath(os.path.join(os.path.dirname(__file__), "../..")))
BIN_DIR = os.environ.get("WEFT_BIN_DIR", os.path.join(SOURCE_DIR, "build/bin"))
SANITIZED = bool(os.environ.get("WEFT_SANITIZED"))
FABLE = os.path.join(SOURCE_DIR, "models/fable-6m")
DRAFT = os.path.join(SOURCE_DIR, "tests/data/fable-draft-1m")
SLOW = 10 if SANITIZED else 1  # factor on every limit
LIMIT_S = 60 * SLOW


class Skip(Exception):
    """Raised by a test that cannot run here; the reason is printed."""


def wait_until(what, condition, limit_s=LIMIT_S, every_s=0.01):
    end = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {limit_s} s in vain for: {what}")
        time.sleep(every_s)


def rng():
    """The test's random numbers; the seed is printed and WEFT_SEED replays it."""
    seed = int(os.environ.get("WEFT_SEED", "0"), 0) or random.SystemRandom().getrandbits(32)
    print(f"    seed: WEFT_SEED={seed}", flush=True)
    return random.Random(seed)


def proc_stat(pid):
    """(parent pid, name, state) of a process, or None."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            text = f.read()
    except OSError:
        return None
    name = text[text.index("(") + 1 : text.rindex(")")]
    rest = text[text.rindex(")") + 2 :].split()
    return int(rest[1]), name, rest[0]


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()


class Server:
    """`weft serve` as a context manager. On leaving it checks that nothing is left behind: blocks,
    processes, words from a sanitizer."""

    def __init__(self, *args, model=FABLE, env=None, check_idle=True, ignore=None):
        self.args, self.model, self.env, self.check_idle = args, model, env or {}, check_idle
        self.ignore = ignore  # a signal that the server is started to ignore
        self.lines, self.proc, self.port, self.rpc_port = [], None, None, None

    def __enter__(self):
        command = [os.path.join(BIN_DIR, "weft"), "serve", self.model, "--port", "0", "--rpc-port",
                   str(free_port()), *self.args]
        self.rpc_port = int(command[command.index("--rpc-port") + 1])
        env = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_") or k == "WEFT_ISA"}
        before = signal.signal(self.ignore, signal.SIG_IGN) if self.ignore else None
        try:
            self.proc = subprocess.Popen(command, stderr=subprocess.PIPE, env={**env, **self.env},
                                         start_new_session=True)
        finally:
            if self.ignore:
                signal.signal(self.ignore, before)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            wait_until("the ready line", lambda: self.port or self.proc.poll() is not None)
            if not self.port:
                self.reader.join(5)
                raise AssertionError("the server ended early:\n" + "".join(self.lines))
        except BaseException:
            self._kill_all()
            raise
        return self

    def _read(self):
        for raw in self.proc.stderr:
            line = raw.decode(errors="replace")
            self.lines.append(line)
            match = re.search(r"^weft: ready on http://\S*:(\d+)$", line.strip())
            if match:
                self.port = int(match.group(1))

    def __exit__(self, kind, value, trace):
        try:
            if kind is None and self.check_idle:
                self.wait_idle()
            pids = list(self.children().values())
            if self.proc.poll() is None:
                self.proc.send_signal(signal.SIGTERM)
            status = self.proc.wait(LIMIT_S)
            self.reader.join(5)
            if kind is None:
                assert status == 0, f"weft serve ended with {status}"
                wait_until("the children to end", lambda: all(proc_stat(p) is None for p in pids), 5)
                self.check_log()
        finally:
            self._kill_all()
            if kind is not None:
                print("    --- server log, its end ---\n" + "".join(self.lines[-60:]), flush=True)

    def check_log(self):
        bad = [l for l in self.lines if re.search(
            r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error|assertion", l, re.I)]
        assert not bad, "the log has:\n" + "".join(self.lines[-80:])

    def _kill_all(self):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.proc.pid, signal.SIGKILL)
        self.proc.wait()

    # processes ------------------------------------------------------------------------------------
    def children(self):
        """{"router": pid, "scheduler": pid, "worker": pid} as they are now."""
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                stat = proc_stat(int(entry))
                if stat and stat[0] == self.proc.pid and stat[2] != "Z" and stat[1].startswith("weft-"):
                    found[stat[1][5:]] = int(entry)
        return found

    def kill(self, *names):
        """kill -9 of some children at once; returns their old pids."""
        pids = self.children()
        for name in names:
            os.kill(pids[name], signal.SIGKILL)
        return {name: pids[name] for name in names}

    # HTTP -----------------------------------------------------------------------------------------
    def connect(self, timeout=LIMIT_S):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        conn = self.connect()
        try:
            headers = dict(headers or {})
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            if body is not None:
                headers.setdefault("Content-Type", "application/json")
            conn.request(method, path, body, headers)
            reply = conn.getresponse()
            return Reply(reply.status, reply.headers, reply.read())
        finally:
            conn.close()

    def get(self, path, headers=None):
        return self.request("GET", path, headers=headers)

    def post(self, path, body, headers=None):
        return self.request("POST", path, body, headers)

    def complete(self, **body):
        """POST /v1/completions that must succeed; the parsed answer."""
        reply = self.post("/v1/completions", body)
        assert reply.status == 200, (reply.status, reply.text, body)
        return reply.json

    def chat(self, **body):
        reply = self.post("/v1/chat/completions", body)
        assert reply.status == 200, (reply.status, reply.text, body)
        return reply.json

    def stream(self, path, body, on_event=None):
        """POST with stream: true; the list of parsed events. Asserts that the stream ends with [DONE]."""
        conn = self.connect()
        try:
            conn.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            reply = conn.getresponse()
            if reply.status != 200:
                raise AssertionError((reply.status, reply.read()))
            assert reply.headers["Content-Type"].startswith("text/event-stream")
            events, done = [], False
            for line in reply:
                line = line.strip()
                if not line or line.startswith(b":"):
                    continue
                assert line.startswith(b"data: "), line
                assert not done, "data behind [DONE]"
                if line == b"data: [DONE]":
                    done = True
                    continue
                events.append(json.loads(line[6:]))
                assert "error" not in events[-1], events[-1]
                if on_event:
                    on_event(events[-1])
            assert done, f"the stream broke off after {len(events)} events"
            return events
        finally:
            conn.close()

    # metrics --------------------------------------------------------------------------------------
    def metrics(self):
        """{name or name{labels}: value}; labels model_name and engine left out."""
        values = {}
        for line in self.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = re.sub(r'(model_name|engine)="[^"]*",?', "", name).replace("{}", "").replace(",}", "}")
                values[name] = float(value)
        return values

    def metric(self, name):
        """One metric, summed over its labels."""
        return sum(v for k, v in self.metrics().items() if k == name or k.startswith(name + "{"))

    def wait_idle(self):
        def idle():
            m = self.metrics()
            return (m["weft_num_requests_running"] == 0 and m["weft_num_requests_waiting"] == 0
                    and m["weft_kv_cache_usage_perc"] == 0)
        wait_until("all requests to leave and all blocks to be free", idle)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tokens_of(choice):
    """[(token id, logprob)] of a completion choice asked for with logprobs and return_tokens_as_token_ids."""
    logprobs = choice["logprobs"]
    return [(int(t.removeprefix("token_id:")), p)
            for t, p in zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)]


def in_threads(calls):
    """Runs all calls at once; their results in order. The first exception is raised."""
    results, errors = [None] * len(calls), []

    def run(i, call):
        try:
            results[i] = call()
        except BaseException as error:  # noqa: BLE001 - carried to the caller
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i, c)) for i, c in enumerate(calls)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def shared_dir():
    path = os.environ.get("WEFT_SHARED_DIR", "")
    if not os.path.isdir(path):
        raise Skip("the folder of shared vectors is not here")
    return path


def main():
    tests = [(n, f) for n, f in sys.modules["__main__"].__dict__.items() if n.startswith("test_")]
    wanted = sys.argv[1:]
    failed, skipped, ran = 0, 0, 0
    for name, test in tests:
        if wanted and name not in wanted:
            continue
        begin = time.monotonic()
        print(f"[ RUN  ] {name}", flush=True)
        try:
            test()
            ran += 1
            print(f"[  OK  ] {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Skip as reason:
            skipped += 1
            print(f"[ SKIP ] {name}: SKIPPED: {reason}", flush=True)
        except BaseException:  # noqa: BLE001 - reported, counted
            failed += 1
            traceback.print_exc(file=sys.stdout)
            print(f"[ FAIL ] {name} ({time.monotonic() - begin:.1f} s)", flush=True)
    sys.exit(1 if failed else 77 if skipped and not ran else 0)
