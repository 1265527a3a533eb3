"""weft run --batch: what a file asks, answered as a server answers it; each line exactly once, whatever is killed; and what
cannot be done is said in a sentence."""

import contextlib
import fcntl
import json
import os
import resource
import signal
import subprocess
import tempfile

import harness
from harness import Server

WEFT = os.path.join(harness.BIN_DIR, "weft")
EMBEDDER = os.path.join(harness.SOURCE_DIR, "tests", "data", "embed", "qwen3-last")
N_LINES = 40


def line(custom_id, url="/v1/completions", **body):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def story(i, **body):
    return line(f"line {i} \u00e9", prompt=f"Once upon a time {i}", seed=i, temperature=0.9, **{"max_tokens": 12, **body})


def write(path, lines):
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(one) + "\n" for one in lines)


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(one) for one in f]


def clean_env():
    return {k: v for k, v in os.environ.items() if not k.startswith("WEFT_") or k == "WEFT_ISA"}


def start(*args, **more):
    return subprocess.Popen([WEFT, "run", *args], stderr=subprocess.PIPE, text=True, env=clean_env(), **more)


def run(*args, model=harness.FABLE, status=0, **more):
    """What it says on standard error, and on standard output where that is asked for."""
    done = subprocess.run([WEFT, "run", model, *args], stderr=subprocess.PIPE, text=True, env=clean_env(), check=False,
                          timeout=harness.LIMIT_S, **more)
    assert done.returncode == status, (args, done.returncode, done.stderr)
    assert "Sanitizer" not in done.stderr, done.stderr
    return (done.stderr, done.stdout) if "stdout" in more else done.stderr


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield os.path.join(path, "in.jsonl"), os.path.join(path, "out.jsonl")


def answered_once(lines, answers):
    assert sorted(one["custom_id"] for one in answers) == sorted(one["custom_id"] for one in lines)
    assert len({one["id"] for one in answers}) == len(answers)
    return {one["custom_id"]: one["response"] for one in answers}


def core(body):
    """Of an answer, what two of the same request have in common."""
    if "choices" in body:
        return [{k: v for k, v in choice.items() if k != "logprobs"} for choice in body["choices"]], body["usage"]
    return body.get("error", {}).get("message") or body.get("data") or [part["text"] for part in body["content"]]


def same_as_served(lines, answers, *flags, model=harness.FABLE):
    by_id = answered_once(lines, answers)
    with Server(*flags, model=model) as server:
        for one in lines:
            reply, got = server.post(one["url"], one["body"]), by_id[one["custom_id"]]
            assert got["status_code"] == reply.status, (one, got)
            assert core(got["body"]) == core(reply.json), (one, got["body"], reply.json)


def test_lines_are_answered_as_a_server_answers_them():
    messages = [{"role": "user", "content": "Tell me of a house."}]
    lines = [story(i) for i in range(N_LINES)] + [
        line("chat", "/v1/chat/completions", messages=messages, max_tokens=8, temperature=0),
        line("messages", "/v1/messages", model="fable-6m", messages=messages, max_tokens=8, temperature=0),
        line("bad", temperature=-1, prompt="x"), line("unknown", model="nobody", prompt="x"),
        line("their way", "/v1/messages", messages=[], max_tokens=1)]
    with folder() as (source, out):
        write(source, lines)
        said = run("--batch", source, "--output", out)
        assert "weft: done: 45 lines have their answers, 3 of them errors" in said, said
        same_as_served(lines, read(out))
        with open(out, "rb") as f:
            before = f.read()
        assert "weft: done: 45 lines" in run("--batch", source, "--output", out)
        with open(out, "rb") as f:
            assert f.read() == before, "they were asked again"
    assert read_answer_shape(json.loads(before.splitlines()[0]))


def read_answer_shape(answer):
    return list(answer) == ["id", "custom_id", "response", "error"] and list(answer["response"]) == [
        "status_code", "request_id", "body"]


def test_embeddings_are_computed_too():
    lines = [line(f"text {i}", "/v1/embeddings", input=f"A house of {i} stones" * (i + 1)) for i in range(30)]
    with folder() as (source, out):
        write(source, lines)
        run("--batch", source, "--output", out, "--activations", "f32", model=EMBEDDER)
        same_as_served(lines, read(out), "--activations", "f32", model=EMBEDDER)


def test_without_files_it_goes_from_pipe_to_pipe():
    lines = [story(i) for i in range(10)]
    text = "".join(json.dumps(one) + "\n" for one in lines)
    said, answers = run("--batch", "-", input=text, stdout=subprocess.PIPE)
    answered_once(lines, [json.loads(one) for one in answers.splitlines()])
    assert "10 lines" in said
    with open("/dev/full", "w", encoding="utf-8") as full:
        said, _ = run("--batch", "-", input=text, stdout=full, status=1)
    assert "weft: cannot write the answers: No space left on device" in said, said


def test_what_cannot_be_is_refused_with_a_sentence():
    good = story(0)
    bad = [good, {**good, "method": "GET"}, {**good, "url": "/v1/models"}, good, {**good, "custom_id": 5},
           {**good, "body": []}, line("s", stream=True)]
    with folder() as (source, out):
        write(source, bad)
        with open(source, "a", encoding="utf-8") as f:
            f.write("\n{\"custom_id\"\n")
        said = run("--batch", source, "--output", out, status=1)
        for place, code in ((2, "invalid_method"), (3, "invalid_url"), (4, "duplicate_custom_id"),
                            (5, "missing_required_parameter"), (6, "missing_required_parameter"), (7, "invalid_request"),
                            (9, "invalid_json_line")):
            assert any(f"--batch: line {place}: " in one and f"({code})" in one for one in said.splitlines()), said
        assert "weft: --batch: 7 faults in the file: nothing was computed" in said and os.path.getsize(out) == 0
        write(source, [])
        assert "the file has no requests" in run("--batch", source, "--output", out, status=1)
        write(source, [good])
        for text in ("notes that matter", "notes that matter\n", json.dumps(good) + "\n"):
            with open(out, "w", encoding="utf-8") as f:
                f.write(text)
            said = run("--batch", source, "--output", out, status=1)
            assert "--output: line 1 is no answer of a batch: the file is left as it is" in said, said
            with open(out, encoding="utf-8") as f:
                assert f.read() == text
        for args, why in ((("--batch", out + "x"), "--batch: cannot open"), (("--batch", "/"), "is a folder"),
                          (("--batch", source, "--output", "/nowhere/x"), "--output: cannot write"),
                          (("--batch", source, "--output", "/dev/null"), "is no regular file")):
            assert why in run(*args, status=1)
        assert "unknown flag -p" in run("--batch", source, "-p", "x", status=2)
        assert "unknown flag --lora" in run("--lora", "a=b", "-p", "x", status=2)


def test_no_line_waits_for_room_that_there_never_is():
    """Half of --request-memory is for what is asked, and half of that for lines: one that holds more would wait for ever."""
    lines = [story(0), story(1, ballast=["x" * 10000] * 25), line("too large", prompt="a", ballast=["x" * 10000] * 28), story(2)]
    with folder() as (source, out):
        write(source, lines)
        assert "4 lines have their answers, 1 of them errors" in run("--batch", source, "--output", out, "--request-memory=1MiB")
        by_id = answered_once(lines, read(out))
    assert [by_id[one["custom_id"]]["status_code"] for one in lines] == [200, 200, 413, 200]
    assert "the body is larger than 262144 bytes" in by_id["too large"]["body"]["error"]["message"]


def whole_lines(path):
    try:
        with open(path, "rb") as f:
            return f.read().count(b"\n")
    except FileNotFoundError:
        return 0


def kill_children(proc, *names):
    pids = harness.children_of(proc.pid)
    for name in names:
        with contextlib.suppress(KeyError, ProcessLookupError):
            os.kill(pids[name], signal.SIGKILL)


def ended(proc):
    said = proc.communicate(timeout=harness.LIMIT_S)[1]
    return proc.returncode, said


def test_each_line_is_answered_once_whatever_is_killed():
    harness.attempt(kill_and_go_on)


def kill_and_go_on():
    lines = [story(i, max_tokens=40, ignore_eos=True) for i in range(N_LINES)]
    with folder() as (source, out):
        write(source, lines)
        args = (harness.FABLE, "--batch", source, "--output", out, "--max-num-seqs", "4")
        proc = start(*args)
        for k, names in enumerate((["router"], ["worker"], ["router", "scheduler"])):
            harness.wait_until("some answers", lambda k=k: whole_lines(out) >= 5 * (k + 1) or proc.poll() is not None)
            kill_children(proc, *names)
        harness.wait_until("more answers", lambda: whole_lines(out) >= 20 or proc.poll() is not None)
        # Of itself, in the middle of a line; then it is asked to end, and at last let be.
        proc.kill()
        ended(proc)
        n = whole_lines(out)
        if n == N_LINES:
            raise harness.Void("it was over before it was killed")
        with open(out, "rb+") as f:
            kept = f.read()
            f.truncate(len(kept) - 20)
        kept = kept[:kept.rstrip(b"\n").rindex(b"\n") + 1]
        proc = start(*args)
        harness.wait_until("more answers", lambda: whole_lines(out) > n)
        proc.terminate()
        status, said = ended(proc)
        if status == 0:
            raise harness.Void("it was over before it was asked to end")
        assert status == 1 and "the same command goes on with the others" in said, said
        status, said = ended(start(*args))
        assert status == 0 and f"done: {N_LINES} lines have their answers, 0 of them errors" in said, said
        with open(out, "rb") as f:
            assert f.read().startswith(kept), "answers that were there were asked again"
        same_as_served(lines[:4], [one for one in read(out) if one["custom_id"] in [a["custom_id"] for a in lines[:4]]])
        answered_once(lines, read(out))


def test_a_router_that_dies_makes_no_line_come_twice_on_a_pipe():
    lines = [story(i, max_tokens=40, ignore_eos=True) for i in range(20)]
    with folder() as (source, _):
        write(source, lines)
        proc = start(harness.FABLE, "--batch", source, "--max-num-seqs", "2", stdout=subprocess.PIPE)
        answers = [proc.stdout.readline()]
        kill_children(proc, "router")
        answers += proc.stdout.readlines()
        assert proc.wait(harness.LIMIT_S) == 0, proc.stderr.read()
        answered_once(lines, [json.loads(one) for one in answers])


def test_one_run_has_an_output():
    with folder() as (source, out):
        write(source, [story(0)])
        with open(out, "w", encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert "another weft run is writing to" in run("--batch", source, "--output", out, status=1)
        run("--batch", source, "--output", out)


def test_a_full_disk_ends_it_and_the_same_command_goes_on():
    harness.attempt(fill_the_disk)


def fill_the_disk():
    lines = [story(i, max_tokens=60, ignore_eos=True) for i in range(N_LINES)]
    with folder() as (source, out):
        write(source, lines)
        args = ("--batch", source, "--output", out, "--max-num-seqs", "2")
        proc = start(harness.FABLE, *args)
        harness.wait_until("an answer", lambda: whole_lines(out) >= 1)
        with contextlib.suppress(KeyError, ProcessLookupError):
            router = harness.children_of(proc.pid)["router"]
            resource.prlimit(router, resource.RLIMIT_FSIZE, (os.path.getsize(out) + 2000, -1))
        status, said = ended(proc)
        if status == 0:
            raise harness.Void("it was over before the disk was full")
        assert status == 1 and "File too large" in said, said
        n = whole_lines(out)
        assert 0 < n < N_LINES and whole_bytes(out) == os.path.getsize(out), "a part of a line is left"
        run(*args)
        answered_once(lines, read(out))


def whole_bytes(path):
    with open(path, "rb") as f:
        return f.read().rindex(b"\n") + 1


if __name__ == "__main__":
    harness.main()
