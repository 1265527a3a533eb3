/* Masks at random places of random texts, against each token taken by itself: counters near their end and far from it,
 * keys that are none of some, patterns, tokens that are long, partial or cross an end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "grammar/grammar.h"

#define N_TOKENS 500u
#define TEXT_MAX 300u
#define RULES_TEXT_MAX 60u /* ambiguous ones take their time */
#define N_TEXTS 3

static const char *const schemas[] = {
    "{\"type\":\"string\",\"maxLength\":3}",
    "{\"type\":\"string\",\"maxLength\":20,\"minLength\":7}",
    "{\"type\":\"string\",\"maxLength\":33}",
    "{\"type\":\"string\",\"maxLength\":70,\"minLength\":40}",
    "{\"type\":\"string\",\"maxLength\":1000}",
    "{\"type\":\"string\",\"minLength\":100}",
    "{\"type\":\"string\",\"pattern\":\"^a.{0,40}$\",\"maxLength\":38}",
    "{\"type\":\"string\",\"pattern\":\"^([ab]+é? ?){0,9}b{0,3}z?$\",\"maxLength\":60}",
    "{\"type\":\"string\",\"pattern\":\"^(a|b).*12345$\",\"maxLength\":150}",
    "{\"type\":\"string\",\"pattern\":\"(aé|b\\\"){2}.{0,9}$\"}",
    "{\"type\":\"string\",\"pattern\":\"^(?!ab|.*aaa)[^b-z]*$\"}",
    "{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"ab\",\"aaé\",\"\"]}}",
    "{\"type\":\"string\",\"not\":{\"maxLength\":50}}",
    "{\"type\":\"string\",\"not\":{\"pattern\":\"^a*$\"},\"maxLength\":36}",
    "{\"properties\":{\"a\":true,\"ab\":false,\"aé\":{\"type\":\"string\",\"maxLength\":2}},"
    "\"minProperties\":1}",
    "{\"properties\":{\"a\":{\"const\":1}},\"patternProperties\":{\"^a\":{\"maximum\":9}},"
    "\"additionalProperties\":{\"type\":\"string\",\"maxLength\":34},\"type\":\"object\"}",
    "{\"type\":\"object\",\"propertyNames\":{\"maxLength\":4},\"additionalProperties\":{\"type\":"
    "\"integer\"}}",
    "{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"aé\",\"b\\\"\",12,null]},\"maxItems\":40}",
    "{\"type\":\"array\",\"items\":{\"multipleOf\":7,\"minimum\":-3},\"minItems\":2}",
    "{}"};

/* Free text with an end, and what may stand behind it. */
static const char *const rules[] = {
    "root ::= .{1,3} y\ny ::= \"{\" y \"}\" | \"aba\"",
    "root ::= (x | \"5\" .)*\nx ::= [a-z] x?",
    "root ::= [^0-9]{1,3} (\"5\" root \"1\" | \"12\")",
    "root ::= [^\\n]{0,34} y\ny ::= \"-\" y \"e5\" | \"zz\"",
    "root ::= \"\\\"\" [^\"\\n]{2,6} \"\\\"\" ([, ] root)?",
    "root ::= ([ab]{1,40} \"1\" | y \"7\")*\ny ::= \"[\" y \"]\" | [^\\n]{5}",
};

static char bytes[N_TOKENS][96];
static struct weft_str tokens[N_TOKENS];

/* Pieces of what the schemas speak of, one after another; some end within a character. */
static void make_tokens(uint64_t *rand) {
    static const char *const pieces[] = {
        "a",  "a",       "b",  "aa", "é", "\xc3", "\xa9", "\"", "\"",  "\\\"", "\\", "n",
        "u0", "\\u001f", "01", "1",  "7", "-",    ".",    "e5", ",",   ", ",   ":",  ": ",
        "{",  "}",       "[",  "]",  " ", "null", "😀",    "\n", "aba", "zz",   "5",  "12"};
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        bool is_long = weft_rand_below(rand, 4) == 0, is_same = weft_rand_below(rand, 2) == 0;
        uint32_t n = 1 + weft_rand_below(rand, is_long ? 60 : 4), k = 0;
        for (uint32_t j = 0; j < n && strlen(bytes[i]) < 80; j++) {
            if (j == 0 || !is_same) k = weft_rand_below(rand, sizeof pieces / sizeof *pieces);
            (void)strcat(bytes[i], pieces[k]);
        }
        tokens[i] = (struct weft_str){bytes[i], strlen(bytes[i])};
    }
}

static bool takes(weft_gram *gram, const char *text, uint32_t n, const struct weft_str *token) {
    weft_gram_state *state;
    WEFT_ASSERT(!weft_gram_state_new(gram, &state));
    WEFT_ASSERT(!weft_gram_take(state, text, n));
    weft_err err = weft_gram_take(state, token->data, token->len);
    WEFT_ASSERT(!err || err == WEFT_E_INVAL);
    weft_gram_state_free(state);
    return !err;
}

/* `judge` is the same grammar, of which no mask is ever made. */
static void compare(const char *schema, weft_gram *judge, const char *text, uint32_t n,
                    const uint64_t *mask) {
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        bool is_in = mask[i / 64] >> (i % 64) & 1;
        if (is_in == takes(judge, text, n, &tokens[i])) continue;
        (void)fprintf(stderr, "%s\nbehind %.*s\ntoken %s is %sin the mask\n", schema, (int)n, text,
                      bytes[i], is_in ? "" : "not ");
        WEFT_ASSERT(false);
    }
}

static void try_text(uint64_t *rand, const char *schema, weft_gram *gram, weft_gram *judge,
                     const weft_gram_vocab *vocab, uint32_t n_max) {
    char text[TEXT_MAX + sizeof *bytes];
    uint64_t mask[(N_TOKENS + 63) / 64];
    uint32_t n = 0;
    weft_gram_state *state;
    WEFT_ASSERT(!weft_gram_state_new(gram, &state));
    while (n < n_max) {
        uint32_t allowed[N_TOKENS], n_allowed = 0;
        WEFT_ASSERT(!weft_gram_mask(state, vocab, mask));
        compare(schema, judge, text, n, mask);
        for (uint32_t i = 0; i < N_TOKENS; i++) {
            if (mask[i / 64] >> (i % 64) & 1) allowed[n_allowed++] = i;
        }
        if (n_allowed == 0) break;
        const struct weft_str *next = &tokens[allowed[weft_rand_below(rand, n_allowed)]];
        memcpy(text + n, next->data, next->len);
        n += (uint32_t)next->len;
        WEFT_ASSERT(!weft_gram_take(state, next->data, next->len));
    }
    weft_gram_state_free(state);
}

static void try_texts(uint64_t *rand, const char *text, bool is_schema,
                      const weft_gram_vocab *vocab) {
    const struct weft_str str = {text, strlen(text)};
    struct weft_errmsg why = {""};
    weft_gram *grams[2] = {NULL, NULL};
    weft_err err = WEFT_OK;
    for (int i = 0; i < 2 && !err; i++)
        err = is_schema ? weft_gram_schema(str, &grams[i], &why)
                        : weft_gram_gbnf(str, &grams[i], &why);
    if (err) (void)fprintf(stderr, "%s: %s\n", text, why.text);
    WEFT_ASSERT(!err);
    for (int k = 0; k < N_TEXTS; k++)
        try_text(rand, text, grams[0], grams[1], vocab, is_schema ? TEXT_MAX : RULES_TEXT_MAX);
    weft_gram_free(grams[0]);
    weft_gram_free(grams[1]);
}

int main(void) {
    weft_check_actor("prop_masks");
    uint64_t rand = weft_rand_test_seed();
    weft_gram_vocab *vocab;
    make_tokens(&rand);
    WEFT_ASSERT(!weft_gram_vocab_new(tokens, N_TOKENS, &vocab));
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        try_texts(&rand, schemas[i], true, vocab);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        try_texts(&rand, rules[i], false, vocab);
    weft_gram_vocab_free(vocab);
    printf("%d texts of each of %zu schemas and %zu sets of rules, each mask against %u tokens\n",
           N_TEXTS, sizeof schemas / sizeof *schemas, sizeof rules / sizeof *rules, N_TOKENS);
    return 0;
}
