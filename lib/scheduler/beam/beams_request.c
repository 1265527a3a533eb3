/* How a request becomes a beam search, and how it ends before that is over. */
#include <stdlib.h>

#include "base/minmax.h"
#include "beam/beams.h"

uint32_t wefti_sched_n_seqs(const struct weft_submit *submit) {
    return weft_max_u32(submit->n_choices, submit->sampling.beam_width);
}

/* What the router has of a search is kept aside: it begins anew. */
static void forget_outputs(struct request *req) {
    struct beams *beams = req->beams;
    for (uint32_t i = 0; i < req->n_choices; i++) {
        struct seq *seq = &req->seqs[i];
        beams->n_known[i] = seq->n_output;
        beams->is_known[i] = i < beams->n_told && seq->state == SEQ_DONE;
        free(seq->output);
        seq->output = NULL;
        seq->n_output = seq->output_cap = seq->n_computed_max = 0;
        seq->state = i == 0 ? SEQ_WAITING : SEQ_DONE;
    }
    req->n_live = req->n_waiting = 1;
}

/* The worker's own choice is greedy, as that costs least. */
static void ask_for_next(struct request *req) {
    req->sampling.beam_width = 0;
    req->sampling.temperature = 0.0f;
    req->sampling.n_logprobs = (int32_t)req->beams->n_wanted;
}

weft_err wefti_sched_beams_init(const weft_sched *sched, struct request *req, uint32_t n_told) {
    if (req->sampling.beam_width == 0) return WEFT_OK;
    struct beams *beams = calloc(1, sizeof *beams);
    req->beams = beams;
    if (!beams) return WEFT_E_NOMEM;
    beams->n_told = n_told;
    beams->sampling = req->sampling;
    beams->n_wanted = wefti_beam_n_wanted(&req->sampling, sched->options.n_vocab);
    uint32_t n_room = sched->options.max_model_len - req->n_prompt;
    const struct wefti_beam_options options = {
        .sampling = &beams->sampling,
        .n_prompt = req->n_prompt,
        .max_tokens = weft_min_u32(req->sampling.max_tokens, n_room),
        .n_vocab = sched->options.n_vocab,
    };
    beams->search = wefti_beam_new(&options);
    beams->tokens = calloc(req->n_choices, beams->n_wanted * sizeof *beams->tokens);
    beams->logprobs = calloc(req->n_choices, beams->n_wanted * sizeof *beams->logprobs);
    ask_for_next(req);
    forget_outputs(req);
    return beams->search && beams->tokens && beams->logprobs ? WEFT_OK : WEFT_E_NOMEM;
}

void wefti_sched_beams_free(struct beams *beams) {
    if (!beams) return;
    wefti_beam_free(beams->search);
    free(beams->tokens);
    free(beams->logprobs);
    free(beams);
}

uint32_t wefti_sched_beams_max_tokens(const struct request *req) {
    return req->beams->search->options.max_tokens;
}

bool wefti_sched_beams_end(weft_sched *sched, struct request *req, enum weft_end end) {
    const struct beams *beams = req->beams;
    if (wefti_sched_events_reserve(sched, beams->n_told)) return false;
    for (uint32_t i = 0; i < beams->n_told; i++) {
        if (!beams->is_known[i]) wefti_sched_event_push(sched, &req->seqs[i], NULL, end);
    }
    return true;
}

bool wefti_sched_beams_stand(const struct request *req) {
    if (!req->beams || req->n_waiting == 0) return false;
    for (uint32_t i = 0; i < req->n_choices; i++) {
        if (req->seqs[i].state == SEQ_RUNNING && !req->seqs[i].has_next) return false;
    }
    return true;
}
