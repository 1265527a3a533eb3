#include "forward/lora.h"

#include <string.h>

#include "base/check.h"
#include "forward/experts.h"

enum { BLOCK_ROWS = 32 }; /* of an adapter that go through its part of a product together */

enum {
    CHUNK_ENTRIES = 8, /* whose rows a thread normalises once, for all matrices of a group */
    LANES_MAX = 64,
};

/* Buffers of all passes. */
struct wefti_forward_lora {
    struct wefti_forward_lora_plan plans[2]; /* all rows, and those that go on in the last layer */
    size_t t_stride, member_stride;          /* floats of an entry, and of a matrix in it */
    float *t;                                /* [entries][members][rank] */
    float *expert_t; /* [places][WEFT_SEQ_ADAPTERS_MAX][2][rank]; where there are experts */
    size_t x_stride;
    float **x; /* [n_threads] normalised rows: [CHUNK_ENTRIES][x_stride] */
    void *map;
    size_t map_bytes;
};

/* --------------------------------------------------------------------------------- buffers --- */

static size_t widest_x(const struct wefti_forward *f) {
    size_t widest = f->x_stride;
    const size_t strides[] = {f->out_stride, f->ffn_stride,   f->heads_stride,
                              f->q_a_stride, f->inner_stride, f->rec_out_stride};
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
        float *x = wefti_memory_reserve(layout, CHUNK_ENTRIES * l.x_stride, sizeof *x);
        if (layout->base) l.x[i] = x;
    }
    if (own) *own = l;
    return own;
}

size_t wefti_forward_lora_bytes(struct wefti_forward *f, uint32_t rank_max) {
    const size_t strides[2] = {wefti_memory_stride(rank_max), widest_x(f)};
    struct wefti_memory_layout layout = {0};
    (void)lay_out(f, strides, &layout);
    return layout.used;
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
    plan->entries[plan->n_entries++] =
        (struct wefti_forward_lora_entry){use->adapter, row, use->scale};
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

/* Lanes that a thread has put together. */
struct lanes {
    const struct wefti_forward_thread *thread;
    const struct wefti_forward_source *src;
    uint32_t chunk, made; /* rows of a chunk of entries that are normalised, a bit for each */
    uint32_t n, k;
    enum weft_dtype type;
    struct weft_kern_lora_lane list[LANES_MAX];
};

static void run_lanes(struct lanes *lanes) {
    if (lanes->n == 0) return;
    lanes->thread->forward->kern->lora_shrink(lanes->type, lanes->list, lanes->n, lanes->k);
    lanes->n = 0;
}

/* t = scale * A x; `out` holds whole panels. */
static void add_lanes(struct lanes *lanes, const struct wefti_lora_adapter *adapter,
                      const struct wefti_lora_matrix *m, const float *x, float strength,
                      float *out) {
    size_t panel_bytes = weft_kern_panel_bytes(weft_kern_exact_kind(adapter->type), m->k);
    lanes->type = adapter->type;
    lanes->k = m->k;
    for (uint32_t p = 0; p * WEFT_PANEL < m->rank; p++) {
        if (lanes->n == LANES_MAX) run_lanes(lanes);
        lanes->list[lanes->n++] = (struct weft_kern_lora_lane){
            m->a + p * panel_bytes, x, out + (size_t)p * WEFT_PANEL, m->scale * strength};
    }
}

/* The row of an entry as the product's activations are made from it. */
static const float *row_of(struct lanes *lanes, const struct wefti_forward_lora_plan *plan,
                           uint32_t entry, uint32_t k) {
    const struct wefti_forward *f = lanes->thread->forward;
    const struct wefti_forward_source *src = lanes->src;
    const float *from = src->rows + plan->entries[entry].row * src->stride;
    if (!src->norm.weight) return from;
    uint32_t bit = 1u << entry % CHUNK_ENTRIES;
    float *x = f->lora->x[lanes->thread->idx] + entry % CHUNK_ENTRIES * f->lora->x_stride;
    if (entry / CHUNK_ENTRIES != lanes->chunk) {
        run_lanes(lanes); /* they read the rows that go */
        lanes->chunk = entry / CHUNK_ENTRIES;
        lanes->made = 0;
    }
    if (!(lanes->made & bit)) wefti_forward_normalise(f, from, src->norm, k, x);
    lanes->made |= bit;
    return x;
}

/* One entry and one member of the group. */
struct unit {
    uint32_t entry, member;
};

/* Chunk by chunk of entries; in it, member by member. */
static struct unit unit_at(uint32_t i, uint32_t n_entries, uint32_t n_members) {
    uint32_t begin = i / (CHUNK_ENTRIES * n_members) * CHUNK_ENTRIES;
    uint32_t n = weft_min_u32(CHUNK_ENTRIES, n_entries - begin), at = i - begin * n_members;
    return (struct unit){begin + at % n, at / n};
}

/* Shared out beforehand: the phase's own tasks, which come after, even that out. */
void wefti_forward_lora_down(const struct wefti_forward_thread *thread,
                             const struct wefti_forward_lora_plan *plan,
                             const struct wefti_forward_lora_group *group,
                             const struct wefti_forward_source *src) {
    const struct wefti_forward *f = thread->forward;
    uint64_t n_units = (uint64_t)plan->n_entries * group->n;
    uint32_t begin = (uint32_t)(n_units * thread->idx / f->n_threads);
    uint32_t end = (uint32_t)(n_units * (thread->idx + 1) / f->n_threads);
    struct lanes lanes = {.thread = thread, .src = src, .chunk = UINT32_MAX};
    WEFT_ASSERT(group->n <= WEFTI_FORWARD_LORA_GROUP && !src->index);
    for (uint32_t i = begin; i < end; i++) {
        struct unit unit = unit_at(i, plan->n_entries, group->n);
        const struct wefti_forward_lora_entry *entry = &plan->entries[unit.entry];
        const struct wefti_lora_matrix *m =
            wefti_lora_matrix_of(entry->adapter, group->layer, group->roles[unit.member]);
        if (m->rank == 0) continue;
        const float *x = row_of(&lanes, plan, unit.entry, m->k);
        add_lanes(&lanes, entry->adapter, m, x, entry->scale, t_of(f, unit.entry, unit.member));
    }
    run_lanes(&lanes);
}

/* Rows that one adapter's part of a piece is added to. */
struct rows {
    const float *t[BLOCK_ROWS];
    float *y[BLOCK_ROWS];
    uint32_t n;
};

/* Where a matrix's part of a piece begins. */
static const uint8_t *part_of(const struct wefti_lora_adapter *adapter,
                              const struct wefti_lora_matrix *m,
                              const struct wefti_forward_piece *piece) {
    return m->b +
           piece->begin * weft_kern_panel_bytes(weft_kern_exact_kind(adapter->type), m->rank);
}

static void multiply_up(const struct wefti_forward *f, const struct wefti_lora_adapter *adapter,
                        const struct wefti_lora_matrix *m, const struct rows *rows,
                        const struct wefti_forward_piece *piece, const uint8_t *next) {
    const struct weft_kern_lora_expand args = {
        .panels = part_of(adapter, m, piece),
        .t = rows->t,
        .y = rows->y,
        .rank = m->rank,
        .n_columns = weft_min_u32(m->n, piece->end * WEFT_PANEL) - piece->begin * WEFT_PANEL,
        .n_rows = rows->n,
        .next = next,
    };
    f->kern->lora_expand(adapter->type, &args);
}

/* The rows of a block that a piece has. */
static void choose_rows(const struct wefti_forward *f, const struct wefti_forward_lora_plan *plan,
                        const struct wefti_forward_lora_block *block, uint32_t member,
                        const struct wefti_forward_target *target, struct rows *rows) {
    rows->n = 0;
    for (uint32_t i = block->begin; i < block->begin + block->n; i++) {
        uint32_t row = plan->entries[i].row - target->piece->row; /* wraps where it is before */
        if (row >= target->piece->n_rows) continue;
        rows->t[rows->n] = t_of(f, i, member);
        rows->y[rows->n++] = target->y + row * target->ldc;
    }
}

void wefti_forward_lora_up_piece(const struct wefti_forward_thread *thread,
                                 const struct wefti_forward_lora_plan *plan,
                                 const struct wefti_forward_lora_group *group, uint32_t member,
                                 const struct wefti_forward_target *target) {
    const struct wefti_lora_matrix *m, *next;
    struct rows rows;
    for (uint32_t b = 0; b < plan->n_blocks; b++) {
        const struct wefti_forward_lora_block *block = &plan->blocks[b];
        const struct wefti_forward_lora_block *after = b + 1 < plan->n_blocks ? block + 1 : block;
        m = wefti_lora_matrix_of(block->adapter, group->layer, group->roles[member]);
        next = wefti_lora_matrix_of(after->adapter, group->layer, group->roles[member]);
        if (m->rank == 0) continue;
        choose_rows(thread->forward, plan, block, member, target, &rows);
        if (rows.n > 0)
            multiply_up(thread->forward, block->adapter, m, &rows, target->piece,
                        part_of(after->adapter, next, target->piece));
    }
}

/* As long as those of the largest rank: what is beyond an end is not read, only fetched. */
void wefti_forward_lora_look(const struct wefti_forward_lora_plan *plan,
                             const struct wefti_forward_lora_group *group, uint32_t member,
                             const struct wefti_forward_piece *piece,
                             struct wefti_forward_lora_parts *parts_out) {
    struct weft_kern_beside *beside = &parts_out->beside;
    *beside = (struct weft_kern_beside){.parts = parts_out->at};
    for (uint32_t b = 0; b < plan->n_blocks && beside->n_parts < WEFTI_FORWARD_LORA_PARTS_MAX;
         b++) {
        const struct wefti_lora_adapter *adapter = plan->blocks[b].adapter;
        const struct wefti_lora_matrix *m =
            wefti_lora_matrix_of(adapter, group->layer, group->roles[member]);
        if (m->rank == 0) continue;
        size_t bytes = (piece->end - piece->begin) *
                       weft_kern_panel_bytes(weft_kern_exact_kind(adapter->type), m->rank);
        if (bytes > beside->part_bytes) beside->part_bytes = bytes;
        parts_out->at[beside->n_parts++] = part_of(adapter, m, piece);
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

static void place_down(struct lanes *lanes, const struct wefti_forward_lora_experts *experts,
                       uint32_t expert, uint32_t place, const float *x) {
    const struct wefti_lora_set *set = set_at(experts, place);
    for (uint32_t i = 0; set && i < set->n; i++) {
        for (uint32_t member = 0; member < experts->n; member++) {
            const struct wefti_lora_matrix *m = wefti_lora_expert_matrix(
                set->uses[i].adapter, experts->layer, expert, experts->roles[member]);
            if (!m) continue;
            add_lanes(lanes, set->uses[i].adapter, m, x, set->uses[i].scale,
                      expert_t_of(lanes->thread->forward, place, i, member));
        }
    }
}

void wefti_forward_lora_experts_down(const struct wefti_forward_thread *thread,
                                     const struct wefti_forward_lora_experts *experts,
                                     const uint8_t *x, size_t x_bytes, bool by_row) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_sorted_rows *sorted = experts->sorted;
    struct lanes lanes = {.thread = thread};
    uint32_t n = 0;
    for (uint32_t e = 0; e < f->moe.n_experts; e++) {
        for (uint32_t i = 0; i < sorted->n_rows[e]; i++) {
            uint32_t place = sorted->first[e] + i;
            if (n++ % f->n_threads != thread->idx) continue;
            const uint8_t *at = x + (by_row ? sorted->row[place] : place) * x_bytes;
            place_down(&lanes, experts, e, place, (const void *)at);
        }
    }
    run_lanes(&lanes);
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
            if (!m) continue;
            const struct rows rows = {.t = {expert_t_of(f, place, i, member)},
                                      .y = {target->y + r * target->ldc},
                                      .n = 1};
            multiply_up(f, set->uses[i].adapter, m, &rows, piece, m->b);
        }
    }
}
