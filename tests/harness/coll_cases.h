/* What every rank of a group does, whichever way the group's memory is shared: all ranks run the
 * same case at the same time. A wrong byte fails an assertion. */
#ifndef WEFT_TESTS_COLL_CASES_H
#define WEFT_TESTS_COLL_CASES_H

#include <stdint.h>

#include "collective/collective.h"

enum { COLL_PART_BYTES = 1344, COLL_BOARD_BYTES = 4096 }; /* to be reserved */

/* Errors of weft_coll_meet. */
typedef weft_err coll_case(weft_coll *coll, uint32_t rank, struct weft_errmsg *why);

coll_case coll_sums;    /* again and again; the last of its meetings is followed by nothing */
coll_case coll_gathers; /* everybody gets what everybody has */
coll_case coll_boards;  /* each has columns of the board's rows, and then the first writes a word */
coll_case coll_gives;   /* bytes of all lengths, from the first to the others */

#endif
