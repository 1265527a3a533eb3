#include "sources/gbnf.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "codec/utf8.h"
#include "expr/chars.h"

#define BYTES_MAX (4u << 20)
#define DEPTH_MAX 500u
#define COUNT_MAX 1000000u
#define RULES_MAX 100000u

struct name {
    const char *text;
    size_t len;
    uint32_t rule;
    size_t first_at; /* where it is first used, for who looks for its definition */
};

struct reader {
    const char *text;
    size_t at, len;
    struct wefti_tree *tree;
    struct name *names; /* in order of the rules */
    uint32_t *slots;    /* open addressing over them: index + 1 */
    uint32_t n, n_slots;
    uint32_t depth;
    struct weft_errmsg *why;
    weft_err err;
};

static uint32_t read_alt(struct reader *r, bool is_nested);

static void fail_at(struct reader *r, size_t at, weft_err err, const char *what) {
    size_t line = 1, begin = 0;
    if (r->err) return;
    for (size_t i = 0; i < at; i++) {
        if (r->text[i] != '\n') continue;
        line++;
        begin = i + 1;
    }
    r->err = weft_err_set(r->why, err, "grammar, line %zu, column %zu: %s", line,
                          weft_utf8_count(r->text + begin, at - begin) + 1, what);
}

static void fail(struct reader *r, const char *what) {
    fail_at(r, r->at, WEFT_E_INVAL, what);
}

static bool take(struct reader *r, char c) {
    if (r->at == r->len || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

static char peek(const struct reader *r) {
    return r->at < r->len ? r->text[r->at] : '\0';
}

/* Blanks and comments; line breaks, too, where they may stand. */
static void skip(struct reader *r, bool over_lines) {
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

static bool grow_names(struct reader *r) {
    uint32_t n_slots = r->n_slots ? 2 * r->n_slots : 64;
    struct name *names = realloc(r->names, n_slots / 2 * sizeof *names);
    if (names) r->names = names;
    uint32_t *slots = names ? calloc(n_slots, sizeof *slots) : NULL;
    if (!slots) return false;
    free(r->slots);
    r->slots = slots;
    r->n_slots = n_slots;
    return true;
}

static uint32_t *slot_of(struct reader *r, const char *text, size_t len) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    for (;; hash++) {
        uint32_t *slot = &r->slots[hash & (r->n_slots - 1)];
        if (!*slot) return slot;
        const struct name *name = &r->names[*slot - 1];
        if (name->len == len && memcmp(name->text, text, len) == 0) return slot;
    }
}

/* The rule of that name, new where there is none. */
static uint32_t rule_of(struct reader *r, const char *text, size_t len) {
    if (r->n_slots == 0 || 2 * r->n >= r->n_slots) {
        if (r->n > RULES_MAX || !grow_names(r)) {
            fail_at(r, r->at, WEFT_E_TOOBIG, "there are too many rules");
            return 0;
        }
        for (uint32_t i = 0; i < r->n; i++)
            *slot_of(r, r->names[i].text, r->names[i].len) = i + 1;
    }
    uint32_t *slot = slot_of(r, text, len);
    if (*slot) return r->names[*slot - 1].rule;
    uint32_t rule = wefti_tree_new_rule(r->tree);
    r->names[r->n] = (struct name){text, len, rule, (size_t)(text - r->text)};
    *slot = ++r->n;
    return rule;
}

/* Length 0: there is none. */
static struct weft_str take_name(struct reader *r) {
    size_t from = r->at;
    while (r->at < r->len && is_name_char(r->text[r->at]))
        r->at++;
    return (struct weft_str){r->text + from, r->at - from};
}

/* ------------------------------------------------------------------------------- characters --- */

static uint32_t take_hex(struct reader *r, int n) {
    uint32_t value = 0;
    for (; n > 0 && !r->err; n--) {
        char c = peek(r);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            fail(r, "the escape has too few hex digits");
        } else {
            value = value << 4 | (uint32_t)digit;
            r->at++;
        }
    }
    if (value > WEFTI_CHAR_MAX || (value >= 0xd800 && value <= 0xdfff))
        fail(r, "no character has this number");
    return value;
}

/* One of a literal or a class. */
static uint32_t take_char(struct reader *r) {
    static const char named[] = "tnr\\\"[]^-", values[] = "\t\n\r\\\"[]^-";
    size_t n;
    if (!take(r, '\\')) {
        uint32_t c = weft_utf8_get(r->text + r->at, &n);
        r->at += n;
        return c;
    }
    char letter = peek(r);
    if (r->at == r->len) {
        fail(r, "nothing stands behind the last backslash");
        return 0;
    }
    const char *name = memchr(named, letter, sizeof named - 1);
    if (!name && letter != 'x' && letter != 'u' && letter != 'U') {
        fail(r, "there is no such escape");
        return 0;
    }
    r->at++;
    if (name) return (unsigned char)values[name - named];
    return take_hex(r, letter == 'x' ? 2 : letter == 'u' ? 4 : 8);
}

static uint32_t add_chars(struct reader *r, struct wefti_chars *set) {
    if (set->failed) fail_at(r, r->at, WEFT_E_TOOBIG, "a class has too many ranges");
    uint32_t node = wefti_tree_expr(r->tree, wefti_chars_expr(r->tree->pool, set, WEFTI_PLAIN));
    wefti_chars_fini(set);
    return node;
}

/* Behind its first quote. */
static uint32_t read_literal(struct reader *r) {
    wefti_expr_pool *pool = r->tree->pool;
    struct weft_buf text;
    weft_buf_init(&text, BYTES_MAX);
    while (!r->err && !take(r, '"')) {
        if (r->at == r->len || peek(r) == '\n')
            fail(r, "a literal has no end");
        else
            weft_utf8_put(&text, take_char(r));
    }
    if (text.failed) fail_at(r, r->at, WEFT_E_TOOBIG, "a literal is too long");
    uint32_t node = wefti_tree_expr(r->tree, wefti_expr_literal(pool, text.data, text.len));
    weft_buf_fini(&text);
    return node;
}

/* Behind "[". */
static uint32_t read_class(struct reader *r) {
    struct wefti_chars set = {0};
    bool inverts = take(r, '^');
    while (!r->err && !take(r, ']')) {
        if (r->at == r->len) {
            fail(r, "a class has no end");
            break;
        }
        uint32_t first = take_char(r), last = first;
        if (peek(r) == '-' && r->len - r->at > 1 && r->text[r->at + 1] != ']') {
            r->at++;
            last = take_char(r);
            if (!r->err && first > last) fail(r, "a range runs backwards");
        }
        wefti_chars_add(&set, first, last);
    }
    if (inverts) wefti_chars_invert(&set);
    return add_chars(r, &set);
}

/* -------------------------------------------------------------------------------- structure --- */

static bool take_count(struct reader *r, uint32_t *value_out) {
    uint64_t value = 0;
    size_t from = r->at;
    for (; peek(r) >= '0' && peek(r) <= '9'; r->at++)
        value = value <= COUNT_MAX ? value * 10 + (uint64_t)(peek(r) - '0') : value;
    *value_out = (uint32_t)value;
    if (value > COUNT_MAX) fail_at(r, from, WEFT_E_TOOBIG, "a count is over 1000000");
    return r->at > from;
}

/* Behind "{". */
static uint32_t read_bounds(struct reader *r, uint32_t child) {
    uint32_t min, max;
    skip(r, true);
    if (!take_count(r, &min)) fail(r, "{ wants a count behind it");
    skip(r, true);
    max = min;
    if (take(r, ',')) {
        skip(r, true);
        if (!take_count(r, &max)) max = WEFTI_EXPR_MANY;
        skip(r, true);
    }
    if (!take(r, '}')) fail(r, "a count has no }");
    if (!r->err && min > max) fail(r, "a repeat's bounds are the wrong way round");
    return r->err ? WEFTI_TREE_NONE : wefti_tree_repeat(r->tree, child, min, max);
}

static uint32_t read_atom(struct reader *r, bool is_nested) {
    struct wefti_chars set = {0};
    if (take(r, '"')) return read_literal(r);
    if (take(r, '[')) return read_class(r);
    if (take(r, '.')) {
        wefti_chars_add(&set, 0, WEFTI_CHAR_MAX);
        return add_chars(r, &set);
    }
    if (take(r, '(')) {
        skip(r, true);
        uint32_t inner = read_alt(r, true);
        if (!take(r, ')')) fail(r, "a group has no end");
        return inner;
    }
    if (peek(r) == '<' || peek(r) == '!') {
        fail_at(r, r->at, WEFT_E_UNSUPPORTED, "references to tokens are not supported");
        return WEFTI_TREE_NONE;
    }
    struct weft_str name = take_name(r);
    if (name.len == 0) {
        fail(r, is_nested ? "a literal, a class, a rule or ) should stand here"
                          : "a literal, a class, a rule or a new line should stand here");
        return WEFTI_TREE_NONE;
    }
    return wefti_tree_rule(r->tree, rule_of(r, name.data, name.len));
}

static uint32_t read_repeat(struct reader *r, bool is_nested) {
    uint32_t node = read_atom(r, is_nested);
    while (!r->err) {
        skip(r, is_nested);
        if (take(r, '*'))
            node = wefti_tree_repeat(r->tree, node, 0, WEFTI_EXPR_MANY);
        else if (take(r, '+'))
            node = wefti_tree_repeat(r->tree, node, 1, WEFTI_EXPR_MANY);
        else if (take(r, '?'))
            node = wefti_tree_repeat(r->tree, node, 0, 1);
        else if (take(r, '{'))
            node = read_bounds(r, node);
        else
            break;
    }
    return node;
}

/* Whether the next line begins with "|"; then it is behind the line breaks. */
static bool goes_on(struct reader *r) {
    size_t from = r->at;
    skip(r, true);
    if (peek(r) == '|') return true;
    r->at = from;
    return false;
}

static uint32_t read_cat(struct reader *r, bool is_nested) {
    uint32_t cat = wefti_tree_parent(r->tree, WEFTI_TREE_CAT);
    skip(r, is_nested);
    while (!r->err && r->at < r->len && !strchr("|)\r\n", peek(r))) {
        uint32_t part = read_repeat(r, is_nested);
        if (!r->err) wefti_tree_add(r->tree, cat, part);
    }
    return cat;
}

static uint32_t read_alt(struct reader *r, bool is_nested) {
    uint32_t alt = wefti_tree_parent(r->tree, WEFTI_TREE_ALT);
    if (++r->depth > DEPTH_MAX)
        fail_at(r, r->at, WEFT_E_TOOBIG, "groups are nested more than 500 deep");
    do {
        if (r->err) break;
        if (alt != WEFTI_TREE_NONE && r->tree->nodes[alt].child != WEFTI_TREE_NONE) skip(r, true);
        uint32_t cat = read_cat(r, is_nested);
        wefti_tree_add(r->tree, alt, cat);
    } while (goes_on(r) && take(r, '|'));
    r->depth--;
    return alt;
}

static void read_rule(struct reader *r) {
    size_t from = r->at;
    struct weft_str name = take_name(r);
    if (name.len == 0) {
        fail(r, "a rule's name should stand here");
        return;
    }
    uint32_t rule = rule_of(r, name.data, name.len);
    skip(r, false);
    if (r->err) return;
    if (r->len - r->at < 3 || memcmp(r->text + r->at, "::=", 3) != 0) {
        fail(r, "::= should stand here");
        return;
    }
    r->at += 3;
    skip(r, true);
    uint32_t body = read_alt(r, false);
    if (r->tree->failed) fail_at(r, r->at, WEFT_E_TOOBIG, "the grammar is too large");
    if (r->err) return;
    if (r->tree->bodies[rule] != WEFTI_TREE_NONE)
        fail_at(r, from, WEFT_E_INVAL, "the rule is there already");
    r->tree->bodies[rule] = body;
    if (r->at < r->len && !strchr("\r\n", peek(r))) fail(r, "a rule should end here");
    skip(r, true);
}

static void find_undefined(struct reader *r) {
    for (uint32_t i = 0; i < r->n && !r->err; i++) {
        const struct name *name = &r->names[i];
        if (r->tree->bodies[name->rule] == WEFTI_TREE_NONE)
            fail_at(r, name->first_at, WEFT_E_INVAL, "the rule is defined nowhere");
    }
}

weft_err wefti_gbnf_read(struct wefti_tree *tree, struct weft_str text, uint32_t *root_out,
                         struct weft_errmsg *why) {
    struct reader r = {.text = text.data, .len = text.len, .tree = tree, .why = why};
    *root_out = WEFTI_TREE_NONE;
    if (text.len > BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "a grammar of %zu bytes is over %u", text.len,
                            BYTES_MAX);
    if (!weft_utf8_valid(text.data, text.len) || memchr(text.data, 0, text.len))
        return weft_err_set(why, WEFT_E_INVAL, "the grammar is not a text in UTF-8");
    skip(&r, true);
    while (r.at < r.len && !r.err)
        read_rule(&r);
    find_undefined(&r);
    uint32_t root = r.n > 0 ? *slot_of(&r, "root", 4) : 0; /* its name's place + 1 */
    if (!r.err && root == 0)
        r.err = weft_err_set(why, WEFT_E_INVAL, "the grammar has no rule named root");
    if (!r.err && root > 0) *root_out = r.names[root - 1].rule;
    free(r.names);
    free(r.slots);
    return r.err;
}
