#include "grammar.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "expr/expr.h"
#include "joint/lark.h"
#include "joint/tags.h"
#include "match/mask.h"
#include "schema/schema.h"
#include "sources/gbnf.h"
#include "sources/regex.h"
#include "sources/thinking.h"

#define EXPRS_MAX (1u << 20) /* some 40 MB, with what the texts of a grammar add */
/* What a mask or a byte of a text may do, and a compilation: each some 0.2 to 0.5 s of a CPU. Most
 * schemas take a thousandth of it to compile; all but one of those of the sample that compile at all, a
 * tenth. That one's masks take more than 8 million. Sanitizers take ten times as long, and a fuzzer ends
 * what takes twenty seconds. */
#ifdef WEFT_SANITIZED
#define CALL_WORK_MAX 8000000u
#else
#define CALL_WORK_MAX 16000000u
#endif
#define COMPILE_WORK_MAX WEFT_GRAM_COMPILE_WORK_MAX
#define TOKEN_BYTES 16        /* of a text, for which a call's work is allowed */
#define STATES_MAX (1u << 18) /* of the lexer */

/* Of any text only the thinking is looked at: all but `wish` is NULL or zero. */
struct weft_gram {
    wefti_expr_pool *pool;
    wefti_lexer *lexer;
    wefti_masks *masks;
    struct wefti_net net;
    struct weft_grammar wish; /* its text is gone */
};

struct weft_gram_state {
    weft_gram *gram;
    struct wefti_place place;
    struct wefti_thinking thinking;
};

typedef weft_err read_rules(struct wefti_tree *tree, struct weft_str text, uint32_t *root_out,
                            struct weft_errmsg *why);

static weft_err read_expr(struct wefti_tree *tree, wefti_expr expr, uint32_t *root_out) {
    *root_out = wefti_tree_new_rule(tree);
    uint32_t body = wefti_tree_expr(tree, expr);
    if (!tree->failed) tree->bodies[*root_out] = body;
    return WEFT_OK;
}

static weft_err read_regex(struct wefti_tree *tree, struct weft_str text, uint32_t *root_out,
                           struct weft_errmsg *why) {
    wefti_expr expr;
    weft_err err = wefti_regex_expr(tree->pool, text, WEFTI_REGEX_MATCH, WEFTI_PLAIN, &expr, why);
    return err ? err : read_expr(tree, expr, root_out);
}

static weft_err read_texts(struct wefti_tree *tree, const json_t *list, uint32_t *root_out,
                           struct weft_errmsg *why) {
    size_t n = json_array_size(list), i;
    weft_err err = n ? WEFT_OK : weft_err_set(why, WEFT_E_INVAL, "a choice of nothing");
    struct weft_str *texts = calloc(n + 1, sizeof *texts);
    json_t *item;
    if (!texts) return weft_err_set(why, WEFT_E_NOMEM, "no memory for the choices");
    json_array_foreach(list, i, item) {
        texts[i] = (struct weft_str){json_string_value(item), json_string_length(item)};
        if (!json_is_string(item)) err = weft_err_set(why, WEFT_E_INVAL, "a choice is no string");
    }
    if (!err) err = read_expr(tree, wefti_expr_texts(tree->pool, texts, n), root_out);
    free(texts);
    return err;
}

static weft_err read_choice(struct wefti_tree *tree, struct weft_str text, uint32_t *root_out,
                            struct weft_errmsg *why) {
    json_t *list = json_loadb(text.data, text.len, JSON_ALLOW_NUL, NULL);
    weft_err err = read_texts(tree, list, root_out, why); /* of nothing, where it is none */
    json_decref(list);
    return err;
}

static weft_err read_any_object(struct wefti_tree *tree, struct weft_str text, uint32_t *root_out,
                                struct weft_errmsg *why) {
    static const char schema[] = "{\"type\":\"object\"}";
    (void)text;
    return wefti_schema_read(tree, (struct weft_str){schema, sizeof schema - 1}, root_out, why);
}

static read_rules *const readers[WEFT_GRAMMAR_COUNT] = {
    [WEFT_GRAMMAR_SCHEMA] = wefti_schema_read, [WEFT_GRAMMAR_JSON_OBJECT] = read_any_object,
    [WEFT_GRAMMAR_REGEX] = read_regex,         [WEFT_GRAMMAR_RULES] = wefti_rules_read,
    [WEFT_GRAMMAR_CHOICE] = read_choice,       [WEFT_GRAMMAR_TAGS] = wefti_tags_read,
};

/* A text, into a tree whose pool is there. */
static weft_err read_wish(const struct weft_grammar *wish, read_rules *read,
                          struct wefti_tree *tree, uint32_t *root_out, struct weft_errmsg *why) {
    *root_out = WEFTI_TREE_NONE;
    weft_err err = weft_grammar_check(wish, why);
    if (err) return err;
    tree->json_blanks = wish->json_blanks;
    tree->json_digits = wish->json_digits;
    err = read(tree, (struct weft_str){wish->text, wish->n_bytes}, root_out, why);
    if (!err && !tree->failed) *root_out = wefti_thinking_before(tree, *root_out, wish);
    if (!err && (wefti_expr_pool_failed(tree->pool) || tree->failed))
        err = weft_err_set(why, WEFT_E_TOOBIG, "the grammar is too large");
    return err;
}

/* Who wants what, and how it is read. */
struct order {
    const struct weft_grammar *wish;
    read_rules *read;
    const struct weft_gram_specials *specials; /* NULL: not known */
    uint64_t work_max;
};

static weft_err make(weft_gram *gram, const struct order *order, struct weft_errmsg *why) {
    const struct weft_grammar *wish = order->wish;
    struct wefti_tree tree;
    uint32_t root;
    gram->wish = *wish;
    gram->wish.text = NULL;
    gram->pool = wefti_expr_pool_new(EXPRS_MAX);
    if (!gram->pool) return WEFT_E_NOMEM;
    wefti_expr_pool_allow(gram->pool, order->work_max);
    wefti_tree_init(&tree, gram->pool);
    tree.specials = order->specials;
    weft_err err = read_wish(wish, order->read, &tree, &root, why);
    if (!err) err = wefti_net_make(&gram->net, &tree, root, why);
    wefti_tree_fini(&tree);
    if (!err) gram->lexer = wefti_lexer_new(gram->pool, STATES_MAX);
    if (!err) gram->masks = wefti_masks_new();
    return !err && (!gram->lexer || !gram->masks) ? WEFT_E_NOMEM : err;
}

static weft_err compile(const struct order *order, weft_gram **gram_out, struct weft_errmsg *why) {
    *gram_out = NULL;
    weft_gram *gram = calloc(1, sizeof *gram);
    weft_err err = gram ? make(gram, order, why) : WEFT_E_NOMEM;
    if (err == WEFT_E_NOMEM) err = weft_err_set(why, err, "no memory for the grammar");
    if (err)
        weft_gram_free(gram);
    else
        *gram_out = gram;
    return err;
}

static weft_err make_text(const struct weft_grammar *wish, weft_gram **gram_out,
                          struct weft_errmsg *why) {
    weft_err err = weft_grammar_check(wish, why);
    if (err) return err;
    *gram_out = calloc(1, sizeof **gram_out);
    if (!*gram_out) return weft_err_set(why, WEFT_E_NOMEM, "no memory for the grammar");
    (*gram_out)->wish = *wish;
    (*gram_out)->wish.text = NULL;
    return WEFT_OK;
}

/* A state of the net is made, and looked at several times: as many steps of the pool take about as long. */
#define STATE_WORK ((uint64_t)8)

bool weft_gram_can_compile(const struct weft_grammar *wish, uint64_t *work_left) {
    uint64_t most = *work_left < COMPILE_WORK_MAX ? *work_left : COMPILE_WORK_MAX,
             took = wish->n_bytes;
    weft_gram *gram = calloc(1, sizeof *gram);
    if (!gram || most <= took || wish->kind >= WEFT_GRAMMAR_COUNT || !readers[wish->kind]) {
        free(gram);
        return false;
    }
    const struct order order = {wish, readers[wish->kind], NULL, most - took};
    weft_err err = make(gram, &order, NULL);
    if (gram->pool) took += wefti_expr_pool_work(gram->pool);
    took += STATE_WORK * gram->net.n_made;
    *work_left -= took < *work_left ? took : *work_left;
    weft_gram_free(gram);
    return !err;
}

bool weft_gram_is_text(const weft_gram *gram) {
    return gram->wish.kind == WEFT_GRAMMAR_TEXT;
}

weft_err weft_gram_compile_for(const struct weft_gram_specials *specials,
                               const struct weft_grammar *wish, weft_gram **gram_out,
                               struct weft_errmsg *why) {
    *gram_out = NULL;
    if (wish->kind == WEFT_GRAMMAR_TEXT) return make_text(wish, gram_out, why);
    if (wish->kind < WEFT_GRAMMAR_COUNT && readers[wish->kind])
        return compile(&(struct order){wish, readers[wish->kind], specials, COMPILE_WORK_MAX},
                       gram_out, why);
    return weft_err_set(why, WEFT_E_INVAL, "a grammar of no kind");
}

weft_err weft_gram_compile(const struct weft_grammar *wish, weft_gram **gram_out,
                           struct weft_errmsg *why) {
    return weft_gram_compile_for(NULL, wish, gram_out, why);
}

weft_err weft_gram_compile_gbnf(const struct weft_grammar *wish, weft_gram **gram_out,
                                struct weft_errmsg *why) {
    return compile(&(struct order){wish, wefti_gbnf_read, NULL, COMPILE_WORK_MAX}, gram_out, why);
}

weft_err weft_gram_compile_lark(const struct weft_grammar *wish, weft_gram **gram_out,
                                struct weft_errmsg *why) {
    return compile(&(struct order){wish, wefti_lark_read, NULL, COMPILE_WORK_MAX}, gram_out, why);
}

static weft_err compile_text(struct weft_str text, read_rules *read, weft_gram **gram_out,
                             struct weft_errmsg *why) {
    struct weft_grammar wish;
    *gram_out = NULL;
    weft_grammar_init(&wish);
    if (text.len > UINT32_MAX) return weft_err_set(why, WEFT_E_TOOBIG, "a grammar of over 4 GiB");
    wish.text = text.data;
    wish.n_bytes = (uint32_t)text.len;
    return compile(&(struct order){&wish, read, NULL, COMPILE_WORK_MAX}, gram_out, why);
}

weft_err weft_gram_regex(struct weft_str regex, weft_gram **gram_out, struct weft_errmsg *why) {
    return compile_text(regex, read_regex, gram_out, why);
}

weft_err weft_gram_gbnf(struct weft_str grammar, weft_gram **gram_out, struct weft_errmsg *why) {
    return compile_text(grammar, wefti_gbnf_read, gram_out, why);
}

weft_err weft_gram_lark(struct weft_str grammar, weft_gram **gram_out, struct weft_errmsg *why) {
    return compile_text(grammar, wefti_lark_read, gram_out, why);
}

weft_err weft_gram_tags(struct weft_str tags, weft_gram **gram_out, struct weft_errmsg *why) {
    return compile_text(tags, wefti_tags_read, gram_out, why);
}

weft_err weft_gram_schema(struct weft_str schema, weft_gram **gram_out, struct weft_errmsg *why) {
    return compile_text(schema, wefti_schema_read, gram_out, why);
}

void weft_gram_free(weft_gram *gram) {
    if (!gram) return;
    wefti_masks_free(gram->masks);
    wefti_lexer_free(gram->lexer);
    wefti_net_fini(&gram->net);
    wefti_expr_pool_free(gram->pool);
    free(gram);
}

size_t weft_gram_bytes(const weft_gram *gram) {
    if (weft_gram_is_text(gram)) return sizeof *gram;
    return sizeof *gram + wefti_expr_pool_bytes(gram->pool) + wefti_lexer_bytes(gram->lexer) +
           wefti_masks_bytes(gram->masks) + gram->net.cap_states * sizeof *gram->net.states;
}

weft_err weft_gram_state_new(weft_gram *gram, weft_gram_state **state_out) {
    weft_gram_state *state = calloc(1, sizeof *state);
    *state_out = NULL;
    if (!state) return WEFT_E_NOMEM;
    state->gram = gram;
    wefti_thinking_init(&state->thinking, &gram->wish);
    weft_err err = WEFT_OK;
    if (!weft_gram_is_text(gram)) err = wefti_place_init(&state->place, &gram->net, gram->lexer);
    if (err)
        free(state);
    else
        *state_out = state;
    return err;
}

size_t weft_gram_state_bytes(const weft_gram_state *state) {
    return sizeof *state + wefti_place_bytes(&state->place);
}

void weft_gram_state_free(weft_gram_state *state) {
    if (!state) return;
    wefti_place_fini(&state->place);
    free(state);
}

static void take_text(weft_gram_state *state, const unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        wefti_thinking_take(&state->thinking, bytes[i]);
}

weft_err weft_gram_take(weft_gram_state *state, const void *bytes, size_t n) {
    if (weft_gram_is_text(state->gram)) {
        take_text(state, bytes, n);
        return WEFT_OK;
    }
    uint32_t before = wefti_place_n_bytes(&state->place);
    struct wefti_thinking thinking = state->thinking;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = ((const unsigned char *)bytes)[i];
        if (i % TOKEN_BYTES == 0) {
            wefti_expr_pool_allow(state->gram->pool, CALL_WORK_MAX);
            wefti_place_allow(&state->place);
        }
        wefti_thinking_take(&thinking, byte);
        if (wefti_place_take(&state->place, byte)) continue;
        if (state->place.failed || wefti_lexer_failed(state->gram->lexer)) return WEFT_E_TOOBIG;
        wefti_place_rewind(&state->place, before);
        return WEFT_E_INVAL;
    }
    state->thinking = thinking;
    return WEFT_OK;
}

weft_err weft_gram_take_special(weft_gram_state *state, struct weft_str token) {
    char bytes[WEFT_GRAM_TOKEN_BYTES_MAX + 2];
    if (token.len == 0 || token.len > WEFT_GRAM_TOKEN_BYTES_MAX) return WEFT_E_INVAL;
    bytes[0] = bytes[token.len + 1] = (char)WEFT_GRAM_SPECIAL;
    memcpy(bytes + 1, token.data, token.len);
    return weft_gram_take(state, bytes, token.len + 2);
}

enum weft_gram_phase weft_gram_phase(const weft_gram_state *state) {
    return state->thinking.phase;
}

uint32_t weft_gram_mark_under_way(const weft_gram_state *state) {
    return state->thinking.phase == WEFT_GRAM_THINKS ? state->thinking.n_matched : 0;
}

bool weft_gram_may_end(const weft_gram_state *state) {
    if (weft_gram_is_text(state->gram)) return true;
    return wefti_place_may_end(&state->place);
}

weft_err weft_gram_mask(weft_gram_state *state, const weft_gram_vocab *vocab, uint64_t *mask) {
    WEFT_ASSERT(!weft_gram_is_text(state->gram));
    wefti_expr_pool_allow(state->gram->pool, CALL_WORK_MAX);
    wefti_place_allow(&state->place);
    return wefti_masks_make(state->gram->masks, &state->place, vocab, mask);
}

weft_err weft_gram_warm_up(weft_gram *gram, const weft_gram_vocab *vocab) {
    weft_gram_state *state = NULL;
    if (weft_gram_is_text(gram)) return WEFT_OK;
    uint64_t *mask = calloc(weft_gram_mask_words(vocab->n_tokens) + 1, sizeof *mask);
    weft_err err = mask ? weft_gram_state_new(gram, &state) : WEFT_E_NOMEM;
    wefti_expr_pool_allow(gram->pool, CALL_WORK_MAX);
    if (!err) err = wefti_masks_make(gram->masks, &state->place, vocab, mask);
    weft_gram_state_free(state);
    free(mask);
    return err;
}
