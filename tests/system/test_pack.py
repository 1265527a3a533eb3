"""Packed files: every command takes them in place of their sources, and `weft serve` keeps to the one it began with,
even if its name goes to another."""

import os
import shutil
import signal
import subprocess
import tempfile

import harness
from harness import Server

WEFT = os.path.join(harness.BIN_DIR, "weft")
BODY = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "logprobs": 2}


def weft(*args, stdin=None):
    return subprocess.run([WEFT, *args], capture_output=True, text=True, input=stdin, timeout=harness.LIMIT_S * 4,
                          check=False)


def packed(folder, model=harness.FABLE, *options):
    out = os.path.join(folder, f"{len(os.listdir(folder))}.weft")
    done = weft("pack", model, out, *options)
    assert done.returncode == 0, done.stderr
    return out


def test_every_command_takes_a_packed_file():
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        with open(text, "w", encoding="utf-8") as f:
            f.write("The sea was calm, and the captain slept. " * 40)
        commands = [["run", "MODEL", "-p", "Once upon a time", "-n", "20"], ["perplexity", "MODEL", text],
                    ["run", "MODEL", "-p", "Once", "-n", "8", "--activations", "f32"], ["tokenize", "MODEL"]]
        for options in [], ["--dtype", "q4"]:
            out = packed(folder, harness.DRAFT, *options)
            for command in commands:
                results = [weft(*[model if a == "MODEL" else a for a in command],
                                *(options if command[0] != "tokenize" and model == harness.DRAFT else []),
                                stdin="It was late")
                           for model in (harness.DRAFT, out)]
                assert results[0].returncode == 0 and results[0].stdout, (command, results[0].stderr)
                assert results[0].stdout == results[1].stdout, (command, results)
            shown = weft("inspect", out).stdout
            assert f"packed as       {options[1] if options else 'auto'}," in shown and "fable-draft" in shown, shown
        done = weft("run", out, "-p", "x", "--dtype", "bf16")
        assert done.returncode == 1 and "packed as q4" in done.stderr and done.stderr.count("\n") == 1, done
        done = weft("pack", harness.FABLE, out)
        assert done.returncode == 1 and "--force" in done.stderr and done.stderr.count("\n") == 1, done
        assert weft("pack", harness.FABLE, out, "--force").returncode == 0
        done = weft("pack", out, os.path.join(folder, "twice"))
        assert done.returncode == 1 and "packed already" in done.stderr, done
        assert weft("pack", harness.FABLE).returncode == 2


def kill_and_wait(server, *names):
    """Until others serve in their place."""
    old = server.kill(*names)

    def serves():
        now = server.children()
        try:
            return all(now.get(n, old[n]) != old[n] for n in names) and server.get("/health").status == 200
        except OSError:
            return False

    harness.wait_until("their successors", serves, every_s=0.05)


def answers(server):
    completion = server.complete(**BODY)
    choice = completion["choices"][0]
    chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8,
                                                "temperature": 0})
    said = chat.json["choices"] if chat.status == 200 else chat.json["error"]["message"]
    return (choice["text"], choice["logprobs"], completion["system_fingerprint"], chat.status, said,
            server.post("/tokenize", {"prompt": "the sea"}).json)


def test_a_packed_file_is_served_as_its_source_is():
    with tempfile.TemporaryDirectory() as folder:
        out = packed(folder, harness.FABLE, "--dtype", "q8")
        with Server("--dtype", "q8") as server:
            want = answers(server)
        with Server(model=out) as server:
            assert answers(server) == want
            assert server.get("/v1/models").json["data"][0]["id"] == os.path.basename(out).removesuffix(".weft")
            kill_and_wait(server, "worker")
            assert answers(server) == want


def test_a_file_renamed_over_the_one_in_use_changes_nothing():
    with tempfile.TemporaryDirectory() as folder:
        out, other = packed(folder), packed(folder, harness.DRAFT)
        with Server(model=out) as server:
            want = answers(server)
            os.replace(other, out)
            kill_and_wait(server, "worker", "router")
            assert answers(server) == want


def test_a_file_cut_short_in_use_is_told_of():
    with tempfile.TemporaryDirectory() as folder:
        out = packed(folder)
        server = Server(model=out, check_idle=False)
        try:
            server.__enter__()
            assert server.complete(**BODY)["choices"][0]["text"]
            os.truncate(out, 8192)
            try:
                conn = server.connect()
                conn.request("POST", "/v1/completions", "{\"prompt\": \"x\", \"max_tokens\": 4}",
                             {"Content-Type": "application/json"})
                harness.wait_until("word of it", lambda: any("cut short" in line for line in server.lines))
                harness.wait_until("the reason", lambda: any(f"{out}: is a damaged packed file: it has 8192 bytes of" in line for line in server.lines))
            finally:
                conn.close()
            server.proc.send_signal(signal.SIGTERM)
            server.proc.send_signal(signal.SIGTERM)
            server.proc.wait(harness.LIMIT_S)
        finally:
            server._kill_all()


def test_files_that_are_no_packed_model_end_with_one_sentence():
    with tempfile.TemporaryDirectory() as folder:
        out = packed(folder, harness.DRAFT)
        bad = os.path.join(folder, "bad")
        for cut in 8, 5000, -1:
            shutil.copy(out, bad)
            os.truncate(bad, cut if cut > 0 else os.path.getsize(out) + cut)
            for command in ["run", bad, "-p", "x"], ["serve", bad, "--port", "0"], ["tokenize", bad], ["inspect", bad]:
                done = weft(*command, stdin="")
                assert done.returncode == 1 and "damaged packed file" in done.stderr, (command, done)
                assert done.stderr.count("\n") == 1, done.stderr


def test_every_architecture_goes_on_as_a_packed_file():
    names = ("qwen2", "qwen3", "smollm3", "granite", "gemma2", "gemma3", "phi3", "phi3_longrope", "phi4_mini",
             "llama_yarn", "mistral_swa16", "mixtral", "olmo2", "olmoe", "qwen2_moe", "qwen3_moe",
             "gguf/qwen3_moe.gguf", "deepseek_v2", "deepseek_v3", "deepseek_v3_fp8", "gguf/deepseek_v2.gguf")
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "packed")
        for name in names:
            model = os.path.join(harness.SOURCE_DIR, "tests/data/zoo", name)
            assert weft("pack", model, out, "--force").returncode == 0, name
            prompt = ["--prompt-ids", "5,6,7,8,9", "-n", "40", "--json"]
            texts = [weft("run", path, *prompt).stdout for path in (model, out)]
            assert texts[0] and texts[0] == texts[1], (name, texts)


def test_no_file_of_a_models_folder_is_replaced():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        shutil.copytree(harness.FABLE, model)
        names = os.listdir(model)
        for name in names:
            done = weft("pack", model, os.path.join(model, name), "--force")
            assert done.returncode == 1 and "part of the model itself" in done.stderr, done
        for _ in range(2):  # a packed file there is none of them
            assert weft("pack", model, os.path.join(model, "packed.weft"), "--force").returncode == 0
        for name in names:
            with open(os.path.join(model, name), "rb") as a, open(os.path.join(harness.FABLE, name), "rb") as b:
                assert a.read() == b.read(), name


def test_a_packed_file_is_called_by_its_path():
    """And not by the descriptor that its processes share."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a,b.weft")
        subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "pack", harness.FABLE, path], check=True,
                       capture_output=True, timeout=harness.LIMIT_S)
        with Server(model=path) as server:
            model, = server.get("/v1/models").json["data"]
            assert model["id"] == "a_b" and model["root"] == path, model
            assert server.get("/props").json["model_path"] == path


if __name__ == "__main__":
    harness.main()
