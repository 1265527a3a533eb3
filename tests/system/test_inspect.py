#!/usr/bin/python3
"""weft inspect --plan: its sums are those of the server that it speaks of, and of the same model without its weights.

Models of the zoo (dense, windows, experts, latents; and of ../shared/zoo2, where that is there, hybrids and sinks) are
planned, served and measured with the same options.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

import harness
from harness import Server

WEFT = os.path.join(harness.BIN_DIR, "weft")
ZOO = os.path.join(harness.SOURCE_DIR, "tests/data/zoo")
ZOO2 = os.path.join(os.environ.get("WEFT_SHARED_DIR", os.path.join(harness.SOURCE_DIR, "../shared")), "zoo2")
SMALL = ("--threads=1", "--max-num-seqs=3", "--max-num-batched-tokens=64")
GIVEN = ("--bandwidth=10", "--peak=100")


def models(names, names2):
    found = [os.path.join(ZOO, name) for name in names] + [os.path.join(ZOO2, name) for name in names2]
    there = [path for path in found if os.path.isdir(path)]
    if len(there) < len(found):
        print(f"    without {len(found) - len(there)} of ../shared/zoo2", flush=True)
    return there


def run(*args, status=0):
    done = subprocess.run([WEFT, *args], capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
    assert done.returncode == status, (args, done.returncode, done.stdout[-400:], done.stderr)
    return done


def plan(model, *args, status=0):
    return json.loads(run("inspect", "--plan", model, "--json", *GIVEN, *args, status=status).stdout)


def bare(folder, of):
    """A folder with the configuration alone."""
    path = os.path.join(folder, os.path.basename(of))
    os.mkdir(path)
    with open(os.path.join(of, "config.json"), "rb") as f, open(os.path.join(path, "config.json"), "wb") as out:
        out.write(f.read())
    return path


def check_served(model):
    for args in (("--kv-memory=4MiB",), ("--kv-memory=1MiB", "--kv-dtype=int8", "--block-size=32"),
                 ("--memory-limit=400MiB", "--activations=f32")):
        told = plan(model, *SMALL, *args)
        assert told["fits"], told
        with Server(*SMALL, *args, "--no-rpc", model=model) as server:
            stats = server.get("/stats").json
            assert stats["kv_blocks"] == told["kv_blocks"], (model, args, stats["kv_blocks"], told["kv_blocks"])
            assert server.get("/v1/models").json["data"][0]["max_model_len"] == told["max_model_len"], (model, args)


def test_it_is_what_the_server_has():
    harness.for_each(models(("llama_gqa_llama3rope", "gemma3", "mixtral", "deepseek_v2"),
                            ("nemotron_h", "qwen3_next", "gpt_oss")), check_served)


def test_it_is_what_bench_says_of_the_weights():
    for model in models(("qwen3_moe", "deepseek_v3"), ("granitemoehybrid",)):
        bench = json.loads(run("bench", model, "--json", "--reps=1", "--gen=1", "--prompt=4", "--batch=1",
                               "--threads=1").stdout)
        told = plan(model)
        assert [told[k] for k in ("weight_bytes", "step_weight_bytes")] == [bench[k] for k in
                                                                            ("weight_bytes", "step_weight_bytes")]
        assert abs(told["speed"]["prompt_gflop_per_token"] - bench["layer_weights"] * 2 / 1e9) < 1e-6
        states = bench.get("state_bytes", 0)
        assert states == told["contexts"][0]["state_bytes"]
        if states:
            of_states = 2 * states / (2 * states + bench["step_weight_bytes"])
            assert abs(bench["decode"][0]["of_states"] - of_states) < 1e-3
        for row in told["contexts"]:
            assert row["read_bytes_per_token"] >= told["step_weight_bytes"] + 2 * row["state_bytes"]
            assert abs(row["tokens_per_s"] / (10e9 / row["read_bytes_per_token"]) - 1) < 1e-3


def test_what_does_not_fit_is_refused_in_the_servers_words():
    for model in models(("deepseek_v2",), ("falcon_h1",)):
        args = (*SMALL, "--memory-limit=60MiB")
        told = plan(model, *args, status=1)
        refused = run("serve", model, "--port=0", "--no-rpc", *args, status=1).stderr.splitlines()[-1]
        assert not told["fits"] and refused == "weft: " + told["reason"], (refused, told["reason"])


def test_rope_that_would_be_stretched_has_its_length():
    with tempfile.TemporaryDirectory() as folder:
        path = bare(folder, harness.FABLE)
        with open(os.path.join(path, "config.json")) as f:
            config = json.load(f)
        config["rope_scaling"] = {"rope_type": "dynamic", "factor": 4.0}
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(config, f)
        assert plan(path)["max_model_len"] == config["max_position_embeddings"]
        longer = f"--max-model-len={config['max_position_embeddings'] + 1}"
        assert "would be stretched (dynamic)" in run("inspect", "--plan", path, longer, status=1).stderr


def test_the_configuration_alone_will_do():
    """Sizes are those of the folder with its weights, to the byte: nothing here has routers in f32."""
    with tempfile.TemporaryDirectory() as folder:
        for model in models(("llama_mha_linear", "phi3", "gemma2", "mixtral", "deepseek_v2", "deepseek_v3_fp8"),
                            ("nemotron_h_moe", "qwen3_next", "qwen3_5_moe", "gpt_oss", "gpt_neox", "lfm2", "llama_gptq8")):
            args = ("--kv-memory=2MiB", *SMALL)
            whole, alone = plan(model, *args), plan(bare(folder, model), *args)
            assert not whole["shapes_alone"] and alone["shapes_alone"]
            changes = {"shapes_alone", "available_bytes"}
            different = {k for k in whole if whole[k] != alone[k]} - changes
            assert not different, (model, {k: (whole[k], alone[k]) for k in different})
        text = run("inspect", "--plan", os.path.join(folder, "phi3"), *GIVEN).stdout
        assert text.startswith("model           opened for its shapes alone: there are no weights\n"), text
        packed = plan(os.path.join(folder, "phi3"), "--dtype=q8")
        assert set(packed["weights"]) == {"f32", "i8"} or packed["weights"]["i8"] > packed["weights"]["f32"]


def test_windows_latents_and_states_are_counted_truly():
    gemma, mla = plan(os.path.join(ZOO, "gemma3"), "--kv-memory=8MiB", *SMALL), plan(os.path.join(ZOO, "deepseek_v2"))
    most = -(-(gemma["window"] + 64) // 16) + 1
    for row in gemma["contexts"]:
        n = -(-row["tokens"] // 16)
        assert row["kv_bytes"] == n * gemma["kv_block_bytes"] + min(n, most) * gemma["kv_window_block_bytes"]
    with open(os.path.join(ZOO, "deepseek_v2/config.json"), encoding="utf-8") as f:
        c = json.load(f)
    per_token = c["num_hidden_layers"] * (c["kv_lora_rank"] + c["qk_rope_head_dim"]) * 2
    assert mla["kv_block_bytes"] == 16 * per_token  # a latent and a key that turns, once for all heads
    for model in models((), ("nemotron_h",)):
        told = plan(model, *SMALL)
        with open(os.path.join(model, "config.json"), encoding="utf-8") as f:
            c = json.load(f)
        n_attention = c["hybrid_override_pattern"].count("*")
        head_dim = c.get("attention_head_dim") or c.get("head_dim")
        assert told["kv_block_bytes"] == 16 * n_attention * 2 * c["num_key_value_heads"] * head_dim * 2
        inner = c["mamba_num_heads"] * c["mamba_head_dim"]
        least = inner * c["ssm_state_size"] + (inner + 2 * c["n_groups"] * c["ssm_state_size"]) * (c["conv_kernel"] - 1)
        n_mamba = c["hybrid_override_pattern"].count("M")
        assert told["state_bytes"] == (3 + told["state_checkpoints"]) * told["contexts"][0]["state_bytes"]
        assert n_mamba * least * 4 <= told["contexts"][0]["state_bytes"] < n_mamba * (least * 4 + 256)


def test_recurrent_layers_and_chunks_are_told_of():
    for name, line in (("qwen3_next", "recurrent       3 layers, gated DeltaNet: 4 heads of 16, by states of 16; 1 layer has attention"),
                       ("falcon_h1", "recurrent       2 layers, Mamba-2: 6 heads of 16, by states of 16; 2 layers have attention"),
                       ("lfm2", "recurrent       3 layers, short convolutions of 3; 1 layer has attention"),
                       ("llama4", "context         1024, of which a token sees its chunk of 20 in 3 layers")):
        for model in models((), (name,)):
            assert f"\n{line}\n" in run("inspect", model).stdout, run("inspect", model).stdout


def test_the_table_of_models_is_what_it_says_now():
    done = subprocess.run([sys.executable, os.path.join(harness.SOURCE_DIR, "bench/models.py"), "--bin", harness.BIN_DIR],
                          capture_output=True, text=True, timeout=4 * harness.LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    with open(os.path.join(harness.SOURCE_DIR, "docs/models.md"), encoding="utf-8") as f:
        assert done.stdout in f.read(), "docs/models.md has another table than bench/models.py prints"


def test_another_machine_and_mistakes():
    told = plan(harness.FABLE, "--memory=20MiB", "--kv-memory=64MiB", status=1)
    assert not told["fits"] and told["available_bytes"] == 20 << 20 and "the limit is 20 MiB" in told["reason"], told
    told = json.loads(run("inspect", "--plan", harness.FABLE, "--json", "--bandwidth=10").stdout)
    assert told["speed"]["measured"] is False and "prompt_tokens_per_s" not in told["speed"]
    told = json.loads(run("inspect", "--plan", harness.FABLE, "--json", "--threads=1").stdout)
    assert told["speed"]["measured"] and told["speed"]["gb_per_s"] > 0 and told["speed"]["prompt_tokens_per_s"] > 0
    pair = plan(harness.FABLE, "--workers=2", "--layout=tp", "--kv-memory=8MiB")
    one = plan(harness.FABLE, "--kv-memory=8MiB")
    assert pair["ranks"] == 2 and pair["weight_copies"] == 2
    assert one["weight_bytes"] < 2 * pair["weight_bytes"] < 1.1 * one["weight_bytes"]
    encoder = plan(os.path.join(harness.SOURCE_DIR, "tests/data/embed/bert-uncased-mean"))
    assert encoder["fits"] and all("tokens_per_s" not in row for row in encoder["contexts"])
    text = run("inspect", "--plan", harness.FABLE, "--kv-memory=8MiB", *GIVEN).stdout
    assert re.search(r"\nIt fits: .*; the cache holds \d+ of 64 sequences at full length at a time\.\n$", text), text
    text = run("inspect", "--plan", harness.FABLE, "--kv-memory=1MiB", *GIVEN).stdout
    assert re.search(r" 64 sequences of up to \d+ tokens \(1024 are asked for\), 512 tokens in a step\n", text), text
    with tempfile.TemporaryDirectory() as folder:
        for name, config, words in (
                ("none", None, "is not a model folder: no config.json"),
                ("strange", {"architectures": ["NobodyForCausalLM"], "model_type": "nobody"}, "is not supported"),
                ("encoder", None, "only the sizes of models that generate are known")):
            path = os.path.join(folder, name)
            os.mkdir(path)
            if name == "encoder":
                config = {"architectures": ["BertModel"], "model_type": "bert", "vocab_size": 100, "hidden_size": 64,
                          "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128, "hidden_act": "gelu",
                          "max_position_embeddings": 64, "type_vocab_size": 2, "layer_norm_eps": 1e-12}
            if config:
                with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
                    json.dump(config, f)
            error = run("inspect", "--plan", path, status=1).stderr
            assert words in error and error.count("\n") == 1, error
    assert "unknown flag --kv-memory" in run("inspect", harness.FABLE, "--kv-memory=1MiB", status=2).stderr
    assert "Will it fit" in run("help", "plan").stdout


if __name__ == "__main__":
    harness.main()
