#!/usr/bin/env python3
"""Small Llama folders in the weight formats of Hugging Face checkpoints, with golden logits.

usage: python3 make_format_goldens.py OUT_DIR      (numpy alone; tests/data/formats was made so)

Weights are random and quantised here to nearest, laid out as by the tools; the goldens are a float64 forward pass
over the values of the stored numbers.
"""
import json
import os
import struct
import sys

import numpy as np

VOCAB, LENGTHS, N_GREEDY = 128, (1, 5, 17, 40), 8


# ------------------------------------------------------------------------------- safetensors

def bf16(x):
    """Nearest, ties to even, as the bits of a float."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def of_bf16(halves):
    return (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def save(path, tensors):
    """{name: (dtype, array)}"""
    header, blobs, at = {}, [], 0
    for name in sorted(tensors):
        dtype, array = tensors[name]
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---------------------------------------------------------------------------- the formats
# Each: weight [out, in] -> ({suffix: (dtype, array)}, its values in float64)

E4M3 = np.array([(-1.0 if c & 128 else 1.0) * ((c & 7) / 8 * 2.0**-6 if not c >> 3 & 15 else
                (1 + (c & 7) / 8) * 2.0**((c >> 3 & 15) - 7)) for c in range(256)])


def fp8(w, rng, rows=128, cols=128, **_):
    n, k = w.shape
    codes, values = np.zeros((n, k), np.uint8), np.zeros((n, k))
    scales = np.zeros((-(-n // rows), -(-k // cols)), np.float32)
    for a in range(scales.shape[0]):
        for b in range(scales.shape[1]):
            at = np.s_[a * rows:(a + 1) * rows, b * cols:(b + 1) * cols]
            scales[a, b] = np.abs(w[at]).max() / 448
            magnitudes = np.abs(w[at] / np.float64(scales[a, b]))
            code = np.abs(E4M3[:127] - magnitudes[..., None]).argmin(-1)
            codes[at] = code | (w[at] < 0) << 7
            values[at] = E4M3[codes[at]] * np.float64(scales[a, b])
    return {"weight": ("F8_E4M3", codes), "weight_scale_inv": ("F32", scales)}, values


def words(codes, axis, order=None, bits=4):
    """Eight codes of 4 bits (or four of 8) along an axis to a word; place i has that of order[i]. Noughts fill up."""
    per = 32 // bits
    codes = np.moveaxis(codes.astype(np.uint32), axis, -1)
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % per)])
    codes = codes.reshape(*codes.shape[:-1], -1, per)[..., list(order or range(per))]
    packed = (codes << (bits * np.arange(per, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    return np.moveaxis(packed, -1, axis).view(np.int32)


def whole_numbers(w, group_of, sym, bits=4, to_scales=np.float16):
    """codes [k, n], scales [groups, n], zeros [groups, n], values [n, k]"""
    n_groups, (n, k), most = group_of.max() + 1, w.shape, 2**bits - 1
    scales, zeros = np.zeros((n_groups, n)), np.zeros((n_groups, n), int)
    for g in range(n_groups):
        part = w[:, group_of == g]
        low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        if sym:
            high = np.maximum(-low, high)
            low = -high
        scales[g] = to_scales((high - low) / most)
        zeros[g] = (most + 1) // 2 if sym else np.clip(np.rint(-low / scales[g]), 0, most)
    codes = np.clip(np.rint(w.T / scales[group_of]) + zeros[group_of], 0, most).astype(int)
    return codes, scales, zeros, ((codes - zeros[group_of]) * scales[group_of]).T


def gptq(w, rng, group_size, desc_act, sym, checkpoint_format="gptq", bits=4, **_):
    k = w.shape[1]
    group = k if group_size < 0 else group_size
    order = rng.permutation(k) if desc_act else np.arange(k)
    group_of = np.empty(k, int)
    group_of[order] = np.arange(k) // group
    codes, scales, zeros, values = whole_numbers(w, group_of, sym, bits)
    if checkpoint_format == "gptq":
        zeros = (zeros - 1) % 2**bits
    return {"qweight": ("I32", words(codes, 0, bits=bits)), "scales": ("F16", scales.astype(np.float16)),
            "qzeros": ("I32", words(zeros, 1, bits=bits)), "g_idx": ("I32", group_of.astype(np.int32))}, values


def awq(w, rng, group_size, **_):
    k = w.shape[1]
    codes, scales, zeros, values = whole_numbers(w, np.arange(k) // group_size, False)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {"qweight": ("I32", words(codes, 1, order)), "scales": ("F16", scales.astype(np.float16)),
            "qzeros": ("I32", words(zeros, 1, order))}, values


def compressed(w, rng, config_groups, format, **_):
    """compressed-tensors: whole numbers with scales in bf16, in words or bytes."""
    (n, k), how = w.shape, config_groups["group_0"]["weights"]
    group_of = np.arange(k) // (how["group_size"] or k)
    if how["actorder"] == "group":
        rng.shuffle(group_of)
    codes, scales, zeros, values = whole_numbers(w, group_of, how["symmetric"], how["num_bits"],
                                                 lambda x: of_bf16(bf16(x)))
    pieces = {"weight_scale": ("BF16", bf16(scales.T))}
    if how["actorder"] == "group":
        pieces["weight_g_idx"] = ("I32", group_of.astype(np.int32))
    if format == "int-quantized":
        return {**pieces, "weight": ("I8", (codes.T - 128).astype(np.int8))}, values
    if not how["symmetric"]:
        pieces["weight_zero_point"] = ("I32", words(zeros.T, 0))
    return {**pieces, "weight_packed": ("I32", words(codes.T, 1)), "weight_shape": ("I64", np.array([n, k]))}, values


NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
                0.7229568362236023, 1.0], np.float32)


def nf4(w, rng, bnb_4bit_use_double_quant, block, **_):
    """Blocks run on from row to row."""
    flat = w.ravel()
    n_blocks = -(-flat.size // block)
    of_block = np.arange(flat.size) // block
    scales = np.array([np.abs(flat[of_block == b]).max() for b in range(n_blocks)], np.float32)
    state = {"quant_type": "nf4", "blocksize": block, "dtype": "bfloat16", "shape": list(w.shape)}
    pieces = {"weight.quant_map": ("F32", NF4), "weight.absmax": ("F32", scales)}
    if bnb_4bit_use_double_quant:
        values = np.sort(np.float32(np.linspace(-1, 1, 256)) ** 3)
        offset = scales.mean(dtype=np.float32)
        nested = np.array([np.abs(scales[i:i + 256] - offset).max() for i in range(0, n_blocks, 256)], np.float32)
        whole = nested[np.arange(n_blocks) // 256]
        codes = np.abs(values - ((scales - offset) / whole)[:, None]).argmin(-1).astype(np.uint8)
        scales = values[codes] * whole + offset
        state.update({"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": float(offset)})
        pieces.update({"weight.absmax": ("U8", codes), "weight.nested_absmax": ("F32", nested),
                       "weight.nested_quant_map": ("F32", values)})
    assert scales.dtype == np.float32
    exact = scales[of_block].astype(np.float64)
    codes = np.abs(NF4.astype(np.float64) - (flat / exact)[:, None]).argmin(-1).astype(np.uint8)
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    pieces.update({"weight": ("U8", (codes[0::2] << 4 | codes[1::2]).reshape(-1, 1)),
                   "weight.quant_state.bitsandbytes__nf4": ("U8", text)})
    return pieces, (NF4[codes].astype(np.float64) * exact).reshape(w.shape)


def nf4_config(double):
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_quant_storage": "uint8", "bnb_4bit_compute_dtype": "bfloat16",
            "bnb_4bit_use_double_quant": double}


def gptq_config(**more):
    return {"quant_method": "gptq", "bits": 4, "damp_percent": 0.1, "true_sequential": True, **more}


def compressed_config(form, bits, symmetric, strategy, group_size=None, actorder=None):
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": strategy,
               "group_size": group_size, "actorder": actorder, "dynamic": False}
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


SMALL = dict(hidden=128, heads=4, kv=2, ffn=192, layers=1)
SMALLER = dict(hidden=64, heads=2, kv=1, ffn=96, layers=1, vocab=64)

FORMATS = {
    "fp8": (fp8, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                  "weight_block_size": [128, 128]}, dict(hidden=192, heads=6, kv=2, ffn=200, layers=1)),
    "gptq": (gptq, gptq_config(group_size=32, desc_act=False, sym=False), SMALL),
    "gptq_order": (gptq, gptq_config(group_size=32, desc_act=True, sym=True), SMALL),
    "gptq_v2": (gptq, gptq_config(group_size=-1, desc_act=False, sym=False, checkpoint_format="gptq_v2"), SMALL),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}, SMALL),
    "nf4": (nf4, nf4_config(True), dict(SMALL, block=64)),
    "nf4_wide": (nf4, nf4_config(False), dict(SMALL, block=128, ffn=160)),
    "gptq8_order": (gptq, gptq_config(group_size=32, desc_act=True, sym=False) | {"bits": 8}, SMALLER),
    "w4a16": (compressed, compressed_config("pack-quantized", 4, False, "group", 32, "group"), SMALLER),
    "w8a8": (compressed, compressed_config("int-quantized", 8, True, "channel"), dict(SMALLER, hidden=48, ffn=80)),
}


# --------------------------------------------------------------------------- the forward pass

def norm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def forward(c, w, ids):
    n, heads, kv = len(ids), c["num_attention_heads"], c["num_key_value_heads"]
    dim = c["hidden_size"] // heads
    angle = np.arange(n)[:, None] * c["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

    def turn(x):
        a, b = x[..., :dim // 2], x[..., dim // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = norm(x, w[p + "input_layernorm.weight"], c["rms_norm_eps"])
        q = turn((h @ w[p + "self_attn.q_proj.weight"].T).reshape(n, heads, dim))
        k = turn((h @ w[p + "self_attn.k_proj.weight"].T).reshape(n, kv, dim))
        v = (h @ w[p + "self_attn.v_proj.weight"].T).reshape(n, kv, dim)
        k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(dim)
        scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", scores, v).reshape(n, -1) @ w[p + "self_attn.o_proj.weight"].T
        h = norm(x, w[p + "post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate = h @ w[p + "mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[p + "mlp.up_proj.weight"].T)) @ w[p + "mlp.down_proj.weight"].T
    return norm(x, w["model.norm.weight"], c["rms_norm_eps"]) @ w["model.embed_tokens.weight"].T


def goldens(c, w, rng):
    out, vocab = {}, c["vocab_size"]
    for i, length in enumerate(LENGTHS):
        ids = [int(t) for t in rng.randint(0, vocab, length)]
        text, greedy, margins = list(ids), [], []
        for _ in range(N_GREEDY):
            last = np.sort(forward(c, w, text)[-1])
            greedy.append(int(forward(c, w, text)[-1].argmax()))
            margins.append(last[-1] - last[-2])
            text.append(greedy[-1])
        out[f"prompt_{i}.input_ids"] = ("I32", np.array(ids, np.int32))
        out[f"prompt_{i}.logits"] = ("F32", forward(c, w, ids).astype(np.float32))
        out[f"prompt_{i}.greedy"] = ("I32", np.array(greedy, np.int32))
        out[f"prompt_{i}.margin"] = ("F32", np.array(margins, np.float32))
    return out


# ------------------------------------------------------------------------------------ folders

def make(out, name, seed):
    quantise, quant_config, d = FORMATS[name]
    rng = np.random.RandomState(seed)
    hidden, heads, kv, ffn, vocab = d["hidden"], d["heads"], d["kv"], d["ffn"], d.get("vocab", VOCAB)
    c = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
         "num_hidden_layers": d["layers"], "num_attention_heads": heads, "num_key_value_heads": kv,
         "intermediate_size": ffn, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "max_position_embeddings": 512, "vocab_size": vocab, "tie_word_embeddings": True,
         "quantization_config": quant_config}
    kv_dim = hidden // heads * kv
    shapes = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv_dim, hidden),
              "self_attn.v_proj": (kv_dim, hidden), "self_attn.o_proj": (hidden, hidden),
              "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn)}
    stored, exact = {}, {}

    def put_plain(key, x):
        stored[key] = ("BF16", bf16(x))
        exact[key] = of_bf16(stored[key][1])

    put_plain("model.embed_tokens.weight", rng.randn(vocab, hidden) * 0.3)
    put_plain("model.norm.weight", 1 + rng.randn(hidden) * 0.1)
    for i in range(d["layers"]):
        p = f"model.layers.{i}."
        put_plain(p + "input_layernorm.weight", 1 + rng.randn(hidden) * 0.1)
        put_plain(p + "post_attention_layernorm.weight", 1 + rng.randn(hidden) * 0.1)
        for key, shape in shapes.items():
            w = rng.randn(*shape) * (1 + rng.rand(shape[0], 1)) * 1.5 / np.sqrt(shape[1])
            pieces, values = quantise(w, rng, **quant_config, block=d.get("block"))
            for suffix, piece in pieces.items():
                stored[p + key + "." + suffix] = piece
            exact[p + key + ".weight"] = values
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/config.json", "w") as f:
        json.dump(c, f, indent=1)
    save(folder + "/model.safetensors", stored)
    save(folder + "/goldens.safetensors", goldens(c, exact, rng))
    return c, exact


if __name__ == "__main__":
    for n, format_name in enumerate(FORMATS):
        make(sys.argv[1], format_name, 700 + n)
