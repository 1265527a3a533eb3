/* stepper — the thread that owns the engine: it opens it, runs plans in order, frees it.
 *
 * Model    Control takes a slot, puts a message's bytes into it, decodes them there and submits the
 *          slot when it holds a plan; the stepper runs it, encodes the result into the same slot
 *          and hands it back. So a plan's memory lives until it is executed, and control never
 *          waits: it sends heartbeats while a step runs and while a large model is opened.
 * Threads  Control calls all functions. Two SPSC rings connect it with the stepper, a semaphore
 *          wakes the stepper, an eventfd wakes control. The stepper opens the engine itself,
 *          because opening pins the thread that will step.
 * Group    The first of several ranks (group.h) gives each plan to the others before it runs it; the
 *          stepper of another rank takes its plans there, and control has none for it. When the
 *          group is over, nothing runs any more.
 * Bounds   WEFTI_STEPPER_SLOTS - 1 plans under way. A scheduler has two out per epoch; the rest is
 *          for plans of epochs that ended while a long step ran. One slot is always free to decode
 *          into.
 */
#ifndef WEFT_WORKER_STEPPER_H
#define WEFT_WORKER_STEPPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/engine.h"
#include "group.h"
#include "proto/proto.h"

#define WEFTI_STEPPER_SLOTS 8
#define WEFTI_STEPPER_THREAD "weft-step" /* its name, as seen in /proc */

typedef struct wefti_stepper wefti_stepper;

struct wefti_slot {
    struct weft_buf bytes;       /* the message as it came */
    weft_proto_decoder *decoder; /* and what it says: points into `bytes` and the decoder */
    struct weft_msg msg;
    uint64_t epoch;         /* of the plan */
    weft_err err;           /* of the step; STATE: its epoch ended before it ran */
    struct weft_errmsg why; /* if err */
    struct weft_buf result; /* encoded, if err is OK */
};

/* Starts the thread, which begins to open the model. `path` and `group` must outlive the stepper. */
WEFT_MUST_CHECK weft_err wefti_stepper_start(const char *path,
                                             const struct weft_eng_options *options,
                                             const struct wefti_group *group,
                                             wefti_stepper **stepper_out, struct weft_errmsg *why);

/* Ends the thread after its step, and frees everything. False: it did not end within `wait_ms_max`;
 * nothing was freed, and the process should just exit. Accepts NULL. */
bool wefti_stepper_stop(wefti_stepper *stepper, uint32_t wait_ms_max);

/* Readable (POLLIN) if the stepper has news; clear it, then ask. */
int wefti_stepper_fd(const wefti_stepper *stepper);
void wefti_stepper_clear(wefti_stepper *stepper);

enum wefti_engine_state { WEFTI_ENGINE_OPENING, WEFTI_ENGINE_OPEN, WEFTI_ENGINE_FAILED };

/* FAILED: `why` is filled. */
enum wefti_engine_state wefti_stepper_engine(const wefti_stepper *stepper, struct weft_errmsg *why);
uint64_t
wefti_stepper_meeting_us(const wefti_stepper *stepper); /* weft_eng_meeting_ns; once OPEN */

/* The engine's, with what a group has room for; once OPEN. */
const struct weft_eng_info *wefti_stepper_info(const wefti_stepper *stepper);

/* OK while the group goes on, and without one. CLOSED: it was ended by another rank, STATE: by what this
 * one could not do; `why` says it. At any time; a rank that leads and has nothing to do, and so meets
 * nobody, hears of the others' end only here. */
weft_err wefti_stepper_check_group(const wefti_stepper *stepper, struct weft_errmsg *why);
/* Steps that it ran. */
uint64_t wefti_stepper_n_steps(const wefti_stepper *stepper);

/* Of the engine, until stop; once OPEN. */
uint32_t wefti_stepper_regions(const wefti_stepper *stepper,
                               struct weft_eng_region out[WEFT_ENG_REGIONS]);

weft_eng *wefti_stepper_eng(const wefti_stepper *stepper);

/* Moves while a step advances; once OPEN. */
uint64_t wefti_stepper_progress(const wefti_stepper *stepper);
uint32_t wefti_stepper_n_spill_blocks(const wefti_stepper *stepper); /* now; once OPEN */
/* The number of plans submitted and not handed back. */
uint32_t wefti_stepper_n_under_way(const wefti_stepper *stepper);

/* A free slot to decode into; it stays free until it is submitted. */
struct wefti_slot *wefti_stepper_slot(wefti_stepper *stepper);

/* Runs the plan in `slot`, which came from the call above. FULL: too many under way. */
WEFT_MUST_CHECK weft_err wefti_stepper_submit(wefti_stepper *stepper, struct wefti_slot *slot);

/* From now on only plans of `epoch` run: all sequences are dropped before the first of them; plans
 * of other epochs that wait come back with STATE. FULL: too many changes while one step ran. */
WEFT_MUST_CHECK weft_err wefti_stepper_reset(wefti_stepper *stepper, uint64_t epoch);

/* Whether a layer of the model has experts; once OPEN. */
bool wefti_stepper_has_experts(const wefti_stepper *stepper, uint32_t layer);

/* Asks the stepper to copy weft_eng_expert_tokens to `counts_out` between two steps; only for a
 * model with experts, one at a time. The array is the stepper's until is_counting is false. FULL:
 * too many jobs wait. */
WEFT_MUST_CHECK weft_err wefti_stepper_count(wefti_stepper *stepper, uint64_t *counts_out);
bool wefti_stepper_is_counting(const wefti_stepper *stepper);

/* weft_eng_add_lora, by any thread but one at a time; once OPEN. */
WEFT_MUST_CHECK weft_err wefti_stepper_add_lora(wefti_stepper *stepper, uint64_t id,
                                                const char *path, struct weft_eng_lora *info_out,
                                                struct weft_errmsg *why);
/* weft_eng_remove_lora between two steps, one at a time. FULL: too many jobs wait. */
WEFT_MUST_CHECK weft_err wefti_stepper_remove_lora(wefti_stepper *stepper, uint64_t id);
bool wefti_stepper_is_removing(const wefti_stepper *stepper);

/* weft_eng_prepare_grammar; once OPEN. Then the stepper has news (its descriptor) when
 * next_prepared has something to tell. */
bool wefti_stepper_prepare(wefti_stepper *stepper, const struct weft_msg_grammar *wish);
bool wefti_stepper_next_prepared(wefti_stepper *stepper, struct weft_msg_compiled *msg_out);

/* The next finished slot, or NULL. Control gives it back after reading it. */
struct wefti_slot *wefti_stepper_done(wefti_stepper *stepper);
void wefti_stepper_give_back(wefti_stepper *stepper, struct wefti_slot *slot);

#endif
