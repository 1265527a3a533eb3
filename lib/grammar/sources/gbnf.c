#include "sources/gbnf.h"

#include <string.h>

#include "codec/utf8.h"
#include "expr/chars.h"
#include "sources/reader.h"

static uint32_t read_alt(struct wefti_reader *r, bool is_nested);

/* Blanks and comments; line breaks, too, where they may stand. */
static void skip(struct wefti_reader *r, bool over_lines) {
    for (; r->at < r->len; r->at++) {
        char c = r->text[r->at];
        if (c == '#') {
            while (r->at < r->len && r->text[r->at] != '\n' && r->text[r->at] != '\r')
                r->at++;
            if (r->at == r->len) return;
            c = r->text[r->at];
        }
        bool is_blank = c == ' ' || c == '\t', is_break = c == '\n' || c == '\r';
        if (!is_blank && !(is_break && over_lines)) return;
    }
}

/* ------------------------------------------------------------------------------------ names --- */

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Length 0: there is none. */
static struct weft_str take_name(struct wefti_reader *r) {
    size_t from = r->at;
    while (r->at < r->len && is_name_char(r->text[r->at]))
        r->at++;
    return (struct weft_str){r->text + from, r->at - from};
}

/* ------------------------------------------------------------------------------- characters --- */

/* One of a literal or a class. */
static uint32_t take_char(struct wefti_reader *r) {
    static const char named[] = "tnr\\\"[]^-", values[] = "\t\n\r\\\"[]^-";
    size_t n;
    if (!wefti_reader_take(r, '\\')) {
        uint32_t c = weft_utf8_get(r->text + r->at, &n);
        r->at += n;
        return c;
    }
    char letter = wefti_reader_peek(r);
    if (r->at == r->len) {
        wefti_reader_fail(r, "nothing stands behind the last backslash");
        return 0;
    }
    const char *name = memchr(named, letter, sizeof named - 1);
    if (!name && letter != 'x' && letter != 'u' && letter != 'U') {
        wefti_reader_fail(r, "there is no such escape");
        return 0;
    }
    r->at++;
    if (name) return (unsigned char)values[name - named];
    return wefti_reader_hex(r, letter == 'x' ? 2 : letter == 'u' ? 4 : 8);
}

static uint32_t add_chars(struct wefti_reader *r, struct wefti_chars *set) {
    if (set->failed) wefti_reader_fail_at(r, r->at, WEFT_E_TOOBIG, "a class has too many ranges");
    uint32_t node = wefti_tree_expr(r->tree, wefti_chars_expr(r->tree->pool, set, WEFTI_PLAIN));
    wefti_chars_fini(set);
    return node;
}

/* Behind its first quote. */
static uint32_t read_literal(struct wefti_reader *r) {
    wefti_expr_pool *pool = r->tree->pool;
    struct weft_buf text;
    weft_buf_init(&text, WEFTI_READER_BYTES_MAX);
    while (!r->err && !wefti_reader_take(r, '"')) {
        if (r->at == r->len || wefti_reader_peek(r) == '\n')
            wefti_reader_fail(r, "a literal has no end");
        else
            weft_utf8_put(&text, take_char(r));
    }
    if (text.failed) wefti_reader_fail_at(r, r->at, WEFT_E_TOOBIG, "a literal is too long");
    uint32_t node = wefti_tree_expr(r->tree, wefti_expr_literal(pool, text.data, text.len));
    weft_buf_fini(&text);
    return node;
}

/* Behind "[". */
static uint32_t read_class(struct wefti_reader *r) {
    struct wefti_chars set = {0};
    bool inverts = wefti_reader_take(r, '^');
    while (!r->err && !wefti_reader_take(r, ']')) {
        if (r->at == r->len) {
            wefti_reader_fail(r, "a class has no end");
            break;
        }
        uint32_t first = take_char(r), last = first;
        if (wefti_reader_peek(r) == '-' && r->len - r->at > 1 && r->text[r->at + 1] != ']') {
            r->at++;
            last = take_char(r);
            if (!r->err && first > last) wefti_reader_fail(r, "a range runs backwards");
        }
        wefti_chars_add(&set, first, last);
    }
    if (inverts) wefti_chars_invert(&set);
    return add_chars(r, &set);
}

/* -------------------------------------------------------------------------------- structure --- */

/* Behind "{". */
static uint32_t read_bounds(struct wefti_reader *r, uint32_t child) {
    uint32_t min, max;
    skip(r, true);
    if (!wefti_reader_count(r, &min)) wefti_reader_fail(r, "{ wants a count behind it");
    skip(r, true);
    max = min;
    if (wefti_reader_take(r, ',')) {
        skip(r, true);
        if (!wefti_reader_count(r, &max)) max = WEFTI_EXPR_MANY;
        skip(r, true);
    }
    if (!wefti_reader_take(r, '}')) wefti_reader_fail(r, "a count has no }");
    if (!r->err && min > max) wefti_reader_fail(r, "a repeat's bounds are the wrong way round");
    return r->err ? WEFTI_TREE_NONE : wefti_tree_repeat(r->tree, child, min, max);
}

static uint32_t read_atom(struct wefti_reader *r, bool is_nested) {
    struct wefti_chars set = {0};
    if (wefti_reader_take(r, '"')) return read_literal(r);
    if (wefti_reader_take(r, '[')) return read_class(r);
    if (wefti_reader_take(r, '.')) {
        wefti_chars_add(&set, 0, WEFTI_CHAR_MAX);
        return add_chars(r, &set);
    }
    if (wefti_reader_take(r, '(')) {
        skip(r, true);
        uint32_t inner = read_alt(r, true);
        if (!wefti_reader_take(r, ')')) wefti_reader_fail(r, "a group has no end");
        return inner;
    }
    if (wefti_reader_peek(r) == '<' || wefti_reader_peek(r) == '!') {
        wefti_reader_refuse(r, "references to tokens are not supported");
        return WEFTI_TREE_NONE;
    }
    struct weft_str name = take_name(r);
    if (name.len == 0) {
        wefti_reader_fail(r, is_nested
                                 ? "a literal, a class, a rule or ) should stand here"
                                 : "a literal, a class, a rule or a new line should stand here");
        return WEFTI_TREE_NONE;
    }
    return wefti_tree_rule(r->tree, wefti_reader_rule(r, name));
}

static uint32_t read_repeat(struct wefti_reader *r, bool is_nested) {
    uint32_t node = read_atom(r, is_nested);
    while (!r->err) {
        skip(r, is_nested);
        if (wefti_reader_take(r, '*'))
            node = wefti_tree_repeat(r->tree, node, 0, WEFTI_EXPR_MANY);
        else if (wefti_reader_take(r, '+'))
            node = wefti_tree_repeat(r->tree, node, 1, WEFTI_EXPR_MANY);
        else if (wefti_reader_take(r, '?'))
            node = wefti_tree_repeat(r->tree, node, 0, 1);
        else if (wefti_reader_take(r, '{'))
            node = read_bounds(r, node);
        else
            break;
    }
    return node;
}

/* Whether the next line begins with "|"; then it is behind the line breaks. */
static bool goes_on(struct wefti_reader *r) {
    size_t from = r->at;
    skip(r, true);
    if (wefti_reader_peek(r) == '|') return true;
    r->at = from;
    return false;
}

static uint32_t read_cat(struct wefti_reader *r, bool is_nested) {
    uint32_t cat = wefti_tree_parent(r->tree, WEFTI_TREE_CAT);
    skip(r, is_nested);
    while (!r->err && r->at < r->len && !strchr("|)\r\n", wefti_reader_peek(r))) {
        uint32_t part = read_repeat(r, is_nested);
        if (!r->err) wefti_tree_add(r->tree, cat, part);
    }
    return cat;
}

static uint32_t read_alt(struct wefti_reader *r, bool is_nested) {
    uint32_t alt = wefti_tree_parent(r->tree, WEFTI_TREE_ALT);
    wefti_reader_enter(r);
    do {
        if (r->err) break;
        if (alt != WEFTI_TREE_NONE && r->tree->nodes[alt].child != WEFTI_TREE_NONE) skip(r, true);
        uint32_t cat = read_cat(r, is_nested);
        wefti_tree_add(r->tree, alt, cat);
    } while (goes_on(r) && wefti_reader_take(r, '|'));
    wefti_reader_leave(r);
    return alt;
}

static void read_rule(struct wefti_reader *r) {
    size_t from = r->at;
    struct weft_str name = take_name(r);
    if (name.len == 0) {
        wefti_reader_fail(r, "a rule's name should stand here");
        return;
    }
    uint32_t rule = wefti_reader_rule(r, name);
    skip(r, false);
    if (r->err) return;
    if (!wefti_reader_take_text(r, "::=")) {
        wefti_reader_fail(r, "::= should stand here");
        return;
    }
    skip(r, true);
    uint32_t body = read_alt(r, false);
    wefti_reader_define(r, from, rule, body);
    if (r->at < r->len && !strchr("\r\n", wefti_reader_peek(r)))
        wefti_reader_fail(r, "a rule should end here");
    skip(r, true);
}

weft_err wefti_gbnf_read(struct wefti_tree *tree, struct weft_str text, uint32_t *root_out,
                         struct weft_errmsg *why) {
    struct wefti_reader r;
    *root_out = WEFTI_TREE_NONE;
    weft_err err = wefti_reader_init(&r, tree, text, why);
    if (err) return err;
    skip(&r, true);
    while (r.at < r.len && !r.err)
        read_rule(&r);
    wefti_reader_check_defined(&r);
    const struct wefti_reader_name *root = wefti_reader_find(&r, "root");
    if (!r.err && !root)
        r.err = weft_err_set(why, WEFT_E_INVAL, "the grammar has no rule named root");
    if (!r.err && root) *root_out = root->rule;
    wefti_reader_fini(&r);
    return r.err;
}
