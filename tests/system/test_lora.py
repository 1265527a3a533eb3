"""LoRA adapters: as models and in lists, loaded and taken away under load, over deaths of workers and schedulers."""

import contextlib
import json
import os
import struct
import subprocess
import tempfile

import harness
from harness import Server

DATA = os.path.join(harness.SOURCE_DIR, "tests/data/lora")
QWEN3 = os.path.join(harness.SOURCE_DIR, "tests/data/zoo/qwen3")
N_LAYERS, HIDDEN, N_MADE, MAX_TOKENS = 6, 256, 8, 300 if not harness.SANITIZED else 120
BODY = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "ignore_eos": True, "logprobs": 0,
        "return_tokens_as_token_ids": True}


def write_adapter(folder, seed, rank):
    """An adapter of q_proj in all layers of fable-6m, of random values."""
    rng, header, data = harness.random.Random(seed), {}, b""
    os.mkdir(folder)
    for layer in range(N_LAYERS):
        for part, shape in (("A", (rank, HIDDEN)), ("B", (HIDDEN, rank))):
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{part}.weight"
            values = [rng.gauss(0, 1) * 0.3 for _ in range(shape[0] * shape[1])]
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
            data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    with open(f"{folder}/adapter_model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    with open(f"{folder}/adapter_config.json", "w") as f:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["q_proj"]}, f)


@contextlib.contextmanager
def made_adapters(n=N_MADE):
    with tempfile.TemporaryDirectory() as folder:
        for i in range(n):
            write_adapter(f"{folder}/a{i}", i, 2 + 3 * i)
        yield folder


def flags(folder, n=N_MADE):
    return [arg for i in range(n) for arg in ("--lora", f"a{i}={folder}/a{i}")]


def tokens(server, **body):
    return harness.tokens_of(server.complete(**{**BODY, **body})["choices"][0])


def test_adapters_are_models_and_company_changes_nothing():
    with made_adapters() as folder, Server(*flags(folder)) as server:
        models = {m["id"]: m for m in server.get("/v1/models").json["data"]}
        assert models["a3"]["parent"] == "fable-6m" and models["a3"]["root"] == f"{folder}/a3"
        names = ["fable-6m"] + [f"a{i}" for i in range(N_MADE)]
        alone = [tokens(server, model=name) for name in names]
        assert len({str(t) for t in alone}) == len(names), "each adapter says something else"
        together = harness.in_threads([lambda n=name: tokens(server, model=n) for name in names * 2])
        for name, has, want in zip(names * 2, together, alone * 2, strict=True):
            assert has == want, (name, has, want)
        replies = [server.complete(**BODY, model=name) for name in names]
        assert [r["model"] for r in replies] == names
        assert len({r["system_fingerprint"] for r in replies}) == len(names)


def test_lists_of_adapters_are_added_with_their_strengths():
    with made_adapters(2) as folder, Server(*flags(folder, 2)) as server:
        assert [(a["id"], a["name"]) for a in server.get("/lora-adapters").json] == [(0, "a0"), (1, "a1")]
        plain = tokens(server)
        assert tokens(server, lora=[{"id": 0, "scale": 1}]) == tokens(server, model="a0")
        assert tokens(server, lora=[{"id": 0, "scale": 0}]) == plain
        both = tokens(server, model="a0", lora=[{"id": 1, "scale": 0.5}])
        assert both == tokens(server, lora=[{"id": 0}, {"id": 1, "scale": 0.5}])
        assert both not in (plain, tokens(server, model="a0"))
        for lora in ([{"id": 2}], [{"id": -1}], [{}], {"id": 0}, [{"id": 0}] * 5, [{"id": 0, "scale": "x"}]):
            reply = server.post("/v1/completions", {**BODY, "lora": lora})
            assert reply.status == 400 and "lora" in reply.text or "id" in reply.text, (lora, reply.text)
        a1 = tokens(server, model="a1")
        assert server.post("/v1/unload_lora_adapter", {"lora_name": "a0"}).status == 200
        assert [(a["id"], a["name"]) for a in server.get("/lora-adapters").json] == [(1, "a1")]
        assert server.post("/v1/completions", {**BODY, "lora": [{"id": 0}]}).status == 400
        assert tokens(server, lora=[{"id": 1}]) == a1, "its number stays"
        body = {"lora_name": "other", "lora_path": f"{folder}/a0"}
        assert server.post("/v1/load_lora_adapter", body).status == 200
        assert sorted((a["id"], a["name"]) for a in server.get("/lora-adapters").json) == [(0, "other"), (1, "a1")]


def test_cached_prefixes_are_the_adapters_own():
    prompt = list(range(300, 300 + 200))
    with made_adapters(2) as folder, Server(*flags(folder, 2)) as server:
        def cached(**body):
            usage = server.complete(**{**BODY, "prompt": prompt, "max_tokens": 2, **body})["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]
        for body in ({}, {"model": "a0"}, {"model": "a1"}, {"lora": [{"id": 0, "scale": 0.5}]}):
            assert cached(**body) == 0 and cached(**body) >= 190, body
        assert cached(lora=[{"id": 0, "scale": 1}]) >= 190  # the same as "a0"


def test_bad_adapters_are_refused_by_name():
    with open(f"{DATA}/bad/bad.json") as f:
        bad = json.load(f)["refuse"]
    words = {"rank": "lora_A", "missing_b": "lora_B", "width": "lora_A", "transposed": "lora_B", "module": "z_proj",
             "layer": "layers.40", "dora": "use_dora", "kind": "peft_type", "integers": "I32",
             "cut": "adapter_model.safetensors", "json": "adapter_config.json"}
    assert set(words) == set(bad) and len(bad) == 11
    with Server("--lora", f"good={DATA}/qwen3-r6", model=QWEN3) as server:
        for name, word in words.items():
            reply = server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": f"{DATA}/bad/{name}"})
            assert reply.status == 400 and word in reply.json["error"]["message"], (name, reply.text)
        assert server.post("/v1/load_lora_adapter", {"lora_name": "x"}).status == 400
        assert server.post("/v1/load_lora_adapter", {"lora_name": "good", "lora_path": "x"}).status == 400
        assert server.post("/v1/unload_lora_adapter", {"lora_name": "x"}).status == 404
        assert [m["id"] for m in server.get("/v1/models").json["data"]] == ["qwen3", "good"]
        assert len(tokens(server, model="good", prompt=[3, 4, 5])) == BODY["max_tokens"]
    weft = os.path.join(harness.BIN_DIR, "weft")
    for args, word in ((("--lora", f"x={DATA}/bad/width"), "lora_A"), (("--lora", "x"), "NAME=PATH"),
                       (("--lora", f"x={DATA}/qwen3-r6", "--layout", "tp", "--workers", "2"), "--layout tp"),
                       (("--lora", f"x={DATA}/qwen3-r6", "--max-lora-rank", "5"), "rank 6"),
                       (("--lora", f"x={DATA}/qwen3-r6", "--max-lora-memory", "1KiB"), "--max-lora-memory allows 1.0 KiB")):
        end = subprocess.run([weft, "serve", QWEN3, "--port", "0", "--rpc-port", "0", *args], capture_output=True,
                             text=True, timeout=harness.LIMIT_S)
        assert end.returncode in (1, 2) and word in end.stderr.splitlines()[-1], (args, end.returncode, end.stderr)


def test_adapters_come_and_go_under_load_with_memory_flat():
    rounds = 100 if not harness.SANITIZED else 20
    with made_adapters(3) as folder, Server("--max-loras", "4") as server:
        def load(name, path):
            reply = server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})
            assert reply.status == 200, reply.text

        def resident():
            return sum(v for k, v in server.metrics().items() if k.startswith("weft_process_resident_bytes"))
        load("stays", f"{folder}/a0")
        expected = {name: tokens(server, model=name, max_tokens=MAX_TOKENS) for name in ("fable-6m", "stays")}
        streams = [harness.Call(lambda n=name: tokens(server, model=n, max_tokens=MAX_TOKENS))
                   for name in ("fable-6m", "stays")]
        sizes = []
        for i in range(rounds):
            load("moves", f"{folder}/a{1 + i % 2}")
            said = tokens(server, model="moves", max_tokens=4)
            reply = server.post("/v1/unload_lora_adapter", {"lora_name": "moves"})
            assert reply.status == 200, reply.text
            assert server.post("/v1/completions", {**BODY, "model": "moves"}).status == 404
            sizes.append(resident())
            for k, name in enumerate(expected):
                if streams[k].is_done:
                    assert streams[k].result() == expected[name], name
                    streams[k] = harness.Call(lambda n=name: tokens(server, model=n, max_tokens=MAX_TOKENS))
            assert len(said) == 4
        for k, name in enumerate(expected):
            assert streams[k].result() == expected[name], name
        if not harness.SANITIZED:
            half = len(sizes) // 2
            assert max(sizes[half:]) < max(sizes[:half]) + (4 << 20), sizes


def test_streams_with_adapters_survive_kills():
    names = ["fable-6m", "a0", "a1", "moves"]
    with made_adapters(3) as folder, Server(*flags(folder, 2)) as server:
        def load():
            body = {"lora_name": "moves", "lora_path": f"{folder}/a2"}
            assert server.post("/v1/load_lora_adapter", body).status == 200

        def run(name):
            return tokens(server, model=name, max_tokens=MAX_TOKENS, prompt="Long ago " * 20)
        load()
        expected = [run(name) for name in names]
        for victims in (("worker",), ("scheduler",), ("worker", "scheduler")):
            n_before = server.metric("weft_generation_tokens_total")
            calls = [harness.Call(lambda n=name: run(n)) for name in names]
            harness.wait_until("streams", lambda: server.metric("weft_generation_tokens_total") > n_before + 40)
            if victims == ("worker",):  # what runs keeps an adapter that is taken off the list
                assert server.post("/v1/unload_lora_adapter", {"lora_name": "moves"}).status == 200
            old = server.kill(*victims)
            assert [call.result() for call in calls] == expected, victims
            harness.wait_until("new ones", lambda: all(server.children().get(n, old[n]) != old[n] for n in victims))
            harness.wait_until("health", lambda: server.get("/health").status == 200)
            if victims == ("worker",):
                load()
        assert [m["id"] for m in server.get("/v1/models").json["data"]] == names


def test_an_adapter_whose_files_are_gone_is_told_and_forgotten():
    with made_adapters(1) as folder, Server() as server:
        body = {"lora_name": "a0", "lora_path": f"{folder}/a0"}
        assert server.post("/v1/load_lora_adapter", body).status == 200
        assert len(tokens(server, model="a0")) == BODY["max_tokens"]
        os.remove(f"{folder}/a0/adapter_model.safetensors")
        server.kill("worker")
        harness.wait_until("it to be gone", lambda: len(server.get("/v1/models").json["data"]) == 1)
        harness.wait_until("health", lambda: server.get("/health").status == 200)
        assert server.post("/v1/completions", {**BODY, "model": "a0"}).status == 404
        assert len(tokens(server)) == BODY["max_tokens"]


def test_an_adapter_of_the_command_line_that_is_gone_takes_nothing_else_down():
    with made_adapters(2) as folder, Server(*flags(folder, 2)) as server:
        expected = tokens(server, model="a1")
        os.remove(f"{folder}/a0/adapter_model.safetensors")
        server.kill("worker")
        harness.wait_until("it to be gone", lambda: len(server.get("/v1/models").json["data"]) == 2)
        pid = server.kill("router")["router"]
        harness.wait_until("another", lambda: server.children().get("router") not in (None, pid))
        harness.wait_until("health", lambda: not server.is_refused() and server.get("/health").status == 200)
        assert server.post("/v1/completions", {**BODY, "model": "a0"}).status == 404
        assert tokens(server, model="a1") == expected
        assert len(tokens(server)) == BODY["max_tokens"]


if __name__ == "__main__":
    harness.main()
