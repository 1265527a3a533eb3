/* grammar/place: where in a grammar a text has got to: an Earley recogniser over bytes.
 *
 * A column stands wherever an expression has ended: it holds the places in rules that may be next, each
 * with the column at which its rule began. Between columns run threads: the expressions that began at a
 * column, as one state of the lexer. A byte moves all threads; where one of them may end a new column
 * is made. Everything is on stacks, so going back is cutting them off.
 */
#ifndef WEFTI_GRAMMAR_PLACE_H
#define WEFTI_GRAMMAR_PLACE_H

#include "match/lexer.h"
#include "rules/net.h"

struct wefti_item {
    uint32_t state, origin;
};

struct wefti_column {
    uint32_t first_item, end_item;
    wefti_lex start; /* all expressions that may be next */
    bool may_end;    /* the whole text */
};

struct wefti_thread {
    uint32_t column;
    wefti_lex lex;
};

/* One position in the text, what is true behind its last byte. */
struct wefti_frame {
    uint32_t end_thread, n_columns;
    bool has_column; /* the last one stands here */
};

struct wefti_stack {
    void *at;
    uint32_t n, cap;
};

struct wefti_place {
    const struct wefti_net *net;
    wefti_lexer *lexer;
    struct wefti_stack items, columns, threads, frames;
    struct wefti_stack waiting; /* expressions of the column that is made */
    uint64_t *seen;             /* items of that column: open addressing */
    uint32_t *seen_in;          /* the generation that an entry is of */
    uint32_t n_seen, cap_seen, generation;
    uint32_t work_left; /* items that may be looked at */
    uint64_t n_worked;  /* ever */
    bool failed;
};

/* WEFT_E_NOMEM. `net` and `lexer` are borrowed. */
WEFT_MUST_CHECK weft_err wefti_place_init(struct wefti_place *place, const struct wefti_net *net,
                                          wefti_lexer *lexer);
void wefti_place_fini(struct wefti_place *place);
size_t wefti_place_bytes(const struct wefti_place *place);

/* Work for one more byte, or mask: columns of an ambiguous grammar grow with the text, and the time that one takes with
 * its square. What needs more sets `failed`. */
void wefti_place_allow(struct wefti_place *place);

/* False: no text of the grammar goes on so; the place is as before. */
bool wefti_place_take(struct wefti_place *place, unsigned char byte);
bool wefti_place_may_end(const struct wefti_place *place);
/* Bytes taken so far, and back to an earlier count. */
uint32_t wefti_place_n_bytes(const struct wefti_place *place);
void wefti_place_rewind(struct wefti_place *place, uint32_t n_bytes);

/* The threads that run now. */
const struct wefti_thread *wefti_place_threads(const struct wefti_place *place, uint32_t *n_out);
/* The column behind the expressions of `ending` that began at `column`; it is on top of the others, and is
 * cut off again with wefti_place_cut. */
uint32_t wefti_place_column(struct wefti_place *place, uint32_t column, uint32_t ending);
const struct wefti_column *wefti_place_column_at(const struct wefti_place *place, uint32_t column);
uint32_t wefti_place_n_columns(const struct wefti_place *place);
void wefti_place_cut(struct wefti_place *place, uint32_t n_columns);

#endif
