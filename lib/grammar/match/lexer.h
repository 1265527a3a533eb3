/* grammar/lexer: the expressions that may go on at one place, together as one automaton whose states
 * and steps are made when they are first needed.
 *
 * A state is a set of pairs: an expression that a rule waits for, and what is left of it. States that
 * are the same set are the same number.
 */
#ifndef WEFTI_GRAMMAR_LEXER_H
#define WEFTI_GRAMMAR_LEXER_H

#include "expr/expr.h"

typedef struct wefti_lexer wefti_lexer;
typedef uint32_t wefti_lex;
#define WEFTI_LEX_DEAD 0u /* no pair */

/* `pool` is borrowed; from here on it gets no new sets of bytes. At most n_states_max states. NULL: no memory. */
wefti_lexer *wefti_lexer_new(wefti_expr_pool *pool, uint32_t n_states_max);
void wefti_lexer_free(wefti_lexer *lexer);
/* No memory, or over a bound: every answer since may be wrong. */
bool wefti_lexer_failed(const wefti_lexer *lexer);
uint32_t wefti_lexer_n_states(const wefti_lexer *lexer); /* made so far */
size_t wefti_lexer_bytes(const wefti_lexer *lexer);

/* The state in which all of these may begin; the list is put in order. */
wefti_lex wefti_lexer_start(wefti_lexer *lexer, wefti_expr *exprs, size_t n);
wefti_lex wefti_lexer_step(wefti_lexer *lexer, wefti_lex state, unsigned char byte);
/* A state from which all texts of up to `n` bytes lead on, and end expressions, as from this one (wefti_expr_far):
 * where counters run, many states have the same. */
wefti_lex wefti_lexer_far(wefti_lexer *lexer, wefti_lex state, uint32_t n);
/* One of which any text that it can go on with for ever goes on from this state, too (wefti_expr_endless); it ends
 * expressions of its own. DEAD: there is none to be seen. */
wefti_lex wefti_lexer_endless(wefti_lexer *lexer, wefti_lex state);
/* The steps of a state that are known: by class of bytes (wefti_expr_class_of), NOT_YET for others, which
 * wefti_lexer_step works out. Stays where it is. NULL: no memory, or the state is DEAD. */
#define WEFTI_LEX_NOT_YET UINT32_MAX
const wefti_lex *wefti_lexer_row(wefti_lexer *lexer, wefti_lex state);
const unsigned char *wefti_lexer_classes(const wefti_lexer *lexer); /* [256] */
/* Those that may end here, in order; valid until the next start or step. The index says which list it is: 0
 * where nothing may end. */
uint32_t wefti_lexer_ending(const wefti_lexer *lexer, wefti_lex state);
const wefti_expr *wefti_lexer_endings(const wefti_lexer *lexer, uint32_t ending, size_t *n_out);

#endif
