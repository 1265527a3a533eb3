/* tokenizer — everything between characters and token ids.
 *
 * Model    A tokenizer is read once and then const. A detokenizer, a stop-string matcher and an
 *          incremental state belong to one request each.
 * Input    Tokenizer files are untrusted and checked; texts may hold any bytes: invalid UTF-8
 *          becomes U+FFFD before encoding. No input takes more than O(n log n) time.
 * Threads  The tokenizer may be shared by any number of threads (each call brings its own scratch).
 * Source   Hugging Face tokenizer.json; GGUF tokenizer.ggml.* keys as llama.cpp reads them;
 *          SentencePiece's tokenizer.model.
 */
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/str.h"

/* --- tokenizer -------------------------------------------------------------------------------- */

typedef struct weft_tokenizer weft_tokenizer;

/* `path` is what weft_model_locate finds: a folder with tokenizer.json or else tokenizer.model (and
 * tokenizer_config.json, generation_config.json, config.json if present), or a GGUF file. *tok_out
 * is the caller's. */
WEFT_MUST_CHECK weft_err weft_tok_open(const char *path, weft_tokenizer **tok_out,
                                       struct weft_errmsg *why);
void weft_tok_free(weft_tokenizer *tok); /* accepts NULL */

uint32_t weft_tok_vocab_size(const weft_tokenizer *tok); /* highest id + 1 */

/* Special ids; false when the tokenizer has none. */
bool weft_tok_bos(const weft_tokenizer *tok, uint32_t *id_out);

/* What chat templates call bos_token and eos_token, as text (of several EOS the tokenizer's own);
 * data is NULL if there is none. Borrowed from the tokenizer. */
struct weft_str weft_tok_bos_token(const weft_tokenizer *tok);
struct weft_str weft_tok_eos_token(const weft_tokenizer *tok);

/* The ids that end a generation, each once, from all of generation_config.json's eos_token_id (one
 * or a list), config.json's, and tokenizer_config.json's eos_token: a chat tokenizer's end of turn
 * is often only in the last. GGUF: eos_token_id, eot_token_id and tokens named <|im_end|>,
 * <|eot_id|>, <|end|>, ... that are control tokens, as llama.cpp does. Borrowed; *n_out may be
 * 0. */
const uint32_t *weft_tok_eos(const weft_tokenizer *tok, size_t *n_out);

/* What stands before the two parts of a text, and after both, where the model is to fill in what is missing
 * between them: prefix, suffix, middle; or suffix, prefix where there is no token for the middle. False: the
 * tokenizer has no such tokens. GGUF: fim_pre_token_id and so on; else by their usual names. */
struct weft_tok_fim {
    uint32_t prefix, suffix, middle;
    bool has_middle;
};
bool weft_tok_fim(const weft_tokenizer *tok, struct weft_tok_fim *out);

#define WEFT_TOK_ADD_SPECIAL 1u /* adds what the post-processor or add_bos_token asks for */
/* Special tokens written out in the text become their ids; without it they are ordinary text (added
 * tokens that are not special are recognised either way). */
#define WEFT_TOK_PARSE_SPECIAL 2u

struct weft_tok_input {
    struct weft_str text; /* any bytes */
    uint32_t flags;       /* WEFT_TOK_... */
    size_t ids_max;       /* WEFT_E_TOOBIG beyond */
};

/* The ids of a text, in an array the caller frees (*ids_out, *n_out; both reset on entry).
 * WEFT_E_TIMEOUT: the tokenizer's regular expressions reached a bound of theirs on this text. */
WEFT_MUST_CHECK weft_err weft_tok_encode(const weft_tokenizer *tok,
                                         const struct weft_tok_input *input, uint32_t **ids_out,
                                         size_t *n_out, struct weft_errmsg *why);

/* A text, or two as one sequence, cut to `ids_max` tokens: what the tokenizer puts around them is counted and kept,
 * of two texts the longer one loses tokens. */
struct weft_tok_cut {
    struct weft_str first, second; /* any bytes */
    bool is_pair;                  /* `second` counts */
    uint32_t flags;                /* WEFT_TOK_... */
    size_t ids_max;
};

/* As weft_tok_encode. *n_first_out is the number of tokens of type 0, from the start; those that follow, if any, have
 * type 1 (BERT's second text). WEFT_E_INVAL: ids_max is less than what is put around the texts. WEFT_E_UNSUPPORTED:
 * the tokenizer's post-processor joins two texts in a way that is not supported. */
WEFT_MUST_CHECK weft_err weft_tok_encode_cut(const weft_tokenizer *tok,
                                             const struct weft_tok_cut *input, uint32_t **ids_out,
                                             size_t *n_out, size_t *n_first_out,
                                             struct weft_errmsg *why);

/* The bytes one token stands for (any bytes, perhaps half a character); borrowed, not terminated. A
 * special token gives its written form, an unknown id nothing. */
const char *weft_tok_token_bytes(const weft_tokenizer *tok, uint32_t id, size_t *len_out);
bool weft_tok_is_special(const weft_tokenizer *tok, uint32_t id);

/* --- detokenizer ------------------------------------------------------------------------------ */

/* Turns ids into text as they come, holding back the bytes of a character that is not complete yet.
 * Bytes that can never become one turn into U+FFFD, so the concatenation of all output is always
 * valid UTF-8 and equals the whole sequence decoded at once. */
struct weft_detok {
    const weft_tokenizer *tok;
    bool skip_special;
    bool at_start;     /* SentencePiece: the first token drops its leading space. Clear it after
                          init for text that continues another, such as a completion. */
    uint8_t n_pending; /* 0..3 */
    char pending[4];
};

void weft_detok_init(struct weft_detok *detok, const weft_tokenizer *tok, bool skip_special);
void weft_detok_push(struct weft_detok *detok, uint32_t id, struct weft_buf *out);
void weft_detok_finish(struct weft_detok *detok, struct weft_buf *out); /* what is left: U+FFFD */

/* --- stop strings ----------------------------------------------------------------------------- */

/* Up to WEFT_STOP_STRINGS_MAX strings, copied and compiled once for any number of matchers.
 * Immutable, so matchers may run in several threads. */
struct weft_stop_set;

/* Each string has 1 to WEFT_STOP_STRING_BYTES_MAX bytes (else WEFT_E_INVAL, WEFT_E_TOOBIG). */
WEFT_MUST_CHECK weft_err weft_stop_set_new(const char *const *strings, const size_t *lens, size_t n,
                                           struct weft_stop_set **set_out);
void weft_stop_set_free(struct weft_stop_set *set); /* accepts NULL */
/* Memory taken by a set of strings of these lengths. */
size_t weft_stop_set_bytes(const size_t *lens, size_t n);

/* A matcher: watches a text stream for the strings of a set, and never lets through a character
 * that may still turn out to belong to one. It takes a word of memory for each
 * string, and some more. */
struct weft_stop;

/* The set is borrowed until the matcher is freed. */
WEFT_MUST_CHECK weft_err weft_stop_new(const struct weft_stop_set *set, bool include_in_output,
                                       struct weft_stop **stop_out);
void weft_stop_free(struct weft_stop *stop); /* accepts NULL */
/* Memory taken by a matcher of a set of `n` strings. */
size_t weft_stop_bytes(size_t n);

/* Feeds the text of one token. Text that is safe now is appended to `out`. Returns true when a stop
 * string was completed by this piece: `out` then got everything up to it (and the string itself
 * with include_in_output), *which_out its index, and the matcher takes no more text. The earliest
 * match wins; of two that end together, the one that starts first. */
bool weft_stop_push(struct weft_stop *stop, const char *text, size_t len, struct weft_buf *out,
                    size_t *which_out);
/* The same for text in which nothing may match yet: a stop string completed here is ordinary text,
 * but one that begins here may be completed by a later push. */
void weft_stop_pass(struct weft_stop *stop, const char *text, size_t len, struct weft_buf *out);
/* The stream ended without a match: appends what was held back. */
void weft_stop_finish(struct weft_stop *stop, struct weft_buf *out);

/* --- sampling defaults ------------------------------------------------------------------------ */

/* generation_config.json's sampling values: defaults for requests, as in vLLM. NaN (or -1 for
 * top_k, max_new_tokens) if the file does not say, or has a value no sampler can use (which is
 * logged). */
struct weft_gen_defaults {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, max_new_tokens;
};

/* A missing file is not an error: everything unset. PROTO: a value is not a number. */
WEFT_MUST_CHECK weft_err weft_tok_gen_defaults(const char *model_path,
                                               struct weft_gen_defaults *out,
                                               struct weft_errmsg *why);

#endif
