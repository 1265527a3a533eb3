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
    uint32_t tokens[32], blocks[2];
    struct weft_step_start start;
    struct weft_step_grant grant;
    struct weft_step_row row;
    struct weft_step_copy copy;
    struct weft_step_spill spill;
    struct weft_step_state states[3];
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
                                       .n_checkpoints = is_recurrent ? 3 : 0,
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
                                   .states = desk->states,
                                   .restores = &desk->spill}};
    weft_sampling_init(&desk->start.sampling);
    assert_int_equal(wefti_slots_init(&desk->slots, &info, &why), WEFT_OK);
}

enum breach { NONE, SPILL, RESTORE, CACHED, DROPPED, GUESS, N_BREACHES };

static void commit(struct desk *desk, enum breach breach) {
    if (breach == SPILL) desk->plan.n_spills = 1;
    if (breach == RESTORE) desk->plan.n_restores = 1;
    if (breach == CACHED) desk->start.n_cached = desk->start.n_written = desk->row.n_tokens = 4;
    if (breach == GUESS) desk->row.n_spec = 2;
    if (breach != DROPPED) return;
    desk->start.n_prompt = 4;
    desk->start.n_keep = 1;
    desk->start.n_dropped = 2;
    desk->row.n_tokens = 6;
}

static void what_needs_another_state_is_refused(void **state) {
    (void)state;
    static const char *const words[] = {[SPILL] = "spills",
                                        [RESTORE] = "restores",
                                        [CACHED] = "cached",
                                        [DROPPED] = "dropped",
                                        [GUESS] = "guess"};
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
                if (breach != CACHED) assert_non_null(strstr(why.text, "recurrent"));
            }
            wefti_slots_fini(&desk.slots);
        }
    }
}

/* A slot of four computed tokens, and a checkpoint of four, before the plan. */
static void set_four(struct desk *desk) {
    desk->slots.slots[1].gen_known = desk->slots.slots[1].used = true;
    desk->slots.slots[1].gen = 1;
    desk->slots.slots[1].n_computed = desk->slots.kept_tokens[2] = 4;
    desk->start.n_cached = desk->start.n_written = desk->row.n_tokens = 4;
}

static void a_start_gets_the_state_of_its_cached_tokens(void **state) {
    (void)state;
    const struct {
        struct weft_step_state states[3];
        uint32_t n, n_cached;
        bool is_fine;
    } cases[] = {
        {{{WEFT_STATE_FORK, 0, 1}}, 1, 4, true},
        {{{WEFT_STATE_LOAD, 0, 2}}, 1, 4, true},
        {{{WEFT_STATE_LOAD, 0, 2}, {WEFT_STATE_KEEP, 0, 2}}, 2, 4, true},
        {{{WEFT_STATE_FORK, 0, 1}}, 1, 3, false}, /* of other tokens */
        {{{WEFT_STATE_LOAD, 0, 1}}, 1, 4, false}, /* nothing is kept there */
        {{{WEFT_STATE_FORK, 0, 0}}, 1, 4, false}, /* nor has its own slot any */
        {{{WEFT_STATE_LOAD, 0, 3}}, 1, 4, false}, /* there is no such checkpoint */
        {{{WEFT_STATE_KEEP, 0, 3}}, 1, 0, false}, /* likewise */
        {{{WEFT_STATE_FORK, 0, 2}}, 1, 4, false}, /* slot */
        {{{WEFT_STATE_FORK, 1, 0}}, 1, 0, false}, /* it does not start */
        {{{WEFT_STATE_KEEP, 1, 0}}, 1, 0, false}, /* it has no row */
        {{{WEFT_STATE_KEEP, 0, 0}}, 1, 0, true},
        {{{WEFT_STATE_LOAD, 0, 2}}, 1, 0, false}, /* it starts with nothing */
        {{{WEFT_STATE_LOAD, 0, 2}, {WEFT_STATE_FORK, 0, 1}}, 2, 4, false}, /* twice */
        {{{WEFT_STATE_OPS, 0, 1}}, 1, 4, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct desk desk;
        struct weft_errmsg why = {""};
        open_desk(&desk, true);
        set_four(&desk);
        memcpy(desk.states, cases[i].states, sizeof desk.states);
        desk.plan.n_states = cases[i].n;
        desk.start.n_cached = desk.start.n_written = cases[i].n_cached;
        desk.row.n_tokens = 8 - cases[i].n_cached;
        weft_err err = wefti_plan_check(&desk.slots, &desk.plan, 0, false, &why);
        if ((err == WEFT_OK) != cases[i].is_fine) fail_msg("%zu: %s", i, why.text);
        err = wefti_plan_check(&desk.slots, &desk.plan, 0, true, &why); /* a new epoch has none */
        assert_true(!err == (cases[i].is_fine && cases[i].n_cached == 0));
        wefti_slots_fini(&desk.slots);
    }
}

/* Beyond the state whole blocks may be there, as far as there are tokens. */
static void what_is_written_is_cached_or_whole_blocks(void **state) {
    (void)state;
    const struct {
        uint32_t n_tokens, n_cached, n_written;
        bool is_fine, is_fine_without;
    } cases[] = {
        {20, 0, 0, true, true},    {20, 4, 4, true, true},    {20, 0, 16, true, false},
        {20, 4, 16, true, false},  {16, 4, 16, true, false},  {32, 16, 32, true, false},
        {20, 4, 0, false, false},  {20, 4, 5, false, false},  {20, 4, 20, false, false},
        {15, 4, 16, false, false}, {20, 4, 32, false, false}, {20, 4, UINT32_MAX, false, false},
        {20, 16, 4, false, false},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        bool is_recurrent = i % 2,
             is_fine = is_recurrent ? cases[i / 2].is_fine : cases[i / 2].is_fine_without;
        struct desk desk;
        struct weft_errmsg why = {""};
        open_desk(&desk, is_recurrent);
        if (is_recurrent) set_four(&desk);
        if (is_recurrent) desk.slots.kept_tokens[2] = cases[i / 2].n_cached;
        desk.states[0] = (struct weft_step_state){WEFT_STATE_LOAD, 0, 2};
        desk.plan.n_states = is_recurrent && cases[i / 2].n_cached > 0;
        desk.start.n_tokens = desk.start.n_prompt = cases[i / 2].n_tokens;
        desk.start.n_cached = cases[i / 2].n_cached;
        desk.start.n_written = cases[i / 2].n_written;
        desk.grant.n_blocks = 2;
        desk.row.n_tokens = 1;
        weft_err err = wefti_plan_check(&desk.slots, &desk.plan, 0, false, &why);
        if (err != (is_fine ? WEFT_OK : WEFT_E_PROTO)) fail_msg("%zu: %s", i, why.text);
        if (err) assert_non_null(strstr(why.text, "written"));
        wefti_slots_fini(&desk.slots);
    }
}

/* What one gets from another that the plan starts is what that one got. */
static void states_go_on_from_start_to_start(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct desk desk;
        struct weft_errmsg why = {""};
        open_desk(&desk, true);
        set_four(&desk);
        struct weft_step_start starts[2] = {desk.start, desk.start};
        struct weft_step_release release = {.slot = 1, .gen = 1};
        starts[1].slot = 1;
        starts[1].gen = 2;
        desk.plan.starts = starts;
        desk.plan.n_starts = 2;
        desk.plan.releases = &release;
        desk.plan.n_releases = 1;
        desk.states[i] = (struct weft_step_state){WEFT_STATE_LOAD, 0, 2};
        desk.states[!i] = (struct weft_step_state){WEFT_STATE_FORK, 1, 0};
        desk.plan.n_states = 2;
        weft_err err = wefti_plan_check(&desk.slots, &desk.plan, 0, false, &why);
        if (err != (i ? WEFT_E_PROTO : WEFT_OK)) fail_msg("%d: %s", i, why.text);
        wefti_slots_fini(&desk.slots);
    }
}

static void where_no_layer_has_one_none_moves(void **state) {
    (void)state;
    struct desk desk;
    struct weft_errmsg why = {""};
    open_desk(&desk, false);
    desk.plan.n_states = 1;
    assert_int_equal(wefti_plan_check(&desk.slots, &desk.plan, 0, true, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "recurrent"));
    wefti_slots_fini(&desk.slots);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_needs_another_state_is_refused),
        cmocka_unit_test(what_is_written_is_cached_or_whole_blocks),
        cmocka_unit_test(a_start_gets_the_state_of_its_cached_tokens),
        cmocka_unit_test(states_go_on_from_start_to_start),
        cmocka_unit_test(where_no_layer_has_one_none_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
