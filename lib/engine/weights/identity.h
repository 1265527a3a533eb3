/* engine/weights/identity — which files a model is, as a number. */
#ifndef WEFT_ENGINE_IDENTITY_H
#define WEFT_ENGINE_IDENTITY_H

#include <stdint.h>

#include "model/model.h"

/* Equal only if the files that the model at `path` consists of are the same and unchanged. 0:
 * cannot be told. */
uint64_t wefti_weights_identity(const weft_model *model, const char *path);

#endif
