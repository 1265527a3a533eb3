#include "sources/reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "codec/utf8.h"
#include "expr/chars.h"

#define DEPTH_MAX 500u
#define COUNT_MAX 1000000u
#define RULES_MAX 100000u
#define NAME_SHOWN 100u

weft_err wefti_reader_init(struct wefti_reader *r, struct wefti_tree *tree, struct weft_str text,
                           struct weft_errmsg *why) {
    if (!text.data) text.data = "";
    *r = (struct wefti_reader){.text = text.data, .len = text.len, .tree = tree, .why = why};
    if (text.len > WEFTI_READER_BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "a grammar of %zu bytes is over %u", text.len,
                            WEFTI_READER_BYTES_MAX);
    if (!weft_utf8_valid(text.data, text.len) || memchr(text.data, 0, text.len))
        return weft_err_set(why, WEFT_E_INVAL, "the grammar is not a text in UTF-8");
    return WEFT_OK;
}

void wefti_reader_fini(struct wefti_reader *r) {
    free(r->names);
    free(r->slots);
    r->names = NULL;
    r->slots = NULL;
}

/* ------------------------------------------------------------------------------------ errors --- */

void wefti_reader_fail_at(struct wefti_reader *r, size_t at, weft_err err, const char *what) {
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

void wefti_reader_fail(struct wefti_reader *r, const char *what) {
    wefti_reader_fail_at(r, r->at, WEFT_E_INVAL, what);
}

void wefti_reader_refuse(struct wefti_reader *r, const char *what) {
    wefti_reader_fail_at(r, r->at, WEFT_E_UNSUPPORTED, what);
}

void wefti_reader_fail_name(struct wefti_reader *r, size_t at, struct weft_str name,
                            const char *what) {
    struct weft_errmsg text;
    int n = (int)(name.len < NAME_SHOWN ? name.len : NAME_SHOWN);
    (void)weft_err_set(&text, WEFT_E_INVAL, "\"%.*s\" %s", n, name.data, what);
    wefti_reader_fail_at(r, at, WEFT_E_INVAL, text.text);
}

/* ------------------------------------------------------------------------------------- pieces --- */

bool wefti_reader_take(struct wefti_reader *r, char c) {
    if (r->at == r->len || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

bool wefti_reader_take_text(struct wefti_reader *r, const char *text) {
    size_t n = strlen(text);
    if (r->len - r->at < n || memcmp(r->text + r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

char wefti_reader_peek(const struct wefti_reader *r) {
    return r->at < r->len ? r->text[r->at] : '\0';
}

bool wefti_reader_count(struct wefti_reader *r, uint32_t *value_out) {
    uint64_t value = 0;
    size_t from = r->at;
    for (char c; c = wefti_reader_peek(r), c >= '0' && c <= '9'; r->at++)
        value = value <= COUNT_MAX ? value * 10 + (uint64_t)(c - '0') : value;
    *value_out = (uint32_t)value;
    if (value > COUNT_MAX) wefti_reader_fail_at(r, from, WEFT_E_TOOBIG, "a count is over 1000000");
    return r->at > from;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

uint32_t wefti_reader_hex(struct wefti_reader *r, int n) {
    uint32_t value = 0;
    for (; n > 0 && !r->err; n--) {
        int digit = hex_digit(wefti_reader_peek(r));
        if (digit < 0) {
            wefti_reader_fail(r, "the escape has too few hex digits");
        } else {
            value = value << 4 | (uint32_t)digit;
            r->at++;
        }
    }
    if (value > WEFTI_CHAR_MAX || (value >= 0xd800 && value <= 0xdfff))
        wefti_reader_fail(r, "no character has this number");
    return r->err ? 0 : value;
}

void wefti_reader_enter(struct wefti_reader *r) {
    if (++r->depth > DEPTH_MAX)
        wefti_reader_fail_at(r, r->at, WEFT_E_TOOBIG, "groups are nested more than 500 deep");
}

void wefti_reader_leave(struct wefti_reader *r) {
    WEFT_ASSERT(r->depth > 0);
    r->depth--;
}

/* ------------------------------------------------------------------------------------- names --- */

static bool grow_names(struct wefti_reader *r) {
    uint32_t n_slots = r->n_slots ? 2 * r->n_slots : 64;
    struct wefti_reader_name *names = realloc(r->names, n_slots / 2 * sizeof *names);
    if (names) r->names = names;
    uint32_t *slots = names ? calloc(n_slots, sizeof *slots) : NULL;
    if (!slots) return false;
    free(r->slots);
    r->slots = slots;
    r->n_slots = n_slots;
    return true;
}

static uint32_t *slot_of(const struct wefti_reader *r, struct weft_str name) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < name.len; i++)
        hash = (hash ^ (unsigned char)name.data[i]) * 1099511628211u;
    for (;; hash++) {
        uint32_t *slot = &r->slots[hash & (r->n_slots - 1)];
        if (!*slot) return slot;
        struct weft_str text = r->names[*slot - 1].text;
        if (text.len == name.len && memcmp(text.data, name.data, name.len) == 0) return slot;
    }
}

uint32_t wefti_reader_rule(struct wefti_reader *r, struct weft_str name) {
    if (r->n_slots == 0 || 2 * r->n_names >= r->n_slots) {
        if (r->n_names > RULES_MAX || !grow_names(r)) {
            wefti_reader_fail_at(r, r->at, WEFT_E_TOOBIG, "there are too many rules");
            return 0;
        }
        for (uint32_t i = 0; i < r->n_names; i++)
            *slot_of(r, r->names[i].text) = i + 1;
    }
    uint32_t *slot = slot_of(r, name);
    if (*slot) return r->names[*slot - 1].rule;
    uint32_t rule = wefti_tree_new_rule(r->tree);
    if (rule == WEFTI_TREE_NONE) {
        wefti_reader_fail_at(r, r->at, WEFT_E_TOOBIG, "the grammar is too large");
        return 0;
    }
    r->names[r->n_names] = (struct wefti_reader_name){name, rule, (size_t)(name.data - r->text)};
    *slot = ++r->n_names;
    return rule;
}

const struct wefti_reader_name *wefti_reader_find(const struct wefti_reader *r, const char *name) {
    if (r->n_names == 0) return NULL;
    uint32_t slot = *slot_of(r, (struct weft_str){name, strlen(name)});
    return slot ? &r->names[slot - 1] : NULL;
}

void wefti_reader_define(struct wefti_reader *r, size_t at, uint32_t rule, uint32_t body) {
    if (r->tree->failed) wefti_reader_fail_at(r, at, WEFT_E_TOOBIG, "the grammar is too large");
    if (r->err) return;
    if (r->tree->bodies[rule] != WEFTI_TREE_NONE)
        wefti_reader_fail_at(r, at, WEFT_E_INVAL, "the rule is there already");
    r->tree->bodies[rule] = body;
}

void wefti_reader_check_defined(struct wefti_reader *r) {
    for (uint32_t i = 0; i < r->n_names && !r->err; i++) {
        const struct wefti_reader_name *name = &r->names[i];
        if (r->tree->bodies[name->rule] == WEFTI_TREE_NONE)
            wefti_reader_fail_name(r, name->first_at, name->text, "is defined nowhere");
    }
}
