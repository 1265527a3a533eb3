/* base/limits — the ceilings of everything that can grow. A configured value is checked against its
 * ceiling at start; what is over a bound at run time is answered with an error, never with memory.
 */
#ifndef WEFT_BASE_LIMITS_H
#define WEFT_BASE_LIMITS_H

/* Model. Generous against real models (Llama-3.1 405B: 126 layers, hidden 16384, ffn 53248), small
 * enough that no product of two of them overflows 64 bits. */
#define WEFT_LAYERS_MAX 1024
#define WEFT_HEADS_MAX 1024
#define WEFT_HEAD_DIM_MAX 512
#define WEFT_HIDDEN_MAX (1u << 20)
#define WEFT_VOCAB_MAX (1u << 21)
#define WEFT_CONTEXT_MAX (1u << 22)
#define WEFT_TENSORS_MAX (1u << 20)

/* Step. */
#define WEFT_SEQS_MAX 4096            /* --max-num-seqs */
#define WEFT_BATCHED_TOKENS_MAX 65536 /* --max-num-batched-tokens */
#define WEFT_BLOCK_SIZE_MAX 256
#define WEFT_KV_BLOCKS_MAX (1u << 26)
#define WEFT_THREADS_MAX 256

/* Request. */
#define WEFT_STOP_STRINGS_MAX 4 /* OpenAI's own bound */
#define WEFT_STOP_STRING_BYTES_MAX 4096
#define WEFT_STOP_TOKENS_MAX 128
#define WEFT_LOGIT_BIAS_MAX 1024 /* OpenAI: 300 entries; vLLM: any */
#define WEFT_CHOICES_MAX 128     /* n */
#define WEFT_REQUEST_ID_BYTES_MAX 128

/* Front. */
#define WEFT_QUEUE_MAX 1000000 /* --max-queue */
#define WEFT_BODY_BYTES_MAX (256u << 20)
#define WEFT_MESSAGE_BYTES_MAX (256u << 20) /* one message between actors */

#endif
