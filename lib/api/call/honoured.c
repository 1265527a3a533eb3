#include "call/honoured.h"

#include <pthread.h>

#include "base/check.h"
#include "codec/digest.h"

#define N_PLACES 1024u

/* All that a grammar is, but for the text its digest; kind NONE: a free place. */
struct place {
    struct weft_grammar grammar;
    struct weft_digest digest;
};

static struct place places[N_PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct place place_of(const struct weft_grammar *grammar) {
    struct place place = {
        .grammar = *grammar,
        .digest =
            weft_digest_of("grammar", grammar->n_bytes ? grammar->text : "", grammar->n_bytes),
    };
    place.grammar.text = NULL;
    return place;
}

static bool is_same(const struct place *a, const struct place *b) {
    return a->digest.hi == b->digest.hi && a->digest.lo == b->digest.lo &&
           a->grammar.kind == b->grammar.kind && a->grammar.thinking == b->grammar.thinking &&
           a->grammar.marks == b->grammar.marks &&
           a->grammar.json_blanks == b->grammar.json_blanks &&
           a->grammar.json_digits == b->grammar.json_digits;
}

/* Looks at its place, and takes it where it is to be noted. */
static bool visit(const struct weft_grammar *grammar, bool is_noted) {
    struct place place = place_of(grammar);
    int failed = pthread_mutex_lock(&lock);
    struct place *at = &places[place.digest.lo % N_PLACES];
    bool is_there = is_same(at, &place);
    if (is_noted) *at = place;
    failed |= pthread_mutex_unlock(&lock);
    WEFT_ASSERT(!failed);
    return is_there;
}

bool wefti_api_is_honoured(const struct weft_grammar *grammar) {
    return visit(grammar, false);
}

void wefti_api_note_honoured(const struct weft_grammar *grammar) {
    (void)visit(grammar, true);
}
