#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside/api/call/honoured.h"
#include "inside/api/kinds/kind.h"
#include "inside/api/params/params.h"

#define CALL_COMPLETION (&wefti_api_kind_completion)
#define CALL_CHAT (&wefti_api_kind_chat)
#define CALL_LLAMA (&wefti_api_kind_llama)
#define CALL_TOKENIZE (&wefti_api_kind_tokenize)
#define CALL_DETOKENIZE (&wefti_api_kind_detokenize)
#define CALL_GENERATE (&wefti_api_kind_ollama_generate)
#define CALL_OLLAMA_CHAT (&wefti_api_kind_ollama_chat)

static const uint32_t eos[] = {90, 91};
static const char *const model_names[] = {"m", "also"};

static struct weft_api_limits limits(void) {
    struct weft_api_limits l = {.model_name = "m",
                                .model_names = model_names,
                                .n_model_names = 2,
                                .n_vocab = 100,
                                .max_model_len = 64,
                                .max_logprobs = 20,
                                .json_blanks = 2,
                                .json_digits = 9,
                                .max_prompts = WEFT_API_PROMPTS_MAX,
                                .max_logprob_bytes = 1 << 20,
                                .eos = eos,
                                .n_eos = 2};
    l.defaults = (struct weft_gen_defaults){NAN, NAN, NAN, NAN, -1, -1};
    return l;
}

/* Parses; on success also fits, with prompts given as text taken to be `n_ids` tokens long. */
static bool parse(const char *body, const weft_api_kind *kind, size_t n_ids, struct params *params,
                  struct weft_api_error *error) {
    struct weft_api_limits l = limits();
    memset(error, 0, sizeof *error);
    json_t *json = json_loads(body, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!wefti_api_params_parse(json, kind, &l, params, error)) return false;
    for (uint32_t i = 0; i < params->n_prompts; i++) {
        if (!params->prompts[i].ids) params->prompts[i].n_ids = n_ids;
    }
    wefti_api_params_drop_json(params);
    return !kind->generates || wefti_api_params_fit(params, kind, &l, error);
}

struct row {
    const weft_api_kind *kind;
    const char *body;
    int status;        /* 0: fine */
    const char *param; /* of the error */
};

#define CHAT(fields) "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]," fields "}"

static const struct row rows[] = {
    {CALL_COMPLETION, "{\"prompt\":\"a\"}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":[\"a\",\"b\"],\"n\":3}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":[1,2,99]}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":[[1],[2,3]]}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"model\":\"m\",\"made_up\":{\"x\":[]}}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"model\":\"m\\u0000zz\"}", 404, "model"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"user\\u0000\",\"content\":\"a\"}]}", 400,
     "messages[0].role"},
    {CALL_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\\u0000\",\"text\":\"a\"}]}]}",
     400, "messages[0].content"},
    {CALL_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tool_choice\":\"none\\u0000\"}", 400,
     "tool_choice"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"temperature\":null,\"stop\":null,\"n\":null}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"response_format\":{\"type\":\"text\"},\"tools\":[]}", 0,
     ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"best_of\":2,\"n\":2}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"echo\":true,\"max_tokens\":0,\"logprobs\":0}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":{\"5\":-100,\"99\":1.5}}", 0, ""},
    {CALL_COMPLETION,
     "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"seed\":-9223372036854775808}", 0, ""},
    {CALL_COMPLETION, "[]", 400, ""},
    {CALL_COMPLETION, "3", 400, ""},
    {CALL_COMPLETION, "{}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":null}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":7}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":{}}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":[{\"prompt_embeds\":\"\"}]}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":[[{}]]}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"prompt_embeds\":\"AAAA\"}", 400, "prompt_embeds"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"prompt_embeds\":[]}", 0, ""},
    {CALL_CHAT, CHAT("\"multi_modal_data\":{\"image\":\"x\"}"), 400, "multi_modal_data"},
    {CALL_COMPLETION, "{\"prompt\":[]}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":[[]]}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":[1,\"a\"]}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":[\"a\",[1]]}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":[\"a\",1]}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":[100]}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":[-1]}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":[1.0]}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":[true]}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"model\":\"other\"}", 404, "model"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"model\":1}", 400, "model"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"temperature\":\"1\"}", 400, "temperature"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"temperature\":-0.1}", 400, "temperature"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"temperature\":1e300}", 400, "temperature"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"top_p\":0}", 400, "top_p"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"top_p\":1.01}", 400, "top_p"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"top_k\":-2}", 400, "top_k"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"top_k\":1.5}", 400, "top_k"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"min_p\":2}", 400, "min_p"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"repetition_penalty\":0}", 400, "repetition_penalty"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"presence_penalty\":3}", 400, "presence_penalty"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"frequency_penalty\":\"x\"}", 400, "frequency_penalty"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"seed\":1.5}", 400, "seed"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"seed\":\"1\"}", 400, "seed"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"n\":0}", 400, "n"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"n\":129}", 400, "n"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"n\":true}", 400, "n"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"best_of\":3,\"n\":2}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"best_of\":0,\"n\":2}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"best_of\":0,\"stream\":true}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"best_of\":0,\"n\":0}", 400, "n"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"best_of\":-1}", 400, "best_of"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"best_of\":1,\"n\":2}", 400, "best_of"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"best_of\":129}", 400, "best_of"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"best_of\":2.5}", 400, "best_of"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"best_of\":2,\"stream\":true}", 400, "best_of"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"best_of\":2,\"n\":2,\"stream\":true}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"max_tokens\":0}", 400, "max_tokens"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"max_tokens\":-1}", 400, "max_tokens"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"max_tokens\":61}", 400, "prompt"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"max_tokens\":9999999999}", 400, "max_tokens"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"min_tokens\":17}", 400, "min_tokens"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"seed\":9223372036854775807}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"seed\":92233720368547758e2}", 400, "seed"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"max_tokens\":1e300}", 400, "max_tokens"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"stop\":7}", 400, "stop"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"stop\":\"\"}", 400, "stop"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"stop\":[\"a\",1]}", 400, "stop"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"stop\":[]}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"stop_token_ids\":[100]}", 400, "stop_token_ids"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"stop_token_ids\":3}", 400, "stop_token_ids"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"ignore_eos\":1}", 400, "ignore_eos"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logprobs\":true}", 400, "logprobs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logprobs\":21}", 400, "logprobs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logprobs\":-1}", 400, "logprobs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logprobs\":-2}", 400, "logprobs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"prompt_logprobs\":-1}", 400, "prompt_logprobs"},
    {CALL_CHAT, CHAT("\"logprobs\":true,\"top_logprobs\":-1"), 400, "top_logprobs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"prompt_logprobs\":1,\"stream\":true}", 400,
     "prompt_logprobs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"allowed_token_ids\":[5,99,5]}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"allowed_token_ids\":[]}", 400, "allowed_token_ids"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"allowed_token_ids\":[100]}", 400, "allowed_token_ids"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"allowed_token_ids\":[-1]}", 400, "allowed_token_ids"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"allowed_token_ids\":[\"5\"]}", 400, "allowed_token_ids"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"allowed_token_ids\":5}", 400, "allowed_token_ids"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"bad_words\":[]}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"bad_words\":[\"b\",\" c\"]}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"bad_words\":[\"b\",\"\"]}", 400, "bad_words"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"bad_words\":[5]}", 400, "bad_words"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"bad_words\":\"b\"}", 400, "bad_words"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"thinking_token_budget\":0}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"thinking_token_budget\":-1}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"thinking_token_budget\":-2}", 400,
     "thinking_token_budget"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"thinking_token_budget\":true}", 400,
     "thinking_token_budget"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":[]}", 400, "logit_bias"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":{\"x\":1}}", 400, "logit_bias"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":{\"100\":1}}", 400, "logit_bias"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":{\"05\":1}}", 400, "logit_bias"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":{\"5\":101}}", 400, "logit_bias"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":{\"5\":\"1\"}}", 400, "logit_bias"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":{\"5\":false}}", 400, "logit_bias"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"stream\":1}", 400, "stream"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"stream_options\":{}}", 400, "stream_options"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":1}", 400,
     "stream_options"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"echo\":\"yes\"}", 400, "echo"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"user\":1}", 400, "user"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"suffix\":[\"b\"]}", 400, "suffix"},
    {CALL_CHAT, CHAT("\"suffix\":\"b\""), 400, "suffix"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"suffix\":\"b\"}", 400, "suffix"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"suffix\":\"\",\"cache_salt\":\"s\"}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"max_tokens\":4.0,\"length_penalty\":1.0}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"max_tokens\":4.5}", 400, "max_tokens"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"max_tokens\":1e300}", 400, "max_tokens"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"n_predict\":5,\"repeat_penalty\":1.1}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"n_predict\":-1}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"n_predict\":0}", 400, "n_predict"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"n_predict\":-2}", 400, "n_predict"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"repeat_penalty\":0}", 400, "repeat_penalty"},
    {CALL_TOKENIZE, "{\"content\":\"a\",\"add_special\":true,\"with_pieces\":true}", 0, ""},
    {CALL_TOKENIZE, "{\"content\":[\"a\"]}", 400, "content"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"model\":\"m:latest\",\"keep_alive\":\"5m\"}", 0, ""},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"model\":\"m:7b\"}", 404, "model"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"model\":\"m:latest\"}", 404, "model"},
    {CALL_GENERATE, "{\"prompt\":[1]}", 400, "prompt"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"raw\":true,\"system\":\"b\"}", 0, ""},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"system\":1}", 400, "system"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"template\":\"x\"}", 400, "template"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"format\":\"json\"}", 0, ""},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"format\":\"xml\"}", 400, "format"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"format\":\" {\\\"type\\\":\\\"null\\\"}\"}", 0, ""},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"images\":[\"x\"]}", 400, "images"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"think\":true}", 400, "think"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"options\":[]}", 400, "options"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"options\":{\"num_ctx\":4096,\"num_predict\":-2}}", 0, ""},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"options\":{\"num_predict\":-3}}", 400, "num_predict"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"options\":{\"temperature\":-1}}", 400, "temperature"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"options\":{\"mirostat\":3}}", 400, "mirostat"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"options\":{\"mirostat\":1,\"tfs_z\":0.5}}", 0, ""},
    {CALL_OLLAMA_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[\"x\"]}]}",
     400, "messages[0].images"},
    {CALL_OLLAMA_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{}]}", 400,
     "tools"},
    {CALL_TOKENIZE, "{\"content\":\"a\",\"with_pieces\":1}", 400, "with_pieces"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"mirostat\":2}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"mirostat\":3}", 400, "mirostat"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"mirostat\":1,\"adaptive_target\":0.5}", 400, "mirostat"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0.6}", 400, "top_k"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":4}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":1,\"top_k\":64,\"seed\":3}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":1.5,\"top_k\":4}", 400, "penalty_alpha"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":\"a\"}", 400, "penalty_alpha"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":1}", 400, "top_k"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":65}", 400, "top_k"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":4,\"n\":2}", 400, "n"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":4,\"best_of\":2}", 400,
     "n"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":4,\"logprobs\":1}", 400,
     "logprobs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":4,\"prompt_logprobs\":1}",
     400, "prompt_logprobs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":4,\"samplers\":[]}", 400,
     "samplers"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":4,\"mirostat\":2}", 400,
     "mirostat"},
    {CALL_COMPLETION,
     "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":4,\"adaptive_target\":0.5}", 400,
     "adaptive_target"},
    {CALL_COMPLETION,
     "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":4,\"use_beam_search\":true}", 400,
     "use_beam_search"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"penalty_alpha\":0.6,\"top_k\":4,\"context_shift\":true}",
     400, "context_shift"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"samplers\":\"kp\"}", 400, "samplers"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"samplers\":[]}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"samplers\":[3]}", 400, "samplers"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"samplers\":[\"top_k\\u0000\"]}", 400, "samplers"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"samplers\":[\"top_k\",\"top_k\"]}", 400, "samplers"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"samplers\":[\"adaptive_p\",\"top_k\"]}", 400,
     "samplers"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"samplers\":[\"typ_p\",\"xtc\",\"adaptive_p\"]}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"sampler_variant\":\"hf\"}", 400, "sampler_variant"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"sampler_variant\":\"vllm\"}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"dry_sequence_breakers\":[\"\\n\",\"a\"]}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"dry_sequence_breakers\":[\"\"]}", 400,
     "dry_sequence_breakers"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"dry_sequence_breakers\":\"a\"}", 400,
     "dry_sequence_breakers"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"dry_penalty_last_n\":-2}", 400, "dry_penalty_last_n"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"adaptive_decay\":1}", 400, "adaptive_decay"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_object\"}}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_schema\"}}", 400,
     "response_format"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"response_format\":[]}", 400, "response_format"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"guided_json\":{}}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"guided_json\":[]}", 400, "guided_json"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"guided_regex\":1}", 400, "guided_regex"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"guided_choice\":[\"a\",2]}", 400, "guided_choice"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"guided_regex\":\"a\",\"grammar\":\"b\"}", 400,
     "grammar"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"structured_outputs\":{\"regex\":\"a\"}}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"structured_outputs\":\"a\"}", 400, "structured_outputs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"structured_outputs\":{}}", 400, "structured_outputs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"structured_outputs\":{\"jsn\":{}}}", 400,
     "structured_outputs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"structured_outputs\":{\"structural_tag\":5}}", 400,
     "structured_outputs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"structural_tag\":[]}", 400, "structural_tag"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"structured_outputs\":{\"json\":{},\"choice\":[\"a\"]}}",
     400, "structured_outputs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"structured_outputs\":{\"whitespace_pattern\":\" \"}}",
     400, "structured_outputs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"tools\":[{}]}", 400, "tools"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"priority\":-2147483648}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"priority\":2147483648}", 400, "priority"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"priority\":\"1\"}", 400, "priority"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"speculative\":false}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"speculative\":0}", 400, "speculative"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"context_shift\":1}", 400, "context_shift"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"n_keep\":\"all\"}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"context_shift\":true,\"n_keep\":-1}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"context_shift\":true,\"n_keep\":-2}", 400, "n_keep"},
    {CALL_CHAT, CHAT("\"context_shift\":true,\"n_discard\":0"), 0, ""},
    {CALL_CHAT, CHAT("\"context_shift\":true,\"n_discard\":5"), 400, "n_discard"},
    {CALL_CHAT, CHAT("\"context_shift\":true,\"use_beam_search\":true"), 400, "context_shift"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"id_slot\":2147483648}", 400, "id_slot"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"id_slot\":\"3\"}", 400, "id_slot"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"timeout\":0}", 400, "timeout"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"timeout\":86401}", 400, "timeout"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"timeout\":true}", 400, "timeout"},
    {CALL_CHAT, CHAT("\"slo_ttft_ms\":-1"), 400, "slo_ttft_ms"},
    {CALL_CHAT, CHAT("\"slo_tpot_ms\":86400001"), 400, "slo_tpot_ms"},
    {CALL_CHAT, CHAT("\"slo_tpot_ms\":\"5\""), 400, "slo_tpot_ms"},
    {CALL_CHAT, CHAT("\"slo_ttft_ms\":0,\"slo_tpot_ms\":0.5"), 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"fairness_id\":[]}", 400, "fairness_id"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"cache_salt\":\"\"}", 400, "cache_salt"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"cache_salt\":5}", 400, "cache_salt"},
    {CALL_GENERATE, "{\"prompt\":\"a\",\"user\":\"\",\"fairness_id\":\"\"}", 0, ""},
    {CALL_TOKENIZE, "{\"prompt\":\"a\",\"priority\":\"high\"}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":[1,2,3],\"truncate_prompt_tokens\":2}", 0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"truncate_prompt_tokens\":0}", 400,
     "truncate_prompt_tokens"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"truncate_prompt_tokens\":-2}", 400,
     "truncate_prompt_tokens"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"truncate_prompt_tokens\":65}", 400,
     "truncate_prompt_tokens"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"truncation_side\":\"up\"}", 400, "truncation_side"},
    {CALL_TOKENIZE, "{\"prompt\":\"a\",\"truncate_prompt_tokens\":3}", 400,
     "truncate_prompt_tokens"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":true}", 0, ""},
    {CALL_COMPLETION,
     "{\"prompt\":\"a\",\"use_beam_search\":true,\"n\":2,\"best_of\":6,\"length_penalty\":0.5,"
     "\"early_stopping\":\"never\",\"num_beam_groups\":3,\"diversity_penalty\":1,\"top_k\":4}",
     0, ""},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":1}", 400, "use_beam_search"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":true,\"n\":33}", 400, "n"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":true,\"n\":4,\"best_of\":3}", 400,
     "best_of"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":true,\"best_of\":33}", 400, "best_of"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":true,\"n\":4,\"num_beam_groups\":3}",
     400, "num_beam_groups"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":true,\"early_stopping\":\"now\"}", 400,
     "early_stopping"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":true,\"length_penalty\":101}", 400,
     "length_penalty"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":true,\"logprobs\":1}", 400,
     "logprobs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":true,\"prompt_logprobs\":1}", 400,
     "prompt_logprobs"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":true,\"presence_penalty\":1}", 400,
     "presence_penalty"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"use_beam_search\":true,\"logit_bias\":{\"1\":1}}", 400,
     "logit_bias"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"diversity_penalty\":1}", 400, "diversity_penalty"},
    {CALL_COMPLETION, "{\"prompt\":\"a\",\"num_beam_groups\":2}", 400, "num_beam_groups"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 0, ""},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"content\":null}]}", 0, ""},
    {CALL_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}],"
     "\"logprobs\":true,\"top_logprobs\":2,\"tool_choice\":\"none\"}",
     0, ""},
    {CALL_CHAT, "{}", 400, "messages"},
    {CALL_CHAT, "{\"messages\":[]}", 400, "messages"},
    {CALL_CHAT, "{\"messages\":\"a\"}", 400, "messages"},
    {CALL_CHAT, "{\"messages\":[1]}", 400, "messages[0]"},
    {CALL_CHAT, "{\"messages\":[{\"content\":\"a\"}]}", 400, "messages[0].role"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"king\",\"content\":\"a\"}]}", 400, "messages[0].role"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0].content"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":1}]}", 400, "messages[0].content"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
     "messages[0].content"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[3]}]}", 400, "messages[0].content"},
    {CALL_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"a\"}]}]"
     "}",
     400, "messages[0].content"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{}]}]}",
     400, "messages[0].tool_calls"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"top_logprobs\":2}", 400,
     "top_logprobs"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"logprobs\":1}", 400,
     "logprobs"},
    {CALL_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_completion_tokens\":0}", 400,
     "max_completion_tokens"},
    {CALL_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":\"x\",\"max_completion_"
     "tokens\":5}",
     400, "max_tokens"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":70}", 400,
     "messages"},
    {CALL_CHAT, CHAT("\"echo\":true"), 0, ""},
    {CALL_CHAT, CHAT("\"echo\":1"), 400, "echo"},
    {CALL_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"continue_final_message\":true,"
     "\"add_generation_prompt\":true}",
     400, "continue_final_message"},
    {CALL_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"modalities\":[\"audio\"]}",
     400, "modalities"},
    {CALL_LLAMA, "{\"prompt\":\"a\"}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":[1,2]}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":[\"a\"]}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":[\"a\",\"b\"]}", 400, "prompt"},
    {CALL_LLAMA, "{\"prompt\":[\"a\",1]}", 400, "prompt"},
    {CALL_LLAMA, "{\"prompt\":[1,\"a\"]}", 400, "prompt"},
    {CALL_LLAMA, "{\"prompt\":{\"prompt_string\":\"a\"}}", 400, "prompt"},
    {CALL_LLAMA, "{\"n_predict\":5}", 400, "prompt"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"n_predict\":-1}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"n_predict\":0}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"n_predict\":5000}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"n_predict\":-2}", 400, "n_predict"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"n_predict\":\"5\"}", 400, "n_predict"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"temperature\":-1}", 400, "temperature"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"repeat_penalty\":0}", 400, "repeat_penalty"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"repeat_penalty\":1.1,\"repeat_last_n\":-1}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"repeat_penalty\":1.1,\"repeat_last_n\":64}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"repeat_penalty\":1.1,\"repeat_last_n\":63}", 400,
     "repeat_last_n"},
    {CALL_LLAMA,
     "{\"prompt\":\"a\",\"repeat_penalty\":1.1,\"repeat_last_n\":63,"
     "\"sampler_variant\":\"llama.cpp\"}",
     0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"repeat_last_n\":8}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"presence_penalty\":1,\"repeat_last_n\":8}", 400,
     "repeat_last_n"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"stop\":[\"x\"],\"ignore_eos\":true,\"n_probs\":0}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"stop\":[]}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"stop\":[1]}", 400, "stop"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"n_probs\":20}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"n_probs\":21}", 400, "n_probs"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"n_probs\":-1}", 400, "n_probs"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"stream\":1}", 400, "stream"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"return_tokens\":1}", 400, "return_tokens"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":[]}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":{\"5\":1}}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":[[5,1],[6,false]]}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":[[100,1]]}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":[[\"a\",1]]}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":[[5,true]]}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":[[5,101]]}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":[[5]]}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":[5,1]}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":[[5,1,1]]}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":3}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":{\"5\":false,\"6\":-2}}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":{\"5\":true}}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":{\"5\":101}}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":{\"a\":1}}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":{\"100\":1}}", 400, "logit_bias"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"logit_bias\":{}}", 0, ""},
    {CALL_LLAMA,
     "{\"prompt\":\"a\",\"cache_prompt\":true,\"id_slot\":-1,\"n_keep\":5,\"timings_per_token\":"
     "true}",
     0, ""},
    {CALL_LLAMA,
     "{\"prompt\":\"a\",\"min_tokens\":99,\"stop_token_ids\":\"x\",\"repetition_penalty\":-1,\"max_"
     "tokens\":-1}",
     0, ""},
    {CALL_LLAMA,
     "{\"prompt\":\"a\",\"grammar\":\"\",\"min_keep\":0,\"t_max_predict_ms\":-1,\"n_indent\":0,"
     "\"post_sampling_probs\":false}",
     0, ""},
    {CALL_LLAMA,
     "{\"prompt\":\"a\",\"response_fields\":[],\"image_data\":[],\"n_cmpl\":1,\"mirostat\":0,"
     "\"typical_p\":1.0}",
     0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"grammar\":\"root ::= x\"}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"json_schema\":{}}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"json_schema\":3}", 400, "json_schema"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"samplers\":[\"top_k\"]}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"samplers\":[\"top-k\"]}", 400, "samplers"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"min_keep\":2}", 400, "min_keep"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"t_max_predict_ms\":100}", 400, "t_max_predict_ms"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"n_indent\":2}", 400, "n_indent"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"post_sampling_probs\":true}", 400, "post_sampling_probs"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"response_fields\":[\"content\"]}", 400, "response_fields"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"n_cmpl\":2}", 400, "n_cmpl"},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"mirostat\":2}", 0, ""},
    {CALL_LLAMA, "{\"prompt\":\"a\",\"tools\":[{}]}", 400, "tools"},
    {CALL_TOKENIZE, "{\"prompt\":\"a\"}", 0, ""},
    {CALL_TOKENIZE, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 0, ""},
    {CALL_TOKENIZE, "{}", 400, "prompt"},
    {CALL_TOKENIZE, "{\"prompt\":\"a\",\"add_special_tokens\":3}", 400, "add_special_tokens"},
    {CALL_DETOKENIZE, "{\"tokens\":[1,2]}", 0, ""},
    {CALL_DETOKENIZE, "{\"tokens\":[]}", 0, ""},
    {CALL_DETOKENIZE, "{}", 400, "tokens"},
    {CALL_DETOKENIZE, "{\"tokens\":\"a\"}", 400, "tokens"},
    {CALL_DETOKENIZE, "{\"tokens\":[100]}", 400, "tokens"},
};

static void every_body_is_taken_or_names_the_field(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct params params;
        struct weft_api_error error;
        (void)parse(rows[i].body, rows[i].kind, 4, &params, &error);
        if (error.status != rows[i].status || strcmp(error.param, rows[i].param) != 0)
            fail_msg("%s: got %d \"%s\" (%s)", rows[i].body, error.status, error.param,
                     error.message);
        wefti_api_params_fini(&params);
    }
}

static void fields_arrive_as_they_were_given(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error;
    assert_true(
        parse("{\"prompt\":[[1,2],[3]],\"max_tokens\":9,\"min_tokens\":3,\"temperature\":0.5,"
              "\"top_p\":0.25,\"top_k\":-1,\"top_n_sigma\":1.5,\"min_p\":0.125,\"seed\":-5,\"n\":2,"
              "\"stop\":[\"x\\u0000y\",\"z\"],\"stop_token_ids\":[7,90],\"logprobs\":3,"
              "\"echo\":true,\"presence_penalty\":1,\"frequency_penalty\":-1,"
              "\"repetition_penalty\":1.5,\"logit_bias\":{\"50\":-1,\"4\":2},"
              "\"allowed_token_ids\":[9,0,50,9],\"thinking_token_budget\":7}",
              CALL_COMPLETION, 0, &p, &error));
    static const uint32_t allowed[] = {0, 9, 50};
    assert_int_equal(p.sampling.n_allowed_tokens, 3);
    assert_memory_equal(p.sampling.allowed_tokens, allowed, sizeof allowed);
    assert_int_equal(p.sampling.thinking_token_budget, 7);
    assert_int_equal(p.n_prompts, 2);
    assert_int_equal(p.prompts[0].ids[1], 2);
    assert_int_equal(p.sampling.max_tokens, 9);
    assert_int_equal(p.sampling.min_tokens, 3);
    assert_true(p.sampling.temperature == 0.5f && p.sampling.top_p == 0.25f);
    assert_true(p.sampling.min_p == 0.125f && p.sampling.top_k == 0);
    assert_true(p.sampling.top_n_sigma == 1.5f);
    assert_true(p.has_seed && p.sampling.seed == (uint64_t)-5);
    assert_int_equal(p.n_stops, 2);
    assert_int_equal(p.stop_lens[0], 3);
    assert_memory_equal(p.stops[0], "x\0y", 3);
    assert_int_equal(p.n_own_stop_tokens, 2);
    assert_int_equal(p.sampling.n_stop_tokens, 3); /* 7, 90 and the other end of sequence */
    assert_int_equal(p.sampling.stop_tokens[2], 91);
    assert_int_equal(p.sampling.n_logprobs, 3);
    assert_int_equal(p.sampling.n_prompt_logprobs, 3);
    assert_int_equal(p.prompt_logprobs, -1);
    assert_int_equal(p.sampling.n_bias, 2);
    assert_int_equal(p.sampling.bias[0].token, 4);
    assert_true(p.sampling.bias[0].bias == 2.0f);
    struct weft_errmsg why;
    assert_int_equal(weft_sampling_check(&p.sampling, 100, &why), WEFT_OK);
    wefti_api_params_fini(&p);
}

/* The error of a request; `is_strict`: unknown fields are refused. */
static struct weft_api_error error_of(const char *body, const weft_api_kind *kind, bool is_strict) {
    struct weft_api_limits l = limits();
    struct weft_api_error error = {0};
    struct params p;
    l.refuses_unknown_fields = is_strict;
    (void)wefti_api_params_parse(json_loads(body, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL), kind, &l,
                                 &p, &error);
    wefti_api_params_fini(&p);
    return error;
}

static void grammars_arrive_by_all_their_names(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        enum weft_grammar_kind kind;
        const char *text;
    } list[] = {
        {"\"response_format\":{\"type\":\"structural_tag\",\"format\":{\"type\":\"any_text\"}}",
         WEFT_GRAMMAR_TAGS, "{\"type\":\"structural_tag\",\"format\":{\"type\":\"any_text\"}}"},
        {"\"response_format\":{\"type\":\"structural_tag\",\"triggers\":[],\"structures\":[]}",
         WEFT_GRAMMAR_TAGS, "{\"type\":\"structural_tag\",\"triggers\":[],\"structures\":[]}"},
        {"\"structured_outputs\":{\"structural_tag\":\"{}\"}", WEFT_GRAMMAR_TAGS, "{}"},
        {"\"structured_outputs\":{\"structural_tag\":{\"format\":1}}", WEFT_GRAMMAR_TAGS,
         "{\"format\":1}"},
        {"\"structural_tag\":\"{}\"", WEFT_GRAMMAR_TAGS, "{}"},
        {"\"structured_outputs\":{\"grammar\":\"start: A\"}", WEFT_GRAMMAR_RULES, "start: A"},
        {"\"response_format\":{\"type\":\"json_object\",\"json_schema\":{\"name\":\"x\",\"schema\":"
         "{\"a\":1}}}",
         WEFT_GRAMMAR_SCHEMA, "{\"a\":1}"},
        {"\"response_format\":{\"type\":\"json_object\",\"schema\":{\"schema\":{\"a\":1},"
         "\"strict\":true}}",
         WEFT_GRAMMAR_SCHEMA, "{\"a\":1}"},
        {"\"json_schema\":{\"name\":\"x\",\"schema\":true,\"strict\":true}", WEFT_GRAMMAR_SCHEMA,
         "true"},
        {"\"json_schema\":{\"name\":\"x\",\"type\":\"object\"}", WEFT_GRAMMAR_SCHEMA,
         "{\"name\":\"x\",\"type\":\"object\"}"},
        {"\"structured_outputs\":{\"regex\":\"a\",\"disable_additional_properties\":true}",
         WEFT_GRAMMAR_REGEX, "a"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct params p;
        struct weft_api_error error;
        char body[256];
        (void)snprintf(body, sizeof body, "{\"prompt\":\"a\",%s}", list[i].fields);
        if (!parse(body, CALL_COMPLETION, 4, &p, &error)) fail_msg("%s: %s", body, error.message);
        assert_int_equal(p.sampling.grammar.kind, list[i].kind);
        assert_int_equal(p.sampling.grammar.n_bytes, strlen(list[i].text));
        assert_memory_equal(p.sampling.grammar.text, list[i].text, strlen(list[i].text));
        wefti_api_params_fini(&p);
    }
}

static void objects_are_closed_where_that_is_asked_for(void **state) {
    (void)state;
    static const struct {
        const char *schema, *closed;
    } list[] = {
        {"true", "true"},
        {"{\"type\":\"object\"}", "{\"type\":\"object\"}"},
        {"{\"properties\":{\"properties\":{\"patternProperties\":{\"a\":{\"properties\":{},"
         "\"unevaluatedProperties\":true}}}}}",
         "{\"properties\":{\"properties\":{\"patternProperties\":{\"a\":{\"properties\":{},"
         "\"unevaluatedProperties\":true}},\"additionalProperties\":false}},"
         "\"additionalProperties\":false}"},
        {"{\"additionalProperties\":{\"properties\":{}},\"properties\":{}}",
         "{\"additionalProperties\":{\"properties\":{},\"additionalProperties\":false},"
         "\"properties\":{}}"},
        {"{\"anyOf\":[{\"properties\":{}},{\"items\":{\"properties\":{}}}]}",
         "{\"anyOf\":[{\"properties\":{},\"additionalProperties\":false},{\"items\":{"
         "\"properties\":{},"
         "\"additionalProperties\":false}}]}"},
        {"{\"enum\":[{\"properties\":{}}],\"const\":{\"properties\":{}},\"default\":{"
         "\"properties\":{}},"
         "\"examples\":[{\"properties\":{}}]}",
         "{\"enum\":[{\"properties\":{}}],\"const\":{\"properties\":{}},\"default\":{"
         "\"properties\":{}},"
         "\"examples\":[{\"properties\":{}}]}"},
        {"{\"$ref\":\"#/$defs/enum\",\"$defs\":{\"enum\":{\"properties\":{}}}}",
         "{\"$ref\":\"#/$defs/"
         "enum\",\"$defs\":{\"enum\":{\"properties\":{},\"additionalProperties\":"
         "false}}}"},
        {"\"{\\\"properties\\\": {}}\"", "{\"properties\":{},\"additionalProperties\":false}"},
        {"\"{\\\"prop\"", "{\"prop"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct params p;
        struct weft_api_error error;
        char body[400];
        (void)snprintf(body, sizeof body,
                       "{\"prompt\":\"a\",\"structured_outputs\":{\"json\":%s,"
                       "\"disable_additional_properties\":true}}",
                       list[i].schema);
        if (!parse(body, CALL_COMPLETION, 4, &p, &error)) fail_msg("%s: %s", body, error.message);
        assert_string_equal(p.sampling.grammar.text, list[i].closed);
        wefti_api_params_fini(&p);
    }
}

/* Of a call whose other fields are fine. */
static void refusals_of_grammars_say_what_is_wrong_with_a_code(void **state) {
    (void)state;
    static const char invalid[] = "invalid_grammar";
    static const struct {
        const weft_api_kind *kind;
        const char *fields, *code, *what;
    } list[] = {
        {CALL_COMPLETION, "\"response_format\":5", invalid, "must be an object"},
        {CALL_COMPLETION, "\"response_format\":{\"type\":\"xml\"}", invalid,
         "response_format.type"},
        {CALL_COMPLETION, "\"response_format\":{\"type\":\"json_schema\"}", invalid,
         "'response_format.json_schema.schema' must be a JSON Schema, got nothing"},
        {CALL_COMPLETION,
         "\"response_format\":{\"type\":\"json_object\",\"json_schema\":{\"name\":\"x\"}}", invalid,
         "'response_format.json_schema.schema' must be a JSON Schema, got nothing"},
        {CALL_COMPLETION, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":[]}",
         invalid, "'response_format.json_schema' must be an object"},
        {CALL_COMPLETION, "\"guided_json\":5", invalid, "a JSON Schema, got an integer"},
        {CALL_COMPLETION, "\"guided_regex\":\"a\",\"grammar\":\"b\"", invalid, "cannot both"},
        {CALL_COMPLETION, "\"structured_outputs\":5", invalid, "must be an object"},
        {CALL_COMPLETION, "\"structured_outputs\":{}", invalid, "\"json_object\""},
        {CALL_COMPLETION, "\"structured_outputs\":{\"backend\":\"a\",\"jsonn\":{}}", invalid,
         "got 'jsonn'"},
        {CALL_COMPLETION, "\"structured_outputs\":{\"json_object\":1}", invalid,
         "'structured_outputs.json_object' must be a boolean"},
        {CALL_COMPLETION,
         "\"structured_outputs\":{\"json\":{},\"disable_additional_properties\":\"y\"}", invalid,
         "disable_additional_properties' must be a boolean"},
        {CALL_COMPLETION,
         "\"structured_outputs\":{\"structural_tag\":{},\"disable_additional_properties\":true}",
         "unsupported_parameter", "disable_additional_properties"},
        {CALL_LLAMA, "\"json_schema\":{\"name\":\"x\",\"strict\":true}", invalid,
         "is not a JSON Schema"},
        {CALL_LLAMA, "\"json_schema\":{\"name\":\"x\",\"schema\":5}", invalid,
         "is not a JSON Schema"},
        {CALL_GENERATE, "\"format\":\"jsn\"", invalid, "got \"jsn\""},
        {CALL_GENERATE, "\"format\":5", invalid, "got an integer"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char body[256];
        (void)snprintf(body, sizeof body, "{\"prompt\":\"a\",%s}", list[i].fields);
        struct weft_api_error error = error_of(body, list[i].kind, false);
        assert_int_equal(error.status, 400);
        if (strcmp(error.code, list[i].code) != 0 || !strstr(error.message, list[i].what))
            fail_msg("%s: %s, %s", body, error.code, error.message);
    }
}

static void a_grammar_has_so_many_bytes_at_most(void **state) {
    (void)state;
    static char body[(4 << 20) + 100];
    int n = snprintf(body, sizeof body, "{\"prompt\":\"a\",\"guided_regex\":\"");
    memset(body + n, 'a', (4 << 20) + 1);
    memcpy(body + n + (4 << 20) + 1, "\"}", 3);
    struct weft_api_error error = error_of(body, CALL_COMPLETION, false);
    assert_string_equal(error.code, "grammar_too_large");
    assert_string_equal(error.param, "guided_regex");
}

static void how_to_serve_a_request_arrives_as_it_was_given(void **state) {
    (void)state;
    struct params one, other;
    struct weft_api_error error;
    assert_true(parse("{\"prompt\":\"a\",\"priority\":-7,\"timeout\":1.5,\"slo_ttft_ms\":200,"
                      "\"slo_tpot_ms\":0.0001,\"cache_salt\":\"s\",\"user\":\"me\"}",
                      CALL_COMPLETION, 3, &one, &error));
    assert_int_equal(one.service.priority, -7);
    assert_int_equal(one.service.timeout_us, 1500000);
    assert_int_equal(one.service.ttft_us, 200000);
    assert_int_equal(one.service.tpot_us, 1); /* too short to be kept, but no "none" */
    assert_true(one.service.flow == weft_api_flow("me", 2) && one.service.flow != 0);
    assert_true(one.service.cache_salt.hi != 0 && one.service.cache_salt.lo != 0);
    assert_true(parse("{\"prompt\":\"a\",\"user\":\"them\",\"fairness_id\":\"me\","
                      "\"cache_salt\":\"s\\u0000\"}",
                      CALL_LLAMA, 3, &other, &error));
    assert_true(other.service.flow == one.service.flow);
    assert_true(other.service.cache_salt.hi != one.service.cache_salt.hi);
    wefti_api_params_fini(&other);
    wefti_api_params_fini(&one);
    assert_true(parse("{\"prompt\":\"a\"}", CALL_GENERATE, 3, &one, &error));
    static const struct service nothing;
    assert_memory_equal(&one.service, &nothing, sizeof nothing);
    wefti_api_params_fini(&one);
}

static void sixty_four_strings_may_stop_a_request_and_no_more(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error;
    char body[512];
    for (int n = 64; n <= 65; n++) {
        size_t at = (size_t)snprintf(body, sizeof body, "{\"prompt\":\"a\",\"stop\":[\"0\"");
        for (int i = 1; i < n; i++)
            at += (size_t)snprintf(body + at, sizeof body - at, ",\"%d\"", i);
        (void)snprintf(body + at, sizeof body - at, "]}");
        assert_int_equal(parse(body, CALL_COMPLETION, 1, &p, &error), n == 64);
        assert_string_equal(error.param, n == 64 ? "" : "stop");
        assert_int_equal(p.n_stops, n == 64 ? 64 : 0);
        if (n == 64) assert_string_equal(p.stops[63], "63");
        wefti_api_params_fini(&p);
    }
}

static void unknown_fields_are_refused_where_that_is_wanted(void **state) {
    (void)state;
    static const struct {
        const weft_api_kind *kind;
        const char *body, *param;
    } cases[] = {
        {CALL_COMPLETION, "{\"prompt\":\"a\",\"temprature\":0}", "temprature"},
        {CALL_COMPLETION, "{\"prompt\":\"a\",\"a\\u0001\":0}", "a\\u0001"},
        {CALL_COMPLETION, "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"usage\":true}}",
         "stream_options.usage"},
        {CALL_COMPLETION,
         "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"include_usage\":true,"
         "\"include_obfuscation\":false},"
         "\"model\":\"also\",\"user\":\"me\",\"metadata\":{\"a\":1},\"tools\":[],\"n\":null}",
         ""},
        {CALL_COMPLETION, "{\"prompt\":\"a\",\"max_completion_tokens\":5}",
         "max_completion_tokens"},
        {CALL_CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":\"b\"}],"
         "\"max_completion_tokens\":5}",
         ""},
        {CALL_LLAMA, "{\"prompt\":\"a\",\"n_predict\":5,\"cache_prompt\":true}", ""},
        {CALL_LLAMA, "{\"prompt\":\"a\",\"max_tokens\":5}", "max_tokens"},
        {CALL_TOKENIZE, "{\"prompt\":\"a\",\"tokens\":[]}", "tokens"},
        {CALL_GENERATE, "{\"prompt\":\"a\",\"options\":{\"num_ctx\":5,\"top_k\":3}}", ""},
        {CALL_GENERATE, "{\"prompt\":\"a\",\"options\":{\"max_tokens\":5}}", "options.max_tokens"},
        {CALL_DETOKENIZE, "{\"tokens\":[1],\"model\":\"m\"}", ""},
        {CALL_COMPLETION,
         "{\"prompt\":\"a\",\"response_format\":{\"type\":\"text\",\"strict\":true}}",
         "response_format.strict"},
        {CALL_COMPLETION,
         "{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
         "\"name\":\"x\","
         "\"strict\":true,\"description\":\"\",\"schema\":{\"x\":1}}}}",
         ""},
        {CALL_COMPLETION,
         "{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
         "\"schema\":{},"
         "\"stric\":true}}}",
         "response_format.json_schema.stric"},
        {CALL_COMPLETION,
         "{\"prompt\":\"a\",\"response_format\":{\"type\":\"structural_tag\",\"triggers\":[],"
         "\"structures\":[]}}",
         ""},
        {CALL_COMPLETION,
         "{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_object\",\"json_schema\":null,"
         "\"schema\":null}}",
         ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weft_api_error error = error_of(cases[i].body, cases[i].kind, true);
        if (strcmp(error.param, cases[i].param) != 0)
            fail_msg("%s: got \"%s\" (%s)", cases[i].body, error.param, error.message);
        if (!error.status) continue;
        assert_int_equal(error.status, 400);
        assert_string_equal(error.code, "unknown_field");
        assert_int_equal(error_of(cases[i].body, cases[i].kind, false).status, 0);
    }
}

static void a_wrong_model_is_told_which_there_are(void **state) {
    (void)state;
    struct weft_api_error error =
        error_of("{\"prompt\":\"a\",\"model\":\"m\\u0000x\"}", CALL_COMPLETION, false);
    assert_int_equal(error.status, 404);
    assert_string_equal(error.code, "model_not_found");
    assert_string_equal(error.message,
                        "The model 'm\\u0000x' does not exist; this server has 'm', 'also'.");
    assert_int_equal(
        error_of("{\"prompt\":\"a\",\"model\":\"also\"}", CALL_COMPLETION, false).status, 0);
}

static void llamas_names_go_before_openais(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error;
    assert_true(parse("{\"prompt\":\"a\",\"n_predict\":7,\"max_tokens\":9,\"repeat_penalty\":1.5,"
                      "\"repetition_penalty\":1.25}",
                      CALL_COMPLETION, 4, &p, &error));
    assert_int_equal(p.sampling.max_tokens, 7);
    assert_true(p.sampling.repetition_penalty == 1.5f);
    wefti_api_params_fini(&p);
    assert_true(parse("{\"prompt\":\"a\",\"n_predict\":-1}", CALL_COMPLETION, 4, &p, &error));
    assert_int_equal(p.sampling.max_tokens, 60); /* all of the context */
    wefti_api_params_fini(&p);
}

static void ollamas_options_have_its_defaults(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error;
    assert_true(parse("{\"prompt\":\"a\",\"options\":{\"repeat_penalty\":1.5,\"stop\":[\"x\"]}}",
                      CALL_GENERATE, 4, &p, &error));
    assert_true(p.stream && p.sampling.temperature == 0.8f && p.sampling.top_p == 0.9f);
    assert_int_equal(p.sampling.top_k, 40);
    assert_true(p.sampling.repetition_penalty == 1.5f);
    assert_int_equal(p.sampling.max_tokens, 60); /* all of the context */
    assert_int_equal(p.n_stops, 1);
    assert_int_equal(p.sampling.n_stop_tokens, 2);
    wefti_api_params_fini(&p);
}

static void a_number_too_small_for_a_float_is_not_off(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error;
    assert_true(parse("{\"prompt\":[1],\"top_n_sigma\":1e-46,\"presence_penalty\":-1e-50}",
                      CALL_COMPLETION, 0, &p, &error));
    assert_true(p.sampling.top_n_sigma > 0 && p.sampling.presence_penalty < 0);
    wefti_api_params_fini(&p);
}

static void defaults_fit_the_context(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error;
    assert_true(parse("{\"prompt\":\"a\"}", CALL_COMPLETION, 4, &p, &error));
    assert_int_equal(p.sampling.max_tokens, 16);
    assert_true(p.sampling.temperature == 1.0f && !p.has_seed);
    assert_int_equal(p.sampling.n_stop_tokens, 2);
    wefti_api_params_fini(&p);
    assert_true(parse("{\"prompt\":\"a\"}", CALL_COMPLETION, 60, &p, &error));
    assert_int_equal(p.sampling.max_tokens, 4);
    wefti_api_params_fini(&p);
    assert_true(parse("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"ignore_eos\":true}",
                      CALL_CHAT, 10, &p, &error));
    assert_int_equal(p.sampling.max_tokens, 54);
    assert_int_equal(p.sampling.n_stop_tokens, 0);
    wefti_api_params_fini(&p);
    assert_false(parse("{\"prompt\":\"a\"}", CALL_COMPLETION, 64, &p, &error));
    assert_string_equal(error.code, "context_length_exceeded");
    assert_non_null(strstr(error.message, "maximum context length is 64 tokens"));
    wefti_api_params_fini(&p);
}

#define LONG "{\"prompt\":\"a\",\"context_shift\":true"

/* A prompt is as long as ever at most, but not what comes after it. */
static void a_shifting_request_may_be_longer_than_the_context(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error;
    assert_true(parse(LONG ",\"max_tokens\":1000}", CALL_COMPLETION, 63, &p, &error));
    assert_true(p.shifts && p.n_keep == 0 && p.sampling.max_tokens == 1000);
    wefti_api_params_fini(&p);
    assert_true(parse(LONG ",\"n_predict\":-1,\"n_keep\":-1}", CALL_LLAMA, 10, &p, &error));
    assert_int_equal(p.sampling.max_tokens, WEFT_SHIFTED_TOKENS_MAX - 10);
    assert_int_equal(p.n_keep, -1);
    wefti_api_params_fini(&p);
    assert_true(parse(LONG "}", CALL_COMPLETION, 60, &p, &error));
    assert_int_equal(p.sampling.max_tokens, 16); /* OpenAI's, as ever */
    wefti_api_params_fini(&p);
    assert_true(parse("{\"prompt\":[1,2,3],\"context_shift\":true,\"max_tokens\":1000,"
                      "\"truncate_prompt_tokens\":-1}",
                      CALL_COMPLETION, 0, &p, &error));
    assert_int_equal(p.prompts[0].n_ids, 3);
    wefti_api_params_fini(&p);
    assert_false(parse(LONG "}", CALL_COMPLETION, 64, &p, &error));
    assert_non_null(strstr(error.message, "maximum context length is 64 tokens"));
    wefti_api_params_fini(&p);
    assert_false(parse(LONG ",\"max_tokens\":1048576}", CALL_COMPLETION, 1, &p, &error));
    assert_string_equal(error.code, "context_length_exceeded");
    assert_non_null(strstr(error.message, "have at most 1048576 tokens together"));
    wefti_api_params_fini(&p);
}

static void a_slot_is_a_session(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error;
    assert_true(parse("{\"prompt\":\"a\",\"id_slot\":2147483647}", CALL_LLAMA, 4, &p, &error));
    assert_int_equal(p.service.n_session_id, 15);
    assert_memory_equal(p.service.session_id, "slot-2147483647", 15);
    wefti_api_params_fini(&p);
    assert_true(parse("{\"prompt\":\"a\",\"session_id\":\"talk\",\"id_slot\":3}", CALL_LLAMA, 4, &p,
                      &error));
    assert_memory_equal(p.service.session_id, "talk", 4);
    wefti_api_params_fini(&p);
    assert_true(parse("{\"prompt\":\"a\",\"id_slot\":-1}", CALL_LLAMA, 4, &p, &error));
    assert_int_equal(p.service.n_session_id, 0);
    wefti_api_params_fini(&p);
}

static void ignored_ends_are_still_kept_back_by_min_tokens(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error;
    assert_true(parse("{\"prompt\":\"a\",\"ignore_eos\":true,\"min_tokens\":3,"
                      "\"stop_token_ids\":[7,91]}",
                      CALL_COMPLETION, 4, &p, &error));
    assert_int_equal(p.sampling.n_stop_tokens, 2); /* 91 was asked for by name: it stops */
    assert_int_equal(p.sampling.stop_tokens[1], 91);
    assert_int_equal(p.n_own_stop_tokens, 2);
    assert_int_equal(p.sampling.n_masked_tokens, 1);
    assert_int_equal(p.sampling.masked_tokens[0], 90);
    wefti_api_params_fini(&p);
    assert_true(parse("{\"prompt\":\"a\",\"ignore_eos\":true}", CALL_COMPLETION, 4, &p, &error));
    assert_int_equal(p.sampling.n_stop_tokens, 0);
    assert_int_equal(p.sampling.n_masked_tokens, 0); /* nothing is kept back from the first on */
    wefti_api_params_fini(&p);
    assert_true(parse("{\"prompt\":\"a\",\"min_tokens\":3}", CALL_COMPLETION, 4, &p, &error));
    assert_int_equal(p.sampling.n_stop_tokens, 2);
    assert_int_equal(p.sampling.n_masked_tokens, 0);
    wefti_api_params_fini(&p);
}

static void ends_beyond_the_vocabulary_are_passed_over(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error = {0};
    struct weft_api_limits l = limits();
    l.n_vocab = 91; /* a tokenizer that knows one more than the model */
    json_t *json = json_loads("{\"prompt\":\"a\"}", 0, NULL);
    assert_true(wefti_api_params_parse(json, CALL_COMPLETION, &l, &p, &error));
    assert_int_equal(p.sampling.n_stop_tokens, 1);
    assert_int_equal(p.sampling.stop_tokens[0], 90);
    wefti_api_params_fini(&p);
    json = json_loads("{\"prompt\":\"a\",\"ignore_eos\":true,\"min_tokens\":1}", 0, NULL);
    assert_true(wefti_api_params_parse(json, CALL_COMPLETION, &l, &p, &error));
    assert_int_equal(p.sampling.n_masked_tokens, 1);
    wefti_api_params_fini(&p);
}

static void the_model_s_defaults_speak_where_a_request_is_silent(void **state) {
    (void)state;
    struct weft_api_limits l = limits();
    struct params p;
    struct weft_api_error error = {0};
    l.defaults = (struct weft_gen_defaults){.temperature = 0.5,
                                            .top_p = 0.75,
                                            .min_p = NAN,
                                            .repetition_penalty = 1.5,
                                            .top_k = 5,
                                            .max_new_tokens = 6};
    json_t *json =
        json_loads("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"top_p\":1}", 0, NULL);
    assert_true(wefti_api_params_parse(json, CALL_CHAT, &l, &p, &error));
    p.prompts[0].n_ids = 3;
    assert_true(wefti_api_params_fit(&p, CALL_CHAT, &l, &error));
    assert_true(p.sampling.temperature == 0.5f && p.sampling.top_p == 1.0f);
    assert_true(p.sampling.min_p == 0.0f && p.sampling.repetition_penalty == 1.5f);
    assert_int_equal(p.sampling.top_k, 5);
    assert_int_equal(p.sampling.max_tokens, 6);
    wefti_api_params_fini(&p);
}

static void llamas_fields_have_its_defaults_and_go_until_the_context_is_full(void **state) {
    (void)state;
    struct weft_api_limits l = limits();
    struct params p;
    struct weft_api_error error;
    assert_true(parse("{\"prompt\":\"a\"}", CALL_LLAMA, 4, &p, &error));
    assert_true(p.sampling.temperature == 0.8f && p.sampling.top_p == 0.95f);
    assert_true(p.sampling.min_p == 0.05f && p.sampling.repetition_penalty == 1.0f);
    assert_int_equal(p.sampling.top_k, 40);
    assert_int_equal(p.sampling.max_tokens, 60);
    assert_int_equal(p.sampling.n_logprobs, -1);
    wefti_api_params_fini(&p);
    assert_true(parse("{\"prompt\":\"a\",\"n_predict\":5000,\"repeat_penalty\":1.5,\"n_probs\":2,"
                      "\"presence_penalty\":1,\"repeat_last_n\":-1,"
                      "\"logit_bias\":[[7,2],[3,false],[7,-1],[3,100]]}",
                      CALL_LLAMA, 50, &p, &error));
    assert_int_equal(p.sampling.max_tokens, 14);
    assert_int_equal(p.sampling.n_logprobs, 2);
    assert_true(p.sampling.repetition_penalty == 1.5f && p.sampling.presence_penalty == 1.0f);
    assert_int_equal(p.sampling.n_bias, 2);
    assert_true(p.sampling.bias[0].token == 3 && p.sampling.bias[0].bias == WEFT_LOGIT_BIAS_NEVER);
    assert_true(p.sampling.bias[1].token == 7 && p.sampling.bias[1].bias == 1.0f);
    struct weft_errmsg why;
    assert_int_equal(weft_sampling_check(&p.sampling, 100, &why), WEFT_OK);
    wefti_api_params_fini(&p);
    assert_true(parse("{\"prompt\":\"a\",\"logit_bias\":{\"7\":1,\"3\":false}}", CALL_LLAMA, 50, &p,
                      &error));
    assert_int_equal(p.sampling.n_bias, 2);
    assert_true(p.sampling.bias[0].token == 3);
    assert_true(p.sampling.bias[0].bias == WEFT_LOGIT_BIAS_NEVER);
    assert_true(p.sampling.bias[1].token == 7 && p.sampling.bias[1].bias == 1.0f);
    wefti_api_params_fini(&p);
    assert_true(parse("{\"prompt\":\"a\",\"repeat_penalty\":1.5,\"frequency_penalty\":1,"
                      "\"repeat_last_n\":0,\"n_predict\":0}",
                      CALL_LLAMA, 4, &p, &error));
    assert_false(weft_sampling_has_penalties(&p.sampling));
    assert_int_equal(p.sampling.max_tokens, 0);
    wefti_api_params_fini(&p);
    l.defaults = (struct weft_gen_defaults){0.5, NAN, 0.25, NAN, 0, 6};
    memset(&error, 0, sizeof error);
    json_t *json = json_loads("{\"prompt\":\"a\"}", 0, NULL);
    assert_true(wefti_api_params_parse(json, CALL_LLAMA, &l, &p, &error));
    p.prompts[0].n_ids = 3;
    assert_true(wefti_api_params_fit(&p, CALL_LLAMA, &l, &error));
    assert_true(p.sampling.temperature == 0.5f && p.sampling.top_p == 0.95f);
    assert_true(p.sampling.min_p == 0.25f && p.sampling.top_k == 0);
    assert_int_equal(p.sampling.max_tokens, 6);
    wefti_api_params_fini(&p);
}

static void log_probabilities_are_bounded_in_bytes(void **state) {
    (void)state;
    struct weft_api_limits l = limits();
    struct params p;
    struct weft_api_error error = {0};
    l.max_logprob_bytes = 4 * 5 * (12 + 8 * 2);
    const char *body = "{\"prompt\":[1],\"n\":4,\"max_tokens\":5,\"logprobs\":2}";
    assert_true(wefti_api_params_parse(json_loads(body, 0, NULL), CALL_COMPLETION, &l, &p, &error));
    assert_true(wefti_api_params_fit(&p, CALL_COMPLETION, &l, &error));
    l.max_logprob_bytes--;
    assert_false(wefti_api_params_fit(&p, CALL_COMPLETION, &l, &error));
    assert_string_equal(error.param, "logprobs");
    assert_non_null(strstr(error.message, "--max-logprob-bytes"));
    error = (struct weft_api_error){0};
    p.drops_sent_logprobs = true; /* a stream holds what was not read yet */
    assert_true(wefti_api_params_fit(&p, CALL_COMPLETION, &l, &error));
    wefti_api_params_fini(&p);
}

static void silence_about_max_tokens_asks_for_no_log_probabilities(void **state) {
    (void)state;
    struct weft_api_limits l = limits();
    struct params p;
    struct weft_api_error error = {0};
    l.max_logprob_bytes = 5 * 12; /* less than the context's worth, and the prompt has five */
    static const char *const fields[] = {"\"logprobs\":true", "\"logprobs\":true,\"max_tokens\":6",
                                         "\"prompt_logprobs\":0", "\"prompt_logprobs\":1"};
    for (size_t i = 0; i < 4; i++) {
        char body[256];
        (void)snprintf(body, sizeof body,
                       "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],%s}", fields[i]);
        assert_true(wefti_api_params_parse(json_loads(body, 0, NULL), CALL_CHAT, &l, &p, &error));
        p.prompts[0].n_ids = 5;
        assert_int_equal(wefti_api_params_fit(&p, CALL_CHAT, &l, &error), i % 2 == 0);
        error = (struct weft_api_error){0};
        p.prompts[0].n_ids = 0;
        wefti_api_params_fini(&p);
    }
}

static void a_prompt_alone_holds_no_log_probabilities_that_nobody_reads(void **state) {
    (void)state;
    struct weft_api_limits l = limits();
    struct params p;
    struct weft_api_error error = {0};
    l.max_logprob_bytes = 0;
    static const struct {
        const weft_api_kind *kind;
        const char *body;
    } cases[] = {{CALL_LLAMA, "{\"prompt\":[1,2,3],\"n_predict\":0,\"n_probs\":3}"},
                 {CALL_COMPLETION, "{\"prompt\":[1,2,3],\"max_tokens\":0,\"echo\":true}"}};
    for (size_t i = 0; i < 2; i++) {
        json_t *json = json_loads(cases[i].body, 0, NULL);
        assert_true(wefti_api_params_parse(json, cases[i].kind, &l, &p, &error));
        assert_true(wefti_api_params_fit(&p, cases[i].kind, &l, &error));
        assert_int_equal(p.sampling.max_tokens, 0);
        assert_int_equal(p.sampling.n_prompt_logprobs, -1);
        assert_int_equal(p.logprob_bytes, 0);
        wefti_api_params_fini(&p);
    }
}

static void parts_are_joined_by_newlines(void **state) {
    (void)state;
    struct weft_api_limits l = limits();
    struct params p;
    struct weft_api_error error = {0};
    const char *body = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
                       "\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":"
                       "[]}]}";
    assert_true(wefti_api_params_parse(json_loads(body, 0, NULL), CALL_CHAT, &l, &p, &error));
    const json_t *messages = json_object_get(p.chat.vars, "messages");
    const json_t *first = json_object_get(json_array_get(messages, 0), "content");
    const json_t *second = json_object_get(json_array_get(messages, 1), "content");
    assert_string_equal(json_string_value(first), "a\nb");
    assert_string_equal(json_string_value(second), "");
    wefti_api_params_fini(&p);
}

static void many_choices_in_one_request_are_refused(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error;
    char body[4096];
    size_t n = (size_t)snprintf(body, sizeof body, "{\"n\":128,\"prompt\":[");
    for (int i = 0; i < 33; i++)
        n += (size_t)snprintf(body + n, sizeof body - n, i ? ",[1]" : "[1]");
    (void)snprintf(body + n, sizeof body - n, "]}");
    assert_false(parse(body, CALL_COMPLETION, 1, &p, &error));
    assert_string_equal(error.param, "n");
    wefti_api_params_fini(&p);
}

static void blanks_and_digits_are_the_servers(void **state) {
    (void)state;
    struct params p;
    struct weft_api_error error;
    assert_true(parse("{\"prompt\":\"a\",\"guided_json\":{}}", CALL_COMPLETION, 4, &p, &error));
    assert_int_equal(p.sampling.grammar.json_blanks, 2);
    assert_int_equal(p.sampling.grammar.json_digits, 9);
    wefti_api_params_fini(&p);
    assert_true(parse("{\"prompt\":\"a\",\"structured_outputs\":{\"json\":{},"
                      "\"disable_any_whitespace\":true}}",
                      CALL_COMPLETION, 4, &p, &error));
    assert_int_equal(p.sampling.grammar.json_blanks, 0);
    wefti_api_params_fini(&p);
}

static void a_grammar_that_was_compiled_is_known(void **state) {
    (void)state;
    struct weft_grammar a, b;
    weft_grammar_init(&a);
    a.kind = WEFT_GRAMMAR_REGEX;
    a.text = "a+";
    a.n_bytes = 2;
    assert_false(wefti_api_is_honoured(&a));
    wefti_api_note_honoured(&a);
    char copy[] = "a+b";
    b = a;
    b.text = copy;
    assert_true(wefti_api_is_honoured(&b));
    b.n_bytes = 3; /* any difference counts */
    assert_false(wefti_api_is_honoured(&b));
    b = a;
    b.kind = WEFT_GRAMMAR_RULES;
    assert_false(wefti_api_is_honoured(&b));
    b = a;
    b.json_blanks++;
    assert_false(wefti_api_is_honoured(&b));
    char text[16];
    for (uint32_t i = 0; i < 5000; i++) { /* the table is bounded: the first one is gone by then */
        b.text = text;
        b.n_bytes = (uint32_t)snprintf(text, sizeof text, "a{%u}", i);
        wefti_api_note_honoured(&b);
        assert_true(wefti_api_is_honoured(&b));
    }
    assert_false(wefti_api_is_honoured(&a));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_body_is_taken_or_names_the_field),
        cmocka_unit_test(fields_arrive_as_they_were_given),
        cmocka_unit_test(grammars_arrive_by_all_their_names),
        cmocka_unit_test(objects_are_closed_where_that_is_asked_for),
        cmocka_unit_test(refusals_of_grammars_say_what_is_wrong_with_a_code),
        cmocka_unit_test(a_grammar_has_so_many_bytes_at_most),
        cmocka_unit_test(how_to_serve_a_request_arrives_as_it_was_given),
        cmocka_unit_test(sixty_four_strings_may_stop_a_request_and_no_more),
        cmocka_unit_test(unknown_fields_are_refused_where_that_is_wanted),
        cmocka_unit_test(a_wrong_model_is_told_which_there_are),
        cmocka_unit_test(llamas_names_go_before_openais),
        cmocka_unit_test(ollamas_options_have_its_defaults),
        cmocka_unit_test(a_number_too_small_for_a_float_is_not_off),
        cmocka_unit_test(defaults_fit_the_context),
        cmocka_unit_test(a_slot_is_a_session),
        cmocka_unit_test(a_shifting_request_may_be_longer_than_the_context),
        cmocka_unit_test(ignored_ends_are_still_kept_back_by_min_tokens),
        cmocka_unit_test(ends_beyond_the_vocabulary_are_passed_over),
        cmocka_unit_test(the_model_s_defaults_speak_where_a_request_is_silent),
        cmocka_unit_test(llamas_fields_have_its_defaults_and_go_until_the_context_is_full),
        cmocka_unit_test(log_probabilities_are_bounded_in_bytes),
        cmocka_unit_test(silence_about_max_tokens_asks_for_no_log_probabilities),
        cmocka_unit_test(a_prompt_alone_holds_no_log_probabilities_that_nobody_reads),
        cmocka_unit_test(parts_are_joined_by_newlines),
        cmocka_unit_test(many_choices_in_one_request_are_refused),
        cmocka_unit_test(a_grammar_that_was_compiled_is_known),
        cmocka_unit_test(blanks_and_digits_are_the_servers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
