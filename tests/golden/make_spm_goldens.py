#!/usr/bin/python3
"""Trains the small SentencePiece models of tests/data/spm and records SentencePiece's ids of some texts:
tests/data/spm/goldens.json. Also writes the Unigram model as a GGUF vocabulary.

Needs Debian's python3-sentencepiece (0.1.97). Run in the root of the source tree. The corpus is the
beginning of tests/data/valid.txt and some lines of our own, so it contains nothing of others; the map of the
normaliser is our own, too, as the usual one has 240 kB.
"""
import io
import json
import os
import random
import struct
import tempfile

import sentencepiece

OUT = os.path.abspath("tests/data/spm")
LINES = ["naïve café ﬁne ① Ａ １２３ 你好世界 日本語テキスト Привет мир ½ é a\u0301"] * 20
# Replacements by code points: wide letters and digits, a ligature, white space, a composed
# letter, a control character that vanishes, a long one that grows.
RULES = (
    [([0xFF21 + i], [0x41 + i]) for i in range(26)]
    + [([0xFF10 + i], [0x30 + i]) for i in range(10)]
    + [([0xFB01], [0x66, 0x69]), ([9], [32]), ([10], [32]), ([0xA0], [32]), ([0x3000], [32])]
    + [([0x61, 0x301], [0xE1]), ([1], []), ([0x33A5], [0x6D, 0x33])]
)
MODELS = {
    "bpe": dict(model_type="bpe", vocab_size=500, byte_fallback=True, add_dummy_prefix=True,
                normalization_rule_name="identity", remove_extra_whitespaces=False,
                user_defined_symbols=["<tool>", "\u2581\u2581\u2581"], control_symbols=["<ctl>"]),
    "bpe_unknown": dict(model_type="bpe", vocab_size=400, user_defined_symbols=["日本", "ing"]),
    "bpe_across": dict(model_type="bpe", vocab_size=500, byte_fallback=True,
                       split_by_whitespace=False, add_dummy_prefix=False,
                       normalization_rule_name="identity", remove_extra_whitespaces=False),
    "unigram": dict(model_type="unigram", vocab_size=400, user_defined_symbols=["<tool>", "ABC"],
                    control_symbols=["<ctl>"]),
    "unigram_bytes": dict(model_type="unigram", vocab_size=600, byte_fallback=True,
                          split_by_whitespace=False, add_dummy_prefix=False,
                          remove_extra_whitespaces=False),
    "unigram_suffix": dict(model_type="unigram", vocab_size=300, treat_whitespace_as_suffix=True),
    "char": dict(model_type="char", vocab_size=100),
}
PARTS = list("abcdefghij the ing ,.   \n\t'\"ABC") + [
    "▁", "é", "a\u0301", "ﬁ", "①", "Ａ", "３", "你", "日本", "м", "😀", "㎥", "\u00a0", "\u3000",
    "<tool>", "<ctl>", "<s>", "</s>", "<unk>", "<0x41>", "ABC", "▁▁▁", "\u0001", "한", "\r\n",
]


def texts(corpus):
    rand = random.Random(11)
    out = ["", "a", " ", "  ", "   a  b  ", " \t ", "Hello world", "Once upon a time, there was"]
    for i in range(52):
        text = "".join(rand.choice(PARTS) for _ in range(rand.randint(0, 25)))
        if i % 2:
            at = rand.randrange(len(corpus) - 200)
            text = corpus[at:at + rand.randint(1, 120)] + text
        out.append(text)
    return out


def train(**options):
    if "normalization_rule_name" not in options:
        options["normalization_rule_tsv"] = "rules.tsv"
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(input="corpus.txt", model_writer=model, minloglevel=2,
                                             num_threads=1, **options)
    return model.getvalue()


def charsmap(proto):
    """normalizer_spec.precompiled_charsmap, by a walk over the fields of the message."""
    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            key = varint()
            size = {0: 0, 1: 8, 5: 4}.get(key & 7)
            if size == 0:
                varint()
                continue
            if size is None:
                size = varint()
            yield key >> 3, data[at:at + size]
            at += size
    spec = dict(fields(proto))[3]
    return dict(fields(spec))[2]


def gguf(sp, proto):
    def string(text):
        data = text.encode()
        return struct.pack("<Q", len(data)) + data

    def array(kind, n, data):
        return struct.pack("<IIQ", 9, kind, n) + data
    n = sp.get_piece_size()
    types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 4 if sp.id_to_piece(i) in
             ("<tool>", "ABC") else 1 for i in range(n)]
    chars = charsmap(proto)
    keys = {
        "general.architecture": struct.pack("<I", 8) + string("t5"),
        "tokenizer.ggml.model": struct.pack("<I", 8) + string("t5"),
        "tokenizer.ggml.pre": struct.pack("<I", 8) + string("default"),
        "tokenizer.ggml.tokens": array(8, n, b"".join(string(sp.id_to_piece(i)) for i in range(n))),
        "tokenizer.ggml.scores": array(6, n, b"".join(struct.pack("<f", sp.get_score(i))
                                                      for i in range(n))),
        "tokenizer.ggml.token_type": array(5, n, struct.pack("<%di" % n, *types)),
        "tokenizer.ggml.precompiled_charsmap": array(0, len(chars), chars),
        "tokenizer.ggml.add_space_prefix": struct.pack("<IB", 7, 1),
        "tokenizer.ggml.remove_extra_whitespaces": struct.pack("<IB", 7, 1),
        "tokenizer.ggml.unknown_token_id": struct.pack("<II", 4, sp.unk_id()),
        "tokenizer.ggml.eos_token_id": struct.pack("<II", 4, sp.eos_id()),
        "tokenizer.ggml.add_bos_token": struct.pack("<IB", 7, 0),
        "tokenizer.ggml.add_eos_token": struct.pack("<IB", 7, 1),
    }
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys))
    return head + b"".join(string(key) + value for key, value in keys.items())


def main():
    with open("tests/data/valid.txt", encoding="utf-8") as file:
        corpus = file.read()[:60000]
    goldens = {}
    cases = texts(corpus)
    with tempfile.TemporaryDirectory() as tmp:
        os.chdir(tmp)  # the models record the names of these files
        with open("corpus.txt", "w", encoding="utf-8") as file:
            file.write("\n".join([corpus] + LINES))
        with open("rules.tsv", "w", encoding="utf-8") as file:
            for source, target in RULES:
                file.write("\t".join(" ".join("%X" % c for c in side) for side in (source, target))
                           + "\n")
        for name, options in MODELS.items():
            proto = train(**options)
            os.makedirs("%s/%s" % (OUT, name), exist_ok=True)
            with open("%s/%s/tokenizer.model" % (OUT, name), "wb") as file:
                file.write(proto)
            sp = sentencepiece.SentencePieceProcessor()
            sp.LoadFromSerializedProto(proto)
            goldens[name] = [sp.EncodeAsIds(text) for text in cases]
            if name == "unigram":
                with open(OUT + "/unigram.gguf", "wb") as file:
                    file.write(gguf(sp, proto))
    with open(OUT + "/goldens.json", "w", encoding="utf-8") as file:
        json.dump({"texts": cases, "ids": goldens}, file, separators=(",", ":"))
        file.write("\n")


main()
