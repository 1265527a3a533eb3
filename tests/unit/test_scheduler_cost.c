/* The model of a step's time, against machines whose times are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "scheduler/step_cost.h"

/* -------------------------------------------------------------------------------- machines --- */

typedef double machine(const struct weft_sched_work *work); /* us */

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* TinyLlama's shape in Q8_0 on two cores: 37 ms for one row, 44 for 8, 65 for 16, 2.3 each later. */
static double measured(const struct weft_sched_work *w) {
    return larger(37000, 28000 + 2330.0 * w->n_tokens) + 0.4 * (double)w->n_seen;
}

static double compute_bound(const struct weft_sched_work *w) {
    return 200 + 900.0 * w->n_tokens;
}

/* Reading the weights takes as long as computing 17 tokens. */
static double memory_bound(const struct weft_sched_work *w) {
    return larger(25500, 1500.0 * w->n_tokens);
}

/* The first rows each bring experts of their own, the later ones find them there. */
static double experts(const struct weft_sched_work *w) {
    double n_few = w->n_tokens < 9 ? w->n_tokens : 9;
    return 8000 + 3000 * n_few + 600.0 * (w->n_tokens - n_few);
}

static double long_contexts(const struct weft_sched_work *w) {
    return 5000 + 300.0 * w->n_tokens + 1.5 * (double)w->n_seen;
}

static double large_vocabulary(const struct weft_sched_work *w) {
    return 4000 + 200.0 * w->n_tokens + 1200.0 * w->n_logits;
}

static double tiny(const struct weft_sched_work *w) {
    return 60 + 9.0 * w->n_tokens;
}

static machine *const machines[] = {measured,      compute_bound,    memory_bound, experts,
                                    long_contexts, large_vocabulary, tiny};
#define N_MACHINES (sizeof machines / sizeof machines[0])

/* ------------------------------------------------------------------------------------ runs --- */

struct run {
    struct weft_sched_cost cost;
    uint64_t rand;
    machine *of;
    double speed, noise; /* times slower; the widest deviation, relative */
    double error;        /* mean relative error of the predictions since it was set to 0 */
    uint32_t n;
};

static struct run new_run(machine *of) {
    return (struct run){.of = of, .speed = 1, .rand = 7};
}

static struct weft_sched_work streams(uint32_t n, uint32_t context) {
    struct weft_sched_work work = {0};
    for (uint32_t i = 0; i < n; i++)
        weft_sched_work_add(&work, context, 1, 1);
    return work;
}

static double between(struct run *run, double least, double most) {
    return least + (most - least) * weft_rand_unit(&run->rand);
}

static void take(struct run *run, const struct weft_sched_work *work) {
    double us = run->of(work) * run->speed * between(run, 1 - run->noise, 1 + run->noise);
    double predicted = weft_sched_cost_predict(&run->cost, work);
    run->error += (larger(us, predicted) - (us < predicted ? us : predicted)) / us;
    run->n++;
    weft_sched_cost_learn(&run->cost, work, (uint32_t)us);
}

/* What a server sees: streams come and go, and now and then a prompt is computed beside them. */
static void serve(struct run *run, uint32_t n_steps) {
    uint32_t n_streams = 0, context = 0, left = 0, done = 0;
    run->error = 0;
    run->n = 0;
    for (uint32_t i = 0; i < n_steps; i++) {
        if (i % 12 == 0) {
            n_streams = weft_rand_below(&run->rand, 24);
            context = 50 + weft_rand_below(&run->rand, 3000);
        }
        if (i % 8 == 0) {
            left = 64 + weft_rand_below(&run->rand, 200);
            done = 0;
        }
        struct weft_sched_work work = streams(n_streams, context++);
        uint32_t chunk = 4 + weft_rand_below(&run->rand, 60);
        if (chunk > left || work.n_tokens == 0) chunk = left ? left : 16;
        if (left) weft_sched_work_add(&work, done, chunk, chunk == left);
        if (left) left -= chunk, done += chunk;
        if (work.n_tokens) take(run, &work);
    }
    run->error /= run->n;
}

static void assert_error_below(const struct run *run, double most) {
    if (run->error >= most) fail_msg("the error is %.4f, not below %.4f", run->error, most);
}

/* ----------------------------------------------------------------------------------- tests --- */

static void a_new_model_knows_nothing(void **state) {
    (void)state;
    struct weft_sched_cost cost = {0};
    struct weft_sched_work work = streams(8, 100);
    assert_int_equal(weft_sched_cost_predict(&cost, &work), 0);
    weft_sched_cost_learn(&cost, &work, 40000);
    assert_in_range(weft_sched_cost_predict(&cost, &work), 36000, 44000);
    struct weft_sched_work nothing = {0};
    struct weft_sched_cost before = cost;
    weft_sched_cost_learn(&cost, &nothing, 5);
    assert_memory_equal(&cost, &before, sizeof cost);
}

static void a_few_dozen_steps_teach_any_machine(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MACHINES; i++) {
        struct run run = new_run(machines[i]);
        serve(&run, 48);
        serve(&run, 48);
        assert_error_below(&run, 0.08);
        serve(&run, 200);
        serve(&run, 200);
        assert_error_below(&run, 0.06);
    }
}

static void noise_and_stalls_do_not_mislead_it(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MACHINES; i++) {
        struct run run = new_run(machines[i]);
        run.noise = 0.1; /* a mean deviation of 0.05 */
        serve(&run, 100);
        double error = 0;
        for (uint32_t k = 0; k < 20; k++) {
            struct weft_sched_work work = streams(8, 500);
            uint32_t before = weft_sched_cost_predict(&run.cost, &work);
            weft_sched_cost_learn(&run.cost, &work, UINT32_MAX); /* it stood still for an hour */
            assert_in_range(weft_sched_cost_predict(&run.cost, &work), before, before * 5 / 4);
            serve(&run, 20);
            error += run.error / 20;
        }
        run.error = error;
        assert_error_below(&run, 0.1);
    }
}

/* It reads the model's file, say. */
static void a_slow_first_step_misleads_for_a_few_steps_only(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MACHINES; i++) {
        struct run run = new_run(machines[i]);
        run.noise = 0.05;
        struct weft_sched_work work = {0};
        weft_sched_work_add(&work, 0, 32, 1);
        run.speed = 100;
        take(&run, &work);
        run.speed = 1;
        take(&run, &work);
        uint32_t us = (uint32_t)machines[i](&work);
        assert_in_range(weft_sched_cost_predict(&run.cost, &work), us * 8 / 10, us * 13 / 10);
        serve(&run, 48);
        serve(&run, 48);
        assert_error_below(&run, 0.12);
    }
}

static void a_machine_that_becomes_slower_is_noticed(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MACHINES; i++) {
        struct run run = new_run(machines[i]);
        run.noise = 0.05;
        serve(&run, 100);
        run.speed = 2;
        serve(&run, 24);
        serve(&run, 48);
        assert_error_below(&run, 0.1);
        run.speed = 1;
        serve(&run, 24);
        serve(&run, 48);
        assert_error_below(&run, 0.1);
    }
}

/* Decoding alone tells nothing of prompts, but that the machine is slower now. */
static void what_prompts_cost_is_not_forgotten_while_none_come(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MACHINES; i++) {
        struct run run = new_run(machines[i]);
        run.noise = 0.05;
        serve(&run, 200);
        for (int slow = 0; slow < 2; slow++) {
            if (slow) run.speed = 1.5;
            for (uint32_t k = 0; k < 3000; k++) {
                struct weft_sched_work work = streams(8, 200 + k % 300);
                take(&run, &work);
            }
            struct weft_sched_work mixed = streams(8, 300);
            weft_sched_work_add(&mixed, 100, 24, 0);
            double ratio =
                weft_sched_cost_predict(&run.cost, &mixed) / (run.of(&mixed) * run.speed);
            assert_true(ratio > 0.7 && ratio < 1.35);
        }
    }
}

static void any_numbers_keep_it_within_bounds(void **state) {
    (void)state;
    struct weft_sched_cost cost = {0};
    uint64_t rand = 3;
    for (uint32_t i = 0; i < 20000; i++) {
        struct weft_sched_work work = {.n_tokens = (uint32_t)(weft_rand_next(&rand) >> 47),
                                       .n_logits = (uint32_t)(weft_rand_next(&rand) >> 47),
                                       .n_seen =
                                           weft_rand_next(&rand) >> weft_rand_below(&rand, 64)};
        uint32_t us = (uint32_t)(weft_rand_next(&rand) >> (32 + weft_rand_below(&rand, 32)));
        weft_sched_cost_learn(&cost, &work, us);
        for (int k = 0; k < WEFT_SCHED_COST_TERMS; k++) {
            assert_true(cost.coef[k] >= 0 && cost.coef[k] < 1e12);
            assert_true(cost.cov[k][k] >= 0 && cost.cov[k][k] < 1e24);
        }
        assert_true(cost.error >= 0 && cost.error <= 1);
        assert_true(cost.margin >= 1 && cost.margin <= 2);
    }
}

static void the_error_it_tells_is_the_one_it_makes(void **state) {
    (void)state;
    struct run run = new_run(measured);
    run.noise = 0.2; /* a mean deviation of 0.1 */
    serve(&run, 400);
    assert_true(run.cost.error > 0.06 && run.cost.error < 0.15);
    run.noise = 0;
    serve(&run, 400);
    assert_true(run.cost.error < 0.05);
}

/* ------------------------------------------------------------------------------- deciding --- */

static uint32_t chunk(const struct run *run, uint32_t n_streams, uint32_t n_prompts,
                      uint32_t target_us, double *us_out) {
    struct weft_sched_work decode = streams(n_streams, 300);
    uint32_t bound = weft_sched_cost_bound(&run->cost, &decode, n_prompts, target_us);
    uint32_t n = weft_sched_cost_prompt_tokens(&run->cost, &decode, 500, bound);
    weft_sched_work_add(&decode, 500, n == UINT32_MAX ? 0 : n, 0);
    *us_out = run->of(&decode);
    return n;
}

static void a_step_stays_below_the_target(void **state) {
    (void)state;
    double us;
    for (size_t i = 0; i < N_MACHINES; i++) {
        struct run run = new_run(machines[i]);
        serve(&run, 200);
        struct weft_sched_work decode = streams(8, 300);
        double alone = run.of(&decode);
        for (uint32_t percent = 130; percent < 400; percent += 30) {
            (void)chunk(&run, 8, 1, (uint32_t)alone * percent / 100, &us);
            if (us > alone * percent / 100 * 1.1)
                fail_msg("machine %zu: %.0f of %.0f us, target %u %%", i, us, alone, percent);
        }
        assert_int_equal(chunk(&run, 8, 1, 0, &us), UINT32_MAX);
        assert_true(chunk(&run, 8, 1, 1, &us) >= 2); /* no target is so low that prompts starve */
    }
}

static void chunks_grow_with_the_target(void **state) {
    (void)state;
    struct run run = new_run(measured);
    serve(&run, 200);
    double us;
    uint32_t before = 0;
    for (uint32_t target = 1; target < 2000000; target += 997) {
        uint32_t n = chunk(&run, 8, 1, target, &us);
        assert_true(n >= before);
        before = n;
    }
    assert_int_equal(before, 2 * run.cost.tokens_max - 8); /* nothing larger was ever measured */
}

static void noise_is_left_room_below_a_target(void **state) {
    (void)state;
    double us;
    struct run quiet = new_run(measured), noisy = new_run(measured);
    noisy.noise = 0.15;
    serve(&quiet, 400);
    serve(&noisy, 400);
    assert_true(noisy.cost.margin > 1.05 && noisy.cost.margin < 1.25);
    assert_true(chunk(&noisy, 8, 1, 100000, &us) < chunk(&quiet, 8, 1, 100000, &us));
}

/* Two steps of a hundred take half as long again: too few for the margin that one step of twenty exceeds. */
static void rare_long_steps_are_left_room_too(void **state) {
    (void)state;
    double us;
    struct run even = new_run(measured), uneven = new_run(measured);
    serve(&even, 200);
    serve(&uneven, 200);
    for (uint32_t i = 0; i < 2000; i++) {
        struct weft_sched_work work = streams(8, 300);
        even.speed = 1;
        uneven.speed = i % 50 == 0 ? 1.5 : 1;
        take(&even, &work);
        take(&uneven, &work);
    }
    assert_true(uneven.cost.margin < 1.1);
    assert_true(uneven.cost.margin_rare > 1.3);
    assert_true(chunk(&uneven, 8, 1, 100000, &us) < chunk(&even, 8, 1, 100000, &us));
}

static void without_a_target_few_prompts_take_a_part_of_what_streams_take(void **state) {
    (void)state;
    double us;
    for (size_t i = 0; i < N_MACHINES; i++) {
        struct run run = new_run(machines[i]);
        serve(&run, 200);
        struct weft_sched_work decode = streams(8, 300);
        double alone = run.of(&decode);
        for (uint32_t n_prompts = 1; n_prompts <= 2; n_prompts++) {
            (void)chunk(&run, 8, n_prompts, WEFT_SCHED_ITL_AUTO, &us);
            assert_true(us < larger(1.5 * alone, 11000));
        }
    }
}

static void without_a_target_many_prompts_take_more(void **state) {
    (void)state;
    double us, before = 0;
    struct run run = new_run(measured);
    serve(&run, 200);
    for (uint32_t n_prompts = 2; n_prompts <= 8; n_prompts++) {
        (void)chunk(&run, 8, n_prompts, WEFT_SCHED_ITL_AUTO, &us);
        assert_true(us >= before && us < 110000);
        before = us;
    }
    assert_true(us > 85000);
    (void)chunk(&run, 0, 1, WEFT_SCHED_ITL_AUTO, &us);
    assert_true(us > 85000 && us < 110000); /* nobody waits but who may come yet */
}

/* Clients in a closed loop: each sends a prompt, reads its answer and sends the next. Prompts are
 * computed in the order in which they come. */
static double tokens_per_s(machine *of, uint32_t n_clients, uint32_t n_prompt, uint32_t n_output,
                           uint32_t target_us) {
    struct {
        uint32_t done; /* tokens */
        uint32_t turn; /* when its prompt came */
    } clients[64] = {{0}};
    assert_true(n_clients <= 64);
    struct run run = new_run(of);
    uint64_t us = 0, n_tokens = 0;
    uint32_t n_turns = 0;
    for (uint32_t i = 0; i < n_clients; i++)
        clients[i].turn = n_turns++;
    for (uint32_t step = 0; step < 6000; step++) {
        struct weft_sched_work work = {0};
        uint32_t n_prompts = 0, oldest = UINT32_MAX;
        for (uint32_t i = 0; i < n_clients; i++) {
            if (clients[i].done >= n_prompt) {
                weft_sched_work_add(&work, clients[i].done++, 1, 1);
                n_tokens += step >= 1000;
                continue;
            }
            n_prompts++;
            if (oldest == UINT32_MAX || clients[i].turn < clients[oldest].turn) oldest = i;
        }
        uint32_t bound = weft_sched_cost_bound(&run.cost, &work, n_prompts, target_us);
        uint32_t first = n_prompts ? clients[oldest].done : 0;
        uint32_t n = weft_sched_cost_prompt_tokens(&run.cost, &work, first, bound);
        while (n > 0 && oldest != UINT32_MAX) {
            uint32_t left = n_prompt - clients[oldest].done, given = n < left ? n : left;
            weft_sched_work_add(&work, clients[oldest].done, given, given == left);
            clients[oldest].done += given;
            n -= given;
            oldest = UINT32_MAX;
            for (uint32_t i = 0; i < n_clients; i++) {
                if (clients[i].done < n_prompt &&
                    (oldest == UINT32_MAX || clients[i].turn < clients[oldest].turn))
                    oldest = i;
            }
        }
        for (uint32_t i = 0; i < n_clients; i++) {
            if (clients[i].done < n_prompt + n_output) continue;
            clients[i].done = 0;
            clients[i].turn = n_turns++;
        }
        if (step >= 1000) us += (uint64_t)of(&work);
        take(&run, &work);
    }
    return (double)n_tokens * 1e6 / (double)us;
}

/* Beside steps of 100 ms whatever runs. */
static void automatic_steps_cost_little_throughput(void **state) {
    (void)state;
    static const uint32_t loads[][3] = {{16, 128, 64},  {4, 128, 64},  {16, 512, 16},
                                        {8, 1900, 200}, {32, 32, 200}, {1, 500, 50}};
    double sum = 0;
    uint32_t n = 0;
    for (size_t i = 0; i < N_MACHINES; i++) {
        for (size_t k = 0; k < sizeof loads / sizeof loads[0]; k++, n++) {
            const uint32_t *l = loads[k];
            double most = tokens_per_s(machines[i], l[0], l[1], l[2], 100000);
            double is = tokens_per_s(machines[i], l[0], l[1], l[2], WEFT_SCHED_ITL_AUTO);
            if (is < 0.8 * most)
                fail_msg("machine %zu, %u clients with %u in and %u out: %.1f tokens/s, not %.1f",
                         i, l[0], l[1], l[2], is, most);
            sum += is / most;
        }
    }
    assert_true(sum / n > 0.95);
}

/* A prompt alone, then streams alone, then the machine slows down and a prompt comes beside them: how
 * long steps with it are, on average, beside those without. */
static double ratio_beside(machine *of, double noise, double slower, uint64_t seed) {
    struct run run = new_run(of);
    run.rand = seed;
    run.noise = noise;
    uint32_t n;
    for (uint32_t done = 0; done < 1900; done += n) {
        struct weft_sched_work work = {0};
        uint32_t bound = weft_sched_cost_bound(&run.cost, &work, 1, WEFT_SCHED_ITL_AUTO);
        n = weft_sched_cost_prompt_tokens(&run.cost, &work, done, bound);
        weft_sched_work_add(&work, done, n, 0);
        take(&run, &work);
    }
    for (uint32_t i = 0; i < 300; i++) {
        if (i == 200) run.speed = slower;
        struct weft_sched_work work = streams(8, 16 + i);
        take(&run, &work);
    }
    double with = 0, without = 0;
    for (uint32_t i = 0, done = 0; done < 1900; i++) {
        struct weft_sched_work work = streams(8, 316 + i);
        if (i == 30) run.speed = slower * 1.5;
        without += of(&work);
        uint32_t bound = weft_sched_cost_bound(&run.cost, &work, 1, WEFT_SCHED_ITL_AUTO);
        n = weft_sched_cost_prompt_tokens(&run.cost, &work, done, bound);
        weft_sched_work_add(&work, done, n, 0);
        done += n;
        with += of(&work);
        take(&run, &work);
    }
    return with / without;
}

static void without_a_target_steps_keep_to_it_on_noisy_machines_that_slow_down(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MACHINES; i++) {
        if (machines[i] == tiny) continue; /* its gaps are below those that count */
        for (uint64_t seed = 1; seed < 9; seed++) {
            double steady = ratio_beside(machines[i], 0.1, 1, seed);
            double slowed = ratio_beside(machines[i], 0.25, 2, seed);
            if (steady > 1.5 || slowed > 1.6 || steady < 1.1 || slowed < 1.1)
                fail_msg("machine %zu, seed %d: %.2f, %.2f", i, (int)seed, steady, slowed);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_model_knows_nothing),
        cmocka_unit_test(a_few_dozen_steps_teach_any_machine),
        cmocka_unit_test(noise_and_stalls_do_not_mislead_it),
        cmocka_unit_test(a_slow_first_step_misleads_for_a_few_steps_only),
        cmocka_unit_test(a_machine_that_becomes_slower_is_noticed),
        cmocka_unit_test(what_prompts_cost_is_not_forgotten_while_none_come),
        cmocka_unit_test(any_numbers_keep_it_within_bounds),
        cmocka_unit_test(the_error_it_tells_is_the_one_it_makes),
        cmocka_unit_test(a_step_stays_below_the_target),
        cmocka_unit_test(chunks_grow_with_the_target),
        cmocka_unit_test(noise_is_left_room_below_a_target),
        cmocka_unit_test(rare_long_steps_are_left_room_too),
        cmocka_unit_test(without_a_target_few_prompts_take_a_part_of_what_streams_take),
        cmocka_unit_test(without_a_target_many_prompts_take_more),
        cmocka_unit_test(without_a_target_steps_keep_to_it_on_noisy_machines_that_slow_down),
        cmocka_unit_test(automatic_steps_cost_little_throughput),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
