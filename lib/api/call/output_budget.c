#include "call/output_budget.h"

#include "api/api.h"
#include "base/check.h"

uint64_t wefti_api_output_cost(const struct output_budget *budget, uint64_t n) {
    return n > budget->free_bytes ? n : 0;
}

bool wefti_api_output_hold(struct output_budget *budget, uint64_t n) {
    uint64_t before = wefti_api_output_cost(budget, budget->held_bytes);
    uint64_t after = wefti_api_output_cost(budget, budget->held_bytes + n);
    WEFT_ASSERT(after >= before);
    if (!weft_api_hold_output(budget->api, after - before)) return false;
    budget->held_bytes += n;
    return true;
}

void wefti_api_output_release(struct output_budget *budget, uint64_t n) {
    WEFT_ASSERT(budget->held_bytes >= n);
    uint64_t before = wefti_api_output_cost(budget, budget->held_bytes);
    budget->held_bytes -= n;
    weft_api_release_output(budget->api,
                            before - wefti_api_output_cost(budget, budget->held_bytes));
}
