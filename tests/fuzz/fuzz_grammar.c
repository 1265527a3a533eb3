#include "fuzz/fuzz_grammar.h"

#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"

#define INPUT_MAX 4096u
#define MASKS_MAX 4u  /* of a text */
#define WALK_MAX 24u  /* tokens */
#define N_TOKENS 260u /* the last of which is none */
#define MASK_WORDS ((N_TOKENS + 63) / 64)

static const char *const texts[] = {
    "{\"a\":[1,2.50,\"x\\n\"],\"b\":null}", "[[],{\"a\":-1e3}]", "aab12", "<f=a>1</f> a",
    "\"\xc3\xa9\xf0\x9f\x98\x80\"",         "((a+1)*2)\n"};

static char bytes_of_tokens[256];
static struct weft_str tokens[N_TOKENS];

static weft_gram_vocab *vocab_of_bytes(void) {
    static weft_gram_vocab *vocab;
    if (vocab) return vocab;
    for (int i = 0; i < 256; i++) {
        bytes_of_tokens[i] = (char)i;
        tokens[i] = (struct weft_str){bytes_of_tokens + i, 1};
    }
    tokens[256] = (struct weft_str){"\",\"", 3};
    tokens[257] = (struct weft_str){"aab", 3};
    tokens[258] = (struct weft_str){"\":", 2};
    tokens[259] = (struct weft_str){"", 0};
    WEFT_ASSERT(weft_gram_vocab_new(tokens, N_TOKENS, &vocab) == WEFT_OK);
    return vocab;
}

static bool is_set(const uint64_t *mask, size_t token) {
    return mask[token / 64] >> (token % 64) & 1;
}

/* A byte is taken exactly if the mask before it allows it. */
static void feed(weft_gram *gram, const char *text) {
    uint64_t mask[MASK_WORDS];
    weft_gram_state *state;
    if (weft_gram_state_new(gram, &state)) return;
    for (const char *at = text; *at; at++) {
        bool has_mask = at - text < (ptrdiff_t)MASKS_MAX;
        if (has_mask && weft_gram_mask(state, vocab_of_bytes(), mask)) break;
        weft_err err = weft_gram_take(state, at, 1);
        WEFT_ASSERT(err == WEFT_OK || err == WEFT_E_INVAL || err == WEFT_E_TOOBIG);
        if (err == WEFT_E_TOOBIG) break;
        WEFT_ASSERT(!has_mask || is_set(mask, (unsigned char)*at) == (err == WEFT_OK));
        if (err) break;
    }
    (void)weft_gram_may_end(state);
    weft_gram_state_free(state);
}

/* One of the mask's tokens, half of the time one that brings a text to its end; N_TOKENS: there is none. */
static size_t pick(const uint64_t *mask, uint64_t *rand) {
    static const char closing[] = {'"', '}', ']', ')', '\n'};
    size_t from = weft_rand_below(rand, N_TOKENS);
    for (size_t i = weft_rand_below(rand, 2 * sizeof closing); i < sizeof closing; i++)
        if (is_set(mask, (unsigned char)closing[i])) return (unsigned char)closing[i];
    for (size_t i = 0; i < N_TOKENS; i++)
        if (is_set(mask, (from + i) % N_TOKENS)) return (from + i) % N_TOKENS;
    return N_TOKENS;
}

/* A text of allowed tokens: each is taken, and there is always a next one or an end. */
static void walk(weft_gram *gram, weft_fuzz_judge *judge, uint64_t *rand) {
    uint64_t mask[MASK_WORDS];
    char text[WALK_MAX * 3];
    size_t n = 0;
    weft_gram_state *state;
    if (weft_gram_state_new(gram, &state)) return;
    for (unsigned step = 0; step < WALK_MAX; step++) {
        if (weft_gram_mask(state, vocab_of_bytes(), mask)) break;
        size_t token = pick(mask, rand);
        bool may_end = weft_gram_may_end(state);
        WEFT_ASSERT(token < N_TOKENS || may_end);
        if (may_end && judge) judge(text, n);
        if (token == N_TOKENS) break;
        weft_err err = weft_gram_take(state, tokens[token].data, tokens[token].len);
        WEFT_ASSERT(err == WEFT_OK || err == WEFT_E_TOOBIG);
        if (err) break;
        memcpy(text + n, tokens[token].data, tokens[token].len);
        n += tokens[token].len;
    }
    weft_gram_state_free(state);
}

void weft_fuzz_grammar(weft_fuzz_compile *compile, weft_fuzz_judge *judge, const uint8_t *bytes,
                       size_t n) {
    struct weft_errmsg why = {""};
    weft_gram *gram = NULL;
    weft_log_init("fuzz", WEFT_LOG_ERROR, false);
    if (n > INPUT_MAX) return;
    uint64_t rand = n;
    for (size_t i = 0; i < n; i++)
        rand = rand * 31 + bytes[i];
    weft_err err = compile((struct weft_str){(const char *)bytes, n}, &gram, &why);
    WEFT_ASSERT((err == WEFT_OK) == (gram != NULL));
    WEFT_ASSERT(!err || why.text[0]);
    if (!gram) return;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        feed(gram, texts[i]);
    walk(gram, judge, &rand);
    weft_gram_free(gram);
}
