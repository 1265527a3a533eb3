"""This year's families (../shared/zoo2), through HTTP and nothing else, against float64 references: as test_zoo does for
those of the years before. GGUF files of some stand beside their folders. Each kind of layer that is new answers many requests
at once, too, with the bits of its answers to one alone.
"""

import concurrent.futures
import json
import os
import signal
import subprocess
import tempfile

import harness
import test_tp as tp
import test_zoo as zoo

ZOO = os.path.join(zoo.SHARED, "zoo2")
FOLDERS = ["afmoe", "cohere2", "deepseek_v32", "dots1", "ernie4_5_moe", "exaone4", "falcon_h1", "gemma4", "gemma4_moe", "glm4",
           "glm4_moe", "gpt_neox", "gpt_oss", "gpt_oss_bf16", "granitemoehybrid", "hunyuan_v1_dense", "hunyuan_v1_moe", "lfm2", "lfm2_moe", "llama4",
           "minimax_m2", "ministral3", "nemotron_h", "nemotron_h_moe", "qwen3_5", "qwen3_5_moe", "qwen3_next", "seed_oss",
           "stablelm", "starcoder2"]
FILES = ["gemma4", "gpt_oss", "nemotron_h_moe", "qwen3_5", "qwen3_next"]  # Llama 4's do not say all: golden_logits
HYBRIDS = ["falcon_h1", "lfm2", "nemotron_h_moe", "qwen3_next"]
# windows, parallel halves, an indexer, layers that are not alike, sinks and chunks
KINDS = [*HYBRIDS, "afmoe", "cohere2", "deepseek_v32", "gemma4", "gemma4_moe", "gpt_oss", "llama4"]


def need():
    if not os.path.isdir(ZOO):
        raise harness.Skip("no zoo2 in WEFT_SHARED_DIR")


def test_every_folder_yields_the_golden_logits():
    need()

    def check(name):
        folder = os.path.join(ZOO, name)
        with zoo.serve(folder, folder) as server:
            zoo.check_exact(name, server, zoo.prompts_of(zoo.read_goldens(folder)))
    harness.for_each(FOLDERS, check)


def test_gguf_files_yield_the_golden_logits_of_their_folders():
    need()

    def check(name):
        folder = os.path.join(ZOO, name)
        with zoo.serve(os.path.join(ZOO, "gguf", name + ".gguf"), folder) as server:
            zoo.check_exact(name + ".gguf", server, zoo.prompts_of(zoo.read_goldens(folder)))
    harness.for_each(FILES, check)


def answer(server, ids):
    """Log-probabilities of the whole vocabulary, of a prompt and what follows."""
    reply = server.complete(prompt=ids, echo=True, max_tokens=24, temperature=0, ignore_eos=True, logprobs=server.n_vocab,
                            return_tokens_as_token_ids=True)
    return reply["choices"][0]["logprobs"], reply["system_fingerprint"]


def test_packed_files_of_folders_and_gguf_files_answer_with_the_same_bits():
    need()

    def check(name):
        model = os.path.join(ZOO, name)
        folder = os.path.join(ZOO, os.path.basename(name).removesuffix(".gguf"))
        ids = zoo.prompts_of(zoo.read_goldens(folder))[2][0]
        with tempfile.TemporaryDirectory() as out:
            packed = os.path.join(out, "packed")
            done = subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "pack", model, packed], capture_output=True,
                                  text=True, timeout=harness.LIMIT_S * 4, check=False)
            assert done.returncode == 0, (name, done.stderr)
            with zoo.serve(model, folder) as server:
                want = answer(server, ids)
            with zoo.serve(packed, folder) as server:
                assert answer(server, ids) == want, name
    files = [f"gguf/{name}" for name in sorted(os.listdir(os.path.join(ZOO, "gguf")))]
    assert files
    harness.for_each([*FOLDERS, "deepseek_v32", *files], check)


def test_each_kind_of_layer_answers_in_company_as_it_does_alone():
    need()

    def check(name):
        folder = os.path.join(ZOO, name)
        prompts = [ids for ids, *_ in zoo.prompts_of(zoo.read_goldens(folder))]
        body = {"max_tokens": 24, "temperature": 0, "ignore_eos": True, "logprobs": 5, "return_tokens_as_token_ids": True}
        with zoo.serve(folder, folder, "--max-num-batched-tokens", "64") as server:
            alone = [server.complete(prompt=ids, **body)["choices"][0] for ids in prompts]
            again = [server.complete(prompt=ids, **body)["choices"][0] for ids in prompts]
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                together = list(pool.map(lambda ids: server.complete(prompt=ids, **body)["choices"][0], prompts * 3))
            ids = {"prompt": prompts[0], "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
            choices = server.complete(n=3, **ids)["choices"]
            choices += server.complete(use_beam_search=True, best_of=1, **ids)["choices"]
        assert [c["token_ids"] for c in choices] == [choices[0]["token_ids"]] * 4, name
        assert [f"token_id:{t}" for t in choices[0]["token_ids"]] == alone[0]["logprobs"]["tokens"][:8], name
        for choice, same in zip(alone, again, strict=True):
            assert choice == same, name
        for i, choice in enumerate(together):
            assert choice == alone[i % len(alone)], name
    harness.for_each(KINDS, check)


def test_choices_and_beams_of_hybrids_share_states():
    """The choices are those of a server with one place, where each is computed alone, and the beams those of one with too
    few blocks for all; where there is room the prompt is computed once."""
    need()
    ask = {"prompt": [5, *range(30, 75)], "max_tokens": 40, "ignore_eos": True, "return_token_ids": True}
    choices = {"n": 4, "seed": 11, "temperature": 1.5, "logprobs": 1, **ask}
    beams = {"n": 3, "best_of": 8, "use_beam_search": True, "temperature": 0, **ask}

    def check(name):
        folder = os.path.join(ZOO, name)
        with zoo.serve(folder, folder, "--max-num-seqs", "1") as server:
            wanted = [server.complete(**choices)["choices"]]
        with zoo.serve(folder, folder, "--kv-memory", f"{8 * block_bytes(folder)}", "--max-model-len", "96") as server:
            wanted.append(server.complete(**beams)["choices"])
            harness.wait_until("a beam gives way", lambda: server.metric("weft_num_preemptions_total") > 0)
        with zoo.serve(folder, folder) as server:
            assert [server.complete(**body)["choices"] for body in (choices, beams)] == wanted, name
            n_again = server.metric("weft_recomputed_tokens_total")
            # The last token of the prompt for each choice beyond the first, and for each beam its last one or two.
            assert n_again < 4 + 2 * 8 * 40, (name, n_again)
        assert len({tuple(c["token_ids"]) for c in wanted[0]}) > 1, name
    harness.for_each(["nemotron_h", "qwen3_5", "qwen3_next"], check)


def test_preemption_and_deaths_change_nothing():
    """A cache for two of them at a time; then the worker, and the scheduler, are killed while all are computed."""
    need()
    body = {"max_tokens": 300, "temperature": 0, "ignore_eos": True, "return_tokens_as_token_ids": True, "logprobs": 1}
    for name in ("deepseek_v32", "gemma4", "gpt_oss", "llama4", "nemotron_h", "qwen3_5"):
        folder = os.path.join(ZOO, name)
        prompts = [[7 + i, *range(20, 60 + i)] for i in range(6)]
        with zoo.serve(folder, folder) as server:
            wanted = [server.complete(prompt=ids, **body)["choices"][0] for ids in prompts]
        blocks = 2 * (400 // 16 + 2)
        with zoo.serve(folder, folder, "--kv-memory", f"{blocks * block_bytes(folder)}") as server, \
                concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            waiting = [pool.submit(server.complete, prompt=ids, **body) for ids in prompts]
            harness.wait_until("tokens come", lambda: server.metric("weft_generation_tokens_total") > 50)
            server.kill("worker")
            harness.wait_until("somebody gives way", lambda: server.metric("weft_num_preemptions_total") > 0)
            server.kill("scheduler")
            for one, choice in zip(waiting, wanted, strict=True):
                assert one.result()["choices"][0] == choice, name
            server.wait_idle()


def test_two_workers_divide_every_family():
    need()
    harness.for_each(FOLDERS, lambda name: tp.check_equal(os.path.join(ZOO, name), (2,)))


def test_the_death_of_either_of_two_workers_changes_nothing_for_hybrids():
    need()
    body = {"max_tokens": 200, "temperature": 0, "ignore_eos": True, "return_tokens_as_token_ids": True, "logprobs": 1}
    for name in ("granitemoehybrid", "qwen3_next"):  # one gathers rows before a norm
        folder = os.path.join(ZOO, name)
        prompts = [[9 + i, *range(30, 60 + i)] for i in range(4)]
        with zoo.serve(folder, folder) as server:
            wanted = [server.complete(prompt=ids, **body)["choices"][0] for ids in prompts]
        with zoo.serve(folder, folder, *tp.layout(2)) as server, \
                concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            for rank in range(2):
                waiting = [pool.submit(server.complete, prompt=ids, **body) for ids in prompts]
                n_tokens = server.metric("weft_generation_tokens_total")
                harness.wait_until("tokens come", lambda n=n_tokens: server.metric("weft_generation_tokens_total") > n + 40)
                os.kill(server.workers()[rank], signal.SIGKILL)
                for one, choice in zip(waiting, wanted, strict=True):
                    assert one.result()["choices"][0] == choice, (name, rank)
            server.wait_idle()


def block_bytes(folder):
    """Keys and values in f32 of 16 tokens, in the layers that have attention."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    if "index_head_dim" in config:  # one latent, one key that turns and an index key
        dim = config["kv_lora_rank"] + config["qk_rope_head_dim"] + config["index_head_dim"]
        return 16 * config["num_hidden_layers"] * dim * 4
    pattern = config.get("hybrid_override_pattern")
    types = config.get("layer_types", ["full_attention"] * config["num_hidden_layers"])
    kept = [kind for kind in types if kind.endswith("_attention") and kind != "linear_attention"]
    kept = ["*"] * pattern.count("*") if pattern else kept[:len(kept) - config.get("num_kv_shared_layers", 0)]
    dims = {"full_attention": config.get("global_head_dim", config["head_dim"])}
    return 2 * 16 * sum(dims.get(kind, config["head_dim"]) for kind in kept) * config["num_key_value_heads"] * 4


if __name__ == "__main__":
    harness.main()
