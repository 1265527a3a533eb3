/* foreign — what flags of vLLM and llama-server are called here. */
#ifndef WEFT_CMD_FOREIGN_H
#define WEFT_CMD_FOREIGN_H

#include "base/str.h"

/* A flag of ours, or why there is none, as text that never begins with '-'. NULL: nobody's flag that is known. */
const char *weft_foreign_flag(struct weft_str typed);

#endif
