/* What a thread does with the answers that a job has already. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "batches/run.h"
#include "codec/digest.h"

int wefti_batch_by_name(const void *a, const void *b) {
    const struct line_name *x = a, *y = b;
    if (x->name.hi != y->name.hi) return x->name.hi < y->name.hi ? -1 : 1;
    if (x->name.lo != y->name.lo) return x->name.lo < y->name.lo ? -1 : 1;
    return x->idx < y->idx ? -1 : x->idx > y->idx;
}

/* The line has had its answer. One of a line that is not there any more is nobody's. */
static void mark(struct batch_run *run, const struct weft_api_batch_answered *answered) {
    const struct line_name key = {
        .name = weft_digest_of("custom_id", answered->custom_id, answered->n_custom_id)};
    uint32_t below = 0, above = run->n_places;
    while (below < above) {
        uint32_t middle = below + (above - below) / 2;
        if (wefti_batch_by_name(&run->names[middle], &key) < 0)
            below = middle + 1;
        else
            above = middle;
    }
    if (below == run->n_places) return;
    const struct line_name *found = &run->names[below];
    struct line_place *place = &run->places[found->idx];
    if (found->name.hi != key.name.hi || found->name.lo != key.name.lo || place->is_taken) return;
    place->is_taken = true;
    run->n_answers[answered->status == 200 ? ANSWERS_OUTPUT : ANSWERS_ERROR]++;
}

/* Reads what is there; *end_out is where the answers end. */
static weft_err read_answers(struct batch_run *run, FILE *in, uint64_t *end_out,
                             struct weft_errmsg *why) {
    struct weft_api_batch_answered answered;
    char *text = NULL;
    size_t cap = 0;
    ssize_t n;
    uint32_t n_lines = 0;
    bool is_fair = true;
    rewind(in);
    while (is_fair && (n = getline(&text, &cap, in)) > 0) {
        struct weft_str line = {text, (size_t)n};
        bool is_whole = text[n - 1] == '\n';
        n_lines++;
        is_fair = is_whole ? weft_api_batch_answer_read(line, &answered)
                           : weft_api_batch_begins_answer(line);
        if (!is_fair || !is_whole) break;
        mark(run, &answered);
        *end_out += (uint64_t)n;
    }
    free(text);
    if (ferror(in)) return weft_err_set(why, WEFT_E_IO, "--output cannot be read");
    if (is_fair) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO,
                        "--output: line %u is no answer of a batch: the file is left as it is",
                        n_lines);
}

weft_err wefti_batch_resume_in_thread(struct batch_run *run, struct weft_errmsg *why) {
    uint64_t end = 0;
    for (int i = 0; i < N_ANSWERS; i++) {
        (void)snprintf(run->paths[i], sizeof run->paths[i], "--output");
        run->fds[i] = fcntl(run->job->output_fd, F_DUPFD_CLOEXEC, 0);
        if (run->fds[i] < 0) return wefti_disk_err("cannot use", run->paths[i], why);
    }
    int fd = fcntl(run->job->output_fd, F_DUPFD_CLOEXEC, 0);
    FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!in && fd >= 0) (void)close(fd);
    if (!in) return weft_err_set(why, WEFT_E_NOMEM, "no memory to read answers");
    weft_err err = read_answers(run, in, &end, why);
    (void)fclose(in);
    if (err) return err;
    run->n_bytes[ANSWERS_OUTPUT] = end;
    if (ftruncate(run->job->output_fd, (off_t)end) == 0) return WEFT_OK;
    return wefti_disk_err("cannot cut", "--output", why);
}
