#!/usr/bin/env python3
"""Small models of GTE's architecture (NewModel) with random weights, and what they must compute.

usage: python3 make_gte.py tests/data/embed tests/data/zoo/qwen2
(tests/data/embed/gte-cls, gte-rerank and qwen2-both were made so)

`gte-cls` is built as gte-base-en-v1.5: WordPiece, no token types, RoPE stretched by NTK. `gte-rerank` is built as
gte-multilingual-reranker-base: Unigram, one token type, a pooler and a head, names that begin with "new.". Tokenizers,
texts and their token ids are those of bert-uncased-mean and xlmr-rerank beside them. All is computed in float64 of
weights that were rounded to float16. Of `qwen2-both` there are goldens alone: the zoo's Qwen2 with "is_causal": false.
"""
import json
import math
import os
import shutil
import struct
import sys

import numpy as np

HIDDEN, LAYERS, HEADS, FFN = 48, 2, 3, 80
SHAPE = {
    "model_type": "new", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": FFN, "hidden_act": "gelu", "layer_norm_type": "layer_norm", "layer_norm_eps": 1e-12,
    "position_embedding_type": "rope", "pack_qkv": True, "unpad_inputs": False, "logn_attention_clip1": False,
    "logn_attention_scale": False, "use_memory_efficient_attention": False, "torch_dtype": "float16"}
MODELS = {
    "gte-cls": ("bert-uncased-mean", {
        "architectures": ["NewModel", "NewForTokenClassification"], "vocab_size": 700, "pad_token_id": 0,
        "max_position_embeddings": 160, "type_vocab_size": 0, "rope_theta": 50000,
        "rope_scaling": {"factor": 8.0, "type": "ntk"}}),
    "gte-rerank": ("xlmr-rerank", {
        "architectures": ["NewForSequenceClassification"], "vocab_size": 400, "pad_token_id": 1,
        "max_position_embeddings": 160, "type_vocab_size": 1, "rope_theta": 20000, "rope_scaling": None,
        "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}),
}
erf = np.vectorize(math.erf)


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def make_weights(seed, config, prefix):
    rng = np.random.default_rng(seed)
    shapes = {}

    def matrix(name, n, k, gain=1.0, bias=0.0):
        shapes[f"{name}.weight"] = gain / math.sqrt(k) * rng.standard_normal((n, k))
        if bias:
            shapes[f"{name}.bias"] = bias * rng.standard_normal(n)

    def norm(name):
        shapes[f"{name}.weight"] = 1 + 0.2 * rng.standard_normal(HIDDEN)
        shapes[f"{name}.bias"] = 0.2 * rng.standard_normal(HIDDEN)

    matrix(f"{prefix}embeddings.word_embeddings", config["vocab_size"], HIDDEN, 5.0)
    if config["type_vocab_size"]:
        matrix(f"{prefix}embeddings.token_type_embeddings", config["type_vocab_size"], HIDDEN, 3.0)
    norm(f"{prefix}embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"{prefix}encoder.layer.{layer}."
        matrix(at + "attention.qkv_proj", 3 * HIDDEN, HIDDEN, 1.4, 0.3)
        matrix(at + "attention.o_proj", HIDDEN, HIDDEN, 1.2, 0.2)
        norm(at + "attn_ln")
        matrix(at + "mlp.up_gate_proj", 2 * FFN, HIDDEN, 1.2)
        matrix(at + "mlp.down_proj", HIDDEN, FFN, 1.4, 0.2)
        norm(at + "mlp_ln")
    if "NewForSequenceClassification" in config["architectures"]:
        matrix(f"{prefix}pooler.dense", HIDDEN, HIDDEN, 1.0, 0.2)
        matrix("classifier", 1, HIDDEN, 3.0, 0.5)
    else:  # what gte-multilingual-base has for sparse vectors
        matrix("classifier", 1, HIDDEN, 1.0, 0.5)
    return {name: w.astype(np.float16) for name, w in shapes.items()}


class Model:
    def __init__(self, config, weights, prefix):
        self.config = config
        self.w = {name.removeprefix(prefix): w.astype(np.float64) for name, w in weights.items()}

    def linear(self, name, x):
        return x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0)

    def norm(self, name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["layer_norm_eps"])
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def turned(self, x):
        """[tokens, heads, dim]: pairs of element i and i + dim/2 turn by the position."""
        dim, theta, slower = x.shape[2], self.config["rope_theta"], 1.0
        if self.config["rope_scaling"]:
            factor = self.config["rope_scaling"]["factor"]
            theta, slower = theta * factor, factor ** (2 / dim)
        speeds = theta ** (-np.arange(0, dim, 2) / dim) / slower
        angles = (np.arange(len(x))[:, None] * speeds)[:, None, :]
        a, b = x[..., :dim // 2], x[..., dim // 2:]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    def attention(self, at, x):
        n = len(x)
        q, k, v = self.linear(at + "attention.qkv_proj", x).reshape(n, 3, HEADS, HIDDEN // HEADS).swapaxes(0, 1)
        scores = np.einsum("ihd,jhd->hij", self.turned(q), self.turned(k)) / math.sqrt(HIDDEN // HEADS)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        return self.linear(at + "attention.o_proj", np.einsum("hij,jhd->ihd", shares, v).reshape(n, HIDDEN))

    def hidden(self, ids):
        x = self.w["embeddings.word_embeddings.weight"][ids]
        if self.config["type_vocab_size"]:
            x = x + self.w["embeddings.token_type_embeddings.weight"][0]
        x = self.norm("embeddings.LayerNorm", x)
        for layer in range(LAYERS):
            at = f"encoder.layer.{layer}."
            x = self.norm(at + "attn_ln", x + self.attention(at, x))
            up, gate = np.split(self.linear(at + "mlp.up_gate_proj", x), 2, -1)
            x = self.norm(at + "mlp_ln", x + self.linear(at + "mlp.down_proj", up * gelu(gate)))
        return x

    def logit(self, ids):
        pooled = np.tanh(self.linear("pooler.dense", self.hidden(ids)[0]))
        return float(self.linear("classifier", pooled)[0])


def save(path, arrays):
    names = {np.dtype(np.float16): "F16", np.dtype(np.float32): "F32", np.dtype(np.int32): "I32"}
    header, data = {}, b""
    for name, array in arrays.items():
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += np.ascontiguousarray(array).tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def dump(folder, name, value):
    with open(f"{folder}/{name}", "w") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)
        f.write("\n")


def unit(vector):
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def make_arrays(model, texts):
    arrays = {}
    for i, text in enumerate(texts):
        x = model.hidden(text["input_ids"])
        at = f"text_{i}."
        arrays[at + "input_ids"] = np.array(text["input_ids"], np.int32)
        arrays[at + "hidden"] = x[[0, -1]].astype(np.float32)
        arrays[at + "embedding"] = arrays[at + "unit_cls"] = unit(x[0])
        arrays[at + "unit_mean"], arrays[at + "unit_lasttoken"] = unit(x.mean(0)), unit(x[-1])
    return arrays


def embed_goldens(folder, model, like):
    texts = [{**text, "norm": 1.0} for text in like["texts"][:15]]
    save(f"{folder}/goldens.safetensors", make_arrays(model, texts))
    dump(folder, "goldens.json", {"kind": "embedding", "pooling": "cls", "normalize": True, "texts": texts})


def rerank_goldens(folder, model, like):
    for query in like["queries"]:
        for document in query["documents"]:
            document["logit"] = model.logit(document["input_ids"])
            document["score"] = 1 / (1 + math.exp(-document["logit"]))
        scores = [-document["score"] for document in query["documents"]]
        query["order"] = sorted(range(len(scores)), key=scores.__getitem__)
    dump(folder, "goldens.json", like)


def write_pooling(folder):
    kinds = ["Transformer", "Pooling", "Normalize"]
    paths = ["", "1_Pooling", "2_Normalize"]
    os.makedirs(f"{folder}/1_Pooling", exist_ok=True)
    dump(folder, "modules.json", [{"idx": i, "name": str(i), "path": paths[i],
                                   "type": f"sentence_transformers.models.{kinds[i]}"} for i in range(3)])
    dump(folder, "1_Pooling/config.json", {"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": True,
                                           "pooling_mode_mean_tokens": False})
    dump(folder, "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": False})


def make(root, seed, name, source, config):
    folder = f"{root}/{name}"
    os.makedirs(folder, exist_ok=True)
    is_reranker = "NewForSequenceClassification" in config["architectures"]
    prefix = "new." if is_reranker else ""
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(f"{root}/{source}/{file}", f"{folder}/{file}")
    config = {**SHAPE, **config}
    dump(folder, "config.json", config)
    weights = make_weights(seed, config, prefix)
    save(f"{folder}/model.safetensors", weights)
    model = Model(config, weights, prefix)
    with open(f"{root}/{source}/goldens.json") as f:
        like = json.load(f)
    if is_reranker:
        rerank_goldens(folder, model, like)
    else:
        embed_goldens(folder, model, like)
        write_pooling(folder)


class Qwen2:
    """A decoder whose tokens all see each other."""

    def __init__(self, folder):
        with open(f"{folder}/config.json") as f:
            self.config = json.load(f)
        self.w = {}
        with open(f"{folder}/model.safetensors", "rb") as f:
            header = json.loads(f.read(*struct.unpack("<Q", f.read(8))))
            data = f.read()
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            assert tensor["dtype"] == "BF16"
            bits = np.frombuffer(data[slice(*tensor["data_offsets"])], np.uint16).astype(np.uint32) << 16
            self.w[name.removeprefix("model.")] = bits.view(np.float32).reshape(tensor["shape"]).astype(np.float64)

    def norm(self, name, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * self.w[name + ".weight"]

    def heads(self, at, name, x):
        y = x @ self.w[f"{at}{name}_proj.weight"].T + self.w[f"{at}{name}_proj.bias"]
        return y.reshape(len(x), -1, self.config["hidden_size"] // self.config["num_attention_heads"])

    def turned(self, x):
        dim = x.shape[2]
        angles = (np.arange(len(x))[:, None] * self.config["rope_theta"] ** (-np.arange(0, dim, 2) / dim))[:, None, :]
        a, b = x[..., :dim // 2], x[..., dim // 2:]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    def attention(self, at, x):
        q, k, v = (self.heads(at, name, x) for name in "qkv")
        q, k, shared = self.turned(q), self.turned(k), q.shape[1] // k.shape[1]
        k, v = np.repeat(k, shared, 1), np.repeat(v, shared, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[2])
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        return np.einsum("hij,jhd->ihd", shares, v).reshape(len(x), -1) @ self.w[at + "o_proj.weight"].T

    def hidden(self, ids):
        x = self.w["embed_tokens.weight"][ids]
        for layer in range(self.config["num_hidden_layers"]):
            at = f"layers.{layer}."
            x = x + self.attention(at + "self_attn.", self.norm(at + "input_layernorm", x))
            y = self.norm(at + "post_attention_layernorm", x)
            gate, up = (y @ self.w[f"{at}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.w[at + "mlp.down_proj.weight"].T
        return self.norm("norm", x)


def decoder_goldens(folder, source):
    model, rng, texts = Qwen2(source), np.random.default_rng(703), []
    for n in (1, 2, 3, 5, 8, 13, 17, 21, 34, 40, 55, 64):
        texts.append({"input_ids": [int(i) for i in rng.integers(0, model.config["vocab_size"], n)]})
    os.makedirs(folder, exist_ok=True)
    save(f"{folder}/goldens.safetensors", make_arrays(model, texts))


decoder_goldens(f"{sys.argv[1]}/qwen2-both", sys.argv[2])
for number, (name, (source, config)) in enumerate(MODELS.items()):
    make(sys.argv[1], 701 + number, name, source, config)
