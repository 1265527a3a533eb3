/* WordPiece as BERT has it: of the pieces that a word begins with the longest, then of those that go on with it
 * the longest, and so on; a word whose rest begins with no piece is unknown as a whole.
 *
 * Vocabularies mark either the pieces that begin a word (GGUF) or those that do not (the original: "##"). Both are
 * one trie; the walk starts at the node that the mark leads to. */
#include "pieces/wordpiece.h"

#include "base/check.h"
#include "codec/utf8.h"

static size_t count_chars(const char *text, size_t len, size_t max) {
    size_t n = 0;
    for (size_t at = 0; at < len && n <= max; at += weft_utf8_len(text[at]))
        n++;
    return n;
}

/* The longest piece at the start of `text`, from `node` on; its bytes (0: none). */
static size_t longest(const weft_tokenizer *tok, uint32_t node, const char *text, size_t len,
                      uint32_t *id_out) {
    size_t best = 0;
    *id_out = WEFTI_TOK_NO_ID;
    for (size_t at = 0; at < len; at++) {
        node = wefti_tok_trie_step(&tok->trie, node, (uint8_t)text[at]);
        if (node == 0) break;
        if (tok->trie.nodes[node].id == WEFTI_TOK_NO_ID) continue;
        *id_out = tok->trie.nodes[node].id;
        best = at + 1;
    }
    return best;
}

weft_err wefti_tok_wordpiece_run(const weft_tokenizer *tok, const char *text, size_t len,
                                 struct wefti_tok_ids *ids, struct weft_errmsg *why) {
    const struct wefti_tok_word_rules *word = &tok->word;
    WEFT_ASSERT(word->is_used && tok->unk_id != WEFTI_TOK_NO_ID);
    size_t before = ids->n, n;
    bool known = count_chars(text, len, word->chars_max) <= word->chars_max;
    weft_err err = WEFT_OK;
    for (size_t at = 0; at < len && known && !err; at += n) {
        uint32_t node = at == 0 ? word->head_node : word->tail_node, id;
        bool has_any = at == 0 ? word->has_heads : word->has_tails;
        n = has_any ? longest(tok, node, text + at, len - at, &id) : 0;
        known = n > 0;
        if (known) err = wefti_tok_ids_add(ids, id, why);
    }
    if (err || known) return err;
    ids->n = before;
    return wefti_tok_ids_add(ids, tok->unk_id, why);
}

/* False: no piece begins with `mark`. */
static bool find_node(const struct wefti_tok_trie *trie, const char *mark, uint32_t *node_out) {
    *node_out = 0;
    for (; *mark; mark++) {
        *node_out = wefti_tok_trie_step(trie, *node_out, (uint8_t)*mark);
        if (*node_out == 0) return false;
    }
    return true;
}

weft_err wefti_tok_wordpiece_seal(weft_tokenizer *tok, struct weft_errmsg *why) {
    struct wefti_tok_word_rules *word = &tok->word;
    if (tok->unk_id == WEFTI_TOK_NO_ID)
        return weft_err_set(
            why, WEFT_E_UNSUPPORTED,
            "a WordPiece vocabulary without a token for unknown words is not supported");
    weft_err err = wefti_tok_trie_build(&tok->trie, &tok->vocab, why);
    if (err) return err;
    word->has_heads = find_node(&tok->trie, word->head, &word->head_node);
    word->has_tails = find_node(&tok->trie, word->tail, &word->tail_node);
    return WEFT_OK;
}
