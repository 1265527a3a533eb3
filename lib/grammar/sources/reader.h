/* grammar/reader: what readers of rules share: a place in a text, the names of its rules, errors with line
 * and column. Only the first error counts; who reads on after it finds nothing. */
#ifndef WEFTI_GRAMMAR_READER_H
#define WEFTI_GRAMMAR_READER_H

#include "base/str.h"
#include "rules/tree.h"

#define WEFTI_READER_BYTES_MAX (4u << 20)

struct wefti_reader_name {
    struct weft_str text;
    uint32_t rule;
    size_t first_at; /* where it is first used, for who looks for its definition */
};

struct wefti_reader {
    const char *text;
    size_t at, len;
    struct wefti_tree *tree;         /* borrowed */
    struct wefti_reader_name *names; /* owned; in order of the rules */
    uint32_t *slots;                 /* owned; open addressing over them: index + 1 */
    uint32_t n_names, n_slots;
    uint32_t depth; /* of groups */
    struct weft_errmsg *why;
    weft_err err;
};

/* INVAL: not UTF-8, or with a zero byte; TOOBIG. Nothing to free after a failure. */
WEFT_MUST_CHECK weft_err wefti_reader_init(struct wefti_reader *r, struct wefti_tree *tree,
                                           struct weft_str text, struct weft_errmsg *why);
void wefti_reader_fini(struct wefti_reader *r);

void wefti_reader_fail_at(struct wefti_reader *r, size_t at, weft_err err, const char *what);
void wefti_reader_fail(struct wefti_reader *r, const char *what);   /* INVAL, here */
void wefti_reader_refuse(struct wefti_reader *r, const char *what); /* UNSUPPORTED, here */
void wefti_reader_fail_name(struct wefti_reader *r, size_t at, struct weft_str name,
                            const char *what); /* INVAL: "name" and what it is */

bool wefti_reader_take(struct wefti_reader *r, char c);
bool wefti_reader_take_text(struct wefti_reader *r, const char *text);
char wefti_reader_peek(const struct wefti_reader *r); /* 0 at the end */
/* False: there is no digit here. Over a million is an error. */
bool wefti_reader_count(struct wefti_reader *r, uint32_t *value_out);
/* The character that has the number of these `n` hex digits. */
uint32_t wefti_reader_hex(struct wefti_reader *r, int n);
/* Groups within groups: around each. */
void wefti_reader_enter(struct wefti_reader *r);
void wefti_reader_leave(struct wefti_reader *r);

/* The rule of that name, which is a piece of the text; new where there is none. */
uint32_t wefti_reader_rule(struct wefti_reader *r, struct weft_str name);
/* NULL: there is none. */
const struct wefti_reader_name *wefti_reader_find(const struct wefti_reader *r, const char *name);
/* Gives a rule its body; an error where it has one. */
void wefti_reader_define(struct wefti_reader *r, size_t at, uint32_t rule, uint32_t body);
/* An error where a rule that is used is not defined. */
void wefti_reader_check_defined(struct wefti_reader *r);

#endif
