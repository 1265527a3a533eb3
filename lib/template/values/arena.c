/* The bounds of a rendering, and the arena that holds everything it makes. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "values/run.h"

#define CHUNK_BYTES 16384u
_Static_assert(CHUNK_BYTES % 16 == 0, "pieces are aligned to 16 bytes");

struct wefti_tmpl_chunk {
    SLIST_ENTRY(wefti_tmpl_chunk) below;
    size_t cap, used;
    _Alignas(16) char bytes[];
};

/* --- faults and bounds ------------------------------------------------------------------------ */

weft_err wefti_tmpl_fault(struct wefti_tmpl_run *run, const char *fmt, ...) {
    char text[sizeof run->why->text];
    va_list list;
    va_start(list, fmt);
    (void)vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    return weft_err_set(run->why, WEFT_E_INVAL, "chat template, line %u: %s", run->line, text);
}

weft_err wefti_tmpl_too_big(struct wefti_tmpl_run *run) {
    return weft_err_set(run->why, WEFT_E_TOOBIG, "the rendered chat prompt is over %zu bytes",
                        run->out_max);
}

weft_err wefti_tmpl_charge(struct wefti_tmpl_run *run, size_t steps) {
    if (run->steps_left >= steps) {
        run->steps_left -= steps;
        return WEFT_OK;
    }
    run->steps_left = 0;
    return weft_err_set(run->why, WEFT_E_TOOBIG,
                        "rendering the chat template takes too many steps (line %u)", run->line);
}

/* A level takes three C frames of a few hundred bytes: 2 MB at most, in a thread of 8. */
#define RUN_DEPTH_MAX 2000

weft_err wefti_tmpl_deeper(struct wefti_tmpl_run *run) {
    if (++run->depth <= RUN_DEPTH_MAX) return wefti_tmpl_charge(run, 1);
    return weft_err_set(run->why, WEFT_E_TOOBIG,
                        "rendering the chat template recurses too deep (line %u)", run->line);
}

/* --- the arena -------------------------------------------------------------------------------- */

weft_err wefti_tmpl_alloc(struct wefti_tmpl_run *run, size_t bytes, void **out) {
    *out = NULL;
    weft_err err = wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(bytes));
    if (err) return err;
    if (bytes > run->arena_max || run->arena_bytes > run->arena_max - bytes)
        return weft_err_set(run->why, WEFT_E_TOOBIG,
                            "rendering the chat template needs over %zu bytes of memory",
                            run->arena_max);
    bytes = (bytes + 15) & ~(size_t)15;
    struct wefti_tmpl_chunk *chunk = SLIST_FIRST(&run->chunks);
    if (!chunk || chunk->cap - chunk->used < bytes) {
        size_t cap = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        chunk = malloc(sizeof *chunk + cap);
        if (!chunk) return WEFT_E_NOMEM;
        *chunk = (struct wefti_tmpl_chunk){.cap = cap};
        SLIST_INSERT_HEAD(&run->chunks, chunk, below);
    }
    *out = chunk->bytes + chunk->used;
    chunk->used += bytes;
    WEFT_ASSERT(chunk->used <= chunk->cap);
    WEFT_ASSERT(((uintptr_t)*out & 15) == 0);
    run->arena_bytes += bytes;
    return WEFT_OK;
}

struct wefti_tmpl_mark wefti_tmpl_mark(const struct wefti_tmpl_run *run) {
    struct wefti_tmpl_chunk *newest = SLIST_FIRST(&run->chunks);
    return (struct wefti_tmpl_mark){newest, newest ? newest->used : 0, run->escapes};
}

void wefti_tmpl_drop_since(struct wefti_tmpl_run *run, struct wefti_tmpl_mark mark) {
    if (run->escapes != mark.escapes) return;
    while (SLIST_FIRST(&run->chunks) != mark.chunk) {
        struct wefti_tmpl_chunk *gone = SLIST_FIRST(&run->chunks);
        WEFT_ASSERT(gone); /* a mark of this arena lies below */
        SLIST_REMOVE_HEAD(&run->chunks, below);
        run->arena_bytes -= gone->used;
        free(gone);
    }
    if (mark.chunk) {
        WEFT_ASSERT(mark.chunk->used >= mark.used);
        run->arena_bytes -= mark.chunk->used - mark.used;
        mark.chunk->used = mark.used;
    }
}

void wefti_tmpl_arena_fini(struct wefti_tmpl_run *run) {
    WEFT_ASSERT(run);
    struct wefti_tmpl_mark none = {NULL, 0, run->escapes};
    wefti_tmpl_drop_since(run, none);
}
