/* grammar: which tokens a text that must fit a grammar may go on with.
 *
 * Model    A grammar is a language of byte strings, compiled once from a notation: a regular expression,
 *          GBNF, Lark's notation, JSON Schema, structural tags, ... A text is fed to a state in bytes; behind each byte
 *          there is some text of the grammar that begins so, never a dead end. A mask has a bit for each
 *          token of a vocabulary whose bytes may come next, so a token may span several symbols of the
 *          grammar, and a character several tokens.
 * Special  A special token is a text of its own: WEFT_GRAM_SPECIAL, what it is called,
 *          WEFT_GRAM_SPECIAL. That byte is in no UTF-8, so special tokens fit where a grammar names
 *          them and nowhere else; the caller adds the end of sequence where weft_gram_may_end says
 *          so.
 * Lazy     Automata are made as texts need them and kept by the grammar, within a bound.
 * Threads  A grammar and its states have one owner; a vocabulary is read by any.
 * Sources  docs/structured-output.md.
 */
#ifndef WEFT_GRAMMAR_H
#define WEFT_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/grammar.h"
#include "base/str.h"

#define WEFT_GRAM_SPECIAL 0xff /* before and behind a special token */
#define WEFT_GRAM_TOKEN_BYTES_MAX 4096u

typedef struct weft_gram weft_gram;
typedef struct weft_gram_state weft_gram_state;
typedef struct weft_gram_vocab weft_gram_vocab;

/* Compiling. INVAL: not in the notation, or no text fits; UNSUPPORTED: what this notation has and we
 * have not, by name; TOOBIG: over a bound; NOMEM. `why` says the place. The text is borrowed. */
WEFT_MUST_CHECK weft_err weft_gram_compile(const struct weft_grammar *wish, weft_gram **gram_out,
                                           struct weft_errmsg *why);
/* Whether it compiles, within `*work_left` steps, from which those that it took are taken: for who asks many times. */
bool weft_gram_can_compile(const struct weft_grammar *wish, uint64_t *work_left);
/* What compiling one grammar may take at most; a CPU takes some 40 million in a second. */
#define WEFT_GRAM_COMPILE_WORK_MAX 9000000u
/* The same where the model is known: a special token that it has not is INVAL. */
struct weft_gram_specials {
    bool (*has)(void *context, struct weft_str token);
    void *context;
};
WEFT_MUST_CHECK weft_err weft_gram_compile_for(const struct weft_gram_specials *specials,
                                               const struct weft_grammar *wish,
                                               weft_gram **gram_out, struct weft_errmsg *why);
/* The same of RULES in one notation, whatever the text looks like; `kind` is not read. */
WEFT_MUST_CHECK weft_err weft_gram_compile_gbnf(const struct weft_grammar *wish,
                                                weft_gram **gram_out, struct weft_errmsg *why);
WEFT_MUST_CHECK weft_err weft_gram_compile_lark(const struct weft_grammar *wish,
                                                weft_gram **gram_out, struct weft_errmsg *why);
/* The same with the usual blanks and digits. `regex` is matched against all of a text, in Python's syntax. */
WEFT_MUST_CHECK weft_err weft_gram_regex(struct weft_str regex, weft_gram **gram_out,
                                         struct weft_errmsg *why);
WEFT_MUST_CHECK weft_err weft_gram_gbnf(struct weft_str grammar, weft_gram **gram_out,
                                        struct weft_errmsg *why);
WEFT_MUST_CHECK weft_err weft_gram_lark(struct weft_str grammar, weft_gram **gram_out,
                                        struct weft_errmsg *why);
/* Structural tags: JSON, in vLLM's older form or XGrammar's. Refusals name the tag. */
WEFT_MUST_CHECK weft_err weft_gram_tags(struct weft_str tags, weft_gram **gram_out,
                                        struct weft_errmsg *why);
/* JSON Schema, draft 4 to 2020-12; what it has that can't be honoured is refused with keyword and place. */
WEFT_MUST_CHECK weft_err weft_gram_schema(struct weft_str schema, weft_gram **gram_out,
                                          struct weft_errmsg *why);
void weft_gram_free(weft_gram *gram); /* after its states */
/* What it holds now, automata with it. */
size_t weft_gram_bytes(const weft_gram *gram);

/* NOMEM. Borrows the grammar. */
WEFT_MUST_CHECK weft_err weft_gram_state_new(weft_gram *gram, weft_gram_state **state_out);
void weft_gram_state_free(weft_gram_state *state);
size_t weft_gram_state_bytes(const weft_gram_state *state);
/* INVAL: no text of the grammar goes on so; the state is as before. TOOBIG: a bound of the grammar was
 * met; the state is of no use any more. */
WEFT_MUST_CHECK weft_err weft_gram_take(weft_gram_state *state, const void *bytes, size_t n);
/* The same of a special token. */
WEFT_MUST_CHECK weft_err weft_gram_take_special(weft_gram_state *state, struct weft_str token);
/* Whether the text may end here. */
bool weft_gram_may_end(const weft_gram_state *state);

/* Where a model thinks before it answers (weft_grammar.thinking), any text up to its first end mark, and
 * up to 8 blanks, stand before a text of the grammar. */
#define WEFT_GRAM_THINK_BEGIN "<think>" /* the usual marks */
#define WEFT_GRAM_THINK_END "</think>"
enum weft_gram_phase {
    WEFT_GRAM_BEGINS, /* the begin mark may come, or be under way */
    WEFT_GRAM_THINKS, /* the end mark is yet to come; it may come at any time */
    WEFT_GRAM_ANSWERS,
};
enum weft_gram_phase weft_gram_phase(const weft_gram_state *state);
/* While it thinks: how much of the end mark the text ends with, in bytes. */
uint32_t weft_gram_mark_under_way(const weft_gram_state *state);
/* Any token may come, special or not, and any output: the grammar is WEFT_GRAMMAR_TEXT, which has no masks. */
bool weft_gram_is_text(const weft_gram *gram);

/* The bytes of each token id; len 0: never allowed. Copies them. NOMEM; TOOBIG: a token over 4,096 bytes. */
WEFT_MUST_CHECK weft_err weft_gram_vocab_new(const struct weft_str *tokens, uint32_t n,
                                             weft_gram_vocab **vocab_out);
/* The same, where is_special[n] says which are special tokens. Others in which WEFT_GRAM_SPECIAL
 * occurs are never allowed. */
WEFT_MUST_CHECK weft_err weft_gram_vocab_with_special(const struct weft_str *tokens,
                                                      const bool *is_special, uint32_t n,
                                                      weft_gram_vocab **vocab_out);
void weft_gram_vocab_free(weft_gram_vocab *vocab);
static inline size_t weft_gram_mask_words(uint32_t n_tokens) {
    return ((size_t)n_tokens + 63) / 64;
}
/* Makes what the first mask needs, and keeps it in the grammar; may take as long as compiling. NOMEM; TOOBIG:
 * some mask will. */
WEFT_MUST_CHECK weft_err weft_gram_warm_up(weft_gram *gram, const weft_gram_vocab *vocab);
/* Sets the bits of all tokens that may come next, and clears the others of mask[weft_gram_mask_words].
 * TOOBIG: as in weft_gram_take. */
WEFT_MUST_CHECK weft_err weft_gram_mask(weft_gram_state *state, const weft_gram_vocab *vocab,
                                        uint64_t *mask);

#endif
