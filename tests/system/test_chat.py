"""`weft chat` and `weft run` as a person uses them: through a pipe, and in a terminal."""

import contextlib
import json
import os
import pty
import re
import resource
import select
import shutil
import subprocess
import tempfile
import termios
import time

import harness
from harness import Server

WEFT = os.path.join(harness.BIN_DIR, "weft")
GREEDY = ["--temperature", "0", "--n-predict", "24"]


def weft(*args, stdin="", status=0, **how):
    """(standard output, standard error), both UTF-8 to the last byte."""
    stdin = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run([WEFT, *args], input=stdin, capture_output=True, timeout=harness.LIMIT_S, check=False,
                          **how)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == status and "Sanitizer" not in err, (args, done.returncode, out, err)
    return out, err


def chat(lines, *args, model=harness.FABLE, status=0, **how):
    return weft("chat", model, *args, stdin="".join(line + "\n" for line in lines), status=status, **how)


def saved(lines, *args, **more):
    """The messages of a chat that ends with /save, and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "chat.json")
        out, err = chat([*lines, "/save " + path], *args, **more)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["messages"], out, err


def test_answers_are_the_servers_over_many_turns():
    lines = ["Tell me a story.", "And then?", "Who was he? \u00c9mile, or \u732b?"]
    messages, out, err = saved(lines, "--log-level", "debug", *GREEDY)
    assert [m["role"] for m in messages] == ["user", "assistant"] * 3
    assert [m["content"] for m in messages[::2]] == lines
    assert out == "".join(m["content"] + "\n" for m in messages[1::2])  # and no prompts
    cached = [int(n) for n in re.findall(r"tokens, (\d+) of them in the cache", err)]
    assert cached[0] == 0 and 0 < cached[1] < cached[2], err  # a turn computes what is new
    with Server() as server:
        for i in (0, 2, 4):
            reply = server.post("/v1/chat/completions", {"messages": messages[: i + 1], "temperature": 0,
                                                         "max_tokens": 24}).json
            assert reply["choices"][0]["message"]["content"] == messages[i + 1]["content"], i


def test_a_session_goes_on_at_the_next_start():
    """Turn by turn in a process each, or all in one: the same answers, and only what is new is computed."""
    lines = ["Tell me a story.", "And then?", "Who was he?"]
    zoo = os.path.join(harness.SOURCE_DIR, "tests/data/zoo")
    for model in (harness.FABLE, os.path.join(zoo, "gemma3")):
        lines = lines[: 3 if model == harness.FABLE else 2]
        want, _, _ = saved(lines, *GREEDY, model=model)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "talk")
            for i, line in enumerate(lines):
                _, err = chat([line], "--session", path, "--log-level", "debug", *GREEDY, model=model)
                cached = int(re.findall(r"tokens, (\d+) of them in the cache", err)[0])
                assert (cached > 0) == (i > 0) or model != harness.FABLE, (i, err)
            with open(path + ".json", encoding="utf-8") as file:
                assert json.load(file)["messages"] == want
            if model == harness.FABLE:
                with open(path, "r+b") as file:
                    file.seek(4000)
                    file.write(b"?!")
                _, err = chat(["More."], "--session", path, *GREEDY)
                assert "'talk' is damaged" in err and "computed again" in err, err
                with open(path + ".json", "w", encoding="utf-8") as file:
                    file.write("[]")
                _, err = chat(["More."], "--session", path, *GREEDY, status=1)
                assert "is no conversation" in err, err


def test_a_session_that_cannot_be_kept_begins_no_chat():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "none", "talk")
        out, err = weft("chat", harness.FABLE, "--session", path, *GREEDY, stdin="Hello.\n", status=1)
        assert out == "" and "cannot write into the folder" in err, (out, err)


def test_a_servers_session_is_taken_if_tokens_alone_tell_it():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "talk")
        for salt in ({}, {"cache_salt": "x"}):
            with Server("--session-dir", folder) as server:
                server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me a story."}],
                                                     "session_id": "s", "max_tokens": 24, "temperature": 0, **salt})
                assert server.post("/v1/sessions/s/save", {"filename": "talk"}).status == 200
                assert server.request("DELETE", "/v1/sessions/s").status == 200
            _, err = chat(["Tell me a story."], "--session", path, "--log-level", "debug", *GREEDY)
            assert (int(re.findall(r"tokens, (\d+) of them in the cache", err)[0]) > 0) == (not salt), err
            assert ("computed again" in err and "adapters or a salt" in err) == bool(salt), err
            os.remove(path + ".json")


def test_what_is_kept_between_turns_suits_the_model():
    """A window, latent attention, and rope that turns long prompts otherwise: their keys are of no use to short ones."""
    lines = ["One.", "Two, and a good deal more of it than of the first one, " * 2, "Three."]
    for name in "phi3_longrope", "mistral_swa16", "deepseek_v2", "gemma3":
        model = os.path.join(harness.SOURCE_DIR, "tests/data/zoo", name)
        messages, _, err = saved(lines, "--log-level", "debug", "--temperature", "0", "--n-predict", "8",
                                 "--min-tokens", "8", model=model)
        turns = [tuple(map(int, pair)) for pair in
                 re.findall(r"a prompt of (\d+) tokens, (\d+) of them in the cache", err)]
        assert len(turns) == 3 and turns[0][1] == 0 and turns[2][1] > turns[1][0] - 1, (name, turns)
        limit = re.search(r"for prompts over (\d+)", weft("inspect", model)[0])
        if limit:
            assert turns[0][0] <= int(limit.group(1)) < turns[1][0], (name, turns)
        assert (turns[1][1] == 0) == bool(limit), (name, turns)
        with Server(model=model) as server:
            for i in (0, 2, 4):
                reply = server.post("/v1/chat/completions", {"messages": messages[: i + 1], "temperature": 0,
                                                             "max_tokens": 8, "min_tokens": 8}).json
                assert reply["choices"][0]["message"]["content"] == messages[i + 1]["content"], (name, i)


def test_commands():
    out, err = chat(["Hello", "/reset", "Hello"], *GREEDY)
    assert not err and out == 2 * chat(["Hello"], *GREEDY)[0], (out, err)
    assert chat(["Hello"], "--system", "Speak like a sailor.", *GREEDY)[0] * 2 != out
    messages, _, _ = saved(["Hello", "/reset", "One", "/system  Be brief. ", "Two"], "--system", "Be rude.", *GREEDY)
    assert [(m["role"], m["content"]) for m in messages if m["role"] != "assistant"] == [
        ("system", "Be brief."), ("user", "One"), ("user", "Two")]
    messages, _, _ = saved(["One", "/system", "Two"], "--system", "Be rude.", *GREEDY)
    assert messages[0]["role"] == "user"
    out, err = chat(["/help", "/quit", "never read"])
    assert not out and "/save FILE" in err and "Ctrl-C" in err
    out, err = chat(["/frobnicate now", "/save", "", "  ", "Hello"], *GREEDY, status=1)
    assert err == "weft: unknown command /frobnicate; /help lists them\nweft: /save needs the name of a file\n"
    assert out  # it went on


def test_a_conversation_is_saved_as_a_body_for_the_server():
    with tempfile.TemporaryDirectory() as folder:
        mine, other = os.path.join(folder, "my chat.json"), os.path.join(folder, "other")
        with open(other, "w", encoding="utf-8") as file:
            file.write("precious")
        _, err = chat(["Say \"x\"\t\u00e9", "/save " + mine, "More", "/save " + mine, "/save " + other,
                       "/save " + folder + "/no/such/folder"], *GREEDY, status=1)
        assert f"{other} is there already" in err and err.count("\n") == 2, err
        with open(other, encoding="utf-8") as file:
            assert file.read() == "precious"
        with open(mine, encoding="utf-8") as file:
            body = json.load(file)
        assert body["messages"][0]["content"] == "Say \"x\"\t\u00e9" and len(body["messages"]) == 4
        with Server() as server:
            assert server.post("/v1/chat/completions", {**body, "max_tokens": 1}).status == 200


def test_a_conversation_that_cannot_be_saved_goes_on():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "chat.json")
        nowhere = "/proc/x", "/sys/x", folder, folder + "/" + "x" * 300, "/dev/null/x"
        _, err = chat(["One", *("/save " + name for name in nowhere), "Two", "/save " + path], *GREEDY, status=1)
        assert err.count("\n") == len(nowhere), err
        with open(path, encoding="utf-8") as file:
            assert [m["content"] for m in json.load(file)["messages"][::2]] == ["One", "Two"], err


def test_a_conversation_that_did_not_fit_on_the_disk_leaves_no_half_of_it():
    """A file that is written in part would be none of a conversation, and --session refuse to begin."""
    full = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)), "restore_signals": False}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "talk")
        line = ["Tell me a story of " + "foxes " * 60]
        _, err = chat(line, "--session", path, *GREEDY, status=1, **full)
        assert f"cannot write {path}.json" in err and os.listdir(folder) == [], (err, os.listdir(folder))
        chat(line, "--session", path, *GREEDY)
        with open(path + ".json", encoding="utf-8") as file:
            kept = file.read()
        chat(["And then?"], "--session", path, *GREEDY, status=1, **full)
        with open(path + ".json", encoding="utf-8") as file:
            assert file.read() == kept and sorted(os.listdir(folder)) == ["talk", "talk.json"], os.listdir(folder)


def test_a_full_context_leaves_out_the_oldest_turns():
    messages, _, err = saved([f"Message number {i}, said the fox." for i in range(8)], "--max-model-len", "160",
                             "--system", "You are a fox.", *GREEDY)
    assert "the context of 160 tokens is full: the model no longer sees the oldest 2 messages" in err, err
    assert len(messages) == 17  # they are saved all the same
    out, err = chat(["word " * 500, "Hello"], "--max-model-len", "160", *GREEDY, status=1)
    assert re.fullmatch(r"weft: the message makes a prompt of \d+ tokens; there is room for 120\n", err), err
    assert out
    _, err = chat(["Tell me all."], "--temperature", "0", "--min-tokens", "4000000", "--max-model-len", "160")
    assert err == "weft: the answer ends where the context of 160 tokens is full\n", err


def test_lines_of_any_bytes():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "chat.json").encode()
        line = b"caf\xc3\xa9 \xff \xe2\x82 end"
        out, err = weft("chat", harness.FABLE, *GREEDY,
                        stdin=b"x" * (3 << 20) + b"\n" + line + b"\r\n/save " + path + b"\nno newline at the end",
                        status=1)
        assert err == "weft: a line has more than 1048576 bytes\n" and out
        with open(path, encoding="utf-8") as file:
            assert json.load(file)["messages"][0]["content"] == line.decode(errors="replace")
        weft("chat", harness.FABLE, *GREEDY, stdin=b"a\0b\n\0\n")
        assert weft("chat", harness.FABLE) == ("", "")


def without_template(folder):
    model = os.path.join(folder, "model")
    shutil.copytree(harness.DRAFT, model)
    path = os.path.join(model, "tokenizer_config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    template = config.pop("chat_template")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return model, template


def test_a_model_without_a_template():
    with tempfile.TemporaryDirectory() as folder:
        model, template = without_template(folder)
        path = os.path.join(folder, "chat.jinja")
        for command in ["chat", model], ["run", model, "--chat", "-p", "x"]:
            _, err = weft(*command, status=1)
            assert err == f"weft: {model} has no chat template; --chat-template FILE gives it one\n", err
        _, err = chat(["x"], "--chat-template", path, model=model, status=1)
        assert err.startswith("weft: --chat-template: ") and path in err, err
        with open(path, "w", encoding="utf-8") as file:
            file.write("{% include 'x' %}")
        _, err = chat(["x"], "--chat-template", path, model=model, status=1)
        assert "cannot be used" in err and err.count("\n") == 1, err
        with open(path, "w", encoding="utf-8") as file:
            file.write("{{ raise_exception('no such role') if messages|length > 1 else messages[0]['content'] }}")
        out, err = chat(["One", "Two", "/reset", "One"], "--chat-template", path, *GREEDY, model=model, status=1)
        assert err == "weft: no such role\n" and out[: len(out) // 2] == out[len(out) // 2 :], (out, err)
        with open(path, "w", encoding="utf-8") as file:
            file.write(template)
        assert chat(["Hello"], "--chat-template", path, *GREEDY, model=model) == chat(["Hello"], *GREEDY, model=harness.DRAFT)


def test_a_message_without_an_answer_leaves_the_conversation_as_it_was():
    """What the model says first to "Hush" ends its text; all else must be left out of that prompt, for it alone."""
    with tempfile.TemporaryDirectory() as folder:
        model, path = os.path.join(folder, "model"), os.path.join(folder, "chat.jinja")
        shutil.copytree(harness.DRAFT, model)
        with open(path, "w", encoding="utf-8") as file:
            file.write("{% if messages[-1]['content'] != 'Hush' %}{{ raise_exception('forgotten') if "
                       "messages[-1]['content'] == 'Three' and messages|length != 5 }}Once upon a"
                       "{% elif messages|length > 1 %}{% for i in range(500) %}word {% endfor %}"
                       "{% else %}The old man and the{% endif %}")
        end = json.loads(weft("run", model, "--chat", "--chat-template", path, "-p", "Hush", "--temperature", "0",
                              "-n", "1", "--json")[0])["ids"][0]
        with open(os.path.join(model, "generation_config.json"), "w", encoding="utf-8") as file:
            json.dump({"eos_token_id": end}, file)
        messages, out, err = saved(["One", "Two", "Hush", "Three"], "--chat-template", path, "--max-model-len", "160",
                                   "--temperature", "0", "--n-predict", "2", model=model)
        assert [m["content"] for m in messages[::2]] == ["One", "Two", "Three"], (out, err)
        assert err == ("weft: the context of 160 tokens is full: the model no longer sees the oldest 4 messages\n"
                       "weft: there is no answer, so the conversation goes on without the message\n"), err


def test_run_reads_standard_input_and_chats():
    flag = ["-n", "8", "--json"]
    wanted, _ = weft("run", harness.FABLE, "-p", "Once upon\na time", *flag)
    assert weft("run", harness.FABLE, *flag, stdin="Once upon\na time\n")[0] == wanted
    assert weft("run", harness.FABLE, "-p", "-", *flag, stdin="Once upon\na time")[0] == wanted
    assert weft("run", harness.FABLE, "-p", "Once upon\na time", *flag, stdin="not read")[0] == wanted
    asked = ["run", harness.FABLE, "--chat", "--system", "Be brief.", "-n", "24"]
    messages, _, _ = saved(["A story, please."], "--system", "Be brief.", *GREEDY)
    assert weft(*asked, "-p", "A story, please.")[0] == messages[-1]["content"] + "\n"
    assert weft(*asked, stdin="A story, please.\n")[0] == messages[-1]["content"] + "\n"
    for args, said in (([], "give a prompt"), (["--prompt-ids", "1,2", "--chat"], "--chat"),
                       (["-p", "x", "--system", "Be brief."], "--system needs --chat"),
                       (["--system=Be brief.", "--prompt-ids", "1,2"], "--system needs --chat")):
        out, err = weft("run", harness.FABLE, *args, status=2)
        assert said in err and err.count("\n") == 1 and not out, (args, err)
    # Settings of a server or a chat may stand in the environment or in one file for all.
    for name, value in ("WEFT_CHAT_TEMPLATE", "/nowhere"), ("WEFT_SYSTEM", "Be rude."), ("WEFT_PROMPT", "Not this"):
        args = ["--prompt-ids", "1,2,3"] if name == "WEFT_PROMPT" else ["-p", "x"]
        with_it = subprocess.run([WEFT, "run", harness.FABLE, *args, "-n", "4"], capture_output=True, text=True,
                                 env={**os.environ, name: value}, timeout=harness.LIMIT_S, check=True).stdout
        assert with_it == weft("run", harness.FABLE, *args, "-n", "4")[0], name
    _, err = weft("run", harness.FABLE, stdin="x" * (65 << 20), status=1)
    assert err == "weft: standard input is longer than 67108864 bytes\n", err


class Terminal:
    """`weft chat` in a terminal of its own."""

    def __init__(self, *args, model=harness.FABLE):
        self.args, self.model, self.text = args, model, ""

    def __enter__(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(OSError):
                os.execv(WEFT, [WEFT, "chat", self.model, *self.args])
            os._exit(127)
        mode = termios.tcgetattr(self.fd)
        mode[3] &= ~termios.ECHO
        termios.tcsetattr(self.fd, termios.TCSANOW, mode)
        return self

    def read_until(self, what, pattern):
        """What came up to the pattern's end; what is after it is kept."""
        end = time.monotonic() + harness.LIMIT_S
        while not (match := re.search(pattern, self.text, re.S)):
            assert time.monotonic() < end, (what, self.text)
            if not select.select([self.fd], [], [], 1)[0]:
                continue
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # Linux: the other side is closed
                data = b""
            assert data, (f"it ended before {what}", self.text)
            self.text += data.decode(errors="replace")
        text, self.text = self.text[: match.end()], self.text[match.end() :]
        return text

    def send(self, text):
        os.write(self.fd, text.encode())

    def wait(self, asking=None):
        """The exit status; reads on until the end, and sends `asking` whenever there is nothing to read."""
        end = time.monotonic() + harness.LIMIT_S
        with contextlib.suppress(OSError):  # Linux: the other side is closed
            while True:
                assert time.monotonic() < end, self.text
                if select.select([self.fd], [], [], 0.1)[0]:
                    data = os.read(self.fd, 65536)
                    if not data:
                        break
                    self.text += data.decode(errors="replace")
                elif asking:
                    self.send(asking)
        _, status = os.waitpid(self.pid, 0)
        self.pid = None
        return os.waitstatus_to_exitcode(status)

    def __exit__(self, *_):
        if self.pid:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


ENDLESS = ["--temperature", "0", "--min-tokens", "4000000"]


def test_a_chat_in_a_terminal():
    with Terminal(*GREEDY) as terminal:
        head = terminal.read_until("the prompt", r"(^|\n)> ")
        assert "a context of 1024 tokens. /help lists commands" in head, head
        terminal.send("Tell me a story.\n")
        answer = terminal.read_until("the next prompt", r"\n> ")
        plain, _ = chat(["Tell me a story."], *GREEDY)
        assert answer.replace("\r", "").startswith(plain), (answer, plain)
        terminal.send("\x04")  # the end of the file
        assert terminal.wait() == 0 and "Sanitizer" not in terminal.text
    with Terminal(*GREEDY) as terminal:
        terminal.read_until("the prompt", r"> ")
        terminal.send("half a line\x03")
        assert terminal.wait() == 0


def test_a_terminal_is_never_given_control_characters():
    """Not even where only the output is one. The model's tokenizer has ESC in the place of the comma."""
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(harness.FABLE):
            os.symlink(os.path.join(harness.FABLE, name), os.path.join(folder, name))
        path = os.path.join(folder, "tokenizer.json")
        with open(path, encoding="utf-8") as f:
            tokenizer = json.load(f)
        vocab = tokenizer["model"]["vocab"]
        escape = "\u011b"  # 0x1b in the alphabet of byte-level BPE
        vocab[escape], vocab[","] = vocab[","], vocab[escape]
        os.remove(path)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(tokenizer, f)
        for args in (("chat", folder), ("run", folder, "-p", "The old house")):
            leader, follower = pty.openpty()
            with subprocess.Popen([WEFT, *args, "-n", "60", "--temperature", "0"], stdin=subprocess.PIPE, stdout=follower,
                                  stderr=subprocess.DEVNULL) as proc:
                os.close(follower)
                proc.stdin.write(b"The old house\n")
                proc.stdin.close()
                seen = b""
                with contextlib.suppress(OSError):  # the end of a terminal
                    while chunk := os.read(leader, 4096):
                        seen += chunk
            os.close(leader)
            assert b"?" in seen and b"\x1b" not in seen, seen


def test_a_command_says_what_it_has_done_in_a_terminal():
    with tempfile.TemporaryDirectory() as folder, Terminal(*GREEDY) as terminal:
        terminal.read_until("the prompt", r"> ")
        path = os.path.join(folder, "chat.json")
        commands = (("/system Be brief.", "the system message is set"),
                    ("/reset", "all is forgotten but the system message"),
                    ("/system", "there is no system message"), ("/reset", "all is forgotten"),
                    ("/save " + path, "saved in " + path))
        for line, said in commands:
            terminal.send(line + "\n")
            assert terminal.read_until("the next prompt", r"> ") == said + "\r\n> ", line
        with open(path, encoding="utf-8") as file:
            before = file.read()
        os.rename(folder, folder + "-away")  # no second copy can grow there: it must not cost the first one
        terminal.send("/system Be long.\n")
        terminal.read_until("the next prompt", r"> ")
        terminal.send("/save " + path + "\n")
        said = terminal.read_until("the next prompt", r"> ")
        os.rename(folder + "-away", folder)
        assert "cannot write " + path in said
        with open(path, encoding="utf-8") as file:
            assert file.read() == before
        assert os.listdir(folder) == [os.path.basename(path)]
        terminal.send("/save " + path + "\n")
        assert "saved in " + path in terminal.read_until("the next prompt", r"> ")
        with open(path, encoding="utf-8") as file:
            assert "Be long." in file.read()
        terminal.send("/quit\n")
        assert terminal.wait() == 0
    everything = [line for line, _ in commands]
    with tempfile.TemporaryDirectory() as folder:
        everything[-1] = f"/save {folder}/chat.json"
        assert chat(everything) == ("", "")


def test_ctrl_c_stops_an_answer_and_the_chat_goes_on():
    harness.attempt(stop_an_answer)


def stop_an_answer():
    with Terminal(*ENDLESS) as terminal:
        terminal.read_until("the prompt", r"> ")
        terminal.send("Tell me all.\n")
        terminal.read_until("the beginning of an answer", r"\w+ \w+")
        terminal.send("\x03")
        try:
            stopped = terminal.read_until("the prompt", r"\n> ")
        except AssertionError as why:
            if "it ended" in str(why):
                raise harness.Void("the answer was complete") from why
            raise
        if "is full" in stopped:
            raise harness.Void("the answer was complete")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "chat.json")
            terminal.send(f"/save {path}\n")
            terminal.read_until("the prompt", r"> ")
            with open(path, encoding="utf-8") as file:
                messages = json.load(file)["messages"]
        assert [m["role"] for m in messages] == ["user", "assistant"] and messages[1]["content"]
        terminal.send("/reset\n")
        terminal.read_until("the prompt", r"> ")
        terminal.send("\x03")
        assert terminal.wait() == 0


def test_ctrl_c_twice_ends_the_chat():
    def run():
        with Terminal(*ENDLESS) as terminal:
            terminal.read_until("the prompt", r"> ")
            terminal.send("Tell me all.\n")
            terminal.read_until("the beginning of an answer", r"\w+ \w+")
            terminal.send("\x03")  # two at once may be one signal
            assert terminal.wait(asking="\x03") == 0
            if "is full" in terminal.text:
                raise harness.Void("the answer was complete")
    harness.attempt(run)


if __name__ == "__main__":
    harness.main()
