"""Clients nobody here wrote: npm's openai, Debian's pynvim.msgpack_rpc, Prometheus' promtool."""

import os
import shutil
import subprocess
import tempfile
import threading

import harness
from harness import Server, Skip

KEY = "a-key-for-the-test"


def npm_folder():
    """A folder with the openai package: kept beside the build, fetched on first use."""
    folder = os.path.join(os.path.dirname(harness.BIN_DIR), "npm")
    if not shutil.which("npm") or not shutil.which("node"):
        raise Skip("node and npm are not installed")
    if not os.path.isdir(os.path.join(folder, "node_modules/openai")):
        os.makedirs(folder, exist_ok=True)
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "openai@6"], cwd=folder,
                              capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            raise Skip("npm cannot fetch the openai package: " + done.stderr.strip()[-200:])
    return folder


def test_the_openai_package_of_npm():
    folder = npm_folder()
    script = os.path.join(folder, "openai_client.mjs")
    shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), "openai_client.mjs"), script)
    with Server(env={"WEFT_API_KEY": KEY}) as server:
        done = subprocess.run(["node", script, f"http://127.0.0.1:{server.port}", KEY], cwd=folder,
                              capture_output=True, text=True, timeout=harness.LIMIT_S * 2, check=False)
        print("    " + done.stdout.replace("\n", "\n    "), flush=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("ok ") == 7, done.stdout


def attach(port):
    try:
        from pynvim.msgpack_rpc import tcp_session
    except ImportError as error:
        raise Skip("python3-pynvim is not installed") from error
    rpc = tcp_session("127.0.0.1", port)
    rpc.error_wrapper = lambda error: RuntimeError(error)  # what its owner, pynvim's Nvim, sets as well
    return rpc


def text_of(value):
    return value.decode() if isinstance(value, bytes) else value


def test_a_msgpack_rpc_client_nobody_here_wrote():
    with Server() as server:
        rpc = attach(server.rpc_port)
        assert rpc.request("health")
        assert len(rpc.request("models")) >= 1
        ids = rpc.request("tokenize", {"prompt": "Once upon a time"})["tokens"]
        assert ids == server.post("/tokenize", {"prompt": "Once upon a time"}).json["tokens"]
        assert text_of(rpc.request("detokenize", {"tokens": ids})["prompt"]).endswith("Once upon a time")
        over_http = server.complete(prompt="Once upon a time", max_tokens=24, temperature=0)
        reply = rpc.request("generate", {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0})
        assert text_of(reply["choices"][0]["text"]) == over_http["choices"][0]["text"]
        assert reply["usage"]["completion_tokens"] == over_http["usage"]["completion_tokens"]
        chat = rpc.request("chat", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5,
                                    "temperature": 0})
        assert text_of(chat["choices"][0]["message"]["role"]) == "assistant"
        try:
            rpc.request("generate", {"prompt": "x", "temperature": "hot"})
        except RuntimeError as error:
            assert "temperature" in str(error), error
        else:
            raise AssertionError("a wrong type was taken")


def test_msgpack_rpc_streams_tokens_before_the_response():
    with Server() as server:
        rpc = attach(server.rpc_port)
        pieces, result = [], {}

        def on_notification(name, args):
            pieces.append((text_of(name), args[0]))

        def on_setup():
            try:
                result["reply"] = rpc.request("generate", {
                    "prompt": "The king", "max_tokens": 30, "temperature": 0, "ignore_eos": True,
                    "stream": True, "request_id": "mine"})
            finally:
                rpc.stop()
        watchdog = threading.Timer(harness.LIMIT_S, lambda: os._exit(1))
        watchdog.start()
        rpc.run(lambda name, args: None, on_notification, on_setup)
        watchdog.cancel()
        whole = server.complete(prompt="The king", max_tokens=30, temperature=0, ignore_eos=True)
        assert all(name == "token" for name, _ in pieces)
        assert all(text_of(p["request_id"]) == "mine" for _, p in pieces)
        assert "".join(text_of(p["text"]) for _, p in pieces) == whole["choices"][0]["text"]
        assert sum(len(p["token_ids"]) for _, p in pieces) == 30


def test_promtool_accepts_the_metrics():
    if not shutil.which("promtool"):
        raise Skip("promtool (Debian's prometheus) is not installed")
    with Server() as server:
        server.complete(prompt="x", max_tokens=4)
        text = server.get("/metrics").body
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60,
                              check=False)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
        assert not done.stderr.strip(), done.stderr.decode()
        names = {line.split()[2] for line in text.decode().splitlines() if line.startswith("# TYPE ")}
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
                     "num_preemptions_total", "time_to_first_token_seconds", "inter_token_latency_seconds",
                     "e2e_request_latency_seconds", "prompt_tokens_total", "generation_tokens_total",
                     "request_success_total", "iteration_tokens", "worker_idle_seconds_total"):
            assert "weft_" + name in names, f"weft_{name} is missing"
    with Server("--metrics-prefix", "vllm:", check_idle=False) as server:
        assert "\nvllm:num_requests_running" in server.get("/metrics").text


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
