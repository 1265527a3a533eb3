#include "harness/eng_group.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

#include "base/check.h"
#include "harness/eng_drive.h"

weft_coll *group_coll(uint32_t n_ranks) {
    int fd;
    weft_coll *coll;
    assert_int_equal(weft_coll_create(n_ranks, &fd, NULL), WEFT_OK);
    assert_int_equal(weft_coll_open(fd, 60 * 1000, &coll, NULL), WEFT_OK);
    (void)close(fd);
    return coll;
}

void group_open(struct eng_group *group, const char *path, struct weft_eng_options options,
                uint32_t n_ranks) {
    *group = (struct eng_group){.n_ranks = n_ranks};
    if (n_ranks > 1) group->coll = group_coll(n_ranks);
    options.n_ranks = n_ranks;
    options.coll = group->coll;
    for (options.rank = 0; options.rank < n_ranks; options.rank++)
        group->engs[options.rank] = drive_open(path, &options);
}

void group_close(struct eng_group *group) {
    for (uint32_t i = 0; i < group->n_ranks; i++)
        weft_eng_free(group->engs[i]);
    weft_coll_close(group->coll);
}

struct logits_job {
    weft_eng *eng;
    const uint32_t *tokens;
    uint32_t n_tokens;
    void (*on_row)(void *ctx, uint32_t pos, const float *logits);
    void *ctx;
    weft_err err;
    struct weft_errmsg why;
};

static void *logits_main(void *arg) {
    struct logits_job *job = arg;
    job->err =
        weft_eng_logits(job->eng, job->tokens, job->n_tokens, job->on_row, job->ctx, &job->why);
    return NULL;
}

static void others_are_not_called(void *ctx, uint32_t pos, const float *logits) {
    (void)ctx;
    (void)pos;
    (void)logits;
    WEFT_ASSERT(!"a rank that is not the first one gave logits");
}

void group_logits(const struct eng_group *group, const uint32_t *tokens, uint32_t n_tokens,
                  void (*on_row)(void *ctx, uint32_t pos, const float *logits), void *ctx) {
    struct logits_job jobs[WEFT_COLL_RANKS_MAX];
    pthread_t threads[WEFT_COLL_RANKS_MAX];
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        jobs[i] = (struct logits_job){.eng = group->engs[i],
                                      .tokens = tokens,
                                      .n_tokens = n_tokens,
                                      .on_row = i == 0 ? on_row : others_are_not_called,
                                      .ctx = ctx};
        assert_int_equal(pthread_create(&threads[i], NULL, logits_main, &jobs[i]), 0);
    }
    for (uint32_t i = 0; i < group->n_ranks; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = 0; i < group->n_ranks; i++)
        if (jobs[i].err) fail_msg("rank %u: %s", i, jobs[i].why.text);
}

void *group_step_main(void *arg) {
    struct group_step *step = arg;
    step->err = weft_eng_step(step->eng, step->plan, &step->result, &step->why);
    return NULL;
}

void group_step(const struct eng_group *group, const struct weft_step_plan *plan,
                struct group_step steps[WEFT_COLL_RANKS_MAX]) {
    pthread_t threads[WEFT_COLL_RANKS_MAX];
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        steps[i] = (struct group_step){.eng = group->engs[i], .plan = plan};
        assert_int_equal(pthread_create(&threads[i], NULL, group_step_main, &steps[i]), 0);
    }
    for (uint32_t i = 0; i < group->n_ranks; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}
