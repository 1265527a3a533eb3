#include "grammar.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "expr/expr.h"
#include "match/mask.h"
#include "schema/schema.h"
#include "sources/gbnf.h"
#include "sources/regex.h"

#define EXPRS_MAX (1u << 20) /* some 40 MB, with what the texts of a grammar add */
/* What a mask or a byte of a text may do, and a compilation: some half a second, and one. Sanitizers
 * take ten times as long, and a fuzzer ends what takes twenty seconds. */
#define CALL_WORK_MAX 8000000u
#ifdef WEFT_SANITIZED
#define COMPILE_WORK_MAX 12000000u
#else
#define COMPILE_WORK_MAX 16000000u
#endif
#define STATES_MAX (1u << 18) /* of the lexer */
#define CHOICE_BYTES_MAX ((size_t)16 << 20)

struct weft_gram {
    wefti_expr_pool *pool;
    wefti_lexer *lexer;
    wefti_masks *masks;
    struct wefti_net net;
};

struct weft_gram_state {
    weft_gram *gram;
    struct wefti_place place;
};

/* `tree` is of `pool`; both are the grammar's from here on, or are freed. */
static weft_err finish(wefti_expr_pool *pool, struct wefti_tree *tree, uint32_t root,
                       weft_gram **gram_out, struct weft_errmsg *why) {
    weft_err err = WEFT_E_NOMEM;
    weft_gram *gram = calloc(1, sizeof *gram);
    if (gram) {
        gram->pool = pool;
        err = wefti_net_make(&gram->net, tree, root, why);
        if (!err) gram->lexer = wefti_lexer_new(pool, STATES_MAX);
        if (!err) gram->masks = wefti_masks_new();
        if (!err && (!gram->lexer || !gram->masks)) err = WEFT_E_NOMEM;
    } else {
        wefti_expr_pool_free(pool);
    }
    wefti_tree_fini(tree);
    if (err == WEFT_E_NOMEM) err = weft_err_set(why, err, "no memory for the grammar");
    if (err)
        weft_gram_free(gram);
    else
        *gram_out = gram;
    return err;
}

static weft_err finish_expr(wefti_expr_pool *pool, wefti_expr expr, weft_gram **gram_out,
                            struct weft_errmsg *why) {
    struct wefti_tree tree;
    wefti_tree_init(&tree, pool);
    uint32_t root = wefti_tree_new_rule(&tree);
    uint32_t body = wefti_tree_expr(&tree, expr);
    if (!tree.failed) tree.bodies[root] = body;
    return finish(pool, &tree, root, gram_out, why);
}

static weft_err new_pool(wefti_expr_pool **pool_out, struct weft_errmsg *why) {
    *pool_out = wefti_expr_pool_new(EXPRS_MAX);
    if (*pool_out) wefti_expr_pool_allow(*pool_out, COMPILE_WORK_MAX);
    return *pool_out ? WEFT_OK : weft_err_set(why, WEFT_E_NOMEM, "no memory for a grammar");
}

weft_err weft_gram_regex(struct weft_str regex, weft_gram **gram_out, struct weft_errmsg *why) {
    wefti_expr_pool *pool;
    wefti_expr expr;
    *gram_out = NULL;
    weft_err err = new_pool(&pool, why);
    if (err) return err;
    err = wefti_regex_expr(pool, regex, WEFTI_REGEX_MATCH, WEFTI_PLAIN, &expr, why);
    if (!err) return finish_expr(pool, expr, gram_out, why);
    wefti_expr_pool_free(pool);
    return err;
}

typedef weft_err read_rules(struct wefti_tree *tree, struct weft_str text, uint32_t *root_out,
                            struct weft_errmsg *why);

static weft_err compile(struct weft_str text, read_rules *read, weft_gram **gram_out,
                        struct weft_errmsg *why) {
    wefti_expr_pool *pool;
    struct wefti_tree tree;
    uint32_t root;
    *gram_out = NULL;
    weft_err err = new_pool(&pool, why);
    if (err) return err;
    wefti_tree_init(&tree, pool);
    err = read(&tree, text, &root, why);
    if (!err && (wefti_expr_pool_failed(pool) || tree.failed))
        err = weft_err_set(why, WEFT_E_TOOBIG, "the grammar is too large");
    if (!err) return finish(pool, &tree, root, gram_out, why);
    wefti_tree_fini(&tree);
    wefti_expr_pool_free(pool);
    return err;
}

weft_err weft_gram_gbnf(struct weft_str grammar, weft_gram **gram_out, struct weft_errmsg *why) {
    return compile(grammar, wefti_gbnf_read, gram_out, why);
}

weft_err weft_gram_schema(struct weft_str schema, weft_gram **gram_out, struct weft_errmsg *why) {
    return compile(schema, wefti_schema_read, gram_out, why);
}

weft_err weft_gram_choice(const struct weft_str *choices, size_t n, weft_gram **gram_out,
                          struct weft_errmsg *why) {
    wefti_expr_pool *pool;
    size_t n_bytes = 0;
    *gram_out = NULL;
    for (size_t i = 0; i < n; i++)
        n_bytes += choices[i].len;
    if (n == 0) return weft_err_set(why, WEFT_E_INVAL, "a choice of nothing");
    if (n_bytes > CHOICE_BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "choices of %zu bytes together are over %zu",
                            n_bytes, CHOICE_BYTES_MAX);
    weft_err err = new_pool(&pool, why);
    if (err) return err;
    wefti_expr expr = wefti_expr_texts(pool, choices, n);
    if (!wefti_expr_pool_failed(pool)) return finish_expr(pool, expr, gram_out, why);
    wefti_expr_pool_free(pool);
    return weft_err_set(why, WEFT_E_TOOBIG, "the choices are too large");
}

/* ---------------------------------------------------------------------------- any kind of wish --- */

static weft_err compile_texts(const json_t *list, weft_gram **gram_out, struct weft_errmsg *why) {
    size_t n = json_array_size(list);
    weft_err err = WEFT_OK;
    struct weft_str *texts = calloc(n + 1, sizeof *texts);
    if (!texts) return weft_err_set(why, WEFT_E_NOMEM, "no memory for the choices");
    for (size_t i = 0; i < n && !err; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item)) err = weft_err_set(why, WEFT_E_INVAL, "a choice is no string");
        texts[i] = (struct weft_str){json_string_value(item), json_string_length(item)};
    }
    if (!err) err = weft_gram_choice(texts, n, gram_out, why);
    free(texts);
    return err;
}

static weft_err compile_choice(struct weft_str text, weft_gram **gram_out,
                               struct weft_errmsg *why) {
    json_t *list = json_loadb(text.data, text.len, JSON_ALLOW_NUL, NULL);
    weft_err err = compile_texts(list, gram_out, why); /* of nothing, where it is none */
    json_decref(list);
    return err;
}

static bool is_gbnf(struct weft_str text) {
    return text.len >= 3 && memmem(text.data, text.len, "::=", 3) != NULL;
}

weft_err weft_gram_compile(const struct weft_grammar *wish, weft_gram **gram_out,
                           struct weft_errmsg *why) {
    static const char any_object[] = "{\"type\":\"object\"}";
    struct weft_str text = {wish->text, wish->n_bytes};
    *gram_out = NULL;
    if (wish->thinking != WEFT_THINKING_NONE || wish->json_blanks != WEFT_GRAMMAR_BLANKS_USUAL ||
        wish->json_digits != WEFT_GRAMMAR_DIGITS_USUAL)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "thinking, and other blanks and digits, are not supported");
    switch (wish->kind) {
    case WEFT_GRAMMAR_SCHEMA:
        return weft_gram_schema(text, gram_out, why);
    case WEFT_GRAMMAR_JSON_OBJECT:
        return weft_gram_schema((struct weft_str){any_object, sizeof any_object - 1}, gram_out,
                                why);
    case WEFT_GRAMMAR_REGEX:
        return weft_gram_regex(text, gram_out, why);
    case WEFT_GRAMMAR_CHOICE:
        return compile_choice(text, gram_out, why);
    case WEFT_GRAMMAR_RULES:
        if (is_gbnf(text)) return weft_gram_gbnf(text, gram_out, why);
        return weft_err_set(why, WEFT_E_UNSUPPORTED, "Lark grammars are not supported");
    case WEFT_GRAMMAR_TAGS:
        return weft_err_set(why, WEFT_E_UNSUPPORTED, "structural tags are not supported");
    case WEFT_GRAMMAR_NONE:
    case WEFT_GRAMMAR_COUNT:
        break;
    }
    return weft_err_set(why, WEFT_E_INVAL, "a grammar of no kind");
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
    return sizeof *gram + wefti_expr_pool_bytes(gram->pool) + wefti_lexer_bytes(gram->lexer) +
           wefti_masks_bytes(gram->masks) + gram->net.cap_states * sizeof *gram->net.states;
}

weft_err weft_gram_state_new(weft_gram *gram, weft_gram_state **state_out) {
    weft_gram_state *state = calloc(1, sizeof *state);
    *state_out = NULL;
    if (!state) return WEFT_E_NOMEM;
    state->gram = gram;
    weft_err err = wefti_place_init(&state->place, &gram->net, gram->lexer);
    if (err)
        free(state);
    else
        *state_out = state;
    return err;
}

void weft_gram_state_free(weft_gram_state *state) {
    if (!state) return;
    wefti_place_fini(&state->place);
    free(state);
}

weft_err weft_gram_take(weft_gram_state *state, const void *bytes, size_t n) {
    uint32_t before = wefti_place_n_bytes(&state->place);
    for (size_t i = 0; i < n; i++) {
        wefti_expr_pool_allow(state->gram->pool, CALL_WORK_MAX);
        if (wefti_place_take(&state->place, ((const unsigned char *)bytes)[i])) continue;
        if (state->place.failed || wefti_lexer_failed(state->gram->lexer)) return WEFT_E_TOOBIG;
        wefti_place_rewind(&state->place, before);
        return WEFT_E_INVAL;
    }
    return WEFT_OK;
}

bool weft_gram_may_end(const weft_gram_state *state) {
    return wefti_place_may_end(&state->place);
}

weft_err weft_gram_mask(weft_gram_state *state, const weft_gram_vocab *vocab, uint64_t *mask) {
    wefti_expr_pool_allow(state->gram->pool, CALL_WORK_MAX);
    return wefti_masks_make(state->gram->masks, &state->place, vocab, mask);
}
