#include "lora/adapters.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/parse.h"
#include "runtime/memory.h"

struct wefti_loras {
    struct weft_model_params params;
    enum weft_model_format format;
    uint32_t n_max, rank_max;
    uint64_t n_bytes_max;
    enum weft_dtype type;
    uint64_t home;
    pthread_mutex_t lock; /* of the table: whoever adds against whoever steps */
    uint32_t n;
    uint64_t n_bytes;                  /* of all in the table */
    struct wefti_lora_adapter **table; /* [n_max] */
};

weft_err wefti_loras_new(const struct wefti_loras_config *config, wefti_loras **loras_out) {
    wefti_loras *loras = calloc(1, sizeof *loras);
    *loras_out = NULL;
    if (!loras) return WEFT_E_NOMEM;
    *loras = (wefti_loras){.params = *config->params,
                           .format = config->format,
                           .n_max = config->n_max,
                           .rank_max = config->rank_max,
                           .n_bytes_max = UINT64_MAX,
                           .type = config->dtype,
                           .home = config->home,
                           .lock = PTHREAD_MUTEX_INITIALIZER};
    loras->table = calloc(config->n_max, sizeof(struct wefti_lora_adapter *));
    if (!loras->table) {
        free(loras);
        return WEFT_E_NOMEM;
    }
    *loras_out = loras;
    return WEFT_OK;
}

static void adapter_free(struct wefti_lora_adapter *adapter) {
    if (!adapter) return;
    wefti_memory_unmap(adapter->map, adapter->map_bytes);
    free(adapter->layers);
    free(adapter->experts);
    free(adapter);
}

void wefti_loras_limit(wefti_loras *loras, uint64_t n_bytes_max) {
    WEFT_ASSERT(loras->n == 0);
    loras->n_bytes_max = n_bytes_max;
}

void wefti_loras_free(wefti_loras *loras) {
    if (!loras) return;
    for (uint32_t i = 0; i < loras->n; i++)
        adapter_free(loras->table[i]);
    (void)pthread_mutex_destroy(&loras->lock);
    free(loras->table);
    free(loras);
}

/* --------------------------------------------------------------------------------- packing --- */

static struct wefti_lora_matrix *matrix_of_part(struct wefti_lora_adapter *adapter,
                                                const struct weft_lora_part *part) {
    if (part->expert == WEFT_LORA_NO_EXPERT)
        return &adapter->layers[(size_t)part->layer * WEFT_LORA_ROLE_COUNT + part->role];
    WEFT_ASSERT(part->role >= WEFT_LORA_GATE && part->role <= WEFT_LORA_DOWN);
    size_t expert = (size_t)part->layer * adapter->n_experts + part->expert;
    return &adapter->experts[expert * WEFTI_LORA_EXPERT_ROLES + (part->role - WEFT_LORA_GATE)];
}

/* One of a part's two matrices. */
struct side {
    uint32_t n_rows, k;
    void (*read)(const struct weft_lora_part *part, uint32_t row, float *out);
};

static void pack_rows(enum weft_dtype type, const struct weft_lora_part *part,
                      const struct side *side, float *rows, uint8_t *to) {
    enum weft_gemm_kind kind = weft_kern_exact_kind(type);
    size_t panel_bytes = weft_kern_panel_bytes(kind, side->k);
    for (uint32_t begin = 0; begin < side->n_rows; begin += WEFT_PANEL, to += panel_bytes) {
        uint32_t n = weft_min_u32(side->n_rows - begin, WEFT_PANEL);
        for (uint32_t i = 0; i < n; i++)
            side->read(part, begin + i, rows + (size_t)i * side->k);
        const struct weft_kern_source panel = {
            .type = WEFT_DT_F32, .rows = rows, .n = n, .k = side->k};
        weft_kern_pack(kind, &panel, 0, n, NULL, to);
    }
}

static void lay_out(struct wefti_lora_adapter *adapter, const struct weft_lora_part *parts,
                    size_t n_parts, struct wefti_memory_layout *layout) {
    enum weft_gemm_kind kind = weft_kern_exact_kind(adapter->type);
    for (size_t i = 0; i < n_parts; i++) {
        struct wefti_lora_matrix *m = matrix_of_part(adapter, &parts[i]);
        *m = (struct wefti_lora_matrix){
            .rank = parts[i].rank, .n = parts[i].n, .k = parts[i].k, .scale = parts[i].scale};
        m->a = wefti_memory_reserve(layout, weft_kern_packed_bytes(kind, m->rank, m->k), 1);
        m->b = wefti_memory_reserve(layout, weft_kern_packed_bytes(kind, m->n, m->rank), 1);
    }
}

/* The tables of an adapter, and where its matrices will be: its bytes are known. */
static weft_err plan(const wefti_loras *loras, struct wefti_lora_adapter *adapter,
                     const struct weft_lora_part *parts, size_t n_parts) {
    size_t n_layers = loras->params.n_layers, n_of_experts = 0;
    size_t n_of_layers = n_layers * WEFT_LORA_ROLE_COUNT;
    struct wefti_memory_layout layout = {0};
    adapter->type = loras->type;
    adapter->n_experts = loras->params.moe.n_experts;
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].expert != WEFT_LORA_NO_EXPERT)
            n_of_experts = n_layers * adapter->n_experts * WEFTI_LORA_EXPERT_ROLES;
    }
    adapter->layers = calloc(n_of_layers, sizeof *adapter->layers);
    if (n_of_experts) adapter->experts = calloc(n_of_experts, sizeof *adapter->experts);
    if (!adapter->layers || (n_of_experts && !adapter->experts)) return WEFT_E_NOMEM;
    lay_out(adapter, parts, n_parts, &layout);
    adapter->map_bytes = layout.used;
    adapter->info.bytes =
        layout.used + (n_of_layers + n_of_experts) * sizeof(struct wefti_lora_matrix);
    return WEFT_OK;
}

static weft_err allocate(const wefti_loras *loras, struct wefti_lora_adapter *adapter,
                         const struct weft_lora_part *parts, size_t n_parts) {
    adapter->map = wefti_memory_map_near(adapter->map_bytes, loras->home);
    if (!adapter->map) return WEFT_E_NOMEM;
    struct wefti_memory_layout layout = {.base = adapter->map};
    lay_out(adapter, parts, n_parts, &layout);
    return WEFT_OK;
}

static weft_err fill(struct wefti_lora_adapter *adapter, const struct weft_lora_part *parts,
                     size_t n_parts) {
    uint32_t k_max = 1;
    for (size_t i = 0; i < n_parts; i++)
        k_max = weft_max_u32(k_max, weft_max_u32(parts[i].k, parts[i].rank));
    float *rows = malloc(sizeof *rows * WEFT_PANEL * k_max);
    if (!rows) return WEFT_E_NOMEM;
    for (size_t i = 0; i < n_parts; i++) {
        const struct wefti_lora_matrix *m = matrix_of_part(adapter, &parts[i]);
        const struct side a = {m->rank, m->k, weft_lora_a_row};
        const struct side b = {m->n, m->rank, weft_lora_b_row};
        uint8_t *map = adapter->map;
        pack_rows(adapter->type, &parts[i], &a, rows, map + (m->a - map));
        pack_rows(adapter->type, &parts[i], &b, rows, map + (m->b - map));
    }
    free(rows);
    return WEFT_OK;
}

static weft_err refuse_size(const wefti_loras *loras, const char *path, uint64_t n_bytes,
                            uint64_t n_left, struct weft_errmsg *why) {
    char own[WEFT_SIZE_TEXT_BYTES], used[WEFT_SIZE_TEXT_BYTES], most[WEFT_SIZE_TEXT_BYTES];
    return weft_err_set(
        why, WEFT_E_FULL, "%s takes %s, other adapters have %s, and --max-lora-memory allows %s",
        path, weft_size_text(n_bytes, own), weft_size_text(loras->n_bytes_max - n_left, used),
        weft_size_text(loras->n_bytes_max, most));
}

/* Into n_left bytes at most. */
static weft_err pack(const wefti_loras *loras, uint64_t n_left, const char *path,
                     const weft_lora *lora, struct wefti_lora_adapter **adapter_out,
                     struct weft_errmsg *why) {
    size_t n_parts = 0;
    const struct weft_lora_part *parts = weft_lora_parts(lora, &n_parts);
    struct wefti_lora_adapter *adapter = calloc(1, sizeof *adapter);
    weft_err err = WEFT_E_NOMEM;
    *adapter_out = NULL;
    if (!adapter || plan(loras, adapter, parts, n_parts)) goto no_memory;
    adapter->info.digest = weft_lora_digest(lora);
    if (adapter->info.bytes > n_left) {
        err = refuse_size(loras, path, adapter->info.bytes, n_left, why);
        goto cleanup;
    }
    err = allocate(loras, adapter, parts, n_parts);
    if (!err) err = fill(adapter, parts, n_parts);
    if (err) goto no_memory;
    *adapter_out = adapter;
    return WEFT_OK;
no_memory:
    err = weft_err_set(why, WEFT_E_NOMEM, "%s: no memory for the adapter", path);
cleanup:
    adapter_free(adapter);
    return err;
}

/* ----------------------------------------------------------------------------------- table --- */

/* With the lock. */
static uint32_t find(const wefti_loras *loras, uint64_t id) {
    uint32_t i = 0;
    while (i < loras->n && loras->table[i]->id != id)
        i++;
    return i;
}

/* Whether it is there already, perhaps about to go: then it stays. */
static bool find_again(wefti_loras *loras, uint64_t id, struct weft_eng_lora *info_out) {
    (void)pthread_mutex_lock(&loras->lock);
    uint32_t i = find(loras, id);
    bool is_there = i < loras->n;
    if (is_there) {
        loras->table[i]->is_leaving = false;
        *info_out = loras->table[i]->info;
    }
    (void)pthread_mutex_unlock(&loras->lock);
    return is_there;
}

/* Whether there is a place for one more, and the bytes that it may have. Only whoever adds takes any. */
static weft_err find_room(wefti_loras *loras, uint64_t *n_left_out, struct weft_errmsg *why) {
    (void)pthread_mutex_lock(&loras->lock);
    bool is_full = loras->n == loras->n_max;
    *n_left_out = loras->n_bytes_max - loras->n_bytes;
    (void)pthread_mutex_unlock(&loras->lock);
    if (!is_full) return WEFT_OK;
    return weft_err_set(why, WEFT_E_FULL, "there are %u adapters, and --max-loras allows no more",
                        loras->n_max);
}

/* There was room for it, which nobody else takes. */
static void put(wefti_loras *loras, struct wefti_lora_adapter *adapter) {
    (void)pthread_mutex_lock(&loras->lock);
    WEFT_ASSERT(loras->n < loras->n_max);
    WEFT_ASSERT(adapter->info.bytes <= loras->n_bytes_max - loras->n_bytes);
    loras->table[loras->n++] = adapter;
    loras->n_bytes += adapter->info.bytes;
    (void)pthread_mutex_unlock(&loras->lock);
}

/* A file that cannot fit is not even read. */
weft_err wefti_loras_add(wefti_loras *loras, uint64_t id, const char *path,
                         struct weft_eng_lora *info_out, struct weft_errmsg *why) {
    struct weft_lora_base base = {&loras->params, loras->format, loras->rank_max, 0};
    struct wefti_lora_adapter *adapter = NULL;
    weft_lora *lora = NULL;
    uint64_t n_left = 0;
    *info_out = (struct weft_eng_lora){0};
    if (find_again(loras, id, info_out)) return WEFT_OK;
    weft_err err = find_room(loras, &n_left, why);
    base.numbers_max = 1 + n_left / weft_dtypes[loras->type].block_bytes;
    if (!err) err = weft_lora_open(path, &base, &lora, why);
    if (err) return err;
    err = pack(loras, n_left, path, lora, &adapter, why);
    weft_lora_free(lora);
    if (!adapter) return err;
    adapter->id = id;
    *info_out = adapter->info;
    put(loras, adapter);
    return WEFT_OK;
}

/* With the lock. */
static void let_go(wefti_loras *loras, uint32_t i) {
    struct wefti_lora_adapter *adapter = loras->table[i];
    if (adapter->n_users > 0 || !adapter->is_leaving) return;
    loras->table[i] = loras->table[--loras->n];
    loras->n_bytes -= adapter->info.bytes;
    adapter_free(adapter);
}

void wefti_loras_remove(wefti_loras *loras, uint64_t id) {
    (void)pthread_mutex_lock(&loras->lock);
    uint32_t i = find(loras, id);
    if (i < loras->n) {
        loras->table[i]->is_leaving = true;
        let_go(loras, i);
    }
    (void)pthread_mutex_unlock(&loras->lock);
}

weft_err wefti_loras_check(wefti_loras *loras, const struct weft_step_adapter *list, uint32_t n,
                           struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    if (n > WEFT_SEQ_ADAPTERS_MAX)
        return weft_err_set(why, WEFT_E_PROTO, "a start has %u adapters, at most %u may be", n,
                            WEFT_SEQ_ADAPTERS_MAX);
    (void)pthread_mutex_lock(&loras->lock);
    for (uint32_t i = 0; i < n && !err; i++) {
        uint32_t at = find(loras, list[i].id);
        if (!isfinite(list[i].scale) || at == loras->n || loras->table[at]->is_leaving)
            err = weft_err_set(why, WEFT_E_PROTO,
                               "a start names an adapter that is not there, or no strength");
    }
    (void)pthread_mutex_unlock(&loras->lock);
    return err;
}

void wefti_loras_take(wefti_loras *loras, const struct weft_step_adapter *list, uint32_t n,
                      struct wefti_lora_set *set_out) {
    *set_out = (struct wefti_lora_set){.n = n};
    if (n == 0) return;
    WEFT_ASSERT(n <= WEFT_SEQ_ADAPTERS_MAX);
    (void)pthread_mutex_lock(&loras->lock);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = find(loras, list[i].id);
        WEFT_ASSERT(at < loras->n);
        loras->table[at]->n_users++;
        set_out->uses[i] = (struct wefti_lora_use){loras->table[at], list[i].scale};
    }
    (void)pthread_mutex_unlock(&loras->lock);
}

void wefti_loras_drop(wefti_loras *loras, struct wefti_lora_set *set) {
    if (set->n == 0) return;
    (void)pthread_mutex_lock(&loras->lock);
    for (uint32_t i = 0; i < set->n; i++) {
        uint32_t at = find(loras, set->uses[i].adapter->id);
        WEFT_ASSERT(at < loras->n && loras->table[at]->n_users > 0);
        loras->table[at]->n_users--;
        let_go(loras, at);
    }
    (void)pthread_mutex_unlock(&loras->lock);
    set->n = 0;
}
