"""Metadata of GGUF files, as bytes."""

import struct

U32, I32, FLOAT, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def text(value):
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def value_of(kind, value):
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        inner, values = value
        return struct.pack("<IQ", inner, len(values)) + b"".join(value_of(inner, v) for v in values)
    return struct.pack({U32: "<I", I32: "<i", FLOAT: "<f", BOOL: "<?"}[kind], value)
