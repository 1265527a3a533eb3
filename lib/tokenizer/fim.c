/* The tokens of models that were trained to fill in the middle of a text. */
#include "formats/formats.h"

#define WORD(text)                                                                                 \
    { text, sizeof text - 1 }

/* As the makers of models write them; nothing else says which tokens they are. */
static const struct family {
    struct weft_str prefix, suffix, middle; /* no middle: the model goes on behind the prefix */
} families[] = {
    {WORD("<|fim_prefix|>"), WORD("<|fim_suffix|>"), WORD("<|fim_middle|>")}, /* Qwen, CodeGemma */
    {WORD("<fim_prefix>"), WORD("<fim_suffix>"), WORD("<fim_middle>")}, /* StarCoder, Granite */
    {WORD("<fim-prefix>"), WORD("<fim-suffix>"), WORD("<fim-middle>")}, /* SantaCoder */
    {WORD("<\uff5cfim\u2581begin\uff5c>"), WORD("<\uff5cfim\u2581hole\uff5c>"),
     WORD("<\uff5cfim\u2581end\uff5c>")},                            /* DeepSeek */
    {WORD("\u2581<PRE>"), WORD("\u2581<SUF>"), WORD("\u2581<MID>")}, /* Code Llama */
    {WORD("<PRE>"), WORD("<SUF>"), WORD("<MID>")},
    {WORD("<|code_prefix|>"), WORD("<|code_suffix|>"), WORD("<|code_middle|>")}, /* GLM */
    {WORD("<|prefix|>"), WORD("<|suffix|>"), WORD("<|middle|>")}, /* Falcon-H1 for code */
    {WORD("[PREFIX]"), WORD("[SUFFIX]"), {NULL, 0}},              /* Codestral */
};

static bool has_family(const weft_tokenizer *tok, const struct family *family,
                       struct weft_tok_fim *out) {
    out->has_middle = family->middle.len > 0;
    return wefti_tok_find(tok, family->prefix, &out->prefix) &&
           wefti_tok_find(tok, family->suffix, &out->suffix) &&
           (!out->has_middle || wefti_tok_find(tok, family->middle, &out->middle));
}

void wefti_tok_find_fim(weft_tokenizer *tok) {
    for (size_t i = 0; i < sizeof families / sizeof families[0] && !tok->has_fim; i++)
        tok->has_fim = has_family(tok, &families[i], &tok->fim);
}

bool weft_tok_fim(const weft_tokenizer *tok, struct weft_tok_fim *out) {
    *out = tok->fim;
    return tok->has_fim;
}
