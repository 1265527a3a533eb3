/* codec/json_budget — how much memory jansson may take while a thread reads what a client sent.
 *
 * Model    A budget begins and ends in one thread; in between each of that thread's JSON values, buckets
 *          and texts counts by its real size, freed ones not at all. What finds no room is refused as if
 *          memory had run out, and the end of the budget tells.
 * Why      A value costs from 30 to 500 times its bytes ("{}," or an empty map of MessagePack), and
 *          bodies hold texts that are JSON again: no count of bytes or commas bounds that.
 * Threads  weft_json_budget_use before there are threads; the rest by each thread for itself.
 */
#ifndef WEFT_CODEC_JSON_BUDGET_H
#define WEFT_CODEC_JSON_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

/* Lets budgets hold from here on, in the whole process: it changes jansson's allocator. */
void weft_json_budget_use(void);

/* No budget is open in this thread. */
void weft_json_budget_begin(size_t bytes_max);

/* Ends the budget. False: something was refused. */
bool weft_json_budget_end(void);

#endif
