#!/usr/bin/env python3
"""Hashes of blocks of GGUF's types as weights, for tests/unit/test_quant.c; nothing but Python's own library.

    make_quant_hashes.py                  prints the test's table: pseudo-random blocks of each type
    make_quant_hashes.py --check FOLDER   FOLDER has TYPE.gguf and goldens.safetensors, as ../shared/zoo2/gguf_types:
                                          compares one tensor of each file with what this reader makes of it

The reader follows the definitions of the formats, weight by weight and in rational numbers: it shares nothing with the
code that it checks but the points of lattices, which it takes from lib/kernels/quant_grids.c.
"""
import json
import pathlib
import re
import struct
import sys
from fractions import Fraction

ROOT = pathlib.Path(__file__).resolve().parents[2]
FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
E2M1 = [0, 1, 2, 3, 4, 6, 8, 12]


def fnv(data):
    value = FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * FNV_PRIME % 2**64
    return value


def grids():
    """Each grid as lists of coordinates."""
    text = (ROOT / "lib/kernels/quant_grids.c").read_text()
    found = {}
    for name, body in re.findall(r"wefti_kern_grid_(\w+)\[\d+\] = \{(.*?)\}", text, re.S):
        bits, n = (3, 4) if name.startswith("iq3") else (2, 8)
        points = [int(x) for x in body.split(",") if x.strip()]
        found[name] = [[p >> bits * i & (1 << bits) - 1 for i in range(n)] for p in points]
    return found


GRIDS = grids()
MAGNITUDES = {
    "iq2": [8, 25, 43],
    "iq3_xxs": [4, 12, 20, 28, 36, 44, 52, 62],
    "iq3_s": [1, 3, 5, 7, 9, 11, 13, 15],
}


def f16(data, at):
    return Fraction(struct.unpack_from("<e", data, at)[0])


def u16(data, at):
    return data[at] | data[at + 1] << 8


def signs_of(seven):
    """Of seven bits, the eighth so that an even number is set."""
    return seven | (bin(seven).count("1") & 1) << 7


def signed(points, magnitudes, signs):
    values = [magnitudes[c] for point in points for c in point]
    return [-v if signs >> i & 1 else v for i, v in enumerate(values)]


def iq2_xxs(b):
    out = []
    for k in range(8):
        at = 2 + 8 * k
        tail = u16(b, at + 4) | u16(b, at + 6) << 16
        scale = f16(b, 0) * (Fraction(1, 2) + (tail >> 28)) / 4
        for i in range(4):
            point = GRIDS["iq2_xxs"][b[at + i]]
            out += [scale * v for v in signed([point], MAGNITUDES["iq2"], signs_of(tail >> 7 * i & 127))]
    return out


def nibble(b, at, i):
    return b[at + i // 2] >> i % 2 * 4 & 15


def iq2_xs(b):
    out = []
    for i in range(32):
        word = u16(b, 2 + 2 * i)
        scale = f16(b, 0) * (Fraction(1, 2) + nibble(b, 66, i // 2)) / 4
        out += [scale * v for v in signed([GRIDS["iq2_xs"][word & 511]], MAGNITUDES["iq2"], signs_of(word >> 9))]
    return out


def iq2_s(b):
    out = []
    for i in range(32):
        index = b[2 + i] | (b[66 + i // 4] >> i % 4 * 2 & 3) << 8
        scale = f16(b, 0) * (Fraction(1, 2) + nibble(b, 74, i // 2)) / 4
        out += [scale * v for v in signed([GRIDS["iq2_s"][index]], MAGNITUDES["iq2"], b[34 + i])]
    return out


def iq3_xxs(b):
    out = []
    for i in range(32):
        tail = u16(b, 66 + i // 4 * 4) | u16(b, 68 + i // 4 * 4) << 16
        scale = f16(b, 0) * (Fraction(1, 2) + (tail >> 28)) / 2
        points = [GRIDS["iq3_xxs"][b[2 + 2 * i + j]] for j in range(2)]
        out += [scale * v for v in signed(points, MAGNITUDES["iq3_xxs"], signs_of(tail >> i % 4 * 7 & 127))]
    return out


def iq3_s(b):
    out = []
    for i in range(32):
        ninth = [b[66 + i // 4] >> (i % 4 * 2 + j) & 1 for j in range(2)]
        points = [GRIDS["iq3_s"][b[2 + 2 * i + j] | ninth[j] << 8] for j in range(2)]
        scale = f16(b, 0) * (1 + 2 * nibble(b, 106, i // 4))
        out += [scale * v for v in signed(points, MAGNITUDES["iq3_s"], b[74 + i])]
    return out


def iq1_s(b):
    out = []
    for i in range(32):
        word = u16(b, 34 + i // 4 * 2)
        point = GRIDS["iq1"][b[2 + i] | (word >> i % 4 * 3 & 7) << 8]
        delta = Fraction(-1 if word >> 15 else 1, 8)
        out += [f16(b, 0) * (2 * (word >> 12 & 7) + 1) * (c - 1 + delta) for c in point]
    return out


def iq1_m(b):
    words = [u16(b, 48 + 2 * i) for i in range(4)]
    d = f16(struct.pack("<H", sum((w >> 12) << 4 * i for i, w in enumerate(words))), 0)
    out = []
    for i in range(32):
        high = nibble(b, 32, i)
        point = GRIDS["iq1"][b[i] | (high & 7) << 8]
        delta = Fraction(-1 if high & 8 else 1, 8)
        scale = d * (2 * (words[i // 8] >> i // 2 % 4 * 3 & 7) + 1)
        out += [scale * (c - 1 + delta) for c in point]
    return out


def tq2_0(b):
    return [f16(b, 64) * ((b[k // 128 * 32 + k % 32] >> k % 128 // 32 * 2 & 3) - 1) for k in range(256)]


def tq1_0(b):
    out = []
    for at, n, digits in ((0, 32, 5), (32, 16, 5), (48, 4, 4)):
        for digit in range(digits):
            out += [f16(b, 52) * ((b[at + i] * 3**digit % 256 * 3 >> 8) - 1) for i in range(n)]
    return out


def mxfp4(b):
    scale = Fraction(2) ** (b[0] - 128)
    codes = [x & 15 for x in b[1:17]] + [x >> 4 for x in b[1:17]]
    return [scale * (-E2M1[c - 8] if c > 7 else E2M1[c]) for c in codes]


def ue4m3(byte):
    exponent, mantissa = byte >> 3 & 15, byte & 7
    if byte == 0x7F:
        return Fraction(0)
    if exponent == 0:
        return Fraction(mantissa, 2**10)
    return (1 + Fraction(mantissa, 8)) * Fraction(2) ** (exponent - 8)


def nvfp4(b):
    out = []
    for sub in range(4):
        packed = b[4 + 8 * sub : 12 + 8 * sub]
        codes = [x & 15 for x in packed] + [x >> 4 for x in packed]
        out += [ue4m3(b[sub]) * (-E2M1[c - 8] if c > 7 else E2M1[c]) for c in codes]
    return out


IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def iq4_xs(b):
    out = []
    for k in range(8):
        scale = f16(b, 0) * ((nibble(b, 4, k) | (u16(b, 2) >> 2 * k & 3) << 4) - 32)
        packed = b[8 + 16 * k : 24 + 16 * k]
        out += [scale * IQ4[c] for c in [x & 15 for x in packed] + [x >> 4 for x in packed]]
    return out


# name: number in files, columns and bytes of a block, reader
TYPES = {
    "IQ4_XS": (23, 256, 136, iq4_xs),
    "IQ3_S": (21, 256, 110, iq3_s),
    "IQ3_XXS": (18, 256, 98, iq3_xxs),
    "IQ2_S": (22, 256, 82, iq2_s),
    "IQ2_XS": (17, 256, 74, iq2_xs),
    "IQ2_XXS": (16, 256, 66, iq2_xxs),
    "IQ1_M": (29, 256, 56, iq1_m),
    "IQ1_S": (19, 256, 50, iq1_s),
    "TQ2_0": (35, 256, 66, tq2_0),
    "TQ1_0": (34, 256, 54, tq1_0),
    "MXFP4": (39, 32, 17, mxfp4),
    "NVFP4": (40, 64, 36, nvfp4),
}
D_AT = {"TQ2_0": 64, "TQ1_0": 52, "IQ1_M": None, "MXFP4": None, "NVFP4": None}


def test_block(name, seed, n_bytes):
    """As random_block of test_quant.c: any bytes, but a finite scale. Subnormal ones are among them."""
    out = bytearray()
    state = seed
    for _ in range(n_bytes):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    at = D_AT.get(name, 0)
    if at is not None:
        out[at + 1] &= 0xBF
    if name == "IQ1_M":
        out[55] &= 0xBF
    if name == "MXFP4":
        out[0] = out[0] % 252 if seed % 4 else seed // 4
    return bytes(out)


def weights_bytes(values):
    return b"".join(struct.pack("<f", float(v)) for v in values)


def print_table():
    for name, (_, _, n_bytes, reader) in TYPES.items():
        data = b"".join(weights_bytes(reader(test_block(name, seed, n_bytes))) for seed in range(16))
        print("    {WEFT_DT_%s, 0x%016xull}," % (name, fnv(data)))


def tensor_of(path, wanted, number):
    """The bytes and the first dimension of a tensor."""
    data = path.read_bytes()
    at = data.index(struct.pack("<Q", len(wanted)) + wanted.encode()) + 8 + len(wanted)
    n_dims = struct.unpack_from("<I", data, at)[0]
    dims = struct.unpack_from("<%dQ" % n_dims, data, at + 4)
    kind, offset = struct.unpack_from("<IQ", data, at + 4 + 8 * n_dims)
    assert kind == number
    # Tensors are stored without gaps but for the alignment, the last one's end is the file's.
    ends = []
    for match in re.finditer(rb"(?:blk\.\d+\.[a-z_]+|token_embd|output_norm|output)\.weight", data):
        at = match.end()
        n_dims = struct.unpack_from("<I", data, at)[0]
        shape = struct.unpack_from("<%dQ" % n_dims, data, at + 4)
        other, begin = struct.unpack_from("<IQ", data, at + 4 + 8 * n_dims)
        columns, block = (1, 4) if other == 0 else next(t[1:3] for t in TYPES.values() if t[0] == other)
        count = 1
        for n in shape:
            count *= n
        ends.append(begin + count // columns * block)
    start = len(data) - (max(ends) + 31) // 32 * 32
    return data[start + offset :], dims


def check(folder):
    goldens = (folder / "goldens.safetensors").read_bytes()
    length = struct.unpack_from("<Q", goldens)[0]
    header = json.loads(goldens[8 : 8 + length])
    tensor = header["__metadata__"]["tensor"]
    for name, (number, columns, n_bytes, reader) in TYPES.items():
        begin, end = header[name + ".tensor"]["data_offsets"]
        want = goldens[8 + length + begin : 8 + length + end]
        data, dims = tensor_of(folder / (name + ".gguf"), tensor, number)
        n_blocks = dims[0] * dims[1] // columns
        values = []
        for i in range(n_blocks):
            values += reader(data[i * n_bytes : (i + 1) * n_bytes])
        wrong = sum(struct.unpack_from("<f", want, 4 * i)[0] != float(v) for i, v in enumerate(values))
        print("%-8s %d of %d weights differ" % (name, wrong, len(values)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        check(pathlib.Path(sys.argv[2]))
    else:
        print_table()
