#!/usr/bin/env python3
"""Makes tests/data/splits.json: into which pieces each tokenizer.ggml.pre cuts a text before merging.

    python3 tests/golden/make_splits.py > tests/data/splits.json

The patterns are those of the models' tokenizer.json files as llama.cpp's llama-vocab.cpp quotes them (what it only has in
a form of its own, in that form), applied by the `regex` module of Python, which is another engine than ours: each pattern
cuts what the one before has left, matches and what lies between them apart. NFC is done first where the tokenizers do it.
"""
import json
import sys
import unicodedata

import regex

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
JAIS2 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)"
         r"|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)"
         r"|\s{1,2}(?!\S)|\s{1}")
MINICPM5 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SEED = CONTRACTIONS + "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
BAILING = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
           r"|\s+(?!\S)|\s+")
EXAONE_MOE = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
              r"|\s*[\r\n]|\s+(?!\S)|\s+")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
O200K_WORDS = (fr"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?"
               fr"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{CONTRACTIONS}?")
O200K = O200K_WORDS + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = (fr"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
NO_HAN_UPPER, NO_HAN_LOWER = f"[{UPPER}&&[^\\p{{Han}}]]", f"[{LOWER}&&[^\\p{{Han}}]]"
KIMI = (r"(?V1)[\p{Han}]+"
        fr"|[^\r\n\p{{L}}\p{{N}}]?{NO_HAN_UPPER}*{NO_HAN_LOWER}+{CONTRACTIONS}?"
        fr"|[^\r\n\p{{L}}\p{{N}}]?{NO_HAN_UPPER}+{NO_HAN_LOWER}*{CONTRACTIONS}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
             "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"
LINES = "[^\\n]+|[\\n]+"
CJK = "[一-龥぀-ゟ゠-ヿ]+"

# names, patterns, what else the name says: "nfc", "ignore_merges" (a piece that is a token is that token), "add_bos"
SPLITS = [
    ("gpt-2 phi-2 jina-es jina-de jais gigachat jina-v2-es jina-v2-de a.x-4.0 mellum trillion granite-docling exaone4 "
     "roberta-bpe jina-v1-en jina-v2-code", [GPT2], ""),
    ("mpt olmo modern-bert", [GPT2], "nfc"),
    ("default", [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], ""),
    ("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", [LLAMA3], "ignore_merges add_bos"),
    ("dbrx smaug-bpe chatglm-bpe glm4", [LLAMA3], ""),
    ("jais-2", [JAIS2], ""),
    ("minicpm5", [r"\p{N}{1,3}", MINICPM5], "ignore_merges"),
    ("qwen2", [QWEN2], "nfc"),
    ("deepseek-r1-qwen megrez stablelm2 hunyuan solar-open kormo f2llmv2 grok-2", [QWEN2], ""),
    ("qwen35", [QWEN35], "nfc"),
    ("laguna", [LINES, QWEN2], ""),
    ("seed-coder", [SEED], ""),
    ("bailingmoe bailingmoe2 llada-moe", [BAILING], ""),
    ("exaone-moe", [EXAONE_MOE], ""),
    ("starcoder refact smollm codeshell exaone minerva-7b mellum2", [r"\p{N}", GPT2], ""),
    ("command-r", [r"\p{N}", GPT2], "nfc"),
    ("falcon", [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"], ""),
    ("deepseek-coder", ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"], ""),
    ("deepseek-v3 hunyuan-dense joyai-llm", [r"\p{N}{1,3}", CJK, DEEPSEEK3], ""),
    ("afmoe", ["<thirds>", "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+", DEEPSEEK3], ""),
    ("youtu", ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
               O200K_WORDS + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"], "ignore_merges"),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", [O200K], ""),
    ("granite-embed-multi-97m", [O200K], "ignore_merges"),
    ("tiny_aya cohere2moe", [r"\d{1,3}(?=(?:\d{3})*\b)", O200K], ""),
    ("tekken", [TEKKEN], "ignore_merges add_bos"),
    ("kimi-k2", [KIMI], ""),
    ("superbpe", [r"\p{N}+", r"(?=(\d{3})+(?!\d))"], ""),
    ("poro-chat bloom gpt3-finnish", [BLOOM], ""),
    ("viking", [BLOOM, r"\p{N}"], ""),
    ("chameleon", ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}",
                   r"[\p{P}!-/:-@\[-`{-~]", GPT2], "add_bos"),
]

TEXTS = [
    "I'M sure WE'LL don't they'Ve he'd x's 'Tis it’s\n\n\n  don't\r\n\r\n\tend   ",
    "1234567 12 1 0001234 3.14159, 1e10 x86 ½ ² ٣٤٥٦ １２３４ 7up 99½ 12,345,678\n",
    "HTTPServer camelCase XMLHttpRequestID iPhone ǅungla ÉCOLE École naïve nai\u0308ve STRASSE straße ﬁn",
    "中文字和English混排，第12章。漢字かなカタカナｶﾀｶﾅ한국어 조선글ㄱㅏ、「引用」…… ㄅㄆㄇ 々〆 〇",
    "हिन्दी में १२३ বাংলা ภาษาไทย ลาว ខ្មែរ မြန်မာ עברית العربية، فارسی۔ தமிழ் ქართული Привет Ёж Ελλάδα Ὀδυσσεύς",
    "👩\u200d💻🇩🇪 👍🏽 e\u0301 ☃️ x\u0301\u0302y \u200f\u200b\u2060\u00ad ™ ± ∑ €100 £5 $x+y=<z>^~|`_\"#%&'()*+,-./:;?@[\\]{}",
    "a  b   c    d     e\u00a0f\u3000g\u2003\u2003h\u0085i\u2028j \n \r k\t\t\tl\n    m\n\tn        \n",
    "path/to//file.c\n/* c */ if (a->b != 'c') { return x[i]++; } // end\n///\n#include <x.h>\n--flag=v a_b__c !word (see) .dot",
    "<sentinel:12> IMGIMGABCZ IMGIMGABCDEZ IMGIMGZ 。！？۔ ?! ...\n!!!\r\n??/\r\n",
    "0 00 000 0000 00000 000000 x1234y 1234_5678 1234567890123",
    "e\u0301te\u0301 Å Å 가 한 ṩ s\u0323\u0307",
]


def thirds(text):
    """runs of numbers cut from their end in threes"""
    out = []
    for m in regex.finditer(r"\p{N}+", text):
        at = m.start()
        for size in [len(m[0]) % 3] * (len(m[0]) % 3 > 0) + [3] * (len(m[0]) // 3):
            out.append((at, at + size))
            at += size
    return out


def cut(pieces, pattern):
    out = []
    for piece in pieces:
        spans = thirds(piece) if pattern == "<thirds>" else [m.span() for m in regex.finditer(pattern, piece)]
        at = 0
        for start, end in spans:
            out += [piece[at:start], piece[start:end]]
            at = end
        out.append(piece[at:])
    return [p for p in out if p]


def pieces_of(text, patterns, flags):
    pieces = [unicodedata.normalize("NFC", text) if "nfc" in flags else text]
    for pattern in patterns:
        pieces = cut(pieces, pattern)
    return pieces


def case(names, patterns, flags):
    head = {"names": names.split(), "ignore_merges": "ignore_merges" in flags, "add_bos": "add_bos" in flags}
    lines = ",\n".join(json.dumps(pieces_of(t, patterns, flags)) for t in TEXTS)
    return json.dumps(head)[:-1] + ', "pieces": [\n' + lines + "]}"


if __name__ == "__main__":
    sys.stdout.write('{"texts": [\n' + ",\n".join(json.dumps(t) for t in TEXTS) + '\n], "cases": [\n')
    sys.stdout.write(",\n".join(case(*split) for split in SPLITS) + "\n]}\n")
