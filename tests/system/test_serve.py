"""`weft serve` as a person uses it: wrong flags, wrong files, SIGTERM, health."""

import contextlib
import functools
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

import harness
from harness import Server
from rpc import Rpc

WEFT = os.path.join(harness.BIN_DIR, "weft")


def fails(*args, model=harness.FABLE):
    done = subprocess.run([WEFT, "serve", model, "--port", "0", "--rpc-port", "0", *args], capture_output=True,
                          text=True, timeout=harness.LIMIT_S, check=False)
    assert done.returncode not in (0, -6, -11), (done.returncode, done.stderr)
    assert "Sanitizer" not in done.stderr, done.stderr
    return done.stderr


def test_wrong_flags_and_files_end_with_one_clear_sentence():
    assert "--no-such-flag" in fails("--no-such-flag")
    assert "port" in fails("--port", "70000")
    assert "block-size" in fails("--block-size", "17")
    assert "activations" in fails("--activations", "int3")
    assert "nowhere" in fails(model="/nowhere/model")
    with tempfile.TemporaryDirectory() as folder:
        assert "config.json" in fails(model=folder)
        empty = os.path.join(folder, "empty.gguf")
        with open(empty, "wb"):
            pass
        assert "empty.gguf" in fails(model=empty)
    with Server() as server:
        assert str(server.port) in fails("--port", str(server.port))


def test_help_and_version():
    for args in (["--help"], ["serve", "--help"], ["run", "--help"], ["--version"]):
        done = subprocess.run([WEFT, *args], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0 and "weft" in done.stdout


def test_help_comes_in_three_ways_and_as_a_man_page():
    commands = re.findall(r"^  weft ([a-z-]+) +[A-Z]", weft("--help"), re.M)
    assert len(commands) > 8 and "serve" in commands, commands
    first = weft("--help").splitlines()[:6]
    assert sum(line.startswith("  weft ") for line in first) == 3, first  # what a newcomer may try
    assert weft("help") == weft("--help") == weft("-h")
    for command in set(commands) - {"help", "version"}:
        assert weft("help", command) == weft(command, "--help") == weft(command, "-h"), command
        assert weft("help", "--man", command).startswith(f".TH weft-{command} 1 ".replace("-", "\\-")), command
        assert f"weft-{command}".replace("-", "\\-") in weft("help", "--man"), command
    if shutil.which("man"):
        for page in ["serve"], []:
            done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", "-"], capture_output=True,
                                  input=weft("help", "--man", *page), text=True, timeout=harness.LIMIT_S, check=False)
            assert done.returncode == 0 and not done.stderr, done.stderr


def test_what_is_installed_runs_and_has_man_pages():
    build = os.path.dirname(harness.BIN_DIR)
    if not os.path.exists(os.path.join(build, "man/weft.1")):
        raise harness.Skip("a build under a sanitizer has no man pages")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cmake", "--install", build, "--prefix", folder], check=True, stdout=subprocess.DEVNULL,
                       timeout=harness.LIMIT_S)
        pages = set(os.listdir(os.path.join(folder, "share/man/man1")))
        commands = re.findall(r"^  weft ([a-z-]+) +[A-Z]", weft("--help"), re.M)
        assert pages == {"weft.1"} | {f"weft-{command}.1" for command in set(commands) - {"help", "version"}}, pages
        with open(os.path.join(folder, "share/man/man1/weft-serve.1"), encoding="utf-8") as page:
            assert page.read() == weft("help", "--man", "serve")
        done = subprocess.run([os.path.join(folder, "bin/weft"), "run", harness.DRAFT, "-p", "x", "-n", "2"], check=False,
                              capture_output=True, timeout=harness.LIMIT_S)
        assert done.returncode == 0 and os.path.exists(os.path.join(folder, "bin/weft-worker")), done


def test_a_wrong_command_line_ends_with_status_2_and_a_failure_with_1():
    for status, said, args in (
        (2, "did you mean serve?", ["serv"]),
        (2, "unknown command", ["nothing-of-the-kind"]),
        (2, "did you mean bench?", ["help", "bensh"]),
        (2, "usage: weft help", ["help", "serve", "run"]),
        (2, "--por (did you mean --port?)", ["serve", harness.FABLE, "--por", "1"]),
        (2, "--port needs a value", ["serve", harness.FABLE, "--port"]),
        (2, '--port: "http" is not a number', ["serve", harness.FABLE, "--port", "http"]),
        (2, "--dtype is auto, f32,", ["serve", harness.FABLE, "--dtype", "int8"]),
        (2, "--max-num-seqs", ["bench", harness.FABLE, "--max-num-seqs=0"]),
        (2, "no MODEL given", ["serve"]),
        (2, "no MODEL given", ["run", "-p", "x"]),
        (2, "no MODEL given", ["inspect"]),
        (2, "no MODEL given", ["tokenize", "--json"]),
        (2, "no --cases given", ["template", harness.FABLE]),
        (2, "did you mean --tensors?", ["inspect", harness.FABLE, "--tensor"]),
        (2, "unexpected argument", ["inspect", harness.FABLE, harness.FABLE]),
        (2, "no OUT given", ["pack", harness.FABLE]),
        (2, "no FILE given", ["perplexity", harness.FABLE]),
        (2, "--calibrate is for --dtype q8 or q4, not auto", ["pack", harness.FABLE, "x", "--calibrate", "y"]),
        (2, "--mixed needs a text", ["perplexity", harness.FABLE, "x", "--dtype", "q8", "--mixed"]),
        (2, "--mixed-keep is for --mixed", ["pack", harness.FABLE, "x", "--mixed-keep", "1"]),
        (2, "no URL given", ["bench-serve"]),
        (2, "token id", ["run", harness.FABLE, "--prompt-ids", "1,x"]),
        (2, '"" is not a token id', ["run", harness.FABLE, "--prompt-ids", "1,,2"]),
        (2, '"" is no sampler', ["run", harness.FABLE, "-p", "x", "--samplers", "top_k,"]),
        (2, "--allowed-origins is", ["serve", harness.FABLE, "--allowed-origins", "https://a.example,"]),
        (2, "--max-model-len 1 leaves nothing to predict", ["perplexity", harness.FABLE, "x", "--max-model-len", "1"]),
        (1, "/nowhere", ["serve", "/nowhere"]),
        (1, "/nowhere", ["run", "/nowhere", "-p", "x"]),
        (1, "/nowhere", ["tokenize", "/nowhere"]),
        (1, "/nowhere", ["template", "/nowhere", "--cases", "/nowhere"]),
    ):
        done = subprocess.run([WEFT, *args], capture_output=True, text=True, timeout=harness.LIMIT_S, check=False,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == status and said in done.stderr and not done.stdout, (args, done)
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("weft: "), (args, done)


def test_an_instruction_set_that_is_not_there_is_a_usage_error():
    for args in (["run", harness.FABLE, "-p", "x"], ["serve", harness.FABLE, "--port=0"], ["bench", "/nowhere"]):
        done = subprocess.run([WEFT, *args], capture_output=True, text=True, timeout=harness.LIMIT_S, check=False,
                              env={**os.environ, "WEFT_ISA": "sse9"})
        assert done.returncode == 2 and not done.stdout, (args, done)
        assert re.fullmatch(r'weft: WEFT_ISA is scalar[a-z0-9, ]* on this CPU, not "sse9"\n', done.stderr), (args, done)
    for command in ("run", "serve", "bench"):
        assert "WEFT_ISA" in weft("help", command) and "WEFT_ISA" in weft("help", "--man", command)
    assert "WEFT_ISA" in weft("help", "--man") and "WEFT_ISA" not in weft("help", "tokenize")


def test_a_variable_that_nobody_reads_is_told_once():
    env = {"WEFT_MAX_NUM_SEQ": "8", "WEFT_PORT": "tcp://10.0.0.1:8080", "WEFT_SERVICE_HOST": "10.0.0.1",
           "WEFT_SERVICE_PORT": "8080", "WEFT_PORT_8080_TCP": "tcp://10.0.0.1:8080", "WEFT_PORT_8080_TCP_PORT": "8080"}
    with Server(env=env) as server:
        told = [line for line in server.lines if "WEFT_" in line]
        assert len(told) == 1 and "weft: nobody reads the variable WEFT_MAX_NUM_SEQ; did you mean WEFT_MAX_NUM_SEQS?" in told[0]


def test_variables_that_sources_and_tests_read_are_known():
    pattern = re.compile(r"""(?:getenv\(|environ(?:\.get\(|\[)|process\.env\.)"?(WEFT_[A-Z_]+)""")
    names = set()
    for top in "cmd", "lib", "tests":
        for at, _, files in os.walk(os.path.join(harness.SOURCE_DIR, top)):
            for name in files:
                if name.endswith((".c", ".h", ".py", ".mjs")):
                    with open(os.path.join(at, name), encoding="utf-8", errors="replace") as file:
                        names |= set(pattern.findall(file.read()))
    assert {"WEFT_CONFIG", "WEFT_ISA", "WEFT_BIN_DIR"} <= names, names
    env = {**os.environ, **{name: "" for name in names - {"WEFT_CONFIG", "WEFT_LOG_FORMAT"}}}
    done = subprocess.run([WEFT, "inspect", harness.DRAFT], capture_output=True, text=True, env=env, check=False,
                          timeout=harness.LIMIT_S)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_a_model_is_served_under_the_name_of_its_folder():
    with Server(model=harness.FABLE + "/") as server:
        assert server.get("/v1/models").json["data"][0]["id"] == "fable-6m"
        assert server.complete(prompt="x", max_tokens=1, model="fable-6m")["model"] == "fable-6m"


def test_output_that_cannot_be_written_is_an_error():
    """A full disk: half an output must not pass for a whole one."""
    for args in (["--help"], ["--version"], ["inspect", harness.FABLE], ["tokenize", harness.FABLE], ["inspect", "--help"],
                 ["run", harness.FABLE, "-p", "Once", "-n", "2"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            ended = subprocess.run([WEFT, *args], input="Once upon a time", stdout=full, stderr=subprocess.PIPE,
                                   text=True, timeout=harness.LIMIT_S, check=False)
        assert ended.returncode == 1, (args, ended)
        assert ended.stderr.startswith("weft: cannot write the output"), (args, ended.stderr)
        assert ended.stderr.count("\n") == 1, (args, ended.stderr)


def test_sigterm_to_the_whole_group_drains():
    """Running streams end whole, new requests are turned away, status 0, no child outlives."""
    harness.attempt(drain)


def drain():
    body = {"prompt": "Before the end", "max_tokens": 900, "temperature": 0, "ignore_eos": True}
    with Server("--drain-timeout", "3600000") as server:
        whole = server.complete(**body)["choices"][0]["text"]
        early = server.connect()
        early.request("GET", "/health")
        assert early.getresponse().read()
        events = []
        still = server.about_to_stop()
        running = harness.Call(lambda: server.stream("/v1/completions", body, events.append))
        harness.wait_until("the stream to begin", lambda: events or running.is_done, every_s=0.001)
        server.check_idle = False
        pids = list(server.children().values())
        with still:  # the stream cannot end before we have looked
            still.settle()
            if running.is_done or server.metric("weft_num_requests_running") == 0:
                raise harness.Void("the stream had ended")
            os.killpg(server.proc.pid, signal.SIGTERM)
            still.wait_until("new connections to be refused", lambda: server.is_refused())
            # The connection that was open before is answered, and then closed.
            early.request("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 1}))
            reply = early.getresponse()
            assert reply.status == 503 and reply.headers["Connection"] == "close", (reply.status, reply.headers)
            assert json.loads(reply.read())["error"]["code"] == "not_serving"
            assert server.is_refused() and server.proc.poll() is None
        running.result()  # stream() asserts [DONE]
        assert events[-1]["choices"][0]["finish_reason"] == "length"
        assert "".join(e["choices"][0]["text"] for e in events) == whole
        assert server.proc.wait(harness.LIMIT_S) == 0
        harness.wait_until("all children to be gone", lambda: all(harness.proc_stat(p) is None for p in pids))


def test_no_child_outlives_a_killed_supervisor():
    with Server() as server:
        pids = list(server.children().values())
        assert len(pids) == 3
        os.kill(server.proc.pid, signal.SIGKILL)
        server.proc.wait()
        harness.wait_until("all children to be gone", lambda: all(
            (harness.proc_stat(p) or (0, 0, "Z"))[2] == "Z" for p in pids))
        server.check_idle = False
        server.proc.returncode = 0


def test_health_is_503_while_an_actor_is_stopped():
    with Server() as server:
        for role, is_busy in (("worker", True), ("worker", False), ("scheduler", False)):
            harness.wait_until("/health to be good", lambda: server.get("/health").status == 200)
            pid = server.children()[role]
            os.kill(pid, signal.SIGSTOP)
            stream = harness.Call(lambda: server.stream(
                "/v1/completions", {"prompt": "x", "max_tokens": 1000, "ignore_eos": True})) if is_busy else None
            try:
                harness.wait_until(f"/health to notice the {role}", lambda: server.get("/health").status == 503,
                                   limit_s=5 * harness.SLOW)
                assert server.get("/health/live").status == 200
                assert server.get("/metrics").status == 200
            finally:
                os.kill(pid, signal.SIGCONT)
            harness.wait_until("/health to recover", lambda: server.get("/health").status == 200)
            if stream:
                stream.result()
            assert server.children()[role] == pid


def test_a_log_reader_that_goes_away_harms_nobody():
    reading, writing = os.pipe()
    env = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_") or k == "WEFT_ISA"}
    server = subprocess.Popen([WEFT, "serve", harness.FABLE, "--port", "0", "--no-rpc"], stderr=writing, env=env)
    try:
        os.close(writing)
        text = b""
        while b"ready on http://127.0.0.1:" not in text or not text.endswith(b"\n"):
            piece = os.read(reading, 4096)
            assert piece, text
            text += piece
        port = int(re.search(rb"ready on http://127.0.0.1:(\d+)", text).group(1))
        os.close(reading)
        before = harness.children_of(server.pid)
        os.kill(before["worker"], signal.SIGKILL)  # which every actor reports on
        url = f"http://127.0.0.1:{port}/v1/completions"
        body = json.dumps({"prompt": "x", "max_tokens": 4}).encode()

        def is_answered():
            with contextlib.suppress(OSError), urllib.request.urlopen(
                    urllib.request.Request(url, body, {"Content-Type": "application/json"})) as reply:
                return reply.status == 200
        harness.wait_until("completions to be answered", is_answered)
        after = harness.children_of(server.pid)
        assert after["worker"] != before["worker"]
        assert (after["router"], after["scheduler"]) == (before["router"], before["scheduler"])
        server.terminate()
        assert server.wait(harness.LIMIT_S) == 0
    finally:
        server.kill()
        server.wait()


def a_router_that_would_read_another_model_ends_the_server():
    """The workers keep the weights they have, whatever lies in the folder by then. A router that came back with another
    vocabulary would send them ids that mean something else."""
    def edit_json(path, change):
        with open(path, encoding="utf-8") as f:
            value = json.load(f)
        change(value)
        replace(path, json.dumps(value).encode())

    def swap(tokenizer):
        vocab = tokenizer["model"]["vocab"]
        a, b = list(vocab)[1000:1002]
        vocab[a], vocab[b] = vocab[b], vocab[a]

    def replace(path, content):
        with open(path + ".new", "wb") as f:
            f.write(content)
        os.replace(path + ".new", path)

    def swap_in_gguf(path):
        with open(path, "rb") as f:
            content = f.read()
        assert content.count(b"fable-6m") and content.index(b"fable-6m") < 4096, "its name, among the metadata"
        replace(path, content.replace(b"fable-6m", b"fable-7m", 1))

    with tempfile.TemporaryDirectory() as folder:
        template = os.path.join(folder, "template")
        model = os.path.join(folder, "model")
        gguf = os.path.join(folder, "model.gguf")
        shutil.copytree(harness.FABLE, model)
        shutil.copy(harness.FABLE_Q8_0, gguf)
        with open(template, "w", encoding="utf-8") as f:
            f.write("{{ messages[0].content }}")
        flags = ("--chat-template", template)
        in_model = functools.partial(os.path.join, model)
        with Server(*flags, model=model) as server:  # the same words in files of a new date do no harm
            shutil.copy(os.path.join(harness.FABLE, "tokenizer.json"), in_model("tokenizer.json"))
            kill_router(server)
            harness.wait_until("the server to be healthy again", lambda: is_healthy(server))
        ends_by_router(model, flags, "tokenizer.json", lambda: edit_json(in_model("tokenizer.json"), swap))
        ends_by_router(model, flags, "generation_config.json", lambda: edit_json(
            in_model("generation_config.json"), lambda value: value.update(temperature=0.25)))
        ends_by_router(model, flags, "chat_template.jinja", lambda: replace(in_model("chat_template.jinja"), b"new"))
        ends_by_router(model, flags, "tokenizer_config.json", lambda: os.remove(in_model("tokenizer_config.json")))
        ends_by_router(model, flags, "--chat-template", lambda: replace(template, b"{{ messages[0].role }}"))
        ends_by_router(gguf, (), "metadata", lambda: swap_in_gguf(gguf))


def kill_router(server):
    old = server.kill("router")["router"]
    harness.wait_until("the router to be replaced", lambda: server.proc.poll() is not None or
                       server.children().get("router") not in (None, old))


def is_healthy(server):
    with contextlib.suppress(OSError):
        return server.get("/health").status == 200
    return False


def ends_by_router(model, flags, name, change):
    """When a file has changed, nothing happens until the router dies; then the server says which, and ends."""
    with Server(*flags, model=model, check_idle=False) as server:
        change()
        assert server.complete(prompt="x", max_tokens=2)["choices"]
        kill_router(server)
        harness.wait_until("the server to end, or to serve again",
                           lambda: server.proc.poll() is not None or is_healthy(server))
        assert server.proc.poll() == 1, f"another {name}, and served on: {server.proc.poll()}"
        server.proc.returncode = 0
        server.reader.join(harness.LIMIT_S)
        assert server.lines[-1] == (f"weft: the files of {model} have changed since the server started "
                                    f"({name}): start it again to serve what is there now\n"), server.lines[-3:]


BODY = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}


class Standstill:
    """A supervisor that stands still, and replaces nobody, within the context."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        os.kill(self.server.proc.pid, signal.SIGSTOP)
        harness.wait_until("the supervisor to stand still", lambda: harness.proc_stat(self.server.proc.pid)[2] == "T")

    def __exit__(self, *_):
        os.kill(self.server.proc.pid, signal.SIGCONT)


def kill_and_wait(server, *names):
    server.kill(*names)
    harness.wait_until("/health to notice", lambda: server.get("/health").status == 503)


def test_requests_wait_for_who_is_being_replaced():
    with Server("--restart-grace", "3600000") as server:
        expected = server.complete(**BODY)["choices"][0]["text"]
        for names in (("worker",), ("scheduler",), ("worker", "scheduler")):
            with Rpc(server) as rpc:
                with Standstill(server):
                    kill_and_wait(server, *names)
                    n_open = server.metric("weft_connections")
                    calls = [harness.Call(lambda: server.complete(**BODY)["choices"][0]["text"]) for _ in range(4)]
                    stream = harness.Stream(server, BODY)
                    rpc.send(1, "generate", BODY)
                    harness.wait_until("all to be there", lambda: any(call.is_done for call in calls) or
                                       server.metric("weft_connections") == n_open + 5)
                    time.sleep(0.2)
                    assert server.get("/health").status == 503
                    assert not any(call.is_done for call in calls) and not stream.has_begun, [c.error for c in calls]
                assert [call.result() for call in calls] == [expected] * 4
                assert "".join(e["choices"][0]["text"] for e in stream.events()) == expected
                error, result = rpc.response(1)
                assert error is None and result["choices"][0]["text"] == expected, (error, result)
            harness.wait_until("the server to be healthy again", lambda: server.get("/health").status == 200)


def test_requests_wait_no_longer_than_the_grace():
    with Server("--restart-grace", "300") as server:
        with Standstill(server):
            kill_and_wait(server, "worker")
            for _ in range(2):  # some time before its end, perhaps, and after it
                reply = server.post("/v1/completions", BODY)
                assert reply.status == 503 and reply.headers["Retry-After"] == "1", (reply.status, reply.text)
                assert reply.json["error"]["code"] == "not_serving", reply.text
        harness.wait_until("the server to be healthy again", lambda: server.get("/health").status == 200)


def test_who_waits_when_the_server_is_told_to_end_is_told_so():
    with Server("--restart-grace", "3600000", check_idle=False) as server:
        with Standstill(server):
            kill_and_wait(server, "worker")
            call = harness.Call(lambda: server.post("/v1/completions", BODY))
            time.sleep(0.2)
            assert not call.is_done, call.result().text
            server.proc.send_signal(signal.SIGTERM)
        reply = call.result()
        # The worker may have come back before the router heard of the end.
        assert reply.status == 200 or (reply.status == 503 and "shutting down" in reply.text), (reply.status, reply.text)
        assert server.proc.wait(harness.LIMIT_S) == 0


def test_a_child_that_cannot_be_made_again_is_waited_for():
    """No descriptor for its pipe, say: the router and the streams need not suffer for that."""
    with Server("--restart-grace", "3600000") as server:
        expected = server.complete(**BODY)["choices"][0]["text"]
        pid = server.proc.pid
        for name in ("worker", "scheduler"):
            before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))  # those that are open stay open
            try:
                server.kill(name)
                harness.wait_until("a start to fail, or the server to end", lambda: server.proc.poll() is not None or any(
                    f"the {name} did not start (cannot make a pipe" in line for line in server.lines))
                assert server.proc.poll() is None, server.lines[-1]
                assert server.get("/health/live").status == 200 and name not in server.children()
            finally:
                if server.proc.poll() is None:
                    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            assert server.complete(**BODY)["choices"][0]["text"] == expected
            harness.wait_until("the server to be healthy again", lambda: server.get("/health").status == 200)


def a_child_that_is_ready_and_dies_again_and_again_ends_the_server():
    """A scheduler that listens and dies: it is started more and more slowly, and at last not at all."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("weft", "weft-router", "weft-worker"):
            shutil.copy(os.path.join(harness.BIN_DIR, name), folder)
        starts = os.path.join(folder, "starts")
        with open(os.path.join(folder, "weft-scheduler"), "w", encoding="utf-8") as f:
            f.write(f"""#!/bin/sh
                for arg; do case $arg in --status-fd=*) fd=${{arg#*=}};; esac; done
                echo >> {starts}
                echo ready >&$fd
                exit 7\n""")
        os.chmod(f.name, 0o755)
        begin = time.monotonic()
        done = subprocess.run([os.path.join(folder, "weft"), "serve", harness.FABLE, "--port", "0", "--no-rpc"],
                              capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
        assert done.returncode == 1, done
        assert done.stderr.splitlines()[-1] == (
            "weft: the scheduler exited with status 7 within a second of being ready, 20 times in a row"), done.stderr
        assert time.monotonic() - begin > 10, "started again without a pause"
        assert os.path.getsize(starts) == 20


def a_supervisor_that_stood_still_itself_blames_nobody():
    def run():
        with Server() as server:
            harness.wait_until("the server to be healthy", lambda: server.get("/health").status == 200)
            pid = server.kill("scheduler", how=signal.SIGSTOP)["scheduler"]
            time.sleep(1)  # by now the supervisor has read all that the scheduler said
            server.proc.send_signal(signal.SIGSTOP)
            time.sleep(11)
            begin = time.monotonic()
            server.proc.send_signal(signal.SIGCONT)
            time.sleep(1)
            now = server.children().get("scheduler")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            if time.monotonic() - begin > 8:
                raise harness.Void("the scheduler has had its ten seconds")
            assert now == pid, "killed on waking"
            harness.wait_until("the server to be healthy", lambda: server.get("/health").status == 200)
            assert server.children()["scheduler"] == pid
    harness.attempt(run)


def test_what_takes_its_time():
    """Pauses between starts, and ten seconds of silence."""
    harness.side_by_side(a_router_that_would_read_another_model_ends_the_server,
                         a_child_that_is_ready_and_dies_again_and_again_ends_the_server,
                         a_supervisor_that_stood_still_itself_blames_nobody)


def weft(*args, stdin=None):
    done = subprocess.run([WEFT, *args], capture_output=True, text=True, input=stdin, timeout=harness.LIMIT_S * 4,
                          check=False)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout


def test_run_prints_what_the_server_answers():
    reply = json.loads(weft("run", harness.FABLE, "-p", "Once upon a time", "-n", "12", "--json"))
    assert len(reply["ids"]) <= 12 and reply["text"]
    ids = ",".join(map(str, reply["prompt_ids"]))
    assert json.loads(weft("run", harness.FABLE, "--prompt-ids", ids, "-n", "12", "--json"))["ids"] == reply["ids"]
    assert weft("run", harness.FABLE, "-p", "Once upon a time", "-n", "12") == reply["text"] + "\n"
    seeded = json.loads(weft("run", harness.FABLE, "-p", "Once", "-n", "20", "--temperature", "1", "--seed", "5", "--json"))
    with Server() as server:
        whole = server.complete(prompt="Once upon a time", max_tokens=12, temperature=0)
        assert whole["choices"][0]["text"] == reply["text"]
        whole = server.complete(prompt="Once", max_tokens=20, temperature=1.0, top_p=1.0, seed=5)
        assert whole["choices"][0]["text"] == seeded["text"]


def test_perplexity_is_the_recorded_one():
    with open(os.path.join(harness.FABLE, "goldens.json"), encoding="utf-8") as f:
        goldens = json.load(f)
    recorded = find_key(goldens, "perplexity")
    line = weft("perplexity", harness.FABLE, os.path.join(harness.SOURCE_DIR, "tests/data/valid.txt"))
    value = float(line.split()[1])
    print(f"    {line.strip()} (recorded {recorded})", flush=True)
    assert line.startswith("perplexity ") and line.count("\n") == 1
    assert abs(value / recorded - 1) < 0.005


def test_divergence_is_of_the_rounding_alone():
    """int8's is small, and there is none where nothing is rounded; both see the same windows, however few blocks fit."""
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        with open(os.path.join(harness.SOURCE_DIR, "tests/data/valid.txt"), encoding="utf-8") as f:
            excerpt = f.read(1500)
        with open(text, "w", encoding="utf-8") as f:
            f.write(excerpt)

        def divergence(*flags):
            lines = weft("perplexity", harness.FABLE, text, "--kl-divergence", *flags).splitlines()
            print(f"    {flags} {lines}", flush=True)
            words = lines[1].split()
            assert words[0] == "divergence" and words[2:4] == ["nats", "likeliest"] and words[5] == "%", lines
            return float(words[1]), float(words[4])

        assert divergence("--activations", "f32", "--kv-dtype", "f32") == (0.0, 100.0)
        value, likeliest = divergence("--kv-dtype", "int8", "--kv-memory", "200KiB")
        assert 0 < value < 0.01 and 95 < likeliest <= 100


def test_packing_calibrates_and_keeps_layers_wider():
    with tempfile.TemporaryDirectory() as folder:
        text, packed = os.path.join(folder, "text"), os.path.join(folder, "packed")
        with open(os.path.join(harness.SOURCE_DIR, "tests/data/calibration.txt"), encoding="utf-8") as f:
            excerpt = f.read(1500)
        with open(text, "w", encoding="utf-8") as f:
            f.write(excerpt)
        flags = ["--dtype", "q4", "--calibrate", text, "--mixed", "--mixed-keep", "1"]
        lines = weft("pack", harness.DRAFT, packed, *flags).splitlines()
        costs = {line.split()[0]: float(line.split()[1]) for line in lines[1:4]}
        assert set(costs) == {"none", "0", "1"}, lines
        assert lines[4] == f"kept in 8 bits: layer {max('01', key=costs.get)}", lines
        source = weft("perplexity", harness.DRAFT, text, *flags).splitlines()[-1]
        assert weft("perplexity", packed, text) == source + "\n"
        assert weft("perplexity", harness.DRAFT, text, "--dtype", "q4") != source + "\n"
        for status, wrong in ((2, ["--mixed"]), (2, ["--calibrate", text]),
                              (1, ["--dtype", "q4", "--calibrate", folder + "/none"]),
                              (2, ["--dtype", "q4", "--calibrate", text, "--calibration", "best"]),
                              (1, ["--dtype", "q4", "--quant-scheme", "channel"])):
            done = subprocess.run([WEFT, "pack", harness.DRAFT, packed + "2", *wrong], capture_output=True, text=True,
                                  timeout=harness.LIMIT_S, check=False)
            assert done.returncode == status and done.stderr.count("\n") == 1, (wrong, done)
        assert not os.path.exists(packed + "2")


def find_key(tree, name):
    """The first number under a key of that name, or of one within it."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == name and isinstance(value, (int, float)):
                return value
            found = find_key(value, name)
            if found is not None:
                return found
    return None


def test_tokenize_equals_the_goldens():
    with open(os.path.join(harness.SOURCE_DIR, "tests/data/models_tokenizer_goldens.json"), encoding="utf-8") as f:
        cases = json.load(f)["cases"]
    texts = json.dumps([c["text"] for c in cases])
    assert json.loads(weft("tokenize", harness.FABLE, "--no-bos", "--json", stdin=texts)) == [c["ids"] for c in cases]
    plain = json.loads(weft("tokenize", harness.FABLE, "--no-bos", "--no-parse-special", "--json", stdin=texts))
    assert plain == [c.get("ids_no_special", c["ids"]) for c in cases]
    with_bos = json.loads(weft("tokenize", harness.FABLE, stdin="Hello"))
    assert with_bos == [4091] + json.loads(weft("tokenize", harness.FABLE, "--no-bos", stdin="Hello"))


def test_inspect_and_bench():
    assert weft("inspect", harness.FABLE, "--tensors").count("model.layers.") > 50
    zoo = os.path.join(harness.SOURCE_DIR, "tests/data/zoo/")
    assert "experts         3 of 12 per token, of 24, in 2 of 4 groups; a shared one of 48; none in 1 layer\n" in weft(
        "inspect", zoo + "deepseek_v2")
    assert "experts         2 of 8 per token, of 48\n" in weft("inspect", zoo + "mixtral")
    args = ("--json", "--reps", "1", "--gen", "4", "--prompt", "16,32", "--batch", "1,2")
    result = json.loads(weft("bench", harness.FABLE, *args))
    assert list(result) == ["model", "isa", "threads", "activations", "weight_bytes", "step_weight_bytes", "layer_weights",
                            "head_weights", "context", "gen", "reps", "machine", "prompt", "decode"]
    assert list(result["machine"]) == ["dram_read_gb_per_s", "f32_gflop_per_s", "bf16_gflop_per_s", "vnni_gop_per_s"]
    for row in result["prompt"]:
        assert list(row) == ["tokens", "tokens_per_s", "gflop_per_s", "of_peak"]
    for row in result["decode"]:
        assert list(row) == ["batch", "tokens_per_s", "gb_per_s", "gflop_per_s", "of_dram", "of_peak"]
    assert [r["tokens"] for r in result["prompt"]] == [16, 32] and [r["batch"] for r in result["decode"]] == [1, 2]
    assert result["activations"] == "bf16" and result["context"] == 32 and result["gen"] == 4 and result["reps"] == 1
    for row in [result["machine"], *result["prompt"], *result["decode"]]:
        assert all(value > 0 for value in row.values()), row
    for row in result["decode"]:  # the weights once per step, whatever the batch
        bytes_per_s = row["tokens_per_s"] / row["batch"] * result["step_weight_bytes"]
        assert abs(row["gb_per_s"] - bytes_per_s / 1e9) < 0.001
        ops = 2 * (result["layer_weights"] + result["head_weights"])
        assert abs(row["gflop_per_s"] - row["tokens_per_s"] * ops / 1e9) < 0.01
    draft = json.loads(weft("bench", harness.DRAFT, *args, "--context", "8", "--activations", "f32"))
    assert draft["context"] == 8 and draft["activations"] == "f32"
    assert 0 < draft["step_weight_bytes"] < draft["weight_bytes"]  # its embedding table is not the head
    table = weft("bench", harness.DRAFT, *args[1:], "--context", "8")
    assert "The machine: DRAM " in table and "from a context of 8\n" in table


OPERATORS = ["embed", "attn_norm", "qkv", "rope_kv", "index", "attention", "scan", "o_convert", "o", "ffn_norm", "gate_up", "silu_mul",
             "down_convert", "down", "route", "combine", "head_norm", "head", "sample", "wait"]


def test_bench_shows_where_the_time_goes():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        args = ("--reps", "2", "--gen", "4", "--prompt", "16", "--batch", "1,3", "--context", "8", "--threads", "2")
        result = json.loads(weft("bench", harness.DRAFT, *args, "--json", "--profile", "--trace", path))
        assert [list(point)[:2] for point in result["profile"]] == [["phase", "tokens"]] + [["phase", "batch"]] * 2
        assert [point["steps"] for point in result["profile"]] == [2, 8, 8]  # of both repetitions
        for point in result["profile"]:
            operators = {row["operator"]: row for row in point["operators"]}
            assert list(operators) == [*OPERATORS, "outside", "gap"]
            shares = sum(row["share"] for name, row in operators.items() if name != "gap")
            assert abs(shares - 1) < 0.001, shares
            assert operators["sample"]["calls"] == point.get("batch", 1)
            for name in ("qkv", "attention", "o", "gate_up", "down", "head"):
                assert list(operators[name])[4:] == ["gb_per_s", "of_dram", "gflop_per_s", "of_peak", "bound"]
                assert operators[name]["gb_per_s"] > 0 and operators[name]["bound"] in ("memory", "compute")
            assert "gb_per_s" not in operators["sample"]
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
        assert processes == ["prompt 16", "batch 1", "batch 3"]
        spans = [e for e in events if e["ph"] == "X"]
        assert {e["name"] for e in spans} == {*OPERATORS, "step"} - {"silu_mul", "route", "combine", "index", "scan"}  # in gate_up; of others
        assert {(e["pid"], e["tid"]) for e in spans} == {(pid, tid) for pid in (1, 2, 3) for tid in (0, 1, 2)}
        assert all(e["tid"] == 2 for e in spans if e["name"] == "step")
        assert [e["args"]["tokens"] for e in spans if e["name"] == "step" and e["pid"] == 3] == [3] * 4
        assert all(e["dur"] >= 0 and e["args"]["layer"] >= 0 for e in spans if e["name"] == "qkv")

        table = weft("bench", harness.DRAFT, *args, "--profile")
        assert "\nprompt 16: 2 steps of " in table and "\nbatch 3: 8 steps of " in table
        assert table.count("\n  gate_up ") == 3 and table.count("\n  gap ") == 3

        for path, message in ((folder, "Is a directory"), ("/dev/full", "No space left on device")):
            done = subprocess.run([WEFT, "bench", harness.DRAFT, *args, "--trace", path], capture_output=True, text=True,
                                  check=False)
            assert done.returncode == 1 and done.stderr == f"weft: cannot write the trace {path}: {message}\n", done


def test_bench_refuses_what_it_cannot_measure():
    for status, args, message in (
        (2, ("--batch", "1,x"), '--batch is a list of up to 16 numbers from 1 to 4096, not "1,x"'),
        (2, ("--prompt", "0"), '--prompt is a list of up to 16 numbers from 1 to 4194304, not "0"'),
        (2, ("--prompt", ""), '--prompt is a list of up to 16 numbers from 1 to 4194304, not ""'),
        (2, ("--batch", "1,1,,2"), '--batch is a list of up to 16 numbers from 1 to 4096, not "1,1,,2"'),
        (2, ("--prompt", "16,"), '--prompt is a list of up to 16 numbers from 1 to 4194304, not "16,"'),
        (2, ("--batch", ",".join(["1"] * 17)), "--batch is a list of up to 16 numbers"),
        (2, ("--batch", "600"), "--batch 600 does not fit a step of --max-num-batched-tokens 512"),
        (1, ("--prompt", "16,5000"), "--prompt 5000 and one token more are over the model's length of 1024: this needs "
         "--max-model-len 5001\n"),
        (1, ("--context", "5000"), "--context 5000 and --gen 128 and one token more are over the model's length of 1024: this "
         "needs --max-model-len 5129\n"),
    ):
        done = subprocess.run([WEFT, "bench", harness.DRAFT, *args], capture_output=True, text=True, check=False)
        assert done.returncode == status and message in done.stderr and not done.stdout, done


def test_what_was_to_be_ignored_stays_ignored():
    """nohup weft serve ... &: the terminal's SIGHUP must not end it."""
    with Server(ignore=signal.SIGHUP) as server:
        server.proc.send_signal(signal.SIGHUP)
        for _ in range(5):
            assert server.complete(prompt="x", max_tokens=2)["choices"]
        assert server.proc.poll() is None
        assert not any("stopping" in line or "SIGHUP" in line for line in server.lines), server.lines


def test_the_ready_line_names_the_address_that_is_bound():
    hosts = {"localhost": ("127.0.0.1", "[::1]"), "0.0.0.0": ("127.0.0.1",)}
    if has_ipv6():
        hosts |= {"::1": ("[::1]",), "::": ("[::1]",)}
    for host, shown in hosts.items():
        with Server("--host", host, check_idle=False) as server:
            line = next(l for l in server.lines if l.startswith("weft: ready on "))
            url, address = re.fullmatch(r"weft: ready on (http://(\S+):\d+)\n", line).groups()
            assert address in shown, line
            urls = [url] + ([f"http://127.0.0.1:{server.port}"] if host == "::" else [])
            for url in urls:
                with urllib.request.urlopen(f"{url}/health/live", timeout=harness.LIMIT_S) as reply:
                    assert reply.status == 200
            socket.create_connection((address.strip("[]"), server.rpc_port), timeout=harness.LIMIT_S).close()
            is_all = host in ("0.0.0.0", "::")
            warnings = [l for l in server.lines if "without an API key" in l]
            assert len(warnings) == is_all, server.lines
            also = [l for l in server.lines if l.startswith("weft: and on ")]
            assert len(also) <= 4 * is_all, server.lines
            for line in also:
                url = re.fullmatch(r"weft: and on (http://\S+:\d+)\n", line).group(1)
                assert server.lines.index(line) > server.lines.index(f"weft: ready on http://{address}:{server.port}\n")
                with urllib.request.urlopen(f"{url}/health/live", timeout=harness.LIMIT_S) as reply:
                    assert reply.status == 200


def test_a_path_that_is_no_model_is_refused_in_plain_words():
    models = os.path.dirname(harness.FABLE)
    with tempfile.TemporaryDirectory() as folder:
        for command in (("serve", "--port=0", "--no-rpc"), ("run", "-p", "x"), ("bench",), ("chat",)):
            for model, words in ((folder, f"weft: {folder} is not a model folder: no config.json"),
                                 (models, f"weft: {models} is not a model folder: no config.json; {harness.FABLE} is one")):
                done = subprocess.run([WEFT, command[0], model, *command[1:]], capture_output=True, text=True,
                                      timeout=harness.LIMIT_S, check=False)
                assert done.returncode == 1 and done.stderr.splitlines() == [words], done


def test_all_addresses_with_a_key_are_no_reason_to_warn():
    with Server("--host", "0.0.0.0", env={"WEFT_API_KEY": "secret"}, check_idle=False) as server:
        assert not any("without an API key" in line for line in server.lines), server.lines


def test_a_port_in_use_names_itself_and_the_flag():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for args, words in (((f"--port={port}", "--no-rpc"), f"weft: cannot listen on 127.0.0.1 port {port} for HTTP: "
                             "address already in use (--port N takes another)"),
                            (("--port=0", f"--rpc-port={port}"), f"weft: cannot listen on 127.0.0.1 port {port} for "
                             "MessagePack-RPC: address already in use (--rpc-port N takes another, --no-rpc does without)")):
            done = subprocess.run([WEFT, "serve", harness.FABLE, *args], capture_output=True, text=True,
                                  timeout=harness.LIMIT_S, check=False)
            assert done.returncode == 1 and done.stderr.splitlines()[-1] == words, done.stderr


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as sock:
        sock.bind(("::1", 0))
        return True
    return False


def test_a_config_file_and_the_environment_set_what_flags_do():
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
        config.write("# a comment\nserved-model-name = from-file\nmax_logprobs = 3\n")
        config.flush()
        with Server("--config", config.name, env={"WEFT_MAX_LOGPROBS": "4"}) as server:
            assert server.get("/v1/models").json["data"][0]["id"] == "from-file"
            assert server.post("/v1/completions", {"prompt": "x", "logprobs": 4, "max_tokens": 1}).status == 200
            assert server.post("/v1/completions", {"prompt": "x", "logprobs": 5, "max_tokens": 1}).status == 400


if __name__ == "__main__":
    harness.main()
