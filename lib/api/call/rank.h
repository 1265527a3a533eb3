/* rank — which of a finished call's choices are shown, and in which order. */
#ifndef WEFT_API_RANK_H
#define WEFT_API_RANK_H

#include "call/call_internal.h"

/* Of each prompt's choices the best `n` by mean log-probability come first, the best of them first;
 * of equals the lower index. No effect where all are shown. Once, when every choice has ended. */
void wefti_api_rank_choices(weft_api_call *call);

#endif
