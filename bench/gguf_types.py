#!/usr/bin/env python3
"""A GGUF file again, with matrices of random blocks of another type: what is measured where no tool writes a type.

    bench/gguf_types.py MODEL.gguf TYPE OUT.gguf

Metadata and tensors of F32 are copied. Codes are any bits; scales make weights as large as those of a model.
"""

import math
import random
import struct
import sys

# Number in files, columns and bytes of a block, general.file_type, and a scale in f16 with its place.
TYPES = {
    "IQ4_NL": (20, 32, 18, 25, 3e-4, 0),
    "IQ4_XS": (23, 256, 136, 30, 2e-5, 0),
    "IQ3_S": (21, 256, 110, 26, 1.6e-4, 0),
    "IQ3_XXS": (18, 256, 98, 23, 1.6e-4, 0),
    "IQ2_S": (22, 256, 82, 28, 4e-4, 0),
    "IQ2_XS": (17, 256, 74, 20, 4e-4, 0),
    "IQ2_XXS": (16, 256, 66, 19, 4e-4, 0),
    "IQ1_M": (29, 256, 56, 31, 3e-3, None),
    "IQ1_S": (19, 256, 50, 24, 3e-3, 0),
    "TQ2_0": (35, 256, 66, 37, 2e-2, 64),
    "TQ1_0": (34, 256, 54, 36, 2e-2, 52),
    "MXFP4": (39, 32, 17, 38, None, None),
    "NVFP4": (40, 64, 36, 39, None, None),
}
ALIGNMENT = 32
F32 = 0
STRING, ARRAY = 8, 9
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of other values


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value[0]

    def text(self):
        n = self.take("Q")
        self.at += n
        return bytes(self.data[self.at - n : self.at])

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            element, n = self.take("I"), self.take("Q")
            for _ in range(n):
                self.skip(element)
        else:
            self.at += WIDTHS[kind]


def aligned(n):
    return (n + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def set_scale(name, blocks, at, scale, scale_at, number):
    """Of the block at `at`, which is any bits until now."""
    if name == "MXFP4":
        blocks[at] = 119 + number % 3
    elif name == "NVFP4":
        blocks[at : at + 4] = bytes(8 + (number + i) % 8 for i in range(4))
    elif name == "IQ1_M":
        bits = struct.unpack("<H", struct.pack("<e", scale))[0]
        for i in range(4):
            high = at + 49 + 2 * i
            blocks[high] = blocks[high] & 15 | (bits >> 4 * i & 15) << 4
    else:
        struct.pack_into("<e", blocks, at + scale_at, scale if number % 2 else -scale)


def random_blocks(name, count):
    _, _, n_bytes, _, scale, scale_at = TYPES[name]
    rng = random.Random(1)
    blocks = bytearray(rng.randbytes(count * n_bytes))
    for i in range(count):
        set_scale(name, blocks, i * n_bytes, scale, scale_at, i)
    return blocks


def read_header(data, file_type):
    """The bytes up to the tensors' descriptions, these descriptions, and where data begins."""
    r = Reader(data)
    r.at = 8
    n_tensors, n_keys = r.take("Q"), r.take("Q")
    header = bytearray(data[: r.at])
    for _ in range(n_keys):
        begin = r.at
        key, kind = r.text(), r.take("I")
        value = r.at
        r.skip(kind)
        header += data[begin:value]
        header += struct.pack("<I", file_type) if key == b"general.file_type" else data[value : r.at]
    tensors = []
    for _ in range(n_tensors):
        name, n_dims = r.text(), r.take("I")
        dims = [r.take("Q") for _ in range(n_dims)]
        tensors.append((name, dims, r.take("I"), r.take("Q")))
    return header, tensors, aligned(r.at)


def write_repeated(out, blocks, n):
    while n > 0:
        out.write(memoryview(blocks)[:n])
        n -= len(blocks)


def main():
    source, name, path = sys.argv[1:]
    number, columns, n_bytes, file_type, _, _ = TYPES[name]
    with open(source, "rb") as f:
        data = memoryview(f.read())
    header, tensors, start = read_header(data, file_type)
    blocks = random_blocks(name, 6144)
    offset, plan = 0, []
    for tensor, dims, kind, begin in tensors:
        replaced = len(dims) > 1 and kind != F32
        if not replaced and kind != F32:
            raise SystemExit(f"{tensor.decode()}: a vector that is not F32")
        size = math.prod(dims) // columns * n_bytes if replaced else math.prod(dims) * 4
        header += struct.pack("<Q", len(tensor)) + tensor
        header += struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number if replaced else F32, offset)
        plan.append((replaced, start + begin, size))
        offset = aligned(offset + size)
    with open(path, "wb") as out:
        out.write(header + bytes(aligned(len(header)) - len(header)))
        for replaced, begin, size in plan:
            if replaced:
                write_repeated(out, blocks, size)
            else:
                out.write(data[begin : begin + size])
            out.write(bytes(aligned(size) - size))


if __name__ == "__main__":
    main()
