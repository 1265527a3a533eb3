/* traffic/trace — recorded requests: when each came, and how long prompt and answer were.
 *
 * Two forms of file, told apart by their first character:
 *   CSV    (Azure's LLM inference traces) a heading that names TIMESTAMP, ContextTokens and
 *          GeneratedTokens, in any order and among others; a moment is a date and a time
 *   JSONL  (Mooncake's traces) a line is an object with timestamp (milliseconds), input_length,
 *          output_length, and perhaps hash_ids: one for every 512 tokens of the prompt, where equal
 *          ids are equal tokens
 * Moments are counted from the first one. Rows that are out of order are put in order.
 * Files come from outside: everything in them is checked, errors name the line. */
#ifndef WEFT_TRAFFIC_TRACE_H
#define WEFT_TRAFFIC_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define WEFT_TRAFFIC_BLOCK_TOKENS 512 /* that a hash id stands for */
#define WEFT_TRAFFIC_TRACE_BYTES_MAX (1u << 30)
#define WEFT_TRAFFIC_TRACE_ROWS_MAX 1000000
#define WEFT_TRAFFIC_TOKENS_MAX (1u << 24) /* of a prompt or an answer, before any scaling */

struct weft_traffic_row {
    uint64_t at_ns;
    uint32_t n_in, n_out;
    uint32_t n_hashes;
    size_t first_hash; /* of the trace's */
};

/* All zero is an empty one. */
struct weft_traffic_trace {
    struct weft_traffic_row *rows; /* owned, ascending by moment */
    uint32_t n_rows;
    uint64_t *hashes; /* owned */
    size_t n_hashes;
};

/* Reads the first `n_rows_max` rows of a text (0: all) that messages call `name`. PROTO (also if
 * there is no row), TOOBIG, NOMEM; the trace is then empty. */
WEFT_MUST_CHECK weft_err weft_traffic_trace_parse(const char *name, const char *text, size_t len,
                                                  uint32_t n_rows_max,
                                                  struct weft_traffic_trace *trace_out,
                                                  struct weft_errmsg *why);
/* The same of a file; its errors, too. */
WEFT_MUST_CHECK weft_err weft_traffic_trace_read(const char *path, uint32_t n_rows_max,
                                                 struct weft_traffic_trace *trace_out,
                                                 struct weft_errmsg *why);
void weft_traffic_trace_fini(struct weft_traffic_trace *trace);

#endif
