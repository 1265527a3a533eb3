/* run — one rendering: what it has made so far, and what it may still use.
 *
 * Everything that it makes lies in one arena. A statement's values are dropped when nothing can
 * still point to them: `escapes` counts stores into places that outlive the statement. Bounded:
 * bytes of the arena and of the output, steps (each node, expression and item counts, and long
 * strings by their length), and the depth of recursion. */
#ifndef WEFT_TMPL_RUN_H
#define WEFT_TMPL_RUN_H

#include <sys/queue.h>
#include <time.h>

#include "template.h"
#include "values/value.h"

struct wefti_tmpl_chunk;
SLIST_HEAD(wefti_tmpl_chunks, wefti_tmpl_chunk);

struct wefti_tmpl_run {
    const weft_tmpl *tmpl;
    struct weft_buf *out; /* where statements write now */
    size_t out_max;
    struct wefti_tmpl_chunks chunks; /* owned; newest first */
    size_t arena_bytes, arena_max;
    struct wefti_tmpl_space *scope;
    const struct tm *now;
    uint64_t steps_left;
    uint32_t depth;
    uint32_t escapes;
    struct wefti_tmpl_value written; /* of the filter block being run */
    uint32_t line;                   /* of the expression or statement being run, for messages */
    enum { WEFTI_TMPL_GOING_ON, WEFTI_TMPL_BREAKING, WEFTI_TMPL_CONTINUING } flow;
    struct weft_errmsg *why;
};

struct wefti_tmpl_mark {
    struct wefti_tmpl_chunk *chunk;
    size_t used;
    uint32_t escapes;
};

weft_err wefti_tmpl_alloc(struct wefti_tmpl_run *run, size_t bytes, void **out);
struct wefti_tmpl_mark wefti_tmpl_mark(const struct wefti_tmpl_run *run);
/* Drops values made since the mark, unless something may still point to them. */
void wefti_tmpl_drop_since(struct wefti_tmpl_run *run, struct wefti_tmpl_mark mark);
void wefti_tmpl_arena_fini(struct wefti_tmpl_run *run);
weft_err wefti_tmpl_charge(struct wefti_tmpl_run *run, size_t steps);
/* The steps for copying, comparing or searching bytes, and for looking at each character. */
static inline size_t wefti_tmpl_bytes_steps(size_t bytes) {
    return bytes / 64 + 1;
}
static inline size_t wefti_tmpl_chars_steps(size_t bytes) {
    return bytes / 8 + 1;
}
weft_err wefti_tmpl_deeper(struct wefti_tmpl_run *run); /* undone by run->depth-- */

/* INVAL with the line. */
weft_err wefti_tmpl_fault(struct wefti_tmpl_run *run, const char *fmt, ...) WEFT_PRINTF(2, 3);
weft_err wefti_tmpl_too_big(struct wefti_tmpl_run *run);

/* Scopes and namespaces. */
weft_err wefti_tmpl_bind(struct wefti_tmpl_run *run, struct wefti_tmpl_space *space,
                         struct weft_str name, struct wefti_tmpl_value value);
weft_err wefti_tmpl_push_scope(struct wefti_tmpl_run *run, struct wefti_tmpl_space *parent);
const struct wefti_tmpl_value *wefti_tmpl_space_find(const struct wefti_tmpl_space *space,
                                                     struct weft_str name);

#endif
