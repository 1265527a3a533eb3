#include "forward/lora.h"

#include <string.h>

#include "base/check.h"
#include "forward/experts.h"

enum { BLOCK_ROWS = 32 }; /* of activations that a thread gathers */

/* Buffers of all passes. */
struct wefti_forward_lora {
    struct wefti_forward_lora_plan plans[2]; /* all rows, and those that go on in the last layer */
    size_t t_stride, member_stride;          /* floats of an entry, and of a matrix in it */
    float *t;                                /* [entries][members][rank] */
    float *expert_t; /* [places][WEFT_SEQ_ADAPTERS_MAX][2][rank]; where there are experts */
    size_t x_stride;
    float **x; /* [n_threads] gathered rows: [BLOCK_ROWS][x_stride] */
    void *map;
    size_t map_bytes;
};

/* --------------------------------------------------------------------------------- buffers --- */

static size_t widest_x(const struct wefti_forward *f) {
    size_t widest = f->x_stride;
    const size_t strides[] = {f->out_stride, f->ffn_stride, f->heads_stride, f->q_a_stride,
                              f->inner_stride};
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        if (strides[i] > widest) widest = strides[i];
    }
    return widest;
}

static struct wefti_forward_lora *lay_out(struct wefti_forward *f, const size_t strides[2],
                                          struct wefti_memory_layout *layout) {
    size_t n = (size_t)f->max_rows * WEFT_SEQ_ADAPTERS_MAX;
    struct wefti_forward_lora *own = wefti_memory_reserve(layout, 1, sizeof *own), l = {0};
    for (int i = 0; i < 2; i++) {
        l.plans[i].entries = wefti_memory_reserve(layout, n, sizeof *l.plans[i].entries);
        l.plans[i].blocks = wefti_memory_reserve(layout, n, sizeof *l.plans[i].blocks);
    }
    l.member_stride = strides[0];
    l.t_stride = WEFTI_FORWARD_LORA_GROUP * strides[0];
    l.x_stride = strides[1];
    l.t = wefti_memory_reserve(layout, n * l.t_stride, sizeof *l.t);
    if (f->moe.n_experts > 0)
        l.expert_t = wefti_memory_reserve(layout,
                                          wefti_forward_places_max(f, f->max_rows) *
                                              WEFT_SEQ_ADAPTERS_MAX * 2 * l.member_stride,
                                          sizeof *l.expert_t);
    l.x = wefti_memory_reserve(layout, f->n_threads, sizeof *l.x);
    for (uint32_t i = 0; i < f->n_threads; i++) {
        float *x = wefti_memory_reserve(layout, BLOCK_ROWS * l.x_stride, sizeof *x);
        if (layout->base) l.x[i] = x;
    }
    if (own) *own = l;
    return own;
}

weft_err wefti_forward_lora_new(struct wefti_forward *f, uint32_t rank_max, uint64_t home) {
    const size_t strides[2] = {wefti_memory_stride(rank_max), widest_x(f)};
    struct wefti_memory_layout layout = {0};
    (void)lay_out(f, strides, &layout);
    size_t bytes = layout.used;
    void *map = wefti_memory_map_near(bytes, home);
    if (!map) return WEFT_E_NOMEM;
    layout = (struct wefti_memory_layout){.base = map};
    f->lora = lay_out(f, strides, &layout);
    f->lora->map = map;
    f->lora->map_bytes = bytes;
    return WEFT_OK;
}

void wefti_forward_lora_free(struct wefti_forward *f) {
    if (f->lora) wefti_memory_unmap(f->lora->map, f->lora->map_bytes);
    f->lora = NULL;
}

/* -------------------------------------------------------------------------------- planning --- */

/* Of one place in lists, whose blocks begin with first_block. */
static void add_entry(struct wefti_forward_lora_plan *plan, uint32_t first_block,
                      const struct wefti_lora_use *use, uint32_t row) {
    struct wefti_forward_lora_block *block = &plan->blocks[plan->n_blocks];
    bool goes_on = plan->n_blocks > first_block && block[-1].adapter == use->adapter &&
                   block[-1].n < BLOCK_ROWS;
    if (!goes_on) {
        *block = (struct wefti_forward_lora_block){use->adapter, plan->n_entries, 0};
        plan->n_blocks++;
    }
    plan->blocks[plan->n_blocks - 1].n++;
    plan->entries[plan->n_entries++] = (struct wefti_forward_lora_entry){row, use->scale};
}

static bool is_met(const struct wefti_forward_lora_plan *plan, uint32_t first_block,
                   const struct wefti_lora_adapter *adapter) {
    for (uint32_t i = first_block; i < plan->n_blocks; i++) {
        if (plan->blocks[i].adapter == adapter) return true;
    }
    return false;
}

/* Rows whose list has this adapter in that place. */
static void add_adapter(struct wefti_forward_lora_plan *plan, uint32_t first_block, uint32_t n_rows,
                        uint32_t place, const struct wefti_lora_adapter *adapter) {
    if (is_met(plan, first_block, adapter)) return;
    for (uint32_t row = 0; row < n_rows; row++) {
        const struct wefti_lora_set *set = plan->sets[plan->index ? plan->index[row] : row];
        if (set && set->n > place && set->uses[place].adapter == adapter)
            add_entry(plan, first_block, &set->uses[place], row);
    }
}

bool wefti_forward_lora_plan(struct wefti_forward_lora_plan *plan,
                             const struct wefti_lora_set *const *sets, const uint32_t *index,
                             uint32_t n_rows) {
    plan->n_entries = plan->n_blocks = 0;
    plan->sets = sets;
    plan->index = index;
    plan->has_experts = false;
    for (uint32_t place = 0; place < WEFT_SEQ_ADAPTERS_MAX; place++) {
        uint32_t first_block = plan->n_blocks;
        const struct wefti_lora_adapter *last = NULL;
        for (uint32_t row = 0; row < n_rows; row++) {
            const struct wefti_lora_set *set = sets[index ? index[row] : row];
            if (!set || set->n <= place) continue;
            const struct wefti_lora_adapter *adapter = set->uses[place].adapter;
            if (adapter != last) add_adapter(plan, first_block, n_rows, place, adapter);
            last = adapter; /* rows of a sequence stand together */
        }
        if (plan->n_blocks == first_block) break; /* longer lists there are none */
    }
    for (uint32_t i = 0; i < plan->n_blocks; i++)
        plan->has_experts = plan->has_experts || plan->blocks[i].adapter->experts;
    return plan->n_entries > 0;
}

/* -------------------------------------------------------------------------------- products --- */

static float *t_of(const struct wefti_forward *f, uint32_t entry, uint32_t member) {
    return f->lora->t + entry * f->lora->t_stride + member * f->lora->member_stride;
}

/* The rows of a block one after the other. */
static const float *gather(const struct wefti_forward_thread *thread,
                           const struct wefti_forward_lora_plan *plan,
                           const struct wefti_forward_lora_block *block,
                           const struct wefti_forward_source *src, uint32_t k) {
    const struct wefti_forward *f = thread->forward;
    float *x = f->lora->x[thread->idx];
    for (uint32_t i = 0; i < block->n; i++) {
        const float *from = src->rows + plan->entries[block->begin + i].row * src->stride;
        float *to = x + i * f->lora->x_stride;
        if (src->norm.weight)
            wefti_forward_normalise(f, from, src->norm, k, to);
        else
            memcpy(to, from, k * sizeof *to);
    }
    return x;
}

/* Rows of a piece. */
struct stretch {
    uint32_t begin, n;
};

/* Rows of x, one after the other. */
struct rows {
    const void *x;
    size_t x_bytes;
    uint32_t n;
};

/* t = A x */
static void multiply_down(const struct wefti_forward *f, const struct wefti_lora_matrix *m,
                          enum weft_gemm_kind kind, struct rows rows, float *t) {
    struct weft_kern_segs segs;
    weft_kern_segs_one(&segs, m->k);
    const struct weft_gemm_args args = {
        .act = rows.x,
        .act_row_bytes = rows.x_bytes,
        .act_group = 1,
        .packed = m->a,
        .c = t,
        .ldc = f->lora->t_stride,
        .m = rows.n,
        .n = m->rank,
        .k = m->k,
        .segs = &segs,
    };
    f->kern->gemm[kind](&args, 0, weft_div_up_u32(m->rank, WEFT_PANEL));
}

static void scale_down(const struct wefti_lora_matrix *m, float strength, float *t) {
    float scale = m->scale * strength;
    for (uint32_t r = 0; r < m->rank; r++)
        t[r] *= scale;
}

/* Tasks are shared out beforehand: the phase's own tasks, which come after, even that out. */
void wefti_forward_lora_down(const struct wefti_forward_thread *thread,
                             const struct wefti_forward_lora_plan *plan,
                             const struct wefti_forward_lora_group *group,
                             const struct wefti_forward_source *src) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_lora_block *gathered = NULL;
    const float *x = NULL;
    WEFT_ASSERT(group->n <= WEFTI_FORWARD_LORA_GROUP && !src->index);
    for (uint32_t task = thread->idx; task < plan->n_blocks * group->n; task += f->n_threads) {
        const struct wefti_forward_lora_block *block = &plan->blocks[task / group->n];
        const struct wefti_lora_matrix *m =
            wefti_lora_matrix_of(block->adapter, group->layer, group->roles[task % group->n]);
        if (m->rank == 0) continue;
        if (block != gathered) x = gather(thread, plan, block, src, m->k);
        gathered = block;
        const struct rows rows = {x, f->lora->x_stride * sizeof *x, block->n};
        multiply_down(f, m, block->adapter->kind, rows, t_of(f, block->begin, task % group->n));
        for (uint32_t i = block->begin; i < block->begin + block->n; i++)
            scale_down(m, plan->entries[i].scale, t_of(f, i, task % group->n));
    }
}

/* n rows from `row` of the piece on, whose t are one after the other. */
static void multiply_up(const struct wefti_forward *f, const struct wefti_lora_matrix *m,
                        enum weft_gemm_kind kind, const float *t, struct stretch rows,
                        const struct wefti_forward_target *target) {
    const struct wefti_forward_piece *piece = target->piece;
    struct weft_kern_segs segs;
    weft_kern_segs_one(&segs, m->rank);
    uint32_t n_panels = piece->end - piece->begin;
    float *y = target->y + rows.begin * target->ldc;
    const struct weft_gemm_args args = {
        .act = t,
        .act_row_bytes = f->lora->t_stride * sizeof *t,
        .act_group = 1,
        .packed = m->b + piece->begin * weft_kern_panel_bytes(kind, m->rank),
        .c = y,
        .ldc = target->ldc,
        .residual = y,
        .m = rows.n,
        .n = weft_min_u32(m->n - piece->begin * WEFT_PANEL, n_panels * WEFT_PANEL),
        .k = m->rank,
        .segs = &segs,
    };
    f->kern->gemm[kind](&args, 0, n_panels);
}

void wefti_forward_lora_up_piece(const struct wefti_forward_thread *thread,
                                 const struct wefti_forward_lora_plan *plan,
                                 const struct wefti_forward_lora_group *group, uint32_t member,
                                 const struct wefti_forward_target *target) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_piece *piece = target->piece;
    for (uint32_t b = 0; b < plan->n_blocks; b++) {
        const struct wefti_forward_lora_block *block = &plan->blocks[b];
        const struct wefti_lora_matrix *m =
            wefti_lora_matrix_of(block->adapter, group->layer, group->roles[member]);
        uint32_t end = block->begin + block->n, next;
        for (uint32_t i = block->begin; m->rank > 0 && i < end; i = next) {
            uint32_t row = plan->entries[i].row - piece->row; /* wraps where it is before */
            next = i + 1;
            if (row >= piece->n_rows) continue;
            while (next < end && plan->entries[next].row == plan->entries[next - 1].row + 1 &&
                   row + (next - i) < piece->n_rows)
                next++;
            multiply_up(f, m, block->adapter->kind, t_of(f, i, member),
                        (struct stretch){row, next - i}, target);
        }
    }
}

/* Panels of a matrix of the group; the adapters that change it agree on its rows. */
static uint32_t count_panels(const struct wefti_forward_lora_plan *plan,
                             const struct wefti_forward_lora_group *group, uint32_t member) {
    uint32_t n = 0;
    for (uint32_t b = 0; b < plan->n_blocks; b++)
        n = weft_max_u32(
            n,
            wefti_lora_matrix_of(plan->blocks[b].adapter, group->layer, group->roles[member])->n);
    return weft_div_up_u32(n, WEFT_PANEL);
}

void wefti_forward_lora_up(const struct wefti_forward_thread *thread,
                           const struct wefti_forward_lora_plan *plan,
                           const struct wefti_forward_lora_group *group) {
    const struct wefti_forward *f = thread->forward;
    for (uint32_t member = 0; member < group->n; member++) {
        uint64_t n_panels = count_panels(plan, group, member);
        struct wefti_forward_piece piece = {
            .n_rows = f->max_rows,
            .begin = (uint32_t)(n_panels * thread->idx / f->n_threads),
            .end = (uint32_t)(n_panels * (thread->idx + 1) / f->n_threads)};
        const struct wefti_forward_target target = {
            &piece, group->y[member] + (size_t)piece.begin * WEFT_PANEL, group->ldc[member]};
        if (piece.begin < piece.end)
            wefti_forward_lora_up_piece(thread, plan, group, member, &target);
    }
    wefti_forward_end_phase(thread);
}

struct wefti_forward_lora_plan *wefti_forward_lora_plans(const struct wefti_forward *f) {
    return f->lora->plans;
}

/* --------------------------------------------------------------------------------- experts --- */

static const struct wefti_lora_set *set_at(const struct wefti_forward_lora_experts *experts,
                                           uint32_t place) {
    uint32_t row = experts->sorted->row[place];
    const uint32_t *index = experts->plan->index;
    return experts->plan->sets[index ? index[row] : row];
}

static float *expert_t_of(const struct wefti_forward *f, uint32_t place, uint32_t use,
                          uint32_t member) {
    size_t at = ((size_t)place * WEFT_SEQ_ADAPTERS_MAX + use) * 2 + member;
    return f->lora->expert_t + at * f->lora->member_stride;
}

static void place_down(const struct wefti_forward *f,
                       const struct wefti_forward_lora_experts *experts, uint32_t expert,
                       uint32_t place, struct rows rows) {
    const struct wefti_lora_set *set = set_at(experts, place);
    for (uint32_t i = 0; set && i < set->n; i++) {
        for (uint32_t member = 0; member < experts->n; member++) {
            const struct wefti_lora_matrix *m = wefti_lora_expert_matrix(
                set->uses[i].adapter, experts->layer, expert, experts->roles[member]);
            float *t = expert_t_of(f, place, i, member);
            if (!m) continue;
            multiply_down(f, m, set->uses[i].adapter->kind, rows, t);
            scale_down(m, set->uses[i].scale, t);
        }
    }
}

void wefti_forward_lora_experts_down(const struct wefti_forward_thread *thread,
                                     const struct wefti_forward_lora_experts *experts,
                                     const uint8_t *x, size_t x_bytes, bool by_row) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_sorted_rows *sorted = experts->sorted;
    uint32_t n = 0;
    for (uint32_t e = 0; e < f->moe.n_experts; e++) {
        for (uint32_t i = 0; i < sorted->n_rows[e]; i++) {
            uint32_t place = sorted->first[e] + i;
            if (n++ % f->n_threads != thread->idx) continue;
            const uint8_t *at = x + (by_row ? sorted->row[place] : place) * x_bytes;
            place_down(f, experts, e, place, (struct rows){at, x_bytes, 1});
        }
    }
    wefti_forward_end_phase(thread);
}

void wefti_forward_lora_experts_up(const struct wefti_forward_thread *thread,
                                   const struct wefti_forward_lora_experts *experts,
                                   uint32_t expert, uint32_t member,
                                   const struct wefti_forward_target *target) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_piece *piece = target->piece;
    for (uint32_t r = 0; r < piece->n_rows; r++) {
        uint32_t place = experts->sorted->first[expert] + piece->row + r;
        const struct wefti_lora_set *set = set_at(experts, place);
        for (uint32_t i = 0; set && i < set->n; i++) {
            const struct wefti_lora_matrix *m = wefti_lora_expert_matrix(
                set->uses[i].adapter, experts->layer, expert, experts->roles[member]);
            if (m)
                multiply_up(f, m, set->uses[i].adapter->kind, expert_t_of(f, place, i, member),
                            (struct stretch){r, 1}, target);
        }
    }
}
