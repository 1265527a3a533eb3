/* Plans for models with recurrent layers: what would need a state of some other token, or another slot's, is refused,
 * and the rest goes as ever. Without an engine: slots are all that is checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "inside/engine/runtime/plan_check.h"

struct desk {
    struct wefti_slots slots;
    uint32_t tokens[8], blocks[1];
    struct weft_step_start start;
    struct weft_step_grant grant;
    struct weft_step_row row;
    struct weft_step_copy copy;
    struct weft_step_spill spill;
    struct weft_step_plan plan;
};

/* A prompt of eight tokens that starts; nothing is wrong with it. */
static void open_desk(struct desk *desk, bool is_recurrent) {
    const struct weft_eng_info info = {.n_vocab = 10,
                                       .n_blocks = 4,
                                       .block_size = 16,
                                       .max_model_len = 32,
                                       .max_seqs = 2,
                                       .max_batched_tokens = 16,
                                       .is_recurrent = is_recurrent};
    struct weft_errmsg why = {""};
    *desk = (struct desk){.start = {.gen = 1, .tokens = desk->tokens, .n_tokens = 8, .n_prompt = 8},
                          .grant = {.gen = 1, .n_blocks = 1, .blocks = desk->blocks},
                          .row = {.gen = 1, .n_tokens = 8},
                          .copy = {.from = 1, .to = 2},
                          .plan = {.starts = &desk->start,
                                   .n_starts = 1,
                                   .grants = &desk->grant,
                                   .n_grants = 1,
                                   .rows = &desk->row,
                                   .n_rows = 1,
                                   .copies = &desk->copy,
                                   .spills = &desk->spill,
                                   .restores = &desk->spill}};
    weft_sampling_init(&desk->start.sampling);
    assert_int_equal(wefti_slots_init(&desk->slots, &info, &why), WEFT_OK);
}

enum breach { NONE, COPY, SPILL, RESTORE, CACHED, DROPPED, GUESS, N_BREACHES };

static void commit(struct desk *desk, enum breach breach) {
    if (breach == COPY) desk->plan.n_copies = 1;
    if (breach == SPILL) desk->plan.n_spills = 1;
    if (breach == RESTORE) desk->plan.n_restores = 1;
    if (breach == CACHED) desk->start.n_cached = desk->row.n_tokens = 4;
    if (breach == GUESS) desk->row.n_spec = 2;
    if (breach != DROPPED) return;
    desk->start.n_prompt = 4;
    desk->start.n_keep = 1;
    desk->start.n_dropped = 2;
    desk->row.n_tokens = 6;
}

static void what_needs_another_state_is_refused(void **state) {
    (void)state;
    static const char *const words[] = {
        [COPY] = "copies",   [SPILL] = "spills",    [RESTORE] = "restores",
        [CACHED] = "cached", [DROPPED] = "dropped", [GUESS] = "guess"};
    for (int is_recurrent = 0; is_recurrent <= 1; is_recurrent++) {
        for (enum breach breach = NONE; breach < N_BREACHES; breach++) {
            struct desk desk;
            struct weft_errmsg why = {""};
            open_desk(&desk, is_recurrent);
            commit(&desk, breach);
            weft_err err = wefti_plan_check(&desk.slots, &desk.plan, 1, true, &why);
            bool is_breach = is_recurrent && breach != NONE;
            if (err != (is_breach ? WEFT_E_PROTO : WEFT_OK)) fail_msg("%d: %s", breach, why.text);
            if (is_breach) {
                assert_non_null(strstr(why.text, words[breach]));
                assert_non_null(strstr(why.text, "recurrent"));
            }
            wefti_slots_fini(&desk.slots);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_needs_another_state_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
