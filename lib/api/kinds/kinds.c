/* The endpoints that answer with a call; those that answer at once are in answers.c. */
#include <stddef.h>

#include "kinds/kind.h"

const struct weft_api_kind *const wefti_api_kinds[] = {
    &wefti_api_kind_completion,
    &wefti_api_kind_chat,
    &wefti_api_kind_tokenize,
    &wefti_api_kind_detokenize,
    NULL,
};
