/* kernels/recurrent_body — the scans of recurrent layers, shared by the ISAs.
 *
 * Columns of a state know nothing of each other, and a row of a panel is a `vec` (vec_scalar.h):
 * numbers that belong to the row meet it as factors of all its columns, and no sum runs across a
 * vector. Each element takes few operations, so what counts is how often it is read and written:
 *
 *   mamba  MAMBA_TOKENS tokens go over the state together, in their order: it is read and written once
 *          for all of them. Alone or together, an element sees the same operations.
 *   delta  a token's r needs all rows before any of them changes, so this takes one pass per token:
 *          each ends the token and begins the next, whose `decay * s` it leaves as the state.
 *
 * 128 rows of a panel are 8 KiB: MAMBA_PANELS or DELTA_PANELS of them, which go together, stay in L1
 * while tokens come and go. The last pass fetches the panels after them. */
#ifndef WEFT_KERNELS_RECURRENT_BODY_H
#define WEFT_KERNELS_RECURRENT_BODY_H

#include "kern_internal.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The first n of a panel's columns, zeros after them. */
ALWAYS_INLINE vec read_columns(const float *from, uint32_t n) {
    if (n >= WEFT_PANEL) return vec_read_any(from);
    _Alignas(64) float part[WEFT_PANEL] = {0};
    memcpy(part, from, n * sizeof *from);
    return vec_read(part);
}

ALWAYS_INLINE void write_columns(vec v, float *to, uint32_t n) {
    if (n >= WEFT_PANEL) {
        vec_write(v, to);
        return;
    }
    _Alignas(64) float part[WEFT_PANEL];
    vec_write(v, part);
    memcpy(to, part, n * sizeof *to);
}

/* Panels of a head that go together: `n` of them from column `column` on, of n_columns. */
struct group {
    float *state;
    size_t panel_floats;
    uint32_t n_rows, n, column, n_columns;
};

ALWAYS_INLINE float *row_at(const struct group *group, uint32_t panel, uint32_t row) {
    return group->state + panel * group->panel_floats + (size_t)row * WEFT_PANEL;
}

/* Columns from there to the end of the head. */
ALWAYS_INLINE uint32_t columns_left(const struct group *group, uint32_t panel) {
    return group->n_columns - group->column - panel * WEFT_PANEL;
}

/* One of zeros where the sequence begins. */
ALWAYS_INLINE struct group group_at(float *state, uint32_t panel, uint32_t n, uint32_t n_rows,
                                    uint32_t n_columns, bool is_first) {
    const size_t panel_floats = (size_t)n_rows * WEFT_PANEL;
    state += panel * panel_floats;
    if (is_first) memset(state, 0, n * panel_floats * sizeof *state);
    return (struct group){state, panel_floats, n_rows, n, panel * WEFT_PANEL, n_columns};
}

/* ----------------------------------------------------------------------------------- Mamba-2 --- */

/* What `n` tokens bring to a group. */
struct mamba_tokens {
    vec dx[MAMBA_TOKENS][MAMBA_PANELS], y[MAMBA_TOKENS][MAMBA_PANELS];
    const float *b[MAMBA_TOKENS], *c[MAMBA_TOKENS];
    float decay[MAMBA_TOKENS];
    uint32_t n;
    bool is_last; /* they end the call */
};

ALWAYS_INLINE void mamba_rows(const struct group *group, struct mamba_tokens *tokens) {
    vec h[MAMBA_PANELS];
    for (uint32_t row = 0; row < group->n_rows; row++) {
        for (uint32_t p = 0; p < group->n; p++) {
            const float *at = row_at(group, p, row);
            if (tokens->is_last) __builtin_prefetch(at + group->n * group->panel_floats);
            h[p] = vec_read(at);
        }
        for (uint32_t i = 0; i < tokens->n; i++) {
            const float b = tokens->b[i][row], c = tokens->c[i][row];
            for (uint32_t p = 0; p < group->n; p++) {
                h[p] = vec_add_product(vec_times(h[p], tokens->decay[i]), b, tokens->dx[i][p]);
                tokens->y[i][p] = vec_add_product(tokens->y[i][p], c, h[p]);
            }
        }
        for (uint32_t p = 0; p < group->n; p++)
            vec_write(h[p], row_at(group, p, row));
    }
}

/* Tokens t..t + n. */
ALWAYS_INLINE void mamba_step(const struct weft_kern_mamba *args, const struct group *group,
                              uint32_t t, uint32_t n) {
    struct mamba_tokens tokens = {.n = n, .is_last = t + n == args->n_tokens};
    const float *x = args->x + t * args->x_stride + group->column;
    float *y = args->y + t * args->y_stride + group->column;
    for (uint32_t i = 0; i < n; i++) {
        const size_t at = (t + i) * args->dt_stride, bc_at = (t + i) * args->bc_stride;
        tokens.decay[i] = args->decay[at];
        tokens.b[i] = args->b + bc_at;
        tokens.c[i] = args->c + bc_at;
        for (uint32_t p = 0; p < group->n; p++) {
            vec own = read_columns(x + i * args->x_stride + (size_t)p * WEFT_PANEL,
                                   columns_left(group, p));
            tokens.dx[i][p] = vec_times(own, args->dt[at]);
            tokens.y[i][p] = vec_zero();
        }
    }
    mamba_rows(group, &tokens);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t p = 0; p < group->n; p++) {
            const size_t column = (size_t)p * WEFT_PANEL;
            vec own = read_columns(x + i * args->x_stride + column, columns_left(group, p));
            write_columns(vec_add_product(tokens.y[i][p], args->skip, own),
                          y + i * args->y_stride + column, columns_left(group, p));
        }
    }
}

ALWAYS_INLINE void mamba_group(const struct weft_kern_mamba *args, uint32_t panel, uint32_t n) {
    const struct group group =
        group_at(args->state, panel, n, args->d_state, args->head_dim, args->is_first);
    uint32_t t = 0;
    for (; t + MAMBA_TOKENS <= args->n_tokens; t += MAMBA_TOKENS)
        mamba_step(args, &group, t, MAMBA_TOKENS);
    for (; t < args->n_tokens; t++)
        mamba_step(args, &group, t, 1);
}

static void mamba_scan(const struct weft_kern_mamba *args, uint32_t p_begin, uint32_t p_end) {
    WEFT_ASSERT(p_begin <= p_end && p_end <= weft_kern_state_panels(args->head_dim));
    WEFT_ASSERT((uintptr_t)args->state % 64 == 0 && args->n_tokens > 0);
    uint32_t p = p_begin;
    for (; p + MAMBA_PANELS <= p_end; p += MAMBA_PANELS)
        mamba_group(args, p, MAMBA_PANELS);
    for (; p < p_end; p++)
        mamba_group(args, p, 1);
}

/* ------------------------------------------------------------------------- gated delta rule --- */

/* A token as its rows see it. */
struct delta_token {
    const float *q, *k;
    float decay, beta;
};

ALWAYS_INLINE struct delta_token delta_token_at(const struct weft_kern_delta *args, uint32_t t) {
    const size_t at = t * args->gate_stride;
    return (struct delta_token){args->q + t * args->qk_stride, args->k + t * args->qk_stride,
                                args->decay[at], args->beta[at]};
}

/* The first token of a call: its state is decayed, and k s comes out. */
ALWAYS_INLINE void delta_begin(const struct group *group, const struct delta_token *token,
                               vec seen[DELTA_PANELS]) {
    for (uint32_t p = 0; p < group->n; p++)
        seen[p] = vec_zero();
    for (uint32_t row = 0; row < group->n_rows; row++) {
        const float k = token->k[row];
        for (uint32_t p = 0; p < group->n; p++) {
            float *at = row_at(group, p, row);
            vec s = vec_times(vec_read(at), token->decay);
            seen[p] = vec_add_product(seen[p], k, s);
            vec_write(s, at);
        }
    }
}

/* Ends a token, whose r is there, and begins the next one. */
ALWAYS_INLINE void delta_go_on(const struct group *group, const struct delta_token *token,
                               const struct delta_token *next, const vec r[DELTA_PANELS],
                               vec y[DELTA_PANELS], vec seen[DELTA_PANELS]) {
    for (uint32_t p = 0; p < group->n; p++)
        y[p] = seen[p] = vec_zero();
    for (uint32_t row = 0; row < group->n_rows; row++) {
        const float k = token->k[row], q = token->q[row], k_next = next->k[row];
        for (uint32_t p = 0; p < group->n; p++) {
            float *at = row_at(group, p, row);
            vec s = vec_add_product(vec_read(at), k, r[p]);
            y[p] = vec_add_product(y[p], q, s);
            s = vec_times(s, next->decay);
            seen[p] = vec_add_product(seen[p], k_next, s);
            vec_write(s, at);
        }
    }
}

/* Ends the last one. */
ALWAYS_INLINE void delta_end(const struct group *group, const struct delta_token *token,
                             const vec r[DELTA_PANELS], vec y[DELTA_PANELS]) {
    for (uint32_t p = 0; p < group->n; p++)
        y[p] = vec_zero();
    for (uint32_t row = 0; row < group->n_rows; row++) {
        const float k = token->k[row], q = token->q[row];
        for (uint32_t p = 0; p < group->n; p++) {
            float *at = row_at(group, p, row);
            __builtin_prefetch(at + group->n * group->panel_floats);
            vec s = vec_add_product(vec_read(at), k, r[p]);
            y[p] = vec_add_product(y[p], q, s);
            vec_write(s, at);
        }
    }
}

ALWAYS_INLINE void delta_group(const struct weft_kern_delta *args, uint32_t panel, uint32_t n) {
    const struct group group =
        group_at(args->state, panel, n, args->k_dim, args->v_dim, args->is_first);
    struct delta_token token = delta_token_at(args, 0);
    vec r[DELTA_PANELS], y[DELTA_PANELS], seen[DELTA_PANELS];
    delta_begin(&group, &token, seen);
    for (uint32_t t = 0; t < args->n_tokens; t++) {
        const size_t v_at = t * args->v_stride + group.column,
                     y_at = t * args->y_stride + group.column;
        for (uint32_t p = 0; p < n; p++) {
            vec v = read_columns(args->v + v_at + (size_t)p * WEFT_PANEL, columns_left(&group, p));
            r[p] = vec_times(vec_minus(v, seen[p]), token.beta);
        }
        if (t + 1 < args->n_tokens) {
            struct delta_token next = delta_token_at(args, t + 1);
            delta_go_on(&group, &token, &next, r, y, seen);
            token = next;
        } else {
            delta_end(&group, &token, r, y);
        }
        for (uint32_t p = 0; p < n; p++)
            write_columns(y[p], args->y + y_at + (size_t)p * WEFT_PANEL, columns_left(&group, p));
    }
}

static void delta_scan(const struct weft_kern_delta *args, uint32_t p_begin, uint32_t p_end) {
    WEFT_ASSERT(p_begin <= p_end && p_end <= weft_kern_state_panels(args->v_dim));
    WEFT_ASSERT((uintptr_t)args->state % 64 == 0 && args->n_tokens > 0);
    uint32_t p = p_begin;
    for (; p + DELTA_PANELS <= p_end; p += DELTA_PANELS)
        delta_group(args, p, DELTA_PANELS);
    for (; p < p_end; p++)
        delta_group(args, p, 1);
}

static inline void fill_recurrent(struct weft_kern_table *table) {
    table->mamba_scan = mamba_scan;
    table->delta_scan = delta_scan;
}

#endif
