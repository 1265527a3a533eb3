/* lora_queue — adapters that the scheduler asks for, one after the other, beside steps.
 *
 * Model    A queue of things to do. Loading is done by a thread of its own, since reading and packing a
 *          large adapter takes a second; removing by the stepper, between steps. The next begins when
 *          the last is done, so that an adapter's end and its return cannot overtake each other.
 * Threads  Control calls all functions. The loader waits for work under a lock, and wakes control
 *          through the eventfd of whoever made it.
 * Bounds   2 * WEFT_LORAS_MAX things to do: a scheduler asks for that many adapters, and takes back as
 *          many.
 */
#ifndef WEFT_WORKER_LORA_QUEUE_H
#define WEFT_WORKER_LORA_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/proto.h"
#include "stepper.h"

typedef struct wefti_lora_queue wefti_lora_queue;

/* `stepper`, whose engine is open, outlives it. `wake_fd`: an eventfd that is written to when something
 * is done. */
WEFT_MUST_CHECK weft_err wefti_lora_queue_start(wefti_stepper *stepper, int wake_fd,
                                                wefti_lora_queue **loras_out,
                                                struct weft_errmsg *why);
/* Ends the thread after what is being loaded. False: that took longer than `wait_ms_max`; nothing was freed,
 * and the process should just exit. Accepts NULL. */
bool wefti_lora_queue_stop(wefti_lora_queue *loras, uint32_t wait_ms_max);

/* The message is copied. FULL, NOMEM. */
WEFT_MUST_CHECK weft_err wefti_lora_queue_add(wefti_lora_queue *loras,
                                              const struct weft_msg_add_lora *msg);
WEFT_MUST_CHECK weft_err wefti_lora_queue_remove(wefti_lora_queue *loras, uint64_t id);

/* A scheduler began anew: it will ask for what it knows of. At its first plan, what it did not ask for
 * goes, and so does what was being loaded for the one before; earlier where its places are needed. */
void wefti_lora_queue_new_session(wefti_lora_queue *loras);
void wefti_lora_queue_first_plan(wefti_lora_queue *loras);

/* Goes on with the queue. True: an answer, whose text is valid until the next call. */
bool wefti_lora_queue_next(wefti_lora_queue *loras, struct weft_msg_lora *answer_out);

#endif
