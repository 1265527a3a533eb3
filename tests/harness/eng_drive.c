#include "harness/eng_drive.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"

bool drive_isa_missing(void) {
    const struct weft_kern_table *table;
    struct weft_errmsg why;
    if (!weft_kern_select(&table, &why)) return false;
    (void)printf("SKIPPED: %s\n", why.text);
    return true;
}

const char *drive_fixture(const char *path) {
    static char paths[4][1024];
    static unsigned next;
    char *out = paths[next++ % 4];
    const char *root = getenv("WEFT_SOURCE_DIR");
    (void)snprintf(out, sizeof paths[0], "%s/%s", root ? root : ".", path);
    return out;
}

const char *drive_shared(const char *path) {
    static char out[1024];
    const char *root = getenv("WEFT_SHARED_DIR");
    (void)snprintf(out, sizeof out, "%s/%s", root ? root : "../shared", path);
    if (access(out, R_OK) == 0) return out;
    (void)printf("SKIPPED: there is no %s (WEFT_SHARED_DIR/%s)\n", out, path);
    return NULL;
}

weft_eng *drive_open(const char *path, const struct weft_eng_options *options) {
    struct weft_errmsg why = {{0}};
    weft_eng *eng = NULL;
    weft_err err = weft_eng_open(path, options, &eng, &why);
    if (err) fail_msg("%s: %s: %s", path, weft_err_text(err), why.text);
    return eng;
}

void drive_init(struct drive *drive, weft_eng *eng) {
    memset(drive, 0, sizeof *drive);
    drive->eng = eng;
}

void drive_release(struct drive *drive, uint32_t slot, uint32_t gen) {
    assert_true(drive->n_releases < DRIVE_PARTS);
    drive->releases[drive->n_releases++] = (struct weft_step_release){slot, gen};
}

void drive_start(struct drive *drive, const struct weft_step_start *start) {
    assert_true(drive->n_starts < DRIVE_PARTS);
    drive->starts[drive->n_starts++] = *start;
}

void drive_copy(struct drive *drive, uint32_t from, uint32_t to) {
    assert_true(drive->n_copies < DRIVE_PARTS);
    drive->copies[drive->n_copies++] = (struct weft_step_copy){.from = from, .to = to};
}

void drive_spill(struct drive *drive, uint32_t block, uint32_t slot) {
    assert_true(drive->n_spills < DRIVE_PARTS);
    drive->spills[drive->n_spills++] = (struct weft_step_spill){.block = block, .slot = slot};
}

void drive_restore(struct drive *drive, uint32_t slot, uint32_t block) {
    assert_true(drive->n_restores < DRIVE_PARTS);
    drive->restores[drive->n_restores++] = (struct weft_step_spill){.block = block, .slot = slot};
}

void drive_state(struct drive *drive, enum weft_step_state_op op, uint32_t slot, uint32_t other) {
    assert_true(drive->n_states < DRIVE_PARTS);
    drive->states[drive->n_states++] = (struct weft_step_state){op, slot, other};
}

void drive_grant(struct drive *drive, uint32_t slot, uint32_t gen, const uint32_t *blocks,
                 uint32_t n_blocks) {
    drive_grant_kind(drive, slot, gen, WEFT_KV_FULL, blocks, n_blocks);
    if (weft_eng_info(drive->eng)->window > 0)
        drive_grant_kind(drive, slot, gen, WEFT_KV_WINDOWED, blocks, n_blocks);
}

void drive_grant_kind(struct drive *drive, uint32_t slot, uint32_t gen, enum weft_kv_kind kind,
                      const uint32_t *blocks, uint32_t n_blocks) {
    if (n_blocks == 0) return;
    assert_true(drive->n_grants < DRIVE_PARTS && n_blocks <= DRIVE_BLOCKS - drive->n_blocks);
    uint32_t *copy = drive->blocks + drive->n_blocks;
    memcpy(copy, blocks, n_blocks * sizeof *copy);
    drive->n_blocks += n_blocks;
    drive->grants[drive->n_grants++] = (struct weft_step_grant){slot, gen, kind, n_blocks, copy};
}

void drive_guessing_row(struct drive *drive, uint32_t slot, uint32_t gen, uint32_t n_tokens,
                        uint32_t n_spec) {
    assert_true(drive->n_rows < DRIVE_PARTS);
    drive->rows[drive->n_rows++] = (struct weft_step_row){slot, gen, n_tokens, n_spec};
}

void drive_row(struct drive *drive, uint32_t slot, uint32_t gen, uint32_t n_tokens) {
    drive_guessing_row(drive, slot, gen, n_tokens, 0);
}

struct weft_step_plan drive_plan(const struct drive *drive) {
    return (struct weft_step_plan){
        .epoch = drive->epoch,
        .step = drive->step,
        .n_releases = drive->n_releases,
        .n_starts = drive->n_starts,
        .n_spills = drive->n_spills,
        .n_copies = drive->n_copies,
        .n_restores = drive->n_restores,
        .n_grants = drive->n_grants,
        .n_states = drive->n_states,
        .n_rows = drive->n_rows,
        .releases = drive->releases,
        .starts = drive->starts,
        .spills = drive->spills,
        .copies = drive->copies,
        .restores = drive->restores,
        .grants = drive->grants,
        .states = drive->states,
        .rows = drive->rows,
    };
}

void drive_clear(struct drive *drive) {
    drive->n_releases = drive->n_starts = drive->n_copies = 0;
    drive->n_spills = drive->n_restores = drive->n_states = 0;
    drive->n_grants = drive->n_rows = drive->n_blocks = 0;
}

const struct weft_step_result *drive_run(struct drive *drive) {
    struct weft_step_plan plan = drive_plan(drive);
    struct weft_errmsg why = {{0}};
    const struct weft_step_result *result = NULL;
    weft_err err = drive->step_fn ? drive->step_fn(drive->step_ctx, &plan, &result, &why)
                                  : weft_eng_step(drive->eng, &plan, &result, &why);
    if (err) fail_msg("step %llu: %s", (unsigned long long)drive->step, why.text);
    assert_int_equal(result->n_outs, plan.n_rows);
    drive->step++;
    drive_clear(drive);
    return result;
}

uint32_t drive_complete(struct drive *drive, const uint32_t *prompt, uint32_t n_prompt,
                        const struct weft_sampling *sampling, uint32_t *out) {
    const struct weft_eng_info *info = weft_eng_info(drive->eng);
    uint32_t slot = 0, gen = (uint32_t)drive->step + 1, n_out = 0, computed = 0;
    uint32_t n_blocks = (n_prompt + sampling->max_tokens) / info->block_size + 1;
    uint32_t blocks[DRIVE_BLOCKS];
    if (n_blocks > info->n_blocks) n_blocks = info->n_blocks;
    assert_true(n_blocks <= DRIVE_BLOCKS);
    for (uint32_t i = 0; i < n_blocks; i++) {
        blocks[i] = i;
    }
    struct weft_step_start start = {
        .slot = slot,
        .gen = gen,
        .tokens = prompt,
        .n_tokens = n_prompt,
        .n_prompt = n_prompt,
        .sampling = *sampling,
        .n_adapters = drive->n_adapters,
        .adapters = drive->adapters,
    };
    drive_start(drive, &start);
    drive_grant(drive, slot, gen, blocks, n_blocks);
    for (enum weft_end finish = WEFT_END_NONE; finish == WEFT_END_NONE;) {
        uint32_t n = computed < n_prompt ? n_prompt - computed : 1;
        if (n > info->max_batched_tokens) n = info->max_batched_tokens;
        drive_row(drive, slot, gen, n);
        const struct weft_step_out *result = drive_run(drive)->outs;
        computed += n;
        if (result->sampled) out[n_out++] = result->token;
        finish = result->finish;
    }
    drive_release(drive, slot, gen);
    (void)drive_run(drive);
    return n_out;
}
