/* engine/runtime/profile — who was busy with what, and when.
 *
 * Threads  A thread writes its own log during a pass; the owner, who steps the engine, books and
 *          reads between passes, after the pool's last barrier. */
#ifndef WEFT_ENGINE_PROFILE_H
#define WEFT_ENGINE_PROFILE_H

#include <stdint.h>

#include "engine/engine.h"
#include "kernels/kernels.h"

struct wefti_profile;

/* One thread's notes. It is in one operator at a time: each mark ends a span and begins the
 * next. */
struct wefti_profile_log {
    _Alignas(64) uint64_t since_ns; /* when the open span began */
    uint64_t aside_ns;              /* how much of it was booked elsewhere */
    uint64_t n_spans;               /* ever; the ring keeps the last ones */
    enum weft_eng_op op;            /* the open span's; COUNT: none is open */
    uint32_t open_layer;            /* the open span's */
    uint32_t layer;                 /* that spans begin in from here on; UINT32_MAX: in none */
    uint64_t busy_ns[WEFT_ENG_OP_COUNT];
    struct weft_eng_span *ring; /* [WEFT_ENG_SPANS_MAX] */
};

/* What an operator had to do, all calls since the last reset. */
struct wefti_profile_counts {
    uint64_t n_calls, bytes, ops;
    enum weft_kern_peak peak;
};

WEFT_MUST_CHECK weft_err wefti_profile_new(uint32_t n_threads, struct wefti_profile **profile_out,
                                           struct weft_errmsg *why);
void wefti_profile_free(struct wefti_profile *profile); /* accepts NULL */
struct wefti_profile_log *wefti_profile_thread_log(struct wefti_profile *profile,
                                                   uint32_t thread_idx);

/* The thread turns to `op` (COUNT: to nothing that is measured). */
void wefti_profile_mark(struct wefti_profile_log *log, enum weft_eng_op op);
/* The time since `begin_ns` was `op`'s, not the open span's. */
void wefti_profile_mark_aside(struct wefti_profile_log *log, enum weft_eng_op op,
                              uint64_t begin_ns);

/* The counts of an operator, to be added to. */
struct wefti_profile_counts *wefti_profile_counts_of(struct wefti_profile *profile,
                                                     enum weft_eng_op op);
void wefti_profile_step(struct wefti_profile *profile, uint64_t begin_ns, uint64_t end_ns,
                        uint32_t n_tokens);

/* The results of engine.h's functions. */
void wefti_profile_read(const struct wefti_profile *profile, struct weft_eng_profile *out);
void wefti_profile_reset(struct wefti_profile *profile);
uint32_t wefti_profile_spans(const struct wefti_profile *profile, uint32_t track,
                             struct weft_eng_span *out, uint32_t max);

#endif
