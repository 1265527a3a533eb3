/* Texts and pairs of texts for models that read a bounded number of tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tables.h"

/* The ids of a text by itself; there can be no more than a few per byte. */
struct body {
    uint32_t *ids; /* owned */
    size_t n;
};

static weft_err encode_body(const weft_tokenizer *tok, struct weft_str text, uint32_t flags,
                            struct body *body, struct weft_errmsg *why) {
    /* As far as encode.c lets a text grow: no bound of ours. */
    struct weft_tok_input input = {text, flags & ~WEFT_TOK_ADD_SPECIAL, 64 * text.len + 4096};
    return weft_tok_encode(tok, &input, &body->ids, &body->n, why);
}

/* Takes tokens from the end of the longer body, of equal ones from the second, until `keep` are left. */
static void shorten(struct body *first, struct body *second, size_t keep) {
    size_t more = first->n > second->n ? first->n - second->n : second->n - first->n;
    struct body *longer = first->n > second->n ? first : second;
    size_t n = first->n + second->n;
    if (n <= keep) return;
    size_t cut = n - keep < more ? n - keep : more;
    longer->n -= cut;
    n -= cut;
    if (n <= keep) return;
    WEFT_ASSERT(first->n == second->n);
    size_t rest = n - keep;
    second->n -= (rest + 1) / 2;
    first->n -= rest / 2;
}

static uint32_t *put(uint32_t *at, const uint32_t *ids, size_t n) {
    if (n > 0) memcpy(at, ids, n * sizeof *at);
    return at + n;
}

/* What is put around the texts; nothing of it if nobody asked. */
static struct wefti_tok_pair_rules rules_of(const weft_tokenizer *tok,
                                            const struct weft_tok_cut *input) {
    struct wefti_tok_pair_rules rules = {.typed = input->is_pair && tok->pair.typed};
    if (!(input->flags & WEFT_TOK_ADD_SPECIAL)) return rules;
    if (input->is_pair) return tok->pair;
    memcpy(rules.prefix_ids, tok->prefix_ids, sizeof rules.prefix_ids);
    memcpy(rules.suffix_ids, tok->suffix_ids, sizeof rules.suffix_ids);
    rules.n_prefix = tok->n_prefix;
    rules.n_suffix = tok->n_suffix;
    return rules;
}

weft_err weft_tok_encode_cut(const weft_tokenizer *tok, const struct weft_tok_cut *input,
                             uint32_t **ids_out, size_t *n_out, size_t *n_first_out,
                             struct weft_errmsg *why) {
    WEFT_ASSERT(tok && (input->first.data || input->first.len == 0));
    *ids_out = NULL;
    *n_out = *n_first_out = 0;
    if (input->is_pair && tok->pair.is_odd)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "the tokenizer's post_processor joins two texts in an unknown way");
    const struct wefti_tok_pair_rules rules = rules_of(tok, input);
    size_t n_around = rules.n_prefix + rules.n_middle + rules.n_suffix;
    if (n_around > input->ids_max)
        return weft_err_set(why, WEFT_E_INVAL,
                            "%zu tokens are to be left, and %zu are put around a text",
                            input->ids_max, n_around);
    struct body first = {0}, second = {0};
    weft_err err = encode_body(tok, input->first, input->flags, &first, why);
    if (!err && input->is_pair) err = encode_body(tok, input->second, input->flags, &second, why);
    if (err) goto cleanup;
    shorten(&first, &second, input->ids_max - n_around);
    size_t n = n_around + first.n + second.n;
    uint32_t *ids = malloc((n + 1) * sizeof *ids); /* one more: an empty list is no failure */
    if (!ids) {
        err = weft_err_set(why, WEFT_E_NOMEM, "no memory for %zu tokens", n);
        goto cleanup;
    }
    *ids_out = ids;
    *n_out = n;
    ids = put(ids, rules.prefix_ids, rules.n_prefix);
    ids = put(ids, first.ids, first.n);
    ids = put(ids, rules.middle_ids, rules.n_middle);
    ids = put(ids, second.ids, second.n);
    (void)put(ids, rules.suffix_ids, rules.n_suffix);
    *n_first_out = rules.typed ? rules.n_prefix + first.n + rules.n_middle_first : n;
cleanup:
    free(first.ids);
    free(second.ids);
    return err;
}
