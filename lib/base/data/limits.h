/* base/limits — the ceilings of everything that can grow. A configured value is checked against its
 * ceiling at start; at run time, what exceeds a bound gets an error, never memory.
 */
#ifndef WEFT_BASE_LIMITS_H
#define WEFT_BASE_LIMITS_H

/* Model. Generous against real models (Llama-3.1 405B: 126 layers, hidden 16384, ffn 53248), small
 * enough that no product of two of them overflows 64 bits. */
#define WEFT_LAYERS_MAX 1024
#define WEFT_HEADS_MAX 1024
#define WEFT_HEAD_DIM_MAX 512
#define WEFT_KV_DIM_MAX 1024   /* of a head's row in the cache: a latent and a rope key */
#define WEFT_CONV_WIDTH_MAX 8u /* inputs of a convolution along tokens */
#define WEFT_HIDDEN_MAX (1u << 20)
#define WEFT_VOCAB_MAX (1u << 21)
#define WEFT_CONTEXT_MAX (1u << 22)
#define WEFT_CONTEXT_SAID_MAX (1u << 24) /* what files may say; Llama 4 Scout: 10,485,760 */
#define WEFT_TENSORS_MAX (1u << 20)
#define WEFT_EXPERTS_MAX 1024    /* of a layer */
#define WEFT_EXPERTS_USED_MAX 64 /* by a token */
#define WEFT_LABELS_MAX 4096u    /* of a head that classifies */

/* Series of the experts' metric, one per layer and expert. More than AUTO outnumber all other
 * metrics many times, so they come only on request; more than MAX never do. */
#define WEFT_EXPERT_SERIES_AUTO 4096u
#define WEFT_EXPERT_SERIES_MAX 65536u

/* Step. */
#define WEFT_SEQS_MAX 4096            /* --max-num-seqs */
#define WEFT_BATCHED_TOKENS_MAX 65536 /* --max-num-batched-tokens */
#define WEFT_BLOCK_SIZE_MAX 256
#define WEFT_KV_BLOCKS_MAX (1u << 26)
#define WEFT_THREADS_MAX 256

/* Log-probabilities and pooled values of one step, as they travel (base/step.h counts them): the one
 * part of a result whose size clients choose. A step that would yield more takes fewer rows or shorter chunks.
 * 32 MiB: a token with all of the largest vocabulary is 16 MiB, so every row fits by itself; 65536
 * tokens with the usual 20 best each are 11 MiB, so ordinary steps are never cut; and with all that
 * goes around them they are one message with room to spare (proto/wire.h). */
#define WEFT_STEP_LOGPROB_BYTES_MAX (32u << 20)

/* Tokens of all sequences that one plan starts: 64 MiB in a plan's message. Four times the longest
 * sequence, so each fits by itself; the others start with the next plan. */
#define WEFT_STEP_START_TOKENS_MAX (1u << 24)

/* Bytes of all grammars, allowed tokens and bad words that one plan brings. Four of the largest grammars; the others
 * start with the next. */
#define WEFT_STEP_GRAMMAR_BYTES_MAX (16u << 20)

/* Blocks that one plan writes to a worker's spill file, and as many that it reads back: 64 KiB in a
 * plan's message. A sequence with more is not spilled. */
#define WEFT_STEP_SPILLS_MAX 4096u
#define WEFT_STATE_CHECKPOINTS_MAX                                                                 \
    65536u /* --state-checkpoints: states of recurrent layers kept for others */

/* Workers lost in a row over a sequence that got nothing done in between. From SUSPECT on it is
 * computed by itself, so that the next loss hits nobody else: three, because people kill workers,
 * too, and two such losses in a row are chance. At MAX its request is ended. Generous, since every
 * loss is only some seconds and a request wrongly ended is a promise broken: somebody who kills
 * workers at random, as often as not before they got anything done, hits the same sequence twelve
 * times running in one of 4096 attempts. */
#define WEFT_SUSPECT_LOSSES 3
#define WEFT_SEQ_LOSSES_MAX 12

/* Workers of one scheduler, each with all of the model. */
#define WEFT_WORKERS_MAX 32

/* Request. */
#define WEFT_STOP_STRINGS_MAX 64 /* OpenAI: 4; vLLM: any. Each is compared with every byte */
#define WEFT_STOP_STRING_BYTES_MAX 4096
#define WEFT_STOP_TOKENS_MAX 128 /* those that are only masked included */
#define WEFT_LOGIT_BIAS_MAX 1024 /* OpenAI: 300 entries; vLLM: any */
#define WEFT_ALLOWED_TOKENS_MAX 16384
/* A request's dry_sequence_breakers, a token each. Over it: 400. */
#define WEFT_DRY_BREAKERS_MAX 128
#define WEFT_BAD_WORDS_MAX                                                                         \
    8192 /* numbers: some thousand words of few tokens. Each is looked at for each token */
#define WEFT_CHOICES_MAX 128 /* n */
#define WEFT_BEAMS_MAX 32    /* of one request: each has a place among the sequences that run */
/* Hidden states that all requests with contrastive search of a group may come to keep: with a hidden size of
 * 4096, 16384 tokens. What is over it waits outside, and what can never fit is refused. */
#define WEFT_CONTRAST_BYTES_MAX (256ull << 20)
#define WEFT_CONTRAST_K_MAX 64 /* candidates of contrastive search, each a row of a forward pass */
#define WEFT_LENGTH_PENALTY_MAX 100.0f /* a power of the length, of either sign */
#define WEFT_REQUEST_ID_BYTES_MAX 128
#define WEFT_GRAMMAR_BYTES_MAX (4u << 20) /* a hundred tools' schemas are 1 MB */
#define WEFT_SLO_US_MAX 86400000000ull    /* a wish of a time: a day */
#define WEFT_WEIGHT_MAX 1000000           /* of a tenant */
#define WEFT_FORCED_MAX 32                /* tokens of one row beside the sampled one */
/* Guessed tokens of one row: beyond 16 hardly any comes true, and each of them costs its row. */
#define WEFT_SPEC_TOKENS_MAX 16
#define WEFT_MORE_MAX (WEFT_SPEC_TOKENS_MAX + WEFT_FORCED_MAX)
#define WEFT_SPEC_NGRAM_MAX 8 /* the longest match looked for: each length has an index */

/* Prompt and output of a request that goes on beyond the model's length (context_shift), or that length if it
 * is greater: a day at 12 tokens a second. What samplers and grammars go by is all of it, so a slot has address
 * space for so many. */
#define WEFT_SHIFTED_TOKENS_MAX (1u << 20)

#define WEFT_SEQ_ADAPTERS_MAX 4 /* LoRA adapters of one request */
#define WEFT_LORAS_MAX 1024     /* --max-loras */

/* Sessions: each is looked for among all at every end of a request that names one. */
#define WEFT_SESSIONS_MAX 4096 /* --max-sessions */
#define WEFT_SESSION_ID_BYTES_MAX 128
#define WEFT_SESSION_FILE_BYTES_MAX 128

/* Front. */
#define WEFT_QUEUE_MAX 1000000 /* --max-queue */
#define WEFT_BODY_BYTES_MAX (256u << 20)
#define WEFT_MESSAGE_BYTES_MAX (256u << 20) /* one message between actors */

#endif
