/* Samplers on logits that are given: each call makes the scratch that an engine has per thread. */
#include "engine/engine.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "kernels/kernels.h"
#include "runtime/contrast.h"
#include "runtime/memory.h"
#include "sampler/chain.h"
#include "sampler/sampler.h"

/* One call's memory, and what it works on. */
struct room {
    const struct weft_kern_table *kern;
    struct wefti_chain_scratch chain;
    struct wefti_sampler_scratch scratch;
    struct wefti_sampler_input input;
    float *logits; /* a copy, which samplers may change */
    void *map;
    size_t map_bytes;
};

static void lay_out(struct room *room, struct wefti_memory_layout *layout,
                    const struct weft_eng_given *given) {
    room->scratch = wefti_sampler_scratch_reserve(layout, given->n_vocab);
    room->chain = wefti_chain_scratch_reserve(layout, given->n_vocab, given->n_tokens + 1);
    room->scratch.chain = &room->chain;
    room->logits = wefti_memory_reserve(layout, wefti_memory_stride(given->n_vocab), sizeof(float));
}

static weft_err check(const struct weft_eng_given *given, struct weft_errmsg *why) {
    bool has_finite = false;
    if (given->n_vocab == 0 || given->n_vocab > WEFT_VOCAB_MAX ||
        given->n_tokens > WEFT_CONTEXT_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "%u logits and %u tokens are out of range",
                            given->n_vocab, given->n_tokens);
    for (uint32_t i = 0; i < given->n_vocab; i++)
        has_finite |= isfinite(given->logits[i]);
    if (!has_finite) return weft_err_set(why, WEFT_E_INVAL, "no logit is a finite number");
    for (uint32_t i = 0; i < given->n_tokens; i++) {
        if (given->tokens[i] >= given->n_vocab)
            return weft_err_set(why, WEFT_E_INVAL, "token %u is outside the vocabulary of %u",
                                given->tokens[i], given->n_vocab);
    }
    return weft_sampling_check(given->sampling, given->n_vocab, why);
}

static weft_err open_room(struct room *room, const struct weft_eng_given *given,
                          struct weft_errmsg *why) {
    struct wefti_memory_layout layout = {0};
    *room = (struct room){.map = NULL};
    weft_err err = check(given, why);
    if (!err) err = weft_kern_select(&room->kern, why);
    if (err) return err;
    lay_out(room, &layout, given);
    room->map_bytes = layout.used;
    room->map = wefti_memory_map(room->map_bytes);
    if (!room->map)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory to sample from %u tokens",
                            given->n_vocab);
    layout = (struct wefti_memory_layout){.base = room->map};
    lay_out(room, &layout, given);
    memcpy(room->logits, given->logits, given->n_vocab * sizeof *room->logits);
    room->input = (struct wefti_sampler_input){
        .sampling = given->sampling,
        .tokens = given->tokens,
        .n_prompt = given->n_prompt,
        .n_known = given->n_tokens,
        .xtc_draw = given->xtc_draw,
    };
    return WEFT_OK;
}

static void close_room(struct room *room) {
    wefti_memory_unmap(room->map, room->map_bytes);
}

weft_err weft_eng_given_probabilities(const struct weft_eng_given *given, double *out,
                                      struct weft_errmsg *why) {
    struct room room;
    weft_err err = open_room(&room, given, why);
    if (!err)
        wefti_sampler_probabilities(room.kern, &room.input, room.logits, given->n_vocab,
                                    &room.scratch, out);
    close_room(&room);
    return err;
}

/* A chain of all tokens, as they are. */
static struct wefti_chain whole_chain(struct room *room, uint32_t n_vocab) {
    for (uint32_t i = 0; i < n_vocab; i++) {
        room->chain.x[i] = (double)room->logits[i];
        room->chain.ids[i] = i;
    }
    return (struct wefti_chain){.input = &room->input,
                                .scratch = &room->chain,
                                .counts = room->scratch.counts,
                                .logits = room->logits,
                                .n_vocab = n_vocab,
                                .n = n_vocab};
}

weft_err weft_eng_given_mirostat(const struct weft_eng_given *given, double mu, double draw,
                                 struct weft_eng_mirostat *out, struct weft_errmsg *why) {
    struct room room;
    *out = (struct weft_eng_mirostat){0};
    weft_err err = open_room(&room, given, why);
    if (!err) {
        struct wefti_chain chain = whole_chain(&room, given->n_vocab);
        struct wefti_mirostat drawn;
        uint32_t token = wefti_mirostat_draw(&chain, mu, draw, &drawn);
        *out = (struct weft_eng_mirostat){.s_hat = drawn.s_hat,
                                          .k = drawn.k,
                                          .n_kept = drawn.n_kept,
                                          .token = token,
                                          .p = drawn.p,
                                          .surprise = drawn.surprise,
                                          .mu = drawn.mu};
    }
    close_room(&room);
    return err;
}

/* ------------------------------------------------------------------------ contrastive search --- */

/* Of the k likeliest tokens, whose hidden states are given. */
static uint32_t score(struct wefti_chain *chain, struct wefti_contrast *contrast,
                      const struct weft_eng_contrastive *search, struct weft_eng_candidate *out) {
    uint32_t chosen = 0;
    for (uint32_t c = 0; c < search->n_context; c++)
        wefti_contrast_add(contrast, search->context + (size_t)c * search->n_dims);
    (void)wefti_chain_softmax(chain);
    (void)wefti_chain_rank(chain, 0.0);
    for (uint32_t i = 0; i < search->k; i++) {
        const float *hidden = search->candidates + (size_t)i * search->n_dims;
        uint32_t token = chain->scratch->rank[i];
        const struct wefti_contrast_candidate candidate = {token, chain->scratch->p[token],
                                                           wefti_contrast_cosine(contrast, hidden)};
        double own = wefti_contrast_score(&candidate, search->alpha);
        out[i] = (struct weft_eng_candidate){token, candidate.p, candidate.cosine, own};
        if (own > out[chosen].score) chosen = i;
    }
    return chosen;
}

weft_err weft_eng_given_contrastive(const struct weft_eng_given *given,
                                    const struct weft_eng_contrastive *search,
                                    struct weft_eng_candidate *out, uint32_t *chosen_out,
                                    struct weft_errmsg *why) {
    struct room room;
    *chosen_out = 0;
    WEFT_ASSERT(search->k > 0 && search->n_context > 0 && search->n_dims > 0);
    WEFT_ASSERT(search->k <= given->n_vocab);
    if (search->n_context > WEFT_CONTEXT_MAX || search->n_dims > WEFT_HIDDEN_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "%u hidden states of %u are out of range",
                            search->n_context, search->n_dims);
    weft_err err = open_room(&room, given, why);
    struct wefti_contrast *contrast =
        err ? NULL : wefti_contrast_new(search->n_context, search->n_dims);
    if (!err && !contrast)
        err = weft_err_set(why, WEFT_E_NOMEM, "no memory for %u hidden states of %u",
                           search->n_context, search->n_dims);
    if (!err) {
        struct wefti_chain chain = whole_chain(&room, given->n_vocab);
        *chosen_out = score(&chain, contrast, search, out);
    }
    wefti_contrast_free(contrast);
    close_room(&room);
    return err;
}
