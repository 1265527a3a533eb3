#include "codec/json_budget.h"

#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>

#include "base/check.h"

static _Thread_local struct {
    bool is_open, has_refused;
    size_t left, bytes_max;
} budget;

static void *take(size_t n) {
    if (budget.is_open && n > budget.left) {
        budget.has_refused = true;
        return NULL;
    }
    void *mem = malloc(n);
    if (!mem || !budget.is_open) return mem;
    size_t n_real = malloc_usable_size(mem); /* it was rounded up */
    budget.left -= n_real < budget.left ? n_real : budget.left;
    return mem;
}

/* What was taken before this budget, or by another thread, gives it no more than it began with. */
static void give_back(void *mem) {
    if (mem && budget.is_open) {
        size_t n_real = malloc_usable_size(mem), n_used = budget.bytes_max - budget.left;
        budget.left += n_real < n_used ? n_real : n_used;
    }
    free(mem);
}

void weft_json_budget_use(void) {
    json_set_alloc_funcs(take, give_back);
}

void weft_json_budget_begin(size_t bytes_max) {
    WEFT_ASSERT(!budget.is_open);
    budget.is_open = true;
    budget.has_refused = false;
    budget.left = budget.bytes_max = bytes_max;
}

bool weft_json_budget_end(void) {
    WEFT_ASSERT(budget.is_open);
    budget.is_open = false;
    return !budget.has_refused;
}
