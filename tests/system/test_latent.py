"""Latent attention of files that tests/data lacks: GGUF files in the older form, without separate tensors for each
head's matrices, and quantised ones, whose blocks lie across when W_UK is turned. They are made here from a newer
file, and must give its tokens."""

import os
import struct
import subprocess
import tempfile

import harness

WEFT = os.path.join(harness.BIN_DIR, "weft")
MODEL = os.path.join(harness.SOURCE_DIR, "tests/data/zoo/gguf/deepseek_v2.gguf")
HEADS, NOPE, ROPE, VALUE, LORA = 4, 16, 16, 24, 32  # of that model
F32, Q8_0, BF16 = 0, 8, 30
ARRAY, STRING, U32 = 9, 8, 4
SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize(form)))[0]

    def text(self):
        return self.take(self.number("Q")).decode()

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            kind, n = self.number("I"), self.number("Q")
            for _ in range(n):
                self.skip(kind)
        else:
            self.take(SCALAR_BYTES[kind])


def read_gguf(path):
    """Keys with their bytes, and tensors as {name: (dims, type, data)}; dims are the file's, innermost first."""
    with open(path, "rb") as f:
        r = Reader(f.read())
    assert r.take(4) == b"GGUF" and r.number("I") == 3
    n_tensors, n_keys = r.number("Q"), r.number("Q")
    keys, infos, tensors = {}, [], {}
    for _ in range(n_keys):
        name, begin = r.text(), r.at
        r.skip(r.number("I"))
        keys[name] = r.data[begin:r.at]
    for _ in range(n_tensors):
        name, n_dims = r.text(), r.number("I")
        dims = [r.number("Q") for _ in range(n_dims)]
        infos.append((name, dims, r.number("I"), r.number("Q")))
    base = (r.at + 31) // 32 * 32
    for name, dims, kind, offset in infos:
        n = {F32: 4, BF16: 2}[kind]
        for dim in dims:
            n *= dim
        tensors[name] = (dims, kind, r.data[base + offset:base + offset + n])
    return keys, tensors


def write_gguf(path, keys, tensors):
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)), b""
    for name, value in keys.items():
        head += text(name) + value
    for name, (dims, kind, values) in tensors.items():
        data += bytes(-len(data) % 32)
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += values
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def floats(bf16):
    return [struct.unpack("<f", b"\0\0" + bf16[i:i + 2])[0] for i in range(0, len(bf16), 2)]


def q8_0(row):
    """The row of 32 as a block, and the block's values."""
    scale = struct.unpack("<e", struct.pack("<e", max(map(abs, row)) / 127))[0]
    codes = [max(-127, min(127, round(x / scale))) for x in row]
    return struct.pack("<e32b", scale, *codes), [scale * code for code in codes]


def older(path, form):
    """The model with attn_kv_b in place of attn_k_b and attn_v_b: as it is, in Q8_0, or in the values of those
    blocks."""
    keys, tensors = read_gguf(MODEL)
    for name in "key_length_mla", "value_length_mla":
        del keys["deepseek2.attention." + name]
    for name, value in ("key_length", NOPE + ROPE), ("value_length", VALUE), ("head_count_kv", HEADS):
        keys["deepseek2.attention." + name] = struct.pack("<II", U32, value)
    for name in [name for name in tensors if name.endswith("attn_k_b.weight")]:
        _, kind, k_b = tensors.pop(name)
        assert kind == BF16
        v_b = tensors.pop(name.replace("attn_k_b", "attn_v_b"))[2]
        k_b, v_b = floats(k_b), floats(v_b)
        rows = []
        for head in range(HEADS):
            rows += [[k_b[(head * LORA + i) * NOPE + j] for i in range(LORA)] for j in range(NOPE)]
            rows += [v_b[(head * VALUE + j) * LORA:(head * VALUE + j + 1) * LORA] for j in range(VALUE)]
        blocks = [q8_0(row) for row in rows]
        if form == "q8_0":
            kind, data = Q8_0, b"".join(block for block, _ in blocks)
        else:
            values = rows if form == "as it is" else [values for _, values in blocks]
            kind, data = F32, b"".join(struct.pack(f"<{LORA}f", *row) for row in values)
        tensors[name.replace("attn_k_b", "attn_kv_b")] = ([LORA, HEADS * (NOPE + VALUE)], kind, data)
    write_gguf(path, keys, tensors)


def complete(model, *options):
    done = subprocess.run([WEFT, "run", model, "--prompt-ids", "5,6,7,8,9", "-n", "60", "--activations", "f32", "--json",
                           *options], capture_output=True, text=True, timeout=harness.LIMIT_S * 4, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_older_file_yields_the_tokens_of_a_newer_one():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "older.gguf")
        older(path, "as it is")
        assert complete(path) == complete(MODEL)


def test_quantised_heads_yield_the_tokens_of_what_they_stand_for():
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("q8_0", "dequantised", "packed")]
        older(paths[0], "q8_0")
        older(paths[1], "dequantised")
        done = subprocess.run([WEFT, "pack", paths[0], paths[2]], capture_output=True, text=True, check=False,
                              timeout=harness.LIMIT_S * 4)
        assert done.returncode == 0, done.stderr
        texts = [complete(path) for path in paths]
        assert texts[0] == texts[1] == texts[2], texts


def test_a_calibrated_model_packs_and_answers():
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        with open(text, "w", encoding="utf-8") as f:
            f.write("The sea was calm, and the captain slept. " * 40)
        done = subprocess.run([WEFT, "pack", MODEL, os.path.join(folder, "out"), "--dtype", "q8", "--calibrate", text],
                              capture_output=True, text=True, check=False, timeout=harness.LIMIT_S * 4)
        assert done.returncode == 0, done.stderr
        assert complete(os.path.join(folder, "out"))


if __name__ == "__main__":
    harness.main()
