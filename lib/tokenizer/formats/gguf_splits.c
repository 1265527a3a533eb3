/* How text is cut before merging: in GGUF files only a name says so, which stands for the regular expressions of the
 * tokenizer.json of some model. The names are llama.cpp's. */
#include "formats/gguf_splits.h"

#include <stddef.h>
#include <string.h>

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CASELESS_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINES_AND_SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS CASELESS_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define SIGNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define LLAMA3 WORDS "\\p{N}{1,3}" SIGNS LINES_AND_SPACES
#define QWEN2 WORDS "\\p{N}" SIGNS LINES_AND_SPACES
/* Words by case, each with what `ends` adds to it. */
#define CASED_WORDS(ends)                                                                          \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"     \
    "+" ends "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"                        \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" ends "|"
#define SIGNS_AND_SLASHES "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" LINES_AND_SPACES
#define O200K_WORDS CASED_WORDS(CASELESS_CONTRACTIONS "?")
#define O200K O200K_WORDS "\\p{N}{1,3}" SIGNS_AND_SLASHES
/* Like those of O200K, Chinese characters apart. */
#define UPPER "(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])"
#define LOWER "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])"
#define KIMI                                                                                       \
    "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CASELESS_CONTRACTIONS                   \
    "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" CASELESS_CONTRACTIONS                           \
    "?|\\p{N}{1,3}" SIGNS LINES_AND_SPACES
#define DEEPSEEK3_CJK "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"                                        \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" LINES_AND_SPACES
/* A run of digits from its end in threes: what is left over comes first. */
#define DIGITS_FROM_END "(?<!\\p{N})\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))|\\p{N}{3}"
#define LINES "[^\\n]+|[\\n]+"
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

/* Letters with case, in the Unicode version and the blocks of DeepSeek's own list. */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}"                          \
    "\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"                  \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}"                         \
    "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}"                 \
    "\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}"                 \
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}"                 \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"                            \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}"                           \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"                 \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}"                  \
    "\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}"                   \
    "\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}"                  \
    "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"                  \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"                  \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"                 \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"               \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"                              \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

/* Scripts of Asia that Trinity's tokenizer keeps apart. */
#define ASIAN                                                                                      \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}"                \
    "\\x{30a0}-\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}"                   \
    "\\x{e80}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}"                   \
    "\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"

#define IGNORE_MERGES WEFTI_TOK_GGUF_IGNORE_MERGES
#define ADD_BOS WEFTI_TOK_GGUF_ADD_BOS
#define ADD_SEP WEFTI_TOK_GGUF_ADD_SEP
#define NFC WEFTI_TOK_GGUF_NFC
#define CHARS WEFTI_TOK_GGUF_CHARS

/* Normal form C is what the models' own tokenizers begin with; llama.cpp leaves it out. */
static const struct wefti_tok_gguf_split splits[] = {
    {{"gpt-2", "phi-2", "jina-es", "jina-de", "jais", "gigachat", "jina-v2-es", "jina-v2-de",
      "a.x-4.0", "mellum", "trillion", "granite-docling", "exaone4"},
     0,
     {GPT2}},
    {{"mpt", "olmo", "modern-bert"}, NFC, {GPT2}},
    {{"roberta-bpe", "jina-v1-en", "jina-v2-code"}, ADD_SEP, {GPT2}},
    {{"default"}, 0, {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
      "jina-v5-nano"},
     IGNORE_MERGES | ADD_BOS,
     {LLAMA3}},
    {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, 0, {LLAMA3}},
    {{"jais-2"},
     0,
     {WORDS "\\p{N}{1,3}" SIGNS
            "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)"
            "|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s"}},
    {{"minicpm5"}, IGNORE_MERGES, {"\\p{N}{1,3}", WORDS "\\p{N}+" SIGNS LINES_AND_SPACES}},
    {{"qwen2"}, NFC, {QWEN2}},
    {{"deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "solar-open", "kormo", "f2llmv2",
      "grok-2"},
     0,
     {QWEN2}},
    {{"qwen35"},
     NFC,
     {CASELESS_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                            "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES_AND_SPACES}},
    {{"laguna"}, 0, {LINES, QWEN2}},
    {{"seed-coder"}, 0, {WORDS "\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" LINES_AND_SPACES}},
    {{"bailingmoe", "bailingmoe2", "llada-moe"},
     0,
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
      "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {{"exaone-moe"},
     0,
     {CASELESS_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
                            "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {{"starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
     0,
     {"\\p{N}", GPT2}},
    {{"command-r"}, NFC, {"\\p{N}", GPT2}},
    {{"falcon"}, 0, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {{"deepseek-llm"},
     0,
     {"[\\r\\n]", "\\s?[" DEEPSEEK_LETTERS "]+",
      "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
      "\\s+$", "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}+"}},
    {{"deepseek-coder"},
     0,
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
      "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"}},
    {{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, 0, {"\\p{N}{1,3}", DEEPSEEK3_CJK, DEEPSEEK3}},
    {{"afmoe"}, 0, {DIGITS_FROM_END, ASIAN, DEEPSEEK3}},
    {{"youtu"},
     IGNORE_MERGES,
     {"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}"
      "\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+"
      "|[\\x{3105}-\\x{312f}]+|" DEEPSEEK3_CJK,
      O200K_WORDS "\\p{N}" SIGNS_AND_SLASHES}},
    {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, 0, {O200K}},
    {{"granite-embed-multi-97m"}, IGNORE_MERGES, {O200K}},
    {{"tiny_aya", "cohere2moe"}, 0, {"\\d{1,3}(?=(?:\\d{3})*\\b)", O200K}},
    {{"tekken"}, IGNORE_MERGES | ADD_BOS, {CASED_WORDS("") "\\p{N}" SIGNS_AND_SLASHES}},
    {{"kimi-k2"}, 0, {KIMI}},
    {{"superbpe"}, 0, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {{"poro-chat", "bloom", "gpt3-finnish"}, 0, {BLOOM}},
    {{"viking"}, 0, {BLOOM, "\\p{N}"}},
    {{"chameleon"},
     ADD_BOS,
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
      "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    {{"gemma4", "granite-embed-multi-311m"}, CHARS | ADD_BOS, {LINES}},
    {{"sarvam-moe"}, CHARS, {LINES}},
};

const struct wefti_tok_gguf_split *wefti_tok_gguf_split(struct weft_str name) {
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        for (const char *const *known = splits[i].names; *known; known++)
            if (weft_str_is(name, *known, strlen(*known))) return &splits[i];
    return NULL;
}
