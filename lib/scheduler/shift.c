/* Sequences that go on beyond the model's length (context_shift).
 *
 * One that comes to it drops half of what is behind its first n_keep tokens, and starts anew with the rest,
 * as one that was preempted does: what is left is computed as a text of its own. So nothing but tokens tells
 * what it says next. It shares cached blocks like any other, and the same comes of it wherever a worker or a
 * scheduler was lost: how many tokens it dropped follows from how many it has.
 *
 *     n_keep     dropped before      half of these     stays
 *     [####|xxxxxxxxxxxxxxxxxxxx|------------------|##################]
 *           n_dropped tokens                                          length
 *
 * The alternative is to turn the keys that stay to their new places (RoPE), which takes no time. They then
 * are those of tokens that saw others, so somebody who lost them could not have them again but by all that
 * went before. Computing costs a token of a prompt for each token said: a fraction of what saying it does. */
#include "scheduler_internal.h"

#include <string.h>

#include "base/check.h"
#include "base/minmax.h"

#define NEVER_KEPT 4u /* llama.cpp's: so much of the length is left to move */

static uint32_t n_keep_of(const weft_sched *sched, const struct request *req) {
    uint32_t len = sched->options.max_model_len;
    return weft_min_u32(req->n_keep, len - weft_min_u32(len, NEVER_KEPT));
}

uint32_t wefti_sched_seq_prompt(const struct seq *seq) {
    uint32_t n_prompt = seq->req->n_prompt, n_kept = weft_min_u32(n_prompt, seq->req->n_keep);
    uint32_t n_behind = n_prompt - n_kept;
    return seq->n_dropped == 0 ? n_prompt
                               : n_kept + n_behind - weft_min_u32(n_behind, seq->n_dropped);
}

uint32_t wefti_sched_seq_token(const struct seq *seq, uint32_t pos) {
    const struct request *req = seq->req;
    uint32_t at = pos < req->n_keep ? pos : pos + seq->n_dropped;
    return at < req->n_prompt ? req->prompt[at] : seq->output[at - req->n_prompt];
}

/* Of prompt and output joined, from `begin` to `end`. */
static void copy_range(const struct seq *seq, uint32_t begin, uint32_t end, uint32_t *out) {
    uint32_t n_prompt = seq->req->n_prompt;
    uint32_t prompt_end = weft_min_u32(end, n_prompt), output_begin = weft_max_u32(begin, n_prompt);
    if (begin < prompt_end)
        memcpy(out, seq->req->prompt + begin, (prompt_end - begin) * sizeof *out);
    if (output_begin < end)
        memcpy(out + (output_begin - begin), seq->output + (output_begin - n_prompt),
               (end - output_begin) * sizeof *out);
}

void wefti_sched_seq_copy_tokens(const struct seq *seq, uint32_t *out) {
    uint32_t n_before = seq->n_dropped > 0 ? seq->req->n_keep : 0;
    copy_range(seq, 0, n_before, out);
    copy_range(seq, n_before + seq->n_dropped, seq->req->n_prompt + seq->n_output, out + n_before);
}

bool wefti_sched_seq_outgrows(const struct seq *seq, uint32_t n_output) {
    return seq->req->shifts && n_output < seq->req->sampling.max_tokens;
}

/* Each time that it comes to the length it drops the same number. (A prompt alone may have that length, and
 * then wants no output.) */
void wefti_sched_seq_drop_tokens(const weft_sched *sched, struct seq *seq) {
    uint32_t len = sched->options.max_model_len, n_all = seq->req->n_prompt + seq->n_output;
    uint32_t n_each = (len - n_keep_of(sched, seq->req)) / 2;
    seq->n_dropped = 0;
    if (!seq->req->shifts || seq->n_output == 0 || n_all < len) return;
    seq->n_dropped = weft_div_up_u32(n_all - (len - 1), n_each) * n_each;
    WEFT_ASSERT(wefti_sched_seq_known(seq) < len && wefti_sched_seq_known(seq) > seq->req->n_keep);
}

void wefti_sched_shift_begin(const weft_sched *sched, struct request *req) {
    req->n_keep = n_keep_of(sched, req);
    for (uint32_t i = 0; i < req->n_choices && req->shifts; i++) {
        struct seq *seq = &req->seqs[i];
        wefti_sched_seq_drop_tokens(sched, seq);
        if (seq->n_dropped > 0) seq->n_computed_max = wefti_sched_seq_known(seq) - 1;
    }
}

weft_err wefti_sched_shift_check(const weft_sched *sched, const struct weft_submit *submit,
                                 struct weft_errmsg *why) {
    uint32_t n_most = sched->history_cap - weft_min_u32(submit->n_prompt, sched->history_cap);
    if (!submit->shifts) return WEFT_OK;
    if (sched->options.is_recurrent)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the context of a model with recurrent layers is not shifted "
                            "(context_shift)");
    if (submit->sampling.beam_width > 0 || submit->pooling.kind != WEFT_POOLING_NONE)
        return weft_err_set(why, WEFT_E_INVAL, "neither beams nor values go on beyond a length");
    if (submit->sampling.max_tokens <= n_most) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL,
                        "a prompt of %u tokens may have %u more, if it goes on beyond the model's "
                        "length, got %u",
                        submit->n_prompt, n_most, submit->sampling.max_tokens);
}
