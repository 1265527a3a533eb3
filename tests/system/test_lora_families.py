"""LoRA adapters of this year's families (../shared/zoo2): a model with an adapter answers as the model whose weights hold
it, in the exact mode. Each adapter changes all modules of a family that adapters may change, by the names that the
family's folders have for them.
"""

import array
import json
import os
import random
import re
import shutil
import struct
import tempfile

import harness
import test_zoo as zoo

ZOO = os.path.join(zoo.SHARED, "zoo2")
ATTENTION, FFN = r"self_attn\.[qkvo]_proj", r"mlp\.(gate|up|down)_proj"
EXPERTS, SHARED = r"mlp\.experts\.\d+\.(gate|up|down)_proj", r"mlp\.shared_experts\.(gate|up|down)_proj"
NEMOTRON = [r"mixer\.[qkvo]_proj", r"mixer\.out_proj"]
MODULES = {
    "afmoe": [ATTENTION, r"self_attn\.gate_proj", FFN, EXPERTS, SHARED],
    "cohere2": [ATTENTION, FFN],
    "deepseek_v32": [r"self_attn\.(q_a_proj|q_b_proj|kv_a_proj_with_mqa|o_proj)", FFN, EXPERTS, SHARED],
    "dots1": [ATTENTION, FFN, EXPERTS, SHARED],
    "ernie4_5_moe": [ATTENTION, FFN, EXPERTS, SHARED],
    "exaone4": [ATTENTION, FFN],
    "falcon_h1": [ATTENTION, r"feed_forward\.(gate|up|down)_proj", r"mamba\.out_proj"],
    "gemma4": [ATTENTION, FFN],
    "gemma4_moe": [ATTENTION, FFN],
    "glm4": [ATTENTION, r"mlp\.(gate_up|down)_proj"],
    "glm4_moe": [ATTENTION, FFN, EXPERTS, SHARED],
    "gpt_neox": [r"attention\.query_key_value", r"attention\.dense", r"mlp\.dense_h_to_4h", r"mlp\.dense_4h_to_h"],
    "gpt_oss": [ATTENTION],
    "granitemoehybrid": [ATTENTION, r"shared_mlp\.(input|output)_linear", r"mamba\.out_proj"],
    "hunyuan_v1_dense": [ATTENTION, FFN],
    "hunyuan_v1_moe": [ATTENTION, EXPERTS, r"mlp\.shared_mlp\.(gate|up|down)_proj"],
    "lfm2": [r"self_attn\.[qkv]_proj", r"self_attn\.out_proj", r"feed_forward\.w[123]", r"conv\.out_proj"],
    "lfm2_moe": [r"self_attn\.[qkv]_proj", r"self_attn\.out_proj", r"feed_forward\.w[123]", r"conv\.out_proj",
                 r"feed_forward\.experts\.\d+\.w[123]"],
    "llama4": [ATTENTION, r"feed_forward\.(gate|up|down)_proj", r"feed_forward\.shared_expert\.(gate|up|down)_proj"],
    "minimax_m2": [ATTENTION, r"block_sparse_moe\.experts\.\d+\.w[123]"],
    "ministral3": [ATTENTION, FFN],
    "nemotron_h": [*NEMOTRON, r"mixer\.(up|down)_proj"],
    "nemotron_h_moe": [*NEMOTRON, r"mixer\.experts\.\d+\.(up|down)_proj", r"mixer\.shared_experts\.(up|down)_proj"],
    "qwen3_5": [ATTENTION, FFN, r"linear_attn\.out_proj"],
    "qwen3_5_moe": [ATTENTION, r"mlp\.shared_expert\.(gate|up|down)_proj", r"linear_attn\.out_proj"],
    "qwen3_next": [ATTENTION, EXPERTS, r"mlp\.shared_expert\.(gate|up|down)_proj", r"linear_attn\.out_proj"],
    "seed_oss": [ATTENTION, FFN],
    "stablelm": [ATTENTION, FFN],
    "starcoder2": [ATTENTION, r"mlp\.c_(fc|proj)"],
}
FILES = ["gemma4", "gpt_oss", "nemotron_h_moe", "qwen3_next"]  # GGUF files in zoo2
# What must be refused by name: (folder, module, what is said).
REFUSED = [("qwen3_5", "model.layers.0.linear_attn.in_proj_qkv", "not supported"),
           ("qwen3_5", "model.layers.0.self_attn.q_proj", "the model has no module 'self_attn.q_proj'"),
           ("nemotron_h", "backbone.layers.0.mixer.in_proj", "not supported"),
           ("nemotron_h", "backbone.layers.0.mixer.up_proj", "the model has no module 'mixer.up_proj'"),
           ("llama4", "model.layers.1.feed_forward.router", "not supported"),
           ("gemma4", "model.layers.5.self_attn.k_proj", "the model has no module 'self_attn.k_proj'"),
           ("deepseek_v32", "model.layers.0.self_attn.indexer.wk", "not supported"),
           ("starcoder2", "model.layers.0.mlp.up_proj", "the model has no module 'mlp.up_proj'")]
RANK, SCALE = 3, 0.5


def read_tensors(path):
    """{name: (dtype, shape, bytes)}"""
    with open(path, "rb") as f:
        data = f.read()
    n, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items()}


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def floats(tensor):
    dtype, _, data = tensor
    if dtype == "BF16":
        halves = array.array("H", data)
        data = array.array("I", [half << 16 for half in halves]).tobytes()
    assert dtype in ("BF16", "F32"), dtype
    return array.array("f", data)


def layer_of(name):
    match = re.search(r"^(?:model|backbone|gpt_neox)\.layers\.(\d+)\.", name)
    return int(match[1]) if match else None


def write_config(folder, modules):
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": RANK * SCALE,
                   "target_modules": sorted({module.rsplit(".", 1)[1] for module in modules})}, f)


def make(name, folder):
    """An adapter in FOLDER/a, and in FOLDER/merged the model that holds it. Returns how many modules it changes."""
    source, rng = os.path.join(ZOO, name), random.Random(name)
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        n_layers = json.load(f)["num_hidden_layers"]
    tensors, adapter, modules, found = read_tensors(os.path.join(source, "model.safetensors")), {}, [], set()
    for tensor_name, tensor in list(tensors.items()):
        layer = layer_of(tensor_name)
        fitting = [m for m in MODULES[name] if re.search(r"\.\d+\." + m + r"\.weight$", tensor_name)]
        if layer is None or layer >= n_layers or not fitting:
            continue
        module, (_, (rows, columns), _) = tensor_name.removesuffix(".weight"), tensor
        found.update(fitting)
        modules.append(module)
        a = [array.array("f", [rng.gauss(0, columns ** -0.5) for _ in range(columns)]) for _ in range(RANK)]
        b = [array.array("f", [rng.gauss(0, 1) for _ in range(RANK)]) for _ in range(rows)]
        weight = floats(tensor)
        for i in range(rows):
            for r in range(RANK):
                factor, of_a = SCALE * b[i][r], a[r]
                for k in range(columns):
                    weight[i * columns + k] += factor * of_a[k]
        tensors[tensor_name] = ("F32", [rows, columns], weight.tobytes())
        key = f"base_model.model.{module}.lora_"
        adapter[key + "A.weight"] = ("F32", [RANK, columns], b"".join(row.tobytes() for row in a))
        adapter[key + "B.weight"] = ("F32", [rows, RANK], b"".join(row.tobytes() for row in b))
    assert found == set(MODULES[name]), (name, set(MODULES[name]) - found)
    os.mkdir(os.path.join(folder, "a"))
    write_tensors(os.path.join(folder, "a", "adapter_model.safetensors"), adapter)
    write_config(os.path.join(folder, "a"), modules)
    shutil.copytree(source, os.path.join(folder, "merged"), ignore=shutil.ignore_patterns("*.safetensors"))
    write_tensors(os.path.join(folder, "merged", "model.safetensors"), tensors)
    return len(modules)


def rows_of(server, ids, model):
    """Log-probabilities of the whole vocabulary at each position of a prompt but the first."""
    reply = server.complete(prompt=ids, model=model, echo=True, max_tokens=1, temperature=0, ignore_eos=True,
                            logprobs=server.n_vocab, return_tokens_as_token_ids=True)
    tops = reply["choices"][0]["logprobs"]["top_logprobs"][1:]
    return [[top[f"token_id:{i}"] for i in range(server.n_vocab)] for top in tops]


def furthest(rows, others):
    return max(abs(x - y) for row, other in zip(rows, others, strict=True) for x, y in zip(row, other, strict=True))


def test_an_adapter_is_as_if_the_weights_held_it():
    if not os.path.isdir(ZOO):
        raise harness.Skip("no zoo2 in WEFT_SHARED_DIR")

    def check(name):
        source = os.path.join(ZOO, name)
        ids = zoo.prompts_of(zoo.read_goldens(source))[2][0]
        with tempfile.TemporaryDirectory() as folder:
            n = make(name, folder)
            merged = os.path.join(folder, "merged")
            with zoo.serve(source, source, "--lora", f"a={folder}/a", "--served-model-name", "plain") as server:
                plain, rows = rows_of(server, ids, "plain"), rows_of(server, ids, "a")
            with zoo.serve(merged, merged, "--served-model-name", "merged") as server:
                want = rows_of(server, ids, "merged")
            if name in FILES:
                with zoo.serve(os.path.join(ZOO, "gguf", name + ".gguf"), source, "--lora", f"a={folder}/a") as server:
                    assert furthest(rows_of(server, ids, "a"), want) < 2 * zoo.LOGIT_TOLERANCE, name
        off = furthest(rows, want)
        print(f"    {name}: {n} modules, {off:.1e} from the model that holds them, {furthest(plain, want):.1f} from the "
              f"one without", flush=True)
        assert off < 2 * zoo.LOGIT_TOLERANCE and furthest(plain, want) > 0.5
    harness.for_each(zoo.some(sorted(MODULES), ["gpt_neox", "qwen3_5"]), check)


def test_heads_in_another_order_are_refused():
    if not os.path.isdir(ZOO):
        raise harness.Skip("no zoo2 in WEFT_SHARED_DIR")
    source = os.path.join(ZOO, "qwen3_5")
    with tempfile.TemporaryDirectory() as folder:
        make("qwen3_5", folder)
        with zoo.serve(os.path.join(ZOO, "gguf", "qwen3_5.gguf"), source) as server:
            reply = server.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": f"{folder}/a"})
            assert reply.status == 400 and "another order" in reply.text and "out_proj" in reply.text, reply.text


def write_gguf(path, arch, alpha, tensors):
    """An adapter as llama.cpp's converter writes it: {name: (rows, columns, floats)}."""
    def text(t):
        return struct.pack("<Q", len(t)) + t.encode()

    keys = [(key, struct.pack("<I", 8) + text(value)) for key, value in
            (("general.type", "adapter"), ("adapter.type", "lora"), ("general.architecture", arch))]
    keys.append(("adapter.lora.alpha", struct.pack("<If", 6, alpha)))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(text(k) + v for k, v in keys)
    data = b""
    for name, (rows, columns, values) in tensors.items():
        head += text(name) + struct.pack("<IQQIQ", 2, columns, rows, 0, len(data))
        data += array.array("f", values).tobytes()
        data += bytes(-len(data) % 32)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def test_another_name_of_the_family_is_taken_and_other_weights_are_not():
    if not os.path.isdir(ZOO):
        raise harness.Skip("no zoo2 in WEFT_SHARED_DIR")
    rng, layer, rows, columns = random.Random(3), 3, 48, 48  # v_proj of the layer with attention
    a, b = ([rng.gauss(0, 1) for _ in range(n * RANK)] for n in (columns, rows))
    with tempfile.TemporaryDirectory() as folder:
        name, key = f"{folder}/a.gguf", f"base_model.model.backbone.layers.{layer}.mixer.v_proj"
        write_gguf(name, "nemotron_h_moe", RANK * SCALE, {f"blk.{layer}.attn_v.weight.lora_a": (RANK, columns, a),
                                                          f"blk.{layer}.attn_v.weight.lora_b": (rows, RANK, b)})
        os.mkdir(f"{folder}/a")
        write_tensors(f"{folder}/a/adapter_model.safetensors", {
            f"{key}.lora_A.weight": ("F32", [RANK, columns], array.array("f", a).tobytes()),
            f"{key}.lora_B.weight": ("F32", [rows, RANK], array.array("f", b).tobytes())})
        write_config(f"{folder}/a", [key])
        source = os.path.join(ZOO, "nemotron_h_moe")
        ids = zoo.prompts_of(zoo.read_goldens(source))[1][0]
        with zoo.serve(source, source, "--lora", f"f={folder}/a", "--lora", f"g={name}", "--served-model-name", "m") as server:
            assert rows_of(server, ids, "f") == rows_of(server, ids, "g") != rows_of(server, ids, "m")
        source = os.path.join(ZOO, "falcon_h1")
        with zoo.serve(source, source) as server:
            reply = server.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": name})
            assert reply.status == 400 and "factors in GGUF files" in reply.text, reply.text


def test_modules_that_no_adapter_may_change_are_refused_by_name():
    if not os.path.isdir(ZOO):
        raise harness.Skip("no zoo2 in WEFT_SHARED_DIR")

    def check(case):
        name, module, said = case
        with tempfile.TemporaryDirectory() as folder, zoo.serve(os.path.join(ZOO, name), os.path.join(ZOO, name)) as server:
            tensors = {f"base_model.model.{module}.lora_{part}.weight": ("F32", [1, 1], bytes(4)) for part in "AB"}
            write_tensors(os.path.join(folder, "adapter_model.safetensors"), tensors)
            write_config(folder, [module])
            reply = server.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": folder})
            assert reply.status == 400 and module in reply.text and said in reply.text, (case, reply.text)
    harness.for_each(REFUSED, check)


if __name__ == "__main__":
    harness.main()
