#include "unit/engine_fixtures.h"

#include <string.h>

#include "base/log.h"
#include "base/rand.h"
#include "harness/eng_drive.h"

bool engine_short_run;

bool engine_test_begin(const char *name, int argc, char **argv) {
    if (drive_isa_missing()) return false;
    engine_short_run = argc > 1 && strcmp(argv[1], "short") == 0;
    weft_log_init(name, WEFT_LOG_ERROR, false);
    return true;
}

static void init_request(struct engine_request *request, uint32_t n_prompt, uint32_t n_vocab,
                         uint64_t *rng) {
    memset(request, 0, sizeof *request);
    weft_sampling_init(&request->sampling);
    request->n_prompt = n_prompt;
    request->sampling.max_tokens = 8 + weft_rand_below(rng, 8);
    request->sampling.seed = weft_rand_next(rng);
    for (uint32_t i = 0; i < n_prompt; i++) {
        request->prompt[i] = weft_rand_below(rng, n_vocab);
    }
}

void engine_make_requests(struct engine_request requests[ENGINE_REQUESTS], uint32_t n_vocab,
                          uint64_t *rng) {
    static const uint32_t lengths[ENGINE_REQUESTS] = {1, 5, 17, 33, 16, 40, 64, 200, 130};
    for (uint32_t i = 0; i < ENGINE_REQUESTS; i++) {
        init_request(&requests[i], lengths[i], n_vocab, rng);
    }
    requests[1].sampling.temperature = 1.0f;
    requests[2].sampling.temperature = 0.8f;
    requests[2].sampling.top_p = 0.9f;
    requests[2].sampling.top_k = 40;
    requests[2].sampling.n_logprobs = 3;
    requests[3].sampling.temperature = 0.7f;
    requests[3].sampling.repetition_penalty = 1.2f;
    requests[3].sampling.frequency_penalty = 0.3f;
    requests[3].sampling.presence_penalty = 0.2f;
    requests[3].sampling.n_logprobs = ENGINE_TOP_MAX;
    requests[4].sampling.temperature = 1.5f;
    requests[4].sampling.min_p = 0.02f;
    requests[4].sampling.n_logprobs = 0;
    requests[4].bias[0] = (struct weft_logit_bias){3, 2.5f};
    requests[4].bias[1] = (struct weft_logit_bias){n_vocab / 2, -50.0f};
    requests[4].sampling.bias = requests[4].bias;
    requests[4].sampling.n_bias = 2;
    requests[5].sampling.n_prompt_logprobs = 3;
    requests[5].sampling.max_tokens = 0;
    requests[6].sampling.n_prompt_logprobs = 2;
    requests[6].sampling.n_logprobs = 1;
    requests[6].sampling.repetition_penalty = 1.1f;
    requests[8].sampling.temperature = 2.0f;
    requests[8].sampling.min_tokens = 4;
    for (uint32_t i = 0; i < 4; i++) {
        requests[8].stop_tokens[i] = weft_rand_below(rng, n_vocab);
    }
    requests[7].sampling.temperature = 1.5f;
    requests[7].sampling.min_tokens = 5;
    requests[7].sampling.masked_tokens = requests[8].stop_tokens;
    requests[7].sampling.n_masked_tokens = 4;
    requests[8].sampling.stop_tokens = requests[8].stop_tokens;
    requests[8].sampling.n_stop_tokens = 4;
}

weft_eng *engine_open_small(const char *model, enum weft_eng_act act, enum weft_eng_kv kv,
                            uint32_t n_threads, uint32_t block_size) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.activations = act;
    options.kv_dtype = kv;
    options.n_threads = n_threads;
    options.block_size = block_size;
    options.max_seqs = ENGINE_REQUESTS;
    options.max_batched_tokens = 256;
    options.max_model_len = 300;
    options.kv_memory_bytes = 24u << 20;
    return drive_open(model[0] == '/' ? model : drive_fixture(model), &options);
}

uint32_t engine_float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
