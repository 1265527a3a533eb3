/* Drives an engine without a scheduler: builds plans piece by piece and keeps the step count. */
#ifndef WEFT_TESTS_ENG_DRIVE_H
#define WEFT_TESTS_ENG_DRIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

enum { DRIVE_PARTS = 64, DRIVE_BLOCKS = 4096 };

typedef weft_err drive_step_fn(void *ctx, const struct weft_step_plan *plan,
                               const struct weft_step_result **result_out, struct weft_errmsg *why);

struct drive {
    weft_eng *eng;
    drive_step_fn *step_fn; /* NULL: the engine's own */
    void *step_ctx;
    /* Of the sequences of drive_complete. */
    uint32_t n_adapters;
    struct weft_step_adapter adapters[WEFT_SEQ_ADAPTERS_MAX];
    uint64_t epoch, step;
    /* The plan in the making. */
    struct weft_step_release releases[DRIVE_PARTS];
    struct weft_step_start starts[DRIVE_PARTS];
    struct weft_step_copy copies[DRIVE_PARTS];
    struct weft_step_spill spills[DRIVE_PARTS], restores[DRIVE_PARTS];
    struct weft_step_grant grants[DRIVE_PARTS];
    struct weft_step_state states[DRIVE_PARTS];
    struct weft_step_row rows[DRIVE_PARTS];
    uint32_t blocks[DRIVE_BLOCKS];
    uint32_t n_releases, n_starts, n_spills, n_copies, n_restores, n_grants, n_states, n_rows,
        n_blocks;
};

/* True, with a line that says so, if this CPU lacks the ISA of WEFT_ISA: the test is skipped. */
bool drive_isa_missing(void);

/* The path of a model of ours that is too large for the repository and lies in WEFT_SHARED_DIR;
 * NULL, and a line that says so, if it does not. Static storage, one for all calls. */
const char *drive_shared(const char *path);

/* The path of a fixture in the source tree; static storage, valid until the next call but three. */
const char *drive_fixture(const char *path);

/* Opens a model or fails the test. */
weft_eng *drive_open(const char *path, const struct weft_eng_options *options);

void drive_init(struct drive *drive, weft_eng *eng);

void drive_release(struct drive *drive, uint32_t slot, uint32_t gen);
/* `start` is copied; what it points to must live until drive_run. */
void drive_start(struct drive *drive, const struct weft_step_start *start);
void drive_copy(struct drive *drive, uint32_t from, uint32_t to);
/* To a slot of the spill file, and back. */
void drive_spill(struct drive *drive, uint32_t block, uint32_t slot);
void drive_restore(struct drive *drive, uint32_t slot, uint32_t block);
void drive_state(struct drive *drive, enum weft_step_state_op op, uint32_t slot, uint32_t other);
/* Blocks of each kind that there is, by the same ids; or of one. */
void drive_grant(struct drive *drive, uint32_t slot, uint32_t gen, const uint32_t *blocks,
                 uint32_t n_blocks);
void drive_grant_kind(struct drive *drive, uint32_t slot, uint32_t gen, enum weft_kv_kind kind,
                      const uint32_t *blocks, uint32_t n_blocks);
void drive_row(struct drive *drive, uint32_t slot, uint32_t gen, uint32_t n_tokens);
/* One that may guess so many tokens. */
void drive_guessing_row(struct drive *drive, uint32_t slot, uint32_t gen, uint32_t n_tokens,
                        uint32_t n_spec);

/* The plan as it stands. */
struct weft_step_plan drive_plan(const struct drive *drive);
/* Begins the next one without running it. */
void drive_clear(struct drive *drive);
/* Runs it, which must succeed, and begins the next one. */
const struct weft_step_result *drive_run(struct drive *drive);

/* Runs one sequence alone to its end: tokens into out (room for max_tokens), their number back. */
uint32_t drive_complete(struct drive *drive, const uint32_t *prompt, uint32_t n_prompt,
                        const struct weft_sampling *sampling, uint32_t *out);

#endif
