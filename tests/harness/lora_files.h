/* lora_files — random adapters for a model, and the model with one of them in its weights. */
#ifndef WEFT_TESTS_LORA_FILES_H
#define WEFT_TESTS_LORA_FILES_H

#include <stdint.h>

/* Writes a PEFT adapter of all linear layers of the Hugging Face model in `model` to the folder `dir`,
 * with alpha = 2 * rank. Dies loudly. */
void lora_write_random(const char *model, const char *dir, uint32_t rank, uint64_t seed);

/* Writes a model to the folder `dir` whose weights are those of `model`, in f32, with the same adapter
 * added. */
void lora_write_merged(const char *model, const char *dir, uint32_t rank, uint64_t seed);

#endif
