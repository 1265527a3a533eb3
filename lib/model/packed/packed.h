/* packed, private to the model module — the numbers that reading and writing a packed file share.
 */
#ifndef WEFT_MODEL_PACKED_H
#define WEFT_MODEL_PACKED_H

#include "../model_internal.h"

enum {
    WEFTI_MODEL_PACKED_HASH_AT = 96,    /* the header's own sum, of all before it */
    WEFTI_MODEL_STORED_I8_NUMBER = 256, /* above the numbers of GGUF's types */
};

#endif
