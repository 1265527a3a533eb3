"""Shared by the system tests: a real server on free ports, HTTP and SSE, its processes, its metrics.

A test file defines functions test_*; harness.main() runs them in order, prints each name and at the end what
was skipped, and ends with status 0, 1, or 77 when everything was skipped. Nothing here sleeps for a fixed time
in the hope that something has happened: wait_until() asks, with a generous limit. If a test must look at a moment
that a busy machine can let slip, it raises Void and attempt() tries again: assertions never depend on the machine's
speed.
"""

import concurrent.futures
import contextlib
import functools
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
FABLE_Q8_0 = os.path.join(os.path.dirname(BIN_DIR), "made/fable-6m-q8_0.gguf")  # by the build
DRAFT = os.path.join(SOURCE_DIR, "tests/data/fable-draft-1m")
SLOW = 10 if SANITIZED else 1  # factor on every limit
LIMIT_S = 120 * SLOW


class Skip(Exception):
    """Raised by a test that cannot run here; the reason is printed."""


class Void(Exception):
    """The situation that a test wanted to look at did not come about: it shows nothing, neither good nor bad."""


def attempt(run, n=8):
    """run() until it is not void. A property that does not hold fails at the first attempt that counts."""
    for left in reversed(range(n)):
        try:
            return run()
        except Void as why:
            print(f"    once more: {why}", flush=True)
            if not left:
                raise AssertionError(f"void {n} times, at last: {why}") from why


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


def actors_of(pid):
    """[("router", pid), ("scheduler", pid), ("worker", pid), ...] of a supervisor, as they are now."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            stat = proc_stat(int(entry))
            if stat and stat[0] == pid and stat[2] != "Z" and stat[1].startswith("weft-"):
                found.append((stat[1][5:], int(entry)))
    return found


def children_of(pid):
    """The same as {name: pid}, one of each name."""
    return dict(actors_of(pid))


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

    host = "127.0.0.1"

    def __init__(self, *args, model=FABLE, env=None, check_idle=True, ignore=None, wrap=()):
        self.args, self.model, self.env, self.check_idle = args, model, env or {}, check_idle
        self.ignore = ignore  # a signal that the server is started to ignore
        self.wrap = wrap  # a command that becomes the server, such as ("prlimit", "--nofile=64:64")
        self.lines, self.proc, self.port, self.rpc_port = [], None, None, None

    def __enter__(self):
        command = [*self.wrap, os.path.join(BIN_DIR, "weft"), "serve", self.model, "--port", "0", "--rpc-port", "0",
                   *self.args]
        env = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_") or k in ("WEFT_ISA", "WEFT_LINK")}
        before = signal.signal(self.ignore, signal.SIG_IGN) if self.ignore else None
        try:
            # A process group of its own, but no session: Linux may share the machine out by sessions, and then the
            # server would have half of it for itself, however busy the other half with this process is.
            self.proc = subprocess.Popen(command, stderr=subprocess.PIPE, env={**env, **self.env}, process_group=0)
        finally:
            if self.ignore:
                signal.signal(self.ignore, before)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            wait_until("the ready line", lambda: self.port or self.proc.poll() is not None)
            if not self.port:
                self.reader.join(LIMIT_S)
                raise AssertionError("the server ended early:\n" + "".join(self.lines))
            assert self.rpc_port or "--no-rpc" in self.args, self.lines  # the router's line came before
        except BaseException:
            self._kill_all()
            raise
        return self

    def _read(self):
        for raw in self.proc.stderr:
            line = raw.decode(errors="replace")
            self.lines.append(line)
            match = re.search(r"router: ready on \S+, MessagePack-RPC on port (\d+)", line)
            if match:
                self.rpc_port = int(match.group(1))
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
            self.reader.join(LIMIT_S)
            if kind is None:
                assert status == 0, f"weft serve ended with {status}"
                wait_until("the children to end", lambda: all(proc_stat(p) is None for p in pids))
                self.check_log()
        finally:
            self._kill_all()
            if kind is not None and not issubclass(kind, (Void, Skip)):
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
        return children_of(self.proc.pid)

    def workers(self):
        return sorted(pid for name, pid in actors_of(self.proc.pid) if name == "worker")

    def kill(self, *names, how=signal.SIGKILL):
        """kill -9, or another signal, of some children at once, as soon as all are there; returns their old pids."""
        pids = wait_until(f"{names} are there", lambda: (now := self.children()).keys() >= set(names) and now)
        for name in names:
            os.kill(pids[name], how)
        return {name: pids[name] for name in names}

    def stopped(self, name="worker"):
        """A child that stands still (SIGSTOP) within the context."""
        return Stopped(self, name)

    def about_to_stop(self, name="worker"):
        """The same for a test that must enter it in mid-work: the child is looked up now, and yields to other
        processes from now on, so that on a busy machine it is not done before it can be stopped."""
        stopped = Stopped(self, name)
        for task in os.listdir(f"/proc/{stopped.pid}/task"):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, int(task), 3)
        return stopped

    # HTTP -----------------------------------------------------------------------------------------
    def connect(self, timeout=LIMIT_S):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def is_refused(self):
        """Whether a new connection is."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S).close()
        except ConnectionError:
            return True
        return False

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

    def stream(self, path, body, on_event=None, parse_float=None):
        """POST with stream: true; the list of parsed events. Asserts that the stream ends with [DONE]."""
        conn = self.connect()
        try:
            conn.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            reply = conn.getresponse()
            if reply.status != 200:
                raise AssertionError((reply.status, reply.read()))
            assert reply.headers["Content-Type"].startswith("text/event-stream")
            return sse_events(reply, on_event, parse_float)
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
        """Until all requests have left and all blocks are free. The scheduler reports four times a second: a report
        older than the last prompt proves nothing, so a newer one gets a moment to come. (The test cannot insist on
        it: a scheduler that died took unreported figures with it.)"""
        patience_end = time.monotonic() + 1

        def idle():
            m = self.metrics()
            if "weft_kv_cache_usage_perc" not in m:
                return False  # a new router, which the scheduler has not reported to yet
            n_computed = m["weft_prompt_tokens_total"] - m["weft_prompt_tokens_cached_total"]
            is_old = m["weft_computed_prompt_tokens_total"] < n_computed
            return (m["weft_serving"] == 1 and load(m) == 0 and m["weft_kv_cache_usage_perc"] == 0
                    and not (is_old and time.monotonic() < patience_end))
        wait_until("the server to be healthy, all requests to leave and all blocks to be free", idle)


def sse_events(lines, on_event=None, parse_float=None):
    """The parsed events of a stream, which must end with [DONE] and hold no error."""
    events, done = [], False
    for line in lines:
        line = line.strip()
        if not line or line.startswith(b":"):
            continue
        assert line.startswith(b"data: "), line
        assert not done, "data behind [DONE]"
        if line == b"data: [DONE]":
            done = True
            continue
        events.append(json.loads(line[6:], parse_float=parse_float))
        assert "error" not in events[-1], events[-1]
        if on_event:
            on_event(events[-1])
    assert done, f"the stream broke off after {len(events)} events"
    return events


class Stream:
    """A completion streamed in the background. Its bytes are only stored as they come: parsing them then would keep
    this process so busy with a few streams that the server would finish before a test could act."""

    def __init__(self, server, body, on_chunk=None, headers=None):
        self.on_chunk, self.chunks = on_chunk, []
        text = json.dumps({**body, "stream": True}).encode()
        self.sock = socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S)
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items()).encode()
        self.sock.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n" + more +
                          b"Content-Length: %d\r\n\r\n" % len(text) + text)
        self.reading = Call(self._read)

    def _read(self):
        with self.sock:
            while chunk := self.sock.recv(1 << 20):
                self.chunks.append(chunk)
                if self.on_chunk:
                    self.on_chunk(self, chunk)

    @property
    def has_begun(self):
        return bool(self.chunks) or self.reading.is_done

    @property
    def is_done(self):
        return self.reading.is_done

    def events(self):
        """All of them, when it has ended, as it must."""
        self.reading.result()
        head, _, body = b"".join(self.chunks).partition(b"\r\n\r\n")
        assert head.split()[1:2] == [b"200"] and b"Transfer-Encoding" not in head, (head, body)
        return sse_events(body.split(b"\n"))


class Stopped:
    """A child that stands still, so that a test can arrange a situation, however slow the machine.
    A worker or scheduler that is silent for 10 s is replaced; a test that was slower than that is void."""

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.pid = wait_until(f"a {name}", lambda: server.children().get(name))

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(f"the {self.name} to stand still", lambda: (proc_stat(self.pid) or (0, 0, "T"))[2] == "T")
        return self

    def is_gone(self):
        return self.server.children().get(self.name) != self.pid

    def wait_until(self, what, condition):
        def is_so():
            if self.is_gone():
                raise Void(f"the {self.name} was replaced while waiting for: {what}")
            return condition()
        return wait_until(what, is_so)

    def settle(self):
        """Waits until the scheduler has reported that the worker stands still: then everything it sent has arrived,
        and the metrics are later than the last step."""
        idle_end = time.monotonic() + 2

        def noticed():
            m = self.server.metrics()
            if m["weft_serving"] and not load(m) and time.monotonic() > idle_end:
                raise Void("everything had ended before the worker was stopped")
            return m["weft_serving"] == 0
        self.wait_until("the server to notice", noticed)

    def __exit__(self, kind, *_):
        is_gone = self.is_gone()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)
        if is_gone and (kind is None or issubclass(kind, AssertionError)):
            raise Void(f"the {self.name} was replaced meanwhile")


def load(m):
    """How many requests there are, by metrics of one moment."""
    return m["weft_num_requests_running"] + m["weft_num_requests_waiting"]


def tokens_of(choice):
    """[(token id, logprob)] of a completion choice asked for with logprobs and return_tokens_as_token_ids."""
    logprobs = choice["logprobs"]
    return [(int(t.removeprefix("token_id:")), p)
            for t, p in zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)]


class Call:
    """A call in a thread of its own."""

    def __init__(self, call):
        self.call, self.value, self.error = call, None, None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.value = self.call()
        except BaseException as error:  # noqa: BLE001 - carried to the caller
            self.error = error

    @property
    def is_done(self):
        return not self.thread.is_alive()

    def result(self):
        """Waits for it; returns its result, or raises its exception."""
        self.thread.join()
        if self.error:
            raise self.error
        return self.value


def together(server, asked, outputs, n_kills_max=0):
    """(outputs of all of them, asked at once; kills): worker and scheduler are killed so often, one after another."""
    calls = [Call(lambda body=body: outputs(server.complete(**body))) for body in asked]
    rng, n_kills = random.Random(7), 0
    while n_kills < n_kills_max and not all(call.is_done for call in calls):
        time.sleep(0.4 * SLOW)  # a scheduler that dies again and again within a second is given up
        name = rng.choice(("worker", "scheduler"))
        if name in server.children():
            server.kill(name)
            n_kills += 1
    return [call.result() for call in calls], n_kills


def check_company(asked, outputs, kv_memory, n_times, n_kills_max):
    """Each has the outputs that it has alone: in company, under kills (asked n_times), and with blocks for some."""
    with Server() as server:
        alone = [outputs(server.complete(**body)) for body in asked]
        assert together(server, asked, outputs)[0] == alone
        killed, n_kills = together(server, asked * (1 if SANITIZED else n_times), outputs, n_kills_max)
        assert killed == alone * (len(killed) // len(alone)) and n_kills > 0
        print(f"    {len(killed)} requests under {n_kills} kills")
    with Server("--kv-memory", kv_memory, "--max-model-len", "96") as server:
        assert together(server, asked, outputs)[0] == alone
        n = server.metric("weft_num_preemptions_total")
        assert n > 0
        print(f"    {n:.0f} preemptions")


class Killer:
    """kill -9 of one child after the other, whenever so many more tokens have been computed."""

    def __init__(self, server, names, every_tokens):
        self.server, self.names, self.every_tokens = server, names, every_tokens
        self.n, self.stop = 0, threading.Event()

    def run(self):
        while not self.stop.is_set():
            moment = self.server.metric("weft_generation_tokens_total") + self.every_tokens
            wait_until("more tokens", lambda: self.stop.wait(0.02) or
                               self.server.metric("weft_generation_tokens_total") >= moment)
            name = self.names[self.n % len(self.names)]
            if not self.stop.is_set():
                old = self.server.kill(name)[name]
                wait_until("another", lambda: self.server.children().get(name) not in (None, old))
                self.n += 1

    def __enter__(self):
        self.call = Call(self.run)
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.call.result()


def in_threads(calls):
    """Runs all calls at once; their results in order. The first exception is raised, when all have ended."""
    running = [Call(call) for call in calls]
    for call in running:
        call.thread.join()
    return [call.result() for call in running]


def side_by_side(*cases):
    """Runs cases that wait most of the time, all at once."""
    def run(case):
        begin = time.monotonic()
        case()
        print(f"    {case.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
    in_threads([functools.partial(run, case) for case in cases])


def for_each(items, check, at_once=2):
    """check(item) for all of them, a few at once: servers start and end while others work. The first exception is raised."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for _ in pool.map(check, items):
            pass


def main():
    tests = [(n, f) for n, f in sys.modules["__main__"].__dict__.items() if n.startswith("test_")]
    wanted = sys.argv[1:]
    if wanted and (part := re.fullmatch(r"(\d)/(\d)", wanted[0])):  # "2/3": each third case, from the second on
        first, step = map(int, part.groups())
        tests, wanted = tests[first - 1::step], wanted[1:]
    unknown = set(wanted) - {n for n, _ in tests}
    if unknown:
        sys.exit(f"no such test: {' '.join(sorted(unknown))}")
    n_failed, n_ran, skipped = 0, 0, []
    for name, test in tests:
        if wanted and name not in wanted:
            continue
        begin = time.monotonic()
        print(f"[ RUN  ] {name}", flush=True)
        try:
            test()
            n_ran += 1
            print(f"[  OK  ] {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Skip as reason:
            skipped.append(f"{name}: {reason}")
            print(f"[ SKIP ] {name}", flush=True)
        except BaseException:  # noqa: BLE001 - reported, counted
            n_failed += 1
            traceback.print_exc(file=sys.stdout)
            print(f"[ FAIL ] {name} ({time.monotonic() - begin:.1f} s)", flush=True)
    for line in skipped:
        print(f"SKIPPED: {line}", flush=True)
    sys.exit(1 if n_failed else 77 if skipped and not n_ran else 0)
