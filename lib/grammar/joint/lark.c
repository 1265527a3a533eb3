/* Recursive descent. Terminals are read as rules are, then made expressions from the last to the first that
 * needs them; every use of one in a rule has behind it what is ignored. */
#include "joint/lark.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "codec/utf8.h"
#include "expr/chars.h"
#include "schema/schema.h"
#include "sources/gbnf.h"
#include "sources/reader.h"
#include "sources/regex.h"

#define RESOLVE_DEPTH_MAX 2000u

enum mark { UNKNOWN, UNDER_WAY, DONE };

struct lark {
    struct wefti_reader r;
    uint32_t ignored;      /* the rule for what is ignored; NONE: nothing is */
    uint32_t ignored_list; /* the ALT of it */
    unsigned char *marks;  /* by rule: enum mark, of terminals that become expressions */
    uint32_t depth;
    bool is_terminal; /* what is read now */
};

static uint32_t read_alt(struct lark *l, bool is_nested);

/* -------------------------------------------------------------------------------------- words --- */

/* Blanks and comments; line breaks, too, where they may stand. */
static void skip(struct lark *l, bool over_lines) {
    struct wefti_reader *r = &l->r;
    for (; r->at < r->len; r->at++) {
        char c = r->text[r->at];
        if (c == '#' || (c == '/' && r->len - r->at > 1 && r->text[r->at + 1] == '/')) {
            while (r->at < r->len && r->text[r->at] != '\n' && r->text[r->at] != '\r')
                r->at++;
            if (r->at == r->len) return;
            c = r->text[r->at];
        }
        bool is_blank = c == ' ' || c == '\t' || c == '\f', is_break = c == '\n' || c == '\r';
        if (!is_blank && !(is_break && over_lines)) return;
    }
}

static bool is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

static bool is_upper(char c) {
    return c >= 'A' && c <= 'Z';
}

static bool is_name_char(char c) {
    return is_lower(c) || is_upper(c) || (c >= '0' && c <= '9') || c == '_';
}

/* Length 0: there is none. A "-" is of the name unless it begins an arrow. */
static struct weft_str take_name(struct lark *l, bool *is_terminal) {
    struct wefti_reader *r = &l->r;
    size_t from = r->at;
    bool has_lower = false, has_upper = false;
    for (; r->at < r->len; r->at++) {
        char c = r->text[r->at];
        bool is_dash =
            c == '-' && r->at > from && r->len - r->at > 1 && is_name_char(r->text[r->at + 1]);
        if (!is_name_char(c) && !is_dash) break;
        has_lower = has_lower || is_lower(c);
        has_upper = has_upper || is_upper(c);
    }
    struct weft_str name = {r->text + from, r->at - from};
    *is_terminal = has_upper;
    if (name.len > 0 && has_lower == has_upper)
        wefti_reader_fail_name(r, from, name,
                               "is neither a rule (lower case) nor a terminal (upper case)");
    return name;
}

/* Those escapes that Lark and JSON mean alike. */
static uint32_t take_char(struct wefti_reader *r) {
    static const char named[] = "nrtf\\\"", values[] = "\n\r\t\f\\\"";
    size_t n;
    if (!wefti_reader_take(r, '\\')) {
        uint32_t c = weft_utf8_get(r->text + r->at, &n);
        r->at += n;
        return c;
    }
    char letter = wefti_reader_peek(r);
    const char *name = letter ? memchr(named, letter, sizeof named - 1) : NULL;
    if (!name && letter != 'x' && letter != 'u' && letter != 'U') {
        wefti_reader_fail(r, "there is no such escape");
        return 0;
    }
    r->at++;
    if (name) return (unsigned char)values[name - named];
    return wefti_reader_hex(r, letter == 'x' ? 2 : letter == 'u' ? 4 : 8);
}

/* Behind its first quote; the last one is taken. */
static void take_string(struct lark *l, struct weft_buf *out) {
    struct wefti_reader *r = &l->r;
    while (!r->err && !wefti_reader_take(r, '"')) {
        if (r->at == r->len || wefti_reader_peek(r) == '\n')
            wefti_reader_fail(r, "a literal has no end");
        else
            weft_utf8_put(out, take_char(r));
    }
    if (out->failed) wefti_reader_fail_at(r, r->at, WEFT_E_TOOBIG, "a literal is too long");
}

/* Letters behind a literal or an expression. What u asks for is so anyway. */
static unsigned take_flags(struct lark *l, bool is_regex) {
    struct wefti_reader *r = &l->r;
    unsigned flags = 0;
    for (; is_name_char(wefti_reader_peek(r)) && !r->err; r->at++) {
        char c = wefti_reader_peek(r);
        if (c == 'i')
            flags |= WEFTI_REGEX_ANY_CASE;
        else if (c == 's' && is_regex)
            flags |= WEFTI_REGEX_DOT_ALL;
        else if (c != 'u' || !is_regex)
            wefti_reader_refuse(r, is_regex ? "of the flags of an expression only i, s and u are "
                                              "supported"
                                            : "of the flags of a literal only i is supported");
    }
    return flags;
}

/* ------------------------------------------------------------------------------------ terminals --- */

static void fail_regex(struct lark *l, size_t at, weft_err err, const struct weft_errmsg *why) {
    wefti_reader_fail_at(&l->r, at, err, why->text);
}

/* Each character as an expression would write it, where case does not matter. */
static wefti_expr any_case(struct lark *l, size_t at, const struct weft_buf *text) {
    struct weft_errmsg why;
    struct weft_buf regex;
    wefti_expr expr;
    weft_buf_init(&regex, 4 * (size_t)WEFTI_READER_BYTES_MAX);
    for (size_t i = 0; i < text->len; i++) {
        unsigned char c = (unsigned char)text->data[i];
        if (c < 0x80 && !is_name_char((char)c))
            weft_buf_printf(&regex, "\\x%02x", c);
        else
            weft_buf_add_char(&regex, (char)c);
    }
    weft_err err = wefti_regex_word(l->r.tree->pool, (struct weft_str){regex.data, regex.len},
                                    WEFTI_REGEX_ANY_CASE, &expr, &why);
    if (err) fail_regex(l, at, err, &why);
    weft_buf_fini(&regex);
    return expr;
}

/* Behind a literal's quotes: ".." and another one. */
static wefti_expr read_range(struct lark *l, size_t at, const struct weft_buf *first) {
    struct wefti_chars set = {0};
    struct weft_buf last;
    size_t n = 0, k = 0;
    uint32_t from = first->len ? weft_utf8_get(first->data, &n) : 0, to = 0;
    bool is_one = first->len > 0 && n == first->len;
    weft_buf_init(&last, WEFTI_READER_BYTES_MAX);
    skip(l, false);
    if (wefti_reader_take(&l->r, '"')) take_string(l, &last);
    if (last.len > 0 && !last.failed) to = weft_utf8_get(last.data, &k);
    is_one = is_one && last.len > 0 && k == last.len;
    if (!is_one)
        wefti_reader_fail_at(&l->r, at, WEFT_E_INVAL, "a range has one character on either side");
    if (is_one && from > to)
        wefti_reader_fail_at(&l->r, at, WEFT_E_INVAL, "a range runs backwards");
    weft_buf_fini(&last);
    wefti_chars_add(&set, from, to);
    wefti_expr expr = wefti_chars_expr(l->r.tree->pool, &set, WEFTI_PLAIN);
    wefti_chars_fini(&set);
    return expr;
}

/* Behind its first quote. */
static uint32_t read_literal(struct lark *l) {
    struct wefti_reader *r = &l->r;
    struct weft_buf text;
    wefti_expr expr = WEFTI_EXPR_NONE;
    size_t at = r->at - 1;
    weft_buf_init(&text, WEFTI_READER_BYTES_MAX);
    take_string(l, &text);
    unsigned flags = r->err ? 0 : take_flags(l, false);
    size_t behind = r->at;
    if (!flags) skip(l, false);
    if (!r->err && !flags && wefti_reader_take_text(r, "..")) {
        expr = read_range(l, at, &text);
    } else if (!r->err) {
        r->at = behind;
        expr =
            flags ? any_case(l, at, &text) : wefti_expr_literal(r->tree->pool, text.data, text.len);
    }
    weft_buf_fini(&text);
    return wefti_tree_expr(r->tree, expr);
}

/* Behind its first slash. */
static uint32_t read_regex(struct lark *l) {
    struct wefti_reader *r = &l->r;
    struct weft_errmsg why;
    wefti_expr expr;
    size_t from = r->at, at = r->at - 1;
    for (; r->at < r->len && r->text[r->at] != '/' && r->text[r->at] != '\n'; r->at++) {
        if (r->text[r->at] == '\\' && r->len - r->at > 1) r->at++;
    }
    struct weft_str text = {r->text + from, r->at - from};
    if (!wefti_reader_take(r, '/'))
        wefti_reader_fail_at(r, at, WEFT_E_INVAL, "a regular expression has no end");
    unsigned flags = r->err ? 0 : take_flags(l, true);
    if (r->err) return WEFTI_TREE_NONE;
    weft_err err = wefti_regex_word(r->tree->pool, text, flags, &expr, &why);
    if (err) fail_regex(l, at, err, &why);
    return wefti_tree_expr(r->tree, expr);
}

/* What stands for a terminal in a rule: with what is ignored behind it. */
static uint32_t with_ignored(struct lark *l, uint32_t node) {
    struct wefti_tree *tree = l->r.tree;
    if (l->is_terminal || l->ignored == WEFTI_TREE_NONE || l->r.err) return node;
    uint32_t cat = wefti_tree_parent(tree, WEFTI_TREE_CAT);
    wefti_tree_add(tree, cat, node);
    wefti_tree_add(tree, cat, wefti_tree_rule(tree, l->ignored));
    return cat;
}

/* ---------------------------------------------------------------------------------------- atoms --- */

/* Behind "%json": a schema is a rule of its own, and no word of a language that has words between. */
static uint32_t read_json(struct lark *l) {
    struct wefti_reader *r = &l->r;
    struct weft_errmsg why = {""};
    json_t *schema;
    size_t n;
    uint32_t rule = WEFTI_TREE_NONE;
    if (l->is_terminal) wefti_reader_fail(r, "%json belongs in a rule, not in a terminal");
    if (r->err) return WEFTI_TREE_NONE;
    skip(l, true);
    size_t at = r->at;
    struct weft_str text = {r->text + at, r->len - at};
    weft_err err = wefti_schema_load(text, &n, &schema, &why);
    r->at += n;
    if (!err) err = wefti_schema_rules(r->tree, schema, &rule, &why);
    json_decref(schema);
    if (err) {
        wefti_reader_fail_at(r, at, err, why.text);
        return WEFTI_TREE_NONE;
    }
    wefti_tree_need(r->tree, rule, "the schema behind %json");
    return with_ignored(l, wefti_tree_rule(r->tree, rule));
}

static uint32_t read_group(struct lark *l, char end) {
    struct wefti_reader *r = &l->r;
    uint32_t inner = read_alt(l, true);
    skip(l, true);
    if (!wefti_reader_take(r, end)) wefti_reader_fail(r, "a group has no end");
    if (end == ')' || r->err) return inner;
    return wefti_tree_repeat(r->tree, inner, 0, 1);
}

/* What llguidance has beside Lark, and what Lark has that stands for no text. */
static bool refuse_special(struct lark *l) {
    static const struct {
        const char *begin, *what;
    } list[] = {
        {"<", "references to tokens (<...>) are not supported"},
        {"@", "references to other grammars (@name) are not supported"},
        {"~", "the complement of a terminal (~ in front) is not supported"},
        {"&", "what terminals share (&) is not supported"},
        {"%regex", "%regex is not supported"},
        {"%lark", "%lark is not supported"},
        {"%if", "rules with parameters (%if) are not supported"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        size_t n = strlen(list[i].begin);
        if (l->r.len - l->r.at < n || memcmp(l->r.text + l->r.at, list[i].begin, n) != 0) continue;
        wefti_reader_refuse(&l->r, list[i].what);
        return true;
    }
    return false;
}

static uint32_t read_name(struct lark *l) {
    struct wefti_reader *r = &l->r;
    size_t at = r->at;
    bool is_terminal;
    struct weft_str name = take_name(l, &is_terminal);
    if (r->err) return WEFTI_TREE_NONE;
    if (name.len == 0) {
        wefti_reader_fail(r, "a literal, an expression or a name should stand here");
        return WEFTI_TREE_NONE;
    }
    if (wefti_reader_take_text(r, "::"))
        wefti_reader_refuse(r, "rules with parameters (::) are not supported");
    if (l->is_terminal && !is_terminal)
        wefti_reader_fail_name(r, at, name, "is a rule, which no terminal may need");
    uint32_t rule = wefti_reader_rule(r, name);
    if (r->err || r->tree->failed) return WEFTI_TREE_NONE;
    uint32_t node = wefti_tree_rule(r->tree, rule);
    return is_terminal ? with_ignored(l, node) : node;
}

static uint32_t read_atom(struct lark *l) {
    struct wefti_reader *r = &l->r;
    if (wefti_reader_take(r, '"')) return with_ignored(l, read_literal(l));
    if (wefti_reader_take(r, '/')) return with_ignored(l, read_regex(l));
    if (wefti_reader_take(r, '(')) return read_group(l, ')');
    if (wefti_reader_take(r, '[')) return read_group(l, ']');
    if (wefti_reader_take_text(r, "%json")) return read_json(l);
    if (refuse_special(l)) return WEFTI_TREE_NONE;
    return read_name(l);
}

/* ------------------------------------------------------------------------------------ structure --- */

/* Behind "{"; llguidance's. */
static void take_bounds(struct lark *l, uint32_t *min_out, uint32_t *max_out) {
    struct wefti_reader *r = &l->r;
    skip(l, false);
    bool has_min = wefti_reader_count(r, min_out), has_max = false;
    *max_out = *min_out;
    skip(l, false);
    bool has_comma = wefti_reader_take(r, ',');
    skip(l, false);
    if (has_comma) has_max = wefti_reader_count(r, max_out);
    if (has_comma && !has_max) *max_out = WEFTI_EXPR_MANY;
    if (!has_min && !has_max && !r->err)
        wefti_reader_refuse(r, "templates (name{...}) are not supported");
    skip(l, false);
    if (!wefti_reader_take(r, '}')) wefti_reader_fail(r, "a count has no }");
}

static bool take_quantifier(struct lark *l, uint32_t *min_out, uint32_t *max_out) {
    struct wefti_reader *r = &l->r;
    *min_out = 0;
    *max_out = WEFTI_EXPR_MANY;
    if (wefti_reader_take(r, '*')) return true;
    if (wefti_reader_take(r, '+')) {
        *min_out = 1;
        return true;
    }
    if (wefti_reader_take(r, '?')) {
        *max_out = 1;
        if (is_name_char(wefti_reader_peek(r)))
            wefti_reader_fail(r, "a blank should stand between ? and a name");
        return true;
    }
    if (wefti_reader_take(r, '{')) {
        take_bounds(l, min_out, max_out);
        return true;
    }
    if (!wefti_reader_take(r, '~')) return false;
    skip(l, false);
    if (!wefti_reader_count(r, min_out)) wefti_reader_fail(r, "~ wants a count behind it");
    *max_out = *min_out;
    size_t behind = r->at;
    skip(l, false);
    if (!wefti_reader_take_text(r, "..")) {
        r->at = behind;
        return true;
    }
    skip(l, false);
    if (!wefti_reader_count(r, max_out)) wefti_reader_fail(r, ".. wants a count behind it");
    return true;
}

static uint32_t read_repeat(struct lark *l, bool is_nested) {
    struct wefti_reader *r = &l->r;
    uint32_t min, max, node = read_atom(l);
    if (r->err) return WEFTI_TREE_NONE;
    skip(l, is_nested);
    size_t at = r->at;
    if (!take_quantifier(l, &min, &max) || r->err) return node;
    if (min > max)
        wefti_reader_fail_at(r, at, WEFT_E_INVAL, "a repeat's bounds are the wrong way round");
    skip(l, is_nested);
    at = r->at;
    if (!r->err && strchr("*+?~{", wefti_reader_peek(r)) && r->at < r->len)
        wefti_reader_fail_at(r, at, WEFT_E_INVAL, "a repeat of a repeat needs a group");
    return r->err ? WEFTI_TREE_NONE : wefti_tree_repeat(r->tree, node, min, max);
}

static bool is_at_arrow(const struct wefti_reader *r) {
    return r->len - r->at > 1 && r->text[r->at] == '-' && r->text[r->at + 1] == '>';
}

static uint32_t read_cat(struct lark *l, bool is_nested) {
    struct wefti_reader *r = &l->r;
    uint32_t cat = wefti_tree_parent(r->tree, WEFTI_TREE_CAT);
    skip(l, is_nested);
    while (!r->err && r->at < r->len && !strchr("|)]\r\n", wefti_reader_peek(r)) &&
           !is_at_arrow(r)) {
        uint32_t part = read_repeat(l, is_nested);
        if (!r->err) wefti_tree_add(r->tree, cat, part);
    }
    if (!r->err && wefti_reader_take_text(r, "->")) { /* a name for trees */
        bool is_terminal;
        skip(l, is_nested);
        struct weft_str name = take_name(l, &is_terminal);
        if (name.len == 0) wefti_reader_fail(r, "-> wants a name behind it");
    }
    skip(l, is_nested);
    return cat;
}

/* Whether the next line begins with "|"; then it is behind the line breaks. */
static bool goes_on(struct lark *l) {
    size_t from = l->r.at;
    skip(l, true);
    if (wefti_reader_peek(&l->r) == '|') return true;
    l->r.at = from;
    return false;
}

static uint32_t read_alt(struct lark *l, bool is_nested) {
    struct wefti_reader *r = &l->r;
    uint32_t alt = wefti_tree_parent(r->tree, WEFTI_TREE_ALT);
    wefti_reader_enter(r);
    do {
        if (r->err) break;
        uint32_t cat = read_cat(l, is_nested);
        wefti_tree_add(r->tree, alt, cat);
    } while (goes_on(l) && wefti_reader_take(r, '|'));
    wefti_reader_leave(r);
    return alt;
}

static void end_line(struct lark *l) {
    struct wefti_reader *r = &l->r;
    skip(l, false);
    if (!r->err && r->at < r->len && !strchr("\r\n", wefti_reader_peek(r)))
        wefti_reader_fail(r, "a definition should end here");
    skip(l, true);
}

/* ------------------------------------------------------------------------------------ statements --- */

/* Lark's library of that name. */
static const struct {
    const char *name, *regex;
} commons[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[a-fA-F0-9]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"NUMBER", "([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

/* A terminal of `common` by the name `as`. */
static void import(struct lark *l, size_t at, struct weft_str name, struct weft_str as) {
    struct wefti_reader *r = &l->r;
    struct weft_errmsg why;
    wefti_expr expr = WEFTI_EXPR_NONE;
    for (size_t i = 0; i < sizeof commons / sizeof *commons && !r->err; i++) {
        size_t n = strlen(commons[i].name);
        if (name.len != n || memcmp(name.data, commons[i].name, n) != 0) continue;
        struct weft_str regex = {commons[i].regex, strlen(commons[i].regex)};
        weft_err err = wefti_regex_word(r->tree->pool, regex, 0, &expr, &why);
        if (err) wefti_reader_fail_at(r, at, err, why.text);
    }
    if (!r->err && expr == WEFTI_EXPR_NONE)
        wefti_reader_fail_name(r, at, name, "is no terminal of common that is known");
    uint32_t rule = r->err ? 0 : wefti_reader_rule(r, as);
    if (!r->err) wefti_reader_define(r, at, rule, wefti_tree_expr(r->tree, expr));
}

/* Behind "%import": common.NAME, common.NAME -> NAME, common (NAME, NAME). */
static void read_import(struct lark *l) {
    struct wefti_reader *r = &l->r;
    bool is_terminal = true, is_alias = true, has_more;
    skip(l, false);
    if (!wefti_reader_take_text(r, "common") || is_name_char(wefti_reader_peek(r))) {
        wefti_reader_refuse(r, "%import is supported of common alone");
        return;
    }
    skip(l, false);
    bool is_list = wefti_reader_take(r, '(');
    if (!is_list && !wefti_reader_take(r, '.')) wefti_reader_fail(r, "common has a . behind it");
    do {
        skip(l, is_list);
        size_t at = r->at;
        struct weft_str name = take_name(l, &is_terminal), as = name;
        skip(l, is_list);
        if (!is_list && wefti_reader_take_text(r, "->")) {
            skip(l, false);
            as = take_name(l, &is_alias);
        }
        if (name.len == 0 || as.len == 0 || !is_terminal || !is_alias)
            wefti_reader_fail_at(r, at, WEFT_E_INVAL, "a terminal's name should stand here");
        if (!r->err) import(l, at, name, as);
        has_more = is_list && !r->err && wefti_reader_take(r, ',');
    } while (has_more);
    if (is_list && !wefti_reader_take(r, ')')) wefti_reader_fail(r, "a list has no )");
}

/* Behind "%ignore". */
static void read_ignore(struct lark *l) {
    struct wefti_tree *tree = l->r.tree;
    l->is_terminal = true;
    uint32_t alt = read_alt(l, false);
    if (!l->r.err && !tree->failed) wefti_tree_add(tree, l->ignored_list, alt);
}

/* Behind "%llguidance", which says that this notation is meant: without options. */
static void read_options(struct lark *l) {
    struct wefti_reader *r = &l->r;
    skip(l, true);
    size_t at = r->at;
    bool is_empty = wefti_reader_take(r, '{');
    skip(l, true);
    if (!is_empty || !wefti_reader_take(r, '}'))
        wefti_reader_fail_at(r, at, WEFT_E_UNSUPPORTED, "options of %llguidance are not supported");
}

/* Behind "%". */
static void read_statement(struct lark *l) {
    struct wefti_reader *r = &l->r;
    static const char *const refused[] = {
        "declare", "%declare is not supported", "override", "%override is not supported",
        "extend",  "%extend is not supported",  NULL};
    if (wefti_reader_take_text(r, "ignore")) {
        read_ignore(l);
    } else if (wefti_reader_take_text(r, "import")) {
        read_import(l);
    } else if (wefti_reader_take_text(r, "llguidance")) {
        read_options(l);
    } else {
        for (size_t i = 0; refused[i]; i += 2) {
            if (wefti_reader_take_text(r, refused[i])) wefti_reader_refuse(r, refused[i + 1]);
        }
        wefti_reader_fail(r, "there is no such statement");
    }
}

static void skip_priority(struct lark *l) {
    struct wefti_reader *r = &l->r;
    uint32_t ignored;
    skip(l, false);
    if (!wefti_reader_take(r, '.')) return;
    if (!wefti_reader_take(r, '-')) (void)wefti_reader_take(r, '+');
    if (!wefti_reader_count(r, &ignored)) wefti_reader_fail(r, "a priority is a whole number");
    skip(l, false);
}

static void read_definition(struct lark *l) {
    struct wefti_reader *r = &l->r;
    size_t at = r->at;
    bool is_shaped = false;
    while (wefti_reader_take(r, '?') || wefti_reader_take(r, '!'))
        is_shaped = true;
    struct weft_str name = take_name(l, &l->is_terminal);
    if (name.len == 0) wefti_reader_fail(r, "a rule, a terminal or a statement should stand here");
    if (is_shaped && l->is_terminal) wefti_reader_fail(r, "only rules have ? and ! before them");
    if (r->err) return;
    uint32_t rule = wefti_reader_rule(r, name);
    if (wefti_reader_peek(r) == '{')
        wefti_reader_refuse(r, "templates (name{...}) are not supported");
    skip_priority(l);
    if (wefti_reader_peek(r) == '[')
        wefti_reader_refuse(r, "options of rules ([...]) are not supported");
    if (wefti_reader_take_text(r, "::"))
        wefti_reader_refuse(r, "rules with parameters (::) are not supported");
    if (!wefti_reader_take(r, ':')) wefti_reader_fail(r, "a : should stand here");
    if (r->err) return;
    uint32_t body = read_alt(l, false);
    wefti_reader_define(r, at, rule, body);
}

/* ------------------------------------------------------------------------- terminals, put together --- */

static bool is_terminal_name(const struct wefti_reader_name *name) {
    size_t i = 0;
    while (i < name->text.len && !is_upper(name->text.data[i]) && !is_lower(name->text.data[i]))
        i++;
    return i < name->text.len && is_upper(name->text.data[i]);
}

static wefti_expr expr_of_rule(struct lark *l, uint32_t rule);

static wefti_expr expr_of(struct lark *l, uint32_t node);

static wefti_expr expr_of_parts(struct lark *l, const struct wefti_tree_node *parent) {
    const struct wefti_tree *tree = l->r.tree;
    size_t n = 0, i = 0;
    for (uint32_t at = parent->child; at != WEFTI_TREE_NONE; at = tree->nodes[at].next)
        n++;
    wefti_expr whole = WEFTI_EXPR_EMPTY, *parts = calloc(n + 1, sizeof *parts);
    if (!parts) wefti_reader_fail_at(&l->r, 0, WEFT_E_NOMEM, "no memory for the grammar");
    for (uint32_t at = parent->child; parts && at != WEFTI_TREE_NONE; at = tree->nodes[at].next)
        parts[i++] = expr_of(l, at);
    if (parts && parent->kind == WEFTI_TREE_ALT) whole = wefti_expr_alt(tree->pool, parts, n);
    while (parts && parent->kind == WEFTI_TREE_CAT && i-- > 0)
        whole = wefti_expr_cat(tree->pool, parts[i], whole);
    free(parts);
    return whole;
}

/* Of a part of a terminal. */
static wefti_expr expr_of(struct lark *l, uint32_t node) {
    const struct wefti_tree_node at = l->r.tree->nodes[node];
    if (at.kind == WEFTI_TREE_EXPR) return at.what;
    if (++l->depth > RESOLVE_DEPTH_MAX)
        wefti_reader_fail_at(&l->r, 0, WEFT_E_TOOBIG, "terminals need each other too deeply");
    wefti_expr whole = WEFTI_EXPR_NONE;
    if (l->r.err)
        whole = WEFTI_EXPR_NONE;
    else if (at.kind == WEFTI_TREE_RULE)
        whole = expr_of_rule(l, at.what);
    else if (at.kind == WEFTI_TREE_REPEAT)
        whole = wefti_expr_repeat(l->r.tree->pool, expr_of(l, at.child), at.min, at.max);
    else
        whole = expr_of_parts(l, &at);
    l->depth--;
    return whole;
}

/* A terminal's body becomes one expression. */
static wefti_expr expr_of_rule(struct lark *l, uint32_t rule) {
    struct wefti_tree *tree = l->r.tree;
    uint32_t body = tree->bodies[rule];
    if (l->marks[rule] == DONE) return tree->nodes[body].what;
    if (l->marks[rule] == UNDER_WAY)
        wefti_reader_fail_at(&l->r, 0, WEFT_E_INVAL, "a terminal may not need itself");
    l->marks[rule] = UNDER_WAY;
    if (l->r.err) return WEFTI_EXPR_NONE;
    wefti_expr expr = expr_of(l, body);
    uint32_t node = l->r.err ? WEFTI_TREE_NONE : wefti_tree_expr(tree, expr);
    if (node == WEFTI_TREE_NONE) return WEFTI_EXPR_NONE;
    tree->bodies[rule] = node;
    l->marks[rule] = DONE;
    return expr;
}

static void make_terminals(struct lark *l, uint32_t first_node) {
    struct wefti_reader *r = &l->r;
    struct wefti_tree *tree = r->tree;
    l->marks = calloc((size_t)tree->n_rules + 1, 1);
    if (!l->marks) wefti_reader_fail_at(r, 0, WEFT_E_NOMEM, "no memory for the grammar");
    for (uint32_t i = 0; i < r->n_names && !r->err && !tree->failed; i++) {
        if (is_terminal_name(&r->names[i])) (void)expr_of_rule(l, r->names[i].rule);
    }
    if (!r->err && !tree->failed && l->ignored != WEFTI_TREE_NONE)
        (void)expr_of_rule(l, l->ignored);
    for (uint32_t i = first_node; i < tree->n_nodes && !r->err && !tree->failed; i++) {
        struct wefti_tree_node *node = &tree->nodes[i];
        if (node->kind != WEFTI_TREE_RULE || l->marks[node->what] != DONE) continue;
        node->what = tree->nodes[tree->bodies[node->what]].what;
        node->kind = WEFTI_TREE_EXPR;
    }
    free(l->marks);
}

/* ----------------------------------------------------------------------------------- all of it --- */

static void begin_ignored(struct lark *l) {
    struct wefti_tree *tree = l->r.tree;
    l->ignored = l->ignored_list = WEFTI_TREE_NONE;
    if (!memmem(l->r.text, l->r.len, "%ignore", 7)) return;
    l->ignored = wefti_tree_new_rule(tree);
    l->ignored_list = wefti_tree_parent(tree, WEFTI_TREE_ALT);
    uint32_t many = wefti_tree_repeat(tree, l->ignored_list, 0, WEFTI_EXPR_MANY);
    if (!tree->failed) tree->bodies[l->ignored] = many;
}

/* What is ignored may come before all else, too. */
static uint32_t make_root(struct lark *l, const struct wefti_reader_name *start) {
    struct wefti_tree *tree = l->r.tree;
    if (l->ignored == WEFTI_TREE_NONE) return start->rule;
    uint32_t rule = wefti_tree_new_rule(tree);
    uint32_t cat = wefti_tree_parent(tree, WEFTI_TREE_CAT);
    wefti_tree_add(tree, cat, wefti_tree_rule(tree, l->ignored));
    wefti_tree_add(tree, cat, wefti_tree_rule(tree, start->rule));
    if (!tree->failed) tree->bodies[rule] = cat;
    return rule;
}

weft_err wefti_lark_read(struct wefti_tree *tree, struct weft_str text, uint32_t *root_out,
                         struct weft_errmsg *why) {
    struct lark l = {0};
    struct wefti_reader *r = &l.r;
    uint32_t first_node = tree->n_nodes;
    *root_out = WEFTI_TREE_NONE;
    weft_err err = wefti_reader_init(r, tree, text, why);
    if (err) return err;
    begin_ignored(&l);
    skip(&l, true);
    while (r->at < r->len && !r->err) {
        if (wefti_reader_take(r, '%'))
            read_statement(&l);
        else
            read_definition(&l);
        end_line(&l);
    }
    wefti_reader_check_defined(r);
    const struct wefti_reader_name *start = wefti_reader_find(r, "start");
    if (!r->err && !start)
        r->err = weft_err_set(why, WEFT_E_INVAL, "the grammar has no rule named start");
    if (!r->err && start && !tree->failed) *root_out = make_root(&l, start);
    if (!r->err) make_terminals(&l, first_node);
    if (!r->err && tree->failed)
        r->err = weft_err_set(why, WEFT_E_TOOBIG, "the grammar is too large");
    wefti_reader_fini(r);
    return r->err;
}

/* ------------------------------------------------------------------------------ either notation --- */

static size_t skip_comments(struct weft_str text) {
    size_t at = 0;
    for (; at < text.len && strchr(" \t\r\n#/", text.data[at]); at++) {
        if (text.data[at] != '#' && text.data[at] != '/') continue;
        const char *end = memchr(text.data + at, '\n', text.len - at);
        if (!end) return text.len;
        at = (size_t)(end - text.data);
    }
    return at;
}

/* Whether the first rule has "::=" behind its name. */
static bool is_gbnf(struct weft_str text) {
    size_t at = skip_comments(text);
    while (at < text.len && (isalnum((unsigned char)text.data[at]) || strchr("-_", text.data[at])))
        at++;
    while (at < text.len && (text.data[at] == ' ' || text.data[at] == '\t'))
        at++;
    return text.len - at >= 3 && memcmp(text.data + at, "::=", 3) == 0;
}

weft_err wefti_rules_read(struct wefti_tree *tree, struct weft_str text, uint32_t *root_out,
                          struct weft_errmsg *why) {
    struct weft_errmsg reason = {""};
    if (is_gbnf(text)) return wefti_gbnf_read(tree, text, root_out, why);
    weft_err err = wefti_lark_read(tree, text, root_out, &reason);
    if (!err || err == WEFT_E_NOMEM || err == WEFT_E_TOOBIG)
        return err ? weft_err_set(why, err, "%s", reason.text) : err;
    return weft_err_set(why, err, "%s (read as Lark, as its first rule has no \"::=\")",
                        reason.text);
}
