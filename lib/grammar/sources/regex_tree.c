/* Recursive descent over the text of a regular expression. What is not read here is refused by name, at
 * its place: a pattern is never taken for another one. */
#include "sources/regex_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "codec/utf8.h"
#include "sources/classes.h"

#define DEPTH_MAX 250u
#define BYTES_MAX (1u << 20)
#define COUNT_MAX 1000000u
#define RANGES_MAX (1u << 20) /* of all classes: one letter may stand for a thousand */

struct reader {
    const char *text;
    size_t at, len;
    enum wefti_regex_kind kind;
    unsigned flags;
    uint32_t depth, n_ranges;
    bool is_negative,
        is_inverted; /* within an odd number of negative look-aheads; in a class with "^" */
    struct wefti_regex_tree *tree;
    struct weft_errmsg *why;
    weft_err err;
};

static uint32_t read_alt(struct reader *r);

static void fail(struct reader *r, weft_err err, const char *what) {
    if (r->err) return;
    r->err = weft_err_set(r->why, err, "regular expression, character %zu: %s",
                          weft_utf8_count(r->text, r->at) + 1, what);
}

static void unsupported(struct reader *r, const char *what) {
    fail(r, WEFT_E_UNSUPPORTED, what);
}

static bool is_at(const struct reader *r, const char *what) {
    size_t n = strlen(what);
    return r->len - r->at >= n && memcmp(r->text + r->at, what, n) == 0;
}

static bool take(struct reader *r, const char *what) {
    if (!is_at(r, what)) return false;
    r->at += strlen(what);
    return true;
}

static uint32_t take_char(struct reader *r) {
    size_t n;
    WEFT_ASSERT(r->at < r->len);
    uint32_t c = weft_utf8_get(r->text + r->at, &n);
    r->at += n;
    return c;
}

/* ------------------------------------------------------------------------------------ nodes --- */

static uint32_t add_node(struct reader *r, struct wefti_regex_node node) {
    struct wefti_regex_tree *tree = r->tree;
    if (tree->n == tree->cap) {
        /* Few texts have more nodes than bytes, and what is not written takes no memory. */
        uint32_t cap = tree->cap ? 2 * tree->cap : (uint32_t)r->len + 8;
        struct wefti_regex_node *nodes = realloc(tree->nodes, cap * sizeof *nodes);
        if (!nodes) {
            fail(r, WEFT_E_NOMEM, "out of memory");
            return WEFTI_REGEX_NO_NODE;
        }
        tree->nodes = nodes;
        tree->cap = cap;
    }
    node.next = WEFTI_REGEX_NO_NODE;
    tree->nodes[tree->n] = node;
    return tree->n++;
}

/* Takes the set. */
static uint32_t add_chars(struct reader *r, struct wefti_chars *set) {
    struct wefti_regex_tree *tree = r->tree;
    r->n_ranges += set->n;
    if (set->failed || r->n_ranges > RANGES_MAX)
        fail(r, WEFT_E_TOOBIG, "classes have too many ranges");
    if (tree->n_sets == tree->cap_sets) {
        uint32_t cap = tree->cap_sets ? 2 * tree->cap_sets : 16;
        struct wefti_chars *sets = realloc(tree->sets, cap * sizeof *sets);
        if (!sets) {
            fail(r, WEFT_E_NOMEM, "out of memory");
            wefti_chars_fini(set);
            return WEFTI_REGEX_NO_NODE;
        }
        tree->sets = sets;
        tree->cap_sets = cap;
    }
    wefti_chars_sort(set);
    tree->sets[tree->n_sets] = *set;
    return add_node(r, (struct wefti_regex_node){.kind = WEFTI_REGEX_CHARS,
                                                 .child = WEFTI_REGEX_NO_NODE,
                                                 .min = tree->n_sets++});
}

static uint32_t add_mark(struct reader *r, enum wefti_regex_node_kind kind) {
    if (r->flags & WEFTI_REGEX_IS_WORD)
        unsupported(r, "anchors are not supported where other text may stand around");
    return add_node(
        r, (struct wefti_regex_node){.kind = kind, .asserts = true, .child = WEFTI_REGEX_NO_NODE});
}

struct children {
    uint32_t first, last;
    bool assert_something;
};

static void add_child(struct reader *r, struct children *children, uint32_t child) {
    if (r->err) return;
    const struct wefti_regex_node *node = &r->tree->nodes[child];
    children->assert_something = children->assert_something || node->asserts;
    if (children->first == WEFTI_REGEX_NO_NODE)
        children->first = child;
    else
        r->tree->nodes[children->last].next = child;
    children->last = child;
}

static uint32_t add_parent(struct reader *r, enum wefti_regex_node_kind kind,
                           const struct children *children) {
    return add_node(r, (struct wefti_regex_node){.kind = kind,
                                                 .asserts = children->assert_something,
                                                 .child = children->first});
}

/* ---------------------------------------------------------------------------- characters --- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool take_hex(struct reader *r, uint32_t n, uint32_t *value_out) {
    uint32_t value = 0;
    if (r->len - r->at < n) return false;
    for (uint32_t i = 0; i < n; i++) {
        int digit = hex_digit(r->text[r->at + i]);
        if (digit < 0) return false;
        value = value << 4 | (uint32_t)digit;
    }
    r->at += n;
    *value_out = value;
    return true;
}

/* Behind \u: four digits, two such that are a pair of surrogates, or ECMA's {1F600}. */
static uint32_t read_unicode(struct reader *r) {
    uint32_t c = 0, low = 0;
    if (r->kind == WEFTI_REGEX_SEARCH && take(r, "{")) {
        uint32_t n = 0;
        for (; r->at < r->len && hex_digit(r->text[r->at]) >= 0 && n < 6; n++)
            c = c << 4 | (uint32_t)hex_digit(r->text[r->at++]);
        if (n == 0 || !take(r, "}")) fail(r, WEFT_E_INVAL, "\\u{...} has one to six hex digits");
    } else if (!take_hex(r, 4, &c)) {
        fail(r, WEFT_E_INVAL, "\\u has four hex digits");
    } else if (c >= 0xd800 && c < 0xdc00 && take(r, "\\u")) {
        if (!take_hex(r, 4, &low) || low < 0xdc00 || low > 0xdfff)
            fail(r, WEFT_E_INVAL, "half of a pair of surrogates");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c > WEFTI_CHAR_MAX) fail(r, WEFT_E_INVAL, "no character has so high a number");
    return c;
}

/* Characters as they are written, with those of the other case where case does not matter: Python takes
 * \u0130 and \u0131 for an i, \u017f for an s, \u212a for a k. */
static void add_range(struct reader *r, uint32_t first, uint32_t last, struct wefti_chars *set) {
    static const struct {
        uint32_t letter, others[2];
    } more[] = {{'i', {0x130, 0x131}}, {'s', {0x17f, 0x17f}}, {'k', {0x212a, 0x212a}}};
    wefti_chars_add(set, first, last);
    if (!(r->flags & WEFTI_REGEX_ANY_CASE)) return;
    if (last >= 0x80)
        unsupported(r, "characters beyond ASCII are not supported where case does not matter");
    for (uint32_t c = first; c <= last && c < 0x80; c++) {
        uint32_t low = c | 0x20;
        if (low < 'a' || low > 'z') continue;
        wefti_chars_add(set, c ^ 0x20, c ^ 0x20);
        for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
            if (more[i].letter == low) wefti_chars_add(set, more[i].others[0], more[i].others[1]);
        }
    }
}

/* What d, w, s and their capitals stand for. Python's are Unicode's, of which ASCII's are enough where such characters
 * fit; where they do not, in a capital, an inverted class or below a negative look-ahead, all of them are meant. */
static void add_shorthand(const struct reader *r, char letter, struct wefti_chars *set) {
    struct wefti_chars some = {0};
    bool is_capital = letter < 'a', is_wide = (r->is_negative != r->is_inverted) != is_capital;
    wefti_classes_add(r->kind == WEFTI_REGEX_SEARCH ? WEFTI_CLASSES_ECMA
                      : is_wide                     ? WEFTI_CLASSES_WIDE
                                                    : WEFTI_CLASSES_ASCII,
                      (char)(letter | 0x20), &some);
    if (is_capital) wefti_chars_invert(&some);
    wefti_chars_add_all(set, &some);
    wefti_chars_fini(&some);
}

/* Behind a backslash: a shorthand's characters (true), or one character. */
static bool read_escape(struct reader *r, bool in_class, struct wefti_chars *set, uint32_t *c_out) {
    static const char named[] = "tnrfv", values[] = "\t\n\r\f\v", shorthands[] = "dwsDWS";
    *c_out = 0;
    if (r->at == r->len) {
        fail(r, WEFT_E_INVAL, "nothing stands behind the last backslash");
        return false;
    }
    char letter = r->text[r->at];
    const char *name = memchr(named, letter, sizeof named - 1);
    if (memchr(shorthands, letter, sizeof shorthands - 1)) {
        r->at++;
        add_shorthand(r, letter, set);
        return true;
    }
    if (name) {
        *c_out = (unsigned char)values[name - named];
        r->at++;
    } else if (letter == 'x') {
        r->at++;
        if (!take_hex(r, 2, c_out)) fail(r, WEFT_E_INVAL, "\\x has two hex digits");
    } else if (letter == 'u') {
        r->at++;
        *c_out = read_unicode(r);
    } else if (letter == '0' && (r->at + 1 == r->len || (r->text[r->at + 1] & 0xf8) != '0')) {
        r->at++;
    } else if (letter == 'b' && in_class) {
        *c_out = '\b';
        r->at++;
    } else if (letter == 'c' && r->kind == WEFTI_REGEX_SEARCH && r->at + 1 < r->len &&
               (r->text[r->at + 1] | 0x20) >= 'a' && (r->text[r->at + 1] | 0x20) <= 'z') {
        *c_out = (unsigned char)r->text[r->at + 1] & 0x1f;
        r->at += 2;
    } else if (letter >= '0' && letter <= '9') {
        unsupported(r, "backreferences are not supported");
    } else if (letter == 'b' || letter == 'B') {
        unsupported(r, "\\b and \\B are not supported");
    } else if (letter == 'p' || letter == 'P') {
        unsupported(r, "\\p{...} is not supported");
    } else if ((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z') {
        fail(r, WEFT_E_INVAL, "there is no such escape");
    } else {
        *c_out = take_char(r);
    }
    return false;
}

/* "[:alpha:]" within a class: neither Python nor ECMA-262 knows it, and takes it for some of these characters. */
static bool is_posix_class(const struct reader *r) {
    size_t at = r->at + 2;
    if (!is_at(r, "[:")) return false;
    while (at < r->len && r->text[at] >= 'a' && r->text[at] <= 'z')
        at++;
    return r->len - at >= 2 && r->text[at] == ':' && r->text[at + 1] == ']';
}

/* Behind "[". */
static uint32_t read_class(struct reader *r) {
    struct wefti_chars set = {0};
    bool inverts = take(r, "^"), is_first = r->kind == WEFTI_REGEX_MATCH;
    r->is_inverted = inverts;
    while (!r->err && (is_first || !is_at(r, "]"))) {
        uint32_t first, last;
        if (r->at == r->len) {
            fail(r, WEFT_E_INVAL, "a class has no end");
            break;
        }
        is_first = false;
        if (is_posix_class(r)) {
            fail(r, WEFT_E_UNSUPPORTED, "a POSIX class is not supported");
            break;
        }
        if (take(r, "\\")) {
            if (read_escape(r, true, &set, &first)) continue;
        } else {
            first = take_char(r);
        }
        last = first;
        if (is_at(r, "-") && r->len - r->at > 1 && r->text[r->at + 1] != ']') {
            struct wefti_chars some = {0};
            r->at++;
            bool is_set =
                take(r, "\\") ? read_escape(r, true, &some, &last) : (last = take_char(r), false);
            wefti_chars_fini(&some);
            if (is_set) fail(r, WEFT_E_INVAL, "a range ends in a class");
            if (!is_set && first > last) fail(r, WEFT_E_INVAL, "a range runs backwards");
        }
        add_range(r, first, last, &set);
    }
    r->is_inverted = false;
    if (!r->err) (void)take(r, "]");
    if (inverts) wefti_chars_invert(&set);
    return add_chars(r, &set);
}

static uint32_t read_dot(struct reader *r) {
    struct wefti_chars set = {0};
    if (!(r->flags & WEFTI_REGEX_DOT_ALL)) wefti_chars_add(&set, '\n', '\n');
    if (r->kind == WEFTI_REGEX_SEARCH) {
        wefti_chars_add(&set, '\r', '\r');
        wefti_chars_add(&set, 0x2028, 0x2029);
    }
    wefti_chars_invert(&set);
    return add_chars(r, &set);
}

static uint32_t add_char(struct reader *r, uint32_t c) {
    struct wefti_chars set = {0};
    add_range(r, c, c, &set);
    return add_chars(r, &set);
}

/* ------------------------------------------------------------------------------ structure --- */

static void skip_name(struct reader *r) {
    size_t from = r->at;
    while (r->at < r->len && r->text[r->at] != '>')
        r->at++;
    if (r->at == from || !take(r, ">")) fail(r, WEFT_E_INVAL, "a group's name has no end");
}

/* Behind "(?": Python's (?i:...) and the like set flags for what is in the group, (?i) at the very start for
 * all. The caller puts the flags back; what is no such group stays unread. */
static bool take_flags(struct reader *r, bool *is_for_all) {
    size_t from = r->at;
    unsigned flags = r->flags, sign = 1;
    if (r->kind != WEFTI_REGEX_MATCH) return false;
    for (; r->at < r->len; r->at++) {
        char c = r->text[r->at];
        unsigned flag = c == 'i' ? WEFTI_REGEX_ANY_CASE : c == 's' ? WEFTI_REGEX_DOT_ALL : 0;
        if (c == '-' && sign)
            sign = 0;
        else if (flag)
            flags = sign ? flags | flag : flags & ~flag;
        else
            break;
    }
    *is_for_all = from == 2 && sign && is_at(r, ")");
    if (r->at > from && (*is_for_all || take(r, ":"))) {
        r->flags = flags;
        return true;
    }
    r->at = from;
    return false;
}

/* Behind "(?": what the group is; CAT: a plain one. */
static enum wefti_regex_node_kind read_group_kind(struct reader *r, bool *is_for_all) {
    bool is_word = r->flags & WEFTI_REGEX_IS_WORD;
    if (take(r, ":")) return WEFTI_REGEX_CAT;
    if (is_word && (is_at(r, "=") || is_at(r, "!")))
        unsupported(r, "look-ahead is not supported where other text may stand around");
    if (take(r, "=")) return WEFTI_REGEX_AHEAD;
    if (take(r, "!")) return WEFTI_REGEX_NOT_AHEAD;
    if (take_flags(r, is_for_all)) return WEFTI_REGEX_CAT;
    if (is_at(r, "<=") || is_at(r, "<!"))
        unsupported(r, "look-behind is not supported");
    else if (is_at(r, ">"))
        unsupported(r, "atomic groups are not supported");
    else if (take(r, "P<") || take(r, "<"))
        skip_name(r);
    else
        unsupported(r, "flags and conditions within the expression are not supported");
    return WEFTI_REGEX_CAT;
}

/* Behind "(". */
static uint32_t read_group(struct reader *r) {
    enum wefti_regex_node_kind kind = WEFTI_REGEX_CAT;
    unsigned flags = r->flags;
    bool is_for_all = false;
    if (take(r, "?")) kind = read_group_kind(r, &is_for_all);
    if (r->err) return WEFTI_REGEX_NO_NODE;
    r->is_negative = r->is_negative != (kind == WEFTI_REGEX_NOT_AHEAD);
    uint32_t inner = read_alt(r);
    r->is_negative = r->is_negative != (kind == WEFTI_REGEX_NOT_AHEAD);
    if (!is_for_all) r->flags = flags;
    if (r->err) return WEFTI_REGEX_NO_NODE;
    if (!take(r, ")")) {
        fail(r, WEFT_E_INVAL, "a group has no end");
        return WEFTI_REGEX_NO_NODE;
    }
    if (kind == WEFTI_REGEX_CAT) return inner;
    return add_node(r, (struct wefti_regex_node){.kind = kind, .asserts = true, .child = inner});
}

static uint32_t read_atom(struct reader *r) {
    struct wefti_chars set = {0};
    uint32_t c = 0;
    if (take(r, "(")) return read_group(r);
    if (take(r, "[")) return read_class(r);
    if (take(r, ".")) return read_dot(r);
    if (take(r, "^")) return add_mark(r, WEFTI_REGEX_START);
    if (take(r, "$")) return add_mark(r, WEFTI_REGEX_END);
    if (r->kind == WEFTI_REGEX_MATCH && take(r, "\\A")) return add_mark(r, WEFTI_REGEX_START);
    if (r->kind == WEFTI_REGEX_MATCH && take(r, "\\Z")) return add_mark(r, WEFTI_REGEX_END);
    if (is_at(r, "*") || is_at(r, "+") || is_at(r, "?")) {
        fail(r, WEFT_E_INVAL, "there is nothing to repeat");
        return WEFTI_REGEX_NO_NODE;
    }
    if (!take(r, "\\")) return add_char(r, take_char(r));
    bool is_set = read_escape(r, false, &set, &c);
    if (!is_set) add_range(r, c, c, &set);
    return add_chars(r, &set);
}

static bool take_count(struct reader *r, uint32_t *value_out) {
    uint64_t value = 0;
    size_t from = r->at;
    for (; r->at < r->len && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
        value = value < COUNT_MAX ? value * 10 + (uint64_t)(r->text[r->at] - '0') : value;
    *value_out = (uint32_t)value;
    if (value > COUNT_MAX) fail(r, WEFT_E_TOOBIG, "a count is over 1000000");
    return r->at > from;
}

/* {2}, {2,}, {2,5}, Python's {,5}; what is none of them is literal text. */
static bool take_braces(struct reader *r, uint32_t *min_out, uint32_t *max_out) {
    size_t from = r->at;
    uint32_t min = 0, max = 0;
    if (!take(r, "{")) return false;
    bool has_min = take_count(r, &min), has_comma = take(r, ",");
    bool has_max = has_comma && take_count(r, &max);
    bool is_one = take(r, "}") && (has_min || (has_max && r->kind == WEFTI_REGEX_MATCH));
    if (!is_one) {
        r->at = from;
        return false;
    }
    *min_out = min;
    *max_out = has_max ? max : has_comma ? WEFTI_EXPR_MANY : min;
    if (*min_out > *max_out) fail(r, WEFT_E_INVAL, "a repeat's bounds are the wrong way round");
    return true;
}

static bool take_quantifier(struct reader *r, uint32_t *min_out, uint32_t *max_out) {
    *min_out = 0;
    *max_out = WEFTI_EXPR_MANY;
    if (take(r, "*")) return true;
    if (take(r, "+")) {
        *min_out = 1;
        return true;
    }
    if (take(r, "?")) {
        *max_out = 1;
        return true;
    }
    return take_braces(r, min_out, max_out);
}

static uint32_t read_repeat(struct reader *r) {
    uint32_t min, max, atom = read_atom(r);
    if (r->err || !take_quantifier(r, &min, &max) || r->err) return atom;
    if (take(r, "+")) unsupported(r, "possessive quantifiers are not supported");
    bool is_lazy = !r->err && take(r, "?"); /* the same texts, unless others stand behind them */
    if (is_lazy && r->flags & WEFTI_REGEX_IS_WORD)
        unsupported(r, "lazy quantifiers are not supported where other text may stand around");
    size_t from = r->at;
    if (!r->err && take_quantifier(r, &(uint32_t){0}, &(uint32_t){0})) {
        r->at = from;
        fail(r, WEFT_E_INVAL, "a repeat of a repeat needs a group");
    }
    if (r->err) return WEFTI_REGEX_NO_NODE;
    const struct wefti_regex_node *node = &r->tree->nodes[atom];
    return add_node(r, (struct wefti_regex_node){.kind = WEFTI_REGEX_REPEAT,
                                                 .asserts = node->asserts,
                                                 .child = atom,
                                                 .min = min,
                                                 .max = max});
}

/* Letters and the like that no quantifier stands behind: in most expressions that is most of the text, and in a
 * long one a node for each of them is most of the work. */
static uint32_t read_literal(struct reader *r) {
    size_t n = 0, n_left = r->len - r->at;
    const char *text = r->text + r->at;
    if (r->flags & WEFTI_REGEX_ANY_CASE) return WEFTI_REGEX_NO_NODE;
    while (n < n_left && (unsigned char)text[n] < 0x80 && text[n] != '\0' &&
           !strchr("\\^$.[|()*+?{", text[n]))
        n++;
    if (n > 0 && n < n_left && strchr("*+?{", text[n])) n--;
    if (n == 0) return WEFTI_REGEX_NO_NODE;
    uint32_t literal = add_node(r, (struct wefti_regex_node){.kind = WEFTI_REGEX_LITERAL,
                                                             .child = WEFTI_REGEX_NO_NODE,
                                                             .min = (uint32_t)r->at,
                                                             .max = (uint32_t)n});
    r->at += n;
    return literal;
}

static uint32_t read_cat(struct reader *r) {
    struct children children = {WEFTI_REGEX_NO_NODE, WEFTI_REGEX_NO_NODE, false};
    while (!r->err && r->at < r->len && !is_at(r, "|") && !is_at(r, ")")) {
        uint32_t child = read_literal(r);
        if (child == WEFTI_REGEX_NO_NODE) child = read_repeat(r);
        add_child(r, &children, child);
    }
    return r->err ? WEFTI_REGEX_NO_NODE : add_parent(r, WEFTI_REGEX_CAT, &children);
}

static uint32_t read_alt(struct reader *r) {
    struct children children = {WEFTI_REGEX_NO_NODE, WEFTI_REGEX_NO_NODE, false};
    if (++r->depth > DEPTH_MAX) fail(r, WEFT_E_TOOBIG, "groups are nested more than 250 deep");
    do {
        if (r->err) return WEFTI_REGEX_NO_NODE;
        uint32_t child = read_cat(r);
        add_child(r, &children, child);
    } while (take(r, "|"));
    r->depth--;
    if (r->err || children.first == children.last) return children.first;
    return add_parent(r, WEFTI_REGEX_ALT, &children);
}

weft_err wefti_regex_tree_read(struct wefti_regex_tree *tree, struct weft_str text,
                               enum wefti_regex_kind kind, unsigned flags,
                               struct weft_errmsg *why) {
    struct reader r = {
        .text = text.data, .len = text.len, .kind = kind, .flags = flags, .tree = tree, .why = why};
    *tree = (struct wefti_regex_tree){.text = text};
    if (text.len > BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "a regular expression of %zu bytes is over %u",
                            text.len, BYTES_MAX);
    if (!weft_utf8_valid(text.data, text.len))
        return weft_err_set(why, WEFT_E_INVAL, "the regular expression is not UTF-8");
    (void)read_alt(&r);
    if (!r.err && r.at < r.len) fail(&r, WEFT_E_INVAL, "a group ends that has not begun");
    if (!r.err) {
        WEFT_ASSERT(tree->n > 0);
    } else {
        wefti_regex_tree_fini(tree);
    }
    return r.err;
}

void wefti_regex_tree_fini(struct wefti_regex_tree *tree) {
    for (uint32_t i = 0; i < tree->n_sets; i++)
        wefti_chars_fini(&tree->sets[i]);
    free(tree->sets);
    free(tree->nodes);
    *tree = (struct wefti_regex_tree){0};
}
