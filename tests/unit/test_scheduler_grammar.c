/* Requests with a grammar start when the worker has compiled it; nobody waits for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "unit/sched_bench.h"

enum { PATIENCE_US = 60000000, ANNOUNCED_MAX = 4 };

static int make_bench(void **state) {
    struct weft_sched_options options = bench_options();
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    bench_free(*state);
    return 0;
}

static void submit(struct bench *bench, uint64_t id, const char *regex) {
    struct weft_submit submit = bench_request(bench, id, 10, 5);
    submit.sampling.grammar.kind = WEFT_GRAMMAR_REGEX;
    submit.sampling.grammar.text = regex;
    submit.sampling.grammar.n_bytes = (uint32_t)strlen(regex);
    bench_take(bench, &submit);
}

/* The number under which the next grammar is announced; 0: there is none. */
static uint64_t next(struct bench *bench, const char *regex) {
    const struct weft_grammar *grammar = NULL;
    uint64_t id = 0;
    if (!weft_sched_next_grammar(bench->sched, bench->now_us, &id, &grammar)) return 0;
    assert_int_not_equal(id, 0);
    if (regex) assert_memory_equal(grammar->text, regex, strlen(regex) + 1);
    return id;
}

static void it_starts_when_its_grammar_is_compiled(void **state) {
    struct bench *bench = *state;
    submit(bench, 1, "a+");
    bench_submit(bench, 2, 10, 3);
    assert_int_equal(next(bench, NULL), 0); /* its turn has not come */
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(plan->n_starts, 1); /* the other one's: it need not wait */
    uint64_t id = next(bench, "a+");
    assert_int_equal(next(bench, NULL), 0);                   /* once */
    weft_sched_compiled(bench->sched, bench->now_us, id + 1); /* of nobody */
    while (bench_step(bench))
        continue;
    assert_int_equal(bench_end(bench, 2, 0), WEFT_END_LENGTH);
    assert_false(weft_sched_idle(bench->sched));
    assert_int_equal(bench_stats(bench).n_waiting, 1);
    weft_sched_compiled(bench->sched, bench->now_us, id);
    assert_int_equal(bench_step(bench)->n_starts, 1);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 5);
}

static void all_its_choices_start_then(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 10, 5);
    submit.n_choices = 3;
    submit.sampling.grammar.kind = WEFT_GRAMMAR_JSON_OBJECT;
    bench_take(bench, &submit);
    assert_null(bench_plan(bench));
    weft_sched_compiled(bench->sched, bench->now_us, next(bench, NULL));
    bench_run_until_idle(bench, true);
    assert_int_equal(next(bench, NULL), 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(bench_end(bench, 1, i), WEFT_END_LENGTH);
}

static void another_worker_is_told_anew(void **state) {
    struct bench *bench = *state;
    submit(bench, 1, "a+");
    submit(bench, 2, "b+");
    assert_null(bench_plan(bench));
    uint64_t first = next(bench, "a+"), second = next(bench, "b+");
    assert_int_not_equal(first, second);
    weft_sched_compiled(bench->sched, bench->now_us, first);
    assert_int_equal(bench_step(bench)->n_starts, 1);
    bench_lose_worker(bench);
    assert_null(bench_plan(bench)); /* neither may start */
    uint64_t third = next(bench, "a+"), fourth = next(bench, "b+");
    weft_sched_compiled(bench->sched, bench->now_us, second); /* of the worker that was lost */
    assert_null(bench_plan(bench));
    weft_sched_compiled(bench->sched, bench->now_us, fourth);
    weft_sched_compiled(bench->sched, bench->now_us, third);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 5);
    assert_int_equal(bench_n_tokens(bench, 2), 5);
}

static void who_leaves_is_forgotten(void **state) {
    struct bench *bench = *state;
    submit(bench, 1, "a+");
    submit(bench, 2, "b+");
    assert_null(bench_plan(bench));
    uint64_t first = next(bench, "a+");
    bench_cancel(bench, 1);
    bench_cancel(bench, 2); /* nobody was told of it */
    assert_int_equal(next(bench, NULL), 0);
    assert_true(weft_sched_idle(bench->sched));
    weft_sched_compiled(bench->sched, bench->now_us, first);
    assert_null(bench_plan(bench));
}

static void a_worker_that_says_nothing_gets_it_in_the_end(void **state) {
    struct bench *bench = *state;
    submit(bench, 1, "a+");
    assert_null(bench_plan(bench));
    assert_int_not_equal(next(bench, "a+"), 0);
    bench->now_us += PATIENCE_US - 1;
    assert_null(bench_plan(bench));
    bench->now_us += 1;
    assert_non_null(bench_plan(bench));
}

static void short_ones_come_first(void **state) {
    struct bench *bench = *state;
    submit(bench, 1, "a+b+c+");
    submit(bench, 2, "a+b+");
    submit(bench, 3, "c+");
    assert_null(bench_plan(bench));
    assert_int_not_equal(next(bench, "c+"), 0);
    assert_int_not_equal(next(bench, "a+b+"), 0);
    assert_int_not_equal(next(bench, "a+b+c+"), 0);
}

static void few_are_announced_at_a_time(void **state) {
    struct bench *bench = *state;
    uint64_t ids[ANNOUNCED_MAX];
    for (uint32_t i = 0; i < ANNOUNCED_MAX + 1; i++)
        submit(bench, 1 + i, "a+");
    assert_null(bench_plan(bench)); /* none of them holds a place */
    for (uint32_t i = 0; i < ANNOUNCED_MAX; i++)
        ids[i] = next(bench, "a+");
    assert_int_not_equal(ids[ANNOUNCED_MAX - 1], 0);
    assert_int_equal(next(bench, NULL), 0);
    bench_cancel(bench, 1); /* the worker works on it all the same */
    assert_int_equal(next(bench, NULL), 0);
    weft_sched_compiled(bench->sched, bench->now_us, ids[3]);
    assert_int_not_equal(next(bench, "a+"), 0);
    assert_int_equal(bench_step(bench)->n_starts, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(it_starts_when_its_grammar_is_compiled),
        CASE(all_its_choices_start_then),
        CASE(another_worker_is_told_anew),
        CASE(who_leaves_is_forgotten),
        CASE(a_worker_that_says_nothing_gets_it_in_the_end),
        CASE(few_are_announced_at_a_time),
        CASE(short_ones_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
